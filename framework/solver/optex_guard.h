/** @file optex_guard.h  How many steps a round of OptEx takes: the noise of gradients and the error
 * of their estimates decide.
 *
 * A round has N batches. It is n steps by N / n batches each, at N / n times the rate, so that it
 * goes about as far whatever n, which divides N. n = 1 is one step of a large batch. It needs no
 * estimates; each further step needs another one. The guard keeps running means of
 *
 *     noise   E |g - G|^2 of the gradient g of one batch, G its mean: from batches at one point
 *     signal  |G|^2
 *     error   |estimate - G|^2 at the last point of a round, about a round's way from what is
 *             known: what is measured, without what noise adds to it
 *
 * Of the way of a round, (n - 1) / n lies between its first point and its last. An estimate's error
 * grows with the square of the way. So the next round takes the largest n with
 *
 *     error ((n - 1) / n)^2 <= noise n / N + signal / 4
 *
 * on the right the noise that a step's gradient has anyway, and a quarter of what is estimated.
 * Before both are known, n is 1.
 */
#ifndef CT_OPTEX_GUARD_H
#define CT_OPTEX_GUARD_H

#include <stdbool.h>
#include <stdint.h>

enum { CT_OPTEX_POINTS = 64 /* a round, at most */ };

/** What the gradients of a round have shown. */
typedef struct ct_optex_measure {
    int steps, batches; /* of the round; of a step */
    double noise;       /* of the gradient of one batch; below 0: its points have one batch each */
    double square;      /* |g|^2 of a step's gradient, the mean over the steps */
    double error;       /* |estimate - g|^2 at the last point; below 0: nothing was known */
    double echo;        /* of that estimate, how much of the noise of a gradient it has */
    double cosine[CT_OPTEX_POINTS]; /* of estimate and gradient at each point; 0: none */
} ct_optex_measure;

typedef struct ct_optex_guard {
    int parallel;               /* N */
    float noise, signal, error; /* means; no number: not known. A few may be below 0 by chance */
} ct_optex_guard;

ct_optex_guard ct_optex_guard_open(int parallel);
void ct_optex_guard_note(ct_optex_guard *g, const ct_optex_measure *m);
/** n of the next round. */
int ct_optex_guard_steps(const ct_optex_guard *g);
/** Round `round` has N steps from one point, for the noise: of every 16 rounds one. */
bool ct_optex_guard_probes(const ct_optex_guard *g, int64_t round);
/** Of the square of one batch's gradient, noise's share: 0 to 1; below 0: not known. */
double ct_optex_guard_noise_share(const ct_optex_guard *g);

#endif
