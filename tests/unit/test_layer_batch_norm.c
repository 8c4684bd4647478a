/* BatchNorm: kernels against the reference, gradients over shapes, and its rules. */
#include "tests/test.h"
#include "layers/engine/batch_norm/batch_norm.h"
#include "tests/layer_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *array(int64_t n, uint64_t seed)
{
    float *v = malloc((size_t)n * sizeof(float));

    assert_non_null(v);
    test_random(v, n, seed, -2, 2);
    return v;
}

static void near(const float *a, const float *b, int64_t n, double allowed, const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs((double)a[i] - (double)b[i]) <= allowed))
            fail_msg("%s[%lld]: %.9g, reference %.9g", what, (long long)i, (double)a[i],
                     (double)b[i]);
    }
}

/* What fills up the last block means nothing: it is made the same everywhere. */
static void level(const ct_batch_norm_desc *d, float *x)
{
    int64_t b = d->block, n_block = (b > 0) ? (d->channels + b - 1) / b : 0;

    for (int64_t i = 0; i < d->n * n_block * d->spatial * b; i++) {
        if (i / (d->spatial * b) % n_block * b + i % b >= d->channels) x[i] = 3.0f;
    }
}

/* Both sum in double. Values are at most 2 - mean over a standard deviation: within 8 for the
 * spread used here, so 8 roundings of numbers up to 16 bound y, and 16 of them dx. */
static void check_engine(const ct_batch_norm_engine *e, ct_batch_norm_desc d)
{
    const double eps = 0x1p-24;
    int64_t c = d.channels, stored = (d.block > 0) ? (c + d.block - 1) / d.block * d.block : c;
    int64_t n = d.n * stored * d.spatial;
    float *x = array(n, 1), *dy = array(n, 2), *y = array(n, 3), *y_ref = array(n, 4);
    float *normal = array(n, 5), *dx = array(n, 6), *dx_ref = array(n, 7);
    float *mean = array(c, 8), *var = array(c, 9), *mean_ref = array(c, 10),
          *var_ref = array(c, 11);

    e->statistics(&d, x, mean, var);
    ct_batch_norm_ref.statistics(&d, x, mean_ref, var_ref);
    near(mean, mean_ref, c, 2 * eps * 2, "mean");
    near(var, var_ref, c, 2 * eps * 4, "variance");
    for (int64_t k = 0; k < c; k++) var[k] = (float)(1 / sqrt((double)var_ref[k] + 0.25));
    e->normalise(&d, x, mean_ref, var, y, normal);
    ct_batch_norm_ref.normalise(&d, x, mean_ref, var, y_ref, NULL);
    level(&d, y), level(&d, y_ref), level(&d, normal);
    near(y, y_ref, n, 8 * eps * 16, "y");
    test_same(normal, y, n, "the copy of y");
    e->normalise(&d, x, mean_ref, var, y, NULL);
    level(&d, y);
    test_same(normal, y, n, "y without a copy");
    ct_batch_norm_ref.backward(&d, x, NULL, mean_ref, var, dy, dx_ref);
    e->backward(&d, x, NULL, mean_ref, var, dy, dx);
    level(&d, dx), level(&d, dx_ref);
    near(dx, dx_ref, n, 16 * eps * 16, "dx");
    e->backward(&d, NULL, normal, NULL, var, dy, dx);
    level(&d, dx);
    near(dx, dx_ref, n, 16 * eps * 16, "dx from y");
    memcpy(y, dy, (size_t)n * sizeof(float));
    e->backward(&d, NULL, normal, NULL, var, y, y);
    level(&d, y);
    test_same(y, dx, n, "dx in place");
    free(x), free(dy), free(y), free(y_ref), free(normal), free(dx), free(dx_ref);
    free(mean), free(var), free(mean_ref), free(var_ref);
}

static void test_engines(void **state)
{
    static const int64_t size[][3] = { { 1, 1, 1 },  { 1, 2, 1 },  { 2, 3, 1 },    { 5, 70, 1 },
                                       { 3, 2, 49 }, { 1, 3, 17 }, { 4, 33, 640 }, { 70, 130, 1 } };

    (void)state;
    for (size_t i = 0; i < 3 * sizeof(size) / sizeof(size[0]); i++) {
        const int64_t *of = size[i / 3];
        ct_batch_norm_desc d = { CT_DEVICE_CPU, of[0], of[1], of[2], (int)(i % 3) * 8 };
        int n = 0;

        for (int k = 0; ct_batch_norm_table[k] != NULL; k++) {
            if (!ct_batch_norm_table[k]->supports(&d)) continue;
            check_engine(ct_batch_norm_table[k], d);
            n += 1;
        }
        assert_int_equal(n, 2); /* one for this order, and the reference */
    }
}

static test_layer *make(const char *text, ct_shape shape, ct_phase phase, bool in_place)
{
    test_layer_spec spec = { .type = "BatchNorm",
                             .text = text,
                             .n_bottom = 1,
                             .bottom = { shape },
                             .phase = phase,
                             .in_place = in_place };
    test_layer *t;

    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    return t;
}

/* The statistics' scale: mean 0.5 + c / 4, variance 1 + c / 2, both over a factor of 8. */
static void set_statistics(test_layer *t)
{
    for (int64_t c = 0; c < t->weight_count[0]; c++) {
        t->weight[0][c] = 8 * (0.5f + 0.25f * (float)c);
        t->weight[1][c] = 8 * (1.0f + 0.5f * (float)c);
    }
    t->weight[2][0] = 8;
}

static const ct_shape shapes[] = {
    { 4, { 4, 3, 2, 5 } },    { 2, { 6, 5 } },    { 1, { 7 } },
    { 5, { 2, 3, 4, 1, 2 } }, { 3, { 1, 2, 9 } },
};
enum { N_SHAPE = sizeof(shapes) / sizeof(shapes[0]) };

static void test_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPE; i++) {
        for (int in_place = 0; in_place < 2; in_place++) {
            test_layer *t = make(NULL, shapes[i], CT_TRAIN, in_place);

            test_layer_gradient(t, NULL);
            test_layer_destroy(t);
            t = make("batch_norm_param { use_global_stats: true }", shapes[i], CT_TRAIN, in_place);
            set_statistics(t);
            test_layer_gradient(t, NULL);
            test_layer_destroy(t);
            t = make("batch_norm_param { use_global_stats: false }", shapes[i], CT_TEST, in_place);
            test_layer_gradient(t, NULL);
            test_layer_destroy(t);
        }
    }
}

static void test_in_place(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPE; i++) {
        test_layer *a = make(NULL, shapes[i], CT_TRAIN, false);
        test_layer *b = make(NULL, shapes[i], CT_TRAIN, true);

        test_random(a->top_diff[0], a->top_count[0], 6, -1, 1);
        test_random(b->top_diff[0], b->top_count[0], 6, -1, 1);
        assert_int_equal(test_layer_forward(a) | test_layer_backward(a), CT_OK);
        assert_int_equal(test_layer_forward(b) | test_layer_backward(b), CT_OK);
        test_same(a->top[0], b->top[0], a->top_count[0], "top");
        test_same(a->input_diff[0], b->input_diff[0], a->top_count[0], "bottom diff");
        for (int k = 0; k < 3; k++)
            test_same(a->weight_after[k], b->weight_after[k], a->weight_count[k], "statistics");
        test_layer_destroy(a);
        test_layer_destroy(b);
    }
}

/* One step from zeros: mean, m / (m - 1) times the variance, 1. */
static void test_first_step(void **state)
{
    test_layer *t = make(NULL, TEST_SHAPE(3, 1, 2), CT_TRAIN, false);
    static const float x[6] = { 1, 2, 3, 4, 5, 9 }; /* mean 4, squares 9+4+1+0+1+25 = 40 */

    (void)state;
    memcpy(t->input[0], x, sizeof(x));
    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_true(t->weight_after[0][0] == 4.0f);
    assert_true(fabsf(t->weight_after[1][0] - 8.0f) <= 4 * 0x1p-20f);
    assert_true(t->weight_after[2][0] == 1.0f);
    for (int i = 0; i < 6; i++) {
        double y = ((double)x[i] - 4) / sqrt(40.0 / 6 + (double)1e-5f);

        assert_true(fabs((double)t->top[0][i] - y) <= 4 * 0x1p-24 * 2);
    }
    test_layer_destroy(t);
}

/* A test before any training step: statistics are zero, Caffe divides by sqrt(eps). */
static void test_untrained(void **state)
{
    test_layer *t = make("batch_norm_param { eps: 0.25 }", TEST_SHAPE(2, 3), CT_TEST, false);

    (void)state;
    assert_int_equal(test_layer_forward(t), CT_OK);
    for (int i = 0; i < 6; i++) assert_true(t->top[0][i] == t->input[0][i] / 0.5f);
    test_layer_destroy(t);
}

static void test_declares(void **state)
{
    test_layer *t = make("param { lr_mult: 0 } param { lr_mult: 0 } param { lr_mult: 0 }",
                         TEST_SHAPE(2, 3, 4), CT_TRAIN, false);
    static const int64_t count[3] = { 3, 3, 1 };

    (void)state;
    assert_int_equal(t->layer.n_weight, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(t->layer.weight[i].kind, CT_WEIGHT_STATISTIC);
        assert_true(t->layer.weight[i].default_lr_mult == 0.0f);
        assert_int_equal(t->weight_count[i], count[i]);
    }
    test_layer_destroy(t);
}

static void refused(const char *text, const char *part)
{
    test_layer_refused(
        &(test_layer_spec){
            .type = "BatchNorm", .text = text, .n_bottom = 1, .bottom = { TEST_SHAPE(2, 3) } },
        CT_ERR_CONFIG, part);
}

static void test_refused(void **state)
{
    (void)state;
    refused("param { lr_mult: 0 } param { decay_mult: 0 }", "param 1 has lr_mult 1");
    refused("batch_norm_param { eps: -1e-3 }", "eps");
    refused("batch_norm_param { eps: nan }", "eps");
    refused("batch_norm_param { moving_average_fraction: inf }", "moving_average_fraction");
    test_layer_refused(
        &(test_layer_spec){ .type = "BatchNorm", .n_bottom = 1, .bottom = { { 0 } } }, CT_ERR_SHAPE,
        "statistics of 1 channels");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engines),   cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_in_place),  cmocka_unit_test(test_first_step),
        cmocka_unit_test(test_untrained), cmocka_unit_test(test_declares),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
