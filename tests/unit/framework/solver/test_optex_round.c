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
    int iter_size, parallel;
    ct_correction correction;
    ct_prediction prediction;
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

/* The sum over the batches of a step. */
static void evaluate(const spec *c, const double *w, int64_t step, double *g)
{
    for (int i = 0; i < N_WEIGHT; i++) {
        int k = weight_of(i);

        g[i] = 0;
        for (int b = 0; b < c->iter_size; b++)
            g[i] += probe_gradient(k, i - 5 * k, step * c->iter_size + b, w[i]);
    }
}

static void apply(const spec *c, place *p, const double *sum, int64_t step)
{
    static const double lr_mult[] = { 1, 2 }, decay_mult[] = { 1, 0.5 };
    double b2 = 0.999, t = (double)step + 1;

    for (int i = 0; i < N_WEIGHT; i++) {
        int k = weight_of(i);
        double rate = RATE * lr_mult[k];
        double g = sum[i] / c->iter_size + c->decay * decay_mult[k] * p->w[i];

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

    for (int i = 0; i < N_WEIGHT; i++) {
        point[i] = (float)z[i];
        gradient[i] = (float)g[i];
    }
    assert_true(ct_gradient_predictor_add(known, point, gradient));
}

static void estimate(ct_gradient_predictor *known, const double *z, double *g)
{
    float point[N_WEIGHT], gradient[N_WEIGHT];

    for (int i = 0; i < N_WEIGHT; i++) point[i] = (float)z[i];
    ct_gradient_predictor_estimate(known, point, gradient);
    for (int i = 0; i < N_WEIGHT; i++) g[i] = (double)gradient[i];
}

/* last: the newest gradient, which LAST takes without asking the predictor. */
static void reference_round(const spec *c, int64_t round, place *now, ct_gradient_predictor *known,
                            double *last)
{
    place z[MOST_POINTS];
    double g[MOST_POINTS][N_WEIGHT], guess[N_WEIGHT];
    int64_t first = round * c->parallel;

    for (int s = 0; s < c->parallel; s++) {
        z[s] = (s > 0) ? z[s - 1] : *now;
        if ((s == 0) || (c->prediction == CT_PREDICT_NONE) || (round == 0)) continue;
        if (c->prediction == CT_PREDICT_LAST)
            memcpy(guess, last, sizeof(guess));
        else
            estimate(known, z[s].w, guess);
        apply(c, &z[s], guess, first + s - 1);
    }
    for (int s = 0; s < c->parallel; s++) {
        evaluate(c, z[s].w, first + s, g[s]);
        remember(known, z[s].w, g[s]);
    }
    memcpy(last, g[c->parallel - 1], sizeof(g[0]));
    if (c->correction == CT_CORRECT_LAST_POINT) *now = z[c->parallel - 1];
    for (int s = (c->correction == CT_CORRECT_LAST_POINT) ? c->parallel - 1 : 0; s < c->parallel;
         s++)
        apply(c, now, g[s], first + s);
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

static void check(const spec *c)
{
    ct_gradient_predictor known = { .prediction = c->prediction,
                                    .constant_mean = true,
                                    .noise = 0.01,
                                    .room = ROOM,
                                    .count = N_WEIGHT };
    double last[N_WEIGHT] = { 0 };
    place now = { .v = { 0 } };
    float got[N_WEIGHT];
    ct_optex_round r;
    test_solver t;

    assert_int_equal(ct_gradient_predictor_open(&known), CT_OK);
    create(c->fields, c->iter_size, &t);
    open_round(c, &t, &r);
    get_weights(t.solver, got);
    for (int i = 0; i < N_WEIGHT; i++) now.w[i] = (double)got[i];
    for (int64_t round = 0; round < N_ROUND; round++) {
        double loss = 0;

        assert_int_equal(ct_optex_round_run(&r, round, RATE, &loss), CT_OK);
        assert_true(fabs(loss - loss_of(c, round)) < 1e-5 * loss_of(c, round));
        reference_round(c, round, &now, &known, last);
        get_weights(t.solver, got);
        for (int i = 0; i < N_WEIGHT; i++)
            if (!(fabs((double)got[i] - now.w[i]) <= 2e-5))
                fail_msg("%s, %d, %d: round %d, weight %d: %.9g, expected %.9g", c->fields,
                         (int)c->correction, (int)c->prediction, (int)round, i, (double)got[i],
                         now.w[i]);
    }
    ct_optex_round_close(&r);
    test_solver_destroy(&t);
    ct_gradient_predictor_close(&known);
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

static void test_what_is_refused(void **state)
{
    static const char *const text[][2] = {
        { "clip_gradients: 1", "clip_gradients" },
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds_are_their_definition),
        cmocka_unit_test(test_one_point_is_the_rule),
        cmocka_unit_test_setup_teardown(test_what_is_refused, test_solver_setup,
                                        test_solver_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
