/** @file datum.h  Caffe's Datum: the record of an LMDB. */
#ifndef CT_DATUM_H
#define CT_DATUM_H

#include "framework/data/image.h"

/** What a thread needs to decode record after record; zero-initialise. */
typedef struct ct_datum_buffer {
    ct_sample_buffer values, decoded;
} ct_datum_buffer;

void ct_datum_room_release(ct_datum_buffer *room);

/** Decodes a serialised Datum of any size and content. color: for encoded images only. The values
 *  go into room. label_p may be NULL: no label wanted, else a record without one is an error.
 *  Quiet: CT_ERR_DATA with why; CT_ERR_CONFIG for an image kind that is not built in. */
ct_status ct_datum_decode(const void *data, size_t size, ct_color color, ct_datum_buffer *room,
                          ct_sample *sample, float *label_p, ct_why *why);

/** Serialises a Datum. encoded: values is a compressed image, n its bytes, and channels, height,
 *  width are for information; else values is channels * height * width bytes in planes. room
 *  receives *size_p bytes. */
ct_status ct_datum_encode(const uint8_t *values, size_t n, int channels, int64_t height,
                          int64_t width, int label, bool encoded, ct_sample_buffer *room,
                          size_t *size_p);

#endif
