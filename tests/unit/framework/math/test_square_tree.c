/* Sums of squares have the bits of a tree of doubles written down plainly, however the numbers are
 * dealt to owners and in whatever order their pieces come. */
#include "tests/test.h"

#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/rng.h"
#include "framework/math/square_tree.h"

enum { LINE = CT_SQUARE_LINE, LINES = 1 << CT_SQUARE_LEVELS, MOST_OWNERS = 5 };

static float *make(int64_t n, uint64_t seed)
{
    float *v = calloc((size_t)n + LINE, sizeof(*v));

    assert_non_null(v);
    for (int64_t i = 0; i < n; i++)
        v[i] = (2 * ct_rng_uniform_at(seed, (uint64_t)i) - 1) * ldexpf(1, (int)(i * 7 % 41) - 20);
    return v;
}

/* ---- the definition, as it is written in square_tree.h */

/* Numbers of place `lane` of lines [from, from + n) of a block that has `count` numbers. */
static double plain_tree(const float *x, int64_t count, int lane, int64_t from, int64_t n)
{
    int64_t at = from * LINE + lane;

    if (n > 1)
        return plain_tree(x, count, lane, from, n / 2) +
               plain_tree(x, count, lane, from + n / 2, n / 2);
    return (at < count) ? (double)x[at] * (double)x[at] : 0;
}

static double plain(const float *x, int64_t n)
{
    double sum = 0;

    for (int64_t at = 0; at < n; at += CT_SQUARE_BLOCK) {
        int64_t count = (n - at < CT_SQUARE_BLOCK) ? n - at : CT_SQUARE_BLOCK;
        double lane[LINE];

        for (int j = 0; j < LINE; j++) lane[j] = plain_tree(x + at, count, j, 0, LINES);
        for (int half = LINE / 2; half > 0; half /= 2)
            for (int j = 0; j < half; j++) lane[j] = lane[j] + lane[j + half];
        sum += lane[0];
    }
    return sum;
}

static double whole(const float *x, int64_t n)
{
    ct_square_sums s;
    double got = -1;

    assert_int_equal(ct_square_sums_open(&n, 1, &s), CT_OK);
    assert_int_equal(ct_square_sums_add(&s, 0, 0, n, x), CT_OK);
    assert_int_equal(ct_square_sums_of(&s, 0, &got), CT_OK);
    ct_square_sums_close(&s);
    return got;
}

static void same(double got, double want, const char *what, int64_t n)
{
    if (memcmp(&got, &want, sizeof(got)) != 0)
        fail_msg("%s of %lld: %.17g, not %.17g", what, (long long)n, got, want);
}

static void is_the_tree(void **state)
{
    static const int64_t size[] = { 0,     1,     15,    16,    17,    48,     127,
                                    128,   129,   4095,  4096,  4097,  8191,   12345,
                                    65535, 65536, 65537, 70001, 98304, 131072, 200003 };
    int threads = omp_get_max_threads();
    float *x = make(200003, 5);

    (void)state;
    for (size_t k = 0; k < sizeof(size) / sizeof(size[0]); k++) {
        double want = plain(x, size[k]);

        for (int t = 1; t <= 3; t += 2) {
            omp_set_num_threads(t);
            same(whole(x, size[k]), want, "the sum", size[k]);
        }
    }
    omp_set_num_threads(threads);
    free(x);
}

/* A tree over 2^12 lines adds each square 12 + 4 times, and as many sums as there are blocks:
 * each rounds by at most 2^-53 of a sum of which none is negative (Higham, Accuracy and Stability
 * of Numerical Algorithms, section 4.2). */
static void is_near_the_sum(void **state)
{
    int64_t n = 200003, blocks = (n + CT_SQUARE_BLOCK - 1) / CT_SQUARE_BLOCK;
    float *x = make(n, 9);
    long double want = 0;

    (void)state;
    for (int64_t i = 0; i < n; i++) want += (long double)x[i] * (long double)x[i];
    assert_true(fabsl((long double)whole(x, n) - want) <=
                (long double)(CT_SQUARE_LEVELS + 4 + blocks) * (DBL_EPSILON / 2) * want * 1.001L);
    free(x);
}

/* ---- owners */

typedef struct owners {
    const float *x[2];
    int64_t count[2];
    int n;
    ct_square_sums s[MOST_OWNERS];
    uint64_t key, drawn;
} owners;

static int64_t below(owners *o, int64_t n)
{
    return (int64_t)(ct_rng_philox(o->key, 1, o->drawn++).v[0] % (uint64_t)n);
}

/* [from, to) of a list goes to some owner, in pieces, some of the later ones first. */
static void deal(owners *o, int owner, int list, int64_t from, int64_t to)
{
    while (from < to) {
        bool last = (below(o, 2) == 0);
        int64_t piece = 1 + below(o, ((below(o, 3) == 0) ? 3 : 9000) * LINE);
        int64_t at = last ? to - piece : from, end = last ? to : from + piece;

        if (at < from) at = from;
        if (end > to) end = to;
        assert_int_equal(ct_square_sums_add(&o->s[owner], list, at, end - at, o->x[list] + at),
                         CT_OK);
        if (last)
            to = at;
        else
            from = end;
    }
}

/* As ranks do it, with one list: a sum of what each puts. */
static void share(owners *o, int list)
{
    int64_t n_open = 0, before = 0, length;
    double *sum, *v;

    for (int k = 0; k < o->n; k++) n_open += ct_square_sums_nodes(&o->s[k], list, 1);
    length = ct_square_sums_length(&o->s[0], list, 1, n_open);
    sum = calloc((size_t)length, sizeof(*sum));
    assert_non_null(sum);
    for (int k = 0; k < o->n; k++) {
        v = calloc((size_t)length, sizeof(*v));
        assert_non_null(v);
        ct_square_sums_put(&o->s[k], list, 1, before, v);
        before += ct_square_sums_nodes(&o->s[k], list, 1);
        for (int64_t i = 0; i < length; i++) {
            assert_true((i < 1) || (sum[i] == 0) || (v[i] == 0)); /* one owner each */
            sum[i] += v[i];
        }
        free(v);
    }
    for (int k = 0; k < o->n; k++)
        assert_int_equal(ct_square_sums_take(&o->s[k], list, 1, n_open, sum), CT_OK);
    free(sum);
}

static void one_split(owners *o, const double *want)
{
    int64_t cut[3 * MOST_OWNERS + 1];

    for (int k = 0; k < o->n; k++) ct_square_sums_begin(&o->s[k], 0, 2);
    for (int list = 0; list < 2; list++) {
        int64_t at = 0;
        int n = o->n + (int)below(o, 2 * o->n);

        for (int c = 1; c < n; c++) cut[c] = below(o, o->count[list] + 1);
        cut[0] = 0;
        cut[n] = o->count[list];
        for (int c = 1; c <= n; c++) { /* what falls behind goes on from where the last one ended */
            int64_t to = (cut[c] > o->count[list]) ? o->count[list] : cut[c];

            if (to <= at) continue;
            deal(o, (int)below(o, o->n), list, at, to);
            at = to;
        }
    }
    for (int list = 1; list >= 0; list--) share(o, list);
    for (int k = 0; k < o->n; k++) {
        for (int list = 0; list < 2; list++) {
            double got = -1;

            assert_int_equal(o->s[k].landed[list], (o->count[list] + LINE - 1) / LINE);
            assert_int_equal(ct_square_sums_of(&o->s[k], list, &got), CT_OK);
            same(got, want[list], "the sum of owners", o->count[list]);
        }
    }
}

static void owners_make_the_same(void **state)
{
    static const int64_t size[][2] = { { 65536, 131072 }, { 1, 200003 }, { 4097, 65537 } };

    (void)state;
    for (int c = 0; c < 3; c++) {
        float *x = make(size[c][0], 11), *y = make(size[c][1], 12);
        double want[2] = { plain(x, size[c][0]), plain(y, size[c][1]) };

        for (int n = 1; n <= MOST_OWNERS; n++) {
            owners o = { { x, y },
                         { size[c][0], size[c][1] },
                         n,
                         .key = ct_rng_key(3, (uint64_t)c, (uint64_t)n) };

            for (int k = 0; k < n; k++)
                assert_int_equal(ct_square_sums_open(o.count, 2, &o.s[k]), CT_OK);
            for (int run = 0; run < 12; run++) one_split(&o, want);
            for (int k = 0; k < n; k++) ct_square_sums_close(&o.s[k]);
        }
        free(x);
        free(y);
    }
}

/* Every border between two owners, in a block that the list does not fill. */
static void every_border(void **state)
{
    int64_t n = 1000 * LINE - 3;
    float *x = make(n, 13), none = 0;
    double want = plain(x, n);
    owners o = { { x, &none }, { n, 0 }, 2, .key = 0 };

    (void)state;
    for (int k = 0; k < 2; k++) assert_int_equal(ct_square_sums_open(o.count, 2, &o.s[k]), CT_OK);
    for (int64_t cut = 0; cut <= n; cut += LINE - 1) {
        double got = -1;

        for (int k = 0; k < 2; k++) ct_square_sums_begin(&o.s[k], 0, 2);
        assert_int_equal(ct_square_sums_add(&o.s[0], 0, cut, n - cut, x + cut), CT_OK);
        assert_int_equal(ct_square_sums_add(&o.s[1], 0, 0, cut, x), CT_OK);
        assert_true(ct_square_sums_nodes(&o.s[0], 0, 2) + ct_square_sums_nodes(&o.s[1], 0, 2) <=
                    2 * CT_SQUARE_LEVELS + 3);
        share(&o, 0);
        assert_int_equal(ct_square_sums_of(&o.s[1], 0, &got), CT_OK);
        same(got, want, "the sum with a border", cut);
    }
    for (int k = 0; k < 2; k++) ct_square_sums_close(&o.s[k]);
    free(x);
}

static void odd_pieces_are_refused(void **state)
{
    int64_t n = 100;
    float x[100] = { 0 };
    ct_square_sums s;

    (void)state;
    assert_int_equal(ct_square_sums_open(&n, 1, &s), CT_OK);
    assert_int_equal(ct_square_sums_add(&s, 0, -8, 8, x), CT_ERR_ARG);
    assert_int_equal(ct_square_sums_add(&s, 0, 96, 5, x), CT_ERR_ARG);
    assert_int_equal(s.landed[0], 0);
    ct_square_sums_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_the_tree),
        cmocka_unit_test(is_near_the_sum),
        cmocka_unit_test(owners_make_the_same),
        cmocka_unit_test(every_border),
        cmocka_unit_test(odd_pieces_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
