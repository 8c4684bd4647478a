#include "framework/proto/upgrade.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/log.h"
#include "framework/proto/message.h"

/* Warns of each message of parameters that its layer's type does not read (`pooling_param` in a
 *  Convolution), with its place. Unknown types are passed over: they are refused elsewhere. */
static void net_warn_unused(const Ct__NetParameter *net, const char *file,
                            const ct_source_map *map);

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

/* ---- BatchNorm: its three parameters are statistics, which the solver must not touch; what
 * Intel's nets say of all of these layers goes to each */

static ct_status upgrade_batch_norm(const ct_upgrade *u)
{
    Ct__NetParameter *net = u->net;

    for (size_t i = 0; i < net->n_layer; i++) {
        Ct__LayerParameter *layer = net->layer[i];

        if ((layer->type == NULL) || (strcmp(layer->type, "BatchNorm") != 0)) continue;
        for (size_t k = 0; (layer->n_param == 3) && (k < 3); k++) {
            layer->param[k]->has_lr_mult = layer->param[k]->has_decay_mult = true;
            layer->param[k]->lr_mult = layer->param[k]->decay_mult = 0;
        }
        if (net->bn_stats_batch_size == 0) continue;
        if (layer->batch_norm_param == NULL) {
            Ct__BatchNormParameter *p;

            CT_TRY(ct_upgrade_add(u, &layer->base, "batch_norm_param", layer, &p));
        }
        if (layer->batch_norm_param->has_stats_batch_size) continue;
        layer->batch_norm_param->has_stats_batch_size = true;
        layer->batch_norm_param->stats_batch_size = net->bn_stats_batch_size;
    }
    return clear(net, "bn_stats_batch_size");
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

    if (net->n_repeat > 0) /* a text has none any more when it is read */
        return ct_upgrade_fail(&u, net->repeat[0],
                               "a binary net with \"repeat\", which only texts may have");
    CT_TRY(ct_upgrade_v1(&u));
    CT_TRY(upgrade_transformations(&u));
    CT_TRY(upgrade_input(&u));
    CT_TRY(upgrade_types(&u));
    CT_TRY(ct_upgrade_fused(&u));
    CT_TRY(upgrade_batch_norm(&u));
    return ct_upgrade_multi_head(&u);
}

static bool is_made(const Ct__NetParameter *net, const char *name)
{
    for (size_t i = 0; i < net->n_layer; i++) {
        for (size_t t = 0; t < net->layer[i]->n_top; t++)
            if (strcmp(net->layer[i]->top[t], name) == 0) return true;
    }
    return false;
}

/* A net that is to be built, not a file of weights, has sizes for its inputs, or layers that make
 * them. */
static ct_status check_sizes(const ct_upgrade *u)
{
    const Ct__NetParameter *net = u->net;

    if (net->n_input_dim + net->n_input_shape > 0) return CT_OK;
    for (size_t i = 0; i < net->n_input; i++) {
        if (is_made(net, net->input[i])) continue;
        return ct_upgrade_fail(u, net, "input \"%s\" has neither \"input_shape\" nor \"input_dim\"",
                               net->input[i]);
    }
    return CT_OK;
}

ct_status ct_net_read(const char *path, ct_source_map *map, Ct__NetParameter **net_p)
{
    return ct_net_read_repeat(path, 0, map, net_p);
}

ct_status ct_net_read_repeat(const char *path, int32_t count, ct_source_map *map,
                             Ct__NetParameter **net_p)
{
    ProtobufCMessage *message;
    Ct__NetParameter *net;
    ct_status status;

    CT_TRY(ct_prototxt_read_repeat(&ct__net_parameter__descriptor, path, count, map, &message));
    net = (Ct__NetParameter *)message;
    CT_TRY_GOTO(status, err_release, check_sizes(&(ct_upgrade){ net, path, map }));
    CT_TRY_GOTO(status, err_release, ct_net_upgrade(net, path, map));
    net_warn_unused(net, path, map);
    *net_p = net;
    return CT_OK;

err_release:
    ct_source_map_forget(map, message);
    ct__net_parameter__free_unpacked(net, NULL);
    return status;
}

/* ---- solvers: old forms, the nets and the prefix that they name by where they lie */

static ct_status upgrade_solver_type(const ct_upgrade *u, Ct__SolverParameter *solver)
{
    static const char *const name[] = {
        "SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"
    };
    const ProtobufCFieldDescriptor *f = ct_field_find(solver->base.descriptor, "type", 4);
    unsigned type = (unsigned)solver->solver_type;

    if (!solver->has_solver_type) return CT_OK;
    if (ct_field_count(&solver->base, f) > 0) {
        return ct_upgrade_fail(u, solver, "\"solver_type\" is the old form of \"type\"; give one");
    }
    if (type >= sizeof(name) / sizeof(name[0])) {
        return ct_upgrade_fail(u, solver, "solver_type %u stands for no solver", type);
    }
    solver->type = strdup(name[type]);
    solver->has_solver_type = false;
    if (solver->type == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a solver");
    return (u->map != NULL) ? ct_source_map_copy(u->map, &solver->type, &solver->solver_type)
                            : CT_OK;
}

static ct_status upgrade_inner_net(Ct__NetParameter *net, const char *file, ct_source_map *map)
{
    if (net == NULL) return CT_OK;
    CT_TRY(ct_net_upgrade(net, file, map));
    net_warn_unused(net, file, map);
    return CT_OK;
}

static ct_status upgrade_inner_nets(Ct__SolverParameter *solver, const char *file,
                                    ct_source_map *map)
{
    CT_TRY(upgrade_inner_net(solver->net_param, file, map));
    CT_TRY(upgrade_inner_net(solver->train_net_param, file, map));
    for (size_t i = 0; i < solver->n_test_net_param; i++) {
        CT_TRY(upgrade_inner_net(solver->test_net_param[i], file, map));
    }
    return CT_OK;
}

ct_status ct_solver_upgrade(Ct__SolverParameter *solver, const char *file, ct_source_map *map)
{
    CT_TRY(upgrade_solver_type(&(ct_upgrade){ NULL, file, map }, solver));
    return upgrade_inner_nets(solver, file, map);
}

/* *path_p: the path as given where there is a file, else the one beside `file`; NULL and empty ones
 * stay. */
static ct_status find_file(const char *file, char **path_p)
{
    const char *slash = strrchr(file, '/'), *path = *path_p;
    ct_text beside = { 0 };

    if ((path == NULL) || (path[0] == '\0') || (path[0] == '/') || (slash == NULL) ||
        (access(path, R_OK) == 0))
        return CT_OK;
    ct_text_add(&beside, "%.*s/%s", (int)(slash - file), file, path);
    if (beside.failed) {
        ct_text_destroy(&beside);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a path");
    }
    if (access(beside.text, R_OK) != 0) {
        ct_text_destroy(&beside);
        return CT_OK;
    }
    free(*path_p);
    *path_p = beside.text;
    return CT_OK;
}

ct_status ct_solver_find_nets(Ct__SolverParameter *solver, const char *path)
{
    for (size_t i = 0; i < solver->n_test_net + 2; i++) {
        char **net = (i == 0)   ? &solver->net
                     : (i == 1) ? &solver->train_net
                                : &solver->test_net[i - 2];

        CT_TRY(find_file(path, net));
    }
    return CT_OK;
}

ct_status ct_net_find_served(Ct__NetParameter *net, const char *path)
{
    Ct__ServeParameter *s = net->serve;

    if (s == NULL) return CT_OK;
    CT_TRY(find_file(path, &s->tokenizer));
    CT_TRY(find_file(path, &s->labels));
    return (s->transform_param != NULL) ? find_file(path, &s->transform_param->mean_file) : CT_OK;
}

static bool is_directory(const char *path)
{
    struct stat st;

    return (stat(path, &st) == 0) && S_ISDIR(st.st_mode);
}

/* As Caffe: without a snapshot_prefix it is the solver's path less its ending; in a directory that
 * it names ("snapshots/", or one that is there), the solver's name. */
static ct_status find_prefix(Ct__SolverParameter *solver, const char *path)
{
    const char *given = (solver->snapshot_prefix != NULL) ? solver->snapshot_prefix : "";
    const char *base = strrchr(path, '/'), *ending = strrchr(path, '.');
    size_t n = strlen(given);
    bool slash = (n > 0) && (given[n - 1] == '/');
    bool in_directory = slash || ((n > 0) && is_directory(given));
    ct_text prefix = { 0 };

    if ((n > 0) && !in_directory) return CT_OK;
    base = (base != NULL) ? base + 1 : path;
    if ((ending == NULL) || (ending <= base)) ending = path + strlen(path);
    if (in_directory) {
        ct_text_add(&prefix, "%s%s%.*s", given, slash ? "" : "/", (int)(ending - base), base);
    } else {
        ct_text_add(&prefix, "%.*s", (int)(ending - path), path);
    }
    if (prefix.failed) {
        ct_text_destroy(&prefix);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for snapshot_prefix");
    }
    free(solver->snapshot_prefix);
    solver->snapshot_prefix = prefix.text;
    return CT_OK;
}

ct_status ct_solver_read(const char *path, ct_source_map *map, Ct__SolverParameter **solver_p)
{
    ProtobufCMessage *message;
    Ct__SolverParameter *solver;
    ct_status status;

    CT_TRY(ct_prototxt_read(&ct__solver_parameter__descriptor, path, map, &message));
    solver = (Ct__SolverParameter *)message;
    CT_TRY_GOTO(status, err_release, ct_solver_upgrade(solver, path, map));
    CT_TRY_GOTO(status, err_release, ct_solver_find_nets(solver, path));
    CT_TRY_GOTO(status, err_release, find_prefix(solver, path));
    *solver_p = solver;
    return CT_OK;

err_release:
    ct_source_map_forget(map, message);
    ct__solver_parameter__free_unpacked(solver, NULL);
    return status;
}

/* ---- parameters that a layer's type does not read: Caffe passes over them in silence, and whoever
 * wrote `pooling_param` into a convolution never learns of it. */

static void look_at(const Ct__LayerParameter *layer, const char *file, const ct_source_map *map)
{
    const ProtobufCMessage *m = &layer->base;

    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        ct_place place;

        if ((f->type != PROTOBUF_C_TYPE_MESSAGE) || (ct_field_count(m, f) == 0) ||
            !ct_layer_type_reads(NULL, f->name) || ct_layer_type_reads(layer->type, f->name))
            continue;
        place = ct_source_map_find(map, ct_field_message((ProtobufCMessage *)m, f, 0));
        CT_WARN("%s:%d: in layer \"%s\" (%s): %s means nothing to this type of layer, and has no "
                "effect",
                file, place.line, (layer->name != NULL) ? layer->name : "", layer->type, f->name);
    }
}

static void net_warn_unused(const Ct__NetParameter *net, const char *file, const ct_source_map *map)
{
    if (net->debug_info) CT_WARN("%s: debug_info is not supported, nothing more is printed", file);
    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *layer = net->layer[i];

        if ((layer->repeat_copy != NULL) && (layer->repeat_copy->copy > 0))
            continue; /* as copy 0 */
        if ((layer->type != NULL) && ct_layer_type_reads(layer->type, NULL))
            look_at(layer, file, map);
    }
}
