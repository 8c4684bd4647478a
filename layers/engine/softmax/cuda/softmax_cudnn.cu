/* Softmax by cuDNN: classes are its channels. */
#include "layers/engine/cudnn.cuh"
#include "layers/engine/softmax/softmax.h"

typedef struct ct_softmax_dnn {
    ct_softmax_desc desc;
    cudnnTensorDescriptor_t x; /* NULL: cuDNN cannot */
} ct_softmax_dnn;

static ct_cudnn_plans<ct_softmax_dnn> plans;

static bool is_same(const ct_softmax_desc *a, const ct_softmax_desc *b)
{
    return (a->outer == b->outer) && (a->classes == b->classes) && (a->inner == b->inner);
}

static void make(ct_softmax_dnn *p)
{
    const ct_softmax_desc *d = &p->desc;

    p->x = ct_cudnn_tensor(CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, d->outer, d->classes, d->inner, 1);
}

static const ct_softmax_dnn *plan_of(const ct_softmax_desc *d)
{
    return plans.find(d, is_same, make);
}

static bool supports(const ct_softmax_desc *d)
{
    const ct_softmax_dnn *p;

    if ((d->device != CT_DEVICE_CUDA) || (d->outer < 1) || (d->classes < 1) || (d->inner < 1) ||
        (d->outer * d->classes * d->inner > INT_MAX) || !ct_cudnn_is_there())
        return false;
    p = plan_of(d);
    return (p != NULL) && (p->x != NULL);
}

static ct_status forward(const ct_softmax_desc *d, ct_exec *ex, const float *x, float *y)
{
    const float one = 1.0f, zero = 0.0f;
    const ct_softmax_dnn *p = plan_of(d);

    CT_TRY(ct_cudnn_follow(ex));
    return ct_cudnn_check(ct_dnn.p_cudnnSoftmaxForward(ct_dnn.handle, CUDNN_SOFTMAX_ACCURATE,
                                                       CUDNN_SOFTMAX_MODE_CHANNEL, &one, p->x, x,
                                                       &zero, p->x, y),
                          "softmax");
}

static ct_status backward(const ct_softmax_desc *d, ct_exec *ex, const float *y, const float *dy,
                          float *dx)
{
    const float one = 1.0f, zero = 0.0f;
    const ct_softmax_dnn *p = plan_of(d);

    CT_TRY(ct_cudnn_follow(ex));
    return ct_cudnn_check(ct_dnn.p_cudnnSoftmaxBackward(ct_dnn.handle, CUDNN_SOFTMAX_ACCURATE,
                                                        CUDNN_SOFTMAX_MODE_CHANNEL, &one, p->x, y,
                                                        p->x, dy, &zero, p->x, dx),
                          "softmax backward");
}

/* Losses are not its business: whoever needs one asks ct_softmax_choose(), which has ours before. */
const ct_softmax_engine ct_softmax_cudnn = {
    "cudnn", supports, forward, backward, NULL, NULL, NULL, NULL,
};
