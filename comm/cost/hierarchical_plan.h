/** @file hierarchical_plan.h  Who exchanges what with whom in a collective, for all ranks at once.
 * No MPI.
 *
 * The members, in an order in which neighbours are near (ct_topo.order), form a tree of vertices
 * (supernodes, nodes; the rows of a torus; or one vertex that holds all). A plan cuts the buffer
 * among them from the leaves up. Before level l every member of a vertex below owns one part of
 * that vertex's sum. The owners of one part in the vertices that join on level l, one of each, form
 * a group. It sums the part and deals it out among its own. So every member's link carries its
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
 *  halving  log2 m steps of b / 2, b / 4 …, nearest first; any m: ct_halving
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

/** What one position has of the sum: from where the piece before ends. */
typedef struct ct_hierarchical_plan_piece {
    int64_t end;
    int owner;
} ct_hierarchical_plan_piece;

typedef struct ct_hierarchical_plan {
    int n; /* positions */
    int n_phase;
    ct_hierarchical_plan_phase phase[CT_HIERARCHICAL_PLAN_PHASES];
    ct_hierarchical_plan_piece *piece; /* after the last phase up, in the order of the buffer */
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

/** How many pieces the plan cuts the buffer into. */
int64_t ct_hierarchical_plan_pieces(const ct_hierarchical_plan *p);

/** What member i of a group deals out to itself: [*a_p, *b_p). */
void ct_hierarchical_plan_part(const ct_hierarchical_plan_group *g, int i, int64_t *a_p,
                               int64_t *b_p);
/** Element at which `unit` lies among n, for `parts` members: at multiples of 16 where n allows, so
 *  that no two parts share a cache line. */
int64_t ct_hierarchical_plan_at(int64_t unit, int64_t n, int parts);

/* ---- recursive halving among any number of members, nearest first
 *
 * In each round the members 0 … m-1 that share a part split into the even ones and the odd ones.
 * The even ones keep the first share of the part, the odd ones the rest, in proportion to their
 * numbers. 2 i and 2 i + 1 exchange what the other keeps. Where m is odd, the last even member has
 * no partner: it gives the last odd one what that keeps, and keeps its own share as it is. Then
 * each half goes on by itself. At powers of two this is the textbook's algorithm (Rabenseifner,
 * ICCS 2004) with distances 1, 2, 4 …; the largest exchanges are between neighbours. At other
 * numbers nobody sits out, and nothing is sent twice as where the surplus is folded in first.
 *
 * The rounds backwards are recursive doubling.
 */

typedef struct ct_halving {
    int m, i;           /* members that share [a, b), and this one's number among them */
    int offset, stride; /* number k among them is member offset + k * stride           */
    int64_t a, b;
} ct_halving;

typedef struct ct_halving_round {
    int to; /* member that gets [send_a, send_b)               */
    int64_t send_a, send_b;
    int from[2], n_from; /* members that send [keep_a, keep_b); 0, 1 or 2   */
    int64_t keep_a, keep_b;
} ct_halving_round;

/** Member i of m, who share [a, b). */
void ct_halving_begin(ct_halving *h, int m, int i, int64_t a, int64_t b);
/** False once the member is alone; [h->a, h->b) is then its part. */
bool ct_halving_next(ct_halving *h, ct_halving_round *round_p);
/** Rounds that the busiest member needs: log2 m, rounded up. */
int ct_halving_rounds(int m);

/* ---- how many messages a step is cut into: for the engine that sends them and for the model of
 * their cost */

/** Elements of each message of a step that moves n: the same for its sender and its receiver. */
int64_t ct_segment_elements(int64_t n);
/** No message is larger of a step that moves n elements or fewer. */
int64_t ct_segment_largest(int64_t n);

#endif
