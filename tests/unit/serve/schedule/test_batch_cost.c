/* Groups of padded requests against every way of dividing them, and costs of batches. */
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>

#include "framework/base/rng.h"
#include "framework/base/sort.h"
#include "serve/schedule/batch_cost.h"
#include "tests/log_capture.h"

enum { MOST = 8 };

/* Does not fall with either: a fixed part, products, and attention's squares. */
static double cost(const void *ctx, int64_t length, int64_t count)
{
    const double *c = ctx;
    double tokens = (double)(length * count);

    return c[0] + c[1] * tokens + c[2] * tokens * (double)length;
}

typedef struct trying {
    const ct_grouping *g;
    const int64_t *length;
    int n, group[MOST];
    double best;
} trying;

/* Request i goes into each of the n_group groups so far, or into a new one. */
static void try_all(trying *t, int i, int n_group)
{
    double sum = 0;

    for (int k = 0; (i < t->n) && (k <= n_group); k++) {
        t->group[i] = k;
        try_all(t, i + 1, (k == n_group) ? n_group + 1 : n_group);
    }
    if (i < t->n) return;
    for (int k = 0; k < n_group; k++) {
        int64_t longest = 0, count = 0;

        for (int a = 0; a < t->n; a++)
            if (t->group[a] == k) {
                count++;
                if (t->length[a] > longest) longest = t->length[a];
            }
        if ((count > 1) && ((count > t->g->most_count) || (longest * count > t->g->most_tokens)))
            return;
        sum += t->g->cost(t->g->ctx, longest, count);
    }
    if (sum < t->best) t->best = sum;
}

static void test_every_division(void **state)
{
    double best[MOST + 1];
    int from[MOST + 1], end[MOST], n_group;

    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        uint64_t key = ct_rng_key(28, seed, 0);
        double c[3] = { 40 * ct_rng_uniform_at(key, 0), 1, 0.02 * ct_rng_uniform_at(key, 1) };
        ct_grouping g = { cost, c, 1 + (int64_t)(seed % 5) * 2,
                          20 + (int64_t)(400 * ct_rng_uniform_at(key, 2)), NULL };
        int n = 1 + (int)(seed % MOST), first = 0;
        double sorted[MOST], sum = 0;
        int64_t length[MOST];
        trying t = { &g, length, n, { 0 }, INFINITY };

        for (int i = 0; i < n; i++)
            sorted[i] = 1 + floor(99 * ct_rng_uniform_at(key, 10 + (uint64_t)i));
        ct_sort(sorted, n);
        for (int i = 0; i < n; i++) length[i] = (int64_t)sorted[i];
        ct_group_lengths(&g, length, n, best, from, end, &n_group);
        try_all(&t, 0, 0);
        assert_true(fabs(best[n] - t.best) <= 1e-9 * t.best);
        for (int k = 0; k < n_group; k++) { /* the groups are those that cost so much */
            assert_true((end[k] > first) && (end[k] <= n));
            sum += cost(c, length[end[k] - 1], end[k] - first);
            first = end[k];
        }
        assert_int_equal(first, n);
        assert_true(fabs(sum - best[n]) <= 1e-9 * sum);
    }
}

static void test_known_groups(void **state)
{
    static const double fixed[3] = { 1000, 1, 0 }, none[3] = { 0, 1, 0 };
    static const int64_t length[4] = { 2, 3, 50, 60 };
    ct_grouping g = { cost, fixed, 8, 1000, NULL };
    double best[5];
    int from[5], end[4], n_group;

    (void)state;
    ct_group_lengths(&g, length, 4, best, from, end, &n_group);
    assert_int_equal(n_group, 1); /* padding is cheaper than another batch */
    assert_true(best[4] == 1240);
    g.ctx = none; /* padding alone costs */
    ct_group_lengths(&g, length, 4, best, from, end, &n_group);
    assert_int_equal(n_group, 4);
    g = (ct_grouping){ cost, fixed, 2, 1000, NULL };
    ct_group_lengths(&g, length, 4, best, from, end, &n_group);
    assert_int_equal(n_group, 2);
    assert_int_equal(end[0], 2);
    g.most_tokens = 10; /* what is longer by itself stands alone */
    ct_group_lengths(&g, length, 4, best, from, end, &n_group);
    assert_int_equal(n_group, 3);
}

/* Samples that stay together count each: 4 of 10 and one of 20. */
static void test_groups_of_samples(void **state)
{
    static const double fixed[3] = { 1000, 1, 0 }, none[3] = { 0, 1, 0 };
    static const int64_t length[2] = { 10, 20 }, samples[2] = { 4, 1 };
    ct_grouping g = { cost, fixed, 5, 100, samples };
    double best[3];
    int from[3], end[2], n_group;

    (void)state;
    ct_group_lengths(&g, length, 2, best, from, end, &n_group);
    assert_int_equal(n_group, 1);
    assert_true(best[2] == 1000 + 5 * 20);
    g.ctx = none;
    ct_group_lengths(&g, length, 2, best, from, end, &n_group);
    assert_int_equal(n_group, 2);
    assert_true(best[2] == 4 * 10 + 20);
    g = (ct_grouping){ cost, fixed, 4, 100, samples };
    ct_group_lengths(&g, length, 2, best, from, end, &n_group);
    assert_int_equal(n_group, 2);
    g = (ct_grouping){ cost, fixed, 5, 99, samples };
    ct_group_lengths(&g, length, 2, best, from, end, &n_group);
    assert_int_equal(n_group, 2);
    g = (ct_grouping){ cost, fixed, 3, 30, samples }; /* those of one may be more */
    ct_group_lengths(&g, length, 1, best, from, end, &n_group);
    assert_int_equal(n_group, 1);
}

/* ---- costs */

static const int64_t tokens[] = { 10, 40, 100, 200 };
static const double seconds[] = { 16, 40, 100, 200 };

static void test_cost_between(void **state)
{
    ct_batch_cost c;

    (void)state;
    assert_int_equal(ct_batch_cost_init(&c, 4, tokens, seconds), CT_OK);
    assert_true(ct_batch_cost_s(&c, 0) == 0);
    assert_true(ct_batch_cost_s(&c, 1) == 16);
    assert_true(ct_batch_cost_s(&c, 25) == 28);
    assert_true(ct_batch_cost_s(&c, 100) == 100);
    assert_true(ct_batch_cost_s(&c, 500) == 500);
    /* 0.95 tokens/s: t = 0.95 (16 + 0.8 (t - 10)), t = 7.6 / 0.24 */
    assert_int_equal(ct_batch_cost_knee(&c, CT_KNEE_SHARE), 32);
    /* 0.9: t = 7.2 / 0.28 */
    assert_int_equal(ct_batch_cost_knee(&c, CT_CHUNK_SHARE), 26);
    assert_int_equal(ct_batch_cost_init(&c, 1, tokens, seconds), CT_OK);
    assert_int_equal(ct_batch_cost_knee(&c, CT_KNEE_SHARE), 10);
}

/* Measurements that fall: the regression by the definition, min over ends of max over starts of
 * the mean. */
static void test_cost_does_not_fall(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        uint64_t key = ct_rng_key(29, seed, 0);
        int64_t at[12];
        double s[12];
        ct_batch_cost c;

        for (int i = 0; i < 12; i++) {
            at[i] = 8 * (i + 1);
            s[i] = 1 + i * 0.1 + 2 * ct_rng_uniform_at(key, (uint64_t)i);
        }
        assert_int_equal(ct_batch_cost_init(&c, 12, at, s), CT_OK);
        for (int i = 0; i < 12; i++) {
            double expected = INFINITY;

            for (int b = i; b < 12; b++) {
                double most = 0;

                for (int a = 0; a <= i; a++) {
                    double sum = 0;

                    for (int k = a; k <= b; k++) sum += s[k];
                    most = fmax(most, sum / (b - a + 1));
                }
                expected = fmin(expected, most);
            }
            assert_true(fabs(ct_batch_cost_s(&c, at[i]) - expected) <= 1e-12 * expected);
        }
    }
}

/* Batches of a machine of half the speed: the table comes to say so; one pause does not matter. */
static void test_cost_is_refined(void **state)
{
    ct_batch_cost c;

    (void)state;
    assert_int_equal(ct_batch_cost_init(&c, 4, tokens, seconds), CT_OK);
    ct_batch_cost_observe(&c, 100, 1e6);
    assert_true(fabs(ct_batch_cost_s(&c, 100) - 112.5) < 1e-9); /* an eighth of the way to twice */
    for (uint64_t i = 0; i < 4000; i++) {
        int64_t t = 1 + (int64_t)(400 * ct_rng_uniform_at(30, i));
        double s = (t < 10) ? 32 : (t < 40) ? 32 + 1.6 * (double)(t - 10) : 2.0 * (double)t;

        ct_batch_cost_observe(&c, t, s);
    }
    for (int i = 0; i < 4; i++)
        assert_true(fabs(ct_batch_cost_s(&c, tokens[i]) - 2 * seconds[i]) < 0.02 * seconds[i]);
    assert_true(fabs(ct_batch_cost_s(&c, 400) - 800) < 8);
}

/* A pause of the machine fell into the measurement of one point, which is 500 times too long. Its
 * neighbours must not fall below 0, from where they would go on to minus infinity. */
static void test_point_that_is_far_off(void **state)
{
    static const int64_t at[] = { 64, 128, 256 };

    (void)state;
    for (int off = 0; off < 3; off++) {
        double s[] = { 64, 128, 256 };
        ct_batch_cost c;

        s[off] *= 500;
        assert_int_equal(ct_batch_cost_init(&c, 3, at, s), CT_OK);
        for (uint64_t i = 0; i < 20000; i++) {
            int64_t t = 65 + (int64_t)(190 * ct_rng_uniform_at(31, i));

            ct_batch_cost_observe(&c, t, (double)t * (0.5 + ct_rng_uniform_at(32, i)));
            for (int k = 0; k < 3; k++) assert_true((c.s[k] > 0) && (c.s[k] < 1e6));
        }
        for (int64_t t = 80; t < 250; t += 10)
            assert_true(fabs(ct_batch_cost_s(&c, t) - (double)t) < 0.3 * (double)t);
    }
}

/* A measurement of 1 s goes on while what was spent, and a size twice the last, take half of it. */
static void test_short_tables(void **state)
{
    static const int64_t size[] = { 1, 8, 16 };
    static const double quick[] = { 0.01, 0.01, 0.02 }, slow[] = { 0.03, 0.04, 0.1 };
    ct_batch_cost c;

    (void)state;
    assert_true(ct_batch_cost_has_time(0.25, 0.125, 1));
    assert_false(ct_batch_cost_has_time(0.25, 0.1875, 1));
    assert_int_equal(ct_batch_cost_init(&c, 3, size, quick), CT_OK);
    assert_true(ct_batch_cost_is_short(&c, 32, 1)); /* 2 x (0.04 + 2 x 0.02) x 2 */
    assert_false(ct_batch_cost_is_short(&c, 31, 1));
    assert_false(ct_batch_cost_is_short(&c, 32, 0.3));
    assert_int_equal(ct_batch_cost_init(&c, 3, size, slow), CT_OK);
    assert_false(ct_batch_cost_is_short(&c, 32, 1));
}

static void test_bad_costs(void **state)
{
    static const int64_t equal[] = { 10, 10 };
    static const double zero[] = { 1, 0 };
    log_capture log;
    ct_batch_cost c;

    (void)state;
    log_capture_start(&log);
    assert_int_equal(ct_batch_cost_init(&c, 0, tokens, seconds), CT_ERR_ARG);
    assert_string_equal(log.error, "costs of batches: 0 points, expected 1 to 32");
    assert_int_equal(ct_batch_cost_init(&c, 2, equal, seconds), CT_ERR_ARG);
    assert_string_equal(
        log.error, "costs of batches: point 1 has 10 tokens, expected more than the one before");
    assert_int_equal(ct_batch_cost_init(&c, 2, tokens, zero), CT_ERR_ARG);
    assert_string_equal(log.error, "costs of batches: 40 tokens took 0 s, expected more than 0");
    log_capture_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_division),        cmocka_unit_test(test_known_groups),
        cmocka_unit_test(test_cost_between),          cmocka_unit_test(test_cost_does_not_fall),
        cmocka_unit_test(test_cost_is_refined),       cmocka_unit_test(test_bad_costs),
        cmocka_unit_test(test_point_that_is_far_off), cmocka_unit_test(test_short_tables),
        cmocka_unit_test(test_groups_of_samples),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
