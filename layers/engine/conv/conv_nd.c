/* Convolution over any number of axes: im2col and a matrix product, image by image, the threads
 * sharing both. Per group, with K = C/G times the taps and S the outputs: y = W col, dcol = W^T dy,
 * dW += dy col^T. Made for more than two spatial axes, which nothing else here has. */
#include "framework/base/memory.h"
#include "framework/math/math.h"
#include "layers/engine/conv/conv.h"

enum { MAX_AXIS = CT_CONV_FRONT + 2 };

static int axes_of(const ct_conv_desc *d, ct_conv_axis *axis)
{
    int n = d->n_front;

    for (int i = 0; i < n; i++) axis[i] = d->front[i];
    axis[n++] = (ct_conv_axis){ d->h, d->oh, d->kh, d->sh, d->ph, d->dh };
    axis[n++] = (ct_conv_axis){ d->w, d->ow, d->kw, d->sw, d->pw, d->dw };
    return n;
}

/* One tap of one channel, row by row of the last axis. */
typedef struct tap {
    ct_conv_axis axis[MAX_AXIS];
    int64_t offset[MAX_AXIS]; /* input of output 0 */
    int n;
    int64_t rows, lo, hi; /* outputs [lo, hi) of a row have an input */
} tap;

static tap make_tap(const ct_conv_desc *d, int64_t number)
{
    tap t;
    const ct_conv_axis *last;

    t.n = axes_of(d, t.axis);
    t.rows = 1;
    for (int i = t.n - 1; i >= 0; i--) {
        t.offset[i] = number % t.axis[i].kernel * t.axis[i].dilation - t.axis[i].pad;
        number /= t.axis[i].kernel;
        if (i < t.n - 1) t.rows *= t.axis[i].out;
    }
    last = &t.axis[t.n - 1];
    valid_range(t.offset[t.n - 1], last->stride, last->in, last->out, &t.lo, &t.hi);
    return t;
}

/* Where the inputs of a row of outputs begin in the channel; -1: outside. */
static int64_t row_input(const tap *t, int64_t row)
{
    int64_t at = 0, step = t->axis[t->n - 1].in;

    for (int i = t->n - 2; i >= 0; i--) {
        int64_t k = row % t->axis[i].out * t->axis[i].stride + t->offset[i];

        if ((k < 0) || (k >= t->axis[i].in)) return -1;
        row /= t->axis[i].out;
        at += k * step;
        step *= t->axis[i].in;
    }
    return at;
}

void ct_im2col_nd(const ct_conv_desc *d, int64_t channels, const float *x, float *col)
{
    int64_t taps = d->kh * d->kw * front_taps(d);

#pragma omp parallel for schedule(static) num_threads(d->n_thread)
    for (int64_t r = 0; r < channels * taps; r++) {
        tap t = make_tap(d, r % taps);
        const ct_conv_axis *last = &t.axis[t.n - 1];
        const float *from = x + r / taps * in_size(d) + t.offset[t.n - 1];
        float *to = col + r * out_size(d);

        for (int64_t k = 0; k < t.rows; k++, to += last->out) {
            int64_t at = row_input(&t, k);

            if (at < 0) {
                zero_row(to, last->out);
                continue;
            }
            zero_row(to, t.lo);
            pick_row(to + t.lo, from + at + t.lo * last->stride, t.hi - t.lo, last->stride);
            zero_row(to + t.hi, last->out - t.hi);
        }
    }
}

void ct_col2im_nd(const ct_conv_desc *d, int64_t channels, const float *col, float *dx)
{
    int64_t taps = d->kh * d->kw * front_taps(d);

#pragma omp parallel for schedule(static) num_threads(d->n_thread)
    for (int64_t c = 0; c < channels; c++) {
        zero_row(dx + c * in_size(d), in_size(d));
        for (int64_t p = 0; p < taps; p++) {
            tap t = make_tap(d, p);
            const ct_conv_axis *last = &t.axis[t.n - 1];
            float *to = dx + c * in_size(d) + t.offset[t.n - 1];
            const float *from = col + (c * taps + p) * out_size(d);

            for (int64_t k = 0; k < t.rows; k++, from += last->out) {
                int64_t at = row_input(&t, k);

                for (int64_t j = t.lo; (at >= 0) && (j < t.hi); j++)
                    to[at + j * last->stride] += from[j];
            }
        }
    }
}

static bool nd_supports(const ct_conv_desc *d)
{
    return (d->device == CT_DEVICE_CPU) && (d->x_block == 0) && (d->y_block == 0) &&
           (d->n_front > 0);
}

static size_t nd_workspace(const ct_conv_desc *d)
{
    return (size_t)(group_k(d) * out_size(d)) * sizeof(float);
}

static ct_status product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a,
                         const float *b, float beta, float *c)
{
    return ct_math_cpu.gemm(NULL, ta, tb, m, n, k, 1.0f, a, ta ? m : k, b, tb ? k : n, beta, c, n);
}

static void fill_bias(const ct_conv_desc *d, const float *bias, float *y)
{
    int64_t s = out_size(d);

#pragma omp parallel for schedule(static) num_threads(d->n_thread)
    for (int64_t m = 0; m < d->m; m++) {
        for (int64_t i = 0; i < s; i++) y[m * s + i] = bias[m];
    }
}

static ct_status nd_forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    int64_t cg = d->c / d->group, k = group_k(d), s = out_size(d), mg = group_m(d);

    for (int64_t n = 0; n < d->n; n++) {
        float *y = a->y + n * d->m * s;

        if (a->bias != NULL) fill_bias(d, a->bias, y);
        for (int64_t g = 0; g < d->group; g++) {
            ct_im2col_nd(d, cg, a->x + (n * d->c + g * cg) * in_size(d), a->work);
            CT_TRY(product(false, false, mg, s, k, a->weight + g * mg * k, a->work,
                           (a->bias != NULL) ? 1.0f : 0.0f, y + g * mg * s));
        }
        CT_TRY(ct_exec_poll(ex));
    }
    return CT_OK;
}

static ct_status nd_backward_data(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    int64_t cg = d->c / d->group, k = group_k(d), s = out_size(d), mg = group_m(d);

    for (int64_t n = 0; n < d->n; n++) {
        for (int64_t g = 0; g < d->group; g++) {
            CT_TRY(product(true, false, k, s, mg, a->weight + g * mg * k,
                           a->dy + (n * d->m + g * mg) * s, 0.0f, a->work));
            ct_col2im_nd(d, cg, a->work, a->dx + (n * d->c + g * cg) * in_size(d));
        }
        CT_TRY(ct_exec_poll(ex));
    }
    return CT_OK;
}

static ct_status nd_backward_weight(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    int64_t cg = d->c / d->group, k = group_k(d), s = out_size(d), mg = group_m(d);

    for (int64_t i = 0; (d->n == 0) && (i < d->m * k); i++)
        a->dweight[i] = (a->beta != 0.0f) ? a->beta * a->dweight[i] : 0.0f;
    for (int64_t n = 0; n < d->n; n++) {
        for (int64_t g = 0; g < d->group; g++) {
            ct_im2col_nd(d, cg, a->x + (n * d->c + g * cg) * in_size(d), a->work);
            CT_TRY(product(false, true, mg, k, s, a->dy + (n * d->m + g * mg) * s, a->work,
                           (n == 0) ? a->beta : 1.0f, a->dweight + g * mg * k));
        }
        CT_TRY(ct_exec_poll(ex));
    }
    return CT_OK;
}

const ct_conv_impl ct_conv_nd_forward = {
    .name = "nd", .supports = nd_supports, .workspace = nd_workspace, .run = nd_forward
};
const ct_conv_impl ct_conv_nd_backward_data = {
    .name = "nd", .supports = nd_supports, .workspace = nd_workspace, .run = nd_backward_data
};
const ct_conv_impl ct_conv_nd_backward_weight = {
    .name = "nd", .supports = nd_supports, .workspace = nd_workspace, .run = nd_backward_weight
};
