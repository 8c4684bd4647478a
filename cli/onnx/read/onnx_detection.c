/* Detections, as our own files have them (cli/onnx/onnx_detection.c), which become a
 * DetectionOutput layer again. They are some sixty nodes; each is a rule below, and all must be
 * there as the rules say. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/onnx/read/onnx_read.h"

/* ---- the rules: from the rows back to locations, scores and priors */

typedef struct rule {
    const char *out; /* parts that the node makes */
    const char *op;
    /* Parts that it reads; "[…]": a constant of such whole numbers, where a capital letter stands
     * for any that is the same wherever it stands; "<V>": a constant of that one number; "*NAME":
     * any constant. */
    const char *in[5];
    const char *attribute; /* with its whole numbers: the only one; NULL: none */
} rule;

/* Two rules of a part are tried one after the other. Parts without a rule are read from outside. */
static const rule rules[] = {
    { "out", "Reshape", { "all_rows", "[1 1 -1 7]" }, NULL },
    { "all_rows", "Pad", { "rows", "pads", "<-1>" }, NULL },
    { "pads", "Concat", { "[0 0]", "behind", "[0]" }, "axis 0" },
    { "behind", "Unsqueeze", { "n_none", "[0]" }, NULL },
    { "n_none", "Sub", { "n_all", "n_found" }, NULL },
    { "n_all", "Size", { "best" }, NULL },
    { "n_found", "Size", { "score" }, NULL },
    { "rows", "Concat", { "judged", "box" }, "axis 1" },
    { "judged", "Concat", { "labels", "score_column" }, "axis 1" },
    { "labels", "Cast", { "sample_and_class" }, "to 1" },
    { "sample_and_class", "Slice", { "found", "[0]", "[2]", "[1]" }, NULL },
    { "score_column", "Unsqueeze", { "score", "[1]" }, NULL },
    { "score", "GatherND", { "scores", "found" }, NULL },
    { "box", "GatherND", { "candidates", "found" }, NULL },
    /* the best of each sample */
    { "found", "Transpose", { "found_columns" }, "perm 1 0" },
    { "found_columns", "NonZero", { "each_found" }, NULL },
    { "each_found", "Reshape", { "flat_found", "[-1 C K]" }, NULL },
    { "flat_found", "ScatterElements", { "none_found", "best_places", "found_marks" }, "axis 1" },
    { "none_found", "ConstantOfShape", { "kept_shape" }, NULL },
    { "kept_shape", "Shape", { "kept" }, NULL },
    { "found_marks", "Cast", { "is_found" }, "to 1" },
    { "is_found", "Greater", { "best", "<-0x1.fffffep127>" }, NULL },
    { "best best_places", "TopK", { "kept", "[R]" }, "axis 1" },
    /* what overlaps no better box */
    { "kept", "Where", { "is_kept", "flat_scores", "<-inf>" }, NULL },
    { "is_kept", "Greater", { "flat_marks", "<0>" }, NULL },
    { "flat_scores", "Reshape", { "scores", "[-1 A]" }, NULL },
    { "flat_marks", "Reshape", { "marked", "[-1 A]" }, NULL },
    { "marked", "ScatterND", { "none_kept", "selected", "marks" }, NULL },
    { "marks", "Add", { "no_marks", "<1>" }, NULL },
    { "no_marks", "ConstantOfShape", { "n_selected" }, NULL },
    { "n_selected", "Slice", { "selected_shape", "[0]", "[1]" }, NULL },
    { "selected_shape", "Shape", { "selected" }, NULL },
    { "none_kept", "ConstantOfShape", { "nms_shape" }, NULL },
    { "nms_shape", "Shape", { "nms_scores" }, NULL },
    { "selected",
      "NonMaxSuppression",
      { "nms_boxes", "nms_scores", "[K]", "*overlap", "*threshold" },
      NULL },
    { "nms_scores", "Reshape", { "scores", "[-1 1 K]" }, NULL },
    { "nms_boxes", "Reshape", { "upright", "[-1 K 4]" }, NULL },
    { "nms_boxes", "Reshape", { "candidates", "[-1 K 4]" }, NULL },
    { "upright", "Concat", { "first", "above" }, "axis 3" },
    { "above", "Max", { "first", "second" }, NULL },
    { "first second", "Split", { "candidates", "[2 2]" }, "axis 3" },
    /* the candidates of each class */
    { "candidates", "GatherElements", { "of_class", "place_of_each" }, "axis 2" },
    { "place_of_each", "Tile", { "place", "[1 1 1 4]" }, NULL },
    { "place", "Unsqueeze", { "places", "[3]" }, NULL },
    { "scores places", "TopK", { "of_priors", "[K]" }, "axis 2" },
    { "of_priors", "Add", { "with_background", "*background" }, NULL },
    { "of_priors", "Transpose", { "score_rows" }, "perm 0 2 1" },
    { "with_background", "Transpose", { "score_rows" }, "perm 0 2 1" },
    { "score_rows", "Reshape", { "conf", "[-1 P C]" }, NULL },
    { "of_class", "Tile", { "of_all", "[1 C 1 1]" }, NULL },
    { "of_class", "Transpose", { "boxes" }, "perm 0 2 1 3" },
    { "of_all", "Transpose", { "boxes" }, "perm 0 2 1 3" },
    /* boxes of locations and priors */
    { "boxes", "Concat", { "low", "high" }, "axis 3" },
    { "low", "Sub", { "centre", "half" }, NULL },
    { "high", "Add", { "centre", "half" }, NULL },
    { "half", "Div", { "size", "<2>" }, NULL },
    { "size", "Mul", { "growth", "prior_size" }, NULL },
    { "growth", "Exp", { "code_size" }, NULL },
    { "centre", "Add", { "prior_centre", "way" }, NULL },
    { "way", "Mul", { "code_centre", "prior_size" }, NULL },
    { "code_centre code_size", "Split", { "code", "[2 2]" }, "axis 3" },
    { "prior_centre", "Div", { "prior_sum", "<2>" }, NULL },
    { "prior_sum", "Add", { "prior_low", "prior_high" }, NULL },
    { "boxes", "Add", { "prior", "moved" }, NULL },
    { "moved", "Mul", { "code", "prior_sizes" }, NULL },
    { "prior_sizes", "Concat", { "prior_size", "prior_size" }, "axis 3" },
    { "boxes", "Add", { "prior", "code" }, NULL },
    { "code", "Mul", { "in_variances", "variance" }, NULL },
    { "in_variances", "Reshape", { "loc", "[-1 P L 4]" }, NULL },
    { "code", "Reshape", { "loc", "[-1 P L 4]" }, NULL },
    { "prior_size", "Sub", { "prior_high", "prior_low" }, NULL },
    { "prior_low prior_high", "Split", { "prior", "[2 2]" }, "axis 3" },
    { "prior variance", "Split", { "priors", "[1 1]" }, "axis 0" },
    { "priors", "Reshape", { "prior_table", "[-1 P 1 4]" }, NULL },
};
enum { N_RULE = sizeof(rules) / sizeof(rules[0]), MOST_PARTS = 90 };

/* ---- a graph by the rules */

typedef struct match {
    const ct_onnx_reader *r;
    const ct_onnx_links *l;
    int n;
    struct {
        const char *part, *name; /* borrowed: the part is `length` long; the value's name */
        size_t length;
    } bound[MOST_PARTS];
    int64_t number[26]; /* by letter; 0: none yet */
} match;

/* Word i of a text, and its length; NULL: there are fewer. */
static const char *word(const char *text, int i, size_t *length_p)
{
    for (; i > 0; i--) {
        text = strchr(text, ' ');
        if (text == NULL) return NULL;
        text++;
    }
    *length_p = strcspn(text, " ]>");
    return text;
}

static const char *bound(const match *m, const char *part, size_t length)
{
    for (int i = 0; i < m->n; i++) {
        if ((m->bound[i].length == length) && (memcmp(m->bound[i].part, part, length) == 0))
            return m->bound[i].name;
    }
    return NULL;
}

static const char *value_of(const match *m, const char *part)
{
    return bound(m, part, strlen(part));
}

/* The part is that value, as it may have been before. */
static bool bind(match *m, const char *part, size_t length, const char *name)
{
    const char *there = bound(m, part, length);

    if (there != NULL) return strcmp(there, name) == 0;
    if ((m->n == MOST_PARTS) || (name[0] == '\0')) return false;
    m->bound[m->n].part = part;
    m->bound[m->n].length = length;
    m->bound[m->n++].name = name;
    return true;
}

/* Whether the numbers are those of the text. */
static bool are(match *m, const char *text, size_t n, const int64_t *v)
{
    const char *w;
    size_t length = 0;

    for (size_t i = 0; i < n; i++) {
        w = word(text, (int)i, &length);
        if (w == NULL) return false;
        if ((w[0] < 'A') || (w[0] > 'Z')) {
            if (strtoll(w, NULL, 10) != v[i]) return false;
            continue;
        }
        if ((v[i] < 1) || (v[i] > INT32_MAX)) return false;
        if (m->number[w[0] - 'A'] == 0) m->number[w[0] - 'A'] = v[i];
        if (m->number[w[0] - 'A'] != v[i]) return false;
    }
    return word(text, (int)n, &length) == NULL;
}

static bool is_constant(match *m, const char *as, const char *name)
{
    const ct_onnx_operand *v = ct_onnx_value_find(m->r, name);
    int64_t n = (v != NULL) ? ct_shape_count(&v->shape, 0, -1) : 0;

    if ((v == NULL) || !v->constant) return false;
    if (as[0] == '*') return bind(m, as, strlen(as), name);
    if (as[0] == '<') return (v->f != NULL) && (n == 1) && (v->f[0] == strtof(as + 1, NULL));
    return (v->i != NULL) && (v->shape.ndim == 1) && are(m, as + 1, (size_t)n, v->i);
}

static bool has_attribute(match *m, const Onnx__NodeProto *n, const char *want)
{
    const Onnx__AttributeProto *a = (n->n_attribute == 1) ? n->attribute[0] : NULL;
    size_t length = 0;

    if (want == NULL) return n->n_attribute == 0;
    if ((a == NULL) || (a->name == NULL)) return false;
    word(want, 0, &length);
    if ((strlen(a->name) != length) || (memcmp(a->name, want, length) != 0)) return false;
    return (a->n_ints > 0) ? are(m, want + length + 1, a->n_ints, a->ints)
                           : are(m, want + length + 1, 1, &a->i);
}

static bool makes(const rule *k, const char *part)
{
    const char *w;
    size_t length = 0;

    for (int i = 0; (w = word(k->out, i, &length)) != NULL; i++)
        if ((strlen(part) == length) && (memcmp(w, part, length) == 0)) return true;
    return false;
}

static bool match_part(match *m, const char *part, const char *name);

/* Whether the node is as the rule says, and all before it. */
static bool match_node(match *m, const rule *k, const Onnx__NodeProto *n)
{
    size_t length = 0, i = 0;
    const char *w;

    if ((n->op_type == NULL) || (strcmp(n->op_type, k->op) != 0) ||
        ((n->domain != NULL) && (n->domain[0] != '\0')) || !has_attribute(m, n, k->attribute))
        return false;
    for (; (w = word(k->out, (int)i, &length)) != NULL; i++)
        if ((i >= n->n_output) || !bind(m, w, length, n->output[i])) return false;
    if (i != n->n_output) return false;
    for (i = 0; (i < sizeof(k->in) / sizeof(k->in[0])) && (k->in[i] != NULL); i++) {
        bool constant = strchr("[<*", k->in[i][0]) != NULL;

        if ((i >= n->n_input) || !(constant ? is_constant(m, k->in[i], n->input[i])
                                            : match_part(m, k->in[i], n->input[i])))
            return false;
    }
    return i == n->n_input;
}

static bool match_part(match *m, const char *part, const char *name)
{
    int k = ct_onnx_maker(m->l, name);
    bool ruled = false;

    if (value_of(m, part) != NULL) return bind(m, part, strlen(part), name);
    for (int i = 0; i < N_RULE; i++) {
        match before = *m;

        if (!makes(&rules[i], part)) continue;
        ruled = true;
        if ((k >= 0) && match_node(m, &rules[i], m->r->step[k].proto)) return true;
        *m = before;
    }
    return !ruled && bind(m, part, strlen(part), name);
}

/* ---- what it says */

/* A constant of one number. */
static bool number(const match *m, const char *part, float *v_p)
{
    const ct_onnx_operand *v = ct_onnx_value_find(m->r, value_of(m, part));

    if ((v->f == NULL) || (ct_shape_count(&v->shape, 0, -1) != 1) || isnan(v->f[0])) return false;
    *v_p = v->f[0];
    return true;
}

/* The class whose scores get minus infinity, where all others stay; -1: none. */
static bool background(const match *m, int64_t n_class, int64_t *class_p)
{
    const char *name = value_of(m, "*background");
    const ct_onnx_operand *v = (name != NULL) ? ct_onnx_value_find(m->r, name) : NULL;

    *class_p = -1;
    if (v == NULL) return true;
    if ((v->f == NULL) || (v->shape.ndim != 3) || (v->shape.dim[0] != 1) ||
        (v->shape.dim[1] != n_class) || (v->shape.dim[2] != 1))
        return false;
    for (int64_t i = 0; i < n_class; i++) {
        if (v->f[i] == 0.0f) continue;
        if ((*class_p >= 0) || (v->f[i] != -INFINITY)) return false;
        *class_p = i;
    }
    return true;
}

/* False: the parts do not go together. */
static bool read_match(const match *m, ct_onnx_detects *d_p)
{
    ct_onnx_detects d = { .n_class = m->number['C' - 'A'],
                          .loc_class = m->number['L' - 'A'],
                          .n_prior = m->number['P' - 'A'],
                          .limit = m->number['K' - 'A'],
                          .rows = m->number['R' - 'A'] };
    bool centres = value_of(m, "centre") != NULL;

    d.code = centres ? "CENTER_SIZE" : (value_of(m, "moved") != NULL) ? "CORNER_SIZE" : "CORNER";
    d.variance_in_target = value_of(m, "in_variances") == NULL;
    if ((centres == (value_of(m, "upright") != NULL)) ||
        (m->number['A' - 'A'] != d.n_class * d.limit) || (d.limit > d.n_prior) ||
        (d.loc_class != ((value_of(m, "of_all") != NULL) ? 1 : d.n_class)) ||
        !background(m, d.n_class, &d.background) ||
        (d.rows > d.limit * (d.n_class - ((d.background >= 0) ? 1 : 0))))
        return false;
    if (!number(m, "*overlap", &d.overlap) || !number(m, "*threshold", &d.threshold) ||
        !(d.overlap >= 0.0f) || isinf(d.overlap) || isinf(d.threshold))
        return false;
    *d_p = d;
    return true;
}

static ct_status put_detections(ct_onnx_reader *r, const ct_onnx_links *l)
{
    int n = 0;

    for (int k = 0; k < r->n_step; k++) {
        ct_onnx_detects *d = &r->detects[n];
        ct_onnx_step *s = &r->step[k];
        match m = { .r = r, .l = l };

        if ((strcmp(s->op, "Reshape") != 0) || (s->proto->n_input == 0) ||
            (ct_onnx_maker(l, s->proto->input[0]) < 0) || (s->proto->n_output != 1) ||
            (strcmp(r->step[ct_onnx_maker(l, s->proto->input[0])].op, "Pad") != 0) ||
            !match_part(&m, "out", s->proto->output[0]) || !read_match(&m, d))
            continue;
        n++;
        s->op = "detections";
        s->detects = d;
        s->n_in = 3;
        s->in[0] = value_of(&m, "loc");
        s->in[1] = value_of(&m, "conf");
        s->in[2] = value_of(&m, "prior_table");
    }
    return CT_OK;
}

ct_status ct_onnx_take_detections(ct_onnx_reader *r)
{
    size_t n = 0;

    for (int k = 0; k < r->n_step; k++) n += strcmp(r->step[k].op, "NonMaxSuppression") == 0;
    if (n == 0) return CT_OK;
    r->detects = calloc((size_t)r->n_step, sizeof(r->detects[0]));
    if (r->detects == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the detections of %s", r->path);
    return ct_onnx_take(r, put_detections);
}

/* ---- the layer */

static bool fits(const ct_shape *s, int64_t n, int64_t of_each)
{
    return (s->ndim > 0) && (s->dim[0] == n) && (ct_shape_count(s, 1, -1) == of_each);
}

static ct_status detections(ct_onnx_reader *r)
{
    static const char *const part[3] = { "locations", "scores", "priors" };
    const ct_onnx_detects *d = r->step[r->at].detects;
    ct_onnx_operand *in[3];
    ct_shape made = { 4, { 1, 1, 0, 7 } };
    char threshold[64] = "";

    if (d == NULL) return ct_onnx_refuse(r, "this operator has no layers here");
    for (int i = 0; i < 3; i++) in[i] = ct_onnx_in(r, i);
    if ((in[0]->shape.ndim < 1) ||
        !fits(&in[0]->shape, in[0]->shape.dim[0], d->n_prior * d->loc_class * 4) ||
        !fits(&in[1]->shape, in[0]->shape.dim[0], d->n_prior * d->n_class) ||
        (ct_shape_count(&in[2]->shape, 0, -1) != 8 * d->n_prior))
        return ct_onnx_refuse(r,
                              "locations %s, scores %s and priors %s are not those of %" PRId64
                              " priors and %" PRId64 " classes",
                              ct_shape_str(&in[0]->shape).text, ct_shape_str(&in[1]->shape).text,
                              ct_shape_str(&in[2]->shape).text, d->n_prior, d->n_class);
    for (int i = 0; i < 3; i++) CT_TRY(ct_onnx_as_blob(r, in[i], part[i], &in[i]));
    made.dim[2] = ct_dim_mul(in[0]->shape.dim[0], d->rows);
    if (d->threshold > -FLT_MAX)
        snprintf(threshold, sizeof(threshold), " confidence_threshold: %.9g", (double)d->threshold);
    return ct_onnx_emit(
        r, "DetectionOutput", NULL, 3, in, &made, NULL,
        "detection_output_param { num_classes: %" PRId64 "%s background_label_id: %" PRId64
        " nms_param { nms_threshold: %.9g top_k: %" PRId64 " } keep_top_k: %" PRId64
        " code_type: %s%s%s }",
        d->n_class, (d->loc_class < d->n_class) ? "" : " share_location: false", d->background,
        (double)d->overlap, d->limit, d->rows, d->code,
        d->variance_in_target ? " variance_encoded_in_target: true" : "", threshold);
}

const ct_onnx_op ct_onnx_detection_ops[] = {
    { "detections", detections, 3, 3, " " },
    { NULL, NULL, 0, 0, NULL },
};
