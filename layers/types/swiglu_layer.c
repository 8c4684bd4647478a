/* SwiGLU: silu(gate) up, with silu(g) = g / (1 + e^-g). Gate and up are two bottoms of one shape,
 * or the halves of the last axis of one. */
#include "framework/base/bf16.h"
#include "framework/base/stream.h"
#include "framework/math/sigmoid.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

enum { CHUNK = 2048 };

/* Element i of row r is at r step + i of gate and up, and at r n + i of the top. */
typedef struct swiglu_plan {
    int64_t rows, n, step;
    bool bf16; /* gate, up, the top and their gradients */
} swiglu_plan;

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    ct_shape top = in->bottom[0]->data.shape;
    bool bf16 = ct_blob_is_bf16(in->bottom[0]);
    swiglu_plan *p = in->state;

    if (l->n_bottom == 2) {
        const ct_shape *up = &in->bottom[1]->data.shape;

        if (!ct_shape_equal(&top, up))
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom 0 (gate) has shape %s, bottom 1 (up) %s",
                                 ct_shape_str(&top).text, ct_shape_str(up).text);
        *p = (swiglu_plan){ 1, ct_shape_count(&top, 0, -1), 0, bf16 };
        in->over = 1;
    } else {
        int64_t *last = &top.dim[(top.ndim > 0) ? top.ndim - 1 : 0];

        if ((top.ndim < 1) || (*last % 2 != 0))
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                                 "one bottom has the gate and then the up along its last axis, "
                                 "whose length must be even; its shape is %s",
                                 ct_shape_str(&top).text);
        *p = (swiglu_plan){ ct_shape_count(&top, 0, top.ndim - 1), *last / 2, *last, bf16 };
        *last /= 2;
    }
    ct_blob_set_like(in->top[0], &top, &in->bottom[0]->data);
    return CT_OK;
}

/* ---- up to CHUNK elements of a row */

CT_SIMD_CLONES static void value(int64_t n, const float *gate, const float *up, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = gate[i] * ct_sigmoid_f32(gate[i]) * up[i];
}

/* silu' = s (1 + g (1 - s)), s the sigmoid. d_gate may be dy. */
CT_SIMD_CLONES static void slope(int64_t n, const float *gate, const float *up, const float *dy,
                                 float *d_gate, float *d_up)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = gate[i], d = dy[i], s = ct_sigmoid_f32(g);

        d_up[i] = d * (g * s);
        d_gate[i] = d * up[i] * (s + g * s * (1.0f - s));
    }
}

static int64_t pieces(const swiglu_plan *p)
{
    return (p->n + CHUNK - 1) / CHUNK;
}

/* Where piece k is in gate and up; *len_p: its length, *out_p: its place in the top. */
static int64_t piece_at(const swiglu_plan *p, int64_t k, int64_t *len_p, int64_t *out_p)
{
    int64_t row = k / pieces(p), at = k % pieces(p) * CHUNK;

    *len_p = (at + CHUNK < p->n) ? CHUNK : p->n - at;
    *out_p = row * p->n + at;
    return row * p->step + at;
}

/* gate, up, and where their gradients or NULL are. */
typedef struct halves {
    const float *gate, *up;
    float *d_gate, *d_up;
} halves;

static halves halves_of(const ct_layer *l, const ct_instance *in)
{
    const swiglu_plan *p = in->state;
    float *dx = ct_blob_diff(in->bottom[0]);
    const float *x = ct_blob_data(in->bottom[0]);

    if (l->n_bottom == 2)
        return (halves){ x, ct_blob_data(in->bottom[1]), dx, ct_blob_diff(in->bottom[1]) };
    return (halves){ x, ct_num_at(x, p->bf16, p->n), dx, ct_num_to(dx, p->bf16, p->n) };
}

static bool streams(const swiglu_plan *p, const float *to)
{
    return !p->bf16 && ct_stream_pays(to, (size_t)(p->rows * p->n) * sizeof(*to));
}

/* bf16 numbers are widened into a first-level cache, and what is made of them is rounded once. */
static void value_bf16(int64_t n, const float *gate, const float *up, float *y)
{
    float g[CHUNK], u[CHUNK];

    ct_bf16_widen(n, gate, g);
    ct_bf16_widen(n, up, u);
    value(n, g, u, u);
    ct_bf16_narrow(n, u, y);
}

/* d_gate, d_up: NULL: unwanted. */
static void slope_bf16(int64_t n, const float *gate, const float *up, const float *dy,
                       float *d_gate, float *d_up)
{
    float g[CHUNK], u[CHUNK], d[CHUNK], made[CHUNK];

    ct_bf16_widen(n, gate, g);
    ct_bf16_widen(n, up, u);
    ct_bf16_widen(n, dy, d);
    slope(n, g, u, d, d, made);
    if (d_gate != NULL) ct_bf16_narrow(n, d, d_gate);
    if (d_up != NULL) ct_bf16_narrow(n, made, d_up);
}

/* Piece k of a bf16 top, or of the gradients where dy is there. */
static void piece_bf16(const swiglu_plan *p, const halves *h, int64_t k, const float *dy, float *y)
{
    int64_t len, out, at = piece_at(p, k, &len, &out);
    const float *gate = ct_num_at(h->gate, true, at), *up = ct_num_at(h->up, true, at);

    if (dy == NULL)
        value_bf16(len, gate, up, ct_num_to(y, true, out));
    else
        slope_bf16(len, gate, up, ct_num_at(dy, true, out), ct_num_to(h->d_gate, true, at),
                   ct_num_to(h->d_up, true, at));
}

static ct_status all_bf16(const swiglu_plan *p, const halves *h, const float *dy, float *y)
{
#pragma omp parallel for schedule(static) if (p->rows * p->n >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < p->rows * pieces(p); k++) piece_bf16(p, h, k, dy, y);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const swiglu_plan *p = in->state;
    halves h = halves_of(l, in);
    float *y = ct_blob_data(in->top[0]);
    bool stream = streams(p, y);

    (void)ex;
    if (p->bf16) return all_bf16(p, &h, NULL, y);
#pragma omp parallel if (p->rows * p->n >= CT_PARALLEL_MIN)
    {
        float made[CHUNK];

#pragma omp for schedule(static) nowait
        for (int64_t k = 0; k < p->rows * pieces(p); k++) {
            int64_t len, out, at = piece_at(p, k, &len, &out);

            value(len, h.gate + at, h.up + at, stream ? made : y + out);
            if (stream) ct_stream_copy(len, made, y + out);
        }
        if (stream) ct_stream_end();
    }
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const swiglu_plan *p = in->state;
    halves h = halves_of(l, in);
    const float *dy = ct_blob_diff(in->top[0]);
    bool stream_gate = (h.d_gate != NULL) && (h.d_gate != dy) && streams(p, h.d_gate);
    bool stream_up = (h.d_up != NULL) && (h.d_up != dy) && streams(p, h.d_up);

    (void)ex;
    if ((h.d_gate == NULL) && (h.d_up == NULL)) return CT_OK;
    if (p->bf16) return all_bf16(p, &h, dy, NULL);
#pragma omp parallel if (p->rows * p->n >= CT_PARALLEL_MIN)
    {
        float to_gate[CHUNK], to_up[CHUNK];

#pragma omp for schedule(static) nowait
        for (int64_t k = 0; k < p->rows * pieces(p); k++) {
            int64_t len, out, at = piece_at(p, k, &len, &out);

            slope(len, h.gate + at, h.up + at, dy + out,
                  ((h.d_gate == NULL) || stream_gate) ? to_gate : h.d_gate + at,
                  ((h.d_up == NULL) || stream_up) ? to_up : h.d_up + at);
            if (stream_gate) ct_stream_copy(len, to_gate, h.d_gate + at);
            if (stream_up) ct_stream_copy(len, to_up, h.d_up + at);
        }
        if (stream_gate || stream_up) ct_stream_end();
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_swiglu = {
    .type = "SwiGLU",
    .splits = CT_SPLIT_EACH,
    .min_bottom = 1,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .backward_reads = CT_READS_BOTTOM,
    .instance_state_size = sizeof(swiglu_plan),
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .sequence = &ct_sequence_apart,
    .layout = &ct_layout_rows,
};
