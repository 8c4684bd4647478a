/* LSTM, and LSTMUnit for nets that are unrolled in the prototxt. */
#include "layers/types/device_kernels.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"
#include "layers/types/recurrent.h"
#include "framework/math/sigmoid.h"

/* ---- LSTM, as Caffe's unrolled net computes it (Donahue et al. 2014), without the net:
 *   (i f o g)_t = W_xc x_t + b_c + W_xc_static x_static + W_hc (cont_t h_t-1)
 *   c_t = cont_t sigmoid(f) c_t-1 + sigmoid(i) tanh(g);  h_t = sigmoid(o) tanh(c_t)
 * Weights: W_xc 4H x inputs, b_c 4H, with a static input W_xc_static 4H x its inputs, W_hc 4H x H.
 * What Caffe leaves out: gradients reach the exposed states, h_0 c_0 and h_T c_T. */

/* GATES: activations T x N x 4H; CELL: c_0 … c_T, (T + 1) x N x H; CONTED: cont_t h_t-1, T x N x H;
 * D_SUMS: as GATES; WORK: work_rows x N x H; PRODUCTS: of the steps. Of an engine that runs all
 * steps: CELL, what it keeps; WORK. */
enum { GATES, CELL, CONTED, H_CARRIED, C_CARRIED, D_SUMS, WORK, PRODUCTS };
enum { WORK_DH, WORK_DC, WORK_ZERO, WORK_STATIC /* 4 */, WORK_ROWS = WORK_STATIC + 4 };

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    return ct_recurrent_setup(l, bottom, 2, 4);
}

static void carry(const ct_recurrent_state *s, ct_instance *in, const ct_recurrent_plan *p)
{
    if (s->expose) return;
    ct_instance_carry(in, H_CARRIED, p->columns, s->hidden);
    ct_instance_carry(in, C_CARRIED, p->columns, s->hidden);
}

static ct_status lay_steps(const ct_layer *l, ct_instance *in, ct_recurrent_plan *p)
{
    const ct_recurrent_state *s = l->state;
    size_t block = (size_t)(p->columns * s->hidden) * sizeof(float);

    ct_instance_buffer(in, GATES, CT_LIFETIME_PASS, 4 * (size_t)p->steps * block);
    ct_instance_buffer(in, CELL, CT_LIFETIME_PASS, ((size_t)p->steps + 1) * block);
    ct_instance_buffer(in, CONTED, CT_LIFETIME_PASS, (size_t)p->steps * block);
    ct_instance_buffer(in, D_SUMS, CT_LIFETIME_CALL, 4 * (size_t)p->steps * block);
    ct_instance_buffer(in, WORK, CT_LIFETIME_CALL, WORK_ROWS * block);
    carry(s, in, p);
    return ct_recurrent_reserve(l, in, p, PRODUCTS, 0);
}

/* Backward reads all h, which are the top. */
static void lay_cell(const ct_layer *l, ct_instance *in, ct_recurrent_plan *p, ct_cell_room room)
{
    ct_instance_buffer(in, CELL, CT_LIFETIME_PASS, room.keep);
    ct_instance_buffer(in, WORK, CT_LIFETIME_CALL, room.work);
    in->backward_reads |= CT_READS_TOP;
    carry(l->state, in, p);
}

static ct_status lstm_reshape(const ct_layer *l, ct_instance *in)
{
    static const ct_recurrent_ways ways = {
        lay_steps, lay_cell, CELL, WORK, { H_CARRIED, C_CARRIED }
    };
    ct_recurrent_plan *p = in->state;

    CT_TRY(ct_recurrent_reshape(l, in, p));
    return ct_recurrent_choose(l, in, p, &ways);
}

/* Where state i (0: h, 1: c) comes from. */
static const float *first_state(const ct_recurrent_state *s, const ct_instance *in, int i)
{
    if (s->expose) return ct_blob_data(in->bottom[ct_recurrent_bottom(s, i)]);
    return in->buffer[(i == 0) ? H_CARRIED : C_CARRIED].data;
}

/* Where it goes to. */
static float *last_state(const ct_recurrent_state *s, const ct_instance *in, int i)
{
    if (s->expose) return ct_blob_data(in->top[1 + i]);
    return in->buffer[(i == 0) ? H_CARRIED : C_CARRIED].data;
}

static ct_status lstm_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_recurrent_state *s = l->state;
    const ct_recurrent_plan *p = in->state;
    const ct_device_kernels *k = ct_kernels(ex);
    int64_t block = p->columns * s->hidden;
    float *gates = in->buffer[GATES].data, *c = in->buffer[CELL].data;
    float *conted = in->buffer[CONTED].data, *h = ct_blob_data(in->top[0]);
    const float *cont = ct_blob_data(in->bottom[1]), *before = first_state(s, in, 0);

    if (p->cell != NULL) return ct_recurrent_cell_forward(in, ex, h);
    CT_TRY(ct_recurrent_inputs(l, in, ex, p, gates));
    CT_TRY(ct_device_copy(ex, block, first_state(s, in, 1), c));
    ct_recurrent_begin(in, p);
    for (int64_t t = 0; t < p->steps; t++) {
        float *at = gates + 4 * t * block, *hc = conted + t * block;

        CT_TRY(k->rows_cont(ex, p->columns, s->hidden, cont + t * p->columns, before, hc));
        CT_TRY(ct_recurrent_step(l, in, ex, p, t, hc, at));
        CT_TRY(k->lstm_step(ex, p->columns, s->hidden, cont + t * p->columns, c + t * block, at,
                            c + (t + 1) * block, h + t * block));
        before = h + t * block;
    }
    CT_TRY(ct_device_copy(ex, block, before, last_state(s, in, 0)));
    return ct_device_copy(ex, block, c + p->steps * block, last_state(s, in, 1));
}

/* The diff of exposed top i, or zeros. */
static const float *state_diff(const ct_recurrent_state *s, const ct_instance *in, int i,
                               const float *zero)
{
    const float *diff = s->expose ? ct_blob_diff(in->top[1 + i]) : NULL;

    return (diff != NULL) ? diff : zero;
}

/* What went back to the state before the first step: where the state is a bottom. */
static ct_status put_state_diff(const ct_recurrent_state *s, const ct_instance *in, ct_exec *ex,
                                int i, int64_t block, const float *diff)
{
    float *to = s->expose ? ct_blob_diff(in->bottom[ct_recurrent_bottom(s, i)]) : NULL;

    return (to != NULL) ? ct_device_copy(ex, block, diff, to) : CT_OK;
}

static ct_status lstm_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_recurrent_state *s = l->state;
    const ct_recurrent_plan *p = in->state;
    const ct_device_kernels *k = ct_kernels(ex);
    int64_t block = p->columns * s->hidden;
    float *work = in->buffer[WORK].data, *d_sums = in->buffer[D_SUMS].data;
    float *dh = work + WORK_DH * block, *dc = work + WORK_DC * block;
    float *zero = work + WORK_ZERO * block;
    const float *gates = in->buffer[GATES].data, *c = in->buffer[CELL].data;
    const float *cont = ct_blob_data(in->bottom[1]), *top = ct_blob_diff(in->top[0]);

    if (p->cell != NULL) return ct_recurrent_cell_backward(in, ex, ct_blob_data(in->top[0]), top);
    CT_TRY(ct_device_zero(ex, block, zero));
    CT_TRY(ct_device_copy(ex, block, state_diff(s, in, 0, zero), dh));
    CT_TRY(ct_device_copy(ex, block, state_diff(s, in, 1, zero), dc));
    ct_recurrent_begin_backward(in, p);
    for (int64_t t = p->steps - 1; t >= 0; t--) {
        const float *cont_t = cont + t * p->columns;
        float *d = d_sums + 4 * t * block;

        CT_TRY(k->lstm_step_backward(ex, p->columns, s->hidden, cont_t, c + t * block,
                                     gates + 4 * t * block, c + (t + 1) * block,
                                     (top != NULL) ? top + t * block : zero, dh, dc, d));
        CT_TRY(ct_recurrent_step_backward(l, in, ex, p, t, cont_t, d, dh));
    }
    CT_TRY(put_state_diff(s, in, ex, 0, block, dh));
    CT_TRY(put_state_diff(s, in, ex, 1, block, dc));
    return ct_recurrent_inputs_backward(l, in, ex, p, d_sums, in->buffer[CONTED].data,
                                        work + WORK_STATIC * block);
}

static void estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    e->forward_flop = ct_recurrent_flop(l->state, in->state);
    e->backward_flop = 2.0 * e->forward_flop;
    ct_recurrent_engines(in->state, e);
}

const ct_layer_ops ct_layer_lstm = {
    .type = "LSTM",
    .params = "recurrent_param",
    .min_bottom = 2,
    .max_bottom = 5,
    .min_top = 1,
    .max_top = 3,
    .no_diff_bottom = 1 << 1,
    .backward_reads = CT_READS_BOTTOM,
    .null_top_diff = true,
    .state_size = sizeof(ct_recurrent_state),
    .instance_state_size = sizeof(ct_recurrent_plan),
    .release = ct_recurrent_release,
    .setup = setup,
    .reshape = lstm_reshape,
    .forward = lstm_forward,
    .backward = lstm_backward,
    .estimate = estimate,
    .on_cuda = true,
};

/* ---- LSTMUnit: the gates of one step of an LSTM whose products are other layers: for nets that
 * are unrolled in the prototxt. Bottoms: c_t-1, the sums before the gates i f o g, cont; tops: c_t,
 * h_t. */

static ct_status lstm_unit_reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *c = &in->bottom[0]->data.shape, *x = &in->bottom[1]->data.shape;
    const ct_shape *cont = &in->bottom[2]->data.shape;

    if ((c->ndim != 3) || (x->ndim != 3) || (cont->ndim != 2) || (c->dim[0] != 1) ||
        (x->dim[0] != 1) || (cont->dim[0] != 1) || (x->dim[1] != c->dim[1]) ||
        (cont->dim[1] != c->dim[1]) || (x->dim[2] != 4 * c->dim[2]))
        return CT_LAYER_FAIL(
            l, CT_ERR_SHAPE,
            "bottoms of shapes %s, %s, %s: 1 x N x D, 1 x N x 4D, 1 x N are needed",
            ct_shape_str(c).text, ct_shape_str(x).text, ct_shape_str(cont).text);
    ct_blob_set_shape(in->top[0], c);
    ct_blob_set_shape(in->top[1], c);
    return CT_OK;
}

typedef struct gates {
    float i, f, o, g, keep, tanh_c, c;
} gates;

/* Of unit d of a column: x has the four sums D apart. cont 0 forgets whatever c was. */
static inline gates gates_of(const float *x, int64_t n, int64_t d, float cont, float c_before)
{
    gates s = { ct_sigmoid_f32(x[d]),
                ct_sigmoid_f32(x[n + d]),
                ct_sigmoid_f32(x[2 * n + d]),
                ct_tanh_f32(x[3 * n + d]),
                (cont == 0.0f) ? 0.0f : c_before,
                0,
                0 };

    s.c = cont * s.f * s.keep + s.i * s.g;
    s.tanh_c = ct_tanh_f32(s.c);
    return s;
}

static ct_status lstm_unit_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_shape *s = &in->top[0]->data.shape;
    const float *c0 = ct_blob_data(in->bottom[0]), *x = ct_blob_data(in->bottom[1]);
    const float *cont = ct_blob_data(in->bottom[2]);
    float *c = ct_blob_data(in->top[0]), *h = ct_blob_data(in->top[1]);
    int64_t n = s->dim[2];

    (void)l, (void)ex;
#pragma omp parallel for schedule(static) if (s->dim[1] * n >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < s->dim[1]; r++) {
        for (int64_t d = 0; d < n; d++) {
            gates k = gates_of(x + 4 * r * n, n, d, cont[r], c0[r * n + d]);

            c[r * n + d] = k.c;
            h[r * n + d] = k.o * k.tanh_c;
        }
    }
    return CT_OK;
}

static ct_status lstm_unit_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_shape *s = &in->top[0]->data.shape;
    const float *c0 = ct_blob_data(in->bottom[0]), *x = ct_blob_data(in->bottom[1]);
    const float *cont = ct_blob_data(in->bottom[2]);
    const float *dc = ct_blob_diff(in->top[0]), *dh = ct_blob_diff(in->top[1]);
    float *dc0 = ct_blob_diff(in->bottom[0]), *dx = ct_blob_diff(in->bottom[1]);
    int64_t n = s->dim[2];

    (void)l, (void)ex;
#pragma omp parallel for schedule(static) if (s->dim[1] * n >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < s->dim[1]; r++) {
        for (int64_t d = 0; d < n; d++) {
            gates k = gates_of(x + 4 * r * n, n, d, cont[r], c0[r * n + d]);
            float g = dc[r * n + d] + dh[r * n + d] * k.o * (1.0f - k.tanh_c * k.tanh_c);

            if (dc0 != NULL) dc0[r * n + d] = g * cont[r] * k.f;
            if (dx == NULL) continue;
            dx[4 * r * n + d] = g * k.g * k.i * (1.0f - k.i);
            dx[4 * r * n + n + d] = g * cont[r] * k.keep * k.f * (1.0f - k.f);
            dx[4 * r * n + 2 * n + d] = dh[r * n + d] * k.tanh_c * k.o * (1.0f - k.o);
            dx[4 * r * n + 3 * n + d] = g * k.i * (1.0f - k.g * k.g);
        }
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_lstm_unit = {
    .type = "LSTMUnit",
    .min_bottom = 3,
    .max_bottom = 3,
    .min_top = 2,
    .max_top = 2,
    .no_diff_bottom = 1 << 2,
    .backward_reads = CT_READS_BOTTOM,
    .reshape = lstm_unit_reshape,
    .forward = lstm_unit_forward,
    .backward = lstm_unit_backward,
};
