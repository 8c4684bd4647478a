/* The lists of steps; schedule_run.c runs them. */
#include "comm/schedule.h"

#include <stdlib.h>

void ct_schedule_clear(ct_schedule *s)
{
    s->n_step = 0;
}

void ct_schedule_destroy(ct_schedule *s)
{
    free(s->step);
    *s = (ct_schedule){ .step = NULL };
}

ct_status ct_schedule_add(ct_schedule *s, const ct_sched_step *step)
{
    if (s->n_step == s->capacity) {
        int capacity = (s->capacity == 0) ? 16 : 2 * s->capacity;
        ct_sched_step *more = realloc(s->step, sizeof(*more) * (size_t)capacity);

        if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d steps", capacity);
        s->step = more;
        s->capacity = capacity;
    }
    s->step[s->n_step++] = *step;
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

int64_t ct_part(int64_t n, int parts, int i)
{
    enum { LINE = 16 };
    int64_t each = (n + parts - 1) / parts, at = 0;

    if (each >= LINE) each = (each + LINE - 1) / LINE * LINE;
    at = each * i;
    return (at < n) ? at : n;
}

/* One round of a ring in which member i passes part (i - shift) on and gets (i - shift - 1). */
static ct_status ring_step(ct_schedule *s, const ct_group *g, int64_t first, int64_t n, int shift,
                           ct_sched_step step)
{
    int p = g->n, out = ((g->me - shift) % p + p) % p, in = ((g->me - shift - 1) % p + p) % p;

    step.send_to = g->member[(g->me + 1) % p];
    step.recv_from = g->member[(g->me + p - 1) % p];
    step.send_at = first + ct_part(n, p, out);
    step.send_n = ct_part(n, p, out + 1) - ct_part(n, p, out);
    step.recv_at = first + ct_part(n, p, in);
    step.recv_n = ct_part(n, p, in + 1) - ct_part(n, p, in);
    return ct_schedule_add(s, &step);
}

ct_status ct_schedule_ring_scatter(ct_schedule *s, const ct_group *g, int64_t first, int64_t n)
{
    /* the last part that member i receives, and then holds whole, is part i */
    for (int k = 0; k < g->n - 1; ++k)
        CT_TRY(
            ring_step(s, g, first, n, k + 1, (ct_sched_step){ .add = true, .chained = (k > 0) }));
    return CT_OK;
}

ct_status ct_schedule_ring_gather(ct_schedule *s, const ct_group *g, int64_t first, int64_t n)
{
    int before = s->n_step;

    /* whatever was sent before this phase has been read out when its first message comes in */
    for (int k = 0; k < g->n - 1; ++k)
        CT_TRY(ring_step(s, g, first, n, k,
                         (ct_sched_step){ .chained = (k > 0), .sent_first = before }));
    return CT_OK;
}

ct_status ct_schedule_ring(ct_schedule *s, const ct_group *g, int64_t first, int64_t n)
{
    int start = s->n_step;

    CT_TRY(ct_schedule_ring_scatter(s, g, first, n));
    CT_TRY(ct_schedule_ring_gather(s, g, first, n));
    for (int k = 0; k < g->n - 1; ++k) {
        ct_sched_step *gather = &s->step[start + g->n - 1 + k];

        /* the part that comes in was sent out in step k of the first phase, no later */
        gather->sent_first = start + k + 1;
        gather->chained = true;
    }
    if (g->n > 1) s->step[start].chained = false;
    return CT_OK;
}

/* Ranks at or beyond the power of two below p give everything to rank - power, and get the result
 * back at the end: `back` says which of the two moves. */
static ct_status fold(ct_schedule *s, const ct_group *g, int power, int64_t first, int64_t n,
                      bool back)
{
    bool extra = (g->me >= power);
    int other = extra ? g->me - power : g->me + power;
    ct_sched_step step = { .send_to = -1, .recv_from = -1, .sent_first = s->n_step };

    if (other >= g->n) return CT_OK;
    if (extra != back) {
        step.send_to = g->member[other];
        step.send_at = first;
        step.send_n = n;
    } else {
        step.recv_from = g->member[other];
        step.recv_at = first;
        step.recv_n = n;
        step.add = !back;
    }
    return ct_schedule_add(s, &step);
}

static ct_status halve_and_double(ct_schedule *s, const ct_group *g, int power, int64_t first,
                                  int64_t n)
{
    int64_t at[32], size[32];
    int depth = 0;

    at[0] = first;
    size[0] = n;
    for (int d = 1; d < power; d *= 2, ++depth) {
        int64_t low = ct_part(size[depth], 2, 1);
        bool keep_low = ((g->me & d) == 0);
        ct_sched_step step = { .send_to = g->member[g->me ^ d],
                               .recv_from = g->member[g->me ^ d],
                               .add = true };

        at[depth + 1] = keep_low ? at[depth] : at[depth] + low;
        size[depth + 1] = keep_low ? low : size[depth] - low;
        step.recv_at = at[depth + 1];
        step.recv_n = size[depth + 1];
        step.send_at = keep_low ? at[depth] + low : at[depth];
        step.send_n = size[depth] - size[depth + 1];
        CT_TRY(ct_schedule_add(s, &step));
    }
    while (--depth >= 0) {
        bool kept_low = ((g->me & (1 << depth)) == 0);
        ct_sched_step step = { .send_to = g->member[g->me ^ (1 << depth)],
                               .recv_from = g->member[g->me ^ (1 << depth)],
                               .sent_first = s->n_step };

        step.send_at = at[depth + 1];
        step.send_n = size[depth + 1];
        step.recv_at = kept_low ? at[depth] + size[depth + 1] : at[depth];
        step.recv_n = size[depth] - size[depth + 1];
        CT_TRY(ct_schedule_add(s, &step));
    }
    return CT_OK;
}

ct_status ct_schedule_rhd(ct_schedule *s, const ct_group *g, int64_t first, int64_t n)
{
    int power = 1;

    while (2 * power <= g->n) power *= 2;
    CT_TRY(fold(s, g, power, first, n, false));
    if (g->me < power) CT_TRY(halve_and_double(s, g, power, first, n));
    return fold(s, g, power, first, n, true);
}
