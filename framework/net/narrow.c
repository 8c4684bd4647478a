/* Fewer rows behind a layer.
 *
 * In a net of tokens nothing behind the last attention looks at another token. Where only some
 * tokens' scores are asked for, their rows are moved together right behind it, and all layers that
 * follow are shaped for these. The values that pass from one side to the other get the shape of
 * fewer rows then, and their own again when the pass is over: blobs that layers overwrite in place
 * are known on both sides. */
#include <stdlib.h>
#include <string.h>

#include "framework/net/net_impl.h"

struct ct_narrowing {
    int last; /* the last layer in front                      */
    int unit; /* who runs first behind it                     */
    int n;    /* values that pass                             */
    int *blob;
    ct_shape *whole;    /* their shapes, while they are narrow    */
    const int64_t *row; /* that are asked for, ascending; NULL: all */
    int64_t n_row;
    bool narrow;
};

static int place_of(const ct_net *net, int layer)
{
    return ct_net_impl_of(net)->place[ct_net_impl_of(net)->runner[layer]];
}

int ct_net_narrow_behind(const ct_net *net)
{
    int last = -1;

    for (int i = 0; i < net->n_layer; i++) {
        const ct_sequence_ops *ops = net->layer[i]->ops->sequence;

        if ((ops != NULL) && ops->packs) last = i;
    }
    for (int i = 0; (last < 0) && (i < net->n_layer); i++)
        if (net->layer[i]->ops->is_data) last = i; /* no layer does: behind the ids */
    return (last < 0) ? -1 : place_of(net, last);
}

/* By the list of steps: a transfer may be over before its place. */
static bool passes(const ct_net *net, const ct_narrowing *w, const ct_value *v)
{
    const ct_net_impl *m = ct_net_impl_of(net);
    int here = (w->unit >= 0) ? m->forward_first[w->unit] : net->n_forward;

    return (v->reader >= 0) && (m->forward_step[v->node] < here) &&
           (m->forward_step[v->reader] >= here);
}

static void find_values(const ct_net *net, ct_narrowing *w)
{
    const ct_graph *g = &ct_net_impl_of(net)->graph;

    for (int v = 0; v < g->n_value; v++) {
        bool known = !passes(net, w, &g->value[v]);

        for (int k = 0; !known && (k < w->n); k++) known = (w->blob[k] == g->value[v].blob);
        if (!known) w->blob[w->n++] = g->value[v].blob;
    }
}

/* The first that runs behind; -1: nothing does. */
static int find_unit(const ct_net *net, int last)
{
    const ct_net_impl *m = ct_net_impl_of(net);

    for (int i = last + 1; i < net->n_layer; i++) {
        if (m->place[m->runner[i]] == i) return m->runner[i];
    }
    return -1;
}

ct_status ct_pass_narrow_make(ct_pass *pass, bool *can_p)
{
    const ct_net *net = pass->net;
    size_t n = (size_t)net->n_blob + 1;
    ct_narrowing *w = calloc(1, sizeof(*w));

    if (w != NULL) {
        w->blob = calloc(n, sizeof(w->blob[0]));
        w->whole = calloc(n, sizeof(w->whole[0]));
    }
    if ((w == NULL) || (w->blob == NULL) || (w->whole == NULL)) {
        if (w != NULL) {
            free(w->blob);
            free(w->whole);
        }
        free(w);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the values of fewer rows");
    }
    w->last = ct_net_narrow_behind(net);
    w->unit = find_unit(net, w->last);
    find_values(net, w);
    *can_p = (w->unit >= 0);
    ct_pass_impl_of(pass)->narrowing = w;
    return CT_OK;
}

void ct_pass_narrow_release(ct_pass *pass)
{
    ct_narrowing *w = ct_pass_impl_of(pass)->narrowing;

    if (w == NULL) return;
    free(w->blob);
    free(w->whole);
    free(w);
    ct_pass_impl_of(pass)->narrowing = NULL;
}

int ct_pass_narrow_last(const ct_pass *pass)
{
    const ct_narrowing *w = ct_pass_impl_of(pass)->narrowing;

    return ((w != NULL) && (w->row != NULL)) ? w->last : pass->net->n_layer;
}

void ct_pass_narrow(ct_pass *pass, const int64_t *row, int64_t n)
{
    ct_narrowing *w = ct_pass_impl_of(pass)->narrowing;

    w->row = row;
    w->n_row = n;
}

static bool moved_before(const ct_pass *pass, const ct_narrowing *w, int k)
{
    for (int i = 0; i < k; i++) {
        if (ct_blob_data(pass->blob[w->blob[i]]) == ct_blob_data(pass->blob[w->blob[k]]))
            return true;
    }
    return false;
}

/* Rows are moved to places in front of them, so each is moved before its place is taken. */
static void move_rows(const ct_narrowing *w, ct_blob *b)
{
    size_t bytes = ct_tensor_bytes(&b->data) / (size_t)b->data.shape.dim[1];
    char *data = (char *)ct_blob_data(b);

    for (int64_t i = 0; i < w->n_row; i++) {
        if (w->row[i] != i)
            memcpy(data + (size_t)i * bytes, data + (size_t)w->row[i] * bytes, bytes);
    }
}

void ct_pass_narrow_before(ct_pass *pass, int unit)
{
    ct_narrowing *w = ct_pass_impl_of(pass)->narrowing;

    if ((w == NULL) || (w->row == NULL) || (w->unit != unit)) return;
    for (int k = 0; k < w->n; k++) {
        if (!moved_before(pass, w, k)) move_rows(w, pass->blob[w->blob[k]]);
    }
    for (int k = 0; k < w->n; k++) {
        ct_blob *b = pass->blob[w->blob[k]];
        ct_shape shape = w->whole[k] = b->data.shape;

        shape.dim[1] = w->n_row;
        ct_blob_set_like(b, &shape, &b->data);
    }
    w->narrow = true;
}

void ct_pass_narrow_after(ct_pass *pass)
{
    ct_narrowing *w = ct_pass_impl_of(pass)->narrowing;

    for (int k = 0; (w != NULL) && w->narrow && (k < w->n); k++) {
        ct_blob *b = pass->blob[w->blob[k]];

        ct_blob_set_like(b, &w->whole[k], &b->data);
    }
    if (w != NULL) w->narrow = false;
}
