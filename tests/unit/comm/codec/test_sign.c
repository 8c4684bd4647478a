/* Signs of a vector: the nearest that two numbers a block come, what is lost stays, nothing that
 * comes in is believed. */
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/codec/sign.h"
#include "framework/base/rng.h"
#include "framework/base/status.h"
#include "tests/log_capture.h"

enum { N = 100 * CT_SIGN_BLOCK + 37 };

static float grad[N], v[N], before[N], sum[N], other[N];
static uint64_t payload[2 * N / 8];
static log_capture lines;

static ct_momentum_correction accum(int64_t n, int n_thread)
{
    return (
        ct_momentum_correction){ .grad = grad, .v = v, .n = n, .scale = 1, .n_thread = n_thread };
}

static void fill(uint64_t key)
{
    for (int i = 0; i < N; ++i) {
        grad[i] = ct_rng_normal_at(key, (uint64_t)i);
        v[i] = 0.5f * ct_rng_normal_at(key + 1, (uint64_t)i);
        before[i] = v[i] + grad[i];
    }
}

/* Of each block against the means in double; and v is what is left. */
static void expect_means(int64_t n, int64_t first)
{
    double total[2] = { 0 }, mean[2];
    int count[2] = { 0 };
    int64_t end = (first + CT_SIGN_BLOCK < n) ? first + CT_SIGN_BLOCK : n;

    for (int64_t i = first; i < end; ++i) {
        total[before[i] < 0] += before[i];
        count[before[i] < 0] += 1;
    }
    for (int k = 0; k < 2; ++k) mean[k] = (count[k] > 0) ? total[k] / count[k] : 0;
    for (int64_t i = first; i < end; ++i) {
        double is = mean[before[i] < 0];

        /* as many additions as a lane has elements, and of the lanes */
        assert_true(fabs(sum[i] - is) <= 1.1 * (CT_SIGN_BLOCK / 16 + 18) * 0x1p-24 * fabs(is));
        assert_true(fabsf(sum[i] + v[i] - before[i]) <=
                    2 * 0x1p-24f * (fabsf(sum[i]) + fabsf(before[i])));
    }
}

static void test_round_trip(void **state)
{
    static const int64_t size[] = { 1, 63, 64, 1023, 1024, 1025, 5000, N };

    (void)state;
    for (size_t k = 0; k < sizeof(size) / sizeof(size[0]); ++k) {
        int64_t n = size[k];
        ct_sign_cut cut = { .n = n, .parts = 1 };
        const void *one = payload;
        size_t bytes = ct_sign_bytes(n);
        ct_momentum_correction a = accum(n, 2);

        fill(10 + k);
        assert_int_equal(bytes, 16 + 136 * ((n + 1023) / 1024));
        assert_int_equal(ct_sign_at(&cut, 1), bytes);
        assert_int_equal(ct_sign_encode(&cut, &a, -1, payload), CT_OK);
        assert_int_equal(ct_sign_sum(&one, &bytes, 1, sum, n, 2), CT_OK);
        for (int64_t first = 0; first < n; first += CT_SIGN_BLOCK) expect_means(n, first);
        memcpy(other, before, sizeof(other));
        for (int64_t i = 0; i < n; ++i) other[i] = v[i];
        assert_int_equal(ct_sign_add(payload, bytes, other, n, 1), CT_OK);
        for (int64_t i = 0; i < n; ++i) assert_true(other[i] == v[i] + sum[i]);
    }
}

/* Zero, constant and one-sided vectors. */
static void test_plain_vectors(void **state)
{
    const void *one = payload;
    size_t bytes = ct_sign_bytes(3000);

    (void)state;
    for (int kind = 0; kind < 4; ++kind) {
        for (int i = 0; i < 3000; ++i) {
            other[i] = (kind == 1) ? -2.5f : (kind == 2) ? 0.25f : 0;
            if (kind == 3) other[i] = (i == 2000) ? -8.0f : 0;
        }
        memcpy(v, other, sizeof(v));
        assert_int_equal(ct_sign_take(v, 3000, 1, payload), CT_OK);
        assert_int_equal(ct_sign_sum(&one, &bytes, 1, sum, 3000, 1), CT_OK);
        for (int i = 0; i < 3000; ++i) assert_true(sum[i] == other[i] && v[i] == 0);
    }
}

/* However many parts and threads, the same bits; the part that is skipped is only accumulated. */
static void test_parts(void **state)
{
    static uint64_t whole[sizeof(payload) / 8];
    ct_sign_cut one = { .n = N, .parts = 1 };
    ct_momentum_correction a1 = accum(N, 1);

    (void)state;
    fill(3);
    assert_int_equal(ct_sign_encode(&one, &a1, -1, whole), CT_OK);
    memcpy(other, v, sizeof(other));
    for (int parts = 1; parts <= 300; parts = parts * 3 + 1) {
        ct_sign_cut cut = { .n = N, .parts = parts };
        int skip = parts / 2;
        int64_t end = 0;
        ct_momentum_correction a = accum(N, 2);

        fill(3);
        memset(payload, 0, sizeof(payload));
        assert_int_equal(ct_sign_encode(&cut, &a, skip, payload), CT_OK);
        for (int j = 0; j < parts; ++j) {
            const char *at = (const char *)payload + ct_sign_at(&cut, j);
            int64_t first = 0, n = 0;

            ct_sign_part(&cut, j, &first, &n);
            assert_int_equal(first, end);
            end = first + n;
            assert_int_equal(ct_sign_at(&cut, j + 1) - ct_sign_at(&cut, j), ct_sign_bytes(n));
            if (j == skip) {
                for (int64_t i = first; i < end; ++i) assert_true(v[i] == before[i]);
                continue;
            }
            assert_memory_equal(v + first, other + first, sizeof(*v) * (size_t)n);
            assert_memory_equal(at + CT_SIGN_HEAD,
                                (const char *)whole + CT_SIGN_HEAD +
                                    CT_SIGN_BLOCK_BYTES * (first / CT_SIGN_BLOCK),
                                ct_sign_bytes(n) - CT_SIGN_HEAD);
        }
        assert_int_equal(end, N);
    }
}

static void test_not_finite(void **state)
{
    ct_sign_cut cut = { .n = N, .parts = 7 };

    (void)state;
    log_capture_start(&lines);
    for (int k = 0; k < 8; ++k) {
        int at = (k < 4) ? 5 : N - 1 - k;
        ct_momentum_correction a = accum(N, 1);

        fill(4);
        grad[at] = (k % 2 == 0) ? NAN : -INFINITY;
        assert_int_equal(ct_sign_encode(&cut, &a, k - 1, payload), CT_ERR_DIVERGED);
        assert_int_equal(ct_sign_take(grad, N, 1, payload), CT_ERR_DIVERGED);
    }
    log_capture_stop();
}

/* Heads that lie, sizes that do not fit, and means that are none: refused. All else is read, and
 * nothing beyond the buffers. */
static void test_broken_payloads(void **state)
{
    enum { SMALL = 2500 };
    size_t bytes = ct_sign_bytes(SMALL);
    unsigned char *copy = malloc(bytes); /* its own block, so that a sanitizer sees more */
    const void *one = copy;

    (void)state;
    fill(5);
    memcpy(v, grad, sizeof(v));
    assert_int_equal(ct_sign_take(v, SMALL, 1, payload), CT_OK);
    log_capture_start(&lines);
    memcpy(copy, payload, bytes);
    for (size_t less = 0; less < bytes; less += 7)
        assert_int_equal(ct_sign_sum(&one, &less, 1, sum, SMALL, 1), CT_ERR_COMM);
    assert_int_equal(ct_sign_add(copy, bytes, sum, SMALL - 1025, 1), CT_ERR_COMM);
    assert_int_equal(ct_sign_add(copy, bytes, sum, SMALL + 1, 1), CT_ERR_COMM);
    for (size_t i = 0; i < CT_SIGN_HEAD; ++i) {
        memcpy(copy, payload, bytes);
        copy[i] ^= 0x10;
        assert_int_equal(ct_sign_sum(&one, &bytes, 1, sum, SMALL, 1), CT_ERR_COMM);
    }
    for (size_t b = 0; b < 3; ++b) {
        memcpy(copy, payload, bytes);
        memcpy(copy + CT_SIGN_HEAD + b * CT_SIGN_BLOCK_BYTES + (b % 2) * 4, &(float){ NAN }, 4);
        assert_int_equal(ct_sign_sum(&one, &bytes, 1, sum, SMALL, 1), CT_ERR_COMM);
    }
    for (int round = 0; round < 2000; ++round) {
        memcpy(copy, payload, bytes);
        for (int k = 0; k < 4; ++k) {
            uint32_t r = ct_rng_philox(6, 0, (uint64_t)(4 * round + k)).v[0];

            copy[CT_SIGN_HEAD + r % (bytes - CT_SIGN_HEAD)] ^= (unsigned char)(r >> 24);
        }
        if (ct_sign_sum(&one, &bytes, 1, sum, SMALL, 1) != CT_OK) continue;
        for (int i = 0; i < SMALL; ++i) assert_true(isfinite(sum[i]));
    }
    log_capture_stop();
    free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),      cmocka_unit_test(test_plain_vectors),
        cmocka_unit_test(test_parts),           cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_broken_payloads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
