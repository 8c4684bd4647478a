/* Operators that add up: products of matrices, Softmax, LayerNorm, sums and means along axes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/onnx/read/onnx_read.h"
#include "framework/base/memory.h"

static const char *op_of(const ct_onnx_reader *r)
{
    return r->step[r->at].op;
}

/* ---- products */

/* w of k x n with its rows as columns, times alpha. */
static float *turned(const ct_onnx_reader *r, const ct_onnx_operand *w, bool turn, float alpha)
{
    int64_t k = w->shape.dim[0], n = w->shape.dim[1];
    float *v = ct_onnx_numbers(r, k * n);

    for (int64_t i = 0; (v != NULL) && (i < k); i++) {
        for (int64_t j = 0; j < n; j++) v[turn ? j * k + i : i * n + j] = alpha * w->f[i * n + j];
    }
    return v;
}

/* Input 0 by the constant matrix w, which has an output a row, or a column where it is turned. */
static ct_status inner_product(ct_onnx_reader *r, const ct_onnx_operand *w, bool turn, float alpha,
                               const float *bias, float *owned_bias, int axis)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    int64_t n = w->shape.dim[turn ? 1 : 0], k = w->shape.dim[turn ? 0 : 1];
    ct_shape s = x->shape;
    float *v = NULL;
    ct_status status;

    s.dim[s.ndim - 1] = n;
    status = ct_onnx_emit(r, "InnerProduct", NULL, 1, &x, &s, NULL,
                          "inner_product_param { num_output: %" PRId64 "%s axis: %d }", n,
                          (bias == NULL) ? " bias_term: false" : "", axis);
    if ((status == CT_OK) && (turn || (alpha != 1.0f))) {
        v = turned(r, w, turn, alpha);
        if (v == NULL) status = CT_ERR_NOMEM;
    }
    if (status == CT_OK)
        status = ct_onnx_give(r, 0, &(ct_shape){ 2, { n, k } }, (v != NULL) ? v : w->f, v);
    if ((status == CT_OK) && (bias != NULL))
        return ct_onnx_give(r, 1, &(ct_shape){ 1, { n } }, bias, owned_bias);
    ct_mem_release(owned_bias);
    return status;
}

/* beta c, one for each of n outputs. */
static ct_status gemm_bias(const ct_onnx_reader *r, const ct_onnx_operand *c, int64_t n, float beta,
                           float **v_p)
{
    int64_t there = ct_shape_count(&c->shape, 0, -1);
    float *v;

    if ((c->f == NULL) || ((there != 1) && (there != n)) ||
        ((there == n) && (n > 1) && (c->shape.dim[c->shape.ndim - 1] != n)))
        return ct_onnx_refuse(r,
                              "C is computed, or of shape %s; a constant for each output is "
                              "taken",
                              ct_shape_str(&c->shape).text);
    v = ct_onnx_numbers(r, n);
    if (v == NULL) return CT_ERR_NOMEM;
    for (int64_t i = 0; i < n; i++) v[i] = beta * c->f[(there == 1) ? 0 : i];
    *v_p = v;
    return CT_OK;
}

static ct_status gemm(ct_onnx_reader *r)
{
    const ct_onnx_operand *a = ct_onnx_in(r, 0), *b = ct_onnx_in(r, 1), *c = ct_onnx_in(r, 2);
    bool turn = ct_onnx_attribute_int(r, "transB", 0) == 0;
    float *bias = NULL;
    int64_t n;

    if ((a->shape.ndim != 2) || a->constant || (ct_onnx_attribute_int(r, "transA", 0) != 0))
        return ct_onnx_refuse(r, "A is a computed matrix, transA is 0");
    if ((b->f == NULL) || (b->shape.ndim != 2) || (b->shape.dim[turn ? 0 : 1] != a->shape.dim[1]) ||
        (b->shape.dim[0] > INT32_MAX) || (b->shape.dim[1] > INT32_MAX))
        return ct_onnx_refuse(r,
                              "B is computed, or of shape %s for %" PRId64 " values; a "
                              "constant matrix is taken",
                              ct_shape_str(&b->shape).text, a->shape.dim[1]);
    n = b->shape.dim[turn ? 1 : 0];
    if (c != NULL) CT_TRY(gemm_bias(r, c, n, ct_onnx_attribute_float(r, "beta", 1.0f), &bias));
    return inner_product(r, b, turn, ct_onnx_attribute_float(r, "alpha", 1.0f), bias, bias, 1);
}

/* Of two blobs: their leading axes as many, and as long. */
static ct_status product(ct_onnx_reader *r, ct_onnx_operand *a, ct_onnx_operand *b)
{
    ct_onnx_operand *both[2] = { a, b };
    ct_shape lead[2], s, whole;

    for (int i = 0; i < 2; i++) {
        CT_TRY(ct_onnx_as_blob(r, both[i], "constant", &both[i]));
        lead[i] = both[i]->shape;
        if (lead[i].ndim < 2)
            return ct_onnx_refuse(r, "input %d has shape %s; matrices are taken", i,
                                  ct_shape_str(&lead[i]).text);
        lead[i].ndim -= 2;
    }
    CT_TRY(ct_onnx_broadcast(r, &lead[0], &lead[1], &s));
    for (int i = 0; i < 2; i++) {
        whole = s;
        for (int d = 2; d > 0; d--)
            whole.dim[whole.ndim++] = both[i]->shape.dim[both[i]->shape.ndim - d];
        CT_TRY(ct_onnx_spread_to(r, both[i], &whole, "spread", &both[i]));
    }
    a = both[0];
    if (a->shape.dim[a->shape.ndim - 1] != both[1]->shape.dim[a->shape.ndim - 2])
        return ct_onnx_refuse(r, "shapes %s and %s do not go together",
                              ct_shape_str(&a->shape).text, ct_shape_str(&both[1]->shape).text);
    whole.dim[whole.ndim - 2] = a->shape.dim[a->shape.ndim - 2];
    return ct_onnx_emit(r, "MatMul", NULL, 2, both, &whole, NULL, "%s", "");
}

static ct_status matmul(ct_onnx_reader *r)
{
    ct_onnx_operand *a = ct_onnx_in(r, 0), *b = ct_onnx_in(r, 1);
    const ct_onnx_operand *bias = ct_onnx_in(r, 2); /* of a pattern */

    if (a->constant || (b->f == NULL) || (b->shape.ndim != 2) || (a->shape.ndim < 2) ||
        (b->shape.dim[1] > INT32_MAX))
        return product(r, a, b);
    if (b->shape.dim[0] != a->shape.dim[a->shape.ndim - 1])
        return ct_onnx_refuse(r, "shapes %s and %s do not go together",
                              ct_shape_str(&a->shape).text, ct_shape_str(&b->shape).text);
    return inner_product(r, b, true, 1.0f, (bias != NULL) ? bias->f : NULL, NULL, -1);
}

/* ---- Softmax and LayerNorm */

/* Before opset 13 all axes from `axis` on count as one. */
static ct_status softmax(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0), *v = x;
    bool flat = r->opset < 13, log_of = strcmp(op_of(r), "LogSoftmax") == 0, whole;
    ct_shape s = x->shape, rows = { .ndim = 2 };
    int axis;

    CT_TRY(ct_onnx_axis(r, ct_onnx_attribute_int(r, "axis", flat ? 1 : -1), s.ndim, &axis));
    rows.dim[0] = ct_shape_count(&s, 0, axis);
    rows.dim[1] = ct_shape_count(&s, axis, -1);
    whole = flat && (rows.dim[1] != s.dim[axis]);
    if (whole) {
        CT_TRY(ct_onnx_reshape_to(r, v, &rows, "rows", &v));
        axis = 1;
    }
    CT_TRY(ct_onnx_emit(r, "Softmax", (whole || log_of) ? "softmax" : NULL, 1, &v, &v->shape, &v,
                        "softmax_param { axis: %d }", axis));
    if (whole) CT_TRY(ct_onnx_reshape_to(r, v, &s, log_of ? "shape" : NULL, log_of ? &v : NULL));
    if (!log_of) return CT_OK;
    return ct_onnx_emit(r, "Log", NULL, 1, &v, &s, NULL, "%s", "");
}

static ct_status layer_norm(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    const ct_onnx_operand *scale = ct_onnx_in(r, 1), *bias = ct_onnx_in(r, 2);
    bool found = r->step[r->at].n_in > 0; /* a pattern */
    float eps = found ? r->step[r->at].eps : ct_onnx_attribute_float(r, "epsilon", 1e-5f), *zeros;
    ct_shape s = { 0 };
    int axis;

    CT_TRY(ct_onnx_axis(r, ct_onnx_attribute_int(r, "axis", -1), x->shape.ndim, &axis));
    if (axis == 0) return ct_onnx_refuse(r, "axis 0 would mix the samples of a batch");
    for (int d = axis; d < x->shape.ndim; d++) s.dim[s.ndim++] = x->shape.dim[d];
    if ((scale != NULL) && ((scale->f == NULL) || !ct_shape_equal(&scale->shape, &s)))
        return ct_onnx_refuse(r, "Scale is %s constant floats", ct_shape_str(&s).text);
    if ((bias != NULL) && ((bias->f == NULL) || !ct_shape_equal(&bias->shape, &s)))
        return ct_onnx_refuse(r, "B is %s constant floats", ct_shape_str(&s).text);
    CT_TRY(ct_onnx_emit(r, "LayerNorm", NULL, 1, &x, &x->shape, NULL,
                        "layer_norm_param { axis: %d eps: %.9g%s }", axis, (double)eps,
                        (scale == NULL) ? " affine: false" : ""));
    if (scale == NULL) return CT_OK;
    CT_TRY(ct_onnx_give(r, 0, &s, scale->f, NULL));
    if (bias != NULL) return ct_onnx_give(r, 1, &s, bias->f, NULL);
    zeros = ct_onnx_numbers(r, ct_shape_count(&s, 0, -1)); /* they come zeroed */
    return (zeros != NULL) ? ct_onnx_give(r, 1, &s, zeros, zeros) : CT_ERR_NOMEM;
}

/* ---- sums along axes */

/* x with the axes that go at its end, in order, and how many those are. */
static ct_status axes_last(ct_onnx_reader *r, ct_onnx_operand **x, const bool *goes, int *n_p)
{
    ct_shape s = { .ndim = (*x)->shape.ndim };
    ct_text t = { 0 };
    bool still = true;
    int at = 0, n = 0;
    ct_status status = CT_OK;

    for (int pass = 0; pass < 2; pass++) {
        for (int d = 0; d < s.ndim; d++) {
            if (goes[d] != (pass == 1)) continue;
            still = still && (at == d);
            n += goes[d];
            s.dim[at++] = (*x)->shape.dim[d];
            ct_text_add(&t, " order: %d", d);
        }
    }
    if (!still)
        status = ct_onnx_emit(r, "Permute", "order", 1, x, &s, x, "permute_param {%s }",
                              (t.text != NULL) ? t.text : "");
    ct_text_destroy(&t);
    *n_p = n;
    return status;
}

/* Which axes go, and the operator's shape. */
static ct_status reduced(const ct_onnx_reader *r, const ct_shape *x, bool *goes, ct_shape *s_p)
{
    bool keep = ct_onnx_attribute_int(r, "keepdims", 1) != 0;
    int64_t axes[CT_MAX_DIM];
    ct_shape s = { 0 };
    int n;

    CT_TRY(ct_onnx_list_of(r, 1, "axes", &n, axes));
    if (((n == 0) && (ct_onnx_attribute_int(r, "noop_with_empty_axes", 0) != 0)) || (x->ndim == 0))
        return ct_onnx_refuse(r, "no axes are given");
    for (int i = 0; i < n; i++) {
        int axis;

        CT_TRY(ct_onnx_axis(r, axes[i], x->ndim, &axis));
        goes[axis] = true;
    }
    for (int d = 0; d < x->ndim; d++) {
        goes[d] = goes[d] || (n <= 0);
        if (!goes[d] || keep) s.dim[s.ndim++] = goes[d] ? 1 : x->dim[d];
    }
    *s_p = s;
    return CT_OK;
}

static ct_status reduce(ct_onnx_reader *r)
{
    static const struct {
        const char *op, *operation;
    } table[] = { { "ReduceL1", "ASUM" },
                  { "ReduceMean", "MEAN" },
                  { "ReduceSum", "SUM" },
                  { "ReduceSumSquare", "SUMSQ" } };
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    bool goes[CT_MAX_DIM] = { false }, pooled;
    ct_shape s = { 0 }, few;
    size_t k = 0;
    int n;

    while (strcmp(table[k].op, op_of(r)) != 0) k++;
    CT_TRY(reduced(r, &x->shape, goes, &s));
    pooled = (x->shape.ndim == 4) && !goes[0] && !goes[1] && goes[2] && goes[3];
    if (pooled && (s.ndim == 4) && (strcmp(table[k].operation, "MEAN") == 0))
        return ct_onnx_emit(r, "Pooling", NULL, 1, &x, &s, NULL,
                            "pooling_param { pool: AVE global_pooling: true }");
    CT_TRY(axes_last(r, &x, goes, &n));
    few = x->shape;
    few.ndim -= n;
    CT_TRY(ct_onnx_emit(r, "Reduction", ct_shape_equal(&few, &s) ? NULL : "reduced", 1, &x, &few,
                        &x, "reduction_param { operation: %s axis: %d }", table[k].operation,
                        few.ndim));
    return ct_shape_equal(&few, &s) ? CT_OK : ct_onnx_reshape_to(r, x, &s, NULL, NULL);
}

/* Of equal values a layer takes the last. */
static ct_status argmax(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    bool keep = ct_onnx_attribute_int(r, "keepdims", 1) != 0;
    ct_shape s = x->shape, few = { 0 };
    int axis;

    CT_TRY(ct_onnx_axis(r, ct_onnx_attribute_int(r, "axis", 0), s.ndim, &axis));
    if (ct_onnx_attribute_int(r, "select_last_index", 0) != 1)
        return ct_onnx_refuse(r, "attribute select_last_index is 0; of equal values the layer "
                                 "takes the last: 1 is taken");
    s.dim[axis] = 1;
    for (int d = 0; d < s.ndim; d++)
        if (d != axis) few.dim[few.ndim++] = s.dim[d];
    CT_TRY(ct_onnx_emit(r, "ArgMax", keep ? NULL : "place", 1, &x, &s, &x,
                        "argmax_param { axis: %d }", axis));
    return keep ? CT_OK : ct_onnx_reshape_to(r, x, &few, NULL, NULL);
}

const ct_onnx_op ct_onnx_matrix_ops[] = {
    { "ArgMax", argmax, 1, 1, " axis keepdims select_last_index " },
    { "Gemm", gemm, 2, 3, " alpha beta broadcast transA transB " },
    { "LayerNormalization", layer_norm, 1, 3, " axis epsilon stash_type " },
    { "LogSoftmax", softmax, 1, 1, " axis " },
    { "MatMul", matmul, 2, 3, " " },
    { "ReduceL1", reduce, 1, 2, " axes keepdims noop_with_empty_axes " },
    { "ReduceMean", reduce, 1, 2, " axes keepdims noop_with_empty_axes " },
    { "ReduceSum", reduce, 1, 2, " axes keepdims noop_with_empty_axes " },
    { "ReduceSumSquare", reduce, 1, 2, " axes keepdims noop_with_empty_axes " },
    { "Softmax", softmax, 1, 1, " axis " },
    { NULL, NULL, 0, 0, NULL },
};
