/** @file trace_data.h  What a trace says of a step: where its time went, rank by rank.
 *
 * Each moment of a rank's steps belongs to the innermost span of its main thread (row 0) there, and
 * so to one part. Communication is hidden while a bucket is under way and the main thread does not
 * wait for communication.
 */
#ifndef CT_TRACE_DATA_H
#define CT_TRACE_DATA_H

#include <stdint.h>

#include "framework/base/status.h"

typedef enum {
    CT_TRACED_COMPUTE, /* forward, backward, update                 */
    CT_TRACED_DATA,    /* waiting for a batch                       */
    CT_TRACED_EXPOSED, /* waiting for gradients, sums, other ranks  */
    CT_TRACED_MOVE,    /* messages, additions, codecs between layers */
    CT_TRACED_OTHER,   /* tests, snapshots, and what no span is of  */
    CT_TRACED_N
} ct_traced_part;

/** Means of a rank's step, in ms. */
typedef struct ct_traced_rank {
    int64_t rank, steps;
    double step_ms, ms[CT_TRACED_N]; /* the parts add up to the step     */
    double under_way_ms, hidden_ms;  /* some bucket is under way; hidden */
} ct_traced_rank;

typedef struct ct_traced {
    ct_traced_rank *rank; /* by number, those that have steps */
    int n;
    char iterations[48]; /* "10-14" */
} ct_traced;

/** Reads what `train --trace` writes. n is 0 where it has no iterations: the run goes on, or ended
 *  before them. CT_ERR_IO; CT_ERR_DATA: no JSON, or no trace; CT_ERR_NOMEM. Logged. */
ct_status ct_traced_read(const char *file, ct_traced *t);
void ct_traced_destroy(ct_traced *t); /* zeroed ones allowed */

#endif
