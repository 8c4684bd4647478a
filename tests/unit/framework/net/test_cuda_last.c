/* Values of 16 bits between layers on the device, channels last: convolutions against the
 * definition, nets of numbers that fit bit for bit beside those of f32 values, others beside the
 * CPU's in bf16; where conversions stand. Skips where no device works. */
#include "tests/test.h"
#include "tests/conv_case.h"
#include "tests/layer_harness.h"
#include "tests/cuda_case.h"

#include "framework/base/bf16.h"
#include "framework/base/f16.h"
#include "framework/base/rng.h"
#include "framework/math/math.h"
#include "framework/net/net.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint16_t narrowed(ct_operand operand, float v)
{
    return (operand == CT_OPERAND_F16) ? ct_f16_from_f32(v) : ct_bf16_from_f32(v);
}

static float widened(ct_operand operand, uint16_t v)
{
    return (operand == CT_OPERAND_F16) ? ct_f16_to_f32(v) : ct_bf16_to_f32(v);
}

/* ---- convolutions */

typedef struct side {
    int64_t n, c, s;
    bool last;
} side;

static side x_side(const ct_conv_desc *d)
{
    return (side){ d->n, d->c, d->h * d->w, d->x_last };
}

static side y_side(const ct_conv_desc *d)
{
    return (side){ d->n, d->m, d->oh * d->ow, d->y_last };
}

static int64_t count_of(side s)
{
    return s.n * s.c * s.s;
}

static int64_t place_of(side s, int64_t i)
{
    return s.last ? (i / (s.c * s.s) * s.s + i % s.s) * s.c + i / s.s % s.c : i;
}

/* On the device as it is to lie; v NULL: garbage. */
static void *put(const ct_device *dev, ct_operand operand, side s, const float *v)
{
    size_t bytes = (size_t)count_of(s) * (s.last ? 2 : 4);
    char *host = malloc(bytes + 1);
    void *to = NULL;

    assert_non_null(host);
    memset(host, 0x7f, bytes);
    for (int64_t i = 0; (v != NULL) && (i < count_of(s)); i++) {
        if (s.last)
            ((uint16_t *)(void *)host)[place_of(s, i)] = narrowed(operand, v[i]);
        else
            ((float *)(void *)host)[i] = v[i];
    }
    assert_int_equal(dev->mem_acquire(bytes + 64, &to), CT_OK);
    assert_int_equal(dev->from_host(NULL, to, host, bytes), CT_OK);
    free(host);
    return to;
}

static float *get(const ct_device *dev, ct_operand operand, side s, void *from)
{
    size_t bytes = (size_t)count_of(s) * (s.last ? 2 : 4);
    float *v = malloc((size_t)count_of(s) * sizeof(*v) + 1);
    char *host = malloc(bytes + 1);

    assert_true((v != NULL) && (host != NULL));
    assert_int_equal(dev->to_host(NULL, host, from, bytes), CT_OK);
    for (int64_t i = 0; i < count_of(s); i++)
        v[i] = s.last ? widened(operand, ((uint16_t *)(void *)host)[place_of(s, i)])
                      : ((float *)(void *)host)[i];
    free(host);
    return v;
}

static side result_side(const ct_conv_desc *d, conv_direction dir)
{
    if (dir == CONV_FORWARD) return y_side(d);
    if (dir == CONV_DATA) return x_side(d);
    return (side){ 1, 1, d->m * d->c / d->group * d->kh * d->kw, false };
}

static float *run(const ct_device *dev, const ct_conv_impl *impl, const ct_conv_desc *d,
                  conv_direction dir, const conv_tensors *t, bool relu)
{
    side plain = { 1, 1, t->n_weight, false }, bias = { 1, 1, d->m, false };
    side made = result_side(d, dir);
    ct_conv_args a = { .beta = 0.5f, .relu = relu };
    ct_exec ex = { .dev = dev };
    void *on[6];
    float *got;

    on[0] = put(dev, d->operand, x_side(d), t->x);
    on[1] = put(dev, d->operand, plain, t->weight);
    on[2] = put(dev, d->operand, bias, t->bias);
    on[3] = put(dev, d->operand, y_side(d), t->dy);
    on[4] = put(dev, d->operand, made, (dir == CONV_WEIGHT) ? t->old : NULL);
    assert_int_equal(dev->mem_acquire(ct_conv_workspace(impl, d) + 64, &on[5]), CT_OK);
    a.x = on[0], a.weight = on[1], a.bias = on[2], a.work = on[5];
    if (dir != CONV_FORWARD) a.dy = on[3];
    if (dir == CONV_FORWARD) a.y = on[4];
    if (dir == CONV_DATA) a.dx = on[4];
    if (dir == CONV_WEIGHT) a.dweight = on[4];
    assert_int_equal(impl->run(d, &ex, &a), CT_OK);
    got = get(dev, d->operand, made, on[4]);
    for (int k = 0; k < 6; k++) dev->mem_release(on[k]);
    return got;
}

/* Numbers have 8 bits: sums are off as in f32, and what is stored is rounded once (cuDNN's result
 * once more before the bias is added). */
static int compare_conv(const ct_device *dev, ct_conv_desc d, conv_direction dir,
                        const char *engine)
{
    ct_conv_desc host = conv_case_plain(&d);
    const ct_conv_impl *ref, *impl;
    double *limit;
    conv_tensors t;
    float *want, *got;
    double once = (d.operand == CT_OPERAND_F16) ? 0x1p-11 : 0x1p-8;
    double often = (strcmp(engine, "cudnn") == 0) ? 2.0 : result_side(&d, dir).last ? 1.0 : 0.0;

    host.device = CT_DEVICE_CPU;
    host.operand = CT_OPERAND_F32;
    host.x_last = host.y_last = false;
    t = conv_case_make_tensors(&host, false);
    ref = ct_conv_find(conv_case_table_of(dir), &host, "ref");
    assert_non_null(ref);
    want = conv_case_run(ref, &host, dir, &t);
    limit = conv_case_sum_limits(&host, dir);
    impl = ct_conv_find(conv_case_table_of(dir), &d, engine);
    if (impl != NULL) {
        got = run(dev, impl, &d, dir, &t, false);
        for (int64_t i = 0; i < count_of(result_side(&d, dir)); i++) {
            double more = often * once * (fabs((double)want[i]) + ((often > 1.0) ? 1.0 : 0.0)) +
                          ((often > 0.0) ? 0x1p-24 : 0.0); /* f16's smallest */

            if (!(fabs((double)got[i] - (double)want[i]) <= 1.01 * limit[i] + more))
                fail_msg("%s, direction %d: element %lld is %.9g, not %.9g within %g", engine,
                         (int)dir, (long long)i, got[i], want[i], limit[i] + more);
        }
        if ((dir == CONV_FORWARD) && ((impl->can & CT_CONV_CAN_RELU) != 0)) {
            float *above = run(dev, impl, &d, dir, &t, true);

            for (int64_t i = 0; i < t.n_y; i++)
                assert_true(above[i] == ((got[i] > 0.0f) ? got[i] : 0.0f));
            free(above);
        }
        free(got);
    }
    free(want), free(limit);
    conv_case_release(&t);
    return impl != NULL;
}

static void convolutions_are_as_defined(void **state)
{
    const ct_device *dev = test_cuda();
    conv_draw r = { 91 };
    int ran = 0, dnn = 0;

    (void)state;
    for (int i = 0; i < 40; i++) {
        ct_conv_desc d = conv_case_draw(&r, 8, 7, true);

        d.x_block = d.y_block = 0;
        d.x_bf16 = d.y_bf16 = false;
        d.y_last = true;
        d.x_last = (i % 2 == 0);
        d.device = CT_DEVICE_CUDA;
        d.operand = (i % 4 < 2) ? CT_OPERAND_BF16 : CT_OPERAND_F16;
        for (conv_direction dir = CONV_FORWARD; dir < N_CONV_DIRECTION; dir++) {
            assert_int_equal(compare_conv(dev, d, dir, "cuda"), 1);
            dnn += compare_conv(dev, d, dir, "cudnn");
        }
    }
    /* the stand-in of tests/emulated_cuda takes them all */
    if (getenv("CORTADO_EMULATED_CUDNN") != NULL) assert_int_equal(dnn, 40 * N_CONV_DIRECTION);
    for (int i = 0; i < 12; i++) { /* a channel each */
        ct_conv_desc d = conv_case_draw(&r, 8, 7, true);

        d.x_block = d.y_block = 0;
        d.x_bf16 = d.y_bf16 = false;
        d.group = d.c;
        d.m = d.c * ((i % 3 == 2) ? 2 : 1);
        d.y_last = d.x_last = true;
        d.device = CT_DEVICE_CUDA;
        d.operand = (i % 2 == 0) ? CT_OPERAND_BF16 : CT_OPERAND_F16;
        for (conv_direction dir = CONV_FORWARD; dir < N_CONV_DIRECTION; dir++)
            ran += compare_conv(dev, d, dir, "depthwise");
    }
    assert_int_equal(ran, 12 * N_CONV_DIRECTION);
}

/* ---- nets */

#define LAYER(name, type, bottom, top, more)                                                       \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " more " }\n"
#define TWO(name, type, a, b, top)                                                                 \
    "layer { name: '" name "' type: '" type "' bottom: '" a "' bottom: '" b "' top: '" top "' }\n"
#define CONV(name, bottom, n, k, more)                                                             \
    LAYER(name, "Convolution", bottom, name,                                                       \
          "convolution_param { num_output: " n " kernel_size: " k " " more                         \
          " weight_filler { type: 'msra' } }")
#define INPUT(shape, target)                                                                       \
    "layer { name: 'data' type: 'Input' top: 'data' top: 'target' input_param { shape { " shape    \
    " } shape { " target " } } }\n"

/* Every layer that takes such values, and only sums that fit. */
static const char whole[] = INPUT("dim: 4 dim: 5 dim: 11 dim: 10", "dim: 4 dim: 8 dim: 3 dim: 3")
    CONV("c1", "data", "8", "3", "pad: 1") LAYER("r1", "ReLU", "c1", "c1", "")
        LAYER("p1", "Pooling", "c1", "p1", "pooling_param { pool: MAX kernel_size: 3 stride: 2 }")
            CONV("c2", "p1", "16", "3", "group: 2 pad: 1") CONV("c3", "c2", "8", "1", "")
                CONV("c4", "c2", "8", "3", "pad: 1") TWO("cat", "Concat", "c3", "c4", "cat")
                    LAYER("r2", "ReLU", "cat", "cat", "relu_param { negative_slope: 0.5 }")
                        TWO("e", "Eltwise", "cat", "c2", "e") LAYER("s", "Scale", "e", "s",
                                                                    "scale_param { bias_term: true "
                                                                    "}")
                            LAYER("p2", "Pooling", "s", "p2",
                                  "pooling_param { pool: AVE kernel_size: 2 stride: 2 }")
                                CONV("dw", "p2", "16", "1", "group: 16")
                                    CONV("d3", "dw", "16", "3", "group: 16 pad: 1")
                                        CONV("c5", "d3", "8", "1", "")
                                            TWO("loss", "EuclideanLoss", "c5", "target", "loss");

/* As AlexNet and its head, of numbers that fit: Dropout's factor is 2, where it draws in plain
 * order and where channels come last, and a head of its own without Dropout between. */
#define FC(name, bottom, n, more)                                                                  \
    LAYER(                                                                                         \
        name, "InnerProduct", bottom, name,                                                        \
        "inner_product_param { num_output: " n " " more                                            \
        " weight_filler { type: 'xavier' } bias_filler { type: 'uniform' min: -0.1 max: 0.1 } }")
#define RELU(name) LAYER(name "r", "ReLU", name, name, "")
static const char whole_head[] = INPUT("dim: 4 dim: 3 dim: 8 dim: 6", "dim: 4 dim: 32")
    CONV("c1", "data", "8", "3", "pad: 1") RELU("c1")
        LAYER("p1", "Pooling", "c1", "p1", "pooling_param { pool: MAX kernel_size: 2 stride: 2 }")
            LAYER("d1", "Dropout", "p1", "d1", "") FC("f1", "d1", "96", "") RELU("f1")
                LAYER("d2", "Dropout", "f1", "f1", "") FC("f2", "f1", "24", "transpose: true")
                    RELU("f2") FC("f3", "f2", "32", "") RELU("f3") FC("f4", "f3", "32", "")
                        TWO("loss", "EuclideanLoss", "f4", "target", "loss");

static const char head[] = INPUT("dim: 6 dim: 3 dim: 13 dim: 12", "dim: 6 dim: 5")
    CONV("c1", "data", "16", "3", "") RELU("c1")
        LAYER("p1", "Pooling", "c1", "p1", "pooling_param { pool: MAX kernel_size: 3 stride: 2 }")
            FC("f1", "p1", "32", "") RELU("f1") LAYER("d1", "Dropout", "f1", "f1", "")
                FC("f2", "f1", "24", "") RELU("f2") LAYER("d2", "Dropout", "f2", "f2", "")
                    FC("f3", "f2", "5", "") TWO("loss", "EuclideanLoss", "f3", "target", "loss");

/* The same with layers that only change shapes in front of fully connected ones. */
static const char flat_head[] = INPUT("dim: 6 dim: 3 dim: 13 dim: 12", "dim: 6 dim: 5")
    CONV("c1", "data", "16", "3", "") RELU("c1")
        LAYER("p1", "Pooling", "c1", "p1", "pooling_param { pool: MAX kernel_size: 3 stride: 2 }")
            LAYER("l1", "Flatten", "p1", "l1", "") FC("f1", "l1", "32", "") RELU("f1")
                LAYER("d1", "Dropout", "f1", "f1", "") LAYER("l2", "Flatten", "f1", "l2", "")
                    FC("f2", "l2", "24", "") RELU("f2") LAYER("d2", "Dropout", "f2", "f2", "")
                        FC("f3", "f2", "5", "")
                            TWO("loss", "EuclideanLoss", "f3", "target", "loss");

/* Two readers of one fully connected layer, of which one does not take its values; normalisation of
 * what another one makes; rows that do not begin at 16 bytes. */
static const char readers[] =
    INPUT("dim: 6 dim: 3 dim: 9 dim: 8", "dim: 6 dim: 16") CONV("c1", "data", "16", "3", "")
        RELU("c1") FC("f1", "c1", "16", "") LAYER("n1", "BatchNorm", "f1", "n1", "")
            LAYER("s1", "Scale", "n1", "s1", "scale_param { bias_term: true }") RELU("s1")
                FC("f2", "s1", "16", "") LAYER("t2", "TanH", "f2", "t2", "") RELU("f2")
                    FC("f3", "f2", "20", "") RELU("f3") FC("f4", "f3", "16", "")
                        TWO("e", "Eltwise", "f4", "t2", "e")
                            TWO("loss", "EuclideanLoss", "e", "target", "loss");

/* As ResNet: its groups. */
#define NORM(name, bottom)                                                                         \
    LAYER(name "n", "BatchNorm", bottom, name "n", "")                                             \
    LAYER(name "s", "Scale", name "n", name "s",                                                   \
          "scale_param { bias_term: true filler { type: 'uniform' min: 0.5 max: 1.5 } "            \
          "bias_filler { type: 'uniform' min: -1 max: 1 } }")
static const char residual[] = INPUT("dim: 6 dim: 3 dim: 13 dim: 12", "dim: 6 dim: 5")
    CONV("c1", "data", "16", "3", "pad: 1 bias_term: false") NORM("1", "c1") LAYER(
        "r1", "ReLU", "1s", "r1", "") CONV("c2", "r1", "16", "3", "pad: 1 bias_term: false")
        NORM("2", "c2") TWO("e2", "Eltwise", "2s", "r1", "e2") LAYER("r2", "ReLU", "e2", "r2", "")
            CONV("c3", "r2", "32", "3",
                 "stride: 2 bias_term: false") NORM("3", "c3") LAYER("r3", "ReLU", "3s", "r3", "")
                LAYER("p", "Pooling", "r3", "p", "pooling_param { pool: AVE global_pooling: true }")
                    LAYER("f", "InnerProduct", "p", "f",
                          "inner_product_param { num_output: 5 weight_filler { type: "
                          "'xavier' } }") TWO("loss", "EuclideanLoss", "f", "target", "loss");

/* As AlexNet and GoogLeNet. */
static const char branches[] = INPUT("dim: 6 dim: 3 dim: 13 dim: 12", "dim: 6 dim: 5")
    CONV("c1", "data", "16", "3", "") LAYER("r1", "ReLU", "c1", "c1", "") LAYER("n1", "LRN", "c1",
                                                                                "n1", "")
        LAYER("p1", "Pooling", "n1", "p1", "pooling_param { pool: MAX kernel_size: 3 stride: 2 }")
            CONV("c2", "p1", "16", "1", "") CONV("c3", "p1", "32", "3", "pad: 1")
                TWO("cat", "Concat", "c2", "c3", "cat") LAYER("t", "TanH", "cat", "t", "")
                    CONV("c4", "t", "16", "3", "") LAYER("d", "Dropout", "c4", "c4", "")
                        LAYER("f", "InnerProduct", "c4", "f",
                              "inner_product_param { num_output: 5 weight_filler { type: "
                              "'xavier' } }") TWO("loss", "EuclideanLoss", "f", "target", "loss");

typedef struct result {
    double loss;
    float *grad;
    int64_t n;
    int reorders, narrow; /* layers that the net added; tops of 16 bits */
    size_t planned, tops; /* bytes */
    bool dnn;             /* convolutions go through cuDNN */
    bool bits;            /* some product makes the gradient of a ReLU */
} result;

/* The arena with at most one number a row of each weight, of a few values; the same for all. */
static void put_whole_weights(ct_net *net, const ct_device *dev)
{
    for (int p = 0; p < net->n_param; p++) {
        const ct_tensor *w = &net->param[p].blob.data;
        int64_t n = ct_tensor_count(w), rows = (w->shape.ndim > 1) ? w->shape.dim[0] : n;
        float *v = calloc((size_t)n + 1, sizeof(*v));

        assert_non_null(v);
        for (int64_t r = 0; r < rows; r++) {
            int64_t row = n / rows, taps = (w->shape.ndim > 2) ? row / w->shape.dim[1] : 1;
            int64_t channel = (row / taps > 0) ? r % (row / taps) : 0;
            uint64_t k = ct_rng_key((uint64_t)p, (uint64_t)r, 7);

            v[r * row + channel * taps + (int64_t)(k % (uint64_t)taps)] =
                (row == 1)          ? (float)(k / 64 % 3) - 1.0f
                : (k / 64 % 2 == 0) ? 1.0f
                                    : -1.0f;
        }
        assert_int_equal(dev->from_host(NULL, w->data, v, (size_t)n * sizeof(*v)), CT_OK);
        free(v);
    }
}

static void fill_input(ct_net *net, const ct_device *dev, bool of_whole)
{
    const ct_tensor *x = &net->pass->blob[ct_net_find_blob(net, "data")]->data;
    const ct_tensor *y = &net->pass->blob[ct_net_find_blob(net, "target")]->data;
    int64_t n = ct_tensor_count(x);
    float *v = malloc((size_t)n * sizeof(*v));

    assert_non_null(v);
    for (int64_t i = 0; i < n; i++) {
        uint64_t k = ct_rng_key(1, 2, (uint64_t)i);

        v[i] = of_whole ? (float)(k % 5) - 2.0f : (float)(k % 20001) * 1e-4f - 1.0f;
    }
    assert_int_equal(dev->from_host(NULL, x->data, v, (size_t)n * sizeof(*v)), CT_OK);
    for (int64_t i = 0; i < ct_tensor_count(y); i++) v[i] = 0.0f;
    assert_int_equal(dev->from_host(NULL, y->data, v, ct_tensor_bytes(y)), CT_OK);
    free(v);
}

static result run_net(const char *text, const ct_device *dev,
                      Ct__SolverParameter__Precision precision, bool of_whole, bool fuse)
{
    ct_net_options o = { .no_fuse = !fuse, .env = { .n_rank = 1, .precision = precision } };
    test_cuda_net t;
    result r = { 0 };
    ct_estimate e;
    ct_net *net;

    o.env.winograd = CT__SOLVER_PARAMETER__WINOGRAD__NEVER;
    test_cuda_net_open(text, dev, &o, NULL, &t);
    net = t.net;
    if (of_whole) put_whole_weights(net, dev);
    fill_input(net, dev, of_whole);
    r.loss = test_cuda_net_pass(&t, 0, false);
    r.n = net->grad_count;
    r.grad = test_cuda_net_gradients(&t);
    r.planned = net->memory.planned;
    ct_net_estimate(net, ct_net_find_layer(net, "c1"), &e);
    r.dnn = strncmp(e.engine[CT_RUN_BACKWARD_WEIGHT], "cudnn", 5) == 0;
    for (int i = 0; i < net->n_layer; i++) {
        r.reorders +=
            net->layer[i]->ops->by_net && (strcmp(net->layer[i]->ops->type, "Split") != 0);
        r.bits |= net->pass->instance[i]->relu.bits != 0;
        for (int k = 0; k < net->layer[i]->n_top; k++) {
            const ct_tensor *top = &net->pass->instance[i]->top[k]->data;

            r.narrow += top->dtype != CT_F32;
            r.tops += ct_tensor_bytes(top);
        }
    }
    test_cuda_net_close(&t);
    return r;
}

/* Beside f32. reorders: conversions for the loss. */
static result compare_whole(const char *text, const result *f32,
                            Ct__SolverParameter__Precision precision, bool fuse, int reorders)
{
    result narrow = run_net(text, test_cuda(), precision, true, fuse);
    /* cuDNN gives weight gradients in 16 bits */
    double once = (precision == CT__SOLVER_PARAMETER__PRECISION__BF16) ? 0x1p-8 : 0x1p-11;
    double off = narrow.dnn ? once : 0.0, size = 0.0;

    for (int64_t i = 0; i < f32->n; i++) size += fabs((double)f32->grad[i]);
    assert_true((size > 0.0) && (f32->loss > 0.0));
    assert_true(narrow.loss == f32->loss);
    for (int64_t i = 0; i < f32->n; i++) {
        if (!(fabs((double)narrow.grad[i] - f32->grad[i]) <= off * fabs((double)f32->grad[i])))
            fail_msg("precision %d, fused %d: gradient %lld is %.9g, with values of f32 %.9g",
                     (int)precision, fuse, (long long)i, narrow.grad[i], f32->grad[i]);
    }
    assert_int_equal(narrow.reorders, reorders);
    assert_int_equal(f32->reorders, 0);
    free(narrow.grad);
    return narrow;
}

static const Ct__SolverParameter__Precision each_precision[] = {
    CT__SOLVER_PARAMETER__PRECISION__BF16, CT__SOLVER_PARAMETER__PRECISION__FP16
};

static void numbers_that_fit_stay(void **state)
{
    const ct_device *dev = test_cuda();

    (void)state;
    for (int k = 0; k < 4; k++) {
        bool fuse = k < 2;
        result f32 = run_net(whole, dev, CT__SOLVER_PARAMETER__PRECISION__F32, true, fuse);
        result narrow = compare_whole(whole, &f32, each_precision[k % 2], fuse, 1);

        /* all from the first convolution to the last */
        assert_true(narrow.narrow >= 15);
        assert_true(narrow.tops < 0.65 * (double)f32.tops);
        free(f32.grad);
    }
}

/* Of tests/emulated_cuda, whose library lacks what CORTADO_EMULATED_LT says. */
extern int ct_emulated_given(void) __attribute__((weak));

/* Up to the last fully connected layer, which makes f32 for the loss. */
static void heads_of_numbers_that_fit_stay(void **state)
{
    static const char *const lacks[] = { "", "nosums", "nobits", "plain", "none" };
    const ct_device *dev = test_cuda();
    bool emulated = (ct_emulated_given != NULL);

    (void)state;
    for (int k = 0; k < (emulated ? 5 : 1); k++) {
        for (int i = 0; i < 4; i++) {
            bool fuse = i < 2;
            result f32, narrow;

            setenv("CORTADO_EMULATED_LT", lacks[k], 1);
            f32 = run_net(whole_head, dev, CT__SOLVER_PARAMETER__PRECISION__F32, true, fuse);
            narrow = compare_whole(whole_head, &f32, each_precision[i % 2], fuse, 0);
            unsetenv("CORTADO_EMULATED_LT");
            /* of each type's; the data, the target, the last values and the loss are f32 */
            assert_true(narrow.narrow >= 11);
            if (emulated) assert_true(narrow.bits == (fuse && (k < 2)));
            free(f32.grad);
        }
    }
}

/* Flatten turns what InnerProduct would turn, and passes on what has one place each. */
static void flat_heads_are_the_same(void **state)
{
    const ct_device *dev = test_cuda();

    (void)state;
    for (int i = 0; i < 4; i++) {
        result want = run_net(head, dev, each_precision[i % 2], false, i < 2);
        result got = run_net(flat_head, dev, each_precision[i % 2], false, i < 2);

        assert_int_equal(got.n, want.n);
        assert_memory_equal(got.grad, want.grad, (size_t)want.n * sizeof(*want.grad));
        assert_int_equal(got.reorders, 0);
        assert_int_equal(got.narrow, want.narrow + 2);
        free(want.grad), free(got.grad);
    }
}

static double difference(const result *a, const result *b)
{
    assert_int_equal(a->n, b->n);
    return test_cuda_difference(a->n, a->grad, b->grad);
}

/* bf16 has 8 bits, f16 11: what rounding costs shrinks as much, if nothing else is wrong. */
static void compare_net(const char *text, const char *name, int reorders)
{
    const ct_device *dev = test_cuda();
    result f32 = run_net(text, dev, CT__SOLVER_PARAMETER__PRECISION__F32, false, true);
    result bf16 = run_net(text, dev, CT__SOLVER_PARAMETER__PRECISION__BF16, false, true);
    result f16 = run_net(text, dev, CT__SOLVER_PARAMETER__PRECISION__FP16, false, true);
    result cpu = run_net(text, ct_device_cpu(), CT__SOLVER_PARAMETER__PRECISION__BF16, false, true);
    double cost = difference(&bf16, &f32), less = difference(&f16, &f32);
    double cpus = difference(&cpu, &f32);

    if (!((cost > 1e-4) && (cost < 0.05))) fail_msg("%s: bf16 is %g off f32", name, cost);
    if (!((less > 0.05 * cost) && (less < 0.25 * cost)))
        fail_msg("%s: f16 is %g off f32, bf16 %g", name, less, cost);
    if (!(cost < 1.5 * cpus)) fail_msg("%s: %g off f32, the CPU's bf16 %g", name, cost, cpus);
    assert_int_equal(bf16.reorders, reorders);
    assert_int_equal(f16.reorders, reorders);
    free(f32.grad), free(bf16.grad), free(f16.grad), free(cpu.grad);
}

static void nets_cost_what_rounding_does(void **state)
{
    (void)state;
    compare_net(residual, "residual", 0);
    compare_net(branches, "branches", 1); /* for TanH */
    compare_net(head, "head", 0);
    compare_net(readers, "readers", 1); /* for TanH; f3 makes f32, since its rows do not fit */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_are_as_defined),    cmocka_unit_test(numbers_that_fit_stay),
        cmocka_unit_test(heads_of_numbers_that_fit_stay), cmocka_unit_test(flat_heads_are_the_same),
        cmocka_unit_test(nets_cost_what_rounding_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
