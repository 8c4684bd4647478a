/* Fingerprints of a net's structure and of its weights. */
#include "framework/base/hash.h"
#include "framework/net/net_impl.h"

#include <string.h>

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

/* Its number among the layers that make up the net. */
static int number_of(const ct_net *net, int layer)
{
    int n = 0;

    for (int i = 0; i < layer; i++) n += !net->layer[i]->ops->by_net;
    return n;
}

/* The value that a layer which makes up the net made. */
static const ct_value *source_of(const ct_graph *g, int value)
{
    const ct_value *v = &g->value[value];

    while (g->node[v->node].ops->by_net) v = &g->value[g->node[v->node].bottom[0]];
    return v;
}

/* Which layer's weight it is, by number: sharing is part of the structure, the order in the arena
 * is not. */
static uint64_t add_owner(uint64_t h, const ct_net *net, int param)
{
    const ct_graph *g = &ct_net_impl_of(net)->graph;

    for (int i = 0; i < net->n_layer; i++) {
        for (int w = 0; w < net->layer[i]->n_weight; w++) {
            if (g->node[i].param_of[w] == param) return add_int(add_int(h, number_of(net, i)), w);
        }
    }
    return h;
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

            h = add_int(h, number_of(net, v->node));
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

    ct_hash_init(&h);
    for (int k = 0; k < net->n_param; k++) {
        const ct_param *p = &net->param[k];
        size_t bytes = (size_t)p->count * sizeof(float);

        if ((p->blob.data.data == NULL) || (!statistics && (p->kind == CT_WEIGHT_STATISTIC)))
            continue;
        if (dev->kind == CT_DEVICE_CPU)
            ct_hash_add(&h, p->blob.data.data, bytes);
        else if (add_device(dev, p->blob.data.data, bytes, &h) != CT_OK)
            return 0; /* logged */
    }
    return ct_hash_value(&h);
}
