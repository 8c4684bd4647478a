/* Softmax by cuDNN: classes are its channels. */
#include <climits>
#include <cstdlib>
#include <cstring>

#include "layers/engine/cudnn.cuh"
#include "layers/engine/softmax/softmax.h"

typedef struct plan {
    ct_softmax_desc desc;
    cudnnTensorDescriptor_t x; /* NULL: cuDNN cannot */
} plan;

/* Descriptions are the process's, as convolutions' are: found again by what they describe. */
static struct {
    plan *of;
    int n, room;
} plans;

static bool is_same(const ct_softmax_desc *a, const ct_softmax_desc *b)
{
    return (a->outer == b->outer) && (a->classes == b->classes) && (a->inner == b->inner);
}

static cudnnTensorDescriptor_t describe(const ct_softmax_desc *d)
{
    cudnnTensorDescriptor_t x = NULL;

    if (ct_dnn.p_cudnnCreateTensorDescriptor(&x) != CUDNN_STATUS_SUCCESS) return NULL;
    if (ct_dnn.p_cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, (int)d->outer,
                                            (int)d->classes, (int)d->inner,
                                            1) == CUDNN_STATUS_SUCCESS)
        return x;
    (void)ct_dnn.p_cudnnDestroyTensorDescriptor(x);
    return NULL;
}

/* NULL: no memory. */
static const plan *plan_of(const ct_softmax_desc *d)
{
    for (int i = 0; i < plans.n; i++) {
        if (is_same(&plans.of[i].desc, d)) return &plans.of[i];
    }
    if (plans.n == plans.room) {
        int room = 2 * plans.room + 16;
        plan *more = (plan *)realloc(plans.of, (size_t)room * sizeof(*more));

        if (more == NULL) return NULL;
        plans.of = more;
        plans.room = room;
    }
    plans.of[plans.n] = { *d, describe(d) };
    return &plans.of[plans.n++];
}

static bool supports(const ct_softmax_desc *d)
{
    const plan *p;

    if ((d->device != CT_DEVICE_CUDA) || (d->outer < 1) || (d->classes < 1) || (d->inner < 1) ||
        (d->outer * d->classes * d->inner > INT_MAX) || !ct_cudnn_is_there())
        return false;
    p = plan_of(d);
    return (p != NULL) && (p->x != NULL);
}

static ct_status forward(const ct_softmax_desc *d, ct_exec *ex, const float *x, float *y)
{
    const float one = 1.0f, zero = 0.0f;
    const plan *p = plan_of(d);

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
    const plan *p = plan_of(d);

    CT_TRY(ct_cudnn_follow(ex));
    return ct_cudnn_check(ct_dnn.p_cudnnSoftmaxBackward(ct_dnn.handle, CUDNN_SOFTMAX_ACCURATE,
                                                        CUDNN_SOFTMAX_MODE_CHANNEL, &one, p->x, y,
                                                        p->x, dy, &zero, p->x, dx),
                          "softmax backward");
}

/* Losses are not its business: whoever needs one asks ct_softmax_choose(), which has ours before. */
const ct_softmax_engine ct_softmax_cudnn = {
    "cudnn", supports, forward, backward, NULL, NULL,
};
