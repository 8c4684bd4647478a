/* Inputs that vary: a net that was made for the most computes, batch after batch, what a net made
 * for that shape computes, to the last bit; with its groups and its packed weights, forward alone
 * or in training; what cannot be is refused with a message. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/log_capture.h"
#include "tests/net_layers.h"

#include "framework/snapshot/model.h"
#include "framework/snapshot/snapshot.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define GAUSS                                                                                      \
    " weight_filler { type: 'gaussian' std: 0.25 } bias_filler { type: 'gaussian' std: 0.1 } "
#define VARIES " varies: true "
#define ONE(name, type, bottom, top, more)                                                         \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' " more " }\n"
#define TWO(name, type, a, b, top, more)                                                           \
    "layer { name: '" name "' type: '" type "' bottom: '" a "' bottom: '" b "' top: '" top         \
    "' " more " }\n"
#define FC(name, bottom, n)                                                                        \
    ONE(name, "InnerProduct", bottom, name,                                                        \
        "inner_product_param { num_output: " n " axis: 2" GAUSS "}")

/* BERT's block, with the mask that its deploy net has */
#define BLOCK(p, from, to)                                                                         \
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
static const char tokens[] =
    ONE("wte", "Embed", "id", "w",
        "embed_param { input_dim: 19 num_output: 32 bias_term: false weight_filler { type: "
        "'gaussian' std: 1 } }")
        ONE("wpe", "Position", "w", "x",
            "position_param { max_length: 40 weight_filler { type: 'gaussian' std: 0.3 } }")
            BLOCK("a_", "x", "y") BLOCK("b_", "y", "z");

/* a net of images: groups of convolutions and their ReLUs, statistics, means over places */
#define CONV(name, bottom, top)                                                                    \
    ONE(name, "Convolution", bottom, top,                                                          \
        "convolution_param { num_output: 16 kernel_size: 3 pad: 1" GAUSS "}")
static const char images[] = CONV("c0", "x", "s") ONE("b0", "BatchNorm", "s", "s", "")
    ONE("s0", "Scale", "s", "s", "scale_param { bias_term: true }") ONE("r0", "ReLU", "s", "s", "")
        CONV("c1", "s", "u") ONE("r1", "ReLU", "u", "u", "")
            ONE("p", "Pooling", "u", "p", "pooling_param { pool: AVE kernel_size: 2 stride: 2 }")
                ONE("f", "InnerProduct", "p", "f", "inner_product_param { num_output: 5" GAUSS "}");

enum { CLASSES = 19, MOST = 6 * 24 };

/* ---- nets of tokens */

static void open_tokens(int64_t n, int64_t t, Ct__SolverParameter__Precision precision, test_net *f)
{
    ct_net_options o = { .phase = CT_TEST, .forward_only = true, .table = ct_layer_table };
    char text[8192];

    o.env.precision = precision;
    snprintf(text, sizeof(text),
             "layer { name: 'in' type: 'Input' top: 'id' top: 'mask' input_param { shape { dim: "
             "%lld dim: %lld }" VARIES "} }\n%s",
             (long long)n, (long long)t, tokens);
    setenv("CORTADO_POISON", "1", 1);
    assert_int_equal(test_net_create(text, &o, f), CT_OK);
    unsetenv("CORTADO_POISON");
}

static float *input_of(const test_net *f, const char *name)
{
    for (int i = 0; i < f->net->n_layer; i++) {
        for (int t = 0; f->net->layer[i]->ops->keeps_top && (t < f->net->layer[i]->n_top); t++) {
            if (strcmp(f->net->pass->instance[i]->top[t]->name, name) == 0)
                return ct_blob_data(f->net->pass->instance[i]->top[t]);
        }
    }
    fail_msg("no input %s", name);
    return NULL;
}

static void put_tokens(const test_net *f, int64_t n, int64_t t, int seed)
{
    const ct_shape shape = { 2, { n, t } };
    float *id, *mask;

    assert_int_equal(ct_pass_set_input(f->net->pass, "id", &shape), CT_OK);
    assert_int_equal(ct_pass_set_input(f->net->pass, "mask", &shape), CT_OK);
    id = input_of(f, "id");
    mask = input_of(f, "mask");
    for (int64_t i = 0; i < n * t; i++) {
        id[i] = (float)((i * i + seed * 7 + i / 3) % CLASSES);
        mask[i] = (i % t < t - i / t % 3) ? 1.0f : 0.0f;
    }
}

static const ct_blob *output_of(const test_net *f)
{
    assert_int_equal(f->net->n_output, 1);
    return f->net->pass->blob[f->net->output[0].blob];
}

static void same_weights(const test_net *from, const test_net *to)
{
    assert_int_equal(from->net->weight_count, to->net->weight_count);
    memcpy(to->net->weight_arena, from->net->weight_arena,
           (size_t)from->net->weight_count * sizeof(float));
    ct_net_weights_changed(to->net);
}

static void same_output(const test_net *f, const test_net *fixed)
{
    const ct_blob *a = output_of(f), *b = output_of(fixed);

    assert_true(ct_shape_equal(&a->data.shape, &b->data.shape));
    test_same(ct_blob_data(a), ct_blob_data(b), ct_tensor_count(&a->data), a->name);
}

static const struct {
    int64_t n, t;
} shapes[] = {
    { 1, 10 }, { 6, 24 }, { 1, 1 }, { 2, 17 }, { 5, 24 }, { 3, 40 }, { 1, 10 }, { 6, 3 }
};
enum { N_SHAPE = sizeof(shapes) / sizeof(shapes[0]) };

static void run_shapes(Ct__SolverParameter__Precision precision)
{
    test_net most, fixed;

    open_tokens(6, 24, precision, &most);
    for (int i = 0; i < N_SHAPE; i++) {
        open_tokens(shapes[i].n, shapes[i].t, precision, &fixed);
        same_weights(&most, &fixed);
        put_tokens(&most, shapes[i].n, shapes[i].t, i);
        put_tokens(&fixed, shapes[i].n, shapes[i].t, i);
        assert_int_equal(ct_pass_forward(fixed.net->pass, NULL), CT_OK);
        if (i % 2 == 0) assert_int_equal(ct_pass_reshape(most.net->pass), CT_OK);
        assert_int_equal(ct_pass_forward(most.net->pass, NULL), CT_OK);
        same_output(&most, &fixed);
        test_net_destroy(&fixed);
    }
    test_net_destroy(&most);
}

static void tokens_of_all_shapes(void **state)
{
    int before = omp_get_max_threads();

    (void)state;
    for (int n_thread = 1; n_thread <= 3; n_thread += 2) {
        omp_set_num_threads(n_thread);
        run_shapes(CT__SOLVER_PARAMETER__PRECISION__F32);
        run_shapes(CT__SOLVER_PARAMETER__PRECISION__BF16);
    }
    omp_set_num_threads(before);
}

/* The norm runs with the sum in front of it, the function with the product. */
static void groups_stay(void **state)
{
    test_net f;
    const ct_net *net;

    (void)state;
    open_tokens(6, 24, CT__SOLVER_PARAMETER__PRECISION__F32, &f);
    net = f.net;
    assert_int_equal(ct_net_runner(net, ct_net_find_layer(net, "a_ln1")),
                     ct_net_find_layer(net, "a_sum1"));
    assert_int_equal(ct_net_runner(net, ct_net_find_layer(net, "b_gelu")),
                     ct_net_find_layer(net, "b_fc"));
    test_net_destroy(&f);
}

/* A row of few and of many rows: packed weights give it the same bits. */
static void rows_do_not_see_each_other(void **state)
{
    float alone[5 * 32];
    test_net f;

    (void)state;
    open_tokens(6, 24, CT__SOLVER_PARAMETER__PRECISION__F32, &f);
    put_tokens(&f, 1, 5, 0);
    assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
    memcpy(alone, ct_blob_data(output_of(&f)), sizeof(alone));
    put_tokens(&f, 20, 5, 0);
    assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
    test_same(ct_blob_data(output_of(&f)), alone, 5 * 32, "rows of the first sequence");
    test_net_destroy(&f);
}

/* Packed weights are packed again where they changed. */
static void weights_change(void **state)
{
    test_net f, other;

    (void)state;
    open_tokens(6, 24, CT__SOLVER_PARAMETER__PRECISION__F32, &f);
    open_tokens(6, 24, CT__SOLVER_PARAMETER__PRECISION__F32, &other);
    put_tokens(&f, 2, 9, 0);
    assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
    for (int64_t i = 0; i < f.net->weight_count; i++) f.net->weight_arena[i] *= 1.25f;
    ct_net_weights_changed(f.net);
    same_weights(&f, &other);
    put_tokens(&f, 3, 7, 1);
    put_tokens(&other, 3, 7, 1);
    assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
    assert_int_equal(ct_pass_forward(other.net->pass, NULL), CT_OK);
    same_output(&f, &other);
    test_net_destroy(&other);
    test_net_destroy(&f);
}

/* ---- weights that are final */

static const ct_param *param_of(const test_net *f, const char *key)
{
    int k = ct_net_find_param(f->net, key);

    assert_true(k >= 0);
    return &f->net->param[k];
}

/* Before its first pass, or once it ran; whatever comes behind gives the same bits, though nothing
 * reads the weights any more. */
static void settle(Ct__SolverParameter__Precision precision, bool ran)
{
    test_net f, other;
    size_t allocated;

    open_tokens(6, 24, precision, &f);
    open_tokens(6, 24, precision, &other);
    same_weights(&f, &other);
    allocated = f.net->memory.allocated;
    put_tokens(&f, 4, 9, 0);
    if (ran) assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
    ct_net_settle(f.net);
    assert_true(f.net->settled);
    for (int s = 0; s < 2; s++)
        assert_true(ct_net_checksum(f.net, s != 0) == ct_net_checksum(other.net, s != 0));
    assert_true(f.net->memory.allocated <= allocated);
    assert_null(ct_blob_data(&param_of(&f, "a_qkv[0]")->blob));
    assert_null(ct_blob_data(&param_of(&f, "b_down[0]")->blob));
    assert_non_null(ct_blob_data(&param_of(&f, "a_qkv[1]")->blob));
    assert_non_null(ct_blob_data(&param_of(&f, "wte[0]")->blob));
    for (int i = 0; i < N_SHAPE; i++) {
        if (i == 3) ct_net_weights_changed(f.net); /* they do not */
        if (i == 5) ct_net_settle(f.net);
        put_tokens(&f, shapes[i].n, shapes[i].t, i);
        put_tokens(&other, shapes[i].n, shapes[i].t, i);
        assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
        assert_int_equal(ct_pass_forward(other.net->pass, NULL), CT_OK);
        same_output(&f, &other);
    }
    test_net_destroy(&other);
    test_net_destroy(&f);
}

static void final_weights_are_packed_alone(void **state)
{
    (void)state;
    for (int ran = 0; ran < 2; ran++) {
        settle(CT__SOLVER_PARAMETER__PRECISION__F32, ran != 0);
        settle(CT__SOLVER_PARAMETER__PRECISION__BF16, ran != 0);
    }
}

/* A layer that looks weights up, and one that multiplies by them. */
static void shared_weights_stay(void **state)
{
    ct_net_options o = { .phase = CT_TEST, .forward_only = true, .table = ct_layer_table };
    test_net f;

    (void)state;
    assert_int_equal(
        test_net_create("layer { name: 'in' type: 'Input' top: 'id' input_param { shape { dim: 2 "
                        "dim: 5 }" VARIES "} }\n" ONE(
                            "wte", "Embed", "id", "w",
                            "param { name: 'table' } embed_param { input_dim: 19 num_output: 32 "
                            "bias_term: false weight_filler { type: 'gaussian' } }")
                            FC("own", "w", "32") ONE("head", "InnerProduct", "own", "head",
                                                     "param { name: 'table' } inner_product_param "
                                                     "{ num_output: 19 bias_term: false axis: 2 }"),
                        &o, &f),
        CT_OK);
    ct_net_settle(f.net);
    assert_non_null(ct_blob_data(&param_of(&f, "table")->blob));
    assert_null(ct_blob_data(&param_of(&f, "own[0]")->blob));
    test_net_destroy(&f);
}

/* What may change is not packed alone; what was is neither read nor written. */
static void weights_that_are_not_there(void **state)
{
    static const char refused[] =
        "has its weights packed for forward alone: they are neither loaded nor saved any more";
    ct_net_options train = { .phase = CT_TRAIN, .table = ct_layer_table };
    char text[8192];
    ct_model *m = NULL;
    log_capture log;
    test_net f;

    (void)state;
    snprintf(text, sizeof(text),
             "layer { name: 'in' type: 'Input' top: 'id' top: 'mask' input_param { shape { dim: 2 "
             "dim: 5 }" VARIES "} }\n%s",
             tokens);
    assert_int_equal(test_net_create(text, &train, &f), CT_OK);
    ct_net_settle(f.net);
    assert_false(f.net->settled);
    assert_int_equal(ct_net_check_weights(f.net), CT_OK);
    assert_non_null(ct_blob_data(&param_of(&f, "a_qkv[0]")->blob));
    test_net_destroy(&f);

    open_tokens(6, 24, CT__SOLVER_PARAMETER__PRECISION__F32, &f);
    ct_net_settle(f.net);
    log_capture_start(&log);
    assert_int_equal(ct_weights_load_all("any.npz", f.net), CT_ERR_ARG);
    assert_non_null(strstr(log.error, refused));
    assert_int_equal(ct_weights_load("any.npz", f.net), CT_ERR_ARG);
    assert_int_equal(ct_model_of_net(f.net, NULL, NULL, &m), CT_ERR_ARG);
    assert_int_equal(ct_pass_use_weights(f.net->pass, NULL), CT_ERR_ARG);
    assert_int_equal(log.n_error, 4);
    log_capture_stop();
    put_tokens(&f, 2, 5, 0);
    assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
    test_net_destroy(&f);
}

/* ---- nets of images, and training */

enum { N = 7, PIXELS = 3 * 6 * 6 };

static void open_images(int n, bool varies, bool train, test_net *f)
{
    ct_net_options o = { .phase = train ? CT_TRAIN : CT_TEST,
                         .forward_only = !train,
                         .no_fuse = train,
                         .table = ct_layer_table };
    const char *more = varies ? VARIES : "";
    char text[8192];

    snprintf(text, sizeof(text),
             "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: %d dim: 3 dim: 6 "
             "dim: 6 } %s } }\n%s",
             n, more, images);
    if (train)
        snprintf(text + strlen(text), sizeof(text) - strlen(text),
                 "layer { name: 'y' type: 'Input' top: 'y' input_param { shape { dim: %d } %s } }\n"
                 "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'f' bottom: 'y' top: 'loss' "
                 "}\n",
                 n, more);
    assert_int_equal(test_net_create(text, &o, f), CT_OK);
    f->net->pass->exec.deterministic = true;
}

static void put_images(const test_net *f, int n, bool train, int seed)
{
    assert_int_equal(ct_pass_set_input(f->net->pass, "x", &(ct_shape){ 4, { n, 3, 6, 6 } }), CT_OK);
    test_random(input_of(f, "x"), (int64_t)n * PIXELS, 3 + (uint64_t)seed, -1, 1);
    if (!train) return;
    assert_int_equal(ct_pass_set_input(f->net->pass, "y", &(ct_shape){ 1, { n } }), CT_OK);
    for (int i = 0; i < n; i++) input_of(f, "y")[i] = (float)((i * i + seed) % 5);
}

static void run_images(bool train)
{
    static const int batch[] = { 3, 7, 1, 6, 7, 2 };
    test_net most, fixed;

    open_images(N, true, train, &most);
    for (int i = 0; i < (int)(sizeof(batch) / sizeof(batch[0])); i++) {
        open_images(batch[i], !train, train, &fixed);
        same_weights(&most, &fixed);
        put_images(&most, batch[i], train, i);
        put_images(&fixed, batch[i], train, i);
        if (train) {
            assert_true(test_net_pass(&most, i, false) == test_net_pass(&fixed, i, false));
            test_same(most.net->grad_arena, fixed.net->grad_arena, most.net->grad_count,
                      "gradients");
        } else {
            assert_int_equal(ct_pass_forward(most.net->pass, NULL), CT_OK);
            assert_int_equal(ct_pass_forward(fixed.net->pass, NULL), CT_OK);
        }
        same_output(&most, &fixed);
        test_net_destroy(&fixed);
    }
    test_net_destroy(&most);
}

static void images_of_all_numbers(void **state)
{
    (void)state;
    run_images(false);
    run_images(true);
}

/* ---- what is refused */

static void set_refused(const test_net *f, const char *name, ct_shape shape, ct_status status,
                        const char *part)
{
    log_capture log;

    log_capture_start(&log);
    assert_int_equal(ct_pass_set_input(f->net->pass, name, &shape), status);
    log_capture_stop();
    if (strstr(log.error, part) == NULL) fail_msg("\"%s\" is not in: %s", part, log.error);
}

static void shapes_are_refused(void **state)
{
    test_net f;

    (void)state;
    open_tokens(6, 24, CT__SOLVER_PARAMETER__PRECISION__F32, &f);
    set_refused(&f, "id", (ct_shape){ 2, { 6, 25 } }, CT_ERR_SHAPE,
                "input \"id\" of shape 6 25 (150): the net was made for 6 24 (144) at most");
    set_refused(&f, "id", (ct_shape){ 2, { 0, 24 } }, CT_ERR_SHAPE, "at most");
    set_refused(&f, "id", (ct_shape){ 3, { 1, 1, 2 } }, CT_ERR_SHAPE, "at most");
    set_refused(&f, "word", (ct_shape){ 2, { 1, 2 } }, CT_ERR_ARG, "has no input \"word\"");
    test_net_destroy(&f);
    open_images(N, false, false, &f);
    set_refused(&f, "x", (ct_shape){ 4, { 3, 3, 6, 6 } }, CT_ERR_SHAPE,
                "other shapes want input_param { varies: true }");
    test_net_destroy(&f);
}

/* Inputs that do not go together are found when shapes are set, by the layer that joins them. */
static void layers_refuse(void **state)
{
    const ct_net_options o = { .phase = CT_TEST, .forward_only = true, .table = ct_layer_table };
    log_capture log;
    test_net f;

    (void)state;
    open_tokens(6, 24, CT__SOLVER_PARAMETER__PRECISION__F32, &f);
    assert_int_equal(ct_pass_set_input(f.net->pass, "id", &(ct_shape){ 2, { 2, 5 } }), CT_OK);
    log_capture_start(&log);
    assert_int_equal(ct_pass_reshape(f.net->pass), CT_ERR_SHAPE);
    log_capture_stop();
    assert_non_null(strstr(log.error, "layer \"a_attn\" (Attention)"));
    put_tokens(&f, 2, 5, 0);
    assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
    test_net_destroy(&f);
    log_capture_start(&log);
    assert_int_equal(
        test_net_create("layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 1 "
                        "dim: 8 }" VARIES "} }\n" ONE("f", "InnerProduct", "x", "f",
                                                      "inner_product_param { num_output: 3 }"),
                        &o, &f),
        CT_ERR_SHAPE);
    log_capture_stop();
    assert_non_null(strstr(log.error, "it cannot follow layer \"x\" (Input)"));
    test_net_destroy(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_of_all_shapes),
        cmocka_unit_test(groups_stay),
        cmocka_unit_test(rows_do_not_see_each_other),
        cmocka_unit_test(weights_change),
        cmocka_unit_test(final_weights_are_packed_alone),
        cmocka_unit_test(shared_weights_stay),
        cmocka_unit_test(weights_that_are_not_there),
        cmocka_unit_test(images_of_all_numbers),
        cmocka_unit_test(shapes_are_refused),
        cmocka_unit_test(layers_refuse),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
