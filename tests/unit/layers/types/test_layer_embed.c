/* Embed: against the product with one-hot rows, repeated indices, numeric gradients, messages; and
 * the functions of framework/math/sigmoid.h. */
#include "tests/test.h"
#include "framework/math/sigmoid.h"
#include "layers/engine/recurrent/recurrent.h"
#include "tests/layer_harness.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define FILLED                                                                                     \
    "weight_filler { type: \"gaussian\" std: 1 } bias_filler { type: \"gaussian\" std: 1 }"

static const float words[6] = { 3, 0, 6, 3, 3, 1 };

static test_layer *make_words(const char *text)
{
    test_layer_spec spec = {
        .type = "Embed", .text = text, .n_bottom = 1, .bottom = { TEST_SHAPE(2, 3) }
    };
    test_layer *t = test_layer_make(&spec);

    memcpy(t->input[0], words, sizeof(words));
    for (int64_t i = 0; i < t->top_count[0]; i++) t->top_diff[0][i] = (float)(i % 11) - 4.0f;
    test_layer_pass(t);
    return t;
}

/* Whole numbers add exactly in any order. */
static void test_rows(void **state)
{
    enum { K = 7, M = 6, SIZE = 130 };
    test_layer *t = make_words("embed_param { num_output: 130 input_dim: 7 " FILLED " }");

    (void)state;
    assert_int_equal(t->layer.n_weight, 2);
    assert_int_equal(t->layer.weight[0].shape.dim[0], K);
    assert_int_equal(t->layer.weight[0].shape.dim[1], SIZE);
    assert_int_equal(t->top_shape[0].ndim, 3);
    assert_int_equal(t->top_shape[0].dim[2], SIZE);
    for (int m = 0; m < M; m++)
        for (int n = 0; n < SIZE; n++)
            assert_true(t->top[0][m * SIZE + n] ==
                        t->weight[0][(int)words[m] * SIZE + n] + t->weight[1][n]);
    for (int n = 0; n < SIZE; n++) {
        float bias = 0;

        for (int k = 0; k < K; k++) {
            float sum = 0;

            for (int m = 0; m < M; m++)
                if ((int)words[m] == k) sum += t->top_diff[0][m * SIZE + n];
            assert_true(t->weight_diff[0][k * SIZE + n] == sum);
            bias += sum;
        }
        assert_true(t->weight_diff[1][n] == bias);
    }
    test_layer_destroy(t);
}

static void test_gradient_check(void **state)
{
    test_layer *t = make_words("embed_param { num_output: 3 input_dim: 7 " FILLED " }");

    (void)state;
    test_layer_gradient(t, &(test_gradient){ .skip_bottom = 1 });
    test_layer_destroy(t);
    t = make_words("embed_param { num_output: 3 input_dim: 7 bias_term: false " FILLED " }");
    assert_int_equal(t->layer.n_weight, 1);
    test_layer_gradient(t, &(test_gradient){ .skip_bottom = 1 });
    test_layer_destroy(t);
}

static void test_refused(void **state)
{
    static const float bad[] = { -1, 7, 2.5f, NAN };
    test_layer_spec s = { .type = "Embed", .n_bottom = 1, .bottom = { TEST_SHAPE(2, 3) } };
    test_layer *t;

    (void)state;
    test_layer_refused(&s, CT_ERR_CONFIG, "embed_param.num_output");
    s.text = "embed_param { num_output: 3 }";
    test_layer_refused(&s, CT_ERR_CONFIG, "embed_param.input_dim");
    s.text = "embed_param { num_output: 3 input_dim: 7 }";
    t = test_layer_make(&s);
    memcpy(t->input[0], words, sizeof(words));
    for (int i = 0; i < 4; i++) {
        t->input[0][4] = bad[i];
        test_log_start();
        assert_int_equal(test_layer_forward(t), CT_ERR_DATA);
        assert_non_null(strstr(test_log_stop(), "not a whole number in 0..6"));
    }
    test_layer_destroy(t);
}

/* A message names the sample of the global batch, whichever axis counts samples. */
static void test_names_sample(void **state)
{
    static const struct {
        int64_t local;
        const char *says;
    } axis[] = { { 2, "element 2 of sample 9 of batch 4 is 7, not a whole number in 0..6" },
                 { 3, "element 1 of sample 10 of batch 4 is 7, not a whole number in 0..6" } };
    test_layer_spec s = { .type = "Embed",
                          .n_bottom = 1,
                          .bottom = { TEST_SHAPE(2, 3) },
                          .text = "embed_param { num_output: 3 input_dim: 7 }" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        test_layer *t = test_layer_make(&s);

        memcpy(t->input[0], words, sizeof(words));
        t->input[0][5] = 7;
        t->ex.batch_local = axis[i].local;
        t->ex.batch_first = 8;
        t->ex.micro_step = 4;
        test_log_start();
        assert_int_equal(test_layer_forward(t), CT_ERR_DATA);
        assert_non_null(strstr(test_log_stop(), axis[i].says));
        test_layer_destroy(t);
    }
}

/* Units of the last place of the exact value. */
static double error(float got, double exact)
{
    double size = fabs(exact) < (double)FLT_MIN ? (double)FLT_MIN : fabs(exact);

    return fabs((double)got - exact) / (ldexp(1.0, ilogb(size)) * 0x1p-23);
}

static void test_functions(void **state)
{
    float special[] = { INFINITY, -INFINITY, 0.0f, 1e30f, -1e30f }, y[5];

    (void)state;
    for (int i = -880000; i < 880000; i++) {
        float x = (float)i * 1e-4f;
        double xd = (double)x;

        if (x > -87.0f) assert_true(error(ct_exp_f32(x), exp(xd)) <= 2);
        if (x < -87.0f)
            assert_true(ct_sigmoid_f32(x) == 0); /* as its docstring promises */
        else
            assert_true(error(ct_sigmoid_f32(x), 1 / (1 + exp(-xd))) <= 4);
        assert_true(error(ct_tanh_f32(x), tanh(xd)) <= 3);
    }
    for (double x = 1e-37; x < 1; x *= 1.003)
        assert_true(error(ct_tanh_f32(-(float)x), tanh(-(double)(float)x)) <= 3);
    assert_true(isnan(ct_exp_f32(NAN)) && isnan(ct_sigmoid_f32(NAN)) && isnan(ct_tanh_f32(NAN)));
    ct_tanh_forward(5, special, y);
    assert_true((y[0] == 1) && (y[1] == -1) && (y[2] == 0) && (y[3] == 1) && (y[4] == -1));
    for (int i = 0; i < 5; i++) y[i] = ct_sigmoid_f32(special[i]);
    assert_true((y[0] == 1) && (y[1] < 1e-37f) && (y[2] == 0.5f) && (y[3] == 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),      cmocka_unit_test(test_gradient_check),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_names_sample),
        cmocka_unit_test(test_functions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
