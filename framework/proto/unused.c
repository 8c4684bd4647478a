/* Parameters that a layer's type does not read: Caffe passes over them in silence, and whoever
 * wrote `pooling_param` into a convolution never learns of it. */
#include <string.h>

#include "framework/base/log.h"
#include "framework/proto/message.h"
#include "framework/proto/upgrade.h"

/* Who reads which. Types that read none stand at the end, so that unknown ones are told apart. */
static const struct {
    const char *field, *types; /* types with a space on both sides */
} reader[] = {
    { "transform_param",
      " AnnotatedData Data HDF5Data ImageData MemoryData VideoData WindowData " },
    { "loss_param",
      " FocalLoss InfogainLoss MultiBoxLoss SigmoidCrossEntropyLoss SoftmaxWithLoss " },
    { "accuracy_param", " Accuracy " },
    { "argmax_param", " ArgMax " },
    { "concat_param", " Concat " },
    { "contrastive_loss_param", " ContrastiveLoss " },
    { "convolution_param", " Convolution Deconvolution DepthwiseConvolution Im2col " },
    { "data_param", " AnnotatedData Data " },
    { "dropout_param", " Dropout " },
    { "dummy_data_param", " DummyData " },
    { "eltwise_param", " Eltwise " },
    { "exp_param", " Exp " },
    { "hdf5_data_param", " HDF5Data " },
    { "hdf5_output_param", " HDF5Output " },
    { "hinge_loss_param", " HingeLoss " },
    { "image_data_param", " ImageData " },
    { "infogain_loss_param", " InfogainLoss " },
    { "inner_product_param", " InnerProduct " },
    { "lrn_param", " LRN " },
    { "memory_data_param", " MemoryData " },
    { "mvn_param", " MVN " },
    { "pooling_param", " Pooling " },
    { "power_param", " Power " },
    { "relu_param", " ReLU " },
    { "sigmoid_param", " Sigmoid " },
    { "softmax_param", " FocalLoss Softmax SoftmaxWithLoss " },
    { "slice_param", " Slice " },
    { "tanh_param", " TanH " },
    { "threshold_param", " Threshold " },
    { "window_data_param", " WindowData " },
    { "prelu_param", " PReLU " },
    { "spp_param", " SPP " },
    { "reshape_param", " Reshape " },
    { "log_param", " Log " },
    { "flatten_param", " Flatten " },
    { "reduction_param", " Reduction " },
    { "embed_param", " Embed " },
    { "tile_param", " Tile " },
    { "batch_norm_param", " BatchNorm " },
    { "elu_param", " ELU " },
    { "bias_param", " Bias " },
    { "scale_param", " Scale " },
    { "input_param", " Input " },
    { "crop_param", " Crop " },
    { "parameter_param", " Parameter " },
    { "recurrent_param", " LSTM RNN " },
    { "swish_param", " Swish " },
    { "clip_param", " Clip " },
    { "norm_param", " Normalize " },
    { "relu6_param", " ReLU6 " },
    { "smooth_l1_loss_param", " SmoothL1Loss " },
    { "multibox_loss_param", " MultiBoxLoss " },
    { "permute_param", " Permute " },
    { "prior_box_param", " PriorBox " },
    { "detection_output_param", " DetectionOutput " },
    { "roi_pooling_param", " ROIPooling " },
    { "psroi_pooling_param", " PSROIPooling " },
    { "upsample_param", " Upsample " },
    { "shuffle_channel_param", " ShuffleChannel " },
    { "bn_param", " BN SyncBN " },
    { "interp_param", " Interp " },
    { "text_data_param", " TextData " },
    { "center_loss_param", " CenterLoss " },
    { "focal_loss_param", " FocalLoss " },
    { "gelu_param", " GELU " },
    { "layer_norm_param", " LayerNorm " },
    { "", " AbsVal Axpy BatchReindex BNLL Cast EuclideanLoss Filter LSTMUnit Mish "
          "MultinomialLogisticLoss "
          "Reorder "
          "Silence Split " },
};
enum { N_READER = sizeof(reader) / sizeof(reader[0]) };

const char *ct_param_readers(const char *field)
{
    for (int i = 0; i < N_READER; i++) {
        if (strcmp(reader[i].field, field) == 0) return reader[i].types;
    }
    return NULL;
}

static bool stands_in(const char *types, const char *type)
{
    size_t n = strlen(type);

    if ((n == 0) || (strchr(type, ' ') != NULL)) return false;
    for (const char *at = types; (at = strstr(at, type)) != NULL; at++) {
        if ((at[-1] == ' ') && (at[n] == ' ')) return true;
    }
    return false;
}

bool ct_type_is_listed(const char *type)
{
    for (int i = 0; i < N_READER; i++) {
        if (stands_in(reader[i].types, type)) return true;
    }
    return false;
}

static void look_at(const Ct__LayerParameter *layer, const char *file, const ct_source_map *map)
{
    const ProtobufCMessage *m = &layer->base;

    for (int i = 0; i < N_READER; i++) {
        const ProtobufCFieldDescriptor *f =
            ct_field_find(m->descriptor, reader[i].field, strlen(reader[i].field));
        ct_place place;

        if ((f == NULL) || (ct_field_count(m, f) == 0) || stands_in(reader[i].types, layer->type))
            continue;
        place = ct_source_map_find(map, ct_field_message((ProtobufCMessage *)m, f, 0));
        CT_WARN("%s:%d: in layer \"%s\" (%s): %s means nothing to this type of layer, and has no "
                "effect",
                file, place.line, (layer->name != NULL) ? layer->name : "", layer->type, f->name);
    }
}

void ct_net_warn_unused(const Ct__NetParameter *net, const char *file, const ct_source_map *map)
{
    if (net->debug_info) CT_WARN("%s: debug_info is not supported, nothing more is printed", file);
    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *layer = net->layer[i];

        if ((layer->type != NULL) && ct_type_is_listed(layer->type)) look_at(layer, file, map);
    }
}
