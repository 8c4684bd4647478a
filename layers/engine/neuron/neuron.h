/** @file neuron.h  Functions of one number, as loops over arrays; private to layers/. Which there
 * are: neuron_math.h.
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

#endif
