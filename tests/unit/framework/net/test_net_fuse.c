/* Nets whose layers run in groups, against the same nets whose layers run alone. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/net_layers.h"

#include "framework/base/bf16.h"
#include "framework/net/net_impl.h"

#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define LAYER(name, type, bottom, top, more)                                                       \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " more " }\n"
#define JOIN(name, type, a, b, top, more)                                                          \
    "layer { name: '" name "' type: '" type "' bottom: '" a "' bottom: '" b "' top: '" top         \
    "' " more " }\n"
#define DATA                                                                                       \
    "layer { name: 'data' type: 'DummyData' top: 'data' dummy_data_param { shape { dim: 4 dim: 3 " \
    "dim: 9 dim: 7 } data_filler { type: 'gaussian' std: 1 } } }\n"                                \
    "layer { name: 'labels' type: 'DummyData' top: 'label' dummy_data_param { shape { dim: 4 } "   \
    "data_filler { value: 2 } } }\n"
/* @ is the number of channels */
#define CONV(name, bottom, k, more)                                                                \
    LAYER(name, "Convolution", bottom, name,                                                       \
          "convolution_param { num_output: @ kernel_size: " k " " more                             \
          " bias_term: false weight_filler { type: 'msra' } }")
#define BIASED(name, bottom, k, more)                                                              \
    LAYER(name, "Convolution", bottom, name,                                                       \
          "convolution_param { num_output: @ kernel_size: " k " " more                             \
          " weight_filler { type: 'msra' } bias_filler { type: 'uniform' min: -0.5 max: 0.5 } }")
#define SCALE(name, bottom, top, more)                                                             \
    LAYER(name, "Scale", bottom, top,                                                              \
          "scale_param { bias_term: true filler { type: 'uniform' min: 0.5 max: 1.5 } "            \
          "bias_filler { type: 'uniform' min: -0.5 max: 0.5 } } " more)
#define NORM(n, blob)            LAYER("bn" n, "BatchNorm", blob, blob, "") SCALE("scale" n, blob, blob, "")
#define RELU(name, blob)         LAYER(name, "ReLU", blob, blob, "")
#define POOL(name, bottom, more) LAYER(name, "Pooling", bottom, name, "pooling_param { " more " }")
#define END(bottom)                                                                                \
    LAYER("pool", "Pooling", bottom, "pool",                                                       \
          "pooling_param { pool: AVE kernel_size: 3 stride: 2 }")                                  \
    LAYER("fc", "InnerProduct", "pool", "fc",                                                      \
          "inner_product_param { num_output: 5 weight_filler { type: 'xavier' } }")                \
    JOIN("loss", "SoftmaxWithLoss", "fc", "label", "loss", "")

static const struct {
    const char *name, *text;
    const char *alone; /* a layer that must not be run by another */
    int n_group;
} model[] = {
    { "residual",
      DATA CONV("x", "data", "3", "pad: 1") NORM("0", "x") RELU("r0", "x")
          CONV("y", "x", "3", "pad: 1") LAYER("bn1", "BatchNorm", "y", "yn", "")
              SCALE("scale1", "yn", "ys", "") LAYER("r1", "ReLU", "ys", "yr", "") CONV(
                  "z", "yr", "3", "pad: 1") NORM("2", "z") JOIN("s", "Eltwise", "x", "z", "s", "")
                  RELU("rs", "s") CONV("u", "s", "1", "") NORM("3", "u") CONV("side", "s", "1", "")
                      NORM("4", "side") JOIN("t", "Eltwise", "u", "side", "t", "") RELU("rt", "t")
                          JOIN("v", "Eltwise", "s", "t", "v", "") RELU("rv", "v") END("v"),
      "fc", 6 },
    { "bare", /* no Scale, no ReLU, a Scale without bias, a sum without ReLU, weights of two */
      DATA CONV("x", "data", "3", "pad: 1") LAYER("bn0", "BatchNorm", "x", "x", "") RELU("r0", "x")
          CONV("y", "x", "3", "pad: 1") LAYER("bn1", "BatchNorm", "y", "y", "")
              LAYER("scale1", "Scale", "y", "y", "param { name: 'w' }") CONV("z", "y", "1", "")
                  LAYER("bn2", "BatchNorm", "z", "z", "") LAYER("scale2", "Scale", "z", "z",
                                                                "param { name: 'w' }")
                      LAYER("far", "Scale", "x", "f", "param { name: 'w' }")
                          JOIN("s", "Eltwise", "f", "z", "s", "") CONV("e", "s", "1", "")
                              LAYER("bn3", "BatchNorm", "e", "e", "") JOIN(
                                  "m", "Eltwise", "e", "s", "m", "eltwise_param { operation: MAX }")
                                  LAYER("bn4", "BatchNorm", "m", "m", "") END("m"),
      "bn4", 3 },
    { "leaky", /* what does not join: slopes, coefficients, a fixed kernel, the spatial axes */
      DATA CONV("x", "data", "3", "pad: 1") LAYER("bn0", "BatchNorm", "x", "x", "")
          LAYER("r0", "ReLU", "x", "x", "relu_param { negative_slope: 0.1 }")
              CONV("y", "x", "3", "pad: 1") LAYER("bn1", "BatchNorm", "y", "y", "")
                  LAYER("scale1", "Scale", "y", "y", "scale_param { axis: 2 num_axes: 2 }")
                      JOIN("s", "Eltwise", "x", "y", "s", "eltwise_param { coeff: 1 coeff: -1 }")
                          LAYER("bn2", "BatchNorm", "s", "sn", "") LAYER(
                              "r2", "ReLU", "sn", "sn", "ct_kernel { forward: 'ref' }") END("sn"),
      "scale1", 0 },
    { "sums", /* of sums, one of them a bottom of both, and of the data alone */
      DATA CONV("x", "data", "3", "pad: 1") CONV("y", "data", "3", "pad: 1")
          JOIN("s", "Eltwise", "x", "y", "s", "") RELU("rs", "s") CONV("z", "s", "1", "")
              JOIN("t", "Eltwise", "s", "z", "t", "") CONV("u", "t", "1", "")
                  JOIN("v", "Eltwise", "t", "u", "v", "") RELU("rv", "v")
                      JOIN("w", "Eltwise", "v", "t", "w", "") RELU("rw", "w") END("w"),
      "x", 4 },
    { "images", /* convolutions of all sorts with their ReLU, in place and not */
      DATA BIASED("x", "data", "4", "stride: 2 pad: 2") LAYER("rx", "ReLU", "x", "xr", "")
          BIASED("y", "xr", "3", "pad: 1") RELU("ry", "y") BIASED("z", "y", "1", "") RELU("rz", "z")
              BIASED("d", "z", "3", "pad: 2 dilation: 2 group: @") RELU("rd", "d") BIASED(
                  "s", "d", "5", "pad: 2 stride: 2") RELU("rs", "s") BIASED("k", "s", "3", "pad: 1")
                  RELU("rk", "k") LAYER("fc", "InnerProduct", "k", "fc",
                                        "inner_product_param { num_output: 5 weight_filler { type: "
                                        "'xavier' } }")
                      JOIN("loss", "SoftmaxWithLoss", "fc", "label", "loss", ""),
      "fc", 6 },
    { "pools", /* a ReLU before a maximum, behind it, on both sides; averages take none */
      DATA BIASED("x", "data", "3", "pad: 1") RELU("rx", "x") POOL("p", "x",
                                                                   "kernel_size: 3 stride: 2")
          BIASED("y", "p", "3", "pad: 1") POOL("q", "y", "kernel_size: 2 stride: 1 pad: 1")
              RELU("rq", "q") BIASED("z", "q", "3", "pad: 1") RELU("rz", "z")
                  POOL("t", "z", "kernel_size: 3 stride: 1 pad: 1")
                      LAYER("rt", "ReLU", "t", "tr", "") BIASED("u", "tr", "1", "") RELU("ru", "u")
                          POOL("v", "u", "pool: AVE kernel_size: 3 stride: 1 pad: 1")
                              RELU("rv", "v") END("v"),
      "v", 5 },
    { "branches", /* a sum, whose bottoms' gradients are the same, of two that mask theirs */
      DATA BIASED("x", "data", "3", "pad: 1") RELU("rx", "x") BIASED("y", "data", "1", "")
          RELU("ry", "y") JOIN("s", "Eltwise", "x", "y", "s", "") END("s"),
      "fc", 2 },
    { "taken", /* a sum that two could take, and the first does, which is group 1 */
      DATA CONV("x", "data", "3", "pad: 1") LAYER("bn1", "BatchNorm", "x", "x", "")
          CONV("y", "data", "1", "") LAYER("bn2", "BatchNorm", "y", "y", "")
              JOIN("s", "Eltwise", "x", "y", "s", "") RELU("rs", "s") END("s"),
      "bn2", 1 },
};
#define N_MODEL ((int)(sizeof(model) / sizeof(model[0])))

static char *with_channels(const char *text, int channels)
{
    size_t n = strlen(text);
    char *out = malloc(2 * n), *to = out;

    for (size_t i = 0; i <= n; i++) {
        if (text[i] == '@')
            to += sprintf(to, "%d", channels);
        else
            *to++ = text[i];
    }
    return out;
}

static void make(const char *text, ct_net_options o, bool poison, test_net *t)
{
    o.table = ct_layer_table;
    if (poison) setenv("CORTADO_POISON", "1", 1);
    assert_int_equal(test_net_create(text, &o, t), CT_OK);
    unsetenv("CORTADO_POISON");
    t->net->pass->exec.seed = 5;
    t->net->pass->exec.deterministic = true;
}

static int n_group(const ct_net *net)
{
    int n = 0;

    for (int i = 0; i < net->n_layer; i++) n += (net->pass->instance[i]->tail != NULL);
    return n;
}

static bool runs_itself(const ct_net *net, const char *layer)
{
    int i = ct_net_find_layer(net, layer);

    return ct_net_runner(net, i) == i;
}

/* A group computes each element as its layers do, one rounding after the other, but for the mean
 * of a normalised channel's gradient: the sum of g times the scale, not of products rounded first.
 * That moves it by one rounding of its terms, and each dx by two. Backward carries errors on
 * linearly; it adds up those of at most 8 groups in sums of up to 4 x 9 x 7 places, which are the
 * more alike the more they cancel: measured against the largest element, a sum of n terms of
 * either sign may stand for n times as much. */
static void close_to(const float *a, const float *b, int64_t n, const char *what)
{
    double most = 0;

    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs((double)b[i]));
    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)a[i] - (double)b[i]);

        if (!(off <= 8 * 3 * 252 * 0x1p-24 * most))
            fail_msg("%s[%lld]: %.9g, alone %.9g", what, (long long)i, (double)a[i], (double)b[i]);
    }
}

/* Weights that train: small steps, so that statistics and gradients are others each time. */
static void step(ct_net *net)
{
    for (int k = 0; k < net->n_param; k++) {
        const ct_param *p = &net->param[k];

        for (int64_t i = 0; p->learns && (i < p->count); i++)
            ct_blob_data(&p->blob)[i] -= 0.01f * ct_blob_diff(&p->blob)[i];
    }
}

/* The weights of one net become those of the other. */
static void same_weights(const ct_net *from, const ct_net *to)
{
    for (int k = 0; k < from->n_param; k++) {
        int same = ct_net_find_param(to, from->param[k].key);

        memcpy(to->param[same].blob.data.data, from->param[k].blob.data.data,
               (size_t)from->param[k].count * sizeof(float));
    }
}

static void compare_nets(test_net *a, test_net *b, const char *name, bool bits)
{
    for (int pass = 0; pass < 4; pass++) {
        double x = test_net_pass(a, pass, pass == 2), y = test_net_pass(b, pass, pass == 2);

        if (!isfinite(y) || (x != y)) fail_msg("%s: loss %.17g, alone %.17g", name, x, y);
        for (int k = 0; k < a->net->n_param; k++) {
            const ct_param *p = &a->net->param[k], *q = &b->net->param[k];

            assert_string_equal(p->key, q->key);
            if (p->kind == CT_WEIGHT_STATISTIC)
                test_same(ct_blob_data(&p->blob), ct_blob_data(&q->blob), p->count, p->key);
            if (!p->learns) continue;
            if (bits)
                test_same(ct_blob_diff(&p->blob), ct_blob_diff(&q->blob), p->count, p->key);
            else
                close_to(ct_blob_diff(&p->blob), ct_blob_diff(&q->blob), p->count, p->key);
        }
        step(b->net);
        same_weights(b->net, a->net);
    }
}

/* Below the vector width, odd, and more than one block of any. */
static const int channels[] = { 2, 7, 13, 19 };

static void a_group_computes_what_its_layers_do(void **state)
{
    (void)state;
    for (int i = 0; i < N_MODEL; i++) {
        for (size_t c = 0; c < sizeof(channels) / sizeof(channels[0]); c++) {
            char *text = with_channels(model[i].text, channels[c]);
            ct_net_options o = { .phase = CT_TRAIN },
                           alone = { .phase = CT_TRAIN, .no_fuse = true };
            test_net a, b;

            make(text, o, true, &a);
            make(text, alone, false, &b);
            assert_int_equal(n_group(b.net), 0);
            assert_int_equal(n_group(a.net), model[i].n_group);
            assert_true(runs_itself(a.net, model[i].alone));
            assert_true(ct_net_hash(a.net) == ct_net_hash(b.net));
            compare_nets(&a, &b, model[i].name, false);
            test_net_destroy(&a);
            test_net_destroy(&b);
            free(text);
        }
    }
}

static void running_statistics_are_used_alike(void **state)
{
    (void)state;
    for (int i = 0; i < N_MODEL; i++) {
        char *text = with_channels(model[i].text, 13);
        ct_net_options o = { .phase = CT_TEST }, alone = { .phase = CT_TEST, .no_fuse = true };
        ct_net_options forward = { .phase = CT_TEST, .forward_only = true };
        test_net a, b, f;
        double loss;

        make(text, o, true, &a);
        make(text, alone, false, &b);
        make(text, forward, true, &f);
        assert_int_equal(n_group(a.net), model[i].n_group);
        for (int k = 0; k < b.net->n_param; k++) { /* statistics of something */
            const ct_param *p = &b.net->param[k];

            for (int64_t e = 0; (p->kind == CT_WEIGHT_STATISTIC) && (e < p->count); e++)
                ct_blob_data(&p->blob)[e] = 0.5f + 0.01f * (float)(e % 7);
        }
        same_weights(b.net, a.net);
        same_weights(b.net, f.net);
        assert_int_equal(ct_pass_forward(f.net->pass, &loss), CT_OK);
        assert_true(loss == test_net_pass(&b, 0, false));
        compare_nets(&a, &b, model[i].name, false);
        test_net_destroy(&a);
        test_net_destroy(&b);
        test_net_destroy(&f);
        free(text);
    }
}

static void threads_do_not_show(void **state)
{
    int threads = omp_get_max_threads();

    (void)state;
    for (int i = 0; i < N_MODEL; i++) {
        /* in blocks: sums of plain convolutions go by the number of threads */
        char *text = with_channels(model[i].text, 13);
        ct_net_options o = { .phase = CT_TRAIN };
        test_net a, b;
        double x, y;

        omp_set_num_threads(3);
        make(text, o, false, &a);
        x = test_net_pass(&a, 0, false);
        omp_set_num_threads(1);
        make(text, o, false, &b);
        y = test_net_pass(&b, 0, false);
        assert_true(x == y);
        for (int k = 0; k < a.net->n_param; k++) {
            const ct_param *p = &a.net->param[k], *q = &b.net->param[k];

            if (p->learns)
                test_same(ct_blob_diff(&p->blob), ct_blob_diff(&q->blob), p->count, p->key);
        }
        test_net_destroy(&a);
        test_net_destroy(&b);
        free(text);
    }
    omp_set_num_threads(threads);
}

/* ---- sums whose rows a norm reads: the same bits */

#define FC(name, bottom)                                                                           \
    LAYER(name, "InnerProduct", bottom, name,                                                      \
          "inner_product_param { num_output: @ axis: 3 weight_filler { type: 'xavier' } }")
#define ROWS(name, type, bottom)                                                                   \
    LAYER(name, type, bottom, name,                                                                \
          "layer_norm_param { scale_filler { type: 'uniform' min: 0.5 max: 1.5 } bias_filler { "   \
          "type: 'uniform' min: -0.5 max: 0.5 } } rms_norm_param { scale_filler { type: "          \
          "'uniform' min: 0.5 max: 1.5 } }")

static const struct {
    const char *name, *text;
    int n_group;
    const char *with; /* a norm, and whether it runs with its sum */
    bool joins;
} sum[] = {
    { "before", /* the sum goes on beside its norm; the last is of the norm alone */
      DATA FC("x", "data") FC("y", "x") JOIN("s", "Eltwise", "x", "y", "s", "")
          ROWS("n", "LayerNorm", "s") FC("z", "n") JOIN("t", "Eltwise", "s", "z", "t", "")
              ROWS("m", "RMSNorm", "t") FC("u", "m") JOIN("v", "Eltwise", "t", "u", "v", "")
                  ROWS("k", "LayerNorm", "v") END("k"),
      3, "n", true },
    { "behind", /* nobody else reads the sum; of one blob twice */
      DATA FC("x", "data") ROWS("n0", "LayerNorm", "x") FC("y", "n0")
          JOIN("s", "Eltwise", "n0", "y", "s", "") ROWS("n", "RMSNorm", "s") JOIN(
              "t", "Eltwise", "n", "n", "t", "") ROWS("m", "LayerNorm", "t") FC("z", "m") END("z"),
      2, "n", true },
    { "late", /* the sum is read before its norm could run; a ReLU is in front; three readers */
      DATA FC("x", "data") FC("y", "x") JOIN("s", "Eltwise", "x", "y", "s", "") FC("z", "s")
          ROWS("n", "LayerNorm", "s") JOIN("t", "Eltwise", "n", "z", "t", "") RELU("r", "t")
              ROWS("m", "LayerNorm", "t") FC("u", "m") JOIN("v", "Eltwise", "u", "z", "v", "")
                  ROWS("k", "LayerNorm", "v") FC("a", "v") JOIN("w", "Eltwise", "k", "a", "w", "")
                      JOIN("b", "Eltwise", "w", "v", "b", "") END("b"),
      3, "n", false },
};

static void a_norm_runs_with_its_sum(void **state)
{
    static const int widths[] = { 7, 16, 37, 1030 };
    int threads = omp_get_max_threads(), n_bf16 = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(sum) / sizeof(sum[0]); i++) {
        for (size_t c = 0; c < sizeof(widths) / sizeof(widths[0]); c++) {
            char *text = with_channels(sum[i].text, widths[c]);
            test_net a, b;

            omp_set_num_threads((int)(1 + c % 3));
            /* a ReLU with its sum, and three gradients at once, are rounded less often */
            for (int bf16 = 0; bf16 < (sum[i].joins ? 2 : 1); bf16++) {
                ct_net_options o = { .phase = CT_TRAIN };

                if (bf16) o.env.precision = CT__SOLVER_PARAMETER__PRECISION__BF16;
                make(text, o, true, &a);
                o.no_fuse = true;
                make(text, o, false, &b);
                assert_int_equal(n_group(a.net), sum[i].n_group);
                assert_int_equal(!runs_itself(a.net, sum[i].with), sum[i].joins);
                n_bf16 += bf16 && ct_blob_is_bf16(a.net->pass->blob[ct_net_find_blob(a.net, "n")]);
                compare_nets(&a, &b, sum[i].name, true);
                test_net_destroy(&a);
                test_net_destroy(&b);
            }
            make(text, (ct_net_options){ .phase = CT_TRAIN, .unshared = true }, false, &a);
            make(text, (ct_net_options){ .phase = CT_TEST, .forward_only = true }, true, &b);
            same_weights(a.net, b.net);
            {
                double loss;

                assert_int_equal(ct_pass_forward(b.net->pass, &loss), CT_OK);
                assert_true(loss == test_net_pass(&a, 0, false));
            }
            test_net_destroy(&a);
            test_net_destroy(&b);
            free(text);
        }
    }
    omp_set_num_threads(threads);
    assert_true(n_bf16 > 0); /* values of 16 bits were among them */
}

/* ---- a bias and a function of each element */

#define FULL(name, bottom, more)                                                                   \
    LAYER(name, "InnerProduct", bottom, name,                                                      \
          "inner_product_param { num_output: @ axis: 3 weight_filler { type: 'xavier' } "          \
          "bias_filler { type: 'uniform' min: -0.5 max: 0.5 } " more " }")

static const struct {
    const char *name, *text;
    int n_group;
} each[] = {
    { "gelu", /* in place and not */
      DATA FULL("x", "data", "") LAYER("a", "GELU", "x", "x", "") FULL("y", "x", "")
          LAYER("b", "GELU", "y", "g", "gelu_param { approximate: TANH }") END("g"),
      2 },
    { "others", /* two readers of what the function makes; a weight that does not learn */
      DATA FULL("x", "data", "transpose: true") LAYER("a", "Swish", "x", "x", "") FULL("y", "x", "")
          LAYER("b", "HardSwish", "y", "g", "") JOIN("s", "Eltwise", "x", "g", "s", "")
              LAYER("z", "InnerProduct", "s", "z",
                    "param { lr_mult: 1 } param { lr_mult: 0 } inner_product_param { num_output: @ "
                    "axis: 3 weight_filler { type: 'xavier' } bias_filler { value: 0.3 } }")
                  LAYER("c", "Mish", "z", "h", "") END("h"),
      3 },
    { "alone", /* who reads the layer's top, too; no bias; a slope of the output, of neither */
      DATA FULL("x", "data", "") LAYER("a", "GELU", "x", "g", "")
          JOIN("s", "Eltwise", "x", "g", "s", "") FULL("y", "s", "bias_term: false") LAYER(
              "b", "GELU", "y", "y", "") FULL("z", "y", "") LAYER("c", "Sigmoid", "z", "z", "")
              FULL("u", "z", "") LAYER("d", "Power", "u", "u", "power_param { scale: 2 }") END("u"),
      0 },
};
enum { N_EACH = sizeof(each) / sizeof(each[0]) };

/* The gradient of the bias of layer i. The group adds up four floats at a time, by two roundings
 * each; then both add doubles up and round once: together 4 roundings of the sum of sizes. In bf16
 * the layers alone sum what has been rounded by 2^-9. */
static void bias_close_to(const ct_net *alone, int i, const float *a, const float *b)
{
    const ct_blob *top = alone->pass->instance[i]->top[0];
    int64_t n = alone->layer[i]->weight[1].shape.dim[0], rows = ct_tensor_count(&top->diff) / n;
    bool bf16 = ct_blob_is_bf16(top);
    double unit = 4.001 * 0x1p-24 + (bf16 ? 1.01 * 0x1p-9 : 0);

    for (int64_t j = 0; j < n; j++) {
        double size = 0;

        for (int64_t k = 0; k < rows; k++)
            size += fabs((double)ct_num_get(ct_blob_diff(top), bf16, k * n + j));
        if (!(fabs((double)a[j] - (double)b[j]) <= unit * size))
            fail_msg("bias of %s[%lld]: %.9g, alone %.9g, sizes %.9g", alone->layer[i]->name,
                     (long long)j, (double)a[j], (double)b[j], size);
    }
}

/* All other numbers have the same bits: sums are in one piece here, so that it is the same whether
 * the bias comes before or after. */
static void compare_each(test_net *a, test_net *alone)
{
    for (int pass = 0; pass < 3; pass++) {
        double x = test_net_pass(a, pass, false), y = test_net_pass(alone, pass, false);

        if (!isfinite(y) || (x != y)) fail_msg("loss %.17g, alone %.17g", x, y);
        for (int i = 0; i < a->net->n_layer; i++) {
            const ct_instance *in = a->net->pass->instance[i];
            int j = ct_net_find_layer(alone->net, a->net->layer[i]->name);
            bool group = (in->tail != NULL) && (in->tail->of[CT_EPILOGUE_EACH] != NULL);

            for (int w = 0; w < a->net->layer[i]->n_weight; w++) {
                const ct_blob *p = &in->weight[w], *q = &alone->net->pass->instance[j]->weight[w];

                if (ct_blob_diff(p) == NULL) continue;
                if (group && (w == 1))
                    bias_close_to(alone->net, j, ct_blob_diff(p), ct_blob_diff(q));
                else
                    test_same(ct_blob_diff(p), ct_blob_diff(q), ct_tensor_count(&p->diff),
                              a->net->layer[i]->name);
            }
        }
        step(alone->net);
        same_weights(alone->net, a->net);
        ct_net_weights_changed(a->net);
        ct_net_weights_changed(alone->net);
    }
}

static void a_function_runs_with_its_bias(void **state)
{
    static const int widths[] = { 7, 16, 37, 260 };
    int threads = omp_get_max_threads(), n_bf16 = 0;

    (void)state;
    for (int i = 0; i < 2 * N_EACH; i++) {
        for (size_t c = 0; c < sizeof(widths) / sizeof(widths[0]); c++) {
            char *text = with_channels(each[i / 2].text, widths[c]);
            ct_net_options o = { .phase = CT_TRAIN };
            test_net a, b, d;
            double loss, alone;

            omp_set_num_threads((int)(1 + c % 3));
            if (i % 2 == 1) o.env.precision = CT__SOLVER_PARAMETER__PRECISION__BF16;
            make(text, o, true, &a);
            o.no_fuse = o.unshared = true;
            make(text, o, false, &b);
            assert_int_equal(n_group(a.net), each[i / 2].n_group);
            n_bf16 += ct_blob_is_bf16(a.net->pass->blob[ct_net_find_blob(a.net, "y")]);
            compare_each(&a, &b);
            test_net_destroy(&a);
            o.no_fuse = o.unshared = false;
            o.phase = CT_TEST;
            o.forward_only = true; /* as deploy nets are: nothing is kept */
            make(text, o, true, &a);
            o.no_fuse = true;
            make(text, o, false, &d);
            assert_int_equal(n_group(a.net), each[i / 2].n_group);
            same_weights(b.net, a.net);
            same_weights(b.net, d.net);
            assert_int_equal(ct_pass_forward(a.net->pass, &loss), CT_OK);
            assert_int_equal(ct_pass_forward(d.net->pass, &alone), CT_OK);
            assert_true(loss == alone);
            test_net_destroy(&d);
            test_net_destroy(&a);
            test_net_destroy(&b);
            free(text);
        }
    }
    omp_set_num_threads(threads);
    assert_true(n_bf16 > 0); /* values of 16 bits were among them */
}

/* With CHEAP what the function makes is made again: it is not kept beside what goes into it. */
static void a_function_is_applied_again(void **state)
{
    char *text = with_channels(
        DATA FULL("x", "data", "") LAYER("a", "GELU", "x", "x", "") FULL("y", "x", "")
            LAYER("b", "GELU", "y", "y", "") FULL("z", "y", "") LAYER("c", "Swish", "z", "z", "")
                FULL("u", "z", "") LAYER("d", "GELU", "u", "u", "") END("u"),
        260);

    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        ct_net_options o = { .phase = CT_TRAIN };
        test_net a, b;

        if (bf16) o.env.precision = CT__SOLVER_PARAMETER__PRECISION__BF16;
        make(text, o, false, &b);
        o.recompute = CT__RECOMPUTE__CHEAP;
        make(text, o, true, &a);
        assert_int_equal(ct_net_impl_of(a.net)->n_again, 3);
        compare_nets(&a, &b, "again", true);
        test_net_destroy(&a);
        test_net_destroy(&b);
    }
    free(text);
}

static void a_net_may_forbid_it(void **state)
{
    char *text = with_channels(model[0].text, 13), *all = malloc(strlen(text) + 20);
    test_net a;

    (void)state;
    sprintf(all, "fuse: false %s", text);
    make(all, (ct_net_options){ .phase = CT_TRAIN }, false, &a);
    assert_int_equal(n_group(a.net), 0);
    test_net_destroy(&a);
    free(text);
    free(all);
}

/* What is made again in backward has the same bits, chains of it too, and is not kept: its memory
 * is poisoned between. */
static void values_made_again_are_the_same(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        for (size_t c = 0; c < sizeof(channels) / sizeof(channels[0]); c++) {
            char *text = with_channels(model[i].text, channels[c]);
            char *again = malloc(strlen(text) + 20);
            test_net a, b;

            sprintf(again, "recompute: true %s", text);
            make((c % 2 == 0) ? again : text,
                 (ct_net_options){ .phase = CT_TRAIN, .recompute = true }, true, &a);
            make(text, (ct_net_options){ .phase = CT_TRAIN }, false, &b);
            assert_true(ct_net_impl_of(a.net)->n_again > 0);
            assert_int_equal(ct_net_impl_of(b.net)->n_again, 0);
            assert_true(a.net->memory.peak_alive <= b.net->memory.peak_alive);
            compare_nets(&a, &b, model[i].name, true);
            test_net_destroy(&a);
            test_net_destroy(&b);
            free(text);
            free(again);
        }
    }
}

/* A sum of a sum: made again in the order of forward, both when the second is wanted. */
static void sums_of_sums_are_made_again_in_order(void **state)
{
    static const char *text = DATA CONV("x", "data", "3", "pad: 1") NORM("0", "x") RELU("r0", "x")
        CONV("y", "x", "1", "") NORM("1", "y") JOIN("s", "Eltwise", "x", "y", "s", "")
            RELU("rs", "s") CONV("z", "s", "1", "") NORM("2", "z")
                JOIN("t", "Eltwise", "s", "z", "t", "") RELU("rt", "t") CONV("u", "t", "1", "")
                    NORM("3", "u") JOIN("v", "Eltwise", "t", "u", "v", "") RELU("rv", "v")
                        CONV("w", "v", "3", "") END("w");
    char *with = with_channels(text, 13);
    ct_net_options o = { .phase = CT_TRAIN, .recompute = true };
    const ct_net_impl *m;
    test_net a, b;

    (void)state;
    make(with, o, true, &a);
    make(with, (ct_net_options){ .phase = CT_TRAIN }, false, &b);
    m = ct_net_impl_of(a.net);
    assert_int_equal(m->n_again, 4);
    for (int k = 1; k < 4; k++) { /* all when the last is wanted */
        assert_true(m->again[k].layer > m->again[k - 1].layer);
        assert_int_equal(m->again[k].when, m->again[0].when);
    }
    compare_nets(&a, &b, "sums of sums", true);
    test_net_destroy(&a);
    test_net_destroy(&b);
    free(with);
}

/* The sign of a ReLU in front of a maximum goes with the maximum's places. */
static void a_maximum_does_the_relu_before_it(void **state)
{
    static const struct {
        const char *layer;
        bool done;
    } want[] = { { "x", true }, { "z", true }, { "u", false } };
    char *text = with_channels(model[5].text, 13);
    test_net a;

    (void)state;
    make(text, (ct_net_options){ .phase = CT_TRAIN }, false, &a);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        assert_int_equal(
            a.net->pass->instance[ct_net_find_layer(a.net, want[i].layer)]->tail->relu_done,
            want[i].done);
    test_net_destroy(&a);
    free(text);
}

static void groups_take_less_memory(void **state)
{
    char *text = with_channels(model[0].text, 13);
    test_net a, b;

    (void)state;
    make(text, (ct_net_options){ .phase = CT_TRAIN }, false, &a);
    make(text, (ct_net_options){ .phase = CT_TRAIN, .no_fuse = true }, false, &b);
    assert_true(a.net->memory.planned < b.net->memory.planned);
    test_net_destroy(&a);
    test_net_destroy(&b);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_computes_what_its_layers_do),
        cmocka_unit_test(running_statistics_are_used_alike),
        cmocka_unit_test(threads_do_not_show),
        cmocka_unit_test(a_norm_runs_with_its_sum),
        cmocka_unit_test(a_function_runs_with_its_bias),
        cmocka_unit_test(a_function_is_applied_again),
        cmocka_unit_test(a_net_may_forbid_it),
        cmocka_unit_test(groups_take_less_memory),
        cmocka_unit_test(values_made_again_are_the_same),
        cmocka_unit_test(sums_of_sums_are_made_again_in_order),
        cmocka_unit_test(a_maximum_does_the_relu_before_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
