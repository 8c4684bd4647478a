/* Selections fused with the update, against the update written down and a sort. */
#include "tests/test.h"
#include "tests/log_capture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/codec/select.h"
#include "framework/base/rng.h"
#include "framework/math/math.h"
#include "framework/tensor/device.h"

typedef struct arrays {
    int64_t n;
    float *g, *w, *u, *v;   /* what is tested      */
    float *want_u, *want_v; /* what it should be   */
    uint32_t *order;        /* scratch of the sort */
} arrays;

static float *floats(int64_t n)
{
    float *f = calloc((size_t)n + 1, sizeof(*f));

    assert_non_null(f);
    return f;
}

static arrays arrays_create(int64_t n)
{
    arrays x = { n, floats(n), floats(n), floats(n), floats(n), floats(n), floats(n), NULL };

    x.order = calloc((size_t)n + 1, sizeof(*x.order));
    assert_non_null(x.order);
    return x;
}

static void arrays_destroy(arrays *x)
{
    free(x->g), free(x->w), free(x->u), free(x->v), free(x->want_u), free(x->want_v);
    free(x->order);
}

typedef enum { NORMAL, CONSTANT, ZERO, FEW, SPIKES, RISING, TINY, LATE, N_KIND } content;

static float draw(content c, uint64_t key, int64_t i, int64_t n)
{
    float x = ct_rng_normal_at(key, (uint64_t)i);

    switch (c) {
    case NORMAL:
        return x;
    case CONSTANT:
        return 0.25f;
    case ZERO:
        return 0.0f;
    case FEW:
        return 0.5f * rintf(x); /* nearly everything has an equal */
    case SPIKES:
        return (i % 97 == 5) ? 1e20f * x : 1e-20f * x;
    case RISING:
        return (float)(i + 1) / (float)n;
    case TINY:
        return 1e-41f * x; /* denormal */
    default:
        return (i >= n - 3) ? -1.0f - (float)(i % 2) : 0.0f;
    }
}

static void fill(arrays *x, content c, uint64_t key, float scale)
{
    for (int64_t i = 0; i < x->n; ++i) {
        x->g[i] = scale * draw(c, key, i, x->n);
        x->w[i] = ct_rng_normal_at(77, (uint64_t)i);
    }
}

static void reference_update(arrays *x, const ct_momentum_correction *a)
{
    for (int64_t i = 0; i < x->n; ++i) {
        float g = a->scale * a->grad[i], step;

        if (a->u == NULL) {
            x->want_v[i] += g;
            continue;
        }
        if (a->weight != NULL) g += a->decay * a->weight[i];
        step = a->rate * g;
        x->want_u[i] = a->momentum * x->want_u[i] + step;
        if (a->carry != 0) x->want_v[i] *= a->carry;
        x->want_v[i] += a->nesterov ? a->momentum * x->want_u[i] + step : x->want_u[i];
    }
}

static const float *sorted; /* qsort gives its comparison no argument */

static int by_magnitude(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    float x = fabsf(sorted[i]), y = fabsf(sorted[j]);

    if (x != y) return (x < y) ? 1 : -1;
    return (i > j) - (i < j);
}

static int by_index(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;

    return (i > j) - (i < j);
}

/* The k largest of want_v that are not zero and of the sign, as indices in order. */
static int64_t reference_select(arrays *x, int64_t k, int sign)
{
    int64_t count = 0;

    for (int64_t i = 0; i < x->n; ++i)
        if ((x->want_v[i] != 0.0f) && ((float)sign * x->want_v[i] >= 0.0f))
            x->order[count++] = (uint32_t)i;
    sorted = x->want_v;
    qsort(x->order, (size_t)count, sizeof(*x->order), by_magnitude);
    if (count > k) count = k;
    qsort(x->order, (size_t)count, sizeof(*x->order), by_index);
    return count;
}

static ct_momentum_correction accum_of(arrays *x, int n_thread)
{
    return (ct_momentum_correction){ .grad = x->g,
                                     .weight = x->w,
                                     .u = x->u,
                                     .v = x->v,
                                     .n = x->n,
                                     .scale = 0.5f,
                                     .rate = 0.1f,
                                     .momentum = 0.9f,
                                     .decay = 0.001f,
                                     .mask_momentum = true,
                                     .n_thread = n_thread };
}

static void assert_same(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) { /* -0 is 0 */
        if (a[i] != b[i])
            fail_msg("element %lld of %lld: %g, not %g", (long long)i, (long long)n, (double)a[i],
                     (double)b[i]);
    }
}

/* One step against the reference: the state, and what was selected. */
static void step_exact(ct_selector *sel, arrays *x, const ct_momentum_correction *a, int64_t k,
                       int sign, ct_sparse *out)
{
    int64_t count;

    reference_update(x, a);
    count = reference_select(x, k, sign);
    assert_int_equal(ct_selector_run(sel, a, out), CT_OK);
    assert_int_equal(out->n, x->n);
    assert_int_equal(out->count, count);
    assert_true(out->count <= ct_selector_bound(sel));
    for (int64_t j = 0; j < count; ++j) {
        uint32_t i = x->order[j];

        assert_int_equal(out->index[j], i);
        assert_true(out->value[j] == x->want_v[i]);
        x->want_v[i] = 0.0f;
        if ((a->u != NULL) && a->mask_momentum) x->want_u[i] = 0.0f;
    }
    assert_same(x->v, x->want_v, x->n);
    assert_same(x->u, x->want_u, x->n);
}

static void run_exact(ct_select_kind kind, int64_t n, int64_t k, content c, int sign, int n_thread,
                      int n_step)
{
    arrays x = arrays_create(n);
    ct_momentum_correction a = accum_of(&x, n_thread);
    ct_selector *sel = NULL;
    ct_sparse out = { 0 };

    if ((c == ZERO) || (c == LATE)) a.weight = NULL;
    if (c == LATE) a.u = NULL;
    a.nesterov = (n % 2 == 0);
    a.mask_momentum = (k % 2 == 1);
    assert_int_equal(ct_selector_create(kind, n, k, &sel), CT_OK);
    for (int s = 0; s < n_step; ++s) {
        fill(&x, c, (uint64_t)s, 1.0f);
        ct_selector_sign(sel, sign);
        if (s % 2 == 1) ct_selector_sign(sel, -sign);
        a.carry = (float)s / 3; /* 0 is 1 */
        step_exact(sel, &x, &a, k, (s % 2 == 1) ? -sign : sign, &out);
    }
    ct_selector_destroy(sel);
    ct_sparse_destroy(&out);
    arrays_destroy(&x);
}

static const ct_select_kind exact[] = { CT_SELECT_AUTO, CT_SELECT_TRIMMED };

static void test_odd_sizes(void **state)
{
    static const int64_t size[] = { 1, 2, 3, 31, 32, 33, 100, 2047, 2048, 2049, 5003 };

    (void)state;
    for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); ++i) {
        int64_t n = size[i], k[] = { 1, 2, 7, n / 20 + 1, n / 2 + 1, n, n + 9 };

        for (size_t j = 0; j < sizeof(k) / sizeof(k[0]); ++j)
            for (int c = 0; c < N_KIND; ++c)
                for (int e = 0; e < 2; ++e) run_exact(exact[e], n, k[j], c, (c + e) % 2, 2, 3);
    }
}

/* Large enough for several threads, for a sample, and for the room of candidates to overflow. */
static void test_threads(void **state)
{
    enum { N = 200003 };
    static const int64_t k[] = { 1, 300, 4001, 20000, 150000 };
    static const int team[] = { 1, 4 };

    (void)state;
    for (size_t j = 0; j < sizeof(k) / sizeof(k[0]); ++j)
        for (int t = 0; t < 2; ++t)
            for (int e = 0; e < 2; ++e)
                run_exact(exact[e], N, k[j], (content)((j + (size_t)t * 3) % N_KIND), t % 2,
                          team[t], 2);
    for (int c = 0; c < N_KIND; ++c) run_exact(CT_SELECT_EXACT, N, 4001, c, 0, 2, 2);
}

/* A threshold of last step's that is far too high or too low changes the work, not the result. */
static void test_history(void **state)
{
    enum { N = 300007, K = 300 };
    static const float scale[] = { 1, 1, 1e-6f, 1e-6f, 1e6f, 1, 1, 0, 0, 1 };
    arrays x = arrays_create(N);
    ct_momentum_correction a = accum_of(&x, 2);
    ct_selector *sel = NULL;
    ct_select_stats stats;
    ct_sparse out = { 0 };

    (void)state;
    a.u = NULL;
    assert_int_equal(ct_selector_create(CT_SELECT_EXACT, N, K, &sel), CT_OK);
    for (size_t s = 0; s < sizeof(scale) / sizeof(scale[0]); ++s) {
        fill(&x, NORMAL, s, scale[s]);
        memset(x.v, 0, N * sizeof(float));
        memset(x.want_v, 0, N * sizeof(float));
        step_exact(sel, &x, &a, K, 0, &out);
        ct_selector_stats(sel, &stats);
        assert_int_equal(stats.history, (s > 0) && (s < 8)); /* zeros teach nothing */
        assert_int_equal(stats.passes, ((s == 2) || (s == 5) || (s == 7)) ? 2 : 1);
        assert_true(stats.candidates >= out.count);
        if (s == 1) assert_true(stats.candidates < 4 * K);
        if (scale[s] > 0) assert_true(stats.threshold > 0.0f);
    }
    ct_selector_forget(sel);
    fill(&x, NORMAL, 99, 1.0f);
    step_exact(sel, &x, &a, K, 0, &out);
    ct_selector_stats(sel, &stats);
    assert_false(stats.history);
    ct_selector_destroy(sel);
    ct_sparse_destroy(&out);
    arrays_destroy(&x);
}

/* k that falls from step to step, from where a histogram finds it to where a sample's bound does:
 * the same as a selector of that k. */
static void test_falling(void **state)
{
    enum { N = 200003, LEAST = 40 };
    static const int team[] = { 1, 4 };

    (void)state;
    for (int t = 0; t < 2; ++t) {
        for (int e = 0; e < 2; ++e) {
            arrays x = arrays_create(N);
            ct_momentum_correction a = accum_of(&x, team[t]);
            ct_selector *sel = NULL;
            ct_sparse out = { 0 };
            int s = 0;

            assert_int_equal(ct_selector_create(exact[e], N, LEAST, &sel), CT_OK);
            for (int64_t k = N / 2; k >= LEAST; k = k * 2 / 3, ++s) {
                fill(&x, NORMAL, (uint64_t)s, 1.0f);
                if (s % 5 == 4) ct_selector_forget(sel);
                ct_selector_want(sel, k);
                step_exact(sel, &x, &a, k, 0, &out);
                assert_int_equal(out.count, k);
            }
            ct_selector_destroy(sel);
            ct_sparse_destroy(&out);
            arrays_destroy(&x);
        }
    }
}

/* What is larger than a threshold that was foreseen is taken out in the pass itself, and goes back
 * where that was wrong: too low, too high, and so high that the pass has to be repeated. By every
 * set of instructions. */
static void test_foreseen(void **state)
{
    static const char *const level[] = { "portable", "avx2", "avx512" };
    static const int64_t size[] = { 63, 64, 65, 511, 512, 1025, 70001, 300007 };
    static const float scale[] = { 1, 1.3f, 1.7f, 1.2f, 1e-3f, 1e-3f, 40, 50, 45, 1 };

    (void)state;
    for (size_t i = 0; i < 3 * sizeof(size) / sizeof(size[0]); ++i) {
        int64_t n = size[i / 3], k = n / 40 + 1;
        size_t bytes = (size_t)n * sizeof(float);
        arrays x = arrays_create(n);
        ct_momentum_correction a = accum_of(&x, 2);
        ct_selector *sel = NULL;
        ct_sparse out = { 0 };

        assert_int_equal(setenv("CORTADO_SIMD", level[i % 3], 1), 0);
        assert_int_equal(ct_selector_create(CT_SELECT_EXACT, n, k, &sel), CT_OK);
        for (size_t s = 0; s < sizeof(scale) / sizeof(scale[0]); ++s) {
            fill(&x, NORMAL, s, scale[s]);
            if (s > 3) { /* or they would make the thresholds smooth */
                memset(x.v, 0, bytes);
                memset(x.u, 0, bytes);
                memset(x.want_v, 0, bytes);
                memset(x.want_u, 0, bytes);
            }
            step_exact(sel, &x, &a, k, 0, &out);
        }
        ct_selector_destroy(sel);
        ct_sparse_destroy(&out);
        arrays_destroy(&x);
    }
    assert_int_equal(unsetenv("CORTADO_SIMD"), 0);
}

static void test_not_finite(void **state)
{
    static const float bad[] = { NAN, -NAN, INFINITY, -INFINITY };
    enum { N = 20011, K = 20 };

    (void)state;
    log_capture_start(NULL);
    for (int kind = CT_SELECT_AUTO; kind <= CT_SELECT_REDSYNC_SIZES; ++kind) {
        for (int b = 0; b < 4; ++b) {
            for (int sign = -1; sign <= 1; ++sign) {
                arrays x = arrays_create(N);
                ct_momentum_correction a = accum_of(&x, 2);
                ct_selector *sel = NULL;
                ct_sparse out = { 0 };

                fill(&x, NORMAL, 1, 1.0f);
                assert_int_equal(ct_selector_create((ct_select_kind)kind, N, K, &sel), CT_OK);
                ct_selector_sign(sel, sign);
                assert_int_equal(ct_selector_run(sel, &a, &out), CT_OK);
                x.g[N - 1 - 7 * b] = bad[b];
                assert_int_equal(ct_selector_run(sel, &a, &out), CT_ERR_DIVERGED);
                ct_selector_destroy(sel);
                ct_sparse_destroy(&out);
                arrays_destroy(&x);
            }
        }
    }
    log_capture_stop();
}

/* Indices beyond what a float can count. */
static void test_many_elements(void **state)
{
    const int64_t n = ((int64_t)1 << 24) + 77777;
    ct_momentum_correction a = { .n = n, .scale = 1.0f, .n_thread = 2 };
    float *g = floats(n), *v = floats(n);

    (void)state;
    a.grad = g;
    a.v = v;
    for (int64_t i = n - 20; i < n; ++i) g[i] = (float)(i % 7) - 3.5f;
    for (int kind = CT_SELECT_EXACT; kind <= CT_SELECT_SAMPLED; ++kind) {
        ct_selector *sel = NULL;
        ct_sparse out = { 0 };

        memset(v, 0, (size_t)n * sizeof(*v));
        assert_int_equal(ct_selector_create((ct_select_kind)kind, n, 20, &sel), CT_OK);
        assert_int_equal(ct_selector_run(sel, &a, &out), CT_OK);
        assert_int_equal(out.count, 20);
        for (int64_t j = 0; j < 20; ++j) {
            assert_int_equal(out.index[j], n - 20 + j);
            assert_true(out.value[j] == g[n - 20 + j]);
        }
        ct_selector_destroy(sel);
        ct_sparse_destroy(&out);
    }
    free(g);
    free(v);
}

/* Whatever is over the threshold, and nothing else, is taken; and as much as is promised. */
static void check_over(const arrays *x, const ct_sparse *out, float threshold, int64_t low,
                       int64_t high)
{
    int64_t over = 0;

    for (int64_t i = 0; i < x->n; ++i) over += fabsf(x->want_v[i]) >= threshold;
    assert_int_equal(over, out->count);
    if ((out->count < low) || (out->count > high))
        fail_msg("%lld selected, not %lld to %lld", (long long)out->count, (long long)low,
                 (long long)high);
}

static void test_search(void **state)
{
    enum { N = 300007, K = 300, STEPS = 24 };

    (void)state;
    for (int kind = CT_SELECT_SEARCH; kind <= CT_SELECT_SAMPLED; ++kind) {
        arrays x = arrays_create(N);
        ct_momentum_correction a = accum_of(&x, 3);
        ct_selector *sel = NULL;
        ct_sparse out = { 0 };
        int reused = 0;

        a.u = NULL;
        assert_int_equal(ct_selector_create((ct_select_kind)kind, N, K, &sel), CT_OK);
        assert_int_equal(ct_selector_bound(sel), K + K / 4);
        for (int s = 0; s < STEPS; ++s) {
            ct_select_stats stats;
            int64_t low = K;

            fill(&x, NORMAL, (uint64_t)s, (s == 12) ? 10.0f : 1.0f);
            memset(x.v, 0, N * sizeof(float));
            memset(x.want_v, 0, N * sizeof(float));
            reference_update(&x, &a);
            assert_int_equal(ct_selector_run(sel, &a, &out), CT_OK);
            ct_selector_stats(sel, &stats);
            if (stats.history) low = K / 2;
            if (stats.history) assert_int_equal(stats.passes, 1);
            reused += stats.history;
            check_over(&x, &out, stats.threshold, low, K + K / 4);
            for (int64_t j = 0; j < out.count; ++j) {
                assert_true(out.value[j] == x.want_v[out.index[j]]);
                x.want_v[out.index[j]] = 0.0f;
            }
            assert_same(x.v, x.want_v, N);
        }
        if (kind == CT_SELECT_SEARCH) assert_int_equal(reused, 0);
        if (kind == CT_SELECT_SAMPLED)
            assert_int_equal(reused, STEPS - 7); /* searched in 0, 5, 10, 12, 13, 18, 23 */
        ct_selector_destroy(sel);
        ct_sparse_destroy(&out);
        arrays_destroy(&x);
    }
}

/* Where no threshold separates k to 5/4 k elements: the exact selection. */
static void test_search_degenerate(void **state)
{
    static const int64_t size[] = { 1, 33, 5003, 300007 };

    (void)state;
    for (int kind = CT_SELECT_SEARCH; kind <= CT_SELECT_SAMPLED; ++kind) {
        for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); ++i) {
            int64_t k = size[i] / 100 + 1;

            run_exact((ct_select_kind)kind, size[i], k, ZERO, 0, 2, 3);
            if (k > 3) run_exact((ct_select_kind)kind, size[i], k, LATE, 0, 2, 1);
        }
    }
    for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); ++i) {
        arrays x = arrays_create(size[i]);
        ct_momentum_correction a = accum_of(&x, 2);
        ct_selector *sel = NULL;
        ct_sparse out = { 0 };
        int64_t k = size[i] / 100 + 1;

        a.u = NULL;
        fill(&x, CONSTANT, 0, -1.0f);
        assert_int_equal(ct_selector_create(CT_SELECT_SEARCH, size[i], k, &sel), CT_OK);
        step_exact(sel, &x, &a, k, 0, &out);
        assert_int_equal(out.count, k);
        assert_int_equal(out.index[k - 1], k - 1);
        ct_selector_destroy(sel);
        ct_sparse_destroy(&out);
        arrays_destroy(&x);
    }
}

/* The same bits for any number of threads, also of the selections that need not be exact. */
static void test_same_for_all_teams(void **state)
{
    enum { N = 400009, K = 4000 };

    (void)state;
    for (int kind = CT_SELECT_EXACT; kind <= CT_SELECT_REDSYNC_SIZES; ++kind) {
        arrays x = arrays_create(N), y = arrays_create(N);
        ct_momentum_correction a = accum_of(&x, 1), b = accum_of(&y, 6);
        ct_selector *one = NULL, *six = NULL;
        ct_sparse p = { 0 }, q = { 0 };

        assert_int_equal(ct_selector_create((ct_select_kind)kind, N, K, &one), CT_OK);
        assert_int_equal(ct_selector_create((ct_select_kind)kind, N, K, &six), CT_OK);
        for (int s = 0; s < 9; ++s) {
            int sign = (s > 5) ? 1 - 2 * (s % 2) : 0;

            fill(&x, NORMAL, (uint64_t)s, (s == 4) ? 10.0f : 1.0f);
            memcpy(y.g, x.g, N * sizeof(float));
            memcpy(y.w, x.w, N * sizeof(float));
            ct_selector_sign(one, sign);
            ct_selector_sign(six, sign);
            assert_int_equal(ct_selector_run(one, &a, &p), CT_OK);
            assert_int_equal(ct_selector_run(six, &b, &q), CT_OK);
            assert_int_equal(p.count, q.count);
            assert_true(p.count > 0);
            assert_memory_equal(p.index, q.index, (size_t)p.count * sizeof(*p.index));
            assert_memory_equal(p.value, q.value, (size_t)p.count * sizeof(*p.value));
            assert_memory_equal(x.v, y.v, N * sizeof(float));
            assert_memory_equal(x.u, y.u, N * sizeof(float));
            for (int64_t j = 0; (sign != 0) && (j < p.count); ++j)
                assert_true((float)sign * p.value[j] > 0.0f);
        }
        ct_selector_destroy(one);
        ct_selector_destroy(six);
        ct_sparse_destroy(&p);
        ct_sparse_destroy(&q);
        arrays_destroy(&x);
        arrays_destroy(&y);
    }
}

/* Dense steps are the solver's SGD: the same weights, bit for bit. */
static void test_dense(void **state)
{
    enum { N = 70001, STEPS = 5 };
    arrays x = arrays_create(N);
    ct_momentum_correction a = accum_of(&x, 2);
    float *h = floats(N), *w = floats(N), *out = floats(N);

    (void)state;
    fill(&x, NORMAL, 50, 1.0f);
    memcpy(w, x.w, N * sizeof(float));
    for (int s = 0; s < STEPS; ++s) {
        for (int64_t i = 0; i < N; ++i) x.g[i] = ct_rng_normal_at((uint64_t)s, (uint64_t)i);
        assert_int_equal(ct_device_cpu()->math->sgd(NULL, N, a.scale, a.rate, a.momentum, a.decay,
                                                    0.0f, x.g, h, w),
                         CT_OK);
        memcpy(out, x.g, N * sizeof(float));
        a.grad = out; /* the gradient itself takes the result */
        ct_momentum_correction_all(&a, out);
        for (int64_t i = 0; i < N; ++i) {
            assert_true(x.v[i] == 0.0f);
            x.w[i] -= out[i];
        }
        assert_same(x.u, h, N);
        assert_same(x.w, w, N);
    }
    free(h), free(w), free(out);
    arrays_destroy(&x);
}

static void test_update_alone(void **state)
{
    enum { N = 70001 };

    (void)state;
    for (int form = 0; form < 6; ++form) {
        arrays x = arrays_create(N);
        ct_momentum_correction a = accum_of(&x, 2);

        if (form % 3 == 0) a.weight = NULL;
        if (form % 3 == 2) a.u = NULL;
        a.nesterov = (form >= 3);
        for (int s = 0; s < 3; ++s) {
            fill(&x, NORMAL, (uint64_t)s, 1.0f);
            reference_update(&x, &a);
            ct_momentum_correction_run(&a);
            assert_same(x.u, x.want_u, N);
            assert_same(x.v, x.want_v, N);
        }
        arrays_destroy(&x);
    }
}

/* What is sent and what stays is what came in, over a thousand steps: values only ever move. */
static void test_conserved(void **state)
{
    enum { N = 999, K = 13, STEPS = 1000 };
    arrays x = arrays_create(N);
    ct_momentum_correction a = accum_of(&x, 1);
    double in[N] = { 0 }, sent[N] = { 0 }, size[N] = { 0 };
    ct_selector *sel = NULL;
    ct_sparse out = { 0 };

    (void)state;
    a.u = NULL;
    assert_int_equal(ct_selector_create(CT_SELECT_EXACT, N, K, &sel), CT_OK);
    for (int s = 0; s < STEPS; ++s) {
        fill(&x, NORMAL, (uint64_t)s, 1.0f);
        assert_int_equal(ct_selector_run(sel, &a, &out), CT_OK);
        for (int64_t j = 0; j < out.count; ++j) sent[out.index[j]] += (double)out.value[j];
        for (int64_t i = 0; i < N; ++i) {
            in[i] += (double)(a.scale * x.g[i]);
            size[i] += fabs((double)(a.scale * x.g[i]));
        }
    }
    /* each step rounds once a V that is smaller than all that came in */
    for (int64_t i = 0; i < N; ++i)
        assert_true(fabs(sent[i] + (double)x.v[i] - in[i]) <= 0x1p-24 * STEPS * size[i] / 10);
    ct_selector_destroy(sel);
    ct_sparse_destroy(&out);
    arrays_destroy(&x);
}

static void test_refused(void **state)
{
    ct_selector *sel = NULL;
    ct_sparse out = { 0 };
    ct_momentum_correction a = { .n = 4 };

    (void)state;
    assert_int_equal(ct_selector_create(CT_SELECT_EXACT, (int64_t)1 << 32, 1, &sel), CT_ERR_CONFIG);
    assert_int_equal(ct_selector_create(CT_SELECT_EXACT, -1, 1, &sel), CT_ERR_CONFIG);
    assert_int_equal(ct_selector_create(CT_SELECT_EXACT, 5, 0, &sel), CT_ERR_CONFIG);
    assert_null(sel);
    assert_int_equal(ct_selector_create(CT_SELECT_EXACT, 5, 2, &sel), CT_OK);
    assert_int_equal(ct_selector_run(sel, &a, &out), CT_ERR_ARG);
    ct_selector_destroy(sel);
    assert_int_equal(ct_selector_create(CT_SELECT_SAMPLED, 0, 2, &sel), CT_OK);
    a.n = 0;
    assert_int_equal(ct_selector_run(sel, &a, &out), CT_OK);
    assert_int_equal(out.count, 0);
    assert_int_equal(ct_selector_bound(sel), 0);
    ct_selector_destroy(sel);
    ct_selector_destroy(NULL);
    assert_string_equal(ct_select_name(CT_SELECT_REDSYNC_SIZES), "redsync_sizes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_odd_sizes),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_falling),
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_foreseen),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_many_elements),
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_search_degenerate),
        cmocka_unit_test(test_same_for_all_teams),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_update_alone),
        cmocka_unit_test(test_conserved),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
