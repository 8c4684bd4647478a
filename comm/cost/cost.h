/** @file cost.h  What an allreduce takes on a topology: alpha, beta and gamma of its real steps.
 *
 * The steps of the real plan (plan.h), of all ranks, go through topology/topo.h: a step takes the
 * largest latency met, and its busiest link's time. Only what is the same over and over is short
 * cut: the equal steps of a ring are looked at once, and the way down as the way up, which uses the
 * same links in the other direction and adds nothing. No MPI: also for machines we do not have.
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
 * the step and the size of its largest message; what the busiest link and the ranks' additions have
 * to do beyond that message comes on top. Each measured step found a full burst of the link; a
 * collective finds one.
 *
 * MPI's own allreduce, "impi", costs what the machine says of sums in the network (machine.h), on
 * several nodes; else, and as "impi_host", 1.25 times the better of ring and rhd.
 *
 * Phases follow each other without overlap; but hier by messages over several levels goes in n
 * chunks, n chosen for the least time: all phases of one chunk, then n - 1 times the busiest link's
 * (or the additions', or the longest phase's, or that of all phases of several steps) share of a
 * chunk.
 */
#ifndef CT_COST_H
#define CT_COST_H

#include "comm/cost/hierarchical_plan.h"

typedef struct ct_cost ct_cost;

/** seconds = a_s + b_s * bytes: latency alone, and the slope for large buffers. */
typedef struct ct_cost_line {
    double a_s, b_s;
} ct_cost_line;

/** algorithm: ring, rhd, hier, torus, tree, impi, impi_host. dim: of a torus, three numbers whose
 * product is the number of ranks; NULL or 0: chosen. shares: hier sums in shared memory inside the
 * nodes (else by messages). Borrows t. CT_ERR_CONFIG: unknown algorithm, or dimensions that do not
 * fit.
 */
ct_status ct_cost_create(const char *algorithm, const ct_topo *t, const int *dim, bool shares,
                         ct_cost **cost_p);
void ct_cost_destroy(ct_cost *c); /* NULL allowed */
/** Seconds for a buffer of this many bytes of f32. */
double ct_cost_s(const ct_cost *c, double bytes);
/** The least cost of each phase of the plan at this size. way: [plan->n_phase]. */
void ct_cost_algorithms(const ct_cost *c, double bytes, ct_group_algorithm *way);
/** Of hier by messages: into how many chunks it cuts the buffer, so that the links of all levels
 * work at a time; else 1. Each chunk goes by ct_cost_algorithms() of its own size. */
int ct_cost_chunks(const ct_cost *c, double bytes);
/** The factor that the cost of an algorithm is weighed by where it competes with others: what the
 *  cost of one sum does not tell.
 *   - 1.1: ways that cross. Of a torus, and of sums over levels by messages, two buckets in
 *     different phases send into the same links; simulated, they lose about a tenth to each other.
 *   - 0.9: hier where all nodes share memory. It copies nothing there, while a message through
 *     shared memory is written and read again, which the cost does not count.
 *   - 1: the others. Arguments as of ct_cost_create(). */
double ct_cost_weight(const char *algorithm, const ct_topo *t, bool shares);
/** Borrowed. NULL: the algorithm has none (tree, impi). Positions are those of rank: [plan->n]; of
 *  hier that shares memory, the nodes, each by its first rank. */
const ct_hierarchical_plan *ct_cost_plan(const ct_cost *c);
const int *ct_cost_rank(const ct_cost *c);

/** create, look, destroy. hier: sharing memory on nodes of several ranks. The line is exact at both
 *  ends; in between, where segments begin to overlap, ct_cost_s() lies above it by as much as the
 *  additions take. Under a second for 40 960 nodes. */
ct_status ct_cost_line_of(const char *algorithm, const ct_topo *t, ct_cost_line *out);

#endif
