/* Flatten, Split, Silence, Concat: layers that only move values, so results must equal bit by bit.
 */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include <string.h>

static void is_shape(const ct_shape *a, ct_shape b)
{
    if (!ct_shape_equal(a, &b))
        fail_msg("%s, expected %s", ct_shape_str(a).text, ct_shape_str(&b).text);
}

static void check_flatten(const char *text, ct_shape bottom, ct_shape top, bool alias)
{
    test_layer *t = test_layer_make(&(test_layer_spec){
        .type = "Flatten", .text = text, .n_bottom = 1, .bottom = { bottom }, .alias = alias });

    is_shape(&t->top_shape[0], top);
    test_random(t->top_diff[0], t->top_count[0], 5, -1, 1);
    test_layer_pass(t);
    test_same(t->top[0], t->input[0], t->input_count[0], "top");
    test_same(t->input_diff[0], t->top_diff[0], t->input_count[0], "bottom diff");
    test_layer_destroy(t);
}

static void test_flatten(void **state)
{
    (void)state;
    check_flatten(NULL, TEST_SHAPE(2, 3, 5, 7), TEST_SHAPE(2, 105), false);
    check_flatten(NULL, TEST_SHAPE(2, 3, 5, 7), TEST_SHAPE(2, 105), true);
    check_flatten("flatten_param { axis: 0 }", TEST_SHAPE(2, 3, 5), TEST_SHAPE(30), false);
    check_flatten("flatten_param { axis: -3 end_axis: -2 }", TEST_SHAPE(2, 3, 5, 7),
                  TEST_SHAPE(2, 15, 7), false);
    check_flatten("flatten_param { axis: 2 end_axis: 2 }", TEST_SHAPE(2, 3, 5, 7),
                  TEST_SHAPE(2, 3, 5, 7), true);
    test_layer_refused(&(test_layer_spec){ .type = "Flatten",
                                           .text = "flatten_param { axis: 2 end_axis: 1 }",
                                           .n_bottom = 1,
                                           .bottom = { TEST_SHAPE(2, 3, 5) } },
                       CT_ERR_CONFIG, "axis 2 lies behind end_axis 1");
    test_layer_refused(
        &(test_layer_spec){ .type = "Flatten", .n_bottom = 1, .bottom = { TEST_SHAPE(2) } },
        CT_ERR_CONFIG, "axis 1 is outside the bottom's 1 dimensions");
}

static void check_split(int n_top, bool alias, int without)
{
    enum { N = 3 * 3001 }; /* over the threshold of threads */
    test_layer_spec spec = { .type = "Split",
                             .n_bottom = 1,
                             .n_top = n_top,
                             .bottom = { TEST_SHAPE(3, 3001) },
                             .alias = alias };
    test_layer *t;

    if (without >= 0) spec.no_top_diff[without] = true;
    t = test_layer_make(&spec);
    for (int k = 0; k < n_top; k++) test_random(t->top_diff[k], N, 20 + (uint64_t)k, -1, 1);
    test_layer_pass(t);
    for (int k = 0; k < n_top; k++) test_same(t->top[k], t->input[0], N, "top");
    for (int i = 0; i < N; i++) {
        float sum = 0;

        for (int k = 0; k < n_top; k++) sum += (k == without) ? 0.0f : t->top_diff[k][i];
        assert_true(t->input_diff[0][i] == sum);
    }
    test_layer_destroy(t);
}

static void test_split(void **state)
{
    (void)state;
    check_split(1, false, -1);
    check_split(2, false, -1);
    check_split(4, true, -1);
    check_split(3, false, 0);
    check_split(2, false, 1);
    check_split(1, false, 0); /* nobody asks: zero */
}

static void test_silence(void **state)
{
    test_layer *t =
        test_layer_make(&(test_layer_spec){ .type = "Silence",
                                            .n_bottom = 2,
                                            .bottom = { TEST_SHAPE(3, 4), TEST_SHAPE(5) },
                                            .no_propagate = { false, true } });

    (void)state;
    assert_int_equal(t->layer.n_top, 0);
    test_layer_pass(t);
    for (int i = 0; i < 12; i++) assert_true(t->input_diff[0][i] == 0.0f);
    assert_null(t->input_diff[1]);
    test_layer_destroy(t);
}

/* lengths along `axis` of up to three bottoms of shape (2, length, 3, 5) or the like */
static void check_concat(const char *text, int axis, int n, const int64_t *length)
{
    test_layer_spec spec = { .type = "Concat", .text = text, .n_bottom = n };
    ct_shape whole = TEST_SHAPE(2, 4, 3, 5);
    int64_t at[4] = { 0 }, inner, outer;
    test_layer *t;

    for (int k = 0; k < n; k++) {
        spec.bottom[k] = TEST_SHAPE(2, 4, 3, 5);
        spec.bottom[k].dim[axis] = length[k];
        at[k + 1] = at[k] + length[k];
    }
    if (n > 1) spec.no_propagate[1] = true;
    whole.dim[axis] = at[n];
    inner = ct_shape_count(&whole, axis + 1, -1);
    outer = ct_shape_count(&whole, 0, axis);
    t = test_layer_make(&spec);
    is_shape(&t->top_shape[0], whole);
    test_random(t->top_diff[0], t->top_count[0], 9, -1, 1);
    test_layer_pass(t);
    for (int k = 0; k < n; k++) {
        for (int64_t o = 0; o < outer; o++) {
            const int64_t len = length[k] * inner, top = (o * at[n] + at[k]) * inner;

            test_same(t->top[0] + top, t->input[k] + o * len, len, "top");
            if (k == 1) continue;
            test_same(t->input_diff[k] + o * len, t->top_diff[0] + top, len, "bottom diff");
        }
    }
    if (n > 1) assert_null(t->input_diff[1]);
    test_layer_destroy(t);
}

static void test_concat(void **state)
{
    static const int64_t length[3] = { 3, 1, 4 };

    (void)state;
    check_concat(NULL, 1, 3, length);
    check_concat("concat_param { axis: 0 }", 0, 3, length);
    check_concat("concat_param { axis: -1 }", 3, 2, length);
    check_concat("concat_param { concat_dim: 2 }", 2, 3, length);
    check_concat(NULL, 1, 1, length);
}

static void test_concat_refused(void **state)
{
    (void)state;
    test_layer_refused(&(test_layer_spec){ .type = "Concat",
                                           .text = "concat_param { axis: 1 concat_dim: 1 }",
                                           .n_bottom = 1,
                                           .bottom = { TEST_SHAPE(2, 3) } },
                       CT_ERR_CONFIG, "both set");
    test_layer_refused(&(test_layer_spec){ .type = "Concat",
                                           .text = "concat_param { concat_dim: 2 }",
                                           .n_bottom = 1,
                                           .bottom = { TEST_SHAPE(2, 3) } },
                       CT_ERR_CONFIG, "concat_dim 2");
    test_layer_refused(&(test_layer_spec){ .type = "Concat",
                                           .n_bottom = 2,
                                           .bottom = { TEST_SHAPE(2, 3, 4), TEST_SHAPE(2, 3, 5) } },
                       CT_ERR_SHAPE, "only along axis 1");
    test_layer_refused(&(test_layer_spec){ .type = "Concat",
                                           .n_bottom = 2,
                                           .bottom = { TEST_SHAPE(2, 3, 4), TEST_SHAPE(2, 3) } },
                       CT_ERR_SHAPE, "bottom 1 has shape 2 3 (6)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flatten),        cmocka_unit_test(test_split),
        cmocka_unit_test(test_silence),        cmocka_unit_test(test_concat),
        cmocka_unit_test(test_concat_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
