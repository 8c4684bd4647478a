/* Attention: softmax(scale q k^T) v over the heads of queries, keys and values that other layers
 * made. Blobs are sequences x tokens x channels; a token's heads lie side by side, and are read
 * where they lie. */
#include "framework/base/bf16.h"
#include "framework/base/memory.h"
#include "framework/base/rng.h"
#include "layers/engine/attention/attention.h"
#include "layers/layer_util.h"
#include "layers/types/layer_types.h"

#include <math.h>
#include <string.h>

typedef struct attention_state {
    int64_t heads, kv_heads; /* that are here */
    int64_t head_first, head_all;
    int64_t window, rope_dim; /* rope_dim -1: the whole head; 0: nothing turns */
    bool causal, interleaved;
    bool packed, segments; /* what bottoms there are */
    double base;
    float scale;
    uint64_t drop_below, name_hash;
    float keep_scale;
} attention_state;

typedef struct attention_plan {
    ct_attention_desc desc;
    const ct_attention_impl *forward, *backward; /* backward NULL: no gradient wanted */
    float *turn, *turn_there;                    /* the latter where the layer runs */
    int64_t n_turn, turn_dim;
} attention_plan;

enum { STATS, WORK };

/* Rows of bf16 numbers, q, k and v alike; segment numbers are f32. */
static bool takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    int n = (p->n_bottom > 2) ? 3 : 1;

    for (int i = 0; i < n; i++) {
        if (!ct_layer_takes_rows(bottom[i]) || !ct_blob_is_bf16(bottom[i])) return false;
    }
    return slot < n;
}

/* ---- what the prototxt says */

static ct_status rope_setup(ct_layer *l, const Ct__RotaryParameter *p)
{
    attention_state *s = l->state;

    if (p == NULL) return CT_OK;
    if (p->dim % 2 != 0)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "attention_param.rope.dim %u is odd: dimensions turn in pairs",
                             p->dim);
    if (!(p->base_ > 0.0f) || (p->base_ == INFINITY))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "attention_param.rope.base %g is not positive",
                             (double)p->base_);
    s->rope_dim = (p->dim > 0) ? (int64_t)p->dim : -1;
    s->base = (double)p->base_;
    s->interleaved = p->interleaved;
    return CT_OK;
}

/* A part has its share of the heads of queries, and of those of keys that go with them. */
static ct_status take_heads(const ct_layer *l, attention_state *s)
{
    const Ct__LayerPart *part = ct_layer_narrowed(l);

    s->head_all = s->heads;
    if (part == NULL) return CT_OK;
    if ((s->heads % part->count != 0) || (s->kv_heads % part->count != 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "%lld heads, %lld of keys, cannot be shared out to %d parts",
                             (long long)s->heads, (long long)s->kv_heads, part->count);
    s->heads /= part->count;
    s->kv_heads /= part->count;
    s->head_first = part->index * s->heads;
    return CT_OK;
}

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__AttentionParameter *p = l->param->attention_param;
    attention_state *s = l->state;

    (void)bottom;
    if ((p == NULL) || (p->num_heads == 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "attention_param.num_heads is missing or 0");
    s->heads = p->num_heads;
    s->kv_heads = (p->num_kv_heads > 0) ? p->num_kv_heads : p->num_heads;
    if (s->heads % s->kv_heads != 0)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "attention_param.num_kv_heads %lld does not divide num_heads %lld",
                             (long long)s->kv_heads, (long long)s->heads);
    CT_TRY(take_heads(l, s));
    if ((p->window > 0) && !p->causal)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "attention_param.window %u wants causal: true, it looks back",
                             p->window);
    if (!((p->dropout >= 0.0f) && (p->dropout < 1.0f)))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "attention_param.dropout %g is not in [0, 1)",
                             (double)p->dropout);
    if (!isfinite(p->scale))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "attention_param.scale %g is no number",
                             (double)p->scale);
    s->causal = p->causal;
    s->window = p->window;
    s->scale = p->scale;
    s->drop_below = (l->phase == CT_TRAIN) ? (uint64_t)((double)p->dropout * 0x1p32) : 0;
    s->keep_scale = (float)(1.0 / (1.0 - (double)p->dropout));
    s->name_hash = ct_rng_hash(l->name);
    s->packed = l->n_bottom <= 2;
    s->segments = l->n_bottom % 2 == 0;
    return rope_setup(l, p->rope);
}

/* ---- what the shapes say */

static ct_status check_sequences(const ct_layer *l, const ct_shape *x, const char *what)
{
    if ((x->ndim == 3) && (x->dim[1] > 0)) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "%s of shape %s: sequences x tokens x channels is needed",
                         what, ct_shape_str(x).text);
}

/* *dim_p = channels / heads. */
static ct_status head_dim(const ct_layer *l, const ct_shape *x, int64_t heads, const char *what,
                          int64_t *dim_p)
{
    if ((x->dim[2] == 0) || (x->dim[2] % heads != 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%lld %s do not divide %lld channels",
                             (long long)heads, what, (long long)x->dim[2]);
    *dim_p = x->dim[2] / heads;
    return CT_OK;
}

static ct_status packed_shapes(const ct_layer *l, const ct_instance *in, ct_attention_desc *d)
{
    const attention_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;

    CT_TRY(check_sequences(l, x, "packed q, k and v"));
    CT_TRY(head_dim(l, x, s->heads + 2 * s->kv_heads, "heads of q, k and v together", &d->dim));
    d->n = x->dim[0];
    d->tq = d->tk = x->dim[1];
    d->q_row = d->k_row = d->v_row = x->dim[2];
    return CT_OK;
}

static ct_status separate_shapes(const ct_layer *l, const ct_instance *in, ct_attention_desc *d)
{
    const attention_state *s = l->state;
    const ct_shape *q = &in->bottom[0]->data.shape, *k = &in->bottom[1]->data.shape;
    const ct_shape *v = &in->bottom[2]->data.shape;
    int64_t of_keys;

    CT_TRY(check_sequences(l, q, "q"));
    CT_TRY(check_sequences(l, k, "k"));
    CT_TRY(head_dim(l, q, s->heads, "heads of q", &d->dim));
    CT_TRY(head_dim(l, k, s->kv_heads, "heads of k", &of_keys));
    if ((of_keys != d->dim) || (q->dim[0] != k->dim[0]) || !ct_shape_equal(k, v))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "q, k and v of shapes %s, %s and %s: as many sequences, and k and v "
                             "alike with %lld channels, are needed",
                             ct_shape_str(q).text, ct_shape_str(k).text, ct_shape_str(v).text,
                             (long long)(d->dim * s->kv_heads));
    d->n = q->dim[0];
    d->tq = q->dim[1];
    d->tk = k->dim[1];
    d->q_row = q->dim[2];
    d->k_row = d->v_row = k->dim[2];
    return CT_OK;
}

static ct_status check_segments(const ct_layer *l, const ct_instance *in,
                                const ct_attention_desc *d)
{
    const attention_state *s = l->state;
    const ct_shape *x = &in->bottom[l->n_bottom - 1]->data.shape;

    if (!s->segments) return CT_OK;
    if ((x->ndim != 2) || (x->dim[0] != d->n) || (x->dim[1] != d->tk))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "segment numbers of shape %s: one a key, %lld x %lld, is needed",
                             ct_shape_str(x).text, (long long)d->n, (long long)d->tk);
    if (!d->causal && (d->tq != d->tk))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "segment numbers with %lld queries and %lld keys want causal: true",
                             (long long)d->tq, (long long)d->tk);
    return CT_OK;
}

static ct_status describe(const ct_layer *l, const ct_instance *in, ct_attention_desc *d)
{
    const attention_state *s = l->state;

    *d = (ct_attention_desc){ .device = l->dev->kind,
                              .n_thread = ct_engine_n_thread(l),
                              .heads = s->heads,
                              .kv_heads = s->kv_heads,
                              .head_first = s->head_first,
                              .head_all = s->head_all,
                              .causal = s->causal,
                              .window = s->window,
                              .interleaved = s->interleaved,
                              .bf16 = ct_blob_is_bf16(in->bottom[0]),
                              .drop_below = s->drop_below,
                              .keep_scale = s->keep_scale };
    CT_TRY(s->packed ? packed_shapes(l, in, d) : separate_shapes(l, in, d));
    if (d->causal && (d->tk < d->tq))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "causal with %lld keys and %lld queries: the first queries would see "
                             "nothing",
                             (long long)d->tk, (long long)d->tq);
    CT_TRY(check_segments(l, in, d));
    d->scale = (s->scale != 0.0f) ? s->scale : (float)(1.0 / sqrt((double)d->dim));
    d->rope_dim = (s->rope_dim < 0) ? d->dim : s->rope_dim;
    if ((d->rope_dim > d->dim) || (d->rope_dim % 2 != 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "attention_param.rope: %lld dimensions do not turn in pairs within a "
                             "head's %lld",
                             (long long)d->rope_dim, (long long)d->dim);
    if ((l->env->packed != NULL) && (l->env->packed->longest > 0)) {
        d->n = l->env->packed->n;
        d->tq = d->tk = l->env->packed->longest;
    }
    d->wants_q = in->bottom[0]->wants_diff;
    d->wants_kv = s->packed ? d->wants_q : in->bottom[1]->wants_diff || in->bottom[2]->wants_diff;
    return ct_attention_split(d);
}

static void drop_turns(const ct_layer *l, attention_plan *p)
{
    ct_layer_constant_release(l, p->turn, p->turn_there);
    ct_mem_release(p->turn);
    p->turn = p->turn_there = NULL;
    p->n_turn = 0;
}

/* Cosines and sines of all positions: those that there are may be more. */
static ct_status make_turns(const ct_layer *l, attention_plan *p)
{
    const attention_state *s = l->state;
    const ct_attention_desc *d = &p->desc;
    int64_t n = (d->tq > d->tk) ? d->tq : d->tk;

    if ((l->env->packed != NULL) && (l->env->packed->capacity > n)) n = l->env->packed->capacity;
    if ((d->rope_dim == 0) || ((p->n_turn >= n) && (p->turn_dim == d->rope_dim))) return CT_OK;
    drop_turns(l, p);
    p->turn = ct_mem_acquire((size_t)(n * d->rope_dim) * sizeof(float));
    if (p->turn == NULL)
        return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory for the angles of %lld positions",
                             (long long)n);
    ct_attention_turns(0, n, d->rope_dim, s->base, p->turn);
    CT_TRY(ct_layer_constant(l, p->turn, n * d->rope_dim, &p->turn_there));
    p->n_turn = n;
    p->turn_dim = d->rope_dim;
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    attention_plan *p = in->state;
    ct_attention_desc *d = &p->desc;
    size_t work, more;
    ct_shape top;
    bool back;

    CT_TRY(describe(l, in, d));
    CT_TRY(make_turns(l, p));
    back = d->wants_q || d->wants_kv;
    p->backward = NULL;
    CT_TRY(ct_attention_pick(l, CT_RUN_FORWARD, ct_attention_forward_table, d, &p->forward));
    work = ct_attention_workspace(p->forward, d);
    if (back) {
        CT_TRY(ct_attention_pick(l, CT_RUN_BACKWARD_DATA, ct_attention_backward_table, d,
                                 &p->backward));
        more = ct_attention_workspace(p->backward, d);
        work = (more > work) ? more : work;
    }
    ct_instance_buffer(in, STATS, CT_LIFETIME_PASS,
                       back ? (size_t)(d->n * d->heads * d->tq * 2) * sizeof(float) : 0);
    ct_instance_buffer(in, WORK, CT_LIFETIME_CALL, work);
    top = in->bottom[0]->data.shape; /* sequences and queries */
    top.dim[2] = d->heads * d->dim;
    ct_blob_set_like(in->top[0], &top, &in->bottom[0]->data);
    return CT_OK;
}

/* ---- passes */

/* Operands where they lie; their gradients, too. */
static ct_attention_args make_args(const ct_layer *l, const ct_instance *in, const ct_exec *ex)
{
    const attention_state *s = l->state;
    const attention_plan *p = in->state;
    const ct_attention_desc *d = &p->desc;
    int64_t keys = d->heads * d->dim, values = keys + d->kv_heads * d->dim;
    ct_attention_args a = { .turn = p->turn_there,
                            .y = ct_blob_data(in->top[0]),
                            .dy = ct_blob_diff(in->top[0]),
                            .work = in->buffer[WORK].data,
                            .q = ct_blob_data(in->bottom[0]),
                            .dq = ct_blob_diff(in->bottom[0]) };

    a.k = s->packed ? ct_num_at(a.q, d->bf16, keys) : ct_blob_data(in->bottom[1]);
    a.v = s->packed ? ct_num_at(a.q, d->bf16, values) : ct_blob_data(in->bottom[2]);
    if (!s->packed) {
        a.dk = ct_blob_diff(in->bottom[1]);
        a.dv = ct_blob_diff(in->bottom[2]);
    } else if (a.dq != NULL) {
        a.dk = ct_num_to(a.dq, d->bf16, keys);
        a.dv = ct_num_to(a.dq, d->bf16, values);
    }
    if (l->env->packed != NULL) a.at = l->env->packed->at;
    if (s->segments) a.segment = ct_blob_data(in->bottom[l->n_bottom - 1]);
    if (in->buffer[STATS].bytes > 0) a.stats = in->buffer[STATS].data;
    a.key = ct_rng_key(ex->seed, (uint64_t)ex->micro_step, s->name_hash);
    a.layer = s->name_hash;
    if ((ex->batch_local > 0) && (d->n % ex->batch_local == 0)) /* sequences of each sample */
        a.first = ex->batch_first * (d->n / ex->batch_local);
    return a;
}

/* Sequences side by side, of which some grow. */
static ct_status forward_some_grow(const ct_layer *l, const ct_instance *in, ct_exec *ex,
                                   const ct_attention_args *a)
{
    const attention_plan *p = in->state;
    const ct_packed *packed = l->env->packed;
    ct_attention_desc own = p->desc;
    ct_attention_args of = *a;
    int64_t end;

    for (int64_t i = 0; i < packed->n; i = end) {
        bool whole = (packed->page[i] == NULL);
        ct_attention_cache cache = { .kept = packed->kept[in->number],
                                     .capacity = packed->capacity,
                                     .at = packed->at + i,
                                     .before = packed->before + i,
                                     .page = packed->page + i };

        for (end = i + 1; (end < packed->n) && ((packed->page[end] == NULL) == whole);) end++;
        cache.n = own.n = end - i;
        of.at = packed->at + i;
        of.work = whole ? a->work : packed->work;
        own.n_thread = p->desc.n_thread;
        if (!whole && (packed->n_thread < own.n_thread)) own.n_thread = packed->n_thread;
        if (whole)
            CT_TRY(p->forward->run(&own, ex, &of));
        else
            ct_attention_cached(&own, &cache, &of);
    }
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const attention_plan *p = in->state;
    ct_attention_args a = make_args(l, in, ex);

    if ((l->env->packed != NULL) && (l->env->packed->kept != NULL))
        return forward_some_grow(l, in, ex, &a);
    return p->forward->run(&p->desc, ex, &a);
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const attention_plan *p = in->state;
    ct_attention_args a = make_args(l, in, ex);

    if ((p->backward == NULL) || ((a.dq == NULL) && (a.dk == NULL) && (a.dv == NULL))) return CT_OK;
    return p->backward->run(&p->desc, ex, &a);
}

/* Scores and what they weigh: two products of what is visible. Backward makes the scores again, and
 * four more. */
static void estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const attention_plan *p = in->state;
    const ct_attention_desc *d = &p->desc;
    double product = 2.0 * ct_attention_pairs(d) * (double)(d->n * d->heads * d->dim);
    double stats = (double)in->buffer[STATS].bytes;

    (void)l;
    e->forward_flop = 2.0 * product;
    e->backward_flop = (d->wants_q ? 3.0 : 2.0) * product + (d->wants_kv ? 2.0 * product : 0.0);
    e->forward_bytes += stats;
    e->backward_bytes += stats;
    e->engine[CT_RUN_FORWARD] = p->forward->name;
    if (p->backward != NULL) e->engine[CT_RUN_BACKWARD_DATA] = p->backward->name;
}

/* ---- sequences that grow */

static ct_status keep(const ct_layer *l, const ct_instance *in, int64_t pages, int64_t capacity,
                      size_t *kept_p, size_t *work_p)
{
    const attention_state *s = l->state;
    const ct_attention_desc *d = &((const attention_plan *)in->state)->desc;
    ct_attention_desc own = *d;

    if (!d->causal)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "without causal: true a token sees those that follow it: the net "
                             "cannot run token by token");
    if (s->segments)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "segment numbers: the net cannot run token by token");
    if (!ct_attention_cached_supports(d))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "heads of %lld channels, %lld queries, %lld keys: the net cannot run "
                             "token by token",
                             (long long)d->dim, (long long)d->tq, (long long)d->tk);
    *kept_p = (size_t)pages * ct_attention_page_bytes(d);
    own.n_thread = l->env->packed->n_thread;
    *work_p = ct_attention_cached_workspace(&own, capacity, l->env->packed->n);
    return CT_OK;
}

static const ct_sequence_ops attention_sequence = { .keep = keep, .packs = true };

static void release(const ct_layer *l, ct_instance *in)
{
    drop_turns(l, in->state);
}

static const ct_layout_ops attention_layout = { .takes = takes, .bf16 = true, .tokens = true };

const ct_layer_ops ct_layer_attention = {
    .type = "Attention",
    .params = "attention_param",
    .min_bottom = 1,
    .max_bottom = 4,
    .min_top = 1,
    .max_top = 1,
    .no_diff_last_of = 1u << 2 | 1u << 4, /* segment numbers */
    .backward_reads = CT_READS_BOTTOM | CT_READS_TOP,
    .splits = CT_SPLIT_HEADS,
    .state_size = sizeof(attention_state),
    .instance_state_size = sizeof(attention_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .estimate = estimate,
    .release = release,
    .on_cuda = true,
    .layout = &attention_layout,
    .sequence = &attention_sequence,
};
