/** @file step_timeline.h  The timeline of a training step: what of the exchange is exposed. No MPI.
 *
 * One rank stands for all: its forward and backward are lists of what takes time, gradients that
 * get ready, and weights that are about to be read. A bucket leaves when its last gradient is
 * ready, and is encoded then: the rank does nothing else meanwhile. Buckets have the link one after
 * the other. Of those under way the one that forward reads first has it (it interrupts). Messages
 * move while layers compute, and take a share of that time where `taken` says so. What has landed
 * is decoded and updated at once, again in the rank's own time. Forward waits before it reads a
 * weight whose sum has not landed. With after_all what has landed is added to a norm at once;
 * forward waits for everything before it reads the first weight, and then all are updated. With
 * shards (ZeRO) a bucket is reduce-scattered; its own part is updated, and then the weights of all
 * parts are gathered, on the same link. With visits they are gathered for the steps that read them
 * instead, some buckets ahead, forward and backward. Forward waits before it reads a weight.
 * Backward waits before the last stretch of computation before its gradient is ready. With `alone`
 * a thread of the exchange's own encodes and decodes instead, one bucket at a time: what is to
 * leave first, else what forward reads first. It takes one of the cores that compute, and all of
 * them while the rank waits. What that leaves out: that latencies of several buckets overlap, and
 * that messages wait for the next poll.
 */
#ifndef CT_STEP_TIMELINE_H
#define CT_STEP_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"

typedef enum {
    CT_STEP_TIMELINE_RUN,   /* `seconds` of computation                    */
    CT_STEP_TIMELINE_READY, /* the gradient of `range` is final            */
    CT_STEP_TIMELINE_READ   /* forward is about to read the weights of `range` */
} ct_step_timeline_kind;

typedef struct ct_step_timeline_event {
    ct_step_timeline_kind kind;
    int range;
    double seconds;
} ct_step_timeline_event;

/** How far communication hides. */
typedef enum {
    CT_STEP_TIMELINE_OFF,      /* nothing leaves before backward is over        */
    CT_STEP_TIMELINE_BACKWARD, /* everything has landed before the next forward */
    CT_STEP_TIMELINE_BOTH
} ct_step_timeline_overlap;

typedef struct ct_step_timeline {
    int n_range;
    const int64_t *count; /* [n_range] elements                            */
    const ct_step_timeline_event *forward, *backward;
    int n_forward, n_backward;
    double update_s; /* an element's                                      */
    double norm_s;   /* likewise: with after_all, as it lands             */
    bool after_all;  /* no weight changes before all gradients have landed */
    double taken;    /* of the time in which the link works: the rank's own work stands still for so
                        much of it, 0 to 1; nothing where the rank waits anyway */
    ct_step_timeline_overlap overlap;
    double alone; /* > 0: another thread encodes and decodes, on one core, and takes so many times
                     as long as the rank with all of its own; while the rank waits, as long */
    int cores;    /* … which are so many: the rank's own work slows down by that core */
    double owned; /* > 0: shards; the share of each bucket that this rank updates       */
    bool visits;  /* … whose weights come for the steps that read them, and go again (ZeRO 3) */
    int ahead;    /* … as many chunks before they are read */
} ct_step_timeline;

/** A bucket. */
typedef struct ct_step_timeline_message {
    int first, n, n_part; /* ranges, as ct_bucket_cut has them */
    double encode_s, wire_s, decode_s;
    int64_t count;   /* with shards: elements                                   */
    double gather_s; /* … of their weights; wire_s is that of the reduce-scatter */
} ct_step_timeline_message;

typedef struct ct_step_timeline_times {
    double step_s, exposed_s; /* exposed: the rank waited, or encoded or decoded itself */
    double gathered;          /* with shards: elements of weights that come in a step */
} ct_step_timeline_times;

/** Another thread codes, beside so many cores; with one there is nothing to gain. one_core: how
 * many times as long one core takes alone, at most as many as there are; 0: not known, as many. */
void ct_step_timeline_code_apart(ct_step_timeline *line, int cores, double one_core);
/** A step in the steady state. CT_ERR_NOMEM. */
ct_status ct_step_timeline_run(const ct_step_timeline *line, const ct_step_timeline_message *parcel,
                               int n_parcel, ct_step_timeline_times *out);

/** Weights of a chunk come: they must be there before `event` of its list. */
typedef struct ct_step_visit {
    int event, chunk;
} ct_step_visit;

typedef struct ct_step_visits {
    ct_step_visit *forward, *backward; /* in order of their events; in one block, owned */
    int n_forward, n_backward;
} ct_step_visits;

/** What visits a line has whose ranges lie in these chunks: chunk[n_range], 0 and on. The last
 *  `ahead` + 1 of forward stay for backward. CT_ERR_NOMEM. */
ct_status ct_step_visits_find(const ct_step_timeline *line, const int *chunk, ct_step_visits *out);
void ct_step_visits_release(ct_step_visits *v);

/* ---- the line as a pipe sees it go by
 *
 * A cycle goes from one begin to the next: backward, then the next forward. Of several cycles of
 * the same events each stretch of computation is the median.
 */

enum { CT_STEP_OBSERVER_CYCLES = 3 };

typedef struct ct_step_observer {
    bool on;
    int depth;                 /* the pipe calls back, and is called again */
    double left_at, pending_s; /* when the main thread left the pipe; its own time since the last
                                  event */
    int n_cycle, n, room;
    ct_step_timeline_event *event[CT_STEP_OBSERVER_CYCLES]; /* [n of it] */
    int length[CT_STEP_OBSERVER_CYCLES];
    ct_step_timeline_event *now; /* [n] of the cycle that goes on */
} ct_step_observer;

void ct_step_observer_release(ct_step_observer *w);
void ct_step_observer_enter(ct_step_observer *w, double now);
void ct_step_observer_leave(ct_step_observer *w, double now);
/** READY or READ. */
void ct_step_observer_note(ct_step_observer *w, ct_step_timeline_kind kind, int range);
/** A cycle ends and the next begins; the first call only begins one. */
void ct_step_observer_turn(ct_step_observer *w, bool begins);
/** The backward and forward lists, borrowed from w. False where there is no whole cycle. */
bool ct_step_observer_line(ct_step_observer *w, ct_step_timeline *line);

#endif
