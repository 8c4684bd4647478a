/* What users look at: copies of values and gradients, in plain order. */
#include <stdlib.h>
#include <string.h>

#include "framework/base/memory.h"
#include "framework/base/text.h"
#include "library/library.h"

/* ---- between a tensor of the net and plain order */

static bool is_blocked(const ct_tensor *t)
{
    return (t->dtype == CT_F32) && (t->layout.order == CT_ORDER_NCHW) && (t->layout.block > 0);
}

static ct_status no_way(const ct_blob *b)
{
    return CT_FAIL(CT_ERR_ARG,
                   "blob \"%s\" lies in memory in an order that the library does not know",
                   b->name);
}

static ct_status take(const ct_blob *b, const ct_tensor *t, float *to)
{
    const ct_shape *s = &t->shape;

    if (ct_tensor_is_usual(t)) {
        memcpy(to, t->data, (size_t)ct_tensor_count(t) * sizeof(float));
        return CT_OK;
    }
    if (!is_blocked(t)) return no_way(b);
    ct_reorder_to_plain(s->dim[0], s->dim[1], ct_shape_count(s, 2, -1), t->layout.block, t->data,
                        to);
    return CT_OK;
}

static ct_status give(const ct_blob *b, const ct_tensor *t, const float *from)
{
    const ct_shape *s = &t->shape;

    if (ct_tensor_is_usual(t)) {
        memcpy(t->data, from, (size_t)ct_tensor_count(t) * sizeof(float));
        return CT_OK;
    }
    if (!is_blocked(t)) return no_way(b);
    ct_reorder_to_blocked(s->dim[0], s->dim[1], ct_shape_count(s, 2, -1), t->layout.block, from,
                          t->data);
    return CT_OK;
}

/* ---- who makes and reads what */

static int maker_of(const ct_net *net, const ct_blob *b)
{
    for (int i = 0; i < net->n_layer; i++) {
        for (int t = 0; t < net->layer[i]->n_top; t++) {
            if (net->pass->instance[i]->top[t] == b) return i;
        }
    }
    return -1;
}

static bool reads(const ct_net *net, int layer, const ct_blob *b)
{
    for (int k = 0; k < net->layer[layer]->n_bottom; k++) {
        if (net->pass->instance[layer]->bottom[k] == b) return true;
    }
    return false;
}

/* The blob of the file that a layer which the net added passes on. */
static const ct_blob *blob_of_file(const cortado_net *n, const ct_blob *b)
{
    const ct_net *net = ct_running(n);
    int i = maker_of(net, b);

    while ((i >= 0) && (net->layer[i]->n_bottom > 0) && (ct_net_file_layer(net, i) == NULL)) {
        b = net->pass->instance[i]->bottom[0];
        i = maker_of(net, b);
    }
    return b;
}

/* Of the versions of a name the first has the gradient that backward ends with. */
static int first_blob(const ct_net *net, const char *name)
{
    for (int b = 0; b < net->n_blob; b++) {
        if (strcmp(net->pass->blob[b]->name, name) == 0) return b;
    }
    return -1;
}

static ct_view *find_view(const cortado_net *n, const char *name)
{
    for (int v = 0; v < n->n_view; v++) {
        if (strcmp(n->view[v].name, name) == 0) return &n->view[v];
    }
    return NULL;
}

/* Where the values of a view are at the end of what runs. */
static const ct_blob *blob_of_view(const cortado_net *n, const ct_view *v)
{
    const ct_net *net = ct_running(n);
    int b = -1;

    if (v->is_read && !n->is_whole) {
        char name[CT_VALUE_READER_NAME];

        ct_value_reader_name((int)(v - n->view), name);
        b = ct_net_find_blob(net, name);
    }
    if (b < 0) b = ct_net_find_blob(net, v->name);
    return (b < 0) ? NULL : net->pass->blob[b];
}

/* ---- views */

static ct_status fail_name(const cortado_net *n, const char *name)
{
    const char *near = ct_text_nearest(name, n->blob, n->n_blob);

    return CT_FAIL(CT_ERR_ARG, "the net has no blob \"%s\"%s%s%s", name,
                   (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                   (near != NULL) ? "\"?" : "");
}

static const char *name_of(const cortado_net *n, const char *name)
{
    for (int i = 0; i < n->n_blob; i++) {
        if (strcmp(n->blob[i], name) == 0) return n->blob[i];
    }
    return NULL;
}

/* A top that users write to: of Input, and of MemoryData without a file. */
static bool is_input(const cortado_net *n, const char *name)
{
    const ct_net *net = n->owner.net;

    for (int i = 0; i < n->n_layer; i++) {
        const Ct__LayerParameter *p = ct_net_file_layer(net, n->layer[i]);

        if ((p->memory_data_param != NULL) && (p->memory_data_param->source != NULL)) continue;
        for (size_t t = 0; net->layer[n->layer[i]]->ops->keeps_top && (t < p->n_top); t++)
            if (strcmp(p->top[t], name) == 0) return true;
    }
    return false;
}

/* Whether what runs has the values of the blob at its end. */
static bool is_there(const cortado_net *n, const char *name, bool input)
{
    if (n->is_whole || input) return true;
    for (int i = 0; cortado_net_output_name(n, i) != NULL; i++) {
        if (strcmp(cortado_net_output_name(n, i), name) == 0) return true;
    }
    return false;
}

/* The values that are there now; an input's are the user's. */
static ct_status fill(const cortado_net *n, const ct_view *v)
{
    const ct_blob *b = blob_of_view(n, v);
    int first = first_blob(ct_running(n), v->name);

    if (v->diff != NULL) {
        const ct_blob *with = ct_running(n)->pass->blob[first];

        CT_TRY(take(with, &with->diff, v->diff));
    }
    if (v->is_input || !n->has_run || n->is_stale || (b->data.data == NULL)) return CT_OK;
    return take(b, &b->data, v->data);
}

static ct_status make_view(cortado_net *n, const char *name, ct_view *v)
{
    const ct_net *net = ct_running(n);
    const ct_pass *pass = net->pass;
    int last = ct_net_find_blob(net, name), first = first_blob(net, name);
    size_t bytes;

    if (last < 0) return fail_name(n, name);
    *v = (ct_view){ .name = name, .is_input = is_input(n, name) };
    v->shape = pass->blob[last]->data.shape;
    bytes = (size_t)ct_running_most(n, last) * sizeof(float);
    v->data = ct_mem_acquire(bytes);
    if (n->trains && (pass->blob[first]->diff.data != NULL) &&
        ct_shape_equal(&pass->blob[first]->data.shape, &v->shape)) {
        v->diff = ct_mem_acquire(bytes);
        if (v->diff == NULL) ct_mem_release(v->data);
        if (v->diff == NULL) v->data = NULL;
    }
    return (v->data != NULL) ? CT_OK
                             : CT_FAIL(CT_ERR_NOMEM, "no memory for a copy of blob \"%s\"", name);
}

ct_status ct_view_of(cortado_net *n, const char *name, ct_view **view_p)
{
    const char *known = name_of(n, name);
    ct_view *grown, v;

    *view_p = find_view(n, name);
    if (*view_p != NULL) return CT_OK;
    if (known == NULL) return fail_name(n, name);
    if (n->is_shown && !is_there(n, known, is_input(n, known)))
        return CT_FAIL(CT_ERR_ARG,
                       "the solver keeps inputs and outputs, which \"%s\" is none of: "
                       "CORTADO_KEEP_ALL",
                       name);
    grown = realloc(n->view, ((size_t)n->n_view + 1) * sizeof(grown[0]));
    if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for blob \"%s\"", name);
    n->view = grown;
    CT_TRY(make_view(n, known, &v));
    n->view[n->n_view++] = v;
    *view_p = &n->view[n->n_view - 1];
    if (!is_there(n, known, v.is_input)) {
        (*view_p)->is_read = true;
        n->is_stale = true;
    }
    return fill(n, *view_p);
}

static void release(ct_view *view, int n)
{
    for (int v = 0; v < n; v++) {
        ct_mem_release(view[v].data);
        ct_mem_release(view[v].diff);
    }
    free(view);
}

void ct_views_forget(cortado_net *n)
{
    release(n->view, n->n_view);
    n->view = NULL;
    n->n_view = 0;
    n->is_stale = false;
}

/* Views that a net has forgotten, with their memory. */
struct cortado_kept {
    ct_view *view;
    int n;
};

ct_status ct_views_keep(cortado_net *n, cortado_kept **kept_p)
{
    cortado_kept *k = malloc(sizeof(*k));

    if (k == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to keep blobs");
    *k = (cortado_kept){ .view = n->view, .n = n->n_view };
    n->view = NULL;
    n->n_view = 0;
    *kept_p = k;
    return CT_OK;
}

void ct_views_free_kept(cortado_kept *kept)
{
    if (kept == NULL) return;
    release(kept->view, kept->n);
    free(kept);
}

/* ---- around a run */

static bool within(int layer, int from, int to)
{
    return (from <= layer) && (layer <= to);
}

ct_status ct_views_give(const cortado_net *n, int from, int to)
{
    const ct_net *net = ct_running(n);

    for (int i = from; i <= to; i++) {
        bool is_source = (net->layer[i]->n_bottom == 0);
        int many = is_source ? net->layer[i]->n_top : net->layer[i]->n_bottom;

        for (int k = 0; k < many; k++) {
            const ct_blob *b =
                is_source ? net->pass->instance[i]->top[k] : net->pass->instance[i]->bottom[k];
            const ct_view *v = find_view(n, blob_of_file(n, b)->name);

            if ((v == NULL) || (is_source && !v->is_input)) continue;
            if (!is_source && within(maker_of(net, b), from, to)) continue;
            CT_TRY(give(b, &b->data, v->data));
        }
    }
    return CT_OK;
}

ct_status ct_views_take(const cortado_net *n, int from, int to)
{
    for (int i = 0; i < n->n_view; i++) {
        ct_view *v = &n->view[i];
        const ct_blob *b = blob_of_view(n, v);

        if (v->is_input || (b == NULL) || (b->data.data == NULL)) continue;
        if (!within(maker_of(ct_running(n), b), from, to)) continue;
        v->shape = b->data.shape; /* behind a Filter, that of this batch */
        CT_TRY(take(b, &b->data, v->data));
    }
    return CT_OK;
}

ct_status ct_views_give_diffs(const cortado_net *n, int from, int to)
{
    const ct_net *net = ct_running(n);

    for (int i = from; i <= to; i++) {
        for (int t = 0; t < net->layer[i]->n_top; t++) {
            const ct_blob *b = net->pass->instance[i]->top[t];
            const ct_view *v = find_view(n, b->name);
            bool is_read = false;

            for (int r = from; r <= to; r++) is_read |= reads(net, r, b);
            if ((b->diff.data == NULL) || is_read) continue;
            if ((v != NULL) && (v->diff != NULL))
                CT_TRY(give(b, &b->diff, v->diff));
            else if (n->forces && !net->layer[i]->ops->is_loss) /* nobody gave one */
                memset(b->diff.data, 0, (size_t)ct_tensor_bytes(&b->diff));
        }
    }
    return CT_OK;
}

ct_status ct_views_take_diffs(const cortado_net *n, int from, int to)
{
    const ct_net *net = ct_running(n);

    for (int i = 0; i < n->n_view; i++) {
        const ct_view *v = &n->view[i];
        const ct_blob *b = net->pass->blob[first_blob(net, v->name)];
        bool is_read = false;

        if (v->diff == NULL) continue;
        for (int r = from; r <= to; r++) is_read |= reads(net, r, b);
        if (is_read) CT_TRY(take(b, &b->diff, v->diff));
    }
    return CT_OK;
}
