/* A rank may get no sample of a batch: its layers run on empty blobs, add nothing to gradients and
 * losses, and still take part in the sums over the ranks. */
#include "tests/test.h"
#include "tests/fake_ranks.h"
#include "tests/layer_harness.h"

typedef struct empty_case {
    const char *type, *text;
    int n_bottom, n_top;
    bool labels; /* bottom 1 has one value a sample */
    int n_sum;   /* sums over the ranks that it takes part in */
} empty_case;

static const empty_case cases[] = {
    { "Accuracy", "accuracy_param { ignore_label: 3 }", 2, 2, true, 1 },
    { "BatchNorm", NULL, 1, 1, false, 0 },
    { "Bias", NULL, 1, 1, false, 0 },
    { "ArgMax", NULL, 1, 1, false, 0 },
    { "BN", NULL, 1, 1, false, 0 },
    { "CenterLoss", "center_loss_param { num_output: 4 }", 2, 1, true, 1 },
    { "Concat", NULL, 2, 1, false, 0 },
    { "ContrastiveLoss", NULL, 3, 1, true, 0 },
    { "Convolution", "convolution_param { num_output: 2 kernel_size: 2 }", 1, 1, false, 0 },
    { "Crop", NULL, 2, 1, false, 0 },
    { "Deconvolution", "convolution_param { num_output: 2 kernel_size: 2 }", 1, 1, false, 0 },
    { "Dropout", NULL, 1, 1, false, 0 },
    { "Eltwise", NULL, 2, 1, false, 0 },
    { "Eltwise", "eltwise_param { operation: MAX }", 2, 1, false, 0 },
    { "Eltwise", "eltwise_param { operation: PROD }", 3, 1, false, 0 },
    { "EuclideanLoss", NULL, 2, 1, false, 0 },
    { "Flatten", NULL, 1, 1, false, 0 },
    { "FocalLoss", "loss_param { ignore_label: 3 }", 2, 2, true, 1 },
    { "GELU", NULL, 1, 1, false, 0 },
    { "HingeLoss", NULL, 2, 1, true, 0 },
    { "Im2col", "convolution_param { kernel_size: 2 }", 1, 1, false, 0 },
    { "LayerNorm", NULL, 1, 1, false, 0 },
    { "MatMul", "matmul_param { transpose_b: true }", 2, 1, false, 0 },
    { "MultinomialLogisticLoss", NULL, 2, 1, true, 0 },
    { "MVN", NULL, 1, 1, false, 0 },
    { "Normalize", "norm_param { across_spatial: false channel_shared: false }", 1, 1, false, 0 },
    { "Permute", "permute_param { order: 0 order: 2 }", 1, 1, false, 0 },
    { "Position", "position_param { max_length: 9 }", 1, 1, false, 0 },
    { "Power", "power_param { power: -1 }", 1, 1, false, 0 },
    { "PReLU", NULL, 1, 1, false, 0 },
    { "Reduction", NULL, 1, 1, false, 0 },
    { "Reduction", "reduction_param { operation: MEAN }", 1, 1, false, 0 },
    { "Reduction", "reduction_param { operation: MEAN axis: 1 }", 1, 1, false, 0 },
    { "Reshape", "reshape_param { shape { dim: 0 dim: -1 } }", 1, 1, false, 0 },
    { "RMSNorm", NULL, 1, 1, false, 0 },
    { "Scale", "scale_param { bias_term: true }", 1, 1, false, 0 },
    { "SigmoidCrossEntropyLoss", NULL, 2, 1, false, 0 },
    { "SigmoidCrossEntropyLoss", "loss_param { ignore_label: 3 normalization: VALID }", 2, 1, false,
      1 },
    { "ShuffleChannel", "shuffle_channel_param { group: 2 }", 1, 1, false, 0 },
    { "Silence", NULL, 1, 0, false, 0 },
    { "Slice", NULL, 1, 2, false, 0 },
    { "SmoothL1Loss", NULL, 2, 1, false, 0 },
    { "Softmax", NULL, 1, 1, false, 0 },
    { "SoftmaxWithLoss", NULL, 2, 2, true, 0 },
    { "SoftmaxWithLoss", "loss_param { ignore_label: 3 }", 2, 1, true, 1 },
    { "Split", NULL, 1, 2, false, 0 },
    { "SwiGLU", NULL, 2, 1, false, 0 },
    { "Tile", "tile_param { tiles: 2 }", 1, 1, false, 0 },
};

static void check(const empty_case *c, ct_phase phase)
{
    test_layer_spec spec = {
        .type = c->type, .text = c->text, .n_bottom = c->n_bottom, .n_top = c->n_top, .phase = phase
    };
    fake_ranks ranks = { .replay = false };
    test_layer *t;

    for (int i = 0; i < c->n_bottom; i++)
        spec.bottom[i] = (c->labels && (i == 1)) ? TEST_SHAPE(0) : TEST_SHAPE(0, 4, 3);
    if (c->labels) spec.bottom[0] = TEST_SHAPE(0, 4);
    if (c->labels && (c->n_bottom == 3)) { /* pairs, similar or not */
        spec.bottom[1] = TEST_SHAPE(0, 4);
        spec.bottom[2] = TEST_SHAPE(0);
    }
    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    t->ex.batch_local = 0;
    t->ex.batch_first = t->ex.batch_global = 5;
    t->ex.sum_ranks = fake_sum_ranks;
    t->ex.hook_ctx = &ranks;
    assert_int_equal(test_layer_forward(t), CT_OK);
    assert_int_equal(ranks.n_call, c->n_sum);
    for (int i = 0; i < t->layer.n_top; i++) /* a loss and an accuracy of nothing */
        for (int64_t k = 0; k < t->top_count[i]; k++) assert_true(t->top[i][k] == 0.0f);
    for (int i = 0; i < t->layer.n_weight; i++)
        test_same(t->weight_after[i], t->weight[i], t->weight_count[i], "a weight");
    if (t->layer.ops->backward != NULL) assert_int_equal(test_layer_backward(t), CT_OK);
    for (int i = 0; i < t->layer.n_weight; i++)
        for (int64_t k = 0; (t->weight_diff[i] != NULL) && (k < t->weight_count[i]); k++)
            assert_true(t->weight_diff[i][k] == 0.0f);
    test_layer_destroy(t);
}

/* What follows has weights of its shape: they must be those of ranks with samples. */
static void reshaped(void **state)
{
    test_layer_spec spec = { .type = "Reshape",
                             .text = "reshape_param { shape { dim: 0 dim: -1 dim: 2 } }",
                             .n_bottom = 1,
                             .bottom = { TEST_SHAPE(0, 4, 3) } };
    test_layer *t;

    (void)state;
    assert_int_equal(test_layer_create(&spec, &t), CT_OK);
    assert_true(ct_shape_equal(&t->top_shape[0], &TEST_SHAPE(0, 6, 2)));
    test_layer_destroy(t);
}

static void test_empty(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check(&cases[i], CT_TRAIN);
        check(&cases[i], CT_TEST);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_empty), cmocka_unit_test(reshaped) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
