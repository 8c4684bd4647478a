/* Layers that work element by element on CUDA: PReLU, Eltwise, Axpy, LSTMUnit, Dropout. */
#include "layers/cuda/layer_cuda.cuh"

extern "C" {
#include "layers/engine/neuron/neuron.h"
}
#include "framework/math/cuda/narrow.cuh"
#include "framework/math/sigmoid.h"
#include "layers/engine/cuda/wide.cuh"

/* ---- PReLU: the view of reshape; one slope where its weight is a scalar */

static ct_status prelu_map(ct_exec *ex, const ct_instance *in, const float *x, const float *from,
                           float *to)
{
    ct_view v = *(const ct_view *)in->state;
    const float *slope = ct_blob_data(&in->weight[0]);
    bool shared = (in->layer->weight[0].shape.ndim == 0);

    return ct_cuda_map(
        ex->stream, "PReLU", v.outer * v.mid * v.inner, KERNEL(int64_t i) {
            float below = slope[shared ? 0 : i / v.inner % v.mid] * from[i];

            to[i] = (x[i] > 0.0f) ? from[i] : below;
        });
}

static ct_status prelu_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *x = ct_blob_data(in->bottom[0]);

    (void)l;
    if (in->buffer[0].bytes > 0) /* in place: the input is kept */
        CT_TRY(ct_device_copy(ex, count_of(in->bottom[0]), x, (float *)in->buffer[0].data));
    return prelu_map(ex, in, x, x, ct_blob_data(in->top[0]));
}

static ct_status prelu_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *x =
        (in->buffer[0].bytes > 0) ? (const float *)in->buffer[0].data : ct_blob_data(in->bottom[0]);
    const float *dy = ct_blob_diff(in->top[0]);
    float *da = ct_blob_diff(&in->weight[0]);
    ct_view v = *(const ct_view *)in->state;
    bool add = ct_weight_beta(in, ex, 0) != 0.0f;

    if (l->weight[0].shape.ndim == 0) {
        v.inner *= v.outer * v.mid;
        v.outer = v.mid = 1;
    }
    if (da != NULL)
        CT_TRY(ct_cuda_sums<1>(
            ex->stream, "PReLU slopes", v.mid, v.outer * v.inner,
            KERNEL(int64_t c, int64_t i, double *sum) {
                int64_t at = (i / v.inner * v.mid + c) * v.inner + i % v.inner;

                if (x[at] < 0.0f) *sum += (double)x[at] * (double)dy[at];
            },
            KERNEL(int64_t c, const double *sum) {
                da[c] = (float)(*sum + (add ? (double)da[c] : 0.0));
            }));
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return prelu_map(ex, in, x, dy, ct_blob_diff(in->bottom[0]));
}

const ct_device_override ct_cuda_prelu = { "PReLU", NULL, prelu_forward, prelu_backward };

/* ---- Eltwise: pairs of bottoms one after the other, as on the CPU */

static ct_status sum_two(ct_exec *ex, int64_t n, float ca, const float *a, float cb, const float *b,
                         float *y)
{
    ct_wide_from<2> from = { { a, b } };

    return ct_cuda_wide_floats(
        ex->stream, "Eltwise", n, from, y,
        KERNEL(const float *v) { return ca * v[0] + cb * v[1]; });
}

static ct_status product_two(ct_exec *ex, int64_t n, const float *a, const float *b, float *y)
{
    ct_wide_from<2> from = { { a, b } };

    return ct_cuda_wide_floats(
        ex->stream, "Eltwise", n, from, y, KERNEL(const float *v) { return v[0] * v[1]; });
}

/* y: the largest so far; winner: whose. Of equal values the second of the first two wins, later
 * ones only if larger. winner NULL: unwanted. */
static ct_status largest_two(ct_exec *ex, int64_t n, int k, const float *a, const float *b,
                             float *y, unsigned char *winner)
{
    return ct_cuda_map(
        ex->stream, "Eltwise", n, KERNEL(int64_t i) {
            bool second = (k == 1) ? !(a[i] > b[i]) : (b[i] > a[i]);

            y[i] = second ? b[i] : a[i];
            if (winner != NULL) winner[i] = second ? (unsigned char)k : (k == 1) ? 0 : winner[i];
        });
}

static float coefficient(const ct_layer *l, int i)
{
    const Ct__EltwiseParameter *p = l->param->eltwise_param;

    return ((p != NULL) && (p->n_coeff > 0)) ? p->coeff[i] : 1.0f;
}

static Ct__EltwiseParameter__EltwiseOp operation(const ct_layer *l)
{
    const Ct__EltwiseParameter *p = l->param->eltwise_param;

    return (p != NULL) ? p->operation : CT__ELTWISE_PARAMETER__ELTWISE_OP__SUM;
}

/* Sums of numbers of 16 bits, added up in f32 and rounded once. */
typedef struct addends {
    ct_numbers x[CT_ELTWISE_LAST];
    int n;
} addends;

static ct_status sum_narrow(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_numbers y = ct_numbers_at(ct_blob_data(in->top[0]), in->top[0]->data.dtype);
    addends a;

    if (l->n_bottom == 2)
        return ct_kernels(ex)->add(ex, count_of(in->top[0]), y.type, ct_blob_data(in->bottom[0]),
                                   ct_blob_data(in->bottom[1]), ct_blob_data(in->top[0]));
    a.n = l->n_bottom;
    for (int k = 0; k < a.n; k++)
        a.x[k] = ct_numbers_at(ct_blob_data(in->bottom[k]), in->bottom[k]->data.dtype);
    return ct_cuda_map(
        ex->stream, "Eltwise", count_of(in->top[0]), KERNEL(int64_t i) {
            float sum = a.x[0][i];

            for (int k = 1; k < a.n; k++) sum += a.x[k][i];
            y.put(i, sum);
        });
}

static ct_status eltwise_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    unsigned char *winner = (in->buffer[0].bytes > 0) ? (unsigned char *)in->buffer[0].data : NULL;
    int64_t n = count_of(in->bottom[0]);
    const float *a = ct_blob_data(in->bottom[0]);
    float *y = ct_blob_data(in->top[0]), ca = coefficient(l, 0);

    if (ct_blob_is_last(in->top[0])) return sum_narrow(l, in, ex);
    for (int k = 1; k < l->n_bottom; k++) {
        const float *b = ct_blob_data(in->bottom[k]);

        if (operation(l) == CT__ELTWISE_PARAMETER__ELTWISE_OP__PROD)
            CT_TRY(product_two(ex, n, a, b, y));
        else if (operation(l) == CT__ELTWISE_PARAMETER__ELTWISE_OP__SUM)
            CT_TRY(sum_two(ex, n, ca, a, coefficient(l, k), b, y));
        else
            CT_TRY(largest_two(ex, n, k, a, b, y, winner));
        a = y;
        ca = 1.0f;
    }
    return CT_OK;
}

/* dx = dy times the other bottoms, or the top over this one. */
static ct_status product_backward(const ct_layer *l, ct_instance *in, ct_exec *ex, int which,
                                  float *dx)
{
    const Ct__EltwiseParameter *p = l->param->eltwise_param;
    int64_t n = count_of(in->bottom[0]);
    const float *dy = ct_blob_diff(in->top[0]), *y = ct_blob_data(in->top[0]);
    const float *x = ct_blob_data(in->bottom[which]);
    bool first = true;

    if (!p->stable_prod_grad)
        return ct_cuda_map(
            ex->stream, "Eltwise backward", n, KERNEL(int64_t i) { dx[i] = y[i] / x[i] * dy[i]; });
    for (int k = 0; k < l->n_bottom; k++) {
        const float *other = ct_blob_data(in->bottom[k]);
        bool start = first;

        if (k == which) continue;
        CT_TRY(ct_cuda_map(
            ex->stream, "Eltwise backward", n,
            KERNEL(int64_t i) { dx[i] = (start ? 1.0f : dx[i]) * other[i]; }));
        first = false;
    }
    return product_two(ex, n, dx, dy, dx);
}

static ct_status scaled(ct_exec *ex, int64_t n, float c, const float *dy, float *dx)
{
    ct_wide_from<1> from = { { dy } };

    return ct_cuda_wide_floats(
        ex->stream, "Eltwise backward", n, from, dx, KERNEL(const float *v) { return c * v[0]; });
}

static ct_status eltwise_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const unsigned char *winner = (const unsigned char *)in->buffer[0].data;
    int64_t n = count_of(in->bottom[0]);
    const float *dy = ct_blob_diff(in->top[0]);

    for (int k = 0; k < l->n_bottom; k++) {
        float *dx = ct_blob_diff(in->bottom[k]), c = coefficient(l, k);

        if (dx == NULL) continue;
        if (ct_blob_is_last(in->bottom[k])) {
            if (dx != dy)
                CT_TRY(ex->dev->copy(ex->stream, dx, dy, ct_tensor_bytes(&in->bottom[k]->diff)));
            continue;
        }
        if (operation(l) == CT__ELTWISE_PARAMETER__ELTWISE_OP__PROD)
            CT_TRY(product_backward(l, in, ex, k, dx));
        else if (operation(l) == CT__ELTWISE_PARAMETER__ELTWISE_OP__SUM)
            CT_TRY(scaled(ex, n, c, dy, dx));
        else
            CT_TRY(ct_cuda_map(
                ex->stream, "Eltwise backward", n,
                KERNEL(int64_t i) { dx[i] = (winner[i] == k) ? dy[i] : 0.0f; }));
    }
    return CT_OK;
}

const ct_device_override ct_cuda_eltwise = { "Eltwise", NULL, eltwise_forward, eltwise_backward };

/* ---- Axpy: outer rows of inner elements, a factor each */

static ct_status axpy_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_view v = *(const ct_view *)in->state;
    const float *a = ct_blob_data(in->bottom[0]), *x = ct_blob_data(in->bottom[1]);
    const float *y = ct_blob_data(in->bottom[2]);
    float *z = ct_blob_data(in->top[0]);

    (void)l;
    return ct_cuda_map(
        ex->stream, "Axpy", v.outer * v.inner,
        KERNEL(int64_t i) { z[i] = a[i / v.inner] * x[i] + y[i]; });
}

static ct_status axpy_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_view v = *(const ct_view *)in->state;
    const float *a = ct_blob_data(in->bottom[0]), *x = ct_blob_data(in->bottom[1]);
    const float *dz = ct_blob_diff(in->top[0]);
    float *da = ct_blob_diff(in->bottom[0]), *dx = ct_blob_diff(in->bottom[1]);

    (void)l;
    if (da != NULL)
        CT_TRY(ct_cuda_sums<1>(
            ex->stream, "Axpy factors", v.outer, v.inner,
            KERNEL(int64_t r, int64_t i, double *sum) {
                *sum += (double)dz[r * v.inner + i] * (double)x[r * v.inner + i];
            },
            KERNEL(int64_t r, const double *sum) { da[r] = (float)*sum; }));
    if (dx != NULL)
        CT_TRY(ct_cuda_map(
            ex->stream, "Axpy backward", v.outer * v.inner,
            KERNEL(int64_t i) { dx[i] = a[i / v.inner] * dz[i]; }));
    if (ct_blob_diff(in->bottom[2]) == NULL) return CT_OK;
    return ct_device_copy(ex, v.outer * v.inner, dz, ct_blob_diff(in->bottom[2]));
}

const ct_device_override ct_cuda_axpy = { "Axpy", NULL, axpy_forward, axpy_backward };

/* ---- LSTMUnit: columns x hidden; x has the four sums `n` apart */

typedef struct unit_gates {
    float i, f, o, g, keep, tanh_c, c;
} unit_gates;

static __device__ unit_gates gates_of(const float *x, int64_t n, int64_t d, float cont,
                                      float before)
{
    unit_gates s;

    s.i = ct_sigmoid_f32(x[d]);
    s.f = ct_sigmoid_f32(x[n + d]);
    s.o = ct_sigmoid_f32(x[2 * n + d]);
    s.g = ct_tanh_f32(x[3 * n + d]);
    s.keep = (cont == 0.0f) ? 0.0f : before;
    s.c = cont * s.f * s.keep + s.i * s.g;
    s.tanh_c = ct_tanh_f32(s.c);
    return s;
}

static ct_status unit_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *c0 = ct_blob_data(in->bottom[0]), *x = ct_blob_data(in->bottom[1]);
    const float *cont = ct_blob_data(in->bottom[2]);
    float *c = ct_blob_data(in->top[0]), *h = ct_blob_data(in->top[1]);
    int64_t n = dim_of(in->top[0], 2);

    (void)l;
    return ct_cuda_map(
        ex->stream, "LSTMUnit", dim_of(in->top[0], 1) * n, KERNEL(int64_t e) {
            int64_t r = e / n;
            unit_gates k = gates_of(x + 4 * r * n, n, e % n, cont[r], c0[e]);

            c[e] = k.c;
            h[e] = k.o * k.tanh_c;
        });
}

static ct_status unit_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *c0 = ct_blob_data(in->bottom[0]), *x = ct_blob_data(in->bottom[1]);
    const float *cont = ct_blob_data(in->bottom[2]);
    const float *dc = ct_blob_diff(in->top[0]), *dh = ct_blob_diff(in->top[1]);
    float *dc0 = ct_blob_diff(in->bottom[0]), *dx = ct_blob_diff(in->bottom[1]);
    int64_t n = dim_of(in->top[0], 2);

    (void)l;
    return ct_cuda_map(
        ex->stream, "LSTMUnit backward", dim_of(in->top[0], 1) * n, KERNEL(int64_t e) {
            int64_t r = e / n, at = 4 * r * n + e % n;
            unit_gates k = gates_of(x + 4 * r * n, n, e % n, cont[r], c0[e]);
            float g = dc[e] + dh[e] * k.o * (1.0f - k.tanh_c * k.tanh_c);

            if (dc0 != NULL) dc0[e] = g * cont[r] * k.f;
            if (dx == NULL) return;
            dx[at] = g * k.g * k.i * (1.0f - k.i);
            dx[at + n] = g * cont[r] * k.keep * k.f * (1.0f - k.f);
            dx[at + 2 * n] = dh[e] * k.tanh_c * k.o * (1.0f - k.o);
            dx[at + 3 * n] = g * k.i * (1.0f - k.g * k.g);
        });
}

const ct_device_override ct_cuda_lstm_unit = { "LSTMUnit", NULL, unit_forward, unit_backward };

/* ---- Dropout: backward draws the same numbers again instead of reading a mask. A thread has a
 * block of Philox, four numbers. */

extern "C" {
#include "layers/types/drop.h"
}
#include "layers/engine/cuda/wide.cuh"

typedef struct dropping {
    uint32_t below;
    float scale;
    ct_dropout_numbers r;
    draw_key key;
} dropping;

template <ct_dtype T>
static ct_status drop_blocks(ct_exec *ex, const dropping &how, const float *x, float *y)
{
    dropping d = how;
    int64_t groups = d.r.row / 4 + 2; /* that a row may begin and end within */
    bool wide = ct_is_wide(x, T) && ct_is_wide(y, T);
    ct_numbers from = ct_numbers_at(x, T), to = ct_numbers_at(y, T);

    return ct_cuda_map(
        ex->stream, "Dropout", d.r.n_row * groups, KERNEL(int64_t i) {
            int64_t row = i / groups;
            uint64_t first = ct_dropout_first(&d.r, row);
            uint64_t block = first / 4 + (uint64_t)(i % groups);
            int64_t at = (int64_t)(block * 4 - first); /* of number 0 of the block, in its row */
            ct_rng_block b;

            if (at >= d.r.row) return;
            b = ct_philox(d.key.get(), 0, block);
            if (wide && (at >= 0) && (at + CT_WIDE <= d.r.row) &&
                ((row * d.r.row + at) % CT_WIDE == 0)) {
                int64_t four = (row * d.r.row + at) / CT_WIDE;
                ct_four v = ct_wide_get<T>(x, four);

                for (int k = 0; k < CT_WIDE; k++)
                    v.v[k] = (b.v[k] >= d.below) ? v.v[k] * d.scale : 0.0f;
                ct_wide_put<T>(y, four, v);
                return;
            }
            for (int k = 0; k < 4; k++) {
                int64_t e = row * d.r.row + at + k;

                if ((at + k < 0) || (at + k >= d.r.row)) continue;
                to.put(e, (b.v[k] >= d.below) ? from[e] * d.scale : 0.0f);
            }
        });
}

/* Channels last: neighbours in memory have numbers that are `places` apart, so each draws its own
 * block. */
static ct_status drop_last(ct_exec *ex, const dropping &how, int64_t n, int64_t channels,
                           int64_t places, ct_numbers from, ct_numbers to)
{
    dropping d = how;

    return ct_cuda_map(
        ex->stream, "Dropout", n, KERNEL(int64_t i) {
            int64_t sample = i / (channels * places), place = i / channels % places;
            int64_t plain = (sample * channels + i % channels) * places + place;
            uint64_t number = ct_dropout_first(&d.r, plain / d.r.row) + (uint64_t)(plain % d.r.row);
            ct_rng_block b = ct_philox(d.key.get(), 0, number / 4);

            to.put(i, (b.v[number % 4] >= d.below) ? from[i] * d.scale : 0.0f);
        });
}

static ct_status drop(const ct_layer *l, const ct_instance *in, ct_exec *ex, const float *x,
                      float *y)
{
    const ct_dropout_state *s = (const ct_dropout_state *)l->state;
    const ct_tensor *t = &in->bottom[0]->data;
    int64_t n = ct_tensor_count(t), places = ct_shape_count(&t->shape, 2, -1);
    dropping d = { (uint32_t)s->drop_below, s->scale, ct_dropout_number(s, t, ex, 0),
                   key_of(ex, s->name_hash) };

    if (l->phase == CT_TEST)
        return (x == y) ? CT_OK : ex->dev->copy(ex->stream, y, x, ct_tensor_bytes(t));
    if (ct_blob_is_last(in->bottom[0]) && (places > 1))
        return drop_last(ex, d, n, t->shape.dim[1], places, ct_numbers_at(x, t->dtype),
                         ct_numbers_at(y, t->dtype));
    return (t->dtype == CT_F32)    ? drop_blocks<CT_F32>(ex, d, x, y)
           : (t->dtype == CT_BF16) ? drop_blocks<CT_BF16>(ex, d, x, y)
                                   : drop_blocks<CT_F16>(ex, d, x, y);
}

static ct_status dropout_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    return drop(l, in, ex, ct_blob_data(in->bottom[0]), ct_blob_data(in->top[0]));
}

static ct_status dropout_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return drop(l, in, ex, ct_blob_diff(in->top[0]), ct_blob_diff(in->bottom[0]));
}

static bool draws(const Ct__LayerParameter *)
{
    return true;
}

/* Parts of several ranges are the host's. */
static bool dropout_can(const Ct__LayerParameter *p)
{
    return (p->part == NULL) || (p->part->n_piece <= 1);
}

const ct_device_override ct_cuda_dropout = { "Dropout",        dropout_can, dropout_forward,
                                             dropout_backward, false,       draws };

/* ---- Attention runs by its engines, whose kernels draw numbers where it drops probabilities */

static bool attention_draws(const Ct__LayerParameter *p)
{
    return (p->attention_param != NULL) && (p->attention_param->dropout > 0.0f);
}

const ct_device_override ct_cuda_attention = {
    "Attention", NULL, NULL, NULL, false, attention_draws
};
