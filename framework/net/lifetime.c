/* When each blob, diff and buffer is alive, in steps of forward followed by backward; which share
 * memory. */
#include <stdlib.h>

#include "framework/net/net_impl.h"

static void touch(ct_span *s, int step)
{
    if ((s->last < 0) || (step < s->first)) s->first = step;
    if (step > s->last) s->last = step;
}

/* The moments of a layer's forward, from its first part to its last, that touch its bottom i, or
 * buffer i. `first`: those of part 0 (ct_sum_ops); 0: all. Of a group part 0 is its last layer's.
 */
static void touch_forward_of(const ct_net *net, int layer, unsigned first, int i, ct_span *s)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    bool in_first = (m->place[layer] == layer) && ((first == 0) || ((first >> i) & 1u));

    touch(s, in_first ? m->forward_first[layer] : m->forward_rest[layer]);
    touch(s, m->forward_step[layer]);
}

/* Those of its backward. */
static void touch_backward(const ct_net *net, int i, ct_span *s)
{
    touch(s, net->n_forward + ct_net_impl_of(net)->backward_first[i]);
    touch(s, net->n_forward + ct_net_impl_of(net)->backward_step[i]);
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
    if (runs_backward(net, v->node) &&
        (net->pass->instance[v->node]->backward_reads & CT_READS_TOP))
        touch_backward(net, v->node, s);
    if ((v->reader >= 0) && runs_backward(net, v->reader) &&
        (net->pass->instance[v->reader]->backward_reads & CT_READS_BOTTOM))
        touch_backward(net, v->reader, s);
}

/* back: of its readers in backward; as s, unless the value is made again. */
static void touch_data(const ct_net *net, const ct_value *v, int end, ct_span *s, ct_span *back)
{
    const ct_graph *g = &ct_net_impl_of(net)->graph;
    const ct_graph_node *maker = &g->node[v->node];
    const ct_sum_ops *sums;

    if (ct_graph_is_inner(g, v)) return;
    touch(s, ct_net_impl_of(net)->forward_step[v->node]); /* the last part writes … */
    if ((maker->ops->sums != NULL) && (maker->ops->sums->transfer != NULL))
        touch(s, ct_net_impl_of(net)->forward_first[v->node]); /* … or what comes in before it */
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
    sums = net->layer[v->reader]->ops->sums;
    touch_forward_of(net, v->reader, (sums != NULL) ? sums->first_bottoms : 0, v->slot, s);
}

/* Widens s by the moments at which the diff of v is written or read. */
static void net_touch_diff(const ct_net *net, const ct_value *v, ct_span *s)
{
    const ct_graph *g = &ct_net_impl_of(net)->graph;
    int end = net->n_forward + net->n_backward - 1;

    if (!v->wants || ct_graph_is_inner(g, v)) return;
    if ((v->reader >= 0) && g->node[v->reader].bottom_wanted[v->slot])
        touch_backward(net, v->reader, s);
    if (runs_backward(net, v->node))
        touch_backward(net, v->node, s);
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
        const ct_tensor *t = diff ? &net->pass->blob[b]->diff : &net->pass->blob[b]->data;

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

/* The moment of backward at which layer i's forward runs again; -1: it does not. */
static int again_step(const ct_net *net, int i)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    int at = 0;

    if ((m->reruns == NULL) || !m->reruns[i]) return -1;
    while ((net->backward[at].kind != CT_STEP_AGAIN) || (net->backward[at].layer != m->unit[i]))
        at++;
    return net->n_forward + at;
}

/* again: the moment at which the layer's forward runs again; -1: it does not. */
static void add_buffer(const ct_net *net, int i, int slot, int again)
{
    ct_net_impl *m = ct_net_impl_of(net);
    const ct_buffer *b = &net->pass->instance[i]->buffer[slot];
    const ct_sum_ops *sums = net->layer[i]->ops->sums;
    const ct_span none = { 0, -1, false };
    ct_span span = none;
    ct_use use = { .kind = CT_USE_BUFFER, .index = i, .slot = slot, .forward = true };

    touch_forward_of(net, i, (sums != NULL) ? sums->first_buffers : 0, slot, &span);
    if ((b->keep == CT_LIFETIME_CALL) || (again >= 0)) { /* nobody looks at what forward leaves */
        add_region(m, b->bytes, &span, use);
        use.forward = false;
        span = none;
    }
    if (again >= 0) touch(&span, again);
    if ((b->keep == CT_LIFETIME_CALL) && (again >= 0)) {
        use.again = true;
        add_region(m, b->bytes, &span, use);
        use.again = false;
        span = none;
    }
    if (runs_backward(net, i)) touch_backward(net, i, &span);
    if (span.last < 0) return;
    use.backward = true;
    add_region(m, b->bytes, &span, use);
}

static void add_buffers(const ct_net *net, int i)
{
    int again = again_step(net, i);

    if (ct_host_layer_is(net, i)) return;
    for (int s = 0; s < CT_MAX_BUFFER; s++) {
        const ct_buffer *b = &net->pass->instance[i]->buffer[s];

        if ((b->bytes > 0) && (b->keep != CT_LIFETIME_ALWAYS)) add_buffer(net, i, s, again);
    }
}

/* Unit i runs forward again at moment `when`: what it reads and writes, made again or kept. */
static void touch_again(const ct_net *net, int i, int when, ct_span *data, ct_span *back)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    for (int k = i; k <= m->place[i]; k++) {
        const ct_graph_node *n = &m->graph.node[k];

        for (int b = 0; (m->unit[k] == i) && (b < n->n_bottom); b++) {
            const ct_value *v = &m->graph.value[n->bottom[b]];
            int root = m->data_root[v->blob];

            if (ct_net_enters(net, v))
                touch((ct_net_again(net, root) != NULL) ? &back[root] : &data[root], when);
        }
        for (int t = 0; (m->unit[k] == i) && (t < n->n_top); t++) {
            const ct_value *v = &m->graph.value[n->top[t]];

            if (!ct_graph_is_inner(&m->graph, v)) touch(&back[m->data_root[v->blob]], when);
        }
    }
}

ct_status ct_net_lifetimes(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    size_t n_blob = (size_t)net->n_blob + 1;
    size_t n_most = 3 * n_blob + 3 * (size_t)CT_MAX_BUFFER * (size_t)net->n_layer;
    ct_span *data = malloc(3 * n_blob * sizeof(data[0])), *diff, *back;
    int end = net->n_forward + net->n_backward - 1;

    free(m->region);
    free(m->use);
    m->n_region = 0;
    m->region = calloc(n_most, sizeof(m->region[0]));
    m->use = calloc(n_most, sizeof(m->use[0]));
    if ((data == NULL) || (m->region == NULL) || (m->use == NULL)) {
        free(data);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a plan of %zu regions", n_most);
    }
    diff = data + n_blob;
    back = diff + n_blob;
    for (size_t b = 0; b < 3 * n_blob; b++) data[b] = (ct_span){ 0, -1, false };
    for (int i = 0; i < m->graph.n_value; i++) {
        const ct_value *v = &m->graph.value[i];
        int root = m->data_root[v->blob];
        const ct_again *again = ct_net_again(net, root);

        touch_data(net, v, end, &data[root], (again != NULL) ? &back[root] : &data[root]);
        if (again != NULL) touch(&back[root], again->when);
        net_touch_diff(net, v, &diff[m->diff_root[v->blob]]);
    }
    for (int j = 0; j < net->n_backward; j++) {
        const ct_step *s = &net->backward[j];

        if (s->blob >= 0) touch(&diff[m->diff_root[s->blob]], net->n_forward + j);
        if (s->kind == CT_STEP_AGAIN) touch_again(net, s->layer, net->n_forward + j, data, back);
    }
    add_blobs(net, data, back, diff);
    for (int i = 0; i < net->n_layer; i++) add_buffers(net, i);
    free(data);
    return CT_OK;
}

/* ---- which gradients lie in one memory: where a layer, or a group, may write the diff of a bottom
 * over that of its top (ct_instance.over), and nobody who lies there is alive any more. */

typedef struct sharing {
    ct_net *net;
    ct_span *span; /* per blob, of its diff */
    int *n_value;  /* per blob: in place layers make several of one; of what a group with a function
                    * of each element makes 2, since its backward may change the diff in place */
} sharing;

static bool apart(const ct_span *a, const ct_span *b)
{
    return (a->last < 0) || (b->last < 0) || (a->last < b->first) || (b->last < a->first);
}

/* Bottom q of a layer that runs from `at` to `end` over its top p, and beside the bottoms that lie
 * there already, from that moment on, with the same values. */
static bool may_share(const sharing *s, int p, int q, int at, int end)
{
    const ct_net *net = s->net;
    const int *root = ct_net_impl_of(net)->diff_root;
    const ct_blob *bp = net->pass->blob[p], *bq = net->pass->blob[q];

    if (!bp->wants_diff || !bq->wants_diff || (root[p] == root[q]) || (s->span[p].last != end) ||
        (s->span[q].first != at) || (ct_tensor_bytes(&bp->diff) != ct_tensor_bytes(&bq->diff)))
        return false;
    for (int a = 0; a < net->n_blob; a++) {
        for (int b = 0; (root[a] == root[p]) && (b < net->n_blob); b++) {
            bool twins = (b == q) && (s->span[a].first == at) && (s->n_value[a] == 1) &&
                         (s->n_value[b] == 1);

            if ((root[b] != root[q]) || ((a == p) && (b == q)) || twins) continue;
            if (!apart(&s->span[a], &s->span[b])) return false;
        }
    }
    return true;
}

static void share(const sharing *s, int p, int q)
{
    int *root = ct_net_impl_of(s->net)->diff_root, from = root[q];

    for (int b = 0; b < s->net->n_blob; b++) {
        if (root[b] == from) root[b] = root[p];
    }
}

static void share_layer(const sharing *s, int i)
{
    const ct_net_impl *m = ct_net_impl_of(s->net);
    const ct_instance *in = s->net->pass->instance[i];
    int last = m->place[i], end = s->net->n_forward + m->backward_step[i];
    int at = s->net->n_forward + m->backward_first[i];

    if ((in->over == 0) || (m->backward_step[i] < 0) || (m->graph.node[last].n_top == 0)) return;
    for (int b = 0; (b < m->graph.node[i].n_bottom) && (b < 32); b++) {
        int p = m->graph.value[m->graph.node[last].top[0]].blob;
        int q = m->graph.value[m->graph.node[i].bottom[b]].blob;

        if (((in->over >> b) & 1u) && may_share(s, p, q, at, end)) share(s, p, q);
    }
}

static bool may_change(const ct_instance *runner)
{
    const ct_epilogue *tail = runner->tail;

    return (tail != NULL) &&
           ((tail->of[CT_EPILOGUE_RELU] != NULL) || (tail->of[CT_EPILOGUE_EACH] != NULL));
}

ct_status ct_net_share_diffs(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    size_t n = (size_t)net->n_blob + 1;
    sharing s = { net, calloc(n, sizeof(*s.span)), calloc(n, sizeof(*s.n_value)) };

    if ((s.span == NULL) || (s.n_value == NULL)) {
        free(s.span);
        free(s.n_value);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to share the gradients of %d blobs", net->n_blob);
    }
    for (int b = 0; b < net->n_blob; b++) s.span[b] = (ct_span){ 0, -1, false };
    for (int i = 0; i < m->graph.n_value; i++) {
        const ct_value *v = &m->graph.value[i];

        s.n_value[v->blob] += may_change(net->pass->instance[m->runner[v->node]]) ? 2 : 1;
        net_touch_diff(net, v, &s.span[v->blob]);
    }
    /* as backward goes; a step that fills a diff comes right before the layer that reads it */
    for (int i = net->n_layer - 1; i >= 0; i--) share_layer(&s, i);
    free(s.span);
    free(s.n_value);
    return CT_OK;
}
