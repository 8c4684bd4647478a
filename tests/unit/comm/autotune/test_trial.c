/* Who goes when, and who is taken: injected times, quiet and noisy. */
#include "tests/test.h"

#include <math.h>

#include "comm/autotune/trial.h"
#include "framework/base/rng.h"

enum { ROUNDS = CT_TRIAL_DUEL_ROUNDS, N_DRAW = 2000, MOST_PLANS = 7 };
static const double CLEARLY = 0.9;

/* Log-normal times around `ms`; now and then something else takes the core for three times as long.
 */
static void draw(uint64_t key, double ms, double spread, int64_t *ns)
{
    for (int k = 0; k < ROUNDS; ++k) {
        uint64_t at = 2 * (uint64_t)k;
        double t = ms * exp(spread * ct_rng_normal_at(key, (uint64_t)k));

        if (ct_rng_philox(key, 7, at).v[0] % 10 == 0) t *= 3;
        ns[k] = (int64_t)(1e6 * t);
    }
}

/* How often the other is taken, per mille. */
static int taken(double model_ms, double other_ms, double spread)
{
    int64_t model[CT_TRIAL_ROUNDS] = { 0 }, other[CT_TRIAL_ROUNDS] = { 0 };
    int n = 0;

    for (uint64_t i = 0; i < N_DRAW; ++i) {
        draw(ct_rng_key(1, i, 0), model_ms, spread, model);
        draw(ct_rng_key(1, i, 1), other_ms, spread, other);
        n += ct_trial_wins(other, model, CT_TRIAL_ROUNDS, CLEARLY);
    }
    return n * 1000 / N_DRAW;
}

static void test_noise(void **state)
{
    (void)state;
    assert_int_equal(taken(1, 1, 0.02), 0); /* never 10 % by noise of 2 % */
    /* 1 of 16 wins each round by luck; its best must be better too */
    assert_true(taken(1, 1, 0.3) <= 1000 / 16);
    assert_true(taken(1, 1.5, 0.3) <= 10);
    assert_int_equal(taken(1, 2, 0.1), 0);
}

static void test_truth(void **state)
{
    (void)state;
    /* Quiet: four times slower beats even what is disturbed. Noisy: mostly. */
    assert_int_equal(taken(4, 1, 0.02), 1000);
    assert_true(taken(3, 1, 0.1) > 500);
}

static void test_rules(void **state)
{
    int64_t ns[3 * CT_TRIAL_ROUNDS] = { 0 }, *one = ns + CT_TRIAL_ROUNDS,
                   *two = ns + 2 * CT_TRIAL_ROUNDS;

    (void)state;
    assert_int_equal(ct_trial_best(ns, 4), 0);
    assert_int_equal(ct_trial_challenger(ns, 3, 4, CLEARLY), 0); /* nobody went */
    for (int k = 0; k < ROUNDS; ++k) {
        ns[k] = 100;
        one[k] = 80;
        two[k] = 85;
    }
    assert_int_equal(ct_trial_challenger(ns, 3, 4, CLEARLY), 1);
    assert_true(ct_trial_wins(one, ns, ROUNDS, CLEARLY));
    assert_false(ct_trial_wins(one, ns, ROUNDS - 1, CLEARLY)); /* too few */
    assert_false(ct_trial_wins(one, ns, ROUNDS, 0.8));         /* not clear enough */
    two[1] = 70;
    assert_int_equal(ct_trial_challenger(ns, 3, 4, CLEARLY), 2);
    two[1] = 101; /* lost once */
    assert_false(ct_trial_wins(two, ns, ROUNDS, CLEARLY));
    two[1] = 0; /* did not go: does not count as won */
    assert_false(ct_trial_wins(two, ns, ROUNDS, CLEARLY));
    one[0] = one[1] = one[2] = one[3] = 95;
    two[0] = two[1] = two[2] = two[3] = 91;
    assert_int_equal(ct_trial_challenger(ns, 3, 4, CLEARLY), 0); /* not by a tenth */
}

static void test_shorter(void **state)
{
    int64_t a[CT_TRIAL_ROUNDS] = { 100, 104, 96, 102 };
    int64_t b[CT_TRIAL_ROUNDS] = { 99, 500, 95, 98 };

    (void)state;
    assert_true(ct_trial_median(a, CT_TRIAL_ROUNDS) == 101);
    assert_true(ct_trial_median(a, 3) == 100);
    assert_true(ct_trial_median(a + 4, 4) == 0);
    assert_true(ct_trial_shorter(b, a, CT_TRIAL_ROUNDS)); /* one bad round does not decide */
    assert_false(ct_trial_shorter(a, b, CT_TRIAL_ROUNDS));
    assert_false(ct_trial_shorter(a, a, CT_TRIAL_ROUNDS));
    assert_false(ct_trial_shorter(a + 4, a, 4)); /* never went */
    assert_false(ct_trial_shorter(a, a + 4, 4));
}

/* ---- candidates that take turns, on a clock of our own */

/* Candidate k takes ns[k], and in the duel duel_ns[k]. Checks who goes when. Returns who is taken.
 */
static int duel(const int64_t *ns, const int64_t *duel_ns, int n, int length, int *n_step_p)
{
    ct_trial t = { .ns = NULL };
    int to = 0, k = 0;

    assert_int_equal(ct_trial_begin(&t, &ct_trial_duels, n, length, -1), CT_OK);
    for (;; ++k) {
        int first = 0, rows = 0;
        bool looks = (k < length);

        assert_true(k < length + CT_TRIAL_DUEL_STEPS + 1);
        if (looks)
            assert_int_equal(t.now, k % n);
        else
            assert_true(((k - length) % 2 == 0) ? (t.now == 0) : (t.now == t.rival));
        ct_trial_note(&t, looks ? ns[t.now] : duel_ns[t.now]);
        rows = t.rule->compares(&t, &first);
        assert_true((k + 1 != length) || ((rows == n) && (first == 0)));
        if (ct_trial_go_on(&t, &to) == CT_TRIAL_DECIDED) break;
    }
    assert_true(t.decided);
    *n_step_p = k + 1;
    ct_trial_release(&t);
    return to;
}

static void test_duels(void **state)
{
    const int64_t slow[3] = { 100, 150, 120 }, fast[3] = { 100, 80, 60 },
                  lost[3] = { 100, 80, 100 };
    int n = 0;

    (void)state;
    assert_int_equal(duel(slow, slow, 3, 7, &n), 0); /* nobody challenges: no duel */
    assert_int_equal(n, 7);
    assert_int_equal(duel(fast, fast, 3, 7, &n), 2);
    assert_int_equal(n, 7 + CT_TRIAL_DUEL_STEPS);
    assert_int_equal(duel(fast, lost, 3, 4, &n), 0);   /* lucky at first, not in the duel */
    assert_int_equal(duel(fast, fast, 3, 2, &n), 1);   /* the third never went */
    assert_int_equal(duel(fast, fast, 3, 100, &n), 2); /* more rounds than a row has */
    assert_int_equal(n, 100 + CT_TRIAL_DUEL_STEPS);
}

static int pair(int64_t without, int64_t with, int64_t grows, int length)
{
    ct_trial t = { .ns = NULL };
    int to = 0;

    assert_int_equal(ct_trial_begin(&t, &ct_trial_pairs, 2, length, -1), CT_OK);
    for (int k = 0;; ++k) {
        static const int order[4] = { 0, 1, 1, 0 };

        assert_true(k < length);
        assert_int_equal(t.now, order[k % 4]);
        ct_trial_note(&t, ((t.now == 0) ? without : with) + grows * k);
        if (ct_trial_go_on(&t, &to) == CT_TRIAL_DECIDED) break;
    }
    ct_trial_release(&t);
    return to;
}

static void test_pairs(void **state)
{
    (void)state;
    assert_int_equal(pair(100, 90, 0, 8), 1);
    assert_int_equal(pair(100, 110, 0, 8), 0);
    assert_int_equal(pair(100, 100, 0, 8), 0);
    assert_int_equal(pair(100, 99, 1000, 8), 1); /* what grows meanwhile speaks for neither */
    assert_int_equal(pair(99, 100, 1000, 8), 0);
}

/* ---- plans that take steps in a row */

typedef struct row {
    int64_t ns[CT_TRIAL_ROUNDS];
} row;

static row times_of(int n, const double *ms)
{
    row t = { .ns = { 0 } };

    for (int i = 0; i < n; ++i) t.ns[i] = (int64_t)(1e6 * ms[i]);
    return t;
}

static void test_what_measured_steps_say(void **state)
{
    row slow = times_of(4, (double[]){ 100, 101, 99, 140 });
    row fast = times_of(4, (double[]){ 50, 49, 90, 51 });
    row near = times_of(4, (double[]){ 97, 96, 97, 98 });
    row few = times_of(2, (double[]){ 200, 210 });

    (void)state;
    assert_true(fabs(1e-9 * ct_trial_median(slow.ns, CT_TRIAL_ROUNDS) - 0.1005) < 1e-6);
    assert_true(ct_trial_median((row){ .ns = { 0 } }.ns, CT_TRIAL_ROUNDS) == 0);
    assert_true(ct_trial_takes(fast.ns, slow.ns, CT_TRIAL_NEW));
    assert_false(ct_trial_takes(slow.ns, fast.ns, CT_TRIAL_NEW));
    assert_true(ct_trial_is_near(near.ns, slow.ns));
    assert_false(ct_trial_is_near(fast.ns, slow.ns));
    /* 3.5 % are enough at first, but not to leave what is there */
    assert_true(ct_trial_takes(near.ns, slow.ns, CT_TRIAL_NEW));
    assert_false(ct_trial_takes(near.ns, slow.ns, CT_TRIAL_DENSE));
    assert_true(ct_trial_takes(slow.ns, near.ns, CT_TRIAL_CODED));
    assert_false(ct_trial_takes(slow.ns, fast.ns, CT_TRIAL_CODED));
    /* two long steps say enough, two alike do not */
    assert_true(ct_trial_is_enough(few.ns, fast.ns, false));
    assert_false(ct_trial_is_enough(few.ns, slow.ns, false));
    assert_true(ct_trial_is_enough(slow.ns, NULL, false));
    assert_false(ct_trial_is_enough(slow.ns, NULL, true));
}

/* Steps on a clock of our own: plan k takes ms[k], each step up to a hundredth more or less, and
 * now and then twice as long. Returns the plan that is decided on. */
static int decide_on(const double *ms, int n_plan, int held, int *n_step_p)
{
    ct_trial t = { .ns = NULL };
    int plan = n_plan - 1, n = 0; /* dense goes first */
    uint32_t x = 1;

    assert_int_equal(ct_trial_begin(&t, &ct_trial_blocks, n_plan, 0, held), CT_OK);
    for (;; ++n) {
        double step = 0;

        assert_true(n < 2 * MOST_PLANS * CT_TRIAL_BLOCK);
        assert_int_equal(plan, t.now);
        x = x * 1664525u + 1013904223u;
        step = ms[plan] * (0.99 + 0.02 * (double)(x >> 8) * 0x1p-24) * ((n % 9 == 4) ? 2 : 1);
        ct_trial_note(&t, (int64_t)(1e6 * step));
        if (ct_trial_go_on(&t, &plan) == CT_TRIAL_DECIDED) break;
    }
    *n_step_p = n + 1;
    ct_trial_release(&t);
    return plan;
}

static void test_trials(void **state)
{
    int n = 0, few = 0;

    (void)state;
    /* the model's first is not the fastest, as on hosts whose messages take their cores */
    assert_int_equal(decide_on((double[]){ 482, 412, 540, 1264 }, 4, -1, &n), 1);
    assert_int_equal(decide_on((double[]){ 482, 540, 412, 1264 }, 4, -1, &n), 2);
    /* clearly longer ones than the longest step of the best, which was 200, end early */
    assert_int_equal(decide_on((double[]){ 100, 190, 300, 400 }, 4, -1, &few), 0);
    assert_int_equal(few, 3 * CT_TRIAL_BLOCK + CT_TRIAL_BLOCK / 2);
    /* near ones have a second turn, the others have not */
    assert_int_equal(decide_on((double[]){ 105, 100, 400 }, 3, -1, &n), 1);
    assert_int_equal(n, 3 * CT_TRIAL_BLOCK + 2 * CT_TRIAL_BLOCK);
    /* a codec has to gain 2 % */
    assert_int_equal(decide_on((double[]){ 100, 100 }, 2, -1, &n), 1);
    assert_int_equal(decide_on((double[]){ 90, 100 }, 2, -1, &n), 0);
    assert_int_equal(decide_on((double[]){ 90 }, 1, -1, &n), 0);
    /* what was decided on before is left for 5 % */
    assert_int_equal(decide_on((double[]){ 98, 100, 150 }, 3, 1, &n), 1);
    assert_int_equal(decide_on((double[]){ 90, 100, 150 }, 3, 1, &n), 0);
    assert_int_equal(decide_on((double[]){ 120, 103, 100 }, 3, 1, &n), 1);
    assert_int_equal(decide_on((double[]){ 120, 110, 100 }, 3, 1, &n), 2);
    assert_int_equal(decide_on((double[]){ 97, 100 }, 2, 1, &n), 1);
    assert_int_equal(decide_on((double[]){ 90, 100 }, 2, 1, &n), 0);
}

/* ---- later */

/* Three windows in a row, and not before there was a rest. */
static void test_drift(void **state)
{
    ct_trial_drift d;
    int windows = 0, asked = 0, at = 0;

    (void)state;
    ct_trial_drift_begin(&d, 5);
    for (int i = 0; i < 40 * CT_TRIAL_WINDOW; ++i) {
        double mean = 0, step = (windows < 20) ? 1 : (windows % 4 == 0) ? 1.0 : 1.5;

        if (windows >= 30) step = 1.3;
        /* now and then a test comes in between */
        if (!ct_trial_drift_add(&d, ((i < 5) || (i % 10 == 0)) ? 100 : step, &mean)) continue;
        assert_true(fabs(mean - step) < 1e-9);
        windows += 1;
        if (!ct_trial_drift_window(&d, mean)) continue;
        if (asked++ == 0) at = windows;
    }
    assert_true(asked > 0);
    assert_int_equal(at, 24); /* windows 22, 23, 24 were long: 1 + 20, 21 … of four one is short */
    ct_trial_drift_begin(&d, 0);
    for (int i = 0; i < 4; ++i) assert_false(ct_trial_drift_window(&d, (i == 0) ? 1 : 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_shorter),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_truth),
        cmocka_unit_test(test_duels),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_what_measured_steps_say),
        cmocka_unit_test(test_trials),
        cmocka_unit_test(test_drift),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
