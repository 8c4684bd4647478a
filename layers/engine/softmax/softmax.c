/* Which softmaxes there are, and the reference. The order of a table is the choice of "auto". */
#include "layers/engine/softmax/softmax.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

#include "framework/base/memory.h"

const ct_softmax_engine *const ct_softmax_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_softmax_cuda,
#endif
#ifdef CT_HAVE_CUDNN
    &ct_softmax_cudnn, /* by name or plan */
#endif
    &ct_softmax_omp,
    &ct_softmax_ref, /* last: written to be read, oracle of the others */
    NULL,
};

const ct_softmax_engine *ct_softmax_choose(const ct_softmax_desc *d)
{
    for (int i = 0; ct_softmax_table[i] != NULL; i++) {
        if (ct_softmax_table[i]->supports(d)) return ct_softmax_table[i];
    }
    return NULL;
}

size_t ct_softmax_scratch(const ct_softmax_desc *d)
{
    return ct_align_up((size_t)(d->outer * d->inner) * sizeof(float)) + sizeof(double);
}

/* ---- Softmax and its loss as the formulas stand, in double. */

static bool supports(const ct_softmax_desc *d)
{
    return d->device == CT_DEVICE_CPU;
}

static int64_t at(const ct_softmax_desc *d, int64_t o, int64_t c, int64_t i)
{
    return (o * d->classes + c) * d->inner + i;
}

static ct_status forward(const ct_softmax_desc *d, ct_exec *ex, const float *x, float *y)
{
    (void)ex;
    for (int64_t o = 0; o < d->outer; o++) {
        for (int64_t i = 0; i < d->inner; i++) {
            float most = -INFINITY;
            double largest, sum = 0;

            /* in floats: gcc 12 for AArch64 breaks down over fmax() of what it widens */
            for (int64_t c = 0; c < d->classes; c++) most = fmaxf(most, x[at(d, o, c, i)]);
            largest = (double)most;
            for (int64_t c = 0; c < d->classes; c++)
                sum += exp((double)x[at(d, o, c, i)] - largest);
            for (int64_t c = 0; c < d->classes; c++)
                y[at(d, o, c, i)] = (float)(exp((double)x[at(d, o, c, i)] - largest) / sum);
        }
    }
    return CT_OK;
}

static ct_status backward(const ct_softmax_desc *d, ct_exec *ex, const float *y, const float *dy,
                          float *dx)
{
    (void)ex;
    for (int64_t o = 0; o < d->outer; o++) {
        for (int64_t i = 0; i < d->inner; i++) {
            double dot = 0;

            for (int64_t c = 0; c < d->classes; c++)
                dot += (double)dy[at(d, o, c, i)] * (double)y[at(d, o, c, i)];
            for (int64_t c = 0; c < d->classes; c++) {
                int64_t k = at(d, o, c, i);

                dx[k] = (float)((double)y[k] * ((double)dy[k] - dot));
            }
        }
    }
    return CT_OK;
}

static ct_status loss(const ct_softmax_desc *d, ct_exec *ex, const float *p, const int32_t *label,
                      float *scratch, double *loss_p)
{
    double sum = 0;

    (void)ex;
    (void)scratch;
    for (int64_t o = 0; o < d->outer; o++) {
        for (int64_t i = 0; i < d->inner; i++) {
            int32_t c = label[o * d->inner + i];
            double q;

            if (c == CT_LABEL_IGNORED) continue;
            q = (double)p[at(d, o, c, i)];
            sum -= log((q < (double)FLT_MIN) ? (double)FLT_MIN : q); /* NaN stays NaN */
        }
    }
    *loss_p = sum;
    return CT_OK;
}

static ct_status loss_backward(const ct_softmax_desc *d, ct_exec *ex, const float *p,
                               const int32_t *label, float scale, float *dx)
{
    (void)ex;
    for (int64_t o = 0; o < d->outer; o++) {
        for (int64_t c = 0; c < d->classes; c++) {
            for (int64_t i = 0; i < d->inner; i++) {
                int32_t is = label[o * d->inner + i];
                int64_t k = at(d, o, c, i);

                dx[k] =
                    (is == CT_LABEL_IGNORED) ? 0.0f : scale * (p[k] - ((c == is) ? 1.0f : 0.0f));
            }
        }
    }
    return CT_OK;
}

static ct_status forward_part(const ct_softmax_desc *d, ct_exec *ex, const float *x, float *y,
                              float *largest, float *sum)
{
    (void)ex;
    for (int64_t k = 0; k < d->outer * d->inner; k++) {
        int64_t o = k / d->inner, i = k % d->inner;
        float most = -INFINITY;
        double all = 0;

        for (int64_t c = 0; c < d->classes; c++) most = fmaxf(most, x[at(d, o, c, i)]);
        largest[k] = most;
        if (most == -INFINITY) most = 0;
        for (int64_t c = 0; c < d->classes; c++) {
            double e = exp((double)x[at(d, o, c, i)] - (double)most);

            y[at(d, o, c, i)] = (float)e;
            all += e;
        }
        sum[k] = (float)all;
    }
    return CT_OK;
}

static ct_status loss_backward_part(const ct_softmax_desc *d, ct_exec *ex, const float *y,
                                    const float *share, const int32_t *label, float scale,
                                    float *dx)
{
    (void)ex;
    for (int64_t k = 0; k < d->outer * d->inner; k++) {
        for (int64_t c = 0; c < d->classes; c++) {
            int64_t e = at(d, k / d->inner, c, k % d->inner);

            dx[e] = (label[k] == CT_LABEL_IGNORED)
                        ? 0.0f
                        : scale * (share[k] * y[e] - ((c == label[k]) ? 1.0f : 0.0f));
        }
    }
    return CT_OK;
}

const ct_softmax_engine ct_softmax_ref = {
    "ref", supports, forward, backward, loss, loss_backward, forward_part, loss_backward_part,
};
