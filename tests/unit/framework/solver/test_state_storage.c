/* The optimiser's states in a storage that keeps no address: every rule, averages, snapshots and
 * their resumption are bit for bit those of states at a fixed one, and no range is kept. */
#include "tests/test.h"
#include "tests/away_storage.h"
#include "tests/cuda_train.h"
#include "tests/solver_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/solver/solver_private.h"
#include "framework/tensor/storage_ring.h"

/* A parameter of more elements than an update takes at a time, one of few, and one that learns
 * nothing. */
#define NET                                                                                        \
    "net_param { name: 'school' "                                                                  \
    "layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: %d dim: 9 } " \
    "data_filler { type: 'gaussian' } } } "                                                        \
    "layer { name: 'wide' type: 'InnerProduct' bottom: 'x' top: 'w' inner_product_param { "        \
    "num_output: %d weight_filler { type: 'xavier' } } } "                                         \
    "layer { name: 'still' type: 'InnerProduct' bottom: 'w' top: 's' param { lr_mult: 0 } "        \
    "param { lr_mult: 0 } inner_product_param { num_output: 2 weight_filler { type: 'xavier' } } " \
    "} "                                                                                           \
    "layer { name: 'last' type: 'InnerProduct' bottom: 's' top: 'z' inner_product_param { "        \
    "num_output: 2 weight_filler { type: 'xavier' } } } "                                          \
    "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'z' bottom: 's' top: 'loss' } } "
#define FIELDS                                                                                     \
    "base_lr: 0.01 lr_policy: 'fixed' weight_decay: 0.01 deterministic: true random_seed: 7 "      \
    "delta: 0.001 snapshot_prefix: '%s/s' max_iter: %d solver_mode: %s "

enum { SMALL = 5, LARGE = 30011 /* times 9: beyond 2^18 */ };

/* One rank runs on the device, where there is one; pretended ranks are the host's. */
static bool on_device(int n)
{
    return (n == 1) && (ct_device_count("cuda") > 0);
}

typedef struct run {
    char text[2048];
    bool away;
    const char *restore;
    away_tally tally;
    float *weight;
    int64_t count;
} run;

static ct_status run_solver(run *c, thread_rank *r)
{
    ct_storage_open_fn open = c->away ? away_storage_open : NULL;
    test_solver t;
    ct_status status = test_solver_create_stored(c->text, r, open, &c->tally, &t);

    if ((status == CT_OK) && (c->restore != NULL)) status = ct_solver_restore(t.solver, c->restore);
    if (status == CT_OK) status = ct_solver_run(t.solver);
    if (status == CT_OK) {
        const ct_net *net = ct_solver_net(t.solver);
        size_t bytes = (size_t)net->weight_count * sizeof(float);

        c->count = net->weight_count;
        c->weight = malloc(bytes);
        status = net->options.dev->to_host(NULL, c->weight, net->weight_arena, bytes);
    }
    test_solver_destroy(&t);
    return status;
}

static ct_status run_rank(thread_rank *r)
{
    return run_solver(r->out, r);
}

typedef struct job {
    const char *fields;
    int n, wide, max_iter;
    bool away, absorbs;
    const char *restore;
} job;

static run run_job(const job *j)
{
    thread_ranks ranks = {
        .n = j->n, .residuals = j->absorbs, .absorbs = j->absorbs, .run = run_rank
    };
    thread_rank rank[THREAD_RANKS_MAX];
    run *runs = calloc((size_t)j->n, sizeof(*runs)), first;

    assert_non_null(runs);
    for (int r = 0; r < j->n; r++) {
        snprintf(runs[r].text, sizeof(runs[r].text), "%s " FIELDS NET, j->fields, test_solver_dir(),
                 j->max_iter, on_device(j->n) ? "GPU" : "CPU", 6 / j->n, j->wide);
        runs[r].away = j->away;
        runs[r].restore = j->restore;
        rank[r] = (thread_rank){ .out = &runs[r] };
    }
    assert_int_equal(on_device(j->n) ? run_solver(runs, NULL) : thread_ranks_run(&ranks, rank),
                     CT_OK);
    first = runs[0];
    for (int r = 1; r < j->n; r++) {
        assert_memory_equal(runs[r].weight, first.weight, (size_t)first.count * sizeof(float));
        free(runs[r].weight);
    }
    free(runs);
    return first;
}

static void assert_same(const run *a, const run *b, const char *what)
{
    assert_true((a->count > 0) && (a->count == b->count));
    if (memcmp(a->weight, b->weight, (size_t)a->count * sizeof(float)) != 0)
        fail_msg("%s: other weights", what);
}

/* The files of the set of an iteration, one behind the other. */
static ct_text set_of(int iteration)
{
    static const char *const part[] = { "caffemodel.h5",  "average.caffemodel.h5", "caffemodel",
                                        "solverstate.h5", "solverstate",           "rank0.h5" };
    ct_text all = { 0 };
    char file[256];

    for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
        char *data = NULL;
        size_t size = 0;
        FILE *f;

        snprintf(file, sizeof(file), "%s/s_iter_%d.%s", test_solver_dir(), iteration, part[i]);
        f = fopen(file, "rb");
        if (f == NULL) continue;
        fclose(f);
        assert_int_equal(ct_file_read(file, &data, &size), CT_OK);
        ct_text_add(&all, "%s %zu\n", part[i], size);
        ct_text_add_bytes(&all, data, size);
        free(data);
    }
    assert_true(all.length > 0);
    return all;
}

/* At a fixed address and elsewhere: weights, the files of the set, and what follows on it, each
 * going on from the other's. */
static void compare(const char *fields, int n, int wide, bool absorbs)
{
    job j = { .fields = fields, .n = n, .wide = wide, .absorbs = absorbs, .max_iter = 4 };
    run here = run_job(&j), away, whole, part;
    ct_text set = set_of(4), other;
    char verified[512];

    j.away = true;
    away = run_job(&j);
    other = set_of(4);
    assert_same(&here, &away, fields);
    assert_true(away.tally.opened > 0);
    assert_true(away.tally.wants > 0);
    snprintf(verified, sizeof(verified), "%s verify_memory: true", fields);
    j.away = false;
    j.fields = verified;
    whole = run_job(&j);
    assert_same(&here, &whole, verified);
    free(whole.weight);
    j.fields = fields;
    if ((set.length != other.length) || (memcmp(set.text, other.text, set.length) != 0))
        fail_msg("%s: other files", fields);

    j.max_iter = 7;
    j.restore = "auto"; /* of the run elsewhere */
    j.away = false;
    part = run_job(&j);
    test_solver_teardown(NULL);
    test_solver_setup(NULL);
    j.restore = NULL;
    j.max_iter = 4;
    whole = run_job(&j); /* a set of the fixed form again */
    free(whole.weight);
    j.restore = "auto";
    j.max_iter = 7;
    j.away = true;
    whole = run_job(&j);
    assert_same(&whole, &part, fields);

    ct_text_destroy(&set);
    ct_text_destroy(&other);
    free(here.weight);
    free(away.weight);
    free(part.weight);
    free(whole.weight);
    test_solver_teardown(NULL);
    test_solver_setup(NULL);
}

static void test_every_rule(void **state)
{
    const ct_update_rule *rule;

    (void)state;
    for (int i = 0; (rule = ct_update_rule_at(i)) != NULL; i++) {
        bool momentum = (rule->reads & CT_UPDATE_MOMENTUM) != 0;
        char fields[128];

        snprintf(fields, sizeof(fields), "type: '%s'%s", rule->type,
                 momentum ? " momentum: 0.9" : "");
        for (int n = 1; n <= 3; n += 2) compare(fields, n, SMALL, false);
    }
}

static void test_averages(void **state)
{
    (void)state;
    compare("type: 'SGD' momentum: 0.9 average { type: EMA decay: 0.75 start_iter: 1 }", 2, SMALL,
            false);
    compare("type: 'LAMB' momentum: 0.9 average { type: SWA start_iter: 1 interval: 2 } "
            "snapshot_format: BINARYPROTO",
            1, SMALL, false);
    /* the rule's work is in what other ranks send, so that the average moves alone */
    compare("type: 'SGD' average { type: EMA decay: 0.75 }", 2, SMALL, true);
    /* a test swaps weights and averages */
    compare("type: 'Adam' momentum: 0.9 average { type: EMA decay: 0.5 } test_iter: 1 "
            "test_interval: 2",
            1, SMALL, false);
}

static void test_norms(void **state)
{
    (void)state;
    compare("type: 'Adam' momentum: 0.9 clip_gradients: 0.5", 2, SMALL, false);
    compare("type: 'SGD' momentum: 0.9 snapshot_format: BINARYPROTO iter_size: 2", 1, SMALL, false);
}

/* States of more than a chunk come and go by chunks. */
static void test_chunks(void **state)
{
    const job j = { .fields = "type: 'LAMB' momentum: 0.9 snapshot_after_train: false",
                    .n = 1,
                    .wide = LARGE,
                    .max_iter = 2,
                    .away = true };
    run away = run_job(&j);

    (void)state;
    assert_true(away.count > ((int64_t)1 << 18));
    if (ct_device_count("cuda") == 0) assert_true(away.tally.most <= ((int64_t)1 << 18));
    free(away.weight);
    compare("type: 'LAMB' momentum: 0.9 average { type: EMA decay: 0.75 }", 1, LARGE, false);
}

/* Whoever keeps a range ends the run, and the line says so. */
static void test_range_kept(void **state)
{
    char text[2048];
    test_solver t;
    ct_storage_range r;

    (void)state;
    for (int64_t n = 0; n < 2; n++) { /* of no elements, which is in nobody's way, and of one */
        snprintf(text, sizeof(text), "type: 'SGD' momentum: 0.9 " FIELDS NET, test_solver_dir(), 3,
                 "CPU", 6, SMALL);
        assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
        assert_int_equal(
            ct_storage_want(&t.solver->step.history[0], NULL, 0, n, CT_STORAGE_READ, &r), CT_OK);
        assert_int_equal(ct_solver_run(t.solver), CT_ERR_ARG);
        test_log_holds((n == 0) ? "1 range of a storage is not given back"
                                : "are wanted while 0 to 1 are not given back");
        assert_int_equal(ct_storage_done(&r, NULL), CT_OK);
        test_solver_destroy(&t);
        test_solver_teardown(NULL);
        test_solver_setup(NULL);
    }
}

/* A number that somebody else changes between two steps ends the run, and the line names it. */
static void test_memory_changes(void **state)
{
    for (int h = 0; h < 3; h++) {
        char text[2048], want[128];
        test_solver t;
        ct_storage_range r;

        (void)state;
        snprintf(text, sizeof(text),
                 "type: 'Adam' momentum: 0.9 verify_memory: true average { type: EMA decay: 0.5 } "
                 "snapshot_after_train: false " FIELDS NET,
                 test_solver_dir(), 6, "CPU", 6, SMALL);
        assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
        assert_int_equal(ct_solver_steps(t.solver, 3), CT_OK);
        assert_int_equal(
            ct_storage_want(&t.solver->step.history[h], NULL, 2, 1, CT_STORAGE_READ, &r), CT_OK);
        *(uint32_t *)(void *)r.data ^= 1u;
        assert_int_equal(ct_storage_done(&r, NULL), CT_OK);
        assert_int_equal(ct_solver_steps(t.solver, 1), CT_ERR_DIVERGED);
        snprintf(want, sizeof(want), "of this rank's %s are not what was written there",
                 t.solver->step.history_name[h]);
        test_log_holds(want);
        test_solver_destroy(&t);
    }
}

/* On a device that records steps: updates are recorded where states have one address, and only
 * there. */
static void test_recording(void **state)
{
    char text[2048];

    (void)state;
    if (ct_device_count("cuda") == 0) skip();
    for (int away = 0; away < 2; away++) {
        test_solver t;
        ct_train_step *step;

        snprintf(text, sizeof(text), "type: 'SGD' momentum: 0.9 " FIELDS NET, test_solver_dir(), 1,
                 "GPU", 6, SMALL);
        assert_int_equal(
            test_solver_create_stored(text, NULL, (away == 1) ? away_storage_open : NULL, NULL, &t),
            CT_OK);
        step = &t.solver->step;
        if (ct_update_plan_is_open(&step->all))
            assert_true(step->in_graph == (away == 0));
        else
            assert_false(step->in_graph);
        test_solver_destroy(&t);
    }
}

/* ---- states, and weights, of a device in host memory */

#define DENSE(name, bottom, n)                                                                     \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" bottom "' top: '" name               \
    "' inner_product_param { num_output: " n " weight_filler { type: 'xavier' } } } "
/* More weights than are in a window at one time. */
#define CHAIN                                                                                      \
    "net_param { name: 'chain' "                                                                   \
    "layer { name: 'data' type: 'DummyData' top: 'x' top: 'y' dummy_data_param { "                 \
    "shape { dim: 2 dim: 9 } shape { dim: 2 dim: 3 } data_filler { type: 'gaussian' } "            \
    "data_filler { value: 1 } } } " DENSE("a", "x", "33") DENSE("b", "a", "20")                    \
        DENSE("c", "b", "21") DENSE("d", "c", "11")                                                \
            DENSE("e", "d", "3") "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'e' bottom: " \
                                 "'y' top: 'loss' } } "

/* A table that the first and the last layer read. */
#define TIED                                                                                       \
    "net_param { name: 'tied' "                                                                    \
    "layer { name: 'data' type: 'DummyData' top: 'w' top: 'y' dummy_data_param { "                 \
    "shape { dim: 2 dim: 4 } shape { dim: 2 dim: 4 } data_filler { value: 3 } "                    \
    "data_filler { value: 5 } } } "                                                                \
    "layer { name: 'e' type: 'Embed' bottom: 'w' top: 'e' param { name: 't' } embed_param { "      \
    "num_output: 20 input_dim: 12 bias_term: false weight_filler { type: 'uniform' min: -1 } } } " \
    "layer { name: 'f' type: 'InnerProduct' bottom: 'e' top: 'f' inner_product_param { "           \
    "num_output: 20 axis: 2 weight_filler { type: 'xavier' } } } "                                 \
    "layer { name: 'h' type: 'InnerProduct' bottom: 'f' top: 'h' param { name: 't' } "             \
    "inner_product_param { num_output: 12 axis: 2 bias_term: false } } "                           \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'h' bottom: 'y' top: 'loss' "            \
    "softmax_param { axis: 2 } } } "

typedef enum { ON_DEVICE, BY_RING, BY_HOST, WEIGHTS_TOO } place;
static const char *const place_name[] = { "on the device", "by a ring", "by the host",
                                          "weights, too" };

enum {
    PIECE = 64, /* floats: of the largest weight more than a ring has */
    MANY_WEIGHTS = 2048
};

/* A weight or two in a chunk, as the job cuts it. */
static ct_status cut(void *ctx, const ct_net *net, bool *begins)
{
    (void)ctx;
    for (int i = 0; i < net->n_param; i++)
        if (net->param[i].learns) begins[i] = (i % 3 != 1);
    return CT_OK;
}

typedef struct gpu_run {
    float weight[MANY_WEIGHTS];
    int64_t count;
    ct_storage_rings rings;
} gpu_run;

static ct_status get_learned(test_solver *t, gpu_run *r)
{
    ct_train_step *step = &t->solver->step;
    const ct_net *net = ct_solver_net(t->solver);
    size_t bytes = (size_t)net->grad_count * sizeof(float);

    r->count = net->grad_count;
    assert_true(r->count <= MANY_WEIGHTS);
    if (ct_step_has_visits(step)) return ct_storage_get(&step->weights, 0, r->count, r->weight);
    return net->options.dev->to_host(NULL, r->weight, net->weight_arena, bytes);
}

/* Where CUDA is emulated copies come as late as may be, or the device's work does, so that copies
 * come as early: one after the other. */
static void come_late(place where)
{
    static const char *const late[] = { "copies", "work", "work" };
    static int turn;

    if (where == ON_DEVICE)
        unsetenv("CORTADO_EMULATED_LATE");
    else
        setenv("CORTADO_EMULATED_LATE", late[turn++ % 3], 1);
}

/* at_once: no gradient waits for others, so that they may share memory. */
static gpu_run *run_gpu(const char *net, const char *fields, int max_iter, place where,
                        bool at_once, const char *restore)
{
    ct_net_window window = {
        .cut = cut, .gradients = at_once, .weights = (where == WEIGHTS_TOO), .lag = 1, .prefetch = 1
    };
    gpu_run *r = calloc(1, sizeof(*r));
    ct_solver_options o = { .on_host = (where >= BY_HOST), .host_piece = PIECE };
    char text[4096];
    test_solver t;

    assert_non_null(r);
    come_late(where);
    /* of few slots, and of one for each chunk */
    r->rings = (ct_storage_rings){ .chunk = PIECE, .ahead = (max_iter == 3) ? 1 : 16 };
    if (where == BY_RING) {
        o.open_state = ct_storage_open_ring;
        o.open_state_ctx = &r->rings;
    }
    if ((where != ON_DEVICE) && (window.gradients || window.weights)) o.window = &window;
    snprintf(text, sizeof(text), "%s " FIELDS "%s", fields, test_solver_dir(), max_iter, "GPU",
             net);
    assert_int_equal(test_solver_create_with(text, NULL, &o, &t), CT_OK);
    for (int k = 0; k < ((restore != NULL) ? 2 : 1); k++) { /* once more, with what it knows */
        if (restore != NULL) assert_int_equal(ct_solver_restore(t.solver, restore), CT_OK);
        if (ct_solver_run(t.solver) != CT_OK) fail_msg("%s: %s fails", fields, place_name[where]);
    }
    assert_int_equal(get_learned(&t, r), CT_OK);
    test_solver_destroy(&t);
    unsetenv("CORTADO_EMULATED_LATE");
    return r;
}

/* Formulas are the same lines of C on both sides. Where kernels are loops on the host, so are bits;
 * a GPU fuses products and sums, and other roundings of a few hundred in each step are as much of
 * what weights moved by (test_cuda_graph). */
static void assert_alike(const gpu_run *a, const gpu_run *b, const char *fields, place where)
{
    float off = 0.0f, most = 0.0f;

    assert_true((a->count > 3 * PIECE) && (a->count == b->count));
    for (int64_t i = 0; i < a->count; i++) {
        assert_true(isfinite(b->weight[i]));
        off = fmaxf(off, fabsf(a->weight[i] - b->weight[i]));
        most = fmaxf(most, fabsf(a->weight[i]));
    }
    if (off > (((ct_emulated_given != NULL) || (where == BY_RING)) ? 0.0f : 1e-4f * most))
        fail_msg("%s: %s weights are %g off", fields, place_name[where], (double)off);
}

/* Each of `places`, a bit each, and the files of its set. */
static void compare_places(const char *net, const char *fields, bool at_once, unsigned places)
{
    gpu_run *here = run_gpu(net, fields, 3, ON_DEVICE, at_once, NULL), *other;
    ct_text set = set_of(3), other_set;

    for (place where = BY_RING; where <= WEIGHTS_TOO; where++) {
        if (!(places & (1u << where))) continue;
        test_solver_teardown(NULL);
        test_solver_setup(NULL);
        other = run_gpu(net, fields, 3, where, at_once, NULL);
        assert_alike(here, other, fields, where);
        other_set = set_of(3);
        if ((ct_emulated_given != NULL) && ((set.length != other_set.length) ||
                                            (memcmp(set.text, other_set.text, set.length) != 0)))
            fail_msg("%s: %s other files", fields, place_name[where]);
        if (where == BY_RING) assert_true((other->rings.up > 0) && (other->rings.down > 0));
        assert_int_equal(other->rings.host_bytes, 0); /* closed */
        free(other);
        ct_text_destroy(&other_set);
    }
    ct_text_destroy(&set);
    free(here);
}

/* Goes on from the set that each of them has left. */
static void compare_resumed(const char *fields)
{
    gpu_run *once = run_gpu(CHAIN, fields, 5, ON_DEVICE, true, NULL), *twice;
    char set[256];

    snprintf(set, sizeof(set), "%s/s_iter_3.solverstate.h5", test_solver_dir());
    for (place where = BY_RING; where <= WEIGHTS_TOO; where++) {
        free(run_gpu(CHAIN, fields, 3, where, true, NULL));
        twice = run_gpu(CHAIN, fields, 5, where, true, set);
        assert_alike(once, twice, fields, where);
        free(twice);
    }
    free(once);
}

static void test_places(void **state)
{
    enum { RING = 1 << BY_RING, HOST = 1 << BY_HOST, WEIGHTS = 1 << WEIGHTS_TOO };
    const ct_update_rule *rule;

    (void)state;
    if (ct_device_count("cuda") == 0) skip();
    setenv("CORTADO_POISON", "1", 1);
    for (int i = 0; (rule = ct_update_rule_at(i)) != NULL; i++) {
        bool momentum = (rule->reads & CT_UPDATE_MOMENTUM) != 0;
        bool ring = (rule->ratio != CT_UPDATE_RATIO_STEP);
        char fields[128];

        /* with two states, with none that is alike, with ratios */
        if ((i % 2 == 1) && (rule->ratio == CT_UPDATE_NO_RATIO)) continue;
        snprintf(fields, sizeof(fields), "type: '%s'%s%s", rule->type,
                 momentum ? " momentum: 0.9" : "", (i % 4 == 0) ? " cuda_graph: false" : "");
        compare_places(CHAIN, fields, true, (ring ? RING : 0u) | ((i % 4 == 0) ? HOST : WEIGHTS));
    }
    compare_places(CHAIN, "type: 'Adam' momentum: 0.9 clip_gradients: 0.5 iter_size: 2", false,
                   RING | WEIGHTS);
    compare_places(TIED, "type: 'Adam' momentum: 0.9", true, RING | WEIGHTS);
    compare_places(CHAIN,
                   "type: 'Adam' momentum: 0.9 precision: FP16 loss_scale: 262144 "
                   "loss_scale_window: 1",
                   false, HOST);
    test_log_holds("gradients are not finite, no weight changes");
    test_solver_teardown(NULL);
    test_solver_setup(NULL);
    compare_resumed("type: 'SGD' momentum: 0.9 average { type: EMA decay: 0.75 } test_iter: 1 "
                    "test_interval: 2");
    unsetenv("CORTADO_POISON");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_rule, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_averages, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_norms, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_chunks, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_range_kept, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_memory_changes, test_solver_setup,
                                        test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_recording, test_solver_setup, test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_places, test_solver_setup, test_solver_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
