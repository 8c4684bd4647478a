#include "planner/simulate.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

typedef enum event_kind { ITEM_ENDS, BUCKET_READY, ARRIVES } event_kind;

typedef struct event {
    double time;
    int64_t order; /* of two at one time the one that was put in first comes first */
    event_kind kind;
    int id; /* a worker, a sum, a flow's slot */
} event;

/* What is under way: a message of a micro-batch, or a bucket of a sum. */
typedef struct flow {
    const ct_pipeline_flow *what;
    double left, rate; /* bytes and bytes/s of a stream */
    int message, sum;  /* one of them; else -1 */
    int micro;
    ct_pipeline_direction direction;
} flow;

typedef struct worker {
    int next, last_backward; /* items of its list */
    bool busy;
    int sending;     /* flows of its last item that have not arrived */
    double last_s;   /* when its last backward began */
    int n_in[2];     /* messages that a forward, a backward waits for */
    int *arrived[2]; /* [n_micro] */
    int *message;    /* those that it takes part in */
    int n_message, n_sum;
    int *sum;
} worker;

typedef struct sum_state {
    int waiting; /* members whose last backward has not begun */
    int bucket;  /* the next one */
    bool under_way;
} sum_state;

typedef struct simulation {
    const ct_pipeline_step *step;
    double now;
    worker *worker;
    sum_state *sum;
    int *number; /* what the workers point into */
    event *heap;
    int n_event, most_event;
    int64_t n_order;
    flow *flow; /* slots; `active` are those that transfer */
    int *active, *free_slot;
    int n_active, n_free, most_flow;
    double *streams; /* [n_link] */
    double changed;  /* when the rates were made */
    ct_status status;
} simulation;

static bool before(const event *a, const event *b)
{
    return (a->time < b->time) || ((a->time == b->time) && (a->order < b->order));
}

static void put_event(simulation *s, double time, event_kind kind, int id)
{
    event e = { time, s->n_order++, kind, id };
    int i;

    if (s->n_event == s->most_event) {
        int most = 2 * s->most_event + 64;
        event *heap = realloc(s->heap, (size_t)most * sizeof(*heap));

        if (heap == NULL) {
            s->status = CT_FAIL(CT_ERR_NOMEM, "simulation: %d events", most);
            return;
        }
        s->heap = heap;
        s->most_event = most;
    }
    for (i = s->n_event++; (i > 0) && before(&e, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = e;
}

static event take_event(simulation *s)
{
    event top = s->heap[0], e = s->heap[--s->n_event];
    int i = 0;

    for (;;) {
        int child = 2 * i + 1;

        if (child >= s->n_event) break;
        if ((child + 1 < s->n_event) && before(&s->heap[child + 1], &s->heap[child])) ++child;
        if (!before(&s->heap[child], &e)) break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = e;
    return top;
}

/* ---- flows */

/* Lets the flows go on up to now, at the rates that they had. */
static void advance(simulation *s)
{
    for (int i = 0; i < s->n_active; ++i) {
        flow *f = &s->flow[s->active[i]];

        f->left = fmax(0, f->left - f->rate * (s->now - s->changed));
    }
    s->changed = s->now;
}

static void share_links(simulation *s)
{
    for (int i = 0; i < s->n_active; ++i) {
        flow *f = &s->flow[s->active[i]];

        f->rate = (f->what->bandwidth > 0) ? f->what->bandwidth : INFINITY;
        for (int k = 0; k < f->what->n_load; ++k) {
            int link = f->what->load[k].link;

            f->rate = fmin(f->rate, s->step->link[link] / s->streams[link]);
        }
    }
}

static void load_links(simulation *s, const ct_pipeline_flow *what, double sign)
{
    for (int k = 0; k < what->n_load; ++k)
        s->streams[what->load[k].link] += sign * what->load[k].streams;
}

static int find_slot(simulation *s)
{
    if (s->n_free == 0) {
        int most = 2 * s->most_flow + 64;
        flow *f = realloc(s->flow, (size_t)most * sizeof(*f));
        int *active = realloc(s->active, (size_t)most * sizeof(*active));
        int *slot = realloc(s->free_slot, (size_t)most * sizeof(*slot));

        if (f != NULL) s->flow = f;
        if (active != NULL) s->active = active;
        if (slot != NULL) s->free_slot = slot;
        if ((f == NULL) || (active == NULL) || (slot == NULL)) {
            s->status = CT_FAIL(CT_ERR_NOMEM, "simulation: %d flows", most);
            return -1;
        }
        for (int i = most - 1; i >= s->most_flow; --i) s->free_slot[s->n_free++] = i;
        s->most_flow = most;
    }
    return s->free_slot[--s->n_free];
}

static void start_flow(simulation *s, flow f, double bytes)
{
    int slot = find_slot(s);
    bool limited = (f.what->n_load > 0) || (f.what->bandwidth > 0);

    if (slot < 0) return;
    f.left = bytes;
    s->flow[slot] = f;
    if ((bytes <= 0) || !limited) {
        put_event(s, s->now + f.what->latency_s, ARRIVES, slot);
        return;
    }
    advance(s);
    s->active[s->n_active++] = slot;
    load_links(s, f.what, 1);
    share_links(s);
}

/* The active flow that ends first; -1: none. */
static int first_to_end(const simulation *s, double *time_p)
{
    int first = -1;

    *time_p = INFINITY;
    for (int i = 0; i < s->n_active; ++i) {
        const flow *f = &s->flow[s->active[i]];
        double end = s->changed + f->left / f->rate;

        if (end < *time_p) {
            *time_p = end;
            first = i;
        }
    }
    return first;
}

static void end_flow(simulation *s, int i)
{
    int slot = s->active[i];
    const ct_pipeline_flow *what = s->flow[slot].what;

    advance(s);
    for (--s->n_active; i < s->n_active; ++i) s->active[i] = s->active[i + 1];
    load_links(s, what, -1);
    share_links(s);
    put_event(s, s->now + what->latency_s, ARRIVES, slot);
}

/* ---- sums */

/* When all members have the gradients of the next bucket; all have begun their last backward. */
static void await_bucket(simulation *s, int id)
{
    const ct_pipeline_sum *sum = &s->step->sum[id];
    double ready = s->now;

    if (s->sum[id].bucket == sum->n_bucket) return;
    for (int i = 0; i < sum->n_member; ++i) {
        int w = sum->member[i];

        ready = fmax(ready, s->worker[w].last_s + sum->bucket[s->sum[id].bucket].ready *
                                                      s->step->worker[w].backward_s);
    }
    put_event(s, ready, BUCKET_READY, id);
}

static void start_bucket(simulation *s, int id)
{
    const ct_pipeline_sum *sum = &s->step->sum[id];
    double share = sum->bucket[s->sum[id].bucket++].share;
    flow f = { .what = &sum->flow, .message = -1, .sum = id };

    start_flow(s, f, share * sum->flow.bytes);
}

/* ---- items */

static void start_item(simulation *s, int id)
{
    worker *w = &s->worker[id];
    const ct_pipeline_worker *what = &s->step->worker[id];
    ct_pipeline_item item;

    if (w->busy || (w->next == what->list->n) || (s->step->sends_block && (w->sending > 0))) return;
    item = what->list->item[w->next];
    if (w->arrived[item.direction][item.micro] < w->n_in[item.direction]) return;
    w->busy = true;
    if (w->next == w->last_backward) {
        w->last_s = s->now;
        for (int i = 0; i < w->n_sum; ++i) {
            if (--s->sum[w->sum[i]].waiting == 0) await_bucket(s, w->sum[i]);
        }
    }
    put_event(
        s, s->now + ((item.direction == CT_PIPELINE_FORWARD) ? what->forward_s : what->backward_s),
        ITEM_ENDS, id);
}

static void end_item(simulation *s, int id)
{
    worker *w = &s->worker[id];
    ct_pipeline_item item = s->step->worker[id].list->item[w->next++];

    w->busy = false;
    for (int i = 0; i < w->n_message; ++i) {
        const ct_pipeline_message *m = &s->step->message[w->message[i]];
        bool forward = (item.direction == CT_PIPELINE_FORWARD);
        flow f = { .what = forward ? &m->forward : &m->backward,
                   .message = w->message[i],
                   .sum = -1,
                   .micro = item.micro,
                   .direction = item.direction };

        if ((forward ? m->from : m->to) != id) continue;
        ++w->sending;
        start_flow(s, f, f.what->bytes);
    }
    start_item(s, id);
}

static void arrive(simulation *s, int slot)
{
    flow f = s->flow[slot];

    s->free_slot[s->n_free++] = slot;
    if (f.message >= 0) {
        const ct_pipeline_message *m = &s->step->message[f.message];
        bool forward = (f.direction == CT_PIPELINE_FORWARD);
        int from = forward ? m->from : m->to, to = forward ? m->to : m->from;

        --s->worker[from].sending;
        ++s->worker[to].arrived[f.direction][f.micro];
        start_item(s, from);
        start_item(s, to);
    } else {
        await_bucket(s, f.sum);
    }
}

static void run(simulation *s, ct_pipeline_times *times, double *end_s)
{
    *times = (ct_pipeline_times){ 0 };
    for (int w = 0; w < s->step->n_worker; ++w) start_item(s, w);
    while ((s->status == CT_OK) && (s->n_event + s->n_active > 0)) {
        double time;
        int first = first_to_end(s, &time);

        if ((s->n_event > 0) && ((first < 0) || (s->heap[0].time <= time))) {
            event e = take_event(s);

            s->now = e.time;
            if (e.kind == ITEM_ENDS) {
                times->compute_s = s->now;
                if (end_s != NULL) end_s[e.id] = s->now;
                end_item(s, e.id);
            } else if (e.kind == ARRIVES) {
                arrive(s, e.id);
            } else {
                start_bucket(s, e.id);
            }
        } else if (first < 0) {
            s->status = CT_FAIL(CT_ERR_CONFIG, "pipeline: what is sent never arrives");
        } else {
            s->now = fmax(s->now, time);
            end_flow(s, first);
        }
    }
    times->step_s = s->now;
}

/* ---- set-up */

/* Numbers that the workers point into: messages, sums and what has arrived. */
static ct_status make_lists(simulation *s)
{
    const ct_pipeline_step *step = s->step;
    size_t n = 2 * (size_t)step->n_message + 2 * (size_t)step->n_worker * (size_t)step->n_micro;
    int *next;

    for (int i = 0; i < step->n_sum; ++i) n += (size_t)step->sum[i].n_member;
    s->number = next = calloc(n + 1, sizeof(*next));
    if (next == NULL) return CT_FAIL(CT_ERR_NOMEM, "simulation of %d workers", step->n_worker);
    for (int i = 0; i < step->n_message; ++i) {
        ++s->worker[step->message[i].from].n_message;
        ++s->worker[step->message[i].to].n_message;
        ++s->worker[step->message[i].to].n_in[CT_PIPELINE_FORWARD];
        ++s->worker[step->message[i].from].n_in[CT_PIPELINE_BACKWARD];
    }
    for (int i = 0; i < step->n_sum; ++i) {
        for (int k = 0; k < step->sum[i].n_member; ++k) ++s->worker[step->sum[i].member[k]].n_sum;
    }
    for (int i = 0; i < step->n_worker; ++i) {
        worker *w = &s->worker[i];

        w->message = next;
        w->sum = w->message + w->n_message;
        w->arrived[CT_PIPELINE_FORWARD] = w->sum + w->n_sum;
        w->arrived[CT_PIPELINE_BACKWARD] = w->arrived[CT_PIPELINE_FORWARD] + step->n_micro;
        next = w->arrived[CT_PIPELINE_BACKWARD] + step->n_micro;
        w->n_message = w->n_sum = 0;
    }
    return CT_OK;
}

static void fill_lists(simulation *s)
{
    const ct_pipeline_step *step = s->step;

    for (int i = 0; i < step->n_message; ++i) {
        for (int side = 0; side < 2; ++side) {
            worker *w = &s->worker[side ? step->message[i].to : step->message[i].from];

            w->message[w->n_message++] = i;
        }
    }
    for (int i = 0; i < step->n_sum; ++i) {
        s->sum[i].waiting = step->sum[i].n_member;
        for (int k = 0; k < step->sum[i].n_member; ++k) {
            worker *w = &s->worker[step->sum[i].member[k]];

            w->sum[w->n_sum++] = i;
        }
    }
    for (int i = 0; i < step->n_worker; ++i) {
        const ct_pipeline_list *list = step->worker[i].list;

        s->worker[i].last_backward = -1;
        for (int k = 0; k < list->n; ++k) {
            if (list->item[k].direction == CT_PIPELINE_BACKWARD) s->worker[i].last_backward = k;
        }
    }
}

ct_status ct_pipeline_simulate(const ct_pipeline_step *step, ct_pipeline_times *times_p,
                               double *end_s)
{
    simulation s = { .step = step, .status = CT_OK };
    ct_pipeline_times times = { 0 };

    s.worker = calloc((size_t)step->n_worker + 1, sizeof(*s.worker));
    s.sum = calloc((size_t)step->n_sum + 1, sizeof(*s.sum));
    s.streams = calloc((size_t)step->n_link + 1, sizeof(*s.streams));
    if ((s.worker == NULL) || (s.sum == NULL) || (s.streams == NULL))
        s.status = CT_FAIL(CT_ERR_NOMEM, "simulation of %d workers", step->n_worker);
    if (s.status == CT_OK) s.status = make_lists(&s);
    if (s.status == CT_OK) {
        fill_lists(&s);
        run(&s, &times, end_s);
    }
    for (int w = 0; (w < step->n_worker) && (s.status == CT_OK); ++w) {
        if (s.worker[w].next < step->worker[w].list->n)
            s.status = CT_FAIL(CT_ERR_CONFIG, "pipeline: worker %d waits at item %d for ever", w,
                               s.worker[w].next);
    }
    if (s.status == CT_OK) *times_p = times;
    free(s.worker);
    free(s.sum);
    free(s.streams);
    free(s.number);
    free(s.heap);
    free(s.flow);
    free(s.active);
    free(s.free_slot);
    return s.status;
}
