/** @file step_observer.h  The step's line, as the pipe sees it go by. No MPI. Private to comm/.
 *
 * A cycle goes from one begin to the next: backward, then the next forward. Of several cycles of
 * the same events each stretch of computation is the median.
 */
#ifndef CT_WATCH_H
#define CT_WATCH_H

#include "comm/sync/step_timeline.h"

enum { CT_WATCH_CYCLES = 3 };

typedef struct ct_watch {
    bool on;
    int depth;                 /* the pipe calls back, and is called again */
    double left_at, pending_s; /* when the main thread left the pipe; its own time since the last
                                  event */
    int n_cycle, n, room;
    ct_line_event *event[CT_WATCH_CYCLES]; /* [n of it] */
    int length[CT_WATCH_CYCLES];
    ct_line_event *now; /* [n] of the cycle that goes on */
} ct_watch;

void ct_watch_release(ct_watch *w);
void ct_watch_enter(ct_watch *w, double now);
void ct_watch_leave(ct_watch *w, double now);
/** READY or READ. */
void ct_watch_note(ct_watch *w, ct_line_kind kind, int range);
/** A cycle ends and the next begins; the first call only begins one. */
void ct_watch_turn(ct_watch *w, bool begins);
/** The backward and forward lists, borrowed from w. False where there is no whole cycle. */
bool ct_watch_line(ct_watch *w, ct_line *line);

#endif
