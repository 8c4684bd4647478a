/* ReLU on the CPU. The tables list what there is; their order is the choice of "auto". */
#include "layers/engine/relu/relu.h"

#include "framework/base/bf16.h"
#include "framework/base/simd.h"

const ct_relu_impl *const ct_relu_forward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_relu_cuda_forward,
#endif
    &ct_relu_simd_forward, &ct_relu_ref_forward, NULL
};
const ct_relu_impl *const ct_relu_backward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_relu_cuda_backward,
#endif
    &ct_relu_simd_backward, &ct_relu_ref_backward, NULL
};

enum { BLOCK = 8192, POLL_BLOCKS = 16 };

static bool on_cpu(const ct_relu_desc *d)
{
    return d->device == CT_DEVICE_CPU;
}

static ct_status ref_forward(const ct_relu_desc *d, ct_exec *ex, const ct_relu_args *a)
{
    (void)ex;
    for (int64_t i = 0; i < d->count; i++) {
        float x = ct_num_get(a->x, d->bf16, i), low = (d->slope == 0.0f) ? 0.0f : d->slope * x;

        ct_num_put(a->y, d->bf16, i, (x < 0.0f) ? low : x);
    }
    return CT_OK;
}

static ct_status ref_backward(const ct_relu_desc *d, ct_exec *ex, const ct_relu_args *a)
{
    (void)ex;
    for (int64_t i = 0; i < d->count; i++) {
        float dy = ct_num_get(a->dy, d->bf16, i);

        ct_num_put(a->dx, d->bf16, i, (ct_num_get(a->x, d->bf16, i) > 0.0f) ? dy : d->slope * dy);
    }
    return CT_OK;
}

/* Each with bf16 as a constant. */
CT_SIMD_PART void clip(int64_t n, bool bf16, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v = ct_num_get(x, bf16, i);

        ct_num_put(y, bf16, i, (v < 0.0f) ? 0.0f : v);
    }
}

CT_SIMD_PART void leak(int64_t n, bool bf16, float slope, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v = ct_num_get(x, bf16, i), low = slope * v;

        ct_num_put(y, bf16, i, (v < 0.0f) ? low : v);
    }
}

CT_SIMD_PART void back(int64_t n, bool bf16, float slope, const float *x, const float *dy,
                       float *dx)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = ct_num_get(dy, bf16, i), low = slope * g;

        ct_num_put(dx, bf16, i, (ct_num_get(x, bf16, i) > 0.0f) ? g : low);
    }
}

/* bf16 and slope 0: numbers only pass, or become 0. */
CT_SIMD_PART void clip_bits(int64_t n, const ct_bf16 *x, ct_bf16 *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint16_t below = (uint16_t)(x[i] - 0x8001) < 0x7f80; /* -0 and NaN pass */

        y[i] = below ? 0 : x[i];
    }
}

CT_SIMD_PART void back_bits(int64_t n, const ct_bf16 *x, const ct_bf16 *dy, ct_bf16 *dx)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint16_t above = (uint16_t)(x[i] - 1) < 0x7f80; /* no NaN */

        dx[i] = above ? dy[i] : 0;
    }
}

CT_SIMD_CLONES static void forward_block(const ct_relu_desc *d, int64_t n, const float *x, float *y)
{
    if (d->bf16 && (d->slope == 0.0f))
        clip_bits(n, (const void *)x, (void *)y);
    else if (d->bf16)
        leak(n, true, d->slope, x, y);
    else if (d->slope == 0.0f)
        clip(n, false, x, y);
    else
        leak(n, false, d->slope, x, y);
}

CT_SIMD_CLONES static void backward_block(const ct_relu_desc *d, int64_t n, const float *x,
                                          const float *dy, float *dx)
{
    if (d->bf16 && (d->slope == 0.0f))
        back_bits(n, (const void *)x, (const void *)dy, (void *)dx);
    else if (d->bf16)
        back(n, true, d->slope, x, dy, dx);
    else
        back(n, false, d->slope, x, dy, dx);
}

static ct_status simd_forward(const ct_relu_desc *d, ct_exec *ex, const ct_relu_args *a)
{
    ct_status polled = CT_OK;

#pragma omp parallel for num_threads(d->n_thread) schedule(static)
    for (int64_t i = 0; i < d->count; i += BLOCK) {
        int64_t n = (d->count - i < BLOCK) ? d->count - i : BLOCK;

        if (i / BLOCK % POLL_BLOCKS == 0) ct_engine_poll(ex, &polled);
        forward_block(d, n, ct_num_at(a->x, d->bf16, i), ct_num_to(a->y, d->bf16, i));
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
        backward_block(d, n, ct_num_at(a->x, d->bf16, i), ct_num_at(a->dy, d->bf16, i),
                       ct_num_to(a->dx, d->bf16, i));
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
