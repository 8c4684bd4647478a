/* MVN: each row (a channel of a sample, or a whole sample) less its mean, over its deviation. Sums
 * run in double. */
#include <math.h>

#include "layers/layer_util.h"
#include "layers/types/layer_types.h"
#include "layers/types/norm.h"

static void row_stats(int64_t rows, int64_t n, const float *x, ct_row_stat *stat)
{
#pragma omp parallel for schedule(static) if (rows * n >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        const float *row = x + r * n;
        double sum = 0, square = 0, mean;

#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += (double)row[i];
        mean = sum / (double)n;
#pragma omp simd reduction(+ : square)
        for (int64_t i = 0; i < n; i++) square += ((double)row[i] - mean) * ((double)row[i] - mean);
        stat[r].mean = mean;
        stat[r].variance = square / (double)n;
    }
}

static void row_normalise(int64_t rows, int64_t n, const float *x, const ct_row_stat *stat,
                          float *y)
{
#pragma omp parallel for schedule(static) if (rows * n >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        double mean = stat[r].mean, factor = stat[r].factor;

#pragma omp simd
        for (int64_t i = r * n; i < (r + 1) * n; i++)
            y[i] = (float)(((double)x[i] - mean) * factor);
    }
}

/* dx = factor (dy - mean dy - gain y mean(dy y)); dx may be dy. */
static void row_gradient(int64_t rows, int64_t n, const ct_row_stat *stat, const float *y,
                         const float *dy, float *dx)
{
#pragma omp parallel for schedule(static) if (rows * n >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < rows; r++) {
        const float *g = dy + r * n, *v = y + r * n;
        double sum = 0, dot = 0, factor = stat[r].factor;

#pragma omp simd reduction(+ : sum, dot)
        for (int64_t i = 0; i < n; i++) {
            sum += (double)g[i];
            dot += (double)g[i] * (double)v[i];
        }
        sum /= (double)n;
        dot *= stat[r].gain / (double)n;
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            dx[r * n + i] = (float)(((double)g[i] - sum - (double)v[i] * dot) * factor);
    }
}

/* ---- the layer */

enum { MVN_STAT }; /* a ct_row_stat for each row */

typedef struct mvn_state {
    bool variance, across;
    double eps;
} mvn_state;

typedef ct_row_plan mvn_plan;

static ct_status mvn_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__MVNParameter *p = l->param->mvn_param;
    mvn_state *s = l->state;

    (void)bottom;
    s->variance = (p == NULL) || p->normalize_variance;
    s->across = (p != NULL) && p->across_channels;
    s->eps = (p != NULL) ? (double)p->eps : 1e-9;
    if ((s->eps > 0) && isfinite(s->eps)) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "mvn_param.eps %g must be above 0", s->eps);
}

static ct_status mvn_reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *x = &in->bottom[0]->data.shape;
    const mvn_state *s = l->state;
    mvn_plan *plan = in->state;
    ct_shape four = { 4, { 0 } };

    if ((x->ndim < 1) || (x->ndim > 4))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the bottom %s must have 1 to 4 axes",
                             ct_shape_str(x).text);
    for (int i = 0; i < 4; i++) four.dim[i] = ct_shape_legacy(x, i);
    plan->rows = four.dim[0] * (s->across ? 1 : four.dim[1]);
    plan->n = ct_shape_count(&four, s->across ? 1 : 2, -1);
    ct_instance_buffer(in, MVN_STAT, CT_LIFETIME_PASS, ct_row_bytes(l, plan));
    if (in->top[0] != in->bottom[0]) ct_blob_set_shape(in->top[0], &four);
    return CT_OK;
}

static ct_status mvn_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const mvn_state *s = l->state;
    const mvn_plan *plan = in->state;
    const float *x = ct_blob_data(in->bottom[0]);
    ct_row_stat *stat = in->buffer[MVN_STAT].data;

    (void)ex;
    row_stats(plan->rows, plan->n, x, stat);
    for (int64_t r = 0; r < plan->rows; r++) {
        double deviation = sqrt(stat[r].variance);

        stat[r].factor = s->variance ? 1 / (deviation + s->eps) : 1;
        stat[r].gain = !s->variance ? 0 : (deviation > 0) ? 1 + s->eps / deviation : 1;
    }
    row_normalise(plan->rows, plan->n, x, stat, ct_blob_data(in->top[0]));
    return CT_OK;
}

static ct_status mvn_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const mvn_plan *plan = in->state;

    (void)l, (void)ex;
    if (ct_blob_diff(in->bottom[0]) != NULL)
        row_gradient(plan->rows, plan->n, in->buffer[MVN_STAT].data, ct_blob_data(in->top[0]),
                     ct_blob_diff(in->top[0]), ct_blob_diff(in->bottom[0]));
    return CT_OK;
}

static unsigned mvn_splits(const Ct__LayerParameter *p)
{
    return ((p->mvn_param != NULL) && p->mvn_param->across_channels) ? 0 : CT_SPLIT_CHANNEL;
}

const ct_layer_ops ct_layer_mvn = {
    .type = "MVN",
    .params = "mvn_param",
    .splits_of = mvn_splits,
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .allow_inplace = true,
    .backward_reads = CT_READS_TOP,
    .state_size = sizeof(mvn_state),
    .instance_state_size = sizeof(mvn_plan),
    .setup = mvn_setup,
    .reshape = mvn_reshape,
    .forward = mvn_forward,
    .backward = mvn_backward,
};
