#include "serve/schedule/state.h"

#include <math.h>

/* Of this batch. A table that says too much of larger batches would never be found out, so with the
 * knee as budget one of 16 may have twice as much. Sequences would have to wait for it. */
static int64_t room_of(const ct_scheduler *s)
{
    const int64_t each = 16;
    int64_t b = ct_scheduler_budget(s);

    if ((s->o.budget > 0) || (s->o.most_sequences > 0) || (s->stats.batches % each != each - 1))
        return b;
    return (2 * b < s->o.most_tokens) ? 2 * b : s->o.most_tokens;
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

static int count_steps(const ct_scheduler *s, int replica)
{
    int n = 0;

    for (int k = 0; k < s->begun.n; k++) {
        const ct_slot *r = &s->slot[s->begun.at[k]];

        n += (r->state == CT_SLOT_STEPS) && (r->replica == replica);
    }
    return n;
}

/* How long a batch may take while so many texts wait for their next tokens. */
static double limit_of(const ct_scheduler *s, int n_step)
{
    const double least = 2, most = 8;
    double steps_s = ct_batch_cost_s(&s->cost, n_step);
    double knee_s = ct_batch_cost_s(&s->cost, ct_batch_cost_knee(&s->cost, CT_CHUNK_SHARE));

    if (n_step == 0) return INFINITY;
    if (s->o.budget > 0) return ct_batch_cost_s(&s->cost, ct_scheduler_budget(s));
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

        if (ct_scheduler_expect_s(s, b->tokens + some, b->behind + some * run) <= f->limit_s)
            least = some;
        else
            n = some - 1;
    }
    return least;
}

/* In a batch of that replica. */
static bool wants_room(const ct_slot *r, int replica)
{
    return !r->running && ((r->state == CT_SLOT_WAITING) || (r->state == CT_SLOT_PROMPT)) &&
           (!ct_slot_is_sequence(r) || (r->replica == replica));
}

/* Of a prompt, how many tokens; the first of a batch has one at least. */
static int64_t chunk_of(const ct_scheduler *s, const ct_serve_batch *b, const filling *f,
                        const ct_slot *r)
{
    int64_t most = f->others ? (f->room + 1) / 2 : f->room, n = ct_slot_rest(r);

    if (n > most) n = most;
    if (n < 1) return 0;
    n = within_limit(s, b, f, r->run, n);
    return ((n < 1) && (f->n_whole == 0)) ? 1 : n;
}

/* Adds one that waits, or a chunk of it; false: not now. */
static bool offer(ct_scheduler *s, ct_serve_batch *b, filling *f, int i, double now)
{
    ct_slot *r = &s->slot[i];
    int64_t n = ct_slot_rest(r);
    bool oldest = (f->n_whole == 0);

    if (!wants_room(r, b->replica) || (f->n_whole >= s->o.most_count)) return false;
    if (!ct_slot_is_sequence(r)) {
        if (!oldest && ((n > f->room) || (within_limit(s, b, f, 0, n) < n) ||
                        !in_time(s, b, f, r->request.deadline_s, n, now)))
            return false;
        f->deadline_s = fmin(f->deadline_s, r->request.deadline_s);
    } else {
        n = chunk_of(s, b, f, r);
        if ((n < 1) || (!oldest && !in_time(s, b, f, INFINITY, n, now))) return false;
        if (r->state == CT_SLOT_WAITING) {
            if (f->blocked) return false;
            f->blocked = !ct_scheduler_begin(s, i);
            if (f->blocked) return false;
            n = chunk_of(s, b, f, r); /* the cache may have more of it by now, or less */
        }
    }
    ct_serve_batch_add(s, b, i, n, false);
    f->room -= n;
    f->n_whole++;
    return true;
}

/* What is left of the room goes to chunks that could be longer. */
static void extend_chunks(const ct_scheduler *s, ct_serve_batch *b, filling *f, double now)
{
    for (int k = 0; (k < b->n) && (f->room > 0); k++) {
        ct_slice *c = &b->slice[k];
        const ct_slot *r = &s->slot[c->id % s->n_slot];
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

static void add_steps(ct_scheduler *s, ct_serve_batch *b)
{
    for (int k = 0; k < s->begun.n; k++) {
        const ct_slot *r = &s->slot[s->begun.at[k]];

        if ((r->state == CT_SLOT_STEPS) && !r->running && (r->replica == b->replica))
            ct_serve_batch_add(s, b, s->begun.at[k], 1, true);
    }
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

void ct_scheduler_fill_packed(ct_scheduler *s, ct_serve_batch *b, double now)
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
