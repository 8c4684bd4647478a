/* SoftmaxWithLoss: the mean of -log p_label over the labels that count. What counts, and what the
 * sum is divided by, is Caffe's; over several ranks the divisor is the global batch's, so that the
 * ranks' losses and gradients add up. */
#include "framework/base/memory.h"
#include "layers/engine/softmax/softmax.h"
#include "layers/layer_types.h"
#include "layers/layer_util.h"

#include <string.h>

typedef struct softmax_loss_state {
    Ct__LossParameter__NormalizationMode mode;
    bool has_ignore;
    int32_t ignore;
} softmax_loss_state;

typedef struct softmax_loss_plan {
    ct_softmax_desc desc;
    const ct_softmax_engine *engine;
    double divisor; /* of the last forward */
    ct_stage labels;
    int32_t *host_label; /* the classes on the host, where the device is elsewhere */
} softmax_loss_plan;

enum { PROB, LABEL, SCRATCH }; /* buffers */

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__LossParameter *p = l->param->loss_param;
    softmax_loss_state *s = l->state;

    (void)bottom;
    s->mode = CT__LOSS_PARAMETER__NORMALIZATION_MODE__VALID;
    if (p == NULL) return CT_OK;
    s->mode = p->normalization;
    if (!p->has_normalization && p->has_normalize && !p->normalize) /* the old form */
        s->mode = CT__LOSS_PARAMETER__NORMALIZATION_MODE__BATCH_SIZE;
    s->has_ignore = p->has_ignore_label;
    s->ignore = p->ignore_label;
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__SoftmaxParameter *p = l->param->softmax_param;
    const ct_shape *x = &in->bottom[0]->data.shape, *label = &in->bottom[1]->data.shape;
    ct_shape scalar = { 0 };
    softmax_loss_plan *plan = in->state;
    ct_view v;
    int axis;

    CT_TRY(ct_layer_axis(l, x, (p != NULL) ? p->axis : 1, "axis", &axis));
    v = ct_view_make(x, axis, 1);
    CT_TRY(ct_layer_check_labels(l, x, label, &v));
    if (label->dim[0] != x->dim[0])
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "scores of %lld samples, labels of %lld",
                             (long long)x->dim[0], (long long)label->dim[0]);
    plan->desc = (ct_softmax_desc){ l->dev->kind, v.outer, v.mid, v.inner };
    plan->engine = ct_softmax_choose(&plan->desc);
    if (plan->engine == NULL)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "not implemented on device %s", l->dev->name);
    ct_instance_buffer(in, PROB, CT_KEEP_PASS, ct_tensor_bytes(&in->bottom[0]->data));
    ct_instance_buffer(in, LABEL, CT_KEEP_PASS, (size_t)(v.outer * v.inner) * sizeof(int32_t));
    ct_instance_buffer(in, SCRATCH, CT_KEEP_CALL, ct_softmax_scratch(&plan->desc));
    ct_blob_set_shape(in->top[0], &scalar);
    if (l->n_top > 1) ct_blob_set_shape(in->top[1], x);
    CT_TRY(ct_stage_reserve(l, &plan->labels, v.outer * v.inner));
    if (l->dev->kind == CT_DEVICE_CPU) return CT_OK;
    ct_mem_release(plan->host_label);
    plan->host_label = ct_mem_acquire((size_t)(v.outer * v.inner) * sizeof(int32_t));
    if (plan->host_label == NULL) return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory for labels");
    return CT_OK;
}

static void release(const ct_layer *l, ct_instance *in)
{
    softmax_loss_plan *plan = in->state;

    (void)l;
    ct_stage_release(&plan->labels);
    ct_mem_release(plan->host_label);
}

/* Labels as classes, checked once so that nothing behind can read out of bounds. */
static ct_status read_labels(const ct_layer *l, ct_instance *in, ct_exec *ex, int64_t *n_p)
{
    const softmax_loss_state *s = l->state;
    softmax_loss_plan *plan = in->state;
    bool on_host = (l->dev->kind == CT_DEVICE_CPU);
    int32_t *label = on_host ? in->buffer[LABEL].data : plan->host_label;
    int64_t n = plan->desc.outer * plan->desc.inner, counted = 0;
    const float *value;

    CT_TRY(ct_stage_read(ex, &plan->labels, ct_blob_data(in->bottom[1]), n, &value));

    for (int64_t i = 0; i < n; i++) {
        if (s->has_ignore && (value[i] == (float)s->ignore)) {
            label[i] = CT_LABEL_IGNORED;
            continue;
        }
        if (!ct_label_class(value[i], plan->desc.classes, &label[i]))
            return ct_label_fail(l, ex, value[i], i, n / in->bottom[1]->data.shape.dim[0],
                                 plan->desc.classes);
        counted++;
    }
    *n_p = counted;
    if (on_host) return CT_OK;
    return ex->dev->from_host(ex->stream, in->buffer[LABEL].data, label,
                              (size_t)n * sizeof(*label));
}

/* What the sum of losses is divided by; at least 1, so that a batch without labels is no NaN. */
static ct_status find_divisor(const ct_layer *l, softmax_loss_plan *plan, ct_exec *ex,
                              int64_t counted)
{
    const softmax_loss_state *s = l->state;
    double local = 1;
    bool depends = false;

    switch (s->mode) {
    case CT__LOSS_PARAMETER__NORMALIZATION_MODE__FULL:
        local = (double)(plan->desc.outer * plan->desc.inner);
        break;
    case CT__LOSS_PARAMETER__NORMALIZATION_MODE__VALID:
        local = (double)counted;
        depends = s->has_ignore;
        break;
    case CT__LOSS_PARAMETER__NORMALIZATION_MODE__BATCH_SIZE:
        local = (double)plan->desc.outer;
        break;
    default: /* NONE: a plain sum, over the ranks too */
        plan->divisor = 1;
        return CT_OK;
    }
    CT_TRY(ct_exec_global_count(ex, local, depends, &plan->divisor));
    if (plan->divisor < 1) plan->divisor = 1;
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    softmax_loss_plan *plan = in->state;
    float *prob = in->buffer[PROB].data;
    int64_t counted = 0;
    double loss;

    CT_TRY(read_labels(l, in, ex, &counted));
    CT_TRY(find_divisor(l, plan, ex, counted));
    CT_TRY(plan->engine->forward(&plan->desc, ex, ct_blob_data(in->bottom[0]), prob));
    CT_TRY(plan->engine->loss(&plan->desc, ex, prob, in->buffer[LABEL].data,
                              in->buffer[SCRATCH].data, &loss));
    CT_TRY(ct_scalar_put(ex, ct_blob_data(in->top[0]), (float)(loss / plan->divisor)));
    if (l->n_top < 2) return CT_OK;
    return ex->dev->copy(ex->stream, ct_blob_data(in->top[1]), prob,
                         ct_tensor_bytes(&in->bottom[0]->data));
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const softmax_loss_plan *plan = in->state;
    const float *top_diff = ct_blob_diff(in->top[0]); /* the loss weight */
    float weight = 0.0f;

    (void)l;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    if (top_diff != NULL) CT_TRY(ct_scalar_get(ex, top_diff, &weight));
    return plan->engine->loss_backward(
        &plan->desc, ex, in->buffer[PROB].data, in->buffer[LABEL].data,
        (float)((double)weight / plan->divisor), ct_blob_diff(in->bottom[0]));
}

static void estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const softmax_loss_plan *plan = in->state;

    (void)l;
    e->engine[CT_RUN_FORWARD] = e->engine[CT_RUN_BACKWARD_DATA] = plan->engine->name;
}

const ct_layer_ops ct_layer_softmax_loss = {
    .type = "SoftmaxWithLoss",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 2,
    .is_loss = true,
    .top_is_share = true,
    .null_top_diff = true, /* the probabilities send no gradient back, as in Caffe */
    .no_diff_bottom = 1 << 1,
    .state_size = sizeof(softmax_loss_state),
    .instance_state_size = sizeof(softmax_loss_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .estimate = estimate,
    .release = release,
    .on_cuda = true,
};
