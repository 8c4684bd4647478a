/* Making, freeing and asking a net, and its fingerprints. */
#include <stdlib.h>
#include <string.h>

#include "framework/base/hash.h"
#include "framework/net/net_impl.h"

/* What only devices have is refused before anything is computed in something else. */
static ct_status check_precision(const ct_net *net)
{
    const ct_net_options *o = &net->options;

    bool tf32 = (o->env.precision == CT__SOLVER_PARAMETER__PRECISION__TF32);
    bool fp16 = (o->env.precision == CT__SOLVER_PARAMETER__PRECISION__FP16);

    if ((o->dev->kind != CT_DEVICE_CPU) || o->no_data || !(tf32 || fp16)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "precision %s is for GPUs, and this run is on the CPU: F32 or BF16 there",
                   tf32 ? "TF32" : "FP16");
}

/* All that comes before memory. */
static ct_status plan(ct_net *net, const Ct__NetParameter *param)
{
    CT_TRY(check_precision(net));
    CT_TRY(ct_net_build(net, param));
    CT_TRY(ct_net_fuse(net));
    CT_TRY(ct_pass_vary(net->pass));
    CT_TRY(ct_net_params(net));
    CT_TRY(ct_net_arenas(net));
    CT_TRY(ct_net_chunks(net));
    CT_TRY(ct_net_steps(net));
    if (!net->options.unshared) CT_TRY(ct_net_share_diffs(net));
    CT_TRY(ct_net_recompute(net));
    CT_TRY(ct_net_fetches(net));
    CT_TRY(ct_net_lifetimes(net));
    CT_TRY(ct_net_place(net));
    return ct_net_fit(net);
}

static ct_status make(ct_net *net, const Ct__NetParameter *param)
{
    ct_status status = plan(net, param);

    if (net->options.agree != NULL) status = net->options.agree(net->options.agree_ctx, status);
    return (status == CT_OK) ? ct_net_memory(net) : status;
}

ct_status ct_net_create(const Ct__NetParameter *param, const ct_net_options *options,
                        ct_net **net_p)
{
    ct_net *net = calloc(1, sizeof(*net));
    ct_net_impl *m = calloc(1, sizeof(*m));
    const char *unshared = getenv("CORTADO_UNSHARED");
    ct_status status;

    if ((net == NULL) || (m == NULL)) {
        free(net);
        free(m);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a net");
    }
    net->impl = m;
    net->name = (param->name != NULL) ? param->name : "";
    net->class_name = param->class_name;
    net->n_class_name = (int64_t)param->n_class_name;
    net->options = *options;
    net->options.unshared |= (unshared != NULL) && (strcmp(unshared, "1") == 0);
    if (net->options.dev == NULL) net->options.dev = ct_device_cpu();
    if (net->options.env.n_rank == 0) net->options.env.n_rank = 1;
    net->options.env.in_flight = options->in_flight;
    net->options.env.no_data |= options->no_data;
    net->options.env.synthetic |= options->no_data; /* shapes of data that is not there */
    m->untimed = net->options.env;
    m->untimed.plan = NULL;
    m->forward_only = ct_net_runs_forward_only(options);
    m->varying = m->untimed;
    m->varying.rows_vary = true;
    m->no_fuse = !param->fuse;
    net->recompute =
        (param->recompute > options->recompute) ? param->recompute : options->recompute;
    if (options->n_again > 0) net->recompute = CT__RECOMPUTE__BLOCKS;
    m->force_backward = param->has_force_backward && param->force_backward;
    if ((param->state != NULL) && param->state->has_phase &&
        ((param->state->phase == CT__PHASE__TEST) != (options->phase == CT_TEST)))
        CT_WARN("net \"%s\": its state says phase %s, but it runs in phase %s", net->name,
                (options->phase == CT_TEST) ? "TRAIN" : "TEST",
                (options->phase == CT_TEST) ? "TEST" : "TRAIN");
    status = make(net, param);
    if (status != CT_OK) {
        ct_net_destroy(net);
        return status;
    }
    *net_p = net;
    return CT_OK;
}

/* Half-built ones: a type that has state is asked only where it was given some. */
static void destroy_layer(ct_layer *l)
{
    if (l == NULL) return;
    if ((l->ops->destroy != NULL) && ((l->ops->state_size == 0) || (l->state != NULL)))
        l->ops->destroy(l);
    free(l->state);
    free(l);
}

void ct_net_destroy(ct_net *net)
{
    ct_net_impl *m;

    if (net == NULL) return;
    m = ct_net_impl_of(net);
    ct_pass_destroy(net->pass);
    for (int i = 0; i < net->n_layer; i++) destroy_layer(net->layer[i]);
    free(net->layer);
    ct_net_arenas_release(net);
    ct_net_memory_release(net);
    free(net->param);
    for (int k = 0; k < net->n_param; k++) free(m->key[k]);
    free(m->key);
    free(m->rule);
    free(m->data_root);
    free(m->diff_root);
    free(m->again);
    free(m->reruns);
    free(m->runner);
    free(m->place);
    free(m->unit);
    free(m->forward_step);
    ct_graph_destroy(&m->graph);
    free(net->forward);
    free(net->backward);
    free(net->output);
    free(m);
    free(net);
}

int ct_net_find_blob(const ct_net *net, const char *name)
{
    /* of a name that is made again and again the last is meant */
    for (int b = net->n_blob - 1; b >= 0; b--) {
        if (strcmp(net->pass->blob[b]->name, name) == 0) return b;
    }
    return -1;
}

const Ct__LayerParameter *ct_net_file_layer(const ct_net *net, int layer)
{
    const ct_graph_node *n = &ct_net_impl_of(net)->graph.node[layer];

    return (n->own == NULL) ? n->param : NULL;
}

int ct_net_find_layer(const ct_net *net, const char *name)
{
    int found = -1;

    for (int i = 0; i < net->n_layer; i++) {
        if (strcmp(net->layer[i]->name, name) != 0) continue;
        /* of two layers of one name, at most one has weights: that one */
        if ((found < 0) || (net->layer[i]->n_weight > 0)) found = i;
    }
    return found;
}

bool ct_net_output_evaluates(const ct_net *net, int i)
{
    return net->layer[net->output[i].layer]->ops->evaluates;
}

int64_t ct_net_output_count(const ct_net *net, int i)
{
    const ct_blob *b = net->pass->blob[net->output[i].blob];

    if (ct_net_output_evaluates(net, i)) return 1;
    return b->varies ? 0 : ct_tensor_count(&b->data);
}

int ct_net_find_param(const ct_net *net, const char *key)
{
    for (int k = 0; k < net->n_param; k++) {
        if (strcmp(net->param[k].key, key) == 0) return k;
    }
    return -1;
}

int ct_net_param_of(const ct_net *net, int layer, int i)
{
    return ct_net_impl_of(net)->graph.node[layer].param_of[i];
}

bool ct_net_rounds(const ct_net *net, const ct_param *p)
{
    int owner = ct_net_find_layer(net, p->layer), k;
    bool read = false;

    if (owner < 0) return false; /* parameters without layers */
    k = ct_net_param_of(net, owner, p->index);
    for (int l = 0; l < net->n_layer; l++) {
        const ct_layer *layer = net->layer[l];

        for (int w = 0; w < layer->n_weight; w++) {
            if (ct_net_param_of(net, l, w) != k) continue;
            read = true;
            if ((layer->ops->rounds == NULL) ||
                !layer->ops->rounds(layer, net->pass->instance[l], w))
                return false;
        }
    }
    return read;
}

/* ---- fingerprints of a net's structure and of its weights */

#define FNV_START 0xcbf29ce484222325u
#define FNV_PRIME 0x100000001b3u

static uint64_t add_bytes(uint64_t h, const void *data, size_t n)
{
    const unsigned char *byte = data;

    for (size_t i = 0; i < n; i++) h = (h ^ byte[i]) * FNV_PRIME;
    return h;
}

static uint64_t add_int(uint64_t h, int64_t v)
{
    unsigned char byte[8];

    for (int i = 0; i < 8; i++) byte[i] = (unsigned char)((uint64_t)v >> (8 * i));
    return add_bytes(h, byte, sizeof(byte));
}

/* Without the dimension `batch`; -1: all of them. */
static uint64_t add_shape(uint64_t h, const ct_shape *s, int batch)
{
    h = add_int(h, s->ndim);
    for (int i = 0; i < s->ndim; i++) {
        if (i != batch) h = add_int(h, s->dim[i]);
    }
    return h;
}

int64_t ct_net_tokens(const ct_net *net)
{
    int64_t most = 0, batch = net->batch_local;

    for (int i = 0; (batch > 0) && (i < net->n_layer); i++) {
        int64_t n;

        if (!net->layer[i]->ops->reads_tokens) continue;
        n = ct_tensor_count(&net->pass->instance[i]->bottom[0]->data);
        if ((n % batch == 0) && (n / batch > most)) most = n / batch;
    }
    return (most > 1) ? most * net->batch_global : 0;
}

void ct_net_options_alone(ct_net_options *o)
{
    o->env.rank = 0;
    o->env.n_rank = 1;
    o->env.place = NULL;
    o->env.group = NULL;
    o->env.plan = NULL;
    o->env.no_data = o->no_data = true;
    o->grad_arena = NULL;
    o->agree = NULL;
    o->share = NULL;
}

/* The value that a layer which makes up the net made. */
static const ct_value *source_of(const ct_graph *g, int value)
{
    const ct_value *v = &g->value[value];

    while (g->node[v->node].ops->by_net && (g->node[v->node].n_bottom > 0))
        v = &g->value[g->node[v->node].bottom[0]];
    return v;
}

/* Which layer's weight it is, by number: sharing is part of the structure, the order in the arena
 * is not. */
static uint64_t add_owner(uint64_t h, const ct_net *net, int param)
{
    const ct_param *p = &net->param[param];

    return add_int(add_int(h, ct_net_impl_of(net)->graph.node[p->owner].number), p->index);
}

uint64_t ct_net_hash(const ct_net *net)
{
    const ct_graph *g = &ct_net_impl_of(net)->graph;
    uint64_t h = FNV_START;

    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];
        const ct_graph_node *n = &g->node[i];

        if (l->ops->by_net) continue;
        h = add_bytes(h, l->ops->type, strlen(l->ops->type) + 1);
        h = add_int(add_int(h, n->n_bottom), n->n_top);
        for (int b = 0; b < n->n_bottom; b++) {
            const ct_value *v = source_of(g, n->bottom[b]);

            h = add_int(h, g->node[v->node].number);
            h = add_int(h, v->top);
        }
        for (int t = 0; t < n->n_top; t++)
            h = add_shape(h, ct_net_most(net, g->value[n->top[t]].blob), net->batch_axis);
        for (int w = 0; w < l->n_weight; w++) {
            h = add_shape(h, &l->weight[w].shape, -1);
            h = add_owner(h, net, n->param_of[w]);
        }
    }
    return h;
}

/* Bytes on a device, through a small window on the host. */
static ct_status add_device(const ct_device *dev, const char *data, size_t n, ct_hash *h)
{
    char window[16384];

    for (size_t at = 0; at < n; at += sizeof(window)) {
        size_t part = (n - at < sizeof(window)) ? n - at : sizeof(window);

        CT_TRY(dev->to_host(NULL, window, data + at, part));
        ct_hash_add(h, window, part);
    }
    return CT_OK;
}

uint64_t ct_net_checksum(const ct_net *net, bool statistics)
{
    const ct_device *dev = net->options.dev;
    ct_hash h;

    if (net->settled) return net->settled_sum[statistics];
    ct_hash_init(&h);
    for (int k = 0; k < net->n_param; k++) {
        const ct_param *p = &net->param[k];
        size_t bytes = (size_t)p->count * sizeof(float);

        if (ct_net_param_visits(net, p)) continue; /* elsewhere */
        if ((p->blob.data.data == NULL) || (!statistics && (p->kind == CT_WEIGHT_STATISTIC)))
            continue;
        if (dev->kind == CT_DEVICE_CPU)
            ct_hash_add(&h, p->blob.data.data, bytes);
        else if (add_device(dev, p->blob.data.data, bytes, &h) != CT_OK)
            return 0; /* logged */
    }
    return ct_hash_value(&h);
}
