/* Layers that apply one function to each element: a row each in the list of
 * layers/engine/neuron/neuron_math.h. Here is how the prototxt chooses the function and its
 * constants.
 *
 * All run in place. Where the slope follows from y that costs nothing; otherwise the input is kept,
 * unless nobody wants the gradient. */
#include <math.h>
#include <string.h>

#include "framework/base/bf16.h"
#include "layers/engine/neuron/neuron_math.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

typedef ct_neuron_state neuron_state;

enum { INPUT = CT_NEURON_INPUT };

/* ---- constants */

static ct_status be_finite(const ct_layer *l, const char *field, float value)
{
    if (isfinite(value)) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%s is %g, not a number to compute with", field,
                         (double)value);
}

static ct_status choose_clip(const ct_layer *l, neuron_state *s)
{
    const Ct__ClipParameter *p = l->param->clip_param;

    if (p == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "clip_param with min and max is missing");
    if (!(p->min <= p->max))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "clip_param: min %g is not below max %g",
                             (double)p->min, (double)p->max);
    s->args = (ct_neuron_args){ .a = p->min, .b = p->max };
    return CT_OK;
}

static ct_status choose_elu(const ct_layer *l, neuron_state *s)
{
    const Ct__ELUParameter *p = l->param->elu_param;

    s->args.a = (p != NULL) ? p->alpha : 1.0f;
    /* below 0 it turns the curve up, and y no longer tells on which side x was */
    if (s->args.a < 0.0f) s->fn = &ct_neuron_elu_below;
    return be_finite(l, "elu_param.alpha", s->args.a);
}

/* ln(base), of a base that is -1 (e) or above 0. */
static ct_status log_of_base(const ct_layer *l, const char *field, float base, double *log_p)
{
    if ((base != -1.0f) && !((base > 0.0f) && isfinite(base)))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%s %g must be above 0, or -1 for e", field,
                             (double)base);
    *log_p = (base == -1.0f) ? 1.0 : log((double)base);
    return CT_OK;
}

static ct_status choose_exp(const ct_layer *l, neuron_state *s)
{
    const Ct__ExpParameter *p = l->param->exp_param;
    double log_base;

    s->args = (ct_neuron_args){ .a = 1.0f, .b = 1.0f };
    if (p == NULL) return CT_OK;
    CT_TRY(be_finite(l, "exp_param.scale", p->scale));
    CT_TRY(be_finite(l, "exp_param.shift", p->shift));
    CT_TRY(log_of_base(l, "exp_param.base", p->base_, &log_base));
    s->args.a = (float)(log_base * (double)p->scale);
    s->args.b = (float)exp(log_base * (double)p->shift);
    return be_finite(l, "exp_param: base ^ shift", s->args.b);
}

static ct_status choose_gelu(const ct_layer *l, neuron_state *s)
{
    const Ct__GELUParameter *p = l->param->gelu_param;

    if ((p != NULL) && (p->approximate == CT__GELUPARAMETER__APPROXIMATE__TANH))
        s->fn = &ct_neuron_gelu_tanh;
    return CT_OK;
}

static ct_status choose_log(const ct_layer *l, neuron_state *s)
{
    const Ct__LogParameter *p = l->param->log_param;
    double log_base;

    s->args = (ct_neuron_args){ .a = 1.0f, .b = 0.0f, .c = 1.0f };
    if (p == NULL) return CT_OK;
    CT_TRY(be_finite(l, "log_param.scale", p->scale));
    CT_TRY(be_finite(l, "log_param.shift", p->shift));
    CT_TRY(log_of_base(l, "log_param.base", p->base_, &log_base));
    if (log_base == 0.0)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "log_param.base 1 has no logarithm");
    s->args = (ct_neuron_args){ .a = p->scale, .b = p->shift, .c = (float)(1.0 / log_base) };
    return CT_OK;
}

static ct_status choose_power(const ct_layer *l, neuron_state *s)
{
    static const struct {
        float power;
        const ct_neuron *fn;
    } special[] = { { 1.0f, &ct_neuron_affine },
                    { 2.0f, &ct_neuron_square },
                    { 0.5f, &ct_neuron_root },
                    { -0.5f, &ct_neuron_inverse_root },
                    { -1.0f, &ct_neuron_inverse } };
    const Ct__PowerParameter *p = l->param->power_param;
    float power = (p != NULL) ? p->power : 1.0f, scale = (p != NULL) ? p->scale : 1.0f;
    float shift = (p != NULL) ? p->shift : 0.0f;

    CT_TRY(be_finite(l, "power_param.power", power));
    CT_TRY(be_finite(l, "power_param.scale", scale));
    CT_TRY(be_finite(l, "power_param.shift", shift));
    s->args = (ct_neuron_args){ .a = scale, .b = shift, .c = power, .d = power * scale };
    for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++) {
        if (power == special[i].power) s->fn = special[i].fn;
    }
    if (s->args.d != 0.0f) return CT_OK;
    s->fn = &ct_neuron_constant; /* whatever x is, be it not a number: as Caffe */
    s->args.a = (power == 0.0f) ? 1.0f : powf(shift, power);
    return CT_OK;
}

static ct_status choose_relu6(const ct_layer *l, neuron_state *s)
{
    const Ct__ReLU6Parameter *p = l->param->relu6_param;

    s->args.a = (p != NULL) ? p->negative_slope : 0.0f;
    if (!(s->args.a >= 0.0f) || !isfinite(s->args.a))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "relu6_param.negative_slope %g must be at least 0",
                             (double)s->args.a);
    return CT_OK;
}

static ct_status choose_swish(const ct_layer *l, neuron_state *s)
{
    s->args.a = (l->param->swish_param != NULL) ? l->param->swish_param->beta : 1.0f;
    return be_finite(l, "swish_param.beta", s->args.a);
}

static ct_status choose_threshold(const ct_layer *l, neuron_state *s)
{
    const Ct__ThresholdParameter *p = l->param->threshold_param;

    s->args.a = (p != NULL) ? p->threshold : 0.0f;
    return be_finite(l, "threshold_param.threshold", s->args.a);
}

/* ---- the layers */

typedef ct_status (*choose_fn)(const ct_layer *l, neuron_state *s);

static ct_status set_up(ct_layer *l, const ct_neuron *fn, choose_fn choose)
{
    neuron_state *s = l->state;

    s->fn = fn;
    if (choose != NULL) CT_TRY(choose(l, s));
    l->backward_reads = s->fn->reads;
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const neuron_state *s = l->state;
    const ct_blob *x = in->bottom[0];
    bool in_place = in->top[0] == x;
    bool keeps = in_place && x->wants_diff && (s->fn->reads == CT_READS_BOTTOM);

    ct_instance_buffer(in, INPUT, CT_LIFETIME_PASS, keeps ? ct_tensor_bytes(&x->data) : 0);
    if (keeps) in->backward_reads = 0;
    in->over = 1;
    if (!in_place) ct_blob_set_like(in->top[0], &x->data.shape, &x->data);
    return CT_OK;
}

/* All of it as one row. */
static ct_neuron_rows rows_of(const ct_instance *in)
{
    return (ct_neuron_rows){ .rows = 1,
                             .n = ct_tensor_stored(&in->bottom[0]->data),
                             .x = ct_blob_data(in->bottom[0]),
                             .bf16 = ct_blob_is_bf16(in->bottom[0]) };
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_neuron_rows r = rows_of(in);

    (void)ex;
    if (in->buffer[INPUT].bytes > 0)
        ct_copy_bytes(in->buffer[INPUT].bytes, r.x, in->buffer[INPUT].data);
    ct_neuron_forward(l->state, &r, ct_blob_data(in->top[0]));
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const neuron_state *s = l->state;
    ct_neuron_rows r = rows_of(in);
    ct_neuron_back b = { .dy = ct_blob_diff(in->top[0]), .dx = ct_blob_diff(in->bottom[0]) };

    (void)ex;
    if (b.dx == NULL) return CT_OK;
    if (s->fn->reads == CT_READS_TOP) r.x = ct_blob_data(in->top[0]);
    if ((s->fn->reads == CT_READS_BOTTOM) && (in->buffer[INPUT].bytes > 0))
        r.x = in->buffer[INPUT].data;
    if (s->fn->reads == 0) r.x = b.dy;
    ct_neuron_backward(s, &r, &b);
    return CT_OK;
}

/* An InnerProduct in front runs those whose slope is one of their input. */
#define NEURON(_name, _type, _fn, _choose, _params, _layout, _backward, ...)                       \
    static ct_status _name##_setup(ct_layer *l, const ct_shape *bottom)                            \
    {                                                                                              \
        (void)bottom;                                                                              \
        return set_up(l, &ct_neuron_##_fn, _choose);                                               \
    }                                                                                              \
    static bool _name##_as_epilogue(const Ct__LayerParameter *p, ct_epilogue_kind *kind_p)         \
    {                                                                                              \
        (void)p;                                                                                   \
        *kind_p = CT_EPILOGUE_EACH;                                                                \
        return ct_neuron_##_fn.reads == CT_READS_BOTTOM;                                           \
    }                                                                                              \
    static const ct_fusion_ops _name##_fusion = { .as_epilogue = _name##_as_epilogue };            \
    static const ct_formula_step _name##_formula[] = { __VA_ARGS__, { .op = NULL } };              \
    extern const ct_layer_ops ct_layer_##_name;                                                    \
    const ct_layer_ops ct_layer_##_name = {                                                        \
        .type = _type,                                                                             \
        .min_bottom = 1,                                                                           \
        .max_bottom = 1,                                                                           \
        .min_top = 1,                                                                              \
        .max_top = 1,                                                                              \
        .params = _params,                                                                         \
        .splits = CT_SPLIT_EACH,                                                                   \
        .allow_inplace = true,                                                                     \
        .backward_reads = CT_READS_TOP | CT_READS_BOTTOM, /* setup narrows */                      \
        .state_size = sizeof(neuron_state),                                                        \
        .setup = _name##_setup,                                                                    \
        .reshape = reshape,                                                                        \
        .forward = forward,                                                                        \
        .backward = _backward,                                                                     \
        .formula = _name##_formula,                                                                \
        .layout = _layout,                                                                         \
        .fusion = &_name##_fusion,                                                                 \
        .sequence = &ct_sequence_apart,                                                            \
    };

CT_NEURON_LAYERS(NEURON)
