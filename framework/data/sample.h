/** @file sample.h  One sample on its way from a reader to a batch, and room that grows.
 *
 * A sample has fields, as a data layer has tops. Field 0 is what gets transformed: 8-bit or float
 * values in Caffe's order (channels, height, width). The other fields (labels, or any further HDF5
 * data sets) are floats, one field after the other in `rest`.
 */
#ifndef CT_SAMPLE_H
#define CT_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "framework/data/crop.h"
#include "framework/tensor/tensor.h"

#define CT_MAX_FIELD 8

/** Memory that is kept from sample to sample; zero-initialise. */
typedef struct ct_sample_buffer {
    uint8_t *data;
    size_t capacity;
} ct_sample_buffer;

/** Makes r at least `bytes` long; what it held is lost. CT_ERR_NOMEM, logged. */
ct_status ct_sample_buffer_reserve(ct_sample_buffer *r, size_t bytes);
void ct_sample_buffer_release(ct_sample_buffer *r);

/** Why a record cannot be used. Decoders fill it instead of logging, because only their caller
 *  knows the record's name; the caller logs once, with both. */
typedef struct ct_why {
    char text[512];
} ct_why;

void ct_why_set(ct_why *why, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/** Writes the reason and evaluates to _code. */
#define CT_WHY(_why, _code, ...) (ct_why_set(_why, __VA_ARGS__), (_code))

typedef struct ct_sample {
    const uint8_t *u8; /* one of u8 and f32 is set; valid until the next read of the same thread */
    const float *f32;
    ct_shape shape; /* of field 0, without the batch axis                                   */
    float *rest;    /* the caller's: fields 1, 2 …, ct_reader_rest_count() values           */
    int64_t boxes;  /* field 1 is so many rows of a box each (augment/boxes.h); 0: it is none  */
    ct_why *why;    /* the caller's: a read that fails writes the reason here; NULL: it logs it */
    ct_crop crop;   /* the caller's: which of several crops it wants */
} ct_sample;

#endif
