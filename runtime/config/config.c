#include "runtime/config/config.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/number.h"
#include "framework/proto/message.h"
#include "runtime/config/exchange_config.h"
#include "runtime/config/features.h"

enum { MOST_TEST_NETS = 100 };

/* Applies the entries of --set that say which nets to train or test, before any net is read: each
 *  takes the place of all that the file says of the same. Part of ct_config_read(). */
static ct_status config_apply_nets(const ct_options *o, ct_config *c);
/* Lays the environment, then the command line over a config; part of ct_config_read(). */
static ct_status config_apply(const ct_options *o, ct_config *c);
/* Those of a program that name nets, or the others. */
static ct_status config_apply_settings(const char *const *settings, bool nets, ct_config *c);
/* The messages that every run has, so that their defaults show. */
static ct_status add_messages(Ct__SolverParameter *s);
/* What nobody has said, solver_mode as here, and what is to be checked. Caffe's default is GPU. */
static ct_status config_complete(ct_config *c, const char *mode);
/* --set=repeat.count=N, which counts while nets are read. */
static ct_status config_find_count(const ct_options *o, ct_config *c);

/* ---- files */

static void add_test_net(Ct__SolverParameter *s, Ct__NetParameter *net)
{
    Ct__NetParameter **list =
        realloc(s->test_net_param, (s->n_test_net_param + 1) * sizeof(Ct__NetParameter *));

    if (list == NULL) return;
    list[s->n_test_net_param++] = net;
    s->test_net_param = list;
}

/* The readers of nets know their file alone, not who named it. */
static ct_status check_named(const ct_config *c, const char *name, const void *field,
                             const char *path)
{
    bool beside = (path[0] != '/') && (strchr(c->file, '/') != NULL);

    if (access(path, R_OK) == 0) return CT_OK;
    return CT_FAIL(CT_ERR_IO, "%s: %s \"%s\": %s%s",
                   ct_source_map_where(c->map, c->solver, field, c->file).text, name, path,
                   ct_path_why(path, errno).text, beside ? "; nor is it beside the solver" : "");
}

/* Reads the nets that the solver names, into the messages for nets written inline. */
static ct_status read_nets(ct_config *c)
{
    Ct__SolverParameter *s = c->solver;

    if (s->net != NULL) {
        CT_TRY(check_named(c, "net", &s->net, s->net));
        CT_TRY(ct_net_read_repeat(s->net, c->repeat_count, c->map, &s->net_param));
        free(s->net);
        s->net = NULL;
    }
    if (s->train_net != NULL) {
        CT_TRY(check_named(c, "train_net", &s->train_net, s->train_net));
        CT_TRY(ct_net_read_repeat(s->train_net, c->repeat_count, c->map, &s->train_net_param));
        free(s->train_net);
        s->train_net = NULL;
    }
    for (size_t i = 0; i < s->n_test_net; i++) {
        Ct__NetParameter *net;

        CT_TRY(check_named(c, "test_net", &s->test_net, s->test_net[i]));
        CT_TRY(ct_net_read_repeat(s->test_net[i], c->repeat_count, c->map, &net));
        add_test_net(s, net);
    }
    for (size_t i = 0; i < s->n_test_net; i++) free(s->test_net[i]);
    free(s->test_net);
    s->test_net = NULL;
    s->n_test_net = 0;
    return CT_OK;
}

static ct_status check_nets(const ct_config *c)
{
    const Ct__SolverParameter *s = c->solver;
    const void *last = (s->train_net_param != NULL) ? (const void *)&s->train_net_param
                       : (s->train_net != NULL)     ? (const void *)&s->train_net
                       : (s->net_param != NULL)     ? (const void *)&s->net_param
                                                    : (const void *)&s->net;
    int n = (s->net != NULL) + (s->net_param != NULL) + (s->train_net != NULL) +
            (s->train_net_param != NULL);

    if (s->n_test_net + s->n_test_net_param > MOST_TEST_NETS) /* each is read */
        return CT_FAIL(CT_ERR_CONFIG, "%s: %zu test nets by test_net, at most %d",
                       ct_source_map_where(c->map, s, &s->test_net, c->file).text,
                       s->n_test_net + s->n_test_net_param, (int)MOST_TEST_NETS);
    if (n == 1) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: %s; a solver needs exactly one of net, net_param, train_net, "
                   "train_net_param",
                   ct_source_map_where(c->map, s, last, c->file).text,
                   (n == 0) ? "no net to train" : "more than one net to train");
}

/* A solver for a net that came without: what `time` updates with. */
static ct_status default_solver(ct_config *c, const char *model)
{
    static const char text[] = "base_lr: 0.01 lr_policy: \"fixed\" momentum: 0.9 "
                               "weight_decay: 0.0005 max_iter: 1";
    ProtobufCMessage *m;

    CT_TRY(ct_prototxt_parse(&ct__solver_parameter__descriptor, "default", text, sizeof(text) - 1,
                             NULL, &m));
    c->solver = (Ct__SolverParameter *)(void *)m;
    return ct_net_read_repeat(model, c->repeat_count, c->map, &c->solver->net_param);
}

static ct_status open_map(const ct_options *o, ct_config *c)
{
    CT_TRY(ct_source_map_create(&c->map));
    if ((o != NULL) && ct_options_flag(o, "strict")) ct_source_map_refuse_hints(c->map);
    return CT_OK;
}

/* o: NULL without options. */
static ct_status open_solver(const ct_options *o, const char *file, ct_config *c)
{
    CT_TRY(open_map(o, c));
    snprintf(c->file, sizeof(c->file), "%s", file);
    return ct_solver_read(file, c->map, &c->solver);
}

static ct_status read_solver_nets(const char *file, ct_config *c)
{
    CT_TRY(ct_solver_find_nets(c->solver, file));
    CT_TRY(check_nets(c));
    if ((c->repeat_count > 0) && (c->solver->net == NULL) && (c->solver->train_net == NULL))
        return CT_FAIL(CT_ERR_CONFIG, "%s: repeat.count is for nets in files of their own",
                       c->file);
    CT_TRY(read_nets(c));
    c->net = (c->solver->net_param != NULL) ? c->solver->net_param : c->solver->train_net_param;
    return CT_OK;
}

static ct_status read_files(const ct_options *o, ct_config *c)
{
    const char *solver = ct_options_text(o, "solver"), *model = ct_options_text(o, "model");

    if ((solver == NULL) == (model == NULL)) {
        return CT_FAIL(CT_ERR_CONFIG, "give %s; see --help",
                       (solver != NULL) ? "either --solver or --model, not both"
                                        : "--solver=FILE or --model=FILE, as the verb takes it");
    }
    if (solver != NULL) {
        CT_TRY(open_solver(o, solver, c));
        CT_TRY(config_apply_nets(o, c));
        return read_solver_nets(solver, c);
    }
    CT_TRY(open_map(o, c));
    c->is_model = true;
    snprintf(c->file, sizeof(c->file), "%s", model);
    CT_TRY(default_solver(c, model));
    c->net = c->solver->net_param;
    return CT_OK;
}

ct_status ct_config_read(const ct_options *o, ct_phase phase, ct_config *c)
{
    return ct_config_read_repeat(o, phase, 0, c);
}

ct_status ct_config_read_repeat(const ct_options *o, ct_phase phase, int32_t count, ct_config *c)
{
    ct_status status;

    memset(c, 0, sizeof(*c));
    c->phase = phase;
    c->repeat_count = count;
    if (count == 0) CT_TRY(config_find_count(o, c));
    CT_TRY_GOTO(status, err_destroy, read_files(o, c));
    CT_TRY_GOTO(status, err_destroy, config_apply(o, c));
    CT_TRY_GOTO(status, err_destroy, config_complete(c, ct_feature_has("cuda") ? "GPU" : "CPU"));
    return CT_OK;

err_destroy:
    ct_config_destroy(c);
    return status;
}

static ct_status read_for_program(const char *file, const char *const *settings, ct_config *c)
{
    CT_TRY(open_solver(NULL, file, c));
    CT_TRY(config_apply_settings(settings, true, c));
    CT_TRY(read_solver_nets(file, c));
    CT_TRY(add_messages(c->solver));
    CT_TRY(config_apply_settings(settings, false, c));
    return config_complete(c, "CPU");
}

ct_status ct_config_read_solver(const char *file, const char *const *settings, ct_config *c)
{
    ct_status status;

    memset(c, 0, sizeof(*c));
    c->phase = CT_TRAIN;
    status = read_for_program(file, settings, c);
    if (status != CT_OK) ct_config_destroy(c);
    return status;
}

void ct_config_destroy(ct_config *c)
{
    if (c->solver != NULL) ct__solver_parameter__free_unpacked(c->solver, NULL);
    ct_source_map_destroy(c->map);
    memset(c, 0, sizeof(*c));
}

/* ---- to the other ranks: the whole struct's plain part, then the solver message */

ct_status ct_config_pack(const ct_config *c, void **data_p, size_t *size_p)
{
    size_t size = ct__solver_parameter__get_packed_size(c->solver);
    char *data = malloc(sizeof(*c) + size);

    if (data == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a packed solver");
    memcpy(data, c, sizeof(*c));
    ct__solver_parameter__pack(c->solver, (uint8_t *)data + sizeof(*c));
    *data_p = data;
    *size_p = sizeof(*c) + size;
    return CT_OK;
}

ct_status ct_config_unpack(ct_config *c, const void *data, size_t size)
{
    const uint8_t *at = data;

    memcpy(c, data, sizeof(*c));
    c->map = NULL;
    c->solver = ct__solver_parameter__unpack(NULL, size - sizeof(*c), at + sizeof(*c));
    if (c->solver == NULL) return CT_FAIL(CT_ERR_COMM, "the solver did not arrive whole");
    c->net = (c->solver->net_param != NULL) ? c->solver->net_param : c->solver->train_net_param;
    return CT_OK;
}

/* ---- batch size */

/* The parameter message of a data layer that has a batch_size, or NULL. */
static ProtobufCMessage *batch_message(const Ct__LayerParameter *l)
{
    if ((strcmp(l->type, "Data") == 0) || (strcmp(l->type, "AnnotatedData") == 0))
        return (ProtobufCMessage *)l->data_param;
    if (strcmp(l->type, "ImageData") == 0) return (ProtobufCMessage *)l->image_data_param;
    if (strcmp(l->type, "HDF5Data") == 0) return (ProtobufCMessage *)l->hdf5_data_param;
    if (strcmp(l->type, "TextData") == 0) return (ProtobufCMessage *)l->text_data_param;
    if (strcmp(l->type, "TokenData") == 0) return (ProtobufCMessage *)l->token_data_param;
    if (strcmp(l->type, "MemoryData") == 0) return (ProtobufCMessage *)l->memory_data_param;
    if (strcmp(l->type, "WindowData") == 0) return (ProtobufCMessage *)l->window_data_param;
    return NULL;
}

/* The shapes of a layer that states them itself: the first dimension is the batch. */
static size_t batch_shapes(const Ct__LayerParameter *l, Ct__BlobShape ***shape_p)
{
    if ((strcmp(l->type, "DummyData") == 0) && (l->dummy_data_param != NULL)) {
        *shape_p = l->dummy_data_param->shape;
        return l->dummy_data_param->n_shape;
    }
    if ((strcmp(l->type, "Input") == 0) && (l->input_param != NULL)) {
        *shape_p = l->input_param->shape;
        return l->input_param->n_shape;
    }
    return 0;
}

/* Whether the layer can be part of a net of that phase: levels and stages are left to the net. */
static bool in_phase(const Ct__LayerParameter *l, Ct__Phase phase)
{
    for (size_t i = 0; i < l->n_include; i++) {
        if (!l->include[i]->has_phase || (l->include[i]->phase == phase)) return true;
    }
    if (l->n_include > 0) return false;
    for (size_t i = 0; i < l->n_exclude; i++) {
        const Ct__NetStateRule *r = l->exclude[i];

        if (r->has_phase && (r->phase == phase) && (r->n_stage == 0) && (r->n_not_stage == 0) &&
            !r->has_min_level && !r->has_max_level) {
            return false;
        }
    }
    return true;
}

/* Sets the batch size of every data layer of `phase` in net; *n_p: how many there were. */
static ct_status config_batch_size(Ct__NetParameter *net, Ct__Phase phase, const char *value,
                                   const char *who, int *n_p)
{
    char *end;
    int64_t batch;

    if (!ct_number_integer(value, &end, &batch) || (*end != '\0') || (batch <= 0) ||
        (batch > INT32_MAX)) {
        return CT_FAIL(CT_ERR_CONFIG, "%s: batch_size=%s: expected a whole number, 1 or more", who,
                       value);
    }
    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *l = net->layer[i];
        Ct__BlobShape **shape = NULL;
        ProtobufCMessage *m;
        size_t n_shape;

        if ((l->type == NULL) || !in_phase(l, phase)) continue;
        m = batch_message(l);
        n_shape = batch_shapes(l, &shape);
        if (m != NULL) CT_TRY(ct_prototxt_set(m, "batch_size", value, who));
        for (size_t k = 0; k < n_shape; k++) {
            if (shape[k]->n_dim > 0) shape[k]->dim[0] = batch;
        }
        *n_p += (m != NULL) || (n_shape > 0);
    }
    return CT_OK;
}

/* ---- fields by path */

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessageDescriptor *type,
                                                const char *path)
{
    const ProtobufCFieldDescriptor *f = NULL;

    while ((type != NULL) && (*path != '\0')) {
        char name[96];
        size_t n = strcspn(path, ".[");

        snprintf(name, sizeof(name), "%.*s", (int)n, path);
        f = protobuf_c_message_descriptor_get_field_by_name(type, name);
        if (f == NULL) return NULL;
        path += n;
        if (*path == '[') path += strcspn(path, "]");
        if (*path == ']') path++;
        if (*path == '.') path++;
        type = (f->type == PROTOBUF_C_TYPE_MESSAGE) ? f->descriptor : NULL;
    }
    return (*path == '\0') ? f : NULL;
}

/* Strings may be given without the quotes that the text format wants. */
static ct_status set_path(ct_config *c, ProtobufCMessage *m, const char *path, const char *value,
                          const char *who)
{
    const ProtobufCFieldDescriptor *f = field_of(m->descriptor, path);
    ct_text quoted = { 0 };
    ct_status status;

    if ((f == NULL) || (f->type != PROTOBUF_C_TYPE_STRING) || (value[0] == '"') ||
        (value[0] == '\'') || (value[0] == '[')) {
        return ct_prototxt_set_noted(m, path, value, who, c->map);
    }
    ct_prototxt_quote(value, &quoted);
    status = quoted.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for %s", path)
                           : ct_prototxt_set_noted(m, path, quoted.text, who, c->map);
    ct_text_destroy(&quoted);
    return status;
}

static bool has_layer(const Ct__NetParameter *net, const char *path)
{
    const char *name = path + strlen("layer[");
    size_t n = strcspn(name, "]");

    for (size_t i = 0; (net != NULL) && (i < net->n_layer); i++) {
        const char *have = net->layer[i]->name;

        if ((have != NULL) && (strlen(have) == n) && (strncmp(have, name, n) == 0)) return true;
    }
    return false;
}

/* Every net of the solver that has the layer; the error, if none has, is prototxt_set's. */
static ct_status set_layer(ct_config *c, const char *path, const char *value, const char *who)
{
    Ct__SolverParameter *s = c->solver;
    Ct__NetParameter *net[2] = { s->net_param, s->train_net_param };
    bool found = false;

    for (int i = 0; i < 2; i++) {
        if (!has_layer(net[i], path)) continue;
        CT_TRY(set_path(c, &net[i]->base, path, value, who));
        found = true;
    }
    for (size_t i = 0; i < s->n_test_net_param; i++) {
        if (!has_layer(s->test_net_param[i], path)) continue;
        CT_TRY(set_path(c, &s->test_net_param[i]->base, path, value, who));
        found = true;
    }
    return found ? CT_OK : set_path(c, &c->net->base, path, value, who);
}

static ct_status note(ct_config *c, const char *path, const char *value, ct_origin origin)
{
    if (c->n_set == CT_CONFIG_MAX_SET) {
        return CT_FAIL(CT_ERR_CONFIG, "more than %d fields set by options", CT_CONFIG_MAX_SET);
    }
    snprintf(c->set[c->n_set].path, sizeof(c->set[c->n_set].path), "%s", path);
    snprintf(c->set[c->n_set].value, sizeof(c->set[c->n_set].value), "%s", value);
    c->set[c->n_set++].origin = origin;
    return CT_OK;
}

static const char repeat_count[] = "repeat.count";

static ct_status set_count(ct_config *c, const char *path, const char *value, ct_origin origin,
                           const char *who)
{
    char *end;
    int64_t count;

    (void)origin;
    if (strcmp(path, repeat_count) != 0) return CT_OK;
    if (!ct_number_integer(value, &end, &count) || (*end != '\0') || (count <= 0) ||
        (count > INT32_MAX))
        return CT_FAIL(CT_ERR_CONFIG, "%s: repeat.count=%s: expected a whole number, 1 or more",
                       who, value);
    c->repeat_count = (int32_t)count;
    return CT_OK;
}

static ct_status set_batch(ct_config *c, const char *value, const char *who)
{
    Ct__Phase phase = (c->phase == CT_TEST) ? CT__PHASE__TEST : CT__PHASE__TRAIN;
    int n = 0;

    CT_TRY(config_batch_size(c->net, phase, value, who, &n));
    if (n > 0) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s: batch_size=%s: the net has no data layer in phase %s", who,
                   value, (c->phase == CT_TEST) ? "TEST" : "TRAIN");
}

static ct_status set_field(ct_config *c, const char *path, const char *value, ct_origin origin,
                           const char *who)
{
    if (strcmp(path, repeat_count) == 0) {
        /* was seen when the nets were read */
    } else if (strcmp(path, "batch_size") == 0) {
        CT_TRY(set_batch(c, value, who));
    } else if (strncmp(path, "layer[", 6) == 0) {
        CT_TRY(set_layer(c, path, value, who));
    } else {
        CT_TRY(set_path(c, &c->solver->base, path, value, who));
    }
    return note(c, path, value, origin);
}

/* ---- options */

/* Options that are a solver field under a shorter name. */
static const struct {
    const char *option, *path;
} field_table[] = {
    { "iterations", "max_iter" },
    { "allreduce", "comm.allreduce" },
    { "topology", "comm.topology" },
    { "overlap", "comm.overlap" },
    { "progress", "comm.progress" },
    { "deterministic", "deterministic" },
    { "reproducible_sum", "reproducible_sum" },
    { "global_batch_size", "global_batch_size" },
    { "seed", "random_seed" },
    { "weights", "weights" },
};

typedef ct_status (*setter)(ct_config *c, const char *path, const char *value, ct_origin origin,
                            const char *who);

/* Calls set for the entry FIELD=VALUE, if it names nets or if it does not. */
static ct_status one_set(const char *entry, ct_config *c, ct_origin origin, bool nets, setter set,
                         const char *who)
{
    const char *value = strchr(entry, '=');
    char path[96];

    /* a layer's name may hold '=' */
    if (strncmp(entry, "layer[", 6) == 0) value = strchr(entry + strcspn(entry, "]"), '=');
    if ((value == NULL) || (value == entry) || ((size_t)(value - entry) >= sizeof(path)))
        return CT_FAIL(CT_ERR_CONFIG, "%s=%s: expected FIELD=VALUE", who, entry);
    snprintf(path, sizeof(path), "%.*s", (int)(value - entry), entry);
    return (ct_config_names_net(path) == nets) ? set(c, path, value + 1, origin, who) : CT_OK;
}

/* … for every entry of --set, or of CORTADO_SET. */
static ct_status each_set(const ct_options *o, ct_config *c, ct_origin origin, bool nets,
                          setter set)
{
    const char *who = (origin == CT_ORIGIN_ENV) ? "CORTADO_SET" : "--set";

    for (int i = 0; i < ct_options_n(o, "set"); i++) {
        ct_origin from;
        const char *entry = ct_options_entry(o, "set", i, &from);

        if (from == origin) CT_TRY(one_set(entry, c, origin, nets, set, who));
    }
    return CT_OK;
}

/* … for every one of a program. */
static ct_status each_setting(const char *const *settings, ct_config *c, bool nets, setter set)
{
    for (int i = 0; (settings != NULL) && (settings[i] != NULL); i++)
        CT_TRY(one_set(settings[i], c, CT_ORIGIN_COMMAND, nets, set, "a setting"));
    return CT_OK;
}

static ct_status config_find_count(const ct_options *o, ct_config *c)
{
    CT_TRY(each_set(o, c, CT_ORIGIN_ENV, false, set_count));
    return each_set(o, c, CT_ORIGIN_COMMAND, false, set_count);
}

/* ---- which nets to train and test */

/* One of the fields of a row says it all, so that an option which sets one unsets the others. */
static const char *const net_fields[2][4] = {
    { "net", "net_param", "train_net", "train_net_param" },
    { "test_net", "test_net_param", NULL, NULL },
};

static const char *const *row_of(const char *path)
{
    for (int row = 0; row < 2; row++) {
        for (int i = 0; (i < 4) && (net_fields[row][i] != NULL); i++)
            if (strcmp(net_fields[row][i], path) == 0) return net_fields[row];
    }
    return NULL;
}

bool ct_config_names_net(const char *path)
{
    return row_of(path) != NULL;
}

static ct_status set_net(ct_config *c, const char *path, const char *value, ct_origin origin,
                         const char *who)
{
    const char *const *row = row_of(path);
    ProtobufCMessage *s = &c->solver->base;

    for (int i = 0; (i < 4) && (row[i] != NULL); i++) {
        const ProtobufCFieldDescriptor *f = field_of(s->descriptor, row[i]);

        if (strcmp(row[i], path) == 0) continue;
        for (size_t k = 0; (f->type == PROTOBUF_C_TYPE_MESSAGE) && (k < ct_field_count(s, f)); k++)
            ct_source_map_forget(c->map, ct_field_message(s, f, k)); /* about to be freed */
        CT_TRY(ct_field_clear(s, f));
    }
    return set_field(c, path, value, origin, who);
}

static ct_status config_apply_nets(const ct_options *o, ct_config *c)
{
    CT_TRY(each_set(o, c, CT_ORIGIN_ENV, true, set_net));
    return each_set(o, c, CT_ORIGIN_COMMAND, true, set_net);
}

static ct_status refuse_net(ct_config *c, const char *path, const char *value, ct_origin origin,
                            const char *who)
{
    (void)origin;
    return CT_FAIL(CT_ERR_CONFIG, "%s: %s=%s: the net is that of --model=%s; give that file there",
                   who, path, value, c->file);
}

static ct_status apply_mode(const ct_options *o, ct_config *c, ct_origin origin)
{
    const char *mode = ct_options_text(o, "solver_mode"), *gpu = ct_options_text(o, "gpu");

    if ((mode != NULL) && (ct_options_origin(o, "solver_mode") == origin)) {
        CT_TRY(set_field(c, "solver_mode", (mode[0] == 'g' || mode[0] == 'G') ? "GPU" : "CPU",
                         origin, "solver_mode"));
    }
    if ((gpu != NULL) && (ct_options_origin(o, "gpu") == origin)) {
        CT_TRY(set_field(c, "solver_mode", "GPU", origin, "gpu"));
        if (strcmp(gpu, "all") != 0) {
            CT_TRY(set_field(c, "device_id", gpu, origin, "gpu"));
        }
    }
    return CT_OK;
}

/* --run: snapshots lie in its folder. */
static ct_status apply_run(const ct_options *o, ct_config *c, ct_origin origin)
{
    const char *run = ct_options_text(o, "run");
    char prefix[PATH_MAX];

    if ((run == NULL) || c->is_model || (ct_options_origin(o, "run") != origin)) return CT_OK;
    for (int i = 0; i < c->n_set; i++)
        if (strcmp(c->set[i].path, "snapshot_prefix") == 0)
            return CT_FAIL(CT_ERR_CONFIG,
                           "--run=%s keeps the snapshots, but snapshot_prefix=%s is set, too: give "
                           "one of both",
                           run, c->set[i].value);
    if (snprintf(prefix, sizeof(prefix), "%s" CT_CONFIG_RUN_PREFIX, run) >= (int)sizeof(prefix))
        return CT_FAIL(CT_ERR_CONFIG, "--run: the path is too long");
    return set_field(c, "snapshot_prefix", prefix, origin, "run");
}

/* Every MemoryData layer of a net reads the file. *n_p: how many there were. */
static ct_status give_file(Ct__NetParameter *net, const char *file, int *n_p)
{
    for (size_t i = 0; (net != NULL) && (i < net->n_layer); i++) {
        Ct__MemoryDataParameter *m = net->layer[i]->memory_data_param;

        if (!ct_layer_param_is(net->layer[i], "MemoryData") || (m == NULL)) continue;
        free(m->source);
        m->source = strdup(file);
        if (m->source == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the nets");
        ++*n_p;
    }
    return CT_OK;
}

static ct_status apply_memory_data(const ct_options *o, ct_config *c)
{
    const char *file = ct_options_text(o, "memory_data");
    Ct__SolverParameter *s = c->solver;
    int n = 0;

    if (file == NULL) return CT_OK;
    if (access(file, R_OK) != 0)
        return CT_FAIL(CT_ERR_CONFIG, "--memory_data=%s: %s", file, strerror(errno));
    CT_TRY(give_file(s->net_param, file, &n));
    CT_TRY(give_file(s->train_net_param, file, &n));
    for (size_t i = 0; i < s->n_test_net_param; i++)
        CT_TRY(give_file(s->test_net_param[i], file, &n));
    if (n == 0)
        return CT_FAIL(CT_ERR_CONFIG, "--memory_data=%s: %s has no MemoryData layer to read it",
                       file, c->file);
    return note(c, "memory_data", file, ct_options_origin(o, "memory_data"));
}

/* A file's name may begin as what the text format has for strings and lists. */
static ct_status set_option(ct_config *c, const char *path, const char *value, ct_origin origin,
                            const char *who)
{
    ct_text quoted = { 0 };
    ct_status status;

    if (strchr("\"'[", value[0]) == NULL) return set_field(c, path, value, origin, who);
    ct_prototxt_quote(value, &quoted);
    status = quoted.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for %s", path)
                           : set_field(c, path, quoted.text, origin, who);
    ct_text_destroy(&quoted);
    return status;
}

static ct_status apply_origin(const ct_options *o, ct_config *c, ct_origin origin)
{
    const char *spec = ct_options_text(o, "compression");

    for (size_t i = 0; i < sizeof(field_table) / sizeof(field_table[0]); i++) {
        const char *value = ct_options_text(o, field_table[i].option);

        if ((value == NULL) || (ct_options_origin(o, field_table[i].option) != origin)) continue;
        if (c->is_model && (strcmp(field_table[i].option, "iterations") == 0)) continue;
        CT_TRY(set_option(c, field_table[i].path, value, origin, field_table[i].option));
    }
    CT_TRY(apply_mode(o, c, origin));
    if ((spec != NULL) && (ct_options_origin(o, "compression") == origin)) {
        CT_TRY(ct_config_compression(c->solver, spec, "compression"));
        CT_TRY(note(c, "compression", spec, origin));
    }
    if (c->is_model) CT_TRY(each_set(o, c, origin, true, refuse_net));
    return each_set(o, c, origin, false, set_field);
}

static ct_status add_messages(Ct__SolverParameter *s)
{
    if (s->comm == NULL) {
        s->comm = malloc(sizeof(*s->comm));
        if (s->comm == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the solver");
        ct__comm_parameter__init(s->comm);
    }
    if (s->compression == NULL) {
        s->compression = malloc(sizeof(*s->compression));
        if (s->compression == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the solver");
        ct__compression_parameter__init(s->compression);
    }
    return CT_OK;
}

static ct_status config_apply(const ct_options *o, ct_config *c)
{
    CT_TRY(add_messages(c->solver));
    CT_TRY(apply_origin(o, c, CT_ORIGIN_ENV));
    CT_TRY(apply_origin(o, c, CT_ORIGIN_COMMAND));
    CT_TRY(apply_memory_data(o, c));
    CT_TRY(apply_run(o, c, CT_ORIGIN_ENV));
    return apply_run(o, c, CT_ORIGIN_COMMAND);
}

static ct_status config_apply_settings(const char *const *settings, bool nets, ct_config *c)
{
    return each_setting(settings, c, nets, nets ? set_net : set_field);
}

static ct_status config_complete(ct_config *c, const char *mode)
{
    if (!c->solver->has_solver_mode)
        CT_TRY(set_field(c, "solver_mode", mode, CT_ORIGIN_DEFAULT, "default"));
    CT_TRY(ct_comm_check(c->solver, c->map));
    return ct_compression_check(c->solver, c->map);
}
