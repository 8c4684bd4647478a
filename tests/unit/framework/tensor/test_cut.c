/* Parts of arrays against a walk over all elements: shapes, runs, copies both ways. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include "framework/tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 4096 };

static void test_ranges(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 23; n++) {
        for (int count = 1; count < 7; count++) {
            int64_t at = 0, least = n / count;

            for (int i = 0; i < count; i++) {
                ct_range r = ct_range_of(n, i, count);

                assert_int_equal(r.first, at);
                assert_int_equal(r.count, least + (i < n % count));
                at += r.count;
            }
            assert_int_equal(at, n);
        }
    }
}

static bool has(const ct_cut *c, int64_t place)
{
    if (c->n_range == 0) return true;
    for (int r = 0; r < c->n_range; r++) {
        if ((place >= c->range[r].first) && (place < c->range[r].first + c->range[r].count))
            return true;
    }
    return false;
}

/* Element i of the whole is `i`. Ranges ascend, so the part has its elements in order. */
static void check(const ct_cut *c)
{
    static float whole[MOST], part[MOST], back[MOST], place[MOST];
    ct_shape s = ct_cut_shape(c);
    int64_t n = ct_shape_count(&c->whole, 0, -1), m = 0;
    int64_t inner = ct_shape_count(&c->whole, c->axis + 1, -1);
    int64_t length = (c->n_range > 0) ? c->whole.dim[c->axis] : 1;

    assert_true(n <= MOST);
    for (int64_t i = 0; i < n; i++) {
        whole[i] = (float)i;
        if (has(c, i / inner % length)) part[m++] = (float)i;
        back[i] = has(c, i / inner % length) ? (float)i : -1.0f;
    }
    assert_int_equal(ct_shape_count(&s, 0, -1), m);
    ct_cut_take(c, whole, place);
    test_same(place, part, m, "a part");
    for (int64_t i = 0; i < n; i++) place[i] = -1.0f;
    ct_cut_put(c, part, place);
    test_same(place, back, n, "a whole with one part");
    ct_cut_take(c, whole, whole);
    test_same(whole, part, m, "a part in place");
}

static void test_copies(void **state)
{
    ct_shape whole = TEST_SHAPE(3, 11, 5);

    (void)state;
    check(&(ct_cut){ .whole = whole });
    check(&(ct_cut){ .whole = { 0 } });
    for (int axis = 0; axis < 3; axis++) {
        int64_t n = whole.dim[axis];

        for (int count = 1; count < 4; count++) {
            for (int i = 0; i < count; i++) {
                ct_cut one = { .n_range = 1, .axis = axis, .whole = whole };
                ct_cut two = { .n_range = 2, .axis = axis, .whole = whole };

                one.range[0] = ct_range_of(n, i, count);
                check(&one);
                two.range[0] = ct_range_of(n / 2, i, count);
                two.range[1] = ct_range_of(n - n / 2, i, count);
                two.range[1].first += n / 2;
                check(&two);
            }
        }
    }
}

static void test_equal(void **state)
{
    ct_cut a = { .n_range = 1, .axis = 1, .range = { { 2, 3 } }, .whole = TEST_SHAPE(4, 6) }, b = a;

    (void)state;
    assert_true(ct_cut_equal(&a, &b));
    b.range[0].first = 1;
    assert_false(ct_cut_equal(&a, &b));
    b = a;
    b.axis = 0;
    assert_false(ct_cut_equal(&a, &b));
    b = a;
    b.n_range = 0;
    assert_false(ct_cut_equal(&a, &b));
    b = a;
    b.whole.dim[0] = 5;
    assert_false(ct_cut_equal(&a, &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_equal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
