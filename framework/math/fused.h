/** @file fused.h  Matrix products of a device's library with what stands behind them in the same
 * kernel: bias, ReLU, its gradient, the gradient of the bias.
 *
 * C (m x n) = op(A) op(B) + beta C, row major and dense, f32; operands rounded as desc.operand
 * says. What desc.narrow names has 16 bits in memory; a bias is then rounded to them with C, as the
 * library wants, and sums beside such a C there are none. A product is made at set-up with all that
 * its library wants to know, so that a run allocates nothing; it belongs to who made it.
 *
 * A library has several algorithms for a shape, which heuristics of its own put in an order. Each
 * has a name that stands for it in plans: those of another version of the library are others.
 */
#ifndef CT_FUSED_H
#define CT_FUSED_H

#include "framework/math/math.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What stands behind a product. */
typedef enum {
    CT_FUSE_BIAS = 1,  /* each row of C plus a vector, n numbers                              */
    CT_FUSE_RELU = 2,  /* then 0 where that is below                                          */
    CT_FUSE_BITS = 4,  /* and a bit an element for DRELU; in an order that is the library's   */
    CT_FUSE_DRELU = 8, /* C is 0 where the bit of a product with C's shape says that its ReLU was */
    CT_FUSE_SUM_A = 16, /* beside C the sums of the rows of op(A), m numbers; with ta          */
    CT_FUSE_SUM_B = 32, /* … of the columns of op(B), n numbers; without tb                    */
    CT_FUSE_SUM_C = 64  /* … of the columns of C behind DRELU, n numbers; only with it         */
} ct_fuse;
#define CT_FUSE_SUMS (CT_FUSE_SUM_A | CT_FUSE_SUM_B | CT_FUSE_SUM_C)

typedef struct ct_fused_desc {
    ct_operand operand;
    bool ta, tb; /* A is stored k x m, B n x k */
    int64_t m, n, k;
    unsigned behind; /* of ct_fuse */
    int aligned;     /* bytes at which a, b and c begin, a power of 2; 0: 64 */
    unsigned narrow; /* of CT_NARROW_…; with C beta is 0 */
} ct_fused_desc;

/** Everything on the device; all but a, b and c at 64 bytes. */
typedef struct ct_fused_args {
    const float *a, *b, *bias;
    float beta, *c;
    float *sums;     /* sums_beta sums + the sums        */
    float sums_beta; /* 0 overwrites                     */
    void *bits;      /* ct_fused_ops.bits() bytes        */
    void *work;      /* workspace() bytes                */
} ct_fused_args;

typedef struct ct_fused ct_fused;

enum { CT_FUSED_MOST = 6, CT_FUSED_NAME = 48 };

typedef struct ct_fused_ops {
    const char *name;
    /** CT_UNSUPPORTED, without a word, where the library has none for such a product. The first
     *  algorithm is taken. */
    ct_status (*create)(const ct_fused_desc *d, ct_fused **f_p);
    void (*destroy)(ct_fused *f); /* NULL allowed */
    /** Of algorithm i, at most CT_FUSED_MOST; NULL: there is none. Without blanks. */
    const char *(*algorithm)(const ct_fused *f, int i);
    /** Algorithm i from now on. */
    void (*take)(ct_fused *f, int i);
    /** Bytes that algorithm i works in; i < 0: the one taken. */
    size_t (*workspace)(const ct_fused *f, int i);
    size_t (*bits)(const ct_fused_desc *d);
    /** An algorithm that fails at its first run gives way to another, with a line in the log. */
    ct_status (*run)(const ct_fused *f, ct_stream st, const ct_fused_args *a);
} ct_fused_ops;

#ifdef __cplusplus
}
#endif

#endif
