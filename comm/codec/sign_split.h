/** @file sign_split.h  Each part of a vector of signs to the rank that looks after it. Private to
 * comm/codec.
 *
 * Messages go to the rank next to this one first, then to the one after that, and so on: no rank
 * gets all at once. A few are under way in each direction.
 */
#ifndef CT_SIGN_SPLIT_H
#define CT_SIGN_SPLIT_H

#include "comm/codec/sign.h"
#include "comm/collective/coll.h"
#include "framework/tensor/device.h"

typedef struct ct_sign_split ct_sign_split;

/** The parts of *cut, one a rank, are dealt to order[0], order[1] …, of which this rank is `me`;
 *  order is borrowed. CT_ERR_NOMEM. Local. */
ct_status ct_sign_split_create(ct_comm *c, const ct_sign_cut *cut, const int *order, int me,
                               int tag, ct_sign_split **s_p);
/** Payloads lie in memory that copies to and from the device are fast with, and stay there until
 *  the next start: nobody adds them up here. Before it is used. */
ct_status ct_sign_split_keep_on(ct_sign_split *s, const ct_device *dev);
/** … that of shift 1 .. parts - 1, once all is there; they are to be added in this order. */
void *ct_sign_split_landed(ct_sign_split *s, int shift);
void ct_sign_split_destroy(ct_sign_split *s); /* NULL allowed */
/** Where the payloads of all parts go, but that of part `me`, before start. */
void *ct_sign_split_payload(ct_sign_split *s);
void ct_sign_split_start(ct_sign_split *s);
/** Adds what comes in to part[], the elements of part `me` (kept on a device: NULL), in an order
 * that does not depend on when it comes. CT_INPROGRESS until all is there, and ours has gone out.
 * *decode_s grows by the seconds of adding. CT_ERR_COMM. */
ct_status ct_sign_split_progress(ct_sign_split *s, float *part, int64_t *bytes_sent,
                                 double *decode_s, ct_coll_where *where);
/** As ct_coll_ops.pending. */
int ct_sign_split_pending(ct_sign_split *s, MPI_Request **out, int max);

#endif
