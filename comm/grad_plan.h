/** @file grad_plan.h  How the gradients are cut into buckets. Private to comm/. */
#ifndef CT_GRAD_PLAN_H
#define CT_GRAD_PLAN_H

#include "comm/grad_pipe.h"

typedef struct ct_bucket_cut {
    int first, n;          /* ranges                           */
    int64_t offset, count; /* elements of the arena, gaps between its ranges included */
    bool coded;            /* through the codec; else dense f32 */
} ct_bucket_cut;

/** Checks config and ranges, and cuts: neighbours share a bucket up to bucket_bytes; a range of the
 *  codec's min_bytes and more is a bucket of its own. *cut_p is the caller's to free(). CT_ERR_ARG
 *  (ranges), CT_ERR_CONFIG (config). */
ct_status ct_grad_plan_cut(const ct_grad_pipe_config *config, const ct_grad_range *range,
                           int n_range, ct_bucket_cut **cut_p, int *n_cut_p);
/** A number that differs where plans do. */
uint64_t ct_grad_plan_hash(const ct_grad_pipe_config *config, const ct_grad_range *range,
                           int n_range, const ct_bucket_cut *cut, int n_cut);

#endif
