/* Normalisation across channels by cuDNN, whose formula is Caffe's: alpha over the window's length.
 * It keeps no sums and reads the top in backward instead. Values of 16 bits, channels last, stay
 * ours: it promises nothing for them. */
#include "layers/engine/cudnn.cuh"
#include "layers/engine/lrn/lrn.h"

typedef struct ct_lrn_dnn {
    ct_lrn_desc desc;
    cudnnTensorDescriptor_t x; /* NULL, as the next: cuDNN cannot */
    cudnnLRNDescriptor_t norm;
} ct_lrn_dnn;

static ct_cudnn_plans<ct_lrn_dnn> plans;

/* Of those that fit. */
static bool is_same(const ct_lrn_desc *a, const ct_lrn_desc *b)
{
    return (a->n == b->n) && (a->c == b->c) && (a->h == b->h) && (a->w == b->w) &&
           (a->size == b->size) && (a->alpha == b->alpha) && (a->beta == b->beta) && (a->k == b->k);
}

static void make(ct_lrn_dnn *p)
{
    const ct_lrn_desc *d = &p->desc;

    p->x = ct_cudnn_tensor(CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, d->n, d->c, d->h, d->w);
    if (ct_dnn.p_cudnnCreateLRNDescriptor(&p->norm) != CUDNN_STATUS_SUCCESS) {
        p->norm = NULL;
        return;
    }
    if (ct_dnn.p_cudnnSetLRNDescriptor(p->norm, (unsigned)d->size, (double)d->alpha,
                                       (double)d->beta, (double)d->k) == CUDNN_STATUS_SUCCESS)
        return;
    (void)ct_dnn.p_cudnnDestroyLRNDescriptor(p->norm);
    p->norm = NULL;
}

static const ct_lrn_dnn *plan_of(const ct_lrn_desc *d)
{
    return plans.find(d, is_same, make);
}

static bool fits(const ct_lrn_desc *d)
{
    const ct_lrn_dnn *p;

    if ((d->device != CT_DEVICE_CUDA) || d->within || (d->block != 0) || d->last ||
        (d->dtype != CT_F32) || (d->size > CUDNN_LRN_MAX_N) || ((double)d->k < CUDNN_LRN_MIN_K) ||
        ((double)d->beta < CUDNN_LRN_MIN_BETA) || (d->n * d->c * d->h * d->w < 1) ||
        (d->n * d->c * d->h * d->w > INT_MAX) || !ct_cudnn_is_there())
        return false;
    p = plan_of(d);
    return (p != NULL) && (p->x != NULL) && (p->norm != NULL);
}

static bool fits_forward(const ct_lrn_desc *d)
{
    return !d->kept && fits(d);
}

static ct_status forward(const ct_lrn_desc *d, ct_exec *ex, const ct_lrn_args *a)
{
    const float one = 1.0f, zero = 0.0f;
    const ct_lrn_dnn *p = plan_of(d);

    CT_TRY(ct_cudnn_follow(ex));
    return ct_cudnn_check(
        ct_dnn.p_cudnnLRNCrossChannelForward(ct_dnn.handle, p->norm, CUDNN_LRN_CROSS_CHANNEL_DIM1,
                                             &one, p->x, a->x, &zero, p->x, a->y),
        "LRN");
}

static ct_status backward(const ct_lrn_desc *d, ct_exec *ex, const ct_lrn_args *a)
{
    const float one = 1.0f, zero = 0.0f;
    const ct_lrn_dnn *p = plan_of(d);

    CT_TRY(ct_cudnn_follow(ex));
    return ct_cudnn_check(ct_dnn.p_cudnnLRNCrossChannelBackward(
                              ct_dnn.handle, p->norm, CUDNN_LRN_CROSS_CHANNEL_DIM1, &one, p->x,
                              a->y, p->x, a->dy, p->x, a->x, &zero, p->x, a->dx),
                          "LRN backward");
}

const ct_lrn_impl ct_lrn_cudnn_forward = {
    "cudnn", fits_forward, NULL, forward, NULL, CT_LRN_CAN_REMAKE
};
const ct_lrn_impl ct_lrn_cudnn_backward = {
    "cudnn", fits, NULL, backward, NULL, CT_LRN_CAN_REMAKE | CT_LRN_READS_TOP
};
