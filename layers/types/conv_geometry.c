/* The shapes of convolutions from the prototxt, and Im2col, which is those alone. */
#include "layers/types/conv_geometry.h"

#include <stdio.h>

#include "framework/base/text.h"
#include "layers/layer_util.h"
#include "layers/engine/conv/conv.h"
#include "layers/types/layer_types.h"

/* A repeated field of one value for all axes or one for each, or its _h and _w form. */
typedef struct window_field {
    const char *name;
    size_t n;
    const uint32_t *list;
    bool has_h, has_w;
    uint32_t h, w;
    int64_t missing; /* value where nothing is given; < 0: that is an error */
    bool positive;
} window_field;

typedef struct sizes_text {
    char text[128];
} sizes_text;

/* "3 x 5" */
static sizes_text str(const int64_t *v, int n)
{
    sizes_text t = { "" };
    size_t at = 0;

    for (int i = 0; (i < n) && (at < sizeof(t.text)); i++)
        at += (size_t)snprintf(t.text + at, sizeof(t.text) - at, "%s%lld", (i > 0) ? " x " : "",
                               (long long)v[i]);
    return t;
}

static ct_status read_both(const ct_layer *l, const window_field *f, int n_axis, int64_t *value)
{
    if (f->n > 0)
        return CT_LAYER_FAIL(
            l, CT_ERR_CONFIG,
            "convolution_param has %s and also its _h or _w form: give one of them", f->name);
    if (f->has_h != f->has_w)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "convolution_param has %s for one axis only: give both _h and _w",
                             f->name);
    if (n_axis != 2)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "convolution_param has %s as _h and _w, which are for two spatial "
                             "axes; this bottom has %d",
                             f->name, n_axis);
    value[0] = f->h;
    value[1] = f->w;
    return CT_OK;
}

static ct_status read_window(const ct_layer *l, const window_field *f, int n_axis, int64_t *value)
{
    if (f->has_h || f->has_w) {
        CT_TRY(read_both(l, f, n_axis, value));
    } else if ((f->n == 0) && (f->missing < 0) && (n_axis > 0)) {
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "convolution_param.%s is missing", f->name);
    } else if ((f->n > 1) && (f->n != (size_t)n_axis)) {
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "convolution_param.%s has %zu values; 1 or %d fit the bottom's "
                             "spatial axes",
                             f->name, f->n, n_axis);
    } else {
        for (int i = 0; i < n_axis; i++)
            value[i] = (f->n == 0) ? f->missing : f->list[(f->n == 1) ? 0 : i];
    }
    for (int i = 0; f->positive && (i < n_axis); i++) {
        if (value[i] == 0)
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "convolution_param.%s %s must be positive",
                                 f->name, str(value, n_axis).text);
    }
    return CT_OK;
}

static ct_status read_fields(const ct_layer *l, const Ct__ConvolutionParameter *p,
                             ct_conv_geometry *g)
{
    window_field kernel = { .name = "kernel_size",
                            .n = p->n_kernel_size,
                            .list = p->kernel_size,
                            .has_h = p->has_kernel_h,
                            .has_w = p->has_kernel_w,
                            .h = p->kernel_h,
                            .w = p->kernel_w,
                            .missing = -1,
                            .positive = true };
    window_field stride = { .name = "stride",
                            .n = p->n_stride,
                            .list = p->stride,
                            .has_h = p->has_stride_h,
                            .has_w = p->has_stride_w,
                            .h = p->stride_h,
                            .w = p->stride_w,
                            .missing = 1,
                            .positive = true };
    /* unlike the others, pad_h and pad_w have a default: one of them alone is enough */
    bool has_pad = p->has_pad_h || p->has_pad_w;
    window_field pad = { .name = "pad",
                         .n = p->n_pad,
                         .list = p->pad,
                         .has_h = has_pad,
                         .has_w = has_pad,
                         .h = p->pad_h,
                         .w = p->pad_w };
    window_field dilation = {
        .name = "dilation", .n = p->n_dilation, .list = p->dilation, .missing = 1, .positive = true
    };

    CT_TRY(read_window(l, &kernel, g->n, g->kernel));
    CT_TRY(read_window(l, &stride, g->n, g->stride));
    CT_TRY(read_window(l, &pad, g->n, g->pad));
    return read_window(l, &dilation, g->n, g->dilation);
}

ct_status ct_conv_read_windows(const ct_layer *l, const ct_shape *x, ct_conv_geometry *g)
{
    const Ct__ConvolutionParameter *p = l->param->convolution_param;

    if (p == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "convolution_param is missing");
    CT_TRY(ct_layer_axis(l, x, p->axis, "convolution_param.axis", &g->axis));
    g->n = x->ndim - g->axis - 1;
    g->c = x->dim[g->axis];
    if (g->c == 0) return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the bottom has no channels");
    return read_fields(l, p, g);
}

ct_status ct_conv_read_geometry(const ct_layer *l, const ct_shape *x, int64_t group,
                                ct_conv_geometry *g)
{
    const Ct__ConvolutionParameter *p = l->param->convolution_param;

    if (p == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "convolution_param is missing");
    if (!p->has_num_output || (p->num_output == 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "convolution_param.num_output is missing or 0");
    if (p->group == 0) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "convolution_param.group is 0");
    CT_TRY(ct_conv_read_windows(l, x, g));
    g->m = p->num_output;
    g->group = (group > 0) ? group : p->group;
    g->bias = p->bias_term;
    if ((g->m % g->group != 0) || (g->c % g->group != 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "convolution_param.group %lld must divide num_output %lld and the "
                             "%lld channels of the bottom",
                             (long long)g->group, (long long)g->m, (long long)g->c);
    return CT_OK;
}

ct_status ct_conv_add_weights(ct_layer *l, ct_conv_geometry *g, int64_t first, int64_t second)
{
    const Ct__ConvolutionParameter *p = l->param->convolution_param;
    bool by_input = ct_layer_is_split(l, CT__PARALLEL_LAYER_PARAMETER__SPLIT__INPUT);
    ct_shape weight = { 2, { first, second } };

    for (int i = 0; i < g->n; i++) weight.dim[weight.ndim++] = g->kernel[i];
    CT_TRY(ct_layer_add_part(l, &weight, by_input ? 1 : 0, p->weight_filler));
    g->bias = g->bias && (!by_input || ct_layer_is_first(l));
    if (!g->bias) return CT_OK;
    if (!by_input) return ct_layer_add_part(l, &(ct_shape){ 1, { g->m } }, 0, p->bias_filler);
    ct_layer_add_weight(l, &(ct_shape){ 1, { g->m } }, p->bias_filler);
    return CT_OK;
}

ct_status ct_conv_check_bottoms(const ct_layer *l, const ct_instance *in, const ct_conv_geometry *g)
{
    const ct_shape *x = &in->bottom[0]->data.shape;

    if ((x->ndim != g->axis + 1 + g->n) || (x->dim[g->axis] != g->c))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "the bottom %s does not have the %lld channels that "
                             "the weights were made for",
                             ct_shape_str(x).text, (long long)g->c);
    for (int i = 1; i < l->n_bottom; i++) {
        if (!ct_shape_equal(x, &in->bottom[i]->data.shape))
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                                 "bottom %d has the shape %s, bottom 0 %s: they "
                                 "must be the same",
                                 i, ct_shape_str(&in->bottom[i]->data.shape).text,
                                 ct_shape_str(x).text);
    }
    return CT_OK;
}

/* Spatial axis i as h, w or one in front; fewer than two leave h, or both, at length 1. */
static void fill_axis(const ct_conv_geometry *g, int i, int64_t in, int64_t out, ct_conv_desc *d)
{
    if (i == g->n - 1) {
        d->w = in, d->ow = out;
        d->kw = g->kernel[i], d->sw = g->stride[i], d->pw = g->pad[i], d->dw = g->dilation[i];
    } else if (i == g->n - 2) {
        d->h = in, d->oh = out;
        d->kh = g->kernel[i], d->sh = g->stride[i], d->ph = g->pad[i], d->dh = g->dilation[i];
    } else {
        d->front[i] =
            (ct_conv_axis){ in, out, g->kernel[i], g->stride[i], g->pad[i], g->dilation[i] };
    }
}

ct_status ct_conv_fill_desc(const ct_layer *l, const ct_conv_geometry *g, const int64_t *in,
                            ct_conv_desc *d)
{
    bool fits = true;

    d->h = d->w = d->oh = d->ow = d->kh = d->kw = d->sh = d->sw = d->dh = d->dw = 1;
    d->ph = d->pw = 0;
    d->n_front = (g->n > 2) ? g->n - 2 : 0;
    for (int i = 0; i < g->n; i++) {
        int64_t out = ct_conv_out(in[i], g->kernel[i], g->stride[i], g->pad[i], g->dilation[i]);

        fits = fits && (out >= 1);
        fill_axis(g, i, in[i], out, d);
    }
    if (!fits)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "the kernel %s (dilation %s) is larger than the input %s with pad %s",
                             str(g->kernel, g->n).text, str(g->dilation, g->n).text,
                             str(in, g->n).text, str(g->pad, g->n).text);
    return CT_OK;
}

int64_t ct_conv_out_of(const ct_conv_geometry *g, const ct_conv_desc *d, int i)
{
    return (i == g->n - 1) ? d->ow : (i == g->n - 2) ? d->oh : d->front[i].out;
}

ct_shape ct_conv_shape(const ct_conv_geometry *g, const ct_shape *x, int64_t channels,
                       const int64_t *out)
{
    ct_shape s = *x;

    s.dim[g->axis] = channels;
    for (int i = 0; i < g->n; i++) s.dim[g->axis + 1 + i] = out[i];
    return s;
}

/* ---- Im2col: what a convolution multiplies its weights with: for each window the values it
 * covers, as channels. */

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
    .params = "convolution_param",
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
