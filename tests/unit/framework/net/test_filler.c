/* Every filler against its formula: exact values where it has one, moments within six standard
 * errors otherwise (a correct filler misses that once in 5e8 tests; the seeds are fixed anyway). */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include "framework/base/rng.h"
#include "framework/net/net.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 40 * 25 * 10 * 10 };

static char type_text[32];

static Ct__FillerParameter make(const char *type)
{
    Ct__FillerParameter p = CT__FILLER_PARAMETER__INIT;

    snprintf(type_text, sizeof(type_text), "%s", type);
    p.type = type_text;
    return p;
}

static void moments(const float *v, int64_t n, double *mean_p, double *var_p)
{
    double mean = 0, var = 0;

    for (int64_t i = 0; i < n; i++) mean += (double)v[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        var += ((double)v[i] - mean) * ((double)v[i] - mean) / (double)n;
    *mean_p = mean;
    *var_p = var;
}

/* kurtosis: E(x-mu)^4 / var^2, which gives the standard error of the variance. */
static void check_moments(const float *v, int64_t n, double mean, double var, double kurtosis)
{
    double m, s2, root = sqrt((double)n);

    moments(v, n, &m, &s2);
    assert_true(fabs(m - mean) <= 6 * sqrt(var) / root);
    assert_true(fabs(s2 - var) <= 6 * var * sqrt(kurtosis - 1) / root);
}

static void run(const Ct__FillerParameter *p, uint64_t key, const ct_shape *s, float *v)
{
    assert_int_equal(ct_fill(p, key, s, v), CT_OK);
}

static void test_constant(void **state)
{
    Ct__FillerParameter p = CT__FILLER_PARAMETER__INIT;
    ct_shape s = TEST_SHAPE(3, 5), scalar = { 0 };
    float v[15];

    (void)state;
    memset(v, 0xFF, sizeof(v));
    run(&p, 1, &s, v); /* no type: constant 0 */
    for (int i = 0; i < 15; i++) assert_true(v[i] == 0.0f);
    p.value = 2.5f;
    run(&p, 1, &s, v);
    for (int i = 0; i < 15; i++) assert_true(v[i] == 2.5f);
    p.value = -1.0f;
    run(&p, 1, &scalar, v);
    assert_true((v[0] == -1.0f) && (v[1] == 2.5f));
}

static void test_uniform(void **state)
{
    Ct__FillerParameter p = make("uniform");
    ct_shape s = TEST_SHAPE(N);
    float *v = malloc(N * sizeof(float));

    (void)state;
    p.min = -0.25f;
    p.max = 0.75f;
    run(&p, 11, &s, v);
    for (int i = 0; i < N; i++) assert_true((v[i] >= -0.25f) && (v[i] <= 0.75f));
    check_moments(v, N, 0.25, 1.0 / 12, 1.8);
    free(v);
}

static void test_gaussian(void **state)
{
    Ct__FillerParameter p = make("gaussian");
    ct_shape s = TEST_SHAPE(N);
    float *v = malloc(N * sizeof(float));
    int beyond = 0;

    (void)state;
    p.mean = 0.5f;
    p.std = 2.0f;
    run(&p, 12, &s, v);
    check_moments(v, N, 0.5, 4.0, 3.0);
    for (int i = 0; i < N; i++) beyond += fabs((double)v[i] - 0.5) > 2 * 1.959964;
    /* 5 % lie beyond 1.96 standard deviations: binomial, six standard errors */
    assert_true(fabs(beyond - 0.05 * N) <= 6 * sqrt(N * 0.05 * 0.95));
    p.mean = 0.0f;
    p.std = 1.0f;
    run(&p, 12, &s, v);
    for (int i = 0; i < 101; i++) assert_true(v[i] == ct_rng_normal_at(12, (uint64_t)i));
    free(v);
}

static void test_gaussian_sparse(void **state)
{
    Ct__FillerParameter p = make("gaussian");
    ct_shape s = TEST_SHAPE(100, N / 100);
    float *dense = malloc(N * sizeof(float)), *v = malloc(N * sizeof(float));
    int kept = 0;

    (void)state;
    run(&p, 13, &s, dense);
    p.sparse = 15;
    run(&p, 13, &s, v);
    for (int i = 0; i < N; i++) {
        if (v[i] != 0.0f) assert_true(v[i] == dense[i]);
        kept += v[i] != 0.0f;
    }
    assert_true(fabs(kept - 0.15 * N) <= 6 * sqrt(N * 0.15 * 0.85));
    p.sparse = 0;
    run(&p, 13, &s, v);
    for (int i = 0; i < N; i++) assert_true(v[i] == 0.0f);
    free(dense);
    free(v);
}

/* fan_in = count / dim 0, fan_out = count / dim 1 (count where there is no dim 1). */
static void check_fans(const char *type, double numerator, double kurtosis)
{
    static const Ct__FillerParameter__VarianceNorm norm[3] = {
        CT__FILLER_PARAMETER__VARIANCE_NORM__FAN_IN, CT__FILLER_PARAMETER__VARIANCE_NORM__FAN_OUT,
        CT__FILLER_PARAMETER__VARIANCE_NORM__AVERAGE
    };
    static const double fan4[3] = { 2500, 4000, 3250 };
    Ct__FillerParameter p = make(type);
    ct_shape s = TEST_SHAPE(40, 25, 10, 10), vector = TEST_SHAPE(N);
    float *v = malloc(N * sizeof(float));

    for (int i = 0; i < 3; i++) {
        p.variance_norm = norm[i];
        run(&p, 14 + (uint64_t)i, &s, v);
        check_moments(v, N, 0.0, numerator / fan4[i], kurtosis);
        if (kurtosis < 2) {
            double bound = sqrt(3.0 / fan4[i]), largest = 0;

            for (int k = 0; k < N; k++) largest = fmax(largest, fabs((double)v[k]));
            assert_true((largest <= bound * (1 + 0x1p-23)) && (largest > 0.999 * bound));
        }
    }
    p.variance_norm = CT__FILLER_PARAMETER__VARIANCE_NORM__FAN_OUT;
    run(&p, 20, &vector, v);
    check_moments(v, N, 0.0, numerator / N, kurtosis);
    free(v);
}

static void test_xavier(void **state)
{
    (void)state;
    check_fans("xavier", 1.0, 1.8);
}

static void test_msra(void **state)
{
    (void)state;
    check_fans("msra", 2.0, 3.0);
}

static void test_positive_unitball(void **state)
{
    Ct__FillerParameter p = make("positive_unitball");
    ct_shape s = TEST_SHAPE(7, 13, 3);
    float v[7 * 39];

    (void)state;
    run(&p, 15, &s, v);
    for (int i = 0; i < 7; i++) {
        double sum = 0;

        for (int k = 0; k < 39; k++) {
            assert_true(v[i * 39 + k] >= 0.0f);
            sum += (double)v[i * 39 + k];
        }
        assert_true(fabs(sum - 1) <= 39 * 0x1p-24); /* one rounding an element, each at most 1 */
    }
}

static void test_bilinear(void **state)
{
    /* kernel 4, factor 2: f = 2, c = 3/4 gives 1/4 3/4 3/4 1/4; kernel 3: f = 2, c = 1/2 gives
     * 1/2 1 1/2 */
    static const float four[4] = { 0.25f, 0.75f, 0.75f, 0.25f }, three[3] = { 0.5f, 1.0f, 0.5f };
    Ct__FillerParameter p = make("bilinear");
    ct_shape s4 = TEST_SHAPE(2, 1, 4, 4), s3 = TEST_SHAPE(1, 2, 3, 3);
    float v[32];

    (void)state;
    run(&p, 1, &s4, v);
    for (int i = 0; i < 32; i++) assert_true(v[i] == four[i / 4 % 4] * four[i % 4]);
    run(&p, 1, &s3, v);
    for (int i = 0; i < 18; i++) assert_true(v[i] == three[i / 3 % 3] * three[i % 3]);
}

static void test_reproducible(void **state)
{
    Ct__FillerParameter p = make("gaussian");
    ct_shape s = TEST_SHAPE(1001), shorter = TEST_SHAPE(77);
    float a[1001], b[1001], c[77];

    (void)state;
    run(&p, 5, &s, a);
    run(&p, 5, &s, b);
    test_same(a, b, 1001, "the same key");
    run(&p, 5, &shorter, c); /* element i depends on (key, i) only */
    test_same(a, c, 77, "a shorter blob");
    run(&p, 6, &s, b);
    for (int i = 0; i < 1001; i++) assert_true(a[i] != b[i]);
}

/* A part has the bits that the whole has there. */
static void check_parts(const Ct__FillerParameter *p, ct_shape shape, int axis)
{
    int64_t n = ct_shape_count(&shape, 0, -1);
    float *whole = malloc((size_t)n * sizeof(float)), *part = malloc((size_t)n * sizeof(float));
    float *want = malloc((size_t)n * sizeof(float));

    assert_true((whole != NULL) && (part != NULL) && (want != NULL));
    run(p, 7, &shape, whole);
    for (int count = 1; count <= 4; count++) {
        for (int i = 0; i < count; i++) {
            ct_cut c = { .n_range = 2, .axis = axis, .whole = shape };
            ct_shape s;

            c.range[0] = ct_range_of(shape.dim[axis] / 3, i, count);
            c.range[1] = ct_range_of(shape.dim[axis] - shape.dim[axis] / 3, i, count);
            c.range[1].first += shape.dim[axis] / 3;
            s = ct_cut_shape(&c);
            assert_int_equal(ct_fill_cut(p, 7, &c, part), CT_OK);
            ct_cut_take(&c, whole, want);
            test_same(part, want, ct_shape_count(&s, 0, -1), p->type);
        }
    }
    free(whole);
    free(part);
    free(want);
}

static void test_parts(void **state)
{
    static const char *const type[] = { "constant", "uniform",  "gaussian",         "xavier",
                                        "msra",     "bilinear", "positive_unitball" };

    (void)state;
    for (size_t t = 0; t < sizeof(type) / sizeof(type[0]); t++) {
        Ct__FillerParameter p = make(type[t]);

        p.value = 0.5f;
        for (int axis = 0; axis < 2; axis++) {
            check_parts(&p, TEST_SHAPE(14, 17, 3, 3), axis);
            p.variance_norm = CT__FILLER_PARAMETER__VARIANCE_NORM__FAN_OUT;
        }
        if (strcmp(type[t], "bilinear") == 0) continue;
        for (int axis = 0; axis < 2; axis++) {
            check_parts(&p, TEST_SHAPE(13, 5003), axis);
            check_parts(&p, TEST_SHAPE(6007, 12), axis);
        }
    }
}

static void test_parts_of_sparse(void **state)
{
    Ct__FillerParameter p = make("gaussian");

    (void)state;
    p.sparse = 3;
    for (int axis = 0; axis < 2; axis++) check_parts(&p, TEST_SHAPE(13, 501), axis);
}

/* One axis is enough: each is a fan of its own. */
static void test_one_axis(void **state)
{
    static const char *const type[] = { "xavier", "msra", "positive_unitball" };
    ct_shape s = TEST_SHAPE(6);
    float v[6];

    (void)state;
    for (int i = 0; i < 3; i++) {
        Ct__FillerParameter p = make(type[i]);

        memset(v, 0, sizeof(v));
        run(&p, 3, &s, v);
        for (int k = 0; k < 6; k++) assert_true(v[k] != 0);
    }
}

static void refused(const Ct__FillerParameter *p, ct_shape s, const char *part)
{
    float v[64] = { 0 };
    ct_status status;
    const char *text;

    test_log_start();
    status = ct_fill(p, 1, &s, v);
    text = test_log_stop();
    assert_int_equal(status, CT_ERR_CONFIG);
    if (strstr(text, part) == NULL) fail_msg("\"%s\" is not in: %s", part, text);
}

static void test_refused(void **state)
{
    Ct__FillerParameter p = make("gausian");

    (void)state;
    refused(&p, TEST_SHAPE(3), "unknown filler type \"gausian\"; did you mean \"gaussian\"?");
    p = make("gaussian");
    refused(&p, TEST_SHAPE(3, 0), "empty");
    p.std = 0.0f;
    refused(&p, TEST_SHAPE(3), "std 0");
    p.std = NAN;
    refused(&p, TEST_SHAPE(3), "std nan");
    p.std = 1.0f;
    p.sparse = 4;
    refused(&p, TEST_SHAPE(3), "sparse 4");
    p.sparse = -2;
    refused(&p, TEST_SHAPE(3), "sparse -2");
    p = make("xavier");
    refused(&p, (ct_shape){ 0 }, "needs 1 dimensions");
    p.sparse = 1;
    refused(&p, TEST_SHAPE(3), "does not know `sparse`");
    p = make("uniform");
    p.min = 2.0f;
    refused(&p, TEST_SHAPE(3), "min 2");
    p = make("bilinear");
    refused(&p, TEST_SHAPE(1, 1, 3, 4), "square");
    refused(&p, TEST_SHAPE(3, 4), "needs 4 dimensions");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constant),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_gaussian),
        cmocka_unit_test(test_gaussian_sparse),
        cmocka_unit_test(test_xavier),
        cmocka_unit_test(test_msra),
        cmocka_unit_test(test_positive_unitball),
        cmocka_unit_test(test_bilinear),
        cmocka_unit_test(test_reproducible),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_parts_of_sparse),
        cmocka_unit_test(test_one_axis),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
