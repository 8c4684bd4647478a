/* Scale and Bias over axes and shapes, in place and out of place, against a double formula. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include <math.h>
#include <stdio.h>

typedef struct axis_case {
    int axis, num_axes; /* as in the prototxt */
    ct_shape bottom, small;
    int from; /* the axis counted from the front */
} axis_case;

static const axis_case cases[] = {
    { 1, 1, { 4, { 3, 5, 2, 7 } }, { 1, { 5 } }, 1 },
    { 0, 2, { 4, { 3, 5, 2, 7 } }, { 2, { 3, 5 } }, 0 },
    { -2, -1, { 3, { 3, 4, 6 } }, { 2, { 4, 6 } }, 1 },
    { 0, -1, { 2, { 3, 4 } }, { 2, { 3, 4 } }, 0 },
    { 1, 1, { 2, { 5, 131 } }, { 1, { 131 } }, 1 }, /* inner 1, more than one block of columns */
    { 1, 0, { 2, { 3, 4 } }, { 0, { 0 } }, 0 },
    { 0, 1, { 1, { 7 } }, { 1, { 7 } }, 0 },
    { 1, 1, { 4, { 5, 3, 33, 37 } }, { 1, { 3 } }, 1 }, /* over the threshold of threads */
};
enum { N_CASE = sizeof(cases) / sizeof(cases[0]) };

/* Index into the small blob of element i of the bottom. */
static int64_t small_index(const axis_case *c, int64_t i)
{
    int64_t inner = ct_shape_count(&c->bottom, c->from + c->small.ndim, -1);

    return i / inner % ct_shape_count(&c->small, 0, -1);
}

static test_layer *make(const char *type, const axis_case *c, int n_bottom, bool bias,
                        bool in_place)
{
    test_layer_spec spec = { .type = type, .n_bottom = n_bottom, .in_place = in_place };
    char text[160];
    test_layer *t;

    if (type[0] == 'S')
        snprintf(text, sizeof(text),
                 "scale_param { axis: %d num_axes: %d bias_term: %s bias_filler { value: 0.5 } }",
                 c->axis, c->num_axes, bias ? "true" : "false");
    else
        snprintf(text, sizeof(text), "bias_param { axis: %d num_axes: %d }", c->axis, c->num_axes);
    spec.text = text;
    spec.bottom[0] = c->bottom;
    spec.bottom[1] = c->small;
    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    return t;
}

/* y = x scale + bias, two roundings of numbers up to |x scale| + |bias|. */
static void check_forward(test_layer *t, const axis_case *c, const float *scale, const float *bias)
{
    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_true(ct_shape_equal(&t->top_shape[0], &c->bottom));
    for (int64_t i = 0; i < t->top_count[0]; i++) {
        int64_t k = small_index(c, i);
        double xs = (double)t->input[0][i] * ((scale != NULL) ? (double)scale[k] : 1.0);
        double b = (bias != NULL) ? (double)bias[k] : 0.0;

        if (!(fabs((double)t->top[0][i] - (xs + b)) <= 2 * 0x1p-24 * (fabs(xs) + fabs(b))))
            fail_msg("element %lld is %g, expected %g", (long long)i, (double)t->top[0][i], xs + b);
    }
}

static void check_scale(const axis_case *c, int n_bottom, bool bias, bool in_place)
{
    test_layer *t = make("Scale", c, n_bottom, bias, in_place);
    int bias_at = (n_bottom == 1) ? 1 : 0;
    const float *b;

    assert_int_equal(t->layer.n_weight, bias_at + (bias ? 1 : 0));
    for (int i = 0; i < t->layer.n_weight; i++) {
        assert_true(ct_shape_equal(&t->layer.weight[i].shape, &c->small));
        for (int64_t k = 0; k < t->weight_count[i]; k++) /* fillers: 1 and the bias' 0.5 */
            assert_true(t->weight[i][k] == ((i == bias_at) ? 0.5f : 1.0f));
        test_random(t->weight[i], t->weight_count[i], 30 + (uint64_t)i, -2, 2);
    }
    b = bias ? t->weight[bias_at] : NULL;
    check_forward(t, c, (n_bottom == 1) ? t->weight[0] : t->input[1], b);
    test_layer_gradient(t, &(test_gradient){ .max_element = (t->top_count[0] > 5000) ? 4 : 40 });
    test_layer_destroy(t);
}

static void test_scale(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASE; i++) {
        for (int variant = 0; variant < 4; variant++) {
            check_scale(&cases[i], 1, variant & 1, variant & 2);
            check_scale(&cases[i], 2, variant & 1, variant & 2);
        }
    }
}

static void test_bias(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASE; i++) {
        for (int variant = 0; variant < 4; variant++) {
            int n_bottom = 1 + (variant & 1);
            test_layer *t = make("Bias", &cases[i], n_bottom, false, variant & 2);

            if (n_bottom == 1) {
                assert_true(t->weight[0][0] == 0.0f);
                test_random(t->weight[0], t->weight_count[0], 31, -2, 2);
            }
            check_forward(t, &cases[i], NULL, (n_bottom == 1) ? t->weight[0] : t->input[1]);
            test_layer_gradient(
                t, &(test_gradient){ .max_element = (t->top_count[0] > 5000) ? 4 : 40 });
            test_layer_destroy(t);
        }
    }
}

/* In place and out of place give the same bits, forward and backward. */
static void test_in_place(void **state)
{
    test_layer *a = make("Scale", &cases[0], 1, true, false);
    test_layer *b = make("Scale", &cases[0], 1, true, true);

    (void)state;
    test_random(a->top_diff[0], a->top_count[0], 6, -1, 1);
    test_random(b->top_diff[0], b->top_count[0], 6, -1, 1);
    for (int i = 0; i < 2; i++) {
        test_random(a->weight[i], 5, 12, -2, 2);
        test_random(b->weight[i], 5, 12, -2, 2);
    }
    assert_int_equal(test_layer_forward(a) | test_layer_backward(a), CT_OK);
    assert_int_equal(test_layer_forward(b) | test_layer_backward(b), CT_OK);
    test_same(a->top[0], b->top[0], a->top_count[0], "top");
    test_same(a->input_diff[0], b->input_diff[0], a->top_count[0], "bottom diff");
    for (int i = 0; i < 2; i++) test_same(a->weight_diff[i], b->weight_diff[i], 5, "weight diff");
    test_layer_destroy(a);
    test_layer_destroy(b);
}

/* accumulate adds, the flag of a shared weight too; what is not wanted stays untouched. */
static void test_accumulate(void **state)
{
    test_layer_spec spec = { .type = "Scale",
                             .text = "scale_param { bias_term: true }",
                             .n_bottom = 1,
                             .bottom = { TEST_SHAPE(2, 3, 4) },
                             .add_weight_diff = { true, false } };
    test_layer *t;
    float once[3], bias_once[3];

    (void)state;
    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    test_random(t->top_diff[0], 24, 3, -1, 1);
    assert_int_equal(test_layer_forward(t) | test_layer_backward(t), CT_OK);
    for (int i = 0; i < 3; i++) {
        once[i] = t->weight_diff[0][i]; /* added to zeros */
        bias_once[i] = t->weight_diff[1][i];
        t->weight_diff[0][i] = 10.0f;
        t->weight_diff[1][i] = 10.0f;
    }
    assert_int_equal(test_layer_forward(t) | test_layer_backward(t), CT_OK);
    for (int i = 0; i < 3; i++) {
        assert_true(fabsf(t->weight_diff[0][i] - (10.0f + once[i])) <= 0x1p-20f);
        assert_true(t->weight_diff[1][i] == bias_once[i]);
    }
    t->ex.accumulate = true;
    assert_int_equal(test_layer_forward(t) | test_layer_backward(t), CT_OK);
    for (int i = 0; i < 3; i++)
        assert_true(fabsf(t->weight_diff[1][i] - 2 * bias_once[i]) <= 0x1p-21f);
    test_layer_destroy(t);
    spec.no_weight_diff[0] = true;
    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    test_layer_gradient(t, NULL);
    assert_null(t->weight_diff[0]);
    test_layer_destroy(t);
}

static void refused(const char *type, const char *text, int n_bottom, ct_shape second,
                    ct_status expected, const char *part)
{
    test_layer_refused(&(test_layer_spec){ .type = type,
                                           .text = text,
                                           .n_bottom = n_bottom,
                                           .bottom = { TEST_SHAPE(2, 3), second } },
                       expected, part);
}

static void test_refused(void **state)
{
    ct_shape none = { 0 };

    (void)state;
    refused("Scale", "scale_param { num_axes: -2 }", 1, none, CT_ERR_CONFIG, "num_axes -2");
    refused("Scale", "scale_param { num_axes: 2 }", 1, none, CT_ERR_CONFIG, "2 axes from axis 1");
    refused("Scale", "scale_param { axis: 2 }", 1, none, CT_ERR_CONFIG, "axis 2 is outside");
    refused("Scale", "scale_param { filler { type: \"gaus\" } }", 1, none, CT_ERR_CONFIG, "gaus");
    refused("Scale", NULL, 2, TEST_SHAPE(2), CT_ERR_SHAPE, "shape 2 (2) does not fit on 2 3 (6)");
    refused("Scale", NULL, 2, TEST_SHAPE(3, 1), CT_ERR_SHAPE, "from axis 1 on");
    refused("Bias", "bias_param { num_axes: 2147483647 }", 1, none, CT_ERR_CONFIG, "2147483647");
    refused("Bias", NULL, 2, TEST_SHAPE(4), CT_ERR_SHAPE, "does not fit");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scale),    cmocka_unit_test(test_bias),
        cmocka_unit_test(test_in_place), cmocka_unit_test(test_accumulate),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
