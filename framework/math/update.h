/** @file update.h  The solver's update rules (update_math.h) over contiguous ranges of the arenas.
 *
 * Each is one pass over memory, fused with what clipping, iter_size and regularisation do to the
 * gradient: g = scale grad + decay_l2 w + decay_l1 sign(w). Called outside a parallel region they
 * use the OpenMP team, on the CPU; results do not depend on the number of threads. SGD with
 * momentum is ct_math_ops.sgd.
 */
#ifndef CT_UPDATE_H
#define CT_UPDATE_H

#include "framework/math/math.h"
#include "framework/math/square_tree.h"

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

/** What a rule's trust ratio sets the weights' norm against; a ratio is a number a parameter. */
typedef enum {
    CT_UPDATE_NO_RATIO,
    CT_UPDATE_RATIO_GRADIENT, /* the gradient, without decay                                   */
    CT_UPDATE_RATIO_STEP      /* the step of the moments m and v, which the norms then move on */
} ct_update_ratio;

/** Fields of the solver that a rule reads, beside the rate and the decay. */
enum {
    CT_UPDATE_MOMENTUM = 1,
    CT_UPDATE_MOMENTUM2 = 2,
    CT_UPDATE_RMS_DECAY = 4,
    CT_UPDATE_DELTA = 8,
    CT_UPDATE_LOCAL_RATIO = 16 /* local_gw_ratio */
};

/** A parameter in a pass over all of them: its elements in the arenas, and its multipliers. */
typedef struct ct_update_part {
    int64_t offset, count;
    float lr_mult, decay_mult;
} ct_update_part;
/** A line of the arenas belongs to one parameter: they begin at multiples of this. */
enum { CT_UPDATE_LINE = 16 };

struct ct_step_there;

/** One pass over parameters [first, first + n) in the arena, whatever their multipliers. u: of the
 *  whole arenas, with the rate and the decays as they are before the multipliers. On the device lie
 *  part and part_of_line (a number a line of the arena), trust and at. */
typedef struct ct_update_all {
    const ct_update_part *part;
    const uint16_t *part_of_line;
    int64_t from, to;               /* elements of the arena, whole lines */
    const float *trust;             /* a ratio a part; NULL: u->trust for all      */
    const struct ct_step_there *at; /* scale, rate and corrections, in place of u's, and whether
                                     * anything is changed; NULL: u's (step_there.h) */
} ct_update_all;

/* What a device has of them: math.h. kind: ct_update_kind of update_math.h. */
ct_status ct_update_cpu(ct_stream st, int kind, const ct_update *u);

/** For 1-bit Adam, before a mean square of n elements stays as it is for good, while signs of their
 *  mean are sent. No element is left below a ten thousandth of the largest of its block of 1024.
 *  Every sign stands for the mean magnitude of that block. An element without a gradient would else
 *  go as far as its root is small. A second time it changes nothing. */
void ct_update_floor_squares(int64_t n, float *square);

/** SGD with momentum, by ct_math_ops.sgd. */
ct_status ct_update_sgd(const ct_update *u);
/** Norms for a trust ratio, on the CPU; a device finds the ratio by itself (step_there.h). The
 * squares of u's range, which begins at element `from` of its parameter: of w go to list `list` of
 * s, those of the gradient or of r to the next one. CT_UPDATE_RATIO_STEP moves m and v on, as Adam
 * without decay does. from and u->count: as ct_square_sums_make() has them. */
ct_status ct_update_add_norms(ct_update_ratio ratio, const ct_update *u, int64_t from, int list,
                              ct_square_sums *s);
/** When a whole parameter is in them: the sums of w^2, and of (scale grad)^2 or r^2. */
ct_status ct_update_norms(ct_update_ratio ratio, const ct_update *u, int list, ct_square_sums *s,
                          double *weight_p, double *step_p);

#ifdef __cplusplus
}
#endif

#endif
