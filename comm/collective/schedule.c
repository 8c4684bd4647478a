/* The lists of steps, and what in them waits for what; schedule_run.c runs them. */
#include "comm/collective/schedule.h"

#include <stdlib.h>

enum { LINE = 16 /* elements of a cache line */ };

void ct_schedule_clear(ct_schedule *s)
{
    s->n_step = 0;
}

void ct_schedule_destroy(ct_schedule *s)
{
    free(s->step);
    *s = (ct_schedule){ .step = NULL };
}

static bool overlap(int64_t at, int64_t n, int64_t other_at, int64_t other_n)
{
    return (n > 0) && (other_n > 0) && (at < other_at + other_n) && (other_at < at + n);
}

ct_status ct_schedule_add(ct_schedule *s, const ct_sched_step *step)
{
    ct_sched_step added = *step;

    if (added.send_to < 0) added.send_n = 0;
    if (added.recv_from < 0) added.recv_n = 0;
    if ((added.send_n == 0) && (added.recv_n == 0)) return CT_OK;
    if (s->n_step == s->capacity) {
        int capacity = (s->capacity == 0) ? 16 : 2 * s->capacity;
        ct_sched_step *more = realloc(s->step, sizeof(*more) * (size_t)capacity);

        if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d steps", capacity);
        s->step = more;
        s->capacity = capacity;
    }
    added.after = s->n_step - 1;
    while ((added.after >= 0) && !overlap(added.send_at, added.send_n, s->step[added.after].recv_at,
                                          s->step[added.after].recv_n))
        added.after -= 1;
    added.sent_first = added.add ? 0 : s->n_step;
    while ((added.sent_first > 0) &&
           !overlap(added.recv_at, added.recv_n, s->step[added.sent_first - 1].send_at,
                    s->step[added.sent_first - 1].send_n))
        added.sent_first -= 1;
    s->step[s->n_step++] = added;
    return CT_OK;
}

int64_t ct_schedule_most(const ct_schedule *s)
{
    int64_t most = 0;

    for (int i = 0; i < s->n_step; ++i) {
        if (s->step[i].add && (s->step[i].recv_n > most)) most = s->step[i].recv_n;
    }
    return most;
}

void ct_schedule_send_waits(const ct_schedule *s, int i, int64_t seg, int *step_p, int64_t *seg_p)
{
    const ct_sched_step *step = &s->step[i];
    int64_t each = ct_segment_elements(step->send_n), at = step->send_at + seg * each;
    int64_t end = step->send_at + step->send_n;
    int k = step->after;

    if (at + each < end) end = at + each;
    while ((k >= 0) && !overlap(at, end - at, s->step[k].recv_at, s->step[k].recv_n)) k -= 1;
    *step_p = k;
    *seg_p = 0;
    if (k < 0) return;
    if (s->step[k].recv_at + s->step[k].recv_n < end) end = s->step[k].recv_at + s->step[k].recv_n;
    *seg_p = (end - 1 - s->step[k].recv_at) / ct_segment_elements(s->step[k].recv_n);
}

int64_t ct_part(int64_t n, int parts, int i)
{
    int64_t each = (n + parts - 1) / parts, at = 0;

    if (each >= LINE) each = (each + LINE - 1) / LINE * LINE;
    at = each * i;
    return (at < n) ? at : n;
}
