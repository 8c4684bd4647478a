/** @file job_plan.h  A plan of a net over the ranks of a job, and what its step takes.
 *
 * Places of the plan are cut into stages of `data` replicas of `tensor` ranks each. A stage is a
 * run of blocks with a way for each (job_split.h) and what is made again (chain.h). Its replicas
 * share the samples of a micro-batch: each has one for every rank, and the others go one at a time
 * to the replica that then ends first.
 *
 * A step is simulated (simulate.h): one worker for all replicas of a stage that are alike, whose
 * messages, sums and cards stand for those of one of their nodes.
 */
#ifndef CT_JOB_PLAN_H
#define CT_JOB_PLAN_H

#include "planner/job_stage.h"

typedef struct ct_job_config {
    int tensor, data, n_stage; /* ranks = their product */
    int64_t micro_batches;
    const int *order; /* [n_node] of the machine, borrowed */
    int tie_way;      /* of the blocks of a tied table; -1: there is none */
    int zero;         /* what replicas share out (ZeRO)                   */
    bool even;        /* shares are even whatever nodes the replicas lie on */
    bool hides_sums;  /* ways are chosen as if sums of gradients took no time */
} ct_job_config;

/** A stage of a plan. */
typedef struct ct_job_stage_plan {
    int first, end; /* blocks */
    int64_t in_flight;
    int64_t *share; /* [data]; owned */
    ct_job_stage_kind kind;
    ct_job_figures figures; /* of its slowest and its fullest group */
    ct_job_figures group[CT_JOB_MOST_GROUPS];
    double told[CT_JOB_MOST_GROUPS]; /* bytes of its ranks by the blocks' figures */
    double beside;                   /* bytes of the nets beside those, where they were made */
    double limit;                    /* bytes that a rank of its fullest group may take; 0: any */
    double bubble; /* part of the step in which its slowest replica does nothing */
} ct_job_stage_plan;

typedef struct ct_job_plan {
    ct_job_config config; /* its order is the plan's own */
    int *order;
    ct_job_stage_plan *stage; /* [n_stage] */
    int *way;                 /* [block]   */
    ct_chain_mode *mode;      /* [block]   */
    double estimate_s, step_s;
    bool fits;
} ct_job_plan;

enum { CT_JOB_MOST_DEGREES = 64 };

struct ct_rank_shards;

/** All that plans are made of. */
typedef struct ct_job_space {
    const struct ct_rank_shards *shards; /* of ranks that share out (rank_memory.h); NULL: each has
                                          * all of its weights' states */
    const ct_job_net *net;
    const ct_job_machine *machine;
    int64_t batch; /* of a step */
    int n_split;
    ct_job_split *split; /* of the tensor degrees that were asked for; owned */
    int n_stage, most_stage;
    ct_job_stage **stage; /* those that were asked for; owned */
} ct_job_space;

void ct_job_space_destroy(ct_job_space *s); /* zeroed ones too */
ct_status ct_job_space_split(ct_job_space *s, int tensor, const ct_job_split **split_p);
/** A stage's costs, made once: as long as the space, or until it is trimmed. shares: [data]. */
ct_status ct_job_space_stage(ct_job_space *s, const ct_job_config *c, int stage,
                             const int64_t *share, ct_job_stage **stage_p);
/** Forgets stages where there are many. */
void ct_job_space_trim(ct_job_space *s);
ct_job_layout ct_job_layout_of(const ct_job_space *s, const ct_job_config *c);
/** Micro-batches that a stage holds at a time. */
int64_t ct_job_in_flight(const ct_job_config *c, int stage);
/** The samples of each replica of a stage in a micro-batch. CT_ERR_CONFIG: fewer than one for each.
 */
ct_status ct_job_shares(ct_job_space *s, const ct_job_config *c, int stage, int64_t *share);

/** Bytes of a sample that a rank hears in front of a block that goes a way, where a stage begins.
 */
double ct_job_heard_bytes(const ct_job_net *n, int tensor, int block, int way);
/** The largest of the shares. */
int64_t ct_job_most_share(const int64_t *share, int n);

/** The plan of cuts, first [n_stage + 1], its ways and segments chosen to fit, and simulated. Not
 * to make anything again: keep. The caller destroys it, also where it does not fit. */
ct_status ct_job_plan_make(ct_job_space *s, const ct_job_config *c, const int *first, bool keep,
                           ct_job_plan *plan);
/** Chooses ways and segments of a stage anew, with what its nets take beside their figures in mind.
 *  *fits_p: there is a choice. */
ct_status ct_job_plan_choose(ct_job_space *s, ct_job_plan *p, int stage, bool *fits_p);
void ct_job_plan_destroy(ct_job_plan *p); /* zeroed ones too */
/** What a step is simulated of, beside its plan. */
typedef struct ct_job_step {
    const ct_job_net *net;
    ct_job_layout layout;
    const ct_job_prices *const *price; /* [n_stage] */
    const double *heard; /* bytes of a sample that a rank of one stage hears of another, [from][to];
                          * NULL: each stage hears of that before it, as its first block goes */
} ct_job_step;

ct_status ct_job_step_simulate(const ct_job_step *s, ct_job_plan *p);
/** Simulates the step of a plan whose stages have their figures: step_s and bubbles. */
ct_status ct_job_plan_simulate(ct_job_space *s, ct_job_plan *p);

/** The groups of a stage's replicas. */
void ct_job_group_replicas(const ct_job_layout *l, int stage, const int64_t *share,
                           ct_job_stage_kind *kind);
/** Which of a stage's groups a replica belongs to. */
int ct_job_group_of(const ct_job_layout *l, const ct_job_stage_plan *t, int stage, int replica);
/** Of a rank of a stage's group: what it needs. */
double ct_job_plan_bytes(const ct_job_figures *f);
/** The plan as a parallel file (docs/parallel.md). CT_ERR_NOMEM. */
ct_status ct_job_plan_write(ct_job_space *s, const ct_job_plan *p, ct_text *out);

#endif
