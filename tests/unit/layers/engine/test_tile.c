/* The register tiles of every instruction set that this processor has, against plain loops: odd
 * sizes, overlapping rows, bias or accumulation, and nothing read or written outside. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include "framework/base/memory.h"
#include "layers/engine/conv/tile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct tile_case {
    int64_t m, n, k, from, to;
    int64_t step; /* from row to row of B; less than n: they overlap */
    bool start;
} tile_case;

static float *exact_array(int64_t n, uint64_t seed)
{
    float *v = malloc((size_t)n * sizeof(float)); /* no slack: a sanitizer sees what is beyond */

    assert_non_null(v);
    test_random(v, n, seed, -1.0f, 1.0f);
    return v;
}

static void expect(const tile_case *c, const float *a, const float *b, const float *start, float *y,
                   int64_t ldc)
{
    for (int64_t i = 0; i < c->m; i++) {
        for (int64_t j = 0; j < c->n; j++) {
            double sum = (start != NULL) ? start[i] : y[i * ldc + j];

            for (int64_t q = c->from; q < c->to; q++)
                sum += (double)a[i * c->k + q] * b[(q - c->from) * c->step + j];
            y[i * ldc + j] = (float)sum;
        }
    }
}

static void check(const ct_tile_set *s, const tile_case *c)
{
    int64_t used = c->to - c->from, ldc = c->n + 3, n_start = ct_tile_packed(s, c->m, 1);
    float *a = exact_array(c->m * c->k, 1), *start = exact_array(n_start, 3);
    float *b = exact_array((used - 1) * c->step + c->n, 2);
    float *y = exact_array(c->m * ldc, 4), *want = exact_array(c->m * ldc, 4);
    float *packed = exact_array(ct_tile_packed(s, c->m, c->k), 5);
    int64_t *off = calloc((size_t)used, sizeof(*off));
    void *scratch = ct_mem_acquire(ct_tile_scratch(s, used));
    double tolerance = (double)(used + 3) * (double)(used + 1) * 0x1p-24;

    for (int64_t q = 0; q < used; q++) off[q] = q * c->step;
    for (int64_t i = 0; i < c->m; i += s->rows) { /* in two parts */
        ct_tile_pack_part(s, i, c->m, c->k, 0, c->k / 2, a, c->k, packed);
        ct_tile_pack_part(s, i, c->m, c->k, c->k / 2, c->k - c->k / 2, a + c->k / 2, c->k, packed);
    }
    memset(scratch, 0xFF, ct_tile_scratch(s, used));
    ct_tile_run(s, &(ct_tile_product){ .m = c->m,
                                       .n = c->n,
                                       .k_total = c->k,
                                       .from = c->from,
                                       .to = c->to,
                                       .a = packed,
                                       .b = b,
                                       .off = off,
                                       .start = c->start ? start : NULL,
                                       .c = y,
                                       .ldc = ldc,
                                       .scratch = scratch });
    expect(c, a, b, c->start ? start : NULL, want, ldc);
    for (int64_t i = 0; i < c->m * ldc; i++) { /* the gaps between the rows of C as well */
        if (!(fabs((double)y[i] - want[i]) <= tolerance))
            fail_msg("%s: %lld x %lld x %lld: element %lld is %.9g, not %.9g", s->name,
                     (long long)c->m, (long long)c->n, (long long)c->k, (long long)i, (double)y[i],
                     (double)want[i]);
    }
    free(a), free(b), free(y), free(want), free(packed), free(off), free(start);
    ct_mem_release(scratch);
}

static void test_sets(void **state)
{
    static const int64_t m_of[] = { 1, 2, 3, 5, 8, 12, 13, 20 };
    static const int64_t n_of[] = { 1, 4, 11, 15, 16, 17, 31, 48, 50, 97, 144 };
    const ct_tile_set *set[4];
    int n_set = ct_tile_all(set);

    (void)state;
    assert_true(n_set >= 1);
    assert_ptr_equal(set[0], ct_tile_pick());
    for (int s = 0; s < n_set; s++) {
        for (size_t i = 0; i < sizeof(m_of) / sizeof(m_of[0]); i++) {
            for (size_t j = 0; j < sizeof(n_of) / sizeof(n_of[0]); j++) {
                check(set[s], &(tile_case){ m_of[i], n_of[j], 27, 0, 27, n_of[j] + 5, true });
                check(set[s], &(tile_case){ m_of[i], n_of[j], 27, 3, 20, 7, false });
            }
        }
        /* more than one pass over the sum */
        check(set[s], &(tile_case){ 9, 50, 1700, 0, 1700, 50, true });
        check(set[s], &(tile_case){ 9, 49, 1700, 100, 1001, 3, false });
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sets) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
