/* Parameter: a learned blob as a top. */
#include "framework/math/math.h"
#include "layers/types/device_kernels.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__ParameterParameter *p = l->param->parameter_param;
    ct_shape shape = { 0 };

    (void)bottom;
    if ((p == NULL) || (p->shape == NULL))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "parameter_param.shape is missing");
    if (p->shape->n_dim > CT_MAX_DIM)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "parameter_param.shape has %zu axes, at most %d",
                             p->shape->n_dim, CT_MAX_DIM);
    for (size_t i = 0; i < p->shape->n_dim; i++) {
        if (p->shape->dim[i] < 1)
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "parameter_param.shape has the dimension %lld",
                                 (long long)p->shape->dim[i]);
        shape.dim[shape.ndim++] = p->shape->dim[i];
    }
    ct_layer_add_weight(l, &shape, NULL);
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    ct_blob_set_shape(in->top[0], &l->weight[0].shape);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_device_copy(ex, ct_tensor_count(&in->top[0]->data), ct_blob_data(&in->weight[0]),
                          ct_blob_data(in->top[0]));
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    float *dw = ct_blob_diff(&in->weight[0]);

    if (dw == NULL) return CT_OK;
    return l->dev->math->axpby(ex->stream, ct_tensor_count(&in->top[0]->data), 1.0f,
                               ct_blob_diff(in->top[0]), ct_weight_beta(in, ex, 0), dw);
}

const ct_layer_ops ct_layer_parameter = {
    .type = "Parameter",
    .min_top = 1,
    .max_top = 1,
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .on_cuda = true,
};
