/* Functions of one number: a kernel each, of the lines that the CPU's loops are made of. */
#include "layers/cuda/layer_cuda.cuh"

#include "layers/engine/cuda/wide.cuh"
#include "layers/engine/neuron/neuron_math.h"

typedef ct_status (*map_fn)(ct_exec *ex, arg k, int64_t n, const float *v, const float *dy,
                            float *to);

#define CT_NEURON_KERNELS(_name, _reads, _value, _slope)                                           \
    static ct_status _name##_forward(ct_exec *ex, arg k, int64_t n, const float *x, const float *, \
                                     float *y)                                                     \
    {                                                                                              \
        ct_wide_from<1> from = { { x } };                                                          \
                                                                                                   \
        return ct_cuda_wide_floats(                                                                \
            ex->stream, #_name, n, from, y, KERNEL(const float *at) { return _value(k, at[0]); }); \
    }                                                                                              \
    static ct_status _name##_backward(ct_exec *ex, arg k, int64_t n, const float *v,               \
                                      const float *dy, float *dx)                                  \
    {                                                                                              \
        ct_wide_from<2> from = { { v, dy } };                                                      \
                                                                                                   \
        return ct_cuda_wide_floats(                                                                \
            ex->stream, #_name " backward", n, from, dx,                                           \
            KERNEL(const float *at) { return at[1] * _slope(k, at[0]); });                         \
    }
CT_NEURON_LIST(CT_NEURON_KERNELS)

#define CT_NEURON_ROW(_name, _reads, _value, _slope)                                               \
    { &ct_neuron_##_name, _name##_forward, _name##_backward },
static const struct {
    const ct_neuron *fn;
    map_fn forward, backward;
} table[] = { CT_NEURON_LIST(CT_NEURON_ROW) };

static int row_of(const ct_neuron_state *s)
{
    int i = 0;

    while (table[i].fn != s->fn) i++; /* every function is in the list */
    return i;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_neuron_state *s = (const ct_neuron_state *)l->state;
    const ct_buffer *kept = &in->buffer[CT_NEURON_INPUT];
    const float *x = ct_blob_data(in->bottom[0]);
    int64_t n = count_of(in->bottom[0]);

    if (kept->bytes > 0) CT_TRY(ct_device_copy(ex, n, x, (float *)kept->data));
    return table[row_of(s)].forward(ex, s->args, n, x, NULL, ct_blob_data(in->top[0]));
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_neuron_state *s = (const ct_neuron_state *)l->state;
    const ct_buffer *kept = &in->buffer[CT_NEURON_INPUT];
    const float *dy = ct_blob_diff(in->top[0]), *v = dy;
    float *dx = ct_blob_diff(in->bottom[0]);

    if (dx == NULL) return CT_OK;
    if (s->fn->reads == CT_READS_TOP) v = ct_blob_data(in->top[0]);
    if (s->fn->reads == CT_READS_BOTTOM)
        v = (kept->bytes > 0) ? (const float *)kept->data : ct_blob_data(in->bottom[0]);
    return table[row_of(s)].backward(ex, s->args, count_of(in->bottom[0]), v, dy, dx);
}

#define CT_NEURON_OVERRIDE(_name, _type, ...)                                                      \
    const ct_device_override ct_cuda_##_name = { _type, NULL, forward, backward };
CT_NEURON_LAYERS(CT_NEURON_OVERRIDE)
