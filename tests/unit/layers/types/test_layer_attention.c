/* Attention: what bottoms and fields mean, dropout over the ranks and in backward, memory, what is
 * counted, and every message. The engines: test_attention. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include <math.h>
#include <string.h>

#define S(...) TEST_SHAPE(__VA_ARGS__)

static test_layer *make(const char *text, int n_bottom, const ct_shape *bottom)
{
    test_layer_spec spec = { .type = "Attention", .text = text, .n_bottom = n_bottom };

    for (int i = 0; i < n_bottom; i++) spec.bottom[i] = bottom[i];
    return test_layer_make(&spec);
}

/* Token i's numbers [at, at + n) of a blob with rows of `row`, copied to rows of n. */
static void columns(const float *from, int64_t tokens, int64_t row, int64_t at, int64_t n,
                    float *to)
{
    for (int64_t i = 0; i < tokens; i++) memcpy(to + i * n, from + i * row + at, (size_t)n * 4);
}

/* q, k and v in one blob, or in three. */
static void packed(void **state)
{
    const char *text = "attention_param { num_heads: 4 num_kv_heads: 2 causal: true rope { } }";
    ct_shape one = S(2, 19, 64), three[] = { S(2, 19, 32), S(2, 19, 16), S(2, 19, 16) };
    test_layer *a = make(text, 1, &one), *b = make(text, 3, three);
    float part[2 * 19 * 32];

    (void)state;
    for (int i = 0; i < 3; i++)
        columns(a->input[0], 38, 64, (i == 0) ? 0 : 16 + 16 * i, three[i].dim[2], b->input[i]);
    test_random(a->top_diff[0], a->top_count[0], 3, -1, 1);
    memcpy(b->top_diff[0], a->top_diff[0], (size_t)a->top_count[0] * sizeof(float));
    test_layer_pass(a);
    test_layer_pass(b);
    assert_true(ct_shape_equal(&a->top_shape[0], &S(2, 19, 32)));
    test_same(b->top[0], a->top[0], a->top_count[0], "top");
    for (int i = 0; i < 3; i++) {
        columns(a->input_diff[0], 38, 64, (i == 0) ? 0 : 16 + 16 * i, three[i].dim[2], part);
        test_same(b->input_diff[i], part, b->input_count[i], "diff");
    }
    test_layer_destroy(a);
    test_layer_destroy(b);
}

/* Documents of lengths 5, 1, 9 in one sequence are as each alone, their positions from 0 on. */
static void documents(void **state)
{
    static const int64_t length[] = { 5, 1, 9 };
    const char *text = "attention_param { num_heads: 2 causal: true rope { dim: 4 } }";
    ct_shape whole[] = { S(1, 15, 48), S(1, 15) };
    test_layer *t = make(text, 2, whole);

    (void)state;
    for (int64_t i = 0; i < 15; i++) t->input[1][i] = (i < 5) ? 4.0f : (i < 6) ? 0.0f : 1.0f;
    test_random(t->top_diff[0], t->top_count[0], 3, -1, 1);
    test_layer_pass(t);
    assert_null(t->input_diff[1]);
    for (int64_t d = 0, at = 0; d < 3; at += length[d++]) {
        ct_shape own = S(1, length[d], 48);
        test_layer *alone = make(text, 1, &own);

        memcpy(alone->input[0], t->input[0] + at * 48, (size_t)alone->input_count[0] * 4);
        memcpy(alone->top_diff[0], t->top_diff[0] + at * 16, (size_t)alone->top_count[0] * 4);
        test_layer_pass(alone);
        /* turned by other positions: the same up to roundings */
        for (int64_t i = 0; i < alone->top_count[0]; i++)
            assert_true(fabsf(alone->top[0][i] - t->top[0][at * 16 + i]) < 2e-6f);
        for (int64_t i = 0; i < alone->input_count[0]; i++)
            assert_true(fabsf(alone->input_diff[0][i] - t->input_diff[0][at * 48 + i]) < 2e-6f);
        test_layer_destroy(alone);
    }
    test_layer_destroy(t);
}

/* The last query stands where the last key stands: with fewer queries than keys the rows are the
 * last ones of all. */
static void ends_align(void **state)
{
    const char *text = "attention_param { num_heads: 2 causal: true window: 6 rope { } }";
    ct_shape all[] = { S(2, 23, 16), S(2, 23, 16), S(2, 23, 16) };
    ct_shape last[] = { S(2, 9, 16), S(2, 23, 16), S(2, 23, 16) };
    test_layer *a = make(text, 3, all), *b = make(text, 3, last);

    (void)state;
    memcpy(b->input[1], a->input[1], (size_t)a->input_count[1] * 4);
    memcpy(b->input[2], a->input[2], (size_t)a->input_count[2] * 4);
    for (int64_t s = 0; s < 2; s++)
        memcpy(b->input[0] + s * 9 * 16, a->input[0] + (s * 23 + 14) * 16, 9 * 16 * 4);
    test_layer_pass(a);
    test_layer_pass(b);
    for (int64_t s = 0; s < 2; s++) {
        for (int64_t i = 0; i < 9 * 16; i++)
            assert_true(fabsf(b->top[0][s * 9 * 16 + i] - a->top[0][(s * 23 + 14) * 16 + i]) <
                        1e-6f);
    }
    test_layer_destroy(a);
    test_layer_destroy(b);
}

/* ---- dropout */

static void ones_of_values(test_layer *t, int64_t tokens, int64_t row, int64_t at, int64_t n)
{
    for (int64_t i = 0; i < tokens; i++) {
        for (int64_t c = at; c < at + n; c++) t->input[0][i * row + c] = 1.0f;
    }
}

/* With values of 1 the top is the sum of what is kept over that of all: of mean 1, and its spread
 * that of the share that is dropped. TEST drops nothing. */
static void drops(void **state)
{
    const char *text = "attention_param { num_heads: 2 dropout: 0.2 }";
    ct_shape x = S(3, 90, 24);
    test_layer *t = make(text, 1, &x);
    double mean = 0, n = 3 * 90 * 2, spread = sqrt(0.25 / 40); /* p is near 1 / 90 */

    (void)state;
    ones_of_values(t, 270, 24, 16, 8);
    test_layer_pass(t);
    for (int64_t i = 0; i < t->top_count[0]; i++) {
        assert_true(fabs((double)t->top[0][i] - 1) < 6 * spread);
        mean += (double)t->top[0][i] / (double)t->top_count[0];
    }
    assert_true(fabs(mean - 1) < 6 * spread / sqrt(n));
    assert_true(t->top[0][0] != 1.0f);
    test_layer_destroy(t);
    t = test_layer_make(&(test_layer_spec){
        .type = "Attention", .text = text, .n_bottom = 1, .bottom = { x }, .phase = CT_TEST });
    ones_of_values(t, 270, 24, 16, 8);
    assert_int_equal(test_layer_forward(t), CT_OK);
    for (int64_t i = 0; i < t->top_count[0]; i++) assert_true(fabsf(t->top[0][i] - 1.0f) < 1e-5f);
    test_layer_destroy(t);
}

/* Two ranks with one and two sequences drop what one rank with all three does; another step drops
 * something else. */
static void drops_by_sample(void **state)
{
    const char *text = "attention_param { num_heads: 3 causal: true dropout: 0.5 }";
    ct_shape all = S(3, 70, 27), some[] = { S(1, 70, 27), S(2, 70, 27) };
    test_layer *t = make(text, 1, &all);

    (void)state;
    test_random(t->top_diff[0], t->top_count[0], 3, -1, 1);
    test_layer_pass(t);
    for (int rank = 0; rank < 2; rank++) {
        test_layer *r = make(text, 1, &some[rank]);
        int64_t first = rank;

        r->ex.batch_local = some[rank].dim[0];
        r->ex.batch_global = 3;
        r->ex.batch_first = first;
        memcpy(r->input[0], t->input[0] + first * 70 * 27, (size_t)r->input_count[0] * 4);
        memcpy(r->top_diff[0], t->top_diff[0] + first * 70 * 9, (size_t)r->top_count[0] * 4);
        test_layer_pass(r);
        test_same(r->top[0], t->top[0] + first * 70 * 9, r->top_count[0], "top");
        test_same(r->input_diff[0], t->input_diff[0] + first * 70 * 27, r->input_count[0], "diff");
        r->ex.micro_step++;
        test_layer_pass(r);
        assert_memory_not_equal(r->top[0], t->top[0] + first * 70 * 9, (size_t)r->top_count[0] * 4);
        test_layer_destroy(r);
    }
    test_layer_destroy(t);
}

/* ---- gradients of some alone */

static void some_gradients(void **state)
{
    const char *text = "attention_param { num_heads: 2 causal: true }";
    ct_shape bottom[] = { S(2, 70, 10), S(2, 70, 10), S(2, 70, 10) };
    test_layer *all = make(text, 3, bottom);

    (void)state;
    test_random(all->top_diff[0], all->top_count[0], 3, -1, 1);
    test_layer_pass(all);
    for (int only = 0; only < 3; only++) {
        test_layer_spec spec = { .type = "Attention", .text = text, .n_bottom = 3 };
        test_layer *t;

        for (int i = 0; i < 3; i++) {
            spec.bottom[i] = bottom[i];
            spec.no_propagate[i] = i != only;
        }
        t = test_layer_make(&spec);
        test_random(t->top_diff[0], t->top_count[0], 3, -1, 1);
        test_layer_pass(t);
        test_same(t->input_diff[only], all->input_diff[only], all->input_count[only], "diff");
        test_layer_destroy(t);
    }
    test_layer_destroy(all);
}

/* ---- what is counted, on the CPU */

static test_layer *make_here(const char *text, const ct_shape *x)
{
    return test_layer_make(&(test_layer_spec){ .type = "Attention",
                                               .text = text,
                                               .n_bottom = 1,
                                               .bottom = { *x },
                                               .dev = ct_device_cpu() });
}

static void estimate(void **state)
{
    ct_shape x = S(2, 100, 3 * 60);
    test_layer *t = make_here("attention_param { num_heads: 5 causal: true }", &x);
    ct_estimate e = { 0 };
    double pairs = 2 * 5 * 100 * 101 / 2.0, stats = 2 * 5 * 100 * 2 * 4;

    (void)state;
    t->layer.ops->estimate(&t->layer, &t->instance, &e);
    assert_true(e.forward_flop == 4 * 12 * pairs);
    assert_true(e.backward_flop == 10 * 12 * pairs);
    assert_true(e.forward_bytes == stats);
    assert_string_equal(e.engine[CT_RUN_FORWARD], "flash");
    assert_string_equal(e.engine[CT_RUN_BACKWARD_DATA], "flash");
    test_layer_destroy(t);
}

static size_t bytes_of(int64_t tokens)
{
    ct_shape x = S(1, tokens, 3 * 64);
    test_layer *t = make_here("attention_param { num_heads: 1 causal: true }", &x);
    size_t bytes = 0;

    for (int i = 0; i < CT_MAX_BUFFER; i++) bytes += t->instance.buffer[i].bytes;
    test_layer_destroy(t);
    return bytes;
}

/* No more than linearly: what threads work in is no larger, and statistics are 4 numbers a query
 * and a turn a block. */
static void memory(void **state)
{
    size_t some = bytes_of(1000);

    (void)state;
    assert_true(bytes_of(9000) - some <= 8000 * 20);
}

/* ---- messages */

#define REFUSED(_text, _status, _part, ...)                                                        \
    {                                                                                              \
        ct_shape bottom_[] = { __VA_ARGS__ };                                                      \
        test_layer_spec spec_ = { .type = "Attention",                                             \
                                  .text = _text,                                                   \
                                  .dev = ct_device_cpu(),                                          \
                                  .n_bottom = (int)(sizeof(bottom_) / sizeof(bottom_[0])) };       \
                                                                                                   \
        memcpy(spec_.bottom, bottom_, sizeof(bottom_));                                            \
        test_layer_refused(&spec_, _status, _part);                                                \
    }

static void messages(void **state)
{
    (void)state;
    REFUSED(NULL, CT_ERR_CONFIG, "attention_param.num_heads is missing or 0", S(1, 2, 6))
    REFUSED("attention_param { num_heads: 4 num_kv_heads: 3 }", CT_ERR_CONFIG,
            "attention_param.num_kv_heads 3 does not divide num_heads 4", S(1, 2, 20))
    REFUSED("attention_param { num_heads: 4 window: 3 }", CT_ERR_CONFIG,
            "attention_param.window 3 wants causal: true", S(1, 2, 12))
    REFUSED("attention_param { num_heads: 4 dropout: 1 }", CT_ERR_CONFIG,
            "attention_param.dropout 1 is not in [0, 1)", S(1, 2, 12))
    REFUSED("attention_param { num_heads: 4 scale: inf }", CT_ERR_CONFIG,
            "attention_param.scale inf is no number", S(1, 2, 12))
    REFUSED("attention_param { num_heads: 1 rope { dim: 3 } }", CT_ERR_CONFIG,
            "attention_param.rope.dim 3 is odd", S(1, 2, 12))
    REFUSED("attention_param { num_heads: 1 rope { base: 0 } }", CT_ERR_CONFIG,
            "attention_param.rope.base 0 is not positive", S(1, 2, 12))
    REFUSED("attention_param { num_heads: 4 rope { } }", CT_ERR_CONFIG,
            "attention_param.rope: 1 dimensions do not turn in pairs within a head's 1",
            S(1, 2, 12))
    REFUSED("attention_param { num_heads: 4 rope { dim: 8 } }", CT_ERR_CONFIG,
            "attention_param.rope: 8 dimensions do not turn in pairs within a head's 4",
            S(1, 2, 48))
    REFUSED("attention_param { num_heads: 4 }", CT_ERR_CONFIG,
            "12 heads of q, k and v together do not divide 32 channels", S(1, 2, 32))
    REFUSED("attention_param { num_heads: 4 }", CT_ERR_CONFIG,
            "4 heads of q do not divide 10 channels", S(1, 2, 10), S(1, 2, 8), S(1, 2, 8))
    REFUSED("attention_param { num_heads: 4 num_kv_heads: 2 }", CT_ERR_CONFIG,
            "2 heads of k do not divide 3 channels", S(1, 2, 8), S(1, 2, 3), S(1, 2, 3))
    REFUSED("attention_param { num_heads: 4 num_kv_heads: 2 }", CT_ERR_SHAPE, "with 4 channels",
            S(1, 2, 8), S(1, 2, 8), S(1, 2, 8))
    REFUSED("attention_param { num_heads: 4 }", CT_ERR_SHAPE, "as many sequences", S(1, 2, 8),
            S(2, 2, 8), S(2, 2, 8))
    REFUSED("attention_param { num_heads: 4 }", CT_ERR_SHAPE, "k and v alike", S(1, 2, 8),
            S(1, 2, 8), S(1, 3, 8))
    REFUSED("attention_param { num_heads: 4 }", CT_ERR_SHAPE,
            "sequences x tokens x channels is needed", S(1, 12))
    REFUSED("attention_param { num_heads: 4 causal: true }", CT_ERR_SHAPE,
            "causal with 2 keys and 3 queries", S(1, 3, 8), S(1, 2, 8), S(1, 2, 8))
    REFUSED("attention_param { num_heads: 4 }", CT_ERR_SHAPE, "one a key, 1 x 2, is needed",
            S(1, 2, 12), S(1, 3))
    REFUSED("attention_param { num_heads: 4 }", CT_ERR_SHAPE,
            "segment numbers with 2 queries and 3 keys want causal: true", S(1, 2, 8), S(1, 3, 8),
            S(1, 3, 8), S(1, 3))
    REFUSED("attention_param { num_heads: 4 } ct_kernel { forward: 'fast' }", CT_ERR_CONFIG,
            "flash, reference", S(1, 2, 12))
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed),          cmocka_unit_test(documents),
        cmocka_unit_test(ends_align),      cmocka_unit_test(drops),
        cmocka_unit_test(drops_by_sample), cmocka_unit_test(some_gradients),
        cmocka_unit_test(estimate),        cmocka_unit_test(memory),
        cmocka_unit_test(messages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
