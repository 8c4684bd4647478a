/* Backward of y = x scale + bias in one pass: dy and x are read once, dx is written on the way.
 * Sums are of fixed lanes, then of images in their order: the same for any processor and team. */
#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "layers/blocked.h"
#include "layers/layer_util.h"

enum { LANES = 16 };

/* ---- plain order */

/* One image's row of a channel. dx may be dy; NULL: unwanted. */
CT_SIMD_PART void back_row(int64_t n, const float *x, const float *dy, float scale, bool want,
                           float *dx, double *product, double *sum)
{
    double p[LANES] = { 0 }, s[LANES] = { 0 };
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            float g = dy[i + j];

            p[j] += (double)g * (double)x[i + j];
            s[j] += (double)g;
            if (want) dx[i + j] = g * scale;
        }
    }
    for (; i < n; i++) {
        float g = dy[i];

        p[i % LANES] += (double)g * (double)x[i];
        s[i % LANES] += (double)g;
        if (want) dx[i] = g * scale;
    }
    for (int j = 0; j < LANES; j++) {
        *product += p[j];
        *sum += s[j];
    }
}

CT_SIMD_CLONES static void back_rows(const ct_view *v, int64_t d, const float *x, const float *dy,
                                     float scale, float *dx, double *product, double *sum)
{
    for (int64_t o = 0; o < v->outer; o++) {
        int64_t at = (o * v->mid + d) * v->inner;

        if (dx != NULL)
            back_row(v->inner, x + at, dy + at, scale, true, dx + at, product, sum);
        else
            back_row(v->inner, x + at, dy + at, scale, false, NULL, product, sum);
    }
}

static void put(double sum, bool add, float *out)
{
    if (out != NULL) *out = (float)(sum + (add ? (double)*out : 0.0));
}

static void plain(const ct_view *v, const ct_scale_back *a)
{
#pragma omp parallel for schedule(static) if (v->outer * v->mid * v->inner >= CT_PARALLEL_MIN)
    for (int64_t d = 0; d < v->mid; d++) {
        double product = 0, sum = 0;

        back_rows(v, d, a->x, a->dy, a->scale[d], a->dx, &product, &sum);
        put(product, a->add_scale, a->dscale + d);
        put(sum, a->add_bias, (a->dbias != NULL) ? a->dbias + d : NULL);
    }
}

/* ---- blocks of channels */

typedef struct block_ctx {
    const ct_blocked *v;
    const ct_scale_back *a;
} block_ctx;

CT_SIMD_PART void back_places(int64_t inner, int b, bool bf16, bool want, const float *x,
                              const float *dy, const float *scale, float *dx, double *product,
                              double *sum)
{
    double p[CT_BLOCK_MAX], s[CT_BLOCK_MAX];

    for (int i = 0; i < b; i++) p[i] = product[i], s[i] = sum[i];
    for (int64_t at = 0; at < inner * b; at += b) {
#pragma omp simd
        for (int i = 0; i < b; i++) {
            float g = ct_num_get(dy, bf16, at + i);

            p[i] += (double)g * (double)ct_num_get(x, bf16, at + i);
            s[i] += (double)g;
            if (want) ct_num_put(dx, bf16, at + i, g * scale[i]);
        }
    }
    for (int i = 0; i < b; i++) product[i] = p[i], sum[i] = s[i];
}

CT_SIMD_CLONES static void back_block(int64_t inner, int b, bool bf16, const float *x,
                                      const float *dy, const float *scale, float *dx,
                                      double *product, double *sum)
{
    if ((b == 16) && bf16 && (dx != NULL))
        back_places(inner, 16, true, true, x, dy, scale, dx, product, sum);
    else if ((b == 16) && (dx != NULL))
        back_places(inner, 16, false, true, x, dy, scale, dx, product, sum);
    else if ((b == 8) && !bf16 && (dx != NULL))
        back_places(inner, 8, false, true, x, dy, scale, dx, product, sum);
    else
        back_places(inner, b, bf16, dx != NULL, x, dy, scale, dx, product, sum);
}

static void add_block(const void *ctx, int64_t k, int64_t at, int64_t inner, int block,
                      double *first, double *second)
{
    const block_ctx *c = ctx;
    bool bf16 = c->v->bf16;
    float scale[CT_BLOCK_MAX];

    ct_blocked_pick(c->v, k, c->a->scale, 1.0f, scale);
    back_block(inner, block, bf16, ct_num_at(c->a->x, bf16, at), ct_num_at(c->a->dy, bf16, at),
               scale, ct_num_to(c->a->dx, bf16, at), first, second);
}

static void blocked(const ct_view *view, const ct_scale_back *a)
{
    ct_blocked v = { view->outer, view->mid, view->inner, view->block, view->dtype == CT_BF16 };
    double product[CT_BLOCKED_GROUP * CT_BLOCK_MAX], sum[CT_BLOCKED_GROUP * CT_BLOCK_MAX];
    int64_t n = ct_blocked_n(&v);

    for (int64_t k = 0; k < n; k += CT_BLOCKED_GROUP) {
        int64_t to = (k + CT_BLOCKED_GROUP < n) ? k + CT_BLOCKED_GROUP : n;

        ct_blocked_sums(&v, k, to, add_block, &(block_ctx){ &v, a }, product, sum);
        for (int64_t c = k * v.block; (c < to * v.block) && (c < v.mid); c++) {
            put(product[c - k * v.block], a->add_scale, a->dscale + c);
            put(sum[c - k * v.block], a->add_bias, (a->dbias != NULL) ? a->dbias + c : NULL);
        }
    }
}

void ct_view_scale_back(const ct_view *v, const ct_scale_back *a)
{
    if (v->block > 0) {
        blocked(v, a);
    } else if (v->inner > 1) {
        plain(v, a);
    } else {
        if (a->dbias != NULL) ct_view_dot(v, a->dy, NULL, a->add_bias, a->dbias);
        ct_view_dot(v, a->dy, a->x, a->add_scale, a->dscale);
        if (a->dx != NULL) ct_view_affine(v, a->dy, a->scale, NULL, a->dx);
    }
}
