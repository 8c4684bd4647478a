/** @file optex_round.h  A round of OptEx (Shu et al. 2024): several steps of an update rule, whose
 * gradients need not wait for each other.
 *
 * With N = parallel, a round begins at weights w. It predicts the points that its steps lead to:
 *
 *     z_0 = w,  z_s = rule(z_(s-1), estimate(z_(s-1)))
 *
 * Then it evaluates the true gradients g_s at z_s, each on the batch of step N round + s. They do
 * not depend on each other. One rank evaluates them one after the other; of P ranks, which divide
 * N, each evaluates N / P points that follow one another, and hears of the other gradients by one
 * sum of N arrays. All ranks then do the same. What follows is said by the corrector:
 *
 *     REPLAY      w = rule(... rule(rule(w, g_0), g_1) ..., g_(N-1)): all of them, in sequence,
 *                 as if each had been found where its step begins
 *     LAST_POINT  w = rule(z_(N-1), g_(N-1)), with the states that the chain has there
 *
 * While nothing is known, or without a prediction, all points are w. The true gradients enter the
 * predictor at the end of a round. One point a round is the rule itself, bit for bit. Weights do
 * not depend on the number of ranks.
 */
#ifndef CT_OPTEX_ROUND_H
#define CT_OPTEX_ROUND_H

#include "framework/exchange/group.h"
#include "framework/solver/gradient_predictor.h"
#include "framework/solver/train_step.h"

typedef enum { CT_CORRECT_REPLAY, CT_CORRECT_LAST_POINT } ct_correction;

typedef struct ct_optex_round {
    /* the caller's, before ct_optex_round_open() */
    ct_train_step *step; /* open, of one rank; borrowed. Its look at gradients is the round's until
                          * it closes */
    const ct_group *ranks; /* that share out the points; NULL: one. Borrowed */
    int parallel;          /* points a round, at least 1 */
    ct_correction correction;
    ct_gradient_predictor predictor; /* its own fields but `count` */

    /* made */
    int at;          /* the point that is evaluated now */
    float **point;   /* [parallel] of as many floats as the gradient arena; point[0] is w */
    float *gradient; /* of the points, one behind the other */
    float *state[CT_UPDATE_STATES];   /* the rule's, when the round begins */
    float *chained[CT_UPDATE_STATES]; /* … and at the last point */
} ct_optex_round;

/** The rest of r is zero. CT_ERR_CONFIG, with the reason: a device, clip_gradients,
 *  precision FP16, trust ratios, an average of the weights, compression, a window of `memory`.
 *  Several ranks: points that they do not share out evenly, and layers that carry state from batch
 *  to batch. CT_ERR_ARG, CT_ERR_NOMEM. */
ct_status ct_optex_round_open(ct_optex_round *r);
void ct_optex_round_close(ct_optex_round *r); /* half-open ones too; before the step */
/** Round `round`, from 0: steps N round to N round + N - 1 at one rate. All weights are updated
 *  then. *loss_p: this rank's share of the mean of the points' losses. An error leaves weights of a
 *  point behind. Collective. */
ct_status ct_optex_round_run(ct_optex_round *r, int64_t round, double rate, double *loss_p);

/** The last point of the round is this rank's, and it is evaluated now: its outputs are shown. */
bool ct_optex_round_shows(const ct_optex_round *r);

#endif
