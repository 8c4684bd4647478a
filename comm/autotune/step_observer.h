/** @file step_observer.h  The step's line, as the pipe sees it go by. No MPI. Private to comm/.
 *
 * A cycle goes from one begin to the next: backward, then the next forward. Of several cycles of
 * the same events each stretch of computation is the median.
 */
#ifndef CT_STEP_OBSERVER_H
#define CT_STEP_OBSERVER_H

#include "comm/sync/step_timeline.h"

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
