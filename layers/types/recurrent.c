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
        (ct_gemm_desc){ false, true, plan->columns, s->sums, s->hidden, n_thread, bf16 };
    plan->backward =
        (ct_gemm_desc){ false, false, plan->columns, s->hidden, s->sums, n_thread, bf16 };
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
