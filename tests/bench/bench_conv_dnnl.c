/* Our convolutions on blocked layouts beside oneDNN's direct ones and, for 3 x 3 of step 1, those
 * that it chooses itself (Winograd's, mostly), call by call in turns, each in its own best layout;
 * weights in Caffe's order for ours, so that their packing counts, and packed for oneDNN. GFLOP/s
 * are nominal: multiplications with padding counted, though no direct engine does them all.
 * Usage: bench_conv_dnnl [batch] [repetitions] [shapes] [passes: f, d, w] [engine [another]]
 * shapes: part of a name, or channels,rows,outputs,kernel,stride,pad of one more */
#include "framework/base/clock.h"
#include "framework/base/memory.h"
#include "framework/base/rng.h"
#include "framework/base/simd.h"
#include "framework/base/sort.h"
#include "layers/engine/conv/conv.h"

#include <math.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_REPEAT = 101 };

static const struct {
    const char *name;
    int group, c, h, m, k, s, p;
} shape[] = {
    { "alexnet/conv1 11x11s4", 1, 3, 227, 96, 11, 4, 0 },
    { "alexnet/conv2 5x5 g2", 2, 96, 27, 256, 5, 1, 2 },
    { "alexnet/conv3 3x3", 1, 256, 13, 384, 3, 1, 1 },
    { "vgg/conv1_1 3x3", 1, 3, 224, 64, 3, 1, 1 },
    { "vgg/conv1_2 3x3", 1, 64, 224, 64, 3, 1, 1 },
    { "vgg/conv4_2 3x3", 1, 512, 28, 512, 3, 1, 1 },
    { "resnet/conv1 7x7s2", 1, 3, 224, 64, 7, 2, 3 },
    { "resnet/res2a 1x1", 1, 64, 56, 256, 1, 1, 0 },
    { "resnet/res3 3x3", 1, 128, 28, 128, 3, 1, 1 },
    { "resnet/res4 1x1", 1, 1024, 14, 256, 1, 1, 0 },
    { "resnet/res5 3x3", 1, 512, 7, 512, 3, 1, 1 },
    { "resnet/res3a 3x3s2", 1, 128, 56, 128, 3, 2, 1 },
    { "resnet/res4a 1x1s2", 1, 512, 28, 1024, 1, 2, 0 },
    { "resnet/res5 1x1", 1, 512, 7, 2048, 1, 1, 0 },
    { "resnet20/3x3 16", 1, 16, 32, 16, 3, 1, 1 },
    { "googlenet/3a 1x1", 1, 192, 28, 64, 1, 1, 0 },
    { "googlenet/4b 5x5", 1, 32, 14, 64, 5, 1, 2 },
    { "quick/conv2 5x5", 1, 32, 16, 32, 5, 1, 2 },
    { "alexnet/conv4 3x3 g2", 2, 384, 13, 384, 3, 1, 1 },
    { "vgg/conv2_2 3x3", 1, 128, 112, 128, 3, 1, 1 },
    { "vgg/conv3_2 3x3", 1, 256, 56, 256, 3, 1, 1 },
    { "vgg/conv5_2 3x3", 1, 512, 14, 512, 3, 1, 1 },
    { "resnet/res2 3x3", 1, 64, 56, 64, 3, 1, 1 },
    { "resnet/res4 3x3", 1, 256, 14, 256, 3, 1, 1 },
};

/* One thread's own time, which other programs' turns are no part of; of several, the clock's. */
static double now(void)
{
    struct timespec t;

    if (omp_get_max_threads() > 1) return ct_clock_s();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- peak: fused multiply-adds of registers alone */

#define PEAK(_name, _target, _lanes, _n)                                                           \
    _target static float _name(int64_t n)                                                          \
    {                                                                                              \
        typedef float vec __attribute__((vector_size(4 * (_lanes))));                              \
        const vec zero = { 0.0f };                                                                 \
        vec acc[_n], x = zero + 0.999f, y = zero + 0.001f, sum = zero;                             \
                                                                                                   \
        _Pragma("GCC unroll 16") for (int i = 0; i < (_n); i++) acc[i] = zero + (float)i;          \
        for (int64_t k = 0; k < n; k++) {                                                          \
            _Pragma("GCC unroll 16") for (int i = 0; i < (_n); i++) acc[i] = acc[i] * x + y;       \
            __asm__ volatile("" : "+x"(acc[0]), "+x"(acc[1]));                                     \
        }                                                                                          \
        _Pragma("GCC unroll 16") for (int i = 0; i < (_n); i++) sum += acc[i];                     \
        return sum[0] + sum[1];                                                                    \
    }

#if defined(__x86_64__)
PEAK(peak_avx512, __attribute__((target("avx512f"))), 16, 16)
PEAK(peak_avx2, __attribute__((target("avx2,fma"))), 8, 12)
#else
PEAK(peak_avx512, , 4, 12)
PEAK(peak_avx2, , 4, 12)
#endif
PEAK(peak_any, , 4, 12)

static double peak(void)
{
    static const double flop[] = { 2 * 4 * 12, 2 * 8 * 12, 2 * 16 * 16 };
    float (*const fn[])(int64_t) = { peak_any, peak_avx2, peak_avx512 };
    const int64_t n = 2000000;
    ct_simd_level level = ct_simd_pick();
    double best = 0.0;
    float sum = 0.0f;

    for (int r = 0; r < 7; r++) {
        double t = now();

#pragma omp parallel reduction(+ : sum)
        sum += fn[level](n);
        t = now() - t;
        best = fmax(best, flop[level] * (double)n * omp_get_max_threads() / t);
    }
    return (sum == 0.123f) ? 0.0 : best;
}

/* ---- oneDNN */

static void check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success) return;
    fprintf(stderr, "oneDNN: status %d of %s\n", (int)status, what);
    exit(1);
}
#define CHECK(_x) check(_x, #_x)

typedef struct peer {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arg[4];
    int n_arg;
} peer;

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static void fill(float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) v[i] = ct_rng_uniform_at(1, (uint64_t)i) - 0.5f;
}

static float *values(int64_t n)
{
    float *v = ct_mem_acquire((size_t)n * sizeof(float));

    if (v == NULL) exit(1);
    fill(v, n);
    return v;
}

static void add(peer *p, int what, dnnl_primitive_desc_t desc, dnnl_query_t query)
{
    const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(desc, query, 0);
    float *v = values((int64_t)(dnnl_memory_desc_get_size(md) / sizeof(float)));

    p->arg[p->n_arg].arg = what;
    CHECK(dnnl_memory_create(&p->arg[p->n_arg].memory, md, engine, v));
    p->n_arg++;
}

static peer make_peer(const ct_conv_desc *d, char pass, dnnl_alg_kind_t how)
{
    dnnl_dims_t x = { d->n, d->c, d->h, d->w }, y = { d->n, d->m, d->oh, d->ow }, bias = { d->m };
    dnnl_dims_t w = { d->group, d->m / d->group, d->c / d->group, d->kh, d->kw };
    dnnl_dims_t stride = { d->sh, d->sw }, pad = { d->ph, d->pw };
    dnnl_memory_desc_t mx, my, mw, mb;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t forward, run;
    peer p = { .n_arg = 0 };
    int grouped = (d->group > 1);

    CHECK(dnnl_memory_desc_init_by_tag(&mx, 4, x, dnnl_f32, dnnl_format_tag_any));
    CHECK(dnnl_memory_desc_init_by_tag(&my, 4, y, dnnl_f32, dnnl_format_tag_any));
    CHECK(dnnl_memory_desc_init_by_tag(&mw, 4 + grouped, w + 1 - grouped, dnnl_f32,
                                       dnnl_format_tag_any));
    CHECK(dnnl_memory_desc_init_by_tag(&mb, 1, bias, dnnl_f32, dnnl_a));
    CHECK(dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, how, &mx, &mw, &mb, &my,
                                             stride, pad, pad));
    CHECK(dnnl_primitive_desc_create(&forward, &desc, NULL, engine, NULL));
    run = forward;
    if (pass == 'd') {
        CHECK(
            dnnl_convolution_backward_data_desc_init(&desc, how, &mx, &mw, &my, stride, pad, pad));
        CHECK(dnnl_primitive_desc_create(&run, &desc, NULL, engine, forward));
        add(&p, DNNL_ARG_DIFF_SRC, run, dnnl_query_diff_src_md);
        add(&p, DNNL_ARG_WEIGHTS, run, dnnl_query_weights_md);
        add(&p, DNNL_ARG_DIFF_DST, run, dnnl_query_diff_dst_md);
    } else if (pass == 'w') { /* without bias: ours is a layer's other engine */
        CHECK(dnnl_convolution_backward_weights_desc_init(&desc, how, &mx, &mw, NULL, &my, stride,
                                                          pad, pad));
        CHECK(dnnl_primitive_desc_create(&run, &desc, NULL, engine, forward));
        add(&p, DNNL_ARG_SRC, run, dnnl_query_src_md);
        add(&p, DNNL_ARG_DIFF_WEIGHTS, run, dnnl_query_diff_weights_md);
        add(&p, DNNL_ARG_DIFF_DST, run, dnnl_query_diff_dst_md);
    } else {
        add(&p, DNNL_ARG_SRC, run, dnnl_query_src_md);
        add(&p, DNNL_ARG_WEIGHTS, run, dnnl_query_weights_md);
        add(&p, DNNL_ARG_DST, run, dnnl_query_dst_md);
        p.arg[3].arg = DNNL_ARG_BIAS;
        CHECK(dnnl_memory_create(&p.arg[3].memory, &mb, engine, values(d->m)));
        p.n_arg = 4;
    }
    CHECK(dnnl_primitive_create(&p.primitive, run));
    CHECK(dnnl_primitive_desc_destroy(forward));
    if (run != forward) CHECK(dnnl_primitive_desc_destroy(run));
    return p;
}

static void run_peer(const peer *p)
{
    CHECK(dnnl_primitive_execute(p->primitive, stream, p->n_arg, p->arg));
    CHECK(dnnl_stream_wait(stream));
}

static void release_peer(peer *p)
{
    for (int i = 0; i < p->n_arg; i++) {
        void *v;

        CHECK(dnnl_memory_get_data_handle(p->arg[i].memory, &v));
        CHECK(dnnl_memory_destroy(p->arg[i].memory));
        ct_mem_release(v);
    }
    CHECK(dnnl_primitive_destroy(p->primitive));
}

/* ---- ours */

static const ct_conv_impl *find(const ct_conv_desc *d, char pass, const char *engine_name)
{
    const ct_conv_impl *const *table = ct_conv_forward_table;

    if (pass == 'd') table = ct_conv_backward_data_table;
    if (pass == 'w') table = ct_conv_backward_weight_table;
    return ct_conv_find(table, d, engine_name);
}

typedef struct score {
    double product[3]; /* of ours / theirs by the medians: direct; their own choice; another */
    int count[3];
} score;

static const char *const rival[] = { "oneDNN direct", "own choice", "our other" };

typedef struct contest {
    int repeat;
    const char *engine, *other; /* other: NULL or one more of ours */
    score sum;
} contest;

static void run_own(const ct_conv_impl *impl, const ct_conv_desc *d, ct_conv_args *a)
{
    ct_exec ex = { .dev = ct_device_cpu() };

    if (impl->run(d, &ex, a) != CT_OK) exit(1);
}

/* Prints a line. */
static void compare(const char *name, const ct_conv_desc *d, char pass, ct_conv_args a, contest *c)
{
    static const dnnl_alg_kind_t how[] = { dnnl_convolution_direct, dnnl_convolution_auto };
    const ct_conv_impl *impl = find(d, pass, c->engine);
    const ct_conv_impl *other = (c->other != NULL) ? find(d, pass, c->other) : NULL;
    double flop =
        2.0 * (double)(d->n * d->m * d->oh * d->ow) * (double)(d->c / d->group * d->kh * d->kw);
    bool has[3] = { true, (d->kh == 3) && (d->sh == 1) && (d->c > 3), other != NULL };
    double own[MAX_REPEAT], theirs[3][MAX_REPEAT], t;
    size_t work;
    peer p[2];

    if (impl == NULL) return;
    work = ct_conv_workspace(impl, d);
    if ((other != NULL) && (ct_conv_workspace(other, d) > work)) work = ct_conv_workspace(other, d);
    for (int k = 0; k < 2; k++) p[k] = has[k] ? make_peer(d, pass, how[k]) : (peer){ .n_arg = 0 };
    a.work = ct_mem_acquire(work);
    for (int r = -1; r < c->repeat; r++) {
        int at = (r < 0) ? 0 : r;

        t = now();
        run_own(impl, d, &a);
        own[at] = now() - t;
        for (int k = 0; k < 3; k++) {
            t = now();
            if (has[k] && (k < 2)) run_peer(&p[k]);
            if (has[k] && (k == 2)) run_own(other, d, &a);
            theirs[k][at] = now() - t;
        }
    }
    t = ct_median(own, c->repeat);
    printf("%-21s %c %-8s %8.3f ms %6.1f GFLOP/s, %5.1f MB", name, pass, impl->name, t * 1e3,
           1e-9 * flop / t, 1e-6 * (double)ct_conv_workspace(impl, d));
    for (int k = 0; k < 3; k++) {
        double s = ct_median(theirs[k], c->repeat);

        if (!has[k]) continue;
        printf("   %s %8.3f ms %6.1f: %.3f", rival[k], s * 1e3, 1e-9 * flop / s, s / t);
        c->sum.product[k] *= s / t, c->sum.count[k]++;
        if (k < 2) release_peer(&p[k]);
    }
    printf("\n");
    fflush(stdout);
    ct_mem_release(a.work);
}

static int64_t floats(int64_t n, int64_t c, int64_t s)
{
    int64_t b = ct_simd_block();

    return n * ((c + b - 1) / b) * b * s;
}

static void bench(const char *name, ct_conv_desc d, const char *passes, contest *c)
{
    ct_conv_args a = { .beta = 0.0f };

    d.device = CT_DEVICE_CPU;
    d.n_thread = omp_get_max_threads();
    d.w = d.h, d.kw = d.kh, d.sw = d.sh, d.pw = d.ph, d.dh = d.dw = 1;
    d.oh = d.ow = ct_conv_out(d.h, d.kh, d.sh, d.ph, 1);
    d.winograd = 4;
    d.y_block = ct_simd_block();
    d.x_block = (d.c > 3) ? d.y_block : 0;
    a.x = values(floats(d.n, d.c, d.h * d.w)), a.dx = values(floats(d.n, d.c, d.h * d.w));
    a.y = values(floats(d.n, d.m, d.oh * d.ow)), a.dy = values(floats(d.n, d.m, d.oh * d.ow));
    a.weight = values(d.m * d.c / d.group * d.kh * d.kh);
    a.dweight = values(d.m * d.c / d.group * d.kh * d.kh);
    a.bias = values(d.m);
    for (const char *pass = passes; *pass != '\0'; pass++) {
        if ((*pass != 'd') || (d.c > 3)) compare(name, &d, *pass, a, c);
    }
    ct_mem_release((void *)a.x), ct_mem_release(a.dx), ct_mem_release(a.y);
    ct_mem_release((void *)a.dy), ct_mem_release((void *)a.weight);
    ct_mem_release(a.dweight), ct_mem_release((void *)a.bias);
}

static ct_conv_desc read_shape(const char *text)
{
    long long v[6] = { 0 };

    if (sscanf(text, "%lld,%lld,%lld,%lld,%lld,%lld", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5]) !=
        6) {
        fprintf(stderr, "%s: not channels,rows,outputs,kernel,stride,pad\n", text);
        exit(2);
    }
    return (ct_conv_desc){
        .group = 1, .c = v[0], .h = v[1], .m = v[2], .kh = v[3], .sh = v[4], .ph = v[5]
    };
}

int main(int argc, char **argv)
{
    int64_t batch = (argc > 1) ? strtol(argv[1], NULL, 10) : 16;
    const char *part = (argc > 3) ? argv[3] : "", *passes = (argc > 4) ? argv[4] : "fdw";
    contest c = { .repeat = (argc > 2) ? (int)strtol(argv[2], NULL, 10) : 9,
                  .engine = (argc > 5) ? argv[5] : "auto",
                  .other = (argc > 6) ? argv[6] : NULL,
                  .sum = { .product = { 1.0, 1.0, 1.0 } } };

    if ((batch < 1) || (c.repeat < 1) || (c.repeat > MAX_REPEAT)) return 2;
    CHECK(dnnl_engine_create(&engine, dnnl_cpu, 0));
    CHECK(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
    printf("batch %lld, %d threads, median of %d; peak of multiply-adds %.0f GFLOP/s\n",
           (long long)batch, omp_get_max_threads(), c.repeat, 1e-9 * peak());
    if (strchr(part, ',') != NULL) {
        ct_conv_desc d = read_shape(part);

        d.n = batch;
        bench(part, d, passes, &c);
    }
    for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
        if (strstr(shape[i].name, part) == NULL) continue;
        bench(shape[i].name,
              (ct_conv_desc){ .n = batch,
                              .group = shape[i].group,
                              .c = shape[i].c,
                              .h = shape[i].h,
                              .m = shape[i].m,
                              .kh = shape[i].k,
                              .sh = shape[i].s,
                              .ph = shape[i].p },
              passes, &c);
    }
    for (int k = 0; k < 3; k++) {
        if (c.sum.count[k] > 0)
            printf("geometric mean of %d: %.3f of the speed of %s\n", c.sum.count[k],
                   pow(c.sum.product[k], 1.0 / c.sum.count[k]), rival[k]);
    }
    return 0;
}
