/* Recurrent operators. An LSTM goes through one text a column, all from the first step on: its
 * layer is told by a table of 0 in the first step, or gets the states that the node names. One that
 * goes backward is a layer on the steps the other way round, whose steps are turned back. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/onnx/read/onnx_read.h"
#include "framework/base/memory.h"

typedef struct lstm_node {
    int64_t steps, columns, inputs, hidden;
    int directions;
    bool backward; /* the first of them */
    bool exposes;  /* states are given, or read behind the last step */
} lstm_node;

enum { W = 1, R = 2, B = 3, LENGTHS = 4, H0 = 5, C0 = 6, PEEPHOLES = 7 };

static bool is_named(const ct_onnx_reader *r, int k)
{
    return (k < ct_onnx_n_out(r)) && (r->step[r->at].proto->output[k][0] != '\0');
}

/* Whether output k is an output of the graph, or read by a node. */
static bool is_read(const ct_onnx_reader *r, int k)
{
    const Onnx__GraphProto *g = r->model->graph;
    const char *name = is_named(r, k) ? r->step[r->at].proto->output[k] : NULL;

    if (name == NULL) return false;
    for (size_t i = 0; i < g->n_output; i++)
        if ((g->output[i]->name != NULL) && (strcmp(g->output[i]->name, name) == 0)) return true;
    for (size_t i = 0; i < g->n_node; i++) {
        for (size_t j = 0; j < g->node[i]->n_input; j++)
            if (strcmp(g->node[i]->input[j], name) == 0) return true;
    }
    return false;
}

static bool is_zero(const ct_onnx_operand *v)
{
    int64_t n = ct_shape_count(&v->shape, 0, -1);

    for (int64_t i = 0; (v->f != NULL) && (i < n); i++)
        if (v->f[i] != 0.0f) return false;
    return v->f != NULL;
}

static bool has_shape(const ct_onnx_operand *v, int64_t a, int64_t b, int64_t c)
{
    int n = (c > 0) ? 3 : 2;
    const ct_shape s = { n, { a, b, c } };

    return ct_shape_equal(&v->shape, &s);
}

static ct_status check_weights(const ct_onnx_reader *r, const lstm_node *n)
{
    const ct_onnx_operand *w = ct_onnx_in(r, W), *h = ct_onnx_in(r, R), *b = ct_onnx_in(r, B);
    int64_t sums = 4 * n->hidden;

    if ((w->f == NULL) || !has_shape(w, n->directions, sums, n->inputs))
        return ct_onnx_refuse(
            r, "W is computed, or of shape %s for %" PRId64 " inputs and %" PRId64 " outputs",
            ct_shape_str(&w->shape).text, n->inputs, n->hidden);
    if ((h->f == NULL) || !has_shape(h, n->directions, sums, n->hidden))
        return ct_onnx_refuse(r, "R is computed, or of shape %s for %" PRId64 " outputs",
                              ct_shape_str(&h->shape).text, n->hidden);
    if ((b != NULL) && ((b->f == NULL) || !has_shape(b, n->directions, 2 * sums, 0)))
        return ct_onnx_refuse(r, "B is computed, or of shape %s for %" PRId64 " outputs",
                              ct_shape_str(&b->shape).text, n->hidden);
    return CT_OK;
}

static ct_status check_states(const ct_onnx_reader *r, lstm_node *n)
{
    for (int i = H0; i <= C0; i++) {
        const ct_onnx_operand *v = ct_onnx_in(r, i);

        if (v == NULL) continue;
        if (!has_shape(v, n->directions, n->columns, n->hidden))
            return ct_onnx_refuse(r, "input %d has shape %s; %d %" PRId64 " %" PRId64 " is wanted",
                                  i, ct_shape_str(&v->shape).text, n->directions, n->columns,
                                  n->hidden);
        n->exposes = n->exposes || !is_zero(v);
    }
    n->exposes = n->exposes || is_read(r, 1) || is_read(r, 2);
    return CT_OK;
}

static ct_status look_at(const ct_onnx_reader *r, lstm_node *n)
{
    const ct_onnx_operand *x = ct_onnx_in(r, 0), *w = ct_onnx_in(r, R);

    if ((x->shape.ndim != 3) || (w->shape.ndim != 3) || (w->shape.dim[2] > INT32_MAX / 8))
        return ct_onnx_refuse(r, "X of shape %s and R of shape %s; both have three axes",
                              ct_shape_str(&x->shape).text, ct_shape_str(&w->shape).text);
    *n = (lstm_node){ .steps = x->shape.dim[0],
                      .columns = x->shape.dim[1],
                      .inputs = x->shape.dim[2],
                      .hidden = w->shape.dim[2],
                      .directions =
                          ct_onnx_attribute_is(r, "direction", "bidirectional", false) ? 2 : 1,
                      .backward = ct_onnx_attribute_is(r, "direction", "reverse", false) };
    if ((n->directions == 1) && !n->backward &&
        !ct_onnx_attribute_is(r, "direction", "forward", true))
        return ct_onnx_refuse(r, "direction: forward, reverse and bidirectional are taken");
    if ((ct_onnx_attribute_int(r, "layout", 0) != 0) ||
        (ct_onnx_attribute_int(r, "input_forget", 0) != 0))
        return ct_onnx_refuse(r, "layout 0 and input_forget 0 are taken");
    if (ct_onnx_attribute(r, "clip") != NULL || (ct_onnx_attribute(r, "activations") != NULL))
        return ct_onnx_refuse(r, "a layer has sigmoid and tanh; no clip and activations are taken");
    if ((ct_onnx_in(r, LENGTHS) != NULL) || (ct_onnx_in(r, PEEPHOLES) != NULL))
        return ct_onnx_refuse(r, "a layer has neither lengths of sequences nor peepholes");
    if (ct_onnx_attribute_int(r, "hidden_size", n->hidden) != n->hidden)
        return ct_onnx_refuse(r, "hidden_size is another than that of R, %" PRId64, n->hidden);
    CT_TRY(check_weights(r, n));
    return check_states(r, n);
}

/* ---- the layer */

/* Gates of ONNX are i o f c, of the layer i f o g. */
static const int from_gate[4] = { 0, 2, 1, 3 };

/* Array i of the last layer: rows of the four gates; b: added to a, or NULL. */
static ct_status give_gates(ct_onnx_reader *r, int i, const ct_shape *shape, const float *a,
                            const float *b)
{
    int64_t block = ct_shape_count(shape, 0, -1) / 4;
    float *v = ct_onnx_numbers(r, 4 * block);

    if (v == NULL) return CT_ERR_NOMEM;
    for (int gate = 0; (a != NULL) && (gate < 4); gate++) {
        for (int64_t k = 0; k < block; k++) {
            int64_t at = from_gate[gate] * block + k;

            v[gate * block + k] = a[at] + ((b != NULL) ? b[at] : 0.0f);
        }
    }
    return ct_onnx_give(r, i, shape, v, v);
}

/* A Parameter of `first` in its first row, and `rest` behind. Its shape is of axes that the file
 * declares, with no values in it, so it has a bound. */
static ct_status table(ct_onnx_reader *r, const char *part, const ct_shape *s, float first,
                       float rest, ct_onnx_operand **v_p)
{
    const int64_t most = INT64_C(1) << 28;
    int64_t n = ct_shape_count(s, 0, -1), row = ct_shape_count(s, 1, -1);
    ct_status status;
    float *v;

    if (n > most)
        return ct_onnx_refuse(
            r, "its constant \"%s\" has shape %s; at most %" PRId64 " values are taken", part,
            ct_shape_str(s).text, most);
    v = ct_onnx_numbers(r, n);
    if (v == NULL) return CT_ERR_NOMEM;
    for (int64_t k = 0; k < n; k++) v[k] = (k < row) ? first : rest;
    status =
        (s->ndim == 2)
            ? ct_onnx_emit(r, "Parameter", part, 0, NULL, s, v_p,
                           "parameter_param { shape { dim: %" PRId64 " dim: %" PRId64 " } }",
                           s->dim[0], s->dim[1])
            : ct_onnx_emit(r, "Parameter", part, 0, NULL, s, v_p,
                           "parameter_param { shape { dim: 1 dim: %" PRId64 " dim: %" PRId64 " } }",
                           s->dim[1], s->dim[2]);
    if (status == CT_OK) return ct_onnx_give(r, 0, s, v, v);
    ct_mem_release(v);
    return status;
}

typedef struct direction { /* names of its parts, and what it makes */
    const char *x, *cont, *state[2], *layer, *steps;
    bool backward;
    int number; /* of its weights and states */
    ct_onnx_operand *top, *last[2];
} direction;

/* State i (0: h, 1: c) before the first step. */
static ct_status add_state(ct_onnx_reader *r, const lstm_node *n, const direction *d, int i,
                           ct_onnx_operand **v_p)
{
    const ct_shape state = { 3, { 1, n->columns, n->hidden } };
    ct_onnx_operand *v = ct_onnx_in(r, H0 + i);

    if (v == NULL) return table(r, d->state[i], &state, 0.0f, 0.0f, v_p);
    CT_TRY(ct_onnx_as_blob(r, v, d->state[i], v_p));
    if (n->directions == 1) return CT_OK;
    return ct_onnx_cut(r, *v_p, 0, d->number, d->number + 1, d->state[i], v_p);
}

/* What the layer reads: steps, where texts begin, and the states where it has them. */
static ct_status add_bottoms(ct_onnx_reader *r, const lstm_node *n, const direction *d,
                             ct_onnx_operand **bottom)
{
    const ct_shape steps = { 2, { n->steps, n->columns } };

    CT_TRY(ct_onnx_as_blob(r, ct_onnx_in(r, 0), "x", &bottom[0]));
    if (d->backward) CT_TRY(ct_onnx_reverse(r, bottom[0], 0, d->x, &bottom[0]));
    CT_TRY(table(r, d->cont, &steps, n->exposes ? 1.0f : 0.0f, 1.0f, &bottom[1]));
    for (int i = 0; n->exposes && (i < 2); i++) CT_TRY(add_state(r, n, d, i, &bottom[2 + i]));
    return CT_OK;
}

static ct_status give_weights(ct_onnx_reader *r, const lstm_node *n, int number)
{
    const ct_onnx_operand *b = ct_onnx_in(r, B);
    int64_t sums = 4 * n->hidden;
    const float *w = ct_onnx_in(r, W)->f + number * sums * n->inputs;
    const float *h = ct_onnx_in(r, R)->f + number * sums * n->hidden;
    const float *bias = (b != NULL) ? b->f + number * 2 * sums : NULL;

    CT_TRY(give_gates(r, 0, &(ct_shape){ 2, { sums, n->inputs } }, w, NULL));
    CT_TRY(give_gates(r, 1, &(ct_shape){ 1, { sums } }, bias, (b != NULL) ? bias + sums : NULL));
    return give_gates(r, 2, &(ct_shape){ 2, { sums, n->hidden } }, h, NULL);
}

/* The layer of one direction. What it makes is the node's own where nothing follows. */
static ct_status add_direction(ct_onnx_reader *r, const lstm_node *n, direction *d, bool wanted)
{
    const ct_shape state = { 3, { 1, n->columns, n->hidden } };
    bool one = n->directions == 1;
    ct_onnx_operand *bottom[4];

    CT_TRY(add_bottoms(r, n, d, bottom));
    CT_TRY(ct_onnx_emit(r, "LSTM", (wanted || !one) ? d->layer : NULL, n->exposes ? 4 : 2, bottom,
                        &(ct_shape){ 3, { n->steps, n->columns, n->hidden } }, &d->top,
                        "recurrent_param { num_output: %" PRId64 "%s }", n->hidden,
                        n->exposes ? " expose_hidden: true" : ""));
    for (int k = 1; n->exposes && (k < 3); k++)
        CT_TRY(ct_onnx_emit_top(r, (one && is_named(r, k)) ? k : -1, &state, &d->last[k - 1]));
    CT_TRY(give_weights(r, n, d->number));
    if (wanted && d->backward) CT_TRY(ct_onnx_reverse(r, d->top, 0, d->steps, &d->top));
    return CT_OK;
}

static ct_status lstm(ct_onnx_reader *r)
{
    direction d[2] = { { .x = "x_turned",
                         .cont = "cont",
                         .state = { "h", "c" },
                         .layer = "steps",
                         .steps = "turned_back" },
                       { .x = "x_turned",
                         .cont = "cont_back",
                         .state = { "h_back", "c_back" },
                         .layer = "steps_back",
                         .steps = "turned_back",
                         .backward = true,
                         .number = 1 } };
    bool wanted = is_read(r, 0);
    ct_onnx_operand *rows[2];
    lstm_node n = { 0 };
    ct_shape each;

    CT_TRY(look_at(r, &n));
    d[0].backward = n.backward;
    for (int i = 0; i < n.directions; i++) CT_TRY(add_direction(r, &n, &d[i], wanted));
    each = (ct_shape){ 4, { n.steps, 1, n.columns, n.hidden } };
    if (n.directions == 1) {
        if (!wanted) return CT_OK;
        return ct_onnx_reshape_to(r, d[0].top, &each, NULL, NULL);
    }
    for (int k = 1; n.exposes && (k < 3); k++) {
        rows[0] = d[0].last[k - 1];
        rows[1] = d[1].last[k - 1];
        CT_TRY(ct_onnx_join(r, rows, 0, is_named(r, k) ? k : -1, NULL, NULL));
    }
    if (!wanted) return CT_OK;
    for (int i = 0; i < 2; i++)
        CT_TRY(ct_onnx_reshape_to(r, d[i].top, &each, (i == 0) ? "forward" : "backward", &rows[i]));
    return ct_onnx_join(r, rows, 1, 0, NULL, NULL);
}

const ct_onnx_op ct_onnx_recurrent_ops[] = {
    { "LSTM", lstm, 3, 8, " activations clip direction hidden_size input_forget layout " },
    { NULL, NULL, 0, 0, NULL },
};
