/* One file, since its loops become vectors only where the compiler may evaluate both sides of a
 * choice, and where sqrtf is an instruction (CFLAGS_neuron_simd in the Makefile). */
#include "layers/engine/neuron/neuron_math.h"
#include "layers/layer_util.h"

/* ---- loops */

enum { CHUNK = 2048 };

static int64_t length_at(int64_t n, int64_t at)
{
    return (at + CHUNK < n) ? CHUNK : n - at;
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
        _Pragma("omp parallel for schedule(static) if (n >= CT_PARALLEL_MIN)") for (int64_t at =   \
                                                                                        0;         \
                                                                                    at < n;        \
                                                                                    at += CHUNK)   \
            _name##_part(k, length_at(n, at), x + at, y + at);                                     \
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
        _Pragma("omp parallel for schedule(static) if (n >= CT_PARALLEL_MIN)") for (int64_t at =   \
                                                                                        0;         \
                                                                                    at < n;        \
                                                                                    at += CHUNK)   \
            _name##_part_backward(k, length_at(n, at), v + at, dy + at, dx + at);                  \
    }

#define NEURON(_name, _reads, _value, _slope)                                                      \
    FORWARD(_name, _value)                                                                         \
    BACKWARD(_name, _slope)                                                                        \
    const ct_neuron ct_neuron_##_name = { _reads, _name##_forward, _name##_backward };

CT_NEURON_LIST(NEURON)
