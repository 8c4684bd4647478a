/** @file neuron.h  Functions of one number, as loops over arrays; private to layers/. Which there
 * are: neuron_math.h.
 *
 * Each is y = f(x) and its slope as a function of x or of y. Those whose slope follows from y need
 * no x in backward, so they run in place as they are. All on the host. The results depend neither
 * on the number of threads nor on the place in the array.
 *
 * Rows may get a bias on the way, one number a column: then the pass that makes the gradients sums
 * those of the bias, too. A fully connected layer needs no passes of its own for it.
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
    /** On the calling thread. y may be x. */
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

/** rows x n numbers. */
typedef struct ct_neuron_rows {
    int64_t rows, n;
    const float *x;    /* of backward: x or y, as the function's `reads` says           */
    const float *bias; /* [n], added to each row of x first; f32 alone. NULL: nothing is */
    bool bf16;         /* x, y, dy and dx: addresses of bf16 numbers, computed in f32    */
} ct_neuron_rows;

/** By the team. y may be x. */
void ct_neuron_forward(const ct_neuron_state *s, const ct_neuron_rows *r, float *y);
/** One row of bf16 numbers on the calling thread. */
void ct_neuron_row(const ct_neuron_state *s, int64_t n, const float *x, float *y);

typedef struct ct_neuron_back {
    const float *dy;
    float *dx;    /* may be dy or x                                                  */
    float *dbias; /* [n]: beta dbias + the sums of dx down the columns, of at most four floats,
                   * then in double. NULL: unwanted                                  */
    float beta;
    double *part; /* ct_neuron_part_bytes(), with dbias */
} ct_neuron_back;

size_t ct_neuron_part_bytes(int64_t rows, int64_t n);
void ct_neuron_backward(const ct_neuron_state *s, const ct_neuron_rows *r, const ct_neuron_back *b);

#endif
