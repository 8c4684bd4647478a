/* Nets cut into blocks, with the bytes of each by hand, and plans under a limit of memory. */
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#include "planner/net_plan.h"
#include "planner/parallel.h"
#include "tests/log_capture.h"
#include "tests/parsed_net.h"

#define GIVEN(_top, _dims)                                                                         \
    "layer { name: 'give_" _top "' type: 'DummyData' top: '" _top                                  \
    "' dummy_data_param { shape { " _dims " } } }\n"
#define LAYER(_name, _type, _bottom, _top, _more)                                                  \
    "layer { name: '" _name "' type: '" _type "' bottom: '" _bottom "' top: '" _top "' " _more "}" \
    "\n"
#define JOIN(_name, _type, _a, _b, _top)                                                           \
    "layer { name: '" _name "' type: '" _type "' bottom: '" _a "' bottom: '" _b "' top: '" _top    \
    "' }\n"
#define FC(_name, _bottom, _top, _n)                                                               \
    LAYER(_name, "InnerProduct", _bottom, _top,                                                    \
          "inner_product_param { num_output: " _n " weight_filler { type: 'xavier' } } ")
#define TANH(_name, _bottom, _top) LAYER(_name, "TanH", _bottom, _top, "")
#define DATA                       GIVEN("x", "dim: 4 dim: 8") GIVEN("y", "dim: 4")
#define LOSS(_bottom)              JOIN("loss", "SoftmaxWithLoss", _bottom, "y", "l")

/* A second of operations counts nothing: times are bytes. */
static const ct_net_limits by_bytes = { 1e18, 1.0 };

typedef struct fixture {
    Ct__NetParameter *param;
    ct_net_options options;
    ct_net_chain chain;
} fixture;

static void open_chain(const char *text, const ct_net_limits *limits, fixture *f)
{
    f->param = (Ct__NetParameter *)test_parsed(&ct__net_parameter__descriptor, text);
    f->options = (ct_net_options){ .phase = CT_TRAIN, .env = { .n_rank = 1, .seed = 1 } };
    f->options.no_data = true;
    f->options.no_fuse = false;
    assert_int_equal(ct_net_chain_make(f->param, &f->options, limits, &f->chain), CT_OK);
}

static void close_chain(fixture *f)
{
    ct_net_chain_destroy(&f->chain);
    ct__net_parameter__free_unpacked(f->param, NULL);
}

/* "first-last first-last …" */
static void assert_blocks(const char *text, const char *expected)
{
    fixture f;
    ct_text said = { 0 };

    open_chain(text, &by_bytes, &f);
    for (int b = 0; b < f.chain.n_block; b++)
        ct_text_add(&said, "%s%s-%s", (b > 0) ? " " : "", f.chain.block[b].first,
                    f.chain.block[b].last);
    assert_string_equal(said.text, expected);
    ct_text_destroy(&said);
    close_chain(&f);
}

/* ---- where cuts are */

static void cuts(void **state)
{
    (void)state;
    /* one value after the other; what crosses to the loss from data does not count */
    assert_blocks(DATA FC("a", "x", "a", "10") TANH("t", "a", "t") FC("b", "t", "b", "6") LOSS("b"),
                  "a-a t-t b-b loss-loss");
    /* in place: the layer makes another value */
    assert_blocks(DATA FC("a", "x", "a", "10") TANH("t", "a", "a") FC("b", "a", "b", "6") LOSS("b"),
                  "a-a t-t b-b loss-loss");
    /* a branch is within a block; the Split of x is behind its maker, so the branch begins a block
     */
    assert_blocks(DATA FC("a", "x", "a", "8") FC("b", "a", "b", "12") TANH("t", "b", "t")
                      FC("c", "t", "c", "8") JOIN("sum", "Eltwise", "a", "c", "s")
                          FC("d", "s", "d", "6") LOSS("d"),
                  "a-a b-sum d-d loss-loss");
    /* … of data: data is there anyway */
    assert_blocks(DATA FC("a", "x", "a", "8") TANH("t", "a", "t")
                      JOIN("sum", "Eltwise", "x", "t", "s") FC("d", "s", "d", "6") LOSS("d"),
                  "a-a t-t sum-sum d-d loss-loss");
    /* branches that overlap leave no place between */
    assert_blocks(DATA FC("a", "x", "a", "8") FC("b", "a", "b", "8") FC("c", "b", "c", "8")
                      JOIN("s1", "Eltwise", "a", "c", "s1") FC("d", "s1", "d", "8")
                          JOIN("s2", "Eltwise", "b", "d", "s2") FC("e", "s2", "e", "6") LOSS("e"),
                  "a-a b-s2 e-e loss-loss");
}

static void sources_and_losses(void **state)
{
    (void)state;
    /* a source in the middle belongs to its reader; a loss at the side is in the block in which the
     * value that it reads is alive */
    assert_blocks(DATA FC("a", "x", "a", "8") GIVEN("z", "dim: 4 dim: 8")
                      JOIN("mix", "Eltwise", "a", "z", "m") FC("b", "m", "b", "6") LOSS("b"),
                  "a-a mix-mix b-b loss-loss");
    assert_blocks(DATA FC("a", "x", "a", "8") FC("h", "a", "h", "6")
                      JOIN("side", "SoftmaxWithLoss", "h", "y", "l1") TANH("t", "a", "t")
                          FC("b", "t", "b", "6") LOSS("b"),
                  "a-a h-side t-t b-b loss-loss");
}

/* A convolution runs its ReLU, a product its sum and the norm behind it; between the last two there
 * is a cut, since the sum goes on. */
static void groups(void **state)
{
    (void)state;
    assert_blocks(GIVEN("x", "dim: 2 dim: 3 dim: 6 dim: 6") GIVEN("y", "dim: 2")
                      LAYER("conv", "Convolution", "x", "c",
                            "convolution_param { num_output: 8 kernel_size: 3 } ")
                          LAYER("relu", "ReLU", "c", "c", "") FC("b", "c", "b", "6") LOSS("b"),
                  "conv-relu b-b loss-loss");
}

/* ---- bytes and seconds by hand */

static void figures(void **state)
{
    /* x 4 x 8: 128 bytes; a and t 4 x 32: 512; b 4 x 16: 256; each in a place of 64 bytes' multiple
     */
    fixture f;
    const ct_net_block *k;
    double a = 128 + 512, w = 4 * (32 * 8 + 32);

    (void)state;
    open_chain(DATA FC("a", "x", "a", "32") TANH("t", "a", "t") FC("b", "t", "b", "16") LOSS("b"),
               &by_bytes, &f);
    k = f.chain.block;
    assert_int_equal(f.chain.n_block, 4);
    for (int b = 0; b < 4; b++) assert_int_equal(k[b].like, b);

    /* backward of a reads x, of TanH and b reads t, which b is the last to read */
    assert_int_equal(k[0].fixed_bytes, 128); /* x */
    assert_int_equal(k[0].kept_bytes, 0);
    assert_int_equal(k[1].kept_bytes, 0);
    assert_int_equal(k[1].input_bytes, 512);
    assert_int_equal(k[2].kept_bytes, 512);
    assert_int_equal(k[2].input_bytes, 512);
    assert_int_equal(k[2].fixed_bytes, 0);
    /* the loss makes its gradient in forward: b has been read then; its top is an output */
    assert_int_equal(k[3].kept_bytes, 0);
    assert_int_equal(k[3].input_bytes, 256);
    assert_true(k[3].fixed_bytes >= 256 + 64);

    /* weights and their gradients: 32 x 8 + 32, 16 x 32 + 16, in places of 64 bytes */
    assert_int_equal(k[0].weight_bytes, 2 * (32 * 8 * 4 + 128));
    assert_int_equal(k[1].weight_bytes, 0);
    assert_int_equal(k[2].weight_bytes, 2 * (16 * 32 * 4 + 64));

    /* a second a byte: bottoms, weights and tops, once each; backward of a reads x and its diff of
     * the top, and writes weights' gradients */
    assert_true(k[0].forward_s == a + w + 128 + 16); /* x and y are made here */
    assert_true(k[0].backward_s == 128 + 512 + w);
    assert_true(k[1].forward_s == 1024);
    assert_true(k[1].backward_s == 3 * 512);
    /* a runs again for TanH's top in one segment, and not for itself: backward reads x alone */
    assert_true(k[0].again_s == 0);
    assert_true(k[0].joint_s == a + w);
    assert_true(k[1].again_s == 0);
    assert_true(k[1].joint_s == 1024);
    assert_true(k[2].again_s + k[2].joint_s == 0); /* nobody reads b in backward */
    close_chain(&f);
}

static void shared_weights(void **state)
{
#define SHARED(_name, _bottom, _top)                                                               \
    LAYER(_name, "InnerProduct", _bottom, _top,                                                    \
          "param { name: 'w' } inner_product_param { num_output: 8 bias_term: false } ")
    fixture f;

    (void)state;
    open_chain(DATA SHARED("a", "x", "a") TANH("t", "a", "t") SHARED("b", "t", "b") LOSS("b"),
               &by_bytes, &f);
    assert_int_equal(f.chain.n_block, 4);
    assert_int_equal(f.chain.block[0].weight_bytes, 2 * 8 * 8 * 4);
    assert_int_equal(f.chain.block[2].weight_bytes, 0);
    close_chain(&f);
}

#define GPT(_count)                                                                                \
    GIVEN("tokens", "dim: 2 dim: 16")                                                              \
    GIVEN("y", "dim: 2 dim: 16")                                                                   \
    LAYER("embed", "Embed", "tokens", "x", "embed_param { input_dim: 40 num_output: 32 } ")        \
    "repeat { count: " _count " prefix: 'h%d_' bottom: 'x' top: "                                  \
    "'x'\n" LAYER("ln1", "LayerNorm", "x", "n", "") LAYER("qkv", "InnerProduct", "n", "q",         \
                                                          "inner_product_param { "                 \
                                                          "num_output: 96 axis: 2 "                \
                                                          "} ")                                    \
        LAYER("attn", "Attention", "q", "t",                                                       \
              "attention_"                                                                         \
              "param { "                                                                           \
              "num_heads: 4 "                                                                      \
              "causal: true "                                                                      \
              "} ") LAYER("out", "InnerProduct", "t", "o",                                         \
                          "inner_product_param { "                                                 \
                          "num_output: 32 axis: 2 } ") JOIN("sum1", "Eltwise", "x", "o", "s")      \
            LAYER("ln2", "LayerNorm", "s", "m", "") LAYER("fc",                                    \
                                                          "InnerP"                                 \
                                                          "roduc"                                  \
                                                          "t",                                     \
                                                          "m", "f",                                \
                                                          "inner_"                                 \
                                                          "produc"                                 \
                                                          "t_"                                     \
                                                          "param "                                 \
                                                          "{ "                                     \
                                                          "num_"                                   \
                                                          "output"                                 \
                                                          ": 128 "                                 \
                                                          "axis: "                                 \
                                                          "2 } ")                                  \
                LAYER("gelu", "GELU", "f", "f", "") LAYER("proj", "InnerProduct", "f", "p",        \
                                                          "inner_"                                 \
                                                          "product_"                               \
                                                          "param { "                               \
                                                          "num_output: "                           \
                                                          "32 axis: 2 "                            \
                                                          "} ")                                    \
                    JOIN("sum2", "Eltwise", "s", "p", "x") "}\n" LAYER("l"                         \
                                                                       "n",                        \
                                                                       "La"                        \
                                                                       "ye"                        \
                                                                       "rN"                        \
                                                                       "or"                        \
                                                                       "m",                        \
                                                                       "x", "z", "")               \
                        LAYER("head", "InnerProduct", "z", "h",                                    \
                              "inner_"                                                             \
                              "product_"                                                           \
                              "param { "                                                           \
                              "num_output: "                                                       \
                              "40 axis: 2 "                                                        \
                              "} ") "layer "                                                       \
                                    "{ "                                                           \
                                    "name: "                                                       \
                                    "'loss' "                                                      \
                                    "type: "                                                       \
                                    "'Softma"                                                      \
                                    "xWithLo"                                                      \
                                    "ss' "                                                         \
                                    "bottom:"                                                      \
                                    " 'h' "                                                        \
                                    "bottom:"                                                      \
                                    " 'y' "                                                        \
                                    "top: "                                                        \
                                    "'l' "                                                         \
                                    "softmax"                                                      \
                                    "_param "                                                      \
                                    "{ "                                                           \
                                    "axis: "                                                       \
                                    "2 } }\n"

/* Copies of a repeat are alike, but for the first, which reads something else, and the last. */
static void repeats(void **state)
{
    fixture f;
    int n = 0;

    (void)state;
    open_chain(GPT("6"), &by_bytes, &f);
    for (int b = 0; b < f.chain.n_block; b++) {
        const ct_net_block *k = &f.chain.block[b];

        assert_true(k->like <= b);
        assert_int_equal(f.chain.block[k->like].kept_bytes, k->kept_bytes);
        n += (k->like == b);
    }
    /* each copy is cut in front of ln1 and of ln2 */
    assert_true(f.chain.n_block >= 12);
    assert_true(n < f.chain.n_block / 2 + 3);
    close_chain(&f);
}

/* ---- plans */

#define CNN                                                                                        \
    GIVEN("x", "dim: 4 dim: 3 dim: 16 dim: 16")                                                    \
    GIVEN("y", "dim: 4")                                                                           \
    LAYER("c0", "Convolution", "x", "b0", "convolution_param { num_output: 16 kernel_size: 3 } ")  \
    "repeat { count: 7 prefix: "                                                                   \
    "'r%d_' bottom: 'b0' top: "                                                                    \
    "'b0'\n" LAYER("conv", "Convolution", "b0", "c",                                               \
                   "convolution_"                                                                  \
                   "param { "                                                                      \
                   "num_output: 16 "                                                               \
                   "kernel_size: 3 "                                                               \
                   "pad: 1 } ") LAYER("bn",                                                        \
                                      "BatchNor"                                                   \
                                      "m",                                                         \
                                      "c", "n", "") LAYER("scale", "Scale", "n", "n",              \
                                                          "scale_param { "                         \
                                                          "bias_term: "                            \
                                                          "true } ")                               \
        LAYER("relu", "ReLU", "n", "n", "")                                                        \
            JOIN("sum", "Eltwise", "b0", "n", "b0") "}\n" LAYER("po"                               \
                                                                "o"                                \
                                                                "l",                               \
                                                                "Po"                               \
                                                                "ol"                               \
                                                                "in"                               \
                                                                "g",                               \
                                                                "b"                                \
                                                                "0",                               \
                                                                "p",                               \
                                                                "po"                               \
                                                                "ol"                               \
                                                                "in"                               \
                                                                "g_"                               \
                                                                "pa"                               \
                                                                "ra"                               \
                                                                "m "                               \
                                                                "{ "                               \
                                                                "ke"                               \
                                                                "rn"                               \
                                                                "el"                               \
                                                                "_s"                               \
                                                                "iz"                               \
                                                                "e:"                               \
                                                                " 2"                               \
                                                                " s"                               \
                                                                "tr"                               \
                                                                "id"                               \
                                                                "e:"                               \
                                                                " 2"                               \
                                                                " }"                               \
                                                                " ") FC("fc", "p", "f", "10")      \
                LOSS("f")

/* The plan of a limit: what it says is what its net takes, at most the limit. */
static void check_plan(const fixture *f, const ct_net_plan_request *q, const ct_net_search *s)
{
    ct_text text = { 0 };
    ct_parallel *p = NULL;
    ct_net *net = NULL;

    assert_true(s->best.memory_bytes <= q->limit);
    assert_int_equal(s->best.memory_bytes,
                     s->best.weight_bytes + s->best.kept_bytes + s->best.transient_bytes);
    ct_net_plan_write(s, &text);
    assert_int_equal(ct_parallel_parse("plan", text.text, text.length, &p), CT_OK);
    assert_int_equal(ct_net_make_again(f->param, &f->options, p->again, p->n_again, &net), CT_OK);
    assert_int_equal(ct_parallel_bind(p, f->param, net), CT_OK);
    assert_int_equal((int64_t)(net->memory.planned + net->memory.weights), s->best.memory_bytes);
    ct_net_destroy(net);
    ct_parallel_destroy(p);
    ct_text_destroy(&text);
}

static void sweep(const char *text)
{
    fixture f;
    ct_net_plan_request q = { .limits = { 1e9, 1e9 } };
    ct_net_search s;
    int64_t whole, least, bytes[20];
    int n_fit = 0;

    open_chain(text, &q.limits, &f);
    q.param = f.param;
    q.options = &f.options;
    assert_int_equal(ct_net_search_run(&q, &s), CT_OK); /* no limit: everything is kept */
    assert_true(s.fits && (s.best.n_segment == 0));
    whole = s.whole.memory_bytes;
    ct_net_search_destroy(&s);
    for (int i = 0; i < 20; i++) { /* down to what nothing fits into */
        q.limit = whole - whole * i / 20;
        assert_int_equal(ct_net_search_run(&q, &s), CT_OK);
        assert_true(s.whole.memory_bytes == whole);
        if (s.fits) {
            check_plan(&f, &q, &s);
            assert_true(s.best.step_s >= s.whole.step_s);
            assert_true((s.best.n_segment > 0) == (i > 0));
            n_fit++;
        } else {
            assert_true(s.least_bytes > q.limit);
        }
        bytes[i] = s.least_bytes;
        ct_net_search_destroy(&s);
    }
    assert_true((n_fit > 2) && (n_fit < 20));
    least = bytes[19]; /* what it says would fit does, and a byte less does not */
    q.limit = least;
    assert_int_equal(ct_net_search_run(&q, &s), CT_OK);
    assert_true(s.fits);
    check_plan(&f, &q, &s);
    ct_net_search_destroy(&s);
    close_chain(&f);
}

static void sweep_cnn(void **state)
{
    (void)state;
    sweep(CNN);
}

static void sweep_gpt(void **state)
{
    (void)state;
    sweep(GPT("6"));
}

static void nothing_to_plan(void **state)
{
    static log_capture said;
    Ct__NetParameter *param = (Ct__NetParameter *)test_parsed(
        &ct__net_parameter__descriptor, DATA LAYER("t", "TanH", "x", "t", ""));
    ct_net_options o = { .phase = CT_TRAIN, .env = { .n_rank = 1 }, .no_data = true };
    ct_net_chain c;

    (void)state;
    log_capture_start(&said);
    assert_int_equal(ct_net_chain_make(param, &o, &by_bytes, &c), CT_ERR_CONFIG);
    log_capture_stop();
    assert_non_null(strstr(said.error, "no layer runs backward"));
    ct__net_parameter__free_unpacked(param, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts),
        cmocka_unit_test(sources_and_losses),
        cmocka_unit_test(groups),
        cmocka_unit_test(figures),
        cmocka_unit_test(shared_weights),
        cmocka_unit_test(repeats),
        cmocka_unit_test(sweep_cnn),
        cmocka_unit_test(sweep_gpt),
        cmocka_unit_test(nothing_to_plan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
