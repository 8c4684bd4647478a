/** @file product.h  A layer's matrix products: by packed panels (framework/math/gemm.h), by the
 * device's mathematics (BLAS) or by plain loops; private to layers/.
 *
 * Chosen at reshape, by ct_kernel's "packed", "blas" or "ref", or for "auto" by a static rule.
 * Large products run in pieces, so that communication moves in between. Of matrices of bf16 numbers
 * on the CPU some rows are made in f32 at a time, and rounded once, with the bias.
 *
 * What stands behind a product (fused.h: a bias, a ReLU, the bias's gradient) a device's library
 * may do in the same kernel ("lt"); otherwise kernels of their own follow it. On devices a plan
 * says which, and by which algorithm of the library.
 */
#ifndef CT_TYPES_PRODUCT_H
#define CT_TYPES_PRODUCT_H

#include "framework/math/fused.h"
#include "framework/math/gemm.h"
#include "layers/engine/bias/bias.h"
#include "layers/engine/neuron/neuron.h"
#include "layers/engine/relu/relu.h"

typedef struct ct_product {
    ct_gemm_desc d;
    const ct_math_ops *math; /* NULL: packed panels                          */
    ct_operand operand;      /* of math's products; F32 on the CPU, whose d says bf16 */
    unsigned narrow;         /* of CT_NARROW_…: what has operand's 16 bits in memory */
    unsigned behind;         /* of ct_fuse                                   */
    unsigned inside;         /* of these, what a library would do with it    */
    int aligned;             /* as in ct_fused_desc                          */
    bool shares;             /* on the CPU: B is rounded and packed once, for all rows */
    ct_fused *fused;         /* does all at once; NULL: one after the other. Owned */
    ct_bias_desc bias_desc;
    const ct_bias_impl *bias; /* fills C, or makes the sums                   */
    ct_relu_desc relu_desc;
    const ct_relu_impl *relu;
} ct_product;

/** C (m x n) = op(A) op(B) + beta C, row major; row strides as stored. work:
 * ct_product_workspace() bytes. a, b and c may be addresses of numbers of 16 bits, as ct_product
 * says; beta is 0 with such a C. */
typedef struct ct_product_args {
    const float *a, *b;
    int64_t lda, ldb;
    float beta, *c;
    int64_t ldc;
    void *work;
    const float *bias; /* of CT_FUSE_BIAS; beta is 0 then */
    float *sums;       /* of CT_FUSE_SUMS: sums_beta sums + the sums; NULL: not wanted, but with
                        * CT_FUSE_SUM_C always */
    float sums_beta;
    void *bits;                  /* ct_product_bits() bytes */
    const void *kept;            /* B as ct_product_keep() left it, in place of b; NULL: none */
    const ct_neuron_state *each; /* with a C of bf16 numbers on the CPU: its function of C goes to
                                  * each_y while rows of C are in the caches. NULL: none */
    float *each_y;               /* may be c */
} ct_product_args;

const char *ct_product_name(const ct_product *p);
/** May be 0. */
size_t ct_product_workspace(const ct_product *p);
/** Where sums are made C may be NULL: only they are wanted. */
ct_status ct_product_run(const ct_product *p, ct_exec *ex, const ct_product_args *g);

/** A product of dense operands with `behind`, of ct_fuse, at reshape; what p held is dropped. Fails
 * with CT_ERR_CONFIG where ct_kernel asks for what there is not. Where a plan is asked it is
 * collective. With CT_FUSE_BITS or _DRELU CT_UNSUPPORTED, without a word, where no library does it,
 * or with a plan not every rank's; p is as it was then. */
ct_status ct_product_make(const ct_layer *l, ct_run_kind kind, const ct_gemm_desc *shape,
                          unsigned behind, ct_product *p);
/** The same, of matrices of which `narrow`, of CT_NARROW_…, have 16 bits: on devices whose operands
 * have, too, and on the CPU with bf16, by packed panels. Bias and sums are f32. */
ct_status ct_product_make_narrow(const ct_layer *l, ct_run_kind kind, const ct_gemm_desc *shape,
                                 unsigned behind, unsigned narrow, ct_product *p);
/** The same, of operands and a C that begin at so many bytes, 64 at most, as in ct_fused_desc. */
ct_status ct_product_make_at(const ct_layer *l, ct_run_kind kind, const ct_gemm_desc *shape,
                             unsigned behind, int aligned, ct_product *p);
/** The same by the static rule alone and without a library's, even where that is named: of what
 * will not run, or cannot run by it. */
ct_status ct_product_make_plain(const ct_layer *l, ct_run_kind kind, const ct_gemm_desc *shape,
                                unsigned behind, unsigned narrow, ct_product *p);
/** Whether it rounds B to bf16 whatever it is. On the CPU. */
bool ct_product_rounds(const ct_product *p);
size_t ct_product_bits(const ct_product *p);
/** Of B, which many products read, rounded to bf16 and packed: 0 where this one reads none so. */
size_t ct_product_kept_bytes(const ct_product *p);
void ct_product_keep(const ct_product *p, const float *b, int64_t ldb, void *kept);
void ct_product_drop(ct_product *p);

#endif
