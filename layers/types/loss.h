/** @file loss.h  What losses share: which samples count, divisors over all ranks, sums whose
 * bits do not depend on the number of threads; private to layers/.
 */
#ifndef CT_TYPES_LOSS_H
#define CT_TYPES_LOSS_H

#include "framework/base/memory.h"
#include "framework/net/layer.h"
#include "layers/engine/softmax/softmax.h"
#include "layers/layer_util.h"

/** What `loss_param` says. */
typedef struct ct_loss_rule {
    Ct__LossParameter__NormalizationMode mode;
    bool has_ignore;
    int32_t ignore;
} ct_loss_rule;

/** `unset`: where neither `normalization` nor the old `normalize` is given. */
ct_loss_rule ct_loss_rule_read(const ct_layer *l, Ct__LossParameter__NormalizationMode unset);
/** Whether the divisor is a number of labels that only the data tell. It is added up over the ranks
 *  then, on the CPU between two parts of the loss (ct_sum_ops). Other divisors send no messages. */
static inline bool ct_loss_counts(const ct_loss_rule *r)
{
    return r->has_ignore && (r->mode == CT__LOSS_PARAMETER__NORMALIZATION_MODE__VALID);
}
/** What the sum of this rank's losses is divided by: of all its labels, those that count, or its
 *  samples, over all ranks. It is at least 1, so that a batch without labels is no NaN. Collective
 *  where ct_loss_counts(). NONE is a plain sum, over the ranks too. */
ct_status ct_loss_divisor(const ct_loss_rule *r, ct_exec *ex, int64_t all, int64_t counted,
                          int64_t samples, double *divisor_p);
/** The same; where ct_loss_counts(), *counted is what all ranks have counted. Sends nothing. */
ct_status ct_loss_divisor_of(const ct_loss_rule *r, ct_exec *ex, int64_t all, const double *counted,
                             int64_t samples, double *divisor_p);
/** Where a loss that is not on a softmax keeps its divisor of the last forward: in->state begins
 * with it, whichever device it ran on. */
static inline double *ct_loss_kept(const ct_instance *in)
{
    return (double *)in->state;
}
/** SigmoidCrossEntropyLoss: targets t with above < t < below are ignored: those that are
 *  `ignore_label` without their fraction, as in Caffe. */
typedef struct ct_sigmoid_loss {
    ct_loss_rule rule;
    float above, below;
} ct_sigmoid_loss;
/** For losses that are a mean over samples, the first axis of bottom 0: their global number. Every
 *  rank knows it from the batch: it sends no messages, so no pair of steps is made of it. */
ct_status ct_loss_samples(const ct_instance *in, ct_exec *ex, double *samples_p);
/** The gradient of the total by this loss: its loss weight. Host memory. */
float ct_loss_weight(const ct_instance *in);

/** Sum of part(ctx, from, to) over fixed blocks of [0, n), several at a time. work: about how many
 *  elements they read. */
double ct_loss_sum(int64_t n, int64_t work,
                   double (*part)(const void *ctx, int64_t from, int64_t to), const void *ctx);

/** reshape: bottoms a and b must have the same first axis and number of elements; the top is a
 *  scalar. CT_ERR_SHAPE, logged. */
ct_status ct_loss_reshape_pair(const ct_layer *l, ct_instance *in, int a, int b);
/** forward: labels as classes in [0, n_class), `per_sample` of them a sample; CT_LABEL_IGNORED
 *  where the rule (may be NULL) says so. counted_p (may be NULL): the others. CT_ERR_DATA, logged,
 *  for any other value. */
ct_status ct_loss_labels(const ct_layer *l, const ct_exec *ex, const ct_loss_rule *r,
                         const float *value, int64_t n, int64_t per_sample, int64_t n_class,
                         int32_t *label, int64_t *counted_p);

/** Bytes of a buffer of n labels; on devices their divisor, a double, stands behind them, 64-byte
 *  aligned. */
static inline size_t ct_loss_label_bytes(const ct_layer *l, int64_t n)
{
    return ct_align_up((size_t)n * sizeof(int32_t)) + ((l->dev->kind == CT_DEVICE_CPU) ? 0 : 64);
}

/* ---- losses of scores, bottom 0, with one label a sample in bottom 1; the other axes are classes
 */

typedef struct ct_class_loss {
    double samples; /* of the global batch, in the last forward */
    int64_t n, classes;
} ct_class_loss;

enum { CT_CLASS_LOSS_LABEL }; /* buffer: the labels as int32_t, for backward */

/** in->state is a ct_class_loss; the top is a scalar. CT_ERR_SHAPE, logged. */
ct_status ct_class_loss_reshape(const ct_layer *l, ct_instance *in);
/** forward, first: labels and samples. CT_ERR_DATA, logged. */
ct_status ct_class_loss_begin(const ct_layer *l, ct_instance *in, ct_exec *ex);

/* ---- losses on the softmax of bottom 0 with labels in bottom 1; top 1, if any, is the softmax */

/** What of the classes a part of such a loss has, along the axis that it is cut along. */
typedef struct ct_class_part {
    int count;              /* parts                                */
    int64_t first, classes; /* its first class; classes of the whole */
    int64_t most;           /* of the largest part                  */
    int64_t *each;          /* 1 for each part                      */
} ct_class_part;

typedef struct ct_softmax_loss {
    ct_softmax_desc desc; /* of a part: with its classes */
    const ct_softmax_engine *engine;
    double divisor;            /* of the last forward, where the host knows it */
    const ct_class_part *part; /* NULL: all classes are here                   */
    bool soft;                 /* labels are distributions: SoftmaxWithLoss's  */
} ct_softmax_loss;

/** Buffers of the instance: kept for backward, ct_softmax_scratch() bytes of a call, and on the CPU
 *  how many labels count, of this rank and then of all. Of a part: what PROB is to be multiplied
 *  by, and what parts exchange. */
enum {
    CT_SOFTMAX_LOSS_PROB,
    CT_SOFTMAX_LOSS_LABEL,
    CT_SOFTMAX_LOSS_SCRATCH,
    CT_SOFTMAX_LOSS_COUNTED,
    CT_SOFTMAX_LOSS_SHARE,
    CT_SOFTMAX_LOSS_EXCHANGE
};

/** in->state begins with a ct_softmax_loss, l->state with a ct_loss_rule. */
ct_status ct_softmax_loss_reshape(const ct_layer *l, ct_instance *in, int axis);
/** ct_sum_ops of such a loss, of which fn gives the sum of the losses. Part 0 reads the labels. */
int ct_softmax_loss_count(const ct_layer *l, const ct_instance *in, bool forward, int k);
ct_status ct_softmax_loss_part(const ct_layer *l, ct_instance *in, ct_exec *ex, int part,
                               ct_status (*fn)(const ct_layer *l, ct_instance *in, ct_exec *ex,
                                               double *sum_p));
/** What comes before the softmax: the labels, in part 0, and the divisor. *rest_p: the part does
 * the rest, too. */
ct_status ct_softmax_loss_begin(const ct_layer *l, ct_instance *in, ct_exec *ex, int part,
                                bool *rest_p);
#define CT_SOFTMAX_LOSS_SUMS(_forward_part)                                                        \
    {                                                                                              \
        .count = ct_softmax_loss_count, .slot = CT_SOFTMAX_LOSS_COUNTED, .first_bottoms = 1u << 1, \
        .first_buffers = 1u << CT_SOFTMAX_LOSS_LABEL | 1u << CT_SOFTMAX_LOSS_COUNTED,              \
        .forward = _forward_part                                                                   \
    }
/** Of a part: declares the buffers of exchanges of `rows` positions, and of the share of each. */
void ct_softmax_loss_reserve(ct_instance *in, int64_t rows, ct_buffer_lifetime keep);
/** Of a part: y = exp(x - the largest of these), and in SHARE what it is to be multiplied by to be
 *  the softmax of all classes. *sum_p: the sum of the losses, the same bits on each part. d: so
 *  many of the positions. Collective over the parts: one transfer. y may be x. */
ct_status ct_softmax_loss_exchange(ct_instance *in, ct_exec *ex, const ct_softmax_desc *d,
                                   const float *x, const int32_t *label, float *y, double *sum_p);
void ct_softmax_loss_estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e);

/* ---- What InfogainLoss keeps of its prototxt, for every device. */

typedef struct ct_infogain_state {
    ct_loss_rule rule; /* first: losses on a softmax read it */
    float *matrix;     /* of the file; NULL: the third bottom's, or nothing is read */
    float *there;      /* the same on the layer's device                            */
    int64_t count;
} ct_infogain_state;

#endif
