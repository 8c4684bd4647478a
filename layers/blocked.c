#include "layers/blocked.h"

#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "layers/layer_util.h"

/* ---- affine */

CT_SIMD_PART void affine_rows(int64_t inner, int block, bool bf16, const float *x,
                              const float *scale, const float *bias, float *y)
{
    for (int64_t s = 0; s < inner; s++) {
#pragma omp simd
        for (int i = 0; i < block; i++)
            ct_num_put(y, bf16, s * block + i,
                       ct_num_get(x, bf16, s * block + i) * scale[i] + bias[i]);
    }
}

CT_SIMD_CLONES static void affine(int64_t inner, int block, bool bf16, const float *x,
                                  const float *scale, const float *bias, float *y)
{
    if ((block == 16) && bf16)
        affine_rows(inner, 16, true, x, scale, bias, y);
    else if (block == 16)
        affine_rows(inner, 16, false, x, scale, bias, y);
    else if ((block == 8) && !bf16)
        affine_rows(inner, 8, false, x, scale, bias, y);
    else
        affine_rows(inner, block, bf16, x, scale, bias, y);
}

void ct_blocked_affine(const ct_blocked *v, const float *x, const float *scale, const float *bias,
                       float *y)
{
    int64_t n = ct_blocked_n(v), row = v->inner * v->block;

#pragma omp parallel for schedule(static) if (v->outer * n * row >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < v->outer * n; r++) {
        float s[CT_BLOCK_MAX], b[CT_BLOCK_MAX];

        ct_blocked_pick(v, r % n, scale, 1.0f, s);
        ct_blocked_pick(v, r % n, bias, 0.0f, b);
        affine(v->inner, v->block, v->bf16, ct_num_at(x, v->bf16, r * row), s, b,
               ct_num_to(y, v->bf16, r * row));
    }
}

/* ---- sums: the images go in a fixed number of slices, so that few channels keep a team busy */

enum { SLICES = 8 };

typedef struct partial {
    double first[CT_BLOCK_MAX], second[CT_BLOCK_MAX];
} partial;

static void sum_slice(const ct_blocked *v, ct_blocked_fn add, const void *ctx, int64_t k,
                      int64_t slice, partial *p)
{
    int64_t n = ct_blocked_n(v), row = v->inner * v->block;

    memset(p, 0, sizeof(*p));
    for (int64_t o = v->outer * slice / SLICES; o < v->outer * (slice + 1) / SLICES; o++)
        add(ctx, k, (o * n + k) * row, v->inner, v->block, p->first, p->second);
}

void ct_blocked_sums(const ct_blocked *v, int64_t from, int64_t to, ct_blocked_fn add,
                     const void *ctx, double *first, double *second)
{
    partial part[CT_BLOCKED_GROUP * SLICES];
    int64_t work = v->outer * v->inner * v->block * (to - from);

#pragma omp parallel for schedule(static) if (work >= CT_PARALLEL_MIN)
    for (int64_t t = 0; t < (to - from) * SLICES; t++) { /* images to threads as in maps over all */
        int64_t k = t % (to - from), slice = t / (to - from);

        sum_slice(v, add, ctx, from + k, slice, &part[k * SLICES + slice]);
    }
    for (int64_t i = 0; i < (to - from) * v->block; i++) {
        const partial *p = &part[i / v->block * SLICES];

        first[i] = second[i] = 0;
        for (int s = 0; s < SLICES; s++) {
            first[i] += p[s].first[i % v->block];
            second[i] += p[s].second[i % v->block];
        }
    }
}

typedef struct dot_ctx {
    const float *a, *b;
    bool bf16;
} dot_ctx;

CT_SIMD_PART void dot_rows(int64_t inner, int block, bool bf16, const float *a, const float *b,
                           double *sum)
{
    double acc[CT_BLOCK_MAX];

    for (int i = 0; i < block; i++) acc[i] = sum[i];
    for (int64_t s = 0; s < inner; s++) {
#pragma omp simd
        for (int i = 0; i < block; i++)
            acc[i] += (double)ct_num_get(a, bf16, s * block + i) *
                      ((b != NULL) ? (double)ct_num_get(b, bf16, s * block + i) : 1.0);
    }
    for (int i = 0; i < block; i++) sum[i] = acc[i];
}

CT_SIMD_PART void dot_cases(int64_t inner, int block, bool bf16, const float *a, const float *b,
                            double *sum)
{
    if (bf16 && (b != NULL))
        dot_rows(inner, block, true, a, b, sum);
    else if (bf16)
        dot_rows(inner, block, true, a, NULL, sum);
    else if (b != NULL)
        dot_rows(inner, block, false, a, b, sum);
    else
        dot_rows(inner, block, false, a, NULL, sum);
}

CT_SIMD_CLONES static void dot_block(int64_t inner, int block, bool bf16, const float *a,
                                     const float *b, double *sum)
{
    if (block == 16)
        dot_cases(inner, 16, bf16, a, b, sum);
    else if (block == 8)
        dot_cases(inner, 8, bf16, a, b, sum);
    else
        dot_cases(inner, block, bf16, a, b, sum);
}

static void add_dot(const void *ctx, int64_t k, int64_t at, int64_t inner, int block, double *first,
                    double *second)
{
    const dot_ctx *d = ctx;

    (void)k, (void)second;
    dot_block(inner, block, d->bf16, ct_num_at(d->a, d->bf16, at), ct_num_at(d->b, d->bf16, at),
              first);
}

void ct_blocked_total(const ct_blocked *v, ct_blocked_fn fn, const void *ctx, bool add, float *out)
{
    double first[CT_BLOCKED_GROUP * CT_BLOCK_MAX], second[CT_BLOCKED_GROUP * CT_BLOCK_MAX];
    int64_t n = ct_blocked_n(v);

    for (int64_t k = 0; k < n; k += CT_BLOCKED_GROUP) {
        int64_t to = (k + CT_BLOCKED_GROUP < n) ? k + CT_BLOCKED_GROUP : n;

        ct_blocked_sums(v, k, to, fn, ctx, first, second);
        for (int64_t c = k * v->block; (c < to * v->block) && (c < v->mid); c++)
            out[c] = (float)(first[c - k * v->block] + (add ? (double)out[c] : 0.0));
    }
}

void ct_blocked_dot(const ct_blocked *v, const float *a, const float *b, bool add, float *out)
{
    ct_blocked_total(v, add_dot, &(dot_ctx){ a, b, v->bf16 }, add, out);
}
