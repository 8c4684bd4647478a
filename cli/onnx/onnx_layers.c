/* Caffe's layers in ONNX's operators, in the phase TEST. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/onnx/onnx_impl.h"

static ct_status same(ct_onnx *x, const ct_onnx_layer *l)
{
    ct_onnx_alias(x, l, 0);
    return CT_OK;
}

static ct_status same_all(ct_onnx *x, const ct_onnx_layer *l)
{
    for (int i = 0; i < l->layer->n_top; i++) ct_onnx_alias(x, l, i);
    return CT_OK;
}

static ct_status softmax_to(ct_onnx *x, const ct_onnx_layer *l,
                            void (*output)(ct_onnx *x, const ct_onnx_layer *l))
{
    const Ct__SoftmaxParameter *p = l->layer->param->softmax_param;

    ct_onnx_begin(x, l, "Softmax");
    ct_onnx_bottom(x, l, 0);
    output(x, l);
    ct_onnx_int(x, "axis", (p != NULL) ? p->axis : 1);
    ct_onnx_end(x);
    return CT_OK;
}

static void top(ct_onnx *x, const ct_onnx_layer *l)
{
    ct_onnx_top(x, l, 0);
}

static ct_status softmax(ct_onnx *x, const ct_onnx_layer *l)
{
    return softmax_to(x, l, top);
}

/* Its labels are left out, and with them the loss. */
static ct_status softmax_loss(ct_onnx *x, const ct_onnx_layer *l)
{
    return softmax_to(x, l, ct_onnx_probabilities);
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
    int64_t kernel[2], stride[2], pad[2], dilation[2], pads[4], group = p->group;

    if (strcmp(l->layer->ops->type, "DepthwiseConvolution") == 0)
        group = ct_onnx_bottom_shape(l, 0)->dim[1];
    if (ct_onnx_bottom_shape(l, 0)->ndim != 4)
        return ct_onnx_no_form(l, "other than two axes of space");
    pair(p->n_kernel_size, p->kernel_size, p->has_kernel_h, p->kernel_h, p->kernel_w, 1, kernel);
    pair(p->n_stride, p->stride, p->has_stride_h, p->stride_h, p->stride_w, 1, stride);
    pair(p->n_pad, p->pad, p->has_pad_h || p->has_pad_w, p->pad_h, p->pad_w, 0, pad);
    pair(p->n_dilation, p->dilation, false, 0, 0, 1, dilation);
    for (int i = 0; i < 4; i++) pads[i] = pad[i % 2];
    for (int b = 0; b < l->layer->n_bottom; b++) {
        ct_onnx_begin(x, l, op);
        ct_onnx_bottom(x, l, b);
        for (int i = 0; i < l->layer->n_weight; i++) ct_onnx_weight(x, l, i, NULL);
        ct_onnx_top(x, l, b);
        ct_onnx_ints(x, "dilations", 2, dilation);
        ct_onnx_int(x, "group", group);
        ct_onnx_ints(x, "kernel_shape", 2, kernel);
        ct_onnx_ints(x, "pads", 4, pads);
        ct_onnx_ints(x, "strides", 2, stride);
        ct_onnx_end(x);
    }
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

/* Flatten, then Gemm; and where several axes count the rows, its shape. */
static ct_status inner_product(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__InnerProductParameter *p = l->layer->param->inner_product_param;
    int axis = (p->axis < 0) ? p->axis + ct_onnx_bottom_shape(l, 0)->ndim : p->axis;
    bool rows = ct_onnx_top_shape(l)->ndim == 2;

    ct_onnx_begin(x, l, "Flatten");
    ct_onnx_bottom(x, l, 0);
    ct_onnx_part(x, l, "flat", true);
    ct_onnx_int(x, "axis", axis);
    ct_onnx_end(x);
    ct_onnx_begin(x, l, "Gemm");
    ct_onnx_part(x, l, "flat", false);
    for (int i = 0; i < l->layer->n_weight; i++) ct_onnx_weight(x, l, i, NULL);
    ct_onnx_to(x, l, rows ? NULL : "rows");
    ct_onnx_int(x, "transB", p->transpose ? 0 : 1);
    ct_onnx_end(x);
    if (!rows) ct_onnx_reshape(x, l, -1, "rows", "shape", ct_onnx_top_shape(l), NULL);
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
        (ct_onnx_bottom_shape(l, 0)->ndim != 4))
        return ct_onnx_no_form(l, "stochastic pooling, a mask, or other than two axes of space");
    for (size_t i = 0; i < p->n_dilation; i++) {
        if (p->dilation[i] > 1) return ct_onnx_no_form(l, "dilated windows");
    }
    if (p->global_pooling) {
        ct_onnx_unary(x, l, mean ? "GlobalAveragePool" : "GlobalMaxPool", NULL, NULL);
        return CT_OK;
    }
    for (int i = 0; i < 2; i++) {
        int64_t in = ct_onnx_bottom_shape(l, 0)->dim[2 + i], out = ct_onnx_top_shape(l)->dim[2 + i];
        int64_t need = (out - 1) * stride[i] + kernel[i] - in - pad[i];

        pads[i] = pad[i];
        pads[2 + i] = (need > 0) ? need : 0;
        sticks_out = sticks_out || (need > pad[i]);
    }
    if (mean && p->avg_include_pad && sticks_out && ((pad[0] > 0) || (pad[1] > 0)))
        return ct_onnx_no_form(l, "a mean with pads whose last window is cut off");
    ct_onnx_begin(x, l, mean ? "AveragePool" : "MaxPool");
    ct_onnx_bottom(x, l, 0);
    ct_onnx_top(x, l, 0);
    if (mean)
        ct_onnx_int(x, "count_include_pad", p->avg_include_pad && ((pad[0] > 0) || (pad[1] > 0)));
    ct_onnx_ints(x, "kernel_shape", 2, kernel);
    ct_onnx_ints(x, "pads", 4, pads);
    ct_onnx_ints(x, "strides", 2, stride);
    ct_onnx_end(x);
    return CT_OK;
}

/* x (1 + alpha mean(x^2))^-beta, means over windows with their pads, all inside one channel. */
static ct_status lrn_within(ct_onnx *x, const ct_onnx_layer *l, const Ct__LRNParameter *p)
{
    const int64_t size = p->local_size, half = size / 2;
    const int64_t kernel[2] = { size, size }, pads[4] = { half, half, half, half };

    if (ct_onnx_bottom_shape(l, 0)->ndim != 4)
        return ct_onnx_no_form(l, "other than two axes of space");
    ct_onnx_begin(x, l, "Mul");
    ct_onnx_bottom(x, l, 0);
    ct_onnx_bottom(x, l, 0);
    ct_onnx_to(x, l, "squares");
    ct_onnx_end(x);
    ct_onnx_from(x, l, "AveragePool", "squares");
    ct_onnx_to(x, l, "means");
    ct_onnx_int(x, "count_include_pad", 1);
    ct_onnx_ints(x, "kernel_shape", 2, kernel);
    ct_onnx_ints(x, "pads", 4, pads);
    ct_onnx_end(x);
    ct_onnx_by_number(x, l, "Mul", "means", "alpha", p->alpha, "part");
    ct_onnx_by_number(x, l, "Add", "part", "one", 1.0f, "scale");
    ct_onnx_by_number(x, l, "Pow", "scale", "minus_beta", -p->beta, "factor");
    ct_onnx_by_part(x, l, "Mul", NULL, "factor", NULL);
    return CT_OK;
}

static ct_status lrn(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__LRNParameter none = CT__LRNPARAMETER__INIT;
    const Ct__LRNParameter *p =
        (l->layer->param->lrn_param != NULL) ? l->layer->param->lrn_param : &none;

    if (p->norm_region != CT__LRNPARAMETER__NORM_REGION__ACROSS_CHANNELS)
        return lrn_within(x, l, p);
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
    float count = ct_onnx_array(l, 2)->data[0], one = (count != 0.0f) ? 1.0f / count : 0.0f;
    float *v = calloc((size_t)(4 * n) + 1, sizeof(*v));

    if (v == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", l->layer->name);
    for (int64_t i = 0; i < n; i++) {
        v[i] = 1.0f;
        v[2 * n + i] = one * ct_onnx_array(l, 0)->data[i];
        v[3 * n + i] = one * ct_onnx_array(l, 1)->data[i];
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

/* Terms of a sum with their factors first. */
static ct_status weighted_sum(ct_onnx *x, const ct_onnx_layer *l, const Ct__EltwiseParameter *p)
{
    char name[32], part[32];

    for (int i = 0; i < l->layer->n_bottom; i++) {
        snprintf(name, sizeof(name), "coeff%d", i);
        snprintf(part, sizeof(part), "term%d", i);
        ct_onnx_begin(x, l, "Mul");
        ct_onnx_bottom(x, l, i);
        ct_onnx_number(x, l, name, p->coeff[i]);
        ct_onnx_to(x, l, part);
        ct_onnx_end(x);
    }
    ct_onnx_begin(x, l, "Sum");
    for (int i = 0; i < l->layer->n_bottom; i++) {
        snprintf(part, sizeof(part), "term%d", i);
        ct_onnx_part(x, l, part, false);
    }
    ct_onnx_to(x, l, NULL);
    ct_onnx_end(x);
    return CT_OK;
}

/* A product has two factors in ONNX. */
static ct_status product(ct_onnx *x, const ct_onnx_layer *l)
{
    int n = l->layer->n_bottom;
    char part[32];

    for (int i = 1; i < n; i++) {
        ct_onnx_begin(x, l, "Mul");
        if (i == 1)
            ct_onnx_bottom(x, l, 0);
        else
            ct_onnx_part(x, l, part, false);
        ct_onnx_bottom(x, l, i);
        snprintf(part, sizeof(part), "product%d", i);
        ct_onnx_to(x, l, (i == n - 1) ? NULL : part);
        ct_onnx_end(x);
    }
    return CT_OK;
}

static ct_status eltwise(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__EltwiseParameter none = CT__ELTWISE_PARAMETER__INIT;
    const Ct__EltwiseParameter *p =
        (l->layer->param->eltwise_param != NULL) ? l->layer->param->eltwise_param : &none;

    if (p->operation == CT__ELTWISE_PARAMETER__ELTWISE_OP__PROD) return product(x, l);
    for (size_t i = 0; i < p->n_coeff; i++) {
        if (p->coeff[i] != 1.0f) return weighted_sum(x, l, p);
    }
    ct_onnx_begin(x, l, (p->operation == CT__ELTWISE_PARAMETER__ELTWISE_OP__MAX) ? "Max" : "Sum");
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

    if ((p != NULL) && ((p->axis != 1) || (p->end_axis != -1))) {
        ct_onnx_reshape(x, l, 0, NULL, "shape", ct_onnx_top_shape(l), NULL);
        return CT_OK;
    }
    ct_onnx_begin(x, l, "Flatten");
    ct_onnx_bottom(x, l, 0);
    ct_onnx_top(x, l, 0);
    ct_onnx_int(x, "axis", 1);
    ct_onnx_end(x);
    return CT_OK;
}

/* The forks' normalisation, scale and shift in one, by the running statistics. */
static ct_status bn(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__BNParameter none = CT__BNPARAMETER__INIT;
    const Ct__BNParameter *p =
        (l->layer->param->bn_param != NULL) ? l->layer->param->bn_param : &none;
    bool averages = p->has_var_eps || p->has_decay || p->has_moving_average;
    ct_shape shape = { 1, { ct_onnx_bottom_shape(l, 0)->dim[1] } };

    if ((l->layer->n_weight != 4) || (p->has_moving_average && !p->moving_average))
        return ct_onnx_no_form(l, "statistics of the batch");
    ct_onnx_begin(x, l, "BatchNormalization");
    ct_onnx_bottom(x, l, 0);
    for (int i = 0; i < 4; i++) ct_onnx_weight(x, l, i, &shape);
    ct_onnx_top(x, l, 0);
    ct_onnx_float(x, "epsilon", averages ? (p->has_var_eps ? p->var_eps : 1e-10f) : p->eps);
    ct_onnx_end(x);
    return CT_OK;
}

/* ONNX's is Fast R-CNN's own. */
static ct_status roi_pooling(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__ROIPoolingParameter *p = l->layer->param->roi_pooling_param;
    const int64_t size[2] = { p->pooled_h, p->pooled_w };

    ct_onnx_begin(x, l, "MaxRoiPool");
    ct_onnx_bottom(x, l, 0);
    ct_onnx_bottom(x, l, 1);
    ct_onnx_top(x, l, 0);
    ct_onnx_ints(x, "pooled_shape", 2, size);
    ct_onnx_float(x, "spatial_scale", p->spatial_scale);
    ct_onnx_end(x);
    return CT_OK;
}

const ct_onnx_form ct_onnx_layers[] = {
    { "BN", bn },
    { "BatchNorm", batch_norm },
    { "Concat", concat },
    { "Convolution", convolution },
    { "Deconvolution", deconvolution },
    { "DepthwiseConvolution", convolution },
    { "Dropout", same },
    { "Eltwise", eltwise },
    { "Flatten", flatten },
    { "InnerProduct", inner_product },
    { "LRN", lrn },
    { "Pooling", pooling },
    { "ROIPooling", roi_pooling },
    { "Softmax", softmax },
    { "SoftmaxWithLoss", softmax_loss },
    { "Split", same_all }, /* where the prototxt has one: every value may have many readers */
    { "SyncBN", bn },
    { NULL, NULL },
};

/* ---- functions of each element whose operators depend on parameters, and normalisations, in
 * ONNX's operators. Other functions say theirs in their own table (ct_layer_ops.formula). */

#define PARAMETER(_l, _field) ((_l)->layer->param->_field)

static ct_status plain(ct_onnx *x, const ct_onnx_layer *l, const char *op)
{
    ct_onnx_unary(x, l, op, NULL, NULL);
    return CT_OK;
}

static ct_status with_alpha(ct_onnx *x, const ct_onnx_layer *l, const char *op, float alpha)
{
    ct_onnx_from(x, l, op, NULL);
    ct_onnx_to(x, l, NULL);
    ct_onnx_float(x, "alpha", alpha);
    ct_onnx_end(x);
    return CT_OK;
}

static ct_status relu(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__ReLUParameter *p = PARAMETER(l, relu_param);

    if ((p == NULL) || (p->negative_slope == 0.0f)) return plain(x, l, "Relu");
    return with_alpha(x, l, "LeakyRelu", p->negative_slope);
}

static ct_status elu(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__ELUParameter *p = PARAMETER(l, elu_param);

    return with_alpha(x, l, "Elu", (p != NULL) ? p->alpha : 1.0f);
}

static ct_status between(ct_onnx *x, const ct_onnx_layer *l, float low, float high)
{
    ct_onnx_from(x, l, "Clip", NULL);
    ct_onnx_number(x, l, "min", low);
    ct_onnx_number(x, l, "max", high);
    ct_onnx_to(x, l, NULL);
    ct_onnx_end(x);
    return CT_OK;
}

static ct_status clip(ct_onnx *x, const ct_onnx_layer *l)
{
    return between(x, l, PARAMETER(l, clip_param)->min, PARAMETER(l, clip_param)->max);
}

static ct_status relu6(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__ReLU6Parameter *p = PARAMETER(l, relu6_param);

    if ((p != NULL) && (p->negative_slope != 0.0f)) return ct_onnx_no_form(l, "a negative_slope");
    return between(x, l, 0.0f, 6.0f);
}

/* scale x + shift */
static void affine(ct_onnx *x, const ct_onnx_layer *l, float scale, float shift, const char *output)
{
    ct_onnx_by_number(x, l, "Mul", NULL, "scale", scale, "scaled");
    ct_onnx_by_number(x, l, "Add", "scaled", "shift", shift, output);
}

static ct_status exp_of(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__ExpParameter none = CT__EXP_PARAMETER__INIT;
    const Ct__ExpParameter *p = (PARAMETER(l, exp_param) != NULL) ? PARAMETER(l, exp_param) : &none;
    double ln = (p->base_ == -1.0f) ? 1.0 : log((double)p->base_);

    affine(x, l, (float)(ln * (double)p->scale), (float)(ln * (double)p->shift), "power");
    ct_onnx_unary(x, l, "Exp", "power", NULL);
    return CT_OK;
}

static ct_status log_of(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__LogParameter none = CT__LOG_PARAMETER__INIT;
    const Ct__LogParameter *p = (PARAMETER(l, log_param) != NULL) ? PARAMETER(l, log_param) : &none;
    double ln = (p->base_ == -1.0f) ? 1.0 : log((double)p->base_);

    affine(x, l, p->scale, p->shift, "value");
    ct_onnx_unary(x, l, "Log", "value", "log");
    ct_onnx_by_number(x, l, "Mul", "log", "unit", (float)(1.0 / ln), NULL);
    return CT_OK;
}

static ct_status power(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__PowerParameter none = CT__POWER_PARAMETER__INIT;
    const Ct__PowerParameter *p =
        (PARAMETER(l, power_param) != NULL) ? PARAMETER(l, power_param) : &none;

    affine(x, l, p->scale, p->shift, (p->power == 1.0f) ? NULL : "base");
    if (p->power != 1.0f) ct_onnx_by_number(x, l, "Pow", "base", "power", p->power, NULL);
    return CT_OK;
}

static ct_status prelu(ct_onnx *x, const ct_onnx_layer *l)
{
    bool shared = l->layer->weight[0].shape.ndim == 0;
    ct_shape shape =
        shared ? (ct_shape){ 1, { 1 } } : ct_onnx_spread(l, &l->layer->weight[0].shape, 1);

    ct_onnx_from(x, l, "PRelu", NULL);
    ct_onnx_weight(x, l, 0, &shape);
    ct_onnx_to(x, l, NULL);
    ct_onnx_end(x);
    return CT_OK;
}

static ct_status swish(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__SwishParameter *p = PARAMETER(l, swish_param);

    ct_onnx_by_number(x, l, "Mul", NULL, "beta", (p != NULL) ? p->beta : 1.0f, "scaled");
    ct_onnx_unary(x, l, "Sigmoid", "scaled", "gate");
    ct_onnx_by_part(x, l, "Mul", NULL, "gate", NULL);
    return CT_OK;
}

/* x/2 (1 + f), f: erf(x / sqrt 2), or tanh(sqrt(2 / pi) (x + 0.044715 x^3)), by Hendrycks and
 * Gimpel 2016. */
static ct_status gelu(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__GELUParameter *p = PARAMETER(l, gelu_param);
    bool by_tanh = (p != NULL) && (p->approximate != CT__GELUPARAMETER__APPROXIMATE__NONE);

    if (by_tanh) {
        ct_onnx_by_number(x, l, "Pow", NULL, "three", 3.0f, "cube");
        ct_onnx_by_number(x, l, "Mul", "cube", "part", 0.044715f, "more");
        ct_onnx_by_part(x, l, "Add", NULL, "more", "sum");
    }
    ct_onnx_by_number(x, l, "Mul", by_tanh ? "sum" : NULL, "unit",
                      (float)(by_tanh ? sqrt(2.0 / acos(-1.0)) : sqrt(0.5)), "scaled");
    ct_onnx_unary(x, l, by_tanh ? "Tanh" : "Erf", "scaled", "open");
    ct_onnx_by_number(x, l, "Add", "open", "one", 1.0f, "gate");
    ct_onnx_by_part(x, l, "Mul", NULL, "gate", "twice");
    ct_onnx_by_number(x, l, "Mul", "twice", "half", 0.5f, NULL);
    return CT_OK;
}

/* ---- normalisations */

/* The mean over axes [first, ndim), kept as axes of 1. */
static void mean(ct_onnx *x, const ct_onnx_layer *l, const char *input, int first,
                 const char *output)
{
    int ndim = l->in->bottom[0]->data.shape.ndim;
    int64_t axes[CT_MAX_DIM];

    for (int i = first; i < ndim; i++) axes[i - first] = i;
    ct_onnx_from(x, l, "ReduceMean", input);
    ct_onnx_to(x, l, output);
    ct_onnx_ints(x, "axes", ndim - first, axes);
    ct_onnx_int(x, "keepdims", 1);
    ct_onnx_end(x);
}

static ct_status layer_norm(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__LayerNormParameter none = CT__LAYER_NORM_PARAMETER__INIT;
    const Ct__LayerNormParameter *p =
        (PARAMETER(l, layer_norm_param) != NULL) ? PARAMETER(l, layer_norm_param) : &none;
    int axis = (p->axis < 0) ? p->axis + l->in->bottom[0]->data.shape.ndim : p->axis;
    bool affine_too = l->layer->n_weight == 2;

    mean(x, l, NULL, axis, "mean");
    ct_onnx_by_part(x, l, "Sub", NULL, "mean", "off");
    ct_onnx_by_part(x, l, "Mul", "off", "off", "square");
    mean(x, l, "square", axis, "variance");
    ct_onnx_by_number(x, l, "Add", "variance", "eps", p->eps, "more");
    ct_onnx_unary(x, l, "Sqrt", "more", "deviation");
    ct_onnx_by_part(x, l, "Div", "off", "deviation", affine_too ? "normal" : NULL);
    for (int i = 0; affine_too && (i < 2); i++) {
        ct_onnx_from(x, l, (i == 0) ? "Mul" : "Add", (i == 0) ? "normal" : "scaled");
        ct_onnx_weight(x, l, i, NULL);
        ct_onnx_to(x, l, (i == 0) ? "scaled" : NULL);
        ct_onnx_end(x);
    }
    return CT_OK;
}

static ct_status rms_norm(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__RMSNormParameter none = CT__RMSNORM_PARAMETER__INIT;
    const Ct__RMSNormParameter *p =
        (PARAMETER(l, rms_norm_param) != NULL) ? PARAMETER(l, rms_norm_param) : &none;
    int axis = (p->axis < 0) ? p->axis + l->in->bottom[0]->data.shape.ndim : p->axis;

    ct_onnx_from(x, l, "Mul", NULL);
    ct_onnx_bottom(x, l, 0);
    ct_onnx_to(x, l, "square");
    ct_onnx_end(x);
    mean(x, l, "square", axis, "mean");
    ct_onnx_by_number(x, l, "Add", "mean", "eps", p->eps, "more");
    ct_onnx_unary(x, l, "Sqrt", "more", "size");
    ct_onnx_by_part(x, l, "Div", NULL, "size", "normal");
    ct_onnx_from(x, l, "Mul", "normal");
    ct_onnx_weight(x, l, 0, NULL);
    ct_onnx_to(x, l, NULL);
    ct_onnx_end(x);
    return CT_OK;
}

/* Of one bottom the last axis is cut into gate and up first. */
static ct_status swiglu(ct_onnx *x, const ct_onnx_layer *l)
{
    bool packed = l->layer->n_bottom == 1;
    const char *gate = packed ? "gate" : NULL;

    if (packed) {
        ct_onnx_from(x, l, "Split", NULL);
        ct_onnx_part(x, l, "gate", true);
        ct_onnx_part(x, l, "up", true);
        ct_onnx_int(x, "axis", -1);
        ct_onnx_end(x);
    }
    ct_onnx_unary(x, l, "Sigmoid", gate, "open");
    ct_onnx_by_part(x, l, "Mul", gate, "open", "silu");
    ct_onnx_from(x, l, "Mul", "silu");
    if (packed)
        ct_onnx_part(x, l, "up", false);
    else
        ct_onnx_bottom(x, l, 1);
    ct_onnx_to(x, l, NULL);
    ct_onnx_end(x);
    return CT_OK;
}

static ct_status mvn(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__MVNParameter none = CT__MVNPARAMETER__INIT;
    const Ct__MVNParameter *p = (PARAMETER(l, mvn_param) != NULL) ? PARAMETER(l, mvn_param) : &none;
    int axis = p->across_channels ? 1 : 2;

    if (l->in->bottom[0]->data.shape.ndim != 4) return ct_onnx_no_form(l, "other than 4 axes");
    mean(x, l, NULL, axis, "mean");
    ct_onnx_by_part(x, l, "Sub", NULL, "mean", p->normalize_variance ? "off" : NULL);
    if (!p->normalize_variance) return CT_OK;
    ct_onnx_by_part(x, l, "Mul", "off", "off", "square");
    mean(x, l, "square", axis, "variance");
    ct_onnx_unary(x, l, "Sqrt", "variance", "deviation");
    ct_onnx_by_number(x, l, "Add", "deviation", "eps", p->eps, "more");
    ct_onnx_by_part(x, l, "Div", "off", "more", NULL);
    return CT_OK;
}

/* SSD's: s x / sqrt(sum x^2 + eps) */
static ct_status normalize(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__NormalizeParameter none = CT__NORMALIZE_PARAMETER__INIT;
    const Ct__NormalizeParameter *p =
        (PARAMETER(l, norm_param) != NULL) ? PARAMETER(l, norm_param) : &none;
    int n = p->across_spatial ? l->in->bottom[0]->data.shape.ndim - 1 : 1;
    ct_shape shape =
        p->channel_shared ? (ct_shape){ 0 } : ct_onnx_spread(l, &l->layer->weight[0].shape, 1);
    int64_t axes[CT_MAX_DIM];

    for (int i = 0; i < n; i++) axes[i] = i + 1;
    ct_onnx_from(x, l, "ReduceSumSquare", NULL);
    ct_onnx_to(x, l, "sum");
    ct_onnx_ints(x, "axes", n, axes);
    ct_onnx_int(x, "keepdims", 1);
    ct_onnx_end(x);
    ct_onnx_by_number(x, l, "Add", "sum", "eps", p->eps, "more");
    ct_onnx_unary(x, l, "Sqrt", "more", "norm");
    ct_onnx_by_part(x, l, "Div", NULL, "norm", "unit");
    ct_onnx_from(x, l, "Mul", "unit");
    ct_onnx_weight(x, l, 0, &shape);
    ct_onnx_to(x, l, NULL);
    ct_onnx_end(x);
    return CT_OK;
}

const ct_onnx_form ct_onnx_functions[] = {
    { "Clip", clip },
    { "ELU", elu },
    { "Exp", exp_of },
    { "GELU", gelu },
    { "LayerNorm", layer_norm },
    { "Log", log_of },
    { "MVN", mvn },
    { "Normalize", normalize },
    { "PReLU", prelu },
    { "Power", power },
    { "RMSNorm", rms_norm },
    { "ReLU", relu },
    { "ReLU6", relu6 },
    { "SwiGLU", swiglu },
    { "Swish", swish },
    { NULL, NULL },
};
