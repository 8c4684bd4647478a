/* Maxima of windows two columns apart in planes in plain order: a vector of outputs takes the
 * columns of its windows straight from the rows, the even and the odd ones of two vectors at a
 * time.
 */
#include "layers/engine/pool/pool_simd.h"

#include <math.h>
#include <stdbool.h>

/* Numbers that are asked for ahead of those that are read. */
enum { AHEAD = 2048 };

typedef uint8_t bytes __attribute__((vector_size(CT_POOL_LANES), aligned(1), may_alias));

/* Every other number of two vectors. */
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD  1, 3, 5, 7, 9, 11, 13, 15

/* Outputs [first, end) have their whole window in the plane. */
static inline int64_t first_whole(const ct_pool_desc *d)
{
    return (d->pw + 1) / 2;
}
static inline int64_t end_whole(const ct_pool_desc *d)
{
    int64_t end = (d->w + d->pw - d->kw) / 2 + 1;

    return (end < d->ow) ? end : d->ow;
}

bool ct_pool_is_step2(const ct_pool_desc *d)
{
    return (d->sw == 2) && ((d->kw == 2) || (d->kw == 3)) && (d->w >= d->kw) &&
           (end_whole(d) - first_whole(d) >= CT_POOL_LANES) && (ct_pool_mask_bytes(d) == 1);
}

/* The largest so far of some windows, and their places. */
typedef struct found {
    ct_pool_vec best;
    ct_pool_num at;
} found;

CT_SIMD_PART void take(found *f, const ct_pool_vec *v_p, int place, const bool nan)
{
    ct_pool_vec v = *v_p;
    ct_pool_num more = v > f->best, here = (ct_pool_num){ 0 } + place;

    if (nan) more |= (v != v);
    f->best = (ct_pool_vec)((more & (ct_pool_num)v) | (~more & (ct_pool_num)f->best));
    f->at = (more & here) | (~more & f->at);
}

/* Outputs j to j + CT_POOL_LANES of a row; x: the first of its windows' n rows. */
CT_SIMD_PART void max_some(const ct_pool_desc *d, const int kw, const bool nan, int64_t n,
                           const float *x, int64_t j, float *y, uint8_t *mask)
{
    found f = { (ct_pool_vec){ 0 } - INFINITY, { 0 } };
    int pitch = (int)ct_pool_pitch(d);

    for (int64_t r = 0; r < n; r++) {
        const float *row = x + r * d->w + 2 * j - d->pw;
        ct_pool_vec low = *(const ct_pool_vec *)row;
        ct_pool_vec high = *(const ct_pool_vec *)(row + CT_POOL_LANES);
        ct_pool_vec first = CT_POOL_MIXED(low, high, EVEN);
        ct_pool_vec second = CT_POOL_MIXED(low, high, ODD);

        take(&f, &first, (int)r * pitch, nan);
        take(&f, &second, (int)r * pitch + 1, nan);
        if (kw == 3) {
            ct_pool_vec third;

            low = *(const ct_pool_vec *)(row + 1);
            high = *(const ct_pool_vec *)(row + CT_POOL_LANES + 1);
            third = CT_POOL_MIXED(low, high, ODD);
            take(&f, &third, (int)r * pitch + 2, nan);
        }
    }
    if (d->relu) {
        f.at |= ~(ct_pool_num)(f.best > 0.0f);
        f.best = (ct_pool_vec)(~(ct_pool_num)(f.best < 0.0f) & (ct_pool_num)f.best);
    }
    *(ct_pool_vec *)(y + j) = f.best;
    if (mask != NULL) *(bytes *)(mask + j) = __builtin_convertvector(f.at, bytes);
}

/* Output j, whose window the plane's edge may cut. */
static void max_one(const ct_pool_desc *d, int64_t n, const float *x, int64_t j, float *y,
                    uint8_t *mask)
{
    int64_t left, right, columns;
    float best = -INFINITY;
    int at = 0;

    ct_pool_window(j, d->kw, 2, d->pw, d->w, &left, &right, &columns);
    for (int64_t r = 0; r < n; r++) {
        for (int64_t c = left; c < right; c++) {
            float v = x[r * d->w + c];
            bool more = (v > best) | (v != v); /* no branches: nothing tells which way they go */

            best = more ? v : best;
            at = more ? (int)(r * ct_pool_pitch(d) + c - left) : at;
        }
    }
    if (d->relu && !(best > 0.0f)) at = CT_POOL_BYTE_NONE;
    if (d->relu && (best < 0.0f)) best = 0.0f;
    y[j] = best;
    if (mask != NULL) mask[j] = (uint8_t)at;
}

/* A row of outputs; the last vector may begin among those of the one before. */
CT_SIMD_PART void max_row(const ct_pool_desc *d, const int kw, const bool nan, int64_t n,
                          const float *x, float *y, uint8_t *mask)
{
    int64_t first = first_whole(d), end = end_whole(d), j = first;

    for (int64_t k = 0; k < first; k++) max_one(d, n, x, k, y, mask);
    for (; j + CT_POOL_LANES <= end; j += CT_POOL_LANES) max_some(d, kw, nan, n, x, j, y, mask);
    if (j < end) max_some(d, kw, nan, n, x, end - CT_POOL_LANES, y, mask);
    for (int64_t k = end; k < d->ow; k++) max_one(d, n, x, k, y, mask);
}

CT_SIMD_PART void max_rows(const ct_pool_desc *d, const int kw, const float *x, float *y,
                           uint8_t *mask)
{
    int64_t next = 0, nan = -1; /* the next row to look at; the last one that holds a NaN */

    for (int64_t i = 0; i < d->oh; i++, y += d->ow, mask += (mask != NULL) ? d->ow : 0) {
        int64_t top, bottom, rows;

        ct_pool_window(i, d->kh, d->sh, d->ph, d->h, &top, &bottom, &rows);
        for (next = (next > top) ? next : top; next < bottom; next++) {
            const float *row = x + next * d->w;

            for (int64_t k = 0; k < d->w; k += 16) __builtin_prefetch(row + AHEAD + k, 0, 2);
            if (ct_pool_holds_nan(d->w, row)) nan = next;
        }
        if (nan >= top)
            max_row(d, kw, true, bottom - top, x + top * d->w, y, mask);
        else if (bottom - top == 2)
            max_row(d, kw, false, 2, x + top * d->w, y, mask);
        else if (bottom - top == 3)
            max_row(d, kw, false, 3, x + top * d->w, y, mask);
        else
            max_row(d, kw, false, bottom - top, x + top * d->w, y, mask);
    }
}

CT_SIMD_CLONES void ct_pool_step2_max(const ct_pool_desc *d, const float *x, float *y,
                                      uint8_t *mask)
{
    if (d->kw == 3)
        max_rows(d, 3, x, y, mask);
    else
        max_rows(d, 2, x, y, mask);
}
