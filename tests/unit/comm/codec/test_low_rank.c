/* Factors of a matrix: products against plain loops in double, bases at right angles, also of
 * matrices that have none. */
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/codec/codec_types.h"
#include "comm/codec/low_rank.h"
#include "framework/base/rng.h"
#include "framework/base/status.h"
#include "tests/log_capture.h"

enum { MOST = 300000, MOST_FACTOR = 80000 };

static float grad[MOST], v[MOST], old[MOST], out[MOST];
static float p[MOST_FACTOR], q[MOST_FACTOR], part[MOST_FACTOR], scratch[16 * MOST_FACTOR];
static log_capture lines;

static const ct_low_rank shape[] = {
    { 1, 1, 1 },   { 3, 5, 1 },    { 5, 3, 3 },     { 17, 1024, 2 },   { 31, 1025, 3 },
    { 33, 65, 4 }, { 600, 33, 7 }, { 20, 9000, 2 }, { 400, 500, 5 },   { 900, 300, 8 },
    { 2, 700, 2 }, { 700, 2, 2 },  { 64, 64, 33 },  { 150, 2000, 16 },
};
enum { N_SHAPE = (int)(sizeof(shape) / sizeof(shape[0])) };

static void fill(const ct_low_rank *s, uint64_t key)
{
    for (int64_t i = 0; i < s->rows * s->cols; ++i) {
        grad[i] = ct_rng_normal_at(key, (uint64_t)i);
        v[i] = old[i] = ct_rng_normal_at(key + 1, (uint64_t)i);
    }
    for (int64_t i = 0; i < s->r * s->cols; ++i) q[i] = ct_rng_normal_at(key + 2, (uint64_t)i);
    for (int64_t i = 0; i < s->r * s->rows; ++i) p[i] = ct_rng_normal_at(key + 3, (uint64_t)i);
}

static ct_momentum_correction accum(const ct_low_rank *s, int n_thread)
{
    return (ct_momentum_correction){
        .grad = grad, .v = v, .n = s->rows * s->cols, .scale = 1, .n_thread = n_thread
    };
}

/* |computed - exact| within a rounding for each term and one more. */
static void expect_near(double is, double exact, double size, int64_t terms)
{
    assert_true(fabs(is - exact) <= 1.1 * (double)(terms + 1) * 0x1p-24 * size);
}

static void check_left(const ct_low_rank *s)
{
    for (int64_t i = 0; i < s->rows; ++i) {
        for (int k = 0; k < s->r; ++k) {
            double sum = 0, size = 0;

            for (int64_t j = 0; j < s->cols; ++j) {
                double x = (double)v[i * s->cols + j] * q[k * s->cols + j];

                sum += x;
                size += fabs(x);
            }
            expect_near(p[k * s->rows + i], sum, size, s->cols);
        }
    }
}

static void check_right(const ct_low_rank *s)
{
    for (int64_t j = 0; j < s->cols; ++j) {
        for (int k = 0; k < s->r; ++k) {
            double sum = 0, size = 0;

            for (int64_t i = 0; i < s->rows; ++i) {
                double x = (double)v[i * s->cols + j] * p[k * s->rows + i];

                sum += x;
                size += fabs(x);
            }
            expect_near(part[k * s->cols + j], sum, size, s->rows);
        }
    }
}

static void check_product(const ct_low_rank *s)
{
    for (int64_t i = 0; i < s->rows; ++i) {
        for (int64_t j = 0; j < s->cols; ++j) {
            double sum = 0, size = 0;

            for (int k = 0; k < s->r; ++k) {
                double x = (double)p[k * s->rows + i] * q[k * s->cols + j];

                sum += x;
                size += fabs(x);
            }
            expect_near(out[i * s->cols + j], sum, size, s->r);
            expect_near(v[i * s->cols + j], old[i * s->cols + j] - sum,
                        size + fabsf(old[i * s->cols + j]), 2 * s->r);
        }
    }
}

static void test_products(void **state)
{
    (void)state;
    for (int at = 0; at < N_SHAPE; ++at) {
        const ct_low_rank *s = &shape[at];
        ct_momentum_correction a = accum(s, 2);

        fill(s, 10 * (uint64_t)at);
        assert_true(ct_low_rank_scratch(s) <= (int64_t)(sizeof(scratch) / sizeof(*scratch)));
        assert_int_equal(ct_low_rank_left(s, &a, q, p), CT_OK);
        for (int64_t i = 0; i < a.n; ++i) assert_true(v[i] == old[i] + grad[i]);
        check_left(s);
        fill(s, 10 * (uint64_t)at);
        ct_low_rank_right(s, v, p, 2, scratch, part);
        check_right(s);
        ct_low_rank_put(s, p, q, 2, out);
        ct_low_rank_take(s, p, q, 2, v);
        check_product(s);
    }
}

/* One thread or two: the same bits. */
static void test_threads(void **state)
{
    (void)state;
    for (int at = 0; at < N_SHAPE; ++at) {
        const ct_low_rank *s = &shape[at];
        size_t of_p = sizeof(float) * (size_t)(s->r * s->rows);
        size_t of_q = sizeof(float) * (size_t)(s->r * s->cols);
        static float first_p[MOST_FACTOR], first_q[MOST_FACTOR];

        for (int n = 1; n <= 3; ++n) {
            ct_momentum_correction a = accum(s, n);

            fill(s, 7);
            assert_int_equal(ct_low_rank_left(s, &a, q, p), CT_OK);
            ct_low_rank_right(s, v, p, n, scratch, part);
            if (n == 1) memcpy(first_p, p, of_p);
            if (n == 1) memcpy(first_q, part, of_q);
            assert_memory_equal(first_p, p, of_p);
            assert_memory_equal(first_q, part, of_q);
        }
    }
}

/* Right angles to a rounding or two of each element, and length 1; or 0. */
static int count_columns(const ct_low_rank *s)
{
    int columns = 0;

    for (int k = 0; k < s->r; ++k) {
        for (int m = 0; m <= k; ++m) {
            double dot = 0;

            for (int64_t i = 0; i < s->rows; ++i)
                dot += (double)p[k * s->rows + i] * p[m * s->rows + i];
            if (m < k) assert_true(fabs(dot) <= 4 * 0x1p-24 * sqrt((double)s->rows));
            if (m < k) continue;
            assert_true((dot == 0) || (fabs(dot - 1) <= 4 * 0x1p-24));
            columns += (dot != 0);
        }
    }
    return columns;
}

static void test_basis(void **state)
{
    const ct_low_rank s = { 500, 10, 6 };

    (void)state;
    for (int at = 0; at < N_SHAPE; ++at) {
        if (shape[at].r > shape[at].rows) continue;
        fill(&shape[at], 3);
        assert_int_equal(ct_low_rank_basis(&shape[at], p), CT_OK);
        assert_int_equal(count_columns(&shape[at]), shape[at].r);
    }
    for (int e = -40; e <= 36; e += 4) { /* however small or large */
        fill(&s, 4);
        for (int64_t i = 0; i < s.r * s.rows; ++i) p[i] *= (float)pow(10, e);
        assert_int_equal(ct_low_rank_basis(&s, p), CT_OK);
        if (e >= -36) assert_int_equal(count_columns(&s), s.r);
    }
    for (int64_t i = 0; i < s.r * s.rows; ++i) p[i] = 0; /* zero */
    assert_int_equal(ct_low_rank_basis(&s, p), CT_OK);
    assert_int_equal(count_columns(&s), 0);
    for (int64_t i = 0; i < s.r * s.rows; ++i) p[i] = 3; /* all columns the same */
    assert_int_equal(ct_low_rank_basis(&s, p), CT_OK);
    assert_int_equal(count_columns(&s), 1);
    fill(&s, 5); /* two columns, and sums of them */
    for (int64_t i = 0; i < s.rows; ++i) {
        for (int k = 2; k < s.r; ++k) p[k * s.rows + i] = p[i] + (float)k * p[s.rows + i];
    }
    assert_int_equal(ct_low_rank_basis(&s, p), CT_OK);
    assert_int_equal(count_columns(&s), 2);
    fill(&s, 6); /* at an angle of 1e-4: what one pass leaves is a rounding over that */
    for (int64_t i = 0; i < s.rows; ++i) {
        for (int k = 1; k < s.r; ++k) p[k * s.rows + i] = p[i] + 1e-4f * p[k * s.rows + i];
    }
    assert_int_equal(ct_low_rank_basis(&s, p), CT_OK);
    assert_int_equal(count_columns(&s), s.r);
    log_capture_start(&lines);
    p[s.rows + 3] = INFINITY;
    assert_int_equal(ct_low_rank_basis(&s, p), CT_ERR_DIVERGED);
    log_capture_stop();
}

static void test_warm(void **state)
{
    const ct_low_rank s = { 10, 300, 3 };
    static float again[900];

    (void)state;
    fill(&s, 6);
    memset(q + 300, 0, sizeof(float) * 300);
    ct_low_rank_warm(&s, 9, q);
    for (int k = 0; k < 3; ++k) {
        double sum = 0;

        for (int j = 0; j < 300; ++j) sum += (double)q[300 * k + j] * q[300 * k + j];
        assert_true(fabs(sum - 1) < 4 * 0x1p-24);
    }
    memcpy(again, q, sizeof(again));
    ct_low_rank_warm(&s, 10, q); /* what a snapshot gives back */
    assert_memory_equal(again, q, sizeof(again));
}

static void test_not_finite(void **state)
{
    (void)state;
    log_capture_start(&lines);
    for (int at = 0; at < N_SHAPE; ++at) {
        const ct_low_rank *s = &shape[at];
        ct_momentum_correction a = accum(s, 1);

        for (int k = 0; k < 2; ++k) {
            fill(s, 8);
            grad[a.n - 1] = (k == 0) ? NAN : INFINITY;
            assert_int_equal(ct_low_rank_left(s, &a, q, p), CT_ERR_DIVERGED);
        }
    }
    log_capture_stop();
}

/* What travels coded, and its bytes. */
static void test_shapes(void **state)
{
    ct_codec_config c = { .rank = 2 };
    const ct_codec_ops *ops = &ct_codec_powersgd;

    (void)state;
    assert_true(ops->takes(&c, 4096 * 9216, 4096));
    assert_int_equal(ops->payload_bytes(&c, 4096 * 9216, 4096), 4 * 2 * (4096 + 9216));
    assert_false(ops->takes(&c, 4096, 1)); /* a vector */
    assert_false(ops->takes(&c, 4096, 4096));
    assert_false(ops->takes(&c, 100, 3)); /* no matrix of 3 rows */
    assert_false(ops->takes(&c, 16, 4));  /* 2 (4 + 4) is no less */
    assert_true(ops->takes(&c, 25, 5));
    c.rank = 100; /* cut down to the columns */
    assert_false(ops->takes(&c, 4096 * 9, 4096));
    for (int rank = -1; rank <= 300; rank += 1) {
        bool good = (rank >= 1) && (rank <= 256);

        c.rank = rank;
        log_capture_start(&lines);
        assert_int_equal(ct_codec_check(ops, &c, "compression"), good ? CT_OK : CT_ERR_CONFIG);
        log_capture_stop();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),   cmocka_unit_test(test_threads),
        cmocka_unit_test(test_basis),      cmocka_unit_test(test_warm),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_shapes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
