/* Every update rule: against loops in double over odd sizes, against trajectories that PyTorch and
 * the papers' formulas give, in closed form, on several ranks, resumed. */
#include "tests/test.h"
#include "tests/solver_harness.h"

#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/rng.h"
#include "tests/golden/update_golden.h"

enum { N_WEIGHT = 8, N_STEP = 6 };

/* ---- ranges ---- */

typedef struct element { /* in double */
    double w, s[2];
} element;

/* What the rules do to one element, in double. g: regularised; plain: not. */

static void sgd(const ct_update *u, double g, double plain, element *e)
{
    (void)plain;
    e->s[0] = (double)u->momentum * e->s[0] + (double)u->rate * g;
    e->w -= e->s[0];
}

static void nesterov(const ct_update *u, double g, double plain, element *e)
{
    double m = (double)u->momentum, old = e->s[0];

    (void)plain;
    e->s[0] = m * old + (double)u->rate * g;
    e->w -= (1 + m) * e->s[0] - m * old;
}

static void adagrad(const ct_update *u, double g, double plain, element *e)
{
    (void)plain;
    e->s[0] += g * g;
    e->w -= (double)u->rate * g / (sqrt(e->s[0]) + (double)u->delta);
}

static void rmsprop(const ct_update *u, double g, double plain, element *e)
{
    double m2 = (double)u->momentum2;

    (void)plain;
    e->s[0] = m2 * e->s[0] + (1 - m2) * g * g;
    e->w -= (double)u->rate * g / (sqrt(e->s[0]) + (double)u->delta);
}

static void adadelta(const ct_update *u, double g, double plain, element *e)
{
    double m = (double)u->momentum, delta = (double)u->delta, r;

    (void)plain;
    e->s[0] = m * e->s[0] + (1 - m) * g * g;
    r = g * sqrt((e->s[1] + delta) / (e->s[0] + delta));
    e->s[1] = m * e->s[1] + (1 - m) * r * r;
    e->w -= (double)u->rate * r;
}

static void moments(const ct_update *u, double g, element *e)
{
    double m = (double)u->momentum, m2 = (double)u->momentum2;

    e->s[0] = m * e->s[0] + (1 - m) * g;
    e->s[1] = m2 * e->s[1] + (1 - m2) * g * g;
}

static void adam(const ct_update *u, double g, double plain, element *e)
{
    (void)plain;
    moments(u, g, e);
    e->w -= (double)u->rate * (double)u->correction * e->s[0] / (sqrt(e->s[1]) + (double)u->delta);
}

/* AdamW, and LAMB with its trust ratio */
static void adamw(const ct_update *u, double g, double plain, element *e)
{
    double root;

    (void)g;
    moments(u, plain, e);
    root = sqrt((double)u->correction2 * e->s[1]) + (double)u->delta;
    e->w -= (double)u->rate * (double)u->trust *
            ((double)u->correction * e->s[0] / root + (double)u->decay_l2 * e->w);
}

static void lars(const ct_update *u, double g, double plain, element *e)
{
    (void)plain;
    e->s[0] = (double)u->momentum * e->s[0] + (double)u->rate * (double)u->trust * g;
    e->w -= e->s[0];
}

static void lion(const ct_update *u, double g, double plain, element *e)
{
    double m = (double)u->momentum, m2 = (double)u->momentum2;
    double mean = m * e->s[0] + (1 - m) * plain, decay = (double)u->decay_l2 * e->w;

    (void)g;
    e->w -= (double)u->rate * (((mean == 0) ? 0 : copysign(1, mean)) + decay);
    e->s[0] = m2 * e->s[0] + (1 - m2) * plain;
}

typedef void (*reference_fn)(const ct_update *u, double g, double plain, element *e);

/* A row a rule: scripts/check_update_rules.sh looks for it. */
static const struct {
    const char *type;
    reference_fn step;
} references[] = {
    { "SGD", sgd },         { "Nesterov", nesterov }, { "AdaGrad", adagrad },
    { "RMSProp", rmsprop }, { "AdaDelta", adadelta }, { "Adam", adam },
    { "AdamW", adamw },     { "LARS", lars },         { "LAMB", adamw },
    { "Lion", lion },
};

static reference_fn reference_of(const char *type)
{
    for (size_t i = 0; i < sizeof(references) / sizeof(references[0]); i++)
        if (strcmp(references[i].type, type) == 0) return references[i].step;
    fail_msg("references[] has no row for the rule %s", type);
    return NULL;
}

typedef struct range {
    int64_t n;
    float *g, *w, *s[2];
} range;

static float draw(uint64_t key, int64_t i, float low, float high)
{
    return low + (high - low) * ct_rng_uniform_at(key, (uint64_t)i);
}

static range range_make(int64_t n)
{
    range r = { .n = n };
    float **all[] = { &r.g, &r.w, &r.s[0], &r.s[1] };

    for (int k = 0; k < 4; k++) {
        *all[k] = malloc((size_t)n * sizeof(float));
        assert_non_null(*all[k]);
        for (int64_t i = 0; i < n; i++) /* the states may be mean squares */
            (*all[k])[i] = (k < 2) ? draw((uint64_t)k, i, -2, 2) : draw((uint64_t)k, i, 0.5f, 2);
    }
    for (int64_t i = 0; i < n; i += 5) r.w[i] = 0; /* of which there is no sign */
    return r;
}

static void range_free(range *r)
{
    free(r->g);
    free(r->w);
    free(r->s[0]);
    free(r->s[1]);
}

/* The norms of a parameter that is u's range. */
static void norms_of(ct_update_ratio ratio, const ct_update *u, double *weight, double *step)
{
    const int64_t count[2] = { u->count, u->count };
    ct_square_sums s;

    assert_int_equal(ct_square_sums_open(count, 2, &s), CT_OK);
    assert_int_equal(ct_update_add_norms(ratio, u, 0, 0, &s), CT_OK);
    assert_int_equal(ct_update_norms(ratio, u, 0, &s, weight, step), CT_OK);
    ct_square_sums_close(&s);
}

static void apply(const ct_update_rule *rule, const ct_update *like, const range *r)
{
    ct_update u = *like;
    double w = 0, s = 0;

    u.count = r->n;
    u.grad = r->g;
    u.weight = r->w;
    for (int k = 0; k < rule->n_state; k++) u.state[k] = r->s[k];
    if (rule->ratio != CT_UPDATE_NO_RATIO) norms_of(rule->ratio, &u, &w, &s);
    if (rule->ratio == CT_UPDATE_RATIO_GRADIENT) {
        double want = 0;

        for (int64_t i = 0; i < r->n; i++) want += pow((double)u.scale * (double)r->g[i], 2);
        assert_true(fabs(s - want) <= 1e-6 * want);
    }
    assert_int_equal(ct_update_rule_apply(rule, &u), CT_OK);
}

/* Values are below 8; a dozen roundings, of which some are divided by a root of at least 0.5. */
static void check_range(const ct_update_rule *rule, const ct_update *like, int64_t n)
{
    reference_fn reference = reference_of(rule->type);
    range r = range_make(n), before = range_make(n);

    apply(rule, like, &r);
    for (int64_t i = 0; i < n; i++) {
        element e = { (double)before.w[i], { (double)before.s[0][i], (double)before.s[1][i] } };
        double sign = (double)(e.w > 0) - (double)(e.w < 0);
        double plain = (double)like->scale * (double)before.g[i];
        double g = plain + (double)like->decay_l2 * e.w + (double)like->decay_l1 * sign;
        double tolerance = 12 * 8 * (double)FLT_EPSILON;

        reference(like, g, plain, &e);
        if (!(fabs((double)r.w[i] - e.w) <= tolerance))
            fail_msg("%s, %d of %d: %.9g, expected %.9g", rule->type, (int)i, (int)n,
                     (double)r.w[i], e.w);
        for (int k = 0; k < rule->n_state; k++)
            assert_true(fabs((double)r.s[k][i] - e.s[k]) <= tolerance);
    }
    range_free(&r);
    range_free(&before);
}

static ct_update some_update(void)
{
    return (ct_update){ .dev = ct_device_cpu(),
                        .scale = 0.75f,
                        .rate = 0.125f,
                        .momentum = 0.75f,
                        .momentum2 = 0.875f,
                        .delta = 0.0625f,
                        .correction = 1.5f,
                        .correction2 = 1.25f,
                        .trust = 0.5f,
                        .decay_l2 = 0.25f };
}

static void test_ranges(void **state)
{
    static const int64_t sizes[] = { 1, 7, 16, 33, 4096, 4099, 70001 };
    const ct_update_rule *rule;
    ct_update u = some_update();

    (void)state;
    for (int t = 0; (rule = ct_update_rule_at(t)) != NULL; t++) {
        /* rules without a trust ratio are given 1 */
        u.trust = (rule->ratio != CT_UPDATE_NO_RATIO) ? 0.5f : 1;
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
            check_range(rule, &u, sizes[k]);
    }
    u.trust = 1;
    u.decay_l2 = 0;
    u.decay_l1 = 0.25f;
    for (int t = 0; (rule = ct_update_rule_at(t)) != NULL; t++)
        if (!rule->own) check_range(rule, &u, 33); /* Caffe's, with L1 */
}

/* Bitwise the same on one thread and on four, and the norms that LAMB sums on the way. */
static void test_threads(void **state)
{
    int threads = omp_get_max_threads();
    const ct_update_rule *rule;
    ct_update u = some_update();

    (void)state;
    for (int t = 0; (rule = ct_update_rule_at(t)) != NULL; t++) {
        range one = range_make(200003), four = range_make(200003);
        double sum[2][2] = { { 0 } };

        omp_set_num_threads(1);
        apply(rule, &u, &one);
        omp_set_num_threads(4);
        apply(rule, &u, &four);
        assert_memory_equal(one.w, four.w, (size_t)one.n * sizeof(float));
        for (int k = 0; k < rule->n_state; k++)
            assert_memory_equal(one.s[k], four.s[k], (size_t)one.n * sizeof(float));
        for (int k = 0; (rule->ratio != CT_UPDATE_NO_RATIO) && (k < 2); k++) {
            range *r = (k == 0) ? &one : &four;

            omp_set_num_threads((k == 0) ? 1 : 4);
            u.count = r->n;
            u.grad = r->g;
            u.weight = r->w;
            u.state[0] = r->s[0];
            u.state[1] = r->s[1];
            norms_of(rule->ratio, &u, &sum[k][0], &sum[k][1]);
        }
        assert_true((sum[0][0] == sum[1][0]) && (sum[0][1] == sum[1][1]));
        range_free(&one);
        range_free(&four);
    }
    omp_set_num_threads(threads);
}

/* ---- solvers ---- */

#define NET                                                                                        \
    "net_param { name: 'probe' layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param "  \
    "{ shape { dim: %d dim: 1 } } } layer { name: 'p' type: 'Probe' bottom: 'x' top: 'loss' "      \
    "param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0.5 } } } "
#define FIELDS                                                                                     \
    "base_lr: 0.1 lr_policy: 'fixed' weight_decay: 0.25 random_seed: 3 delta: 0.01 "               \
    "momentum2: 0.99 rms_decay: 0.95 local_gw_ratio: 0.02 snapshot_after_train: false "

typedef struct trajectory {
    const char *fields;
    const double (*golden)[N_WEIGHT];
} trajectory;

static const trajectory all[] = {
    { "type: 'Nesterov' momentum: 0.9", golden_nesterov },
    { "type: 'AdaGrad'", golden_adagrad },
    { "type: 'RMSProp'", golden_rmsprop },
    { "type: 'AdaDelta' momentum: 0.9", golden_adadelta },
    { "type: 'Adam' momentum: 0.9", golden_adam },
    { "type: 'AdamW' momentum: 0.9", golden_adamw },
    { "type: 'LARS' momentum: 0.9", golden_lars },
    { "type: 'LAMB' momentum: 0.9", golden_lamb },
};
enum { N_ALL = sizeof(all) / sizeof(all[0]) };

static float *element_of(ct_solver *s, int i)
{
    const ct_net *net = ct_solver_net(s);
    int p = ct_net_find_param(net, (i < 5) ? "p[0]" : "p[1]");

    assert_true(p >= 0);
    return ct_blob_data(&net->param[p].blob) + ((i < 5) ? i : i - 5);
}

typedef struct run {
    char text[1024];
    double w[N_WEIGHT];
} run;

static ct_status run_rank(thread_rank *r)
{
    run *c = r->out;
    test_solver t;
    ct_status status = test_solver_create(c->text, r, NULL, NULL, &t);

    for (int i = 0; (status == CT_OK) && (i < N_WEIGHT); i++)
        *element_of(t.solver, i) = (float)golden_start[i];
    if (status == CT_OK) status = ct_solver_run(t.solver);
    for (int i = 0; (status == CT_OK) && (i < N_WEIGHT); i++)
        c->w[i] = (double)*element_of(t.solver, i);
    test_solver_destroy(&t);
    return status;
}

/* max_iter steps on n ranks of together 6 samples. */
static void run_steps(const trajectory *t, int n, int steps, double *w)
{
    thread_ranks job = { .n = n, .run = run_rank };
    thread_rank rank[THREAD_RANKS_MAX];
    run runs[3];

    for (int r = 0; r < n; r++) {
        snprintf(runs[r].text, sizeof(runs[r].text), "%s " FIELDS "max_iter: %d " NET, t->fields,
                 steps, 6 / n);
        rank[r] = (thread_rank){ .out = &runs[r] };
    }
    assert_int_equal(thread_ranks_run(&job, rank), CT_OK);
    for (int r = 1; r < n; r++) assert_memory_equal(runs[r].w, runs[0].w, sizeof(runs[0].w));
    memcpy(w, runs[0].w, sizeof(runs[0].w));
}

/* A step rounds some 16 times, values below 4; what is divided by a mean square's root of a share
 * of 0.01 grows by at most 10; the gradient feeds a deviation back with a factor below 1. */
static void test_trajectories(void **state)
{
    double tolerance = N_STEP * 16 * 10 * 4 * (double)FLT_EPSILON / 2, worst = 0;

    (void)state;
    for (int k = 0; k < N_ALL; k++) {
        for (int steps = 1; steps <= N_STEP; steps++) {
            for (int n = 1; n <= ((steps == N_STEP) ? 3 : 1); n++) {
                double w[N_WEIGHT];

                run_steps(&all[k], n, steps, w);
                for (int i = 0; i < N_WEIGHT; i++) {
                    double off = fabs(w[i] - all[k].golden[steps - 1][i]);

                    worst = fmax(worst, off);
                    if (!(off <= tolerance))
                        fail_msg("%s, %d ranks, step %d, weight %d: %.9g, expected %.9g",
                                 all[k].fields, n, steps, i, w[i], all[k].golden[steps - 1][i]);
                }
            }
        }
    }
    print_message("worst deviation from the golden trajectories: %.2g\n", worst);
}

/* A gradient of 1 at every step; no decay. */
static double constant(const char *type, float momentum, double start, int steps, double decay)
{
    Ct__SolverParameter p = CT__SOLVER_PARAMETER__INIT;
    const ct_update_rule *rule = NULL;
    float g = 1, w = (float)start, s[2] = { 0 };
    ct_update u = { .dev = ct_device_cpu(), .count = 1, .scale = 1, .rate = 0.125f };

    assert_int_equal(ct_update_rule_find(type, &rule), CT_OK);
    p.momentum = momentum;
    p.momentum2 = 0.75f;
    p.rms_decay = 0.75f;
    p.delta = 0;
    u.decay_l2 = (float)decay;
    u.grad = &g;
    u.weight = &w;
    u.state[0] = &s[0];
    u.state[1] = &s[1];
    for (int t = 0; t < steps; t++) {
        double a = 0, b = 0;

        ct_update_rule_numbers(rule, &p, t, &u);
        if (rule->ratio != CT_UPDATE_NO_RATIO) {
            norms_of(rule->ratio, &u, &a, &b);
            u.trust = ct_update_rule_trust(rule, &p, &u, sqrt(a), sqrt(b));
        }
        assert_int_equal(ct_update_rule_apply(rule, &u), CT_OK);
    }
    return (double)w;
}

#define NEAR(_a, _b) assert_true(fabs((_a) - (_b)) <= 64 * (double)FLT_EPSILON)

static void test_closed_forms(void **state)
{
    double sum = 0, rms = 0;

    (void)state;
    for (int t = 1; t <= 10; t++) {
        sum += 1 / sqrt(t);
        rms += 1 / sqrt(1 - pow(0.75, t)); /* the mean square of ones that began at 0 */
    }
    NEAR(constant("AdaGrad", 0, 0, 10, 0), -0.125 * sum);
    NEAR(constant("RMSProp", 0, 0, 10, 0), -0.125 * rms);
    /* both means of ones, corrected, are 1 */
    NEAR(constant("Adam", 0.5f, 0, 10, 0), -0.125 * 10);
    /* w <- (1 - 0.125 * 0.5) w - 0.125, whose fixed point is -2 */
    NEAR(constant("AdamW", 0.5f, 1, 10, 0.5), 3 * pow(1 - 0.0625, 10) - 2);
    /* the gradient is as long as the weight times 0.001: rates of 0.125 * 0.001 */
    NEAR(constant("LARS", 0, 1, 10, 0), pow(1 - 0.125 * 0.001, 10));
    /* the step is as long as the weight: w <- (1 - 0.125) w */
    NEAR(constant("LAMB", 0.5f, 1, 10, 0), pow(1 - 0.125, 10));
    /* as AdamW: a constant gradient's sign is its corrected mean over its root */
    NEAR(constant("Lion", 0.5f, 1, 10, 0.5), 3 * pow(1 - 0.0625, 10) - 2);
    /* sums of a geometric row: h_t = 0.125 (2 - 2^(1-t)), steps of 1.5 h_t - 0.5 h_(t-1) */
    NEAR(constant("Nesterov", 0.5f, 0, 2, 0), -(1.5 * 0.125) - (1.5 * 0.1875 - 0.5 * 0.125));
    /* delta 0 lets nothing start */
    NEAR(constant("AdaDelta", 0.5f, 1, 10, 0), 1.0);
}

/* By hand: the mean's sign is that of the state, of the gradient, or none. */
static void test_lion_signs(void **state)
{
    const ct_update_rule *rule = NULL;
    float g[] = { -2, -4, 0, 4, 3 }, h[] = { 1, 1, 0, -1, -1 }, w[] = { 1, 1, 1, 1, 1 };
    const float want_w[] = { 0.75f, 1.25f, 1, 0.75f, 1 },
                want_h[] = { 0.625f, 0.375f, 0, -0.375f, -0.5f };
    ct_update u = { .dev = ct_device_cpu(),
                    .count = 5,
                    .scale = 1,
                    .rate = 0.25f,
                    .momentum = 0.75f,
                    .momentum2 = 0.875f,
                    .grad = g,
                    .weight = w,
                    .state = { h } };

    (void)state;
    assert_int_equal(ct_update_rule_find("Lion", &rule), CT_OK);
    assert_int_equal(ct_update_rule_apply(rule, &u), CT_OK);
    assert_memory_equal(w, want_w, sizeof(w));
    assert_memory_equal(h, want_h, sizeof(h));
}

/* ---- what is refused ---- */

static void refused(const char *fields, const char *why)
{
    char text[1024];
    test_solver t;

    snprintf(text, sizeof(text), "%s " FIELDS "max_iter: 1 " NET, fields, 2);
    test_log_all_start();
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_ERR_CONFIG);
    if (strstr(test_log_all(), why) == NULL) fail_msg("\"%s\" is not in: %s", why, test_log_all());
    test_log_all_stop();
    test_solver_destroy(&t);
}

static void test_refused(void **state)
{
    (void)state;
    refused("type: 'AdaGrad' momentum: 0.9", "type \"AdaGrad\" has none: leave it out");
    refused("type: 'RMSProp' momentum: 0.9", "type \"RMSProp\" has none");
    refused("type: 'Adam' momentum: 1", "needs momentum of at least 0 and below 1, not 1");
    refused("type: 'AdamW'", "type \"AdamW\" needs momentum; 0.9 is usual");
    refused("type: 'LARS'", "type \"LARS\" needs momentum");
    refused("type: 'LAMB' momentum: 0.9 regularization_type: 'L1'", "decay of regularization_type "
                                                                    "L2 only");
    refused("type: 'adam'", "did you mean \"Adam\"");
    refused("average { type: EMA decay: 1 }", "average.decay is 1");
    refused("average { type: SWA interval: 0 }", "average.interval is 0");
}

/* 1-bit Adam: the mean square stays, and its correction is that of the updates that it has had. */
static void test_frozen(void **state)
{
    static const char *const type[] = { "Adam", "AdamW" };
    Ct__SolverParameter p = CT__SOLVER_PARAMETER__INIT;
    const ct_update_rule *rule;

    (void)state;
    p.momentum = 0.75f;
    p.momentum2 = 0.875f;
    p.delta = 0.0625f;
    for (int k = 0; k < 2; k++) {
        ct_update u = some_update();
        double first = 1 / (1 - pow(0.75, 12)), second = 1 / (1 - pow(0.875, 5));
        range r = range_make(4099), before = range_make(4099);

        assert_int_equal(ct_update_rule_find(type[k], &rule), CT_OK);
        assert_true(ct_update_rule_freezes(type[k]));
        ct_update_rule_numbers(rule, &p, 11, &u);
        ct_update_rule_freeze(rule, &p, 11, 5, &u);
        NEAR(u.correction, (k == 0) ? first / sqrt(second) : first);
        NEAR(u.correction2, second);
        check_range(rule, &u, 4099);
        apply(rule, &u, &r);
        assert_memory_equal(r.s[1], before.s[1], 4099 * sizeof(float));
        range_free(&r);
        range_free(&before);
    }
    assert_false(ct_update_rule_freezes("SGD"));
    assert_false(ct_update_rule_freezes("LAMB"));
}

/* Blocks of 1024 have floors of their own; a second time nothing changes. */
static void test_floor(void **state)
{
    enum { N = 2500 };
    float v[N], again[N];

    (void)state;
    for (int i = 0; i < N; i++) v[i] = (i % 3 == 0) ? 0.0f : draw(3, i, 0, 1e-3f);
    v[5] = 4.0f;
    v[1030] = 0.25f;
    for (int i = 2048; i < N; i++) v[i] = 0;
    memcpy(again, v, sizeof(v));
    ct_update_floor_squares(N, v);
    for (int i = 0; i < N; i++) {
        float least = (i < 1024) ? 4e-4f : (i < 2048) ? 0.25e-4f : 0.0f;

        NEAR(v[i], (again[i] > least) ? again[i] : least);
    }
    memcpy(again, v, sizeof(v));
    ct_update_floor_squares(N, v);
    assert_memory_equal(v, again, sizeof(v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frozen),       cmocka_unit_test(test_floor),
        cmocka_unit_test(test_ranges),       cmocka_unit_test(test_threads),
        cmocka_unit_test(test_trajectories), cmocka_unit_test(test_closed_forms),
        cmocka_unit_test(test_lion_signs),   cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
