/* DetectionOutput (SSD): the boxes that locations and scores tell, of each class without those that
 * overlap a better one, the best of each sample. Rows of 7: sample, class, score, x0 y0 x1 y1.
 * Their number is fixed when the net is made: what is not needed has -1 everywhere. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "framework/base/log.h"
#include "layers/types/box.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

typedef struct detection_state {
    const Ct__DetectionOutputParameter *p;
    int64_t n_class, loc_class, top_k; /* top_k, keep: -1 all */
    int64_t keep;
    float above, nms, eta;
} detection_state;

typedef struct detection_plan {
    int64_t n, n_prior, limit, rows; /* limit: boxes of a class; rows: of a sample */
} detection_plan;

enum { DECODED, RANKED, KEPT, PICKED }; /* buffers */

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__DetectionOutputParameter *p = l->param->detection_output_param;
    const Ct__NonMaximumSuppressionParameter *nms = (p != NULL) ? p->nms_param : NULL;
    detection_state *s = l->state;

    (void)bottom;
    if ((p == NULL) || !p->has_num_classes || (p->num_classes == 0) || (p->num_classes > INT32_MAX))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "detection_output_param.num_classes is missing or 0");
    *s = (detection_state){ .p = p,
                            .n_class = p->num_classes,
                            .loc_class = p->share_location ? 1 : (int64_t)p->num_classes,
                            .top_k = ((nms != NULL) && nms->has_top_k) ? nms->top_k : -1,
                            .keep = p->keep_top_k,
                            .above =
                                p->has_confidence_threshold ? p->confidence_threshold : -FLT_MAX,
                            .nms = (nms != NULL) ? nms->nms_threshold : 0.3f,
                            .eta = (nms != NULL) ? nms->eta : 1.0f };
    if (!(s->nms >= 0.0f) || !(s->eta > 0.0f) || !(s->eta <= 1.0f))
        return CT_LAYER_FAIL(
            l, CT_ERR_CONFIG,
            "nms_param: nms_threshold %g must not be below 0, eta %g lie in (0, 1]", (double)s->nms,
            (double)s->eta);
    if ((s->top_k == 0) || (s->keep == 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "nms_param.top_k and keep_top_k: above 0, or -1");
    if (((p->save_output_param != NULL) && (p->save_output_param->output_directory != NULL)) ||
        p->visualize)
        CT_WARN("%s%slayer \"%s\" (%s): save_output_param and visualize have no effect: the top "
                "holds what is found",
                l->where, (l->where[0] != '\0') ? ": " : "", l->name, l->ops->type);
    return CT_OK;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return (a < b) ? a : b;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const detection_state *s = l->state;
    detection_plan *r = in->state;
    int64_t n_prior = 0, lists;
    bool background =
        (s->p->background_label_id >= 0) && ((int64_t)s->p->background_label_id < s->n_class);
    ct_shape top = { 4, { 1, 1, 0, 7 } };

    CT_TRY(ct_box_check_bottoms(l, in, s->n_class, s->loc_class, &n_prior));
    r->n = in->bottom[0]->data.shape.dim[0];
    r->n_prior = n_prior;
    r->limit = (s->top_k < 0) ? n_prior : smaller(s->top_k, n_prior);
    r->rows = ct_dim_mul(r->limit, s->n_class - (background ? 1 : 0));
    if (s->keep > 0) r->rows = smaller(r->rows, s->keep);
    top.dim[2] = ct_dim_mul(r->n, r->rows);
    CT_TRY(ct_layer_check_shape(l, &top));
    lists = r->n * s->n_class;
    ct_instance_buffer(in, DECODED, CT_LIFETIME_CALL,
                       (size_t)(r->n * s->loc_class * n_prior * 4) * sizeof(float));
    ct_instance_buffer(in, RANKED, CT_LIFETIME_CALL, (size_t)(lists * n_prior) * sizeof(ct_ranked));
    ct_instance_buffer(in, KEPT, CT_LIFETIME_CALL, (size_t)lists * sizeof(int64_t));
    ct_instance_buffer(in, PICKED, CT_LIFETIME_CALL,
                       (size_t)(lists * r->limit) * sizeof(ct_ranked));
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

/* Boxes of sample i and location class c, one a prior. */
static float *boxes_of(const ct_instance *in, const detection_state *s, int64_t i, int64_t c)
{
    const detection_plan *r = in->state;

    return (float *)in->buffer[DECODED].data +
           (i * s->loc_class + ((s->loc_class > 1) ? c : 0)) * r->n_prior * 4;
}

static ct_ranked *list_of(const ct_instance *in, const detection_state *s, int64_t i, int64_t c)
{
    const detection_plan *r = in->state;

    return (ct_ranked *)in->buffer[RANKED].data + (i * s->n_class + c) * r->n_prior;
}

static void decode(const ct_layer *l, const ct_instance *in)
{
    const detection_state *s = l->state;
    const detection_plan *r = in->state;
    const float *prior = ct_blob_data(in->bottom[2]), *loc = ct_blob_data(in->bottom[0]);
    ct_priors p = { r->n_prior, prior, prior + 4 * r->n_prior, s->p->code_type,
                    s->p->variance_encoded_in_target };

#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < r->n * s->loc_class; k++) {
        int64_t i = k / s->loc_class, c = k % s->loc_class;
        float *box = boxes_of(in, s, i, c);

        for (int64_t j = 0; j < r->n_prior; j++)
            ct_box_decode(&p, j, loc + ((i * r->n_prior + j) * s->loc_class + c) * 4, box + 4 * j);
    }
}

/* What is kept of class c in sample i, at the front of its list. */
static int64_t keep_class(const ct_layer *l, const ct_instance *in, int64_t i, int64_t c)
{
    const detection_state *s = l->state;
    const detection_plan *r = in->state;
    const float *conf = ct_blob_data(in->bottom[1]) + i * r->n_prior * s->n_class + c;
    ct_ranked *list = list_of(in, s, i, c);
    int64_t n = 0;

    if (c == s->p->background_label_id) return 0;
    for (int64_t k = 0; k < r->n_prior; k++) {
        if (conf[k * s->n_class] > s->above)
            list[n++] = (ct_ranked){ conf[k * s->n_class], (int32_t)k };
    }
    ct_box_rank(list, n);
    return ct_box_suppress(boxes_of(in, s, i, c), list, smaller(n, r->limit), s->nms, s->eta);
}

/* Where more are kept than a sample may have, each class keeps those that are among the best. */
static void cut(const ct_layer *l, const ct_instance *in, int64_t i, int64_t *kept)
{
    const detection_state *s = l->state;
    const detection_plan *r = in->state;
    ct_ranked *all = (ct_ranked *)in->buffer[PICKED].data + i * s->n_class * r->limit;
    int64_t n = 0;

    for (int64_t c = 0; c < s->n_class; c++) {
        for (int64_t k = 0; k < kept[c]; k++)
            all[n++] = (ct_ranked){ list_of(in, s, i, c)[k].score, (int32_t)c };
    }
    if (n <= r->rows) return;
    ct_box_rank(all, n);
    memset(kept, 0, (size_t)s->n_class * sizeof(*kept));
    for (int64_t k = 0; k < r->rows; k++) kept[all[k].index]++; /* the first of each class */
}

/* The rows of sample i from y on; returns what is behind them. */
static float *write_rows(const ct_layer *l, const ct_instance *in, int64_t i, float *y)
{
    const detection_state *s = l->state;
    const int64_t *kept = (const int64_t *)in->buffer[KEPT].data + i * s->n_class;

    for (int64_t c = 0; c < s->n_class; c++) {
        const ct_ranked *list = list_of(in, s, i, c);

        for (int64_t k = 0; k < kept[c]; k++, y += 7) {
            y[0] = (float)i;
            y[1] = (float)c;
            y[2] = list[k].score;
            memcpy(y + 3, boxes_of(in, s, i, c) + 4 * (int64_t)list[k].index, 4 * sizeof(*y));
        }
    }
    return y;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const detection_state *s = l->state;
    const detection_plan *r = in->state;
    int64_t *kept = in->buffer[KEPT].data;
    float *y = ct_blob_data(in->top[0]), *end = y + ct_tensor_count(&in->top[0]->data);

    (void)ex;
    decode(l, in);
#pragma omp parallel for schedule(dynamic)
    for (int64_t k = 0; k < r->n * s->n_class; k++)
        kept[k] = keep_class(l, in, k / s->n_class, k % s->n_class);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < r->n; i++) cut(l, in, i, kept + i * s->n_class);
    for (int64_t i = 0; i < r->n; i++) y = write_rows(l, in, i, y);
    while (y < end) *y++ = -1.0f;
    return CT_OK;
}

const ct_layer_ops ct_layer_detection_output = {
    .type = "DetectionOutput",
    .params = "detection_output_param",
    .min_bottom = 3,
    .max_bottom = 4, /* the fourth, for drawing, is not read */
    .min_top = 1,
    .max_top = 1,
    .state_size = sizeof(detection_state),
    .instance_state_size = sizeof(detection_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
};
