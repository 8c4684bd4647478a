/** @file torus.h  Nodes on a torus: where each stands, and which links a message passes.
 *
 * A node has two links along each dimension, one to each side, and each link carries both
 * directions. A message goes dimension by dimension, the first one first, along the shorter side;
 * where both sides are equally long, half of it goes along each. Nodes are numbered with the last
 * dimension fastest. No MPI in here.
 */
#ifndef CT_TORUS_H
#define CT_TORUS_H

#include <stdint.h>

enum { CT_MAX_TORUS = 6 };

typedef struct ct_torus {
    int n_dim; /* 0: no torus */
    int dim[CT_MAX_TORUS];
} ct_torus;

/** Nodes of all of it; INT_MAX + 1 where they are more than INT_MAX. */
int64_t ct_torus_nodes(const ct_torus *t);
/** Links that a node sends into: two along each dimension that is longer than 1. */
int ct_torus_ports(const ct_torus *t);
/** The place of a node: at[n_dim]. */
void ct_torus_place(const ct_torus *t, int64_t node, int *at);
int64_t ct_torus_node(const ct_torus *t, const int *at);
/** The most links that a message passes. */
int ct_torus_diameter(const ct_torus *t);
/** The links that a message passes, in order: link[ct_torus_diameter()]; returns how many. A link
 * is 2 n_dim node + 2 dimension, and 1 more where it goes down. other: where both sides of a
 *  dimension are equally long, the way down instead of the one up. */
int ct_torus_way(const ct_torus *t, int64_t from, int64_t to, int other, int64_t *link);

#endif
