/* LSTMUnit: the gates of one step of an LSTM whose products are other layers: for nets that are
 * unrolled in the prototxt. Bottoms: c_t-1, the sums before the gates i f o g, cont; tops: c_t,
 * h_t. */
#include "framework/math/sigmoid.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

static ct_status reshape(const ct_layer *l, ct_instance *in)
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

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
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

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
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
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
};
