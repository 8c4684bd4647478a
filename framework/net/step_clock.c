#include "framework/net/step_clock.h"

#include "framework/base/clock.h"
#include "framework/base/trace.h"
#include "framework/net/net_impl.h"

/* Mark 0 is the origin of traces; step i has the two behind 2 i. */
static int slot_of(int at, bool ends)
{
    return 1 + 2 * at + (ends ? 1 : 0);
}

static bool computes(const ct_step *s)
{
    return (s->kind != CT_STEP_READY) && (s->kind != CT_STEP_WAIT);
}

bool ct_step_clock_is_on(const ct_net *net, const ct_exec *ex)
{
    return (net->options.dev->marks != NULL) && (net->timing || (ct_trace_start(ex->trace) > 0));
}

/* Rows of the copies that have ended since the origin; wait: of all that were begun. */
static ct_status add_copies(const ct_net *net, ct_exec *ex, bool wait)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    const ct_mark_ops *marks = net->options.dev->marks;

    for (;;) {
        ct_trace_span span = { .kind = CT_TRACE_COPY, .iteration = m->clock_iteration };
        ct_copy_seen copy;
        bool got;

        CT_TRY(marks->watched(net, 0, wait, &copy, &got));
        if (!got) return CT_OK;
        span.name = copy.down ? "to the host" : "to the device";
        span.number = copy.down;
        span.bytes = (int64_t)copy.bytes;
        span.start_s = m->clock_s + copy.start_s;
        span.end_s = m->clock_s + copy.end_s;
        ct_trace_add(ex->trace, &span);
    }
}

ct_status ct_step_clock_end(const ct_net *net, ct_exec *ex)
{
    ct_net_impl *m = ct_net_impl_of(net);

    if (m->clock_s <= 0) return CT_OK;
    CT_TRY(add_copies(net, ex, true));
    net->options.dev->marks->watch(NULL);
    m->clock_s = 0;
    return CT_OK;
}

ct_status ct_step_clock_begin(const ct_net *net, ct_exec *ex)
{
    const ct_device *dev = net->options.dev;
    ct_net_impl *m = ct_net_impl_of(net);

    if (ct_trace_start(ex->trace) <= 0) return ct_step_clock_end(net, ex);
    CT_TRY(dev->sync(ex->stream));
    CT_TRY(ct_step_clock_end(net, ex)); /* what counts from the last origin */
    m->clock_s = ct_clock_s();
    m->clock_iteration = ct_trace_iteration(ex->trace);
    dev->marks->watch(net);
    return dev->marks->mark(ex->stream, 0);
}

ct_status ct_step_clock_mark(const ct_net *net, ct_exec *ex, int at, bool ends)
{
    return net->options.dev->marks->mark(ex->stream, slot_of(at, ends));
}

/* Row of the device: from the origin on. */
static ct_status add_span(const ct_net *net, ct_exec *ex, const ct_step *s, int at)
{
    const ct_layer *l = net->layer[s->layer];
    ct_trace_span span = { .kind = CT_TRACE_DEVICE, .name = l->name, .detail = l->ops->type };
    double from, to;

    if ((s->kind != CT_STEP_FORWARD) && (s->kind != CT_STEP_BACKWARD)) return CT_OK;
    CT_TRY(net->options.dev->marks->between(0, slot_of(at, false), &from));
    CT_TRY(net->options.dev->marks->between(0, slot_of(at, true), &to));
    span.start_s = ct_net_impl_of(net)->clock_s + from;
    span.end_s = ct_net_impl_of(net)->clock_s + to;
    span.iteration = ct_trace_iteration(ex->trace);
    ct_trace_add(ex->trace, &span);
    return CT_OK;
}

ct_status ct_step_clock_take(const ct_net *net, ct_exec *ex, ct_step *list, int n, int first)
{
    bool traced = (ct_trace_start(ex->trace) > 0) && (ct_net_impl_of(net)->clock_s > 0);

    CT_TRY(net->options.dev->sync(ex->stream));
    for (int i = 0; i < n; i++) {
        if (!computes(&list[i])) continue;
        CT_TRY(net->options.dev->marks->between(slot_of(first + i, false), slot_of(first + i, true),
                                                &list[i].seconds));
        if (traced) CT_TRY(add_span(net, ex, &list[i], first + i));
    }
    return traced ? add_copies(net, ex, false) : CT_OK;
}
