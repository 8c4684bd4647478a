/** @file schedule.h  Point-to-point collectives as data: a list of steps that one engine runs.
 *
 * Private to comm/. A step sends one range of a buffer to a rank and receives another from a rank,
 * adding it or putting it in place. Ring, recursive halving and their combinations differ only in
 * the list. The engine cuts ranges into segments, so that additions overlap with transfers and
 * received data needs little memory, and keeps several messages under way.
 *
 * All messages of one schedule carry one tag. Between two ranks they are posted in step order on
 * both sides, which is how MPI matches them; so what a step sends must be, in the same order, what
 * the other rank's steps receive.
 */
#ifndef CT_SCHEDULE_H
#define CT_SCHEDULE_H

#include "comm/coll.h"

typedef struct ct_sched_step {
    int send_to, recv_from; /* ranks of the world; -1: none                              */
    int64_t send_at, send_n, recv_at, recv_n; /* elements                                */
    bool add;       /* what is received is added; else it replaces                        */
    bool chained;   /* sends what the step before receives: segment by segment; else this
                       step's sends wait for all that was received before                 */
    int sent_first; /* replace: the sends of the steps before this one are over, since
                       they read what is now overwritten                                 */
} ct_sched_step;

typedef struct ct_schedule {
    int n_step, capacity;
    ct_sched_step *step;
} ct_schedule;

/** A group of ranks that reduce together: member[i] is a rank of the world, `me` this rank's i. */
typedef struct ct_group {
    int n, me;
    const int *member;
} ct_group;

void ct_schedule_clear(ct_schedule *s);
void ct_schedule_destroy(ct_schedule *s);
ct_status ct_schedule_add(ct_schedule *s, const ct_sched_step *step);

/** Appends an allreduce of elements [first, first + n) over the group, any size. Ring: reduce-
 *  scatter and allgather, 2 (p-1) steps, 2 n (p-1)/p elements sent (Patarasuk and Yuan, "Bandwidth
 *  optimal all-reduce algorithms", JPDC 2009). Rhd: recursive halving and doubling, 2 log2 p steps
 *  (Rabenseifner, ICCS 2004), nearest rank first, so that with ranks numbered node by node the
 *  large exchanges stay on a node; ranks beyond a power of two fold into neighbours first. */
ct_status ct_schedule_ring(ct_schedule *s, const ct_group *g, int64_t first, int64_t n);
ct_status ct_schedule_rhd(ct_schedule *s, const ct_group *g, int64_t first, int64_t n);
/** The two halves of the ring alone: afterwards member i holds the sum of part i of `parts`
 *  (ct_part()), and from there everyone holds everything. */
ct_status ct_schedule_ring_scatter(ct_schedule *s, const ct_group *g, int64_t first, int64_t n);
ct_status ct_schedule_ring_gather(ct_schedule *s, const ct_group *g, int64_t first, int64_t n);

/** Start of part i of n elements in `parts` near-equal parts; i = parts gives n. Parts begin at
 *  multiples of 16 elements where n allows, so that no two share a cache line. */
int64_t ct_part(int64_t n, int parts, int i);

typedef struct ct_sched_run ct_sched_run;

/** Buffers for running schedules whose adding steps receive at most `most` elements each. Local. */
ct_status ct_sched_run_create(ct_comm *c, ct_dtype dtype, int64_t most, ct_sched_run **run_p);
/** The `most` of a schedule. */
int64_t ct_schedule_most(const ct_schedule *s);
void ct_sched_run_destroy(ct_sched_run *run); /* NULL allowed; only when nothing is in flight */
/** Begins s (borrowed until done) on buf. */
ct_status ct_sched_run_start(ct_sched_run *run, const ct_schedule *s, void *buf, int tag);
/** CT_INPROGRESS until done. Adds to *bytes_sent; where may be NULL. */
ct_status ct_sched_run_progress(ct_sched_run *run, int64_t *bytes_sent, ct_coll_where *where);
/** As ct_coll_ops.pending: the oldest receive and the oldest send, since messages are taken in
 *  order. */
int ct_sched_run_pending(ct_sched_run *run, MPI_Request **out, int max);

#endif
