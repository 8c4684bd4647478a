/* The passes of an update over all parameters, beside what memory gives: bench_update [elements]
 * [rounds]; threads as OMP_NUM_THREADS says, in turns, medians. The update reads gradient, history
 * and weight and writes the last two: 20 bytes an element; the norm of the gradients reads 4. The
 * memory's own speed: the same traffic (three read, two of them written) without any arithmetic to
 * speak of, a = b + s c (16 bytes, what is written being read first), and a plain sum. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/simd.h"
#include "framework/math/math.h"

enum { SIDES = 5, MAX_ROUNDS = 51, BLOCK = 8192 };

CT_SIMD_CLONES static void swap_block(int64_t n, const float *a, float *b, float *c)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float old = b[i];

        b[i] = c[i] + a[i];
        c[i] = old;
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

static double run(int side, int64_t n, float *g, float *h, float *w)
{
    double out = 0.0;

    if (side == 0) {
        (void)ct_math_cpu.sgd(NULL, n, 1.0f, 0.0f, 0.9f, 0.0005f, 0.0f, g, h, w);
        return 0.0;
    }
    if (side == 3) {
        (void)ct_math_cpu.sumsq(NULL, n, g, &out);
        return out;
    }
#pragma omp parallel for schedule(static) reduction(+ : out)
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t len = (n - i < BLOCK) ? n - i : BLOCK;

        if (side == 1)
            swap_block(len, g + i, h + i, w + i);
        else if (side == 2)
            triad_block(len, g + i, h + i, w + i);
        else
            out += (double)sum_block(len, g + i);
    }
    return out;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static const char *const name[SIDES] = { "update", "same traffic", "a = b + s c", "norm",
                                             "sum" };
    static const int bytes[SIDES] = { 20, 20, 16, 4, 4 };
    int64_t n = (argc > 1) ? atoll(argv[1]) : 66000000;
    int rounds = (argc > 2) ? atoi(argv[2]) : 7;
    size_t size = (size_t)((n > 0) ? n : 0) * sizeof(float);
    float *g = ct_mem_acquire(size), *h = ct_mem_acquire(size), *w = ct_mem_acquire(size);
    double seen[SIDES][MAX_ROUNDS], sink = 0.0;

    if ((n < 1) || (rounds < 1) || (rounds > MAX_ROUNDS) || !g || !h || !w) return 2;
    for (int round = -1; round < rounds; round++) {
        for (int side = 0; side < SIDES; side++) {
            double start = ct_clock_s();

            sink += run(side, n, g, h, w);
            if (round >= 0) seen[side][round] = 1e3 * (ct_clock_s() - start);
        }
    }
    printf("%lld elements, %d threads, medians of %d%s\n", (long long)n, omp_get_max_threads(),
           rounds, (sink != 0.0) ? " (not zero)" : "");
    for (int side = 0; side < SIDES; side++) {
        qsort(seen[side], (size_t)rounds, sizeof(double), compare);
        printf("%-13s %8.2f ms %8.1f GB/s\n", name[side], seen[side][rounds / 2],
               1e-6 * (double)bytes[side] * (double)n / seen[side][rounds / 2]);
    }
    ct_mem_release(g), ct_mem_release(h), ct_mem_release(w);
    return 0;
}
