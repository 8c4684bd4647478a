/** @file batch_norm.cuh  Batch normalisation as kernels: what BatchNorm's engines and BN are made of.
 * The maths is batch_norm.h's; sums run in double in one pass, and what follows from them stays on
 * the device. Included by .cu files.
 */
#ifndef CT_BATCH_NORM_CUH
#define CT_BATCH_NORM_CUH

#include "framework/math/cuda/narrow.cuh"
#include "framework/net/exec.h"
#include "framework/tensor/cuda/launch.cuh"

extern "C" {
#include "layers/engine/batch_norm/batch_norm.h"
}

typedef struct extent {
    int64_t n, c, s; /* samples, channels, places; where channels come last every place is a sample */
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

#include "layers/engine/batch_norm/cuda/wide_norm.cuh"

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

static __device__ inline float normal_of(const extent &e, const ct_batch_norm_map &m, int64_t c, int64_t i)
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

#endif
