/* The gradient check itself: it must pass a right layer and catch wrong ones. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include <math.h>
#include <string.h>

/* y = w (x^2 + |x|): smooth but for a kink at 0 */
static ct_status toy_setup(ct_layer *l, const ct_shape *bottom)
{
    ct_shape one = TEST_SHAPE(1);

    (void)bottom;
    return (ct_layer_add_weight(l, &one, NULL) != NULL) ? CT_OK : CT_ERR_ARG;
}

static ct_status toy_reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    ct_blob_set_shape(in->top[0], &in->bottom[0]->data.shape);
    return CT_OK;
}

static ct_status toy_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *x = ct_blob_data(in->bottom[0]);
    float *y = ct_blob_data(in->top[0]), w = ct_blob_data(&in->weight[0])[0];

    (void)l;
    (void)ex;
    for (int64_t i = 0; i < ct_tensor_count(&in->bottom[0]->data); i++)
        y[i] = w * (x[i] * x[i] + fabsf(x[i]));
    return CT_OK;
}

static ct_status toy_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *x = ct_blob_data(in->bottom[0]), *dy = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]), w = ct_blob_data(&in->weight[0])[0];
    double dw = 0;

    for (int64_t i = 0; i < ct_tensor_count(&in->bottom[0]->data); i++) {
        dx[i] =
            dy[i] * w * (2 * x[i] + copysignf(1.0f, x[i])) * (1.0f + 1e-3f * (float)l->env->rank);
        dw += (double)(dy[i] * (x[i] * x[i] + fabsf(x[i])));
    }
    if (ct_weight_beta(in, ex, 0) != 0.0f) dw += (double)ct_blob_diff(&in->weight[0])[0];
    ct_blob_diff(&in->weight[0])[0] = (float)dw;
    return CT_OK;
}

static const ct_layer_ops toy = {
    .type = "Toy",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .backward_reads = CT_READS_BOTTOM,
    .setup = toy_setup,
    .reshape = toy_reshape,
    .forward = toy_forward,
    .backward = toy_backward,
};

static test_layer *make(int64_t n)
{
    test_layer_spec spec = { .ops = &toy, .n_bottom = 1, .bottom = { TEST_SHAPE(n) } };
    test_layer *t;

    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    test_random_distinct(t->input[0], n, 3, -1.0f, 1.0f);
    for (int64_t i = 0; i < n; i++)
        t->input[0][i] += copysignf(0.05f, t->input[0][i]); /* over 2 steps from the kink */
    t->weight[0][0] = 0.7f;
    return t;
}

static void test_right(void **state)
{
    test_layer *t = make(33);
    float once;

    (void)state;
    test_layer_gradient(t, NULL);
    once = t->weight_diff[0][0];
    t->ex.accumulate = true;
    test_layer_pass(t);
    assert_true(fabsf(t->weight_diff[0][0] - 2 * once) <= 0x1p-22f * fabsf(once));
    test_layer_destroy(t);
}

static void test_kinks_are_counted(void **state)
{
    static const test_gradient allow = { .max_kink = 0.5 };
    test_layer *t = make(10);

    (void)state;
    t->input[0][2] = 0.004f; /* a kink nearer than a step: the difference is wrong there */
    t->input[0][5] = -0.009f;
    t->input[0][7] = 1e-6f;
    test_layer_gradient(t, &allow);
    test_layer_destroy(t);
}

/* A gradient wrong by one part in a thousand, and a kink that nobody allowed for. */
static void test_catches(void **state)
{
    test_layer *t = make(10);

    (void)state;
    assert_null(test_layer_gradient_error(t, NULL));
    t->env.rank = 1;
    assert_non_null(strstr(test_layer_gradient_error(t, NULL), "bottom 0 element"));
    t->env.rank = 0;
    t->input[0][2] = 0.004f;
    assert_non_null(strstr(test_layer_gradient_error(t, NULL), "1 of 10 elements lie at kinks"));
    test_layer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),
        cmocka_unit_test(test_kinks_are_counted),
        cmocka_unit_test(test_catches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
