/* Rounds of OptEx against their definition in double: the rules, the chain of points and both
 * correctors written down again, on a net whose gradient is a known function. */
#include "tests/test.h"
#include "tests/solver_harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "framework/solver/optex_round.h"
#include "framework/solver/solver_private.h"

enum { N_WEIGHT = 8, N_ROUND = 6, ROOM = 5, MOST_POINTS = 4 };

#define RATE 0.1
#define NET                                                                                        \
    "net_param { name: 'probe' layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param "  \
    "{ shape { dim: 4 dim: 1 } } } layer { name: 'p' type: 'Probe' bottom: 'x' top: 'loss' "       \
    "param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0.5 } } } "                 \
    "random_seed: 3 snapshot_after_train: false max_iter: 6 base_lr: 0.1 lr_policy: 'fixed' "

typedef struct spec { /* what the text says, and the round */
    const char *fields;
    bool adam;
    double momentum, decay;
    double clip; /* 0: none */
    int iter_size, parallel;
    ct_correction correction;
    ct_prediction prediction;
    int steps[N_ROUND]; /* of each round; 0: parallel */
    int probe;          /* a round that is one; 0: none */
} spec;

/* element i of the two weights, 5 and 3 long */
static int weight_of(int i)
{
    return (i < 5) ? 0 : 1;
}

/* ---- the definition */

typedef struct place { /* weights and states */
    double w[N_WEIGHT], m[N_WEIGHT], v[N_WEIGHT];
} place;

typedef struct run {
    place now;
    ct_gradient_predictor known;
    double last[N_WEIGHT]; /* the newest gradient, which LAST takes without asking the predictor */
    int64_t updates;
    int batches; /* of a step of the last round */
    ct_optex_measure want;
} run;

/* The sum over the micro-batches of a batch. */
static void evaluate(const spec *c, const double *w, int64_t step, double *g)
{
    for (int i = 0; i < N_WEIGHT; i++) {
        int k = weight_of(i);

        g[i] = 0;
        for (int b = 0; b < c->iter_size; b++)
            g[i] += probe_gradient(k, i - 5 * k, step * c->iter_size + b, w[i]);
    }
}

static double product(const double *a, const double *b)
{
    double sum = 0;

    for (int i = 0; i < N_WEIGHT; i++) sum += a[i] * b[i];
    return sum;
}

static void apply(const spec *c, place *p, const double *sum, int64_t step, double base)
{
    static const double lr_mult[] = { 1, 2 }, decay_mult[] = { 1, 0.5 };
    double b2 = 0.999, t = (double)step + 1, part = 1;
    double norm = sqrt(product(sum, sum)) / c->iter_size;

    if ((c->clip > 0) && (norm > c->clip)) part = c->clip / norm;
    for (int i = 0; i < N_WEIGHT; i++) {
        int k = weight_of(i);
        double rate = base * lr_mult[k];
        double g = part * sum[i] / c->iter_size + c->decay * decay_mult[k] * p->w[i];

        if (!c->adam) {
            p->m[i] = rate * g + c->momentum * p->m[i];
            p->w[i] -= p->m[i];
            continue;
        }
        p->m[i] = c->momentum * p->m[i] + (1 - c->momentum) * g;
        p->v[i] = b2 * p->v[i] + (1 - b2) * g * g;
        p->w[i] -= rate * sqrt(1 - pow(b2, t)) / (1 - pow(c->momentum, t)) * p->m[i] /
                   (sqrt(p->v[i]) + 1e-8);
    }
}

static void remember(ct_gradient_predictor *known, const double *z, const double *g)
{
    float point[N_WEIGHT], gradient[N_WEIGHT];
    float *at[2] = { point, gradient };
    int added = 0;

    for (int i = 0; i < N_WEIGHT; i++) {
        point[i] = (float)z[i];
        gradient[i] = (float)g[i];
    }
    assert_int_equal(ct_gradient_predictor_add(known, 1, &at[0], &at[1], &added), CT_OK);
    assert_int_equal(added, 1);
}

static void estimate(ct_gradient_predictor *known, const double *z, double *g)
{
    float point[N_WEIGHT], gradient[N_WEIGHT];
    double c[CT_PREDICTOR_ROOM];

    for (int i = 0; i < N_WEIGHT; i++) point[i] = (float)z[i];
    assert_int_equal(ct_gradient_predictor_weigh(known, point, c), CT_OK);
    ct_gradient_predictor_combine(known, c, gradient);
    for (int i = 0; i < N_WEIGHT; i++) g[i] = (double)gradient[i];
}

/* The variance of vectors that have one mean: the sum over the groups of `together` of them. */
static double variance(double (*g)[N_WEIGHT], int n, int together)
{
    double sum = 0;

    for (int from = 0; from < n; from += together) {
        double mean[N_WEIGHT] = { 0 }, apart[N_WEIGHT];

        for (int b = from; b < from + together; b++)
            for (int i = 0; i < N_WEIGHT; i++) mean[i] += g[b][i] / together;
        for (int b = from; b < from + together; b++) {
            for (int i = 0; i < N_WEIGHT; i++) apart[i] = g[b][i] - mean[i];
            sum += product(apart, apart);
        }
    }
    return sum / (n - n / together);
}

/* What it estimates at a point; what noise of a gradient the estimate has. */
static double guess_at(const spec *c, run *r, int64_t round, const double *w, double *guess)
{
    double coefficient[CT_PREDICTOR_ROOM], echo = 0;
    float point[N_WEIGHT];

    memset(guess, 0, N_WEIGHT * sizeof(*guess));
    if ((c->prediction == CT_PREDICT_NONE) || (round == 0)) return 0;
    if (c->prediction == CT_PREDICT_LAST) {
        memcpy(guess, r->last, sizeof(r->last));
        return 1;
    }
    estimate(&r->known, w, guess);
    for (int i = 0; i < N_WEIGHT; i++) point[i] = (float)w[i];
    assert_int_equal(ct_gradient_predictor_weigh(&r->known, point, coefficient), CT_OK);
    for (int i = 0; i < r->known.n; i++) echo += coefficient[i] * coefficient[i];
    return echo;
}

static void expect_measure(const spec *c, int64_t round, run *r, const place *z,
                           double (*step)[N_WEIGHT], int n, bool stays)
{
    bool none = (c->prediction == CT_PREDICT_NONE);
    double guess[N_WEIGHT], apart[N_WEIGHT] = { 0 };

    for (int s = 0; s < n; s++) {
        double size, own = product(step[s], step[s]);

        r->want.square += own / n;
        r->want.echo = guess_at(c, r, round, z[s].w, guess);
        size = sqrt(product(guess, guess) * own);
        r->want.cosine[s] = (size > 0) ? product(guess, step[s]) / size : 0;
        for (int i = 0; i < N_WEIGHT; i++) apart[i] = guess[i] - step[s][i];
    }
    r->want.error = product(apart, apart);
    if (!none && ((round == 0) || (stays && (n > 1)))) r->want.error = -1;
}

static void reference_round(const spec *c, int64_t round, run *r)
{
    int n = (c->steps[round] > 0) ? c->steps[round] : c->parallel, k = c->parallel / n;
    bool stays = (c->prediction == CT_PREDICT_NONE) || (round == 0) ||
                 ((c->probe > 0) && (round == c->probe));
    bool last = (c->correction == CT_CORRECT_LAST_POINT);
    double g[MOST_POINTS][N_WEIGHT], step[MOST_POINTS][N_WEIGHT] = { { 0 } }, guess[N_WEIGHT];
    int together = stays ? c->parallel : k;
    place z[MOST_POINTS];

    for (int i = 0; !c->adam && (r->batches > 0) && (i < N_WEIGHT); i++)
        r->now.m[i] *= (double)k / r->batches;
    for (int s = 0; s < n; s++) {
        z[s] = (s > 0) ? z[s - 1] : r->now;
        if ((s == 0) || stays) continue;
        (void)guess_at(c, r, round, z[s].w, guess);
        apply(c, &z[s], guess, r->updates + s - 1, RATE * k);
    }
    for (int b = 0; b < c->parallel; b++) {
        evaluate(c, z[b / k].w, round * c->parallel + b, g[b]);
        for (int i = 0; i < N_WEIGHT; i++) step[b / k][i] += g[b][i] / k;
    }
    r->want = (ct_optex_measure){ .steps = n, .batches = k, .noise = -1 };
    if (together > 1) r->want.noise = variance(g, c->parallel, together);
    expect_measure(c, round, r, z, step, n, stays);
    if (last) r->now = z[n - 1];
    for (int s = 0; s < n; s++) {
        if (!last || (s == n - 1)) apply(c, &r->now, step[s], r->updates + s, RATE * k);
        remember(&r->known, z[s].w, step[s]);
    }
    memcpy(r->last, step[n - 1], sizeof(step[0]));
    r->updates += n;
    r->batches = k;
}

/* ---- what runs */

static void create(const char *fields, int iter_size, test_solver *t)
{
    char text[2048];

    snprintf(text, sizeof(text), "%s iter_size: %d " NET, fields, iter_size);
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, t), CT_OK);
}

static void get_weights(ct_solver *s, float *w)
{
    for (int i = 0; i < N_WEIGHT; i++) {
        int k = weight_of(i), p = ct_net_find_param(ct_solver_net(s), (k == 0) ? "p[0]" : "p[1]");

        assert_true(p >= 0);
        w[i] = ct_blob_data(&ct_solver_net(s)->param[p].blob)[i - 5 * k];
    }
}

static void open_round(const spec *c, test_solver *t, ct_optex_round *r)
{
    *r = (ct_optex_round){ .step = &t->solver->step,
                           .parallel = c->parallel,
                           .measures = true,
                           .correction = c->correction,
                           .predictor = { .prediction = c->prediction,
                                          .constant_mean = true,
                                          .noise = 0.01,
                                          .room = ROOM } };
    assert_int_equal(ct_optex_round_open(r), CT_OK);
}

/* The mean of the points' losses: Probe's are the batches' numbers, from 1. */
static double loss_of(const spec *c, int64_t round)
{
    double n = (double)c->parallel * c->iter_size;

    return n * (double)round + (n + 1) / 2;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-4 * (1 + fabs(b));
}

static void check_measure(const ct_optex_measure *got, const ct_optex_measure *want)
{
    assert_int_equal(got->steps, want->steps);
    assert_int_equal(got->batches, want->batches);
    if (!near(got->noise, want->noise) || !near(got->square, want->square) ||
        !near(got->error, want->error) || !near(got->echo, want->echo))
        fail_msg("noise %g, square %g, error %g, echo %g; expected %g, %g, %g, %g", got->noise,
                 got->square, got->error, got->echo, want->noise, want->square, want->error,
                 want->echo);
    for (int s = 0; s < want->steps; s++) assert_true(near(got->cosine[s], want->cosine[s]));
}

static void check_round(const spec *c, int64_t round, ct_optex_round *r, test_solver *t, run *want)
{
    float got[N_WEIGHT];
    double loss = 0;

    r->steps = c->steps[round];
    r->probes = (c->probe > 0) && (round == c->probe);
    assert_int_equal(ct_optex_round_run(r, round, RATE, &loss), CT_OK);
    assert_true(fabs(loss - loss_of(c, round)) < 1e-5 * loss_of(c, round));
    reference_round(c, round, want);
    assert_int_equal(r->updates, want->updates);
    if (c->parallel > 1) check_measure(&r->measure, &want->want);
    get_weights(t->solver, got);
    for (int i = 0; i < N_WEIGHT; i++)
        if (!(fabs((double)got[i] - want->now.w[i]) <= 2e-5))
            fail_msg("%s, %d, %d: round %d, weight %d: %.9g, expected %.9g", c->fields,
                     (int)c->correction, (int)c->prediction, (int)round, i, (double)got[i],
                     want->now.w[i]);
}

static void check(const spec *c)
{
    run want = { .known = { .prediction = c->prediction,
                            .constant_mean = true,
                            .noise = 0.01,
                            .room = ROOM,
                            .count = N_WEIGHT } };
    float got[N_WEIGHT];
    ct_optex_round r;
    test_solver t;

    assert_int_equal(ct_gradient_predictor_open(&want.known), CT_OK);
    create(c->fields, c->iter_size, &t);
    open_round(c, &t, &r);
    get_weights(t.solver, got);
    for (int i = 0; i < N_WEIGHT; i++) want.now.w[i] = (double)got[i];
    for (int64_t round = 0; round < N_ROUND; round++) check_round(c, round, &r, &t, &want);
    if (c->parallel > 1)
        assert_true(t.solver->step.norm_s == 0.0); /* of points nobody asks for it */
    ct_optex_round_close(&r);
    test_solver_destroy(&t);
    ct_gradient_predictor_close(&want.known);
}

static void test_rounds_are_their_definition(void **state)
{
    static const spec rule[] = {
        { .fields = "momentum: 0.9 weight_decay: 0.25",
          .momentum = 0.9,
          .decay = 0.25,
          .iter_size = 1,
          .parallel = 3 },
        { .fields = "momentum: 0.5", .momentum = 0.5, .iter_size = 2, .parallel = 4 },
        { .fields = "momentum: 0.9 weight_decay: 0.25 clip_gradients: 0.3",
          .momentum = 0.9,
          .decay = 0.25,
          .clip = 0.3,
          .iter_size = 1,
          .parallel = 4,
          .steps = { 0, 2, 2, 4, 1, 2 } },
        { .fields = "type: 'Adam' momentum: 0.9 clip_gradients: 0.2",
          .adam = true,
          .momentum = 0.9,
          .clip = 0.2,
          .iter_size = 1,
          .parallel = 3 },
        { .fields = "type: 'Adam' momentum: 0.9",
          .adam = true,
          .momentum = 0.9,
          .iter_size = 1,
          .parallel = 2 },
        { .fields = "type: 'Adam' momentum: 0.8",
          .adam = true,
          .momentum = 0.8,
          .iter_size = 2,
          .parallel = 4 },
        { .fields = "momentum: 0.9 weight_decay: 0.25",
          .momentum = 0.9,
          .decay = 0.25,
          .iter_size = 1,
          .parallel = 4,
          .steps = { 1, 4, 4, 2, 4, 1 },
          .probe = 4 },
        { .fields = "type: 'Adam' momentum: 0.8",
          .adam = true,
          .momentum = 0.8,
          .iter_size = 1,
          .parallel = 3,
          .steps = { 3, 1, 1, 3, 3, 3 },
          .probe = 5 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rule) / sizeof(rule[0]); i++) {
        for (int k = CT_PREDICT_NONE; k <= CT_PREDICT_KERNEL; k++) {
            for (int last = 0; last < 2; last++) {
                spec c = rule[i];

                c.prediction = (ct_prediction)k;
                c.correction = last ? CT_CORRECT_LAST_POINT : CT_CORRECT_REPLAY;
                check(&c);
            }
        }
    }
}

static void test_one_point_is_the_rule(void **state)
{
    static const spec c = { .fields = "type: 'Adam' momentum: 0.9",
                            .iter_size = 2,
                            .parallel = 1,
                            .prediction = CT_PREDICT_KERNEL };
    float want[N_WEIGHT], got[N_WEIGHT];
    ct_optex_round r;
    test_solver t;

    (void)state;
    create(c.fields, c.iter_size, &t);
    assert_int_equal(ct_solver_run(t.solver), CT_OK);
    get_weights(t.solver, want);
    test_solver_destroy(&t);
    create(c.fields, c.iter_size, &t);
    open_round(&c, &t, &r);
    for (int64_t i = 0; i < 6; i++) {
        double loss = 0;

        assert_int_equal(ct_optex_round_run(&r, i, (double)t.param->base_lr, &loss), CT_OK);
    }
    get_weights(t.solver, got);
    assert_memory_equal(got, want, sizeof(want));
    ct_optex_round_close(&r);
    test_solver_destroy(&t);
}

/* By N batches, whose gradients are added up, at N times the rate. */
static void test_one_step_is_the_rule_by_larger_batches(void **state)
{
    static const char *const rule[] = { "momentum: 0.9 weight_decay: 0.25",
                                        "type: 'Adam' momentum: 0.9" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        const spec c = { .fields = rule[i], .iter_size = 1, .parallel = 4 };
        float want[N_WEIGHT], got[N_WEIGHT];
        double loss = 0;
        ct_optex_round r;
        test_solver t;

        create(rule[i], 4, &t);
        for (int64_t k = 0; k < N_ROUND; k++) {
            assert_int_equal(ct_train_step_run(&t.solver->step, k, 4 * RATE, &loss), CT_OK);
            assert_int_equal(ct_train_step_settle(&t.solver->step), CT_OK);
        }
        get_weights(t.solver, want);
        test_solver_destroy(&t);
        create(rule[i], 1, &t);
        open_round(&c, &t, &r);
        for (int64_t k = 0; k < N_ROUND; k++) {
            r.steps = 1;
            assert_int_equal(ct_optex_round_run(&r, k, RATE, &loss), CT_OK);
        }
        get_weights(t.solver, got);
        assert_memory_equal(got, want, sizeof(want));
        r.steps = 3;
        assert_int_equal(ct_optex_round_run(&r, N_ROUND, RATE, &loss), CT_ERR_ARG);
        ct_optex_round_close(&r);
        test_solver_destroy(&t);
    }
}

static void test_what_is_refused(void **state)
{
    static const char *const text[][2] = {
        { "average { type: EMA }", "average" },
        { "type: 'LARS' momentum: 0.9", "trust ratios" },
        { "compression { type: TOPK }", "compression" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
        char message[128];
        ct_optex_round r;
        test_solver t;

        create(text[i][0], 1, &t);
        r = (ct_optex_round){ .step = &t.solver->step, .parallel = 2 };
        assert_int_equal(ct_optex_round_open(&r), CT_ERR_CONFIG);
        snprintf(message, sizeof(message), "OptEx and %s do not go together yet", text[i][1]);
        test_log_holds(message);
        ct_optex_round_close(&r);
        test_solver_destroy(&t);
    }
}

/* Batches are on different ranks: a layer that hands state on, in any of its buffers, cannot be. */
static void test_carried_state_is_refused(void **state)
{
    const ct_group two = { .size = 2 };
    ct_optex_round r;
    test_solver t;

    (void)state;
    create("momentum: 0.9", 1, &t);
    for (int i = 0; i < t.solver->net->n_layer; i++) {
        for (int k = 0; k < CT_MAX_BUFFER; k++) {
            int64_t *row = &t.solver->net->pass->instance[i]->buffer[k].row;
            char message[128];

            *row = 3;
            r = (ct_optex_round){ .step = &t.solver->step, .parallel = 2, .ranks = &two };
            assert_int_equal(ct_optex_round_open(&r), CT_ERR_CONFIG);
            snprintf(message, sizeof(message), "OptEx on several ranks is not for layer \"%s\"",
                     t.solver->net->layer[i]->name);
            test_log_holds(message);
            ct_optex_round_close(&r);

            /* on one rank they follow each other, and one point is one batch of all ranks */
            r.ranks = NULL;
            assert_int_equal(ct_optex_round_open(&r), CT_OK);
            ct_optex_round_close(&r);
            r = (ct_optex_round){ .step = &t.solver->step, .parallel = 1, .ranks = &two };
            assert_int_equal(ct_optex_round_open(&r), CT_OK);
            ct_optex_round_close(&r);
            *row = 0;
        }
    }
    test_solver_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds_are_their_definition),
        cmocka_unit_test(test_one_point_is_the_rule),
        cmocka_unit_test(test_one_step_is_the_rule_by_larger_batches),
        cmocka_unit_test_setup_teardown(test_what_is_refused, test_solver_setup,
                                        test_solver_teardown),
        cmocka_unit_test_setup_teardown(test_carried_state_is_refused, test_solver_setup,
                                        test_solver_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
