#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/sparse/sparse.h"
#include "comm/sparse/sparse_allreduce_impl.h"
#include "framework/base/rng.h"

enum { N = 1009 };

/* Every element of which a number is below `share`, with few different values. */
static void random_sparse(uint64_t key, float share, ct_sparse *s)
{
    assert_int_equal(ct_sparse_reserve(s, N), CT_OK);
    s->n = N;
    s->count = 0;
    for (uint32_t i = 0; i < N; ++i) {
        if (ct_rng_uniform_at(key, i) >= share) continue;
        s->index[s->count] = i;
        s->value[s->count++] = rintf(4.0f * ct_rng_normal_at(key, i)) / 4.0f;
    }
}

static void test_reserve(void **state)
{
    ct_sparse s = { 0 };
    const uint32_t *index;

    (void)state;
    assert_int_equal(ct_sparse_reserve(&s, 3), CT_OK);
    for (uint32_t i = 0; i < 3; ++i) s.index[i] = i * i, s.value[i] = (float)i;
    s.n = 10;
    s.count = 3;
    index = s.index;
    assert_int_equal(ct_sparse_reserve(&s, 2), CT_OK);
    assert_ptr_equal(s.index, index); /* it stays */
    assert_int_equal(ct_sparse_reserve(&s, 5000), CT_OK);
    assert_true(s.room >= 5000);
    assert_int_equal(s.count, 3);
    for (uint32_t i = 0; i < 3; ++i) {
        assert_int_equal(s.index[i], i * i);
        assert_true(s.value[i] == (float)i);
    }
    ct_sparse_destroy(&s);
    assert_null(s.index);
    assert_int_equal(s.room, 0);
    ct_sparse_destroy(&s);
}

/* What both hold is added up, and what is zero then goes. */
static void test_merge(void **state)
{
    static const float share[] = { 0.0f, 0.01f, 0.3f, 1.1f };

    (void)state;
    for (int p = 0; p < 16; ++p) {
        ct_sparse a = { 0 }, b = { 0 }, out = { 0 };
        float want[N] = { 0 }, got[N] = { 0 };
        int64_t count = 0;

        random_sparse(1, share[p / 4], &a);
        random_sparse(2, share[p % 4], &b);
        assert_int_equal(ct_sparse_allreduce_merge(&a, &b, N, &out), CT_OK);
        ct_sparse_add_to(&a, want);
        ct_sparse_add_to(&b, want);
        ct_sparse_add_to(&out, got);
        for (int i = 0; i < N; ++i) assert_true(got[i] == want[i]);
        for (int i = 0; i < N; ++i) count += (want[i] != 0);
        assert_int_equal(out.count, count);
        assert_int_equal(out.n, N);
        for (int64_t j = 1; j < out.count; ++j) assert_true(out.index[j] > out.index[j - 1]);
        ct_sparse_destroy(&a);
        ct_sparse_destroy(&b);
        ct_sparse_destroy(&out);
    }
}

/* Two regions of 1300: new boundaries go where half of all entries lie, which are spread evenly
 * between cuts. */
static void test_bounds_move(void **state)
{
    ct_region_news first = { .received = 2600 }, second = { .received = 2080 };
    const ct_region_news *news[] = { &first, &second };
    ct_regions g;

    (void)state;
    for (uint32_t i = 0; i < CT_REGION_CUTS; ++i) {
        first.cut[i] = 5 * (i + 1) * (i + 1);
        second.cut[i] = 100 * (i + 1);
    }
    assert_int_equal(ct_regions_create(2600, 2, &g), CT_OK);
    assert_int_equal(g.bound[1], 1300);
    ct_regions_learn(&g, news, 0); /* 2340 entries: 11.7 pieces of 200 */
    assert_int_equal(g.bound[0], 0);
    assert_int_equal(g.bound[1], 605 + (720 - 605) * 7 / 10);
    assert_int_equal(g.bound[2], 2600);
    ct_regions_destroy(&g);
    /* in the second region: in a piece without elements, and in a usual one */
    for (int turn = 0; turn < 2; ++turn) {
        first.received = turn ? 1950 : 0;
        second.received = turn ? 2730 : 260;
        if (!turn) second.cut[5] = 700;
        assert_int_equal(ct_regions_create(2600, 2, &g), CT_OK);
        ct_regions_learn(&g, news, 0);
        /* 130 of 260: 6.5 pieces of 20; 390 of 2730: 1.857 of 210 */
        assert_int_equal(g.bound[1], turn ? 1300 + 185 : 1300 + 700);
        ct_regions_destroy(&g);
    }
    /* a tenth from even stays */
    first.received = 100;
    second.received = 120;
    assert_int_equal(ct_regions_create(2600, 2, &g), CT_OK);
    ct_regions_learn(&g, news, 0);
    assert_int_equal(g.bound[1], 1300);
    ct_regions_destroy(&g);
}

static const ct_sparse *sorted;

static int by_magnitude(const void *a, const void *b)
{
    int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    float x = fabsf(sorted->value[i]), y = fabsf(sorted->value[j]);

    if (x != y) return (x < y) ? 1 : -1;
    return (i > j) - (i < j);
}

static void test_keep(void **state)
{
    (void)state;
    for (int64_t k = -1; k < 500; k += (k < 20) ? 1 : 37) {
        ct_sparse s = { 0 }, was = { 0 };
        float dropped[N] = { 0 }, want_dropped[N] = { 0 };
        int64_t order[N], keep;
        bool stays[N] = { false };
        int64_t at = 0;

        random_sparse(7, 0.4f, &s);
        random_sparse(7, 0.4f, &was);
        sorted = &was;
        for (int64_t j = 0; j < was.count; ++j) order[j] = j;
        qsort(order, (size_t)was.count, sizeof(*order), by_magnitude);
        keep = (k < 0) ? 0 : (k > was.count) ? was.count : k;
        for (int64_t j = 0; j < keep; ++j) stays[order[j]] = true;
        ct_sparse_keep(&s, k, (k % 2 == 0) ? NULL : &(ct_residual_return){ .v = dropped });
        assert_int_equal(s.count, keep);
        for (int64_t j = 0; j < was.count; ++j) {
            if (!stays[j]) {
                want_dropped[was.index[j]] += was.value[j];
                continue;
            }
            assert_int_equal(s.index[at], was.index[j]);
            assert_true(s.value[at++] == was.value[j]);
        }
        for (int i = 0; (k % 2 != 0) && (i < N); ++i) assert_true(dropped[i] == want_dropped[i]);
        ct_sparse_destroy(&s);
        ct_sparse_destroy(&was);
    }
}

static uint32_t bits_of(float f)
{
    uint32_t b;

    memcpy(&b, &f, sizeof(b));
    return b;
}

/* Values that differ in the last bit, in the exponent only, denormals, zeros, infinity, NaN. */
static void test_kth(void **state)
{
    static const float v[] = { 1.0f,    -1.0000001f, 2.0f, 0.0f, -0.0f, 1e-44f,
                               -3e-45f, INFINITY,    NAN,  1.0f, -1.0f, 65504.0f };
    enum { COUNT = sizeof(v) / sizeof(v[0]) };
    static const struct {
        float value;
        int64_t equal;
    } want[COUNT] = { { NAN, 1 },        { INFINITY, 1 }, { 65504.0f, 1 }, { 2.0f, 1 },
                      { 1.0000001f, 1 }, { 1.0f, 1 },     { 1.0f, 2 },     { 1.0f, 3 },
                      { 1e-44f, 1 },     { 3e-45f, 1 },   { 0.0f, 1 },     { 0.0f, COUNT } };

    (void)state;
    for (int64_t k = 1; k <= COUNT; ++k) {
        uint32_t bits;
        int64_t equal;

        ct_sparse_kth(v, COUNT, k, &bits, &equal);
        assert_int_equal(bits, bits_of(want[k - 1].value) & 0x7fffffffu);
        assert_int_equal(equal, want[k - 1].equal);
    }
}

static int descending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x < y) - (x > y);
}

/* Many: all in an octave, far apart, with equal ones, and with some so large that all others share
 * a bin. */
static void test_kth_of_many(void **state)
{
    enum { COUNT = 20000 };
    static const float apart[] = { 1e-3f, 30, 1e10f, 0 };
    float *v = malloc(COUNT * sizeof(*v));
    uint32_t *want = malloc(COUNT * sizeof(*want));

    (void)state;
    for (int c = 0; c < 4; ++c) {
        for (int i = 0; i < COUNT; ++i) {
            float x = ct_rng_normal_at(5, (uint64_t)i);

            v[i] = (apart[c] > 0) ? 1 + fabsf(x) * apart[c] : rintf(8 * x);
            if ((c < 2) && (i % 999 == 0)) v[i] = (i % 2 == 0) ? 1e30f : -3e38f;
            want[i] = bits_of(v[i]) & 0x7fffffffu;
        }
        qsort(want, COUNT, sizeof(*want), descending);
        for (int64_t k = 1; k < COUNT; k += 1 + k / 3) {
            uint32_t bits;
            int64_t equal, before = k - 1;

            ct_sparse_kth(v, COUNT, k, &bits, &equal);
            assert_int_equal(bits, want[k - 1]);
            while ((before > 0) && (want[before - 1] == bits)) before -= 1;
            assert_int_equal(equal, k - before);
        }
    }
    free(v);
    free(want);
}

/* What is dropped is noted where the vector is elsewhere; batch by batch it makes the same bits. */
static void test_drops_are_noted(void **state)
{
    enum { M = 64, K = 5 };
    float v[M], late[M];
    uint32_t index[M];
    float value[M];
    ct_sparse s = { .n = M, .index = index, .value = value, .room = M };
    ct_residual_return_list list = { .n_batch = 0 };
    ct_residual_return noted = { .list = &list }, here = { .v = v };

    (void)state;
    assert_int_equal(ct_sparse_reserve(&list.entry, 2 * M), CT_OK);
    for (int i = 0; i < M; ++i) v[i] = late[i] = 0.1f * (float)i;
    for (int turn = 0; turn < 2; ++turn) {
        for (int kept = 0; kept < 2; ++kept) {
            s.count = M;
            for (int i = 0; i < M; ++i) {
                index[i] = (uint32_t)i;
                value[i] = 1 / (float)(1 + (i * 7 + turn) % M) + 1e-3f;
            }
            ct_sparse_keep(&s, K, (kept == 0) ? &here : &noted);
            assert_int_equal(s.count, K);
        }
    }
    ct_residual_return_next(&noted);
    assert_int_equal(list.n_batch, 2);
    assert_int_equal(list.entry.count, 2 * (M - K));
    assert_false(list.full);
    for (int b = 0; b < list.n_batch; ++b) {
        int64_t last = -1;

        for (int64_t j = (b > 0) ? list.end[b - 1] : 0; j < list.end[b]; ++j) {
            assert_true(last < list.entry.index[j]);
            last = list.entry.index[j];
            late[last] += list.entry.value[j];
        }
    }
    assert_memory_equal(v, late, sizeof(v));
    ct_residual_return_add(&noted, 3, 0); /* changes nothing */
    assert_int_equal(list.entry.count, 2 * (M - K));
    list.entry.count = list.entry.room;
    ct_residual_return_add(&noted, 3, 1);
    assert_true(list.full);
    ct_residual_return_clear(&list);
    assert_false(list.full);
    assert_int_equal(list.entry.count, 0);
    ct_sparse_destroy(&list.entry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserve),     cmocka_unit_test(test_merge),
        cmocka_unit_test(test_keep),        cmocka_unit_test(test_kth),
        cmocka_unit_test(test_kth_of_many), cmocka_unit_test(test_drops_are_noted),
        cmocka_unit_test(test_bounds_move),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
