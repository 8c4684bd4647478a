/** @file optex_round.h  A round of OptEx (Shu et al. 2024): several steps of an update rule, whose
 * gradients need not wait for each other.
 *
 * With N = parallel, a round begins at weights w. It predicts the points that its steps lead to:
 *
 *     z_0 = w,  z_s = rule(z_(s-1), estimate(z_(s-1)))
 *
 * Then it evaluates the true gradients g_s at z_s, each on the batch of step N round + s. They do
 * not depend on each other. One rank evaluates them one after the other; of P ranks, which divide
 * N, each evaluates N / P points that follow one another. Where P is a multiple of N, P / N ranks
 * that follow one another share a point's batch, and their parts of its gradient are added up.
 *
 * Each rank has one share of all points, gradients and states: a P-th of the gradient arena
 * (ct_net_part()). It works out predictions and corrections of that. A point goes together where it
 * is evaluated, its gradient goes to the shares, and at the end all ranks get the new weights. With
 * k = max(1, N / P) a rank sends at most (2 k + 1) (P - 1) / P arrays a round. What is about whole
 * vectors, as norms and distances, is added up over the ranks in double.
 *
 * What follows is said by the corrector:
 *
 *     REPLAY      w = rule(... rule(rule(w, g_0), g_1) ..., g_(N-1)): all of them, in sequence,
 *                 as if each had been found where its step begins
 *     LAST_POINT  w = rule(z_(N-1), g_(N-1)), with the states that the chain has there
 *
 * While nothing is known, or without a prediction, all points are w. The true gradients enter the
 * predictor at the end of a round. One point a round is the rule itself, bit for bit. Weights
 * depend on the number of ranks by rounding at most: where these share batches, and where sums over
 * whole vectors decide.
 *
 * A round may have fewer steps, n, which divides N. Step s then has the gradient of N / n batches,
 * the mean of theirs, at N / n times the rate. n = 1 is the rule with `iter_size` N. A momentum
 * that has the rate in it is scaled as the rate is, where n changes.
 *
 * clip_gradients is a limit of the norm of each step's mean gradient, of estimates, too. With one
 * point a round it is what it is for the rule.
 */
#ifndef CT_OPTEX_ROUND_H
#define CT_OPTEX_ROUND_H

#include "framework/exchange/group.h"
#include "framework/solver/gradient_predictor.h"
#include "framework/solver/optex_guard.h"
#include "framework/solver/train_step.h"

typedef enum { CT_CORRECT_REPLAY, CT_CORRECT_LAST_POINT } ct_correction;

typedef struct ct_optex_round {
    /* the caller's, before ct_optex_round_open() */
    ct_train_step *step; /* open; borrowed. It sends no gradient where parallel is above 1. Its look
                          * at gradients is the round's until it closes */
    const ct_group *ranks; /* that share out the points; NULL: one. Borrowed */
    int parallel;          /* batches a round, at least 1 */
    bool measures;         /* ct_optex_round.measure is wanted */
    ct_correction correction;
    ct_gradient_predictor predictor; /* its own fields but `count` */

    /* the caller's, before each round */
    int steps;       /* of the round: divides parallel; 0: as many */
    int64_t updates; /* that the rule has made: the round counts on */
    bool probes;     /* all points are where the round begins: noise can be measured */

    /* made */
    int64_t from, count;      /* this rank's share of the gradient arena */
    int64_t bytes_sent;       /* of arrays, so far */
    int batches;              /* of a step, in the last round; 0: there was none */
    ct_optex_measure measure; /* of the last round */
    bool stays;               /* all points of the last round were where it began */
    int at;                   /* the batch that is evaluated now */
    float **point;            /* [parallel][count]; point[0] is w */
    float *gradient;          /* [parallel * count] of the batches */
    float *parts;             /* [ranks * count] of gradients, where several ranks share a point */
    double (
        *coefficient)[CT_PREDICTOR_ROOM]; /* [parallel] of the estimates that the points go by */
    const float **out; /* [ranks] what goes to each rank, out_n of it, and what comes from there */
    float **in;
    int64_t *out_n, *in_n;
    float *state[CT_UPDATE_STATES];   /* [count] the rule's, when the round begins */
    float *chained[CT_UPDATE_STATES]; /* … and at the last point */
} ct_optex_round;

/** The rest of r is zero. CT_ERR_CONFIG, with the reason: a device,
 *  precision FP16, trust ratios, an average of the weights, compression, a window of `memory`.
 *  Several ranks: points that they do not share out evenly, and layers that carry state from batch
 *  to batch. CT_ERR_ARG, CT_ERR_NOMEM. */
ct_status ct_optex_round_open(ct_optex_round *r);
void ct_optex_round_close(ct_optex_round *r); /* half-open ones too; before the step */
/** Round `round`, from 0: batches N round to N round + N - 1 at one rate. All weights are updated
 *  then. *loss_p: this rank's share of the mean of the batches' losses. An error leaves weights of
 * a point behind. Collective. */
ct_status ct_optex_round_run(ct_optex_round *r, int64_t round, double rate, double *loss_p);

/** The rule's states are whole on all ranks, until the next round: for sets. Collective. */
ct_status ct_optex_round_gather_states(ct_optex_round *r);
/** Bytes of its arrays. */
int64_t ct_optex_round_bytes(const ct_optex_round *r);

/** The last batch of the round is this rank's, and it is evaluated now: its outputs are shown. */
bool ct_optex_round_shows(const ct_optex_round *r);

/* ---- what the gradients of a round show about noise and estimates: optex_measure.c fills
 * ct_optex_round.measure. Both use the net's gradient arena as room. All ranks find the same bits.
 * Collective. */

/** Of the gradients of single batches, before a step's are added up. Begins the measure anew. */
ct_status ct_optex_measure_noise(ct_optex_round *r);
/** Of those of steps, before the predictor hears of them. */
ct_status ct_optex_measure_estimates(ct_optex_round *r);

/** Of this rank's shares of two gradients, in double; its bits do not depend on threads. */
double ct_optex_round_product(const ct_optex_round *r, const float *a, const float *b);
/** v[n] of shares are those of whole vectors. Collective. */
static inline ct_status ct_optex_round_add_up(const ct_optex_round *r, double *v, int n)
{
    return (r->ranks != NULL) ? ct_group_sum(r->ranks, v, n) : CT_OK;
}
/** Where updates take this rank's share of a gradient. */
static inline float *ct_optex_round_room(const ct_optex_round *r)
{
    return r->step->net->grad_arena + r->from;
}
/** Of batch b of the round. */
static inline float *ct_optex_round_gradient(const ct_optex_round *r, int b)
{
    return r->gradient + b * r->count;
}
/** Of step s, once added up: the sum over its batches, where that of the first was. */
static inline float *ct_optex_round_sum(const ct_optex_round *r, int s)
{
    return ct_optex_round_gradient(r, s * r->batches);
}

#endif
