/* InnerProduct of values of 16 bits. */
#include "layers/types/device_kernels.h"
#include "layers/types/inner_product.h"

/* Rows of 16 bits that products read and write as they lie begin at 16 bytes. */
enum { ROW = 8 };

bool ct_ip_takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    const ct_shape *x = &bottom[slot]->data.shape;

    return ct_blob_is_last(bottom[slot]) && (p->inner_product_param != NULL) &&
           ct_layer_is_channels(x, p->inner_product_param->axis) &&
           (ct_shape_count(x, 1, -1) % ROW == 0);
}

/* Whether weights are rounded here, not by each product. */
static bool rounds_weight(const ct_layer *l)
{
    const ip_state *s = l->state;

    return (l->dev->kind != CT_DEVICE_CPU) && (ct_dtype_of(ct_engine_operand(l)) != CT_F32) &&
           ((s->transpose ? s->n : s->k) % ROW == 0);
}

static ct_buffer_lifetime keep_if(bool backward)
{
    return backward ? CT_LIFETIME_PASS : CT_LIFETIME_CALL;
}

void ct_ip_prepare(const ct_layer *l, ct_instance *in, const ct_shape *top)
{
    const ip_state *s = l->state;
    ip_instance *r = in->state;
    const ct_blob *x = in->bottom[0];
    size_t bytes = ct_tensor_bytes(&x->data);
    bool last = ct_blob_is_last(x), back = in->top[0]->wants_diff;

    if (last && in->read_narrow && (s->n % ROW == 0))
        ct_blob_set_like(in->top[0], top, &x->data);
    else
        ct_blob_set_shape(in->top[0], top);
    if (rounds_weight(l))
        ct_instance_buffer(in, IP_WEIGHT, keep_if(x->wants_diff),
                           (size_t)(s->n * s->k) * sizeof(uint16_t));
    r->places = last ? ct_shape_count(&x->data.shape, 2, -1) : 1;
    if (r->places == 1) return;
    in->backward_reads = 0;
    ct_instance_buffer(in, IP_PLAIN, keep_if(back), bytes);
    if (x->wants_diff) ct_instance_buffer(in, IP_PLAIN_DIFF, CT_LIFETIME_CALL, bytes);
}

unsigned ct_ip_narrow(const ct_layer *l, const ct_instance *in, ct_run_kind kind)
{
    const ip_state *s = l->state;
    bool x = ct_blob_is_last(in->bottom[0]), y = ct_blob_is_last(in->top[0]), t = s->transpose;
    unsigned weight = rounds_weight(l) ? CT_NARROW_B : 0;

    if (kind == CT_RUN_FORWARD) return (x ? CT_NARROW_A : 0) | weight | (y ? CT_NARROW_C : 0);
    if (kind == CT_RUN_BACKWARD_DATA) return (y ? CT_NARROW_A : 0) | weight | (x ? CT_NARROW_C : 0);
    return ((t ? x : y) ? CT_NARROW_A : 0) | ((t ? y : x) ? CT_NARROW_B : 0);
}

ct_status ct_ip_lay(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ip_state *s = l->state;
    const ip_instance *r = in->state;
    const ct_tensor *x = &in->bottom[0]->data;

    if (in->buffer[IP_WEIGHT].bytes > 0)
        CT_TRY(ct_kernels(ex)->convert(ex, s->n * s->k, CT_F32, ct_blob_data(&in->weight[0]),
                                       ct_dtype_of(ct_engine_operand(l)),
                                       in->buffer[IP_WEIGHT].data));
    if (r->places == 1) return CT_OK;
    return ct_kernels(ex)->last_to_plain(ex, r->m, x->shape.dim[1], r->places, x->dtype, x->data,
                                         x->dtype, in->buffer[IP_PLAIN].data);
}

const float *ct_ip_rows(const ct_instance *in)
{
    const ip_instance *r = in->state;

    return (r->places > 1) ? in->buffer[IP_PLAIN].data : ct_blob_data(in->bottom[0]);
}

const float *ct_ip_weight(const ct_instance *in)
{
    const ct_buffer *rounded = &in->buffer[IP_WEIGHT];

    return (rounded->bytes > 0) ? rounded->data : ct_blob_data(&in->weight[0]);
}

ct_status ct_ip_turn_back(ct_instance *in, ct_exec *ex)
{
    const ip_instance *r = in->state;
    const ct_tensor *dx = &in->bottom[0]->diff;

    if (r->places == 1) return CT_OK;
    return ct_kernels(ex)->plain_to_last(ex, r->m, dx->shape.dim[1], r->places, dx->dtype,
                                         in->buffer[IP_PLAIN_DIFF].data, dx->dtype, dx->data);
}
