#include "tests/test.h"

#include "runtime/compute.h"

static void test_better(void **state)
{
    (void)state;
    /* fallbacks below the CPU are replaced */
    assert_string_equal(ct_blas_core_better("Prescott", 3), "SkylakeX");
    assert_string_equal(ct_blas_core_better("Zen", 3), "SkylakeX");
    assert_string_equal(ct_blas_core_better("Nehalem", 2), "Haswell");
    assert_string_equal(ct_blas_core_better("Prescott", 1), "Sandybridge");
    assert_string_equal(ct_blas_core_better("no such core", 2), "Haswell");
    /* what fits stays */
    assert_null(ct_blas_core_better("SkylakeX", 3));
    assert_null(ct_blas_core_better("Cooperlake", 3));
    assert_null(ct_blas_core_better("SAPPHIRERAPIDS", 3));
    assert_null(ct_blas_core_better("Zen", 2));
    assert_null(ct_blas_core_better("Haswell", 2));
    assert_null(ct_blas_core_better("SkylakeX", 2));
    assert_null(ct_blas_core_better("Prescott", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_better) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
