/* Filter: of the samples of its bottoms only those whose selector, the last bottom, is not 0. How
 * many that are, forward finds. */
#include <string.h>

#include "layers/types/filter.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

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

static ct_status reshape(const ct_layer *l, ct_instance *in)
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

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
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

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const int64_t *row = (const int64_t *)in->buffer[CT_FILTER_ROWS].data + 1;

    (void)ex;
    for (int t = 0; t < l->n_top; t++) {
        if (in->bottom[t]->diff.data != NULL)
            scatter(row, row[-1], in->top[t]->diff.data, &in->bottom[t]->diff);
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_filter = {
    .type = "Filter",
    .min_bottom = 2,
    .max_bottom = -1,
    .min_top = 1,
    .max_top = -1,
    .no_diff_last = true,
    .varies = true,
    .null_top_diff = true,
    .takes = takes,
    .bf16 = true,
    .last = true,
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
};
