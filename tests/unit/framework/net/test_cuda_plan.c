/* Engines of a net on the device chosen by timing: what is timed, what it is called, and that the
 * net then runs by it; cuDNN's means and softmax beside ours. Skips where no device works. */
#include "tests/test.h"
#include "tests/cuda_case.h"
#include "tests/log_capture.h"

#include "framework/net/engine_plan.h"
#include "framework/net/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Depthwise convolutions have an engine of their own, and all others have the general one. */
static const char text[] =
    "layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 2 dim: 6 "
    "dim: 9 dim: 8 } data_filler { type: 'gaussian' std: 1 } } }\n"
    "layer { name: 'a' type: 'Convolution' bottom: 'x' top: 'a' convolution_param { num_output: 6 "
    "kernel_size: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'b' type: 'Convolution' bottom: 'a' top: 'b' convolution_param { num_output: 6 "
    "kernel_size: 3 group: 6 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'l' type: 'Reduction' bottom: 'b' top: 'l' loss_weight: 1 }\n";

static void engines_are_timed(void **state)
{
    const ct_device *dev = test_cuda();
    ct_engine_plan_options o = { .machine = { "gpu", "cuda", "1", 1 },
                                 .mode = CT_ENGINE_PLAN_TIME,
                                 .n_rank = 1 };
    ct_net_options n = { .env = { .n_rank = 1 } };
    ct_engine_plan *plan = NULL;
    test_cuda_net t;
    int of_depth = 0;

    (void)state;
    assert_int_equal(ct_engine_plan_create(&o, &plan), CT_OK);
    n.env.plan = plan;
    test_cuda_net_open(text, dev, &n, NULL, &t);
    for (int i = 0; ct_engine_plan_row(plan, i) != NULL; i++) {
        const ct_engine_plan_entry *row = ct_engine_plan_row(plan, i);

        assert_non_null(strstr(row->key, " gpu"));
        assert_true(row->n >= 2);
        if (strcmp(row->layer, "b") != 0) continue;
        of_depth++;
        for (int k = 0; k < row->n; k++) {
            assert_true(row->engine[k].ms > 0.0);
            assert_true((strcmp(row->engine[k].name, "depthwise") == 0) ||
                        (strcmp(row->engine[k].name, "cuda") == 0) ||
                        (strcmp(row->engine[k].name, "cudnn") == 0));
        }
        assert_string_equal(row->taken, row->engine[0].name);
    }
    assert_int_equal(of_depth, 3); /* forward and both gradients */
    (void)test_cuda_net_pass(&t, 0, false);
    test_cuda_net_close(&t);
    ct_engine_plan_destroy(plan);
}

/* ---- cuDNN's means and softmax beside ours */

#define MAPS(width, engine)                                                                        \
    "layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 3 dim: 6 "    \
    "dim: 9 dim: " width " } data_filler { type: 'gaussian' std: 1 } } }\n"                        \
    "layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c' convolution_param { num_output: "  \
    "16 kernel_size: 1 weight_filler { type: 'xavier' } } }\n"                                     \
    "layer { name: 'p' type: 'Pooling' bottom: 'c' top: 'p' pooling_param { pool: AVE "            \
    "kernel_size: 3 stride: 2 pad: 1 } " engine " }\n"                                             \
    "layer { name: 's' type: 'Softmax' bottom: 'p' top: 's' " engine " }\n"                        \
    "layer { name: 'l' type: 'Reduction' bottom: 's' top: 'l' loss_weight: 1 reduction_param { "   \
    "operation: SUMSQ } }\n"
#define NAMED(name) "ct_kernel { forward: '" name "' backward_data: '" name "' }"

/* The gradients, with what pooling and softmax ran by. */
static float *run_maps(const char *net, const ct_device *dev,
                       Ct__SolverParameter__Precision precision, int64_t *n_p, char engine[4][24])
{
    ct_net_options o = { .env = { .n_rank = 1, .precision = precision } };
    static const char *const layer[] = { "p", "s" };
    test_cuda_net t;
    float *grad;

    test_cuda_net_open(net, dev, &o, NULL, &t);
    (void)test_cuda_net_pass(&t, 0, false);
    grad = test_cuda_net_gradients(&t);
    *n_p = t.net->grad_count;
    for (int i = 0; i < 2; i++) test_cuda_net_engines(&t, layer[i], engine + 2 * i);
    test_cuda_net_close(&t);
    return grad;
}

/* Sums of 243 products at most, each rounded to f32; or values rounded to bf16 once each, in three
 * layers and back. */
static void cudnn_is_as_ours(void **state)
{
    static const Ct__SolverParameter__Precision each[] = { CT__SOLVER_PARAMETER__PRECISION__F32,
                                                           CT__SOLVER_PARAMETER__PRECISION__BF16 };
    const ct_device *dev = test_cuda();
    const double off[] = { 243 * 0x1p-23, 6 * 0x1p-8 };
    log_capture log;

    (void)state;
    if (test_cuda_net_try(MAPS("9", NAMED("cudnn")), dev, CT__SOLVER_PARAMETER__PRECISION__F32,
                          &log) != CT_OK) {
        print_message("skipped: no cuDNN\n");
        skip();
    }
    for (int k = 0; k < 2; k++) {
        char engine[4][24];
        int64_t n, m;
        float *ours = run_maps(MAPS("9", ""), dev, each[k], &n, engine), *its;

        for (int i = 0; i < 4; i++) assert_string_equal(engine[i], "cuda");
        its = run_maps(MAPS("9", NAMED("cudnn")), dev, each[k], &m, engine);
        for (int i = 0; i < 4; i++) assert_string_equal(engine[i], "cudnn");
        assert_int_equal(m, n);
        if (!(test_cuda_difference(n, its, ours) <= off[k]))
            fail_msg("precision %d: %g off", (int)each[k], test_cuda_difference(n, its, ours));
        free(ours), free(its);
    }
    /* a last window beyond the padding has another divisor */
    assert_int_equal(test_cuda_net_try(MAPS("10", NAMED("cudnn")), dev,
                                       CT__SOLVER_PARAMETER__PRECISION__F32, &log),
                     CT_ERR_CONFIG);
    assert_non_null(strstr(log.error, "\"cudnn\" cannot run this layer"));
}

static void maps_are_timed(void **state)
{
    const ct_device *dev = test_cuda();
    ct_engine_plan_options o = { .machine = { "gpu", "cuda", "1", 1 },
                                 .mode = CT_ENGINE_PLAN_TIME,
                                 .n_rank = 1 };
    ct_net_options n = { .env = { .n_rank = 1 } };
    ct_engine_plan *plan = NULL;
    const ct_engine_plan_entry *row;
    log_capture log;
    test_cuda_net t;
    bool dnn = test_cuda_net_try(MAPS("9", NAMED("cudnn")), dev,
                                 CT__SOLVER_PARAMETER__PRECISION__F32, &log) == CT_OK;
    int found = 0;

    (void)state;
    assert_int_equal(ct_engine_plan_create(&o, &plan), CT_OK);
    n.env.plan = plan;
    test_cuda_net_open(MAPS("9", ""), dev, &n, NULL, &t);
    (void)test_cuda_net_pass(&t, 0, false);
    for (int i = 0; (row = ct_engine_plan_row(plan, i)) != NULL; i++) {
        if ((strncmp(row->key, "pool ", 5) != 0) && (strncmp(row->key, "softmax ", 8) != 0))
            continue;
        found++;
        assert_int_equal(row->n, 2);
        assert_true((row->engine[0].ms > 0.0) && (row->engine[1].ms > 0.0));
        assert_string_equal(row->taken, row->engine[0].name);
    }
    assert_int_equal(found, dnn ? 4 : 0); /* one engine is no choice */
    test_cuda_net_close(&t);
    ct_engine_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_are_timed),
        cmocka_unit_test(cudnn_is_as_ours),
        cmocka_unit_test(maps_are_timed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
