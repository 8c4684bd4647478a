/* The definition, window by window. */
#include "layers/engine/pool/pool_private.h"

#include <math.h>

typedef struct window {
    int64_t top, bottom, left, right; /* inside the plane  */
    int64_t size;                     /* AVE's divisor     */
} window;

static window window_of(const ct_pool_desc *d, int64_t i, int64_t j)
{
    window v;
    int64_t rows, columns;

    ct_pool_window(i, d->kh, d->sh, d->ph, d->h, &v.top, &v.bottom, &rows);
    ct_pool_window(j, d->kw, d->sw, d->pw, d->w, &v.left, &v.right, &columns);
    v.size = rows * columns;
    return v;
}

static int64_t arg_max(const ct_pool_desc *d, const float *x, const window *v)
{
    int64_t best = v->top * d->w + v->left;

    for (int64_t r = v->top; r < v->bottom; r++) {
        for (int64_t c = v->left; c < v->right; c++) {
            float here = x[r * d->w + c];

            if ((here > x[best]) || isnan(here)) best = r * d->w + c;
        }
    }
    return best;
}

static float average(const ct_pool_desc *d, const float *x, const window *v)
{
    double sum = 0.0;

    for (int64_t r = v->top; r < v->bottom; r++) {
        for (int64_t c = v->left; c < v->right; c++) sum += x[r * d->w + c];
    }
    return (float)(sum / (double)v->size);
}

static ct_status ref_forward(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    (void)ex;
    for (int64_t o = 0; o < d->planes * d->oh * d->ow; o++) {
        window v = window_of(d, o / d->ow % d->oh, o % d->ow);
        const float *x = a->x + o / (d->oh * d->ow) * d->h * d->w;

        if (d->method == CT_POOL_AVE) {
            a->y[o] = average(d, x, &v);
        } else {
            int64_t best = arg_max(d, x, &v);

            a->y[o] = x[best];
            a->mask[o] = (int32_t)best;
            if (a->mask_top != NULL) a->mask_top[o] = (float)best;
        }
    }
    return CT_OK;
}

static ct_status ref_backward(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    (void)ex;
    for (int64_t i = 0; i < d->planes * d->h * d->w; i++) a->dx[i] = 0.0f;
    for (int64_t o = 0; o < d->planes * d->oh * d->ow; o++) {
        window v = window_of(d, o / d->ow % d->oh, o % d->ow);
        float *dx = a->dx + o / (d->oh * d->ow) * d->h * d->w;

        if (d->method == CT_POOL_MAX) {
            dx[a->mask[o]] += a->dy[o];
            continue;
        }
        for (int64_t r = v.top; r < v.bottom; r++) {
            for (int64_t c = v.left; c < v.right; c++) dx[r * d->w + c] += a->dy[o] / (float)v.size;
        }
    }
    return CT_OK;
}

const ct_pool_impl ct_pool_ref_forward = { .name = "ref",
                                           .supports = ct_pool_on_cpu,
                                           .run = ref_forward };
const ct_pool_impl ct_pool_ref_backward = { .name = "ref",
                                            .supports = ct_pool_on_cpu,
                                            .run = ref_backward };
