/* Blocks that are made again in backward: the bits of a net that keeps everything, less memory, and
 * which layers run a second time. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/log_capture.h"
#include "tests/net_layers.h"

#include "framework/net/net_impl.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define LAYER(name, type, bottom, top, more)                                                       \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " more " }\n"
#define JOIN(name, type, a, b, top, more)                                                          \
    "layer { name: '" name "' type: '" type "' bottom: '" a "' bottom: '" b "' top: '" top         \
    "' " more " }\n"
#define GIVEN(name, top, dims, filler)                                                             \
    "layer { name: '" name "' type: 'DummyData' top: '" top "' dummy_data_param { shape { " dims   \
    " } data_filler { " filler " } } }\n"
#define LABEL GIVEN("labels", "label", "dim: 6", "value: 2")
#define ROWS  GIVEN("data", "x", "dim: 6 dim: 24", "type: 'gaussian' std: 1") LABEL
#define IMAGES                                                                                     \
    GIVEN("data", "data", "dim: 6 dim: 3 dim: 9 dim: 7", "type: 'gaussian' std: 1")                \
    LABEL LAYER("first", "Convolution", "data", "x", CONV_PARAM("3", "pad: 1"))
#define CONV_PARAM(k, more)                                                                        \
    "convolution_param { num_output: 8 kernel_size: " k " " more                                   \
    " weight_filler { type: 'msra' } bias_filler { value: 0.1 } }"
#define FC(name, bottom, top, n)                                                                   \
    LAYER(name, "InnerProduct", bottom, top,                                                       \
          "inner_product_param { num_output: " n " weight_filler { type: 'xavier' } "              \
          "bias_filler { value: 0.1 } }")
#define END(bottom)                                                                                \
    FC("head", bottom, "o", "5") JOIN("loss", "SoftmaxWithLoss", "o", "label", "l", "")
#define REPEAT(count, layers)                                                                      \
    "repeat { count: " count " prefix: 'h%d_' bottom: 'x' top: 'x'\n" layers "}\n"

/* as in a transformer, less its attention */
#define BEFORE                                                                                     \
    LAYER("norm", "LayerNorm", "x", "n", "")                                                       \
    FC("fc", "n", "f", "96")                                                                       \
    LAYER("gelu", "GELU", "f", "g", "")                                                            \
    LAYER("drop", "Dropout", "g", "g", "dropout_param { dropout_ratio: 0.3 }")                     \
    FC("proj", "g", "p", "24") JOIN("sum", "Eltwise", "x", "p", "x", "")
/* both sums; of the first, and of that of the block before, a norm and another sum are made */
#define SUMS(norm)                                                                                 \
    LAYER("one", norm, "x", "n", "")                                                               \
    FC("mix", "n", "m", "24")                                                                      \
    JOIN("add", "Eltwise", "x", "m", "y", "")                                                      \
    LAYER("two", norm, "y", "k", "")                                                               \
    FC("fc", "k", "f", "96")                                                                       \
    LAYER("act", "TanH", "f", "f", "")                                                             \
    FC("proj", "f", "p", "24") JOIN("sum", "Eltwise", "y", "p", "x", "")
/* … and what lies behind the blocks */
#define LAST LAYER("last", "LayerNorm", "x", "z", "") END("z")
/* the norm at the end: what it writes goes out */
#define BEHIND                                                                                     \
    FC("fc", "x", "f", "40")                                                                       \
    LAYER("relu", "ReLU", "f", "f", "")                                                            \
    LAYER("drop", "Dropout", "f", "f", "")                                                         \
    FC("proj", "f", "p", "24")                                                                     \
    JOIN("sum", "Eltwise", "x", "p", "s", "") LAYER("norm", "LayerNorm", "s", "x", "")

static const struct {
    const char *name, *text;
} model[] = {
    { "norm before", ROWS REPEAT("4", BEFORE) END("x") },
    { "sums", ROWS REPEAT("3", SUMS("LayerNorm")) LAST },
    { "sums of squares", ROWS REPEAT("3", SUMS("RMSNorm")) END("x") },
    { "norm behind", ROWS REPEAT("3", BEHIND) END("x") },
    { "images", /* statistics, groups, masks of maxima, what goes out is changed in place */
      IMAGES REPEAT(
          "3", LAYER("start", "ReLU", "x", "a", "") LAYER("conv", "Convolution", "a", "c",
                                                          CONV_PARAM("3", "pad: 1"))
                   LAYER("bn", "BatchNorm", "c", "c", "") LAYER(
                       "scale", "Scale", "c", "c",
                       "scale_param { bias_term: true filler { type: 'uniform' min: 0.5 max: 1 } }")
                       LAYER("relu", "ReLU", "c", "c", "") LAYER("drop", "Dropout", "c", "c", "")
                           LAYER("pool", "Pooling", "c", "m",
                                 "pooling_param { kernel_size: 3 stride: 1 pad: 1 }")
                               LAYER("last", "Convolution", "m", "d", CONV_PARAM("1", ""))
                                   JOIN("sum", "Eltwise", "a", "d", "x", "")
                                       LAYER("end", "ReLU", "x", "x", "")) END("x") },
    { "branches", /* a blob from outside, other views of one memory, several tops, a nested one */
      ROWS GIVEN("outside", "seg", "dim: 6 dim: 24", "type: 'gaussian' std: 1") REPEAT(
          "2",
          "layer { name: 'cut' type: 'Slice' bottom: 'x' top: 'a' top: 'b' slice_param { axis: 1 } "
          "}\n" LAYER("view", "Reshape", "a", "v",
                      "reshape_param { shape { dim: 0 dim: 3 dim: 4 } }") LAYER("sharp", "TanH",
                                                                                "v", "v", "")
              LAYER("flat", "Flatten", "v", "w", "") JOIN("both", "Concat", "w", "b", "z", "") JOIN(
                  "with", "Eltwise", "z", "seg", "t",
                  "eltwise_param { operation: PROD }") "repeat { count: 2 prefix: 'i%d_' bottom: "
                                                       "'t' top: 't'\n" FC("in", "t", "u", "24")
                                                           LAYER("act", "Sigmoid", "u", "u", "")
                                                               JOIN(
                                                                   "max", "Eltwise", "u", "t", "t",
                                                                   "eltwise_param { operation: MAX "
                                                                   "}") "}\n" JOIN("sum", "Eltwise",
                                                                                   "x", "t", "x",
                                                                                   "")) END("x") },
    { "overwritten", /* memory that is kept changes after what would run again has read it */
      ROWS GIVEN("outside", "seg", "dim: 6 dim: 24", "type: 'gaussian' std: 1") REPEAT(
          "3", JOIN("add", "Eltwise", "x", "seg", "d", "") LAYER("tanh", "TanH", "d", "t", "")
                   FC("fc", "t", "w", "96") LAYER("act", "Sigmoid", "w", "v", "")
                       FC("fc2", "v", "e", "24") LAYER("view", "Flatten", "x", "f", "")
                           LAYER("relu", "ReLU", "f", "f", "relu_param { negative_slope: 0.5 }")
                               JOIN("sum", "Eltwise", "f", "e", "x", "")) END("x") },
    { "losses", /* a loss in each block, weights of all blocks together */
      ROWS REPEAT("3", LAYER("fc", "InnerProduct", "x", "f",
                             "param { name: 'w' } param { name: 'b' } inner_product_param { "
                             "num_output: 24 weight_filler { type: 'xavier' } }")
                           LAYER("elu", "ELU", "f", "e", "") LAYER("drop", "Dropout", "e", "d", "")
                               JOIN("sum", "Eltwise", "x", "d", "x", "")
                                   JOIN("aside", "SoftmaxWithLoss", "d", "label", "aside",
                                        "loss_weight: 0.3")) END("x") },
};
enum { N_MODEL = sizeof(model) / sizeof(model[0]) };

static void make(const char *text, ct_net_options o, bool poison, test_net *t)
{
    o.table = ct_layer_table;
    o.phase = CT_TRAIN;
    if (poison) setenv("CORTADO_POISON", "1", 1);
    assert_int_equal(test_net_create(text, &o, t), CT_OK);
    unsetenv("CORTADO_POISON");
    t->net->pass->exec.seed = 5;
    t->net->pass->exec.deterministic = true;
}

static int n_again(const ct_net *net)
{
    int n = 0;

    for (int j = 0; j < net->n_backward; j++) n += (net->backward[j].kind == CT_STEP_AGAIN);
    return n;
}

static void step(ct_net *net)
{
    for (int k = 0; k < net->n_param; k++) {
        const ct_param *p = &net->param[k];

        for (int64_t i = 0; p->learns && (i < p->count); i++)
            ct_blob_data(&p->blob)[i] -= 0.05f * ct_blob_diff(&p->blob)[i];
    }
    ct_net_weights_changed(net);
}

static void same_params(const ct_net *a, const ct_net *b, const char *what)
{
    assert_int_equal(a->n_param, b->n_param);
    for (int k = 0; k < a->n_param; k++) {
        const ct_param *p = &a->param[k], *q = &b->param[k];
        char text[160];

        assert_string_equal(p->key, q->key);
        snprintf(text, sizeof(text), "%s: %s", what, p->key);
        test_same(ct_blob_data(&p->blob), ct_blob_data(&q->blob), p->count, text);
        if (p->learns) test_same(ct_blob_diff(&p->blob), ct_blob_diff(&q->blob), p->count, text);
    }
}

/* Steps of two micro-batches each, of a net that keeps everything and one with these options. */
static void alike(const char *name, const char *text, const ct_net_options *o, bool saves)
{
    test_net never, blocks;

    make(text, (ct_net_options){ .recompute = CT__RECOMPUTE__NEVER }, false, &never);
    make(text, *o, true, &blocks);
    assert_int_equal(blocks.net->recompute, CT__RECOMPUTE__BLOCKS);
    assert_int_equal(n_again(never.net), 0);
    if (saves) {
        assert_true(n_again(blocks.net) > 0);
        assert_true(blocks.net->memory.planned < never.net->memory.planned);
    }
    for (int micro = 0; micro < 8; micro++) {
        double a = test_net_pass(&never, micro, (micro % 2) == 1);
        double b = test_net_pass(&blocks, micro, (micro % 2) == 1);

        if (!isfinite(a) || (a != b)) fail_msg("%s: loss %.17g, of blocks %.17g", name, a, b);
        same_params(never.net, blocks.net, name);
        if ((micro % 2) == 0) continue;
        step(never.net);
        step(blocks.net);
    }
    test_net_destroy(&never);
    test_net_destroy(&blocks);
}

static void train_alike(const char *name, const char *text, int n_thread)
{
    omp_set_num_threads(n_thread);
    alike(name, text, &(ct_net_options){ .recompute = CT__RECOMPUTE__BLOCKS }, true);
}

static void bits_of_a_net_that_keeps_all(void **state)
{
    int n = omp_get_max_threads();

    (void)state;
    for (int i = 0; i < N_MODEL; i++) {
        for (int n_thread = 1; n_thread <= 3; n_thread++)
            train_alike(model[i].name, model[i].text, n_thread);
    }
    omp_set_num_threads(n);
}

/* The layers that run in backward, those again with a star. */
static char *write_backward(const ct_net *net)
{
    static char text[4096];
    size_t n = 0;

    for (int j = 0; j < net->n_backward; j++) {
        const ct_step *s = &net->backward[j];

        if ((s->kind != CT_STEP_AGAIN) && (s->kind != CT_STEP_BACKWARD)) continue;
        if (strstr(net->layer[s->layer]->name, "split") != NULL) continue;
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s ",
                              (s->kind == CT_STEP_AGAIN) ? "*" : "", net->layer[s->layer]->name);
    }
    return text;
}

static void a_block_runs_before_its_backward(void **state)
{
    test_net t;

    (void)state;
    make(ROWS REPEAT("2", BEFORE) END("x"),
         (ct_net_options){ .recompute = CT__RECOMPUTE__BLOCKS, .no_fuse = true }, false, &t);
    /* the sum's top is kept, and nothing reads what it adds */
    assert_string_equal(
        write_backward(t.net),
        "loss head *h1_norm *h1_fc *h1_gelu *h1_drop h1_sum h1_proj h1_drop h1_gelu h1_fc h1_norm "
        "*h0_norm *h0_fc *h0_gelu *h0_drop h0_sum h0_proj h0_drop h0_gelu h0_fc h0_norm ");
    test_net_destroy(&t);
}

/* ---- segments that the options name */

/* Segments of `length` layers each, one behind the other, in the order of the net's message. */
static int cut(const Ct__NetParameter *net, int length, ct_net_segment *s)
{
    int n = 0;

    for (size_t i = 0; i < net->n_layer; i += (size_t)length) {
        size_t last = i + (size_t)length - 1;

        last = (last < net->n_layer) ? last : net->n_layer - 1;
        s[n++] = (ct_net_segment){ net->layer[i]->name, net->layer[last]->name };
    }
    return n;
}

/* Wherever segments begin and end, within copies of repeats and across, the bits are the same. */
static void bits_with_any_segments(void **state)
{
    int n = omp_get_max_threads();

    (void)state;
    omp_set_num_threads(2);
    for (int i = 0; i < N_MODEL; i++) {
        test_net t;
        ct_net_segment s[100];

        make(model[i].text, (ct_net_options){ .recompute = CT__RECOMPUTE__NEVER }, false, &t);
        assert_true(t.param->n_layer < 100);
        for (int length = 2; length <= 8; length += 3) {
            ct_net_options o = { .again = s, .n_again = cut(t.param, length, s) };

            alike(model[i].name, model[i].text, &o, false);
        }
        test_net_destroy(&t);
    }
    omp_set_num_threads(n);
}

/* Segments that are the copies of a repeat are the same blocks. */
static void segments_are_blocks(void **state)
{
    static const char *text = ROWS REPEAT("3", BEFORE) END("x");
    static const ct_net_segment copies[] = { { "h0_norm", "h0_sum" },
                                             { "h1_norm", "h1_sum" },
                                             { "h2_norm", "h2_sum" } };
    ct_net_options o = { .recompute = CT__RECOMPUTE__CHEAP, .again = copies, .n_again = 3 };
    test_net named, blocks;
    char list[4096];

    (void)state;
    make(text, o, false, &named);
    snprintf(list, sizeof(list), "%s", write_backward(named.net));
    make(text, (ct_net_options){ .recompute = CT__RECOMPUTE__BLOCKS }, false, &blocks);
    assert_string_equal(list, write_backward(blocks.net));
    assert_int_equal(named.net->memory.planned, blocks.net->memory.planned);
    assert_int_equal(ct_net_hash(named.net), ct_net_hash(blocks.net));
    test_net_destroy(&named);
    test_net_destroy(&blocks);
}

/* Of a net without a repeat, and of one whose copies are not named. */
static void segments_alone_run_again(void **state)
{
    static const char *flat = ROWS FC("fc1", "x", "a", "96") LAYER("tanh1", "TanH", "a", "b", "")
        FC("fc2", "b", "c", "96") LAYER("tanh2", "TanH", "c", "d", "")
            LAYER("drop", "Dropout", "d", "d", "") FC("fc3", "d", "e", "96")
                LAYER("tanh3", "TanH", "e", "f", "") END("f");
    static const ct_net_segment first = { "fc1", "fc2" }, second = { "h1_norm", "h1_sum" };
    ct_net_options o = { .again = &first, .n_again = 1, .no_fuse = true };
    test_net t;

    (void)state;
    make(flat, o, false, &t);
    assert_string_equal(write_backward(t.net),
                        "loss head tanh3 fc3 drop tanh2 *fc1 *tanh1 fc2 tanh1 fc1 ");
    test_net_destroy(&t);
    alike("flat", flat, &o, true);
    o.again = &second;
    make(ROWS REPEAT("2", BEFORE) END("x"), o, false, &t);
    assert_string_equal(
        write_backward(t.net),
        "loss head *h1_norm *h1_fc *h1_gelu *h1_drop h1_sum h1_proj h1_drop h1_gelu h1_fc h1_norm "
        "h0_sum h0_proj h0_drop h0_gelu h0_fc h0_norm ");
    test_net_destroy(&t);
}

/* Layers that another phase has count where a segment ends, and tests make nothing again. */
static void segments_in_phases(void **state)
{
    static const char *text = ROWS FC("fc1", "x", "a", "96") LAYER("tanh1", "TanH", "a", "b", "")
        FC("fc2", "b", "c", "96") LAYER("aside", "Softmax", "c", "q", "include { phase: TEST }")
            LAYER("tanh2", "TanH", "c", "d", "") END("d");
    static const ct_net_segment segment = { "fc1", "aside" };
    ct_net_options o = { .again = &segment, .n_again = 1, .no_fuse = true };
    test_net t;

    (void)state;
    make(text, o, false, &t);
    assert_string_equal(write_backward(t.net), "loss head tanh2 *fc1 *tanh1 fc2 tanh1 fc1 ");
    test_net_destroy(&t);
    o.forward_only = true;
    make(text, o, false, &t);
    assert_int_equal(t.net->recompute, CT__RECOMPUTE__NEVER);
    test_net_destroy(&t);
}

static const char *runner_of(const ct_net *net, const char *name)
{
    int i = 0;

    while (strcmp(net->layer[i]->name, name) != 0) i++;
    return net->layer[ct_net_runner(net, i)]->name;
}

/* A sum and its norm run as one, and run again as one within a block. Of two blocks the norm alone
 * runs again, of the sum that is kept. The bits are those of layers that run alone and once. */
static void a_sum_runs_again_with_its_norm(void **state)
{
    static const char *text = ROWS REPEAT("2", SUMS("LayerNorm")) LAST;
    ct_net_options o = { .recompute = CT__RECOMPUTE__BLOCKS };
    test_net blocks, alone;

    (void)state;
    make(text, o, true, &blocks);
    assert_string_equal(runner_of(blocks.net, "h0_one"), "h0_one"); /* no sum is in front */
    assert_string_equal(runner_of(blocks.net, "h0_two"), "h0_add");
    assert_string_equal(runner_of(blocks.net, "h1_one"), "h0_sum");
    assert_string_equal(runner_of(blocks.net, "h1_two"), "h1_add");
    assert_string_equal(runner_of(blocks.net, "last"), "h1_sum");
    assert_string_equal(write_backward(blocks.net),
                        "loss head h1_sum *h1_one *h1_mix *h1_add *h1_fc *h1_act h1_proj h1_act "
                        "h1_fc h1_add h1_mix h0_sum *h0_one *h0_mix *h0_add *h0_fc *h0_act "
                        "h0_proj h0_act h0_fc h0_add h0_mix h0_one ");
    o = (ct_net_options){ .recompute = CT__RECOMPUTE__NEVER, .no_fuse = true };
    make(text, o, false, &alone);
    for (int micro = 0; micro < 4; micro++) {
        double a = test_net_pass(&alone, micro, false), b = test_net_pass(&blocks, micro, false);

        if (!isfinite(a) || (a != b)) fail_msg("loss %.17g, of blocks %.17g", a, b);
        same_params(alone.net, blocks.net, "sums");
        step(alone.net);
        step(blocks.net);
    }
    test_net_destroy(&blocks);
    test_net_destroy(&alone);
}

/* Not where what the norm makes leaves the block: the sum would be kept for it. */
static void a_norm_that_ends_a_block_runs_alone(void **state)
{
    ct_net_options o = { .recompute = CT__RECOMPUTE__BLOCKS };
    test_net t;

    (void)state;
    make(ROWS REPEAT("2", BEHIND) END("x"), o, false, &t);
    assert_string_equal(runner_of(t.net, "h0_norm"), "h0_norm");
    test_net_destroy(&t);
    o.recompute = CT__RECOMPUTE__NEVER;
    make(ROWS REPEAT("2", BEHIND) END("x"), o, false, &t);
    assert_string_equal(runner_of(t.net, "h0_norm"), "h0_sum");
    test_net_destroy(&t);
}

/* A mask of bits is kept where only for it a product would run again; where its input is made for
 * others, it is made, too. */
static void a_product_is_not_run_for_a_mask(void **state)
{
    static const char *text =
        ROWS REPEAT("2", FC("fc", "x", "f", "96") LAYER("relu", "ReLU", "f", "r", "")
                             FC("proj", "r", "p", "24") LAYER("drop", "Dropout", "p", "p", "")
                                 JOIN("sum", "Eltwise", "x", "p", "x", "")) END("x");
    test_net t;

    (void)state;
    make(text, (ct_net_options){ .recompute = CT__RECOMPUTE__BLOCKS, .no_fuse = true }, false, &t);
    assert_string_equal(write_backward(t.net),
                        "loss head *h1_fc *h1_relu h1_sum h1_drop h1_proj h1_relu h1_fc "
                        "*h0_fc *h0_relu h0_sum h0_drop h0_proj h0_relu h0_fc ");
    test_net_destroy(&t);
    train_alike("mask", text, 2);
}

static size_t peak_of(const char *text, Ct__Recompute recompute, bool no_fuse)
{
    test_net t;
    size_t bytes;

    make(text, (ct_net_options){ .recompute = recompute, .no_fuse = no_fuse }, false, &t);
    bytes = t.net->memory.peak_alive;
    assert_true(t.net->memory.planned >= bytes);
    test_net_destroy(&t);
    return bytes;
}

static size_t peak(const char *text, Ct__Recompute recompute)
{
    return peak_of(text, recompute, false);
}

#define WIDE                                                                                       \
    GIVEN("data", "x", "dim: 64 dim: 24", "type: 'gaussian' std: 1")                               \
    GIVEN("labels", "label", "dim: 64", "value: 2")

/* A further block keeps what it reads, and nothing else. */
static void a_block_costs_what_it_reads(void **state)
{
    const char *few = WIDE REPEAT("4", BEFORE) END("x"), *many = WIDE REPEAT("9", BEFORE) END("x");
    size_t read = 64 * 24 * sizeof(float), hidden = 64 * 96 * sizeof(float);

    (void)state;
    assert_int_equal(peak(many, CT__RECOMPUTE__BLOCKS) - peak(few, CT__RECOMPUTE__BLOCKS),
                     5 * read);
    /* kept, there are two wide values more, the mask, and the norm's */
    assert_true(peak(many, CT__RECOMPUTE__NEVER) - peak(few, CT__RECOMPUTE__NEVER) >=
                5 * (read + 2 * hidden));
}

static void refuses_nothing_without_blocks(void **state)
{
    static const char *text =
        IMAGES LAYER("bn", "BatchNorm", "x", "x", "") LAYER("relu", "ReLU", "x", "x", "")
            LAYER("c", "Convolution", "x", "c", CONV_PARAM("1", "")) END("c");
    log_capture c;
    test_net t;

    (void)state;
    log_capture_start(&c);
    make(text, (ct_net_options){ .recompute = CT__RECOMPUTE__BLOCKS }, false, &t);
    log_capture_stop();
    assert_int_equal(t.net->recompute, CT__RECOMPUTE__CHEAP);
    assert_int_equal(ct_net_impl_of(t.net)->n_again, 1);
    assert_int_equal(n_again(t.net), 0);
    test_net_destroy(&t);
}

/* Nor does one whose sums run with their norms, of which one is in the next block. */
static void groups_keep_no_more(void **state)
{
    const char *few = WIDE REPEAT("4", SUMS("LayerNorm")) LAST;
    const char *many = WIDE REPEAT("9", SUMS("LayerNorm")) LAST;
    size_t read = 64 * 24 * sizeof(float);
    Ct__Recompute blocks = CT__RECOMPUTE__BLOCKS;

    (void)state;
    assert_int_equal(peak(many, blocks) - peak(few, blocks), 5 * read);
    assert_true(peak(many, blocks) <= peak_of(many, blocks, true));
}

/* Layers with effects of their own run once: a BatchNorm alone, and state from batch to batch. */
static void runs_once_what_changes_more(void **state)
{
    static const char *text =
        ROWS REPEAT("2", FC("fc", "x", "f", "24") LAYER("bn", "BatchNorm", "f", "b", "")
                             LAYER("tanh", "TanH", "b", "t", "") FC("end", "t", "x", "24"))
            END("x");
    test_net never, blocks;

    (void)state;
    make(text, (ct_net_options){ .no_fuse = true }, false, &never);
    make(text, (ct_net_options){ .recompute = CT__RECOMPUTE__BLOCKS, .no_fuse = true }, true,
         &blocks);
    /* the norm's input is made for it alone, its top is kept */
    assert_string_equal(write_backward(blocks.net),
                        "loss head *h1_fc *h1_tanh h1_end h1_tanh h1_bn h1_fc "
                        "*h0_fc *h0_tanh h0_end h0_tanh h0_bn h0_fc ");
    for (int micro = 0; micro < 4; micro++) {
        assert_true(test_net_pass(&never, micro, false) == test_net_pass(&blocks, micro, false));
        same_params(never.net, blocks.net, "alone");
        step(never.net);
        step(blocks.net);
    }
    test_net_destroy(&never);
    test_net_destroy(&blocks);
}

/* AUTO by what memory holds: everything, blocks, or nobody knows. */
static void auto_goes_by_the_limit(void **state)
{
    static const char *text = WIDE REPEAT("6", BEFORE) END("x");
    ct_net_options o = { .recompute = CT__RECOMPUTE__AUTO, .state_bytes = 8 };
    test_net t;
    double never;

    (void)state;
    make(text, o, false, &t);
    assert_int_equal(t.net->recompute, CT__RECOMPUTE__NEVER);
    never =
        (double)(t.net->memory.planned + t.net->memory.weights) + 8.0 * (double)t.net->grad_count;
    test_net_destroy(&t);
    o.memory_limit = never / 0.9 + 1;
    make(text, o, false, &t);
    assert_int_equal(t.net->recompute, CT__RECOMPUTE__NEVER);
    test_net_destroy(&t);
    o.memory_limit = never / 0.9 - 1;
    make(text, o, true, &t);
    assert_int_equal(t.net->recompute, CT__RECOMPUTE__BLOCKS);
    assert_true(n_again(t.net) > 0);
    (void)test_net_pass(&t, 0, false);
    test_net_destroy(&t);
}

/* Of the net and the options the larger counts; forward alone makes nothing again. */
static void what_is_asked_for(void **state)
{
    static const char *text = "recompute: BLOCKS\n" ROWS REPEAT("2", BEFORE) END("x");
    ct_net_options o = { .recompute = CT__RECOMPUTE__CHEAP };
    test_net t;

    (void)state;
    make(text, o, false, &t);
    assert_int_equal(t.net->recompute, CT__RECOMPUTE__BLOCKS);
    test_net_destroy(&t);
    o.forward_only = true;
    make(text, o, false, &t);
    assert_int_equal(t.net->recompute, CT__RECOMPUTE__NEVER);
    test_net_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_of_a_net_that_keeps_all),
        cmocka_unit_test(a_block_runs_before_its_backward),
        cmocka_unit_test(bits_with_any_segments),
        cmocka_unit_test(segments_are_blocks),
        cmocka_unit_test(segments_alone_run_again),
        cmocka_unit_test(segments_in_phases),
        cmocka_unit_test(a_sum_runs_again_with_its_norm),
        cmocka_unit_test(a_norm_that_ends_a_block_runs_alone),
        cmocka_unit_test(a_product_is_not_run_for_a_mask),
        cmocka_unit_test(a_block_costs_what_it_reads),
        cmocka_unit_test(groups_keep_no_more),
        cmocka_unit_test(refuses_nothing_without_blocks),
        cmocka_unit_test(runs_once_what_changes_more),
        cmocka_unit_test(auto_goes_by_the_limit),
        cmocka_unit_test(what_is_asked_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
