/* topk and redsync: the largest elements of what a rank has not sent yet, exchanged sparsely.
 *
 * Kernels (codec_kernels.h) accumulate, select, and round what will travel; whatever drops
 * something gives it back to V. redsync corrects momentum; topk is plain. quantize: all values
 * become their mean, so steps of even iterations send positive elements, those of odd ones
 * negative; not where the loss reads the layer.
 *
 * With the exchange `allgather` payloads go round as they were made, and everyone adds all of them,
 * in the same order. The others (comm/sparse/sparse_allreduce.h) are the host's: they take entries
 * and make the sum. Of gradients on a device a payload comes down for them, as if its entries had
 * been selected here; the sum goes up as a payload, and what the exchange dropped goes to V there,
 * in the same order and with the same bits (`staging`).
 *
 * With `hier` the node's gradients are added first, and a rank selects from a slice of that sum. U
 * and V are then held for that slice, but a snapshot of other ranks and a dense step leave shares
 * of them everywhere: before the next coded step the node adds them up, as it adds gradients. */
#include "comm/codec/codec_sparse.h"

#include <stdlib.h>
#include <string.h>

#include "comm/codec/codec_side.h"
#include "comm/codec/codec_types.h"
#include "comm/collective/allgatherv.h"
#include "framework/base/clock.h"

typedef enum {
    PHASE_NODE_DOWN, /* hier: the gradient comes to the host, … */
    PHASE_NODE,      /* … and is added up on the node           */
    PHASE_ENCODE,    /* on the host: a payload is to be made    */
    PHASE_DOWN,      /* the payload comes to the host           */
    PHASE_EXCHANGE,
    PHASE_DECODE, /* the sum is to be made */
    PHASE_DONE
} phase;

typedef enum { NODE_U, NODE_V, NODE_GRAD } node_phase;

/* On a device: what an exchange of the host takes and makes. */
typedef struct staging {
    char *block;   /* on the host, for copies: payload, sum, indices and values of drops */
    void *payload; /* this rank's comes down here */
    void *sum;
    char *there, *drops_there; /* on the device: the sum as a payload, and drops */
    ct_sparse list;            /* the sum's entries */
    ct_residual_return_list drops;
    bool dirty; /* setup->host is not zeros */
} staging;

typedef struct sparse {
    ct_codec_setup setup;
    ct_codec_side side;
    ct_coder_setup size;    /* of the picker */
    ct_codec_coder *picker; /* of what this rank selects from: side.coder, but for a hier's slice,
                         where it is NULL if that is empty */
    ct_sparse_warmup warmup;
    int64_t k; /* elements that all of this rank's n have now */
    bool quantize, warms;
    ct_momentum_correction accum; /* this step's; a hier selects when the node's sum is there */
    int sign;
    ct_allgatherv *gather; /* of an allgather; else … */
    int me;                /* among its members */
    const void **payload;  /* [ranks] where gradients lie, in the order in which they are added */
    size_t *bytes;         /* [ranks] */
    const ct_sparse_allreduce_ops *exch; /* … that; neither: one rank */
    ct_sparse_allreduce_req req;
    ct_sparse own; /* its entries, where kernels give a payload */
    staging stage;
    bool spread_u, spread_v; /* hier: elements outside of the slice may not be 0 */
    bool node_runs;          /* node_start was called */
    node_phase node;
    phase phase;
    ct_coll_where where; /* of all but exch */
    ct_codec_stats stats;
    int64_t bytes_sent; /* of gather */
    double left_at;
    bool apart;         /* this step: `code` computes                       */
    double coded_at[2]; /* the last computation of the host: began, ended */
} sparse;

static bool has_nodes(const sparse *x)
{
    return (x->exch != NULL) && (x->exch->node_start != NULL);
}

static ct_coll_where *sparse_where(void *obj)
{
    sparse *x = obj;

    return (x->exch != NULL) ? &x->req.where : &x->where;
}

/* ---- creation */

static void sparse_destroy(void *obj)
{
    sparse *x = obj;

    if (x == NULL) return;
    ct_side_wait(&x->side); /* nothing of it may still be under way */
    ct_allgatherv_destroy(x->gather);
    if (x->exch != NULL) x->exch->release(&x->req);
    ct_sparse_destroy(&x->own);
    ct_sparse_destroy(&x->stage.list);
    ct_side_host_release(&x->side, x->stage.block);
    ct_side_release(&x->side, x->stage.there);
    if (x->picker != x->side.coder) x->side.kernels->destroy(x->picker);
    ct_side_close(&x->side);
    free(x->payload);
    free(x->bytes);
    free(x);
}

/* In the order in which the ranks lie near each other. */
static ct_status prepare_gather(sparse *x)
{
    ct_comm *comm = x->setup.comm;
    const int *member = comm->topo->order;

    while (member[x->me] != comm->rank) x->me += 1;
    CT_TRY(ct_allgatherv_create(comm, member, comm->size, x->me, ct_coder_room(&x->size),
                                x->setup.tag, &x->gather));
    if (!x->side.host) CT_TRY(ct_allgatherv_keep_on(x->gather, x->setup.dev));
    CT_TRY(x->side.kernels->create(&x->size, &x->side.coder));
    x->picker = x->side.coder;
    if (x->side.host)
        x->side.kernels->pack_into(x->picker, ct_allgatherv_payload(x->gather, x->me));
    for (int i = 0, k = 0; i < comm->size; ++i) {
        if (x->side.host)
            x->payload[i] = ct_allgatherv_payload(x->gather, i);
        else if (i == x->me)
            x->payload[i] = x->side.kernels->payload(x->picker);
        else
            x->payload[i] = x->side.kernels->incoming(x->picker, k++);
    }
    return CT_OK;
}

static size_t drops_bytes(const sparse *x)
{
    return ct_align_up(sizeof(float) * (size_t)x->req.most_lost);
}

static ct_status acquire_staging(sparse *x)
{
    const ct_sparse_allreduce_req *r = &x->req;
    staging *g = &x->stage;
    int64_t most = x->exch->lists ? r->most : r->n;
    size_t payload =
        (r->length > 0) ? ct_align_up(ct_payload_bytes(r->form, r->length, r->room_own)) : 0;
    size_t sum = ct_align_up(ct_payload_bytes(CT_PAYLOAD_PAIRS, r->n, most));
    size_t drops = drops_bytes(x);
    void *block = NULL, *there = NULL;

    CT_TRY(ct_side_host_acquire(&x->side, payload + sum + 2 * drops, &block));
    g->block = block;
    g->payload = g->block;
    g->sum = g->block + payload;
    g->drops.entry = (ct_sparse){ .n = r->n,
                                  .room = r->most_lost,
                                  .index = (void *)(g->block + payload + sum),
                                  .value = (void *)(g->block + payload + sum + drops) };
    CT_TRY(ct_side_acquire(&x->side, sum + 2 * drops, &there));
    g->there = there;
    g->drops_there = g->there + sum;
    g->dirty = true;
    if (r->list != NULL) CT_TRY(ct_sparse_reserve(&g->list, r->most));
    return ct_sparse_reserve(&x->own, r->room_own);
}

/* A hier's slice has a coder of its own, beside the one for dense steps and sums. */
static ct_status prepare_coders(sparse *x)
{
    ct_coder_setup whole = x->size, *size = &x->size;

    size->entries = whole.entries = true;
    size->n_payload = whole.n_payload = 0;
    ct_sparse_allreduce_want(&x->req, whole.k_most);
    size->k_most = x->req.k_own;
    ct_sparse_allreduce_want(&x->req, whole.k);
    size->n = x->req.length;
    size->k = x->req.k_own;
    if (has_nodes(x)) whole.k = whole.k_most = 1;
    CT_TRY(x->side.kernels->create(&whole, &x->side.coder));
    if (!has_nodes(x)) x->picker = x->side.coder;
    return (has_nodes(x) && (size->n > 0)) ? x->side.kernels->create(size, &x->picker) : CT_OK;
}

static ct_status prepare_exchange(sparse *x, const ct_sparse_allreduce_ops *exch)
{
    const ct_codec_setup *s = &x->setup;

    x->req = (ct_sparse_allreduce_req){ .comm = s->comm,
                                        .n = s->n,
                                        .k = x->size.k,
                                        .k_most = x->size.k_most,
                                        .form = x->size.form,
                                        .tag = s->tag,
                                        .inner = ct_sparse_inner(s->deterministic),
                                        .allreduce = s->allreduce,
                                        .sum = x->side.host ? s->grad : s->host };
    atomic_store(&x->req.where.rank, -1);
    x->exch = exch; /* from now on it is released */
    if (!x->side.host && exch->lists) x->req.list = &x->stage.list;
    CT_TRY(exch->prepare(&x->req));
    if (!x->side.host) CT_TRY(acquire_staging(x));
    return prepare_coders(x);
}

/* What may not be the same in another run is not chosen: Ok-Topk's regions and thresholds come from
 * the steps before, which a snapshot does not have. Of gradients on a device nobody has measured
 * which is fastest. */
static const char *exchange_name(const sparse *x)
{
    const ct_codec_setup *s = &x->setup;

    if (!ct_sparse_is_auto(s->config->exchange)) return s->config->exchange;
    return (s->deterministic || !x->side.host) ? "allgather" : "auto";
}

/* Which exchange, and in what form values travel, is for the steps after the warm-up. */
static ct_status prepare(sparse *x, const ct_codec_setup *setup, bool plain)
{
    const ct_codec_setup *s = &x->setup;
    const ct_sparse_allreduce_ops *exch = NULL;
    int n_rank = setup->comm->size;

    x->setup = *setup;
    x->phase = PHASE_DONE;
    atomic_store(&x->where.rank, -1);
    x->quantize = s->config->quantize && !s->output;
    x->k = ct_sparse_wanted(s->config, s->n);
    x->size = (ct_coder_setup){ .n = s->n,
                                .k = x->k,
                                .form = ct_sparse_form(s->config, s->n, x->quantize, plain),
                                .n_payload = n_rank - 1 };
    CT_TRY(ct_side_open(&x->side, s, true));
    x->side.keep.masks = s->config->mask_momentum;
    CT_TRY(ct_sparse_selection(s->config->selection, &x->size.kind));
    if (n_rank > 1)
        CT_TRY(
            ct_sparse_allreduce_choose(s->comm, s->n, x->k, x->size.form, exchange_name(x), &exch));
    x->warmup = ct_sparse_warmup_of(s, exch, x->size.form);
    x->size.k_most = x->warmup.k_most;
    x->payload = calloc((size_t)n_rank, sizeof(*x->payload));
    x->bytes = calloc((size_t)n_rank, sizeof(*x->bytes));
    if ((x->payload == NULL) || (x->bytes == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", s->key);
    if ((n_rank > 1) && (strcmp(exch->name, "allgather") == 0)) return prepare_gather(x);
    if (n_rank > 1) return prepare_exchange(x, exch);
    CT_TRY(x->side.kernels->create(&x->size, &x->side.coder));
    x->picker = x->side.coder;
    return CT_OK;
}

static ct_status topk_prepare(void *obj, const ct_codec_setup *setup)
{
    return prepare(obj, setup, true);
}

static ct_status redsync_prepare(void *obj, const ct_codec_setup *setup)
{
    return prepare(obj, setup, false);
}

/* ---- a step: to the payload */

/* Of what this step selects; memory is there for the most. */
static size_t payload_room(const sparse *x)
{
    ct_coder_setup now = x->size;

    now.k_most = 0;
    return ct_coder_room(&now);
}

static size_t payload_bytes(const sparse *x)
{
    return ct_payload_bytes(x->size.form, x->size.n, x->side.note->count);
}

static ct_status select_own(sparse *x)
{
    ct_codec_side *d = &x->side;

    CT_TRY(d->kernels->select(x->picker, d->stream, &x->accum, x->sign));
    CT_TRY(ct_side_bring_note(d, 0, x->picker));
    if (x->gather != NULL)
        return ct_side_bring(d, 1, ct_allgatherv_payload(x->gather, x->me),
                             d->kernels->payload(x->picker), payload_room(x));
    if (x->exch != NULL)
        return d->host ? CT_OK
                       : ct_side_bring(d, 1, x->stage.payload, d->kernels->payload(x->picker),
                                       payload_room(x));
    x->payload[0] = d->kernels->payload(x->picker);
    x->bytes[0] = d->host ? payload_bytes(x) : 0;
    return d->kernels->add(x->picker, d->stream, x->payload, x->bytes, 1, x->setup.grad);
}

/* As many elements as are to be selected in this iteration, while their number falls and after. */
static void take_density(sparse *x, int64_t iteration)
{
    const ct_codec_config *c = x->setup.config;
    int64_t k = ct_sparse_wanted_at(c, x->setup.n, iteration);

    x->warms = (iteration < c->warmup_iterations);
    if (k > x->warmup.k_most) k = x->warmup.k_most;
    if (k == x->k) return;
    x->k = x->size.k = k;
    if (x->exch != NULL) {
        ct_sparse_allreduce_want(&x->req, k);
        x->size.k = x->req.k_own;
    }
    if (x->picker != NULL) x->side.kernels->want(x->picker, x->size.k);
}

/* A node's sum is of gradients that were limited. */
static ct_status begin(sparse *x, const ct_codec_step *step, double limit)
{
    const ct_codec_setup *s = &x->setup;
    const ct_sparse_allreduce_req *r = &x->req;
    ct_codec_side *d = &x->side;
    ct_codec_step own = *step;

    take_density(x, step->iteration);
    x->sign = !x->quantize ? 0 : (step->iteration % 2 == 0) ? 1 : -1;
    if (!has_nodes(x)) {
        x->accum = ct_error_feedback_accum(&d->keep, step, 0, s->n, s->comm->size);
        CT_TRY(d->kernels->clip(d->coder, d->stream, s->grad, s->n, limit));
        return d->host ? CT_OK : select_own(x);
    }
    if (step->clip != 1) ct_momentum_correction_scale(s->grad, s->n, step->clip, *s->n_thread);
    own.clip = 1;
    x->accum = ct_error_feedback_accum(&d->keep, &own, r->first, r->length, r->copies);
    CT_TRY(d->kernels->shrink(d->coder, d->stream, s->grad, s->n, limit));
    return d->host ? CT_OK : ct_side_bring(d, 0, s->host, s->grad, sizeof(float) * (size_t)s->n);
}

static void spread_by_dense(sparse *x)
{
    x->stage.dirty = true; /* `host` gets other contents */
    x->spread_u = has_nodes(x) && x->setup.absorb;
}

static ct_status sparse_ready(void *obj, const ct_codec_step *step, bool dense, double limit)
{
    sparse *x = obj;
    bool empty = false;

    x->stats.encoded_at[0] = ct_clock_s();
    CT_TRY(ct_side_begin(&x->side, &empty));
    if (!dense) return begin(x, step, limit);
    spread_by_dense(x);
    return ct_side_dense(&x->side, step, empty, limit);
}

static ct_status sparse_fold(void *obj, const ct_codec_step *step)
{
    sparse *x = obj;

    spread_by_dense(x);
    return ct_side_fold(&x->side, step, &x->stats, sparse_where(x));
}

static ct_status sparse_summed(void *obj)
{
    return ct_side_summed(&((sparse *)obj)->side);
}

/* ---- a step: the node's sum of a hier */

/* On the host: the gradient, or the state that is spread, which comes from a device for it; that is
 * rare, and waited for. It has a place of its own, since ranks may read each other's gradients
 * where they lie. */
static ct_status bring_node_data(sparse *x, float **data_p)
{
    ct_error_feedback *keep = &x->side.keep;
    size_t bytes = sizeof(float) * (size_t)x->req.n;
    bool of_u = (x->node == NODE_U);
    float *data = of_u ? keep->u : keep->v, **copy = of_u ? &keep->host_u : &keep->host_v;

    if (x->node == NODE_GRAD) data = x->side.host ? x->setup.grad : x->setup.host;
    *data_p = data;
    if (x->side.host || (x->node == NODE_GRAD)) return CT_OK;
    if (*copy == NULL) *copy = ct_mem_acquire(bytes);
    if (*copy == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a copy of %s", x->setup.key);
    *data_p = *copy;
    return x->setup.dev->to_host(x->side.stream, *copy, data, bytes);
}

static ct_status enter_node(sparse *x)
{
    float *data = NULL;

    if ((x->node == NODE_U) && !x->spread_u) x->node = NODE_V;
    if ((x->node == NODE_V) && !x->spread_v) x->node = NODE_GRAD;
    x->node_runs = true;
    CT_TRY(bring_node_data(x, &data));
    return x->exch->node_start(&x->req, data);
}

/* U or V of the node is summed: other elements are other ranks'. */
static ct_status keep_slice(sparse *x)
{
    ct_error_feedback *keep = &x->side.keep;
    bool of_u = (x->node == NODE_U);
    float *data = of_u ? keep->u : keep->v, *copy = of_u ? keep->host_u : keep->host_v;
    size_t first = (size_t)x->req.first, length = (size_t)x->req.length, end = first + length;

    CT_TRY(ct_side_zero(&x->side, data, sizeof(float) * first));
    CT_TRY(ct_side_zero(&x->side, data + end, sizeof(float) * ((size_t)x->req.n - end)));
    if (of_u)
        x->spread_u = false;
    else
        x->spread_v = false;
    x->node = of_u ? NODE_V : NODE_GRAD;
    if (x->side.host || (length == 0)) return CT_OK;
    return x->setup.dev->from_host(x->side.stream, data + first, copy + first,
                                   sizeof(float) * length);
}

/* … and what is selected from it. */
static ct_status progress_node(sparse *x)
{
    int64_t first = x->req.first, length = x->req.length;
    float *from = x->side.host ? x->setup.grad : x->setup.host;

    if (x->phase == PHASE_NODE_DOWN) {
        CT_TRY(ct_side_arrived(&x->side, sparse_where(x)));
        x->node = NODE_U;
        x->node_runs = false;
        x->stage.dirty = true;
        x->phase = PHASE_NODE;
    }
    for (;;) {
        if (!x->node_runs) CT_TRY(enter_node(x));
        CT_TRY(x->exch->node_progress(&x->req));
        x->node_runs = false;
        if (x->node == NODE_GRAD) break;
        CT_TRY(keep_slice(x));
    }
    ct_error_feedback_forget_copy(&x->side.keep);
    x->stats.encoded_at[0] = x->coded_at[0] = x->coded_at[1] = ct_clock_s();
    x->stats.exchange_s += x->stats.encoded_at[0] - x->left_at;
    x->phase = PHASE_DOWN;
    x->side.note = x->side.note_room;
    memset(x->side.note_room, 0, sizeof(*x->side.note_room));
    if (length == 0) return CT_OK;
    if (x->side.host) {
        x->phase = PHASE_ENCODE;
        return CT_OK;
    }
    CT_TRY(ct_side_lift(&x->side, from + first, x->setup.grad + first,
                        sizeof(float) * (size_t)length));
    return select_own(x);
}

/* ---- a step: from the payload to the sum */

/* On the host. Whoever computes notes the time of it, and no other figure. */
static ct_status encode(sparse *x)
{
    x->coded_at[0] = ct_clock_s();
    x->accum.n_thread = *x->setup.n_thread;
    CT_TRY(select_own(x));
    x->coded_at[1] = ct_clock_s();
    x->phase = PHASE_DOWN;
    return CT_OK;
}

/* The note of a device tells of its last sum. */
static ct_status take_note(sparse *x)
{
    const ct_coder_note *note = x->side.note;
    double now = ct_clock_s(), all = now - x->stats.encoded_at[0];
    double told = note->update_s + note->select_s;

    if (note->bad != 0)
        return CT_FAIL(CT_ERR_DIVERGED, "an accumulated gradient holds NaN or infinity");
    if (note->wrong != 0)
        return CT_FAIL(CT_ERR_COMM,
                       "a payload of the last step named elements out of order, or beyond its %lld",
                       (long long)x->setup.n);
    if (x->side.host) {
        x->stats.encoded_at[0] = x->coded_at[0];
        all = x->coded_at[1] - x->coded_at[0];
    }
    x->stats.selected += note->count;
    if (x->warms) x->stats.warm_selected += note->count;
    if (!x->side.host && (x->exch == NULL)) x->stats.filled += note->filled;
    if (x->size.n > 0) x->stats.bytes_coded += (int64_t)payload_bytes(x);
    x->stats.accumulate_s += note->update_s;
    x->stats.select_s += (told > 0) ? note->select_s : all;
    x->stats.pack_s += (told > 0) ? all - told : 0;
    x->left_at = now;
    return CT_OK;
}

/* The payload is here: its entries are this rank's. */
static ct_status start_exchange(sparse *x)
{
    ct_codec_side *d = &x->side;
    staging *g = &x->stage;

    x->req.own = (d->host && (x->picker != NULL)) ? d->kernels->entries(x->picker) : &x->own;
    if (d->host) {
        x->own.n = x->req.length;
        x->req.residual = (ct_residual_return){ .v = d->keep.v + x->req.first };
        return x->exch->start(&x->req);
    }
    x->own.n = x->req.length;
    x->own.count = 0;
    if (x->size.n > 0)
        CT_TRY(ct_payload_unpack(g->payload, payload_bytes(x), x->req.length, &x->own));
    if (g->dirty && x->exch->lists) memset(x->setup.host, 0, sizeof(float) * (size_t)x->req.n);
    g->dirty = false;
    ct_residual_return_clear(&g->drops);
    x->req.residual = (ct_residual_return){ .list = &g->drops, .first = x->req.first };
    return x->exch->start(&x->req);
}

static ct_status leave(sparse *x)
{
    double noted = 0;

    CT_TRY(ct_side_arrived(&x->side, sparse_where(x)));
    CT_TRY(take_note(x));
    noted = x->left_at;
    x->phase = PHASE_EXCHANGE;
    if (x->gather != NULL)
        CT_TRY(ct_allgatherv_start(x->gather, payload_bytes(x)));
    else if (x->exch != NULL)
        CT_TRY(start_exchange(x));
    x->left_at = x->stats.encoded_at[1] = ct_clock_s();
    x->stats.pack_s += x->left_at - noted;
    return CT_OK;
}

static ct_status sparse_start(void *obj, const ct_codec_step *step)
{
    sparse *x = obj;
    bool empty = false;

    x->apart = step->apart;
    x->stats.n_step += 1;
    x->stats.bytes_dense += x->setup.n * (int64_t)sizeof(float);
    x->phase = has_nodes(x) ? PHASE_NODE_DOWN : PHASE_DOWN;
    x->left_at = ct_clock_s();
    if (x->side.host) {
        x->stats.encoded_at[0] = x->left_at;
        CT_TRY(ct_side_begin(&x->side, &empty));
        CT_TRY(begin(x, step, 0));
    }
    x->stats.warm_steps += x->warms;
    if (!x->side.host) return CT_OK;
    if (!has_nodes(x)) {
        x->phase = PHASE_ENCODE;
        if (x->apart) return CT_OK;
        CT_TRY(encode(x));
        return leave(x);
    }
    x->node = NODE_U;
    x->node_runs = false;
    x->phase = PHASE_NODE;
    return x->apart ? CT_OK : enter_node(x);
}

/* What the others sent goes up, and all is added there. */
static ct_status add_all(sparse *x)
{
    ct_codec_side *d = &x->side;
    const ct_codec_setup *s = &x->setup;

    for (int i = 0; i < s->comm->size; ++i) {
        void *from = ct_allgatherv_payload(x->gather, i);

        x->bytes[i] = ct_allgatherv_bytes(x->gather, i);
        if (d->host || (i == x->me)) continue;
        CT_TRY(ct_payload_check(from, x->bytes[i], s->n));
        CT_TRY(ct_side_lift(d, from, (void *)(uintptr_t)x->payload[i], x->bytes[i]));
    }
    return d->kernels->add(x->picker, d->stream, x->payload, x->bytes, s->comm->size, s->grad);
}

static ct_status put_back(sparse *x)
{
    staging *g = &x->stage;
    const ct_sparse *entry = &g->drops.entry;
    size_t bytes = sizeof(float) * (size_t)entry->count;
    uint32_t *index = (void *)g->drops_there;
    float *value = (void *)(g->drops_there + drops_bytes(x));

    ct_residual_return_next(&x->req.residual);
    if (g->drops.full)
        return CT_FAIL(CT_ERR_COMM, "the exchange of %s dropped more than its %lld entries",
                       x->setup.key, (long long)entry->room);
    if (entry->count == 0) return CT_OK;
    CT_TRY(ct_side_lift(&x->side, entry->index, index, bytes));
    CT_TRY(ct_side_lift(&x->side, entry->value, value, bytes));
    for (int b = 0; b < g->drops.n_batch; ++b) {
        int64_t first = (b > 0) ? g->drops.end[b - 1] : 0;

        CT_TRY(x->side.kernels->put_back(x->side.coder, x->side.stream, index + first,
                                         value + first, g->drops.end[b] - first, x->side.keep.v));
    }
    return CT_OK;
}

/* The sum of an exchange, and what it dropped, go up. */
static ct_status lift_sum(sparse *x)
{
    staging *g = &x->stage;
    const void *there = g->there;
    size_t bytes = 0;

    if (x->req.list != NULL) {
        if (g->list.count > x->req.most)
            return CT_FAIL(CT_ERR_COMM, "the sum of %s has %lld entries, of at most %lld",
                           x->setup.key, (long long)g->list.count, (long long)x->req.most);
        bytes = ct_payload_pack(CT_PAYLOAD_PAIRS, &g->list, g->sum);
    } else {
        CT_TRY(ct_payload_pack_vector(x->setup.host, x->req.n, &g->list, g->sum, &bytes));
    }
    CT_TRY(ct_side_lift(&x->side, g->sum, g->there, bytes));
    CT_TRY(x->side.kernels->add(x->side.coder, x->side.stream, &there, &bytes, 1, x->setup.grad));
    return put_back(x);
}

static ct_status deliver(sparse *x)
{
    if (x->gather != NULL) return add_all(x);
    return ((x->exch == NULL) || x->side.host) ? CT_OK : lift_sum(x);
}

static ct_status decode(sparse *x)
{
    x->coded_at[0] = ct_clock_s();
    CT_TRY(deliver(x));
    CT_TRY(ct_side_hand_over(&x->side));
    x->coded_at[1] = ct_clock_s();
    x->phase = PHASE_DONE;
    return CT_OK;
}

static ct_status progress_exchange(sparse *x)
{
    double before = x->req.decode_s;
    ct_status status = CT_OK;

    if (x->gather != NULL) return ct_allgatherv_progress(x->gather, &x->bytes_sent, &x->where);
    if (x->exch == NULL) return CT_OK;
    status = x->exch->progress(&x->req);
    x->stats.unpack_s += x->req.decode_s - before;
    x->stats.exchange_s -= x->req.decode_s - before;
    return status;
}

/* All has come. An exchange has added it up already. */
static ct_status land(sparse *x)
{
    double before = x->req.decode_s, now = 0;

    CT_TRY(progress_exchange(x));
    now = ct_clock_s();
    x->stats.exchange_s += now - x->left_at;
    x->stats.decoded_at[0] = now - (x->req.decode_s - before);
    x->phase = PHASE_DECODE;
    return CT_OK;
}

static void note_decoding(sparse *x)
{
    if (x->exch != NULL)
        x->stats.filled += x->req.filled;
    else if (x->side.host)
        x->stats.filled += x->side.note->filled;
    if (x->gather != NULL) x->stats.decoded_at[0] = x->coded_at[0];
    x->stats.decoded_at[1] = x->coded_at[1];
    x->stats.unpack_s += x->coded_at[1] - x->coded_at[0];
}

static bool sparse_codes(const void *obj)
{
    const sparse *x = obj;

    return x->apart &&
           ((x->phase == PHASE_ENCODE) || ((x->phase == PHASE_DECODE) && (x->gather != NULL)));
}

static ct_status sparse_code(void *obj)
{
    sparse *x = obj;

    return (x->phase == PHASE_ENCODE) ? encode(x) : decode(x);
}

static ct_status sparse_progress(void *obj)
{
    sparse *x = obj;

    if (x->phase <= PHASE_NODE) CT_TRY(progress_node(x));
    if (sparse_codes(x)) return CT_INPROGRESS;
    if (x->phase == PHASE_ENCODE) CT_TRY(encode(x));
    if (x->phase == PHASE_DOWN) CT_TRY(leave(x));
    if (x->phase == PHASE_EXCHANGE) CT_TRY(land(x));
    if (sparse_codes(x)) return CT_INPROGRESS;
    if (x->phase == PHASE_DECODE) CT_TRY(decode(x));
    note_decoding(x);
    return CT_OK;
}

/* ---- looks */

static int sparse_pending(void *obj, MPI_Request **out, int max)
{
    sparse *x = obj;

    if ((x->phase != PHASE_EXCHANGE) && ((x->phase != PHASE_NODE) || !x->node_runs)) return 0;
    if (x->gather != NULL) return ct_allgatherv_pending(x->gather, out, max);
    return (x->exch != NULL) ? x->exch->pending(&x->req, out, max) : 0;
}

static const char *sparse_exchange(const void *obj)
{
    const sparse *x = obj;

    if (x->exch != NULL) return x->exch->name;
    return (x->gather != NULL) ? "allgather" : "one rank";
}

static int64_t sparse_dense_until(const void *obj)
{
    return ((const sparse *)obj)->warmup.dense_until;
}

static bool sparse_state(void *obj, int i, ct_codec_state *out)
{
    return ct_error_feedback_state(&((sparse *)obj)->side.keep, i, out);
}

static ct_status sparse_restored(void *obj)
{
    sparse *x = obj;

    x->spread_v = has_nodes(x);
    x->spread_u = x->spread_v && x->setup.absorb;
    CT_TRY(ct_error_feedback_restored(&x->side.keep));
    if ((x->picker != x->side.coder) && (x->picker != NULL))
        CT_TRY(x->side.kernels->forget(x->picker, x->side.stream));
    return x->side.kernels->forget(x->side.coder, x->side.stream);
}

static void sparse_stats(const void *obj, ct_codec_stats *out)
{
    const sparse *x = obj;

    *out = x->stats;
    out->bytes_sent = (x->exch != NULL) ? x->req.bytes_sent : x->bytes_sent;
}

static double sparse_left(void *obj)
{
    return ct_side_left(&((sparse *)obj)->side);
}

static ct_status topk_check(const ct_codec_config *c)
{
    if (c->momentum_correction)
        return CT_FAIL(CT_ERR_CONFIG,
                       "compression topk is the plain one, without momentum_correction; redsync "
                       "is topk with it");
    return ct_sparse_check(c);
}

#define SPARSE_OPS                                                                                 \
    .on_device = true, .gathers = true, .size = sizeof(sparse), .destroy = sparse_destroy,         \
    .dense_until = sparse_dense_until, .fold = sparse_fold, .ready = sparse_ready,                 \
    .summed = sparse_summed, .start = sparse_start, .progress = sparse_progress,                   \
    .codes = sparse_codes, .code = sparse_code, .pending = sparse_pending, .where = sparse_where,  \
    .exchange = sparse_exchange, .state = sparse_state, .restored = sparse_restored,               \
    .stats = sparse_stats, .left = sparse_left

const ct_codec_ops ct_codec_topk = {
    .name = "topk",
    .uses = CT_CODEC_USES_DENSITY | CT_CODEC_USES_RESYNC,
    SPARSE_OPS,
    .check = topk_check,
    .prepare = topk_prepare,
    .payload_bytes = ct_topk_payload_bytes,
    .seconds = ct_topk_seconds,
};

const ct_codec_ops ct_codec_redsync = {
    .name = "redsync",
    .uses = CT_CODEC_USES_DENSITY | CT_CODEC_USES_RESYNC | CT_CODEC_USES_MOMENTUM_CORRECTION |
            CT_CODEC_USES_MASK_MOMENTUM,
    SPARSE_OPS,
    .automatic = true,
    .check = ct_sparse_check,
    .prepare = redsync_prepare,
    .payload_bytes = ct_redsync_payload_bytes,
    .seconds = ct_redsync_seconds,
};
