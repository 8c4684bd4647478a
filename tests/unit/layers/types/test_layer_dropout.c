/* Dropout: the share it drops, its scale, and that the mask depends on the sample's place in the
 * global batch alone. Shares are compared within six standard errors, with fixed seeds. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include "framework/base/rng.h"
#include "framework/base/simd.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE = 3 * 71, N = 41 };

static test_layer *make(const char *text, int64_t n, ct_phase phase, bool in_place)
{
    test_layer *t;
    test_layer_spec spec = { .type = "Dropout",
                             .text = text,
                             .n_bottom = 1,
                             .bottom = { TEST_SHAPE(n, 3, 71) },
                             .phase = phase,
                             .in_place = in_place };

    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    for (int64_t i = 0; i < t->input_count[0]; i++) t->input[0][i] += 2.0f; /* nowhere 0 */
    for (int64_t i = 0; i < t->input_count[0]; i++) t->top_diff[0][i] = 1.0f;
    return t;
}

static void forward(test_layer *t)
{
    assert_int_equal(test_layer_forward(t), CT_OK);
}

static int64_t n_kept(const test_layer *t)
{
    int64_t kept = 0;

    for (int64_t i = 0; i < t->top_count[0]; i++) kept += t->top[0][i] != 0.0f;
    return kept;
}

/* Elements on which the masks of two runs agree. */
static int64_t n_agree(const float *a, const float *b, int64_t n)
{
    int64_t agree = 0;

    for (int64_t i = 0; i < n; i++) agree += (a[i] != 0.0f) == (b[i] != 0.0f);
    return agree;
}

static void check_ratio(const char *text, double ratio, bool in_place)
{
    test_layer *t = make(text, N, CT_TRAIN, in_place);
    double n = N * SAMPLE, pairs = 0;

    forward(t);
    assert_true(fabs((double)n_kept(t) - n * (1 - ratio)) <= 6 * sqrt(n * ratio * (1 - ratio)));
    for (int64_t i = 0; i < N * SAMPLE; i++) {
        if (t->top[0][i] != 0.0f)
            assert_true(t->top[0][i] == t->input[0][i] * (float)(1 / (1 - ratio)));
        if (i > 0) pairs += (t->top[0][i] != 0.0f) && (t->top[0][i - 1] != 0.0f);
    }
    /* neighbours are independent: both kept with probability (1 - ratio)^2; a pair depends on its
     * two neighbours, which at most triples the variance */
    assert_true(fabs(pairs - n * pow(1 - ratio, 2)) <= 6 * sqrt(3 * n * 0.25));
    assert_int_equal(test_layer_backward(t), CT_OK);
    for (int64_t i = 0; i < N * SAMPLE; i++)
        assert_true(t->input_diff[0][i] ==
                    ((t->top[0][i] != 0.0f) ? (float)(1 / (1 - ratio)) : 0.0f));
    test_layer_gradient(t, &(test_gradient){ .max_element = 50 });
    test_layer_destroy(t);
}

static void test_ratio(void **state)
{
    (void)state;
    for (int in_place = 0; in_place < 2; in_place++) {
        check_ratio(NULL, 0.5, in_place);
        check_ratio("dropout_param { dropout_ratio: 0.25 }", 0.25, in_place);
        check_ratio("dropout_param { dropout_ratio: 0.875 }", 0.875, in_place);
    }
}

/* TEST passes on whatever the ratio is, as in Caffe; in TRAIN nothing would be left. */
static void test_all_dropped(void **state)
{
    test_layer *t = make("dropout_param { dropout_ratio: 1 }", 5, CT_TEST, false);

    (void)state;
    forward(t);
    test_same(t->top[0], t->input[0], t->top_count[0], "top");
    test_layer_destroy(t);
}

static void test_nothing_dropped(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        test_layer *t = make((kind & 1) ? NULL : "dropout_param { dropout_ratio: 0 }", 5,
                             (kind & 1) ? CT_TEST : CT_TRAIN, kind & 2);

        forward(t);
        assert_int_equal(test_layer_backward(t), CT_OK);
        test_same(t->top[0], t->input[0], t->top_count[0], "top");
        test_same(t->input_diff[0], t->top_diff[0], t->top_count[0], "bottom diff");
        test_layer_destroy(t);
    }
}

/* Another step, seed or layer: another mask, which agrees on half of the elements. */
static void test_keys(void **state)
{
    test_layer *a = make(NULL, N, CT_TRAIN, false), *b;
    double n = N * SAMPLE;

    (void)state;
    forward(a);
    for (int kind = 0; kind < 4; kind++) {
        b = make((kind == 2) ? "name: \"other\"" : NULL, N, CT_TRAIN, false);
        if (kind == 0) b->ex.micro_step = 1;
        if (kind == 1) b->ex.seed++;
        forward(b);
        if (kind == 3)
            test_same(a->top[0], b->top[0], N * SAMPLE, "the same keys");
        else
            assert_true(fabs((double)n_agree(a->top[0], b->top[0], N * SAMPLE) - n / 2) <=
                        6 * sqrt(n / 4));
        test_layer_destroy(b);
    }
    test_layer_destroy(a);
}

/* The ranks' masks, one behind another, are the mask of one rank with the whole batch. */
static void test_ranks(void **state)
{
    test_layer *whole = make(NULL, N, CT_TRAIN, false);

    (void)state;
    whole->ex.micro_step = 12;
    forward(whole);
    for (int p = 2; p <= 4; p++) {
        for (int r = 0; r < p; r++) {
            int64_t local = N / p + (r < N % p), first = r * (N / p) + ((r < N % p) ? r : N % p);
            test_layer *t = make(NULL, local, CT_TRAIN, false);

            memcpy(t->input[0], whole->input[0] + first * SAMPLE,
                   (size_t)(local * SAMPLE) * sizeof(float));
            t->ex.micro_step = 12;
            t->ex.batch_local = local;
            t->ex.batch_global = N;
            t->ex.batch_first = first;
            forward(t);
            test_same(t->top[0], whole->top[0] + first * SAMPLE, local * SAMPLE, "a rank's part");
            test_layer_destroy(t);
        }
    }
    test_layer_destroy(whole);
}

static void test_refused(void **state)
{
    static const char *const ratio[] = { "1", "-0.1", "nan", "1.5" };

    (void)state;
    for (int i = 0; i < 4; i++) {
        char text[64];

        snprintf(text, sizeof(text), "dropout_param { dropout_ratio: %s }", ratio[i]);
        test_layer_refused(
            &(test_layer_spec){
                .type = "Dropout", .text = text, .n_bottom = 1, .bottom = { TEST_SHAPE(2) } },
            CT_ERR_CONFIG, "is not in [0, 1)");
    }
}

/* Sequences, time first: the ranks' columns have the masks of the whole batch's columns. */
static void test_columns(void **state)
{
    enum { T = 5, SIZE = 7 };
    test_layer_spec spec = { .type = "Dropout",
                             .n_bottom = 1,
                             .bottom = { TEST_SHAPE(T, N, SIZE) } };
    test_layer *whole, *t;

    (void)state;
    assert_int_equal(test_layer_create(&spec, &whole), CT_OK);
    for (int64_t i = 0; i < whole->input_count[0]; i++) whole->input[0][i] = (float)(i + 1);
    whole->ex.batch_axis = 1;
    whole->ex.batch_local = whole->ex.batch_global = N;
    forward(whole);
    for (int64_t k = 1; k < T; k++) /* the steps differ */
        assert_true(n_agree(whole->top[0], whole->top[0] + k * N * SIZE, N * SIZE) <
                    N * SIZE * 3 / 4);
    for (int r = 0; r < 3; r++) {
        int64_t local = N / 3 + (r < N % 3), first = r * (N / 3) + ((r < N % 3) ? r : N % 3);

        spec.bottom[0] = TEST_SHAPE(T, local, SIZE);
        assert_int_equal(test_layer_create(&spec, &t), CT_OK);
        t->ex.batch_axis = 1;
        t->ex.batch_local = local;
        t->ex.batch_global = N;
        t->ex.batch_first = first;
        for (int64_t k = 0; k < T; k++)
            memcpy(t->input[0] + k * local * SIZE, whole->input[0] + (k * N + first) * SIZE,
                   (size_t)(local * SIZE) * sizeof(float));
        forward(t);
        for (int64_t k = 0; k < T; k++)
            test_same(t->top[0] + k * local * SIZE, whole->top[0] + (k * N + first) * SIZE,
                      local * SIZE, "a step of the rank's columns");
        test_layer_destroy(t);
    }
    test_layer_destroy(whole);
}

/* Many numbers at a time, as words and as bits, are those of the definition, from any number on,
 * over the carry of the counter's lower word, with every set of instructions. */
static void compare_words(void)
{
    static const uint64_t first[] = {
        0, 1, 2, 3, 61, 64, 4294967290u * 4u, ((uint64_t)1 << 34) - 41
    };
    uint64_t key = ct_rng_key(7, 8, 9);
    uint32_t word[200], least = 0xa0000000u;
    uint16_t bits[14];

    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        for (int64_t n = 1; n <= 199; n += 33) {
            word[n] = 12345;
            ct_rng_words(key, first[i], n, word);
            for (int64_t k = 0; k < n; k++) {
                uint64_t at = first[i] + (uint64_t)k;

                assert_int_equal(word[k], ct_rng_philox(key, 0, at / 4).v[at % 4]);
            }
            assert_int_equal(word[n], 12345);
            memset(bits, 0x5a, sizeof(bits));
            ct_rng_bits(key, first[i], n, least, bits);
            for (int64_t k = 0; k < n; k++)
                assert_int_equal((bits[k / 16] >> (k % 16)) & 1, word[k] >= least);
            assert_int_equal(bits[(n + 15) / 16], 0x5a5a);
        }
    }
}

static void test_words(void **state)
{
    static const char *const name[] = { "portable", "avx2", "avx512" };

    (void)state;
    unsetenv("CORTADO_SIMD");
    for (int level = (int)ct_simd_pick(); level >= 0; level--) {
        setenv("CORTADO_SIMD", name[level], 1);
        compare_words();
    }
    unsetenv("CORTADO_SIMD");
}

/* Backward passes what forward kept, whole tasks and the last one, of any length; past the caches,
 * where the blob is large. */
static void test_mask(void **state)
{
    static const int64_t size[] = { 1, 15, 16, 17, 1023, 1024, 1025, 3000, (8 << 20) + 48 };

    (void)state;
    for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
        test_layer_spec spec = { .type = "Dropout",
                                 .text = "dropout_param { dropout_ratio: 0.375 }",
                                 .n_bottom = 1,
                                 .bottom = { TEST_SHAPE(1, size[i]) },
                                 .phase = CT_TRAIN };
        int64_t kept = 0;
        test_layer *t;

        assert_int_equal(test_layer_create(&spec, &t), CT_OK);
        for (int64_t k = 0; k < size[i]; k++)
            t->input[0][k] = t->top_diff[0][k] = (float)(k % 5 + 1);
        forward(t);
        assert_int_equal(test_layer_backward(t), CT_OK);
        test_same(t->input_diff[0], t->top[0], size[i], "what passes");
        for (int64_t k = 0; k < size[i]; k++) {
            float want = (float)(k % 5 + 1) * 1.6f;

            assert_true((t->top[0][k] == 0.0f) || (t->top[0][k] == want));
            kept += (t->top[0][k] != 0.0f);
        }
        assert_true(fabs((double)kept - 0.625 * (double)size[i]) <=
                    6 * sqrt(0.625 * 0.375 * (double)size[i]));
        test_layer_destroy(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),       cmocka_unit_test(test_mask),
        cmocka_unit_test(test_ratio),       cmocka_unit_test(test_nothing_dropped),
        cmocka_unit_test(test_all_dropped), cmocka_unit_test(test_keys),
        cmocka_unit_test(test_ranks),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_columns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
