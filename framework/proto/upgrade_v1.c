/* V1 layers name their type by an enum and hold learning rates in lists; the rest of their fields
 * is what a layer has today, and moves over by name. */
#include <stdlib.h>
#include <string.h>

#include "framework/proto/message.h"
#include "framework/proto/upgrade_impl.h"

#define V1(_name) CT__V1_LAYER_PARAMETER__LAYER_TYPE__##_name

static const struct {
    Ct__V1LayerParameter__LayerType v1;
    const char *type;
} type_name[] = {
    { V1(ABSVAL), "AbsVal" },
    { V1(ACCURACY), "Accuracy" },
    { V1(ARGMAX), "ArgMax" },
    { V1(BNLL), "BNLL" },
    { V1(CONCAT), "Concat" },
    { V1(CONTRASTIVE_LOSS), "ContrastiveLoss" },
    { V1(CONVOLUTION), "Convolution" },
    { V1(DATA), "Data" },
    { V1(DECONVOLUTION), "Deconvolution" },
    { V1(DROPOUT), "Dropout" },
    { V1(DUMMY_DATA), "DummyData" },
    { V1(ELTWISE), "Eltwise" },
    { V1(EUCLIDEAN_LOSS), "EuclideanLoss" },
    { V1(EXP), "Exp" },
    { V1(FLATTEN), "Flatten" },
    { V1(HDF5_DATA), "HDF5Data" },
    { V1(HDF5_OUTPUT), "HDF5Output" },
    { V1(HINGE_LOSS), "HingeLoss" },
    { V1(IM2COL), "Im2col" },
    { V1(IMAGE_DATA), "ImageData" },
    { V1(INFOGAIN_LOSS), "InfogainLoss" },
    { V1(INNER_PRODUCT), "InnerProduct" },
    { V1(LRN), "LRN" },
    { V1(MEMORY_DATA), "MemoryData" },
    { V1(MULTINOMIAL_LOGISTIC_LOSS), "MultinomialLogisticLoss" },
    { V1(MVN), "MVN" },
    { V1(POOLING), "Pooling" },
    { V1(POWER), "Power" },
    { V1(RELU), "ReLU" },
    { V1(SIGMOID), "Sigmoid" },
    { V1(SIGMOID_CROSS_ENTROPY_LOSS), "SigmoidCrossEntropyLoss" },
    { V1(SILENCE), "Silence" },
    { V1(SLICE), "Slice" },
    { V1(SOFTMAX), "Softmax" },
    { V1(SOFTMAX_LOSS), "SoftmaxWithLoss" },
    { V1(SPLIT), "Split" },
    { V1(TANH), "TanH" },
    { V1(THRESHOLD), "Threshold" },
    { V1(WINDOW_DATA), "WindowData" },
};

static const char *layer_name(const Ct__V1LayerParameter *old)
{
    return (old->name != NULL) ? old->name : "";
}

static ct_status upgrade_type(const ct_upgrade *u, const Ct__V1LayerParameter *old,
                              Ct__LayerParameter *layer)
{
    if (!old->has_type || (old->layer != NULL)) return CT_OK; /* the net will miss it, or V0's */
    for (size_t i = 0; i < sizeof(type_name) / sizeof(type_name[0]); i++) {
        if (type_name[i].v1 != old->type) continue;
        layer->type = strdup(type_name[i].type);
        return (layer->type != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a layer");
    }
    return ct_upgrade_fail(u, old, "in layer \"%s\": type %d stands for no layer", layer_name(old),
                           (int)old->type);
}

/* Fields of the same name and kind; `param` and `type` changed their kind. */
static ct_status move_fields(Ct__V1LayerParameter *old, Ct__LayerParameter *layer)
{
    const ProtobufCMessageDescriptor *type = old->base.descriptor;

    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *from = &type->fields[i];
        const ProtobufCFieldDescriptor *to =
            ct_field_find(layer->base.descriptor, from->name, strlen(from->name));

        if ((to == NULL) || (to->type != from->type) || (to->label != from->label) ||
            (to->descriptor != from->descriptor)) {
            continue;
        }
        CT_TRY(ct_field_move(&layer->base, to, &old->base, from));
    }
    return CT_OK;
}

/* param (names), blob_share_mode, blobs_lr and weight_decay: one ParamSpec per parameter blob. */
static ct_status upgrade_params(const ct_upgrade *u, Ct__V1LayerParameter *old,
                                Ct__LayerParameter *layer)
{
    size_t count[] = { old->n_param, old->n_blob_share_mode, old->n_blobs_lr, old->n_weight_decay };
    size_t n = 0;

    for (size_t i = 0; i < sizeof(count) / sizeof(count[0]); i++) {
        if (count[i] > n) n = count[i];
    }
    for (size_t i = 0; i < n; i++) {
        Ct__ParamSpec *spec;

        CT_TRY(ct_upgrade_add(u, &layer->base, "param", old, &spec));
        if ((i < old->n_param) && (old->param[i][0] != '\0')) {
            spec->name = old->param[i];
            old->param[i] = NULL;
        }
        if (i < old->n_blob_share_mode) {
            spec->has_share_mode = true;
            spec->share_mode =
                (old->blob_share_mode[i] == CT__V1_LAYER_PARAMETER__DIM_CHECK_MODE__PERMISSIVE)
                    ? CT__PARAM_SPEC__DIM_CHECK_MODE__PERMISSIVE
                    : CT__PARAM_SPEC__DIM_CHECK_MODE__STRICT;
        }
        if (i < old->n_blobs_lr) {
            spec->has_lr_mult = true;
            spec->lr_mult = old->blobs_lr[i];
        }
        if (i < old->n_weight_decay) {
            spec->has_decay_mult = true;
            spec->decay_mult = old->weight_decay[i];
        }
    }
    return CT_OK;
}

static ct_status upgrade_layer(const ct_upgrade *u, Ct__V1LayerParameter *old)
{
    Ct__LayerParameter *layer;

    CT_TRY(ct_upgrade_add(u, &u->net->base, "layer", old, &layer));
    CT_TRY(upgrade_type(u, old, layer));
    CT_TRY(move_fields(old, layer));
    if (old->layer != NULL) CT_TRY(ct_upgrade_v0(u, old, layer));
    return upgrade_params(u, old, layer);
}

ct_status ct_upgrade_v1(const ct_upgrade *u)
{
    Ct__NetParameter *net = u->net;

    if (net->n_layers == 0) return CT_OK;
    if (net->n_layer > 0) {
        return ct_upgrade_fail(u, net->layers[0],
                               "the net has both \"layer\" and \"layers\" (old format: type: "
                               "CONVOLUTION); bring all of them into the form of \"layer\"");
    }
    CT_TRY(ct_upgrade_padding(u));
    for (size_t i = 0; i < net->n_layers; i++) CT_TRY(upgrade_layer(u, net->layers[i]));
    for (size_t i = 0; i < net->n_layers; i++) {
        ct_source_map_forget(u->map, &net->layers[i]->base);
    }
    CT_INFO("%s: %zu layers brought up from the old format (layers { … })", u->file, net->n_layers);
    return ct_field_clear(&net->base, ct_field_find(net->base.descriptor, "layers", 6));
}
