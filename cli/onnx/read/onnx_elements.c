/* Operators of each element: functions, and sums and products of values that broadcast. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/onnx/read/onnx_read.h"
#include "framework/base/memory.h"

static const char *op_of(const ct_onnx_reader *r)
{
    return r->step[r->at].op;
}

/* ---- functions */

/* Layers that have the operator's own formula. */
static ct_status function(ct_onnx_reader *r)
{
    static const struct {
        const char *op, *type, *fields;
    } table[] = {
        { "Abs", "AbsVal", "" },
        { "Exp", "Exp", "" },
        { "HardSwish", "HardSwish", "" },
        { "Log", "Log", "" },
        { "Mish", "Mish", "" },
        { "Neg", "Power", "power_param { scale: -1 }" },
        { "Reciprocal", "Power", "power_param { power: -1 }" },
        { "Relu", "ReLU", "" },
        { "Sigmoid", "Sigmoid", "" },
        { "Softplus", "BNLL", "" },
        { "Sqrt", "Power", "power_param { power: 0.5 }" },
        { "Tanh", "TanH", "" },
    };
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    size_t k = 0;

    while (strcmp(table[k].op, op_of(r)) != 0) k++;
    return ct_onnx_emit(r, table[k].type, NULL, 1, &x, &x->shape, NULL, "%s", table[k].fields);
}

static ct_status with_number(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    bool leaky = strcmp(op_of(r), "LeakyRelu") == 0;
    double alpha = (double)ct_onnx_attribute_float(r, "alpha", leaky ? 0.01f : 1.0f);

    return leaky ? ct_onnx_emit(r, "ReLU", NULL, 1, &x, &x->shape, NULL,
                                "relu_param { negative_slope: %.9g }", alpha)
                 : ct_onnx_emit(r, "ELU", NULL, 1, &x, &x->shape, NULL, "elu_param { alpha: %.9g }",
                                alpha);
}

static ct_status gelu(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    bool by_tanh = ct_onnx_attribute_is(r, "approximate", "tanh", false);

    if (!by_tanh && !ct_onnx_attribute_is(r, "approximate", "none", true))
        return ct_onnx_refuse(r, "attribute approximate: none and tanh are taken");
    return ct_onnx_emit(r, "GELU", NULL, 1, &x, &x->shape, NULL, "%s",
                        by_tanh ? "gelu_param { approximate: TANH }" : "");
}

/* Of an input, or else of an attribute, or else the other. */
static ct_status bound(const ct_onnx_reader *r, int i, const char *attribute, float otherwise,
                       float *v_p)
{
    const ct_onnx_operand *v = ct_onnx_in(r, i);

    if ((v != NULL) && ((v->f == NULL) || (ct_shape_count(&v->shape, 0, -1) != 1)))
        return ct_onnx_refuse(r, "input %d (%s) is a constant number", i, attribute);
    *v_p = (v != NULL) ? v->f[0] : ct_onnx_attribute_float(r, attribute, otherwise);
    return CT_OK;
}

static ct_status clip(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    const float most = 0x1.fffffep127f;
    float min = -most, max = most;

    CT_TRY(bound(r, 1, "min", -most, &min));
    CT_TRY(bound(r, 2, "max", most, &max));
    if ((min == 0.0f) && (max == most))
        return ct_onnx_emit(r, "ReLU", NULL, 1, &x, &x->shape, NULL, "%s", "");
    if ((min == 0.0f) && (max == 6.0f))
        return ct_onnx_emit(r, "ReLU6", NULL, 1, &x, &x->shape, NULL, "%s", "");
    return ct_onnx_emit(r, "Clip", NULL, 1, &x, &x->shape, NULL,
                        "clip_param { min: %.9g max: %.9g }", (double)min, (double)max);
}

static ct_status hard_sigmoid(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0), *v;

    CT_TRY(ct_onnx_emit(r, "Power", "line", 1, &x, &x->shape, &v,
                        "power_param { scale: %.9g shift: %.9g }",
                        (double)ct_onnx_attribute_float(r, "alpha", 0.2f),
                        (double)ct_onnx_attribute_float(r, "beta", 0.5f)));
    return ct_onnx_emit(r, "Clip", NULL, 1, &v, &x->shape, NULL, "clip_param { min: 0 max: 1 }");
}

/* One slope, or one a channel. */
static ct_status prelu(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0), *slope = ct_onnx_in(r, 1);
    int64_t n = ct_shape_count(&slope->shape, 0, -1);
    int from_end = x->shape.ndim - slope->shape.ndim;
    bool fits = (slope->f != NULL) && (x->shape.ndim > 1) && (from_end >= 0);

    for (int d = 0; fits && (d < slope->shape.ndim); d++)
        fits = (slope->shape.dim[d] == 1) || (d + from_end == 1);
    if (!fits || ((n != 1) && (n != x->shape.dim[1])))
        return ct_onnx_refuse(r, "slopes of shape %s for %s; one, or one a channel is taken",
                              ct_shape_str(&slope->shape).text, ct_shape_str(&x->shape).text);
    CT_TRY(ct_onnx_emit(r, "PReLU", NULL, 1, &x, &x->shape, NULL, "%s",
                        (n == 1) ? "prelu_param { channel_shared: true }" : ""));
    return ct_onnx_give(r, 0, &(ct_shape){ (n == 1) ? 0 : 1, { n } }, slope->f, NULL);
}

/* 1 where the value is above a number. */
static ct_status greater(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0), *than = ct_onnx_in(r, 1);

    if (x->constant || (than->f == NULL) || (ct_shape_count(&than->shape, 0, -1) != 1))
        return ct_onnx_refuse(r, "a value above a constant number is taken");
    return ct_onnx_emit(r, "Threshold", NULL, 1, &x, &x->shape, NULL,
                        "threshold_param { threshold: %.9g }", (double)than->f[0]);
}

/* ---- two values */

/* A constant as a number for each element along axes first … last of the common shape, of which it
 * is the same along all others. False: it differs along no axis. */
static bool axes_of(const ct_shape *c, const ct_shape *s, int *first_p, int *last_p)
{
    int more = s->ndim - c->ndim, first = -1, last = -1;

    for (int d = 0; d < s->ndim; d++) {
        if ((d < more) || (c->dim[d - more] == 1)) continue;
        if (first < 0) first = d;
        last = d;
    }
    *first_p = first;
    *last_p = last;
    return first >= 0;
}

static float number_at(const ct_onnx_operand *c, int64_t i)
{
    return (c->f != NULL) ? c->f[i] : (float)c->i[i];
}

/* The numbers of c along these axes of s, with the axes of size 1 between them repeated. */
static float *along(const ct_onnx_reader *r, const ct_onnx_operand *c, const ct_shape *s, int first,
                    int last)
{
    int64_t n = ct_shape_count(s, first, last + 1);
    int more = s->ndim - c->shape.ndim;
    float *v = (n <= INT64_C(1) << 28) ? ct_onnx_numbers(r, n) : NULL;

    for (int64_t i = 0; (v != NULL) && (i < n); i++) {
        int64_t rest = i, at = 0, stride = 1;

        for (int d = last; d >= first; d--) {
            int64_t place = rest % s->dim[d], size = c->shape.dim[d - more];

            rest /= s->dim[d];
            at += (size == 1) ? 0 : place * stride;
            stride *= size;
        }
        v[i] = number_at(c, at);
    }
    return v;
}

/* A sum, difference, product, quotient, or power. And is the product of numbers that are 0 or 1. */
static char letter_of(const ct_onnx_reader *r)
{
    const char *op = op_of(r);

    return (strcmp(op, "And") == 0) ? 'M' : (strcmp(op, "Pow") == 0) ? 'P' : op[0];
}

static bool all_are(const ct_onnx_operand *c, float v)
{
    int64_t n = ct_shape_count(&c->shape, 0, -1);

    for (int64_t i = 0; i < n; i++) {
        if (number_at(c, i) != v) return false;
    }
    return true;
}

/* x OP one number, or the number OP x. */
static ct_status by_number(ct_onnx_reader *r, ct_onnx_operand *x, const ct_shape *s, float c,
                           bool number_first)
{
    char op = letter_of(r);
    double power = 1.0, scale = 1.0, shift = 0.0;
    bool pow_of = op == 'P';

    if (pow_of && number_first)
        return ct_onnx_refuse(r, "a constant to the power of a value is not taken");
    if (pow_of) {
        power = (double)c;
    } else if ((op == 'D') && number_first) { /* c / x = (x / c) to the power of -1 */
        if (c == 0.0f) return ct_onnx_refuse(r, "0 divided by a value is not taken");
        power = -1.0;
        scale = 1.0 / (double)c;
    } else if (op == 'D') {
        scale = 1.0 / (double)c;
    } else if (op == 'M') {
        scale = (double)c;
    } else if (op == 'S') {
        scale = number_first ? -1.0 : 1.0;
        shift = number_first ? (double)c : -(double)c;
    } else {
        shift = (double)c;
    }
    CT_TRY(ct_onnx_spread_to(r, x, s, "spread", &x));
    return ct_onnx_emit(r, "Power", NULL, 1, &x, s, NULL,
                        "power_param { power: %.9g scale: %.9g shift: %.9g }", power, scale, shift);
}

/* x OP constant, or constant OP x: a Scale or a Bias with the numbers as its weights. */
static ct_status by_constant(ct_onnx_reader *r, ct_onnx_operand *x, const ct_onnx_operand *c,
                             bool constant_first)
{
    char op = letter_of(r);
    bool scales = (op == 'M') || (op == 'D'), pow_of = op == 'P';
    int first, last;
    ct_shape s, own = { 0 };
    ct_status status;
    float *v;

    CT_TRY(ct_onnx_broadcast(r, &x->shape, &c->shape, &s));
    if ((op == 'M') && all_are(c, 1.0f)) return ct_onnx_spread_to(r, x, &s, NULL, NULL);
    if (!axes_of(&c->shape, &s, &first, &last))
        return (ct_shape_count(&c->shape, 0, -1) == 1)
                   ? by_number(r, x, &s, number_at(c, 0), constant_first)
                   : ct_onnx_refuse(r, "a constant without numbers");
    if (pow_of) return ct_onnx_refuse(r, "a power is one constant number");
    CT_TRY(ct_onnx_spread_to(r, x, &s, "spread", &x));
    if (constant_first && ((op == 'D') || (op == 'S')))
        CT_TRY(ct_onnx_emit(r, "Power", "turned", 1, &x, &s, &x, "power_param { %s: -1 }",
                            (op == 'D') ? "power" : "scale"));
    v = along(r, c, &s, first, last);
    if (v == NULL)
        return ct_onnx_refuse(r, "no memory for its constant along %s", ct_shape_str(&s).text);
    for (int d = first; d <= last; d++) own.dim[own.ndim++] = s.dim[d];
    for (int64_t i = 0; !constant_first && (i < ct_shape_count(&own, 0, -1)); i++)
        v[i] = (op == 'D') ? 1.0f / v[i] : (op == 'S') ? -v[i] : v[i];
    status = ct_onnx_emit(r, scales ? "Scale" : "Bias", NULL, 1, &x, &s, NULL,
                          "%s { axis: %d num_axes: %d }", scales ? "scale_param" : "bias_param",
                          first, own.ndim);
    if (status == CT_OK) return ct_onnx_give(r, 0, &own, v, v);
    ct_mem_release(v);
    return status;
}

/* Where b lies on some axes of a, one behind the other, a layer spreads it itself. */
static bool lies_on(const ct_shape *a, const ct_shape *b, int *first_p, ct_shape *own_p)
{
    int more = a->ndim - b->ndim, first, last;
    ct_shape own = { 0 };

    if (!axes_of(b, a, &first, &last)) return false;
    if ((more == 0) && (b->dim[0] == a->dim[0])) first = 0; /* the batch */
    for (int d = first; d <= last; d++) {
        if (b->dim[d - more] != a->dim[d]) return false;
        own.dim[own.ndim++] = a->dim[d];
    }
    *first_p = first;
    *own_p = own;
    return true;
}

static ct_status by_blob(ct_onnx_reader *r, ct_onnx_operand *a, ct_onnx_operand *b)
{
    char op = letter_of(r);
    bool scales = (op == 'M') || (op == 'D');
    ct_onnx_operand *both[2] = { a, b };
    ct_shape s, own;
    int first;

    if (op == 'P') return ct_onnx_refuse(r, "a power is one constant number");
    CT_TRY(ct_onnx_broadcast(r, &a->shape, &b->shape, &s));
    if (op == 'D')
        CT_TRY(ct_onnx_emit(r, "Power", "reciprocal", 1, &b, &b->shape, &both[1],
                            "power_param { power: -1 }"));
    if ((op != 'S') && (op != 'D') && !ct_shape_equal(&a->shape, &s)) {
        both[0] = b;
        both[1] = a;
    }
    if ((op != 'S') && ct_shape_equal(&both[0]->shape, &s) &&
        !ct_shape_equal(&both[1]->shape, &s) && lies_on(&s, &both[1]->shape, &first, &own)) {
        CT_TRY(ct_onnx_reshape_to(r, both[1], &own, "few", &both[1]));
        return ct_onnx_emit(r, scales ? "Scale" : "Bias", NULL, 2, both, &s, NULL,
                            "%s { axis: %d }", scales ? "scale_param" : "bias_param", first);
    }
    for (int i = 0; i < 2; i++) CT_TRY(ct_onnx_spread_to(r, both[i], &s, "spread", &both[i]));
    return ct_onnx_emit(r, "Eltwise", NULL, 2, both, &s, NULL, "eltwise_param { %s }",
                        scales        ? "operation: PROD"
                        : (op == 'S') ? "operation: SUM coeff: 1 coeff: -1"
                                      : "operation: SUM");
}

static ct_status binary(ct_onnx_reader *r)
{
    ct_onnx_operand *a = ct_onnx_in(r, 0), *b = ct_onnx_in(r, 1);

    if (a->constant) return by_constant(r, b, a, true);
    if (b->constant) return by_constant(r, a, b, false);
    return by_blob(r, a, b);
}

/* ---- truth: blobs of 0 and 1 */

static ct_status not_of(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);

    return ct_onnx_emit(r, "Power", NULL, 1, &x, &x->shape, NULL,
                        "power_param { scale: -1 shift: 1 }");
}

/* Numbers stay as they are; as truth, what is not 0 becomes 1. */
static ct_status cast(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);

    if (ct_onnx_attribute_int(r, "to", 0) != ONNX__TENSOR_PROTO__DATA_TYPE__BOOL)
        return ct_onnx_same(r, x);
    CT_TRY(ct_onnx_emit(r, "AbsVal", "size", 1, &x, &x->shape, &x, "%s", ""));
    return ct_onnx_emit(r, "Threshold", NULL, 1, &x, &x->shape, NULL, "%s", "");
}

static float bounded(float v)
{
    const float most = 0x1.fffffep127f;

    return (v > most) ? most : (v < -most) ? -most : v;
}

/* The condition, 0 or 1, times a value: of a number a Power, whose shift is another number. */
static ct_status chosen(ct_onnx_reader *r, ct_onnx_operand *c, ct_onnx_operand *v, const char *part,
                        ct_onnx_operand **v_p)
{
    ct_onnx_operand *both[2] = { c };

    if (v->constant && (ct_shape_count(&v->shape, 0, -1) == 1))
        return ct_onnx_emit(r, "Power", part, 1, &c, &c->shape, v_p, "power_param { scale: %.9g }",
                            (double)bounded(number_at(v, 0)));
    CT_TRY(ct_onnx_as_blob(r, v, "constant", &v));
    CT_TRY(ct_onnx_spread_to(r, v, &c->shape, "spread", &both[1]));
    return ct_onnx_emit(r, "Eltwise", part, 2, both, &c->shape, v_p,
                        "eltwise_param { operation: PROD }");
}

static ct_status where(ct_onnx_reader *r)
{
    ct_onnx_operand *c = ct_onnx_in(r, 0), *a = ct_onnx_in(r, 1), *b = ct_onnx_in(r, 2);
    ct_onnx_operand *other, *both[2];
    ct_shape s;

    if (c->constant) CT_TRY(ct_onnx_as_blob(r, c, "condition", &c));
    CT_TRY(ct_onnx_broadcast(r, &a->shape, &b->shape, &s));
    CT_TRY(ct_onnx_broadcast(r, &s, &c->shape, &s));
    CT_TRY(ct_onnx_spread_to(r, c, &s, "spread", &c));
    if (a->constant && b->constant && (ct_shape_count(&a->shape, 0, -1) == 1) &&
        (ct_shape_count(&b->shape, 0, -1) == 1)) {
        double first = (double)bounded(number_at(a, 0)), second = (double)bounded(number_at(b, 0));

        return ct_onnx_emit(r, "Power", NULL, 1, &c, &s, NULL,
                            "power_param { scale: %.9g shift: %.9g }", first - second, second);
    }
    CT_TRY(
        ct_onnx_emit(r, "Power", "other", 1, &c, &s, &other, "power_param { scale: -1 shift: 1 }"));
    CT_TRY(chosen(r, c, a, "first", &both[0]));
    CT_TRY(chosen(r, other, b, "second", &both[1]));
    return ct_onnx_emit(r, "Eltwise", NULL, 2, both, &s, NULL, "eltwise_param { operation: SUM }");
}

/* 1 where the two do not differ. */
static ct_status equal(ct_onnx_reader *r)
{
    ct_onnx_operand *both[2] = { ct_onnx_in(r, 0), ct_onnx_in(r, 1) }, *v;
    ct_shape s;

    CT_TRY(ct_onnx_broadcast(r, &both[0]->shape, &both[1]->shape, &s));
    for (int i = 0; i < 2; i++) {
        CT_TRY(ct_onnx_as_blob(r, both[i], "constant", &both[i]));
        CT_TRY(ct_onnx_spread_to(r, both[i], &s, "spread", &both[i]));
    }
    CT_TRY(ct_onnx_emit(r, "Eltwise", "difference", 2, both, &s, &v,
                        "eltwise_param { operation: SUM coeff: 1 coeff: -1 }"));
    CT_TRY(ct_onnx_emit(r, "AbsVal", "size", 1, &v, &s, &v, "%s", ""));
    CT_TRY(ct_onnx_emit(r, "Threshold", "differs", 1, &v, &s, &v, "%s", ""));
    return ct_onnx_emit(r, "Power", NULL, 1, &v, &s, NULL, "power_param { scale: -1 shift: 1 }");
}

/* Of any number of values. */
static ct_status eltwise(ct_onnx_reader *r)
{
    enum { MOST = 64 };
    int n = ct_onnx_n_in(r);
    ct_onnx_operand *v[MOST];
    ct_shape s = { 0 };

    if (n > MOST) return ct_onnx_refuse(r, "%d inputs, at most %d are taken", n, MOST);
    for (int i = 0; i < n; i++) {
        v[i] = ct_onnx_in(r, i);
        if (v[i] == NULL) return ct_onnx_refuse(r, "input %d is missing", i);
        CT_TRY(ct_onnx_broadcast(r, &s, &v[i]->shape, &s));
    }
    for (int i = 0; i < n; i++) {
        CT_TRY(ct_onnx_as_blob(r, v[i], "constant", &v[i]));
        CT_TRY(ct_onnx_spread_to(r, v[i], &s, "spread", &v[i]));
    }
    if (n == 1) return ct_onnx_same(r, v[0]);
    return ct_onnx_emit(r, "Eltwise", NULL, n, v, &s, NULL, "eltwise_param { operation: %s }",
                        (strcmp(op_of(r), "Max") == 0) ? "MAX" : "SUM");
}

const ct_onnx_op ct_onnx_element_ops[] = {
    { "Abs", function, 1, 1, " " },
    { "Add", binary, 2, 2, " " },
    { "And", binary, 2, 2, " " },
    { "Cast", cast, 1, 1, " saturate to " },
    { "Clip", clip, 1, 3, " max min " },
    { "Div", binary, 2, 2, " " },
    { "Elu", with_number, 1, 1, " alpha " },
    { "Equal", equal, 2, 2, " " },
    { "Exp", function, 1, 1, " " },
    { "Gelu", gelu, 1, 1, " approximate " },
    { "Greater", greater, 2, 2, " " },
    { "GreaterOrEqual", NULL, 2, 2, " " },
    { "HardSigmoid", hard_sigmoid, 1, 1, " alpha beta " },
    { "HardSwish", function, 1, 1, " " },
    { "LeakyRelu", with_number, 1, 1, " alpha " },
    { "Less", NULL, 2, 2, " " },
    { "LessOrEqual", NULL, 2, 2, " " },
    { "Log", function, 1, 1, " " },
    { "Max", eltwise, 1, 1 << 20, " " },
    { "Min", NULL, 2, 2, " " },
    { "Mish", function, 1, 1, " " },
    { "Mul", binary, 2, 2, " " },
    { "Neg", function, 1, 1, " " },
    { "Not", not_of, 1, 1, " " },
    { "Or", NULL, 2, 2, " " },
    { "PRelu", prelu, 2, 2, " " },
    { "Pow", binary, 2, 2, " " },
    { "Reciprocal", function, 1, 1, " " },
    { "Relu", function, 1, 1, " " },
    { "Sigmoid", function, 1, 1, " " },
    { "Softplus", function, 1, 1, " " },
    { "Sqrt", function, 1, 1, " " },
    { "Sub", binary, 2, 2, " " },
    { "Sum", eltwise, 1, 1 << 20, " " },
    { "Tanh", function, 1, 1, " " },
    { "Where", where, 3, 3, " " },
    { NULL, NULL, 0, 0, NULL },
};
