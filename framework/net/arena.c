/* The arenas of weights and gradients, the first values, and the instances' views. */
#include "framework/base/rng.h"
#include "framework/net/net_impl.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN_ELEMENTS ((int64_t)(CT_ALIGN / sizeof(float)))

/* Takes the weights of layers that options.share has too. */
static ct_status borrow(ct_net *net)
{
    const ct_net *from = net->options.share;

    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];
        int other = ct_net_find_layer(from, l->name);

        if (l->n_weight == 0) continue;
        if (other < 0) {
            CT_WARN("%s%slayer \"%s\" (%s): the net whose weights this one uses has no such layer; "
                    "it keeps its own initial weights",
                    l->where, (l->where[0] != '\0') ? ": " : "", l->name, l->ops->type);
            continue;
        }
        if (from->layer[other]->n_weight != l->n_weight)
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                                 "it has %d weight blobs, but %d in the net whose weights it uses",
                                 l->n_weight, from->layer[other]->n_weight);
        for (int w = 0; w < l->n_weight; w++) {
            const ct_shape *theirs = &from->layer[other]->weight[w].shape;
            const ct_param *source = &from->param[ct_net_param_of(from, other, w)];
            ct_param *p = &net->param[ct_net_param_of(net, i, w)];

            if (!ct_shape_equal(theirs, &l->weight[w].shape))
                return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                                     "weight blob %d has the shape %s, but %s in the net whose "
                                     "weights it uses",
                                     w, ct_shape_str(&l->weight[w].shape).text,
                                     ct_shape_str(theirs).text);
            p->borrowed = true;
            p->offset = source->offset;
            p->blob.data.data = source->blob.data.data;
        }
    }
    return CT_OK;
}

static void lay_out(ct_net *net)
{
    int64_t at = 0;

    for (int k = 0; k < net->n_param; k++) {
        ct_param *p = &net->param[k];

        if (p->borrowed) continue;
        p->offset = at;
        at += (p->count + ALIGN_ELEMENTS - 1) / ALIGN_ELEMENTS * ALIGN_ELEMENTS;
        if (p->learns) net->grad_count = at;
    }
    net->weight_count = at;
    net->memory.weights = (size_t)(net->weight_count + net->grad_count) * sizeof(float);
}

static ct_status acquire(ct_net *net)
{
    const ct_device *dev = net->options.dev;
    const ct_arena_ops *arena = net->options.grad_arena;
    void *block;

    if (net->weight_count > 0) {
        CT_TRY(dev->mem_acquire((size_t)net->weight_count * sizeof(float), &block));
        net->weight_arena = block;
    }
    if (net->grad_count > 0) {
        size_t bytes = (size_t)net->grad_count * sizeof(float);

        if (arena != NULL)
            CT_TRY(arena->acquire(arena->ctx, bytes, "gradients", &block));
        else
            CT_TRY(dev->mem_acquire(bytes, &block));
        net->grad_arena = block;
    }
    for (int k = 0; k < net->n_param; k++) {
        ct_param *p = &net->param[k];

        if (!p->borrowed) p->blob.data.data = net->weight_arena + p->offset;
        if (p->learns) p->blob.diff.data = net->grad_arena + p->offset;
    }
    return CT_OK;
}

static ct_status fill_one(ct_net *net, const ct_param *p, const ct_weight_spec *spec)
{
    const ct_device *dev = net->options.dev;
    uint64_t key = ct_rng_key(net->options.env.seed, ct_rng_hash(p->layer), (uint64_t)p->index);
    size_t bytes = (size_t)p->count * sizeof(float);
    float *host;
    ct_status status;

    if ((spec->filler == NULL) || (p->count == 0)) return CT_OK; /* arenas start as zeros */
    if (dev->kind == CT_DEVICE_CPU)
        return ct_fill(spec->filler, key, &spec->shape, ct_blob_data(&p->blob));
    host = ct_mem_acquire(bytes);
    if (host == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu bytes of first weights", bytes);
    status = ct_fill(spec->filler, key, &spec->shape, host);
    if (status == CT_OK) status = dev->from_host(NULL, p->blob.data.data, host, bytes);
    if (status == CT_OK) status = dev->sync(NULL);
    ct_mem_release(host);
    return status;
}

static ct_status fill(ct_net *net)
{
    for (int i = 0; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];

        for (int w = 0; w < l->n_weight; w++) {
            const ct_param *p = &net->param[ct_net_param_of(net, i, w)];

            /* the owner fills */
            if (p->borrowed || (p->index != w) || (p->layer != l->name)) continue;
            CT_TRY(fill_one(net, p, &l->weight[w]));
        }
    }
    return CT_OK;
}

static bool runs_behind(const ct_net *net, int k, int i)
{
    const int *place = ct_net_impl_of(net)->place;

    return (place[k] > place[i]) || ((place[k] == place[i]) && (k > i));
}

static ct_status bind(ct_net *net, int i)
{
    const ct_layer *l = net->layer[i];
    ct_instance *in = net->instance[i];
    const ct_graph *g = &ct_net_impl_of(net)->graph;
    const ct_graph_node *n = &g->node[i];

    in->weight = calloc((size_t)l->n_weight + 1, sizeof(in->weight[0]));
    if (in->weight == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", l->name);
    for (int w = 0; w < l->n_weight; w++) {
        const ct_param *p = &net->param[n->param_of[w]];

        in->weight[w] = p->blob;
        ct_blob_set_shape(&in->weight[w], &l->weight[w].shape);
        in->weight[w].wants_diff = n->weight_wanted[w];
        if (!n->weight_wanted[w]) in->weight[w].diff.data = NULL;
        /* backward comes first to layers that run behind this one */
        for (int k = 0; n->weight_wanted[w] && (k < net->n_layer); k++) {
            if (!runs_behind(net, k, i)) continue;
            for (int e = 0; e < net->layer[k]->n_weight; e++) {
                if (g->node[k].weight_wanted[e] && (g->node[k].param_of[e] == n->param_of[w]))
                    in->add_weight_diff[w] = true;
            }
        }
    }
    return CT_OK;
}

ct_status ct_net_arenas(ct_net *net)
{
    if (net->options.share != NULL) CT_TRY(borrow(net));
    lay_out(net);
    if (!net->options.no_data) {
        CT_TRY(acquire(net));
        CT_TRY(fill(net));
    }
    for (int i = 0; i < net->n_layer; i++) CT_TRY(bind(net, i));
    return CT_OK;
}

void ct_net_arenas_release(ct_net *net)
{
    const ct_device *dev = net->options.dev;
    const ct_arena_ops *arena = net->options.grad_arena;

    if (net->weight_arena != NULL) dev->mem_release(net->weight_arena);
    if (net->grad_arena != NULL) {
        if (arena != NULL)
            arena->release(arena->ctx, net->grad_arena);
        else
            dev->mem_release(net->grad_arena);
    }
    net->weight_arena = net->grad_arena = NULL;
}
