/* From a list of layers to a graph: types, blobs by name, counts. */
#include "framework/proto/foreign.h"
#include "framework/net/graph.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NAMES 4096 /* considered for "did you mean" */

const ct_layer_ops *const *ct_graph_table(const ct_net_options *o)
{
    return (o->table != NULL) ? o->table : ct_layer_table;
}

const ct_layer_ops *ct_graph_type(const ct_net_options *o, const char *type)
{
    const ct_layer_ops *const *table = ct_graph_table(o);

    for (int i = 0; table[i] != NULL; i++) {
        if (strcmp(table[i]->type, type) == 0) return table[i];
    }
    return NULL;
}

ct_status ct_graph_node_alloc(ct_graph_node *n, int n_bottom, int n_top)
{
    size_t count_b = (size_t)n_bottom + 1, count_t = (size_t)n_top + 1;

    n->n_bottom = n_bottom;
    n->n_top = n_top;
    n->bottom = calloc(count_b, sizeof(n->bottom[0]));
    n->bottom_wanted = calloc(count_b, sizeof(n->bottom_wanted[0]));
    n->top = calloc(count_t, sizeof(n->top[0]));
    n->inplace = calloc(count_t, sizeof(n->inplace[0]));
    if ((n->bottom == NULL) || (n->top == NULL) || (n->inplace == NULL) ||
        (n->bottom_wanted == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", n->name);
    return CT_OK;
}

void ct_graph_destroy(ct_graph *g)
{
    for (int i = 0; i < g->n_node; i++) {
        ct_graph_node *n = &g->node[i];

        free(n->bottom);
        free(n->bottom_wanted);
        free(n->top);
        free(n->inplace);
        free(n->where);
        if (n->own != NULL) ct__layer_parameter__free_unpacked(n->own, NULL);
    }
    free(g->node);
    free(g->value);
    memset(g, 0, sizeof(*g));
}

ct_status ct_graph_where(const ct_net_options *o, const void *message, char **where_p)
{
    ct_place p = ct_source_map_find(o->map, message);
    ct_text t = { NULL, 0, 0, false };

    ct_text_add(&t, "%s", "");
    if (p.file[0] != '\0') ct_text_add(&t, "%s:%d", p.file, p.line);
    if (t.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for the place of a layer");
    *where_p = t.text;
    return CT_OK;
}

static ct_status find_type(ct_graph_node *n, const ct_net_options *o)
{
    const ct_layer_ops *const *table = ct_graph_table(o);
    const char *type = n->param->type, *name[MAX_NAMES], *near;
    int n_name = 0;

    if ((type == NULL) || (type[0] == '\0'))
        return CT_NODE_FAIL(n, CT_ERR_CONFIG, "it has no type");
    for (int i = 0; table[i] != NULL; i++) {
        if (strcmp(table[i]->type, type) == 0) {
            n->ops = table[i];
            return CT_OK;
        }
        if (n_name < MAX_NAMES) name[n_name++] = table[i]->type;
    }
    if (ct_foreign_why(type) != NULL)
        return CT_NODE_FAIL(n, CT_ERR_CONFIG, "this layer type is not supported: %s",
                            ct_foreign_why(type));
    near = ct_text_nearest(type, name, n_name);
    if (near != NULL)
        return CT_NODE_FAIL(n, CT_ERR_CONFIG, "unknown layer type; did you mean \"%s\"?", near);
    return CT_NODE_FAIL(n, CT_ERR_CONFIG, "unknown layer type");
}

static ct_status check_count(const ct_graph_node *n, const char *what, size_t have, int min,
                             int max)
{
    if ((have >= (size_t)min) && ((max < 0) || (have <= (size_t)max))) return CT_OK;
    if (min == max)
        return CT_NODE_FAIL(n, CT_ERR_CONFIG, "%zu %s given, %d needed", have, what, min);
    if (max < 0)
        return CT_NODE_FAIL(n, CT_ERR_CONFIG, "%zu %s given, at least %d needed", have, what, min);
    return CT_NODE_FAIL(n, CT_ERR_CONFIG, "%zu %s given, %d to %d needed", have, what, min, max);
}

static ct_status check_node(const ct_graph_node *n, bool automatic_top)
{
    const Ct__LayerParameter *p = n->param;
    const ct_layer_ops *ops = n->ops;

    CT_TRY(check_count(n, "bottoms", p->n_bottom, ops->min_bottom, ops->max_bottom));
    if (!automatic_top) CT_TRY(check_count(n, "tops", p->n_top, ops->min_top, ops->max_top));
    if ((p->n_propagate_down > 0) && (p->n_propagate_down != p->n_bottom))
        return CT_NODE_FAIL(n, CT_ERR_CONFIG,
                            "propagate_down is given %zu times; it needs one for each of the %zu "
                            "bottoms, or none",
                            p->n_propagate_down, p->n_bottom);
    if ((p->n_loss_weight > 0) && (p->n_loss_weight != (size_t)n->n_top))
        return CT_NODE_FAIL(n, CT_ERR_CONFIG,
                            "loss_weight is given %zu times; it needs one for each of the %d tops, "
                            "or none",
                            p->n_loss_weight, n->n_top);
    return CT_OK;
}

/* The newest value of that name, or -1. */
static int find_value(const ct_graph *g, const char *name)
{
    for (int v = g->n_value - 1; v >= 0; v--) {
        if (strcmp(g->value[v].name, name) == 0) return v;
    }
    return -1;
}

static const Ct__LayerParameter *maker_of(const Ct__LayerParameter *const *layer, size_t n,
                                          const char *blob)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t t = 0; t < layer[i]->n_top; t++) {
            if (strcmp(layer[i]->top[t], blob) == 0) return layer[i];
        }
    }
    return NULL;
}

/* A bottom that nobody made so far: says why, as far as one can tell. */
static ct_status fail_bottom(const ct_graph *g, const ct_graph_node *n, int slot,
                             const Ct__NetParameter *net, const Ct__LayerParameter *const *kept,
                             int n_kept)
{
    const char *blob = n->param->bottom[slot], *name[MAX_NAMES], *near;
    const Ct__LayerParameter *maker = maker_of(kept, (size_t)n_kept, blob);
    int n_name = 0;

    if (maker != NULL)
        return CT_NODE_FAIL(n, CT_ERR_CONFIG,
                            "bottom \"%s\" is not there yet: layer \"%s\", which makes it, %s",
                            blob, (maker->name != NULL) ? maker->name : "",
                            (maker == n->param) ? "is this one" : "comes later");
    maker = maker_of((const Ct__LayerParameter *const *)net->layer, net->n_layer, blob);
    if (maker != NULL)
        return CT_NODE_FAIL(n, CT_ERR_CONFIG,
                            "bottom \"%s\" is not there: layer \"%s\", which makes it, is left out "
                            "in this phase, level or stage",
                            blob, (maker->name != NULL) ? maker->name : "");
    for (int v = 0; (v < g->n_value) && (n_name < MAX_NAMES); v++)
        name[n_name++] = g->value[v].name;
    near = ct_text_nearest(blob, name, n_name);
    if (near != NULL)
        return CT_NODE_FAIL(n, CT_ERR_CONFIG, "unknown bottom \"%s\"; did you mean \"%s\"?", blob,
                            near);
    return CT_NODE_FAIL(n, CT_ERR_CONFIG, "unknown bottom \"%s\"", blob);
}

static ct_status add_top(ct_graph *g, int i, int t, const char *name)
{
    ct_graph_node *n = &g->node[i];
    const Ct__LayerParameter *p = n->param;
    int old = (strcmp(name, "(automatic)") == 0) ? -1 : find_value(g, name);
    ct_value *v = &g->value[g->n_value];

    n->inplace[t] = (old >= 0) && ((size_t)t < p->n_bottom) && (strcmp(name, p->bottom[t]) == 0);
    if ((old >= 0) && !n->inplace[t])
        return CT_NODE_FAIL(n, CT_ERR_CONFIG, "top \"%s\" is a top of layer \"%s\" already", name,
                            g->node[g->value[old].node].name);
    if (n->inplace[t] && !n->ops->allow_inplace)
        return CT_NODE_FAIL(n, CT_ERR_CONFIG,
                            "it cannot work in place: give its top another name than \"%s\"", name);
    *v = (ct_value){ .name = name, .node = i, .top = t, .reader = -1, .slot = -1, .blob = -1 };
    v->loss_weight = (p->n_loss_weight > 0)          ? p->loss_weight[t]
                     : (n->ops->is_loss && (t == 0)) ? 1.0f
                                                     : 0.0f;
    n->top[t] = g->n_value++;
    return CT_OK;
}

static ct_status add_node(ct_graph *g, const Ct__NetParameter *net, const Ct__LayerParameter **kept,
                          int n_kept, const ct_net_options *o)
{
    int i = g->n_node++, n_top;
    ct_graph_node *n = &g->node[i];
    bool automatic;

    n->param = kept[i];
    n->name = (n->param->name != NULL) ? n->param->name : "";
    CT_TRY(ct_graph_where(o, n->param, &n->where));
    CT_TRY(find_type(n, o));
    /* old nets leave out the tops of losses */
    n_top = (int)n->param->n_top;
    automatic = n->ops->is_loss && (n_top == 0) && (n->ops->min_top == 1);
    if (automatic) n_top = 1;
    CT_TRY(ct_graph_node_alloc(n, (int)n->param->n_bottom, n_top));
    CT_TRY(check_node(n, automatic));
    for (int b = 0; b < n->n_bottom; b++) {
        int v = find_value(g, n->param->bottom[b]);

        if (v < 0)
            return fail_bottom(g, n, b, net, (const Ct__LayerParameter *const *)kept, n_kept);
        n->bottom[b] = v;
        g->value[v].n_reader++;
        g->value[v].reader = i;
        g->value[v].slot = b;
    }
    for (int t = 0; t < n_top; t++)
        CT_TRY(add_top(g, i, t, (t < (int)n->param->n_top) ? n->param->top[t] : "(automatic)"));
    return CT_OK;
}

ct_status ct_graph_connect(const Ct__NetParameter *net, const Ct__LayerParameter **kept, int n,
                           const ct_net_options *o, ct_graph *g_p)
{
    ct_graph g = { NULL, 0, NULL, 0 };
    size_t n_value = 0;
    ct_status status;

    for (int i = 0; i < n; i++) n_value += kept[i]->n_top + 1; /* an automatic top */
    g.node = calloc((size_t)n, sizeof(g.node[0]));
    g.value = calloc(n_value + 1, sizeof(g.value[0]));
    if ((g.node == NULL) || (g.value == NULL)) {
        ct_graph_destroy(&g);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d layers", n);
    }
    for (int i = 0; i < n; i++) CT_TRY_GOTO(status, err_destroy, add_node(&g, net, kept, n, o));
    *g_p = g;
    return CT_OK;

err_destroy:
    ct_graph_destroy(&g);
    return status;
}
