#include "tests/test.h"

#include <math.h>
#include <string.h>

#include "framework/solver/solver_private.h"

/* Fields are float: one rounding of each of them, and the powers' own error. */
#define NEAR(_a, _b) assert_true(fabs((_a) - (_b)) <= 1e-6 * fabs(_b))

static char last_log[1024];

static void keep_log(void *ctx, const char *text)
{
    (void)ctx;
    snprintf(last_log, sizeof(last_log), "%s", text);
}

static Ct__SolverParameter make(char *policy)
{
    Ct__SolverParameter p = CT__SOLVER_PARAMETER__INIT;

    p.lr_policy = policy;
    p.has_base_lr = 1;
    p.base_lr = 0.5f;
    return p;
}

static double rate(const Ct__SolverParameter *p, int64_t iteration)
{
    double r = -1;

    assert_int_equal(ct_learning_rate(p, iteration, &r), CT_OK);
    return r;
}

static void test_fixed_step_exp(void **state)
{
    char fixed[] = "fixed", step[] = "step", exponential[] = "exp";
    Ct__SolverParameter p = make(fixed);

    (void)state;
    NEAR(rate(&p, 0), 0.5);
    NEAR(rate(&p, 100000), 0.5);

    p = make(step);
    p.has_gamma = p.has_stepsize = 1;
    p.gamma = 0.1f;
    p.stepsize = 10;
    NEAR(rate(&p, 0), 0.5);
    NEAR(rate(&p, 9), 0.5);
    NEAR(rate(&p, 10), 0.05);
    NEAR(rate(&p, 29), 0.005);
    assert_int_equal(ct_learning_rate_step(&p, 29), 2);

    p = make(exponential);
    p.has_gamma = 1;
    p.gamma = 0.5f;
    NEAR(rate(&p, 0), 0.5);
    NEAR(rate(&p, 5), 0.5 / 32);
}

static void test_inv_poly_sigmoid(void **state)
{
    char inv[] = "inv", poly[] = "poly", sigmoid[] = "sigmoid";
    Ct__SolverParameter p = make(inv);

    (void)state;
    /* LeNet's: Caffe's log shows 0.00992565 at iteration 100 */
    p.base_lr = 0.01f;
    p.has_gamma = p.has_power = 1;
    p.gamma = 0.0001f;
    p.power = 0.75f;
    assert_true(fabs(rate(&p, 100) - 0.00992565) < 0.5e-8);
    NEAR(rate(&p, 10000), 0.01 * pow(2, -0.75));

    p = make(poly);
    p.has_power = p.has_max_iter = 1;
    p.power = 2;
    p.max_iter = 100;
    NEAR(rate(&p, 0), 0.5);
    NEAR(rate(&p, 75), 0.5 / 16);
    assert_true(rate(&p, 100) == 0);
    assert_true(rate(&p, 101) == 0); /* not NaN, not rising again */

    p = make(sigmoid);
    p.has_gamma = p.has_stepsize = 1;
    p.gamma = 0.5f;
    p.stepsize = 20;
    NEAR(rate(&p, 20), 0.25);
    NEAR(rate(&p, 0), 0.5 / (1 + exp(10.0)));
    NEAR(rate(&p, 40), 0.5 / (1 + exp(-10.0)));
}

static void test_multistep_cosine_warmup(void **state)
{
    char multistep[] = "multistep", cosine[] = "cosine";
    int32_t at[] = { 10, 30 };
    Ct__WarmupParameter warmup = CT__WARMUP_PARAMETER__INIT;
    Ct__SolverParameter p = make(multistep);

    (void)state;
    p.has_gamma = 1;
    p.gamma = 0.1f;
    p.n_stepvalue = 2;
    p.stepvalue = at;
    NEAR(rate(&p, 9), 0.5);
    NEAR(rate(&p, 10), 0.05);
    NEAR(rate(&p, 29), 0.05);
    NEAR(rate(&p, 30), 0.005);
    assert_int_equal(ct_learning_rate_step(&p, 30), 2);

    p = make(cosine);
    p.has_max_iter = 1;
    p.max_iter = 100;
    NEAR(rate(&p, 0), 0.5);
    NEAR(rate(&p, 50), 0.25);
    assert_true(fabs(rate(&p, 100)) < 1e-16);

    warmup.has_iterations = warmup.has_start_factor = 1;
    warmup.iterations = 50;
    warmup.start_factor = 0.2f;
    p.warmup = &warmup;
    NEAR(rate(&p, 0), 0.1);
    NEAR(rate(&p, 25), 0.6 * 0.25 * (1 + sqrt(0.5)));
    NEAR(rate(&p, 50), 0.25);
}

/* GPT's recipe: a line from 0, then half a cosine from base_lr to a tenth of it at max_iter. */
static void test_gpt(void **state)
{
    enum { WARM = 200, END = 5000 };
    char cosine[] = "cosine", poly[] = "poly", step[] = "step";
    Ct__WarmupParameter warmup = CT__WARMUP_PARAMETER__INIT;
    Ct__SolverParameter p = make(cosine);

    (void)state;
    warmup.iterations = WARM;
    warmup.policy_after = 1;
    p.warmup = &warmup;
    p.has_max_iter = p.has_min_lr = 1;
    p.base_lr = 0x1p-10f;
    p.min_lr = 0x1p-13f;
    p.max_iter = END;
    for (int i = 0; i <= END + 10; i++) {
        double most = 0x1p-10, least = 0x1p-13, way = (double)(i - WARM) / (END - WARM);
        double want = least + 0.5 * (1 + cos(acos(-1.0) * fmin(way, 1))) * (most - least);

        if (i < WARM) want = most * i / WARM;
        assert_true(fabs(rate(&p, i) - want) <= 1e-12 * most);
    }
    assert_true(rate(&p, 0) == 0);
    assert_true(rate(&p, WARM) == 0x1p-10);
    assert_true(rate(&p, END) == 0x1p-13);

    /* the policy without a delay, which falls to the least rate, too */
    warmup.policy_after = 0;
    NEAR(rate(&p, END / 2), 0.5 * (0x1p-10 + 0x1p-13));
    NEAR(rate(&p, WARM / 2),
         0.5 * (0x1p-13 + 0.5 * (1 + cos(acos(-1.0) * WARM / 2 / END)) * (0x1p-10 - 0x1p-13)));
    p.lr_policy = poly;
    p.has_power = 1;
    p.power = 1;
    NEAR(rate(&p, END / 2), 0.5 * (0x1p-10 + 0x1p-13));
    warmup.policy_after = 1;
    NEAR(rate(&p, WARM + (END - WARM) / 4), 0.75 * 0x1p-10 + 0.25 * 0x1p-13);

    /* steps are counted from there, too */
    p = make(step);
    p.warmup = &warmup;
    p.has_gamma = p.has_stepsize = 1;
    p.gamma = 0.5f;
    p.stepsize = 10;
    NEAR(rate(&p, WARM / 2), 0.25);
    NEAR(rate(&p, WARM + 9), 0.5);
    NEAR(rate(&p, WARM + 10), 0.25);
    assert_int_equal(ct_learning_rate_step(&p, WARM / 2), 0);
    assert_int_equal(ct_learning_rate_step(&p, WARM + 9), 0);
    assert_int_equal(ct_learning_rate_step(&p, WARM + 10), 1);
}

/* What Intel's and NVIDIA's forks have. */
static void test_stages_and_ramps(void **state)
{
    char multifixed[] = "multifixed", plateau[] = "plateau";
    float lr[] = { 0.5f, 0.25f, 0.125f };
    int32_t at[] = { 10, 30, 40 }, window[] = { 3 };
    Ct__SolverParameter p = make(multifixed);

    (void)state;
    p.has_base_lr = 0; /* it has no part in it */
    p.n_stagelr = p.n_stageiter = 3;
    p.stagelr = lr;
    p.stageiter = at;
    NEAR(rate(&p, 0), 0.5);
    NEAR(rate(&p, 10), 0.5); /* up to and with it */
    NEAR(rate(&p, 11), 0.25);
    NEAR(rate(&p, 31), 0.125);
    NEAR(rate(&p, 1000), 0.125);

    p = make(plateau); /* 0.5 */
    p.has_gamma = 1;
    p.gamma = 0.1f;
    p.n_plateau_winsize = 1;
    p.plateau_winsize = window;
    NEAR(rate(&p, 100), 0.5);
    p.warmup_iter = 50;
    p.warmup_start_lr = 0.1f;
    NEAR(rate(&p, 0), 0.1);
    NEAR(rate(&p, 25), 0.3);
    NEAR(rate(&p, 50), 0.5);
    p.warmup_iter = 0;
    p.rampup_interval = 4;
    NEAR(rate(&p, 1), 0.125);
    NEAR(rate(&p, 4), 0.5);
}

/* Losses 5 4 4 4 …, then 1: a step after two and three iterations without news. */
static void test_plateau(void **state)
{
    static const double loss[] = { 5, 4, 4, 4, 4, 4, 4, 4, 1, 2, 2, 2 };
    static const int step[] = { 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2 };
    int32_t window[] = { 2, 3 };
    ct_plateau at = { .begun = false };
    Ct__SolverParameter p = CT__SOLVER_PARAMETER__INIT;

    (void)state;
    p.gamma = 0.5f;
    p.n_plateau_winsize = 2;
    p.plateau_winsize = window;
    for (int i = 0; i < 12; i++) {
        ct_plateau_note(&p, i, loss[i], &at);
        assert_int_equal(at.step, step[i]);
    }
    assert_true(at.least == 1);
    assert_int_equal(at.event, 8);
    NEAR(ct_plateau_factor(&p, &at), 0.25);
}

static void expect_config(const Ct__SolverParameter *p, const char *word)
{
    double r = 7;

    last_log[0] = '\0';
    ct_log_set_sink(keep_log, NULL);
    assert_int_equal(ct_learning_rate(p, 0, &r), CT_ERR_CONFIG);
    ct_log_set_sink(NULL, NULL);
    assert_true(r == 7);
    if (strstr(last_log, word) == NULL) fail_msg("\"%s\" is not in: %s", word, last_log);
}

static void test_errors(void **state)
{
    char wrong[] = "stepp", step[] = "step", multistep[] = "multistep", poly[] = "poly",
         inv[] = "inv", multifixed[] = "multifixed", fixed[] = "fixed";
    int32_t descending[] = { 30, 10 }, at[] = { 10, 30 };
    float lr[] = { 0.5f };
    Ct__SolverParameter p = make(wrong);

    (void)state;
    expect_config(&p, "did you mean \"step\"?");
    p = make(NULL);
    expect_config(&p, "lr_policy is not set");
    p = make(step);
    expect_config(&p, "gamma stepsize");
    p.has_gamma = p.has_stepsize = 1;
    p.gamma = 0.1f;
    expect_config(&p, "stepsize is 0");
    p = make(inv);
    p.has_gamma = 1;
    expect_config(&p, "power");
    p.gamma = NAN;
    p.has_power = 1;
    expect_config(&p, "gamma is nan");
    p = make(poly);
    expect_config(&p, "power max_iter");
    p.has_base_lr = 0;
    expect_config(&p, "base_lr");
    p = make(multistep);
    p.has_gamma = 1;
    expect_config(&p, "stepvalue");
    p.n_stepvalue = 2;
    p.stepvalue = descending;
    expect_config(&p, "must ascend");
    p.lr_policy = multifixed;
    expect_config(&p, "a value for: stagelr stageiter");
    p.n_stagelr = 1;
    p.stagelr = lr;
    p.n_stageiter = 2;
    p.stageiter = at;
    expect_config(&p, "1 stagelr and 2 stageiter");
    p.lr_policy = fixed;
    p.warmup_iter = p.rampup_interval = 5;
    expect_config(&p, "in three ways; give one");
}

static void test_least_errors(void **state)
{
    char cosine[] = "cosine", fixed[] = "fixed";
    Ct__WarmupParameter warmup = CT__WARMUP_PARAMETER__INIT;
    Ct__SolverParameter p = make(cosine);

    (void)state;
    p.has_max_iter = p.has_min_lr = 1;
    p.max_iter = 100;
    p.min_lr = 0.75f;
    expect_config(&p, "min_lr is 0.75, needs 0 to base_lr, which is 0.5");
    p.min_lr = -1;
    expect_config(&p, "min_lr is -1");
    p.min_lr = NAN;
    expect_config(&p, "min_lr is nan");
    p.min_lr = 0.25f;
    p.lr_policy = fixed;
    expect_config(&p, "but lr_policy is \"fixed\"");
    p.lr_policy = cosine;
    p.warmup = &warmup;
    warmup.iterations = 100;
    assert_true(rate(&p, 0) == 0);
    warmup.policy_after = 1;
    expect_config(&p, "leaves nothing to the policy");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixed_step_exp),
        cmocka_unit_test(test_inv_poly_sigmoid),
        cmocka_unit_test(test_multistep_cosine_warmup),
        cmocka_unit_test(test_gpt),
        cmocka_unit_test(test_stages_and_ramps),
        cmocka_unit_test(test_plateau),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_least_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
