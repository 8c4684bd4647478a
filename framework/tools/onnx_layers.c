/* Caffe's layers in ONNX's operators, in the phase TEST. */
#include "framework/tools/onnx.h"

#include <stdlib.h>
#include <string.h>

static const ct_shape *top_shape(const ct_onnx_layer *l)
{
    return &l->in->top[0]->data.shape;
}

static const ct_shape *bottom_shape(const ct_onnx_layer *l, int i)
{
    return &l->in->bottom[i]->data.shape;
}

static ct_status no_form(const ct_onnx_layer *l, const char *why)
{
    return CT_FAIL(CT_ERR_CONFIG, "%s%slayer \"%s\" (%s): %s has no form in ONNX here",
                   l->layer->where, (l->layer->where[0] != '\0') ? ": " : "", l->layer->name,
                   l->layer->ops->type, why);
}

/* One bottom, one top, no more to say. */
static ct_status unary(ct_onnx *x, const ct_onnx_layer *l, const char *op)
{
    ct_onnx_begin(x, l, op);
    ct_onnx_bottom(x, l, 0);
    ct_onnx_top(x, l, 0);
    ct_onnx_end(x);
    return CT_OK;
}

static ct_status sigmoid(ct_onnx *x, const ct_onnx_layer *l)
{
    return unary(x, l, "Sigmoid");
}

static ct_status tanh_of(ct_onnx *x, const ct_onnx_layer *l)
{
    return unary(x, l, "Tanh");
}

static ct_status abs_of(ct_onnx *x, const ct_onnx_layer *l)
{
    return unary(x, l, "Abs");
}

static ct_status softplus(ct_onnx *x, const ct_onnx_layer *l)
{
    return unary(x, l, "Softplus");
}

static ct_status same(ct_onnx *x, const ct_onnx_layer *l)
{
    ct_onnx_alias(x, l, 0);
    return CT_OK;
}

static ct_status relu(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__ReLUParameter *p = l->layer->param->relu_param;

    if ((p == NULL) || (p->negative_slope == 0.0f)) return unary(x, l, "Relu");
    ct_onnx_begin(x, l, "LeakyRelu");
    ct_onnx_bottom(x, l, 0);
    ct_onnx_top(x, l, 0);
    ct_onnx_float(x, "alpha", p->negative_slope);
    ct_onnx_end(x);
    return CT_OK;
}

static ct_status softmax(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__SoftmaxParameter *p = l->layer->param->softmax_param;

    ct_onnx_begin(x, l, "Softmax");
    ct_onnx_bottom(x, l, 0);
    ct_onnx_top(x, l, 0);
    ct_onnx_int(x, "axis", (p != NULL) ? p->axis : 1);
    ct_onnx_end(x);
    return CT_OK;
}

/* A list of one, two or no numbers, or _h and _w. */
static void pair(size_t n, const uint32_t *v, bool has_hw, uint32_t h, uint32_t w, int64_t other,
                 int64_t out[2])
{
    for (int i = 0; i < 2; i++) out[i] = (n == 0) ? other : (int64_t)v[(n > 1) ? i : 0];
    if (!has_hw) return;
    out[0] = h;
    out[1] = w;
}

static ct_status convolution_as(ct_onnx *x, const ct_onnx_layer *l, const char *op)
{
    const Ct__ConvolutionParameter *p = l->layer->param->convolution_param;
    int64_t kernel[2], stride[2], pad[2], dilation[2], pads[4];

    if (bottom_shape(l, 0)->ndim != 4) return no_form(l, "other than two axes of space");
    pair(p->n_kernel_size, p->kernel_size, p->has_kernel_h, p->kernel_h, p->kernel_w, 1, kernel);
    pair(p->n_stride, p->stride, p->has_stride_h, p->stride_h, p->stride_w, 1, stride);
    pair(p->n_pad, p->pad, p->has_pad_h || p->has_pad_w, p->pad_h, p->pad_w, 0, pad);
    pair(p->n_dilation, p->dilation, false, 0, 0, 1, dilation);
    for (int i = 0; i < 4; i++) pads[i] = pad[i % 2];
    ct_onnx_begin(x, l, op);
    ct_onnx_bottom(x, l, 0);
    for (int i = 0; i < l->layer->n_weight; i++) ct_onnx_weight(x, l, i, NULL);
    ct_onnx_top(x, l, 0);
    ct_onnx_ints(x, "dilations", 2, dilation);
    ct_onnx_int(x, "group", p->group);
    ct_onnx_ints(x, "kernel_shape", 2, kernel);
    ct_onnx_ints(x, "pads", 4, pads);
    ct_onnx_ints(x, "strides", 2, stride);
    ct_onnx_end(x);
    return CT_OK;
}

static ct_status convolution(ct_onnx *x, const ct_onnx_layer *l)
{
    return convolution_as(x, l, "Conv");
}

static ct_status deconvolution(ct_onnx *x, const ct_onnx_layer *l)
{
    return convolution_as(x, l, "ConvTranspose");
}

/* Flatten, then Gemm. */
static ct_status inner_product(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__InnerProductParameter *p = l->layer->param->inner_product_param;

    if ((p->axis != 1) || (top_shape(l)->ndim != 2)) return no_form(l, "an axis other than 1");
    ct_onnx_begin(x, l, "Flatten");
    ct_onnx_bottom(x, l, 0);
    ct_onnx_part(x, l, "flat", true);
    ct_onnx_int(x, "axis", 1);
    ct_onnx_end(x);
    ct_onnx_begin(x, l, "Gemm");
    ct_onnx_part(x, l, "flat", false);
    for (int i = 0; i < l->layer->n_weight; i++) ct_onnx_weight(x, l, i, NULL);
    ct_onnx_top(x, l, 0);
    ct_onnx_int(x, "transB", p->transpose ? 0 : 1);
    ct_onnx_end(x);
    return CT_OK;
}

/* Caffe rounds sizes up and cuts windows off; pads of two different sides say the same. Means are
 * over what is left of a window, pads counted: with none, or where no window sticks out, that is
 * one of ONNX's two ways. */
static ct_status pooling(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__PoolingParameter *p = l->layer->param->pooling_param;
    bool mean = (p->pool == CT__POOLING_PARAMETER__POOL_METHOD__AVE), sticks_out = false;
    int64_t kernel[2] = { p->has_kernel_h ? p->kernel_h : p->kernel_size,
                          p->has_kernel_w ? p->kernel_w : p->kernel_size };
    int64_t stride[2] = { p->has_stride_h ? p->stride_h : p->stride,
                          p->has_stride_w ? p->stride_w : p->stride };
    int64_t pad[2] = { (p->has_pad_h || p->has_pad_w) ? p->pad_h : p->pad,
                       (p->has_pad_h || p->has_pad_w) ? p->pad_w : p->pad };
    int64_t pads[4];

    if ((p->pool == CT__POOLING_PARAMETER__POOL_METHOD__STOCHASTIC) || (l->layer->n_top != 1) ||
        (bottom_shape(l, 0)->ndim != 4))
        return no_form(l, "stochastic pooling, a mask, or other than two axes of space");
    if (p->global_pooling) return unary(x, l, mean ? "GlobalAveragePool" : "GlobalMaxPool");
    for (int i = 0; i < 2; i++) {
        int64_t in = bottom_shape(l, 0)->dim[2 + i], out = top_shape(l)->dim[2 + i];
        int64_t need = (out - 1) * stride[i] + kernel[i] - in - pad[i];

        pads[i] = pad[i];
        pads[2 + i] = (need > 0) ? need : 0;
        sticks_out = sticks_out || (need > pad[i]);
    }
    if (mean && sticks_out && ((pad[0] > 0) || (pad[1] > 0)))
        return no_form(l, "a mean with pads whose last window is cut off");
    ct_onnx_begin(x, l, mean ? "AveragePool" : "MaxPool");
    ct_onnx_bottom(x, l, 0);
    ct_onnx_top(x, l, 0);
    if (mean) ct_onnx_int(x, "count_include_pad", (pad[0] > 0) || (pad[1] > 0));
    ct_onnx_ints(x, "kernel_shape", 2, kernel);
    ct_onnx_ints(x, "pads", 4, pads);
    ct_onnx_ints(x, "strides", 2, stride);
    ct_onnx_end(x);
    return CT_OK;
}

static ct_status lrn(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__LRNParameter none = CT__LRNPARAMETER__INIT;
    const Ct__LRNParameter *p =
        (l->layer->param->lrn_param != NULL) ? l->layer->param->lrn_param : &none;

    if (p->norm_region != CT__LRNPARAMETER__NORM_REGION__ACROSS_CHANNELS)
        return no_form(l, "WITHIN_CHANNEL");
    ct_onnx_begin(x, l, "LRN");
    ct_onnx_bottom(x, l, 0);
    ct_onnx_top(x, l, 0);
    ct_onnx_float(x, "alpha", p->alpha);
    ct_onnx_float(x, "beta", p->beta);
    ct_onnx_float(x, "bias", p->k);
    ct_onnx_int(x, "size", p->local_size);
    ct_onnx_end(x);
    return CT_OK;
}

/* The sums that Caffe keeps, divided by the number of samples that they count; no scale, no shift.
 */
static ct_status batch_norm(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__BatchNormParameter none = CT__BATCH_NORM_PARAMETER__INIT;
    const Ct__BatchNormParameter *p =
        (l->layer->param->batch_norm_param != NULL) ? l->layer->param->batch_norm_param : &none;
    const ct_shape *shape = &l->layer->weight[0].shape;
    int64_t n = ct_shape_count(shape, 0, -1);
    float count = l->weights->array[2].data[0], one = (count != 0.0f) ? 1.0f / count : 0.0f;
    float *v = calloc((size_t)(4 * n) + 1, sizeof(*v));

    if (v == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", l->layer->name);
    for (int64_t i = 0; i < n; i++) {
        v[i] = 1.0f;
        v[2 * n + i] = one * l->weights->array[0].data[i];
        v[3 * n + i] = one * l->weights->array[1].data[i];
    }
    ct_onnx_begin(x, l, "BatchNormalization");
    ct_onnx_bottom(x, l, 0);
    ct_onnx_floats(x, l, "scale", shape, v);
    ct_onnx_floats(x, l, "shift", shape, v + n);
    ct_onnx_floats(x, l, "mean", shape, v + 2 * n);
    ct_onnx_floats(x, l, "variance", shape, v + 3 * n);
    ct_onnx_top(x, l, 0);
    ct_onnx_float(x, "epsilon", p->eps);
    ct_onnx_end(x);
    free(v);
    return CT_OK;
}

/* The shape of a weight that spans axes from `axis` on, so that it meets them: ones behind. */
static ct_shape spread(const ct_onnx_layer *l, int i, int axis)
{
    const ct_shape *w = &l->layer->weight[i].shape, *b = bottom_shape(l, 0);
    ct_shape s = { .ndim = b->ndim - ((axis < 0) ? axis + b->ndim : axis) };

    for (int d = 0; d < s.ndim; d++) s.dim[d] = (d < w->ndim) ? w->dim[d] : 1;
    return s;
}

static ct_status scale(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__ScaleParameter none = CT__SCALE_PARAMETER__INIT;
    const Ct__ScaleParameter *p =
        (l->layer->param->scale_param != NULL) ? l->layer->param->scale_param : &none;
    ct_shape shape;

    if ((l->layer->n_bottom != 1) || (l->layer->n_weight < 1)) return no_form(l, "a second bottom");
    shape = spread(l, 0, p->axis);
    ct_onnx_begin(x, l, "Mul");
    ct_onnx_bottom(x, l, 0);
    ct_onnx_weight(x, l, 0, &shape);
    if (l->layer->n_weight == 1) {
        ct_onnx_top(x, l, 0);
        ct_onnx_end(x);
        return CT_OK;
    }
    ct_onnx_part(x, l, "scaled", true);
    ct_onnx_end(x);
    ct_onnx_begin(x, l, "Add");
    ct_onnx_part(x, l, "scaled", false);
    ct_onnx_weight(x, l, 1, &shape);
    ct_onnx_top(x, l, 0);
    ct_onnx_end(x);
    return CT_OK;
}

static ct_status eltwise(ct_onnx *x, const ct_onnx_layer *l)
{
    static const char *const op[] = { "Mul", "Sum", "Max" };
    const Ct__EltwiseParameter none = CT__ELTWISE_PARAMETER__INIT;
    const Ct__EltwiseParameter *p =
        (l->layer->param->eltwise_param != NULL) ? l->layer->param->eltwise_param : &none;

    if ((p->operation == CT__ELTWISE_PARAMETER__ELTWISE_OP__PROD) && (l->layer->n_bottom != 2))
        return no_form(l, "a product of more than two");
    for (size_t i = 0; i < p->n_coeff; i++)
        if (p->coeff[i] != 1.0f) return no_form(l, "a coeff other than 1");
    ct_onnx_begin(x, l, op[p->operation]);
    for (int i = 0; i < l->layer->n_bottom; i++) ct_onnx_bottom(x, l, i);
    ct_onnx_top(x, l, 0);
    ct_onnx_end(x);
    return CT_OK;
}

static ct_status concat(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__ConcatParameter *p = l->layer->param->concat_param;
    int axis = (p == NULL) ? 1 : (p->has_concat_dim ? (int)p->concat_dim : p->axis);

    ct_onnx_begin(x, l, "Concat");
    for (int i = 0; i < l->layer->n_bottom; i++) ct_onnx_bottom(x, l, i);
    ct_onnx_top(x, l, 0);
    ct_onnx_int(x, "axis", axis);
    ct_onnx_end(x);
    return CT_OK;
}

static ct_status flatten(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__FlattenParameter *p = l->layer->param->flatten_param;

    if ((p != NULL) && ((p->axis != 1) || (p->end_axis != -1)))
        return no_form(l, "axes other than from 1 to the last");
    ct_onnx_begin(x, l, "Flatten");
    ct_onnx_bottom(x, l, 0);
    ct_onnx_top(x, l, 0);
    ct_onnx_int(x, "axis", 1);
    ct_onnx_end(x);
    return CT_OK;
}

static const struct {
    const char *type;
    ct_onnx_fn write;
} table[] = {
    { "AbsVal", abs_of },
    { "BNLL", softplus },
    { "BatchNorm", batch_norm },
    { "Concat", concat },
    { "Convolution", convolution },
    { "Deconvolution", deconvolution },
    { "Dropout", same },
    { "Eltwise", eltwise },
    { "Flatten", flatten },
    { "InnerProduct", inner_product },
    { "LRN", lrn },
    { "Pooling", pooling },
    { "ReLU", relu },
    { "Scale", scale },
    { "Sigmoid", sigmoid },
    { "Softmax", softmax },
    { "TanH", tanh_of },
};

ct_onnx_fn ct_onnx_find(const char *type)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (strcmp(table[i].type, type) == 0) return table[i].write;
    }
    return NULL;
}
