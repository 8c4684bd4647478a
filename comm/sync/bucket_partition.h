/** @file bucket_partition.h  How the gradients are cut into buckets. Private to comm/. */
#ifndef CT_BUCKET_PARTITION_H
#define CT_BUCKET_PARTITION_H

#include "comm/sync/grad_pipe.h"

typedef struct ct_bucket_cut {
    int first, n;          /* ranges                           */
    int64_t offset, count; /* elements of the arena, gaps between its ranges included */
    int part, n_part;      /* n_part 1: whole ranges; else this part of one range */
    bool coded;            /* through the codec; else dense f32 */
    bool alone;            /* a range with a bucket of its own  */
} ct_bucket_cut;

/** How large buckets are made, in bytes. */
typedef struct ct_bucket_sizes {
    int64_t usual; /* at most, in the middle of the arena                                       */
    int64_t ends;  /* … of the first and the last bucket; those next to them grow towards usual */
    int64_t most;  /* a larger range is cut into parts; codecs keep ranges whole                */
} ct_bucket_sizes;

/** Seconds of the allreduce that buckets of so many bytes would take: its latency, and all. */
typedef ct_status (*ct_grad_cost_fn)(void *ctx, int64_t bytes, double *latency_s_p,
                                     double *all_s_p);
/** bucket_bytes as it stands. Or, where that is 0, by the costs: usual is the least power of two at
 *  which the latency of its allreduce is at most 1/20 of the time, and no more than some 100
 *  buckets result. ends is a quarter of it, most eight times it. No MPI. */
ct_status ct_bucket_sizes_by(ct_grad_cost_fn cost, void *ctx, int n_rank, int64_t bucket_bytes,
                             const ct_grad_range *range, int n_range, ct_bucket_sizes *sizes_p);
/** The same by the cost model of the communicator and the config's allreduce. Rank 0's word.
 *  Collective. */
ct_status ct_bucket_sizes_find(ct_comm *c, const ct_grad_pipe_config *config,
                               const ct_grad_range *range, int n_range, ct_bucket_sizes *sizes_p);

/** Checks config and ranges. CT_ERR_ARG (ranges), CT_ERR_CONFIG (config). */
ct_status ct_bucket_partition_check(const ct_grad_pipe_config *config, const ct_grad_range *range,
                                    int n_range);
/** Cuts: neighbours share a bucket; a range of its codec's min_bytes and more is a bucket of its
 *  own. *cut_p is the caller's to free(). */
ct_status ct_bucket_partition_cut(const ct_grad_pipe_config *config, const ct_bucket_sizes *sizes,
                                  const ct_grad_range *range, int n_range, ct_bucket_cut **cut_p,
                                  int *n_cut_p);
/** What a rank that has [own_first, own_first + own_count) of a bucket has of one of its ranges:
 *  elements of the range from *from_p on. 0 or less: nothing. */
int64_t ct_bucket_own_piece(const ct_bucket_cut *cut, int64_t own_first, int64_t own_count,
                            const ct_grad_range *r, int64_t *from_p);
/** CT_ERR_CONFIG on all ranks where they differ in settings or in a bucket; says which, and how
 *  rank 0's looks. Collective. */
ct_status ct_bucket_partition_compare(ct_comm *c, const ct_grad_pipe_config *config,
                                      const ct_grad_range *range, const ct_bucket_cut *cut,
                                      int n_cut);

#endif
