/* Type OptEx as a solver runs it: against the rule alone and against larger batches, which it is in
 * two cases; sets that are gone on from; what is refused. Rounds themselves: test_optex_round.c. */
#include "tests/test.h"
#include "tests/solver_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/solver/optex_guard.h"
#include "framework/solver/solver_private.h"

/* A student of a fixed teacher, with dropout. */
#define NET                                                                                        \
    "net_param { name: 'school' "                                                                  \
    "layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 6 dim: 4 } "  \
    "data_filler { type: 'gaussian' } } } "                                                        \
    "layer { name: 'teacher' type: 'InnerProduct' bottom: 'x' top: 'y' param { lr_mult: 0 } "      \
    "param { lr_mult: 0 } inner_product_param { num_output: 3 weight_filler { type: 'constant' "   \
    "value: 1 } } } "                                                                              \
    "layer { name: 'drop' type: 'Dropout' bottom: 'x' top: 'x' } "                                 \
    "layer { name: 'student' type: 'InnerProduct' bottom: 'x' top: 'z' inner_product_param { "     \
    "num_output: 3 weight_filler { type: 'xavier' } } } "                                          \
    "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'z' bottom: 'y' top: 'loss' } } "
#define FIELDS                                                                                     \
    "lr_policy: 'fixed' deterministic: true random_seed: 7 snapshot_prefix: '%s/s' "               \
    "snapshot_after_train: false max_iter: %d %s "

enum { MOST = 64 };

typedef struct result {
    float weight[MOST];
    int64_t count;
    double loss;
    int64_t sent, kept, grad_count; /* bytes of OptEx; floats that learn */
} result;

/* What version 0.1.0 wrote: each rank's file has whole arrays. Those of one rank, by parameter. */
enum { MOST_PARAM = 4, MOST_STATE = 20 };

typedef struct older {
    ct_sync_states now; /* of the rank that writes */
    float (*whole)[MOST_STATE][MOST];
} older;

static bool get_older(void *ctx, int param, int k, ct_sync_state *out)
{
    older *o = ctx;

    if (!ct_sync_states_get(&o->now, param, k, out)) return false;
    if (out->share) {
        out->count = (param == 0) ? 12 : 3; /* 3 x 4 weights, 3 biases */
        out->data = o->whole[param][k];
    }
    return true;
}

typedef struct job {
    const char *fields;
    int max_iter;
    const int *restore;               /* NULL, or the iteration of a set to go on from */
    float (*whole)[MOST_STATE][MOST]; /* NULL, or what one rank keeps, or several write as it is */
} job;

/* As one rank has them now. */
static void keep_whole(const ct_solver *s, float (*whole)[MOST_STATE][MOST])
{
    ct_sync_state e = { 0 };

    for (int i = 0; i < 2; i++)
        for (int k = 0; ct_sync_states_get(&s->exchange.states, i, k, &e); k++) {
            assert_true((k < MOST_STATE) && (e.count <= MOST));
            memcpy(whole[i][k], e.data, (size_t)e.count * sizeof(float));
        }
}

static ct_status run_rank(const job *j, thread_rank *rank, result *out)
{
    char text[2048], file[256];
    test_solver t;
    const ct_net *net;
    ct_status status;
    older writer;

    snprintf(text, sizeof(text), FIELDS NET, test_solver_dir(), j->max_iter, j->fields);
    status = test_solver_create(text, rank, NULL, NULL, &t);
    if ((status == CT_OK) && (j->restore != NULL)) {
        snprintf(file, sizeof(file), "%s/s_iter_%d.solverstate.h5", test_solver_dir(), *j->restore);
        status = ct_solver_restore(t.solver, file);
    }
    if ((status == CT_OK) && (j->whole != NULL) && (rank != NULL)) {
        writer = (older){ t.solver->exchange.states, j->whole };
        t.solver->exchange.states = (ct_sync_states){ &writer, get_older, NULL };
    }
    if (status == CT_OK) status = ct_solver_run(t.solver);
    if ((status == CT_OK) && (j->whole != NULL) && (rank == NULL)) keep_whole(t.solver, j->whole);
    if (status == CT_OK) {
        net = ct_solver_net(t.solver);
        out->count = net->weight_count;
        memcpy(out->weight, net->weight_arena, (size_t)out->count * sizeof(float));
        out->grad_count = net->grad_count;
        if (t.solver->optex != NULL) {
            out->sent = ct_optex_bytes_sent(t.solver->optex);
            out->kept = ct_optex_bytes(t.solver->optex);
        }
        status = ct_solver_loss(t.solver, &out->loss);
    }
    test_solver_destroy(&t);
    return status;
}

static void run(const char *fields, int max_iter, const int *restore, result *out)
{
    const job j = { fields, max_iter, restore, NULL };

    assert_int_equal(run_rank(&j, NULL, out), CT_OK);
}

static ct_status run_one_of_several(thread_rank *r)
{
    return run_rank(r->job->ctx, r, r->out);
}

/* out[n] */
static ct_status run_several(int n, const char *fields, int max_iter, const int *restore,
                             result *out)
{
    job j = { fields, max_iter, restore, NULL };
    thread_ranks ranks = { .n = n, .run = run_one_of_several, .ctx = &j };
    thread_rank rank[THREAD_RANKS_MAX] = { 0 };

    for (int r = 0; r < n; r++) rank[r].out = &out[r];
    return thread_ranks_run(&ranks, rank);
}

static void assert_same(const result *a, const result *b)
{
    assert_true((a->count > 0) && (a->count == b->count));
    assert_memory_equal(a->weight, b->weight, (size_t)a->count * sizeof(float));
}

static bool same(const result *a, const result *b)
{
    return memcmp(a->weight, b->weight, (size_t)a->count * sizeof(float)) == 0;
}

static void test_one_point_is_the_rule(void **state)
{
    static const char *const rule[] = { "SGD", "Nesterov", "Adam", "AdamW" };

    (void)state;
    for (size_t i = 0; i < sizeof(rule) / sizeof(rule[0]); i++) {
        char plain[256], optex[256];
        result want, got;

        snprintf(plain, sizeof(plain), "type: '%s' momentum: 0.9 base_lr: 0.02", rule[i]);
        snprintf(optex, sizeof(optex),
                 "type: 'OptEx' optex { base_type: '%s' parallel: 1 predictor: KERNEL } momentum: "
                 "0.9 base_lr: 0.02",
                 rule[i]);
        run(plain, 7, NULL, &want);
        run(optex, 7, NULL, &got);
        assert_same(&want, &got);
        assert_true(want.loss == got.loss);
    }
}

/* Without momentum, decay and prediction N steps are one of the N batches' sum. iter_size has their
 * mean, so N times the rate. */
static void test_no_prediction_is_a_larger_batch(void **state)
{
    result want, got;

    (void)state;
    run("type: 'SGD' base_lr: 0.06 iter_size: 3", 5, NULL, &want);
    run("type: 'OptEx' optex { parallel: 3 predictor: NONE guard: false } base_lr: 0.02", 5, NULL,
        &got);
    assert_true((got.count > 0) && (got.count == want.count));
    for (int64_t i = 0; i < want.count; i++)
        assert_true(fabsf(got.weight[i] - want.weight[i]) < 2e-6f);
    assert_true(fabs(want.loss - got.loss) < 1e-6 * want.loss);
    test_log_holds("an iteration is a round of 3 steps of SGD, 15 in all");
}

static const char *const ways[] = {
    "optex { guard: false base_type: 'Adam' parallel: 3 predictor: KERNEL history: 5 noise: 0.01 } "
    "momentum: "
    "0.9 "
    "base_lr: 0.02",
    "optex { guard: false base_type: 'Nesterov' parallel: 4 predictor: SECANT corrector: "
    "LAST_POINT } momentum: "
    "0.5 base_lr: 0.02 weight_decay: 0.01",
    "optex { guard: false parallel: 2 } momentum: 0.9 base_lr: 0.02 average_loss: 3",
    "optex { guard: false parallel: 3 predictor: NONE } momentum: 0.9 base_lr: 0.02",
    ("optex { guard: false parallel: 3 predictor: KERNEL kernel: RBF prior_mean: ZERO "
     "length_scale: 0.5 noise: 0.1 } base_lr: 0.02"),
    "optex { parallel: 4 guard: true } momentum: 0.9 base_lr: 0.02",
    ("optex { base_type: 'Adam' parallel: 6 guard: true predictor: KERNEL noise: 0.1 } "
     "momentum: 0.9 base_lr: 0.02"),
    "optex { guard: false parallel: 4 } clip_gradients: 0.5 momentum: 0.9 base_lr: 0.02",
};

static int points_of(const char *way)
{
    return atoi(strstr(way, "parallel: ") + strlen("parallel: "));
}

static void test_resume(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        for (int at = 1; at < 5; at += 3) {
            char fields[512];
            result want, got, between;

            snprintf(fields, sizeof(fields), "type: 'OptEx' %s", ways[i]);
            run(fields, 8, NULL, &want);
            snprintf(fields, sizeof(fields), "type: 'OptEx' %s snapshot: %d", ways[i], at);
            run(fields, at, NULL, &between);
            assert_false(same(&between, &want));
            snprintf(fields, sizeof(fields), "type: 'OptEx' %s", ways[i]);
            run(fields, 8, &at, &got);
            assert_same(&want, &got);
            assert_true(want.loss == got.loss);
        }
    }
}

#define LAST_OF(_history)                                                                          \
    "type: 'OptEx' optex { guard: false parallel: 3 history: " _history " } base_lr: 0.02 "
#define KERNEL_OF(_more)                                                                           \
    "type: 'OptEx' optex { guard: false parallel: 3 predictor: KERNEL " _more " } base_lr: 0.02 "

/* A smaller history takes the newest points; none begins empty, and says so. */
static void test_resume_of_another_history(void **state)
{
    static const int at = 4;
    result want, got;

    (void)state;
    run(LAST_OF("8"), 8, NULL, &want);
    run(LAST_OF("8") "snapshot: 4", at, NULL, &got);
    run(LAST_OF("1"), 8, &at, &got);
    assert_same(&want, &got);
    run(KERNEL_OF(""), 8, NULL, &want);
    run(KERNEL_OF("snapshot_history: false") "snapshot: 4", at, NULL, &got);
    run(KERNEL_OF(""), 8, &at, &got);
    assert_false(same(&want, &got));
    test_log_holds("the set has no history that fits, so it begins empty");
}

static void test_resume_of_other_rounds(void **state)
{
    static const int at = 4;
    result got, plain;

    (void)state;
    run(LAST_OF("8") "snapshot: 4", at, NULL, &got);
    run("type: 'OptEx' optex { parallel: 2 guard: false } base_lr: 0.02", 6, &at, &got);
    test_log_holds("the snapshot was made with optex.parallel 3, this run has 2: the rule counts 2 "
                   "steps an iteration from here on");
    test_log_holds("a global batch of 18, this run has 12");
    run("type: 'SGD' base_lr: 0.02", 6, &at, &plain); /* the rule alone goes on, too */
    assert_true(isfinite(plain.loss));
}

/* ---- the guard */

/* The same batch in each step, whose curvature is 2. */
#define QUIET                                                                                      \
    "net_param { layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: " \
    "6 dim: 4 } data_filler { type: 'constant' value: 0.5 } } } "                                  \
    "layer { name: 'teacher' type: 'InnerProduct' bottom: 'x' top: 'y' param { lr_mult: 0 } "      \
    "param { lr_mult: 0 } inner_product_param { num_output: 3 weight_filler { type: 'constant' "   \
    "value: 1 } } } "                                                                              \
    "layer { name: 'student' type: 'InnerProduct' bottom: 'x' top: 'z' inner_product_param { "     \
    "num_output: 3 weight_filler { type: 'xavier' } } } "                                          \
    "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'z' bottom: 'y' top: 'loss' } } "          \
    "lr_policy: 'fixed' random_seed: 7 snapshot_after_train: false max_iter: 9 display: 1 "

static void run_quiet(const char *fields, result *out)
{
    char text[2048];
    test_solver t;

    snprintf(text, sizeof(text), QUIET "%s", fields);
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    out->count = ct_solver_net(t.solver)->weight_count;
    memcpy(out->weight, ct_solver_net(t.solver)->weight_arena, (size_t)out->count * sizeof(float));
    test_solver_destroy(&t);
}

/* Steps so large that each turns the gradient round: no estimate is right, and the guard stays with
 * one step by all batches, which is the rule with iter_size. */
static void test_guard_takes_the_larger_batch(void **state)
{
    result want, got;

    (void)state;
    run_quiet("base_lr: 0.9 iter_size: 4", &want);
    run_quiet("type: 'OptEx' optex { parallel: 4 guard: true } base_lr: 0.225", &got);
    assert_same(&want, &got);
    test_log_holds("OptEx: 9 rounds, 9 steps, 8 points known");
    test_log_holds("OptEx: 1 steps by 4 batches, noise share 0.00, cosines of estimates -1.00");
    run_quiet("type: 'OptEx' optex { parallel: 4 guard: false } base_lr: 0.225", &got);
    assert_false(same(&want, &got));
}

/* Small ones, without noise: estimates are right. Two rounds find that out. The guard is the
 * default. */
static void test_guard_takes_all_steps(void **state)
{
    result got;

    (void)state;
    run_quiet("type: 'OptEx' optex { parallel: 4 } base_lr: 0.01", &got);
    test_log_holds("OptEx: 2 rounds, 2 steps, 2 points known");
    test_log_holds("OptEx: 9 rounds, 30 steps, 8 points known");
    test_log_holds("OptEx: 4 steps by 1 batches, noise share 0.00, cosines of estimates 1.00");
}

/* error ((n - 1) / n)^2 <= noise n / 12 + signal / 4 */
static void test_guard_chooses(void **state)
{
    static const struct {
        float noise, signal, error;
        int steps;
    } row[] = {
        { NAN, 1, 0, 1 },     { 1, 1, NAN, 1 },
        { 0, 1, 0, 12 },      { 0, 1, 0.29f, 12 }, /* 0.29 (11 / 12)^2 = 0.244 */
        { 0, 1, 0.3f, 6 },                         /* 0.252; of 6 steps 0.208 */
        { 0, 1, 0.37f, 4 },                        /* of 6 steps 0.257; of 4 0.208 */
        { 0, 1, 0.9f, 2 },                         /* of 3 steps 0.4; of 2 0.225 */
        { 0, 1, 1.01f, 1 },   { 12, 1, 14, 12 },   /* 11.76 and 12.25 */
        { 12, 1, 15, 1 }, /* 12.6; of 6 steps 10.4 and 6.25; of 2 3.75 and 2.25 */
        { -1, 1, 0.29f, 12 }, { 1, -1, 1.18f, 12 },
        { 1, -1, 1.2f, 1 },   { 1, 1, -5, 12 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        const ct_optex_guard g = { 12, row[i].noise, row[i].signal, row[i].error };

        if (ct_optex_guard_steps(&g) != row[i].steps)
            fail_msg("row %zu: %d steps, expected %d", i, ct_optex_guard_steps(&g), row[i].steps);
        for (int64_t round = 0; round < 33; round++)
            assert_true(ct_optex_guard_probes(&g, round) ==
                        ((row[i].steps == 12) && (round % 16 == 0)));
    }
}

/* The first value is the mean; then a fifth of the newest comes in. Of errors, what noise adds does
 * not count. */
static void test_guard_notes(void **state)
{
    ct_optex_guard g = ct_optex_guard_open(4);

    (void)state;
    assert_true(ct_optex_guard_noise_share(&g) < 0);
    ct_optex_guard_note(&g, &(ct_optex_measure){ .batches = 1, .noise = -1, .square = 9 });
    assert_true(isnan(g.noise) && isnan(g.signal) && isnan(g.error));
    ct_optex_guard_note(&g,
                        &(ct_optex_measure){ .batches = 4, .noise = 8, .square = 5, .error = -1 });
    assert_true((g.noise == 8) && (g.signal == 3) && isnan(g.error));
    assert_int_equal(ct_optex_guard_steps(&g), 1);
    ct_optex_guard_note(&g, &(ct_optex_measure){
                                .batches = 2, .noise = 13, .square = 7, .error = 10, .echo = 0.5 });
    assert_true(fabsf(g.noise - 9) < 1e-6f);     /* 8 + (13 - 8) / 5 */
    assert_true(fabsf(g.signal - 2.9f) < 1e-6f); /* 3 + (7 - 4.5 - 3) / 5 */
    assert_true(fabsf(g.error - 3.25f) < 1e-6f); /* 10 - 4.5 x 1.5 */
    ct_optex_guard_note(&g, &(ct_optex_measure){ .batches = 1, .noise = NAN, .error = INFINITY });
    assert_true(isfinite(g.noise) && isfinite(g.error));
    assert_true(fabs(ct_optex_guard_noise_share(&g) - 9 / (9 + (double)g.signal)) < 1e-6);
}

static void test_what_is_refused(void **state)
{
    static const char *const text[][2] = {
        { "type: 'Optex'", "type \"Optex\" is unknown; did you mean \"OptEx\"?" },
        { "optex { }", "optex is given, but type is \"SGD\": it is for \"OptEx\"" },
        { "type: 'OptEx' optex { base_type: 'Adamm' }",
          "optex.base_type \"Adamm\" is unknown; did you mean \"Adam\"?" },
        { "type: 'OptEx' optex { base_type: 'OptEx' }", "optex.base_type \"OptEx\" is unknown" },
        { "type: 'OptEx' optex { base_type: 'AdaGrad' } momentum: 0.9",
          "momentum is 0.9, but type \"AdaGrad\" has none" },
        { "type: 'OptEx' optex { parallel: 0 }", "optex.parallel is 0, needs 1 to 64" },
        { "type: 'OptEx' optex { history: 65 }", "optex.history is 65, needs 1 to 64" },
        { "type: 'OptEx' optex { predictor: KERNEL noise: -1 }",
          "optex.noise is -1, needs at least 0" },
        { "type: 'OptEx' optex { predictor: KERNEL length_scale: nan }",
          "optex.length_scale is nan, needs at least 0" },
        { "type: 'OptEx' optex { noise: 0.1 }", "optex.noise is for predictor KERNEL alone" },
        { "type: 'OptEx' iter_size: 2", "type \"OptEx\" and iter_size above 1 do not go together" },
        { "type: 'OptEx' reproducible_sum: true", "\"OptEx\" and reproducible_sum" },
        { "type: 'OptEx' precision: FP16", "\"OptEx\" and precision FP16" },
        { "type: 'OptEx' optex { base_type: 'LAMB' } momentum: 0.9",
          "\"OptEx\" and a base with trust ratios" },
        { "type: 'OptEx' average { type: EMA }", "\"OptEx\" and average" },
        { "type: 'OptEx' compression { type: INT8 }", "\"OptEx\" and compression" },
        { "type: 'OptEx' memory { zero: 1 }", "\"OptEx\" and memory { }" },
        { "type: 'OptEx' outer { local_iter: 2 }", "\"OptEx\" and outer" },
        { "type: 'OptEx' snapshot_async: true", "\"OptEx\" and snapshot_async" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
        char all[2048];
        Ct__SolverParameter *p;

        snprintf(all, sizeof(all), FIELDS "base_lr: 0.02 " NET, test_solver_dir(), 3, text[i][0]);
        p = test_solver_parse(all);
        assert_int_equal(ct_solver_check(p, NULL), CT_ERR_CONFIG);
        ct__solver_parameter__free_unpacked(p, NULL);
        test_log_holds(text[i][1]);
    }
}

/* Estimates by distances, and norms, depend on the order of sums over the ranks, which is rounding
 * of doubles.
 */
static bool is_exact(const char *way)
{
    return (strstr(way, "KERNEL") == NULL) && (strstr(way, "SECANT") == NULL) &&
           (strstr(way, "clip") == NULL);
}

static void assert_alike(const char *way, const result *a, const result *b)
{
    if (is_exact(way)) {
        assert_same(a, b);
        return;
    }
    assert_true((a->count > 0) && (a->count == b->count));
    for (int64_t i = 0; i < a->count; i++)
        assert_true(fabsf(a->weight[i] - b->weight[i]) <= 1e-5f * (1 + fabsf(a->weight[i])));
}

/* Ranks share out points and what is remembered, and their number changes what rounding does at
 * most; also from set to set. As many ranks go on bit for bit. */
static void test_ranks(void **state)
{
    static const int at = 3;

    (void)state;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        for (int n = 2; n <= 4; n++) {
            char fields[512], keeps[600];
            result want, got[THREAD_RANKS_MAX], again[THREAD_RANKS_MAX];

            snprintf(fields, sizeof(fields), "type: 'OptEx' %s", ways[i]);
            snprintf(keeps, sizeof(keeps), "%s snapshot: %d", fields, at);
            if (points_of(ways[i]) % n != 0) {
                assert_int_equal(run_several(n, fields, 7, NULL, got), CT_ERR_CONFIG);
                test_log_holds((n % points_of(ways[i]) == 0)
                                   ? "nobody has told this solver of ranks"
                                   : "ranks do not share out");
                continue;
            }
            run(fields, 7, NULL, &want);
            assert_int_equal(run_several(n, fields, 7, NULL, got), CT_OK);
            for (int r = 0; r < n; r++) assert_alike(ways[i], &want, &got[r]);
            for (int r = 1; r < n; r++) assert_same(&got[0], &got[r]);
            assert_true(fabs(want.loss - got[0].loss) < 1e-5 * want.loss);
            assert_int_equal(run_several(n, keeps, at, NULL, again), CT_OK);
            assert_int_equal(run_several(n, fields, 7, &at, again), CT_OK);
            for (int r = 0; r < n; r++) assert_same(&got[r], &again[r]);
            run(fields, 7, &at, &got[0]);
            assert_alike(ways[i], &want, &got[0]);
            run(keeps, at, NULL, &got[0]);
            assert_int_equal(run_several(n, fields, 7, &at, got), CT_OK);
            for (int r = 0; r < n; r++) assert_alike(ways[i], &want, &got[r]);
        }
    }
}

/* Shares of six ranks are cut again for four, of which none has what one of the six had. */
static void test_shares_are_cut_again(void **state)
{
    static const char fields[] =
        "type: 'OptEx' optex { guard: false base_type: 'Adam' parallel: 12 predictor: "
        "KERNEL noise: 0.1 history: 20 } momentum: 0.9 base_lr: 0.02";
    static const int at = 3;
    char keeps[512];
    result want, got[THREAD_RANKS_MAX];

    (void)state;
    run(fields, 6, NULL, &want);
    snprintf(keeps, sizeof(keeps), "%s snapshot: %d", fields, at);
    assert_int_equal(run_several(6, keeps, at, NULL, got), CT_OK);
    assert_int_equal(run_several(4, fields, 6, &at, got), CT_OK);
    for (int r = 0; r < 4; r++) assert_alike(fields, &want, &got[r]);
}

/* Of four ranks, two have parts of one parameter. */
static void test_older_sets(void **state)
{
    static float whole[MOST_PARAM][MOST_STATE][MOST];
    static const char fields[] =
        "type: 'OptEx' optex { guard: false parallel: 4 } momentum: 0.9 base_lr: 0.02";
    static const int at = 3;
    char keeps[512];
    job j = { fields, at, NULL, whole };
    thread_ranks ranks = { .n = 4, .run = run_one_of_several, .ctx = &j };
    thread_rank rank[THREAD_RANKS_MAX] = { 0 };
    result want, got[THREAD_RANKS_MAX];

    (void)state;
    run(fields, 7, NULL, &want);
    assert_int_equal(run_rank(&j, NULL, &got[0]), CT_OK);
    snprintf(keeps, sizeof(keeps), "%s snapshot: %d", fields, at);
    j.fields = keeps;
    for (int r = 0; r < 4; r++) rank[r].out = &got[r];
    assert_int_equal(thread_ranks_run(&ranks, rank), CT_OK);
    for (int n = 1; n <= 4; n *= 2) {
        assert_int_equal(run_several(n, fields, 7, &at, got), CT_OK);
        for (int r = 0; r < n; r++) assert_same(&want, &got[r]);
    }
}

/* What each rank keeps is its share of what one rank does; the shares differ by a float an array.
 * What a round sends: gradients of its batches and the weights go to all others, and of the points
 * all but the first. */
static void test_shares(void **state)
{
    enum { POINTS = 4, ROUNDS = 5, ARRAYS = 2 * POINTS + 2 * 2 + 2 * 8 };
    static const char fields[] = "type: 'OptEx' optex { guard: false base_type: 'Adam' parallel: 4 "
                                 "history: 8 } momentum: 0.9 "
                                 "base_lr: 0.02";

    (void)state;
    for (int n = 1; n <= POINTS; n *= 2) {
        result got[THREAD_RANKS_MAX];
        int64_t kept = 0, sent = 0, all, parts;

        assert_int_equal(run_several(n, fields, ROUNDS, NULL, got), CT_OK);
        all = got[0].grad_count;
        for (int r = 0; r < n; r++) {
            assert_true(got[r].kept <= 4 * ARRAYS * ((all + n - 1) / n));
            kept += got[r].kept;
            sent += got[r].sent;
        }
        assert_int_equal(kept, 4 * ARRAYS * all);
        parts = ROUNDS * (POINTS + n) + (ROUNDS - 1) * (POINTS - 1); /* points of the first are w */
        assert_int_equal(sent, 4 * parts * all - 4 * parts * all / n);
    }
}

/* What `check` says that a rank keeps: states, points, and states of the chain; points and
 * gradients of the history. */
static void test_bytes(void **state)
{
    static const struct {
        const char *text;
        int arrays;
    } row[] = {
        { "type: 'OptEx' optex { base_type: 'Adam' parallel: 4 history: 8 }", 2 + 8 + 4 + 16 },
        { "type: 'OptEx' optex { parallel: 3 predictor: NONE }", 1 + 6 + 2 },
        { "type: 'OptEx' optex { base_type: 'Adam' parallel: 1 }", 2 },
        { "type: 'Adam'", 2 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        char text[2048];
        test_solver t;

        snprintf(text, sizeof(text), FIELDS "base_lr: 0.02 momentum: 0.9 " NET, test_solver_dir(),
                 3, row[i].text);
        assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
        assert_int_equal(ct_update_rule_state_bytes(t.param, 100), 400 * row[i].arrays);
        assert_int_equal(ct_solver_state_bytes(t.solver),
                         ct_update_rule_state_bytes(t.param, ct_solver_net(t.solver)->grad_count));
        test_solver_destroy(&t);
    }
}

int main(void)
{
#define TEST(_f) cmocka_unit_test_setup_teardown(_f, test_solver_setup, test_solver_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_one_point_is_the_rule),
        TEST(test_no_prediction_is_a_larger_batch),
        TEST(test_resume),
        TEST(test_resume_of_another_history),
        TEST(test_resume_of_other_rounds),
        TEST(test_guard_takes_the_larger_batch),
        TEST(test_guard_takes_all_steps),
        TEST(test_guard_chooses),
        TEST(test_guard_notes),
        TEST(test_what_is_refused),
        TEST(test_ranks),
        TEST(test_shares_are_cut_again),
        TEST(test_older_sets),
        TEST(test_shares),
        TEST(test_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
