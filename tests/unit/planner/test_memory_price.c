/* Seconds of a step by hand, and the choice against trying every way. */
#include "tests/test.h"

#include <math.h>

#include "framework/base/rng.h"
#include "planner/memory_price.h"

static void near(double got, double want)
{
    assert_true(fabs(got - want) <= 1e-12 * want);
}

static void test_files(void **state)
{
    const ct_memory_speeds v = { .file_read = 4, .file_write = 2 };

    (void)state;
    near(ct_memory_file_s(&v, 8, 2), 2); /* a disk reads and writes at once */
    near(ct_memory_file_s(&v, 4, 8), 4);
}

static void test_step(void **state)
{
    /* 10 s of computing, of which backward and what is made again are 6 */
    const ct_net_seconds c = { .forward_s = 3, .backward_s = 5, .again_s = 1, .update_s = 1 };
    ct_memory_step s = { .compute = c };

    (void)state;
    near(ct_memory_step_s(&s), 10);
    s.update_s = 6; /* all behind backward */
    near(ct_memory_step_s(&s), 10 + 0.05 * 6);
    s.update_s = 8; /* two are not */
    near(ct_memory_step_s(&s), 12 + 0.05 * 6);
    s.visit_s = 7; /* 15 behind 9 */
    near(ct_memory_step_s(&s), 16 + 0.05 * 9);
    s.waits = true; /* updates behind nothing, the visits behind 9 */
    near(ct_memory_step_s(&s), 18 + 0.05 * 7);
    s.visit_s = 10;
    near(ct_memory_step_s(&s), 19 + 0.05 * 9);
    s = (ct_memory_step){ .compute = c, .network_s = 10 };
    near(ct_memory_step_s(&s), 11 + 0.05 * 9);
    s.exposed = true;
    near(ct_memory_step_s(&s), 20);
}

/* Every way that fits is slower, or as fast and behind it. */
static void check_choice(const ct_memory_way *w, int n, double limit)
{
    int best = ct_memory_fastest(w, n, limit), least = ct_memory_least(w, n);

    for (int i = 0; i < n; i++) {
        bool fits = (limit == 0) || ((double)w[i].need <= limit);

        assert_true(w[least].need <= w[i].need);
        if (i < least) assert_true(w[least].need < w[i].need);
        if (!fits) continue;
        assert_true(best >= 0);
        assert_true((w[best].seconds < w[i].seconds) ||
                    ((w[best].seconds == w[i].seconds) && (best <= i)));
    }
    if (best >= 0) assert_true((limit == 0) || ((double)w[best].need <= limit));
}

static void test_choice(void **state)
{
    enum { MOST = 12 };
    int none = 0;

    (void)state;
    for (uint64_t key = 0; key < 500; key++) {
        int n = 1 + (int)(key % MOST);
        double limit = (double)(key % 7) * 2;
        ct_memory_way w[MOST];

        for (int i = 0; i < n; i++) { /* whole numbers: many are alike */
            ct_rng_block b = ct_rng_philox(key, 0, (uint64_t)i);

            w[i].need = 1 + (int64_t)(10 * (double)ct_rng_uniform(b.v[0]));
            w[i].seconds = floor(6 * (double)ct_rng_uniform(b.v[1]));
        }
        check_choice(w, n, limit);
        none += ct_memory_fastest(w, n, limit) < 0;
    }
    assert_true((none > 10) && (none < 250));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_files), cmocka_unit_test(test_step),
                                        cmocka_unit_test(test_choice) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
