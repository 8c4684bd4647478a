/** @file wide_norm.cuh  Batch normalisation four numbers at a time, where channels that come last,
 * or planes, are a multiple of four: what batch_norm.cuh's passes do then. Included by
 * batch_norm.cuh.
 */
#ifndef CT_WIDE_NORM_CUH
#define CT_WIDE_NORM_CUH

#include "layers/engine/cuda/wide.cuh"

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

#endif
