/* What solvers of every type leave on disk and go on from; averages of weights; the plateau. */
#include "tests/test.h"
#include "tests/solver_harness.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A student of a fixed teacher, with dropout. */
#define NET                                                                                        \
    "net_param { name: 'school' "                                                                  \
    "layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: %d dim: 4 } " \
    "data_filler { type: 'gaussian' } } } "                                                        \
    "layer { name: 'teacher' type: 'InnerProduct' bottom: 'x' top: 'y' param { lr_mult: 0 } "      \
    "param "                                                                                       \
    "{ lr_mult: 0 } inner_product_param { num_output: 3 weight_filler { type: 'constant' value: "  \
    "1 "                                                                                           \
    "} } } "                                                                                       \
    "layer { name: 'drop' type: 'Dropout' bottom: 'x' top: 'x' } "                                 \
    "layer { name: 'student' type: 'InnerProduct' bottom: 'x' top: 'z' inner_product_param { "     \
    "num_output: 3 weight_filler { type: 'xavier' } } } "                                          \
    "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'z' bottom: 'y' top: 'loss' } } "
#define FIELDS                                                                                     \
    "base_lr: 0.05 weight_decay: 0.01 deterministic: true random_seed: 7 delta: 0.001 "            \
    "average_loss: 3 snapshot_prefix: '%s/s' max_iter: %d %s "

enum { MOST = 128 };

typedef struct run {
    char text[2048];
    const char *restore;
    float weight[MOST];
    int64_t count;
} run;

static ct_status run_rank(thread_rank *r)
{
    run *c = r->out;
    test_solver t;
    ct_status status = test_solver_create(c->text, r, NULL, NULL, &t);

    if ((status == CT_OK) && (c->restore != NULL)) status = ct_solver_restore(t.solver, c->restore);
    if (status == CT_OK) status = ct_solver_run(t.solver);
    if (status == CT_OK) {
        const ct_net *net = ct_solver_net(t.solver);

        c->count = net->weight_count;
        memcpy(c->weight, net->weight_arena, (size_t)c->count * sizeof(float));
    }
    test_solver_destroy(&t);
    return status;
}

/* Of a global batch of 12. */
static ct_status run_ranks(int n, const char *type, int max_iter, const char *more,
                           const char *restore, run *runs)
{
    thread_ranks job = { .n = n, .run = run_rank };
    thread_rank rank[THREAD_RANKS_MAX];

    for (int r = 0; r < n; r++) {
        snprintf(runs[r].text, sizeof(runs[r].text), "%s " FIELDS NET, type, test_solver_dir(),
                 max_iter, more, 12 / n);
        runs[r].restore = restore;
        rank[r] = (thread_rank){ .out = &runs[r] };
    }
    return thread_ranks_run(&job, rank);
}

static void assert_same(const run *a, const run *b)
{
    assert_true((a->count > 0) && (a->count == b->count));
    assert_memory_equal(a->weight, b->weight, (size_t)a->count * sizeof(float));
}

#define FIXED "lr_policy: 'fixed' "
static const char *const others[] = {
    FIXED "type: 'Adam' momentum: 0.9 snapshot_format: BINARYPROTO",
    FIXED "type: 'SGD' momentum: 0.9 average { type: EMA decay: 0.75 start_iter: 3 }",
    FIXED "type: 'LAMB' momentum: 0.9 average { type: SWA start_iter: 2 interval: 3 }",
    "lr_policy: 'plateau' gamma: 0.5 plateau_winsize: 2 plateau_winsize: 3 type: 'SGD'",
};
enum { N_OTHER = sizeof(others) / sizeof(others[0]) };

/* Every update rule, then the others; NULL beyond the end. */
static const char *kind(int i, char text[64])
{
    const ct_update_rule *rule = ct_update_rule_at(i);
    int n = 0;

    if (rule != NULL) {
        bool momentum = (rule->reads & CT_UPDATE_MOMENTUM) != 0;

        snprintf(text, 64, FIXED "type: '%s'%s", rule->type, momentum ? " momentum: 0.9" : "");
        return text;
    }
    while (ct_update_rule_at(n) != NULL) n++;
    return (i - n < N_OTHER) ? others[i - n] : NULL;
}

#define NO_END "snapshot_after_train: false"

static void test_resume(void **state)
{
    char text[64];
    const char *fields;

    (void)state;
    for (int t = 0; (fields = kind(t, text)) != NULL; t++) {
        for (int n = 1; n <= 3; n += 2) {
            run whole[3], part[3];

            assert_int_equal(run_ranks(n, fields, 14, NO_END, NULL, whole), CT_OK);
            assert_int_equal(run_ranks(n, fields, 7, "", NULL, part), CT_OK);
            assert_memory_not_equal(whole[0].weight, part[0].weight, 15 * sizeof(float));
            assert_int_equal(run_ranks(n, fields, 14, NO_END, "auto", part), CT_OK);
            for (int r = 0; r < n; r++) assert_same(&whole[r], &part[r]);
        }
        test_solver_teardown(NULL);
        test_solver_setup(NULL);
    }
}

/* One that began on three ranks goes on alone: means of 12 samples either way, so what differs is
 * the rounding of sums, a few times a step, of values below 8; a change of g by some roundings
 * moves a step of the adaptive rules by as many shares of it, over a root of at least 0.001. */
static void test_other_ranks(void **state)
{
    char text[64];

    (void)state;
    for (int t = 0; ct_update_rule_at(t) != NULL; t++) {
        const char *fields = kind(t, text);
        run whole[3], part[3];

        assert_int_equal(run_ranks(3, fields, 14, NO_END, NULL, whole), CT_OK);
        assert_int_equal(run_ranks(3, fields, 7, "", NULL, part), CT_OK);
        assert_int_equal(run_ranks(1, fields, 14, NO_END, "auto", part), CT_OK);
        for (int i = 0; i < whole[0].count; i++)
            if (!(fabsf(whole[0].weight[i] - part[0].weight[i]) <= 7 * 16 * 8 * FLT_EPSILON / 2))
                fail_msg("%s, weight %d: %.9g alone, %.9g on three ranks", fields, i,
                         (double)part[0].weight[i], (double)whole[0].weight[i]);
        test_solver_teardown(NULL);
        test_solver_setup(NULL);
    }
}

/* A snapshot of another type says so. */
static void test_other_type(void **state)
{
    run r[1];

    (void)state;
    assert_int_equal(run_ranks(1, FIXED "type: 'SGD' momentum: 0.9", 3, "", NULL, r), CT_OK);
    assert_int_equal(run_ranks(1, FIXED "type: 'Adam' momentum: 0.9", 6, NO_END, "auto", r),
                     CT_ERR_DATA);
    test_log_holds("no optimiser state \"mean\" of");
    test_log_holds("was it written by another solver type?");
}

/* ---- averages ---- */

static float *student(ct_solver *s)
{
    const ct_net *net = ct_solver_net(s);

    return ct_blob_data(&net->param[ct_net_find_param(net, "student[0]")].blob);
}

/* After each of 9 updates: the average by its definition beside the one in the set. */
static void check_average(const char *fields, int start, int interval, double decay)
{
    char text[2048], file[128];
    double mean[12] = { 0 };
    int counted = 0;

    for (int done = 1; done <= 9; done++) {
        float weight[12];
        test_solver t;

        snprintf(text, sizeof(text), FIXED "type: 'SGD' momentum: 0.9 %s " FIELDS NET, fields,
                 test_solver_dir(), done, "", 12);
        assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
        assert_int_equal(ct_solver_run(t.solver), CT_OK);
        memcpy(weight, student(t.solver), sizeof(weight));
        snprintf(file, sizeof(file), "%s/s_iter_%d.average.caffemodel.h5", test_solver_dir(), done);
        if ((done > start) && ((done - start) % interval == 0)) {
            counted++;
            for (int i = 0; i < 12; i++) {
                double share = (counted == 1) ? 1 : ((decay < 0) ? 1.0 / counted : 1 - decay);

                mean[i] += share * ((double)weight[i] - mean[i]);
            }
        }
        assert_int_equal(access(file, F_OK) == 0, counted > 0);
        if (counted > 0) {
            assert_int_equal(ct_solver_load_weights(t.solver, file), CT_OK);
            for (int i = 0; i < 12; i++) /* two roundings a step of values below 2 */
                assert_true(fabs((double)student(t.solver)[i] - mean[i]) <=
                            9 * 2 * 2 * (double)FLT_EPSILON / 2);
        }
        test_solver_destroy(&t);
    }
}

static void test_averages(void **state)
{
    (void)state;
    check_average("average { type: EMA decay: 0.75 start_iter: 3 }", 3, 1, 0.75);
    test_solver_teardown(NULL);
    test_solver_setup(NULL);
    check_average("average { type: SWA start_iter: 2 interval: 3 }", 2, 3, -1);
}

/* Tests see the average, training the weights. */
static void test_average_is_tested(void **state)
{
    static const char more[] = "test_iter: 2 test_interval: 100 test_initialization: false "
                               "average { type: EMA decay: 0.75 }";
    char text[2048], file[128];
    double averaged = 0, own = 0, again = 0;
    test_solver t;
    float before[12];

    (void)state;
    snprintf(text, sizeof(text), FIXED "type: 'SGD' momentum: 0.9 " FIELDS NET, test_solver_dir(),
             6, more, 12);
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    memcpy(before, student(t.solver), sizeof(before));
    assert_int_equal(ct_solver_test(t.solver, 0, &averaged, 1), CT_OK);
    assert_memory_equal(before, student(t.solver), sizeof(before));
    test_solver_destroy(&t);

    snprintf(text, sizeof(text), FIXED "type: 'SGD' momentum: 0.9 " FIELDS NET, test_solver_dir(),
             6, "test_iter: 2 test_interval: 100 snapshot_after_train: false", 12);
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
    snprintf(file, sizeof(file), "%s/s_iter_6.caffemodel.h5", test_solver_dir());
    assert_int_equal(ct_solver_load_weights(t.solver, file), CT_OK);
    assert_memory_equal(before, student(t.solver), sizeof(before)); /* the weights, not the mean */
    assert_int_equal(ct_solver_test(t.solver, 0, &own, 1), CT_OK);
    snprintf(file, sizeof(file), "%s/s_iter_6.average.caffemodel.h5", test_solver_dir());
    assert_int_equal(ct_solver_load_weights(t.solver, file), CT_OK);
    assert_int_equal(ct_solver_test(t.solver, 0, &again, 1), CT_OK);
    test_solver_destroy(&t);
    assert_true(averaged == again);
    assert_true(averaged != own);
}

/* A signal within a test pass has the weights themselves written, and the test goes on with their
 * average. */
static void test_snapshot_within_a_test(void **state)
{
    static const char more[] = "test_iter: 2 test_interval: 100 test_initialization: false "
                               "snapshot_after_train: false average { type: EMA decay: 0.75 }";
    char text[2048], file[128];
    volatile int request = CT_ACTION_NONE;
    double quiet = 0, loud = 0;
    float before[12];
    test_solver t;

    (void)state;
    snprintf(text, sizeof(text), FIXED "type: 'SGD' momentum: 0.9 " FIELDS NET, test_solver_dir(),
             6, more, 12);
    assert_int_equal(test_solver_create(text, NULL, &request, NULL, &t), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    assert_int_equal(ct_solver_test(t.solver, 0, &quiet, 1), CT_OK);
    request = CT_ACTION_SNAPSHOT;
    assert_int_equal(ct_solver_test(t.solver, 0, &loud, 1), CT_OK);
    assert_int_equal(request, CT_ACTION_NONE);
    assert_true(loud == quiet);
    memcpy(before, student(t.solver), sizeof(before));
    memset(student(t.solver), 0, sizeof(before));
    snprintf(file, sizeof(file), "%s/s_iter_6.caffemodel.h5", test_solver_dir());
    assert_int_equal(ct_solver_load_weights(t.solver, file), CT_OK);
    assert_memory_equal(before, student(t.solver), sizeof(before));
    test_solver_destroy(&t);
}

/* A set of a run without an average starts it at the weights. */
static void test_average_begins_late(void **state)
{
    static const char with[] = FIXED "type: 'SGD' momentum: 0.9 average { type: EMA decay: 0.5 }";
    run r[1], plain[1];

    (void)state;
    assert_int_equal(run_ranks(1, FIXED "type: 'SGD' momentum: 0.9", 4, "", NULL, r), CT_OK);
    assert_int_equal(run_ranks(1, FIXED "type: 'SGD' momentum: 0.9", 8, NO_END, NULL, plain),
                     CT_OK);
    assert_int_equal(run_ranks(1, with, 8, NO_END, "auto", r), CT_OK);
    assert_same(plain, r); /* which it does not change */
}

int main(void)
{
#define TEST(_f) cmocka_unit_test_setup_teardown(_f, test_solver_setup, test_solver_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_resume),
        TEST(test_other_ranks),
        TEST(test_other_type),
        TEST(test_averages),
        TEST(test_average_is_tested),
        TEST(test_snapshot_within_a_test),
        TEST(test_average_begins_late),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
