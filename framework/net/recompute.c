/* Values that are made again in backward, from what is kept anyway, instead of being kept: their
 * memory serves others between forward's last reader and backward's first. A layer says that it can
 * (ops.again); here is found where that frees memory, when it happens, and in which order. */
#include "framework/net/net_impl.h"

#include <stdlib.h>

/* Values that lie in one memory. */
static bool lies_in(const ct_net_impl *m, const ct_value *v, int root)
{
    return m->data_root[v->blob] == root;
}

/* The first and last moment of backward that reads what lies in `root`; first > last: none does. */
static ct_span reads_of(const ct_net *net, int root)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    ct_span s = { 0, -1, false };

    for (int i = 0; i < m->graph.n_value; i++) {
        const ct_value *v = &m->graph.value[i];

        if (lies_in(m, v, root)) ct_net_touch_reads(net, v, &s);
    }
    return s;
}

/* Whether all that lies in the memory of group i's tops is within the group or one of those tops,
 * which others read: no outputs, nothing in place. */
static bool is_own(const ct_net *net, int i, int root)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    for (int k = 0; k < m->graph.n_value; k++) {
        const ct_value *v = &m->graph.value[k];

        if (!lies_in(m, v, root)) continue;
        if ((m->runner[v->node] != i) || (v->reader < 0) || (v->loss_weight != 0.0f)) return false;
        if (!ct_graph_is_inner(&m->graph, v) && (v->node != m->place[i])) return false;
    }
    return true;
}

static int top_root(const ct_net *net, int i)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    return m->data_root[m->graph.value[m->graph.node[m->place[i]].top[0]].blob];
}

/* Calls visit for every value from outside that group i reads. */
static bool each_input(ct_net *net, int i, bool (*visit)(ct_net *net, int root, int when), int when)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    for (int k = i; k <= m->place[i]; k++) {
        const ct_graph_node *n = &m->graph.node[k];

        for (int b = 0; (m->runner[k] == i) && (b < n->n_bottom); b++) {
            const ct_value *v = &m->graph.value[n->bottom[b]];

            if (ct_graph_is_inner(&m->graph, v)) continue;
            if (!visit(net, m->data_root[v->blob], when)) return false;
        }
    }
    return true;
}

/* Kept until then for others, or made again itself. */
static bool is_there(ct_net *net, int root, int when)
{
    return reads_of(net, root).last >= when;
}

/* What is made again for others, too, is made when the first of all wants it. */
static bool bring_forward(ct_net *net, int root, int when)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    for (int k = 0; k < m->n_again; k++) {
        if ((m->again[k].root == root) && (m->again[k].when > when)) m->again[k].when = when;
    }
    return true;
}

static bool may(ct_net *net, int i, ct_again *again_p)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    const ct_graph_node *last = &m->graph.node[m->place[i]];
    const ct_fusion_ops *fusion = net->layer[i]->ops->fusion;
    int root;
    ct_span reads;

    if ((m->runner[i] != i) || (fusion == NULL) || (fusion->again == NULL) ||
        (net->layer[i]->form != NULL) || !last->runs_backward || (last->n_top == 0) ||
        !fusion->again(net->layer[i], net->instance[i], NULL))
        return false;
    root = top_root(net, i);
    reads = reads_of(net, root);
    if ((reads.last < 0) || !is_own(net, i, root)) return false;
    *again_p = (ct_again){ .layer = i, .root = root, .when = reads.first };
    return each_input(net, i, is_there, reads.first);
}

ct_status ct_net_recompute(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);

    if (!m->recompute || m->forward_only || net->options.unshared) return CT_OK;
    m->again = calloc((size_t)net->n_layer + 1, sizeof(m->again[0]));
    if (m->again == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to plan %d layers", net->n_layer);
    for (int i = 0; i < net->n_layer; i++) m->n_again += may(net, i, &m->again[m->n_again]);
    for (int k = m->n_again - 1; k >= 0; k--)
        (void)each_input(net, m->again[k].layer, bring_forward, m->again[k].when);
    return CT_OK;
}

const ct_again *ct_net_again(const ct_net *net, int root)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    for (int k = 0; k < m->n_again; k++) {
        if (m->again[k].root == root) return &m->again[k];
    }
    return NULL;
}

/* What lies in the memory of a, from now on there. */
static void move_blobs(ct_net *net, const ct_again *a, void *to)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    for (int b = 0; b < net->n_blob; b++) {
        if (m->data_root[b] == a->root) net->blob[b]->data.data = to;
    }
}

void ct_net_again_reset(ct_net *net)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    for (int k = 0; k < m->n_again; k++) move_blobs(net, &m->again[k], m->again[k].forward);
}

ct_status ct_net_again_run(ct_net *net, ct_exec *ex, int when)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    for (int k = 0; k < m->n_again; k++) {
        const ct_again *a = &m->again[k];
        const ct_layer *l = net->layer[a->layer];

        if (a->when != when) continue;
        move_blobs(net, a, a->backward);
        if (!l->ops->fusion->again(l, net->instance[a->layer], ex)) return CT_ERR_ARG;
        CT_TRY(ct_exec_poll(ex));
    }
    return CT_OK;
}
