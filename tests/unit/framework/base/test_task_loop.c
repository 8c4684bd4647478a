/* Each task of a loop is run once, by whichever thread is free. */
#include "tests/test.h"

#include <stdlib.h>

#include "framework/base/clock.h"
#include "framework/base/task_loop.h"
#include "framework/base/thread.h"

static void run_loops(int n_thread, int n_loop, int64_t n, atomic_int *runs)
{
    ct_task_team team;

    ct_task_team_init(&team, n_thread);
#pragma omp parallel num_threads(n_thread)
    {
        ct_task_loop loop = ct_task_loop_of(&team);

        for (int k = 0; k < n_loop; k++) {
            int64_t m = n - k % 3; /* unlike lengths one after the other */

            for (int64_t i = ct_task_first(&loop, m); i >= 0; i = ct_task_next(&loop))
                atomic_fetch_add(&runs[k * n + i], 1);
#pragma omp barrier
        }
    }
}

static void test_each_once(void **state)
{
    enum { LOOPS = 20 };
    static const int threads[] = { 1, 2, 3, 5, CT_TASK_PARTS + 3 };
    static const int64_t tasks[] = { 2, 3, 7, 1000 };

    (void)state;
    for (size_t t = 0; t < sizeof(threads) / sizeof(threads[0]); t++) {
        for (size_t j = 0; j < sizeof(tasks) / sizeof(tasks[0]); j++) {
            int64_t n = tasks[j];
            atomic_int *runs = calloc((size_t)(LOOPS * n), sizeof(*runs));

            assert_non_null(runs);
            run_loops(threads[t], LOOPS, n, runs);
            for (int64_t k = 0; k < LOOPS; k++) {
                for (int64_t i = 0; i < n; i++)
                    assert_int_equal(atomic_load(&runs[k * n + i]), i < n - k % 3);
            }
            free(runs);
        }
    }
}

/* The thread with task 0 does not go on before all others are run, those of its own part, too. */
static void test_taken_over(void **state)
{
    enum { N = 16 };
    ct_task_team team;
    atomic_int n_run = 0, n_thread = 0;
    bool late = false;

    (void)state;
    ct_task_team_init(&team, 2);
#pragma omp parallel num_threads(2)
    {
        ct_task_loop loop = ct_task_loop_of(&team);

        atomic_fetch_add(&n_thread, 1);
        for (int64_t i = ct_task_first(&loop, N); i >= 0; i = ct_task_next(&loop)) {
            double start = ct_clock_s();

            if (i == 0) {
                while ((atomic_load(&n_run) < N - 1) && (ct_clock_s() - start < 30)) ct_nap(1e-3);
                late = atomic_load(&n_run) < N - 1;
            }
            atomic_fetch_add(&n_run, 1);
        }
    }
    assert_int_equal(atomic_load(&n_thread), 2);
    assert_int_equal(atomic_load(&n_run), N);
    assert_false(late);
}

/* A thread that comes when the loop is over finds nothing, and what it did not begin is done. */
static void test_nobody_there(void **state)
{
    ct_task_team team;
    ct_task_loop loop;
    int n = 0;

    (void)state;
    ct_task_team_init(&team, 4); /* of which one comes */
    loop = ct_task_loop_of(&team);
    for (int k = 0; k < 3; k++) {
        int64_t last = -1;

        n = 0;
        for (int64_t i = ct_task_first(&loop, 10); i >= 0; i = ct_task_next(&loop), n++) {
            assert_int_equal(i, last + 1);
            last = i;
        }
        assert_int_equal(n, 10);
    }
    assert_int_equal(ct_task_first(&loop, 0), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_once),
        cmocka_unit_test(test_taken_over),
        cmocka_unit_test(test_nobody_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
