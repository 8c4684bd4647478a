/* What layers take at least, against sums by hand; the limits of the machine that runs this. */
#include "tests/test.h"
#include "tests/net_layers.h"

#include "runtime/machine_limit.h"

#include <math.h>
#include <string.h>

static const char net_text[] =
    "layer { name: 'data' type: 'DummyData' top: 'data' dummy_data_param { shape { dim: 2 dim: 3 "
    "dim: 8 dim: 8 } data_filler { type: 'gaussian' std: 1 } } }\n"
    "layer { name: 'labels' type: 'DummyData' top: 'label' dummy_data_param { shape { dim: 2 } "
    "data_filler { value: 1 } } }\n"
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' convolution_param { "
    "num_output: 5 kernel_size: 3 weight_filler { type: 'xavier' } } ct_kernel { forward: 'ref' "
    "backward_data: 'ref' backward_weight: 'gemm' } }\n"
    "layer { name: 'relu' type: 'ReLU' bottom: 'conv' top: 'conv' }\n"
    "layer { name: 'flat' type: 'Flatten' bottom: 'conv' top: 'flat' }\n"
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'flat' top: 'ip' inner_product_param { "
    "num_output: 4 bias_term: false weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n";

enum { X = 2 * 3 * 64, Y = 2 * 5 * 36, W = 5 * 27, B = 5, IP = 2 * 4, IPW = 180 * 4 };

static ct_estimate of(const test_net *t, const char *layer)
{
    ct_estimate e;

    ct_net_estimate(t->net, ct_net_find_layer(t->net, layer), &e);
    return e;
}

static void estimates_count_each_operand_once(void **state)
{
    const ct_net_options o = { .phase = CT_TRAIN, .table = ct_layer_table, .no_fuse = true };
    ct_estimate e;
    test_net t;

    (void)state;
    assert_int_equal(test_net_create(net_text, &o, &t), CT_OK);
    e = of(&t, "conv");
    assert_true(e.forward_flop == 2.0 * Y * 27 + Y);
    assert_true(e.backward_flop == 2.0 * Y * 27 + Y); /* no gradient of images */
    assert_true(e.forward_bytes == 4.0 * (X + Y + W + B));
    assert_true(e.backward_bytes == 4.0 * (X + Y + W + B)); /* x, dy in; dw, db out */
    assert_string_equal(e.engine[CT_RUN_FORWARD], "ref");
    assert_string_equal(e.engine[CT_RUN_BACKWARD_WEIGHT], "gemm");
    assert_null(e.engine[CT_RUN_BACKWARD_DATA]);
    e = of(&t, "ip");
    assert_true(e.forward_flop == 2.0 * 2 * 4 * 180);
    assert_true(e.backward_flop == 2.0 * e.forward_flop);
    assert_true(e.forward_bytes == 4.0 * (Y + IP + IPW));
    assert_true(e.backward_bytes == 4.0 * (2 * Y + IP + 2 * IPW)); /* x, dy, w in; dx, dw out */
    e = of(&t, "relu");
    assert_true((e.forward_bytes == 8.0 * Y) && (e.backward_bytes == 12.0 * Y));
    e = of(&t, "flat"); /* both ends are the same memory */
    assert_true((e.forward_bytes == 0.0) && (e.backward_bytes == 0.0));
    e = of(&t, "labels"); /* nothing comes back to it */
    assert_true((e.forward_bytes == 8.0) && (e.backward_bytes == 0.0) && (e.backward_flop == 0.0));
    test_net_destroy(&t);
}

/* What stays inside of a group is not counted: here the sums before the ReLU. */
static void groups_count_what_leaves_them(void **state)
{
    const ct_net_options o = { .phase = CT_TRAIN, .table = ct_layer_table };
    ct_estimate e;
    test_net t;

    (void)state;
    assert_int_equal(test_net_create(net_text, &o, &t), CT_OK);
    e = of(&t, "relu");
    assert_true((e.forward_bytes == 0.0) && (e.backward_bytes == 0.0) && (e.forward_flop == 0.0));
    e = of(&t, "conv");
    assert_true(e.forward_flop == 2.0 * Y * 27 + 2 * Y);
    assert_true(e.backward_flop == e.forward_flop);
    assert_true(e.forward_bytes == 4.0 * (X + Y + W + B));
    assert_true(e.backward_bytes == 4.0 * (X + 2 * Y + W + B)); /* x, y, dy in; dw, db out */
    test_net_destroy(&t);
}

enum { ROWS = 521, K = 7, CLASSES = 16411 };

/* Of so many classes the gradients are made in forward, block by block of rows: in backward those
 * of the rows are read and written alone. */
static void gradients_of_forward_count_there(void **state)
{
    static const char text[] =
        "layer { name: 'e' type: 'Input' top: 'e' input_param { shape { dim: 521 dim: 7 } } }\n"
        "layer { name: 'y' type: 'Input' top: 'label' input_param { shape { dim: 521 } } }\n"
        "layer { name: 'pre' type: 'Bias' bottom: 'e' top: 'x' }\n"
        "layer { name: 'fc' type: 'InnerProduct' bottom: 'x' top: 'fc' inner_product_param { "
        "num_output: 16411 weight_filler { type: 'xavier' } } }\n"
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'fc' bottom: 'label' top: 'loss' }\n";
    ct_net_options o = { .phase = CT_TRAIN, .table = ct_layer_table };
    ct_estimate e, fc, loss;
    test_net t;

    (void)state;
    assert_int_equal(test_net_create(text, &o, &t), CT_OK);
    e = of(&t, "fc");
    test_net_destroy(&t);
    o.no_fuse = true;
    assert_int_equal(test_net_create(text, &o, &t), CT_OK);
    fc = of(&t, "fc");
    loss = of(&t, "loss");
    test_net_destroy(&t);
    assert_true(e.forward_flop ==
                fc.forward_flop + fc.backward_flop + loss.forward_flop + loss.backward_flop);
    assert_true(e.backward_flop == 0);
    /* weights twice, labels, x and the loss in, its gradient, too; dw, db, dx and the loss out */
    assert_true(e.forward_bytes == 4.0 * (3 * (CLASSES * (K + 1)) + 2 * ROWS * K + ROWS + 2));
    assert_true(e.backward_bytes == 4.0 * 2 * ROWS * K);
    assert_true(fc.backward_bytes ==
                4.0 * (2 * (CLASSES * (K + 1)) + 2 * ROWS * K + (double)ROWS * CLASSES));
}

/* How fast it is nobody knows here: only that it is a machine. */
static void limits_are_measured(void **state)
{
    ct_machine_limit m;
    double flop;

    (void)state;
    assert_int_equal(ct_machine_limit_measure(1, &m), CT_OK);
    assert_true((m.flop > 1e6) && (m.flop < 1e16));
    assert_true((m.read > 1e6) && (m.triad > 1e6) && (m.read < 1e15) && (m.triad < 1e15));
    assert_true(m.memory == fmax(m.read, m.triad));
    assert_true((m.array > 0) && (m.n_thread > 0) && (m.simd[0] != '\0'));
    flop = m.flop;
    ct_machine_limit_again(&m);
    assert_true(m.flop >= flop);
}

static void a_bound_is_the_slower_of_both(void **state)
{
    const ct_machine_limit m = { .flop = 100, .memory = 10 };

    (void)state;
    assert_true(ct_machine_limit_bound(&m, 200, 10) == 2.0);
    assert_true(ct_machine_limit_bound(&m, 200, 50) == 5.0);
    assert_true(ct_machine_limit_bound(&m, 0, 0) == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(estimates_count_each_operand_once),
        cmocka_unit_test(groups_count_what_leaves_them),
        cmocka_unit_test(gradients_of_forward_count_there),
        cmocka_unit_test(limits_are_measured),
        cmocka_unit_test(a_bound_is_the_slower_of_both),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
