/* Im2col: what a convolution multiplies its weights with: for each window the values it covers, as
 * channels. */
#include "layers/types/conv_geometry.h"
#include "layers/engine/conv/conv_private.h"
#include "layers/types/layer_types.h"

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    return ct_conv_read_windows(l, &bottom[0], l->state);
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_conv_geometry *g = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    ct_conv_desc *d = in->state;
    int64_t out[CT_MAX_DIM];
    ct_shape top;

    if (g->n < 1)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "no spatial axes behind axis %d of %s", g->axis,
                             ct_shape_str(x).text);
    CT_TRY(ct_conv_check_bottoms(l, in, g));
    *d = (ct_conv_desc){ .device = l->dev->kind,
                         .n_thread = ct_engine_n_thread(l),
                         .n = ct_shape_count(x, 0, g->axis),
                         .group = 1,
                         .c = g->c };
    CT_TRY(ct_conv_fill_desc(l, g, x->dim + g->axis + 1, d));
    for (int i = 0; i < g->n; i++) out[i] = ct_conv_out_of(g, d, i);
    top = ct_conv_shape(g, x, group_k(d), out);
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_conv_desc *d = in->state;
    int64_t x = d->c * in_size(d), y = group_k(d) * out_size(d);

    (void)l, (void)ex;
    for (int64_t n = 0; n < d->n; n++)
        ct_im2col_nd(d, d->c, ct_blob_data(in->bottom[0]) + n * x,
                     ct_blob_data(in->top[0]) + n * y);
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_conv_desc *d = in->state;
    int64_t x = d->c * in_size(d), y = group_k(d) * out_size(d);

    (void)l, (void)ex;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    for (int64_t n = 0; n < d->n; n++)
        ct_col2im_nd(d, d->c, ct_blob_diff(in->top[0]) + n * y,
                     ct_blob_diff(in->bottom[0]) + n * x);
    return CT_OK;
}

const ct_layer_ops ct_layer_im2col = {
    .type = "Im2col",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .state_size = sizeof(ct_conv_geometry),
    .instance_state_size = sizeof(ct_conv_desc),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
};
