/** @file layer_cuda.cuh  What the CUDA forms of layers include. Private to layers/cuda.
 *
 * A form is a forward and a backward of the same signatures as a layer's ops; shapes, weights,
 * buffers and what in->state holds are the layer's. Bodies of kernels are lambdas over an index
 * (framework/tensor/cuda/launch.cuh).
 */
#ifndef CT_LAYER_CUDA_H
#define CT_LAYER_CUDA_H

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <omp.h>

#include "framework/base/memory.h"
#include "framework/tensor/cuda/launch.cuh"

extern "C" {
#include "framework/base/rng.h"
#include "framework/math/math.h"
#include "layers/cuda/forms.h"
#include "layers/device_kernels.h"
#include "layers/layer_util.h"
#include "layers/loss_util.h"
}

#define KERNEL [=] __device__

static inline int64_t count_of(const ct_blob *b)
{
    return ct_tensor_count(&b->data);
}

/* Dimension i of x, 1 where there is none. */
static inline int64_t dim_of(const ct_blob *b, int i)
{
    return (i < b->data.shape.ndim) ? b->data.shape.dim[i] : 1;
}

/* Values of a blob on the host, in pinned memory, for `more` further bytes behind them. */
static inline ct_status read_values(ct_exec *ex, const float *values, int64_t n, size_t more,
                                    const float **host_p, void **more_p)
{
    size_t bytes = ct_align_up((size_t)n * sizeof(float));
    char *stage = (char *)ct_cuda_stage(bytes + more + 1);

    if (stage == NULL) return CT_ERR_NOMEM;
    if (n > 0) CT_TRY(ex->dev->to_host(ex->stream, stage, values, (size_t)n * sizeof(float)));
    *host_p = (const float *)stage;
    *more_p = stage + bytes;
    return CT_OK;
}

/* As ct_loss_labels(), of a blob on the device; the classes go to label, on the device, too.
 * *host_p: the same on the host, until the next use of the pinned block. */
static inline ct_status read_labels(const ct_layer *l, ct_exec *ex, const ct_loss_rule *rule,
                                    const ct_blob *from, int64_t n, int64_t per_sample,
                                    int64_t classes, int32_t *label, int64_t *counted_p,
                                    const int32_t **host_p)
{
    const float *value;
    void *more;

    CT_TRY(read_values(ex, ct_blob_data(from), n, (size_t)n * sizeof(int32_t), &value, &more));
    CT_TRY(ct_loss_labels(l, ex, rule, value, n, per_sample, classes, (int32_t *)more, counted_p));
    if (host_p != NULL) *host_p = (const int32_t *)more;
    if (n == 0) return CT_OK;
    return ex->dev->from_host(ex->stream, label, more, (size_t)n * sizeof(*label));
}

/* What backward of a loss multiplies with: the top's diff over the divisor, read where it lies. */
static __device__ inline float loss_scale(const float *top_diff, double divisor)
{
    return (top_diff != NULL) ? (float)((double)top_diff[0] / divisor) : 0.0f;
}

#endif
