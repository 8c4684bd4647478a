/* Split: every top is the bottom; the bottom's gradient is the sum of the tops'. A top without a
 * diff counts as zero. Values are copied, unless the net has given a top the bottom's memory. */
#include "layers/layer_types.h"
#include "layers/layer_util.h"

#include <string.h>

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    for (int i = 0; i < l->n_top; i++) ct_blob_set_shape(in->top[i], &in->bottom[0]->data.shape);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)ex;
    for (int i = 0; i < l->n_top; i++)
        ct_copy_f32(ct_tensor_count(&in->bottom[0]->data), ct_blob_data(in->bottom[0]),
                    ct_blob_data(in->top[i]));
    return CT_OK;
}

static void add(int64_t n, const float *a, const float *b, float *y)
{
#pragma omp parallel for simd schedule(static) if (n >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    int64_t n = ct_tensor_count(&in->bottom[0]->data);
    float *dx = ct_blob_diff(in->bottom[0]);
    const float *first = NULL; /* the sum so far: one top's diff, later dx itself */

    (void)ex;
    if (dx == NULL) return CT_OK;
    for (int i = 0; i < l->n_top; i++) {
        const float *dy = ct_blob_diff(in->top[i]);

        if (dy == NULL) continue;
        if (first != NULL) {
            add(n, first, dy, dx);
            first = dx;
        } else {
            first = dy;
        }
    }
    if (first == NULL)
        memset(dx, 0, (size_t)n * sizeof(float));
    else
        ct_copy_f32(n, first, dx);
    return CT_OK;
}

const ct_layer_ops ct_layer_split = {
    .type = "Split",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = -1,
    .alias = CT_ALIAS_DATA,
    .null_top_diff = true,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
};
