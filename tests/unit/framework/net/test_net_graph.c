/* Graph building: rules, connections, splits, in place, what has a gradient, refusals. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/net_layers.h"

#include <stdlib.h>
#include <string.h>

#define SOURCE                                                                                     \
    "layer { name: 'data' type: 'Source' top: 'x' input_param { shape { dim: 2 dim: 3 } } }\n"
#define SOURCE2                                                                                    \
    "layer { name: 'data' type: 'Source' top: 'x' top: 'label' input_param {\n"                    \
    "  shape { dim: 2 dim: 3 } shape { dim: 2 dim: 3 } } }\n"
#define LINEAR(name, bottom, top)                                                                  \
    "layer { name: '" name "' type: 'Linear' bottom: '" bottom "' top: '" top                      \
    "' inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }\n"
#define LAYER(name, type, bottom, top)                                                             \
    "layer { name: '" name "' type: '" type "' bottom: '" bottom "' top: '" top "' }\n"
#define LOSS(bottom) LAYER("loss", "SumSq", bottom, "loss")

static bool has(const char *text, const ct_net_options *o, const char *layer)
{
    test_net t;
    bool found;

    assert_int_equal(test_net_create(text, o, &t), CT_OK);
    found = ct_net_find_layer(t.net, layer) >= 0;
    test_net_destroy(&t);
    return found;
}

static void rules_of_phase_level_and_stage(void **state)
{
    static const char *const red[] = { "red" }, *const both[] = { "red", "blue" };
    struct {
        const char *rule;
        ct_net_options o;
        bool in;
    } c[] = {
        { "", { .phase = CT_TRAIN }, true },
        { "include { phase: TRAIN }", { .phase = CT_TRAIN }, true },
        { "include { phase: TRAIN }", { .phase = CT_TEST }, false },
        { "exclude { phase: TRAIN }", { .phase = CT_TRAIN }, false },
        { "exclude { phase: TRAIN }", { .phase = CT_TEST }, true },
        { "include { phase: TEST } include { phase: TRAIN }", { .phase = CT_TEST }, true },
        { "include { min_level: 2 }", { .level = 1 }, false },
        { "include { min_level: 2 }", { .level = 2 }, true },
        { "include { max_level: 2 }", { .level = 2 }, true },
        { "include { max_level: 2 }", { .level = 3 }, false },
        { "include { min_level: -1 max_level: 1 }", { .level = 0 }, true },
        { "include { stage: 'red' }", { .n_stage = 0 }, false },
        { "include { stage: 'red' }", { .stage = red, .n_stage = 1 }, true },
        { "include { stage: 'red' stage: 'blue' }", { .stage = red, .n_stage = 1 }, false },
        { "include { stage: 'red' stage: 'blue' }", { .stage = both, .n_stage = 2 }, true },
        { "include { stage: 'red' not_stage: 'blue' }", { .stage = both, .n_stage = 2 }, false },
        { "include { not_stage: 'blue' }", { .stage = red, .n_stage = 1 }, true },
        { "exclude { stage: 'red' }", { .stage = both, .n_stage = 2 }, false },
        { "include { stage: 'red' phase: TEST }", { .stage = red, .n_stage = 1 }, false },
        { "include { phase: TEST } include { stage: 'red' }",
          { .stage = red, .n_stage = 1 },
          true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        char text[512];

        snprintf(text, sizeof(text), "%s layer { name: 'it' type: 'Half' bottom: 'x' top: 'y' %s }",
                 SOURCE, c[i].rule);
        if (has(text, &c[i].o, "it") != c[i].in) fail_msg("rule %zu: %s", i, c[i].rule);
    }
}

static void state_of_the_net_counts_too(void **state)
{
    static const char *const red[] = { "red" };
    ct_net_options o = { .stage = red, .n_stage = 1 };

    (void)state;
    assert_true(has("state { stage: 'blue' level: 3 }" SOURCE
                    "layer { name: 'it' type: 'Half' bottom: 'x' top: 'y' include { stage: 'red' "
                    "stage: 'blue' min_level: 3 } }",
                    &o, "it"));
    o.level = 2; /* the options' level wins */
    assert_false(has("state { level: 3 }" SOURCE
                     "layer { name: 'it' type: 'Half' bottom: 'x' top: 'y' include { min_level: 3 "
                     "} }",
                     &o, "it"));
}

static void refused_one_by_one(void **state)
{
    struct {
        const char *text, *part;
    } c[] = {
        { SOURCE "layer { name: 'a' type: 'Half' bottom: 'x' top: 'y' include { phase: TRAIN } "
                 "exclude { stage: 'q' } }",
          "net:2: layer \"a\": it has include and exclude rules" },
        { SOURCE "\nlayer { name: 'a' type: 'Linaer' bottom: 'x' top: 'y' }",
          "net:3: layer \"a\" (Linaer): unknown layer type; did you mean \"Linear\"?" },
        { SOURCE LAYER("a", "Zzzzzzzzz", "x", "y"), "(Zzzzzzzzz): unknown layer type" },
        { SOURCE LAYER("a", "Proposal", "x", "y"), "let proposals come in as boxes" },
        { SOURCE LAYER("a", "SoftmaxFocalLoss", "x", "y"), "not supported: FocalLoss is" },
        { SOURCE "layer { name: 'a' bottom: 'x' top: 'y' }", "it has no type" },
        { SOURCE2 LAYER("a", "Half", "labl", "y"),
          "net:3: layer \"a\" (Half): unknown bottom \"labl\"; did you mean \"label\"?" },
        { SOURCE LAYER("a", "Half", "nothing_like_it", "y"), "unknown bottom \"nothing_like_it\"" },
        { SOURCE LAYER("a", "Half", "z", "y") LAYER("b", "Half", "x", "z"),
          "layer \"b\", which makes it, comes later" },
        { SOURCE LAYER("a", "Half", "y", "y"), "which makes it, is this one" },
        { SOURCE
          "layer { name: 'b' type: 'Half' bottom: 'x' top: 'z' include { phase: TEST } }\n" LAYER(
              "a", "Half", "z", "y"),
          "bottom \"z\" is not there: layer \"b\", which makes it, is left out" },
        { SOURCE LAYER("a", "Half", "x", "y") LAYER("b", "Half", "x", "y"),
          "layer \"b\" (Half): top \"y\" is a top of layer \"a\" already" },
        { SOURCE "layer { name: 'b' type: 'Twin' bottom: 'x' top: 'y' top: 'y' }",
          "top \"y\" is a top of layer \"b\" already" },
        { SOURCE LAYER("a", "Square", "x", "x"), "it cannot work in place" },
        { SOURCE "layer { name: 'a' type: 'Half' bottom: 'x' bottom: 'x' top: 'y' }",
          "2 bottoms given, 1 needed" },
        { SOURCE "layer { name: 'a' type: 'Half' top: 'y' }", "0 bottoms given, 1 needed" },
        { SOURCE LAYER("a", "Add", "x", "y"), "1 bottoms given, at least 2 needed" },
        { SOURCE "layer { name: 'a' type: 'Half' bottom: 'x' top: 'y' top: 'z' }",
          "2 tops given, 1 needed" },
        { SOURCE "layer { name: 'a' type: 'Half' bottom: 'x' top: 'y' loss_weight: 1 loss_weight: "
                 "2 }",
          "loss_weight is given 2 times" },
        { SOURCE "layer { name: 'a' type: 'Add' bottom: 'x' bottom: 'x' top: 'y' propagate_down: "
                 "true }",
          "propagate_down is given 1 times" },
        { SOURCE2 "layer { name: 'a' type: 'SumSq' bottom: 'x' bottom: 'label' top: 'y' "
                  "propagate_down: true propagate_down: true }",
          "propagate_down is true for bottom 1, \"label\"" },
        { SOURCE "layer { name: 'a' type: 'Half' bottom: 'x' top: 'y' param { lr_mult: 1 } }",
          "1 param entries, but it has 0 weight blobs" },
        { "name: 'empty' layer { name: 'a' type: 'Source' top: 'x' include { phase: TEST } }",
          "net \"empty\" has no layer in phase TRAIN" },
        { "layer { name: 'a' type: 'Source' top: 'x' input_param { shape { dim: -2 } } }",
          "impossible shape" },
        { "layer { name: 'a' type: 'Source' top: 'x' input_param { shape { dim: 4294967296 dim: "
          "4294967296 dim: 16 } } }",
          "impossible shape" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        test_net t;
        ct_status status;
        const char *log;

        test_log_start();
        status = test_net_create(c[i].text, NULL, &t);
        log = test_log_stop();
        if (strstr(log, c[i].part) == NULL) fail_msg("%zu: no \"%s\" in: %s", i, c[i].part, log);
        if ((status != CT_ERR_CONFIG) && (status != CT_ERR_SHAPE)) fail_msg("%zu: status", i);
        assert_null(t.net);
        test_net_destroy(&t);
    }
}

static void same_name_without_weights_is_a_warning(void **state)
{
    test_net t;

    (void)state;
    test_log_start();
    assert_int_equal(
        test_net_create(SOURCE LAYER("a", "Half", "x", "y") LAYER("a", "Half", "y", "z"), NULL, &t),
        CT_OK);
    assert_non_null(strstr(test_log_stop(), "an earlier layer (Half) has this name too"));
    test_net_destroy(&t);
}

/* Each has weights of its own, under names that no layer has; unlike copies of one parameter. */
static void same_name_with_weights_gets_another(void **state)
{
    test_net t;

    (void)state;
    test_log_start();
    assert_int_equal(test_net_create(SOURCE LINEAR("a", "x", "y") LINEAR("a_2", "y", "z")
                                         LINEAR("a", "z", "u"),
                                     NULL, &t),
                     CT_OK);
    assert_non_null(strstr(test_log_stop(), "this one is called \"a_3\" here"));
    assert_true(ct_net_find_param(t.net, "a[0]") >= 0);
    assert_true(ct_net_find_param(t.net, "a_2[0]") >= 0);
    assert_true(ct_net_find_param(t.net, "a_3[0]") >= 0);
    assert_true(ct_net_find_layer(t.net, "a_3") > ct_net_find_layer(t.net, "a"));
    test_net_destroy(&t);
}

/* Beside a layer without weights, too: that may keep its name. */
static void third_of_a_name(void **state)
{
    test_net t;

    (void)state;
    test_log_start();
    assert_int_equal(test_net_create(SOURCE LAYER("a", "Half", "x", "y") LINEAR("a", "y", "z")
                                         LINEAR("a", "z", "u") LINEAR("a", "u", "v"),
                                     NULL, &t),
                     CT_OK);
    test_log_stop();
    assert_string_equal(t.net->layer[2]->name, "a");
    assert_string_equal(t.net->layer[3]->name, "a_2");
    assert_string_equal(t.net->layer[4]->name, "a_3");
    assert_int_equal(ct_net_find_layer(t.net, "a"), 2);
    test_net_destroy(&t);
}

static void splits_are_named_as_in_caffe(void **state)
{
    test_net t;

    (void)state;
    assert_int_equal(test_net_create(SOURCE LINEAR("ip", "x", "y") LAYER("act", "Half", "y", "y")
                                         LAYER("l1", "SumSq", "y", "l1")
                                             LAYER("l2", "SumSq", "y", "l2"),
                                     NULL, &t),
                     CT_OK);
    assert_int_equal(t.net->n_layer, 6);
    assert_string_equal(t.net->layer[3]->name, "y_act_0_split");
    assert_string_equal(t.net->layer[3]->ops->type, "Split");
    assert_string_equal(t.net->pass->instance[3]->top[0]->name, "y_act_0_split_0");
    assert_string_equal(t.net->pass->instance[4]->bottom[0]->name, "y_act_0_split_0");
    assert_string_equal(t.net->pass->instance[5]->bottom[0]->name, "y_act_0_split_1");
    assert_ptr_equal(t.net->pass->instance[2]->top[0],
                     t.net->pass->instance[1]->top[0]); /* in place */
    assert_int_equal(t.net->n_output, 2);
    test_net_destroy(&t);
}

static void a_loss_weight_is_a_reader(void **state)
{
    test_net t;

    (void)state;
    assert_int_equal(test_net_create(SOURCE
                                     "layer { name: 'ip' type: 'Linear' bottom: 'x' top: "
                                     "'y' loss_weight: 0.25 inner_product_param { "
                                     "num_output: 3 weight_filler { value: 1 } } }" LOSS("y"),
                                     NULL, &t),
                     CT_OK);
    assert_string_equal(t.net->layer[2]->name, "y_ip_0_split");
    assert_string_equal(t.net->pass->instance[3]->bottom[0]->name, "y_ip_0_split_1");
    assert_int_equal(t.net->n_output, 2);
    assert_string_equal(t.net->pass->blob[t.net->output[0].blob]->name, "y_ip_0_split_0");
    assert_true(t.net->output[0].loss_weight == 0.25f);
    assert_false(t.net->output[0].is_share);
    assert_true(t.net->output[1].loss_weight == 1.0f);
    assert_true(t.net->output[1].is_share);
    {
        double loss = test_net_pass(&t, 0, false), expected = 0.0;
        const float *y = ct_blob_data(t.net->pass->blob[t.net->output[0].blob]);

        for (int i = 0; i < 6; i++)
            expected += 0.25 * (double)y[i] + 0.5 * (double)y[i] * (double)y[i];
        assert_true(loss > expected - 1e-6 * 6 && loss < expected + 1e-6 * 6);
    }
    test_net_destroy(&t);
}

/* A default loss weight counts too: the loss of a layer whose top is read stays a loss. */
static void the_top_of_a_loss_may_be_read(void **state)
{
    test_net t;
    double loss;

    (void)state;
    assert_int_equal(test_net_create(SOURCE LINEAR("ip", "x", "y") LOSS("y")
                                         LAYER("s", "Stop", "loss", "copy"),
                                     NULL, &t),
                     CT_OK);
    loss = test_net_pass(&t, 0, false);
    assert_true((float)loss == ct_blob_data(t.net->pass->blob[ct_net_find_blob(t.net, "copy")])[0]);
    assert_true(t.net->param[0].learns && (t.net->n_param == 2));
    for (int i = 0; i < t.net->n_output; i++) {
        if (t.net->output[i].loss_weight != 0.0f) assert_true(t.net->output[i].is_share);
    }
    test_net_destroy(&t);
}

static void old_nets_leave_out_the_top_of_a_loss(void **state)
{
    test_net t;

    (void)state;
    assert_int_equal(
        test_net_create(
            SOURCE LINEAR("ip", "x", "y") "layer { name: 'l' type: 'SumSq' bottom: 'y' }", NULL,
            &t),
        CT_OK);
    assert_int_equal(t.net->n_output, 1);
    assert_true(t.net->output[0].loss_weight == 1.0f);
    assert_true(test_net_pass(&t, 0, false) > 0.0);
    test_net_destroy(&t);
}

static bool inplace(const test_net *t, const char *layer)
{
    int i = ct_net_find_layer(t->net, layer);

    return t->net->pass->instance[i]->top[0] == t->net->pass->instance[i]->bottom[0];
}

static void in_place_only_where_nobody_minds(void **state)
{
    ct_net_options test = { .phase = CT_TEST, .forward_only = true };
    test_net t;

    (void)state;
    /* Tanh's backward reads its top, which h would overwrite */
    const char *chain = SOURCE LINEAR("ip", "x", "y") LAYER("t", "Tanh", "y", "y")
        LAYER("h", "Half", "y", "y") LOSS("y");

    assert_int_equal(test_net_create(chain, NULL, &t), CT_OK);
    assert_true(inplace(&t, "t"));
    assert_false(inplace(&t, "h"));
    assert_ptr_equal(t.net->pass->blob[ct_net_find_blob(t.net, "y")],
                     t.net->pass->instance[ct_net_find_layer(t.net, "h")]->top[0]);
    test_net_destroy(&t);
    /* without backward it may */
    assert_int_equal(test_net_create(chain, &test, &t), CT_OK);
    assert_true(inplace(&t, "t") && inplace(&t, "h"));
    test_net_destroy(&t);
    /* an older version that another layer reads: the copy stays whole */
    assert_int_equal(test_net_create(SOURCE LINEAR("ip", "x", "y") LAYER("q", "Square", "y", "z")
                                         LAYER("h", "Half", "y", "y")
                                             LAYER("l1", "SumSq", "y", "l1")
                                                 LAYER("l2", "SumSq", "z", "l2"),
                                     NULL, &t),
                     CT_OK);
    assert_false(inplace(&t, "h"));
    test_net_destroy(&t);
    /* Pass gives on its bottom's memory, which nobody needs any more */
    assert_int_equal(test_net_create(SOURCE LINEAR("ip", "x", "y") LAYER("p", "Pass", "y", "z")
                                         LAYER("h", "Half", "z", "z") LOSS("z"),
                                     NULL, &t),
                     CT_OK);
    assert_true(inplace(&t, "h"));
    assert_ptr_equal(t.net->pass->instance[2]->bottom[0]->data.data,
                     t.net->pass->instance[2]->top[0]->data.data);
    test_net_destroy(&t);
    /* but here Tanh needs it */
    assert_int_equal(test_net_create(SOURCE LINEAR("ip", "x", "y") LAYER("t", "Tanh", "y", "y")
                                         LAYER("p", "Pass", "y", "z") LAYER("h", "Half", "z", "z")
                                             LOSS("z"),
                                     NULL, &t),
                     CT_OK);
    assert_false(inplace(&t, "h"));
    test_net_destroy(&t);
}

static bool runs(const test_net *t, const char *layer)
{
    int i = ct_net_find_layer(t->net, layer);

    for (int s = 0; s < t->net->n_backward; s++) {
        const ct_step *step = &t->net->backward[s];

        if ((step->kind == CT_STEP_BACKWARD) && (step->layer == i)) return true;
    }
    return false;
}

static bool wants(const test_net *t, const char *blob)
{
    const ct_blob *b = t->net->pass->blob[ct_net_find_blob(t->net, blob)];

    assert_int_equal(b->wants_diff, b->diff.data != NULL);
    return b->wants_diff;
}

static bool learns(const test_net *t, const char *key)
{
    const ct_param *p = &t->net->param[ct_net_find_param(t->net, key)];

    assert_int_equal(p->learns, p->blob.diff.data != NULL);
    return p->learns;
}

static void gradients_only_where_needed(void **state)
{
    ct_net_options forward = { .phase = CT_TRAIN, .forward_only = true };
    test_net t;

    (void)state;
    /* frozen first layer, a branch without a loss, a branch that passes no gradient */
    const char *text = SOURCE2
        "layer { name: 'frozen' type: 'Linear' bottom: 'x' top: 'a' param { lr_mult: 0 } param { "
        "lr_mult: 0 } inner_product_param { num_output: 3 weight_filler { value: 1 } } }" //
        LAYER("act", "Half", "a", "b") LINEAR("learns", "b", "c") LINEAR("aside", "c", "d") LAYER(
            "stop", "Stop", "c",
            "e") "layer { name: 'loss' type: 'SumSq' bottom: 'c' bottom: 'label' top: 'loss' }";

    assert_int_equal(test_net_create(text, NULL, &t), CT_OK);
    assert_false(runs(&t, "frozen") || runs(&t, "act") || runs(&t, "aside") || runs(&t, "stop"));
    assert_true(runs(&t, "learns") && runs(&t, "loss"));
    assert_false(wants(&t, "x") || wants(&t, "a") || wants(&t, "b") || wants(&t, "d"));
    assert_false(wants(&t, "e") || wants(&t, "label"));
    assert_true(wants(&t, "c") && wants(&t, "loss"));
    assert_false(learns(&t, "frozen[0]") || learns(&t, "aside[0]"));
    assert_true(learns(&t, "learns[0]") && learns(&t, "learns[1]"));
    assert_false(wants(&t, "c_learns_0_split_0")); /* read by aside: Split takes NULL for zeros */
    assert_int_equal(t.net->n_param, 6);
    assert_int_equal(t.net->grad_count, 2 * 16);
    test_net_pass(&t, 0, false);
    test_net_destroy(&t);

    assert_int_equal(test_net_create(text, &forward, &t), CT_OK);
    assert_int_equal(t.net->n_backward, 0);
    assert_null(t.net->grad_arena);
    assert_false(wants(&t, "c"));
    test_log_start();
    assert_int_equal(ct_pass_backward(t.net->pass, NULL, NULL), CT_ERR_ARG);
    test_log_stop();
    test_net_destroy(&t);
}

static void propagate_down_and_force_backward(void **state)
{
    test_net t;

    (void)state;
    assert_int_equal(
        test_net_create(
            SOURCE LINEAR("below", "x",
                          "a") "layer { name: 'l' type: 'Linear' bottom: 'a' top: 'b' "
                               "propagate_down: false inner_product_param { num_output: 2 } "
                               "}" LOSS("b"),
            NULL, &t),
        CT_OK);
    assert_false(runs(&t, "below") || wants(&t, "a") || learns(&t, "below[0]"));
    assert_true(runs(&t, "l") && learns(&t, "l[0]"));
    test_net_destroy(&t);

    assert_int_equal(test_net_create(SOURCE
                                     "layer { name: 'l' type: 'Linear' bottom: 'x' top: 'b' "
                                     "propagate_down: true inner_product_param { "
                                     "num_output: 2 weight_filler { value: 1 } } }" LOSS("b"),
                                     NULL, &t),
                     CT_OK);
    assert_true(wants(&t, "x"));
    test_net_pass(&t, 0, false);
    {
        /* the diff is there after the pass: W^T y, every row of W being ones */
        const float *x = ct_blob_data(t.net->pass->blob[0]),
                    *dx = ct_blob_diff(t.net->pass->blob[0]);
        double y = (double)x[0] + (double)x[1] + (double)x[2];

        assert_true(dx[0] > 2.0 * y - 1e-5 && dx[0] < 2.0 * y + 1e-5);
    }
    test_net_destroy(&t);

    assert_int_equal(
        test_net_create(
            "force_backward: true " SOURCE2 LAYER(
                "h", "Half", "x", "a") "layer { name: 'loss' type: 'SumSq' bottom: 'a' bottom: "
                                       "'label' top: 'loss' }",
            NULL, &t),
        CT_OK);
    assert_true(wants(&t, "x") && wants(&t, "a") && runs(&t, "h") && !wants(&t, "label"));
    test_net_destroy(&t);
}

static void zeros_where_no_reader_sends_a_gradient(void **state)
{
    test_net t;
    int n_zero = 0;

    (void)state;
    assert_int_equal(
        test_net_create(
            SOURCE LINEAR("ip", "x",
                          "a") "layer { name: 'tw' type: 'Twin' bottom: 'a' top: 'b' top: "
                               "'c' }" LAYER("stop", "Stop", "c", "d") LOSS("b"),
            NULL, &t),
        CT_OK);
    for (int s = 0; s < t.net->n_backward; s++) {
        const ct_step *step = &t.net->backward[s];

        if (step->kind != CT_STEP_ZERO_DIFF) continue;
        n_zero++;
        assert_string_equal(t.net->pass->blob[step->blob]->name, "c");
        assert_int_equal(t.net->backward[s + 1].kind, CT_STEP_BACKWARD);
        assert_int_equal(t.net->backward[s + 1].layer, step->layer);
    }
    assert_int_equal(n_zero, 1);
    test_net_destroy(&t);
}

static void the_callers_tops_are_kept(void **state)
{
    test_net t;
    float *x;

    (void)state;
    assert_int_equal(
        test_net_create("layer { name: 'in' type: 'Given' top: 'x' input_param { shape { dim: 2 "
                        "dim: 3 } } }" LAYER("h", "Half", "x", "x") LINEAR("ip", "x", "a")
                            LINEAR("ip2", "a", "b") LINEAR("ip3", "b", "c") LOSS("c"),
                        NULL, &t),
        CT_OK);
    assert_int_equal(t.net->batch_local, 2);
    x = ct_blob_data(t.net->pass->blob[0]);
    for (int i = 0; i < 6; i++) x[i] = (float)i;
    for (int pass = 0; pass < 3; pass++) test_net_pass(&t, pass, false);
    for (int i = 0; i < 6; i++) assert_true(x[i] == (float)i);
    test_net_destroy(&t);
}

static void hash_and_names(void **state)
{
    ct_net_options test = { .phase = CT_TEST, .forward_only = true };
    test_net a, b;

    (void)state;
    assert_int_equal(test_net_create(SOURCE LINEAR("ip", "x", "y") LOSS("y"), NULL, &a), CT_OK);
    assert_int_equal(test_net_create(SOURCE LINEAR("zz", "x", "q") LOSS("q"), &test, &b), CT_OK);
    assert_true(ct_net_hash(a.net) == ct_net_hash(b.net)); /* names and phase do not count */
    assert_int_equal(ct_net_find_blob(a.net, "y"), 1);
    assert_int_equal(ct_net_find_blob(a.net, "q"), -1);
    assert_int_equal(ct_net_find_layer(a.net, "q"), -1);
    assert_int_equal(ct_net_find_param(a.net, "ip[1]"), ct_net_param_of(a.net, 1, 1));
    assert_int_equal(ct_net_find_param(a.net, "ip[2]"), -1);
    test_net_destroy(&b);
    assert_int_equal(test_net_create(SOURCE LINEAR("ip", "x", "y") LAYER("h", "Half", "y", "z")
                                         LOSS("z"),
                                     NULL, &b),
                     CT_OK);
    assert_true(ct_net_hash(a.net) != ct_net_hash(b.net));
    test_net_destroy(&b);
    test_net_destroy(&a);
}

static void without_data_there_is_a_plan(void **state)
{
    ct_net_options check = { .phase = CT_TRAIN, .no_data = true };
    test_net t;

    (void)state;
    assert_int_equal(
        test_net_create("name: 'small'" SOURCE LINEAR("ip", "x", "y") LOSS("y"), &check, &t),
        CT_OK);
    assert_null(t.net->weight_arena);
    assert_null(t.net->pass->blob[0]->data.data);
    assert_true(t.net->memory.planned > 0);
    test_log_start();
    assert_int_equal(ct_pass_forward(t.net->pass, NULL), CT_ERR_ARG);
    test_log_stop();
    test_net_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_of_phase_level_and_stage),
        cmocka_unit_test(state_of_the_net_counts_too),
        cmocka_unit_test(refused_one_by_one),
        cmocka_unit_test(same_name_without_weights_is_a_warning),
        cmocka_unit_test(same_name_with_weights_gets_another),
        cmocka_unit_test(third_of_a_name),
        cmocka_unit_test(splits_are_named_as_in_caffe),
        cmocka_unit_test(a_loss_weight_is_a_reader),
        cmocka_unit_test(the_top_of_a_loss_may_be_read),
        cmocka_unit_test(old_nets_leave_out_the_top_of_a_loss),
        cmocka_unit_test(in_place_only_where_nobody_minds),
        cmocka_unit_test(gradients_only_where_needed),
        cmocka_unit_test(propagate_down_and_force_backward),
        cmocka_unit_test(zeros_where_no_reader_sends_a_gradient),
        cmocka_unit_test(the_callers_tops_are_kept),
        cmocka_unit_test(hash_and_names),
        cmocka_unit_test(without_data_there_is_a_plan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
