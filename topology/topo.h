/** @file topo.h  Ranks placed on a machine: which meet where, and in which order they are near.
 *
 * Built from what the ranks report (comm/ gathers it), from a string such as "4x8" (4 nodes of 8
 * ranks), or by placing a made-up job on a machine. So every algorithm can be tested, and a
 * schedule of 40 960 nodes be costed, on machines we do not have. No MPI in here.
 */
#ifndef CT_TOPO_H
#define CT_TOPO_H

#include <stddef.h>

#include "topology/machine.h"

typedef struct ct_topo {
    int n_rank, n_node;
    int *node;        /* [n_rank] node of each rank, numbered by first appearance */
    int *local_rank;  /* [n_rank] place on its node; 0 is the leader              */
    int *node_size;   /* [n_node]                                                 */
    char source[128]; /* "mpi shared split", "slurm", "synthetic 2x2"               */

    ct_machine machine; /* levels, classes and figures; its names and node_run are NULL     */
    int *node_class;    /* [n_node] index into machine.node_class; NULL: all nodes are alike   */
    int *vertex[CT_MAX_LEVEL]; /* [l][n_rank] vertex of level l that holds rank r, numbered by first
                                  appearance; levels of the machine only. vertex[node_level] equals
                                  node[] */
    int n_vertex[CT_MAX_LEVEL]; /* of the last level: 1 */
    int *parent[CT_MAX_LEVEL]; /* [l][n_vertex[l]] its vertex of level l + 1; NULL at the last    */
    int *n_inside[CT_MAX_LEVEL];      /* [l][n_vertex[l]] ranks inside      */
    char **vertex_name[CT_MAX_LEVEL]; /* [l][n_vertex[l]] name of a switch or node; NULL where the
                                         level has none */
    int *torus_place; /* [n_node] where the level after the node is a torus: number of the node on
                         it (topology/torus.h); else NULL                                       */
    int *order; /* [n_rank] the ranks depth first through the tree: neighbours are near. Children in
                   the order of their lowest rank, ranks of a vertex of level 0 by number */
} ct_topo;

/** host[r] identifies rank r's node. Caller frees with ct_topo_destroy(). */
ct_status ct_topo_from_hosts(const uint64_t *host, int n_rank, const char *source,
                             ct_topo **topo_p);
/** spec: one of ct_machine_from_spec() whose product must be n_rank, ranks numbered depth first. Or
 *  "map:" and one letter or digit per rank that names its node, such as "map:0010", for maps that
 *  are uneven or not contiguous (tests). Maps of outer levels stand before, split by '/':
 *  "map:aabb/0120" has nodes 0 and 1 under switch a, and 2 and a 0 of its own under b.
 *  CT_ERR_CONFIG.
 */
ct_status ct_topo_from_string(const char *spec, int n_rank, ct_topo **topo_p);
/** Every place of a machine whose sizes are all given taken by a rank, in order; n_rank must be
 *  their number. spec: what the user said. CT_ERR_CONFIG. */
ct_status ct_topo_fill(const ct_machine *machine, const char *spec, int n_rank, ct_topo **topo_p);
/** A made-up job of n_rank ranks, ranks_per_node on each node, on the first nodes of the machine:
 *   "block"        rank after rank fills node after node, switch after switch;
 *   "cyclic"       the same nodes dealt round robin: consecutive ranks lie on different vertices of
 *                  the outermost level, then of the next, and so on;
 *   "random:SEED"  the same places in random order;
 *   "scatter:SEED" nodes chosen at random from the whole machine, ranks in machine order.
 *  CT_ERR_CONFIG where the machine is too small, or the placement unknown. */
ct_status ct_topo_place(const ct_machine *machine, int n_rank, int ranks_per_node,
                        const char *placement, ct_topo **topo_p);
/** CT_ERR_CONFIG where ct_topo_place() does not know it. */
ct_status ct_topo_check_placement(const char *placement);
/** The general way. key[l * n_rank + r] names the vertex of level l that holds rank r among those
 *  of its vertex of level l + 1; keys of the last level do not count. Copies the machine's levels.
 */
ct_status ct_topo_build(const ct_machine *machine, const int64_t *key, int n_rank,
                        const char *source, ct_topo **topo_p);
/** The part of a topology that holds n of its ranks, in this order: rank i of it is rank[i] of t.
 *  Levels and links stay as they are, with their figures, also where fewer ranks use them; vertices
 *  without any of the ranks are left out. CT_ERR_ARG: a rank that t does not have, or twice. */
ct_status ct_topo_subset(const ct_topo *t, const int *rank, int n, ct_topo **topo_p);
void ct_topo_destroy(ct_topo *topo); /* NULL allowed */
/** The classes of the job's nodes. node[r]: which node of the machine rank r runs on. CT_ERR_NOMEM.
 */
ct_status ct_topo_class_nodes(ct_topo *topo, const ct_machine *machine, const int64_t *node);

/** The level at which ranks a and b meet: the lowest with one vertex for both; -1 where a == b. */
int ct_topo_meet(const ct_topo *topo, int a, int b);

/** n_member[l]: members of the fullest vertex of level l. CT_ERR_NOMEM. */
ct_status ct_topo_fullest(const ct_topo *topo, int64_t *n_member);
/** Ranks of the smallest and of the largest node. */
int ct_topo_min_node_size(const ct_topo *topo);
int ct_topo_max_node_size(const ct_topo *topo);

/** The torus that the job has to itself, with one rank on each of its nodes; else NULL. */
const ct_torus *ct_topo_torus(const ct_topo *topo);

/* ---- figures where nodes are of several classes; else those of the levels */

/** The class of a node of the job; NULL: all nodes are alike. */
const ct_node_class *ct_topo_class(const ct_topo *topo, int node);
/** Speed of a node of the job. */
double ct_topo_speed(const ct_topo *topo, int node);
/** A node of the job that computes slowest. */
int ct_topo_slowest_node(const ct_topo *topo);
/** A node of the job with the least memory; -1: not known of any. */
int ct_topo_smallest_node(const ct_topo *topo);
/** Bandwidth of two ranks that meet in this vertex of level l. */
double ct_topo_bandwidth(const ct_topo *topo, int l, int vertex);
/** The bus of this vertex of level l. */
double ct_topo_bus(const ct_topo *topo, int l, int vertex);
/** The link up into level l of a member: a rank where l is 0, else a vertex of level l - 1. */
double ct_topo_uplink(const ct_topo *topo, int l, int member);
/** The least, over nodes with several ranks, of a node's bandwidth inside over the levels'. */
double ct_topo_least_inside(const ct_topo *topo);
/** The least link into the network of the job's nodes. */
double ct_topo_least_inject(const ct_topo *topo);
/** What codecs take on the slowest node. */
ct_codec_speed ct_topo_codec_speed(const ct_topo *topo);

/* ---- a topology as text, for people: the levels' figures and the tree */

/** Appends a table of the levels: members, latency, bandwidths, oversubscription. */
void ct_machine_draw_levels(const ct_machine *m, ct_text *out);
/** Appends the tree of a job: names, and which ranks lie where. Alike siblings share a line where
 *  there are many, so 40 960 nodes take a few lines. CT_ERR_NOMEM. */
ct_status ct_topo_draw(const ct_topo *t, ct_text *out);
/** Appends the tree of the machine itself, every node of it. One whose number of nodes is open has
 *  none. CT_ERR_NOMEM. */
ct_status ct_machine_draw(const ct_machine *m, ct_text *out);
/** Appends ascending numbers as "0-3,8,12-20:4" (from-to:step), at most 8 parts. */
void ct_draw_numbers(const int *number, int n, ct_text *out);

/** Appends the name of a level as of n of them: "switches". */
void ct_draw_noun(const char *name, int n, ct_text *out);

/* ---- what one step of a collective takes, when all its messages travel at once.
 *
 * The bulk-synchronous model: a step lasts as long as its busiest link. A message climbs from its
 * sender's rank up to the vertex where both ranks meet, through the uplink of one member of each
 * level on the way. Then it goes down again on the other side. Each uplink counts its two
 * directions apart. It also fills its own pair's bandwidth, the link between two members that are
 * joined pairwise (where the ranks meet on such a level), and the bus of the vertex where they
 * meet. Where they meet on a torus, it fills the links on its way (torus.h). Where nodes are of
 * several classes, the links of a node are those of its class, so the slower end counts. O(levels)
 * a message. No MPI in here.
 */

typedef struct ct_flow ct_flow;

/** t is borrowed. */
ct_status ct_flow_create(const ct_topo *t, ct_flow **flow_p);
void ct_flow_destroy(ct_flow *f); /* NULL allowed */
/** Forgets all messages: a new step. */
void ct_flow_clear(ct_flow *f);
/** A message; from == to is none. CT_ERR_NOMEM (only where members are joined pairwise). */
ct_status ct_flow_add(ct_flow *f, int from, int to, double bytes);
/** Since clear: alpha, the largest latency of a level met, on a torus with its way; beta, the
 * seconds that the busiest link works. A step takes alpha + beta. */
void ct_flow_time(const ct_flow *f, double *alpha_s_p, double *beta_s_p);
/** Since clear: the level with that latency; -1: no messages. */
int ct_flow_slowest(const ct_flow *f);
/** Bytes since clear of messages whose ranks meet on level l. */
double ct_flow_met(const ct_flow *f, int level);

#endif
