#include "framework/proto/upgrade.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "framework/proto/message.h"
#include "framework/proto/upgrade_impl.h"

ct_status ct_upgrade_fail(const ct_upgrade *u, const void *message, const char *fmt, ...)
{
    ct_place place = ct_source_map_find(u->map, message);
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (place.line == 0) return CT_FAIL(CT_ERR_CONFIG, "%s: %s", u->file, text);
    return CT_FAIL(CT_ERR_CONFIG, "%s:%d:%d: %s", place.file, place.line, place.column, text);
}

ct_status ct_upgrade_add(const ct_upgrade *u, ProtobufCMessage *m, const char *field,
                         const void *like, void *message_p)
{
    const ProtobufCFieldDescriptor *f = ct_field_find(m->descriptor, field, strlen(field));
    ProtobufCMessage *child = ct_message_create(f->descriptor);
    ct_status status;

    if (child == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %s", field);
    status = ct_field_put(m, f, &child, true);
    if (status != CT_OK) {
        protobuf_c_message_free_unpacked(child, NULL);
        return status;
    }
    memcpy(message_p, &child, sizeof(child));
    return (u->map != NULL) ? ct_source_map_copy(u->map, child, like) : CT_OK;
}

/* ---- transformations that stood among a data layer's own parameters */

static ct_status move_transformation(const ct_upgrade *u, Ct__LayerParameter *layer,
                                     const char *param_name, const char *name)
{
    const ProtobufCFieldDescriptor *param_field =
        ct_field_find(layer->base.descriptor, param_name, strlen(param_name));
    const ProtobufCFieldDescriptor *from, *to;
    ProtobufCMessage *param;

    if (ct_field_count(&layer->base, param_field) == 0) return CT_OK;
    param = ct_field_message(&layer->base, param_field, 0);
    from = ct_field_find(param->descriptor, name, strlen(name));
    if (ct_field_count(param, from) == 0) return CT_OK;
    if (layer->transform_param == NULL) {
        Ct__TransformationParameter *created;

        CT_TRY(ct_upgrade_add(u, &layer->base, "transform_param", param, &created));
    }
    to = ct_field_find(layer->transform_param->base.descriptor, name, strlen(name));
    if (ct_field_count(&layer->transform_param->base, to) > 0) {
        return ct_upgrade_fail(u, layer,
                               "in layer \"%s\" (%s): \"%s\" stands both in %s, where it stood in "
                               "old nets, and in transform_param",
                               (layer->name != NULL) ? layer->name : "", layer->type, name,
                               param_name);
    }
    CT_INFO("%s: in layer \"%s\": %s of %s is taken as of transform_param", u->file,
            (layer->name != NULL) ? layer->name : "", name, param_name);
    return ct_field_move(&layer->transform_param->base, to, param, from);
}

static ct_status upgrade_transformations(const ct_upgrade *u)
{
    static const char *const source[][2] = { { "Data", "data_param" },
                                             { "ImageData", "image_data_param" },
                                             { "WindowData", "window_data_param" } };
    static const char *const name[] = { "scale", "mean_file", "crop_size", "mirror" };

    for (size_t i = 0; i < u->net->n_layer; i++) {
        Ct__LayerParameter *layer = u->net->layer[i];

        for (size_t k = 0; (layer->type != NULL) && (k < 3); k++) {
            if (strcmp(layer->type, source[k][0]) != 0) continue;
            for (size_t n = 0; n < sizeof(name) / sizeof(name[0]); n++) {
                CT_TRY(move_transformation(u, layer, source[k][1], name[n]));
            }
        }
    }
    return CT_OK;
}

/* ---- input, input_dim and input_shape */

static ct_status check_input(const ct_upgrade *u)
{
    const Ct__NetParameter *net = u->net;

    if ((net->n_input == 0) && (net->n_input_dim + net->n_input_shape > 0)) {
        return ct_upgrade_fail(u, net, "%s without \"input\", which names the blob",
                               (net->n_input_dim > 0) ? "\"input_dim\"" : "\"input_shape\"");
    }
    if ((net->n_input_dim > 0) && (net->n_input_shape > 0)) {
        return ct_upgrade_fail(u, net, "\"input_dim\" and \"input_shape\" cannot both be given");
    }
    if ((net->n_input_shape > 0) && (net->n_input_shape != net->n_input)) {
        return ct_upgrade_fail(u, net, "%zu of \"input\" need as many of \"input_shape\", not %zu",
                               net->n_input, net->n_input_shape);
    }
    if ((net->n_input_dim > 0) && (net->n_input_dim != 4 * net->n_input)) {
        return ct_upgrade_fail(u, net,
                               "%zu of \"input\" need %zu of \"input_dim\", four each, not %zu",
                               net->n_input, 4 * net->n_input, net->n_input_dim);
    }
    return CT_OK;
}

/* A name that no layer has: "input", "input_1", … */
static char *input_layer_name(const Ct__NetParameter *net)
{
    char name[32] = "input";

    for (size_t i = 0, try = 1; i < net->n_layer; i++) {
        if ((net->layer[i]->name == NULL) || (strcmp(net->layer[i]->name, name) != 0)) continue;
        snprintf(name, sizeof(name), "input_%zu", try++);
        i = (size_t)-1; /* from the first layer again */
    }
    return strdup(name);
}

static ct_status add_shapes(const ct_upgrade *u, Ct__InputParameter *param)
{
    Ct__NetParameter *net = u->net;
    const ProtobufCFieldDescriptor *dim = ct_field_find(&ct__blob_shape__descriptor, "dim", 3);

    if (net->n_input_shape > 0) {
        return ct_field_move(&param->base, ct_field_find(param->base.descriptor, "shape", 5),
                             &net->base, ct_field_find(net->base.descriptor, "input_shape", 11));
    }
    for (size_t i = 0; i < net->n_input; i++) {
        Ct__BlobShape *shape;

        CT_TRY(ct_upgrade_add(u, &param->base, "shape", net, &shape));
        for (size_t k = 0; k < 4; k++) {
            int64_t d = net->input_dim[4 * i + k];

            CT_TRY(ct_field_put(&shape->base, dim, &d, true));
        }
    }
    return CT_OK;
}

static ct_status clear(Ct__NetParameter *net, const char *field)
{
    return ct_field_clear(&net->base, ct_field_find(net->base.descriptor, field, strlen(field)));
}

/* One Input layer in front of the others. Without sizes this is a file of weights, whose inputs
 * mean nothing any more. */
static ct_status upgrade_input(const ct_upgrade *u)
{
    Ct__NetParameter *net = u->net;
    Ct__LayerParameter *layer;
    Ct__InputParameter *param;

    CT_TRY(check_input(u));
    if (net->n_input == 0) return CT_OK;
    if (net->n_input_dim + net->n_input_shape > 0) {
        const void *like = (net->n_input_shape > 0) ? (const void *)net->input_shape[0] : net;

        CT_TRY(ct_upgrade_add(u, &net->base, "layer", like, &layer));
        layer->name = input_layer_name(net);
        layer->type = strdup("Input");
        if ((layer->name == NULL) || (layer->type == NULL)) {
            return CT_FAIL(CT_ERR_NOMEM, "no memory for a layer");
        }
        memmove(net->layer + 1, net->layer, (net->n_layer - 1) * sizeof(net->layer[0]));
        net->layer[0] = layer;
        CT_TRY(ct_upgrade_add(u, &layer->base, "input_param", like, &param));
        CT_TRY(add_shapes(u, param));
        CT_TRY(ct_field_move(&layer->base, ct_field_find(layer->base.descriptor, "top", 3),
                             &net->base, ct_field_find(net->base.descriptor, "input", 5)));
        CT_INFO("%s: \"input\" of the net became the layer \"%s\" (Input)", u->file, layer->name);
    }
    CT_TRY(clear(net, "input"));
    CT_TRY(clear(net, "input_dim"));
    return clear(net, "input_shape");
}

/* ---- BatchNorm's three parameters are statistics, which the solver must not touch */

static void upgrade_batch_norm(Ct__NetParameter *net)
{
    for (size_t i = 0; i < net->n_layer; i++) {
        Ct__LayerParameter *layer = net->layer[i];

        if ((layer->type == NULL) || (strcmp(layer->type, "BatchNorm") != 0)) continue;
        for (size_t k = 0; (layer->n_param == 3) && (k < 3); k++) {
            layer->param[k]->has_lr_mult = layer->param[k]->has_decay_mult = true;
            layer->param[k]->lr_mult = layer->param[k]->decay_mult = 0;
        }
    }
}

/* ---- types that forks call otherwise, with the same parameters and weights */

static ct_status upgrade_types(const ct_upgrade *u)
{
    static const char *const same[][2] = { { "ConvolutionDepthwise", "DepthwiseConvolution" } };
    size_t n_renamed = 0;

    for (size_t i = 0; i < u->net->n_layer; i++) {
        Ct__LayerParameter *layer = u->net->layer[i];

        for (size_t k = 0; (layer->type != NULL) && (k < sizeof(same) / sizeof(same[0])); k++) {
            if (strcmp(layer->type, same[k][0]) != 0) continue;
            free(layer->type);
            layer->type = strdup(same[k][1]);
            if (layer->type == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a layer");
            if (n_renamed++ == 0)
                CT_INFO("%s: layers of type %s are taken as %s", u->file, same[k][0], same[k][1]);
        }
    }
    return CT_OK;
}

ct_status ct_net_upgrade(Ct__NetParameter *net, const char *file, ct_source_map *map)
{
    ct_upgrade u = { net, file, map };

    CT_TRY(ct_upgrade_v1(&u));
    CT_TRY(upgrade_transformations(&u));
    CT_TRY(upgrade_input(&u));
    CT_TRY(upgrade_types(&u));
    upgrade_batch_norm(net);
    return CT_OK;
}

/* A net that is to be built, not a file of weights, has sizes for its inputs. */
static ct_status check_sizes(const ct_upgrade *u)
{
    const Ct__NetParameter *net = u->net;

    if ((net->n_input == 0) || (net->n_input_dim + net->n_input_shape > 0)) return CT_OK;
    return ct_upgrade_fail(u, net, "input \"%s\" has neither \"input_shape\" nor \"input_dim\"",
                           net->input[0]);
}

ct_status ct_net_read(const char *path, ct_source_map *map, Ct__NetParameter **net_p)
{
    ProtobufCMessage *message;
    Ct__NetParameter *net;
    ct_status status;

    CT_TRY(ct_prototxt_read(&ct__net_parameter__descriptor, path, map, &message));
    net = (Ct__NetParameter *)message;
    CT_TRY_GOTO(status, err_release, check_sizes(&(ct_upgrade){ net, path, map }));
    CT_TRY_GOTO(status, err_release, ct_net_upgrade(net, path, map));
    ct_net_warn_unused(net, path, map);
    *net_p = net;
    return CT_OK;

err_release:
    ct_source_map_forget(map, message);
    ct__net_parameter__free_unpacked(net, NULL);
    return status;
}
