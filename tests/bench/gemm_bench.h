/** @file gemm_bench.h  What bench_gemm and bench_gemm_dnnl share: the packed products, in f32 and
 * in bf16, BLAS and, if given, a third, call by call in turns, all four cases of transposition.
 *
 * Usage: bench_gemm [rounds] [name of a shape, or part of it]; threads as OMP_NUM_THREADS says.
 * With one thread its own time counts, which other programs' turns are no part of. `blas` is
 * whatever OPENBLAS_CORETYPE makes it: tell it the processor's best.
 */
#ifndef CT_GEMM_BENCH_H
#define CT_GEMM_BENCH_H

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/rng.h"
#include "framework/math/gemm.h"
#include "framework/math/math.h"

typedef void (*bench_product)(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a,
                              int64_t lda, const float *b, int64_t ldb, float *c);

enum { BENCH_MAX_ROUNDS = 51, BENCH_SIDES = 6 };

static const struct {
    const char *name;
    int64_t m, n, k;
} bench_shape[] = {
    { "resnet 7x7", 512, 49, 4608 },
    { "conv 56x56", 64, 3136, 576 },
    { "conv 28x28", 256, 784, 2304 },
    { "fc6^T 64", 4096, 64, 9216 },
    { "alexnet fc6", 64, 4096, 9216 },
    { "alexnet fc6 data", 64, 9216, 4096 },
    { "alexnet fc6 weight", 4096, 9216, 64 },
    { "vgg fc6 16", 16, 4096, 25088 },
    { "lenet ip1", 64, 500, 800 },
    { "lenet ip1 weight", 500, 800, 64 },
    { "lenet ip2", 64, 10, 500 },
    { "lstm gates", 700, 6000, 1500 },
    { "lstm weight", 6000, 1500, 700 },
    { "lstm step", 20, 6000, 1500 },
    { "lstm step back", 20, 1500, 6000 },
    { "square", 1024, 1024, 1024 },
    { "gpt2 qkv", 1024, 2304, 768 },
    { "gpt2 proj", 1024, 768, 3072 },
    { "gpt2 weight", 3072, 768, 1024 },
    { "char qkv", 4096, 1152, 384 },
    { "char weight", 1536, 384, 4096 },
};

typedef struct bench_run {
    ct_gemm_desc d, narrow;
    ct_gemm_plan plan, narrow_plan;
    ct_gemm_args args;
    float *packed, *narrow_packed;
    bench_product third;
} bench_run;

static double bench_now(void)
{
    struct timespec t;

    if (omp_get_max_threads() > 1) return ct_clock_s();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int bench_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static float *bench_make(int64_t n, uint64_t key)
{
    float *v = ct_mem_acquire((size_t)n * sizeof(float));

    if (v == NULL) exit(1);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) v[i] = 2.0f * ct_rng_uniform_at(key, (uint64_t)i) - 1.0f;
    return v;
}

/* side 0: packed products; 1: BLAS; 2: the third; 3: with B packed beforehand; 4 and 5: 0 and 3 in
 * bf16. */
static void bench_call(const bench_run *r, int side)
{
    const ct_gemm_desc *d = &r->d;
    const ct_gemm_args *g = &r->args;

    if (side == 0)
        ct_gemm_run(&r->plan, g);
    else if (side == 1)
        ct_math_cpu.gemm(NULL, d->ta, d->tb, d->m, d->n, d->k, 1.0f, g->a, g->lda, g->b, g->ldb,
                         0.0f, g->c, g->ldc);
    else if (side == 2)
        r->third(d->ta, d->tb, d->m, d->n, d->k, g->a, g->lda, g->b, g->ldb, g->c);
    else if (side == 3)
        ct_gemm_run_packed(d, g, r->packed, false);
    else if (side == 4)
        ct_gemm_run(&r->narrow_plan, g);
    else
        ct_gemm_run_packed(&r->narrow, g, r->narrow_packed, false);
}

static bool bench_has(const bench_run *r, int side)
{
    if (side == 2) return r->third != NULL;
    return ((side != 3) && (side != 5)) || (r->packed != NULL);
}

/* Medians in GFLOP/s; 0 where a side is not there. */
static void bench_time(const bench_run *r, int rounds, double rate[BENCH_SIDES])
{
    double flop = 2.0 * (double)r->d.m * (double)r->d.n * (double)r->d.k;
    double seen[BENCH_SIDES][BENCH_MAX_ROUNDS];
    int calls = (int)(1e9 / flop) + 1;

    for (int round = -1; round < rounds; round++) {
        for (int side = 0; side < BENCH_SIDES; side++) {
            double start = bench_now();

            if (!bench_has(r, side)) continue;
            for (int i = 0; i < calls; i++) bench_call(r, side);
            if (round >= 0) seen[side][round] = flop * calls / (bench_now() - start) * 1e-9;
        }
    }
    for (int side = 0; side < BENCH_SIDES; side++) {
        rate[side] = 0.0;
        if (!bench_has(r, side)) continue;
        qsort(seen[side], (size_t)rounds, sizeof(double), bench_compare);
        rate[side] = seen[side][rounds / 2];
    }
}

static bench_run bench_open(int s, int way, bench_product third)
{
    int64_t m = bench_shape[s].m, n = bench_shape[s].n, k = bench_shape[s].k;
    bench_run r = { .d = { .ta = (way & 1) != 0,
                           .tb = (way & 2) != 0,
                           .m = m,
                           .n = n,
                           .k = k,
                           .n_thread = omp_get_max_threads() },
                    .third = third };
    size_t work = ct_gemm_workspace(&r.d), packed = ct_gemm_packed_workspace(&r.d);

    r.plan = ct_gemm_plan_make(&r.d);
    r.narrow = r.d;
    r.narrow.bf16 = true;
    r.narrow_plan = ct_gemm_plan_make(&r.narrow);
    r.args =
        (ct_gemm_args){ .alpha = 1.0f, .lda = r.d.ta ? m : k, .ldb = r.d.tb ? k : n, .ldc = n };
    r.args.a = bench_make(m * k, 1);
    r.args.b = bench_make(n * k, 2);
    r.args.c = bench_make(m * n, 3);
    r.args.work = ct_mem_acquire((work > packed) ? work : packed);
    if (r.args.work == NULL) exit(1);
    if (m > 64) return r; /* with many rows nobody keeps B packed */
    r.packed = bench_make(ct_gemm_packed_size(&r.d), 4);
    r.narrow_packed = bench_make(ct_gemm_packed_size(&r.narrow), 4);
    ct_gemm_pack(&r.d, r.args.b, r.args.ldb, r.packed);
    ct_gemm_pack(&r.narrow, r.args.b, r.args.ldb, r.narrow_packed);
    return r;
}

static void bench_close(bench_run *r)
{
    ct_mem_release((void *)(uintptr_t)r->args.a), ct_mem_release((void *)(uintptr_t)r->args.b);
    ct_mem_release(r->args.c), ct_mem_release(r->args.work), ct_mem_release(r->packed);
    ct_mem_release(r->narrow_packed);
}

static int bench_main(int argc, char **argv, const char *name, bench_product third)
{
    int rounds = (argc > 1) ? atoi(argv[1]) : 3, n = 0;
    double blas = 0.0, other = 0.0, narrow = 0.0;

    if ((rounds < 1) || (rounds > BENCH_MAX_ROUNDS)) return 2;
    printf("GFLOP/s, %d threads, medians of %d\n%-19s %5s %5s %5s    %8s %8s %8s %8s %8s %8s\n",
           omp_get_max_threads(), rounds, "", "m", "n", "k", "own", "blas", name, "packed", "bf16",
           "packed");
    for (int i = 0; i < 4 * (int)(sizeof(bench_shape) / sizeof(bench_shape[0])); i++) {
        double rate[BENCH_SIDES];
        bench_run r;

        if ((argc > 2) && (strstr(bench_shape[i / 4].name, argv[2]) == NULL)) continue;
        r = bench_open(i / 4, i % 4, third);
        bench_time(&r, rounds, rate);
        printf("%-19s %5d %5d %5d %c%c %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f\n",
               bench_shape[i / 4].name, (int)r.d.m, (int)r.d.n, (int)r.d.k, r.d.ta ? 'T' : 'N',
               r.d.tb ? 'T' : 'N', rate[0], rate[1], rate[2], rate[3], rate[4], rate[5]);
        fflush(stdout);
        blas += log(rate[0] / rate[1]);
        if (third != NULL) other += log(rate[0] / rate[2]);
        narrow += log(rate[4] / rate[0]);
        n++;
        bench_close(&r);
    }
    if (n == 0) return 2;
    printf("own over blas, geometric mean: %.3f\n", exp(blas / n));
    printf("bf16 over own f32, geometric mean: %.3f\n", exp(narrow / n));
    if (third != NULL) printf("own over %s, geometric mean: %.3f\n", name, exp(other / n));
    return 0;
}

#endif
