/* Layers that move values, reduce them or add and multiply bottoms, in ONNX's operators. Sizes are
 * those that the net has, but for the batch's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/onnx/onnx_impl.h"

static ct_status permute(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__PermuteParameter *p = l->layer->param->permute_param;
    int n = ct_onnx_bottom_shape(l, 0)->ndim, at = 0;
    bool named[CT_MAX_DIM] = { false };
    int64_t order[CT_MAX_DIM];

    for (size_t i = 0; (p != NULL) && (i < p->n_order); i++) {
        order[at++] = p->order[i];
        named[p->order[i]] = true;
    }
    for (int i = 0; i < n; i++)
        if (!named[i]) order[at++] = i;
    ct_onnx_from(x, l, "Transpose", NULL);
    ct_onnx_to(x, l, NULL);
    ct_onnx_ints(x, "perm", n, order);
    ct_onnx_end(x);
    return CT_OK;
}

static ct_status reshape(ct_onnx *x, const ct_onnx_layer *l)
{
    ct_onnx_reshape(x, l, 0, NULL, "shape", ct_onnx_top_shape(l), NULL);
    return CT_OK;
}

static ct_status shuffle(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__ShuffleChannelParameter *p = l->layer->param->shuffle_channel_param;
    const ct_shape *b = ct_onnx_bottom_shape(l, 0);
    int64_t group = (p != NULL) ? p->group : 1, order[CT_MAX_DIM];
    ct_shape s = { .ndim = b->ndim + 1 };

    if (s.ndim > CT_MAX_DIM) return ct_onnx_no_form(l, "so many axes");
    s.dim[0] = b->dim[0];
    s.dim[1] = group;
    s.dim[2] = b->dim[1] / group;
    for (int i = 2; i < b->ndim; i++) s.dim[i + 1] = b->dim[i];
    for (int i = 0; i < s.ndim; i++) order[i] = (i == 1) ? 2 : (i == 2) ? 1 : i;
    ct_onnx_reshape(x, l, 0, NULL, "groups", &s, "grouped");
    ct_onnx_from(x, l, "Transpose", "grouped");
    ct_onnx_to(x, l, "turned");
    ct_onnx_ints(x, "perm", s.ndim, order);
    ct_onnx_end(x);
    ct_onnx_reshape(x, l, -1, "turned", "shape", b, NULL);
    return CT_OK;
}

static int axis_of(const ct_onnx_layer *l, int axis)
{
    return (axis < 0) ? axis + ct_onnx_bottom_shape(l, 0)->ndim : axis;
}

static ct_status slice(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__SliceParameter none = CT__SLICE_PARAMETER__INIT;
    const Ct__SliceParameter *p =
        (l->layer->param->slice_param != NULL) ? l->layer->param->slice_param : &none;
    int axis = p->has_slice_dim ? (int)p->slice_dim : axis_of(l, p->axis);
    int64_t *size = malloc((size_t)l->layer->n_top * sizeof(*size));

    if (size == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", l->layer->name);
    for (int i = 0; i < l->layer->n_top; i++) size[i] = l->in->top[i]->data.shape.dim[axis];
    ct_onnx_from(x, l, "Split", NULL);
    ct_onnx_list(x, l, "sizes", l->layer->n_top, size);
    free(size);
    for (int i = 0; i < l->layer->n_top; i++) ct_onnx_top(x, l, i);
    ct_onnx_int(x, "axis", axis);
    ct_onnx_end(x);
    return CT_OK;
}

static ct_status crop(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__CropParameter none = CT__CROP_PARAMETER__INIT;
    const Ct__CropParameter *p =
        (l->layer->param->crop_param != NULL) ? l->layer->param->crop_param : &none;
    int axis = axis_of(l, p->axis), n = ct_onnx_bottom_shape(l, 0)->ndim - axis;
    int64_t start[CT_MAX_DIM], end[CT_MAX_DIM], axes[CT_MAX_DIM];

    for (int i = 0; i < n; i++) {
        start[i] = (p->n_offset == 0) ? 0 : p->offset[(p->n_offset == 1) ? 0 : i];
        end[i] = start[i] + ct_onnx_top_shape(l)->dim[axis + i];
        axes[i] = axis + i;
    }
    ct_onnx_from(x, l, "Slice", NULL);
    ct_onnx_list(x, l, "start", n, start);
    ct_onnx_list(x, l, "end", n, end);
    ct_onnx_list(x, l, "axes", n, axes);
    ct_onnx_to(x, l, NULL);
    ct_onnx_end(x);
    return CT_OK;
}

static ct_status tile(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__TileParameter *p = l->layer->param->tile_param;
    int n = ct_onnx_bottom_shape(l, 0)->ndim;
    int64_t times[CT_MAX_DIM];

    for (int i = 0; i < n; i++) times[i] = (i == axis_of(l, p->axis)) ? p->tiles : 1;
    ct_onnx_from(x, l, "Tile", NULL);
    ct_onnx_list(x, l, "times", n, times);
    ct_onnx_to(x, l, NULL);
    ct_onnx_end(x);
    return CT_OK;
}

static ct_status reduction(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__ReductionParameter none = CT__REDUCTION_PARAMETER__INIT;
    const Ct__ReductionParameter *p =
        (l->layer->param->reduction_param != NULL) ? l->layer->param->reduction_param : &none;
    bool sum = p->operation == CT__REDUCTION_PARAMETER__REDUCTION_OP__SUM;
    const char *op = sum                                                             ? "ReduceSum"
                     : (p->operation == CT__REDUCTION_PARAMETER__REDUCTION_OP__ASUM) ? "ReduceL1"
                     : (p->operation == CT__REDUCTION_PARAMETER__REDUCTION_OP__SUMSQ)
                         ? "ReduceSumSquare"
                         : "ReduceMean";
    int axis = axis_of(l, p->axis), n = ct_onnx_bottom_shape(l, 0)->ndim - axis;
    int64_t axes[CT_MAX_DIM];

    for (int i = 0; i < n; i++) axes[i] = axis + i;
    ct_onnx_from(x, l, op, NULL);
    if (sum) ct_onnx_list(x, l, "axes", n, axes); /* an input from opset 13 on; of the others not */
    ct_onnx_to(x, l, "reduced");
    if (!sum) ct_onnx_ints(x, "axes", n, axes);
    ct_onnx_int(x, "keepdims", 0);
    ct_onnx_end(x);
    ct_onnx_by_number(x, l, "Mul", "reduced", "coeff", p->coeff, NULL);
    return CT_OK;
}

static void cast(ct_onnx *x, const ct_onnx_layer *l, const char *input, int type,
                 const char *output)
{
    ct_onnx_from(x, l, "Cast", input);
    ct_onnx_to(x, l, output);
    ct_onnx_int(x, "to", type);
    ct_onnx_end(x);
}

/* Of equal values Caffe takes the last. */
static ct_status argmax(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__ArgMaxParameter *p = l->layer->param->argmax_param;

    if ((p == NULL) || !p->has_axis || p->out_max_val || (p->top_k != 1))
        return ct_onnx_no_form(l, "other than the place of one largest value along an axis");
    ct_onnx_from(x, l, "ArgMax", NULL);
    ct_onnx_to(x, l, "place");
    ct_onnx_int(x, "axis", axis_of(l, p->axis));
    ct_onnx_int(x, "keepdims", 1);
    ct_onnx_int(x, "select_last_index", 1);
    ct_onnx_end(x);
    cast(x, l, "place", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, NULL);
    return CT_OK;
}

static ct_status threshold(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__ThresholdParameter *p = l->layer->param->threshold_param;

    ct_onnx_by_number(x, l, "Greater", NULL, "threshold", (p != NULL) ? p->threshold : 0.0f,
                      "above");
    cast(x, l, "above", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, NULL);
    return CT_OK;
}

static ct_status embed(ct_onnx *x, const ct_onnx_layer *l)
{
    bool bias = l->layer->n_weight == 2;

    cast(x, l, NULL, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, "index");
    ct_onnx_begin(x, l, "Gather");
    ct_onnx_weight(x, l, 0, NULL);
    ct_onnx_part(x, l, "index", false);
    ct_onnx_to(x, l, bias ? "rows" : NULL);
    ct_onnx_end(x);
    if (!bias) return CT_OK;
    ct_onnx_from(x, l, "Add", "rows");
    ct_onnx_weight(x, l, 1, NULL);
    ct_onnx_to(x, l, NULL);
    ct_onnx_end(x);
    return CT_OK;
}

/* The table as input, learned or of sines: Vaswani et al. 2017. */
static void table_of_positions(ct_onnx *x, const ct_onnx_layer *l, const ct_shape *table)
{
    int64_t c = ct_shape_count(table, 1, -1);
    float *v;

    if (l->layer->n_weight > 0) {
        ct_onnx_weight(x, l, 0, table);
        return;
    }
    v = malloc((size_t)(table->dim[0] * c + 1) * sizeof(*v));
    if (v == NULL) {
        x->failed = true;
        return;
    }
    for (int64_t p = 0; p < table->dim[0]; p++) {
        for (int64_t i = 0; i < c; i++) {
            int64_t even = i - i % 2;
            double angle = (double)p * pow(10000.0, -(double)even / (double)c);

            v[p * c + i] = (float)((i % 2 == 0) ? sin(angle) : cos(angle));
        }
    }
    ct_onnx_floats(x, l, "sines", table, v);
    free(v);
}

/* Rows of the table: the first ones, or those that bottom 1 names. */
static ct_status position(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__PositionParameter *p = l->layer->param->position_param;
    const ct_shape *b = ct_onnx_bottom_shape(l, 0);
    const int64_t first = 0;
    ct_shape table = *b;

    for (int i = 1; i + 1 < b->ndim; i++) table.dim[i] = b->dim[i + 1];
    table.ndim = b->ndim - 1;
    table.dim[0] = ((p != NULL) && (p->max_length > 0)) ? (int64_t)p->max_length : b->dim[1];
    if (l->layer->n_bottom > 1) {
        ct_onnx_begin(x, l, "Cast");
        ct_onnx_bottom(x, l, 1);
        ct_onnx_part(x, l, "index", true);
        ct_onnx_int(x, "to", ONNX__TENSOR_PROTO__DATA_TYPE__INT64);
        ct_onnx_end(x);
        ct_onnx_begin(x, l, "Gather");
        table_of_positions(x, l, &table);
        ct_onnx_part(x, l, "index", false);
    } else {
        ct_onnx_begin(x, l, "Slice");
        table_of_positions(x, l, &table);
        ct_onnx_list(x, l, "from", 1, &first);
        ct_onnx_list(x, l, "to", 1, &b->dim[1]);
    }
    ct_onnx_part(x, l, "rows", true);
    ct_onnx_end(x);
    ct_onnx_by_part(x, l, "Add", NULL, "rows", NULL);
    return CT_OK;
}

/* Bottom i, with its last two axes turned where that is wanted, as part `name`. */
static void turn(ct_onnx *x, const ct_onnx_layer *l, int i, bool turned, const char *name)
{
    int n = ct_onnx_bottom_shape(l, i)->ndim;
    int64_t order[CT_MAX_DIM];

    if (!turned) return;
    for (int k = 0; k < n; k++) order[k] = (k < n - 2) ? k : (k == n - 2) ? n - 1 : n - 2;
    ct_onnx_begin(x, l, "Transpose");
    ct_onnx_bottom(x, l, i);
    ct_onnx_part(x, l, name, true);
    ct_onnx_ints(x, "perm", n, order);
    ct_onnx_end(x);
}

static ct_status matmul(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__MatMulParameter none = CT__MAT_MUL_PARAMETER__INIT;
    const Ct__MatMulParameter *p =
        (l->layer->param->matmul_param != NULL) ? l->layer->param->matmul_param : &none;
    bool scaled = p->alpha != 1.0f, turned[2] = { p->transpose_a, p->transpose_b };
    static const char *const name[2] = { "a", "b" };

    for (int i = 0; i < 2; i++) turn(x, l, i, turned[i], name[i]);
    ct_onnx_begin(x, l, "MatMul");
    for (int i = 0; i < 2; i++) {
        if (turned[i])
            ct_onnx_part(x, l, name[i], false);
        else
            ct_onnx_bottom(x, l, i);
    }
    ct_onnx_to(x, l, scaled ? "product" : NULL);
    ct_onnx_end(x);
    if (scaled) ct_onnx_by_number(x, l, "Mul", "product", "alpha", p->alpha, NULL);
    return CT_OK;
}

/* ---- bottoms, or weights, that meet some of the axes of bottom 0 */

/* bottom 0, or the part `input`, OP with weight i, or with bottom 1 where i < 0. */
static void meet(ct_onnx *x, const ct_onnx_layer *l, const char *op, const char *input, int i,
                 int axis, const char *output)
{
    const ct_shape *small = (i >= 0) ? &l->layer->weight[i].shape : ct_onnx_bottom_shape(l, 1);
    ct_shape shape = (small->ndim == 0) ? *small : ct_onnx_spread(l, small, axis);

    if (i < 0) ct_onnx_reshape(x, l, 1, NULL, "shape", &shape, "spread");
    ct_onnx_from(x, l, op, input);
    if (i < 0)
        ct_onnx_part(x, l, "spread", false);
    else
        ct_onnx_weight(x, l, i, &shape);
    ct_onnx_to(x, l, output);
    ct_onnx_end(x);
}

static ct_status scale(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__ScaleParameter none = CT__SCALE_PARAMETER__INIT;
    const Ct__ScaleParameter *p =
        (l->layer->param->scale_param != NULL) ? l->layer->param->scale_param : &none;
    int learned = (l->layer->n_bottom == 1) ? 1 : 0, axis = axis_of(l, p->axis);
    bool bias = l->layer->n_weight > learned;

    meet(x, l, "Mul", NULL, learned - 1, axis, bias ? "scaled" : NULL);
    if (bias) meet(x, l, "Add", "scaled", learned, axis, NULL);
    return CT_OK;
}

static ct_status bias(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__BiasParameter none = CT__BIAS_PARAMETER__INIT;
    const Ct__BiasParameter *p =
        (l->layer->param->bias_param != NULL) ? l->layer->param->bias_param : &none;

    meet(x, l, "Add", NULL, (l->layer->n_bottom == 1) ? 0 : -1, axis_of(l, p->axis), NULL);
    return CT_OK;
}

static ct_status axpy(ct_onnx *x, const ct_onnx_layer *l)
{
    const ct_shape *b = ct_onnx_bottom_shape(l, 1);
    ct_shape shape = { .ndim = b->ndim, .dim = { b->dim[0], b->dim[1] } };

    for (int i = 2; i < shape.ndim; i++) shape.dim[i] = 1;
    ct_onnx_reshape(x, l, 0, NULL, "shape", &shape, "factor");
    ct_onnx_begin(x, l, "Mul");
    ct_onnx_bottom(x, l, 1);
    ct_onnx_part(x, l, "factor", false);
    ct_onnx_to(x, l, "product");
    ct_onnx_end(x);
    ct_onnx_begin(x, l, "Add");
    ct_onnx_part(x, l, "product", false);
    ct_onnx_bottom(x, l, 2);
    ct_onnx_to(x, l, NULL);
    ct_onnx_end(x);
    return CT_OK;
}

/* ---- other sizes */

static ct_status upsample(ct_onnx *x, const ct_onnx_layer *l)
{
    const ct_shape *b = ct_onnx_bottom_shape(l, 0), *t = ct_onnx_top_shape(l);
    float factor[4] = { 1, 1, 1, 1 };

    if (l->layer->n_bottom != 1) return ct_onnx_no_form(l, "a second bottom");
    for (int i = 2; i < 4; i++) factor[i] = (float)t->dim[i] / (float)b->dim[i];
    ct_onnx_from(x, l, "Resize", NULL);
    ct_onnx_input(x, ""); /* no region */
    ct_onnx_floats(x, l, "factor", &(ct_shape){ 1, { 4 } }, factor);
    ct_onnx_to(x, l, NULL);
    ct_onnx_string(x, "coordinate_transformation_mode", "asymmetric");
    ct_onnx_string(x, "mode", "nearest");
    ct_onnx_string(x, "nearest_mode", "floor");
    ct_onnx_end(x);
    return CT_OK;
}

/* Part "sizes": the first two of bottom 0, which has any batch, then those of the top. */
static void interp_sizes(ct_onnx *x, const ct_onnx_layer *l)
{
    const int64_t first = 0, behind = 2;

    ct_onnx_unary(x, l, "Shape", NULL, "shape");
    ct_onnx_from(x, l, "Slice", "shape");
    ct_onnx_list(x, l, "from", 1, &first);
    ct_onnx_list(x, l, "to", 1, &behind);
    ct_onnx_to(x, l, "planes");
    ct_onnx_end(x);
    ct_onnx_from(x, l, "Concat", "planes");
    ct_onnx_list(x, l, "plane", 2, ct_onnx_top_shape(l)->dim + 2);
    ct_onnx_to(x, l, "sizes");
    ct_onnx_int(x, "axis", 0);
    ct_onnx_end(x);
}

static ct_status interp(ct_onnx *x, const ct_onnx_layer *l)
{
    const Ct__InterpParameter *p = l->layer->param->interp_param;

    if ((p != NULL) && ((p->pad_beg != 0) || (p->pad_end != 0)))
        return ct_onnx_no_form(l, "pad_beg or pad_end");
    interp_sizes(x, l);
    ct_onnx_from(x, l, "Resize", NULL);
    ct_onnx_input(x, ""); /* no region, no factors */
    ct_onnx_input(x, "");
    ct_onnx_part(x, l, "sizes", false);
    ct_onnx_to(x, l, NULL);
    ct_onnx_string(x, "coordinate_transformation_mode", "align_corners");
    ct_onnx_string(x, "mode", "linear");
    ct_onnx_end(x);
    return CT_OK;
}

const ct_onnx_form ct_onnx_moves[] = {
    { "ArgMax", argmax },
    { "Axpy", axpy },
    { "Bias", bias },
    { "Crop", crop },
    { "Embed", embed },
    { "Interp", interp },
    { "MatMul", matmul },
    { "Permute", permute },
    { "Position", position },
    { "Reduction", reduction },
    { "Reshape", reshape },
    { "Scale", scale },
    { "ShuffleChannel", shuffle },
    { "Slice", slice },
    { "Threshold", threshold },
    { "Tile", tile },
    { "Upsample", upsample },
    { NULL, NULL },
};
