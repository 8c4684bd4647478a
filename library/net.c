/* Nets of the library: made, run, and their weights. */
#include "library/library.h"

#include <stdlib.h>
#include <string.h>

#include "framework/base/text.h"
#include "framework/math/math.h"
#include "framework/proto/upgrade.h"
#include "framework/snapshot/model.h"
#include "framework/snapshot/snapshot.h"

/* ---- making a net of the framework */

static void free_made(ct_made_net *m)
{
    free(m->most);
    ct_net_destroy(m->net);
    if (m->param != NULL) ct__net_parameter__free_unpacked(m->param, NULL);
    *m = (ct_made_net){ .net = NULL };
}

/* Behind a Filter blobs have fewer samples as soon as the net runs. */
static ct_status note_sizes(ct_made_net *m)
{
    const ct_net *net = m->net;

    m->most = calloc((size_t)net->n_blob + 1, sizeof(m->most[0]));
    if (m->most == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for sizes of blobs");
    for (int b = 0; b < net->n_blob; b++) m->most[b] = ct_tensor_count(&net->pass->blob[b]->data);
    return CT_OK;
}

/* As a job without options makes nets of that phase. */
static void fill_options(const cortado_net *n, bool whole, ct_net_options *o)
{
    const Ct__SolverParameter usual = CT__SOLVER_PARAMETER__INIT;

    *o = (ct_net_options){ .phase = n->phase, .forward_only = !n->trains, .fixed = true };
    o->unshared = o->no_fuse = whole;
    o->share = n->owner.net;
    o->share_learns = n->trains;
    o->end_diffs = n->forces;
    o->env.n_rank = 1;
    o->env.program = ct_public_layers();
    o->env.seed = n->seed;
    o->env.winograd = usual.winograd;
    o->env.precision = usual.precision;
}

/* Who runs a net from there gives them, or they are zero. */
static void clear_end_diffs(const ct_net *net)
{
    for (int i = 0; i < net->n_output; i++) {
        ct_blob *b = net->pass->blob[net->output[i].blob];

        if ((net->output[i].loss_weight != 0.0f) || (b->diff.data == NULL)) continue;
        memset(b->diff.data, 0, (size_t)ct_tensor_bytes(&b->diff));
    }
}

/* Of `param`, which it takes, and whose places map has; NULL: of the message, and map is NULL. */
static ct_status make(const cortado_net *n, bool whole, Ct__NetParameter *param,
                      const ct_source_map *map, ct_made_net *m)
{
    ct_net_options options;
    ct_status status = CT_OK;

    m->param = (param != NULL) ? param : ct__net_parameter__unpack(NULL, n->n_message, n->message);
    if (m->param == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a net's message");
    for (int v = 0; (v < n->n_view) && (status == CT_OK) && !whole; v++) {
        if (n->view[v].is_read) status = ct_value_reader_add(m->param, v, n->view[v].name);
    }
    fill_options(n, whole, &options);
    options.map = map;
    if (status == CT_OK) status = ct_net_create(m->param, &options, &m->net);
    if (status == CT_OK) status = note_sizes(m);
    if (status == CT_OK) m->net->pass->exec.seed = options.env.seed;
    if ((status == CT_OK) && options.end_diffs) clear_end_diffs(m->net);
    if (status != CT_OK) free_made(m);
    return status;
}

ct_status ct_library_make_again(cortado_net *n, bool whole)
{
    ct_made_net made = { .net = NULL };

    CT_TRY(make(n, whole, NULL, NULL, &made));
    free_made(&n->runs);
    n->runs = made;
    n->is_whole = whole;
    n->is_stale = false;
    return CT_OK;
}

/* What users hold they may have written to. */
static void note_weights(const cortado_net *n)
{
    if (!n->weights_out) return;
    ct_net_weights_changed(n->owner.net);
    if (n->runs.net != NULL) ct_net_weights_changed(n->runs.net);
}

static ct_status run_whole(cortado_net *n, int64_t batch)
{
    ct_net *net = ct_running(n);

    CT_TRY(ct_views_give(n, 0, net->n_layer - 1));
    net->pass->exec.micro_step = batch;
    note_weights(n);
    CT_TRY(ct_pass_forward(net->pass, &n->loss));
    n->has_run = true;
    return CT_OK;
}

ct_status ct_library_run_again(cortado_net *n)
{
    return (n->n_run > 0) ? run_whole(n, n->n_run - 1) : CT_OK;
}

/* ---- what the file says */

static const Ct__LayerParameter *layer_at(const cortado_net *n, int layer)
{
    if ((n == NULL) || (layer < 0) || (layer >= n->n_layer)) return NULL;
    return ct_net_file_layer(n->owner.net, n->layer[layer]);
}

static bool is_listed(const cortado_net *n, const char *name)
{
    for (int i = 0; i < n->n_blob; i++) {
        if (strcmp(n->blob[i], name) == 0) return true;
    }
    return false;
}

static ct_status list_names(cortado_net *n)
{
    const ct_net *net = n->owner.net;
    size_t tops = 0;

    for (int i = 0; i < net->n_layer; i++) tops += (size_t)net->layer[i]->n_top;
    n->layer = calloc((size_t)net->n_layer + 1, sizeof(n->layer[0]));
    n->blob = calloc(tops + 1, sizeof(n->blob[0]));
    if ((n->layer == NULL) || (n->blob == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a net's names");
    for (int i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *p = ct_net_file_layer(net, i);

        if (p == NULL) continue;
        n->layer[n->n_layer++] = i;
        for (size_t t = 0; t < p->n_top; t++) {
            if (!is_listed(n, p->top[t])) n->blob[n->n_blob++] = p->top[t];
        }
    }
    return CT_OK;
}

/* ---- open and close */

static ct_status keep_message(cortado_net *n, const Ct__NetParameter *param)
{
    n->n_message = ct__net_parameter__get_packed_size(param);
    n->message = malloc(n->n_message + 1);
    if (n->message == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a net's message");
    ct__net_parameter__pack(param, n->message);
    n->forces = param->has_force_backward && param->force_backward;
    n->trains = (n->phase == CT_TRAIN) || n->forces;
    return CT_OK;
}

/* What they keep must not be lost: such a net is never made again for the blobs asked for. */
static bool has_program_layers(const Ct__NetParameter *param)
{
    for (size_t i = 0; i < param->n_layer; i++) {
        if ((param->layer[i]->type != NULL) && (strcmp(param->layer[i]->type, "Python") == 0))
            return true;
    }
    return false;
}

static void close_net(cortado_net *n)
{
    ct_views_forget(n);
    free_made(&n->runs);
    if (n->is_shown) n->owner.net = NULL; /* the solver's */
    free_made(&n->owner);
    for (int i = 0; i < n->n_former; i++) free_made(&n->former[i]);
    free(n->former);
    free(n->layer);
    free(n->blob);
    free(n->message);
    free(n);
}

/* *param_p is NULL where the net has taken it. */
static ct_status open_param(Ct__NetParameter **param_p, const ct_source_map *map,
                            const char *weights, cortado_phase phase, cortado_net **net_p)
{
    cortado_net *n = calloc(1, sizeof(*n));
    Ct__NetParameter *param = *param_p;
    ct_status status;

    if (n == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a net");
    n->phase = (phase == CORTADO_TRAIN) ? CT_TRAIN : CT_TEST;
    if (!ct_public_seed(&n->seed)) n->seed = 1;
    CT_TRY_GOTO(status, out, keep_message(n, param));
    n->is_whole = n->trains || has_program_layers(param);
    *param_p = NULL;
    CT_TRY_GOTO(status, out, make(n, n->is_whole, param, map, &n->owner));
    CT_TRY_GOTO(status, out, list_names(n));
    if (weights != NULL) CT_TRY_GOTO(status, out, ct_weights_load_list(weights, n->owner.net));
    *net_p = n;
    return CT_OK;
out:
    close_net(n);
    return status;
}

/* text NULL: the file of that name. */
static ct_status open_net(const char *name, const char *text, const char *weights,
                          cortado_phase phase, cortado_net **net_p)
{
    ct_source_map *map;
    ProtobufCMessage *m = NULL;
    Ct__NetParameter *param = NULL;
    ct_status status;

    CT_TRY(ct_source_map_create(&map));
    if (text == NULL) {
        status = ct_net_read(name, map, &param);
    } else {
        status =
            ct_prototxt_parse(&ct__net_parameter__descriptor, name, text, strlen(text), map, &m);
        param = (Ct__NetParameter *)(void *)m;
        if (status == CT_OK) status = ct_net_upgrade(param, name, map);
    }
    if (status == CT_OK) status = open_param(&param, map, weights, phase, net_p);
    if (param != NULL) ct__net_parameter__free_unpacked(param, NULL);
    ct_source_map_destroy(map);
    return status;
}

static ct_status check_open(const char *name, const char *text, bool is_text, cortado_phase phase,
                            cortado_net **net_p)
{
    if ((name == NULL) || (net_p == NULL) || (is_text && (text == NULL)))
        return CT_FAIL(CT_ERR_ARG, "a net's file, or where the net goes, is NULL");
    if ((phase != CORTADO_TRAIN) && (phase != CORTADO_TEST))
        return CT_FAIL(CT_ERR_ARG, "phase %d: CORTADO_TRAIN or CORTADO_TEST", (int)phase);
    return CT_OK;
}

cortado_status cortado_net_open(const char *file, const char *weights, cortado_phase phase,
                                cortado_net **net_p)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = check_open(file, NULL, false, phase, net_p);
    if (status == CT_OK) status = open_net(file, NULL, weights, phase, net_p);
    return ct_public_end(&c, status);
}

cortado_status cortado_net_open_text(const char *text, const char *name, const char *weights,
                                     cortado_phase phase, cortado_net **net_p)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = check_open(name, text, true, phase, net_p);
    if (status == CT_OK) status = open_net(name, text, weights, phase, net_p);
    return ct_public_end(&c, status);
}

void cortado_net_close(cortado_net *net)
{
    if (net != NULL) close_net(net);
}

/* ---- a solver's nets */

ct_status ct_library_show(ct_net *net, bool keeps, const ct_solver *solver, cortado_net **net_p)
{
    cortado_net *n = calloc(1, sizeof(*n));
    ct_status status;

    if (n == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a net");
    n->phase = net->options.phase;
    n->owner.net = net;
    n->is_shown = true;
    n->visits = ct_net_has_visits((net->options.share != NULL) ? net->options.share : net);
    n->is_whole = keeps;
    n->trains = keeps && (solver != NULL);
    n->solver = solver;
    status = note_sizes(&n->owner);
    if (status == CT_OK) status = list_names(n);
    if (status == CT_OK)
        *net_p = n;
    else
        close_net(n);
    return status;
}

/* The net that learns takes the batch of the step that is next. */
static void find_batch(cortado_net *n)
{
    if (n->solver != NULL) n->n_run = ct_solver_iteration(n->solver) * ct_solver_batches(n->solver);
}

ct_status ct_library_before_steps(cortado_net *n)
{
    if (n->weights_out) ct_net_weights_changed(n->owner.net);
    return ct_views_give(n, 0, n->owner.net->n_layer - 1);
}

ct_status ct_library_after_steps(cortado_net *n)
{
    find_batch(n);
    if (n->n_run == 0) return CT_OK;
    n->has_run = true;
    CT_TRY(ct_views_take(n, 0, n->owner.net->n_layer - 1));
    return n->trains ? ct_views_take_diffs(n, 0, n->owner.net->n_layer - 1) : CT_OK;
}

/* ---- names */

const char *cortado_net_name(const cortado_net *net)
{
    return ((net != NULL) && (net->owner.net->name != NULL)) ? net->owner.net->name : "";
}

int cortado_net_layer_count(const cortado_net *net)
{
    return (net != NULL) ? net->n_layer : 0;
}

const char *cortado_net_layer_name(const cortado_net *net, int layer)
{
    const Ct__LayerParameter *p = layer_at(net, layer);

    return (p != NULL) ? p->name : NULL;
}

const char *cortado_net_layer_type(const cortado_net *net, int layer)
{
    const Ct__LayerParameter *p = layer_at(net, layer);

    return (p != NULL) ? p->type : NULL;
}

const char *cortado_net_bottom_name(const cortado_net *net, int layer, int i)
{
    const Ct__LayerParameter *p = layer_at(net, layer);

    return ((p != NULL) && (i >= 0) && ((size_t)i < p->n_bottom)) ? p->bottom[i] : NULL;
}

const char *cortado_net_top_name(const cortado_net *net, int layer, int i)
{
    const Ct__LayerParameter *p = layer_at(net, layer);

    return ((p != NULL) && (i >= 0) && ((size_t)i < p->n_top)) ? p->top[i] : NULL;
}

int cortado_net_weight_count(const cortado_net *net, int layer)
{
    return (layer_at(net, layer) != NULL) ? net->owner.net->layer[net->layer[layer]]->n_weight : 0;
}

const char *cortado_net_blob_name(const cortado_net *net, int i)
{
    return ((net != NULL) && (i >= 0) && (i < net->n_blob)) ? net->blob[i] : NULL;
}

const char *cortado_net_input_name(const cortado_net *net, int i)
{
    for (int l = 0; l < cortado_net_layer_count(net); l++) {
        const Ct__LayerParameter *p = layer_at(net, l);

        if (strcmp(p->type, "Input") != 0) continue;
        if ((i >= 0) && ((size_t)i < p->n_top)) return p->top[i];
        i -= (int)p->n_top;
    }
    return NULL;
}

double cortado_net_loss_weight(const cortado_net *net, const char *blob)
{
    const ct_net *n = (net != NULL) ? net->owner.net : NULL;

    for (int i = 0; (n != NULL) && (blob != NULL) && (i < n->n_output); i++) {
        if (strcmp(n->pass->blob[n->output[i].blob]->name, blob) == 0)
            return n->output[i].loss_weight;
    }
    return 0;
}

const char *cortado_net_output_name(const cortado_net *net, int i)
{
    const ct_net *n = (net != NULL) ? net->owner.net : NULL;

    return ((n != NULL) && (i >= 0) && (i < n->n_output)) ? n->pass->blob[n->output[i].blob]->name
                                                          : NULL;
}

/* ---- blobs and weights */

static void describe(const ct_shape *s, float *data, float *diff, cortado_blob *blob)
{
    *blob = (cortado_blob){ .data = data, .diff = diff, .n_dim = s->ndim };
    blob->count = ct_shape_count(s, 0, -1);
    for (int k = 0; k < s->ndim; k++) blob->dim[k] = s->dim[k];
}

static ct_status get_blob(cortado_net *n, const char *name, cortado_blob *blob)
{
    ct_view *v;

    CT_TRY(ct_view_of(n, name, &v));
    if (n->is_stale && (n->n_run > 0)) {
        CT_TRY(ct_library_make_again(n, false));
        CT_TRY(ct_library_run_again(n));
        CT_TRY(ct_views_take(n, 0, ct_running(n)->n_layer - 1));
    }
    describe(&v->shape, v->data, v->diff, blob);
    return CT_OK;
}

cortado_status cortado_net_blob(cortado_net *net, const char *name, cortado_blob *blob)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = ((net == NULL) || (name == NULL) || (blob == NULL))
                 ? CT_FAIL(CT_ERR_ARG, "a net, a blob's name, or where the blob goes, is NULL")
                 : get_blob(net, name, blob);
    return ct_public_end(&c, status);
}

/* In what runs, by the file's name; *layer_p of its last part. */
static ct_status find_layer(const ct_net *net, const char *name, int *layer_p)
{
    const char *near;
    const char **known;
    int at = ct_net_find_layer(net, name);

    *layer_p = at;
    if (at >= 0) return CT_OK;
    known = calloc((size_t)net->n_layer + 1, sizeof(known[0]));
    if (known == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for names of layers");
    for (int i = 0; i < net->n_layer; i++) known[i] = net->layer[i]->name;
    near = ct_text_nearest(name, known, net->n_layer);
    free(known);
    return CT_FAIL(CT_ERR_ARG, "the net has no layer \"%s\"%s%s%s", name,
                   (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                   (near != NULL) ? "\"?" : "");
}

/* What is to be done with the weights can be done between steps. */
static ct_status check_weights(const cortado_net *n)
{
    if (!n->visits) return CT_OK;
    return CT_FAIL(CT_ERR_ARG, "`memory { }` of the solver keeps the weights elsewhere between "
                               "steps; a snapshot of the solver has them");
}

/* Nobody reads a gradient that others are written over. */
static float *diff_of(const ct_net *net, const ct_param *p)
{
    bool shared = (net->options.window != NULL) && (p->chunk >= 0);

    return shared ? NULL : ct_blob_diff(&p->blob);
}

static ct_status get_weight(cortado_net *n, const char *layer, int i, cortado_blob *blob)
{
    const ct_net *net = n->owner.net, *with = net;
    const ct_param *p;
    float *diff;
    int at;

    CT_TRY(check_weights(n));
    CT_TRY(find_layer(net, layer, &at));
    if ((i < 0) || (i >= net->layer[at]->n_weight))
        return CT_FAIL(CT_ERR_ARG, "layer \"%s\" has %d weights, so there is none of number %d",
                       layer, net->layer[at]->n_weight, i);
    p = &net->param[ct_net_param_of(net, at, i)];
    n->weights_out = true;
    if (n->trains) with = ct_running(n); /* the same, but for shapes */
    diff = diff_of(with, &with->param[ct_net_param_of(with, at, i)]);
    describe(&p->blob.data.shape, ct_blob_data(&p->blob), diff, blob);
    return CT_OK;
}

cortado_status cortado_net_weight(cortado_net *net, const char *layer, int i, cortado_blob *blob)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = ((net == NULL) || (layer == NULL) || (blob == NULL))
                 ? CT_FAIL(CT_ERR_ARG, "a net, a layer's name, or where the weight goes, is NULL")
                 : get_weight(net, layer, i, blob);
    return ct_public_end(&c, status);
}

/* ---- runs */

/* Layers that the net added in front of one of the file's bring it what it reads. */
static int with_added(const cortado_net *n, int layer)
{
    const ct_net *net = ct_running(n);

    while ((layer > 0) && (ct_net_file_layer(net, layer - 1) == NULL)) layer--;
    return layer;
}

static bool has_data(const ct_net *net, int from, int to)
{
    for (int i = from; i <= to; i++) {
        if (net->layer[i]->ops->is_data) return true;
    }
    return false;
}

static ct_status range(const cortado_net *n, const char *first, const char *last, int *from_p,
                       int *to_p)
{
    const ct_net *net = ct_running(n);

    *from_p = 0;
    *to_p = net->n_layer - 1;
    if (first != NULL) CT_TRY(find_layer(net, first, from_p));
    if (last != NULL) CT_TRY(find_layer(net, last, to_p));
    if (*from_p <= *to_p) return CT_OK;
    return CT_FAIL(CT_ERR_ARG, "layer \"%s\" runs behind layer \"%s\"", net->layer[*from_p]->name,
                   net->layer[*to_p]->name);
}

static ct_status forward_all(cortado_net *n)
{
    CT_TRY(check_weights(n));
    find_batch(n);
    if (n->is_stale) CT_TRY(ct_library_make_again(n, false));
    CT_TRY(run_whole(n, n->n_run));
    n->n_run++;
    return ct_views_take(n, 0, ct_running(n)->n_layer - 1);
}

static ct_status forward_part(cortado_net *n, const char *first, const char *last)
{
    ct_net *net;
    int from, to;

    CT_TRY(check_weights(n));
    CT_TRY(range(n, first, last, &from, &to));
    if (!n->is_whole && n->is_shown)
        return CT_FAIL(CT_ERR_ARG,
                       "values of the solver's nets share memory, so they run as a whole: "
                       "CORTADO_KEEP_ALL");
    if (!n->is_whole) {
        CT_TRY(ct_library_make_again(n, true));
        CT_TRY(ct_library_run_again(n));
        CT_TRY(range(n, first, last, &from, &to));
    }
    net = ct_running(n);
    from = with_added(n, from);
    CT_TRY(ct_views_give(n, from, to));
    if (has_data(net, from, to)) {
        find_batch(n);
        n->n_run++;
    }
    if (n->n_run == 0) n->n_run = 1;
    net->pass->exec.micro_step = n->n_run - 1;
    note_weights(n);
    CT_TRY(ct_pass_forward_layers(net->pass, from, to, &n->loss));
    n->has_run = true;
    return ct_views_take(n, from, to);
}

cortado_status cortado_net_forward(cortado_net *net, const char *from, const char *to)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    if (net == NULL)
        status = CT_FAIL(CT_ERR_ARG, "the net to run is NULL");
    else
        status = ((from == NULL) && (to == NULL)) ? forward_all(net) : forward_part(net, from, to);
    return ct_public_end(&c, status);
}

static ct_status backward(cortado_net *n, const char *first, const char *last)
{
    ct_net *net = ct_running(n);
    int from, to;

    if (!n->trains && n->is_shown)
        return CT_FAIL(CT_ERR_ARG,
                       "a net that a solver tests with, or keeps no values of, does not "
                       "run backward: CORTADO_KEEP_ALL");
    if (!n->trains)
        return CT_FAIL(CT_ERR_ARG, "the net was opened to run forward alone: CORTADO_TRAIN, or "
                                   "force_backward in its file, gives it gradients");
    if (net->options.window != NULL)
        return CT_FAIL(CT_ERR_ARG, "`memory { }` of the solver lets gradients share memory, so "
                                   "layers run backward in steps alone");
    if (net->n_backward == 0)
        return CT_FAIL(CT_ERR_ARG, "the net has no loss that a gradient could come from");
    if (!n->has_run) return CT_FAIL(CT_ERR_ARG, "a forward comes before the first backward");
    CT_TRY(range(n, last, first, &from, &to));
    CT_TRY(ct_views_give_diffs(n, from, to));
    CT_TRY(ct_pass_backward_layers(net->pass, from, to));
    return ct_views_take_diffs(n, from, to);
}

cortado_status cortado_net_backward(cortado_net *net, const char *from, const char *to)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status =
        (net == NULL) ? CT_FAIL(CT_ERR_ARG, "the net to run is NULL") : backward(net, from, to);
    return ct_public_end(&c, status);
}

double cortado_net_loss(const cortado_net *net)
{
    return (net != NULL) ? net->loss : 0;
}

/* ---- another shape of an input */

static ct_status check_shape(const cortado_shape *shape, ct_shape *s)
{
    if ((shape->n_dim < 0) || (shape->n_dim > CT_MAX_DIM))
        return CT_FAIL(CT_ERR_SHAPE, "input \"%s\": a shape of %d axes: 0 to %d", shape->input,
                       shape->n_dim, CT_MAX_DIM);
    *s = (ct_shape){ .ndim = shape->n_dim };
    for (int k = 0; k < s->ndim; k++) {
        s->dim[k] = shape->dim[k];
        if (s->dim[k] < 0)
            return CT_FAIL(CT_ERR_SHAPE, "input \"%s\": axis %d of %lld elements", shape->input, k,
                           (long long)s->dim[k]);
    }
    if (ct_shape_is_valid(s)) return CT_OK;
    return CT_FAIL(CT_ERR_SHAPE, "input \"%s\": the shape %s is too large", shape->input,
                   ct_shape_str(s).text);
}

/* Input says one shape for all of its tops, or one each. */
static ct_status set_shape(Ct__NetParameter *param, const char *input, const ct_shape *s)
{
    for (size_t i = 0; i < param->n_layer; i++) {
        Ct__LayerParameter *p = param->layer[i];

        if (strcmp(p->type, "Input") != 0) continue;
        for (size_t t = 0; t < p->n_top; t++) {
            ct_text value = { 0 }, path = { 0 };
            ct_status status = CT_OK;

            if (strcmp(p->top[t], input) != 0) continue;
            if (p->input_param->n_shape != p->n_top)
                return CT_FAIL(CT_ERR_SHAPE,
                               "layer \"%s\" has one shape for %zu tops, so none gets "
                               "another alone",
                               p->name, p->n_top);
            ct_text_add(&path, "layer[%zu].input_param.shape[%zu].dim", i, t);
            ct_text_add(&value, "[");
            for (int k = 0; k < s->ndim; k++)
                ct_text_add(&value, "%s%lld", (k > 0) ? ", " : "", (long long)s->dim[k]);
            ct_text_add(&value, "]");
            status = (path.failed || value.failed)
                         ? CT_FAIL(CT_ERR_NOMEM, "no memory for a shape")
                         : ct_prototxt_set(&param->base, path.text, value.text, "a reshape");
            ct_text_destroy(&path);
            ct_text_destroy(&value);
            return status;
        }
    }
    return CT_FAIL(CT_ERR_ARG, "the net has no input \"%s\"", input);
}

/* Blobs that were handed out go to *kept_p; NULL: their memory goes. */
static ct_status reshape(cortado_net *n, int n_shape, const cortado_shape *shape,
                         cortado_kept **kept_p)
{
    Ct__NetParameter *param = ct__net_parameter__unpack(NULL, n->n_message, n->message);
    cortado_net with = *n; /* views apart, which the new shape has none of */
    ct_made_net made = { .net = NULL };
    cortado_kept *kept = NULL;
    ct_status status = CT_OK;

    with.message = NULL;
    with.view = NULL;
    with.n_view = 0;
    if (param == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a net's message");
    for (int i = 0; (i < n_shape) && (status == CT_OK); i++) {
        ct_shape s;

        status = check_shape(&shape[i], &s);
        if (status == CT_OK) status = set_shape(param, shape[i].input, &s);
    }
    if (status == CT_OK) status = keep_message(&with, param);
    if (status == CT_OK) status = make(&with, n->is_whole, NULL, NULL, &made);
    ct__net_parameter__free_unpacked(param, NULL);
    if ((status == CT_OK) && (kept_p != NULL)) status = ct_views_keep(n, &kept);
    if (status != CT_OK) {
        free_made(&made);
        free(with.message);
        return status;
    }
    ct_views_forget(n);
    free(n->message);
    n->message = with.message;
    n->n_message = with.n_message;
    free_made(&n->runs);
    n->runs = made;
    n->n_run = 0;
    n->has_run = false;
    if (kept_p != NULL) *kept_p = kept;
    return CT_OK;
}

static ct_status check_reshape(const cortado_net *n, int n_shape, const cortado_shape *shape)
{
    if ((n == NULL) || (n_shape < 0) || ((shape == NULL) && (n_shape > 0)))
        return CT_FAIL(CT_ERR_ARG, "a net, or the shapes of its inputs, are NULL");
    for (int i = 0; i < n_shape; i++) {
        if (shape[i].input == NULL)
            return CT_FAIL(CT_ERR_ARG, "the name of an input to reshape is NULL");
    }
    if (n->is_shown)
        return CT_FAIL(CT_ERR_ARG, "a net that a solver has keeps its shapes: open one of its own");
    return CT_OK;
}

cortado_status cortado_net_reshape(cortado_net *net, const char *input, int n_dim,
                                   const int64_t *dim)
{
    cortado_shape shape = { .input = input, .n_dim = n_dim };
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = ((dim == NULL) && (n_dim > 0)) ? CT_FAIL(CT_ERR_ARG, "the shape of an input is NULL")
                                            : check_reshape(net, 1, &shape);
    for (int k = 0; (status == CT_OK) && (n_dim <= CT_MAX_DIM) && (k < n_dim); k++)
        shape.dim[k] = dim[k];
    if (status == CT_OK) status = reshape(net, 1, &shape, NULL);
    return ct_public_end(&c, status);
}

cortado_status cortado_net_reshape_inputs(cortado_net *net, int n, const cortado_shape *shape,
                                          cortado_kept **kept_p)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = (kept_p == NULL) ? CT_FAIL(CT_ERR_ARG, "where the kept memory goes is NULL")
                              : check_reshape(net, n, shape);
    if (status == CT_OK) status = reshape(net, n, shape, kept_p);
    return ct_public_end(&c, status);
}

void cortado_kept_free(cortado_kept *kept)
{
    ct_views_free_kept(kept);
}

/* ---- weights of another net */

/* What the other net has no layer for stays. */
static void keep_own(const ct_net *from, ct_net *to)
{
    for (int i = 0; i < to->n_param; i++) {
        const ct_param *p = &to->param[i];

        for (int k = 0; !p->borrowed && (k < from->n_param); k++)
            if (strcmp(from->param[k].key, p->key) == 0)
                memcpy(ct_blob_data(&p->blob), ct_blob_data(&from->param[k].blob),
                       (size_t)p->count * sizeof(float));
    }
}

/* The net is made again over the other's weights. */
static ct_status share(cortado_net *n, const cortado_net *other)
{
    cortado_net with = *n;
    ct_made_net made = { .net = NULL }, *former;
    ct_status status;

    former = realloc(n->former, ((size_t)n->n_former + 1) * sizeof(former[0]));
    if (former == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a net's weights");
    n->former = former;
    with.owner.net = other->owner.net;
    with.n_view = 0; /* what is read at the end belongs to the net that runs */
    CT_TRY(make(&with, n->is_whole, NULL, NULL, &made));
    with.owner = made;
    with.layer = NULL;
    with.blob = NULL;
    with.n_layer = with.n_blob = 0;
    status = list_names(&with);
    if (status != CT_OK) {
        free(with.layer);
        free(with.blob);
        free_made(&made);
        return status;
    }
    keep_own(n->owner.net, made.net);
    free_made(&n->runs);
    n->has_run = false;
    n->former[n->n_former++] = n->owner; /* which has the names of views, too */
    n->owner = made;
    free(n->layer);
    free(n->blob);
    n->layer = with.layer;
    n->blob = with.blob;
    for (int v = 0; v < n->n_view; v++) n->is_stale |= n->view[v].is_read && !n->is_whole;
    n->weights_out = true; /* the other's users may write to them */
    n->in_groups = other->in_groups;
    return CT_OK;
}

cortado_status cortado_net_share(cortado_net *net, const cortado_net *other)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    if ((net == NULL) || (other == NULL))
        status = CT_FAIL(CT_ERR_ARG, "a net, or the one whose weights it is to have, is NULL");
    else if (net == other)
        status = CT_FAIL(CT_ERR_ARG, "a net has its own weights already");
    else if (net->is_shown)
        status = CT_FAIL(CT_ERR_ARG, "a net that a solver has keeps weights of its own");
    else
        status = check_weights(other);
    if (status == CT_OK) status = share(net, other);
    return ct_public_end(&c, status);
}

/* ---- weights in files */

/* Groups of ranks count a change of weights as what they have learned. */
static ct_status load(const cortado_net *n, const char *files)
{
    CT_TRY(check_weights(n));
    if (n->in_groups)
        return CT_FAIL(
            CT_ERR_ARG,
            "with `outer` of the solver the net's weights are those of a group, and what "
            "is loaded would count as its steps: take cortado_solver_load()");
    return ct_weights_load_list(files, n->owner.net);
}

cortado_status cortado_net_load(cortado_net *net, const char *files)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = ((net == NULL) || (files == NULL))
                 ? CT_FAIL(CT_ERR_ARG, "a net, or the name of its weights, is NULL")
                 : load(net, files);
    if ((status == CT_OK) && (net->runs.net != NULL)) ct_net_weights_changed(net->runs.net);
    return ct_public_end(&c, status);
}

static ct_status save(const cortado_net *n, const char *file)
{
    ct_model *m;
    ct_status status;

    CT_TRY(check_weights(n));
    CT_TRY(ct_model_of_net(n->owner.net, NULL, NULL, &m));
    status = ct_model_save(m, file);
    ct_model_close(m);
    return status;
}

cortado_status cortado_net_save(const cortado_net *net, const char *file)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = ((net == NULL) || (file == NULL))
                 ? CT_FAIL(CT_ERR_ARG, "a net, or the name of its weights, is NULL")
                 : save(net, file);
    return ct_public_end(&c, status);
}
