/* The interpreter of steps. */
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/sanitizer.h"
#include "framework/base/trace.h"
#include "framework/math/math.h"
#include "framework/net/exec.h"
#include "framework/net/net.h"
#include "framework/net/net_impl.h"
#include "framework/net/step.h"
#include "framework/net/team_clock.h"

/* ---- what layers ask of the pass */

/* exec.h has the reasons */
#define USUAL_POLL_S 0.5e-3
#define LEAST_POLL_S 0.2e-3
#define MOST_POLL_S  2e-3
#define POLLS_A_STEP 4

ct_status ct_exec_global_count(ct_exec *ex, double local, bool data_dependent, double *global_p)
{
    int64_t summed;

    if (ex->sum_ranks == NULL) {
        *global_p = local;
        return CT_OK;
    }
    if (data_dependent) {
        double sum = local;

        CT_TRY(ex->sum_ranks(ex->hook_ctx, &sum, 1));
        *global_p = sum;
        return CT_OK;
    }
    summed = (ex->batch_summed > 0) ? ex->batch_summed : ex->batch_global;
    *global_p = (ex->batch_local > 0) ? local * (double)summed / (double)ex->batch_local : 0.0;
    return CT_OK;
}

ct_status ct_exec_transfer_begin(ct_exec *ex, const ct_transfer *t, void **ticket_p)
{
    ct_transfer there = *t;

    if (ex->transfers == NULL)
        return CT_FAIL(CT_ERR_ARG, "the net is divided among ranks, and nobody carries what goes "
                                   "between them");
    if (ex->dev->kind != CT_DEVICE_CPU) {
        there.dev = ex->dev;
        there.stream = ex->stream;
    }
    CT_TRY(ex->transfers->begin(ex->transfers_ctx, &there, ticket_p));
    ex->n_transfer++;
    return CT_OK;
}

ct_status ct_exec_transfer_wait(ct_exec *ex, void *ticket)
{
    ex->n_transfer--;
    return ex->transfers->wait(ex->transfers_ctx, ticket);
}

double ct_poll_interval_s(double step_s)
{
    double s = step_s / POLLS_A_STEP;

    if (!(step_s > 0)) return USUAL_POLL_S;
    if (s < LEAST_POLL_S) return LEAST_POLL_S;
    return (s > MOST_POLL_S) ? MOST_POLL_S : s;
}

/* A sum of a layer is a few messages of hardly more than a latency: looked for as often as may be.
 */
bool ct_exec_poll_is_due(ct_exec *ex, double now)
{
    double every = ct_poll_interval_s((ex->step_s != NULL) ? *ex->step_s : 0);

    if (ex->n_sum + ex->n_transfer > 0) every = LEAST_POLL_S;
    if ((ex->polled_s > 0) && (now - ex->polled_s < every)) return false;
    ex->polled_s = now;
    ex->n_poll++;
    return true;
}

void ct_exec_use_sums(ct_exec *ex, bool replica)
{
    const ct_rank_sums *s = (ex->sums_of != NULL) ? &ex->sums_of[replica ? 1 : 0] : NULL;

    if (s == NULL) return;
    ex->sum_ranks = s->sum;
    ex->sum_there = NULL;
    ex->sum_begin = s->begin;
    ex->sum_wait = s->wait;
    ex->sum_poll = s->poll;
    ex->hook_ctx = s->ctx;
}

static ct_status poll_sums(const ct_exec *ex)
{
    if ((ex->n_sum == 0) || ((ex->sums_of == NULL) && (ex->sum_poll == NULL))) return CT_OK;
    if (ex->sums_of == NULL) return ex->sum_poll(ex->hook_ctx);
    for (int i = 0; i < 2; i++) {
        const ct_rank_sums *s = &ex->sums_of[i];

        if (s->poll != NULL) CT_TRY(s->poll(s->ctx));
    }
    return CT_OK;
}

/* Gradients, and the sums and transfers of layers that are under way. */
static ct_status let_move(const ct_exec *ex)
{
    if ((ex->n_transfer > 0) && (ex->transfers->poll != NULL))
        CT_TRY(ex->transfers->poll(ex->transfers_ctx));
    CT_TRY(poll_sums(ex));
    return (ex->poll != NULL) ? ex->poll(ex->poll_ctx) : CT_OK;
}

ct_status ct_exec_poll(ct_exec *ex)
{
    return ct_exec_poll_is_due(ex, ct_clock_s()) ? let_move(ex) : CT_OK;
}

/* ---- how long steps take on a device that computes beside the host: by marks in its stream,
 * without waiting in between */

/* Mark 0 is the origin of traces; step i has the two behind 2 i. */
static int slot_of(int at, bool ends)
{
    return 1 + 2 * at + (ends ? 1 : 0);
}

/* Whether this pass is looked at so: it is timed or traced, and the device has marks. */
static bool step_clock_is_on(const ct_pass *pass)
{
    const ct_net *net = pass->net;

    return (net->options.dev->marks != NULL) &&
           (net->timing || (ct_trace_start(pass->exec.trace) > 0));
}

/* Rows of the copies that have ended since the origin; wait: of all that were begun. */
static ct_status add_copies(const ct_pass *pass, bool wait)
{
    const ct_pass_impl *m = ct_pass_impl_of(pass);
    const ct_mark_ops *marks = pass->net->options.dev->marks;

    for (;;) {
        ct_trace_span span = { .kind = CT_TRACE_COPY, .iteration = m->clock_iteration };
        ct_copy_seen copy;
        bool got;

        CT_TRY(marks->watched(pass, 0, wait, &copy, &got));
        if (!got) return CT_OK;
        span.name = copy.down ? "to the host" : "to the device";
        span.number = copy.down;
        span.bytes = (int64_t)copy.bytes;
        span.start_s = m->clock_s + copy.start_s;
        span.end_s = m->clock_s + copy.end_s;
        ct_trace_add(pass->exec.trace, &span);
    }
}

/* Before a forward that is not traced: what the traced ones before it began is added. */
static ct_status step_clock_end(const ct_pass *pass)
{
    ct_pass_impl *m = ct_pass_impl_of(pass);

    if (m->clock_s <= 0) return CT_OK;
    CT_TRY(add_copies(pass, true));
    pass->net->options.dev->marks->watch(NULL);
    m->clock_s = 0;
    return CT_OK;
}

/* Before a forward: where traced spans count from. Waits. */
static ct_status step_clock_begin(const ct_pass *pass)
{
    const ct_device *dev = pass->net->options.dev;
    const ct_exec *ex = &pass->exec;
    ct_pass_impl *m = ct_pass_impl_of(pass);

    if (ct_trace_start(ex->trace) <= 0) return step_clock_end(pass);
    CT_TRY(dev->sync(ex->stream));
    CT_TRY(step_clock_end(pass)); /* what counts from the last origin */
    m->clock_s = ct_clock_s();
    m->clock_iteration = ct_trace_iteration(ex->trace);
    dev->marks->watch(pass);
    return dev->marks->mark(ex->stream, 0);
}

/* Around step `at` of forward followed by backward. */
static ct_status step_clock_mark(const ct_pass *pass, int at, bool ends)
{
    return pass->net->options.dev->marks->mark(pass->exec.stream, slot_of(at, ends));
}

/* Row of the device: from the origin on. */
static ct_status add_span(const ct_pass *pass, const ct_step *s, int at)
{
    const ct_mark_ops *marks = pass->net->options.dev->marks;
    const ct_layer *l = pass->net->layer[s->layer];
    ct_trace_span span = { .kind = CT_TRACE_DEVICE, .name = l->name, .detail = l->ops->type };
    double from, to;

    if (ct_step_is_pair(s) || (s->blob >= 0)) return CT_OK;
    CT_TRY(marks->between(0, slot_of(at, false), &from));
    CT_TRY(marks->between(0, slot_of(at, true), &to));
    span.start_s = ct_pass_impl_of(pass)->clock_s + from;
    span.end_s = ct_pass_impl_of(pass)->clock_s + to;
    span.iteration = ct_trace_iteration(pass->exec.trace);
    ct_trace_add(pass->exec.trace, &span);
    return CT_OK;
}

/* After a list has run, which starts at `first`: waits, fills in its steps' seconds, and adds the
 *  device's spans to a trace. */
static ct_status step_clock_take(const ct_pass *pass, ct_step *list, int n, int first)
{
    const ct_device *dev = pass->net->options.dev;
    bool traced = (ct_trace_start(pass->exec.trace) > 0) && (ct_pass_impl_of(pass)->clock_s > 0);

    CT_TRY(dev->sync(pass->exec.stream));
    for (int i = 0; i < n; i++) {
        if (ct_step_is_of_weights(&list[i]) || ct_step_is_of_chunk(&list[i])) continue;
        CT_TRY(dev->marks->between(slot_of(first + i, false), slot_of(first + i, true),
                                   &list[i].seconds));
        if (traced) CT_TRY(add_span(pass, &list[i], first + i));
    }
    return traced ? add_copies(pass, false) : CT_OK;
}

/* ---- the steps of a net */

/* What the poison is: all bits set is a NaN. Under AddressSanitizer nobody may touch it. */
#define POISON 0xff

static void fill_dead(void *at, size_t bytes)
{
    ct_unguard(at, bytes);
    memset(at, POISON, bytes);
    ct_guard(at, bytes);
}

static void poison(const ct_pass *pass, const ct_region *r)
{
    fill_dead(ct_pass_at(pass, r->offset), r->bytes);
}

/* Before a step: it may touch what begins with it. */
static void wake(const ct_pass *pass, int step)
{
    const ct_net_impl *m = ct_net_impl_of(pass->net);

    for (int i = 0; CT_SAN_ADDRESS && m->poison && (i < m->n_region); i++) {
        const ct_region *r = &m->region[i];

        if (r->first == step) ct_unguard(ct_pass_at(pass, r->offset), r->bytes);
    }
}

/* Everything that is dead before the first step of a pass. */
static void poison_all(const ct_pass *pass)
{
    const ct_net_impl *m = ct_net_impl_of(pass->net);

    for (int i = 0; i < m->n_region; i++) {
        if (!m->use[i].persists) poison(pass, &m->region[i]);
    }
}

/* Before a backward: what other passes may have left. */
static void poison_shared(const ct_net *net)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    if (m->shared_bytes > 0) fill_dead(m->shared, m->shared_bytes);
}

/* What lives to the last step stays for the caller to look at. */
static void poison_dead(const ct_pass *pass, int step)
{
    const ct_net *net = pass->net;
    const ct_net_impl *m = ct_net_impl_of(net);

    if (step == net->n_forward + net->n_backward - 1) return;
    for (int i = 0; i < m->n_region; i++) {
        if (!m->use[i].persists && (m->region[i].last == step)) poison(pass, &m->region[i]);
    }
}

/* A pass runs one of the lists. */
typedef struct run {
    ct_pass *pass;
    int first;                  /* the number of the list's first step in the plan's time */
    int skip;                   /* steps of the list that do not run before the first that does */
    const ct_step_after *after; /* of backward; NULL: nothing follows */
    bool marked;                /* the device is timed by marks */
} run;

/* Layers show, and their sums. Those of a device have ended, or have a row of its own. */
static ct_status trace_step(const ct_pass *pass, const ct_step *s, double start)
{
    static const ct_trace_kind kind[] = { [CT_STEP_FORWARD] = CT_TRACE_FORWARD,
                                          [CT_STEP_BACKWARD] = CT_TRACE_BACKWARD,
                                          [CT_STEP_AGAIN] = CT_TRACE_FORWARD,
                                          [CT_STEP_BEGIN] = CT_TRACE_SUM_BEGIN,
                                          [CT_STEP_WAIT] = CT_TRACE_SUM_WAIT };
    const ct_device *dev = pass->net->options.dev;
    const ct_exec *ex = &pass->exec;
    const ct_layer *l = pass->net->layer[s->layer];
    ct_trace_span span = { .name = l->name, .detail = l->ops->type };

    if ((s->blob >= 0) || (s->kind == CT_STEP_DROP)) return CT_OK; /* a diff, nothing */
    span.kind = kind[s->kind];
    if (dev->marks == NULL) CT_TRY(dev->sync(ex->stream));
    span.start_s = start;
    span.end_s = ct_clock_s();
    span.bytes = ct_step_is_pair(s) ? ct_pass_sum_bytes(pass, s) : 0;
    span.iteration = ct_trace_iteration(ex->trace);
    ct_trace_add(ex->trace, &span);
    return CT_OK;
}

static ct_status forward_layer(ct_pass *pass, const ct_step *s)
{
    int i = s->layer;
    const ct_layer *l = pass->net->layer[i];

    if (s->part == 0)
        CT_TRY(ct_pass_vary_before(pass, i));
    else
        ct_pass_set_exec(pass, i);
    if (s->n_part > 1) return ct_layer_part(l, pass->instance[i], &pass->exec, true, s->part);
    if (l->ops->forward == NULL) return CT_OK;
    if (ct_host_layer_is(pass->net, i))
        CT_TRY(ct_host_layer_forward(pass, i));
    else
        CT_TRY(ct_layer_forward(l, pass->instance[i], &pass->exec));
    return ct_pass_vary_after(pass, i);
}

static ct_status backward_layer(ct_pass *pass, const ct_step *s, int at)
{
    int i = s->layer;
    const ct_layer *l = pass->net->layer[i];
    ct_instance *in = pass->instance[i];

    ct_pass_set_exec(pass, i);
    CT_TRY(ct_pass_again_run(pass, at));
    if (s->n_part > 1) return ct_layer_part(l, in, &pass->exec, false, s->part);
    return ct_host_layer_is(pass->net, i) ? ct_host_layer_backward(pass, i)
                                          : ct_layer_backward(l, in, &pass->exec);
}

/* Of the scale of the loss the device knows; the host's losses have none. */
static ct_status loss_diff(const ct_pass *pass, const ct_step *s)
{
    const ct_device *dev = pass->net->options.dev;
    const ct_exec *ex = &pass->exec;
    const ct_tensor *diff = &pass->blob[s->blob]->diff;

    if (ex->numbers_there != NULL)
        return ct_step_there_of(dev)->loss_diff(ex->stream, ex->numbers_there,
                                                ct_tensor_count(diff), s->value, diff->data);
    return dev->math->set(ex->stream, ct_tensor_count(diff), s->value, diff->data);
}

/* The number of step i of those that run, in the plan's time. */
static int time_of(const run *p, int i)
{
    return p->first + p->skip + i;
}

static ct_status compute_step(const run *p, ct_step *s, int i)
{
    ct_pass *pass = p->pass;
    const ct_exec *ex = &pass->exec;
    const ct_device *dev = pass->net->options.dev;
    int64_t polls = ex->n_poll;
    double start = ct_trace_start(ex->trace);
    const ct_tensor *diff;
    ct_status status = CT_OK;

    switch (s->kind) {
    case CT_STEP_FORWARD:
        status = forward_layer(pass, s);
        break;
    case CT_STEP_BACKWARD:
        status = backward_layer(pass, s, time_of(p, i));
        break;
    case CT_STEP_AGAIN:
        status = ct_pass_again_step(pass, s, time_of(p, i));
        break;
    case CT_STEP_ZERO_DIFF:
        diff = &pass->blob[s->blob]->diff;
        status = dev->zero(ex->stream, diff->data, ct_tensor_bytes(diff));
        break;
    case CT_STEP_LOSS_DIFF:
        status = loss_diff(pass, s);
        break;
    case CT_STEP_BEGIN:
        status = ct_pass_sum_begin(pass, s);
        break;
    case CT_STEP_WAIT:
        status = ct_pass_sum_wait(pass, s);
        break;
    case CT_STEP_DROP:
        status = ct_pass_chunk(pass, s);
        break;
    }
    s->polls = (int)(ex->n_poll - polls);
    if ((start > 0) && (status == CT_OK)) status = trace_step(pass, s, start);
    return status;
}

/* With a name for profilers, and marks where the device is timed. */
static ct_status run_step(void *ctx, ct_step *s, int i)
{
    const run *p = ctx;
    const ct_net *net = p->pass->net;
    const ct_device *dev = net->options.dev;
    ct_status status;

    wake(p->pass, time_of(p, i));
    if (dev->marks == NULL) return compute_step(p, s, i);
    if (p->marked) CT_TRY(step_clock_mark(p->pass, time_of(p, i), false));
    dev->marks->range((s->blob < 0) ? net->layer[s->layer]->name : "gradients");
    status = compute_step(p, s, i);
    dev->marks->range(NULL);
    if (p->marked && (status == CT_OK)) status = step_clock_mark(p->pass, time_of(p, i), true);
    return status;
}

/* Looks at messages that take no time would bury what does. */
static void trace_move(const ct_exec *ex, double start)
{
    const double worth_s = 5e-6;

    if ((start > 0) && (ct_clock_s() - start > worth_s))
        ct_trace_end(ex->trace, start, CT_TRACE_MOVE, NULL, NULL);
}

static ct_status ready_param(const run *p, int param)
{
    const ct_exec *ex = &p->pass->exec;
    double start = ct_trace_start(ex->trace);
    ct_status status =
        (p->after->ready != NULL) ? p->after->ready(p->after->ready_ctx, param) : CT_OK;

    trace_move(ex, start);
    return status;
}

/* The device's clock does not see what the host does for a parameter. */
static ct_status weights_pair(const run *p, ct_step *s)
{
    const ct_exec *ex = &p->pass->exec;
    double start = (p->pass->net->timing && p->marked) ? ct_clock_s() : 0;

    if (s->kind == CT_STEP_BEGIN)
        CT_TRY(ready_param(p, s->param));
    else if (p->after != NULL)
        CT_TRY((p->after->wait != NULL) ? p->after->wait(p->after->ctx, s->param) : CT_OK);
    else if (ex->wait != NULL)
        CT_TRY(ex->wait(ex->wait_ctx, s->param));
    if (start > 0) s->seconds = ct_clock_s() - start;
    return CT_OK;
}

/* Likewise. */
static ct_status chunk_step(const run *p, ct_step *s)
{
    double start = (p->pass->net->timing && p->marked) ? ct_clock_s() : 0;

    CT_TRY(ct_pass_chunk(p->pass, s));
    if (start > 0) s->seconds = ct_clock_s() - start;
    return CT_OK;
}

static ct_status run_pair(void *ctx, ct_step *s, int i)
{
    wake(((const run *)ctx)->pass, time_of(ctx, i));
    if (ct_step_is_of_chunk(s)) return chunk_step(ctx, s);
    return ct_step_is_of_weights(s) ? weights_pair(ctx, s) : run_step(ctx, s, i);
}

static ct_status poll_between(void *ctx)
{
    const ct_exec *ex = &((const run *)ctx)->pass->exec;
    double start = ct_trace_start(ex->trace);
    ct_status status = let_move(ex);

    trace_move(ex, start);
    return status;
}

static ct_status now(void *ctx, double *seconds_p)
{
    const ct_pass *pass = ((const run *)ctx)->pass;

    CT_TRY(pass->net->options.dev->sync(pass->exec.stream));
    *seconds_p = ct_clock_s();
    return CT_OK;
}

static void ended(void *ctx, int i)
{
    const run *p = ctx;
    const ct_net *net = p->pass->net;

    if (net->team != NULL) ct_team_clock_end(net->team, time_of(p, i));
    if (ct_net_impl_of(net)->poison) poison_dead(p->pass, time_of(p, i));
    if (ct_net_impl_of(net)->poison_window) /* an error would come again with the next step */
        (void)ct_net_poison_gradients(net, p->pass->exec.stream, time_of(p, i));
}

/* The list that runs. */
static ct_step *list_of(const run *p)
{
    return (p->first == 0) ? p->pass->net->forward : p->pass->net->backward;
}

static ct_status graph_one(void *ctx, int i)
{
    return run_step(ctx, &list_of(ctx)[i], i);
}

static ct_status graph_call(void *ctx, int i)
{
    return run_pair(ctx, &list_of(ctx)[i], i);
}

static ct_status give_list(run *p, ct_step *list, int n)
{
    ct_pass *pass = p->pass;
    const ct_net *net = pass->net;
    static const ct_graph_hooks graph = { graph_one, graph_call, poll_between };
    const ct_step_after *after = p->after;
    ct_status status;
    ct_step_hooks h = { .run = run_step,
                        .begin = run_pair,
                        .wait = run_pair,
                        .poll = poll_between,
                        .now = (net->timing && !p->marked) ? now : NULL,
                        .ended = (ct_net_impl_of(net)->poison_window || (net->team != NULL))
                                     ? ended
                                     : NULL };
    ct_step_graphs *graphs = ct_pass_impl_of(pass)->graphs;

    /* each step is a graph's part, or can be looked at */
    if ((graphs != NULL) && !net->timing && (ct_trace_start(pass->exec.trace) <= 0) &&
        (pass->exec.stream != NULL))
        return ct_step_graphs_run(graphs, &pass->exec, p->first == 0, after, &graph, p);
    status = ct_steps_run(list, n, &h, p);
    if ((status == CT_OK) && (after != NULL) && (after->finish != NULL))
        status = after->finish(after->ctx);
    return status;
}

static ct_status run_list(run *p, ct_step *list, int n)
{
    const ct_net *net = p->pass->net;
    const ct_mark_ops *marks = net->options.dev->marks;
    ct_status status;

    p->marked = step_clock_is_on(p->pass);
    if (p->marked && (p->first == 0)) CT_TRY(step_clock_begin(p->pass));
    if (!p->marked && (p->first == 0)) CT_TRY(step_clock_end(p->pass));
    if (net->team != NULL) ct_team_clock_begin(net->team);
    if (marks != NULL) marks->range((p->first == 0) ? "forward" : "backward");
    status = give_list(p, list, n);
    if (marks != NULL) marks->range(NULL);
    if (p->marked && (status == CT_OK)) status = step_clock_take(p->pass, list, n, p->first);
    return status;
}

void ct_pass_set_versions(ct_pass *pass)
{
    const ct_net *net = pass->net;
    int64_t version = net->weight_version + ct_pass_impl_of(pass)->n_use;

    if (net->options.share != NULL) version += net->options.share->weight_version;
    for (int i = 0; i < net->n_layer; i++) pass->instance[i]->weight_version = version;
}

/* Version numbers of caches, and the place of buffers whose place depends on the direction. */
static void prepare(ct_pass *pass, bool forward)
{
    const ct_net_impl *m = ct_net_impl_of(pass->net);

    ct_pass_set_versions(pass);
    for (int i = 0; i < m->n_call_buffer; i++) {
        const ct_call_buffer *c = &m->call_buffer[i];

        pass->instance[c->layer]->buffer[c->slot].data =
            ct_pass_at(pass, forward ? c->forward : c->backward);
    }
    ct_pass_vary_bind(pass);
}

static ct_status check_runnable(const ct_net *net)
{
    if (net->options.no_data)
        return CT_FAIL(CT_ERR_ARG, "net \"%s\" was made without memory", net->name);
    return CT_OK;
}

/* Of a list the steps of layers `from` to `to`, which lie together; backward has the last first. */
static void steps_of(const ct_step *list, int n, int from, int to, int *skip_p, int *n_p)
{
    int first = 0, end = n;

    while ((first < n) && ((list[first].layer < from) || (list[first].layer > to))) first++;
    while ((end > first) && ((list[end - 1].layer < from) || (list[end - 1].layer > to))) end--;
    *skip_p = first;
    *n_p = end - first;
}

static ct_status forward_begin(ct_pass *pass, int from, int to)
{
    const ct_net *net = pass->net;
    ct_exec *ex = &pass->exec;
    run p = { .pass = pass };
    int n;

    CT_TRY(check_runnable(net));
    steps_of(net->forward, net->n_forward, from, to, &p.skip, &n);
    ex->batch_local = net->batch_local;
    ex->batch_global = net->batch_global;
    ex->batch_first = net->batch_first;
    ex->batch_summed = net->batch_summed;
    ex->batch_axis = net->batch_axis;
    prepare(pass, true);
    ct_pass_again_reset(pass);
    if (ct_net_impl_of(net)->poison) poison_all(pass);
    CT_TRY(ct_pass_report_begin(pass));
    CT_TRY(run_list(&p, net->forward + p.skip, n));
    ct_pass_set_exec(pass, -1);
    return ct_pass_report_send(pass);
}

ct_status ct_pass_forward_begin(ct_pass *pass)
{
    return forward_begin(pass, 0, pass->net->n_layer - 1);
}

ct_status ct_pass_forward(ct_pass *pass, double *loss_p)
{
    CT_TRY(ct_pass_forward_begin(pass));
    return ct_pass_forward_end(pass, loss_p);
}

static ct_status backward(ct_pass *pass, int from, int to, const ct_step_after *after)
{
    const ct_net *net = pass->net;
    run p = { .pass = pass, .first = net->n_forward, .after = after };
    int n;

    CT_TRY(check_runnable(net));
    steps_of(net->backward, net->n_backward, from, to, &p.skip, &n);
    if (ct_net_impl_of(net)->forward_only)
        return CT_FAIL(CT_ERR_ARG, "net \"%s\" was made for forward only", net->name);
    prepare(pass, false);
    if (ct_net_impl_of(net)->poison) poison_shared(net);
    CT_TRY(run_list(&p, net->backward + p.skip, n));
    ct_pass_set_exec(pass, -1);
    return CT_OK;
}

ct_status ct_pass_backward_and(ct_pass *pass, const ct_step_after *after)
{
    return backward(pass, 0, pass->net->n_layer - 1, after);
}

ct_status ct_pass_backward(ct_pass *pass, ct_ready_fn ready, void *ready_ctx)
{
    const ct_step_after after = { .ready = ready, .ready_ctx = ready_ctx };

    return ct_pass_backward_and(pass, &after);
}

static ct_status check_layers(const ct_net *net, int from, int to)
{
    if ((from < 0) || (to >= net->n_layer) || (from > to))
        return CT_FAIL(CT_ERR_ARG, "net \"%s\" has no layers %d to %d", net->name, from, to);
    if (net->options.unshared && net->options.no_fuse) return CT_OK;
    return CT_FAIL(CT_ERR_ARG, "values of net \"%s\" share memory, so it runs as a whole",
                   net->name);
}

ct_status ct_pass_forward_layers(ct_pass *pass, int from, int to, double *loss_p)
{
    CT_TRY(check_layers(pass->net, from, to));
    CT_TRY(forward_begin(pass, from, to));
    return ct_pass_forward_end(pass, loss_p);
}

ct_status ct_pass_backward_layers(ct_pass *pass, int from, int to)
{
    const ct_step_after nothing = { .ready = NULL };

    CT_TRY(check_layers(pass->net, from, to));
    return backward(pass, from, to, &nothing);
}

void ct_pass_forget_graphs(ct_pass *pass)
{
    ct_step_graphs_forget(ct_pass_impl_of(pass)->graphs);
}

void ct_net_weights_changed(ct_net *net)
{
    if (!net->settled) net->weight_version++;
}
