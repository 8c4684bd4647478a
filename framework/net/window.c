/* Gradients: each in memory of its own, or in a window, where those that are done make room. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/math/math.h"
#include "framework/net/net_impl.h"

static int count_learned(const ct_net *net)
{
    int n = 0;

    while ((n < net->n_param) && net->param[n].learns) n++;
    return n;
}

ct_status ct_net_chunks(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    int n = count_learned(net);
    bool *begins;
    ct_status status;

    if ((net->options.window == NULL) || m->forward_only || (n == 0)) return CT_OK;
    begins = calloc((size_t)n, sizeof(*begins));
    m->chunk = calloc((size_t)n + 1, sizeof(*m->chunk));
    m->gradient = calloc((size_t)n + 1, sizeof(*m->gradient));
    if ((begins == NULL) || (m->chunk == NULL) || (m->gradient == NULL)) {
        free(begins);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d gradients", n);
    }
    status = net->options.window->cut(net->options.window->ctx, net, begins);
    for (int i = 0; (status == CT_OK) && (i < n); i++)
        if (begins[i]) m->chunk[m->n_chunk++] = i;
    m->chunk[0] = 0;
    m->chunk[m->n_chunk] = n;
    for (int c = 0; c < m->n_chunk; c++)
        for (int k = m->chunk[c]; k < m->chunk[c + 1]; k++) net->param[k].chunk = c;
    free(begins);
    return status;
}

void ct_net_chunks_release(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);

    free(m->chunk);
    free(m->gradient);
    free(m->weight);
}

/* Rows come beside a gradient after it is final. Of what two stages share, one has its gradient
 * when the other is done with backward. */
bool ct_net_waits_for(const ct_net *net, int i)
{
    return !net->param[i].row_beside && !net->param[i].tied;
}

/* Parameter k gets a gradient from layer i at this step, or before; made in forward, it shares
 * memory with no other: one of the step before may be under way there. */
static int first_written(const ct_net *net, int i, int k)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    const ct_graph_node *n = &m->graph.node[i];

    for (int w = 0; w < net->layer[i]->n_weight; w++) {
        if (!n->weight_wanted[w] || (n->param_of[w] != k)) continue;
        if (net->pass->instance[m->runner[i]]->early || (m->backward_first[i] < 0)) return 0;
        return net->n_forward + m->backward_first[i];
    }
    return net->n_forward + net->n_backward;
}

static void find_life(const ct_net *net, int c)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    const ct_param *first = &net->param[m->chunk[c]], *last = &net->param[m->chunk[c + 1] - 1];
    ct_region *r = &m->gradient[c];
    int end = net->n_forward + net->n_backward;

    *r = (ct_region){ .first = end, .last = -1 };
    r->bytes = (size_t)(last->offset + last->count - first->offset) * sizeof(float);
    for (int k = m->chunk[c]; k < m->chunk[c + 1]; k++) {
        int waited = -1;

        for (int i = 0; i < net->n_layer; i++) {
            int at = first_written(net, i, k);

            if (at < r->first) r->first = at;
        }
        for (int j = 0; j < net->n_backward; j++) {
            const ct_step *s = &net->backward[j];

            if ((s->kind == CT_STEP_WAIT) && ct_step_is_of_weights(s) && (s->param == k))
                waited = net->n_forward + j;
        }
        if (waited < 0) waited = end;
        if (waited > r->last) r->last = waited;
    }
    if (r->first == 0) r->last = end;
}

ct_status ct_net_place_gradients(ct_net *net)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    size_t bytes = 0;

    net->memory.weights = (size_t)(net->weight_memory + net->grad_memory) * sizeof(float);
    if ((m->n_chunk == 0) || !net->options.window->gradients) return CT_OK;
    for (int c = 0; c < m->n_chunk; c++) find_life(net, c);
    CT_TRY(ct_memory_plan_place(m->gradient, m->n_chunk, &bytes));
    for (int c = 0; c < m->n_chunk; c++) {
        int64_t at = (int64_t)(m->gradient[c].offset / sizeof(float));
        int64_t first = net->param[m->chunk[c]].offset;

        for (int k = m->chunk[c]; k < m->chunk[c + 1]; k++) net->param[k].grad_shift = at - first;
    }
    net->grad_memory = (int64_t)(bytes / sizeof(float));
    net->memory.weights = (size_t)(net->weight_memory + net->grad_memory) * sizeof(float);
    return CT_OK;
}

ct_status ct_net_gradients(ct_net *net)
{
    const ct_device *dev = net->options.dev;
    const ct_arena_ops *arena = net->options.grad_arena;
    size_t bytes = (size_t)net->grad_memory * sizeof(float);
    void *block = NULL;

    /* memory that ranks share is made by all of them: also by one whose part has no weights */
    if ((bytes == 0) && (arena == NULL)) return CT_OK;
    if (arena != NULL)
        CT_TRY(arena->acquire(arena->ctx, bytes, "gradients", &block));
    else
        CT_TRY(dev->mem_acquire(bytes, &block));
    net->memory.allocated += bytes;
    net->grad_arena = block;
    for (int k = 0; (k < net->n_param) && net->param[k].learns; k++) {
        ct_param *p = &net->param[k];

        p->blob.diff.data = net->grad_arena + p->offset + p->grad_shift;
    }
    ct_pass_bind_gradients(net->pass);
    return CT_OK;
}

ct_status ct_net_poison(const ct_net *net, ct_stream st, void *data, size_t bytes)
{
    return net->options.dev->math->set(st, (int64_t)(bytes / sizeof(float)), NAN, data);
}

ct_status ct_net_poison_gradients(const ct_net *net, ct_stream st, int step)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    for (int c = 0; c < m->n_chunk; c++) {
        if ((m->gradient[c].bytes > 0) && (m->gradient[c].last == step))
            CT_TRY(ct_net_poison(net, st, (char *)net->grad_arena + m->gradient[c].offset,
                                 m->gradient[c].bytes));
    }
    return CT_OK;
}
