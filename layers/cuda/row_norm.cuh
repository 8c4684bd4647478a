/** @file row_norm.cuh  Rows less their mean, over their deviation, of rows that a warp or a block can
 * hold in registers: each number is read once and written once. Sums in double, as everywhere.
 * Included by norm_cuda.cu.
 */
#ifndef CT_ROW_NORM_CUH
#define CT_ROW_NORM_CUH

#include "framework/tensor/cuda/warp.cuh"
#include "layers/cuda/layer_cuda.cuh"
#include "layers/engine/cuda/wide.cuh"

extern "C" {
#include "layers/types/row_norm.h"
}

/* What a row's values are multiplied with, and how much of the gradient goes through that. */
typedef struct row_rule {
    bool divides, mvn; /* mvn: over the deviation plus eps; else the root of variance plus eps */
    double eps;
} row_rule;

static __device__ void finish_row(row_rule rule, ct_row_stat *s)
{
    double deviation = sqrt(s->variance);

    s->gain = 1.0;
    if (!rule.mvn) {
        s->factor = 1.0 / sqrt(s->variance + rule.eps);
        return;
    }
    s->factor = rule.divides ? 1.0 / (deviation + rule.eps) : 1.0;
    if (!rule.divides)
        s->gain = 0.0;
    else if (deviation > 0.0)
        s->gain = 1.0 + rule.eps / deviation;
}

enum { ROW_FOURS = 4, ROW_HELD = CT_WIDE * ROW_FOURS /* numbers of a thread */ };
#ifdef CT_CUDA_EMULATED
enum { ROW_OF_WARP = 64 }; /* where a block is a warp, blocks have rows, too */
#else
enum { ROW_OF_WARP = CT_WARP * ROW_HELD };
#endif

/* Who has a row: a warp, or a block. All of its threads call these together. */
struct row_of_warp {
    enum { THREADS = CT_WARP, ROWS = CT_WARPS /* of a block at a time */ };

    static __device__ int number()
    {
        return (int)threadIdx.x / CT_WARP;
    }
    static __device__ int thread()
    {
        return (int)ct_lane();
    }
    static __device__ double add(double v)
    {
        return ct_warp_add(v);
    }
    /* v of thread 0 */
    static __device__ double first(double v)
    {
        return ct_warp_from(v, 0);
    }
};

struct row_of_block {
    enum { THREADS = CT_CUDA_BLOCK, ROWS = 1 };

    static __device__ int number()
    {
        return 0;
    }
    static __device__ int thread()
    {
        return (int)threadIdx.x;
    }
    static __device__ double add(double v)
    {
        __shared__ double of_warp[CT_WARPS];
        double sum = 0.0;

        v = ct_warp_add(v);
        if (ct_lane() == 0) of_warp[threadIdx.x / CT_WARP] = v;
        __syncthreads();
        for (int w = 0; w < CT_WARPS; w++) sum += of_warp[w];
        __syncthreads(); /* the next sum writes there */
        return sum;
    }
    static __device__ double first(double v)
    {
        __shared__ double of_block;

        if (threadIdx.x == 0) of_block = v;
        __syncthreads();
        v = of_block;
        __syncthreads();
        return v;
    }
};

/* Where number 4 q + j of a thread is in its row: four neighbours (wide), or a stride apart. */
template <class G, bool WIDE> static __device__ inline int row_place(int q, int j)
{
    return WIDE ? (q * G::THREADS + G::thread()) * CT_WIDE + j
                : (q * CT_WIDE + j) * G::THREADS + G::thread();
}

/* A thread's numbers of a row of n; what lies behind the end is 0. */
template <class G, bool WIDE> static __device__ inline void row_get(const float *x, int n, float *v)
{
    CT_UNROLLED for (int q = 0; q < ROW_FOURS; q++)
    {
        ct_four f = {};

        if (WIDE && (row_place<G, WIDE>(q, 0) < n))
            f = ct_wide_get<CT_F32>(x, row_place<G, WIDE>(q, 0) / CT_WIDE);
        for (int j = 0; !WIDE && (j < CT_WIDE); j++) {
            if (row_place<G, WIDE>(q, j) < n) f.v[j] = x[row_place<G, WIDE>(q, j)];
        }
        for (int j = 0; j < CT_WIDE; j++) v[q * CT_WIDE + j] = f.v[j];
    }
}

template <class G, bool WIDE> static __device__ inline void row_put(float *y, int n, const float *v)
{
    CT_UNROLLED for (int q = 0; q < ROW_FOURS; q++)
    {
        ct_four f;

        for (int j = 0; j < CT_WIDE; j++) f.v[j] = v[q * CT_WIDE + j];
        if (WIDE && (row_place<G, WIDE>(q, 0) < n))
            ct_wide_put<CT_F32>(y, row_place<G, WIDE>(q, 0) / CT_WIDE, f);
        for (int j = 0; !WIDE && (j < CT_WIDE); j++) {
            if (row_place<G, WIDE>(q, j) < n) y[row_place<G, WIDE>(q, j)] = f.v[j];
        }
    }
}

/* f(k, place) of each number k that a thread has. */
template <class G, bool WIDE, class F> static __device__ inline void row_each(int n, F f)
{
    CT_UNROLLED for (int q = 0; q < ROW_FOURS; q++)
    {
        CT_UNROLLED for (int j = 0; j < CT_WIDE; j++)
        {
            int place = row_place<G, WIDE>(q, j);

            if (place < n) f(q * CT_WIDE + j, place);
        }
    }
}

typedef struct row_forward {
    ct_row_plan p;
    row_rule rule;
    const float *x, *scale, *bias; /* the last two: NULL, or both */
    ct_row_stat *stat;
    float *y;
} row_forward;

static __device__ inline float row_normal(float x, const ct_row_stat &s)
{
    return (float)(((double)x - s.mean) * s.factor);
}

template <class G, bool WIDE> __global__ void row_forward_kernel(row_forward a)
{
    int n = (int)a.p.n;
    double share = 1.0 / (double)n;

    for (int64_t r = blockIdx.x * (int64_t)G::ROWS + G::number(); r < a.p.rows;
         r += (int64_t)gridDim.x * G::ROWS) {
        float v[ROW_HELD];
        double sum = 0.0;
        ct_row_stat s = {};

        row_get<G, WIDE>(a.x + r * n, n, v);
        row_each<G, WIDE>(n, [&](int k, int) { sum += (double)v[k]; });
        s.mean = G::add(sum) * share;
        sum = 0.0;
        row_each<G, WIDE>(n, [&](int k, int) {
            double off = (double)v[k] - s.mean;

            sum += off * off;
        });
        s.variance = G::add(sum) * share;
        if (G::thread() == 0) { /* roots and divisions in double take long */
            finish_row(a.rule, &s);
            a.stat[r] = s;
        }
        s.factor = G::first(s.factor);
        row_each<G, WIDE>(n, [&](int k, int place) {
            v[k] = row_normal(v[k], s);
            if (a.scale != NULL) v[k] = v[k] * a.scale[place] + a.bias[place];
        });
        row_put<G, WIDE>(a.y + r * n, n, v);
    }
}

/* dx = factor (g - mean g - gain y mean(g y)), g = dy scale; y, what is normal, as it is or of x. */
typedef struct row_backward {
    ct_row_plan p;
    const ct_row_stat *stat;
    const float *x, *y; /* one of them NULL */
    const float *dy, *scale;
    float *dx; /* may be dy */
} row_backward;

template <class G, bool WIDE> __global__ void row_backward_kernel(row_backward a)
{
    int n = (int)a.p.n;
    double share = 1.0 / (double)n;

    for (int64_t r = blockIdx.x * (int64_t)G::ROWS + G::number(); r < a.p.rows;
         r += (int64_t)gridDim.x * G::ROWS) {
        ct_row_stat s = a.stat[r];
        float y[ROW_HELD], g[ROW_HELD];
        double sum = 0.0, dot = 0.0;

        row_get<G, WIDE>(((a.y != NULL) ? a.y : a.x) + r * n, n, y);
        row_get<G, WIDE>(a.dy + r * n, n, g);
        row_each<G, WIDE>(n, [&](int k, int place) {
            double d = (double)g[k] * ((a.scale != NULL) ? (double)a.scale[place] : 1.0);

            if (a.y == NULL) y[k] = row_normal(y[k], s);
            sum += d;
            dot += d * (double)y[k];
        });
        sum = G::add(sum) * share;
        dot = G::add(dot) * s.gain * share;
        row_each<G, WIDE>(n, [&](int k, int place) {
            double d = (double)g[k] * ((a.scale != NULL) ? (double)a.scale[place] : 1.0);

            g[k] = (float)((d - sum - (double)y[k] * dot) * s.factor);
        });
        row_put<G, WIDE>(a.dx + r * n, n, g);
    }
}

/* Whether rows can be held; and read and written four numbers at a time. */
static inline bool row_fits(ct_row_plan p)
{
    return (p.n > 0) && (p.n <= CT_CUDA_BLOCK * ROW_HELD);
}

static inline bool row_is_wide(ct_row_plan p, const float *a, const float *b, const float *c)
{
    return (p.n % CT_WIDE == 0) && ct_is_wide(a, CT_F32) && ct_is_wide(b, CT_F32) &&
           ct_is_wide(c, CT_F32);
}

static inline unsigned row_blocks(ct_row_plan p, int64_t at_a_time)
{
    const int64_t most = 1 << 16;
    int64_t blocks = (p.rows + at_a_time - 1) / at_a_time;

    return (unsigned)((blocks < most) ? blocks : most);
}

/* _kernel<who, wide>, of rows that fit; there are some. */
#define ROW_RUN(_kernel, _ex, _p, _wide, _args)                                                    \
    if (((_p).n <= ROW_OF_WARP) && (_wide))                                                 \
        CT_CUDA_RUN_BLOCKS((_kernel<row_of_warp, true>), row_blocks(_p, row_of_warp::ROWS),        \
                           (_ex)->stream, _args);                                                  \
    else if ((_p).n <= ROW_OF_WARP)                                                         \
        CT_CUDA_RUN_BLOCKS((_kernel<row_of_warp, false>), row_blocks(_p, row_of_warp::ROWS),       \
                           (_ex)->stream, _args);                                                  \
    else if (_wide)                                                                                \
        CT_CUDA_RUN_BLOCKS((_kernel<row_of_block, true>), row_blocks(_p, row_of_block::ROWS),      \
                           (_ex)->stream, _args);                                                  \
    else                                                                                           \
        CT_CUDA_RUN_BLOCKS((_kernel<row_of_block, false>), row_blocks(_p, row_of_block::ROWS),     \
                           (_ex)->stream, _args)

#endif
