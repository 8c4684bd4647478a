#include "layers/engine/pool/pool_max3.h"

#include "framework/base/bf16.h"
#include "framework/base/memory.h"
#include "framework/base/simd.h"
#include "framework/base/stream.h"

#include <math.h>

enum { KERNEL = 3 };

/* Of KERNEL rows of the plane: the largest of three neighbours, which of them it is, and whether
 * there is a NaN in the row. Behind them a row of x as f32, and one of y. */
typedef struct ring {
    float *best[KERNEL];
    int32_t *at[KERNEL];
    bool nan[KERNEL];
    float *x, *y;
} ring;

bool ct_pool_max3_takes(const ct_pool_desc *d)
{
    return (d->method == CT_POOL_MAX) && (d->block > 0) && (d->kh == KERNEL) && (d->kw == KERNEL) &&
           (d->sh == 1) && (d->sw == 1) && (d->w >= KERNEL) && (d->h >= KERNEL) &&
           (d->ow == d->w + 2 * d->pw - 2) && (d->oh == d->h + 2 * d->ph - 2);
}

static int64_t row_floats(const ct_pool_desc *d)
{
    int64_t longest = (d->w > d->ow) ? d->w : d->ow;

    return (int64_t)(ct_align_up((size_t)(longest * d->block) * sizeof(float)) / sizeof(float));
}

size_t ct_pool_max3_bytes(const ct_pool_desc *d)
{
    return (size_t)(row_floats(d) * (2 * KERNEL + 2)) * sizeof(float);
}

static ring make_ring(const ct_pool_desc *d, void *room)
{
    int64_t n = row_floats(d);
    ring r = { .x = (float *)room + 2 * KERNEL * n, .y = (float *)room + (2 * KERNEL + 1) * n };

    for (int i = 0; i < KERNEL; i++) {
        r.best[i] = (float *)room + i * n;
        r.at[i] = (int32_t *)room + (KERNEL + i) * n;
    }
    return r;
}

/* best[i]: the first largest of x[i], x[i + step], … count of them */
CT_SIMD_PART void largest(int64_t n, int64_t step, const int count, const float *x, float *best,
                          int32_t *at)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float most = x[i];
        int32_t which = 0;

        if (count > 1) {
            float v = x[i + step];

            which = (v > most) ? 1 : which;
            most = (v > most) ? v : most;
        }
        if (count > 2) {
            float v = x[i + 2 * step];

            which = (v > most) ? 2 : which;
            most = (v > most) ? v : most;
        }
        best[i] = most;
        at[i] = which;
    }
}

/* A row of the plane; returns whether there is a NaN. */
CT_SIMD_CLONES static bool scan_row(const ct_pool_desc *d, const float *x, float *best, int32_t *at)
{
    int64_t b = d->block, last = d->w - KERNEL + d->pw;
    int32_t nan = 0;

    for (int64_t j = 0; j < d->ow; j++) {
        int64_t from, to, padded;

        if (j == d->pw) { /* the windows that are whole */
            largest((d->w - KERNEL + 1) * b, b, 3, x, best + j * b, at + j * b);
            j = last;
            continue;
        }
        ct_pool_window(j, d->kw, 1, d->pw, d->w, &from, &to, &padded);
        if (to - from == 1)
            largest(b, b, 1, x + from * b, best + j * b, at + j * b);
        else
            largest(b, b, 2, x + from * b, best + j * b, at + j * b);
    }
#pragma omp simd reduction(| : nan)
    for (int64_t i = 0; i < d->w * b; i++) nan |= (x[i] != x[i]) ? 1 : 0;
    return nan != 0;
}

/* A row of outputs from `count` rows, the first of them at best[0]. */
CT_SIMD_PART void join(int64_t n, const int count, const bool relu, const bool marks,
                       const float *const *best, const int32_t *const *at, float *y, uint8_t *mask)
{
    const float *best0 = best[0], *best1 = best[1], *best2 = best[2];
    const int32_t *at0 = at[0], *at1 = at[1], *at2 = at[2];

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float most = best0[i];
        int32_t which = at0[i];

        if (count > 1) {
            float v = best1[i];

            which = (v > most) ? at1[i] + KERNEL : which;
            most = (v > most) ? v : most;
        }
        if (count > 2) {
            float v = best2[i];

            which = (v > most) ? at2[i] + 2 * KERNEL : which;
            most = (v > most) ? v : most;
        }
        if (relu) {
            which = (most > 0.0f) ? which : CT_POOL_BYTE_NONE;
            most = (most < 0.0f) ? 0.0f : most;
        }
        y[i] = most;
        if (marks) mask[i] = (uint8_t)which;
    }
}

CT_SIMD_CLONES static void join_rows(int64_t n, int count, bool relu, const float *const *best,
                                     const int32_t *const *at, float *y, uint8_t *mask)
{
    if ((count == 3) && !relu && (mask != NULL))
        join(n, 3, false, true, best, at, y, mask);
    else if ((count == 3) && relu && (mask != NULL))
        join(n, 3, true, true, best, at, y, mask);
    else if (mask != NULL)
        join(n, count, relu, true, best, at, y, mask);
    else
        join(n, count, relu, false, best, at, y, mask);
}

/* A row of outputs by the definition: rows [from, to) of the plane, in which there are NaNs. */
static void join_slowly(const ct_pool_desc *d, const float *x, int64_t from, int64_t to, float *y,
                        uint8_t *mask)
{
    int64_t b = d->block;

    for (int64_t o = 0; o < d->ow * b; o++) {
        int64_t left, right, padded, best;

        ct_pool_window(o / b, d->kw, 1, d->pw, d->w, &left, &right, &padded);
        best = from * d->w + left;
        for (int64_t r = from; r < to; r++) {
            for (int64_t c = left; c < right; c++) {
                float v = ct_num_get(x, d->bf16, (r * d->w + c) * b + o % b);

                if (isnan(v) || (v > ct_num_get(x, d->bf16, best * b + o % b))) best = r * d->w + c;
            }
        }
        y[o] = ct_num_get(x, d->bf16, best * b + o % b);
        if (mask != NULL) mask[o] = (uint8_t)((best / d->w - from) * KERNEL + best % d->w - left);
        if (d->relu && (mask != NULL) && !(y[o] > 0.0f)) mask[o] = CT_POOL_BYTE_NONE;
        if (d->relu && (y[o] < 0.0f)) y[o] = 0.0f;
    }
}

void ct_pool_max3_plane(const ct_pool_desc *d, const float *x, float *y, uint8_t *mask, bool stream,
                        void *room)
{
    int64_t row = d->w * d->block, out = d->ow * d->block, next = 0;
    ring r = make_ring(d, room);

    for (int64_t i = 0; i < d->oh; i++) {
        const float *best[KERNEL] = { NULL };
        const int32_t *at[KERNEL] = { NULL };
        uint8_t *marks = (mask != NULL) ? mask + i * out : NULL;
        float *to = (d->bf16 || stream) ? r.y : y + i * out;
        int64_t top, bottom, padded;
        bool nan = false;

        ct_pool_window(i, d->kh, 1, d->ph, d->h, &top, &bottom, &padded);
        for (; next < bottom; next++) {
            const float *from = ct_num_at(x, d->bf16, next * row);

            if (d->bf16) ct_bf16_widen(row, from, r.x), from = r.x;
            r.nan[next % KERNEL] = scan_row(d, from, r.best[next % KERNEL], r.at[next % KERNEL]);
        }
        for (int64_t k = top; k < bottom; k++) {
            best[k - top] = r.best[k % KERNEL], at[k - top] = r.at[k % KERNEL];
            nan = nan || r.nan[k % KERNEL];
        }
        if (nan)
            join_slowly(d, x, top, bottom, to, marks);
        else
            join_rows(out, (int)(bottom - top), d->relu, best, at, to, marks);
        if (d->bf16)
            ct_bf16_narrow(out, to, ct_num_to(y, true, i * out));
        else if (stream)
            ct_stream_put((int)out, to, y + i * out);
    }
}
