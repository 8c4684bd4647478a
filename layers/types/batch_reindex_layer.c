/* BatchReindex: top sample i is the bottom's sample index[i]. */
#include <string.h>

#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

enum { INDEX }; /* buffer: the second bottom as whole numbers, checked */

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *x = &in->bottom[0]->data.shape, *index = &in->bottom[1]->data.shape;
    ct_shape top = *x;

    if ((x->ndim < 1) || (index->ndim != 1))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottom 0 has shape %s, bottom 1 (indices) %s: it must have one axis",
                             ct_shape_str(x).text, ct_shape_str(index).text);
    top.dim[0] = index->dim[0];
    ct_instance_buffer(in, INDEX, CT_LIFETIME_PASS,
                       ct_index_ints(l, index->dim[0], x->dim[0]) * sizeof(int32_t));
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const float *x = ct_blob_data(in->bottom[0]), *from = ct_blob_data(in->bottom[1]);
    int64_t n = in->bottom[0]->data.shape.dim[0], m = in->top[0]->data.shape.dim[0];
    int64_t row = ct_shape_count(&in->top[0]->data.shape, 1, -1);
    int32_t *index = in->buffer[INDEX].data;
    float *y = ct_blob_data(in->top[0]);

    for (int64_t i = 0; i < m; i++) {
        if (!ct_label_class(from[i], n, &index[i]))
            return CT_LAYER_FAIL(
                l, CT_ERR_DATA, "index %lld of batch %lld is %g, not a whole number in 0..%lld",
                (long long)i, (long long)ex->micro_step, (double)from[i], (long long)(n - 1));
    }
#pragma omp parallel for schedule(static) if (m * row >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < m; i++)
        memcpy(y + i * row, x + index[i] * row, (size_t)row * sizeof(*y));
    return CT_OK;
}

/* A thread has columns of its own, so that every element is summed in the order of the tops. */
static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    enum { COLUMNS = 64 };
    const float *dy = ct_blob_diff(in->top[0]);
    int64_t n = in->bottom[0]->data.shape.dim[0], m = in->top[0]->data.shape.dim[0];
    int64_t row = ct_shape_count(&in->top[0]->data.shape, 1, -1);
    const int32_t *index = in->buffer[INDEX].data;
    float *dx = ct_blob_diff(in->bottom[0]);

    (void)l, (void)ex;
    if (dx == NULL) return CT_OK;
#pragma omp parallel for schedule(static) if ((n + m) * row >= CT_PARALLEL_MIN)
    for (int64_t from = 0; from < row; from += COLUMNS) {
        int64_t to = (from + COLUMNS < row) ? from + COLUMNS : row;

        for (int64_t i = 0; i < n; i++)
            memset(dx + i * row + from, 0, (size_t)(to - from) * sizeof(*dx));
        for (int64_t i = 0; i < m; i++) {
            for (int64_t c = from; c < to; c++) dx[index[i] * row + c] += dy[i * row + c];
        }
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_batch_reindex = {
    .type = "BatchReindex",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .no_diff_bottom = 1 << 1,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
};
