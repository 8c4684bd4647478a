/* Values that are made again in backward, from what is kept anyway, instead of being kept: their
 * memory serves others between forward's last reader and backward's first.
 *
 * CHEAP: a layer says that it can make its tops again in little time (ops.fusion.again); here is
 * found where that frees memory, when it happens, and in which order.
 *
 * BLOCKS: each copy of a repeat is a block, or each segment that a parallel file names. Its layers
 * run forward a second time before the first of them runs backward, in steps of their own. So what
 * lies within a block lives while it runs forward, and again while it runs backward; what it reads
 * is kept. A layer whose forward changes more than its tops and buffers runs once, and what it
 * makes is kept. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/net/net_impl.h"

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

/* ---- units: layers whose forward runs again in one call. A unit is a group, but for a norm whose
 * sum stands in another block (split_groups() below). Its number is that of its first layer. */

/* The next value that unit i reads from outside, from bottom *b_p of layer *k_p on; both start at i
 * and 0. NULL: there are no more. */
static const ct_value *next_input(const ct_net *net, int i, int *k_p, int *b_p)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    for (; *k_p <= m->place[i]; ++*k_p, *b_p = 0) {
        const ct_graph_node *n = &m->graph.node[*k_p];

        while ((m->unit[*k_p] == i) && (*b_p < n->n_bottom)) {
            const ct_value *v = &m->graph.value[n->bottom[(*b_p)++]];

            if (ct_net_enters(net, v)) return v;
        }
    }
    return NULL;
}

/* Likewise, that it makes for others: not what stays within a group. */
static const ct_value *next_output(const ct_net *net, int i, int *k_p, int *t_p)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    for (; *k_p <= m->place[i]; ++*k_p, *t_p = 0) {
        const ct_graph_node *n = &m->graph.node[*k_p];

        while ((m->unit[*k_p] == i) && (*t_p < n->n_top)) {
            const ct_value *v = &m->graph.value[n->top[(*t_p)++]];

            if (!ct_graph_is_inner(&m->graph, v)) return v;
        }
    }
    return NULL;
}

static bool has_output(const ct_net *net, int i)
{
    int k = i, t = 0;

    return next_output(net, i, &k, &t) != NULL;
}

/* Whether group i makes its tops again by ops.fusion.again. */
static bool makes_again(const ct_net *net, int i)
{
    const ct_fusion_ops *fusion = net->layer[i]->ops->fusion;

    return (fusion != NULL) && (fusion->again != NULL) && (net->layer[i]->form == NULL) &&
           has_output(net, i) && fusion->again(net->layer[i], net->pass->instance[i], NULL);
}

/* Bytes that unit i keeps in buffers from forward to backward. */
static size_t kept_bytes(const ct_net *net, int i)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    size_t bytes = 0;

    for (int k = i; k <= m->place[i]; k++) {
        for (int s = 0; (m->unit[k] == i) && (s < CT_MAX_BUFFER); s++) {
            const ct_buffer *b = &net->pass->instance[k]->buffer[s];

            if (b->keep == CT_LIFETIME_PASS) bytes += b->bytes;
        }
    }
    return bytes;
}

static size_t top_bytes(const ct_net *net, int i)
{
    const ct_value *v;
    size_t bytes = 0;
    int k = i, t = 0;

    while ((v = next_output(net, i, &k, &t)) != NULL)
        bytes += ct_tensor_bytes(&net->pass->blob[v->blob]->data);
    return bytes;
}

const ct_again *ct_net_again(const ct_net *net, int root)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    for (int k = 0; k < m->n_again; k++) {
        if (m->again[k].root == root) return &m->again[k];
    }
    return NULL;
}

/* ---- CHEAP */

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

static bool may_cheaply(const ct_net *net, int i, ct_again *again_p)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    const ct_value *v;
    int root, k = i, b = 0, t = 0;
    ct_span reads;

    if ((m->runner[i] != i) || !m->graph.node[m->place[i]].runs_backward || !makes_again(net, i))
        return false;
    root = m->data_root[next_output(net, i, &k, &t)->blob];
    k = i;
    reads = reads_of(net, root);
    if ((reads.last < 0) || !is_own(net, i, root)) return false;
    *again_p = (ct_again){ .layer = i, .root = root, .when = reads.first };
    while ((v = next_input(net, i, &k, &b)) != NULL) { /* kept until then, or made again itself */
        if (reads_of(net, m->data_root[v->blob]).last < reads.first) return false;
    }
    return true;
}

/* What is made again for others, too, is made when the first of all wants it. */
static void bring_forward(ct_net_impl *m, int root, int when)
{
    for (int k = 0; k < m->n_again; k++) {
        if ((m->again[k].root == root) && (m->again[k].when > when)) m->again[k].when = when;
    }
}

static ct_status make_cheap(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);

    m->again = calloc((size_t)net->n_layer + 1, sizeof(m->again[0]));
    if (m->again == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to plan %d layers", net->n_layer);
    for (int i = 0; i < net->n_layer; i++) m->n_again += may_cheaply(net, i, &m->again[m->n_again]);
    for (int a = m->n_again - 1; a >= 0; a--) {
        int i = m->again[a].layer, k = i, b = 0;
        const ct_value *v;

        while ((v = next_input(net, i, &k, &b)) != NULL)
            bring_forward(m, m->data_root[v->blob], m->again[a].when);
    }
    return CT_OK;
}

/* ---- BLOCKS: what may run again */

typedef struct blocks {
    ct_net *net;
    ct_net_impl *m;
    int n_block;
    int *block;   /* per layer: of the group that it runs in; -1: of none                   */
    int *root;    /* per blob: the block within which all lives that lies there; -1: none   */
    bool *may;    /* per layer that runs: it may run again                                  */
    bool *runs;   /* … and does                                                             */
    bool *wanted; /* per blob: what lies there is made again                                */
} blocks;

/* A norm of another block than its sum: with it in forward and backward, but its rows are made
 * again of the sum alone, which is kept for its block. */
static void split_groups(blocks *p)
{
    const ct_net *net = p->net;

    for (int i = 0; i < net->n_layer; i++) {
        const ct_epilogue *tail = net->pass->instance[i]->tail;
        int last = p->m->place[i];

        if ((p->m->runner[i] != i) || (tail == NULL) || (tail->of[CT_EPILOGUE_NORM] == NULL) ||
            (p->block[last] == p->block[i]))
            continue;
        /* outside of blocks it does not run again */
        if ((tail->of[CT_EPILOGUE_SPLIT] != NULL) || (p->block[last] < 0)) p->m->unit[last] = last;
    }
}

static void number_blocks(blocks *p)
{
    const ct_net *net = p->net;

    for (int i = 0; i < net->n_layer; i++) {
        p->block[i] = p->m->graph.node[i].block;
        if (p->block[i] >= p->n_block) p->n_block = p->block[i] + 1;
    }
    split_groups(p);
    for (int i = 0; i < net->n_layer; i++) { /* a unit of several blocks is in none */
        int unit = p->m->unit[i];

        if (p->block[i] != p->block[unit]) p->block[unit] = -1;
    }
    for (int i = 0; i < net->n_layer; i++) p->block[i] = p->block[p->m->unit[i]];
}

/* In a block: but not of buffers that are large beside the tops. They would be kept. */
static bool makes_again_of_little(const ct_net *net, int i)
{
    return makes_again(net, i) && (2 * kept_bytes(net, i) < top_bytes(net, i));
}

/* A weight that learns, but gets no gradient from this layer, is updated as soon as others have
 * given theirs: maybe before this layer would run again. */
static bool outlives_weights(const ct_net *net, int i)
{
    const ct_graph_node *n = &ct_net_impl_of(net)->graph.node[i];

    for (int w = 0; w < net->layer[i]->n_weight; w++) {
        if (net->param[n->param_of[w]].learns && !n->weight_wanted[w]) return false;
    }
    return true;
}

/* Why layer i, of a group, runs once; NULL: its forward changes only tops and buffers, and may run
 * again. */
static const char *why_once(const ct_net *net, int i)
{
    const ct_layer *l = net->layer[i];

    if (l->ops->is_data || l->ops->keeps_top || (l->n_bottom == 0)) return "it reads nothing here";
    if (ct_node_varies(&ct_net_impl_of(net)->graph, &ct_net_impl_of(net)->graph.node[i]) ||
        ct_net_impl_of(net)->graph.node[i].varies)
        return "its samples change in number";
    if (ct_host_layer_is(net, i)) return "it runs on the host";
    if (!outlives_weights(net, i)) return "its weights may change before";
    if (makes_again_of_little(net, ct_net_impl_of(net)->unit[i])) return NULL;
    if (net->pass->instance[ct_net_impl_of(net)->unit[i]]->early)
        return "its forward makes gradients";
    if ((l->ops->sums != NULL) && (net->options.env.n_rank > 1))
        return "its forward adds up over the ranks";
    if ((l->ops->sums != NULL) && (l->ops->sums->transfer != NULL) &&
        (ct_layer_sums(l, net->pass->instance[i], true) > 0))
        return "its forward needs other ranks";
    for (int w = 0; w < l->n_weight; w++) {
        if (l->weight[w].kind == CT_WEIGHT_STATISTIC) return "its forward changes statistics";
    }
    for (int s = 0; s < CT_MAX_BUFFER; s++) {
        const ct_buffer *b = &net->pass->instance[i]->buffer[s];

        if ((b->bytes > 0) && (b->keep == CT_LIFETIME_ALWAYS))
            return "it keeps values from batch to batch";
    }
    return NULL;
}

/* Said once of each type. */
static void say_once(const blocks *p, int i, const char *why)
{
    const ct_net *net = p->net;

    for (int k = 0; k < i; k++) {
        if ((p->block[k] >= 0) && (net->layer[k]->ops == net->layer[i]->ops)) return;
    }
    CT_INFO("recompute: layer \"%s\" (%s), and others like it, do not run again with their block, "
            "and what they make is kept: %s",
            net->layer[i]->name, net->layer[i]->ops->type, why);
}

static void find_layers(blocks *p)
{
    const ct_net *net = p->net;

    for (int i = 0; i < net->n_layer; i++) {
        p->may[i] = (p->block[i] >= 0) && (p->m->unit[i] == i) &&
                    (net->layer[i]->ops->forward != NULL) && has_output(net, i);
    }
    for (int i = 0; i < net->n_layer; i++) {
        const char *why = (p->block[i] >= 0) ? why_once(net, i) : NULL;

        if (why == NULL) continue;
        if (p->may[p->m->unit[i]]) say_once(p, i, why);
        p->may[p->m->unit[i]] = false;
    }
}

/* ---- BLOCKS: what is made again by that */

/* The block that value v does not leave; -1: it must be kept. */
static int home_of(const blocks *p, const ct_value *v)
{
    int maker = p->m->unit[v->node], block = p->block[maker];

    if ((block < 0) || !p->may[maker] || (v->reader < 0) || (v->loss_weight != 0.0f) ||
        p->m->graph.node[v->node].ops->keeps_top || (p->block[v->reader] != block))
        return -1;
    return block;
}

static void find_roots(blocks *p)
{
    enum { UNSEEN = -2 };

    for (int b = 0; b < p->net->n_blob; b++) p->root[b] = UNSEEN;
    for (int i = 0; i < p->m->graph.n_value; i++) {
        const ct_value *v = &p->m->graph.value[i];
        int *root = &p->root[p->m->data_root[v->blob]], home = home_of(p, v);

        *root = ((*root == UNSEEN) || (*root == home)) ? home : -1;
    }
}

/* Whether a layer in place changes what layer i has read in kept memory, before it would read it
 * again. */
static bool is_overwritten(const blocks *p, int root, int i)
{
    const ct_graph *g = &p->m->graph;

    for (int k = 0; k < g->n_value; k++) {
        const ct_value *v = &g->value[k];

        if (lies_in(p->m, v, root) && g->node[v->node].inplace[v->top] &&
            (p->m->forward_step[v->node] > p->m->forward_step[i]))
            return true;
    }
    return false;
}

static bool still_may(const blocks *p, int i)
{
    const ct_value *v;
    int k = i, b = 0, t = 0;

    while ((v = next_output(p->net, i, &k, &t)) != NULL) {
        if (p->root[p->m->data_root[v->blob]] != p->block[i]) return false;
    }
    k = i;
    while ((v = next_input(p->net, i, &k, &b)) != NULL) {
        int root = p->m->data_root[v->blob];

        if ((p->root[root] < 0) && is_overwritten(p, root, i)) return false;
    }
    return true;
}

/* What one layer does not make again, others must keep. */
static void settle(blocks *p)
{
    bool changed = true;

    while (changed) {
        find_roots(p);
        changed = false;
        for (int i = 0; i < p->net->n_layer; i++) {
            if (!p->may[i] || still_may(p, i)) continue;
            p->may[i] = false;
            changed = true;
        }
    }
}

/* Whether the unit runs again for the sake of its buffers: what it reads is there anyway, or they
 * are large beside its tops. A product does not run again for a mask of a bit an element. */
static bool pays_for_buffers(const blocks *p, int i)
{
    size_t kept = kept_bytes(p->net, i);
    bool there = true;
    const ct_value *v;
    int k = i, b = 0;

    if (!p->m->graph.node[p->m->place[i]].runs_backward || makes_again_of_little(p->net, i))
        return false;
    while ((v = next_input(p->net, i, &k, &b)) != NULL) {
        int root = p->m->data_root[v->blob];

        there = there && ((p->root[root] < 0) || p->wanted[root]);
    }
    return (kept > 0) && (there || (2 * kept >= top_bytes(p->net, i)));
}

static bool want(blocks *p, int root)
{
    bool is_new = (p->root[root] >= 0) && !p->wanted[root];

    p->wanted[root] |= is_new;
    return is_new;
}

/* Layer i runs again: whatever it reads must be there, and its tops have a place. */
static bool want_around(blocks *p, int i)
{
    const ct_value *v;
    bool changed = false;
    int k = i, b = 0, t = 0;

    p->runs[i] = true;
    while ((v = next_input(p->net, i, &k, &b)) != NULL)
        changed |= want(p, p->m->data_root[v->blob]);
    k = i;
    while ((v = next_output(p->net, i, &k, &t)) != NULL)
        changed |= want(p, p->m->data_root[v->blob]);
    return changed;
}

/* What backward reads is made again, and what is needed for that. */
static void find_runs(blocks *p)
{
    bool changed = true;

    for (int b = 0; b < p->net->n_blob; b++)
        p->wanted[b] = (p->root[b] >= 0) && (reads_of(p->net, b).last >= 0);
    while (changed) {
        changed = false;
        for (int i = p->net->n_layer - 1; i >= 0; i--) {
            bool runs = p->may[i] && pays_for_buffers(p, i);
            const ct_value *v;
            int k = i, t = 0;

            while (p->may[i] && ((v = next_output(p->net, i, &k, &t)) != NULL))
                runs |= p->wanted[p->m->data_root[v->blob]];
            if (runs) changed |= want_around(p, i);
        }
    }
}

/* ---- BLOCKS: its steps */

/* The first step of backward that runs a layer of the block, or fills a gradient for it; n: none.
 * Of a group of two blocks it is the later one's: the sum in front reads nothing in backward. */
static int first_backward(const blocks *p, int block)
{
    const ct_net *net = p->net;
    int at = 0;

    while ((at < net->n_backward) && ((net->backward[at].kind != CT_STEP_BACKWARD) ||
                                      (p->block[p->m->place[net->backward[at].layer]] != block)))
        at++;
    if (at == net->n_backward) return at;
    while ((at > 0) && (net->backward[at - 1].blob >= 0)) at--;
    return at;
}

/* The units of a block that run again, in forward's order, to list[*n_p]. */
static void add_steps(const blocks *p, int block, ct_step *list, int *n_p)
{
    const ct_net *net = p->net;

    for (int j = 0; j < net->n_forward; j++) {
        const ct_step *s = &net->forward[j];

        if ((s->kind != CT_STEP_FORWARD) || (s->part != s->n_part - 1)) continue;
        for (int k = s->layer; k <= p->m->place[s->layer]; k++) {
            if ((p->m->runner[k] != s->layer) || !p->runs[k] || (p->block[k] != block)) continue;
            list[(*n_p)++] = (ct_step){
                .kind = CT_STEP_AGAIN, .layer = k, .pair = -1, .param = -1, .blob = -1, .n_part = 1
            };
        }
    }
}

static void move_places(ct_net_impl *m, int n_layer, const int *to)
{
    for (int i = 0; i < n_layer; i++) {
        if (m->backward_step[i] < 0) continue;
        m->backward_first[i] = to[m->backward_first[i]];
        m->backward_step[i] = to[m->backward_step[i]];
    }
}

/* The list of backward with the steps of all blocks in it. */
static ct_status insert_steps(blocks *p)
{
    ct_net *net = p->net;
    int n_run = 0, n = 0;
    ct_step *list;
    int *first = malloc(((size_t)p->n_block + 1) * sizeof(*first));
    int *to = malloc(((size_t)net->n_backward + 1) * sizeof(*to));

    for (int i = 0; i < net->n_layer; i++) n_run += p->runs[i];
    list = calloc((size_t)net->n_backward + (size_t)n_run + 1, sizeof(*list));
    if ((first == NULL) || (to == NULL) || (list == NULL)) {
        free(first);
        free(to);
        free(list);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d steps", net->n_backward);
    }
    for (int b = 0; b < p->n_block; b++) first[b] = first_backward(p, b);
    for (int j = 0; j < net->n_backward; j++) {
        for (int b = 0; b < p->n_block; b++) {
            if (first[b] == j) add_steps(p, b, list, &n);
        }
        to[j] = n;
        list[n++] = net->backward[j];
    }
    move_places(p->m, net->n_layer, to);
    free(net->backward);
    net->backward = list;
    net->n_backward = n;
    free(first);
    free(to);
    return CT_OK;
}

/* A place in memory for each root that is made again, from the first step that makes it on. */
static void list_roots(const blocks *p)
{
    ct_net_impl *m = p->m;
    const ct_net *net = p->net;

    for (int j = 0; j < net->n_backward; j++) {
        const ct_step *s = &net->backward[j];
        const ct_value *v;
        int k = s->layer, t = 0;

        while ((s->kind == CT_STEP_AGAIN) && ((v = next_output(net, s->layer, &k, &t)) != NULL)) {
            int root = m->data_root[v->blob];

            if (ct_net_again(net, root) != NULL) continue;
            m->again[m->n_again++] =
                (ct_again){ .layer = s->layer, .root = root, .when = net->n_forward + j };
        }
    }
}

static ct_status plan_blocks(blocks *p)
{
    ct_net_impl *m = p->m;
    int n = p->net->n_layer;

    number_blocks(p);
    find_layers(p);
    settle(p);
    find_runs(p);
    CT_TRY(insert_steps(p));
    list_roots(p);
    for (int i = 0; i < n; i++)
        m->reruns[i] = p->runs[m->unit[i]] && !makes_again_of_little(p->net, m->unit[i]);
    return CT_OK;
}

static ct_status make_blocks(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    size_t n_layer = (size_t)net->n_layer + 1, n_blob = (size_t)net->n_blob + 1;
    int *numbers = calloc(n_layer + n_blob, sizeof(*numbers));
    bool *flags = calloc(2 * n_layer + n_blob, sizeof(*flags));
    blocks p = { .net = net, .m = m, .block = numbers, .may = flags };
    ct_status status;

    m->again = calloc(n_blob, sizeof(m->again[0]));
    m->reruns = calloc(n_layer, sizeof(m->reruns[0]));
    if ((numbers == NULL) || (flags == NULL) || (m->again == NULL) || (m->reruns == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to plan %d layers", net->n_layer);
    } else {
        p.root = numbers + n_layer;
        p.runs = flags + n_layer;
        p.wanted = flags + 2 * n_layer;
        status = plan_blocks(&p);
    }
    free(numbers);
    free(flags);
    return status;
}

/* ---- which of the two */

static bool has_blocks(const ct_net *net)
{
    for (int i = 0; i < net->n_layer; i++) {
        if (ct_net_impl_of(net)->graph.node[i].block >= 0) return true;
    }
    return false;
}

ct_status ct_net_recompute(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);

    if (m->forward_only || net->options.unshared) net->recompute = CT__RECOMPUTE__NEVER;
    if ((net->recompute == CT__RECOMPUTE__BLOCKS) && !has_blocks(net)) {
        CT_INFO("recompute: the net has no repeat, so there are no blocks; what is cheap is made "
                "again (CHEAP)");
        net->recompute = CT__RECOMPUTE__CHEAP;
    }
    if (net->recompute == CT__RECOMPUTE__CHEAP) return make_cheap(net);
    return (net->recompute == CT__RECOMPUTE__BLOCKS) ? make_blocks(net) : CT_OK;
}

/* What the net takes with its plan of memory. */
static double need(const ct_net *net)
{
    return (double)net->memory.planned + (double)net->memory.weights +
           net->options.state_bytes * (double)net->grad_count;
}

ct_status ct_net_fit(ct_net *net)
{
    /* what the process takes besides, batches under way among it */
    const double share = 0.9;
    bool host = (net->options.dev->kind == CT_DEVICE_CPU); /* a device's memory is not known */
    double most = host ? share * net->options.memory_limit : 0, never = need(net);

    if (net->recompute != CT__RECOMPUTE__AUTO) return CT_OK;
    net->recompute = CT__RECOMPUTE__NEVER;
    if ((most <= 0) || (never <= most)) {
        CT_INFO("recompute AUTO: NEVER, the net needs %.1f MiB%s", ldexp(never, -20),
                (most > 0) ? "" : ", and nobody knows of a limit");
        return CT_OK;
    }
    net->recompute = CT__RECOMPUTE__BLOCKS;
    CT_TRY(ct_net_recompute(net));
    CT_TRY(ct_net_fetches(net));
    CT_TRY(ct_net_lifetimes(net));
    CT_TRY(ct_net_place(net));
    CT_INFO(
        "recompute AUTO: %s, with which the net needs %.1f MiB; it would need %.1f, and %.1f are "
        "there for it",
        (net->recompute == CT__RECOMPUTE__BLOCKS) ? "BLOCKS" : "CHEAP", ldexp(need(net), -20),
        ldexp(never, -20), ldexp(most, -20));
    return CT_OK;
}

/* ---- in a pass */

/* What lies in the memory of a, from now on there. */
static void move_blobs(ct_pass *pass, const ct_again *a, size_t to)
{
    const ct_net_impl *m = ct_net_impl_of(pass->net);

    for (int b = 0; b < pass->net->n_blob; b++) {
        if (m->data_root[b] == a->root) pass->blob[b]->data.data = ct_pass_at(pass, to);
    }
}

void ct_pass_again_reset(ct_pass *pass)
{
    const ct_net_impl *m = ct_net_impl_of(pass->net);

    for (int k = 0; k < m->n_again; k++) move_blobs(pass, &m->again[k], m->again[k].forward);
}

static ct_status make_again(ct_pass *pass, int layer)
{
    const ct_layer *l = pass->net->layer[layer];

    return l->ops->fusion->again(l, pass->instance[layer], &pass->exec) ? CT_OK : CT_ERR_ARG;
}

ct_status ct_pass_again_run(ct_pass *pass, int when)
{
    const ct_net_impl *m = ct_net_impl_of(pass->net);

    if (m->reruns != NULL) return CT_OK; /* in steps of their own */
    for (int k = 0; k < m->n_again; k++) {
        const ct_again *a = &m->again[k];

        if (a->when != when) continue;
        move_blobs(pass, a, a->backward);
        CT_TRY(make_again(pass, a->layer));
        CT_TRY(ct_exec_poll(&pass->exec));
    }
    return CT_OK;
}

/* Scratch of unit i for its second forward, or for its backward. */
static void bind_scratch(ct_pass *pass, int i, bool again)
{
    const ct_net_impl *m = ct_net_impl_of(pass->net);

    for (int k = 0; k < m->n_call_buffer; k++) {
        const ct_call_buffer *c = &m->call_buffer[k];

        if ((m->unit[c->layer] != i) || (c->again == CT_NOWHERE)) continue;
        pass->instance[c->layer]->buffer[c->slot].data =
            ct_pass_at(pass, again ? c->again : c->backward);
    }
}

ct_status ct_pass_again_step(ct_pass *pass, const ct_step *s, int when)
{
    const ct_net_impl *m = ct_net_impl_of(pass->net);
    int i = s->layer;
    ct_status status;

    for (int k = 0; k < m->n_again; k++) {
        if (m->again[k].when == when) move_blobs(pass, &m->again[k], m->again[k].backward);
    }
    ct_pass_set_exec(pass, i); /* its samples: the step before may be of a layer that has others */
    if (!m->reruns[i]) return make_again(pass, i);
    bind_scratch(pass, i, true);
    status = ct_layer_forward(pass->net->layer[i], pass->instance[i], &pass->exec);
    bind_scratch(pass, i, false);
    return status;
}
