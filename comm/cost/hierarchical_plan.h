/** @file hierarchical_plan.h  Who exchanges what with whom in a collective, for all ranks at once.
 * No MPI.
 *
 * The members, in an order in which neighbours are near (ct_topo.order), form a tree of vertices
 * (supernodes, nodes; the rows of a torus; or one vertex that holds all). A plan cuts the buffer
 * among them from the leaves up: before level l every member of a vertex below owns one part of
 * that vertex's sum; the owners of one part in the vertices that join on level l, one of each, form
 * a group, which sums the part and deals it out among its own. So every member's link carries its
 * share on every level. Vertices of unequal size cut the buffer in different places: each interval
 * between two cuts has a group of its own, and a member that owns more belongs to several.
 *
 * A reduce-scatter runs the phases upwards, an allgather downwards, an allreduce both. How a group
 * goes about it (ct_group_algorithm) is chosen for each phase.
 *
 * Places in the buffer are counted in units of 1 / CT_HIERARCHICAL_PLAN_UNITS of it;
 * ct_hierarchical_plan_at() makes elements of them.
 */
#ifndef CT_HIERARCHICAL_PLAN_H
#define CT_HIERARCHICAL_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "topology/topo.h"

#define CT_HIERARCHICAL_PLAN_UNITS ((int64_t)1 << 40)

enum {
    CT_HIERARCHICAL_PLAN_PHASES = 32, /* levels of a tree at most          */
    CT_HIERARCHICAL_PLAN_DIRECT = 8   /* largest group of CT_GROUP_ALGORITHM_DIRECT    */
};

/** How the m members of a group sum and deal out a part of b bytes (and collect it again):
 *  ring     m - 1 steps of b / m to the next member; pipelined
 *           (Patarasuk and Yuan, JPDC 2009)
 *  halving  log2 m steps of b / 2, b / 4 …, nearest first; any m: halving.h
 *           (Rabenseifner, ICCS 2004)
 *  direct   one step: everyone sends everyone their share */
typedef enum {
    CT_GROUP_ALGORITHM_RING,
    CT_GROUP_ALGORITHM_HALVING,
    CT_GROUP_ALGORITHM_DIRECT,
    CT_GROUP_ALGORITHM_N
} ct_group_algorithm;

typedef struct ct_hierarchical_plan_group {
    int n;        /* members; at least 2                     */
    int first;    /* into ct_hierarchical_plan_phase.member               */
    int64_t a, b; /* what they sum and deal out, in units    */
} ct_hierarchical_plan_group;

typedef struct ct_hierarchical_plan_phase {
    int n_group, most;                 /* most: members of the largest group        */
    ct_hierarchical_plan_group *group; /* ascending in `a` within a vertex          */
    int *member;                       /* positions                                 */
    int *of_start, *of;                /* groups of position i: of[of_start[i]] … , ascending */
} ct_hierarchical_plan_phase;

typedef struct ct_hierarchical_plan {
    int n; /* positions */
    int n_phase;
    ct_hierarchical_plan_phase phase[CT_HIERARCHICAL_PLAN_PHASES];
} ct_hierarchical_plan;

/** first[l][v]: the position at which vertex v of level l begins; n_vertex[l] of them, each of
 *  consecutive positions and made of whole vertices of level l - 1. The last level has one. */
ct_status ct_hierarchical_plan_create(int n, int n_level, const int *const *first,
                                      const int *n_vertex, ct_hierarchical_plan **plan_p);
/** All in one vertex. */
ct_status ct_hierarchical_plan_flat(int n, ct_hierarchical_plan **plan_p);
/** A torus of dim[0] x dim[1] x …, whose product is n; dim[0] runs fastest. */
ct_status ct_hierarchical_plan_grid(int n, const int *dim, int n_dim,
                                    ct_hierarchical_plan **plan_p);
/** The levels first_level and above of a topology; positions are ranks in t->order (first_level 0),
 *  or the vertices of the level below in the order of their first rank there. */
ct_status ct_hierarchical_plan_tree(const ct_topo *t, int first_level,
                                    ct_hierarchical_plan **plan_p);
void ct_hierarchical_plan_destroy(ct_hierarchical_plan *p); /* NULL allowed */

/** What member i of a group deals out to itself: [*a_p, *b_p). */
void ct_hierarchical_plan_part(const ct_hierarchical_plan_group *g, int i, int64_t *a_p,
                               int64_t *b_p);
/** Element at which `unit` lies among n, for `parts` members: at multiples of 16 where n allows, so
 *  that no two parts share a cache line. */
int64_t ct_hierarchical_plan_at(int64_t unit, int64_t n, int parts);

#endif
