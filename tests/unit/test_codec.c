#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/bf16.h"
#include "comm/codec.h"
#include "framework/base/rng.h"

static char last_line[512];

static void keep_line(void *ctx, const char *text)
{
    (void)ctx;
    snprintf(last_line, sizeof(last_line), "%s", text);
}

static const ct_codec_ops *codec(const char *name)
{
    const ct_codec_ops *ops = NULL;

    assert_int_equal(ct_codec_find(name, &ops), CT_OK);
    return ops;
}

static void test_find(void **state)
{
    const ct_codec_ops *ops = NULL;

    (void)state;
    for (const ct_codec_ops *const *at = ct_codec_table; *at != NULL; ++at)
        assert_ptr_equal(codec((*at)->name), *at);
    assert_string_equal(ct_codec_table[0]->name, "none");
    ct_log_set_sink(keep_line, NULL);
    assert_int_equal(ct_codec_find("gzip", &ops), CT_ERR_CONFIG);
    assert_non_null(strstr(last_line, "none, bf16, topk"));
    assert_int_equal(codec("none")->decode(NULL, "", 3, NULL, 1), CT_ERR_COMM);
    assert_int_equal(codec("bf16")->decode(NULL, "", 3, NULL, 1), CT_ERR_COMM);
    ct_log_set_sink(NULL, NULL);
}

static void test_bf16_values(void **state)
{
    static const struct {
        uint32_t f32;
        uint16_t bf16;
    } pair[] = {
        { 0x00000000, 0x0000 }, { 0x80000000, 0x8000 }, { 0x3f800000, 0x3f80 },
        { 0x3f807fff, 0x3f80 }, { 0x3f808000, 0x3f80 }, /* a tie: the even one is below */
        { 0x3f808001, 0x3f81 }, { 0x3f818000, 0x3f82 }, /* a tie: the even one is above */
        { 0x7f7fffff, 0x7f80 }, { 0x7f800000, 0x7f80 }, { 0xff800000, 0xff80 },
        { 0x7f800001, 0x7fc0 }, { 0xffffffff, 0xffff }, { 0x00018000, 0x0002 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(pair) / sizeof(pair[0]); ++i) {
        float f;

        memcpy(&f, &pair[i].f32, sizeof(f));
        assert_int_equal(ct_bf16_from_f32(f), pair[i].bf16);
    }
    for (uint32_t h = 0; h < 65536; ++h) { /* what bf16 can hold comes back */
        if (!isnan(ct_bf16_to_f32((uint16_t)h)))
            assert_int_equal(ct_bf16_from_f32(ct_bf16_to_f32((uint16_t)h)), h);
    }
}

static void test_sum_codecs(void **state)
{
    enum { N = 100003 };
    static float grad[N], out[N];
    static char payload[sizeof(float) * N];
    const ct_codec_config config = { .density = 0.01f };

    (void)state;
    for (int i = 0; i < N; ++i) grad[i] = ct_rng_normal_at(5, (uint64_t)i);
    for (const ct_codec_ops *const *at = ct_codec_table; *at != NULL; ++at) {
        double u = ((*at)->dtype == CT_BF16) ? 0x1p-8 : 0; /* half a place of 8 bits */
        size_t bytes = 0;

        if ((*at)->combine != CT_COMBINE_SUM) continue;
        assert_int_equal((*at)->encode(&config, grad, NULL, N, payload, &bytes), CT_OK);
        assert_true(bytes <= (*at)->payload_bound(&config, N));
        assert_int_equal(bytes, N * ct_dtype_size((*at)->dtype));
        assert_int_equal((*at)->decode(&config, payload, bytes, out, N), CT_OK);
        for (int i = 0; i < N; ++i) assert_true(fabs(out[i] - grad[i]) <= u * fabs(grad[i]));
    }
}

/* Everything that must hold of one encode: bits are kept, the k largest go, ties by index. */
static void check_topk(const float *grad, const float *old, int64_t n, float density)
{
    const ct_codec_ops *topk = codec("topk");
    const ct_codec_config config = { .density = density };
    size_t bound = topk->payload_bound(&config, n), bytes = 0;
    int64_t k = llround((double)density * (double)n), count = 0, at = 0;
    char *payload = malloc(bound + 8);
    float *residual = calloc((size_t)n + 1, sizeof(float)), *sent = calloc((size_t)n + 1, 4);
    float least_sent = INFINITY, most_kept = 0;

    if (k < 1) k = 1;
    if (k > n) k = n;
    if (old != NULL) memcpy(residual, old, sizeof(float) * (size_t)n);
    memset(payload + bound, 0x55, 8);
    assert_int_equal(topk->encode(&config, grad, residual, n, payload, &bytes), CT_OK);
    assert_true(bytes <= bound);
    for (int i = 0; i < 8; ++i) assert_int_equal(payload[bound + (size_t)i], 0x55);
    assert_int_equal(topk->decode(&config, payload, bytes, sent, n), CT_OK);
    memcpy(&count, payload, sizeof(count));
    assert_true(count <= k);
    for (int64_t i = 0; i < n; ++i) {
        float v = grad[i] + ((old != NULL) ? old[i] : 0.0f), back = sent[i] + residual[i];

        assert_true((sent[i] == 0) || (residual[i] == 0));
        assert_memory_equal(&back, &(float){ v + 0.0f }, sizeof(back));
        if (sent[i] != 0) {
            if (fabsf(v) < least_sent) least_sent = fabsf(v);
            at += 1;
        } else if (fabsf(v) > most_kept) {
            most_kept = fabsf(v);
        }
    }
    assert_int_equal(at, count);
    if (count > 0) assert_true(most_kept <= least_sent);
    if (count < k) assert_true(most_kept == 0);
    for (int64_t i = 0, kept = 0; i < n; ++i) { /* an equal one that stays is after all that go */
        float v = grad[i] + ((old != NULL) ? old[i] : 0.0f);

        if (fabsf(v) != least_sent) continue;
        kept += (sent[i] == 0);
        assert_true((kept == 0) || (sent[i] == 0));
    }
    free(payload);
    free(residual);
    free(sent);
}

static void test_topk(void **state)
{
    static const int64_t sizes[] = { 0, 1, 2, 3, 7, 100, 4097, 65536, 300007 };
    static const float densities[] = { 0.001f, 0.01f, 0.1f, 0.5f, 1.0f };
    float *grad = malloc(sizeof(float) * 300007), *old = malloc(sizeof(float) * 300007);

    (void)state;
    for (int64_t i = 0; i < 300007; ++i) {
        grad[i] = ct_rng_normal_at(1, (uint64_t)i);
        old[i] = 0.1f * ct_rng_normal_at(2, (uint64_t)i);
    }
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); ++s) {
        for (size_t d = 0; d < sizeof(densities) / sizeof(densities[0]); ++d) {
            check_topk(grad, old, sizes[s], densities[d]);
            check_topk(grad, NULL, sizes[s], densities[d]);
        }
    }
    free(grad);
    free(old);
}

static void test_topk_shapes(void **state)
{
    enum { N = 200000 };
    float *grad = calloc(N, sizeof(float));

    (void)state;
    check_topk(grad, NULL, N, 0.01f); /* all zero */
    grad[150000] = -3e-42f;           /* one denormal */
    check_topk(grad, NULL, N, 0.01f);
    for (int i = 0; i < N; ++i) grad[i] = (i % 3 == 0) ? -0.25f : 0.25f; /* all equal */
    check_topk(grad, NULL, N, 0.01f);
    for (int i = 0; i < N; ++i) grad[i] = (float)(i % 5); /* many ties, zeros among them */
    check_topk(grad, NULL, N, 0.3f);
    check_topk(grad, NULL, N, 0.9f);
    for (int i = 0; i < N; ++i) grad[i] = ldexpf(1.0f, i % 250 - 149); /* all exponents */
    check_topk(grad, NULL, N, 0.05f);
    for (int i = 0; i < N; ++i) { /* neighbours in the last bits, all in one coarse bin */
        uint32_t bits = 0x3f800000u + (uint32_t)(i * 7919 % 20011) + ((uint32_t)(i % 2) << 31);

        memcpy(&grad[i], &bits, sizeof(bits));
    }
    for (int i = 1; i < 20; ++i) check_topk(grad, NULL, N, 0.037f * (float)i);
    free(grad);
}

/* The same payload whatever the number of threads, and none of them where there is no residual. */
static void test_topk_threads(void **state)
{
    enum { N = 500009 };
    const ct_codec_ops *topk = codec("topk");
    const ct_codec_config config = { .density = 0.02f };
    size_t bound = topk->payload_bound(&config, N), bytes[2] = { 0, 0 };
    char *payload[2] = { malloc(bound), malloc(bound) };
    float *grad = malloc(sizeof(float) * N);

    (void)state;
    for (int i = 0; i < N; ++i) /* coarse, so that there are ties at every value */
        grad[i] = roundf(8 * ct_rng_normal_at(3, (uint64_t)i)) / 8;
#pragma omp parallel num_threads(2) /* inside a region it uses one thread */
    {
#pragma omp single
        (void)topk->encode(&config, grad, NULL, N, payload[0], &bytes[0]);
    }
    assert_int_equal(topk->encode(&config, grad, NULL, N, payload[1], &bytes[1]), CT_OK);
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(payload[0], payload[1], bytes[0]);
    free(payload[0]);
    free(payload[1]);
    free(grad);
}

static void test_topk_rejects(void **state)
{
    enum { N = 1000 };
    static const float bad[] = { NAN, -NAN, INFINITY, -INFINITY };
    const ct_codec_ops *topk = codec("topk");
    const ct_codec_config config = { .density = 0.01f };
    float grad[N], residual[N];
    char payload[1024];
    size_t bytes = 0;

    (void)state;
    ct_log_set_sink(keep_line, NULL);
    for (size_t b = 0; b < 4; ++b) {
        for (int i = 0; i < N; ++i) grad[i] = residual[i] = 1.0f;
        grad[777] = bad[b];
        assert_int_equal(topk->encode(&config, grad, residual, N, payload, &bytes),
                         CT_ERR_DIVERGED);
        grad[777] = 1.0f;
        residual[3] = bad[b];
        assert_int_equal(topk->encode(&config, grad, residual, N, payload, &bytes),
                         CT_ERR_DIVERGED);
    }
    ct_log_set_sink(NULL, NULL);
}

static void expect_refused(const void *payload, size_t bytes, int64_t n)
{
    const ct_codec_config config = { .density = 0.01f };
    float sum[16] = { 0 };

    assert_int_equal(codec("topk")->decode(&config, payload, bytes, sum, n), CT_ERR_COMM);
}

static void test_topk_malformed(void **state)
{
    struct {
        int64_t count;
        uint32_t word[8];
    } p = { .count = 2, .word = { 3, 5, 0, 0 } };
    float sum[16] = { 0 };

    (void)state;
    assert_int_equal(codec("topk")->decode(NULL, &p, 24, sum, 16), CT_OK);
    ct_log_set_sink(keep_line, NULL);
    expect_refused(&p, 0, 16);
    expect_refused(&p, 7, 16);
    expect_refused(&p, 20, 16); /* short */
    expect_refused(&p, 28, 16); /* long  */
    expect_refused(&p, 24, 5);  /* element 5 of 5 */
    expect_refused(&p, 24, 1);  /* more elements than there are */
    p.word[0] = 5;
    expect_refused(&p, 24, 16); /* twice the same */
    p.word[0] = 7;
    expect_refused(&p, 24, 16); /* descending */
    p.word[0] = 0xffffffffu;
    expect_refused(&p, 24, 16);
    p.count = -1;
    expect_refused(&p, 24, 16);
    p.count = INT64_MAX / 8;
    expect_refused(&p, 24, 16);
    ct_log_set_sink(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),         cmocka_unit_test(test_bf16_values),
        cmocka_unit_test(test_sum_codecs),   cmocka_unit_test(test_topk),
        cmocka_unit_test(test_topk_shapes),  cmocka_unit_test(test_topk_threads),
        cmocka_unit_test(test_topk_rejects), cmocka_unit_test(test_topk_malformed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
