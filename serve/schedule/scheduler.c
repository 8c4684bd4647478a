#include "serve/schedule/state.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- making */

static ct_status check(const ct_scheduler_options *o)
{
    if ((o->most_waiting < 1) || (o->most_count < 1) || (o->most_tokens < 1))
        return CT_FAIL(CT_ERR_CONFIG,
                       "scheduler: max_queue %d, %d requests and %" PRId64
                       " tokens a batch, expected at least 1 of each",
                       o->most_waiting, o->most_count, o->most_tokens);
    if ((o->budget < 0) || (o->budget > o->most_tokens))
        return CT_FAIL(CT_ERR_CONFIG,
                       "scheduler: max_batch_tokens is %" PRId64 ", expected 1 to %" PRId64
                       ", what the net is planned for",
                       o->budget, o->most_tokens);
    if (!(o->max_wait_s >= 0) || !isfinite(o->max_wait_s))
        return CT_FAIL(CT_ERR_CONFIG, "scheduler: max_wait_ms is %g, expected 0 or more",
                       1e3 * o->max_wait_s);
    if (o->most_sequences == 0) return CT_OK;
    if (o->policy == CT_POLICY_PADDED)
        return CT_FAIL(CT_ERR_CONFIG, "scheduler: sequences are packed, not padded");
    if ((o->most_sequences < 0) || (o->cache_tokens < 1))
        return CT_FAIL(CT_ERR_CONFIG,
                       "scheduler: %d sequences in a cache of %" PRId64
                       " tokens, expected at least 1",
                       o->most_sequences, o->cache_tokens);
    if (o->most_tokens < 3 * (int64_t)o->most_sequences)
        return CT_FAIL(CT_ERR_CONFIG,
                       "scheduler: %d sequences need batches of at least %" PRId64
                       " tokens, three for each; the net is planned for %" PRId64,
                       o->most_sequences, 3 * (int64_t)o->most_sequences, o->most_tokens);
    return CT_OK;
}

/* Twice what may wait, have begun and run: room for what ended and was not taken yet. Where slots
 * run out, requests are refused as by a full queue. */
static ct_status make_slots(ct_scheduler *s, int at_once)
{
    const ct_scheduler_options *o = &s->o;
    size_t n = 2 * ((size_t)o->most_waiting +
                    (size_t)at_once * ((size_t)o->most_sequences + (size_t)o->most_count));
    ct_slot_list *list[] = { &s->unused, &s->waiting, &s->begun, &s->ended };

    free(s->slot);
    free(s->replica);
    s->slot = (n <= INT32_MAX) ? calloc(n, sizeof(*s->slot)) : NULL;
    s->replica = calloc((size_t)at_once, sizeof(*s->replica));
    s->n_slot = (s->slot != NULL) ? (int)n : 0;
    for (int i = 0; i < 4; i++) {
        free(list[i]->at);
        list[i]->at = (s->slot != NULL) ? calloc(n, sizeof(int)) : NULL;
        list[i]->n = 0;
        if ((list[i]->at == NULL) || (s->replica == NULL))
            return CT_FAIL(CT_ERR_NOMEM, "no memory for a queue of %d requests and %d batches",
                           o->most_waiting, at_once);
    }
    for (int i = 0; i < s->n_slot; i++) s->unused.at[i] = s->n_slot - 1 - i;
    s->unused.n = s->n_slot;
    s->at_once = at_once;
    ct_growth_destroy(&s->growth);
    return ct_growth_create(&s->growth, o->most_sequences * at_once);
}

static ct_status make_room(ct_scheduler *s)
{
    size_t w = (size_t)s->o.most_waiting;

    s->order = calloc(w, sizeof(*s->order));
    s->from = calloc(w + 1, sizeof(*s->from));
    s->end = calloc(w, sizeof(*s->end));
    s->length = calloc(w, sizeof(*s->length));
    s->samples = calloc(w, sizeof(*s->samples));
    s->best = calloc(w + 1, sizeof(*s->best));
    if ((s->order == NULL) || (s->from == NULL) || (s->end == NULL) || (s->length == NULL) ||
        (s->samples == NULL) || (s->best == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a queue of %zu requests", w);
    return make_slots(s, 1);
}

ct_status ct_scheduler_create(const ct_scheduler_options *options, const ct_batch_cost *cost,
                              ct_scheduler **s_p)
{
    ct_scheduler *s;
    ct_status status;

    CT_TRY(check(options));
    s = calloc(1, sizeof(*s));
    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a scheduler");
    s->o = *options;
    s->cost = *cost;
    status = make_room(s);
    if (status != CT_OK) {
        ct_scheduler_destroy(s);
        return status;
    }
    *s_p = s;
    return CT_OK;
}

void ct_scheduler_destroy(ct_scheduler *s)
{
    if (s == NULL) return;
    ct_growth_destroy(&s->growth);
    free(s->slot);
    free(s->replica);
    free(s->order);
    free(s->from);
    free(s->end);
    free(s->length);
    free(s->samples);
    free(s->best);
    free(s->unused.at);
    free(s->waiting.at);
    free(s->begun.at);
    free(s->ended.at);
    free(s);
}

ct_status ct_scheduler_run_at_once(ct_scheduler *s, int n)
{
    return make_slots(s, n);
}

/* ---- from outside */

void ct_scheduler_cancel(ct_scheduler *s, ct_request_id id)
{
    int i = (int)(id % s->n_slot);
    ct_slot *r = &s->slot[i];

    if ((r->turn != id / s->n_slot) || (r->state == CT_SLOT_FREE) || (r->state == CT_SLOT_ENDED))
        return;
    if (r->running)
        r->cancelled = true;
    else
        ct_scheduler_end(s, i, CT_OUTCOME_CANCELLED);
}

void ct_scheduler_drain(ct_scheduler *s)
{
    s->draining = true;
}

bool ct_scheduler_is_idle(const ct_scheduler *s)
{
    return s->unused.n == s->n_slot;
}

/* ---- the next batch */

static void give_up(ct_scheduler *s, int i, double now)
{
    ct_scheduler_learn(s, &s->slot[i], now);
    ct_scheduler_end(s, i, CT_OUTCOME_EXPIRED);
}

/* Ends what cannot be in time even alone, from now on. */
static void expire(ct_scheduler *s, double now)
{
    for (int k = 0; k < s->waiting.n;) {
        int i = s->waiting.at[k];
        const ct_slot *r = &s->slot[i];

        if (now + ct_batch_cost_s(&s->cost, r->request.tokens) > r->request.deadline_s)
            give_up(s, i, now);
        else
            k++;
    }
    for (int k = 0; k < s->begun.n;) {
        int i = s->begun.at[k];
        const ct_slot *r = &s->slot[i];

        if (!r->running && (now >= r->request.deadline_s))
            give_up(s, i, now);
        else
            k++;
    }
}

/* Whether to wait for a fuller batch: until when. */
static bool wait_for_more(const ct_scheduler *s, double now, double *wake_p)
{
    int64_t tokens = 0;
    double until = INFINITY, s_all;

    if ((s->o.max_wait_s == 0) || s->draining || (s->begun.n > 0) || (s->waiting.n == 0))
        return false;
    for (int w = 0; w < s->waiting.n; w++) tokens += s->slot[s->waiting.at[w]].request.tokens;
    if (tokens >= ct_scheduler_budget(s)) return false;
    s_all = ct_batch_cost_s(&s->cost, tokens);
    for (int w = 0; w < s->waiting.n; w++) {
        const ct_slot *r = &s->slot[s->waiting.at[w]];

        until = fmin(until, fmin(r->arrival_s + s->o.max_wait_s, r->request.deadline_s - s_all));
    }
    if (now >= until) return false;
    *wake_p = until;
    return true;
}

/* Whole requests leave the queue: others may wait in their place. */
static void leave_queue(ct_scheduler *s, const ct_serve_batch *b)
{
    for (int k = 0; k < b->n; k++) {
        int i = (int)(b->slice[k].id % s->n_slot);

        if (s->slot[i].state != CT_SLOT_WAITING) continue;
        ct_slot_list_take_out(&s->waiting, i);
        s->slot[i].state = CT_SLOT_WHOLE;
    }
}

bool ct_scheduler_next(ct_scheduler *s, double now, ct_serve_batch *b, double *wake_p)
{
    b->n = b->n_step = 0;
    b->tokens = b->length = b->behind = 0;
    *wake_p = INFINITY;
    expire(s, now);
    ct_scheduler_give(s);
    if (wait_for_more(s, now, wake_p)) return false;
    if (s->o.policy == CT_POLICY_PACKED)
        ct_scheduler_fill_packed(s, b, now);
    else
        ct_scheduler_fill_padded(s, b, now);
    if (b->n == 0) return false;
    leave_queue(s, b);
    b->start_s = now;
    b->expected_s = ct_scheduler_expect_s(s, b->tokens, b->behind);
    s->sum_ends += now + b->expected_s;
    s->n_running++;
    s->stats.batches++;
    s->stats.tokens += b->tokens;
    return true;
}

/* What a batch did to one of its requests. */
static void advance(ct_scheduler *s, const ct_slice *c, int i, double now)
{
    ct_slot *r = &s->slot[i];

    r->running = false;
    r->run += c->n;
    if (ct_slot_is_sequence(r)) {
        if (!c->step) s->replica[r->replica].prompt -= c->n;
        if (!c->last) return;
        r->state = CT_SLOT_STEPS;
        r->made++;
        s->stats.made++;
        if (!c->ended && (r->made < r->request.most_new)) return;
    }
    ct_scheduler_learn(s, r, now);
    ct_scheduler_end(s, i, CT_OUTCOME_DONE);
}

/* What it took goes into the table without what chunks take longer behind others. */
static void learn_costs(ct_scheduler *s, const ct_serve_batch *b, double took_s)
{
    double behind = (double)b->behind / (double)b->tokens;
    double table_s = ct_batch_cost_s(&s->cost, b->tokens);
    double alone_s = took_s / ct_batch_cost_times(&s->cost, behind);
    bool has_chunk = false;

    for (int k = 0; k < b->n; k++) {
        const ct_slot *r = &s->slot[b->slice[k].id % s->n_slot];

        has_chunk |= ct_slot_is_sequence(r) && !b->slice[k].step;
    }
    if (has_chunk) ct_batch_cost_look_back(&s->cost, behind, took_s / table_s);
    ct_batch_cost_observe(&s->cost, b->tokens, alone_s);
}

void ct_scheduler_finish(ct_scheduler *s, const ct_serve_batch *b, double now, bool failed)
{
    if (!failed) learn_costs(s, b, now - b->start_s);
    s->sum_ends -= b->start_s + b->expected_s;
    if (--s->n_running == 0) s->sum_ends = 0;
    for (int k = 0; k < b->n; k++) {
        const ct_slice *c = &b->slice[k];
        int i = (int)(c->id % s->n_slot);

        if (ct_slot_is_sequence(&s->slot[i])) s->replica[s->slot[i].replica].n_running--;
        if (failed || c->failed)
            ct_scheduler_end(s, i, CT_OUTCOME_FAILED);
        else if (s->slot[i].cancelled)
            ct_scheduler_end(s, i, CT_OUTCOME_CANCELLED);
        else
            advance(s, c, i, now);
    }
}

const ct_batch_cost *ct_scheduler_cost(const ct_scheduler *s)
{
    return &s->cost;
}

void ct_scheduler_read_stats(const ct_scheduler *s, ct_scheduler_stats *stats)
{
    *stats = s->stats;
    stats->waiting = s->waiting.n;
    stats->sequences = s->begun.n;
    stats->budget = ct_scheduler_budget(s);
    stats->cache_taken = 0;
    for (int k = 0; k < s->begun.n; k++)
        stats->cache_taken += ct_slot_cache(s, &s->slot[s->begun.at[k]].request);
}
