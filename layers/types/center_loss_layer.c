/* CenterLoss: half the mean square distance of features from the center of their class. Centers are
 * learned, but not by the loss's gradient: each moves by the sum of its samples' distances over one
 * more than their number, whatever the loss weight. */
#include <string.h>

#include "framework/math/math.h"
#include "layers/types/layer_types.h"
#include "layers/types/loss_util.h"

enum { LABEL, COUNT };

typedef struct center_state {
    int64_t classes, length;
    int axis;
} center_state;

typedef struct center_plan {
    double samples; /* of the global batch, in the last forward */
    int64_t m;
} center_plan;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__CenterLossParameter *p = l->param->center_loss_param;
    center_state *s = l->state;
    ct_shape shape = { 2, { 0 } };

    if ((p == NULL) || (p->num_output == 0) || (p->num_output > INT32_MAX))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "center_loss_param.num_output, the number of classes, is missing");
    CT_TRY(ct_layer_axis(l, &bottom[0], p->axis, "axis", &s->axis));
    if (s->axis == 0)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "center_loss_param.axis 0 leaves no samples");
    s->classes = (int64_t)p->num_output;
    s->length = ct_shape_count(&bottom[0], s->axis, -1);
    shape.dim[0] = s->classes;
    shape.dim[1] = s->length;
    ct_layer_add_weight(l, &shape, p->center_filler);
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const center_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape, *label = &in->bottom[1]->data.shape;
    ct_shape scalar = { 0 };
    center_plan *plan = in->state;

    if (ct_shape_count(x, s->axis, -1) != s->length)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "features of shape %s, centers have %lld numbers",
                             ct_shape_str(x).text, (long long)s->length);
    plan->m = ct_shape_count(x, 0, s->axis);
    if ((label->ndim < 1) || (ct_shape_count(label, 0, -1) != plan->m))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "%lld feature vectors, labels of shape %s",
                             (long long)plan->m, ct_shape_str(label).text);
    ct_instance_buffer(in, LABEL, CT_LIFETIME_PASS, (size_t)plan->m * sizeof(int32_t));
    ct_instance_buffer(in, COUNT, CT_LIFETIME_PASS, (size_t)s->classes * sizeof(double));
    ct_blob_set_shape(in->top[0], &scalar);
    return CT_OK;
}

typedef struct center {
    int64_t length;
    const float *x, *center;
    const int32_t *label;
} center;

static double part(const void *ctx, int64_t from, int64_t to)
{
    const center *f = ctx;
    double sum = 0;

    for (int64_t i = from; i < to; i++) {
        const float *x = f->x + i * f->length, *c = f->center + f->label[i] * f->length;

        for (int64_t k = 0; k < f->length; k++)
            sum += ((double)x[k] - (double)c[k]) * ((double)x[k] - (double)c[k]);
    }
    return sum;
}

/* Samples of each class in the global batch. */
static ct_status count_classes(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const center_state *s = l->state;
    const center_plan *plan = in->state;
    const int32_t *label = in->buffer[LABEL].data;
    double *count = in->buffer[COUNT].data;

    memset(count, 0, (size_t)s->classes * sizeof(*count));
    for (int64_t i = 0; i < plan->m; i++) count[label[i]] += 1;
    return (ex->sum_ranks != NULL) ? ex->sum_ranks(ex->hook_ctx, count, (int)s->classes) : CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const center_state *s = l->state;
    center_plan *plan = in->state;
    center f = { s->length, ct_blob_data(in->bottom[0]), ct_blob_data(&in->weight[0]),
                 in->buffer[LABEL].data };
    int64_t samples = in->bottom[0]->data.shape.dim[0];

    CT_TRY(ct_loss_labels(l, ex, NULL, ct_blob_data(in->bottom[1]), plan->m,
                          (samples > 0) ? plan->m / samples : 1, s->classes, in->buffer[LABEL].data,
                          NULL));
    CT_TRY(ct_exec_global_count(ex, (double)plan->m, false, &plan->samples));
    if (plan->samples < 1) plan->samples = 1;
    if (ct_blob_diff(&in->weight[0]) != NULL) CT_TRY(count_classes(l, in, ex));
    ct_blob_data(in->top[0])[0] =
        (float)(ct_loss_sum(plan->m, plan->m * s->length, part, &f) / plan->samples / 2);
    return CT_OK;
}

/* A thread has columns of its own, so that every element is summed in the order of the batch. */
static void add_rows(const center *f, int64_t m, const double *count, float *dc)
{
    enum { COLUMNS = 64 };
    int64_t n = f->length, n_block = (n + COLUMNS - 1) / COLUMNS;

#pragma omp parallel for schedule(static) if (m * n >= CT_PARALLEL_MIN)
    for (int64_t b = 0; b < n_block; b++) {
        int64_t from = b * COLUMNS, to = (from + COLUMNS < n) ? from + COLUMNS : n;

        for (int64_t i = 0; i < m; i++) {
            int64_t row = f->label[i] * n;
            float share = (float)(1 / (count[f->label[i]] + 1));

#pragma omp simd
            for (int64_t k = from; k < to; k++)
                dc[row + k] += share * (f->center[row + k] - f->x[i * n + k]);
        }
    }
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const center_state *s = l->state;
    const center_plan *plan = in->state;
    center f = { s->length, ct_blob_data(in->bottom[0]), ct_blob_data(&in->weight[0]),
                 in->buffer[LABEL].data };
    float scale = (float)((double)ct_loss_weight(in) / plan->samples);
    float *dx = ct_blob_diff(in->bottom[0]), *dc = ct_blob_diff(&in->weight[0]);

    if (dc != NULL) {
        if (ct_weight_beta(in, ex, 0) == 0.0f)
            CT_TRY(l->dev->math->set(ex->stream, s->classes * s->length, 0.0f, dc));
        add_rows(&f, plan->m, in->buffer[COUNT].data, dc);
    }
    if (dx == NULL) return CT_OK;
#pragma omp parallel for schedule(static) if (plan->m * s->length >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < plan->m; i++) {
        const float *c = f.center + f.label[i] * s->length;

        for (int64_t k = 0; k < s->length; k++)
            dx[i * s->length + k] = scale * (f.x[i * s->length + k] - c[k]);
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_center_loss = {
    .type = "CenterLoss",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .is_loss = true,
    .top_is_share = true,
    .no_diff_bottom = 1 << 1,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(center_state),
    .instance_state_size = sizeof(center_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
};
