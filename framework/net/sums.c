/* The layers' sums over ranks, and transfers, that are steps of their own: begun behind one part of
 * a layer, waited for before the next. Numbers of a device are added up where they are, or cross to
 * the host. */
#include <stdlib.h>

#include "framework/net/net_impl.h"

/* One sum a pass. */
typedef struct ct_sum_way {
    double *stage;  /* on the host, of numbers on a device; else NULL           */
    void *ticket;   /* of what is under way; NULL: nothing is, or it is over    */
    bool transfers; /* a transfer is under way                                  */
} ct_sum_way;

static ct_sum_way *way_of(const ct_pass *pass, const ct_step *s)
{
    return &ct_pass_impl_of(pass)->sum[s->pair - pass->net->n_param];
}

static ct_status make_stages(const ct_pass *pass, const ct_step *list, int n)
{
    const ct_device *dev = pass->net->options.dev;

    for (int i = 0; i < n; i++) {
        void *stage = NULL;

        if ((list[i].kind != CT_STEP_BEGIN) || (list[i].of != CT_PAIR_SUM)) continue;
        CT_TRY(dev->host_acquire((size_t)list[i].count * sizeof(double), &stage));
        way_of(pass, &list[i])->stage = stage;
    }
    return CT_OK;
}

ct_status ct_pass_sums_make(ct_pass *pass)
{
    const ct_net *net = pass->net;
    int n = ct_net_impl_of(net)->n_pair - net->n_param;

    ct_pass_impl_of(pass)->sum = calloc((size_t)n + 1, sizeof(ct_sum_way));
    if (ct_pass_impl_of(pass)->sum == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d sums over ranks", n);
    if (net->options.dev->kind == CT_DEVICE_CPU) return CT_OK;
    CT_TRY(make_stages(pass, net->forward, net->n_forward));
    return make_stages(pass, net->backward, net->n_backward);
}

void ct_pass_sums_release(ct_pass *pass)
{
    const ct_net *net = pass->net;
    ct_sum_way *sum = ct_pass_impl_of(pass)->sum;

    for (int k = 0; (sum != NULL) && (k < ct_net_impl_of(net)->n_pair - net->n_param); k++) {
        if (sum[k].transfers) pass->exec.transfers->drop(pass->exec.transfers_ctx, sum[k].ticket);
        if (sum[k].stage != NULL) net->options.dev->host_release(sum[k].stage);
    }
    free(sum);
    ct_pass_impl_of(pass)->sum = NULL;
}

/* Where the layer has put its numbers. */
static double *numbers_of(const ct_pass *pass, const ct_step *s)
{
    return pass->instance[s->layer]->buffer[pass->net->layer[s->layer]->ops->sums->slot].data;
}

static bool is_staged(const ct_pass *pass)
{
    return (pass->net->options.dev->kind != CT_DEVICE_CPU) && (pass->exec.sum_there == NULL);
}

/* Whether it stands in the list of forward. */
static bool is_of_forward(const ct_net *net, const ct_step *s)
{
    return (s >= net->forward) && (s < net->forward + net->n_forward);
}

int64_t ct_pass_sum_bytes(const ct_pass *pass, const ct_step *s)
{
    const ct_layer *l = pass->net->layer[s->layer];
    ct_transfer t;

    if (s->of == CT_PAIR_SUM) return (int64_t)s->count * (int64_t)sizeof(double);
    l->ops->sums->transfer(l, pass->instance[s->layer], is_of_forward(pass->net, s), &t);
    return t.n * (int64_t)ct_dtype_size(t.dtype);
}

/* A receive may have begun ahead. */
static ct_status transfer_begin(ct_pass *pass, const ct_step *s, bool forward)
{
    const ct_layer *l = pass->net->layer[s->layer];
    ct_sum_way *w = way_of(pass, s);
    ct_transfer t;

    if (w->transfers) return CT_OK;
    l->ops->sums->transfer(l, pass->instance[s->layer], forward, &t);
    CT_TRY(ct_exec_transfer_begin(&pass->exec, &t, &w->ticket));
    w->transfers = true;
    return CT_OK;
}

static ct_status transfer_wait(ct_pass *pass, const ct_step *s)
{
    ct_sum_way *w = way_of(pass, s);

    w->transfers = false;
    return ct_exec_transfer_wait(&pass->exec, w->ticket);
}

ct_status ct_pass_receive_ahead(ct_pass *pass, bool forward)
{
    const ct_net *net = pass->net;
    const ct_step *list = forward ? net->forward : net->backward;
    int n = forward ? net->n_forward : net->n_backward;

    for (int i = 0; i < n; i++) {
        if ((list[i].kind != CT_STEP_BEGIN) || (list[i].of != CT_PAIR_TRANSFER)) continue;
        if (net->layer[list[i].layer]->ops->sums->ahead)
            CT_TRY(transfer_begin(pass, &list[i], forward));
    }
    return CT_OK;
}

ct_status ct_pass_sum_begin(ct_pass *pass, const ct_step *s)
{
    const ct_device *dev = pass->net->options.dev;
    ct_exec *ex = &pass->exec;
    ct_sum_way *w = way_of(pass, s);
    double *v;

    if (s->of == CT_PAIR_TRANSFER) return transfer_begin(pass, s, is_of_forward(pass->net, s));
    v = numbers_of(pass, s);
    ct_pass_set_exec(pass, s->layer);
    if (ex->sum_ranks == NULL) return CT_OK;
    if ((dev->kind != CT_DEVICE_CPU) && (ex->sum_there != NULL))
        return ex->sum_there(ex->hook_ctx, ex->stream, v, s->count);
    if (is_staged(pass)) {
        CT_TRY(dev->to_host(ex->stream, w->stage, v, (size_t)s->count * sizeof(double)));
        v = w->stage;
    }
    if (ex->sum_begin == NULL) return ex->sum_ranks(ex->hook_ctx, v, s->count);
    CT_TRY(ex->sum_begin(ex->hook_ctx, v, s->count, &w->ticket));
    ex->n_sum++;
    return CT_OK;
}

ct_status ct_pass_sum_wait(ct_pass *pass, const ct_step *s)
{
    const ct_device *dev = pass->net->options.dev;
    ct_exec *ex = &pass->exec;
    ct_sum_way *w = way_of(pass, s);
    size_t bytes = (size_t)s->count * sizeof(double);
    void *ticket = w->ticket;

    if (s->of == CT_PAIR_TRANSFER) return transfer_wait(pass, s);
    w->ticket = NULL;
    ct_pass_set_exec(pass, s->layer);
    if (ticket != NULL) {
        ex->n_sum--;
        CT_TRY(ex->sum_wait(ex->hook_ctx, ticket));
    }
    if ((ex->sum_ranks == NULL) || !is_staged(pass)) return CT_OK;
    return ((dev->upload != NULL) ? dev->upload : dev->from_host)(ex->stream, numbers_of(pass, s),
                                                                  w->stage, bytes);
}
