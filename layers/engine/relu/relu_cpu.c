#include "framework/base/simd.h"
#include "layers/engine/relu/relu_private.h"

enum { BLOCK = 8192, POLL_BLOCKS = 16 };

static bool on_cpu(const ct_relu_desc *d)
{
    return d->device == CT_DEVICE_CPU;
}

static ct_status ref_forward(const ct_relu_desc *d, ct_exec *ex, const ct_relu_args *a)
{
    (void)ex;
    for (int64_t i = 0; i < d->count; i++) {
        float low = (d->slope == 0.0f) ? 0.0f : d->slope * a->x[i];

        a->y[i] = (a->x[i] < 0.0f) ? low : a->x[i];
    }
    return CT_OK;
}

static ct_status ref_backward(const ct_relu_desc *d, ct_exec *ex, const ct_relu_args *a)
{
    (void)ex;
    for (int64_t i = 0; i < d->count; i++)
        a->dx[i] = (a->x[i] > 0.0f) ? a->dy[i] : d->slope * a->dy[i];
    return CT_OK;
}

CT_SIMD_CLONES static void clip_block(int64_t n, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] < 0.0f) ? 0.0f : x[i];
}

CT_SIMD_CLONES static void leak_block(int64_t n, float slope, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float low = slope * x[i];

        y[i] = (x[i] < 0.0f) ? low : x[i];
    }
}

CT_SIMD_CLONES static void backward_block(int64_t n, float slope, const float *x, const float *dy,
                                          float *dx)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float low = slope * dy[i];

        dx[i] = (x[i] > 0.0f) ? dy[i] : low;
    }
}

static ct_status simd_forward(const ct_relu_desc *d, ct_exec *ex, const ct_relu_args *a)
{
    ct_status polled = CT_OK;

#pragma omp parallel for num_threads(d->n_thread) schedule(static)
    for (int64_t i = 0; i < d->count; i += BLOCK) {
        int64_t n = (d->count - i < BLOCK) ? d->count - i : BLOCK;

        if (i / BLOCK % POLL_BLOCKS == 0) ct_engine_poll(ex, &polled);
        if (d->slope == 0.0f)
            clip_block(n, a->x + i, a->y + i);
        else
            leak_block(n, d->slope, a->x + i, a->y + i);
    }
    return polled;
}

static ct_status simd_backward(const ct_relu_desc *d, ct_exec *ex, const ct_relu_args *a)
{
    ct_status polled = CT_OK;

#pragma omp parallel for num_threads(d->n_thread) schedule(static)
    for (int64_t i = 0; i < d->count; i += BLOCK) {
        int64_t n = (d->count - i < BLOCK) ? d->count - i : BLOCK;

        if (i / BLOCK % POLL_BLOCKS == 0) ct_engine_poll(ex, &polled);
        backward_block(n, d->slope, a->x + i, a->dy + i, a->dx + i);
    }
    return polled;
}

const ct_relu_impl ct_relu_simd_forward = { .name = "simd",
                                            .supports = on_cpu,
                                            .run = simd_forward };
const ct_relu_impl ct_relu_ref_forward = { .name = "ref", .supports = on_cpu, .run = ref_forward };
const ct_relu_impl ct_relu_simd_backward = { .name = "simd",
                                             .supports = on_cpu,
                                             .run = simd_backward };
const ct_relu_impl ct_relu_ref_backward = { .name = "ref",
                                            .supports = on_cpu,
                                            .run = ref_backward };
