/* RNN, as Caffe's unrolled net computes it, without the net:
 *   h_t = tanh(W_xh x_t + b_h + W_xh_static x_static + W_hh (cont_t h_t-1))
 *   o_t = tanh(W_ho h_t + b_o), the top
 * Weights: W_xh H x inputs, b_h H, with a static input W_xh_static H x its inputs, W_hh H x H, W_ho
 * H x H, b_o H. What Caffe leaves out: gradients reach the exposed states, h_0 and h_T. */
#include "framework/math/math.h"
#include "layers/types/device_kernels.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"
#include "layers/types/recurrent.h"

/* STATES: h_1 … h_T, T x N x H; CONTED: cont_t h_t-1; D_SUMS: gradients of the sums of h; D_OUT: of
 * those of o; WORK: 2 x N x H; PRODUCTS: of the steps. Of an engine that makes all h: CONTED, what
 * it keeps; WORK. */
enum { STATES, CONTED, H_CARRIED, D_SUMS, D_OUT, WORK, PRODUCTS };

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const ct_recurrent_state *s = l->state;
    const Ct__RecurrentParameter *p = l->param->recurrent_param;
    ct_shape square, one;

    CT_TRY(ct_recurrent_setup(l, bottom, 1, 1));
    square = (ct_shape){ 2, { s->hidden, s->hidden } };
    one = (ct_shape){ 1, { s->hidden } };
    ct_layer_add_weight(l, &square, p->weight_filler);
    ct_layer_add_weight(l, &one, p->bias_filler);
    return CT_OK;
}

/* Of W_ho and b_o, on devices. */
static ct_status make_outputs(const ct_layer *l, const ct_instance *in, ct_recurrent_plan *p,
                              size_t *most_p)
{
    const ct_recurrent_state *s = l->state;
    bool back = ct_recurrent_wants_back(l, in);

    return ct_recurrent_make(l,
                             &(ct_recurrent_shape){ .steps = p->steps,
                                                    .columns = p->columns,
                                                    .n = s->hidden,
                                                    .k = s->hidden,
                                                    .bias = true },
                             (const bool[CT_N_RUN]){ true, back, back }, p->outputs, most_p);
}

/* What both ways have: all h, and the gradients around the outputs. */
static void lay_outputs(const ct_recurrent_state *s, ct_instance *in, const ct_recurrent_plan *p)
{
    size_t all = (size_t)(p->steps * p->columns * s->hidden) * sizeof(float);

    ct_instance_buffer(in, STATES, CT_LIFETIME_PASS, all);
    ct_instance_buffer(in, D_SUMS, CT_LIFETIME_CALL, all);
    ct_instance_buffer(in, D_OUT, CT_LIFETIME_CALL, all);
    if (!s->expose) ct_instance_carry(in, H_CARRIED, p->columns, s->hidden);
}

static ct_status lay_steps(const ct_layer *l, ct_instance *in, ct_recurrent_plan *p)
{
    const ct_recurrent_state *s = l->state;
    size_t block = (size_t)(p->columns * s->hidden) * sizeof(float);

    lay_outputs(s, in, p);
    ct_instance_buffer(in, CONTED, CT_LIFETIME_PASS, (size_t)p->steps * block);
    ct_instance_buffer(in, WORK, CT_LIFETIME_CALL, 2 * block);
    return ct_recurrent_reserve(l, in, p, PRODUCTS, p->outputs_work); /* as large as W_hh's */
}

static void lay_cell(const ct_layer *l, ct_instance *in, ct_recurrent_plan *p, ct_cell_room room)
{
    lay_outputs(l->state, in, p);
    p->slot = PRODUCTS;
    ct_instance_buffer(in, PRODUCTS, CT_LIFETIME_CALL, p->outputs_work);
    ct_instance_buffer(in, CONTED, CT_LIFETIME_PASS, room.keep);
    ct_instance_buffer(in, WORK, CT_LIFETIME_CALL, room.work);
}

/* An engine for all steps makes h; where one is named, outputs are products by the static rule. */
static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    static const ct_recurrent_ways ways = { lay_steps, lay_cell, CONTED, WORK, { H_CARRIED, 0 } };
    ct_recurrent_plan *p = in->state;
    Ct__LayerParameter param = *l->param;
    ct_layer plain = *l;

    plain.param = &param;
    if (ct_cell_named(ct_engine_policy(l, CT_RUN_FORWARD)) != NULL) param.ct_kernel = NULL;
    CT_TRY(ct_recurrent_reshape(l, in, p));
    p->outputs_work = 0;
    CT_TRY(make_outputs(&plain, in, p, &p->outputs_work));
    return ct_recurrent_choose(l, in, p, &ways);
}

/* o = tanh(W_ho h + b_o), of all steps. */
static ct_status put_outputs(const ct_layer *l, ct_instance *in, ct_exec *ex, int64_t rows)
{
    const ct_recurrent_state *s = l->state;
    const ct_recurrent_plan *p = in->state;
    float *o = ct_blob_data(in->top[0]);
    int64_t n = s->hidden;

    CT_TRY(ct_recurrent_affine(in, ex, &p->outputs[CT_RUN_FORWARD], s->w_h + 1, s->w_h + 2, rows, n,
                               n, in->buffer[STATES].data, o));
    CT_TRY(ct_kernels(ex)->tanh_forward(ex, rows * n, o, o));
    return ct_exec_poll(ex);
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_recurrent_state *s = l->state;
    const ct_recurrent_plan *p = in->state;
    const ct_device_kernels *k = ct_kernels(ex);
    int64_t block = p->columns * s->hidden;
    float *h = in->buffer[STATES].data, *conted = in->buffer[CONTED].data;
    const float *cont = ct_blob_data(in->bottom[1]);
    const float *before = s->expose ? ct_blob_data(in->bottom[ct_recurrent_bottom(s, 0)])
                                    : in->buffer[H_CARRIED].data;

    if (p->cell != NULL) {
        CT_TRY(ct_recurrent_cell_forward(in, ex, h));
        return put_outputs(l, in, ex, p->steps * p->columns);
    }
    CT_TRY(ct_recurrent_inputs(l, in, ex, p, h));
    ct_recurrent_begin(in, p);
    for (int64_t t = 0; t < p->steps; t++) {
        float *now = h + t * block, *hc = conted + t * block;

        CT_TRY(k->rows_cont(ex, p->columns, s->hidden, cont + t * p->columns, before, hc));
        CT_TRY(ct_recurrent_step(l, in, ex, p, t, hc, now));
        CT_TRY(k->tanh_forward(ex, block, now, now));
        before = now;
    }
    CT_TRY(ct_device_copy(ex, block, before,
                          s->expose ? ct_blob_data(in->top[1]) : in->buffer[H_CARRIED].data));
    return put_outputs(l, in, ex, p->steps * p->columns);
}

/* From the top's diff to those of W_ho, b_o and of all h: dh, T x N x H. */
static ct_status outputs_backward(const ct_layer *l, ct_instance *in, ct_exec *ex, int64_t rows,
                                  float *d_out, float *dh)
{
    const ct_recurrent_state *s = l->state;
    const ct_recurrent_plan *p = in->state;
    const float *dy = ct_blob_diff(in->top[0]);
    int64_t n = s->hidden;

    if (dy == NULL)
        CT_TRY(ct_device_zero(ex, rows * n, d_out));
    else
        CT_TRY(ct_kernels(ex)->tanh_backward(ex, rows * n, ct_blob_data(in->top[0]), dy, d_out));
    CT_TRY(ct_recurrent_weight_diff(in, ex, &p->outputs[CT_RUN_BACKWARD_WEIGHT], s->w_h + 1,
                                    s->w_h + 2, rows, n, n, d_out, in->buffer[STATES].data));
    return ct_recurrent_product_back(in, ex, &p->outputs[CT_RUN_BACKWARD_DATA], s->w_h + 1, rows, n,
                                     n, d_out, dh);
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_recurrent_state *s = l->state;
    const ct_recurrent_plan *p = in->state;
    const ct_math_ops *math = l->dev->math;
    int64_t block = p->columns * s->hidden;
    float *d_sums = in->buffer[D_SUMS].data, *dh = in->buffer[WORK].data;
    const float *h = in->buffer[STATES].data, *cont = ct_blob_data(in->bottom[1]);
    const float *last = s->expose ? ct_blob_diff(in->top[1]) : NULL;
    float *first = s->expose ? ct_blob_diff(in->bottom[ct_recurrent_bottom(s, 0)]) : NULL;

    CT_TRY(outputs_backward(l, in, ex, p->steps * p->columns, in->buffer[D_OUT].data, d_sums));
    if (p->cell != NULL) return ct_recurrent_cell_backward(in, ex, in->buffer[STATES].data, d_sums);
    if (last != NULL)
        CT_TRY(ct_device_copy(ex, block, last, dh));
    else
        CT_TRY(ct_device_zero(ex, block, dh));
    ct_recurrent_begin_backward(in, p);
    for (int64_t t = p->steps - 1; t >= 0; t--) {
        float *d = d_sums + t * block;

        CT_TRY(math->axpy(ex->stream, block, 1.0f, dh, d));
        CT_TRY(ct_kernels(ex)->tanh_backward(ex, block, h + t * block, d, d));
        CT_TRY(ct_recurrent_step_backward(l, in, ex, p, t, cont + t * p->columns, d, dh));
    }
    if (first != NULL) CT_TRY(ct_device_copy(ex, block, dh, first));
    return ct_recurrent_inputs_backward(l, in, ex, p, d_sums, in->buffer[CONTED].data, dh + block);
}

static void estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const ct_recurrent_state *s = l->state;
    const ct_recurrent_plan *p = in->state;

    e->forward_flop = ct_recurrent_flop(s, p) +
                      2.0 * (double)(p->steps * p->columns) * (double)(s->hidden * s->hidden);
    e->backward_flop = 2.0 * e->forward_flop;
    ct_recurrent_engines(in->state, e);
}

const ct_layer_ops ct_layer_rnn = {
    .type = "RNN",
    .params = "recurrent_param",
    .min_bottom = 2,
    .max_bottom = 4,
    .min_top = 1,
    .max_top = 2,
    .no_diff_bottom = 1 << 1,
    .backward_reads = CT_READS_BOTTOM | CT_READS_TOP,
    .null_top_diff = true,
    .state_size = sizeof(ct_recurrent_state),
    .instance_state_size = sizeof(ct_recurrent_plan),
    .release = ct_recurrent_release,
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .estimate = estimate,
    .on_cuda = true,
};
