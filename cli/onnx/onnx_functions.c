/* Functions of each element whose operators depend on parameters, and normalisations, in ONNX's
 * operators. Other functions say theirs in their own table (ct_layer_ops.formula). */
#include <math.h>

#include "cli/onnx/onnx_forms.h"

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

/* x/2 (1 + erf(x / sqrt 2)) */
static ct_status gelu(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__GELUParameter *p = PARAMETER(l, gelu_param);

    if ((p != NULL) && (p->approximate != CT__GELUPARAMETER__APPROXIMATE__NONE))
        return ct_onnx_no_form(l, "approximate: TANH");
    ct_onnx_by_number(x, l, "Mul", NULL, "unit", (float)sqrt(0.5), "scaled");
    ct_onnx_unary(x, l, "Erf", "scaled", "erf");
    ct_onnx_by_number(x, l, "Add", "erf", "one", 1.0f, "gate");
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
    { "ReLU", relu },
    { "ReLU6", relu6 },
    { "Swish", swish },
    { NULL, NULL },
};
