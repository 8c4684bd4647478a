/* Layers that apply one function to each element, whose slope follows from what it gave: a line in
 * the table each, in place or not. */
#include "layers/engine/recurrent/gates.h"
#include "layers/layer_types.h"

static const struct neuron {
    const ct_layer_ops *ops;
    void (*forward)(int64_t n, const float *x, float *y);
    void (*backward)(int64_t n, const float *y, const float *dy, float *dx);
} table[] = {
    { &ct_layer_sigmoid, ct_sigmoid_forward, ct_sigmoid_backward }, /* y = 1 / (1 + e^-x) */
    { &ct_layer_tanh, ct_tanh_forward, ct_tanh_backward },          /* y = tanh(x)        */
};

static const struct neuron *neuron_of(const ct_layer *l)
{
    const struct neuron *at = table;

    while (at->ops != l->ops) at += 1;
    return at;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    ct_blob_set_shape(in->top[0], &in->bottom[0]->data.shape);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)ex;
    neuron_of(l)->forward(ct_tensor_count(&in->bottom[0]->data), ct_blob_data(in->bottom[0]),
                          ct_blob_data(in->top[0]));
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)ex;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    neuron_of(l)->backward(ct_tensor_count(&in->bottom[0]->data), ct_blob_data(in->top[0]),
                           ct_blob_diff(in->top[0]), ct_blob_diff(in->bottom[0]));
    return CT_OK;
}

#define NEURON(_type)                                                                              \
    {                                                                                              \
        .type = _type, .min_bottom = 1, .max_bottom = 1, .min_top = 1, .max_top = 1,               \
        .allow_inplace = true, .backward_reads = CT_READS_TOP, .reshape = reshape,                 \
        .forward = forward, .backward = backward,                                                  \
    }

const ct_layer_ops ct_layer_sigmoid = NEURON("Sigmoid");
const ct_layer_ops ct_layer_tanh = NEURON("TanH");
