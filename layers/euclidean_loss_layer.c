/* EuclideanLoss: sum of (a - b)^2 over twice the number of samples. Either bottom may get a
 * gradient. */
#include "layers/layer_types.h"
#include "layers/layer_util.h"

typedef struct euclidean_plan {
    double samples; /* of the global batch, in the last forward */
} euclidean_plan;

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *a = &in->bottom[0]->data.shape, *b = &in->bottom[1]->data.shape;
    ct_shape scalar = { 0 };

    if ((a->ndim < 1) || (b->ndim < 1) || (a->dim[0] != b->dim[0]) ||
        (ct_shape_count(a, 1, -1) != ct_shape_count(b, 1, -1)))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottoms of shapes %s and %s do not match",
                             ct_shape_str(a).text, ct_shape_str(b).text);
    ct_blob_set_shape(in->top[0], &scalar);
    return CT_OK;
}

/* Partial sums of fixed blocks, so that threads do not change the result. */
static double squared_distance(int64_t n, const float *a, const float *b)
{
    enum { N_BLOCK = 64 };
    double part[N_BLOCK], sum = 0;
    int64_t size = (n + N_BLOCK - 1) / N_BLOCK;

#pragma omp parallel for schedule(static) if (n >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < N_BLOCK; k++) {
        int64_t to = ((k + 1) * size < n) ? (k + 1) * size : n;
        double s = 0;

#pragma omp simd reduction(+ : s)
        for (int64_t i = k * size; i < to; i++)
            s += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        part[k] = s;
    }
    for (int64_t k = 0; k < N_BLOCK; k++) sum += part[k];
    return sum;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    euclidean_plan *plan = in->state;
    const ct_tensor *a = &in->bottom[0]->data;

    (void)l;
    CT_TRY(ct_exec_global_count(ex, (double)a->shape.dim[0], false, &plan->samples));
    if (plan->samples < 1) plan->samples = 1;
    ct_blob_data(in->top[0])[0] =
        (float)(squared_distance(ct_tensor_count(a), ct_blob_data(in->bottom[0]),
                                 ct_blob_data(in->bottom[1])) /
                plan->samples / 2);
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const euclidean_plan *plan = in->state;
    const float *a = ct_blob_data(in->bottom[0]), *b = ct_blob_data(in->bottom[1]);
    float scale = (float)((double)ct_blob_diff(in->top[0])[0] / plan->samples);
    int64_t n = ct_tensor_count(&in->bottom[0]->data);

    (void)ex;
    for (int k = 0; k < l->n_bottom; k++) {
        float *dx = ct_blob_diff(in->bottom[k]), sign = (k == 0) ? scale : -scale;

        if (dx == NULL) continue;
#pragma omp parallel for simd schedule(static) if (n >= CT_PARALLEL_MIN)
        for (int64_t i = 0; i < n; i++) dx[i] = sign * (a[i] - b[i]);
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_euclidean_loss = {
    .type = "EuclideanLoss",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .is_loss = true,
    .top_is_share = true,
    .backward_reads = CT_READS_BOTTOM,
    .instance_state_size = sizeof(euclidean_plan),
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
};
