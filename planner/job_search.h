/** @file job_search.h  The best plan of a net over the ranks of a job.
 *
 * It tries every tensor degree that divides the ranks (and lies on one node, or on whole ones), and
 * every number of stages that divides what is left. It tries every number of micro-batches that
 * divides the batch, every order of the nodes' classes, and every way that a tied table may go. For
 * each the stages are cut exactly (stage_cuts.h), a stage's time and memory being those of its
 * chain (job_stage.h). The best by that estimate are simulated and ranked by it. Configurations
 * whose bound is above those are not cut.
 */
#ifndef CT_JOB_SEARCH_H
#define CT_JOB_SEARCH_H

#include "planner/job_plan.h"

/** Plans that are simulated. */
#define CT_JOB_MOST_PLANS 32
/** Orders of the nodes that are tried. */
#define CT_JOB_MOST_ORDERS 64
/** Ranks of a tensor group at most. */
#define CT_JOB_MOST_TENSOR 64

/** What a search may not choose; 0: it may. */
typedef struct ct_job_fix {
    bool data; /* data-parallel: tensor 1, one stage */
    int tensor, n_stage;
    int64_t micro_batches;
} ct_job_fix;

typedef struct ct_job_search_request {
    const ct_job_net *net;         /* borrowed, until the search is destroyed */
    const ct_job_machine *machine; /* likewise */
    int64_t batch;
    ct_job_fix fix;
    int zero;                            /* what replicas share out in all plans (ZeRO) */
    const struct ct_rank_shards *shards; /* of ct_job_space */
    bool in_bytes; /* plans fit by the bytes of the nets that ranks run (job_exact.h), not by the
                    * figures of blocks */
} ct_job_search_request;

typedef struct ct_job_search {
    ct_job_space space;
    int n; /* plans that fit, the fastest first; 0: nothing fits */
    ct_job_plan *plan;
    ct_job_plan data;    /* tensor 1, one stage, one micro-batch, even shares, everything kept; its
                          * fits says whether it does. n_stage 0: the batch has fewer samples */
    ct_job_plan uniform; /* of the plans with as many blocks in each stage, even shares, everything
                          * kept: the fastest that fits; n_stage 0: none */
    double least_bytes;  /* nothing fits: a limit of a rank with which something does */
    int64_t n_configuration;
    double search_s;
} ct_job_search;

/** Nothing fits: CT_OK with n 0. CT_ERR_CONFIG: no configuration is as asked. */
ct_status ct_job_search_run(const ct_job_search_request *q, ct_job_search *s);
void ct_job_search_destroy(ct_job_search *s); /* zeroed ones too */

#endif
