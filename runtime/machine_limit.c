#include "runtime/machine_limit.h"

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "framework/base/cpu_cache.h"
#include "framework/base/simd.h"

/* The best of several tries: what disturbs only ever makes slower. */
enum { TRIES = 7, MIB = 1 << 20 };
#define TRY_S 4e-3 /* of multiply-adds */

#define UNROLL _Pragma("GCC unroll 16")

/* Lanes, and chains of them that fill the pipelines and leave registers for the two factors. */
#define KERNELS(_name, _target, _lanes, _chains)                                                   \
    _target static float multiply_add_##_name(int64_t steps, float a, float b)                     \
    {                                                                                              \
        typedef float vec __attribute__((vector_size(4 * (_lanes))));                              \
        vec acc[_chains], va = a - (vec){ 0 }, vb = b - (vec){ 0 };                                \
        float sum = 0.0f;                                                                          \
                                                                                                   \
        UNROLL for (int i = 0; i < (_chains); i++) acc[i] = (float)i - (vec){ 0 };                 \
        for (int64_t s = 0; s < steps; s++) {                                                      \
            UNROLL for (int i = 0; i < (_chains); i++) acc[i] = acc[i] * va + vb;                  \
        }                                                                                          \
        UNROLL for (int i = 0; i < (_chains); i++) sum += acc[i][0];                               \
        return sum;                                                                                \
    }                                                                                              \
    _target static float read_##_name(int64_t n, const float *from)                                \
    {                                                                                              \
        typedef float vec __attribute__((vector_size(4 * (_lanes)), may_alias));                   \
        vec acc[4] = { { 0 } };                                                                    \
        const vec *at = (const vec *)from, *end = (const vec *)(from + n);                         \
                                                                                                   \
        for (; at + 4 <= end; at += 4) {                                                           \
            UNROLL for (int i = 0; i < 4; i++) acc[i] += at[i];                                    \
        }                                                                                          \
        acc[0] += acc[1] + acc[2] + acc[3];                                                        \
        return acc[0][0];                                                                          \
    }                                                                                              \
    _target static void triad_##_name(int64_t n, float s, const float *b, const float *c,          \
                                      float *a)                                                    \
    {                                                                                              \
        typedef float vec __attribute__((vector_size(4 * (_lanes)), may_alias));                   \
        const vec *vb = (const vec *)b, *vc = (const vec *)c;                                      \
        vec *va = (vec *)a;                                                                        \
                                                                                                   \
        for (int64_t i = 0; i < n / (_lanes); i++) va[i] = vb[i] + s * vc[i];                      \
    }

typedef struct kernels {
    int lanes, chains;
    float (*multiply_add)(int64_t steps, float a, float b);
    float (*read)(int64_t n, const float *from);
    void (*triad)(int64_t n, float s, const float *b, const float *c, float *a);
} kernels;

#define ROW(_name, _lanes, _chains)                                                                \
    {                                                                                              \
        _lanes, _chains, multiply_add_##_name, read_##_name, triad_##_name                         \
    }

KERNELS(portable, , CT_SIMD_ANY_LANES, 12)
#if defined(__x86_64__) && defined(__GNUC__)
KERNELS(avx2, __attribute__((target("avx2,fma"))), 8, 12)
KERNELS(avx512, __attribute__((target("avx512f,fma"))), 16, 12)
#endif

static const kernels kernel[] = { ROW(portable, CT_SIMD_ANY_LANES, 12),
#if defined(__x86_64__) && defined(__GNUC__)
                                  ROW(avx2, 8, 12), ROW(avx512, 16, 12)
#endif
};

/* The slowest thread's own time: a team's barriers are no part of it. */
static double chains_s(const kernels *k, int64_t steps, int n_thread, volatile float *sink)
{
    double slowest = 0.0;

#pragma omp parallel num_threads(n_thread) reduction(max : slowest)
    {
        double start;
        float sum;

#pragma omp barrier
        start = ct_clock_s();
        sum = k->multiply_add(steps, *sink, 1e-3f);
        if (sum < 0.0f) *sink = sum; /* never: but the compiler cannot know */
        slowest = ct_clock_s() - start;
    }
    return slowest;
}

static double measure_flop(const kernels *k, int n_thread)
{
    volatile float sink = 0.999f; /* the chains settle at 1 */
    int64_t steps = 4096;
    double best = 1e30, once = 1e30;

    /* of a run of one thread the shortest of many tells how long it takes, whatever else runs */
    for (int i = 0; i < 5 * TRIES; i++) once = fmin(once, chains_s(k, steps, 1, &sink));
    if (once < TRY_S) steps = (int64_t)((double)steps * TRY_S / fmax(once, 1e-6));
    for (int i = 0; i < TRIES; i++) best = fmin(best, chains_s(k, steps, n_thread, &sink));
    return 2.0 * (double)steps * (double)(k->lanes * k->chains) * n_thread / best;
}

/* Thread t's part of n, in whole cache lines. */
static int64_t part(int64_t n, int t, int n_thread)
{
    return (t == n_thread) ? n : n / n_thread * t / 64 * 64;
}

typedef struct arrays {
    float *a, *b, *c;
    int64_t n;
} arrays;

static void fill(const arrays *s, int n_thread)
{
#pragma omp parallel num_threads(n_thread)
    {
        int t = omp_get_thread_num();

        for (int64_t i = part(s->n, t, n_thread); i < part(s->n, t + 1, n_thread); i++)
            s->a[i] = s->b[i] = s->c[i] = 1.0f;
    }
}

/* Of all three, one after the other: none is in the cache when its turn comes. */
static double read_s(const kernels *k, const arrays *s, int n_thread, volatile float *sink)
{
    double slowest = 0.0;

#pragma omp parallel num_threads(n_thread) reduction(max : slowest)
    {
        int t = omp_get_thread_num();
        int64_t from = part(s->n, t, n_thread), n = part(s->n, t + 1, n_thread) - from;
        double start;
        float sum;

#pragma omp barrier
        start = ct_clock_s();
        sum = k->read(n, s->a + from) + k->read(n, s->b + from) + k->read(n, s->c + from);
        if (sum < 0.0f) *sink = sum;
        slowest = ct_clock_s() - start;
    }
    return slowest;
}

static double triad_s(const kernels *k, const arrays *s, int n_thread)
{
    double slowest = 0.0;

#pragma omp parallel num_threads(n_thread) reduction(max : slowest)
    {
        int t = omp_get_thread_num();
        int64_t from = part(s->n, t, n_thread), n = part(s->n, t + 1, n_thread) - from;
        double start;

#pragma omp barrier
        start = ct_clock_s();
        k->triad(n, 1e-3f, s->b + from, s->c + from, s->a + from);
        slowest = ct_clock_s() - start;
    }
    return slowest;
}

/* Bytes of one array: four times the last cache where the system tells, at least 32 MiB a thread,
 * since each few cores may have a cache of their own, at most 128; and of the node's memory no more
 * than a quarter for all. */
static size_t choose_size(int n_thread, int n_local)
{
    size_t least = (size_t)32 * MIB * (size_t)n_thread, size = least;
    size_t most =
        (size_t)sysconf(_SC_PHYS_PAGES) / (size_t)n_local * (size_t)sysconf(_SC_PAGESIZE) / 12;
    size_t beyond = 4 * ct_cpu_cache_bytes() / (size_t)n_local;

    if (beyond > size) size = beyond;
    if (size > 4 * least) size = 4 * least;
    if (size > most) size = most;
    return size / 4096 * 4096;
}

static ct_status measure_memory(const kernels *k, int n_thread, int n_local, ct_machine_limit *out)
{
    size_t size = choose_size(n_thread, n_local);
    float *block = aligned_alloc(4096, 3 * size); /* its pages go to who writes them first */
    arrays s = { .n = (int64_t)(size / sizeof(float)) };
    volatile float sink = 0.0f;
    double read = 1e30, triad = 1e30;

    if (block == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for 3 arrays of %zu bytes", size);
#ifdef MADV_HUGEPAGE
    (void)madvise(block, 3 * size, MADV_HUGEPAGE); /* only a wish */
#endif
    s.a = block, s.b = block + s.n, s.c = block + 2 * s.n;
    fill(&s, n_thread);
    for (int i = 0; i < TRIES; i++) {
        read = fmin(read, read_s(k, &s, n_thread, &sink));
        triad = fmin(triad, triad_s(k, &s, n_thread));
    }
    free(block);
    out->array = size;
    out->read = 3.0 * (double)size / read;
    out->triad = 3.0 * (double)size / triad;
    out->memory = (out->read > out->triad) ? out->read : out->triad;
    return CT_OK;
}

ct_status ct_machine_limit_measure(int n_local, ct_machine_limit *out)
{
    const kernels *k = &kernel[ct_simd_pick()];
    double start = ct_clock_s();

    *out = (ct_machine_limit){ .n_thread = omp_get_max_threads(),
                               .simd = ct_simd_name(ct_simd_pick()) };
    out->flop = measure_flop(k, out->n_thread);
    CT_TRY(measure_memory(k, out->n_thread, (n_local > 0) ? n_local : 1, out));
    out->seconds = ct_clock_s() - start;
    return CT_OK;
}

void ct_machine_limit_again(ct_machine_limit *m)
{
    m->flop = fmax(m->flop, measure_flop(&kernel[ct_simd_pick()], m->n_thread));
}

double ct_machine_limit_bound(const ct_machine_limit *m, double flop, double bytes)
{
    double compute = flop / m->flop, memory = bytes / m->memory;

    return (compute > memory) ? compute : memory;
}
