/* HingeLoss, one against all: of each score, by how much it misses 1 on its side (the label's score
 * above 0, the others' below), or that squared. */
#include "layers/types/layer_types.h"
#include "layers/types/loss_util.h"

static bool squared(const ct_layer *l)
{
    const Ct__HingeLossParameter *p = l->param->hinge_loss_param;

    return (p != NULL) && (p->norm == CT__HINGE_LOSS_PARAMETER__NORM__L2);
}

typedef struct hinge {
    const ct_class_loss *plan;
    const float *x;
    const int32_t *label;
    bool squared;
} hinge;

static double part(const void *ctx, int64_t from, int64_t to)
{
    const hinge *h = ctx;
    double sum = 0;

    for (int64_t i = from; i < to; i++) {
        const float *x = h->x + i * h->plan->classes;

        for (int64_t c = 0; c < h->plan->classes; c++) {
            double miss = 1.0 + ((c == h->label[i]) ? -(double)x[c] : (double)x[c]);

            miss = (miss < 0) ? 0 : miss;
            sum += h->squared ? miss * miss : miss;
        }
    }
    return sum;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_class_loss *plan = in->state;
    const int32_t *label = in->buffer[CT_CLASS_LOSS_LABEL].data;
    hinge h = { plan, ct_blob_data(in->bottom[0]), label, squared(l) };

    CT_TRY(ct_class_loss_begin(l, in, ex));
    ct_blob_data(in->top[0])[0] =
        (float)(ct_loss_sum(plan->n, plan->n * plan->classes, part, &h) / plan->samples);
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_class_loss *plan = in->state;
    const int32_t *label = in->buffer[CT_CLASS_LOSS_LABEL].data;
    const float *x = ct_blob_data(in->bottom[0]);
    float *dx = ct_blob_diff(in->bottom[0]);
    float scale = (float)((double)ct_loss_weight(in) / plan->samples);
    bool square = squared(l);

    (void)ex;
    if (dx == NULL) return CT_OK;
#pragma omp parallel for schedule(static) if (plan->n * plan->classes >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < plan->n; i++) {
        for (int64_t c = i * plan->classes; c < (i + 1) * plan->classes; c++) {
            float side = (c == i * plan->classes + label[i]) ? -1.0f : 1.0f;
            float miss = 1.0f + side * x[c], slope = square ? 2.0f * miss : 1.0f;

            dx[c] = (miss > 0.0f) ? scale * side * slope : 0.0f;
        }
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_hinge_loss = {
    .type = "HingeLoss",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .is_loss = true,
    .top_is_share = true,
    .no_diff_bottom = 1 << 1,
    .backward_reads = CT_READS_BOTTOM,
    .instance_state_size = sizeof(ct_class_loss),
    .reshape = ct_class_loss_reshape,
    .forward = forward,
    .backward = backward,
};
