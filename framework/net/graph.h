/** @file graph.h  A net as a graph of nodes and values, before it has memory. Private to
 * framework/net.
 *
 * A *node* is a layer; a *value* is what a node puts into one of its tops. A layer that works in
 * place makes a new value of an old name, so every value has exactly one maker. Once Split layers
 * are in, every value has at most one reader, and one with a loss weight has none.
 */
#ifndef CT_GRAPH_H
#define CT_GRAPH_H

#include "framework/base/name_map.h"
#include "framework/net/net.h"
#include "framework/proto/prototxt.h"

typedef struct ct_value {
    const char *name; /* of the blob; values of one name are its versions, the last is valid */
    int node, top;    /* who makes it                                                         */
    int n_reader;
    int reader, slot; /* the last reader and its bottom; -1: none                             */
    float loss_weight;
    bool reached; /* a gradient can come back to it                                          */
    bool wants;   /* it has one                                                              */
    bool zero;    /* its reader sends none: zeros stand for it                               */
    int blob;     /* index in net->blob                                                      */
} ct_value;

typedef struct ct_graph_node {
    const Ct__LayerParameter *param;
    Ct__LayerParameter *own; /* == param for layers made here (Split, Reorder, Cast) */
    const ct_layer_ops *ops;
    const char *name; /* never NULL                                        */
    char *where;      /* "net.prototxt:12", or ""; owned                   */
    char *renamed;    /* what name is where another layer has the file's; NULL: it has none */
    int number;       /* among the layers that make up the net, those that it adds left out */
    int n_bottom, n_top;
    int *bottom, *top;   /* values                                         */
    bool *inplace;       /* top i shall overwrite bottom i                 */
    bool *bottom_wanted; /* backward computes the gradient of bottom i     */
    bool weight_wanted[CT_MAX_WEIGHT];
    int param_of[CT_MAX_WEIGHT]; /* in net->param                          */
    bool varies;  /* it reads, or what it reads is made of, tops that vary: ct_layer_varies() */
    bool late;    /* … of which some get their shapes in forward: ops.varies                  */
    bool reached; /* some top is                            */
    bool runs_backward;
    int group; /* layers that run as one, from 1 on; 0: it runs alone */
    int block; /* of layers that recompute BLOCKS makes again together: a copy of a repeat, or one
                * of the options' segments; -1: none */
} ct_graph_node;

typedef struct ct_graph {
    ct_graph_node *node;
    int n_node;
    ct_value *value;
    int n_value;
    ct_name_map newest; /* values by the names of their blobs, while it is connected */
    bool fixed;         /* inputs keep their shapes: ct_net_options.fixed …              */
    bool packed;        /* … but for ct_net_env.packed, where they vary whatever they say */
} ct_graph;

/** Whether the node's tops may have other shapes in each batch. */
static inline bool ct_node_varies(const ct_graph *g, const ct_graph_node *n)
{
    return n->ops->varies || (g->packed && n->ops->keeps_top) ||
           (!g->fixed && ct_layer_varies(n->ops, n->param));
}

/** Whether the phase, level and stages of a net take a layer in (NetStateRule). */
bool ct_graph_includes(const Ct__NetParameter *net, const ct_net_options *o,
                       const Ct__LayerParameter *l);
/** The layers of `net` that the options' phase, level and stages take in, in order. *kept_p is
 *  freed with free(). CT_ERR_CONFIG. */
ct_status ct_graph_filter(const Ct__NetParameter *net, const ct_net_options *o,
                          const Ct__LayerParameter ***kept_p, int *n_p);
/** Nodes and values of the layers kept, without Splits: types looked up, blobs connected, counts,
 *  loss weights and propagate_down checked. CT_ERR_CONFIG. `net` serves messages only. */
ct_status ct_graph_connect(const Ct__NetParameter *net, const Ct__LayerParameter **kept, int n,
                           const ct_net_options *o, ct_graph *g_p);
/** Adds Split layers, named as Caffe names them. `raw` gives its nodes away and is empty then. */
ct_status ct_graph_split(ct_graph *raw, const ct_net_options *o, ct_graph *g_p);
/** Marks what a gradient can come back to: loss weights and all that leads to them. end_diffs: as
 *  in ct_net_options. */
ct_status ct_graph_reach(ct_graph *g, bool end_diffs);
/** Marks what lies behind layers whose tops vary from batch to batch. */
void ct_graph_vary(ct_graph *g);
/** Whether the samples of v may be others in number from batch to batch. */
static inline bool ct_value_varies(const ct_graph *g, const ct_value *v)
{
    const ct_graph_node *n = &g->node[v->node];

    return n->varies || ct_node_varies(g, n);
}
/** … so that forward alone finds how many. */
static inline bool ct_value_is_late(const ct_graph *g, const ct_value *v)
{
    return g->node[v->node].late || g->node[v->node].ops->varies;
}
/** True where gradients pass from the tops of reader `n` to its bottom `slot`. */
bool ct_graph_node_passes(const ct_graph_node *n, int slot);

/** After setup of node i's layer, with weight_wanted set: decides bottom_wanted and runs_backward
 *  of the node, and which of its tops have gradients. forward_only: none. */
void ct_graph_gradients(ct_graph *g, int i, bool force_backward, bool forward_only);

/** Whether values of 16 bits, channels last, may be of use to who reads v. Layers that work in
 * place or only pass values on make of them what they are given. */
bool ct_graph_reads_narrow(const ct_graph *g, const ct_value *v, const ct_device *dev);
/** The same of rows of bf16 numbers in plain order, on the CPU. */
bool ct_graph_reads_tokens(const ct_graph *g, const ct_value *v);
/** Whether the same values in another shape stand in the same order: those of several places each,
 *  channels last, do not. */
bool ct_blob_keeps_order(const ct_blob *from, const ct_blob *to);

/** Marks chains of layers that one of them can run: framework/net/fuse.c. reruns: forward may run
 *  again in backward, block by block. */
void ct_graph_fuse(ct_graph *g, const ct_net_options *o, bool reruns);
/** Its layers run alone. 0: nothing happens. */
void ct_graph_unfuse(ct_graph *g, int group);
/** True where a value stays within a group, so that nobody but its runner knows it. */
bool ct_graph_is_inner(const ct_graph *g, const ct_value *v);

/** Puts a layer of `type` (Reorder, Cast), called as the value with a suffix, at place `at`, before
 *  the reader of `value` or, where it has none, behind all. It reads the value, what it makes the
 *  reader reads instead. Nodes and values have room for one more; the nodes from `at` on move up.
 */
ct_status ct_graph_convert(ct_graph *g, int at, int value, const char *type, const char *suffix,
                           const ct_net_options *o);
void ct_graph_destroy(ct_graph *g);

/** Like CT_LAYER_FAIL, before there is a layer. */
#define CT_NODE_FAIL(_n, _code, _fmt, ...)                                                         \
    CT_FAIL(_code, "%s%slayer \"%s\" (%s): " _fmt, (_n)->where,                                    \
            ((_n)->where[0] != '\0') ? ": " : "", (_n)->name,                                      \
            ((_n)->param->type != NULL) ? (_n)->param->type : "", ##__VA_ARGS__)

#endif
