/* How topk and redsync of gradients on a device begin and end: coders, memory, exchanges. */
#include <stdlib.h>
#include <string.h>

#include "comm/codec/codec_sparse.h"
#include "comm/codec/codec_sparse_device.h"

void ct_sparse_device_destroy(void *obj)
{
    ct_sparse_device *x = obj;

    if (x == NULL) return;
    ct_side_wait(&x->side); /* nothing of it may still be under way */
    ct_allgatherv_destroy(x->gather);
    ct_lists_release(&x->lists);
    if (x->picker != x->side.coder) x->side.codec->destroy(x->picker);
    ct_side_close(&x->side);
    free(x->payload);
    free(x);
}

/* In the order in which the ranks lie near each other, as the exchange allgather has them. */
static ct_status prepare_gather(ct_sparse_device *x)
{
    ct_comm *comm = x->setup.comm;
    const int *member = comm->topo->order;

    while (member[x->me] != comm->rank) x->me += 1;
    CT_TRY(ct_allgatherv_create(comm, member, comm->size, x->me, ct_coder_room(&x->size),
                                x->setup.tag, &x->gather));
    CT_TRY(ct_allgatherv_keep_on(x->gather, x->setup.dev));
    CT_TRY(x->side.codec->create(&x->size, &x->side.coder));
    x->picker = x->side.coder;
    for (int i = 0, k = 0; i < comm->size; ++i)
        x->payload[i] = (i == x->me) ? x->side.codec->payload(x->side.coder)
                                     : x->side.codec->incoming(x->side.coder, k++);
    return CT_OK;
}

/* A hier's slice has a coder of its own, beside the one for dense steps and sums. */
static ct_status prepare_lists(ct_sparse_device *x, const char *name)
{
    ct_coder_setup whole = x->size, *size = &x->size;

    size->n_payload = 0;
    CT_TRY(ct_lists_prepare(&x->lists, &x->setup, size, x->side.codec, x->side.stream, name));
    whole.n_payload = 0;
    ct_sparse_allreduce_want(&x->lists.req, whole.k_most);
    size->k_most = x->lists.req.k_own;
    ct_sparse_allreduce_want(&x->lists.req, whole.k);
    if (ct_lists_has_nodes(&x->lists)) whole.k = whole.k_most = 1;
    CT_TRY(x->side.codec->create(&whole, &x->side.coder));
    size->n = x->lists.req.length;
    size->k = x->lists.req.k_own;
    if (!ct_lists_has_nodes(&x->lists)) x->picker = x->side.coder;
    return (ct_lists_has_nodes(&x->lists) && (size->n > 0))
               ? x->side.codec->create(size, &x->picker)
               : CT_OK;
}

/* Which exchange is fastest there nobody has measured. */
static const char *exchange_name(const ct_sparse_device *x)
{
    const char *name = x->setup.config->exchange;

    return ct_sparse_is_auto(name) ? "allgather" : name;
}

/* As codec_sparse.c's. */
static ct_status plan_warmup(ct_sparse_device *x)
{
    const ct_codec_setup *s = &x->setup;
    const ct_sparse_allreduce_ops *exch = NULL;

    if (s->comm->size > 1)
        CT_TRY(ct_sparse_allreduce_choose(s->comm, s->n, x->size.k, x->size.form, exchange_name(x),
                                          &exch));
    x->warmup = ct_sparse_warmup_of(s, exch, x->size.form);
    x->size.k_most = x->warmup.k_most;
    x->k = x->size.k;
    return CT_OK;
}

ct_status ct_sparse_device_prepare(ct_sparse_device *x, const ct_codec_setup *setup, bool plain)
{
    const ct_codec_setup *s = &x->setup;
    int n_rank = setup->comm->size;

    x->setup = *setup;
    atomic_store(&x->where.rank, -1);
    x->quantize = s->config->quantize && !s->output;
    x->size = (ct_coder_setup){ .n = s->n,
                                .k = ct_sparse_wanted(s->config, s->n),
                                .form = ct_sparse_form(s->config, s->n, x->quantize, plain),
                                .n_payload = n_rank - 1 };
    CT_TRY(ct_sparse_selection(s->config->selection, &x->size.kind));
    CT_TRY(plan_warmup(x));
    CT_TRY(ct_side_open(&x->side, s));
    x->side.keep.masks = s->config->mask_momentum;
    x->payload = calloc((size_t)n_rank, sizeof(*x->payload));
    if (x->payload == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", s->key);
    if ((n_rank > 1) && (strcmp(exchange_name(x), "allgather") == 0)) return prepare_gather(x);
    if (n_rank > 1) return prepare_lists(x, exchange_name(x));
    CT_TRY(x->side.codec->create(&x->size, &x->side.coder));
    x->picker = x->side.coder;
    x->payload[0] = x->side.codec->payload(x->side.coder);
    return CT_OK;
}
