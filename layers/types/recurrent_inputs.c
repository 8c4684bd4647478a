/* What LSTM and RNN do over all steps at once: W_x, b and W_static, both ways, and the gradient by
 * W_h. */
#include "layers/types/device_kernels.h"
#include "layers/layer_util.h"
#include "layers/types/recurrent.h"

/* W_x and b over all steps, as one product each way, where a device's library takes them so. A
 * static input comes between b and W_x. */
ct_status ct_recurrent_make_inputs(const ct_layer *l, ct_instance *in, ct_recurrent_plan *plan,
                                   size_t *most_p)
{
    const ct_recurrent_state *s = l->state;
    const bool wanted[CT_N_RUN] = { !s->has_static, in->bottom[0]->wants_diff,
                                    in->top[0]->wants_diff };

    CT_TRY(ct_recurrent_make(l,
                             &(ct_recurrent_shape){ .steps = plan->steps,
                                                    .columns = plan->columns,
                                                    .n = s->sums,
                                                    .k = s->n_in,
                                                    .bias = true },
                             wanted, plan->inputs, most_p));
    for (int k = 0; k < CT_N_RUN; k++) {
        if (ct_recurrent_is_made(&plan->inputs[k]))
            plan->name[k] = ct_product_name(&plan->inputs[k]);
    }
    return CT_OK;
}

void ct_recurrent_release(const ct_layer *l, ct_instance *in)
{
    ct_recurrent_plan *plan = in->state;

    (void)l;
    for (int k = 0; k < CT_N_RUN; k++) {
        ct_product_drop(&plan->inputs[k]);
        ct_product_drop(&plan->hidden[k]);
        ct_product_drop(&plan->outputs[k]);
    }
}

/* ---- forward */

ct_status ct_recurrent_inputs(const ct_layer *l, ct_instance *in, ct_exec *ex,
                              const ct_recurrent_plan *p, float *sums)
{
    const ct_recurrent_state *s = l->state;
    int64_t step = p->columns * s->sums;

    if (ct_recurrent_is_made(&p->inputs[CT_RUN_FORWARD]))
        return ct_recurrent_affine(in, ex, &p->inputs[CT_RUN_FORWARD], 0, 1, p->steps * p->columns,
                                   s->sums, s->n_in, ct_blob_data(in->bottom[0]), sums);
    CT_TRY(ct_kernels(ex)->fill_rows(ex, p->columns, s->sums, ct_blob_data(&in->weight[1]), sums));
    if (s->has_static)
        CT_TRY(ct_recurrent_product(in, ex, NULL, s->w_static, p->columns, s->sums, s->n_static,
                                    ct_blob_data(in->bottom[2]), 1.0f, sums));
    for (int64_t t = 1; t < p->steps; t++) CT_TRY(ct_device_copy(ex, step, sums, sums + t * step));
    return ct_recurrent_product(in, ex, NULL, 0, p->steps * p->columns, s->sums, s->n_in,
                                ct_blob_data(in->bottom[0]), 1.0f, sums);
}

/* ---- backward */

static ct_status static_backward(const ct_layer *l, ct_instance *in, ct_exec *ex,
                                 const ct_recurrent_plan *p, const float *d_sums, float *scratch)
{
    const ct_recurrent_state *s = l->state;
    float *dx = ct_blob_diff(in->bottom[2]);

    /* the static input is there in all steps */
    CT_TRY(ct_kernels(ex)->sum_steps(ex, p->steps, p->columns * s->sums, d_sums, scratch));
    CT_TRY(ct_recurrent_weight_diff(in, ex, NULL, s->w_static, -1, p->columns, s->sums, s->n_static,
                                    scratch, ct_blob_data(in->bottom[2])));
    if (dx == NULL) return CT_OK;
    return ct_recurrent_product_back(in, ex, NULL, s->w_static, p->columns, s->sums, s->n_static,
                                     scratch, dx);
}

ct_status ct_recurrent_inputs_backward(const ct_layer *l, ct_instance *in, ct_exec *ex,
                                       const ct_recurrent_plan *p, const float *d_sums,
                                       const float *conted, float *scratch)
{
    const ct_recurrent_state *s = l->state;
    int64_t rows = p->steps * p->columns;
    float *dx = ct_blob_diff(in->bottom[0]);

    CT_TRY(ct_recurrent_weight_diff(in, ex, &p->hidden[CT_RUN_BACKWARD_WEIGHT], s->w_h, -1, rows,
                                    s->sums, s->hidden, d_sums, conted));
    CT_TRY(ct_recurrent_weight_diff(in, ex, &p->inputs[CT_RUN_BACKWARD_WEIGHT], 0, 1, rows, s->sums,
                                    s->n_in, d_sums, ct_blob_data(in->bottom[0])));
    if (s->has_static) CT_TRY(static_backward(l, in, ex, p, d_sums, scratch));
    if (dx == NULL) return CT_OK;
    return ct_recurrent_product_back(in, ex, &p->inputs[CT_RUN_BACKWARD_DATA], 0, rows, s->sums,
                                     s->n_in, d_sums, dx);
}
