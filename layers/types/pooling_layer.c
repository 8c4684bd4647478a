/* Pooling and SPP. */
#include <float.h>
#include <string.h>

#include "layers/engine/pool/pool.h"
#include "framework/base/rng.h"
#include "layers/types/layer_types.h"
#include "framework/math/math.h"
#include "layers/layer_util.h"

/* ---- Max, average and stochastic pooling; sizes and divisors as Caffe defines them. */

/* Pooling that draws one element of each window (Zeiler and Fergus 2013).
 * Private to layers/.
 *
 * TRAIN: element k with probability x_k / sum x, by one number an output, which depends on the key
 * and the output's place in the global batch alone. TEST: sum x^2 / sum x. Made for x >= 0, as
 * behind a ReLU.
 */

/** y from x in plain order, without padding. place: the element drawn, in its plane. `first`:
 * number of the first output in the global batch. */
static void ct_stochastic_draw(const ct_pool_desc *d, uint64_t key, uint64_t first, const float *x,
                               float *y, int32_t *place);
/** dx[place] += dy. */
static void ct_stochastic_draw_back(const ct_pool_desc *d, const int32_t *place, const float *dy,
                                    float *dx);
static void ct_stochastic_mean(const ct_pool_desc *d, const float *x, float *y);
static void ct_stochastic_mean_back(const ct_pool_desc *d, const float *x, const float *dy,
                                    float *dx);

typedef struct pool_state {
    bool global;
    bool floor;      /* round_mode: FLOOR */
    bool stochastic; /* then method means nothing */
    bool inside;     /* AVE: padding does not count */
    uint64_t name_hash;
    ct_pool_method method;
    int64_t kh, kw, sh, sw, ph, pw, dh, dw;
} pool_state;

typedef struct pool_instance {
    ct_pool_desc desc; /* first: layers/cuda reads it there */
    const ct_pool_impl *forward, *backward;
} pool_instance;

enum { SLOT_MASK, SLOT_WORK };

/* One of `kernel_size`, `pad`, `stride`: given once for both axes, or per axis as _h and _w. */
static ct_status read_pair(const ct_layer *l, const char *name, protobuf_c_boolean has_both,
                           uint32_t both, protobuf_c_boolean has_h, uint32_t h,
                           protobuf_c_boolean has_w, uint32_t w, int64_t *h_p, int64_t *w_p)
{
    if (has_both && (has_h || has_w))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "pooling_param has %s %u and also its _h or _w form: give one of them",
                             name, both);
    if (has_h != has_w)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "pooling_param has %s for one axis only: give both _h and _w", name);
    *h_p = has_h ? h : both; /* `both` is the default where nothing is given */
    *w_p = has_w ? w : both;
    return CT_OK;
}

/* The OpenCL branch's: once for both axes, or once for each. */
static ct_status read_dilation(const ct_layer *l, const Ct__PoolingParameter *p, pool_state *s)
{
    s->dh = (p->n_dilation > 0) ? p->dilation[0] : 1;
    s->dw = (p->n_dilation > 1) ? p->dilation[1] : s->dh;
    if (p->n_dilation > 2)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "pooling_param has %zu of dilation: give one, or one for each of two "
                             "axes",
                             p->n_dilation);
    if ((s->dh == 0) || (s->dw == 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "pooling_param: the dilation must be positive");
    if ((s->dh == 1) && (s->dw == 1)) return CT_OK;
    if (s->global || s->stochastic)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "pooling_param: %s goes without a dilation",
                             s->global ? "global_pooling" : "STOCHASTIC");
    return CT_OK;
}

static ct_status read_window(const ct_layer *l, const Ct__PoolingParameter *p, pool_state *s)
{
    bool has_kernel = p->has_kernel_size || p->has_kernel_h || p->has_kernel_w;

    CT_TRY(read_pair(l, "kernel", p->has_kernel_size, p->kernel_size, p->has_kernel_h, p->kernel_h,
                     p->has_kernel_w, p->kernel_w, &s->kh, &s->kw));
    CT_TRY(read_pair(l, "pad", p->has_pad, p->pad, p->has_pad_h, p->pad_h, p->has_pad_w, p->pad_w,
                     &s->ph, &s->pw));
    CT_TRY(read_pair(l, "stride", p->has_stride, p->stride, p->has_stride_h, p->stride_h,
                     p->has_stride_w, p->stride_w, &s->sh, &s->sw));
    if ((s->sh == 0) || (s->sw == 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "pooling_param: stride %lld x %lld must be positive",
                             (long long)s->sh, (long long)s->sw);
    if (s->global) {
        if (has_kernel)
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                                 "pooling_param: global_pooling takes the whole plane, so a kernel "
                                 "cannot be given too");
        if ((s->ph != 0) || (s->pw != 0) || (s->sh != 1) || (s->sw != 1))
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                                 "pooling_param: global_pooling needs pad 0 and stride 1, not pad "
                                 "%lld x %lld and stride %lld x %lld",
                                 (long long)s->ph, (long long)s->pw, (long long)s->sh,
                                 (long long)s->sw);
        return CT_OK;
    }
    if ((s->kh == 0) || (s->kw == 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "pooling_param: %s",
                             has_kernel ? "the kernel must be positive"
                                        : "kernel_size, or kernel_h and kernel_w, is missing");
    if ((s->ph > (s->kh - 1) * s->dh) || (s->pw > (s->kw - 1) * s->dw))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "pooling_param: pad %lld x %lld must be smaller than the kernel %lld "
                             "x %lld",
                             (long long)s->ph, (long long)s->pw, (long long)s->kh,
                             (long long)s->kw);
    return CT_OK;
}

/* Intel's: without padding both divisors are one. */
static bool is_inside(const Ct__PoolingParameter *p)
{
    return (p->pool == CT__POOLING_PARAMETER__POOL_METHOD__AVE) && !p->avg_include_pad &&
           ((p->pad > 0) || (p->pad_h > 0) || (p->pad_w > 0));
}

static ct_status pool_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__PoolingParameter *p = l->param->pooling_param;
    pool_state *s = l->state;

    (void)bottom;
    if (p == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "pooling_param is missing");
    switch (p->pool) {
    case CT__POOLING_PARAMETER__POOL_METHOD__MAX:
        s->method = CT_POOL_MAX;
        break;
    case CT__POOLING_PARAMETER__POOL_METHOD__AVE:
        s->method = CT_POOL_AVE;
        break;
    default:
        s->method = CT_POOL_AVE;
        s->stochastic = true;
        s->name_hash = ct_rng_hash(l->name);
        l->backward_reads = (l->phase == CT_TEST) ? CT_READS_BOTTOM : 0;
        break;
    }
    if (p->has_ceil_mode && p->has_round_mode &&
        (p->ceil_mode != (p->round_mode == CT__POOLING_PARAMETER__ROUND_MODE__CEIL)))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "pooling_param: ceil_mode and round_mode disagree");
    s->global = p->global_pooling;
    s->floor = (p->round_mode == CT__POOLING_PARAMETER__ROUND_MODE__FLOOR) || !p->ceil_mode;
    if (s->stochastic && (p->pad != 0 || p->pad_h != 0 || p->pad_w != 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "pooling_param: STOCHASTIC goes without padding");
    if ((l->n_top > 1) && (s->method != CT_POOL_MAX))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "a second top holds the places of the maxima: only for pool: MAX");
    CT_TRY(read_dilation(l, p, s));
    CT_TRY(read_window(l, p, s));
    s->inside = is_inside(p);
    return CT_OK;
}

/* Outputs along one axis, or a message. Rounded up as in Caffe: a last window that would begin
 * behind the padded edge is dropped, where there is padding. */
static ct_status pooled(const ct_layer *l, const char *axis, int64_t in, int64_t kernel,
                        int64_t dilation, int64_t stride, int64_t pad, int64_t *out_p)
{
    const pool_state *s = l->state;
    int64_t room = in + 2 * pad - ((kernel - 1) * dilation + 1);
    int64_t steps = (room >= 0) ? (s->floor ? room : room + stride - 1) / stride
                                : -((s->floor ? -room + stride - 1 : -room) / stride);
    int64_t out = steps + 1;

    if ((pad > 0) && ((out - 1) * stride >= in + pad)) out--;
    if (out < 1)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "pooling_param: kernel %lld is too large for %s %lld with pad %lld",
                             (long long)kernel, axis, (long long)in, (long long)pad);
    if ((out - 1) * stride - pad >= in)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "pooling_param: with kernel %lld and stride %lld the last window lies "
                             "outside %s %lld; round_mode: FLOOR leaves it out",
                             (long long)kernel, (long long)stride, axis, (long long)in);
    for (int64_t i = 0; (dilation > 1) && (i < out); i++) {
        int64_t from = i * stride - pad;

        if (from < 0) from += (dilation - 1 - from) / dilation * dilation;
        if (from < in) continue;
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "pooling_param: with dilation %lld and pad %lld no element of window "
                             "%lld lies inside %s %lld",
                             (long long)dilation, (long long)pad, (long long)i, axis,
                             (long long)in);
    }
    *out_p = out;
    return CT_OK;
}

/* Windows that forks alone have: the reference runs them. */
static bool is_of_forks(const Ct__PoolingParameter *p)
{
    if (p == NULL) return false;
    for (size_t i = 0; i < p->n_dilation; i++) {
        if (p->dilation[i] > 1) return true;
    }
    return is_inside(p);
}

/* The places that a second top holds have plain order; so have planes with windows so large that a
 * mask has more than bytes, and windows of forks. */
static bool pool_takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    const Ct__PoolingParameter *q = p->pooling_param;
    const ct_tensor *x = &bottom[slot]->data;
    bool max = (q != NULL) && (q->pool == CT__POOLING_PARAMETER__POOL_METHOD__MAX);
    ct_pool_desc d = { .h = x->shape.dim[2], .w = x->shape.dim[3], .kh = INT32_MAX };

    if ((p->n_top != 1) || is_of_forks(q) ||
        ((q != NULL) && (q->pool == CT__POOLING_PARAMETER__POOL_METHOD__STOCHASTIC)))
        return false;
    if (ct_blob_is_last(bottom[slot])) return true;
    if ((x->layout.order != CT_ORDER_NCHW) || ((x->layout.block != 8) && (x->layout.block != 16)) ||
        ((x->dtype == CT_BF16) && !ct_engine_is_auto(p->ct_kernel)))
        return false;
    d.kw = d.kh;
    if ((q != NULL) && !q->global_pooling) {
        d.kh = q->has_kernel_h ? q->kernel_h : q->kernel_size;
        d.kw = q->has_kernel_w ? q->kernel_w : q->kernel_size;
    }
    return !max || (ct_pool_mask_bytes(&d) == 1);
}

static ct_status make_desc(const ct_layer *l, const ct_tensor *bottom, ct_pool_desc *d)
{
    const pool_state *s = l->state;
    const ct_shape *x = &bottom->shape;
    int block = bottom->layout.block;

    if (x->ndim != 4)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the bottom %s must have 4 axes: N C H W",
                             ct_shape_str(x).text);
    *d = (ct_pool_desc){
        .device = l->dev->kind,
        .n_thread = ct_engine_n_thread(l),
        .method = s->method,
        .planes = x->dim[0] * ((block > 0) ? (x->dim[1] + block - 1) / block * block : x->dim[1]),
        .block = block,
        .bf16 = (bottom->dtype == CT_BF16),
        .last = (bottom->layout.order == CT_ORDER_NHWC) ? x->dim[1] : 0,
        .dtype = bottom->dtype,
        .h = x->dim[2],
        .w = x->dim[3],
        .kh = s->global ? x->dim[2] : s->kh,
        .kw = s->global ? x->dim[3] : s->kw,
        .sh = s->sh,
        .sw = s->sw,
        .ph = s->ph,
        .pw = s->pw,
        .dh = s->dh,
        .dw = s->dw,
        .inside = s->inside
    };
    if ((d->h == 0) || (d->w == 0) || (d->h > INT32_MAX / d->w))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "planes of %lld x %lld: empty or too large",
                             (long long)d->h, (long long)d->w);
    CT_TRY(pooled(l, "height", d->h, d->kh, d->dh, d->sh, d->ph, &d->oh));
    return pooled(l, "width", d->w, d->kw, d->dw, d->sw, d->pw, &d->ow);
}

static ct_status pool_reshape(const ct_layer *l, ct_instance *in)
{
    const pool_state *s = l->state;
    pool_instance *r = in->state;
    ct_shape top = in->bottom[0]->data.shape;
    size_t work;

    CT_TRY(make_desc(l, &in->bottom[0]->data, &r->desc));
    top.dim[2] = r->desc.oh;
    top.dim[3] = r->desc.ow;
    for (int i = 0; i < l->n_top; i++) ct_blob_set_like(in->top[i], &top, &in->bottom[0]->data);
    if (s->stochastic && (l->phase == CT_TRAIN))
        ct_instance_buffer(in, SLOT_MASK, CT_LIFETIME_PASS,
                           (size_t)ct_tensor_count(&in->top[0]->data) * sizeof(int32_t));
    if (r->desc.method == CT_POOL_MAX)
        ct_instance_buffer(in, SLOT_MASK, CT_LIFETIME_PASS,
                           in->bottom[0]->wants_diff ? (size_t)ct_tensor_stored(&in->top[0]->data) *
                                                           (size_t)ct_pool_mask_bytes(&r->desc)
                                                     : 0);
    CT_TRY(ct_pool_pick(l, CT_RUN_FORWARD, ct_pool_forward_table, &r->desc, &r->forward));
    CT_TRY(ct_pool_pick(l, CT_RUN_BACKWARD_DATA, ct_pool_backward_table, &r->desc, &r->backward));
    work = ct_pool_workspace(r->forward, &r->desc);
    if (ct_pool_workspace(r->backward, &r->desc) > work)
        work = ct_pool_workspace(r->backward, &r->desc);
    ct_instance_buffer(in, SLOT_WORK, CT_LIFETIME_CALL, work);
    return CT_OK;
}

static void draw(const ct_layer *l, ct_instance *in, const ct_exec *ex)
{
    const pool_state *s = l->state;
    const pool_instance *r = in->state;
    int64_t n = ct_tensor_count(&in->top[0]->data),
            local = (ex->batch_local > 0) ? ex->batch_local : 1;
    uint64_t key = ct_rng_key(ex->seed, (uint64_t)ex->micro_step, s->name_hash);

    if (l->phase == CT_TEST)
        ct_stochastic_mean(&r->desc, ct_blob_data(in->bottom[0]), ct_blob_data(in->top[0]));
    else
        ct_stochastic_draw(&r->desc, key, (uint64_t)(ex->batch_first * (n / local)),
                           ct_blob_data(in->bottom[0]), ct_blob_data(in->top[0]),
                           in->buffer[SLOT_MASK].data);
}

static void draw_back(const ct_layer *l, ct_instance *in)
{
    const pool_instance *r = in->state;

    if (l->phase == CT_TEST)
        ct_stochastic_mean_back(&r->desc, ct_blob_data(in->bottom[0]), ct_blob_diff(in->top[0]),
                                ct_blob_diff(in->bottom[0]));
    else
        ct_stochastic_draw_back(&r->desc, in->buffer[SLOT_MASK].data, ct_blob_diff(in->top[0]),
                                ct_blob_diff(in->bottom[0]));
}

static ct_status pool_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const pool_state *s = l->state;
    pool_instance *r = in->state;

    if (s->stochastic) {
        draw(l, in, ex);
        return CT_OK;
    }
    return r->forward->run(
        &r->desc, ex,
        &(ct_pool_args){ .x = ct_blob_data(in->bottom[0]),
                         .y = ct_blob_data(ct_instance_top(in)),
                         .mask = in->buffer[SLOT_MASK].data,
                         .work = in->buffer[SLOT_WORK].data,
                         .mask_top = (l->n_top > 1) ? ct_blob_data(in->top[1]) : NULL });
}

static ct_status pool_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const pool_state *s = l->state;
    pool_instance *r = in->state;
    const float *dy = ct_blob_diff(ct_instance_top(in));

    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    if (dy == NULL)
        return ex->dev->zero(ex->stream, ct_blob_diff(in->bottom[0]),
                             ct_tensor_bytes(&in->bottom[0]->diff));
    if (s->stochastic) {
        draw_back(l, in);
        return CT_OK;
    }
    return r->backward->run(&r->desc, ex,
                            &(ct_pool_args){ .mask = in->buffer[SLOT_MASK].data,
                                             .work = in->buffer[SLOT_WORK].data,
                                             .dy = dy,
                                             .dx = ct_blob_diff(in->bottom[0]) });
}

/* A ReLU of the largest is the largest of ReLUs: behind this layer or before it, it is done here,
 * and in backward by the mask. */
static bool join(const ct_layer *l, ct_instance *in)
{
    pool_instance *r = in->state;

    if ((r->desc.method != CT_POOL_MAX) || (l->n_top != 1)) return false;
    r->desc.relu = true;
    return true;
}

static bool take_relu(const ct_layer *l, ct_instance *in, ct_relu_share *share)
{
    if (share == NULL) return false; /* it asks for nothing, so it keeps what it takes */
    share->bits = 0;
    share->bias = false;
    return join(l, in);
}

static void pool_estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const pool_instance *r = in->state;
    const ct_pool_desc *d = &r->desc;

    (void)l;
    e->engine[CT_RUN_FORWARD] = r->forward->name;
    e->engine[CT_RUN_BACKWARD_DATA] = r->backward->name;
    e->forward_flop = (double)(d->planes * d->oh * d->ow) * (double)(d->kh * d->kw);
    e->backward_flop =
        (d->method == CT_POOL_MAX) ? (double)(d->planes * d->oh * d->ow) : e->forward_flop;
}

static const ct_layout_ops pooling_layout = { .takes = pool_takes, .bf16 = true, .last = true };
static const ct_fusion_ops pooling_fusion = {
    .epilogues = 1u << CT_EPILOGUE_RELU,
    .join = join,
    .take_relu = take_relu,
};

/* Random numbers are counted through all channels of a sample. */
static unsigned pool_splits(const Ct__LayerParameter *p)
{
    const Ct__PoolingParameter *q = p->pooling_param;

    return ((q != NULL) && (q->pool == CT__POOLING_PARAMETER__POOL_METHOD__STOCHASTIC))
               ? 0
               : CT_SPLIT_CHANNEL;
}

const ct_layer_ops ct_layer_pooling = {
    .type = "Pooling",
    .params = "pooling_param",
    .splits_of = pool_splits,
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 2,
    .null_top_diff = true, /* that of the second top, the places, is never read */
    .state_size = sizeof(pool_state),
    .instance_state_size = sizeof(pool_instance),
    .setup = pool_setup,
    .reshape = pool_reshape,
    .forward = pool_forward,
    .backward = pool_backward,
    .estimate = pool_estimate,
    .on_cuda = true,
    .layout = &pooling_layout,
    .fusion = &pooling_fusion,
};

/* Window of output o of a plane: rows [top, bottom), columns [left, right). */
typedef struct window {
    int64_t top, bottom, left, right;
} window;

static window window_of(const ct_pool_desc *d, int64_t o)
{
    window v;
    int64_t all;

    ct_pool_window(o / d->ow, d->kh, d->sh, 0, d->h, &v.top, &v.bottom, &all);
    ct_pool_window(o % d->ow, d->kw, d->sw, 0, d->w, &v.left, &v.right, &all);
    return v;
}

/* Sums of a window: of values, of their squares. */
static void sums(const ct_pool_desc *d, const window *v, const float *x, float *sum_p,
                 float *square_p)
{
    float sum = 0, square = 0;

    for (int64_t i = v->top; i < v->bottom; i++) {
        for (int64_t j = v->left; j < v->right; j++) {
            float here = x[i * d->w + j];

            sum += here;
            square += here * here;
        }
    }
    *sum_p = sum;
    *square_p = square;
}

/* The first element at which the running sum reaches share * sum; the last where rounding keeps it
 * below. */
static int32_t reach(const ct_pool_desc *d, const window *v, const float *x, float share)
{
    float sum, square, run = 0, limit;
    int64_t at = v->top * d->w + v->left;

    sums(d, v, x, &sum, &square);
    limit = share * sum;
    for (int64_t i = v->top; i < v->bottom; i++) {
        for (int64_t j = v->left; j < v->right; j++) {
            at = i * d->w + j;
            run += x[at];
            if (run >= limit) return (int32_t)at;
        }
    }
    return (int32_t)at;
}

static void ct_stochastic_draw(const ct_pool_desc *d, uint64_t key, uint64_t first, const float *x,
                               float *y, int32_t *place)
{
    int64_t n = d->oh * d->ow;

#pragma omp parallel for schedule(static) num_threads(d->n_thread)
    for (int64_t p = 0; p < d->planes; p++) {
        const float *from = x + p * d->h * d->w;

        for (int64_t o = 0; o < n; o++) {
            window v = window_of(d, o);
            float share = ct_rng_uniform_at(key, first + (uint64_t)(p * n + o));

            place[p * n + o] = reach(d, &v, from, share);
            y[p * n + o] = from[place[p * n + o]];
        }
    }
}

static void ct_stochastic_draw_back(const ct_pool_desc *d, const int32_t *place, const float *dy,
                                    float *dx)
{
    int64_t n = d->oh * d->ow, size = d->h * d->w;

#pragma omp parallel for schedule(static) num_threads(d->n_thread)
    for (int64_t p = 0; p < d->planes; p++) {
        memset(dx + p * size, 0, (size_t)size * sizeof(*dx));
        for (int64_t o = p * n; o < (p + 1) * n; o++) dx[p * size + place[o]] += dy[o];
    }
}

static void ct_stochastic_mean(const ct_pool_desc *d, const float *x, float *y)
{
    int64_t n = d->oh * d->ow;

#pragma omp parallel for schedule(static) num_threads(d->n_thread)
    for (int64_t p = 0; p < d->planes; p++) {
        for (int64_t o = 0; o < n; o++) {
            window v = window_of(d, o);
            float sum, square;

            sums(d, &v, x + p * d->h * d->w, &sum, &square);
            y[p * n + o] = (sum > 0.0f) ? square / (sum + FLT_MIN) : 0.0f;
        }
    }
}

static void ct_stochastic_mean_back(const ct_pool_desc *d, const float *x, const float *dy,
                                    float *dx)
{
    int64_t n = d->oh * d->ow, size = d->h * d->w;

#pragma omp parallel for schedule(static) num_threads(d->n_thread)
    for (int64_t p = 0; p < d->planes; p++) {
        const float *from = x + p * size;

        memset(dx + p * size, 0, (size_t)size * sizeof(*dx));
        for (int64_t o = 0; o < n; o++) {
            window v = window_of(d, o);
            float sum, square;

            sums(d, &v, from, &sum, &square);
            if (!(sum > 0.0f)) continue;
            for (int64_t i = v.top; i < v.bottom; i++) {
                for (int64_t j = i * d->w + v.left; j < i * d->w + v.right; j++)
                    dx[p * size + j] += dy[p * n + o] * (2.0f * from[j] - square / sum) / sum;
            }
        }
    }
}

/* ---- SPP: pooling into 1 x 1, 2 x 2, 4 x 4 .. windows, so that any plane becomes a vector of one
 * length. Windows are those of a pooling with kernel = stride = ceil(size / bins). */

enum { MASK, WORK, SUM }; /* SUM: gradient of one sample by one level */
enum { MOST_LEVELS = 16 };

typedef struct spp_level {
    ct_pool_desc desc; /* of one sample */
    const ct_pool_impl *forward, *backward;
    int64_t at; /* in a sample of the top */
} spp_level;

typedef struct spp_plan {
    int n_level;
    int64_t samples, in, out; /* in, out: numbers of a sample */
    spp_level level[MOST_LEVELS];
} spp_plan;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__SPPParameter *p = l->param->spp_param;

    (void)bottom;
    if ((p == NULL) || (p->pyramid_height == 0) || (p->pyramid_height > MOST_LEVELS))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "spp_param.pyramid_height %u: the number of levels must be 1 to %d",
                             (p != NULL) ? p->pyramid_height : 0, MOST_LEVELS);
    if (p->pool == CT__SPPPARAMETER__POOL_METHOD__STOCHASTIC)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "spp_param.pool: STOCHASTIC is not supported; there are MAX and AVE");
    return CT_OK;
}

/* Windows of an axis of `in` in 2^k bins; with their padding they cover it just so. */
static ct_status windows(const ct_layer *l, int k, int64_t in, int64_t *kernel_p, int64_t *pad_p)
{
    int64_t bins = (int64_t)1 << k, kernel = (in + bins - 1) / bins;
    int64_t pad = (kernel * bins - in + 1) / 2;

    if (pad >= kernel) /* Caffe's pooling does not take that either */
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "%lld bins on an axis of %lld need a padding of %lld, no less than "
                             "their size %lld: fewer levels, or other planes",
                             (long long)bins, (long long)in, (long long)pad, (long long)kernel);
    *kernel_p = kernel;
    *pad_p = pad;
    return CT_OK;
}

static ct_status plan_level(const ct_layer *l, const ct_shape *x, int k, spp_level *level)
{
    bool mean = l->param->spp_param->pool == CT__SPPPARAMETER__POOL_METHOD__AVE;
    ct_pool_desc *d = &level->desc;

    *d = (ct_pool_desc){ .device = l->dev->kind,
                         .n_thread = ct_engine_n_thread(l),
                         .method = mean ? CT_POOL_AVE : CT_POOL_MAX,
                         .planes = x->dim[1],
                         .h = x->dim[2],
                         .w = x->dim[3],
                         .oh = (int64_t)1 << k,
                         .ow = (int64_t)1 << k };
    CT_TRY(windows(l, k, d->h, &d->kh, &d->ph));
    CT_TRY(windows(l, k, d->w, &d->kw, &d->pw));
    d->sh = d->kh;
    d->sw = d->kw;
    CT_TRY(ct_pool_pick(l, CT_RUN_FORWARD, ct_pool_forward_table, d, &level->forward));
    return ct_pool_pick(l, CT_RUN_BACKWARD_DATA, ct_pool_backward_table, d, &level->backward);
}

/* A mask is of bytes or of int32_t: there is room for both, so that levels may differ. */
static void *mask_at(const ct_instance *in, int64_t at)
{
    return (int32_t *)in->buffer[MASK].data + at;
}

static size_t larger(size_t a, size_t b)
{
    return (a > b) ? a : b;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *x = &in->bottom[0]->data.shape;
    spp_plan *plan = in->state;
    ct_shape top = { 2, { 0 } };
    size_t work = 0;

    if (x->ndim != 4)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the bottom %s must have 4 axes: N C H W",
                             ct_shape_str(x).text);
    if ((x->dim[2] < 1) || (x->dim[3] < 1) || (x->dim[2] > INT32_MAX / x->dim[3]))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "planes of %lld x %lld: empty or too large",
                             (long long)x->dim[2], (long long)x->dim[3]);
    *plan = (spp_plan){ .n_level = (int)l->param->spp_param->pyramid_height,
                        .samples = x->dim[0],
                        .in = ct_shape_count(x, 1, -1) };
    for (int k = 0; k < plan->n_level; k++) {
        spp_level *level = &plan->level[k];

        CT_TRY(plan_level(l, x, k, level));
        level->at = plan->out;
        plan->out += x->dim[1] * level->desc.oh * level->desc.ow;
        work = larger(work, ct_pool_workspace(level->forward, &level->desc));
        work = larger(work, ct_pool_workspace(level->backward, &level->desc));
    }
    top.dim[0] = x->dim[0];
    top.dim[1] = plan->out;
    if (plan->n_level == 1) top = (ct_shape){ 4, { x->dim[0], x->dim[1], 1, 1 } };
    ct_blob_set_shape(in->top[0], &top);
    ct_instance_buffer(in, MASK, in->bottom[0]->wants_diff ? CT_LIFETIME_PASS : CT_LIFETIME_CALL,
                       (size_t)(plan->samples * plan->out) * sizeof(int32_t));
    ct_instance_buffer(in, WORK, CT_LIFETIME_CALL, work);
    ct_instance_buffer(in, SUM, CT_LIFETIME_CALL, (size_t)plan->in * sizeof(float));
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const spp_plan *plan = in->state;

    (void)l;
    for (int64_t n = 0; n < plan->samples; n++) {
        for (int k = 0; k < plan->n_level; k++) {
            const spp_level *level = &plan->level[k];
            int64_t at = n * plan->out + level->at;

            CT_TRY(level->forward->run(
                &level->desc, ex,
                &(ct_pool_args){ .x = ct_blob_data(in->bottom[0]) + n * plan->in,
                                 .y = ct_blob_data(in->top[0]) + at,
                                 .mask = mask_at(in, at),
                                 .work = in->buffer[WORK].data }));
        }
        CT_TRY(ct_exec_poll(ex));
    }
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const spp_plan *plan = in->state;
    float *sum = in->buffer[SUM].data;

    (void)l;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    for (int64_t n = 0; n < plan->samples; n++) {
        float *dx = ct_blob_diff(in->bottom[0]) + n * plan->in;

        for (int k = 0; k < plan->n_level; k++) {
            const spp_level *level = &plan->level[k];
            int64_t at = n * plan->out + level->at;

            CT_TRY(level->backward->run(&level->desc, ex,
                                        &(ct_pool_args){ .mask = mask_at(in, at),
                                                         .work = in->buffer[WORK].data,
                                                         .dy = ct_blob_diff(in->top[0]) + at,
                                                         .dx = (k == 0) ? dx : sum }));
            if (k == 0) continue;
            CT_TRY(ex->dev->math->axpy(ex->stream, plan->in, 1.0f, sum, dx));
        }
        CT_TRY(ct_exec_poll(ex));
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_spp = {
    .type = "SPP",
    .params = "spp_param",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .instance_state_size = sizeof(spp_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .on_cuda = true,
};
