/* Scale and Bias: a learned blob, or a second bottom, broadcast along some axes. */
#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "layers/layer_util.h"
#include "layers/types/device_kernels.h"
#include "layers/types/layer_types.h"

/* ---- Backward of y = x scale + bias in one pass: dy and x are read once, dx is written on the
 * way. Sums are of fixed lanes, then of images in their order: the same for any processor and team.
 */

enum { LANES = 16 };

/* ---- plain order */

/* One image's row of a channel. dx may be dy; NULL: unwanted. */
CT_SIMD_PART void back_row(int64_t n, const float *x, const float *dy, float scale, bool want,
                           float *dx, double *product, double *sum)
{
    double p[LANES] = { 0 }, s[LANES] = { 0 };
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            float g = dy[i + j];

            p[j] += (double)g * (double)x[i + j];
            s[j] += (double)g;
            if (want) dx[i + j] = g * scale;
        }
    }
    for (; i < n; i++) {
        float g = dy[i];

        p[i % LANES] += (double)g * (double)x[i];
        s[i % LANES] += (double)g;
        if (want) dx[i] = g * scale;
    }
    for (int j = 0; j < LANES; j++) {
        *product += p[j];
        *sum += s[j];
    }
}

CT_SIMD_CLONES static void back_rows(const ct_view *v, int64_t d, const float *x, const float *dy,
                                     float scale, float *dx, double *product, double *sum)
{
    for (int64_t o = 0; o < v->outer; o++) {
        int64_t at = (o * v->mid + d) * v->inner;

        if (dx != NULL)
            back_row(v->inner, x + at, dy + at, scale, true, dx + at, product, sum);
        else
            back_row(v->inner, x + at, dy + at, scale, false, NULL, product, sum);
    }
}

static void put(double sum, bool add, float *out)
{
    if (out != NULL) *out = (float)(sum + (add ? (double)*out : 0.0));
}

static void plain(const ct_view *v, const ct_scale_back *a)
{
#pragma omp parallel for schedule(static) if (v->outer * v->mid * v->inner >= CT_PARALLEL_MIN)
    for (int64_t d = 0; d < v->mid; d++) {
        double product = 0, sum = 0;

        back_rows(v, d, a->x, a->dy, a->scale[d], a->dx, &product, &sum);
        put(product, a->add_scale, a->dscale + d);
        put(sum, a->add_bias, (a->dbias != NULL) ? a->dbias + d : NULL);
    }
}

/* ---- blocks of channels */

typedef struct block_ctx {
    const ct_blocked *v;
    const ct_scale_back *a;
} block_ctx;

CT_SIMD_PART void back_places(int64_t inner, int b, bool bf16, bool want, const float *x,
                              const float *dy, const float *scale, float *dx, double *product,
                              double *sum)
{
    double p[CT_BLOCK_MAX], s[CT_BLOCK_MAX];

    for (int i = 0; i < b; i++) p[i] = product[i], s[i] = sum[i];
    for (int64_t at = 0; at < inner * b; at += b) {
#pragma omp simd
        for (int i = 0; i < b; i++) {
            float g = ct_num_get(dy, bf16, at + i);

            p[i] += (double)g * (double)ct_num_get(x, bf16, at + i);
            s[i] += (double)g;
            if (want) ct_num_put(dx, bf16, at + i, g * scale[i]);
        }
    }
    for (int i = 0; i < b; i++) product[i] = p[i], sum[i] = s[i];
}

CT_SIMD_CLONES static void back_block(int64_t inner, int b, bool bf16, const float *x,
                                      const float *dy, const float *scale, float *dx,
                                      double *product, double *sum)
{
    if ((b == 16) && bf16 && (dx != NULL))
        back_places(inner, 16, true, true, x, dy, scale, dx, product, sum);
    else if ((b == 16) && (dx != NULL))
        back_places(inner, 16, false, true, x, dy, scale, dx, product, sum);
    else if ((b == 8) && !bf16 && (dx != NULL))
        back_places(inner, 8, false, true, x, dy, scale, dx, product, sum);
    else
        back_places(inner, b, bf16, dx != NULL, x, dy, scale, dx, product, sum);
}

static void add_block(const void *ctx, int64_t k, int64_t at, int64_t inner, int block,
                      double *first, double *second)
{
    const block_ctx *c = ctx;
    bool bf16 = c->v->bf16;
    float scale[CT_BLOCK_MAX];

    ct_blocked_pick(c->v, k, c->a->scale, 1.0f, scale);
    back_block(inner, block, bf16, ct_num_at(c->a->x, bf16, at), ct_num_at(c->a->dy, bf16, at),
               scale, ct_num_to(c->a->dx, bf16, at), first, second);
}

static void blocked(const ct_view *view, const ct_scale_back *a)
{
    ct_blocked v = { view->outer, view->mid, view->inner, view->block, view->dtype == CT_BF16 };
    double product[CT_BLOCKED_GROUP * CT_BLOCK_MAX], sum[CT_BLOCKED_GROUP * CT_BLOCK_MAX];
    int64_t n = ct_blocked_n(&v);

    for (int64_t k = 0; k < n; k += CT_BLOCKED_GROUP) {
        int64_t to = (k + CT_BLOCKED_GROUP < n) ? k + CT_BLOCKED_GROUP : n;

        ct_blocked_sums(&v, k, to, add_block, &(block_ctx){ &v, a }, product, sum);
        for (int64_t c = k * v.block; (c < to * v.block) && (c < v.mid); c++) {
            put(product[c - k * v.block], a->add_scale, a->dscale + c);
            put(sum[c - k * v.block], a->add_bias, (a->dbias != NULL) ? a->dbias + c : NULL);
        }
    }
}

void ct_view_scale_back(const ct_view *v, const ct_scale_back *a)
{
    if (v->block > 0) {
        blocked(v, a);
    } else if (v->inner > 1) {
        plain(v, a);
    } else {
        if (a->dbias != NULL) ct_view_dot(v, a->dy, NULL, a->add_bias, a->dbias);
        ct_view_dot(v, a->dy, a->x, a->add_scale, a->dscale);
        if (a->dx != NULL) ct_view_affine(v, a->dy, a->scale, NULL, a->dx);
    }
}

/* ---- Scale: multiplies by a learned blob, or by the second bottom, broadcast from `axis` on, and
 * may add a learned bias of the same shape. In place the input is kept for the scale's gradient. */

/* With weights along one axis, or from one on to the end, parts are cut along these; where they lie
 * behind the tokens, along those, too. The second bottom of two would have to come cut. */
static unsigned splits_along(const Ct__LayerParameter *p, int axis, int num_axes)
{
    unsigned may = 0;

    if (p->n_bottom != 1) return 0;
    if ((axis == 1) && (num_axes != 0)) may |= CT_SPLIT_CHANNEL;
    if ((num_axes == -1) || ((num_axes == 1) && ((axis == -1) || (axis == 2))))
        may |= CT_SPLIT_LAST;
    return may | ct_splits_behind_tokens(axis);
}

static unsigned scale_splits(const Ct__LayerParameter *p)
{
    const Ct__ScaleParameter *s = p->scale_param;

    return splits_along(p, (s != NULL) ? s->axis : 1, (s != NULL) ? s->num_axes : 1);
}

static unsigned bias_splits(const Ct__LayerParameter *p)
{
    const Ct__BiasParameter *b = p->bias_param;

    return splits_along(p, (b != NULL) ? b->axis : 1, (b != NULL) ? b->num_axes : 1);
}

typedef struct scale_state {
    Ct__FillerParameter one; /* the default filler */
    int bias;                /* index of the bias among the weights; -1: none */
} scale_state;

enum { INPUT };

static ct_status scale_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__ScaleParameter *p = l->param->scale_param;
    scale_state *s = l->state;
    ct_cut cut = { .whole = bottom[(l->n_bottom > 1) ? 1 : 0] };

    ct__filler_parameter__init(&s->one);
    s->one.value = 1.0f;
    s->bias = -1;
    if (l->n_bottom == 1) {
        bool given = (p != NULL) && (p->filler != NULL);

        CT_TRY(ct_layer_broadcast_cut(l, &bottom[0], (p != NULL) ? p->axis : 1,
                                      (p != NULL) ? p->num_axes : 1, &cut));
        ct_layer_add_cut(l, &cut, given ? p->filler : &s->one);
    }
    if ((p != NULL) && p->bias_term) {
        s->bias = l->n_weight;
        ct_layer_add_cut(l, &cut, p->bias_filler);
    }
    return CT_OK;
}

/* A blob along the channels alone. */
static bool scale_takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    const Ct__ScaleParameter *s = p->scale_param;

    return (p->n_bottom == 1) && ((s == NULL) || (s->num_axes == 1)) &&
           ct_layer_is_channels(&bottom[slot]->data.shape, (s != NULL) ? s->axis : 1) &&
           (ct_blob_is_last(bottom[slot]) || ct_layer_takes_block(bottom[slot]));
}

/* Along the channels alone. */
static bool as_epilogue(const Ct__LayerParameter *p, ct_epilogue_kind *kind_p)
{
    const Ct__ScaleParameter *s = p->scale_param;

    *kind_p = CT_EPILOGUE_AFFINE;
    return (p->n_bottom == 1) && ((s == NULL) || ((s->num_axes == 1) && (s->axis == 1)));
}

static ct_status scale_reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__ScaleParameter *p = l->param->scale_param;
    const scale_state *s = l->state;
    const ct_blob *x = in->bottom[0];
    const ct_shape *scale = (l->n_bottom > 1) ? &in->bottom[1]->data.shape : &l->weight[0].shape;

    CT_TRY(ct_layer_broadcast_view(l, &x->data.shape, scale, (p != NULL) ? p->axis : 1, in->state));
    if ((s->bias >= 0) && !ct_shape_equal(scale, &l->weight[s->bias].shape))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom 1 now has shape %s, the bias %s",
                             ct_shape_str(scale).text,
                             ct_shape_str(&l->weight[s->bias].shape).text);
    ct_instance_buffer(in, INPUT, CT_LIFETIME_PASS,
                       ((in->top[0] == in->bottom[0]) && x->wants_diff) ? ct_tensor_bytes(&x->data)
                                                                        : 0);
    if ((in->top[0] == in->bottom[0]) && (l->n_bottom == 1)) in->backward_reads = 0;
    if (l->n_bottom == 1) in->over = 1;
    ((ct_view *)in->state)->block = x->data.layout.block;
    ct_layer_view_last(x, in->state);
    ct_blob_set_like(in->top[0], &x->data.shape, &x->data);
    return CT_OK;
}

static ct_status scale_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const scale_state *s = l->state;
    const ct_blob *scale = (l->n_bottom > 1) ? in->bottom[1] : &in->weight[0];
    const float *x = ct_blob_data(in->bottom[0]);

    if (in->buffer[INPUT].bytes > 0)
        CT_TRY(
            ct_device_copy(ex, ct_tensor_words(&in->bottom[0]->data), x, in->buffer[INPUT].data));
    return ct_kernels(ex)->affine(ex, in->state, x, ct_blob_data(scale),
                                  (s->bias >= 0) ? ct_blob_data(&in->weight[s->bias]) : NULL,
                                  ct_blob_data(in->top[0]));
}

/* Gradients of scale and bias, and dx, in one pass. */
static ct_status backward_at_once(const ct_layer *l, ct_instance *in, ct_exec *ex,
                                  const ct_blob *scale, const float *x)
{
    const scale_state *s = l->state;
    ct_scale_back a = { .x = x,
                        .dy = ct_blob_diff(in->top[0]),
                        .scale = ct_blob_data(scale),
                        .add_scale = (l->n_bottom == 1) && (ct_weight_beta(in, ex, 0) != 0.0f),
                        .dscale = ct_blob_diff(scale),
                        .dx = ct_blob_diff(in->bottom[0]) };

    if (s->bias >= 0) {
        a.dbias = ct_blob_diff(&in->weight[s->bias]);
        a.add_bias = ct_weight_beta(in, ex, s->bias) != 0.0f;
    }
    return ct_kernels(ex)->scale_back(ex, in->state, &a);
}

static ct_status scale_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const scale_state *s = l->state;
    const ct_blob *scale = (l->n_bottom > 1) ? in->bottom[1] : &in->weight[0];
    const float *x =
        (in->buffer[INPUT].bytes > 0) ? in->buffer[INPUT].data : ct_blob_data(in->bottom[0]);
    const float *dy = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]), *db;

    if ((ct_kernels(ex)->scale_back != NULL) && (ct_blob_diff(scale) != NULL))
        return backward_at_once(l, in, ex, scale, x);
    if ((s->bias >= 0) && ((db = ct_blob_diff(&in->weight[s->bias])) != NULL))
        CT_TRY(ct_kernels(ex)->dot(ex, in->state, dy, NULL, ct_weight_beta(in, ex, s->bias) != 0.0f,
                                   db));
    if (ct_blob_diff(scale) != NULL)
        CT_TRY(ct_kernels(ex)->dot(ex, in->state, dy, x,
                                   (l->n_bottom == 1) && (ct_weight_beta(in, ex, 0) != 0.0f),
                                   ct_blob_diff(scale)));
    if (dx == NULL) return CT_OK;
    return ct_kernels(ex)->affine(ex, in->state, dy, ct_blob_data(scale), NULL, dx);
}

static const ct_layout_ops scale_layout = { .takes = scale_takes, .bf16 = true, .last = true };
static const ct_fusion_ops scale_fusion = {
    .as_epilogue = as_epilogue,
};

/* With one learned number for each channel behind these axes, or with a second bottom of as many
 * elements. */
static bool scale_apart(const ct_layer *l, const ct_instance *in, int n_axis)
{
    const ct_view *v = in->state;
    const ct_shape *x = &in->bottom[0]->data.shape;

    if (l->n_bottom > 1) return ct_shape_equal(x, &in->bottom[1]->data.shape);
    return (v->mid == 1) ||
           ((x->ndim > n_axis) && (v->mid * v->inner <= ct_shape_count(x, n_axis, -1)));
}

static const ct_sequence_ops scale_sequence = { .apart = scale_apart };

const ct_layer_ops ct_layer_scale = {
    .type = "Scale",
    .params = "scale_param",
    .min_bottom = 1,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .allow_inplace = true,
    .backward_reads = CT_READS_BOTTOM,
    .splits_of = scale_splits,
    .state_size = sizeof(scale_state),
    .instance_state_size = sizeof(ct_view),
    .setup = scale_setup,
    .reshape = scale_reshape,
    .forward = scale_forward,
    .backward = scale_backward,
    .on_cuda = true,
    .layout = &scale_layout,
    .fusion = &scale_fusion,
    .sequence = &scale_sequence,
};

/* ---- Bias: adds a learned blob, or the second bottom, broadcast from `axis` on. */

static ct_status bias_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__BiasParameter *p = l->param->bias_param;
    ct_cut cut;

    if (l->n_bottom > 1) return CT_OK;
    CT_TRY(ct_layer_broadcast_cut(l, &bottom[0], (p != NULL) ? p->axis : 1,
                                  (p != NULL) ? p->num_axes : 1, &cut));
    ct_layer_add_cut(l, &cut, (p != NULL) ? p->filler : NULL);
    return CT_OK;
}

/* A blob along the channels alone. */
static bool bias_takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    const Ct__BiasParameter *b = p->bias_param;

    return (p->n_bottom == 1) && ((b == NULL) || (b->num_axes == 1)) &&
           ct_layer_is_channels(&bottom[slot]->data.shape, (b != NULL) ? b->axis : 1) &&
           ct_layer_takes_block(bottom[slot]);
}

static ct_status bias_reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__BiasParameter *p = l->param->bias_param;
    const ct_shape *x = &in->bottom[0]->data.shape;
    const ct_shape *b = (l->n_bottom > 1) ? &in->bottom[1]->data.shape : &l->weight[0].shape;

    CT_TRY(ct_layer_broadcast_view(l, x, b, (p != NULL) ? p->axis : 1, in->state));
    if (l->n_bottom == 1) in->over = 1;
    ((ct_view *)in->state)->block = in->bottom[0]->data.layout.block;
    ((ct_view *)in->state)->dtype = in->bottom[0]->data.dtype;
    ct_blob_set_like(in->top[0], x, &in->bottom[0]->data);
    return CT_OK;
}

static ct_status bias_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_blob *b = (l->n_bottom > 1) ? in->bottom[1] : &in->weight[0];

    return ct_kernels(ex)->affine(ex, in->state, ct_blob_data(in->bottom[0]), NULL, ct_blob_data(b),
                                  ct_blob_data(in->top[0]));
}

static ct_status bias_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *dy = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]);
    float *db = ct_blob_diff((l->n_bottom > 1) ? in->bottom[1] : &in->weight[0]);
    bool add = (l->n_bottom == 1) && (ct_weight_beta(in, ex, 0) != 0.0f);

    if (db != NULL) CT_TRY(ct_kernels(ex)->dot(ex, in->state, dy, NULL, add, db));
    if (dx == NULL) return CT_OK;
    return ct_device_copy(ex, ct_tensor_words(&in->bottom[0]->data), dy, dx);
}

static const ct_layout_ops bias_layout = { .takes = bias_takes, .bf16 = true };

const ct_layer_ops ct_layer_bias = {
    .type = "Bias",
    .params = "bias_param",
    .min_bottom = 1,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .allow_inplace = true,
    .splits_of = bias_splits,
    .instance_state_size = sizeof(ct_view),
    .setup = bias_setup,
    .reshape = bias_reshape,
    .forward = bias_forward,
    .backward = bias_backward,
    .on_cuda = true,
    .layout = &bias_layout,
    .sequence = &scale_sequence,
};
