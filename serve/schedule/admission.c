#include "serve/schedule/state.h"

#include <math.h>

/* The most tokens of a whole request: steps must fit beside it. */
static int64_t most_whole(const ct_scheduler *s)
{
    return s->o.most_tokens - (s->o.mixed ? s->o.most_sequences : 0);
}

static bool too_long(const ct_scheduler *s, const ct_request *r)
{
    if (r->tokens < 1) return true;
    if (r->most_new == 0) return r->tokens > most_whole(s);
    return (s->o.most_sequences == 0) || (r->tokens > s->o.cache_tokens) ||
           (r->most_new > s->o.cache_tokens - r->tokens) ||
           (ct_slot_cache(s, r) > s->o.cache_tokens);
}

int ct_scheduler_waiting(const ct_scheduler *s)
{
    return s->waiting.n;
}

/* Seconds of a token of a prompt or a whole request, in full batches of all replicas: steps have
 * their share of each. */
static double token_s(const ct_scheduler *s)
{
    int64_t budget = ct_scheduler_budget(s), steps = 0;

    for (int k = 0; k < s->begun.n; k++) steps += (s->slot[s->begun.at[k]].state == CT_SLOT_STEPS);
    return ct_batch_cost_s(&s->cost, budget) / ((double)budget * s->at_once - (double)steps);
}

/* Until the prompts and whole requests have run that are there, as if they were shared out evenly.
 */
static double prompts_s(const ct_scheduler *s, double now)
{
    double running = fmax(0, s->sum_ends - s->n_running * now);
    int64_t tokens = 0;

    for (int k = 0; k < s->waiting.n; k++) tokens += ct_slot_rest(&s->slot[s->waiting.at[k]]);
    for (int k = 0; k < s->begun.n; k++) {
        const ct_slot *r = &s->slot[s->begun.at[k]];

        if (r->state == CT_SLOT_PROMPT) tokens += ct_slot_rest(r);
    }
    return running / s->at_once + (double)tokens * token_s(s);
}

/* Lanes for sequences, of all replicas, as far as the cache has room for such ones; the time of a
 * batch of their steps. */
static double open_lanes(ct_scheduler *s, const ct_request *more, int n_more)
{
    int64_t n = 0, need = 0, lanes = s->o.most_sequences, each;

    for (int k = 0; k < s->begun.n; k++, n++)
        need += ct_slot_cache(s, &s->slot[s->begun.at[k]].request);
    for (int k = 0; k < s->waiting.n; k++) {
        if (!ct_slot_is_sequence(&s->slot[s->waiting.at[k]])) continue;
        need += ct_slot_cache(s, &s->slot[s->waiting.at[k]].request);
        n++;
    }
    for (int k = 0; k < n_more; k++) {
        if (more[k].most_new == 0) continue;
        need += ct_slot_cache(s, &more[k]);
        n++;
    }
    if (n == 0) n = need = 1;
    if (lanes > s->o.cache_tokens * n / need) lanes = s->o.cache_tokens * n / need;
    if (lanes < 1) lanes = 1;
    ct_growth_clear(&s->growth, (int)(lanes * s->at_once));
    each = (n + s->at_once - 1) / s->at_once;
    return ct_batch_cost_s(&s->cost, (each < lanes) ? each : lanes);
}

/* The sequences that are there take the lanes. */
static void fill_lanes(ct_scheduler *s)
{
    for (int k = 0; k < s->begun.n; k++) {
        const ct_slot *r = &s->slot[s->begun.at[k]];

        ct_growth_add(&s->growth, ct_growth_expect(&s->growth, r->request.most_new, r->made));
    }
    for (int k = 0; k < s->waiting.n; k++) {
        const ct_slot *r = &s->slot[s->waiting.at[k]];

        if (ct_slot_is_sequence(r))
            ct_growth_add(&s->growth, ct_growth_expect(&s->growth, r->request.most_new, 0));
    }
}

double ct_scheduler_backlog_s(ct_scheduler *s, double now)
{
    double step_s;

    if (s->o.most_sequences == 0) return prompts_s(s, now);
    step_s = open_lanes(s, NULL, 0);
    fill_lanes(s);
    return prompts_s(s, now) + s->growth.last * step_s;
}

/* Whether it is likely to end in time behind what takes wait_s. A sequence waits for room in the
 * cache, too, and then grows by the tokens that are expected of it. */
static bool keeps_deadline(ct_scheduler *s, const ct_request *request, double now, double wait_s,
                           double step_s, ct_outlook *o)
{
    bool grows = (request->most_new > 0);
    double made = 1;

    *o = (ct_outlook){ .own_s = ct_batch_cost_s(&s->cost, request->tokens), .wait_s = wait_s };
    if (grows) {
        o->own_step_s = ct_batch_cost_s(&s->cost, 1);
        o->step_s = step_s - o->own_step_s;
        o->wait_s += ct_growth_free(&s->growth) * step_s;
        made = ct_growth_expect(&s->growth, request->most_new, 0);
        ct_growth_add(&s->growth, made);
    }
    return now + (1 + CT_REPLY_SHARE) * ct_outlook_most_s(o, &s->late[grows], made) <=
           request->deadline_s;
}

/* The outlooks go into the slots that they would get. */
static ct_admission judge(ct_scheduler *s, const ct_request *request, int n, double now)
{
    double wait_s = prompts_s(s, now), each_s = token_s(s), step_s = 0;

    for (int i = 0; i < n; i++)
        if (too_long(s, &request[i])) return CT_REFUSED_LONG;
    if (s->draining) return CT_REFUSED_DRAINING;
    if ((n > s->o.most_waiting - s->waiting.n) || (n > s->unused.n)) return CT_REFUSED_FULL;
    if (s->o.most_sequences > 0) {
        step_s = open_lanes(s, request, n);
        fill_lanes(s);
    }
    for (int i = 0; i < n; i++) {
        ct_slot *r = &s->slot[s->unused.at[s->unused.n - 1 - i]];

        if (!keeps_deadline(s, &request[i], now, wait_s, step_s, &r->expected))
            return CT_REFUSED_LATE;
        wait_s += (double)request[i].tokens * each_s;
    }
    return CT_ADMITTED;
}

ct_admission ct_scheduler_admit(ct_scheduler *s, const ct_request *request, int n, double now,
                                ct_request_id *id)
{
    ct_admission a = judge(s, request, n, now);

    if (a != CT_ADMITTED) {
        s->stats.refused[a] += n;
        return a;
    }
    for (int k = 0; k < n; k++) {
        int i = s->unused.at[--s->unused.n];
        ct_slot *r = &s->slot[i];

        r->request = request[k];
        r->state = CT_SLOT_WAITING;
        r->running = r->cancelled = false;
        r->run = r->made = 0;
        r->replica = CT_NO_REPLICA;
        r->arrival_s = now;
        id[k] = r->turn * s->n_slot + i;
        ct_slot_list_put(&s->waiting, i);
    }
    s->stats.admitted += n;
    return CT_ADMITTED;
}

ct_admission ct_scheduler_foresee(ct_scheduler *s, double deadline_s, double now)
{
    const ct_request least = { .tokens = 1, .deadline_s = deadline_s };
    ct_admission a = judge(s, &least, 1, now);

    if (a != CT_ADMITTED) s->stats.refused[a]++;
    return a;
}

void ct_scheduler_learn(ct_scheduler *s, const ct_slot *r, double now)
{
    double made = (double)((r->made > 1) ? r->made : 1);

    ct_lateness_note(&s->late[ct_slot_is_sequence(r)], &r->expected, made, now - r->arrival_s,
                     ct_batch_cost_s(&s->cost, ct_scheduler_budget(s)));
}
