/* The interpreter of steps. */
#include "framework/base/clock.h"
#include "framework/base/trace.h"
#include "framework/math/math.h"
#include "framework/net/net_impl.h"
#include "framework/net/step_clock.h"
#include "framework/net/team_clock.h"
#include "framework/net/step_graph.h"
#include "framework/net/step_run.h"

#include <string.h>

/* What the poison is: all bits set is a NaN. */
#define POISON 0xff

static void poison(const ct_net *net, const ct_region *r)
{
    char *block = ct_net_impl_of(net)->block;

    memset(block + r->offset, POISON, r->bytes);
}

/* Everything that is dead before the first step of a pass. */
static void poison_all(const ct_net *net)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    for (int i = 0; i < m->n_region; i++) {
        if (!m->use[i].persists) poison(net, &m->region[i]);
    }
}

/* What lives to the last step stays for the caller to look at. */
static void poison_dead(const ct_net *net, int step)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    if (step == net->n_forward + net->n_backward - 1) return;
    for (int i = 0; i < m->n_region; i++) {
        if (!m->use[i].persists && (m->region[i].last == step)) poison(net, &m->region[i]);
    }
}

/* One pass over one of the lists. */
typedef struct pass {
    ct_net *net;
    ct_exec *ex;
    int first;                  /* the number of the list's first step in the plan's time */
    const ct_step_after *after; /* of backward; NULL: nothing follows */
    bool marked;                /* the device is timed by marks */
} pass;

static bool is_layers(const ct_step *s)
{
    return (s->kind == CT_STEP_FORWARD) || (s->kind == CT_STEP_BACKWARD);
}

/* Only whole layers show. Those of a device have ended, or have a row of its own. */
static ct_status trace_step(const ct_net *net, const ct_exec *ex, const ct_step *s, double start)
{
    const ct_layer *l = net->layer[s->layer];

    if (!is_layers(s)) return CT_OK;
    if (net->options.dev->marks == NULL) CT_TRY(net->options.dev->sync(ex->stream));
    ct_trace_end(ex->trace, start,
                 (s->kind == CT_STEP_FORWARD) ? CT_TRACE_FORWARD : CT_TRACE_BACKWARD, l->name,
                 l->ops->type);
    return CT_OK;
}

static ct_status forward_layer(ct_net *net, int i, ct_exec *ex)
{
    const ct_layer *l = net->layer[i];

    CT_TRY(ct_net_vary_before(net, i, ex));
    if (l->ops->forward == NULL) return CT_OK;
    if (ct_host_layer_is(net, i))
        CT_TRY(ct_host_layer_forward(net, i, ex));
    else
        CT_TRY(ct_layer_forward(l, net->instance[i], ex));
    return ct_net_vary_after(net, i, ex);
}

/* Of the scale of the loss the device knows; the host's losses have none. */
static ct_status loss_diff(const ct_net *net, const ct_exec *ex, const ct_step *s)
{
    const ct_tensor *diff = &net->blob[s->blob]->diff;
    const ct_step_there *there = ct_exec_step_there(ex);

    if (there != NULL)
        return ct_step_there_of(net->options.dev)
            ->loss_diff(ex->stream, there, ct_tensor_count(diff), s->value, diff->data);
    return net->options.dev->math->set(ex->stream, ct_tensor_count(diff), s->value, diff->data);
}

static ct_status compute_step(const pass *p, ct_step *s, int i)
{
    ct_net *net = p->net;
    ct_exec *ex = p->ex;
    const ct_layer *l = net->layer[s->layer];
    ct_instance *in = net->instance[s->layer];
    const ct_device *dev = net->options.dev;
    int64_t polls = ex->n_poll;
    double start = ct_trace_start(ex->trace);
    const ct_tensor *diff;
    ct_status status = CT_OK;

    switch (s->kind) {
    case CT_STEP_FORWARD:
        status = forward_layer(net, s->layer, ex);
        break;
    case CT_STEP_BACKWARD:
        ct_net_vary_exec(net, s->layer, ex);
        CT_TRY(ct_net_again_run(net, ex, p->first + i));
        status = ct_host_layer_is(net, s->layer) ? ct_host_layer_backward(net, s->layer, ex)
                                                 : ct_layer_backward(l, in, ex);
        break;
    case CT_STEP_ZERO_DIFF:
        diff = &net->blob[s->blob]->diff;
        status = dev->zero(ex->stream, diff->data, ct_tensor_bytes(diff));
        break;
    case CT_STEP_LOSS_DIFF:
        status = loss_diff(net, ex, s);
        break;
    case CT_STEP_READY:
    case CT_STEP_WAIT:
        break; /* the interpreter's */
    }
    s->polls = (int)(ex->n_poll - polls);
    if ((start > 0) && (status == CT_OK)) status = trace_step(net, ex, s, start);
    return status;
}

/* With a name for profilers, and marks where the device is timed. */
static ct_status run_step(void *ctx, ct_step *s, int i)
{
    const pass *p = ctx;
    const ct_device *dev = p->net->options.dev;
    ct_status status;

    if (dev->marks == NULL) return compute_step(p, s, i);
    if (p->marked) CT_TRY(ct_step_clock_mark(p->net, p->ex, p->first + i, false));
    dev->marks->range(is_layers(s) ? p->net->layer[s->layer]->name : "gradients");
    status = compute_step(p, s, i);
    dev->marks->range(NULL);
    if (p->marked && (status == CT_OK))
        status = ct_step_clock_mark(p->net, p->ex, p->first + i, true);
    return status;
}

/* Looks at messages that take no time would bury what does. */
static void trace_move(const ct_exec *ex, double start)
{
    const double worth_s = 5e-6;

    if ((start > 0) && (ct_clock_s() - start > worth_s))
        ct_trace_end(ex->trace, start, CT_TRACE_MOVE, NULL, NULL);
}

static ct_status ready_param(void *ctx, int param)
{
    const pass *p = ctx;
    double start = ct_trace_start(p->ex->trace);
    ct_status status =
        (p->after->ready != NULL) ? p->after->ready(p->after->ready_ctx, param) : CT_OK;

    trace_move(p->ex, start);
    return status;
}

static ct_status wait_param(void *ctx, int param)
{
    const ct_exec *ex = ((const pass *)ctx)->ex;

    return (ex->wait != NULL) ? ex->wait(ex->wait_ctx, param) : CT_OK;
}

static ct_status poll_between(void *ctx)
{
    ct_exec *ex = ((const pass *)ctx)->ex;
    double start = ct_trace_start(ex->trace);
    ct_status status = (ex->poll != NULL) ? ex->poll(ex->poll_ctx) : CT_OK;

    trace_move(ex, start);
    return status;
}

static ct_status now(void *ctx, double *seconds_p)
{
    const pass *p = ctx;

    CT_TRY(p->net->options.dev->sync(p->ex->stream));
    *seconds_p = ct_clock_s();
    return CT_OK;
}

static void ended(void *ctx, int i)
{
    const pass *p = ctx;
    ct_net *net = p->net;

    if (net->team != NULL) ct_team_clock_end(net->team, p->first + i);
    if (ct_net_impl_of(net)->poison) poison_dead(net, p->first + i);
}

static ct_status graph_one(void *ctx, int i)
{
    const pass *p = ctx;

    return run_step(ctx, &((p->first == 0) ? p->net->forward : p->net->backward)[i], i);
}

static ct_status graph_call(void *ctx, int i)
{
    const pass *p = ctx;
    const ct_step *s = &((p->first == 0) ? p->net->forward : p->net->backward)[i];

    return (s->kind == CT_STEP_READY) ? ready_param(ctx, s->param) : wait_param(ctx, s->param);
}

static ct_status give_list(pass *p, ct_step *list, int n)
{
    static const ct_graph_hooks graph = { graph_one, graph_call, poll_between };
    const ct_step_after *after = p->after;
    ct_status status;
    ct_step_hooks h = { .run = run_step,
                        .ready = ready_param,
                        .wait = wait_param,
                        .poll = poll_between,
                        .now = (p->net->timing && !p->marked) ? now : NULL,
                        .ended = (ct_net_impl_of(p->net)->poison || (p->net->team != NULL))
                                     ? ended
                                     : NULL };
    ct_step_graphs *graphs = ct_net_impl_of(p->net)->graphs;

    /* each step is a graph's part, or can be looked at */
    if ((graphs != NULL) && !p->net->timing && (ct_trace_start(p->ex->trace) <= 0) &&
        (p->ex->stream != NULL))
        return ct_step_graphs_run(graphs, p->ex, p->first == 0, after, &graph, p);
    status = ct_steps_run(list, n, &h, p);
    if ((status == CT_OK) && (after != NULL) && (after->finish != NULL))
        status = after->finish(after->ctx);
    return status;
}

static ct_status run_list(pass *p, ct_step *list, int n)
{
    const ct_mark_ops *marks = p->net->options.dev->marks;
    ct_status status;

    p->marked = ct_step_clock_is_on(p->net, p->ex);
    if (p->marked && (p->first == 0)) CT_TRY(ct_step_clock_begin(p->net, p->ex));
    if (!p->marked && (p->first == 0)) CT_TRY(ct_step_clock_end(p->net, p->ex));
    if (p->net->team != NULL) ct_team_clock_begin(p->net->team);
    if (marks != NULL) marks->range((p->first == 0) ? "forward" : "backward");
    status = give_list(p, list, n);
    if (marks != NULL) marks->range(NULL);
    if (p->marked && (status == CT_OK))
        status = ct_step_clock_take(p->net, p->ex, list, n, p->first);
    return status;
}

/* Version numbers of caches, and the place of buffers whose place depends on the direction. */
static void prepare(ct_net *net, bool forward)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    int64_t version = net->weight_version;

    if (net->options.share != NULL) version += net->options.share->weight_version;
    for (int i = 0; i < net->n_layer; i++) net->instance[i]->weight_version = version;
    for (int i = 0; i < m->n_call_buffer; i++) {
        const ct_call_buffer *c = &m->call_buffer[i];

        net->instance[c->layer]->buffer[c->slot].data = forward ? c->forward : c->backward;
    }
    ct_net_vary_bind(net);
}

static ct_status check_runnable(const ct_net *net)
{
    if (net->options.no_data)
        return CT_FAIL(CT_ERR_ARG, "net \"%s\" was made without memory", net->name);
    return CT_OK;
}

ct_status ct_net_forward_begin(ct_net *net, ct_exec *ex)
{
    pass p = { .net = net, .ex = ex };

    CT_TRY(check_runnable(net));
    ex->batch_local = net->batch_local;
    ex->batch_global = net->batch_global;
    ex->batch_first = net->batch_first;
    ex->batch_axis = net->batch_axis;
    prepare(net, true);
    ct_net_again_reset(net);
    if (ct_net_impl_of(net)->poison) poison_all(net);
    CT_TRY(ct_net_report_begin(net, ex));
    CT_TRY(run_list(&p, net->forward, net->n_forward));
    ct_net_vary_exec(net, -1, ex);
    return ct_net_report_send(net, ex);
}

ct_status ct_net_forward_end(ct_net *net, ct_exec *ex, double *loss_p)
{
    return ct_net_report_take(net, ex, loss_p);
}

ct_status ct_net_forward(ct_net *net, ct_exec *ex, double *loss_p)
{
    CT_TRY(ct_net_forward_begin(net, ex));
    return ct_net_forward_end(net, ex, loss_p);
}

ct_status ct_net_backward_and(ct_net *net, ct_exec *ex, const ct_step_after *after)
{
    pass p = { net, ex, net->n_forward, after, false };

    CT_TRY(check_runnable(net));
    if (ct_net_impl_of(net)->forward_only)
        return CT_FAIL(CT_ERR_ARG, "net \"%s\" was made for forward only", net->name);
    prepare(net, false);
    CT_TRY(run_list(&p, net->backward, net->n_backward));
    ct_net_vary_exec(net, -1, ex);
    return CT_OK;
}

ct_status ct_net_backward(ct_net *net, ct_exec *ex, ct_ready_fn ready, void *ready_ctx)
{
    const ct_step_after after = { .ready = ready, .ready_ctx = ready_ctx };

    return ct_net_backward_and(net, ex, &after);
}

void ct_net_forget_graphs(ct_net *net)
{
    ct_step_graphs_forget(ct_net_impl_of(net)->graphs);
}

void ct_net_weights_changed(ct_net *net)
{
    net->weight_version++;
}
