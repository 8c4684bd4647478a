/* The interpreter of steps. */
#include "framework/base/clock.h"
#include "framework/math/math.h"
#include "framework/net/net_impl.h"

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

static ct_status run_step(ct_net *net, const ct_step *s, ct_exec *ex, ct_ready_fn ready,
                          void *ready_ctx)
{
    const ct_layer *l = net->layer[s->layer];
    ct_instance *in = net->instance[s->layer];
    const ct_device *dev = net->options.dev;
    const ct_tensor *diff;

    switch (s->kind) {
    case CT_STEP_FORWARD:
        return (l->ops->forward != NULL) ? l->ops->forward(l, in, ex) : CT_OK;
    case CT_STEP_BACKWARD:
        return l->ops->backward(l, in, ex);
    case CT_STEP_READY:
        return (ready != NULL) ? ready(ready_ctx, s->param) : CT_OK;
    case CT_STEP_ZERO_DIFF:
        diff = &net->blob[s->blob]->diff;
        return dev->zero(ex->stream, diff->data, ct_tensor_bytes(diff));
    case CT_STEP_LOSS_DIFF:
        diff = &net->blob[s->blob]->diff;
        return dev->math->set(ex->stream, ct_tensor_count(diff), s->value, diff->data);
    }
    return CT_OK;
}

/* first: the number of the list's first step in the plan's time. */
static ct_status run_list(ct_net *net, ct_step *list, int n, int first, ct_exec *ex,
                          ct_ready_fn ready, void *ready_ctx)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    const ct_device *dev = net->options.dev;

    for (int i = 0; i < n; i++) {
        double start = net->timing ? ct_clock_s() : 0.0;

        CT_TRY(run_step(net, &list[i], ex, ready, ready_ctx));
        if (net->timing) {
            CT_TRY(dev->sync(ex->stream));
            list[i].seconds = ct_clock_s() - start;
        }
        if (m->poison) poison_dead(net, first + i);
        if (ex->poll != NULL) CT_TRY(ex->poll(ex->hook_ctx));
    }
    return CT_OK;
}

static ct_status sum_loss(const ct_net *net, const ct_exec *ex, double *loss_p)
{
    const ct_device *dev = net->options.dev;
    float *host = ct_net_impl_of(net)->loss_host;
    double loss = 0.0;

    for (int i = 0; i < net->n_output; i++) {
        const ct_output *o = &net->output[i];
        const ct_tensor *t = &net->blob[o->blob]->data;
        double sum = 0.0;

        if (o->loss_weight == 0.0f) continue;
        CT_TRY(dev->to_host(ex->stream, host, t->data, ct_tensor_bytes(t)));
        for (int64_t e = 0; e < ct_tensor_count(t); e++) sum += (double)host[e];
        loss += (double)o->loss_weight * sum;
    }
    *loss_p = loss;
    return CT_OK;
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
}

static ct_status check_runnable(const ct_net *net)
{
    if (net->options.no_data)
        return CT_FAIL(CT_ERR_ARG, "net \"%s\" was made without memory", net->name);
    return CT_OK;
}

ct_status ct_net_forward(ct_net *net, ct_exec *ex, double *loss_p)
{
    CT_TRY(check_runnable(net));
    ex->batch_local = net->batch_local;
    ex->batch_global = net->batch_global;
    ex->batch_first = net->batch_first;
    prepare(net, true);
    if (ct_net_impl_of(net)->poison) poison_all(net);
    CT_TRY(run_list(net, net->forward, net->n_forward, 0, ex, NULL, NULL));
    return (loss_p != NULL) ? sum_loss(net, ex, loss_p) : CT_OK;
}

ct_status ct_net_backward(ct_net *net, ct_exec *ex, ct_ready_fn ready, void *ready_ctx)
{
    CT_TRY(check_runnable(net));
    if (ct_net_impl_of(net)->forward_only)
        return CT_FAIL(CT_ERR_ARG, "net \"%s\" was made for forward only", net->name);
    prepare(net, false);
    return run_list(net, net->backward, net->n_backward, net->n_forward, ex, ready, ready_ctx);
}

void ct_net_weights_changed(ct_net *net)
{
    net->weight_version++;
}
