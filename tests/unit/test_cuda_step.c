/* A training step on the device: how often the host waits, and that wrong labels and indices, which
 * kernels find, end it with the words of the CPU. Skips where no device works; waits are counted
 * where CUDA is emulated. */
#include "tests/test.h"
#include "tests/cuda_case.h"
#include "tests/log_capture.h"
#include "tests/solver_harness.h"

#include "framework/solver/solver_private.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of tests/emulated_cuda. */
extern int ct_emulated_waits(void) __attribute__((weak));
extern int ct_emulated_given(void) __attribute__((weak));

#define SOLVER                                                                                     \
    "base_lr: 0.05 lr_policy: 'fixed' momentum: 0.9 random_seed: 3 snapshot_after_train: false "
#define LABELLED(label)                                                                            \
    "layer { name: 'data' type: 'DummyData' top: 'data' top: 'label' dummy_data_param { "          \
    "shape { dim: 6 dim: 3 dim: 9 dim: 9 } shape { dim: 6 } "                                      \
    "data_filler { type: 'gaussian' std: 1 } data_filler { value: " label " } } } "
#define IMAGES                                                                                     \
    "layer { name: 'c' type: 'Convolution' bottom: 'data' top: 'c' convolution_param { "           \
    "num_output: 8 kernel_size: 3 weight_filler { type: 'xavier' } } } "                           \
    "layer { name: 'bn' type: 'BatchNorm' bottom: 'c' top: 'bn' } "                                \
    "layer { name: 's' type: 'Scale' bottom: 'bn' top: 's' scale_param { bias_term: true } } "     \
    "layer { name: 'r' type: 'ReLU' bottom: 's' top: 's' } "                                       \
    "layer { name: 'n' type: 'LRN' bottom: 's' top: 'n' } "                                        \
    "layer { name: 'p' type: 'Pooling' bottom: 'n' top: 'p' pooling_param { pool: MAX "            \
    "kernel_size: 2 stride: 2 } } "                                                                \
    "layer { name: 'd' type: 'Dropout' bottom: 'p' top: 'p' } "                                    \
    "layer { name: 'f' type: 'InnerProduct' bottom: 'p' top: 'f' inner_product_param { "           \
    "num_output: 5 weight_filler { type: 'xavier' } } } "
#define LOSS(type, more)                                                                           \
    "layer { name: 'loss' type: '" type "' bottom: 'f' bottom: 'label' top: 'loss' " more " } "
#define ACCURACY "layer { name: 'a' type: 'Accuracy' bottom: 'f' bottom: 'label' top: 'a' } "
#define WORDS(word)                                                                                \
    "layer { name: 'data' type: 'DummyData' top: 'w' top: 'cont' top: 'label' dummy_data_param { " \
    "shape { dim: 4 dim: 3 } shape { dim: 4 dim: 3 } shape { dim: 4 dim: 3 } "                     \
    "data_filler { value: " word " } data_filler { value: 1 } data_filler { value: 2 } } } "       \
    "layer { name: 'e' type: 'Embed' bottom: 'w' top: 'e' embed_param { num_output: 6 "            \
    "input_dim: 8 weight_filler { type: 'uniform' min: -1 } } } "                                  \
    "layer { name: 'l' type: 'LSTM' bottom: 'e' bottom: 'cont' top: 'l' recurrent_param { "        \
    "num_output: 5 weight_filler { type: 'uniform' min: -1 } } } "                                 \
    "layer { name: 'f' type: 'InnerProduct' bottom: 'l' top: 'f' inner_product_param { "           \
    "num_output: 8 axis: 2 weight_filler { type: 'xavier' } } } "                                  \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'f' bottom: 'label' top: 'loss' "        \
    "softmax_param { axis: 2 } } "

static ct_status train(const char *net, const char *fields, int steps)
{
    char text[8192];
    test_solver t;
    ct_status status;

    snprintf(text, sizeof(text), SOLVER "max_iter: %d %s net_param { %s }", steps, fields, net);
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
    status = ct_solver_run(t.solver);
    test_solver_destroy(&t);
    return status;
}

/* Waits of a step: the difference that five more make. */
static int waits(const char *net, const char *fields)
{
    char gpu[256];
    int start, few, many;

    snprintf(gpu, sizeof(gpu), "solver_mode: GPU %s", fields);
    start = ct_emulated_waits();
    assert_int_equal(train(net, gpu, 3), CT_OK);
    few = ct_emulated_waits() - start;
    start = ct_emulated_waits();
    assert_int_equal(train(net, gpu, 8), CT_OK);
    many = ct_emulated_waits() - start;
    assert_int_equal((many - few) % 5, 0);
    return (many - few) / 5;
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
    /* a micro-step each; the norm of all gradients is one more */
    assert_int_equal(waits(WORDS("3"), "iter_size: 3"), 3);
    assert_int_equal(waits(WORDS("3"), "clip_gradients: 1"), 2);
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
    ends(WORDS("8"), "element 0 of batch 0 is 8, not a whole number in 0..7");
}

/* ---- what training makes */

typedef struct trained {
    float weight[4096];
    int64_t n;
    float scale;
    int64_t good;
} trained;

static trained train_net(const char *layers, const char *fields, const char *more, int steps,
                         const char *snapshot)
{
    char text[8192];
    test_solver t;
    trained r = { .n = 0 };
    const ct_net *net;
    const ct_device *dev;

    snprintf(text, sizeof(text), SOLVER "max_iter: %d %s %s net_param { %s }", steps, fields, more,
             layers);
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
    if (snapshot != NULL) assert_int_equal(ct_solver_restore(t.solver, snapshot), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    net = ct_solver_net(t.solver);
    dev = net->options.dev;
    r.n = net->grad_count;
    assert_true(r.n <= 4096);
    assert_int_equal(dev->to_host(NULL, r.weight, net->weight_arena, (size_t)r.n * sizeof(float)),
                     CT_OK);
    r.scale = t.solver->step.loss_scale.scale;
    r.good = t.solver->step.loss_scale.good;
    test_solver_destroy(&t);
    return r;
}

static trained train_on(const char *fields, const char *more, int steps, const char *snapshot)
{
    return train_net(LABELLED("2") IMAGES LOSS("SoftmaxWithLoss", ""), fields, more, steps,
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
    assert_memory_equal(rest.weight, whole.weight, (size_t)whole.n * sizeof(float));
}

/* ---- graphs */

static void same_bits(const trained *a, const trained *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->weight, b->weight, (size_t)a->n * sizeof(float));
}

/* With graphs and without: the same bits, also with Dropout, which draws anew in each step, with a
 * layer on the host in the middle, and with gradients that add up. */
static void graphs_change_nothing(void **state)
{
    static const char *const net[] = {
        LABELLED("2") IMAGES LOSS("SoftmaxWithLoss", ""),
        WORDS("3"),
        LABELLED(
            "2") "layer { name: 'c' type: 'Convolution' bottom: 'data' top: 'c' "
                 "convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "
                 "'xavier' } } } "
                 "layer { name: 'r' type: 'ReLU' bottom: 'c' top: 'c' } "
                 "layer { name: 'm' type: 'Pooling' bottom: 'c' top: 'm' pooling_param { "
                 "kernel_size: 2 stride: 2 } } "
                 "layer { name: 'y' type: 'SyncBN' bottom: 'm' top: 'y' } "
                 "layer { name: 't' type: 'TanH' bottom: 'y' top: 't' } "
                 "layer { name: 'f' type: 'InnerProduct' bottom: 't' top: 'f' "
                 "inner_product_param { num_output: 5 weight_filler { type: 'xavier' } } } " LOSS(
                     "SoftmaxWithLoss", ""),
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
    for (int k = 0; k < 3; k++) {
        for (int m = 0; m < 5; m++) {
            trained with = train_net(net[k], "solver_mode: GPU", more[m], 7, NULL);
            trained without =
                train_net(net[k], "solver_mode: GPU cuda_graph: false", more[m], 7, NULL);

            same_bits(&with, &without);
        }
    }
    test_log_holds("in 1 graph");
    test_log_all_stop();
}

/* What five more steps give the device. */
static int given(const char *net, const char *fields)
{
    int start = ct_emulated_given(), few;

    assert_int_equal(train(net, fields, 4), CT_OK);
    few = ct_emulated_given() - start;
    start = ct_emulated_given();
    assert_int_equal(train(net, fields, 9), CT_OK);
    return ct_emulated_given() - start - few;
}

/* An LSTM's steps are many small kernels. */
static void graphs_are_given_as_one(void **state)
{
    int with, without;

    (void)state;
    (void)test_cuda();
    if (ct_emulated_given == NULL) skip();
    test_log_all_start();
    with = given(WORDS("3"), "solver_mode: GPU");
    without = given(WORDS("3"), "solver_mode: GPU cuda_graph: false");
    test_log_all_stop();
    /* 13 a step, however many kernels that stands for: here 59, the products' with what is behind
     */
    if (!(with < without / 4)) fail_msg("%d with graphs, %d without", with, without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_waits_once),
        cmocka_unit_test(wrong_labels_end_it),
        cmocka_unit_test(fp16_trains_as_f32),
        cmocka_unit_test(fp16_skips_and_goes_on),
        cmocka_unit_test(graphs_change_nothing),
        cmocka_unit_test(graphs_are_given_as_one),
        cmocka_unit_test_setup_teardown(fp16_resumes, test_solver_setup, test_solver_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
