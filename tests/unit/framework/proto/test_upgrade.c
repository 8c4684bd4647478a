/* Old forms of nets and solvers come out as the new form would have been read: each test writes
 * both and compares the texts. */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/proto/upgrade.h"
#include "tests/log_capture.h"

static Ct__NetParameter *parsed(const char *text, ct_source_map *map)
{
    ProtobufCMessage *m = NULL;

    assert_int_equal(
        ct_prototxt_parse(&ct__net_parameter__descriptor, "t", text, strlen(text), map, &m), CT_OK);
    return (Ct__NetParameter *)m;
}

static void assert_upgrades(const char *old, const char *expected)
{
    Ct__NetParameter *net = parsed(old, NULL), *wanted = parsed(expected, NULL);
    ct_text a = { 0 }, b = { 0 };
    log_capture c;

    log_capture_start(&c);
    assert_int_equal(ct_net_upgrade(net, "t", NULL), CT_OK);
    log_capture_stop();
    assert_int_equal(ct_prototxt_write(&net->base, &a), CT_OK);
    assert_int_equal(ct_prototxt_write(&wanted->base, &b), CT_OK);
    assert_string_equal(a.text, b.text);
    ct_text_destroy(&a);
    ct_text_destroy(&b);
    ct__net_parameter__free_unpacked(net, NULL);
    ct__net_parameter__free_unpacked(wanted, NULL);
}

static void new_form_stays(void **state)
{
    static const char text[] =
        "name: 'n' layer { name: 'a' type: 'Data' data_param { source: 's' batch_size: 3 } "
        "transform_param { scale: 2 } } layer { name: 'b' type: 'BatchNorm' param { lr_mult: 3 } }"
        "layer { name: 'c' type: 'Input' top: 'x' input_param { shape { dim: 1 } } }";

    (void)state;
    assert_upgrades(text, text);
    assert_upgrades("", "");
}

static void other_names(void **state)
{
    (void)state;
    assert_upgrades("layer { name: 'a' type: 'ConvolutionDepthwise' engine: 'MKLDNN' "
                    "convolution_param { num_output: 4 engine: MKL2017 } }"
                    "layer { name: 'b' } layer { name: 'c' type: 'ConvolutionDepthwise' }",
                    "layer { name: 'a' type: 'DepthwiseConvolution' engine: 'MKLDNN' "
                    "convolution_param { num_output: 4 engine: MKL2017 } }"
                    "layer { name: 'b' } layer { name: 'c' type: 'DepthwiseConvolution' }");
}

/* BatchNorm of forks that scales, and layers with a ReLU of their own. */
static void fused_layers(void **state)
{
    (void)state;
    assert_upgrades(
        "layer { name: 'b' type: 'BatchNorm' bottom: 'x' top: 'y' param { lr_mult: 1 } "
        "param { lr_mult: 2 } param { } param { lr_mult: 3 } include { phase: TEST } "
        "batch_norm_param { scale_bias: true eps: 1e-7 scale_filler { value: 2 } "
        "bias_filler { value: 3 } } } layer { name: 'c' bottom: 'y' }",
        "layer { name: 'b' type: 'BatchNorm' bottom: 'x' top: 'y' include { phase: TEST "
        "} param { lr_mult: 0 decay_mult: 0 } param { lr_mult: 0 decay_mult: 0 } "
        "param { lr_mult: 0 decay_mult: 0 } batch_norm_param { eps: 1e-5 } } "
        "layer { name: 'b_scale' type: 'Scale' bottom: 'y' top: 'y' include { phase: "
        "TEST } scale_param { filler { value: 2 } bias_term: true bias_filler { value: "
        "3 } } } layer { name: 'c' bottom: 'y' }");
    assert_upgrades(
        "layer { name: 'b' type: 'BatchNorm' top: 'x' batch_norm_param { relu: true "
        "filler { value: 2 } bias_term: false stats_batch_size: 4 } param { } param { } "
        "param { } param { lr_mult: 3 } blobs { data: 1 } blobs { data: 2 } "
        "blobs { data: 3 } blobs { data: 4 } }",
        "layer { name: 'b' type: 'BatchNorm' top: 'x' batch_norm_param { "
        "stats_batch_size: 4 } param { lr_mult: 0 decay_mult: 0 } param { lr_mult: 0 "
        "decay_mult: 0 } param { lr_mult: 0 decay_mult: 0 } blobs { data: 1 } "
        "blobs { data: 2 } blobs { data: 3 } }"
        "layer { name: 'b_scale' type: 'Scale' bottom: 'x' top: 'x' param { lr_mult: 3 "
        "} scale_param { bias_term: false filler { value: 2 } } blobs { data: 4 } }"
        "layer { name: 'b_relu' type: 'ReLU' bottom: 'x' top: 'x' }");
    assert_upgrades("layer { name: 'b' type: 'BatchNorm' top: 'x' batch_norm_param { filler { } "
                    "use_weight_bias: false relu: false } }"
                    "layer { name: 'd' type: 'BatchNorm' top: 'x' batch_norm_param { scale_bias: "
                    "false } } bn_stats_batch_size: 8",
                    "layer { name: 'b' type: 'BatchNorm' top: 'x' batch_norm_param { "
                    "stats_batch_size: 8 } } layer { name: 'd' type: 'BatchNorm' top: 'x' "
                    "batch_norm_param { stats_batch_size: 8 } }");
    assert_upgrades(
        "layer { name: 'c' type: 'Convolution' top: 'y' convolution_param { num_output: "
        "2 relu: true negative_slope: 0.5 } } layer { name: 'i' type: 'InnerProduct' "
        "top: 'z' inner_product_param { relu: true } }",
        "layer { name: 'c' type: 'Convolution' top: 'y' convolution_param { num_output: "
        "2 } } layer { name: 'c_relu' type: 'ReLU' bottom: 'y' top: 'y' relu_param { "
        "negative_slope: 0.5 } } layer { name: 'i' type: 'InnerProduct' top: 'z' "
        "inner_product_param { } } layer { name: 'i_relu' type: 'ReLU' bottom: 'z' "
        "top: 'z' }");
}

static void v1_layers(void **state)
{
    (void)state;
    assert_upgrades(
        "name: 'old' force_backward: true layers { name: 'c' type: CONVOLUTION bottom: 'x' "
        "top: 'y' top: 'z' convolution_param { num_output: 3 weight_filler { type: 'xavier' } } "
        "include { phase: TRAIN } exclude { stage: 's' } loss_weight: [1, 0] "
        "blobs { data: [1, 2] } }"
        "layers { name: 'l' type: SOFTMAX_LOSS loss_param { ignore_label: 2 } softmax_param { "
        "axis: "
        "2 } } layers { bottom: 'y' }",
        "name: 'old' force_backward: true layer { name: 'c' type: 'Convolution' bottom: 'x' "
        "top: 'y' top: 'z' convolution_param { num_output: 3 weight_filler { type: 'xavier' } } "
        "include { phase: TRAIN } exclude { stage: 's' } loss_weight: [1, 0] "
        "blobs { data: [1, 2] } }"
        "layer { name: 'l' type: 'SoftmaxWithLoss' loss_param { ignore_label: 2 } softmax_param { "
        "axis: 2 } } layer { bottom: 'y' }");
}

/* Every parameter message of a V1 layer has its place in a layer. */
static void v1_parameters(void **state)
{
    const ProtobufCMessageDescriptor *type = &ct__v1_layer_parameter__descriptor;
    int n = 0;

    (void)state;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const char *name = type->fields[i].name;
        char old[128], expected[128];
        size_t length = strlen(name);

        if ((length < 6) || (strcmp(name + length - 6, "_param") != 0)) continue;
        snprintf(old, sizeof(old), "layers { %s { } }", name);
        snprintf(expected, sizeof(expected), "layer { %s { } }", name);
        assert_upgrades(old, expected);
        n++;
    }
    assert_int_equal(n, 30);
}

static void v1_params(void **state)
{
    (void)state;
    assert_upgrades("layers { type: CONVOLUTION blobs_lr: 1 blobs_lr: 2 weight_decay: [0.5, 0] }",
                    "layer { type: 'Convolution' param { lr_mult: 1 decay_mult: 0.5 } "
                    "param { lr_mult: 2 decay_mult: 0 } }");
    assert_upgrades("layers { type: RELU param: ['w', ''] blob_share_mode: PERMISSIVE "
                    "blobs_lr: [1, 2, 3] weight_decay: 4 }",
                    "layer { type: 'ReLU' param { name: 'w' share_mode: PERMISSIVE lr_mult: 1 "
                    "decay_mult: 4 } param { lr_mult: 2 } param { lr_mult: 3 } }");
}

static void v1_types(void **state)
{
    static const char *const name[][2] = {
        { "ABSVAL", "AbsVal" },
        { "ACCURACY", "Accuracy" },
        { "ARGMAX", "ArgMax" },
        { "BNLL", "BNLL" },
        { "CONCAT", "Concat" },
        { "CONTRASTIVE_LOSS", "ContrastiveLoss" },
        { "CONVOLUTION", "Convolution" },
        { "DATA", "Data" },
        { "DECONVOLUTION", "Deconvolution" },
        { "DROPOUT", "Dropout" },
        { "DUMMY_DATA", "DummyData" },
        { "ELTWISE", "Eltwise" },
        { "EUCLIDEAN_LOSS", "EuclideanLoss" },
        { "EXP", "Exp" },
        { "FLATTEN", "Flatten" },
        { "HDF5_DATA", "HDF5Data" },
        { "HDF5_OUTPUT", "HDF5Output" },
        { "HINGE_LOSS", "HingeLoss" },
        { "IM2COL", "Im2col" },
        { "IMAGE_DATA", "ImageData" },
        { "INFOGAIN_LOSS", "InfogainLoss" },
        { "INNER_PRODUCT", "InnerProduct" },
        { "LRN", "LRN" },
        { "MEMORY_DATA", "MemoryData" },
        { "MULTINOMIAL_LOGISTIC_LOSS", "MultinomialLogisticLoss" },
        { "MVN", "MVN" },
        { "POOLING", "Pooling" },
        { "POWER", "Power" },
        { "RELU", "ReLU" },
        { "SIGMOID", "Sigmoid" },
        { "SIGMOID_CROSS_ENTROPY_LOSS", "SigmoidCrossEntropyLoss" },
        { "SILENCE", "Silence" },
        { "SLICE", "Slice" },
        { "SOFTMAX", "Softmax" },
        { "SOFTMAX_LOSS", "SoftmaxWithLoss" },
        { "SPLIT", "Split" },
        { "TANH", "TanH" },
        { "THRESHOLD", "Threshold" },
        { "WINDOW_DATA", "WindowData" },
    };
    enum { N = sizeof(name) / sizeof(name[0]) };

    (void)state;
    assert_int_equal(N + 1, ct__v1_layer_parameter__layer_type__descriptor.n_values); /* NONE */
    for (size_t i = 0; i < N; i++) {
        char old[128], expected[128];

        snprintf(old, sizeof(old), "layers { type: %s }", name[i][0]);
        snprintf(expected, sizeof(expected), "layer { type: '%s' }", name[i][1]);
        assert_upgrades(old, expected);
    }
}

static void inputs(void **state)
{
    (void)state;
    assert_upgrades("input: 'data' input: 'label' input_dim: [1, 3, 224, 225] "
                    "input_dim: [10, 1, 1, 1] layer { name: 'a' }",
                    "layer { name: 'input' type: 'Input' top: ['data', 'label'] input_param { "
                    "shape { dim: [1, 3, 224, 225] } shape { dim: [10, 1, 1, 1] } } } "
                    "layer { name: 'a' }");
    assert_upgrades("input: 'x' input_shape { dim: [2, 3] } layer { name: 'input' } layer { name: "
                    "'input_1' }",
                    "layer { name: 'input_2' type: 'Input' top: 'x' input_param { shape { dim: [2, "
                    "3] } } } layer { name: 'input' } layer { name: 'input_1' }");
    assert_upgrades("input: 'x' input_shape { dim: 5 } layers { type: RELU bottom: 'x' }",
                    "layer { name: 'input' type: 'Input' top: 'x' input_param { shape { dim: 5 } } "
                    "} layer { type: 'ReLU' bottom: 'x' }");
    assert_upgrades("input: 'x' layer { name: 'a' }", "layer { name: 'a' }"); /* weights */
}

static void transformations(void **state)
{
    (void)state;
    assert_upgrades(
        "layers { type: DATA data_param { source: 's' scale: 0.5 mean_file: 'm' crop_size: 3 "
        "mirror: true } } layers { type: IMAGE_DATA image_data_param { scale: 2 crop_size: 4 } "
        "transform_param { mean_value: 7 } } layers { type: WINDOW_DATA window_data_param { "
        "mirror: 0 } }",
        "layer { type: 'Data' data_param { source: 's' } transform_param { scale: 0.5 mean_file: "
        "'m' crop_size: 3 mirror: true } } layer { type: 'ImageData' image_data_param { } "
        "transform_param { mean_value: 7 scale: 2 crop_size: 4 } } layer { type: 'WindowData' "
        "window_data_param { } transform_param { mirror: false } }");
    assert_upgrades("layer { type: 'Data' data_param { mean_file: 'm' } }",
                    "layer { type: 'Data' data_param { } transform_param { mean_file: 'm' } }");
    /* another layer's parameters are not looked at */
    assert_upgrades("layer { type: 'ReLU' data_param { scale: 2 } }",
                    "layer { type: 'ReLU' data_param { scale: 2 } }");
}

static void batch_norm(void **state)
{
    (void)state;
    assert_upgrades(
        "layer { type: 'BatchNorm' param { lr_mult: 1 } param { name: 'n' } param { } }",
        "layer { type: 'BatchNorm' param { lr_mult: 0 decay_mult: 0 } param { name: 'n' "
        "lr_mult: 0 decay_mult: 0 } param { lr_mult: 0 decay_mult: 0 } }");
    assert_upgrades("layer { type: 'Scale' param { lr_mult: 1 } param { } param { } }",
                    "layer { type: 'Scale' param { lr_mult: 1 } param { } param { } }");
}

static void assert_line(const ct_source_map *map, const void *m, int line)
{
    ct_place p = ct_source_map_find(map, m);

    assert_string_equal(p.file, "t");
    assert_int_equal(p.line, line);
}

static void places(void **state)
{
    ct_source_map *map;
    Ct__NetParameter *net;
    log_capture c;

    (void)state;
    assert_int_equal(ct_source_map_create(&map), CT_OK);
    net = parsed("# old\n\ninput: 'x'\ninput_shape { dim: 3 }\n"
                 "layers { type: DATA\n data_param { scale: 2 }\n}\n"
                 "layers { type: RELU blobs_lr: 1\n  include { }\n}\n",
                 map);
    log_capture_start(&c);
    assert_int_equal(ct_net_upgrade(net, "t", map), CT_OK);
    log_capture_stop();
    assert_int_equal(net->n_layer, 3);
    assert_line(map, net->layer[0], 4);
    assert_line(map, net->layer[0]->input_param->shape[0], 4);
    assert_line(map, net->layer[1], 5);
    assert_line(map, net->layer[1]->transform_param, 6);
    assert_line(map, net->layer[2], 8);
    assert_line(map, net->layer[2]->param[0], 8);
    assert_line(map, net->layer[2]->include[0], 9);
    ct__net_parameter__free_unpacked(net, NULL);
    ct_source_map_destroy(map);
}

/* ---- layers that stand for several */

static void multi_head(void **state)
{
    (void)state;
    assert_upgrades(
        "layer { name: 'd' type: 'Input' top: 'x' }"
        "layer { name: 'attn' type: 'MultiHeadAttention' bottom: 'x' top: 'y'"
        "  include { phase: TEST } param { name: 'w' } param { lr_mult: 2 } param { lr_mult: 3 }"
        "  multi_head_attention_param { num_output: 12 weight_filler { std: 0.02 }"
        "    bias_filler { value: 1 } output_filler { std: 0.01 } }"
        "  attention_param { num_heads: 4 num_kv_heads: 2 causal: true } }"
        "layer { name: 'e' type: 'ReLU' bottom: 'y' top: 'y' }",
        "layer { name: 'd' type: 'Input' top: 'x' }"
        "layer { name: 'attn_qkv' type: 'InnerProduct' bottom: 'x' top: 'attn_qkv'"
        "  include { phase: TEST } param { name: 'w' } param { lr_mult: 2 }"
        "  inner_product_param { num_output: 24 axis: 2 weight_filler { std: 0.02 }"
        "    bias_filler { value: 1 } } }"
        "layer { name: 'attn' type: 'Attention' bottom: 'attn_qkv' top: 'attn_heads'"
        "  include { phase: TEST } attention_param { num_heads: 4 num_kv_heads: 2 causal: true } }"
        "layer { name: 'attn_proj' type: 'InnerProduct' bottom: 'attn_heads' top: 'y'"
        "  include { phase: TEST } param { lr_mult: 3 }"
        "  inner_product_param { num_output: 12 axis: 2 weight_filler { std: 0.01 }"
        "    bias_filler { value: 1 } } }"
        "layer { name: 'e' type: 'ReLU' bottom: 'y' top: 'y' }");
}

/* Keys and values of another sequence, segments, no biases; within a repeat. */
static void multi_head_across(void **state)
{
    (void)state;
    assert_upgrades(
        "repeat { count: 1 prefix: 'b%d_' bottom: 'x' top: 'x'"
        "  layer { name: 'a' type: 'MultiHeadAttention' bottom: 'x' bottom: 'm' bottom: 's' top: "
        "'x'"
        "    param { name: 'q' } param { name: 'k' } param { name: 'v' } param { name: 'o' }"
        "    multi_head_attention_param { num_output: 8 bias_term: false segments: true }"
        "    attention_param { num_heads: 2 } } }",
        "repeat { count: 1 prefix: 'b%d_' bottom: 'x' top: 'x'"
        "  layer { name: 'a_q' type: 'InnerProduct' bottom: 'x' top: 'a_q' param { name: 'q' }"
        "    inner_product_param { num_output: 8 axis: 2 bias_term: false } }"
        "  layer { name: 'a_k' type: 'InnerProduct' bottom: 'm' top: 'a_k' param { name: 'k' }"
        "    inner_product_param { num_output: 8 axis: 2 bias_term: false } }"
        "  layer { name: 'a_v' type: 'InnerProduct' bottom: 'm' top: 'a_v' param { name: 'v' }"
        "    inner_product_param { num_output: 8 axis: 2 bias_term: false } }"
        "  layer { name: 'a' type: 'Attention' bottom: 'a_q' bottom: 'a_k' bottom: 'a_v'"
        "    bottom: 's' top: 'a_heads' attention_param { num_heads: 2 } }"
        "  layer { name: 'a_proj' type: 'InnerProduct' bottom: 'a_heads' top: 'x'"
        "    param { name: 'o' } inner_product_param { num_output: 8 axis: 2 bias_term: false } } "
        "}");
}

static void assert_refused(const char *layer, const char *message)
{
    ct_source_map *map;
    Ct__NetParameter *net;
    char text[512];
    log_capture c;

    snprintf(text, sizeof(text), "layer { name: 'first' }\nlayer { type: 'MultiHeadAttention' %s }",
             layer);
    assert_int_equal(ct_source_map_create(&map), CT_OK);
    net = parsed(text, map);
    log_capture_start(&c);
    assert_int_equal(ct_net_upgrade(net, "t", map), CT_ERR_CONFIG);
    log_capture_stop();
    assert_non_null(strstr(c.error, "t:2:"));
    if (strstr(c.error, message) == NULL) fail_msg("%s", c.error);
    ct__net_parameter__free_unpacked(net, NULL);
    ct_source_map_destroy(map);
}

static void multi_head_errors(void **state)
{
    (void)state;
    assert_refused("name: 'a' bottom: 'x' top: 'y' attention_param { num_heads: 2 }",
                   "multi_head_attention_param.num_output");
    assert_refused("name: 'a' bottom: 'x' top: 'y' multi_head_attention_param { num_output: 8 }",
                   "attention_param.num_heads is missing");
    assert_refused("name: 'a' bottom: 'x' top: 'y' multi_head_attention_param { num_output: 8 }"
                   "attention_param { num_heads: 3 }",
                   "num_output 8, 3 heads");
    assert_refused("name: 'a' bottom: 'x' top: 'y' multi_head_attention_param { num_output: 8 }"
                   "attention_param { num_heads: 4 num_kv_heads: 3 }",
                   "3 of keys and values");
    assert_refused("name: 'a' bottom: 's' top: 'y' attention_param { num_heads: 2 }"
                   "multi_head_attention_param { num_output: 8 segments: true }",
                   "1 bottoms and 1 tops");
    assert_refused("name: 'a' bottom: 'x' top: 'y' attention_param { num_heads: 2 }"
                   "multi_head_attention_param { num_output: 8 bias_term: false }"
                   "param { } param { } param { }",
                   "3 of \"param\" for 2");
}

/* ---- files */

typedef struct folder {
    char path[32], solver[64], net[64];
} folder;

static void put(const char *path, const char *text)
{
    assert_int_equal(ct_file_write(path, text, strlen(text)), CT_OK);
}

static int make_folder(void **state)
{
    static folder f;

    snprintf(f.path, sizeof(f.path), "/tmp/cortado_XXXXXX");
    if (mkdtemp(f.path) == NULL) return -1;
    snprintf(f.solver, sizeof(f.solver), "%s/solver.prototxt", f.path);
    snprintf(f.net, sizeof(f.net), "%s/net.prototxt", f.path);
    *state = &f;
    return 0;
}

static int remove_folder(void **state)
{
    const folder *f = *state;

    unlink(f->solver);
    unlink(f->net);
    return rmdir(f->path);
}

static Ct__SolverParameter *read_solver(const folder *f, const char *text)
{
    Ct__SolverParameter *solver = NULL;

    put(f->solver, text);
    assert_int_equal(ct_solver_read(f->solver, NULL, &solver), CT_OK);
    return solver;
}

static void solver_types(void **state)
{
    static const char *const name[][2] = { { "SGD", "SGD" },           { "NESTEROV", "Nesterov" },
                                           { "ADAGRAD", "AdaGrad" },   { "RMSPROP", "RMSProp" },
                                           { "ADADELTA", "AdaDelta" }, { "ADAM", "Adam" } };

    for (size_t i = 0; i < 6; i++) {
        Ct__SolverParameter *solver;
        char text[64];

        snprintf(text, sizeof(text), "solver_type: %s", name[i][0]);
        solver = read_solver(*state, text);
        assert_string_equal(solver->type, name[i][1]);
        assert_false(solver->has_solver_type);
        ct__solver_parameter__free_unpacked(solver, NULL);
    }
}

static void nets_are_found(void **state)
{
    const folder *f = *state;
    Ct__SolverParameter *solver;
    char text[160], expected[160];

    put(f->net, "layers { type: RELU }");
    solver = read_solver(f, "net: 'net.prototxt' train_net: 'none.prototxt' test_net: "
                            "['net.prototxt', './net.prototxt']");
    assert_string_equal(solver->net, f->net);
    assert_string_equal(solver->train_net, "none.prototxt");
    assert_string_equal(solver->test_net[0], f->net);
    snprintf(expected, sizeof(expected), "%s/./net.prototxt", f->path);
    assert_string_equal(solver->test_net[1], expected);
    ct__solver_parameter__free_unpacked(solver, NULL);

    snprintf(text, sizeof(text), "net: '%s' test_net: '/none/net.prototxt'", f->net);
    solver = read_solver(f, text);
    assert_string_equal(solver->net, f->net);
    assert_string_equal(solver->test_net[0], "/none/net.prototxt");
    ct__solver_parameter__free_unpacked(solver, NULL);
}

/* A path that is there as given goes before one beside the solver. */
static void given_path_first(void **state)
{
    const folder *f = *state;
    Ct__SolverParameter *solver;

    put(f->net, "");
    solver = read_solver(f, "net: 'Makefile'"); /* tests run in the root */
    assert_string_equal(solver->net, "Makefile");
    ct__solver_parameter__free_unpacked(solver, NULL);
}

static void snapshot_prefixes(void **state)
{
    const folder *f = *state;
    static const char *const given[] = { "", "snapshot_prefix: 'a/b'", "snapshot_prefix: 'a/'" };

    for (int i = 0; i < 3; i++) {
        Ct__SolverParameter *solver = read_solver(*state, given[i]);
        const char *stem = strrchr(f->solver, '/') + 1;
        char want[512];

        if (i == 0) snprintf(want, sizeof(want), "%s", f->solver);
        if (i == 1) snprintf(want, sizeof(want), "a/b");
        if (i == 2) snprintf(want, sizeof(want), "a/%s", stem);
        if (i != 1) *strrchr(want, '.') = '\0';
        assert_string_equal(solver->snapshot_prefix, want);
        ct__solver_parameter__free_unpacked(solver, NULL);
    }
}

static void nets_within_solvers(void **state)
{
    Ct__SolverParameter *solver;
    log_capture c;

    log_capture_start(&c);
    solver = read_solver(*state, "net_param { layers { type: RELU } } train_net_param { layers { "
                                 "type: LRN } } test_net_param { } test_net_param { layers { type: "
                                 "TANH } }");
    log_capture_stop();
    assert_string_equal(solver->net_param->layer[0]->type, "ReLU");
    assert_string_equal(solver->train_net_param->layer[0]->type, "LRN");
    assert_string_equal(solver->test_net_param[1]->layer[0]->type, "TanH");
    ct__solver_parameter__free_unpacked(solver, NULL);
}

static void net_from_a_file(void **state)
{
    const folder *f = *state;
    Ct__NetParameter *net = NULL;
    ct_source_map *map;
    log_capture c;

    put(f->net, "name: 'n'\nlayers { type: RELU name: 'r' }\n");
    assert_int_equal(ct_source_map_create(&map), CT_OK);
    log_capture_start(&c);
    assert_int_equal(ct_net_read(f->net, map, &net), CT_OK);
    assert_string_equal(net->layer[0]->type, "ReLU");
    assert_string_equal(ct_source_map_find(map, net->layer[0]).file, f->net);
    ct__net_parameter__free_unpacked(net, NULL);
    assert_int_equal(ct_net_read("/none/net.prototxt", map, &net), CT_ERR_IO);
    log_capture_stop();
    assert_int_equal(c.n_error, 1);
    ct_source_map_destroy(map);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(new_form_stays),
        cmocka_unit_test(other_names),
        cmocka_unit_test(fused_layers),
        cmocka_unit_test(v1_layers),
        cmocka_unit_test(v1_parameters),
        cmocka_unit_test(v1_params),
        cmocka_unit_test(v1_types),
        cmocka_unit_test(inputs),
        cmocka_unit_test(transformations),
        cmocka_unit_test(batch_norm),
        cmocka_unit_test(places),
        cmocka_unit_test(multi_head),
        cmocka_unit_test(multi_head_across),
        cmocka_unit_test(multi_head_errors),
        cmocka_unit_test_setup_teardown(solver_types, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(nets_are_found, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(given_path_first, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(nets_within_solvers, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(snapshot_prefixes, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(net_from_a_file, make_folder, remove_folder),
    };

    return cmocka_run_group_tests(test, NULL, NULL);
}
