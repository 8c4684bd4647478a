/* MVN, LayerNorm and Normalize on CUDA. Sums, and what follows from them, in double, as on the
 * CPU. */
#include "framework/tensor/cuda/warp.cuh"
#include "layers/cuda/layer_cuda.cuh"
#include "layers/engine/cuda/wide.cuh"

extern "C" {
#include "layers/types/norm.h"
}

/* ---- Rows less their mean, over their deviation, of rows that a warp or a block
 * can hold in registers: each number is read once and written once. Sums in double, as everywhere.
 *
 */

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

/* dx = factor (g - mean g - gain y mean(g y)), g = dy scale; y, what is normal, as it is or of x.
 */
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
    if (((_p).n <= ROW_OF_WARP) && (_wide))                                                        \
        CT_CUDA_RUN_BLOCKS((_kernel<row_of_warp, true>), row_blocks(_p, row_of_warp::ROWS),        \
                           (_ex)->stream, _args);                                                  \
    else if ((_p).n <= ROW_OF_WARP)                                                                \
        CT_CUDA_RUN_BLOCKS((_kernel<row_of_warp, false>), row_blocks(_p, row_of_warp::ROWS),       \
                           (_ex)->stream, _args);                                                  \
    else if (_wide)                                                                                \
        CT_CUDA_RUN_BLOCKS((_kernel<row_of_block, true>), row_blocks(_p, row_of_block::ROWS),      \
                           (_ex)->stream, _args);                                                  \
    else                                                                                           \
        CT_CUDA_RUN_BLOCKS((_kernel<row_of_block, false>), row_blocks(_p, row_of_block::ROWS),     \
                           (_ex)->stream, _args)

/* ---- MVN, LayerNorm and Normalize. Sums and what follows from them in double, as on the CPU. */

/* ---- rows less their mean, over their deviation */

static ct_status row_stats(ct_exec *ex, ct_row_plan p, row_rule rule, const float *x,
                           ct_row_stat *stat)
{
    CT_TRY(ct_cuda_sums<1>(
        ex->stream, "row means", p.rows, p.n,
        KERNEL(int64_t r, int64_t i, double *sum) { *sum += (double)x[r * p.n + i]; },
        KERNEL(int64_t r, const double *sum) { stat[r].mean = *sum / (double)p.n; }));
    return ct_cuda_sums<1>(
        ex->stream, "row variances", p.rows, p.n,
        KERNEL(int64_t r, int64_t i, double *sum) {
            double off = (double)x[r * p.n + i] - stat[r].mean;

            *sum += off * off;
        },
        KERNEL(int64_t r, const double *sum) {
            stat[r].variance = *sum / (double)p.n;
            finish_row(rule, &stat[r]);
        });
}

/* y = (x - mean) factor, times scale, plus bias; both NULL: without. */
static ct_status row_normalise(ct_exec *ex, ct_row_plan p, const float *x, const ct_row_stat *stat,
                               const float *scale, const float *bias, float *y)
{
    return ct_cuda_map(
        ex->stream, "row normalisation", p.rows * p.n, KERNEL(int64_t e) {
            int64_t r = e / p.n, i = e % p.n;
            float v = (float)(((double)x[e] - stat[r].mean) * stat[r].factor);

            y[e] = (scale != NULL) ? v * scale[i] + bias[i] : v;
        });
}

/* Both. */
static ct_status rows_forward(ct_exec *ex, const row_forward &a)
{
    if (!row_fits(a.p)) {
        CT_TRY(row_stats(ex, a.p, a.rule, a.x, a.stat));
        return row_normalise(ex, a.p, a.x, a.stat, a.scale, a.bias, a.y);
    }
    if (a.p.rows == 0) return CT_OK;
    ROW_RUN(row_forward_kernel, ex, a.p, row_is_wide(a.p, a.x, a.y, NULL), a);
    return ct_cuda_launched("row normalisation");
}

/* What is normal, of a row's x, or as it is. */
static __device__ inline float normal_at(const row_backward &a, int64_t r, int64_t e)
{
    return (a.y != NULL) ? a.y[e] : row_normal(a.x[e], a.stat[r]);
}

/* sums: 2 rows of doubles, for rows that do not fit. */
static ct_status rows_backward(ct_exec *ex, const row_backward &args, double *sums)
{
    row_backward a = args;
    ct_row_plan p = a.p;

    if (p.rows == 0) return CT_OK;
    if (row_fits(p)) {
        ROW_RUN(row_backward_kernel, ex, p, row_is_wide(p, (a.y != NULL) ? a.y : a.x, a.dy, a.dx),
                a);
        return ct_cuda_launched("row gradients");
    }
    CT_TRY(ct_cuda_sums<2>(
        ex->stream, "row gradients", p.rows, p.n,
        KERNEL(int64_t r, int64_t i, double *sum) {
            double d = (double)a.dy[r * p.n + i] * ((a.scale != NULL) ? (double)a.scale[i] : 1.0);

            sum[0] += d;
            sum[1] += d * (double)normal_at(a, r, r * p.n + i);
        },
        KERNEL(int64_t r, const double *sum) {
            sums[2 * r] = sum[0] / (double)p.n;
            sums[2 * r + 1] = sum[1] * a.stat[r].gain / (double)p.n;
        }));
    return ct_cuda_map(
        ex->stream, "row gradients", p.rows * p.n, KERNEL(int64_t e) {
            int64_t r = e / p.n;
            double d = (double)a.dy[e] * ((a.scale != NULL) ? (double)a.scale[e % p.n] : 1.0);

            a.dx[e] = (float)((d - sums[2 * r] - (double)normal_at(a, r, e) * sums[2 * r + 1]) *
                              a.stat[r].factor);
        });
}

/* Behind the rows' statistics, in the same buffer: ct_row_bytes(). */
static double *row_sums(const ct_instance *in, ct_row_plan p)
{
    return (double *)((ct_row_stat *)in->buffer[0].data + p.rows);
}

static ct_status mvn_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const Ct__MVNParameter *p = l->param->mvn_param;
    row_rule rule = { (p == NULL) || p->normalize_variance, true,
                      (p != NULL) ? (double)p->eps : 1e-9 };
    ct_row_plan rows = *(const ct_row_plan *)in->state;
    ct_row_stat *stat = (ct_row_stat *)in->buffer[0].data;

    return rows_forward(ex, { rows, rule, ct_blob_data(in->bottom[0]), NULL, NULL, stat,
                              ct_blob_data(in->top[0]) });
}

static ct_status mvn_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_row_plan rows = *(const ct_row_plan *)in->state;

    (void)l;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return rows_backward(ex,
                         { rows, (const ct_row_stat *)in->buffer[0].data, NULL,
                           ct_blob_data(in->top[0]), ct_blob_diff(in->top[0]), NULL,
                           ct_blob_diff(in->bottom[0]) },
                         row_sums(in, rows));
}

const ct_device_override ct_cuda_mvn = { "MVN", NULL, mvn_forward, mvn_backward };

static ct_status layer_norm_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const Ct__LayerNormParameter *p = l->param->layer_norm_param;
    row_rule rule = { true, false, (p != NULL) ? (double)p->eps : 1e-5 };
    ct_row_plan rows = *(const ct_row_plan *)in->state;
    ct_row_stat *stat = (ct_row_stat *)in->buffer[0].data;
    bool affine = l->n_weight > 0;

    return rows_forward(
        ex, { rows, rule, ct_blob_data(in->bottom[0]), affine ? ct_blob_data(&in->weight[0]) : NULL,
              affine ? ct_blob_data(&in->weight[1]) : NULL, stat, ct_blob_data(in->top[0]) });
}

/* Gradients of scale and shift: sums down the columns, of dy times what is normal and of dy. */
static ct_status layer_norm_weights(const ct_instance *in, ct_exec *ex, ct_row_plan rows)
{
    const ct_row_stat *stat = (const ct_row_stat *)in->buffer[0].data;
    const float *x = ct_blob_data(in->bottom[0]), *dy = ct_blob_diff(in->top[0]);
    float *scale = ct_blob_diff(&in->weight[0]), *shift = ct_blob_diff(&in->weight[1]);
    bool add_scale = ct_weight_beta(in, ex, 0) != 0.0f;
    bool add_shift = ct_weight_beta(in, ex, 1) != 0.0f;
    int64_t groups = rows.n / CT_WIDE;
    auto put = KERNEL(int64_t c, const double *sum)
    {
        if (scale != NULL) scale[c] = (float)(sum[0] + (add_scale ? (double)scale[c] : 0.0));
        if (shift != NULL) shift[c] = (float)(sum[1] + (add_shift ? (double)shift[c] : 0.0));
    };

    if ((scale == NULL) && (shift == NULL)) return CT_OK;
    if (row_is_wide(rows, x, dy, NULL) && (rows.n <= CT_WIDE_COLUMNS))
        return ct_cuda_wide_columns<2>(
            ex->stream, "LayerNorm backward", rows.rows, rows.n,
            KERNEL(int64_t, int64_t) { return 0; },
            KERNEL(int64_t k, int, double *sum) {
                ct_row_stat s = stat[k / groups];
                ct_four v = ct_wide_get<CT_F32>(x, k), g = ct_wide_get<CT_F32>(dy, k);

                for (int j = 0; j < CT_WIDE; j++) {
                    sum[2 * j] += (double)g.v[j] * (double)row_normal(v.v[j], s);
                    sum[2 * j + 1] += (double)g.v[j];
                }
            },
            put);
    return ct_cuda_column_sums<2>(
        ex->stream, "LayerNorm backward", rows.n, rows.rows,
        KERNEL(int64_t c, int64_t r, double *sum) {
            double g = (double)dy[r * rows.n + c];

            sum[0] += g * (double)row_normal(x[r * rows.n + c], stat[r]);
            sum[1] += g;
        },
        put);
}

static ct_status layer_norm_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_row_plan rows = *(const ct_row_plan *)in->state;

    if (l->n_weight > 0) CT_TRY(layer_norm_weights(in, ex, rows));
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return rows_backward(ex,
                         { rows, (const ct_row_stat *)in->buffer[0].data,
                           ct_blob_data(in->bottom[0]), NULL, ct_blob_diff(in->top[0]),
                           (l->n_weight > 0) ? ct_blob_data(&in->weight[0]) : NULL,
                           ct_blob_diff(in->bottom[0]) },
                         row_sums(in, rows));
}

const ct_device_override ct_cuda_layer_norm = { "LayerNorm", NULL, layer_norm_forward,
                                                layer_norm_backward };

/* ---- Normalize: over the norm of the channels at each place, or of a whole sample */

typedef struct norm_plan {
    int64_t samples, channels, places; /* a sample as a whole: all of it channels of one place */
    int64_t scaled, n_scale;           /* places that share a scale; scales: 1 or channels     */
} norm_plan;

static norm_plan plan_of(const ct_layer *l, const ct_instance *in)
{
    const Ct__NormalizeParameter *p = l->param->norm_param;
    const ct_shape *x = &in->bottom[0]->data.shape;
    bool across = (p == NULL) || p->across_spatial;
    bool shared = l->weight[0].shape.ndim == 0;

    return { x->dim[0], ct_shape_count(x, 1, across ? -1 : 2),
             across ? 1 : ct_shape_count(x, 2, -1), ct_shape_count(x, 2, -1),
             shared ? 1 : x->dim[1] };
}

static ct_status normalize_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const Ct__NormalizeParameter *q = l->param->norm_param;
    norm_plan p = plan_of(l, in);
    double eps = (q != NULL) ? (double)q->eps : 1e-10;
    const float *x = ct_blob_data(in->bottom[0]), *scale = ct_blob_data(&in->weight[0]);
    float *inverse = (float *)in->buffer[0].data, *y = ct_blob_data(in->top[0]);

    CT_TRY(ct_cuda_sums<1>(
        ex->stream, "Normalize", p.samples * p.places, p.channels,
        KERNEL(int64_t r, int64_t c, double *sum) {
            double v = (double)x[(r / p.places * p.channels + c) * p.places + r % p.places];

            *sum += v * v;
        },
        KERNEL(int64_t r, const double *sum) { inverse[r] = (float)(1.0 / sqrt(*sum + eps)); }));
    return ct_cuda_map(
        ex->stream, "Normalize", count_of(in->bottom[0]), KERNEL(int64_t e) {
            int64_t r = e / (p.channels * p.places) * p.places + e % p.places;

            y[e] = x[e] * inverse[r] * scale[e / p.scaled % p.n_scale];
        });
}

static ct_status normalize_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    norm_plan p = plan_of(l, in);
    const float *x = ct_blob_data(in->bottom[0]), *scale = ct_blob_data(&in->weight[0]);
    const float *dy = ct_blob_diff(in->top[0]), *inverse = (const float *)in->buffer[0].data;
    float *normal = (float *)in->buffer[1].data, *dx = ct_blob_diff(in->bottom[0]);
    float *ds = ct_blob_diff(&in->weight[0]);
    int64_t n = count_of(in->bottom[0]);
    double *dot = (double *)in->buffer[2].data;
    ct_view v = { p.samples, p.n_scale, p.scaled, 0 };

    if (p.n_scale == 1) v = { 1, 1, n, 0 };
    CT_TRY(ct_cuda_map(
        ex->stream, "Normalize backward", n, KERNEL(int64_t e) {
            normal[e] = x[e] * inverse[e / (p.channels * p.places) * p.places + e % p.places];
        }));
    if (ds != NULL)
        CT_TRY(ct_kernels(ex)->dot(ex, &v, dy, normal, ct_weight_beta(in, ex, 0) != 0.0f, ds));
    if (dx == NULL) return CT_OK;
    CT_TRY(ct_cuda_sums<1>(
        ex->stream, "Normalize backward", p.samples * p.places, p.channels,
        KERNEL(int64_t r, int64_t c, double *sum) {
            int64_t e = (r / p.places * p.channels + c) * p.places + r % p.places;

            *sum += (double)(dy[e] * scale[e / p.scaled % p.n_scale]) * (double)normal[e];
        },
        KERNEL(int64_t r, const double *sum) { dot[r] = *sum; }));
    return ct_cuda_map(
        ex->stream, "Normalize backward", n, KERNEL(int64_t e) {
            int64_t r = e / (p.channels * p.places) * p.places + e % p.places;
            float g = dy[e] * scale[e / p.scaled % p.n_scale];

            dx[e] = (float)(((double)g - (double)normal[e] * dot[r]) * (double)inverse[r]);
        });
}

const ct_device_override ct_cuda_normalize = { "Normalize", NULL, normalize_forward,
                                               normalize_backward };
