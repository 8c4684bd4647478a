/** @file grad_pipe_impl.h  What the parts of the gradient pipe share. Private to comm/.
 */
#ifndef CT_GRAD_PIPE_IMPL_H
#define CT_GRAD_PIPE_IMPL_H

#include <stdbool.h>

#include "framework/base/status.h"
#include "comm/sync/bucket.h"
#include "comm/sync/row_sum.h"
#include "framework/tensor/storage.h"

/* ---- a thread that moves messages while the main thread computes
 *
 * It sleeps until it is woken, then calls `move` until nothing is under way, with naps in between
 * that grow while nothing moves: a thread that spun would take the core that computes.
 */
typedef struct ct_pipe_thread ct_pipe_thread;

typedef enum {
    CT_PIPE_DONE,  /* nothing is under way: sleep until woken  */
    CT_PIPE_STUCK, /* something is, but nothing moved: nap     */
    CT_PIPE_MOVED
} ct_pipe_thread_state;

/** move: called from the thread; locks by itself. */
ct_status ct_pipe_thread_create(ct_pipe_thread_state (*move)(void *ctx), void *ctx,
                                ct_pipe_thread **p_p);
void ct_pipe_thread_destroy(ct_pipe_thread *p); /* ends the thread; NULL allowed */
/** Something may be under way. Never waits for move. */
void ct_pipe_thread_wake(ct_pipe_thread *p);
/** While held, the thread sleeps: somebody else moves. A move that has begun still ends. */
void ct_pipe_thread_hold(ct_pipe_thread *p, bool held);

/** What a codec keeps of a range, apart from the bucket. */
typedef struct ct_grad_kept {
    float *v, *u; /* [count], owned; NULL: there is none */
    float rate;   /* in which V counts                   */
    bool absorbed;
} ct_grad_kept;

/** Rows of a range that travel as a list: grad_rows.c. */
typedef enum {
    CT_ROWS_NONE,  /* not in this step, or not yet        */
    CT_ROWS_NOTED, /* some are known                      */
    CT_ROWS_FULL,  /* all are there: they may leave       */
    CT_ROWS_RUNNING,
    CT_ROWS_LANDED, /* those of all ranks are here         */
    CT_ROWS_ADDED   /* … and in the arena, and reported    */
} ct_grad_rows_state;

typedef struct ct_grad_rows {
    int range;
    ct_row_sum *sum;
    _Atomic int state;
    double left_at; /* traced; 0: not */
    char *name;     /* in traces; owned */
} ct_grad_rows;

/* Who touches what: everything from `landed` to `n_left`, and the buckets but for their atomics,
 * only under the communicator's lock; the rest only the main thread. */
struct ct_grad_pipe {
    ct_comm *comm;
    ct_comm_mover mover; /* plugged into comm */
    ct_grad_pipe_config config;
    float *arena;
    int n_range, n_bucket, n_lane;
    ct_grad_range *range;
    char *keys;           /* of the ranges                                              */
    bool *ready;          /* [n_range] in this step                                     */
    int *bucket_of;       /* [n_range] the first one with a part of it                  */
    int *parts_left;      /* [n_range] parts that this step has not reported            */
    int *parts_full;      /* [n_range] the first parts, whose elements are all ready    */
    int *sums_left;       /* [n_range] shards: parts whose own pieces are not summed    */
    ct_pipe_part_fn part; /* NULL: nobody hears of parts */
    void *part_ctx;
    ct_bucket *bucket;
    int *order;         /* [n_bucket] by urgency: the last is what forward reads first   */
    ct_grad_rows *rows; /* [n_rows] of the ranges that have some; their states are atomic */
    int n_rows;
    int *landed; /* [n_bucket] buckets in the order of landing                     */
    int *summed; /* [n_bucket] shards: likewise of the own pieces' sums            */
    int n_landed, n_left, n_summed;
    int n_reported;
    int n_owned;  /* shards: of `summed`, that part has heard of                  */
    bool more;    /* shards: in this step no weight changes */
    bool updated; /* shards: weights may travel                                   */
    int n_begun;  /* steps */
    bool begun;   /* at least once                                     */
    bool open;    /* between begin and the report of the last bucket   */
    _Atomic bool finishing;
    double step_s;          /* ct_grad_pipe_step_s(): the main thread's      */
    ct_codec_step step;     /* that is under way                                 */
    ct_sync_stats stats;    /* of buckets those of earlier generations alone     */
    void *policy;           /* the state of config.policy; NULL: none               */
    bool watched;           /* set by the policy: it hears what happens in a step   */
    ct_storage *history;    /* of the solver, as the arena; borrowed; NULL: unknown   */
    ct_trace *trace;        /* borrowed                                              */
    ct_grad_kept *aside;    /* [n_range] what codecs keep, while others are only tried; NULL: the
                               buckets have it                                       */
    int generation;         /* of buckets                                            */
    _Atomic bool remaking;  /* the buckets are being made: nobody looks              */
    ct_pipe_thread *thread; /* NULL: the main thread does it all                 */
    ct_pipe_thread *coder;  /* encodes and decodes while `thread` moves messages; NULL: they do */
    _Atomic bool threaded;  /* the thread moves messages now; changes in begin   */
    _Atomic int fate;       /* a ct_status: what went wrong, in the thread perhaps */
};

/* All of these with the lock held. */

/** Anything has left and has not landed. */
bool ct_grad_pipe_under_way(const ct_grad_pipe *gp);
/** Lets buckets leave, and moves those under way as far as they go. *moved_p: anything did. */
ct_status ct_grad_pipe_move(ct_grad_pipe *gp, bool *moved_p);
/** The two of ct_comm_mover. */
ct_status ct_grad_pipe_move_any(void *gp);
int ct_grad_pipe_pending(void *gp, MPI_Request **out, int max);
/** Spent in codecs so far. */
double ct_grad_pipe_encode_s(const ct_grad_pipe *gp);

/* … and these between steps. */

/** Of the ranges that may have rows. Collective. */
ct_status ct_grad_pipe_make_rows(ct_grad_pipe *gp);
void ct_grad_pipe_release_rows(ct_grad_pipe *gp);
void ct_grad_pipe_begin_rows(ct_grad_pipe *gp);
/** Of range i; NULL: it never has any. */
ct_grad_rows *ct_grad_pipe_rows_of(const ct_grad_pipe *gp, int i);
/** Range i is ready; true: its rows are all of it. */
bool ct_grad_pipe_fill_rows(ct_grad_pipe *gp, int i);
/** Those that are in use in this step are reported. */
bool ct_grad_pipe_rows_done(const ct_grad_pipe *gp);
/** With the lock held: lets rows leave and moves them; *moved_p where something did. */
ct_status ct_grad_pipe_move_rows(ct_grad_pipe *gp, bool leave, bool *moved_p);
/** Adds rows that have landed to sums that have, and reports these. */
ct_status ct_grad_pipe_report_rows(ct_grad_pipe *gp, ct_pipe_landed_fn landed, void *ctx);

/* ---- shards: grad_shards.c */

/** A step begins. */
void ct_grad_pipe_begin_shards(ct_grad_pipe *gp);
/** Without the lock: tells of own pieces that are summed, and lets what is updated travel. */
ct_status ct_grad_pipe_report_shards(ct_grad_pipe *gp);
/** All own pieces of range i are summed, rows among them. */
ct_status ct_grad_pipe_own_range(ct_grad_pipe *gp, int i);
/** With the lock: moves weights that were asked for. *urgent_p: some are under way. */
ct_status ct_grad_pipe_move_gathers(ct_grad_pipe *gp, bool *moved_p, bool *urgent_p);
/** Weights that have come for range i become f32, where they travelled in 16 bits. */
void ct_grad_pipe_unpack(ct_grad_pipe *gp, int i);
/** The weights of range i's buckets are under way. */
bool ct_grad_pipe_is_visiting(const ct_grad_pipe *gp, int i);
/** Range i was told of. */
bool ct_grad_pipe_is_owned(const ct_grad_pipe *gp, int i);
/** Of all ranges. */
bool ct_grad_pipe_all_owned(const ct_grad_pipe *gp);

/** What each coded bucket did, and all of them. */
void ct_grad_pipe_log_coding(const ct_grad_pipe *gp);
/** *t: of the buckets that there were before; out: of all. */
void ct_grad_pipe_add_codec(const ct_grad_pipe *gp, ct_codec_totals *t);

/** Cuts the ranges into buckets and makes these, and what lists them. Collective. */
ct_status ct_grad_pipe_make_buckets(ct_grad_pipe *gp);
/** The same again, the ranges' codecs having changed; what codecs keep goes over. Ranges that
 *  keep nothing any more have nothing left behind. Collective. */
ct_status ct_grad_pipe_switch_codecs(ct_grad_pipe *gp);
/** The same, but to try codecs: until the next recode what they keep is of no importance, and of
 *  what they absorb nothing moves (ct_grad_pipe_tries()). Needs `history`. Collective. */
ct_status ct_grad_pipe_switch_codecs_to_try(ct_grad_pipe *gp);
/** While codecs are tried: range i's absorbs nothing, so that its sums moved weights. What it has
 *  left behind waits with what was kept before, and the next recode gives it back. *kept_p: false
 *  where what waits counts in other units. */
ct_status ct_grad_pipe_keep_tried(ct_grad_pipe *gp, int i, bool *kept_p);
/** What they had kept before may not be lost with the codecs that the ranges have now: is there
 *  any of range i, on this rank. */
bool ct_grad_pipe_holds(const ct_grad_pipe *gp, int i);
void ct_grad_pipe_forget_aside(ct_grad_pipe *gp);

/** With the lock held: no codec is at work apart; gives the lock away while it waits for that. */
void ct_grad_pipe_rest(const ct_grad_pipe *gp);

/** Makes the threads, where the configuration may come to need them. CT_ERR_CONFIG. */
ct_status ct_grad_pipe_open_thread(ct_grad_pipe *gp);
/** From the next step on the threads, or the main thread, move messages and code. */
void ct_grad_pipe_use_thread(ct_grad_pipe *gp, bool on);

#endif
