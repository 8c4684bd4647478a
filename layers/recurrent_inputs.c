/* What LSTM and RNN do over all steps at once: W_x, b and W_static, both ways, and the gradient by
 * W_h. */
#include "layers/device_kernels.h"
#include "layers/layer_util.h"
#include "layers/recurrent.h"

/* W_x and b over all steps, as one product each way, where a device's library takes them so. A
 * static input comes between b and W_x. */
ct_status ct_recurrent_make_inputs(const ct_layer *l, ct_instance *in, ct_recurrent_plan *plan,
                                   size_t *most_p)
{
    const ct_recurrent_state *s = l->state;
    int64_t rows = plan->steps * plan->columns;
    const ct_gemm_desc shape[CT_N_RUN] = {
        [CT_RUN_FORWARD] = { .tb = true, .m = rows, .n = s->sums, .k = s->n_in },
        [CT_RUN_BACKWARD_DATA] = { .m = rows, .n = s->n_in, .k = s->sums },
        [CT_RUN_BACKWARD_WEIGHT] = { .ta = true, .m = s->sums, .n = s->n_in, .k = rows }
    };
    const bool wanted[CT_N_RUN] = { !s->has_static, in->bottom[0]->wants_diff,
                                    in->top[0]->wants_diff };
    const unsigned behind[CT_N_RUN] = { CT_FUSE_BIAS, 0, CT_FUSE_SUM_A };

    for (int k = 0; k < CT_N_RUN; k++) {
        size_t bytes;

        ct_product_drop(&plan->inputs[k]);
        if (!wanted[k] || (l->dev->kind == CT_DEVICE_CPU)) continue;
        CT_TRY(ct_product_make(l, (ct_run_kind)k, &shape[k], behind[k], &plan->inputs[k]));
        if (plan->inputs[k].fused == NULL) continue;
        plan->name[k] = ct_product_name(&plan->inputs[k]);
        bytes = ct_product_workspace(&plan->inputs[k]);
        if (bytes > *most_p) *most_p = bytes;
    }
    return CT_OK;
}

void ct_recurrent_release(const ct_layer *l, ct_instance *in)
{
    ct_recurrent_plan *plan = in->state;

    (void)l;
    for (int k = 0; k < CT_N_RUN; k++) ct_product_drop(&plan->inputs[k]);
}

/* ---- forward */

ct_status ct_recurrent_inputs(const ct_layer *l, ct_instance *in, ct_exec *ex,
                              const ct_recurrent_plan *p, float *sums)
{
    const ct_recurrent_state *s = l->state;
    int64_t step = p->columns * s->sums;

    if (p->inputs[CT_RUN_FORWARD].fused != NULL)
        return ct_product_run(&p->inputs[CT_RUN_FORWARD], ex,
                              &(ct_product_args){ .a = ct_blob_data(in->bottom[0]),
                                                  .b = ct_blob_data(&in->weight[0]),
                                                  .lda = s->n_in,
                                                  .ldb = s->n_in,
                                                  .c = sums,
                                                  .ldc = s->sums,
                                                  .work = ct_recurrent_work(in),
                                                  .bias = ct_blob_data(&in->weight[1]) });
    CT_TRY(ct_kernels(ex)->fill_rows(ex, p->columns, s->sums, ct_blob_data(&in->weight[1]), sums));
    if (s->has_static)
        CT_TRY(ct_recurrent_product(in, ex, s->w_static, p->columns, s->sums, s->n_static,
                                    ct_blob_data(in->bottom[2]), 1.0f, sums));
    for (int64_t t = 1; t < p->steps; t++) CT_TRY(ct_device_copy(ex, step, sums, sums + t * step));
    return ct_recurrent_product(in, ex, 0, p->steps * p->columns, s->sums, s->n_in,
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
    CT_TRY(ct_recurrent_weight_diff(in, ex, s->w_static, p->columns, s->sums, s->n_static, scratch,
                                    ct_blob_data(in->bottom[2])));
    if (dx == NULL) return CT_OK;
    return ct_recurrent_product_back(in, ex, s->w_static, p->columns, s->sums, s->n_static, scratch,
                                     dx);
}

/* Of W_x and b. */
static ct_status input_weights(ct_instance *in, ct_exec *ex, const ct_recurrent_plan *p,
                               const float *d_sums)
{
    const ct_recurrent_state *s = in->layer->state;
    int64_t rows = p->steps * p->columns;
    ct_product_args g = { .a = d_sums,
                          .b = ct_blob_data(in->bottom[0]),
                          .lda = s->sums,
                          .ldb = s->n_in,
                          .ldc = s->n_in,
                          .work = ct_recurrent_work(in) };

    g.c = ct_blob_diff(&in->weight[0]);
    if ((p->inputs[CT_RUN_BACKWARD_WEIGHT].fused == NULL) || (g.c == NULL)) {
        CT_TRY(ct_recurrent_weight_diff(in, ex, 0, rows, s->sums, s->n_in, d_sums, g.b));
        return ct_recurrent_bias_diff(in, ex, 1, rows, s->sums, d_sums);
    }
    g.beta = ct_weight_beta(in, ex, 0);
    g.sums = ct_blob_diff(&in->weight[1]);
    g.sums_beta = ct_weight_beta(in, ex, 1);
    return ct_product_run(&p->inputs[CT_RUN_BACKWARD_WEIGHT], ex, &g);
}

static ct_status input_diff(ct_instance *in, ct_exec *ex, const ct_recurrent_plan *p,
                            const float *d_sums, float *dx)
{
    const ct_recurrent_state *s = in->layer->state;

    if (p->inputs[CT_RUN_BACKWARD_DATA].fused == NULL)
        return ct_recurrent_product_back(in, ex, 0, p->steps * p->columns, s->sums, s->n_in, d_sums,
                                         dx);
    return ct_product_run(&p->inputs[CT_RUN_BACKWARD_DATA], ex,
                          &(ct_product_args){ .a = d_sums,
                                              .b = ct_blob_data(&in->weight[0]),
                                              .lda = s->sums,
                                              .ldb = s->n_in,
                                              .c = dx,
                                              .ldc = s->n_in,
                                              .work = ct_recurrent_work(in) });
}

ct_status ct_recurrent_inputs_backward(const ct_layer *l, ct_instance *in, ct_exec *ex,
                                       const ct_recurrent_plan *p, const float *d_sums,
                                       const float *conted, float *scratch)
{
    const ct_recurrent_state *s = l->state;
    int64_t rows = p->steps * p->columns;
    float *dx = ct_blob_diff(in->bottom[0]);

    CT_TRY(ct_recurrent_weight_diff(in, ex, s->w_h, rows, s->sums, s->hidden, d_sums, conted));
    CT_TRY(input_weights(in, ex, p, d_sums));
    if (s->has_static) CT_TRY(static_backward(l, in, ex, p, d_sums, scratch));
    return (dx == NULL) ? CT_OK : input_diff(in, ex, p, d_sums, dx);
}
