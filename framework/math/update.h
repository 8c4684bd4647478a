/** @file update.h  The solver's update rules over contiguous ranges of the arenas.
 *
 * Each is one pass over memory, fused with what clipping, iter_size and regularisation do to the
 * gradient: g = scale grad + decay_l2 w + decay_l1 sign(w). Called outside a parallel region they
 * use the OpenMP team, on the CPU; results do not depend on the number of threads. SGD with
 * momentum is ct_math_ops.sgd.
 */
#ifndef CT_UPDATE_H
#define CT_UPDATE_H

#include "framework/math/math.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What one update of a range works on: count elements, on dev. */
typedef struct ct_update {
    const ct_device *dev;
    int64_t count;
    float scale;                        /* of the gradient: clipping, 1 / iter_size         */
    float rate;                         /* lr * lr_mult                                     */
    float momentum, decay_l2, decay_l1; /* weight_decay * decay_mult; one of the two        */
    float momentum2;                    /* how much of the mean square stays                */
    float delta;                        /* keeps divisors from 0                            */
    float correction, correction2;      /* 1 / (1 - momentum^t), 1 / (1 - momentum2^t)      */
    float trust;                        /* trust ratio of the parameter                     */
    const float *grad;                  /* summed over ranks and micro-steps                */
    float *weight;
    float *state[2];
} ct_update;

typedef enum {
    CT_UPDATE_SGD,
    CT_UPDATE_NESTEROV,
    CT_UPDATE_ADAGRAD,
    CT_UPDATE_RMSPROP,
    CT_UPDATE_ADADELTA,
    CT_UPDATE_ADAM,
    CT_UPDATE_ADAMW,
    CT_UPDATE_LARS,
    CT_UPDATE_LAMB
} ct_update_kind;

/** A parameter in a pass over all of them: its elements in the arenas, and its multipliers. */
typedef struct ct_update_part {
    int64_t offset, count;
    float lr_mult, decay_mult;
} ct_update_part;
/** A line of the arenas belongs to one parameter: they begin at multiples of this. */
enum { CT_UPDATE_LINE = 16 };

struct ct_step_there;

/** One pass over parameters [first, first + n) in the arena, whatever their multipliers; u: of the
 *  whole arenas, with the rate and the decays as they are before the multipliers. part and
 *  part_of_line (a number a line of the arena), trust and at lie on the device. */
typedef struct ct_update_all {
    const ct_update_part *part;
    const uint16_t *part_of_line;
    int64_t from, to;               /* elements of the arena, whole lines */
    const float *trust;             /* a ratio a part; NULL: u->trust for all      */
    const struct ct_step_there *at; /* scale, rate and corrections, in place of u's, and whether
                                     * anything is changed; NULL: u's (step_there.h) */
} ct_update_all;

/* What a device has of them: math.h. */
ct_status ct_update_cpu(ct_stream st, int kind, const ct_update *u);
ct_status ct_update_cpu_lamb_norms(ct_stream st, const ct_update *u, double *weight_p,
                                   double *step_p);

/** h = momentum h + rate g; w -= h. State: h. As ct_math_ops.sgd, which solvers use. */
ct_status ct_update_sgd(const ct_update *u);
/** Nesterov's momentum as Caffe has it: h' = momentum h + rate g; w -= (1 + momentum) h' - momentum
 *  h. State: h. */
ct_status ct_update_nesterov(const ct_update *u);
/** h += g^2; w -= rate g / (sqrt(h) + delta). State: h. */
ct_status ct_update_adagrad(const ct_update *u);
/** h = momentum2 h + (1 - momentum2) g^2; w -= rate g / (sqrt(h) + delta). State: h. */
ct_status ct_update_rmsprop(const ct_update *u);
/** h = momentum h + (1 - momentum) g^2; s = g sqrt((d + delta) / (h + delta)); d = momentum d + (1
 * - momentum) s^2; w -= rate s. State: h, d. */
ct_status ct_update_adadelta(const ct_update *u);
/** m = momentum m + (1 - momentum) g; v = momentum2 v + (1 - momentum2) g^2; w -= rate correction m
 * / (sqrt(v) + delta): delta is added before the bias is corrected, so correction is that of both.
 *  State: m, v. */
ct_status ct_update_adam(const ct_update *u);
/** As Adam, with the decay beside the mean instead of in it and delta added to the corrected root:
 *  w -= rate (correction m / (sqrt(correction2 v) + delta) + decay_l2 w). State: m, v. */
ct_status ct_update_adamw(const ct_update *u);
/** h = momentum h + rate trust g; w -= h. State: h. */
ct_status ct_update_lars(const ct_update *u);
/** w -= rate trust r, r = correction m / (sqrt(correction2 v) + delta) + decay_l2 w, of the m and v
 *  that ct_update_lamb_norms() has left. State: m, v. */
ct_status ct_update_lamb(const ct_update *u);

/* Norms for a trust ratio, on the CPU; a device finds the ratio by itself (step_there.h). */

/** Sums over the range of w^2 and (scale grad)^2. */
ct_status ct_update_lars_norms(const ct_update *u, double *weight_p, double *step_p);
/** Moves m and v on, as Adam without decay does; sums of w^2 and r^2. */
ct_status ct_update_lamb_norms(const ct_update *u, double *weight_p, double *step_p);

#ifdef __cplusplus
}
#endif

#endif
