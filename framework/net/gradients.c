/* Which values, bottoms and weights have gradients: those on a way from something that learns to a
 * loss. */
#include "framework/net/graph.h"

bool ct_graph_node_passes(const ct_graph_node *n, int slot)
{
    if (n->ops->backward == NULL) return false;
    if (n->ops->no_diff_last && (slot == n->n_bottom - 1)) return false;
    if ((slot < 32) && (((unsigned)n->ops->no_diff_bottom >> slot) & 1u)) return false;
    return (n->param->n_propagate_down == 0) || n->param->propagate_down[slot];
}

bool ct_graph_node_forces(const ct_graph_node *n, int slot, bool force_backward)
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

ct_status ct_graph_reach(ct_graph *g)
{
    for (int i = g->n_node - 1; i >= 0; i--) {
        ct_graph_node *n = &g->node[i];

        CT_TRY(check_forced(n));
        for (int t = 0; t < n->n_top; t++) {
            ct_value *v = &g->value[n->top[t]];

            v->reached =
                (v->loss_weight != 0.0f) || ((v->reader >= 0) && g->node[v->reader].reached &&
                                             ct_graph_node_passes(&g->node[v->reader], v->slot));
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
    n->runs_backward = needs && !forward_only;
    for (int t = 0; t < n->n_top; t++) {
        ct_value *v = &g->value[n->top[t]];

        if (forward_only) continue;
        if (v->reached && (v->reader >= 0)) {
            v->wants = needs || ct_graph_node_forces(&g->node[v->reader], v->slot, force_backward);
            g->node[v->reader].bottom_wanted[v->slot] = v->wants;
        } else if (needs) {
            v->zero = !v->reached && needs_zero(n, t);
            v->wants = v->reached || v->zero;
        }
    }
}
