/* The training loop, on one rank and on several pretended ones. */
#include "tests/test.h"
#include "tests/solver_harness.h"

#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/report/report.h"
#include "framework/solver/solver_private.h"

/* A student of a fixed teacher: y = 1 x + 0, from random inputs; dropout on request. */
#define DATA(n)                                                                                    \
    "layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: " n           \
    " dim: 4 } data_filler { type: 'gaussian' } } } "
#define TEACHER                                                                                    \
    "layer { name: 'teacher' type: 'InnerProduct' bottom: 'x' top: 'y' param { lr_mult: 0 } "      \
    "param { lr_mult: 0 } inner_product_param { num_output: 3 "                                    \
    "weight_filler { type: 'constant' value: 1 } } } "
#define STUDENT(more)                                                                              \
    more "layer { name: 'student' type: 'InnerProduct' bottom: 'x' top: 'z' inner_product_param "  \
         "{ num_output: 3 weight_filler { type: 'xavier' } } } "                                   \
         "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'z' bottom: 'y' top: 'loss' } "
#define NET(n)  "net_param { name: 'school' " DATA(n) TEACHER STUDENT("") "} "
#define DROPOUT "layer { name: 'drop' type: 'Dropout' bottom: 'x' top: 'x' } "
#define BASE    "base_lr: 0.1 lr_policy: 'fixed' momentum: 0.5 random_seed: 7 "

static void in_log(const char *pattern)
{
    regex_t re;
    int found;

    assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NEWLINE | REG_NOSUB), 0);
    found = regexec(&re, test_log_all(), 0, NULL, 0);
    regfree(&re);
    if (found != 0) {
        char log[8192];

        snprintf(log, sizeof(log), "%s", test_log_all());
        test_log_all_stop();
        fail_msg("no line matches %s in:\n%s", pattern, log);
    }
}

/* A copy of the learned weights and what else may matter, to compare runs bit by bit. */
typedef struct snap {
    float weight[64];
    int64_t count, iteration;
    uint64_t checksum;
} snap;

static snap take(ct_solver *s)
{
    const ct_net *net = ct_solver_net(s);
    snap v = { .count = net->weight_count, .iteration = ct_solver_iteration(s) };

    assert_true(net->weight_count <= 64);
    memcpy(v.weight, net->weight_arena, (size_t)net->weight_count * sizeof(float));
    v.checksum = ct_net_checksum(net, true);
    return v;
}

static void assert_same(const snap *a, const snap *b)
{
    assert_int_equal(a->iteration, b->iteration);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->weight, b->weight, (size_t)a->count * sizeof(float));
    assert_true(a->checksum == b->checksum);
}

static void test_learns(void **state)
{
    ct_report_options options = { 0 };
    ct_report *report = NULL;
    test_solver t;
    double loss = -1;
    const ct_net *net;
    int student;

    (void)state;
    assert_int_equal(ct_report_create(&options, &report), CT_OK);
    assert_int_equal(test_solver_create(BASE
                                        "max_iter: 200 display: 100 test_iter: 4 "
                                        "test_interval: 200 snapshot_after_train: false " NET("16"),
                                        NULL, NULL, report, &t),
                     CT_OK);
    assert_int_equal(ct_solver_n_test(t.solver), 1);
    assert_int_equal(ct_solver_test(t.solver, 0, &loss, 1), CT_OK);
    assert_true(loss > 1); /* of three outputs of variance 4 each, halved */
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    assert_int_equal(ct_solver_test(t.solver, 0, &loss, 1), CT_OK);
    assert_true(loss < 1e-6);
    net = ct_solver_net(t.solver);
    student = ct_net_find_param(net, "student[0]");
    for (int i = 0; i < 12; i++)
        assert_true(fabs((double)ct_blob_data(&net->param[student].blob)[i] - 1) < 1e-3);
    test_solver_destroy(&t);
    ct_report_destroy(report);

    in_log("solver\\.c:[0-9]+\\] Solving school$");
    in_log("\\] Learning Rate Policy: fixed$");
    in_log("\\] Iteration 0, Testing net \\(#0\\)$");
    in_log("\\]     Test net output #0: loss = [0-9.e+-]+ \\(\\* 1 = [0-9.e+-]+ loss\\)$");
    in_log("\\] Iteration 100 \\([0-9.e+-]+ iter/s, [0-9.e+-]+s/100 iters\\), loss = [0-9.e+-]+$");
    in_log("\\]     Train net output #0: loss = [0-9.e+-]+ \\(\\* 1 = [0-9.e+-]+ loss\\)$");
    in_log("\\] Iteration 100, lr = 0\\.1$");
    in_log("\\] Iteration 200, loss = [0-9.e+-]+$");
    in_log("\\] Optimization Done\\.$");
}

#define RESUME(more)                                                                               \
    "base_lr: 0.1 lr_policy: 'step' gamma: 0.5 stepsize: 8 momentum: 0.9 weight_decay: 0.01 "      \
    "deterministic: true random_seed: 7 average_loss: 4 display: 5 snapshot_prefix: '%s/s' " more  \
    "net_param { " DATA("6") TEACHER                                                               \
    STUDENT(DROPOUT) "} "

static void test_resume_is_bitwise(void **state)
{
    char text[2048], whole[2048], file[128];
    test_solver t;
    snap straight, resumed;

    (void)state;
    snprintf(whole, sizeof(whole), RESUME("max_iter: 20 snapshot_after_train: false "),
             test_solver_dir());
    assert_int_equal(test_solver_create(whole, NULL, NULL, NULL, &t), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    straight = take(t.solver);
    test_solver_destroy(&t);

    snprintf(text, sizeof(text), RESUME("max_iter: 10 "), test_solver_dir());
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    in_log("\\] Snapshotting to HDF5 file .*/s_iter_10\\.caffemodel\\.h5$");
    in_log("\\] Snapshotting solver state to HDF5 file .*/s_iter_10\\.solverstate\\.h5$");
    test_solver_destroy(&t);

    for (int i = 0; i < 2; i++) { /* by name and by itself */
        snprintf(file, sizeof(file), "%s/s_iter_10.solverstate.h5", test_solver_dir());
        assert_int_equal(test_solver_create(whole, NULL, NULL, NULL, &t), CT_OK);
        assert_int_equal(ct_solver_restore(t.solver, (i == 0) ? file : "auto"), CT_OK);
        assert_int_equal(ct_solver_iteration(t.solver), 10);
        assert_int_equal(ct_solver_run(t.solver), CT_OK);
        resumed = take(t.solver);
        assert_same(&straight, &resumed);
        test_solver_destroy(&t);
    }
}

static void test_auto_starts_where_nothing_is(void **state)
{
    char text[2048];
    test_solver t;

    (void)state;
    snprintf(text, sizeof(text), RESUME("max_iter: 3 "), test_solver_dir());
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
    assert_int_equal(ct_solver_restore(t.solver, "auto"), CT_OK);
    assert_int_equal(ct_solver_iteration(t.solver), 0);
    in_log("no snapshot at .*/s yet");
    test_solver_destroy(&t);
    /* a drawn seed comes back from the snapshot */
    snprintf(text, sizeof(text), BASE "max_iter: 2 snapshot_prefix: '%s/d' " NET("4"),
             test_solver_dir());
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    {
        uint64_t seed = ct_solver_seed(t.solver);

        test_solver_destroy(&t);
        assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
        assert_int_equal(ct_solver_restore(t.solver, "auto"), CT_OK);
        assert_true(ct_solver_seed(t.solver) == seed);
    }
    test_solver_destroy(&t);
}

static bool exists(const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", test_solver_dir(), name);
    return access(path, F_OK) == 0;
}

static void test_signals(void **state)
{
    volatile int request = CT_ACTION_STOP;
    char text[1024];
    test_solver t;

    (void)state;
    snprintf(text, sizeof(text), BASE "max_iter: 5 snapshot_prefix: '%s/s' " NET("4"),
             test_solver_dir());
    assert_int_equal(test_solver_create(text, NULL, &request, NULL, &t), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_STOPPED);
    assert_int_equal(ct_solver_iteration(t.solver), 1);
    assert_true(exists("s_iter_1.solverstate.h5"));
    in_log("\\] Optimization stopped early\\.$");
    test_solver_destroy(&t);

    request = CT_ACTION_SNAPSHOT;
    assert_int_equal(test_solver_create(text, NULL, &request, NULL, &t), CT_OK);
    unlink("s_iter_1.solverstate.h5");
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    assert_int_equal(request, CT_ACTION_NONE);
    assert_true(exists("s_iter_1.solverstate.h5"));
    assert_false(exists("s_iter_2.solverstate.h5"));
    assert_true(exists("s_iter_5.solverstate.h5"));
    test_solver_destroy(&t);

    /* in a test pass, before the first step */
    request = CT_ACTION_STOP;
    snprintf(text, sizeof(text),
             BASE "max_iter: 5 test_iter: 3 test_interval: 2 snapshot_prefix: '%s/t' " NET("4"),
             test_solver_dir());
    assert_int_equal(test_solver_create(text, NULL, &request, NULL, &t), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_STOPPED);
    assert_true(exists("t_iter_0.solverstate.h5"));
    in_log("\\] Test interrupted\\.$");
    test_solver_destroy(&t);
}

static void test_time_limit(void **state)
{
    char text[1024];
    test_solver t;

    (void)state;
    /* 3.6e-9 s: over by the first step boundary */
    snprintf(text, sizeof(text),
             BASE "max_iter: 5 max_hours: 1e-12 snapshot_prefix: '%s/s' " NET("4"),
             test_solver_dir());
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_STOPPED);
    assert_true(exists("s_iter_1.solverstate.h5"));
    test_solver_destroy(&t);
}

#define NAN_NET                                                                                    \
    "net_param { " DATA("4") "layer { name: 'p' type: 'Probe' bottom: 'x' top: 'loss' "            \
                             "inner_product_param { num_output: 2 } } } snapshot_after_train: "    \
                             "false max_iter: 5 "

static void test_nan(void **state)
{
    test_solver t;

    (void)state;
    assert_int_equal(test_solver_create(BASE NAN_NET, NULL, NULL, NULL, &t), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_ERR_DIVERGED);
    assert_int_equal(ct_solver_iteration(t.solver), 2);
    in_log("the loss of iteration 2 is not finite");
    test_solver_destroy(&t);
    assert_int_equal(test_solver_create(BASE "stop_on_nan: false " NAN_NET, NULL, NULL, NULL, &t),
                     CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    test_solver_destroy(&t);
}

/* Probe's loss is micro-step + 1, so what is shown can be worked out by hand. */
static void test_average_loss(void **state)
{
    ct_report_options options = { 0 };
    ct_report *report = NULL;
    test_solver t;

    (void)state;
    assert_int_equal(ct_report_create(&options, &report), CT_OK);
    assert_int_equal(
        test_solver_create(BASE "average_loss: 3 display: 4 iter_size: 2 max_iter: 8 "
                                "snapshot_after_train: false net_param { " DATA(
                                    "4") "layer { name: 'p' type: 'Probe' bottom: 'x' top: 'loss' "
                                         "loss_weight: 2 } }",
                           NULL, NULL, report, &t),
        CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    test_solver_destroy(&t);
    ct_report_destroy(report);
    /* iteration i: 2 ((2i + 1) + (2i + 2)) / 2 = 4i + 3; output: that of the last micro-step */
    in_log("\\] Iteration 0 .*, loss = 3$");
    in_log("\\] Iteration 4 .*, loss = 15$"); /* mean of 11, 15, 19 */
    in_log("\\]     Train net output #0: loss = 10 \\(\\* 2 = 20 loss\\)$");
    in_log("\\] Iteration 8, loss = 30\\.6667$"); /* of 27, 31 and one micro-step's 34 */
}

static void test_stages_and_test_nets(void **state)
{
    static const char net[] =
        BASE "max_iter: 1 snapshot_after_train: false test_interval: 1 "
             "test_iter: 1 test_iter: 1 test_iter: 1 "
             "test_net_param { name: 'own' " DATA("2") TEACHER STUDENT(
                 "") "} "
                     "test_state { } test_state { stage: 'few' } test_state { level: 3 } "
                     "net_param { " DATA("4")
                         TEACHER STUDENT("") "layer { name: 'extra' type: 'Silence' bottom: 'x' "
                                             "include { stage: 'few' } } "
                                             "layer { name: 'deep' type: 'Silence' bottom: 'x' "
                                             "include { min_level: 2 } } } ";
    test_solver t;

    (void)state;
    assert_int_equal(test_solver_create(net, NULL, NULL, NULL, &t), CT_OK);
    assert_int_equal(ct_solver_n_test(t.solver), 3);
    assert_string_equal(ct_solver_test_net(t.solver, 0)->name, "own");
    assert_int_equal(ct_solver_test_net(t.solver, 0)->batch_local, 2);
    assert_true(ct_net_find_layer(ct_solver_test_net(t.solver, 1), "extra") >= 0);
    assert_true(ct_net_find_layer(ct_solver_test_net(t.solver, 1), "deep") < 0);
    assert_true(ct_net_find_layer(ct_solver_test_net(t.solver, 2), "extra") < 0);
    assert_true(ct_net_find_layer(ct_solver_test_net(t.solver, 2), "deep") >= 0);
    assert_true(ct_net_find_layer(ct_solver_net(t.solver), "extra") < 0);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    test_solver_destroy(&t);
}

static void refused(const char *text, const char *word)
{
    test_solver t;
    ct_status status;

    test_log_all_start();
    status = test_solver_create(text, NULL, NULL, NULL, &t);
    test_solver_destroy(&t);
    in_log(word);
    assert_int_equal(status, CT_ERR_CONFIG);
}

static void test_config_errors(void **state)
{
    (void)state;
    refused(BASE NET("4"), "max_iter is not set");
    refused(BASE "max_iter: 1", "none of net, net_param, train_net, train_net_param");
    refused(BASE "max_iter: 1 train_net: 'x' " NET("4"), "more than one of net");
    refused(BASE "max_iter: 1 iter_size: 0 " NET("4"), "iter_size is 0");
    refused(BASE "max_iter: 1 average_loss: 0 " NET("4"), "average_loss is 0");
    refused(BASE "max_iter: 1 test_iter: 3 " NET("4"), "test_interval is not");
    refused(BASE "max_iter: 1 test_interval: 3 " NET("4"), "test_iter is not set");
    refused(BASE "max_iter: 1 test_interval: 3 test_iter: 0 " NET("4"), "test_iter is 0");
    refused(BASE "max_iter: 1 test_interval: 3 test_iter: 1 test_state {} test_state {} " NET("4"),
            "test_state is given 2 times for 1 test nets");
    refused(BASE "max_iter: 1 snapshot: 3 " NET("4"), "snapshot_prefix is not set");
    refused(BASE "max_iter: 1 type: 'AdaGrad' " NET("4"),
            "type \"AdaGrad\" has none: leave it out");
    refused(BASE "max_iter: 1 regularization_type: 'L3' " NET("4"), "\"L3\" is unknown");
    refused("lr_policy: 'fixed' max_iter: 1 " NET("4"), "base_lr");
}

/* As the build and the machine have it: on the device, or with the reason why not. */
static void test_gpu_mode(void **state)
{
    const ct_device *dev = NULL;
    test_solver t;
    ct_status want;

    (void)state;
    want = ct_device_open("cuda", 0, &dev);
    test_log_all_start();
    assert_int_equal(
        test_solver_create(BASE "max_iter: 1 solver_mode: GPU " NET("4"), NULL, NULL, NULL, &t),
        want);
    if (want == CT_OK)
        assert_ptr_equal(ct_solver_net(t.solver)->options.dev, dev);
    else
        in_log((want == CT_ERR_CONFIG) ? "build with make CUDA=1" : "no GPU works here");
    test_solver_destroy(&t);
}

static void test_prefix_must_be_writable(void **state)
{
    char text[1024], path[128];
    test_solver t;
    FILE *f;

    (void)state;
    /* a directory that is not there yet is made */
    snprintf(text, sizeof(text), BASE "max_iter: 1 snapshot_prefix: '%s/new/s' " NET("4"),
             test_solver_dir());
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
    test_solver_destroy(&t);
    snprintf(path, sizeof(path), "%s/new", test_solver_dir());
    assert_int_equal(rmdir(path), 0); /* and the probe is gone */
    f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_ERR_IO);
    in_log("cannot (write snapshots|make the directory)");
    test_solver_destroy(&t);
}

/* ---- several ranks ---- */

typedef struct rank_run {
    const char *text, *restore;
    snap result;
    volatile int stop;
    double test;
    float tamper;       /* added to a weight of this rank */
    float tamper_state; /* … to a number of its last state */
} rank_run;

static ct_status run_solver(thread_rank *r)
{
    rank_run *c = r->out;
    test_solver t;
    ct_status status = test_solver_create(c->text, r, &c->stop, NULL, &t);

    if ((status == CT_OK) && (c->restore != NULL)) status = ct_solver_restore(t.solver, c->restore);
    if (status == CT_OK) ct_solver_net(t.solver)->weight_arena[0] += c->tamper;
    if ((status == CT_OK) && (c->tamper_state != 0.0f)) {
        ct_train_step *step = &t.solver->step;

        status = ct_storage_put(&step->history[step->n_history - 1], 1, 1, &c->tamper_state);
    }
    if (status == CT_OK) status = ct_solver_run(t.solver);
    if (((status == CT_OK) || (status == CT_STOPPED)) && (ct_solver_n_test(t.solver) > 0) &&
        (c->stop == 0))
        status = ct_solver_test(t.solver, 0, &c->test, 1);
    if ((status == CT_OK) || (status == CT_STOPPED)) c->result = take(t.solver);
    test_solver_destroy(&t);
    return status;
}

static ct_status run_ranks(int n, bool residuals, const char *text, const char *restore,
                           rank_run *run)
{
    thread_ranks job = { .n = n, .residuals = residuals, .run = run_solver };
    thread_rank rank[THREAD_RANKS_MAX];

    for (int i = 0; i < n; i++) {
        run[i].text = text;
        run[i].restore = restore;
        rank[i] = (thread_rank){ .out = &run[i] };
    }
    return thread_ranks_run(&job, rank);
}

#define AGREE                                                                                      \
    BASE "max_iter: 30 checksum_interval: 1 test_iter: 2 test_interval: 10 iter_size: 2 "          \
         "snapshot_after_train: false "

/* No batch statistics: the same numbers on 1, 2 and 3 ranks at the same global batch of 6, but for
 * the rounding of sums of samples' gradients. Values are below 4 and each of the 30 steps makes
 * some 10 roundings; the map contracts, so errors do not grow. */
static void test_ranks_agree(void **state)
{
    static const char *const text[] = { AGREE NET("6"), AGREE NET("3"), AGREE NET("2") };
    rank_run one[1] = { 0 }, many[3];
    float tolerance = 30 * 10 * 4 * 0x1p-24f;

    (void)state;
    assert_int_equal(run_ranks(1, false, text[0], NULL, one), CT_OK);
    for (int n = 2; n <= 3; n++) {
        memset(many, 0, sizeof(many));
        assert_int_equal(run_ranks(n, false, text[n - 1], NULL, many), CT_OK);
        for (int r = 0; r < n; r++) {
            assert_same(&many[0].result, &many[r].result);
            assert_true(many[r].test == many[0].test);
        }
        for (int i = 0; i < one[0].result.count; i++)
            assert_true(fabsf(many[0].result.weight[i] - one[0].result.weight[i]) <= tolerance);
        assert_true(fabs(many[0].test - one[0].test) <= (double)tolerance);
    }
}

static void test_resume_on_ranks(void **state)
{
    char whole[2048], half[2048];
    rank_run straight[3] = { 0 }, run[3] = { 0 };

    (void)state;
    snprintf(whole, sizeof(whole), RESUME("max_iter: 20 snapshot_after_train: false "),
             test_solver_dir());
    snprintf(half, sizeof(half), RESUME("max_iter: 10 "), test_solver_dir());
    assert_int_equal(run_ranks(3, true, whole, NULL, straight), CT_OK);
    assert_int_equal(run_ranks(3, true, half, NULL, run), CT_OK);
    assert_true(exists("s_iter_10.rank2.h5"));
    memset(run, 0, sizeof(run));
    assert_int_equal(run_ranks(3, true, whole, "auto", run), CT_OK);
    for (int r = 0; r < 3; r++) assert_same(&straight[r].result, &run[r].result);
    /* on two ranks: another global batch, so only that it goes on */
    memset(run, 0, sizeof(run));
    assert_int_equal(run_ranks(2, true, whole, "auto", run), CT_OK);
    assert_int_equal(run[1].result.iteration, 20);
    in_log("residuals of 3 ranks were summed and dealt out to 2");
    in_log("made with a global batch of 18, this run has 12");
    assert_null(strstr(test_log_all(), "travel otherwise")); /* each still has its place */
}

/* What was held back goes with the first gradient of a run that holds nothing back: as if the run
 * before had sent all from then on. */
static void test_resume_without_residuals(void **state)
{
    char whole[2048], half[2048];
    rank_run straight[3], run[3];

    (void)state;
    snprintf(whole, sizeof(whole), RESUME("max_iter: 20 snapshot_after_train: false "),
             test_solver_dir());
    snprintf(half, sizeof(half), RESUME("max_iter: 10 "), test_solver_dir());
    for (int n = 1; n <= 3; n++) {
        thread_ranks job = { .n = n, .residuals = true, .all_from = 11, .run = run_solver };
        thread_rank rank[THREAD_RANKS_MAX];

        memset(straight, 0, sizeof(straight));
        memset(run, 0, sizeof(run));
        for (int i = 0; i < n; i++) {
            straight[i].text = whole;
            rank[i] = (thread_rank){ .out = &straight[i] };
        }
        assert_int_equal(thread_ranks_run(&job, rank), CT_OK);
        assert_int_equal(run_ranks(n, true, half, NULL, run), CT_OK);
        memset(run, 0, sizeof(run));
        assert_int_equal(run_ranks(n, false, whole, "auto", run), CT_OK);
        for (int r = 0; r < n; r++) assert_same(&straight[r].result, &run[r].result);
    }
    in_log("it goes with the next gradient");
}

static void test_one_rank_hears_the_signal(void **state)
{
    char text[1024];
    rank_run run[3] = { 0 };

    (void)state;
    run[1].stop = CT_ACTION_STOP;
    snprintf(text, sizeof(text), BASE "max_iter: 5 snapshot_prefix: '%s/s' " NET("4"),
             test_solver_dir());
    assert_int_equal(run_ranks(3, false, text, NULL, run), CT_STOPPED);
    for (int r = 0; r < 3; r++) assert_int_equal(run[r].result.iteration, 1);
    assert_true(exists("s_iter_1.solverstate.h5"));
}

static void test_differing_rank_is_named(void **state)
{
    static const char text[] =
        BASE "max_iter: 5 checksum_interval: 2 snapshot_after_train: false " NET("4");

    (void)state;
    for (int n = 2; n <= 3; n++) {
        rank_run run[3] = { 0 };
        char want[160];

        run[n - 1].tamper = 0.5f;
        assert_int_equal(run_ranks(n, false, text, NULL, run), CT_ERR_DIVERGED);
        snprintf(want, sizeof(want),
                 "after iteration 2 the weights differ: %d ranks have checksum [0-9a-f]{16}, "
                 "another one: %d \\([0-9a-f]{16}\\)",
                 n - 1, n - 1);
        in_log(want);
    }
}

/* The average has not begun, so that nothing but the comparison of states looks at it. */
static void test_differing_state_is_named(void **state)
{
    static const char text[] = BASE "max_iter: 5 checksum_interval: 2 snapshot_after_train: false "
                                    "average { type: EMA decay: 0.5 start_iter: 1000 } " NET("4");
    rank_run run[3] = { 0 };

    (void)state;
    assert_int_equal(run_ranks(3, false, text, NULL, run), CT_OK);
    memset(run, 0, sizeof(run));
    run[1].tamper_state = 0.5f;
    assert_int_equal(run_ranks(3, false, text, NULL, run), CT_ERR_DIVERGED);
    in_log("after iteration 2 the states of the update rule differ: 2 ranks have checksum "
           "[0-9a-f]{16}, another one: 1 \\([0-9a-f]{16}\\)");
}

#define TEST(_f) cmocka_unit_test_setup_teardown(_f, test_solver_setup, test_solver_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_learns),
        TEST(test_resume_is_bitwise),
        TEST(test_auto_starts_where_nothing_is),
        TEST(test_signals),
        TEST(test_time_limit),
        TEST(test_nan),
        TEST(test_average_loss),
        TEST(test_stages_and_test_nets),
        TEST(test_config_errors),
        TEST(test_gpu_mode),
        TEST(test_prefix_must_be_writable),
        TEST(test_ranks_agree),
        TEST(test_resume_on_ranks),
        TEST(test_resume_without_residuals),
        TEST(test_one_rank_hears_the_signal),
        TEST(test_differing_rank_is_named),
        TEST(test_differing_state_is_named),
    };

    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
