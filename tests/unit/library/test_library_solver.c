/* Solvers through the public header: steps, what is looked at between them, snapshots, errors. */
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "include/cortado/cortado.h"

/* Samples of three classes, made by chance; the same in each batch. */
#define NET                                                                                        \
    "net_param { name: 'tiny' "                                                                    \
    "layer { name: 'in' type: 'DummyData' top: 'data' top: 'label' dummy_data_param { shape { "    \
    "dim: 6 dim: 2 dim: 7 dim: 5 } shape { dim: 6 } data_filler { type: 'gaussian' std: 1 } "      \
    "data_filler { value: 2 } } } "                                                                \
    "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' convolution_param { "     \
    "num_output: 8 kernel_size: 3 weight_filler { type: 'msra' } } } "                             \
    "layer { name: 'relu' type: 'ReLU' bottom: 'conv' top: 'conv' } "                              \
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'conv' top: 'ip' inner_product_param { "      \
    "num_output: 3 weight_filler { type: 'xavier' } } } "                                          \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' } } "
#define SOLVER                                                                                     \
    NET "base_lr: 0.02 lr_policy: 'fixed' momentum: 0.9 weight_decay: 0.001 max_iter: 12 "         \
        "random_seed: 5 snapshot_after_train: false test_iter: 1 test_interval: 1000 "             \
        "test_initialization: false "

typedef struct place {
    char folder[40], file[80];
} place;

static void write_solver(const place *p, const char *more)
{
    FILE *f = fopen(p->file, "w");

    assert_non_null(f);
    fprintf(f, SOLVER "snapshot_prefix: '%s/s' %s", p->folder, more);
    fclose(f);
}

static int make_place(void **state)
{
    place *p = calloc(1, sizeof(*p));

    if (p == NULL) return 1;
    strcpy(p->folder, "/tmp/cortado-solver-XXXXXX");
    if (mkdtemp(p->folder) == NULL) return 1;
    snprintf(p->file, sizeof(p->file), "%s/solver.prototxt", p->folder);
    write_solver(p, "");
    *state = p;
    return 0;
}

static int end_place(void **state)
{
    place *p = *state;
    char command[80];

    snprintf(command, sizeof(command), "rm -rf %s", p->folder);
    if (system(command) != 0) return 1;
    free(p);
    return 0;
}

static cortado_solver *open_solver(void **state, cortado_keep keep)
{
    const place *p = *state;
    cortado_solver *s = NULL;

    if (cortado_solver_open(p->file, keep, &s) != CORTADO_OK) fail_msg("%s", cortado_error());
    return s;
}

static void step(cortado_solver *s, int64_t n)
{
    if (cortado_solver_step(s, n) != CORTADO_OK) fail_msg("%s", cortado_error());
}

static cortado_blob weight_of(cortado_solver *s)
{
    cortado_blob w;

    if (cortado_net_weight(cortado_solver_net(s), "conv", 0, &w) != CORTADO_OK)
        fail_msg("%s", cortado_error());
    return w;
}

static cortado_blob blob_of(cortado_net *net, const char *name)
{
    cortado_blob b;

    if (cortado_net_blob(net, name, &b) != CORTADO_OK) fail_msg("%s", cortado_error());
    return b;
}

static void same(cortado_blob a, cortado_blob b)
{
    assert_int_equal(a.count, b.count);
    assert_memory_equal(a.data, b.data, (size_t)a.count * sizeof(float));
}

/* One call or several, looked at or not, to the end by themselves: the same weights. */
static void steps_add_up(void **state)
{
    cortado_solver *one = open_solver(state, CORTADO_KEEP_OUTPUTS),
                   *many = open_solver(state, CORTADO_KEEP_OUTPUTS),
                   *whole = open_solver(state, CORTADO_KEEP_OUTPUTS);
    cortado_blob first = blob_of(cortado_solver_net(one), "loss");
    float begin;

    step(one, 1);
    begin = first.data[0];
    step(one, 11);
    assert_true(first.data[0] < begin);
    for (int i = 0; i < 4; i++) {
        step(many, 3);
        assert_true(isfinite(blob_of(cortado_solver_net(many), "loss").data[0]));
    }
    assert_int_equal(cortado_solver_run(whole), CORTADO_OK);
    assert_int_equal(cortado_solver_iteration(one), 12);
    assert_int_equal(cortado_solver_iteration(whole), 12);
    same(weight_of(one), weight_of(many));
    same(weight_of(one), weight_of(whole));
    step(one, 0);
    step(one, 5); /* beyond max_iter */
    assert_int_equal(cortado_solver_iteration(one), 17);
    cortado_solver_close(one);
    cortado_solver_close(many);
    cortado_solver_close(whole);
}

/* All values are there after a step, and the gradients that made it. */
static void values_are_kept_where_asked(void **state)
{
    cortado_solver *s = open_solver(state, CORTADO_KEEP_ALL),
                   *fast = open_solver(state, CORTADO_KEEP_OUTPUTS);
    cortado_net *net = cortado_solver_net(s);
    cortado_blob conv = blob_of(net, "conv"), ip = blob_of(net, "ip"), w = weight_of(s), b;
    float *before = malloc((size_t)w.count * sizeof(float)), sum = 0;

    assert_non_null(before);
    assert_non_null(conv.diff);
    memcpy(before, w.data, (size_t)w.count * sizeof(float));
    step(s, 1);
    for (int64_t i = 0; i < conv.count; i++) assert_true(conv.data[i] >= 0);
    for (int64_t i = 0; i < ip.count; i++) sum += fabsf(ip.diff[i]);
    assert_true(sum > 0);
    for (int64_t i = 0; i < w.count; i++) { /* the first step has no momentum yet */
        float want = before[i] - 0.02f * (w.diff[i] + 0.001f * before[i]);

        assert_true(fabsf(w.data[i] - want) <= 1e-6f * (1 + fabsf(want)));
    }
    step(fast, 1);
    for (int64_t i = 0; i < w.count; i++)
        assert_true(fabsf(w.data[i] - weight_of(fast).data[i]) <= 1e-5f * (1 + fabsf(w.data[i])));
    assert_int_equal(cortado_net_blob(cortado_solver_net(fast), "conv", &b), CORTADO_ERR_ARG);
    assert_non_null(strstr(cortado_error(), "CORTADO_KEEP_ALL"));
    assert_int_equal(cortado_net_forward(cortado_solver_net(fast), "ip", NULL), CORTADO_ERR_ARG);
    assert_int_equal(cortado_net_backward(cortado_solver_net(fast), NULL, NULL), CORTADO_ERR_ARG);
    assert_int_equal(cortado_net_forward(net, NULL, NULL), CORTADO_OK);
    assert_int_equal(cortado_net_backward(net, NULL, NULL), CORTADO_OK);
    free(before);
    cortado_solver_close(s);
    cortado_solver_close(fast);
}

/* The test net runs on the weights that are learned, and on those that the caller writes. */
static void test_nets_follow(void **state)
{
    cortado_solver *s = open_solver(state, CORTADO_KEEP_ALL);
    cortado_net *test = cortado_solver_test_net(s, 0);
    cortado_blob loss, w;
    float before;

    assert_non_null(test);
    assert_null(cortado_solver_test_net(s, 1));
    assert_null(cortado_solver_test_net(s, -1));
    loss = blob_of(test, "loss");
    assert_int_equal(cortado_net_forward(test, NULL, NULL), CORTADO_OK);
    before = loss.data[0];
    step(s, 10);
    assert_int_equal(cortado_net_forward(test, NULL, NULL), CORTADO_OK);
    assert_true(loss.data[0] < before);
    assert_int_equal(cortado_net_weight(cortado_solver_net(s), "ip", 0, &w), CORTADO_OK);
    for (int64_t i = 0; i < w.count; i++) w.data[i] = 0;
    assert_int_equal(cortado_net_weight(cortado_solver_net(s), "ip", 1, &w), CORTADO_OK);
    for (int64_t i = 0; i < w.count; i++) w.data[i] = 0;
    assert_int_equal(cortado_net_forward(cortado_solver_net(s), NULL, NULL), CORTADO_OK);
    assert_true(fabs(cortado_net_loss(cortado_solver_net(s)) - log(3)) < 1e-5);
    assert_int_equal(cortado_net_forward(test, NULL, NULL), CORTADO_OK);
    assert_true(fabsf(loss.data[0] - logf(3)) < 1e-5f);
    cortado_solver_close(s);
}

static void snapshots_go_on(void **state)
{
    const place *p = *state;
    cortado_solver *s = open_solver(state, CORTADO_KEEP_OUTPUTS),
                   *other = open_solver(state, CORTADO_KEEP_OUTPUTS);
    char file[120];

    step(s, 4);
    assert_int_equal(cortado_solver_snapshot(s), CORTADO_OK);
    step(s, 5);
    assert_int_equal(cortado_solver_restore(other, "auto"), CORTADO_OK);
    assert_int_equal(cortado_solver_iteration(other), 4);
    step(other, 5);
    same(weight_of(s), weight_of(other));
    snprintf(file, sizeof(file), "%s/none.solverstate.h5", p->folder);
    assert_int_equal(cortado_solver_restore(other, file), CORTADO_ERR_IO);
    assert_non_null(strstr(cortado_error(), "none.solverstate.h5"));
    assert_int_equal(cortado_solver_load(other, "/nowhere/w.npz"), CORTADO_ERR_IO);
    cortado_solver_close(s);
    cortado_solver_close(other);
}

static uint64_t checksum_of(cortado_solver *s)
{
    uint64_t sum = 0;

    if (cortado_solver_checksum(s, &sum) != CORTADO_OK) fail_msg("%s", cortado_error());
    return sum;
}

/* The steps are the same wherever weights, states and gradients lie; what is not there between
 * steps is not shown. MPI does not run in this test. */
static void memory_changes_no_bit(void **state)
{
    const place *p = *state;
    cortado_solver *plain = open_solver(state, CORTADO_KEEP_OUTPUTS), *s;
    char more[160], file[80];
    cortado_blob w;

    step(plain, 5);
    write_solver(p, "memory { state: DEVICE }");
    s = open_solver(state, CORTADO_KEEP_ALL);
    step(s, 5);
    assert_int_equal(cortado_net_weight(cortado_solver_net(s), "conv", 0, &w), CORTADO_OK);
    assert_null(w.diff); /* others were written over it */
    assert_int_equal(cortado_net_backward(cortado_solver_net(s), NULL, NULL), CORTADO_ERR_ARG);
    assert_non_null(strstr(cortado_error(), "gradients share memory"));
    cortado_solver_close(s);
    snprintf(more, sizeof(more), "memory { state: FILE weights: FILE path: '%s' chunk_mb: 0.001 }",
             p->folder);
    write_solver(p, more);
    s = open_solver(state, CORTADO_KEEP_OUTPUTS);
    step(s, 5);
    assert_int_equal(checksum_of(s), checksum_of(plain));
    assert_int_equal(cortado_net_weight(cortado_solver_net(s), "conv", 0, &w), CORTADO_ERR_ARG);
    assert_non_null(strstr(cortado_error(), "a snapshot of the solver has them"));
    assert_int_equal(cortado_net_forward(cortado_solver_net(s), NULL, NULL), CORTADO_ERR_ARG);
    assert_int_equal(cortado_net_forward(cortado_solver_test_net(s, 0), NULL, NULL),
                     CORTADO_ERR_ARG);
    snprintf(file, sizeof(file), "%s/w.npz", p->folder);
    assert_int_equal(cortado_net_save(cortado_solver_net(s), file), CORTADO_ERR_ARG);
    assert_int_equal(cortado_net_load(cortado_solver_net(s), file), CORTADO_ERR_ARG);
    assert_int_equal(cortado_solver_snapshot(s), CORTADO_OK);
    assert_int_equal(cortado_solver_restore(plain, "auto"), CORTADO_OK);
    assert_int_equal(checksum_of(s), checksum_of(plain));
    cortado_solver_close(s);
    cortado_solver_close(plain);
}

/* Weights of groups of ranks are loaded by the solver alone. */
static void groups_load_in_step(void **state)
{
    const place *p = *state;
    char file[128];
    cortado_solver *s;
    uint64_t began;

    write_solver(p, "outer { local_iter: 2 groups: 1 delay: 1 }");
    s = open_solver(state, CORTADO_KEEP_OUTPUTS);
    began = checksum_of(s);
    snprintf(file, sizeof(file), "%s/w.npz", p->folder);
    assert_int_equal(cortado_net_save(cortado_solver_net(s), file), CORTADO_OK);
    step(s, 5);
    assert_int_equal(cortado_net_load(cortado_solver_net(s), file), CORTADO_ERR_ARG);
    assert_non_null(strstr(cortado_error(), "take cortado_solver_load()"));
    assert_int_equal(cortado_net_load(cortado_solver_test_net(s, 0), file), CORTADO_ERR_ARG);
    assert_true(checksum_of(s) != began);
    assert_int_equal(cortado_solver_load(s, file), CORTADO_OK);
    assert_true(checksum_of(s) == began);
    cortado_solver_close(s);
}

/* Codecs act on one rank, as they do in the verb, and need no MPI. */
static void codecs_run_alone(void **state)
{
    static const char *const type[] = { "BF16",     "FP16",   "TOPK", "REDSYNC",
                                        "POWERSGD", "ONEBIT", "AUTO" };
    cortado_solver *plain = open_solver(state, CORTADO_KEEP_OUTPUTS);

    step(plain, 3);
    for (size_t i = 0; i < sizeof(type) / sizeof(type[0]); i++) {
        char more[100];
        cortado_solver *s;

        snprintf(more, sizeof(more),
                 "compression { type: %s min_bytes: 64 } comm { progress: "
                 "THREAD }",
                 type[i]);
        write_solver(*state, more);
        s = open_solver(state, CORTADO_KEEP_OUTPUTS);
        step(s, 3);
        if (strcmp(type[i], "AUTO") != 0) assert_true(checksum_of(s) != checksum_of(plain));
        cortado_solver_close(s);
    }
    cortado_solver_close(plain);
}

typedef struct watch {
    int started, saw, fails_at;
    cortado_blob w;
    float before, slope;
} watch;

static int on_start(void *ctx, char *why, size_t n_why)
{
    watch *w = ctx;

    if (++w->started == w->fails_at) snprintf(why, n_why, "enough");
    return (w->started == w->fails_at) ? 1 : 0;
}

static int on_gradients(void *ctx, char *why, size_t n_why)
{
    watch *w = ctx;

    (void)why;
    (void)n_why;
    w->saw++;
    w->before = w->w.data[0];
    w->slope = w->w.diff[0];
    for (int64_t i = 1; i < w->w.count; i++) w->w.diff[i] = 0;
    return 0;
}

/* A step of plain SGD from the gradients that the call leaves; then its failure ends a step. */
static void steps_are_watched(void **state)
{
    const place *p = *state;
    watch seen = { .fails_at = 5 };
    const cortado_step_calls calls = { &seen, on_start, on_gradients };
    static const char *const plain[] = { "momentum=0", "weight_decay=0", NULL };
    cortado_solver *s = NULL;
    float other;

    if (cortado_solver_open_with(p->file, plain, CORTADO_KEEP_OUTPUTS, &s) != CORTADO_OK)
        fail_msg("%s", cortado_error());
    assert_int_equal(cortado_net_weight(cortado_solver_net(s), "ip", 0, &seen.w), CORTADO_OK);
    other = seen.w.data[1];
    assert_int_equal(cortado_solver_watch(s, &calls), CORTADO_OK);
    assert_int_equal(cortado_solver_step(s, 3), CORTADO_OK);
    assert_int_equal(seen.started, 3);
    assert_int_equal(seen.saw, 3);
    assert_true(seen.slope != 0);
    assert_true(fabsf(seen.w.data[0] - (seen.before - 0.02f * seen.slope)) < 1e-6f);
    assert_true(seen.w.data[1] == other);
    assert_int_equal(cortado_solver_step(s, 2), CORTADO_ERR_DATA);
    assert_non_null(strstr(cortado_error(), "the call at the start of a step: enough"));
    assert_int_equal(cortado_solver_iteration(s), 4);
    assert_int_equal(cortado_solver_watch(s, NULL), CORTADO_OK);
    assert_int_equal(cortado_solver_step(s, 1), CORTADO_OK);
    assert_int_equal(seen.started, 5);
    cortado_solver_close(s);
    write_solver(p, "clip_gradients: 1");
    s = open_solver(state, CORTADO_KEEP_OUTPUTS);
    assert_int_equal(cortado_solver_watch(s, &calls), CORTADO_ERR_CONFIG);
    assert_non_null(strstr(cortado_error(), "clip_gradients and a look at gradients"));
    cortado_solver_close(s);
    write_solver(p, "memory { state: FILE }");
    s = open_solver(state, CORTADO_KEEP_OUTPUTS);
    assert_int_equal(cortado_solver_watch(s, &calls), CORTADO_ERR_CONFIG);
    assert_non_null(strstr(cortado_error(), "memory and a look at gradients"));
    cortado_solver_close(s);
}

static void errors_have_texts(void **state)
{
    const place *p = *state;
    cortado_solver *s = NULL;

    assert_int_equal(cortado_solver_open("/nowhere/s.prototxt", CORTADO_KEEP_ALL, &s),
                     CORTADO_ERR_IO);
    assert_int_equal(cortado_solver_open(NULL, CORTADO_KEEP_ALL, &s), CORTADO_ERR_ARG);
    assert_int_equal(cortado_solver_open(p->file, (cortado_keep)5, &s), CORTADO_ERR_ARG);
    write_solver(p, "tpye: 'SGD'");
    assert_int_equal(cortado_solver_open(p->file, CORTADO_KEEP_ALL, &s), CORTADO_ERR_CONFIG);
    assert_non_null(strstr(cortado_error(), "did you mean \"type\"?"));
    write_solver(p, "memory { chunk_mb: -1 }");
    assert_int_equal(cortado_solver_open(p->file, CORTADO_KEEP_ALL, &s), CORTADO_ERR_CONFIG);
    assert_non_null(strstr(cortado_error(), "chunk_mb"));
    write_solver(p, "solver_mode: GPU");
    assert_int_equal(cortado_solver_open(p->file, CORTADO_KEEP_ALL, &s), CORTADO_ERR_CONFIG);
    assert_non_null(strstr(cortado_error(), "solver.prototxt:1:"));
    assert_null(s);
    write_solver(p, "");
    s = open_solver(state, CORTADO_KEEP_OUTPUTS);
    assert_int_equal(cortado_solver_step(s, -1), CORTADO_ERR_ARG);
    assert_int_equal(cortado_solver_step(NULL, 1), CORTADO_ERR_ARG);
    assert_int_equal(cortado_solver_checksum(s, NULL), CORTADO_ERR_ARG);
    weight_of(s).data[0] = NAN;
    assert_int_equal(cortado_solver_step(s, 1), CORTADO_ERR_DIVERGED);
    cortado_solver_close(s);
    cortado_solver_close(NULL);
}

static void settings_take_the_files_place(void **state)
{
    const char *const zero[] = { "base_lr=0", "type=Nesterov", NULL };
    const char *const unknown[] = { "base_lt=0", NULL }, *const none[] = { "base_lr", NULL };
    const place *p = *state;
    cortado_solver *s = NULL;
    float was;

    assert_int_equal(cortado_solver_open_with(p->file, unknown, CORTADO_KEEP_OUTPUTS, &s),
                     CORTADO_ERR_CONFIG);
    assert_non_null(strstr(cortado_error(), "base_lr"));
    assert_int_equal(cortado_solver_open_with(p->file, none, CORTADO_KEEP_OUTPUTS, &s),
                     CORTADO_ERR_ARG);
    assert_non_null(strstr(cortado_error(), "expected FIELD=VALUE"));
    assert_null(s);
    assert_int_equal(cortado_solver_open_with(p->file, zero, CORTADO_KEEP_OUTPUTS, &s), CORTADO_OK);
    was = weight_of(s).data[0];
    assert_int_equal(cortado_solver_step(s, 2), CORTADO_OK);
    assert_true(weight_of(s).data[0] == was);
    cortado_solver_close(s);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test_setup_teardown(steps_add_up, make_place, end_place),
        cmocka_unit_test_setup_teardown(values_are_kept_where_asked, make_place, end_place),
        cmocka_unit_test_setup_teardown(groups_load_in_step, make_place, end_place),
        cmocka_unit_test_setup_teardown(test_nets_follow, make_place, end_place),
        cmocka_unit_test_setup_teardown(snapshots_go_on, make_place, end_place),
        cmocka_unit_test_setup_teardown(settings_take_the_files_place, make_place, end_place),
        cmocka_unit_test_setup_teardown(memory_changes_no_bit, make_place, end_place),
        cmocka_unit_test_setup_teardown(codecs_run_alone, make_place, end_place),
        cmocka_unit_test_setup_teardown(steps_are_watched, make_place, end_place),
        cmocka_unit_test_setup_teardown(errors_have_texts, make_place, end_place),
    };

    return cmocka_run_group_tests(test, NULL, NULL);
}
