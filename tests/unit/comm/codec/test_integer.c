/* Integers of 8 and 4 bits: the definition, written once more with rint(); its edges; and what
 * comes of numbers that are none. */
#include "tests/test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/codec/integer.h"
#include "framework/base/rng.h"

enum { N = 300 * CT_INTEGER_BLOCK + 77 }; /* large enough for a team of threads */

static float v[N], left[N], back[N], expected[N];
static unsigned char payload[2 * N], other[2 * N];

/* The exact sizes are those of the issue: n bytes, or a half, and 4 a block. */
static void test_sizes(void **state)
{
    (void)state;
    assert_int_equal(ct_integer_bytes(8, 0), 0);
    assert_int_equal(ct_integer_bytes(8, 1), 5);
    assert_int_equal(ct_integer_bytes(4, 1), 5);
    assert_int_equal(ct_integer_bytes(8, 256), 260);
    assert_int_equal(ct_integer_bytes(4, 256), 132);
    assert_int_equal(ct_integer_bytes(8, 257), 265);
    assert_int_equal(ct_integer_bytes(4, 257), 137);
    assert_int_equal(ct_integer_bytes(4, 513), 256 + 1 + 12);
}

static float most_of(const float *x, int n)
{
    float most = 0;

    for (int i = 0; i < n; ++i) most = fmaxf(most, fabsf(x[i]));
    return most;
}

static void define(int bits, const float *x, int n, float *y)
{
    for (int first = 0; first < n; first += CT_INTEGER_BLOCK) {
        int length = (n - first < CT_INTEGER_BLOCK) ? n - first : CT_INTEGER_BLOCK;
        float scale = most_of(x + first, length) / ((bits == 8) ? 127.0f : 7.0f);
        float inverse = 1.0f / scale;

        for (int i = first; i < first + length; ++i)
            y[i] = (scale < FLT_MIN) ? 0 : scale * rintf(x[i] * inverse);
    }
}

static void expect(int bits, int n)
{
    int64_t bytes = ct_integer_bytes(bits, n);
    float most = most_of(v, n), step = most / ((bits == 8) ? 127.0f : 7.0f);

    define(bits, v, n, expected);
    memset(payload, 0xaa, sizeof(payload));
    memcpy(left, v, sizeof(v));
    assert_true(ct_integer_encode(bits, left, n, false, 1, payload));
    assert_memory_equal(left, v, sizeof(v));
    assert_int_equal(payload[bytes], 0xaa); /* nothing beyond */
    ct_integer_decode(bits, payload, n, false, 1, back);
    for (int i = 0; i < n; ++i) {
        assert_true(back[i] == expected[i]);
        assert_true(fabsf(back[i] - v[i]) <= 0.5f * step * 1.0001f + FLT_MIN * 127);
    }
    /* what is taken out and what comes back are the whole, and a team of threads changes no bit */
    assert_true(ct_integer_encode(bits, left, n, true, 3, other));
    assert_memory_equal(payload, other, (size_t)bytes);
    for (int i = 0; i < n; ++i) assert_true(left[i] == v[i] - back[i]);
    ct_integer_decode(bits, payload, n, true, 3, left);
    for (int i = 0; i < n; ++i) assert_true(fabsf(left[i] - v[i]) <= 2 * FLT_EPSILON * fabsf(v[i]));
}

static void test_definition(void **state)
{
    static const int size[] = { 1, 2, 3, 255, 256, 257, 511, 513, 3000, N };

    (void)state;
    for (int power = -120; power <= 100; power += 20) {
        for (int i = 0; i < N; ++i)
            v[i] = ldexpf(ct_rng_normal_at(5, (uint64_t)i), power) * (i % 9 == 0 ? 1e-4f : 1);
        for (size_t k = 0; k < sizeof(size) / sizeof(size[0]); ++k) {
            expect(8, size[k]);
            expect(4, size[k]);
        }
    }
}

/* 127 and 7 make the scale 1: halves go to the even neighbour. */
static void test_ties(void **state)
{
    static const float tie[][2] = { { 0.5f, 0 },  { 1.5f, 2 },   { 2.5f, 2 },   { 3.5f, 4 },
                                    { -0.5f, 0 }, { -1.5f, -2 }, { -2.5f, -2 }, { 5.5f, 6 } };

    (void)state;
    for (int bits = 4; bits <= 8; bits += 4) {
        v[0] = (bits == 8) ? -127 : -7;
        for (int i = 0; i < 8; ++i) v[1 + i] = tie[i][0];
        assert_true(ct_integer_encode(bits, v, 9, false, 1, payload));
        ct_integer_decode(bits, payload, 9, false, 1, back);
        assert_true(back[0] == v[0]);
        for (int i = 0; i < 8; ++i) assert_true(back[1 + i] == tie[i][1]);
    }
}

/* Blocks of zeros, and of what is too small for a scale, are zeros. */
static void test_small(void **state)
{
    (void)state;
    for (int bits = 4; bits <= 8; bits += 4) {
        for (int i = 0; i < 600; ++i) v[i] = (i < 300) ? 0 : 1e-39f * (float)(i % 3 - 1);
        assert_true(ct_integer_encode(bits, v, 600, false, 1, payload));
        ct_integer_decode(bits, payload, 600, false, 1, back);
        for (int i = 0; i < 600; ++i) assert_true(back[i] == 0);
    }
}

/* The block that holds it, all of it, and no other. */
static void test_not_finite(void **state)
{
    static const float bad[] = { NAN, -NAN, INFINITY, -INFINITY };

    (void)state;
    for (int k = 0; k < 8; ++k) {
        int bits = (k % 2 == 0) ? 8 : 4;

        for (int i = 0; i < 800; ++i) v[i] = (float)(i % 5 - 2);
        v[300 + k] = bad[k / 2];
        assert_false(ct_integer_encode(bits, v, 800, false, 1, payload));
        ct_integer_decode(bits, payload, 800, false, 1, back);
        for (int i = 0; i < 800; ++i)
            assert_int_equal(!isfinite(back[i]), i / CT_INTEGER_BLOCK == 1);
        ct_integer_decode(bits, payload, 800, true, 1, v);
        assert_true(isnan(v[256]) && isnan(v[511]) && isfinite(v[255]) && isfinite(v[512]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_definition),
        cmocka_unit_test(test_ties),       cmocka_unit_test(test_small),
        cmocka_unit_test(test_not_finite),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
