/* BatchNorm by cuDNN, which knows a scale and a bias: those of the tail, or ones and zeros. What else
 * the tail has, a sum and a ReLU, are passes of our own behind it and, in backward, in front of it.
 *
 * Its running mean and variance are averages, Caffe's are sums that decay: with a factor of 1 they are
 * the batch's, the variance corrected for the sample's size as Caffe's is, and kernels of ours add
 * them up. Its persistent mode, which may be faster, is left out: it says of itself that it may
 * overflow. Backward has no way for statistics that are given, and none in place. */
#include "framework/base/memory.h"
#include "layers/engine/batch_norm/cuda/batch_norm.cuh"
#include "layers/engine/cudnn.cuh"

typedef struct ct_norm_dnn {
    ct_device_norm_desc desc;
    cudnnTensorDescriptor_t x, vector; /* NULL: cuDNN cannot */
} ct_norm_dnn;

static ct_cudnn_plans<ct_norm_dnn> plans;

/* Of what descriptions say. */
static bool is_same(const ct_device_norm_desc *a, const ct_device_norm_desc *b)
{
    return (a->n == b->n) && (a->c == b->c) && (a->s == b->s) && (a->last == b->last) &&
           (a->dtype == b->dtype);
}

static void make(ct_norm_dnn *p)
{
    const ct_device_norm_desc *d = &p->desc;

    p->x = ct_cudnn_tensor(d->last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW, ct_cudnn_type(d->dtype),
                           d->n, d->c, d->s, 1);
    p->vector = ct_cudnn_tensor(CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, d->c, 1, 1);
}

static const ct_norm_dnn *plan_of(const ct_device_norm_desc *d)
{
    return plans.find(d, is_same, make);
}

/* Samples beyond which its kernels fail though descriptions are taken; nothing says so but what
 * others found (PyTorch keeps to the same). */
static int64_t most_samples(const ct_device_norm_desc *d)
{
    return d->fixed ? 65535 : 880801;
}

static bool fits(const ct_device_norm_desc *d)
{
    const ct_norm_dnn *p;

    if ((d->device != CT_DEVICE_CUDA) || d->in_place || (d->n * d->s < 2) || (d->c < 1) ||
        (d->n > most_samples(d)) || (d->n * d->c * d->s > INT_MAX) ||
        ((double)d->eps < CUDNN_BN_MIN_EPSILON) ||
        ((d->dtype != CT_F32) && !d->last) || !ct_cudnn_is_there())
        return false;
    p = plan_of(d);
    return (p != NULL) && (p->x != NULL) && (p->vector != NULL);
}

/* ---- forward. In 16 bits a sum would be one of what cuDNN has rounded. */

static bool fits_forward(const ct_device_norm_desc *d)
{
    return !((d->dtype != CT_F32) && d->add) && fits(d);
}

/* Vectors in the workspace: what the tail lacks, and the batch's statistics or the given ones. */
typedef struct room {
    float *one, *zero, *mean, *variance;
} room;

static room room_at(const ct_device_norm_desc *d, void *work)
{
    float *at = (float *)work;

    return { at, at + d->c, at + 2 * d->c, at + 3 * d->c };
}

static size_t forward_workspace(const ct_device_norm_desc *d)
{
    return 4 * (size_t)d->c * sizeof(float);
}

/* Averages begin at 0, since 0 times what lies there may be no number. */
static ct_status prepare(const ct_device_norm_desc *d, ct_exec *ex, ct_device_norm_args a, room r)
{
    bool fixed = d->fixed;
    double eps = (double)d->eps;

    return ct_cuda_map(
        ex->stream, "batch normalisation", d->c, KERNEL(int64_t c) {
            float scale = fixed ? factor_of(a) : 0.0f;

            r.one[c] = 1.0f;
            r.zero[c] = 0.0f;
            r.mean[c] = fixed ? a.moving_mean[c] * scale : 0.0f;
            r.variance[c] = fixed ? a.moving_var[c] * scale : 0.0f;
            if (!fixed) return;
            a.mean[c] = r.mean[c];
            a.inv_std[c] = (float)(1.0 / sqrt((double)r.variance[c] + eps));
        });
}

static ct_status normalise(const ct_device_norm_desc *d, const ct_device_norm_args *a, room r)
{
    const float one = 1.0f, zero = 0.0f;
    const ct_batch_norm_map *m = &a->back.map;
    const float *scale = (m->scale != NULL) ? m->scale : r.one;
    const float *bias = (m->bias != NULL) ? m->bias : r.zero;
    const ct_norm_dnn *p = plan_of(d);

    if (d->fixed)
        return ct_cudnn_check(ct_dnn.p_cudnnBatchNormalizationForwardInference(
                                  ct_dnn.handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, p->x, m->x,
                                  p->x, m->y, p->vector, scale, bias, r.mean, r.variance,
                                  (double)d->eps),
                              "batch normalisation");
    return ct_cudnn_check(ct_dnn.p_cudnnBatchNormalizationForwardTraining(
                              ct_dnn.handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, p->x, m->x, p->x,
                              m->y, p->vector, scale, bias, 1.0, r.mean, r.variance, (double)d->eps,
                              a->mean, a->inv_std),
                          "batch normalisation");
}

static ct_status forward(const ct_device_norm_desc *d, ct_exec *ex, const ct_device_norm_args *args)
{
    ct_device_norm_args a = *args;
    ct_batch_norm_map m = a.back.map;
    room r = room_at(d, a.work);
    extent e = extent_of(d);

    CT_TRY(prepare(d, ex, a, r));
    CT_TRY(ct_cudnn_follow(ex));
    CT_TRY(normalise(d, &a, r));
    if (!d->fixed)
        CT_TRY(ct_cuda_map(
            ex->stream, "batch statistics", d->c,
            KERNEL(int64_t c) { move_statistics(a, c, r.mean[c], r.variance[c]); }));
    if ((m.add == NULL) && !m.relu) return CT_OK;
    return ct_cuda_map(
        ex->stream, "batch normalisation", e.n * e.c * e.s, KERNEL(int64_t i) {
            float z = get(e, m.y, i) + ((m.add != NULL) ? get(e, m.add, i) : 0.0f);

            put(e, m.y, i, (m.relu && (z < 0.0f)) ? 0.0f : z);
        });
}

/* ---- backward. In 16 bits a sum of gradients would be rounded before it is used. */

static bool fits_backward(const ct_device_norm_desc *d)
{
    return !d->fixed && d->wants_dx && (d->n_dy > 0) && !((d->dtype != CT_F32) && (d->n_dy > 1)) &&
           fits(d);
}

/* Whether cuDNN cannot read the gradient of z where a reader of y left it. */
static bool gathers(const ct_device_norm_desc *d)
{
    return d->relu || d->wants_g || (d->n_dy > 1);
}

/* Vectors: ones, and the gradients of scale and bias; behind them that of z, where it is wanted for
 * nobody else. */
static size_t vectors(const ct_device_norm_desc *d)
{
    return ct_align_up(3 * (size_t)d->c * sizeof(float));
}

static size_t backward_workspace(const ct_device_norm_desc *d)
{
    size_t all = (size_t)(d->n * d->c * d->s) * ct_dtype_size(d->dtype);

    return vectors(d) + ((gathers(d) && !d->wants_g) ? all : 0);
}

static ct_status gather(const ct_device_norm_desc *d, ct_exec *ex, ct_batch_norm_back b, float *g)
{
    extent e = extent_of(d);
    bool by_top = d->by_top;

    return ct_cuda_map(
        ex->stream, "batch normalisation backward", e.n * e.c * e.s,
        KERNEL(int64_t i) { put(e, g, i, gradient_of(e, b, by_top, i / e.s % e.c, i)); });
}

static ct_status backward(const ct_device_norm_desc *d, ct_exec *ex,
                          const ct_device_norm_args *args)
{
    const float one = 1.0f, zero = 0.0f;
    const ct_norm_dnn *p = plan_of(d);
    const ct_batch_norm_back *b = &args->back;
    float *ones = (float *)args->work, *scale = ones + d->c, *bias = scale + d->c;
    weight_diff of_scale = { args->scale_diff, args->add_scale };
    weight_diff of_bias = { args->bias_diff, args->add_bias };
    const float *dy = b->dy[0];

    if (gathers(d)) {
        float *g = (b->g != NULL) ? b->g : (float *)((char *)args->work + vectors(d));

        CT_TRY(gather(d, ex, *b, g));
        dy = g;
    }
    CT_TRY(ct_cuda_map(
        ex->stream, "batch normalisation backward", d->c, KERNEL(int64_t c) { ones[c] = 1.0f; }));
    CT_TRY(ct_cudnn_follow(ex));
    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnBatchNormalizationBackward(
                              ct_dnn.handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, &one, &zero,
                              p->x, b->map.x, p->x, dy, p->x, b->dx, p->vector,
                              (b->map.scale != NULL) ? b->map.scale : ones, scale, bias,
                              (double)d->eps, args->mean, args->inv_std),
                          "batch normalisation backward"));
    return ct_cuda_map(
        ex->stream, "batch normalisation backward", d->c, KERNEL(int64_t c) {
            put_diff(of_scale, c, (double)scale[c]);
            put_diff(of_bias, c, (double)bias[c]);
        });
}

/* Unless it is named or found faster: nobody has timed it. */
static bool never(const ct_device_norm_desc *)
{
    return false;
}

const ct_device_norm_impl ct_device_norm_cudnn_forward = { "cudnn", fits_forward, forward_workspace,
                                                           forward, never,        0 };
const ct_device_norm_impl ct_device_norm_cudnn_backward = { "cudnn",  fits_backward,
                                                            backward_workspace,
                                                            backward, never,
                                                            0 };
