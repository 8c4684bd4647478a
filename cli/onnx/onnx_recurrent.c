/* LSTM in ONNX's operators. Where cont is known to begin each text with the first step, or none, it
 * is one node over all steps. Any other cont forgets states between steps, which the operator
 * cannot: then each step is a node. States that go over from batch to batch are inputs and outputs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/onnx/onnx_impl.h"

typedef struct lstm_form {
    int64_t steps, columns, inputs, hidden;
    bool expose;
    ct_shape state;           /* 1 x columns x hidden */
    const char *w, *r, *bias; /* initializers, once written */
} lstm_form;

/* Gates of the layer are i f o g, of ONNX i o f c. */
static const int from_gate[4] = { 0, 2, 1, 3 };

/* Weight i with its gates in ONNX's order, as `name`; of a bias the other half is 0. The name that
 * it has got, or NULL. */
static const char *gates(ct_onnx *x, const ct_onnx_layer *l, int i, const char *name,
                         const ct_shape *shape)
{
    const float *from = ct_onnx_array(l, i)->data;
    int64_t n = ct_shape_count(&l->layer->weight[i].shape, 0, -1), block = n / 4;
    float *v = calloc((size_t)ct_shape_count(shape, 0, -1) + 1, sizeof(*v));

    if (v == NULL) {
        x->failed = true;
        return NULL;
    }
    for (int g = 0; g < 4; g++)
        memcpy(v + g * block, from + from_gate[g] * block, (size_t)block * sizeof(*v));
    ct_onnx_floats(x, l, name, shape, v);
    free(v);
    return (x->node != NULL) ? x->node->input[x->node->n_input - 1] : NULL;
}

static void weights(ct_onnx *x, const ct_onnx_layer *l, lstm_form *f)
{
    int64_t sums = 4 * f->hidden;

    if (f->w != NULL) {
        ct_onnx_input(x, f->w);
        ct_onnx_input(x, f->r);
        ct_onnx_input(x, f->bias);
        return;
    }
    f->w = gates(x, l, 0, "w", &(ct_shape){ 3, { 1, sums, f->inputs } });
    f->r = gates(x, l, 2, "r", &(ct_shape){ 3, { 1, sums, f->hidden } });
    f->bias = gates(x, l, 1, "bias", &(ct_shape){ 2, { 1, 2 * sums } });
}

/* ---- one node */

/* The numbers of cont, where a layer makes it that has them: NULL otherwise. */
static const float *known_cont(const ct_onnx_layer *l)
{
    const char *blob = l->layer->param->bottom[1];
    ct_onnx_layer made = *l;

    for (int i = l->index - 1; i >= 0; i--) {
        const ct_layer *k = l->net->layer[i];

        for (size_t t = 0; t < k->param->n_top; t++) {
            if (strcmp(k->param->top[t], blob) != 0) continue;
            if (strcmp(k->ops->type, "Split") == 0) break;
            if ((k->n_bottom > 0) || (k->n_weight != 1)) return NULL;
            made.index = i;
            made.layer = k;
            return ct_onnx_array(&made, 0)->data;
        }
    }
    return NULL;
}

/* Whether the steps hang together, the first with what was before, or without. */
static bool is_one_text(const ct_onnx_layer *l, const lstm_form *f)
{
    const float *cont = known_cont(l);

    for (int64_t i = 0; (cont != NULL) && (i < f->steps * f->columns); i++)
        if (cont[i] != (((i < f->columns) && !f->expose) ? 0.0f : 1.0f)) return false;
    return cont != NULL;
}

static void whole(ct_onnx *x, const ct_onnx_layer *l, lstm_form *f)
{
    ct_onnx_from(x, l, "LSTM", NULL);
    weights(x, l, f);
    if (f->expose) {
        ct_onnx_input(x, "");
        ct_onnx_bottom(x, l, 2);
        ct_onnx_bottom(x, l, 3);
    }
    ct_onnx_part(x, l, "steps", true);
    if (f->expose) {
        ct_onnx_top(x, l, 1);
        ct_onnx_top(x, l, 2);
    }
    ct_onnx_int(x, "hidden_size", f->hidden);
    ct_onnx_end(x);
    ct_onnx_reshape(x, l, -1, "steps", "shape", ct_onnx_top_shape(l), NULL);
}

/* ---- a node a step */

/* Bottom i at step t, as a part. */
static void step_of(ct_onnx *x, const ct_onnx_layer *l, int i, int64_t t, const char *part)
{
    const int64_t axis = 0, behind = t + 1;

    ct_onnx_begin(x, l, "Slice");
    ct_onnx_bottom(x, l, i);
    ct_onnx_list(x, l, "from", 1, &t);
    ct_onnx_list(x, l, "to", 1, &behind);
    ct_onnx_list(x, l, "axis", 1, &axis);
    ct_onnx_part(x, l, part, true);
    ct_onnx_end(x);
}

/* Part `kept` = the part `from`, or bottom i where there is none, in columns whose text goes on;
 * else 0. */
static void keep(ct_onnx *x, const ct_onnx_layer *l, int i, const char *from, const char *kept)
{
    ct_onnx_begin(x, l, "Mul");
    if (from != NULL)
        ct_onnx_part(x, l, from, false);
    else
        ct_onnx_bottom(x, l, i);
    ct_onnx_part(x, l, "goes_on", false);
    ct_onnx_part(x, l, kept, true);
    ct_onnx_end(x);
}

enum { NAME = 32 };

/* h behind step t: before the first one it comes from outside, "h". */
static void name_h(int64_t t, char *name)
{
    snprintf(name, NAME, "h%.0lld", (long long)t + 1);
}

static void add_step(ct_onnx *x, const ct_onnx_layer *l, lstm_form *f, int64_t t)
{
    bool last = t == f->steps - 1, given = (t == 0) && f->expose;
    char before[NAME], h[NAME];

    name_h(t - 1, before);
    name_h(t, h);
    step_of(x, l, 0, t, "x");
    step_of(x, l, 1, t, "cont");
    ct_onnx_reshape(x, l, -1, "cont", "column", &(ct_shape){ 3, { 1, f->columns, 1 } }, "goes_on");
    keep(x, l, 2, given ? NULL : before, "h_kept");
    keep(x, l, 3, given ? NULL : "c", "c_kept");
    ct_onnx_from(x, l, "LSTM", "x");
    weights(x, l, f);
    ct_onnx_input(x, "");
    ct_onnx_part(x, l, "h_kept", false);
    ct_onnx_part(x, l, "c_kept", false);
    ct_onnx_part(x, l, "y", true);
    ct_onnx_part(x, l, h, true);
    if (last && f->expose)
        ct_onnx_top(x, l, 2);
    else
        ct_onnx_part(x, l, last ? "c_last" : "c", true);
    ct_onnx_int(x, "hidden_size", f->hidden);
    ct_onnx_end(x);
}

static void step_by_step(ct_onnx *x, const ct_onnx_layer *l, lstm_form *f)
{
    char h[NAME] = "";

    if (!f->expose) {
        ct_onnx_graph_input(x, l, "h", &f->state);
        ct_onnx_graph_input(x, l, "c", &f->state);
    }
    for (int64_t t = 0; t < f->steps; t++) add_step(x, l, f, t);
    ct_onnx_begin(x, l, "Concat");
    for (int64_t t = 0; t < f->steps; t++) {
        name_h(t, h);
        ct_onnx_part(x, l, h, false);
    }
    ct_onnx_to(x, l, NULL);
    ct_onnx_int(x, "axis", 0);
    ct_onnx_end(x);
    ct_onnx_from(x, l, "Identity", h);
    if (f->expose)
        ct_onnx_top(x, l, 1);
    else
        ct_onnx_part(x, l, "h_last", true);
    ct_onnx_end(x);
    if (f->expose) return;
    ct_onnx_graph_output(x, l, "h_last", &f->state);
    ct_onnx_graph_output(x, l, "c_last", &f->state);
}

static ct_status lstm(ct_onnx *x, const ct_onnx_layer *l)
{
    const ct_shape *b = ct_onnx_bottom_shape(l, 0), *t = ct_onnx_top_shape(l);
    lstm_form f = { .steps = t->dim[0], .columns = t->dim[1], .hidden = t->dim[2] };

    if ((l->layer->n_weight != 3) || (b->ndim != 3))
        return ct_onnx_no_form(l, "a static input, or an x of more than three axes");
    f.inputs = b->dim[2];
    f.expose = l->layer->n_top == 3;
    f.state = (ct_shape){ 3, { 1, f.columns, f.hidden } };
    if (is_one_text(l, &f))
        whole(x, l, &f);
    else
        step_by_step(x, l, &f);
    return CT_OK;
}

const ct_onnx_form ct_onnx_recurrent[] = {
    { "LSTM", lstm },
    { NULL, NULL },
};
