/* ReLU and PReLU. */
#include "layers/engine/relu/relu.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

/* ---- y = x for x > 0, else negative_slope * x. */

typedef struct relu_state {
    float slope;
} relu_state;

typedef struct relu_instance {
    ct_relu_desc desc;
    const ct_relu_impl *forward, *backward;
} relu_instance;

static ct_status relu_setup(ct_layer *l, const ct_shape *bottom)
{
    relu_state *s = l->state;

    (void)bottom;
    if (l->param->relu_param != NULL) s->slope = l->param->relu_param->negative_slope;
    /* a slope of 0 or more keeps the sign of x or makes it 0, so the top tells it: in place too */
    l->backward_reads = (s->slope >= 0.0f) ? CT_READS_TOP : CT_READS_BOTTOM;
    return CT_OK;
}

static bool relu_as_tail(const Ct__LayerParameter *p, ct_epilogue_kind *kind_p)
{
    *kind_p = CT_EPILOGUE_RELU;
    return (p->ct_kernel == NULL) &&
           ((p->relu_param == NULL) || (p->relu_param->negative_slope == 0.0f));
}

static ct_status relu_reshape(const ct_layer *l, ct_instance *in)
{
    const relu_state *s = l->state;
    relu_instance *r = in->state;

    if ((s->slope < 0.0f) && (in->top[0] == in->bottom[0]))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "negative_slope %g is below 0: that cannot run in place, since the "
                             "top no longer tells the sign of the bottom",
                             (double)s->slope);
    in->over = 1;
    if (in->top[0] != in->bottom[0])
        ct_blob_set_like(in->top[0], &in->bottom[0]->data.shape, &in->bottom[0]->data);
    r->desc = (ct_relu_desc){ .device = l->dev->kind,
                              .n_thread = ct_engine_n_thread(l),
                              .count = ct_tensor_stored(&in->bottom[0]->data),
                              .slope = s->slope,
                              .bf16 = ct_blob_is_bf16(in->bottom[0]),
                              .dtype = in->bottom[0]->data.dtype };
    CT_TRY(ct_relu_pick(l, CT_RUN_FORWARD, ct_relu_forward_table, &r->desc, &r->forward));
    return ct_relu_pick(l, CT_RUN_BACKWARD_DATA, ct_relu_backward_table, &r->desc, &r->backward);
}

static ct_status relu_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    relu_instance *r = in->state;

    (void)l;
    return r->forward->run(
        &r->desc, ex,
        &(ct_relu_args){ .x = ct_blob_data(in->bottom[0]), .y = ct_blob_data(in->top[0]) });
}

static ct_status relu_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    relu_instance *r = in->state;
    const ct_blob *sign = (l->backward_reads == CT_READS_TOP) ? in->top[0] : in->bottom[0];

    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return r->backward->run(&r->desc, ex,
                            &(ct_relu_args){ .x = ct_blob_data(sign),
                                             .dy = ct_blob_diff(in->top[0]),
                                             .dx = ct_blob_diff(in->bottom[0]) });
}

static void relu_estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const relu_instance *r = in->state;

    (void)l;
    e->engine[CT_RUN_FORWARD] = r->forward->name;
    e->engine[CT_RUN_BACKWARD_DATA] = r->backward->name;
    e->forward_flop = e->backward_flop = (double)ct_tensor_count(&in->bottom[0]->data);
}

static const ct_fusion_ops relu_fusion = {
    .as_epilogue = relu_as_tail,
};

const ct_layer_ops ct_layer_relu = {
    .type = "ReLU",
    .params = "relu_param",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .allow_inplace = true,
    .splits = CT_SPLIT_EACH,
    .backward_reads = CT_READS_TOP | CT_READS_BOTTOM, /* setup narrows */
    .state_size = sizeof(relu_state),
    .instance_state_size = sizeof(relu_instance),
    .setup = relu_setup,
    .reshape = relu_reshape,
    .forward = relu_forward,
    .backward = relu_backward,
    .estimate = relu_estimate,
    .on_cuda = true,
    .layout = &ct_layout_all,
    .fusion = &relu_fusion,
    .sequence = &ct_sequence_apart,
};

/* ---- PReLU: y = x above 0, else a x with a learned slope a for each channel, or one for all. In
 * place the input is kept, as its sign is not that of y. */

typedef struct prelu_state {
    Ct__FillerParameter quarter; /* the default filler */
    bool shared;
} prelu_state;

enum { INPUT, BELOW };

/* One slope for all channels would need a sum of its gradients. */
static unsigned splits_of(const Ct__LayerParameter *p)
{
    return ((p->prelu_param != NULL) && p->prelu_param->channel_shared) ? 0 : CT_SPLIT_CHANNEL;
}

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__PReLUParameter *p = l->param->prelu_param;
    prelu_state *s = l->state;
    ct_shape whole = bottom[0];
    const Ct__FillerParameter *filler;

    if (bottom[0].ndim < 2)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the bottom %s has no channels: 2 axes are needed",
                             ct_shape_str(&bottom[0]).text);
    ct__filler_parameter__init(&s->quarter);
    s->quarter.value = 0.25f;
    s->shared = (p != NULL) && p->channel_shared;
    filler = ((p != NULL) && (p->filler != NULL)) ? p->filler : &s->quarter;
    CT_TRY(ct_layer_widen(l, 1, &whole));
    if (!s->shared) return ct_layer_add_part(l, &(ct_shape){ 1, { whole.dim[1] } }, 0, filler);
    ct_layer_add_weight(l, &(ct_shape){ 0 }, filler);
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const prelu_state *s = l->state;
    const ct_blob *x = in->bottom[0];
    size_t bytes = (size_t)ct_tensor_stored(&x->data) * sizeof(float);
    bool in_place = in->top[0] == x;
    ct_view *v = in->state;

    if ((x->data.shape.ndim < 2) ||
        (!s->shared && (x->data.shape.dim[1] != l->weight[0].shape.dim[0])))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom %s, slopes %s",
                             ct_shape_str(&x->data.shape).text,
                             ct_shape_str(&l->weight[0].shape).text);
    *v = ct_view_make(&x->data.shape, 1, 1);
    v->block = x->data.layout.block;
    ct_instance_buffer(in, INPUT, CT_LIFETIME_PASS,
                       (in_place && in->top[0]->wants_diff) ? bytes : 0);
    ct_instance_buffer(in, BELOW, CT_LIFETIME_CALL, in->top[0]->wants_diff ? bytes : 0);
    if (in_place) in->backward_reads = 0;
    in->over = 1;
    if (!in_place) ct_blob_set_layout(in->top[0], &x->data.shape, x->data.layout);
    return CT_OK;
}

/* to = from, times the slope where x is not above 0. Rows of channels: n x width numbers, of which
 * number i of a row has slope[i]. */
static void map_rows(int64_t n, int width, const float *x, const float *from, const float *slope,
                     float *to)
{
    for (int64_t r = 0; r < n; r++) {
#pragma omp simd
        for (int i = 0; i < width; i++) {
            float below = slope[i] * from[r * width + i];

            to[r * width + i] = (x[r * width + i] > 0.0f) ? from[r * width + i] : below;
        }
    }
}

static void map(const ct_view *v, bool shared, const float *x, const float *from,
                const float *slope, float *to)
{
    enum { WIDE = 64 };
    ct_blocked b = { v->outer, v->mid, v->inner, (v->block > 0) ? v->block : 1, false };
    int64_t n = ct_blocked_n(&b), row = b.inner * b.block;

#pragma omp parallel for schedule(static) if (b.outer * n * row >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < b.outer * n; r++) {
        float each[WIDE];
        int64_t at = r * row, left = row;

        if (b.block > 1) {
            ct_blocked_pick(&b, r % n, shared ? NULL : slope, slope[0], each);
            map_rows(b.inner, b.block, x + at, from + at, each, to + at);
            continue;
        }
        for (int i = 0; i < WIDE; i++) each[i] = slope[shared ? 0 : r % n];
        map_rows(left / WIDE, WIDE, x + at, from + at, each, to + at);
        at += left / WIDE * WIDE;
        map_rows(1, (int)(left % WIDE), x + at, from + at, each, to + at);
    }
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const prelu_state *s = l->state;
    const float *x = ct_blob_data(in->bottom[0]);

    (void)ex;
    if (in->buffer[INPUT].bytes > 0)
        ct_copy_f32(ct_tensor_stored(&in->bottom[0]->data), x, in->buffer[INPUT].data);
    map(in->state, s->shared, x, x, ct_blob_data(&in->weight[0]), ct_blob_data(in->top[0]));
    return CT_OK;
}

/* sum over each channel, or all, of dy min(x, 0) */
static void slope_gradient(const ct_instance *in, bool shared, const float *x, const float *dy,
                           bool add, float *da)
{
    const ct_tensor *t = &in->bottom[0]->data;
    const ct_view *v = in->state;
    int64_t n = ct_tensor_stored(t), c = t->shape.dim[1], s = ct_shape_count(&t->shape, 2, -1);
    int64_t b = (t->layout.block > 0) ? t->layout.block : 1, n_block = (c + b - 1) / b;
    ct_view all = { 1, 1, n, 0, false };
    float *below = in->buffer[BELOW].data;

#pragma omp parallel for simd schedule(static) if (n >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < n; i++) below[i] = (x[i] < 0.0f) ? x[i] : 0.0f;
    if (!shared) {
        ct_view_dot(v, dy, below, add, da);
        return;
    }
    for (int64_t o = 0; (c % b != 0) && (o < v->outer); o++) { /* what fills up the last block */
        float *last = below + (o * n_block + n_block - 1) * s * b;

        for (int64_t i = 0; i < s * b; i++) last[i] = (i % b < c % b) ? last[i] : 0.0f;
    }
    ct_view_dot(&all, dy, below, add, da);
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const prelu_state *s = l->state;
    const float *x =
        (in->buffer[INPUT].bytes > 0) ? in->buffer[INPUT].data : ct_blob_data(in->bottom[0]);
    const float *dy = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]), *da = ct_blob_diff(&in->weight[0]);

    if (da != NULL) slope_gradient(in, s->shared, x, dy, ct_weight_beta(in, ex, 0) != 0.0f, da);
    if (dx != NULL) map(in->state, s->shared, x, dy, ct_blob_data(&in->weight[0]), dx);
    return CT_OK;
}

const ct_layer_ops ct_layer_prelu = {
    .type = "PReLU",
    .params = "prelu_param",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .allow_inplace = true,
    .backward_reads = CT_READS_BOTTOM,
    .splits_of = splits_of,
    .state_size = sizeof(prelu_state),
    .instance_state_size = sizeof(ct_view),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .layout = &ct_layout_blocks,
};
