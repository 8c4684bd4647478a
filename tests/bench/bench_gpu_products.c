/* Products of fully connected and recurrent layers on the GPU with what stands behind them: in one
 * kernel of the device's library, by its first algorithm and by the fastest of those that it names,
 * beside BLAS and kernels of their own. Needs CUDA=1 and a GPU: says so otherwise, and exits 77. */
#include "tests/test.h"
#include "tests/cuda_case.h"

#include "framework/base/clock.h"
#include "framework/base/rng.h"
#include "layers/types/product.h"

#include <stdio.h>
#include <stdlib.h>

enum { TURNS = 20, CHUNK = 1 << 20 };

static const struct {
    const char *name;
    int64_t m, n, k;
} job[] = {
    { "AlexNet fc6", 256, 4096, 9216 },   { "AlexNet fc7", 256, 4096, 4096 },
    { "AlexNet fc8", 256, 1000, 4096 },   { "VGG-16 fc6", 64, 4096, 25088 },
    { "ResNet-50 fc", 128, 1000, 2048 },  { "LSTM 1500 out", 700, 10000, 1500 },
    { "LeNet ip1", 64, 500, 800 },        { "LSTM 650 step", 20, 2600, 650 },
    { "LSTM 1500 step", 20, 6000, 1500 },
};

/* What is timed: a pass and what stands behind it. */
static const struct {
    const char *name;
    ct_run_kind kind;
    unsigned behind;
} way[] = {
    { "forward", CT_RUN_FORWARD, 0 },
    { "forward, bias, ReLU", CT_RUN_FORWARD, CT_FUSE_BIAS | CT_FUSE_RELU },
    { "by weight, bias", CT_RUN_BACKWARD_WEIGHT, CT_FUSE_SUM_A },
    { "by data", CT_RUN_BACKWARD_DATA, 0 },
    { "by data, ReLU", CT_RUN_BACKWARD_DATA, CT_FUSE_DRELU },
    { "by data, ReLU, bias", CT_RUN_BACKWARD_DATA, CT_FUSE_DRELU | CT_FUSE_SUM_C },
};

typedef struct bench {
    const ct_device *dev;
    ct_exec ex;
    ct_operand operand;
    unsigned narrow; /* CT_NARROW_…: matrices of 16 bits in memory */
    ct_product p;
    ct_product_args args;
    const ct_relu_impl *relu; /* behind the product, where DRELU is done apart */
    ct_relu_desc relu_desc;
    const ct_bias_impl *bias; /* behind that, where sums of C are */
    ct_bias_desc bias_desc;
    const float *top;
} bench;

static const float *numbers(void)
{
    static float chunk[CHUNK];

    if (chunk[1] == 0.0f) {
        for (int64_t i = 0; i < CHUNK; i++) chunk[i] = ct_rng_normal_at(3, (uint64_t)i);
    }
    return chunk;
}

static float *filled(const ct_device *dev, int64_t n)
{
    const float *chunk = numbers();
    float *to = NULL;

    assert_int_equal(dev->mem_acquire((size_t)n * sizeof(float), (void **)&to), CT_OK);
    for (int64_t i = 0; i < n; i += CHUNK)
        assert_int_equal(dev->from_host(NULL, to + i, chunk,
                                        sizeof(float) * (size_t)((n - i < CHUNK) ? n - i : CHUNK)),
                         CT_OK);
    return to;
}

/* The same rounded to 16 bits, where the matrix has them. */
static float *filled_side(const bench *b, unsigned side, int64_t n)
{
    float *many, *to;

    if ((b->narrow & side) == 0) return filled(b->dev, n);
    many = malloc((size_t)n * sizeof(*many));
    assert_non_null(many);
    for (int64_t i = 0; i < n; i++) many[i] = numbers()[i % CHUNK];
    to = test_cuda_put_narrow(b->dev, b->operand, many, n);
    free(many);
    return to;
}

static void run_once(bench *b)
{
    assert_int_equal(ct_product_run(&b->p, &b->ex, &b->args), CT_OK);
    if (b->relu != NULL)
        assert_int_equal(
            b->relu->run(&b->relu_desc, &b->ex,
                         &(ct_relu_args){ .x = b->top, .dy = b->args.c, .dx = b->args.c }),
            CT_OK);
    if (b->bias != NULL)
        assert_int_equal(b->bias->run(&b->bias_desc, &b->ex,
                                      &(ct_bias_args){ .dy = b->args.c, .dbias = b->args.sums }),
                         CT_OK);
}

/* Microseconds of a run, the fastest of three times TURNS. */
static double time_of(bench *b)
{
    double best = 1e9;

    b->args.work = NULL;
    assert_int_equal(b->dev->mem_acquire(ct_product_workspace(&b->p) + 64, &b->args.work), CT_OK);
    for (int k = 0; k < 4; k++) {
        double start = ct_clock_s(), seconds;

        for (int i = 0; i < TURNS; i++) run_once(b);
        assert_int_equal(b->dev->sync(NULL), CT_OK);
        seconds = (ct_clock_s() - start) / TURNS;
        if ((k > 0) && (seconds < best)) best = seconds;
    }
    b->dev->mem_release(b->args.work);
    return 1e6 * best;
}

static ct_gemm_desc shape_of(size_t j, ct_run_kind kind)
{
    int64_t m = job[j].m, n = job[j].n, k = job[j].k;

    if (kind == CT_RUN_FORWARD) return (ct_gemm_desc){ .tb = true, .m = m, .n = n, .k = k };
    if (kind == CT_RUN_BACKWARD_DATA) return (ct_gemm_desc){ .m = m, .n = k, .k = n };
    return (ct_gemm_desc){ .ta = true, .m = n, .n = k, .k = m };
}

static void give_operands(bench *b, const ct_gemm_desc *d, unsigned behind)
{
    int64_t vector = (d->m > d->n) ? d->m : d->n;

    b->args =
        (ct_product_args){ .lda = d->ta ? d->m : d->k, .ldb = d->tb ? d->k : d->n, .ldc = d->n };
    b->args.a = filled_side(b, CT_NARROW_A, d->m * d->k);
    b->args.b = filled_side(b, CT_NARROW_B, d->k * d->n);
    b->args.c = filled_side(b, CT_NARROW_C, d->m * d->n);
    b->top = filled_side(b, CT_NARROW_C, d->m * d->n);
    b->args.bits = filled(b->dev, d->m * (d->n / 32 + 4)); /* of any kind */
    if ((behind & CT_FUSE_BIAS) != 0) b->args.bias = filled(b->dev, vector);
    if ((behind & CT_FUSE_SUMS) != 0) b->args.sums = filled(b->dev, vector);
}

static void take_operands(bench *b)
{
    const void *all[] = { b->args.a,    b->args.b,    b->args.c,   b->top,
                          b->args.bits, b->args.bias, b->args.sums };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i] != NULL) b->dev->mem_release((void *)(uintptr_t)all[i]);
    }
}

/* The fastest of the library's algorithms; the first one's time in *first_p. */
static double time_fused(bench *b, double *first_p, const char **name_p)
{
    const ct_fused_ops *ops = b->p.math->fused;
    double best = 1e30;

    for (int i = 0; ops->algorithm(b->p.fused, i) != NULL; i++) {
        double us;

        ops->take(b->p.fused, i);
        us = time_of(b);
        if (i == 0) *first_p = us;
        if (us >= best) continue;
        best = us;
        *name_p = ops->algorithm(b->p.fused, i);
    }
    return best;
}

/* Of a layer whose values, and rounded weights, have 16 bits in memory; what does not fit has not.
 */
static unsigned narrow_of(size_t j, size_t w)
{
    if ((job[j].n % 8 != 0) || (job[j].k % 8 != 0) || ((way[w].behind & CT_FUSE_SUM_C) != 0))
        return 0;
    return CT_NARROW_A | CT_NARROW_B |
           ((way[w].kind != CT_RUN_BACKWARD_WEIGHT) ? (unsigned)CT_NARROW_C : 0);
}

static void bench_way(const ct_layer *l, size_t j, size_t w, unsigned narrow)
{
    ct_gemm_desc d = shape_of(j, way[w].kind);
    bool drelu = (way[w].behind & CT_FUSE_DRELU) != 0;
    bench b = {
        .dev = l->dev, .ex = { .dev = l->dev }, .operand = ct_engine_operand(l), .narrow = narrow
    };
    double apart, first = 0.0, best, flop = 2.0 * (double)d.m * (double)d.n * (double)d.k;
    const char *name = "";

    give_operands(&b, &d, way[w].behind);
    assert_int_equal(
        ct_product_make_plain(l, way[w].kind, &d, drelu ? 0 : way[w].behind, narrow, &b.p), CT_OK);
    b.relu_desc = (ct_relu_desc){
        .device = l->dev->kind, .n_thread = 1, .count = d.m * d.n, .dtype = b.p.relu_desc.dtype
    };
    b.bias_desc =
        (ct_bias_desc){ .device = l->dev->kind, .n_thread = 1, .n = d.m, .c = d.n, .s = 1 };
    if (drelu) b.relu = ct_relu_find(ct_relu_backward_table, &b.relu_desc, "auto");
    if ((way[w].behind & CT_FUSE_SUM_C) != 0)
        b.bias = ct_bias_find(ct_bias_backward_table, &b.bias_desc, "auto");
    apart = time_of(&b);
    b.relu = NULL;
    b.bias = NULL;
    printf("%-14s %-20s %9.1f %7.0f", job[j].name, way[w].name, apart, 1e-3 * flop / apart);
    if ((ct_product_make_narrow(l, way[w].kind, &d, way[w].behind, narrow, &b.p) == CT_OK) &&
        (b.p.fused != NULL)) {
        best = time_fused(&b, &first, &name);
        printf(" %9.1f %9.1f %7.0f %6.2f  %s\n", first, best, 1e-3 * flop / best, apart / best,
               name);
    } else {
        printf(" the library has none\n");
    }
    ct_product_drop(&b.p);
    take_operands(&b);
}

int main(void)
{
    static const Ct__SolverParameter__Precision each[] = { CT__SOLVER_PARAMETER__PRECISION__F32,
                                                           CT__SOLVER_PARAMETER__PRECISION__TF32,
                                                           CT__SOLVER_PARAMETER__PRECISION__BF16,
                                                           CT__SOLVER_PARAMETER__PRECISION__FP16 };
    static const char *const name[] = {
        "f32", "tf32", "bf16", "f16", "bf16, in memory, too", "f16, in memory, too"
    };
    enum { WAYS = 6, WIDE = 4 /* of these f32 in memory */ };
    Ct__LayerParameter param = CT__LAYER_PARAMETER__INIT;
    Ct__KernelParameter kernel = CT__KERNEL_PARAMETER__INIT;
    ct_net_env env = { .n_rank = 1 };
    ct_layer l = { .ops = ct_layer_find("InnerProduct"),
                   .param = &param,
                   .name = "bench",
                   .where = "",
                   .env = &env };
    const ct_device *dev = test_cuda_there();
    char lt[] = "lt";

    if (dev == NULL) {
        printf("no GPU: nothing run\n");
        return 77;
    }
    l.dev = dev;
    /* by name: where nothing stands behind in the same kernel, the static rule is BLAS */
    kernel.forward = kernel.backward_data = kernel.backward_weight = lt;
    param.ct_kernel = &kernel;
    for (int p = 0; p < WAYS; p++) {
        env.precision = each[(p < WIDE) ? p : p - 2];
        printf("%s, us and GFLOP/s: apart; the library's first algorithm, its fastest\n", name[p]);
        for (size_t j = 0; j < sizeof(job) / sizeof(job[0]); j++) {
            for (size_t w = 0; w < sizeof(way) / sizeof(way[0]); w++) {
                unsigned narrow = (p < WIDE) ? 0 : narrow_of(j, w);

                if ((p < WIDE) || (narrow != 0)) bench_way(&l, j, w, narrow);
            }
        }
    }
    return 0;
}
