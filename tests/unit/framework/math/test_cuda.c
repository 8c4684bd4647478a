/* The CUDA device against the CPU: small nets of the kinds there are, loss, outputs and every
 * weight gradient. Skips where no device works. Updates: test_cuda_update. Layer by layer, the
 * other tests compare with CORTADO_TEST_DEVICE=cuda (make test-gpu). */
#include "tests/test.h"
#include "tests/box_net.h"
#include "tests/cuda_case.h"
#include "tests/log_capture.h"

#include "framework/base/rng.h"
#include "framework/math/math.h"
#include "framework/math/update.h"
#include "framework/net/net.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DATA                                                                                       \
    "layer { name: 'data' type: 'DummyData' top: 'data' top: 'label' dummy_data_param { "          \
    "shape { dim: 6 dim: 2 dim: 17 dim: 15 } shape { dim: 6 } "                                    \
    "data_filler { type: 'gaussian' std: 1 } data_filler { value: 2 } } }\n"
#define LAYER(name, type, bottom, top, more)                                                       \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " more " }\n"
#define CONV(name, bottom, n, k, more)                                                             \
    LAYER(name, "Convolution", bottom, name,                                                       \
          "convolution_param { num_output: " n " kernel_size: " k " " more                         \
          " weight_filler { type: 'xavier' } bias_filler { value: 0.1 } }")
#define POOL(name, bottom, more) LAYER(name, "Pooling", bottom, name, "pooling_param { " more " }")
#define FC(name, bottom, n)                                                                        \
    LAYER(name, "InnerProduct", bottom, name,                                                      \
          "inner_product_param { num_output: " n " weight_filler { type: 'xavier' } }")
#define HEAD(bottom)                                                                               \
    "layer { name: 'accuracy' type: 'Accuracy' bottom: '" bottom                                   \
    "' bottom: 'label' top: 'accuracy' }\n"                                                        \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: '" bottom                                \
    "' bottom: 'label' top: 'loss' }\n"

static const char lenet[] = DATA CONV("c1", "data", "6", "5", "")
    POOL("p1", "c1", "pool: MAX kernel_size: 2 stride: 2") CONV("c2", "p1", "8", "3", "group: 2")
        FC("f1", "c2", "9") LAYER("r1", "ReLU", "f1", "f1", "") FC("f2", "f1", "5") HEAD("f2");

static const char quick[] = DATA CONV("c1", "data", "6", "5", "pad: 2 stride: 2")
    POOL("p1", "c1", "pool: MAX kernel_size: 3 stride: 2 pad: 1")
        LAYER("r1", "ReLU", "p1", "p1", "relu_param { negative_slope: 0.1 }")
            CONV("c2", "p1", "8", "3", "pad: 2 dilation: 2")
                POOL("p2", "c2", "pool: AVE kernel_size: 3 stride: 2") FC("f2", "p2", "5")
                    HEAD("f2");

/* As ResNet: groups of BatchNorm, Scale, Eltwise, ReLU and Split. */
#define NORM(name, bottom)                                                                         \
    LAYER(name "n", "BatchNorm", bottom, name "n", "")                                             \
    LAYER(name "s", "Scale", name "n", name "s",                                                   \
          "scale_param { bias_term: true filler { type: 'gaussian' std: 1 } }")
#define SUM(name, a, b)                                                                            \
    "layer { name: '" name "' type: 'Eltwise' bottom: '" a "' bottom: '" b "' top: '" name "' }\n"
static const char residual[] =
    DATA CONV("c1", "data", "6", "3", "pad: 1 bias_term: false") NORM("1", "c1")
        LAYER("r1", "ReLU", "1s", "r1", "") CONV("c2", "r1", "6", "3", "pad: 1 bias_term: false")
            NORM("2", "c2") SUM("e2", "2s", "r1") LAYER("r2", "ReLU", "e2", "r2", "")
                CONV("c3", "r2", "6", "3", "pad: 1 group: 6 bias_term: false") NORM("3", "c3")
                    SUM("e3", "3s", "r2") LAYER("r3", "ReLU", "e3", "r3", "")
                        POOL("p", "r3", "pool: AVE global_pooling: true") FC("f2", "p", "5")
                            HEAD("f2");

/* As AlexNet and GoogLeNet: LRN, Dropout, Concat; and PReLU. */
static const char branches[] = DATA CONV("c1", "data", "6", "3", "")
    LAYER("n1", "LRN", "c1", "n1", "") CONV("c2", "n1", "4", "1", "")
        CONV("c3", "n1", "5", "3",
             "pad: 1") "layer { name: 'cat' type: 'Concat' bottom: 'c2' "
                       "bottom: 'c3' top: 'cat' }\n" LAYER("pr", "PReLU", "cat", "cat", "")
                           LAYER("d", "Dropout", "cat", "cat", "") FC("f2", "cat", "5") HEAD("f2");

/* Words in sequences. */
static const char words[] =
    "layer { name: 'data' type: 'DummyData' top: 'w' top: 'cont' top: 'label' "
    "dummy_data_param { "
    "shape { dim: 4 dim: 3 } shape { dim: 4 dim: 3 } shape { dim: 4 dim: 3 } "
    "data_filler { value: 3 } data_filler { value: 1 } data_filler { value: 2 } } "
    "}\n" LAYER("e", "Embed", "w", "e",
                "embed_param { num_output: 6 input_dim: 8 weight_filler { type: 'uniform' min: "
                "-1 } }") "layer { name: 'l' type: 'LSTM' bottom: 'e' bottom: 'cont' top: 'l' "
                          "recurrent_param { "
                          "num_output: 5 weight_filler { type: 'uniform' min: -1 } } }\n" LAYER(
                              "f", "InnerProduct", "l", "f",
                              "inner_product_param { num_output: 8 axis: 2 weight_filler { type: "
                              "'xavier' } }") "layer { name: 'loss' type: 'SoftmaxWithLoss' "
                                              "bottom: 'f' bottom: 'label' top: 'loss' "
                                              "softmax_param { axis: 2 } }\n";

/* Attention between layers that take each token for itself. */
#define ROWS(name, bottom, n)                                                                      \
    LAYER(name, "InnerProduct", bottom, name,                                                      \
          "inner_product_param { num_output: " n " axis: 2 weight_filler { type: 'xavier' } }")
static const char tokens[] =
    "layer { name: 'data' type: 'DummyData' top: 'x' top: 'label' dummy_data_param { "
    "shape { dim: 3 dim: 70 dim: 12 } shape { dim: 3 dim: 70 } "
    "data_filler { type: 'gaussian' std: 1 } data_filler { value: 2 } } }\n" ROWS("qkv", "x", "32")
        LAYER("a", "Attention", "qkv", "a",
              "attention_param { num_heads: 4 num_kv_heads: 2 causal: true "
              "window: 40 dropout: 0.2 rope { } }") ROWS("p", "a", "12") LAYER("n", "LayerNorm",
                                                                               "p", "n", "")
            ROWS("f", "n", "5") "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'f' bottom: "
                                "'label' top: 'loss' "
                                "softmax_param { axis: 2 } }\n";

/* A layer that has no form for the device, between two with weights. */
static const char mixed[] = DATA CONV("c1", "data", "6", "3", "")
    TEST_BOX_LOSS("c1", "data", "780", "585") LAYER("r1", "ReLU", "c1", "r1", "")
        LAYER("de", "Deconvolution", "r1", "de",
              "convolution_param { num_output: 3 kernel_size: 2 stride: 2 weight_filler { type: "
              "'xavier' } }") FC("f2", "de", "5") HEAD("f2");

/* Statistics of all ranks, here of one. */
static const char synced[] =
    DATA CONV("c1", "data", "6", "3", "") LAYER("sy", "SyncBN", "c1", "sy", "")
        LAYER("r1", "ReLU", "sy", "sy", "") CONV("c2", "sy", "5", "3", "")
            LAYER("s2", "SyncBN", "c2", "c2", "") FC("f2", "c2", "5") HEAD("f2");

static float *host_copy(const ct_device *dev, const float *data, int64_t n)
{
    float *host = malloc((size_t)n * sizeof(*host));

    assert_non_null(host);
    assert_int_equal(dev->to_host(NULL, host, data, (size_t)n * sizeof(*host)), CT_OK);
    return host;
}

/* Both sides sum the same products in f32 in some order: n eps of the largest term, with n the
 * longest sum there is (a weight gradient over 6 x 17 x 15 places, through four layers). */
static void compare(const float *x, const float *y, int64_t n)
{
    float largest = 0.0f;

    for (int64_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(x[i]));
    assert_true(largest > 0.0f);
    for (int64_t i = 0; i < n; i++) {
        if (!(fabsf(x[i] - y[i]) <= 4 * 1530 * FLT_EPSILON * largest))
            fail_msg("element %lld: %g on the CPU, %g on CUDA", (long long)i, (double)x[i],
                     (double)y[i]);
    }
}

static void run_both(const char *text)
{
    const ct_device *dev[2] = { ct_device_cpu(), test_cuda() };
    test_cuda_net t[2];
    float *grad[2];
    double loss[2];

    for (int k = 0; k < 2; k++) {
        test_cuda_net_open(text, dev[k], NULL, NULL, &t[k]);
        /* the second pass adds to the first's gradients */
        for (int pass = 0; pass < 2; pass++) loss[k] = test_cuda_net_pass(&t[k], pass, pass > 0);
        grad[k] = test_cuda_net_gradients(&t[k]);
    }
    assert_int_equal(ct_net_checksum(t[0].net, false), ct_net_checksum(t[1].net, false));
    assert_true(fabs(loss[0] - loss[1]) <= 1530 * FLT_EPSILON * fabs(loss[0]));
    compare(grad[0], grad[1], t[0].net->grad_count);
    for (int k = 0; k < 2; k++) {
        free(grad[k]);
        test_cuda_net_close(&t[k]);
    }
}

static void lenet_is_the_same(void **unused)
{
    (void)unused;
    run_both(lenet);
}

static void quick_is_the_same(void **unused)
{
    (void)unused;
    run_both(quick);
}

static void residual_is_the_same(void **unused)
{
    (void)unused;
    run_both(residual);
}

static void branches_are_the_same(void **unused)
{
    (void)unused;
    run_both(branches);
}

static void words_are_the_same(void **unused)
{
    (void)unused;
    run_both(words);
}

static void tokens_are_the_same(void **unused)
{
    (void)unused;
    run_both(tokens);
}

static void host_layers_are_the_same(void **unused)
{
    log_capture log;

    (void)unused;
    (void)test_cuda();
    log_capture_start(&log); /* that a layer runs on the host is said */
    run_both(mixed);
    log_capture_stop();
}

static void synced_are_the_same(void **unused)
{
    (void)unused;
    run_both(synced);
}

/* ---- updates */

static void sgd_is_the_same(void **unused)
{
    enum { N = 1001 };
    const ct_device *dev[2] = { ct_device_cpu(), test_cuda() };
    float start[3][N], *result[2][3];

    (void)unused;
    for (int v = 0; v < 3; v++) {
        for (int i = 0; i < N; i++)
            start[v][i] = ct_rng_normal_at(ct_rng_key(1, 2, (uint64_t)v), (uint64_t)i);
    }
    for (int k = 0; k < 2; k++) {
        void *at[3];

        for (int v = 0; v < 3; v++) {
            assert_int_equal(dev[k]->mem_acquire(sizeof(start[v]), &at[v]), CT_OK);
            assert_int_equal(dev[k]->from_host(NULL, at[v], start[v], sizeof(start[v])), CT_OK);
        }
        assert_int_equal(
            dev[k]->math->sgd(NULL, N, 0.5f, 0.1f, 0.9f, 0.01f, 0.0f, at[0], at[1], at[2]), CT_OK);
        for (int v = 0; v < 3; v++) {
            result[k][v] = host_copy(dev[k], at[v], N);
            dev[k]->mem_release(at[v]);
        }
    }
    for (int v = 0; v < 3; v++) { /* a handful of operations on numbers below 8 */
        for (int i = 0; i < N; i++)
            assert_true(fabsf(result[0][v][i] - result[1][v][i]) <= 8 * 8 * FLT_EPSILON);
        free(result[0][v]);
        free(result[1][v]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet_is_the_same),        cmocka_unit_test(quick_is_the_same),
        cmocka_unit_test(residual_is_the_same),     cmocka_unit_test(branches_are_the_same),
        cmocka_unit_test(words_are_the_same),       cmocka_unit_test(tokens_are_the_same),
        cmocka_unit_test(host_layers_are_the_same), cmocka_unit_test(synced_are_the_same),
        cmocka_unit_test(sgd_is_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
