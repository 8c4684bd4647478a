/** @file plan_steps.h  The steps of one member of a plan, as a schedule. Private to comm/. */
#ifndef CT_HIERARCHICAL_PLAN_STEPS_H
#define CT_HIERARCHICAL_PLAN_STEPS_H

#include "comm/cost/hierarchical_plan.h"
#include "comm/collective/schedule.h"

/** Where a plan is put to work. */
typedef struct ct_engine_plan_use {
    const ct_hierarchical_plan *plan;
    const ct_group_algorithm *way; /* [plan->n_phase]                       */
    const int *rank;               /* [plan->n] rank of the world at each position */
    int me;                        /* this rank's position                  */
    int64_t first, n;              /* elements [first, first + n) of the buffer */
} ct_engine_plan_use;

/** Appends the reduce-scatter; then the member holds the sum of its parts. */
ct_status ct_hierarchical_plan_scatter(const ct_engine_plan_use *u, ct_schedule *s);
/** Appends the allgather, from where the reduce-scatter ends. */
ct_status ct_hierarchical_plan_gather(const ct_engine_plan_use *u, ct_schedule *s);

/** Appends the allreduce of n_chunk chunks, one after the other through the phases, up and down: in
 *  one stretch of time each phase has a chunk, so that the links of all levels work. */
ct_status ct_hierarchical_plan_pipelined(const ct_engine_plan_use *u, int n_chunk, ct_schedule *s);

/** Appends a binomial tree over n positions, nearest first: to position 0 (sums), or from it. me
 *  counts from the root; rank[(me + root) % n]. */
ct_status ct_tree_reduce(const int *rank, int n, int root, int me, int64_t count, ct_schedule *s);
ct_status ct_tree_broadcast(const int *rank, int n, int root, int me, int64_t count,
                            ct_schedule *s);

#endif
