/** @file softmax.h  Kernels of Softmax and SoftmaxWithLoss, and the table they are chosen from.
 *
 * x is outer x classes x inner; each of the outer x inner positions has one distribution over the
 * classes: p_c = exp(x_c - max x) / sum exp(x - max x).
 */
#ifndef CT_ENGINE_SOFTMAX_SOFTMAX_H
#define CT_ENGINE_SOFTMAX_SOFTMAX_H

#include "framework/net/exec.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_softmax_desc {
    ct_device_kind device;
    int64_t outer, classes, inner;
} ct_softmax_desc;

/** Of no class, and of one that another part of the classes has. */
enum { CT_LABEL_IGNORED = -1, CT_LABEL_ELSEWHERE = -2 };

typedef struct ct_softmax_engine {
    const char *name;
    bool (*supports)(const ct_softmax_desc *d);
    /** y may be x. */
    ct_status (*forward)(const ct_softmax_desc *d, ct_exec *ex, const float *x, float *y);
    /** dx_c = y_c (dy_c - sum_k dy_k y_k). dx may be dy. */
    ct_status (*backward)(const ct_softmax_desc *d, ct_exec *ex, const float *y, const float *dy,
                          float *dx);
    /** NULL, as the next: not the first that supports d. sum of -log max(p_label, FLT_MIN) over the
     * positions whose label is not CT_LABEL_IGNORED. label: outer x inner classes in [0, classes);
     * scratch: ct_softmax_scratch() bytes. All pointers but loss_p are on the device of d. The same
     * for any number of threads. */
    ct_status (*loss)(const ct_softmax_desc *d, ct_exec *ex, const float *p, const int32_t *label,
                      float *scratch, double *loss_p);
    /** dx_c = scale (p_c - [c is the label]); 0 where the label is ignored. Where inner is
     *  1 dx may be p. */
    ct_status (*loss_backward)(const ct_softmax_desc *d, ct_exec *ex, const float *p,
                               const int32_t *label, float scale, float *dx);

    /** Where d.classes are some of a loss's; NULL, as the next: it needs all.
     *  y_c = exp(x_c - largest), and of each position the largest x_c and the sum of y_c. y may be
     *  x. Scores of -infinity alone have that as their largest, and a sum of 0. */
    ct_status (*forward_part)(const ct_softmax_desc *d, ct_exec *ex, const float *x, float *y,
                              float *largest, float *sum);
    /** dx_c = scale (share y_c - [c is the label]), with the position's share; 0 where the label is
     *  ignored. Where inner is 1 dx may be y. */
    ct_status (*loss_backward_part)(const ct_softmax_desc *d, ct_exec *ex, const float *y,
                                    const float *share, const int32_t *label, float scale,
                                    float *dx);
} ct_softmax_engine;

extern const ct_softmax_engine ct_softmax_omp, ct_softmax_ref, ct_softmax_cuda, ct_softmax_cudnn;
/** Best first, the reference last; NULL-terminated. */
extern const ct_softmax_engine *const ct_softmax_table[];

/** Bytes of loss()'s scratch: outer x inner numbers, and their sum behind them. */
size_t ct_softmax_scratch(const ct_softmax_desc *d);
/** The first engine that supports d; NULL: none. */
const ct_softmax_engine *ct_softmax_choose(const ct_softmax_desc *d);

#ifdef __cplusplus
}
#endif

#endif
