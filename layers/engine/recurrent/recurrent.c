/* The loops over gates on the CPU, and the table of engines of a whole recurrent layer. */
#include "layers/engine/recurrent/recurrent.h"

#include <string.h>

#include "framework/base/simd.h"
#include "framework/math/sigmoid.h"

/* Fewer elements run on one thread: waking the team costs more. CHUNK: of one turn of a thread. */
enum { PARALLEL_MIN = 4096, CHUNK = 2048 };

CT_SIMD_CLONES
static void lstm_row(int64_t hidden, float cont, const float *restrict before, float *restrict gate,
                     float *restrict c, float *restrict h)
{
    float *restrict gi = gate, *restrict gf = gate + hidden, *restrict go = gate + 2 * hidden,
                    *restrict gg = gate + 3 * hidden;

#pragma omp simd
    for (int64_t d = 0; d < hidden; d++) {
        float i = ct_sigmoid_f32(gi[d]), f = ct_sigmoid_f32(gf[d]), o = ct_sigmoid_f32(go[d]);
        float g = ct_tanh_f32(gg[d]);
        float old = (cont == 0.0f) ? 0.0f : cont * f * before[d];
        float now = old + i * g;

        gi[d] = i;
        gf[d] = f;
        go[d] = o;
        gg[d] = g;
        c[d] = now;
        h[d] = o * ct_tanh_f32(now);
    }
}

void ct_lstm_step(int64_t n, int64_t hidden, const float *cont, const float *c_before, float *gates,
                  float *c, float *h)
{
#pragma omp parallel for schedule(static) if (n * hidden >= PARALLEL_MIN)
    for (int64_t r = 0; r < n; r++)
        lstm_row(hidden, cont[r], c_before + r * hidden, gates + r * 4 * hidden, c + r * hidden,
                 h + r * hidden);
}

CT_SIMD_CLONES
static void lstm_row_backward(int64_t hidden, float cont, const float *restrict before,
                              const float *restrict gate, const float *restrict c,
                              const float *restrict top, const float *restrict more,
                              float *restrict dc, float *restrict d_gate)
{
    const float *gi = gate, *gf = gate + hidden, *go = gate + 2 * hidden, *gg = gate + 3 * hidden;
    float *restrict di = d_gate, *restrict df = d_gate + hidden,
                    *restrict d_o = d_gate + 2 * hidden, *restrict dg = d_gate + 3 * hidden;

#pragma omp simd
    for (int64_t d = 0; d < hidden; d++) {
        float i = gi[d], f = gf[d], o = go[d], g = gg[d];
        float dh = top[d] + more[d], tanh_c = ct_tanh_f32(c[d]);
        float cell = dc[d] + dh * o * (1.0f - tanh_c * tanh_c);
        float old = (cont == 0.0f) ? 0.0f : cont * before[d];

        dc[d] = (cont == 0.0f) ? 0.0f : cell * cont * f;
        di[d] = cell * g * i * (1.0f - i);
        df[d] = cell * old * f * (1.0f - f);
        d_o[d] = dh * tanh_c * o * (1.0f - o);
        dg[d] = cell * i * (1.0f - g * g);
    }
}

void ct_lstm_step_backward(int64_t n, int64_t hidden, const float *cont, const float *c_before,
                           const float *gates, const float *c, const float *top, const float *more,
                           float *dc, float *d_gates)
{
#pragma omp parallel for schedule(static) if (n * hidden >= PARALLEL_MIN)
    for (int64_t r = 0; r < n; r++) {
        int64_t at = r * hidden;

        lstm_row_backward(hidden, cont[r], c_before + at, gates + 4 * at, c + at, top + at,
                          more + at, dc + at, d_gates + 4 * at);
    }
}

CT_SIMD_CLONES
static void scale_row(int64_t n, float a, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = a * x[i];
}

void ct_rows_cont(int64_t n, int64_t hidden, const float *cont, const float *x, float *y)
{
    for (int64_t r = 0; r < n; r++) {
        if (cont[r] == 0.0f)
            memset(y + r * hidden, 0, (size_t)hidden * sizeof(*y));
        else
            scale_row(hidden, cont[r], x + r * hidden, y + r * hidden);
    }
}

/* ---- plain arrays */

CT_SIMD_CLONES
static void tanh_part(int64_t n, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = ct_tanh_f32(x[i]);
}

CT_SIMD_CLONES
static void tanh_part_backward(int64_t n, const float *y, const float *dy, float *dx)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * (1.0f - y[i] * y[i]);
}

static int64_t part_length(int64_t n, int64_t at)
{
    return (at + CHUNK < n) ? CHUNK : n - at;
}

void ct_tanh_forward(int64_t n, const float *x, float *y)
{
#pragma omp parallel for schedule(static) if (n >= PARALLEL_MIN)
    for (int64_t at = 0; at < n; at += CHUNK) tanh_part(part_length(n, at), x + at, y + at);
}

void ct_tanh_backward(int64_t n, const float *y, const float *dy, float *dx)
{
#pragma omp parallel for schedule(static) if (n >= PARALLEL_MIN)
    for (int64_t at = 0; at < n; at += CHUNK)
        tanh_part_backward(part_length(n, at), y + at, dy + at, dx + at);
}

const ct_cell_impl *const ct_cell_table[] = {
#ifdef CT_HAVE_CUDNN
    &ct_cell_cudnn, /* by name or plan */
#endif
    NULL,
};

const ct_cell_impl *ct_cell_named(const char *name)
{
    for (int i = 0; ct_cell_table[i] != NULL; i++) {
        if (strcmp(ct_cell_table[i]->name, name) == 0) return ct_cell_table[i];
    }
    return NULL;
}
