#include "serve/schedule/scheduler.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/schedule/growth.h"
#include "serve/schedule/outlook.h"

typedef enum {
    FREE,
    WAITING, /* in `waiting`, no token has run  */
    WHOLE,   /* in the batch with all its tokens */
    PROMPT,  /* in `begun`, holds cache         */
    STEPS,   /* … and its prompt has run        */
    ENDED    /* in `ended`, until it is taken   */
} request_state;

enum {
    NO_REPLICA = -1,
    SEQUENCE_TOKENS = 64 /* of a prompt, that take a replica as much as a sequence which grows */
};

typedef struct slot {
    ct_request request;
    request_state state;
    ct_outcome outcome;
    bool running, cancelled;
    int64_t run, made; /* tokens that have run, or that its replica is thought to have; new ones */
    double arrival_s;
    ct_outlook expected; /* when it came */
    int replica;         /* a sequence's, from when it is given to one */
    int64_t turn;        /* counts up with every use of the slot */
} slot;

/* A list of slots in the order in which they came. */
typedef struct slot_list {
    int *at, n;
} slot_list;

/* The sequences that were given to a replica, begun or not. */
typedef struct given {
    int n, n_running;
    int64_t cache;  /* tokens that they hold              */
    int64_t prompt; /* of their prompts, that have not run */
    bool turn_of_steps;
} given;

struct ct_scheduler {
    ct_scheduler_options o;
    ct_batch_cost cost;
    int n_slot;
    slot *slot;
    slot_list unused, waiting, begun, ended;
    given *replica; /* [at_once] */
    int64_t n_given;
    int at_once, n_running; /* batches: that may run, and do                    */
    double sum_ends;        /* of those that run: when they end, as the costs say */
    ct_growth growth;
    ct_lateness late[2]; /* of whole requests, of sequences */
    bool draining;
    ct_scheduler_stats stats;
    /* PADDED: waiting requests by length, and room for ct_group_lengths() */
    int *order, *from, *end;
    int64_t *length;
    double *best;
};

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
    slot_list *list[] = { &s->unused, &s->waiting, &s->begun, &s->ended };

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
    s->best = calloc(w + 1, sizeof(*s->best));
    if ((s->order == NULL) || (s->from == NULL) || (s->end == NULL) || (s->length == NULL) ||
        (s->best == NULL))
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

/* ---- lists of slots */

static void put(slot_list *list, int i)
{
    list->at[list->n++] = i;
}

/* In the order of arrival. */
static void put_in_order(ct_scheduler *s, slot_list *list, int i)
{
    int k = list->n++;

    for (; (k > 0) && (s->slot[list->at[k - 1]].arrival_s > s->slot[i].arrival_s); k--)
        list->at[k] = list->at[k - 1];
    list->at[k] = i;
}

static void take_out(slot_list *list, int i)
{
    int k = 0;

    while (list->at[k] != i) k++;
    memmove(list->at + k, list->at + k + 1, (size_t)(list->n - k - 1) * sizeof(int));
    list->n--;
}

static bool is_sequence(const slot *r)
{
    return r->request.most_new > 0;
}

/* What it takes of the cache, in whole pages. */
static int64_t cache_of(const ct_scheduler *s, const ct_request *r)
{
    int64_t page = (s->o.page_tokens > 0) ? s->o.page_tokens : 1;

    return (r->tokens + r->most_new + page - 1) / page * page;
}

/* What of it must still run before it gives something. */
static int64_t rest_of(const slot *r)
{
    return r->request.tokens - r->run;
}

static bool has_begun(const slot *r)
{
    return (r->state == PROMPT) || (r->state == STEPS);
}

static void end(ct_scheduler *s, int i, ct_outcome outcome)
{
    slot *r = &s->slot[i];

    if (r->replica != NO_REPLICA) {
        s->replica[r->replica].n--;
        s->replica[r->replica].cache -= cache_of(s, &r->request);
        if (r->state != STEPS) s->replica[r->replica].prompt -= rest_of(r);
    }
    if (r->state == WAITING) take_out(&s->waiting, i);
    if (has_begun(r)) {
        take_out(&s->begun, i);
        if ((r->made > 0) && ((outcome == CT_OUTCOME_DONE) || (outcome == CT_OUTCOME_EXPIRED)))
            ct_growth_note(&s->growth, r->made);
    }
    r->state = ENDED;
    r->outcome = outcome;
    r->running = false;
    s->stats.ended[outcome]++;
    put(&s->ended, i);
}

bool ct_scheduler_take_ended(ct_scheduler *s, void **what_p, ct_outcome *outcome_p)
{
    slot *r;
    int i;

    if (s->ended.n == 0) return false;
    i = s->ended.at[0];
    take_out(&s->ended, i);
    r = &s->slot[i];
    r->state = FREE;
    r->turn++;
    put(&s->unused, i);
    *what_p = r->request.what;
    *outcome_p = r->outcome;
    return true;
}

/* ---- admission */

static int64_t budget_of(const ct_scheduler *s)
{
    int64_t b = (s->o.budget > 0) ? s->o.budget : ct_batch_cost_knee(&s->cost, CT_KNEE_SHARE);
    int64_t least = 2 * (int64_t)s->o.most_sequences;
    int64_t most = s->o.most_tokens - (s->o.mixed ? s->o.most_sequences : 0);

    if (b < least) b = least;
    return (b < most) ? b : most;
}

/* Of this batch. A table that says too much of larger batches would never be found out, so with the
 * knee as budget one of 16 may have twice as much. Sequences would have to wait for it. */
static int64_t room_of(const ct_scheduler *s)
{
    const int64_t each = 16;
    int64_t b = budget_of(s);

    if ((s->o.budget > 0) || (s->o.most_sequences > 0) || (s->stats.batches % each != each - 1))
        return b;
    return (2 * b < s->o.most_tokens) ? 2 * b : s->o.most_tokens;
}

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
           (r->most_new > s->o.cache_tokens - r->tokens) || (cache_of(s, r) > s->o.cache_tokens);
}

int ct_scheduler_waiting(const ct_scheduler *s)
{
    return s->waiting.n;
}

/* Seconds of a token of a prompt or a whole request, in full batches of all replicas: steps have
 * their share of each. */
static double token_s(const ct_scheduler *s)
{
    int64_t budget = budget_of(s), steps = 0;

    for (int k = 0; k < s->begun.n; k++) steps += (s->slot[s->begun.at[k]].state == STEPS);
    return ct_batch_cost_s(&s->cost, budget) / ((double)budget * s->at_once - (double)steps);
}

/* Until the prompts and whole requests have run that are there, as if they were shared out evenly.
 */
static double prompts_s(const ct_scheduler *s, double now)
{
    double running = fmax(0, s->sum_ends - s->n_running * now);
    int64_t tokens = 0;

    for (int k = 0; k < s->waiting.n; k++) tokens += rest_of(&s->slot[s->waiting.at[k]]);
    for (int k = 0; k < s->begun.n; k++) {
        const slot *r = &s->slot[s->begun.at[k]];

        if (r->state == PROMPT) tokens += rest_of(r);
    }
    return running / s->at_once + (double)tokens * token_s(s);
}

/* Lanes for sequences, of all replicas, as far as the cache has room for such ones; the time of a
 * batch of their steps. */
static double open_lanes(ct_scheduler *s, const ct_request *more, int n_more)
{
    int64_t n = 0, need = 0, lanes = s->o.most_sequences, each;

    for (int k = 0; k < s->begun.n; k++, n++) need += cache_of(s, &s->slot[s->begun.at[k]].request);
    for (int k = 0; k < s->waiting.n; k++) {
        if (!is_sequence(&s->slot[s->waiting.at[k]])) continue;
        need += cache_of(s, &s->slot[s->waiting.at[k]].request);
        n++;
    }
    for (int k = 0; k < n_more; k++) {
        if (more[k].most_new == 0) continue;
        need += cache_of(s, &more[k]);
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
        const slot *r = &s->slot[s->begun.at[k]];

        ct_growth_add(&s->growth, ct_growth_expect(&s->growth, r->request.most_new, r->made));
    }
    for (int k = 0; k < s->waiting.n; k++) {
        const slot *r = &s->slot[s->waiting.at[k]];

        if (is_sequence(r))
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
    return now + ct_outlook_most_s(o, &s->late[grows], made) <= request->deadline_s;
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
        slot *r = &s->slot[s->unused.at[s->unused.n - 1 - i]];

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
        slot *r = &s->slot[i];

        r->request = request[k];
        r->state = WAITING;
        r->running = r->cancelled = false;
        r->run = r->made = 0;
        r->replica = NO_REPLICA;
        r->arrival_s = now;
        id[k] = r->turn * s->n_slot + i;
        put(&s->waiting, i);
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

void ct_scheduler_cancel(ct_scheduler *s, ct_request_id id)
{
    int i = (int)(id % s->n_slot);
    slot *r = &s->slot[i];

    if ((r->turn != id / s->n_slot) || (r->state == FREE) || (r->state == ENDED)) return;
    if (r->running)
        r->cancelled = true;
    else
        end(s, i, CT_OUTCOME_CANCELLED);
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

/* A request is over, or too late: what that says of others' outlooks. */
static void learn(ct_scheduler *s, const slot *r, double now)
{
    double made = (double)((r->made > 1) ? r->made : 1);

    ct_lateness_note(&s->late[is_sequence(r)], &r->expected, made, now - r->arrival_s,
                     ct_batch_cost_s(&s->cost, budget_of(s)));
}

static void give_up(ct_scheduler *s, int i, double now)
{
    learn(s, &s->slot[i], now);
    end(s, i, CT_OUTCOME_EXPIRED);
}

/* Ends what cannot be in time even alone, from now on. */
static void expire(ct_scheduler *s, double now)
{
    for (int k = 0; k < s->waiting.n;) {
        int i = s->waiting.at[k];
        const slot *r = &s->slot[i];

        if (now + ct_batch_cost_s(&s->cost, r->request.tokens) > r->request.deadline_s)
            give_up(s, i, now);
        else
            k++;
    }
    for (int k = 0; k < s->begun.n;) {
        int i = s->begun.at[k];
        const slot *r = &s->slot[i];

        if (!r->running && (now >= r->request.deadline_s))
            give_up(s, i, now);
        else
            k++;
    }
}

static void add(ct_scheduler *s, ct_serve_batch *b, int i, int64_t n, bool step)
{
    slot *r = &s->slot[i];

    b->slice[b->n++] = (ct_slice){ .id = r->turn * s->n_slot + i,
                                   .what = r->request.what,
                                   .first = r->run,
                                   .n = n,
                                   .step = step,
                                   .last = step || (r->run + n == r->request.tokens) };
    r->running = true;
    if (is_sequence(r)) s->replica[r->replica].n_running++;
    b->n_step += step;
    b->tokens += n;
    if (!step) b->behind += n * r->run;
}

static int count_steps(const ct_scheduler *s, int replica)
{
    int n = 0;

    for (int k = 0; k < s->begun.n; k++) {
        const slot *r = &s->slot[s->begun.at[k]];

        n += (r->state == STEPS) && (r->replica == replica);
    }
    return n;
}

static void add_steps(ct_scheduler *s, ct_serve_batch *b)
{
    for (int k = 0; k < s->begun.n; k++) {
        const slot *r = &s->slot[s->begun.at[k]];

        if ((r->state == STEPS) && !r->running && (r->replica == b->replica))
            add(s, b, s->begun.at[k], 1, true);
    }
}

/* ---- which replica has which sequence */

static bool has_room(const ct_scheduler *s, int replica, int64_t need)
{
    const given *t = &s->replica[replica];

    return (t->n < s->o.most_sequences) && (need <= s->o.cache_tokens - t->cache);
}

/* *kept_p: what it has of the prompt already. */
static int least_loaded(const ct_scheduler *s, const slot *r, int64_t *kept_p)
{
    int64_t need = cache_of(s, &r->request), least = 0;
    int best = NO_REPLICA;

    for (int k = 0; k < s->at_once; k++) {
        int64_t kept, load;

        if (!has_room(s, k, need)) continue;
        kept = (s->o.peek != NULL) ? s->o.peek(s->o.ctx, r->request.what, k) : 0;
        load = s->replica[k].prompt + (int64_t)SEQUENCE_TOKENS * s->replica[k].n - kept;
        if ((best != NO_REPLICA) && (load >= least)) continue;
        least = load;
        *kept_p = kept;
        best = k;
    }
    return best;
}

/* Gives waiting sequences to replicas, as long as there is room for the first of them. */
static void give(ct_scheduler *s)
{
    for (int k = 0; (s->o.most_sequences > 0) && (k < s->waiting.n); k++) {
        slot *r = &s->slot[s->waiting.at[k]];

        if (!is_sequence(r) || (r->replica != NO_REPLICA)) continue;
        r->replica = least_loaded(s, r, &r->run);
        if (r->replica == NO_REPLICA) return;
        s->replica[r->replica].n++;
        s->replica[r->replica].cache += cache_of(s, &r->request);
        s->replica[r->replica].prompt += rest_of(r);
        s->n_given++;
    }
}

/* One that was given to a replica begins there. */
static bool begin(ct_scheduler *s, int i)
{
    slot *r = &s->slot[i];
    int64_t kept = 0;

    if (s->o.begin != NULL) kept = s->o.begin(s->o.ctx, r->request.what, r->replica);
    if (kept == CT_BEGIN_FAILED) end(s, i, CT_OUTCOME_FAILED);
    if (kept < 0) return false;
    take_out(&s->waiting, i);
    put_in_order(s, &s->begun, i);
    s->stats.prompt += r->request.tokens;
    s->stats.cached += kept;
    s->replica[r->replica].prompt -= kept - r->run;
    r->run = kept;
    r->state = PROMPT;
    return true;
}

/* Where a batch is filled: what it may still take, and by when its requests want it. */
typedef struct filling {
    int64_t room;
    double limit_s; /* INFINITY: no text waits for its next token */
    int n_whole;    /* requests that are not steps */
    double deadline_s;
    bool others;  /* more than one wants room */
    bool blocked; /* a sequence cannot begin yet: no later one begins before it */
} filling;

static bool in_time(const ct_scheduler *s, const ct_serve_batch *b, const filling *f,
                    double deadline, int64_t n, double now)
{
    return now + ct_batch_cost_s(&s->cost, b->tokens + n) <= fmin(f->deadline_s, deadline);
}

static double expect_s(const ct_scheduler *s, int64_t tokens, int64_t behind)
{
    double each = (tokens > 0) ? (double)behind / (double)tokens : 0;

    return ct_batch_cost_s(&s->cost, tokens) * ct_batch_cost_times(&s->cost, each);
}

/* How long a batch may take while so many texts wait for their next tokens. */
static double limit_of(const ct_scheduler *s, int n_step)
{
    const double least = 2, most = 8;
    double steps_s = ct_batch_cost_s(&s->cost, n_step);
    double knee_s = ct_batch_cost_s(&s->cost, ct_batch_cost_knee(&s->cost, CT_CHUNK_SHARE));

    if (n_step == 0) return INFINITY;
    if (s->o.budget > 0) return ct_batch_cost_s(&s->cost, budget_of(s));
    return fmax(least * steps_s, fmin(knee_s, most * steps_s));
}

/* How many of n tokens more, behind `run` of their sequence, keep to the limit; at least 0. */
static int64_t within_limit(const ct_scheduler *s, const ct_serve_batch *b, const filling *f,
                            int64_t run, int64_t n)
{
    int64_t least = 0;

    if (isinf(f->limit_s)) return n;
    while (least < n) {
        int64_t some = least + (n - least + 1) / 2;

        if (expect_s(s, b->tokens + some, b->behind + some * run) <= f->limit_s)
            least = some;
        else
            n = some - 1;
    }
    return least;
}

/* In a batch of that replica. */
static bool wants_room(const slot *r, int replica)
{
    return !r->running && ((r->state == WAITING) || (r->state == PROMPT)) &&
           (!is_sequence(r) || (r->replica == replica));
}

/* Of a prompt, how many tokens; the first of a batch has one at least. */
static int64_t chunk_of(const ct_scheduler *s, const ct_serve_batch *b, const filling *f,
                        const slot *r)
{
    int64_t most = f->others ? (f->room + 1) / 2 : f->room, n = rest_of(r);

    if (n > most) n = most;
    if (n < 1) return 0;
    n = within_limit(s, b, f, r->run, n);
    return ((n < 1) && (f->n_whole == 0)) ? 1 : n;
}

/* Adds one that waits, or a chunk of it; false: not now. */
static bool offer(ct_scheduler *s, ct_serve_batch *b, filling *f, int i, double now)
{
    slot *r = &s->slot[i];
    int64_t n = rest_of(r);
    bool oldest = (f->n_whole == 0);

    if (!wants_room(r, b->replica) || (f->n_whole >= s->o.most_count)) return false;
    if (!is_sequence(r)) {
        if (!oldest && ((n > f->room) || (within_limit(s, b, f, 0, n) < n) ||
                        !in_time(s, b, f, r->request.deadline_s, n, now)))
            return false;
        f->deadline_s = fmin(f->deadline_s, r->request.deadline_s);
    } else {
        n = chunk_of(s, b, f, r);
        if ((n < 1) || (!oldest && !in_time(s, b, f, INFINITY, n, now))) return false;
        if (r->state == WAITING) {
            if (f->blocked) return false;
            f->blocked = !begin(s, i);
            if (f->blocked) return false;
            n = chunk_of(s, b, f, r); /* the cache may have more of it by now, or less */
        }
    }
    add(s, b, i, n, false);
    f->room -= n;
    f->n_whole++;
    return true;
}

/* What is left of the room goes to chunks that could be longer. */
static void extend_chunks(const ct_scheduler *s, ct_serve_batch *b, filling *f, double now)
{
    for (int k = 0; (k < b->n) && (f->room > 0); k++) {
        ct_slice *c = &b->slice[k];
        const slot *r = &s->slot[c->id % s->n_slot];
        int64_t more = r->request.tokens - c->first - c->n;

        if (c->step || (more == 0)) continue;
        if (more > f->room) more = f->room;
        more = within_limit(s, b, f, c->first, more);
        if ((more == 0) || !in_time(s, b, f, INFINITY, more, now)) return;
        c->n += more;
        c->last = (c->first + c->n == r->request.tokens);
        b->tokens += more;
        b->behind += more * c->first;
        f->room -= more;
    }
}

/* What one of several free replicas takes of what waits: the others have the rest at once. A batch
 * of less than the budget takes less time, and what comes next finds a replica free the sooner. */
static int64_t share_of(const ct_scheduler *s, int64_t room)
{
    int n_free = s->at_once - s->n_running;
    int64_t tokens = 0, share;

    if ((n_free < 2) || (s->o.most_sequences > 0)) return room;
    for (int w = 0; w < s->waiting.n; w++) tokens += s->slot[s->waiting.at[w]].request.tokens;
    share = (tokens + n_free - 1) / n_free;
    return (share < room) ? share : room;
}

/* Chunks and whole requests in the order of their arrival. Sequences that have begun lie in one
 * list, all others in another; both are in that order. */
static void add_arrivals(ct_scheduler *s, ct_serve_batch *b, double now)
{
    filling f = { .room = share_of(s, room_of(s)) - b->tokens,
                  .limit_s = limit_of(s, count_steps(s, b->replica)),
                  .deadline_s = INFINITY };
    int k = 0, wanting = 0;

    for (int w = 0; w < s->waiting.n; w++)
        wanting += wants_room(&s->slot[s->waiting.at[w]], b->replica);
    for (int w = 0; w < s->begun.n; w++)
        wanting += wants_room(&s->slot[s->begun.at[w]], b->replica);
    f.others = (wanting > 1);
    for (int w = 0; w < s->waiting.n;) {
        int i = s->waiting.at[w], before = s->waiting.n;

        while ((k < s->begun.n) && (s->slot[s->begun.at[k]].arrival_s <= s->slot[i].arrival_s))
            (void)offer(s, b, &f, s->begun.at[k++], now);
        (void)offer(s, b, &f, i, now);
        w += (s->waiting.n == before); /* one that began, or failed to, has left the list */
    }
    while (k < s->begun.n) (void)offer(s, b, &f, s->begun.at[k++], now);
    extend_chunks(s, b, &f, now);
}

static void fill_packed(ct_scheduler *s, ct_serve_batch *b, double now)
{
    if (s->o.mixed) {
        add_steps(s, b);
        add_arrivals(s, b, now);
        return;
    }
    if (s->replica[b->replica].turn_of_steps) add_steps(s, b);
    if (b->n == 0) add_arrivals(s, b, now);
    if (b->n == 0) add_steps(s, b);
    s->replica[b->replica].turn_of_steps = (b->n_step == 0);
}

/* ---- padded batches */

static double padded_cost(const void *ctx, int64_t length, int64_t count)
{
    return ct_batch_cost_s(ctx, length * count);
}

/* Waiting requests by length, equal ones by arrival. */
static int sort_waiting(ct_scheduler *s)
{
    int n = 0;

    for (int w = 0; w < s->waiting.n; w++) {
        int i = s->waiting.at[w], k = n;

        for (; (k > 0) && (s->length[k - 1] > s->slot[i].request.tokens); k--) {
            s->order[k] = s->order[k - 1];
            s->length[k] = s->length[k - 1];
        }
        s->order[k] = i;
        s->length[k] = s->slot[i].request.tokens;
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
        double deadline = INFINITY;

        for (int k = *first_p; k < *end_p; k++)
            deadline = fmin(deadline, s->slot[s->order[k]].request.deadline_s);
        if (now + padded_cost(&s->cost, length, *end_p - *first_p) <= deadline) return;
        if (*end_p - 1 != oldest)
            --*end_p;
        else
            ++*first_p;
    }
}

static void fill_padded(ct_scheduler *s, ct_serve_batch *b, double now)
{
    int64_t most = (s->o.budget > 0) ? s->o.budget : s->o.most_tokens;
    ct_grouping g = { padded_cost, &s->cost, s->o.most_count, most };
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
        add(s, b, s->order[k], s->length[k], false);
        s->stats.padding += b->length - s->length[k];
    }
    b->tokens = b->length * b->n;
}

/* ---- when */

/* Whether to wait for a fuller batch: until when. */
static bool wait_for_more(const ct_scheduler *s, double now, double *wake_p)
{
    int64_t tokens = 0;
    double until = INFINITY, s_all;

    if ((s->o.max_wait_s == 0) || s->draining || (s->begun.n > 0) || (s->waiting.n == 0))
        return false;
    for (int w = 0; w < s->waiting.n; w++) tokens += s->slot[s->waiting.at[w]].request.tokens;
    if (tokens >= budget_of(s)) return false;
    s_all = ct_batch_cost_s(&s->cost, tokens);
    for (int w = 0; w < s->waiting.n; w++) {
        const slot *r = &s->slot[s->waiting.at[w]];

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

        if (s->slot[i].state != WAITING) continue;
        take_out(&s->waiting, i);
        s->slot[i].state = WHOLE;
    }
}

bool ct_scheduler_next(ct_scheduler *s, double now, ct_serve_batch *b, double *wake_p)
{
    b->n = b->n_step = 0;
    b->tokens = b->length = b->behind = 0;
    *wake_p = INFINITY;
    expire(s, now);
    give(s);
    if (wait_for_more(s, now, wake_p)) return false;
    if (s->o.policy == CT_POLICY_PACKED)
        fill_packed(s, b, now);
    else
        fill_padded(s, b, now);
    if (b->n == 0) return false;
    leave_queue(s, b);
    b->start_s = now;
    b->expected_s = expect_s(s, b->tokens, b->behind);
    s->sum_ends += now + b->expected_s;
    s->n_running++;
    s->stats.batches++;
    s->stats.tokens += b->tokens;
    return true;
}

/* What a batch did to one of its requests. */
static void advance(ct_scheduler *s, const ct_slice *c, int i, double now)
{
    slot *r = &s->slot[i];

    r->running = false;
    r->run += c->n;
    if (is_sequence(r)) {
        if (!c->step) s->replica[r->replica].prompt -= c->n;
        if (!c->last) return;
        r->state = STEPS;
        r->made++;
        s->stats.made++;
        if (!c->ended && (r->made < r->request.most_new)) return;
    }
    learn(s, r, now);
    end(s, i, CT_OUTCOME_DONE);
}

/* What it took goes into the table without what chunks take longer behind others. */
static void learn_costs(ct_scheduler *s, const ct_serve_batch *b, double took_s)
{
    double behind = (double)b->behind / (double)b->tokens;
    double table_s = ct_batch_cost_s(&s->cost, b->tokens);
    double alone_s = took_s / ct_batch_cost_times(&s->cost, behind);
    bool has_chunk = false;

    for (int k = 0; k < b->n; k++) {
        const slot *r = &s->slot[b->slice[k].id % s->n_slot];

        has_chunk |= is_sequence(r) && !b->slice[k].step;
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

        if (is_sequence(&s->slot[i])) s->replica[s->slot[i].replica].n_running--;
        if (failed || c->failed)
            end(s, i, CT_OUTCOME_FAILED);
        else if (s->slot[i].cancelled)
            end(s, i, CT_OUTCOME_CANCELLED);
        else
            advance(s, c, i, now);
    }
}

const ct_batch_cost *ct_scheduler_cost(const ct_scheduler *s)
{
    return &s->cost;
}

void ct_scheduler_read_replica(const ct_scheduler *s, int replica, ct_replica_load *load)
{
    *load = (ct_replica_load){ .sequences = 0 };
    for (int k = 0; k < s->begun.n; k++) {
        const slot *r = &s->slot[s->begun.at[k]];

        if (r->replica != replica) continue;
        load->sequences++;
        load->cache_taken += cache_of(s, &r->request);
    }
}

int ct_scheduler_due(const ct_scheduler *s, int replica)
{
    return s->replica[replica].n - s->replica[replica].n_running;
}

int64_t ct_scheduler_given(const ct_scheduler *s)
{
    return s->n_given;
}

void ct_scheduler_read_stats(const ct_scheduler *s, ct_scheduler_stats *stats)
{
    *stats = s->stats;
    stats->waiting = s->waiting.n;
    stats->sequences = s->begun.n;
    stats->budget = budget_of(s);
    stats->cache_taken = 0;
    for (int k = 0; k < s->begun.n; k++)
        stats->cache_taken += cache_of(s, &s->slot[s->begun.at[k]].request);
}
