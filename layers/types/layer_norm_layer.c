/* LayerNorm and RMSNorm: what stands along the last axes of each sample, over its deviation, times
 * a learned scale. LayerNorm subtracts the mean first, and adds a learned shift. */
#include <math.h>

#include "layers/types/norm.h"
#include "layers/layer_util.h"
#include "layers/types/layer_types.h"

enum { STAT, PART };

typedef struct norm_state {
    Ct__FillerParameter one; /* the default filler of the scale */
    double eps;
    int axis;
    bool centred;
} norm_state;

/* eps and axis, of the message `param`. */
static ct_status read_rule(ct_layer *l, const ct_shape *bottom, const char *param, double eps,
                           int axis)
{
    norm_state *s = l->state;

    s->eps = eps;
    if (!(eps > 0) || !isfinite(eps))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%s.eps %g must be above 0", param, eps);
    CT_TRY(ct_layer_axis(l, bottom, axis, "axis", &s->axis));
    if (s->axis == 0)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%s.axis 0 would mix the samples of a batch", param);
    return CT_OK;
}

/* A weight of the shape of the axes that are normalised; one: 1 where there is no filler. */
static void add_weight(ct_layer *l, const ct_shape *bottom, const Ct__FillerParameter *filler,
                       bool one)
{
    norm_state *s = l->state;
    ct_shape shape = { 0 };

    for (int i = s->axis; i < bottom->ndim; i++) shape.dim[shape.ndim++] = bottom->dim[i];
    ct__filler_parameter__init(&s->one);
    s->one.value = 1.0f;
    ct_layer_add_weight(l, &shape, ((filler == NULL) && one) ? &s->one : filler);
}

static ct_status layer_norm_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__LayerNormParameter *p = l->param->layer_norm_param;
    norm_state *s = l->state;

    s->centred = true;
    CT_TRY(read_rule(l, bottom, "layer_norm_param", (p != NULL) ? (double)p->eps : 1e-5,
                     (p != NULL) ? p->axis : -1));
    if ((p != NULL) && !p->affine) return CT_OK;
    add_weight(l, bottom, (p != NULL) ? p->scale_filler : NULL, true);
    add_weight(l, bottom, (p != NULL) ? p->bias_filler : NULL, false);
    return CT_OK;
}

static ct_status rms_norm_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__RMSNormParameter *p = l->param->rms_norm_param;

    CT_TRY(read_rule(l, bottom, "rms_norm_param", (p != NULL) ? (double)p->eps : 1e-5,
                     (p != NULL) ? p->axis : -1));
    add_weight(l, bottom, (p != NULL) ? p->scale_filler : NULL, true);
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const norm_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    bool host = l->dev->kind == CT_DEVICE_CPU;
    ct_row_plan *plan = in->state;

    plan->rows = ct_shape_count(x, 0, s->axis);
    plan->n = ct_shape_count(x, s->axis, -1);
    if (plan->n < 1)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "nothing to normalise in shape %s",
                             ct_shape_str(x).text);
    if ((l->n_weight > 0) && (ct_shape_count(&l->weight[0].shape, 0, -1) != plan->n))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom %s, scales %s", ct_shape_str(x).text,
                             ct_shape_str(&l->weight[0].shape).text);
    ct_instance_buffer(in, STAT, CT_LIFETIME_PASS, ct_row_bytes(l, plan));
    ct_instance_buffer(in, PART, CT_LIFETIME_CALL,
                       (host && (l->n_weight > 0)) ? ct_norm_rows_part_bytes(plan->rows, plan->n)
                                                   : 0);
    if (host) in->over = 1;
    ct_blob_set_like(in->top[0], x, &in->bottom[0]->data);
    return CT_OK;
}

ct_norm_rows ct_norm_rows_of(const ct_instance *in)
{
    const ct_layer *l = in->layer;
    const norm_state *s = l->state;
    const ct_row_plan *plan = in->state;

    return (ct_norm_rows){ .rows = plan->rows,
                           .n = plan->n,
                           .centred = s->centred,
                           .eps = s->eps,
                           .x = ct_blob_data(in->bottom[0]),
                           .scale = (l->n_weight > 0) ? ct_blob_data(&in->weight[0]) : NULL,
                           .shift = (l->n_weight > 1) ? ct_blob_data(&in->weight[1]) : NULL,
                           .stat = in->buffer[STAT].data,
                           .bf16 = ct_blob_is_bf16(in->bottom[0]) };
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_norm_rows rows = ct_norm_rows_of(in);

    (void)l, (void)ex;
    ct_norm_rows_forward(&rows, ct_blob_data(in->top[0]));
    return CT_OK;
}

ct_norm_back ct_norm_back_of(const ct_instance *in, const ct_exec *ex)
{
    ct_norm_back back = { .dy = ct_blob_diff(in->top[0]), .part = in->buffer[PART].data };

    if (in->layer->n_weight > 0) {
        back.dscale = ct_blob_diff(&in->weight[0]);
        back.add_scale = ct_weight_beta(in, ex, 0) != 0.0f;
    }
    if (in->layer->n_weight > 1) {
        back.dshift = ct_blob_diff(&in->weight[1]);
        back.add_shift = ct_weight_beta(in, ex, 1) != 0.0f;
    }
    return back;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_norm_rows rows = ct_norm_rows_of(in);
    ct_norm_back back = ct_norm_back_of(in, ex);

    (void)l;
    back.dx = ct_blob_diff(in->bottom[0]);
    ct_norm_rows_backward(&rows, &back);
    return CT_OK;
}

static bool norm_as_epilogue(const Ct__LayerParameter *p, ct_epilogue_kind *kind_p)
{
    (void)p;
    *kind_p = CT_EPILOGUE_NORM;
    return true;
}

static const ct_fusion_ops norm_fusion = { .as_epilogue = norm_as_epilogue };

static bool norm_apart(const ct_layer *l, const ct_instance *in, int n_axis)
{
    (void)in;
    return ((const norm_state *)l->state)->axis >= n_axis;
}

static unsigned layer_norm_splits(const Ct__LayerParameter *p)
{
    return ct_splits_behind_tokens((p->layer_norm_param != NULL) ? p->layer_norm_param->axis : -1);
}

static unsigned rms_norm_splits(const Ct__LayerParameter *p)
{
    return ct_splits_behind_tokens((p->rms_norm_param != NULL) ? p->rms_norm_param->axis : -1);
}

static const ct_sequence_ops norm_sequence = { .apart = norm_apart };

const ct_layer_ops ct_layer_layer_norm = {
    .type = "LayerNorm",
    .params = "layer_norm_param",
    .splits_of = layer_norm_splits,
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(norm_state),
    .instance_state_size = sizeof(ct_row_plan),
    .setup = layer_norm_setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .sequence = &norm_sequence,
    .layout = &ct_layout_rows,
    .fusion = &norm_fusion,
};

const ct_layer_ops ct_layer_rms_norm = {
    .type = "RMSNorm",
    .params = "rms_norm_param",
    .splits_of = rms_norm_splits,
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(norm_state),
    .instance_state_size = sizeof(ct_row_plan),
    .setup = rms_norm_setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .sequence = &norm_sequence,
    .layout = &ct_layout_rows,
    .fusion = &norm_fusion,
};
