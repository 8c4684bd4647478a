/* Layers that have no form for the net's device run on the host: against the same net on the CPU,
 * on a made-up device whose copies are counted. Its memory is the host's, but what lies there is
 * turned inside out, so that a layer that looked at it without a copy would compute something else.
 */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/net_layers.h"

#include "framework/base/memory.h"
#include "framework/math/math.h"

#include <stdlib.h>
#include <string.h>

static struct {
    int up, down, acquired, pinned;
    size_t up_bytes, down_bytes;
} counted;

static void turn(void *to, const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)to)[i] = ((const unsigned char *)from)[i] ^ 0x5A;
}

static ct_status mock_acquire(size_t bytes, void **data_p)
{
    *data_p = ct_mem_acquire(bytes + 1);
    assert_non_null(*data_p);
    memset(*data_p, 0x5A, bytes); /* zeros, seen from the device */
    counted.acquired++;
    return CT_OK;
}

static ct_status mock_to_host(ct_stream st, void *host, const void *data, size_t bytes)
{
    (void)st;
    counted.down++;
    counted.down_bytes += bytes;
    turn(host, data, bytes);
    return CT_OK;
}

static ct_status mock_from_host(ct_stream st, void *data, const void *host, size_t bytes)
{
    (void)st;
    counted.up++;
    counted.up_bytes += bytes;
    turn(data, host, bytes);
    return CT_OK;
}

static ct_status mock_copy(ct_stream st, void *to, const void *from, size_t bytes)
{
    (void)st;
    memcpy(to, from, bytes);
    return CT_OK;
}

static ct_status mock_zero(ct_stream st, void *data, size_t bytes)
{
    (void)st;
    memset(data, 0x5A, bytes);
    return CT_OK;
}

static ct_status mock_sync(ct_stream st)
{
    (void)st;
    return CT_OK;
}

static ct_status mock_set(ct_stream st, int64_t n, float value, float *y)
{
    (void)st;
    for (int64_t i = 0; i < n; i++) turn(&y[i], &value, sizeof(value));
    return CT_OK;
}

static ct_status mock_host_acquire(size_t bytes, void **data_p)
{
    *data_p = ct_mem_acquire(bytes + 1);
    counted.pinned++;
    return (*data_p != NULL) ? CT_OK : CT_ERR_NOMEM;
}

static const ct_math_ops mock_math = { .name = "mock", .set = mock_set };
static const ct_device mock = { .name = "mock",
                                .kind = CT_DEVICE_CUDA,
                                .mem_acquire = mock_acquire,
                                .mem_release = ct_mem_release,
                                .to_host = mock_to_host,
                                .from_host = mock_from_host,
                                .copy = mock_copy,
                                .zero = mock_zero,
                                .sync = mock_sync,
                                .math = &mock_math,
                                .host_acquire = mock_host_acquire,
                                .host_release = ct_mem_release };

/* ---- a layer that does run on the device: it knows how to read there */

static ct_status native_reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    assert_ptr_equal(in->layer->dev, &mock);
    ct_blob_set_shape(in->top[0], &in->bottom[0]->data.shape);
    return CT_OK;
}

static ct_status native_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    assert_ptr_equal(ex->dev, &mock);
    return ex->dev->copy(ex->stream, ct_blob_data(in->top[0]), ct_blob_data(in->bottom[0]),
                         ct_tensor_bytes(&in->top[0]->data));
}

static ct_status native_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ex->dev->copy(ex->stream, ct_blob_diff(in->bottom[0]), ct_blob_diff(in->top[0]),
                         ct_tensor_bytes(&in->top[0]->data));
}

static const ct_layer_ops native = { .type = "Pass",
                                     .min_bottom = 1,
                                     .max_bottom = 1,
                                     .min_top = 1,
                                     .max_top = 1,
                                     .reshape = native_reshape,
                                     .forward = native_forward,
                                     .backward = native_backward,
                                     .on_cuda = true };

/* The types of net_layers.h, with this "Pass". */
static const ct_layer_ops **table_with_native(void)
{
    static const ct_layer_ops *table[64];
    int n = 0;

    for (; test_net_table[n] != NULL; n++)
        table[n] = (strcmp(test_net_table[n]->type, "Pass") == 0) ? &native : test_net_table[n];
    table[n] = NULL;
    return table;
}

#define LAYER(name, type, bottom, top, more)                                                       \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " more " }\n"
static const char net_text[] =
    "layer { name: 'in' type: 'Source' top: 'x' input_param { shape { dim: 4 dim: 3 } } }\n" LAYER(
        "a", "Linear", "x", "a",
        "inner_product_param { num_output: 5 weight_filler { type: 'xavier' } }")
        LAYER("t", "Tanh", "a", "a", "")                                  /* in place */
    LAYER("p", "Pass", "a", "b", "")                                      /* on the device */
    LAYER("w", "Work", "b", "c", "inner_product_param { num_output: 2 }") /* buffers of all kinds */
    LAYER("b", "Linear", "c", "d",
          "inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } param { name: "
          "'w' }") LAYER("s", "Stat", "d", "e", "") LAYER("q", "Square", "e", "f", "")
        LAYER("loss", "SumSq", "f", "loss", "");

static float *gradients(const test_net *t, const ct_device *dev)
{
    size_t bytes = (size_t)t->net->grad_count * sizeof(float);
    float *g = malloc(bytes);

    assert_non_null(g);
    assert_int_equal(dev->to_host(NULL, g, t->net->grad_arena, bytes), CT_OK);
    return g;
}

static void same_as_on_the_cpu(void **unused)
{
    const ct_device *dev[2] = { ct_device_cpu(), &mock };
    ct_net_options o = { .phase = CT_TRAIN };
    test_net t[2];
    double loss[2];
    float *g[2];

    (void)unused;
    for (int k = 0; k < 2; k++) {
        o.dev = dev[k];
        o.table = (k == 0) ? test_net_table : (const ct_layer_ops *const *)table_with_native();
        test_log_start();
        assert_int_equal(test_net_create(net_text, &o, &t[k]), CT_OK);
        for (int pass = 0; pass < 3; pass++) /* the second adds, the third has another batch */
            loss[k] = test_net_pass(&t[k], pass / 2, pass == 1);
        g[k] = gradients(&t[k], dev[k]);
        if (k == 1) { /* a line a layer, and none for "Pass" */
            const char *log = test_log_stop();

            assert_non_null(strstr(log, "layer \"w\" (Work)"));
            assert_non_null(strstr(log, "runs on the host"));
            assert_null(strstr(log, "layer \"p\""));
        } else {
            assert_null(strstr(test_log_stop(), "runs on the host"));
        }
    }
    assert_true(loss[0] == loss[1]);
    assert_int_equal(t[0].net->grad_count, t[1].net->grad_count);
    test_same(g[0], g[1], t[0].net->grad_count, "gradients");
    for (int k = 0; k < 2; k++) {
        free(g[k]);
        test_net_destroy(&t[k]);
    }
}

/* Each layer on the host brings down bottoms and weights in forward, top diffs in backward, and up
 * tops (and statistics), bottom diffs and weight diffs. Counted by hand for the net above. */
static void counts_of_copies(void **unused)
{
    ct_net_options o = { .phase = CT_TRAIN,
                         .dev = &mock,
                         .table = (const ct_layer_ops *const *)table_with_native() };
    test_net t;
    int acquired;

    (void)unused;
    test_log_start();
    assert_int_equal(test_net_create(net_text, &o, &t), CT_OK);
    (void)test_log_stop();
    acquired = counted.acquired;
    assert_true(counted.pinned >= 8); /* a block each */
    memset(&counted, 0, sizeof(counted));
    (void)test_net_pass(&t, 0, false);
    /* down: a 3, t 1, w 1, b 3, s 2, q 1, loss 1, and the loss to the host: 13; back: tops of loss,
     * q, s, b, w, t, a: 7 */
    assert_int_equal(counted.down, 13 + 7);
    /* up: tops of in, a, t, w, b, s, q, loss, and s's statistic: 9; back: bottoms of loss, q, s, b,
     * w, t: 6 (x wants none), weights of a and b: 4 */
    assert_int_equal(counted.up, 9 + 6 + 4);
    assert_int_equal(counted.acquired, 0); /* nothing is allocated in a step */
    assert_int_equal(counted.pinned, 0);
    assert_true(acquired > 0);
    test_net_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_on_the_cpu),
        cmocka_unit_test(counts_of_copies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
