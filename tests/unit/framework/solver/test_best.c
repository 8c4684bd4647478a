/* best { }, patience, snapshot_minutes: what stays, when a run ends, and that a run which is
 * interrupted anywhere ends as one that is not. */
#include "tests/forge_hdf5.h"
#include "tests/test.h"
#include "tests/solver_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/report/report.h"

/* A student of a fixed teacher on the same samples always: its loss falls from test to test. */
#define NET                                                                                        \
    "net_param { name: 'school' "                                                                  \
    "layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 6 dim: 4 } "  \
    "data_filler { type: 'gaussian' } } } "                                                        \
    "layer { name: 'teacher' type: 'InnerProduct' bottom: 'x' top: 'y' param { lr_mult: 0 } "      \
    "param { lr_mult: 0 } inner_product_param { num_output: 3 "                                    \
    "weight_filler { type: 'constant' value: 1 } } } "                                             \
    "layer { name: 'student' type: 'InnerProduct' bottom: 'x' top: 'z' inner_product_param { "     \
    "num_output: 3 weight_filler { type: 'xavier' } } } "                                          \
    "layer { name: 'gap' type: 'Reduction' bottom: 'z' top: 'gap' include { phase: TEST } } "      \
    "layer { name: 'cost' type: 'Reduction' bottom: 'z' top: 'cost' loss_weight: 0.5 include { "   \
    "phase: TEST } } layer { name: 'off' type: 'EuclideanLoss' bottom: 'z' bottom: 'y' top: "      \
    "'off' loss_weight: 0 include { phase: TEST } } "                                              \
    "layer { name: 'many' type: 'ReLU' bottom: 'y' top: 'many' include { phase: TEST } } "         \
    "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'z' bottom: 'y' top: 'loss' } } "
#define SOLVER                                                                                     \
    "base_lr: 0.01 lr_policy: 'fixed' random_seed: 7 deterministic: true test_iter: 2 "            \
    "test_interval: 2 snapshot_prefix: '%s/s' "

static bool exists(const char *name)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", test_solver_dir(), name);
    return access(path, F_OK) == 0;
}

static bool has_set(int iteration)
{
    char name[64];

    snprintf(name, sizeof(name), "s_iter_%d.solverstate.h5", iteration);
    return exists(name);
}

/* PREFIX.best, or "". */
static const char *best_list(char *text, size_t size)
{
    char path[512];
    size_t n = 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s/s.best", test_solver_dir());
    f = fopen(path, "r");
    if (f != NULL) {
        n = fread(text, 1, size - 1, f);
        fclose(f);
    }
    text[n] = '\0';
    return text;
}

static test_solver make_telling(const char *fields, ct_report *report)
{
    char text[4096];
    test_solver t;

    snprintf(text, sizeof(text), SOLVER "%s " NET, test_solver_dir(), fields);
    assert_int_equal(test_solver_create(text, NULL, NULL, report, &t), CT_OK);
    return t;
}

static test_solver make(const char *fields)
{
    return make_telling(fields, NULL);
}

static void run(const char *fields)
{
    ct_report *report = NULL;
    test_solver t;

    assert_int_equal(ct_report_create(&(ct_report_options){ 0 }, &report), CT_OK);
    t = make_telling(fields, report);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    test_solver_destroy(&t);
    ct_report_destroy(report);
}

static void clear(void)
{
    char command[512];

    snprintf(command, sizeof(command), "rm -f %s/s*", test_solver_dir());
    assert_int_equal(system(command), 0);
}

/* A loss falls by itself; each test is the best, so the last ones stay. */
static void test_keeps_the_best(void **state)
{
    static const char fields[] = "max_iter: 8 best { metric: 'loss' keep: 2 } "
                                 "snapshot_after_train: false ";
    char list[256];
    double a, b;

    (void)state;
    run(fields);
    assert_int_equal(sscanf(best_list(list, sizeof(list)), "loss LOWER\n8 %lf\n6 %lf\n", &a, &b),
                     2);
    assert_true(a < b);
    for (int i = 0; i <= 8; i++) assert_int_equal(has_set(i), (i == 6) || (i == 8));
    test_log_holds("] Iteration 8, best loss so far: ");
    test_log_holds("] the best loss is ");
    clear();

    /* where more were better the first two would stay, whatever snapshot_keep says */
    run("max_iter: 8 best { metric: 'loss' direction: HIGHER keep: 2 } snapshot: 1 "
        "snapshot_keep: 1 ");
    assert_int_equal(sscanf(best_list(list, sizeof(list)), "loss HIGHER\n0 %lf\n2 %lf\n", &a, &b),
                     2);
    assert_true(a > b);
    for (int i = 0; i <= 8; i++) assert_int_equal(has_set(i), (i == 0) || (i == 2) || (i == 8));
    clear();

    /* sets that are there for other reasons stay */
    run("max_iter: 8 best { metric: 'loss' } snapshot: 4 snapshot_after_train: false ");
    for (int i = 0; i <= 8; i++) assert_int_equal(has_set(i), (i == 4) || (i == 8));
}

/* What the log's end says of the best, after so many tests. */
static void test_best_is_told(void **state)
{
    static const struct {
        const char *fields;
        bool any; /* test */
    } cases[] = { { "max_iter: 1 test_initialization: false ", false },
                  { "max_iter: 1 ", true },
                  { "max_iter: 2 ", true } };
    char fields[256];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        test_log_all_stop();
        test_log_all_start();
        snprintf(fields, sizeof(fields),
                 "%s best { metric: 'loss' keep: 0 } snapshot_after_train: false ",
                 cases[i].fields);
        run(fields);
        assert_int_equal(strstr(test_log_all(), "] the best ") != NULL, cases[i].any);
    }
    test_log_holds("] the best loss is ");
    test_log_holds(", of iteration 2\n");
}

static void test_patience(void **state)
{
    char list[256], before[256];
    test_solver t;

    (void)state;
    t = make("max_iter: 100 patience: 2 best { metric: 'loss' direction: HIGHER } ");
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    assert_int_equal(ct_solver_iteration(t.solver), 4);
    test_solver_destroy(&t);
    test_log_holds("] patience is over: 2 tests without a better loss");
    assert_true(has_set(0));
    assert_true(has_set(4));
    assert_false(has_set(2));
    strcpy(before, best_list(list, sizeof(list)));

    /* going on with it ends at once, unless there is more patience */
    t = make("max_iter: 100 patience: 2 best { metric: 'loss' direction: HIGHER } ");
    assert_int_equal(ct_solver_restore(t.solver, "auto"), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    assert_int_equal(ct_solver_iteration(t.solver), 4);
    assert_string_equal(best_list(list, sizeof(list)), before);
    test_solver_destroy(&t);
    t = make("max_iter: 100 patience: 5 best { metric: 'loss' direction: HIGHER } ");
    assert_int_equal(ct_solver_restore(t.solver, "auto"), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    assert_int_equal(ct_solver_iteration(t.solver), 10);
    test_solver_destroy(&t);

    /* what gets better does not end */
    t = make("max_iter: 8 patience: 1 best { metric: 'loss' keep: 0 } snapshot_after_train: "
             "false ");
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    assert_int_equal(ct_solver_iteration(t.solver), 8);
    test_solver_destroy(&t);
    assert_string_equal(best_list(list, sizeof(list)), "");
}

/* Weights, list and sets of a run that is left after `stop` steps with a snapshot, and goes on. */
static void compare(const char *fields, int stop)
{
    char want[256], have[256];
    uint64_t straight;
    bool sets[32];
    test_solver t;

    clear();
    t = make(fields);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    straight = ct_net_checksum(ct_solver_net(t.solver), true);
    test_solver_destroy(&t);
    best_list(want, sizeof(want));
    for (int i = 0; i < 32; i++) sets[i] = has_set(i);
    clear();
    t = make(fields);
    assert_int_equal(ct_solver_steps(t.solver, stop), CT_OK);
    assert_int_equal(ct_solver_save(t.solver), CT_OK);
    test_solver_destroy(&t);
    t = make(fields);
    assert_int_equal(ct_solver_restore(t.solver, "auto"), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    assert_true(ct_net_checksum(ct_solver_net(t.solver), true) == straight);
    test_solver_destroy(&t);
    assert_string_equal(best_list(have, sizeof(have)), want);
    for (int i = 0; i < 32; i++)
        if (i != stop) assert_int_equal(has_set(i), sets[i]);
}

static void test_goes_on_as_if_nothing_had_been(void **state)
{
    (void)state;
    for (int stop = 1; stop <= 6; stop++)
        compare("max_iter: 30 patience: 3 best { metric: 'loss' direction: HIGHER keep: 2 } ",
                stop);
    for (int stop = 1; stop <= 7; stop++)
        compare("max_iter: 8 best { metric: 'loss' keep: 2 } snapshot: 3 snapshot_async: true ",
                stop);
}

/* Another metric starts anew; without `best` the list goes. */
static void test_another_metric(void **state)
{
    char list[256];
    test_solver t;

    (void)state;
    run("max_iter: 4 best { metric: 'loss' } ");
    t = make("max_iter: 6 best { metric: 'gap' direction: HIGHER } ");
    assert_int_equal(ct_solver_restore(t.solver, "auto"), CT_OK);
    test_log_holds("the snapshot's best tests are by \"loss\", this run's are by \"gap\"");
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    test_solver_destroy(&t);
    assert_int_equal(strncmp(best_list(list, sizeof(list)), "gap HIGHER\n", 11), 0);
    t = make("max_iter: 6 ");
    assert_int_equal(ct_solver_restore(t.solver, "auto"), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    test_solver_destroy(&t);
    assert_string_equal(best_list(list, sizeof(list)), "");
}

/* What makes it a loss is its weight, or its type. */
static void test_losses_fall(void **state)
{
    static const char *const metric[] = { "off", "cost" };
    char list[256], expected[32];

    (void)state;
    for (int i = 0; i < 2; i++) {
        char fields[128];

        snprintf(fields, sizeof(fields), "max_iter: 4 best { metric: '%s' } ", metric[i]);
        snprintf(expected, sizeof(expected), "%s LOWER\n", metric[i]);
        clear();
        run(fields);
        assert_int_equal(strncmp(best_list(list, sizeof(list)), expected, strlen(expected)), 0);
    }
}

/* A set of a state is an iteration, a number, and a mark. */
static void test_forged_sets(void **state)
{
    static const struct {
        double v[6];
        int64_t n;
        int bad;
    } forged[] = {
        { { 2, 0.5, 1, 4, 0.25, 0 }, 6, -1 },   { { 2, NAN, 1, 4, 0.25, 0 }, 6, 0 },
        { { 2, 0.5, 1, 4, INFINITY }, 6, 1 },   { { 2, 0.5, 1, -1, 0.25, 0 }, 6, 1 },
        { { 2, 0.5, 1, 2.5, 0.25, 0 }, 6, 1 },  { { NAN, 0.5, 1, 4, 0.25, 0 }, 6, 0 },
        { { 2, 0.5, 1, 1e18, 0.25, 0 }, 6, 1 }, { { 2, 0.5, 1, 4, 0.25 }, 5, 1 },
    };
    static const char fields[] = "max_iter: 6 best { metric: 'loss' keep: 2 } ";
    char file[512], text[128];

    (void)state;
    run("max_iter: 4 best { metric: 'loss' keep: 2 } ");
    snprintf(file, sizeof(file), "%s/s_iter_4.solverstate.h5", test_solver_dir());
    for (size_t i = 0; i < sizeof(forged) / sizeof(forged[0]); i++) {
        test_solver t = make(fields);

        assert_true(forge_doubles(file, "/best/sets", forged[i].n, forged[i].v));
        assert_true(forge_seal(file));
        assert_int_equal(ct_solver_restore(t.solver, file),
                         (forged[i].bad < 0) ? CT_OK : CT_ERR_DATA);
        snprintf(text, sizeof(text), "/best/sets has %d numbers, of which those of set %d are no",
                 (int)forged[i].n, forged[i].bad);
        if (forged[i].bad >= 0) test_log_holds(text);
        test_solver_destroy(&t);
    }
}

static void test_minutes(void **state)
{
    (void)state;
    /* over at each step boundary; and not once in a run of a few milliseconds */
    run("max_iter: 3 snapshot_minutes: 1e-12 snapshot_after_train: false ");
    for (int i = 1; i <= 3; i++) assert_true(has_set(i));
    clear();
    run("max_iter: 3 snapshot_minutes: 1000 snapshot_after_train: false ");
    for (int i = 0; i <= 3; i++) assert_false(has_set(i));
}

static void test_messages(void **state)
{
    static const char *const cases[][2] = {
        { "patience: 3 ", "patience is 3, but best { metric } does not say what is to get better" },
        { "patience: -1 ", "patience is -1, needs at least 0" },
        { "best { } ", "best.metric is not set; give an output of the test net" },
        { "best { metric: 'loss' keep: -1 } ", "best.keep is -1, needs 0 to 64" },
        { "best { metric: 'loss' keep: 65 } ", "best.keep is 65, needs 0 to 64" },
        { "best { metric: 'loss' test_net: 1 } ",
          "best.test_net is 1, but the solver has 1 test nets" },
        { "best { metric: 'los' } ", "best.metric is \"los\", which test net #0 does not have; its "
                                     "outputs are gap, cost, off, many, loss" },
        { "best { metric: 'many' } ",
          "best.metric is \"many\", which has 18 numbers; expected an output of one" },
        { "best { metric: 'gap' } ", "an output of a layer of type Reduction, which does not tell "
                                     "whether more is better: set best.direction" },
        { "snapshot_minutes: -1 ", "snapshot_minutes is -1, needs at least 0" },
        { "max_epoch: -1 ", "max_epoch is -1, needs at least 0" },
        { "max_epoch: 2 ", "max_epoch is 2, but no layer of the net reads a data set" },
    };
    char text[4096];
    test_solver t;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(text, sizeof(text), SOLVER "max_iter: 3 %s " NET, test_solver_dir(), cases[i][0]);
        assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_ERR_CONFIG);
        test_solver_destroy(&t);
        test_log_holds(cases[i][1]);
    }
    assert_int_equal(test_solver_create("base_lr: 1 lr_policy: 'fixed' max_iter: 1 test_iter: 1 "
                                        "test_interval: 1 best { metric: 'loss' } " NET,
                                        NULL, NULL, NULL, &t),
                     CT_ERR_CONFIG);
    test_solver_destroy(&t);
    test_log_holds("best keeps snapshots, but snapshot_prefix is not set; best.keep: 0 keeps none");
    assert_int_equal(test_solver_create("base_lr: 1 lr_policy: 'fixed' max_iter: 1 "
                                        "snapshot_minutes: 3 " NET,
                                        NULL, NULL, NULL, &t),
                     CT_ERR_CONFIG);
    test_solver_destroy(&t);
    test_log_holds("snapshot_minutes is 3, but snapshot_prefix is not set");
}

#define TEST(_f) cmocka_unit_test_setup_teardown(_f, test_solver_setup, test_solver_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_keeps_the_best), TEST(test_best_is_told),
        TEST(test_patience),       TEST(test_goes_on_as_if_nothing_had_been),
        TEST(test_another_metric), TEST(test_losses_fall),
        TEST(test_forged_sets),    TEST(test_minutes),
        TEST(test_messages),
    };

    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
