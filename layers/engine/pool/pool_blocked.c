/* Pooling of channels in blocks: a place of a block is one vector, so that windows are loops over
 * vectors whatever their size, stride and padding. The gradient of a maximum goes to all places of
 * its window, times one where the place was taken and nought elsewhere. */
#include "framework/base/simd.h"
#include "layers/engine/pool/pool_private.h"

enum { WIDEST = 16 };

static bool supports(const ct_pool_desc *d)
{
    return ct_pool_on_cpu(d) && ((d->block == 8) || (d->block == 16)) && (d->h * d->w <= INT32_MAX);
}

/* The inside of one output's window, and AVE's divisor. */
typedef struct window {
    int64_t top, bottom, left, right;
    float size;
} window;

static inline window window_of(const ct_pool_desc *d, int64_t i, int64_t j)
{
    window v;
    int64_t rows, columns;

    ct_pool_window(i, d->kh, d->sh, d->ph, d->h, &v.top, &v.bottom, &rows);
    ct_pool_window(j, d->kw, d->sw, d->pw, d->w, &v.left, &v.right, &columns);
    v.size = (float)(rows * columns);
    return v;
}

/* A NaN counts as larger than any number: a diverged net must show. */
static inline void max_window(const ct_pool_desc *d, int block, const window *v, const float *x,
                              float *y, int32_t *mask)
{
    float best[WIDEST];
    int32_t at[WIDEST], first = (int32_t)(v->top * d->w + v->left);

    for (int l = 0; l < block; l++) {
        best[l] = x[first * (int64_t)block + l];
        at[l] = first;
    }
    for (int64_t r = v->top; r < v->bottom; r++) {
        for (int64_t c = v->left; c < v->right; c++) {
            int32_t place = (int32_t)(r * d->w + c);
            const float *from = x + place * (int64_t)block;

#pragma omp simd
            for (int l = 0; l < block; l++) {
                int more = (from[l] > best[l]) | (from[l] != from[l]);

                best[l] = more ? from[l] : best[l];
                at[l] = more ? place : at[l];
            }
        }
    }
    for (int l = 0; l < block; l++) {
        y[l] = best[l];
        mask[l] = at[l];
    }
}

static inline void ave_window(const ct_pool_desc *d, int block, const window *v, const float *x,
                              float *y)
{
    float sum[WIDEST] = { 0.0f };

    for (int64_t r = v->top; r < v->bottom; r++) {
        for (int64_t c = v->left; c < v->right; c++) {
            const float *from = x + (r * d->w + c) * block;

#pragma omp simd
            for (int l = 0; l < block; l++) sum[l] += from[l];
        }
    }
    for (int l = 0; l < block; l++) y[l] = sum[l] / v->size;
}

static inline void forward_plane(const ct_pool_desc *d, int block, const float *x, float *y,
                                 int32_t *mask)
{
    for (int64_t i = 0; i < d->oh; i++) {
        for (int64_t j = 0; j < d->ow; j++) {
            window v = window_of(d, i, j);
            int64_t o = (i * d->ow + j) * block;

            if (d->method == CT_POOL_MAX)
                max_window(d, block, &v, x, y + o, mask + o);
            else
                ave_window(d, block, &v, x, y + o);
        }
    }
}

static inline void max_back_window(const ct_pool_desc *d, int block, const window *v,
                                   const float *dy, const int32_t *mask, float *dx)
{
    for (int64_t r = v->top; r < v->bottom; r++) {
        for (int64_t c = v->left; c < v->right; c++) {
            int32_t place = (int32_t)(r * d->w + c);
            float *to = dx + place * (int64_t)block;

#pragma omp simd
            for (int l = 0; l < block; l++) to[l] += (mask[l] == place) ? dy[l] : 0.0f;
        }
    }
}

static inline void ave_back_window(const ct_pool_desc *d, int block, const window *v,
                                   const float *dy, float *dx)
{
    float part[WIDEST];

    for (int l = 0; l < block; l++) part[l] = dy[l] / v->size;
    for (int64_t r = v->top; r < v->bottom; r++) {
        for (int64_t c = v->left; c < v->right; c++) {
            float *to = dx + (r * d->w + c) * block;

#pragma omp simd
            for (int l = 0; l < block; l++) to[l] += part[l];
        }
    }
}

static inline void backward_plane(const ct_pool_desc *d, int block, const float *dy,
                                  const int32_t *mask, float *dx)
{
    memset(dx, 0, (size_t)(d->h * d->w * block) * sizeof(float));
    for (int64_t i = 0; i < d->oh; i++) {
        for (int64_t j = 0; j < d->ow; j++) {
            window v = window_of(d, i, j);
            int64_t o = (i * d->ow + j) * block;

            if (d->method == CT_POOL_MAX)
                max_back_window(d, block, &v, dy + o, mask + o, dx);
            else
                ave_back_window(d, block, &v, dy + o, dx);
        }
    }
}

/* One block of one image's channels. */
CT_SIMD_CLONES static void run_plane(const ct_pool_desc *d, const float *x, float *y,
                                     const float *dy, int32_t *mask, float *dx)
{
    if ((dx == NULL) && (d->block == 16))
        forward_plane(d, 16, x, y, mask);
    else if (dx == NULL)
        forward_plane(d, 8, x, y, mask);
    else if (d->block == 16)
        backward_plane(d, 16, dy, mask, dx);
    else
        backward_plane(d, 8, dy, mask, dx);
}

static ct_status run(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    int64_t in = d->h * d->w * d->block, out = d->oh * d->ow * d->block;
    bool max = (d->method == CT_POOL_MAX), back = (a->dx != NULL);
    ct_status polled = CT_OK;

#pragma omp parallel for num_threads(d->n_thread) schedule(static)
    for (int64_t p = 0; p < d->planes / d->block; p++) {
        run_plane(d, back ? NULL : a->x + p * in, back ? NULL : a->y + p * out,
                  back ? a->dy + p * out : NULL, max ? a->mask + p * out : NULL,
                  back ? a->dx + p * in : NULL);
        ct_engine_poll(ex, &polled);
    }
    if (!back && (a->mask_top != NULL)) {
        for (int64_t o = 0; o < d->planes / d->block * out; o++) a->mask_top[o] = (float)a->mask[o];
    }
    return polled;
}

const ct_pool_impl ct_pool_blocked_forward = { .name = "blocked",
                                               .supports = supports,
                                               .run = run };
const ct_pool_impl ct_pool_blocked_backward = { .name = "blocked",
                                                .supports = supports,
                                                .run = run };
