/* What many layers share on CUDA (layers/types/device_kernels.h). */
#include "layers/cuda/layer_cuda.cuh"
#include "framework/math/cuda/narrow.cuh"
#include "framework/math/sigmoid.h"

#include "layers/engine/cuda/wide.cuh"

/* ---- A vector along one axis, times and plus, both ways (layers/layer_util.h):
 * four numbers at a time where they are of one channel, or of four.
 */

/* How a view's numbers are taken. */
enum { ONE_BY_ONE, FOUR_OF_ONE /* channel */, FOUR_CHANNELS };

static inline int way_of(const ct_view &v, const float *a, const float *b, const float *c)
{
    bool wide = ct_is_wide(a, v.dtype) && ct_is_wide(b, v.dtype) && ct_is_wide(c, v.dtype) &&
                (v.outer * v.mid * v.inner < INT64_C(1) << 31); /* places in 32 bits */

    if (wide && (v.inner % CT_WIDE == 0)) return FOUR_OF_ONE;
    return (wide && (v.inner == 1) && (v.mid % CT_WIDE == 0)) ? FOUR_CHANNELS : ONE_BY_ONE;
}

template <ct_dtype T>
static ct_status affine_four(ct_exec *ex, const ct_view &v, bool one, const float *x,
                             const float *scale, const float *bias, float *y)
{
    uint32_t mid = (uint32_t)v.mid, each = (uint32_t)(one ? v.inner / CT_WIDE : v.mid / CT_WIDE);

    return ct_cuda_map(
        ex->stream, "scale and bias", v.outer * v.mid * v.inner / CT_WIDE, KERNEL(int64_t k) {
            uint32_t d = one ? (uint32_t)k / each % mid : (uint32_t)k % each * CT_WIDE;
            ct_four f = ct_wide_get<T>(x, k);

            for (int j = 0; j < CT_WIDE; j++) {
                uint32_t c = one ? d : d + (uint32_t)j;

                f.v[j] = f.v[j] * ((scale != NULL) ? scale[c] : 1.0f) +
                         ((bias != NULL) ? bias[c] : 0.0f);
            }
            ct_wide_put<T>(y, k, f);
        });
}

static ct_status affine(ct_exec *ex, const ct_view *view, const float *x, const float *scale,
                        const float *bias, float *y)
{
    ct_view v = *view;
    ct_numbers from = ct_numbers_at(x, v.dtype), to = ct_numbers_at(y, v.dtype);
    int way = way_of(v, x, y, NULL);
    bool one = (way == FOUR_OF_ONE);

    if (way != ONE_BY_ONE)
        return (v.dtype == CT_F32)    ? affine_four<CT_F32>(ex, v, one, x, scale, bias, y)
               : (v.dtype == CT_BF16) ? affine_four<CT_BF16>(ex, v, one, x, scale, bias, y)
                                      : affine_four<CT_F16>(ex, v, one, x, scale, bias, y);
    return ct_cuda_map(
        ex->stream, "scale and bias", v.outer * v.mid * v.inner, KERNEL(int64_t i) {
            int64_t d = i / v.inner % v.mid;

            to.put(i, from[i] * ((scale != NULL) ? scale[d] : 1.0f) +
                          ((bias != NULL) ? bias[d] : 0.0f));
        });
}

/* Sums of dy x and of dy of each channel, to put(c, sum). */
template <ct_dtype T, class P>
static ct_status scale_sums_four(ct_exec *ex, const ct_view &v, bool one, const float *x,
                                 const float *dy, P put)
{
    int64_t quarter = v.inner / CT_WIDE, mid = v.mid;
    auto add = KERNEL(int64_t k, int, double *sum)
    {
        ct_four f = ct_wide_get<T>(x, k), g = ct_wide_get<T>(dy, k);

        for (int j = 0; j < CT_WIDE; j++) {
            sum[2 * j] += (double)g.v[j] * (double)f.v[j];
            sum[2 * j + 1] += (double)g.v[j];
        }
    };

    if (!one)
        return ct_cuda_wide_columns<2>(
            ex->stream, "gradients of a scale", v.outer, v.mid,
            KERNEL(int64_t, int64_t) { return 0; }, add, put);
    return ct_cuda_sums<2>(
        ex->stream, "gradients of a scale", v.mid, v.outer * quarter,
        KERNEL(int64_t d, int64_t i, double *sum) {
            double part[2 * CT_WIDE] = {};

            add((i / quarter * mid + d) * quarter + i % quarter, 0, part);
            for (int j = 0; j < CT_WIDE; j++) {
                sum[0] += part[2 * j];
                sum[1] += part[2 * j + 1];
            }
        },
        put);
}

template <class P>
static ct_status scale_sums(ct_exec *ex, const ct_view &v, const float *x, const float *dy, P put)
{
    ct_numbers from = ct_numbers_at(x, v.dtype), g = ct_numbers_at(dy, v.dtype);

    if ((v.inner == 1) && (v.mid > 1))
        return ct_cuda_column_sums<2>(
            ex->stream, "gradients of a scale", v.mid, v.outer,
            KERNEL(int64_t d, int64_t o, double *sum) {
                int64_t i = o * v.mid + d;

                sum[0] += (double)g[i] * (double)from[i];
                sum[1] += (double)g[i];
            },
            put);
    return ct_cuda_sums<2>(
        ex->stream, "gradients of a scale", v.mid, v.outer * v.inner,
        KERNEL(int64_t d, int64_t k, double *sum) {
            int64_t i = (k / v.inner * v.mid + d) * v.inner + k % v.inner;

            sum[0] += (double)g[i] * (double)from[i];
            sum[1] += (double)g[i];
        },
        put);
}

static ct_status scale_back(ct_exec *ex, const ct_view *view, const ct_scale_back *args)
{
    ct_view v = *view;
    ct_scale_back a = *args;
    int way = way_of(v, a.x, a.dy, NULL);
    bool one = (way == FOUR_OF_ONE), few = one || (v.mid <= CT_WIDE_COLUMNS);
    auto put = KERNEL(int64_t d, const double *sum)
    {
        a.dscale[d] = (float)(sum[0] + (a.add_scale ? (double)a.dscale[d] : 0.0));
        if (a.dbias != NULL) a.dbias[d] = (float)(sum[1] + (a.add_bias ? (double)a.dbias[d] : 0.0));
    };

    if ((way == ONE_BY_ONE) || !few)
        CT_TRY(scale_sums(ex, v, a.x, a.dy, put));
    else if (v.dtype == CT_F32)
        CT_TRY(scale_sums_four<CT_F32>(ex, v, one, a.x, a.dy, put));
    else if (v.dtype == CT_BF16)
        CT_TRY(scale_sums_four<CT_BF16>(ex, v, one, a.x, a.dy, put));
    else
        CT_TRY(scale_sums_four<CT_F16>(ex, v, one, a.x, a.dy, put));
    return (a.dx != NULL) ? affine(ex, &v, a.dy, a.scale, NULL, a.dx) : CT_OK;
}

/* ---- What many layers share (layers/types/device_kernels.h): strided copies, a vector along one
 * axis both ways, the element by element parts of recurrent steps. */

/* Axes that lie in one piece on both sides become one. */
static ct_strided merged(const ct_strided *how)
{
    ct_strided s = *how;

    s.n = 0;
    for (int i = 0; i < how->n; i++) {
        int k = s.n - 1;

        if (how->dim[i] == 1) continue;
        if ((k >= 0) && (s.from[k] == how->from[i] * how->dim[i]) &&
            (s.to[k] == how->to[i] * how->dim[i])) {
            s.dim[k] *= how->dim[i];
        } else {
            k = s.n++;
            s.dim[k] = how->dim[i];
        }
        s.from[k] = how->from[i];
        s.to[k] = how->to[i];
    }
    return s;
}

/* Where element e of the axes but the two skipped begins, on both sides. */
static __device__ void places(const ct_strided &s, int64_t e, int skip_0, int skip_1, int64_t *a,
                              int64_t *b)
{
    *a = s.from_first;
    *b = s.to_first;
    for (int i = s.n - 1; i >= 0; i--) {
        if ((i == skip_0) || (i == skip_1)) continue;
        *a += e % s.dim[i] * s.from[i];
        *b += e % s.dim[i] * s.to[i];
        e /= s.dim[i];
    }
}

#ifdef CT_CUDA_EMULATED
enum { WORTH_TILES = 2 }; /* so that small tests get there */
#else
enum { WORTH_TILES = 8 };
#endif

/* The axis whose elements are neighbours in `step`, if it is long enough; -1: none. */
static int dense_axis(const ct_strided &s, const int64_t *step)
{
    for (int i = 0; i < s.n; i++) {
        if ((step[i] == 1) && (s.dim[i] >= WORTH_TILES)) return i;
    }
    return -1;
}

/* Where the two sides are dense along different axes (Permute), tiles of those two. */
static ct_status strided(ct_exec *ex, const ct_strided *how, const float *from, float *to)
{
    ct_strided s = merged(how);
    int column = dense_axis(s, s.from), row = dense_axis(s, s.to);
    int64_t n = 1;

    for (int i = 0; i < s.n; i++) n *= s.dim[i];
    if ((n > 0) && (column >= 0) && (row >= 0) && (column != row))
        return ct_cuda_turn(
            ex->stream, "strided copy", n / s.dim[row] / s.dim[column], s.dim[row], s.dim[column],
            KERNEL(int64_t e, int64_t r, int64_t c) {
                int64_t a, b;

                places(s, e, row, column, &a, &b);
                return from[a + r * s.from[row] + c];
            },
            KERNEL(int64_t e, int64_t r, int64_t c, float value) {
                int64_t a, b;

                places(s, e, row, column, &a, &b);
                to[b + r + c * s.to[column]] = value;
            });
    return ct_cuda_map(
        ex->stream, "strided copy", n, KERNEL(int64_t e) {
            int64_t a, b;

            places(s, e, -1, -1, &a, &b);
            to[b] = from[a];
        });
}

static ct_status dot(ct_exec *ex, const ct_view *view, const float *a, const float *b, bool add,
                     float *out)
{
    ct_view v = *view;
    ct_numbers first = ct_numbers_at(a, v.dtype), second = ct_numbers_at(b, v.dtype);
    auto put = KERNEL(int64_t d, const double *sum)
    {
        out[d] = (float)(*sum + (add ? (double)out[d] : 0.0));
    };

    if ((v.inner == 1) && (v.mid > 1))
        return ct_cuda_column_sums<1>(
            ex->stream, "sums down columns", v.mid, v.outer,
            KERNEL(int64_t d, int64_t o, double *sum) {
                int64_t i = o * v.mid + d;

                *sum += (double)first[i] * ((second.at != NULL) ? (double)second[i] : 1.0);
            },
            put);
    return ct_cuda_sums<1>(
        ex->stream, "sums along an axis", v.mid, v.outer * v.inner,
        KERNEL(int64_t d, int64_t k, double *sum) {
            int64_t i = (k / v.inner * v.mid + d) * v.inner + k % v.inner;

            *sum += (double)first[i] * ((second.at != NULL) ? (double)second[i] : 1.0);
        },
        put);
}

/* ---- channels that come last, in 16 bits */

template <ct_dtype T> static ct_status widen(ct_exec *ex, int64_t n, const float *x, float *y)
{
    bool wide = ct_is_wide(x, T) && ct_is_wide(y, CT_F32);
    int64_t fours = wide ? n / CT_WIDE : 0, rest = n - CT_WIDE * fours;
    ct_numbers from = ct_numbers_at(x, T);

    CT_TRY(ct_cuda_map(
        ex->stream, "conversion", fours,
        KERNEL(int64_t i) { ct_wide_put<CT_F32>(y, i, ct_wide_get<T>(x, i)); }));
    return ct_cuda_map(
        ex->stream, "conversion", rest,
        KERNEL(int64_t i) { y[n - rest + i] = from[n - rest + i]; });
}

static ct_status convert(ct_exec *ex, int64_t n, ct_dtype from, const float *x, ct_dtype to,
                         float *y)
{
    if (from == to) return ex->dev->copy(ex->stream, y, x, (size_t)n * ct_dtype_size(from));
    if (to == CT_F32)
        return (from == CT_BF16) ? widen<CT_BF16>(ex, n, x, y) : widen<CT_F16>(ex, n, x, y);
    return ct_cuda_narrow(ex->stream, (to == CT_BF16) ? CT_OPERAND_BF16 : CT_OPERAND_F16, n, x, y);
}

static ct_status last_to_plain(ct_exec *ex, int64_t n, int64_t c, int64_t s, ct_dtype type,
                               const float *x, ct_dtype to_type, float *y)
{
    ct_numbers from = ct_numbers_at(x, type), to = ct_numbers_at(y, to_type);

    if (s == 1) return convert(ex, n * c, type, x, to_type, y); /* the same order */
    return ct_cuda_turn(
        ex->stream, "channels to the front", n, s, c,
        KERNEL(int64_t b, int64_t row, int64_t column) { return from[(b * s + row) * c + column]; },
        KERNEL(int64_t b, int64_t row, int64_t column, float value) {
            to.put((b * c + column) * s + row, value);
        });
}

static ct_status plain_to_last(ct_exec *ex, int64_t n, int64_t c, int64_t s, ct_dtype from_type,
                               const float *x, ct_dtype type, float *y)
{
    ct_numbers from = ct_numbers_at(x, from_type), to = ct_numbers_at(y, type);

    if (s == 1) return convert(ex, n * c, from_type, x, type, y);
    return ct_cuda_turn(
        ex->stream, "channels to the end", n, c, s,
        KERNEL(int64_t b, int64_t row, int64_t column) { return from[(b * c + row) * s + column]; },
        KERNEL(int64_t b, int64_t row, int64_t column, float value) {
            to.put((b * s + column) * c + row, value);
        });
}

template <ct_dtype T>
static ct_status round_wide(ct_exec *ex, int64_t m, int64_t n, const float *x, const float *bias,
                            bool relu, float *y)
{
    return ct_cuda_map(
        ex->stream, "bias and rounding", m * n / CT_WIDE, KERNEL(int64_t i) {
            int64_t column = i * CT_WIDE % n / CT_WIDE;
            ct_four v = ct_wide_get<CT_F32>(x, i), b = {};

            if (bias != NULL) b = ct_wide_get<CT_F32>(bias, column);
            for (int k = 0; k < CT_WIDE; k++) {
                v.v[k] += b.v[k];
                if (relu && (v.v[k] < 0.0f)) v.v[k] = 0.0f; /* NaN stays */
            }
            ct_wide_put<T>(y, i, v);
        });
}

static ct_status round_rows(ct_exec *ex, int64_t m, int64_t n, const float *x, const float *bias,
                            bool relu, ct_dtype type, float *y)
{
    return (type == CT_BF16) ? round_wide<CT_BF16>(ex, m, n, x, bias, relu, y)
                             : round_wide<CT_F16>(ex, m, n, x, bias, relu, y);
}

static ct_status add(ct_exec *ex, int64_t n, ct_dtype type, const float *a, const float *b,
                     float *y)
{
    ct_wide_from<2> from = { { a, b } };

    return ct_cuda_wide_map(
        ex->stream, "sum", n, type, from, y, KERNEL(const float *v) { return v[0] + v[1]; });
}

/* ---- recurrent steps; layers/engine/recurrent/recurrent.h */

static ct_status lstm_step(ct_exec *ex, int64_t n, int64_t hidden, const float *cont,
                           const float *c_before, float *gates, float *c, float *h)
{
    return ct_cuda_map(
        ex->stream, "LSTM step", n * hidden, KERNEL(int64_t e) {
            int64_t r = e / hidden;
            float *gate = gates + r * 4 * hidden + e % hidden;
            float i = ct_sigmoid_f32(gate[0]), f = ct_sigmoid_f32(gate[hidden]);
            float o = ct_sigmoid_f32(gate[2 * hidden]), g = ct_tanh_f32(gate[3 * hidden]);
            float old = (cont[r] == 0.0f) ? 0.0f : cont[r] * f * c_before[e];
            float now = old + i * g;

            gate[0] = i;
            gate[hidden] = f;
            gate[2 * hidden] = o;
            gate[3 * hidden] = g;
            c[e] = now;
            h[e] = o * ct_tanh_f32(now);
        });
}

static ct_status lstm_step_backward(ct_exec *ex, int64_t n, int64_t hidden, const float *cont,
                                    const float *c_before, const float *gates, const float *c,
                                    const float *top, const float *more, float *dc, float *d_gates)
{
    return ct_cuda_map(
        ex->stream, "LSTM step backward", n * hidden, KERNEL(int64_t e) {
            int64_t r = e / hidden, at = r * 4 * hidden + e % hidden;
            const float *gate = gates + at;
            float *d = d_gates + at;
            float i = gate[0], f = gate[hidden], o = gate[2 * hidden], g = gate[3 * hidden];
            float dh = top[e] + more[e], tanh_c = ct_tanh_f32(c[e]);
            float cell = dc[e] + dh * o * (1.0f - tanh_c * tanh_c);
            float old = (cont[r] == 0.0f) ? 0.0f : cont[r] * c_before[e];

            dc[e] = (cont[r] == 0.0f) ? 0.0f : cell * cont[r] * f;
            d[0] = cell * g * i * (1.0f - i);
            d[hidden] = cell * old * f * (1.0f - f);
            d[2 * hidden] = dh * tanh_c * o * (1.0f - o);
            d[3 * hidden] = cell * i * (1.0f - g * g);
        });
}

static ct_status rows_cont(ct_exec *ex, int64_t n, int64_t hidden, const float *cont,
                           const float *x, float *y)
{
    return ct_cuda_map(
        ex->stream, "continuation", n * hidden, KERNEL(int64_t e) {
            float k = cont[e / hidden];

            y[e] = (k == 0.0f) ? 0.0f : k * x[e];
        });
}

static ct_status tanh_forward(ct_exec *ex, int64_t n, const float *x, float *y)
{
    return ct_cuda_map(
        ex->stream, "tanh", n, KERNEL(int64_t i) { y[i] = ct_tanh_f32(x[i]); });
}

static ct_status tanh_backward(ct_exec *ex, int64_t n, const float *y, const float *dy, float *dx)
{
    return ct_cuda_map(
        ex->stream, "tanh backward", n,
        KERNEL(int64_t i) { dx[i] = dy[i] * (1.0f - y[i] * y[i]); });
}

static ct_status fill_rows(ct_exec *ex, int64_t m, int64_t n, const float *b, float *y)
{
    return ct_cuda_map(
        ex->stream, "rows of a bias", m * n, KERNEL(int64_t i) { y[i] = b[i % n]; });
}

static ct_status sum_steps(ct_exec *ex, int64_t steps, int64_t n, const float *x, float *sum)
{
    return ct_cuda_map(
        ex->stream, "sum over steps", n, KERNEL(int64_t i) {
            float v = 0.0f;

            for (int64_t t = 0; t < steps; t++) v += x[t * n + i];
            sum[i] = v;
        });
}

static ct_status unpack(ct_exec *ex, const ct_pack *pack, const ct_pack_rule *rule,
                        const void *block, float *y)
{
    ct_pack p = *pack;
    ct_pack_rule r = *rule;

    return ct_cuda_map(
        ex->stream, "transform of data", p.samples * p.channels * p.height * p.width,
        KERNEL(int64_t i) { y[i] = ct_pack_value(&p, &r, block, i); });
}

const ct_device_kernels ct_kernels_cuda = {
    CT_DEVICE_CUDA,     strided,       affine,       dot,           scale_back, lstm_step,
    lstm_step_backward, rows_cont,     tanh_forward, tanh_backward, fill_rows,  sum_steps,
    last_to_plain,      plain_to_last, convert,      round_rows,    add,        unpack,
};
