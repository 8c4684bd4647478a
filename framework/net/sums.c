/* The layers' sums over ranks that are steps of their own: begun behind one part of a layer, waited
 * for before the next. Numbers of a device are added up where they are, or cross to the host. */
#include <stdlib.h>

#include "framework/net/net_impl.h"

/* One sum a pass. */
typedef struct ct_sum_way {
    double *stage; /* on the host, of numbers on a device; else NULL           */
    void *ticket;  /* of what is under way; NULL: nothing is, or it is over    */
} ct_sum_way;

static ct_sum_way *way_of(const ct_net *net, const ct_step *s)
{
    return &ct_net_impl_of(net)->sum[s->pair - net->n_param];
}

static ct_status make_stages(ct_net *net, const ct_step *list, int n)
{
    const ct_device *dev = net->options.dev;

    for (int i = 0; i < n; i++) {
        void *stage = NULL;

        if ((list[i].kind != CT_STEP_BEGIN) || ct_step_is_of_weights(&list[i])) continue;
        CT_TRY(dev->host_acquire((size_t)list[i].count * sizeof(double), &stage));
        way_of(net, &list[i])->stage = stage;
    }
    return CT_OK;
}

ct_status ct_net_sums_make(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);

    m->sum = calloc((size_t)(m->n_pair - net->n_param) + 1, sizeof(*m->sum));
    if (m->sum == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d sums over ranks", m->n_pair - net->n_param);
    if ((net->options.dev->kind == CT_DEVICE_CPU) || net->options.no_data) return CT_OK;
    CT_TRY(make_stages(net, net->forward, net->n_forward));
    return make_stages(net, net->backward, net->n_backward);
}

void ct_net_sums_release(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);

    for (int k = 0; (m->sum != NULL) && (k < m->n_pair - net->n_param); k++) {
        if (m->sum[k].stage != NULL) net->options.dev->host_release(m->sum[k].stage);
    }
    free(m->sum);
    m->sum = NULL;
}

/* Where the layer has put its numbers. */
static double *numbers_of(const ct_net *net, const ct_step *s)
{
    return net->instance[s->layer]->buffer[net->layer[s->layer]->ops->sums->slot].data;
}

static bool is_staged(const ct_net *net)
{
    return net->options.dev->kind != CT_DEVICE_CPU;
}

ct_status ct_net_sum_begin(ct_net *net, ct_exec *ex, const ct_step *s)
{
    ct_sum_way *w = way_of(net, s);
    double *v = numbers_of(net, s);

    if (ex->sum_ranks == NULL) return CT_OK;
    if (is_staged(net) && (ex->sum_there != NULL))
        return ex->sum_there(ex->hook_ctx, ex->stream, v, s->count);
    if (is_staged(net)) {
        CT_TRY(
            net->options.dev->to_host(ex->stream, w->stage, v, (size_t)s->count * sizeof(double)));
        v = w->stage;
    }
    if (ex->sum_begin == NULL) return ex->sum_ranks(ex->hook_ctx, v, s->count);
    CT_TRY(ex->sum_begin(ex->hook_ctx, v, s->count, &w->ticket));
    ex->n_sum++;
    return CT_OK;
}

ct_status ct_net_sum_wait(ct_net *net, ct_exec *ex, const ct_step *s)
{
    ct_sum_way *w = way_of(net, s);
    size_t bytes = (size_t)s->count * sizeof(double);
    void *ticket = w->ticket;

    w->ticket = NULL;
    if (ticket != NULL) {
        ex->n_sum--;
        CT_TRY(ex->sum_wait(ex->hook_ctx, ticket));
    }
    if ((ex->sum_ranks == NULL) || (ex->sum_there != NULL) || !is_staged(net)) return CT_OK;
    if (net->options.dev->upload == NULL)
        return net->options.dev->from_host(ex->stream, numbers_of(net, s), w->stage, bytes);
    return net->options.dev->upload(ex->stream, numbers_of(net, s), w->stage, bytes);
}
