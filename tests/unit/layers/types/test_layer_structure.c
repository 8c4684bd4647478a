/* What recorded cases (test_layer_cases.c) do not show of structural and detection layers: what
 * they refuse, data at fault, the work of many threads, running statistics, shares of ranks,
 * chance. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include <hdf5.h>
#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct refusal {
    const char *type, *text;
    int n_bottom, n_top;
    ct_shape bottom[4];
    ct_status status;
    const char *part;
} refusal;

#define S(...) TEST_SHAPE(__VA_ARGS__)
#define MULTI  "multibox_loss_param { num_classes: 3 "
#define BOXES                                                                                      \
    {                                                                                              \
        S(2, 16), S(2, 12), S(1, 2, 16), S(1, 1, 2, 8)                                             \
    }

/* clang-format off: one a line */
static const refusal refused[] = {
    { "Slice",
      "slice_param { axis: 1 slice_dim: 1 }",
      1,
      2,
      { S(2, 4) },
      CT_ERR_CONFIG,
      "both set" },
    { "Slice",
      "slice_param { slice_point: 1 slice_point: 2 }",
      1,
      2,
      { S(2, 4) },
      CT_ERR_CONFIG,
      "2 slice_point for 2 tops" },
    { "Slice",
      "slice_param { slice_point: 4 }",
      1,
      2,
      { S(2, 4) },
      CT_ERR_CONFIG,
      "must rise and stay inside" },
    { "Slice", "", 1, 3, { S(2, 4) }, CT_ERR_SHAPE, "do not divide into 3" },
    { "Slice", "slice_param { slice_dim: 2 }", 1, 2, { S(2, 4) }, CT_ERR_CONFIG, "slice_dim 2" },
    { "Crop", "", 2, 1, { S(2, 3, 4, 5), S(2, 3, 5, 5) }, CT_ERR_SHAPE, "axis 2: 5 from offset 0" },
    { "Crop",
      "crop_param { offset: 1 offset: 1 offset: 1 }",
      2,
      1,
      { S(2, 3, 4, 5), S(2, 3, 1, 1) },
      CT_ERR_CONFIG,
      "3 offset for the 2 axes" },
    { "Crop", "", 2, 1, { S(2, 3, 4), S(2, 3, 4, 1) }, CT_ERR_SHAPE, "as many axes" },
    { "Permute",
      "permute_param { order: 3 }",
      1,
      1,
      { S(2, 3, 4) },
      CT_ERR_CONFIG,
      "order 3 is outside" },
    { "Permute",
      "permute_param { order: 1 order: 1 }",
      1,
      1,
      { S(2, 3, 4) },
      CT_ERR_CONFIG,
      "twice" },
    { "ShuffleChannel",
      "shuffle_channel_param { group: 2 }",
      1,
      1,
      { S(2, 3, 4) },
      CT_ERR_SHAPE,
      "do not divide into 2 groups" },
    { "ShuffleChannel",
      "shuffle_channel_param { group: 0 }",
      1,
      1,
      { S(2, 3, 4) },
      CT_ERR_CONFIG,
      "at least 1" },
    { "Tile", "", 1, 1, { S(2, 3) }, CT_ERR_CONFIG, "tiles is missing" },
    { "Tile", "tile_param { tiles: 0 }", 1, 1, { S(2, 3) }, CT_ERR_CONFIG, "tiles is too small" },
    { "Reshape",
      "reshape_param { shape { dim: -1 dim: -1 } }",
      1,
      1,
      { S(2, 3) },
      CT_ERR_CONFIG,
      "2 dimensions -1" },
    { "Reshape",
      "reshape_param { shape { dim: -2 } }",
      1,
      1,
      { S(2, 3) },
      CT_ERR_CONFIG,
      "dimension -2" },
    { "Reshape",
      "reshape_param { shape { dim: 4 } }",
      1,
      1,
      { S(2, 3) },
      CT_ERR_SHAPE,
      "do not fill" },
    { "Reshape",
      "reshape_param { shape { dim: 4 dim: -1 } }",
      1,
      1,
      { S(2, 3) },
      CT_ERR_SHAPE,
      "any number of times" },
    { "Reshape",
      "reshape_param { shape { dim: 2 dim: 3 dim: 0 } }",
      1,
      1,
      { S(2, 3) },
      CT_ERR_CONFIG,
      "no axis 2" },
    { "Reshape",
      "reshape_param { axis: 3 }",
      1,
      1,
      { S(2, 3) },
      CT_ERR_CONFIG,
      "axis 3 is outside" },
    { "Reshape",
      "reshape_param { axis: 1 num_axes: 2 }",
      1,
      1,
      { S(2, 3) },
      CT_ERR_CONFIG,
      "num_axes 2" },
    { "ArgMax", "argmax_param { top_k: 0 }", 1, 1, { S(2, 3) }, CT_ERR_CONFIG, "top_k is 0" },
    { "ArgMax", "argmax_param { top_k: 4 }", 1, 1, { S(2, 3) }, CT_ERR_CONFIG, "only 3 values" },
    { "Reduction",
      "reduction_param { axis: 2 }",
      1,
      1,
      { S(2, 3) },
      CT_ERR_CONFIG,
      "axis 2 is outside" },
    { "BatchReindex", "", 2, 1, { S(2, 3), S(2, 1) }, CT_ERR_SHAPE, "must have one axis" },
    { "Parameter", "", 0, 1, { { 0 } }, CT_ERR_CONFIG, "shape is missing" },
    { "Parameter",
      "parameter_param { shape { dim: 0 } }",
      0,
      1,
      { { 0 } },
      CT_ERR_CONFIG,
      "dimension 0" },
    { "LSTMUnit", "", 3, 2, { S(1, 2, 3), S(1, 2, 9), S(1, 2) }, CT_ERR_SHAPE, "1 x N x 4D" },
    { "Axpy", "", 3, 1, { S(2, 3), S(2, 3, 4), S(2, 3, 5) }, CT_ERR_SHAPE, "bottoms 1 and 2" },
    { "Axpy", "", 3, 1, { S(2, 2), S(2, 3, 4), S(2, 3, 4) }, CT_ERR_SHAPE, "one factor a channel" },
    { "BN",
      "bn_param { scale_filler { } eps: 1e-3 }",
      1,
      1,
      { S(2, 3) },
      CT_ERR_CONFIG,
      "mixes fields" },
    { "BN",
      "bn_param { var_eps: 1e-3 bn_mode: LEARN }",
      1,
      1,
      { S(2, 3) },
      CT_ERR_CONFIG,
      "SegNet's bn_mode" },
    { "BN",
      "bn_param { momentum: 2 }",
      1,
      1,
      { S(2, 3) },
      CT_ERR_CONFIG,
      "momentum, the share of the running statistics that stays (1 - decay), 2, lie in 0..1" },
    { "SyncBN",
      "bn_param { bn_mode: LEARN }",
      1,
      1,
      { S(2, 3) },
      CT_ERR_CONFIG,
      "not the fields of" },
    { "BN", "", 1, 1, { S(2) }, CT_ERR_SHAPE, "no channels" },
    { "Upsample", "", 1, 1, { S(2, 3, 4, 5) }, CT_ERR_CONFIG, "upsample_param is missing" },
    { "Upsample",
      "upsample_param { scale: 2 scale_h: 2 scale_w: 2 }",
      1,
      1,
      { S(2, 3, 4, 5) },
      CT_ERR_CONFIG,
      "give scale, or both" },
    { "Upsample",
      "upsample_param { scale: 0 }",
      1,
      1,
      { S(2, 3, 4, 5) },
      CT_ERR_CONFIG,
      "below 1" },
    { "Upsample",
      "upsample_param { scale: 3 pad_out_h: true }",
      1,
      1,
      { S(2, 3, 4, 5) },
      CT_ERR_CONFIG,
      "scale of 2" },
    { "Upsample",
      "upsample_param { upsample_h: 3 upsample_w: 3 }",
      1,
      1,
      { S(2, 3, 4, 5) },
      CT_ERR_CONFIG,
      "need places" },
    { "Upsample",
      "upsample_param { scale: 2 }",
      2,
      1,
      { S(2, 3, 4, 5), S(2, 3, 4, 4) },
      CT_ERR_SHAPE,
      "places" },
    { "Interp",
      "interp_param { pad_beg: 1 height: 2 width: 2 }",
      1,
      1,
      { S(1, 1, 4, 4) },
      CT_ERR_CONFIG,
      "pad_beg 1" },
    { "Interp",
      "interp_param { zoom_factor: 0 }",
      1,
      1,
      { S(1, 1, 4, 4) },
      CT_ERR_CONFIG,
      "zoom_factor 0" },
    { "Interp", "interp_param { height: 2 }", 1, 1, { S(1, 1, 4, 4) }, CT_ERR_CONFIG, "give both" },
    { "Interp", "interp_param { }", 1, 1, { S(1, 1, 4, 4) }, CT_ERR_CONFIG, "no size" },
    { "Interp",
      "interp_param { height: 2 width: 2 zoom_factor: 2 }",
      1,
      1,
      { S(1, 1, 4, 4) },
      CT_ERR_CONFIG,
      "give one of" },
    { "Interp",
      "interp_param { zoom_factor: 2 pad_end: -4 }",
      1,
      1,
      { S(1, 1, 4, 4) },
      CT_ERR_SHAPE,
      "nothing is left" },
    { "Deconvolution",
      "convolution_param { num_output: 1 kernel_size: 1 pad: 2 }",
      1,
      1,
      { S(1, 1, 3, 3) },
      CT_ERR_SHAPE,
      "no or too many places" },
    { "Deconvolution",
      "convolution_param { num_output: 3 kernel_size: 1 group: 2 }",
      1,
      1,
      { S(1, 2, 3, 3) },
      CT_ERR_CONFIG,
      "group 2 must divide" },
    { "DepthwiseConvolution",
      "convolution_param { num_output: 4 kernel_size: 1 group: 2 }",
      1,
      1,
      { S(1, 4, 3, 3) },
      CT_ERR_CONFIG,
      "a group of its own" },
    { "Im2col",
      "convolution_param { kernel_size: 4 }",
      1,
      1,
      { S(1, 2, 3, 3) },
      CT_ERR_SHAPE,
      "is larger" },
    { "ROIPooling",
      "roi_pooling_param { pooled_h: 2 }",
      2,
      1,
      { S(1, 2, 3, 3), S(4, 5) },
      CT_ERR_CONFIG,
      "pooled_w" },
    { "ROIPooling",
      "roi_pooling_param { pooled_h: 2 pooled_w: 2 }",
      2,
      1,
      { S(1, 2, 3, 3), S(4, 4) },
      CT_ERR_SHAPE,
      "5 numbers" },
    { "PSROIPooling",
      "psroi_pooling_param { output_dim: 2 group_size: 2 }",
      2,
      1,
      { S(1, 8, 3, 3), S(4, 5) },
      CT_ERR_CONFIG,
      "spatial_scale" },
    { "PSROIPooling",
      "psroi_pooling_param { spatial_scale: -1 output_dim: 2 group_size: 2 }",
      2,
      1,
      { S(1, 8, 3, 3), S(4, 5) },
      CT_ERR_CONFIG,
      "psroi_pooling_param.spatial_scale is -1, needs more than 0" },
    { "ROIPooling",
      "roi_pooling_param { pooled_h: 2 pooled_w: 2 spatial_scale: nan }",
      2,
      1,
      { S(1, 2, 3, 3), S(4, 5) },
      CT_ERR_CONFIG,
      "roi_pooling_param.spatial_scale is nan, needs more than 0" },
    { "PSROIPooling",
      "psroi_pooling_param { spatial_scale: 1 output_dim: 2 group_size: 2 }",
      2,
      1,
      { S(1, 7, 3, 3), S(4, 5) },
      CT_ERR_SHAPE,
      "need 8" },
    { "PriorBox",
      "prior_box_param { }",
      2,
      1,
      { S(1, 2, 3, 3), S(1, 1, 9, 9) },
      CT_ERR_CONFIG,
      "min_size is missing" },
    { "PriorBox",
      "prior_box_param { min_size: 4 max_size: 3 }",
      2,
      1,
      { S(1, 2, 3, 3), S(1, 1, 9, 9) },
      CT_ERR_CONFIG,
      "max_size above it" },
    { "PriorBox",
      "prior_box_param { min_size: 4 variance: 1 variance: 2 }",
      2,
      1,
      { S(1, 2, 3, 3), S(1, 1, 9, 9) },
      CT_ERR_CONFIG,
      "2 variance" },
    { "PriorBox",
      "prior_box_param { min_size: 4 step: 1 step_h: 2 }",
      2,
      1,
      { S(1, 2, 3, 3), S(1, 1, 9, 9) },
      CT_ERR_CONFIG,
      "give one" },
    { "MultiBoxLoss", "", 4, 1, BOXES, CT_ERR_CONFIG, "num_classes is missing" },
    { "MultiBoxLoss", MULTI "background_label_id: 3 }", 4, 1, BOXES, CT_ERR_CONFIG,
      "is not below num_classes 3" },
    { "MultiBoxLoss", MULTI "share_location: false }", 4, 1, BOXES, CT_ERR_CONFIG,
      "mining_type: NONE only" },
    { "MultiBoxLoss", MULTI "nms_param { } }", 4, 1, BOXES, CT_ERR_CONFIG,
      "suppression of negatives" },
    { "MultiBoxLoss", MULTI "map_object_to_agnostic: true }", 4, 1, BOXES, CT_ERR_CONFIG,
      "needs num_classes 2" },
    { "MultiBoxLoss", MULTI "do_neg_mining: false }", 4, 1, BOXES, CT_ERR_CONFIG, "says other" },
    { "MultiBoxLoss", MULTI "sample_size: 0 }", 4, 1, BOXES, CT_ERR_CONFIG, "sample_size 0" },
    { "MultiBoxLoss",
      MULTI "}",
      4,
      1,
      { S(2, 16), S(2, 11), S(1, 2, 16), S(1, 1, 2, 8) },
      CT_ERR_SHAPE,
      "N x PC" },
    { "MultiBoxLoss",
      MULTI "}",
      4,
      1,
      { S(2, 16), S(2, 12), S(1, 2, 16), S(1, 1, 2, 7) },
      CT_ERR_SHAPE,
      "rows of 8" },
    { "DetectionOutput",
      "",
      3,
      1,
      { S(2, 16), S(2, 12), S(1, 2, 16) },
      CT_ERR_CONFIG,
      "num_classes is missing" },
    { "DetectionOutput",
      "detection_output_param { num_classes: 3 keep_top_k: 0 }",
      3,
      1,
      { S(2, 16), S(2, 12), S(1, 2, 16) },
      CT_ERR_CONFIG,
      "keep_top_k" },
    { "DetectionOutput",
      "detection_output_param { num_classes: 3 nms_param { eta: 0 } }",
      3,
      1,
      { S(2, 16), S(2, 12), S(1, 2, 16) },
      CT_ERR_CONFIG,
      "eta 0" },
    { "DetectionOutput",
      "detection_output_param { num_classes: 4 }",
      3,
      1,
      { S(2, 16), S(2, 12), S(1, 2, 16) },
      CT_ERR_SHAPE,
      "4 classes" },
    { "HDF5Output", "", 2, 0, { S(2, 3), S(2) }, CT_ERR_CONFIG, "file_name is missing" },
    { "HDF5Output",
      "hdf5_output_param { file_name: \"x\" }",
      2,
      0,
      { S(2, 3), S(3) },
      CT_ERR_SHAPE,
      "same number of samples" },
    { "MemoryData",
      "memory_data_param { batch_size: 2 }",
      0,
      2,
      { { 0 } },
      CT_ERR_CONFIG,
      "must be given" },
};
/* clang-format on */

static void refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        const refusal *r = &refused[i];
        test_layer_spec spec = {
            .type = r->type, .text = r->text, .n_bottom = r->n_bottom, .n_top = r->n_top
        };

        for (int k = 0; k < 4; k++) spec.bottom[k] = r->bottom[k];
        test_layer_refused(&spec, r->status, r->part);
    }
}

/* The layer, with `value` at place `at` of bottom `slot`, fails in forward and says `part`. */
static void fails_on(const test_layer_spec *spec, int slot, const float *values, int64_t n,
                     const char *part)
{
    test_layer *t = test_layer_make(spec);
    ct_status status;
    const char *text;

    memcpy(t->input[slot], values, (size_t)n * sizeof(*values));
    test_log_start();
    status = test_layer_forward(t);
    text = test_log_stop();
    if ((status != CT_ERR_DATA) || (strstr(text, part) == NULL))
        fail_msg("%s: %s: %s", spec->type, ct_status_str(status), text);
    test_layer_destroy(t);
}

static void bad_data(void **state)
{
    static const float index[2] = { 0, 2 }, place[4] = { 0, 1, 16, 2 }, roi[5] = { 1, 0, 0, 3, 3 };
    static const float sample[8] = { 2, 1, 0, 0, 0, 1, 1, 0 };
    static const float ground[8] = { 0, 0, 0, 0, 0, 1, 1, 0 };
    static const float flat[8] = { 0, 1, 0, 0, 0, 0, 1, 0 };
    test_layer_spec boxes = { .type = "MultiBoxLoss",
                              .text = MULTI "}",
                              .n_bottom = 4,
                              .bottom = { S(2, 16), S(2, 12), S(1, 2, 16), S(1, 1, 1, 8) } };

    (void)state;
    fails_on(
        &(test_layer_spec){ .type = "BatchReindex", .n_bottom = 2, .bottom = { S(2, 3), S(2) } }, 1,
        index, 2, "index 1 of batch 0 is 2, not a whole number in 0..1");
    fails_on(&(test_layer_spec){ .type = "Upsample",
                                 .text = "upsample_param { scale: 2 }",
                                 .n_bottom = 2,
                                 .bottom = { S(1, 1, 2, 2), S(1, 1, 2, 2) } },
             1, place, 4, "has the place 16, planes of the top have 16");
    fails_on(&(test_layer_spec){ .type = "ROIPooling",
                                 .text = "roi_pooling_param { pooled_h: 2 pooled_w: 2 }",
                                 .n_bottom = 2,
                                 .bottom = { S(1, 1, 4, 4), S(1, 5) } },
             1, roi, 5, "region 0 of batch 0");
    for (int i = 0; i < 3; i++) {
        test_layer *t = test_layer_make(&boxes);
        const float *row = (i == 0) ? sample : (i == 1) ? ground : flat;
        static const float prior[4] = { 0, 0, 0.5f, 0.5f };
        const char *text;
        ct_status status;

        for (int k = 0; k < 32; k++) t->input[2][k] = (k < 16) ? prior[k % 4] : 0.1f;
        memcpy(t->input[3], row, sizeof(sample));
        test_log_start();
        status = test_layer_forward(t);
        text = test_log_stop();
        if ((status != CT_ERR_DATA) || (strstr(text, "true box 0 of batch 0") == NULL))
            fail_msg("%d: %s", i, text);
        test_layer_destroy(t);
    }
}

/* Over the threshold of threads: against the definition, element by element. */
static void many_elements(void **state)
{
    enum { N = 3, C = 37, H = 19, W = 23 };
    test_layer *t =
        test_layer_make(&(test_layer_spec){ .type = "Permute",
                                            .text = "permute_param { order: 0 order: 2 order: 3 }",
                                            .n_bottom = 1,
                                            .bottom = { S(N, C, H, W) } });

    (void)state;
    test_random(t->top_diff[0], t->top_count[0], 3, -1, 1);
    test_layer_pass(t);
    for (int64_t i = 0; i < t->top_count[0]; i++) {
        int64_t c = i % C, w = i / C % W, h = i / C / W % H, n = i / C / W / H;
        int64_t from = ((n * C + c) * H + h) * W + w;

        assert_true(t->top[0][i] == t->input[0][from]);
        assert_true(t->input_diff[0][from] == t->top_diff[0][i]);
    }
    test_layer_destroy(t);
    t = test_layer_make(
        &(test_layer_spec){ .type = "Slice",
                            .text = "slice_param { slice_point: 10 slice_point: 11 }",
                            .n_bottom = 1,
                            .n_top = 3,
                            .bottom = { S(N, C, H, W) } });
    assert_int_equal(test_layer_forward(t), CT_OK);
    for (int64_t i = 0; i < N * C * H * W; i++) {
        static const int64_t first[4] = { 0, 10, 11, C };
        int64_t c = i / (H * W) % C, n = i / (H * W * C);
        int k = (c < 10) ? 0 : (c < 11) ? 1 : 2;
        int64_t at = (n * (first[k + 1] - first[k]) + c - first[k]) * H * W + i % (H * W);

        assert_true(t->top[k][at] == t->input[0][i]);
    }
    test_layer_destroy(t);
}

/* running = 0.75 running + 0.25 batch, in both ways of saying it; TEST leaves it. */
static void running_statistics(void **state)
{
    static const char *const text[2] = { "bn_param { momentum: 0.75 }",
                                         "bn_param { decay: 0.25 var_eps: 1e-5 }" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        test_layer_spec spec = {
            .type = "BN", .text = text[i], .n_bottom = 1, .bottom = { S(2, 1, 1, 2) }
        };
        test_layer *t = test_layer_make(&spec);
        const float x[4] = { 1, 2, 4, 5 }; /* mean 3, variance 2.5 */

        assert_int_equal(t->layer.n_weight, 4);
        assert_true((t->weight[0][0] == 1.0f) && (t->weight[1][0] == 0.0f));
        memcpy(t->input[0], x, sizeof(x));
        t->weight[2][0] = 8;
        t->weight[3][0] = 2;
        assert_int_equal(test_layer_forward(t), CT_OK);
        assert_true(t->weight_after[2][0] == 6.75f);
        assert_true(t->weight_after[3][0] == 2.125f);
        test_layer_destroy(t);
        spec.phase = CT_TEST;
        t = test_layer_make(&spec);
        t->weight[3][0] = 2;
        assert_int_equal(test_layer_forward(t), CT_OK);
        assert_true(t->weight_after[3][0] == 2.0f);
        test_layer_destroy(t);
    }
}

static ct_status twice(void *ctx, double *v, int n)
{
    (void)ctx;
    for (int i = 0; i < n; i++) v[i] *= 2;
    return CT_OK;
}

/* One of two ranks with equal batches: a mean over samples, or over matches, is half. */
static void shares_of_ranks(void **state)
{
    static const char *const text[3] = { "reduction_param { operation: MEAN }",
                                         "reduction_param { operation: SUM }",
                                         "reduction_param { operation: MEAN axis: 1 }" };
    static const float share[3] = { 0.5f, 1, 1 };

    (void)state;
    for (int i = 0; i < 3; i++) {
        test_layer *t = test_layer_make(&(test_layer_spec){
            .type = "Reduction", .text = text[i], .n_bottom = 1, .bottom = { S(4, 3) } });
        float alone, gradient;

        for (int64_t k = 0; k < t->top_count[0]; k++) t->top_diff[0][k] = 1;
        assert_true(t->instance.top_is_share == (i < 2));
        test_layer_pass(t);
        alone = t->top[0][0];
        gradient = t->input_diff[0][0];
        t->ex.batch_global = 8;
        t->ex.sum_ranks = twice;
        test_layer_pass(t);
        assert_true(t->top[0][0] == share[i] * alone);
        assert_true(t->input_diff[0][0] == share[i] * gradient);
        test_layer_destroy(t);
    }
}

static ct_status count_call(void *ctx, double *v, int n)
{
    (void)v, (void)n;
    ++*(int *)ctx;
    return CT_OK;
}

/* A rank without samples takes part in all sums, and what it makes has the shape of nothing. */
static void no_samples(void **state)
{
    static const struct {
        test_layer_spec spec;
        int n_sum[2]; /* of forward, of backward */
    } empty[] = {
        { { .type = "SyncBN", .n_bottom = 1, .bottom = { S(0, 3, 4) } }, { 2, 1 } },
        { { .type = "MultiBoxLoss",
            .text = MULTI "}",
            .n_bottom = 4,
            .bottom = { S(0, 16), S(0, 12), S(1, 2, 16), S(0, 2, 8) } },
          { 1, 0 } },
        { { .type = "MultiBoxLoss",
            .text = MULTI "use_prior_for_matching: false mining_type: HARD_EXAMPLE }",
            .n_bottom = 4,
            .bottom = { S(0, 16), S(0, 12), S(1, 2, 16), S(1, 1, 0, 8) } },
          { 1, 0 } },
        { { .type = "DetectionOutput",
            .text = "detection_output_param { num_classes: 3 keep_top_k: 5 }",
            .n_bottom = 3,
            .bottom = { S(0, 16), S(0, 12), S(1, 2, 16) } },
          { 0, 0 } },
        { { .type = "ROIPooling",
            .text = "roi_pooling_param { pooled_h: 2 pooled_w: 2 }",
            .n_bottom = 2,
            .bottom = { S(0, 2, 3, 3), S(0, 5) } },
          { 0, 0 } },
        { { .type = "PSROIPooling",
            .text = "psroi_pooling_param { spatial_scale: 1 output_dim: 2 group_size: 1 }",
            .n_bottom = 2,
            .bottom = { S(2, 2, 3, 3), S(0, 5) } },
          { 0, 0 } },
        { { .type = "Upsample",
            .text = "upsample_param { scale: 2 }",
            .n_bottom = 1,
            .bottom = { S(0, 2, 3, 3) } },
          { 0, 0 } },
        { { .type = "Interp",
            .text = "interp_param { zoom_factor: 2 }",
            .n_bottom = 1,
            .bottom = { S(0, 2, 3, 3) } },
          { 0, 0 } },
        { { .type = "Axpy", .n_bottom = 3, .bottom = { S(0, 2), S(0, 2, 3), S(0, 2, 3) } },
          { 0, 0 } },
        { { .type = "Pooling",
            .text = "pooling_param { pool: STOCHASTIC kernel_size: 2 }",
            .n_bottom = 1,
            .bottom = { S(0, 2, 3, 3) } },
          { 0, 0 } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(empty) / sizeof(empty[0]); i++) {
        test_layer *t = test_layer_make(&empty[i].spec);
        int calls = 0;

        for (int64_t k = 0; (empty[i].spec.n_bottom > 2) && (k < t->input_count[2]); k++)
            t->input[2][k] = (k >= 16) ? 0.1f : (k % 4 < 2) ? 0.0f : 0.5f; /* priors */
        t->ex.batch_local = 0;
        t->ex.batch_first = t->ex.batch_global = 5;
        t->ex.sum_ranks = count_call;
        t->ex.hook_ctx = &calls;
        assert_int_equal(test_layer_forward(t), CT_OK);
        assert_int_equal(calls, empty[i].n_sum[0]);
        for (int64_t k = 0; k < t->top_count[0]; k++) assert_true(t->top[0][k] == 0.0f);
        if (t->layer.ops->backward != NULL) assert_int_equal(test_layer_backward(t), CT_OK);
        assert_int_equal(calls, empty[i].n_sum[0] + empty[i].n_sum[1]);
        for (int k = 0; k < t->layer.n_weight; k++) {
            if (t->weight_diff[k] != NULL) assert_true(t->weight_diff[k][0] == 0.0f);
        }
        test_layer_destroy(t);
    }
}

/* What is drawn depends on the sample's place in the global batch alone, and is drawn as often as
 * it is large. */
static void stochastic_pooling(void **state)
{
    enum { N = 4, C = 3, PER = C * 8 * 8 };
    test_layer_spec spec = { .type = "Pooling",
                             .text = "pooling_param { pool: STOCHASTIC kernel_size: 2 stride: 2 }",
                             .n_bottom = 1,
                             .bottom = { S(N, C, 8, 8) } };
    test_layer *all = test_layer_make(&spec), *half, *test;
    int third = 0;

    (void)state;
    for (int64_t i = 0; i < N * PER; i++) all->input[0][i] = (float)(i % 2 + 1);
    for (int64_t i = 0; i < all->top_count[0]; i++) all->top_diff[0][i] = 1;
    test_layer_pass(all);
    for (int64_t i = 0; i < all->top_count[0]; i++) { /* 1 2 1 2: a third of the draws is 1 */
        assert_true((all->top[0][i] == 1) || (all->top[0][i] == 2));
        third += all->top[0][i] == 1;
    }
    /* binomial: 192 draws, mean 64, deviation 6.5 */
    assert_true((third > 64 - 33) && (third < 64 + 33));
    spec.bottom[0] = S(2, C, 8, 8);
    half = test_layer_make(&spec);
    half->ex = all->ex;
    half->ex.batch_local = 2;
    half->ex.batch_first = 2;
    memcpy(half->input[0], all->input[0] + 2 * PER, 2 * PER * sizeof(float));
    assert_int_equal(test_layer_forward(half), CT_OK);
    test_same(half->top[0], all->top[0] + all->top_count[0] / 2, half->top_count[0], "second half");
    spec.phase = CT_TEST;
    test = test_layer_make(&spec);
    test_random(test->input[0], test->input_count[0], 3, 0.25f, 2);
    test_layer_gradient(test, &(test_gradient){ .roundings = 64 });
    for (int i = 0; i < 2 * PER; i++) test->input[0][i] = half->input[0][i];
    assert_int_equal(test_layer_forward(test), CT_OK);
    for (int64_t i = 0; i < test->top_count[0]; i++) /* (1 + 4 + 1 + 4) / 6 */
        assert_true(test->top[0][i] == 10.0f / 6.0f);
    test_layer_destroy(all);
    test_layer_destroy(half);
    test_layer_destroy(test);
}

/* Two batches of two samples: four rows in the file. */
static void hdf5_output(void **state)
{
    char path[] = "/tmp/cortado-XXXXXX", text[128];
    test_layer_spec spec = { .type = "HDF5Output",
                             .n_bottom = 2,
                             .n_top = 0,
                             .bottom = { S(2, 3), S(2) },
                             .forward_only = true };
    int fd = mkstemp(path);
    float data[12], first[6];
    hsize_t dim[2];
    test_layer *t;
    hid_t file, set;

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    snprintf(text, sizeof(text), "hdf5_output_param { file_name: \"%s\" }", path);
    spec.text = text;
    t = test_layer_make(&spec);
    memcpy(first, t->input[0], sizeof(first));
    assert_int_equal(test_layer_forward(t), CT_OK);
    for (int i = 0; i < 6; i++) t->input[0][i] = (float)i;
    assert_int_equal(test_layer_forward(t), CT_OK);
    test_layer_destroy(t);
    file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    set = H5Dopen2(file, "data", H5P_DEFAULT);
    assert_true(set > 0);
    assert_int_equal(H5Sget_simple_extent_dims(H5Dget_space(set), dim, NULL), 2);
    assert_true((dim[0] == 4) && (dim[1] == 3));
    assert_true(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    test_same(data, first, 6, "first batch");
    for (int i = 0; i < 6; i++) assert_true(data[6 + i] == (float)i);
    H5Dclose(set);
    H5Fclose(file);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),        cmocka_unit_test(bad_data),
        cmocka_unit_test(many_elements),   cmocka_unit_test(running_statistics),
        cmocka_unit_test(shares_of_ranks), cmocka_unit_test(stochastic_pooling),
        cmocka_unit_test(hdf5_output),     cmocka_unit_test(no_samples),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
