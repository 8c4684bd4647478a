/* Gradients that travel on during the next forward: the numbers of steps one after the other, on
 * pretended ranks whose buckets land as late as they may and in any order. */
#include "tests/test.h"
#include "tests/solver_harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/report/report.h"
#include "framework/solver/solver_private.h"

#define IP(name_, bottom_, top_, n_, more)                                                         \
    "layer { name: '" name_ "' type: 'InnerProduct' bottom: '" bottom_ "' top: '" top_ "' " more   \
    " inner_product_param { num_output: " n_ " weight_filler { type: 'xavier' } bias_filler { "    \
    "type: 'constant' value: 0.1 } } } "
#define DATA                                                                                       \
    "layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 4 dim: 6 } "  \
    "data_filler { type: 'gaussian' } } } "
/* A parameter that is read before the data is there, weights that two layers share, a frozen layer,
 * statistics, dropout: all that a wait must get right. */
#define NET                                                                                        \
    "net_param { name: 'late' "                                                                    \
    "layer { name: 'one' type: 'DummyData' top: 'one' dummy_data_param { shape { dim: 4 dim: 2 } " \
    "data_filler { type: 'constant' value: 1 } } } " IP("free", "one", "p", "6", "") DATA IP(      \
        "teacher", "x", "y", "6", "param { lr_mult: 0 } param { lr_mult: 0 }")                     \
        IP("a", "x", "a", "6",                                                                     \
           "param { name: 'shared' } param { lr_mult: 2 decay_mult: 0 }") "layer { name: 'bn' "    \
                                                                          "type: "                 \
                                                                          "'BatchNorm' bottom: "   \
                                                                          "'a' "                   \
                                                                          "top: 'a' } "            \
                                                                          "layer { name: 'scale' " \
                                                                          "type: 'Scale' bottom: " \
                                                                          "'a' top: 'a' "          \
                                                                          "scale_param "           \
                                                                          "{ bias_term: "          \
                                                                          "true } } "              \
                                                                          "layer { name: 'drop' "  \
                                                                          "type: 'Dropout' "       \
                                                                          "bottom: "               \
                                                                          "'a' top: 'a' } " IP(    \
                                                                              "b", "a", "b", "6",  \
                                                                              "param { name: "     \
                                                                              "'shared' }")        \
                                                                              IP("c", "b", "c",    \
                                                                                 "6",              \
                                                                                 "") "layer { "    \
                                                                                     "name: "      \
                                                                                     "'sum' "      \
                                                                                     "type: "      \
                                                                                     "'Eltwise' "  \
                                                                                     "bottom: "    \
                                                                                     "'c' "        \
                                                                                     "bottom: "    \
                                                                                     "'p' "        \
                                                                                     "top: 'z' } " \
                                                                                     "layer { "    \
                                                                                     "name: "      \
                                                                                     "'loss' "     \
                                                                                     "type: "      \
                                                                                     "'EuclideanL" \
                                                                                     "oss"         \
                                                                                     "' bottom: "  \
                                                                                     "'z' "        \
                                                                                     "bottom: "    \
                                                                                     "'y' "        \
                                                                                     "top: "       \
                                                                                     "'loss' } "   \
                                                                                     "} "

#define SOLVER(more)                                                                               \
    "base_lr: 0.02 lr_policy: 'step' gamma: 0.7 stepsize: 2 momentum: 0.9 weight_decay: 0.01 "     \
    "deterministic: true random_seed: 7 display: 1 test_iter: 2 test_interval: 4 "                 \
    "checksum_interval: 5 snapshot: 3 snapshot_keep: 0 snapshot_prefix: '%s/s' " more NET
#define OFF   "comm { forward_overlap: false } "
#define PLAIN "comm { overlap: false } "
#define ON    "comm { overlap: true } "
enum { STEPS = 9 };

/* What a rank leaves behind. */
typedef struct outcome {
    const char *text, *restore;
    uint64_t checksum;
    int64_t iteration, steps;
    int n_wait;
    bool overlaps;
    volatile int stop;
} outcome;

static ct_status run_solver(thread_rank *r)
{
    outcome *o = r->out;
    char metrics[128];
    ct_report_options options = { .rank = r->rank, .metrics = metrics };
    ct_report *report = NULL;
    test_solver t;
    ct_status status;

    snprintf(metrics, sizeof(metrics), "%s/metrics", test_solver_dir());
    status = ct_report_create(&options, &report);
    if (status != CT_OK) return status;
    status = test_solver_create(o->text, r, &o->stop, report, &t);
    if ((status == CT_OK) && (o->restore != NULL)) status = ct_solver_restore(t.solver, o->restore);
    if (status == CT_OK) status = ct_solver_run(t.solver);
    if ((status == CT_OK) || (status == CT_STOPPED)) {
        o->checksum = ct_net_checksum(ct_solver_net(t.solver), true);
        o->iteration = ct_solver_iteration(t.solver);
        o->steps = r->step;
        o->n_wait = r->n_wait;
        o->overlaps = t.solver->step.forward_overlap;
    }
    test_solver_destroy(&t);
    ct_report_destroy(report);
    return status;
}

static ct_status run_ranks(thread_ranks *job, const char *text, const char *restore, outcome *o)
{
    thread_rank rank[THREAD_RANKS_MAX];

    job->run = run_solver;
    for (int i = 0; i < job->n; i++) {
        o[i].text = text;
        o[i].restore = restore;
        rank[i] = (thread_rank){ .out = &o[i] };
    }
    return thread_ranks_run(job, rank);
}

static char *slurp(const char *name, size_t *size_p)
{
    char path[160], *text;
    FILE *f;
    long size;

    snprintf(path, sizeof(path), "%s/%s", test_solver_dir(), name);
    f = fopen(path, "rb");
    if (f == NULL) fail_msg("no file %s", path);
    fseek(f, 0, SEEK_END);
    size = ftell(f);
    rewind(f);
    text = calloc((size_t)size + 1, 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, f), (size_t)size);
    fclose(f);
    *size_p = (size_t)size;
    return text;
}

/* The losses and rates that the metrics tell, one line each. */
static void read_losses(char *out, size_t size)
{
    size_t n, used = 0;
    char *text = slurp("metrics", &n), *rest = text, *line;

    while ((line = strsep(&rest, "\n")) != NULL) {
        const char *loss = strstr(line, "\"loss\":"), *end;

        if (loss == NULL) continue;
        end = strpbrk(loss, "}");
        if ((end == NULL) || (strpbrk(loss + 8, ",") < end)) end = strpbrk(loss + 8, ",");
        used += (size_t)snprintf(out + used, size - used, "%.*s\n",
                                 (int)((end != NULL) ? end - loss : (long)strlen(loss)), loss);
        assert_true(used < size);
    }
    free(text);
}

typedef struct files {
    char losses[4096];
    char *weights, *state;
    size_t n_weights, n_state;
} files;

static void take_files(files *f)
{
    read_losses(f->losses, sizeof(f->losses));
    f->weights = slurp("s_iter_6.caffemodel.h5", &f->n_weights);
    f->state = slurp("s_iter_6.solverstate.h5", &f->n_state);
}

static void free_files(files *f)
{
    free(f->weights);
    free(f->state);
}

/* The learned parameters of NET: two each of free, a, scale and c, and b[1]; b[0] is a[0]. */
enum { N_LEARNED = 9 };

static void compare(int n, const char *first, const char *second, int landing, bool residuals)
{
    thread_ranks job = { .n = n, .landing = 1, .residuals = residuals };
    outcome a[4] = { 0 }, b[4] = { 0 };
    files fa, fb;

    assert_int_equal(run_ranks(&job, first, NULL, a), CT_OK);
    take_files(&fa);
    job = (thread_ranks){ .n = n, .landing = landing, .residuals = residuals };
    assert_int_equal(run_ranks(&job, second, NULL, b), CT_OK);
    take_files(&fb);
    assert_string_equal(fa.losses, fb.losses);
    assert_true(strlen(fa.losses) > STEPS * strlen("loss: 0"));
    assert_int_equal(fa.n_weights, fb.n_weights);
    assert_memory_equal(fa.weights, fb.weights, fa.n_weights);
    assert_int_equal(fa.n_state, fb.n_state);
    assert_memory_equal(fa.state, fb.state, fa.n_state);
    for (int r = 0; r < n; r++) {
        assert_true(a[r].checksum == b[r].checksum);
        assert_int_equal(b[r].iteration, STEPS);
        /* off: one wait, the last, in each step */
        assert_int_equal(a[r].n_wait, STEPS);
        if (n == 1) continue;
        assert_int_equal(b[r].overlaps, true);
        if (strstr(second, "clip_gradients") != NULL) { /* the first layer waits for all */
            assert_int_equal(b[r].n_wait, STEPS);
            continue;
        }
        assert_true(b[r].n_wait > STEPS);
        assert_true(b[r].n_wait <= STEPS * N_LEARNED);
    }
    free_files(&fa);
    free_files(&fb);
}

static void test_same_numbers(void **state)
{
    char on[4096], off[4096];

    (void)state;
    for (int n = 1; n <= 4; n++) {
        for (int landing = 1; landing <= 3; landing++) {
            snprintf(on, sizeof(on), SOLVER("max_iter: 9 " ON), test_solver_dir());
            snprintf(off, sizeof(off), SOLVER("max_iter: 9 " OFF), test_solver_dir());
            compare(n, off, on, landing, false);
        }
        snprintf(on, sizeof(on), SOLVER("max_iter: 9 iter_size: 3 "), test_solver_dir());
        snprintf(off, sizeof(off), SOLVER("max_iter: 9 iter_size: 3 " PLAIN), test_solver_dir());
        compare(n, off, on, 4, true);
    }
}

/* A snapshot in the middle of the stream, and from there on: as if nothing had happened. */
static void resume(const char *more)
{
    thread_ranks job = { .n = 3, .landing = 2, .residuals = true };
    outcome straight[3] = { 0 }, run[3] = { 0 };
    char whole[4096], half[4096], from[96];

    snprintf(whole, sizeof(whole), "%s max_iter: 9 " SOLVER(""), more, test_solver_dir());
    snprintf(half, sizeof(half), "%s max_iter: 7 " SOLVER(""), more, test_solver_dir());
    assert_int_equal(run_ranks(&job, whole, NULL, straight), CT_OK);
    job = (thread_ranks){ .n = 3, .landing = 2, .residuals = true };
    assert_int_equal(run_ranks(&job, half, NULL, run), CT_OK);
    snprintf(from, sizeof(from), "%s/s_iter_6.solverstate.h5", test_solver_dir());
    job = (thread_ranks){ .n = 3, .landing = 2, .residuals = true };
    memset(run, 0, sizeof(run));
    assert_int_equal(run_ranks(&job, whole, from, run), CT_OK);
    for (int r = 0; r < 3; r++) {
        assert_true(run[r].checksum == straight[r].checksum);
        assert_int_equal(run[r].iteration, STEPS);
        assert_int_equal(run[r].steps, 3);
    }
}

static void test_resume(void **state)
{
    (void)state;
    resume("");
    resume("clip_gradients: 0.5");
}

/* A signal on one rank stops all after the step, and the snapshot is that of the step. */
static void test_stop(void **state)
{
    thread_ranks job = { .n = 3, .landing = 1 };
    outcome o[3] = { 0 }, whole[3] = { 0 };
    char text[4096], one[4096], *stopped, *ended;
    size_t n_stopped, n_ended;

    (void)state;
    snprintf(text, sizeof(text), SOLVER("max_iter: 9 test_initialization: false "),
             test_solver_dir());
    o[1].stop = CT_ACTION_STOP;
    assert_int_equal(run_ranks(&job, text, NULL, o), CT_STOPPED);
    for (int r = 0; r < 3; r++) assert_int_equal(o[r].iteration, 1);
    stopped = slurp("s_iter_1.caffemodel.h5", &n_stopped);
    snprintf(one, sizeof(one), SOLVER("max_iter: 1 test_initialization: false "),
             test_solver_dir());
    job = (thread_ranks){ .n = 3, .landing = 1 };
    assert_int_equal(run_ranks(&job, one, NULL, whole), CT_OK);
    ended = slurp("s_iter_1.caffemodel.h5", &n_ended);
    assert_int_equal(n_stopped, n_ended);
    assert_memory_equal(stopped, ended, n_ended);
    free(stopped);
    free(ended);
}

/* The norm needs all gradients: the first layer of the next forward that reads a weight waits for
 * them, in whatever order they land. */
static void test_clip(void **state)
{
    char on[4096], off[4096];

    (void)state;
    for (int n = 1; n <= 4; n++) {
        snprintf(on, sizeof(on), SOLVER("max_iter: 9 clip_gradients: 0.5 " ON), test_solver_dir());
        snprintf(off, sizeof(off), SOLVER("max_iter: 9 clip_gradients: 0.5 " OFF),
                 test_solver_dir());
        compare(n, off, on, 2 + n % 2, false);
    }
    snprintf(on, sizeof(on), SOLVER("max_iter: 9 clip_gradients: 0.5 iter_size: 3 "),
             test_solver_dir());
    snprintf(off, sizeof(off), SOLVER("max_iter: 9 clip_gradients: 0.5 iter_size: 3 " PLAIN),
             test_solver_dir());
    compare(3, off, on, 3, true);
    assert_non_null(strstr(test_log_all(), "Gradient clipping"));
}

/* A bucket that fails to land ends the run where it is waited for. */
static void test_lost(void **state)
{
    char text[4096];

    (void)state;
    for (int k = 1; k <= N_LEARNED; k++) {
        thread_ranks job = { .n = 2, .landing = 1, .lost = k };
        outcome o[2] = { 0 };

        snprintf(text, sizeof(text), SOLVER("max_iter: 9 "), test_solver_dir());
        assert_int_equal(run_ranks(&job, text, NULL, o), CT_ERR_COMM);
    }
    assert_non_null(strstr(test_log_all(), "the bucket of shared is lost"));
    assert_non_null(strstr(test_log_all(), "the bucket of free[0] is lost"));
}

/* A loss that is not finite, with gradients on their way: the status of all ranks, no snapshot of
 * it, nothing left under way. */
#define BROKEN                                                                                     \
    "net_param { " DATA "layer { name: 'p' type: 'Probe' bottom: 'x' top: 'loss' "                 \
    "inner_product_param { num_output: 2 } } } "

static void diverge(const char *more)
{
    thread_ranks job = { .n = 3, .landing = 1 };
    outcome o[3] = { 0 };
    char text[4096], file[96];

    snprintf(text, sizeof(text),
             "%s base_lr: 0.05 lr_policy: 'fixed' random_seed: 7 max_iter: 9 snapshot: 1 "
             "snapshot_prefix: '%s/%s' " BROKEN,
             more, test_solver_dir(), (more[0] == '\0') ? "n" : "c");
    assert_int_equal(run_ranks(&job, text, NULL, o), CT_ERR_DIVERGED);
    assert_non_null(strstr(test_log_all(), "the loss of iteration 2 is not finite"));
    snprintf(file, sizeof(file), "%s/%s_iter_2.solverstate.h5", test_solver_dir(),
             (more[0] == '\0') ? "n" : "c");
    assert_int_equal(access(file, F_OK), 0);
    snprintf(file, sizeof(file), "%s/%s_iter_3.solverstate.h5", test_solver_dir(),
             (more[0] == '\0') ? "n" : "c");
    assert_int_not_equal(access(file, F_OK), 0);
}

static void test_nan(void **state)
{
    (void)state;
    diverge("");
    diverge("clip_gradients: 0.5");
}

#define TEST(_f) cmocka_unit_test_setup_teardown(_f, test_solver_setup, test_solver_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_same_numbers), TEST(test_resume), TEST(test_stop),
        TEST(test_clip),         TEST(test_lost),   TEST(test_nan),
    };

    alarm(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
