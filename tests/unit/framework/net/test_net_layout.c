/* Layouts: Reorders stand where a layer needs plain order, and nets compute the same with blocks.
 */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/net_layers.h"

#include "framework/tensor/tensor.h"
#include "layers/types/layer_types.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4 };

/* ---- layer types of these tests */

/* Block: y = x, in blocks of channels. */
static ct_status block_reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    ct_blob_set_layout(in->top[0], &in->bottom[0]->data.shape,
                       (ct_layout){ .order = CT_ORDER_NCHW, .block = BLOCK });
    return CT_OK;
}

static void sizes(const ct_blob *b, int64_t *n, int64_t *c, int64_t *s)
{
    *n = b->data.shape.dim[0];
    *c = b->data.shape.dim[1];
    *s = ct_shape_count(&b->data.shape, 2, -1);
}

static ct_status block_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    int64_t n, c, s;

    (void)l, (void)ex;
    sizes(in->top[0], &n, &c, &s);
    ct_reorder_to_blocked(n, c, s, BLOCK, ct_blob_data(in->bottom[0]), ct_blob_data(in->top[0]));
    return CT_OK;
}

static ct_status block_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    int64_t n, c, s;

    (void)l, (void)ex;
    sizes(in->top[0], &n, &c, &s);
    if (ct_blob_diff(in->bottom[0]) != NULL)
        ct_reorder_to_plain(n, c, s, BLOCK, ct_blob_diff(in->top[0]), ct_blob_diff(in->bottom[0]));
    return CT_OK;
}

/* Plain: the same type name, and no blocks. */
static ct_status plain_reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    ct_blob_set_shape(in->top[0], &in->bottom[0]->data.shape);
    return CT_OK;
}

static ct_status plain_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l, (void)ex;
    memcpy(in->top[0]->data.data, in->bottom[0]->data.data, ct_tensor_bytes(&in->top[0]->data));
    return CT_OK;
}

static ct_status plain_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l, (void)ex;
    if (ct_blob_diff(in->bottom[0]) != NULL)
        memcpy(in->bottom[0]->diff.data, in->top[0]->diff.data, ct_tensor_bytes(&in->top[0]->diff));
    return CT_OK;
}

/* Any: y = 2 x in whatever layout, in place too; what fills up a block becomes 7 on the way. */
static ct_status any_reshape(const ct_layer *l, ct_instance *in)
{
    (void)l;
    if (in->top[0] != in->bottom[0])
        ct_blob_set_layout(in->top[0], &in->bottom[0]->data.shape, in->bottom[0]->data.layout);
    return CT_OK;
}

static void twice(const ct_tensor *from, const ct_tensor *to)
{
    const float *x = from->data;
    float *y = to->data;
    int64_t block = from->layout.block, c = from->shape.dim[1];
    int64_t s = ct_shape_count(&from->shape, 2, -1), n_block = block ? (c + block - 1) / block : 0;

    for (int64_t i = 0; i < ct_tensor_stored(from); i++) {
        bool fills = (block > 0) && (i / (s * block) % n_block * block + i % block >= c);

        y[i] = fills ? 7.0f : 2.0f * x[i];
    }
}

static ct_status any_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l, (void)ex;
    twice(&in->bottom[0]->data, &in->top[0]->data);
    return CT_OK;
}

static ct_status any_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l, (void)ex;
    if (ct_blob_diff(in->bottom[0]) != NULL) twice(&in->top[0]->diff, &in->bottom[0]->diff);
    return CT_OK;
}

static bool any_takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    (void)p;
    return (bottom[slot]->data.layout.block == BLOCK);
}

#define ONE .min_bottom = 1, .max_bottom = 1, .min_top = 1, .max_top = 1
static const ct_layer_ops block = { .type = "Block",
                                    ONE,
                                    .reshape = block_reshape,
                                    .forward = block_forward,
                                    .backward = block_backward };
static const ct_layer_ops plain = { .type = "Block",
                                    ONE,
                                    .reshape = plain_reshape,
                                    .forward = plain_forward,
                                    .backward = plain_backward };
static const ct_layout_ops any_layout = { .takes = any_takes };
static const ct_layer_ops any = { .type = "Any",
                                  ONE,
                                  .allow_inplace = true,
                                  .layout = &any_layout,
                                  .reshape = any_reshape,
                                  .forward = any_forward,
                                  .backward = any_backward };

enum { MOST_TYPES = 32 };

/* The tests' usual types, and those above. */
static const ct_layer_ops *const *table(const ct_layer_ops *type_block, bool reorder)
{
    static const ct_layer_ops *list[2][2][MOST_TYPES];
    const ct_layer_ops **to = list[type_block == &block][reorder];
    int n = 0;

    while (test_net_table[n] != NULL) {
        to[n] = test_net_table[n];
        n++;
    }
    to[n++] = type_block;
    to[n++] = &any;
    if (reorder) to[n++] = &ct_layer_reorder;
    to[n] = NULL;
    assert_true(n < MOST_TYPES);
    return to;
}

#define SOURCE                                                                                     \
    "layer { name: 'data' type: 'Source' top: 'd' input_param { shape { dim: 3 dim: 6 } } }\n"
#define LINEAR(name, bottom, top)                                                                  \
    "layer { name: '" name "' type: 'Linear' bottom: '" bottom "' top: '" top                      \
    "' inner_product_param { num_output: 5 weight_filler { type: 'xavier' } } }\n"
#define LAYER(name, type, bottom, top)                                                             \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' }\n"
#define LOSS(bottom) LAYER("loss", "SumSq", bottom, "loss")

/* ---- tests */

static void orders_are_each_others_inverse(void **state)
{
    static const int64_t shape[][3] = { { 1, 1, 1 },  { 2, 16, 49 },   { 3, 17, 7 }, { 1, 33, 5 },
                                        { 2, 3, 81 }, { 1, 64, 1024 }, { 0, 5, 3 },  { 5, 8, 1 } };
    static const int width[] = { 4, 8, 16 };

    (void)state;
    for (size_t k = 0; k < 3 * sizeof(shape) / sizeof(shape[0]); k++) {
        int64_t n = shape[k / 3][0], c = shape[k / 3][1], s = shape[k / 3][2];
        int b = width[k % 3];
        int64_t n_block = (c + b - 1) / b;
        float *x = malloc((size_t)(n * c * s + 1) * sizeof(*x));
        float *y = malloc((size_t)(n * n_block * b * s + 1) * sizeof(*y));
        float *z = malloc((size_t)(n * c * s + 1) * sizeof(*z));

        for (int64_t i = 0; i < n * c * s; i++) x[i] = (float)(i + 1);
        memset(y, 0xff, (size_t)(n * n_block * b * s) * sizeof(*y));
        ct_reorder_to_blocked(n, c, s, b, x, y);
        for (int64_t i = 0; i < n * n_block * b * s; i++) {
            int64_t channel = i / (b * s) % n_block * b + i % b, image = i / (n_block * b * s);
            float expected = (channel < c) ? x[(image * c + channel) * s + i / b % s] : 0.0f;

            assert_true(y[i] == expected);
        }
        ct_reorder_to_plain(n, c, s, b, y, z);
        assert_memory_equal(x, z, (size_t)(n * c * s) * sizeof(*x));
        free(x);
        free(y);
        free(z);
    }
}

static int n_reorder(const ct_net *net)
{
    int n = 0;

    for (int i = 0; i < net->n_layer; i++) n += (strcmp(net->layer[i]->ops->type, "Reorder") == 0);
    return n;
}

/* The same net with blocks and without: loss, weight gradients and hash are the same, bit by bit.
 */
static void compare(const char *text, int reorders, bool unshared)
{
    ct_net_options o = { .phase = CT_TRAIN, .table = table(&block, true), .unshared = unshared };
    test_net blocked, flat;

    assert_int_equal(test_net_create(text, &o, &blocked), CT_OK);
    o.table = table(&plain, true);
    assert_int_equal(test_net_create(text, &o, &flat), CT_OK);
    assert_int_equal(n_reorder(blocked.net), reorders);
    assert_int_equal(n_reorder(flat.net), 0);
    assert_true(ct_net_hash(blocked.net) == ct_net_hash(flat.net));
    for (int64_t step = 0; step < 3; step++) {
        double loss = test_net_pass(&blocked, step, step == 2);

        assert_true(loss == test_net_pass(&flat, step, step == 2));
        assert_true(loss > 0);
        assert_int_equal(blocked.net->grad_count, flat.net->grad_count);
        assert_memory_equal(blocked.net->grad_arena, flat.net->grad_arena,
                            (size_t)flat.net->grad_count * sizeof(float));
    }
    test_net_destroy(&blocked);
    test_net_destroy(&flat);
}

static void the_same_with_blocks(void **state)
{
    static const char *const net[] = {
        /* between layers that take blocks nothing is added; one before the layer that does not */
        SOURCE LINEAR("a", "d", "a") LAYER("b", "Block", "a", "b") LAYER("c", "Any", "b", "c")
            LAYER("e", "Any", "c", "c") LINEAR("f", "c", "f") LOSS("f"),
        /* a value that a Split hands on */
        SOURCE LINEAR("a", "d", "a") LAYER("b", "Block", "a", "b") LAYER("c", "Any", "b",
                                                                         "c") LINEAR("f", "c", "f")
            LAYER("g", "Half", "c",
                  "g") "layer { name: 's' type: 'Add' bottom: 'f' bottom: 'g' top: 's' }" LOSS("s"),
        /* in place behind a Reorder, and a second block */
        SOURCE LINEAR("a", "d", "a") LAYER("b", "Block", "a", "b") LAYER("t", "Tanh", "b", "b")
            LAYER("c", "Block", "b", "c") LAYER("e", "Any", "c", "c") LOSS("c"),
        /* two bottoms, both to be brought to plain order */
        SOURCE LINEAR("a", "d", "a") LAYER("b", "Block", "a", "b") LINEAR("x", "d", "x")
            LAYER("y", "Block", "x",
                  "y") "layer { name: 's' type: 'Add' bottom: 'b' bottom: 'y' top: 's' }" LOSS("s"),
    };
    static const int reorders[] = { 1, 1, 2, 2 };

    (void)state;
    for (int i = 0; i < 8; i++) compare(net[i / 2], reorders[i / 2], i % 2 == 1);
}

/* An output is in plain order, under its own name. */
static void outputs_are_plain(void **state)
{
    const char *text = SOURCE LINEAR("a", "d", "a") LAYER("b", "Block", "a", "b")
        LAYER("c", "Any", "b", "out") LINEAR("f", "a", "f") LOSS("f");
    ct_net_options o = { .phase = CT_TRAIN, .table = table(&block, true) };
    test_net t;
    int out, a;

    (void)state;
    assert_int_equal(test_net_create(text, &o, &t), CT_OK);
    assert_int_equal(n_reorder(t.net), 1);
    (void)test_net_pass(&t, 0, false);
    assert_int_equal(t.net->n_output, 2);
    for (int i = 0; i < t.net->n_output; i++)
        assert_int_equal(t.net->pass->blob[t.net->output[i].blob]->data.layout.block, 0);
    out = ct_net_find_blob(t.net, "out");
    a = t.net->output[1].blob;
    assert_true(out >= 0);
    assert_int_equal(t.net->pass->blob[out]->data.layout.block, 0);
    assert_true((a == out) || (t.net->output[0].blob == out));
    test_net_destroy(&t);

    o.unshared = true; /* so that what it was made of is still there */
    assert_int_equal(test_net_create(text, &o, &t), CT_OK);
    (void)test_net_pass(&t, 0, false);
    out = ct_net_find_blob(t.net, "out");
    a = ct_net_find_blob(t.net, "a");
    for (int i = 0; i < 15; i++)
        assert_true(ct_blob_data(t.net->pass->blob[out])[i] ==
                    2.0f * ct_blob_data(t.net->pass->blob[a])[i]);
    test_net_destroy(&t);
}

static void says_what_is_missing(void **state)
{
    ct_net_options o = { .phase = CT_TRAIN, .table = table(&block, false) };

    (void)state;
    test_net_refused(SOURCE LINEAR("a", "d", "a") LAYER("b", "Block", "a", "b") LOSS("b"), &o,
                     "no layer type \"Reorder\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_are_each_others_inverse),
        cmocka_unit_test(the_same_with_blocks),
        cmocka_unit_test(outputs_are_plain),
        cmocka_unit_test(says_what_is_missing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
