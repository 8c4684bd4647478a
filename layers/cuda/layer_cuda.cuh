/** @file layer_cuda.cuh  What the CUDA forms of layers include. Private to layers/cuda.
 *
 * A form is a forward and a backward of the same signatures as a layer's ops; shapes, weights,
 * buffers and what in->state holds are the layer's. Bodies of kernels are lambdas over an index
 * (framework/tensor/cuda/launch.cuh).
 */
#ifndef CT_CUDA_LAYER_CUDA_CUH
#define CT_CUDA_LAYER_CUDA_CUH

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
#include "layers/cuda/overrides.h"
#include "layers/types/device_kernels.h"
#include "layers/layer_util.h"
#include "layers/types/loss.h"
}

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

/* v[0..n), on the device, becomes its sum over the ranks: by the device's library, or through pinned
 * memory and the host's exchange, which waits. Collective. */
static inline ct_status sum_over_ranks(ct_exec *ex, double *v, int64_t n)
{
    size_t bytes = (size_t)n * sizeof(*v);
    double *stage;

    if (ex->sum_ranks == NULL) return CT_OK;
    if (ex->sum_there != NULL) return ex->sum_there(ex->hook_ctx, ex->stream, v, (int)n);
    stage = (double *)ct_cuda_stage(bytes);
    if (stage == NULL) return CT_ERR_NOMEM;
    CT_TRY(ex->dev->to_host(ex->stream, stage, v, bytes));
    CT_TRY(ex->sum_ranks(ex->hook_ctx, stage, (int)n));
    return ex->dev->upload(ex->stream, v, stage, bytes);
}

/* The key of a layer's random numbers in this step, as ct_rng_key() makes it. */
struct draw_key {
    uint64_t seed, step, layer;
    const uint64_t *there; /* the step, where the device has it */

    __device__ uint64_t get() const
    {
        return ct_mix_key(seed, (there != NULL) ? *there : step, layer);
    }
};

static inline draw_key key_of(const ct_exec *ex, uint64_t layer)
{
    return { ex->seed, (uint64_t)ex->micro_step, layer, ex->step_there };
}

/* Where kernels put down what they find wrong: the first place wins. */
struct fault_word {
    uint64_t *word;

    __device__ void put(int64_t at, float value) const
    {
        uint64_t place = (at < 0x7fffffff) ? (uint64_t)at : 0x7fffffff;
        uint32_t bits;

        memcpy(&bits, &value, sizeof(bits));
        (void)atomicMax((unsigned long long *)word,
                        (unsigned long long)((CT_FAULT_FIRST - place) << 32 | bits));
    }
};

/* Before the kernels that check. Where no net reads the word, one of the process's serves, and
 * checked() waits for it. */
static inline ct_status check_begin(const ct_instance *in, ct_exec *ex, fault_word *f)
{
    f->word = (in->fault.word != NULL) ? in->fault.word
                                       : (uint64_t *)(ct_cuda_scratch() + CT_CUDA_SCRATCH + 4);
    if (in->fault.word != NULL) return CT_OK;
    return ex->dev->zero(ex->stream, f->word, sizeof(*f->word));
}

/* Behind them: who tells of what they found. */
static inline ct_status checked(const ct_layer *l, ct_instance *in, ct_exec *ex,
                                const fault_word *f, int64_t a, int64_t b,
                                ct_status (*tell)(const ct_layer *l, const ct_exec *ex, float value,
                                                  int64_t at, int64_t a, int64_t b))
{
    uint64_t word;
    uint32_t bits;
    float value;

    in->fault.tell = tell;
    in->fault.a = a;
    in->fault.b = b;
    if (in->fault.word != NULL) return CT_OK;
    CT_TRY(ex->dev->to_host(ex->stream, &word, f->word, sizeof(word)));
    if (word == 0) return CT_OK;
    bits = (uint32_t)word;
    memcpy(&value, &bits, sizeof(value));
    return tell(l, ex, value, (int64_t)(CT_FAULT_FIRST - (word >> 32)), a, b);
}

/* As ct_label_class(). */
static __device__ inline bool class_of(float value, int64_t n, int32_t *class_p)
{
    if (!((value >= 0.0f) && (value < (float)n) && (value == floorf(value)))) return false;
    *class_p = (int32_t)value;
    return (int64_t)*class_p < n;
}

/* As ct_loss_labels(), without waiting: classes on the device. What is no class is told of at the
 * end of the pass, and until then stands as class 0, so that no kernel reads out of bounds. */
static inline ct_status put_labels(const ct_layer *l, ct_instance *in, ct_exec *ex,
                                   const ct_loss_rule *rule, const ct_blob *from, int64_t n,
                                   int64_t per_sample, int64_t classes, int32_t *label)
{
    const float *value = ct_blob_data(from);
    bool has_ignore = (rule != NULL) && rule->has_ignore;
    float ignore = has_ignore ? (float)rule->ignore : 0.0f;
    fault_word fault;

    CT_TRY(check_begin(in, ex, &fault));
    CT_TRY(ct_cuda_map(
        ex->stream, "labels", n, KERNEL(int64_t i) {
            int32_t found = (has_ignore && (value[i] == ignore)) ? CT_LABEL_IGNORED : 0;

            if ((found != CT_LABEL_IGNORED) && !class_of(value[i], classes, &found)) {
                found = 0;
                fault.put(i, value[i]);
            }
            label[i] = found;
        }));
    return checked(l, in, ex, &fault, per_sample, classes, ct_label_fail);
}

/* Whether a divisor depends on labels that the host has not seen, and need not see. */
static inline bool ct_loss_counts_on_device(const ct_loss_rule *rule, const ct_exec *ex)
{
    return rule->has_ignore && (rule->mode == CT__LOSS_PARAMETER__NORMALIZATION_MODE__VALID) &&
           ((ex->sum_ranks == NULL) || (ex->sum_there != NULL));
}

/* there: what f(i, sum) counts on all ranks. */
template <class F>
static ct_status count_there(ct_exec *ex, const char *what, int64_t n, F f, double *there)
{
    CT_TRY(ct_cuda_sums<1>(
        ex->stream, what, 1, n, KERNEL(int64_t, int64_t i, double *sum) { f(i, sum); },
        KERNEL(int64_t, const double *sum) { *there = *sum; }));
    return sum_over_ranks(ex, there, 1);
}

/* A divisor that the host knows, or a count on the device. */
struct divisor {
    double known;
    const double *there;

    __device__ double get() const
    {
        if (there == NULL) return known;
        return (*there < 1.0) ? 1.0 : *there;
    }
};

/* What backward of a loss multiplies with: the top's diff over the divisor, read where it lies. */
static __device__ inline float loss_scale(const float *top_diff, double by)
{
    return (top_diff != NULL) ? (float)((double)top_diff[0] / by) : 0.0f;
}

#endif
