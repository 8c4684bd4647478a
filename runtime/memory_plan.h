/** @file memory_plan.h  What memory a rank of a job takes, before the job runs: of each tier, by
 * what it is for. The nets are made as the job makes them, without memory, and storages are asked
 * for their sizes; so it is to the byte what the job then has.
 */
#ifndef CT_MEMORY_PLAN_H
#define CT_MEMORY_PLAN_H

#include "comm/core/comm.h"
#include "framework/solver/solver.h"
#include "planner/memory_tiers.h"
#include "runtime/job.h"

typedef struct ct_memory_plan {
    /* the caller's; borrowed. Of options what makes nets is read, but not its window */
    const ct_solver_options *options;
    ct_comm *comm;   /* the replicas; one that only plans, too               */
    double limit;    /* bytes of a rank; 0: none                             */
    const char *who; /* whose limit it is                                    */
    int64_t runtime; /* what the process has before there is a net           */
    bool agrees;     /* every rank plans, and all go by what takes most: collective */
} ct_memory_plan;

/** limit, who and runtime of a rank of n on this machine, as `memory` of the solver says. */
void ct_memory_plan_limit(ct_memory_plan *p, int n);
/** Bytes of the limit that nets and states may take: ct_solver_options.memory_limit. */
double ct_memory_plan_room(const ct_memory_plan *p);
/** Fills t for options->param as it stands. */
ct_status ct_memory_plan_make(const ct_memory_plan *p, ct_memory_tiers *t);
/** Sets tiers that are AUTO in `param`, which is options->param, to where they lie: the fastest way
 *  that fits the limit, and says so where it is not memory. snapshot_async becomes false where the
 *  limit has no room for its copy, which is said. CT_ERR_CONFIG where limit_mb is set and
 *  nothing fits: says what the least is, and what to change. */
ct_status ct_memory_plan_settle(const ct_memory_plan *p, Ct__SolverParameter *param,
                                ct_memory_tiers *t);
/** What a job does about it before its nets are made: says what is planned, and of which limit.
 *  parallel: by a parallel file. options: of its solver, whose memory_limit is set. Nothing without
 *  `memory`. Collective. */
ct_status ct_memory_plan_job(ct_job *job, Ct__SolverParameter *param, bool parallel,
                             ct_solver_options *options);
/** The same of a job that tests `net`, whose options are made: CT_ERR_CONFIG where limit_mb is set
 *  and its weights, values and the runtime take more. Collective. */
ct_status ct_memory_plan_test(ct_job *job, const Ct__SolverParameter *param, bool parallel,
                              const Ct__NetParameter *net, const ct_net_options *options);

#endif
