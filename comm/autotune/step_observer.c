#include "comm/autotune/step_observer.h"

#include <stdlib.h>
#include <string.h>

void ct_step_observer_release(ct_step_observer *w)
{
    for (int i = 0; i < CT_STEP_OBSERVER_CYCLES; ++i) free(w->event[i]);
    free(w->now);
    memset(w, 0, sizeof(*w));
}

void ct_step_observer_enter(ct_step_observer *w, double now)
{
    w->depth += 1;
    if (w->depth > 1) return;
    if (w->left_at > 0) w->pending_s += now - w->left_at;
    w->left_at = 0;
}

void ct_step_observer_leave(ct_step_observer *w, double now)
{
    if (w->depth > 0) w->depth -= 1; /* it was switched on inside */
    if (w->depth == 0) w->left_at = now;
}

/* Where memory is short there will be no line. */
static void push(ct_step_observer *w, ct_step_timeline_event e)
{
    if (w->n == w->room) {
        int room = (w->room > 0) ? 2 * w->room : 64;
        ct_step_timeline_event *more = realloc(w->now, sizeof(*more) * (size_t)room);

        if (more == NULL) {
            w->on = false;
            return;
        }
        w->now = more;
        w->room = room;
    }
    w->now[w->n++] = e;
}

static void push_run(ct_step_observer *w)
{
    push(w, (ct_step_timeline_event){ .kind = CT_STEP_TIMELINE_RUN, .seconds = w->pending_s });
    w->pending_s = 0;
}

void ct_step_observer_note(ct_step_observer *w, ct_step_timeline_kind kind, int range)
{
    if (!w->on) return;
    push_run(w);
    push(w, (ct_step_timeline_event){ .kind = kind, .range = range });
}

void ct_step_observer_turn(ct_step_observer *w, bool begins)
{
    if (w->on && !begins && (w->n_cycle < CT_STEP_OBSERVER_CYCLES)) {
        push_run(w);
        w->event[w->n_cycle] = w->now;
        w->length[w->n_cycle++] = w->n;
        w->now = NULL;
        w->room = 0;
    }
    w->n = 0;
    w->pending_s = 0;
}

static double middle(double a, double b, double c)
{
    double low = (a < b) ? a : b, high = (a < b) ? b : a;

    return (c < low) ? low : (c > high) ? high : c;
}

bool ct_step_observer_line(ct_step_observer *w, ct_step_timeline *line)
{
    ct_step_timeline_event *last = NULL;
    int n = 0, backward = 0, reads = 0;
    bool alike = (w->n_cycle == CT_STEP_OBSERVER_CYCLES);

    if (w->n_cycle == 0) return false;
    last = w->event[w->n_cycle - 1];
    n = w->length[w->n_cycle - 1];
    for (int k = 0; k < w->n_cycle; ++k) {
        alike = alike && (w->length[k] == n);
        for (int i = 0; alike && (i < n); ++i)
            alike =
                (w->event[k][i].kind == last[i].kind) && (w->event[k][i].range == last[i].range);
    }
    for (int i = 0; i < n; ++i) {
        if (alike && (last[i].kind == CT_STEP_TIMELINE_RUN))
            last[i].seconds =
                middle(w->event[0][i].seconds, w->event[1][i].seconds, last[i].seconds);
        if (last[i].kind == CT_STEP_TIMELINE_READY) backward = i + 1;
        reads += (last[i].kind == CT_STEP_TIMELINE_READ);
    }
    line->backward = last;
    line->n_backward = backward;
    line->forward = last + backward;
    line->n_forward = n - backward;
    if ((reads == 0) && (line->overlap == CT_STEP_TIMELINE_BOTH))
        line->overlap = CT_STEP_TIMELINE_BACKWARD;
    return backward > 0;
}
