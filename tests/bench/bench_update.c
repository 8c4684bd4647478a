/* The passes of an update over all parameters, beside what memory gives: bench_update [elements]
 * [rounds]; threads as OMP_NUM_THREADS says, in turns, medians. An update reads gradient, history
 * and weight and writes the last two: 20 bytes an element, with two histories 28; the norm of the
 * gradients reads 4. The memory's own speed: the same traffic (three read, two of them written;
 * four and three) without any arithmetic to speak of, a = b + s c (16 bytes, what is written being
 * read first), and a plain sum. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/simd.h"
#include "framework/base/sort.h"
#include "framework/math/math.h"
#include "framework/math/update_math.h"

enum { SGD, NESTEROV, SAME, ADAM, ADAMW, SAME_TWO, TRIAD, NORM, SUM, SIDES };
enum { MAX_ROUNDS = 51, BLOCK = 8192 };

CT_SIMD_CLONES static void swap_block(int64_t n, const float *a, float *b, float *c)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float old = b[i];

        b[i] = c[i] + a[i];
        c[i] = old;
    }
}

CT_SIMD_CLONES static void turn_block(int64_t n, const float *a, float *b, float *c, float *d)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float old = b[i];

        b[i] = c[i] + a[i];
        c[i] = d[i];
        d[i] = old;
    }
}

CT_SIMD_CLONES static void triad_block(int64_t n, const float *a, const float *b, float *c)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) c[i] = a[i] + 0.5f * b[i];
}

CT_SIMD_CLONES static float sum_block(int64_t n, const float *a)
{
    float part[64] = { 0 }, sum = 0;

    for (int64_t i = 0; i + 64 <= n; i += 64) {
#pragma omp simd
        for (int j = 0; j < 64; j++) part[j] += a[i + j];
    }
    for (int j = 0; j < 64; j++) sum += part[j];
    return sum;
}

typedef struct arrays {
    int64_t n;
    float *g, *h, *w, *v;
} arrays;

static void update(int side, const arrays *a)
{
    ct_update u = { .count = a->n,
                    .scale = 1.0f,
                    .momentum = 0.9f,
                    .momentum2 = 0.999f,
                    .decay_l2 = 0.0005f,
                    .delta = 1e-8f,
                    .correction = 1.0f,
                    .correction2 = 1.0f,
                    .grad = a->g,
                    .weight = a->w,
                    .state = { a->h, a->v } };

    if (side == NESTEROV)
        (void)ct_math_cpu.update(NULL, CT_UPDATE_NESTEROV, &u);
    else if (side == ADAM)
        (void)ct_math_cpu.update(NULL, CT_UPDATE_ADAM, &u);
    else if (side == ADAMW)
        (void)ct_math_cpu.update(NULL, CT_UPDATE_ADAMW, &u);
    else
        (void)ct_math_cpu.sgd(NULL, a->n, 1.0f, 0.0f, 0.9f, 0.0005f, 0.0f, a->g, a->h, a->w);
}

static double run(int side, const arrays *a)
{
    double out = 0.0;

    if ((side == SGD) || (side == NESTEROV) || (side == ADAM) || (side == ADAMW)) {
        update(side, a);
        return 0.0;
    }
    if (side == NORM) {
        (void)ct_math_cpu.sumsq(NULL, a->n, a->g, &out);
        return out;
    }
#pragma omp parallel for schedule(static) reduction(+ : out)
    for (int64_t i = 0; i < a->n; i += BLOCK) {
        int64_t len = (a->n - i < BLOCK) ? a->n - i : BLOCK;

        if (side == SAME)
            swap_block(len, a->g + i, a->h + i, a->w + i);
        else if (side == SAME_TWO)
            turn_block(len, a->g + i, a->h + i, a->w + i, a->v + i);
        else if (side == TRIAD)
            triad_block(len, a->g + i, a->h + i, a->w + i);
        else
            out += (double)sum_block(len, a->g + i);
    }
    return out;
}

int main(int argc, char **argv)
{
    static const char *const name[SIDES] = { "SGD",         "Nesterov", "same traffic",
                                             "Adam",        "AdamW",    "same traffic",
                                             "a = b + s c", "norm",     "sum" };
    static const int bytes[SIDES] = { 20, 20, 20, 28, 28, 28, 16, 4, 4 };
    int64_t n = (argc > 1) ? atoll(argv[1]) : 66000000;
    int rounds = (argc > 2) ? atoi(argv[2]) : 7;
    size_t size = (size_t)((n > 0) ? n : 0) * sizeof(float);
    arrays a = { n, ct_mem_acquire(size), ct_mem_acquire(size), ct_mem_acquire(size),
                 ct_mem_acquire(size) };
    double seen[SIDES][MAX_ROUNDS], sink = 0.0;

    if ((n < 1) || (rounds < 1) || (rounds > MAX_ROUNDS)) return 2;
    if (!a.g || !a.h || !a.w || !a.v) return 2;
    for (int round = -1; round < rounds; round++) {
        for (int side = 0; side < SIDES; side++) {
            double start = ct_clock_s();

            sink += run(side, &a);
            if (round >= 0) seen[side][round] = 1e3 * (ct_clock_s() - start);
        }
    }
    printf("%lld elements, %d threads, medians of %d%s\n", (long long)n, omp_get_max_threads(),
           rounds, (sink != 0.0) ? " (not zero)" : "");
    for (int side = 0; side < SIDES; side++) {
        ct_sort(seen[side], rounds);
        printf("%-13s %8.2f ms %8.1f GB/s\n", name[side], seen[side][rounds / 2],
               1e-6 * (double)bytes[side] * (double)n / seen[side][rounds / 2]);
    }
    ct_mem_release(a.g), ct_mem_release(a.h), ct_mem_release(a.w), ct_mem_release(a.v);
    return 0;
}
