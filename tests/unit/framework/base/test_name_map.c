/* Names with numbers: found as they were put, however many, and only whole. */
#include "tests/test.h"

#include <stdio.h>
#include <string.h>

#include "framework/base/name_map.h"

enum { MANY = 5000 };

static void test_many(void **state)
{
    static char name[MANY][8];
    ct_name_map map = { .n = 0 };

    (void)state;
    assert_int_equal(ct_name_map_find(&map, "a", 1), -1);
    for (int i = 0; i < MANY; i++) {
        snprintf(name[i], sizeof(name[i]), "n%d", i);
        assert_int_equal(ct_name_map_find(&map, name[i], strlen(name[i])), -1);
        assert_int_equal(ct_name_map_put(&map, name[i], i), CT_OK);
    }
    assert_int_equal(map.n, MANY);
    assert_true(2 * map.n <= map.capacity);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(ct_name_map_find(&map, name[i], strlen(name[i])), i);
    ct_name_map_destroy(&map);
    assert_int_equal(ct_name_map_find(&map, "n1", 2), -1);
    ct_name_map_destroy(&map);
}

static void test_last_number_counts(void **state)
{
    ct_name_map map = { .n = 0 };

    (void)state;
    assert_int_equal(ct_name_map_put(&map, "a", 3), CT_OK);
    assert_int_equal(ct_name_map_put(&map, "a", 4), CT_OK);
    assert_int_equal(map.n, 1);
    assert_int_equal(ct_name_map_find(&map, "a", 1), 4);
    ct_name_map_destroy(&map);
}

static void test_parts_and_bytes(void **state)
{
    ct_name_map map = { .n = 0 };

    (void)state;
    assert_int_equal(ct_name_map_put(&map, "ab", 1), CT_OK);
    assert_int_equal(ct_name_map_put(&map, "", 2), CT_OK);
    assert_int_equal(ct_name_map_find(&map, "abc", 2), 1);
    assert_int_equal(ct_name_map_find(&map, "abc", 3), -1);
    assert_int_equal(ct_name_map_find(&map, "abc", 1), -1);
    assert_int_equal(ct_name_map_find(&map, "ab\0c", 4), -1);
    assert_int_equal(ct_name_map_find(&map, "abc", 0), 2);
    ct_name_map_destroy(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_last_number_counts),
        cmocka_unit_test(test_parts_and_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
