/* Fusion: chains of layers that one of them runs, each value between with one reader. The layers
 * stay what they are to prototxt, weights and snapshots; what changes is who computes, when, and
 * that the values within a group have no memory. Groups are found on the graph, before any layer is
 * set up, so that no layer of one works in place; the layers that are to run them decide last. */
#include "framework/net/net_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- on the graph */

/* What varies from batch to batch is shaped again, with its group where the shapes are known before
 * forward and no gradient is made: vary.c. */
static bool is_simple(const ct_graph_node *n, const ct_net_options *o)
{
    return (n->param->n_propagate_down == 0) && !n->ops->by_net && !n->late &&
           (!n->varies || ct_net_runs_forward_only(o));
}

/* On devices: engines that say so, and forms. */
static bool may_lead(const ct_graph_node *n, const ct_net_options *o)
{
    const ct_device_override *form;

    return (n->ops->fusion != NULL) && (n->ops->fusion->join != NULL) && (n->n_top == 1) &&
           (n->n_bottom >= 1) && is_simple(n, o) &&
           ((o->dev == NULL) || (ct_layer_on_device(n->ops, n->param, o->dev, &form) &&
                                 ((form == NULL) || form->epilogues)));
}

static bool as_epilogue(const ct_graph_node *n, ct_epilogue_kind *kind_p)
{
    const ct_fusion_ops *f = n->ops->fusion;

    return (f != NULL) && (f->as_epilogue != NULL) && f->as_epilogue(n->param, kind_p);
}

/* Whether a layer behind node i uses a weight of its, by name. */
static bool shares_behind(const ct_graph *g, int i)
{
    const Ct__LayerParameter *mine = g->node[i].param;

    for (int k = i + 1; k < g->n_node; k++) {
        const Ct__LayerParameter *p = g->node[k].param;

        for (size_t w = 0; w < p->n_param; w++) {
            for (size_t v = 0; v < mine->n_param; v++) {
                const char *a = p->param[w]->name, *b = mine->param[v]->name;

                if ((a != NULL) && (b != NULL) && (a[0] != '\0') && (strcmp(a, b) == 0))
                    return true;
            }
        }
    }
    return false;
}

/* Whether the loss that reads v can be made with it: gradients are made in forward then, by the
 * loss weight alone, and must be the first of their weights in backward. */
static bool may_end(const ct_graph *g, const ct_value *v)
{
    const ct_value *loss = &g->value[g->node[v->reader].top[0]];

    return (v->slot == 0) && (loss->reader < 0) && (loss->loss_weight != 0.0f) &&
           !shares_behind(g, v->node);
}

/* Whether node r, a NORM, may go with the sum that node `at` makes or hands on. A sum that leaves
 * the group, too, must not be wanted before r runs, and both gradients come or neither. */
static bool may_norm(const ct_graph *g, int at, int r)
{
    const ct_graph_node *n = &g->node[at];

    for (int t = 0; (n->n_top == 2) && (t < 2); t++) {
        const ct_value *v = &g->value[n->top[t]];
        const ct_graph_node *other = (v->reader >= 0) ? &g->node[v->reader] : NULL;

        if (v->reader == r) continue;
        if ((v->loss_weight != 0.0f) || (v->reached != g->value[g->node[r].top[0]].reached) ||
            ((other != NULL) && (v->reader < r)))
            return false;
        for (int k = 0; (other != NULL) && (k < other->n_top); k++) {
            if (other->inplace[k]) return false;
        }
    }
    return true;
}

/* Whether all nodes from a to b are of one block that may run again, or all of none. */
static bool one_block(const ct_graph *g, int a, int b)
{
    for (int k = a; k < b; k++) {
        if (g->node[k].block != g->node[k + 1].block) return false;
    }
    return true;
}

/* Whether value v is read within the block of its maker alone, behind a Split, too. */
static bool stays(const ct_graph *g, const ct_value *v)
{
    const ct_graph_node *r = (v->reader >= 0) ? &g->node[v->reader] : NULL;
    ct_epilogue_kind kind;
    bool all = (r != NULL) && (v->loss_weight == 0.0f) && one_block(g, v->node, v->reader);

    for (int t = 0; all && as_epilogue(r, &kind) && (kind == CT_EPILOGUE_SPLIT) && (t < r->n_top);
         t++)
        all = stays(g, &g->value[r->top[t]]);
    return all;
}

/* Blocks that run again must not keep more for node r, a NORM, and the sum in front. Within a block
 * both run again, unless what r makes leaves it. In another one r runs again by itself, of a sum
 * that goes on (recompute.c). */
static bool suits_blocks(const ct_graph *g, int front, int r, bool goes_on)
{
    if (g->node[r].block < 0) return true;
    if (!one_block(g, front, r)) return goes_on;
    return stays(g, &g->value[g->node[r].top[0]]);
}

/* The NORM behind `at`, a Split of two right behind the node in front, which is a sum; -1: none. */
static int norm_behind(const ct_graph *g, int front, int at, unsigned epilogues, bool reruns,
                       const ct_net_options *o)
{
    const ct_graph_node *n = &g->node[at];
    ct_epilogue_kind kind;

    if (!((epilogues >> CT_EPILOGUE_NORM) & 1u) || (at == front) || (n->n_top != 2) ||
        (g->value[n->bottom[0]].node != front) || !as_epilogue(n, &kind) ||
        (kind != CT_EPILOGUE_SPLIT))
        return -1;
    for (int t = 0; t < 2; t++) {
        const ct_value *v = &g->value[n->top[t]];
        const ct_graph_node *r = (v->reader >= 0) ? &g->node[v->reader] : NULL;

        if ((r != NULL) && (r->group == 0) && is_simple(r, o) && as_epilogue(r, &kind) &&
            (kind == CT_EPILOGUE_NORM) && (v->loss_weight == 0.0f) && may_norm(g, at, v->reader) &&
            (!reruns || suits_blocks(g, front, v->reader, true)))
            return v->reader;
    }
    return -1;
}

/* The kind of tail that the reader of v is, if it may follow one of kind `after`; else
 * CT_N_EPILOGUE.
 */
static ct_epilogue_kind follower(const ct_graph *g, const ct_value *v, unsigned epilogues,
                                 int after, const ct_net_options *o)
{
    const ct_graph_node *r = (v->reader >= 0) ? &g->node[v->reader] : NULL;
    ct_epilogue_kind kind;

    if ((r == NULL) || (v->loss_weight != 0.0f) || (r->group > 0) || !is_simple(r, o) ||
        !as_epilogue(r, &kind))
        return CT_N_EPILOGUE;
    if (((int)kind <= after) || !((epilogues >> kind) & 1u)) return CT_N_EPILOGUE;
    if ((kind == CT_EPILOGUE_SPLIT) && o->unshared) return CT_N_EPILOGUE;
    if ((kind == CT_EPILOGUE_NORM) && (after >= 0)) return CT_N_EPILOGUE;
    if ((kind == CT_EPILOGUE_LOSS) && !may_end(g, v)) return CT_N_EPILOGUE;
    return kind;
}

/* What may follow a node that may lead. */
static unsigned tails_of(const ct_graph_node *n, const ct_net_options *o)
{
    bool host = (o->dev == NULL) || (o->dev->kind == CT_DEVICE_CPU);
    const ct_fusion_ops *f = n->ops->fusion;

    return f->epilogues & ~(host ? f->device_only : f->host_only);
}

static void take(ct_graph_node *n, int group)
{
    n->group = group;
    for (int t = 0; t < n->n_top; t++) n->inplace[t] = false;
}

void ct_graph_fuse(ct_graph *g, const ct_net_options *o, bool reruns)
{
    int n_group = 0;

    for (int i = 0; i < g->n_node; i++) {
        ct_graph_node *n = &g->node[i];
        int at = i, after = -1, norm;
        ct_epilogue_kind kind;
        unsigned tails;

        if ((n->group > 0) || !may_lead(n, o)) continue;
        tails = tails_of(n, o);
        while ((g->node[at].n_top == 1) && ((kind = follower(g, &g->value[g->node[at].top[0]],
                                                             tails, after, o)) != CT_N_EPILOGUE)) {
            int reader = g->value[g->node[at].top[0]].reader;

            if ((kind == CT_EPILOGUE_NORM) && reruns && !suits_blocks(g, i, reader, false)) break;
            if (after < 0) take(n, ++n_group);
            at = reader;
            take(&g->node[at], n_group);
            after = (int)kind;
        }
        norm = norm_behind(g, i, at, tails, reruns, o);
        if (norm >= 0) take(&g->node[norm], n_group);
    }
}

void ct_graph_unfuse(ct_graph *g, int group)
{
    for (int i = 0; i < g->n_node; i++) {
        if (g->node[i].group == group) g->node[i].group = 0;
    }
}

bool ct_graph_is_inner(const ct_graph *g, const ct_value *v)
{
    return (v->reader >= 0) && (g->node[v->node].group > 0) &&
           (g->node[v->node].group == g->node[v->reader].group);
}

/* ---- on the net */

/* The tail of group `group`, whose first layer is i; returns its last. */
static int gather(const ct_pass *pass, int i, ct_epilogue *tail)
{
    const ct_graph *g = &ct_net_impl_of(pass->net)->graph;
    int last = i;

    for (int k = i + 1; k < pass->net->n_layer; k++) {
        const ct_graph_node *n = &g->node[k];
        ct_epilogue_kind kind;

        if ((n->group != g->node[i].group) || !as_epilogue(n, &kind)) continue;
        tail->of[kind] = pass->instance[k];
        if (kind == CT_EPILOGUE_SUM) tail->slot = g->value[g->node[last].top[0]].slot;
        last = k;
    }
    tail->last = pass->instance[last];
    return last;
}

static void adopt(ct_net *net, int i, int last)
{
    ct_net_impl *m = ct_net_impl_of(net);

    for (int k = i; k <= last; k++) {
        if (m->graph.node[k].group != m->graph.node[i].group) continue;
        m->runner[k] = m->unit[k] = i;
        m->place[k] = last;
    }
}

/* Asks the layer that would run the group; where it does not want to, nothing has changed. */
static bool join(ct_pass *pass, int i, const ct_epilogue *tail)
{
    const ct_layer *l = pass->net->layer[i];
    ct_instance *of[CT_N_EPILOGUE + 1] = { pass->instance[i] };
    int reads[CT_N_EPILOGUE + 1] = { 0 };
    unsigned over[CT_N_EPILOGUE + 1] = { 0 };

    for (int k = 0; k < CT_N_EPILOGUE; k++) of[k + 1] = tail->of[k];
    for (int k = 0; k <= CT_N_EPILOGUE; k++) {
        if (of[k] == NULL) continue;
        reads[k] = of[k]->backward_reads;
        over[k] = of[k]->over;
        of[k]->backward_reads = 0;
        of[k]->over = 0;
    }
    pass->instance[i]->tail = tail;
    if (l->ops->fusion->join(l, pass->instance[i])) return true;
    pass->instance[i]->tail = NULL;
    for (int k = 0; k <= CT_N_EPILOGUE; k++) {
        if (of[k] == NULL) continue;
        of[k]->backward_reads = reads[k];
        of[k]->over = over[k];
    }
    return false;
}

bool ct_pass_join_again(ct_pass *pass, int i)
{
    return join(pass, i, pass->instance[i]->tail);
}

/* ---- a ReLU's gradient, left to the reader of its top */

/* The reader takes it, and its maker gives what the reader wants for that. */
static bool share_relu(ct_instance *maker, ct_instance *reader)
{
    const ct_fusion_ops *from = maker->layer->ops->fusion, *to = reader->layer->ops->fusion;
    ct_relu_share share = { .maker = maker };

    if ((from->offer_relu == NULL) || (to == NULL) || (to->take_relu == NULL)) return false;
    from->offer_relu(maker->layer, maker, &share);
    if (!to->take_relu(reader->layer, reader, &share)) return false;
    if (((share.bits != 0) || share.bias) &&
        ((from->leave_relu == NULL) || !from->leave_relu(maker->layer, maker, &share))) {
        (void)to->take_relu(reader->layer, reader, NULL);
        return false;
    }
    reader->relu = share;
    return true;
}

static void hand_on_relu(ct_pass *pass, ct_epilogue *tail)
{
    const ct_net_impl *m = ct_net_impl_of(pass->net);
    const ct_value *v;
    int last = 0;

    while (pass->instance[last] != tail->last) last++;
    v = &m->graph.value[m->graph.node[last].top[0]];
    if ((tail->last != tail->of[CT_EPILOGUE_RELU]) || (v->reader < 0) || (v->loss_weight != 0.0f) ||
        !share_relu(pass->instance[m->runner[last]], pass->instance[v->reader]))
        return;
    tail->relu_done = true;
    tail->last->backward_reads = 0;
}

/* Layer i does not run its group: on the graph, every layer of it runs alone. */
static ct_status dissolve(const ct_pass *pass, int i, int last)
{
    ct_net *net = pass->net;
    ct_graph *g = &ct_net_impl_of(net)->graph;

    if (pass != net->pass)
        return CT_LAYER_FAIL(
            net->layer[i], CT_ERR_CONFIG,
            "it runs the layers up to \"%s\" in the net's first pass, and would not "
            "in another",
            net->layer[last]->name);
    CT_DEBUG("layer \"%s\": does not run the layers up to \"%s\"", net->layer[i]->name,
             net->layer[last]->name);
    ct_graph_unfuse(g, g->node[i].group);
    return CT_OK;
}

ct_status ct_pass_fuse(ct_pass *pass)
{
    ct_net *net = pass->net;
    ct_net_impl *m = ct_net_impl_of(net);
    ct_epilogue *all = calloc((size_t)net->n_layer + 1, sizeof(*all));
    int n_tail = 0;

    ct_pass_impl_of(pass)->tail = all;
    if (all == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the groups of %d layers", net->n_layer);
    for (int i = 0; i < net->n_layer; i++) {
        int last;

        if ((m->graph.node[i].group == 0) || (m->runner[i] != i)) continue;
        last = gather(pass, i, &all[n_tail]);
        if (join(pass, i, &all[n_tail])) {
            adopt(net, i, last);
            n_tail++;
            continue;
        }
        CT_TRY(dissolve(pass, i, last));
        all[n_tail] = (ct_epilogue){ .last = NULL };
    }
    for (int k = 0; k < n_tail; k++) hand_on_relu(pass, &all[k]);
    return CT_OK;
}

ct_status ct_net_fuse(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    size_t n = (size_t)net->n_layer + 1;

    m->runner = calloc(n, sizeof(int));
    m->place = calloc(n, sizeof(int));
    m->unit = calloc(n, sizeof(int));
    if ((m->runner == NULL) || (m->place == NULL) || (m->unit == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the groups of %d layers", net->n_layer);
    for (int i = 0; i < net->n_layer; i++) m->runner[i] = m->place[i] = m->unit[i] = i;
    return ct_pass_fuse(net->pass);
}

int ct_net_runner(const ct_net *net, int layer)
{
    return ct_net_impl_of(net)->runner[layer];
}
