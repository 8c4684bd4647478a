/* Nets that run token by token: logits are those of the whole sequence in one pass, however the
 * tokens are cut into calls; sequences of one decoder know nothing of each other; no bit depends on
 * the number of threads; nets that cannot run so are refused.
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

#include "framework/net/sequence.h"
#include "framework/proto/upgrade.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 41, CLASSES = 19, LONGEST = 96 /* terms of a sum */ };

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
    INPUT EMBED("w") POSITION("w", "max_length: 41" GAUSS) GPT_BLOCK("a_", "x", "y")
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

/* How tokens come, one call after the other; 0 ends. The first number: tokens of a chunk. */
static const int cut_of[][TOKENS + 2] = {
    { TOKENS, TOKENS },
    { 16, TOKENS },
    { 8, 3, 1, 20, 1, 1, 15 },
    { 2, 1, 40 },
    { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
      1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 },
    { 1, 30, 11 },
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

static ct_decoder *open_decoder(const Ct__NetParameter *param, int64_t chunk)
{
    ct_net_options o = { .phase = CT_TEST,
                         .env = { .n_rank = 1, .seed = 3, .precision = precision } };
    ct_decoder *d = NULL;

    assert_int_equal(ct_decoder_create(param, &o, chunk, &d), CT_OK);
    assert_int_equal(ct_decoder_classes(d), CLASSES);
    return d;
}

static void feed(ct_sequence *s, const int32_t *id, int64_t n, float *logits)
{
    const float *at;

    assert_int_equal(ct_sequence_feed(s, id, n, &at), CT_OK);
    memcpy(logits, at, CLASSES * sizeof(*at));
}

/* logits[TOKENS][CLASSES] in one pass; share: by how much elements of the table are off. */
static void run_whole(const char *text, const int32_t *id, float share, float *logits)
{
    Ct__NetParameter *param = parsed(text);
    ct_decoder *d = open_decoder(param, TOKENS);
    ct_net *net = ct_decoder_net(d);
    ct_blob *table = &net->param[ct_net_find_param(net, "wte")].blob;
    float *in = ct_blob_data(net->pass->blob[ct_net_find_blob(net, "id")]);

    for (int64_t i = 0; i < CLASSES * 30; i++)
        ct_blob_data(table)[i] *= 1.0f + ((i * 7 / 3 % 2 == 0) ? share : -share);
    ct_net_weights_changed(net);
    for (int i = 0; i < TOKENS; i++) in[i] = (float)id[i];
    assert_int_equal(ct_pass_forward(net->pass, NULL), CT_OK);
    memcpy(logits, ct_blob_data(net->pass->blob[ct_net_find_blob(net, "head")]),
           TOKENS * CLASSES * sizeof(float));
    ct_decoder_destroy(d);
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
    ct_decoder *d = open_decoder(param, cut[0]);
    ct_sequence *s = NULL;
    int at = 0;

    assert_int_equal(ct_sequence_open(d, TOKENS, &s), CT_OK);
    for (int i = 1; cut[i] > 0; i++) {
        feed(s, id + at, cut[i], logits + (at + cut[i] - 1) * CLASSES);
        at += cut[i];
        assert_int_equal(ct_sequence_length(s), at);
    }
    assert_int_equal(at, TOKENS);
    ct_sequence_close(s);
    ct_decoder_destroy(d);
    ct__net_parameter__free_unpacked(param, NULL);
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

/* Two in turn, each as if it were alone. */
static void test_several(void **state)
{
    static float alone[2][TOKENS * CLASSES], both[2][TOKENS * CLASSES];
    static const int cut[] = { 4, 5, 1, 1, 9, 1, 24, 0 };
    int32_t id[2][TOKENS];

    (void)state;
    for (int n = 0; n < N_NET; n++) {
        Ct__NetParameter *param = parsed(net_of[n].text);
        ct_decoder *d = open_decoder(param, cut[0]);
        ct_sequence *s[2];
        int at = 0;

        memset(both, 0, sizeof(both));
        memset(alone, 0, sizeof(alone));
        for (int k = 0; k < 2; k++) {
            make_ids(id[k], k);
            assert_int_equal(ct_sequence_open(d, TOKENS, &s[k]), CT_OK);
            run_cut(net_of[n].text, cut, id[k], alone[k]);
        }
        for (int i = 1; cut[i] > 0; at += cut[i++]) {
            for (int k = 0; k < 2; k++)
                feed(s[k], id[k] + at, cut[i], both[k] + (at + cut[i] - 1) * CLASSES);
        }
        assert_memory_equal(alone, both, sizeof(alone));
        assert_true(memcmp(both[0], both[1], sizeof(both[0])) != 0);
        ct_sequence_close(s[0]);
        ct_sequence_close(s[1]);
        ct_decoder_destroy(d);
        ct__net_parameter__free_unpacked(param, NULL);
    }
}

/* Weights that change between two calls. */
static void test_weights(void **state)
{
    Ct__NetParameter *param = parsed(llama);
    ct_decoder *d = open_decoder(param, 4);
    ct_net *net = ct_decoder_net(d);
    ct_sequence *s = NULL;
    float before[CLASSES], after[CLASSES];
    int32_t id[TOKENS];

    (void)state;
    make_ids(id, 1);
    assert_int_equal(ct_sequence_open(d, TOKENS, &s), CT_OK);
    feed(s, id, 9, before);
    ct_sequence_close(s);
    assert_int_equal(ct_sequence_open(d, TOKENS, &s), CT_OK);
    memset(ct_blob_data(&net->param[ct_net_find_param(net, "wte")].blob), 0,
           CLASSES * 30 * sizeof(float));
    ct_net_weights_changed(net);
    feed(s, id, 9, after);
    assert_true(largest(before, NULL, CLASSES) > 0.1);
    assert_true(largest(after, NULL, CLASSES) == 0.0);
    ct_sequence_close(s);
    ct_decoder_destroy(d);
    ct__net_parameter__free_unpacked(param, NULL);
}

static void refused(const char *text, const char *why)
{
    ct_net_options o = { .phase = CT_TEST, .env = { .n_rank = 1 } };
    Ct__NetParameter *param = parsed(text);
    ct_decoder *d = NULL;
    ct_sequence *s = NULL;
    log_capture log;
    ct_status status;

    log_capture_start(&log);
    status = ct_decoder_create(param, &o, 4, &d);
    if (status == CT_OK) status = ct_sequence_open(d, 50, &s);
    log_capture_stop();
    assert_int_equal(status, CT_ERR_CONFIG);
    if (strstr(log.error, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", log.error, why);
    ct_decoder_destroy(d);
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
            "layer \"n\" (LayerNorm): it mixes tokens");
    refused(INPUT EMBED("x")
                ONE("f", "InnerProduct", "x", "f", "inner_product_param { num_output: 5 }"),
            "layer \"f\" (InnerProduct): ");
    refused(INPUT EMBED("x") ONE("s", "Scale", "x", "s", ""), "layer \"s\" (Scale): it mixes");
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
        "one Input with one top");
    refused(
        "layer { name: 'd' type: 'DummyData' top: 'id' dummy_data_param { shape { dim: 1 dim: 4 "
        "} } }" EMBED("x"),
        "use the deploy net");
    refused(INPUT EMBED("x") FC("a", "x", "4") FC("b", "x", "4"), "has 2 outputs");
}

static void test_no_room(void **state)
{
    Ct__NetParameter *param = parsed(llama);
    ct_decoder *d = open_decoder(param, 4);
    ct_sequence *s = NULL;
    const float *logits;
    int32_t id[TOKENS];

    (void)state;
    make_ids(id, 1);
    log_capture_start(NULL);
    assert_int_equal(ct_sequence_open(d, 0, &s), CT_ERR_ARG);
    assert_int_equal(ct_sequence_open(d, 10, &s), CT_OK);
    assert_int_equal(ct_sequence_feed(s, id, 0, &logits), CT_ERR_ARG);
    assert_int_equal(ct_sequence_feed(s, id, 11, &logits), CT_ERR_ARG);
    assert_int_equal(ct_sequence_feed(s, id, 7, &logits), CT_OK);
    assert_int_equal(ct_sequence_feed(s, id, 4, &logits), CT_ERR_ARG);
    assert_int_equal(ct_sequence_length(s), 7);
    id[0] = CLASSES;
    assert_int_equal(ct_sequence_feed(s, id, 1, &logits), CT_ERR_DATA);
    assert_int_equal(ct_sequence_length(s), 7);
    id[0] = 0;
    assert_int_equal(ct_sequence_feed(s, id, 3, &logits), CT_OK);
    log_capture_stop();
    ct_sequence_close(s);
    ct_decoder_destroy(d);
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
        ct_decoder *d = NULL;
        ct_status status;
        char path[128];

        snprintf(path, sizeof(path), "models/%s/deploy.prototxt", model[i].name);
        assert_int_equal(ct_net_read(path, NULL, &param), CT_OK);
        if (model[i].classes == 0) log_capture_start(NULL);
        status = ct_decoder_create(param, &o, 32, &d);
        log_capture_stop();
        if ((status == CT_OK) != (model[i].classes > 0)) fail_msg("%s: %d", path, status);
        if (status == CT_OK) assert_int_equal(ct_decoder_classes(d), model[i].classes);
        ct_decoder_destroy(d);
        ct__net_parameter__free_unpacked(param, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_whole), cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_threads),  cmocka_unit_test(test_several),
        cmocka_unit_test(test_weights),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_room),  cmocka_unit_test(test_models),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
