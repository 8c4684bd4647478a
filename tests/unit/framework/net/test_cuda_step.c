/* A training step on the device: how often the host waits, and that wrong labels and indices, which
 * kernels find, end it with the words of the CPU. Skips where no device works; waits are counted
 * where CUDA is emulated. The loss's scale. Graphs: test_cuda_graph. */
#include "tests/test.h"
#include "tests/cuda_case.h"
#include "tests/cuda_train.h"
#include "tests/log_capture.h"
#include "tests/solver_harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static ct_status train(const char *net, const char *fields, int steps)
{
    return test_cuda_train(net, fields, "", steps);
}

static int waits(const char *net, const char *fields)
{
    return test_cuda_each_step(ct_emulated_waits, net, fields);
}

static void a_step_waits_once(void **state)
{
    (void)state;
    (void)test_cuda();
    if (ct_emulated_waits == NULL) skip();
    assert_int_equal(waits(LABELLED("2") IMAGES LOSS("SoftmaxWithLoss", ""), ""), 1);
    assert_int_equal(waits(LABELLED("2") IMAGES ACCURACY LOSS("SoftmaxWithLoss",
                                                              "loss_param { ignore_label: 1 }"),
                           ""),
                     1);
    assert_int_equal(waits(LABELLED("2") IMAGES LOSS("FocalLoss", ""), ""), 1);
    assert_int_equal(waits(LABELLED("2") IMAGES LOSS("HingeLoss", ""), ""), 1);
    assert_int_equal(waits(LABELLED("2") IMAGES LOSS("MultinomialLogisticLoss", ""), ""), 1);
    assert_int_equal(waits(WORDS("3"), ""), 1);
    assert_int_equal(waits(WORDS("3"), "iter_size: 3"), 3); /* a micro-step each */
    /* norms of all gradients and of parameters stay where they are */
    assert_int_equal(waits(WORDS("3"), "clip_gradients: 1"), 1);
    assert_int_equal(waits(WORDS("3"), "precision: FP16 clip_gradients: 1"), 1);
    assert_int_equal(waits(WORDS("3"), "type: 'LARS'"), 1);
    assert_int_equal(waits(WORDS("3"), "type: 'LAMB' delta: 1e-6"), 1);
    assert_int_equal(waits(WORDS("3"), "average { type: EMA }"), 1);
}

/* What the log says where training on the device ends, and on the CPU. */
static void ends(const char *net, const char *says)
{
    static const char *const mode[] = { "solver_mode: GPU", "solver_mode: CPU" };

    for (int k = 0; k < 2; k++) {
        log_capture log;
        ct_status status;

        log_capture_start(&log);
        status = train(net, mode[k], 3);
        log_capture_stop();
        assert_int_equal(status, CT_ERR_DATA);
        if (strstr(log.error, says) == NULL)
            fail_msg("%s: no \"%s\" in: %s", mode[k], says, log.error);
    }
}

static void wrong_labels_end_it(void **state)
{
    const char *label = "label 7 of sample 0 of batch 0 is not a whole number in 0..4";

    (void)state;
    (void)test_cuda();
    ends(LABELLED("7") IMAGES LOSS("SoftmaxWithLoss", ""), label);
    ends(LABELLED("7") IMAGES LOSS("SoftmaxWithLoss", "loss_param { ignore_label: 1 }"), label);
    ends(LABELLED("7") IMAGES LOSS("FocalLoss", ""), label);
    ends(LABELLED("7") IMAGES LOSS("HingeLoss", ""), label);
    ends(LABELLED("1.5") IMAGES LOSS("SoftmaxWithLoss", ""), "label 1.5 of sample 0 of batch 0");
    ends(LABELLED("-1") IMAGES ACCURACY
         "layer { name: 'loss' type: 'Reduction' bottom: 'f' top: 'loss' loss_weight: 1 }",
         "label -1 of sample 0");
    ends(WORDS("8"), "element 0 of sample 0 of batch 0 is 8, not a whole number in 0..7");
}

/* ---- what training makes */

static trained train_on(const char *fields, const char *more, int steps, const char *snapshot)
{
    return test_cuda_trained(LABELLED("2") IMAGES LOSS("SoftmaxWithLoss", ""), fields, more, steps,
                             snapshot);
}

/* The largest difference of two weights, of the largest weight. */
static double off(const trained *a, const trained *b)
{
    double most = 0.0, size = 0.0;

    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        most = fmax(most, fabs((double)a->weight[i] - (double)b->weight[i]));
        size = fmax(size, fabs((double)b->weight[i]));
    }
    return most / size;
}

/* ---- FP16 */

/* A scale is a power of two: with gradients far from the ends of f16 it shows in nothing but the
 * rounding, 2^-11 of an operand, and the loss of nothing that is small. */
static void fp16_trains_as_f32(void **state)
{
    trained f32, scaled, not_scaled, clipped, clipped_f32;

    (void)state;
    (void)test_cuda();
    f32 = train_on("solver_mode: GPU", "", 6, NULL);
    scaled = train_on("solver_mode: GPU precision: FP16", "loss_scale: 1024", 6, NULL);
    not_scaled = train_on("solver_mode: GPU precision: FP16", "loss_scale: 1", 6, NULL);
    assert_true(scaled.scale == 1024.0f && scaled.good == 6);
    assert_true(off(&scaled, &f32) > 0.0);
    assert_true(off(&scaled, &f32) < 6 * 0x1p-11);
    assert_true(off(&scaled, &not_scaled) < 6 * 0x1p-11);
    clipped_f32 = train_on("solver_mode: GPU", "clip_gradients: 0.1", 6, NULL);
    clipped = train_on("solver_mode: GPU precision: FP16", "clip_gradients: 0.1", 6, NULL);
    assert_true(off(&clipped_f32, &f32) > 12 * 0x1p-11);
    assert_true(off(&clipped, &clipped_f32) < 6 * 0x1p-11);
}

/* Fully connected layers whose values, and gradients, have 16 bits. */
static void fp16_trains_heads(void **state)
{
    static const char *const solver[] = { "solver_mode: GPU", "solver_mode: GPU precision: FP16",
                                          "solver_mode: GPU precision: FP16",
                                          "solver_mode: GPU precision: FP16" };
    static const char *const scale[] = { "", "loss_scale: 1024", "loss_scale: 1",
                                         "loss_scale: 16777216" };
    trained t[4];

    (void)state;
    (void)test_cuda();
    for (int k = 0; k < 4; k++)
        t[k] = test_cuda_trained(LABELLED("2") HEAD LOSS("SoftmaxWithLoss", ""), solver[k],
                                 scale[k], (k < 3) ? 6 : 1, NULL);
    assert_true(t[1].scale == 1024.0f && t[1].good == 6);
    assert_true(off(&t[1], &t[0]) > 0.0);
    assert_true(off(&t[1], &t[0]) < 6 * 0x1p-11);
    assert_true(off(&t[1], &t[2]) < 6 * 0x1p-11);
    assert_true(t[3].scale == 8388608.0f); /* a gradient left f16 */
}

/* Gradients beyond f16: nothing changes until the scale is small enough. */
static void fp16_skips_and_goes_on(void **state)
{
    trained start, one, many, grown;
    const char *fp16 = "solver_mode: GPU precision: FP16";

    (void)state;
    (void)test_cuda();
    test_log_all_start();
    start = train_on(fp16, "", 0, NULL);
    one = train_on(fp16, "loss_scale: 16777216", 1, NULL);
    test_log_holds("iteration 0: gradients are not finite, no weight changes; loss scale "
                   "8.38861e+06");
    many = train_on(fp16, "loss_scale: 16777216", 20, NULL);
    grown = train_on(fp16, "loss_scale: 256 loss_scale_window: 3", 7, NULL);
    test_log_all_stop();
    assert_true(one.scale == 8388608.0f);
    /* statistics of BatchNorm move with each forward, learned weights come first in the arena */
    assert_memory_equal(one.weight, start.weight, 8 * 27 * sizeof(float));
    assert_true(many.scale < 8388608.0f);
    assert_true(many.good > 0);
    assert_true(memcmp(many.weight, start.weight, 8 * 27 * sizeof(float)) != 0);
    assert_true(grown.scale == 1024.0f && grown.good == 1);
}

static void fp16_resumes(void **state)
{
    char path[512], more[512];
    const char *fp16 = "solver_mode: GPU precision: FP16";
    trained whole, half, rest;

    (void)state;
    (void)test_cuda();
    snprintf(more, sizeof(more),
             "loss_scale: 256 loss_scale_window: 3 snapshot: 4 snapshot_prefix: '%s/x'",
             test_solver_dir());
    snprintf(path, sizeof(path), "%s/x_iter_4.solverstate.h5", test_solver_dir());
    half = train_on(fp16, more, 4, NULL);
    assert_true(half.scale == 512.0f && half.good == 1);
    whole = train_on(fp16, "loss_scale: 256 loss_scale_window: 3", 8, NULL);
    rest = train_on(fp16, "loss_scale: 4 loss_scale_window: 3", 8, path);
    assert_true(rest.scale == whole.scale && rest.good == whole.good);
    test_cuda_same(&rest, &whole, "resumed");
    rest = test_cuda_retrained(LABELLED("2") IMAGES LOSS("SoftmaxWithLoss", ""), fp16,
                               "loss_scale: 256 loss_scale_window: 3", 8, path);
    test_cuda_same(&rest, &whole, "gone back");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_waits_once),
        cmocka_unit_test(wrong_labels_end_it),
        cmocka_unit_test(fp16_trains_as_f32),
        cmocka_unit_test(fp16_trains_heads),
        cmocka_unit_test(fp16_skips_and_goes_on),
        cmocka_unit_test_setup_teardown(fp16_resumes, test_solver_setup, test_solver_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
