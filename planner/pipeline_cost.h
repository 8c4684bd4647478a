/** @file pipeline_cost.h  What a step takes that is cut into stages, replicas and tensor groups.
 *
 * A net is a list of layers with times measured on each class of nodes, for one sample. A
 * configuration cuts the ranks into stages of `data` replicas of `tensor` ranks each. Ranks are
 * counted tensor first, then replicas, then stages; the nodes come in an order of their own. A
 * micro-batch of b samples takes t(b) = t(1) ((1 - rho) b + rho): rho is what does not grow with
 * it, such as kernels that do not fill a device. Every replica is as slow as its own node.
 *
 * Links: two ranks of a node have `inside` to themselves; what leaves or enters a node shares its
 * network card, each direction on its own. Every rank of a tensor group sends its part behind a
 * cut. A ring's sum sends 2 (n - 1) / n of the gradients over every edge; all edges go at the
 * pace of the slowest, and rings of the ranks of a tensor group share cards.
 *
 * Two predictions. The estimate, with e a stage's time of a micro-batch (both directions, its
 * slowest replica), c the time that a cut's message takes all replicas at once, D a stage's sum:
 *
 *     sum of e + 2 sum of c + (m - 1) max (e + c before + c behind) + max D
 *
 * for which the best cuts are found exactly (partition.h); and the simulation of 1F1B (simulate.h).
 */
#ifndef CT_PIPELINE_COST_H
#define CT_PIPELINE_COST_H

#include <stdint.h>

#include "planner/simulate.h"

/** Two layers with one set of weights. */
typedef struct ct_pipeline_tie {
    int first, second; /* first < second: in one stage the second's gradients are not summed */
} ct_pipeline_tie;

/** Borrowed. All figures are of one rank of a tensor group. */
typedef struct ct_pipeline_net {
    int n_layer, n_class, n_degree;
    const int *degree;         /* [n_degree] tensor degrees                                */
    const double *forward_s;   /* [class][degree][layer] of one sample                     */
    const double *backward_s;  /* the same                                                 */
    const double *rho;         /* [degree] 0 .. 1                                          */
    const double *cut_bytes;   /* [degree][layer] what a sample sends behind the layer; its
                                  gradient comes back as large                             */
    const double *sum_bytes;   /* [degree][layer] gradients                                */
    const double *fixed_bytes; /* [degree][layer] memory of weights and what belongs to
                                  them; NULL: memory does not matter                      */
    const double *kept_bytes;  /* [degree][layer] memory of one sample in flight          */
    int n_tie;
    const ct_pipeline_tie *tie;
} ct_pipeline_net;

/** Borrowed. */
typedef struct ct_pipeline_machine {
    int n_node, ranks_per_node, n_class;
    const int *node_class; /* [n_node]                                                    */
    const double *inside;  /* [class] bytes/s that two ranks of a node get                */
    const double *inject;  /* [class] bytes/s of a node's network card, each direction    */
    const double *memory;  /* [class] bytes of a rank; NULL: no limit                     */
    double latency_s;      /* of a message                                                */
} ct_pipeline_machine;

/** What a search may not choose; 0: it may. */
typedef struct ct_pipeline_fix {
    int tensor, data, n_stage, micro_batches;
} ct_pipeline_fix;

typedef struct ct_pipeline_problem {
    const ct_pipeline_net *net;
    const ct_pipeline_machine *machine;
    int64_t global_batch;
    bool sends_block;    /* a stage does nothing while it sends (simulate.h)                  */
    double bucket_bytes; /* gradients of so many bytes leave together while backward goes on; 0:
                            all together, behind it                                           */
    bool uneven;         /* replicas on unlike nodes have unlike shares of a micro-batch      */
    ct_pipeline_fix fix;
} ct_pipeline_problem;

typedef struct ct_pipeline_config {
    int degree;       /* index of the tensor degree      */
    int data;         /* replicas of every stage         */
    int n_stage;      /* ranks = tensor x data x n_stage */
    int micro_batch;  /* samples of a replica            */
    const int *order; /* [n_node] the nodes in the order of the ranks; borrowed */
} ct_pipeline_config;

/** What the partition is made of, [stage][layer] each; cut_s [stage - 1][layer]. */
typedef struct ct_pipeline_tables {
    int n_stage, n_layer, n_micro;
    double *time_s, *cut_s, *data_s; /* one owned block, which begins at time_s */
} ct_pipeline_tables;

int ct_pipeline_tensor(const ct_pipeline_problem *p, const ct_pipeline_config *c);
int64_t ct_pipeline_micro_batches(const ct_pipeline_problem *p, const ct_pipeline_config *c);
/** CT_OK, or CT_UNSUPPORTED where ranks, batch or nodes cannot be divided so: a tensor group lies
 *  on one node. */
ct_status ct_pipeline_fits_ranks(const ct_pipeline_problem *p, const ct_pipeline_config *c);

/** The samples of each replica of a stage in a micro-batch, share: [data]. Where they are uneven
 * each has one, and the others go one at a time to the replica that then ends first, as fast as the
 *  whole net is on its node. */
ct_status ct_pipeline_shares(const ct_pipeline_problem *p, const ct_pipeline_config *c, int stage,
                             int *share);

/** Caller destroys. */
ct_status ct_pipeline_tables_create(const ct_pipeline_problem *p, const ct_pipeline_config *c,
                                    ct_pipeline_tables *tables_p);
void ct_pipeline_tables_destroy(ct_pipeline_tables *t);

/** The estimate of a partition, layers: [n_stage]. */
double ct_pipeline_estimate_s(const ct_pipeline_problem *p, const ct_pipeline_tables *t,
                              const int *layers);
/** No partition's estimate is below this. CT_ERR_NOMEM. */
ct_status ct_pipeline_bound_s(const ct_pipeline_problem *p, const ct_pipeline_tables *t,
                              double *bound_s_p);
/** The simulated step. */
ct_status ct_pipeline_simulate_s(const ct_pipeline_problem *p, const ct_pipeline_config *c,
                                 const int *layers, double *step_s_p);
/** The memory that a rank of a stage needs, over what it has: the worst stage's ratio. 0 where
 *  memory does not matter. CT_ERR_NOMEM. */
ct_status ct_pipeline_memory_ratio(const ct_pipeline_problem *p, const ct_pipeline_config *c,
                                   const int *layers, double *ratio_p);

#endif
