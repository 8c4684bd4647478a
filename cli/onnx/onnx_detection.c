/* Boxes of SSD in ONNX's operators. PriorBox is a table, since it depends on shapes alone. Of
 * DetectionOutput each class takes its best candidates, NonMaxSuppression leaves out what overlaps
 * a better one, and the best of each sample become rows, in the layer's order. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "cli/onnx/onnx_impl.h"

/* The layer itself makes its table: it runs on the CPU, and reads shapes alone. */
static ct_status prior_box(ct_onnx *x, const ct_onnx_layer *l)
{
    ct_blob table = *l->in->top[0], *top[1] = { &table };
    ct_instance in = *l->in;
    ct_exec ex = { .dev = l->layer->dev, .phase = l->layer->phase };
    float *v = malloc((size_t)ct_tensor_count(&table.data) * sizeof(*v) + 1);
    ct_status status;

    if (v == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", l->layer->name);
    table.data.data = v;
    in.top = top;
    status = l->layer->ops->forward(l->layer, &in, &ex);
    if (status == CT_OK) ct_onnx_constant_top(x, l, v);
    free(v);
    return status;
}

/* ---- DetectionOutput */

typedef struct detection_form {
    const Ct__DetectionOutputParameter *p;
    int64_t n, n_class, loc_class, n_prior;
    int64_t limit, rows; /* limit: candidates of a class; rows: of a sample */
    float threshold, overlap;
} detection_form;

static detection_form form_of(const ct_onnx_layer *l)
{
    const Ct__DetectionOutputParameter *p = l->layer->param->detection_output_param;
    const Ct__NonMaximumSuppressionParameter *nms = p->nms_param;
    detection_form f = { .p = p, .n = ct_onnx_bottom_shape(l, 0)->dim[0] };

    f.n_class = p->num_classes;
    f.loc_class = p->share_location ? 1 : f.n_class;
    f.n_prior = ct_shape_count(ct_onnx_bottom_shape(l, 2), 0, -1) / 8;
    f.limit =
        ((nms != NULL) && (nms->top_k > 0) && (nms->top_k < f.n_prior)) ? nms->top_k : f.n_prior;
    f.rows = ct_onnx_top_shape(l)->dim[2] / ((f.n > 0) ? f.n : 1);
    f.threshold = p->has_confidence_threshold ? p->confidence_threshold : -FLT_MAX;
    f.overlap = (nms != NULL) ? fminf(nms->nms_threshold, 1.0f) : 0.3f;
    return f;
}

static void halves(ct_onnx *x, const ct_onnx_layer *l, const char *from, int axis, int64_t half,
                   const char *a, const char *b)
{
    const int64_t size[2] = { half, half };

    ct_onnx_from(x, l, "Split", from);
    ct_onnx_list(x, l, "halves", 2, size);
    ct_onnx_part(x, l, a, true);
    ct_onnx_part(x, l, b, true);
    ct_onnx_int(x, "axis", axis);
    ct_onnx_end(x);
}

static void transposed(ct_onnx *x, const ct_onnx_layer *l, const char *from, int n,
                       const int64_t *perm, const char *to)
{
    ct_onnx_from(x, l, "Transpose", from);
    ct_onnx_to(x, l, to);
    ct_onnx_ints(x, "perm", n, perm);
    ct_onnx_end(x);
}

static void tiled(ct_onnx *x, const ct_onnx_layer *l, const char *from, int axis, int64_t times,
                  const char *to)
{
    int64_t n[4] = { 1, 1, 1, 1 };

    n[axis] = times;
    ct_onnx_from(x, l, "Tile", from);
    ct_onnx_list(x, l, "times", 4, n);
    ct_onnx_to(x, l, to);
    ct_onnx_end(x);
}

static void prior_sides(ct_onnx *x, const ct_onnx_layer *l)
{
    halves(x, l, "prior", 3, 2, "prior_low", "prior_high");
    ct_onnx_by_part(x, l, "Sub", "prior_high", "prior_low", "prior_size");
}

/* Centres and sides: part "boxes" = samples x priors x sets of locations x 4. */
static void from_centres(ct_onnx *x, const ct_onnx_layer *l)
{
    prior_sides(x, l);
    ct_onnx_by_part(x, l, "Add", "prior_low", "prior_high", "prior_sum");
    ct_onnx_by_number(x, l, "Div", "prior_sum", "two", 2.0f, "prior_centre");
    halves(x, l, "code", 3, 2, "code_centre", "code_size");
    ct_onnx_by_part(x, l, "Mul", "code_centre", "prior_size", "moved");
    ct_onnx_by_part(x, l, "Add", "prior_centre", "moved", "centre");
    ct_onnx_unary(x, l, "Exp", "code_size", "growth");
    ct_onnx_by_part(x, l, "Mul", "growth", "prior_size", "size");
    ct_onnx_by_number(x, l, "Div", "size", "two", 2.0f, "half");
    ct_onnx_by_part(x, l, "Sub", "centre", "half", "low");
    ct_onnx_by_part(x, l, "Add", "centre", "half", "high");
    ct_onnx_concat(x, l, "low", "high", 3, "boxes");
}

/* Corners, in units of the prior's sides or of the image. */
static void from_corners(ct_onnx *x, const ct_onnx_layer *l, bool sizes)
{
    const char *moved = "code";

    if (sizes) {
        prior_sides(x, l);
        ct_onnx_concat(x, l, "prior_size", "prior_size", 3, "prior_sizes");
        ct_onnx_by_part(x, l, "Mul", "code", "prior_sizes", "moved");
        moved = "moved";
    }
    ct_onnx_by_part(x, l, "Add", "prior", moved, "boxes");
}

/* Part "of_class": the boxes of each class, samples x classes x priors x 4. */
static void decode(ct_onnx *x, const ct_onnx_layer *l, const detection_form *f)
{
    static const int64_t by_class[4] = { 0, 2, 1, 3 };
    const ct_shape prior = { 4, { 2, f->n_prior, 1, 4 } };
    const ct_shape code = { 4, { f->n, f->n_prior, f->loc_class, 4 } };
    bool plain = f->p->variance_encoded_in_target, one = f->loc_class == 1;

    ct_onnx_reshape(x, l, 2, NULL, "prior_shape", &prior, "priors");
    halves(x, l, "priors", 0, 1, "prior", "variance");
    ct_onnx_reshape(x, l, 0, NULL, "code_shape", &code, plain ? "code" : "in_variances");
    if (!plain) ct_onnx_by_part(x, l, "Mul", "in_variances", "variance", "code");
    if (f->p->code_type == CT__PRIOR_BOX_PARAMETER__CODE_TYPE__CENTER_SIZE)
        from_centres(x, l);
    else
        from_corners(x, l, f->p->code_type == CT__PRIOR_BOX_PARAMETER__CODE_TYPE__CORNER_SIZE);
    transposed(x, l, "boxes", 4, by_class, one ? "of_all" : "of_class");
    if (one) tiled(x, l, "of_all", 1, f->n_class, "of_class");
}

static void largest(ct_onnx *x, const ct_onnx_layer *l, const char *from, int64_t k, int axis,
                    const char *values, const char *places)
{
    ct_onnx_from(x, l, "TopK", from);
    ct_onnx_list(x, l, "most", 1, &k);
    ct_onnx_part(x, l, values, true);
    ct_onnx_part(x, l, places, true);
    ct_onnx_int(x, "axis", axis);
    ct_onnx_end(x);
}

/* Parts "scores", samples x classes x candidates, the best first, and "candidates", their boxes.
 * The background has none: its scores are minus infinity. */
static ct_status rank(ct_onnx *x, const ct_onnx_layer *l, const detection_form *f)
{
    static const int64_t by_class[3] = { 0, 2, 1 }, last = 3;
    const ct_shape scores = { 3, { f->n, f->n_prior, f->n_class } };
    int64_t background = f->p->background_label_id;
    bool drops = (background >= 0) && (background < f->n_class);
    float *v = calloc((size_t)f->n_class, sizeof(*v));

    if (v == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for layer \"%s\"", l->layer->name);
    ct_onnx_reshape(x, l, 1, NULL, "score_shape", &scores, "score_rows");
    transposed(x, l, "score_rows", 3, by_class, drops ? "with_background" : "of_priors");
    if (drops) {
        v[background] = -INFINITY;
        ct_onnx_from(x, l, "Add", "with_background");
        ct_onnx_floats(x, l, "background", &(ct_shape){ 3, { 1, f->n_class, 1 } }, v);
        ct_onnx_to(x, l, "of_priors");
        ct_onnx_end(x);
    }
    free(v);
    largest(x, l, "of_priors", f->limit, 2, "scores", "places");
    ct_onnx_from(x, l, "Unsqueeze", "places");
    ct_onnx_list(x, l, "axis", 1, &last);
    ct_onnx_to(x, l, "place");
    ct_onnx_end(x);
    tiled(x, l, "place", 3, 4, "place_of_each");
    ct_onnx_from(x, l, "GatherElements", "of_class");
    ct_onnx_part(x, l, "place_of_each", false);
    ct_onnx_to(x, l, "candidates");
    ct_onnx_int(x, "axis", 2);
    ct_onnx_end(x);
    return CT_OK;
}

/* Part "upright": candidates with sides of at least 0. A box whose sides are negative overlaps
 * none; the operator would exchange its corners. */
static const char *upright(ct_onnx *x, const ct_onnx_layer *l, const detection_form *f)
{
    if (f->p->code_type == CT__PRIOR_BOX_PARAMETER__CODE_TYPE__CENTER_SIZE) return "candidates";
    halves(x, l, "candidates", 3, 2, "first", "second");
    ct_onnx_by_part(x, l, "Max", "first", "second", "above");
    ct_onnx_concat(x, l, "first", "above", 3, "upright");
    return "upright";
}

/* Zeros of the shape that part `like` has. */
static void zeros(ct_onnx *x, const ct_onnx_layer *l, const char *like, const char *shape,
                  const char *to)
{
    ct_onnx_unary(x, l, "Shape", like, shape);
    ct_onnx_unary(x, l, "ConstantOfShape", shape, to);
}

/* Part "kept": the scores of candidates that overlap no better one, of others minus infinity;
 * samples x (classes x candidates). */
static void suppress(ct_onnx *x, const ct_onnx_layer *l, const detection_form *f)
{
    const int64_t zero = 0, one = 1;
    const ct_shape boxes = { 3, { f->n * f->n_class, f->limit, 4 } };
    const ct_shape scores = { 3, { f->n * f->n_class, 1, f->limit } };
    const ct_shape flat = { 2, { f->n, f->n_class * f->limit } };

    ct_onnx_reshape(x, l, -1, upright(x, l, f), "nms_box_shape", &boxes, "nms_boxes");
    ct_onnx_reshape(x, l, -1, "scores", "nms_score_shape", &scores, "nms_scores");
    ct_onnx_from(x, l, "NonMaxSuppression", "nms_boxes");
    ct_onnx_part(x, l, "nms_scores", false);
    ct_onnx_list(x, l, "nms_most", 1, &f->limit);
    ct_onnx_floats(x, l, "nms_threshold", &(ct_shape){ 1, { 1 } }, &f->overlap);
    ct_onnx_floats(x, l, "score_threshold", &(ct_shape){ 1, { 1 } }, &f->threshold);
    ct_onnx_to(x, l, "selected");
    ct_onnx_end(x);
    zeros(x, l, "nms_scores", "nms_shape", "none_kept");
    ct_onnx_unary(x, l, "Shape", "selected", "selected_shape");
    ct_onnx_from(x, l, "Slice", "selected_shape");
    ct_onnx_list(x, l, "from", 1, &zero);
    ct_onnx_list(x, l, "to", 1, &one);
    ct_onnx_to(x, l, "n_selected");
    ct_onnx_end(x);
    ct_onnx_unary(x, l, "ConstantOfShape", "n_selected", "no_marks");
    ct_onnx_by_number(x, l, "Add", "no_marks", "mark", 1.0f, "marks");
    ct_onnx_from(x, l, "ScatterND", "none_kept");
    ct_onnx_part(x, l, "selected", false);
    ct_onnx_part(x, l, "marks", false);
    ct_onnx_to(x, l, "marked");
    ct_onnx_end(x);
    ct_onnx_reshape(x, l, -1, "marked", "flat_shape", &flat, "flat_marks");
    ct_onnx_reshape(x, l, -1, "scores", "flat_shape", &flat, "flat_scores");
    ct_onnx_by_number(x, l, "Greater", "flat_marks", "no_mark", 0.0f, "is_kept");
    ct_onnx_from(x, l, "Where", "is_kept");
    ct_onnx_part(x, l, "flat_scores", false);
    ct_onnx_number(x, l, "not_kept", -INFINITY);
    ct_onnx_to(x, l, "kept");
    ct_onnx_end(x);
}

static void to_floats(ct_onnx *x, const ct_onnx_layer *l, const char *from, const char *to)
{
    ct_onnx_from(x, l, "Cast", from);
    ct_onnx_to(x, l, to);
    ct_onnx_int(x, "to", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    ct_onnx_end(x);
}

/* Part "found": sample, class and candidate of the best of each sample, in this order. */
static void pick(ct_onnx *x, const ct_onnx_layer *l, const detection_form *f)
{
    static const int64_t turned[2] = { 1, 0 };
    const ct_shape each = { 3, { f->n, f->n_class, f->limit } };

    largest(x, l, "kept", f->rows, 1, "best", "best_places");
    ct_onnx_by_number(x, l, "Greater", "best", "least", -FLT_MAX, "is_found");
    to_floats(x, l, "is_found", "found_marks");
    zeros(x, l, "kept", "kept_shape", "none_found");
    ct_onnx_from(x, l, "ScatterElements", "none_found");
    ct_onnx_part(x, l, "best_places", false);
    ct_onnx_part(x, l, "found_marks", false);
    ct_onnx_to(x, l, "flat_found");
    ct_onnx_int(x, "axis", 1);
    ct_onnx_end(x);
    ct_onnx_reshape(x, l, -1, "flat_found", "each_shape", &each, "each_found");
    ct_onnx_unary(x, l, "NonZero", "each_found", "found_columns");
    transposed(x, l, "found_columns", 2, turned, "found");
}

/* Top 0: rows of what is found, and -1 behind them. */
static void to_rows(ct_onnx *x, const ct_onnx_layer *l)
{
    const int64_t zero = 0, one = 1, two = 2, before[2] = { 0, 0 };
    const int64_t shape[4] = { 1, 1, -1, 7 };

    ct_onnx_by_part(x, l, "GatherND", "scores", "found", "score");
    ct_onnx_from(x, l, "Unsqueeze", "score");
    ct_onnx_list(x, l, "axis", 1, &one);
    ct_onnx_to(x, l, "score_column");
    ct_onnx_end(x);
    ct_onnx_by_part(x, l, "GatherND", "candidates", "found", "box");
    ct_onnx_from(x, l, "Slice", "found");
    ct_onnx_list(x, l, "from", 1, &zero);
    ct_onnx_list(x, l, "to", 1, &two);
    ct_onnx_list(x, l, "axis", 1, &one);
    ct_onnx_to(x, l, "sample_and_class");
    ct_onnx_end(x);
    to_floats(x, l, "sample_and_class", "labels");
    ct_onnx_concat(x, l, "labels", "score_column", 1, "judged");
    ct_onnx_concat(x, l, "judged", "box", 1, "rows");
    ct_onnx_unary(x, l, "Size", "best", "n_all");
    ct_onnx_unary(x, l, "Size", "score", "n_found");
    ct_onnx_by_part(x, l, "Sub", "n_all", "n_found", "n_none");
    ct_onnx_from(x, l, "Unsqueeze", "n_none");
    ct_onnx_list(x, l, "axis", 1, &zero);
    ct_onnx_to(x, l, "behind");
    ct_onnx_end(x);
    ct_onnx_begin(x, l, "Concat");
    ct_onnx_list(x, l, "before", 2, before);
    ct_onnx_part(x, l, "behind", false);
    ct_onnx_list(x, l, "beside", 1, &zero);
    ct_onnx_to(x, l, "pads");
    ct_onnx_int(x, "axis", 0);
    ct_onnx_end(x);
    ct_onnx_from(x, l, "Pad", "rows");
    ct_onnx_part(x, l, "pads", false);
    ct_onnx_number(x, l, "nothing", -1.0f);
    ct_onnx_to(x, l, "all_rows");
    ct_onnx_end(x);
    ct_onnx_from(x, l, "Reshape", "all_rows");
    ct_onnx_list(x, l, "shape", 4, shape);
    ct_onnx_to(x, l, NULL);
    ct_onnx_end(x);
}

static ct_status detection_output(ct_onnx *x, const ct_onnx_layer *l)
{
    detection_form f = form_of(l);

    if ((f.p->nms_param != NULL) && (f.p->nms_param->eta < 1.0f))
        return ct_onnx_no_form(l, "an eta below 1, with which the threshold falls,");
    decode(x, l, &f);
    CT_TRY(rank(x, l, &f));
    suppress(x, l, &f);
    pick(x, l, &f);
    to_rows(x, l);
    return CT_OK;
}

const ct_onnx_form ct_onnx_detection[] = {
    { "DetectionOutput", detection_output },
    { "PriorBox", prior_box },
    { NULL, NULL },
};
