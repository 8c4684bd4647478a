/* Layers compute the same with channels in blocks as in plain order: tops, the bottom's gradient
 * and those of weights. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/net_layers.h"

#include "framework/base/simd.h"
#include "framework/tensor/tensor.h"
#include "layers/types/layer_types.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Block: y = x, in blocks of channels as wide as its flatten_param.axis says; 0: plain */

static int width_of(const ct_layer *l)
{
    return (l->param->flatten_param != NULL) ? l->param->flatten_param->axis : 0;
}

static ct_status block_reshape(const ct_layer *l, ct_instance *in)
{
    ct_blob_set_layout(in->top[0], &in->bottom[0]->data.shape,
                       (ct_layout){ .order = CT_ORDER_NCHW, .block = width_of(l) });
    return CT_OK;
}

static void move(const ct_tensor *from, const ct_tensor *to)
{
    int64_t n = from->shape.dim[0], c = from->shape.dim[1];
    int64_t s = ct_shape_count(&from->shape, 2, -1);

    if (ct_layout_equal(from->layout, to->layout))
        memcpy(to->data, from->data, ct_tensor_bytes(to));
    else if (to->layout.block > 0)
        ct_reorder_to_blocked(n, c, s, to->layout.block, from->data, to->data);
    else
        ct_reorder_to_plain(n, c, s, from->layout.block, from->data, to->data);
}

/* What fills up a block is set to something that would show. */
static void spoil(const ct_tensor *t)
{
    int64_t b = t->layout.block, c = t->shape.dim[1], s = ct_shape_count(&t->shape, 2, -1);
    int64_t n_block = (b > 0) ? (c + b - 1) / b : 0;
    float *x = t->data;

    for (int64_t i = 0; (b > 0) && (i < ct_tensor_stored(t)); i++) {
        if (i / (s * b) % n_block * b + i % b >= c) x[i] = 1000.0f;
    }
}

static ct_status block_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l, (void)ex;
    move(&in->bottom[0]->data, &in->top[0]->data);
    spoil(&in->top[0]->data);
    return CT_OK;
}

static ct_status block_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l, (void)ex;
    if (ct_blob_diff(in->bottom[0]) != NULL) move(&in->top[0]->diff, &in->bottom[0]->diff);
    return CT_OK;
}

static const ct_layer_ops block = { .type = "Block",
                                    .min_bottom = 1,
                                    .max_bottom = 1,
                                    .min_top = 1,
                                    .max_top = 1,
                                    .reshape = block_reshape,
                                    .forward = block_forward,
                                    .backward = block_backward };

/* ---- nets: sources in blocks, the layer, a square so that gradients differ, the loss */

typedef struct blocked_case {
    const char *layer; /* text; bottoms a (and b), top y */
    int n_bottom;
    bool takes; /* no Reorder before it */
} blocked_case;

static ct_status make(const blocked_case *c, const int64_t *dim, const int64_t *dim_b, int width,
                      test_net *t)
{
    char text[2048], source[256] = "", other[256] = "";
    ct_net_options o = { .phase = CT_TRAIN, .table = test_full_table(&block), .unshared = true };

    snprintf(source, sizeof(source),
             "layer { name: 'da' type: 'Source' top: 'da' input_param { shape { dim: %d dim: %d "
             "dim: %d dim: %d } } } layer { name: 'a' type: 'Block' bottom: 'da' top: 'a' "
             "flatten_param { axis: %d } }",
             (int)dim[0], (int)dim[1], (int)dim[2], (int)dim[3], width);
    if (c->n_bottom > 1)
        snprintf(other, sizeof(other),
                 "layer { name: 'db' type: 'Source' top: 'db' input_param { shape { dim: %d dim: "
                 "%d dim: %d dim: %d } } } layer { name: 'b' type: 'Block' bottom: 'db' top: 'b' "
                 "flatten_param { axis: %d } }",
                 (int)dim_b[0], (int)dim_b[1], (int)dim_b[2], (int)dim_b[3], width);
    snprintf(text, sizeof(text),
             "force_backward: true %s %s layer { name: 'it' %s top: 'y' } layer { name: 'q' type: "
             "'Square' bottom: 'y' top: 'q' } layer { name: 'loss' type: 'SumSq' bottom: 'q' top: "
             "'loss' }",
             source, other, c->layer);
    return test_net_create(text, &o, t);
}

static void near(const char *what, const blocked_case *c, int width, const float *x, const float *y,
                 int64_t n)
{
    double most = 0;

    /* sums of at most some thousand terms, in another order */
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs((double)x[i]));
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs((double)x[i] - (double)y[i]) <= 64 * 0x1p-24 * most + 1e-30))
            fail_msg("%s, blocks of %d: %s[%lld] is %g, in plain order %g", c->layer, width, what,
                     (long long)i, (double)y[i], (double)x[i]);
    }
}

static void compare_blob(const blocked_case *c, int width, const test_net *plain,
                         const test_net *blocked, const char *name, bool diff)
{
    int i = ct_net_find_blob(plain->net, name), k = ct_net_find_blob(blocked->net, name);
    const ct_blob *x, *y;

    assert_true((i >= 0) && (k >= 0));
    x = plain->net->pass->blob[i];
    y = blocked->net->pass->blob[k];
    assert_int_equal(y->data.layout.block, 0);
    near(name, c, width, diff ? ct_blob_diff(x) : ct_blob_data(x),
         diff ? ct_blob_diff(y) : ct_blob_data(y), ct_tensor_count(&x->data));
}

static void compare(const blocked_case *c, const int64_t *dim, const int64_t *dim_b, int width)
{
    test_net plain, blocked;
    int reorders = 0;

    assert_int_equal(make(c, dim, dim_b, 0, &plain), CT_OK);
    assert_int_equal(make(c, dim, dim_b, width, &blocked), CT_OK);
    for (int i = 0; i < blocked.net->n_layer; i++)
        reorders += (strcmp(blocked.net->layer[i]->ops->type, "Reorder") == 0);
    if (c->takes)
        assert_true(reorders <= 1); /* before Square; none where it is plain order anyway */
    else
        assert_true(reorders >= 1);
    for (int64_t step = 0; step < 2; step++) {
        double one = test_net_pass(&plain, step, step == 1);
        double two = test_net_pass(&blocked, step, step == 1);

        assert_true(fabs(one - two) <= 1e-5 * fabs(one));
        compare_blob(c, width, &plain, &blocked, "q", false);
        compare_blob(c, width, &plain, &blocked, "da", true);
        if (c->n_bottom > 1) compare_blob(c, width, &plain, &blocked, "db", true);
        near("weights", c, width, plain.net->grad_arena, blocked.net->grad_arena,
             plain.net->grad_count);
    }
    test_net_destroy(&plain);
    test_net_destroy(&blocked);
}

#define A  "bottom: 'a'"
#define AB "bottom: 'a' bottom: 'b'"

static void as_in_plain_order(void **state)
{
    static const blocked_case c[] = {
        { "type: 'ReLU' " A, 1, true },
        { "type: 'ReLU' " A " relu_param { negative_slope: 0.1 }", 1, true },
        { "type: 'GELU' " A, 1, true },
        { "type: 'Sigmoid' " A, 1, true },
        { "type: 'ReLU6' " A, 1, true },
        { "type: 'Exp' " A, 1, false },
        { "type: 'PReLU' " A " prelu_param { filler { type: 'uniform' } }", 1, true },
        { "type: 'PReLU' " A " prelu_param { channel_shared: true }", 1, true },
        { "type: 'Scale' " A " scale_param { bias_term: true filler { value: 2 } }", 1, true },
        { "type: 'Scale' " A " scale_param { axis: 0 num_axes: -1 filler { value: 2 } }", 1,
          false },
        { "type: 'Bias' " A " bias_param { axis: -3 }", 1, true },
        { "type: 'BatchNorm' " A, 1, true },
        { "type: 'BatchNorm' " A " batch_norm_param { use_global_stats: true }", 1, true },
        { "type: 'Pooling' " A " pooling_param { kernel_size: 3 stride: 2 }", 1, true },
        { "type: 'Pooling' " A " pooling_param { pool: AVE kernel_size: 3 stride: 1 pad: 1 }", 1,
          true },
        { "type: 'Pooling' " A " pooling_param { pool: AVE global_pooling: true }", 1, true },
        { "type: 'Pooling' " A " pooling_param { kernel_size: 2 stride: 3 round_mode: FLOOR }", 1,
          true },
        { "type: 'Pooling' " A " pooling_param { kernel_size: 3 stride: 1 pad: 1 }", 1, true },
        { "type: 'Pooling' " A
          " pooling_param { kernel_h: 2 kernel_w: 5 stride: 2 pad_h: 1 pad_w: 4 }",
          1, true },
        { "type: 'Pooling' " A " pooling_param { global_pooling: true }", 1, true },
        { "type: 'Pooling' " A " pooling_param { kernel_size: 4 stride: 1 pool: AVE pad: 2 }", 1,
          true },
        { "type: 'LRN' " A " lrn_param { local_size: 5 alpha: 0.5 }", 1, true },
        { "type: 'LRN' " A
          " lrn_param { local_size: 5 alpha: 0.5 } ct_kernel { backward_data: 'ref' "
          "}",
          1, true },
        { "type: 'LRN' " A " lrn_param { local_size: 5 alpha: 0.5 } ct_kernel { forward: 'ref' }",
          1, true },
        { "type: 'LRN' " A " lrn_param { local_size: 3 alpha: 2 beta: 0.6 k: 1.5 }", 1, true },
        { "type: 'LRN' " A " lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL }", 1, false },
        { "type: 'Pooling' " A " pooling_param { kernel_size: 3 stride: 2 } ct_kernel { forward: "
          "'ref' backward_data: 'ref' }",
          1, true },
        { "type: 'Pooling' " A " pooling_param { pool: AVE kernel_size: 3 } ct_kernel { forward: "
          "'ref' backward_data: 'ref' }",
          1, true },
        { "type: 'LRN' " A " lrn_param { local_size: 5 alpha: 0.5 } ct_kernel { forward: 'ref' "
          "backward_data: 'ref' }",
          1, true },
        { "type: 'Eltwise' " AB, 2, true },
        { "type: 'Eltwise' " AB " eltwise_param { operation: PROD }", 2, true },
        { "type: 'Eltwise' " AB " eltwise_param { operation: MAX }", 2, true },
        { "type: 'Flatten' " A, 1, false },
        { "type: 'InnerProduct' " A
          " inner_product_param { num_output: 3 weight_filler { type: 'xavier' } }",
          1, false },
    };
    static const int64_t dim[][4] = {
        { 2, 16, 5, 6 }, { 3, 19, 7, 5 }, { 1, 3, 9, 4 }, { 9, 40, 3, 3 }
    };

    (void)state;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        for (size_t k = 0; k < sizeof(dim) / sizeof(dim[0]); k++) {
            compare(&c[i], dim[k], dim[k], 16);
            compare(&c[i], dim[k], dim[k], 8);
        }
    }
}

/* Whole blocks stay, the last may be partly filled; others go to plain order. */
static void concat(void **state)
{
    static const int64_t whole[] = { 2, 32, 3, 5 }, part[] = { 2, 19, 3, 5 };
    static const blocked_case stays = { "type: 'Concat' " AB, 2, true };
    static const blocked_case old = { "type: 'Concat' " AB " concat_param { concat_dim: 1 }", 2,
                                      true };
    static const blocked_case goes = { "type: 'Concat' " AB, 2, false };
    static const blocked_case other = { "type: 'Concat' " AB " concat_param { axis: 0 }", 2,
                                        false };

    (void)state;
    for (int width = 8; width <= 16; width += 8) {
        compare(&stays, whole, part, width);
        compare(&stays, whole, whole, width);
        compare(&old, whole, whole, width);
        compare(&goes, part, whole, width);
        compare(&other, part, part, width);
    }
}

/* In place, one behind the other, as nets have them. */
static void in_place(void **state)
{
    static const int64_t dim[] = { 3, 19, 7, 5 };
    static const blocked_case c = {
        "type: 'BatchNorm' bottom: 'a' top: 'a' } layer { name: 's' type: 'Scale' bottom: 'a' top: "
        "'a' scale_param { bias_term: true } } layer { name: 'r' type: 'ReLU' bottom: 'a' top: 'a' "
        "} layer { name: 'p' type: 'Pooling' bottom: 'a' pooling_param { kernel_size: 3 }",
        1, true
    };

    (void)state;
    compare(&c, dim, dim, 16);
    compare(&c, dim, dim, 8);
}

static void convolution(void **state)
{
#define CONV(fields)                                                                               \
    "type: 'Convolution' " A " convolution_param { " fields                                        \
    " weight_filler { type: 'xavier' } bias_filler { type: 'constant' value: 0.1 } }"
    static const struct {
        blocked_case c;
        int64_t channels;
    } k[] = {
        { { CONV("num_output: 32 kernel_size: 3 pad: 1"), 1, true }, 19 },
        { { CONV("num_output: 21 kernel_size: 3 stride: 2"), 1, true }, 32 },
        { { CONV("num_output: 40 kernel_size: 1"), 1, true }, 16 },
        { { CONV("num_output: 32 kernel_size: 5 pad: 2 group: 2"), 1, true }, 32 },
        { { CONV("num_output: 48 kernel_size: 3 group: 48"), 1, true }, 48 },
        { { CONV("num_output: 6 kernel_size: 3 group: 3"), 1, false }, 9 },
        { { CONV("num_output: 32 kernel_size: 3 pad: 1") " ct_kernel { forward: 'gemm' }", 1,
            false },
          19 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(k) / sizeof(k[0]); i++) {
        int64_t dim[] = { 3, k[i].channels, 9, 7 };

        compare(&k[i].c, dim, dim, ct_simd_block());
    }
}

#define KERNEL(engine)                                                                             \
    "ct_kernel { forward: '" engine "' backward_data: '" engine "' backward_weight: '" engine "' " \
    "}"
#define NET(engine)                                                                                \
    "layer { name: 'd' type: 'Source' top: 'd' input_param { shape { dim: 4 dim: 3 dim: 17 dim: "  \
    "15 } } } layer { name: 'a' type: 'Convolution' bottom: 'd' top: 'a' convolution_param { "     \
    "num_output: 32 kernel_size: 5 stride: 2 pad: 2 weight_filler { type: 'msra' } } " KERNEL(     \
        engine) " } layer { name: 'r' type: 'ReLU' bottom: 'a' top: 'a' } layer { name: 'n' "      \
                "type: 'LRN' bottom: 'a' top: 'n' } layer { name: 'b' type: 'Convolution' "        \
                "bottom: 'n' top: 'b' convolution_param { num_output: 24 kernel_size: 3 "          \
                "weight_filler { type: 'msra' } } " KERNEL(                                        \
                    engine) " } layer { name: 'q' type: 'Concat' bottom: 'b' bottom: 'b' top: "    \
                            "'q' } layer { name: 'p' type: 'Pooling' bottom: 'q' top: 'p' "        \
                            "pooling_param { pool: AVE kernel_size: 2 stride: 2 } } layer { "      \
                            "name: 'i' type: 'InnerProduct' bottom: 'p' top: 'i' "                 \
                            "inner_product_param { num_output: 7 weight_filler { type: 'xavier' "  \
                            "} } } layer { name: 'loss' type: 'SumSq' bottom: 'i' top: 'loss' }"

/* From images to a product, as nets are: blocks from the first layer on, against plain order. */
static void from_images_on(void **state)
{
    ct_net_options o = { .phase = CT_TRAIN, .table = test_full_table(&block) };
    test_net plain, blocked;
    static const blocked_case c = { "a net", 1, true };

    (void)state;
    assert_int_equal(test_net_create(NET("gemm"), &o, &plain), CT_OK);
    assert_int_equal(test_net_create(NET("auto"), &o, &blocked), CT_OK);
    assert_int_equal(blocked.net->pass->blob[ct_net_find_blob(blocked.net, "a")]->data.layout.block,
                     ct_simd_block());
    for (int64_t step = 0; step < 3; step++) {
        double one = test_net_pass(&plain, step, step == 2);
        double two = test_net_pass(&blocked, step, step == 2);

        assert_true(fabs(one - two) <= 1e-5 * fabs(one));
        assert_int_equal(plain.net->grad_count, blocked.net->grad_count);
        near("weights", &c, ct_simd_block(), plain.net->grad_arena, blocked.net->grad_arena,
             plain.net->grad_count);
    }
    test_net_destroy(&plain);
    test_net_destroy(&blocked);
}

#define TWO(engine)                                                                                \
    "layer { name: 'd' type: 'Source' top: 'd' input_param { shape { dim: 4 dim: 3 dim: 17 dim: "  \
    "15 } } } layer { name: 'a' type: 'Convolution' bottom: 'd' top: 'a' convolution_param { "     \
    "num_output: 32 kernel_size: 5 weight_filler { type: 'msra' } } } layer { name: 'b' type: "    \
    "'Convolution' bottom: 'a' top: 'b' convolution_param { num_output: 32 kernel_size: 3 pad: 1 " \
    "weight_filler { type: 'msra' } } " engine                                                     \
    " } layer { name: 'loss' type: 'SumSq' bottom: 'b' top: 'loss' }"

static test_net two(const char *text, Ct__SolverParameter__Winograd winograd)
{
    ct_net_options o = { .phase = CT_TRAIN, .table = test_full_table(&block) };
    test_net t;

    o.env.winograd = winograd;
    assert_int_equal(test_net_create(text, &o, &t), CT_OK);
    (void)test_net_pass(&t, 0, false);
    return t;
}

static bool same_gradients(const test_net *a, const test_net *b)
{
    return memcmp(a->net->grad_arena, b->net->grad_arena,
                  (size_t)a->net->grad_count * sizeof(float)) == 0;
}

/* The solver's `winograd` says which tiles there may be: bits tell which there were. */
static void winograd_limit(void **state)
{
    test_net blocked = two(TWO(KERNEL("blocked")), CT__SOLVER_PARAMETER__WINOGRAD__F4);
    test_net f4 = two(TWO(KERNEL("winograd")), CT__SOLVER_PARAMETER__WINOGRAD__F4);
    test_net f2 = two(TWO(KERNEL("winograd")), CT__SOLVER_PARAMETER__WINOGRAD__F2);
    const test_net *want[] = { &f4, &f2, &blocked }; /* as F4, F2, NEVER are numbered */

    (void)state;
    assert_false(same_gradients(&blocked, &f4));
    assert_false(same_gradients(&f2, &f4));
    for (int i = 0; i < 3; i++) {
        test_net any = two(TWO(""), (Ct__SolverParameter__Winograd)i);

        assert_true(same_gradients(&any, want[i]));
        test_net_destroy(&any);
    }
    test_net_destroy(&blocked), test_net_destroy(&f4), test_net_destroy(&f2);
}

/* ToBlocks, with fewer channels than a block, one block, and a part of one: what is read behind it
 * and the gradient in front of it are those of the net without it, bit for bit. */
static void to_blocks_and_back(void **state)
{
    static const int channels[] = { 3, 16, 19, 45 };

    (void)state;
    for (size_t k = 0; k < sizeof(channels) / sizeof(channels[0]); k++) {
        test_net net[2];
        const ct_blob *blob[2];
        double loss[2];

        for (int with = 0; with < 2; with++) {
            ct_net_options o = { .phase = CT_TRAIN,
                                 .table = test_full_table(&block),
                                 .unshared = true };
            char text[1024];

            snprintf(
                text, sizeof(text),
                "force_backward: true layer { name: 'd' type: 'Source' top: 'd' input_param { "
                "shape { dim: 2 dim: %d dim: 5 dim: 3 } } } layer { name: 'x' type: '%s' bottom: "
                "'d' top: 'x' } layer { name: 'q' type: 'Square' bottom: 'x' top: 'q' } layer { "
                "name: 'loss' type: 'SumSq' bottom: 'q' top: 'loss' }",
                channels[k], (with == 1) ? "ToBlocks" : "Pass");
            assert_int_equal(test_net_create(text, &o, &net[with]), CT_OK);
            loss[with] = test_net_pass(&net[with], 0, false);
            blob[with] = net[with].net->pass->blob[ct_net_find_blob(net[with].net, "d")];
        }
        assert_int_equal(net[1].net->pass->instance[1]->top[0]->data.layout.block,
                         (channels[k] < ct_simd_block()) ? 0 : ct_simd_block());
        assert_true(loss[0] == loss[1]);
        test_same(ct_blob_diff(blob[1]), ct_blob_diff(blob[0]), ct_tensor_count(&blob[0]->diff),
                  "the gradient in front of ToBlocks");
        for (int with = 0; with < 2; with++) test_net_destroy(&net[with]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_in_plain_order),
        cmocka_unit_test(to_blocks_and_back),
        cmocka_unit_test(concat),
        cmocka_unit_test(in_place),
        cmocka_unit_test(convolution),
        cmocka_unit_test(from_images_on),
        cmocka_unit_test(winograd_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
