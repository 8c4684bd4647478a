/* Convolutions on blocked layouts with operands in f32 and rounded to bf16, call by call in turns:
 * medians of GFLOP/s of the plain sum, each engine and direction. Threads as OMP_NUM_THREADS says;
 * with one its own time counts. Usage: bench_conv_bf16 [batch] [rounds] [C,H,M,kernel,stride,pad]
 * [directions, of fdw] [engine] */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/rng.h"
#include "framework/base/simd.h"
#include "framework/base/sort.h"
#include "layers/engine/conv/conv.h"

enum { MAX_ROUNDS = 31, SIZES = 6 };

static const int64_t shape[][SIZES] = {
    { 64, 224, 64, 3, 1, 1 },  { 128, 112, 128, 3, 1, 1 }, { 256, 56, 256, 3, 1, 1 },
    { 512, 28, 512, 3, 1, 1 }, { 512, 14, 512, 3, 1, 1 },  { 64, 56, 64, 3, 1, 1 },
    { 128, 28, 128, 3, 1, 1 }, { 256, 14, 256, 3, 1, 1 },  { 512, 7, 512, 3, 1, 1 },
    { 256, 56, 64, 1, 1, 0 },  { 64, 56, 256, 1, 1, 0 },   { 512, 28, 128, 1, 1, 0 },
    { 128, 28, 512, 1, 1, 0 }, { 1024, 14, 256, 1, 1, 0 }, { 256, 14, 1024, 1, 1, 0 },
    { 2048, 7, 512, 1, 1, 0 }, { 512, 28, 1024, 1, 2, 0 }, { 96, 27, 256, 5, 1, 2 },
    { 32, 16, 32, 5, 1, 2 }
};

static double now(void)
{
    struct timespec t;

    if (omp_get_max_threads() > 1) return ct_clock_s();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *make(int64_t n)
{
    float *v = ct_mem_acquire((size_t)n * sizeof(float));

    if (v == NULL) exit(1);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) v[i] = ct_rng_uniform_at(1, (uint64_t)i) - 0.5f;
    return v;
}

static ct_conv_desc make_desc(int64_t batch, const int64_t *s)
{
    int b = ct_simd_block();
    ct_conv_desc d = { .device = CT_DEVICE_CPU,
                       .n_thread = omp_get_max_threads(),
                       .n = batch,
                       .group = 1,
                       .c = s[0],
                       .h = s[1],
                       .w = s[1],
                       .m = s[2],
                       .kh = s[3],
                       .kw = s[3],
                       .sh = s[4],
                       .sw = s[4],
                       .ph = s[5],
                       .pw = s[5],
                       .dh = 1,
                       .dw = 1,
                       .winograd = 4,
                       .x_block = b,
                       .y_block = b };

    d.oh = d.ow = ct_conv_out(s[1], s[3], s[4], s[5], 1);
    return d;
}

static void bench(const ct_conv_desc *f32, char way, const char *engine, int rounds)
{
    const ct_conv_impl *const *table = (way == 'f')   ? ct_conv_forward_table
                                       : (way == 'd') ? ct_conv_backward_data_table
                                                      : ct_conv_backward_weight_table;
    const ct_conv_impl *impl = ct_conv_find(table, f32, engine);
    ct_conv_desc d[2] = { *f32, *f32 };
    int b = f32->x_block;
    int64_t n_x = f32->n * ((f32->c + b - 1) / b * b) * f32->h * f32->w;
    int64_t n_y = f32->n * ((f32->m + b - 1) / b * b) * f32->oh * f32->ow;
    double flop = 2.0 * (double)(f32->n * f32->oh * f32->ow) * (double)(f32->m * f32->c) *
                  (double)(f32->kh * f32->kw);
    double seen[2][MAX_ROUNDS];
    ct_exec ex = { .dev = ct_device_cpu() };
    size_t work, narrow_work;
    ct_conv_args a = { 0 };

    if (impl == NULL) return;
    d[1].bf16 = true;
    work = ct_conv_workspace(impl, &d[0]), narrow_work = ct_conv_workspace(impl, &d[1]);
    a.x = a.dx = make(n_x), a.y = make(n_y), a.dy = a.y;
    a.weight = a.dweight = make(f32->m * f32->c * f32->kh * f32->kw);
    a.work = make((int64_t)(((work > narrow_work) ? work : narrow_work) / sizeof(float)) + 16);
    for (int round = -1; round < rounds; round++) {
        for (int side = 0; side < 2; side++) {
            double start = now();

            if (impl->run(&d[side], &ex, &a) != CT_OK) exit(1);
            if (round >= 0) seen[side][round] = flop / (now() - start) * 1e-9;
        }
    }
    for (int side = 0; side < 2; side++) ct_sort(seen[side], rounds);
    printf("%4d %3d %4d %dx%d s%d  %c %-9s %8.1f %8.1f  %.2f\n", (int)f32->c, (int)f32->h,
           (int)f32->m, (int)f32->kh, (int)f32->kw, (int)f32->sh, way, impl->name,
           seen[0][rounds / 2], seen[1][rounds / 2], seen[1][rounds / 2] / seen[0][rounds / 2]);
    fflush(stdout);
    ct_mem_release(a.dx), ct_mem_release(a.y), ct_mem_release(a.dweight), ct_mem_release(a.work);
}

int main(int argc, char **argv)
{
    int64_t batch = (argc > 1) ? atoll(argv[1]) : 4, own[SIZES];
    int rounds = (argc > 2) ? atoi(argv[2]) : 3;
    const char *ways = (argc > 4) ? argv[4] : "fdw", *engine = (argc > 5) ? argv[5] : "";
    bool one = false;

    if ((batch < 1) || (rounds < 1) || (rounds > MAX_ROUNDS)) return 2;
    if ((argc > 3) && (strcmp(argv[3], "all") != 0)) {
        char *at = argv[3];

        for (int i = 0; i < SIZES; i++) own[i] = strtoll(at, &at, 10), at += (*at == ',');
        one = true;
    }
    printf("GFLOP/s of %d threads, batch %d, medians of %d: f32, bf16, ratio\n",
           omp_get_max_threads(), (int)batch, rounds);
    for (size_t i = 0; i < (one ? 1 : sizeof(shape) / sizeof(shape[0])); i++) {
        ct_conv_desc d = make_desc(batch, one ? own : shape[i]);

        for (const char *way = ways; *way != '\0'; way++) {
            if (strcmp(engine, "winograd") != 0) bench(&d, *way, "blocked", rounds);
            if (strcmp(engine, "blocked") != 0) bench(&d, *way, "winograd", rounds);
        }
    }
    return 0;
}
