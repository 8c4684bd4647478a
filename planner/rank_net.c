#include "planner/rank_net.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory that lives as long as the message */

typedef struct block {
    struct block *next;
    max_align_t bytes[];
} block;

/* A value of the whole net, by its blob. What Split, Reorder and Cast pass on is the value that
 * they read: the rank's net adds its own. */
typedef struct value {
    int same;  /* the blob that it is; -1: it is a value of its own */
    int maker; /* the layer                                         */
    int stage; /* the maker's                                       */
    ct_sharding as;
    int64_t unit;     /* of channels, so many stay together                */
    const char *name; /* in the rank's net; NULL: it is not there       */
} value;

/* A value in another form, or in another stage. */
typedef struct copy {
    int value;    /* blob */
    int maker;    /* of the value, then: a layer in place makes a new one */
    int stage;    /* where the copy is     */
    bool crosses; /* it came from another stage, as it comes */
    bool partial; /* the readers' gradients of it add up     */
    bool blocked; /* its channels stand in blocks            */
    ct_sharding as;
    const char *name; /* NULL: not on this rank */
} copy;

typedef struct emitter {
    const ct_parallel *p;
    const ct_sharded_net *s;
    const ct_net *net;
    int rank;
    ct_parallel_place at;
    const ct_parallel_stage *stage;
    int64_t batch; /* samples of all */
    value *value;  /* [net->n_blob]  */
    copy *copies;
    int n_copy, most_copy;
    int n_cross; /* values that crossed: their tags */
    ct_rank_net *out;
    bool failed; /* no memory */
} emitter;

static void *keep(emitter *e, size_t bytes)
{
    block *b = calloc(1, sizeof(*b) + bytes);

    if (b == NULL) {
        e->failed = true;
        return NULL;
    }
    b->next = e->out->impl;
    e->out->impl = b;
    return b->bytes;
}

static char *keep_text(emitter *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static char *keep_text(emitter *e, const char *fmt, ...)
{
    va_list args;
    char *text;
    int n;

    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    text = keep(e, (size_t)n + 1);
    if (text == NULL) return NULL;
    va_start(args, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, args);
    va_end(args);
    return text;
}

static char **keep_names(emitter *e, int n, const char *const *name)
{
    char **names = keep(e, ((size_t)n + 1) * sizeof(*names));

    for (int i = 0; (names != NULL) && (i < n); i++) names[i] = (char *)(uintptr_t)name[i];
    return names;
}

/* ---- samples */

typedef struct samples {
    int64_t first, count;
} samples;

/* Those of a replica: in TRAIN as the file says, in TEST as evenly as may be. */
static samples of_replica(const emitter *e, const ct_parallel_stage *g, int replica)
{
    samples n = { 0, 0 };

    if (e->net->options.phase != CT_TRAIN) {
        ct_range r = ct_range_of(e->batch, replica, g->n_replica);

        return (samples){ r.first, r.count };
    }
    for (int k = 0; k < replica; k++) n.first += g->share[k];
    n.count = g->share[replica];
    return n;
}

/* Those of a rank of it, where they are dealt out. */
static samples of_part(const emitter *e, const ct_parallel_stage *g, int replica, int part)
{
    samples n = of_replica(e, g, replica);
    ct_range r = ct_range_of(n.count, part, g->tensor);

    return (samples){ n.first + r.first, r.count };
}

static ct_status fail_samples(const emitter *e, const ct_parallel_stage *g, int replica,
                              const char *what)
{
    return ct_parallel_fail(e->p, g->param, NULL,
                            "replica %d of stage %d has %" PRId64 " samples of a batch of %" PRId64
                            ", and %d ranks: too few for %s, which is dealt out by samples",
                            replica, (int)(g - e->p->stage), of_replica(e, g, replica).count,
                            e->batch, g->tensor, what);
}

static bool has_too_few(const emitter *e, const ct_parallel_stage *g, int *replica_p)
{
    for (int j = 0; j < g->n_replica; j++) {
        *replica_p = j;
        if (of_replica(e, g, j).count < g->tensor) return true;
    }
    return false;
}

/* ---- layers of the message */

static Ct__LayerParameter *add_layer(emitter *e, const Ct__LayerParameter *like)
{
    static const Ct__LayerParameter plain = CT__LAYER_PARAMETER__INIT;
    Ct__LayerParameter *l = keep(e, sizeof(*l));

    if (l == NULL) return NULL;
    *l = (like != NULL) ? *like : plain;
    e->out->param->layer[e->out->param->n_layer++] = l;
    return l;
}

/* One layer with so many bottoms and tops, called as its first top, or `name`. */
static Ct__LayerParameter *add_made(emitter *e, const char *type, const char *name, int n_bottom,
                                    const char *const *bottom, int n_top, const char *const *top)
{
    Ct__LayerParameter *l = add_layer(e, NULL);

    if (l == NULL) return NULL;
    l->type = (char *)(uintptr_t)type;
    l->name = (char *)(uintptr_t)((name != NULL) ? name : top[0]);
    l->n_bottom = (size_t)n_bottom;
    l->bottom = keep_names(e, n_bottom, bottom);
    l->n_top = (size_t)n_top;
    l->top = keep_names(e, n_top, top);
    return l;
}

static Ct__TransferParameter *add_transfer(emitter *e, Ct__LayerParameter *l)
{
    Ct__TransferParameter *t = (l != NULL) ? keep(e, sizeof(*t)) : NULL;

    if (t == NULL) return NULL;
    ct__transfer_parameter__init(t);
    l->transfer = t;
    return t;
}

/* ---- how the ranks of a tensor group have a value */

static bool same_form(ct_sharding a, ct_sharding b)
{
    return (a.kind == b.kind) && (a.axis == b.axis) && (a.part == b.part) &&
           ((a.pieces == b.pieces) || (a.kind != CT_SHARDING_CHANNEL));
}

static const ct_sharding whole_form = { .kind = CT_SHARDING_WHOLE };
static const ct_sharding batch_form = { .kind = CT_SHARDING_BATCH };

static void fill_pieces(const emitter *e, int i, int64_t n, int n_piece, int64_t *piece);

/* Pieces of unlike length, as queries and fewer keys, go into what is split alike and no further.
 */
static ct_status check_pieces(const emitter *e, int blob, ct_sharding as)
{
    const value *v = &e->value[blob];
    const ct_layer *l = e->net->layer[v->maker];
    int64_t piece[3] = { 0 };

    if ((as.kind != CT_SHARDING_CHANNEL) || (as.pieces != 3)) return CT_OK;
    fill_pieces(e, v->maker, e->net->pass->blob[blob]->data.shape.dim[as.axis], 3, piece);
    if (piece[0] == piece[1]) return CT_OK;
    return ct_parallel_fail(e->p, e->stage->param, NULL,
                            "layer \"%.100s\" (%.40s) is split OUTPUT, with %" PRId64
                            " queries and %" PRId64 " keys: the attention that reads it must be "
                            "split HEADS",
                            l->name, l->ops->type, piece[0], piece[1]);
}

/* What the axis of a form has, and the pieces of each rank in it. */
static ct_status fill_parts(emitter *e, Ct__TransferParameter *t, int blob, ct_sharding as,
                            int64_t unit)
{
    const ct_shape *shape = &e->net->pass->blob[blob]->data.shape;
    int n = e->stage->tensor;
    int64_t length;

    CT_TRY(check_pieces(e, blob, as));
    t->part = keep(e, (size_t)n * sizeof(*t->part));
    if (t->part == NULL) return CT_OK; /* e->failed */
    t->n_part = (size_t)n;
    t->rank = e->at.part;
    t->has_rank = t->has_axis = t->has_pieces = true;
    t->axis = (as.kind == CT_SHARDING_BATCH)     ? e->net->batch_axis
              : (as.kind == CT_SHARDING_CHANNEL) ? as.axis
                                                 : 1;
    t->pieces = ((as.kind == CT_SHARDING_CHANNEL) && (as.pieces > 1)) ? as.pieces : 1;
    length = shape->dim[t->axis] / t->pieces;
    if (as.kind == CT_SHARDING_BATCH) length = of_replica(e, e->stage, e->at.replica).count;
    if (as.kind != CT_SHARDING_CHANNEL) unit = 1;
    for (int q = 0; q < n; q++) t->part[q] = ct_range_of(length / unit, q, n).count * unit;
    return CT_OK;
}

static const char *form_name(const char *type)
{
    return (strcmp(type, "CopyToParts") == 0)      ? "copy"
           : (strcmp(type, "SumParts") == 0)       ? "sum"
           : (strcmp(type, "Gather") == 0)         ? "gather"
           : (strcmp(type, "ReduceScatter") == 0)  ? "reduce_scatter"
           : (strcmp(type, "ScatterToParts") == 0) ? "scatter"
                                                   : "part";
}

/* Adds a layer that turns `from` into another form; form: the one that lies in pieces. */
static ct_status turn(emitter *e, const char *type, int blob, const char *from, ct_sharding form,
                      int64_t unit, bool partial, const char **name_p)
{
    char *name = keep_text(e, "%s/%s%d", from, form_name(type), e->n_copy);
    const char *bottom[] = { from }, *top[] = { name };
    Ct__LayerParameter *l = add_made(e, type, NULL, 1, bottom, 1, top);
    Ct__TransferParameter *t = add_transfer(e, l);

    *name_p = name;
    if (t == NULL) return CT_OK; /* e->failed */
    t->sum_gradients = t->has_sum_gradients = partial;
    if ((strcmp(type, "SumParts") == 0) || (strcmp(type, "CopyToParts") == 0)) return CT_OK;
    return fill_parts(e, t, blob, form, unit);
}

static copy *find_copy(const emitter *e, const copy *like)
{
    for (int i = 0; i < e->n_copy; i++) {
        copy *c = &e->copies[i];

        if ((c->value == like->value) && (c->maker == like->maker) && (c->stage == like->stage) &&
            (c->crosses == like->crosses) && (c->partial == like->partial) &&
            (c->blocked == like->blocked) && (c->crosses || same_form(c->as, like->as)))
            return c;
    }
    return NULL;
}

static void add_copy(emitter *e, const copy *c)
{
    if (e->n_copy == e->most_copy) {
        int most = 2 * e->most_copy + 64;
        copy *more = realloc(e->copies, (size_t)most * sizeof(*more));

        if (more == NULL) {
            e->failed = true;
            return;
        }
        e->copies = more;
        e->most_copy = most;
    }
    e->copies[e->n_copy++] = *c;
}

/* A conversion of one step or two, as sharding.h names them. */
static ct_status make_form(emitter *e, int blob, const char *from, ct_sharding as, int64_t unit,
                           ct_sharding to, bool partial, const char **name_p)
{
    const char *between = from;
    bool is_whole = (to.kind == CT_SHARDING_WHOLE);

    if ((as.kind == CT_SHARDING_PARTIAL) && !is_whole)
        return turn(e, "ReduceScatter", blob, from, to, 1, false, name_p);
    if (as.kind == CT_SHARDING_PARTIAL) {
        CT_TRY(turn(e, "SumParts", blob, from, to, 1, false, name_p));
        if (!partial || e->failed) return CT_OK;
        return turn(e, "CopyToParts", blob, *name_p, to, 1, false, name_p);
    }
    if (as.kind != CT_SHARDING_WHOLE) {
        CT_TRY(turn(e, "Gather", blob, from, as, unit, is_whole && partial, &between));
        *name_p = between;
        if (is_whole || e->failed) return CT_OK;
    }
    if (is_whole) return turn(e, "CopyToParts", blob, from, to, 1, false, name_p);
    return turn(e, "ScatterToParts", blob, between, to, 1, false, name_p);
}

/* The name of a value in the form `to`, on this rank. partial: the reader's gradient of it is a
 * part of a sum. */
static ct_status bring(emitter *e, int blob, int maker, const char *name, ct_sharding as,
                       int64_t unit, ct_sharding to, bool partial, const char **name_p)
{
    copy c = { .value = blob, .maker = maker, .stage = e->at.stage, .partial = partial, .as = to };
    const copy *there;

    *name_p = name;
    if ((e->stage->tensor == 1) || (same_form(as, to) && !partial)) return CT_OK;
    there = find_copy(e, &c);
    if (there != NULL) {
        *name_p = there->name;
        return CT_OK;
    }
    CT_TRY(make_form(e, blob, name, as, unit, to, partial, name_p));
    c.name = *name_p;
    add_copy(e, &c);
    return CT_OK;
}

/* ---- values */

static int blob_index(const ct_net *net, const ct_blob *b)
{
    for (int i = 0; i < net->n_blob; i++) {
        if (net->pass->blob[i] == b) return i;
    }
    return -1;
}

static int source_of(const emitter *e, const ct_blob *b)
{
    int i = blob_index(e->net, b);

    while (e->value[i].same >= 0) i = e->value[i].same;
    return i;
}

/* Whether layer i has some of the outputs of bottom b, which all ranks have whole, or is one rank's
 * alone: its gradient of the bottom is one part of a sum. */
static bool reads_for_parts(const emitter *e, int i, int b)
{
    const ct_layer *l = e->net->layer[i];
    bool is_part = (e->s->split[i] == CT_PARALLEL_ONE) ||
                   ((e->s->split[i] == CT_PARALLEL_OUTPUT) && (b == 0) && !l->ops->is_loss);

    return is_part && (e->s->bottom[i][b].kind == CT_SHARDING_WHOLE) &&
           e->net->pass->instance[i]->bottom[b]->wants_diff;
}

/* Another rank of the replica has layer i. */
static bool is_elsewhere(const emitter *e, int i)
{
    return (e->stage->tensor > 1) && (e->s->split[i] == CT_PARALLEL_ONE) &&
           (e->s->part[i] != e->at.part);
}

/* ---- cuts */

/* Some reader in that stage gives the value a gradient. */
static bool gets_gradient(const emitter *e, int blob, int stage)
{
    for (int i = 0; i < e->net->n_layer; i++) {
        const ct_instance *in = e->net->pass->instance[i];

        if ((e->s->stage[i] != stage) || ct_layer_is_passage(e->net->layer[i])) continue;
        for (int b = 0; b < e->net->layer[i]->n_bottom; b++) {
            if (in->bottom[b]->wants_diff && (source_of(e, in->bottom[b]) == blob)) return true;
        }
    }
    return false;
}

/* Both are divided in the same way. */
static bool are_alike(const emitter *e, const ct_parallel_stage *a, const ct_parallel_stage *b)
{
    if ((a->tensor != b->tensor) || (a->n_replica != b->n_replica)) return false;
    for (int j = 0; j < a->n_replica; j++) {
        if (of_replica(e, a, j).count != of_replica(e, b, j).count) return false;
    }
    return true;
}

/* How a value goes from one stage to another: by samples, or whole to its like. */
static ct_status form_of_cut(const emitter *e, int blob, int to_stage, ct_sharding *form_p)
{
    const ct_parallel_stage *a = &e->p->stage[e->value[blob].stage], *b = &e->p->stage[to_stage];
    const ct_blob *what = e->net->pass->blob[blob];
    const ct_shape *shape = &what->data.shape;
    bool few_a, few_b;
    int replica = 0;

    if (e->value[blob].as.kind == CT_SHARDING_ONE)
        return ct_parallel_fail(e->p, b->param, &b->param->first,
                                "stage %d reads \"%s\", which one rank of each replica of stage %d "
                                "has: it cannot cross a cut",
                                to_stage, what->name, e->value[blob].stage);
    if ((shape->ndim <= e->net->batch_axis) || (shape->dim[e->net->batch_axis] != e->batch))
        return ct_parallel_fail(e->p, b->param, &b->param->first,
                                "stage %d reads \"%s\" of shape %s, which stage %d makes: only "
                                "what has a batch of samples can cross a cut",
                                to_stage, what->name, ct_shape_str(shape).text,
                                e->value[blob].stage);
    few_a = has_too_few(e, a, &replica);
    *form_p = batch_form;
    if (few_a && !are_alike(e, a, b)) return fail_samples(e, a, replica, what->name);
    few_b = has_too_few(e, b, &replica);
    if (few_b && !are_alike(e, a, b)) return fail_samples(e, b, replica, what->name);
    if (few_a || few_b) *form_p = whole_form;
    return CT_OK;
}

/* The samples that rank k of the stage's list has of a value in that form. */
static samples of_rank(const emitter *e, const ct_parallel_stage *g, ct_sharding form, int k)
{
    int replica = k / g->tensor, part = k % g->tensor;

    return (form.kind == CT_SHARDING_BATCH) ? of_part(e, g, replica, part)
                                            : of_replica(e, g, replica);
}

static samples common(samples a, samples b)
{
    int64_t first = (a.first > b.first) ? a.first : b.first;
    int64_t a_end = a.first + a.count, b_end = b.first + b.count;
    int64_t end = (a_end < b_end) ? a_end : b_end;

    return (samples){ first, (end > first) ? end - first : 0 };
}

typedef struct crossing {
    int blob, tag, to_stage;
    ct_sharding form;
    bool gradient;
} crossing;

/* What ranks `mine` and `other` of the two lists have in common. */
static samples exchanged(const emitter *e, const crossing *c, const ct_parallel_stage *g, int mine,
                         const ct_parallel_stage *h, int other)
{
    if ((c->form.kind != CT_SHARDING_BATCH) && (mine != other)) return (samples){ 0, 0 };
    return common(of_rank(e, g, c->form, mine), of_rank(e, h, c->form, other));
}

static int my_index(const emitter *e)
{
    return e->at.replica * e->stage->tensor + e->at.part;
}

static void add_send(emitter *e, const crossing *c, const char *what, int peer)
{
    char *name = keep_text(e, "%s/send%d_to_%d", e->net->pass->blob[c->blob]->name, c->tag, peer);
    Ct__LayerParameter *l;
    Ct__TransferParameter *t;

    if (name == NULL) return; /* e->failed */
    l = add_made(e, "Send", name, 1, &what, 0, NULL);
    t = add_transfer(e, l);
    if (t == NULL) return;
    t->has_peer = t->has_tag = t->has_gradient = true;
    t->peer = peer;
    t->tag = c->tag;
    t->gradient = c->gradient;
}

/* Cuts `from` into pieces of so many samples, one a reader. */
static void add_slice(emitter *e, const crossing *c, const char *from, int n, const int64_t *count,
                      const char **piece)
{
    Ct__SliceParameter *s = keep(e, sizeof(*s));
    uint32_t *point = keep(e, (size_t)n * sizeof(*point)), at = 0;
    Ct__LayerParameter *l;
    char *name;

    for (int i = 0; i < n; i++)
        piece[i] = keep_text(e, "%s/piece%d_%d", e->net->pass->blob[c->blob]->name, c->tag, i);
    name = keep_text(e, "%s/slice%d", e->net->pass->blob[c->blob]->name, c->tag);
    l = add_made(e, "Slice", name, 1, &from, n, piece);
    if ((l == NULL) || (s == NULL) || (point == NULL)) return;
    ct__slice_parameter__init(s);
    s->has_axis = true;
    s->axis = e->net->batch_axis;
    s->slice_point = point;
    s->n_slice_point = (size_t)n - 1;
    for (int i = 0; i + 1 < n; i++) point[i] = at += (uint32_t)count[i];
    l->slice_param = s;
}

static ct_status send_across(emitter *e, const crossing *c)
{
    const value *v = &e->value[c->blob];
    const ct_parallel_stage *h = &e->p->stage[c->to_stage];
    int n = 0, *peer = keep(e, (size_t)h->n_rank * sizeof(*peer));
    int64_t *count = keep(e, (size_t)h->n_rank * sizeof(*count));
    const char **piece = keep(e, (size_t)h->n_rank * sizeof(*piece)), *what;

    if ((peer == NULL) || (count == NULL) || (piece == NULL)) return CT_OK; /* e->failed */
    CT_TRY(bring(e, c->blob, v->maker, v->name, v->as, v->unit, c->form, false, &what));
    for (int k = 0; k < h->n_rank; k++) {
        samples both = exchanged(e, c, e->stage, my_index(e), h, k);

        if (both.count == 0) continue;
        peer[n] = h->rank[k];
        count[n++] = both.count;
    }
    piece[0] = what;
    if (n > 1) add_slice(e, c, what, n, count, piece);
    for (int i = 0; (i < n) && !e->failed; i++) add_send(e, c, piece[i], peer[i]);
    return CT_OK;
}

static void add_receive(emitter *e, const crossing *c, samples n, int peer, const char *name)
{
    const ct_blob *b = e->net->pass->blob[c->blob];
    Ct__LayerParameter *l = add_made(e, "Receive", NULL, 0, NULL, 1, &name);
    Ct__TransferParameter *t = add_transfer(e, l);
    Ct__BlobShape *s = keep(e, sizeof(*s));
    int ndim = b->data.shape.ndim;

    if ((t == NULL) || (s == NULL)) return;
    ct__blob_shape__init(s);
    s->n_dim = (size_t)ndim;
    s->dim = keep(e, (size_t)ndim * sizeof(*s->dim));
    for (int i = 0; (s->dim != NULL) && (i < ndim); i++) s->dim[i] = b->data.shape.dim[i];
    if (s->dim != NULL) s->dim[e->net->batch_axis] = n.count;
    t->shape = s;
    t->has_peer = t->has_tag = t->has_gradient = t->has_batch_local = t->has_batch_global =
        t->has_batch_first = t->has_batch_axis = t->has_ids = t->has_restarts_first = true;
    t->peer = peer;
    t->tag = c->tag;
    t->gradient = c->gradient;
    t->batch_local = n.count;
    t->batch_global = e->batch;
    t->batch_first = n.first;
    t->batch_axis = e->net->batch_axis;
    t->ids = b->ids;
    t->restarts_first = b->restarts_first;
}

static void add_concat(emitter *e, int n, const char **piece, const char *name)
{
    Ct__ConcatParameter *p = keep(e, sizeof(*p));
    Ct__LayerParameter *l = add_made(e, "Concat", NULL, n, piece, 1, &name);

    if ((l == NULL) || (p == NULL)) return;
    ct__concat_parameter__init(p);
    p->has_axis = true;
    p->axis = e->net->batch_axis;
    l->concat_param = p;
}

/* *name_p: what came. */
static void receive_across(emitter *e, const crossing *c, const char **name_p)
{
    const ct_parallel_stage *g = &e->p->stage[e->value[c->blob].stage];
    const char *blob = e->net->pass->blob[c->blob]->name;
    const char **piece = keep(e, (size_t)g->n_rank * sizeof(*piece));
    samples mine = of_rank(e, e->stage, c->form, my_index(e));
    int n = 0;

    *name_p = blob;
    if (piece == NULL) return;
    for (int k = 0; k < g->n_rank; k++) {
        samples both = exchanged(e, c, e->stage, my_index(e), g, k);

        if (both.count == 0) continue;
        piece[n] = (both.count == mine.count) ? blob : keep_text(e, "%s/from_%d", blob, g->rank[k]);
        add_receive(e, c, both, g->rank[k], piece[n]);
        n++;
    }
    if (n > 1) add_concat(e, n, piece, blob);
}

/* A value that stage `to` reads and another one made crosses, once. */
static ct_status cross(emitter *e, int blob, int to, const copy **copy_p)
{
    const value *v = &e->value[blob];
    copy c = { .value = blob, .maker = v->maker, .stage = to, .crosses = true };
    crossing x = { .blob = blob, .to_stage = to };

    *copy_p = find_copy(e, &c);
    if (*copy_p != NULL) return CT_OK;
    x.tag = e->n_cross++;
    CT_TRY(form_of_cut(e, blob, to, &x.form));
    x.gradient = (e->net->options.phase == CT_TRAIN) && gets_gradient(e, blob, to);
    c.as = x.form;
    if (v->stage == e->at.stage) CT_TRY(send_across(e, &x));
    if (to == e->at.stage) receive_across(e, &x, &c.name);
    add_copy(e, &c);
    *copy_p = find_copy(e, &c);
    return CT_OK;
}

/* ---- the layers of the net, one after the other */

/* What came from other ranks in plain order, in blocks of channels: where the whole net has it so.
 */
static void bring_in_blocks(emitter *e, int blob, ct_sharding as, bool partial, const char **name_p)
{
    const value *v = &e->value[blob];
    copy c = { .value = blob,
               .maker = v->maker,
               .stage = e->at.stage,
               .partial = partial,
               .blocked = true,
               .as = as };
    const copy *there = find_copy(e, &c);
    const char *bottom[] = { *name_p }, *top[1];

    if (there != NULL) {
        *name_p = there->name;
        return;
    }
    top[0] = keep_text(e, "%s/blocks%d", *name_p, e->n_copy);
    if (add_made(e, "ToBlocks", NULL, 1, bottom, 1, top) == NULL) return; /* e->failed */
    c.name = *name_p = top[0];
    add_copy(e, &c);
}

static ct_status fetch_plain(emitter *e, int i, int b, const char **name_p)
{
    int blob = source_of(e, e->net->pass->instance[i]->bottom[b]);
    const value *v = &e->value[blob];
    ct_sharding to = e->s->bottom[i][b];
    const copy *came = NULL;

    *name_p = NULL;
    if (v->stage == e->at.stage)
        return bring(e, blob, v->maker, v->name, v->as, v->unit, to, reads_for_parts(e, i, b),
                     name_p);
    CT_TRY(cross(e, blob, e->at.stage, &came));
    if (came == NULL) return CT_OK; /* e->failed */
    return bring(e, blob, v->maker, came->name, came->as, 1, to, reads_for_parts(e, i, b), name_p);
}

/* Bottom b of layer i, in this rank's stage, by its name there. */
static ct_status fetch(emitter *e, int i, int b, const char **name_p)
{
    const ct_blob *bottom = e->net->pass->instance[i]->bottom[b];
    int blob = source_of(e, bottom);
    bool here = (e->value[blob].stage == e->at.stage);

    CT_TRY(fetch_plain(e, i, b, name_p));
    if (e->failed || (*name_p == NULL) || (bottom->data.layout.block == 0)) return CT_OK;
    if (!here || (strcmp(*name_p, e->value[blob].name) != 0))
        bring_in_blocks(e, blob, e->s->bottom[i][b], reads_for_parts(e, i, b), name_p);
    return CT_OK;
}

/* Units of the channels that layer i makes: a Flatten keeps the places of a channel together. */
static int64_t unit_of(const emitter *e, int i)
{
    const ct_instance *in = e->net->pass->instance[i];
    const ct_shape *from;
    int64_t before;

    if ((e->s->top[i].kind != CT_SHARDING_CHANNEL) || (e->net->layer[i]->n_bottom == 0)) return 1;
    if (e->s->bottom[i][0].kind != CT_SHARDING_CHANNEL) return 1;
    from = &in->bottom[0]->data.shape;
    before = e->value[source_of(e, in->bottom[0])].unit;
    if (!ct_layer_is(e->net->layer[i], "Flatten")) return before;
    return before * ct_shape_count(from, e->s->top[i].axis + 1, -1);
}

/* Attention that reads the packed top of product i. */
static const ct_layer *packed_reader(const emitter *e, int i)
{
    int blob = blob_index(e->net, e->net->pass->instance[i]->top[0]);

    for (int k = i + 1; k < e->net->n_layer; k++) {
        const ct_instance *in = e->net->pass->instance[k];
        const ct_layer *l = e->net->layer[k];

        if ((l->n_bottom == 0) || (source_of(e, in->bottom[0]) != blob)) continue;
        if (ct_layer_is(l, "Attention")) return l;
        if (l->n_top > 0) blob = blob_index(e->net, in->top[0]);
    }
    return NULL;
}

/* Lengths of the pieces of an axis of n: of equal ones, or of queries, keys and values. */
static void fill_pieces(const emitter *e, int i, int64_t n, int n_piece, int64_t *piece)
{
    const ct_layer *l = (n_piece == 3) ? packed_reader(e, i) : NULL;
    const Ct__AttentionParameter *p = (l != NULL) ? l->param->attention_param : NULL;
    int64_t heads, kv, dim;

    for (int k = 0; k < n_piece; k++) piece[k] = n / n_piece;
    if (p == NULL) return;
    heads = (int64_t)p->num_heads;
    kv = (p->num_kv_heads > 0) ? (int64_t)p->num_kv_heads : heads;
    dim = n / (heads + 2 * kv);
    piece[0] = heads * dim;
    piece[1] = piece[2] = kv * dim;
}

/* The axis and the shape by which layer i is cut: the bottom's where that comes cut. */
static void fill_axis(emitter *e, int i, Ct__LayerPart *part)
{
    const ct_layer *l = e->net->layer[i];
    const ct_instance *in = e->net->pass->instance[i];
    ct_sharding cut = (l->n_bottom > 0) ? e->s->bottom[i][0] : whole_form;
    bool by_bottom = (cut.kind == CT_SHARDING_CHANNEL) || (cut.kind == CT_SHARDING_SEQUENCE);
    const ct_shape *shape;
    int n_piece, axis;

    if (part->split == CT__PARALLEL_LAYER_PARAMETER__SPLIT__HEADS) return;
    if (!by_bottom) cut = e->s->top[i];
    if ((cut.kind != CT_SHARDING_CHANNEL) && (cut.kind != CT_SHARDING_SEQUENCE)) return;
    shape = by_bottom ? &in->bottom[0]->data.shape : &in->top[0]->data.shape;
    axis = (cut.kind == CT_SHARDING_SEQUENCE) ? 1 : cut.axis;
    n_piece = (cut.pieces > 1) ? cut.pieces : 1;
    if (!by_bottom && (n_piece == 1)) return; /* one piece, the top's */
    part->piece = keep(e, (size_t)n_piece * sizeof(*part->piece));
    if (part->piece == NULL) return;
    part->n_piece = (size_t)n_piece;
    fill_pieces(e, i, shape->dim[axis], n_piece, part->piece);
    part->has_unit = part->has_axis = by_bottom;
    if (!by_bottom) return;
    part->unit = e->value[source_of(e, in->bottom[0])].unit;
    part->axis = axis;
}

/* Layer i adds up what ranks of the replica have by themselves, or parts of sums: each those that
 * it has. */
static bool is_sum_of_own(const emitter *e, int i)
{
    return (e->s->split[i] == CT_PARALLEL_INPUT) && ct_layer_is(e->net->layer[i], "Eltwise");
}

static void fill_part(emitter *e, int i, Ct__LayerParameter *l)
{
    Ct__LayerPart *part;
    ct_parallel_split split = e->s->split[i];

    if ((e->stage->tensor == 1) || (split == CT_PARALLEL_BATCH)) return;
    part = keep(e, sizeof(*part));
    if (part == NULL) return;
    ct__layer_part__init(part);
    part->has_split = part->has_index = part->has_count = true;
    part->count = 1;
    part->split = CT__PARALLEL_LAYER_PARAMETER__SPLIT__REPLICATE;
    l->part = part;
    if ((split == CT_PARALLEL_ONE) || is_sum_of_own(e, i)) return; /* whole, of the replica */
    part->index = e->at.part;
    part->count = e->stage->tensor;
    part->split = (Ct__ParallelLayerParameter__Split)split;
    if (split != CT_PARALLEL_REPLICATE) fill_axis(e, i, part);
}

static ct_status check_samples(const emitter *e, int i)
{
    const ct_parallel_stage *g = &e->p->stage[e->s->stage[i]];
    char what[160];
    int replica = 0;

    if ((e->s->split[i] != CT_PARALLEL_BATCH) || !has_too_few(e, g, &replica)) return CT_OK;
    snprintf(what, sizeof(what), "layer \"%.100s\" (%.40s)", e->net->layer[i]->name,
             e->net->layer[i]->ops->type);
    return fail_samples(e, g, replica, what);
}

/* The tops of layer i become values. */
static void make_values(emitter *e, int i, const char *const *bottom)
{
    const ct_layer *l = e->net->layer[i];
    const ct_instance *in = e->net->pass->instance[i];

    for (int t = 0; t < l->n_top; t++) {
        value *v = &e->value[blob_index(e->net, in->top[t])];
        bool in_place = (t < l->n_bottom) && (strcmp(l->param->top[t], l->param->bottom[t]) == 0);

        *v = (value){ .same = -1,
                      .maker = i,
                      .stage = e->s->stage[i],
                      .as = e->s->top[i],
                      .unit = unit_of(e, i) };
        if (bottom != NULL) v->name = in_place ? bottom[t] : l->param->top[t];
    }
}

/* What its bottoms are turned into is turned by all ranks of the replica. */
static ct_status pass_by(emitter *e, int i)
{
    const char *unused;

    for (int b = 0; b < e->net->layer[i]->n_bottom; b++) CT_TRY(fetch_plain(e, i, b, &unused));
    make_values(e, i, NULL);
    return CT_OK;
}

/* Bottoms that are not on this rank are left out; returns how many there are. */
static int keep_own(int n, const char **bottom)
{
    int own = 0;

    for (int b = 0; b < n; b++) {
        if (bottom[b] != NULL) bottom[own++] = bottom[b];
    }
    return own;
}

/* ---- sums of several values in parts: each rank adds up its own, and the ranks do so once */

/* Bottom b is such a term of layer i. */
static bool is_term(const emitter *e, int i, int b)
{
    const value *v = &e->value[source_of(e, e->net->pass->instance[i]->bottom[b])];

    return (v->as.kind == CT_SHARDING_PARTIAL) && (v->stage == e->at.stage);
}

/* Layer i has several of them, which join (sharding.h). */
static bool joins_terms(const emitter *e, int i)
{
    if (!ct_layer_is(e->net->layer[i], "Eltwise") || is_sum_of_own(e, i)) return false;
    for (int b = 0; (e->stage->tensor > 1) && (b < e->net->layer[i]->n_bottom); b++) {
        if (e->s->bottom[i][b].kind == CT_SHARDING_PARTIAL) return true;
    }
    return false;
}

/* A sum of n terms with their factors, where `like` has any. */
static void fill_sum(emitter *e, Ct__LayerParameter *l, const Ct__EltwiseParameter *like, int n,
                     const float *factor)
{
    Ct__EltwiseParameter *p = (like != NULL) ? keep(e, sizeof(*p)) : NULL;

    if (p == NULL) return;
    *p = *like;
    if (like->n_coeff > 0) {
        p->n_coeff = (size_t)n;
        p->coeff = keep(e, ((size_t)n + 1) * sizeof(*p->coeff));
        if (p->coeff != NULL) memcpy(p->coeff, factor, (size_t)n * sizeof(*factor));
    }
    l->eltwise_param = p;
}

typedef struct terms {
    int n;
    const char **name;
    float *factor;
} terms;

static terms keep_terms(emitter *e, int most)
{
    terms t = { .name = keep(e, ((size_t)most + 1) * sizeof(*t.name)),
                .factor = keep(e, ((size_t)most + 1) * sizeof(*t.factor)) };

    return t;
}

static void add_term(terms *t, const char *name, float factor)
{
    t->name[t->n] = name;
    t->factor[t->n++] = factor;
}

/* Turns what layer i would read into one sum of its parts, in the place of the first, and the
 * rest, which are left in `rest`. */
static ct_status join_terms(emitter *e, int i, terms *rest)
{
    const ct_instance *in = e->net->pass->instance[i];
    const Ct__EltwiseParameter *p = e->net->layer[i]->param->eltwise_param;
    int n = e->net->layer[i]->n_bottom, first = -1, at = 0;
    terms own = keep_terms(e, n);
    Ct__LayerParameter *l;
    const char *top[1];

    *rest = keep_terms(e, n);
    for (int b = 0; !e->failed && (b < n); b++) {
        float factor = ((p != NULL) && (p->n_coeff > 0)) ? p->coeff[b] : 1.0f;
        const char *name;

        if (is_term(e, i, b)) {
            add_term(&own, e->value[source_of(e, in->bottom[b])].name, factor);
            if (first >= 0) continue;
            first = b;
            at = rest->n;
            add_term(rest, NULL, 1.0f);
            continue;
        }
        CT_TRY(fetch(e, i, b, &name));
        add_term(rest, name, factor);
    }
    if (e->failed) return CT_OK;
    top[0] = keep_text(e, "%s/terms", e->net->layer[i]->name);
    l = add_made(e, "Eltwise", NULL, own.n, own.name, 1, top);
    if (l == NULL) return CT_OK; /* e->failed */
    fill_sum(e, l, p, own.n, own.factor);
    return make_form(e, source_of(e, in->bottom[first]), top[0],
                     (ct_sharding){ .kind = CT_SHARDING_PARTIAL }, 1, e->s->bottom[i][first], false,
                     &rest->name[at]);
}

/* The layer itself, with these bottoms. */
static void emit_as(emitter *e, int i, int n, const char **bottom, const terms *sum)
{
    const ct_layer *from = e->net->layer[i];
    const char **top = keep(e, ((size_t)from->n_top + 1) * sizeof(*top));
    Ct__LayerParameter *l = (top != NULL) ? add_layer(e, from->param) : NULL;

    if (l == NULL) return; /* e->failed */
    fill_part(e, i, l);
    if (sum != NULL) fill_sum(e, l, from->param->eltwise_param, sum->n, sum->factor);
    make_values(e, i, bottom);
    for (int t = 0; t < from->n_top; t++)
        top[t] = e->value[blob_index(e->net, e->net->pass->instance[i]->top[t])].name;
    l->name = (char *)(uintptr_t)from->name;
    l->n_bottom = (size_t)n;
    l->bottom = keep_names(e, n, bottom);
    l->n_top = (size_t)from->n_top;
    l->top = keep_names(e, from->n_top, top);
    l->n_include = l->n_exclude = 0;
    l->include = l->exclude = NULL;
}

static ct_status emit(emitter *e, int i)
{
    int n = e->net->layer[i]->n_bottom;
    bool joins = joins_terms(e, i);
    const char **bottom = keep(e, ((size_t)n + 1) * sizeof(*bottom));
    terms rest = { 0 };

    if (bottom == NULL) return CT_OK; /* e->failed */
    if (joins) {
        CT_TRY(join_terms(e, i, &rest));
        bottom = rest.name;
        n = rest.n;
    }
    for (int b = 0; !joins && (b < n); b++) CT_TRY(fetch(e, i, b, &bottom[b]));
    if (e->failed) return CT_OK;
    if (is_sum_of_own(e, i)) n = keep_own(n, bottom);
    if ((joins || is_sum_of_own(e, i)) && (n == 1)) { /* the only term is the sum */
        make_values(e, i, NULL);
        e->value[blob_index(e->net, e->net->pass->instance[i]->top[0])].name = bottom[0];
        return CT_OK;
    }
    emit_as(e, i, n, bottom, joins ? &rest : NULL);
    return CT_OK;
}

static ct_status walk(emitter *e, int i)
{
    const ct_layer *l = e->net->layer[i];
    const ct_instance *in = e->net->pass->instance[i];
    const copy *unused;

    if (ct_layer_is_passage(l)) {
        for (int t = 0; t < l->n_top; t++)
            e->value[blob_index(e->net, in->top[t])].same = source_of(e, in->bottom[0]);
        return CT_OK;
    }
    CT_TRY(check_samples(e, i));
    if (e->s->stage[i] == e->at.stage) return is_elsewhere(e, i) ? pass_by(e, i) : emit(e, i);
    for (int b = 0; b < l->n_bottom; b++) {
        int blob = source_of(e, in->bottom[b]);

        if (e->value[blob].stage != e->s->stage[i]) CT_TRY(cross(e, blob, e->s->stage[i], &unused));
    }
    make_values(e, i, NULL);
    return CT_OK;
}

/* ---- weights that two stages have */

/* The first layer of another stage than layer i's that has parameter `param`; -1: none. */
static int other_user(const emitter *e, int i, int param)
{
    for (int k = i + 1; k < e->net->n_layer; k++) {
        for (int w = 0; w < e->net->layer[k]->n_weight; w++) {
            if ((ct_net_param_of(e->net, k, w) == param) && (e->s->stage[k] != e->s->stage[i]))
                return k;
        }
    }
    return -1;
}

/* An Embed and a head: both whole and on samples of each rank's own, or both whole and alike, or
 * both with the same rows. */
static ct_status check_tied(const emitter *e, int i, int k)
{
    const ct_parallel_stage *a = &e->p->stage[e->s->stage[i]], *b = &e->p->stage[e->s->stage[k]];
    ct_parallel_split x = e->s->split[i], y = e->s->split[k];
    bool rows = (x == CT_PARALLEL_INPUT) && (y == CT_PARALLEL_OUTPUT);
    bool whole = (x == y) && ((x == CT_PARALLEL_BATCH) || (x == CT_PARALLEL_REPLICATE));

    if ((a->tensor == b->tensor) && (rows || whole)) return CT_OK;
    return ct_parallel_fail(
        e->p, b->param, NULL,
        "layers \"%.100s\" of stage %d (%s, tensor %d) and \"%.100s\" of stage %d (%s, tensor %d) "
        "share a weight: both stages need the same tensor, and the two layers INPUT and OUTPUT, or "
        "both REPLICATE or BATCH",
        e->net->layer[i]->name, e->s->stage[i], ct_split_name(x), a->tensor, e->net->layer[k]->name,
        e->s->stage[k], ct_split_name(y), b->tensor);
}

static ct_status find_tied(emitter *e)
{
    ct_rank_net *out = e->out;
    const char **key = keep(e, ((size_t)e->net->n_param + 1) * sizeof(*key));

    if (key == NULL) return CT_OK; /* e->failed */
    out->place.tied = key;
    for (int i = 0; i < e->net->n_layer; i++) {
        for (int w = 0; w < e->net->layer[i]->n_weight; w++) {
            int param = ct_net_param_of(e->net, i, w), k = other_user(e, i, param);

            if (k < 0) continue;
            CT_TRY(check_tied(e, i, k));
            out->tied_own_samples = (e->s->split[i] == CT_PARALLEL_BATCH);
            key[out->place.n_tied++] = e->net->param[param].key;
        }
    }
    return CT_OK;
}

/* ---- the whole of it */

static void fill_again(emitter *e)
{
    const ct_parallel_stage *g = e->stage;
    ct_rank_net *out = e->out;

    out->again = keep(e, ((size_t)g->n_again + 1) * sizeof(*out->again));
    for (int i = 0; (out->again != NULL) && (i < g->n_again); i++) {
        out->again[i] = (ct_net_segment){ e->p->layer[g->again[i].first].name,
                                          e->p->layer[g->again[i].last].name };
        out->n_again++;
    }
}

/* A Slice and a Send for each rank of every stage, or a Receive and a Concat, and two conversions
 * for every bottom, at most. */
static size_t most_layers(const emitter *e)
{
    size_t n = 0, each = 4;

    for (int s = 0; s < e->p->n_stage; s++) each += (size_t)e->p->stage[s].n_rank + 1;
    for (int i = 0; i < e->net->n_layer; i++) n += 1 + (size_t)e->net->layer[i]->n_bottom * each;
    return n + 1;
}

static ct_status make(emitter *e)
{
    Ct__NetParameter *param = keep(e, sizeof(*param));

    if (param == NULL) return CT_OK; /* e->failed */
    ct__net_parameter__init(param);
    param->name = (char *)(uintptr_t)e->net->name;
    param->layer = keep(e, most_layers(e) * sizeof(*param->layer));
    e->out->param = param;
    fill_again(e);
    CT_TRY(find_tied(e));
    for (int i = 0; (i < e->net->n_layer) && !e->failed; i++) CT_TRY(walk(e, i));
    return CT_OK;
}

ct_status ct_rank_net_make(const ct_parallel *p, const ct_sharded_net *s, int rank,
                           ct_rank_net *net_p)
{
    emitter e = { .p = p, .s = s, .net = s->net, .rank = rank, .out = net_p };
    ct_status status;

    *net_p = (ct_rank_net){ 0 };
    e.at = ct_parallel_place_of(p, rank);
    e.stage = &p->stage[e.at.stage];
    e.batch = s->net->batch_global;
    net_p->place = (ct_stage_place){ .replica = e.at.replica,
                                     .n_replica = e.stage->n_replica,
                                     .part = e.at.part,
                                     .n_part = e.stage->tensor,
                                     .share = e.stage->share };
    e.value = calloc((size_t)s->net->n_blob + 1, sizeof(*e.value));
    for (int i = 0; (e.value != NULL) && (i < s->net->n_blob); i++) e.value[i].same = -1;
    e.failed = (e.value == NULL);
    status = e.failed ? CT_OK : make(&e);
    free(e.value);
    free(e.copies);
    if ((status == CT_OK) && e.failed)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for the net of rank %d", rank);
    if (status != CT_OK) ct_rank_net_destroy(net_p);
    return status;
}

void ct_rank_net_destroy(ct_rank_net *net)
{
    for (block *b = net->impl, *next; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    *net = (ct_rank_net){ 0 };
}
