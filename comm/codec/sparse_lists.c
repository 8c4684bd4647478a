#include "comm/codec/sparse_lists.h"

#include <string.h>

#include "comm/codec/codec_sparse.h"
#include "framework/base/memory.h"

/* ---- memory */

/* Entries of the sum, at most: a hier's are not lists. */
static int64_t most_entries(const ct_lists *x)
{
    return ct_lists_has_nodes(x) ? x->req.n : x->req.most;
}

static size_t payload_bytes(const ct_lists *x)
{
    int64_t most = x->req.room_own;

    if (x->req.length == 0) return 0;
    return ct_align_up(ct_payload_bytes(x->req.form, x->req.length, most));
}

static size_t sum_bytes(const ct_lists *x)
{
    return ct_align_up(ct_payload_bytes(CT_PAYLOAD_PAIRS, x->req.n, most_entries(x)));
}

static size_t drops_bytes(const ct_lists *x)
{
    return ct_align_up(sizeof(float) * (size_t)x->req.most_lost);
}

static ct_status acquire(ct_lists *x)
{
    const ct_device *dev = x->setup->dev;
    size_t payload = payload_bytes(x), sum = sum_bytes(x), drops = drops_bytes(x);
    void *block = NULL, *there = NULL;

    CT_TRY(dev->host_acquire(payload + sum + 2 * drops, &block));
    x->block = block;
    x->payload = x->block;
    x->sum = x->block + payload;
    x->drops.entry = (ct_sparse){ .n = x->req.n,
                                  .room = x->req.most_lost,
                                  .index = (void *)(x->block + payload + sum),
                                  .value = (void *)(x->block + payload + sum + drops) };
    CT_TRY(dev->mem_acquire(sum + 2 * drops, &there));
    x->there = there;
    x->drops_there = x->there + sum;
    if (x->req.list != NULL) CT_TRY(ct_sparse_reserve(&x->list, x->req.most));
    return ct_sparse_reserve(&x->own, x->req.room_own);
}

ct_status ct_lists_prepare(ct_lists *x, const ct_codec_setup *setup, const ct_coder_setup *size,
                           const ct_device_codec *codec, ct_stream stream, const char *name)
{
    const ct_sparse_allreduce_ops *exch = NULL;

    *x = (ct_lists){ .setup = setup, .codec = codec, .stream = stream, .dirty = true };
    x->req = (ct_sparse_allreduce_req){ .comm = setup->comm,
                                        .n = size->n,
                                        .k = size->k,
                                        .k_most = size->k_most,
                                        .form = size->form,
                                        .tag = setup->tag,
                                        .inner = ct_sparse_inner(setup->deterministic),
                                        .sum = setup->host,
                                        .own = &x->own };
    atomic_store(&x->req.where.rank, -1);
    CT_TRY(ct_sparse_allreduce_choose(setup->comm, size->n, size->k, size->form, name, &exch));
    x->exch = exch; /* from now on it is released */
    if (!ct_lists_has_nodes(x)) x->req.list = &x->list;
    CT_TRY(exch->prepare(&x->req));
    return acquire(x);
}

void ct_lists_release(ct_lists *x)
{
    const ct_device *dev = (x->setup != NULL) ? x->setup->dev : NULL;

    if (x->exch != NULL) x->exch->release(&x->req);
    ct_sparse_destroy(&x->own);
    ct_sparse_destroy(&x->list);
    if (x->block != NULL) dev->host_release(x->block);
    if (x->there != NULL) dev->mem_release(x->there);
    x->exch = NULL;
    x->block = x->there = NULL;
}

bool ct_lists_has_nodes(const ct_lists *x)
{
    return (x->exch != NULL) && (x->exch->node_start != NULL);
}

/* ---- the node's sum */

/* U and V that are spread come down for it; that is rare, and waited for. They have a place of
 * their own, since ranks may read each other's gradients where they lie. */
static ct_status enter(ct_lists *x, ct_error_feedback *keep)
{
    const ct_device *dev = x->setup->dev;
    size_t bytes = sizeof(float) * (size_t)x->req.n;
    float **copy = NULL, *data = NULL;

    if ((x->phase == CT_LISTS_NODE_U) && !x->spread_u) x->phase = CT_LISTS_NODE_V;
    if ((x->phase == CT_LISTS_NODE_V) && !x->spread_v) x->phase = CT_LISTS_NODE_GRAD;
    x->running = true;
    if (x->phase == CT_LISTS_NODE_GRAD) return x->exch->node_start(&x->req, x->setup->host);
    copy = (x->phase == CT_LISTS_NODE_U) ? &keep->host_u : &keep->host_v;
    data = (x->phase == CT_LISTS_NODE_U) ? keep->u : keep->v;
    if (*copy == NULL) *copy = ct_mem_acquire(bytes);
    if (*copy == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a copy of %s", x->setup->key);
    CT_TRY(dev->to_host(x->stream, *copy, data, bytes));
    return x->exch->node_start(&x->req, *copy);
}

/* The node's sum of this rank's slice; the rest is others'. */
static ct_status keep_slice(ct_lists *x, const float *copy, float *data)
{
    const ct_device *dev = x->setup->dev;
    size_t first = (size_t)x->req.first, length = (size_t)x->req.length;
    size_t end = first + length, n = (size_t)x->req.n;

    CT_TRY(dev->zero(x->stream, data, sizeof(float) * first));
    CT_TRY(dev->zero(x->stream, data + end, sizeof(float) * (n - end)));
    return (length > 0)
               ? dev->from_host(x->stream, data + first, copy + first, sizeof(float) * length)
               : CT_OK;
}

ct_status ct_lists_node_start(ct_lists *x)
{
    x->phase = CT_LISTS_NODE_U;
    x->running = false;
    return CT_OK;
}

/* U or V is summed, and goes up. */
static ct_status end_state(ct_lists *x, ct_error_feedback *keep)
{
    if (x->phase == CT_LISTS_NODE_U) {
        CT_TRY(keep_slice(x, keep->host_u, keep->u));
        x->spread_u = false;
        x->phase = CT_LISTS_NODE_V;
    } else {
        CT_TRY(keep_slice(x, keep->host_v, keep->v));
        x->spread_v = false;
        x->phase = CT_LISTS_NODE_GRAD;
    }
    return CT_OK;
}

ct_status ct_lists_node_progress(ct_lists *x, ct_error_feedback *keep)
{
    int64_t first = x->req.first, length = x->req.length;
    void *none = NULL;

    for (;;) {
        if (!x->running) CT_TRY(enter(x, keep));
        CT_TRY(x->exch->node_progress(&x->req));
        x->running = false;
        if (x->phase == CT_LISTS_NODE_GRAD) break;
        CT_TRY(end_state(x, keep));
    }
    ct_error_feedback_forget_copy(keep);
    if (length == 0) return CT_OK;
    return x->setup->dev->copy_begin(x->stream, x->setup->host + first, x->setup->grad + first,
                                     sizeof(float) * (size_t)length, false, &none);
}

/* ---- the exchange */

ct_status ct_lists_start(ct_lists *x, size_t bytes)
{
    x->own.n = x->req.length;
    x->own.count = 0;
    if (bytes > 0) CT_TRY(ct_payload_unpack(x->payload, bytes, x->req.length, &x->own));
    if (x->dirty && !ct_lists_has_nodes(x))
        memset(x->setup->host, 0, sizeof(float) * (size_t)x->req.n);
    x->dirty = false;
    ct_residual_return_clear(&x->drops);
    x->req.residual = (ct_residual_return){ .list = &x->drops, .first = x->req.first };
    return x->exch->start(&x->req);
}

ct_status ct_lists_progress(ct_lists *x)
{
    return x->exch->progress(&x->req);
}

static ct_status put_back(ct_lists *x, ct_device_coder *coder, float *v)
{
    const ct_device *dev = x->setup->dev;
    const ct_sparse *entry = &x->drops.entry;
    size_t bytes = sizeof(float) * (size_t)entry->count;
    uint32_t *index = (void *)x->drops_there;
    float *value = (void *)(x->drops_there + drops_bytes(x));
    void *none = NULL;

    ct_residual_return_next(&x->req.residual);
    if (x->drops.full)
        return CT_FAIL(CT_ERR_COMM, "the exchange of %s dropped more than its %lld entries",
                       x->setup->key, (long long)entry->room);
    if (entry->count == 0) return CT_OK;
    CT_TRY(dev->copy_begin(x->stream, entry->index, index, bytes, false, &none));
    CT_TRY(dev->copy_begin(x->stream, entry->value, value, bytes, false, &none));
    for (int b = 0; b < x->drops.n_batch; ++b) {
        int64_t first = (b > 0) ? x->drops.end[b - 1] : 0;

        CT_TRY(x->codec->put_back(coder, x->stream, index + first, value + first,
                                  x->drops.end[b] - first, v));
    }
    return CT_OK;
}

ct_status ct_lists_deliver(ct_lists *x, ct_device_coder *coder, float *v)
{
    const void *there = x->there;
    void *none = NULL;
    size_t bytes = 0;

    if (x->req.list != NULL) {
        if (x->list.count > x->req.most)
            return CT_FAIL(CT_ERR_COMM, "the sum of %s has %lld entries, of at most %lld",
                           x->setup->key, (long long)x->list.count, (long long)x->req.most);
        bytes = ct_payload_pack(CT_PAYLOAD_PAIRS, &x->list, x->sum);
    } else {
        CT_TRY(ct_payload_pack_vector(x->setup->host, x->req.n, &x->list, x->sum, &bytes));
    }
    CT_TRY(x->setup->dev->copy_begin(x->stream, x->sum, x->there, bytes, false, &none));
    CT_TRY(x->codec->add(coder, x->stream, &there, 1, x->setup->grad));
    return put_back(x, coder, v);
}
