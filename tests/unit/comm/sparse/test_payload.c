/* Payload forms: what arrives, in how many bytes, what rounding leaves, and that nothing received
 * is believed. */
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/bf16.h"
#include "comm/core/reduce.h"
#include "comm/sparse/payload_impl.h"
#include "framework/base/memory.h"
#include "framework/base/rng.h"
#include "framework/base/stream.h"
#include "tests/log_capture.h"

static const ct_payload_form forms[] = { CT_PAYLOAD_PAIRS, CT_PAYLOAD_HALF, CT_PAYLOAD_MEAN };

/* count of n elements, evenly random; values normal. */
static void make(uint64_t seed, int64_t n, int64_t count, ct_sparse *s)
{
    int64_t left = count;

    assert_int_equal(ct_sparse_reserve(s, count), CT_OK);
    s->n = n;
    s->count = 0;
    for (int64_t i = 0; i < n; ++i) {
        uint64_t draw = ct_rng_philox(seed, 1, (uint64_t)i).v[0];

        if ((double)draw / 0x1p32 * (double)(n - i) >= (double)left) continue;
        s->index[s->count] = (uint32_t)i;
        s->value[s->count++] = ct_rng_normal_at(seed, (uint64_t)i);
        left -= 1;
    }
    assert_int_equal(s->count, count);
}

typedef struct plan {
    int64_t n, count;
} plan;

static const plan plans[] = { { 1, 0 },           { 1, 1 },           { 10, 3 },
                              { 65536, 655 },     { 65537, 66 },      { 200000, 2 },
                              { 300001, 3000 },   { 70000, 35001 },   { 70000, 70000 },
                              { 131072, 131072 }, { 1000003, 40000 }, { 0, 0 } };
enum { N_PLAN = sizeof(plans) / sizeof(plans[0]) };

/* What is unpacked is what was rounded, and rounded + residual is what there was. */
static void test_round_trip(void **state)
{
    (void)state;
    for (int f = 0; f < 3; ++f) {
        for (int k = 0; k < N_PLAN; ++k) {
            int64_t n = plans[k].n, count = plans[k].count;
            ct_sparse s = { 0 }, out = { 0 };
            float *residual = calloc((size_t)n + 1, sizeof(*residual));
            float *before = malloc(sizeof(*before) * (size_t)(count + 1));
            size_t bytes = ct_payload_bytes(forms[f], n, count);
            char *payload = malloc(bytes + 1);

            make(7 + (uint64_t)k, n, count, &s);
            for (int64_t j = 0; j < count; ++j) before[j] = s.value[j];
            ct_payload_round(forms[f], &s, &(ct_residual_return){ .v = residual });
            payload[bytes] = 77;
            assert_int_equal(ct_payload_pack(forms[f], &s, payload), bytes);
            assert_int_equal(payload[bytes], 77);
            assert_int_equal(ct_reduce_stated_size(payload, 0), bytes);
            assert_int_equal(ct_payload_unpack(payload, bytes, n, &out), CT_OK);
            assert_int_equal(out.count, count);
            for (int64_t j = 0; j < count; ++j) {
                /* bf16: the rest has 16 bits. MEAN: one rounding of a difference */
                double slack =
                    (forms[f] == CT_PAYLOAD_MEAN)
                        ? 0x1p-23 * fabs((double)before[j]) + 0x1p-23 * fabs((double)s.value[j])
                        : 0;

                assert_int_equal(out.index[j], s.index[j]);
                assert_true(out.value[j] == s.value[j]);
                assert_true(fabs((double)s.value[j] + (double)residual[s.index[j]] -
                                 (double)before[j]) <= slack);
                if (forms[f] == CT_PAYLOAD_HALF)
                    assert_true(ct_bf16_to_f32(ct_bf16_from_f32(out.value[j])) == out.value[j]);
                if (forms[f] == CT_PAYLOAD_MEAN) assert_true(out.value[j] == out.value[0]);
            }
            ct_sparse_destroy(&s);
            ct_sparse_destroy(&out);
            free(residual);
            free(before);
            free(payload);
        }
    }
}

static void test_bytes(void **state)
{
    (void)state;
    assert_int_equal(ct_payload_bytes(CT_PAYLOAD_PAIRS, 1000000, 1000), 32 + 8000);
    assert_int_equal(ct_payload_bytes(CT_PAYLOAD_HALF, 1000000, 1000), 32 + 16 * 4 + 4000);
    assert_int_equal(ct_payload_bytes(CT_PAYLOAD_MEAN, 1000000, 1000), 32 + 16 * 4 + 2000);
    assert_int_equal(ct_payload_bytes(CT_PAYLOAD_MEAN, 1000000, 10),
                     32 + 40); /* fewer than blocks */
    /* dense from half of the elements on */
    assert_int_equal(ct_payload_bytes(CT_PAYLOAD_PAIRS, 1000, 500), 32 + 4000);
    assert_int_equal(ct_payload_bytes(CT_PAYLOAD_PAIRS, 1000, 1000), 32 + 4000);
    assert_int_equal(ct_payload_bytes(CT_PAYLOAD_HALF, 1000, 500), 32 + 2000);
    assert_true(ct_payload_bytes(CT_PAYLOAD_PAIRS, INT64_C(4000000000), INT64_C(1500000000)) ==
                32 + (size_t)12000000000);
    for (int f = 0; f < 3; ++f) { /* grows with the count */
        size_t last = 0;

        for (int64_t c = 0; c <= 200000; c += 97) {
            assert_true(ct_payload_bytes(forms[f], 200000, c) >= last);
            last = ct_payload_bytes(forms[f], 200000, c);
        }
    }
}

/* A part of the entries, for a region of the elements. */
static void test_parts(void **state)
{
    enum { N = 400000, COUNT = 9000 };
    ct_sparse s = { 0 }, out = { 0 };
    static char payload[N];
    int64_t bound[] = { 0, 1000, 1000, 150000, 150001, 399999, N };
    int64_t at = 0;

    (void)state;
    make(3, N, COUNT, &s);
    for (int f = 0; f < 2; ++f) {
        at = 0;
        for (int r = 0; r < 6; ++r) {
            int64_t first = at, n = bound[r + 1] - bound[r];
            size_t bytes = 0;

            while ((at < s.count) && (s.index[at] < bound[r + 1])) at += 1;
            bytes = ct_payload_pack_part(forms[f], &s, first, at, bound[r], n, payload);
            assert_int_equal(bytes, ct_payload_bytes(forms[f], n, at - first));
            assert_int_equal(ct_payload_unpack(payload, bytes, n, &out), CT_OK);
            assert_int_equal(out.count, at - first);
            for (int64_t j = 0; j < out.count; ++j) {
                float v = s.value[first + j];

                if (forms[f] == CT_PAYLOAD_HALF) v = ct_bf16_to_f32(ct_bf16_from_f32(v));
                assert_int_equal(out.index[j] + bound[r], s.index[first + j]);
                assert_true(out.value[j] == v);
            }
        }
        assert_int_equal(at, COUNT);
    }
    ct_sparse_destroy(&s);
    ct_sparse_destroy(&out);
}

/* Many payloads of mixed forms and sizes: the same bits as one after the other, with any number of
 * threads, and the number of elements that are not zero. */
static void sum_of(int n_payload, int64_t n, int64_t most)
{
    void **payload = calloc((size_t)n_payload, sizeof(*payload));
    size_t *bytes = calloc((size_t)n_payload, sizeof(*bytes));
    float *want = calloc((size_t)n + 1, sizeof(*want));
    float *got = ct_mem_acquire(((size_t)n + 1) * sizeof(*got));
    float *lost = calloc((size_t)n + 1, sizeof(*lost));
    int64_t filled = 0, counted = 0;

    for (int p = 0; p < n_payload; ++p) {
        ct_payload_form form = forms[p % 3];
        int64_t count = (p % 7 == 6)               ? n / 2 + 1
                        : (most * (p % 5) / 4 < n) ? most * (p % 5) / 4
                                                   : n;
        ct_sparse s = { 0 };

        make(100 + (uint64_t)p, n, count, &s);
        ct_payload_round(form, &s, &(ct_residual_return){ .v = lost });
        payload[p] = malloc(ct_payload_bytes(form, n, count));
        bytes[p] = ct_payload_pack(form, &s, payload[p]);
        ct_sparse_add_to(&s, want);
        ct_sparse_destroy(&s);
    }
    for (int64_t i = 0; i < n; ++i) filled += (want[i] != 0);
    for (int threads = 1; threads <= 4; ++threads) {
        for (int64_t i = 0; i < n; ++i) got[i] = 99;
        got[n] = 99;
        assert_int_equal(ct_payload_sum_all((const void *const *)payload, bytes, n_payload, got, n,
                                            threads, &counted),
                         CT_OK);
        assert_memory_equal(got, want, sizeof(*got) * (size_t)n);
        assert_int_equal(counted, filled);
        assert_true(got[n] == 99);
    }
    for (int64_t i = 0; i < n; ++i) got[i] = 0;
    assert_int_equal(ct_payload_add_all((const void *const *)payload, bytes, n_payload, got, n, 2),
                     CT_OK);
    assert_memory_equal(got, want, sizeof(*got) * (size_t)n);
    for (int p = 0; p < n_payload; ++p) free(payload[p]);
    free(payload);
    free(bytes);
    free(want);
    ct_mem_release(got);
    free(lost);
}

static void test_sums(void **state)
{
    (void)state;
    sum_of(1, 1, 1);
    sum_of(5, 1000, 30);
    sum_of(9, 700001, 20000);
    sum_of(2050, 3000, 12); /* more than a batch */
    sum_of(0, 500, 1);
    sum_of(40, 70001, 30000);                             /* entries set apart overflow      */
    sum_of(5, CT_STREAM_MIN / sizeof(float) + 1001, 900); /* the sum passes the caches       */
}

/* ---- what is wrong is refused, and harms nothing */

static int n_line;

static void count_line(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
    n_line += 1;
}

/* Refused by both readers; or taken by both, with the same result. */
static int check(const void *payload, size_t bytes, int64_t n)
{
    ct_sparse out = { 0 };
    float *one = calloc((size_t)n + 1, sizeof(*one)), *all = calloc((size_t)n + 1, sizeof(*all));
    const void *list[1] = { payload };
    ct_status a = ct_payload_unpack(payload, bytes, n, &out);
    ct_status b = ct_payload_sum_all(list, &bytes, 1, all, n, 1, NULL);
    int good = (a == CT_OK);

    if (good) ct_sparse_add_to(&out, one);
    assert_true((a == CT_OK) || (a == CT_ERR_COMM));
    if (good) assert_int_equal(b, CT_OK);
    if (good) assert_memory_equal(one, all, sizeof(*one) * (size_t)n);
    assert_true(all[n] == 0);
    ct_sparse_destroy(&out);
    free(one);
    free(all);
    return good;
}

static void test_wrong_indices(void **state)
{
    static uint64_t room[40000];
    char *payload = (char *)room;
    ct_sparse s = { 0 };
    uint32_t at[] = { 5, 3, 9 }, twice[] = { 4, 4, 9 }, beyond[] = { 1, 2, 300000 };
    uint32_t *const wrong[] = { at, twice, beyond };
    float value[] = { 1, 2, 3 };

    (void)state;
    ct_log_set_sink(count_line, NULL);
    s = (ct_sparse){ .n = 300000, .count = 3, .room = 3, .value = value };
    for (int k = 0; k < 3; ++k) {
        s.index = wrong[k];
        n_line = 0;
        assert_false(check(payload, ct_payload_pack(CT_PAYLOAD_PAIRS, &s, payload), s.n));
        assert_true(n_line >= 1);
    }
    /* indices out of order across the stretches of several threads */
    {
        ct_sparse big = { 0 };
        const void *list[1] = { payload };
        size_t bytes = 0;
        float *sum = calloc(3000000, sizeof(*sum));

        make(4, 3000000, 30000, &big);
        bytes = ct_payload_pack(CT_PAYLOAD_PAIRS, &big, payload);
        assert_int_equal(ct_payload_sum_all(list, &bytes, 1, sum, 3000000, 4, NULL), CT_OK);
        for (int k = 0; k < 20; ++k) {
            uint32_t *index = (uint32_t *)(void *)(payload + CT_PAYLOAD_HEAD);
            int64_t a = (k * 7919) % 30000, b = (k * 104729 + 1) % 30000;
            uint32_t keep = index[a];

            if (a == b) continue;
            index[a] = index[b];
            assert_int_equal(ct_payload_sum_all(list, &bytes, 1, sum, 3000000, 4, NULL),
                             CT_ERR_COMM);
            index[a] = keep;
        }
        free(sum);
        ct_sparse_destroy(&big);
    }
    ct_log_set_sink(NULL, NULL);
}

/* One index that is its predecessor's, anywhere in a run of many, is found. */
static void test_repeated_indices(void **state)
{
    enum { N = 5000, COUNT = 1600, LOOKED_AT = 100 };
    static uint64_t room[COUNT + 100];
    char *payload = (char *)room;

    (void)state;
    ct_log_set_sink(count_line, NULL);
    for (int f = 0; f < 3; ++f) {
        ct_sparse s = { 0 };
        size_t bytes = 0, head = CT_PAYLOAD_HEAD + ((f > 0) ? sizeof(uint32_t) : 0);

        make(5, N, COUNT, &s);
        for (int64_t j = 0; j < COUNT; ++j) s.value[j] = 1.0f;
        bytes = ct_payload_pack(forms[f], &s, payload);
        assert_true(check(payload, bytes, N));
        for (int j = 1; j < LOOKED_AT; ++j) {
            size_t size = (f > 0) ? sizeof(uint16_t) : sizeof(uint32_t);
            char *at = payload + head + size * (size_t)j, keep[sizeof(uint32_t)];

            memcpy(keep, at, size);
            memcpy(at, at - size, size);
            assert_false(check(payload, bytes, N));
            memcpy(at, keep, size);
        }
        ct_sparse_destroy(&s);
    }
    ct_log_set_sink(NULL, NULL);
}

/* Bytes changed at random, in the head more often: never a crash (run with SAN=address). */
static void test_changed_bytes(void **state)
{
    enum { ROUNDS = 2000 };
    static uint64_t room[20000];
    int refused = 0;

    (void)state;
    ct_log_set_sink(count_line, NULL);
    for (int k = 0; k < ROUNDS; ++k) {
        const plan *p = &plans[k % 4];
        ct_payload_form form = forms[k % 3];
        ct_sparse s = { 0 };
        uint64_t draw = ct_rng_philox(11, 2, (uint64_t)k).v[0];
        size_t bytes = 0, changes = 1 + draw % 3;
        unsigned char *payload = malloc(ct_payload_bytes(form, p->n, p->count));

        make((uint64_t)k, p->n, p->count, &s);
        ct_sparse_reserve(&s, 1);
        bytes = ct_payload_pack(form, &s, room);
        memcpy(payload, room, bytes);
        for (size_t c = 0; c < changes; ++c) {
            uint64_t where = ct_rng_philox(13, (uint64_t)k, c).v[0];
            uint64_t what = ct_rng_philox(17, (uint64_t)k, c).v[0];

            payload[(what & 1) ? where % CT_PAYLOAD_HEAD : where % bytes] =
                (unsigned char)(what >> 8);
        }
        refused += !check(payload, (k % 11 == 0) ? bytes / 2 : bytes, p->n);
        ct_sparse_destroy(&s);
        free(payload);
    }
    ct_log_set_sink(NULL, NULL);
    assert_true(refused > ROUNDS / 3);
}

/* Looked at by masks where there are such, and by lanes. */
static int by_lanes(void **state)
{
    (void)state;
    return setenv("CORTADO_SIMD", "portable", 1);
}

static int as_it_is(void **state)
{
    (void)state;
    return unsetenv("CORTADO_SIMD");
}

#define BOTH_WAYS(_test)                                                                           \
    cmocka_unit_test(_test), cmocka_unit_test_setup_teardown(_test, by_lanes, as_it_is)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_parts),      BOTH_WAYS(test_sums),
        BOTH_WAYS(test_wrong_indices),     BOTH_WAYS(test_repeated_indices),
        BOTH_WAYS(test_changed_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
