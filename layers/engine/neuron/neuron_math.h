/** @file neuron_math.h  The functions themselves, y = f(x) and the slope, of one number. The CPU's
 * loops and the CUDA kernels are made of the same lines. Here are also the lists of the functions,
 * and of the layers that are one. Each place that needs one reads its list. Private to
 * layers/engine/neuron.
 */
#ifndef CT_ENGINE_NEURON_NEURON_MATH_H
#define CT_ENGINE_NEURON_NEURON_MATH_H

#include <math.h>

#include "framework/base/simd.h"
#include "framework/math/scalar.h"
#include "layers/engine/neuron/neuron.h"

#ifdef __CUDACC__
#define FN CT_HD static inline float
#else
#define FN CT_SIMD_PART float
#endif
typedef ct_neuron_args arg;

FN abs_value(arg k, float x)
{
    (void)k;
    return (x < 0.0f) ? -x : x;
}

FN abs_slope(arg k, float x)
{
    (void)k;
    return (x > 0.0f) ? 1.0f : (x < 0.0f) ? -1.0f : 0.0f;
}

/* ln(1 + e^x) */
FN bnll_value(arg k, float x)
{
    (void)k;
    return ct_softplus_f32(x);
}

/* 1 / (1 + e^-x) = 1 - e^-y */
FN bnll_slope(arg k, float y)
{
    (void)k;
    return -ct_expm1_f32(-y);
}

/* x kept in [a, b]; slope 1 there, else 0 */
FN clip_value(arg k, float x)
{
    x = (x > k.b) ? k.b : x;
    return (x < k.a) ? k.a : x;
}

FN clip_slope(arg k, float x)
{
    return ((x >= k.a) && (x <= k.b)) ? 1.0f : 0.0f;
}

FN constant_value(arg k, float x)
{
    (void)x;
    return k.a;
}

FN constant_slope(arg k, float none)
{
    (void)k, (void)none;
    return 0.0f;
}

/* x above 0, else a (e^x - 1); a >= 0, but for elu_below */
FN elu_value(arg k, float x)
{
    float z = (x < -87.0f) ? -87.0f : x, below = (z > 0.0f) ? 0.0f : z, e;
    float rest = ct_exp_reduce(below, &e), power = ct_power_of_two(e);

    return (z - below) + k.a * (power * rest + (power - 1.0f)); /* no choice that may branch */
}

FN elu_slope(arg k, float y)
{
    float low = (y > 0.0f) ? 0.0f : y;

    return low + ((y > 0.0f) ? 1.0f : k.a);
}

FN elu_below_slope(arg k, float x)
{
    float below = k.a * ct_exp_f32(x);

    return (x > 0.0f) ? 1.0f : below;
}

/* b e^(a x) */
FN exp_value(arg k, float x)
{
    return k.b * ct_exp_whole_f32(k.a * x);
}

FN exp_slope(arg k, float y)
{
    return k.a * y;
}

/* Beyond these bounds the functions below are x, or 0 within 1e-35, and within them e^x needs no
 * look at its range. NaN passes. Slopes are 0 below them, since products with less are denormal
 * (ct_sigmoid_f32). */
#define GELU_BOUND      13.0f
#define GELU_TANH_BOUND 9.9f

FN within(float bound, float x)
{
    x = (x > bound) ? bound : x;
    return (x < -bound) ? -bound : x;
}

/* e^x, |x| at most 87 */
FN exp_near(float x)
{
    float k, rest = ct_exp_reduce(x, &k);

    return (rest + 1.0f) * ct_power_of_two(k);
}

/* 1 / erfc(a / sqrt(2)), 0 <= a <= 13. It is (1 + a p(a))^16, p by least squares, reweighted
 * towards the largest error in erfc. The powers are those of what stands beside the 1, so that
 * rounding does not take its last bits. */
FN inverse_tail(float a)
{
    float e = 0x1.360966p-27f;

    e = e * a + 0x1.091dbp-30f;
    e = e * a - 0x1.988adap-25f;
    e = e * a + 0x1.f153aap-19f;
    e = e * a + 0x1.e62954p-15f;
    e = e * a + 0x1.55e098p-16f;
    e = e * a + 0x1.af9b2p-9f;
    e = e * a + 0x1.5a4836p-6f;
    e = e * a + 0x1.9884cap-5f;
    e = e * a;
    for (int i = 0; i < 4; i++) e = e * (2.0f + e); /* (1 + e)^2 - 1 */
    return 1.0f + e;
}

/* x Phi(x), of the normal distribution: x above 0, less |x| Phi(-|x|) */
FN gelu_value(arg k, float x)
{
    float size = (x < 0.0f) ? -x : x, a = (size > GELU_BOUND) ? GELU_BOUND : size;

    (void)k;
    return ((x > 0.0f) ? x : 0.0f) - 0.5f * a / inverse_tail(a);
}

FN gelu_slope(arg k, float x)
{
    float size = (x < 0.0f) ? -x : x, a = (size > GELU_BOUND) ? GELU_BOUND : size;
    float density = 0x1.988454p-2f * exp_near(-0.5f * a * a); /* 1 / sqrt(2 pi) */
    float below = 0.5f / inverse_tail(a) - a * density, sign = (x > 0.0f) ? -1.0f : 1.0f;

    (void)k;
    /* 1 - below or below: no choice that may branch */
    return (x < -GELU_BOUND) ? 0.0f : (0.5f - 0.5f * sign) + sign * below;
}

/* (1 + tanh u) / 2 = 1 / (1 + e^(-2 u)), 2 u = x (a + b x^2) */
#define GELU_FACTOR 0x1.988454p+0f            /* a: 2 sqrt(2 / pi) */
#define GELU_CUBE   (GELU_FACTOR * 0.044715f) /* b */

FN gelu_tanh_value(arg k, float x)
{
    float low = (x < -GELU_TANH_BOUND) ? -GELU_TANH_BOUND : x;
    float z = (low > GELU_TANH_BOUND) ? GELU_TANH_BOUND : low;

    (void)k;
    return low / (1.0f + exp_near(-z * (GELU_FACTOR + GELU_CUBE * (z * z))));
}

/* With s = 1 / (1 + e): s + x s (1 - s) (2 u)', and 1 - s = e s, in which nothing cancels. */
FN gelu_tanh_slope(arg k, float x)
{
    float z = within(GELU_TANH_BOUND, x), z2 = z * z;
    float e = exp_near(-z * (GELU_FACTOR + GELU_CUBE * z2)), s = 1.0f / (1.0f + e);

    (void)k;
    s = s + s * (z * (e * s)) * (GELU_FACTOR + 3.0f * GELU_CUBE * z2);
    return (x < -GELU_TANH_BOUND) ? 0.0f : s;
}

/* x (x + 3, kept in [0, 6]) / 6; the share first, as 6 x may be infinite */
FN hard_swish_value(arg k, float x)
{
    float gate = x + 3.0f;

    (void)k;
    gate = (gate > 6.0f) ? 6.0f : gate;
    gate = (gate < 0.0f) ? 0.0f : gate;
    return x * (gate * 0x1.555556p-3f);
}

FN hard_swish_slope(arg k, float x)
{
    float between = x * 0x1.555556p-2f + 0.5f;

    (void)k;
    between = (x > 3.0f) ? 1.0f : between;
    return (x < -3.0f) ? 0.0f : between;
}

/* c ln(a x + b) */
FN log_value(arg k, float x)
{
    return k.c * ct_log_f32(k.a * x + k.b);
}

FN log_slope(arg k, float x)
{
    return k.c * k.a / (k.a * x + k.b);
}

/* tanh(ln(1 + e)) = n / (n + 2) with e = e^x, n = e^2 + 2 e; from 20 on that is 1 */
FN mish_value(arg k, float x)
{
    float e = ct_exp_f32((x < 20.0f) ? x : 20.0f), n = e * (e + 2.0f);

    (void)k;
    return (x < -87.0f) ? 0.0f : x * (n / (n + 2.0f)); /* 0: as in ct_sigmoid_f32 */
}

FN mish_slope(arg k, float x)
{
    float z = (x < 20.0f) ? x : 20.0f, e = ct_exp_f32(z), n = e * (e + 2.0f), m = n + 2.0f;

    (void)k;
    e = n / m + 4.0f * z * e * (1.0f + e) / (m * m);
    return (x < -87.0f) ? 0.0f : e;
}

/* (a x + b)^c, d = a c; below for c = 1, 2, 1/2, -1/2, -1 */
FN power_value(arg k, float x)
{
    return powf(k.a * x + k.b, k.c);
}

FN power_slope(arg k, float x)
{
    return k.d * powf(k.a * x + k.b, k.c - 1.0f);
}

FN affine_value(arg k, float x)
{
    return k.a * x + k.b;
}

FN affine_slope(arg k, float none)
{
    (void)none;
    return k.d;
}

FN square_value(arg k, float x)
{
    float t = k.a * x + k.b;

    return t * t;
}

FN square_slope(arg k, float x)
{
    return k.d * (k.a * x + k.b);
}

FN root_value(arg k, float x)
{
    return sqrtf(k.a * x + k.b);
}

FN root_slope(arg k, float y)
{
    return k.d / y;
}

FN inverse_root_value(arg k, float x)
{
    return 1.0f / sqrtf(k.a * x + k.b);
}

FN inverse_root_slope(arg k, float y)
{
    return k.d * y * y * y;
}

FN inverse_value(arg k, float x)
{
    return 1.0f / (k.a * x + k.b);
}

FN inverse_slope(arg k, float y)
{
    return k.d * y * y;
}

/* x kept in [0, 6], plus a x below 0; a >= 0 */
FN relu6_value(arg k, float x)
{
    float below = k.a * x;

    x = (x > 6.0f) ? 6.0f : x;
    return (x < 0.0f) ? below : x;
}

FN relu6_slope(arg k, float y)
{
    return (y <= 0.0f) ? k.a : (y < 6.0f) ? 1.0f : 0.0f;
}

FN sigmoid_value(arg k, float x)
{
    (void)k;
    return ct_sigmoid_f32(x);
}

FN sigmoid_slope(arg k, float y)
{
    (void)k;
    return y * (1.0f - y);
}

/* x / (1 + e^(-a x)) */
FN swish_value(arg k, float x)
{
    return x * ct_sigmoid_f32(k.a * x);
}

FN swish_slope(arg k, float x)
{
    float s = ct_sigmoid_f32(k.a * x);

    return s + k.a * x * s * (1.0f - s);
}

FN tanh_value(arg k, float x)
{
    (void)k;
    return ct_tanh_f32(x);
}

FN tanh_slope(arg k, float y)
{
    (void)k;
    return 1.0f - y * y;
}

/* 1 above a, else 0; no gradient passes */
FN threshold_value(arg k, float x)
{
    return (x > k.a) ? 1.0f : 0.0f;
}

FN threshold_slope(arg k, float none)
{
    (void)k, (void)none;
    return 0.0f;
}

/** The functions: X(name, what the slope is a function of, value, slope). The constants a to d are
 *  those of ct_neuron_args. */
#define CT_NEURON_LIST(X)                                                                          \
    X(abs, CT_READS_BOTTOM, abs_value, abs_slope)                                                  \
    X(affine, 0, affine_value, affine_slope)                                                       \
    X(bnll, CT_READS_TOP, bnll_value, bnll_slope)                                                  \
    X(clip, CT_READS_BOTTOM, clip_value, clip_slope)                                               \
    X(constant, 0, constant_value, constant_slope)                                                 \
    X(elu, CT_READS_TOP, elu_value, elu_slope)                                                     \
    X(elu_below, CT_READS_BOTTOM, elu_value, elu_below_slope)                                      \
    X(exp, CT_READS_TOP, exp_value, exp_slope)                                                     \
    X(gelu, CT_READS_BOTTOM, gelu_value, gelu_slope)                                               \
    X(gelu_tanh, CT_READS_BOTTOM, gelu_tanh_value, gelu_tanh_slope)                                \
    X(hard_swish, CT_READS_BOTTOM, hard_swish_value, hard_swish_slope)                             \
    X(inverse, CT_READS_TOP, inverse_value, inverse_slope)                                         \
    X(inverse_root, CT_READS_TOP, inverse_root_value, inverse_root_slope)                          \
    X(log, CT_READS_BOTTOM, log_value, log_slope)                                                  \
    X(mish, CT_READS_BOTTOM, mish_value, mish_slope)                                               \
    X(power, CT_READS_BOTTOM, power_value, power_slope)                                            \
    X(relu6, CT_READS_TOP, relu6_value, relu6_slope)                                               \
    X(root, CT_READS_TOP, root_value, root_slope)                                                  \
    X(sigmoid, CT_READS_TOP, sigmoid_value, sigmoid_slope)                                         \
    X(square, CT_READS_BOTTOM, square_value, square_slope)                                         \
    X(swish, CT_READS_BOTTOM, swish_value, swish_slope)                                            \
    X(tanh, CT_READS_TOP, tanh_value, tanh_slope)                                                  \
    X(threshold, 0, threshold_value, threshold_slope)

/** The layers, in alphabetical order: X(name, type, function, what its prototxt chooses,
 * parameters, layout, backward, formula). A function whose parameters choose another one, or its
 * constants, does so in layers/types/neuron_layer.c. Blocks of channels come as they are (f32)
 * where every finite x has a finite y: what fills them up is computed too. Rows may be bf16. The
 * formula ends the row, a step after the other; no .op: it depends on parameters, and cli/onnx
 * knows it. */
#define CT_NEURON_LAYERS(X)                                                                        \
    X(abs_val, "AbsVal", abs, NULL, NULL, &ct_layout_each, backward, { .op = "Abs" })              \
    X(bnll, "BNLL", bnll, NULL, NULL, &ct_layout_each, backward, { .op = "Softplus" })             \
    X(clip, "Clip", clip, choose_clip, "clip_param", &ct_layout_each, backward, { .op = NULL })    \
    X(elu, "ELU", elu, choose_elu, "elu_param", &ct_layout_each, backward, { .op = NULL })         \
    X(exp, "Exp", exp, choose_exp, "exp_param", &ct_layout_rows, backward, { .op = NULL })         \
    X(gelu, "GELU", gelu, choose_gelu, "gelu_param", &ct_layout_each, backward, { .op = NULL })    \
    X(hard_swish, "HardSwish", hard_swish, NULL, NULL, &ct_layout_each, backward,                  \
      { .op = "Add", .with = CT_WITH_NUMBER, .a = 3.0f, .name = "shifted" },                       \
      { .op = "Clip", .with = CT_WITH_RANGE, .a = 0.0f, .b = 6.0f, .name = "kept" },               \
      { .op = "Mul", .with = CT_WITH_NUMBER, .a = 1.0f / 6.0f, .name = "gate" },                   \
      { .op = "Mul", .with = CT_WITH_BOTTOM })                                                     \
    X(log, "Log", log, choose_log, "log_param", &ct_layout_rows, backward, { .op = NULL })         \
    X(mish, "Mish", mish, NULL, NULL, &ct_layout_each, backward,                                   \
      { .op = "Softplus", .name = "soft" }, { .op = "Tanh", .name = "gate" },                      \
      { .op = "Mul", .with = CT_WITH_BOTTOM })                                                     \
    X(power, "Power", power, choose_power, "power_param", &ct_layout_rows, backward,               \
      { .op = NULL })                                                                              \
    X(relu6, "ReLU6", relu6, choose_relu6, "relu6_param", &ct_layout_each, backward,               \
      { .op = NULL })                                                                              \
    X(sigmoid, "Sigmoid", sigmoid, NULL, "sigmoid_param", &ct_layout_each, backward,               \
      { .op = "Sigmoid" })                                                                         \
    X(swish, "Swish", swish, choose_swish, "swish_param", &ct_layout_each, backward,               \
      { .op = NULL })                                                                              \
    X(tanh, "TanH", tanh, NULL, "tanh_param", &ct_layout_each, backward, { .op = "Tanh" })         \
    X(threshold, "Threshold", threshold, choose_threshold, "threshold_param", &ct_layout_each,     \
      NULL, { .op = NULL })

#ifdef __cplusplus
extern "C" {
#endif
#define CT_NEURON_EXTERN(_name, _reads, _value, _slope) extern const ct_neuron ct_neuron_##_name;
CT_NEURON_LIST(CT_NEURON_EXTERN)
#ifdef __cplusplus
}
#endif

#endif
