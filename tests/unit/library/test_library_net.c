/* Nets through the public header: what is looked at, ranges of layers, shapes, errors. */
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "include/cortado/cortado.h"

#define CONV(name, bottom, k)                                                                      \
    "layer { name: '" name "' type: 'Convolution' bottom: '" bottom "' top: '" name                \
    "' convolution_param { num_output: 16 kernel_size: " k                                         \
    " pad: 1 weight_filler { type: 'msra' } "                                                      \
    "bias_filler { type: 'gaussian' std: 0.1 } } }\n"
#define DEPLOY                                                                                     \
    "name: 'tiny'\n"                                                                               \
    "layer { name: 'in' type: 'Input' top: 'data' input_param { shape { dim: 2 dim: 3 dim: 9 "     \
    "dim: "                                                                                        \
    "7 } } }\n" CONV("conv1", "data",                                                              \
                     "3") "layer { name: 'relu1' type: 'ReLU' bottom: 'conv1' top: 'conv1' "       \
                          "}\n" CONV("conv2", "conv1",                                             \
                                     "3") "layer { name: 'sum' type: 'Eltwise' bottom: 'conv1' "   \
                                          "bottom: 'conv2' top: 'sum' }\n"                         \
                                          "layer { name: 'pool' type: 'Pooling' bottom: 'sum' "    \
                                          "top: 'pool' pooling_param { pool: AVE "                 \
                                          "global_pooling: true } }\n"                             \
                                          "layer { name: 'ip' type: 'InnerProduct' bottom: "       \
                                          "'pool' top: 'ip' inner_product_param { "                \
                                          "num_output: 4 weight_filler { type: 'xavier' } } }\n"   \
                                          "layer { name: 'prob' type: 'Softmax' bottom: 'ip' "     \
                                          "top: 'prob' }\n"
#define TRAINED                                                                                    \
    DEPLOY "layer { name: 'label' type: 'Input' top: 'label' input_param { shape { dim: 2 } } }\n" \
           "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: "       \
           "'loss' }\n"

static cortado_net *open_net(const char *text, cortado_phase phase)
{
    cortado_net *net = NULL;

    if (cortado_net_open_text(text, "tiny.prototxt", NULL, phase, &net) != CORTADO_OK)
        fail_msg("%s", cortado_error());
    return net;
}

static cortado_blob blob_of(cortado_net *net, const char *name)
{
    cortado_blob b;

    if (cortado_net_blob(net, name, &b) != CORTADO_OK) fail_msg("%s", cortado_error());
    return b;
}

static void forward(cortado_net *net, const char *from, const char *to)
{
    if (cortado_net_forward(net, from, to) != CORTADO_OK) fail_msg("%s", cortado_error());
}

static void fill(cortado_blob b, int seed)
{
    for (int64_t i = 0; i < b.count; i++) b.data[i] = sinf((float)(i + 1) * (0.37f + (float)seed));
}

static void same(cortado_blob a, cortado_blob b)
{
    assert_int_equal(a.count, b.count);
    assert_memory_equal(a.data, b.data, (size_t)a.count * sizeof(float));
}

static void names_are_the_files(void **state)
{
    cortado_net *net = open_net(DEPLOY, CORTADO_TEST);

    (void)state;
    assert_string_equal(cortado_net_name(net), "tiny");
    assert_int_equal(cortado_net_layer_count(net), 8);
    assert_string_equal(cortado_net_layer_name(net, 3), "conv2");
    assert_string_equal(cortado_net_layer_type(net, 4), "Eltwise");
    assert_string_equal(cortado_net_bottom_name(net, 4, 1), "conv2");
    assert_null(cortado_net_bottom_name(net, 4, 2));
    assert_string_equal(cortado_net_top_name(net, 0, 0), "data");
    assert_int_equal(cortado_net_weight_count(net, 1), 2);
    assert_int_equal(cortado_net_weight_count(net, 8), 0);
    assert_null(cortado_net_layer_name(net, 8));
    assert_string_equal(cortado_net_blob_name(net, 1), "conv1");
    assert_string_equal(cortado_net_blob_name(net, 6), "prob");
    assert_null(cortado_net_blob_name(net, 7));
    assert_string_equal(cortado_net_input_name(net, 0), "data");
    assert_null(cortado_net_input_name(net, 1));
    assert_string_equal(cortado_net_output_name(net, 0), "prob");
    assert_null(cortado_net_output_name(net, 1));
    cortado_net_close(net);
}

/* Who has no net is told so, or hears of nothing. */
static void null_is_no_net(void **state)
{
    cortado_blob b;
    const int64_t dim[] = { 1 };

    (void)state;
    assert_string_equal(cortado_net_name(NULL), "");
    assert_int_equal(cortado_net_layer_count(NULL), 0);
    assert_null(cortado_net_layer_name(NULL, 0));
    assert_null(cortado_net_layer_type(NULL, 0));
    assert_null(cortado_net_bottom_name(NULL, 0, 0));
    assert_null(cortado_net_top_name(NULL, 0, 0));
    assert_int_equal(cortado_net_weight_count(NULL, 0), 0);
    assert_null(cortado_net_blob_name(NULL, 0));
    assert_null(cortado_net_input_name(NULL, 0));
    assert_null(cortado_net_output_name(NULL, 0));
    assert_true(cortado_net_loss_weight(NULL, "a") == 0);
    assert_true(cortado_net_loss(NULL) == 0);
    assert_int_equal(cortado_net_blob(NULL, "a", &b), CORTADO_ERR_ARG);
    assert_int_equal(cortado_net_weight(NULL, "a", 0, &b), CORTADO_ERR_ARG);
    assert_int_equal(cortado_net_reshape(NULL, "a", 1, dim), CORTADO_ERR_ARG);
    assert_int_equal(cortado_net_forward(NULL, NULL, NULL), CORTADO_ERR_ARG);
    assert_int_equal(cortado_net_backward(NULL, NULL, NULL), CORTADO_ERR_ARG);
    assert_int_equal(cortado_net_load(NULL, "a"), CORTADO_ERR_ARG);
    assert_int_equal(cortado_net_save(NULL, "a"), CORTADO_ERR_ARG);
    assert_int_equal(cortado_solver_iteration(NULL), 0);
    assert_null(cortado_solver_net(NULL));
    assert_null(cortado_solver_test_net(NULL, 0));
    assert_int_equal(cortado_solver_step(NULL, 1), CORTADO_ERR_ARG);
    assert_int_equal(cortado_solver_snapshot(NULL), CORTADO_ERR_ARG);
    cortado_net_close(NULL);
    cortado_solver_close(NULL);
    assert_int_equal(cortado_set_threads(5000), CORTADO_ERR_ARG);
    assert_non_null(strstr(cortado_error(), "5000 threads: 1 to 4096, or 0"));
}

/* Asked for before the first forward, after it, and beside others: the same values. */
static void blobs_are_there_when_asked(void **state)
{
    static const char *const inner[] = { "conv1", "conv2", "sum", "pool", "ip" };
    cortado_net *early = open_net(DEPLOY, CORTADO_TEST), *late = open_net(DEPLOY, CORTADO_TEST);
    cortado_blob in = blob_of(early, "data"), prob = blob_of(early, "prob"), b[5], late_prob;

    (void)state;
    assert_int_equal(in.n_dim, 4);
    assert_int_equal(in.dim[3], 7);
    assert_null(in.diff);
    for (int i = 0; i < 5; i++) b[i] = blob_of(early, inner[i]);
    fill(in, 1);
    forward(early, NULL, NULL);
    fill(blob_of(late, "data"), 1);
    forward(late, NULL, NULL);
    late_prob = blob_of(late, "prob");
    same(prob, late_prob);
    for (int i = 4; i >= 0; i--) same(b[i], blob_of(late, inner[i]));
    same(prob, late_prob);          /* its memory is where it was */
    assert_true(b[0].data[0] >= 0); /* behind ReLU, which works in place */
    fill(in, 2);
    forward(early, NULL, NULL);
    assert_memory_not_equal(prob.data, late_prob.data, (size_t)prob.count * sizeof(float));
    cortado_net_close(early);
    cortado_net_close(late);
}

/* From a layer on, with values of the caller's; up to a layer. */
static void ranges(cortado_phase phase, const char *text)
{
    cortado_net *net = open_net(text, phase), *other = open_net(text, phase);
    cortado_blob prob = blob_of(net, "prob"), sum, theirs;

    fill(blob_of(net, "data"), 1);
    fill(blob_of(other, "data"), 3);
    forward(net, NULL, NULL);
    forward(other, NULL, NULL);
    sum = blob_of(net, "sum");
    theirs = blob_of(other, "sum");
    memcpy(theirs.data, sum.data, (size_t)sum.count * sizeof(float));
    forward(other, "pool", NULL);
    for (int64_t i = 0; i < prob.count; i++)
        assert_true(fabsf(prob.data[i] - blob_of(other, "prob").data[i]) < 1e-5f);
    fill(blob_of(other, "data"), 1);
    forward(other, NULL, "sum");
    for (int64_t i = 0; i < sum.count; i++)
        assert_true(fabsf(sum.data[i] - theirs.data[i]) <= 1e-4f * (1 + fabsf(sum.data[i])));
    /* what two layers read reaches both */
    for (int64_t i = 0; i < blob_of(other, "conv1").count; i++) blob_of(other, "conv1").data[i] = 0;
    forward(other, "conv2", "sum");
    same(blob_of(other, "sum"), blob_of(other, "conv2"));
    assert_int_equal(cortado_net_forward(net, "pool", "conv1"), CORTADO_ERR_ARG);
    assert_non_null(strstr(cortado_error(), "runs behind"));
    assert_int_equal(cortado_net_forward(net, "pol", NULL), CORTADO_ERR_ARG);
    assert_non_null(strstr(cortado_error(), "did you mean \"pool\"?"));
    cortado_net_close(net);
    cortado_net_close(other);
}

static void layers_run_alone(void **state)
{
    (void)state;
    ranges(CORTADO_TEST, DEPLOY);
    ranges(CORTADO_TRAIN, DEPLOY);
}

static double loss_of(cortado_net *net)
{
    forward(net, NULL, NULL);
    return cortado_net_loss(net);
}

/* Gradients of weights and of values, by differences. */
static void gradients_are_the_losses(void **state)
{
    cortado_net *net = open_net(TRAINED, CORTADO_TRAIN);
    cortado_blob w, pool;
    const double h = 1e-2;

    (void)state;
    fill(blob_of(net, "data"), 1);
    blob_of(net, "label").data[1] = 3;
    assert_int_equal(cortado_net_backward(net, NULL, NULL), CORTADO_ERR_ARG);
    pool = blob_of(net, "pool");
    assert_non_null(pool.diff);
    (void)loss_of(net);
    assert_int_equal(cortado_net_backward(net, NULL, NULL), CORTADO_OK);
    assert_int_equal(cortado_net_weight(net, "conv2", 0, &w), CORTADO_OK);
    assert_int_equal(w.count, 16 * 16 * 9);
    for (int64_t i = 0; i < w.count; i += 379) {
        double g = (double)w.diff[i], up, down;
        float kept = w.data[i];

        w.data[i] = kept + (float)h;
        up = loss_of(net);
        w.data[i] = kept - (float)h;
        down = loss_of(net);
        w.data[i] = kept;
        assert_true(fabs((up - down) / (2 * h) - g) < 2e-3 * (1 + fabs(g)));
    }
    for (int64_t i = 0; i < pool.count; i += 5) {
        double g = (double)pool.diff[i], up, down;
        float kept = pool.data[i];

        pool.data[i] = kept + (float)h;
        forward(net, "ip", NULL);
        up = cortado_net_loss(net);
        pool.data[i] = kept - (float)h;
        forward(net, "ip", NULL);
        down = cortado_net_loss(net);
        pool.data[i] = kept;
        assert_true(fabs((up - down) / (2 * h) - g) < 2e-3 * (1 + fabs(g)));
    }
    cortado_net_close(net);
}

/* From a layer down, on a gradient of the caller's. */
static void backward_begins_where_asked(void **state)
{
    cortado_net *net = open_net(TRAINED, CORTADO_TRAIN);
    cortado_blob pool, sum;

    (void)state;
    fill(blob_of(net, "data"), 1);
    pool = blob_of(net, "pool");
    sum = blob_of(net, "sum");
    forward(net, NULL, NULL);
    for (int64_t i = 0; i < pool.count; i++) pool.diff[i] = (float)i;
    assert_int_equal(cortado_net_backward(net, "pool", "pool"), CORTADO_OK);
    for (int64_t i = 0; i < sum.count; i++) { /* the mean of 9 x 7 places */
        float want = (float)(i / 63) / 63.0f;

        assert_true(fabsf(sum.diff[i] - want) <= 1e-6f * (1 + want));
    }
    cortado_net_close(net);
}

static void weights_are_the_users(void **state)
{
    cortado_net *net = open_net(DEPLOY, CORTADO_TEST), *other = open_net(DEPLOY, CORTADO_TEST);
    cortado_blob w, prob = blob_of(net, "prob");
    char file[] = "/tmp/cortado-weights-XXXXXX.npz";
    int fd = mkstemps(file, 4);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    fill(blob_of(net, "data"), 1);
    fill(blob_of(other, "data"), 1);
    forward(net, NULL, NULL);
    assert_int_equal(cortado_net_weight(net, "ip", 0, &w), CORTADO_OK);
    assert_null(w.diff);
    for (int64_t i = 0; i < w.count; i++) w.data[i] = 0;
    forward(net, NULL, NULL);
    assert_true(prob.data[0] == 0.25f);
    for (int64_t i = 0; i < w.count; i++) w.data[i] = (float)i / 7.0f;
    forward(net, "ip", NULL);
    assert_true(prob.data[0] != 0.25f);
    forward(net, NULL, NULL);
    assert_int_equal(cortado_net_save(net, file), CORTADO_OK);
    assert_int_equal(cortado_net_load(other, file), CORTADO_OK);
    forward(other, NULL, NULL);
    for (int64_t i = 0; i < prob.count; i++)
        assert_true(fabsf(prob.data[i] - blob_of(other, "prob").data[i]) < 1e-5f);
    assert_int_equal(cortado_net_weight(net, "ip", 2, &w), CORTADO_ERR_ARG);
    assert_non_null(strstr(cortado_error(), "layer \"ip\" has 2 weights"));
    unlink(file);
    cortado_net_close(net);
    cortado_net_close(other);
}

static void inputs_get_other_shapes(void **state)
{
    const int64_t dim[] = { 5, 3, 8, 8 }, wrong[] = { 5, 3, -1, 8 };
    cortado_net *net = open_net(DEPLOY, CORTADO_TEST), *train = open_net(TRAINED, CORTADO_TRAIN);
    cortado_blob w, in, prob;

    (void)state;
    assert_int_equal(cortado_net_weight(net, "ip", 0, &w), CORTADO_OK);
    w.data[0] = 5;
    assert_int_equal(cortado_net_reshape(net, "data", 4, wrong), CORTADO_ERR_SHAPE);
    assert_non_null(strstr(cortado_error(), "input \"data\": axis 2 of -1 elements"));
    assert_int_equal(cortado_net_reshape(net, "data", 9, dim), CORTADO_ERR_SHAPE);
    assert_non_null(strstr(cortado_error(), "a shape of 9 axes: 0 to 8"));
    assert_int_equal(cortado_net_reshape(net, "dat", 4, dim), CORTADO_ERR_ARG);
    assert_int_equal(blob_of(net, "prob").dim[0], 2);
    assert_int_equal(cortado_net_reshape(net, "data", 4, dim), CORTADO_OK);
    in = blob_of(net, "data");
    prob = blob_of(net, "prob");
    assert_int_equal(in.count, 5 * 3 * 8 * 8);
    assert_int_equal(prob.dim[0], 5);
    assert_true(w.data[0] == 5);
    fill(in, 1);
    forward(net, NULL, NULL);
    for (int k = 0; k < 5; k++) {
        float all = 0;

        for (int i = 0; i < 4; i++) all += prob.data[4 * k + i];
        assert_true(fabsf(all - 1) < 1e-5f);
    }
    assert_int_equal(blob_of(net, "conv2").dim[2], 8);
    assert_int_equal(cortado_net_reshape(train, "data", 4, dim), CORTADO_ERR_SHAPE);
    cortado_net_close(net);
    cortado_net_close(train);
}

/* Two inputs of one batch fit together only where both change; blobs of before stay. */
static void inputs_change_together(void **state)
{
    cortado_shape shape[] = { { "data", 4, { 3, 3, 9, 7 } }, { "label", 1, { 3 } } };
    cortado_net *net = open_net(TRAINED, CORTADO_TEST);
    cortado_kept *kept = NULL;
    cortado_blob before = blob_of(net, "ip"), loss = blob_of(net, "loss");
    float was;

    (void)state;
    fill(blob_of(net, "data"), 1);
    forward(net, NULL, NULL);
    was = before.data[0];
    assert_true(was != 0);
    assert_int_equal(cortado_net_reshape_inputs(net, 1, shape, &kept), CORTADO_ERR_SHAPE);
    assert_null(kept);
    assert_int_equal(cortado_net_reshape_inputs(net, 2, shape, NULL), CORTADO_ERR_ARG);
    assert_int_equal(blob_of(net, "ip").dim[0], 2);
    assert_int_equal(cortado_net_reshape_inputs(net, 2, shape, &kept), CORTADO_OK);
    fill(blob_of(net, "data"), 2);
    forward(net, NULL, NULL);
    assert_int_equal(blob_of(net, "ip").dim[0], 3);
    assert_true(before.data[0] == was);
    assert_true(isfinite(loss.data[0]));
    cortado_net_close(net);
    assert_true(before.data[0] == was);
    cortado_kept_free(kept);
    cortado_kept_free(NULL);
}

/* It has the gradients of a net that had these shapes from the start, and its weights stay. */
static void nets_that_learn_change_shapes(void **state)
{
    cortado_shape shape[] = { { "data", 4, { 3, 3, 8, 6 } }, { "label", 1, { 3 } } };
    cortado_net *net = open_net(TRAINED, CORTADO_TRAIN);
    cortado_kept *kept = NULL;
    cortado_blob w, before, dw;
    float loss, slope;
    const float step = 1e-2f;

    (void)state;
    assert_int_equal(cortado_net_weight(net, "ip", 0, &w), CORTADO_OK);
    w.data[1] = 0.5f;
    before = w;
    assert_int_equal(cortado_net_reshape_inputs(net, 2, shape, &kept), CORTADO_OK);
    cortado_kept_free(kept);
    fill(blob_of(net, "data"), 1);
    forward(net, NULL, NULL);
    if (cortado_net_backward(net, NULL, NULL) != CORTADO_OK) fail_msg("%s", cortado_error());
    assert_int_equal(cortado_net_weight(net, "ip", 0, &dw), CORTADO_OK);
    assert_ptr_equal(dw.data, before.data);
    slope = dw.diff[1];
    assert_true(slope != 0);
    w.data[1] = 0.5f + step;
    forward(net, NULL, NULL);
    loss = (float)cortado_net_loss(net);
    w.data[1] = 0.5f - step;
    forward(net, NULL, NULL);
    loss = (loss - (float)cortado_net_loss(net)) / (2 * step);
    /* differences of the second order: the loss's third derivative by a weight is below the cube of
     * what it multiplies, and that below 10 here; f32 leaves 1e-7 / step */
    assert_true(fabsf(loss - slope) < 1000 * step * step / 6 + 1e-4f);
    assert_int_equal(blob_of(net, "ip").dim[0], 3);
    cortado_net_close(net);
}

/* What is written to the weights of one is in both. */
static void nets_share_weights(void **state)
{
    cortado_net *from = open_net(DEPLOY, CORTADO_TEST), *net;
    cortado_blob w, shared, prob;

    (void)state;
    cortado_set_seed(7);
    net = open_net(DEPLOY, CORTADO_TEST);
    cortado_set_seed(1);
    prob = blob_of(net, "prob");
    fill(blob_of(net, "data"), 1);
    fill(blob_of(from, "data"), 1);
    forward(net, NULL, NULL);
    forward(from, NULL, NULL);
    assert_int_equal(cortado_net_weight(from, "conv1", 0, &w), CORTADO_OK);
    assert_int_equal(cortado_net_weight(net, "conv1", 0, &shared), CORTADO_OK);
    assert_true(w.data[0] != shared.data[0]); /* by their seeds */
    assert_int_equal(cortado_net_share(net, from), CORTADO_OK);
    shared.data[0] = 1; /* nobody's any more */
    assert_int_equal(cortado_net_weight(net, "conv1", 0, &shared), CORTADO_OK);
    assert_ptr_equal(w.data, shared.data);
    w.data[0] += 1;
    forward(net, NULL, NULL);
    forward(from, NULL, NULL);
    assert_memory_equal(prob.data, blob_of(from, "prob").data, (size_t)prob.count * sizeof(float));
    assert_int_equal(cortado_net_share(net, net), CORTADO_ERR_ARG);
    assert_int_equal(cortado_net_share(net, NULL), CORTADO_ERR_ARG);
    cortado_net_close(net);
    cortado_net_close(from);
}

static cortado_blob weight_of(cortado_net *net, const char *layer, int i)
{
    cortado_blob w;

    if (cortado_net_weight(net, layer, i, &w) != CORTADO_OK) fail_msg("%s", cortado_error());
    return w;
}

static void run_both_ways(cortado_net *net, int seed)
{
    fill(blob_of(net, "data"), seed);
    forward(net, NULL, NULL);
    if (cortado_net_backward(net, NULL, NULL) != CORTADO_OK) fail_msg("%s", cortado_error());
}

/* The gradients of two nets, of all weights. */
static void same_gradients(cortado_net *a, cortado_net *b)
{
    for (int l = 0; l < cortado_net_layer_count(a); l++) {
        for (int i = 0; i < cortado_net_weight_count(a, l); i++) {
            cortado_blob x = weight_of(a, cortado_net_layer_name(a, l), i);
            cortado_blob y = weight_of(b, cortado_net_layer_name(a, l), i);

            assert_ptr_equal(x.data, y.data);
            assert_ptr_not_equal(x.diff, y.diff);
            assert_memory_equal(x.diff, y.diff, (size_t)x.count * sizeof(float));
        }
    }
}

/* Each has gradients of its own, of the weights that both have, also in another shape. One layer's
 * name is the borrower's alone: that weight stays its own. */
static void nets_that_learn_share_weights(void **state)
{
    cortado_shape shape[] = { { "data", 4, { 3, 3, 8, 6 } }, { "label", 1, { 3 } } };
    cortado_net *from = open_net(TRAINED, CORTADO_TRAIN), *net, *more;
    cortado_kept *kept = NULL;
    cortado_blob held, mine;

    (void)state;
    cortado_set_seed(7);
    net = open_net(TRAINED, CORTADO_TRAIN);
    more = open_net(DEPLOY CONV("own", "sum", "1") "layer { name: 'l' type: 'Reduction' bottom: "
                                                   "'own' top: 'l' loss_weight: 1 }",
                    CORTADO_TRAIN);
    cortado_set_seed(1);
    held = weight_of(net, "conv1", 0);
    run_both_ways(net, 1);
    assert_int_equal(cortado_net_share(net, from), CORTADO_OK);
    assert_int_equal(cortado_net_backward(net, NULL, NULL), CORTADO_ERR_ARG);
    assert_non_null(strstr(cortado_error(), "a forward comes before"));
    held.data[0] = held.diff[0] = 1; /* still there, and nobody's */
    run_both_ways(from, 2);
    run_both_ways(net, 2);
    same_gradients(from, net);
    weight_of(net, "conv2", 0).data[5] += 1;
    run_both_ways(from, 3);
    run_both_ways(net, 3);
    same_gradients(from, net);
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(cortado_net_reshape_inputs((turn == 0) ? net : from, 2, shape, &kept),
                         CORTADO_OK);
        cortado_kept_free(kept);
    }
    run_both_ways(from, 4);
    run_both_ways(net, 4);
    same_gradients(from, net);

    mine = weight_of(more, "own", 0);
    assert_int_equal(cortado_net_share(more, net), CORTADO_OK);
    assert_ptr_equal(weight_of(more, "conv1", 0).data, weight_of(from, "conv1", 0).data);
    assert_memory_equal(weight_of(more, "own", 0).data, mine.data,
                        (size_t)mine.count * sizeof(float));
    run_both_ways(more, 1);
    assert_true(weight_of(more, "own", 1).diff[0] == 2 * 7 * 9 + 2 * 2 * 9 + 2 * 2 * 7 + 8);
    assert_true(weight_of(more, "conv1", 1).diff[0] != 0);
    cortado_net_close(more);
    cortado_net_close(net);
    cortado_net_close(from);
}

/* What cannot be shared leaves the net as it was. */
static void weights_that_are_not_shared(void **state)
{
    static const char *const text[] = {
        "layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 5 } } } "
        "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip' inner_product_param { "
        "num_output: 4 } }",
        "layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 16 } } } "
        "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip' inner_product_param { "
        "num_output: 4 bias_term: false } }"
    };
    static const char *const why[] = { "layer \"ip\" (InnerProduct): weight blob 0 has the shape",
                                       "it has 2 weight blobs, but 1 in the net" };
    cortado_net *net = open_net(TRAINED, CORTADO_TRAIN);

    (void)state;
    run_both_ways(net, 1);
    for (int k = 0; k < 2; k++) {
        cortado_net *from = open_net(text[k], CORTADO_TEST);
        cortado_blob w = weight_of(net, "ip", 0);
        float slope = w.diff[3];

        assert_int_equal(cortado_net_share(net, from),
                         (k == 0) ? CORTADO_ERR_SHAPE : CORTADO_ERR_CONFIG);
        assert_non_null(strstr(cortado_error(), why[k]));
        assert_ptr_equal(weight_of(net, "ip", 0).data, w.data);
        if (cortado_net_backward(net, NULL, NULL) != CORTADO_OK) fail_msg("%s", cortado_error());
        assert_true(weight_of(net, "ip", 0).diff[3] == slope);
        cortado_net_close(from);
    }
    cortado_net_close(net);
}

/* Without a loss, from what is written to the output's gradient; nothing there is zero. */
static void gradients_begin_at_outputs(void **state)
{
    cortado_net *net = open_net("force_backward: true " DEPLOY, CORTADO_TEST);
    cortado_blob prob, ip, data = blob_of(net, "data");
    float all;

    (void)state;
    fill(data, 1);
    forward(net, NULL, NULL);
    assert_int_equal(cortado_net_backward(net, NULL, NULL), CORTADO_OK);
    for (int64_t i = 0; i < data.count; i++) assert_true(data.diff[i] == 0);
    prob = blob_of(net, "prob");
    ip = blob_of(net, "ip");
    prob.diff[1] = 1;
    assert_int_equal(cortado_net_backward(net, NULL, NULL), CORTADO_OK);
    for (int i = 0; i < 4; i++) {
        float want = prob.data[1] * ((i == 1) ? 1 - prob.data[1] : -prob.data[i]);

        assert_true(fabsf(ip.diff[i] - want) < 1e-6f);
    }
    all = 0;
    for (int64_t i = 0; i < data.count; i++) all += fabsf(data.diff[i]);
    assert_true(all > 0);
    assert_true(cortado_net_loss_weight(net, "prob") == 0);
    cortado_net_close(net);
    net = open_net(TRAINED, CORTADO_TRAIN);
    assert_true(cortado_net_loss_weight(net, "loss") == 1);
    cortado_net_close(net);
}

static void pictures_are_read(void **state)
{
    const char *file = "tests/golden/images/plain.jpg";
    cortado_image image = { .pixels = NULL }, gray;
    int64_t n;

    (void)state;
    assert_int_equal(cortado_image_read(file, 3, &image), CORTADO_OK);
    assert_int_equal(image.channels, 3);
    n = image.height * image.width;
    assert_true(n > 0);
    assert_int_equal(cortado_image_read(file, 1, &gray), CORTADO_OK);
    assert_int_equal(gray.height * gray.width, n);
    /* gray is a mean of red, green, blue that has most of green, as JPEG and BT.601 have it */
    for (int64_t i = 0; i < n; i++) {
        const unsigned char *p = image.pixels + 3 * i;
        float want = 0.299f * (float)p[0] + 0.587f * (float)p[1] + 0.114f * (float)p[2];

        assert_true(fabsf((float)gray.pixels[i] - want) < 3);
    }
    cortado_image_free(&gray);
    cortado_image_free(&image);
    assert_null(image.pixels);
    assert_int_equal(cortado_image_read(file, 2, &image), CORTADO_ERR_ARG);
    assert_int_equal(cortado_image_read("/nowhere/cat.jpg", 3, &image), CORTADO_ERR_IO);
    assert_non_null(strstr(cortado_error(), "/nowhere/cat.jpg"));
    assert_int_equal(cortado_image_read("Makefile", 3, &image), CORTADO_ERR_DATA);
    assert_non_null(strstr(cortado_error(), "Makefile: "));
    assert_int_equal(cortado_image_read(NULL, 3, &image), CORTADO_ERR_ARG);
}

static const char memory[] =
    "layer { name: 'in' type: 'MemoryData' top: 'data' top: 'label' "
    "  transform_param { crop_size: 2 mean_value: 1 scale: 0.5 } "
    "  memory_data_param { batch_size: 1 channels: 1 height: 2 width: 2 } } "
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' "
    "  inner_product_param { num_output: 1 } } "
    "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'ip' bottom: 'label' top: 'loss' }";

/* The middle of 4 x 4, less 1, halved. */
static void images_are_transformed(void **state)
{
    unsigned char bytes[32];
    float floats[32], to[8];
    cortado_images m = { .bytes = bytes, .n = 2, .channels = 1, .height = 4, .width = 4 };
    cortado_net *net = open_net(memory, CORTADO_TEST);

    (void)state;
    for (int i = 0; i < 32; i++) floats[i] = (float)(bytes[i] = (unsigned char)(3 * i));
    for (int kind = 0; kind < 2; kind++) {
        memset(to, 0, sizeof(to));
        assert_int_equal(cortado_net_transform(net, "in", &m, 0, to), CORTADO_OK);
        for (int i = 0; i < 8; i++) {
            int at = i / 4 * 16 + (1 + i % 4 / 2) * 4 + 1 + i % 2;

            assert_true(to[i] == (floats[at] - 1) / 2);
        }
        m.bytes = NULL;
        m.floats = floats;
    }
    m.bytes = bytes;
    assert_int_equal(cortado_net_transform(net, "in", &m, 0, to), CORTADO_ERR_ARG);
    assert_non_null(strstr(cortado_error(), "images are bytes or floats: give one, not both"));
    m.floats = NULL;
    assert_int_equal(cortado_net_transform(net, "none", &m, 0, to), CORTADO_ERR_ARG);
    assert_int_equal(cortado_net_transform(net, "in", &m, -1, to), CORTADO_ERR_ARG);
    assert_int_equal(cortado_net_transform(net, "in", NULL, 0, to), CORTADO_ERR_ARG);
    m.height = 0;
    assert_int_equal(cortado_net_transform(net, "in", &m, 0, to), CORTADO_ERR_ARG);
    assert_non_null(strstr(cortado_error(), "2 images of 1 x 0 x 4"));
    m.height = m.width = 2;
    m.channels = 2;
    assert_int_equal(cortado_net_transform(net, "in", &m, 0, to), CORTADO_ERR_SHAPE);
    assert_non_null(strstr(cortado_error(), "memory_data_param says 1 2 2"));
    cortado_net_close(net);
}

static void keep_line(void *ctx, const char *line)
{
    snprintf(ctx, 400, "%s", line);
}

/* ---- behind a Filter */

static const char some_pass[] =
    "layer { name: 'in' type: 'Input' top: 'data' input_param { shape { dim: 4 dim: 3 } } }\n"
    "layer { name: 'which' type: 'Input' top: 'which' input_param { shape { dim: 4 } } }\n"
    "layer { name: 'filter' type: 'Filter' bottom: 'data' bottom: 'which' top: 'some' }\n"
    "layer { name: 'twice' type: 'Power' bottom: 'some' top: 'twice' power_param { scale: 2 } }\n";

/* The samples whose bit in `which` is set pass. */
static void run_on(cortado_net *net, unsigned which)
{
    cortado_blob selector = blob_of(net, "which");

    for (int i = 0; i < 4; i++) selector.data[i] = (float)((which >> i) & 1);
    forward(net, NULL, NULL);
}

static void check_passed(cortado_net *net, const char *name, unsigned which, float factor)
{
    cortado_blob data = blob_of(net, "data"), some = blob_of(net, name);
    int64_t n = 0;

    for (int i = 0; i < 4; i++) {
        for (int k = 0; (k < 3) && ((which >> i) & 1); k++, n++)
            assert_true(some.data[n] == factor * data.data[3 * i + k]);
    }
    assert_int_equal(some.n_dim, 2);
    assert_int_equal(some.dim[0], n / 3);
    assert_int_equal(some.count, n);
}

/* However few there are when it is asked for first, later more have room. */
static void blobs_change_behind_a_filter(void **state)
{
    static const unsigned which[] = { 4, 15, 9, 0, 15, 7 };

    (void)state;
    for (int trains = 0; trains < 2; trains++) {
        cortado_net *net = open_net(some_pass, trains ? CORTADO_TRAIN : CORTADO_TEST);
        const float *at[2] = { NULL };

        fill(blob_of(net, "data"), 2);
        for (int i = 0; i < 6; i++) {
            run_on(net, which[i]);
            check_passed(net, "some", which[i], 1);
            check_passed(net, "twice", which[i], 2);
            assert_true((i == 0) || (at[0] == blob_of(net, "some").data));
            assert_true((i == 0) || (at[1] == blob_of(net, "twice").data));
            at[0] = blob_of(net, "some").data;
            at[1] = blob_of(net, "twice").data;
        }
        cortado_net_close(net);
    }
}

static void errors_have_texts(void **state)
{
    cortado_net *net = NULL;
    cortado_blob b;
    char line[400] = "";

    (void)state;
    assert_int_equal(cortado_net_open("/nowhere/net.prototxt", NULL, CORTADO_TEST, &net),
                     CORTADO_ERR_IO);
    assert_non_null(strstr(cortado_error(), "/nowhere/net.prototxt"));
    assert_int_equal(cortado_net_open_text("layer { name: 'a' typ: 'Input' }", "x.prototxt", NULL,
                                           CORTADO_TEST, &net),
                     CORTADO_ERR_CONFIG);
    assert_non_null(strstr(cortado_error(), "x.prototxt:1:"));
    assert_int_equal(cortado_net_open_text("\nlayer { name: 'a' type: 'Input' top: 'a' }\n"
                                           "layer { name: 'b' type: 'Crop' bottom: 'a' top: 'b' }",
                                           "x.prototxt", NULL, CORTADO_TEST, &net),
                     CORTADO_ERR_CONFIG);
    assert_non_null(strstr(cortado_error(), "x.prototxt:3: layer \"b\" (Crop): "));
    assert_int_equal(cortado_net_open_text(DEPLOY, "tiny", "/nowhere/w.npz", CORTADO_TEST, &net),
                     CORTADO_ERR_IO);
    assert_int_equal(cortado_net_open_text(DEPLOY, "tiny", NULL, (cortado_phase)7, &net),
                     CORTADO_ERR_ARG);
    assert_int_equal(cortado_net_open(NULL, NULL, CORTADO_TEST, &net), CORTADO_ERR_ARG);
    assert_int_equal(cortado_net_forward(NULL, NULL, NULL), CORTADO_ERR_ARG);
    assert_null(net);
    net = open_net(DEPLOY, CORTADO_TEST);
    cortado_log_to(keep_line, line, CORTADO_LOG_ERROR);
    assert_int_equal(cortado_net_blob(net, "conv3", &b), CORTADO_ERR_ARG);
    assert_non_null(strstr(cortado_error(), "did you mean \"conv1\"?"));
    assert_non_null(strstr(line, "did you mean"));
    cortado_log_to(NULL, NULL, CORTADO_LOG_ERROR);
    assert_int_equal(cortado_net_backward(net, NULL, NULL), CORTADO_ERR_ARG);
    assert_null(strstr(line, "forward alone"));
    assert_string_equal(cortado_status_name(CORTADO_ERR_IO), "CORTADO_ERR_IO");
    assert_string_equal(cortado_status_name((cortado_status)99), "unknown status");
    assert_int_equal(cortado_set_threads(-1), CORTADO_ERR_ARG);
    assert_int_equal(cortado_set_threads(0), CORTADO_OK);
    assert_true(strncmp(cortado_version(), "0.1", 3) == 0);
    cortado_net_close(net);
    cortado_net_close(NULL);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(names_are_the_files),
        cmocka_unit_test(null_is_no_net),
        cmocka_unit_test(blobs_are_there_when_asked),
        cmocka_unit_test(layers_run_alone),
        cmocka_unit_test(gradients_are_the_losses),
        cmocka_unit_test(backward_begins_where_asked),
        cmocka_unit_test(weights_are_the_users),
        cmocka_unit_test(inputs_get_other_shapes),
        cmocka_unit_test(inputs_change_together),
        cmocka_unit_test(nets_that_learn_change_shapes),
        cmocka_unit_test(nets_share_weights),
        cmocka_unit_test(nets_that_learn_share_weights),
        cmocka_unit_test(weights_that_are_not_shared),
        cmocka_unit_test(gradients_begin_at_outputs),
        cmocka_unit_test(blobs_change_behind_a_filter),
        cmocka_unit_test(pictures_are_read),
        cmocka_unit_test(images_are_transformed),
        cmocka_unit_test(errors_have_texts),
    };

    return cmocka_run_group_tests(test, NULL, NULL);
}
