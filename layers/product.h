/** @file product.h  A layer's matrix products: by packed panels (framework/math/gemm.h), by the
 * device's mathematics (BLAS) or by plain loops; private to layers/.
 *
 * Chosen at reshape, by ct_kernel's "packed", "blas" or "ref", or for "auto" by a static rule.
 * Large products run in pieces, so that communication moves in between.
 */
#ifndef CT_PRODUCT_H
#define CT_PRODUCT_H

#include "framework/math/gemm.h"
#include "framework/math/math.h"
#include "layers/engine/engine.h"

typedef struct ct_product {
    ct_gemm_desc d;
    const ct_math_ops *math; /* NULL: packed panels                          */
    ct_operand operand;      /* of math's products; F32 on the CPU, whose d says bf16 */
} ct_product;

/** C (m x n) = op(A) op(B) + beta C, row major; row strides as stored. work:
 * ct_product_workspace() bytes. */
typedef struct ct_product_args {
    const float *a, *b;
    int64_t lda, ldb;
    float beta, *c;
    int64_t ldc;
    void *work;
} ct_product_args;

/** At reshape. Fails with CT_ERR_CONFIG where ct_kernel asks for what there is not. */
ct_status ct_product_pick(const ct_layer *l, ct_run_kind kind, bool ta, bool tb, int64_t m,
                          int64_t n, int64_t k, ct_product *p);
const char *ct_product_name(const ct_product *p);
/** May be 0. */
size_t ct_product_workspace(const ct_product *p);
ct_status ct_product_run(const ct_product *p, ct_exec *ex, const ct_product_args *g);

#endif
