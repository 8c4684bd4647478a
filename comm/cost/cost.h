/** @file cost.h  What an allreduce takes on a topology: alpha, beta and gamma of its real steps.
 *
 * The steps of the real plan (hierarchical_plan.h), of all ranks, go through topology/topo.h: a
 * step takes the largest latency met, and its busiest link's time. Only what is the same over and
 * over is short cut. The equal steps of a ring are looked at once. The way down is taken as the way
 * up: it uses the same links in the other direction and adds nothing. No MPI: also for machines we
 * do not have.
 *
 * What is assumed of the engine (schedule.c): a step's message travels in s segments (s = 1 below
 * 256 KB of f32, 4 above, more above 16 MB), which pass while earlier ones are added. Two ranks
 * that both send and add wait for each other at every segment: of what could hide about half does,
 * as simulated.
 *   - a step of its own: alpha + max(t, g) + min(t, g) (1 + 1 / s) / 2
 *   - one way: alpha + max(t, g) + min(t, g) / s
 *   - k equal steps in a row: k max(t, g, alpha + (t + g) / s)
 *
 * with t = bytes / bandwidth of the busiest link, g = bytes added / sum_bandwidth. In shared memory
 * adding and reading are one: alpha + max(t, g). Sending and receiving do not disturb each other.
 * Where the machine has measured figures of sums in shared memory (machine.h), those count instead.
 * Where a fit measured steps (machine.h), their times do, additions with them, by the pattern of
 * the step and the size of its largest message. What the busiest link and the ranks' additions have
 * to do beyond that message comes on top. Each measured step found a full burst of the link; a
 * collective finds one.
 *
 * Where nodes are of several classes (machine.h), a step takes what its slowest link and its
 * slowest adding rank take. Sums in shared memory take what they do on the slowest node. The
 * network adds no faster than the slowest node sends.
 *
 * MPI's own allreduce costs what the machine says of sums in the network (machine.h), on several
 * nodes; else 1.25 times the better of two others (ct_cost_by_mpi()).
 *
 * Phases follow each other without overlap. But hier by messages over several levels goes in n
 * chunks, n chosen for the least time. It takes all phases of one chunk, then n - 1 times the
 * busiest link's (or the additions', or the longest phase's, or that of all phases of several
 * steps) share of a chunk.
 */
#ifndef CT_COST_H
#define CT_COST_H

#include "comm/cost/hierarchical_plan.h"

typedef struct ct_cost ct_cost;
typedef struct ct_cost_work ct_cost_work; /* a cost that is being made */

/** Which part of an allreduce: a reduce-scatter goes up, an allgather comes down. */
typedef enum { CT_COST_BOTH_WAYS, CT_COST_UP, CT_COST_DOWN } ct_cost_way;

/** What the model knows of an algorithm. The algorithm has it among its operations (ct_coll_ops in
 *  comm/collective/coll.h), so the model knows none by its name. */
typedef struct ct_cost_ops {
    /** Gives the rounds of all ranks to one of the functions below. dim: of an algorithm that takes
     *  dimensions, three numbers, or NULL or 0: to be chosen. shares: as of ct_cost_create().
     *  CT_ERR_CONFIG: dimensions that do not fit. */
    ct_status (*rounds)(ct_cost_work *w, const int *dim, bool shares);
    /** The factor of ct_cost_weight(): 1, or one of the two below. NULL: 1. */
    double (*weight)(const ct_topo *t, bool shares);
    /** Of a half: which one, and what the whole costs, whose plan, ways of groups and dimensions it
     *  has. Behind the plan comes what deals out its parts, or before it (ct_coll_part()). */
    ct_cost_way way;
    const struct ct_cost_ops *whole;
} ct_cost_ops;

/** Ways that cross. Of a torus, and of sums over levels by messages, two buckets in different
 *  phases send into the same links; simulated, they lose about a tenth to each other. */
#define CT_COST_CROSSING 1.1
/** Sums in place, where all nodes share memory. A message through shared memory is written and read
 *  again, which the cost does not count. */
#define CT_COST_IN_PLACE 0.9

/** seconds = a_s + b_s * bytes: latency alone, and the slope for large buffers. */
typedef struct ct_cost_line {
    double a_s, b_s;
} ct_cost_line;

/** dim: of an algorithm that takes dimensions, three numbers whose product is the number of ranks;
 *  NULL or 0: chosen. shares: the ranks of a node share memory, for algorithms that sum in it.
 *  Borrows t. CT_ERR_CONFIG: dimensions that do not fit. */
ct_status ct_cost_create(const ct_cost_ops *how, const ct_topo *t, const int *dim, bool shares,
                         ct_cost **cost_p);
void ct_cost_destroy(ct_cost *c); /* NULL allowed */
/** Seconds for a buffer of this many bytes of f32. */
double ct_cost_s(const ct_cost *c, double bytes);
/** The least cost of each phase of the plan at this size. way: [plan->n_phase]. */
void ct_cost_algorithms(const ct_cost *c, double bytes, ct_group_algorithm *way);
/** Of a plan that goes in chunks: into how many it cuts the buffer, so that the links of all levels
 * work at a time; else 1. Each chunk goes by ct_cost_algorithms() of its own size. */
int ct_cost_chunks(const ct_cost *c, double bytes);
/** The factor that the cost of an algorithm is weighed by where it competes with others: what the
 *  cost of one sum does not tell (ct_cost_ops.weight). Arguments as of ct_cost_create(). */
double ct_cost_weight(const ct_cost_ops *how, const ct_topo *t, bool shares);
/** Borrowed. NULL: the algorithm has none. Positions are those of rank: [plan->n]; where nodes
 *  share memory (ct_cost_by_nodes()), the nodes, each by its first rank. */
const ct_hierarchical_plan *ct_cost_plan(const ct_cost *c);
const int *ct_cost_rank(const ct_cost *c);

/** create, look, destroy, with memory that the ranks of nodes share. The line is exact at both
 *  ends; in between, where segments begin to overlap, ct_cost_s() lies above it by as much as the
 *  additions take. Under a second for 40 960 nodes. */
ct_status ct_cost_line_of(const ct_cost_ops *how, const ct_topo *t, ct_cost_line *out);

/* ---- what ct_cost_ops.rounds is made of */

/** Ways that a group may go, as bits 1 << ct_group_algorithm. */
enum { CT_COST_ANY = (1 << CT_GROUP_ALGORITHM_N) - 1 };

const ct_topo *ct_cost_topo(const ct_cost_work *w);
/** An allreduce by a plan over all ranks, in the topology's order: up, then down, each phase in the
 *  cheapest of `ways`. Takes the plan over, in case of errors too. chunks: it goes in several. */
ct_status ct_cost_by_plan(ct_cost_work *w, ct_hierarchical_plan *plan, unsigned ways, bool chunks);
/** A sum in the memory of each node, then by the plan of the levels above, on as many lanes as the
 *  smallest node has ranks. Of a half: one way of both, and what is sent between nodes to its part,
 *  or from it. chunk: bytes that a reduce-scatter sums at a time. Where one chunk holds all, what
 *  moves is known; of several, each lays its sums out anew, so that a node has 1 / nodes of the
 * sums of its own parts. */
ct_status ct_cost_by_nodes(ct_cost_work *w, double chunk);
/** MPI's own: what `network` takes, where it adds so many bytes (NULL: never); else 1.25 times the
 *  better of the two. */
ct_status ct_cost_by_mpi(ct_cost_work *w, const ct_cost_ops *one, const ct_cost_ops *other,
                         const ct_in_network *network);
/** No plan: round by round, on the way up. `share` of the buffer goes from one rank to another, who
 *  adds it. Each round comes back down, in the same steps the other way; in a half it does not. */
ct_status ct_cost_message(ct_cost_work *w, int from, int to, double share);
/** The round is complete. CT_ERR_CONFIG beyond 40. */
ct_status ct_cost_end_round(ct_cost_work *w);
/** The same, and nothing of it is added. */
ct_status ct_cost_end_copies(ct_cost_work *w);

#endif
