/* Axpy: a factor for each channel of each sample times x, plus y (squeeze-and-excitation nets). */
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *a = &in->bottom[0]->data.shape, *x = &in->bottom[1]->data.shape;
    const ct_shape *y = &in->bottom[2]->data.shape;
    ct_view *v = in->state;

    if ((x->ndim < 2) || !ct_shape_equal(x, y))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottoms 1 and 2 have shapes %s and %s: the same "
                             "N x C x ... are needed",
                             ct_shape_str(x).text, ct_shape_str(y).text);
    *v = (ct_view){ x->dim[0] * x->dim[1], 1, ct_shape_count(x, 2, -1), 0, CT_F32 };
    if ((a->ndim < 2) || (a->dim[0] != x->dim[0]) || (a->dim[1] != x->dim[1]) ||
        (ct_shape_count(a, 0, -1) != v->outer))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottom 0 (factors) has shape %s, bottom 1 %s: one factor a channel",
                             ct_shape_str(a).text, ct_shape_str(x).text);
    ct_blob_set_shape(in->top[0], x);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_view *v = in->state;
    const float *a = ct_blob_data(in->bottom[0]), *x = ct_blob_data(in->bottom[1]);
    const float *y = ct_blob_data(in->bottom[2]);
    float *z = ct_blob_data(in->top[0]);

    (void)l, (void)ex;
#pragma omp parallel for schedule(static) if (v->outer * v->inner >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < v->outer; r++) {
        int64_t from = r * v->inner;

#pragma omp simd
        for (int64_t i = from; i < from + v->inner; i++) z[i] = a[r] * x[i] + y[i];
    }
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_view *v = in->state;
    const float *a = ct_blob_data(in->bottom[0]), *x = ct_blob_data(in->bottom[1]);
    const float *dz = ct_blob_diff(in->top[0]);
    float *da = ct_blob_diff(in->bottom[0]), *dx = ct_blob_diff(in->bottom[1]);

    (void)l, (void)ex;
#pragma omp parallel for schedule(static) if (v->outer * v->inner >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < v->outer; r++) {
        int64_t from = r * v->inner, to = from + v->inner;
        double sum = 0;

#pragma omp simd reduction(+ : sum)
        for (int64_t i = from; i < to; i++) sum += (double)dz[i] * (double)x[i];
        if (da != NULL) da[r] = (float)sum;
        if (dx == NULL) continue;
#pragma omp simd
        for (int64_t i = from; i < to; i++) dx[i] = a[r] * dz[i];
    }
    if (ct_blob_diff(in->bottom[2]) != NULL)
        ct_copy_f32(v->outer * v->inner, dz, ct_blob_diff(in->bottom[2]));
    return CT_OK;
}

const ct_layer_ops ct_layer_axpy = {
    .type = "Axpy",
    .min_bottom = 3,
    .max_bottom = 3,
    .min_top = 1,
    .max_top = 1,
    .backward_reads = CT_READS_BOTTOM,
    .instance_state_size = sizeof(ct_view),
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
};
