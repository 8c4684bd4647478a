/** @file schedule.h  Point-to-point collectives as data: a list of steps that one engine runs.
 *
 * Private to comm/. A step sends one range of a buffer to a rank and receives another from a rank,
 * adding it or putting it in place; its two ranges do not overlap. All algorithms differ only in
 * the list (the functions at the end make it). What waits for what follows from the ranges:
 *   - a send, for all that earlier steps receive into what it sends. By segments: a step is cut
 *     into messages, and each leaves as soon as what it carries is there, so that additions and
 *     transfers overlap, also from one step to the next;
 *   - a receive in place, until the sends of earlier steps from there are over, since MPI may
 *     still read what it would overwrite. (No step adds to what an earlier one sends.)
 *
 * All messages of one schedule carry one tag. Between two ranks they are posted in step order on
 * both sides, which is how MPI matches them. So what a step sends must be, in the same order, what
 * the other rank's steps receive. No rank waits for ever if all messages of all ranks can be
 * ordered so that every rank sends and receives its own in this order.
 */
#ifndef CT_SCHEDULE_H
#define CT_SCHEDULE_H

#include "comm/collective/coll.h"
#include "comm/cost/hierarchical_plan.h"

enum { CT_SCHED_WINDOW = 16, CT_SCHED_USUAL_WINDOW = 4 /* messages under way, each direction */ };

typedef struct ct_sched_step {
    int send_to, recv_from; /* of the communicator; -1: none                              */
    int64_t send_at, send_n, recv_at, recv_n; /* elements                                */
    bool add;       /* what is received is added; else it replaces                       */
    int port;       /* of the node: where sends go in turn, those of other ports do not wait    */
    int after;      /* last earlier step that receives into what this one sends; -1: none */
    int sent_first; /* replace: steps before this one have sent all they send             */
} ct_sched_step;

typedef struct ct_schedule {
    int n_step, capacity;
    ct_sched_step *step;
    int window; /* messages that may be under way each way; below CT_SCHED_USUAL_WINDOW: so many */
} ct_schedule;

void ct_schedule_clear(ct_schedule *s);
void ct_schedule_destroy(ct_schedule *s);
/** Finds `after` and `sent_first` itself. A step that neither sends nor receives is left out. */
ct_status ct_schedule_add(ct_schedule *s, const ct_sched_step *step);
/** The largest receive that is added. */
int64_t ct_schedule_most(const ct_schedule *s);
/** Sends of segment `seg` of step `i` wait until *step_p and, of that step, segments up to *seg_p
 *  have been received; *step_p -1: for nothing. */
void ct_schedule_send_waits(const ct_schedule *s, int i, int64_t seg, int *step_p, int64_t *seg_p);

/** Start of part i of n elements in `parts` near-equal parts; i = parts gives n. Parts begin at
 *  multiples of 16 elements where n allows, so that no two share a cache line. */
int64_t ct_part(int64_t n, int parts, int i);

typedef struct ct_sched_run ct_sched_run;

/** Buffers for running schedules whose adding steps receive at most `most` elements each. Local. */
ct_status ct_sched_run_create(ct_comm *c, ct_dtype dtype, int64_t most, ct_sched_run **run_p);
/** With up to `window` messages under way each way, at most CT_SCHED_WINDOW. The other has
 *  CT_SCHED_USUAL_WINDOW. room: of runs of which one at a time is under way, and none now;
 *  borrowed; NULL: its own. */
ct_status ct_sched_run_create_wide(ct_comm *c, ct_dtype dtype, int64_t most, int window,
                                   ct_sched_room *room, ct_sched_run **run_p);
/** Bytes of these buffers. */
int64_t ct_sched_run_bytes(ct_dtype dtype, int64_t most, int window);
void ct_sched_run_destroy(ct_sched_run *run); /* NULL allowed; only when nothing is in flight */
/** Begins s (borrowed until done) on buf. */
ct_status ct_sched_run_start(ct_sched_run *run, const ct_schedule *s, void *buf, int tag);
/** CT_INPROGRESS until done. Adds to *bytes_sent; where may be NULL. */
ct_status ct_sched_run_progress(ct_sched_run *run, int64_t *bytes_sent, ct_coll_where *where);
/** As ct_coll_ops.pending: the oldest receive and the oldest send, since messages are taken in
 *  order. */
int ct_sched_run_pending(ct_sched_run *run, MPI_Request **out, int max);

/* ---- the steps of one member of a plan, as a schedule */

/** Where a plan is put to work. */
typedef struct ct_engine_plan_use {
    const ct_hierarchical_plan *plan;
    const ct_group_algorithm *way; /* [plan->n_phase]                       */
    const int *rank;               /* [plan->n] rank at each position */
    int me;                        /* this rank's position                  */
    int64_t first, n;              /* elements [first, first + n) of the buffer */
} ct_engine_plan_use;

/** Appends the reduce-scatter; then the member holds the sum of its parts. */
ct_status ct_hierarchical_plan_scatter(const ct_engine_plan_use *u, ct_schedule *s);
/** Appends the allgather, from where the reduce-scatter ends. */
ct_status ct_hierarchical_plan_gather(const ct_engine_plan_use *u, ct_schedule *s);

/** Appends the allreduce of n_chunk chunks, one after the other through the phases, up and down. In
 *  one stretch of time each phase has a chunk, so that the links of all levels work. up: only the
 *  reduce-scatter. */
ct_status ct_hierarchical_plan_pipelined(const ct_engine_plan_use *u, int n_chunk, bool up,
                                         ct_schedule *s);

/** Which position has what of a buffer: up to element `end`, from where the one before ends. */
typedef struct ct_sched_piece {
    int64_t end;
    int owner;
} ct_sched_piece;

/** Appends what moves pieces to where they belong: to[] from from[], both up to the same end; all
 *  in the order of the buffer. rank: of each position; me: this rank's. */
ct_status ct_schedule_deal(const ct_sched_piece *from, const ct_sched_piece *to, const int *rank,
                           int me, int64_t count, ct_schedule *s);

/** Appends a binomial tree over n positions, nearest first: to position 0 (sums), or from it. me
 *  counts from the root; rank[(me + root) % n]. */
ct_status ct_tree_reduce(const int *rank, int n, int root, int me, int64_t count, ct_schedule *s);
ct_status ct_tree_broadcast(const int *rank, int n, int root, int me, int64_t count,
                            ct_schedule *s);

#endif
