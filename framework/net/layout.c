/* Layers that the net adds: how they are made, and those that bring values to an order and a dtype
 * that their reader takes. */
#include "framework/net/graph.h"

#include <stdlib.h>
#include <string.h>

/* What a layer of one bottom is in a prototxt. Takes name and tops over. */
static ct_status make_param(const char *type, char *name, const char *bottom, char *const *top,
                            int n_top, Ct__LayerParameter *p)
{
    bool failed = (name == NULL);

    ct__layer_parameter__init(p);
    p->name = name;
    p->type = strdup(type);
    p->bottom = calloc(1, sizeof(p->bottom[0]));
    p->top = calloc((size_t)n_top, sizeof(p->top[0]));
    if (p->bottom != NULL) p->bottom[p->n_bottom++] = strdup(bottom);
    for (int i = 0; i < n_top; i++) {
        failed |= (top[i] == NULL);
        if (p->top != NULL)
            p->top[p->n_top++] = top[i];
        else
            free(top[i]);
    }
    failed |=
        (p->type == NULL) || (p->bottom == NULL) || (p->bottom[0] == NULL) || (p->top == NULL);
    return failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a layer that the net adds") : CT_OK;
}

ct_status ct_graph_node_make(ct_graph_node *n, const ct_graph_node *maker, const ct_layer_ops *ops,
                             char *name, const char *bottom, char *const *top, int n_top)
{
    n->name = "";
    n->ops = ops;
    n->own = malloc(sizeof(*n->own));
    if (n->own == NULL) {
        free(name);
        for (int i = 0; i < n_top; i++) free(top[i]);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a layer that the net adds");
    }
    CT_TRY(make_param(ops->type, name, bottom, top, n_top, n->own));
    n->param = n->own;
    n->name = n->own->name;
    n->where = strdup(maker->where);
    if (n->where == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", n->name);
    return ct_graph_node_alloc(n, 1, n_top);
}

/* Node `at` becomes free. */
static void make_room(ct_graph *g, int at)
{
    memmove(&g->node[at + 1], &g->node[at], (size_t)(g->n_node - at) * sizeof(g->node[0]));
    memset(&g->node[at], 0, sizeof(g->node[at]));
    g->n_node++;
    for (int v = 0; v < g->n_value; v++) {
        g->value[v].node += (g->value[v].node >= at);
        g->value[v].reader += (g->value[v].reader >= at);
    }
}

/* The new value: read by who read `from`, with its weight in the loss. */
static void take_over(ct_graph *g, int at, int from, int to)
{
    ct_value *old = &g->value[from], *new = &g->value[to];

    *new = *old;
    new->node = at;
    new->top = 0;
    new->blob = -1;
    new->wants = new->zero = false;
    if (new->reader >= 0) g->node[new->reader].bottom[new->slot] = to;
    old->n_reader = 1;
    old->reader = at;
    old->slot = 0;
    old->loss_weight = 0.0f;
}

ct_status ct_graph_convert(ct_graph *g, int at, int value, const char *type, const char *suffix,
                           const ct_net_options *o)
{
    const ct_layer_ops *ops = ct_graph_type(o, type);
    const char *blob = g->value[value].name;
    ct_text name = { 0 };
    ct_graph_node *n = &g->node[at];
    int made = g->n_value;
    char *top;

    if (ops == NULL)
        return CT_NODE_FAIL(&g->node[g->value[value].node], CT_ERR_CONFIG,
                            "top \"%s\" is not as its reader takes it, and there is no layer type "
                            "\"%s\"",
                            blob, type);
    g->n_value++;
    top = strdup(blob); /* it is the same to who asks for it by name */
    ct_text_add(&name, "%s_%s", blob, suffix);
    if (name.failed) ct_text_destroy(&name);
    make_room(g, at);
    take_over(g, at, value, made);
    CT_TRY(ct_graph_node_make(n, &g->node[g->value[value].node], ops, name.text, blob, &top, 1));
    g->value[made].name = n->own->top[0];
    n->bottom[0] = value;
    n->top[0] = made;
    n->varies = ct_value_varies(g, &g->value[value]);
    n->reached = g->value[value].reached;
    n->bottom_wanted[0] = g->value[value].wants && n->reached;
    return CT_OK;
}

bool ct_graph_reads_narrow(const ct_graph *g, const ct_value *v, const ct_device *dev)
{
    const ct_graph_node *n = (v->reader >= 0) ? &g->node[v->reader] : NULL;
    const ct_device_override *form;

    if ((n == NULL) || (v->loss_weight != 0.0f) || (n->ops->layout == NULL) ||
        !n->ops->layout->last || !ct_layer_on_device(n->ops, n->param, dev, &form))
        return false;
    if (!n->ops->allow_inplace && (n->ops->alias == 0)) return true;
    for (int t = 0; t < n->n_top; t++) {
        if (ct_graph_reads_narrow(g, &g->value[n->top[t]], dev)) return true;
    }
    return false;
}

bool ct_blob_keeps_order(const ct_blob *from, const ct_blob *to)
{
    return !ct_blob_is_last(from) || (ct_shape_count(&from->data.shape, 2, -1) == 1) ||
           ct_shape_equal(&from->data.shape, &to->data.shape);
}
