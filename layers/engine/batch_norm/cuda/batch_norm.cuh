/** @file batch_norm.cuh  Kernels of batch normalisation on CUDA, for BatchNorm and BN. Included by
 * .cu files. */
#ifndef CT_ENGINE_BATCH_NORM_CUDA_BATCH_NORM_CUH
#define CT_ENGINE_BATCH_NORM_CUDA_BATCH_NORM_CUH

#include "layers/engine/cuda/wide.cuh"
#include "framework/math/cuda/narrow.cuh"
#include "framework/net/exec.h"
#include "framework/tensor/cuda/launch.cuh"

extern "C" {
#include "layers/engine/batch_norm/batch_norm.h"
}

/* ---- Batch normalisation as kernels: what BatchNorm's engines and BN are made of.
 * The maths is batch_norm.h's; sums run in double in one pass, and what follows from them stays on
 * the device. */

typedef struct extent {
    int64_t n, c, s; /* samples, channels, places; with channels last every place is a sample */
    ct_dtype type;   /* of all that has places */
} extent;

/* Values of a channel that statistics are of: known, or told on the device. */
typedef struct norm_count {
    double known;
    const double *there;

    __device__ double get() const
    {
        return (there != NULL) ? *there : known;
    }
} norm_count;

/* ---- Batch normalisation four numbers at a time, where channels that come last,
 * or planes, are a multiple of four: what batch_norm.cuh's passes do then. */

/* What channels normalise by; of four numbers, which have four channels or one. */
typedef struct norm_four {
    float mean[CT_WIDE], inv_std[CT_WIDE], scale[CT_WIDE], bias[CT_WIDE];
} norm_four;

/* Channel j is c + j step. Where x is normal already it stays as it is. */
static __device__ inline norm_four norm_four_at(const ct_batch_norm_map &m, int64_t c, int64_t step)
{
    norm_four p;

    for (int j = 0; j < CT_WIDE; j++) {
        int64_t at = c + j * step;

        p.mean[j] = (m.mean != NULL) ? m.mean[at] : 0.0f;
        p.inv_std[j] = (m.mean != NULL) ? m.inv_std[at] : 1.0f;
        p.scale[j] = (m.scale != NULL) ? m.scale[at] : 1.0f;
        p.bias[j] = (m.bias != NULL) ? m.bias[at] : 0.0f;
    }
    return p;
}

/* Channels last: a thread goes on by whole rows, so that its channels stay the same. */
template <class P, class F>
__global__ void four_last_kernel(int64_t rows, int64_t groups, P channels, F f)
{
    int64_t t = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t step = (int64_t)gridDim.x * blockDim.x / groups * groups;

    if (t >= step) return;
    auto p = channels(t % groups * CT_WIDE, (int64_t)1);
    for (int64_t k = t; k < rows * groups; k += step) f(k, p);
}

/* f(k, p): numbers 4 k to 4 k + 3, p what channels(c, step) gives for them. */
template <class P, class F>
static ct_status four_map(ct_exec *ex, const char *what, extent e, P channels, F f)
{
    int64_t groups = e.c / CT_WIDE, quarter = e.s / CT_WIDE, c = e.c;
    int64_t n = e.n * e.c * e.s / CT_WIDE;

    if (n <= 0) return CT_OK;
    if (e.s != 1)
        return ct_cuda_map(
            ex->stream, what, n,
            KERNEL(int64_t k) { f(k, channels(k / quarter % c, (int64_t)0)); });
    CT_CUDA_RUN((four_last_kernel<P, F>), ct_cuda_grid(n), ex->stream, e.n, groups, channels, f);
    return ct_cuda_launched(what);
}

/* Two sums a channel, to take(c, sum): f(k, p, sum) adds to sum[2 j] and sum[2 j + 1] what number
 * 4 k + j brings. */
template <int U, class P, class F, class T>
static ct_status four_sums(ct_exec *ex, const char *what, extent e, P channels, F f, T take)
{
    int64_t quarter = e.s / CT_WIDE, channel = e.c;

    if (e.s != 1)
        return ct_cuda_sums<2>(
            ex->stream, what, e.c, e.n * quarter,
            KERNEL(int64_t c, int64_t i, double *sum) {
                double part[2 * CT_WIDE] = {};

                f((i / quarter * channel + c) * quarter + i % quarter, channels(c, (int64_t)0),
                  part);
                for (int j = 0; j < CT_WIDE; j++) {
                    sum[0] += part[2 * j];
                    sum[1] += part[2 * j + 1];
                }
            },
            take);
    return ct_cuda_wide_columns<U>(ex->stream, what, e.n, e.c, channels, f, take);
}

/* Whether all that has places can be moved so. */
static inline bool four_fits(extent e, const ct_batch_norm_map *m)
{
    return (((e.s == 1) ? e.c : e.s) % CT_WIDE == 0) && (e.c <= CT_WIDE_COLUMNS) &&
           ct_is_wide(m->x, e.type) && ct_is_wide(m->add, e.type) && ct_is_wide(m->y, e.type) &&
           ct_is_wide(m->normal, e.type);
}

static inline bool four_fits_back(extent e, const ct_batch_norm_back *b)
{
    bool fits = four_fits(e, &b->map) && (b->n_dy > 0) && ct_is_wide(b->g, e.type) &&
                ct_is_wide(b->dx, e.type);

    for (int k = 0; k < b->n_dy; k++) fits = fits && ct_is_wide(b->dy[k], e.type);
    return fits;
}

template <ct_dtype T, class K>
static ct_status four_statistics(ct_exec *ex, extent e, const float *x, K take)
{
    return four_sums<4>(
        ex, "batch statistics", e, KERNEL(int64_t, int64_t) { return 0; },
        KERNEL(int64_t k, int, double *sum) {
            ct_four f = ct_wide_get<T>(x, k);

            for (int j = 0; j < CT_WIDE; j++) {
                double v = (double)f.v[j];

                sum[2 * j] += v;
                sum[2 * j + 1] += v * v;
            }
        },
        take);
}

static __device__ inline void four_normal(const norm_four &p, ct_four *x)
{
    for (int j = 0; j < CT_WIDE; j++) x->v[j] = (x->v[j] - p.mean[j]) * p.inv_std[j];
}

/* z of what is normal. */
template <ct_dtype T>
static __device__ inline ct_four four_z(const ct_batch_norm_map &m, const norm_four &p,
                                        const ct_four &normal, int64_t k)
{
    ct_four z;

    for (int j = 0; j < CT_WIDE; j++) z.v[j] = normal.v[j] * p.scale[j] + p.bias[j];
    if (m.add != NULL) {
        ct_four add = ct_wide_get<T>(m.add, k);

        for (int j = 0; j < CT_WIDE; j++) z.v[j] += add.v[j];
    }
    return z;
}

template <ct_dtype T> static ct_status four_apply(ct_exec *ex, extent e, ct_batch_norm_map m)
{
    return four_map(
        ex, "batch normalisation", e,
        KERNEL(int64_t c, int64_t step) { return norm_four_at(m, c, step); },
        KERNEL(int64_t k, const norm_four &p) {
            ct_four x = ct_wide_get<T>(m.x, k), z;

            four_normal(p, &x);
            z = four_z<T>(m, p, x, k);
            for (int j = 0; m.relu && (j < CT_WIDE); j++) z.v[j] = (z.v[j] < 0.0f) ? 0.0f : z.v[j];
            if (m.normal != NULL) ct_wide_put<T>(m.normal, k, x);
            ct_wide_put<T>(m.y, k, z);
        });
}

/* The gradient of z. */
template <ct_dtype T>
static __device__ inline ct_four four_gradient(const ct_batch_norm_back &b, bool by_top,
                                               const norm_four &p, const ct_four &normal, int64_t k)
{
    ct_four g = ct_wide_get<T>(b.dy[0], k);

    for (int i = 1; i < b.n_dy; i++) {
        ct_four more = ct_wide_get<T>(b.dy[i], k);

        for (int j = 0; j < CT_WIDE; j++) g.v[j] += more.v[j];
    }
    if (b.map.relu) {
        ct_four z = by_top ? ct_wide_get<T>(b.map.y, k) : four_z<T>(b.map, p, normal, k);

        for (int j = 0; j < CT_WIDE; j++) g.v[j] = (z.v[j] > 0.0f) ? g.v[j] : 0.0f;
    }
    return g;
}

template <ct_dtype T, class K>
static ct_status four_back_sums(ct_exec *ex, extent e, ct_batch_norm_back b, bool by_top, K take)
{
    return four_sums<1>(
        ex, "batch normalisation backward", e,
        KERNEL(int64_t c, int64_t step) { return norm_four_at(b.map, c, step); },
        KERNEL(int64_t k, const norm_four &p, double *sum) {
            ct_four normal = ct_wide_get<T>(b.map.x, k), g;

            four_normal(p, &normal);
            g = four_gradient<T>(b, by_top, p, normal, k);
            for (int j = 0; j < CT_WIDE; j++) {
                sum[2 * j] += (double)g.v[j];
                sum[2 * j + 1] += (double)g.v[j] * (double)normal.v[j];
            }
        },
        take);
}

/* With E g and E (g normal) of the channels, 0 where the statistics are fixed. */
typedef struct back_four {
    norm_four norm;
    float mean[CT_WIDE], dot[CT_WIDE], unit[CT_WIDE];
} back_four;

static __device__ inline back_four back_four_at(const ct_batch_norm_back &b,
                                                const norm_count &values, int64_t c, int64_t step)
{
    double count = values.get();
    back_four p;

    p.norm = norm_four_at(b.map, c, step);
    for (int j = 0; j < CT_WIDE; j++) {
        int64_t at = c + j * step;

        p.mean[j] = b.fixed ? 0.0f : (float)(b.sum[at] / count);
        p.dot[j] = b.fixed ? 0.0f : (float)(b.dot[at] / count);
        p.unit[j] = p.norm.scale[j] * b.map.inv_std[at];
    }
    return p;
}

template <ct_dtype T>
static ct_status four_back(ct_exec *ex, extent e, ct_batch_norm_back b, bool by_top,
                           norm_count count)
{
    return four_map(
        ex, "batch normalisation backward", e,
        KERNEL(int64_t c, int64_t step) { return back_four_at(b, count, c, step); },
        KERNEL(int64_t k, const back_four &p) {
            ct_four normal = ct_wide_get<T>(b.map.x, k), g;

            four_normal(p.norm, &normal);
            g = four_gradient<T>(b, by_top, p.norm, normal, k);
            if (b.g != NULL) ct_wide_put<T>(b.g, k, g);
            if (b.dx == NULL) return;
            for (int j = 0; j < CT_WIDE; j++) {
                float less = b.fixed ? 0.0f : p.mean[j] + normal.v[j] * p.dot[j];

                g.v[j] = (g.v[j] - less) * p.unit[j];
            }
            ct_wide_put<T>(b.dx, k, g);
        });
}

/* The one of an extent's type. */
#define CT_FOUR(_type, _fn, ...)                                                                   \
    (((_type) == CT_F32)    ? _fn<CT_F32>(__VA_ARGS__)                                             \
     : ((_type) == CT_BF16) ? _fn<CT_BF16>(__VA_ARGS__)                                            \
                            : _fn<CT_F16>(__VA_ARGS__))

/* Whether 32 bits count all there is: divisions of 64 take several times as long. */
static __device__ inline bool is_small(const extent &e)
{
    return (e.n * e.c * e.s) >> 31 == 0;
}

/* Value i of channel c. */
static __device__ inline int64_t place_of(const extent &e, int64_t c, int64_t i)
{
    int64_t sample = is_small(e) ? (int64_t)((uint32_t)i / (uint32_t)e.s) : i / e.s;

    return (sample * (e.c - 1) + c) * e.s + i; /* its place in the sample is i - sample e.s */
}

/* The channel of number i of all. */
static __device__ inline int64_t channel_of(const extent &e, int64_t i)
{
    if (is_small(e)) return (int64_t)((uint32_t)i / (uint32_t)e.s % (uint32_t)e.c);
    return i / e.s % e.c;
}

static __device__ inline float get(const extent &e, const float *x, int64_t i)
{
    return ct_numbers_at(x, e.type)[i];
}

static __device__ inline void put(const extent &e, float *y, int64_t i, float v)
{
    ct_numbers_at(y, e.type).put(i, v);
}

/* Two sums a channel; where channels are neighbours threads side by side have channels. */
template <class F, class P>
static ct_status channel_sums(ct_exec *ex, const char *what, extent e, F f, P take)
{
    if ((e.s == 1) && (e.c > 1)) return ct_cuda_column_sums<2>(ex->stream, what, e.c, e.n, f, take);
    return ct_cuda_sums<2>(ex->stream, what, e.c, e.n * e.s, f, take);
}

/* Mean and variance of each channel to take(c, mean, variance), which keeps what it needs. */
template <class T> static ct_status statistics(ct_exec *ex, extent e, const float *x, T take)
{
    double count = (double)(e.n * e.s);
    ct_batch_norm_map only = {};
    auto put = KERNEL(int64_t c, const double *sum)
    {
        double mean = sum[0] / count, variance = sum[1] / count - mean * mean;

        take(c, mean, (variance > 0.0) ? variance : (mean == mean) ? 0.0 : mean);
    };

    only.x = x;
    if (four_fits(e, &only)) return CT_FOUR(e.type, four_statistics, ex, e, x, put);
    return channel_sums(
        ex, "batch statistics", e,
        KERNEL(int64_t c, int64_t i, double *sum) {
            double v = (double)get(e, x, place_of(e, c, i));

            sum[0] += v;
            sum[1] += v * v;
        },
        put);
}

static __device__ inline float normal_of(const extent &e, const ct_batch_norm_map &m, int64_t c,
                                         int64_t i)
{
    float x = get(e, m.x, i);

    return (m.mean != NULL) ? (x - m.mean[c]) * m.inv_std[c] : x;
}

static __device__ inline float before_relu(const extent &e, const ct_batch_norm_map &m, int64_t c,
                                           int64_t i)
{
    float z = normal_of(e, m, c, i);

    if (m.scale != NULL) z *= m.scale[c];
    if (m.bias != NULL) z += m.bias[c];
    return (m.add != NULL) ? z + get(e, m.add, i) : z;
}

static inline ct_status apply(ct_exec *ex, extent e, ct_batch_norm_map m)
{
    if (four_fits(e, &m)) return CT_FOUR(e.type, four_apply, ex, e, m);
    return ct_cuda_map(
        ex->stream, "batch normalisation", e.n * e.c * e.s, KERNEL(int64_t i) {
            int64_t c = channel_of(e, i);
            float z = before_relu(e, m, c, i);

            if (m.normal != NULL) put(e, m.normal, i, normal_of(e, m, c, i));
            put(e, m.y, i, (m.relu && (z < 0.0f)) ? 0.0f : z);
        });
}

/* The gradient of z. by_top: whether the ReLU passed is read from y. */
static __device__ inline float gradient_of(const extent &e, const ct_batch_norm_back &b,
                                           bool by_top, int64_t c, int64_t i)
{
    float g = 0.0f, sign = 1.0f;

    for (int k = 0; k < b.n_dy; k++) g += get(e, b.dy[k], i);
    if (b.map.relu) sign = by_top ? get(e, b.map.y, i) : before_relu(e, b.map, c, i);
    return (sign > 0.0f) ? g : 0.0f;
}

/* Where a weight's gradient goes. */
typedef struct weight_diff {
    float *to; /* NULL: not wanted */
    bool add;
} weight_diff;

static __device__ inline void put_diff(weight_diff d, int64_t c, double sum)
{
    if (d.to != NULL) d.to[c] = (float)(sum + (d.add ? (double)d.to[c] : 0.0));
}

/* The sums, and gradients of scale and bias. */
static inline ct_status backward_sums(ct_exec *ex, extent e, ct_batch_norm_back b, bool by_top,
                                      weight_diff scale, weight_diff bias)
{
    auto keep = KERNEL(int64_t c, const double *sum)
    {
        b.sum[c] = sum[0];
        b.dot[c] = sum[1];
        put_diff(scale, c, sum[1]);
        put_diff(bias, c, sum[0]);
    };

    if (four_fits_back(e, &b)) return CT_FOUR(e.type, four_back_sums, ex, e, b, by_top, keep);
    return channel_sums(
        ex, "batch normalisation backward", e,
        KERNEL(int64_t c, int64_t i, double *sum) {
            int64_t at = place_of(e, c, i);
            double g = (double)gradient_of(e, b, by_top, c, at);

            sum[0] += g;
            sum[1] += g * (double)normal_of(e, b.map, c, at);
        },
        keep);
}

/* Gradients of the bottom and of add, from those sums over `count` values a channel. */
static inline ct_status backward_values(ct_exec *ex, extent e, ct_batch_norm_back b, bool by_top,
                                        norm_count count)
{
    if ((b.dx == NULL) && (b.g == NULL)) return CT_OK;
    if (four_fits_back(e, &b)) return CT_FOUR(e.type, four_back, ex, e, b, by_top, count);
    return ct_cuda_map(
        ex->stream, "batch normalisation backward", e.n * e.c * e.s, KERNEL(int64_t i) {
            int64_t c = channel_of(e, i);
            float g = gradient_of(e, b, by_top, c, i), less = 0.0f;
            float unit = ((b.map.scale != NULL) ? b.map.scale[c] : 1.0f) * b.map.inv_std[c];

            if (!b.fixed)
                less = (float)(b.sum[c] / count.get()) +
                       normal_of(e, b.map, c, i) * (float)(b.dot[c] / count.get());
            if (b.g != NULL) put(e, b.g, i, g);
            if (b.dx != NULL) put(e, b.dx, i, (g - less) * unit);
        });
}

/* Both, of statistics of this rank's values. */
static inline ct_status backward_all(ct_exec *ex, extent e, ct_batch_norm_back b, bool by_top,
                                     weight_diff scale, weight_diff bias)
{
    CT_TRY(backward_sums(ex, e, b, by_top, scale, bias));
    return backward_values(ex, e, b, by_top, { (double)(e.n * e.s), NULL });
}

/* ---- What BatchNorm's engines on CUDA share. */

static inline extent extent_of(const ct_device_norm_desc *d)
{
    if (d->last) return { d->n * d->s, d->c, 1, d->dtype };
    return { d->n, d->c, d->s, d->dtype };
}

/* What the sums that decay are over. */
static __device__ inline float factor_of(const ct_device_norm_args &a)
{
    return (a.factor[0] == 0.0f) ? 0.0f : 1.0f / a.factor[0];
}

/* var: of the whole population, as the sample lets guess. */
static __device__ inline void move_statistics(const ct_device_norm_args &a, int64_t c, float mean,
                                              float var)
{
    a.moving_mean[c] = a.decay * a.moving_mean[c] + mean;
    a.moving_var[c] = a.decay * a.moving_var[c] + var;
    if (c == 0) a.factor[0] = a.factor[0] * a.decay + 1.0f;
}

#endif
