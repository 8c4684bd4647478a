/* Layers of one function and PReLU: against PyTorch, gradients, in place, edges of their ranges,
 * what they refuse; the functions they are made of against the C library's in double. */
#include "tests/test.h"
#include "framework/base/memory.h"
#include "framework/base/stream.h"
#include "framework/math/scalar.h"
#include "layers/engine/neuron/neuron_math.h"
#include "tests/golden/neuron_golden.h"
#include "tests/layer_harness.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define COUNT(_a) ((int64_t)(sizeof(_a) / sizeof((_a)[0])))

/* ---- the functions, over their ranges */

static double units(double exact, float got)
{
    double ulp = fmax(fabs((double)(float)exact) * 0x1p-23, 0x1p-149);

    return fabs((double)got - exact) / ulp;
}

static double softplus(double x)
{
    return (x > 0) ? x + log1p(exp(-x)) : log1p(exp(x));
}

static void functions(void **state)
{
    static const struct {
        const char *name;
        float (*fn)(float);
        double (*exact)(double);
        float low, high;
        double allowed; /* units of the last place */
    } f[] = {
        { "exp", ct_exp_whole_f32, exp, -87.0f, 88.7f, 3 },
        { "expm1", ct_expm1_f32, expm1, -20.0f, 80.0f, 4 },
        { "expm1", ct_expm1_f32, expm1, -0.5f, 0.5f, 4 },
        { "log", ct_log_f32, log, 1e-30f, 1e30f, 3 },
        { "log", ct_log_f32, log, 0.25f, 4.0f, 3 },
        { "softplus", ct_softplus_f32, softplus, -80.0f, 80.0f, 4 },
        { "softplus", ct_softplus_f32, softplus, -3.0f, 3.0f, 4 },
    };
    enum { N = 100000 };

    (void)state;
    for (size_t k = 0; k < sizeof(f) / sizeof(f[0]); k++) {
        for (int i = 0; i <= N; i++) {
            float x = f[k].low + (f[k].high - f[k].low) * ((float)i / N);
            float y = f[k].fn(x);

            if (!(units(f[k].exact((double)x), y) <= f[k].allowed))
                fail_msg("%s(%.9g) is %.9g, %.1f units off", f[k].name, (double)x, (double)y,
                         units(f[k].exact((double)x), y));
        }
        assert_true(isnan(f[k].fn(NAN)));
    }
    for (float x = 1.0f; x > 1e-45f; x *= 0.7f) /* subnormal ones too */
        assert_true(units(log((double)x), ct_log_f32(x)) <= 3);
    assert_true(ct_exp_whole_f32(89.0f) == INFINITY);
    assert_true(ct_exp_whole_f32(INFINITY) == INFINITY);
    assert_true(ct_exp_whole_f32(-105.0f) == 0.0f);
    assert_true(ct_exp_whole_f32(-INFINITY) == 0.0f);
    assert_true(units(exp(-100.0), ct_exp_whole_f32(-100.0f)) <= 1); /* subnormal */
    assert_true(ct_log_f32(0.0f) == -INFINITY);
    assert_true(ct_log_f32(INFINITY) == INFINITY);
    assert_true(isnan(ct_log_f32(-1.0f)));
    assert_true(ct_log_f32(1.0f) == 0.0f);
    assert_true(ct_softplus_f32(200.0f) == 200.0f);
    assert_true(ct_expm1_f32(0.0f) == 0.0f);
}

/* ---- against PyTorch, and central differences */

typedef struct neuron_case {
    const char *type, *text;
    const double *x, *y, *dx;
    double kinks; /* share of elements near one */
} neuron_case;

#define CASE(_type, _text, _x, _name, _kinks)                                                      \
    {                                                                                              \
        _type, _text, neuron_##_x, neuron_y_##_name, neuron_dx_##_name, _kinks                     \
    }

static const neuron_case neuron[] = {
    CASE("AbsVal", NULL, x, abs, 0.05),
    CASE("BNLL", NULL, x, bnll, 0),
    CASE("Clip", "clip_param { min: -0.75 max: 1.5 }", x, clip, 0.05),
    CASE("ELU", "elu_param { alpha: 0.7 }", x, elu, 0.05),
    CASE("ELU", "elu_param { alpha: -0.4 }", x, elu_below, 0.05),
    CASE("Exp", NULL, x, exp, 0),
    CASE("Exp", "exp_param { base: 2 scale: 0.5 shift: 0.25 }", x, exp_base, 0),
    CASE("GELU", NULL, x, gelu, 0),
    CASE("GELU", "gelu_param { approximate: TANH }", x, gelu_tanh, 0),
    CASE("Log", NULL, p, log, 0),
    CASE("Log", "log_param { base: 10 scale: 3 shift: 0.5 }", p, log_base, 0),
    CASE("Mish", NULL, x, mish, 0),
    CASE("Power", "power_param { scale: 1.5 shift: -0.25 }", x, affine, 0),
    CASE("Power", "power_param { power: 2 scale: 0.5 shift: 0.25 }", x, square, 0),
    CASE("Power", "power_param { power: 0.5 scale: 2 shift: 0.5 }", p, root, 0),
    CASE("Power", "power_param { power: -0.5 scale: 2 shift: 0.5 }", p, inverse_root, 0),
    CASE("Power", "power_param { power: -1 scale: 2 shift: 0.5 }", p, inverse, 0),
    CASE("Power", "power_param { power: 1.7 scale: 2 shift: 0.5 }", p, power, 0),
    CASE("Power", "power_param { power: 3 scale: 0.5 shift: 0.25 }", x, cube, 0),
    CASE("ReLU6", NULL, x, relu6, 0.05),
    CASE("ReLU6", "relu6_param { negative_slope: 0.1 }", x, relu6_slope, 0.05),
    CASE("Sigmoid", NULL, x, sigmoid, 0),
    CASE("Swish", "swish_param { beta: 1.5 }", x, swish, 0),
    CASE("TanH", NULL, x, tanh, 0),
};
enum { N_NEURON = sizeof(neuron) / sizeof(neuron[0]) };

/* The functions are good to 4 units, arguments like 2 x + 0.5 are rounded twice and the slope up to
 * 8 times; |x| < 8, so errors of the argument grow by no more than that. */
static const double tolerance = 96 * 0x1p-24;

static void as_recorded(void **state)
{
    (void)state;
    for (int k = 0; k < 2 * N_NEURON; k++) {
        const neuron_case *c = &neuron[k / 2];
        test_layer *t = test_layer_make(&(test_layer_spec){ .type = c->type,
                                                            .text = c->text,
                                                            .n_bottom = 1,
                                                            .bottom = { TEST_SHAPE(3, 5, 4) },
                                                            .in_place = k % 2 == 1 });

        test_set(t->input[0], c->x, 60);
        test_set(t->top_diff[0], neuron_dy, 60);
        test_layer_pass(t);
        test_near_golden(t, TEST_FORWARD, t->top[0], c->y, 60, tolerance, c->type);
        test_near_golden(t, TEST_BACKWARD, t->input_diff[0], c->dx, 60, tolerance, c->type);
        test_layer_destroy(t);
    }
}

static void gradients(void **state)
{
    static const ct_shape shape[] = { { 1, { 37 } }, { 4, { 2, 3, 5, 3 } }, { 2, { 1, 1 } } };

    (void)state;
    for (int k = 0; k < 6 * N_NEURON; k++) {
        const neuron_case *c = &neuron[k / 6];
        test_layer *t = test_layer_make(&(test_layer_spec){ .type = c->type,
                                                            .text = c->text,
                                                            .n_bottom = 1,
                                                            .bottom = { shape[k % 3] },
                                                            .in_place = k % 2 == 1 });
        int64_t n = t->input_count[0];

        if (n == 1)
            t->input[0][0] = 0.7f;
        else if (c->x == neuron_p)
            test_random(t->input[0], n, 3, 0.3f, 2.0f);
        else
            test_random(t->input[0], n, 3, -2.5f, 2.5f);
        test_layer_gradient(t, &(test_gradient){ .max_kink = c->kinks, .roundings = 32 });
        test_layer_destroy(t);
    }
}

/* Arrays longer than what one thread takes at a time, and their tails: the same bits as pieces. */
static void any_length(void **state)
{
#define FUNCTION(_name, ...) &ct_neuron_##_name,
    static const ct_neuron *const fn[] = { CT_NEURON_LIST(FUNCTION) };
    enum { N = 20011, PIECE = 13 };
    static float x[N], dy[N], y[N], dx[N], part[PIECE];
    const ct_neuron_args k = { 0.5f, 2.0f, 1.5f, 0.75f };

    (void)state;
    test_random(x, N, 1, 0.01f, 4.0f);
    test_random(dy, N, 2, -1.0f, 1.0f);
    for (size_t f = 0; f < sizeof(fn) / sizeof(fn[0]); f++) {
        fn[f]->forward(&k, N, x, y);
        for (int64_t at = 0; at < N; at += 1009) {
            int64_t n = (N - at < PIECE) ? N - at : PIECE;

            fn[f]->forward(&k, n, x + at, part);
            test_same(part, y + at, n, "y");
        }
        if (fn[f]->backward == NULL) continue;
        fn[f]->backward(&k, N, x, dy, dx);
        for (int64_t at = 0; at < N; at += 1009) {
            int64_t n = (N - at < PIECE) ? N - at : PIECE;

            memcpy(part, dy + at, (size_t)n * sizeof(float));
            fn[f]->backward(&k, n, x + at, part, part);
            test_same(part, dx + at, n, "dx");
        }
    }
}

/* Arrays that leave the caches are written past them: the same bits by any number of threads, and
 * as in pieces that do not. */
static void past_the_caches(void **state)
{
    enum { N = CT_STREAM_MIN / 4 + 1021, PIECE = 5000 };
    static const ct_neuron *const fn[] = { &ct_neuron_gelu, &ct_neuron_sigmoid };
    const ct_neuron_args k = { 0 };
    float *x = ct_mem_acquire(N * sizeof(float)), *dy = ct_mem_acquire(N * sizeof(float));
    float *out = ct_mem_acquire(N * sizeof(float)), part[PIECE];
    int before = omp_get_max_threads();

    (void)state;
    assert_true((x != NULL) && (dy != NULL) && (out != NULL));
    assert_true(ct_stream_pays(out, N * sizeof(float)));
    test_random(x, N, 1, -4.0f, 4.0f);
    test_random(dy, N, 2, -1.0f, 1.0f);
    for (int run = 0; run < 6; run++) {
        const ct_neuron *f = fn[run % 2];
        const ct_neuron_state state_of = { .fn = f };
        const ct_neuron_rows rows = { .rows = 1, .n = N, .x = x };

        omp_set_num_threads(1 + run / 2);
        for (int back = 0; back < 2; back++) {
            if (back == 0)
                ct_neuron_forward(&state_of, &rows, out);
            else
                ct_neuron_backward(&state_of, &rows, &(ct_neuron_back){ .dy = dy, .dx = out });
            for (int64_t at = 0; at < N; at += 777777) {
                int64_t n = (N - at < PIECE) ? N - at : PIECE;

                if (back == 0)
                    f->forward(&k, n, x + at, part);
                else
                    f->backward(&k, n, x + at, dy + at, part);
                test_same(part, out + at, n, (back == 0) ? "y" : "dx");
            }
            for (int64_t i = N - 1021; i < N; i++) assert_true(isfinite(out[i]));
        }
    }
    omp_set_num_threads(before);
    ct_mem_release(x);
    ct_mem_release(dy);
    ct_mem_release(out);
}

/* ---- GELU, in double */

static double gelu(double x)
{
    return x * 0.5 * erfc(-x / sqrt(2));
}

static double gelu_slope_at(double x)
{
    return 0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * acos(-1));
}

static double gelu_tanh(double x)
{
    return x / (1 + exp(-2 * sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static double gelu_tanh_slope_at(double x)
{
    double b = 2 * sqrt(2 / acos(-1)), s = 1 / (1 + exp(-b * (x + 0.044715 * x * x * x)));

    return s + x * s * (1 - s) * b * (1 + 3 * 0.044715 * x * x);
}

/* Values: the tail |x| Phi(-|x|) is off by 1 u at most, and taken off x. In the form TANH 8
 * roundings enlarge an argument u whose effect u e^-|u| is below 1. Slopes: Phi(-|x|) is off by 1.5
 * u, the density's argument, as large as x^2 / 2, by some roundings, and x^3 e^(-x^2 / 2) is at
 * most 1.2. */
static void gelus(void **state)
{
    static const struct {
        const ct_neuron *fn;
        double (*value)(double), (*slope)(double);
    } f[] = { { &ct_neuron_gelu, gelu, gelu_slope_at },
              { &ct_neuron_gelu_tanh, gelu_tanh, gelu_tanh_slope_at } };
    static const double roundings[] = { 2, 8 };
    enum { N = 60001 };
    static float x[N], one[N], y[N], dx[N];
    const ct_neuron_args k = { 0 };

    (void)state;
    for (int i = 0; i < N; i++) x[i] = ((float)i - N / 2) / 1500.0f, one[i] = 1;
    for (int i = 0; i < 390; i++)
        x[i] = (i % 2 == 0) ? powf(1.25f, (float)i) : -powf(1.25f, (float)i);
    for (int j = 0; j < 2; j++) {
        f[j].fn->forward(&k, N, x, y);
        f[j].fn->backward(&k, N, x, one, dx);
        for (int i = 0; i < N; i++) {
            double v = (double)x[i];

            if (!(fabs((double)y[i] - f[j].value(v)) <= roundings[j] * 0x1p-24 * fmax(1, v)))
                fail_msg("%d: value of %.9g is %.9g, not %.9g", j, v, (double)y[i], f[j].value(v));
            v = fmax(-20, fmin(20, v)); /* far out 0 and 1: there the formula is infinity times 0 */
            if (!(fabs((double)dx[i] - f[j].slope(v)) <= 8 * 0x1p-24))
                fail_msg("%d: slope at %.9g is %.9g, not %.9g", j, v, (double)dx[i], f[j].slope(v));
        }
    }
}

/* ---- the formulas that tables say, as ONNX has them */

static double step(const ct_formula_step *s, double v, double x)
{
    if (strcmp(s->op, "Abs") == 0) return fabs(v);
    if (strcmp(s->op, "Softplus") == 0) return softplus(v);
    if (strcmp(s->op, "Sigmoid") == 0) return 1 / (1 + exp(-v));
    if (strcmp(s->op, "Tanh") == 0) return tanh(v);
    if (strcmp(s->op, "Add") == 0) return v + ((s->with == CT_WITH_BOTTOM) ? x : (double)s->a);
    if (strcmp(s->op, "Mul") == 0) return v * ((s->with == CT_WITH_BOTTOM) ? x : (double)s->a);
    if (strcmp(s->op, "Clip") == 0) return fmin(fmax(v, (double)s->a), (double)s->b);
    fail_msg("operator %s: this test does not know it", s->op);
    return 0;
}

static double formula_of(const ct_layer_ops *ops, double x)
{
    double v = x;

    for (const ct_formula_step *s = ops->formula; s->op != NULL; s++) v = step(s, v, x);
    return v;
}

/* A layer of the list agrees with its formula, and its slope with the formula's differences. */
static void check_formula(const char *type)
{
    enum { N = 4001 };
    static const double h = 0x1p-20;
    const ct_layer_ops *ops = ct_layer_find(type);
    test_layer *t;

    if (ops->formula->op == NULL) return;
    t = test_layer_make(
        &(test_layer_spec){ .type = type, .n_bottom = 1, .bottom = { TEST_SHAPE(N) } });
    for (int i = 0; i < N; i++) t->input[0][i] = (float)(i - N / 2) / 250 + 0.001f;
    for (int i = 0; i < N; i++) t->top_diff[0][i] = 1;
    test_layer_pass(t);
    for (int i = 0; i < N; i++) {
        double x = (double)t->input[0][i], y = formula_of(ops, x);
        double slope = (formula_of(ops, x + h) - formula_of(ops, x - h)) / (2 * h);

        if (!(fabs((double)t->top[0][i] - y) <= tolerance * fmax(1, fabs(y))))
            fail_msg("%s of %g is %.9g, its formula %.9g", type, x, (double)t->top[0][i], y);
        if (!(fabs((double)t->input_diff[0][i] - slope) <= 2 * tolerance))
            fail_msg("slope of %s at %g is %.9g, its formula's %.9g", type, x,
                     (double)t->input_diff[0][i], slope);
    }
    test_layer_destroy(t);
}

static void formulas(void **state)
{
#define TYPE(_name, _type, ...) _type,
    static const char *const type[] = { CT_NEURON_LAYERS(TYPE) };

    (void)state;
    for (size_t i = 0; i < sizeof(type) / sizeof(type[0]); i++) check_formula(type[i]);
}

/* A type of the list is compared with PyTorch, or with the formula of its table. */
static void every_type(void **state)
{
    static const char *const type[] = { CT_NEURON_LAYERS(TYPE) };

    (void)state;
    for (size_t i = 0; i < sizeof(type) / sizeof(type[0]); i++) {
        bool found = (ct_layer_find(type[i])->formula->op != NULL) ||
                     (strcmp(type[i], "Threshold") == 0); /* by a test of its own */

        for (int k = 0; k < N_NEURON; k++) found = found || (strcmp(neuron[k].type, type[i]) == 0);
        if (!found) fail_msg("%s has neither a case nor a formula", type[i]);
    }
}

/* ---- edges */

/* y and dx of one x, with dy 1. */
static void check_at(const char *type, const char *text, float x, float y, float dx)
{
    for (int k = 0; k < 2; k++) {
        test_layer *t = test_layer_make(&(test_layer_spec){ .type = type,
                                                            .text = text,
                                                            .n_bottom = 1,
                                                            .bottom = { TEST_SHAPE(1) },
                                                            .in_place = k == 1 });

        t->input[0][0] = x;
        t->top_diff[0][0] = 1;
        test_layer_pass(t);
        if (!((t->top[0][0] == y) || (isnan(y) && isnan(t->top[0][0]))))
            fail_msg("%s of %g is %g, not %g", type, (double)x, (double)t->top[0][0], (double)y);
        if (!((t->input_diff[0][0] == dx) || (isnan(dx) && isnan(t->input_diff[0][0]))))
            fail_msg("slope of %s at %g is %g, not %g", type, (double)x,
                     (double)t->input_diff[0][0], (double)dx);
        test_layer_destroy(t);
    }
}

static void edges(void **state)
{
    static const char clip[] = "clip_param { min: -1 max: 2 }";

    (void)state;
    check_at("AbsVal", NULL, 0, 0, 0);
    check_at("Clip", clip, -1, -1, 1);
    check_at("Clip", clip, 2, 2, 1);
    check_at("Clip", clip, nextafterf(2, 3), 2, 0);
    check_at("Clip", clip, NAN, NAN, 0);
    check_at("ELU", NULL, 0, 0, 1); /* alpha + y */
    check_at("ELU", "elu_param { alpha: 0.5 }", 0, 0, 0.5f);
    check_at("ReLU6", NULL, 0, 0, 0);
    check_at("ReLU6", NULL, 6, 6, 0);
    check_at("BNLL", NULL, 300, 300, 1);
    check_at("Exp", NULL, 100, INFINITY, INFINITY);
    check_at("Exp", NULL, -200, 0, 0);
    check_at("Exp", "exp_param { base: 1 shift: 3 }", 5, 1, 0);
    check_at("Log", NULL, 0, -INFINITY, INFINITY);
    check_at("Log", NULL, -1, NAN, -1);
    check_at("Power", "power_param { power: 0 }", NAN, 1, 0);
    check_at("Power", "power_param { power: 2 scale: 0 shift: 3 }", NAN, 9, 0);
    check_at("Power", "power_param { power: 3 }", 0, 0, 0); /* 0/0 in Caffe */
    check_at("Power", "power_param { power: -1 }", 0, INFINITY, -INFINITY);
    check_at("Power", "power_param { power: 1.5 }", -1, NAN, NAN);
    check_at("Mish", NULL, 60, 60, 1);
    check_at("GELU", NULL, 60, 60, 1);
    check_at("GELU", "gelu_param { approximate: TANH }", 1e30f, 1e30f, 1);
    check_at("GELU", NULL, INFINITY, INFINITY, 1);
    check_at("GELU", NULL, NAN, NAN, NAN);
    check_at("GELU", "gelu_param { approximate: TANH }", NAN, NAN, NAN);
    check_at("HardSwish", NULL, -4, 0, 0);
    check_at("HardSwish", NULL, -3, 0, -0.5f);
    check_at("HardSwish", NULL, 0, 0, 0.5f);
    check_at("HardSwish", NULL, 3, 3, 1.5f);
    check_at("HardSwish", NULL, 3e38f, 3e38f, 1);
    check_at("HardSwish", NULL, NAN, NAN, NAN);
    check_at("Swish", "swish_param { beta: 0 }", 3, 1.5f, 0.5f);
}

static void threshold(void **state)
{
    test_layer *t =
        test_layer_make(&(test_layer_spec){ .type = "Threshold",
                                            .text = "threshold_param { threshold: 0.5 }",
                                            .n_bottom = 1,
                                            .bottom = { TEST_SHAPE(4) } });

    (void)state;
    assert_null(t->layer.ops->backward); /* no gradient passes */
    t->input[0][0] = 0.5f, t->input[0][1] = nextafterf(0.5f, 1), t->input[0][2] = -7;
    t->input[0][3] = NAN;
    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_true((t->top[0][0] == 0) && (t->top[0][1] == 1) && (t->top[0][2] == 0));
    assert_true(t->top[0][3] == 0);
    test_layer_destroy(t);
}

static void refused(void **state)
{
    static const struct {
        const char *type, *text, *message;
    } c[] = {
        { "Clip", NULL, "clip_param with min and max is missing" },
        { "Clip", "clip_param { min: 2 max: 1 }", "min 2 is not below max 1" },
        { "Clip", "clip_param { min: nan max: 1 }", "min nan is not below" },
        { "ELU", "elu_param { alpha: inf }", "elu_param.alpha is inf" },
        { "Exp", "exp_param { base: 0 }", "exp_param.base 0 must be above 0, or -1 for e" },
        { "Exp", "exp_param { base: -2 }", "exp_param.base -2 must be above 0" },
        { "Exp", "exp_param { base: 10 shift: 99 }", "base ^ shift is inf" },
        { "Exp", "exp_param { scale: nan }", "exp_param.scale is nan" },
        { "Log", "log_param { base: 0 }", "log_param.base 0 must be above 0, or -1 for e" },
        { "Log", "log_param { base: 1 }", "log_param.base 1 has no logarithm" },
        { "Log", "log_param { shift: inf }", "log_param.shift is inf" },
        { "Power", "power_param { power: nan }", "power_param.power is nan" },
        { "Power", "power_param { scale: inf }", "power_param.scale is inf" },
        { "ReLU6", "relu6_param { negative_slope: -0.1 }", "negative_slope -0.1 must be at least" },
        { "Swish", "swish_param { beta: inf }", "swish_param.beta is inf" },
        { "Threshold", "threshold_param { threshold: nan }", "threshold_param.threshold is nan" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++)
        test_layer_refused(&(test_layer_spec){ .type = c[i].type,
                                               .text = c[i].text,
                                               .n_bottom = 1,
                                               .bottom = { TEST_SHAPE(2, 3) } },
                           CT_ERR_CONFIG, c[i].message);
    test_layer_refused(
        &(test_layer_spec){ .type = "PReLU", .n_bottom = 1, .bottom = { TEST_SHAPE(4) } },
        CT_ERR_SHAPE, "has no channels");
}

/* ---- PReLU */

static void prelu(void **state)
{
    static const char shared[] = "prelu_param { channel_shared: true }";

    (void)state;
    for (int k = 0; k < 4; k++) {
        bool one = k % 2 == 1;
        test_layer *t = test_layer_make(&(test_layer_spec){ .type = "PReLU",
                                                            .text = one ? shared : NULL,
                                                            .n_bottom = 1,
                                                            .bottom = { TEST_SHAPE(3, 5, 2, 3) },
                                                            .in_place = k >= 2 });

        assert_int_equal(t->weight_count[0], one ? 1 : 5);
        assert_int_equal(t->layer.weight[0].shape.ndim, one ? 0 : 1);
        for (int i = 0; i < t->weight_count[0]; i++) assert_true(t->weight[0][i] == 0.25f);
        test_set(t->input[0], prelu_x, 90);
        test_set(t->top_diff[0], prelu_dy, 90);
        test_set(t->weight[0], one ? prelu_a_shared : prelu_a_each, t->weight_count[0]);
        test_layer_pass(t);
        test_near_golden(t, TEST_FORWARD, t->top[0], one ? prelu_y_shared : prelu_y_each, 90,
                         2 * 0x1p-24, "y");
        test_near_golden(t, TEST_BACKWARD, t->input_diff[0], one ? prelu_dx_shared : prelu_dx_each,
                         90, 2 * 0x1p-24, "dx");
        test_near_golden(t, TEST_BACKWARD, t->weight_diff[0], one ? prelu_da_shared : prelu_da_each,
                         t->weight_count[0], 2 * 0x1p-24, "da"); /* summed in double */
        test_layer_destroy(t);
    }
}

static void prelu_gradients(void **state)
{
    static const char filler[] = "prelu_param { filler { type: 'uniform' min: -1 max: 1 } }";
    static const ct_shape shape[] = { { 2, { 3, 7 } },
                                      { 4, { 2, 3, 11, 13 } },
                                      { 3, { 1, 1, 65 } } };

    (void)state;
    for (int k = 0; k < 6; k++) {
        test_layer *t = test_layer_make(&(test_layer_spec){ .type = "PReLU",
                                                            .text = filler,
                                                            .n_bottom = 1,
                                                            .bottom = { shape[k / 2] },
                                                            .in_place = k % 2 == 1,
                                                            .add_weight_diff[0] = k == 3 });

        test_layer_gradient(t, &(test_gradient){ .max_kink = 0.1, .roundings = 1000 });
        test_layer_destroy(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions),       cmocka_unit_test(as_recorded),
        cmocka_unit_test(gradients),       cmocka_unit_test(any_length),
        cmocka_unit_test(past_the_caches), cmocka_unit_test(gelus),
        cmocka_unit_test(formulas),        cmocka_unit_test(every_type),
        cmocka_unit_test(edges),           cmocka_unit_test(threshold),
        cmocka_unit_test(refused),         cmocka_unit_test(prelu),
        cmocka_unit_test(prelu_gradients),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
