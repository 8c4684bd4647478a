/* What an ONNX file holds of a net: what leads to an output of the graph. Losses and measures are
 * none, so labels, and what is computed of labels alone, are left out. */
#include <stdlib.h>
#include <string.h>

#include "cli/onnx/onnx_impl.h"

typedef struct uses { /* of the values that blobs have behind the layer under way */
    const char **blob;
    ct_onnx_use *use;
    int n;
} uses;

static bool is_type(const ct_layer *l, const char *type)
{
    return strcmp(l->ops->type, type) == 0;
}

ct_onnx_use ct_onnx_bottom_use(const ct_layer *l, int i)
{
    if (is_type(l, "Silence")) return CT_ONNX_DROPPED;
    if (is_type(l, "Accuracy")) return (i == 0) ? CT_ONNX_UNREAD : CT_ONNX_DROPPED;
    if (i != 1) return CT_ONNX_NEEDED;
    if (is_type(l, "SoftmaxWithLoss")) return CT_ONNX_DROPPED;
    /* its shape alone, which is written out */
    return (is_type(l, "Crop") || is_type(l, "Interp")) ? CT_ONNX_DROPPED : CT_ONNX_NEEDED;
}

static ct_onnx_use *find(uses *u, const char *blob)
{
    int i = 0;

    while ((i < u->n) && (strcmp(u->blob[i], blob) != 0)) i++;
    if (i == u->n) {
        u->blob[u->n] = blob;
        u->use[u->n++] = CT_ONNX_UNREAD;
    }
    return &u->use[i];
}

/* The net puts these between a value and its reader, which goes on naming the value. */
static bool stays_out(const ct_layer *l)
{
    return is_type(l, "Reorder") || is_type(l, "Cast");
}

/* The tops of a Split that the net put in are named by nobody. */
static bool is_written(const ct_layer *l, const ct_onnx_live *live)
{
    bool silent = is_type(l, "Silence") || is_type(l, "Accuracy");
    bool passes = is_type(l, "Split");

    if (is_type(l, "SoftmaxWithLoss") || (!silent && (l->param->n_top == 0))) return true;
    for (size_t t = 0; !silent && (t < l->param->n_top); t++) {
        if (live->top[t] == CT_ONNX_NEEDED) return true;
        if ((live->top[t] == CT_ONNX_UNREAD) && !passes && (l->n_bottom > 0)) return true;
    }
    return false;
}

/* Layer l, those behind it being known. */
static void look_at(const ct_layer *l, uses *u, ct_onnx_live *live)
{
    for (size_t t = 0; t < l->param->n_top; t++) live->top[t] = *find(u, l->param->top[t]);
    live->written = !stays_out(l) && is_written(l, live);
    if (stays_out(l) || (!live->written && is_type(l, "Split"))) return;
    for (size_t t = 0; t < l->param->n_top; t++) *find(u, l->param->top[t]) = CT_ONNX_UNREAD;
    for (size_t i = 0; i < l->param->n_bottom; i++) {
        ct_onnx_use use = ct_onnx_bottom_use(l, (int)i), *now = find(u, l->param->bottom[i]);

        if (!live->written && (use == CT_ONNX_NEEDED)) use = CT_ONNX_DROPPED;
        if (use > *now) *now = use;
    }
}

ct_status ct_onnx_live_create(const ct_net *net, ct_onnx_live **live_p)
{
    ct_onnx_live *live = calloc((size_t)net->n_layer + 1, sizeof(*live));
    uses u = { .n = 0 };
    size_t most = 1;
    bool failed;

    for (int l = 0; l < net->n_layer; l++)
        most += net->layer[l]->param->n_bottom + net->layer[l]->param->n_top;
    u.blob = calloc(most, sizeof(u.blob[0]));
    u.use = calloc(most, sizeof(u.use[0]));
    failed = (live == NULL) || (u.blob == NULL) || (u.use == NULL);
    for (int l = 0; !failed && (l < net->n_layer); l++) {
        live[l].top = calloc(net->layer[l]->param->n_top + 1, sizeof(live[l].top[0]));
        failed = (live[l].top == NULL);
    }
    for (int l = net->n_layer - 1; !failed && (l >= 0); l--) look_at(net->layer[l], &u, &live[l]);
    free(u.blob);
    free(u.use);
    if (failed) {
        ct_onnx_live_destroy(live, net->n_layer);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for what an ONNX file holds of %d layers",
                       net->n_layer);
    }
    *live_p = live;
    return CT_OK;
}

void ct_onnx_live_destroy(ct_onnx_live *live, int n_layer)
{
    for (int l = 0; (live != NULL) && (l < n_layer); l++) free(live[l].top);
    free(live);
}
