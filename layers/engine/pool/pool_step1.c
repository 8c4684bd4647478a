/* Kernels: plain loops, a set of instructions each. Work goes by pieces. With each piece what is
 * needed soon is asked for, and what was made is written, so that memory reads and writes while
 * numbers are compared: a whole row that goes past the caches fills the processor's queue of
 * stores, behind which everything waits. */
#include "layers/engine/pool/pool_cpu.h"

#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "framework/base/stream.h"

enum { PIECE = 256, LINE = 64 / sizeof(float), WINDOW = CT_POOL_STEP1 * CT_POOL_STEP1 };

/* The share of numbers [i, i + m) of n. */
static inline void fetch(ct_pool_soon soon, int64_t i, int64_t m, int64_t n)
{
    for (int64_t k = i * soon.n / n; k < (i + m) * soon.n / n; k += LINE)
        __builtin_prefetch(soon.at + k, 0, 2);
}

/* nan: a NaN is more than all before it, as the definition has it. */
CT_SIMD_PART bool is_more(float v, float most, const bool nan)
{
    return (v > most) | (nan & (v != v));
}

/* x: the first of `count` neighbours; place: 0, 1 and 2. They are variables, since the compiler
 * makes numbers from a comparison with 0 and 1 by a longer way than it chooses between two. */
CT_SIMD_PART void largest(int64_t n, int64_t step, const int count, const bool nan,
                          const uint8_t *place, const float *x, float *restrict best,
                          uint8_t *restrict at)
{
    const float *x1 = x + step, *x2 = x1 + step;
    uint8_t first = place[0], second = place[1], third = place[2];

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float most = x[i];
        uint8_t which = first;

        if (count > 1) {
            float v = x1[i];
            bool more = is_more(v, most, nan);

            which = more ? second : which;
            most = more ? v : most;
        }
        if (count > 2) {
            float v = x2[i];
            bool more = is_more(v, most, nan);

            which = more ? third : which;
            most = more ? v : most;
        }
        best[i] = most;
        at[i] = which;
    }
}

static const uint8_t places[CT_POOL_STEP1] = { 0, 1, 2 };

CT_SIMD_CLONES static void largest_of(int64_t n, int64_t step, int count, bool nan,
                                      const uint8_t *place, const float *x, float *best,
                                      uint8_t *at)
{
    if (nan)
        largest(n, step, count, true, place, x, best, at);
    else if (count == 3)
        largest(n, step, 3, false, place, x, best, at);
    else if (count == 2)
        largest(n, step, 2, false, place, x, best, at);
    else
        largest(n, step, 1, false, place, x, best, at);
}

void ct_pool_step1_scan(int64_t n, int64_t step, bool nan, const float *x, float *best, uint8_t *at,
                        ct_pool_soon soon)
{
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t m = (n - i < PIECE) ? n - i : PIECE;

        fetch(soon, i, m, n);
        largest_of(m, step, 3, nan, places, x + i - step, best + i, at + i);
    }
}

void ct_pool_step1_scan_edge(int64_t n, int64_t step, int count, bool nan, const float *x,
                             float *best, uint8_t *at)
{
    largest_of(n, step, count, nan, places, x, best, at);
}

CT_SIMD_CLONES bool ct_pool_step1_nan(int64_t n, const float *x)
{
    return ct_pool_holds_nan(n, x);
}

CT_SIMD_PART void join(int64_t n, const int count, const bool relu, const bool nan,
                       const float *const *best, const uint8_t *const *at, float *restrict y,
                       uint8_t *restrict mask)
{
    const float *best0 = best[0], *best1 = best[1], *best2 = best[2];
    const uint8_t *at0 = at[0], *at1 = at[1], *at2 = at[2];

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float most = best0[i];
        uint8_t which = at0[i];

        if (count > 1) {
            float v = best1[i];
            uint8_t here = (uint8_t)(at1[i] + CT_POOL_STEP1);
            bool more = is_more(v, most, nan);

            which = more ? here : which;
            most = more ? v : most;
        }
        if (count > 2) {
            float v = best2[i];
            uint8_t here = (uint8_t)(at2[i] + 2 * CT_POOL_STEP1);
            bool more = is_more(v, most, nan);

            which = more ? here : which;
            most = more ? v : most;
        }
        if (relu) {
            which = (most > 0.0f) ? which : CT_POOL_BYTE_NONE;
            most = (most < 0.0f) ? 0.0f : most;
        }
        y[i] = most;
        mask[i] = which;
    }
}

CT_SIMD_CLONES static void join_piece(int64_t n, int count, bool relu, bool nan,
                                      const float *const *best, const uint8_t *const *at, float *y,
                                      uint8_t *mask)
{
    if (nan)
        join(n, count, relu, true, best, at, y, mask);
    else if ((count == 3) && !relu)
        join(n, 3, false, false, best, at, y, mask);
    else if (count == 3)
        join(n, 3, true, false, best, at, y, mask);
    else if (count == 2)
        join(n, 2, relu, false, best, at, y, mask);
    else
        join(n, 1, relu, false, best, at, y, mask);
}

/* Where the numbers [i, i + PIECE) are made: where they go, or in a room. */
static inline float *made_at(ct_pool_sink y, int64_t i, float *room)
{
    return (y.bf16 || y.stream) ? room : y.at + i;
}

static inline void put_made(ct_pool_sink y, int64_t i, int64_t n, const float *made)
{
    if (y.bf16)
        ct_bf16_narrow(n, made, ct_num_to(y.at, true, i));
    else if (y.stream)
        ct_stream_copy(n, made, y.at + i);
}

void ct_pool_sink_put(ct_pool_sink y, int64_t n, const float *from)
{
    if (y.bf16 || y.stream)
        put_made(y, 0, n, from);
    else
        memcpy(y.at, from, (size_t)n * sizeof(float));
}

void ct_pool_step1_join(int64_t n, int count, bool relu, bool nan, const float *const *best,
                        const uint8_t *const *at, ct_pool_sink y, uint8_t *mask, ct_pool_soon soon)
{
    float room[PIECE] __attribute__((aligned(64)));
    uint8_t marks[PIECE] __attribute__((aligned(64)));
    bool pass = y.stream && (mask != NULL);

    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t m = (n - i < PIECE) ? n - i : PIECE;
        float *to = made_at(y, i, room);
        const float *most[CT_POOL_STEP1] = { best[0] + i };
        const uint8_t *which[CT_POOL_STEP1] = { at[0] + i };

        for (int k = 1; k < count; k++) most[k] = best[k] + i, which[k] = at[k] + i;
        fetch(soon, i, m, n);
        join_piece(m, count, relu, nan, most, which, to,
                   (pass || (mask == NULL)) ? marks : mask + i);
        put_made(y, i, m, to);
        if (pass) ct_stream_bytes(m, marks, mask + i);
    }
}

#define TAP(_row, _column)                                                                         \
    {                                                                                              \
        int64_t k = i + ((_column)-1) * step;                                                      \
        float v = g##_row[k];                                                                      \
                                                                                                   \
        sum += (at##_row[k] == WINDOW - 1 - (_row)*CT_POOL_STEP1 - (_column)) ? v : 0.0f;          \
    }

CT_SIMD_CLONES static void gather(int64_t n, int64_t step, int64_t from, const float *const *g,
                                  const uint8_t *const *at, float *restrict dx)
{
    const float *g0 = g[0] + from, *g1 = g[1] + from, *g2 = g[2] + from;
    const uint8_t *at0 = at[0] + from, *at1 = at[1] + from, *at2 = at[2] + from;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float sum = 0.0f;

        TAP(0, 0) TAP(0, 1) TAP(0, 2);
        TAP(1, 0) TAP(1, 1) TAP(1, 2);
        TAP(2, 0) TAP(2, 1) TAP(2, 2);
        dx[i] = sum;
    }
}

void ct_pool_step1_gather(int64_t n, int64_t step, const float *const *g, const uint8_t *const *at,
                          ct_pool_sink dx, ct_pool_soon soon)
{
    float room[PIECE] __attribute__((aligned(64)));

    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t m = (n - i < PIECE) ? n - i : PIECE;
        float *to = made_at(dx, i, room);

        fetch(soon, i, m, n);
        gather(m, step, i, g, at, to);
        put_made(dx, i, m, to);
    }
}

CT_SIMD_CLONES static void add(int64_t n, int64_t from, int count, const float *const *x,
                               float *restrict sum)
{
    const float *x0 = x[0] + from, *x1 = x[1] + from, *x2 = x[(count == 3) ? 2 : 1] + from;

    if (count == 3) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) sum[i] = x0[i] + x1[i] + x2[i];
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) sum[i] = x0[i] + x1[i];
    }
}

void ct_pool_step1_add(int64_t n, int count, const float *const *x, float *sum, ct_pool_soon soon)
{
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t m = (n - i < PIECE) ? n - i : PIECE;

        fetch(soon, i, m, n);
        add(m, i, count, x, sum + i);
    }
}

CT_SIMD_CLONES static void mean(int64_t n, int64_t step, const float *sum, float *restrict y)
{
    const float *before = sum - step, *behind = sum + step;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = (before[i] + sum[i] + behind[i]) / (float)WINDOW;
}

void ct_pool_step1_mean(int64_t n, int64_t step, const float *sum, ct_pool_sink y,
                        ct_pool_soon soon)
{
    float room[PIECE] __attribute__((aligned(64)));

    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t m = (n - i < PIECE) ? n - i : PIECE;
        float *to = made_at(y, i, room);

        fetch(soon, i, m, n);
        mean(m, step, sum + i, to);
        put_made(y, i, m, to);
    }
}
