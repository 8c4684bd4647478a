/* Normalisation on CUDA. Across the channels of planes, in windows of the usual sizes, a thread walks
 * along the channels of a place and keeps its window in registers: everything is read and written
 * once. Else a thread an element, which adds up its window; backward then makes the terms of its sum
 * in a pass of their own, so that each power is taken once. */
#include "framework/math/cuda/narrow.cuh"
#include "framework/tensor/cuda/launch.cuh"
#include "layers/engine/lrn/lrn.h"

static bool on_cuda(const ct_lrn_desc *d)
{
    return (d->device == CT_DEVICE_CUDA) && (d->block == 0);
}

static int64_t count_of(const ct_lrn_desc *d)
{
    return d->n * d->c * d->h * d->w;
}

static __device__ inline float inverse_root(float s)
{
#ifdef __CUDA_ARCH__
    return rsqrtf(s);
#else
    return 1.0f / sqrtf(s);
#endif
}

/* s^-beta, and s^(-beta - 1). Of beta = 3/4, as all published nets have it, by roots. */
typedef struct powers {
    float mine, next;
} powers;

static __device__ inline powers powers_of(float s, float beta)
{
    float r = inverse_root(s), mine;

    if (beta != 0.75f) return { powf(s, -beta), powf(s, -beta - 1.0f) };
    mine = r * sqrtf(r);
    return { mine, mine * (r * r) };
}

static __device__ inline float power_of(float s, float beta)
{
    float r;

    if (beta != 0.75f) return powf(s, -beta);
    r = inverse_root(s);
    return r * sqrtf(r);
}

/* ---- along the channels of planes */

enum { AHEAD = 4 /* channels that a thread reads at a time, so that as many loads are under way */ };

/* How the work is cut: channels [first, first + chunk) of a place. */
typedef struct walk {
    int64_t plane, chunk, chunks, n;
} walk;

static bool walks(const ct_lrn_desc *d)
{
    return !d->within && !d->last && (d->dtype == CT_F32) &&
           ((d->size == 3) || (d->size == 5) || (d->size == 7));
}

/* Long enough that what is read twice, at the ends, is little; short enough that there are threads. */
static walk walk_of(const ct_lrn_desc *d)
{
    enum { LONGEST = 32, SHORTEST = 8, THREADS = 1 << 18 };
    walk w = { d->h * d->w, LONGEST, 0, 0 };

    while ((w.chunk > SHORTEST) && (d->n * w.plane * ((d->c + w.chunk - 1) / w.chunk) < THREADS))
        w.chunk /= 2;
    w.chunks = (d->c + w.chunk - 1) / w.chunk;
    w.n = d->n * w.chunks * w.plane;
    return w;
}

/* What thread i walks along: where channel 0 of its place is, and its channels. */
typedef struct path {
    int64_t base, first, end;
} path;

static __device__ inline path path_of(const ct_lrn_desc &d, const walk &w, int64_t i)
{
    int64_t part = i / w.plane % w.chunks, image = i / (w.plane * w.chunks);
    int64_t first = part * w.chunk, end = first + w.chunk;

    return { image * d.c * w.plane + i % w.plane, first, (end < d.c) ? end : d.c };
}

/* v[0] is of the first channel of the window of `at`; there is room for AHEAD - 1 windows more. */
template <int S> __global__ void walk_forward_kernel(ct_lrn_desc d, ct_lrn_args a, walk w)
{
    const int half = S / 2;
    float factor = d.alpha / (float)S;

    CT_CUDA_LOOP(i, w.n)
    {
        path p = path_of(d, w, i);
        const float *x = a.x + p.base;
        float v[S - 1 + AHEAD];

        CT_UNROLLED for (int j = 0; j < S - 1; j++)
        {
            int64_t c = p.first - half + j;

            v[j] = ((c >= 0) && (c < d.c)) ? x[c * w.plane] : 0.0f;
        }
        for (int64_t at = p.first; at < p.end; at += AHEAD) {
            CT_UNROLLED for (int u = 0; u < AHEAD; u++)
            {
                int64_t c = at + half + u;

                v[S - 1 + u] = (c < d.c) ? x[c * w.plane] : 0.0f;
            }
            CT_UNROLLED for (int u = 0; u < AHEAD; u++)
            {
                int64_t e = p.base + (at + u) * w.plane;
                float sum = 0.0f, scale;

                CT_UNROLLED for (int j = 0; j < S; j++) sum += v[u + j] * v[u + j];
                scale = d.k + factor * sum;
                if (at + u >= p.end) continue;
                a.scale[e] = scale;
                a.y[e] = v[u + half] * power_of(scale, d.beta);
            }
            CT_UNROLLED for (int j = 0; j < S - 1; j++) v[j] = v[j + AHEAD];
        }
    }
}

/* Of a channel: the term that it brings to its neighbours' sums, dy scale^-beta, x. */
typedef struct terms {
    float ratio, direct, x;
} terms;

static __device__ inline terms terms_of(const ct_lrn_desc &d, const ct_lrn_args &a, int64_t e)
{
    float x = a.x[e], dy = a.dy[e];
    powers p = powers_of(a.scale[e], d.beta);

    return { dy * x * p.next, dy * p.mine, x };
}

template <int S> __global__ void walk_backward_kernel(ct_lrn_desc d, ct_lrn_args a, walk w)
{
    const int half = S / 2;
    float factor = 2.0f * (d.alpha / (float)S) * d.beta;
    const terms none = {};

    CT_CUDA_LOOP(i, w.n)
    {
        path p = path_of(d, w, i);
        terms v[S - 1 + AHEAD];

        CT_UNROLLED for (int j = 0; j < S - 1; j++)
        {
            int64_t c = p.first - half + j;

            v[j] = ((c >= 0) && (c < d.c)) ? terms_of(d, a, p.base + c * w.plane) : none;
        }
        for (int64_t at = p.first; at < p.end; at += AHEAD) {
            CT_UNROLLED for (int u = 0; u < AHEAD; u++)
            {
                int64_t c = at + half + u;

                v[S - 1 + u] = (c < d.c) ? terms_of(d, a, p.base + c * w.plane) : none;
            }
            CT_UNROLLED for (int u = 0; u < AHEAD; u++)
            {
                float sum = 0.0f;

                CT_UNROLLED for (int j = 0; j < S; j++) sum += v[u + j].ratio;
                if (at + u < p.end)
                    a.dx[p.base + (at + u) * w.plane] =
                        v[u + half].direct - factor * v[u + half].x * sum;
            }
            CT_UNROLLED for (int j = 0; j < S - 1; j++) v[j] = v[j + AHEAD];
        }
    }
}

static ct_status walk_along(const ct_lrn_desc *d, ct_exec *ex, const ct_lrn_args *a, bool back)
{
    walk w = walk_of(d);

    if (w.n == 0) return CT_OK;
#define WALK(_s)                                                                                   \
    case _s:                                                                                       \
        if (back)                                                                                  \
            CT_CUDA_RUN(walk_backward_kernel<_s>, ct_cuda_grid(w.n), ex->stream, *d, *a, w);       \
        else                                                                                       \
            CT_CUDA_RUN(walk_forward_kernel<_s>, ct_cuda_grid(w.n), ex->stream, *d, *a, w);        \
        break
    switch (d->size) {
        WALK(3);
        WALK(5);
        WALK(7);
    }
    return ct_cuda_launched(back ? "LRN backward" : "LRN");
}

/* ---- an element a thread */

/* v(place), summed over the window around element e. */
template <class V> static __device__ float window_sum(const ct_lrn_desc &d, int64_t e, V v)
{
    int64_t half = (d.size - 1) / 2, plane = d.h * d.w;
    float sum = 0.0f;

    if (d.within) {
        int64_t i = e / d.w % d.h, j = e % d.w, first = e - e % plane;
        int64_t i0 = (i > half) ? i - half : 0, i1 = (i + half < d.h) ? i + half : d.h - 1;
        int64_t j0 = (j > half) ? j - half : 0, j1 = (j + half < d.w) ? j + half : d.w - 1;

        for (int64_t p = i0; p <= i1; p++) {
            for (int64_t q = j0; q <= j1; q++) sum += v(first + p * d.w + q);
        }
        return sum;
    }
    {
        int64_t step = d.last ? 1 : plane, c = e / step % d.c, c0 = (c > half) ? c - half : 0;
        int64_t c1 = (c + half < d.c) ? c + half : d.c - 1;

        for (int64_t k = c0; k <= c1; k++) sum += v(e + (k - c) * step);
    }
    return sum;
}

static ct_status forward(const ct_lrn_desc *desc, ct_exec *ex, const ct_lrn_args *args)
{
    ct_lrn_desc d = *desc;
    ct_lrn_args a = *args;
    ct_numbers x = ct_numbers_at(a.x, d.dtype), y = ct_numbers_at(a.y, d.dtype);
    float factor = ct_lrn_factor(desc);

    if (walks(desc)) return walk_along(desc, ex, args, false);
    return ct_cuda_map(ex->stream, "LRN", count_of(desc), [=] __device__(int64_t e) {
        float scale = d.k + factor * window_sum(d, e, [x](int64_t at) { return x[at] * x[at]; });

        a.scale[e] = scale;
        y.put(e, x[e] * power_of(scale, d.beta));
    });
}

static size_t workspace(const ct_lrn_desc *d)
{
    return walks(d) ? 0 : (size_t)count_of(d) * sizeof(float);
}

static ct_status backward(const ct_lrn_desc *desc, ct_exec *ex, const ct_lrn_args *args)
{
    ct_lrn_desc d = *desc;
    ct_lrn_args a = *args;
    float factor = 2.0f * ct_lrn_factor(desc) * d.beta, *ratio = (float *)a.work;

    ct_numbers x = ct_numbers_at(a.x, d.dtype), dy = ct_numbers_at(a.dy, d.dtype);
    ct_numbers dx = ct_numbers_at(a.dx, d.dtype);

    if (walks(desc)) return walk_along(desc, ex, args, true);
    CT_TRY(ct_cuda_map(ex->stream, "LRN backward", count_of(desc), [=] __device__(int64_t e) {
        ratio[e] = dy[e] * x[e] * powers_of(a.scale[e], d.beta).next;
    }));
    return ct_cuda_map(ex->stream, "LRN backward", count_of(desc), [=] __device__(int64_t e) {
        float sum = window_sum(d, e, [ratio](int64_t at) { return ratio[at]; });

        dx.put(e, dy[e] * power_of(a.scale[e], d.beta) - factor * x[e] * sum);
    });
}

const ct_lrn_impl ct_lrn_cuda_forward = { "cuda", on_cuda, NULL, forward };
const ct_lrn_impl ct_lrn_cuda_backward = { "cuda", on_cuda, workspace, backward };
