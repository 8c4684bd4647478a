/* Reduction: an axis and all behind it become one number: their sum, that of sizes or squares, or
 * their mean. Over the samples, too, it is this rank's share of what one rank would make of the
 * global batch. */
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

#include <math.h>

typedef struct reduction_state {
    Ct__ReductionParameter__ReductionOp op;
    float coeff;
    int axis; /* as in the prototxt */
} reduction_state;

typedef struct reduction_plan {
    int64_t rows, n;
    bool samples; /* axis 0 is reduced, too */
} reduction_plan;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__ReductionParameter *p = l->param->reduction_param;
    reduction_state *s = l->state;

    (void)bottom;
    s->op = (p != NULL) ? p->operation : CT__REDUCTION_PARAMETER__REDUCTION_OP__SUM;
    s->coeff = (p != NULL) ? p->coeff : 1.0f;
    s->axis = (p != NULL) ? p->axis : 0;
    if ((s->op == CT__REDUCTION_PARAMETER__REDUCTION_OP__SUM) ||
        (s->op == CT__REDUCTION_PARAMETER__REDUCTION_OP__MEAN))
        l->backward_reads = 0;
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const reduction_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    reduction_plan *r = in->state;
    ct_shape top = *x;
    int axis;

    CT_TRY(ct_layer_axis(l, x, s->axis, "axis", &axis));
    *r = (reduction_plan){ ct_shape_count(x, 0, axis), ct_shape_count(x, axis, -1), axis == 0 };
    in->top_is_share = r->samples;
    top.ndim = axis;
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

static double sum_of(Ct__ReductionParameter__ReductionOp op, const float *x, int64_t n)
{
    double sum = 0;

    switch (op) {
    case CT__REDUCTION_PARAMETER__REDUCTION_OP__ASUM:
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += fabs((double)x[i]);
        return sum;
    case CT__REDUCTION_PARAMETER__REDUCTION_OP__SUMSQ:
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
        return sum;
    default:
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += (double)x[i];
        return sum;
    }
}

/* coeff, over the number of elements of the global batch for MEAN. */
static ct_status factor_of(const ct_layer *l, const ct_instance *in, ct_exec *ex, double *factor_p)
{
    const reduction_state *s = l->state;
    const reduction_plan *r = in->state;
    double n = (double)r->n;

    *factor_p = (double)s->coeff;
    if (s->op != CT__REDUCTION_PARAMETER__REDUCTION_OP__MEAN) return CT_OK;
    if (r->samples) CT_TRY(ct_exec_global_count(ex, n, false, &n));
    if (n > 0) *factor_p /= n;
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const reduction_state *s = l->state;
    const reduction_plan *r = in->state;
    const float *x = ct_blob_data(in->bottom[0]);
    float *y = ct_blob_data(in->top[0]);
    double factor;

    CT_TRY(factor_of(l, in, ex, &factor));
#pragma omp parallel for schedule(static) if (r->rows * r->n >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < r->rows; k++)
        y[k] = (float)(factor * sum_of(s->op, x + k * r->n, r->n));
    return CT_OK;
}

static void spread(Ct__ReductionParameter__ReductionOp op, int64_t n, float g, const float *x,
                   float *dx)
{
    switch (op) {
    case CT__REDUCTION_PARAMETER__REDUCTION_OP__ASUM:
        for (int64_t i = 0; i < n; i++) dx[i] = (x[i] > 0.0f) ? g : (x[i] < 0.0f) ? -g : 0.0f;
        break;
    case CT__REDUCTION_PARAMETER__REDUCTION_OP__SUMSQ:
        for (int64_t i = 0; i < n; i++) dx[i] = 2.0f * g * x[i];
        break;
    default:
        for (int64_t i = 0; i < n; i++) dx[i] = g;
        break;
    }
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    enum { PIECE = 1 << 14 };
    const reduction_state *s = l->state;
    const reduction_plan *r = in->state;
    const float *x = ct_blob_data(in->bottom[0]), *dy = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]);
    int64_t n_piece = (r->n + PIECE - 1) / PIECE;
    double factor;

    if (dx == NULL) return CT_OK;
    CT_TRY(factor_of(l, in, ex, &factor));
#pragma omp parallel for schedule(static) if (r->rows * r->n >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < r->rows * n_piece; k++) {
        int64_t row = k / n_piece, from = k % n_piece * PIECE;
        int64_t len = (r->n - from < PIECE) ? r->n - from : PIECE, at = row * r->n + from;

        spread(s->op, len, (float)(factor * (double)dy[row]), x + at, dx + at);
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_reduction = {
    .type = "Reduction",
    .params = "reduction_param",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(reduction_state),
    .instance_state_size = sizeof(reduction_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
};
