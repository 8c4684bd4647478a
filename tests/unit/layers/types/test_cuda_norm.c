/* cuDNN's normalisations on the device beside ours, by name and by timing: BatchNorm with every
 * tail that it may run, statistics that move and statistics that are given, and LRN. Skips where no
 * device works, or no cuDNN. */
#include "tests/test.h"
#include "tests/cuda_case.h"
#include "tests/layer_harness.h"

#include "framework/net/engine_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define F32  CT__SOLVER_PARAMETER__PRECISION__F32
#define BF16 CT__SOLVER_PARAMETER__PRECISION__BF16

#define DATA                                                                                       \
    "layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 4 dim: 6 "    \
    "dim: 5 dim: 7 } data_filler { type: 'gaussian' std: 1 } } }\n"
#define CONV(name, bottom)                                                                         \
    "layer { name: '" name "' type: 'Convolution' bottom: '" bottom "' top: '" name                \
    "' convolution_param { num_output: 8 kernel_size: 1 weight_filler { type: 'xavier' } } }\n"
#define BATCH_NORM(name, bottom, top, more)                                                        \
    "layer { name: '" name "' type: 'BatchNorm' bottom: '" bottom "' top: '" top "' " more " }\n"
#define SCALE(name, bottom, bias)                                                                  \
    "layer { name: '" name "' type: 'Scale' bottom: '" bottom "' top: '" name                      \
    "' scale_param { filler { type: 'gaussian' mean: 1 std: 0.3 } bias_term: " bias                \
    " bias_filler { type: 'gaussian' std: 0.3 } } }\n"
#define RELU(name, bottom)                                                                         \
    "layer { name: '" name "' type: 'ReLU' bottom: '" bottom "' top: '" name "' }\n"
#define LOSS(bottom)                                                                               \
    "layer { name: 'f' type: 'InnerProduct' bottom: '" bottom "' top: 'f' inner_product_param { "  \
    "num_output: 5 weight_filler { type: 'xavier' } } }\n"                                         \
    "layer { name: 'l' type: 'Reduction' bottom: 'f' top: 'l' loss_weight: 1 reduction_param { "   \
    "operation: SUMSQ } }\n"
#define NAMED(forward, backward)                                                                   \
    "ct_kernel { forward: '" forward "' backward_data: '" backward "' }"
#define GIVEN "batch_norm_param { use_global_stats: true } "

/* Groups: scale, bias, ReLU and two readers; scale, a sum and ReLU; scale and bias alone; none. */
#define NET(more)                                                                                  \
    DATA CONV("c1", "x") BATCH_NORM("n1", "c1", "n1", more) SCALE("s1", "n1", "true")              \
        RELU("a", "s1") CONV("c2", "a") BATCH_NORM("n2", "c2", "n2", more)                         \
            SCALE("s2", "n2", "false") "layer { name: 'sum' type: 'Eltwise' bottom: 's2' bottom: " \
                                       "'a' top: 'sum' }\n" RELU("b", "sum") CONV("c3", "b")       \
                                           BATCH_NORM("n3", "c3", "n3", more)                      \
                                               SCALE("s3", "n3", "true") CONV("c4", "s3")          \
                                                   BATCH_NORM("n4", "c4", "n4", more) LOSS("n4")
#define ACROSS(param, more)                                                                        \
    DATA CONV("c1", "x") "layer { name: 'n' type: 'LRN' bottom: 'c1' top: 'n' lrn_param { " param  \
                         " } " more " }\n"
#define ACROSS_LOSS(param, more) ACROSS(param, more) LOSS("n")

static const char *const norm[] = { "n1", "n2", "n3", "n4" };
enum { NORMS = 4, WEIGHTS = 3 /* of each */ };

typedef struct outcome {
    double loss;
    float *grad;
    int64_t n;
    float statistic[512]; /* of all layers */
    int64_t n_statistic;
    char engine[NORMS][2][24];
} outcome;

/* Numbers that a mean, a variance and their factor may be. */
static void give_statistics(test_cuda_net *t)
{
    for (int p = 0; p < t->net->n_param; p++) {
        const ct_param *w = &t->net->param[p];
        float v[64];

        if (w->kind != CT_WEIGHT_STATISTIC) continue;
        assert_true(w->count <= 64);
        test_random(v, w->count, (uint64_t)p, (w->index == 0) ? -0.5f : 0.5f, 1.5f);
        assert_int_equal(t->net->pass->exec.dev->from_host(NULL, w->blob.data.data, v,
                                                           (size_t)w->count * sizeof(v[0])),
                         CT_OK);
    }
}

static void read_statistics(const test_cuda_net *t, outcome *r)
{
    for (int p = 0; p < t->net->n_param; p++) {
        const ct_param *w = &t->net->param[p];

        if (w->kind != CT_WEIGHT_STATISTIC) continue;
        assert_true(r->n_statistic + w->count <= 512);
        assert_int_equal(t->net->pass->exec.dev->to_host(NULL, r->statistic + r->n_statistic,
                                                         w->blob.data.data,
                                                         (size_t)w->count * sizeof(float)),
                         CT_OK);
        r->n_statistic += w->count;
    }
}

/* Two passes, whose gradients add up. */
static outcome run_net(const char *text, Ct__SolverParameter__Precision precision)
{
    ct_net_options o = { .env = { .n_rank = 1, .precision = precision } };
    outcome r = { 0 };
    test_cuda_net t;

    test_cuda_net_open(text, test_cuda(), &o, NULL, &t);
    give_statistics(&t);
    r.loss = test_cuda_net_pass(&t, 0, false);
    r.loss += test_cuda_net_pass(&t, 1, true);
    r.grad = test_cuda_net_gradients(&t);
    r.n = t.net->grad_count;
    read_statistics(&t, &r);
    for (int i = 0; i < NORMS; i++) {
        if (ct_net_find_layer(t.net, norm[i]) >= 0) test_cuda_net_engines(&t, norm[i], r.engine[i]);
    }
    test_cuda_net_close(&t);
    return r;
}

static void is_near(const outcome *ours, const outcome *its, double off, const char *what)
{
    double loss = (its->loss - ours->loss) / ours->loss, grad, statistic;

    assert_int_equal(its->n, ours->n);
    grad = test_cuda_difference(ours->n, its->grad, ours->grad);
    if (!(loss <= off) || !(-loss <= off) || !(grad <= off))
        fail_msg("%s: loss %g off, gradients %g, not within %g", what, loss, grad, off);
    if (ours->n_statistic == 0) return;
    statistic = test_cuda_difference(ours->n_statistic, its->statistic, ours->statistic);
    if (!(statistic <= off)) fail_msg("%s: statistics %g off, not %g", what, statistic, off);
}

static void needs_cudnn(void)
{
    const ct_device *dev = test_cuda();
    log_capture log;

    if (test_cuda_net_try(NET(NAMED("cudnn", "cudnn")), dev, F32, &log) == CT_OK) return;
    print_message("skipped: no cuDNN\n");
    skip();
}

static void ran_by(const outcome *r, const char *forward, const char *backward)
{
    for (int i = 0; i < NORMS; i++) {
        assert_string_equal(r->engine[i][0], forward);
        assert_string_equal(r->engine[i][1], backward);
    }
}

/* Sums of 140 numbers, each rounded to f32, in four layers and back. */
static const double off_f32 = 8 * 140 * 0x1p-24;

static void groups_are_as_ours(void **state)
{
    outcome ours, its;

    (void)state;
    needs_cudnn();
    ours = run_net(NET(""), F32);
    ran_by(&ours, "cuda", "cuda");
    its = run_net(NET(NAMED("cudnn", "cudnn")), F32);
    ran_by(&its, "cudnn", "cudnn");
    is_near(&ours, &its, off_f32, "both");
    free(its.grad);
    /* what one leaves the other reads */
    its = run_net(NET(NAMED("cudnn", "auto")), F32);
    ran_by(&its, "cudnn", "cuda");
    is_near(&ours, &its, off_f32, "forward");
    free(its.grad);
    its = run_net(NET(NAMED("auto", "cudnn")), F32);
    ran_by(&its, "cuda", "cudnn");
    is_near(&ours, &its, off_f32, "backward");
    free(its.grad), free(ours.grad);
}

/* Forward alone: it has no backward for them. */
static void given_statistics_are_as_ours(void **state)
{
    const ct_device *dev = test_cuda();
    outcome ours, its;
    log_capture log;

    (void)state;
    needs_cudnn();
    ours = run_net(NET(GIVEN), F32);
    its = run_net(NET(GIVEN NAMED("cudnn", "auto")), F32);
    ran_by(&its, "cudnn", "cuda");
    is_near(&ours, &its, off_f32, "given");
    free(its.grad), free(ours.grad);
    assert_int_equal(test_cuda_net_try(NET(GIVEN NAMED("auto", "cudnn")), dev, F32, &log),
                     CT_ERR_CONFIG);
    assert_non_null(strstr(log.error, "\"cudnn\" cannot run this layer"));
}

/* Values rounded to bf16 in each of some 15 layers and back; groups that would round twice fall
 * apart. */
static void narrow_values_are_as_ours(void **state)
{
    outcome ours, its;

    (void)state;
    needs_cudnn();
    ours = run_net(NET(""), BF16);
    its = run_net(NET(NAMED("cudnn", "cudnn")), BF16);
    ran_by(&its, "cudnn", "cudnn");
    is_near(&ours, &its, 30 * 0x1p-8, "bf16");
    free(its.grad), free(ours.grad);
}

static void what_does_not_fit_is_refused(void **state)
{
    static const char *const no[] = {
        DATA CONV("c1", "x") BATCH_NORM("n1", "c1", "c1", NAMED("cudnn", "auto")) LOSS("c1"),
        ACROSS_LOSS("local_size: 5", NAMED("cudnn", "auto")), /* ours wants sums in backward */
        ACROSS_LOSS("local_size: 17", NAMED("cudnn", "cudnn")),
        ACROSS_LOSS("norm_region: WITHIN_CHANNEL", NAMED("cudnn", "cudnn")),
        ACROSS_LOSS("k: 0", NAMED("cudnn", "cudnn"))
    };
    const ct_device *dev = test_cuda();
    log_capture log;

    (void)state;
    needs_cudnn();
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
        assert_int_equal(test_cuda_net_try(no[i], dev, F32, &log), CT_ERR_CONFIG);
        assert_non_null(strstr(log.error, "\"cudnn\" cannot run this layer"));
    }
    /* channels last */
    assert_int_equal(
        test_cuda_net_try(ACROSS_LOSS("local_size: 5", NAMED("cudnn", "cudnn")), dev, BF16, &log),
        CT_ERR_CONFIG);
}

/* ---- across channels */

static void check_across(const char *ours_text, const char *its_text)
{
    outcome ours = run_net(ours_text, F32), its = run_net(its_text, F32);

    /* windows of 7 and powers, forth and back, before sums of 280 products */
    is_near(&ours, &its, (4 * 16 + 280) * 0x1p-24, "LRN");
    free(its.grad), free(ours.grad);
}

static void channels_are_as_ours(void **state)
{
    (void)state;
    needs_cudnn();
    check_across(ACROSS_LOSS("local_size: 5 alpha: 0.4", ""),
                 ACROSS_LOSS("local_size: 5 alpha: 0.4", NAMED("cudnn", "cudnn")));
    check_across(ACROSS_LOSS("local_size: 7 alpha: 2 beta: 0.6 k: 1.5", ""),
                 ACROSS_LOSS("local_size: 7 alpha: 2 beta: 0.6 k: 1.5", NAMED("cudnn", "cudnn")));
    check_across(ACROSS_LOSS("local_size: 3 alpha: 1", ""),
                 ACROSS_LOSS("local_size: 3 alpha: 1", NAMED("auto", "cudnn")));
    /* a layer in place behind it would overwrite the top that cuDNN reads again */
#define IN_PLACE "layer { name: 'r' type: 'ReLU' bottom: 'n' top: 'n' }\n"
    check_across(ACROSS("local_size: 5 alpha: 1", "") IN_PLACE LOSS("n"),
                 ACROSS("local_size: 5 alpha: 1", NAMED("cudnn", "cudnn")) IN_PLACE LOSS("n"));
}

/* ---- by timing */

static int count_rows(const char *text, const char *begin, Ct__SolverParameter__Precision precision)
{
    ct_engine_plan_options o = { .machine = { "gpu", "cuda", "1", 1 },
                                 .mode = CT_ENGINE_PLAN_TIME,
                                 .n_rank = 1 };
    ct_net_options n = { .env = { .n_rank = 1, .precision = precision } };
    ct_engine_plan *plan = NULL;
    const ct_engine_plan_entry *row;
    test_cuda_net t;
    int found = 0;

    assert_int_equal(ct_engine_plan_create(&o, &plan), CT_OK);
    n.env.plan = plan;
    test_cuda_net_open(text, test_cuda(), &n, NULL, &t);
    (void)test_cuda_net_pass(&t, 0, false);
    for (int i = 0; (row = ct_engine_plan_row(plan, i)) != NULL; i++) {
        if (strncmp(row->key, begin, strlen(begin)) != 0) continue;
        found++;
        assert_int_equal(row->n, 2);
        assert_true((row->engine[0].ms > 0.0) && (row->engine[1].ms > 0.0));
        assert_string_equal(row->taken, row->engine[0].name);
    }
    test_cuda_net_close(&t);
    ct_engine_plan_destroy(plan);
    return found;
}

/* A row each way for four layers of one shape: as they come, which are the same two, and for each
 * of three groups. Forward by timing hangs on what backward needs. */
static void normalisations_are_timed(void **state)
{
    (void)state;
    needs_cudnn();
    assert_int_equal(count_rows(NET(""), "batchnorm forward ", F32), 4);
    assert_int_equal(count_rows(NET(""), "batchnorm backward_data ", F32), 4);
    assert_int_equal(count_rows(NET(GIVEN), "batchnorm backward_data ", F32), 0);
    assert_int_equal(count_rows(ACROSS_LOSS("local_size: 5", ""), "lrn backward_data ", F32), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_as_ours),        cmocka_unit_test(given_statistics_are_as_ours),
        cmocka_unit_test(narrow_values_are_as_ours), cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(channels_are_as_ours),      cmocka_unit_test(normalisations_are_timed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
