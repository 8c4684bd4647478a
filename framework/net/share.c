/* Which gradients lie in one memory: where a layer, or a group, may write the diff of a bottom over
 * that of its top (ct_instance.over), and nobody who lies there is alive any more. */
#include "framework/net/net_impl.h"

#include <stdlib.h>

typedef struct sharing {
    ct_net *net;
    ct_span *span; /* per blob, of its diff */
    int *n_value;  /* per blob: in place layers make several of one */
} sharing;

static bool apart(const ct_span *a, const ct_span *b)
{
    return (a->last < 0) || (b->last < 0) || (a->last < b->first) || (b->last < a->first);
}

/* Bottom q of a layer that runs at `at` over its top p, and beside the bottoms that lie there
 * already, from that moment on, with the same values. */
static bool may_share(const sharing *s, int p, int q, int at)
{
    const ct_net *net = s->net;
    const int *root = ct_net_impl_of(net)->diff_root;
    const ct_blob *bp = net->blob[p], *bq = net->blob[q];

    if (!bp->wants_diff || !bq->wants_diff || (root[p] == root[q]) || (s->span[p].last != at) ||
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
    const ct_instance *in = s->net->instance[i];
    int last = m->place[i], at = s->net->n_forward + m->backward_step[i];

    if ((in->over == 0) || (m->backward_step[i] < 0) || (m->graph.node[last].n_top == 0)) return;
    for (int b = 0; (b < m->graph.node[i].n_bottom) && (b < 32); b++) {
        int p = m->graph.value[m->graph.node[last].top[0]].blob;
        int q = m->graph.value[m->graph.node[i].bottom[b]].blob;

        if (((in->over >> b) & 1u) && may_share(s, p, q, at)) share(s, p, q);
    }
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

        s.n_value[v->blob]++;
        ct_net_touch_diff(net, v, &s.span[v->blob]);
    }
    /* as backward goes; a step that fills a diff comes right before the layer that reads it */
    for (int i = net->n_layer - 1; i >= 0; i--) share_layer(&s, i);
    free(s.span);
    free(s.n_value);
    return CT_OK;
}
