/* Winograd's convolution, with every instruction set of this machine: generated odd shapes against
 * the definition, forward and both gradients, within the bound that winograd.h states, computed
 * here from the points alone; the same bits for any number of threads; who gets it, and who not. */
#include "tests/test.h"
#include "tests/conv_case.h"

#include "framework/base/simd.h"
#include "layers/engine/conv/winograd.h"

#include <math.h>
#include <stdlib.h>

enum { MAX = CT_WINO_MAX };

/* ---- the maps, as the Toom-Cook construction gives them */

typedef struct maps {
    int m, r, n;
    double a[MAX][MAX], b[MAX][MAX], g[MAX][MAX]; /* |A^T|, |B^T|, |G| */
} maps;

/* coefficient[k] of the product of x - p[i], but i = left_out */
static void multiply_out(const double *p, int n, int left_out, double *coefficient)
{
    for (int k = 0; k < MAX; k++) coefficient[k] = (k == 0) ? 1.0 : 0.0;
    for (int i = 0; i < n; i++) {
        if (i == left_out) continue;
        for (int k = MAX - 1; k >= 0; k--)
            coefficient[k] = ((k > 0) ? coefficient[k - 1] : 0.0) - p[i] * coefficient[k];
    }
}

static maps make_maps(const ct_wino_maps *kind)
{
    static const double point[2][5] = { { 0, 1, -1 }, { 0, 0.625, -0.625, 1.5, -1.5 } };
    int m = kind->m, r = kind->taps;
    const double *p = point[m + r - 1 == 6];
    maps t = { .m = m, .r = r, .n = m + r - 1 };

    for (int i = 0; i < t.n; i++) {
        bool infinite = (i == t.n - 1);
        double size = 1.0;

        multiply_out(p, t.n - 1, infinite ? -1 : i, t.b[i]);
        for (int k = 0; !infinite && (k < t.n - 1); k++) size *= (k == i) ? 1.0 : p[i] - p[k];
        for (int k = 0; k < r; k++) t.g[i][k] = infinite ? (k == r - 1) : pow(p[i], k) / size;
        for (int k = 0; k < m; k++) t.a[k][i] = infinite ? (k == m - 1) : pow(p[i], k);
    }
    return t;
}

/* y[i] = sum of q[i][k] d[k][l] q[j][l]; q[i][k] or, transposed, q[k][i] */
static void both(int rows, int n, double (*q)[MAX], bool transposed, double (*d)[MAX],
                 double (*y)[MAX])
{
    double half[MAX][MAX] = { { 0.0 } };

    for (int i = 0; i < rows; i++) {
        for (int l = 0; l < n; l++) {
            for (int k = 0; k < n; k++) half[i][l] += (transposed ? q[k][i] : q[i][k]) * d[k][l];
        }
    }
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < rows; j++) {
            y[i][j] = 0.0;
            for (int l = 0; l < n; l++) y[i][j] += (transposed ? q[l][j] : q[j][l]) * half[i][l];
        }
    }
}

static void absolute_maps(maps *t)
{
    for (int i = 0; i < MAX * MAX; i++) {
        (&t->a[0][0])[i] = fabs((&t->a[0][0])[i]);
        (&t->b[0][0])[i] = fabs((&t->b[0][0])[i]);
        (&t->g[0][0])[i] = fabs((&t->g[0][0])[i]);
    }
}

/* n x n of a plane from (row, col) on, zeros outside */
static void cut(const float *plane, int64_t h, int64_t w, int64_t row, int64_t col, int n,
                double (*d)[MAX])
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            bool inside = (row + i >= 0) && (row + i < h) && (col + j >= 0) && (col + j < w);

            d[i][j] = inside ? plane[(row + i) * w + col + j] : 0.0;
        }
    }
}

/* ---- the bounds: the same computation with absolute values and maps */

/* Planes x to planes y, as ct_wino_sum; y[][] = the sum of absolute values. */
typedef struct sums {
    int64_t n, group, in, out, h, w, oh, ow, row, col, w_out, w_in, w_group;
    bool turned;
    const float *x, *weight, *bias;
} sums;

typedef double square[MAX][MAX];

/* Of each kernel [group][out][in] what its map makes of it; the caller frees it. */
static square *bound_kernels(const sums *s, const maps *t)
{
    square *u = malloc((size_t)(s->group * s->out * s->in) * sizeof(*u));
    int taps = t->r * t->r;

    assert_non_null(u);
    for (int64_t k = 0; k < s->group * s->out * s->in; k++) {
        int64_t g = k / s->in / s->out, o = k / s->in % s->out, c = k % s->in;
        const float *w = s->weight + g * s->w_group + o * s->w_out + c * s->w_in;
        square d;

        for (int i = 0; i < taps; i++) d[i / t->r][i % t->r] = w[s->turned ? taps - 1 - i : i];
        both(t->n, t->r, (double(*)[MAX])t->g, false, d, u[k]);
    }
    return u;
}

/* The tile from (i, j) on of one plane y: `u` of its kernels, `v` of its inputs. */
static void bound_tile(const sums *s, const maps *t, const square *u, const square *v,
                       int64_t plane, int64_t i, int64_t j, double *y)
{
    int64_t at = plane % (s->group * s->out);
    square d, z = { { 0.0 } };

    for (int64_t c = 0; c < s->in; c++) {
        for (int k = 0; k < t->n * t->n; k++)
            z[k / t->n][k % t->n] +=
                u[at * s->in + c][k / t->n][k % t->n] * v[c][k / t->n][k % t->n];
    }
    both(t->m, t->n, (double(*)[MAX])t->a, false, z, d);
    for (int64_t k = 0; k < t->m * t->m; k++) {
        int64_t row = i + k / t->m, col = j + k % t->m;

        if ((row >= s->oh) || (col >= s->ow)) continue;
        y[(plane * s->oh + row) * s->ow + col] = d[k / t->m][k % t->m];
        if (s->bias != NULL) y[(plane * s->oh + row) * s->ow + col] += s->bias[at];
    }
}

/* A row of tiles, from row i on, of all planes that one image and group (`of`) goes to. */
static void bound_row(const sums *s, const maps *t, const square *u, int64_t of, int64_t i,
                      double *y)
{
    square d, *v = malloc((size_t)s->in * sizeof(*v));

    for (int64_t j = 0; j < s->ow; j += t->m) {
        for (int64_t c = 0; c < s->in; c++) {
            cut(s->x + (of * s->in + c) * s->h * s->w, s->h, s->w, i + s->row, j + s->col, t->n, d);
            both(t->n, t->n, (double(*)[MAX])t->b, false, d, v[c]);
        }
        for (int64_t o = 0; o < s->out; o++) bound_tile(s, t, u, v, of * s->out + o, i, j, y);
    }
    free(v);
}

/* dx of a plane, as the forward pass transposed: tiles of dy meet in it. */
static void bound_adjoint(const ct_conv_desc *d, const maps *t, const conv_tensors *a,
                          int64_t image, int64_t c, double *y)
{
    int64_t in = d->c / d->group, out = d->m / d->group, g = c / in;
    int taps = t->r * t->r;
    double p[MAX][MAX], v[MAX][MAX], u[MAX][MAX];

    memset(y, 0, (size_t)(d->h * d->w) * sizeof(*y));
    for (int64_t i = 0; i < d->oh; i += t->m) {
        for (int64_t j = 0; j < d->ow; j += t->m) {
            double z[MAX][MAX] = { { 0.0 } };

            for (int64_t m = g * out; m < (g + 1) * out; m++) {
                const float *w = a->weight + (m * in + c % in) * taps;

                for (int k = 0; k < taps; k++) p[k / t->r][k % t->r] = w[k];
                both(t->n, t->r, (double(*)[MAX])t->g, false, p, u);
                cut(a->dy + (image * d->m + m) * d->oh * d->ow, d->oh, d->ow, i, j, t->m, p);
                both(t->n, t->m, (double(*)[MAX])t->a, true, p, v);
                for (int k = 0; k < t->n * t->n; k++)
                    z[k / t->n][k % t->n] += u[k / t->n][k % t->n] * v[k / t->n][k % t->n];
            }
            both(t->n, t->n, (double(*)[MAX])t->b, true, z, p);
            for (int64_t k = 0; k < t->n * t->n; k++) {
                int64_t row = i - d->ph + k / t->n, col = j - d->pw + k % t->n;

                if ((row >= 0) && (row < d->h) && (col >= 0) && (col < d->w))
                    y[row * d->w + col] += p[k / t->n][k % t->n];
            }
        }
    }
}

static void bound_weight(const ct_conv_desc *d, const maps *t, const conv_tensors *a, int64_t m,
                         int64_t c, double *y)
{
    int64_t c_all = m / (d->m / d->group) * (d->c / d->group) + c;
    double p[MAX][MAX], v[MAX][MAX], u[MAX][MAX], z[MAX][MAX] = { { 0.0 } };

    for (int64_t n = 0; n < d->n; n++) {
        for (int64_t i = 0; i < d->oh; i += t->m) {
            for (int64_t j = 0; j < d->ow; j += t->m) {
                cut(a->x + (n * d->c + c_all) * d->h * d->w, d->h, d->w, i - d->ph, j - d->pw, t->n,
                    p);
                both(t->n, t->n, (double(*)[MAX])t->b, false, p, v);
                cut(a->dy + (n * d->m + m) * d->oh * d->ow, d->oh, d->ow, i, j, t->m, p);
                both(t->n, t->m, (double(*)[MAX])t->a, true, p, u);
                for (int k = 0; k < t->n * t->n; k++)
                    z[k / t->n][k % t->n] += u[k / t->n][k % t->n] * v[k / t->n][k % t->n];
            }
        }
    }
    both(t->r, t->n, (double(*)[MAX])t->g, true, z, p);
    for (int k = 0; k < t->r * t->r; k++) {
        int64_t at = (m * (d->c / d->group) + c) * t->r * t->r + k;

        y[at] = p[k / t->r][k % t->r] + 0.5 * a->old[at]; /* beta */
    }
}

static sums forward_sums(const ct_conv_desc *d, const conv_tensors *a)
{
    int64_t in = d->c / d->group, out = d->m / d->group, taps = d->kh * d->kw;

    return (sums){ .n = d->n,
                   .group = d->group,
                   .in = in,
                   .out = out,
                   .h = d->h,
                   .w = d->w,
                   .oh = d->oh,
                   .ow = d->ow,
                   .row = -d->ph,
                   .col = -d->pw,
                   .w_out = in * taps,
                   .w_in = taps,
                   .w_group = out * in * taps,
                   .x = a->x,
                   .weight = a->weight,
                   .bias = a->bias };
}

static sums data_sums(const ct_conv_desc *d, const conv_tensors *a)
{
    int64_t in = d->c / d->group, out = d->m / d->group, taps = d->kh * d->kw;

    return (sums){ .n = d->n,
                   .group = d->group,
                   .in = out,
                   .out = in,
                   .h = d->oh,
                   .w = d->ow,
                   .oh = d->h,
                   .ow = d->w,
                   .row = d->ph - (d->kh - 1),
                   .col = d->pw - (d->kw - 1),
                   .w_out = taps,
                   .w_in = in * taps,
                   .w_group = out * in * taps,
                   .turned = true,
                   .x = a->dy,
                   .weight = a->weight };
}

static double *limits(const ct_conv_desc *d, conv_direction dir)
{
    conv_tensors a = conv_case_make_tensors(d, true);
    maps t = make_maps(ct_wino_maps_of(d));
    int64_t n = (dir == CONV_FORWARD) ? a.n_y : (dir == CONV_DATA) ? a.n_x : a.n_weight;
    double *limit = malloc((size_t)n * sizeof(double)), roundings, v = d->bf16 ? 0x1p-8 : 0.0;
    sums s = (dir == CONV_DATA) ? data_sums(d, &a) : forward_sums(d, &a);

    assert_non_null(limit);
    absolute_maps(&t);
    if (dir == CONV_WEIGHT) {
        roundings = (double)(d->n * ((d->oh + t.m - 1) / t.m) * ((d->ow + t.m - 1) / t.m));
#pragma omp parallel for schedule(dynamic)
        for (int64_t i = 0; i < d->m * (d->c / d->group); i++)
            bound_weight(d, &t, &a, i / (d->c / d->group), i % (d->c / d->group), limit);
    } else if ((dir == CONV_DATA) && ct_wino_is_adjoint(d)) {
        roundings = (double)s.in + CT_WINO_MEETING;
#pragma omp parallel for schedule(dynamic)
        for (int64_t i = 0; i < d->n * d->c; i++)
            bound_adjoint(d, &t, &a, i / d->c, i % d->c, limit + i * d->h * d->w);
    } else {
        int64_t n_row = (s.oh + t.m - 1) / t.m;
        square *u = bound_kernels(&s, &t);

        roundings = (double)s.in;
#pragma omp parallel for schedule(dynamic)
        for (int64_t k = 0; k < s.n * s.group * n_row; k++)
            bound_row(&s, &t, u, k / n_row, k % n_row * t.m, limit);
        free(u);
    }
    roundings = (1.0 + v) * (1.0 + v) * (roundings + CT_WINO_ROUNDINGS) * 0x1p-24;
    for (int64_t i = 0; i < n; i++) limit[i] *= roundings + (2.0 + v) * v;
    conv_case_release(&a);
    return limit;
}

/* ---- shapes */

static ct_conv_desc shape(int64_t n, int64_t c, int64_t h, int64_t w, int64_t m, int64_t pad)
{
    int b = ct_simd_block();

    return (ct_conv_desc){ .n = n,
                           .group = 1,
                           .c = c,
                           .h = h,
                           .w = w,
                           .m = m,
                           .kh = 3,
                           .kw = 3,
                           .sh = 1,
                           .sw = 1,
                           .ph = pad,
                           .pw = pad,
                           .dh = 1,
                           .dw = 1,
                           .winograd = 4,
                           .x_block = b,
                           .y_block = b };
}

static void check_all(const ct_conv_desc *d)
{
    for (conv_direction dir = CONV_FORWARD; dir < N_CONV_DIRECTION; dir++)
        assert_true(conv_case_compare(*d, dir, "winograd", limits));
}

/* Primes, ones, and sizes about those of blocks and tiles. */
static void odd_shapes_in(bool bf16)
{
    static const int64_t channel[] = { 1, 3, 7, 8, 13, 16, 17, 24, 31, 32, 40, 53 };
    static const int64_t length[] = { 1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 14, 19 };
    conv_draw r = { 0 };

    for (int i = 0; i < 36; i++) {
        int64_t b = ct_simd_block();
        ct_conv_desc d;

        do {
            d = shape(conv_case_between(&r, 1, 3), conv_case_one_of(&r, channel, 12),
                      conv_case_one_of(&r, length, 12), conv_case_one_of(&r, length, 12),
                      conv_case_one_of(&r, channel, 12), 0);
            d.kh = d.kw = (i % 3 == 0) ? 5 : 3;
            d.ph = conv_case_between(&r, 0, 3), d.pw = conv_case_between(&r, 0, 3);
            d.winograd = (d.kh == 5) ? 4 : (int)conv_case_between(&r, 1, 2) * 2;
            d.bf16 = bf16;
            if (conv_case_between(&r, 0, 4) == 0) {
                d.group = conv_case_between(&r, 2, 3);
                d.c = d.group * b, d.m = d.group * b * conv_case_between(&r, 1, 2);
            }
        } while (!conv_case_complete(&d));
        check_all(&d);
    }
}

static void odd_shapes(void)
{
    odd_shapes_in(false);
}

static void odd_shapes_bf16(void)
{
    odd_shapes_in(true);
}

static void test_odd_shapes_bf16(void **state)
{
    (void)state;
    conv_case_each_bf16(odd_shapes_bf16);
}

static void test_odd_shapes(void **state)
{
    (void)state;
    conv_case_each_level(odd_shapes);
}

/* Enough channels and tiles for each way of going through them, several groups of tiles and parts
 * of a sum; and no image. */
static void large_shapes(void)
{
    ct_conv_desc d[] = { shape(1, 20, 41, 43, 40, 1),
                         shape(2, 300, 9, 9, 290, 1),
                         shape(0, 20, 9, 9, 40, 1),
                         shape(1, 512, 5, 4, 256, 1) /* slices */,
                         shape(2, 50, 27, 23, 70, 2),
                         shape(1, 512, 3, 5, 256, 2),
                         shape(16, 5, 12, 12, 18, 0) /* tiles of dy, and in parts */,
                         shape(13, 6, 11, 13, 19, 0) };

    d[4].kh = d[4].kw = d[5].kh = d[5].kw = d[6].kh = d[6].kw = 5;

    for (size_t i = 0; i < 2 * sizeof(d) / sizeof(d[0]); i++) {
        ct_conv_desc *one = &d[i / 2];

        one->bf16 = (i % 2 == 1);
        assert_true(conv_case_complete(one));
        check_all(one);
    }
}

/* How far bf16 moves results, by root mean square, relative to theirs: the limits above are for the
 * worst that can happen. 64 channels, values in [-1, 1]: some 2^-9 for each operand of a plain sum;
 * F2 less than 4 times that, F4 less than 12. */
static void typical_error(void)
{
    static const double most[] = { 0.0028, 4 * 0.0028, 12 * 0.0028 };
    ct_conv_desc d = shape(2, 64, 24, 24, 64, 1);

    for (int i = 0; i < 3 * N_CONV_DIRECTION; i++) {
        conv_direction dir = (conv_direction)(i / 3);
        const ct_conv_impl *impl, *ref;
        ct_conv_desc plain;
        conv_tensors t;
        float *got, *want;
        double error = 0.0, size = 0.0;
        int64_t n;

        d.winograd = (i % 3) * 2;
        d.bf16 = false;
        assert_true(conv_case_complete(&d));
        plain = conv_case_plain(&d);
        t = conv_case_make_tensors(&d, false);
        n = (dir == CONV_FORWARD) ? t.n_y : (dir == CONV_DATA) ? t.n_x : t.n_weight;
        ref = ct_conv_find(conv_case_table_of(dir), &plain, "ref");
        want = conv_case_run(ref, &plain, dir, &t);
        d.bf16 = true;
        impl = ct_conv_find(conv_case_table_of(dir), &d, (i % 3 > 0) ? "winograd" : "blocked");
        got = conv_case_run(impl, &d, dir, &t);
        for (int64_t k = 0; k < n; k++) {
            error += ((double)got[k] - want[k]) * ((double)got[k] - want[k]);
            size += (double)want[k] * want[k];
        }
        print_message("    %s F%d, direction %d: %.2e\n", impl->name, d.winograd, (int)dir,
                      sqrt(error / size));
        assert_true(sqrt(error / size) < most[i % 3]);
        free(got), free(want);
        conv_case_release(&t);
    }
}

static void test_typical_error(void **state)
{
    (void)state;
    typical_error();
}

static void test_large_shapes(void **state)
{
    (void)state;
    conv_case_each_level(large_shapes);
}

static void expect(const ct_conv_desc *d, const char *name)
{
    for (conv_direction dir = CONV_FORWARD; dir < N_CONV_DIRECTION; dir++) {
        const ct_conv_impl *impl = ct_conv_find(conv_case_table_of(dir), d, "auto");

        assert_non_null(impl);
        assert_string_equal(impl->name, name);
    }
}

static void test_choice(void **state)
{
    ct_conv_desc d = shape(16, 128, 28, 28, 128, 1);

    (void)state;
    assert_true(conv_case_complete(&d));
    expect(&d, "winograd");
    assert_int_equal(ct_wino_maps_of(&d)->m, 4);
    d.winograd = 2;
    assert_int_equal(ct_wino_maps_of(&d)->m, 2);
    d.winograd = 0; /* forbidden */
    expect(&d, "blocked");
    assert_null(ct_conv_find(ct_conv_forward_table, &d, "winograd"));
    d.winograd = 4, d.h = d.w = 2; /* 36 products for 4 outputs, or 16 */
    assert_true(conv_case_complete(&d));
    assert_int_equal(ct_wino_maps_of(&d)->m, 2);
    d.h = d.w = 28, d.sw = 2;
    assert_true(conv_case_complete(&d));
    expect(&d, "blocked");
    d.sw = 1, d.dh = 2;
    assert_true(conv_case_complete(&d));
    expect(&d, "blocked");
    d.dh = 1, d.kw = 5;
    assert_true(conv_case_complete(&d));
    expect(&d, "blocked");
    d.kh = 5, d.ph = d.pw = 2;
    assert_true(conv_case_complete(&d));
    expect(&d, "winograd");
    assert_int_equal(ct_wino_maps_of(&d)->taps, 5);
    d.winograd = 2; /* its tiles have six places */
    expect(&d, "blocked");
    d.winograd = 4, d.kh = 3, d.ph = d.pw = 1;
    d.kw = 3, d.x_block = 0; /* many plain channels */
    assert_null(ct_conv_find(ct_conv_forward_table, &d, "auto"));
}

/* By data: tiles of whichever plane has fewer; where those are of dy, before "fold". */
static void test_adjoint(void **state)
{
    ct_conv_desc d = shape(64, 20, 12, 12, 50, 0);

    (void)state;
    d.kh = d.kw = 5;
    assert_true(conv_case_complete(&d));
    assert_true(ct_wino_is_adjoint(&d));
    expect(&d, "winograd");
    d.winograd = 0;
    assert_string_equal(ct_conv_find(ct_conv_backward_data_table, &d, "auto")->name, "fold");
    d.winograd = 4, d.ph = d.pw = 2;
    assert_true(conv_case_complete(&d));
    assert_false(ct_wino_is_adjoint(&d));
}

/* 5 x 5 in bf16: products are cheap and maps are not. */
static void test_choice_bf16(void **state)
{
    static const struct {
        int64_t c, side, m;
        const char *sum;
    } row[] = { { 48, 27, 128, "winograd" },
                { 32, 14, 64, "winograd" },
                { 24, 14, 64, "blocked" },
                { 32, 7, 128, "blocked" } };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        ct_conv_desc d = shape(32, row[i].c, row[i].side, row[i].side, row[i].m, 2);

        d.kh = d.kw = 5;
        assert_true(conv_case_complete(&d));
        expect(&d, "winograd"); /* in f32 */
        d.bf16 = true;
        assert_string_equal(ct_conv_find(ct_conv_forward_table, &d, "auto")->name, row[i].sum);
        assert_string_equal(ct_conv_find(ct_conv_backward_data_table, &d, "auto")->name,
                            row[i].sum);
        assert_string_equal(ct_conv_find(ct_conv_backward_weight_table, &d, "auto")->name,
                            "winograd");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_odd_shapes),    cmocka_unit_test(test_odd_shapes_bf16),
        cmocka_unit_test(test_typical_error), cmocka_unit_test(test_large_shapes),
        cmocka_unit_test(test_choice),        cmocka_unit_test(test_choice_bf16),
        cmocka_unit_test(test_adjoint),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
