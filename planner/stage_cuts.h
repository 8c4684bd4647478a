/** @file stage_cuts.h  Where a pipeline is cut into stages whose times do not add up.
 *
 * As partition.h, but a stage's time is that of its run of blocks as a whole: under a limit of
 * memory it is not the sum of its blocks' times. It is asked for, and may first be told from below.
 * The least of
 *
 *     step = sum of e_s + 2 sum of c + (m - 1) max (e_s + c_in + c_out) + max of the stages' sums
 *
 * is found with the times as told; runs of the answer that were told from below are then settled,
 * until all of an answer are. No other partition is faster, then, since none was told too slow.
 *
 * Each (stage, block) has the partitions so far that no other one beats in all of sum, slowest
 * stage and sums, but for those whose step cannot come below the best known.
 */
#ifndef CT_STAGE_CUTS_H
#define CT_STAGE_CUTS_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"

typedef struct ct_stage_time {
    double time_s; /* of a micro-batch; INFINITY: a stage cannot have it */
    double sums_s; /* at the end of the step */
} ct_stage_time;

typedef struct ct_stage_cuts {
    int n_stage, n_block; /* >= 1 */
    int64_t micro_batches;
    /** Of blocks first … end - 1 as stage s. *exact_p false: from below. */
    ct_status (*look)(void *ctx, int stage, int first, int end, ct_stage_time *time_p,
                      bool *exact_p);
    ct_status (*settle)(void *ctx, int stage, int first, int end);
    void *ctx;
    const double *cut_s; /* [n_stage][n_block]: behind stage s, in front of block b; INFINITY: no
                          * cut may be there */
} ct_stage_cuts;

/** first: [n_stage + 1], the stages' first blocks, and n_block. Nothing fits: *step_s_p is
 * INFINITY. Partitions of `worse` or more are not looked for. CT_ERR_NOMEM, or what settle says. */
ct_status ct_stage_cuts_solve(const ct_stage_cuts *c, double worse, int *first, double *step_s_p);

/** The formula above for a partition, with times as look tells them. */
ct_status ct_stage_cuts_time(const ct_stage_cuts *c, const int *first, double *step_s_p);

#endif
