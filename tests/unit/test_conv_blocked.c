/* Convolution on blocked layouts, with every instruction set of this machine: generated odd shapes
 * against the definition, forward and both gradients, and the same bits for any number of threads.
 * Channels that fill up a block hold numbers, which must not reach anything real. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include "framework/base/rng.h"
#include "framework/base/simd.h"
#include "layers/engine/conv/conv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { FORWARD, DATA, WEIGHT, N_DIRECTION } direction;

static const char *const level_name[] = { "portable", "avx2", "avx512" };

static const ct_conv_impl *const *table_of(direction dir)
{
    if (dir == FORWARD) return ct_conv_forward_table;
    return (dir == DATA) ? ct_conv_backward_data_table : ct_conv_backward_weight_table;
}

/* No slack: a sanitizer sees what is beyond. */
static float *array(int64_t n, uint64_t seed)
{
    float *v = malloc((size_t)(n > 0 ? n : 1) * sizeof(float));

    assert_non_null(v);
    test_random(v, n, seed, -1.0f, 1.0f);
    return v;
}

/* Plain or blocked by b = 0 or more; what fills up blocks is 1000 and some. */
static int64_t floats(int64_t n, int64_t c, int64_t s, int64_t b)
{
    return (b == 0) ? n * c * s : n * ((c + b - 1) / b) * b * s;
}

static float *block(const float *plain, int64_t n, int64_t c, int64_t s, int64_t b)
{
    int64_t full = (b == 0) ? c : (c + b - 1) / b * b;
    float *v = array(floats(n, c, s, b), 7);

    if (b == 0) b = 1;
    for (int64_t i = 0; i < n * full * s; i++) {
        int64_t lane = i % b, place = i / b % s, channel = i / b / s % (full / b) * b + lane;

        v[i] = (channel < c) ? plain[(i / full / s * c + channel) * s + place] : 1000.0f + v[i];
    }
    return v;
}

static void unblock(const float *v, int64_t n, int64_t c, int64_t s, int64_t b, float *plain)
{
    int64_t blocks = (b == 0) ? c : (c + b - 1) / b;

    if (b == 0) b = 1;
    for (int64_t i = 0; i < n * c * s; i++) {
        int64_t image = i / s / c, channel = i / s % c;

        plain[i] = v[((image * blocks + channel / b) * s + i % s) * b + channel % b];
        assert_true(isfinite(plain[i]));
    }
}

typedef struct tensors {
    float *x, *weight, *bias, *dy, *old;
    int64_t n_x, n_weight, n_y;
} tensors;

static tensors make_tensors(const ct_conv_desc *d, bool absolute)
{
    tensors t = { .n_x = d->n * d->c * d->h * d->w,
                  .n_weight = d->m * (d->c / d->group) * d->kh * d->kw,
                  .n_y = d->n * d->m * d->oh * d->ow };
    float *all[5];
    int64_t count[] = { t.n_x, t.n_weight, d->m, t.n_y, t.n_weight };

    for (int k = 0; k < 5; k++) {
        all[k] = array(count[k], (uint64_t)k + 1);
        for (int64_t i = 0; absolute && (i < count[k]); i++) all[k][i] = fabsf(all[k][i]);
    }
    t.x = all[0], t.weight = all[1], t.bias = all[2], t.dy = all[3], t.old = all[4];
    return t;
}

static void release(tensors *t)
{
    free(t->x), free(t->weight), free(t->bias), free(t->dy), free(t->old);
}

static float *nans(int64_t n)
{
    float *v = array(n, 1);

    for (int64_t i = 0; i < n; i++) v[i] = NAN;
    return v;
}

/* The result in plain order; the caller's. */
static float *run(const ct_conv_impl *impl, const ct_conv_desc *d, direction dir, const tensors *t)
{
    int64_t in = d->h * d->w, out = d->oh * d->ow;
    size_t work = ct_conv_workspace(impl, d);
    float *x = block(t->x, d->n, d->c, in, d->x_block);
    float *dy = block(t->dy, d->n, d->m, out, d->y_block);
    float *y = nans(floats(d->n, d->m, out, d->y_block));
    float *dx = nans(floats(d->n, d->c, in, d->x_block));
    float *result = array((dir == FORWARD) ? t->n_y : (dir == DATA) ? t->n_x : t->n_weight, 9);
    ct_exec ex = { .dev = ct_device_cpu() };
    ct_conv_args a = { .x = x, .weight = t->weight, .bias = t->bias, .beta = 0.5f };

    a.work = aligned_alloc(64, (work + 63) / 64 * 64 + 64);
    memset(a.work, 0xFF, work);
    if (dir == FORWARD) a.y = y;
    if (dir != FORWARD) a.dy = dy;
    if (dir == DATA) a.dx = dx;
    if (dir == WEIGHT) {
        a.dweight = result;
        memcpy(result, t->old, (size_t)t->n_weight * sizeof(float));
    }
    assert_int_equal(impl->run(d, &ex, &a), CT_OK);
    if (dir == FORWARD) unblock(y, d->n, d->m, out, d->y_block, result);
    if (dir == DATA) unblock(dx, d->n, d->c, in, d->x_block, result);
    free(x), free(dy), free(y), free(dx), free(a.work);
    return result;
}

static ct_conv_desc plain(const ct_conv_desc *d)
{
    ct_conv_desc p = *d;

    p.x_block = p.y_block = 0;
    return p;
}

/* k rounded products and sums: off by at most k eps times the sum of all absolute values (Higham
 * 3.1), to first order; the reference, summed in double, by the last rounding. */
static double roundings(const ct_conv_desc *d, direction dir)
{
    double taps = (double)(d->kh * d->kw);

    if (dir == FORWARD) return taps * (double)(d->c / d->group) + 4.0;
    if (dir == DATA) return taps * (double)(d->m / d->group) + 4.0;
    return (double)(d->n * d->oh * d->ow) + 6.0;
}

static void describe(const ct_conv_desc *d, direction dir, char text[256])
{
    snprintf(text, 256,
             "%s direction %d: n %d group %d c %d h %d w %d m %d kernel %d x %d stride %d x %d pad "
             "%d x %d dilation %d x %d blocks %d %d",
             level_name[ct_simd_pick()], (int)dir, (int)d->n, (int)d->group, (int)d->c, (int)d->h,
             (int)d->w, (int)d->m, (int)d->kh, (int)d->kw, (int)d->sh, (int)d->sw, (int)d->ph,
             (int)d->pw, (int)d->dh, (int)d->dw, d->x_block, d->y_block);
}

/* Returns whether the engine takes it. */
static bool compare(ct_conv_desc d, direction dir)
{
    const ct_conv_impl *impl = ct_conv_find(table_of(dir), &d, "blocked");
    ct_conv_desc p = plain(&d);
    const ct_conv_impl *ref = ct_conv_find(table_of(dir), &p, "ref");
    tensors t, absolute;
    float *want, *size, *first = NULL;
    int64_t n;
    char text[256];

    if (impl == NULL) return false;
    describe(&d, dir, text);
    t = make_tensors(&d, false);
    absolute = make_tensors(&d, true);
    n = (dir == FORWARD) ? t.n_y : (dir == DATA) ? t.n_x : t.n_weight;
    want = run(ref, &p, dir, &t);
    size = run(ref, &p, dir, &absolute);
    for (d.n_thread = 1; d.n_thread <= 5; d.n_thread += 2) {
        float *got = run(impl, &d, dir, &t);

        for (int64_t i = 0; i < n; i++) {
            if (!(fabs((double)got[i] - want[i]) <= roundings(&d, dir) * size[i] * 0x1p-24))
                fail_msg("%s: element %lld is %.9g, not %.9g", text, (long long)i, got[i], want[i]);
        }
        if ((first != NULL) && (memcmp(first, got, (size_t)n * sizeof(float)) != 0))
            fail_msg("%s: other bits with %d threads", text, d.n_thread);
        if (first != NULL) free(got);
        if (first == NULL) first = got;
    }
    free(first), free(want), free(size);
    release(&t), release(&absolute);
    return true;
}

typedef struct draw {
    uint64_t at;
} draw;

static int64_t between(draw *r, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(ct_rng_uniform_at(11, r->at++) * (float)(hi - lo + 1));
}

static int64_t one_of(draw *r, const int64_t *choice, int64_t n)
{
    return choice[between(r, 0, n - 1)];
}

static bool complete(ct_conv_desc *d)
{
    d->device = CT_DEVICE_CPU;
    d->n_thread = 1;
    d->oh = ct_conv_out(d->h, d->kh, d->sh, d->ph, d->dh);
    d->ow = ct_conv_out(d->w, d->kw, d->sw, d->pw, d->dw);
    return (d->oh > 0) && (d->ow > 0);
}

/* Primes, ones, and sizes about those of blocks and tiles. */
static ct_conv_desc draw_shape(draw *r, int64_t b)
{
    static const int64_t channel[] = { 1, 3, 7, 8, 13, 16, 17, 24, 31, 32, 40, 53 };
    static const int64_t length[] = { 1, 2, 3, 5, 7, 11, 13, 14, 15, 17, 28, 31 };
    static const int64_t one[] = { 1, 1, 1, 2, 2, 3, 5 };
    ct_conv_desc d;

    do {
        d = (ct_conv_desc){ .n = between(r, 1, 3),
                            .group = 1,
                            .c = one_of(r, channel, 12),
                            .h = one_of(r, length, 12),
                            .w = one_of(r, length, 12),
                            .m = one_of(r, channel, 12),
                            .kh = one_of(r, one, 7),
                            .kw = one_of(r, one, 7),
                            .sh = between(r, 1, 3),
                            .sw = between(r, 1, 3),
                            .dh = between(r, 1, 2),
                            .dw = between(r, 1, 2) };
        if (between(r, 0, 2) == 0) d.sh = d.sw = 1; /* the usual ones more often */
        if (between(r, 0, 1) == 0) d.dh = d.dw = 1;
        d.ph = between(r, 0, d.kh);
        d.pw = between(r, 0, d.kw);
        if (between(r, 0, 4) == 0) {
            d.group = between(r, 2, 3);
            d.c = d.group * b * between(r, 1, 2);
            d.m = d.group * b * between(r, 1, 3);
        }
    } while (!complete(&d));
    d.x_block = d.y_block = (int)b;
    return d;
}

/* As `work` for each instruction set of this machine. */
static void each_level(void (*work)(void))
{
    unsetenv("CORTADO_SIMD");
    for (int level = (int)ct_simd_pick(); level >= 0; level--) {
        setenv("CORTADO_SIMD", level_name[level], 1);
        assert_int_equal(ct_simd_pick(), level);
        work();
    }
    unsetenv("CORTADO_SIMD");
}

static void odd_shapes(void)
{
    draw r = { 0 };

    for (int i = 0; i < 60; i++) {
        ct_conv_desc d = draw_shape(&r, ct_simd_block());

        for (direction dir = FORWARD; dir < N_DIRECTION; dir++) assert_true(compare(d, dir));
    }
}

/* First layers: x as it comes, few channels. */
static void first_layers(void)
{
    draw r = { 1000 };
    int64_t b = ct_simd_block();

    for (int i = 0; i < 40; i++) {
        ct_conv_desc d = draw_shape(&r, b);

        d.c = between(&r, 1, 4);
        d.x_block = 0;
        d.kh = between(&r, 1, 7), d.kw = between(&r, 1, 11);
        d.sw = between(&r, 1, 4);
        d.c *= d.group;
        if (!complete(&d)) continue;
        assert_true(compare(d, FORWARD));
        assert_false(compare(d, DATA));
        assert_true(compare(d, WEIGHT));
    }
}

static void test_first_layers(void **state)
{
    (void)state;
    each_level(first_layers);
}

static void depthwise(void)
{
    draw r = { 2000 };

    for (int i = 0; i < 25; i++) {
        ct_conv_desc d = draw_shape(&r, ct_simd_block());

        if (d.c == 1) d.c = 2;
        d.group = d.m = d.c;
        assert_true(complete(&d));
        for (direction dir = FORWARD; dir < N_DIRECTION; dir++) assert_true(compare(d, dir));
    }
}

static void test_depthwise(void **state)
{
    (void)state;
    each_level(depthwise);
}

/* What it leaves to others; and others leave blocked layouts to it. */
static void test_refusals(void **state)
{
    int b = ct_simd_block();
    ct_conv_desc d = { .n = 1,
                       .group = 2,
                       .c = 2 * b + 2,
                       .h = 5,
                       .w = 5,
                       .m = 4 * b,
                       .kh = 3,
                       .kw = 3,
                       .sh = 1,
                       .sw = 1,
                       .dh = 1,
                       .dw = 1,
                       .x_block = b,
                       .y_block = b };

    (void)state;
    assert_true(complete(&d));
    for (direction dir = FORWARD; dir < N_DIRECTION; dir++) {
        assert_null(ct_conv_find(table_of(dir), &d, "auto")); /* groups cut blocks */
        d.c = 2 * b;
        assert_string_equal(ct_conv_find(table_of(dir), &d, "auto")->name, "blocked");
        d.x_block = 0; /* many plain channels */
        assert_null(ct_conv_find(table_of(dir), &d, "auto"));
        d.x_block = d.y_block = 4; /* a block that this machine does not have */
        assert_null(ct_conv_find(table_of(dir), &d, "auto"));
        d.x_block = d.y_block = b, d.c = 2 * b + 2;
    }
}

static void test_odd_shapes(void **state)
{
    (void)state;
    each_level(odd_shapes);
}

/* Kernels as nets have them, whose tiles are whole. */
static void usual_shapes(void)
{
    static const ct_conv_desc shape[] = {
        { .c = 40,
          .h = 28,
          .w = 28,
          .m = 48,
          .kh = 3,
          .kw = 3,
          .sh = 1,
          .sw = 1,
          .ph = 1,
          .pw = 1 },
        { .c = 64,
          .h = 14,
          .w = 14,
          .m = 64,
          .kh = 3,
          .kw = 3,
          .sh = 2,
          .sw = 2,
          .ph = 1,
          .pw = 1 },
        { .c = 32, .h = 7, .w = 7, .m = 64, .kh = 3, .kw = 3, .sh = 1, .sw = 1, .ph = 1, .pw = 1 },
        { .c = 33,
          .h = 27,
          .w = 27,
          .m = 80,
          .kh = 5,
          .kw = 5,
          .sh = 1,
          .sw = 1,
          .ph = 2,
          .pw = 2 },
        { .c = 272, .h = 14, .w = 14, .m = 32, .kh = 1, .kw = 1, .sh = 1, .sw = 1 },
        { .c = 64, .h = 28, .w = 28, .m = 72, .kh = 1, .kw = 1, .sh = 2, .sw = 2 },
        { .c = 32,
          .h = 40,
          .w = 40,
          .m = 16,
          .kh = 7,
          .kw = 7,
          .sh = 1,
          .sw = 1,
          .ph = 3,
          .pw = 3 },
    };

    for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
        ct_conv_desc d = shape[i];

        d.n = (i == 0) ? 0 : 2; /* no image is a case, too */
        d.group = d.dh = d.dw = 1;
        d.x_block = d.y_block = ct_simd_block();
        assert_true(complete(&d));
        for (direction dir = FORWARD; dir < N_DIRECTION; dir++) assert_true(compare(d, dir));
    }
}

static void test_usual_shapes(void **state)
{
    (void)state;
    each_level(usual_shapes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_odd_shapes),   cmocka_unit_test(test_first_layers),
        cmocka_unit_test(test_depthwise),    cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_usual_shapes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
