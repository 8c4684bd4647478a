/** @file repro.h  A sum over the ranks whose bits depend on the terms alone.
 *
 * Two collectives: of each block's largest exponent, then of the elements as 64-bit integers over
 * that exponent (below). Neither rounds, so algorithm, placement, buckets and timing do not
 * show. Twice the bytes of f32, and the memory to hold them.
 */
#ifndef CT_REPRO_H
#define CT_REPRO_H

#include <stdint.h>

#include "comm/collective/coll.h"

/* ---- floats as integers that can be added in any order
 *
 * After the idea of Demmel and Nguyen ("Parallel reproducible summation", IEEE Trans. Computers
 * 2015), cut down to what an allreduce needs: one round for a common exponent, one for integers. A
 * block is CT_REPRO_BLOCK elements that begin at a multiple of CT_REPRO_BLOCK in the arena. It is a
 * cache line of gradients. So parameters begin blocks, and buckets cut at any such place have the
 * same blocks. With e the largest biased exponent of a block's finite elements over all ranks, |x|
 * < 2^(e-126), and x travels as q = rint(x 2^(43 + 126 - e)), |q| < 2^43. Sums over up to 2^20
 * ranks stay below 2^63, and every order and grouping of the additions gives the same bits.
 *
 * Error of an element's sum over p ranks: at most p 2^(e-126-44), half a unit of q a rank, and one
 * rounding to f32 at the end. Elements within 2^19 of their block's largest travel exactly, so
 * there the result is the exact sum rounded once (for up to 2^10 ranks; beyond, sums above 2^53
 * are first rounded to 53 bits). A sum in f32 errs by up to (p-1) 2^-24 sum |x|.
 *
 * Infinities and NaNs are counted beside the finite sum. In blocks that hold one on some rank, the
 * integer carries two counters of k + 1 bits above the sum, 2^k >= p, of +inf or NaN and of -inf or
 * NaN. The sum keeps all its 43 bits up to 64 ranks, and 64 - 3 (k + 1) beyond, cut off. The result
 * is what a plain sum gives: NaN, or +inf with -inf: NaN; else an infinity; else the sum. A sum of
 * zeros is +0, also of negative ones.
 */
enum {
    CT_REPRO_BLOCK = 16, /* elements                     */
    CT_REPRO_BITS = 43,  /* of an integer: |q| < 2^43    */
    CT_REPRO_LOG_RANKS = 20
};

static inline int64_t ct_repro_blocks(int64_t n)
{
    return (n + CT_REPRO_BLOCK - 1) / CT_REPRO_BLOCK;
}

/** top[b]: largest biased exponent of the finite elements of block b; odd[b]: 1 where an element is
 *  not finite. To be maximised over the ranks. n_thread at most, in all three. */
void ct_repro_scan(const float *x, int64_t n, uint8_t *top, uint8_t *odd, int n_thread);
/** With the maxima over n_rank <= 2^20 ranks; q may not overlap x. */
void ct_repro_encode(const float *x, int64_t n, const uint8_t *top, const uint8_t *odd, int n_rank,
                     int64_t *q, int n_thread);
/** x from the sums q. */
void ct_repro_decode(const int64_t *q, int64_t n, const uint8_t *top, const uint8_t *odd,
                     int n_rank, float *x, int n_thread);

typedef struct ct_repro ct_repro;

/** For sums of x[count], in place; x stands at the start of a block. allreduce: as in
 *  ct_coll_choose(). The messages use `tag` and the CT_COLL_TAGS - 1 after it. Collective, in one
 *  order on all ranks. CT_ERR_CONFIG beyond 2^20 ranks. */
ct_status ct_repro_create(ct_comm *c, const char *allreduce, float *x, int64_t count, int tag,
                          ct_repro **r_p);
/** Adds what that takes of this rank, as ct_coll_count() does. */
ct_status ct_repro_count(ct_comm *c, const char *allreduce, int64_t count, int64_t *bytes_p);
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
