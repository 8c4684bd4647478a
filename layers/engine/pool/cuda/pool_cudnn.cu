/* Average pooling by cuDNN, where its divisor is Caffe's: windows that do not reach beyond the
 * padding. Maxima stay ours: cuDNN wants their bottom and top again in backward, where our mask does,
 * of which a ReLU in front or behind is a part; and of equal ones it may take another. */
#include "layers/engine/cudnn.cuh"
#include "layers/engine/pool/pool.h"

typedef struct ct_pool_dnn {
    ct_pool_desc desc;
    cudnnTensorDescriptor_t x, y; /* NULL: cuDNN cannot */
    cudnnPoolingDescriptor_t pool;
} ct_pool_dnn;

static ct_cudnn_plans<ct_pool_dnn> plans;

/* cuDNN counts images and channels in dimensions of a grid: planes are spread over both. */
static int64_t channels_of(const ct_pool_desc *d)
{
    int64_t c = (d->planes < 1024) ? d->planes : 1024;

    if (d->last > 0) return d->last;
    while (d->planes % c != 0) c--;
    return c;
}

static ct_status describe(ct_pool_dnn *p)
{
    const ct_pool_desc *d = &p->desc;
    cudnnTensorFormat_t form = (d->last > 0) ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
    int c = (int)channels_of(d), n = (int)(d->planes / c);
    cudnnDataType_t type = ct_cudnn_type(d->dtype);

    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnCreateTensorDescriptor(&p->x), "x"));
    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnCreateTensorDescriptor(&p->y), "y"));
    CT_TRY(ct_cudnn_check(ct_dnn.p_cudnnCreatePoolingDescriptor(&p->pool), "pooling"));
    CT_TRY(ct_cudnn_check(
        ct_dnn.p_cudnnSetTensor4dDescriptor(p->x, form, type, n, c, (int)d->h, (int)d->w), "x"));
    CT_TRY(ct_cudnn_check(
        ct_dnn.p_cudnnSetTensor4dDescriptor(p->y, form, type, n, c, (int)d->oh, (int)d->ow), "y"));
    return ct_cudnn_check(
        ct_dnn.p_cudnnSetPooling2dDescriptor(
            p->pool, CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING, CUDNN_PROPAGATE_NAN, (int)d->kh,
            (int)d->kw, (int)d->ph, (int)d->pw, (int)d->sh, (int)d->sw),
        "pooling");
}

static void forget(ct_pool_dnn *p)
{
    if (p->x != NULL) (void)ct_dnn.p_cudnnDestroyTensorDescriptor(p->x);
    if (p->y != NULL) (void)ct_dnn.p_cudnnDestroyTensorDescriptor(p->y);
    if (p->pool != NULL) (void)ct_dnn.p_cudnnDestroyPoolingDescriptor(p->pool);
    p->x = p->y = NULL;
    p->pool = NULL;
}

/* Of those that fit. */
static bool is_same(const ct_pool_desc *a, const ct_pool_desc *b)
{
    return (a->planes == b->planes) && (a->h == b->h) && (a->w == b->w) && (a->oh == b->oh) &&
           (a->ow == b->ow) && (a->kh == b->kh) && (a->kw == b->kw) && (a->sh == b->sh) &&
           (a->sw == b->sw) && (a->ph == b->ph) && (a->pw == b->pw) && (a->last == b->last) &&
           (a->dtype == b->dtype);
}

static void make(ct_pool_dnn *p)
{
    if (describe(p) != CT_OK) forget(p);
}

static const ct_pool_dnn *plan_of(const ct_pool_desc *d)
{
    return plans.find(d, is_same, make);
}

/* Whole windows within the padding, as many as fit. */
static bool is_whole(int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t out)
{
    return (in + 2 * pad >= kernel) && ((in + 2 * pad - kernel) / stride + 1 == out);
}

static bool fits(const ct_pool_desc *d)
{
    const ct_pool_dnn *p;

    if ((d->device != CT_DEVICE_CUDA) || (d->method != CT_POOL_AVE) || d->relu || (d->block != 0) ||
        (d->planes < 1) || ((d->dtype != CT_F32) && (d->last == 0)) ||
        (d->planes * d->h * d->w > INT_MAX) || !is_whole(d->h, d->kh, d->sh, d->ph, d->oh) ||
        !is_whole(d->w, d->kw, d->sw, d->pw, d->ow) || !ct_cudnn_is_there())
        return false;
    p = plan_of(d);
    return (p != NULL) && (p->x != NULL);
}

static ct_status forward(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    const float one = 1.0f, zero = 0.0f;
    const ct_pool_dnn *p = plan_of(d);

    CT_TRY(ct_cudnn_follow(ex));
    return ct_cudnn_check(ct_dnn.p_cudnnPoolingForward(ct_dnn.handle, p->pool, &one, p->x, a->x,
                                                       &zero, p->y, a->y),
                          "pooling");
}

/* A mean's gradient is one of dy alone: what stands for x and y, which are gone, only has their
 * shapes. */
static ct_status backward(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    const float one = 1.0f, zero = 0.0f;
    const ct_pool_dnn *p = plan_of(d);

    CT_TRY(ct_cudnn_follow(ex));
    return ct_cudnn_check(ct_dnn.p_cudnnPoolingBackward(ct_dnn.handle, p->pool, &one, p->y, a->dy,
                                                        p->y, a->dy, p->x, a->dx, &zero, p->x,
                                                        a->dx),
                          "pooling backward");
}

const ct_pool_impl ct_pool_cudnn_forward = { "cudnn", fits, NULL, forward };
const ct_pool_impl ct_pool_cudnn_backward = { "cudnn", fits, NULL, backward };
