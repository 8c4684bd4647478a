#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/conv_case.h"

#include "framework/base/bf16.h"
#include "framework/base/rng.h"
#include "framework/base/simd.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Kept numbers are bf16's where d is: rounded on their way they stay what they are, and the sums
 * are as exact as those of f32. */
static void narrow(int64_t n, float *v)
{
    for (int64_t i = 0; i < n; i++) v[i] = ct_bf16_to_f32(ct_bf16_from_f32(v[i]));
}

static const char *const level_name[] = { "portable", "avx2", "avx512" };

const ct_conv_impl *const *conv_case_table_of(conv_direction dir)
{
    if (dir == CONV_FORWARD) return ct_conv_forward_table;
    return (dir == CONV_DATA) ? ct_conv_backward_data_table : ct_conv_backward_weight_table;
}

/* Lines of a cache are whole, as in a net's memory; no slack: a sanitizer sees what is beyond. */
static float *array(int64_t n)
{
    void *v = NULL;

    assert_int_equal(posix_memalign(&v, 64, (size_t)(n > 0 ? n : 1) * sizeof(float)), 0);
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
    float *v = array(floats(n, c, s, b));

    if (b == 0) b = 1;
    if (full > c) test_random(v, n * full * s, 7, -1.0f, 1.0f);
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

conv_tensors conv_case_make_tensors(const ct_conv_desc *d, bool absolute)
{
    conv_tensors t = { .n_x = d->n * d->c * d->h * d->w,
                       .n_weight = d->m * (d->c / d->group) * d->kh * d->kw,
                       .n_y = d->n * d->m * d->oh * d->ow };
    float *all[5];
    int64_t count[] = { t.n_x, t.n_weight, d->m, t.n_y, t.n_weight };

    for (int k = 0; k < 5; k++) {
        all[k] = array(count[k]);
        test_random(all[k], count[k], (uint64_t)k + 1, -1.0f, 1.0f);
        if (d->bf16) narrow(count[k], all[k]);
        for (int64_t i = 0; absolute && (i < count[k]); i++) all[k][i] = fabsf(all[k][i]);
    }
    t.x = all[0], t.weight = all[1], t.bias = all[2], t.dy = all[3], t.old = all[4];
    return t;
}

void conv_case_release(conv_tensors *t)
{
    free(t->x), free(t->weight), free(t->bias), free(t->dy), free(t->old);
}

int64_t conv_case_count(const conv_tensors *t, conv_direction dir)
{
    if (dir == CONV_FORWARD) return t->n_y;
    return (dir == CONV_DATA) ? t->n_x : t->n_weight;
}

static float *nans(int64_t n)
{
    float *v = array(n);

    for (int64_t i = 0; i < n; i++) v[i] = NAN;
    return v;
}

/* The same numbers in an array of bf16, without slack; v is released. */
static float *stored_bf16(float *v, int64_t n)
{
    float *half = malloc((size_t)(n > 0 ? n : 1) * sizeof(ct_bf16));

    assert_non_null(half);
    for (int64_t i = 0; i < n; i++) ct_num_put(half, true, i, v[i]);
    free(v);
    return half;
}

static float *stored_f32(float *half, int64_t n)
{
    float *v = malloc((size_t)(n > 0 ? n : 1) * sizeof(float));

    assert_non_null(v);
    for (int64_t i = 0; i < n; i++) v[i] = ct_num_get(half, true, i);
    free(half);
    return v;
}

/* The result in plain order; the caller's. */
float *conv_case_run(const ct_conv_impl *impl, const ct_conv_desc *d, conv_direction dir,
                     const conv_tensors *t)
{
    int64_t in = d->h * d->w, out = d->oh * d->ow;
    size_t work = ct_conv_workspace(impl, d);
    float *x = block(t->x, d->n, d->c, in, d->x_block);
    float *dy = block(t->dy, d->n, d->m, out, d->y_block);
    float *y = nans(floats(d->n, d->m, out, d->y_block));
    float *dx = nans(floats(d->n, d->c, in, d->x_block));
    int64_t n_x = floats(d->n, d->c, in, d->x_block), n_y = floats(d->n, d->m, out, d->y_block);
    float *result = array(conv_case_count(t, dir));
    ct_exec ex = { .dev = ct_device_cpu() };
    ct_conv_args a = { .weight = t->weight, .bias = t->bias, .beta = 0.5f };

    if (d->x_bf16) x = stored_bf16(x, n_x), dx = stored_bf16(dx, n_x);
    if (d->y_bf16) y = stored_bf16(y, n_y), dy = stored_bf16(dy, n_y);
    a.x = x;
    a.work = aligned_alloc(64, (work + 63) / 64 * 64 + 64);
    memset(a.work, 0xFF, work);
    if (dir == CONV_FORWARD) a.y = y;
    if (dir != CONV_FORWARD) a.dy = dy;
    if (dir == CONV_DATA) a.dx = dx;
    if (dir == CONV_WEIGHT) {
        a.dweight = result;
        memcpy(result, t->old, (size_t)t->n_weight * sizeof(float));
    }
    assert_int_equal(impl->run(d, &ex, &a), CT_OK);
    if (d->x_bf16) dx = stored_f32(dx, n_x);
    if (d->y_bf16) y = stored_f32(y, n_y);
    if (dir == CONV_FORWARD) unblock(y, d->n, d->m, out, d->y_block, result);
    if (dir == CONV_DATA) unblock(dx, d->n, d->c, in, d->x_block, result);
    free(x), free(dy), free(y), free(dx), free(a.work);
    return result;
}

ct_conv_desc conv_case_plain(const ct_conv_desc *d)
{
    ct_conv_desc p = *d;

    p.x_block = p.y_block = 0;
    p.x_bf16 = p.y_bf16 = false;
    return p;
}

static void describe(const ct_conv_desc *d, conv_direction dir, char text[256])
{
    snprintf(text, 256,
             "%s direction %d: n %d group %d c %d h %d w %d m %d kernel %d x %d stride %d x %d pad "
             "%d x %d dilation %d x %d blocks %d %d%s",
             level_name[ct_simd_pick()], (int)dir, (int)d->n, (int)d->group, (int)d->c, (int)d->h,
             (int)d->w, (int)d->m, (int)d->kh, (int)d->kw, (int)d->sh, (int)d->sw, (int)d->ph,
             (int)d->pw, (int)d->dh, (int)d->dw, d->x_block, d->y_block,
             d->bf16 ? (ct_simd_has_bf16() ? ", pairs" : ", rounded") : "");
}

int64_t conv_case_between(conv_draw *r, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(ct_rng_uniform_at(11, r->at++) * (float)(hi - lo + 1));
}

int64_t conv_case_one_of(conv_draw *r, const int64_t *choice, int64_t n)
{
    return choice[conv_case_between(r, 0, n - 1)];
}

bool conv_case_complete(ct_conv_desc *d)
{
    d->device = CT_DEVICE_CPU;
    d->n_thread = 1;
    d->oh = ct_conv_out(d->h, d->kh, d->sh, d->ph, d->dh);
    d->ow = ct_conv_out(d->w, d->kw, d->sw, d->pw, d->dw);
    return (d->oh > 0) && (d->ow > 0);
}

void conv_case_each_level(void (*work)(void))
{
    unsetenv("CORTADO_SIMD");
    for (int level = (int)ct_simd_pick(); level >= 0; level--) {
        setenv("CORTADO_SIMD", level_name[level], 1);
        assert_int_equal(ct_simd_pick(), level);
        work();
    }
    unsetenv("CORTADO_SIMD");
}

void conv_case_each_bf16(void (*work)(void))
{
    if (ct_simd_has_bf16()) work();
    conv_case_each_level(work);
}

/* With x, y or both stored in bf16, which has all numbers of t: `want`, the result in f32, rounded
 * once, bit by bit; weight gradients as they are. */
static int compare_stored(const ct_conv_impl *impl, ct_conv_desc d, conv_direction dir,
                          const conv_tensors *t, const float *want, const char *text)
{
    int n = 0;

    for (int stored = 1; stored < 4; stored++) {
        bool rounded;
        float *got;

        d.x_bf16 = (stored & 1) != 0, d.y_bf16 = (stored & 2) != 0;
        if (!impl->supports(&d)) continue;
        n++;
        rounded = (dir == CONV_FORWARD) ? d.y_bf16 : (dir == CONV_DATA) && d.x_bf16;
        got = conv_case_run(impl, &d, dir, t);
        for (int64_t i = 0; i < conv_case_count(t, dir); i++) {
            float value = rounded ? ct_bf16_to_f32(ct_bf16_from_f32(want[i])) : want[i];

            if (got[i] != value)
                fail_msg("%s, stored %d: element %lld is %.9g, not %.9g", text, stored,
                         (long long)i, got[i], value);
        }
        free(got);
    }
    return n;
}

/* What the reference makes of a case, and how far from it is allowed: made once, since neither
 * depends on the instruction set or the layout of an engine. */
typedef struct answer {
    ct_conv_desc d; /* in plain order */
    conv_direction dir;
    conv_limits limits;
    float *want;
    double *limit;
    struct answer *next;
} answer;

static const answer *answer_of(const ct_conv_desc *d, conv_direction dir, const conv_tensors *t,
                               conv_limits limits)
{
    static answer *all;
    ct_conv_desc p = conv_case_plain(d);
    answer *q = all;

    while ((q != NULL) &&
           ((memcmp(&q->d, &p, sizeof(p)) != 0) || (q->dir != dir) || (q->limits != limits)))
        q = q->next;
    if (q != NULL) return q;
    q = malloc(sizeof(*q));
    assert_non_null(q);
    *q = (answer){ .dir = dir, .limits = limits, .next = all };
    memcpy(&q->d, &p, sizeof(p)); /* with what is between its members */
    q->want = conv_case_run(ct_conv_find(conv_case_table_of(dir), &p, "ref"), &p, dir, t);
    q->limit = limits(d, dir);
    all = q;
    return q;
}

bool conv_case_compare(ct_conv_desc d, conv_direction dir, const char *engine, conv_limits limits)
{
    const ct_conv_impl *impl = ct_conv_find(conv_case_table_of(dir), &d, engine);
    const int threads[] = { 1, 3, 24 }; /* the last: more than most shapes have tasks for */
    const answer *right;
    conv_tensors t;
    float *first = NULL;
    int64_t n;
    char text[256];

    if (impl == NULL) return false;
    describe(&d, dir, text);
    t = conv_case_make_tensors(&d, false);
    n = conv_case_count(&t, dir);
    right = answer_of(&d, dir, &t, limits);
    for (size_t k = 0; k < sizeof(threads) / sizeof(threads[0]); k++) {
        float *got;

        d.n_thread = threads[k];
        got = conv_case_run(impl, &d, dir, &t);
        for (int64_t i = 0; i < n; i++) {
            if (!(fabs((double)got[i] - right->want[i]) <= right->limit[i]))
                fail_msg("%s %s: element %lld is %.9g, not %.9g within %g", engine, text,
                         (long long)i, got[i], right->want[i], right->limit[i]);
        }
        if ((first != NULL) && (memcmp(first, got, (size_t)n * sizeof(float)) != 0))
            fail_msg("%s %s: other bits with %d threads", engine, text, d.n_thread);
        if (first != NULL) free(got);
        if (first == NULL) first = got;
    }
    d.n_thread = 3;
    if (d.bf16 && (compare_stored(impl, d, dir, &t, first, text) == 0))
        assert_true(((d.c == d.group) && (d.group > 1)) || ((d.x_block == 0) && (d.y_block == 0)));
    free(first);
    conv_case_release(&t);
    return true;
}

ct_conv_desc conv_case_draw(conv_draw *r, int64_t b, int n_tap, bool bf16)
{
    static const int64_t channel[] = { 1, 3, 7, 8, 13, 16, 17, 24, 31, 32, 40, 53 };
    static const int64_t length[] = { 1, 2, 3, 5, 7, 11, 13, 14, 15, 17, 28, 31 };
    static const int64_t one[] = { 1, 1, 1, 2, 2, 3, 5, 7 };
    ct_conv_desc d;

    do {
        d = (ct_conv_desc){ .n = conv_case_between(r, 1, 3),
                            .group = 1,
                            .c = conv_case_one_of(r, channel, 12),
                            .h = conv_case_one_of(r, length, 12),
                            .w = conv_case_one_of(r, length, 12),
                            .m = conv_case_one_of(r, channel, 12),
                            .kh = conv_case_one_of(r, one, n_tap),
                            .kw = conv_case_one_of(r, one, n_tap),
                            .sh = conv_case_between(r, 1, 3),
                            .sw = conv_case_between(r, 1, 3),
                            .dh = conv_case_between(r, 1, 2),
                            .dw = conv_case_between(r, 1, 2),
                            .bf16 = bf16 };
        if (conv_case_between(r, 0, 2) == 0) d.sh = d.sw = 1; /* the usual ones more often */
        if (conv_case_between(r, 0, 1) == 0) d.dh = d.dw = 1;
        d.ph = conv_case_between(r, 0, d.kh);
        d.pw = conv_case_between(r, 0, d.kw);
        if (conv_case_between(r, 0, 4) == 0) {
            d.group = conv_case_between(r, 2, 3);
            d.c = d.group * b * conv_case_between(r, 1, 2);
            d.m = d.group * b * conv_case_between(r, 1, 3);
        }
    } while (!conv_case_complete(&d));
    d.x_block = d.y_block = (int)b;
    return d;
}

static double roundings(const ct_conv_desc *d, conv_direction dir)
{
    double taps = (double)(d->kh * d->kw);

    if (dir == CONV_FORWARD) return taps * (double)(d->c / d->group) + 4.0;
    if (dir == CONV_DATA) return taps * (double)(d->m / d->group) + 4.0;
    return (double)(d->n * d->oh * d->ow) + 6.0;
}

double *conv_case_sum_limits(const ct_conv_desc *d, conv_direction dir)
{
    ct_conv_desc p = conv_case_plain(d);
    conv_tensors absolute = conv_case_make_tensors(d, true);
    float *size =
        conv_case_run(ct_conv_find(conv_case_table_of(dir), &p, "ref"), &p, dir, &absolute);
    int64_t n = conv_case_count(&absolute, dir);
    double *limit = malloc((size_t)n * sizeof(double));

    assert_non_null(limit);
    for (int64_t i = 0; i < n; i++) limit[i] = roundings(d, dir) * size[i] * 0x1p-24;
    free(size);
    conv_case_release(&absolute);
    return limit;
}
