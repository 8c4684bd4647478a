/* When each blob, diff and buffer is alive, in steps of forward followed by backward. */
#include "framework/net/net_impl.h"

#include <stdlib.h>

static void touch(ct_span *s, int step)
{
    if ((s->last < 0) || (step < s->first)) s->first = step;
    if (step > s->last) s->last = step;
}

/* The moment of layer i's forward. */
static int forward_time(const ct_net *net, int i)
{
    return ct_net_impl_of(net)->forward_step[i];
}

/* The moment of layer i's backward. */
static int backward_time(const ct_net *net, int i)
{
    return net->n_forward + ct_net_impl_of(net)->backward_step[i];
}

/* Whether layer i, or the group it belongs to, computes anything in backward. */
static bool runs_backward(const ct_net *net, int i)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    return m->graph.node[m->place[i]].runs_backward;
}

void ct_net_touch_reads(const ct_net *net, const ct_value *v, ct_span *s)
{
    if (ct_graph_is_inner(&ct_net_impl_of(net)->graph, v)) return;
    if (runs_backward(net, v->node) && (net->instance[v->node]->backward_reads & CT_READS_TOP))
        touch(s, backward_time(net, v->node));
    if ((v->reader >= 0) && runs_backward(net, v->reader) &&
        (net->instance[v->reader]->backward_reads & CT_READS_BOTTOM))
        touch(s, backward_time(net, v->reader));
}

/* back: of its readers in backward; as s, unless the value is made again. */
static void touch_data(const ct_net *net, const ct_value *v, int end, ct_span *s, ct_span *back)
{
    const ct_graph *g = &ct_net_impl_of(net)->graph;
    const ct_graph_node *maker = &g->node[v->node];

    if (ct_graph_is_inner(g, v)) return;
    touch(s, forward_time(net, v->node));
    ct_net_touch_reads(net, v, back);
    if (maker->ops->keeps_top) {
        s->persists = true;
        touch(s, 0);
        touch(s, end);
    }
    if (v->reader < 0) { /* an output: the caller may look at it after the pass */
        touch(s, end);
        return;
    }
    touch(s, forward_time(net, v->reader));
}

void ct_net_touch_diff(const ct_net *net, const ct_value *v, ct_span *s)
{
    const ct_graph *g = &ct_net_impl_of(net)->graph;
    int end = net->n_forward + net->n_backward - 1;

    if (!v->wants || ct_graph_is_inner(g, v)) return;
    if ((v->reader >= 0) && g->node[v->reader].bottom_wanted[v->slot])
        touch(s, backward_time(net, v->reader));
    if (runs_backward(net, v->node))
        touch(s, backward_time(net, v->node));
    else
        touch(s, end); /* a gradient asked for by name: the caller looks at it after the pass */
}

static void add_region(ct_net_impl *m, size_t bytes, const ct_span *s, ct_use use)
{
    m->region[m->n_region] = (ct_region){ .bytes = bytes, .first = s->first, .last = s->last };
    m->use[m->n_region] = use;
    m->use[m->n_region++].persists |= s->persists;
}

/* A blob's memory serves all that lie in it: the largest counts. */
static size_t group_bytes(const ct_net *net, const int *root, int r, bool diff)
{
    size_t most = 1;

    for (int b = 0; b < net->n_blob; b++) {
        const ct_tensor *t = diff ? &net->blob[b]->diff : &net->blob[b]->data;

        if ((root[b] == r) && (ct_tensor_bytes(t) > most)) most = ct_tensor_bytes(t);
    }
    return most;
}

/* back: of data that is made again. */
static void add_blobs(const ct_net *net, const ct_span *data, const ct_span *back,
                      const ct_span *diff)
{
    ct_net_impl *m = ct_net_impl_of(net);

    for (int b = 0; b < net->n_blob; b++) {
        if (data[b].last >= 0)
            add_region(m, group_bytes(net, m->data_root, b, false), &data[b],
                       (ct_use){ .kind = CT_USE_DATA, .index = b, .forward = true });
        if (back[b].last >= 0)
            add_region(m, group_bytes(net, m->data_root, b, false), &back[b],
                       (ct_use){ .kind = CT_USE_DATA, .index = b, .backward = true });
        if (diff[b].last >= 0)
            add_region(m, group_bytes(net, m->diff_root, b, true), &diff[b],
                       (ct_use){ .kind = CT_USE_DIFF, .index = b });
    }
}

static void add_buffers(const ct_net *net, int i)
{
    ct_net_impl *m = ct_net_impl_of(net);
    const ct_instance *in = net->instance[i];
    bool runs = runs_backward(net, i);
    int at = forward_time(net, i);

    if (ct_host_layer_is(net, i)) return;
    for (int s = 0; s < CT_MAX_BUFFER; s++) {
        const ct_buffer *b = &in->buffer[s];
        ct_span forward = { at, at, false };
        ct_use use = { .kind = CT_USE_BUFFER, .index = i, .slot = s, .forward = true };

        if ((b->bytes == 0) || (b->keep == CT_LIFETIME_ALWAYS)) continue;
        if (b->keep == CT_LIFETIME_CALL) {
            add_region(m, b->bytes, &forward, use);
            if (!runs) continue;
            use.forward = false;
            forward.first = forward.last = backward_time(net, i);
        } else if (runs) {
            touch(&forward, backward_time(net, i));
        }
        use.backward = true;
        add_region(m, b->bytes, &forward, use);
    }
}

ct_status ct_net_lifetimes(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    size_t n_blob = (size_t)net->n_blob + 1;
    size_t n_most = 3 * n_blob + 2 * (size_t)CT_MAX_BUFFER * (size_t)net->n_layer;
    ct_span *data = malloc(3 * n_blob * sizeof(data[0])), *diff = data + n_blob;
    ct_span *back = diff + n_blob;
    int end = net->n_forward + net->n_backward - 1;

    m->region = calloc(n_most, sizeof(m->region[0]));
    m->use = calloc(n_most, sizeof(m->use[0]));
    if ((data == NULL) || (m->region == NULL) || (m->use == NULL)) {
        free(data);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a plan of %zu regions", n_most);
    }
    for (size_t b = 0; b < 3 * n_blob; b++) data[b] = (ct_span){ 0, -1, false };
    for (int i = 0; i < m->graph.n_value; i++) {
        const ct_value *v = &m->graph.value[i];
        int root = m->data_root[v->blob];
        const ct_again *again = ct_net_again(net, root);

        touch_data(net, v, end, &data[root], (again != NULL) ? &back[root] : &data[root]);
        if (again != NULL) touch(&back[root], again->when);
        ct_net_touch_diff(net, v, &diff[m->diff_root[v->blob]]);
    }
    for (int j = 0; j < net->n_backward; j++) {
        const ct_step *s = &net->backward[j];

        if (s->blob >= 0) touch(&diff[m->diff_root[s->blob]], net->n_forward + j);
    }
    add_blobs(net, data, back, diff);
    for (int i = 0; i < net->n_layer; i++) add_buffers(net, i);
    free(data);
    return CT_OK;
}
