#include "serve/schedule/state.h"

#include <math.h>

static double padded_cost(const void *ctx, int64_t length, int64_t count)
{
    return ct_batch_cost_s(ctx, length * count);
}

/* Waiting requests by the length of their samples, equal ones by arrival. */
static int sort_waiting(ct_scheduler *s)
{
    int n = 0;

    for (int w = 0; w < s->waiting.n; w++) {
        int i = s->waiting.at[w], k = n;
        const ct_request *r = &s->slot[i].request;
        int64_t samples = (r->samples > 0) ? r->samples : 1, length = r->tokens / samples;

        for (; (k > 0) && (s->length[k - 1] > length); k--) {
            s->order[k] = s->order[k - 1];
            s->length[k] = s->length[k - 1];
            s->samples[k] = s->samples[k - 1];
        }
        s->order[k] = i;
        s->length[k] = length;
        s->samples[k] = samples;
        n++;
    }
    return n;
}

/* The place of the one that came first. */
static int oldest_of(const ct_scheduler *s)
{
    int k = 0;

    while (s->order[k] != s->waiting.at[0]) k++;
    return k;
}

/* The group without its longest, as long as it would be too late for one of it. */
static void shrink(const ct_scheduler *s, int oldest, double now, int *first_p, int *end_p)
{
    while (*end_p - *first_p > 1) {
        int64_t length = s->length[*end_p - 1];
        int64_t count = 0;
        double deadline = INFINITY;

        for (int k = *first_p; k < *end_p; k++) {
            deadline = fmin(deadline, s->slot[s->order[k]].request.deadline_s);
            count += s->samples[k];
        }
        if (now + padded_cost(&s->cost, length, count) <= deadline) return;
        if (*end_p - 1 != oldest)
            --*end_p;
        else
            ++*first_p;
    }
}

void ct_scheduler_fill_padded(ct_scheduler *s, ct_serve_batch *b, double now)
{
    int64_t most = (s->o.budget > 0) ? s->o.budget : s->o.most_tokens;
    ct_grouping g = { padded_cost, &s->cost, s->o.most_count, most, s->samples };
    int n = sort_waiting(s), n_group, first = 0, end_of, oldest;

    if (n == 0) return;
    ct_group_lengths(&g, s->length, n, s->best, s->from, s->end, &n_group);
    oldest = oldest_of(s);
    for (int k = 0; s->end[k] <= oldest; k++) first = s->end[k];
    end_of = first;
    for (int k = 0; end_of <= oldest; k++) end_of = s->end[k];
    shrink(s, oldest, now, &first, &end_of);
    b->length = s->length[end_of - 1];
    for (int k = first; k < end_of; k++) {
        int64_t own = s->slot[s->order[k]].request.tokens, all = b->length * s->samples[k];

        ct_serve_batch_add(s, b, s->order[k], own, false);
        s->stats.padding += all - own;
        b->tokens += all - own;
    }
}
