/** @file pipeline_search.h  The best of all ways to cut ranks into stages, replicas and tensor
 *  groups.
 *
 * It tries every tensor degree that divides a node's ranks, and every number of replicas and stages
 * that make up the ranks. It tries every micro-batch that divides a replica's samples, and every
 * order of the nodes' classes. For each it takes the best cuts by the estimate, exactly
 * (partition.h). The best by the estimate are then ranked by simulation (pipeline_cost.h). The cuts
 * are sought without the memory's limit, and where two tied layers share a stage of several, as if
 * both were summed; a plan that does not fit is dropped.
 */
#ifndef CT_PIPELINE_SEARCH_H
#define CT_PIPELINE_SEARCH_H

#include "planner/pipeline_cost.h"

/** Nodes of one class are alike, so an order is a sequence of classes. Where there are more
 *  sequences than that, those are tried in which the nodes of a class stand together. */
#define CT_PIPELINE_MOST_ORDERS 64

typedef struct ct_pipeline_plan {
    ct_pipeline_config config; /* its order is the one below  */
    int *order;                /* [n_node]                     */
    int *layers;               /* [n_stage]; in the same block */
    double estimate_s, step_s; /* step_s: simulated            */
} ct_pipeline_plan;

typedef struct ct_pipeline_plans {
    int64_t n_config; /* compared; those whose bound is too high were not cut */
    int n;            /* those that fit their memory, at most `most`; the fastest first */
    ct_pipeline_plan *plan;
    double least_ratio; /* of needed memory over what is there, the least of all configurations */
} ct_pipeline_plans;

/** The caller destroys the plans. Nothing fits: n is 0. */
ct_status ct_pipeline_search(const ct_pipeline_problem *p, int most, ct_pipeline_plans *plans_p);
void ct_pipeline_plans_destroy(ct_pipeline_plans *plans);

#endif
