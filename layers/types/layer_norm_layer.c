/* LayerNorm: what stands along the last axes of each sample, less its mean, over its deviation,
 * times a learned scale, plus a learned shift. */
#include <math.h>

#include "layers/types/layer_types.h"
#include "layers/layer_util.h"
#include "layers/types/row_norm.h"

enum { STAT, NORMAL };

typedef struct layer_norm_state {
    Ct__FillerParameter one; /* the default filler of the scale */
    double eps;
    int axis;
} layer_norm_state;

typedef ct_row_plan layer_norm_plan;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__LayerNormParameter *p = l->param->layer_norm_param;
    layer_norm_state *s = l->state;
    ct_shape shape = { 0 };

    s->eps = (p != NULL) ? (double)p->eps : 1e-5;
    if (!(s->eps > 0) || !isfinite(s->eps))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "layer_norm_param.eps %g must be above 0", s->eps);
    CT_TRY(ct_layer_axis(l, bottom, (p != NULL) ? p->axis : -1, "axis", &s->axis));
    if (s->axis == 0)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "layer_norm_param.axis 0 would mix the samples of a batch");
    if ((p != NULL) && !p->affine) return CT_OK;
    for (int i = s->axis; i < bottom->ndim; i++) shape.dim[shape.ndim++] = bottom->dim[i];
    ct__filler_parameter__init(&s->one);
    s->one.value = 1.0f;
    ct_layer_add_weight(l, &shape,
                        ((p != NULL) && (p->scale_filler != NULL)) ? p->scale_filler : &s->one);
    ct_layer_add_weight(l, &shape, (p != NULL) ? p->bias_filler : NULL);
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const layer_norm_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    layer_norm_plan *plan = in->state;

    plan->rows = ct_shape_count(x, 0, s->axis);
    plan->n = ct_shape_count(x, s->axis, -1);
    if (plan->n < 1)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "nothing to normalise in shape %s",
                             ct_shape_str(x).text);
    if ((l->n_weight > 0) && (ct_shape_count(&l->weight[0].shape, 0, -1) != plan->n))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom %s, scales %s", ct_shape_str(x).text,
                             ct_shape_str(&l->weight[0].shape).text);
    ct_instance_buffer(in, STAT, CT_LIFETIME_PASS, ct_row_bytes(l, plan));
    ct_instance_buffer(in, NORMAL, CT_LIFETIME_CALL, /* devices make it on the way */
                       (l->dev->kind == CT_DEVICE_CPU) ? ct_tensor_bytes(&in->bottom[0]->data) : 0);
    ct_blob_set_shape(in->top[0], x);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const layer_norm_state *s = l->state;
    const layer_norm_plan *plan = in->state;
    const float *x = ct_blob_data(in->bottom[0]);
    ct_row_stat *stat = in->buffer[STAT].data;
    float *y = ct_blob_data(in->top[0]);

    (void)ex;
    ct_row_stats(plan->rows, plan->n, x, stat);
    for (int64_t r = 0; r < plan->rows; r++) {
        stat[r].factor = 1 / sqrt(stat[r].variance + s->eps);
        stat[r].gain = 1;
    }
    ct_row_normalise(plan->rows, plan->n, x, stat, y);
    if (l->n_weight > 0)
        ct_view_affine(&(ct_view){ plan->rows, plan->n, 1, 0, CT_F32 }, y,
                       ct_blob_data(&in->weight[0]), ct_blob_data(&in->weight[1]), y);
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const layer_norm_plan *plan = in->state;
    const float *dy = ct_blob_diff(in->top[0]);
    const ct_view v = { plan->rows, plan->n, 1, 0, CT_F32 };
    float *normal = in->buffer[NORMAL].data, *dx = ct_blob_diff(in->bottom[0]);

    ct_row_normalise(plan->rows, plan->n, ct_blob_data(in->bottom[0]), in->buffer[STAT].data,
                     normal);
    for (int i = 0; i < l->n_weight; i++) {
        float *dw = ct_blob_diff(&in->weight[i]);

        if (dw != NULL)
            ct_view_dot(&v, dy, (i == 0) ? normal : NULL, ct_weight_beta(in, ex, i) != 0.0f, dw);
    }
    if (dx != NULL)
        ct_row_gradient(plan->rows, plan->n, in->buffer[STAT].data, normal, dy,
                        (l->n_weight > 0) ? ct_blob_data(&in->weight[0]) : NULL, dx);
    return CT_OK;
}

const ct_layer_ops ct_layer_layer_norm = {
    .type = "LayerNorm",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(layer_norm_state),
    .instance_state_size = sizeof(layer_norm_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
};
