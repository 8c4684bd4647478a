/* Attention, as exporters write it: two products, a Softmax between them, and the heads as axes.
 *
 * Nodes become layers once, so that all shapes are known; then this looks back from each product
 * for queries, keys and values as they were before their heads became axes: a view of a value of
 * sequences x tokens x channels, whose strides say where heads and dimensions lie. What is found
 * becomes an Attention layer when nodes become layers again. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/onnx/read/onnx_read.h"

/* A mask adds this, or less, to what is hidden: exp() of it is 0. */
static const float hides = -9999.0f;

typedef struct search {
    ct_onnx_reader *r;
    ct_onnx_links l;
} search;

enum { MOST_PARTS = 24 };

/* Numbers that lie one behind the other, by other axes. An axis is made of parts, so that two axes
 * may become one whose strides no single number says. */
typedef struct view {
    int ndim, n[CT_MAX_DIM]; /* parts of each axis, in the order of axes */
    int n_part;
    int64_t dim[MOST_PARTS], stride[MOST_PARTS];
} view;

enum { MOST_STEPS = 12 }; /* nodes between a product and what it is of */

static const Onnx__NodeProto *node(const search *s, int k)
{
    return s->r->step[k].proto;
}

static bool is_op(const search *s, int k, const char *op)
{
    return (k >= 0) && (node(s, k)->op_type != NULL) && (strcmp(node(s, k)->op_type, op) == 0);
}

static bool is_any(const search *s, int k, const char *ops) /* with spaces around each */
{
    char word[40];

    if ((k < 0) || (node(s, k)->op_type == NULL)) return false;
    snprintf(word, sizeof(word), " %s ", node(s, k)->op_type);
    return strstr(ops, word) != NULL;
}

/* Input i of node k by its name; NULL: there is none. */
static const char *input(const search *s, int k, size_t i)
{
    return ((k >= 0) && (i < node(s, k)->n_input)) ? node(s, k)->input[i] : NULL;
}

static int maker(const search *s, const char *name)
{
    return ct_onnx_maker(&s->l, name);
}

static const ct_onnx_operand *value(const search *s, const char *name)
{
    return (name != NULL) ? ct_onnx_value_find(s->r, name) : NULL;
}

static int64_t attribute(const search *s, int k, const char *name, int64_t otherwise)
{
    for (size_t i = 0; i < node(s, k)->n_attribute; i++) {
        const Onnx__AttributeProto *a = node(s, k)->attribute[i];

        if ((a->name != NULL) && (strcmp(a->name, name) == 0)) return a->i;
    }
    return otherwise;
}

/* ---- views */

static view view_of(const ct_shape *s)
{
    view v = { .ndim = s->ndim, .n_part = s->ndim };

    for (int d = 0; d < s->ndim; d++) {
        v.n[d] = 1;
        v.dim[d] = s->dim[d];
        v.stride[d] = ct_shape_count(s, d + 1, -1);
    }
    return v;
}

static int first_part(const view *v, int axis)
{
    int at = 0;

    for (int d = 0; d < axis; d++) at += v->n[d];
    return at;
}

/* Axis i of the new one is axis order[i]. */
static bool view_permute(view *v, size_t n, const int64_t *order)
{
    view from = *v;
    int at = 0;

    if (n != (size_t)v->ndim) return false;
    for (int d = 0; d < v->ndim; d++) {
        if ((order[d] < 0) || (order[d] >= v->ndim)) return false;
        v->n[d] = from.n[order[d]];
        for (int i = 0; (i < v->n[d]) && (at < MOST_PARTS); i++, at++) {
            v->dim[at] = from.dim[first_part(&from, (int)order[d]) + i];
            v->stride[at] = from.stride[first_part(&from, (int)order[d]) + i];
        }
    }
    return at == v->n_part;
}

static bool view_transpose(view *v, const Onnx__NodeProto *n)
{
    for (size_t i = 0; i < n->n_attribute; i++) {
        const Onnx__AttributeProto *a = n->attribute[i];

        if ((a->name != NULL) && (strcmp(a->name, "perm") == 0))
            return view_permute(v, a->n_ints, a->ints);
    }
    return false;
}

static void put_part(view *v, int64_t dim, int64_t stride)
{
    if (v->n_part < MOST_PARTS) {
        v->dim[v->n_part] = dim;
        v->stride[v->n_part] = stride;
    }
    v->n_part++;
}

/* The same numbers in another shape: parts go to new axes, and are cut where an axis ends within.
 */
static bool view_reshape(view *v, const ct_shape *to)
{
    view made = { .ndim = to->ndim };
    int part = 0;
    int64_t left = (v->n_part > 0) ? v->dim[0] : 1; /* of that part */

    for (int d = 0; d < to->ndim; d++) {
        int64_t want = to->dim[d];

        while (want > 1) {
            int64_t take, behind;

            while ((left == 1) && (++part < v->n_part)) left = v->dim[part];
            if (part >= v->n_part) return false;
            take = (left < want) ? left : want;
            if ((take < 1) || (left % take != 0) || (want % take != 0)) return false;
            behind = left / take;
            put_part(&made, take, v->stride[part] * behind);
            made.n[d]++;
            want /= take;
            left = behind;
        }
    }
    for (; part < v->n_part; left = (++part < v->n_part) ? v->dim[part] : 1)
        if (left != 1) return false;
    if (made.n_part > MOST_PARTS) return false;
    *v = made;
    return true;
}

/* An axis as one part; false: it is several. */
static bool view_axis(const view *v, int axis, int64_t *dim_p, int64_t *stride_p)
{
    int64_t dim = 1, stride = 1;

    for (int i = first_part(v, axis) + v->n[axis] - 1; i >= first_part(v, axis); i--) {
        if (v->dim[i] == 1) continue;
        if ((dim > 1) && (v->stride[i] != dim * stride)) return false;
        if (dim == 1) stride = v->stride[i];
        dim *= v->dim[i];
    }
    *dim_p = dim;
    *stride_p = stride;
    return true;
}

/* v behind node k, which moves numbers or multiplies them by one number. */
static bool view_behind(const search *s, int k, view *v)
{
    const ct_onnx_operand *made = value(s, node(s, k)->output[0]);

    if (made == NULL) return false;
    return is_op(s, k, "Transpose") ? view_transpose(v, node(s, k)) : view_reshape(v, &made->shape);
}

static bool is_plain(const view *v)
{
    int64_t n = 1;

    for (int i = v->n_part - 1; i >= 0; i--) {
        if ((v->dim[i] > 1) && (v->stride[i] != n)) return false;
        n *= v->dim[i];
    }
    return true;
}

/* ---- operands */

/* Of a product or quotient with one number: the other input's name, and what it multiplies by. */
static const char *scaled(const search *s, int k, float *by_p)
{
    bool over = is_op(s, k, "Div");

    if (!over && !is_op(s, k, "Mul")) return NULL;
    for (size_t i = over ? 1 : 0; (node(s, k)->n_input == 2) && (i < 2); i++) {
        const ct_onnx_operand *c = value(s, input(s, k, i));

        if ((c == NULL) || (c->f == NULL) || (ct_shape_count(&c->shape, 0, -1) != 1)) continue;
        if (over && (c->f[0] == 0.0f)) return NULL;
        *by_p *= over ? 1.0f / c->f[0] : c->f[0];
        return input(s, k, 1 - i);
    }
    return NULL;
}

typedef struct operand {
    const char *name; /* as it was before its heads became axes */
    int64_t n, tokens, channels, heads, dim;
} operand;

/* Whether v, of a value of n sequences, is sequences x heads … x tokens x dimensions; with `turned`
 * the last two the other way round. Fills all of o but its name. */
static bool has_heads(const view *v, int64_t n, bool turned, operand *o)
{
    int row = v->ndim - (turned ? 1 : 2), column = v->ndim - (turned ? 2 : 1), i;
    int64_t all = 1, at = 1, of_row, of_column;

    if ((v->ndim < 3) || (n < 1)) return false;
    for (i = 0; i < v->n_part; i++) all *= v->dim[i];
    *o = (operand){ .n = n };
    if (!view_axis(v, row, &o->tokens, &of_row) || !view_axis(v, column, &o->dim, &of_column))
        return false;
    if ((all < 1) || (all % (n * o->tokens * o->dim) != 0)) return false;
    o->channels = all / (n * o->tokens);
    o->heads = o->channels / o->dim;
    if (((o->dim > 1) && (of_column != 1)) || ((o->tokens > 1) && (of_row != o->channels)))
        return false;
    i = first_part(v, v->ndim - 2) - 1;
    for (; (i >= 0) && (at < o->heads); i--) { /* heads, the innermost first */
        if ((v->dim[i] > 1) && (v->stride[i] != at * o->dim)) return false;
        at *= v->dim[i];
    }
    if (at != o->heads) return false;
    for (at = 1; i >= 0; i--) { /* then sequences */
        if ((v->dim[i] > 1) && (v->stride[i] != at * o->tokens * o->channels)) return false;
        at *= v->dim[i];
    }
    return at == n;
}

/* What `name` was before its heads became axes: of values of three axes the first that was made,
 * since sequences and heads may have become one axis for a while. */
static bool find_operand(const search *s, const char *name, bool turned, operand *o, float *scale)
{
    int chain[MOST_STEPS], n = 0;
    const char *at = name;
    float by = *scale;

    *o = (operand){ .name = NULL };
    for (;;) {
        const ct_onnx_operand *from = value(s, at);
        int k = maker(s, at);
        operand here = { .name = NULL };
        const char *other;
        bool good = true;
        view v;

        if ((from == NULL) || from->constant || (from->shape.ndim < 1)) break;
        v = view_of(&from->shape);
        for (int i = n - 1; good && (i >= 0); i--) good = view_behind(s, chain[i], &v);
        if (good && ((from->shape.ndim == 3) || (o->name == NULL)) &&
            has_heads(&v, from->shape.dim[0], turned, &here)) {
            *o = here;
            o->name = at;
            *scale = by;
        }
        other = scaled(s, k, &by);
        if ((other == NULL) && is_any(s, k, " Transpose Reshape Squeeze Unsqueeze Identity "))
            other = input(s, k, 0);
        if ((other == NULL) || (n == MOST_STEPS)) break;
        chain[n++] = k;
        at = other;
    }
    return o->name != NULL;
}

/* ---- what is hidden */

typedef struct table { /* a constant that broadcasts to queries x keys */
    const ct_onnx_operand *v;
    bool adds, hides_true; /* else it chooses: what is hidden where it is true, or false */
} table;

static bool sees(const table *t, int64_t query, int64_t key)
{
    const ct_shape *s = &t->v->shape;
    int64_t columns = s->dim[s->ndim - 1], rows = (s->ndim > 1) ? s->dim[s->ndim - 2] : 1;
    int64_t at = ((rows > 1) ? query * columns : 0) + ((columns > 1) ? key : 0);

    if (t->adds) return t->v->f[at] == 0.0f;
    return (t->v->i[at] != 0) != t->hides_true;
}

/* Whether the table hides nothing, or what comes behind a query, or beyond a window before it. */
static bool is_causal(const table *t, int64_t queries, int64_t keys, ct_onnx_attends *out)
{
    const ct_shape *s = &t->v->shape;
    int64_t first = 0, shift = keys - queries, window, n = ct_shape_count(s, 0, -1);
    bool all = true;

    if ((s->ndim < 1) || ((t->adds ? (const void *)t->v->f : (const void *)t->v->i) == NULL))
        return false;
    for (int d = 0; d < s->ndim; d++) {
        int64_t most = (d == s->ndim - 1) ? keys : (d == s->ndim - 2) ? queries : 1;

        if ((s->dim[d] != 1) && (s->dim[d] != most)) return false;
    }
    for (int64_t k = 0; t->adds && (k < n); k++)
        if ((t->v->f[k] != 0.0f) && !(t->v->f[k] <= hides)) return false;
    for (int64_t k = 0; all && (k < n); k++)
        all = t->adds ? (t->v->f[k] == 0.0f) : ((t->v->i[k] != 0) != t->hides_true);
    if (all) return true;
    if ((shift < 0) || (n / queries != keys)) return false;
    while ((first < keys) && !sees(t, queries - 1, first)) first++;
    window = keys - first;
    for (int64_t i = 0; i < queries; i++) {
        for (int64_t j = 0; j < keys; j++)
            if (sees(t, i, j) != ((j <= i + shift) && (j > i + shift - window))) return false;
    }
    out->causal = true;
    out->window = (window < keys) ? window : 0;
    return true;
}

/* The value of sequences x keys whose equal numbers see each other, as Cortado writes it; NULL. */
static const char *segments(const search *s, int k, int64_t n, int64_t keys)
{
    int a = maker(s, input(s, k, 0)), b = maker(s, input(s, k, 1));
    const char *own = input(s, a, 0), *all = input(s, b, 0);
    const ct_onnx_operand *v = value(s, all);

    if (!is_op(s, k, "Equal") || !is_op(s, a, "Reshape") || !is_op(s, b, "Reshape")) return NULL;
    if (is_op(s, maker(s, own), "Slice")) own = input(s, maker(s, own), 0);
    if ((v == NULL) || v->constant || (own == NULL) || (strcmp(own, all) != 0)) return NULL;
    if ((v->shape.ndim != 2) || (v->shape.dim[0] != n) || (v->shape.dim[1] != keys)) return NULL;
    v = value(s, input(s, k, 0));
    return ((v != NULL) && (v->shape.ndim >= 2) && (v->shape.dim[v->shape.ndim - 1] == 1)) ? all
                                                                                           : NULL;
}

/* One of two: a number that hides. */
static bool is_hidden(const ct_onnx_operand *v)
{
    return (v != NULL) && (v->f != NULL) && (ct_shape_count(&v->shape, 0, -1) == 1) &&
           (v->f[0] <= hides);
}

typedef struct scores { /* on the way from the Softmax back to the first product */
    table mask[2];
    int n_mask, where; /* where: the node that chooses by segments; -1: none */
    float scale;
    int product;
} scores;

/* The next node back; -1: it is none of attention's. */
static int mask_behind(const search *s, int k, scores *c)
{
    const ct_onnx_operand *a = value(s, input(s, k, 0)), *b = value(s, input(s, k, 1));

    if (is_op(s, k, "Add") && (c->n_mask < 2)) {
        if ((a == NULL) || (b == NULL) || (a->constant == b->constant)) return -1;
        c->mask[c->n_mask++] = (table){ .v = a->constant ? a : b, .adds = true };
        return maker(s, input(s, k, a->constant ? 1 : 0));
    }
    if (!is_op(s, k, "Where") || (node(s, k)->n_input != 3) || (a == NULL)) return -1;
    if (a->constant && (c->n_mask < 2)) {
        bool first = is_hidden(b);

        if (!first && !is_hidden(value(s, input(s, k, 2)))) return -1;
        c->mask[c->n_mask++] = (table){ .v = a, .hides_true = first };
        return maker(s, input(s, k, first ? 2 : 1));
    }
    if ((c->where >= 0) || !is_hidden(value(s, input(s, k, 2)))) return -1;
    c->where = maker(s, input(s, k, 0));
    return maker(s, input(s, k, 1));
}

static bool find_scores(const search *s, int softmax, scores *c)
{
    int k = maker(s, input(s, softmax, 0));
    int64_t axis = attribute(s, softmax, "axis", (s->r->opset < 13) ? 1 : -1);
    const ct_onnx_operand *v = value(s, input(s, softmax, 0));

    *c = (scores){ .where = -1, .scale = 1.0f };
    if ((v == NULL) || ((axis != -1) && (axis != v->shape.ndim - 1))) return false;
    for (int step = 0; (step < MOST_STEPS) && (k >= 0); step++) {
        const char *other = scaled(s, k, &c->scale);

        if (is_op(s, k, "MatMul")) {
            c->product = k;
            return true;
        }
        k = (other != NULL) ? maker(s, other) : mask_behind(s, k, c);
    }
    return false;
}

/* ---- all of it */

/* The Softmax that makes a value: nothing but Dropout, and what makes numbers of none, between. */
static int softmax_of(const search *s, const char *name)
{
    int k = maker(s, name);

    for (int step = 0; (step < 3) && (k >= 0) && !is_op(s, k, "Softmax"); step++) {
        int nan_of = is_op(s, k, "Where") ? maker(s, input(s, k, 0)) : -1;

        if (is_op(s, nan_of, "IsNaN"))
            k = maker(s, input(s, k, 2));
        else
            k = is_any(s, k, " Dropout Identity ") ? maker(s, input(s, k, 0)) : -1;
    }
    return is_op(s, k, "Softmax") ? k : -1;
}

/* Whether keys of fewer heads are given to groups of queries' heads that lie side by side. */
static bool shares_heads(const search *s, const char *of_q, const char *of_k)
{
    const ct_shape *q = &value(s, of_q)->shape, *k = &value(s, of_k)->shape;
    bool own = false;

    for (int d = q->ndim - 3; d >= 0; d--) {
        int i = d - (q->ndim - k->ndim);
        int64_t there = (i >= 0) ? k->dim[i] : 1;

        if ((there != q->dim[d]) && (own || (there != 1))) return false;
        own = own || (there == q->dim[d] && there > 1);
    }
    return q->ndim >= k->ndim;
}

/* q, k and v as the three parts of one value, which a node cuts up. */
static void pack(const search *s, const operand *o, ct_onnx_attends *out)
{
    int k = maker(s, o[0].name);
    const ct_onnx_operand *v = is_op(s, k, "Split") ? value(s, input(s, k, 0)) : NULL;
    int64_t all = o[0].channels + o[1].channels + o[2].channels;

    if ((v == NULL) || (node(s, k)->n_output != 3) || (v->shape.ndim != 3) ||
        (v->shape.dim[2] != all) || (o[0].tokens != o[1].tokens))
        return;
    for (int i = 0; i < 3; i++)
        if (strcmp(node(s, k)->output[i], o[i].name) != 0) return;
    out->in[0] = input(s, k, 0);
    out->in[1] = out->in[3];
    out->packed = true;
    out->n_in = (out->in[1] != NULL) ? 2 : 1;
}

/* The last node behind the product whose value lies as the layer's output does. */
static int end_of(const search *s, int k, const operand *q)
{
    const ct_onnx_operand *made = value(s, node(s, k)->output[0]);
    const ct_shape rows = { 4, { q->n, q->tokens, q->heads, q->dim } };
    static const int64_t to_heads[4] = { 0, 2, 1, 3 };
    view heads = view_of(&rows);
    int end = -1;

    if (!view_permute(&heads, 4, to_heads) || (made == NULL) || !view_reshape(&heads, &made->shape))
        return -1;
    for (int step = 0; step < 4; step++) {
        if (is_plain(&heads)) end = k;
        if ((s->l.n_reader[k] != 1) || (node(s, k)->n_output != 1)) break;
        k = s->l.reader[k];
        if (!is_any(s, k, " Transpose Reshape ") || !view_behind(s, k, &heads)) break;
    }
    return end;
}

/* Whether product k is the second of attention; then *out says all. */
static bool find_at(const search *s, int k, ct_onnx_attends *out)
{
    int softmax = softmax_of(s, input(s, k, 0));
    const char *name[3];
    float scale;
    operand o[3];
    scores c;

    if ((softmax < 0) || !find_scores(s, softmax, &c)) return false;
    scale = c.scale;
    name[0] = input(s, c.product, 0);
    name[1] = input(s, c.product, 1);
    name[2] = input(s, k, 1);
    if (!find_operand(s, name[0], false, &o[0], &scale) ||
        !find_operand(s, name[1], true, &o[1], &scale))
        return false;
    c.scale = 1.0f;
    if (!find_operand(s, name[2], false, &o[2], &c.scale) || (c.scale != 1.0f)) return false;
    if ((o[0].n != o[1].n) || (o[1].n != o[2].n) || (o[1].tokens != o[2].tokens) ||
        (o[0].dim != o[1].dim) || (o[1].dim != o[2].dim) || (o[1].heads != o[2].heads) ||
        (o[0].heads % o[1].heads != 0) || !shares_heads(s, name[0], name[1]) ||
        !shares_heads(s, name[0], name[2]) || (o[0].heads > INT32_MAX) || !(scale > 0.0f))
        return false;
    *out = (ct_onnx_attends){ .n_in = 3, .scale = scale, .heads = o[0].heads };
    out->kv_heads = o[1].heads;
    for (int i = 0; i < 3; i++) {
        out->in[i] = o[i].name;
        out->shape[i] = (ct_shape){ 3, { o[i].n, o[i].tokens, o[i].channels } };
    }
    for (int i = 0; i < c.n_mask; i++) {
        if (out->causal || !is_causal(&c.mask[i], o[0].tokens, o[1].tokens, out)) return false;
    }
    if (c.where >= 0) {
        out->in[3] = segments(s, c.where, o[1].n, o[1].tokens);
        if ((out->in[3] == NULL) || (!out->causal && (o[0].tokens != o[1].tokens))) return false;
        out->n_in = 4;
    }
    out->end = end_of(s, k, &o[0]);
    if (out->end < 0) return false;
    out->made = value(s, node(s, out->end)->output[0])->shape;
    pack(s, o, out);
    return true;
}

ct_status ct_onnx_find_attention(ct_onnx_reader *r, ct_onnx_attends **found_p, int *n_p)
{
    search s = { .r = r };
    ct_onnx_attends *found;
    int n = 0;
    size_t products = 0;
    ct_status status;

    for (int k = 0; k < r->n_step; k++) products += is_op(&s, k, "MatMul");
    found = calloc(products + 1, sizeof(*found));
    status = (found != NULL) ? ct_onnx_link(r, &s.l)
                             : CT_FAIL(CT_ERR_NOMEM, "no memory for %zu products", products);
    for (int k = 0; (status == CT_OK) && (k < r->n_step); k++) {
        if (is_op(&s, k, "MatMul") && find_at(&s, k, &found[n])) n++;
    }
    ct_onnx_links_destroy(&s.l);
    if ((status != CT_OK) || (n == 0)) {
        free(found);
        found = NULL;
    }
    *found_p = found;
    *n_p = n;
    return status;
}

static ct_status put_attention(ct_onnx_reader *r, const ct_onnx_links *l)
{
    (void)l;
    for (int i = 0; i < r->n_attends; i++) {
        const ct_onnx_attends *a = &r->attends[i];
        ct_onnx_step *step = &r->step[a->end];

        step->op = "attention";
        step->attends = a;
        step->n_in = a->n_in;
        memcpy(step->in, a->in, sizeof(step->in));
    }
    return CT_OK;
}

ct_status ct_onnx_take_attention(ct_onnx_reader *r)
{
    return ct_onnx_take(r, put_attention);
}

/* ---- the layer */

static ct_status attention(ct_onnx_reader *r)
{
    static const char *const part[4] = { "q", "k", "v", "segments" };
    const ct_onnx_attends *a = r->step[r->at].attends;
    ct_onnx_operand *bottom[4], *top;
    ct_shape made;
    char kv[48] = "", window[40] = "";

    if (a == NULL) return ct_onnx_refuse(r, "this operator has no layers here");
    made = a->made;
    for (int i = 0; i < a->n_in; i++) {
        bottom[i] = ct_onnx_in(r, i);
        if (a->packed || (i == 3)) continue;
        CT_TRY(ct_onnx_reshape_to(r, bottom[i], &a->shape[i], part[i], &bottom[i]));
    }
    if (a->kv_heads != a->heads) snprintf(kv, sizeof(kv), " num_kv_heads: %" PRId64, a->kv_heads);
    if (a->window > 0) snprintf(window, sizeof(window), " window: %" PRId64, a->window);
    CT_TRY(ct_onnx_emit(r, "Attention", ct_shape_equal(&made, &a->shape[0]) ? NULL : "rows",
                        a->n_in, bottom, &a->shape[0], &top,
                        "attention_param { num_heads: %" PRId64 "%s%s%s scale: %.9g }", a->heads,
                        kv, a->causal ? " causal: true" : "", window, (double)a->scale));
    if (ct_shape_equal(&made, &a->shape[0])) return CT_OK;
    return ct_onnx_reshape_to(r, top, &made, NULL, NULL);
}

const ct_onnx_op ct_onnx_attention_ops[] = {
    { "attention", attention, 1, 4, " " },
    { NULL, NULL, 0, 0, NULL },
};
