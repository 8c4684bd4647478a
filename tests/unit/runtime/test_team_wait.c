/* Waits of threads for their team: when they become short, and that they do. */
#include "tests/test.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/team_wait.h"

enum { CALM = 30 };

static void test_decides(void **state)
{
    int looks = 7;

    (void)state;
    assert_false(ct_team_wait_decide(0.04, false, &looks));
    assert_int_equal(looks, 0);
    assert_true(ct_team_wait_decide(0.06, false, &looks));
    for (int i = 1; i < CALM; i++) assert_true(ct_team_wait_decide(0.0, true, &looks));
    assert_true(ct_team_wait_decide(0.02, true, &looks)); /* busy once more: it counts anew */
    for (int i = 1; i < CALM; i++) assert_true(ct_team_wait_decide(0.0, true, &looks));
    assert_false(ct_team_wait_decide(0.0, true, &looks));
}

static double processor_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What the processor spends on 20 waits of 4 ms each for another thread. */
static double spent_waiting(void)
{
    double sum = 0;

    for (int i = 0; i < 20; i++) {
#pragma omp parallel num_threads(2) reduction(+ : sum)
        {
            double before = processor_s();

            if (omp_get_thread_num() == 0) usleep(4000);
#pragma omp barrier
            sum += processor_s() - before;
        }
    }
    return sum;
}

static void test_waits_become_short(void **state)
{
    ct_team_wait *t;
    double before, within, after;

    (void)state;
    assert_int_equal(ct_team_wait_start(2, (int)sysconf(_SC_NPROCESSORS_ONLN), &t), CT_OK);
    if (t == NULL) skip(); /* OpenMP is not gcc's */
    before = spent_waiting();
    assert_int_equal(ct_team_wait_set(t, true), CT_OK);
    within = spent_waiting();
    assert_int_equal(ct_team_wait_set(t, false), CT_OK);
    after = spent_waiting();
    ct_team_wait_stop(t);
    assert_true(within < 0.02); /* 20 times a thousand turns of some 30 ns, and waking */
    assert_true(before > 3 * within);
    assert_true(after > 3 * within);
}

static void test_is_left_alone(void **state)
{
    ct_team_wait *t = (ct_team_wait *)(void *)state; /* no NULL: the call has to set it */

    assert_int_equal(ct_team_wait_start(1, 2, &t), CT_OK);
    assert_null(t);
    setenv("GOMP_SPINCOUNT", "5", 1);
    assert_int_equal(ct_team_wait_start(2, 2, &t), CT_OK);
    assert_null(t);
    unsetenv("GOMP_SPINCOUNT");
    setenv("OMP_WAIT_POLICY", "active", 1);
    assert_int_equal(ct_team_wait_start(2, 2, &t), CT_OK);
    assert_null(t);
    unsetenv("OMP_WAIT_POLICY");
    ct_team_wait_stop(NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_decides),
                                        cmocka_unit_test(test_waits_become_short),
                                        cmocka_unit_test(test_is_left_alone) };

    (void)argc;
    /* OpenMP reads how to wait before main() begins */
    if (getenv("OMP_WAIT_POLICY") != NULL) {
        unsetenv("OMP_WAIT_POLICY");
        execv("/proc/self/exe", argv);
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
