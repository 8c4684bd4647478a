/* Signs and thin factors on a device (comm/codec/codec_kernels.h) against the CPU's, bit by bit.
 * Skips where no CUDA device works. */
#include "tests/test.h"
#include "tests/cuda_case.h"

#include "comm/codec/codec_kernels.h"
#include "comm/codec/sign.h"
#include "framework/base/memory.h"
#include "framework/base/rng.h"

#include <math.h>
#include <string.h>

static test_cuda_codec on;

static int open_device(void **unused)
{
    (void)unused;
    return test_cuda_codec_open(&on);
}

/* A block on both sides. */
typedef struct twin {
    void *host, *there;
    size_t bytes;
} twin;

static twin twin_of(size_t bytes)
{
    twin t = { .host = ct_mem_acquire(bytes + 1), .bytes = bytes };

    assert_non_null(t.host);
    assert_int_equal(on.dev->mem_acquire(bytes + 1, &t.there), CT_OK);
    return t;
}

static void put(const twin *t)
{
    assert_int_equal(on.dev->from_host(on.stream, t->there, t->host, t->bytes), CT_OK);
}

static void same(const twin *t)
{
    void *copy = ct_mem_acquire(t->bytes + 1);

    assert_int_equal(on.dev->to_host(on.stream, copy, t->there, t->bytes), CT_OK);
    assert_memory_equal(copy, t->host, t->bytes);
    ct_mem_release(copy);
}

static void close_twin(twin *t)
{
    ct_mem_release(t->host);
    on.dev->mem_release(t->there);
}

static void fill(const twin *t, int64_t n, uint64_t seed, int kind)
{
    float *v = t->host;

    for (int64_t i = 0; i < n; i++) {
        v[i] = ct_rng_normal_at(seed, (uint64_t)i);
        if (kind == 1) v[i] = fabsf(v[i]); /* one side is empty */
        if (kind == 2) v[i] = (i % 3 == 0) ? 0.0f : -v[i] * ldexpf(1.0f, (int)(i % 40) - 20);
    }
    put(t);
}

/* ---- signs */

static ct_codec_coder *coder_of(int64_t n)
{
    ct_coder_setup setup = { .kind = CT_SELECT_EXACT, .n = n, .k = 1, .form = CT_PAYLOAD_PAIRS };
    ct_codec_coder *c = NULL;

    assert_int_equal(on.codec->create(&setup, &c), CT_OK);
    return c;
}

static void check_note(ct_codec_coder *c, uint32_t bad, uint32_t wrong)
{
    ct_coder_note note;

    assert_int_equal(on.dev->to_host(on.stream, &note, on.codec->note(c), sizeof(note)), CT_OK);
    assert_int_equal(note.bad, bad);
    assert_int_equal(note.wrong, wrong);
}

static ct_momentum_correction accum_of(const twin *grad, const twin *weight, const twin *u,
                                       const twin *v, int64_t n, int how, bool there)
{
    return (ct_momentum_correction){ .grad = there ? grad->there : grad->host,
                                     .weight = (how % 2 == 0) ? NULL
                                               : there        ? weight->there
                                                              : weight->host,
                                     .u = (how == 0) ? NULL
                                          : there    ? u->there
                                                     : u->host,
                                     .v = there ? v->there : v->host,
                                     .n = n,
                                     .scale = 0.5f,
                                     .rate = 0.3f,
                                     .momentum = 0.9f,
                                     .decay = 0.01f,
                                     .carry = 0.7f,
                                     .nesterov = (how == 3),
                                     .n_thread = 1 };
}

/* The update and all parts' payloads but one's, and the sum of that one. */
static void encode(int64_t n, int parts, int skip, int how)
{
    ct_sign_cut cut = { .n = n, .parts = parts };
    size_t bytes = sizeof(float) * (size_t)n, all = ct_sign_at(&cut, parts);
    twin grad = twin_of(bytes), weight = twin_of(bytes), u = twin_of(bytes), v = twin_of(bytes);
    twin payload = twin_of(all), one = { .host = NULL };
    ct_codec_coder *c = coder_of(n);
    int64_t first = 0, count = 0;
    ct_momentum_correction a;

    memset(payload.host, 0, all);
    for (int j = 0; j < parts; j++) {
        ct_sign_part(&cut, j, &first, &count);
        if (j != skip) ct_sign_head((char *)payload.host + ct_sign_at(&cut, j), count);
    }
    put(&payload);
    fill(&weight, n, 5, 0);
    for (int step = 0; step < 3; step++) {
        fill(&grad, n, (uint64_t)(11 + step), step);
        a = accum_of(&grad, &weight, &u, &v, n, how, false);
        assert_int_equal(ct_sign_encode(&cut, &a, skip, payload.host), CT_OK);
        a = accum_of(&grad, &weight, &u, &v, n, how, true);
        assert_int_equal(on.codec->sign(c, on.stream, &a, parts, skip, payload.there), CT_OK);
        check_note(c, 0, 0);
        same(&payload);
        same(&u);
        same(&v);
    }
    ct_sign_part(&cut, (skip >= 0) ? skip : 0, &first, &count);
    one = twin_of(ct_sign_bytes(count));
    ct_sign_head(one.host, count);
    put(&one);
    if (count > 0) {
        assert_int_equal(ct_sign_take((float *)v.host + first, count, 1, one.host), CT_OK);
        assert_int_equal(
            on.codec->sign_take(c, on.stream, (float *)v.there + first, count, one.there), CT_OK);
    }
    same(&one);
    same(&v);
    on.codec->destroy(c);
    close_twin(&grad), close_twin(&weight), close_twin(&u), close_twin(&v);
    close_twin(&payload), close_twin(&one);
}

static const int64_t sizes[] = { 1, 31, 1000, 1023, 1024, 1025, 3000, 70001 };

static void signs_of_all_sizes(void **unused)
{
    (void)unused;
    TEST_CODEC_NEEDS(on);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        encode(sizes[i], 1, -1, (int)(i % 4));
        encode(sizes[i], 3, (int)(i % 3), (int)((i + 1) % 4));
        encode(sizes[i], 5, 4, (int)((i + 2) % 4));
    }
}

/* What came in, added one after the other, onto zeros or not, and parts side by side. */
static void signs_are_added(void **unused)
{
    enum { P = 3 };

    (void)unused;
    TEST_CODEC_NEEDS(on);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        int64_t n = sizes[i];
        size_t bytes = sizeof(float) * (size_t)n, stride = ct_align_up(ct_sign_bytes(n));
        twin v = twin_of(bytes), from = twin_of(bytes), payload = twin_of(P * stride);
        ct_codec_coder *c = coder_of(n);
        ct_sign_cut cut = { .n = n, .parts = P };
        const void *at[P];
        size_t each[P];

        memset(payload.host, 0, payload.bytes);
        for (int p = 0; p < P; p++) {
            at[p] = (char *)payload.host + stride * (size_t)p;
            each[p] = ct_sign_bytes(n);
            fill(&from, n, (uint64_t)p, p);
            assert_int_equal(ct_sign_take(from.host, n, 1, (void *)(uintptr_t)at[p]), CT_OK);
        }
        put(&payload);
        assert_int_equal(ct_sign_sum(at, each, P, v.host, n, 1), CT_OK);
        assert_int_equal(
            on.codec->sign_add(c, on.stream, payload.there, stride, P, false, v.there, n), CT_OK);
        same(&v);
        assert_int_equal(ct_sign_add(at[1], each[1], v.host, n, 1), CT_OK);
        assert_int_equal(on.codec->sign_add(c, on.stream, (char *)payload.there + stride, stride, 1,
                                            true, v.there, n),
                         CT_OK);
        same(&v);
        for (int j = 0; j < P; j++) {
            int64_t first = 0, count = 0;

            ct_sign_part(&cut, j, &first, &count);
            each[j] = ct_sign_bytes(count);
            assert_int_equal(
                ct_sign_take((float *)from.host + first, count, 1, (void *)(uintptr_t)at[j]),
                CT_OK);
            assert_int_equal(ct_sign_sum(&at[j], &each[j], 1, (float *)v.host + first, count, 1),
                             CT_OK);
        }
        put(&payload);
        assert_int_equal(on.codec->sign_put(c, on.stream, payload.there, stride, P, v.there, n),
                         CT_OK);
        same(&v);
        on.codec->destroy(c);
        close_twin(&v), close_twin(&from), close_twin(&payload);
    }
}

/* V that is not finite shows at once, a mean that is not with the next note. */
static void not_finite(void **unused)
{
    enum { N = 3000 };
    static const float bad[] = { NAN, -NAN, INFINITY, -INFINITY };

    (void)unused;
    TEST_CODEC_NEEDS(on);
    for (int i = 0; i < 4; i++) {
        twin v = twin_of(sizeof(float) * N), payload = twin_of(ct_sign_bytes(N));
        ct_codec_coder *c = coder_of(N);
        float *means = (void *)((char *)payload.host + CT_SIGN_HEAD);

        fill(&v, N, 3, 0);
        ((float *)v.host)[N - 1 - 700 * i] = bad[i];
        put(&v);
        assert_int_equal(on.codec->sign_take(c, on.stream, v.there, N, payload.there), CT_OK);
        check_note(c, 1, 0);
        fill(&v, N, 3, 0);
        assert_int_equal(ct_sign_take(v.host, N, 1, payload.host), CT_OK);
        means[i % 2] = bad[i];
        put(&payload);
        assert_int_equal(on.codec->sign_add(c, on.stream, payload.there, 0, 1, true, v.there, N),
                         CT_OK);
        assert_int_equal(on.codec->sign_take(c, on.stream, v.there, 0, payload.there), CT_OK);
        check_note(c, 0, 1);
        on.codec->destroy(c);
        close_twin(&v), close_twin(&payload);
    }
}

/* ---- factors */

static void factors(int64_t rows, int64_t cols, int r)
{
    ct_low_rank s = { .rows = rows, .cols = cols, .r = r };
    int64_t n = rows * cols, scratch = ct_low_rank_scratch(&s);
    twin v = twin_of(sizeof(float) * (size_t)n), grad = twin_of(sizeof(float) * (size_t)n);
    twin p = twin_of(sizeof(float) * (size_t)(r * rows));
    twin q = twin_of(sizeof(float) * (size_t)(r * cols));
    twin room = twin_of(sizeof(float) * (size_t)scratch);
    ct_momentum_correction a = {
        .grad = grad.host, .v = v.host, .n = n, .scale = 1, .n_thread = 1
    };
    ct_momentum_correction there = a;
    ct_coder_setup setup = { .n = n, .k = 1 };
    ct_codec_coder *c = NULL;

    there.grad = grad.there;
    there.v = v.there;
    fill(&grad, n, 1, 0);
    fill(&v, n, 2, 2);
    fill(&q, r * cols, 3, 0);
    assert_int_equal(on.codec->create(&setup, &c), CT_OK);
    assert_int_equal(on.codec->left(c, on.stream, &s, &there, q.there, p.there), CT_OK);
    assert_int_equal(ct_low_rank_left(&s, &a, q.host, p.host), CT_OK);
    same(&v);
    on.codec->destroy(c);
    same(&p);
    ct_low_rank_right(&s, v.host, p.host, 1, room.host, q.host);
    assert_int_equal(on.codec->right(on.stream, &s, v.there, p.there, room.there, q.there), CT_OK);
    same(&q);
    ct_low_rank_take(&s, p.host, q.host, 1, v.host);
    assert_int_equal(on.codec->product(on.stream, &s, p.there, q.there, true, v.there), CT_OK);
    same(&v);
    ct_low_rank_put(&s, p.host, q.host, 1, grad.host);
    assert_int_equal(on.codec->product(on.stream, &s, p.there, q.there, false, grad.there), CT_OK);
    same(&grad);
    close_twin(&v), close_twin(&grad), close_twin(&p), close_twin(&q), close_twin(&room);
}

static void factors_of_all_shapes(void **unused)
{
    (void)unused;
    TEST_CODEC_NEEDS(on);
    factors(2, 5, 1);
    factors(30, 100, 2);
    factors(33, 47, 3);
    factors(17, 64, 5);
    factors(40, 131, 7);
    factors(300, 700, 4); /* slabs */
    factors(5, 9001, 2);  /* wide: none */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(signs_of_all_sizes),
                                        cmocka_unit_test(signs_are_added),
                                        cmocka_unit_test(not_finite),
                                        cmocka_unit_test(factors_of_all_shapes) };

    return cmocka_run_group_tests(tests, open_device, NULL);
}
