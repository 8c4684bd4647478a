/* Attention in ONNX's operators: what layers/engine/attention/attention.h defines, of the phase
 * TEST. Heads become axes: sequences x groups x heads of a group x tokens x dimensions, so that
 * MatMul gives each group's keys and values to all of its heads. */
#include <math.h>
#include <stdlib.h>

#include "cli/onnx/onnx_impl.h"

typedef struct attention_form {
    const Ct__AttentionParameter *p;
    int64_t n, tq, tk;          /* sequences; queries and keys of each */
    int64_t groups, heads, dim; /* heads: of a group                   */
    int64_t rope_dim, shift;    /* shift: position of the first query  */
    bool packed;
} attention_form;

/* The least float: exp(this - the row's largest) is 0. A row that sees nothing would have infinite
 * values alone, and Softmax no number. */
static const float hidden = -0x1.fffffep127f;

static attention_form form_of(const ct_onnx_layer *l)
{
    const Ct__AttentionParameter *p = l->layer->param->attention_param;
    const ct_shape *q = ct_onnx_bottom_shape(l, 0);
    attention_form f = {
        .p = p, .n = q->dim[0], .tq = q->dim[1], .packed = l->layer->n_bottom <= 2
    };

    f.groups = (p->num_kv_heads > 0) ? p->num_kv_heads : p->num_heads;
    f.heads = p->num_heads / f.groups;
    f.dim = ct_onnx_top_shape(l)->dim[2] / p->num_heads;
    f.tk = f.packed ? f.tq : ct_onnx_bottom_shape(l, 1)->dim[1];
    f.shift = p->causal ? f.tk - f.tq : 0;
    if (p->rope != NULL) f.rope_dim = (p->rope->dim > 0) ? p->rope->dim : f.dim;
    return f;
}

/* ---- rotary positions */

/* Cosines, or sines, of tokens x 1 x 1 x rope_dim / 2, which broadcasts over what is turned. */
static void add_angles(ct_onnx *x, const ct_onnx_layer *l, const attention_form *f, int64_t tokens,
                       int64_t first, bool sines)
{
    int64_t half = f->rope_dim / 2;
    float *v = malloc((size_t)(tokens * half + 1) * sizeof(*v));

    if (v == NULL) {
        x->failed = true;
        return;
    }
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t i = 0; i < half; i++) {
            double speed = pow((double)f->p->rope->base_, -2.0 * (double)i / (double)f->rope_dim);
            double angle = (double)(first + t) * speed;

            v[t * half + i] = (float)(sines ? sin(angle) : cos(angle));
        }
    }
    ct_onnx_floats(x, l, sines ? "sines" : "cosines", &(ct_shape){ 4, { tokens, 1, 1, half } }, v);
    free(v);
}

typedef struct turned { /* names of the parts of one operand */
    const char *rows, *first, *second, *a, *b, *c, *d, *left, *right; /* halves */
    const char *each, *other, *pairs;                                 /* pairs, one by one */
    const char *front, *rest, *whole; /* what turns, what does not, both */
} turned;

static const turned of_q = { "q",           "q_first",      "q_second",
                             "q_first_cos", "q_second_sin", "q_second_cos",
                             "q_first_sin", "q_left",       "q_right",
                             "q_each",      "q_other",      "q_pairs",
                             "q_front",     "q_rest",       "q_turned" };
static const turned of_k = { "k",           "k_first",      "k_second",
                             "k_first_cos", "k_second_sin", "k_second_cos",
                             "k_first_sin", "k_left",       "k_right",
                             "k_each",      "k_other",      "k_pairs",
                             "k_front",     "k_rest",       "k_turned" };

/* part = dimensions from, from + step, … below to. */
static void cut(ct_onnx *x, const ct_onnx_layer *l, const char *from_part, int64_t from, int64_t to,
                int64_t step, const char *part)
{
    const int64_t axis = 4;

    ct_onnx_from(x, l, "Slice", from_part);
    ct_onnx_list(x, l, "from", 1, &from);
    ct_onnx_list(x, l, "to", 1, &to);
    ct_onnx_list(x, l, "axis", 1, &axis);
    ct_onnx_list(x, l, "step", 1, &step);
    ct_onnx_to(x, l, part);
    ct_onnx_end(x);
}

static void by_angles(ct_onnx *x, const ct_onnx_layer *l, const attention_form *f, int64_t tokens,
                      int64_t first, const char *input, bool sines, const char *part)
{
    ct_onnx_from(x, l, "Mul", input);
    add_angles(x, l, f, tokens, first, sines);
    ct_onnx_to(x, l, part);
    ct_onnx_end(x);
}

/* The two turned halves back into one: side by side, or one by one. */
static void join(ct_onnx *x, const ct_onnx_layer *l, const attention_form *f, int64_t tokens,
                 int64_t heads, const turned *t, const char *part)
{
    ct_shape thin = { 6, { f->n, tokens, f->groups, heads, f->rope_dim / 2, 1 } };
    ct_shape whole = { 5, { f->n, tokens, f->groups, heads, f->rope_dim } };

    if (!f->p->rope->interleaved) {
        ct_onnx_concat(x, l, t->left, t->right, 4, part);
        return;
    }
    ct_onnx_reshape(x, l, -1, t->left, "thin", &thin, t->each);
    ct_onnx_reshape(x, l, -1, t->right, "thin", &thin, t->other);
    ct_onnx_concat(x, l, t->each, t->other, 5, t->pairs);
    ct_onnx_reshape(x, l, -1, t->pairs, "joined", &whole, part);
}

/* part t->whole = part t->rows, sequences x tokens x groups x heads x dimensions, turned by the
 * positions first, first + 1, … */
static void turn(ct_onnx *x, const ct_onnx_layer *l, const attention_form *f, int64_t tokens,
                 int64_t first, int64_t heads, const turned *t)
{
    int64_t r = f->rope_dim, half = r / 2;
    bool pairs = f->p->rope->interleaved, rest = r < f->dim;

    cut(x, l, t->rows, 0, pairs ? r : half, pairs ? 2 : 1, t->first);
    cut(x, l, t->rows, pairs ? 1 : half, r, pairs ? 2 : 1, t->second);
    by_angles(x, l, f, tokens, first, t->first, false, t->a);
    by_angles(x, l, f, tokens, first, t->second, true, t->b);
    ct_onnx_by_part(x, l, "Sub", t->a, t->b, t->left);
    by_angles(x, l, f, tokens, first, t->second, false, t->c);
    by_angles(x, l, f, tokens, first, t->first, true, t->d);
    ct_onnx_by_part(x, l, "Add", t->c, t->d, t->right);
    join(x, l, f, tokens, heads, t, rest ? t->front : t->whole);
    if (!rest) return;
    cut(x, l, t->rows, r, f->dim, 1, t->rest);
    ct_onnx_concat(x, l, t->front, t->rest, 4, t->whole);
}

/* ---- operands */

/* Parts "flat_q", "flat_k", "flat_v", where one bottom holds them all. */
static void split(ct_onnx *x, const ct_onnx_layer *l, const attention_form *f)
{
    int64_t kv = f->groups * f->dim, size[3] = { kv * f->heads, kv, kv };

    if (!f->packed) return;
    ct_onnx_from(x, l, "Split", NULL);
    ct_onnx_list(x, l, "sizes", 3, size);
    ct_onnx_part(x, l, "flat_q", true);
    ct_onnx_part(x, l, "flat_k", true);
    ct_onnx_part(x, l, "flat_v", true);
    ct_onnx_int(x, "axis", 2);
    ct_onnx_end(x);
}

/* Operand i (q, k, v) with its heads as axes, and turned, as part `name`: sequences x groups x
 * heads x tokens x dimensions; of k with the last two the other way round. */
static void operand(ct_onnx *x, const ct_onnx_layer *l, const attention_form *f, int i,
                    const char *name)
{
    static const char *const flat[3] = { "flat_q", "flat_k", "flat_v" };
    static const char *const rows[3] = { "q", "k", "v" };
    static const int64_t plain[5] = { 0, 2, 3, 1, 4 }, back[5] = { 0, 2, 3, 4, 1 };
    int64_t tokens = (i == 0) ? f->tq : f->tk, heads = (i == 0) ? f->heads : 1;
    ct_shape shape = { 5, { f->n, tokens, f->groups, heads, f->dim } };
    bool turns = (f->rope_dim > 0) && (i < 2);

    ct_onnx_reshape(x, l, f->packed ? -1 : i, flat[i], "heads", &shape, rows[i]);
    if (turns) turn(x, l, f, tokens, (i == 0) ? f->shift : 0, heads, (i == 0) ? &of_q : &of_k);
    ct_onnx_from(x, l, "Transpose", !turns ? rows[i] : (i == 0) ? of_q.whole : of_k.whole);
    ct_onnx_to(x, l, name);
    ct_onnx_ints(x, "perm", 5, (i == 1) ? back : plain);
    ct_onnx_end(x);
}

/* ---- what a query sees */

/* part `to` = part `from` + queries x keys of 0 and, where a key is hidden, the least float. */
static void hide(ct_onnx *x, const ct_onnx_layer *l, const attention_form *f, const char *from,
                 const char *to)
{
    float *v = calloc((size_t)(f->tq * f->tk + 1), sizeof(*v));

    if (v == NULL) {
        x->failed = true;
        return;
    }
    for (int64_t i = 0; i < f->tq; i++) {
        int64_t at = i + f->shift;

        for (int64_t j = 0; j < f->tk; j++)
            if ((j > at) || ((f->p->window > 0) && (j <= at - (int64_t)f->p->window)))
                v[i * f->tk + j] = hidden;
    }
    ct_onnx_from(x, l, "Add", from);
    ct_onnx_floats(x, l, "visible", &(ct_shape){ 2, { f->tq, f->tk } }, v);
    ct_onnx_to(x, l, to);
    ct_onnx_end(x);
    free(v);
}

/* part `to` = part `from` where query and key have the same segment number, else the least float.
 */
static void hide_segments(ct_onnx *x, const ct_onnx_layer *l, const attention_form *f,
                          const char *from, const char *to)
{
    int bottom = l->layer->n_bottom - 1;
    const int64_t axis = 1, first = f->tk - f->tq;
    ct_shape queries = { 5, { f->n, 1, 1, f->tq, 1 } }, keys = { 5, { f->n, 1, 1, 1, f->tk } };

    ct_onnx_begin(x, l, "Slice");
    ct_onnx_bottom(x, l, bottom);
    ct_onnx_list(x, l, "from", 1, &first);
    ct_onnx_list(x, l, "to", 1, &f->tk);
    ct_onnx_list(x, l, "axis", 1, &axis);
    ct_onnx_part(x, l, "segments", true);
    ct_onnx_end(x);
    ct_onnx_reshape(x, l, -1, "segments", "queries", &queries, "segments_q");
    ct_onnx_reshape(x, l, bottom, NULL, "keys", &keys, "segments_k");
    ct_onnx_by_part(x, l, "Equal", "segments_q", "segments_k", "own");
    ct_onnx_from(x, l, "Where", "own");
    ct_onnx_part(x, l, from, false);
    ct_onnx_number(x, l, "hidden", hidden);
    ct_onnx_to(x, l, to);
    ct_onnx_end(x);
}

static ct_status attention(ct_onnx *x, const ct_onnx_layer *l)
{
    attention_form f = form_of(l);
    float scale = (f.p->scale != 0.0f) ? f.p->scale : (float)(1.0 / sqrt((double)f.dim));
    const char *scores = "scores";
    static const int64_t back[5] = { 0, 3, 1, 2, 4 };

    split(x, l, &f);
    operand(x, l, &f, 0, "queries");
    operand(x, l, &f, 1, "keys");
    operand(x, l, &f, 2, "values");
    ct_onnx_by_part(x, l, "MatMul", "queries", "keys", "products");
    ct_onnx_by_number(x, l, "Mul", "products", "scale", scale, "scores");
    if (f.p->causal) {
        hide(x, l, &f, scores, "seen");
        scores = "seen";
    }
    if (l->layer->n_bottom % 2 == 0) {
        hide_segments(x, l, &f, scores, "seen_own");
        scores = "seen_own";
    }
    ct_onnx_from(x, l, "Softmax", scores);
    ct_onnx_to(x, l, "weights");
    ct_onnx_int(x, "axis", -1);
    ct_onnx_end(x);
    ct_onnx_by_part(x, l, "MatMul", "weights", "values", "means");
    ct_onnx_from(x, l, "Transpose", "means");
    ct_onnx_to(x, l, "tokens");
    ct_onnx_ints(x, "perm", 5, back);
    ct_onnx_end(x);
    ct_onnx_reshape(x, l, -1, "tokens", "shape", ct_onnx_top_shape(l), NULL);
    return CT_OK;
}

const ct_onnx_form ct_onnx_attention[] = {
    { "Attention", attention },
    { NULL, NULL },
};
