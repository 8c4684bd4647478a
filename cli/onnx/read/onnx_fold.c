/* Nodes of constants alone, computed: what exporters leave of shapes, masks and tables of
 * positions. Whole numbers stay whole; sums are in double. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/onnx/read/onnx_read.h"

static const char *op_of(const ct_onnx_reader *r)
{
    return r->step[r->at].op;
}

static bool is(const ct_onnx_reader *r, const char *op)
{
    return strcmp(op_of(r), op) == 0;
}

typedef struct numbers { /* of the output, one of the two */
    ct_shape shape;
    int64_t n;
    float *f;
    int64_t *i;
} numbers;

enum { MOST = 1 << 26 }; /* numbers of a computed constant */

static ct_status begin(const ct_onnx_reader *r, const ct_shape *s, bool floats, numbers *out)
{
    CT_TRY(ct_onnx_shape_check(r, "a constant that is computed", s));
    out->shape = *s;
    out->n = ct_shape_count(s, 0, -1);
    if (out->n > MOST)
        return ct_onnx_refuse(r, "a constant of shape %s; at most %d numbers are computed",
                              ct_shape_str(s).text, MOST);
    if (floats)
        out->f = calloc((size_t)out->n + 1, sizeof(out->f[0]));
    else
        out->i = calloc((size_t)out->n + 1, sizeof(out->i[0]));
    if ((out->f == NULL) && (out->i == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " numbers", out->n);
    return CT_OK;
}

static double get(const ct_onnx_operand *v, int64_t k)
{
    return (v->f != NULL) ? (double)v->f[k] : (double)v->i[k];
}

static void put(numbers *out, int64_t k, double v)
{
    if (out->f != NULL)
        out->f[k] = (float)v;
    else
        out->i[k] = (v >= 0x1p62) ? INT64_MAX : (v <= -0x1p62) ? INT64_MIN : (int64_t)v;
}

/* Number from of v as number k: both whole, or as they are. */
static void copy(numbers *out, int64_t k, const ct_onnx_operand *v, int64_t from)
{
    if ((out->i != NULL) && (v->i != NULL))
        out->i[k] = v->i[from];
    else
        put(out, k, get(v, from));
}

/* Where number k of shape s lies in v, which broadcasts to it. */
static int64_t place(const ct_shape *s, int64_t k, const ct_shape *v)
{
    int more = s->ndim - v->ndim;
    int64_t at = 0, stride = 1;

    for (int d = s->ndim - 1; d >= more; d--) {
        int64_t i = k % s->dim[d];

        k /= s->dim[d];
        at += (v->dim[d - more] == 1) ? 0 : i * stride;
        stride *= v->dim[d - more];
    }
    return at;
}

/* ---- element by element */

static double whole_quotient(double a, double b)
{
    return (b == 0.0) ? 0.0 : trunc(a / b);
}

static bool two(const char *op, bool whole, double a, double b, double *v_p)
{
    if (strcmp(op, "Add") == 0)
        *v_p = a + b;
    else if (strcmp(op, "Sub") == 0)
        *v_p = a - b;
    else if (strcmp(op, "Mul") == 0)
        *v_p = a * b;
    else if (strcmp(op, "Div") == 0)
        *v_p = whole ? whole_quotient(a, b) : a / b;
    else if (strcmp(op, "Pow") == 0)
        *v_p = pow(a, b);
    else if (strcmp(op, "Max") == 0)
        *v_p = (a > b) ? a : b;
    else if (strcmp(op, "Min") == 0)
        *v_p = (a < b) ? a : b;
    else if (strcmp(op, "Equal") == 0)
        *v_p = a == b;
    else if (strcmp(op, "Greater") == 0)
        *v_p = a > b;
    else if (strcmp(op, "Less") == 0)
        *v_p = a < b;
    else if (strcmp(op, "GreaterOrEqual") == 0)
        *v_p = a >= b;
    else if (strcmp(op, "LessOrEqual") == 0)
        *v_p = a <= b;
    else if (strcmp(op, "And") == 0)
        *v_p = (a != 0.0) && (b != 0.0);
    else if (strcmp(op, "Or") == 0)
        *v_p = (a != 0.0) || (b != 0.0);
    else
        return false;
    return true;
}

static bool is_truth(const ct_onnx_reader *r)
{
    return is(r, "Equal") || is(r, "Greater") || is(r, "Less") || is(r, "GreaterOrEqual") ||
           is(r, "LessOrEqual") || is(r, "And") || is(r, "Or");
}

static ct_status fold_two(ct_onnx_reader *r, bool *done_p, numbers *out)
{
    const ct_onnx_operand *a = ct_onnx_in(r, 0), *b = ct_onnx_in(r, 1);
    bool floats = (a->f != NULL) && !is_truth(r);
    double v;
    ct_shape s;

    if (!two(op_of(r), false, 1.0, 1.0, &v)) return CT_OK;
    CT_TRY(ct_onnx_broadcast(r, &a->shape, &b->shape, &s));
    CT_TRY(begin(r, &s, floats, out));
    for (int64_t k = 0; k < out->n; k++) {
        two(op_of(r), a->f == NULL, get(a, place(&s, k, &a->shape)),
            get(b, place(&s, k, &b->shape)), &v);
        put(out, k, v);
    }
    *done_p = true;
    return CT_OK;
}

static bool one(const char *op, double a, double *v_p)
{
    if (strcmp(op, "Neg") == 0)
        *v_p = -a;
    else if (strcmp(op, "Sqrt") == 0)
        *v_p = sqrt(a);
    else if (strcmp(op, "Exp") == 0)
        *v_p = exp(a);
    else if (strcmp(op, "Log") == 0)
        *v_p = log(a);
    else if (strcmp(op, "Abs") == 0)
        *v_p = fabs(a);
    else if (strcmp(op, "Reciprocal") == 0)
        *v_p = 1.0 / a;
    else if (strcmp(op, "Not") == 0)
        *v_p = a == 0.0;
    else
        return false;
    return true;
}

static bool is_float_type(int64_t type)
{
    return (type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT) ||
           (type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16) ||
           (type == ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16) ||
           (type == ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE);
}

static ct_status fold_one(ct_onnx_reader *r, bool *done_p, numbers *out)
{
    const ct_onnx_operand *a = ct_onnx_in(r, 0);
    int64_t to = ct_onnx_attribute_int(r, "to", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    bool cast = is(r, "Cast"), truth = cast && (to == ONNX__TENSOR_PROTO__DATA_TYPE__BOOL);
    double v;

    if (!cast && !one(op_of(r), 1.0, &v)) return CT_OK;
    CT_TRY(begin(r, &a->shape, cast ? is_float_type(to) : a->f != NULL, out));
    for (int64_t k = 0; k < out->n; k++) {
        if (cast && !truth) {
            copy(out, k, a, k);
            continue;
        }
        if (truth)
            v = get(a, k) != 0.0;
        else
            one(op_of(r), get(a, k), &v);
        put(out, k, v);
    }
    *done_p = true;
    return CT_OK;
}

static ct_status fold_where(ct_onnx_reader *r, numbers *out)
{
    const ct_onnx_operand *c = ct_onnx_in(r, 0), *a = ct_onnx_in(r, 1), *b = ct_onnx_in(r, 2);
    ct_shape s;

    CT_TRY(ct_onnx_broadcast(r, &a->shape, &b->shape, &s));
    CT_TRY(ct_onnx_broadcast(r, &s, &c->shape, &s));
    CT_TRY(begin(r, &s, a->f != NULL, out));
    for (int64_t k = 0; k < out->n; k++) {
        const ct_onnx_operand *v = (get(c, place(&s, k, &c->shape)) != 0.0) ? a : b;

        copy(out, k, v, place(&s, k, &v->shape));
    }
    return CT_OK;
}

/* ---- moved */

static ct_status fold_expand(ct_onnx_reader *r, numbers *out)
{
    const ct_onnx_operand *a = ct_onnx_in(r, 0);
    ct_shape s = { 0 };

    CT_TRY(ct_onnx_list_of(r, 1, "shape", &s.ndim, s.dim));
    CT_TRY(ct_onnx_shape_check(r, "the shape wanted", &s));
    CT_TRY(ct_onnx_broadcast(r, &a->shape, &s, &s));
    CT_TRY(begin(r, &s, a->f != NULL, out));
    for (int64_t k = 0; k < out->n; k++) copy(out, k, a, place(&s, k, &a->shape));
    return CT_OK;
}

static ct_status fold_gather(ct_onnx_reader *r, numbers *out)
{
    const ct_onnx_operand *a = ct_onnx_in(r, 0), *ids = ct_onnx_in(r, 1);
    ct_shape s = { 0 };
    int64_t inner, n, size;
    int axis;

    if (ids->i == NULL) return ct_onnx_refuse(r, "places are whole numbers");
    CT_TRY(ct_onnx_axis(r, ct_onnx_attribute_int(r, "axis", 0), a->shape.ndim, &axis));
    if (a->shape.ndim - 1 + ids->shape.ndim > CT_MAX_DIM)
        return ct_onnx_refuse(r, "at most %d axes are taken", CT_MAX_DIM);
    for (int d = 0; d < axis; d++) s.dim[s.ndim++] = a->shape.dim[d];
    for (int d = 0; d < ids->shape.ndim; d++) s.dim[s.ndim++] = ids->shape.dim[d];
    for (int d = axis + 1; d < a->shape.ndim; d++) s.dim[s.ndim++] = a->shape.dim[d];
    CT_TRY(begin(r, &s, a->f != NULL, out));
    inner = ct_shape_count(&a->shape, axis + 1, -1);
    n = ct_shape_count(&ids->shape, 0, -1);
    size = a->shape.dim[axis];
    for (int64_t k = 0; k < out->n; k++) {
        int64_t i = ids->i[k / inner % n];

        if ((i < -size) || (i >= size))
            return ct_onnx_refuse(r, "place %" PRId64 " of %" PRId64, i, size);
        copy(out, k, a, (k / inner / n * size + ((i < 0) ? i + size : i)) * inner + k % inner);
    }
    return CT_OK;
}

static ct_status fold_concat(ct_onnx_reader *r, numbers *out)
{
    const ct_onnx_operand *a = ct_onnx_in(r, 0), *v;
    ct_shape s = a->shape;
    int64_t at = 0, inner;
    int axis;

    CT_TRY(ct_onnx_axis(r, ct_onnx_attribute_int(r, "axis", 0), s.ndim, &axis));
    for (int i = 0; i < ct_onnx_n_in(r); i++) {
        ct_shape other;

        v = ct_onnx_in(r, i);
        if (v == NULL) return ct_onnx_refuse(r, "input %d is missing", i);
        other = v->shape;
        if (i > 0) s.dim[axis] += (other.ndim == s.ndim) ? other.dim[axis] : 0;
        other.dim[axis] = s.dim[axis];
        if (!ct_shape_equal(&other, &s)) return ct_onnx_refuse(r, "input %d has another shape", i);
    }
    CT_TRY(begin(r, &s, a->f != NULL, out));
    inner = ct_shape_count(&s, axis + 1, -1);
    for (int i = 0; i < ct_onnx_n_in(r); i++) {
        int64_t rows, n;

        v = ct_onnx_in(r, i);
        rows = v->shape.dim[axis] * inner;
        n = ct_shape_count(&v->shape, 0, -1);
        for (int64_t k = 0; k < n; k++)
            copy(out, k / rows * s.dim[axis] * inner + at + k % rows, v, k);
        at += rows;
    }
    return CT_OK;
}

static ct_status fold_slice(ct_onnx_reader *r, numbers *out)
{
    const ct_onnx_operand *a = ct_onnx_in(r, 0);
    int64_t list[4][CT_MAX_DIM], from[CT_MAX_DIM] = { 0 }, step[CT_MAX_DIM];
    static const char *const name[4] = { "starts", "ends", "axes", "steps" };
    ct_shape s = a->shape;
    int n[4], axis;

    for (int d = 0; d < s.ndim; d++) step[d] = 1;
    for (int i = 0; i < 4; i++) CT_TRY(ct_onnx_list_of(r, i + 1, name[i], &n[i], list[i]));
    for (int i = 0; i < 4; i++)
        if ((n[i] != n[0]) && ((i < 2) || (n[i] >= 0)))
            return ct_onnx_refuse(r, "starts, ends, axes and steps have different lengths");
    for (int i = 0; i < n[0]; i++) {
        int64_t size, by = (n[3] >= 0) ? list[3][i] : 1, b = list[0][i], e = list[1][i];

        CT_TRY(ct_onnx_axis(r, (n[2] >= 0) ? list[2][i] : i, s.ndim, &axis));
        size = a->shape.dim[axis];
        if ((by == 0) || (by > MOST) || (by < -MOST)) return ct_onnx_refuse(r, "a step of 0");
        if (b < 0) b = (b < -size) ? -1 : b + size;
        if (e < 0) e = (e < -size) ? -1 : e + size;
        if (by > 0) b = (b < 0) ? 0 : b;
        if (by > 0) e = (e < 0) ? 0 : (e > size) ? size : e;
        if (by < 0) b = (b >= size) ? size - 1 : b;
        if (by < 0) e = (e >= size) ? size - 1 : e;
        s.dim[axis] = (by > 0) ? (e - b + by - 1) / by : (b - e - by - 1) / -by;
        if ((s.dim[axis] < 0) || (b >= size) || (b < 0)) s.dim[axis] = 0;
        from[axis] = b;
        step[axis] = by;
    }
    CT_TRY(begin(r, &s, a->f != NULL, out));
    for (int64_t k = 0; k < out->n; k++) {
        int64_t rest = k, at = 0, stride = 1;

        for (int d = s.ndim - 1; d >= 0; d--) {
            at += (from[d] + rest % s.dim[d] * step[d]) * stride;
            rest /= s.dim[d];
            stride *= a->shape.dim[d];
        }
        copy(out, k, a, at);
    }
    return CT_OK;
}

static ct_status fold_transpose(ct_onnx_reader *r, numbers *out)
{
    const ct_onnx_operand *a = ct_onnx_in(r, 0);
    const Onnx__AttributeProto *perm = ct_onnx_attribute(r, "perm");
    int n = a->shape.ndim;
    ct_shape s = { .ndim = n };
    int64_t stride[CT_MAX_DIM + 1];
    bool used[CT_MAX_DIM] = { false };

    if ((perm != NULL) && (perm->n_ints != (size_t)n))
        return ct_onnx_refuse(r, "perm has %zu axes", perm->n_ints);
    for (int d = 0; d < n; d++) {
        int64_t from = (perm != NULL) ? perm->ints[d] : n - 1 - d;

        if ((from < 0) || (from >= n) || used[from]) return ct_onnx_refuse(r, "perm is no order");
        used[from] = true;
        s.dim[d] = a->shape.dim[from];
        stride[d] = ct_shape_count(&a->shape, (int)from + 1, -1);
    }
    CT_TRY(begin(r, &s, a->f != NULL, out));
    for (int64_t k = 0; k < out->n; k++) {
        int64_t rest = k, at = 0;

        for (int d = n - 1; d >= 0; d--) {
            at += rest % s.dim[d] * stride[d];
            rest /= s.dim[d];
        }
        copy(out, k, a, at);
    }
    return CT_OK;
}

/* Of each matrix the upper triangle, from diagonal k on, or the lower one up to it; 0 elsewhere. */
static ct_status fold_triangle(ct_onnx_reader *r, numbers *out)
{
    const ct_onnx_operand *a = ct_onnx_in(r, 0), *by = ct_onnx_in(r, 1);
    bool upper = ct_onnx_attribute_int(r, "upper", 1) != 0;
    int64_t k = 0, rows, columns;

    if ((by != NULL) && ((by->i == NULL) || (ct_shape_count(&by->shape, 0, -1) != 1)))
        return ct_onnx_refuse(r, "k is a whole number");
    if (by != NULL) k = (by->i[0] > MOST) ? MOST : (by->i[0] < -MOST) ? -MOST : by->i[0];
    if (a->shape.ndim < 2)
        return ct_onnx_refuse(r, "shape %s; matrices are taken", ct_shape_str(&a->shape).text);
    rows = a->shape.dim[a->shape.ndim - 2];
    columns = a->shape.dim[a->shape.ndim - 1];
    CT_TRY(begin(r, &a->shape, a->f != NULL, out)); /* they come zeroed */
    for (int64_t at = 0; at < out->n; at++) {
        int64_t right = at % columns - at / columns % rows;

        if (upper ? (right >= k) : (right <= k)) copy(out, at, a, at);
    }
    return CT_OK;
}

/* ---- made */

static ct_status fold_range(ct_onnx_reader *r, numbers *out)
{
    const ct_onnx_operand *v[3];
    double n;

    for (int i = 0; i < 3; i++) {
        v[i] = ct_onnx_in(r, i);
        if ((v[i] == NULL) || (ct_shape_count(&v[i]->shape, 0, -1) != 1))
            return ct_onnx_refuse(r, "start, limit and delta are numbers");
    }
    n = ceil((get(v[1], 0) - get(v[0], 0)) / get(v[2], 0));
    if (!(n <= MOST)) return ct_onnx_refuse(r, "a range of %g numbers", n);
    if (n < 0.0) n = 0.0;
    CT_TRY(begin(r, &(ct_shape){ 1, { (int64_t)n } }, v[0]->f != NULL, out));
    for (int64_t k = 0; k < out->n; k++) put(out, k, get(v[0], 0) + (double)k * get(v[2], 0));
    return CT_OK;
}

static ct_status fold_of_shape(ct_onnx_reader *r, numbers *out)
{
    const Onnx__AttributeProto *a = ct_onnx_attribute(r, "value");
    ct_onnx_operand value = { .name = NULL };
    ct_shape s = { 0 };
    ct_status status = CT_OK;
    bool given = (a != NULL) && (a->t != NULL);

    CT_TRY(ct_onnx_list_of(r, 0, "shape", &s.ndim, s.dim));
    if (given) status = ct_onnx_tensor_read(r, a->t, "attribute value", &value);
    if ((status == CT_OK) && given && (ct_shape_count(&value.shape, 0, -1) != 1))
        status = ct_onnx_refuse(r, "value is one number");
    if (status == CT_OK) status = begin(r, &s, !given || (value.f != NULL), out);
    for (int64_t k = 0; (status == CT_OK) && given && (k < out->n); k++) copy(out, k, &value, 0);
    free(value.owned);
    return status;
}

/* Of any value: its shape is known. */
static ct_status fold_shape(ct_onnx_reader *r, numbers *out)
{
    const ct_onnx_operand *a = ct_onnx_in(r, 0);
    int n = a->shape.ndim;
    int64_t from = ct_onnx_attribute_int(r, "start", 0), to = ct_onnx_attribute_int(r, "end", n);

    from = (from < -n) ? 0 : (from < 0) ? from + n : (from > n) ? n : from;
    to = (to < -n) ? 0 : (to < 0) ? to + n : (to > n) ? n : to;
    if (is(r, "Size")) {
        CT_TRY(begin(r, &(ct_shape){ 0 }, false, out));
        out->i[0] = ct_shape_count(&a->shape, 0, -1);
        return CT_OK;
    }
    CT_TRY(begin(r, &(ct_shape){ 1, { (to > from) ? to - from : 0 } }, false, out));
    for (int64_t k = 0; k < out->n; k++) out->i[k] = a->shape.dim[from + k];
    return CT_OK;
}

static ct_status fold_constant(ct_onnx_reader *r, numbers *out)
{
    const Onnx__AttributeProto *a =
        (r->step[r->at].proto->n_attribute == 1) ? r->step[r->at].proto->attribute[0] : NULL;
    bool many = (a != NULL) && (a->name != NULL) && (a->name[strlen(a->name) - 1] == 's');
    bool floats = (a != NULL) && (a->name != NULL) && (strncmp(a->name, "value_f", 7) == 0);
    bool whole = (a != NULL) && (a->name != NULL) && (strncmp(a->name, "value_i", 7) == 0);
    ct_shape s = { 0 };
    ct_onnx_operand value = { .name = NULL };
    ct_status status;

    if ((a != NULL) && (a->t != NULL) && !floats && !whole) {
        status = ct_onnx_tensor_read(r, a->t, "attribute value", &value);
        if (status == CT_OK) status = begin(r, &value.shape, value.f != NULL, out);
        for (int64_t k = 0; (status == CT_OK) && (k < out->n); k++) copy(out, k, &value, k);
        free(value.owned);
        return status;
    }
    if (!floats && !whole)
        return ct_onnx_refuse(r, "one of value, value_float, value_floats, value_int and "
                                 "value_ints is taken");
    if (many) s = (ct_shape){ 1, { (int64_t)(floats ? a->n_floats : a->n_ints) } };
    CT_TRY(begin(r, &s, floats, out));
    for (int64_t k = 0; k < out->n; k++) {
        if (floats)
            out->f[k] = many ? a->floats[k] : a->f;
        else
            out->i[k] = many ? a->ints[k] : a->i;
    }
    return CT_OK;
}

/* Reshape, Squeeze, Unsqueeze, Flatten, Identity are the same for constants as for blobs. */
static const struct {
    const char *op;
    ct_status (*fold)(ct_onnx_reader *r, numbers *out);
} table[] = {
    { "Concat", fold_concat },
    { "Constant", fold_constant },
    { "ConstantOfShape", fold_of_shape },
    { "Expand", fold_expand },
    { "Gather", fold_gather },
    { "Range", fold_range },
    { "Shape", fold_shape },
    { "Size", fold_shape },
    { "Slice", fold_slice },
    { "Transpose", fold_transpose },
    { "Trilu", fold_triangle },
    { "Where", fold_where },
};

ct_status ct_onnx_fold(ct_onnx_reader *r, bool *done_p)
{
    numbers out = { .n = 0 };
    bool done = false;
    ct_status status = CT_OK;

    for (size_t k = 0; !done && (k < sizeof(table) / sizeof(table[0])); k++) {
        if (!is(r, table[k].op)) continue;
        done = true;
        status = table[k].fold(r, &out);
    }
    if (!done && (ct_onnx_n_in(r) == 2)) status = fold_two(r, &done, &out);
    if (!done && (ct_onnx_n_in(r) == 1)) status = fold_one(r, &done, &out);
    if ((status != CT_OK) || !done) {
        free(out.f);
        free(out.i);
        return status;
    }
    *done_p = true;
    return ct_onnx_constant_out(r, &out.shape, out.f, out.i);
}
