/* V1 layers name their type by an enum and hold learning rates in lists; the rest of their fields
 * is what a layer has today, and moves over by name. */
#include <stdlib.h>
#include <string.h>

#include "framework/proto/message.h"
#include "framework/proto/upgrade.h"

/* Folds V0's padding layers into the layers that read them. */
static ct_status upgrade_padding(const ct_upgrade *u);
/* What a V0 layer says in `layers { layer { } }`: name, type, blobs and parameters to `layer`, and
 *  rates to where V1 has them. */
static ct_status upgrade_v0(const ct_upgrade *u, Ct__V1LayerParameter *old,
                            Ct__LayerParameter *layer);

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
    if (old->layer != NULL) CT_TRY(upgrade_v0(u, old, layer));
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
    CT_TRY(upgrade_padding(u));
    for (size_t i = 0; i < net->n_layers; i++) CT_TRY(upgrade_layer(u, net->layers[i]));
    for (size_t i = 0; i < net->n_layers; i++) {
        ct_source_map_forget(u->map, &net->layers[i]->base);
    }
    CT_INFO("%s: %zu layers brought up from the old format (layers { … })", u->file, net->n_layers);
    return ct_field_clear(&net->base, ct_field_find(net->base.descriptor, "layers", 6));
}

/* ---- V0 layers, `layers { layer { name type … } bottom top }`: one message held the fields of
 * every type, and a layer of its own padded for a convolution. A field goes where its row says. */

static const char *const v0_type_name[][2] = {
    { "accuracy", "Accuracy" },
    { "bnll", "BNLL" },
    { "concat", "Concat" },
    { "conv", "Convolution" },
    { "data", "Data" },
    { "dropout", "Dropout" },
    { "euclidean_loss", "EuclideanLoss" },
    { "flatten", "Flatten" },
    { "hdf5_data", "HDF5Data" },
    { "hdf5_output", "HDF5Output" },
    { "im2col", "Im2col" },
    { "images", "ImageData" },
    { "infogain_loss", "InfogainLoss" },
    { "innerproduct", "InnerProduct" },
    { "lrn", "LRN" },
    { "multinomial_logistic_loss", "MultinomialLogisticLoss" },
    { "pool", "Pooling" },
    { "relu", "ReLU" },
    { "sigmoid", "Sigmoid" },
    { "softmax", "Softmax" },
    { "softmax_loss", "SoftmaxWithLoss" },
    { "split", "Split" },
    { "tanh", "TanH" },
    { "window_data", "WindowData" },
};

/* to NULL: the parameter message as a whole; type NULL: of any type. */
static const struct {
    const char *field, *type, *param, *to;
} row[] = {
    { "num_output", "conv", "convolution_param", "num_output" },
    { "num_output", "innerproduct", "inner_product_param", "num_output" },
    { "biasterm", "conv", "convolution_param", "bias_term" },
    { "biasterm", "innerproduct", "inner_product_param", "bias_term" },
    { "weight_filler", "conv", "convolution_param", "weight_filler" },
    { "weight_filler", "innerproduct", "inner_product_param", "weight_filler" },
    { "bias_filler", "conv", "convolution_param", "bias_filler" },
    { "bias_filler", "innerproduct", "inner_product_param", "bias_filler" },
    { "pad", "conv", "convolution_param", "pad" },
    { "pad", "pool", "pooling_param", "pad" },
    { "kernelsize", "conv", "convolution_param", "kernel_size" },
    { "kernelsize", "pool", "pooling_param", "kernel_size" },
    { "group", "conv", "convolution_param", "group" },
    { "stride", "conv", "convolution_param", "stride" },
    { "stride", "pool", "pooling_param", "stride" },
    { "pool", "pool", "pooling_param", "pool" },
    { "dropout_ratio", "dropout", "dropout_param", "dropout_ratio" },
    { "local_size", "lrn", "lrn_param", "local_size" },
    { "alpha", "lrn", "lrn_param", "alpha" },
    { "beta", "lrn", "lrn_param", "beta" },
    { "k", "lrn", "lrn_param", "k" },
    { "source", "data", "data_param", "source" },
    { "source", "hdf5_data", "hdf5_data_param", "source" },
    { "source", "images", "image_data_param", "source" },
    { "source", "window_data", "window_data_param", "source" },
    { "source", "infogain_loss", "infogain_loss_param", "source" },
    { "scale", NULL, "transform_param", "scale" },
    { "meanfile", NULL, "transform_param", "mean_file" },
    { "cropsize", NULL, "transform_param", "crop_size" },
    { "mirror", NULL, "transform_param", "mirror" },
    { "batchsize", "data", "data_param", "batch_size" },
    { "batchsize", "hdf5_data", "hdf5_data_param", "batch_size" },
    { "batchsize", "images", "image_data_param", "batch_size" },
    { "batchsize", "window_data", "window_data_param", "batch_size" },
    { "rand_skip", "data", "data_param", "rand_skip" },
    { "rand_skip", "images", "image_data_param", "rand_skip" },
    { "shuffle_images", "images", "image_data_param", "shuffle" },
    { "new_height", "images", "image_data_param", "new_height" },
    { "new_width", "images", "image_data_param", "new_width" },
    { "concat_dim", "concat", "concat_param", "concat_dim" },
    { "det_fg_threshold", "window_data", "window_data_param", "fg_threshold" },
    { "det_bg_threshold", "window_data", "window_data_param", "bg_threshold" },
    { "det_fg_fraction", "window_data", "window_data_param", "fg_fraction" },
    { "det_context_pad", "window_data", "window_data_param", "context_pad" },
    { "det_crop_mode", "window_data", "window_data_param", "crop_mode" },
    { "hdf5_output_param", "hdf5_output", "hdf5_output_param", NULL },
};

enum {
    N_ROW = sizeof(row) / sizeof(row[0]),
    N_TYPE = sizeof(v0_type_name) / sizeof(v0_type_name[0])
};

static const char *text(const char *s)
{
    return (s != NULL) ? s : "";
}

static const ProtobufCFieldDescriptor *find(const ProtobufCMessage *m, const char *name)
{
    return ct_field_find(m->descriptor, name, strlen(name));
}

static ct_status upgrade_v0_type(const ct_upgrade *u, const Ct__V0LayerParameter *v0,
                                 Ct__LayerParameter *layer)
{
    const char *known[N_TYPE], *near;

    if (v0->type == NULL) return CT_OK; /* the net will miss it */
    for (size_t i = 0; i < N_TYPE; i++) {
        known[i] = v0_type_name[i][0];
        if (strcmp(known[i], v0->type) != 0) continue;
        layer->type = strdup(v0_type_name[i][1]);
        return (layer->type != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a layer");
    }
    near = ct_text_nearest(v0->type, known, N_TYPE);
    return ct_upgrade_fail(u, v0,
                           "in layer \"%s\": \"%s\" is no layer type of the oldest format%s%s%s",
                           text(v0->name), v0->type, (near != NULL) ? "; did you mean \"" : "",
                           text(near), (near != NULL) ? "\"?" : "");
}

/* The value of `from` into a field that may be a list or an enum of another message: numbers and
 * enum values are the same. */
static ct_status move_value(ProtobufCMessage *to, const ProtobufCFieldDescriptor *to_field,
                            ProtobufCMessage *from, const ProtobufCFieldDescriptor *from_field)
{
    if (to_field->label == from_field->label) return ct_field_move(to, to_field, from, from_field);
    return ct_field_put(to, to_field, ct_field_at(from, from_field, 0), true);
}

static ct_status move_field(const ct_upgrade *u, Ct__V0LayerParameter *v0,
                            const ProtobufCFieldDescriptor *field, Ct__LayerParameter *layer)
{
    for (size_t i = 0; i < N_ROW; i++) {
        const ProtobufCFieldDescriptor *param;
        ProtobufCMessage *m = NULL;

        if (strcmp(row[i].field, field->name) != 0) continue;
        if ((row[i].type != NULL) && (strcmp(row[i].type, text(v0->type)) != 0)) continue;
        param = find(&layer->base, row[i].param);
        if (row[i].to == NULL) return move_value(&layer->base, param, &v0->base, field);
        if (ct_field_count(&layer->base, param) == 0) {
            CT_TRY(ct_upgrade_add(u, &layer->base, row[i].param, v0, &m));
        }
        m = ct_field_message(&layer->base, param, 0);
        return move_value(m, find(m, row[i].to), &v0->base, field);
    }
    CT_WARN("%s: in layer \"%s\": \"%s\" means nothing to a layer of type \"%s\"; left out",
            u->file, text(v0->name), field->name, text(v0->type));
    return CT_OK;
}

/* A field that has the same name in both, where it is set. */
static ct_status move_own(ProtobufCMessage *to, ProtobufCMessage *from, const char *name)
{
    if (ct_field_count(from, find(from, name)) == 0) return CT_OK;
    return ct_field_move(to, find(to, name), from, find(from, name));
}

static ct_status upgrade_v0(const ct_upgrade *u, Ct__V1LayerParameter *old,
                            Ct__LayerParameter *layer)
{
    static const char *const own[] = { "name", "type", "blobs", "blobs_lr", "weight_decay" };
    Ct__V0LayerParameter *v0 = old->layer;

    CT_TRY(upgrade_v0_type(u, v0, layer));
    for (unsigned i = 0; i < v0->base.descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &v0->base.descriptor->fields[i];
        bool is_own = false;

        for (size_t k = 0; k < sizeof(own) / sizeof(own[0]); k++) {
            is_own |= (strcmp(own[k], f->name) == 0);
        }
        if (!is_own && (ct_field_count(&v0->base, f) > 0)) CT_TRY(move_field(u, v0, f, layer));
    }
    CT_TRY(move_own(&layer->base, &v0->base, "name"));
    CT_TRY(move_own(&layer->base, &v0->base, "blobs"));
    /* where V1 has them, which makes them into ParamSpecs */
    CT_TRY(move_own(&old->base, &v0->base, "blobs_lr"));
    return move_own(&old->base, &v0->base, "weight_decay");
}

/* ---- layers that only pad, for the convolution or pooling that reads them */

static bool is_padding(const Ct__V1LayerParameter *l)
{
    return (l->layer != NULL) && (strcmp(text(l->layer->type), "padding") == 0);
}

/* The last layer before layer i that makes blob `name`; -1: none. */
static int64_t maker_of(const Ct__NetParameter *net, size_t i, const char *name)
{
    while (i-- > 0) {
        for (size_t t = 0; t < net->layers[i]->n_top; t++) {
            if (strcmp(net->layers[i]->top[t], name) == 0) return (int64_t)i;
        }
    }
    return -1;
}

static ct_status take_padding(const ct_upgrade *u, Ct__V1LayerParameter *reader,
                              const Ct__V1LayerParameter *padding)
{
    Ct__V0LayerParameter *v0 = reader->layer;
    const char *type = (v0 != NULL) ? text(v0->type) : "";
    char *blob;

    if ((strcmp(type, "conv") != 0) && (strcmp(type, "pool") != 0)) {
        return ct_upgrade_fail(u, reader,
                               "in layer \"%s\": it reads the padding layer \"%s\"; only conv and "
                               "pool layers may",
                               (v0 != NULL) ? text(v0->name) : text(reader->name),
                               text(padding->layer->name));
    }
    if ((reader->n_bottom != 1) || (padding->n_bottom != 1) || (padding->n_top != 1)) {
        return ct_upgrade_fail(u, padding,
                               "in layer \"%s\": a padding layer has one bottom and one top, and "
                               "its reader \"%s\" has no other bottom",
                               text(padding->layer->name), text(v0->name));
    }
    blob = strdup(padding->bottom[0]);
    if (blob == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a layer");
    free(reader->bottom[0]);
    reader->bottom[0] = blob;
    v0->has_pad = true;
    v0->pad = padding->layer->pad;
    return CT_OK;
}

static ct_status upgrade_padding(const ct_upgrade *u)
{
    Ct__NetParameter *net = u->net;
    size_t n = 0;

    for (size_t i = 0; i < net->n_layers; i++) {
        for (size_t b = 0; b < net->layers[i]->n_bottom; b++) {
            int64_t maker = maker_of(net, i, net->layers[i]->bottom[b]);

            if ((maker < 0) || !is_padding(net->layers[maker])) continue;
            CT_TRY(take_padding(u, net->layers[i], net->layers[maker]));
        }
    }
    for (size_t i = 0; i < net->n_layers; i++) {
        if (is_padding(net->layers[i])) {
            ct_source_map_forget(u->map, &net->layers[i]->base);
            ct__v1_layer_parameter__free_unpacked(net->layers[i], NULL);
        } else {
            net->layers[n++] = net->layers[i];
        }
    }
    net->n_layers = n;
    return CT_OK;
}
