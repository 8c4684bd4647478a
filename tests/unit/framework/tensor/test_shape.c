/* Shapes that files claim: which of them are refused before anything is multiplied. */
#include "tests/test.h"

#include <string.h>

#include "framework/tensor/tensor.h"
#include "tests/layer_harness.h"

static const int64_t large = (int64_t)1 << 40;

static void assert_valid(bool valid, ct_shape s)
{
    assert_true(ct_shape_is_valid(&s) == valid);
}

static void test_checked(void **state)
{
    (void)state;
    assert_valid(true, (ct_shape){ 0 });
    assert_valid(true, (ct_shape){ 1, { 0 } });
    assert_valid(true, (ct_shape){ 4, { 2, 0, 3, 4 } });
    assert_valid(true, (ct_shape){ 2, { large, (int64_t)1 << 19 } });
    assert_valid(false, (ct_shape){ 2, { large, (int64_t)1 << 20 } });
    assert_valid(false, (ct_shape){ 1, { -1 } });
    assert_valid(false, (ct_shape){ 2, { INT64_MAX, INT64_MAX } });
    assert_valid(false, (ct_shape){ CT_MAX_DIM + 1, { 1 } });
}

/* The axes behind one without elements are multiplied by who wants to know the size of a row. */
static void test_empty_axis(void **state)
{
    (void)state;
    assert_valid(false, (ct_shape){ 3, { 0, large, large } });
    assert_valid(false, (ct_shape){ 3, { large, 0, large } });
    assert_valid(false, (ct_shape){ 3, { large, large, 0 } });
    assert_valid(true, (ct_shape){ 3, { 0, large, 1000 } });
}

static void test_product(void **state)
{
    (void)state;
    assert_true(ct_dim_mul(6, 7) == 42);
    assert_true(ct_dim_mul(0, INT64_MAX) == 0);
    assert_true(ct_dim_mul(large, large) == INT64_MAX);
    assert_valid(false, (ct_shape){ 2, { 3, ct_dim_mul(large, large) } });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checked),
        cmocka_unit_test(test_empty_axis),
        cmocka_unit_test(test_product),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
