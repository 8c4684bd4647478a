/** @file job_price.h  What the blocks of a net take on the ranks of a stage, in each way that they
 * may go, and what a choice of ways comes to.
 *
 * A stage's replicas have unlike shares of a micro-batch where its nodes are unlike; replicas of a
 * kind with as many samples are a group. Seconds of a block are those of the slowest group, bytes
 * those of the group that has least room.
 */
#ifndef CT_JOB_PRICE_H
#define CT_JOB_PRICE_H

#include "planner/chain.h"
#include "planner/job_split.h"

typedef struct ct_job_group {
    int kind;      /* of nodes               */
    int64_t share; /* samples of a replica in a micro-batch */
    int n;         /* replicas               */
} ct_job_group;

enum { CT_JOB_MOST_GROUPS = 2 * CT_MAX_NODE_CLASS };

/** What a stage is: two that are the same cost the same. */
typedef struct ct_job_stage_kind {
    int n_group, data; /* data: replicas of all groups */
    int64_t micro;     /* micro-batches over which a step's sums are spread when ways are chosen; 0:
                        * sums do not count, since backward may hide them */
    int tie_way;       /* of the blocks of a tied table; -1: any */
    int zero;          /* what replicas share out (ZeRO): 1 states, 2 gradients, 3 weights, too */
    ct_job_link tensor, ring;
    ct_job_group group[CT_JOB_MOST_GROUPS];
} ct_job_stage_kind;

/** Of one group: what blocks take in each way, [block][way]. */
typedef struct ct_job_price {
    double *forward, *backward, *again;   /* seconds */
    double *kept, *fixed, *input, *other; /* bytes   */
    double limit;                         /* of a rank; 0: any */
} ct_job_price;

typedef struct ct_job_prices {
    const ct_job_net *n; /* borrowed, as the next two */
    const ct_job_split *s;
    const ct_job_machine *m;
    ct_job_stage_kind kind;
    int n_block;
    ct_job_price *group;               /* [n_group + 1]: the last is the slowest of all … */
    int full;                          /* the group with least room */
    double *weights;                   /* [block][way] bytes */
    double *sums, *update, *sum_bytes; /* [block][way] seconds of a step; bytes */
    double *reshard;                   /* [block][from][to] */
    double *leave;                     /* [block][way] */
    double *numbers;                   /* the memory of all of these */
} ct_job_prices;

/** Where a block's way stands in these tables. */
static inline size_t ct_job_cell(int block, int way)
{
    return (size_t)block * CT_JOB_N_WAY + (size_t)way;
}

ct_status ct_job_prices_make(const ct_job_net *n, const ct_job_split *s, const ct_job_machine *m,
                             const ct_job_stage_kind *kind, ct_job_prices *p);
void ct_job_prices_destroy(ct_job_prices *p); /* zeroed ones too */

/** Bytes that a rank of a group may take; 0: any. -1: of the group that has least room. */
double ct_job_prices_limit(const ct_job_prices *g, int group);
/** The part of a tied table that blocks first … end - 1 have beside their weights. The first of its
 *  two blocks counts it. Where that is of another stage the last one does, which goes
 *  `way_last`. */
double ct_job_prices_tied(const ct_job_prices *g, int first, int end, int way_last);

/** Figures of a choice; of a group where they differ: the slowest and the fullest where group is
 *  -1. */
typedef struct ct_job_figures {
    double forward_s, backward_s; /* of a micro-batch; what is made again is backward's */
    double again_s;               /* … of that */
    double sums_s, update_s;      /* of a step */
    double sum_bytes;             /* of gradients on a rank, with those of its place */
    double weights, kept,
        other; /* bytes of a rank; kept: of all in flight, and the largest segment */
} ct_job_figures;

/** way, mode: [end - first]. */
ct_job_figures ct_job_prices_figures(const ct_job_prices *g, int first, int end, int64_t in_flight,
                                     const int *way, const ct_chain_mode *mode, int group);

#endif
