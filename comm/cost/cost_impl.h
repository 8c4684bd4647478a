/** @file cost_impl.h  Inside a cost. Private to cost.c and cost_rounds.c. */
#ifndef CT_COST_IMPL_H
#define CT_COST_IMPL_H

#include "comm/cost/cost.h"
#include "topology/topo.h"

enum { CT_COST_ROUNDS = 40 };

/* One or several equal steps, of all ranks together, for a buffer of one byte. */
typedef struct ct_cost_round {
    double alpha_s;     /* of one step                                           */
    double beta, gamma; /* seconds on the busiest link, and of additions: of all steps */
    double gamma_each;  /* seconds to add a byte                                 */
    double message;     /* share of the buffer in the largest message            */
    int times;
    const ct_level *level; /* of the slowest messages */
    ct_pattern pattern;    /* of these               */
} ct_cost_round;

typedef struct ct_cost_phase {
    bool allowed[CT_GROUP_ALGORITHM_N];
    int n_round[CT_GROUP_ALGORITHM_N];
    ct_cost_round round[CT_GROUP_ALGORITHM_N][CT_COST_ROUNDS];
} ct_cost_phase;

struct ct_cost {
    const ct_topo *t;
    ct_hierarchical_plan *plan;
    int *rank; /* [plan->n * n_lane] position i, lane k: rank[k * plan->n + i] */
    int n_lane;
    ct_cost_phase *phase; /* [plan->n_phase] */
    ct_cost_round all;    /* hier by messages: the phases together, up and down; else times 0 */
    ct_cost_round node;   /* hier: the nodes' shared memory; times 0: none   */
    ct_cost_round tree[CT_COST_ROUNDS];
    int n_tree;
    ct_cost *other[2];            /* impi: like the better of these, where the ranks add */
    const ct_in_network *network; /* impi: else by this; NULL: never */
};

/* What evaluating needs. */
typedef struct ct_cost_work {
    ct_cost *c;
    ct_flow *flow;
    double *received; /* [n_rank] */
    int *to, *from; /* [n_rank] whom a rank sends to and receives from in this round; -1: nobody */
    double most_received, message;
} ct_cost_work;

/** Rounds of a plan's phases, for each way that is allowed (and that their groups allow). */
ct_status ct_cost_plan_rounds(ct_cost_work *w, const bool *allowed);
/** What all phases together put on the links. */
ct_status ct_cost_whole_round(ct_cost_work *w);
/** Rounds of a binomial tree, upwards. */
ct_status ct_cost_tree_rounds(ct_cost_work *w);
/** The nodes' shared memory. table: ranks of each node, ct_topo_max_node_size() places a node. */
ct_status ct_cost_node_round(ct_cost_work *w, const int *table);

#endif
