/** @file neuron.h  Functions of one number, as loops over arrays; private to layers/.
 *
 * Each is y = f(x) and its slope as a function of x or of y. Those whose slope follows from y need
 * no x in backward, so they run in place as they are. All on the host. The results depend neither
 * on the number of threads nor on the place in the array.
 */
#ifndef CT_ENGINE_NEURON_NEURON_H
#define CT_ENGINE_NEURON_NEURON_H

#include "framework/net/layer.h"

/** Constants of a function; which are used stands beside it. */
typedef struct ct_neuron_args {
    float a, b, c, d;
} ct_neuron_args;

typedef struct ct_neuron {
    int reads; /* what the slope is a function of: CT_READS_BOTTOM, CT_READS_TOP, 0: of neither */
    /** y may be x. */
    void (*forward)(const ct_neuron_args *k, int64_t n, const float *x, float *y);
    /** dx = dy f'; v: x or y, as `reads` says. dx may be dy. NULL: no gradient passes. */
    void (*backward)(const ct_neuron_args *k, int64_t n, const float *v, const float *dy,
                     float *dx);
} ct_neuron;

/** What a layer of a function is: setup chooses. Its buffer CT_NEURON_INPUT is the bottom, where it
 *  works in place and backward reads that. */
typedef struct ct_neuron_state {
    const ct_neuron *fn;
    ct_neuron_args args;
} ct_neuron_state;
enum { CT_NEURON_INPUT };

#ifdef __cplusplus
extern "C" {
#endif

extern const ct_neuron ct_neuron_abs;       /* |x|, slope 0 at 0                       */
extern const ct_neuron ct_neuron_bnll;      /* ln(1 + e^x)                             */
extern const ct_neuron ct_neuron_clip;      /* x kept in [a, b]; slope 1 there, else 0 */
extern const ct_neuron ct_neuron_constant;  /* a                                       */
extern const ct_neuron ct_neuron_elu;       /* x above 0, else a (e^x - 1); a >= 0     */
extern const ct_neuron ct_neuron_elu_below; /* the same, for every a                   */
extern const ct_neuron ct_neuron_exp;       /* b e^(a x)                               */
extern const ct_neuron ct_neuron_gelu;      /* x Phi(x), of the normal distribution    */
extern const ct_neuron ct_neuron_gelu_tanh;
extern const ct_neuron ct_neuron_log; /* c ln(a x + b)                           */
extern const ct_neuron ct_neuron_mish;
/* (a x + b)^c, d = a c; and for c = 1, 2, 1/2, -1/2, -1 */
extern const ct_neuron ct_neuron_power, ct_neuron_affine, ct_neuron_square, ct_neuron_root,
    ct_neuron_inverse_root, ct_neuron_inverse;
extern const ct_neuron ct_neuron_relu6; /* x kept in [0, 6], plus a x below 0; a >= 0  */
extern const ct_neuron ct_neuron_sigmoid;
extern const ct_neuron ct_neuron_swish; /* x / (1 + e^(-a x))                      */
extern const ct_neuron ct_neuron_tanh;
extern const ct_neuron ct_neuron_threshold; /* 1 above a, else 0                       */

#ifdef __cplusplus
}
#endif

#endif
