/* The CUDA device against the CPU: the nets of LeNet and CIFAR-10 quick in small, loss, outputs and
 * every weight gradient; mathematics; one SGD step. Skips where no device works. */
#include "tests/test.h"
#include "tests/log_capture.h"

#include "framework/base/rng.h"
#include "framework/math/math.h"
#include "framework/net/net.h"
#include "framework/proto/prototxt.h"

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

static const ct_device *cuda(void)
{
    const ct_device *dev = NULL;
    log_capture log;
    ct_status status;

    log_capture_start(&log); /* that there is none is no error here */
    status = ct_device_open("cuda", 0, &dev);
    log_capture_stop();
    if (status != CT_OK) {
        print_message("skipped: no CUDA device, or built without CUDA=1\n");
        skip();
    }
    return dev;
}

static ct_net *make(const char *text, const ct_device *dev, ProtobufCMessage **message_p)
{
    ct_net_options o = { .phase = CT_TRAIN, .env = { .n_rank = 1, .seed = 5 }, .dev = dev };
    ct_net *net = NULL;

    assert_int_equal(ct_prototxt_parse(&ct__net_parameter__descriptor, "test", text, strlen(text),
                                       NULL, message_p),
                     CT_OK);
    assert_int_equal(ct_net_create((const Ct__NetParameter *)*message_p, &o, &net), CT_OK);
    return net;
}

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
    const ct_device *dev[2] = { ct_device_cpu(), cuda() };
    ProtobufCMessage *message[2];
    ct_net *net[2];
    float *grad[2];
    double loss[2];

    for (int k = 0; k < 2; k++) {
        ct_exec ex = { .dev = dev[k], .phase = CT_TRAIN, .seed = 5 };

        net[k] = make(text, dev[k], &message[k]);
        for (int pass = 0; pass < 2; pass++) { /* the second adds to the first's gradients */
            ex.micro_step = pass;
            ex.accumulate = (pass > 0);
            assert_int_equal(ct_net_forward(net[k], &ex, &loss[k]), CT_OK);
            assert_int_equal(ct_net_backward(net[k], &ex, NULL, NULL), CT_OK);
        }
        grad[k] = host_copy(dev[k], net[k]->grad_arena, net[k]->grad_count);
    }
    assert_int_equal(ct_net_checksum(net[0], true), ct_net_checksum(net[1], true));
    assert_true(fabs(loss[0] - loss[1]) <= 1530 * FLT_EPSILON * fabs(loss[0]));
    compare(grad[0], grad[1], net[0]->grad_count);
    for (int k = 0; k < 2; k++) {
        free(grad[k]);
        ct_net_destroy(net[k]);
        protobuf_c_message_free_unpacked(message[k], NULL);
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

static void sgd_is_the_same(void **unused)
{
    enum { N = 1001 };
    const ct_device *dev[2] = { ct_device_cpu(), cuda() };
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
        cmocka_unit_test(lenet_is_the_same),
        cmocka_unit_test(quick_is_the_same),
        cmocka_unit_test(sgd_is_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
