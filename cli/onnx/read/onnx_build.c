/* What operators are read with: inputs and attributes of the node under way, and the layers that it
 * becomes. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/onnx/read/onnx_read.h"
#include "framework/base/memory.h"

static const ct_onnx_step *step_of(const ct_onnx_reader *r)
{
    return &r->step[r->at];
}

/* The node's name, or of its first output. */
static const char *node_name(const ct_onnx_reader *r)
{
    const Onnx__NodeProto *n = step_of(r)->proto;

    if ((n->name != NULL) && (n->name[0] != '\0')) return n->name;
    return (n->n_output > 0) ? n->output[0] : "";
}

ct_status ct_onnx_refuse(const ct_onnx_reader *r, const char *fmt, ...)
{
    char why[400];
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    return CT_FAIL(CT_ERR_CONFIG, "%s: node \"%s\" (%s): %s", r->path, node_name(r), step_of(r)->op,
                   why);
}

/* ---- inputs and attributes */

int ct_onnx_n_in(const ct_onnx_reader *r)
{
    return (step_of(r)->n_in > 0) ? step_of(r)->n_in : (int)step_of(r)->proto->n_input;
}

int ct_onnx_n_out(const ct_onnx_reader *r)
{
    return (int)step_of(r)->proto->n_output;
}

ct_onnx_operand *ct_onnx_in(const ct_onnx_reader *r, int i)
{
    const ct_onnx_step *s = step_of(r);
    const char *name;

    if (i >= ct_onnx_n_in(r)) return NULL;
    name = (s->n_in > 0) ? s->in[i] : s->proto->input[i];
    return (name[0] != '\0') ? ct_onnx_value_find(r, name) : NULL;
}

const Onnx__AttributeProto *ct_onnx_attribute(const ct_onnx_reader *r, const char *name)
{
    const Onnx__NodeProto *n = step_of(r)->proto;

    for (size_t i = 0; (i < n->n_attribute) && (step_of(r)->n_in == 0); i++) {
        if ((n->attribute[i]->name != NULL) && (strcmp(n->attribute[i]->name, name) == 0))
            return n->attribute[i];
    }
    return NULL;
}

int64_t ct_onnx_attribute_int(const ct_onnx_reader *r, const char *name, int64_t otherwise)
{
    const Onnx__AttributeProto *a = ct_onnx_attribute(r, name);

    return (a != NULL) ? a->i : otherwise;
}

float ct_onnx_attribute_float(const ct_onnx_reader *r, const char *name, float otherwise)
{
    const Onnx__AttributeProto *a = ct_onnx_attribute(r, name);

    return (a != NULL) ? a->f : otherwise;
}

bool ct_onnx_attribute_is(const ct_onnx_reader *r, const char *name, const char *text,
                          bool otherwise)
{
    const Onnx__AttributeProto *a = ct_onnx_attribute(r, name);

    if (a == NULL) return otherwise;
    return (a->s.len == strlen(text)) && (memcmp(a->s.data, text, a->s.len) == 0);
}

ct_status ct_onnx_attribute_ints(const ct_onnx_reader *r, const char *name, int n, int64_t *v,
                                 int64_t otherwise)
{
    const Onnx__AttributeProto *a = ct_onnx_attribute(r, name);

    for (int i = 0; i < n; i++) v[i] = otherwise;
    if (a == NULL) return CT_OK;
    if (a->n_ints != (size_t)n)
        return ct_onnx_refuse(r, "attribute %s has %zu numbers, %d are taken", name, a->n_ints, n);
    for (int i = 0; i < n; i++) v[i] = a->ints[i];
    return CT_OK;
}

ct_status ct_onnx_list_of(const ct_onnx_reader *r, int input, const char *attribute, int *n_p,
                          int64_t *v)
{
    const ct_onnx_operand *in = (input >= 0) ? ct_onnx_in(r, input) : NULL;
    const Onnx__AttributeProto *a = (in == NULL) ? ct_onnx_attribute(r, attribute) : NULL;
    int64_t n = (in != NULL)  ? ct_shape_count(&in->shape, 0, -1)
                : (a != NULL) ? (int64_t)a->n_ints
                              : -1;

    if ((in != NULL) && (!in->constant || (in->i == NULL)))
        return ct_onnx_refuse(r,
                              "input %d (%s) is computed; whole numbers that are constant are "
                              "taken",
                              input, attribute);
    if (n > CT_MAX_DIM)
        return ct_onnx_refuse(r, "%s has %" PRId64 " numbers, at most %d are taken", attribute, n,
                              CT_MAX_DIM);
    for (int64_t i = 0; i < n; i++) v[i] = (in != NULL) ? in->i[i] : a->ints[i];
    *n_p = (int)n;
    return CT_OK;
}

ct_status ct_onnx_axis(const ct_onnx_reader *r, int64_t axis, int ndim, int *axis_p)
{
    if ((axis < -ndim) || (axis >= ndim))
        return ct_onnx_refuse(r, "axis %" PRId64 " of %d axes", axis, ndim);
    *axis_p = (int)((axis < 0) ? axis + ndim : axis);
    return CT_OK;
}

/* ---- names of layers and blobs: what a prototxt and files of weights can hold */

/* name, or name with a number where it is taken; what is not printable or ends a text becomes _. */
static char *free_name(ct_name_map *map, const char *name, const char *part)
{
    ct_text t = { 0 };
    size_t length = 0;
    int number = 0;

    while (*name == '/') name++;
    ct_text_add(&t, "%s%s%s", (*name != '\0') ? name : "x", (part != NULL) ? "/" : "",
                (part != NULL) ? part : "");
    for (size_t i = 0; !t.failed && (i < t.length); i++) {
        unsigned char c = (unsigned char)t.text[i];

        if ((c <= ' ') || (c > '~') || (c == '"') || (c == '\\') || (c == '\'')) t.text[i] = '_';
        if ((c == '/') && ((t.text[i + 1] == '/') || (t.text[i + 1] == '\0'))) t.text[i] = '_';
    }
    for (int k; !t.failed && ((k = ct_name_map_find(map, t.text, t.length)) >= 0);) {
        length = (length > 0) ? length : t.length;
        if (t.length == length) ct_name_map_put(map, t.text, k + 1); /* the next one of that name */
        number = (t.length == length) ? k + 2 : number + 1;
        t.length = length;
        ct_text_add(&t, "_%d", number);
    }
    if (t.failed || (ct_name_map_put(map, t.text, 0) != CT_OK)) {
        ct_text_destroy(&t);
        return NULL;
    }
    return t.text;
}

static ct_status no_memory(const ct_onnx_reader *r)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory for the net of %s", r->path);
}

/* Output k of the node, or a value within it, as a blob of its own. */
static ct_status make_value(ct_onnx_reader *r, int k, const char *part, const ct_shape *shape,
                            ct_onnx_operand **v_p)
{
    const Onnx__NodeProto *n = step_of(r)->proto;
    bool named = (part == NULL) && (k >= 0);
    ct_onnx_operand *v;

    CT_TRY(ct_onnx_shape_check(r, node_name(r), shape));
    CT_TRY(ct_onnx_value_add(r, named ? n->output[k] : NULL, &v));
    v->shape = *shape;
    v->blob = named ? free_name(&r->blobs, v->name, NULL)
                    : free_name(&r->blobs, node_name(r), (part != NULL) ? part : "rest");
    if (v->blob == NULL) return no_memory(r);
    *v_p = v;
    return CT_OK;
}

/* ---- layers */

static ct_status add_layer(ct_onnx_reader *r, const char *type, const char *part)
{
    ct_onnx_layer_made *l;

    if (r->n_layer == r->layer_room) {
        int room = (r->layer_room > 0) ? 2 * r->layer_room : 64;
        ct_onnx_layer_made *grown = realloc(r->layer, (size_t)room * sizeof(*grown));

        if (grown == NULL) return no_memory(r);
        r->layer = grown;
        r->layer_room = room;
    }
    l = &r->layer[r->n_layer++];
    *l = (ct_onnx_layer_made){ .type = type };
    l->name = free_name(&r->layers, node_name(r), part);
    return (l->name != NULL) ? CT_OK : no_memory(r);
}

ct_status ct_onnx_emit(ct_onnx_reader *r, const char *type, const char *part, int n_bottom,
                       ct_onnx_operand *const *bottom, const ct_shape *shape,
                       ct_onnx_operand **top_p, const char *fmt, ...)
{
    ct_onnx_operand *top = NULL;
    ct_onnx_layer_made *l;
    char fields[600];
    va_list args;

    va_start(args, fmt);
    vsnprintf(fields, sizeof(fields), fmt, args);
    va_end(args);
    CT_TRY(add_layer(r, type, part));
    CT_TRY(make_value(r, 0, part, shape, &top));
    l = &r->layer[r->n_layer - 1];
    for (int i = 0; i < n_bottom; i++) ct_text_add(&l->bottoms, " bottom: \"%s\"", bottom[i]->blob);
    ct_text_add(&l->tops, " top: \"%s\"", top->blob);
    ct_text_add(&l->fields, " %s", fields);
    if (top_p != NULL) *top_p = top;
    return CT_OK;
}

ct_status ct_onnx_emit_top(ct_onnx_reader *r, int k, const ct_shape *shape, ct_onnx_operand **top_p)
{
    ct_onnx_operand *top;

    CT_TRY(make_value(r, k, NULL, shape, &top));
    if (top_p != NULL) *top_p = top;
    ct_text_add(&r->layer[r->n_layer - 1].tops, " top: \"%s\"", top->blob);
    return CT_OK;
}

ct_status ct_onnx_give(ct_onnx_reader *r, int i, const ct_shape *shape, const float *data,
                       void *owned)
{
    const char *name = r->layer[r->n_layer - 1].name;
    ct_model_array *a;
    ct_status status = ct_model_add(r->weights, name, strlen(name), i, shape, &a);

    if (status != CT_OK) {
        ct_mem_release(owned);
        return status;
    }
    a->data = data;
    a->owned = owned;
    return CT_OK;
}

float *ct_onnx_numbers(const ct_onnx_reader *r, int64_t n)
{
    float *v = ct_mem_acquire((size_t)n * sizeof(*v));

    if (v == NULL) no_memory(r);
    return v;
}

ct_status ct_onnx_same(ct_onnx_reader *r, const ct_onnx_operand *v)
{
    ct_onnx_operand *top;

    CT_TRY(ct_onnx_value_add(r, step_of(r)->proto->output[0], &top));
    top->shape = v->shape;
    top->constant = v->constant;
    top->f = v->f;
    top->i = v->i;
    top->blob = (v->blob != NULL) ? strdup(v->blob) : NULL;
    return ((v->blob != NULL) && (top->blob == NULL)) ? no_memory(r) : CT_OK;
}

ct_status ct_onnx_constant_out(ct_onnx_reader *r, const ct_shape *shape, float *f, int64_t *i)
{
    ct_onnx_operand *top;
    ct_status status = ct_onnx_value_add(r, step_of(r)->proto->output[0], &top);

    if (status != CT_OK) {
        free(f);
        free(i);
        return status;
    }
    top->shape = *shape;
    top->constant = true;
    top->f = f;
    top->i = i;
    top->owned = (f != NULL) ? (void *)f : (void *)i;
    return CT_OK;
}

ct_status ct_onnx_as_blob(ct_onnx_reader *r, ct_onnx_operand *v, const char *part,
                          ct_onnx_operand **v_p)
{
    int64_t n = ct_shape_count(&v->shape, 0, -1);
    ct_text dims = { 0 };
    const float *data = v->f;
    float *owned = NULL;
    ct_status status;

    *v_p = v;
    if (!v->constant) return CT_OK;
    if (v->f == NULL) {
        owned = ct_onnx_numbers(r, n);
        if (owned == NULL) return CT_ERR_NOMEM;
        for (int64_t k = 0; k < n; k++) owned[k] = (float)v->i[k];
        data = owned;
    }
    for (int d = 0; d < v->shape.ndim; d++) ct_text_add(&dims, " dim: %" PRId64, v->shape.dim[d]);
    status = ct_onnx_emit(r, "Parameter", part, 0, NULL, &v->shape, v_p,
                          "parameter_param { shape {%s } }", (dims.text != NULL) ? dims.text : "");
    ct_text_destroy(&dims);
    if (status == CT_OK) return ct_onnx_give(r, 0, &v->shape, data, owned);
    ct_mem_release(owned);
    return status;
}

/* ---- other shapes */

/* Leading axes that stay are 0, so that they may have other sizes; one more is what is left. */
static void dims_of(const ct_shape *from, const ct_shape *to, ct_text *t)
{
    int same = 0;
    bool free_one;

    while ((same < from->ndim) && (same < to->ndim) && (from->dim[same] == to->dim[same])) same++;
    free_one = (same == 0) || (to->ndim == same + 1);
    for (int d = 0; d < to->ndim; d++)
        ct_text_add(t, " dim: %" PRId64,
                    (d < same)                  ? 0
                    : (free_one && (d == same)) ? -1
                                                : to->dim[d]);
}

ct_status ct_onnx_reshape_to(ct_onnx_reader *r, ct_onnx_operand *v, const ct_shape *shape,
                             const char *part, ct_onnx_operand **top_p)
{
    ct_text dims = { 0 };
    ct_status status;

    if (ct_shape_count(&v->shape, 0, -1) != ct_shape_count(shape, 0, -1))
        return ct_onnx_refuse(r, "the values of shape %s do not fill %s",
                              ct_shape_str(&v->shape).text, ct_shape_str(shape).text);
    if (ct_shape_equal(&v->shape, shape)) {
        if (part == NULL) return ct_onnx_same(r, v);
        *top_p = v;
        return CT_OK;
    }
    if (v->constant) {
        CT_TRY(ct_onnx_same(r, v));
        ct_onnx_value_find(r, step_of(r)->proto->output[0])->shape = *shape;
        return CT_OK;
    }
    dims_of(&v->shape, shape, &dims);
    status = ct_onnx_emit(r, "Reshape", part, 1, &v, shape, top_p, "reshape_param { shape {%s } }",
                          (dims.text != NULL) ? dims.text : "");
    ct_text_destroy(&dims);
    return status;
}

ct_status ct_onnx_spread_to(ct_onnx_reader *r, ct_onnx_operand *v, const ct_shape *shape,
                            const char *part, ct_onnx_operand **top_p)
{
    ct_shape s = { .ndim = shape->ndim };
    int more = shape->ndim - v->shape.ndim, last = -1;

    for (int d = 0; d < s.ndim; d++) s.dim[d] = (d < more) ? 1 : v->shape.dim[d - more];
    for (int d = 0; d < s.ndim; d++)
        if (s.dim[d] != shape->dim[d]) last = d;
    CT_TRY(ct_onnx_reshape_to(r, v, &s, (last >= 0) ? "axes" : part, &v));
    for (int d = 0; d <= last; d++) {
        if (s.dim[d] == shape->dim[d]) continue;
        s.dim[d] = shape->dim[d];
        CT_TRY(ct_onnx_emit(r, "Tile", (d == last) ? part : "spread", 1, &v, &s, &v,
                            "tile_param { axis: %d tiles: %" PRId64 " }", d, shape->dim[d]));
    }
    if (top_p != NULL) *top_p = v;
    return CT_OK;
}

/* One top of a Slice, and its blob, which is read by a Silence where nothing else does. */
static ct_status cut_top(ct_onnx_reader *r, int k, const char *part, const ct_shape *v, int axis,
                         int64_t size, ct_onnx_operand **top_p)
{
    ct_shape s = *v;
    ct_onnx_layer_made *l = &r->layer[r->n_layer - 1];

    s.dim[axis] = size;
    CT_TRY(make_value(r, k, part, &s, top_p));
    ct_text_add(&l->tops, " top: \"%s\"", (*top_p)->blob);
    return CT_OK;
}

ct_status ct_onnx_cut(ct_onnx_reader *r, ct_onnx_operand *v, int axis, int64_t from, int64_t to,
                      const char *part, ct_onnx_operand **top_p)
{
    int64_t size = v->shape.dim[axis];
    ct_onnx_operand *top, *unread[2] = { NULL };
    ct_onnx_layer_made *l;

    if ((from < 0) || (to > size) || (from >= to))
        return ct_onnx_refuse(r, "nothing is left of %s from %" PRId64 " to %" PRId64 " of axis %d",
                              ct_shape_str(&v->shape).text, from, to, axis);
    if ((from == 0) && (to == size)) {
        if (part == NULL) return ct_onnx_same(r, v);
        *top_p = v;
        return CT_OK;
    }
    CT_TRY(add_layer(r, "Slice", part));
    l = &r->layer[r->n_layer - 1];
    ct_text_add(&l->bottoms, " bottom: \"%s\"", v->blob);
    ct_text_add(&l->fields, " slice_param { axis: %d", axis);
    if (from > 0) ct_text_add(&l->fields, " slice_point: %" PRId64, from);
    if (to < size) ct_text_add(&l->fields, " slice_point: %" PRId64, to);
    ct_text_add(&l->fields, " }");
    if (from > 0) CT_TRY(cut_top(r, -1, "before", &v->shape, axis, from, &unread[0]));
    CT_TRY(cut_top(r, 0, part, &v->shape, axis, to - from, &top));
    if (to < size) CT_TRY(cut_top(r, -1, "behind", &v->shape, axis, size - to, &unread[1]));
    CT_TRY(add_layer(r, "Silence", "unread"));
    for (int i = 0; i < 2; i++) {
        if (unread[i] == NULL) continue;
        ct_text_add(&r->layer[r->n_layer - 1].bottoms, " bottom: \"%s\"", unread[i]->blob);
    }
    if (top_p != NULL) *top_p = top;
    return CT_OK;
}

ct_status ct_onnx_reverse(ct_onnx_reader *r, ct_onnx_operand *v, int axis, const char *part,
                          ct_onnx_operand **top_p)
{
    int64_t n = v->shape.dim[axis];
    ct_onnx_operand *top;
    ct_text bottoms = { 0 };
    ct_onnx_layer_made *l;
    ct_status status = CT_OK;

    if (n > CT_ONNX_MOST_REVERSED)
        return ct_onnx_refuse(r, "%" PRId64 " steps backwards; at most %d are taken", n,
                              CT_ONNX_MOST_REVERSED);
    if (n == 1) {
        *top_p = v;
        return CT_OK;
    }
    CT_TRY(add_layer(r, "Slice", "steps"));
    l = &r->layer[r->n_layer - 1];
    ct_text_add(&l->bottoms, " bottom: \"%s\"", v->blob);
    ct_text_add(&l->fields, " slice_param { axis: %d", axis);
    for (int64_t i = 1; i < n; i++) ct_text_add(&l->fields, " slice_point: %" PRId64, i);
    ct_text_add(&l->fields, " }");
    for (int64_t i = 0; (status == CT_OK) && (i < n); i++) {
        ct_text all = { 0 };

        status = cut_top(r, -1, "step", &v->shape, axis, 1, &top);
        if (status != CT_OK) break;
        ct_text_add(&all, " bottom: \"%s\"%s", top->blob,
                    (bottoms.text != NULL) ? bottoms.text : "");
        ct_text_destroy(&bottoms);
        bottoms = all;
    }
    if (status == CT_OK) status = add_layer(r, "Concat", part);
    if (status != CT_OK) {
        ct_text_destroy(&bottoms);
        return status;
    }
    l = &r->layer[r->n_layer - 1];
    l->bottoms = bottoms;
    ct_text_add(&l->fields, " concat_param { axis: %d }", axis);
    return cut_top(r, 0, part, &v->shape, axis, n, top_p);
}

ct_status ct_onnx_join(ct_onnx_reader *r, ct_onnx_operand *const v[2], int axis, int k,
                       const char *part, ct_onnx_operand **top_p)
{
    ct_onnx_operand *top;
    ct_onnx_layer_made *l;

    CT_TRY(add_layer(r, "Concat", part));
    l = &r->layer[r->n_layer - 1];
    ct_text_add(&l->bottoms, " bottom: \"%s\" bottom: \"%s\"", v[0]->blob, v[1]->blob);
    ct_text_add(&l->fields, " concat_param { axis: %d }", axis);
    return cut_top(r, k, part, &v[0]->shape, axis, v[0]->shape.dim[axis] + v[1]->shape.dim[axis],
                   (top_p != NULL) ? top_p : &top);
}

ct_status ct_onnx_broadcast(const ct_onnx_reader *r, const ct_shape *a, const ct_shape *b,
                            ct_shape *s_p)
{
    ct_shape s = { .ndim = (a->ndim > b->ndim) ? a->ndim : b->ndim };

    for (int d = 0; d < s.ndim; d++) {
        int i = d - (s.ndim - a->ndim), k = d - (s.ndim - b->ndim);
        int64_t x = (i < 0) ? 1 : a->dim[i], y = (k < 0) ? 1 : b->dim[k];

        if ((x != y) && (x != 1) && (y != 1))
            return ct_onnx_refuse(r, "shapes %s and %s do not go together", ct_shape_str(a).text,
                                  ct_shape_str(b).text);
        s.dim[d] = (x == 1) ? y : x;
    }
    *s_p = s;
    return CT_OK;
}
