/** @file row_sum.h  The sum over ranks of a gradient of which each rank has few rows. Private to
 * comm/.
 *
 * So the gradient of a table is, of which a batch reads some rows. Each rank's rows go to all
 * others as a list (allgatherv.h): how many they are, their numbers, and their values, each row
 * once. All ranks add them up in the order of ranks, and so have the same bits. Memory for the rows
 * of all ranks.
 */
#ifndef CT_ROW_SUM_H
#define CT_ROW_SUM_H

#include "comm/collective/coll.h"
#include "comm/core/comm.h"

typedef struct ct_row_sum ct_row_sum;

/** Of a matrix of `rows` times n, of which a rank has at most `most` rows in a step: the same on
 *  all ranks. One tag. Local. CT_ERR_NOMEM. */
ct_status ct_row_sum_create(ct_comm *c, int64_t rows, int64_t n, int64_t most, int tag,
                            ct_row_sum **s_p);
/** Bytes that it takes. */
int64_t ct_row_sum_size(const ct_comm *c, int64_t rows, int64_t n, int64_t most);
void ct_row_sum_destroy(ct_row_sum *s); /* NULL allowed */
/** A step begins, in which this rank has no row yet. */
void ct_row_sum_begin(ct_row_sum *s);
/** Row index[k] is among this rank's, for k in [0, m); value[k * n …] is added to it, in the order
 *  of k. value NULL: ct_row_sum_take() brings what it is. CT_ERR_ARG: too many, or no such row. */
ct_status ct_row_sum_add(ct_row_sum *s, int64_t m, const int32_t *index, const float *value);
/** This rank's rows are those of the matrix, which are zero there afterwards. */
void ct_row_sum_take(ct_row_sum *s, float *matrix);
/** They leave. */
ct_status ct_row_sum_start(ct_row_sum *s);
/** CT_INPROGRESS until those of all ranks are here. CT_ERR_COMM. */
ct_status ct_row_sum_progress(ct_row_sum *s);
/** Adds the rows of all ranks to the matrix. */
void ct_row_sum_deliver(const ct_row_sum *s, float *matrix);

/** As ct_coll_ops.pending. */
int ct_row_sum_pending(ct_row_sum *s, MPI_Request **out, int max);
ct_coll_where *ct_row_sum_where(ct_row_sum *s);
int64_t ct_row_sum_payload_bytes(const ct_row_sum *s); /* of this rank, in this step */
int64_t ct_row_sum_bytes_sent(const ct_row_sum *s);    /* since creation */

#endif
