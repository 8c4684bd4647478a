/** @file gradient_predictor.h  Gradients at weights where nobody has evaluated them, estimated from
 * points where somebody has (OptEx: Shu et al. 2024).
 *
 * A point is the weights of a net as one vector of `count` floats, and the gradient there. The
 * predictor keeps the newest `room` of them. Each estimate is a sum over them with one coefficient
 * a point, the same for all elements:
 *
 *     NONE     0
 *     LAST     g_n, the newest gradient
 *     SECANT   g_n + s (g_n - g_(n-1)), s = <z - w_n, w_n - w_(n-1)> / |w_n - w_(n-1)|^2,
 *              no further than -1 and 1
 *     KERNEL   the mean of a Gaussian process after what was seen: c = A^-1 k, where
 *              A_ij = k(|w_i - w_j|) + noise (i = j) and k_i = k(|z - w_i|). With a constant
 *              prior mean c = A^-1 k + (1 - sum(A^-1 k)) A^-1 1 / sum(A^-1 1)
 *
 *     MATERN52 k(r) = (1 + x + x^2 / 3) exp(-x), x = sqrt(5) r / length
 *     RBF      k(r) = exp(-r^2 / (2 length^2))
 *
 * Distances are sums of squared differences in double. Sums of products of the weights themselves
 * would lose them: steps are small beside weights.
 *
 * Several ranks may share out the elements: each has `count` of all vectors, and their sums are
 * added up over the ranks. All get the same coefficients then. What says so is collective.
 */
#ifndef CT_GRADIENT_PREDICTOR_H
#define CT_GRADIENT_PREDICTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"
#include "framework/exchange/group.h"

enum { CT_PREDICTOR_ROOM = 64 /* points, at most */ };

typedef enum {
    CT_PREDICT_NONE,
    CT_PREDICT_LAST,
    CT_PREDICT_SECANT,
    CT_PREDICT_KERNEL
} ct_prediction;

typedef enum { CT_KERNEL_MATERN52, CT_KERNEL_RBF } ct_kernel;

typedef struct ct_gradient_predictor {
    /* the caller's, before ct_gradient_predictor_open() */
    ct_prediction prediction;
    ct_kernel kernel;
    double length;      /* in the unit of weights; 0: the median of the points' distances, and
                         * endless while there is one point */
    double noise;       /* variance of a gradient's noise, as a share of the kernel's; at least 0 */
    bool constant_mean; /* or the prior mean is 0 */
    int room;           /* 1 to CT_PREDICTOR_ROOM */
    int64_t count;
    const ct_group *ranks; /* that share out the elements; NULL: one has all. Borrowed */

    /* made */
    int n; /* points there, the oldest first */
    float *point[CT_PREDICTOR_ROOM], *gradient[CT_PREDICTOR_ROOM]; /* [count] each */
    double square[CT_PREDICTOR_ROOM][CT_PREDICTOR_ROOM]; /* of the distance of two points */
    double *partial;                                     /* sums of blocks */
} ct_gradient_predictor;

/** The rest of p is zero. CT_ERR_NOMEM. */
ct_status ct_gradient_predictor_open(ct_gradient_predictor *p);
void ct_gradient_predictor_close(ct_gradient_predictor *p); /* half-open ones too */
/** Bytes that one with so much room takes. */
int64_t ct_gradient_predictor_bytes(int room, int64_t count);
/** Copies m points, at most CT_PREDICTOR_ROOM and the oldest first, [count] each. One takes the
 * place of a point with the very same weights, or of the oldest where there is no room. One with a
 * number that is not finite is left out; *added_p: how many are not. Collective, one sum. */
ct_status ct_gradient_predictor_add(ct_gradient_predictor *p, int m, float *const *point,
                                    float *const *gradient, int *added_p);
/** Points 0 to n - 1 and their gradients, the oldest first, have been written where p has them. One
 *  with a number that is not finite: *good_p is false, and there are none. Collective, one sum. */
ct_status ct_gradient_predictor_refill(ct_gradient_predictor *p, int n, bool *good_p);
/** c[n]: the coefficients of an estimate at z[count]. No points: none. Collective; SECANT and
 * KERNEL take one sum of at most n doubles, the others none. */
ct_status ct_gradient_predictor_weigh(const ct_gradient_predictor *p, const float *z, double *c);
/** gradient[count]: the estimate of these coefficients; 0 where there are no points. */
void ct_gradient_predictor_combine(const ct_gradient_predictor *p, const double *c,
                                   float *gradient);

#endif
