/* The table of codecs, what they refuse, and the numbers of the casts. */
#include "tests/test.h"
#include "tests/log_capture.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "framework/base/bf16.h"
#include "comm/codec/cast.h"
#include "comm/codec/codec.h"

static log_capture said;

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
    log_capture_start(&said);
    assert_int_equal(ct_codec_find("gzip", &ops), CT_ERR_CONFIG);
    assert_non_null(strstr(said.error, "none, bf16, "));
    assert_null(strstr(said.error, "did you mean"));
    assert_int_equal(ct_codec_find("redsinc", &ops), CT_ERR_CONFIG);
    assert_non_null(strstr(said.error, "did you mean \"redsync\""));
    log_capture_stop();
}

static void refuses(const char *name, const ct_codec_config *c, const char *why)
{
    log_capture_start(&said);
    assert_int_equal(ct_codec_check(codec(name), c, "compression"), CT_ERR_CONFIG);
    log_capture_stop();
    if (strstr(said.error, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", said.error, why);
}

static void test_check(void **state)
{
    const ct_codec_config good = { .density = 0.01f, .min_bytes = 1000 };
    ct_codec_config c = good;

    (void)state;
    for (const ct_codec_ops *const *at = ct_codec_table; *at != NULL; ++at) {
        c = good;
        c.rank = 2;
        assert_int_equal(ct_codec_check(*at, &c, "compression"), CT_OK);
    }
    for (int i = 0; i < 4; ++i) {
        c = good;
        c.density = (i == 0) ? 0 : (i == 1) ? 1.01f : (i == 2) ? NAN : -1;
        refuses("topk", &c, "0 < density <= 1");
        assert_int_equal(ct_codec_check(codec("bf16"), &c, "compression"), CT_OK);
    }
    c = good;
    c.min_bytes = -1;
    refuses("bf16", &c, "none may be negative");
    c = good;
    c.warmup_iterations = -1;
    refuses("redsync", &c, "none may be negative");
    c = good;
    c.resync_iterations = -1;
    refuses("redsync", &c, "none may be negative");
    for (int i = 0; i < 3; ++i) {
        c = good;
        c.warmup_iterations = 10;
        c.warmup_density = (i == 0) ? -0.1f : (i == 1) ? 1.01f : NAN;
        refuses("redsync", &c, "0 < warmup_density <= 1");
        c.warmup_density = (i == 0) ? 0.01f : (i == 1) ? 0.001f : 0.25f;
        if (i < 2) refuses("topk", &c, "has to fall to density 0.01");
        if (i < 2) refuses("auto", &c, "has to fall to density 0.01");
        if (i == 2) assert_int_equal(ct_codec_check(codec("auto"), &c, "compression"), CT_OK);
        c.warmup_density = 0.25f;
        c.warmup_iterations = 0;
        refuses("redsync", &c, "warmup_iter is 0");
    }
    c = good;
    c.local_clip = NAN;
    refuses("redsync", &c, "local_clip");
    c = good;
    c.exchange = "smoke";
    refuses("redsync", &c, "\"smoke\"");
    c = good;
    c.selection = "best";
    refuses("redsync", &c, "\"best\"");
    c = good;
    c.wire = "pairs";
    assert_int_equal(ct_codec_check(codec("redsync"), &c, "compression"), CT_OK);
    c.quantize = true;
    refuses("redsync", &c, "one mean");
    c = good;
    c.momentum_correction = true;
    assert_int_equal(ct_codec_check(codec("redsync"), &c, "compression"), CT_OK);
    refuses("topk", &c, "redsync");
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

/* However large or small: what all ranks encode adds up to less than 2^14, and what is as large as
 * that uses all of fp16's bits. */
static void test_f16_scale(void **state)
{
    static float v[70000];

    (void)state;
    for (int e = 0; e < 255; ++e) {
        for (int ranks = 1; ranks <= 40960; ranks = ranks * 3 + 1) {
            float scale = ct_cast_scale((uint8_t)e, ranks);
            double most = ldexp(1, e - 126) * scale * ranks;

            assert_true(isfinite(1 / scale) && (scale * (1 / scale) == 1));
            assert_true(frexpf(scale, &(int){ 0 }) == 0.5f);
            if (scale > 0x1p-126f) assert_true(most <= 0x1p14);
            if (scale < 0x1p126f) assert_true(most > 0x1p13);
        }
    }
    assert_int_equal(ct_cast_exponent(v, 70000, 2), 0);
    v[69999] = -1.5f;
    v[3] = 1e-40f;
    assert_int_equal(ct_cast_exponent(v, 70000, 2), 127);
    assert_int_equal(ct_cast_exponent(v, 69999, 1), 0);
    v[65540] = -INFINITY;
    assert_int_equal(ct_cast_exponent(v, 70000, 2), 255);
    v[65540] = NAN;
    assert_int_equal(ct_cast_exponent(v, 70000, 2), 255);
}

/* A payload that takes the place of what it is made of has the bits of one beside it, and so has
 * any part that comes back. */
static void test_cast_in_place(void **state)
{
    enum { MOST = 140001, PARTS = 4 };
    static const int64_t length[] = { 1, 1023, 1024, 1025, 3000, 70000, MOST };
    static float v[MOST], back[MOST];
    static uint16_t want[MOST];

    (void)state;
    for (int k = 0; k < 7 * 2 * PARTS; ++k) {
        ct_dtype dtype = (k % 2 == 0) ? CT_BF16 : CT_F16;
        int64_t n = length[k / 2 / PARTS], part = k / 2 % PARTS, first = part * n / 3;
        int64_t count = (part + 1) * n / 3 - first;

        if (part == 3) { /* all of it */
            first = 0;
            count = n;
        }
        for (int64_t i = 0; i < n; ++i) v[i] = (float)((i * 7919) % 10007 - 5000) / 64;
        ct_cast_encode(dtype, v, n, 0.5f, 2, want);
        ct_cast_decode(dtype, want, n, 2, 2, back);
        ct_cast_encode_in_place(dtype, v, n, 0.5f, 2);
        assert_memory_equal(v, want, sizeof(*want) * (size_t)n);
        ct_cast_decode_in_place(dtype, v, first, count, 2, 2);
        if (count > 0) assert_memory_equal(v + first, back + first, sizeof(*v) * (size_t)count);
    }
}

/* What each codec has to have, so that nobody has to know it by name. */
static void test_operations(void **state)
{
    const ct_codec_config keeping = { .error_feedback = true };

    (void)state;
    for (int i = 0; ct_codec_table[i] != NULL; ++i) {
        const ct_codec_ops *ops = ct_codec_table[i];
        char word[32];
        size_t n = strlen(ops->name);

        assert_true(n < sizeof(word));
        for (size_t k = 0; k <= n; ++k) word[k] = (char)toupper((unsigned char)ops->name[k]);
        assert_ptr_equal(ct_codec_word(word), ops->name);
        if (ops->size == 0) continue; /* none, and who chooses */
        assert_non_null(ops->prepare);
        assert_non_null(ops->destroy);
        assert_non_null(ops->start);
        assert_non_null(ops->progress);
        assert_non_null(ops->where);
        assert_non_null(ops->exchange);
        assert_non_null(ops->stats);
        assert_non_null(ops->payload_bytes);
        assert_non_null(ops->seconds);
        if (ct_codec_keeps(ops, &keeping)) assert_true((ops->fold != NULL) && (ops->state != NULL));
        if (ops->parts)
            assert_false(ct_codec_keeps(ops, &keeping) || ops->gathers); /* V would be whole */
        if (ops->automatic) assert_true(ops->on_device); /* AUTO asks nobody where gradients are */
        if (ops->on_device) assert_true((ops->ready != NULL) && (ops->summed != NULL));
    }
    assert_null(ct_codec_word("NOSUCH"));
    assert_string_equal(ct_codec_word("REDSYNC_SIZES"), "redsync_sizes");
    assert_string_equal(ct_codec_word("OKTOPK"), "oktopk");
    assert_string_equal(ct_codec_word("HALF"), "half");
}

static void test_users_of_fields(void **state)
{
    char text[128];

    (void)state;
    ct_codec_users(CT_CODEC_USES_DENSITY, text, sizeof(text));
    assert_string_equal(text, "TOPK and REDSYNC");
    ct_codec_users(CT_CODEC_USES_MOMENTUM_CORRECTION, text, sizeof(text));
    assert_string_equal(text, "REDSYNC, POWERSGD and ONEBIT");
    ct_codec_users(CT_CODEC_USES_RANK, text, sizeof(text));
    assert_string_equal(text, "POWERSGD");
    ct_codec_users(CT_CODEC_USES_AMONG, text, sizeof(text));
    assert_string_equal(text, "AUTO");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations),    cmocka_unit_test(test_users_of_fields),
        cmocka_unit_test(test_find),          cmocka_unit_test(test_check),
        cmocka_unit_test(test_bf16_values),   cmocka_unit_test(test_f16_scale),
        cmocka_unit_test(test_cast_in_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
