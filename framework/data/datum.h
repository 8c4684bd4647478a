/** @file datum.h  The records of an LMDB: Caffe's Datum, and Caffe-SSD's AnnotatedDatum, an image
 * with boxes.
 *
 * A Datum is planes of bytes or floats, or a compressed image, with a label. An AnnotatedDatum has
 * a Datum and groups of annotations, one group for each class in it. Its boxes come out as rows, in
 * the order of the groups (augment/boxes.h). Neither is trusted: sizes are compared with what the
 * record holds before memory is taken.
 */
#ifndef CT_DATUM_H
#define CT_DATUM_H

#include "framework/data/image.h"
#include "framework/data/writer.h"

/** Numbers of classes are floats in a batch, and exact there. */
enum { CT_MAX_CLASS = 1 << 20 }; /* the largest class that a box may be of */

/** What a thread needs to decode record after record; zero-initialise. */
typedef struct ct_datum_buffer {
    ct_sample_buffer values, decoded;
} ct_datum_buffer;

/** Frees what it holds. */
void ct_datum_room_release(ct_datum_buffer *room);

/** Decodes a serialised Datum of any size and content. color: for encoded images only. The values
 *  go into room. label_p may be NULL: no label wanted, else a record without one is an error.
 *  Quiet: CT_ERR_DATA with why; CT_ERR_CONFIG for an image kind that is not built in. */
ct_status ct_datum_decode(const void *data, size_t size, ct_color color, ct_datum_buffer *room,
                          ct_sample *sample, float *label_p, ct_why *why);

/** The same of Caffe-SSD's AnnotatedDatum, an image with boxes. row: room for `boxes` rows
 *  (augment/boxes.h), or NULL: no boxes are wanted. CT_ERR_DATA, too: more boxes than that. */
ct_status ct_annotated_decode(const void *data, size_t size, ct_color color, ct_datum_buffer *room,
                              ct_sample *sample, int64_t boxes, float *row, ct_why *why);

/** Whether it is an AnnotatedDatum; a Datum is none. */
bool ct_is_annotated(const void *data, size_t size);

/** Serialises a record as a Datum, or with boxes as an AnnotatedDatum, grouped by their classes.
 *  room receives *size_p bytes. */
ct_status ct_record_encode(const ct_record *record, ct_sample_buffer *room, size_t *size_p);

#endif
