/** @file job_stage.h  A stage of a pipeline: what any run of blocks takes on its ranks, and how its
 * blocks are split and made again so that they fit.
 *
 * A stage's replicas have unlike shares of a micro-batch where its nodes are unlike; replicas of a
 * kind with as many samples are a group. Seconds of a block are those of the slowest group, bytes
 * those of the group that has least room.
 *
 * A run of blocks that fits as a whole goes the fastest ways, by a table of the least time to each
 * (block, way). One that does not is a chain (chain.h), solved under the limit, with ways and
 * segments chosen together. Runs of alike blocks are solved once.
 */
#ifndef CT_JOB_STAGE_H
#define CT_JOB_STAGE_H

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
    ct_job_link tensor, ring;
    ct_job_group group[CT_JOB_MOST_GROUPS];
} ct_job_stage_kind;

/** A run of blocks as a stage. */
typedef struct ct_job_run {
    double time_s; /* of a micro-batch, both directions, what is made again among it; INFINITY: it
                    * does not fit */
    double sums_s; /* of the step: gradients summed, weights updated */
} ct_job_run;

typedef struct ct_job_stage ct_job_stage;

ct_status ct_job_stage_create(const ct_job_net *n, const ct_job_split *s, const ct_job_machine *m,
                              const ct_job_stage_kind *kind, ct_job_stage **stage_p);
void ct_job_stage_destroy(ct_job_stage *g); /* NULL allowed */
const ct_job_stage_kind *ct_job_stage_kind_of(const ct_job_stage *g);
const ct_job_split *ct_job_stage_split_of(const ct_job_stage *g);

/** Blocks first … end - 1 with so many micro-batches in flight: as it is, or from below where
 *  *exact_p is false. */
ct_status ct_job_stage_look(ct_job_stage *g, int first, int end, int64_t in_flight,
                            ct_job_run *run_p, bool *exact_p);
/** The fastest ways of a run, everything kept, whether or not that fits. */
double ct_job_stage_whole_s(const ct_job_stage *g, int first, int end);
/** Solves it where that is to be done; look then says how it is. */
ct_status ct_job_stage_settle(ct_job_stage *g, int first, int end, int64_t in_flight);

/** The run as it is run: way and mode [end - first]. spare: bytes of the limit that must stay free,
 *  or are there beside it where negative. *fits_p: it fits by these figures. */
ct_status ct_job_stage_choose(ct_job_stage *g, int first, int end, int64_t in_flight, double spare,
                              int *way, ct_chain_mode *mode, bool *fits_p);

/** Figures of a choice; of a group where they differ: g's slowest and fullest where group is -1. */
typedef struct ct_job_figures {
    double forward_s, backward_s; /* of a micro-batch; what is made again is backward's */
    double again_s;               /* … of that */
    double sums_s, update_s;      /* of a step */
    double sum_bytes;             /* of gradients on a rank, with those of its place */
    double weights, kept,
        other; /* bytes of a rank; kept: of all in flight, and the largest segment */
} ct_job_figures;

ct_job_figures ct_job_stage_figures(const ct_job_stage *g, int first, int end, int64_t in_flight,
                                    const int *way, const ct_chain_mode *mode, int group);
/** Bytes that a rank of a group may take; 0: any. -1: the group that has least room. */
double ct_job_stage_limit(const ct_job_stage *g, int group);
/** The least bytes that a run may come to, whatever is made again. */
double ct_job_stage_least(const ct_job_stage *g, int first, int end, int64_t in_flight);
/** Backward's seconds and bytes of gradients of a block that goes a way. */
double ct_job_stage_backward_s(const ct_job_stage *g, int block, int way);
double ct_job_stage_sum_bytes(const ct_job_stage *g, int block, int way);

#endif
