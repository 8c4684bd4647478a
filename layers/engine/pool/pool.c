/* Which poolings there are, the reference, and trials for choosing by time. The order of a table
 * is the choice of "auto". */
#include "layers/engine/pool/pool.h"

#include <math.h>
#include <stdio.h>

const ct_pool_impl *const ct_pool_forward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_pool_cuda_forward,
#endif
#ifdef CT_HAVE_CUDNN
    &ct_pool_cudnn_forward, /* by name or plan */
#endif
    &ct_pool_simd_forward,  &ct_pool_blocked_forward, &ct_pool_ref_forward, NULL
};
const ct_pool_impl *const ct_pool_backward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_pool_cuda_backward,
#endif
#ifdef CT_HAVE_CUDNN
    &ct_pool_cudnn_backward, /* by name or plan */
#endif
    &ct_pool_simd_backward,  &ct_pool_blocked_backward, &ct_pool_ref_backward, NULL
};

/* ---- The definition, window by window. */

typedef struct window {
    int64_t top, bottom, left, right; /* inside the plane  */
    int64_t down, across;             /* from one to the next */
    int64_t size;                     /* AVE's divisor     */
} window;

/* The elements of a window along one axis: the first inside, the end, how many with the padding. */
static void axis_of(int64_t out, int64_t kernel, int64_t dilation, int64_t stride, int64_t pad,
                    int64_t in, int64_t *lo_p, int64_t *hi_p, int64_t *n_p)
{
    int64_t from = out * stride - pad;
    int64_t span;

    ct_pool_window(out, (kernel - 1) * dilation + 1, stride, pad, in, lo_p, hi_p, &span);
    *n_p = (span + dilation - 1) / dilation;
    if (from < 0) *lo_p = from + (dilation - 1 - from) / dilation * dilation;
}

static window window_of(const ct_pool_desc *d, int64_t i, int64_t j)
{
    window v = { .down = (d->dh > 1) ? d->dh : 1, .across = (d->dw > 1) ? d->dw : 1 };
    int64_t rows, columns;

    axis_of(i, d->kh, v.down, d->sh, d->ph, d->h, &v.top, &v.bottom, &rows);
    axis_of(j, d->kw, v.across, d->sw, d->pw, d->w, &v.left, &v.right, &columns);
    if (d->inside) {
        rows = (v.bottom - v.top + v.down - 1) / v.down;
        columns = (v.right - v.left + v.across - 1) / v.across;
    }
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

    for (int64_t r = v->top; r < v->bottom; r += v->down) {
        for (int64_t c = v->left; c < v->right; c += v->across) {
            float here = x[at(d, plane, n, r * d->w + c)];

            if ((here > x[at(d, plane, n, best)]) || isnan(here)) best = r * d->w + c;
        }
    }
    return best;
}

static float average(const ct_pool_desc *d, const float *x, int64_t plane, const window *v)
{
    double sum = 0.0;

    for (int64_t r = v->top; r < v->bottom; r += v->down) {
        for (int64_t c = v->left; c < v->right; c += v->across)
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
            int64_t row = (best / d->w - v.top) / v.down;
            int64_t place = row * ct_pool_pitch(d) + (best % d->w - v.left) / v.across;
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
            int64_t r = v.top + place / pitch * v.down, c = v.left + place % pitch * v.across;

            if (place != CT_POOL_NONE) a->dx[at(d, p, n, r * d->w + c)] += a->dy[o];
            continue;
        }
        for (int64_t r = v.top; r < v.bottom; r += v.down) {
            for (int64_t c = v.left; c < v.right; c += v.across)
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

/* ---- Poolings on made-up data, for choosing engines by timing. */

void ct_pool_key(const ct_pool_desc *d, ct_run_kind kind, char *text, size_t size)
{
    char dilated[64] = "";

    if (ct_pool_is_dilated(d))
        snprintf(dilated, sizeof(dilated), " d%lldx%lld", (long long)d->dh, (long long)d->dw);
    if (d->inside) strcat(dilated, " inside");
    snprintf(
        text, size,
        "pool %s %s p%lld %lldx%lld %lldx%lld k%lldx%lld s%lldx%lld p%lldx%lld b%d l%lld t%d%s%s",
        (kind == CT_RUN_FORWARD) ? "forward" : "backward_data",
        (d->method == CT_POOL_MAX) ? "max" : "ave", (long long)d->planes, (long long)d->h,
        (long long)d->w, (long long)d->oh, (long long)d->ow, (long long)d->kh, (long long)d->kw,
        (long long)d->sh, (long long)d->sw, (long long)d->ph, (long long)d->pw, d->block,
        (long long)d->last, (int)d->dtype,
        (d->device == CT_DEVICE_CPU) ? (d->bf16 ? " bf16" : "") : " gpu", dilated);
}

/* A mask is as large as y at most; what it holds, zeros or numbers of floats, any engine reads. */
void ct_pool_scratch(const ct_pool_desc *d, ct_run_kind kind, void *block, size_t *bytes_p,
                     ct_pool_args *a)
{
    bool forward = (kind == CT_RUN_FORWARD), fill = (d->device == CT_DEVICE_CPU);
    float *x = ct_engine_scratch(block, bytes_p, d->planes * d->h * d->w, fill && forward);
    float *y = ct_engine_scratch(block, bytes_p, d->planes * d->oh * d->ow, fill && !forward);
    float *mask = ct_engine_scratch(block, bytes_p, d->planes * d->oh * d->ow, false);

    *a = (ct_pool_args){ .mask = mask };
    if (forward) {
        a->x = x;
        a->y = y;
    } else {
        a->dy = y;
        a->dx = x;
    }
}
