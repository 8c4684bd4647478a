/** @file attention_case.h  What tests of attention's engines share: shapes, their operands in host
 * memory, and the definition in double with what rounding may cost. */
#ifndef CT_TEST_ATTENTION_CASE_H
#define CT_TEST_ATTENTION_CASE_H

#include "layers/engine/attention/attention.h"

typedef struct test_attention_shape {
    int64_t n, heads, kv, tq, tk, dim;
    bool causal;
    int64_t window, rope;
    bool interleaved, segments, packed;
    float ratio; /* of dropout                       */
    float size;  /* of queries and keys; 0: 1        */
} test_attention_shape;

/* One call's memory; stride of tokens as in a packed blob, or each operand alone. */
typedef struct test_attention_operands {
    ct_attention_desc d;
    ct_attention_args a;
    float *x, *dx, *top, *dtop, *segment, *turn, *stats;
    int64_t n_x, n_top;
} test_attention_operands;

/** Four documents in a row where segments is set; random numbers; NaN in no result. */
test_attention_operands test_attention_make(const test_attention_shape *c, int n_thread);
void test_attention_destroy(test_attention_operands *o);

/** Of a head; segment: of the sequence, or NULL. */
bool test_attention_visible(const ct_attention_desc *d, const float *segment, int64_t i, int64_t j);

/** What the formulas give, with sums of sizes that bound the rounding. */
typedef struct test_attention_exact {
    double *y, *dx, *y_size, *dx_size; /* as top and dx lie */
    double largest;                    /* scale sum |q k|   */
} test_attention_exact;

/** Its arrays are the caller's to free. */
test_attention_exact test_attention_define(const test_attention_operands *o);

/** Shapes that every engine is tried with. */
extern const test_attention_shape test_attention_shapes[];
enum { TEST_ATTENTION_SHAPES = 20 };

/** The share of those sizes that a result may be off by. In units of u = 2^-24: a score is off by
 * its sum's dim products and some 10 roundings of its factors, times the sum of their sizes; a
 * probability by that twice (itself, and the sum of all) and some 8 for the power and the quotient.
 * Sums then have tq heads or tk products, dp and the dot dim. */
double test_attention_allowed(const test_attention_operands *o, const test_attention_exact *e);
/** Asserts |a[i] - b[i]| <= allowed size[i]. */
void test_attention_near(const float *a, const double *b, const double *size, int64_t n,
                         double allowed, const char *what);
/** Valid until the next call. */
const char *test_attention_text(const test_attention_shape *c);

/** x[n] as bf16 numbers, to be freed; x becomes what they are. */
void *test_attention_narrowed(float *x, int64_t n);
/** Asserts that the bf16 numbers are the others, rounded. */
void test_attention_rounded(const test_attention_shape *c, const char *what, const float *wide,
                            const void *narrow, int64_t n);

#endif
