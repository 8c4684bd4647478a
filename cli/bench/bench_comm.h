/** @file bench_comm.h  `cortado bench comm`: the collectives against MPI_Allreduce.
 *
 * Each allreduce is checked on every rank while it is timed, and every rank rewrites its whole
 * buffer before each, untimed, as training does: a buffer that nobody rewrites stays in the cache
 * of the core that summed it. The time of one is that of the slowest rank, after a barrier; the
 * figure is the median. `mpi` is the blocking MPI_Allreduce in place on
 * a warm buffer in plain memory; ours run on the memory that training gives them: hier on a buffer
 * from ct_comm_arena(), the others on the same as mpi.
 */
#ifndef CT_BENCH_COMM_H
#define CT_BENCH_COMM_H

#include "comm/collective/coll.h"
#include "framework/base/text.h"

#define CT_BENCH_MAX_SIZE 32
#define CT_BENCH_MAX_ALGO 16

typedef struct ct_bench_plan {
    int n_size;
    int64_t bytes[CT_BENCH_MAX_SIZE]; /* multiples of 4 */
    int n_algo;
    const ct_coll_ops *algo[CT_BENCH_MAX_ALGO]; /* NULL: MPI_Allreduce itself */
    int repeat; /* 0: as many as take about a second, 5 to 200                */
    bool plain; /* hier on plain memory too: its ranks cannot share it */
} ct_bench_plan;

typedef struct ct_bench_result {
    int64_t bytes;
    const char *algo;
    int repeats;
    double median_s, least_s;
    double to_mpi; /* time of mpi / time of this; 0: mpi was not run */
} ct_bench_result;

/** "4K,64K,1M" (K, M, G: powers of 1024) and "ring,mpi" into the plan; "all" or NULL: all that
 * there are. CT_ERR_CONFIG. */
ct_status ct_bench_sizes(const char *list, ct_bench_plan *plan);
ct_status ct_bench_algorithms(const ct_comm *c, const char *list, ct_bench_plan *plan);
/** Fills result[n_size * n_algo], size by size; the same on all ranks. Collective. CT_ERR_COMM
 *  where a sum is wrong. */
ct_status ct_bench_comm(ct_comm *c, const ct_bench_plan *plan, ct_bench_result *result);
/** One object a line and point: {"algorithm":…,"bytes":…,"us":…,"algbw_gbs":…,"busbw_gbs":…,…}:
 *  the median time; bytes a second; and those times 2 (p-1)/p, which is what each rank must send
 * and receive at least, so that it compares over numbers of ranks (as in NCCL's tests). */
void ct_bench_json(const ct_comm *c, const ct_bench_plan *plan, const ct_bench_result *result,
                   ct_text *out);
void ct_bench_print(const ct_comm *c, const ct_bench_plan *plan, const ct_bench_result *result);

#endif
