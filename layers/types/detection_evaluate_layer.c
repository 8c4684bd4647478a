/* DetectionEvaluate: which detections are right, for average precision over a test (Liu et al.
 * 2016). Bottoms: rows of DetectionOutput; true boxes. Top 1 x 1 x rows x 5: first, of each class
 * but the background, -1, class, how many true boxes, -1, -1; then of each detection sample, class,
 * score, and 1 in the next number where it is right, in the one behind it where it is wrong. Rows
 * that are not used are -1. No gradient. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layers/layer_util.h"
#include "layers/types/box.h"
#include "layers/types/layer_types.h"

enum { FOUND = 7, TRUTH = 8, ROW = 5 }; /* numbers of a detection, of a true box, of the top */
enum { SORTED, TAKEN };                 /* buffers */

typedef struct evaluate_state {
    const Ct__DetectionEvaluateParameter *p;
    int64_t n_class;
} evaluate_state;

typedef struct evaluate_plan {
    int64_t n_found, n_truth;
    int64_t per_sample[2]; /* rows of each sample in turn; 0: rows say whose they are */
} evaluate_plan;

/* A detection on its way through the order. */
typedef struct found {
    int64_t row;
    float sample, label, score;
} found;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__DetectionEvaluateParameter *p = l->param->detection_evaluate_param;
    evaluate_state *s = l->state;

    (void)bottom;
    if ((p == NULL) || !p->has_num_classes || (p->num_classes == 0) || (p->num_classes > INT32_MAX))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "detection_evaluate_param.num_classes is missing or 0");
    if (p->background_label_id >= p->num_classes)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "background_label_id %u is not below num_classes %u",
                             p->background_label_id, p->num_classes);
    if (!(p->overlap_threshold > 0) || (p->overlap_threshold > 1))
        return CT_LAYER_FAIL(
            l, CT_ERR_CONFIG,
            "detection_evaluate_param.overlap_threshold is %g, must be above 0 and "
            "at most 1",
            (double)p->overlap_threshold);
    if ((p->name_size_file != NULL) || (p->resize_param != NULL))
        CT_WARN(
            "%s%slayer \"%s\" (%s): name_size_file and resize_param have no effect: overlaps are "
            "those of boxes in parts of the image",
            l->where, (l->where[0] != '\0') ? ": " : "", l->name, l->ops->type);
    s->p = p;
    s->n_class = p->num_classes;
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const evaluate_state *s = l->state;
    const ct_shape *a = &in->bottom[0]->data.shape, *b = &in->bottom[1]->data.shape;
    int64_t found_count = ct_shape_count(a, 0, -1), truth_count = ct_shape_count(b, 0, -1);
    evaluate_plan *r = in->state;
    ct_shape top = { 4, { 1, 1, 0, ROW } };

    if (found_count % FOUND != 0)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom 0 (detections) has shape %s: rows of 7",
                             ct_shape_str(a).text);
    if (truth_count % TRUTH != 0)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom 1 (true boxes) has shape %s: rows of 8",
                             ct_shape_str(b).text);
    *r = (evaluate_plan){ found_count / FOUND, truth_count / TRUTH, { 0, 0 } };
    if ((a->ndim == 3) && (a->dim[2] == FOUND)) r->per_sample[0] = a->dim[1];
    if ((b->ndim == 3) && (b->dim[2] == TRUTH)) r->per_sample[1] = b->dim[1];
    top.dim[2] = s->n_class - 1 + r->n_found;
    CT_TRY(ct_layer_check_shape(l, &top));
    ct_instance_buffer(in, SORTED, CT_LIFETIME_CALL, (size_t)r->n_found * sizeof(found));
    ct_instance_buffer(in, TAKEN, CT_LIFETIME_CALL, (size_t)r->n_truth);
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

/* By sample, class and score, the best first. */
static int compare(const void *a, const void *b)
{
    const found *x = a, *y = b;

    if (x->sample != y->sample) return (x->sample < y->sample) ? -1 : 1;
    if (x->label != y->label) return (x->label < y->label) ? -1 : 1;
    if (x->score != y->score) return (x->score > y->score) ? -1 : 1;
    return (x->row < y->row) ? -1 : (x->row > y->row);
}

/* The sample that row i of a bottom belongs to; below 0: the row is not used. */
static float sample_of(const evaluate_plan *r, int bottom, const float *row, int64_t i)
{
    int64_t sample;

    if ((row[0] < 0) || (r->per_sample[bottom] == 0)) return row[0];
    sample = i / r->per_sample[bottom];
    return (float)sample;
}

static ct_status count_truth(const ct_layer *l, const ct_instance *in, const ct_exec *ex, float *y)
{
    const evaluate_state *s = l->state;
    const evaluate_plan *r = in->state;
    const float *truth = ct_blob_data(in->bottom[1]);
    int64_t background = s->p->background_label_id, k = 0;

    for (int64_t c = 0; c < s->n_class; c++) {
        const float row[ROW] = { -1, (float)c, 0, -1, -1 };

        if (c != background) memcpy(y + k++ * ROW, row, sizeof(row));
    }
    for (int64_t i = 0; i < r->n_truth; i++) {
        const float *row = truth + i * TRUTH;
        int32_t label = -1;

        if (sample_of(r, 1, row, i) < 0) continue;
        if (!ct_label_class(row[1], s->n_class, &label) || (label == background))
            return CT_LAYER_FAIL(l, CT_ERR_DATA,
                                 "true box %lld of batch %lld: class %g of %lld (background %lld)",
                                 (long long)i, (long long)ex->micro_step, (double)row[1],
                                 (long long)s->n_class, (long long)background);
        if (s->p->evaluate_difficult_gt || (row[7] == 0))
            y[((label > background) ? label - 1 : label) * ROW + 2] += 1;
    }
    return CT_OK;
}

/* The true box of its class and sample that a detection overlaps most; -1: none. */
static int64_t best_truth(const ct_instance *in, const found *f, float *overlap_p)
{
    const evaluate_plan *r = in->state;
    const float *truth = ct_blob_data(in->bottom[1]);
    const float *row = (const float *)ct_blob_data(in->bottom[0]) + f->row * FOUND;
    float box[4];
    int64_t best = -1;

    for (int k = 0; k < 4; k++) box[k] = fminf(fmaxf(row[3 + k], 0), 1);
    *overlap_p = -1;
    for (int64_t i = 0; i < r->n_truth; i++) {
        float overlap;

        if ((sample_of(r, 1, truth + i * TRUTH, i) != f->sample) ||
            (truth[i * TRUTH + 1] != f->label))
            continue;
        overlap = ct_box_overlap(box, truth + i * TRUTH + 3);
        if (overlap <= *overlap_p) continue;
        *overlap_p = overlap;
        best = i;
    }
    return best;
}

static void judge(const ct_layer *l, const ct_instance *in, const found *f, float *y)
{
    const evaluate_state *s = l->state;
    const float *truth = ct_blob_data(in->bottom[1]);
    uint8_t *taken = in->buffer[TAKEN].data;
    float overlap;
    int64_t best = best_truth(in, f, &overlap);
    bool right = (best >= 0) && (overlap >= s->p->overlap_threshold);

    y[0] = f->sample;
    y[1] = f->label;
    y[2] = f->score;
    y[3] = y[4] = 0;
    /* a difficult one that was found counts neither way */
    if (right && !s->p->evaluate_difficult_gt && (truth[best * TRUTH + 7] != 0)) return;
    y[(right && !taken[best]) ? 3 : 4] = 1;
    if (right) taken[best] = 1;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const evaluate_state *s = l->state;
    const evaluate_plan *r = in->state;
    const float *row = ct_blob_data(in->bottom[0]);
    found *sorted = in->buffer[SORTED].data;
    float *y = ct_blob_data(in->top[0]), *at = y + (s->n_class - 1) * ROW;
    int64_t n = 0;

    CT_TRY(count_truth(l, in, ex, y));
    for (int64_t i = 0; i < r->n_found; i++, row += FOUND)
        if (row[0] >= 0) sorted[n++] = (found){ i, sample_of(r, 0, row, i), row[1], row[2] };
    if (n > 0) qsort(sorted, (size_t)n, sizeof(*sorted), compare);
    if (r->n_truth > 0) memset(in->buffer[TAKEN].data, 0, (size_t)r->n_truth);
    for (int64_t i = 0; i < n; i++, at += ROW) judge(l, in, &sorted[i], at);
    for (int64_t i = n * ROW; i < r->n_found * ROW; i++) *at++ = -1;
    return CT_OK;
}

const ct_layer_ops ct_layer_detection_evaluate = {
    .type = "DetectionEvaluate",
    .params = "detection_evaluate_param",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .evaluates = true,
    .no_diff_bottom = 3,
    .state_size = sizeof(evaluate_state),
    .instance_state_size = sizeof(evaluate_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
};
