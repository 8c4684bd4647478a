/* Layers that move values or add them up: Concat, Tile, Reduction, BatchReindex, Embed, ArgMax,
 * Im2col, Pooling by drawing. */
#include "layers/cuda/layer_cuda.cuh"

extern "C" {
#include "layers/engine/conv/conv.h"
#include "layers/engine/pool/pool.h"
}
#include "framework/base/rng.h"
#include "layers/types/argmax.h"

/* ---- Concat: the axis is the one along which the bottoms add up to the top */

static int concat_axis(const ct_instance *in)
{
    const ct_shape *x = &in->bottom[0]->data.shape, *y = &in->top[0]->data.shape;
    int axis = 0;

    while ((axis < y->ndim - 1) && (x->dim[axis] == y->dim[axis])) axis++;
    return axis;
}

/* Rows of one bottom, `row` pieces of type T each, `stride` apart in the top. */
template <class T>
static ct_status concat_rows(ct_exec *ex, int64_t outer, int64_t row, int64_t stride, T *mine,
                             T *whole, bool to_top)
{
    return ct_cuda_map(
        ex->stream, "Concat", outer * row, KERNEL(int64_t i) {
            int64_t at = i / row * stride + i % row;

            if (to_top)
                whole[at] = mine[i];
            else
                mine[i] = whole[at];
        });
}

/* Of 16 bits: as many numbers at a time as rows and their places are whole multiples of. */
struct alignas(16) eight_halves {
    uint16_t v[8];
};

static ct_status concat_halves(ct_exec *ex, int64_t outer, int64_t row, int64_t stride,
                               int64_t offset, uint16_t *mine, uint16_t *whole, bool to_top)
{
    if ((row % 8 == 0) && (stride % 8 == 0) && (offset % 8 == 0))
        return concat_rows(ex, outer, row / 8, stride / 8, (eight_halves *)mine,
                           (eight_halves *)(whole + offset), to_top);
    return concat_rows(ex, outer, row, stride, mine, whole + offset, to_top);
}

static ct_status concat_move(const ct_layer *l, const ct_instance *in, ct_exec *ex, bool to_top)
{
    bool last = ct_blob_is_last(in->top[0]); /* then along the channels: the last axis */
    int axis = last ? 1 : concat_axis(in);
    const ct_shape *y = &in->top[0]->data.shape;
    int64_t outer = ct_shape_count(y, 0, axis) * (last ? ct_shape_count(y, 2, -1) : 1), offset = 0;
    int64_t stride = last ? y->dim[1] : ct_shape_count(y, axis, -1);

    for (int k = 0; k < l->n_bottom; k++) {
        int64_t row = (outer > 0) ? count_of(in->bottom[k]) / outer : 0, at = offset;
        float *mine = to_top ? ct_blob_data(in->bottom[k]) : ct_blob_diff(in->bottom[k]);
        float *whole = to_top ? ct_blob_data(in->top[0]) : ct_blob_diff(in->top[0]);

        offset += row;
        if (mine == NULL) continue;
        CT_TRY(last ? concat_halves(ex, outer, row, stride, at, (uint16_t *)mine, (uint16_t *)whole,
                                    to_top)
                    : concat_rows(ex, outer, row, stride, mine, whole + at, to_top));
    }
    return CT_OK;
}

static ct_status concat_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    return concat_move(l, in, ex, true);
}

static ct_status concat_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    return concat_move(l, in, ex, false);
}

const ct_device_override ct_cuda_concat = { "Concat", NULL, concat_forward, concat_backward };

/* ---- Tile: mid copies of inner elements, outer times */

static ct_status tile_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_view v = *(const ct_view *)in->state;
    const float *dy = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]);

    (void)l;
    if (dx == NULL) return CT_OK;
    return ct_cuda_map(
        ex->stream, "Tile backward", v.outer * v.inner, KERNEL(int64_t e) {
            const float *g = dy + e / v.inner * v.mid * v.inner + e % v.inner;
            float sum = g[0];

            for (int64_t k = 1; k < v.mid; k++) sum += g[k * v.inner];
            dx[e] = sum;
        });
}

const ct_device_override ct_cuda_tile = { "Tile", NULL, NULL, tile_backward };

/* ---- Reduction: what the top has no axes for is one row */

typedef struct reduction {
    Ct__ReductionParameter__ReductionOp op;
    int64_t rows, n;
    double factor;
} reduction;

static ct_status reduction_of(const ct_layer *l, const ct_instance *in, ct_exec *ex, reduction *r)
{
    const Ct__ReductionParameter *p = l->param->reduction_param;
    const ct_shape *x = &in->bottom[0]->data.shape;
    int axis = in->top[0]->data.shape.ndim;
    double n;

    r->op = (p != NULL) ? p->operation : CT__REDUCTION_PARAMETER__REDUCTION_OP__SUM;
    r->rows = ct_shape_count(x, 0, axis);
    r->n = ct_shape_count(x, axis, -1);
    r->factor = (p != NULL) ? (double)p->coeff : 1.0;
    if (r->op != CT__REDUCTION_PARAMETER__REDUCTION_OP__MEAN) return CT_OK;
    n = (double)r->n;
    if (axis == 0) CT_TRY(ct_exec_global_count(ex, n, false, &n)); /* over the samples, too */
    if (n > 0.0) r->factor /= n;
    return CT_OK;
}

static ct_status reduction_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *x = ct_blob_data(in->bottom[0]);
    float *y = ct_blob_data(in->top[0]);
    reduction r;

    CT_TRY(reduction_of(l, in, ex, &r));
    return ct_cuda_sums<1>(
        ex->stream, "Reduction", r.rows, r.n,
        KERNEL(int64_t k, int64_t i, double *sum) {
            double v = (double)x[k * r.n + i];

            *sum += (r.op == CT__REDUCTION_PARAMETER__REDUCTION_OP__ASUM)    ? fabs(v)
                    : (r.op == CT__REDUCTION_PARAMETER__REDUCTION_OP__SUMSQ) ? v * v
                                                                             : v;
        },
        KERNEL(int64_t k, const double *sum) { y[k] = (float)(r.factor * *sum); });
}

static ct_status reduction_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *x = ct_blob_data(in->bottom[0]), *dy = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]);
    reduction r;

    if (dx == NULL) return CT_OK;
    CT_TRY(reduction_of(l, in, ex, &r));
    return ct_cuda_map(
        ex->stream, "Reduction backward", r.rows * r.n, KERNEL(int64_t i) {
            float g = (float)(r.factor * (double)dy[i / r.n]);

            if (r.op == CT__REDUCTION_PARAMETER__REDUCTION_OP__ASUM)
                dx[i] = (x[i] > 0.0f) ? g : (x[i] < 0.0f) ? -g : 0.0f;
            else
                dx[i] =
                    (r.op == CT__REDUCTION_PARAMETER__REDUCTION_OP__SUMSQ) ? 2.0f * g * x[i] : g;
        });
}

const ct_device_override ct_cuda_reduction = { "Reduction", NULL, reduction_forward,
                                               reduction_backward };

/* ---- ArgMax: a distribution a thread; buffer 0 holds the best of each, in order */

static ct_status argmax_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_argmax_state s = *(const ct_argmax_state *)l->state;
    ct_view v = *(const ct_view *)in->state;
    const float *x = ct_blob_data(in->bottom[0]);
    float *y = ct_blob_data(in->top[0]);
    ct_argmax_found *all = (ct_argmax_found *)in->buffer[0].data;

    return ct_cuda_map(
        ex->stream, "ArgMax", v.outer * v.inner,
        KERNEL(int64_t d) { ct_argmax_one(&s, d, v.mid, v.inner, x, all + d * s.top_k, y); });
}

const ct_device_override ct_cuda_argmax = { "ArgMax", NULL, argmax_forward, NULL };

/* ---- Im2col */

static ct_status im2col_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_conv_desc d = *(const ct_conv_desc *)in->state;

    (void)l;
    return ct_cuda_im2col(ex, &d, CT_OPERAND_F32, d.n, ct_blob_data(in->bottom[0]),
                          ct_blob_data(in->top[0]));
}

static ct_status im2col_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_conv_desc d = *(const ct_conv_desc *)in->state;

    (void)l;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return ct_cuda_col2im(ex, &d, d.n, ct_blob_diff(in->top[0]), ct_blob_diff(in->bottom[0]));
}

const ct_device_override ct_cuda_im2col_layer = { "Im2col", NULL, im2col_forward, im2col_backward };

/* ---- Pooling: MAX and AVE are engines; STOCHASTIC draws one element of each window */

static bool is_stochastic(const ct_layer *l)
{
    return l->param->pooling_param->pool == CT__POOLING_PARAMETER__POOL_METHOD__STOCHASTIC;
}

typedef struct draw_window {
    int64_t top, bottom, left, right;
} draw_window;

static __device__ draw_window window_of(const ct_pool_desc &d, int64_t o)
{
    draw_window v;

    v.top = o / d.ow % d.oh * d.sh;
    v.left = o % d.ow * d.sw;
    v.bottom = (v.top + d.kh < d.h) ? v.top + d.kh : d.h;
    v.right = (v.left + d.kw < d.w) ? v.left + d.kw : d.w;
    return v;
}

static __device__ void window_sums(const ct_pool_desc &d, const draw_window &v, const float *x,
                                   float *sum_p, float *square_p)
{
    float sum = 0.0f, square = 0.0f;

    for (int64_t i = v.top; i < v.bottom; i++) {
        for (int64_t j = v.left; j < v.right; j++) {
            sum += x[i * d.w + j];
            square += x[i * d.w + j] * x[i * d.w + j];
        }
    }
    *sum_p = sum;
    *square_p = square;
}

/* The first element at which the running sum reaches share * sum; the last where rounding keeps it
 * below. */
static __device__ int32_t reach(const ct_pool_desc &d, const draw_window &v, const float *x,
                                float share)
{
    float sum, square, run = 0.0f;
    int64_t at = v.top * d.w + v.left;

    window_sums(d, v, x, &sum, &square);
    for (int64_t i = v.top; i < v.bottom; i++) {
        for (int64_t j = v.left; j < v.right; j++) {
            at = i * d.w + j;
            run += x[at];
            if (run >= share * sum) return (int32_t)at;
        }
    }
    return (int32_t)at;
}

static ct_status pooling_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_pool_desc d = *(const ct_pool_desc *)in->state;
    int64_t n = count_of(in->top[0]), local = (ex->batch_local > 0) ? ex->batch_local : 1;
    draw_key key = key_of(ex, ct_rng_hash(l->name));
    uint64_t first = (uint64_t)(ex->batch_first * (n / local));
    const float *x = ct_blob_data(in->bottom[0]);
    float *y = ct_blob_data(in->top[0]);
    int32_t *place = (int32_t *)in->buffer[0].data;
    bool test = (l->phase == CT_TEST);

    if (!is_stochastic(l)) return l->ops->forward(l, in, ex);
    return ct_cuda_map(
        ex->stream, "Pooling", n, KERNEL(int64_t o) {
            const float *from = x + o / (d.oh * d.ow) * d.h * d.w;
            draw_window v = window_of(d, o);
            uint64_t number = first + (uint64_t)o;

            if (test) {
                float sum, square;

                window_sums(d, v, from, &sum, &square);
                y[o] = (sum > 0.0f) ? square / (sum + FLT_MIN) : 0.0f;
                return;
            }
            place[o] = reach(d, v, from,
                             ct_rng_uniform(ct_philox(key.get(), 0, number / 4).v[number % 4]));
            y[o] = from[place[o]];
        });
}

/* The outputs [*lo_p, *hi_p) whose windows cover `in`. */
static __device__ void covering(int64_t in, int64_t kernel, int64_t stride, int64_t out,
                                int64_t *lo_p, int64_t *hi_p)
{
    *lo_p = (in < kernel) ? 0 : (in - kernel) / stride + 1;
    *hi_p = (in / stride + 1 < out) ? in / stride + 1 : out;
}

static ct_status pooling_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_pool_desc d = *(const ct_pool_desc *)in->state;
    const float *x = ct_blob_data(in->bottom[0]), *dy = ct_blob_diff(in->top[0]);
    const int32_t *place = (const int32_t *)in->buffer[0].data;
    float *dx = ct_blob_diff(in->bottom[0]);
    bool test = (l->phase == CT_TEST);

    if (!is_stochastic(l) || (dx == NULL) || (dy == NULL)) return l->ops->backward(l, in, ex);
    return ct_cuda_map(
        ex->stream, "Pooling backward", count_of(in->bottom[0]), KERNEL(int64_t e) {
            int64_t at = e % (d.h * d.w), plane = e / (d.h * d.w), i0, i1, j0, j1;
            float total = 0.0f;

            covering(at / d.w, d.kh, d.sh, d.oh, &i0, &i1);
            covering(at % d.w, d.kw, d.sw, d.ow, &j0, &j1);
            for (int64_t i = i0; i < i1; i++) {
                for (int64_t j = j0; j < j1; j++) {
                    int64_t o = (plane * d.oh + i) * d.ow + j;
                    float sum, square;

                    if (!test) {
                        total += (place[o] == at) ? dy[o] : 0.0f;
                        continue;
                    }
                    window_sums(d, window_of(d, o), x + plane * d.h * d.w, &sum, &square);
                    if (sum > 0.0f) total += dy[o] * (2.0f * x[e] - square / sum) / sum;
                }
            }
            dx[e] = total;
        });
}

static bool pooling_draws(const Ct__LayerParameter *p)
{
    return (p->pooling_param != NULL) &&
           (p->pooling_param->pool == CT__POOLING_PARAMETER__POOL_METHOD__STOCHASTIC);
}

/* Windows of forks run on the host. */
static bool pooling_can(const Ct__LayerParameter *p)
{
    const Ct__PoolingParameter *q = p->pooling_param;

    for (size_t i = 0; (q != NULL) && (i < q->n_dilation); i++) {
        if (q->dilation[i] > 1) return false;
    }
    return (q == NULL) || q->avg_include_pad ||
           (q->pool != CT__POOLING_PARAMETER__POOL_METHOD__AVE) ||
           ((q->pad == 0) && (q->pad_h == 0) && (q->pad_w == 0));
}

const ct_device_override ct_cuda_pooling = { "Pooling",        pooling_can, pooling_forward,
                                             pooling_backward, true,        pooling_draws };
