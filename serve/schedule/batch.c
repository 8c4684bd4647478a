#include "serve/schedule/state.h"

#include <stdlib.h>

ct_status ct_serve_batch_create(const ct_scheduler *s, ct_serve_batch **batch_p)
{
    size_t n = (size_t)s->o.most_count + (size_t)s->o.most_sequences;
    ct_serve_batch *b = calloc(1, sizeof(*b));

    if (b != NULL) b->slice = calloc(n, sizeof(*b->slice));
    if ((b == NULL) || (b->slice == NULL)) {
        ct_serve_batch_destroy(b);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a batch of %zu requests", n);
    }
    *batch_p = b;
    return CT_OK;
}

void ct_serve_batch_destroy(ct_serve_batch *b)
{
    if (b == NULL) return;
    free(b->slice);
    free(b);
}

void ct_serve_batch_add(ct_scheduler *s, ct_serve_batch *b, int i, int64_t n, bool step)
{
    ct_slot *r = &s->slot[i];

    b->slice[b->n++] = (ct_slice){ .id = r->turn * s->n_slot + i,
                                   .what = r->request.what,
                                   .first = r->run,
                                   .n = n,
                                   .step = step,
                                   .last = step || (r->run + n == r->request.tokens) };
    r->running = true;
    if (ct_slot_is_sequence(r)) s->replica[r->replica].n_running++;
    b->n_step += step;
    b->tokens += n;
    if (!step) b->behind += n * r->run;
}

int64_t ct_scheduler_budget(const ct_scheduler *s)
{
    int64_t b = (s->o.budget > 0) ? s->o.budget : ct_batch_cost_knee(&s->cost, CT_KNEE_SHARE);
    int64_t least = 2 * (int64_t)s->o.most_sequences;
    int64_t most = s->o.most_tokens - (s->o.mixed ? s->o.most_sequences : 0);

    if (b < least) b = least;
    return (b < most) ? b : most;
}

double ct_scheduler_expect_s(const ct_scheduler *s, int64_t tokens, int64_t behind)
{
    double each = (tokens > 0) ? (double)behind / (double)tokens : 0;

    return ct_batch_cost_s(&s->cost, tokens) * ct_batch_cost_times(&s->cost, each);
}
