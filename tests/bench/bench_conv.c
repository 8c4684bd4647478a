/* Convolution engines on the shapes of LeNet, CIFAR-10 quick and AlexNet: median milliseconds and
 * GFLOP/s of each implementation and direction, beside the product of large matrices in the same
 * run. Usage: bench_conv [batch] [repetitions] [part of a shape's name] */
#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/rng.h"
#include "framework/base/sort.h"
#include "framework/math/math.h"
#include "layers/engine/conv/conv.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_REPEAT = 101 };

static const struct {
    const char *name;
    ct_conv_desc d;
} shape[] = {
    { "lenet/conv1", { .c = 1, .h = 28, .m = 20, .kh = 5, .sh = 1, .group = 1 } },
    { "lenet/conv2", { .c = 20, .h = 12, .m = 50, .kh = 5, .sh = 1, .group = 1 } },
    { "quick/conv1", { .c = 3, .h = 32, .m = 32, .kh = 5, .sh = 1, .ph = 2, .group = 1 } },
    { "quick/conv2", { .c = 32, .h = 16, .m = 32, .kh = 5, .sh = 1, .ph = 2, .group = 1 } },
    { "quick/conv3", { .c = 32, .h = 8, .m = 64, .kh = 5, .sh = 1, .ph = 2, .group = 1 } },
    { "alexnet/conv1", { .c = 3, .h = 227, .m = 96, .kh = 11, .sh = 4, .group = 1 } },
    { "alexnet/conv2", { .c = 96, .h = 27, .m = 256, .kh = 5, .sh = 1, .ph = 2, .group = 2 } },
    { "alexnet/conv3", { .c = 256, .h = 13, .m = 384, .kh = 3, .sh = 1, .ph = 1, .group = 1 } },
    { "alexnet/conv4", { .c = 384, .h = 13, .m = 384, .kh = 3, .sh = 1, .ph = 1, .group = 2 } },
    { "alexnet/conv5", { .c = 384, .h = 13, .m = 256, .kh = 3, .sh = 1, .ph = 1, .group = 2 } },
    { "resnet/3x3", { .c = 64, .h = 56, .m = 64, .kh = 3, .sh = 1, .ph = 1, .group = 1 } },
    { "resnet/1x1", { .c = 64, .h = 56, .m = 256, .kh = 1, .sh = 1, .group = 1 } },
    { "resnet/3x3s2", { .c = 128, .h = 28, .m = 256, .kh = 3, .sh = 2, .ph = 1, .group = 1 } },
};

static float *values(int64_t n)
{
    float *v = ct_mem_acquire((size_t)n * sizeof(float));

    if (v == NULL) exit(1);
    for (int64_t i = 0; i < n; i++) v[i] = ct_rng_uniform_at(1, (uint64_t)i) - 0.5f;
    return v;
}

static void bench_product(int repeat)
{
    enum { N = 1536 };
    float *a = values((int64_t)N * N), *b = values((int64_t)N * N), *c = values((int64_t)N * N);
    double s[MAX_REPEAT], t;

    ct_math_cpu.gemm(NULL, false, false, N, N, N, 1.0f, a, N, b, N, 0.0f, c, N);
    for (int r = 0; r < repeat; r++) {
        t = ct_clock_s();
        ct_math_cpu.gemm(NULL, false, false, N, N, N, 1.0f, a, N, b, N, 0.0f, c, N);
        s[r] = ct_clock_s() - t;
    }
    t = ct_median(s, repeat);
    printf("product %d^3: %.1f ms, %.0f GFLOP/s\n", (int)N, t * 1e3, 2e-9 * N * N * N / t);
    ct_mem_release(a), ct_mem_release(b), ct_mem_release(c);
}

static void bench_one(const char *name, const ct_conv_desc *d, const char *direction,
                      const ct_conv_impl *impl, ct_conv_args a, int repeat)
{
    double flop =
        2.0 * (double)(d->n * d->m * d->oh * d->ow) * (double)(d->c / d->group * d->kh * d->kw);
    ct_exec ex = { .dev = ct_device_cpu() };
    double s[MAX_REPEAT], t;

    a.work = ct_mem_acquire(ct_conv_workspace(impl, d));
    (void)impl->run(d, &ex, &a);
    for (int r = 0; r < repeat; r++) {
        t = ct_clock_s();
        (void)impl->run(d, &ex, &a);
        s[r] = ct_clock_s() - t;
    }
    t = ct_median(s, repeat);
    printf("%-14s %-15s %-8s %9.3f ms %7.0f GFLOP/s\n", name, direction, impl->name, t * 1e3,
           1e-9 * flop / t);
    ct_mem_release(a.work);
}

static void bench_shape(const char *name, ct_conv_desc d, int64_t batch, int repeat)
{
    static const char *const direction[] = { "forward", "backward_data", "backward_weight" };
    const ct_conv_impl *const *table[] = { ct_conv_forward_table, ct_conv_backward_data_table,
                                           ct_conv_backward_weight_table };
    ct_conv_args a = { .beta = 0.0f };

    d.device = CT_DEVICE_CPU;
    d.n_thread = omp_get_max_threads();
    d.n = batch;
    d.w = d.h, d.kw = d.kh, d.sw = d.sh, d.pw = d.ph, d.dh = d.dw = 1;
    d.oh = d.ow = ct_conv_out(d.h, d.kh, d.sh, d.ph, 1);
    a.x = values(d.n * d.c * d.h * d.w);
    a.dx = values(d.n * d.c * d.h * d.w);
    a.weight = values(d.m * d.c / d.group * d.kh * d.kw);
    a.dweight = values(d.m * d.c / d.group * d.kh * d.kw);
    a.bias = values(d.m);
    a.y = values(d.n * d.m * d.oh * d.ow);
    a.dy = values(d.n * d.m * d.oh * d.ow);
    for (int k = 0; k < 3; k++) {
        for (int i = 0; strcmp(table[k][i]->name, "ref") != 0; i++) {
            if (table[k][i]->supports(&d))
                bench_one(name, &d, direction[k], table[k][i], a, repeat);
        }
    }
    ct_mem_release((void *)a.x), ct_mem_release(a.dx), ct_mem_release((void *)a.weight);
    ct_mem_release(a.dweight), ct_mem_release((void *)a.bias), ct_mem_release(a.y);
    ct_mem_release((void *)a.dy);
}

int main(int argc, char **argv)
{
    int64_t batch = (argc > 1) ? strtol(argv[1], NULL, 10) : 64;
    int repeat = (argc > 2) ? (int)strtol(argv[2], NULL, 10) : 7;

    if ((batch < 1) || (repeat < 1) || (repeat > MAX_REPEAT)) return 2;
    printf("batch %lld, %d threads, median of %d\n", (long long)batch, omp_get_max_threads(),
           repeat);
    bench_product(repeat);
    for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
        if ((argc > 3) && (strstr(shape[i].name, argv[3]) == NULL)) continue;
        bench_shape(shape[i].name, shape[i].d, batch, repeat);
    }
    return 0;
}
