/* Steps given to the device as graphs: the bits of steps that are not, with every update rule and
 * whatever changes from step to step; what a step then gives, and what becomes of a device that
 * will not record. Skips where no device works; calls are counted where CUDA is emulated. */
#include "tests/test.h"
#include "tests/box_net.h"
#include "tests/cuda_case.h"
#include "tests/cuda_train.h"
#include "tests/solver_harness.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With graphs and without; the first is what training has made. */
static trained both(const char *layers, const char *fields, const char *more, int steps)
{
    trained with, without;
    char all[512];

    snprintf(all, sizeof(all), "solver_mode: GPU %s", fields);
    with = test_cuda_trained(layers, all, more, steps, NULL);
    snprintf(all, sizeof(all), "solver_mode: GPU cuda_graph: false %s", fields);
    without = test_cuda_trained(layers, all, more, steps, NULL);
    snprintf(all, sizeof(all), "%s %s", fields, more);
    test_cuda_same(&with, &without, all);
    return with;
}

/* Dropout and Attention draw anew in each step; a layer on the host is in the middle of a net. */
static void nets_are_the_same(void **state)
{
    static const char *const net[] = {
        LABELLED("2") IMAGES LOSS("SoftmaxWithLoss", ""),
        WORDS("3"),
        LABELLED("2") "layer { name: 'c' type: 'Convolution' bottom: 'data' top: 'c' "
                      "convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "
                      "'xavier' } } } "
                      "layer { name: 'r' type: 'ReLU' bottom: 'c' top: 'c' } "
                      "layer { name: 'm' type: 'Pooling' bottom: 'c' top: 'm' pooling_param { "
                      "kernel_size: 4 stride: 4 } } " TEST_BOX_LOSS(
                          "m", "data", "16",
                          "12") "layer { name: 'y' type: 'SyncBN' bottom: 'm' top: 'y' } "
                                "layer { name: 't' type: 'TanH' bottom: 'y' top: 't' } "
                                "layer { name: 'f' type: 'InnerProduct' bottom: 't' top: 'f' "
                                "inner_product_param { num_output: 5 weight_filler { type: "
                                "'xavier' } } } " LOSS("SoftmaxWithLoss", ""),
        "layer { name: 'data' type: 'DummyData' top: 'x' top: 'label' dummy_data_param { "
        "shape { dim: 2 dim: 9 dim: 16 } shape { dim: 2 dim: 9 } "
        "data_filler { type: 'gaussian' std: 1 } data_filler { value: 2 } } } "
        "layer { name: 'q' type: 'InnerProduct' bottom: 'x' top: 'q' inner_product_param { "
        "num_output: 24 axis: 2 weight_filler { type: 'xavier' } } } "
        "layer { name: 'a' type: 'Attention' bottom: 'q' top: 'a' attention_param { num_heads: 2 "
        "causal: true dropout: 0.3 rope { } } } "
        "layer { name: 'f' type: 'InnerProduct' bottom: 'a' top: 'f' inner_product_param { "
        "num_output: 5 axis: 2 weight_filler { type: 'xavier' } } } "
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'f' bottom: 'label' top: 'loss' "
        "softmax_param { axis: 2 } }",
    };
    static const char *const more[] = {
        "",
        "iter_size: 2",
        "type: 'Adam' momentum2: 0.99 delta: 1e-4",
        "clip_gradients: 0.1",
        "weight_decay: 0.01 recompute: true",
    };

    (void)state;
    (void)test_cuda();
    test_log_all_start();
    for (int k = 0; k < 4; k++) {
        for (int m = 0; m < 5; m++) (void)both(net[k], "", more[m], 7);
    }
    (void)both(LABELLED("2") HEAD LOSS("SoftmaxWithLoss", ""), "precision: BF16", more[1], 7);
    (void)both(LABELLED("2") HEAD LOSS("SoftmaxWithLoss", ""), "precision: FP16", more[0], 7);
    test_log_holds("in 1 graph, with the update");
    test_log_all_stop();
}

/* As on the CPU. Gradients of the two are 4 x 1530 roundings of the largest apart (test_cuda), and
 * a weight is as far off as what it moves by, times that, for each step. */
static void as_on_cpu(const trained *got, const char *fields, const char *more, int steps)
{
    const trained start = test_cuda_trained(WORDS("3"), "solver_mode: CPU", "", 0, NULL);
    const trained cpu = test_cuda_trained(WORDS("3"), fields, more, steps, NULL);
    float moved = 0.0f, off = 0.0f;

    for (int64_t i = 0; i < cpu.n; i++) {
        moved = fmaxf(moved, fabsf(cpu.weight[i] - start.weight[i]));
        off = fmaxf(off, fabsf(cpu.weight[i] - got->weight[i]));
        off = fmaxf(off, fabsf(cpu.average[i] - got->average[i]));
    }
    assert_true(moved > 0.0f);
    if (!(off <= (float)steps * 4 * 1530 * FLT_EPSILON * moved))
        fail_msg("%s %s: %g off where the CPU moves by %g", fields, more, (double)off,
                 (double)moved);
}

/* Every rule, and everything that changes from step to step: rates, corrections, micro-steps that
 * add up, shares of an average, norms that clip or not. The rates must have an effect: each
 * training is another. */
static void rules_are_the_same(void **state)
{
    static const char *const rule[] = {
        "type: 'SGD' weight_decay: 0.01",
        "type: 'Nesterov' weight_decay: 0.01 regularization_type: 'L1'",
        "type: 'AdaGrad' delta: 1e-4",
        "type: 'RMSProp' rms_decay: 0.9 delta: 1e-4",
        "type: 'AdaDelta' delta: 1e-4",
        "type: 'Adam' momentum2: 0.99 delta: 1e-4",
        "type: 'AdamW' momentum2: 0.99 delta: 1e-4 weight_decay: 0.01",
        "type: 'LARS' local_gw_ratio: 0.02 weight_decay: 0.01",
        "type: 'LAMB' momentum2: 0.99 delta: 1e-4 weight_decay: 0.01",
    };
    static const char *const change[] = {
        "base_lr: 0.05 lr_policy: 'step' gamma: 0.5 stepsize: 2",
        "base_lr: 0.05 lr_policy: 'poly' power: 2 iter_size: 2",
        "base_lr: 0.05 lr_policy: 'fixed' warmup_iter: 5 warmup_start_lr: 0.001 iter_size: 3",
        "base_lr: 0.05 lr_policy: 'inv' gamma: 0.1 power: 0.75 average { type: EMA decay: 0.8 "
        "start_iter: 3 }",
        "base_lr: 0.2 lr_policy: 'exp' gamma: 0.9 clip_gradients: 0.4 average { type: SWA "
        "interval: 2 }",
    };
    enum { N_CHANGE = 5 };

    (void)state;
    (void)test_cuda();
    test_log_all_start();
    for (size_t r = 0; r < sizeof(rule) / sizeof(rule[0]); r++) {
        trained made[N_CHANGE];

        for (int c = 0; c < N_CHANGE; c++) {
            made[c] = both(WORDS("3"), change[c], rule[r], 9);
            as_on_cpu(&made[c], change[c], rule[r], 9);
            for (int k = 0; k < c; k++)
                assert_memory_not_equal(made[c].weight, made[k].weight,
                                        (size_t)made[c].n * sizeof(float));
        }
        assert_memory_not_equal(made[3].average, made[3].weight, (size_t)made[3].n * sizeof(float));
    }
    test_log_holds("Gradient clipping");
    test_log_all_stop();
}

/* Overflows in the first steps and, since the scale doubles every two steps, again and again: none
 * of them changes a weight, with graphs or without. CenterLoss has the scale in a weight's
 * gradient.
 */
static void overflows_are_the_same(void **state)
{
    const char *centers = LABELLED("2") IMAGES LOSS(
        "SoftmaxWithLoss",
        "") "layer { name: 'cl' type: 'CenterLoss' bottom: 'f' bottom: 'label' top: 'cl' "
            "loss_weight: 0.1 center_loss_param { num_output: 5 } } ";
    static const char *const more[] = { "", "iter_size: 2", "clip_gradients: 0.1",
                                        "type: 'LAMB' momentum2: 0.99 delta: 1e-4" };

    (void)state;
    (void)test_cuda();
    test_log_all_start();
    for (int m = 0; m < 4; m++) {
        trained t =
            both(centers, "precision: FP16 loss_scale: 16777216 loss_scale_window: 2", more[m], 24);

        assert_true(t.there.on && (t.scale < 16777216.0f));
    }
    /* the third step at the earliest is given as a graph */
    test_log_holds("iteration 1: gradients are not finite, no weight changes; loss scale");
    test_log_holds("iteration 21: gradients are not finite, no weight changes; loss scale");
    test_log_all_stop();
}

/* A step of a net without draws: the batch's three arrays, zeros in the layers' words, forward, the
 * loss beside them and both to the host, the step's numbers, backward with the update. Whatever
 * else a rule needs is in the graph. */
static void a_step_is_two_graphs(void **state)
{
    static const char *const same[] = {
        "type: 'Adam' momentum2: 0.99 delta: 1e-4",
        "type: 'LAMB' momentum2: 0.99 delta: 1e-4",
        "type: 'LARS'",
        "lr_policy: 'exp' base_lr: 0.1 gamma: 0.9 weight_decay: 0.1",
        "average { type: EMA }",
    };
    int plain, each, without;

    (void)state;
    (void)test_cuda();
    if (ct_emulated_given == NULL) skip();
    test_log_all_start();
    plain = test_cuda_each_step(ct_emulated_given, WORDS("3"), "");
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        assert_int_equal(test_cuda_each_step(ct_emulated_given, WORDS("3"), same[i]), plain);
    /* a norm goes to the host */
    assert_int_equal(test_cuda_each_step(ct_emulated_given, WORDS("3"), "clip_gradients: 0.1"),
                     plain + 1);
    assert_int_equal(test_cuda_each_step(ct_emulated_given, WORDS("3"), "precision: FP16"),
                     plain + 1);
    each = test_cuda_each_step(ct_emulated_given, WORDS("3"), "iter_size: 3");
    without = test_cuda_each_step(ct_emulated_given, WORDS("3"), "cuda_graph: false");
    test_log_all_stop();
    assert_int_equal(plain, 9);
    /* all but the numbers once a micro-step; the one in the middle is another backward */
    assert_int_equal(each, 3 * (plain - 1) + 1);
    if (!(plain < without / 5)) fail_msg("%d with graphs, %d without", plain, without);
}

/* A device that will not record is given the same kernel by kernel: not even forward, or not what
 * follows backward, whose calls have all been made by then: each weight moves once all the same. */
static void refusing_changes_nothing(void **state)
{
    static const char *const capture[] = { "one", "none" };
    static const char *const more[] = {
        "",
        "clip_gradients: 0.1",
        "precision: FP16 loss_scale: 64",
        "clip_gradients: 0.1 iter_size: 2",
        "type: 'LAMB' momentum2: 0.99 delta: 1e-4 average { type: EMA }",
    };

    (void)state;
    (void)test_cuda();
    if (ct_emulated_given == NULL) skip();
    for (size_t m = 0; m < sizeof(more) / sizeof(more[0]); m++) {
        trained with, without;

        test_log_all_start();
        without = test_cuda_trained(WORDS("3"), "solver_mode: GPU", more[m], 6, NULL);
        test_log_all_stop();
        for (int k = 0; k < 2; k++) {
            char what[128];

            test_log_all_start();
            setenv("CORTADO_EMULATED_CAPTURE", capture[k], 1);
            with = test_cuda_trained(WORDS("3"), "solver_mode: GPU", more[m], 6, NULL);
            unsetenv("CORTADO_EMULATED_CAPTURE");
            test_log_holds("the device would not record the step");
            test_log_all_stop();
            snprintf(what, sizeof(what), "%s %s", capture[k], more[m]);
            test_cuda_same(&with, &without, what);
        }
    }
}

/* While updates of a run before arrive, the host takes part in each step; then graphs are recorded
 * anew, with the update. */
static void late_updates_come_first(void **state)
{
    static const char *const rule[] = { "", "type: 'LAMB' momentum2: 0.99 delta: 1e-4" };

    (void)state;
    (void)test_cuda();
    for (int k = 0; k < 2; k++) {
        trained with, without, none;

        test_log_all_start();
        with = test_cuda_trained_late(WORDS("3"), "solver_mode: GPU", rule[k], 16, 1e-4f);
        test_log_holds("what the run before had left behind is in the weights");
        test_log_holds("with the update");
        without = test_cuda_trained_late(WORDS("3"), "solver_mode: GPU cuda_graph: false", rule[k],
                                         16, 1e-4f);
        none = test_cuda_trained(WORDS("3"), "solver_mode: GPU", rule[k], 16, NULL);
        test_log_all_stop();
        test_cuda_same(&with, &without, rule[k]);
        assert_memory_not_equal(with.weight, none.weight, (size_t)none.n * sizeof(float));
    }
}

/* The step goes as one without them, by the numbers that the device has, and what arrives at once
 * goes out of the weights afterwards: one rounding. */
static void late_updates_follow_the_step(void **state)
{
    static const char *const rule[] = { "", "type: 'LARS'",
                                        "type: 'LAMB' momentum2: 0.99 delta: 1e-4",
                                        "clip_gradients: 0.1", "precision: FP16 loss_scale: 64" };
    const float late = 1e-6f;

    (void)state;
    (void)test_cuda();
    for (int k = 0; k < 5; k++) {
        trained with, without;
        int moved = 0;

        test_log_all_start();
        with = test_cuda_trained_late(WORDS("3"), "solver_mode: GPU", rule[k], 1, late);
        test_log_holds("what the run before had left behind is in the weights");
        test_log_all_stop();
        without = test_cuda_trained(WORDS("3"), "solver_mode: GPU", rule[k], 1, NULL);
        for (int64_t i = 0; i < with.n; i++) {
            double less = (double)without.weight[i] - (double)with.weight[i];

            if (without.weight[i] == with.weight[i]) continue; /* between parameters */
            moved += 1;
            if (!(fabs(fabs(less) - (double)late) <= 0x1p-24 * fabs((double)with.weight[i])))
                fail_msg("%s: weight %d differs by %g, not %g", rule[k], (int)i, less,
                         (double)late);
        }
        assert_true(moved > with.n / 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nets_are_the_same),
        cmocka_unit_test(rules_are_the_same),
        cmocka_unit_test(overflows_are_the_same),
        cmocka_unit_test(a_step_is_two_graphs),
        cmocka_unit_test(refusing_changes_nothing),
        cmocka_unit_test(late_updates_come_first),
        cmocka_unit_test(late_updates_follow_the_step),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
