/* Operators that move values: other shapes, parts, several in one, tables. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/onnx/read/onnx_read.h"

static const char *op_of(const ct_onnx_reader *r)
{
    return r->step[r->at].op;
}

static ct_status same(ct_onnx_reader *r)
{
    return ct_onnx_same(r, ct_onnx_in(r, 0));
}

/* ---- shapes */

/* What Reshape wants of x: 0 keeps an axis, -1 is what is left. */
static ct_status wanted_shape(const ct_onnx_reader *r, const ct_shape *x, ct_shape *s_p)
{
    bool zeros = ct_onnx_attribute_int(r, "allowzero", 0) != 0;
    int64_t known = 1, n = ct_shape_count(x, 0, -1);
    int rest = -1;
    ct_shape s = { 0 };

    CT_TRY(ct_onnx_list_of(r, 1, "shape", &s.ndim, s.dim));
    if (s.ndim < 0) return ct_onnx_refuse(r, "no shape is given");
    for (int d = 0; d < s.ndim; d++) {
        if ((s.dim[d] == 0) && !zeros) {
            if (d >= x->ndim)
                return ct_onnx_refuse(r, "shape keeps an axis %d, which is not there", d);
            s.dim[d] = x->dim[d];
        }
        if (s.dim[d] == -1) {
            if (rest >= 0) return ct_onnx_refuse(r, "shape has -1 twice");
            rest = d;
            s.dim[d] = 1;
        }
    }
    CT_TRY(ct_onnx_shape_check(r, "the shape wanted", &s));
    known = ct_shape_count(&s, 0, -1);
    if (rest >= 0) s.dim[rest] = (known > 0) ? n / known : 0;
    if (ct_shape_count(&s, 0, -1) != n)
        return ct_onnx_refuse(r, "the values of shape %s do not fill %s", ct_shape_str(x).text,
                              ct_shape_str(&s).text);
    *s_p = s;
    return CT_OK;
}

static ct_status reshape(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    ct_shape s;

    CT_TRY(wanted_shape(r, &x->shape, &s));
    return ct_onnx_reshape_to(r, x, &s, NULL, NULL);
}

static ct_status flatten(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    int64_t axis = ct_onnx_attribute_int(r, "axis", 1);
    ct_shape s = { .ndim = 2 };

    if (axis < 0) axis += x->shape.ndim;
    if ((axis < 0) || (axis > x->shape.ndim))
        return ct_onnx_refuse(r, "axis %" PRId64 " of %d axes", axis, x->shape.ndim);
    s.dim[0] = ct_shape_count(&x->shape, 0, (int)axis);
    s.dim[1] = ct_shape_count(&x->shape, (int)axis, -1);
    if ((axis == 1) && (x->shape.ndim > 2) && !x->constant)
        return ct_onnx_emit(r, "Flatten", NULL, 1, &x, &s, NULL, "%s", "");
    return ct_onnx_reshape_to(r, x, &s, NULL, NULL);
}

/* Axes of size 1 that go, or that come. */
static ct_status squeeze(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    bool go = strcmp(op_of(r), "Squeeze") == 0, named[2 * CT_MAX_DIM] = { false };
    int64_t axes[CT_MAX_DIM];
    ct_shape s = { 0 };
    int n, at = 0, all;

    CT_TRY(ct_onnx_list_of(r, 1, "axes", &n, axes));
    all = x->shape.ndim + ((go || (n < 0)) ? 0 : n);
    if ((n < 0) && !go) return ct_onnx_refuse(r, "no axes are given");
    if (all > CT_MAX_DIM) return ct_onnx_refuse(r, "at most %d axes are taken", CT_MAX_DIM);
    for (int i = 0; i < n; i++) {
        int axis;

        CT_TRY(ct_onnx_axis(r, axes[i], all, &axis));
        if (go && (x->shape.dim[axis] != 1))
            return ct_onnx_refuse(r, "axis %d of %s is not 1", axis, ct_shape_str(&x->shape).text);
        named[axis] = true;
    }
    for (int d = 0; d < all; d++) {
        bool one = named[d] || ((n < 0) && (x->shape.dim[d] == 1));

        if (go && one) continue;
        if (!go && !one && (at >= x->shape.ndim)) return ct_onnx_refuse(r, "an axis stands twice");
        s.dim[s.ndim++] = go ? x->shape.dim[d] : one ? 1 : x->shape.dim[at++];
    }
    return ct_onnx_reshape_to(r, x, &s, NULL, NULL);
}

static ct_status expand(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    ct_shape s = { 0 };

    CT_TRY(ct_onnx_list_of(r, 1, "shape", &s.ndim, s.dim));
    CT_TRY(ct_onnx_shape_check(r, "the shape wanted", &s));
    CT_TRY(ct_onnx_broadcast(r, &x->shape, &s, &s));
    return ct_onnx_spread_to(r, x, &s, NULL, NULL);
}

static ct_status tile(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    ct_shape s = x->shape;
    int64_t times[CT_MAX_DIM];
    int n, last = -1;

    CT_TRY(ct_onnx_list_of(r, 1, "repeats", &n, times));
    for (int d = 0; d < n; d++) {
        if ((n != s.ndim) || (times[d] < 1) || (times[d] > 1 << 20))
            return ct_onnx_refuse(r, "repeats are a number of at least 1 for each axis");
        if (times[d] != 1) last = d;
    }
    if (last < 0) return ct_onnx_same(r, x);
    for (int d = 0; d <= last; d++) {
        if (times[d] == 1) continue;
        s.dim[d] *= times[d];
        CT_TRY(ct_onnx_emit(r, "Tile", (d == last) ? NULL : "some", 1, &x, &s, &x,
                            "tile_param { axis: %d tiles: %" PRId64 " }", d, times[d]));
    }
    return CT_OK;
}

static ct_status transpose(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    const Onnx__AttributeProto *perm = ct_onnx_attribute(r, "perm");
    bool used[CT_MAX_DIM] = { false }, still = true;
    int n = x->shape.ndim;
    ct_shape s = { .ndim = n };
    ct_text t = { 0 };
    ct_status status;

    if ((perm != NULL) && (perm->n_ints != (size_t)n))
        return ct_onnx_refuse(r, "perm has %zu axes, the input %d", perm->n_ints, n);
    for (int d = 0; d < n; d++) {
        int64_t from = (perm != NULL) ? perm->ints[d] : n - 1 - d;

        if ((from < 0) || (from >= n) || used[from]) {
            ct_text_destroy(&t);
            return ct_onnx_refuse(r, "perm is not an order of %d axes", n);
        }
        used[from] = true;
        still = still && (from == d);
        s.dim[d] = x->shape.dim[from];
        ct_text_add(&t, " order: %" PRId64, from);
    }
    status = still ? ct_onnx_same(r, x)
                   : ct_onnx_emit(r, "Permute", NULL, 1, &x, &s, NULL, "permute_param {%s }",
                                  (t.text != NULL) ? t.text : "");
    ct_text_destroy(&t);
    return status;
}

/* ---- parts, and several in one */

static ct_status concat(ct_onnx_reader *r)
{
    int n = ct_onnx_n_in(r), axis;
    ct_onnx_operand **v = calloc((size_t)n + 1, sizeof(ct_onnx_operand *)), *first;
    ct_shape s;
    ct_status status = CT_OK;

    if (v == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d inputs", n);
    for (int i = 0; (i < n) && (status == CT_OK); i++) {
        v[i] = ct_onnx_in(r, i);
        if (v[i] == NULL) status = ct_onnx_refuse(r, "input %d is missing", i);
    }
    first = v[0];
    if (status == CT_OK)
        status = ct_onnx_axis(r, ct_onnx_attribute_int(r, "axis", 1), first->shape.ndim, &axis);
    for (int i = 0; (i < n) && (status == CT_OK); i++) {
        ct_shape other = v[i]->shape;

        if (i == 0) s = other;
        if (other.ndim == s.ndim) other.dim[axis] = s.dim[axis];
        if (!ct_shape_equal(&other, &s))
            status =
                ct_onnx_refuse(r, "input %d has shape %s, input 0 %s", i,
                               ct_shape_str(&v[i]->shape).text, ct_shape_str(&first->shape).text);
        else if (i > 0)
            s.dim[axis] += v[i]->shape.dim[axis];
        if (status == CT_OK) status = ct_onnx_as_blob(r, v[i], "constant", &v[i]);
    }
    if (status == CT_OK)
        status = (n == 1) ? ct_onnx_same(r, v[0])
                          : ct_onnx_emit(r, "Concat", NULL, n, v, &s, NULL,
                                         "concat_param { axis: %d }", axis);
    free(v);
    return status;
}

/* Sizes of the parts; without a list all the same, the last perhaps smaller. */
static ct_status part_sizes(const ct_onnx_reader *r, int64_t size, int n, int64_t *part)
{
    const ct_onnx_operand *in = ct_onnx_in(r, 1);
    const Onnx__AttributeProto *a = ct_onnx_attribute(r, "split");
    int64_t each = (size + n - 1) / n, all = 0;
    int64_t given = (in != NULL)  ? ct_shape_count(&in->shape, 0, -1)
                    : (a != NULL) ? (int64_t)a->n_ints
                                  : -1;

    if (((in != NULL) && (in->i == NULL)) || ((given >= 0) && (given != n)))
        return ct_onnx_refuse(r, "split is a constant list of %d sizes", n);
    for (int i = 0; i < n; i++) {
        part[i] = (in != NULL) ? in->i[i] : (a != NULL) ? a->ints[i] : each;
        if (given < 0) part[i] = (size - all < each) ? size - all : each;
        if ((part[i] < 1) || (part[i] > size - all))
            return ct_onnx_refuse(r, "part %d of %" PRId64 " values has %" PRId64, i, size,
                                  part[i]);
        all += part[i];
    }
    return (all == size) ? CT_OK : ct_onnx_refuse(r, "the parts do not add up to %" PRId64, size);
}

static ct_status split(ct_onnx_reader *r)
{
    enum { MOST = 256 };
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    int n = ct_onnx_n_out(r), axis;
    int64_t part[MOST], at = 0;
    ct_shape s = x->shape;
    ct_text t = { 0 };
    ct_status status;

    if (n > MOST) return ct_onnx_refuse(r, "%d outputs, at most %d are taken", n, MOST);
    CT_TRY(ct_onnx_axis(r, ct_onnx_attribute_int(r, "axis", 0), s.ndim, &axis));
    CT_TRY(part_sizes(r, s.dim[axis], n, part));
    if (n == 1) return ct_onnx_same(r, x);
    for (int i = 0; i + 1 < n; i++) ct_text_add(&t, " slice_point: %" PRId64, at += part[i]);
    s.dim[axis] = part[0];
    status = ct_onnx_emit(r, "Slice", NULL, 1, &x, &s, NULL, "slice_param { axis: %d%.400s }", axis,
                          (t.text != NULL) ? t.text : "");
    if ((status == CT_OK) && (t.length > 400)) status = ct_onnx_refuse(r, "too many parts");
    ct_text_destroy(&t);
    for (int i = 1; (i < n) && (status == CT_OK); i++) {
        s.dim[axis] = part[i];
        status = ct_onnx_emit_top(r, i, &s, NULL);
    }
    return status;
}

static int64_t clamp(int64_t v, int64_t size)
{
    if (v < 0) v = (v < -size) ? 0 : v + size;
    return (v > size) ? size : v;
}

/* Every step-th of an axis: the axis as rows of `step` values, of which one is cut. */
static ct_status every(ct_onnx_reader *r, ct_onnx_operand *x, int axis, int64_t from, int64_t to,
                       int64_t step, const char *part, ct_onnx_operand **v_p)
{
    int64_t size = x->shape.dim[axis], n = (to > from) ? (to - from + step - 1) / step : 0;
    int64_t first = (from < size - n * step) ? from : size - n * step;
    ct_shape rows = x->shape, s = x->shape;

    if ((n < 1) || (first < 0) || (from - first >= step) || (s.ndim == CT_MAX_DIM))
        return ct_onnx_refuse(
            r, "a step of %" PRId64 " from %" PRId64 " to %" PRId64 " of %" PRId64 " values", step,
            from, to, size);
    CT_TRY(ct_onnx_cut(r, x, axis, first, first + n * step, "all", &x));
    rows.ndim++;
    for (int d = rows.ndim - 1; d > axis + 1; d--) rows.dim[d] = rows.dim[d - 1];
    rows.dim[axis] = n;
    rows.dim[axis + 1] = step;
    s.dim[axis] = n;
    CT_TRY(ct_onnx_reshape_to(r, x, &rows, "rows", &x));
    CT_TRY(ct_onnx_cut(r, x, axis + 1, from - first, from - first + 1, "one", &x));
    return ct_onnx_reshape_to(r, x, &s, part, v_p);
}

static ct_status slice(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    int64_t from[CT_MAX_DIM], to[CT_MAX_DIM], axes[CT_MAX_DIM], steps[CT_MAX_DIM];
    int n, n_to, n_axis, n_step;

    CT_TRY(ct_onnx_list_of(r, 1, "starts", &n, from));
    CT_TRY(ct_onnx_list_of(r, 2, "ends", &n_to, to));
    CT_TRY(ct_onnx_list_of(r, 3, "axes", &n_axis, axes));
    CT_TRY(ct_onnx_list_of(r, 4, "steps", &n_step, steps));
    if ((n < 0) || (n != n_to) || ((n_axis >= 0) && (n_axis != n)) ||
        ((n_step >= 0) && (n_step != n)))
        return ct_onnx_refuse(r, "starts, ends, axes and steps have different lengths");
    for (int i = 0; i < n; i++) {
        int64_t begin, end;
        bool last = i + 1 == n;
        int axis;

        CT_TRY(ct_onnx_axis(r, (n_axis >= 0) ? axes[i] : i, x->shape.ndim, &axis));
        begin = clamp(from[i], x->shape.dim[axis]);
        end = clamp(to[i], x->shape.dim[axis]);
        if ((n_step >= 0) && ((steps[i] < 1) || (steps[i] > 1 << 20)))
            return ct_onnx_refuse(r, "a step of %" PRId64 "; whole ones above 0 are taken",
                                  steps[i]);
        if ((n_step >= 0) && (steps[i] != 1))
            CT_TRY(every(r, x, axis, begin, end, steps[i], last ? NULL : "some", &x));
        else
            CT_TRY(ct_onnx_cut(r, x, axis, begin, end, last ? NULL : "some", &x));
    }
    return (n == 0) ? ct_onnx_same(r, x) : CT_OK;
}

/* ---- tables */

/* Rows of a constant table by computed numbers; rows of several axes lie flat in the layer. */
static ct_status embed(ct_onnx_reader *r, const ct_onnx_operand *table, ct_onnx_operand *ids)
{
    ct_shape s = ids->shape, flat = ids->shape, weight = { 2, { 0 } };
    bool rows = table->shape.ndim != 2;

    if ((table->f == NULL) || (s.ndim + table->shape.ndim > CT_MAX_DIM + 1))
        return ct_onnx_refuse(r, "a table of shape %s; rows of constant floats are taken",
                              ct_shape_str(&table->shape).text);
    weight.dim[0] = table->shape.dim[0];
    weight.dim[1] = ct_shape_count(&table->shape, 1, -1);
    if ((weight.dim[0] > INT32_MAX) || (weight.dim[1] > INT32_MAX))
        return ct_onnx_refuse(r, "a table of shape %s", ct_shape_str(&weight).text);
    flat.dim[flat.ndim++] = weight.dim[1];
    for (int d = 1; d < table->shape.ndim; d++) s.dim[s.ndim++] = table->shape.dim[d];
    CT_TRY(ct_onnx_emit(r, "Embed", rows ? "rows" : NULL, 1, &ids, &flat, &ids,
                        "embed_param { num_output: %" PRId64 " input_dim: %" PRId64
                        " bias_term: false }",
                        weight.dim[1], weight.dim[0]));
    CT_TRY(ct_onnx_give(r, 0, &weight, table->f, NULL));
    return rows ? ct_onnx_reshape_to(r, ids, &s, NULL, NULL) : CT_OK;
}

/* Constant places, one behind the other, are a part of the value, in a shape of theirs. */
static ct_status gather(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0), *ids = ct_onnx_in(r, 1);
    int64_t n = ct_shape_count(&ids->shape, 0, -1), from;
    ct_shape s = { 0 };
    int axis;

    CT_TRY(ct_onnx_axis(r, ct_onnx_attribute_int(r, "axis", 0), x->shape.ndim, &axis));
    if (x->constant && (axis == 0)) return embed(r, x, ids);
    if (x->constant || (ids->i == NULL) || (n < 1))
        return ct_onnx_refuse(r, "rows of a constant table, and constant places of a value, are "
                                 "taken");
    for (int64_t i = 1; i < n; i++) {
        if ((ids->i[i - 1] == INT64_MAX) || (ids->i[i] != ids->i[i - 1] + 1))
            return ct_onnx_refuse(r, "places that do not lie one behind the other");
    }
    from = ids->i[0] + ((ids->i[0] < 0) ? x->shape.dim[axis] : 0);
    if ((from < 0) || (from >= x->shape.dim[axis]))
        return ct_onnx_refuse(r, "place %" PRId64 " of %" PRId64, from, x->shape.dim[axis]);
    if (ids->shape.ndim == 1) return ct_onnx_cut(r, x, axis, from, from + n, NULL, NULL);
    if (x->shape.ndim - 1 + ids->shape.ndim > CT_MAX_DIM)
        return ct_onnx_refuse(r, "at most %d axes are taken", CT_MAX_DIM);
    CT_TRY(ct_onnx_cut(r, x, axis, from, from + n, "part", &x));
    for (int d = 0; d < axis; d++) s.dim[s.ndim++] = x->shape.dim[d];
    for (int d = 0; d < ids->shape.ndim; d++) s.dim[s.ndim++] = ids->shape.dim[d];
    for (int d = axis + 1; d < x->shape.ndim; d++) s.dim[s.ndim++] = x->shape.dim[d];
    return ct_onnx_reshape_to(r, x, &s, NULL, NULL);
}

/* ---- other sizes of images */

/* Factors, given or by the sizes wanted. */
static ct_status factors(const ct_onnx_reader *r, const ct_shape *x, ct_shape *s_p)
{
    bool old = strcmp(op_of(r), "Upsample") == 0;
    const ct_onnx_operand *by = ct_onnx_in(r, (old || (r->opset < 11)) ? 1 : 2);
    const ct_onnx_operand *size = old ? NULL : ct_onnx_in(r, 3);
    const Onnx__AttributeProto *a = ct_onnx_attribute(r, "scales");
    ct_shape s = { 4, { 0 } };

    for (int d = 0; d < 4; d++) {
        float f = 0.0f;

        if ((size != NULL) && (size->i != NULL) && (ct_shape_count(&size->shape, 0, -1) == 4)) {
            s.dim[d] = size->i[d];
            continue;
        }
        if ((by != NULL) && (by->f != NULL) && (ct_shape_count(&by->shape, 0, -1) == 4))
            f = by->f[d];
        else if ((a != NULL) && (a->n_floats == 4))
            f = a->floats[d];
        if (!(f > 0.0f) || (f > 65536.0f))
            return ct_onnx_refuse(r, "scales or sizes are four constant numbers");
        s.dim[d] = (int64_t)floor((double)x->dim[d] * (double)f);
    }
    *s_p = s;
    return CT_OK;
}

static ct_status resize(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    bool old = r->opset < 11, nearest = ct_onnx_attribute_is(r, "mode", "nearest", true);
    bool left =
        old || ct_onnx_attribute_is(r, "coordinate_transformation_mode", "asymmetric", false);
    ct_shape s;

    if (x->shape.ndim != 4) return ct_onnx_refuse(r, "two axes of space are taken");
    if (!ct_onnx_attribute_is(r, "keep_aspect_ratio_policy", "stretch", true))
        return ct_onnx_refuse(r, "attribute keep_aspect_ratio_policy: stretch is taken");
    CT_TRY(factors(r, &x->shape, &s));
    CT_TRY(ct_onnx_shape_check(r, "the size wanted", &s));
    if ((s.dim[0] != x->shape.dim[0]) || (s.dim[1] != x->shape.dim[1]) || (s.dim[2] < 1) ||
        (s.dim[3] < 1) || (s.dim[2] > INT32_MAX) || (s.dim[3] > INT32_MAX))
        return ct_onnx_refuse(r, "a size of %s for %s", ct_shape_str(&s).text,
                              ct_shape_str(&x->shape).text);
    if (!nearest && ct_onnx_attribute_is(r, "mode", "linear", false) &&
        ct_onnx_attribute_is(r, "coordinate_transformation_mode", "align_corners", false))
        return ct_onnx_emit(r, "Interp", NULL, 1, &x, &s, NULL,
                            "interp_param { height: %" PRId64 " width: %" PRId64 " }", s.dim[2],
                            s.dim[3]);
    left = left && (old || ct_onnx_attribute_is(r, "nearest_mode", "floor", false));
    /* by whole factors the nearest is the same one, from half a pixel on as from the left */
    left = left || ct_onnx_attribute_is(r, "coordinate_transformation_mode", "half_pixel", true);
    if (!nearest || !left || (s.dim[2] % x->shape.dim[2] != 0) || (s.dim[3] % x->shape.dim[3] != 0))
        return ct_onnx_refuse(r, "mode nearest by whole factors, and linear with align_corners, "
                                 "are taken");
    return ct_onnx_emit(r, "Upsample", NULL, 1, &x, &s, NULL,
                        "upsample_param { scale_h: %" PRId64 " scale_w: %" PRId64 " }",
                        s.dim[2] / x->shape.dim[2], s.dim[3] / x->shape.dim[3]);
}

const ct_onnx_op ct_onnx_shape_ops[] = {
    { "Concat", concat, 1, 1 << 20, " axis " },
    { "Constant", NULL, 0, 0, " value value_float value_floats value_int value_ints " },
    { "ConstantOfShape", NULL, 1, 1, " value " },
    { "Dropout", same, 1, 3, " ratio seed " },
    { "Expand", expand, 2, 2, " " },
    { "Flatten", flatten, 1, 1, " axis " },
    { "Gather", gather, 2, 2, " axis " },
    { "Identity", same, 1, 1, " " },
    { "Range", NULL, 3, 3, " " },
    { "Reshape", reshape, 1, 2, " allowzero shape " },
    { "Resize", resize, 1, 4,
      " antialias coordinate_transformation_mode cubic_coeff_a exclude_outside "
      "extrapolation_value keep_aspect_ratio_policy mode nearest_mode " },
    { "Shape", NULL, 1, 1, " end start " },
    { "Size", NULL, 1, 1, " " },
    { "Slice", slice, 1, 5, " axes ends starts " },
    { "Split", split, 1, 2, " axis num_outputs split " },
    { "Squeeze", squeeze, 1, 2, " axes " },
    { "Tile", tile, 2, 2, " " },
    { "Transpose", transpose, 1, 1, " perm " },
    { "Trilu", NULL, 1, 2, " upper " },
    { "Unsqueeze", squeeze, 1, 2, " axes " },
    { "Upsample", resize, 1, 2, " mode scales " },
    { NULL, NULL, 0, 0, NULL },
};
