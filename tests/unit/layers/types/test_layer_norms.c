/* MVN, LayerNorm, Normalize, SPP: against PyTorch, gradients over odd shapes, edges, what they
 * refuse.
 */
#include "tests/test.h"
#include "tests/golden/neuron_golden.h"
#include "tests/layer_harness.h"

#include <math.h>

/* Sums are in double; an element passes at most 8 roundings of numbers below 8, and a deviation
 * that is small enlarges them no more than x itself. */
static const double tolerance = 64 * 0x1p-24;

typedef struct norm_case {
    const char *type, *text;
    const double *y, *dx, *weight[2], *dw[2];
    bool in_place; /* may be */
} norm_case;

static const norm_case recorded[] = {
    { "MVN", NULL, norm_y_mvn, norm_dx_mvn, { 0 }, { 0 }, true },
    { "MVN",
      "mvn_param { across_channels: true eps: 0.125 }",
      norm_y_mvn_across,
      norm_dx_mvn_across,
      { 0 },
      { 0 },
      true },
    { "MVN",
      "mvn_param { normalize_variance: false }",
      norm_y_mvn_mean,
      norm_dx_mvn_mean,
      { 0 },
      { 0 },
      true },
    { "LayerNorm",
      "layer_norm_param { axis: 2 eps: 0.01 }",
      norm_y_layer,
      norm_dx_layer,
      { norm_scale, norm_bias },
      { norm_d0_layer, norm_d1_layer },
      false },
    { "LayerNorm", NULL, norm_y_layer_last, norm_dx_layer_last, { 0 }, { 0 }, false },
    { "LayerNorm",
      "layer_norm_param { affine: false }",
      norm_y_layer_last,
      norm_dx_layer_last,
      { 0 },
      { 0 },
      false },
    { "Normalize",
      "norm_param { across_spatial: false channel_shared: false }",
      norm_y_ssd,
      norm_dx_ssd,
      { norm_each },
      { norm_d0_ssd },
      false },
    { "Normalize",
      "norm_param { eps: 0.5 }",
      norm_y_ssd_across,
      norm_dx_ssd_across,
      { norm_one },
      { norm_d0_ssd_across },
      false },
    { "Normalize",
      "norm_param { channel_shared: false }",
      norm_y_ssd_mixed,
      norm_dx_ssd_mixed,
      { norm_each },
      { norm_d0_ssd_mixed },
      false },
};

static void check(const norm_case *c, bool in_place)
{
    test_layer *t = test_layer_make(&(test_layer_spec){ .type = c->type,
                                                        .text = c->text,
                                                        .n_bottom = 1,
                                                        .bottom = { TEST_SHAPE(3, 5, 2, 4) },
                                                        .in_place = in_place });

    test_set(t->input[0], norm_x, 120);
    test_set(t->top_diff[0], norm_dy, 120);
    for (int i = 0; (i < t->layer.n_weight) && (c->weight[i] != NULL); i++)
        test_set(t->weight[i], c->weight[i], t->weight_count[i]);
    test_layer_pass(t);
    test_near_golden(t, TEST_FORWARD, t->top[0], c->y, 120, tolerance, c->type);
    test_near_golden(t, TEST_BACKWARD, t->input_diff[0], c->dx, 120, tolerance, c->type);
    for (int i = 0; (i < t->layer.n_weight) && (c->dw[i] != NULL); i++)
        test_near_golden(t, TEST_BACKWARD, t->weight_diff[i], c->dw[i], t->weight_count[i],
                         tolerance, c->type);
    test_layer_destroy(t);
}

static void as_recorded(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(recorded) / sizeof(recorded[0]); i++) {
        check(&recorded[i], false);
        if (recorded[i].in_place) check(&recorded[i], true);
    }
}

static void gradients(void **state)
{
    static const struct {
        const char *type, *text;
        ct_shape shape;
    } c[] = {
        { "MVN", NULL, TEST_SHAPE(2, 3, 7, 5) },
        { "MVN", "mvn_param { across_channels: true eps: 0.25 }", TEST_SHAPE(3, 11) },
        { "LayerNorm", NULL, TEST_SHAPE(5, 17) },
        { "LayerNorm", "layer_norm_param { axis: 1 eps: 0.1 }", TEST_SHAPE(2, 3, 1, 7) },
        { "Normalize", "norm_param { across_spatial: false }", TEST_SHAPE(2, 5, 9, 8) },
        { "Normalize", "norm_param { channel_shared: false }", TEST_SHAPE(3, 7) },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        test_layer *t = test_layer_make(&(test_layer_spec){ .type = c[i].type,
                                                            .text = c[i].text,
                                                            .n_bottom = 1,
                                                            .bottom = { c[i].shape },
                                                            .add_weight_diff[0] = i % 2 == 1 });

        test_layer_gradient(t, &(test_gradient){ .step = 1e-3f, .roundings = 64 });
        test_layer_destroy(t);
    }
}

/* Shapes of the tops and weights, and rows without a deviation or a norm. */
static void edges(void **state)
{
    test_layer *t = test_layer_make(
        &(test_layer_spec){ .type = "MVN", .n_bottom = 1, .bottom = { TEST_SHAPE(2, 3, 4) } });

    (void)state;
    assert_int_equal(t->top_shape[0].ndim, 4); /* as Caffe's */
    assert_true((t->top_shape[0].dim[2] == 4) && (t->top_shape[0].dim[3] == 1));
    for (int i = 0; i < 24; i++) t->input[0][i] = 3, t->top_diff[0][i] = 1;
    test_layer_pass(t);
    for (int i = 0; i < 24; i++)
        assert_true((t->top[0][i] == 0) && (fabsf(t->input_diff[0][i]) == 0));
    test_layer_destroy(t);
    t = test_layer_make(
        &(test_layer_spec){ .type = "Normalize",
                            .text = "norm_param { channel_shared: false scale_filler { value: "
                                    "20 } }",
                            .n_bottom = 1,
                            .bottom = { TEST_SHAPE(1, 3, 2, 2) } });
    assert_true((t->weight_count[0] == 3) && (t->weight[0][2] == 20));
    for (int i = 0; i < 12; i++) t->input[0][i] = 0;
    test_layer_pass(t);
    for (int i = 0; i < 12; i++) assert_true((t->top[0][i] == 0) && isfinite(t->input_diff[0][i]));
    test_layer_destroy(t);
    t = test_layer_make(&(test_layer_spec){
        .type = "Normalize", .n_bottom = 1, .bottom = { TEST_SHAPE(1, 3, 2, 2) } });
    assert_true((t->layer.weight[0].shape.ndim == 0) && (t->weight[0][0] == 1));
    test_layer_destroy(t);
    t = test_layer_make(&(test_layer_spec){
        .type = "LayerNorm", .n_bottom = 1, .bottom = { TEST_SHAPE(2, 3, 5) } });
    assert_true((t->layer.n_weight == 2) && (t->weight_count[0] == 5));
    assert_true((t->weight[0][4] == 1) && (t->weight[1][4] == 0));
    test_layer_destroy(t);
}

static void refused(void **state)
{
    static const struct {
        const char *type, *text;
        ct_shape shape;
        ct_status status;
        const char *message;
    } c[] = {
        { "MVN", "mvn_param { eps: 0 }", TEST_SHAPE(2, 3), CT_ERR_CONFIG, "eps 0 must be above" },
        { "MVN", NULL, TEST_SHAPE(2, 3, 1, 1, 1), CT_ERR_SHAPE, "must have 1 to 4 axes" },
        { "LayerNorm", "layer_norm_param { eps: -1 }", TEST_SHAPE(2, 3), CT_ERR_CONFIG,
          "eps -1 must be above 0" },
        { "LayerNorm", "layer_norm_param { axis: 2 }", TEST_SHAPE(2, 3), CT_ERR_CONFIG,
          "axis 2 is outside" },
        { "LayerNorm", NULL, TEST_SHAPE(4), CT_ERR_CONFIG, "would mix the samples" },
        { "LayerNorm", "layer_norm_param { affine: false }", TEST_SHAPE(4, 0), CT_ERR_SHAPE,
          "nothing to normalise" },
        { "Normalize", NULL, TEST_SHAPE(4), CT_ERR_SHAPE, "has no channels" },
        { "Normalize", "norm_param { eps: -1 }", TEST_SHAPE(2, 3), CT_ERR_CONFIG,
          "eps -1 must be at least 0" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++)
        test_layer_refused(
            &(test_layer_spec){
                .type = c[i].type, .text = c[i].text, .n_bottom = 1, .bottom = { c[i].shape } },
            c[i].status, c[i].message);
}

/* ---- SPP */

static void spp(void **state)
{
    test_layer_spec spec = { .type = "SPP", .n_bottom = 1, .bottom = { TEST_SHAPE(2, 3, 7, 6) } };

    (void)state;
    for (int k = 0; k < 2; k++) {
        test_layer *t;

        spec.text = (k == 0) ? "spp_param { pyramid_height: 3 }"
                             : "spp_param { pyramid_height: 3 pool: AVE }";
        t = test_layer_make(&spec);
        assert_true((t->top_shape[0].ndim == 2) && (t->top_shape[0].dim[1] == 3 * 21));
        test_set(t->input[0], spp_x, 252);
        test_set(t->top_diff[0], (k == 0) ? spp_dy_max : spp_dy_mean, 126);
        test_layer_pass(t);
        test_near_golden(t, TEST_FORWARD, t->top[0], (k == 0) ? spp_y_max : spp_y_mean, 126,
                         42 * 0x1p-24, "y");
        test_near_golden(t, TEST_BACKWARD, t->input_diff[0], (k == 0) ? spp_dx_max : spp_dx_mean,
                         252, tolerance, "dx");
        test_random_distinct(t->input[0], 252, 4, -1, 1);
        test_layer_gradient(t, &(test_gradient){ .step = 1e-3f, .max_kink = 0.05 });
        test_layer_destroy(t);
    }
    spec.text = "spp_param { pyramid_height: 1 pool: AVE }";
    {
        test_layer *t = test_layer_make(&spec);

        assert_true((t->top_shape[0].ndim == 4) && (t->top_count[0] == 6)); /* as Caffe's */
        test_layer_gradient(t, NULL);
        test_layer_destroy(t);
    }
    spec.text = NULL;
    test_layer_refused(&spec, CT_ERR_CONFIG, "number of levels must be 1 to 16");
    spec.text = "spp_param { pyramid_height: 2 pool: STOCHASTIC }";
    test_layer_refused(&spec, CT_ERR_CONFIG, "STOCHASTIC is not supported");
    spec.text = "spp_param { pyramid_height: 4 }";
    test_layer_refused(&spec, CT_ERR_SHAPE, "8 bins on an axis of 7 need a padding of 1");
    spec.bottom[0] = TEST_SHAPE(2, 3, 5);
    test_layer_refused(&spec, CT_ERR_SHAPE, "must have 4 axes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_recorded), cmocka_unit_test(gradients), cmocka_unit_test(edges),
        cmocka_unit_test(refused),     cmocka_unit_test(spp),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
