#include "layers/layer_util.h"

#include "framework/base/memory.h"
#include "layers/blocked.h"

#include <string.h>

bool ct_layer_takes_block(const ct_blob *b)
{
    return (b->data.layout.order == CT_ORDER_NCHW) && (b->data.layout.block > 0) &&
           (b->data.layout.block <= CT_BLOCK_MAX);
}

bool ct_layer_takes_blocks(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    (void)p;
    return ct_layer_takes_block(bottom[slot]);
}

bool ct_layer_takes_all(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    (void)p, (void)bottom, (void)slot;
    return true;
}

ct_status ct_layer_copy_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_device_copy(ex, ct_tensor_count(&in->bottom[0]->data), ct_blob_data(in->bottom[0]),
                          ct_blob_data(in->top[0]));
}

ct_status ct_layer_copy_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return ct_device_copy(ex, ct_tensor_count(&in->bottom[0]->data), ct_blob_diff(in->top[0]),
                          ct_blob_diff(in->bottom[0]));
}

void ct_layer_view_last(const ct_blob *b, ct_view *view_p)
{
    view_p->dtype = b->data.dtype;
    if (!ct_blob_is_last(b)) return;
    view_p->outer *= view_p->inner;
    view_p->inner = 1;
}

bool ct_layer_is_channels(const ct_shape *s, int axis)
{
    int index;

    return ct_shape_axis(s, axis, &index) && (index == 1);
}

ct_status ct_layer_axis(const ct_layer *l, const ct_shape *s, int axis, const char *field,
                        int *index_p)
{
    if (!ct_shape_axis(s, axis, index_p))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%s %d is outside the bottom's %d dimensions: %s",
                             field, axis, s->ndim, ct_shape_str(s).text);
    return CT_OK;
}

ct_view ct_view_make(const ct_shape *s, int axis, int n_axis)
{
    return (ct_view){ ct_shape_count(s, 0, axis), ct_shape_count(s, axis, axis + n_axis),
                      ct_shape_count(s, axis + n_axis, -1), 0, CT_F32 };
}

ct_status ct_layer_broadcast_shape(const ct_layer *l, const ct_shape *bottom, int axis,
                                   int num_axes, ct_shape *shape_p)
{
    ct_shape shape = { 0 };
    int from = 0, to;

    if (num_axes < -1)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "num_axes %d is below -1, which means all",
                             num_axes);
    if (num_axes != 0) CT_TRY(ct_layer_axis(l, bottom, axis, "axis", &from));
    if (num_axes > bottom->ndim - from)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%d axes from axis %d on do not fit into shape %s",
                             num_axes, from, ct_shape_str(bottom).text);
    to = (num_axes < 0) ? bottom->ndim : from + num_axes;
    for (int i = from; i < to; i++) shape.dim[shape.ndim++] = bottom->dim[i];
    *shape_p = shape;
    return CT_OK;
}

ct_status ct_layer_broadcast_view(const ct_layer *l, const ct_shape *bottom, const ct_shape *small,
                                  int axis, ct_view *view_p)
{
    int from = 0;
    bool fits;

    if (small->ndim > 0) CT_TRY(ct_layer_axis(l, bottom, axis, "axis", &from));
    fits = small->ndim <= bottom->ndim - from;
    for (int i = 0; fits && (i < small->ndim); i++) fits = small->dim[i] == bottom->dim[from + i];
    if (!fits)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "shape %s does not fit on %s from axis %d on",
                             ct_shape_str(small).text, ct_shape_str(bottom).text, from);
    *view_p = ct_view_make(bottom, from, small->ndim);
    return CT_OK;
}

/* One row of the last axis that varies: with inner == 1 that is the scaled axis itself. */
static void affine_row(int64_t n, const float *x, const float *scale, const float *bias,
                       int64_t stride, float *y)
{
    float one = 1.0f, zero = 0.0f;
    const float *s = (scale != NULL) ? scale : &one, *b = (bias != NULL) ? bias : &zero;
    int64_t step_s = (scale != NULL) ? stride : 0, step_b = (bias != NULL) ? stride : 0;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * s[i * step_s] + b[i * step_b];
}

void ct_view_affine(const ct_view *v, const float *x, const float *scale, const float *bias,
                    float *y)
{
    int64_t n_row = (v->inner == 1) ? v->outer : v->outer * v->mid;
    int64_t n = (v->inner == 1) ? v->mid : v->inner;
    bool along = v->inner == 1;

    if (v->block > 0) {
        ct_blocked_affine(
            &(ct_blocked){ v->outer, v->mid, v->inner, v->block, v->dtype == CT_BF16 }, x, scale,
            bias, y);
        return;
    }
#pragma omp parallel for schedule(static) if (n_row * n >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < n_row; r++) {
        int64_t d = along ? 0 : r % v->mid;

        affine_row(n, x + r * n, (scale != NULL) ? scale + d : NULL,
                   (bias != NULL) ? bias + d : NULL, along ? 1 : 0, y + r * n);
    }
}

/* Columns [from, to) of the outer x mid matrices a and b, row by row: memory is read in order. */
static void dot_columns(const ct_view *v, const float *a, const float *b, int64_t from, int64_t to,
                        double *sum)
{
    for (int64_t d = from; d < to; d++) sum[d - from] = 0;
    for (int64_t o = 0; o < v->outer; o++) {
        const float *ra = a + o * v->mid, *rb = (b != NULL) ? b + o * v->mid : NULL;

        for (int64_t d = from; d < to; d++)
            sum[d - from] += (double)ra[d] * ((rb != NULL) ? (double)rb[d] : 1.0);
    }
}

static double dot_rows(const ct_view *v, const float *a, const float *b, int64_t d)
{
    double sum = 0;

    for (int64_t o = 0; o < v->outer; o++) {
        const float *ra = a + (o * v->mid + d) * v->inner;
        const float *rb = (b != NULL) ? b + (o * v->mid + d) * v->inner : NULL;

        if (rb != NULL) {
#pragma omp simd reduction(+ : sum)
            for (int64_t i = 0; i < v->inner; i++) sum += (double)ra[i] * (double)rb[i];
        } else {
#pragma omp simd reduction(+ : sum)
            for (int64_t i = 0; i < v->inner; i++) sum += (double)ra[i];
        }
    }
    return sum;
}

void ct_view_dot(const ct_view *v, const float *a, const float *b, bool add, float *out)
{
    enum { BLOCK = 64 };
    int64_t block = (v->inner == 1) ? BLOCK : 1, n_block = (v->mid + block - 1) / block;

    if (v->block > 0) {
        ct_blocked_dot(&(ct_blocked){ v->outer, v->mid, v->inner, v->block, v->dtype == CT_BF16 },
                       a, b, add, out);
        return;
    }
#pragma omp parallel for schedule(static) if (v->outer * v->mid * v->inner >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < n_block; k++) {
        int64_t from = k * block, to = (from + block < v->mid) ? from + block : v->mid;
        double sum[BLOCK];

        if (v->inner == 1)
            dot_columns(v, a, b, from, to, sum);
        else
            sum[0] = dot_rows(v, a, b, from);
        for (int64_t d = from; d < to; d++)
            out[d] = (float)(sum[d - from] + (add ? (double)out[d] : 0.0));
    }
}

ct_status ct_layer_constant(const ct_layer *l, const float *host, int64_t n, float **there_p)
{
    void *there = NULL;
    ct_status status;

    if (l->dev->kind == CT_DEVICE_CPU) {
        *there_p = (float *)host;
        return CT_OK;
    }
    CT_TRY(l->dev->mem_acquire((size_t)n * sizeof(float), &there));
    status = l->dev->from_host(NULL, there, host, (size_t)n * sizeof(float));
    if (status == CT_OK)
        *there_p = there;
    else
        l->dev->mem_release(there);
    return status;
}

void ct_layer_constant_release(const ct_layer *l, const float *host, float *there)
{
    if ((there != NULL) && (there != host)) l->dev->mem_release(there);
}

void ct_copy_bytes(size_t bytes, const void *from, void *to)
{
    const size_t chunk = 1 << 16;
    int64_t n_chunk = (int64_t)((bytes + chunk - 1) / chunk);

    if ((from == to) || (bytes == 0)) return;
#pragma omp parallel for schedule(static) if (n_chunk > 1)
    for (int64_t c = 0; c < n_chunk; c++) {
        size_t at = (size_t)c * chunk, len = (at + chunk <= bytes) ? chunk : bytes - at;

        memcpy((char *)to + at, (const char *)from + at, len);
    }
}

ct_status ct_layer_check_labels(const ct_layer *l, const ct_shape *x, const ct_shape *label,
                                const ct_view *v)
{
    if (v->mid < 1)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "no classes in shape %s", ct_shape_str(x).text);
    if (v->mid > INT32_MAX)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "%lld classes are too many", (long long)v->mid);
    if ((label->ndim < 1) || (ct_shape_count(label, 0, -1) != v->outer * v->inner))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottom 1 (labels) has shape %s, but scores of shape %s need %lld "
                             "labels, one for each distribution over %lld classes",
                             ct_shape_str(label).text, ct_shape_str(x).text,
                             (long long)(v->outer * v->inner), (long long)v->mid);
    return CT_OK;
}

ct_status ct_label_fail(const ct_layer *l, const ct_exec *ex, float value, int64_t at,
                        int64_t per_sample, int64_t n_class)
{
    return CT_LAYER_FAIL(l, CT_ERR_DATA,
                         "label %g of sample %lld of batch %lld is not a whole number in 0..%lld: "
                         "there are %lld classes",
                         (double)value,
                         (long long)(ex->batch_first + at / ((per_sample > 0) ? per_sample : 1)),
                         (long long)ex->micro_step, (long long)(n_class - 1), (long long)n_class);
}
