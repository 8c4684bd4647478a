/* What a solver holds beside its weights comes back from a set, number by number: the window of
 * average_loss, where the plateau stands, the loss's scale; and so the rate. */
#include "tests/test.h"
#include "tests/solver_harness.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/solver/solver_private.h"

/* Noise to learn from: the least loss is soon behind. */
#define SOLVER                                                                                     \
    "type: 'SGD' base_lr: 0.001 momentum: 0.9 deterministic: true random_seed: 7 max_iter: 100 "   \
    "display: 0 snapshot_prefix: '%s/%s' lr_policy: 'plateau' gamma: 0.5 plateau_winsize: 2 "      \
    "plateau_winsize: 50 average_loss: %d net_param { name: 'noise' "                              \
    "layer { name: 'data' type: 'DummyData' top: 'x' top: 'y' dummy_data_param { shape { dim: 4 "  \
    "dim: 3 } shape { dim: 4 dim: 2 } data_filler { type: 'gaussian' } data_filler { type: "       \
    "'gaussian' } } } "                                                                            \
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'z' inner_product_param { "          \
    "num_output: 2 weight_filler { type: 'xavier' } } } "                                          \
    "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'z' bottom: 'y' top: 'loss' } }"

/* As FP16 on a device has it. */
static void scale_losses(ct_solver *s)
{
    s->step.loss_scale = (ct_loss_scale){ .on = true, .scale = 65536.0f, .window = 1000 };
}

static ct_status create(const char *prefix, int average_loss, thread_rank *rank, test_solver *t)
{
    char text[2048];

    snprintf(text, sizeof(text), SOLVER, test_solver_dir(), prefix, average_loss);
    return test_solver_create(text, rank, NULL, NULL, t);
}

static void make(const char *prefix, int average_loss, test_solver *t)
{
    assert_int_equal(create(prefix, average_loss, NULL, t), CT_OK);
    scale_losses(t->solver);
}

static void assert_same_state(const ct_solver *a, const ct_solver *b)
{
    assert_int_equal(a->iteration, b->iteration);
    assert_true(a->seed == b->seed);
    assert_int_equal(a->n_loss, b->n_loss);
    assert_int_equal(a->next_loss, b->next_loss);
    for (int i = 0; i < a->n_loss; i++) assert_true(a->loss_window[i] == b->loss_window[i]);
    assert_int_equal(a->plateau.begun, b->plateau.begun);
    assert_true(a->plateau.least == b->plateau.least);
    assert_int_equal(a->plateau.event, b->plateau.event);
    assert_int_equal(a->plateau.step, b->plateau.step);
    assert_true(a->step.loss_scale.scale == b->step.loss_scale.scale);
    assert_int_equal(a->step.loss_scale.good, b->step.loss_scale.good);
}

/* Steps of the first solver behind the set are those of one that went on from it: what is shown,
 * and at which rate. */
static void assert_goes_on(ct_solver *a, ct_solver *b)
{
    for (int i = 0; i < 7; i++) {
        assert_int_equal(ct_solver_steps(a, 1), CT_OK);
        assert_int_equal(ct_solver_steps(b, 1), CT_OK);
        assert_true(a->rate == b->rate);
        assert_same_state(a, b);
    }
}

static void check(int iterations)
{
    test_solver before, after;

    make("s", 5, &before);
    make("s", 5, &after);
    assert_int_equal(ct_solver_steps(before.solver, iterations), CT_OK);
    before.solver->step.loss_scale.scale = 512.0f;
    before.solver->step.loss_scale.good = 17;
    assert_int_equal(ct_solver_save(before.solver), CT_OK);
    assert_int_equal(ct_solver_restore(after.solver, "auto"), CT_OK);
    assert_int_equal(after.solver->iteration, iterations);
    assert_int_equal(after.solver->step.loss_scale.good, 17);
    assert_same_state(before.solver, after.solver);
    if (iterations == 13) {
        /* nothing that a new solver would have, too */
        assert_int_equal(before.solver->next_loss, 3);
        assert_true(before.solver->plateau.begun && (before.solver->plateau.step > 0));
        assert_true(before.solver->plateau.event > 0);
        assert_true(before.solver->plateau.event < 13);
    }
    assert_goes_on(before.solver, after.solver);
    test_solver_destroy(&before);
    test_solver_destroy(&after);
}

/* Off a multiple of average_loss, with a window that is not full, is, and is once more. */
static void state_comes_back(void **state)
{
    const int iterations[] = { 3, 5, 13 };

    (void)state;
    for (size_t i = 0; i < sizeof(iterations) / sizeof(iterations[0]); i++) {
        check(iterations[i]);
        test_solver_teardown(NULL);
        test_solver_setup(NULL);
    }
}

/* A set without a scale of the loss leaves that of the run, and the other way round. */
static void scale_that_no_set_has(void **state)
{
    test_solver without, with, after;

    (void)state;
    assert_int_equal(create("s", 5, NULL, &without), CT_OK);
    assert_int_equal(ct_solver_steps(without.solver, 3), CT_OK);
    assert_int_equal(ct_solver_save(without.solver), CT_OK);
    make("s", 5, &with);
    assert_int_equal(ct_solver_restore(with.solver, "auto"), CT_OK);
    assert_true(with.solver->step.loss_scale.scale == 65536.0f);
    assert_int_equal(ct_solver_steps(with.solver, 1), CT_OK);
    assert_int_equal(ct_solver_save(with.solver), CT_OK);
    assert_int_equal(create("s", 5, NULL, &after), CT_OK);
    assert_int_equal(ct_solver_restore(after.solver, "auto"), CT_OK);
    assert_int_equal(after.solver->iteration, 4);
    assert_true(after.solver->step.loss_scale.scale == without.solver->step.loss_scale.scale);
    test_solver_destroy(&without);
    test_solver_destroy(&with);
    test_solver_destroy(&after);
}

/* Another average_loss has no use for a full window of the old one; one that is not full fits. */
static void another_window(void **state)
{
    test_solver before, after;

    (void)state;
    make("s", 5, &before);
    make("s", 8, &after);
    assert_int_equal(ct_solver_steps(before.solver, 7), CT_OK);
    assert_int_equal(ct_solver_save(before.solver), CT_OK);
    assert_int_equal(ct_solver_restore(after.solver, "auto"), CT_OK);
    assert_int_equal(after.solver->n_loss, 0);
    assert_int_equal(after.solver->next_loss, 0);
    test_solver_destroy(&before);
    test_solver_destroy(&after);
}

/* At the end of a run that restored a set and took no step: its own set is on disk already, one of
 * another prefix is not. */
static void set_of_another_prefix(void **state)
{
    static const char *const prefix[] = { "s", "t", "ss" };
    char file[512];

    (void)state;
    for (int i = 0; i < 3; i++) {
        test_solver t;

        make(prefix[i], 5, &t);
        if (i == 0) {
            assert_int_equal(ct_solver_steps(t.solver, 100), CT_OK);
            assert_int_equal(ct_solver_save(t.solver), CT_OK);
        } else {
            snprintf(file, sizeof(file), "%s/s_iter_100.solverstate.h5", test_solver_dir());
            assert_int_equal(ct_solver_restore(t.solver, file), CT_OK);
        }
        assert_int_equal(ct_solver_run(t.solver), CT_OK);
        test_solver_destroy(&t);
        snprintf(file, sizeof(file), "%s/%s_iter_100.solverstate.h5", test_solver_dir(), prefix[i]);
        assert_int_equal(access(file, F_OK), 0);
    }
}

/* What codecs hold of a parameter's momentum: behind a residual. */
static bool momentum_of_rank(void *ctx, int param, int k, ct_sync_state *out)
{
    float *held = ctx;

    if ((param != 0) || (k > 1)) return false;
    *out = (ct_sync_state){ .name = (k == 0) ? CT_SYNC_RESIDUAL : "momentum",
                            .data = held + 6 * k,
                            .count = 6,
                            .is_momentum = (k == 1) };
    return true;
}

/* The solver's is their sum in a set, so that a run without codecs goes on from it. */
static ct_status sum_momenta(thread_rank *rank)
{
    float held[12], sum[6];
    test_solver t;
    ct_status status = create("s", 5, rank, &t);

    for (int i = 0; i < 12; i++) held[i] = (float)(i + (i + 1) * rank->rank);
    if (status == CT_OK) status = ct_solver_steps(t.solver, 1);
    if (status == CT_OK) {
        const ct_param *p = &t.solver->net->param[0];

        t.solver->exchange.states = (ct_sync_states){ .ctx = held, .get = momentum_of_rank };
        status = (p->count == 6) ? ct_solver_save(t.solver) : CT_ERR_ARG;
        if (status == CT_OK) status = ct_storage_get(&t.solver->step.history[0], p->offset, 6, sum);
    }
    for (int i = 0; (i < 6) && (status == CT_OK); i++) {
        float want = 0;

        for (int r = 0; r < rank->job->n; r++) want += (float)(i + 6 + (i + 7) * r);
        if (sum[i] != want)
            status = CT_FAIL(CT_ERR_DATA, "a momentum of %g, not %g", (double)sum[i], (double)want);
    }
    test_solver_destroy(&t);
    return status;
}

static void momentum_is_the_sum_of_ranks(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        thread_ranks job = { .n = n, .run = sum_momenta };
        thread_rank rank[3];

        if (thread_ranks_run(&job, rank) != CT_OK) fail_msg("%s", test_log_all());
    }
}

/* A run without codecs left a set: each rank gets its share of the momentum, and owes nothing. */
static ct_status share_momentum(thread_rank *rank)
{
    float held[13], whole[6]; /* one more, which is nobody's */
    test_solver before = { .param = NULL }, after = { .param = NULL };
    ct_status status = create("s", 5, rank, &before);

    if (status == CT_OK) status = ct_solver_steps(before.solver, 3);
    if (status == CT_OK) status = ct_solver_save(before.solver);
    test_solver_destroy(&before);
    CT_TRY(status);
    status = create("s", 5, rank, &after);
    for (int i = 0; i < 13; i++) held[i] = 9.0f;
    if (status == CT_OK) {
        after.solver->exchange.states = (ct_sync_states){ .ctx = held, .get = momentum_of_rank };
        status = ct_solver_restore(after.solver, "auto");
    }
    if (status == CT_OK)
        status = ct_storage_get(&after.solver->step.history[0], after.solver->net->param[0].offset,
                                6, whole);
    for (int i = 0; (i < 6) && (status == CT_OK); i++) {
        if ((held[i] != 0.0f) || (held[6 + i] != whole[i] / (float)rank->job->n) ||
            (whole[i] == 0.0f) || (held[12] != 9.0f))
            status = CT_FAIL(CT_ERR_DATA, "of %g there is %g, and %g is owed", (double)whole[i],
                             (double)held[6 + i], (double)held[i]);
    }
    test_solver_destroy(&after);
    return status;
}

static void momentum_is_shared_out(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        thread_ranks job = { .n = n, .run = share_momentum };
        thread_rank rank[3];

        if (thread_ranks_run(&job, rank) != CT_OK) fail_msg("%s", test_log_all());
        test_solver_teardown(NULL);
        test_solver_setup(NULL);
    }
}

static ino_t file_number(const char *path)
{
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    return st.st_ino;
}

/* … and what is there already is not written anew: a file that takes its place is another one. */
static void own_set_stays(void **state)
{
    char file[512];
    ino_t before;
    test_solver t;

    (void)state;
    snprintf(file, sizeof(file), "%s/s_iter_100.solverstate.h5", test_solver_dir());
    make("s", 5, &t);
    assert_int_equal(ct_solver_steps(t.solver, 100), CT_OK);
    assert_int_equal(ct_solver_save(t.solver), CT_OK);
    test_solver_destroy(&t);
    before = file_number(file);
    make("s", 5, &t);
    assert_int_equal(ct_solver_restore(t.solver, file), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    test_solver_destroy(&t);
    assert_true(file_number(file) == before);
}

/* Each rank has its share of the losses; a set has their sums, which rank 0 takes up. */
static ct_status losses_of_ranks(thread_rank *rank)
{
    const int *steps = rank->out;
    test_solver before = { .param = NULL }, after = { .param = NULL };
    ct_status status = create("s", 5, rank, &before);
    double sum[5] = { 0 };

    if (status == CT_OK) status = ct_solver_steps(before.solver, *steps);
    if (status == CT_OK) status = ct_solver_save(before.solver);
    if (status == CT_OK) {
        memcpy(sum, before.solver->loss_window, sizeof(sum));
        status = ct_group_sum(&before.solver->exchange.job, sum, 5);
    }
    test_solver_destroy(&before);
    CT_TRY(status);
    status = create("s", 5, rank, &after);
    if (status == CT_OK) status = ct_solver_restore(after.solver, "auto");
    for (int i = 0; (status == CT_OK) && (i < 5); i++) {
        double want = (rank->rank == 0) ? sum[i] : 0.0;

        if ((after.solver->n_loss != ((*steps < 5) ? *steps : 5)) ||
            (after.solver->loss_window[i] != want) || ((i < *steps) && (sum[i] == 0.0)))
            status = CT_FAIL(CT_ERR_DATA, "loss %d is %g, not %g", i, after.solver->loss_window[i],
                             want);
    }
    test_solver_destroy(&after);
    return status;
}

static void losses_are_those_of_all_ranks(void **state)
{
    static const int steps[] = { 1, 3, 7 };

    (void)state;
    for (int i = 0; i < 3; i++) {
        thread_ranks job = { .n = 2 + i % 2, .run = losses_of_ranks };
        thread_rank rank[3];

        for (int k = 0; k < job.n; k++) rank[k].out = (void *)(uintptr_t)&steps[i];
        if (thread_ranks_run(&job, rank) != CT_OK) fail_msg("%s", test_log_all());
        test_solver_teardown(NULL);
        test_solver_setup(NULL);
    }
}

/* A file stands where the folder of sets was, and rank 0 alone looks. */
static ct_status restore_from_nowhere(thread_rank *rank)
{
    char folder[512];
    test_solver t;
    ct_status status = create("sub/s", 5, rank, &t);

    snprintf(folder, sizeof(folder), "%s/sub", test_solver_dir());
    if ((status == CT_OK) && (rank->rank == 0)) {
        FILE *f = (rmdir(folder) == 0) ? fopen(folder, "w") : NULL;

        status = (f != NULL) ? CT_OK : CT_ERR_ARG;
        if (f != NULL) fclose(f);
    }
    if ((status == CT_OK) && (ct_solver_restore(t.solver, "auto") != CT_ERR_IO))
        status = CT_ERR_DATA;
    test_solver_destroy(&t);
    return status;
}

/* A folder that cannot be read is not one without sets: no run starts anew beside those. */
static void folder_that_cannot_be_read(void **state)
{
    char folder[512];

    (void)state;
    snprintf(folder, sizeof(folder), "%s/sub", test_solver_dir());
    for (int n = 1; n <= 3; n++) {
        thread_ranks job = { .n = n, .run = restore_from_nowhere };
        thread_rank rank[3];

        assert_int_equal(thread_ranks_run(&job, rank), CT_OK);
        assert_int_equal(unlink(folder), 0);
    }
    test_log_holds("cannot list the snapshots of ");
    assert_null(strstr(test_log_all(), "starting from the beginning"));
}

/* Blanks and tabs about the names of files, and names of nothing else. */
static void weights_by_list(void **state)
{
    static const char *const list[] = { "%s", " \t%s \t", "%s\t", "\t, %s\t\t,", " ,%s ,\t" };
    char file[512], text[1024];
    test_solver from, to;

    (void)state;
    make("s", 5, &from);
    assert_int_equal(ct_solver_steps(from.solver, 3), CT_OK);
    snprintf(file, sizeof(file), "%s/w.caffemodel.h5", test_solver_dir());
    assert_int_equal(test_weights_save(file, from.solver->net), CT_OK);
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        make("s", 5, &to);
        snprintf(text, sizeof(text), list[i], file);
        assert_true(ct_net_checksum(to.solver->net, true) !=
                    ct_net_checksum(from.solver->net, true));
        assert_int_equal(ct_solver_load_weights(to.solver, text), CT_OK);
        assert_true(ct_net_checksum(to.solver->net, true) ==
                    ct_net_checksum(from.solver->net, true));
        test_solver_destroy(&to);
    }
    test_solver_destroy(&from);
}

#define TEST(_f) cmocka_unit_test_setup_teardown(_f, test_solver_setup, test_solver_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(state_comes_back),           TEST(another_window),
        TEST(set_of_another_prefix),      TEST(own_set_stays),
        TEST(scale_that_no_set_has),      TEST(momentum_is_the_sum_of_ranks),
        TEST(momentum_is_shared_out),     TEST(losses_are_those_of_all_ranks),
        TEST(folder_that_cannot_be_read), TEST(weights_by_list),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
