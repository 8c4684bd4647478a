/* The lists of steps, what in them waits for what, and the engine that runs them. */
#include "comm/collective/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "comm/core/reduce.h"
#include "framework/base/clock.h"

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
    USUAL_WINDOW = 4,      /* messages under way, each direction              */
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
    MPI_Request request;
    cursor at;
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
    char *landing[CT_SCHED_WINDOW]; /* where segments to be added arrive */
    queue sends, recvs;
    cursor next_send, next_recv; /* to post                                          */
    cursor received;             /* everything before it has arrived, and is added   */
    cursor sent;                 /* the sends of all steps before sent.step are over */
};

void ct_sched_run_destroy(ct_sched_run *run)
{
    if (run == NULL) return;
    ct_mem_release(run->landing[0]);
    free(run);
}

static int64_t segments(int peer, int64_t n)
{
    return (peer < 0) ? 0 : (n + ct_segment_elements(n) - 1) / ct_segment_elements(n);
}

ct_status ct_sched_run_create(ct_comm *c, ct_dtype dtype, int64_t most, ct_sched_run **run_p)
{
    return ct_sched_run_create_wide(c, dtype, most, USUAL_WINDOW, run_p);
}

ct_status ct_sched_run_create_wide(ct_comm *c, ct_dtype dtype, int64_t most, int window,
                                   ct_sched_run **run_p)
{
    ct_sched_run *run = calloc(1, sizeof(*run));
    size_t bytes = ct_dtype_size(dtype) *
                   (size_t)((ct_segment_largest(most) < most) ? ct_segment_largest(most) : most);

    if (run == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a collective");
    bytes = ct_align_up(bytes);
    run->comm = c;
    run->window = window;
    run->dtype = dtype;
    run->size = ct_dtype_size(dtype);
    run->landing[0] = ct_mem_acquire((size_t)window * bytes);
    if (run->landing[0] == NULL) {
        free(run);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu bytes of a collective",
                       (size_t)window * bytes);
    }
    for (int i = 1; i < window; ++i) run->landing[i] = run->landing[0] + (size_t)i * bytes;
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

/* The message before it to that rank, or one of an earlier step, is still on the link. */
static bool follows(const ct_sched_run *run, const cursor *next)
{
    for (int i = 0; ct_comm_sends_in_turn() && (i < run->sends.n); ++i) {
        const flight *f = &run->sends.slot[(run->sends.head + i) % run->window];

        if ((f->request != MPI_REQUEST_NULL) &&
            ((f->at.step < next->step) ||
             (run->s->step[f->at.step].send_to == run->s->step[next->step].send_to)))
            return true;
    }
    return false;
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

        if (follows(run, &run->next_send)) break;
        CT_TRY_MPI(MPI_Isend(
            at_element(run, step->send_at + run->next_send.seg * ct_segment_elements(step->send_n)),
            n, ct_comm_datatype(run->dtype), step->send_to, run->tag, run->comm->world,
            &f->request));
        f->at = run->next_send;
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

        CT_TRY_MPI(MPI_Irecv(to, n, ct_comm_datatype(run->dtype), step->recv_from, run->tag,
                             run->comm->world, &f->request));
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

        CT_TRY_MPI(ct_comm_test(&f->request, &done));
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

        CT_TRY_MPI(ct_comm_test(&f->request, &done));
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
        if ((both[i]->n > 0) && (n < max)) out[n++] = &both[i]->slot[both[i]->head].request;
    }
    return n;
}
