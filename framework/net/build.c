/* Sets layers up one by one: blobs, gradients wanted, shapes. */
#include "framework/net/net_impl.h"

#include <stdlib.h>
#include <string.h>

/* True where layer i may overwrite what lies in the memory of its bottom value: nobody reads it
 * later, forward or backward. */
static bool overwritable(const ct_net *net, int i, int value)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    const ct_graph *g = &m->graph;
    int root = m->data_root[g->value[value].blob];

    for (int u = 0; u < g->n_value; u++) {
        const ct_value *v = &g->value[u];
        const ct_graph_node *maker = &g->node[v->node];
        int r = v->reader;

        if ((v->blob < 0) || (m->data_root[v->blob] != root)) continue;
        if (maker->ops->keeps_top) return false;
        if (maker->runs_backward && (net->pass->instance[v->node]->backward_reads & CT_READS_TOP))
            return false;
        if (r == i) continue;
        if ((r < 0) || (r > i)) return false;
        /* a layer that worked in place keeps what its backward needs of the bottom itself */
        if (g->node[r].runs_backward &&
            (net->pass->instance[r]->backward_reads & CT_READS_BOTTOM) &&
            !((v->slot < g->node[r].n_top) && g->node[r].inplace[v->slot]))
            return false;
    }
    return true;
}

static ct_status add_blob(ct_net *net, const char *name, int *blob_p)
{
    ct_net_impl *m = ct_net_impl_of(net);
    ct_blob *b = calloc(1, sizeof(*b));

    if (b == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for blob \"%s\"", name);
    b->name = name;
    b->data.dev = b->diff.dev = net->options.dev;
    m->data_root[net->n_blob] = m->diff_root[net->n_blob] = net->n_blob;
    *blob_p = net->n_blob;
    net->pass->blob[net->n_blob++] = b;
    return CT_OK;
}

static ct_status make_layer(ct_net *net, int i)
{
    ct_graph_node *n = &ct_net_impl_of(net)->graph.node[i];
    ct_layer *l = calloc(1, sizeof(*l));

    n->number = (i > 0) ? n[-1].number + !n[-1].ops->by_net : 0;
    net->layer[i] = l;
    net->n_layer = i + 1;
    if (l == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", n->name);
    l->ops = n->ops;
    l->param = n->param;
    l->name = n->name;
    l->where = n->where;
    l->env = !n->varies                                      ? &net->options.env
             : n->late || !ct_net_impl_of(net)->forward_only ? &ct_net_impl_of(net)->untimed
                                                             : &ct_net_impl_of(net)->varying;
    ct_layer_place(l, net->options.dev);
    l->phase = net->options.phase;
    if (n->param->has_phase) l->phase = (n->param->phase == CT__PHASE__TEST) ? CT_TEST : CT_TRAIN;
    l->n_bottom = n->n_bottom;
    l->n_top = n->n_top;
    l->backward_reads = n->ops->backward_reads;
    if (n->ops->state_size > 0) l->state = calloc(1, n->ops->state_size);
    if ((n->ops->state_size > 0) && (l->state == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", n->name);
    return CT_OK;
}

/* The instance of layer i, whose bottoms are there. */
static ct_status make_instance(ct_pass *pass, int i)
{
    const ct_layer *l = pass->net->layer[i];
    const ct_graph *g = &ct_net_impl_of(pass->net)->graph;
    ct_instance *in = pass->instance[i] = calloc(1, sizeof(*in));

    if (in != NULL) {
        in->layer = l;
        in->number = i;
        in->bottom = calloc((size_t)l->n_bottom + 1, sizeof(in->bottom[0]));
        in->top = calloc((size_t)l->n_top + 1, sizeof(in->top[0]));
        if (l->ops->instance_state_size > 0) in->state = calloc(1, l->ops->instance_state_size);
    }
    if ((in == NULL) || (in->bottom == NULL) || (in->top == NULL) ||
        ((l->ops->instance_state_size > 0) && (in->state == NULL)))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", l->name);
    for (int b = 0; b < l->n_bottom; b++)
        in->bottom[b] = pass->blob[g->value[g->node[i].bottom[b]].blob];
    return CT_OK;
}

static void bind_tops(ct_pass *pass, int i)
{
    const ct_graph *g = &ct_net_impl_of(pass->net)->graph;

    for (int t = 0; t < g->node[i].n_top; t++) {
        const ct_value *v = &g->value[g->node[i].top[t]];

        pass->instance[i]->top[t] = pass->blob[v->blob];
        pass->blob[v->blob]->wants_diff |= v->wants;
    }
}

/* Before memory is placed, so that `check` finds what training would. */
static ct_status check_weights(const ct_layer *l)
{
    char who[512];

    snprintf(who, sizeof(who), "%s%slayer \"%s\" (%s): ", l->where,
             (l->where[0] != '\0') ? ": " : "", l->name, l->ops->type);
    for (int w = 0; w < l->n_weight; w++) {
        const ct_weight_spec *s = &l->weight[w];

        if (!ct_shape_is_valid(&s->shape))
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "weight blob %d is impossible: its shape is %s",
                                 w, ct_shape_str(&s->shape).text);
        if ((s->filler != NULL) && (ct_shape_count(&s->shape, 0, -1) > 0))
            CT_TRY(ct_fill_check(s->filler, &s->cut.whole, who));
    }
    return CT_OK;
}

static ct_status setup(ct_net *net, int i)
{
    ct_net_impl *m = ct_net_impl_of(net);
    ct_graph_node *n = &m->graph.node[i];
    ct_layer *l = net->layer[i];
    ct_shape *shape = calloc((size_t)n->n_bottom + 1, sizeof(shape[0]));
    ct_status status = CT_OK;

    if (shape == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", n->name);
    for (int b = 0; b < n->n_bottom; b++) shape[b] = net->pass->instance[i]->bottom[b]->data.shape;
    status = ct_layer_check_part(l);
    if ((status == CT_OK) && (l->ops->setup != NULL)) status = l->ops->setup(l, shape);
    free(shape);
    CT_TRY(status);
    CT_TRY(check_weights(l));
    /* parts behind the first may be without a bias */
    if ((n->param->n_param > (size_t)l->n_weight) && ct_layer_is_first(l))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%zu param entries, but it has %d weight blobs",
                             n->param->n_param, l->n_weight);
    for (int w = 0; w < l->n_weight; w++) {
        float lr, decay;

        ct_net_param_mult(net, i, w, &lr, &decay);
        n->weight_wanted[w] = (l->weight[w].kind == CT_WEIGHT_LEARNED) && (lr != 0.0f) &&
                              n->reached && (n->ops->backward != NULL) && !m->forward_only;
    }
    ct_graph_gradients(&m->graph, i, m->force_backward, m->forward_only);
    return CT_OK;
}

static ct_status make_tops(ct_net *net, int i)
{
    ct_net_impl *m = ct_net_impl_of(net);
    ct_graph_node *n = &m->graph.node[i];

    for (int t = 0; t < n->n_top; t++) {
        ct_value *v = &m->graph.value[n->top[t]];

        if (n->inplace[t] && !overwritable(net, i, n->bottom[t])) {
            CT_DEBUG("layer \"%s\": \"%s\" is read again, so the layer does not work in place",
                     n->name, v->name);
            n->inplace[t] = false;
        }
        if (n->inplace[t])
            v->blob = m->graph.value[n->bottom[t]].blob;
        else
            CT_TRY(add_blob(net, v->name, &v->blob));
    }
    bind_tops(net->pass, i);
    return CT_OK;
}

/* Lets blobs through which data or diffs only pass use one memory. */
static void alias(ct_net *net, int i)
{
    ct_net_impl *m = ct_net_impl_of(net);
    const ct_graph_node *n = &m->graph.node[i];
    int from, to;

    if (net->options.unshared || (n->n_bottom == 0) || (n->n_top == 0)) return;
    from = m->graph.value[n->bottom[0]].blob;
    for (int t = 0; (n->ops->alias & CT_ALIAS_DATA) && (t < n->n_top); t++) {
        to = m->graph.value[n->top[t]].blob;
        if ((ct_tensor_bytes(&net->pass->blob[to]->data) ==
             ct_tensor_bytes(&net->pass->blob[from]->data)) &&
            ct_blob_keeps_order(net->pass->blob[from], net->pass->blob[to]))
            m->data_root[to] = m->data_root[from];
    }
    to = m->graph.value[n->top[0]].blob;
    if ((n->ops->alias & CT_ALIAS_DIFF) && (n->n_top == 1) && n->bottom_wanted[0] &&
        (ct_tensor_bytes(&net->pass->blob[to]->diff) ==
         ct_tensor_bytes(&net->pass->blob[from]->diff)) &&
        ct_blob_keeps_order(net->pass->blob[from], net->pass->blob[to]))
        m->diff_root[to] = m->diff_root[from];
}

ct_status ct_pass_reshape_layer(ct_pass *pass, int i)
{
    ct_net *net = pass->net;
    const ct_graph *g = &ct_net_impl_of(net)->graph;
    const ct_graph_node *n = &g->node[i];
    ct_layer *l = net->layer[i];
    ct_instance *in = pass->instance[i];

    in->backward_reads = l->backward_reads;
    in->top_is_share = l->ops->top_is_share;
    if (((n->own != NULL) || (n->param->transfer != NULL)) &&
        (n->n_bottom > 0)) /* what the net adds passes it on */
        in->top_is_share = pass->instance[g->value[n->bottom[0]].node]->top_is_share;
    for (int t = 0; t < l->n_top; t++) { /* even in place */
        in->top[t]->restarts_first = false;
        in->top[t]->ids = 0;
    }
    if (l->ops->reshape != NULL) CT_TRY(l->ops->reshape(l, in));
    if (ct_host_layer_is(net, i)) in->backward_reads = 0; /* its copies are there in backward */
    for (int t = 0; t < l->n_top; t++) {
        if (!ct_shape_is_valid(&in->top[t]->data.shape))
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "top \"%s\" would have the impossible shape %s",
                                 in->top[t]->name, ct_shape_str(&in->top[t]->data.shape).text);
    }
    return CT_OK;
}

/* For the first time. */
static ct_status reshape(ct_pass *pass, int i)
{
    const ct_graph *g = &ct_net_impl_of(pass->net)->graph;

    pass->instance[i]->read_narrow =
        (g->node[i].n_top > 0) &&
        ct_graph_reads_narrow(g, &g->value[g->node[i].top[0]], pass->net->options.dev);
    pass->instance[i]->read_tokens = (g->node[i].n_top > 0) &&
                                     (pass->net->options.dev->kind == CT_DEVICE_CPU) &&
                                     ct_graph_reads_tokens(g, &g->value[g->node[i].top[0]]);
    return ct_pass_reshape_layer(pass, i);
}

/* The net's batch is that of its first data layer, or of what it gets from another stage. */
static void take_batch(ct_net *net, int i)
{
    const ct_layer *l = net->layer[i];
    const ct_instance *in = net->pass->instance[i];

    if ((l->ops->is_data || (in->batch_global > 0)) && (net->batch_global == 0)) {
        net->batch_local = in->batch_local;
        net->batch_global = in->batch_global;
        net->batch_first = in->batch_first;
        net->batch_axis = in->batch_axis;
        net->n_sample = in->n_sample;
        /* Input: the caller's batch, of the same size on every rank */
        if ((net->batch_global == 0) && (l->n_top > 0)) {
            net->batch_local = ct_shape_legacy(&in->top[0]->data.shape, 0);
            net->batch_global = net->batch_local * net->options.env.n_rank;
            net->batch_first = net->batch_local * net->options.env.rank;
        }
    }
}

/* How a bottom has to be brought to a node: as it is (NULL), or by a layer of which type. */
static ct_status find_conversion(const ct_graph_node *n, const ct_device *dev,
                                 const ct_blob **bottom, int b, const char **type_p)
{
    const Ct__LayerParameter *p = n->param;
    const ct_layout_ops *as = n->ops->layout;
    bool bf16 = ct_blob_is_bf16(bottom[b]), taken;
    const ct_device_override *form;
    const ct_blob **as_f32;
    ct_blob *copy;

    *type_p = NULL;
    if (ct_tensor_is_usual(&bottom[b]->data)) return CT_OK;
    *type_p = "Reorder";
    if (ct_blob_is_last(bottom[b])) {
        taken = (as != NULL) && as->last && ct_layer_on_device(n->ops, p, dev, &form) &&
                as->takes(p, bottom, b);
        if (taken) *type_p = NULL;
        return CT_OK;
    }
    if (!bf16 || ((as != NULL) && as->bf16)) {
        taken = (as != NULL) && as->takes(p, bottom, b);
        if (taken) *type_p = NULL;
        if (taken || !bf16) return CT_OK;
    }
    as_f32 = malloc((size_t)n->n_bottom * sizeof(as_f32[0]));
    copy = malloc((size_t)n->n_bottom * sizeof(copy[0]));
    if ((as_f32 == NULL) || (copy == NULL)) {
        free(as_f32);
        free(copy);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", n->name);
    }
    for (int i = 0; i < n->n_bottom; i++) {
        copy[i] = *bottom[i];
        copy[i].data.dtype = copy[i].diff.dtype = CT_F32;
        as_f32[i] = &copy[i];
    }
    if (ct_tensor_is_usual(&copy[b].data) || ((as != NULL) && as->takes(p, as_f32, b)))
        *type_p = "Cast";
    free(as_f32);
    free(copy);
    return CT_OK;
}

static ct_status convert(ct_net *net, int at, int value, const char *type)
{
    bool cast = (strcmp(type, "Cast") == 0);

    return ct_graph_convert(&ct_net_impl_of(net)->graph, at, value, type, cast ? "f32" : "plain",
                            &net->options);
}

/* Puts a Reorder or a Cast before node i where it does not take a bottom as it is, or a Reorder
 * behind all nodes where a value that is not f32 in plain order has no reader. One at a time: it
 * stands at i then. */
static ct_status bring_to_plain(ct_net *net, int i)
{
    ct_graph *g = &ct_net_impl_of(net)->graph;
    const ct_graph_node *n = &g->node[i];
    ct_status status = CT_OK;
    const char *type = NULL;
    const ct_blob **bottom;
    int found = -1;

    if (i == g->n_node) {
        for (int v = 0; (v < g->n_value) && (found < 0); v++) {
            if ((g->value[v].reader < 0) &&
                !ct_tensor_is_usual(&net->pass->blob[g->value[v].blob]->data))
                found = v;
        }
        return (found >= 0) ? convert(net, i, found, "Reorder") : CT_OK;
    }
    if (n->ops->by_net && (n->ops->layout == NULL)) return CT_OK;
    bottom = malloc(((size_t)n->n_bottom + 1) * sizeof(bottom[0]));
    if (bottom == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", n->name);
    for (int b = 0; b < n->n_bottom; b++) bottom[b] = net->pass->blob[g->value[n->bottom[b]].blob];
    for (int b = 0; (b < n->n_bottom) && (found < 0) && (status == CT_OK); b++) {
        status = find_conversion(n, net->options.dev, bottom, b, &type);
        if (type != NULL) found = n->bottom[b];
    }
    free(bottom);
    CT_TRY(status);
    if (found < 0) return CT_OK;
    if (ct_graph_is_inner(g, &g->value[found])) ct_graph_unfuse(g, n->group);
    return convert(net, i, found, type);
}

/* Room for a Cast and a Reorder behind every value. */
static size_t most_nodes(const ct_graph *g)
{
    return (size_t)g->n_node + 2 * (size_t)g->n_value + 1;
}

static size_t most_values(const ct_graph *g)
{
    return 3 * (size_t)g->n_value + 1;
}

static ct_status make_room(ct_graph *g)
{
    size_t n_node = most_nodes(g), n_value = most_values(g);
    ct_graph_node *node = realloc(g->node, n_node * sizeof(node[0]));
    ct_value *value;

    if (node != NULL) g->node = node;
    value = realloc(g->value, n_value * sizeof(value[0]));
    if (value != NULL) g->value = value;
    if ((node == NULL) || (value == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a graph of %zu layers", n_node);
    return CT_OK;
}

static ct_status build_graph(ct_net *net, const Ct__NetParameter *param)
{
    ct_net_impl *m = ct_net_impl_of(net);
    const Ct__LayerParameter **kept;
    ct_graph raw;
    ct_status status;
    int n;

    CT_TRY(ct_graph_filter(param, &net->options, &kept, &n));
    status = ct_graph_connect(param, kept, n, &net->options, &raw);
    free(kept);
    CT_TRY(status);
    status = ct_graph_split(&raw, &net->options, &m->graph);
    ct_graph_destroy(&raw);
    CT_TRY(status);
    CT_TRY(make_room(&m->graph));
    m->graph.fixed = net->options.fixed;
    m->graph.packed = (net->options.env.packed != NULL);
    CT_TRY(ct_graph_reach(&m->graph, net->options.end_diffs));
    ct_graph_vary(&m->graph);
    if (!net->options.no_fuse && !m->no_fuse)
        ct_graph_fuse(&m->graph, &net->options, net->recompute >= CT__RECOMPUTE__BLOCKS);
    return CT_OK;
}

ct_status ct_net_build(ct_net *net, const Ct__NetParameter *param)
{
    ct_net_impl *m = ct_net_impl_of(net);
    size_t n_node, n_value;

    CT_TRY(build_graph(net, param));
    CT_TRY(ct_net_param_rules(net));
    n_node = most_nodes(&m->graph);
    n_value = most_values(&m->graph);
    net->layer = calloc(n_node, sizeof(net->layer[0]));
    m->data_root = calloc(n_value, sizeof(int));
    m->diff_root = calloc(n_value, sizeof(int));
    CT_TRY(ct_pass_open(net, n_node, n_value, &net->pass));
    if ((net->layer == NULL) || (m->data_root == NULL) || (m->diff_root == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a net of %d layers", m->graph.n_node);
    for (int i = 0;; i++) {
        CT_TRY(bring_to_plain(net, i));
        if (i == m->graph.n_node) return CT_OK;
        CT_TRY(make_layer(net, i));
        CT_TRY(make_instance(net->pass, i));
        CT_TRY(setup(net, i));
        CT_TRY(make_tops(net, i));
        CT_TRY(reshape(net->pass, i));
        alias(net, i);
        take_batch(net, i);
    }
}

ct_status ct_pass_build(ct_pass *pass)
{
    for (int i = 0; i < pass->net->n_layer; i++) {
        CT_TRY(make_instance(pass, i));
        bind_tops(pass, i);
        CT_TRY(reshape(pass, i));
    }
    return CT_OK;
}
