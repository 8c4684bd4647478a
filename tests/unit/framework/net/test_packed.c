/* Sequences side by side without padding: each gives the same bytes alone and beside any others, on
 * any number of threads, and those of the padded net; nets and requests that cannot be are refused.
 */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/log_capture.h"
#include "tests/net_layers.h"
#include "tests/parsed_net.h"

#include "framework/net/packed.h"

#include <malloc.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define GAUSS                                                                                      \
    " weight_filler { type: 'gaussian' std: 0.25 } bias_filler { type: 'gaussian' std: 0.1 } "
#define ONE(name, type, bottom, top, more)                                                         \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " more " }\n"
#define TWO(name, type, a, b, top, more)                                                           \
    "layer { name: '" name "' type: '" type "' bottom: '" a "' bottom: '" b "' top: '" top         \
    "' " more " }\n"
#define INPUT(tops, more)                                                                          \
    "layer { name: 'in' type: 'Input' " tops " input_param { shape { dim: 1 dim: 64 } " more       \
    " } }\n"
#define VARIES "varies: true"
#define FC(name, bottom, n)                                                                        \
    ONE(name, "InnerProduct", bottom, name,                                                        \
        "inner_product_param { num_output: " n " axis: 2" GAUSS "}")
#define EMBED(name, bottom, n)                                                                     \
    ONE(name, "Embed", bottom, name,                                                               \
        "embed_param { input_dim: " n " num_output: 32 bias_term: false"                           \
        " weight_filler { type: 'gaussian' std: 1 } }")

#define BERT_BLOCK(p, from, to)                                                                    \
    FC(p "qkv", from, "96")                                                                        \
    TWO(p "attn", "Attention", p "qkv", "mask", p "attn", "attention_param { num_heads: 4 }")      \
    FC(p "proj", p "attn", "32")                                                                   \
    TWO(p "sum1", "Eltwise", from, p "proj", p "sum1", "")                                         \
    ONE(p "ln1", "LayerNorm", p "sum1", p "ln1", "")                                               \
    FC(p "fc", p "ln1", "72")                                                                      \
    ONE(p "gelu", "GELU", p "fc", p "fc", "")                                                      \
    FC(p "down", p "fc", "32")                                                                     \
    TWO(p "sum2", "Eltwise", p "ln1", p "down", p "sum2", "")                                      \
    ONE(p "ln2", "LayerNorm", p "sum2", to, "")
#define BERT                                                                                       \
    EMBED("wte", "tokens", "19")                                                                   \
    EMBED("wtt", "types", "2")                                                                     \
    TWO("words", "Eltwise", "wte", "wtt", "words", "")                                             \
    ONE("wpe", "Position", "words", "x",                                                           \
        "position_param { max_length: 300 weight_filler { type: 'gaussian' std: 0.3 } }")          \
    BERT_BLOCK("a_", "x", "y")                                                                     \
    BERT_BLOCK("b_", "y", "z")
#define POOL_ONLY                                                                                  \
    ONE("row", "Reshape", "mask", "row", "reshape_param { shape { dim: 0 dim: 1 dim: -1 } }")      \
    TWO("pool", "MatMul", "row", "z", "pool", "")
#define POOL                                                                                       \
    POOL_ONLY                                                                                      \
    ONE("embedding", "Normalize", "pool", "embedding", "")

#define CLASSES_BEHIND(bottom)                                                                     \
    ONE("flat", "Flatten", bottom, "flat", "")                                                     \
    ONE("score", "InnerProduct", "flat", "score", "inner_product_param { num_output: 5" GAUSS "}") \
    ONE("prob", "Softmax", "score", "prob", "")

#define LLAMA_BLOCK(p, from, to, more)                                                             \
    ONE(p "n1", "RMSNorm", from, p "n1", "")                                                       \
    FC(p "qkv", p "n1", "64")                                                                      \
    ONE(p "attn", "Attention", p "qkv", p "attn",                                                  \
        "attention_param { num_heads: 4 num_kv_heads: 2 causal: true " more " }")                  \
    FC(p "proj", p "attn", "32")                                                                   \
    TWO(p "sum1", "Eltwise", from, p "proj", p "sum1", "")                                         \
    ONE(p "n2", "RMSNorm", p "sum1", p "n2", "")                                                   \
    FC(p "gu", p "n2", "80")                                                                       \
    ONE(p "swi", "SwiGLU", p "gu", p "swi", "")                                                    \
    FC(p "down", p "swi", "32")                                                                    \
    TWO(p "sum2", "Eltwise", p "sum1", p "down", to, "")
#define TOPS_BERT "top: 'tokens' top: 'types' top: 'mask'"
#define TOPS_GPT  "top: 'tokens'"

static const char embeds[] = INPUT(TOPS_BERT, VARIES) BERT POOL;
static const char classes[] = INPUT(TOPS_BERT, VARIES) BERT POOL CLASSES_BEHIND("embedding");
static const char states[] = INPUT(TOPS_BERT, VARIES) BERT;
static const char causal[] =
    INPUT(TOPS_GPT, VARIES) EMBED("wte", "tokens", "19") LLAMA_BLOCK("a_", "wte", "y", "rope { }")
        LLAMA_BLOCK("b_", "y", "z", "window: 9") FC("head", "z", "19");
/* the engine that is written to be read */
static const char reference[] =
    INPUT(TOPS_GPT, "") EMBED("wte", "tokens", "19") FC("qkv", "wte", "96")
        ONE("attn", "Attention", "qkv", "attn",
            "ct_kernel { forward: 'reference' } attention_param { num_heads: 4 rope { } }");

static const struct {
    const char *name, *text;
    bool pools, masked;
    int64_t columns;
} nets[] = { { "embeds", embeds, true, true, 32 },
             { "classes", classes, true, true, 5 },
             { "states", states, false, true, 32 },
             { "causal", causal, false, false, 19 },
             { "reference", reference, false, false, 32 } };
enum { N_NET = sizeof(nets) / sizeof(nets[0]) };

enum { MOST = 700, LONGEST = 290, CLASSES = 19, N_SEQ = 9 };
static const int64_t length[N_SEQ] = { 7, 1, 130, 33, 290, 16, 2, 64, 129 };

static int32_t ids[N_SEQ][LONGEST], types[N_SEQ][LONGEST];

static void make_ids(void)
{
    for (int s = 0; s < N_SEQ; s++) {
        for (int i = 0; i < LONGEST; i++) {
            ids[s][i] = (int32_t)((i * i + s * 7 + i / 3) % CLASSES);
            types[s][i] = (i > (int)length[s] / 2) ? 1 : 0;
        }
    }
}

typedef struct opened {
    Ct__NetParameter *param;
    ct_packed_net *p;
} opened;

static ct_status try_open(const char *text, Ct__SolverParameter__Precision precision, opened *o)
{
    ct_net_options options = { .phase = CT_TEST,
                               .env = { .n_rank = 1, .seed = 3, .precision = precision } };
    ct_status status;

    o->p = NULL;
    o->param = (Ct__NetParameter *)test_parsed(&ct__net_parameter__descriptor, text);
    setenv("CORTADO_POISON", "1", 1);
    status = ct_packed_net_create(o->param, &options,
                                  &(ct_packed_most){ .tokens = MOST, .sequences = N_SEQ }, &o->p);
    unsetenv("CORTADO_POISON");
    return status;
}

static void close_net(opened *o)
{
    ct_packed_net_destroy(o->p);
    ct__net_parameter__free_unpacked(o->param, NULL);
}

static opened open_net(int k, Ct__SolverParameter__Precision precision)
{
    opened o;

    assert_int_equal(try_open(nets[k].text, precision, &o), CT_OK);
    assert_int_equal(ct_packed_net_columns(o.p), nets[k].columns);
    assert_true(ct_packed_net_pools(o.p) == nets[k].pools);
    assert_int_equal(ct_packed_net_longest(o.p), nets[k].masked ? 300 : MOST);
    assert_int_equal(ct_packed_net_ids(o.p), CLASSES);
    return o;
}

static ct_packed_item item_of(int s)
{
    return (ct_packed_item){ .id = ids[s], .n = length[s], .type = types[s] };
}

/* Sequence s alone; to be freed. */
static float *run_alone(ct_packed_net *p, int s, int64_t *count_p)
{
    ct_packed_item one = item_of(s);
    float *copy;

    assert_int_equal(ct_packed_net_run(p, &one, 1), CT_OK);
    *count_p = one.rows * ct_packed_net_columns(p);
    copy = malloc((size_t)*count_p * sizeof(*copy));
    assert_non_null(copy);
    memcpy(copy, one.row, (size_t)*count_p * sizeof(*copy));
    return copy;
}

/* ---- alone and beside others */

/* Which sequences, -1 ends. */
static const int batch[][N_SEQ + 1] = { { 0, 1, 2, 3, 4, 5, 6, 7, -1 },
                                        { 4, -1 },
                                        { 8, 7, 6, 5, 3, 2, 1, 0, -1 },
                                        { 1, 1, 6, -1 },
                                        { 2, 4, -1 },
                                        { 6, 0, -1 } };
enum { N_BATCH = sizeof(batch) / sizeof(batch[0]) };

static void run_batches(int k, Ct__SolverParameter__Precision precision)
{
    opened o = open_net(k, precision);
    float *alone[N_SEQ];
    int64_t count[N_SEQ];

    for (int s = 0; s < N_SEQ; s++) alone[s] = run_alone(o.p, s, &count[s]);
    for (int b = 0; b < N_BATCH; b++) {
        ct_packed_item item[N_SEQ];
        int n = 0;

        for (; batch[b][n] >= 0; n++) item[n] = item_of(batch[b][n]);
        assert_int_equal(ct_packed_net_run(o.p, item, n), CT_OK);
        for (int i = 0; i < n; i++) {
            int s = batch[b][i];

            assert_int_equal(item[i].rows * nets[k].columns, count[s]);
            test_same(item[i].row, alone[s], count[s], nets[k].name);
        }
    }
    for (int s = 0; s < N_SEQ; s++) free(alone[s]);
    close_net(&o);
}

static void alone_as_beside_others(void **state)
{
    int before = omp_get_max_threads();

    (void)state;
    for (int k = 0; k < N_NET; k++) {
        for (int n_thread = 1; n_thread <= 3; n_thread += 2) {
            omp_set_num_threads(n_thread);
            run_batches(k, CT__SOLVER_PARAMETER__PRECISION__F32);
            run_batches(k, CT__SOLVER_PARAMETER__PRECISION__BF16);
        }
    }
    omp_set_num_threads(before);
}

/* ---- beside the padded net */

/* The net as it stands, sequences x tokens with a mask: sequence s is its row 1, behind another. */
static void run_padded(int k, int s, const ct_net *from, float *to, int64_t count)
{
    ct_net_options o = { .phase = CT_TEST, .forward_only = true, .table = ct_layer_table };
    const int64_t t = LONGEST;
    test_net f;
    ct_pass *pass;
    const ct_blob *out;

    char text[8192];

    snprintf(text, sizeof(text), "%s", nets[k].text);
    memcpy(strstr(text, "dim: 1 dim: 64"), "dim: 2 dim:290", 14);
    assert_int_equal(test_net_create(text, &o, &f), CT_OK);
    pass = f.net->pass;
    memcpy(f.net->weight_arena, from->weight_arena, (size_t)from->weight_count * sizeof(float));
    ct_net_weights_changed(f.net);
    for (int x = 0; x < pass->net->layer[0]->n_top; x++) {
        float *in = ct_blob_data(pass->instance[0]->top[x]);

        for (int64_t i = 0; i < 2 * t; i++) {
            int row = (i < t) ? 4 : s;
            bool there = i % t < length[row];

            in[i] = !there     ? 0.0f
                    : (x == 0) ? (float)ids[row][i % t]
                    : (x == 1) ? (float)types[row][i % t]
                               : 1.0f;
        }
    }
    assert_int_equal(ct_pass_forward(pass, NULL), CT_OK);
    out = pass->blob[f.net->output[0].blob];
    memcpy(to, (const float *)ct_blob_data(out) + ct_tensor_count(&out->data) / 2,
           (size_t)count * sizeof(float));
    test_net_destroy(&f);
}

/* Masked keys weigh 0, so the sums have the same terms in the same order, and zeros. */
static void as_the_padded_net(void **state)
{
    (void)state;
    for (int k = 0; k < N_NET; k++) {
        opened o = open_net(k, CT__SOLVER_PARAMETER__PRECISION__F32);

        for (int s = 0; s < N_SEQ; s++) {
            int64_t count;
            float *alone = run_alone(o.p, s, &count), *padded = malloc((size_t)count * 4);

            assert_non_null(padded);
            if (nets[k].text != reference) {
                run_padded(k, s, ct_packed_net_of(o.p), padded, count);
                test_same(alone, padded, count, nets[k].name);
            }
            free(alone);
            free(padded);
        }
        close_net(&o);
    }
}

/* ---- memory */

static size_t in_use(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

/* Any lengths in any order find all memory there: nothing that runs leave behind. */
static void nothing_grows(void **state)
{
    enum { RUNS = 3000 };

    (void)state;
    for (int k = 0; k < N_NET; k++) {
        opened o = open_net(k, CT__SOLVER_PARAMETER__PRECISION__F32);
        ct_packed_item most = { .id = ids[4], .n = LONGEST };
        size_t before;

        for (int i = 0; i < 2; i++) /* threads have their own */
            assert_int_equal(ct_packed_net_run(o.p, &most, 1), CT_OK);
        before = in_use();
        for (int i = 0; i < RUNS / N_NET; i++) {
            ct_packed_item item[N_SEQ];
            int n = 1 + i * 5 % (N_SEQ - 1);

            for (int s = 0; s < n; s++) {
                int from = (i * 7 + s * 3) % N_SEQ;

                item[s] = item_of(from);
                item[s].n = 1 + (i * 13 + s * 11) % ((from == 4) ? 40 : 7) % length[from];
            }
            assert_int_equal(ct_packed_net_run(o.p, item, n), CT_OK);
        }
        assert_true(in_use() <= before);
        close_net(&o);
    }
}

/* ---- what is refused */

static void net_refused(const char *text, const char *part)
{
    log_capture log;
    ct_status status;
    opened o;

    log_capture_start(&log);
    status = try_open(text, CT__SOLVER_PARAMETER__PRECISION__F32, &o);
    log_capture_stop();
    if (status != CT_ERR_CONFIG) fail_msg("status %d: %s", (int)status, log.error);
    if (strstr(log.error, part) == NULL) fail_msg("\"%s\" is not in: %s", part, log.error);
    close_net(&o);
}

static void nets_are_refused(void **state)
{
    (void)state;
    net_refused(INPUT("top: 'tokens' top: 'more'", VARIES) EMBED(
                    "wte", "tokens", "19") "layer { name: 'quiet' type: 'Silence' bottom: 'more' }",
                "top \"more\": behind the ids of tokens \"types\" and \"mask\" are known");
    net_refused(INPUT("top: 'tokens' top: 'types' top: 'mask' top: 'more'", VARIES)
                    EMBED("wte", "tokens", "19"),
                "has an Input with the ids of tokens first");
    net_refused(INPUT(TOPS_GPT, VARIES) EMBED("wte", "tokens", "19")
                    ONE("soft", "Softmax", "wte", "soft", "softmax_param { axis: 1 }"),
                "layer \"soft\" (Softmax): it mixes tokens, or may do so");
    net_refused(INPUT(TOPS_GPT, VARIES) EMBED("wte", "tokens", "19")
                    TWO("mul", "MatMul", "wte", "wte", "m", "matmul_param { transpose_b: true }"),
                "layer \"mul\" (MatMul): it mixes tokens");
    net_refused(INPUT(TOPS_GPT, VARIES) EMBED("wte", "tokens", "19") EMBED("two", "tokens", "7"),
                "has 2 outputs: one is needed");
    net_refused(INPUT(TOPS_GPT, VARIES) ONE("row", "Reshape", "tokens", "row",
                                            "reshape_param { shape { dim: 0 dim: 1 dim: -1 } }"),
                "has a row neither for each token nor for each sequence");
}

/* Behind the pooling each layer must leave the rows to themselves, as it says or by what passes. */
static void nets_that_mix_rows_are_refused(void **state)
{
    static const struct {
        const char *name, *layer;
    } wrong[] = {
        { "soft", ONE("soft", "Softmax", "pool", "soft", "softmax_param { axis: 0 }") },
        { "soft", ONE("soft", "Softmax", "pool", "soft", "softmax_param { axis: -3 }") },
        { "sum", ONE("sum", "Reduction", "pool", "sum", "") },
        { "two", TWO("two", "Concat", "pool", "pool", "two", "concat_param { axis: 0 }") },
        { "flat", ONE("flat", "Flatten", "pool", "flat", "flatten_param { axis: 0 }") },
        { "turn", ONE("turn", "Reshape", "pool", "turn",
                      "reshape_param { shape { dim: 1 dim: 0 dim: -1 } }") },
        { "halves", ONE("halves", "Reshape", "pool", "halves",
                        "reshape_param { shape { dim: -1 dim: 16 } }") },
        { "attn", ONE("attn", "Attention", "pool", "attn", "attention_param { num_heads: 1 }") },
        { "mul",
          TWO("mul", "MatMul", "pool", "pool", "mul", "matmul_param { transpose_b: true }") },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char text[8192], part[64];

        snprintf(text, sizeof(text), "%s%s",
                 INPUT("top: 'tokens' top: 'mask'", VARIES) EMBED("wte", "tokens", "19")
                     FC("z", "wte", "96") POOL_ONLY,
                 wrong[i].layer);
        snprintf(part, sizeof(part), "layer \"%s\" (", wrong[i].name);
        net_refused(text, part);
        net_refused(text, "it mixes rows of sequences, or may do so");
    }
}

static void run_refused(ct_packed_net *p, ct_packed_item *item, int64_t n, ct_status status,
                        const char *part)
{
    log_capture log;
    ct_status got;

    log_capture_start(&log);
    got = ct_packed_net_run(p, item, n);
    log_capture_stop();
    assert_int_equal(got, status);
    if (strstr(log.error, part) == NULL) fail_msg("\"%s\" is not in: %s", part, log.error);
}

static void sequences_are_refused(void **state)
{
    opened o = open_net(0, CT__SOLVER_PARAMETER__PRECISION__F32);
    static int32_t many[MOST + 1];
    ct_packed_item item[N_SEQ + 1];
    int64_t count;

    (void)state;
    for (int s = 0; s <= N_SEQ; s++) item[s] = (ct_packed_item){ .id = many, .n = 1 };
    run_refused(o.p, item, 0, CT_ERR_ARG, "0 sequences, the net was made for 1 to 9");
    run_refused(o.p, item, N_SEQ + 1, CT_ERR_ARG, "10 sequences");
    item[1].n = 0;
    run_refused(o.p, item, 2, CT_ERR_ARG, "sequence 1 has 0 tokens, the net takes 1 to 300");
    item[1].n = 301;
    run_refused(o.p, item, 2, CT_ERR_ARG, "sequence 1 has 301 tokens");
    item[0].n = item[1].n = item[2].n = 300;
    run_refused(o.p, item, 3, CT_ERR_ARG, "900 tokens together, the net was made for 700");
    many[5] = 19;
    run_refused(o.p, item, 1, CT_ERR_DATA,
                "token 5 of sequence 0 has id 19, the net has ids below 19");
    many[5] = -1;
    run_refused(o.p, item, 1, CT_ERR_DATA, "id -1");
    free(run_alone(o.p, 0, &count)); /* and goes on */
    close_net(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_as_beside_others),
        cmocka_unit_test(as_the_padded_net),
        cmocka_unit_test(nothing_grows),
        cmocka_unit_test(nets_are_refused),
        cmocka_unit_test(nets_that_mix_rows_are_refused),
        cmocka_unit_test(sequences_are_refused),
    };

    make_ids();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
