/* ContrastiveLoss: draws pairs (a, b) that are similar together, and others apart, up to a margin.
 * With d = |a - b|: d^2 of a similar pair, else max(margin - d, 0)^2; over twice the pairs. */
#include <math.h>

#include "layers/types/layer_types.h"
#include "layers/types/loss_util.h"

enum { DISTANCE }; /* squares, one a pair */

typedef struct contrastive_plan {
    double samples; /* of the global batch, in the last forward */
    int64_t pairs, length;
} contrastive_plan;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__ContrastiveLossParameter *p = l->param->contrastive_loss_param;

    (void)bottom;
    if ((p == NULL) || ((p->margin > 0.0f) && isfinite(p->margin))) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "contrastive_loss_param.margin %g must be above 0",
                         (double)p->margin);
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *a = &in->bottom[0]->data.shape, *b = &in->bottom[1]->data.shape;
    const ct_shape *similar = &in->bottom[2]->data.shape;
    ct_shape scalar = { 0 };
    contrastive_plan *plan = in->state;

    if ((a->ndim < 2) || (b->ndim < 2) || (a->dim[0] != b->dim[0]) || (a->dim[1] != b->dim[1]) ||
        (ct_shape_count(a, 2, -1) != 1) || (ct_shape_count(b, 2, -1) != 1))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottoms 0 and 1 of shapes %s and %s are not pairs of vectors, N x C "
                             "both",
                             ct_shape_str(a).text, ct_shape_str(b).text);
    if ((similar->ndim < 1) || (similar->dim[0] != a->dim[0]) ||
        (ct_shape_count(similar, 1, -1) != 1))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottom 2 (similar or not) of shape %s is not one number for each of "
                             "%lld pairs",
                             ct_shape_str(similar).text, (long long)a->dim[0]);
    plan->pairs = a->dim[0];
    plan->length = a->dim[1];
    ct_instance_buffer(in, DISTANCE, CT_LIFETIME_PASS, (size_t)plan->pairs * sizeof(float));
    ct_blob_set_shape(in->top[0], &scalar);
    return CT_OK;
}

static float margin_of(const ct_layer *l)
{
    const Ct__ContrastiveLossParameter *p = l->param->contrastive_loss_param;

    return (p != NULL) ? p->margin : 1.0f;
}

static bool is_legacy(const ct_layer *l)
{
    const Ct__ContrastiveLossParameter *p = l->param->contrastive_loss_param;

    return (p != NULL) && p->legacy_version;
}

/* As in Caffe: what is not 0 without its fraction. */
static bool is_similar(float value)
{
    return (value >= 1.0f) || (value <= -1.0f);
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    contrastive_plan *plan = in->state;
    const float *a = ct_blob_data(in->bottom[0]), *b = ct_blob_data(in->bottom[1]);
    const float *similar = ct_blob_data(in->bottom[2]);
    float *square = in->buffer[DISTANCE].data;
    double sum = 0, margin = (double)margin_of(l);

    CT_TRY(ct_loss_samples(in, ex, &plan->samples));
#pragma omp parallel for schedule(static) if (plan->pairs * plan->length >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < plan->pairs; i++) {
        double d = 0;

        for (int64_t c = i * plan->length; c < (i + 1) * plan->length; c++)
            d += ((double)a[c] - (double)b[c]) * ((double)a[c] - (double)b[c]);
        square[i] = (float)d;
    }
    for (int64_t i = 0; i < plan->pairs; i++) {
        double d = (double)square[i], rest = is_legacy(l) ? margin - d : margin - sqrt(d);

        rest = (rest < 0) ? 0 : rest;
        sum += is_similar(similar[i]) ? d : is_legacy(l) ? rest : rest * rest;
    }
    ct_blob_data(in->top[0])[0] = (float)(sum / plan->samples / 2);
    return CT_OK;
}

/* What (a - b) of a pair of squared distance d is multiplied by. */
static float factor(bool similar, bool legacy, float margin, float d)
{
    float distance = sqrtf(d);

    if (similar) return 1.0f;
    if (legacy) return (margin - d > 0.0f) ? -1.0f : 0.0f;
    /* 1e-4 as in Caffe: equal vectors have no direction */
    return (margin - distance > 0.0f) ? -(margin - distance) / (distance + 1e-4f) : 0.0f;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const contrastive_plan *plan = in->state;
    const float *a = ct_blob_data(in->bottom[0]), *b = ct_blob_data(in->bottom[1]);
    const float *similar = ct_blob_data(in->bottom[2]), *square = in->buffer[DISTANCE].data;
    float scale = (float)((double)ct_loss_weight(in) / plan->samples), margin = margin_of(l);
    bool legacy = is_legacy(l);

    (void)ex;
    for (int k = 0; k < 2; k++) {
        float *dx = ct_blob_diff(in->bottom[k]), sign = (k == 0) ? scale : -scale;

        if (dx == NULL) continue;
#pragma omp parallel for schedule(static) if (plan->pairs * plan->length >= CT_PARALLEL_MIN)
        for (int64_t i = 0; i < plan->pairs; i++) {
            float f = sign * factor(is_similar(similar[i]), legacy, margin, square[i]);

            for (int64_t c = i * plan->length; c < (i + 1) * plan->length; c++)
                dx[c] = f * (a[c] - b[c]);
        }
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_contrastive_loss = {
    .type = "ContrastiveLoss",
    .min_bottom = 3,
    .max_bottom = 3,
    .min_top = 1,
    .max_top = 1,
    .is_loss = true,
    .top_is_share = true,
    .no_diff_bottom = 1 << 2,
    .backward_reads = CT_READS_BOTTOM,
    .instance_state_size = sizeof(contrastive_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
};
