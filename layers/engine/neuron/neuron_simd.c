/* One file, since its loops become vectors only where the compiler may evaluate both sides of a
 * choice, and where sqrtf is an instruction (CFLAGS_neuron_simd in the Makefile). */
#include "layers/engine/neuron/neuron_math.h"
#include "framework/base/stream.h"
#include "layers/layer_util.h"

/* ---- loops: a thread takes a chunk at a time; what leaves the caches anyway is written past them
 */

enum { CHUNK = 2048 };

typedef void (*part_fn)(const arg *k, int64_t n, const float *x, float *y);
typedef void (*back_fn)(const arg *k, int64_t n, const float *v, const float *dy, float *dx);

static int64_t length_at(int64_t n, int64_t at)
{
    return (at + CHUNK < n) ? CHUNK : n - at;
}

static bool streams(int64_t n, const float *to)
{
    return ct_stream_pays(to, (size_t)n * sizeof(*to));
}

static void run_forward(part_fn part, const arg *k, int64_t n, const float *x, float *y)
{
    bool stream = (x != y) && streams(n, y);

#pragma omp parallel if (n >= CT_PARALLEL_MIN)
    {
        float made[CHUNK];

#pragma omp for schedule(static) nowait
        for (int64_t at = 0; at < n; at += CHUNK) {
            int64_t len = length_at(n, at);

            part(k, len, x + at, stream ? made : y + at);
            if (stream) ct_stream_copy(len, made, y + at);
        }
        if (stream) ct_stream_end();
    }
}

static void run_backward(back_fn part, const arg *k, int64_t n, const float *v, const float *dy,
                         float *dx)
{
    bool stream = (dx != dy) && (dx != v) && streams(n, dx);

#pragma omp parallel if (n >= CT_PARALLEL_MIN)
    {
        float made[CHUNK];

#pragma omp for schedule(static) nowait
        for (int64_t at = 0; at < n; at += CHUNK) {
            int64_t len = length_at(n, at);

            part(k, len, v + at, dy + at, stream ? made : dx + at);
            if (stream) ct_stream_copy(len, made, dx + at);
        }
        if (stream) ct_stream_end();
    }
}

#define FORWARD(_name, _value)                                                                     \
    CT_SIMD_CLONES static void _name##_part(const arg *args, int64_t n, const float *x, float *y)  \
    {                                                                                              \
        arg k = *args;                                                                             \
                                                                                                   \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = _value(k, x[i]);                \
    }                                                                                              \
                                                                                                   \
    static void _name##_forward(const arg *k, int64_t n, const float *x, float *y)                 \
    {                                                                                              \
        run_forward(_name##_part, k, n, x, y);                                                     \
    }

#define BACKWARD(_name, _slope)                                                                    \
    CT_SIMD_CLONES static void _name##_part_backward(const arg *args, int64_t n, const float *v,   \
                                                     const float *dy, float *dx)                   \
    {                                                                                              \
        arg k = *args;                                                                             \
                                                                                                   \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * _slope(k, v[i]);       \
    }                                                                                              \
                                                                                                   \
    static void _name##_backward(const arg *k, int64_t n, const float *v, const float *dy,         \
                                 float *dx)                                                        \
    {                                                                                              \
        run_backward(_name##_part_backward, k, n, v, dy, dx);                                      \
    }

#define NEURON(_name, _reads, _value, _slope)                                                      \
    FORWARD(_name, _value)                                                                         \
    BACKWARD(_name, _slope)                                                                        \
    const ct_neuron ct_neuron_##_name = { _reads, _name##_forward, _name##_backward };

CT_NEURON_LIST(NEURON)
