/* Every layer type there is, over odd shapes: where it has a gradient, that agrees with differences
 * on axes of 1 and of primes; on more elements than one thread takes, 1 and 3 threads make the same
 * bits. A type without a row here, and without a reason, fails. */
#include "tests/test.h"
#include "framework/proto/upgrade.h"
#include "tests/layer_harness.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S(...) TEST_SHAPE(__VA_ARGS__)

enum { MOST = 5 };

/* What a bottom holds: 'r' anything in [-1, 1), 'd' the same without ties, 'p' from 0.3 to 2, 'l'
 * classes below row.n, 'c' 0 or 1, 'o' 0, 0.5 or 1 (LSTM's cont), 'i' regions, 'b' priors, 't' true
 * boxes */
typedef struct row {
    const char *type, *text, *values;
    int n_top, n;
    ct_shape bottom[MOST];
    double kinks; /* share of elements that may lie at one */
    int roundings;
    bool differs; /* sums depend on the number of threads, in their last bits */
} row;

/* clang-format off */
static const struct {
    const char *type, *why;
} left_out[] = {
    { "Data", "reads files: test_data_layers" },
    { "HDF5Data", "reads files: test_data_layers" },
    { "HDF5Output", "writes a file: test_layer_structure" },
    { "ImageData", "reads files: test_data_layers" },
    { "Cast", "the net puts it between dtypes: test_layer_bf16" },
    { "Python", "a program computes it: test_library_layers" },
    { "Reorder", "the net puts it between layouts: test_layer_blocked" },
    { "CopyToParts", "--parallel adds it: test_transfers" },
    { "SumParts", "--parallel adds it: test_transfers" },
    { "Gather", "--parallel adds it: test_transfers" },
    { "ReduceScatter", "--parallel adds it: test_transfers" },
    { "ScatterToParts", "--parallel adds it: test_transfers" },
    { "Send", "--parallel adds it: test_transfers" },
    { "Receive", "--parallel adds it: test_transfers" },
    { "ToBlocks", "--parallel adds it: test_layer_blocked" },
    { "TextData", "reads files: test_data_text" },
    { "TokenData", "reads files: test_data_tokens" },
    { "DetectionEvaluate", "no gradient, no threads: test_detection.sh" },
    { "AnnotatedData", "reads files: test_annotated.sh" },
    { "WindowData", "reads files" },
};

#define ONE   S(1, 1, 1, 1)
#define PRIME S(3, 5, 2, 7)
#define LARGE S(3, 17, 31, 37)
#define PLAIN(_type, _text, _values, _kinks, _roundings)                                           \
    { _type, _text, _values, 0, 1, { ONE }, _kinks, _roundings, false },                           \
        { _type, _text, _values, 0, 3, { PRIME }, _kinks, _roundings, false },                     \
    {                                                                                              \
        _type, _text, _values, 0, 3, { LARGE }, _kinks, _roundings, false                          \
    }
#define PAIR(_type, _text, _values, _kinks, _roundings)                                            \
    { _type, _text, _values, 0, 1, { ONE, ONE }, _kinks, _roundings, false },                      \
        { _type, _text, _values, 0, 3, { PRIME, PRIME }, _kinks, _roundings, false },              \
    {                                                                                              \
        _type, _text, _values, 0, 3, { LARGE, LARGE }, _kinks, _roundings, false                   \
    }
#define LABELS(_type, _text, _roundings)                                                           \
    { _type, _text, "rl", 0, 1, { ONE, S(1, 1, 1) }, 0, _roundings, false },                       \
        { _type, _text, "rl", 0, 5, { PRIME, S(3, 2, 7) }, 0, _roundings, false },                 \
    {                                                                                              \
        _type, _text, "rl", 0, 17, { LARGE, S(3, 31, 37) }, 0, _roundings, false                   \
    }
#define CONV(_type, _text, _a, _b, _c)                                                             \
    { _type,                                                                                       \
      "convolution_param { " _text                                                                 \
      " weight_filler { type: 'gaussian' } bias_filler { type: 'gaussian' } }",                    \
      "r",                                                                                         \
      0,                                                                                           \
      0,                                                                                           \
      { _a },                                                                                      \
      0,                                                                                           \
      256,                                                                                         \
      true },                                                                                      \
        { _type,                                                                                   \
          "convolution_param { " _text                                                             \
          " weight_filler { type: 'gaussian' } bias_filler { type: 'gaussian' } }",                \
          "r",                                                                                     \
          0,                                                                                       \
          0,                                                                                       \
          { _b },                                                                                  \
          0,                                                                                       \
          1024,                                                                                    \
          true },                                                                                  \
    {                                                                                              \
        _type,                                                                                     \
            "convolution_param { " _text                                                           \
            " weight_filler { type: 'gaussian' } bias_filler { type: 'gaussian' } }",              \
            "r", 0, 0, { _c }, 0, 1024, true                                                       \
    }
#define RECURRENT                                                                                  \
    "recurrent_param { num_output: 3 weight_filler { type: 'gaussian' } bias_filler { type: "      \
    "'gaussian' } }"
#define BOXES(_n, _p) S(_n, 4 * _p), S(_n, 3 * _p), S(1, 2, 4 * _p)

static const row written[] = {
    PLAIN("AbsVal", NULL, "d", 0.1, 16),
    PLAIN("ArgMax", NULL, "d", 0, 0),
    PLAIN("ArgMax", "argmax_param { axis: 1 }", "d", 0, 0),
    { "Attention", "attention_param { num_heads: 1 }", "rrr", 0, 0, { S(1, 1, 1), S(1, 1, 1), S(1, 1, 1) }, 0, 64, false },
    { "Attention", "attention_param { num_heads: 3 num_kv_heads: 1 causal: true window: 4 rope { base: 100 } dropout: 0.5 }", "rl", 0, 2, { S(3, 7, 10), S(3, 7) }, 0, 256, false },
    { "Attention", "attention_param { num_heads: 5 rope { dim: 2 interleaved: true } }", "rrr", 0, 0, { S(2, 5, 15), S(2, 11, 15), S(2, 11, 15) }, 0, 256, false },
    { "Attention", "attention_param { num_heads: 2 causal: true }", "r", 0, 0, { S(3, 131, 42) }, 0, 1024, false },
    { "Attention", "attention_param { num_heads: 3 num_kv_heads: 1 causal: true window: 31 rope { } dropout: 0.1 }", "rrrl", 0, 3, { S(3, 67, 78), S(3, 101, 26), S(3, 101, 26), S(3, 101) }, 0, 1024, false },
    PLAIN("BatchNorm", NULL, "d", 0, 512),
    PLAIN("BN", NULL, "d", 0, 512),
    PLAIN("BNLL", NULL, "r", 0, 16),
    PLAIN("Clip", "clip_param { min: -0.5 max: 0.7 }", "d", 0.2, 16),
    PLAIN("Dropout", NULL, "r", 0, 16),
    PLAIN("ELU", NULL, "d", 0.1, 16),
    PLAIN("Exp", NULL, "r", 0, 32),
    PLAIN("Flatten", NULL, "r", 0, 16),
    PLAIN("GELU", NULL, "r", 0, 32),
    PLAIN("LayerNorm", NULL, "d", 0.1, 512),
    PLAIN("Log", NULL, "p", 0, 16),
    PLAIN("LRN", NULL, "r", 0, 64),
    PLAIN("LRN", "lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL }", "r", 0, 64),
    PLAIN("MVN", "mvn_param { eps: 0.1 }", "d", 0.1, 256),
    PLAIN("Normalize", NULL, "d", 0, 256),
    PLAIN("Normalize", "norm_param { across_spatial: false channel_shared: false }", "d", 0.1, 256),
    PLAIN("Permute", "permute_param { order: 3 order: 1 }", "r", 0, 16),
    PLAIN("Pooling", "pooling_param { global_pooling: true }", "d", 0.05, 16),
    PLAIN("Pooling", "pooling_param { pool: AVE kernel_size: 3 pad: 1 stride: 2 }", "d", 0, 16),
    PLAIN("Pooling", "pooling_param { kernel_size: 3 pad: 1 stride: 2 }", "d", 0.1, 16),
    PLAIN("Power", "power_param { power: 1.5 scale: 0.5 shift: 1 }", "p", 0, 32),
    PLAIN("PReLU", NULL, "d", 0.1, 512),
    PLAIN("Reduction", "reduction_param { operation: SUMSQ }", "r", 0, 512),
    PLAIN("Reduction", "reduction_param { operation: MEAN axis: 2 }", "r", 0, 256),
    PLAIN("ReLU", NULL, "d", 0.1, 16),
    PLAIN("ReLU6", NULL, "d", 0.1, 16),
    PLAIN("Reshape", "reshape_param { shape { dim: -1 dim: 1 } }", "r", 0, 16),
    PLAIN("RMSNorm", "rms_norm_param { scale_filler { type: 'gaussian' } }", "d", 0.1, 512),
    PLAIN("Scale", "scale_param { bias_term: true filler { type: 'gaussian' } }", "r", 0, 512),
    PLAIN("ShuffleChannel", NULL, "r", 0, 16),
    PLAIN("Sigmoid", NULL, "r", 0, 16),
    PLAIN("Bias", "bias_param { axis: 2 num_axes: -1 }", "r", 0, 512),
    PLAIN("Softmax", NULL, "r", 0, 64),
    PLAIN("Softmax", "softmax_param { axis: -1 }", "r", 0, 64),
    PLAIN("SPP", "spp_param { pyramid_height: 1 }", "d", 0.05, 16),
    PLAIN("SPP", "spp_param { pyramid_height: 1 pool: AVE }", "d", 0, 64),
    PLAIN("Swish", NULL, "r", 0, 32),
    PLAIN("SyncBN", NULL, "d", 0, 512),
    PLAIN("TanH", NULL, "r", 0, 16),
    PLAIN("Threshold", NULL, "r", 0, 0),
    PLAIN("Tile", "tile_param { axis: 2 tiles: 3 }", "r", 0, 16),
    PLAIN("Upsample", "upsample_param { scale: 2 }", "r", 0, 16),
    PLAIN("Interp", "interp_param { height: 11 width: 3 }", "r", 0, 64),
    PLAIN("Im2col", "convolution_param { kernel_size: 3 pad: 2 stride: 2 }", "r", 0, 64),
    PLAIN("InnerProduct", "inner_product_param { num_output: 3 weight_filler { type: 'xavier' } }", "r", 0, 2048),
    PAIR("Concat", NULL, "rr", 0, 16),
    PAIR("Concat", "concat_param { axis: -1 }", "rr", 0, 16),
    PAIR("Crop", NULL, "rr", 0, 16),
    PAIR("Eltwise", NULL, "rr", 0, 16),
    PAIR("Eltwise", "eltwise_param { operation: PROD }", "rr", 0, 16),
    PAIR("Eltwise", "eltwise_param { operation: MAX }", "dr", 0.3, 16),
    PAIR("EuclideanLoss", NULL, "rr", 0, 512),
    PAIR("L1Loss", NULL, "dr", 0.3, 512),
    PAIR("SmoothL1Loss", NULL, "dr", 0.3, 512),
    PAIR("SigmoidCrossEntropyLoss", NULL, "rp", 0, 512),
    LABELS("Accuracy", NULL, 0),
    LABELS("FocalLoss", NULL, 512),
    LABELS("SoftmaxWithLoss", NULL, 512),
    { "HingeLoss", NULL, "dl", 0, 1, { ONE, S(1) }, 0.2, 64, false },
    { "HingeLoss", NULL, "dl", 0, 70, { PRIME, S(3) }, 0.2, 64, false },
    { "HingeLoss", "hinge_loss_param { norm: L2 }", "rl", 0, 17, { S(3001, 17), S(3001) }, 0.3, 512, false },
    { "MultinomialLogisticLoss", NULL, "pl", 0, 1, { ONE, S(1) }, 0, 64, false },
    { "MultinomialLogisticLoss", NULL, "pl", 0, 70, { PRIME, S(3) }, 0, 64, false },
    { "MultinomialLogisticLoss", NULL, "pl", 0, 17, { S(3001, 17), S(3001) }, 0, 64, false },
    { "ContrastiveLoss", NULL, "rrc", 0, 0, { S(1, 1), S(1, 1), S(1) }, 0, 512, false }, /* its gradient divides by d + 1e-4 */
    { "ContrastiveLoss", NULL, "rrc", 0, 0, { S(7, 3), S(7, 3), S(7) }, 0.2, 64, false },
    { "ContrastiveLoss", NULL, "rrc", 0, 0, { S(3001, 17), S(3001, 17), S(3001) }, 0.2, 64, false },
    { "CenterLoss", "center_loss_param { num_output: 2 }", "rl", 0, 2, { S(1, 1), S(1) }, 0, 64, false },
    { "CenterLoss", "center_loss_param { num_output: 5 }", "rl", 0, 5, { PRIME, S(3) }, 0, 256, false },
    { "CenterLoss", "center_loss_param { num_output: 13 }", "rl", 0, 13, { S(1009, 17), S(1009) }, 0, 256, false },
    { "Embed", "embed_param { num_output: 1 input_dim: 1 }", "l", 0, 1, { S(1, 1) }, 0, 16, false },
    { "Embed", "embed_param { num_output: 7 input_dim: 5 weight_filler { type: 'gaussian' } }", "l", 0, 5, { S(11, 3) }, 0, 64, false },
    { "Embed", "embed_param { num_output: 131 input_dim: 37 weight_filler { type: 'gaussian' } }", "l", 0, 37, { S(61, 7) }, 0, 512, false },
    PAIR("SwiGLU", NULL, "rr", 0, 32),
    { "SwiGLU", NULL, "r", 0, 0, { S(1, 1, 2) }, 0, 32, false },
    { "SwiGLU", NULL, "r", 0, 0, { S(3, 5, 14) }, 0, 32, false },
    { "SwiGLU", NULL, "r", 0, 0, { S(3, 61, 514) }, 0, 32, false },
    { "Position", "position_param { max_length: 1 weight_filler { type: 'gaussian' } }", "r", 0, 0, { S(1, 1, 1) }, 0, 16, false },
    { "Position", "position_param { max_length: 7 weight_filler { type: 'gaussian' } }", "r", 0, 0, { S(3, 5, 7) }, 0, 64, false },
    { "Position", "position_param { max_length: 67 weight_filler { type: 'gaussian' } }", "r", 0, 0, { S(5, 61, 257) }, 0, 512, false },
    { "Position", "position_param { max_length: 7 weight_filler { type: 'gaussian' } }", "rl", 0, 7, { S(3, 5, 7), S(3, 5) }, 0, 64, false },
    { "Position", "position_param { max_length: 67 weight_filler { type: 'gaussian' } }", "rl", 0, 67, { S(5, 61, 257), S(5, 61) }, 0, 512, false },
    { "Position", "position_param { type: SINUSOIDAL }", "r", 0, 0, { S(5, 61, 257) }, 0, 16, false },
    { "MatMul", NULL, "rr", 0, 0, { S(1, 1), S(1, 1) }, 0, 64, false },
    { "MatMul", "matmul_param { alpha: 0.5 }", "rr", 0, 0, { S(3, 5, 7), S(3, 7, 2) }, 0, 64, false },
    { "MatMul", "matmul_param { transpose_a: true }", "rr", 0, 0, { S(3, 2, 7, 5), S(3, 2, 7, 3) }, 0, 64, false },
    { "MatMul", "matmul_param { transpose_b: true }", "rr", 0, 0, { S(3, 5, 7), S(3, 2, 7) }, 0, 64, false },
    { "MatMul", "matmul_param { transpose_a: true transpose_b: true }", "rr", 0, 0, { S(5, 64, 61), S(5, 67, 64) }, 0, 512, false },
    { "MatMul", NULL, "rr", 0, 0, { S(2, 127, 131), S(2, 131, 137) }, 0, 1024, false },
    { "BatchReindex", NULL, "rl", 0, 1, { S(1, 1), S(1) }, 0, 16, false },
    { "BatchReindex", NULL, "rl", 0, 3, { PRIME, S(7) }, 0, 16, false },
    { "BatchReindex", NULL, "rl", 0, 13, { S(13, 701), S(17) }, 0, 16, false },
    { "Axpy", NULL, "rrr", 0, 0, { S(1, 1), ONE, ONE }, 0, 16, false },
    { "Axpy", NULL, "rrr", 0, 0, { S(3, 5), PRIME, PRIME }, 0, 64, false },
    { "Axpy", NULL, "rrr", 0, 0, { S(3, 17), LARGE, LARGE }, 0, 512, false },
    { "InfogainLoss", NULL, "rlr", 0, 1, { ONE, S(1, 1, 1), S(1, 1, 1, 1) }, 0, 64, false },
    { "InfogainLoss", NULL, "rlr", 0, 5, { PRIME, S(3, 2, 7), S(5, 5) }, 0, 128, false },
    { "InfogainLoss", NULL, "rlr", 0, 17, { LARGE, S(3, 31, 37), S(17, 17) }, 0, 512, false },
    { "Filter", NULL, "rc", 0, 0, { ONE, S(1) }, 0, 16, false }, /* none */
    { "Filter", NULL, "rrc", 2, 0, { PRIME, S(3, 2), S(3, 1, 1) }, 0, 16, false },
    { "Filter", NULL, "rc", 0, 0, { S(13, 701), S(13) }, 0, 16, false },
    CONV("Convolution", "num_output: 7 kernel_size: 1", ONE, PRIME, LARGE),
    CONV("Convolution", "num_output: 3 kernel_size: 3 pad: 1 stride: 2", ONE, PRIME, LARGE),
    CONV("Convolution", "num_output: 2 kernel_size: 3 pad: 2 dilation: 2", S(1, 1, 1), S(3, 5, 7), S(3, 5, 1201)),
    CONV("Convolution", "num_output: 2 kernel_size: 2 pad: 1", S(1, 1, 1, 1, 1), S(1, 3, 2, 5, 3), S(2, 3, 11, 13, 17)),
    CONV("Deconvolution", "num_output: 3 kernel_size: 3 pad: 1 stride: 2", S(1, 1, 2, 2), PRIME, LARGE),
    CONV("DepthwiseConvolution", "num_output: 5 kernel_size: 3 pad: 1", S(1, 5, 1, 1), PRIME, S(3, 5, 61, 67)),
    { "LSTM", RECURRENT, "ro", 0, 0, { S(1, 1, 1), S(1, 1) }, 0, 256, false },
    { "LSTM", RECURRENT, "ro", 0, 0, { S(5, 3, 7), S(5, 3) }, 0, 1024, false },
    { "LSTM", RECURRENT, "ro", 0, 0, { S(3, 31, 211), S(3, 31) }, 0, 1024, false },
    { "RNN", RECURRENT, "ro", 0, 0, { S(1, 1, 1), S(1, 1) }, 0, 256, false },
    { "RNN", RECURRENT, "ror", 0, 0, { S(5, 3, 7), S(5, 3), S(3, 2) }, 0, 1024, false },
    { "RNN", RECURRENT, "ro", 0, 0, { S(3, 31, 211), S(3, 31) }, 0, 1024, false },
    { "LSTMUnit", NULL, "rro", 2, 0, { S(1, 1, 1), S(1, 1, 4), S(1, 1) }, 0, 64, false },
    { "LSTMUnit", NULL, "rro", 2, 0, { S(1, 3, 7), S(1, 3, 28), S(1, 3) }, 0, 64, false },
    { "LSTMUnit", NULL, "rro", 2, 0, { S(1, 61, 251), S(1, 61, 1004), S(1, 61) }, 0, 64, false },
    { "Slice", "slice_param { slice_point: 1 }", "r", 2, 0, { S(1, 2, 1) }, 0, 16, false },
    { "Slice", "slice_param { axis: -1 slice_point: 2 slice_point: 3 }", "r", 3, 0, { PRIME }, 0, 16, false },
    { "Slice", "slice_param { slice_point: 5 }", "r", 2, 0, { LARGE }, 0, 16, false },
    { "Split", NULL, "r", 3, 0, { ONE }, 0, 16, false },
    { "Split", NULL, "r", 2, 0, { PRIME }, 0, 16, false },
    { "Split", NULL, "r", 3, 0, { LARGE }, 0, 16, false },
    { "Silence", NULL, "rr", -1, 0, { ONE, PRIME }, 0, 16, false },
    { "Silence", NULL, "r", -1, 0, { LARGE }, 0, 16, false },
    { "Parameter", "parameter_param { shape { dim: 1 } }", "", 0, 0, { { 0 } }, 0, 16, false },
    { "Parameter", "parameter_param { shape { dim: 3 dim: 5 dim: 1 } }", "", 0, 0, { { 0 } }, 0, 16, false },
    { "Input", "input_param { shape { dim: 3 dim: 1 } }", "", 0, 0, { { 0 } }, 0, 0, false },
    { "MemoryData", "memory_data_param { batch_size: 1 channels: 3 height: 1 width: 5 }", "", 2, 0, { { 0 } }, 0, 0, false },
    { "DummyData", "dummy_data_param { shape { dim: 3 dim: 61 dim: 67 } data_filler { type: 'gaussian' } }", "", 0, 0, { { 0 } }, 0, 0, false },
    { "ROIPooling", "roi_pooling_param { pooled_h: 1 pooled_w: 1 }", "di", 0, 0, { ONE, S(1, 5) }, 0.1, 16, false },
    { "ROIPooling", "roi_pooling_param { pooled_h: 3 pooled_w: 2 spatial_scale: 0.5 }", "di", 0, 0, { S(2, 3, 5, 7), S(5, 5) }, 0.1, 16, false },
    { "ROIPooling", "roi_pooling_param { pooled_h: 7 pooled_w: 7 }", "di", 0, 0, { LARGE, S(13, 5) }, 0.1, 16, false },
    { "PSROIPooling", "psroi_pooling_param { spatial_scale: 1 output_dim: 1 group_size: 1 }", "di", 0, 0, { ONE, S(1, 5) }, 0, 64, false },
    { "PSROIPooling", "psroi_pooling_param { spatial_scale: 0.5 output_dim: 3 group_size: 2 }", "di", 0, 0, { S(2, 12, 5, 7), S(5, 5) }, 0, 64, false },
    { "PSROIPooling", "psroi_pooling_param { spatial_scale: 1 output_dim: 7 group_size: 3 }", "di", 0, 0, { S(2, 63, 31, 37), S(31, 5) }, 0, 64, false },
    { "PriorBox", "prior_box_param { min_size: 4 }", "rr", 0, 0, { S(1, 1, 1, 1), S(1, 1, 8, 8) }, 0, 0, false },
    { "PriorBox", "prior_box_param { min_size: 4 max_size: 9 aspect_ratio: 2 }", "rr", 0, 0, { S(1, 1, 61, 67), S(1, 1, 8, 8) }, 0, 0, false },
    { "MultiBoxLoss", "multibox_loss_param { num_classes: 3 }", "rrbt", 0, 3, { BOXES(1, 1), S(1, 1, 1, 8) }, 0.2, 64, false },
    { "MultiBoxLoss", "multibox_loss_param { num_classes: 3 mining_type: NONE }", "rrbt", 0, 3, { BOXES(3, 7), S(1, 1, 5, 8) }, 0.2, 256, false },
    { "MultiBoxLoss", "multibox_loss_param { num_classes: 3 }", "rrbt", 0, 3, { BOXES(5, 1009), S(1, 1, 11, 8) }, 0.2, 512, false },
    { "DetectionOutput", "detection_output_param { num_classes: 3 }", "rrb", 0, 3, { BOXES(1, 1) }, 0, 0, false },
    { "DetectionOutput", "detection_output_param { num_classes: 3 keep_top_k: 7 nms_param { top_k: 31 } }", "rrb", 0, 3, { BOXES(5, 1009) }, 0, 0, false },
};
/* clang-format on */
enum { N_WRITTEN = sizeof(written) / sizeof(written[0]), MOST_ROWS = N_WRITTEN + 96 };

/* Those, and three each of layers whose formula says all and that have none there. */
static row rows[MOST_ROWS];
static int n_row;

static bool has_row(const char *type)
{
    for (int i = 0; i < n_row; i++) {
        if (strcmp(rows[i].type, type) == 0) return true;
    }
    return false;
}

static int make_rows(void **state)
{
    static const ct_shape shape[] = { ONE, PRIME, LARGE };

    (void)state;
    memcpy(rows, written, sizeof(written));
    n_row = N_WRITTEN;
    for (const ct_layer_ops *const *ops = ct_layer_table; *ops != NULL; ops++) {
        bool whole = ((*ops)->formula != NULL) && ((*ops)->formula->op != NULL);

        if (!whole || has_row((*ops)->type) || (n_row + 3 > MOST_ROWS)) continue;
        for (int i = 0; i < 3; i++)
            rows[n_row++] = (row){ .type = (*ops)->type,
                                   .values = "d",
                                   .bottom = { shape[i] },
                                   .kinks = 0.1,
                                   .roundings = 32 };
    }
    return 0;
}

/* ---- what the bottoms hold */

static void fill_regions(test_layer *t, int slot)
{
    const ct_shape *image = &t->spec.bottom[0];

    for (int64_t k = 0; k < t->spec.bottom[slot].dim[0]; k++) {
        float *r = t->input[slot] + 5 * k;

        r[0] = (float)(k % image->dim[0]);
        r[1] = (float)(k % 3), r[2] = (float)(k % 2);
        r[3] = r[1] + (float)(2 * k), r[4] = r[2] + (float)k;
    }
}

static void fill_priors(float *v, int64_t n)
{
    for (int64_t k = 0; k < n / 8; k++) {
        float x = (float)(k % 31) / 31, y = (float)(k % 29) / 29, side = 0.1f + (float)(k % 7) / 20;

        v[4 * k] = x, v[4 * k + 1] = y, v[4 * k + 2] = x + side, v[4 * k + 3] = y + side;
        for (int i = 0; i < 4; i++) v[n / 2 + 4 * k + i] = 0.2f;
    }
}

static void fill_truth(float *v, int64_t n_box, int64_t n_sample)
{
    for (int64_t k = 0; k < n_box; k++) {
        float x = (float)(k % 5) / 8, box[8] = {
            (float)(k * k % n_sample), (float)(1 + k % 2), 0, x, x / 2, x + 0.3f, x / 2 + 0.25f, 0
        };

        memcpy(v + 8 * k, box, sizeof(box));
    }
}

static void fill(test_layer *t, const row *c)
{
    for (int i = 0; c->values[i] != '\0'; i++) {
        float *v = t->input[i];
        const ct_shape *shape = &t->spec.bottom[i];
        int64_t n = t->input_count[i];
        /* sequences begin anew: what a batch leaves behind is nothing that differences know */
        int64_t start = ((shape->ndim == 2) && (shape->dim[0] > 1)) ? shape->dim[1] : 0;

        switch (c->values[i]) {
        case 'd':
            test_random_distinct(v, n, 5 + (uint64_t)i, -1.01f, 1);
            break;
        case 'p':
            test_random(v, n, 5 + (uint64_t)i, 0.3f, 2);
            break;
        case 'l':
            for (int64_t k = 0; k < n; k++) v[k] = (float)(k * k % c->n);
            break;
        case 'c':
            for (int64_t k = 0; k < n; k++) v[k] = (float)((k % 3 != 0) && (k >= start));
            break;
        case 'o':
            for (int64_t k = 0; k < n; k++) v[k] = (k >= start) ? 0.5f * (float)(k % 3) : 0;
            break;
        case 'i':
            fill_regions(t, i);
            break;
        case 'b':
            fill_priors(v, n);
            break;
        case 't':
            fill_truth(v, n / 8, t->spec.bottom[0].dim[0]);
            break;
        default:
            break;
        }
    }
}

static test_layer *make(const row *c)
{
    test_layer_spec spec = { .type = c->type,
                             .text = c->text,
                             .n_top = (c->n_top < 0) ? 0 : c->n_top };
    test_layer *t;

    spec.n_bottom = (int)strlen(c->values);
    for (int i = 0; i < spec.n_bottom; i++) spec.bottom[i] = c->bottom[i];
    if (test_layer_create(&spec, &t) != CT_OK)
        fail_msg("%s { %s }", c->type, (c->text != NULL) ? c->text : "");
    fill(t, c);
    return t;
}

static int64_t size_of(const test_layer *t)
{
    int64_t n = 0;

    for (int i = 0; i < t->layer.n_bottom; i++) n += t->input_count[i];
    return n;
}

/* ---- the tests */

static bool is_left_out(const char *type)
{
    for (size_t i = 0; i < sizeof(left_out) / sizeof(left_out[0]); i++) {
        if (strcmp(left_out[i].type, type) == 0) return true;
    }
    return false;
}

/* Words of params are messages of a layer's parameter. */
static void check_params(const ct_layer_ops *ops)
{
    char word[64];
    int n;

    for (const char *at = ops->params; (at != NULL) && (sscanf(at, " %63s%n", word, &n) == 1);
         at += n) {
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field_by_name(&ct__layer_parameter__descriptor, word);

        if ((f == NULL) || (f->type != PROTOBUF_C_TYPE_MESSAGE))
            fail_msg("%s: params names %s, which no layer has", ops->type, word);
    }
}

/* Of Caffe's or its forks' layers that are refused, and of those that are replaced. */
static bool is_nobodys(const char *name)
{
    static const char *const nobodys[] = { /* of layers that the reader replaces */
                                           "multi_head_attention_param"
    };

    for (size_t i = 0; i < sizeof(nobodys) / sizeof(nobodys[0]); i++) {
        if (strcmp(nobodys[i], name) == 0) return true;
    }
    return false;
}

/* Each message of parameters is read by some type. */
static void every_message(void **state)
{
    const ProtobufCMessageDescriptor *d = &ct__layer_parameter__descriptor;

    (void)state;
    for (unsigned i = 0; i < d->n_fields; i++) {
        const char *name = d->fields[i].name, *end = strrchr(name, '_');

        if ((end == NULL) || (strcmp(end, "_param") != 0)) continue;
        if (is_nobodys(name)) continue;
        if (!ct_layer_type_reads(NULL, name)) fail_msg("params of no layer type names %s", name);
    }
}

static void every_type(void **state)
{
    (void)state;
    for (const ct_layer_ops *const *ops = ct_layer_table; *ops != NULL; ops++) {
        bool found = is_left_out((*ops)->type);

        for (int i = 0; i < n_row; i++) found = found || (strcmp(rows[i].type, (*ops)->type) == 0);
        if (!found) fail_msg("no row for %s", (*ops)->type);
        check_params(*ops);
    }
}

static void gradients(void **state)
{
    int n_bad = 0;

    (void)state;
    for (int i = 0; i < n_row; i++) {
        const row *c = &rows[i];
        bool centers = strcmp(c->type, "CenterLoss") == 0; /* they move by a rule of their own */
        const char *error;
        test_layer *t;

        if (c->roundings == 0) continue;
        t = make(c);
        error = test_layer_gradient_error(
            t, &(test_gradient){ .max_kink = c->kinks,
                                 .roundings = c->roundings,
                                 .skip_weight = centers ? 1 : 0,
                                 .max_element = (size_of(t) > 2000) ? 5 : 60 });
        if (error != NULL)
            print_error("%s { %s } on %s: %s\n", c->type, (c->text != NULL) ? c->text : "",
                        ct_shape_str(&c->bottom[0]).text, error);
        n_bad += error != NULL;
        test_layer_destroy(t);
    }
    assert_int_equal(n_bad, 0);
}

static void run(test_layer *t, int n_thread)
{
    omp_set_num_threads(n_thread);
    for (int k = 0; k < t->layer.n_top; k++) {
        if (!t->layer.ops->is_loss) test_random(t->top_diff[k], t->top_count[k], 3, -1, 1);
    }
    assert_int_equal(test_layer_forward(t), CT_OK);
    if (t->layer.ops->backward != NULL) assert_int_equal(test_layer_backward(t), CT_OK);
}

/* The same bits; or, where sums may be cut differently, within the roundings of the row. */
static void same(const row *c, const float *a, const float *b, int64_t n, const char *what)
{
    double most = 1;

    for (int64_t i = 0; c->differs && (i < n); i++)
        if ((double)b[i] > most) most = (double)b[i];
    for (int64_t i = 0; i < n; i++) {
        double off = (double)a[i] - (double)b[i],
               allowed = c->differs ? c->roundings * most * 0x1p-24 : 0;

        if ((memcmp(&a[i], &b[i], sizeof(float)) != 0) && !((off <= allowed) && (-off <= allowed)))
            fail_msg("%s { %s } %s[%lld]: %.9g, not %.9g", c->type,
                     (c->text != NULL) ? c->text : "", what, (long long)i, (double)a[i],
                     (double)b[i]);
    }
}

static void threads(void **state)
{
    int before = omp_get_max_threads();

    (void)state;
    for (int i = 0; i < n_row; i++) {
        const row *c = &rows[i];
        test_layer *a = make(c), *b = make(c);

        run(a, 3);
        run(b, 1);
        for (int k = 0; k < a->layer.n_top; k++)
            same(c, a->top[k], b->top[k], a->top_count[k], "top");
        for (int k = 0; (a->layer.ops->backward != NULL) && (k < a->layer.n_bottom); k++) {
            if (a->input_diff[k] != NULL)
                same(c, a->input_diff[k], b->input_diff[k], a->input_count[k], "bottom diff");
        }
        for (int k = 0; (a->layer.ops->backward != NULL) && (k < a->layer.n_weight); k++) {
            if (a->weight_diff[k] != NULL)
                same(c, a->weight_diff[k], b->weight_diff[k], a->weight_count[k], "weight diff");
        }
        test_layer_destroy(a);
        test_layer_destroy(b);
    }
    omp_set_num_threads(before);
}

/* ---- shaped again */

/* Bottoms that have a sample for each of the first one's, on the first axis; of regions and indices
 * there may be any number. */
static bool has_samples(const row *c, int i)
{
    char v = c->values[i];

    if ((strchr(c->values, 'i') != NULL) || (strcmp(c->type, "BatchReindex") == 0)) return i == 1;
    return (v != 'b') && (v != 't') && (c->bottom[i].ndim > 0) &&
           (c->bottom[i].dim[0] == c->bottom[0].dim[0]);
}

static row of_size(const row *c, int64_t n)
{
    row r = *c;

    for (int i = 0; c->values[i] != '\0'; i++) {
        if (has_samples(c, i)) r.bottom[i].dim[0] = n;
    }
    return r;
}

static ct_status try(const row *c, test_layer **t_p)
{
    test_layer_spec spec = { .type = c->type,
                             .text = c->text,
                             .n_top = (c->n_top < 0) ? 0 : c->n_top };

    spec.n_bottom = (int)strlen(c->values);
    for (int i = 0; i < spec.n_bottom; i++) spec.bottom[i] = c->bottom[i];
    return test_layer_create(&spec, t_p);
}

static void compare_again(const row *c, test_layer *a, test_layer *b)
{
    const ct_layer *l = &a->layer;

    for (int k = 0; k < l->n_top; k++) {
        assert_true(ct_shape_equal(&a->top_shape[k], &b->top_shape[k]));
        test_same(b->top[k], a->top[k], a->top_count[k], c->type);
    }
    for (int k = 0; k < l->n_weight; k++)
        test_same(b->weight_after[k], a->weight_after[k], a->weight_count[k], c->type);
    for (int k = 0; (l->ops->backward != NULL) && (k < l->n_bottom); k++) {
        if (a->input_diff[k] != NULL)
            test_same(b->input_diff[k], a->input_diff[k], a->input_count[k], c->type);
    }
    for (int k = 0; (l->ops->backward != NULL) && (k < l->n_weight); k++) {
        if (a->weight_diff[k] != NULL)
            test_same(b->weight_diff[k], a->weight_diff[k], a->weight_count[k], c->type);
    }
}

/* The row with n samples: by a layer made for them, and by one made for more that ran more. */
static void again(const row *c, int64_t n)
{
    row less = of_size(c, n), more = of_size(c, 2 * c->bottom[0].dim[0] + 1);
    test_layer *a, *b = make(&more);

    run(b, 1);
    if (try(&less, &a) != CT_OK) fail_msg("%s of %lld samples", c->type, (long long)n);
    if (test_layer_shape(b, less.bottom) != CT_OK) fail_msg("%s, shaped again", c->type);
    fill(a, &less);
    for (int i = 0; i < a->layer.n_bottom; i++)
        memcpy(b->input[i], a->input[i], (size_t)a->input_count[i] * sizeof(float));
    for (int i = 0; i < a->layer.n_weight; i++) /* statistics have moved */
        memcpy(b->weight[i], a->weight[i], (size_t)a->weight_count[i] * sizeof(float));
    run(a, 1);
    run(b, 1);
    compare_again(c, a, b);
    test_layer_destroy(a);
    test_layer_destroy(b);
}

static void shaped_again(void **state)
{
    (void)state;
    for (int i = 0; i < n_row; i++) {
        const row *c = &rows[i];
        bool state_of_batches = (strcmp(c->type, "LSTM") == 0) || (strcmp(c->type, "RNN") == 0);

        if ((c->values[0] == '\0') || (c->bottom[0].dim[0] == 1) || state_of_batches) continue;
        again(c, c->bottom[0].dim[0]);
        again(c, 1);
        if (strchr(c->values, 't') == NULL) again(c, 0); /* true boxes are of samples */
    }
}

/* ---- run twice: recompute BLOCKS runs forward again before backward, unless a layer keeps
 * statistics or other state */

static bool changes_more(const test_layer *t)
{
    for (int k = 0; k < t->layer.n_weight; k++) {
        if (t->layer.weight[k].kind == CT_WEIGHT_STATISTIC) return true;
    }
    for (int s = 0; s < CT_MAX_BUFFER; s++) {
        const ct_buffer *b = &t->instance.buffer[s];

        if ((b->bytes > 0) && (b->keep == CT_LIFETIME_ALWAYS)) return true;
    }
    return t->layer.ops->is_data;
}

static void twice(void **state)
{
    int n_run = 0;

    (void)state;
    for (int i = 0; i < n_row; i++) {
        const row *c = &rows[i];
        test_layer *a = make(c), *b = make(c);

        if (!changes_more(a) && (a->layer.n_bottom > 0)) {
            run(a, 1);
            omp_set_num_threads(1);
            assert_int_equal(test_layer_forward(b), CT_OK);
            run(b, 1);
            compare_again(c, a, b);
            n_run++;
        }
        test_layer_destroy(a);
        test_layer_destroy(b);
    }
    assert_true(n_run > n_row / 2);
}

/* ---- parts: what a type says that it may be cut into, its setup takes; nothing else is taken */

enum { N_PART = 2, SMALL = 5000 };

static test_layer_spec spec_of(const row *c, const Ct__LayerPart *part)
{
    test_layer_spec spec = {
        .type = c->type, .text = c->text, .n_top = (c->n_top < 0) ? 0 : c->n_top, .part = part
    };

    spec.n_bottom = (int)strlen(c->values);
    for (int i = 0; i < spec.n_bottom; i++) spec.bottom[i] = c->bottom[i];
    return spec;
}

static bool is_small(const row *c)
{
    int64_t n = 0;

    for (int i = 0; c->values[i] != '\0'; i++) n += ct_shape_count(&c->bottom[i], 0, -1);
    return n <= SMALL;
}

/* On some samples, or the same as others: the whole layer, whichever of how many. */
static void whole_parts(void **state)
{
    static const Ct__ParallelLayerParameter__Split split[] = {
        CT__PARALLEL_LAYER_PARAMETER__SPLIT__BATCH, CT__PARALLEL_LAYER_PARAMETER__SPLIT__REPLICATE
    };

    (void)state;
    for (int i = 0; i < 2 * n_row; i++) {
        const row *c = &rows[i / 2];
        Ct__LayerPart part = CT__LAYER_PART__INIT;
        test_layer_spec spec = spec_of(c, &part);
        test_layer *a, *b;

        if (!is_small(c)) continue;
        part.split = split[i % 2];
        part.index = 1 + i % 7;
        part.count = 9;
        a = make(c);
        b = test_layer_make(&spec);
        fill(b, c);
        for (int k = 0; k < b->layer.n_weight; k++)
            assert_int_equal(b->layer.weight[k].cut.n_range, 0);
        run(a, 1);
        run(b, 1);
        compare_again(c, a, b);
        test_layer_destroy(b);
        test_layer_destroy(a);
    }
}

/* What part i has of array v, cut along an axis that has n rows of the whole's `inner` numbers. */
static void take(int64_t outer, int64_t n, int64_t inner, int i, const float *v, float *part)
{
    ct_range r = ct_range_of(n, i, N_PART);

    for (int64_t o = 0; o < outer; o++)
        memcpy(part + o * r.count * inner, v + (o * n + r.first) * inner,
               (size_t)(r.count * inner) * sizeof(float));
}

/* v is what part i has of `whole`, which is cut along an axis as the bottom's n rows are. */
static void same_part(const row *c, int axis, int64_t n, int i, const ct_shape *shape,
                      const float *whole, const float *v, int64_t count, const char *what)
{
    int64_t outer = ct_shape_count(shape, 0, axis), all = ct_shape_count(shape, 0, -1);
    float *want = malloc((size_t)(count + 1) * sizeof(float));
    ct_range r = ct_range_of(n, i, N_PART);

    assert_non_null(want);
    assert_int_equal(all % (outer * n), 0);
    assert_int_equal(count, all / n * r.count);
    take(outer, n, all / outer / n, i, whole, want);
    same(c, v, want, count, what);
    free(want);
}

/* The layer of two parts of all bottoms along an axis, each against its side of the whole. */
static void run_parts(const row *c, Ct__ParallelLayerParameter__Split split, int axis)
{
    test_layer *a = make(c);
    int64_t n = c->bottom[0].dim[axis];

    run(a, 1);
    for (int i = 0; i < N_PART; i++) {
        Ct__LayerPart part = CT__LAYER_PART__INIT;
        test_layer_spec spec = spec_of(c, &part);
        test_layer *b;

        part.split = split;
        part.index = i;
        part.count = N_PART;
        part.axis = axis;
        part.n_piece = 1;
        part.piece = &n;
        for (int k = 0; k < spec.n_bottom; k++)
            spec.bottom[k].dim[axis] = ct_range_of(n, i, N_PART).count;
        b = test_layer_make(&spec);
        for (int k = 0; k < spec.n_bottom; k++)
            take(ct_shape_count(&c->bottom[k], 0, axis), n,
                 ct_shape_count(&c->bottom[k], axis + 1, -1), i, a->input[k], b->input[k]);
        run(b, 1);
        for (int k = 0; k < a->layer.n_top; k++) {
            same_part(c, axis, n, i, &a->top_shape[k], a->top[k], b->top[k], b->top_count[k],
                      "top of a part");
        }
        test_layer_destroy(b);
    }
    test_layer_destroy(a);
}

/* Products and what has groups, heads or classes have tests of their own (test_layer_part). */
static int run_ways(const row *c, unsigned may)
{
    int last = c->bottom[0].ndim - 1, n = 0;
    bool halves = (strcmp(c->type, "SwiGLU") == 0) && (c->values[1] == '\0'); /* as pieces */

    if (((may & CT_SPLIT_CHANNEL) != 0) && (last > 0) && (c->bottom[0].dim[1] >= N_PART))
        run_parts(c, CT__PARALLEL_LAYER_PARAMETER__SPLIT__OUTPUT, 1), n++;
    if (((may & CT_SPLIT_LAST) != 0) && !halves && (last > 1) && (c->bottom[0].dim[last] >= N_PART))
        run_parts(c, CT__PARALLEL_LAYER_PARAMETER__SPLIT__OUTPUT, last), n++;
    if (((may & CT_SPLIT_TOKEN) != 0) && (last > 1) && (c->bottom[0].dim[1] >= N_PART))
        run_parts(c, CT__PARALLEL_LAYER_PARAMETER__SPLIT__SEQUENCE, 1), n++;
    return n;
}

static void parts(void **state)
{
    int n_run = 0;

    (void)state;
    for (int i = 0; i < n_row; i++) {
        const row *c = &rows[i];
        const ct_layer_ops *ops = ct_layer_find(c->type);
        unsigned may = ops->splits;
        test_layer *a;

        if (!is_small(c)) continue;
        a = make(c);
        if (ops->splits_of != NULL) may = ops->splits_of(a->layer.param);
        test_layer_destroy(a);
        for (int k = CT__PARALLEL_LAYER_PARAMETER__SPLIT__OUTPUT;
             k < CT__PARALLEL_LAYER_PARAMETER__SPLIT__REPLICATE; k++) {
            Ct__LayerPart part = CT__LAYER_PART__INIT;
            test_layer_spec spec = spec_of(c, &part);

            part.split = (Ct__ParallelLayerParameter__Split)k;
            part.count = N_PART;
            if (!ct_layer_may_split(may, part.split))
                test_layer_refused(&spec, CT_ERR_CONFIG, "it cannot be a part of a layer: split");
        }
        n_run += run_ways(c, may);
    }
    assert_true(n_run > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type),  cmocka_unit_test(every_message), cmocka_unit_test(gradients),
        cmocka_unit_test(threads),     cmocka_unit_test(shaped_again),  cmocka_unit_test(twice),
        cmocka_unit_test(whole_parts), cmocka_unit_test(parts),
    };

    return cmocka_run_group_tests(tests, make_rows, NULL);
}
