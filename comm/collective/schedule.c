/* The lists of steps, what in them waits for what, the engine that runs them, and lists for plans
 * and trees. */
#include "comm/collective/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective/coll_types.h"
#include "comm/core/message.h"
#include "comm/core/reduce.h"
#include "framework/base/clock.h"
#include "comm/cost/hierarchical_plan.h"

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

/* ---- the engine */

enum {
    LEAST_ENOUGH = 2 << 20 /* bytes that keep a slow link busy between polls … */
};

static const double enough_s = 0.002; /* … and at least as many as the link moves in so long; */
enum {
    PROMPT = 4,      /* a part of both where somebody looks again at once, not at a poll */
    SMALL = 64 << 10 /* bytes of a message that is in nobody's way                       */
};
/* Messages that have not moved for so long, and twice the time that the link needs for them, are
 * stuck on a rank that computes, not on the link. */
static const double stuck_s = 0.02;

/* A place in the list: segment `seg` of step `step`. */
typedef struct cursor {
    int step;
    int64_t seg;
} cursor;

typedef struct flight {
    ct_message message;
    cursor at;
    double leaves_s; /* of a send, where these go in turn: when its last byte has left */
} flight;

/* Messages in the order in which they were posted, which is the order in which they are taken. */
typedef struct queue {
    flight slot[CT_SCHED_WINDOW];
    int head, n;
} queue;

struct ct_sched_run {
    ct_comm *comm;
    ct_dtype dtype;
    size_t size; /* of an element */
    const ct_schedule *s;
    char *buf;
    int tag, window;
    ct_sched_room own, *room;
    size_t each;                    /* bytes of a landing            */
    char *landing[CT_SCHED_WINDOW]; /* where segments to be added arrive, of this use */
    queue sends, recvs;
    cursor next_send, next_recv; /* to post                                          */
    cursor received;             /* everything before it has arrived, and is added   */
    cursor sent;                 /* the sends of all steps before sent.step are over */
    MPI_Request alarm;           /* where sends go in turn: when the next one may leave */
    void *alarm_block;
};

void ct_sched_run_destroy(ct_sched_run *run)
{
    if (run == NULL) return;
    run->room->n_run -= 1;
    if (run->room->n_run == 0) {
        ct_mem_release(run->room->block);
        *run->room = (ct_sched_room){ .block = NULL };
    }
    if (run->alarm != MPI_REQUEST_NULL) (void)MPI_Wait(&run->alarm, MPI_STATUS_IGNORE);
    ct_mem_release(run->alarm_block);
    free(run);
}

static int64_t segments(int peer, int64_t n)
{
    return (peer < 0) ? 0 : (n + ct_segment_elements(n) - 1) / ct_segment_elements(n);
}

ct_status ct_sched_run_create(ct_comm *c, ct_dtype dtype, int64_t most, ct_sched_run **run_p)
{
    return ct_sched_run_create_wide(c, dtype, most, CT_SCHED_USUAL_WINDOW, NULL, run_p);
}

/* Of one segment. */
static size_t landing_bytes(ct_dtype dtype, int64_t most)
{
    int64_t n = (ct_segment_largest(most) < most) ? ct_segment_largest(most) : most;

    return ct_align_up(ct_dtype_size(dtype) * (size_t)n);
}

int64_t ct_sched_run_bytes(ct_dtype dtype, int64_t most, int window)
{
    return (int64_t)landing_bytes(dtype, most) * window;
}

static ct_status enlarge(ct_sched_room *room, int64_t bytes)
{
    char *block = NULL;

    if ((room->block != NULL) && (room->bytes >= bytes)) return CT_OK;
    block = ct_mem_acquire((size_t)bytes);
    if (block == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %lld bytes of a collective", (long long)bytes);
    ct_mem_release(room->block);
    room->block = block;
    room->bytes = bytes;
    return CT_OK;
}

ct_status ct_sched_run_create_wide(ct_comm *c, ct_dtype dtype, int64_t most, int window,
                                   ct_sched_room *room, ct_sched_run **run_p)
{
    ct_sched_run *run = calloc(1, sizeof(*run));
    ct_status status;

    if (run == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a collective");
    run->comm = c;
    run->window = window;
    run->dtype = dtype;
    run->size = ct_dtype_size(dtype);
    run->each = landing_bytes(dtype, most);
    run->room = (room != NULL) ? room : &run->own;
    run->alarm = MPI_REQUEST_NULL;
    if (ct_comm_sends_in_turn()) run->alarm_block = ct_mem_acquire(2 * CT_COMM_ALARM_BYTES);
    status = (ct_comm_sends_in_turn() && (run->alarm_block == NULL))
                 ? CT_FAIL(CT_ERR_NOMEM, "no memory for a collective")
                 : enlarge(run->room, ct_sched_run_bytes(dtype, most, window));
    if (status != CT_OK) {
        ct_mem_release(run->alarm_block);
        free(run);
        return status;
    }
    run->room->n_run += 1;
    *run_p = run;
    return CT_OK;
}

static int64_t send_segments(const ct_sched_step *step)
{
    return segments(step->send_to, step->send_n);
}

static int64_t recv_segments(const ct_sched_step *step)
{
    return segments(step->recv_from, step->recv_n);
}

/* Moves a cursor over steps that have no segment left. */
static void settle(const ct_schedule *s, cursor *c, int64_t (*count)(const ct_sched_step *))
{
    while ((c->step < s->n_step) && (c->seg >= count(&s->step[c->step]))) {
        c->step += 1;
        c->seg = 0;
    }
}

static int segment_length(int64_t n, int64_t seg)
{
    int64_t left = n - seg * ct_segment_elements(n);

    return (int)((left < ct_segment_elements(n)) ? left : ct_segment_elements(n));
}

ct_status ct_sched_run_start(ct_sched_run *run, const ct_schedule *s, void *buf, int tag)
{
    run->s = s;
    run->buf = buf;
    run->tag = tag;
    for (int i = 0; i < run->window; ++i)
        run->landing[i] = run->room->block + (size_t)i * run->each;
    run->sends.n = run->recvs.n = 0;
    run->next_send = run->next_recv = run->received = run->sent = (cursor){ 0, 0 };
    settle(s, &run->next_send, send_segments);
    settle(s, &run->next_recv, recv_segments);
    run->received = run->next_recv;
    run->sent = run->next_send;
    return CT_OK;
}

static char *at_element(const ct_sched_run *run, int64_t element)
{
    return run->buf + (size_t)element * run->size;
}

static bool may_send(const ct_sched_run *run)
{
    int step = -1;
    int64_t seg = 0;

    if (run->received.step > run->s->step[run->next_send.step].after) return true;
    ct_schedule_send_waits(run->s, run->next_send.step, run->next_send.seg, &step, &seg);
    return (run->received.step > step) ||
           ((run->received.step == step) && (run->received.seg > seg));
}

static bool may_recv(const ct_sched_run *run)
{
    const ct_sched_step *step = &run->s->step[run->next_recv.step];

    return step->add || (run->sent.step >= step->sent_first);
}

/* What is less urgent adds nothing to a link that has enough to do for now: what MPI has taken goes
 * in that order, and whatever becomes urgent waits behind it, once on every rank that it passes.
 * Where nothing goes for a while the link is not what is waited for. */
static bool link_has_enough(const ct_comm *c)
{
    const ct_machine *m = &c->topo->machine;
    double bandwidth = (m->n_level > 0) ? m->level[m->n_level - 1].bandwidth : 0;
    double enough = enough_s * bandwidth, stuck = stuck_s;

    if (enough < LEAST_ENOUGH) enough = LEAST_ENOUGH;
    if (c->prompt) enough /= PROMPT;
    if (bandwidth > 0) stuck += 2 * (double)c->sending / bandwidth;
    return ((double)c->sending >= enough) && (ct_clock_s() - c->sent_at < stuck);
}

static void note_sent(ct_comm *c, int64_t bytes)
{
    if ((bytes < 0) || (c->sending == 0)) c->sent_at = ct_clock_s();
    c->sending += bytes;
}

static int64_t bytes_of_send(const ct_sched_run *run, const cursor *at)
{
    return (int64_t)run->size * segment_length(run->s->step[at->step].send_n, at->seg);
}

/* Until when the message before it to that rank, or one of an earlier step into its port, has the
 * link; infinite: until the first of two is there. Its latency is no business of the link's. */
static double follows_until(const ct_sched_run *run, const cursor *next)
{
    const ct_sched_step *step = &run->s->step[next->step];
    double until = 0;
    int before = 0;

    for (int i = 0; ct_comm_sends_in_turn() && (i < run->sends.n); ++i) {
        const flight *f = &run->sends.slot[(run->sends.head + i) % run->window];

        if ((f->message.request == MPI_REQUEST_NULL) ||
            (((f->at.step >= next->step) || (step->port != run->s->step[f->at.step].port)) &&
             (step->send_to != run->s->step[f->at.step].send_to)))
            continue;
        before += 1;
        until = fmax(until, f->leaves_s);
    }
    return (before < 2) ? until : INFINITY;
}

/* Does the next message wait for that? Then somebody looks again as soon as it need not. */
static ct_status hold_turn(ct_sched_run *run, bool *held_p)
{
    double until = follows_until(run, &run->next_send), now = (until > 0) ? ct_clock_s() : 0;

    *held_p = (now < until);
    if (!*held_p || isinf(until) || (run->alarm != MPI_REQUEST_NULL)) return CT_OK;
    return ct_comm_alarm(until - now, run->alarm_block, &run->alarm);
}

/* Where all buckets left at once each has the link for itself, in their order: else messages of one
 * share a link with those of another that some other rank waits for, and soon no rank has what its
 * partner needs (AlexNet's 16 buckets by halving on 64 simulated nodes: 1247 ms, one message 1074).
 * Small messages cost their start-up rather than the link. */
static bool is_held(const ct_sched_run *run)
{
    if (run->comm->in_order && (bytes_of_send(run, &run->next_send) > SMALL)) return true;
    return link_has_enough(run->comm);
}

static ct_status post_sends(ct_sched_run *run, bool brief, bool *moved, int64_t *bytes_sent)
{
    while ((run->next_send.step < run->s->n_step) && (run->sends.n < run->window) &&
           may_send(run) && !(brief && is_held(run))) {
        const ct_sched_step *step = &run->s->step[run->next_send.step];
        flight *f = &run->sends.slot[(run->sends.head + run->sends.n) % run->window];
        int n = segment_length(step->send_n, run->next_send.seg);
        bool held = false;

        CT_TRY(hold_turn(run, &held));
        if (held) break;
        CT_TRY(ct_message_send(
            run->comm, &f->message,
            at_element(run, step->send_at + run->next_send.seg * ct_segment_elements(step->send_n)),
            n, ct_comm_datatype(run->dtype), step->send_to, run->tag));
        f->at = run->next_send;
        if (ct_comm_sends_in_turn())
            f->leaves_s = ct_clock_s() +
                          ct_comm_leaves_s(run->comm, step->send_to, bytes_of_send(run, &f->at));
        note_sent(run->comm, bytes_of_send(run, &f->at));
        run->sends.n += 1;
        run->next_send.seg += 1;
        settle(run->s, &run->next_send, send_segments);
        *bytes_sent += (int64_t)run->size * n;
        *moved = true;
    }
    return CT_OK;
}

static ct_status post_recvs(ct_sched_run *run, bool *moved)
{
    while ((run->next_recv.step < run->s->n_step) && (run->recvs.n < run->window) &&
           may_recv(run)) {
        const ct_sched_step *step = &run->s->step[run->next_recv.step];
        int slot = (run->recvs.head + run->recvs.n) % run->window;
        flight *f = &run->recvs.slot[slot];
        int n = segment_length(step->recv_n, run->next_recv.seg);
        char *to = step->add
                       ? run->landing[slot]
                       : at_element(run, step->recv_at + run->next_recv.seg *
                                                             ct_segment_elements(step->recv_n));

        CT_TRY(ct_message_recv(run->comm, &f->message, to, n, ct_comm_datatype(run->dtype),
                               step->recv_from, run->tag));
        f->at = run->next_recv;
        run->recvs.n += 1;
        run->next_recv.seg += 1;
        settle(run->s, &run->next_recv, recv_segments);
        *moved = true;
    }
    return CT_OK;
}

static ct_status take_recvs(ct_sched_run *run, bool *moved)
{
    while (run->recvs.n > 0) {
        int slot = run->recvs.head, done = 0;
        flight *f = &run->recvs.slot[slot];
        const ct_sched_step *step = &run->s->step[f->at.step];

        CT_TRY(ct_message_test(run->comm, &f->message, &done));
        if (!done) return CT_OK;
        if (step->add)
            ct_reduce_add(
                run->dtype, segment_length(step->recv_n, f->at.seg), run->landing[slot],
                at_element(run, step->recv_at + f->at.seg * ct_segment_elements(step->recv_n)),
                run->comm->n_thread);
        run->received = (cursor){ f->at.step, f->at.seg + 1 };
        settle(run->s, &run->received, recv_segments);
        run->recvs.head = (slot + 1) % run->window;
        run->recvs.n -= 1;
        *moved = true;
    }
    return CT_OK;
}

static ct_status take_sends(ct_sched_run *run, bool *moved)
{
    while (run->sends.n > 0) {
        flight *f = &run->sends.slot[run->sends.head];
        int done = 0;

        CT_TRY(ct_message_test(run->comm, &f->message, &done));
        if (!done) return CT_OK;
        note_sent(run->comm, -bytes_of_send(run, &f->at));
        run->sent = (cursor){ f->at.step, f->at.seg + 1 };
        settle(run->s, &run->sent, send_segments);
        run->sends.head = (run->sends.head + 1) % run->window;
        run->sends.n -= 1;
        *moved = true;
    }
    return CT_OK;
}

static void note_place(const ct_sched_run *run, ct_coll_where *where)
{
    int step = (run->received.step < run->sent.step) ? run->received.step : run->sent.step;
    int rank = -1;

    if (run->recvs.n > 0)
        rank = run->s->step[run->recvs.slot[run->recvs.head].at.step].recv_from;
    else if (run->sends.n > 0)
        rank = run->s->step[run->sends.slot[run->sends.head].at.step].send_to;
    atomic_store_explicit(&where->step, step, memory_order_relaxed);
    atomic_store_explicit(&where->n_step, run->s->n_step, memory_order_relaxed);
    atomic_store_explicit(&where->rank, rank, memory_order_relaxed);
    atomic_store_explicit(&where->sending, run->sends.n, memory_order_relaxed);
}

ct_status ct_sched_run_progress(ct_sched_run *run, int64_t *bytes_sent, ct_coll_where *where)
{
    bool moved = true, any = false, brief = (where != NULL) && where->brief;

    while (moved) { /* what can leave leaves before we add: the link works meanwhile */
        moved = false;
        CT_TRY(take_sends(run, &moved));
        CT_TRY(post_recvs(run, &moved));
        CT_TRY(post_sends(run, brief, &moved, bytes_sent));
        CT_TRY(take_recvs(run, &moved));
        any = any || moved;
        if (brief) break;
    }
    if (where != NULL) note_place(run, where);
    if ((where != NULL) && any)
        (void)atomic_fetch_add_explicit(&where->n_moved, 1, memory_order_relaxed);
    if ((run->received.step < run->s->n_step) || (run->sent.step < run->s->n_step))
        return CT_INPROGRESS;
    return CT_OK;
}

int ct_sched_run_pending(ct_sched_run *run, MPI_Request **out, int max)
{
    queue *both[2] = { &run->sends, &run->recvs }; /* of two at once the first is taken first */
    int n = 0;

    for (int i = 0; i < 2; ++i) {
        if ((both[i]->n > 0) && (n < max)) out[n++] = &both[i]->slot[both[i]->head].message.request;
    }
    if ((run->alarm != MPI_REQUEST_NULL) && (n < max)) out[n++] = &run->alarm;
    return n;
}

/* ---- requests that are one schedule (coll_types.h) */

typedef struct p2p_state {
    ct_schedule schedule;
    ct_sched_run *run;
} p2p_state;

bool ct_coll_p2p_supports(const ct_comm *c, int64_t count, ct_dtype dtype)
{
    (void)c;
    (void)count;
    return ct_reduce_supports(dtype);
}

void ct_coll_p2p_release(ct_coll_req *r)
{
    p2p_state *st = r->state;

    if (st == NULL) return;
    ct_sched_run_destroy(st->run);
    ct_schedule_destroy(&st->schedule);
    free(st);
    r->state = NULL;
}

void ct_coll_count_room(ct_coll_size *size, int64_t bytes)
{
    if (bytes > size->room) size->room = bytes;
}

static int window_of(const ct_schedule *s)
{
    return (s->window > CT_SCHED_USUAL_WINDOW) ? s->window : CT_SCHED_USUAL_WINDOW;
}

static ct_status count_p2p(ct_coll_req *r, ct_p2p_build_fn build)
{
    ct_schedule s = { .step = NULL };
    ct_status status = build(r, &s);

    if (status == CT_OK)
        ct_coll_count_room(r->size,
                           ct_sched_run_bytes(r->dtype, ct_schedule_most(&s), window_of(&s)));
    ct_schedule_destroy(&s);
    return status;
}

ct_status ct_coll_p2p_prepare(ct_coll_req *r, ct_p2p_build_fn build)
{
    p2p_state *st = NULL;
    ct_status status = CT_OK;

    if (r->size != NULL) return count_p2p(r, build);
    st = calloc(1, sizeof(*st));
    if (st == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a collective");
    r->state = st;
    CT_TRY_GOTO(status, err_release, build(r, &st->schedule));
    CT_TRY_GOTO(status, err_release,
                ct_sched_run_create_wide(r->comm, r->dtype, ct_schedule_most(&st->schedule),
                                         window_of(&st->schedule), r->room, &st->run));
    return CT_OK;

err_release:
    ct_coll_p2p_release(r);
    return status;
}

ct_status ct_coll_p2p_start(ct_coll_req *r)
{
    p2p_state *st = r->state;

    return ct_sched_run_start(st->run, &st->schedule, r->buf, r->tag);
}

ct_status ct_coll_p2p_progress(ct_coll_req *r)
{
    p2p_state *st = r->state;

    return ct_sched_run_progress(st->run, &r->bytes_sent, &r->where);
}

int ct_coll_p2p_pending(ct_coll_req *r, MPI_Request **out, int max)
{
    p2p_state *st = r->state;

    return ct_sched_run_pending(st->run, out, max);
}

/* ---- plans: from what a group does to what one of its members sends and receives, step by step.
 *
 * All of a phase's groups go through their rounds side by side: the steps are ordered by phase,
 * round and group, on all ranks alike, so that no circle of ranks waits for each other. */

enum { SPLIT = 128 << 10 /* elements of an exchange that halving cuts in two */ };

typedef struct range {
    int64_t a, b; /* units */
} range;

/* One group seen by one of its members. */
typedef struct view {
    const ct_engine_plan_use *u;
    const ct_hierarchical_plan_group *g;
    const int *member; /* positions */
    int i;             /* this one  */
} view;

static int64_t element(const ct_engine_plan_use *u, int64_t unit)
{
    return ct_hierarchical_plan_at(unit, u->n, u->plan->n);
}

/* to, from: members of the group, or -1. */
static ct_status add(const view *v, int to, range send, int from, range recv, bool sum,
                     ct_schedule *s)
{
    const ct_engine_plan_use *u = v->u;
    int64_t send_at = element(u, send.a), recv_at = element(u, recv.a);

    return ct_schedule_add(
        s, &(ct_sched_step){ .send_to = (to < 0) ? -1 : u->rank[v->member[to]],
                             .recv_from = (from < 0) ? -1 : u->rank[v->member[from]],
                             .send_at = u->first + send_at,
                             .send_n = element(u, send.b) - send_at,
                             .recv_at = u->first + recv_at,
                             .recv_n = element(u, recv.b) - recv_at,
                             .add = sum });
}

static range part(const view *v, int i)
{
    range r;

    ct_hierarchical_plan_part(v->g, i, &r.a, &r.b);
    return r;
}

/* ---- ring: what goes out in a round came in one round before */

static ct_status ring_round(const view *v, int round, bool scatter, ct_schedule *s)
{
    int m = v->g->n, shift = scatter ? round + 1 : round;
    int out = (v->i - shift + 2 * m) % m, in = (v->i - shift - 1 + 2 * m) % m;

    return add(v, (v->i + 1) % m, part(v, out), (v->i + m - 1) % m, part(v, in), scatter, s);
}

/* ---- direct: all at once */

static ct_status direct_round(const view *v, bool scatter, ct_schedule *s)
{
    int m = v->g->n;
    range mine = part(v, v->i);

    for (int d = 1; d < m; ++d) {
        int to = (v->i + d) % m, from = (v->i + m - d) % m;

        CT_TRY(scatter ? add(v, to, part(v, to), from, mine, true, s)
                       : add(v, to, mine, from, part(v, from), false, s));
    }
    return CT_OK;
}

/* ---- halving */

/* What member i does in a round; false where it is alone before. *next_p: its round after, if any
 * (then true). */
static bool halving_round(const ct_hierarchical_plan_group *g, int i, int round,
                          ct_halving_round *r, ct_halving_round *next_p, bool *has_next_p)
{
    ct_halving h;

    ct_halving_begin(&h, g->n, i, g->a, g->b);
    for (int k = 0; k <= round; ++k) {
        if (!ct_halving_next(&h, r)) return false;
    }
    *has_next_p = ct_halving_next(&h, next_p);
    return true;
}

/* A range that member i holds after `round`, as two: what it sends in its next round, which comes
 * first on the way up and last on the way down, so that the next round can begin with what has
 * arrived; and what it keeps. One, where that is small. */
static int pieces(const view *v, int i, int round, bool scatter, range whole, range *piece)
{
    ct_halving_round r, next;
    bool has_next = false;
    int64_t n = element(v->u, whole.b) - element(v->u, whole.a);

    piece[0] = whole;
    if ((n < SPLIT) || !halving_round(v->g, i, round, &r, &next, &has_next) || !has_next) return 1;
    piece[scatter ? 0 : 1] = (range){ next.send_a, next.send_b };
    piece[scatter ? 1 : 0] = (range){ next.keep_a, next.keep_b };
    return 2;
}

/* Sends out[0 … n_out) to `to` while receiving in[0 … n_in) from `from`. */
static ct_status exchange(const view *v, int to, const range *out, int n_out, int from,
                          const range *in, int n_in, bool sum, ct_schedule *s)
{
    for (int k = 0; (k < n_out) || (k < n_in); ++k)
        CT_TRY(add(v, (k < n_out) ? to : -1, (k < n_out) ? out[k] : (range){ 0, 0 },
                   (k < n_in) ? from : -1, (k < n_in) ? in[k] : (range){ 0, 0 }, sum, s));
    return CT_OK;
}

static ct_status halving_scatter(const view *v, int round, ct_schedule *s)
{
    ct_halving_round r, next;
    range out[2], in[2];
    bool has_next = false;
    int n_out = 0, n_in = 0;

    if (!halving_round(v->g, v->i, round, &r, &next, &has_next)) return CT_OK;
    n_out = pieces(v, r.to, round, true, (range){ r.send_a, r.send_b }, out);
    n_in = pieces(v, v->i, round, true, (range){ r.keep_a, r.keep_b }, in);
    CT_TRY(exchange(v, r.to, out, n_out, (r.n_from > 0) ? r.from[0] : -1, in,
                    (r.n_from > 0) ? n_in : 0, true, s));
    return (r.n_from > 1) ? exchange(v, -1, out, 0, r.from[1], in, n_in, true, s) : CT_OK;
}

/* The same round backwards: what was kept goes out, what was sent comes back. */
static ct_status halving_gather(const view *v, int back, ct_schedule *s)
{
    int round = ct_halving_rounds(v->g->n) - 1 - back;
    ct_halving_round r, next;
    range out[2], in[2];
    bool has_next = false;
    int n_out = 0, n_in = 0;

    if (!halving_round(v->g, v->i, round, &r, &next, &has_next)) return CT_OK;
    n_out = pieces(v, v->i, round, false, (range){ r.keep_a, r.keep_b }, out);
    n_in = pieces(v, r.to, round, false, (range){ r.send_a, r.send_b }, in);
    CT_TRY(exchange(v, (r.n_from > 0) ? r.from[0] : -1, out, (r.n_from > 0) ? n_out : 0, r.to, in,
                    n_in, false, s));
    return (r.n_from > 1) ? exchange(v, r.from[1], out, n_out, -1, in, 0, false, s) : CT_OK;
}

/* ---- phases */

static int rounds(ct_group_algorithm way, int m)
{
    if (way == CT_GROUP_ALGORITHM_DIRECT) return 1;
    return (way == CT_GROUP_ALGORITHM_RING) ? m - 1 : ct_halving_rounds(m);
}

static ct_status group_round(const view *v, ct_group_algorithm way, int round, bool scatter,
                             ct_schedule *s)
{
    if (round >= rounds(way, v->g->n)) return CT_OK;
    if (way == CT_GROUP_ALGORITHM_RING) return ring_round(v, round, scatter, s);
    if (way == CT_GROUP_ALGORITHM_DIRECT) return direct_round(v, scatter, s);
    return scatter ? halving_scatter(v, round, s) : halving_gather(v, round, s);
}

static ct_status phase_steps(const ct_engine_plan_use *u, int k, bool scatter, ct_schedule *s)
{
    const ct_hierarchical_plan_phase *p = &u->plan->phase[k];

    for (int round = 0; round < rounds(u->way[k], p->most); ++round) {
        for (int at = p->of_start[u->me]; at < p->of_start[u->me + 1]; ++at) {
            const ct_hierarchical_plan_group *g = &p->group[p->of[at]];
            view v = { .u = u, .g = g, .member = p->member + g->first };

            while (v.member[v.i] != u->me) v.i += 1;
            CT_TRY(group_round(&v, u->way[k], round, scatter, s));
        }
    }
    return CT_OK;
}

ct_status ct_hierarchical_plan_scatter(const ct_engine_plan_use *u, ct_schedule *s)
{
    for (int k = 0; k < u->plan->n_phase; ++k) CT_TRY(phase_steps(u, k, true, s));
    return CT_OK;
}

ct_status ct_hierarchical_plan_gather(const ct_engine_plan_use *u, ct_schedule *s)
{
    for (int k = u->plan->n_phase; k > 0; --k) CT_TRY(phase_steps(u, k - 1, false, s));
    return CT_OK;
}

ct_status ct_schedule_deal(const ct_sched_piece *from, const ct_sched_piece *to, const int *rank,
                           int me, int64_t count, ct_schedule *s)
{
    int64_t at = 0;

    while (at < count) {
        int64_t end = (from->end < to->end) ? from->end : to->end;
        ct_sched_step step = { .send_to = -1, .recv_from = -1 };

        if ((from->owner == me) && (to->owner != me)) {
            step.send_to = rank[to->owner];
            step.send_at = at;
            step.send_n = end - at;
        } else if ((to->owner == me) && (from->owner != me)) {
            step.recv_from = rank[from->owner];
            step.recv_at = at;
            step.recv_n = end - at;
        }
        CT_TRY(ct_schedule_add(s, &step));
        at = end;
        while ((at < count) && (from->end <= at)) from += 1;
        while ((at < count) && (to->end <= at)) to += 1;
    }
    return CT_OK;
}

/* Stretch t has chunk t - APART * p in phase p. A chunk's phases are two stretches apart: what it
 * sends in one has come in before the stretch between, whose messages keep the links busy. */
ct_status ct_hierarchical_plan_pipelined(const ct_engine_plan_use *u, int n_chunk, bool up,
                                         ct_schedule *s)
{
    enum { APART = 2 };
    int n_phase = u->plan->n_phase, both = up ? n_phase : 2 * n_phase;

    for (int t = 0; t < n_chunk + APART * (both - 1); ++t) {
        for (int p = both - 1; p >= 0; --p) { /* who is furthest goes first */
            int chunk = t - APART * p;
            ct_engine_plan_use part = *u;

            if ((chunk < 0) || (chunk >= n_chunk)) continue;
            part.first = u->first + ct_part(u->n, n_chunk, chunk);
            part.n = u->first + ct_part(u->n, n_chunk, chunk + 1) - part.first;
            CT_TRY(phase_steps(&part, (p < n_phase) ? p : 2 * n_phase - 1 - p, p < n_phase, s));
        }
    }
    return CT_OK;
}

/* ---- trees */

static ct_status tree_step(const int *rank, int n, int root, int me, int d, bool up, int64_t count,
                           ct_schedule *s)
{
    bool child = (me % (2 * d) == d);
    int other = child ? me - d : me + d;
    ct_sched_step step = { .send_to = -1, .recv_from = -1, .add = up };

    if ((me % d != 0) || (other >= n)) return CT_OK;
    if (child == up) {
        step.send_to = rank[(other + root) % n];
        step.send_n = count;
    } else {
        step.recv_from = rank[(other + root) % n];
        step.recv_n = count;
    }
    return ct_schedule_add(s, &step);
}

ct_status ct_tree_reduce(const int *rank, int n, int root, int me, int64_t count, ct_schedule *s)
{
    for (int d = 1; d < n; d *= 2) CT_TRY(tree_step(rank, n, root, me, d, true, count, s));
    return CT_OK;
}

ct_status ct_tree_broadcast(const int *rank, int n, int root, int me, int64_t count, ct_schedule *s)
{
    int d = 1;

    while (d < n) d *= 2;
    while ((d /= 2) >= 1) CT_TRY(tree_step(rank, n, root, me, d, false, count, s));
    return CT_OK;
}
