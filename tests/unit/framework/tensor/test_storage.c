/* Storages: both forms hold what was put into them, range by range, and each breach of want and
 * done is an error. */
#include "tests/test.h"
#include "tests/away_storage.h"

#include "framework/base/bf16.h"
#include "framework/tensor/storage_forms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ct_storage_open_fn forms[] = { ct_storage_open_fixed, away_storage_open,
                                            ct_storage_open_checked };
enum { N_FORM = sizeof(forms) / sizeof(forms[0]), MANY = 2 * CT_STORAGE_CHUNK + 77 };

static ct_storage open_form(int form, int64_t count)
{
    ct_storage s;

    assert_int_equal(forms[form](NULL, ct_device_cpu(), count, &s), CT_OK);
    return s;
}

static float at(int64_t i)
{
    return (float)(i % 8191) + 0.25f;
}

static void test_whole_ranges(void **state)
{
    float *a = malloc(MANY * sizeof(*a)), *b = malloc(MANY * sizeof(*b));

    (void)state;
    assert_true((a != NULL) && (b != NULL));
    for (int64_t i = 0; i < MANY; i++) a[i] = at(i);
    for (int f = 0; f < N_FORM; f++) {
        ct_storage s = open_form(f, MANY + 5);

        assert_int_equal(ct_storage_get(&s, 5, MANY, b), CT_OK);
        for (int64_t i = 0; i < MANY; i++) assert_true(b[i] == 0.0f);
        assert_int_equal(ct_storage_put(&s, 5, MANY, a), CT_OK);
        assert_int_equal(ct_storage_get(&s, 5, MANY, b), CT_OK);
        assert_memory_equal(a, b, MANY * sizeof(*a));
        assert_int_equal(ct_storage_zero(&s, 6, 2), CT_OK);
        assert_int_equal(ct_storage_copy(&s, 5 + CT_STORAGE_CHUNK, 3, a), CT_OK);
        assert_int_equal(ct_storage_get(&s, 5, MANY, b), CT_OK);
        assert_true((b[0] == at(0)) && (b[1] == 0.0f) && (b[2] == 0.0f) && (b[3] == at(3)));
        assert_memory_equal(b + 3, a + 3, (CT_STORAGE_CHUNK - 3) * sizeof(*a));
        assert_memory_equal(b + CT_STORAGE_CHUNK, a, 3 * sizeof(*a));
        assert_memory_equal(b + CT_STORAGE_CHUNK + 3, a + CT_STORAGE_CHUNK + 3,
                            (MANY - CT_STORAGE_CHUNK - 3) * sizeof(*a));
        assert_int_equal(ct_storage_close(&s), CT_OK);
    }
    free(a);
    free(b);
}

typedef struct seen {
    int64_t next;
    int chunks;
} seen;

static ct_status add_one(void *ctx, int64_t from, int64_t count, float *host)
{
    seen *v = ctx;

    assert_int_equal(from, v->next);
    assert_true(count <= CT_STORAGE_CHUNK);
    v->next += count;
    v->chunks++;
    for (int64_t i = 0; i < count; i++) host[i] += 1.0f;
    return CT_OK;
}

static ct_status fails(void *ctx, int64_t from, int64_t count, float *host)
{
    (void)ctx;
    (void)from;
    (void)count;
    (void)host;
    return CT_ERR_IO;
}

static void test_each(void **state)
{
    (void)state;
    for (int f = 0; f < N_FORM; f++) {
        ct_storage s = open_form(f, MANY);
        seen v = { .next = 3 };
        float ends[2];

        assert_int_equal(ct_storage_each(&s, 3, MANY - 3, CT_STORAGE_UPDATE, add_one, &v), CT_OK);
        assert_int_equal(v.next, MANY);
        assert_int_equal(v.chunks, 3);
        assert_int_equal(ct_storage_get(&s, 2, 2, ends), CT_OK);
        assert_true((ends[0] == 0.0f) && (ends[1] == 1.0f));
        assert_int_equal(ct_storage_get(&s, MANY - 1, 1, ends), CT_OK);
        assert_true(ends[0] == 1.0f);
        assert_int_equal(ct_storage_each(&s, 0, 0, CT_STORAGE_READ, fails, NULL), CT_OK);
        /* what fails is given back */
        assert_int_equal(ct_storage_each(&s, 0, 9, CT_STORAGE_READ, fails, NULL), CT_ERR_IO);
        assert_int_equal(ct_storage_settled(&s), CT_OK);
        assert_int_equal(ct_storage_close(&s), CT_OK);
    }
}

/* Numbers of 16 bits: what is given back is rounded, to the nearest; a range has no more than a
 * buffer. */
static void test_bf16(void **state)
{
    enum { N = 3 * CT_STORAGE_BF16_MOST + 5 };
    ct_storage_range a, b;
    ct_storage s;

    (void)state;
    assert_int_equal(ct_storage_open_bf16(NULL, ct_device_cpu(), N, &s), CT_OK);
    assert_true(s.bytes < 4 * (size_t)N + CT_STORAGE_OUT * CT_STORAGE_BF16_MOST * sizeof(float));
    assert_true(s.bytes >= 2 * (size_t)N);
    for (int64_t from = 0; from < N; from += a.count) {
        int64_t n = ct_storage_together(&s, from);

        assert_int_equal(ct_storage_want(&s, NULL, from, n, CT_STORAGE_WRITE, &a), CT_OK);
        for (int64_t i = 0; i < n; i++) a.data[i] = at(from + i);
        assert_int_equal(ct_storage_done(&a, NULL), CT_OK);
        a.count = n;
    }
    assert_int_equal(ct_storage_want(&s, NULL, 7, 8191, CT_STORAGE_UPDATE, &a), CT_OK);
    assert_int_equal(ct_storage_want(&s, NULL, N - 9, 9, CT_STORAGE_READ, &b), CT_OK);
    assert_ptr_not_equal(a.data, b.data);
    for (int64_t i = 0; i < a.count; i++) {
        assert_true(a.data[i] == ct_bf16_to_f32(ct_bf16_from_f32(at(7 + i))));
        assert_true(fabsf(a.data[i] - at(7 + i)) <= 0x1p-8f * at(7 + i));
        a.data[i] = 1.0f + 0x1.8p-7f; /* a half of the last bit above a number: to even */
    }
    for (int64_t i = 0; i < 9; i++)
        assert_true(b.data[i] == ct_bf16_to_f32(ct_bf16_from_f32(at(N - 9 + i))));
    assert_int_equal(ct_storage_done(&a, NULL), CT_OK);
    assert_int_equal(ct_storage_done(&b, NULL), CT_OK);
    assert_int_equal(ct_storage_want(&s, NULL, 7, 8191, CT_STORAGE_READ, &a), CT_OK);
    for (int64_t i = 0; i < a.count; i++) assert_true(a.data[i] == 1.0f + 0x1p-6f);
    assert_int_equal(ct_storage_done(&a, NULL), CT_OK);
    assert_int_equal(ct_storage_want(&s, NULL, 0, CT_STORAGE_BF16_MOST + 1, CT_STORAGE_READ, &a),
                     CT_ERR_ARG);
    assert_int_equal(ct_storage_settled(&s), CT_OK);
    assert_int_equal(ct_storage_close(&s), CT_OK);
}

/* One range at a time may be written; what overlaps is refused, what lies beside it is not. */
static void test_overlaps(void **state)
{
    (void)state;
    for (int f = 0; f < N_FORM; f++) {
        ct_storage s = open_form(f, 100);
        ct_storage_range a, b, c;

        assert_int_equal(ct_storage_want(&s, NULL, 10, 20, CT_STORAGE_READ, &a), CT_OK);
        assert_int_equal(ct_storage_want(&s, NULL, 15, 20, CT_STORAGE_READ, &b), CT_OK);
        assert_int_equal(ct_storage_want(&s, NULL, 34, 2, CT_STORAGE_UPDATE, &c), CT_ERR_ARG);
        assert_int_equal(ct_storage_want(&s, NULL, 0, 11, CT_STORAGE_WRITE, &c), CT_ERR_ARG);
        assert_int_equal(ct_storage_want(&s, NULL, 35, 65, CT_STORAGE_UPDATE, &c), CT_OK);
        assert_int_equal(ct_storage_done(&a, NULL), CT_OK);
        assert_int_equal(ct_storage_want(&s, NULL, 34, 1, CT_STORAGE_READ, &a), CT_OK);
        assert_int_equal(ct_storage_done(&a, NULL), CT_OK);
        assert_int_equal(ct_storage_want(&s, NULL, 40, 1, CT_STORAGE_READ, &a), CT_ERR_ARG);
        assert_int_equal(ct_storage_done(&b, NULL), CT_OK);
        assert_int_equal(ct_storage_done(&c, NULL), CT_OK);
        assert_int_equal(ct_storage_settled(&s), CT_OK);
        assert_int_equal(ct_storage_close(&s), CT_OK);
    }
}

static void test_outside(void **state)
{
    ct_storage s = open_form(0, 100);
    ct_storage_range r;

    (void)state;
    assert_int_equal(ct_storage_want(&s, NULL, -1, 2, CT_STORAGE_READ, &r), CT_ERR_ARG);
    assert_int_equal(ct_storage_want(&s, NULL, 99, 2, CT_STORAGE_READ, &r), CT_ERR_ARG);
    assert_int_equal(ct_storage_want(&s, NULL, 0, -1, CT_STORAGE_READ, &r), CT_ERR_ARG);
    assert_int_equal(ct_storage_want(&s, NULL, INT64_MAX, 2, CT_STORAGE_READ, &r), CT_ERR_ARG);
    assert_int_equal(ct_storage_close(&s), CT_OK);
}

/* What is kept, given back twice, or never wanted. */
static void test_breaches(void **state)
{
    (void)state;
    for (int f = 0; f < N_FORM; f++) {
        ct_storage s = open_form(f, 100);
        ct_storage_range r[CT_STORAGE_OUT + 1], twice;

        for (int i = 0; i < CT_STORAGE_OUT; i++)
            assert_int_equal(ct_storage_want(&s, NULL, i, 1, CT_STORAGE_READ, &r[i]), CT_OK);
        assert_int_equal(ct_storage_want(&s, NULL, 50, 1, CT_STORAGE_READ, &r[CT_STORAGE_OUT]),
                         CT_ERR_ARG);
        twice = r[1];
        for (int i = 1; i < CT_STORAGE_OUT; i++)
            assert_int_equal(ct_storage_done(&r[i], NULL), CT_OK);
        assert_null(r[1].storage);
        assert_int_equal(ct_storage_done(&r[1], NULL), CT_OK); /* it is not wanted, and says so */
        assert_int_equal(ct_storage_done(&twice, NULL), CT_ERR_ARG);
        assert_int_equal(ct_storage_settled(&s), CT_ERR_ARG);
        assert_int_equal(ct_storage_done(&r[0], NULL), CT_OK);
        assert_int_equal(ct_storage_want(&s, NULL, 7, 1, CT_STORAGE_READ, &r[0]), CT_OK);
        assert_int_equal(ct_storage_close(&s), CT_ERR_ARG); /* and closed */
        assert_null(s.ops);
        assert_int_equal(ct_storage_close(&s), CT_OK);
        if (f == 1) ct_device_cpu()->mem_release(r[0].data);
    }
}

/* The form in the file sees what users of the fixed one get away with. */
static void test_untrue_uses(void **state)
{
    ct_storage s = open_form(1, 100);
    ct_storage_range r;
    const float *stale;

    (void)state;
    assert_int_equal(ct_storage_want(&s, NULL, 0, 4, CT_STORAGE_READ, &r), CT_OK);
    r.data[2] = 5.0f;
    assert_int_equal(ct_storage_done(&r, NULL), CT_ERR_ARG);
    assert_int_equal(ct_storage_want(&s, NULL, 0, 4, CT_STORAGE_WRITE, &r), CT_OK);
    r.data[0] = r.data[1] = r.data[2] = 5.0f;
    assert_int_equal(ct_storage_done(&r, NULL), CT_ERR_ARG);
    assert_int_equal(ct_storage_want(&s, NULL, 0, 4, CT_STORAGE_UPDATE, &r), CT_OK);
    stale = r.data;
    assert_true(stale[0] == 0.0f);
    assert_int_equal(ct_storage_done(&r, NULL), CT_OK);
    assert_true(isnan(stale[0]));
    assert_int_equal(ct_storage_close(&s), CT_OK);
}

/* Memory of the caller's stays where it is, and is the caller's to release. */
static void test_borrowed(void **state)
{
    float data[6] = { 1, 2, 3, 4, 5, 6 };
    ct_storage s = ct_storage_at(ct_device_cpu(), data, 6);
    ct_storage_range r;

    (void)state;
    assert_int_equal(ct_storage_want(&s, NULL, 2, 3, CT_STORAGE_UPDATE, &r), CT_OK);
    assert_ptr_equal(r.data, data + 2);
    assert_int_equal(ct_storage_done(&r, NULL), CT_OK);
    assert_int_equal(ct_storage_close(&s), CT_OK);
}

/* One bit that changes in between is found by the next range that has its block: one that reads,
 * one that updates, one that overwrites a part of the block; not by one that overwrites all of it.
 */
static void test_checked(void **state)
{
    enum { N = 2 * CT_STORAGE_CHECKED_BLOCK + 100, LAST = N - 1 };
    static const struct {
        int64_t from, count;
        ct_storage_use use;
        ct_status want;
    } next[] = {
        { LAST, 1, CT_STORAGE_READ, CT_ERR_DIVERGED },
        { LAST - 50, 3, CT_STORAGE_READ, CT_ERR_DIVERGED }, /* beside it */
        { 0, N, CT_STORAGE_UPDATE, CT_ERR_DIVERGED },
        { LAST - 50, 51, CT_STORAGE_WRITE, CT_ERR_DIVERGED },
        { 0, 2 * CT_STORAGE_CHECKED_BLOCK, CT_STORAGE_UPDATE, CT_OK }, /* other blocks */
        { 0, N, CT_STORAGE_WRITE, CT_OK },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(next) / sizeof(next[0]); i++) {
        ct_storage s;
        ct_storage_range a, b;

        assert_int_equal(ct_storage_open_checked((char[]){ "momentum" }, ct_device_cpu(), N, &s),
                         CT_OK);
        assert_int_equal(ct_storage_want(&s, NULL, 0, N, CT_STORAGE_WRITE, &a), CT_OK);
        for (int64_t k = 0; k < N; k++) a.data[k] = at(k);
        assert_int_equal(ct_storage_done(&a, NULL), CT_OK);
        /* two that share a block, given back in the order in which they were wanted */
        assert_int_equal(ct_storage_want(&s, NULL, 0, 9, CT_STORAGE_UPDATE, &a), CT_OK);
        assert_int_equal(ct_storage_want(&s, NULL, 9, 9, CT_STORAGE_UPDATE, &b), CT_OK);
        a.data[8] = 1.0f;
        assert_int_equal(ct_storage_done(&a, NULL), CT_OK);
        b.data[0] = 2.0f;
        assert_int_equal(ct_storage_done(&b, NULL), CT_OK);
        assert_int_equal(ct_storage_want(&s, NULL, 0, N, CT_STORAGE_READ, &a), CT_OK);
        ((uint32_t *)(void *)a.data)[LAST] ^= 1u;
        assert_int_equal(ct_storage_done(&a, NULL), CT_OK);
        assert_int_equal(ct_storage_want(&s, NULL, next[i].from, next[i].count, next[i].use, &a),
                         next[i].want);
        if (next[i].want == CT_OK) assert_int_equal(ct_storage_done(&a, NULL), CT_OK);
        assert_int_equal(ct_storage_close(&s), CT_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_ranges), cmocka_unit_test(test_each),
        cmocka_unit_test(test_overlaps),     cmocka_unit_test(test_outside),
        cmocka_unit_test(test_breaches),     cmocka_unit_test(test_untrue_uses),
        cmocka_unit_test(test_borrowed),     cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
