/* When times speak against the cost model: injected times, quiet and noisy. */
#include "tests/test.h"

#include <math.h>

#include "comm/autotune/tune_rule.h"
#include "framework/base/rng.h"

enum { ROUNDS = CT_TUNE_LEAST_ROUNDS, N_TRIAL = 2000 };
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
    int64_t model[CT_TUNE_MOST_ROUNDS] = { 0 }, other[CT_TUNE_MOST_ROUNDS] = { 0 };
    int n = 0;

    for (uint64_t i = 0; i < N_TRIAL; ++i) {
        draw(ct_rng_key(1, i, 0), model_ms, spread, model);
        draw(ct_rng_key(1, i, 1), other_ms, spread, other);
        n += ct_tune_wins(other, model, CT_TUNE_MOST_ROUNDS, CLEARLY);
    }
    return n * 1000 / N_TRIAL;
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
    int64_t ns[3 * CT_TUNE_MOST_ROUNDS] = { 0 }, *one = ns + CT_TUNE_MOST_ROUNDS,
                   *two = ns + 2 * CT_TUNE_MOST_ROUNDS;

    (void)state;
    assert_int_equal(ct_tune_best(ns, 4), 0);
    assert_int_equal(ct_tune_challenger(ns, 3, 4, CLEARLY), 0); /* nobody went */
    for (int k = 0; k < ROUNDS; ++k) {
        ns[k] = 100;
        one[k] = 80;
        two[k] = 85;
    }
    assert_int_equal(ct_tune_challenger(ns, 3, 4, CLEARLY), 1);
    assert_true(ct_tune_wins(one, ns, ROUNDS, CLEARLY));
    assert_false(ct_tune_wins(one, ns, ROUNDS - 1, CLEARLY)); /* too few */
    assert_false(ct_tune_wins(one, ns, ROUNDS, 0.8));         /* not clear enough */
    two[1] = 70;
    assert_int_equal(ct_tune_challenger(ns, 3, 4, CLEARLY), 2);
    two[1] = 101; /* lost once */
    assert_false(ct_tune_wins(two, ns, ROUNDS, CLEARLY));
    two[1] = 0; /* did not go: does not count as won */
    assert_false(ct_tune_wins(two, ns, ROUNDS, CLEARLY));
    one[0] = one[1] = one[2] = one[3] = 95;
    two[0] = two[1] = two[2] = two[3] = 91;
    assert_int_equal(ct_tune_challenger(ns, 3, 4, CLEARLY), 0); /* not by a tenth */
}

static void test_shorter(void **state)
{
    int64_t a[CT_TUNE_MOST_ROUNDS] = { 100, 104, 96, 102 };
    int64_t b[CT_TUNE_MOST_ROUNDS] = { 99, 500, 95, 98 };

    (void)state;
    assert_int_equal(ct_tune_median(a, CT_TUNE_MOST_ROUNDS), 101);
    assert_int_equal(ct_tune_median(a, 3), 100);
    assert_int_equal(ct_tune_median(a + 4, 4), 0);
    assert_true(ct_tune_shorter(b, a, CT_TUNE_MOST_ROUNDS)); /* one bad round does not decide */
    assert_false(ct_tune_shorter(a, b, CT_TUNE_MOST_ROUNDS));
    assert_false(ct_tune_shorter(a, a, CT_TUNE_MOST_ROUNDS));
    assert_false(ct_tune_shorter(a + 4, a, 4)); /* never went */
    assert_false(ct_tune_shorter(a, a + 4, 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_shorter),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_truth),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
