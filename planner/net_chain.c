/* A net cut into blocks, and what they take. */
#include "planner/net_chain.h"

#include <stdlib.h>
#include <string.h>

/* ---- nets */

ct_status ct_net_make_again(const Ct__NetParameter *param, const ct_net_options *options,
                            const ct_net_segment *again, int n, ct_net **net_p)
{
    Ct__NetParameter copy = *param; /* its layers are the caller's: their addresses tell them */
    ct_net_options o = *options;

    copy.recompute = o.recompute = CT__RECOMPUTE__NEVER;
    o.again = again;
    o.n_again = n;
    o.no_data = true;
    return ct_net_create(&copy, &o, net_p);
}

/* ---- a net beside the message it was made of */

typedef struct view {
    const Ct__NetParameter *param;
    const ct_net *net;
    int *file;    /* per layer: its place in the message; -1: the net made it          */
    int *maker;   /* per blob: the first layer that writes its memory; by memory_of    */
    int *reader;  /* per blob: the last one that reads it; likewise                    */
    int *block;   /* per layer: once there are blocks                                  */
    int *numbers; /* the memory of all */
} view;

static int blob_of(const ct_net *net, const ct_blob *blob)
{
    int b = 0;

    while (net->pass->blob[b] != blob) b++;
    return b;
}

static bool is_source(const ct_net *net, int i)
{
    return net->layer[i]->n_bottom == 0;
}

/* A Split that the net made; Reorder and Cast are told by ops->by_net. */
static bool is_made_split(const view *v, int i)
{
    return (v->file[i] < 0) && !v->net->layer[i]->ops->by_net;
}

static void number_layers(view *v)
{
    int at = 0;

    for (int i = 0; i < v->net->n_layer; i++) {
        int k = at;

        while ((k < (int)v->param->n_layer) && (v->param->layer[k] != v->net->layer[i]->param)) k++;
        v->file[i] = (k < (int)v->param->n_layer) ? k : -1;
        if (v->file[i] >= 0) at = k + 1;
    }
}

static void find_users(view *v)
{
    const ct_net *net = v->net;

    for (int b = 0; b < net->n_blob; b++) v->maker[b] = v->reader[b] = -1;
    for (int i = 0; i < net->n_layer; i++) {
        const ct_instance *in = net->pass->instance[i];

        for (int b = 0; b < net->layer[i]->n_bottom; b++)
            v->reader[ct_net_memory_of(net, blob_of(net, in->bottom[b]))] = i;
        for (int t = 0; t < net->layer[i]->n_top; t++) {
            int *maker = &v->maker[ct_net_memory_of(net, blob_of(net, in->top[t]))];

            if (*maker < 0) *maker = i;
        }
    }
}

static ct_status open_view(const Ct__NetParameter *param, const ct_net *net, view *v)
{
    size_t n_layer = (size_t)net->n_layer + 1, n_blob = (size_t)net->n_blob + 1;

    *v = (view){ .param = param, .net = net };
    v->numbers = calloc(2 * n_layer + 2 * n_blob, sizeof(*v->numbers));
    if (v->numbers == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d layers", net->n_layer);
    v->file = v->numbers;
    v->block = v->file + n_layer;
    v->maker = v->block + n_layer;
    v->reader = v->maker + n_blob;
    number_layers(v);
    find_users(v);
    return CT_OK;
}

/* ---- where it may be cut */

/* What one layer makes, under all names that it gets: behind Splits of the net's own, in another
 * layout. */
typedef struct origin {
    int maker, last; /* the last layer that reads it; -1: none */
    bool is_source;
} origin;

typedef struct cutter {
    const view *v;
    origin *origin;
    int n_origin;
    int *now;   /* per blob: what it holds, as layers go by          */
    int *alive; /* behind each layer: values that are alive          */
    bool *may;  /* behind each layer: all else that a cut needs      */
} cutter;

static bool passes_on(const cutter *c, int i)
{
    return c->v->net->layer[i]->ops->by_net || is_made_split(c->v, i);
}

static void find_origins(cutter *c)
{
    const ct_net *net = c->v->net;

    for (int i = 0; i < net->n_layer; i++) {
        const ct_instance *in = net->pass->instance[i];
        int source = -1;

        for (int b = 0; b < net->layer[i]->n_bottom; b++) {
            source = c->now[blob_of(net, in->bottom[b])];
            c->origin[source].last = i;
        }
        for (int t = 0; t < net->layer[i]->n_top; t++) {
            if (!passes_on(c, i)) {
                source = c->n_origin++;
                c->origin[source] = (origin){ i, -1, is_source(net, i) };
            }
            c->now[blob_of(net, in->top[t])] = source;
        }
    }
    for (int k = 0; k < c->n_origin; k++) {
        const origin *o = &c->origin[k];

        for (int i = o->maker; !o->is_source && (i < o->last); i++) c->alive[i]++;
    }
}

/* Layers that run as one have nothing between them, but for a sum in front of a norm. */
static void forbid_groups(cutter *c)
{
    const ct_net *net = c->v->net;

    for (int i = 0; i < net->n_layer; i++) {
        int runner = ct_net_runner(net, i);
        const ct_epilogue *tail = net->pass->instance[runner]->tail;
        bool norm = (tail != NULL) && (tail->of[CT_EPILOGUE_SPLIT] != NULL) &&
                    (tail->of[CT_EPILOGUE_NORM] == net->pass->instance[i]);

        for (int k = runner; k < i - (norm ? 1 : 0); k++) c->may[k] = false;
    }
}

/* The cuts: may[i], behind layer i. */
static void find_cuts(cutter *c)
{
    const ct_net *net = c->v->net;

    find_origins(c);
    for (int i = 0; i < net->n_layer - 1; i++)
        c->may[i] = (c->alive[i] == 1) && !is_source(net, i) && !net->layer[i]->ops->by_net &&
                    !is_made_split(c->v, i + 1);
    forbid_groups(c);
}

/* ---- blocks */

static bool is_named(const view *v, int i)
{
    return (v->file[i] >= 0) && !is_source(v->net, i);
}

/* The block of layers from `first` to `last`, if it has a layer that can be named; others go with
 * the block behind. */
static bool add_block(const view *v, int first, int last, ct_net_chain *c)
{
    ct_net_block b = { .first = NULL, .like = c->n_block };

    for (int i = first; i <= last; i++) {
        if (!is_named(v, i)) continue;
        if (b.first == NULL) {
            b.first = v->net->layer[i]->name;
            b.first_file = v->file[i];
        }
        b.last = v->net->layer[i]->name;
        b.last_file = v->file[i];
    }
    if (b.first == NULL) return false;
    /* names as long as the message */
    b.first = v->param->layer[b.first_file]->name;
    b.last = v->param->layer[b.last_file]->name;
    c->block[c->n_block++] = b;
    return true;
}

static void make_blocks(const view *v, const bool *may, ct_net_chain *c)
{
    int n = v->net->n_layer, first = 0;

    for (int i = 0; i < n; i++) {
        if (((i == n - 1) || may[i]) && add_block(v, first, i, c)) first = i + 1;
    }
}

static ct_status cut(const view *v, ct_net_chain *c)
{
    const ct_net *net = v->net;
    size_t n_layer = (size_t)net->n_layer + 1, n_top = 1;
    cutter k = { .v = v };
    ct_status status = CT_OK;

    for (int i = 0; i < net->n_layer; i++) n_top += (size_t)net->layer[i]->n_top;
    k.origin = calloc(n_top, sizeof(*k.origin));
    k.now = calloc((size_t)net->n_blob + 1, sizeof(*k.now));
    k.alive = calloc(n_layer, sizeof(*k.alive));
    k.may = calloc(n_layer, sizeof(*k.may));
    c->block = calloc(n_layer, sizeof(*c->block));
    if ((k.origin == NULL) || (k.now == NULL) || (k.alive == NULL) || (k.may == NULL) ||
        (c->block == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %d layers", net->n_layer);
    } else {
        find_cuts(&k);
        make_blocks(v, k.may, c);
    }
    free(k.origin);
    free(k.now);
    free(k.alive);
    free(k.may);
    return status;
}

/* ---- which block has what, in any net of the message */

static void number_blocks(view *v, const ct_net_chain *c)
{
    int at = 0;

    for (int i = 0; i < v->net->n_layer; i++) {
        int k = i;

        if (!is_made_split(v, i)) { /* a Reorder is its reader's */
            while ((k < v->net->n_layer) && (v->file[k] < 0)) k++;
            while ((k < v->net->n_layer) && (at < c->n_block - 1) &&
                   (v->file[k] > c->block[at].last_file))
                at++;
        }
        v->block[i] = at;
    }
}

/* What lies in a blob's memory belongs to who reads it last: what a block reads of the one before,
 * and backward reads, is kept for it. What sources make is theirs. */
static int block_of_blob(const view *v, int root)
{
    int maker = v->maker[root], reader = v->reader[root];

    if ((reader < 0) || is_source(v->net, maker)) return v->block[maker];
    return v->block[reader];
}

static int block_of_region(const view *v, const ct_net_region *r)
{
    return (r->blob < 0) ? v->block[r->layer] : block_of_blob(v, ct_net_memory_of(v->net, r->blob));
}

static bool is_kept(const ct_net *net, int root)
{
    for (int i = 0; i < ct_net_regions(net); i++) {
        ct_net_region r = ct_net_region_of(net, i);

        if (r.kept && (r.blob >= 0) && (ct_net_memory_of(net, r.blob) == root)) return true;
    }
    return false;
}

int64_t ct_net_kept_bytes(const ct_net *net)
{
    int64_t bytes = 0;

    for (int i = 0; i < ct_net_regions(net); i++) {
        ct_net_region r = ct_net_region_of(net, i);

        if (r.kept) bytes += (int64_t)r.bytes;
    }
    return bytes;
}

/* ---- seconds */

static double seconds(const ct_net_limits *m, double flop, double bytes)
{
    double a = flop / m->flop, b = bytes / m->bytes;

    return (a > b) ? a : b;
}

/* Of a layer that runs forward again. A norm behind a sum does so by itself, though its runner has
 * its estimate: it reads and writes rows. */
static double again_s(const ct_net *net, const ct_net_limits *m, int i)
{
    const ct_instance *in = net->pass->instance[i];
    ct_estimate e;

    ct_net_estimate(net, i, &e);
    for (int b = 0; (ct_net_runner(net, i) != i) && (b < net->layer[i]->n_bottom); b++)
        e.forward_bytes += 2.0 * (double)ct_tensor_bytes(&in->bottom[b]->data);
    return seconds(m, e.forward_flop, e.forward_bytes);
}

ct_net_seconds ct_net_seconds_of(const ct_net *net, const ct_net_limits *limits)
{
    ct_net_seconds s = { 0 };

    /* weights and states read and written, gradients read */
    s.update_s = (2 * net->options.state_bytes + 3 * sizeof(float)) * (double)net->grad_count /
                 limits->bytes;
    for (int i = 0; i < net->n_layer; i++) {
        ct_estimate e;

        ct_net_estimate(net, i, &e);
        s.forward_s += seconds(limits, e.forward_flop, e.forward_bytes);
        s.backward_s += seconds(limits, e.backward_flop, e.backward_bytes);
    }
    for (int j = 0; j < net->n_backward; j++) {
        if (net->backward[j].kind == CT_STEP_AGAIN)
            s.again_s += again_s(net, limits, net->backward[j].layer);
    }
    return s;
}

/* ---- the figures */

static void add_times(const view *v, const ct_net_limits *m, ct_net_chain *c)
{
    for (int i = 0; i < v->net->n_layer; i++) {
        ct_net_block *b = &c->block[v->block[i]];
        ct_estimate e;

        ct_net_estimate(v->net, i, &e);
        b->forward_s += seconds(m, e.forward_flop, e.forward_bytes);
        b->backward_s += seconds(m, e.backward_flop, e.backward_bytes);
    }
}

static int owner_of(const ct_net *net, int param)
{
    for (int i = 0; i < net->n_layer; i++) {
        for (int w = 0; w < net->layer[i]->n_weight; w++) {
            if (ct_net_param_of(net, i, w) == param) return i;
        }
    }
    return 0;
}

static void add_weights(const view *v, ct_net_chain *c)
{
    for (int k = 0; k < v->net->n_param; k++) {
        const ct_param *p = &v->net->param[k];
        int64_t bytes = (int64_t)ct_align_up((size_t)p->count * sizeof(float));

        c->block[v->block[owner_of(v->net, k)]].weight_bytes += p->learns ? 2 * bytes : bytes;
    }
}

static void add_kept(const view *v, ct_net_chain *c)
{
    for (int i = 0; i < ct_net_regions(v->net); i++) {
        ct_net_region r = ct_net_region_of(v->net, i);

        if (r.kept) c->block[block_of_region(v, &r)].kept_bytes += (int64_t)r.bytes;
    }
}

/* v: the net that makes everything again that it may, as one segment. */
static void add_fixed(const view *v, ct_net_chain *c)
{
    const ct_net *net = v->net;

    for (int i = 0; i < ct_net_regions(net); i++) {
        ct_net_region r = ct_net_region_of(net, i);

        if (r.kept) c->block[block_of_region(v, &r)].fixed_bytes += (int64_t)r.bytes;
    }
    for (int b = 0; b < c->n_block; b++) {
        ct_net_block *k = &c->block[b];

        k->kept_bytes = (k->kept_bytes > k->fixed_bytes) ? k->kept_bytes - k->fixed_bytes : 0;
    }
    for (int root = 0; root < net->n_blob; root++) {
        int maker = v->maker[root];
        const ct_tensor *t = &net->pass->blob[root]->data;

        if ((ct_net_memory_of(net, root) != root) || (maker < 0) || (v->reader[root] < 0) ||
            is_source(net, maker) || is_kept(net, root))
            continue;
        for (int b = v->block[maker] + 1; b <= v->block[v->reader[root]]; b++)
            c->block[b].input_bytes += (int64_t)ct_align_up(ct_tensor_bytes(t));
    }
}

static void add_again(const view *v, const ct_net_limits *m, bool alone, ct_net_chain *c)
{
    for (int j = 0; j < v->net->n_backward; j++) {
        const ct_step *s = &v->net->backward[j];
        ct_net_block *b = &c->block[v->block[s->layer]];

        if (s->kind == CT_STEP_AGAIN)
            *(alone ? &b->again_s : &b->joint_s) += again_s(v->net, m, s->layer);
    }
}

/* ---- which blocks are alike */

static bool same_figures(const ct_net_block *a, const ct_net_block *b)
{
    return (a->forward_s == b->forward_s) && (a->backward_s == b->backward_s) &&
           (a->again_s == b->again_s) && (a->joint_s == b->joint_s) &&
           (a->weight_bytes == b->weight_bytes) && (a->fixed_bytes == b->fixed_bytes) &&
           (a->kept_bytes == b->kept_bytes) && (a->input_bytes == b->input_bytes);
}

static bool same_layers(const Ct__NetParameter *p, const ct_net_block *a, const ct_net_block *b)
{
    if (a->last_file - a->first_file != b->last_file - b->first_file) return false;
    for (int k = 0; k <= a->last_file - a->first_file; k++) {
        const Ct__LayerParameter *x = p->layer[a->first_file + k], *y = p->layer[b->first_file + k];

        if ((x->type == NULL) || (y->type == NULL) || (strcmp(x->type, y->type) != 0)) return false;
    }
    return true;
}

static void find_likes(const Ct__NetParameter *param, ct_net_chain *c)
{
    for (int b = 0; b < c->n_block; b++) {
        int a = 0;

        while ((a < b) && !(same_figures(&c->block[a], &c->block[b]) &&
                            same_layers(param, &c->block[a], &c->block[b])))
            a++;
        c->block[b].like = a;
    }
}

/* ---- all of it */

/* As of the net that keeps everything. */
static ct_status look_at_whole(const Ct__NetParameter *param, const ct_net_options *options,
                               const ct_net_limits *limits, ct_net_chain *c)
{
    ct_net *net = NULL;
    view v = { 0 };
    ct_status status;

    CT_TRY(ct_net_make_again(param, options, NULL, 0, &net));
    CT_TRY_GOTO(status, out, open_view(param, net, &v));
    CT_TRY_GOTO(status, out, cut(&v, c));
    if ((c->n_block == 0) || (net->n_backward == 0)) {
        status = CT_FAIL(CT_ERR_CONFIG, "net \"%s\" has nothing to plan: no layer runs backward",
                         net->name);
        goto out;
    }
    number_blocks(&v, c);
    add_times(&v, limits, c);
    add_weights(&v, c);
    add_kept(&v, c);
out:
    free(v.numbers);
    ct_net_destroy(net);
    return status;
}

/* As of nets that make everything again: as one segment, or each block by itself. */
static ct_status look_at_segments(const Ct__NetParameter *param, const ct_net_options *options,
                                  const ct_net_limits *limits, bool alone, ct_net_chain *c)
{
    ct_net_segment *again = calloc((size_t)c->n_block, sizeof(*again));
    int n = alone ? c->n_block : 1;
    ct_net *net = NULL;
    view v = { 0 };
    ct_status status;

    if (again == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d blocks", c->n_block);
    for (int b = 0; b < c->n_block; b++)
        again[b] = (ct_net_segment){ c->block[b].first, c->block[b].last };
    if (!alone) again[0].last = c->block[c->n_block - 1].last;
    CT_TRY_GOTO(status, out, ct_net_make_again(param, options, again, n, &net));
    CT_TRY_GOTO(status, out, open_view(param, net, &v));
    number_blocks(&v, c);
    add_again(&v, limits, alone, c);
    if (!alone) add_fixed(&v, c);
out:
    free(v.numbers);
    ct_net_destroy(net);
    free(again);
    return status;
}

ct_status ct_net_chain_make(const Ct__NetParameter *param, const ct_net_options *options,
                            const ct_net_limits *limits, ct_net_chain *c)
{
    ct_net_chain made = { 0 };
    ct_status status = look_at_whole(param, options, limits, &made);

    if (status == CT_OK) status = look_at_segments(param, options, limits, false, &made);
    if (status == CT_OK) status = look_at_segments(param, options, limits, true, &made);
    if (status != CT_OK) {
        ct_net_chain_destroy(&made);
        return status;
    }
    find_likes(param, &made);
    *c = made;
    return CT_OK;
}

ct_status ct_net_chain_blocks(const ct_net_chain *c, const Ct__NetParameter *param,
                              const ct_net *net, int *block)
{
    view v;

    CT_TRY(open_view(param, net, &v));
    number_blocks(&v, c);
    memcpy(block, v.block, (size_t)net->n_layer * sizeof(*block));
    free(v.numbers);
    return CT_OK;
}

ct_status ct_net_chain_weigh(const ct_net_chain *c, const Ct__NetParameter *param,
                             const ct_net *net, const double *value, const double *buffer,
                             double *kept, double *other)
{
    view v;

    CT_TRY(open_view(param, net, &v));
    number_blocks(&v, c);
    for (int b = 0; b < c->n_block; b++) kept[b] = other[b] = 0;
    for (int i = 0; i < ct_net_regions(net); i++) {
        ct_net_region r = ct_net_region_of(net, i);
        int maker = (r.blob < 0) ? -1 : v.maker[ct_net_memory_of(net, r.blob)];
        double part = (r.blob < 0) ? buffer[r.layer] : (maker < 0) ? 1 : value[maker];

        (r.kept ? kept : other)[block_of_region(&v, &r)] += part * (double)r.bytes;
    }
    free(v.numbers);
    return CT_OK;
}

void ct_net_chain_destroy(ct_net_chain *c)
{
    free(c->block);
    *c = (ct_net_chain){ 0 };
}
