/* Shares of a team's threads in its processor time. */
#include "tests/test.h"

#include <omp.h>
#include <time.h>

#include "framework/net/team_clock.h"

static double own_seconds(void)
{
    struct timespec t;

    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Works for so many seconds of its own clock, however long others have the processor. */
static void work(double seconds)
{
    double end = own_seconds() + seconds;

    while (own_seconds() < end) continue;
}

/* Thread i works (i + 1) units, in another order than that of the shares. */
static void work_unevenly(int n, double unit)
{
#pragma omp parallel num_threads(n)
    work(unit * ((omp_get_thread_num() + 1) % n + 1));
}

static void test_shares(void **state)
{
    const double unit = 4e-3;
    ct_team_clock *c;
    ct_team_work w;

    (void)state;
    omp_set_num_threads(3);
    assert_int_equal(ct_team_clock_create(2, &c), CT_OK);
    assert_int_equal(ct_team_clock_threads(c), 3);
    w = ct_team_clock_of(c, 1);
    assert_true((w.mean == 0.0) && (w.most == 0.0) && (w.first == 0.0));

    work(unit); /* of nobody */
    ct_team_clock_begin(c);
    work_unevenly(3, unit);
    ct_team_clock_end(c, 1);
    work(unit / 2); /* alone */
    ct_team_clock_end(c, 0);

    /* each has worked so long at least */
    w = ct_team_clock_of(c, 1);
    assert_true((w.first >= 2 * unit) && (w.most >= 3 * unit) && (w.mean >= 2 * unit));
    assert_true((w.mean <= w.most) && (w.first <= w.most));
    w = ct_team_clock_of(c, 0);
    assert_true((w.first >= unit / 2) && (w.most == w.first) && (w.mean < w.first));
    assert_true(ct_team_clock_wake(c) > 0.0);
    assert_false(ct_team_clock_lost(c));
    ct_team_clock_destroy(c);
}

/* Of several looks, the least of each thread. */
static void test_least(void **state)
{
    const double unit = 3e-3;
    ct_team_clock *c;
    ct_team_work once, again;

    (void)state;
    omp_set_num_threads(2);
    assert_int_equal(ct_team_clock_create(1, &c), CT_OK);
    work_unevenly(2, unit);
    ct_team_clock_end(c, 0);
    once = ct_team_clock_of(c, 0);
    work_unevenly(2, 10 * unit);
    ct_team_clock_end(c, 0);
    again = ct_team_clock_of(c, 0);
    assert_true((again.mean == once.mean) && (again.most == once.most));
    ct_team_clock_begin(c);
    ct_team_clock_end(c, 0);
    again = ct_team_clock_of(c, 0);
    assert_true((again.most < once.most) && (again.first < unit));
    ct_team_clock_destroy(c);
    ct_team_clock_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_least),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
