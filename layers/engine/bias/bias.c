/* Sums with a bias on the CPU. The tables list what there is; their order is the choice of "auto".
 */
#include "layers/engine/bias/bias.h"

#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "layers/layer_util.h"

const ct_bias_impl *const ct_bias_fill_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_bias_cuda_fill,
#endif
    &ct_bias_simd_fill, &ct_bias_ref_fill, NULL
};
const ct_bias_impl *const ct_bias_backward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_bias_cuda_backward,
#endif
    &ct_bias_simd_backward, &ct_bias_blocked_backward, &ct_bias_ref_backward, NULL
};

static bool on_cpu(const ct_bias_desc *d)
{
    return d->device == CT_DEVICE_CPU;
}

static bool on_cpu_plain(const ct_bias_desc *d)
{
    return on_cpu(d) && (d->block == 0);
}

static bool on_cpu_sums(const ct_bias_desc *d)
{
    return on_cpu_plain(d) && (!d->bf16 || (d->s == 1));
}

static bool on_cpu_blocked(const ct_bias_desc *d)
{
    return on_cpu(d) && (d->block > 0) && (d->block <= CT_BLOCK_MAX);
}

static ct_status ref_fill(const ct_bias_desc *d, ct_exec *ex, const ct_bias_args *a)
{
    (void)ex;
    for (int64_t i = 0; i < d->n; i++) {
        for (int64_t j = 0; j < d->c; j++) {
            for (int64_t k = 0; k < d->s; k++) a->y[(i * d->c + j) * d->s + k] = a->bias[j];
        }
    }
    return CT_OK;
}

static ct_status ref_backward(const ct_bias_desc *d, ct_exec *ex, const ct_bias_args *a)
{
    int64_t b = (d->block > 0) ? d->block : 1, n_block = (d->c + b - 1) / b;

    (void)ex;
    for (int64_t j = 0; j < d->c; j++) {
        double sum = 0.0;

        for (int64_t i = 0; i < d->n; i++) {
            for (int64_t k = 0; k < d->s; k++)
                sum += (double)ct_num_get(a->dy, d->bf16,
                                          ((i * n_block + j / b) * d->s + k) * b + j % b);
        }
        a->dbias[j] = (float)(((a->beta != 0.0f) ? a->beta * a->dbias[j] : 0.0f) + sum);
    }
    return CT_OK;
}

CT_SIMD_CLONES static void fill_rows(int64_t c, int64_t s, const float *bias, float *y)
{
    for (int64_t j = 0; j < c; j++) {
#pragma omp simd
        for (int64_t k = 0; k < s; k++) y[j * s + k] = bias[j];
    }
}

static ct_status simd_fill(const ct_bias_desc *d, ct_exec *ex, const ct_bias_args *a)
{
    bool vector = (d->s == 1); /* then a row of y is the bias itself */

    (void)ex;
#pragma omp parallel for num_threads(d->n_thread) schedule(static)
    for (int64_t i = 0; i < d->n; i++) {
        float *y = a->y + i * d->c * d->s;

        if (vector)
            memcpy(y, a->bias, (size_t)d->c * sizeof(float));
        else
            fill_rows(d->c, d->s, a->bias, y);
    }
    return CT_OK;
}

/* Sixteen partial sums in a fixed order, so that the vector width does not show. */
CT_SIMD_CLONES static double row_sum(int64_t n, const float *x)
{
    float lane[16] = { 0.0f };
    double sum = 0.0;
    int64_t i = 0;

    for (; i + 16 <= n; i += 16) {
#pragma omp simd
        for (int j = 0; j < 16; j++) lane[j] += x[i + j];
    }
    for (int j = 0; j < 16; j++) sum += (double)lane[j];
    for (; i < n; i++) sum += (double)x[i];
    return sum;
}

/* The first len columns of n rows of c, summed into sum[]. */
CT_SIMD_CLONES static void column_sums_bf16(int64_t n, int64_t c, int64_t len, const float *x,
                                            double *sum)
{
    for (int64_t i = 0; i < n; i++) {
#pragma omp simd
        for (int64_t j = 0; j < len; j++) sum[j] += (double)ct_num_get(x, true, i * c + j);
    }
}

CT_SIMD_CLONES static void column_sums(int64_t n, int64_t c, int64_t len, const float *x,
                                       double *sum)
{
    for (int64_t i = 0; i < n; i++) {
#pragma omp simd
        for (int64_t j = 0; j < len; j++) sum[j] += (double)x[i * c + j];
    }
}

enum { COLUMN_BLOCK = 64 };

static void backward_columns(const ct_bias_desc *d, const ct_bias_args *a)
{
#pragma omp parallel for num_threads(d->n_thread) schedule(static)
    for (int64_t j = 0; j < d->c; j += COLUMN_BLOCK) {
        int64_t len = (d->c - j < COLUMN_BLOCK) ? d->c - j : COLUMN_BLOCK;
        double sum[COLUMN_BLOCK] = { 0.0 };

        (d->bf16 ? column_sums_bf16 : column_sums)(d->n, d->c, len, ct_num_at(a->dy, d->bf16, j),
                                                   sum);
        for (int64_t q = 0; q < len; q++) {
            float old = (a->beta != 0.0f) ? a->beta * a->dbias[j + q] : 0.0f;

            a->dbias[j + q] = (float)(old + sum[q]);
        }
    }
}

static ct_status simd_backward(const ct_bias_desc *d, ct_exec *ex, const ct_bias_args *a)
{
    (void)ex;
    if (d->s == 1) {
        backward_columns(d, a);
        return CT_OK;
    }
#pragma omp parallel for num_threads(d->n_thread) schedule(static)
    for (int64_t j = 0; j < d->c; j++) {
        double sum = 0.0;

        for (int64_t i = 0; i < d->n; i++) sum += row_sum(d->s, a->dy + (i * d->c + j) * d->s);
        a->dbias[j] = (float)(((a->beta != 0.0f) ? a->beta * a->dbias[j] : 0.0f) + sum);
    }
    return CT_OK;
}

/* ---- blocks: the sums, and where a ReLU stands in front of them its gradient, in one pass */

typedef struct masked {
    const float *top;
    float *dy;
    bool bf16;
} masked;

CT_SIMD_PART void mask_rows(int64_t inner, int block, bool bf16, const float *top, float *dy,
                            double *sum)
{
    for (int64_t s = 0; s < inner; s++) {
        for (int i = 0; i < block; i++) {
            int64_t at = s * block + i;
            float g = (ct_num_get(top, bf16, at) > 0.0f) ? ct_num_get(dy, bf16, at) : 0.0f;

            ct_num_put(dy, bf16, at, g);
            sum[i] += (double)g;
        }
    }
}

/* The same in vectors, written out: of the loop above a compiler makes a branch for each number. */
enum { LANES = 8 };
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t num __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int16_t half __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef double wide __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

CT_SIMD_PART void mask_lanes(int64_t n, int vecs, bool bf16, const float *top, float *dy,
                             double *sum)
{
    wide acc[CT_BLOCK_MAX / LANES];

    for (int p = 0; p < vecs; p++) acc[p] = *(const wide *)(sum + p * LANES);
    for (int64_t at = 0; at < n; at += (int64_t)vecs * LANES) {
        _Pragma("GCC unroll 2") for (int p = 0; p < vecs; p++)
        {
            num g;

            if (bf16) {
                const half *t = (const half *)((const ct_bf16 *)top + at + p * LANES);
                half *h = (half *)((ct_bf16 *)dy + at + p * LANES), on;

                /* above 0, and no NaN: as integers up to infinity */
                on = (*t > 0) & (*t <= 0x7f80);
                *h &= on;
                g = __builtin_convertvector(*h, num) << 16;
            } else {
                vec *d = (vec *)(dy + at + p * LANES);

                g = *(const num *)d & (*(const vec *)(top + at + p * LANES) > 0.0f);
                *d = (vec)g;
            }
            acc[p] += __builtin_convertvector((vec)g, wide);
        }
    }
    for (int p = 0; p < vecs; p++) *(wide *)(sum + p * LANES) = acc[p];
}

CT_SIMD_CLONES static void mask_block(int64_t inner, int block, bool bf16, const float *top,
                                      float *dy, double *sum)
{
    if ((block == 16) && bf16)
        mask_lanes(inner * 16, 2, true, top, dy, sum);
    else if (block == 16)
        mask_lanes(inner * 16, 2, false, top, dy, sum);
    else if ((block == 8) && !bf16)
        mask_lanes(inner * 8, 1, false, top, dy, sum);
    else
        mask_rows(inner, block, bf16, top, dy, sum);
}

static void add_masked(const void *ctx, int64_t k, int64_t at, int64_t inner, int block,
                       double *first, double *second)
{
    const masked *m = ctx;

    (void)k, (void)second;
    mask_block(inner, block, m->bf16, ct_num_at(m->top, m->bf16, at), ct_num_to(m->dy, m->bf16, at),
               first);
}

static ct_status blocked_backward(const ct_bias_desc *d, ct_exec *ex, const ct_bias_args *a)
{
    ct_blocked v = { d->n, d->c, d->s, d->block, d->bf16 };
    bool add = (a->beta != 0.0f);

    (void)ex;
    for (int64_t j = 0; add && (j < d->c); j++) a->dbias[j] *= a->beta;
    if (a->top != NULL)
        ct_blocked_total(&v, add_masked, &(masked){ a->top, a->masked, d->bf16 }, add, a->dbias);
    else
        ct_blocked_dot(&v, a->dy, NULL, add, a->dbias);
    return CT_OK;
}

const ct_bias_impl ct_bias_simd_fill = { .name = "simd",
                                         .supports = on_cpu_plain,
                                         .run = simd_fill };
const ct_bias_impl ct_bias_ref_fill = { .name = "ref", .supports = on_cpu_plain, .run = ref_fill };
const ct_bias_impl ct_bias_blocked_backward = {
    .name = "blocked", .supports = on_cpu_blocked, .run = blocked_backward, .can = CT_BIAS_CAN_RELU
};
const ct_bias_impl ct_bias_simd_backward = { .name = "simd",
                                             .supports = on_cpu_sums,
                                             .run = simd_backward };
const ct_bias_impl ct_bias_ref_backward = { .name = "ref",
                                            .supports = on_cpu,
                                            .run = ref_backward };
