/* The packed products against a sum in double. Values are uniform in [-1, 1): a sum of k products
 * in float, in any order, is within (k + 2) eps k of the exact one, eps = 2^-24 (Higham, Accuracy
 * and Stability, section 3.1); alpha, beta and pieces of the sum add a rounding each. Of operands
 * rounded to bf16, products are exact in float; the sum in double is of rounded operands then. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include "framework/base/bf16.h"
#include "framework/base/memory.h"
#include "framework/base/simd.h"
#include "framework/math/gemm_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double EPS = 0x1p-24;

static float *make(int64_t n, uint64_t key)
{
    float *v = ct_mem_acquire((size_t)n * sizeof(float));

    assert_non_null(v);
    test_random(v, n, key, -1.0f, 1.0f);
    return v;
}

typedef struct operands {
    ct_gemm_desc d;
    ct_gemm_args g;
    float *a, *b, *c, *first, *work;
    int64_t count; /* of C, with what lies between its rows */
} operands;

/* pad: how much longer than a row the strides are. Where beta is 0, C holds NaN. */
static operands make_operands(const ct_gemm_desc *d, int64_t pad, float alpha, float beta)
{
    operands o = { .d = *d };
    int64_t rows_a = d->ta ? d->k : d->m, rows_b = d->tb ? d->n : d->k;
    /* for any set: words may hold one value */
    size_t work = 2 * ct_gemm_workspace(d), packed = 2 * ct_gemm_packed_workspace(d);

    o.g = (ct_gemm_args){ .alpha = alpha, .beta = beta };
    o.g.lda = (d->ta ? d->m : d->k) + pad;
    o.g.ldb = (d->tb ? d->k : d->n) + pad;
    o.g.ldc = d->n + pad;
    o.count = d->m * o.g.ldc;
    o.g.a = o.a = make(rows_a * o.g.lda + 1, 1);
    o.g.b = o.b = make(rows_b * o.g.ldb + 1, 2);
    o.g.c = o.c = make(o.count + 1, 3);
    o.first = make(o.count + 1, 3);
    o.g.work = o.work = ct_mem_acquire((work > packed) ? work : packed);
    assert_non_null(o.work);
    for (int64_t i = 0; (beta == 0.0f) && (i < d->m); i++) {
        for (int64_t j = 0; j < d->n; j++) o.c[i * o.g.ldc + j] = NAN;
    }
    return o;
}

static void release(operands *o)
{
    ct_mem_release(o->a), ct_mem_release(o->b), ct_mem_release(o->c), ct_mem_release(o->first);
    ct_mem_release(o->work);
}

static double operand(const operands *o, float v)
{
    return (double)(o->d.bf16 ? ct_bf16_to_f32(ct_bf16_from_f32(v)) : v);
}

/* B as it is multiplied, [k][n]; the caller's. */
static double *make_exact_b(const operands *o)
{
    int64_t n = o->d.n, k = o->d.k;
    double *b = malloc((size_t)(n * k + 1) * sizeof(double));

    assert_non_null(b);
    for (int64_t q = 0; q < k; q++) {
        for (int64_t j = 0; j < n; j++)
            b[q * n + j] = operand(o, o->g.b[o->d.tb ? j * o->g.ldb + q : q * o->g.ldb + j]);
    }
    return b;
}

/* Row i of the product, each a sum in the order of q. */
static void exact_row(const operands *o, const double *b, int64_t i, double *row)
{
    const ct_gemm_args *g = &o->g;
    int64_t n = o->d.n;

    memset(row, 0, (size_t)n * sizeof(double));
    for (int64_t q = 0; q < o->d.k; q++) {
        double a = operand(o, g->a[o->d.ta ? q * g->lda + i : i * g->lda + q]);

        for (int64_t j = 0; j < n; j++) row[j] += a * b[q * n + j];
    }
    for (int64_t j = 0; j < n; j++) {
        row[j] *= (double)g->alpha;
        if (g->beta != 0.0f) row[j] += (double)g->beta * (double)o->first[i * g->ldc + j];
    }
}

/* Every step-th row. */
static void assert_rows(const operands *o, const char *what, int64_t step)
{
    double k = (double)o->d.k, alpha = fabs((double)o->g.alpha), beta = fabs((double)o->g.beta);
    double tolerance = (k + 6.0) * EPS * (alpha * k + beta + 1e-9);
    double *b = make_exact_b(o), *row = malloc((size_t)o->d.n * sizeof(double));

    assert_non_null(row);
    for (int64_t i = 0; i < o->d.m; i += step) {
        exact_row(o, b, i, row);
        for (int64_t j = 0; j < o->g.ldc; j++) {
            double got = (double)o->c[i * o->g.ldc + j];
            double want = (j < o->d.n) ? row[j] : (double)o->first[i * o->g.ldc + j];

            if (!(fabs(got - want) <= ((j < o->d.n) ? tolerance : 0.0)))
                fail_msg("%s: %lld x %lld x %lld, %d %d: element %lld %lld is %.9g, expected %.9g, "
                         "tolerance %g",
                         what, (long long)o->d.m, (long long)o->d.n, (long long)o->d.k, o->d.ta,
                         o->d.tb, (long long)i, (long long)j, got, want, tolerance);
        }
    }
    free(b), free(row);
}

static void assert_product(const operands *o, const char *what)
{
    assert_rows(o, what, 1);
}

/* Primes, ones, around the tiles of all sets, around the pieces and blocks. */
static const int64_t size[][3] = {
    { 1, 1, 1 },      { 1, 7, 3 },     { 5, 1, 9 },     { 3, 5, 1 },
    { 13, 31, 17 },   { 14, 32, 16 },  { 15, 33, 129 }, { 29, 49, 64 },
    { 20, 100, 150 }, { 64, 10, 50 },  { 100, 3, 47 },  { 7, 400, 385 },
    { 4, 16, 0 },     { 71, 65, 800 }, { 600, 40, 20 }, { 9, 70, 1700 },
};
static const float factor[][2] = { { 1, 0 }, { 1, 1 }, { -0.5f, 0.25f }, { 0, 2 }, { 0, 0 } };
enum {
    N_SIZE = sizeof(size) / sizeof(size[0]),
    N_FACTOR = sizeof(factor) / sizeof(factor[0]),
    N_VARIANT = 16 /* transposed A, B, padded rows, three threads instead of one */
};

static ct_gemm_desc variant(const int64_t *s, int v)
{
    return (ct_gemm_desc){ .ta = (v & 1) != 0,
                           .tb = (v & 2) != 0,
                           .m = s[0],
                           .n = s[1],
                           .k = s[2],
                           .n_thread = (v & 8) ? 3 : 1 };
}

static void check_packed(const ct_gemm_set *s, operands *o, bool last_first)
{
    float *packed = make(ct_gemm_packed_size(&o->d) * 2 + 1, 4); /* for any set */

    ct_gemm_pack_for(s, &o->d, o->g.b, o->g.ldb, packed);
    ct_gemm_run_packed_for(s, &o->d, &o->g, packed, last_first);
    assert_product(o, last_first ? "packed, last first" : "packed");
    ct_mem_release(packed);
}

static void check_products(bool bf16)
{
    const ct_gemm_set *set[CT_GEMM_MAX_SETS];
    int n_set = ct_gemm_set_all(bf16, set);

    for (int i = 0; i < n_set * N_SIZE * N_FACTOR * N_VARIANT; i++) {
        int v = i % N_VARIANT, f = i / N_VARIANT % N_FACTOR;
        ct_gemm_desc d = variant(size[i / N_VARIANT / N_FACTOR % N_SIZE], v);
        const ct_gemm_set *s = set[i / N_VARIANT / N_FACTOR / N_SIZE];
        ct_gemm_plan p;
        operands o;

        if ((d.n_thread > 1) && (f != 1)) continue;
        d.bf16 = bf16;
        p = ct_gemm_plan_for(s, &d);
        o = make_operands(&d, (v & 4) ? 3 : 0, factor[f][0], factor[f][1]);

        ct_gemm_run(&p, &o.g);
        assert_product(&o, s->name);
        release(&o);
        for (int way = 0; way < 2; way++) {
            o = make_operands(&d, (v & 4) ? 3 : 0, factor[f][0], factor[f][1]);
            check_packed(s, &o, way == 1);
            release(&o);
        }
    }
}

static void test_products(void **state)
{
    (void)state;
    check_products(false);
}

static void test_bf16(void **state)
{
    (void)state;
    check_products(true);
}

/* What makes a set of pairs the best one; CORTADO_SIMD leaves it out, and the others round. */
static void test_bf16_sets(void **state)
{
    const ct_gemm_set *set[CT_GEMM_MAX_SETS];

    (void)state;
    assert_int_equal(ct_gemm_set_pick(true)->pair, ct_simd_has_bf16() ? 2 : 1);
    assert_true(setenv("CORTADO_SIMD", "avx512", 1) == 0);
    assert_false(ct_simd_has_bf16());
    for (int i = 0; i < ct_gemm_set_all(true, set); i++) {
        assert_int_equal(set[i]->pair, 1);
        assert_true(set[i]->rounds && (set[i]->first[0] == NULL));
    }
    assert_true(unsetenv("CORTADO_SIMD") == 0);
    assert_false(ct_gemm_set_pick(false)->rounds);
}

/* The other way round than the shape asks for. */
static void test_turned(void **state)
{
    static const int64_t shape[3] = { 64, 10, 50 };

    (void)state;
    for (int v = 0; v < N_VARIANT; v++) {
        ct_gemm_desc d = variant(shape, v);

        assert_true(ct_gemm_plan_make(&d).turned || (ct_gemm_set_pick(false)->lanes < 16));
        d.m = shape[1];
        d.n = shape[0];
        assert_false(ct_gemm_plan_make(&d).turned);
    }
}

/* The same bits for 1 to 5 threads, in either direction, and in more parts than threads. */
static void test_threads(void **state)
{
    static const int64_t shape[][3] = {
        { 97, 203, 401 }, { 20, 400, 300 }, { 200, 16, 900 }, { 1100, 1100, 400 }
    };

    (void)state;
    for (int s = 0; s < 8; s++) {
        ct_gemm_desc d = variant(shape[s % 4], 2);
        operands want;
        ct_gemm_plan one;
        float *packed;

        d.bf16 = (s >= 4);
        want = make_operands(&d, 0, 1.0f, 0.5f);
        one = ct_gemm_plan_make(&d);
        packed = make(ct_gemm_packed_size(&d) + 1, 4);

        ct_gemm_run(&one, &want.g);
        ct_gemm_pack(&d, want.g.b, want.g.ldb, packed);
        for (d.n_thread = 1; d.n_thread <= 5; d.n_thread++) {
            ct_gemm_plan p = ct_gemm_plan_make(&d);
            operands o = make_operands(&d, 0, 1.0f, 0.5f);

            ct_gemm_run(&p, &o.g);
            assert_memory_equal(o.c, want.c, (size_t)o.count * sizeof(float));
            release(&o);
        }
        {
            operands to = make_operands(&d, 0, 1.0f, 0.5f), fro = make_operands(&d, 0, 1.0f, 0.5f);

            to.d.n_thread = 1;
            ct_gemm_run_packed(&to.d, &to.g, packed, false);
            ct_gemm_run_packed(&d, &fro.g, packed, true);
            assert_memory_equal(to.c, fro.c, (size_t)to.count * sizeof(float));
            release(&to), release(&fro);
        }
        ct_mem_release(packed);
        release(&want);
    }
}

/* Few rows of A, around all that kernels take at once, and one more; around whole vectors and parts
 * of threads. */
static void test_few(void **state)
{
    static const int64_t n_of[] = { 1, 3, 6, 63, 64, 65, 133 }, k_of[] = { 1, 15, 16, 33, 64, 150 };
    const ct_gemm_set *set[CT_GEMM_MAX_SETS];

    (void)state;
    for (int i = 0; i < 17 * 7 * 6 * 8; i++) {
        int64_t m = i % 17 + 1, n = n_of[i / 17 % 7], k = k_of[i / 17 / 7 % 6];
        int way = i / 17 / 7 / 6, n_set;
        ct_gemm_desc d = { .tb = (way & 1) != 0, .m = m, .n = n, .k = k, .n_thread = 1 };

        d.bf16 = (way & 2) != 0;
        n_set = ct_gemm_set_all(d.bf16, set);
        assert_int_equal(ct_gemm_is_few(&d), m <= (d.tb ? 16 : 4));
        for (int s = 0; s < n_set; s++) {
            ct_gemm_plan p = ct_gemm_plan_for(set[s], &d);
            operands o = make_operands(&d, (way & 4) ? 5 : 0, (way & 4) ? -0.5f : 1.0f,
                                       (way & 4) ? 0.25f : 0.0f);

            assert_int_equal(p.few, ct_gemm_is_few(&d));
            ct_gemm_run(&p, &o.g);
            assert_product(&o, set[s]->name);
            release(&o);
        }
    }
}

/* B so large that a team takes it: the same bits. */
static void test_few_threads(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        for (int64_t m = 1; m <= 16; m += 3) {
            ct_gemm_desc d = { .tb = (way & 1) != 0, .m = m, .n = 701, .k = 311, .n_thread = 1 };
            operands want;
            ct_gemm_plan one;

            d.bf16 = (way & 2) != 0;
            one = ct_gemm_plan_make(&d);
            want = make_operands(&d, 0, 1.0f, 0.5f);
            ct_gemm_run(&one, &want.g);
            assert_product(&want, "one thread");
            for (d.n_thread = 2; d.n_thread <= 5; d.n_thread++) {
                ct_gemm_plan p = ct_gemm_plan_make(&d);
                operands o = make_operands(&d, 0, 1.0f, 0.5f);

                ct_gemm_run(&p, &o.g);
                assert_memory_equal(o.c, want.c, (size_t)o.count * sizeof(float));
                release(&o);
            }
            release(&want);
        }
    }
}

/* Numbers of B are rounded as ct_bf16_from_f32() rounds: ties, the largest, infinity, NaN. */
static void test_few_rounds(void **state)
{
    static const uint32_t bits[] = { 0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001, 0x7f7fffff,
                                     0xff7f8000, 0x7f800000, 0xff800000, 0x7fc00001, 0x7f800001,
                                     0xffffffff, 0x80000000, 0x0080ffff };
    const ct_gemm_set *set[CT_GEMM_MAX_SETS];
    int n_set = ct_gemm_set_all(true, set);

    (void)state;
    for (int i = 0; i < (int)(sizeof(bits) / sizeof(bits[0])) * n_set * 2; i++) {
        ct_gemm_desc d = {
            .tb = i % 2 == 0, .m = 1, .n = 33, .k = 33, .n_thread = 1, .bf16 = true
        };
        ct_gemm_plan p = ct_gemm_plan_for(set[i / 2 % n_set], &d);
        operands o = make_operands(&d, 0, 1.0f, 0.0f);
        float v, want;

        memcpy(&v, &bits[i / 2 / n_set], sizeof(v));
        want = ct_bf16_to_f32(ct_bf16_from_f32(v));
        for (int q = 0; q < 33; q++) o.a[q] = 1.0f;
        for (int q = 0; q < 33 * 33; q++) o.b[q] = (q / 33 == q % 33) ? v : 0.0f;
        ct_gemm_run(&p, &o.g);
        for (int j = 0; j < 33; j++) {
            if (isnan(want))
                assert_true(isnan(o.c[j]));
            else
                assert_true(o.c[j] == want);
        }
        release(&o);
    }
}

/* x rounded to bf16: as numbers of 2 bytes, and in place as floats. */
static void *narrowed(float *x, int64_t n)
{
    void *y = ct_mem_acquire((size_t)n * sizeof(ct_bf16) + 1);

    assert_non_null(y);
    ct_bf16_narrow(n, x, y);
    ct_bf16_widen(n, y, x);
    return y;
}

/* Operands that are bf16 in memory, and a B that is rounded once, have the bits of floats. */
static void check_numbers(const ct_gemm_desc *d, int64_t pad, float beta)
{
    operands o = make_operands(d, pad, 1.0f, beta);
    int64_t rows_a = d->ta ? d->k : d->m, rows_b = d->tb ? d->n : d->k;
    void *a = narrowed(o.a, rows_a * o.g.lda), *b = narrowed(o.b, rows_b * o.g.ldb);
    void *kept = ct_mem_acquire(ct_gemm_kept_bytes(d));
    ct_gemm_plan by_panels = ct_gemm_plan_kept(d), p = ct_gemm_plan_make(d);
    size_t bytes = (size_t)o.count * sizeof(float);

    assert_non_null(kept);
    ct_gemm_keep(d, o.b, o.g.ldb, kept);
    for (int way = 0; way < 8; way++) {
        operands got = make_operands(d, pad, 1.0f, beta), want = make_operands(d, pad, 1.0f, beta);
        bool keeps = way >= 4, few = !keeps && ((way & 2) == 0);

        got.g.a16 = (way & 1) != 0;
        got.g.b16 = (way & 2) != 0;
        got.g.a = got.g.a16 ? (float *)a : o.a;
        got.g.b = keeps ? NULL : got.g.b16 ? (float *)b : o.b;
        got.g.kept = keeps ? kept : NULL;
        want.g.a = o.a, want.g.b = o.b;
        ct_gemm_run(few ? &p : &by_panels, &want.g);
        ct_gemm_run(keeps ? &by_panels : &p, &got.g);
        assert_memory_equal(got.c, want.c, bytes);
        release(&got), release(&want);
    }
    ct_mem_release(a), ct_mem_release(b), ct_mem_release(kept);
    release(&o);
}

/* A B of floats that is packed once has the bits of one that is packed each time. */
static void check_kept(const ct_gemm_desc *d, int64_t pad, float beta)
{
    operands got = make_operands(d, pad, 1.0f, beta), want = make_operands(d, pad, 1.0f, beta);
    void *kept = ct_mem_acquire(ct_gemm_kept_bytes(d));
    ct_gemm_plan p = ct_gemm_plan_kept(d);

    assert_non_null(kept);
    ct_gemm_keep(d, got.b, got.g.ldb, kept);
    got.g.b = NULL;
    got.g.kept = kept;
    ct_gemm_run(&p, &want.g);
    ct_gemm_run(&p, &got.g);
    assert_memory_equal(got.c, want.c, (size_t)got.count * sizeof(float));
    ct_mem_release(kept);
    release(&got), release(&want);
}

static void test_numbers(void **state)
{
    (void)state;
    for (int i = 0; i < N_SIZE * N_VARIANT * 2; i++) {
        ct_gemm_desc d = variant(size[i / 2 / N_VARIANT], i / 2 % N_VARIANT);

        d.bf16 = true;
        check_numbers(&d, (i / 2 % N_VARIANT & 4) ? 3 : 0, (i % 2 == 0) ? 0.0f : 1.0f);
        d.bf16 = false;
        check_kept(&d, (i / 2 % N_VARIANT & 4) ? 3 : 0, (i % 2 == 0) ? 0.0f : 1.0f);
    }
}

static void check_batch(const ct_gemm_desc *d, int64_t count)
{
    ct_gemm_batch batch = { count, d->m * d->k + 5, d->n * d->k + 7, d->m * d->n + 3 };
    float *a = make(count * batch.step_a + 1, 5), *b = make(count * batch.step_b + 1, 6);
    float *c = make(count * batch.step_c + 1, 7), *first = make(count * batch.step_c + 1, 7);
    float *work = ct_mem_acquire(ct_gemm_batch_workspace(d, count));
    operands one = { .d = *d };

    one.g = (ct_gemm_args){ .alpha = 0.75f,
                            .beta = -1.0f,
                            .a = a,
                            .b = b,
                            .c = c,
                            .work = work,
                            .lda = d->ta ? d->m : d->k,
                            .ldb = d->tb ? d->k : d->n,
                            .ldc = d->n };
    ct_gemm_run_batch(d, &batch, &one.g);
    for (int64_t i = 0; i < count; i++) {
        one.g.a = a + i * batch.step_a;
        one.g.b = b + i * batch.step_b;
        one.c = c + i * batch.step_c;
        one.first = first + i * batch.step_c;
        assert_product(&one, "batch");
        assert_memory_equal(one.c + d->m * d->n, one.first + d->m * d->n, 3 * sizeof(float));
    }
    ct_mem_release(a), ct_mem_release(b), ct_mem_release(c), ct_mem_release(first);
    ct_mem_release(work);
}

static void test_batch(void **state)
{
    static const int64_t shape[][3] = { { 1, 1, 1 }, { 7, 5, 3 }, { 35, 35, 64 }, { 20, 33, 17 } };

    (void)state;
    for (int s = 0; s < 4; s++) {
        for (int v = 0; v < N_VARIANT; v++) {
            for (int64_t count = 0; count <= 8; count += (count == 0) ? 1 : 3) {
                ct_gemm_desc d = variant(shape[s], v);

                check_batch(&d, count);
            }
        }
    }
}

/* The workspace of a product is enough for its parts. */
static void test_workspace(void **state)
{
    (void)state;
    for (int64_t m = 1; m < 700; m += 83) {
        for (int64_t n = 1; n < 700; n += 97) {
            ct_gemm_desc d = { .m = m, .n = n, .k = 500, .n_thread = 3 };
            size_t whole = ct_gemm_workspace(&d);

            for (int64_t part = 1; part <= m; part += 41) {
                ct_gemm_desc less = d;

                less.m = part;
                assert_true(ct_gemm_workspace(&less) <= whole);
            }
        }
    }
}

/* A C of over 32 MB, whose sums are in longer pieces: one row of 101 is compared with the exact
 * one, all of them with those of another number of threads, made in two parts of rows. */
static void test_large(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        ct_gemm_desc d = { .ta = (way & 1) != 0, .tb = (way & 2) != 0, .n_thread = 3 };
        operands whole, parts;
        ct_gemm_plan p;

        d.m = 4001, d.n = 2003, d.k = 401;
        d.deep = ct_gemm_goes_deep(&d);
        whole = make_operands(&d, 0, 1.0f, 0.5f);
        p = ct_gemm_plan_make(&d);
        assert_int_equal(p.kc, 401); /* in one piece: else this would test nothing new */
        ct_gemm_run(&p, &whole.g);
        assert_rows(&whole, "large", 101);
        d.n_thread = 1;
        parts = make_operands(&d, 0, 1.0f, 0.5f);
        for (int half = 0; half < 2; half++) {
            ct_gemm_args g = parts.g;

            d.m = half ? 2001 : 2000;
            assert_false(ct_gemm_goes_deep(&d)); /* each part alone would not */
            g.a += half * 2000 * (d.ta ? 1 : g.lda);
            g.c += half * 2000 * g.ldc;
            p = ct_gemm_plan_make(&d);
            ct_gemm_run(&p, &g);
        }
        assert_memory_equal(whole.c, parts.c, (size_t)whole.count * sizeof(float));
        release(&whole), release(&parts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),   cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_bf16_sets),  cmocka_unit_test(test_turned),
        cmocka_unit_test(test_threads),    cmocka_unit_test(test_batch),
        cmocka_unit_test(test_few),        cmocka_unit_test(test_few_threads),
        cmocka_unit_test(test_few_rounds), cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_numbers),    cmocka_unit_test(test_large),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
