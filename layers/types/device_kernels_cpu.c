/* The CPU's: what the functions of the same names do, whose results do not depend on threads. */
#include "layers/types/device_kernels.h"
#include "layers/engine/recurrent/recurrent.h"

#include <string.h>

static ct_status strided(ct_exec *ex, const ct_strided *s, const float *from, float *to)
{
    (void)ex;
    ct_strided_copy(s, from, to);
    return CT_OK;
}

static ct_status affine(ct_exec *ex, const ct_view *v, const float *x, const float *scale,
                        const float *bias, float *y)
{
    (void)ex;
    ct_view_affine(v, x, scale, bias, y);
    return CT_OK;
}

static ct_status dot(ct_exec *ex, const ct_view *v, const float *a, const float *b, bool add,
                     float *out)
{
    (void)ex;
    ct_view_dot(v, a, b, add, out);
    return CT_OK;
}

static ct_status scale_back(ct_exec *ex, const ct_view *v, const ct_scale_back *a)
{
    (void)ex;
    ct_view_scale_back(v, a);
    return CT_OK;
}

static ct_status lstm_step(ct_exec *ex, int64_t n, int64_t hidden, const float *cont,
                           const float *c_before, float *gates, float *c, float *h)
{
    (void)ex;
    ct_lstm_step(n, hidden, cont, c_before, gates, c, h);
    return CT_OK;
}

static ct_status lstm_step_backward(ct_exec *ex, int64_t n, int64_t hidden, const float *cont,
                                    const float *c_before, const float *gates, const float *c,
                                    const float *top, const float *more, float *dc, float *d_gates)
{
    (void)ex;
    ct_lstm_step_backward(n, hidden, cont, c_before, gates, c, top, more, dc, d_gates);
    return CT_OK;
}

static ct_status rows_cont(ct_exec *ex, int64_t n, int64_t hidden, const float *cont,
                           const float *x, float *y)
{
    (void)ex;
    ct_rows_cont(n, hidden, cont, x, y);
    return CT_OK;
}

static ct_status tanh_forward(ct_exec *ex, int64_t n, const float *x, float *y)
{
    (void)ex;
    ct_tanh_forward(n, x, y);
    return CT_OK;
}

static ct_status tanh_backward(ct_exec *ex, int64_t n, const float *y, const float *dy, float *dx)
{
    (void)ex;
    ct_tanh_backward(n, y, dy, dx);
    return CT_OK;
}

static ct_status fill_rows(ct_exec *ex, int64_t m, int64_t n, const float *b, float *y)
{
    (void)ex;
#pragma omp parallel for schedule(static) if (m * n >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < m; r++) memcpy(y + r * n, b, (size_t)n * sizeof(*y));
    return CT_OK;
}

static ct_status sum_steps(ct_exec *ex, int64_t steps, int64_t n, const float *x, float *sum)
{
    (void)ex;
#pragma omp parallel for schedule(static) if (n >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < n; i++) {
        float v = 0;

        for (int64_t t = 0; t < steps; t++) v += x[t * n + i];
        sum[i] = v;
    }
    return CT_OK;
}

const ct_device_kernels ct_kernels_cpu = {
    .device = CT_DEVICE_CPU,
    .strided = strided,
    .affine = affine,
    .dot = dot,
    .scale_back = scale_back,
    .lstm_step = lstm_step,
    .lstm_step_backward = lstm_step_backward,
    .rows_cont = rows_cont,
    .tanh_forward = tanh_forward,
    .tanh_backward = tanh_backward,
    .fill_rows = fill_rows,
    .sum_steps = sum_steps,
};
