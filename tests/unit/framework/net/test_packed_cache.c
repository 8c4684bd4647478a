/* Sequences that grow: logits are those of the whole sequence in one pass of the plain net; no bit
 * depends on how tokens are cut into passes, on what else is in a pass, on pages that were there
 * already, or on the number of threads; nets that cannot run so are refused.
 *
 * Tolerance. Two ways to compute the same sums of at most k terms differ by (k + 8) eps of the
 * sizes of their terms each, eps = 2^-24, the 8 for the functions behind them; so the values behind
 * a layer have errors as if its inputs were off by that share. What such a share does to the logits
 * is measured: with it at 2^-10 in the table of tokens, and with another sign for each element. Of
 * the L layers each adds its own. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/log_capture.h"
#include "tests/parsed_net.h"

#include "framework/net/packed.h"
#include "framework/proto/upgrade.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 71, CLASSES = 19, LONGEST = 96 /* terms of a sum */ };

#define GAUSS " weight_filler { type: 'gaussian' std: 0.25 } "
#define INPUT                                                                                      \
    "layer { name: 'in' type: 'Input' top: 'id' input_param { shape { dim: 1 dim: 64 } } }\n"
#define EMBED(top)                                                                                 \
    "layer { name: 'wte' type: 'Embed' bottom: 'id' top: '" top "' param { name: 'wte' }"          \
    " embed_param { input_dim: 19 num_output: 30 bias_term: false weight_filler {"                 \
    " type: 'gaussian' std: 1 } } }\n"
#define ONE(name, type, bottom, top, more)                                                         \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " more " }\n"
#define FC(name, bottom, n)                                                                        \
    ONE(name, "InnerProduct", bottom, name,                                                        \
        "inner_product_param { num_output: " n " axis: 2" GAUSS                                    \
        "bias_filler { type: 'gaussian' std: 0.1 } }")
#define ADD(name, a, b, top)                                                                       \
    "layer { name: '" name "' type: 'Eltwise' bottom: '" a "' bottom: '" b "' top: '" top "' }\n"
#define HEAD(bottom)                                                                               \
    ONE("head", "InnerProduct", bottom, "head",                                                    \
        "param { name: 'wte' } inner_product_param { num_output: 19 axis: 2 bias_term: false }")
#define ATTENTION(name, bottom, more)                                                              \
    ONE(name, "Attention", bottom, name, "attention_param { causal: true " more " }")

/* GPT-2's: learned positions, every head has keys of its own */
#define GPT_BLOCK(p, from, to)                                                                     \
    ONE(p "ln1", "LayerNorm", from, p "ln1", "")                                                   \
    FC(p "qkv", p "ln1", "90")                                                                     \
    ATTENTION(p "attn", p "qkv", "num_heads: 3 dropout: 0.2")                                      \
    FC(p "proj", p "attn", "30")                                                                   \
    ADD(p "sum1", from, p "proj", p "sum1")                                                        \
    ONE(p "ln2", "LayerNorm", p "sum1", p "ln2", "")                                               \
    FC(p "fc", p "ln2", "50")                                                                      \
    ONE(p "gelu", "GELU", p "fc", p "fc", "gelu_param { approximate: TANH }")                      \
    FC(p "down", p "fc", "30")                                                                     \
    ONE(p "drop", "Dropout", p "down", p "down", "")                                               \
    ADD(p "sum2", p "sum1", p "down", to)
#define POSITION(bottom, more) ONE("wpe", "Position", bottom, "x", "position_param { " more " }")

static const char gpt[] =
    INPUT EMBED("w") POSITION("w", "max_length: 71" GAUSS) GPT_BLOCK("a_", "x", "y")
        GPT_BLOCK("b_", "y", "z") ONE("ln", "LayerNorm", "z", "ln", "") HEAD("ln");

/* Llama's: groups of heads, positions that turn */
#define LLAMA_BLOCK(p, from, to, n_qkv, n_y, attention)                                            \
    ONE(p "n1", "RMSNorm", from, p "n1", "")                                                       \
    FC(p "qkv", p "n1", n_qkv)                                                                     \
    ATTENTION(p "attn", p "qkv", attention)                                                        \
    FC(p "proj", p "attn", n_y)                                                                    \
    ADD(p "sum1", from, p "proj", p "sum1")                                                        \
    ONE(p "n2", "RMSNorm", p "sum1", p "n2", "")                                                   \
    FC(p "gu", p "n2", "80")                                                                       \
    ONE(p "swi", "SwiGLU", p "gu", p "swi", "")                                                    \
    FC(p "down", p "swi", "30")                                                                    \
    ADD(p "sum2", p "sum1", p "down", to)
static const char llama[] = INPUT EMBED("x")
    LLAMA_BLOCK("a_", "x", "y", "64", "30", "num_heads: 4 num_kv_heads: 2 rope { base: 100 }")
        LLAMA_BLOCK("b_", "y", "z", "64", "30", "num_heads: 6 num_kv_heads: 1 rope { base: 50 }")
            ONE("n", "RMSNorm", "z", "n", "") HEAD("n");

/* windows; a part of a head turns, by pairs of neighbours; heads wider than a panel; sines */
static const char window[] = INPUT EMBED("w") POSITION("w", "type: SINUSOIDAL")
    LLAMA_BLOCK("a_", "x", "y", "185", "30",
                "num_heads: 3 num_kv_heads: 1 window: 7 rope { dim: 6 interleaved: true }")
        LLAMA_BLOCK("b_", "y", "z", "90", "30", "num_heads: 3 window: 1 scale: 0.3")
            ONE("n", "RMSNorm", "z", "n", "") HEAD("n");

/* q, k and v of their own; attention as the formulas stand, in double, where the sequence is whole
 */
static const char separate[] = INPUT EMBED("x") FC("q", "x", "48") FC("k", "x", "16")
    FC("v", "x", "16") "layer { name: 'attn' type: 'Attention' bottom: 'q' bottom: 'k' bottom: 'v'"
                       " top: 'attn' ct_kernel { forward: 'reference' } attention_param {"
                       " num_heads: 6 num_kv_heads: 2 causal: true rope { } } }\n" FC(
                           "proj", "attn", "30") ADD("sum", "x", "proj", "sum") HEAD("sum");

static const struct {
    const char *name, *text;
    int layers;
} net_of[] = { { "gpt", gpt, 26 },
               { "llama", llama, 24 },
               { "window", window, 25 },
               { "separate", separate, 8 } };
enum { N_NET = sizeof(net_of) / sizeof(net_of[0]) };

/* How tokens come, one call after the other; 0 ends. The first number: tokens of a pass, at most.
 */
static const int cut_of[][TOKENS + 2] = {
    { TOKENS, TOKENS }, { 16, TOKENS }, { 33, 3, 1, 20, 7, 1, 1, 31, 1, 6 },
    { 2, 1, 70 },       { 1, 70, 1 },   { 8, 31, 1, 1, 30, 2, 6 },
};
enum { N_CUT = sizeof(cut_of) / sizeof(cut_of[0]) };

static void make_ids(int32_t *id, int seed)
{
    for (int i = 0; i < TOKENS; i++) id[i] = (int32_t)((i * i + seed * 7 + i / 3) % CLASSES);
}

static Ct__NetParameter *parsed(const char *text)
{
    return (Ct__NetParameter *)test_parsed(&ct__net_parameter__descriptor, text);
}

static Ct__SolverParameter__Precision precision = CT__SOLVER_PARAMETER__PRECISION__F32;

static const ct_net_options usual = { .phase = CT_TEST, .env = { .n_rank = 1, .seed = 3 } };

enum { MOST_SEQUENCES = 6 };

static ct_packed_net *open_net(const Ct__NetParameter *param, int64_t tokens, int64_t cached)
{
    ct_packed_most most = {
        .tokens = tokens, .sequences = MOST_SEQUENCES, .cached = cached, .length = TOKENS
    };
    ct_net_options o = usual;
    ct_packed_net *p = NULL;

    o.env.precision = precision;
    setenv("CORTADO_POISON", "1", 1);
    assert_int_equal(ct_packed_net_create(param, &o, &most, &p), CT_OK);
    unsetenv("CORTADO_POISON");
    assert_int_equal(ct_packed_net_columns(p), CLASSES);
    return p;
}

static ct_packed_sequence *open_sequence(ct_packed_net *p, const int32_t *id, int64_t kept)
{
    ct_packed_sequence *s = NULL;
    int64_t there = -1;

    assert_int_equal(ct_packed_sequence_open(p, id, TOKENS, TOKENS, &s, &there), CT_OK);
    assert_non_null(s);
    assert_int_equal(there, kept);
    assert_int_equal(ct_packed_sequence_length(s), kept);
    return s;
}

/* The logits behind the last of n tokens, which come in passes as large as may be. */
static void feed(ct_packed_net *p, ct_packed_sequence *s, const int32_t *id, int64_t n,
                 float *logits)
{
    ct_packed_item item = { .sequence = s };

    for (int64_t at = 0; at < n; at += item.n) {
        item.id = id + at;
        item.n = (n - at < ct_packed_net_most_tokens(p)) ? n - at : ct_packed_net_most_tokens(p);
        item.want = (at + item.n < n) ? CT_ROWS_NONE : CT_ROWS_LAST;
        assert_int_equal(ct_packed_net_run(p, &item, 1), CT_OK);
        assert_int_equal(item.rows, (at + item.n < n) ? 0 : 1);
    }
    memcpy(logits, item.row, CLASSES * sizeof(*logits));
}

/* logits[TOKENS][CLASSES] of the plain net; share: by how much elements of the table are off. */
static void run_whole(const char *text, const int32_t *id, float share, float *logits)
{
    Ct__NetParameter *param = parsed(text);
    ct_net_options o = usual;
    ct_net *net = NULL;
    ct_blob *table;
    float *in;

    o.env.sequence_tokens = TOKENS;
    o.forward_only = o.fixed = true;
    assert_int_equal(ct_net_create(param, &o, &net), CT_OK);
    table = &net->param[ct_net_find_param(net, "wte")].blob;
    in = ct_blob_data(net->pass->blob[ct_net_find_blob(net, "id")]);
    for (int64_t i = 0; i < CLASSES * 30; i++)
        ct_blob_data(table)[i] *= 1.0f + ((i * 7 / 3 % 2 == 0) ? share : -share);
    ct_net_weights_changed(net);
    for (int i = 0; i < TOKENS; i++) in[i] = (float)id[i];
    assert_int_equal(ct_pass_forward(net->pass, NULL), CT_OK);
    memcpy(logits, ct_blob_data(net->pass->blob[ct_net_find_blob(net, "head")]),
           TOKENS * CLASSES * sizeof(float));
    ct_net_destroy(net);
    ct__net_parameter__free_unpacked(param, NULL);
}

static double largest(const float *a, const float *b, int n)
{
    double most = 0;

    for (int i = 0; i < n; i++) {
        double d = fabs((double)a[i] - ((b != NULL) ? (double)b[i] : 0.0));

        if (!(d <= most)) most = d;
    }
    return most;
}

/* Fed as `cut` says: the logits behind each call, in their rows; the others stay what they are. */
static void run_cut(const char *text, const int *cut, const int32_t *id, float *logits)
{
    Ct__NetParameter *param = parsed(text);
    ct_packed_net *p = open_net(param, cut[0], TOKENS);
    ct_packed_sequence *s = open_sequence(p, id, 0);
    int at = 0;

    for (int i = 1; cut[i] > 0; i++) {
        feed(p, s, id + at, cut[i], logits + (at + cut[i] - 1) * CLASSES);
        at += cut[i];
        assert_int_equal(ct_packed_sequence_length(s), at);
    }
    assert_int_equal(at, TOKENS);
    ct_packed_sequence_close(s);
    ct_packed_net_destroy(p);
    ct__net_parameter__free_unpacked(param, NULL);
}

/* logits[TOKENS][CLASSES] token by token. */
static void run_steps(const char *text, const int32_t *id, float *logits)
{
    int cut[TOKENS + 2] = { 1 };

    for (int i = 1; i <= TOKENS; i++) cut[i] = 1;
    run_cut(text, cut, id, logits);
}

static void test_as_whole(void **state)
{
    static float whole[TOKENS * CLASSES], off[TOKENS * CLASSES], cut[TOKENS * CLASSES];
    int32_t id[TOKENS];

    (void)state;
    make_ids(id, 1);
    for (int n = 0; n < N_NET; n++) {
        double factor, tolerance;

        run_whole(net_of[n].text, id, 0.0f, whole);
        run_whole(net_of[n].text, id, 0x1p-10f, off);
        factor = largest(whole, off, TOKENS * CLASSES) * 0x1p10;
        tolerance = factor * net_of[n].layers * (LONGEST + 8) * 0x1p-24;
        /* far below what a wrong token does */
        assert_true(tolerance < 1e-2 * largest(whole, NULL, TOKENS * CLASSES));
        for (int c = 0; c < N_CUT; c++) {
            double error;

            memcpy(cut, whole, sizeof(cut));
            run_cut(net_of[n].text, cut_of[c], id, cut);
            error = largest(cut, whole, TOKENS * CLASSES);
            if (!(error <= tolerance))
                fail_msg("%s, chunks of %d: off by %g, tolerance %g", net_of[n].name, cut_of[c][0],
                         error, tolerance);
        }
    }
}

/* In bf16 each layer rounds its values, and a product its two operands, by 2^-8 of themselves at
 * most, and half that in the mean. By chance these have either sign: the errors of the layers add
 * by squares. 4 times as much is allowed. */
static void test_bf16(void **state)
{
    static float whole[TOKENS * CLASSES], off[TOKENS * CLASSES], cut[TOKENS * CLASSES];
    int32_t id[TOKENS];

    (void)state;
    make_ids(id, 1);
    for (int n = 0; n < N_NET; n++) {
        double factor, tolerance, most;

        run_whole(net_of[n].text, id, 0.0f, whole);
        run_whole(net_of[n].text, id, 0x1p-10f, off);
        most = largest(whole, NULL, TOKENS * CLASSES);
        factor = largest(whole, off, TOKENS * CLASSES) * 0x1p10;
        tolerance = 4 * factor * sqrt(3.0 * net_of[n].layers) * 0x1p-9;
        assert_true(tolerance < 0.5 * most);
        precision = CT__SOLVER_PARAMETER__PRECISION__BF16;
        for (int c = 0; c < N_CUT; c++) {
            double error;

            memcpy(cut, whole, sizeof(cut));
            run_cut(net_of[n].text, cut_of[c], id, cut);
            error = largest(cut, whole, TOKENS * CLASSES);
            if (!((error <= tolerance) && (error > 0)))
                fail_msg("%s, chunks of %d: off by %g, tolerance %g", net_of[n].name, cut_of[c][0],
                         error, tolerance);
        }
        precision = CT__SOLVER_PARAMETER__PRECISION__F32;
    }
}

/* Nets of bf16 values keep keys and values so. */
static void test_bf16_bytes(void **state)
{
    (void)state;
    for (int n = 0; n < N_NET; n++) {
        double bytes[2];

        for (int b = 0; b < 2; b++) {
            Ct__NetParameter *param = parsed(net_of[n].text);
            ct_packed_net *p;

            precision = (b == 1) ? CT__SOLVER_PARAMETER__PRECISION__BF16
                                 : CT__SOLVER_PARAMETER__PRECISION__F32;
            p = open_net(param, TOKENS, TOKENS);
            bytes[b] = ct_packed_net_token_bytes(p);
            ct_packed_net_destroy(p);
            ct__net_parameter__free_unpacked(param, NULL);
        }
        precision = CT__SOLVER_PARAMETER__PRECISION__F32;
        assert_true(bytes[0] > 0);
        assert_true(bytes[1] == bytes[0] / 2);
    }
}

static void test_threads(void **state)
{
    static float one[TOKENS * CLASSES], more[TOKENS * CLASSES];
    int before = omp_get_max_threads();
    int32_t id[TOKENS];

    (void)state;
    make_ids(id, 2);
    for (int n = 0; n < N_NET; n++) {
        for (int c = 1; c < N_CUT; c++) {
            memset(one, 0, sizeof(one));
            memset(more, 0, sizeof(more));
            omp_set_num_threads(1);
            run_cut(net_of[n].text, cut_of[c], id, one);
            for (int t = 2; t <= 3; t++) {
                omp_set_num_threads(t);
                run_cut(net_of[n].text, cut_of[c], id, more);
                assert_memory_equal(one, more, sizeof(one));
            }
        }
    }
    omp_set_num_threads(before);
}

/* However they are cut, the bytes are those of one token a pass; also in bf16. */
static void test_cuts(void **state)
{
    static float steps[TOKENS * CLASSES], cut[TOKENS * CLASSES];
    int32_t id[TOKENS];

    (void)state;
    make_ids(id, 3);
    for (int k = 0; k < 2 * N_NET; k++) {
        int n = k / 2;

        if (k % 2 == 1) precision = CT__SOLVER_PARAMETER__PRECISION__BF16;
        run_steps(net_of[n].text, id, steps);
        for (int c = 0; c < N_CUT; c++) {
            memcpy(cut, steps, sizeof(cut));
            run_cut(net_of[n].text, cut_of[c], id, cut);
            if (memcmp(cut, steps, sizeof(cut)) != 0)
                fail_msg("%s, passes of %d, %s: other bytes", net_of[n].name, cut_of[c][0],
                         (k % 2 == 1) ? "bf16" : "f32");
        }
        precision = CT__SOLVER_PARAMETER__PRECISION__F32;
    }
}

/* A whole sequence, a chunk behind a prefix, a step and a prompt in each pass: rows of each are
 * those that it has alone. */
static void test_mixture(void **state)
{
    enum { N = 4 };
    static float alone[N][TOKENS * CLASSES], whole[TOKENS * CLASSES];
    static const int before[N] = { 0, 40, 64, 0 }, more[N] = { TOKENS, 9, 1, 33 };
    static const ct_packed_rows rows[N] = { CT_ROWS_ALL, CT_ROWS_ALL, CT_ROWS_LAST, CT_ROWS_LAST };
    int32_t id[N][TOKENS];

    (void)state;
    for (int k = 0; k < N; k++) make_ids(id[k], k);
    for (int n = 0; n < N_NET; n++) {
        Ct__NetParameter *param = parsed(net_of[n].text);
        ct_packed_net *p = open_net(param, 2 * TOKENS, N * (TOKENS + 32));
        ct_packed_item item[N], one = { .id = id[0], .n = TOKENS };

        assert_int_equal(ct_packed_net_run(p, &one, 1), CT_OK);
        memcpy(whole, one.row, sizeof(whole));
        for (int k = 0; k < N; k++) {
            float unused[CLASSES];

            run_steps(net_of[n].text, id[k], alone[k]);
            item[k] = (ct_packed_item){ .id = id[k] + before[k], .n = more[k], .want = rows[k] };
            if (k > 0) item[k].sequence = open_sequence(p, id[k], 0);
            if (before[k] > 0) feed(p, item[k].sequence, id[k], before[k], unused);
        }
        assert_int_equal(ct_packed_net_run(p, item, N), CT_OK);
        assert_int_equal(item[0].rows, TOKENS);
        assert_memory_equal(item[0].row, whole, sizeof(whole));
        for (int k = 1; k < N; k++) {
            int64_t made = (rows[k] == CT_ROWS_ALL) ? more[k] : 1;
            int64_t first = before[k] + more[k] - made;

            assert_int_equal(item[k].rows, made);
            assert_memory_equal(item[k].row, alone[k] + first * CLASSES,
                                (size_t)(made * CLASSES) * sizeof(float));
            ct_packed_sequence_close(item[k].sequence);
        }
        ct_packed_net_destroy(p);
        ct__net_parameter__free_unpacked(param, NULL);
    }
}

/* A second sequence that begins alike finds whole pages, and gets the same bytes. */
static void test_prefix(void **state)
{
    static float steps[TOKENS * CLASSES];
    int32_t id[TOKENS], other[TOKENS];

    (void)state;
    make_ids(id, 5);
    memcpy(other, id, sizeof(id));
    other[40] = (other[40] + 1) % CLASSES;
    for (int n = 0; n < N_NET; n++) {
        Ct__NetParameter *param = parsed(net_of[n].text);
        ct_packed_net *p = open_net(param, TOKENS, 7 * 32);
        ct_packed_sequence *s = open_sequence(p, id, 0), *second, *third;
        float got[CLASSES];

        run_steps(net_of[n].text, id, steps);
        feed(p, s, id, TOKENS, got);
        second = open_sequence(p, id, 64);
        feed(p, second, id + 64, 7, got);
        assert_memory_equal(got, steps + 70 * CLASSES, sizeof(got));
        ct_packed_sequence_close(s);
        ct_packed_sequence_close(second);
        third = open_sequence(p, other, 32);
        feed(p, third, other + 32, TOKENS - 32, got);
        run_steps(net_of[n].text, other, steps);
        assert_memory_equal(got, steps + 70 * CLASSES, sizeof(got));
        ct_packed_sequence_close(third);
        second = open_sequence(p, id, 64); /* still there */
        ct_packed_sequence_close(second);
        ct_packed_net_destroy(p);
        ct__net_parameter__free_unpacked(param, NULL);
    }
}

/* In pages that the caller says, in any order: the same bytes, and pages are shared as it says. */
static void test_placed(void **state)
{
    static const int32_t page[] = { 6, 1, 4 }, shares[] = { 6, 1, 0 }, wrong[] = { 6, 7, 0 };
    static float steps[TOKENS * CLASSES];
    int32_t id[TOKENS];
    log_capture log;

    (void)state;
    make_ids(id, 5);
    for (int n = 0; n < N_NET; n++) {
        Ct__NetParameter *param = parsed(net_of[n].text);
        ct_packed_net *p = open_net(param, TOKENS, 7 * 32);
        ct_packed_sequence *s = NULL, *second = NULL;
        float got[CLASSES];

        run_steps(net_of[n].text, id, steps);
        assert_int_equal(ct_packed_sequence_place(p, page, 3, TOKENS, 0, &s), CT_OK);
        feed(p, s, id, TOKENS, got);
        assert_memory_equal(got, steps + (TOKENS - 1) * CLASSES, sizeof(got));
        assert_int_equal(ct_packed_sequence_place(p, shares, 3, TOKENS, 64, &second), CT_OK);
        assert_int_equal(ct_packed_sequence_length(second), 64);
        feed(p, second, id + 64, 7, got);
        assert_memory_equal(got, steps + 70 * CLASSES, sizeof(got));
        assert_int_equal(ct_packed_sequence_length(second), 71);
        ct_packed_sequence_close(s);
        ct_packed_sequence_close(second);
        assert_int_equal(ct_packed_net_peek(p, id, TOKENS), 0); /* the net's table knows of none */
        log_capture_start(&log);
        assert_int_equal(ct_packed_sequence_place(p, wrong, 3, TOKENS, 0, &s), CT_ERR_ARG);
        assert_string_equal(log.error, "page 7 of a cache of 7");
        assert_int_equal(ct_packed_sequence_place(p, page, 2, TOKENS, 0, &s), CT_ERR_ARG);
        log_capture_stop();
        assert_non_null(strstr(log.error, "in 2 pages"));
        ct_packed_net_destroy(p);
        ct__net_parameter__free_unpacked(param, NULL);
    }
}

/* Rows of the last token alone, where no layer looks at others, and where the last layer does. */
static void test_last_rows(void **state)
{
    static const char *const text[] = {
        INPUT EMBED("x") HEAD("x"),
        INPUT EMBED("x") FC("q", "x", "57") "layer { name: 'head' type: 'Attention' bottom: 'q'"
                                            " top: 'head' attention_param { num_heads: 1"
                                            " causal: true } }"
    };
    int32_t id[TOKENS];

    (void)state;
    make_ids(id, 2);
    for (int k = 0; k < 2; k++) {
        Ct__NetParameter *param = parsed(text[k]);
        ct_packed_net *p = open_net(param, 2 * TOKENS, TOKENS);
        ct_packed_item all[2] = { { .id = id, .n = 9 }, { .id = id + 9, .n = 5 } };
        ct_packed_item some[3] = { { .id = id, .n = 9, .want = CT_ROWS_LAST },
                                   { .id = id, .n = 3, .want = CT_ROWS_NONE },
                                   { .id = id + 9, .n = 5, .want = CT_ROWS_LAST } };
        float last[2][CLASSES];

        assert_int_equal(ct_packed_net_run(p, all, 2), CT_OK);
        memcpy(last[0], all[0].row + 8 * CLASSES, sizeof(last[0]));
        memcpy(last[1], all[1].row + 4 * CLASSES, sizeof(last[1]));
        assert_int_equal(ct_packed_net_run(p, some, 3), CT_OK);
        assert_int_equal(some[0].rows, 1);
        assert_int_equal(some[1].rows, 0);
        assert_int_equal(some[2].rows, 1);
        assert_memory_equal(some[0].row, last[0], sizeof(last[0]));
        assert_memory_equal(some[2].row, last[1], sizeof(last[1]));
        ct_packed_net_destroy(p);
        ct__net_parameter__free_unpacked(param, NULL);
    }
}

/* A net that was made by one thread, and runs with three. */
static void test_more_threads(void **state)
{
    int before = omp_get_max_threads();
    Ct__NetParameter *param = parsed(llama);
    static float steps[TOKENS * CLASSES];
    ct_packed_sequence *s;
    float got[CLASSES];
    int32_t id[TOKENS];
    ct_packed_net *p;

    (void)state;
    make_ids(id, 4);
    run_steps(llama, id, steps);
    omp_set_num_threads(1);
    p = open_net(param, TOKENS, 2 * TOKENS);
    omp_set_num_threads(3);
    s = open_sequence(p, id, 0);
    feed(p, s, id, TOKENS, got);
    assert_memory_equal(got, steps + (TOKENS - 1) * CLASSES, sizeof(got));
    ct_packed_sequence_close(s);
    ct_packed_net_destroy(p);
    ct__net_parameter__free_unpacked(param, NULL);
    omp_set_num_threads(before);
}

/* Sines for whole sequences that are longer than those which grow. */
static void test_long_whole(void **state)
{
    Ct__NetParameter *param = parsed(window);
    ct_packed_most most = { .tokens = TOKENS, .sequences = 2, .cached = 32, .length = 20 };
    ct_net_options o = usual;
    int32_t id[TOKENS];
    ct_packed_item item = { .id = id, .n = TOKENS };
    ct_packed_net *p = NULL;

    (void)state;
    make_ids(id, 1);
    assert_int_equal(ct_packed_net_create(param, &o, &most, &p), CT_OK);
    assert_int_equal(ct_packed_net_capacity(p), 20);
    assert_int_equal(ct_packed_net_run(p, &item, 1), CT_OK);
    ct_packed_net_destroy(p);
    ct__net_parameter__free_unpacked(param, NULL);
}

static void refused(const char *text, const char *why)
{
    ct_net_options o = { .phase = CT_TEST, .env = { .n_rank = 1 } };
    Ct__NetParameter *param = parsed(text);
    ct_packed_most most = { .tokens = 4, .sequences = 2, .cached = 50 };
    static const int32_t id[2];
    ct_packed_net *p = NULL;
    ct_packed_sequence *s = NULL;
    log_capture log;
    ct_status status;
    int64_t kept;

    log_capture_start(&log);
    status = ct_packed_net_create(param, &o, &most, &p);
    if (status == CT_OK) status = ct_packed_sequence_open(p, id, 2, 50, &s, &kept);
    log_capture_stop();
    if (((status != CT_ERR_CONFIG) && (status != CT_ERR_SHAPE)) || (strstr(log.error, why) == NULL))
        fail_msg("%d: \"%s\" does not say \"%s\"", status, log.error, why);
    ct_packed_net_destroy(p);
    ct__net_parameter__free_unpacked(param, NULL);
}

static void test_refused(void **state)
{
    (void)state;
    refused(INPUT EMBED("x") FC("q", "x", "90")
                ONE("attn", "Attention", "q", "attn", "attention_param { num_heads: 3 }"),
            "layer \"attn\" (Attention): without causal: true a token sees those that follow");
    refused(INPUT EMBED("x") FC("q", "x", "90") "layer { name: 'a' type: 'Attention' bottom: 'q'"
                                                " bottom: 'id' top: 'a' attention_param {"
                                                " num_heads: 3 causal: true } }",
            "segment numbers");
    refused(INPUT EMBED("x") ONE("s", "Softmax", "x", "s", "softmax_param { axis: 1 }"),
            "layer \"s\" (Softmax): it mixes tokens, or may do so");
    refused(INPUT EMBED("x") ONE("n", "LayerNorm", "x", "n", "layer_norm_param { axis: 1 }"),
            "; it cannot follow layer \"in\" (Input)");
    refused(INPUT EMBED("x")
                ONE("f", "InnerProduct", "x", "f", "inner_product_param { num_output: 5 }"),
            "layer \"f\" (InnerProduct): ");
    refused(INPUT EMBED("x") ONE("s", "Scale", "x", "s", ""), "layer \"s\" (Scale): ");
    refused(INPUT EMBED("w") POSITION("w", "max_length: 49" GAUSS),
            "layer \"wpe\" (Position): a sequence of 50 tokens, but position_param.max_length is "
            "49");
    refused(INPUT EMBED("w") POSITION("w", "max_length: 49 type: SINUSOIDAL"), "max_length is 49");
    refused(INPUT EMBED("w") "layer { name: 'p' type: 'Position' bottom: 'w' bottom: 'id' top: 'p'"
                             " position_param { max_length: 60 } }",
            "layer \"p\" (Position): it mixes");
    refused(
        INPUT
        "layer { name: 'in2' type: 'Input' top: 'b' input_param { shape { dim: 1 } } }" EMBED("x"),
        "top \"b\": behind the ids");
    refused(
        "layer { name: 'd' type: 'DummyData' top: 'id' dummy_data_param { shape { dim: 1 dim: 4 "
        "} } }" EMBED("x"),
        "use the deploy net");
    refused(INPUT EMBED("x") FC("a", "x", "4") FC("b", "x", "4"), "has 2 outputs");
}

static void test_no_room(void **state)
{
    Ct__NetParameter *param = parsed(llama);
    ct_packed_net *p = open_net(param, 12, 64);
    ct_packed_sequence *s = NULL, *more = NULL;
    ct_packed_item item = { .want = CT_ROWS_LAST };
    int32_t id[TOKENS];
    int64_t kept;

    (void)state;
    make_ids(id, 1);
    log_capture_start(NULL);
    assert_int_equal(ct_packed_sequence_open(p, id, 0, 4, &s, &kept), CT_ERR_ARG);
    assert_int_equal(ct_packed_sequence_open(p, id, 5, 4, &s, &kept), CT_ERR_ARG);
    assert_int_equal(ct_packed_sequence_open(p, id, 5, 65, &s, &kept), CT_ERR_CONFIG);
    assert_int_equal(ct_packed_sequence_open(p, id, 5, 33, &s, &kept), CT_OK);
    assert_int_equal(ct_packed_sequence_open(p, id, 5, 1, &more, &kept), CT_ERR_ARG);
    assert_int_equal(ct_packed_sequence_open(p, id, 1, 1, &more, &kept), CT_OK);
    assert_null(more); /* not now */
    ct_packed_sequence_close(s);
    assert_int_equal(ct_packed_sequence_open(p, id, 5, 10, &s, &kept), CT_OK);
    item = (ct_packed_item){ .id = id, .n = 0, .sequence = s };
    assert_int_equal(ct_packed_net_run(p, &item, 1), CT_ERR_ARG);
    item.n = 11;
    assert_int_equal(ct_packed_net_run(p, &item, 1), CT_ERR_ARG);
    item.n = 7;
    assert_int_equal(ct_packed_net_run(p, &item, 1), CT_OK);
    item.n = 4;
    assert_int_equal(ct_packed_net_run(p, &item, 1), CT_ERR_ARG);
    assert_int_equal(ct_packed_sequence_length(s), 7);
    item.n = 1;
    item.type = id;
    assert_int_equal(ct_packed_net_run(p, &item, 1), CT_ERR_ARG);
    item.type = NULL;
    id[0] = CLASSES;
    item.n = 1;
    assert_int_equal(ct_packed_net_run(p, &item, 1), CT_ERR_DATA);
    assert_int_equal(ct_packed_sequence_length(s), 7);
    id[0] = 0;
    item.n = 3;
    assert_int_equal(ct_packed_net_run(p, &item, 1), CT_OK);
    log_capture_stop();
    ct_packed_sequence_close(s);
    ct_packed_net_destroy(p);
    ct__net_parameter__free_unpacked(param, NULL);
}

/* The nets under models/, at their full size, in numbers alone. */
static void test_models(void **state)
{
    static const struct {
        const char *name;
        int64_t classes; /* 0: it reads whole sequences */
    } model[] = { { "gpt_char", 128 },     { "gpt2", 50257 },    { "gpt2_medium", 50257 },
                  { "gpt2_large", 50257 }, { "gpt2_xl", 50257 }, { "llama_135m", 49152 },
                  { "bert_mini", 0 },      { "minilm", 0 },      { "lstm", 0 } };

    (void)state;
    for (size_t i = 0; i < sizeof(model) / sizeof(model[0]); i++) {
        ct_net_options o = { .phase = CT_TEST, .env = { .n_rank = 1 }, .no_data = true };
        Ct__NetParameter *param;
        ct_packed_most most = { .tokens = 32, .sequences = 2, .cached = 64 };
        ct_packed_net *p = NULL;
        ct_status status;
        char path[128];

        snprintf(path, sizeof(path), "models/%s/deploy.prototxt", model[i].name);
        assert_int_equal(ct_net_read(path, NULL, &param), CT_OK);
        if (model[i].classes == 0) log_capture_start(NULL);
        status = ct_packed_net_create(param, &o, &most, &p);
        log_capture_stop();
        if ((status == CT_OK) != (model[i].classes > 0)) fail_msg("%s: %d", path, status);
        if (status == CT_OK) assert_int_equal(ct_packed_net_columns(p), model[i].classes);
        ct_packed_net_destroy(p);
        ct__net_parameter__free_unpacked(param, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_whole),   cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_threads),    cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_mixture),    cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_placed),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_room),    cmocka_unit_test(test_models),
        cmocka_unit_test(test_last_rows),  cmocka_unit_test(test_more_threads),
        cmocka_unit_test(test_long_whole), cmocka_unit_test(test_bf16_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
