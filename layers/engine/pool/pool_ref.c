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

/* Element `place` of a plane of n; from the first element of its block of planes, or of itself. */
static int64_t at(const ct_pool_desc *d, int64_t plane, int64_t n, int64_t place)
{
    int64_t b = (d->block > 0) ? d->block : 1;

    return (plane / b * n + place) * b + plane % b;
}

static int64_t arg_max(const ct_pool_desc *d, const float *x, int64_t plane, const window *v)
{
    int64_t best = v->top * d->w + v->left, n = d->h * d->w;

    for (int64_t r = v->top; r < v->bottom; r++) {
        for (int64_t c = v->left; c < v->right; c++) {
            float here = x[at(d, plane, n, r * d->w + c)];

            if ((here > x[at(d, plane, n, best)]) || isnan(here)) best = r * d->w + c;
        }
    }
    return best;
}

static float average(const ct_pool_desc *d, const float *x, int64_t plane, const window *v)
{
    double sum = 0.0;

    for (int64_t r = v->top; r < v->bottom; r++) {
        for (int64_t c = v->left; c < v->right; c++)
            sum += x[at(d, plane, d->h * d->w, r * d->w + c)];
    }
    return (float)(sum / (double)v->size);
}

static ct_status ref_forward(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    (void)ex;
    for (int64_t k = 0; k < d->planes * d->oh * d->ow; k++) {
        window v = window_of(d, k / d->ow % d->oh, k % d->ow);
        int64_t p = k / (d->oh * d->ow), o = at(d, p, d->oh * d->ow, k % (d->oh * d->ow));

        if (d->method == CT_POOL_AVE) {
            a->y[o] = average(d, a->x, p, &v);
        } else {
            int64_t best = arg_max(d, a->x, p, &v);
            int64_t place = (best / d->w - v.top) * ct_pool_pitch(d) + best % d->w - v.left;
            float y = a->x[at(d, p, d->h * d->w, best)];

            a->y[o] = (d->relu && (y < 0.0f)) ? 0.0f : y;
            if (d->relu && !(y > 0.0f)) place = CT_POOL_NONE;
            if (a->mask != NULL) ct_pool_mark(d, a->mask, o, (int32_t)place);
            if (a->mask_top != NULL) a->mask_top[o] = (float)best;
        }
    }
    return CT_OK;
}

static ct_status ref_backward(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    (void)ex;
    for (int64_t i = 0; i < d->planes * d->h * d->w; i++) a->dx[i] = 0.0f;
    for (int64_t k = 0; k < d->planes * d->oh * d->ow; k++) {
        window v = window_of(d, k / d->ow % d->oh, k % d->ow);
        int64_t p = k / (d->oh * d->ow), o = at(d, p, d->oh * d->ow, k % (d->oh * d->ow));
        int64_t n = d->h * d->w;

        if (d->method == CT_POOL_MAX) {
            int64_t place = ct_pool_marked(d, a->mask, o), pitch = ct_pool_pitch(d);
            int64_t r = v.top + place / pitch, c = v.left + place % pitch;

            if (place != CT_POOL_NONE) a->dx[at(d, p, n, r * d->w + c)] += a->dy[o];
            continue;
        }
        for (int64_t r = v.top; r < v.bottom; r++) {
            for (int64_t c = v.left; c < v.right; c++)
                a->dx[at(d, p, n, r * d->w + c)] += a->dy[o] / (float)v.size;
        }
    }
    return CT_OK;
}

static bool supports(const ct_pool_desc *d)
{
    return ct_pool_on_cpu(d) && !d->bf16;
}

const ct_pool_impl ct_pool_ref_forward = { .name = "ref",
                                           .supports = supports,
                                           .run = ref_forward };
const ct_pool_impl ct_pool_ref_backward = { .name = "ref",
                                            .supports = supports,
                                            .run = ref_backward };
