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

    double *sums = calloc(2 * (size_t)c, sizeof(double));
    ct_batch_norm_map m = { .x = x, .mean = mean_ref, .inv_std = var, .y = y, .normal = normal };
    ct_batch_norm_back b = { .n_dy = 1, .dy = { dy }, .sum = sums, .dot = sums + c };

    e->statistics(&d, 0, c, x, mean, var);
    ct_batch_norm_ref.statistics(&d, 0, c, x, mean_ref, var_ref);
    near(mean, mean_ref, c, 2 * eps * 2, "mean");
    near(var, var_ref, c, 2 * eps * 4, "variance");
    for (int64_t k = 0; k < c; k++) var[k] = (float)(1 / sqrt((double)var_ref[k] + 0.25));
    e->apply(&d, 0, c, &m);
    m.y = y_ref, m.normal = NULL;
    ct_batch_norm_ref.apply(&d, 0, c, &m);
    level(&d, y), level(&d, y_ref), level(&d, normal);
    near(y, y_ref, n, 8 * eps * 16, "y");
    test_same(normal, y, n, "the copy of y");
    m.y = y;
    e->apply(&d, 0, c, &m);
    level(&d, y);
    test_same(normal, y, n, "y without a copy");
    b.map = m, b.dx = dx_ref;
    ct_batch_norm_ref.backward(&d, 0, c, &b);
    b.dx = dx;
    e->backward(&d, 0, c, &b);
    level(&d, dx), level(&d, dx_ref);
    near(dx, dx_ref, n, 16 * eps * 16, "dx");
    b.map.x = normal, b.map.mean = NULL;
    e->backward(&d, 0, c, &b);
    level(&d, dx);
    near(dx, dx_ref, n, 16 * eps * 16, "dx from y");
    memcpy(y, dy, (size_t)n * sizeof(float));
    b.dy[0] = b.dx = y;
    e->backward(&d, 0, c, &b);
    level(&d, y);
    test_same(y, dx, n, "dx in place");
    free(x), free(dy), free(y), free(y_ref), free(normal), free(dx), free(dx_ref);
    free(mean), free(var), free(mean_ref), free(var_ref), free(sums);
}

/* Bit by bit what may follow: 1 Scale, 2 a sum, 4 ReLU, 8 two more gradients, 16 in place.
 * |normal| < 8 as above, scale < 1, sums of three gradients: |z| < 16 and |dx| < 64. A sign is that
 * of y where a sum is in it, and computed again, in other roundings than the reference's, where
 * not: no z of these numbers is within a rounding of 0. */
static void check_tail(const ct_batch_norm_engine *e, ct_batch_norm_desc d, int bits)
{
    const double eps = 0x1p-24;
    int64_t c = d.channels, stored = (d.block > 0) ? (c + d.block - 1) / d.block * d.block : c;
    int64_t n = d.n * stored * d.spatial;
    float *v[9];
    double *sums = calloc(4 * (size_t)c, sizeof(double));
    ct_batch_norm_map m = { .relu = (bits & 4) != 0 };
    ct_batch_norm_back b = { .n_dy = (bits & 8) ? 3 : 1, .fixed = (bits & 5) == 5 };

    for (int k = 0; k < 9; k++) v[k] = array((k < 6) ? n : c, (uint64_t)(20 + k));
    for (int64_t k = 0; k < c; k++) v[8][k] = 1.5f + v[8][k] / 8;
    m.x = v[0], m.mean = v[6], m.inv_std = v[8], m.y = v[1];
    if (bits & 1) m.scale = v[7], m.bias = v[6];
    if (bits & 2) m.add = v[2];
    ct_batch_norm_ref.apply(&d, 0, c, &m);
    m.y = v[3];
    for (int64_t k = 0; k < c; k += 16) e->apply(&d, k, (k + 16 < c) ? k + 16 : c, &m);
    level(&d, v[1]), level(&d, v[3]);
    near(v[3], v[1], n, 8 * eps * 16, "y of a tail");
    b.map = m;
    for (int k = 0; k < b.n_dy; k++) b.dy[k] = array(n, (uint64_t)(40 + k));
    b.dx = v[4], b.g = (bits & 2) ? v[5] : NULL;
    b.sum = sums, b.dot = sums + c;
    ct_batch_norm_ref.backward(&d, 0, c, &b);
    b.dx = v[1], b.g = (bits & 2) ? v[2] : NULL;
    b.sum = sums + 2 * c, b.dot = sums + 3 * c;
    if ((bits & 16) && (bits & 2)) b.g = (float *)b.dy[0];
    if ((bits & 16) && !(bits & 2)) b.dx = (float *)b.dy[0];
    for (int64_t k = 0; k < c; k += 16) e->backward(&d, k, (k + 16 < c) ? k + 16 : c, &b);
    level(&d, b.dx), level(&d, v[4]);
    near(b.dx, v[4], n, 16 * eps * 64, "dx of a tail");
    if (b.g != NULL) level(&d, b.g), level(&d, v[5]);
    if (b.g != NULL) near(b.g, v[5], n, 3 * eps * 8, "the other bottom's gradient");
    for (int64_t k = 0; k < 2 * c; k++) {
        double terms = (double)(d.n * d.spatial);

        assert_true(fabs(sums[2 * c + k] - sums[k]) <= 8 * eps * 64 * terms);
    }
    for (int k = 0; k < b.n_dy; k++) free((float *)b.dy[k]);
    for (int k = 0; k < 9; k++) free(v[k]);
    free(sums);
}

static void test_tails(void **state)
{
    static const int64_t size[][3] = { { 2, 3, 1 }, { 5, 70, 1 }, { 3, 2, 49 }, { 4, 33, 640 } };

    (void)state;
    for (size_t i = 0; i < 3 * sizeof(size) / sizeof(size[0]); i++) {
        const int64_t *of = size[i / 3];
        ct_batch_norm_desc d = { CT_DEVICE_CPU, of[0], of[1], of[2], (int)(i % 3) * 8, false };

        for (int bits = 0; bits < 32; bits++) check_tail(ct_batch_norm_choose(&d), d, bits);
    }
}

static void test_engines(void **state)
{
    static const int64_t size[][3] = { { 1, 1, 1 },  { 1, 2, 1 },  { 2, 3, 1 },    { 5, 70, 1 },
                                       { 3, 2, 49 }, { 1, 3, 17 }, { 4, 33, 640 }, { 70, 130, 1 } };

    (void)state;
    for (size_t i = 0; i < 3 * sizeof(size) / sizeof(size[0]); i++) {
        const int64_t *of = size[i / 3];
        ct_batch_norm_desc d = { CT_DEVICE_CPU, of[0], of[1], of[2], (int)(i % 3) * 8, false };
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

/* One value is its own mean, and has no variance, biased or not. */
static void test_one_value(void **state)
{
    test_layer *t = make(NULL, TEST_SHAPE(1, 2, 1), CT_TRAIN, false);

    (void)state;
    t->input[0][0] = 3;
    t->input[0][1] = -5;
    assert_int_equal(test_layer_forward(t), CT_OK);
    for (int c = 0; c < 2; c++) {
        assert_true(t->weight_after[0][c] == t->input[0][c]);
        assert_true(t->weight_after[1][c] == 0);
        assert_true(t->top[0][c] == 0);
    }
    test_layer_destroy(t);
}

/* With stats_batch_size each part of the batch is what a layer of its own makes of it, and the
 * statistics are those of as many steps. */
static void check_parts(bool in_place)
{
    const int64_t count = 2 * 3 * 5;
    test_layer *part = make(NULL, TEST_SHAPE(2, 3, 5), CT_TRAIN, in_place);
    test_layer *whole =
        make("batch_norm_param { stats_batch_size: 2 }", TEST_SHAPE(6, 3, 5), CT_TRAIN, in_place);
    float moved[3][3] = { { 0 } };

    test_random(whole->top_diff[0], whole->top_count[0], 6, -1, 1);
    assert_int_equal(test_layer_forward(whole) | test_layer_backward(whole), CT_OK);
    for (int k = 0; k < 3; k++) {
        for (int w = 0; w < 3; w++)
            memcpy(part->weight[w], moved[w], (size_t)part->weight_count[w] * sizeof(float));
        memcpy(part->input[0], whole->input[0] + k * count, (size_t)count * sizeof(float));
        memcpy(part->top_diff[0], whole->top_diff[0] + k * count, (size_t)count * sizeof(float));
        assert_int_equal(test_layer_forward(part) | test_layer_backward(part), CT_OK);
        test_same(whole->top[0] + k * count, part->top[0], count, "top of a part");
        test_same(whole->input_diff[0] + k * count, part->input_diff[0], count, "its bottom diff");
        for (int w = 0; w < 3; w++)
            memcpy(moved[w], part->weight_after[w], (size_t)part->weight_count[w] * sizeof(float));
    }
    for (int w = 0; w < 3; w++)
        test_same(whole->weight_after[w], moved[w], whole->weight_count[w], "statistics");
    test_layer_destroy(whole);
    test_layer_destroy(part);
}

static void test_parts(void **state)
{
    (void)state;
    check_parts(false);
    check_parts(true);
    /* global statistics know no parts */
    test_layer_destroy(
        make("batch_norm_param { stats_batch_size: 3 }", TEST_SHAPE(4, 3), CT_TEST, false));
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
    refused("batch_norm_param { stats_batch_size: 4 }",
            "stats_batch_size 4 does not divide the batch of 2 samples on this rank");
    refused("batch_norm_param { moving_average_fraction: inf }", "moving_average_fraction");
    test_layer_refused(
        &(test_layer_spec){ .type = "BatchNorm", .n_bottom = 1, .bottom = { { 0 } } }, CT_ERR_SHAPE,
        "statistics of 1 channels");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engines),   cmocka_unit_test(test_tails),
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_in_place),  cmocka_unit_test(test_first_step),
        cmocka_unit_test(test_untrained), cmocka_unit_test(test_declares),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_one_value),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
