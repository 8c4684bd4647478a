/** @file net_set.h  The set that a data layer of a net reads, looked at sample by sample, without a
 *  net: for pages and pictures. Batches are the loader's (loader.h).
 *
 *      ct_net_set s;
 *
 *      CT_TRY(ct_net_set_open(net, CT_TEST, NULL, &s));
 *      status = ct_net_set_read(&s, 7);
 *      … s.sample, ct_net_set_label(), ct_net_set_values(), ct_net_set_boxes() …
 *      ct_net_set_close(&s);
 */
#ifndef CT_NET_SET_H
#define CT_NET_SET_H

#include "framework/data/augment/augment.h"
#include "framework/data/augment/boxes.h"
#include "framework/data/reader.h"
#include "framework/data/transform.h"

typedef struct ct_net_set {
    ct_reader *reader; /* count, and the shape of the first sample */
    const char *source;
    ct_augment *augment; /* NULL: none */
    ct_augment_room room;
    ct_transform *transform;
    ct_sample sample; /* that was read last: pixels as the set has them */
    int64_t id;       /* … and its number                                         */
    float *box;       /* of images with boxes: rows, as the net gets them; NULL: no such set */
    void *local;
} ct_net_set;

/** The set of the first data layer of that phase; source: another set, read the same way; NULL: its
 *  own. CT_UNSUPPORTED, quiet: there is no such layer of type Data, AnnotatedData, ImageData or
 * HDF5Data, or its set is not there; *s is closed then, but source says which one, if any.
 * CT_ERR_CONFIG, CT_ERR_IO, CT_ERR_DATA, logged: the set cannot be read. */
ct_status ct_net_set_open(const Ct__NetParameter *net, ct_phase phase, const char *source,
                          ct_net_set *s);
void ct_net_set_close(ct_net_set *s); /* an open that failed needs none */
/** Logged. */
ct_status ct_net_set_read(ct_net_set *s, int64_t id);
/** Of the sample that was read; -1: it has none, or boxes. */
int64_t ct_net_set_label(const ct_net_set *s);
/** What the net gets of it in that phase, augmented, cut and less the mean: in TRAIN by chance, the
 *  same for the same sample. CT_ERR_DATA, CT_ERR_CONFIG, logged: its shape does not fit. values_p:
 *  malloc'ed. */
ct_status ct_net_set_values(ct_net_set *s, ct_shape *shape_p, float **values_p);
/** The boxes of these values; row NULL: the set has none. Borrowed. */
ct_boxes ct_net_set_boxes(const ct_net_set *s);
/** What the set calls a sample, without the number that conversions put in front. */
void ct_net_set_name(const ct_net_set *s, int64_t id, char *text, size_t size);

#endif
