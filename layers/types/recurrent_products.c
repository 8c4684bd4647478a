/* Products of LSTM and RNN with a weight each way: on devices made at reshape, with the bias and
 * its gradient in the same kernel where the library has that; on the CPU chosen as they run. */
#include "layers/types/device_kernels.h"
#include "layers/layer_util.h"
#include "layers/types/recurrent.h"

void *ct_recurrent_work(const ct_instance *in)
{
    const ct_recurrent_plan *p = in->state;

    return in->buffer[p->slot].data;
}

/* ---- made at reshape */

/* Bytes at which each step begins; 0: all of them where blocks do. */
static int aligned_of(const ct_recurrent_shape *s, ct_run_kind kind)
{
    int64_t n = s->columns * s->n * (int64_t)sizeof(float);
    int64_t k = s->columns * s->k * (int64_t)sizeof(float), bytes = (n | k) & -(n | k);

    return ((kind == CT_RUN_BACKWARD_WEIGHT) || !s->by_step || (bytes >= CT_ALIGN)) ? 0
                                                                                    : (int)bytes;
}

ct_status ct_recurrent_make(const ct_layer *l, const ct_recurrent_shape *s,
                            const bool wanted[CT_N_RUN], ct_product of[CT_N_RUN], size_t *most_p)
{
    int64_t rows = s->steps * s->columns, m = s->by_step ? s->columns : rows;
    const ct_gemm_desc shape[CT_N_RUN] = {
        [CT_RUN_FORWARD] = { .tb = true, .m = m, .n = s->n, .k = s->k },
        [CT_RUN_BACKWARD_DATA] = { .m = m, .n = s->k, .k = s->n },
        [CT_RUN_BACKWARD_WEIGHT] = { .ta = true, .m = s->n, .n = s->k, .k = rows }
    };
    const unsigned behind[CT_N_RUN] = { s->bias ? CT_FUSE_BIAS : 0, 0,
                                        s->bias ? CT_FUSE_SUM_A : 0 };

    for (int k = 0; k < CT_N_RUN; k++) {
        ct_run_kind kind = (ct_run_kind)k;
        size_t bytes;

        ct_product_drop(&of[k]);
        of[k] = (ct_product){ .math = NULL };
        if (!wanted[k] || (l->dev->kind == CT_DEVICE_CPU)) continue;
        CT_TRY(ct_product_make_at(l, kind, &shape[k], behind[k], aligned_of(s, kind), &of[k]));
        bytes = ct_product_workspace(&of[k]);
        if (bytes > *most_p) *most_p = bytes;
    }
    return CT_OK;
}

/* ---- one by one */

static ct_status pick(const ct_layer *l, ct_run_kind kind, const ct_gemm_desc *shape, ct_product *p)
{
    *p = (ct_product){ .math = NULL };
    return ct_product_make_plain(l, kind, shape, 0, 0, p);
}

ct_status ct_recurrent_reserve_products(const ct_layer *l, int64_t m, int64_t n, int64_t k,
                                        size_t *most_p)
{
    const ct_gemm_desc shape[CT_N_RUN] = {
        [CT_RUN_FORWARD] = { .tb = true, .m = m, .n = n, .k = k },
        [CT_RUN_BACKWARD_DATA] = { .m = m, .n = k, .k = n },
        [CT_RUN_BACKWARD_WEIGHT] = { .ta = true, .m = n, .n = k, .k = m }
    };

    for (int i = 0; i < CT_N_RUN; i++) {
        ct_product p;
        size_t bytes;

        CT_TRY(pick(l, (ct_run_kind)i, &shape[i], &p));
        bytes = ct_product_workspace(&p);
        if (bytes > *most_p) *most_p = bytes;
    }
    return CT_OK;
}

ct_status ct_recurrent_product(ct_instance *in, ct_exec *ex, const ct_product *made, int w,
                               int64_t m, int64_t n, int64_t k, const float *x, float beta,
                               float *y)
{
    ct_product_args g = { .a = x,
                          .b = ct_blob_data(&in->weight[w]),
                          .lda = k,
                          .ldb = k,
                          .beta = beta,
                          .c = y,
                          .ldc = n,
                          .work = ct_recurrent_work(in) };
    ct_product p;

    if ((made != NULL) && ct_recurrent_is_made(made)) return ct_product_run(made, ex, &g);
    CT_TRY(
        pick(in->layer, CT_RUN_FORWARD, &(ct_gemm_desc){ .tb = true, .m = m, .n = n, .k = k }, &p));
    return ct_product_run(&p, ex, &g);
}

ct_status ct_recurrent_product_back(ct_instance *in, ct_exec *ex, const ct_product *made, int w,
                                    int64_t m, int64_t n, int64_t k, const float *dy, float *dx)
{
    ct_product_args g = { .a = dy,
                          .b = ct_blob_data(&in->weight[w]),
                          .lda = n,
                          .ldb = k,
                          .c = dx,
                          .ldc = k,
                          .work = ct_recurrent_work(in) };
    ct_product p;

    if ((made != NULL) && ct_recurrent_is_made(made)) return ct_product_run(made, ex, &g);
    CT_TRY(pick(in->layer, CT_RUN_BACKWARD_DATA, &(ct_gemm_desc){ .m = m, .n = k, .k = n }, &p));
    return ct_product_run(&p, ex, &g);
}

static ct_status bias_diff(ct_instance *in, ct_exec *ex, int b, int64_t m, int64_t n,
                           const float *dy)
{
    float *db = ct_blob_diff(&in->weight[b]);

    if (db == NULL) return CT_OK;
    return ct_kernels(ex)->dot(ex, &(ct_view){ m, n, 1, 0, CT_F32 }, dy, NULL,
                               ct_weight_beta(in, ex, b) != 0.0f, db);
}

ct_status ct_recurrent_weight_diff(ct_instance *in, ct_exec *ex, const ct_product *made, int w,
                                   int b, int64_t m, int64_t rows, int64_t n, const float *dy,
                                   const float *x)
{
    ct_product_args g = { .a = dy,
                          .b = x,
                          .lda = rows,
                          .ldb = n,
                          .c = ct_blob_diff(&in->weight[w]),
                          .ldc = n,
                          .work = ct_recurrent_work(in) };
    ct_product p;

    g.beta = ct_weight_beta(in, ex, w);
    if ((made != NULL) && ct_recurrent_is_made(made) && (g.c != NULL)) {
        if (b >= 0) g.sums = ct_blob_diff(&in->weight[b]);
        g.sums_beta = (b >= 0) ? ct_weight_beta(in, ex, b) : 0.0f;
        return ct_product_run(made, ex, &g);
    }
    if (g.c != NULL) {
        CT_TRY(pick(in->layer, CT_RUN_BACKWARD_WEIGHT,
                    &(ct_gemm_desc){ .ta = true, .m = rows, .n = n, .k = m }, &p));
        CT_TRY(ct_product_run(&p, ex, &g));
    }
    return (b >= 0) ? bias_diff(in, ex, b, m, rows, dy) : CT_OK;
}

ct_status ct_recurrent_affine(ct_instance *in, ct_exec *ex, const ct_product *made, int w, int b,
                              int64_t m, int64_t n, int64_t k, const float *x, float *y)
{
    const float *bias = ct_blob_data(&in->weight[b]);

    if (ct_recurrent_is_made(made))
        return ct_product_run(made, ex,
                              &(ct_product_args){ .a = x,
                                                  .b = ct_blob_data(&in->weight[w]),
                                                  .lda = k,
                                                  .ldb = k,
                                                  .c = y,
                                                  .ldc = n,
                                                  .work = ct_recurrent_work(in),
                                                  .bias = bias });
    CT_TRY(ct_kernels(ex)->fill_rows(ex, m, n, bias, y));
    return ct_recurrent_product(in, ex, NULL, w, m, n, k, x, 1.0f, y);
}
