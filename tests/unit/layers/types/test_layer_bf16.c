/* Layers on values in bf16: tops and the gradients of bottoms and weights are those of f32, rounded
 * as often as they are stored; shapes and blocks of any kind, alone and in groups. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/net_layers.h"

#include "framework/base/bf16.h"
#include "layers/types/layer_types.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* Rounding to bf16 moves a number by U of itself at most; sums in f32 by far less. */
#define U 0x1p-8

/* ---- Give: the bottom, rounded to bf16, in blocks of flatten_param.axis channels, stored as bf16
 * where end_axis is 1, else as f32. So both kinds of nets start from the same numbers. */

static ct_status give_reshape(const ct_layer *l, ct_instance *in)
{
    ct_layout layout = { .order = CT_ORDER_NCHW, .block = l->param->flatten_param->axis };

    ct_blob_set_storage(in->top[0], &in->bottom[0]->data.shape, layout,
                        (l->param->flatten_param->end_axis == 1) ? CT_BF16 : CT_F32);
    return CT_OK;
}

/* Number i of a plain array with the shape of t, in t; channels that fill up a block: -1. */
static int64_t plain_index(const ct_tensor *t, int64_t i)
{
    int64_t b = (t->layout.block > 0) ? t->layout.block : 1, c = t->shape.dim[1];
    int64_t s = ct_shape_count(&t->shape, 2, -1), n_block = (c + b - 1) / b;
    int64_t channel = i / (s * b) % n_block * b + i % b;

    return (channel < c) ? (i / (n_block * s * b) * c + channel) * s + i / b % s : -1;
}

static ct_status give_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_tensor *t = &in->top[0]->data;
    const float *x = ct_blob_data(in->bottom[0]);
    bool bf16 = ct_blob_is_bf16(in->top[0]);

    (void)l, (void)ex;
    for (int64_t i = 0; i < ct_tensor_stored(t); i++) {
        int64_t from = plain_index(t, i);
        float value = (from >= 0) ? x[from] : 1000.0f;

        ct_num_put(t->data, bf16, i, ct_bf16_to_f32(ct_bf16_from_f32(value)));
    }
    return CT_OK;
}

static ct_status give_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_tensor *t = &in->top[0]->diff;
    float *dx = ct_blob_diff(in->bottom[0]);

    (void)l, (void)ex;
    if (dx == NULL) return CT_OK;
    for (int64_t i = 0; i < ct_tensor_stored(t); i++) {
        int64_t to = plain_index(t, i);

        if (to >= 0) dx[to] = ct_num_get(t->data, ct_blob_is_bf16(in->top[0]), i);
    }
    return CT_OK;
}

static const ct_layer_ops give = { .type = "Give",
                                   .min_bottom = 1,
                                   .max_bottom = 1,
                                   .min_top = 1,
                                   .max_top = 1,
                                   .reshape = give_reshape,
                                   .forward = give_forward,
                                   .backward = give_backward };

/* ---- nets: a (and b) in blocks; layers from them to y; the loss is sum of y w, so that y gets the
 * gradient w, which is bf16 already, whatever y is */

typedef struct bf16_case {
    const char *layers; /* text; bottoms a and b, top y                                  */
    bool stays;         /* no Cast and no Reorder but that behind y                      */
    int top, bottom;    /* roundings of y, of the bottoms' gradients                     */
    int mixed;          /* of these, such that terms of sums are rounded, which may cancel */
    bool sum;           /* weights' gradients see rounded terms                          */
} bf16_case;

static const char source[] =
    "layer { name: 'd%s' type: 'Source' top: 'd%s' input_param { shape { dim: %d dim: %d dim: %d "
    "dim: %d } } } layer { name: '%s' type: 'Give' bottom: 'd%s' top: '%s' flatten_param { axis: "
    "%d end_axis: %d } } ";

static int add_source(char *text, size_t size, const char *name, const int64_t *dim, int width,
                      bool bf16)
{
    return snprintf(text, size, source, name, name, (int)dim[0], (int)dim[1], (int)dim[2],
                    (int)dim[3], name, name, name, width, bf16 ? 1 : -1);
}

/* unshared: all values can be looked at when the pass is over. */
static test_net make(const bf16_case *c, const int64_t *dim, const int64_t *y, int width, bool bf16,
                     bool fuse, bool unshared)
{
    char text[8192];
    ct_net_options o = { .phase = CT_TRAIN, .table = test_full_table(&give), .no_fuse = !fuse };
    test_net t;
    int at;

    o.unshared = unshared;
    at = snprintf(text, sizeof(text), "force_backward: true ");
    at += add_source(text + at, sizeof(text) - (size_t)at, "a", dim, width, bf16);
    if (strstr(c->layers, "bottom: 'b'") != NULL)
        at += add_source(text + at, sizeof(text) - (size_t)at, "b", dim, width, bf16);
    at += add_source(text + at, sizeof(text) - (size_t)at, "w", y, 0, false);
    snprintf(text + at, sizeof(text) - (size_t)at,
             "%s layer { name: 'q' type: 'Eltwise' bottom: 'y' bottom: 'w' top: 'q' eltwise_param "
             "{ operation: PROD } } layer { name: 'sum' type: 'Reduction' bottom: 'q' top: 'sum' "
             "loss_weight: 1 }",
             c->layers);
    if (test_net_create(text, &o, &t) != CT_OK) fail_msg("%s", text);
    (void)test_net_pass(&t, 0, false);
    return t;
}

static double largest(const float *x, int64_t n)
{
    double most = 0;

    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs((double)x[i]));
    return most;
}

/* f32's own sums, in another order: 64 units of the largest. */
static void near(const bf16_case *c, int width, const char *what, const float *want,
                 const float *got, int64_t n, int roundings, int mixed)
{
    double most = largest(want, n), sums = 64 * 0x1p-24;

    for (int64_t i = 0; i < n; i++) {
        double limit = roundings * U * (1 + U) * fabs((double)want[i]) + (mixed * U + sums) * most;

        if (!(fabs((double)want[i] - (double)got[i]) <= limit + 1e-30))
            fail_msg("%s, blocks of %d: %s[%lld] is %g, in f32 %g, within %g", c->layers, width,
                     what, (long long)i, (double)got[i], (double)want[i], limit);
    }
}

static const float *find(const test_net *t, const char *name, bool diff, int64_t *n_p)
{
    int i = ct_net_find_blob(t->net, name);
    const ct_blob *b;

    assert_true(i >= 0);
    b = t->net->pass->blob[i];
    assert_true(ct_tensor_is_usual(&b->data));
    *n_p = ct_tensor_count(&b->data);
    return diff ? ct_blob_diff(b) : ct_blob_data(b);
}

static void compare_blob(const bf16_case *c, int width, const test_net *f32, const test_net *bf16,
                         const char *name, bool diff, int roundings, int mixed)
{
    int64_t n, m;
    const float *want = find(f32, name, diff, &n), *got = find(bf16, name, diff, &m);

    assert_int_equal(n, m);
    near(c, width, name, want, got, n, roundings, mixed);
}

static int count(const test_net *t, const char *type)
{
    int n = 0;

    for (int i = 0; i < t->net->n_layer; i++) n += (strcmp(t->net->layer[i]->ops->type, type) == 0);
    return n;
}

/* Layers in one memory by lifetime, or each in its own. */
static void compare_nets(const bf16_case *c, const int64_t *dim, const int64_t *y_dim, int width,
                         bool fuse, bool unshared)
{
    test_net f32 = make(c, dim, y_dim, width, false, fuse, unshared);
    test_net bf16 = make(c, dim, y_dim, width, true, fuse, unshared), again;

    if (c->stays && (count(&bf16, "Cast") + count(&bf16, "Reorder") > 1))
        fail_msg("%s, blocks of %d: %d casts, %d reorders", c->layers, width, count(&bf16, "Cast"),
                 count(&bf16, "Reorder"));
    if (unshared) compare_blob(c, width, &f32, &bf16, "y", false, c->top, 0);
    compare_blob(c, width, &f32, &bf16, "da", true, c->bottom, c->mixed);
    if (ct_net_find_blob(f32.net, "db") >= 0)
        compare_blob(c, width, &f32, &bf16, "db", true, c->bottom, c->mixed);
    near(c, width, "weights", f32.net->grad_arena, bf16.net->grad_arena, f32.net->grad_count, 0,
         c->sum ? 4 : 0);
    omp_set_num_threads(1);
    again = make(c, dim, y_dim, width, true, fuse, unshared);
    omp_set_num_threads(omp_get_num_procs());
    assert_memory_equal(again.net->grad_arena, bf16.net->grad_arena,
                        (size_t)bf16.net->grad_count * sizeof(float));
    test_net_destroy(&f32), test_net_destroy(&bf16), test_net_destroy(&again);
}

static void compare(const bf16_case *c, const int64_t *dim, int width, bool fuse)
{
    int64_t y_dim[] = { dim[0], dim[1], dim[2], dim[3] };

    if (strstr(c->layers, "Concat") != NULL) y_dim[1] *= 2;
    if (strstr(c->layers, "stride: 2") != NULL) y_dim[2] = dim[2] / 2, y_dim[3] = dim[3] / 2;
    if (strstr(c->layers, "halves") != NULL) y_dim[3] /= 2;
    if (strstr(c->layers, "InnerProduct") != NULL) y_dim[3] = 37;
    if (strstr(c->layers, "global_pooling") != NULL) y_dim[2] = y_dim[3] = 1;
    compare_nets(c, dim, y_dim, width, fuse, true);
    compare_nets(c, dim, y_dim, width, fuse, false);
}

static void over_shapes(const bf16_case *c, size_t n, bool fuse)
{
    static const int64_t dim[][4] = {
        { 2, 16, 6, 8 }, { 3, 19, 12, 10 }, { 1, 3, 4, 14 }, { 9, 40, 4, 4 }, { 2, 32, 40, 44 }
    };

    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof(dim) / sizeof(dim[0]); k++) {
            if ((strstr(c[i].layers, "Concat") != NULL) && (dim[k][1] % 16 != 0)) continue;
            compare(&c[i], dim[k], 16, fuse);
            compare(&c[i], dim[k], 8, fuse);
        }
    }
}

#define LAYER(name, type, bottoms, top, more)                                                      \
    "layer { name: '" name "' type: '" type "' " bottoms " top: '" top "' " more " } "
#define A  "bottom: 'a'"
#define AB "bottom: 'a' bottom: 'b'"

/* What only moves numbers, or leaves them out, rounds nothing: f32 and bf16 agree bit by bit. */
static void moves(void **state)
{
    static const bf16_case c[] = {
        { LAYER("l", "ReLU", A, "y", ""), true, 0, 0, 0, false },
        { LAYER("l", "ReLU", A, "a", "") LAYER("m", "ReLU", A, "y", ""), true, 0, 0, 0, false },
        { LAYER("l", "Concat", AB, "y", ""), true, 0, 0, 0, false },
        { LAYER("l", "Pooling", A, "y", "pooling_param { kernel_size: 2 stride: 2 }"), true, 0, 0,
          0, false },
        { LAYER("l", "Pooling", A, "m", "pooling_param { kernel_size: 2 stride: 2 }")
              LAYER("r", "ReLU", "bottom: 'm'", "y", ""),
          true, 0, 0, 0, false },
        { LAYER("l", "Pooling", A, "y", "pooling_param { global_pooling: true }"), true, 0, 0, 0,
          false },
    };

    (void)state;
    over_shapes(c, sizeof(c) / sizeof(c[0]), true);
    over_shapes(c, sizeof(c) / sizeof(c[0]), false);
}

/* Tops and gradients that are rounded once. */
static void rounds_once(void **state)
{
    static const bf16_case c[] = {
        { LAYER("l", "ReLU", A, "y", "relu_param { negative_slope: 0.3 }"), true, 1, 1, 0, false },
        { LAYER("l", "ReLU", A, "y", "relu_param { negative_slope: -0.3 }"), true, 1, 1, 0, false },
        { LAYER("l", "Pooling", A, "y", "pooling_param { kernel_size: 3 stride: 1 pad: 1 }"), true,
          0, 1, 0, false },
        { LAYER("l", "Pooling", A, "y", "pooling_param { kernel_size: 7 stride: 1 pad: 3 }"), true,
          0, 1, 0, false },
        { LAYER("l", "Pooling", A, "y",
                "pooling_param { pool: AVE kernel_size: 5 stride: 1 pad: 2 }"),
          true, 1, 1, 0, false },
        { LAYER("l", "Pooling", A, "y", "pooling_param { pool: AVE kernel_size: 2 stride: 2 }"),
          true, 1, 1, 0, false },
        { LAYER("l", "Pooling", A, "y", "pooling_param { pool: AVE global_pooling: true }"), true,
          1, 1, 0, false },
        { LAYER("l", "LRN", A, "y", "lrn_param { local_size: 5 alpha: 0.5 }"), true, 1, 1, 0,
          false },
        { LAYER("l", "Scale", A, "y",
                "scale_param { bias_term: true filler { type: 'uniform' min: 0.5 max: 2 } }"),
          true, 1, 1, 0, false },
        { LAYER("l", "Bias", A, "y", "bias_param { filler { value: 0.7 } }"), true, 1, 0, 0,
          false },
        { LAYER("l", "Eltwise", AB, "y", ""), true, 1, 0, 0, false },
        { LAYER("l", "Eltwise", AB, "y", "eltwise_param { coeff: 0.3 coeff: -3 }"), true, 1, 1, 0,
          false },
        { LAYER("l", "BatchNorm", A, "y", ""), true, 1, 1, 0, false },
        { LAYER("l", "BatchNorm", A, "y", "batch_norm_param { use_global_stats: true }"), true, 1,
          1, 0, false },
        { LAYER("l", "BatchNorm", A, "n", "")
              LAYER("s", "Scale", "bottom: 'n'", "s", "scale_param { bias_term: true }")
                  LAYER("r", "ReLU", "bottom: 's'", "y", ""),
          true, 1, 1, 0, false },
        /* gradients of the sum are kept, rounded; E of them, too */
        { LAYER("l", "BatchNorm", A, "n", "") LAYER("s", "Scale", "bottom: 'n'", "s", "")
              LAYER("e", "Eltwise", "bottom: 's' bottom: 'b'", "e", "")
                  LAYER("r", "ReLU", "bottom: 'e'", "y", ""),
          true, 1, 1, 0, false },
        { LAYER("e", "Eltwise", AB, "e", "") LAYER("r", "ReLU", "bottom: 'e'", "y", ""), true, 1, 0,
          0, false },
    };

    (void)state;
    over_shapes(c, sizeof(c) / sizeof(c[0]), true);
}

/* A value between layers, or the sum of two gradients, is rounded on its way. */
static void rounds_often(void **state)
{
    static const bf16_case c[] = {
        { LAYER("l", "Eltwise", "bottom: 'a' bottom: 'a' bottom: 'a'", "y", ""), true, 1, 1, 2,
          false },
        { LAYER("l", "ReLU", A, "r", "relu_param { negative_slope: 0.3 }")
              LAYER("e", "Eltwise", "bottom: 'a' bottom: 'r'", "y", ""),
          true, 2, 2, 2, false },
        /* a group whose top is split: both gradients add up in it */
        { LAYER("l", "BatchNorm", A, "n", "") LAYER("r", "ReLU", "bottom: 'n'", "r", "")
              LAYER("m", "ReLU", "bottom: 'r'", "m", "relu_param { negative_slope: 0.3 }")
                  LAYER("e", "Eltwise", "bottom: 'r' bottom: 'm'", "y", ""),
          true, 2, 2, 4, false },
        { LAYER("x", "Eltwise", AB, "e", "") LAYER("r", "ReLU", "bottom: 'e'", "r", "")
              LAYER("m", "ReLU", "bottom: 'r'", "m", "relu_param { negative_slope: 0.3 }")
                  LAYER("e", "Eltwise", "bottom: 'r' bottom: 'm'", "y", ""),
          true, 3, 3, 3, false },
    };

    (void)state;
    over_shapes(c, sizeof(c) / sizeof(c[0]), true);
}

/* Layers that do not take bf16 get a Cast, and hand f32 on. */
static void casts(void **state)
{
    static const bf16_case c[] = {
        { LAYER("l", "Sigmoid", A, "y", ""), false, 0, 1, 0, false },
        { LAYER("l", "PReLU", A, "y", ""), false, 0, 1, 0, false },
        { LAYER("l", "Eltwise", AB, "y", "eltwise_param { operation: MAX }"), false, 0, 1, 0,
          false },
        { LAYER("l", "Eltwise", AB, "y", "eltwise_param { operation: PROD }"), false, 0, 1, 0,
          false },
        { LAYER("m", "Sigmoid", A, "m", "")
              LAYER("l", "Eltwise", "bottom: 'm' bottom: 'b'", "y", ""),
          false, 0, 1, 0, false },
        { LAYER("m", "Sigmoid", A, "m", "")
              LAYER("l", "Eltwise", "bottom: 'b' bottom: 'm'", "y", ""),
          false, 0, 1, 0, false },
        { LAYER("m", "Sigmoid", A, "m", "")
              LAYER("l", "Concat", "bottom: 'b' bottom: 'm'", "y", ""),
          false, 0, 1, 0, false },
        { LAYER("l", "Pooling", A, "y",
                "pooling_param { kernel_size: 3 stride: 1 pad: 1 } ct_kernel { forward: 'ref' }"),
          false, 0, 1, 0, false },
        { LAYER("l", "Scale", A, "y", "scale_param { axis: 2 num_axes: 2 }"), false, 0, 1, 0,
          false },
    };
    static const int64_t dim[] = { 2, 16, 6, 8 };
    test_net t;

    (void)state;
    over_shapes(c, sizeof(c) / sizeof(c[0]), true);
    t = make(&c[0], dim, dim, 16, true, true, true);
    assert_int_equal(count(&t, "Cast"), 1);
    assert_int_equal(t.net->pass->blob[ct_net_find_blob(t.net, "a")]->data.layout.block, 16);
    test_net_destroy(&t);
}

/* ---- rows of tokens: plain order, any axes */

#define IP                                                                                         \
    "inner_product_param { axis: 3 num_output: 37 weight_filler { type: 'uniform' min: -1 max: 1 " \
    "} "                                                                                           \
    "bias_filler { value: 0.3 } }"
#define SCALE "scale_filler { type: 'uniform' min: 0.5 max: 2 }"

/* TanH reads its own top in backward, which is rounded: y^2 moves by 2 U. Exp's gradient is its
 * rounded top times dy, rounded once more. */
static void rows_of_tokens(void **state)
{
    static const bf16_case c[] = {
        { LAYER("l", "LayerNorm", A, "y",
                "layer_norm_param { " SCALE " bias_filler { value: 0.2 } }"),
          true, 1, 1, 0, false },
        { LAYER("l", "LayerNorm", A, "y", "layer_norm_param { axis: 2 affine: false }"), true, 1, 1,
          0, false },
        { LAYER("l", "RMSNorm", A, "y", "rms_norm_param { " SCALE " }"), true, 1, 1, 0, false },
        { LAYER("l", "GELU", A, "y", "gelu_param { approximate: TANH }"), true, 1, 1, 0, false },
        { LAYER("l", "GELU", A, "a", "") LAYER("m", "ReLU", "bottom: 'a'", "y", ""), true, 1, 1, 0,
          false },
        { LAYER("l", "Swish", A, "y", ""), true, 1, 1, 0, false },
        { LAYER("l", "Power", A, "y", "power_param { power: 2 shift: 2 }"), true, 1, 1, 0, false },
        { LAYER("l", "TanH", A, "y", ""), true, 1, 1, 2, false },
        { LAYER("l", "Exp", A, "y", ""), true, 1, 2, 0, false },
        { LAYER("halves", "SwiGLU", A, "y", ""), true, 1, 1, 0, false },
        { LAYER("l", "SwiGLU", AB, "y", ""), true, 1, 1, 0, false },
        { LAYER("l", "Dropout", A, "y", "dropout_param { dropout_ratio: 0.3 }"), true, 1, 1, 0,
          false },
        { LAYER("l", "Position", A, "y",
                "position_param { max_length: 64 weight_filler { type: 'uniform' min: -1 max: 1 } "
                "}"),
          true, 1, 0, 0, false },
        { LAYER("l", "InnerProduct", A, "y", IP), true, 0, 1, 0, false },
        { LAYER("l", "Eltwise", AB, "y", ""), true, 1, 0, 0, false },
        { LAYER("l", "Eltwise", "bottom: 'b' bottom: 'a' bottom: 'b'", "y",
                "eltwise_param { coeff: 0.3 coeff: 1 coeff: 1 }"),
          true, 1, 1, 3, false },
    };
    static const int64_t dim[][4] = {
        { 2, 5, 3, 8 }, { 3, 19, 7, 10 }, { 1, 1, 1, 2 }, { 2, 40, 1, 1538 }, { 1, 33, 17, 64 }
    };

    (void)state;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        for (size_t k = 0; k < sizeof(dim) / sizeof(dim[0]); k++) {
            compare(&c[i], dim[k], 0, true);
            compare(&c[i], dim[k], 0, false);
        }
    }
}

/* The plan counts bytes: a net of values in bf16 takes half of them. */
static void half_the_memory(void **state)
{
    static const bf16_case c = {
        LAYER("l", "ReLU", A, "r", "")
            LAYER("m", "ReLU", "bottom: 'r'", "m", "relu_param { negative_slope: -1 }")
                LAYER("p", "Pooling", "bottom: 'm'", "y", "pooling_param { global_pooling: true }"),
        true,
        0,
        0,
        0,
        false
    };
    static const int64_t dim[] = { 4, 32, 64, 64 }, y[] = { 4, 32, 1, 1 };
    test_net f32 = make(&c, dim, y, 16, false, true, false);
    test_net bf16 = make(&c, dim, y, 16, true, true, false);
    size_t source_bytes = (size_t)(4 * 32 * 64 * 64) * sizeof(float);

    (void)state;
    assert_true(bf16.net->memory.unshared < f32.net->memory.unshared - source_bytes);
    assert_int_equal(ct_tensor_bytes(&bf16.net->pass->blob[ct_net_find_blob(bf16.net, "r")]->data),
                     source_bytes / 2);
    test_net_destroy(&f32), test_net_destroy(&bf16);
}

/* In vectors as one by one: ties to even, into other exponents, infinities, subnormals, NaN. */
static void in_vectors(void **state)
{
    enum { N = 1 << 16 };
    float *wide = malloc(N * sizeof(float)), *all = malloc(N * sizeof(float));
    ct_bf16 *half = malloc(N * sizeof(ct_bf16));

    (void)state;
    assert_true((wide != NULL) && (all != NULL) && (half != NULL));
    for (int k = 0; k < 6; k++) {
        static const uint32_t low[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };

        for (uint32_t i = 0; i < N; i++) {
            uint32_t bits = i << 16 | low[k];

            memcpy(&all[i], &bits, sizeof(bits));
        }
        ct_bf16_narrow_all(N, all, half);
        for (int i = 0; i < N; i++) assert_int_equal(half[i], ct_bf16_from_f32(all[i]));
        if (k > 0) continue;
        ct_bf16_widen_all(N, half, wide);
        for (int i = 0; i < N; i++) {
            if (!isnan(all[i])) assert_memory_equal(&wide[i], &all[i], sizeof(float));
            if (isnan(all[i])) assert_true(isnan(wide[i]));
        }
    }
    free(wide), free(all), free(half);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves),           cmocka_unit_test(rounds_once),
        cmocka_unit_test(rounds_often),    cmocka_unit_test(casts),
        cmocka_unit_test(half_the_memory), cmocka_unit_test(in_vectors),
        cmocka_unit_test(rows_of_tokens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
