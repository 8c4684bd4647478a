/* Attention: every engine against the definition in double over odd shapes, on every instruction
 * set; the same bits for any number of threads and any way to cut the work; scores that are large
 * or -infinity; rows that see nothing; what threads have to do. */
#include "tests/test.h"
#include "framework/base/bf16.h"
#include "framework/base/rng.h"
#include "framework/base/simd.h"
#include "tests/attention_case.h"
#include "tests/layer_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void run(test_attention_operands *o, const ct_attention_impl *impl)
{
    size_t bytes = ct_attention_workspace(impl, &o->d);
    ct_exec ex = { .dev = ct_device_cpu() };
    ct_attention_args a = o->a;

    assert_int_equal(posix_memalign(&a.work, 64, bytes + 64), 0);
    memset(a.work, 0xff, bytes + 64);
    assert_int_equal(impl->run(&o->d, &ex, &a), CT_OK);
    for (size_t i = bytes; i < bytes + 64; i++) assert_int_equal(((unsigned char *)a.work)[i], 255);
    free(a.work);
}

static test_attention_exact defined[TEST_ATTENTION_SHAPES]; /* of those that were asked for */

static const test_attention_exact *exact_of(const test_attention_shape *c,
                                            const test_attention_operands *o)
{
    test_attention_exact *e = &defined[c - test_attention_shapes];

    if (e->y == NULL) *e = test_attention_define(o);
    return e;
}

static int drop(void **state)
{
    (void)state;
    for (int i = 0; i < TEST_ATTENTION_SHAPES; i++)
        free(defined[i].y), free(defined[i].y_size), free(defined[i].dx), free(defined[i].dx_size);
    return 0;
}

/* ---- engines against it */

static void check_exact(const test_attention_shape *c, test_attention_operands *o,
                        const test_attention_exact *e, const ct_attention_impl *forward,
                        const ct_attention_impl *backward)
{
    char what[300];

    for (int64_t i = 0; i < o->n_x; i++) o->dx[i] = NAN;
    run(o, forward);
    run(o, backward);
    snprintf(what, sizeof(what), "%s, %s y", test_attention_text(c), forward->name);
    test_attention_near(o->top, e->y, e->y_size, o->n_top, test_attention_allowed(o, e), what);
    snprintf(what, sizeof(what), "%s, %s dx", test_attention_text(c), backward->name);
    test_attention_near(o->dx, e->dx, e->dx_size, o->n_x, test_attention_allowed(o, e), what);
}

static void check(const test_attention_shape *c, const ct_attention_impl *forward,
                  const ct_attention_impl *backward)
{
    test_attention_operands o = test_attention_make(c, 2);

    check_exact(c, &o, exact_of(c, &o), forward, backward);
    test_attention_destroy(&o);
}

static void every_engine(void **state)
{
    const ct_attention_impl *last = NULL;

    (void)state;
    for (int i = 0; i < TEST_ATTENTION_SHAPES; i++) {
        check(&test_attention_shapes[i], &ct_attention_flash_forward, &ct_attention_flash_backward);
        check(&test_attention_shapes[i], &ct_attention_ref_forward, &ct_attention_ref_backward);
    }
    for (int k = 0; ct_attention_forward_table[k] != NULL; k++)
        last = ct_attention_forward_table[k];
    assert_ptr_equal(last, &ct_attention_ref_forward);
}

/* Forms of attention over so many tokens: bidirectional, causal, windows, segments, positions that
 * turn, dropout, operands of their own; one head of keys, 3, and as many as of queries. */
static test_attention_shape form_of(int way, int64_t tokens, int64_t dim)
{
    static const int64_t kv[] = { 1, 6, 3 };

    return (test_attention_shape){ .n = (tokens < 100) ? 2 : 1,
                                   .heads = 6,
                                   .kv = kv[way % 3],
                                   .tq = tokens,
                                   .tk = tokens,
                                   .dim = dim,
                                   .causal = (way == 1) || (way == 2) || (way == 4),
                                   .window = (way == 2) ? 17 : 0,
                                   .rope = (way == 4) ? dim / 2 * 2 : 0,
                                   .segments = (way == 3) || (way == 4),
                                   .packed = way != 5,
                                   .ratio = (way == 4) ? 0.2f : 0 };
}

/* Every length with every width of heads; all forms of the shorter ones. */
static void every_size(void **state)
{
    static const int64_t t[] = { 1, 2, 63, 64, 65, 257 }, dim[] = { 1, 8, 64, 80, 128 };

    (void)state;
    for (int i = 0; i < 6 * 5 * 6; i++) {
        int way = i / 30;
        test_attention_shape c = form_of(way, t[i % 6], dim[i / 6 % 5]);
        test_attention_operands first, o;
        test_attention_exact e;

        if ((c.tq == 257) && (way != i / 6 % 5)) continue;
        first = test_attention_make(&c, 2);
        e = test_attention_define(&first);
        check_exact(&c, &first, &e, &ct_attention_ref_forward, &ct_attention_ref_backward);
        check_exact(&c, &first, &e, &ct_attention_flash_forward, &ct_attention_flash_backward);
        for (int threads = 1; threads <= 3; threads += 2) {
            o = test_attention_make(&c, threads);
            run(&o, &ct_attention_flash_forward);
            run(&o, &ct_attention_flash_backward);
            test_same(o.top, first.top, o.n_top, test_attention_text(&c));
            test_same(o.dx, first.dx, o.n_x, test_attention_text(&c));
            test_attention_destroy(&o);
        }
        test_attention_destroy(&first);
        free(e.y), free(e.y_size), free(e.dx), free(e.dx_size);
    }
}

/* What one engine's forward keeps another's backward reads. */
static void mixed(void **state)
{
    (void)state;
    check(&test_attention_shapes[8], &ct_attention_ref_forward, &ct_attention_flash_backward);
    check(&test_attention_shapes[8], &ct_attention_flash_forward, &ct_attention_ref_backward);
}

static void every_set(void **state)
{
    static const char *const name[] = { "portable", "avx2", "avx512" };

    (void)state;
    unsetenv("CORTADO_SIMD");
    for (int level = 0; level <= (int)ct_simd_pick(); level++) {
        setenv("CORTADO_SIMD", name[level], 1);
        for (int i = 0; i < TEST_ATTENTION_SHAPES; i++)
            check(&test_attention_shapes[i], &ct_attention_flash_forward,
                  &ct_attention_flash_backward);
        unsetenv("CORTADO_SIMD");
    }
}

/* ---- bits */

static void same_bits(void **state)
{
    static const int threads[] = { 1, 2, 3, 5 };
    static const int64_t sizes[][2] = { { 0, 0 }, { 32, 32 }, { 64, 128 }, { 256, 64 } };

    (void)state;
    for (int i = 0; i < TEST_ATTENTION_SHAPES; i++) {
        test_attention_operands first = test_attention_make(&test_attention_shapes[i], 1);

        run(&first, &ct_attention_flash_forward);
        run(&first, &ct_attention_flash_backward);
        for (int k = 0; k < 16; k++) {
            test_attention_operands o =
                test_attention_make(&test_attention_shapes[i], threads[k % 4]);

            if (k >= 4) o.d.task_queries = sizes[k / 4][0], o.d.task_keys = sizes[k / 4][1];
            run(&o, &ct_attention_flash_forward);
            run(&o, &ct_attention_flash_backward);
            test_same(o.top, first.top, o.n_top, test_attention_text(&test_attention_shapes[i]));
            test_same(o.dx, first.dx, o.n_x, test_attention_text(&test_attention_shapes[i]));
            test_attention_destroy(&o);
        }
        test_attention_destroy(&first);
    }
}

/* ---- edges */

/* Of the two shapes with large operands: scores from below -1e4 to above 1e4, which every_engine(),
 * every_set() and same_bits() run. */
static void large_scores(void **state)
{
    (void)state;
    for (int i = TEST_ATTENTION_SHAPES - 2; i < TEST_ATTENTION_SHAPES; i++) {
        const test_attention_shape *c = &test_attention_shapes[i];
        test_attention_operands o = test_attention_make(c, 1);
        double least = 0, most = 0;

        for (int64_t q = 0; q < c->tq; q++) {
            for (int64_t k = 0; k < c->tk; k++) {
                double score = 0;

                if (!test_attention_visible(&o.d, NULL, q, k)) continue;
                for (int64_t x = 0; x < c->dim; x++)
                    score += (double)o.a.q[q * o.d.q_row + x] * (double)o.a.k[k * o.d.k_row + x];
                least = fmin(least, score * (double)o.d.scale);
                most = fmax(most, score * (double)o.d.scale);
            }
        }
        assert_true((least < -1e4) && (most > 1e4));
        test_attention_destroy(&o);
    }
}

static const test_attention_shape infinite = { 1, 1, 1,     40,    40,   16, false,
                                               0, 0, false, false, true, 0,  0 };

static bool counts(int64_t key, bool none_counts)
{
    return !none_counts && (key % 5 != 1);
}

/* Scores of -infinity: of every fifth key, or of all; only for queries at which[] of 0. Such keys
 * count for nothing, and a row of them alone is one that sees nothing. off: of a result. */
static void check_infinite(const test_attention_operands *o, bool none_counts, int every,
                           double off)
{
    bool bf16 = o->d.bf16;

    for (int64_t t = 0; t < 40; t++) {
        bool apart = none_counts && (t % every == 0), all = none_counts && !apart;
        double mean = 0, n = 0;

        for (int64_t j = 0; j < 40; j++) {
            if (!all && !counts(j, none_counts)) continue;
            mean += (double)ct_num_get(o->a.v, bf16, j * 48);
            n += 1;
        }
        mean = apart ? 0 : mean / n;
        assert_true(fabs((double)ct_num_get(o->top, bf16, t * 16) - mean) <= off);
        for (int i = 0; i < 48; i++) {
            float d = ct_num_get(o->dx, bf16, t * 48 + i);

            assert_true(isfinite(d));
            if (apart && (i < 16)) assert_true(d == 0.0f);
        }
    }
}

/* Products of 1e20 and -1e20, of f32 and of bf16 numbers. P, of 8 bits then, and a result are off
 * by 2^-8 at most. */
static void minus_infinity(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        bool none = k % 2 == 1, bf16 = k >= 2;
        test_attention_operands o = test_attention_make(&infinite, 2);
        float *x = NULL;

        for (int64_t t = 0; t < 40; t++) {
            float *q = o.x + t * 48, *key = q + 16;

            for (int i = 0; i < 16; i++) {
                q[i] = (t % 3 == 0) ? 1e20f : 0.25f;
                key[i] = counts(t, none) ? 0.0f : -1e20f;
            }
        }
        if (bf16) {
            x = test_attention_narrowed(o.x, o.n_x);
            o.d.bf16 = true;
            o.a.q = x, o.a.k = ct_num_at(x, true, 16), o.a.v = ct_num_at(x, true, 32);
            o.a.dk = ct_num_to(o.dx, true, 16), o.a.dv = ct_num_to(o.dx, true, 32);
            ct_bf16_narrow(o.n_top, o.dtop, (void *)o.dtop);
        }
        run(&o, &ct_attention_flash_forward);
        run(&o, &ct_attention_flash_backward);
        check_infinite(&o, none, 3, bf16 ? 0x1p-7 : 1e-5);
        free(x);
        test_attention_destroy(&o);
    }
}

/* What reference multiplies in double is finite but where a key is not. */
static void minus_infinity_in_reference(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        test_attention_operands o = test_attention_make(&infinite, 1);

        for (int64_t t = 0; t < 40; t++) {
            float *q = o.x + t * 48, *key = q + 16;

            for (int i = 0; i < 16; i++) q[i] = 0.25f, key[i] = 0;
            if (!counts(t, k == 1)) key[3] = -INFINITY;
        }
        run(&o, &ct_attention_ref_forward);
        run(&o, &ct_attention_ref_backward);
        check_infinite(&o, k == 1, 1, 1e-5);
        test_attention_destroy(&o);
    }
}

/* A segment number that is no number equals none, itself neither. */
static void nothing_seen(void **state)
{
    test_attention_shape c = { 1, 2, 1, 70, 70, 24, true, 0, 24, false, true, true, 0, 0 };

    (void)state;
    for (int e = 0; e < 2; e++) {
        test_attention_operands o = test_attention_make(&c, 2);

        for (int64_t i = 20; i < 70; i++) o.segment[i] = NAN;
        run(&o, (e == 0) ? &ct_attention_flash_forward : &ct_attention_ref_forward);
        run(&o, (e == 0) ? &ct_attention_flash_backward : &ct_attention_ref_backward);
        for (int64_t i = 20 * 48; i < 70 * 48; i++) assert_true(o.top[i] == 0.0f);
        for (int64_t i = 20 * 96; i < 70 * 96; i++) assert_true(o.dx[i] == 0.0f);
        for (int64_t i = 0; i < 20 * 48; i++) assert_true(o.top[i] != 0.0f);
        test_attention_destroy(&o);
    }
}

/* ---- work */

static double balance(const test_attention_shape *c, bool backward, int n_thread)
{
    test_attention_operands o = test_attention_make(c, n_thread);
    double *work = malloc((size_t)n_thread * sizeof(*work)), last, sum = 0, most = 0;

    assert_non_null(work);
    assert_int_equal(ct_attention_work(&o.d, backward, work, &last), CT_OK);
    for (int i = 0; i < n_thread; i++) {
        sum += work[i];
        most = fmax(most, work[i]);
    }
    assert_true(last >= most); /* waits come on top */
    free(work);
    test_attention_destroy(&o);
    return sum / (n_thread * last);
}

/* One sequence of GPT-2 small keeps many threads busy, in both directions. */
static void threads_are_busy(void **state)
{
    test_attention_shape gpt2 = { 1, 12, 12, 1024, 1024, 64, true, 0, 0, false, false, true, 0, 0 };

    (void)state;
    for (int backward = 0; backward < 2; backward++) {
        static const int threads[] = { 2, 8, 64, 128 };

        for (int i = 0; i < 4; i++) {
            double b = balance(&gpt2, backward, threads[i]);

            if (b < 0.85)
                fail_msg("%s, %d threads: balance %.3f", backward ? "backward" : "forward",
                         threads[i], b);
        }
    }
}

/* What is visible, counted; and what is multiplied is not much more. */
static void pairs(void **state)
{
    test_attention_shape c = { 1, 1, 1, 100, 300, 8, true, 40, 0, false, false, false, 0, 0 };
    test_attention_operands o = test_attention_make(&c, 1);
    double seen = 0, last;

    (void)state;
    for (int64_t i = 0; i < 100; i++) {
        for (int64_t j = 0; j < 300; j++) seen += test_attention_visible(&o.d, NULL, i, j);
    }
    assert_true(ct_attention_pairs(&o.d) == seen);
    test_attention_destroy(&o);
    c = (test_attention_shape){ 1, 1, 1, 1024, 1024, 64, true, 0, 0, false, false, true, 0, 0 };
    o = test_attention_make(&c, 1);
    assert_int_equal(ct_attention_work(&o.d, false, NULL, &last), CT_OK);
    assert_true(last >= 2 * 64 * ct_attention_pairs(&o.d));
    assert_true(last <= 1.05 * 2 * 64 * ct_attention_pairs(&o.d));
    assert_int_equal(ct_attention_work(&o.d, true, NULL, &last), CT_OK);
    assert_true(last <= 1.05 * 5 * 64 * ct_attention_pairs(&o.d));
    test_attention_destroy(&o);
}

/* ---- bf16 numbers in memory: what f32 ones of the same values give, rounded once */

/* Backward reads the top as forward left it: both read the rounded one. */
static void check_bf16(const test_attention_shape *c, bool reference)
{
    const ct_attention_impl *forward =
        reference ? &ct_attention_ref_forward : &ct_attention_flash_forward;
    const ct_attention_impl *backward =
        reference ? &ct_attention_ref_backward : &ct_attention_flash_backward;
    test_attention_operands f32 = test_attention_make(c, 1), o = test_attention_make(c, 1);
    float *x = test_attention_narrowed(f32.x, f32.n_x),
          *dy = test_attention_narrowed(f32.dtop, f32.n_top), *top;
    int64_t k_at = f32.a.k - f32.a.q, v_at = f32.a.v - f32.a.q;

    o.d.bf16 = true;
    o.a.q = x;
    o.a.k = ct_num_at(x, true, k_at);
    o.a.v = ct_num_at(x, true, v_at);
    o.a.dy = dy;
    o.a.dk = ct_num_to(o.dx, true, k_at);
    o.a.dv = ct_num_to(o.dx, true, v_at);
    run(&f32, forward);
    run(&o, forward);
    test_attention_rounded(c, "y", f32.top, o.top, o.n_top);
    top = test_attention_narrowed(f32.top, f32.n_top);
    run(&f32, backward);
    for (int threads = 1; threads <= 3; threads += 2) {
        o.d.n_thread = threads;
        assert_int_equal(ct_attention_split(&o.d), CT_OK);
        memset(o.dx, 0xff, (size_t)o.n_x * sizeof(ct_bf16));
        run(&o, backward);
        test_attention_rounded(c, "dx", f32.dx, o.dx, o.n_x);
    }
    free(x), free(dy), free(top);
    test_attention_destroy(&f32), test_attention_destroy(&o);
}

/* ---- flash multiplies pairs of bf16 numbers. Beside f32's engine on the same numbers it rounds P
 * and the scores' gradient ds by h = 2^-8 of themselves, turned queries and keys, and results. With
 * numbers below 1 turned ones are below sqrt 2, and scores are off by d = scale 2 dim 2 h, so P by
 * r = e^(2 d) - 1 of itself. A row of P adds up to 1, times what dropout keeps by; its columns are
 * the gradient of v for a dy of ones. |ds| is at most P times twice dim. */

typedef struct limits {
    double h, p, ds, keep; /* shares of rounding: of results, P, ds; what dropout keeps by */
} limits;

static limits limits_of(const test_attention_operands *o)
{
    const ct_attention_desc *d = &o->d;
    double h = 0x1p-8, off = (double)d->scale * 2 * (double)d->dim * 2 * h;
    limits l = { .h = h + 0x1p-16, .p = h + 0x1p-14, .keep = (double)d->keep_scale };

    if (d->rope_dim > 0) l.p += exp(2 * off) - 1;
    l.ds = (l.p + 2 * h) * 2 * (double)d->dim * l.keep * l.keep;
    return l;
}

static void within(const test_attention_shape *c, const char *what, double got, double want,
                   double limit)
{
    if (!(fabs(got - want) <= limit))
        fail_msg("%s of T %lld, dim %lld, kv %lld: %g, in f32 %g, within %g", what,
                 (long long)c->tq, (long long)c->dim, (long long)c->kv, got, want, limit);
}

/* dq where keys is false, else dk and dv; column: as dv lies, P's. */
static void assert_gradients(const test_attention_shape *c, const test_attention_operands *f32,
                             const test_attention_operands *o,
                             const test_attention_operands *columns, bool keys)
{
    const ct_attention_desc *d = &o->d;
    limits l = limits_of(o);
    int64_t rows = d->n * (keys ? d->tk : d->tq), width = (keys ? d->kv_heads : d->heads) * d->dim;
    double scale = sqrt(2) * (double)d->scale;

    for (int64_t i = 0; i < rows * width; i++) {
        int64_t at = i / width * (keys ? d->k_row : d->q_row) + i % width;
        double sum = keys ? (double)columns->a.dv[at] : 1;
        const float *first = keys ? f32->a.dk : f32->a.dq;
        const float *got = keys ? o->a.dk : o->a.dq;

        within(c, keys ? "dk" : "dq", (double)ct_num_get(got, true, at), (double)first[at],
               l.h * fabs((double)first[at]) * (1 + l.h) + scale * l.ds * sum * (1 + l.h));
        if (keys)
            within(c, "dv", (double)ct_num_get(o->a.dv, true, at), (double)f32->a.dv[at],
                   l.h * fabs((double)f32->a.dv[at]) * (1 + l.h) + l.p * sum * (1 + l.h));
    }
}

static void check_pairs(const test_attention_shape *c)
{
    test_attention_operands f32 = test_attention_make(c, 1), o = test_attention_make(c, 1),
                            columns = test_attention_make(c, 1);
    float *x = test_attention_narrowed(f32.x, f32.n_x),
          *dy = test_attention_narrowed(f32.dtop, f32.n_top), *first;
    int64_t k_at = f32.a.k - f32.a.q, v_at = f32.a.v - f32.a.q;
    limits l = limits_of(&f32);

    memcpy(columns.x, f32.x, (size_t)f32.n_x * sizeof(float));
    for (int64_t i = 0; i < columns.n_top; i++) columns.dtop[i] = 1;
    o.d.bf16 = true;
    o.a.q = x, o.a.k = ct_num_at(x, true, k_at), o.a.v = ct_num_at(x, true, v_at);
    o.a.dy = dy;
    o.a.dk = ct_num_to(o.dx, true, k_at), o.a.dv = ct_num_to(o.dx, true, v_at);
    run(&f32, &ct_attention_flash_forward);
    run(&columns, &ct_attention_flash_forward);
    run(&columns, &ct_attention_flash_backward);
    run(&o, &ct_attention_flash_forward);
    for (int64_t i = 0; i < o.n_top; i++)
        within(c, "y", (double)ct_num_get(o.top, true, i), (double)f32.top[i],
               l.h * fabs((double)f32.top[i]) * (1 + l.h) + l.p * l.keep * (1 + l.h));
    ct_bf16_widen(o.n_top, o.top, f32.top); /* backward reads the top */
    run(&f32, &ct_attention_flash_backward);
    run(&o, &ct_attention_flash_backward);
    assert_gradients(c, &f32, &o, &columns, false);
    assert_gradients(c, &f32, &o, &columns, true);
    first = calloc((size_t)o.n_x, sizeof(*first));
    assert_non_null(first);
    memcpy(first, o.dx, (size_t)o.n_x * sizeof(ct_bf16));
    for (int threads = 2; threads <= 3; threads++) {
        o.d.n_thread = threads;
        assert_int_equal(ct_attention_split(&o.d), CT_OK);
        memset(o.dx, 0xff, (size_t)o.n_x * sizeof(ct_bf16));
        run(&o, &ct_attention_flash_backward);
        assert_memory_equal(o.dx, first, (size_t)o.n_x * sizeof(ct_bf16));
    }
    free(x), free(dy), free(first);
    test_attention_destroy(&f32), test_attention_destroy(&o), test_attention_destroy(&columns);
}

static void bf16_numbers(void **state)
{
    static const int64_t t[] = { 1, 2, 63, 64, 65, 257 }, dim[] = { 1, 8, 64, 80, 128, 300 };

    (void)state;
    for (int i = 0; i < 3 * 6 * 6 * 6; i++) {
        static const char *const level[] = { NULL, "avx2", "portable" };

        int64_t T = t[i % 6], D = dim[i / 6 % 6];
        int way = i / 36 % 6;
        bool causal = (way == 1) || (way == 2) || (way == 4);
        test_attention_shape c = { .n = (T < 100) ? 2 : 1,
                                   .heads = 3,
                                   .kv = (way % 2 == 0) ? 1 : 3,
                                   .tq = T,
                                   .tk = T,
                                   .dim = D,
                                   .causal = causal,
                                   .window = (way == 2) ? 17 : 0,
                                   .rope = (way == 4) ? D / 2 * 2 : 0,
                                   .segments = (way == 3),
                                   .packed = (way != 5),
                                   .ratio = (way == 4) ? 0.2f : 0 };

        if ((i >= 216) && (T > 65)) continue;
        if (level[i / 216] != NULL) assert_int_equal(setenv("CORTADO_SIMD", level[i / 216], 1), 0);
        if (D <= 128)
            check_pairs(&c);
        else
            check_bf16(&c, false);
        if ((T <= 65) && (D <= 64)) check_bf16(&c, true);
    }
    assert_int_equal(unsetenv("CORTADO_SIMD"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_engine),   cmocka_unit_test(mixed),
        cmocka_unit_test(every_set),      cmocka_unit_test(every_size),
        cmocka_unit_test(same_bits),      cmocka_unit_test(large_scores),
        cmocka_unit_test(minus_infinity), cmocka_unit_test(minus_infinity_in_reference),
        cmocka_unit_test(nothing_seen),   cmocka_unit_test(threads_are_busy),
        cmocka_unit_test(pairs),          cmocka_unit_test(bf16_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, drop);
}
