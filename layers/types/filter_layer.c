/* Filter and BatchReindex: some samples of the bottom, chosen by another bottom. */
#include <string.h>

#include "layers/types/drop.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

/* ---- Filter: of the samples of its bottoms only those whose selector, the last bottom, is not 0.
 * How many that are, forward finds. */

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    (void)bottom;
    if (l->n_top != l->n_bottom - 1)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "%d tops for %d bottoms: one for each but the last, the selector",
                             l->n_top, l->n_bottom);
    return CT_OK;
}

/* Whatever lies within a sample is copied as it is. */
static bool takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    const ct_tensor *x = &bottom[slot]->data;

    return ((size_t)slot + 1 < p->n_bottom) && (x->layout.order != CT_ORDER_HWCN);
}

static ct_status filter_reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *chosen = &in->bottom[l->n_top]->data.shape;

    if ((chosen->ndim < 1) || (ct_shape_count(chosen, 1, -1) != 1))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "the selector, its last bottom, has shape %s: one value a sample",
                             ct_shape_str(chosen).text);
    for (int i = 0; i < l->n_top; i++) {
        const ct_tensor *x = &in->bottom[i]->data;

        if ((x->shape.ndim < 1) || (x->shape.dim[0] != chosen->dim[0]))
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                                 "bottom %d has shape %s, the selector %s: "
                                 "samples of the same number are needed",
                                 i, ct_shape_str(&x->shape).text, ct_shape_str(chosen).text);
        ct_blob_set_like(in->top[i], &x->shape, x);
    }
    ct_instance_buffer(in, CT_FILTER_ROWS, CT_LIFETIME_PASS,
                       (size_t)(1 + chosen->dim[0]) * sizeof(int64_t));
    return CT_OK;
}

static ct_status filter_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_blob *selector = in->bottom[l->n_top];
    const float *chosen = ct_blob_data(selector);
    int64_t *row = (int64_t *)in->buffer[CT_FILTER_ROWS].data + 1, n = 0;

    (void)ex;
    for (int64_t i = 0; i < selector->data.shape.dim[0]; i++) {
        if (chosen[i] != 0.0f) row[n++] = i;
    }
    row[-1] = n;
    for (int t = 0; t < l->n_top; t++) {
        const ct_tensor *x = &in->bottom[t]->data;
        size_t bytes = ct_filter_bytes(x);
        const char *from = x->data;
        char *to = in->top[t]->data.data;
        ct_shape shape = x->shape;

        shape.dim[0] = n;
        ct_blob_set_like(in->top[t], &shape, x);
#pragma omp parallel for schedule(static) if (n * (int64_t)bytes >= CT_PARALLEL_MIN)
        for (int64_t k = 0; k < n; k++)
            memcpy(to + (size_t)k * bytes, from + (size_t)row[k] * bytes, bytes);
    }
    return CT_OK;
}

/* dy NULL: zeros. Sample k of the chosen clears what lies before it, and the one behind them all
 * the rest. */
static void scatter(const int64_t *row, int64_t n, const char *dy, const ct_tensor *dx)
{
    size_t bytes = ct_filter_bytes(dx);
    int64_t most = dx->shape.dim[0];
    char *to = dx->data;

#pragma omp parallel for schedule(static) if (most * (int64_t)bytes >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k <= n; k++) {
        int64_t from = (k > 0) ? row[k - 1] + 1 : 0, end = (k < n) ? row[k] : most;

        memset(to + (size_t)from * bytes, 0, (size_t)(end - from) * bytes);
        if ((k < n) && (dy != NULL))
            memcpy(to + (size_t)end * bytes, dy + (size_t)k * bytes, bytes);
        else if (k < n)
            memset(to + (size_t)end * bytes, 0, bytes);
    }
}

static ct_status filter_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const int64_t *row = (const int64_t *)in->buffer[CT_FILTER_ROWS].data + 1;

    (void)ex;
    for (int t = 0; t < l->n_top; t++) {
        if (in->bottom[t]->diff.data != NULL)
            scatter(row, row[-1], in->top[t]->diff.data, &in->bottom[t]->diff);
    }
    return CT_OK;
}

static const ct_layout_ops filter_layout = { .takes = takes, .bf16 = true, .last = true };

const ct_layer_ops ct_layer_filter = {
    .type = "Filter",
    .min_bottom = 2,
    .max_bottom = -1,
    .min_top = 1,
    .max_top = -1,
    .no_diff_last = true,
    .varies = true,
    .null_top_diff = true,
    .setup = setup,
    .reshape = filter_reshape,
    .forward = filter_forward,
    .backward = filter_backward,
    .layout = &filter_layout,
};

/* ---- BatchReindex: top sample i is the bottom's sample index[i]. */

enum { INDEX }; /* buffer: the second bottom as whole numbers, checked */

static ct_status reindex_reshape(const ct_layer *l, ct_instance *in)
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

static ct_status reindex_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
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
static ct_status reindex_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
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
    .reshape = reindex_reshape,
    .forward = reindex_forward,
    .backward = reindex_backward,
};
