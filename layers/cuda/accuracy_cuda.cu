/* Accuracy: a warp a sample where its scores are neighbours, else a thread a position. What is counted
 * are whole numbers, so no order of additions shows in them: classes are counted by atomics. */
#include "framework/tensor/cuda/warp.cuh"
#include "layers/cuda/layer_cuda.cuh"

extern "C" {
#include "layers/types/argmax.h"
}

enum { MOST_BLOCKS = 1024, FEW_CLASSES = 1024 /* that a block counts by itself first */ };

typedef struct accuracy {
    ct_accuracy_state s;
    ct_view v;
    const float *score, *value;
    double *right_of, *of; /* classes; NULL: there is no second top */
    fault_word fault;
} accuracy;

/* Where the label at position k counts: true, and its class. tell: this thread puts down what is
 * wrong with it. */
static __device__ bool label_at(const accuracy &a, int64_t k, bool tell, int32_t *label)
{
    float value = a.value[k];

    if (a.s.has_ignore && (value == (float)a.s.ignore)) return false;
    if (class_of(value, a.v.mid, label)) return true;
    if (tell) a.fault.put(k, value);
    return false;
}

/* Whether class c pushes the label down: another with a score as high, or one that cannot be
 * compared. */
static __device__ inline int is_ahead(const accuracy &a, const float *from, float mine,
                                      int32_t label, int64_t c)
{
    return (c != label) && !(from[c * a.v.inner] < mine);
}

static __device__ inline const float *scores_at(const accuracy &a, int64_t k)
{
    return a.score + k / a.v.inner * a.v.mid * a.v.inner + k % a.v.inner;
}

/* What a block counts of each class: all, and right ones. */
typedef struct class_counts {
    unsigned all[FEW_CLASSES], right[FEW_CLASSES];
} class_counts;

static __device__ inline void note(const accuracy &a, class_counts *here, int32_t label, bool right)
{
    if (a.of == NULL) return;
    if (a.v.mid <= FEW_CLASSES) {
        (void)atomicAdd(&here->all[label], 1u);
        if (right) (void)atomicAdd(&here->right[label], 1u);
    } else {
        (void)atomicAdd(&a.of[label], 1.0);
        if (right) (void)atomicAdd(&a.right_of[label], 1.0);
    }
}

static __device__ void count_samples(const accuracy &a, class_counts *here, double *sum)
{
    int64_t first = blockIdx.x * (int64_t)CT_WARPS + threadIdx.x / CT_WARP;

    for (int64_t k = first; k < a.v.outer; k += (int64_t)gridDim.x * CT_WARPS) {
        const float *from = scores_at(a, k);
        int32_t label;
        int ahead = 0;
        float mine;

        if (!label_at(a, k, ct_lane() == 0, &label)) continue; /* all of the warp */
        mine = from[label];
        for (int64_t c = ct_lane(); c < a.v.mid; c += CT_WARP)
            ahead += is_ahead(a, from, mine, label, c);
        ahead = ct_warp_add(ahead);
        if (ct_lane() != 0) continue;
        sum[0] += (ahead < a.s.top_k) ? 1.0 : 0.0;
        sum[1] += 1.0;
        note(a, here, label, ahead < a.s.top_k);
    }
}

static __device__ void count_positions(const accuracy &a, class_counts *here, double *sum)
{
    CT_CUDA_LOOP(k, a.v.outer * a.v.inner)
    {
        const float *from = scores_at(a, k);
        int64_t ahead = 0;
        int32_t label;
        float mine;

        if (!label_at(a, k, true, &label)) continue;
        mine = from[label * a.v.inner];
        for (int64_t c = 0; (c < a.v.mid) && (ahead < a.s.top_k); c++)
            ahead += is_ahead(a, from, mine, label, c);
        sum[0] += (ahead < a.s.top_k) ? 1.0 : 0.0;
        sum[1] += 1.0;
        note(a, here, label, ahead < a.s.top_k);
    }
}

/* scratch[block][2]: right ones, and all that count. */
__global__ void accuracy_kernel(accuracy a, double *scratch)
{
    __shared__ class_counts here;
    __shared__ ct_sums<2> part[CT_CUDA_BLOCK];
    bool few = (a.of != NULL) && (a.v.mid <= FEW_CLASSES);
    ct_sums<2> sum = {};

    for (int64_t c = threadIdx.x; few && (c < a.v.mid); c += CT_CUDA_BLOCK)
        here.all[c] = here.right[c] = 0;
    __syncthreads();
    if (a.v.inner == 1)
        count_samples(a, &here, sum.v);
    else
        count_positions(a, &here, sum.v);
    ct_block_add<2>(part, sum); /* all have counted behind it */
    for (int64_t c = threadIdx.x; few && (c < a.v.mid); c += CT_CUDA_BLOCK) {
        if (here.all[c] == 0) continue;
        (void)atomicAdd(&a.of[c], (double)here.all[c]);
        (void)atomicAdd(&a.right_of[c], (double)here.right[c]);
    }
    if (threadIdx.x != 0) return;
    for (int k = 0; k < 2; k++) scratch[blockIdx.x * 2 + k] = part[0].v[k];
}

/* The second top: of each class, this rank's right ones over the ranks' samples. */
static ct_status put_classes(const accuracy &a, ct_exec *ex, float *top)
{
    double *right_of = a.right_of, *of = a.of;

    return ct_cuda_map(
        ex->stream, "Accuracy of classes", a.v.mid,
        KERNEL(int64_t c) { top[c] = (of[c] > 0.0) ? (float)(right_of[c] / of[c]) : 0.0f; });
}

static ct_status count(const accuracy &a, ct_exec *ex, double *right, double *counted)
{
    int64_t n = a.v.outer * a.v.inner;
    int64_t each = (a.v.inner == 1) ? (int64_t)CT_WARPS : (int64_t)CT_CUDA_BLOCK;
    int64_t blocks = (n + each - 1) / each, bytes = a.v.mid * (int64_t)sizeof(double);

    if (blocks > MOST_BLOCKS) blocks = MOST_BLOCKS;
    if (blocks < 1) blocks = 1; /* a rank without samples counts none */
    if (a.of != NULL) {
        CT_TRY(ex->dev->zero(ex->stream, a.of, (size_t)bytes));
        CT_TRY(ex->dev->zero(ex->stream, a.right_of, (size_t)bytes));
    }
    CT_CUDA_RUN_BLOCKS(accuracy_kernel, (unsigned)blocks, ex->stream, a, ct_cuda_scratch());
    CT_TRY(ct_cuda_launched("Accuracy"));
    return ct_cuda_add_parts<2>(
        ex->stream, "Accuracy", 1, blocks, KERNEL(int64_t, const double *sum) {
            *right = sum[0];
            *counted = sum[1];
        });
}

static ct_status accuracy_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    int64_t samples = dim_of(in->bottom[1], 0);
    double *right = (double *)in->buffer[CT_ACCURACY_SUMS].data, *counted = right + 1, all = 0.0;
    double *of = (double *)in->buffer[CT_ACCURACY_SAMPLES_OF].data;
    float *top = ct_blob_data(in->top[0]);
    accuracy a = {};
    bool given;

    a.s = *(const ct_accuracy_state *)l->state;
    a.v = ((const ct_accuracy_plan *)in->state)->view;
    a.score = ct_blob_data(in->bottom[0]);
    a.value = ct_blob_data(in->bottom[1]);
    given = a.s.has_ignore; /* the divisor, by what is found */
    if (l->n_top > 1) {
        a.right_of = (double *)in->buffer[CT_ACCURACY_RIGHT_OF].data;
        a.of = of;
    }
    if (given) counted = of + ((l->n_top > 1) ? a.v.mid : 0); /* in one sum with the classes' */
    if (!given)
        CT_TRY(ct_exec_global_count(ex, (double)(a.v.outer * a.v.inner), false, &all));
    CT_TRY(check_begin(in, ex, &a.fault));
    CT_TRY(count(a, ex, right, counted));
    CT_TRY(checked(l, in, ex, &a.fault, (samples > 0) ? a.v.outer * a.v.inner / samples : 1,
                   a.v.mid, ct_label_fail));
    if (given || (l->n_top > 1))
        CT_TRY(sum_over_ranks(ex, of, ((l->n_top > 1) ? a.v.mid : 0) + (given ? 1 : 0)));
    CT_TRY(ct_cuda_map(
        ex->stream, "Accuracy", 1, KERNEL(int64_t) {
            double by = given ? *counted : all;

            top[0] = (by > 0.0) ? (float)(*right / by) : 0.0f;
        }));
    return (l->n_top > 1) ? put_classes(a, ex, ct_blob_data(in->top[1])) : CT_OK;
}

const ct_device_override ct_cuda_accuracy = { "Accuracy", NULL, accuracy_forward, NULL };
