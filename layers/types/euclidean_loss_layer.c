/* EuclideanLoss: sum of (a - b)^2 over twice the number of samples. Either bottom may get a
 * gradient. */
#include "layers/types/layer_types.h"
#include "layers/types/loss_util.h"

typedef struct euclidean_plan {
    double samples; /* of the global batch, in the last forward */
} euclidean_plan;

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    return ct_loss_reshape_pair(l, in, 0, 1);
}

typedef struct euclidean {
    const float *a, *b;
} euclidean;

static double squared_distance(const void *ctx, int64_t from, int64_t to)
{
    const euclidean *e = ctx;
    double sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = from; i < to; i++)
        sum += ((double)e->a[i] - (double)e->b[i]) * ((double)e->a[i] - (double)e->b[i]);
    return sum;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    euclidean_plan *plan = in->state;
    euclidean e = { ct_blob_data(in->bottom[0]), ct_blob_data(in->bottom[1]) };
    int64_t n = ct_tensor_count(&in->bottom[0]->data);

    (void)l;
    CT_TRY(ct_loss_samples(in, ex, &plan->samples));
    ct_blob_data(in->top[0])[0] =
        (float)(ct_loss_sum(n, n, squared_distance, &e) / plan->samples / 2);
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const euclidean_plan *plan = in->state;
    const float *a = ct_blob_data(in->bottom[0]), *b = ct_blob_data(in->bottom[1]);
    float scale = (float)((double)ct_loss_weight(in) / plan->samples);
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
