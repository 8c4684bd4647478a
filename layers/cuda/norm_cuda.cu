/* MVN, LayerNorm and Normalize. Sums and what follows from them in double, as on the CPU. */
#include "layers/cuda/row_norm.cuh"

/* ---- rows less their mean, over their deviation */

static ct_status row_stats(ct_exec *ex, ct_row_plan p, row_rule rule, const float *x,
                           ct_row_stat *stat)
{
    CT_TRY(ct_cuda_sums<1>(
        ex->stream, "row means", p.rows, p.n,
        KERNEL(int64_t r, int64_t i, double *sum) { *sum += (double)x[r * p.n + i]; },
        KERNEL(int64_t r, const double *sum) { stat[r].mean = *sum / (double)p.n; }));
    return ct_cuda_sums<1>(
        ex->stream, "row variances", p.rows, p.n,
        KERNEL(int64_t r, int64_t i, double *sum) {
            double off = (double)x[r * p.n + i] - stat[r].mean;

            *sum += off * off;
        },
        KERNEL(int64_t r, const double *sum) {
            stat[r].variance = *sum / (double)p.n;
            finish_row(rule, &stat[r]);
        });
}

/* y = (x - mean) factor, times scale, plus bias; both NULL: without. */
static ct_status row_normalise(ct_exec *ex, ct_row_plan p, const float *x, const ct_row_stat *stat,
                               const float *scale, const float *bias, float *y)
{
    return ct_cuda_map(
        ex->stream, "row normalisation", p.rows * p.n, KERNEL(int64_t e) {
            int64_t r = e / p.n, i = e % p.n;
            float v = (float)(((double)x[e] - stat[r].mean) * stat[r].factor);

            y[e] = (scale != NULL) ? v * scale[i] + bias[i] : v;
        });
}

/* Both. */
static ct_status rows_forward(ct_exec *ex, const row_forward &a)
{
    if (!row_fits(a.p)) {
        CT_TRY(row_stats(ex, a.p, a.rule, a.x, a.stat));
        return row_normalise(ex, a.p, a.x, a.stat, a.scale, a.bias, a.y);
    }
    if (a.p.rows == 0) return CT_OK;
    ROW_RUN(row_forward_kernel, ex, a.p, row_is_wide(a.p, a.x, a.y, NULL), a);
    return ct_cuda_launched("row normalisation");
}

/* What is normal, of a row's x, or as it is. */
static __device__ inline float normal_at(const row_backward &a, int64_t r, int64_t e)
{
    return (a.y != NULL) ? a.y[e] : row_normal(a.x[e], a.stat[r]);
}

/* sums: 2 rows of doubles, for rows that do not fit. */
static ct_status rows_backward(ct_exec *ex, const row_backward &args, double *sums)
{
    row_backward a = args;
    ct_row_plan p = a.p;

    if (p.rows == 0) return CT_OK;
    if (row_fits(p)) {
        ROW_RUN(row_backward_kernel, ex, p,
                row_is_wide(p, (a.y != NULL) ? a.y : a.x, a.dy, a.dx), a);
        return ct_cuda_launched("row gradients");
    }
    CT_TRY(ct_cuda_sums<2>(
        ex->stream, "row gradients", p.rows, p.n,
        KERNEL(int64_t r, int64_t i, double *sum) {
            double d = (double)a.dy[r * p.n + i] * ((a.scale != NULL) ? (double)a.scale[i] : 1.0);

            sum[0] += d;
            sum[1] += d * (double)normal_at(a, r, r * p.n + i);
        },
        KERNEL(int64_t r, const double *sum) {
            sums[2 * r] = sum[0] / (double)p.n;
            sums[2 * r + 1] = sum[1] * a.stat[r].gain / (double)p.n;
        }));
    return ct_cuda_map(
        ex->stream, "row gradients", p.rows * p.n, KERNEL(int64_t e) {
            int64_t r = e / p.n;
            double d = (double)a.dy[e] * ((a.scale != NULL) ? (double)a.scale[e % p.n] : 1.0);

            a.dx[e] = (float)((d - sums[2 * r] - (double)normal_at(a, r, e) * sums[2 * r + 1]) *
                              a.stat[r].factor);
        });
}

/* Behind the rows' statistics, in the same buffer: ct_row_bytes(). */
static double *row_sums(const ct_instance *in, ct_row_plan p)
{
    return (double *)((ct_row_stat *)in->buffer[0].data + p.rows);
}

static ct_status mvn_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const Ct__MVNParameter *p = l->param->mvn_param;
    row_rule rule = { (p == NULL) || p->normalize_variance, true,
                      (p != NULL) ? (double)p->eps : 1e-9 };
    ct_row_plan rows = *(const ct_row_plan *)in->state;
    ct_row_stat *stat = (ct_row_stat *)in->buffer[0].data;

    return rows_forward(
        ex, { rows, rule, ct_blob_data(in->bottom[0]), NULL, NULL, stat, ct_blob_data(in->top[0]) });
}

static ct_status mvn_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_row_plan rows = *(const ct_row_plan *)in->state;

    (void)l;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return rows_backward(ex,
                         { rows, (const ct_row_stat *)in->buffer[0].data, NULL,
                           ct_blob_data(in->top[0]), ct_blob_diff(in->top[0]), NULL,
                           ct_blob_diff(in->bottom[0]) },
                         row_sums(in, rows));
}

const ct_device_override ct_cuda_mvn = { "MVN", NULL, mvn_forward, mvn_backward };

static ct_status layer_norm_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const Ct__LayerNormParameter *p = l->param->layer_norm_param;
    row_rule rule = { true, false, (p != NULL) ? (double)p->eps : 1e-5 };
    ct_row_plan rows = *(const ct_row_plan *)in->state;
    ct_row_stat *stat = (ct_row_stat *)in->buffer[0].data;
    bool affine = l->n_weight > 0;

    return rows_forward(ex, { rows, rule, ct_blob_data(in->bottom[0]),
                              affine ? ct_blob_data(&in->weight[0]) : NULL,
                              affine ? ct_blob_data(&in->weight[1]) : NULL, stat,
                              ct_blob_data(in->top[0]) });
}

/* Gradients of scale and shift: sums down the columns, of dy times what is normal and of dy. */
static ct_status layer_norm_weights(const ct_instance *in, ct_exec *ex, ct_row_plan rows)
{
    const ct_row_stat *stat = (const ct_row_stat *)in->buffer[0].data;
    const float *x = ct_blob_data(in->bottom[0]), *dy = ct_blob_diff(in->top[0]);
    float *scale = ct_blob_diff(&in->weight[0]), *shift = ct_blob_diff(&in->weight[1]);
    bool add_scale = ct_weight_beta(in, ex, 0) != 0.0f;
    bool add_shift = ct_weight_beta(in, ex, 1) != 0.0f;
    int64_t groups = rows.n / CT_WIDE;
    auto put = KERNEL(int64_t c, const double *sum)
    {
        if (scale != NULL) scale[c] = (float)(sum[0] + (add_scale ? (double)scale[c] : 0.0));
        if (shift != NULL) shift[c] = (float)(sum[1] + (add_shift ? (double)shift[c] : 0.0));
    };

    if ((scale == NULL) && (shift == NULL)) return CT_OK;
    if (row_is_wide(rows, x, dy, NULL) && (rows.n <= CT_WIDE_COLUMNS))
        return ct_cuda_wide_columns<2>(
            ex->stream, "LayerNorm backward", rows.rows, rows.n,
            KERNEL(int64_t, int64_t) { return 0; },
            KERNEL(int64_t k, int, double *sum) {
                ct_row_stat s = stat[k / groups];
                ct_four v = ct_wide_get<CT_F32>(x, k), g = ct_wide_get<CT_F32>(dy, k);

                for (int j = 0; j < CT_WIDE; j++) {
                    sum[2 * j] += (double)g.v[j] * (double)row_normal(v.v[j], s);
                    sum[2 * j + 1] += (double)g.v[j];
                }
            },
            put);
    return ct_cuda_column_sums<2>(
        ex->stream, "LayerNorm backward", rows.n, rows.rows,
        KERNEL(int64_t c, int64_t r, double *sum) {
            double g = (double)dy[r * rows.n + c];

            sum[0] += g * (double)row_normal(x[r * rows.n + c], stat[r]);
            sum[1] += g;
        },
        put);
}

static ct_status layer_norm_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_row_plan rows = *(const ct_row_plan *)in->state;

    if (l->n_weight > 0) CT_TRY(layer_norm_weights(in, ex, rows));
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return rows_backward(ex,
                         { rows, (const ct_row_stat *)in->buffer[0].data,
                           ct_blob_data(in->bottom[0]), NULL, ct_blob_diff(in->top[0]),
                           (l->n_weight > 0) ? ct_blob_data(&in->weight[0]) : NULL,
                           ct_blob_diff(in->bottom[0]) },
                         row_sums(in, rows));
}

const ct_device_override ct_cuda_layer_norm = { "LayerNorm", NULL, layer_norm_forward,
                                           layer_norm_backward };

/* ---- Normalize: over the norm of the channels at each place, or of a whole sample */

typedef struct norm_plan {
    int64_t samples, channels, places; /* a sample as a whole: all of it channels of one place */
    int64_t scaled, n_scale;           /* places that share a scale; scales: 1 or channels     */
} norm_plan;

static norm_plan plan_of(const ct_layer *l, const ct_instance *in)
{
    const Ct__NormalizeParameter *p = l->param->norm_param;
    const ct_shape *x = &in->bottom[0]->data.shape;
    bool across = (p == NULL) || p->across_spatial;
    bool shared = l->weight[0].shape.ndim == 0;

    return { x->dim[0], ct_shape_count(x, 1, across ? -1 : 2),
             across ? 1 : ct_shape_count(x, 2, -1), ct_shape_count(x, 2, -1),
             shared ? 1 : x->dim[1] };
}

static ct_status normalize_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const Ct__NormalizeParameter *q = l->param->norm_param;
    norm_plan p = plan_of(l, in);
    double eps = (q != NULL) ? (double)q->eps : 1e-10;
    const float *x = ct_blob_data(in->bottom[0]), *scale = ct_blob_data(&in->weight[0]);
    float *inverse = (float *)in->buffer[0].data, *y = ct_blob_data(in->top[0]);

    CT_TRY(ct_cuda_sums<1>(
        ex->stream, "Normalize", p.samples * p.places, p.channels,
        KERNEL(int64_t r, int64_t c, double *sum) {
            double v = (double)x[(r / p.places * p.channels + c) * p.places + r % p.places];

            *sum += v * v;
        },
        KERNEL(int64_t r, const double *sum) { inverse[r] = (float)(1.0 / sqrt(*sum + eps)); }));
    return ct_cuda_map(
        ex->stream, "Normalize", count_of(in->bottom[0]), KERNEL(int64_t e) {
            int64_t r = e / (p.channels * p.places) * p.places + e % p.places;

            y[e] = x[e] * inverse[r] * scale[e / p.scaled % p.n_scale];
        });
}

static ct_status normalize_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    norm_plan p = plan_of(l, in);
    const float *x = ct_blob_data(in->bottom[0]), *scale = ct_blob_data(&in->weight[0]);
    const float *dy = ct_blob_diff(in->top[0]), *inverse = (const float *)in->buffer[0].data;
    float *normal = (float *)in->buffer[1].data, *dx = ct_blob_diff(in->bottom[0]);
    float *ds = ct_blob_diff(&in->weight[0]);
    int64_t n = count_of(in->bottom[0]);
    double *dot = (double *)in->buffer[2].data;
    ct_view v = { p.samples, p.n_scale, p.scaled, 0 };

    if (p.n_scale == 1) v = { 1, 1, n, 0 };
    CT_TRY(ct_cuda_map(
        ex->stream, "Normalize backward", n, KERNEL(int64_t e) {
            normal[e] = x[e] * inverse[e / (p.channels * p.places) * p.places + e % p.places];
        }));
    if (ds != NULL)
        CT_TRY(ct_kernels(ex)->dot(ex, &v, dy, normal, ct_weight_beta(in, ex, 0) != 0.0f, ds));
    if (dx == NULL) return CT_OK;
    CT_TRY(ct_cuda_sums<1>(
        ex->stream, "Normalize backward", p.samples * p.places, p.channels,
        KERNEL(int64_t r, int64_t c, double *sum) {
            int64_t e = (r / p.places * p.channels + c) * p.places + r % p.places;

            *sum += (double)(dy[e] * scale[e / p.scaled % p.n_scale]) * (double)normal[e];
        },
        KERNEL(int64_t r, const double *sum) { dot[r] = *sum; }));
    return ct_cuda_map(
        ex->stream, "Normalize backward", n, KERNEL(int64_t e) {
            int64_t r = e / (p.channels * p.places) * p.places + e % p.places;
            float g = dy[e] * scale[e / p.scaled % p.n_scale];

            dx[e] = (float)(((double)g - (double)normal[e] * dot[r]) * (double)inverse[r]);
        });
}

const ct_device_override ct_cuda_normalize = { "Normalize", NULL, normalize_forward,
                                          normalize_backward };
