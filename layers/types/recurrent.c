/* What LSTM and RNN share: shapes, weights, steps over time and the products of all steps at once.
 */
#include "layers/types/recurrent.h"

#include <string.h>

#include "layers/types/device_kernels.h"
#include "layers/layer_util.h"

/* ---- set-up */

static ct_status add_weight(ct_layer *l, int64_t rows, int64_t columns,
                            const Ct__FillerParameter *filler)
{
    ct_shape shape = { .ndim = (columns > 0) ? 2 : 1, .dim = { rows, columns } };

    if (ct_layer_add_weight(l, &shape, filler) == NULL)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "too many weights");
    return CT_OK;
}

static ct_status count_blobs(const ct_layer *l, ct_recurrent_state *s)
{
    int extra = s->expose ? s->n_hidden : 0;

    if ((l->n_bottom < 2 + extra) || (l->n_bottom > 3 + extra))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "%d bottoms; it takes x, cont%s and, in between if wanted, a static "
                             "input%s",
                             l->n_bottom, s->expose ? ((s->n_hidden == 2) ? ", h, c" : ", h") : "",
                             s->expose ? "" : " behind them (the state needs expose_hidden)");
    if (l->n_top != 1 + extra)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%d tops instead of %d%s", l->n_top, 1 + extra,
                             s->expose ? "" : "; the last state is a top with expose_hidden");
    s->has_static = (l->n_bottom == 3 + extra);
    return CT_OK;
}

/* fixed: of the static input, NULL: there is none. */
static ct_status check_inputs(const ct_layer *l, const ct_shape *x, const ct_shape *fixed)
{
    if (x->ndim < 3)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottom 0 has shape %s; it must be steps x columns x inputs",
                             ct_shape_str(x).text);
    if ((fixed != NULL) && (fixed->ndim < 2))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottom 2, the static input, has shape %s; it must be columns x "
                             "inputs",
                             ct_shape_str(fixed).text);
    return CT_OK;
}

ct_status ct_recurrent_setup(ct_layer *l, const ct_shape *bottom, int n_hidden, int64_t gates)
{
    const Ct__RecurrentParameter *p = l->param->recurrent_param;
    ct_recurrent_state *s = l->state;

    if ((p == NULL) || (p->num_output == 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "recurrent_param.num_output is missing or 0");
    s->n_hidden = n_hidden;
    s->hidden = p->num_output;
    s->sums = gates * s->hidden;
    s->expose = p->expose_hidden;
    CT_TRY(count_blobs(l, s));
    CT_TRY(check_inputs(l, &bottom[0], s->has_static ? &bottom[2] : NULL));
    s->n_in = ct_shape_count(&bottom[0], 2, -1);
    if (s->n_in == 0) return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom 0 has no inputs");
    CT_TRY(add_weight(l, s->sums, s->n_in, p->weight_filler));
    CT_TRY(add_weight(l, s->sums, 0, p->bias_filler));
    if (s->has_static) {
        s->n_static = ct_shape_count(&bottom[2], 1, -1);
        if (s->n_static == 0) return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom 2 has no inputs");
        s->w_static = l->n_weight;
        CT_TRY(add_weight(l, s->sums, s->n_static, p->weight_filler));
    }
    s->w_h = l->n_weight;
    return add_weight(l, s->sums, s->hidden, p->weight_filler);
}

int ct_recurrent_bottom(const ct_recurrent_state *s, int i)
{
    return 2 + (s->has_static ? 1 : 0) + i;
}

static bool is_state(const ct_recurrent_state *s, const ct_recurrent_plan *p, const ct_shape *shape)
{
    return (shape->ndim == 3) && (shape->dim[0] == 1) && (shape->dim[1] == p->columns) &&
           (shape->dim[2] == s->hidden);
}

static ct_status check_bottoms(const ct_layer *l, const ct_instance *in, const ct_recurrent_plan *p)
{
    const ct_recurrent_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape, *cont = &in->bottom[1]->data.shape;

    if ((cont->ndim != 2) || (cont->dim[0] != p->steps) || (cont->dim[1] != p->columns))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottom 1 (cont) has shape %s; x of shape %s needs %lld x %lld",
                             ct_shape_str(cont).text, ct_shape_str(x).text, (long long)p->steps,
                             (long long)p->columns);
    if (ct_shape_count(x, 2, -1) != s->n_in)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "x of shape %s, but the weights are for %lld inputs",
                             ct_shape_str(x).text, (long long)s->n_in);
    if (s->has_static && ((in->bottom[2]->data.shape.dim[0] != p->columns) ||
                          (ct_shape_count(&in->bottom[2]->data.shape, 1, -1) != s->n_static)))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottom 2 (static) has shape %s, %lld columns of %lld inputs are "
                             "needed",
                             ct_shape_str(&in->bottom[2]->data.shape).text, (long long)p->columns,
                             (long long)s->n_static);
    for (int i = 0; s->expose && (i < s->n_hidden); i++) {
        const ct_shape *h = &in->bottom[ct_recurrent_bottom(s, i)]->data.shape;

        if (!is_state(s, p, h))
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                                 "bottom %d (the state) has shape %s instead of 1 x %lld x %lld",
                                 ct_recurrent_bottom(s, i), ct_shape_str(h).text,
                                 (long long)p->columns, (long long)s->hidden);
    }
    return CT_OK;
}

ct_status ct_recurrent_reshape(const ct_layer *l, ct_instance *in, ct_recurrent_plan *plan)
{
    const ct_recurrent_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;

    CT_TRY(check_inputs(l, x, s->has_static ? &in->bottom[2]->data.shape : NULL));
    if (x->dim[0] < 1)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "x of shape %s has no steps", ct_shape_str(x).text);
    plan->steps = x->dim[0];
    plan->columns = x->dim[1];
    CT_TRY(check_bottoms(l, in, plan));
    ct_blob_set_shape(in->top[0], &(ct_shape){ 3, { plan->steps, plan->columns, s->hidden } });
    for (int i = 0; s->expose && (i < s->n_hidden); i++)
        ct_blob_set_shape(in->top[1 + i], &(ct_shape){ 3, { 1, plan->columns, s->hidden } });
    return CT_OK;
}

static ct_status name_products(const ct_layer *l, int64_t rows, ct_recurrent_plan *plan)
{
    const ct_recurrent_state *s = l->state;

    for (int k = 0; k < CT_N_RUN; k++) {
        ct_product p = { .math = NULL };
        ct_gemm_desc shape = { .tb = true, .m = rows, .n = s->sums, .k = s->n_in };

        CT_TRY(ct_product_make_plain(l, (ct_run_kind)k, &shape, 0, 0, &p));
        plan->name[k] = ct_product_name(&p);
    }
    return CT_OK;
}

/* The products of the steps with W_h: packed once where enough of them use it. */
static size_t reserve_steps(const ct_layer *l, ct_recurrent_plan *plan)
{
    const ct_recurrent_state *s = l->state;
    const char *way = ct_engine_policy(l, CT_RUN_FORWARD);
    int n_thread = ct_engine_n_thread(l);
    bool bf16 = ct_engine_bf16(l);
    size_t forward, backward;

    plan->forward =
        (ct_gemm_desc){ false, true, plan->columns, s->sums, s->hidden, n_thread, bf16, false };
    plan->backward =
        (ct_gemm_desc){ false, false, plan->columns, s->hidden, s->sums, n_thread, bf16, false };
    plan->packs = (l->dev->kind == CT_DEVICE_CPU) && (plan->columns > 0) &&
                  ((strcmp(way, "auto") == 0) || (strcmp(way, "packed") == 0)) &&
                  ct_gemm_packed_prefers(&plan->forward, plan->steps);
    if (!plan->packs) return 0;
    forward = ct_gemm_packed_bytes(&plan->forward);
    backward = ct_gemm_packed_bytes(&plan->backward);
    return (forward > backward) ? forward : backward;
}

/* On devices, with the gradient by W_h over all steps. */
static ct_status make_steps(const ct_layer *l, const ct_instance *in, ct_recurrent_plan *plan,
                            size_t *most_p)
{
    const ct_recurrent_state *s = l->state;
    bool back = in->top[0]->wants_diff;

    return ct_recurrent_make(l,
                             &(ct_recurrent_shape){ .steps = plan->steps,
                                                    .columns = plan->columns,
                                                    .n = s->sums,
                                                    .k = s->hidden,
                                                    .by_step = true },
                             (const bool[CT_N_RUN]){ true, back, back }, plan->hidden, most_p);
}

ct_status ct_recurrent_reserve(const ct_layer *l, ct_instance *in, ct_recurrent_plan *plan,
                               int slot, size_t bytes)
{
    const ct_recurrent_state *s = l->state;
    int64_t rows = plan->steps * plan->columns;
    size_t packed = reserve_steps(l, plan);

    if (packed > bytes) bytes = packed;
    plan->slot = slot;
    CT_TRY(name_products(l, rows, plan));
    CT_TRY(ct_recurrent_make_inputs(l, in, plan, &bytes));
    CT_TRY(make_steps(l, in, plan, &bytes));
    CT_TRY(ct_recurrent_reserve_products(l, rows, s->sums, s->n_in, &bytes));
    CT_TRY(ct_recurrent_reserve_products(l, rows, s->sums, s->hidden, &bytes));
    if (s->has_static)
        CT_TRY(ct_recurrent_reserve_products(l, plan->columns, s->sums, s->n_static, &bytes));
    if (!plan->packs) /* one by one, step after step */
        CT_TRY(ct_recurrent_reserve_products(l, plan->columns, s->sums, s->hidden, &bytes));
    if (bytes > 0) ct_instance_buffer(in, slot, CT_LIFETIME_CALL, bytes);
    return CT_OK;
}

void ct_recurrent_engines(const ct_recurrent_plan *p, ct_estimate *e)
{
    for (int k = 0; k < CT_N_RUN; k++)
        e->engine[k] =
            (p->cell != NULL) ? ct_engine_name(p->cell->name, p->cell_desc.operand) : p->name[k];
}

double ct_recurrent_flop(const ct_recurrent_state *s, const ct_recurrent_plan *p)
{
    double rows = (double)(p->steps * p->columns);

    return 2.0 * (double)s->sums *
           (rows * (double)(s->n_in + s->hidden) + (double)(p->columns * s->n_static));
}

/* ---- steps forward */

static void pack(ct_instance *in, const ct_recurrent_plan *p, const ct_gemm_desc *d)
{
    const ct_recurrent_state *s = in->layer->state;

    if (p->packs)
        ct_gemm_pack(d, ct_blob_data(&in->weight[s->w_h]), s->hidden, in->buffer[p->slot].data);
}

void ct_recurrent_begin(ct_instance *in, const ct_recurrent_plan *p)
{
    pack(in, p, &p->forward);
}

void ct_recurrent_begin_backward(ct_instance *in, const ct_recurrent_plan *p)
{
    pack(in, p, &p->backward);
}

/* Every other step reads the weights from their end: what the cache still holds of them. */
static void run_packed(const ct_instance *in, const ct_recurrent_plan *p, const ct_gemm_desc *d,
                       int64_t t, const float *a, float beta, float *c)
{
    float *packed = in->buffer[p->slot].data;
    ct_gemm_args g = { .alpha = 1.0f,
                       .beta = beta,
                       .a = a,
                       .lda = d->k,
                       .c = c,
                       .ldc = d->n,
                       .work = packed + ct_gemm_packed_size(d) };

    ct_gemm_run_packed(d, &g, packed, (t & 1) != 0);
}

ct_status ct_recurrent_step(const ct_layer *l, ct_instance *in, ct_exec *ex,
                            const ct_recurrent_plan *p, int64_t t, const float *conted, float *sums)
{
    const ct_recurrent_state *s = l->state;

    if (p->packs) {
        run_packed(in, p, &p->forward, t, conted, 1.0f, sums);
        return ct_exec_poll(ex);
    }
    return ct_recurrent_product(in, ex, &p->hidden[CT_RUN_FORWARD], s->w_h, p->columns, s->sums,
                                s->hidden, conted, 1.0f, sums);
}

/* ---- backward */

ct_status ct_recurrent_step_backward(const ct_layer *l, ct_instance *in, ct_exec *ex,
                                     const ct_recurrent_plan *p, int64_t t, const float *cont,
                                     const float *d_sums, float *dh)
{
    const ct_recurrent_state *s = l->state;

    if (p->packs)
        run_packed(in, p, &p->backward, t, d_sums, 0.0f, dh);
    else
        CT_TRY(ct_recurrent_product_back(in, ex, &p->hidden[CT_RUN_BACKWARD_DATA], s->w_h,
                                         p->columns, s->sums, s->hidden, d_sums, dh));
    CT_TRY(ct_kernels(ex)->rows_cont(ex, p->columns, s->hidden, cont, dh, dh));
    return ct_exec_poll(ex);
}

/* ---- Products of LSTM and RNN with a weight each way: on devices made at reshape, with the bias
 * and its gradient in the same kernel where the library has that; on the CPU chosen as they run. */

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

/* ---- What LSTM and RNN do over all steps at once: W_x, b and W_static, both ways, and the
 * gradient by W_h. */

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
