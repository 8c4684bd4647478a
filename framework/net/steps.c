/* Compiles the net to flat lists of steps, and finds its outputs. */
#include "framework/net/net_impl.h"

#include <stdlib.h>

static ct_step *add_step(ct_net *net, ct_step_kind kind, int layer)
{
    ct_step *s = &net->backward[net->n_backward++];

    *s = (ct_step){ .kind = kind, .layer = layer, .pair = -1, .param = -1, .blob = -1 };
    return s;
}

/* The parameters whose last gradient comes from layer i. Those that learn are in order of it. */
static void add_ready(ct_net *net, int i, int *next)
{
    const ct_graph *g = &ct_net_impl_of(net)->graph;

    for (; (*next < net->n_param) && net->param[*next].learns; (*next)++) {
        for (int k = 0; k < i; k++) {
            for (int w = 0; w < net->layer[k]->n_weight; w++) {
                if (g->node[k].weight_wanted[w] && (g->node[k].param_of[w] == *next)) return;
            }
        }
        ct_step *s = add_step(net, CT_STEP_BEGIN, i);

        s->of = CT_PAIR_WEIGHTS;
        s->param = s->pair = *next;
    }
}

static void compile_backward(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    int next = 0;

    for (int i = net->n_layer - 1; i >= 0; i--) {
        const ct_graph_node *n = &m->graph.node[i];

        m->backward_step[i] = (m->place[i] != i) ? m->backward_step[m->place[i]] : -1;
        if (!n->runs_backward) continue;
        for (int t = 0; t < n->n_top; t++) {
            const ct_value *v = &m->graph.value[n->top[t]];

            if (v->wants && (v->loss_weight != 0.0f)) {
                ct_step *s = add_step(net, CT_STEP_LOSS_DIFF, i);

                s->blob = v->blob;
                s->value = v->loss_weight;
            } else if (v->wants && v->zero) {
                add_step(net, CT_STEP_ZERO_DIFF, i)->blob = v->blob;
            }
        }
        if (m->place[i] == i) {
            m->backward_step[i] = net->n_backward;
            add_step(net, CT_STEP_BACKWARD, m->runner[i]);
        }
        add_ready(net, i, &next);
    }
}

/* Where the net learns: a wait in front of the first reader of each parameter that does. */
static void compile_forward(ct_net *net, bool *seen)
{
    ct_net_impl *m = ct_net_impl_of(net);

    for (int i = 0; i < net->n_layer; i++) {
        for (int w = 0; w < net->layer[i]->n_weight; w++) {
            int k = m->graph.node[i].param_of[w];

            if (seen[k] || !net->param[k].learns) continue;
            seen[k] = true;
            net->forward[net->n_forward++] =
                (ct_step){ .kind = CT_STEP_WAIT, .layer = i, .pair = k, .param = k, .blob = -1 };
        }
        if (m->place[i] != i) continue;
        m->forward_step[i] = net->n_forward;
        net->forward[net->n_forward++] = (ct_step){
            .kind = CT_STEP_FORWARD, .layer = m->runner[i], .pair = -1, .param = -1, .blob = -1
        };
    }
    for (int i = 0; i < net->n_layer; i++) m->forward_step[i] = m->forward_step[m->place[i]];
}

static ct_status find_outputs(ct_net *net)
{
    const ct_graph *g = &ct_net_impl_of(net)->graph;

    net->output = calloc((size_t)g->n_value + 1, sizeof(net->output[0]));
    if (net->output == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the outputs");
    for (int v = 0; v < g->n_value; v++) {
        const ct_value *value = &g->value[v];

        if (value->reader >= 0) continue;
        net->output[net->n_output++] =
            (ct_output){ .blob = value->blob,
                         .layer = value->node,
                         .loss_weight = value->loss_weight,
                         .is_share = net->instance[value->node]->top_is_share };
    }
    return CT_OK;
}

ct_status ct_net_steps(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    size_t n = (size_t)net->n_layer;

    bool *seen = calloc((size_t)net->n_param + 1, sizeof(*seen));

    net->forward = calloc(n + (size_t)net->n_param, sizeof(net->forward[0]));
    net->backward =
        calloc(n + (size_t)m->graph.n_value + (size_t)net->n_param + 1, sizeof(net->backward[0]));
    m->forward_step = calloc(n, sizeof(int));
    m->backward_step = calloc(n, sizeof(int));
    if ((seen == NULL) || (net->forward == NULL) || (net->backward == NULL) ||
        (m->forward_step == NULL) || (m->backward_step == NULL)) {
        free(seen);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the steps of %d layers", net->n_layer);
    }
    compile_forward(net, seen);
    free(seen);
    compile_backward(net);
    return find_outputs(net);
}
