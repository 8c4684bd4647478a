/* From a list of layers to a graph: types, blobs by name, counts. */
#include "framework/net/graph.h"

#include <stdlib.h>
#include <string.h>

#include "framework/proto/upgrade.h"

#define MAX_NAMES 4096 /* considered for "did you mean" */

/* Makes n a layer that the prototxt does not have, between a value of node `maker` and others: its
 *  type, one bottom and n_top tops by name. name and the n_top texts are taken over, in case of
 *  errors too; NULL stands for no memory. */
static ct_status graph_node_make(ct_graph_node *n, const ct_graph_node *maker,
                                 const ct_layer_ops *ops, char *name, const char *bottom,
                                 char *const *top, int n_top);

/* The table of layer types in force. */
static const ct_layer_ops *const *graph_table(const ct_net_options *o)
{
    return (o->table != NULL) ? o->table : ct_layer_table;
}

/* The layer type of that name in force; NULL: none. */
static const ct_layer_ops *graph_type(const ct_net_options *o, const char *type)
{
    const ct_layer_ops *const *table = graph_table(o);

    for (int i = 0; table[i] != NULL; i++) {
        if (strcmp(table[i]->type, type) == 0) return table[i];
    }
    return NULL;
}

/* Space for the arrays of a node with these counts. */
static ct_status graph_node_alloc(ct_graph_node *n, int n_bottom, int n_top)
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
        free(n->renamed);
        if (n->own != NULL) ct__layer_parameter__free_unpacked(n->own, NULL);
    }
    free(g->node);
    free(g->value);
    ct_name_map_destroy(&g->newest);
    memset(g, 0, sizeof(*g));
}

/* "net.prototxt:12", with ", copy 3" where a repeat made the layer, or "" where the place is
 * unknown; freed with free(). */
static ct_status graph_where(const ct_net_options *o, const Ct__LayerParameter *layer,
                             char **where_p)
{
    ct_place p = ct_source_map_find(o->map, layer);
    ct_text t = { NULL, 0, 0, false };

    ct_text_add(&t, "%s", "");
    if (p.file[0] != '\0') ct_text_add(&t, "%s:%d", p.file, p.line);
    if ((p.file[0] != '\0') && (layer->repeat_copy != NULL))
        ct_text_add(&t, ", copy %d", layer->repeat_copy->copy);
    if (t.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for the place of a layer");
    *where_p = t.text;
    return CT_OK;
}

static ct_status find_type(ct_graph_node *n, const ct_net_options *o)
{
    const ct_layer_ops *const *table = graph_table(o);
    const char *type = n->param->type, *name[MAX_NAMES], *near;
    int n_name = 0;

    if ((type == NULL) || (type[0] == '\0'))
        return CT_NODE_FAIL(n, CT_ERR_CONFIG, "it has no type");
    for (int i = 0; table[i] != NULL; i++) {
        if (strcmp(table[i]->type, type) == 0) {
            n->ops = table[i];
            return CT_OK;
        }
        if ((n_name < MAX_NAMES) && !table[i]->by_net) name[n_name++] = table[i]->type;
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
    return ct_name_map_find(&g->newest, name, strlen(name));
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
    return ct_name_map_put(&g->newest, name, n->top[t]);
}

static ct_status add_node(ct_graph *g, const Ct__NetParameter *net, const Ct__LayerParameter **kept,
                          int n_kept, const ct_net_options *o)
{
    int i = g->n_node++, n_top;
    ct_graph_node *n = &g->node[i];
    bool automatic;

    n->param = kept[i];
    n->name = (n->param->name != NULL) ? n->param->name : "";
    CT_TRY(graph_where(o, n->param, &n->where));
    CT_TRY(find_type(n, o));
    /* old nets leave out the tops of losses */
    n_top = (int)n->param->n_top;
    automatic = n->ops->is_loss && (n_top == 0) && (n->ops->min_top == 1);
    if (automatic) n_top = 1;
    CT_TRY(graph_node_alloc(n, (int)n->param->n_bottom, n_top));
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

/* ---- blocks */

/* The place in the net of a layer of that name, the first or the last of several; -1: none. */
static int64_t place_of(const Ct__NetParameter *net, const char *name, bool want_last)
{
    int64_t found = -1;

    for (size_t i = 0; i < net->n_layer; i++) {
        if ((net->layer[i]->name == NULL) || (strcmp(net->layer[i]->name, name) != 0)) continue;
        if (want_last || (found < 0)) found = (int64_t)i;
    }
    return found;
}

/* Each segment of the options is a block. */
static void number_segments(const Ct__NetParameter *net, const ct_net_options *o, ct_graph *g)
{
    for (int a = 0; a < o->n_again; a++) {
        int64_t first = place_of(net, o->again[a].first, false);
        int64_t last = place_of(net, o->again[a].last, true);
        int64_t at = 0;

        for (int i = 0; (first >= 0) && (i < g->n_node); i++, at++) {
            while (net->layer[at] != g->node[i].param) at++;
            if ((at >= first) && (at <= last)) g->node[i].block = a;
        }
    }
}

/* Each copy of a repeat is one. */
static void number_copies(ct_graph *g)
{
    int n = 0;

    for (int i = 0; i < g->n_node; i++) {
        const Ct__RepeatCopy *c = g->node[i].param->repeat_copy;
        const Ct__RepeatCopy *before = (i > 0) ? g->node[i - 1].param->repeat_copy : NULL;

        if (c == NULL) continue;
        if ((before == NULL) || (before->line != c->line) || (before->column != c->column) ||
            (before->copy != c->copy))
            n++;
        g->node[i].block = n - 1;
    }
}

static void number_blocks(const Ct__NetParameter *net, const ct_net_options *o, ct_graph *g)
{
    for (int i = 0; i < g->n_node; i++) g->node[i].block = -1;
    if (o->n_again > 0)
        number_segments(net, o, g);
    else
        number_copies(g);
}

ct_status ct_graph_connect(const Ct__NetParameter *net, const Ct__LayerParameter **kept, int n,
                           const ct_net_options *o, ct_graph *g_p)
{
    ct_graph g = { .node = NULL };
    size_t n_value = 0;
    ct_status status;

    for (int i = 0; i < n; i++) n_value += kept[i]->n_top + 1; /* an automatic top */
    g.node = calloc((size_t)n + 1, sizeof(g.node[0]));
    g.value = calloc(n_value + 1, sizeof(g.value[0]));
    if ((g.node == NULL) || (g.value == NULL)) {
        ct_graph_destroy(&g);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d layers", n);
    }
    for (int i = 0; i < n; i++) CT_TRY_GOTO(status, err_destroy, add_node(&g, net, kept, n, o));
    number_blocks(net, o, &g);
    ct_name_map_destroy(&g.newest);
    *g_p = g;
    return CT_OK;

err_destroy:
    ct_graph_destroy(&g);
    return status;
}

/* ---- which layers of a net a phase, a level and a set of stages take in (NetStateRule) */

static bool has_stage(const Ct__NetParameter *net, const ct_net_options *o, const char *stage)
{
    for (int i = 0; i < o->n_stage; i++) {
        if (strcmp(o->stage[i], stage) == 0) return true;
    }
    if (net->state == NULL) return false;
    for (size_t i = 0; i < net->state->n_stage; i++) {
        if (strcmp(net->state->stage[i], stage) == 0) return true;
    }
    return false;
}

static bool meets(const Ct__NetParameter *net, const ct_net_options *o, const Ct__NetStateRule *r)
{
    int level = o->level;

    if ((level == 0) && (net->state != NULL)) level = net->state->level;
    if (r->has_phase && ((r->phase == CT__PHASE__TEST) != (o->phase == CT_TEST))) return false;
    if (r->has_min_level && (level < r->min_level)) return false;
    if (r->has_max_level && (level > r->max_level)) return false;
    for (size_t i = 0; i < r->n_stage; i++) {
        if (!has_stage(net, o, r->stage[i])) return false;
    }
    for (size_t i = 0; i < r->n_not_stage; i++) {
        if (has_stage(net, o, r->not_stage[i])) return false;
    }
    return true;
}

bool ct_graph_includes(const Ct__NetParameter *net, const ct_net_options *o,
                       const Ct__LayerParameter *l)
{
    for (size_t i = 0; i < l->n_include; i++) {
        if (meets(net, o, l->include[i])) return true;
    }
    for (size_t i = 0; i < l->n_exclude; i++) {
        if (meets(net, o, l->exclude[i])) return false;
    }
    return l->n_include == 0;
}

static ct_status fail_both(const ct_net_options *o, const Ct__LayerParameter *l)
{
    char *where;
    ct_status status;

    CT_TRY(graph_where(o, l, &where));
    status =
        CT_FAIL(CT_ERR_CONFIG, "%s%slayer \"%s\": it has include and exclude rules; give one kind",
                where, (where[0] != '\0') ? ": " : "", (l->name != NULL) ? l->name : "");
    free(where);
    return status;
}

ct_status ct_graph_filter(const Ct__NetParameter *net, const ct_net_options *o,
                          const Ct__LayerParameter ***kept_p, int *n_p)
{
    const Ct__LayerParameter **kept;
    int n = 0;

    if ((net->n_layers > 0) || (net->n_input > 0))
        return CT_FAIL(CT_ERR_ARG, "net \"%s\" is in an old form: upgrade it first",
                       (net->name != NULL) ? net->name : "");
    kept = calloc(net->n_layer + 1, sizeof(kept[0]));
    if (kept == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu layers", net->n_layer);
    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *l = net->layer[i];

        if ((l->n_include > 0) && (l->n_exclude > 0)) {
            free(kept);
            return fail_both(o, l);
        }
        if (ct_graph_includes(net, o, l)) kept[n++] = l;
    }
    if (n == 0) {
        ct_place place = ct_source_map_find(o->map, net);

        free(kept);
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s%snet \"%s\" has no layer in phase %s (%zu before its rules)", place.file,
                       (place.file[0] != '\0') ? ": " : "", (net->name != NULL) ? net->name : "",
                       (o->phase == CT_TEST) ? "TEST" : "TRAIN", net->n_layer);
    }
    *kept_p = kept;
    *n_p = n;
    return CT_OK;
}

/* ---- split layers: a value that several layers read, or that is a loss and read, gets one reader
 * and as many copies as it has uses. Names as in Caffe, so that logs and weights files look alike.
 */

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
    const ct_layer_ops *ops = graph_type(o, "Split");
    char **top;
    ct_status status;

    if (ops == NULL)
        return CT_NODE_FAIL(maker, CT_ERR_CONFIG,
                            "top \"%s\" has several readers, and there is no layer type \"Split\"",
                            from->name);
    top = calloc((size_t)n, sizeof(top[0]));
    if (top == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a Split layer");
    for (int t = 0; t < n; t++) top[t] = format(from->name, maker->name, from->top, t);
    status = graph_node_make(node, maker, ops, format(from->name, maker->name, from->top, -1),
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
    ct_graph g = { .node = NULL };
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

/* ---- which values, bottoms and weights have gradients: those on a way from something that learns
 * to a loss. */

bool ct_graph_node_passes(const ct_graph_node *n, int slot)
{
    if (n->ops->backward == NULL) return false;
    if (ct_layer_no_diff(n->ops, n->n_bottom, slot)) return false;
    return (n->param->n_propagate_down == 0) || n->param->propagate_down[slot];
}

/* True where the prototxt insists on the gradient of bottom `slot`. */
static bool graph_node_forces(const ct_graph_node *n, int slot, bool force_backward)
{
    if (!ct_graph_node_passes(n, slot)) return false;
    return force_backward || (n->param->n_propagate_down > 0);
}

/* propagate_down: true where no gradient can be had. */
static ct_status check_forced(const ct_graph_node *n)
{
    for (size_t b = 0; b < n->param->n_propagate_down; b++) {
        if (n->param->propagate_down[b] && !ct_graph_node_passes(n, (int)b))
            return CT_NODE_FAIL(n, CT_ERR_CONFIG,
                                "propagate_down is true for bottom %zu, \"%s\", which gets no "
                                "gradient from this type",
                                b, n->param->bottom[b]);
    }
    return CT_OK;
}

/* Whether a gradient crosses between stages: Send's comes, Receive's goes. */
static bool crosses_back(const ct_graph_node *n)
{
    return (n->param->transfer != NULL) && n->param->transfer->gradient;
}

ct_status ct_graph_reach(ct_graph *g, bool end_diffs)
{
    for (int i = g->n_node - 1; i >= 0; i--) {
        ct_graph_node *n = &g->node[i];

        CT_TRY(check_forced(n));
        n->reached = (n->n_top == 0) && crosses_back(n); /* a Send: its peer sends the gradient */
        for (int t = 0; t < n->n_top; t++) {
            ct_value *v = &g->value[n->top[t]];

            v->reached = (v->loss_weight != 0.0f) ||
                         ((v->reader >= 0) && g->node[v->reader].reached &&
                          ct_graph_node_passes(&g->node[v->reader], v->slot)) ||
                         (end_diffs && (v->reader < 0) && !n->ops->is_loss);
            n->reached |= v->reached;
        }
    }
    return CT_OK;
}

/* A top of a layer that runs backward, to which nothing comes back. Losses look at their first
 * top's diff alone. */
static bool needs_zero(const ct_graph_node *n, int t)
{
    return !n->ops->null_top_diff && (!n->ops->is_loss || (t == 0));
}

void ct_graph_gradients(ct_graph *g, int i, bool force_backward, bool forward_only)
{
    ct_graph_node *n = &g->node[i];
    bool needs = false;

    for (int w = 0; w < CT_MAX_WEIGHT; w++) needs |= n->weight_wanted[w];
    for (int b = 0; b < n->n_bottom; b++) needs |= n->bottom_wanted[b];
    needs |= (n->n_bottom == 0) && n->reached && crosses_back(n);
    n->runs_backward = needs && !forward_only;
    for (int t = 0; t < n->n_top; t++) {
        ct_value *v = &g->value[n->top[t]];

        if (forward_only) continue;
        if (v->reached && (v->reader >= 0)) {
            v->wants = needs || graph_node_forces(&g->node[v->reader], v->slot, force_backward);
            g->node[v->reader].bottom_wanted[v->slot] = v->wants;
        } else if (needs) {
            v->zero = !v->reached && needs_zero(n, t);
            v->wants = v->reached || v->zero;
        }
    }
}

/* ---- layers that the net adds: how they are made, and those that bring values to an order and a
 * dtype that their reader takes. */

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

/* What the net adds belongs to the copy of a repeat (NULL: to none) that `like` stands in. */
static ct_status take_copy(Ct__LayerParameter *own, const Ct__LayerParameter *like)
{
    Ct__RepeatCopy *c = NULL;

    if (like->repeat_copy != NULL) {
        c = malloc(sizeof(*c));
        if (c == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a layer that the net adds");
        *c = *like->repeat_copy; /* numbers alone */
        c->base.n_unknown_fields = 0;
        c->base.unknown_fields = NULL;
    }
    if (own->repeat_copy != NULL) ct__repeat_copy__free_unpacked(own->repeat_copy, NULL);
    own->repeat_copy = c;
    return CT_OK;
}

static ct_status graph_node_make(ct_graph_node *n, const ct_graph_node *maker,
                                 const ct_layer_ops *ops, char *name, const char *bottom,
                                 char *const *top, int n_top)
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
    CT_TRY(take_copy(n->own, maker->param));
    n->block = maker->block;
    n->param = n->own;
    n->name = n->own->name;
    n->where = strdup(maker->where);
    if (n->where == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", n->name);
    return graph_node_alloc(n, 1, n_top);
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
    const ct_layer_ops *ops = graph_type(o, type);
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
    CT_TRY(graph_node_make(n, &g->node[g->value[value].node], ops, name.text, blob, &top, 1));
    g->value[made].name = n->own->top[0];
    if (g->value[made].reader >= 0) { /* it stands before its reader */
        CT_TRY(take_copy(n->own, g->node[g->value[made].reader].param));
        n->block = g->node[g->value[made].reader].block;
    }
    n->bottom[0] = value;
    n->top[0] = made;
    n->varies = ct_value_varies(g, &g->value[value]);
    n->late = ct_value_is_late(g, &g->value[value]);
    n->reached = g->value[value].reached;
    n->bottom_wanted[0] = g->value[value].wants && n->reached;
    return CT_OK;
}

/* Layers that work in place, one behind the other, through which a reader is looked for. Nets have
 * a few; asked of each of very many, all to the end would take long, and a deep stack. */
enum { MOST_IN_PLACE = 64 };

static bool reads_narrow(const ct_graph *g, const ct_value *v, const ct_device *dev, int depth)
{
    const ct_graph_node *n = (v->reader >= 0) ? &g->node[v->reader] : NULL;
    const ct_device_override *form;

    if ((n == NULL) || (v->loss_weight != 0.0f) || (n->ops->layout == NULL) ||
        !n->ops->layout->last || !ct_layer_on_device(n->ops, n->param, dev, &form))
        return false;
    if (!n->ops->allow_inplace && (n->ops->alias == 0)) return true;
    for (int t = 0; (t < n->n_top) && (depth < MOST_IN_PLACE); t++) {
        if (reads_narrow(g, &g->value[n->top[t]], dev, depth + 1)) return true;
    }
    return false;
}

bool ct_graph_reads_narrow(const ct_graph *g, const ct_value *v, const ct_device *dev)
{
    return reads_narrow(g, v, dev, 0);
}

static bool reads_tokens(const ct_graph *g, const ct_value *v, int depth)
{
    const ct_graph_node *n = (v->reader >= 0) ? &g->node[v->reader] : NULL;

    if ((n == NULL) || (v->loss_weight != 0.0f) || (n->ops->layout == NULL) ||
        !n->ops->layout->tokens)
        return false;
    if (!n->ops->allow_inplace && (n->ops->alias == 0) && (n->param->transfer == NULL)) return true;
    for (int t = 0; (t < n->n_top) && (depth < MOST_IN_PLACE); t++) {
        if (reads_tokens(g, &g->value[n->top[t]], depth + 1)) return true;
    }
    return false;
}

bool ct_graph_reads_tokens(const ct_graph *g, const ct_value *v)
{
    return reads_tokens(g, v, 0);
}

bool ct_blob_keeps_order(const ct_blob *from, const ct_blob *to)
{
    return !ct_blob_is_last(from) || (ct_shape_count(&from->data.shape, 2, -1) == 1) ||
           ct_shape_equal(&from->data.shape, &to->data.shape);
}
