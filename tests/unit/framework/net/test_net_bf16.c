/* Nets whose solver says BF16: gradients near those of F32, by root mean square, and not the same;
 * the same bits for any number of threads; with bf16's instruction and without it the same within
 * what f32 sums may differ. */
#include "tests/test.h"
#include "tests/conv_case.h"
#include "tests/net_layers.h"

#include "framework/base/simd.h"
#include "framework/net/net_impl.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define CONV(name, bottom, engine)                                                                 \
    "layer { name: '" name "' type: 'Convolution' bottom: '" bottom "' top: '" name                \
    "' convolution_param { num_output: 32 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } "   \
    "} " engine " } "
#define ENGINE(name)                                                                               \
    "ct_kernel { forward: '" name "' backward_data: '" name "' backward_weight: '" name "' }"

/* Blocked, Winograd, plain order, and a product. */
static const char images[] =
    "layer { name: 'd' type: 'Source' top: 'd' input_param { shape { dim: 4 dim: 3 dim: 17 dim: 15 "
    "} } } " CONV("a", "d", "") CONV("b", "a", ENGINE("blocked")) CONV("c", "b", ENGINE("winograd"))
        CONV("g", "c",
             ENGINE("gemm")) "layer { name: 'i' type: 'InnerProduct' bottom: 'g' top: 'i' "
                             "inner_product_param { num_output: 37 weight_filler { type: 'xavier' "
                             "} } } "
                             "layer { name: 'loss' type: 'SumSq' bottom: 'i' top: 'loss' }";

static test_net run(const char *text, Ct__SolverParameter__Precision precision, int threads)
{
    ct_net_options o = { .phase = CT_TRAIN, .table = test_full_table(NULL) };
    test_net t;
    int before = omp_get_max_threads();

    omp_set_num_threads(threads);
    o.env.precision = precision;
    assert_int_equal(test_net_create(text, &o, &t), CT_OK);
    (void)test_net_pass(&t, 0, false);
    omp_set_num_threads(before);
    return t;
}

static double difference(const test_net *a, const test_net *b)
{
    const float *x = a->net->grad_arena, *y = b->net->grad_arena;
    double error = 0.0, size = 0.0;

    assert_int_equal(a->net->grad_count, b->net->grad_count);
    for (int64_t i = 0; i < a->net->grad_count; i++) {
        error += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        size += (double)y[i] * (double)y[i];
    }
    assert_true(size > 0.0);
    return sqrt(error / size);
}

static const char *engine(const test_net *t, const char *layer, ct_run_kind kind)
{
    for (int i = 0; i < t->net->n_layer; i++) {
        ct_estimate e;

        if (strcmp(t->net->layer[i]->name, layer) != 0) continue;
        ct_net_estimate(t->net, i, &e);
        return e.engine[kind];
    }
    fail_msg("no layer %s", layer);
    return NULL;
}

static void near_f32(void)
{
    test_net f32 = run(images, CT__SOLVER_PARAMETER__PRECISION__F32, 2);
    test_net bf16 = run(images, CT__SOLVER_PARAMETER__PRECISION__BF16, 2);
    test_net one = run(images, CT__SOLVER_PARAMETER__PRECISION__BF16, 1);
    double off = difference(&bf16, &f32);

    /* a layer adds some 2^-8.5 of noise, Winograd's three times that; five of them, both ways */
    if (!((off > 1e-4) && (off < 0.04))) fail_msg("%g off", off);
    assert_true(difference(&one, &bf16) < 1e-6); /* plain order: bits may differ */
    assert_string_equal(engine(&bf16, "b", CT_RUN_FORWARD), "blocked-bf16");
    assert_string_equal(engine(&bf16, "c", CT_RUN_BACKWARD_WEIGHT), "winograd-bf16");
    assert_string_equal(engine(&bf16, "g", CT_RUN_BACKWARD_DATA), "gemm-bf16");
    assert_string_equal(engine(&bf16, "i", CT_RUN_FORWARD), "packed-bf16");
    assert_string_equal(engine(&f32, "b", CT_RUN_FORWARD), "blocked");
    test_net_destroy(&f32), test_net_destroy(&bf16), test_net_destroy(&one);
}

static void test_near_f32(void **state)
{
    (void)state;
    conv_case_each_bf16(near_f32);
}

/* The instruction adds pairs in its own order and rounding; a value near a tie of bf16 may then
 * round otherwise in the next layer. */
static void test_emulated(void **state)
{
    test_net fast = run(images, CT__SOLVER_PARAMETER__PRECISION__BF16, 2), slow;

    (void)state;
    assert_true(setenv("CORTADO_SIMD", "avx512", 1) == 0);
    assert_false(ct_simd_has_bf16());
    slow = run(images, CT__SOLVER_PARAMETER__PRECISION__BF16, 2);
    assert_true(unsetenv("CORTADO_SIMD") == 0);
    assert_true(difference(&fast, &slow) < 0.004);
    test_net_destroy(&fast), test_net_destroy(&slow);
}

/* ---- values between layers in bf16: all that takes them, and some that do not */

#define LAYER(name, type, bottoms, top, more)                                                      \
    "layer { name: '" name "' type: '" type "' " bottoms " top: '" top "' " more " } "
#define HALF_1 "0"
#define HALF_3 "1"
#define HALF_5 "2"
#define KERNEL(size, stride, out)                                                                  \
    "convolution_param { num_output: " #out " kernel_size: " #size " stride: " #stride             \
    " pad: " HALF_##size " weight_filler { type: 'msra' } bias_filler { value: 0.1 } }"
#define PRODUCT "inner_product_param { num_output: 9 weight_filler { type: 'xavier' } }"

static const char mixed[] =
    "layer { name: 'd' type: 'Source' top: 'd' input_param { shape { dim: 6 dim: 3 dim: 33 dim: 31 "
    "} } } "
    /* clang-format off */
    LAYER("c1", "Convolution", "bottom: 'd'", "c1", KERNEL(5, 1, 48))
    LAYER("r1", "ReLU", "bottom: 'c1'", "c1", "")
    LAYER("p1", "Pooling", "bottom: 'c1'", "p1", "pooling_param { kernel_size: 3 stride: 2 }")
    LAYER("n1", "LRN", "bottom: 'p1'", "n1", "lrn_param { local_size: 5 alpha: 0.1 }")
    LAYER("c2", "Convolution", "bottom: 'n1'", "c2", KERNEL(3, 2, 64))
    LAYER("b2", "BatchNorm", "bottom: 'c2'", "b2", "")
    LAYER("s2", "Scale", "bottom: 'b2'", "b2", "scale_param { bias_term: true }")
    LAYER("r2", "ReLU", "bottom: 'b2'", "b2", "")
    LAYER("c3", "Convolution", "bottom: 'b2'", "c3", KERNEL(1, 1, 64))
    LAYER("b3", "BatchNorm", "bottom: 'c3'", "b3", "")
    LAYER("s3", "Scale", "bottom: 'b3'", "b3", "scale_param { bias_term: true }")
    LAYER("c4", "Convolution", "bottom: 'b2'", "c4", KERNEL(3, 1, 64))
    LAYER("e", "Eltwise", "bottom: 'b3' bottom: 'c4'", "e", "")
    LAYER("r3", "ReLU", "bottom: 'e'", "e", "")
    LAYER("t", "TanH", "bottom: 'e'", "t", "")
    LAYER("k", "Concat", "bottom: 'e' bottom: 'c4'", "k", "")
    LAYER("g", "Pooling", "bottom: 'k'", "g", "pooling_param { pool: AVE global_pooling: true }")
    LAYER("i", "InnerProduct", "bottom: 'g'", "i", PRODUCT)
    LAYER("u", "Pooling", "bottom: 't'", "u", "pooling_param { pool: AVE global_pooling: true }")
    LAYER("j", "InnerProduct", "bottom: 'u'", "j", PRODUCT)
    LAYER("loss", "SumSq", "bottom: 'i'", "loss", "") LAYER("l2", "SumSq", "bottom: 'j'", "l2", "");
/* clang-format on */

static test_net run_mixed(Ct__SolverParameter__Precision precision, int threads, bool fuse,
                          bool recompute)
{
    ct_net_options o = {
        .phase = CT_TRAIN, .table = test_full_table(NULL), .no_fuse = !fuse, .recompute = recompute
    };
    int before = omp_get_max_threads();
    test_net t;

    omp_set_num_threads(threads);
    o.env.precision = precision;
    assert_int_equal(test_net_create(mixed, &o, &t), CT_OK);
    (void)test_net_pass(&t, 0, false);
    omp_set_num_threads(before);
    return t;
}

static ct_dtype dtype_of(const test_net *t, const char *blob)
{
    return t->net->pass->blob[ct_net_find_blob(t->net, blob)]->data.dtype;
}

static size_t value_bytes(const test_net *t)
{
    size_t bytes = 0;

    for (int i = 0; i < t->net->n_blob; i++) bytes += ct_tensor_bytes(&t->net->pass->blob[i]->data);
    return bytes;
}

static void stored(void)
{
    test_net f32 = run_mixed(CT__SOLVER_PARAMETER__PRECISION__F32, 2, true, false);
    test_net bf16 = run_mixed(CT__SOLVER_PARAMETER__PRECISION__BF16, 2, true, false);
    test_net one = run_mixed(CT__SOLVER_PARAMETER__PRECISION__BF16, 1, true, false);
    test_net apart = run_mixed(CT__SOLVER_PARAMETER__PRECISION__BF16, 3, false, false);
    test_net made_again = run_mixed(CT__SOLVER_PARAMETER__PRECISION__BF16, 2, true, true);
    double off = difference(&bf16, &f32);
    size_t bytes = (size_t)bf16.net->grad_count * sizeof(float);

    /* some 2^-8.5 of noise a layer and a stored value; about twelve of them, both ways */
    if (!((off > 1e-3) && (off < 0.06))) fail_msg("%g off", off);
    off = difference(&apart, &f32);
    if (!((off > 1e-3) && (off < 0.08))) fail_msg("%g off, each layer alone", off);
    assert_true(difference(&one, &bf16) < 1e-6); /* fully connected layers' sums */
    assert_memory_equal(made_again.net->grad_arena, bf16.net->grad_arena, bytes);
    assert_int_equal(dtype_of(&bf16, "c1"), CT_BF16);
    assert_int_equal(dtype_of(&bf16, "n1"), CT_BF16);
    assert_int_equal(dtype_of(&bf16, "k"), CT_BF16);
    assert_int_equal(dtype_of(&bf16, "t"), CT_F32);
    assert_int_equal(dtype_of(&bf16, "i"), CT_F32);
    assert_int_equal(dtype_of(&f32, "c1"), CT_F32);
    assert_true(10 * value_bytes(&bf16) < 7 * value_bytes(&f32)); /* with those of the casts */
    test_net_destroy(&f32), test_net_destroy(&bf16), test_net_destroy(&one);
    test_net_destroy(&apart), test_net_destroy(&made_again);
}

static void test_stored(void **state)
{
    (void)state;
    conv_case_each_bf16(stored);
}

/* ---- language models: rows of tokens are bf16 from the table on to the last norm */

enum { TOKENS = 2 * 67, WORDS = 41 };
#define TABLE                                                                                      \
    "layer { name: 't' type: 'Given' top: 't' input_param { shape { dim: 2 dim: 67 } } } "         \
    "layer { name: 'w' type: 'Given' top: 'w' input_param { shape { dim: 2 dim: 67 } } } "         \
    "layer { name: 'e' type: 'Embed' bottom: 't' top: 'e' param { name: 'table' } embed_param { "  \
    "num_output: 48 input_dim: 41 bias_term: false weight_filler { type: 'gaussian' std: 1 } } } "
#define IP(n) "inner_product_param { axis: 2 num_output: " #n " weight_filler { type: 'xavier' } }"
#define HEAD                                                                                       \
    "layer { name: 'h' type: 'InnerProduct' bottom: 'f' top: 'h' param { name: 'table' } "         \
    "inner_product_param { axis: 2 num_output: 41 bias_term: false } } "                           \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'h' bottom: 'w' top: 'loss' "            \
    "softmax_param { axis: 2 } }"
#define NORM_1 "layer { name: 'n' type: 'LayerNorm' bottom: 'x' top: 'n' } "
#define GPT_BLOCK                                                                                  \
    "repeat { count: 2 prefix: 'b%d_' bottom: 'x' top: 'x' " NORM_1                                \
    "layer { name: 'q' type: 'InnerProduct' bottom: 'n' top: 'q' " IP(                             \
        144) " } "                                                                                 \
             "layer { name: 'a' type: 'Attention' bottom: 'q' top: 'a' attention_param { "         \
             "num_heads: 3 "                                                                       \
             "causal: true dropout: 0.1 } } "                                                      \
             "layer { name: 'p' type: 'InnerProduct' bottom: 'a' top: 'p' " IP(                    \
                 48) " } "                                                                         \
                     "layer { name: 'd' type: 'Dropout' bottom: 'p' top: 'p' dropout_param { "     \
                     "dropout_ratio: 0.1 } "                                                       \
                     "} "                                                                          \
                     "layer { name: 's' type: 'Eltwise' bottom: 'x' bottom: 'p' top: 's' } "       \
                     "layer { name: 'm' type: 'LayerNorm' bottom: 's' top: 'm' } "                 \
                     "layer { name: 'u' type: 'InnerProduct' bottom: 'm' top: 'u' " IP(            \
                         192) " } "                                                                \
                              "layer { name: 'g' type: 'GELU' bottom: 'u' top: 'u' } "             \
                              "layer { name: 'v' type: 'InnerProduct' bottom: 'u' top: 'v' " IP(   \
                                  48) " } "                                                        \
                                      "layer { name: 'r' type: 'Eltwise' bottom: 's' bottom: 'v' " \
                                      "top: 'x' } } "
#define LLAMA_BLOCK                                                                                \
    "repeat { count: 2 prefix: 'b%d_' bottom: 'x' top: 'x' "                                       \
    "layer { name: 'n' type: 'RMSNorm' bottom: 'x' top: 'n' } "                                    \
    "layer { name: 'q' type: 'InnerProduct' bottom: 'n' top: 'q' " IP(                             \
        80) " } "                                                                                  \
            "layer { name: 'a' type: 'Attention' bottom: 'q' top: 'a' attention_param { "          \
            "num_heads: 3 "                                                                        \
            "num_kv_heads: 1 causal: true rope { } } } "                                           \
            "layer { name: 'p' type: 'InnerProduct' bottom: 'a' top: 'p' " IP(                     \
                48) " } "                                                                          \
                    "layer { name: 's' type: 'Eltwise' bottom: 'x' bottom: 'p' top: 's' } "        \
                    "layer { name: 'm' type: 'RMSNorm' bottom: 's' top: 'm' } "                    \
                    "layer { name: 'u' type: 'InnerProduct' bottom: 'm' top: 'u' " IP(             \
                        192) " } "                                                                 \
                             "layer { name: 'g' type: 'SwiGLU' bottom: 'u' top: 'g' } "            \
                             "layer { name: 'v' type: 'InnerProduct' bottom: 'g' top: 'v' " IP(    \
                                 48) " } "                                                         \
                                     "layer { name: 'r' type: 'Eltwise' bottom: 's' bottom: 'v' "  \
                                     "top: 'x' } } "

static const char gpt[] =
    TABLE "layer { name: 'o' type: 'Position' bottom: 'e' top: 'x' position_param { max_length: 67 "
          "weight_filler { type: 'gaussian' std: 0.5 } } } " GPT_BLOCK
          "layer { name: 'f' type: 'LayerNorm' bottom: 'x' top: 'f' } " HEAD;
static const char llama[] =
    TABLE "layer { name: 'o' type: 'Split' bottom: 'e' top: 'x' } " LLAMA_BLOCK
          "layer { name: 'f' type: 'RMSNorm' bottom: 'x' top: 'f' } " HEAD;

static float *given(const test_net *t, const char *name)
{
    return ct_blob_data(t->net->pass->blob[ct_net_find_blob(t->net, name)]);
}

static test_net run_language(const char *text, Ct__SolverParameter__Precision precision,
                             int threads, ct_net_options o, double *loss_p)
{
    int before = omp_get_max_threads();
    test_net t;

    omp_set_num_threads(threads);
    o.table = test_full_table(NULL);
    o.env.precision = precision;
    assert_int_equal(test_net_create(text, &o, &t), CT_OK);
    for (int i = 0; i < TOKENS; i++) {
        given(&t, "t")[i] = (float)((i * 17 + i / 5) % WORDS);
        given(&t, "w")[i] = (float)((i * 29 + i / 3) % WORDS);
    }
    *loss_p = test_net_pass(&t, 0, false);
    omp_set_num_threads(before);
    return t;
}

static void same_gradients(const test_net *a, const test_net *b)
{
    assert_memory_equal(a->net->grad_arena, b->net->grad_arena,
                        (size_t)a->net->grad_count * sizeof(float));
}

/* Each of the 2 x 8 layers that a value passes rounds it, and its gradient on the way back, by 2^-8
 * of itself at most, some 2^-9.8 by root mean square. Products round their operands likewise, two
 * each. Roundings are independent, so noise adds by squares: sqrt(2 x 16 x 3) 2^-9.8 = 0.011. Norms
 * and softmax divide by what is about 1 here. The bound is four times as much. */
static void check_language(const char *text, const char *const *names, int n)
{
    ct_net_options o = { .phase = CT_TRAIN }, blocks = o;
    double exact, loss, again;
    test_net f32 = run_language(text, CT__SOLVER_PARAMETER__PRECISION__F32, 2, o, &exact);
    test_net bf16 = run_language(text, CT__SOLVER_PARAMETER__PRECISION__BF16, 1, o, &loss), other;
    double off = difference(&bf16, &f32);

    if (!((off > 1e-4) && (off < 0.045))) fail_msg("gradients %g off", off);
    if (!(fabs(loss - exact) < 0.011 * exact)) fail_msg("loss %g, in f32 %g", loss, exact);
    for (int i = 0; i < n; i++) {
        assert_int_equal(dtype_of(&bf16, names[i]), CT_BF16);
        assert_int_equal(dtype_of(&f32, names[i]), CT_F32);
    }
    assert_int_equal(dtype_of(&bf16, "h"), CT_F32);
    for (int threads = 2; threads <= 3; threads++) {
        other = run_language(text, CT__SOLVER_PARAMETER__PRECISION__BF16, threads, o, &again);
        assert_true(again == loss);
        same_gradients(&other, &bf16);
        test_net_destroy(&other);
    }
    blocks.recompute = CT__RECOMPUTE__BLOCKS;
    other = run_language(text, CT__SOLVER_PARAMETER__PRECISION__BF16, 2, blocks, &again);
    assert_true(again == loss);
    same_gradients(&other, &bf16);
    test_net_destroy(&other);
    o.no_fuse = true;
    other = run_language(text, CT__SOLVER_PARAMETER__PRECISION__BF16, 2, o, &again);
    off = difference(&other, &f32);
    if (!(off < 0.045)) fail_msg("gradients %g off, each layer alone", off);
    test_net_destroy(&other), test_net_destroy(&f32), test_net_destroy(&bf16);
}

static void language(void)
{
    static const char *const of_gpt[] = {
        "e", "b0_n", "b0_q", "b0_a", "b0_p", "b0_s", "b1_u", "f"
    };
    static const char *const of_llama[] = {
        "e", "b0_n", "b0_q", "b0_a", "b0_p", "b0_s", "b1_g", "f"
    };

    check_language(gpt, of_gpt, 8);
    check_language(llama, of_llama, 8);
}

static void test_language(void **state)
{
    (void)state;
    conv_case_each_bf16(language);
}

/* ---- a head that runs with its loss reads rows of bf16, and hands such gradients on */

enum { ROWS = 2 * 271, CLASSES = 16411 };

static test_net run_head(Ct__SolverParameter__Precision precision, bool fuse, bool ignores,
                         double *loss_p)
{
    static const char text[] =
        "layer { name: 't' type: 'Given' top: 't' input_param { shape { dim: 2 dim: 271 } } } "
        "layer { name: 'w' type: 'Given' top: 'w' input_param { shape { dim: 2 dim: 271 } } } "
        "layer { name: 'e' type: 'Embed' bottom: 't' top: 'e' embed_param { num_output: 24 "
        "input_dim: 97 bias_term: false weight_filler { type: 'gaussian' std: 1 } } } "
        "layer { name: 'f' type: 'LayerNorm' bottom: 'e' top: 'f' } "
        "layer { name: 'h' type: 'InnerProduct' bottom: 'f' top: 'h' inner_product_param { axis: 2 "
        "num_output: 16411 weight_filler { type: 'gaussian' std: 0.5 } bias_filler { type: "
        "'gaussian' std: 0.5 } } } "
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'h' bottom: 'w' top: 'loss' "
        "softmax_param { axis: 2 } loss_param { ignore_label: %d } }";
    ct_net_options o = { .phase = CT_TRAIN, .table = test_full_table(NULL), .no_fuse = !fuse };
    char with[2048];
    test_net t;

    o.env.precision = precision;
    snprintf(with, sizeof(with), text, ignores ? 5 : -1);
    assert_int_equal(test_net_create(with, &o, &t), CT_OK);
    for (int i = 0; i < ROWS; i++) {
        given(&t, "t")[i] = (float)(i * 17 % 97);
        given(&t, "w")[i] = (float)((i % 3 == 0) ? 5 : i * 131 % CLASSES);
    }
    *loss_p = test_net_pass(&t, 0, false);
    assert_int_equal(ct_net_runner(t.net, ct_net_find_layer(t.net, "loss")) ==
                         ct_net_find_layer(t.net, "h"),
                     fuse);
    return t;
}

/* One by one layers add up rows in another order: in f32, but for values near a tie of bf16, which
 * may round otherwise, by 2^-8 of themselves. */
static void test_head(void **state)
{
    (void)state;
    for (int ignores = 0; ignores < 2; ignores++) {
        double exact, loss, alone;
        test_net f32 = run_head(CT__SOLVER_PARAMETER__PRECISION__F32, true, ignores == 1, &exact);
        test_net bf16 = run_head(CT__SOLVER_PARAMETER__PRECISION__BF16, true, ignores == 1, &loss);
        test_net one = run_head(CT__SOLVER_PARAMETER__PRECISION__BF16, false, ignores == 1, &alone);
        double off = difference(&bf16, &f32);

        assert_int_equal(dtype_of(&bf16, "f"), CT_BF16);
        if (!((off > 1e-4) && (off < 0.045))) fail_msg("gradients %g off", off);
        if (!(fabs(loss - exact) < 0.011 * exact)) fail_msg("loss %g, in f32 %g", loss, exact);
        off = difference(&bf16, &one);
        if (!(off < 0x1p-8)) fail_msg("gradients %g off those of the layers alone", off);
        assert_true(fabs(loss - alone) < 1e-5 * alone);
        test_net_destroy(&f32), test_net_destroy(&bf16), test_net_destroy(&one);
    }
}

/* Tests of few rows keep the weights that they packed, until these change. */
static void test_kept_weights(void **state)
{
    static const char text[] =
        "layer { name: 'd' type: 'Given' top: 'd' input_param { shape { dim: 3 dim: 5 dim: 70 } } }"
        "layer { name: 'i' type: 'InnerProduct' bottom: 'd' top: 'i' inner_product_param { axis: 2 "
        "num_output: 33 weight_filler { type: 'uniform' min: -1 max: 1 } } }";
    ct_net_options o = { .phase = CT_TEST, .table = test_full_table(NULL) };
    double unused;
    test_net t;

    (void)state;
    o.env.precision = CT__SOLVER_PARAMETER__PRECISION__BF16;
    assert_int_equal(test_net_create(text, &o, &t), CT_OK);
    for (int pass = 0; pass < 3; pass++) {
        float *w = t.net->weight_arena, *x = given(&t, "d");

        for (int i = 0; i < 15 * 70; i++) x[i] = (float)(i * 7 % 31 - 15) / 16;
        if (pass == 2) {
            for (int i = 0; i < 33 * 70; i++) w[i] *= 2;
            ct_net_weights_changed(t.net);
        }
        assert_int_equal(ct_pass_forward(t.net->pass, &unused), CT_OK);
        for (int i = 0; i < 15 * 33; i++) {
            double sum = 0, size = 0;

            for (int q = 0; q < 70; q++) {
                double term = (double)x[i / 33 * 70 + q] * (double)w[i % 33 * 70 + q];

                sum += term;
                size += fabs(term);
            }
            /* x are bf16 numbers, weights are rounded; f32's sum */
            assert_true(fabs((double)given(&t, "i")[i] - sum) <= (0x1p-8 + 70 * 0x1p-24) * size);
        }
    }
    test_net_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near_f32),     cmocka_unit_test(test_emulated),
        cmocka_unit_test(test_stored),       cmocka_unit_test(test_language),
        cmocka_unit_test(test_kept_weights), cmocka_unit_test(test_head),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
