/* Split layers: a value that several layers read, or that is a loss and read, gets one reader and
 * as many copies as it has uses. Names as in Caffe, so that logs and weights files look alike. */
#include "framework/net/graph.h"

#include <stdlib.h>
#include <string.h>

/* What the raw graph's values became. */
typedef struct mapping {
    int *value; /* the same value in the new graph                    */
    int *next;  /* the next copy to hand out, where there are several */
} mapping;

static int n_use(const ct_value *v)
{
    return v->n_reader + ((v->loss_weight != 0.0f) ? 1 : 0);
}

static int add_value(ct_graph *g, const ct_value *like, int node, int top)
{
    ct_value *v = &g->value[g->n_value];

    *v = *like;
    v->node = node;
    v->top = top;
    v->n_reader = 0;
    v->reader = v->slot = -1;
    return g->n_value++;
}

static void add_reader(ct_graph *g, int value, int node, int slot)
{
    ct_value *v = &g->value[value];

    v->n_reader++;
    v->reader = node;
    v->slot = slot;
    g->node[node].bottom[slot] = value;
}

static char *format(const char *blob, const char *layer, int top, int copy)
{
    ct_text t = { NULL, 0, 0, false };

    ct_text_add(&t, "%s_%s_%d_split", blob, layer, top);
    if (copy >= 0) ct_text_add(&t, "_%d", copy);
    if (t.failed) ct_text_destroy(&t);
    return t.text;
}

/* Puts a Split with n tops behind `value`; *first_p is its first top. */
static ct_status add_split(ct_graph *g, int value, int n, const ct_net_options *o, int *first_p)
{
    int i = g->n_node++, first;
    ct_graph_node *node = &g->node[i];
    const ct_value *from = &g->value[value];
    const ct_graph_node *maker = &g->node[from->node];
    const ct_layer_ops *ops = ct_graph_type(o, "Split");
    char **top;
    ct_status status;

    if (ops == NULL)
        return CT_NODE_FAIL(maker, CT_ERR_CONFIG,
                            "top \"%s\" has several readers, and there is no layer type \"Split\"",
                            from->name);
    top = calloc((size_t)n, sizeof(top[0]));
    if (top == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a Split layer");
    for (int t = 0; t < n; t++) top[t] = format(from->name, maker->name, from->top, t);
    status = ct_graph_node_make(node, maker, ops, format(from->name, maker->name, from->top, -1),
                                from->name, top, n);
    free(top);
    CT_TRY(status);
    first = g->n_value;
    for (int t = 0; t < n; t++) {
        int v = add_value(g, &g->value[value], i, t);

        g->value[v].name = node->own->top[t];
        if (t > 0) g->value[v].loss_weight = 0.0f;
        node->top[t] = v;
    }
    g->value[value].loss_weight = 0.0f; /* it is the first copy's now */
    add_reader(g, value, i, 0);
    *first_p = first;
    return CT_OK;
}

/* Moves node i of `raw` to the end of g, and puts the Splits of its tops behind it. */
static ct_status move_node(ct_graph *raw, int i, const mapping *map, const ct_net_options *o,
                           ct_graph *g)
{
    int at = g->n_node++;
    ct_graph_node *n = &g->node[at];

    *n = raw->node[i];
    memset(&raw->node[i], 0, sizeof(raw->node[i]));
    for (int b = 0; b < n->n_bottom; b++) {
        int v = n->bottom[b];

        if (n_use(&raw->value[v]) > 1) {
            add_reader(g, map->next[v]++, at, b);
            if (b < n->n_top) n->inplace[b] = false; /* the other copies must stay whole */
        } else {
            add_reader(g, map->value[v], at, b);
        }
    }
    for (int t = 0; t < n->n_top; t++) {
        int v = n->top[t];

        map->value[v] = add_value(g, &raw->value[v], at, t);
        n->top[t] = map->value[v];
    }
    for (int v = 0; v < raw->n_value; v++) {
        const ct_value *r = &raw->value[v];
        int first;

        if ((r->node != i) || (n_use(r) <= 1)) continue;
        CT_TRY(add_split(g, map->value[v], n_use(r), o, &first));
        map->next[v] = first + ((r->loss_weight != 0.0f) ? 1 : 0);
    }
    return CT_OK;
}

ct_status ct_graph_split(ct_graph *raw, const ct_net_options *o, ct_graph *g_p)
{
    ct_graph g = { NULL, 0, NULL, 0 };
    size_t n_node = (size_t)raw->n_node, n_value = (size_t)raw->n_value;
    mapping map = { calloc((size_t)raw->n_value + 1, sizeof(int)),
                    calloc((size_t)raw->n_value + 1, sizeof(int)) };
    ct_status status = CT_OK;

    for (int v = 0; v < raw->n_value; v++) {
        int uses = n_use(&raw->value[v]);

        if (uses > 1) {
            n_node++;
            n_value += (size_t)uses;
        }
    }
    g.node = calloc(n_node + 1, sizeof(g.node[0]));
    g.value = calloc(n_value + 1, sizeof(g.value[0]));
    if ((map.value == NULL) || (map.next == NULL) || (g.node == NULL) || (g.value == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for a graph of %zu layers", n_node);
    for (int i = 0; (status == CT_OK) && (i < raw->n_node); i++)
        status = move_node(raw, i, &map, o, &g);
    free(map.value);
    free(map.next);
    if (status != CT_OK) {
        ct_graph_destroy(&g);
        return status;
    }
    *g_p = g;
    return CT_OK;
}
