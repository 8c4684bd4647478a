/** @file repro.h  A sum over the ranks whose bits depend on the terms alone.
 *
 * Two collectives: of each block's largest exponent, then of the elements as 64-bit integers over
 * that exponent (repro_code.h). Neither rounds, so algorithm, placement, buckets and timing do not
 * show. Twice the bytes of f32, and the memory to hold them.
 */
#ifndef CT_REPRO_H
#define CT_REPRO_H

#include "comm/collective/coll.h"

typedef struct ct_repro ct_repro;

/** For sums of x[count], in place; x stands at the start of a block. allreduce: as in
 *  ct_coll_choose(). The messages use `tag` and the CT_COLL_TAGS - 1 after it. Collective, in one
 *  order on all ranks. CT_ERR_CONFIG beyond 2^20 ranks. */
ct_status ct_repro_create(ct_comm *c, const char *allreduce, float *x, int64_t count, int tag,
                          ct_repro **r_p);
void ct_repro_destroy(ct_repro *r); /* NULL allowed; collective */

ct_status ct_repro_start(ct_repro *r);
/** CT_INPROGRESS until x holds the sum. in_turn: the second collectives of all sums that started
 *  before this one have started; MPI's own waits for that. */
ct_status ct_repro_progress(ct_repro *r, bool in_turn);
/** The second collective has started, in this use. */
bool ct_repro_adds(const ct_repro *r);

const char *ct_repro_algorithm(const ct_repro *r);
double ct_repro_predicted_s(const ct_repro *r); /* of both collectives */
int64_t ct_repro_bytes_sent(const ct_repro *r);
double ct_repro_code_s(const ct_repro *r); /* spent on encoding and decoding since creation */
/** What it computes itself, and when it last did: start and end by ct_clock_s(). */
typedef enum { CT_REPRO_SCAN, CT_REPRO_ENCODE, CT_REPRO_DECODE, CT_REPRO_WORKS } ct_repro_work;
const double *ct_repro_times(const ct_repro *r, ct_repro_work work);
/** Where it stands, for the watchdog; any thread. */
ct_coll_where *ct_repro_where(ct_repro *r);

/** As ct_coll_ops.pending. */
int ct_repro_pending(ct_repro *r, MPI_Request **out, int max);

/** The whole of it, blocking, for x[n] that starts a block: small sums. Collective. */
ct_status ct_repro_run(ct_comm *c, const char *allreduce, float *x, int64_t n);

#endif
