/* Fields by path, as --set and the run's header use them. */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/prototxt.h"
#include "tests/log_capture.h"
#include "tests/parsed_net.h"

static const char net_text[] =
    "layer { name: 'data' type: 'Data' include { phase: TRAIN } data_param { batch_size: 64 } }"
    "layer { name: 'data' type: 'Data' include { phase: TEST } data_param { batch_size: 100 } }"
    "layer { name: 'conv1' type: 'Convolution' param { lr_mult: 1 } param { lr_mult: 2 } }"
    "layer { name: 'inception_3a/1x1.b[0]' type: 'ReLU' }"
    "layer { name: '4' type: 'Clip' }";

static int net_setup(void **state)
{
    *state = test_parsed(&ct__net_parameter__descriptor, net_text);
    return 0;
}

static int solver_setup(void **state)
{
    *state = test_parsed(&ct__solver_parameter__descriptor, "base_lr: 0.1 stepvalue: [1, 2, 3]");
    return 0;
}

static int teardown(void **state)
{
    protobuf_c_message_free_unpacked(*state, NULL);
    return 0;
}

static void set(void *message, const char *path, const char *value)
{
    assert_int_equal(ct_prototxt_set(message, path, value, "--set"), CT_OK);
}

/* The error, and that the message is as it was. */
static void expect_error(void *message, const char *path, const char *value, const char *error)
{
    ct_text before = { 0 }, after = { 0 };
    log_capture c;
    ct_status status;

    assert_int_equal(ct_prototxt_write(message, &before), CT_OK);
    log_capture_start(&c);
    status = ct_prototxt_set(message, path, value, "--set");
    log_capture_stop();
    assert_int_equal(ct_prototxt_write(message, &after), CT_OK);
    assert_int_equal(status, CT_ERR_CONFIG);
    assert_string_equal(c.error, error);
    assert_int_equal(c.n_error, 1);
    assert_string_equal(before.text, after.text);
    ct_text_destroy(&before);
    ct_text_destroy(&after);
}

static void solver_fields(void **state)
{
    Ct__SolverParameter *s = *state;

    set(s, "base_lr", "1e-3");
    assert_true(s->base_lr == 1e-3f);
    set(s, "comm.bucket_mb", "8");
    assert_true((s->comm->bucket_mb == 8) && s->comm->has_bucket_mb);
    assert_string_equal(s->comm->allreduce, "auto"); /* made with its defaults */
    set(s, "comm.allreduce", "ring");
    set(s, "lr_policy", "\"step\"");
    set(s, "lr_policy", "'poly'");
    set(s, "type", "Adam");
    set(s, "type", "AdaGrad");
    set(s, "snapshot_prefix", "/tmp/a b");
    set(s, "regularization_type", "");
    assert_string_equal(s->comm->allreduce, "ring");
    assert_string_equal(s->lr_policy, "poly");
    assert_string_equal(s->type, "AdaGrad");
    assert_string_equal(s->snapshot_prefix, "/tmp/a b");
    assert_string_equal(s->regularization_type, "");
    set(s, "solver_mode", "CPU");
    assert_int_equal(s->solver_mode, CT__SOLVER_PARAMETER__SOLVER_MODE__CPU);
    set(s, "compression", "{ type: TOPK density: 0.05 }");
    assert_int_equal(s->compression->type, CT__COMPRESSION_PARAMETER__TYPE__TOPK);
    set(s, "compression", "{ type: BF16 }"); /* replaced, not merged */
    assert_false(s->compression->has_density);
    set(s, "net_param.layer", "[{name: 'a'}, {name: 'b'}]");
    assert_int_equal(s->net_param->n_layer, 2);
}

static void repeated_fields(void **state)
{
    Ct__SolverParameter *s = *state;

    set(s, "stepvalue", "[100, 200]");
    assert_int_equal(s->n_stepvalue, 2);
    assert_int_equal(s->stepvalue[1], 200);
    set(s, "stepvalue", "5,6,7");
    assert_int_equal(s->n_stepvalue, 3);
    set(s, "stepvalue", "9");
    assert_int_equal(s->n_stepvalue, 1);
    assert_int_equal(s->stepvalue[0], 9);
    set(s, "stepvalue", "[]");
    assert_int_equal(s->n_stepvalue, 0);
    set(s, "weights", "a.caffemodel,b");
    assert_int_equal(s->n_weights, 1);
    set(s, "weights", "['a', 'b']");
    assert_int_equal(s->n_weights, 2);
    assert_string_equal(s->weights[1], "b");
    set(s, "test_state[0].stage", "x");
    set(s, "test_state[1].stage", "y");
    set(s, "test_state[0].level", "3");
    assert_int_equal(s->n_test_state, 2);
    assert_int_equal(s->test_state[0]->level, 3);
    assert_string_equal(s->test_state[1]->stage[0], "y");
}

static void layer_fields(void **state)
{
    Ct__NetParameter *net = *state;

    set(net, "layer[conv1].convolution_param.num_output", "32");
    assert_int_equal(net->layer[2]->convolution_param->num_output, 32);
    set(net, "layer[\"conv1\"].convolution_param.kernel_size", "3,5");
    assert_int_equal(net->layer[2]->convolution_param->n_kernel_size, 2);
    set(net, "layer[data].data_param.batch_size", "7"); /* both layers of the name */
    assert_int_equal(net->layer[0]->data_param->batch_size, 7);
    assert_int_equal(net->layer[1]->data_param->batch_size, 7);
    set(net, "layer[0].data_param.batch_size", "8");
    assert_int_equal(net->layer[0]->data_param->batch_size, 8);
    assert_int_equal(net->layer[1]->data_param->batch_size, 7);
    set(net, "layer[4].clip_param", "{ min: 0 max: 6 }"); /* a name goes before an index */
    assert_true(net->layer[4]->clip_param->max == 6);
    set(net, "layer[inception_3a/1x1.b[0]].relu_param.negative_slope", "0.25");
    assert_true(net->layer[3]->relu_param->negative_slope == 0.25f);
    set(net, "layer[conv1].param[1].lr_mult", "0");
    set(net, "layer[conv1].param[2].decay_mult", "3");
    assert_int_equal(net->layer[2]->n_param, 3);
    assert_true(net->layer[2]->param[1]->lr_mult == 0);
    assert_true(net->layer[2]->param[2]->decay_mult == 3);
    set(net, "layer[data].include.phase", "TEST");
    assert_int_equal(net->layer[0]->include[0]->phase, CT__PHASE__TEST);
    set(net, "layer[conv1].include.stage", "deploy"); /* made: there was none */
    assert_string_equal(net->layer[2]->include[0]->stage[0], "deploy");
    set(net, "name", "tiny");
    assert_string_equal(net->name, "tiny");
}

static void solver_errors(void **state)
{
    void *s = *state;

    expect_error(s, "base_lrr", "1",
                 "--set: base_lrr: unknown field \"base_lrr\"; did you mean \"base_lr\"?");
    expect_error(s, "comm.bucket", "1",
                 "--set: comm.bucket: unknown field \"bucket\"; did you mean \"bucket_mb\"?");
    expect_error(s, "base_lr", "fast", "--set: base_lr: expected a number, got \"fast\"");
    expect_error(s, "base_lr", "", "--set: base_lr: expected a number, got the end of the text");
    expect_error(s, "base_lr", "1 2",
                 "--set: base_lr: expected nothing behind the value, got \"2\"");
    expect_error(s, "base_lr", "[1]", "--set: base_lr: takes one value, not a list");
    expect_error(s, "stepvalue", "1,x",
                 "--set: stepvalue: expected a whole number from -2147483648 to 2147483647, got "
                 "\"x\"");
    expect_error(s, "comm", "{ overlp: true }",
                 "--set: comm: unknown field \"overlp\"; did you mean \"overlap\"?");
    expect_error(s, "comm", "{ overlap: maybe }",
                 "--set: comm.overlap: expected true or false, got \"maybe\"");
    expect_error(s, "solver_mode", "cpu",
                 "--set: solver_mode: unknown value \"cpu\"; did you mean \"CPU\"?");
    expect_error(s, "base_lr.x", "1", "--set: base_lr.x: base_lr has no fields");
    expect_error(s, "base_lr[0]", "1",
                 "--set: base_lr[0]: base_lr is one value, which takes no [ ]");
    expect_error(s, "stepvalue[0]", "1",
                 "--set: stepvalue[0]: one element cannot be set; give the whole list");
    expect_error(s, "", "1", "--set: : a field's name is missing in the path");
    expect_error(s, "comm.", "1", "--set: comm.: a field's name is missing in the path");
    expect_error(s, "lr_policy", "\"step",
                 "--set: lr_policy: this string is not closed on its line");
}

static void layer_errors(void **state)
{
    void *net = *state;

    expect_error(net, "layer[cnv1].convolution_param.num_output", "3",
                 "--set: layer[cnv1].convolution_param.num_output: no layer \"cnv1\"; did you mean "
                 "\"conv1\"?");
    expect_error(net, "layer[nothing].type", "3",
                 "--set: layer[nothing].type: no layer \"nothing\"; there are 5");
    expect_error(net, "layer[5].type", "3", "--set: layer[5].type: no layer \"5\"; there are 5");
    expect_error(net, "layer.type", "3",
                 "--set: layer.type: layer stands there several times; say which with [ ], from "
                 "[0] on");
    expect_error(net, "layer[conv1", "3", "--set: layer[conv1: \"[\" is not closed");
    expect_error(
        net, "layer[conv1].convolution_param.num_ouput", "3",
        "--set: layer[conv1].convolution_param.num_ouput: unknown field \"num_ouput\"; did "
        "you mean \"num_output\"?");
    expect_error(net, "layer[conv1].num_output", "3",
                 "--set: layer[conv1].num_output: unknown field \"num_output\"; it belongs in "
                 "convolution_param { } or inner_product_param { } or embed_param { } or others");
    expect_error(net, "layer[conv1].convolution_param.num_output", "-3",
                 "--set: layer[conv1].convolution_param.num_output: expected a whole number from 0 "
                 "to 4294967295, got \"-3\"");
    expect_error(net, "layer[conv1].param[3].lr_mult", "1",
                 "--set: layer[conv1].param[3].lr_mult: no param \"3\"; there are 2");
    expect_error(net, "layer[4].clip_param.min", "1",
                 "--set: layer[4].clip_param.min: clip_param is not there, and needs several "
                 "fields: set it whole");
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test_setup_teardown(solver_fields, solver_setup, teardown),
        cmocka_unit_test_setup_teardown(repeated_fields, solver_setup, teardown),
        cmocka_unit_test_setup_teardown(layer_fields, net_setup, teardown),
        cmocka_unit_test_setup_teardown(solver_errors, solver_setup, teardown),
        cmocka_unit_test_setup_teardown(layer_errors, net_setup, teardown),
    };

    return cmocka_run_group_tests(test, NULL, NULL);
}
