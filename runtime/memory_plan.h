/** @file memory_plan.h  What memory a rank of a job takes, before the job runs: of each tier, by
 * what it is for. The nets are made as the job makes them, without memory, and storages are asked
 * for their sizes; so it is to the byte what the job then has.
 */
#ifndef CT_MEMORY_PLAN_H
#define CT_MEMORY_PLAN_H

#include "comm/core/comm.h"
#include "framework/solver/solver.h"
#include "planner/memory_price.h"
#include "planner/memory_tiers.h"
#include "runtime/config/exchange_config.h"
#include "runtime/job.h"

/** A rank of a job that runs nets together, by a parallel file: who knows its groups. */
typedef struct ct_memory_groups {
    void *ctx;
    /** The window of its train net, until it is asked for again; NULL: there is none. */
    const ct_net_window *(*window)(void *ctx, const Ct__SolverParameter *param);
    /** Collective over the groups. */
    ct_status (*add_shard)(void *ctx, const Ct__SolverParameter *param, const ct_net *net,
                           ct_shard *s);
    /** Adds the bytes of buffers for messages of gradients. Collective over the groups. */
    ct_status (*add_messages)(void *ctx, const Ct__SolverParameter *param, const ct_net *net,
                              int64_t *bytes_p);
} ct_memory_groups;

typedef struct ct_memory_plan {
    /* the caller's; borrowed. Of options what makes nets is read, but not its window */
    const ct_solver_options *options;
    ct_comm *comm;      /* the replicas; one that only plans, too               */
    double limit;       /* bytes of a rank; 0: none                             */
    const char *who;    /* whose limit it is                                    */
    bool enforced;      /* whoever takes more is killed: a control group's, SLURM's */
    int64_t runtime;    /* what the process has before there is a net           */
    bool agrees;        /* every rank plans, and all go by what takes most: collective */
    const char *folder; /* of files: AUTO measures there how fast they are; NULL: it does not */
    ct_memory_speeds speeds;        /* that are known without, zeroed where they are not */
    bool parallel;                  /* by a parallel file; of one rank, if groups is NULL */
    const ct_memory_groups *groups; /* borrowed */
} ct_memory_plan;

/** The nets of a plan, without memory. */
typedef struct ct_memory_nets {
    ct_exchange_window window; /* of the train net */
    ct_whole_nets nets;
} ct_memory_nets;

bool ct_memory_lies_in_files(Ct__MemoryParameter__Tier tier);
/** Whole MiB, rounded up, for people. */
double ct_memory_mib(int64_t bytes);
/** limit, who and runtime of a rank of n on this machine, as `memory` of the solver says. */
void ct_memory_plan_limit(ct_memory_plan *p, int n);
/** Bytes of the limit that nets and states may take: ct_solver_options.memory_limit. */
double ct_memory_plan_room(const ct_memory_plan *p);
/** Adds to t, which has the net's own, what a rank's storages take, and of files their rings. They
 *  are of weights that come and go, sums that are kept, and states. length: floats of them that it
 *  has, of weights `visiting`. shards: others have the rest. iter_size: micro-batches of a step. */
ct_status ct_memory_plan_add_storages(const Ct__SolverParameter *p, const ct_net *net,
                                      int64_t length, int64_t visiting, bool shards, int iter_size,
                                      ct_memory_tiers *t);
/** Fills t for options->param as it stands. */
ct_status ct_memory_plan_make(const ct_memory_plan *p, ct_memory_tiers *t);
/** The same in parts. What options->param says of states' tier and of chunks may change between
 *  them; it outlives the nets, as p->comm does. */
ct_status ct_memory_nets_open(const ct_memory_plan *p, ct_memory_nets *n);
ct_status ct_memory_nets_count(const ct_memory_plan *p, const ct_memory_nets *n,
                               ct_memory_tiers *t);
void ct_memory_nets_close(ct_memory_nets *n);

/* ---- AUTO (memory_auto.c): which way to keep weights, gradients and states, of those that
 * `memory` and `recompute` leave open: the fastest that fits, by the model of
 * planner/memory_price.h. Open are `state` and `weights` that are AUTO, `chunk_mb` that is 0,
 * `recompute` that is AUTO, and `zero` that is not given. */

/** Sets what is open in `param`, which is options->param, and fills t with its plan. What fits as
 * it stands is taken without a look at others. Else the log says what was chosen, and why.
 * snapshot_async becomes false where the limit has no room for its copy, which is said.
 * CT_ERR_CONFIG where limit_mb is set and nothing fits: says what the least is, and what to change.
 */
ct_status ct_memory_auto_settle(const ct_memory_plan *p, Ct__SolverParameter *param,
                                ct_memory_tiers *t);

/** How fast this rank computes and its files move, in a moment and in little memory.
 *  Multiply-adds of all threads, and 32 MiB written to a file in the folder and read again. Bytes
 *  of memory are not measured, since that takes much of it: a tenth of the operations are assumed.
 *  Where the folder takes no files its speeds stay as assumed. CT_ERR_NOMEM. */
ct_status ct_memory_speeds_measure(const char *folder, ct_memory_speeds *v);

/* ---- a job */

/** How a job runs its nets. */
typedef struct ct_memory_job {
    const char *stage;              /* the folder of --stage; NULL: not given */
    bool parallel;                  /* as in ct_memory_plan                   */
    const ct_memory_groups *groups; /* likewise                               */
} ct_memory_job;

/** What a job does about it before its nets are made: says what is planned, and of which limit.
 *  options: of its solver, with its division; their memory_limit is set. Without `memory` it only
 *  compares. CT_ERR_CONFIG where what is enforced is less than the least. Collective. */
ct_status ct_memory_plan_job(ct_job *job, Ct__SolverParameter *param, const ct_memory_job *how,
                             ct_solver_options *options);
/** The same of a job that tests this rank's `net`, whose options are made: CT_ERR_CONFIG where
 *  limit_mb is set and its weights, values and the runtime take more. Collective. */
ct_status ct_memory_plan_test(ct_job *job, const Ct__SolverParameter *param,
                              const Ct__NetParameter *net, const ct_net_options *options);

#endif
