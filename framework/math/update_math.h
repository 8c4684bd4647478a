/** @file update_math.h  What the update rules (update.h) do to one element: the CPU's loops and the
 * CUDA kernels are made of the same lines. */
#ifndef CT_UPDATE_MATH_H
#define CT_UPDATE_MATH_H

#include <math.h>

#include "framework/base/simd.h"
#include "framework/math/update.h"

#ifdef __CUDACC__
#define CT_UPDATE_FN CT_HD static inline
#else
#define CT_UPDATE_FN CT_SIMD_PART
#endif

/** Clipped, divided by iter_size, regularised. */
CT_UPDATE_FN float ct_update_gradient(const ct_update *u, float grad, float w)
{
    float sign = (float)(w > 0.0f) - (float)(w < 0.0f);

    return u->scale * grad + u->decay_l2 * w + u->decay_l1 * sign;
}

CT_UPDATE_FN void ct_update_sgd_at(const ct_update *u, int64_t i)
{
    float *h = u->state[0], *w = u->weight;
    float now = u->momentum * h[i] + u->rate * ct_update_gradient(u, u->grad[i], w[i]);

    h[i] = now;
    w[i] -= now;
}

CT_UPDATE_FN void ct_update_nesterov_at(const ct_update *u, int64_t i)
{
    float *h = u->state[0], *w = u->weight;
    float old = h[i], now = u->momentum * old + u->rate * ct_update_gradient(u, u->grad[i], w[i]);

    h[i] = now;
    w[i] -= (1.0f + u->momentum) * now - u->momentum * old;
}

CT_UPDATE_FN void ct_update_adagrad_at(const ct_update *u, int64_t i)
{
    float *h = u->state[0], *w = u->weight;
    float g = ct_update_gradient(u, u->grad[i], w[i]), sum = h[i] + g * g;

    h[i] = sum;
    w[i] -= u->rate * (g / (sqrtf(sum) + u->delta));
}

CT_UPDATE_FN void ct_update_rmsprop_at(const ct_update *u, int64_t i)
{
    float *h = u->state[0], *w = u->weight, rest = 1.0f - u->momentum2;
    float g = ct_update_gradient(u, u->grad[i], w[i]), mean = u->momentum2 * h[i] + rest * (g * g);

    h[i] = mean;
    w[i] -= u->rate * (g / (sqrtf(mean) + u->delta));
}

CT_UPDATE_FN void ct_update_adadelta_at(const ct_update *u, int64_t i)
{
    float *h = u->state[0], *d = u->state[1], *w = u->weight, rest = 1.0f - u->momentum;
    float g = ct_update_gradient(u, u->grad[i], w[i]), mean = u->momentum * h[i] + rest * (g * g);
    float step = g * sqrtf((d[i] + u->delta) / (mean + u->delta));

    h[i] = mean;
    d[i] = u->momentum * d[i] + rest * (step * step);
    w[i] -= u->rate * step;
}

CT_UPDATE_FN void ct_update_adam_at(const ct_update *u, int64_t i)
{
    float *m = u->state[0], *v = u->state[1], *w = u->weight, rate = u->rate * u->correction;
    float rest = 1.0f - u->momentum, rest2 = 1.0f - u->momentum2;
    float g = ct_update_gradient(u, u->grad[i], w[i]);
    float mean = u->momentum * m[i] + rest * g, square = u->momentum2 * v[i] + rest2 * (g * g);

    m[i] = mean;
    v[i] = square;
    w[i] -= rate * (mean / (sqrtf(square) + u->delta));
}

/** What AdamW and LAMB take a share of. */
CT_UPDATE_FN float ct_update_adam_step(const ct_update *u, float mean, float square, float w)
{
    return u->correction * mean / (sqrtf(u->correction2 * square) + u->delta) + u->decay_l2 * w;
}

/** m and v move on by the gradient without decay; returns the step. */
CT_UPDATE_FN float ct_update_moments_at(const ct_update *u, int64_t i)
{
    float *m = u->state[0], *v = u->state[1], g = u->scale * u->grad[i];
    float rest = 1.0f - u->momentum, rest2 = 1.0f - u->momentum2;
    float mean = u->momentum * m[i] + rest * g, square = u->momentum2 * v[i] + rest2 * (g * g);

    m[i] = mean;
    v[i] = square;
    return ct_update_adam_step(u, mean, square, u->weight[i]);
}

CT_UPDATE_FN void ct_update_adamw_at(const ct_update *u, int64_t i)
{
    u->weight[i] -= u->rate * ct_update_moments_at(u, i);
}

CT_UPDATE_FN void ct_update_lars_at(const ct_update *u, int64_t i)
{
    float *h = u->state[0], *w = u->weight, rate = u->rate * u->trust;
    float step = u->momentum * h[i] + rate * ct_update_gradient(u, u->grad[i], w[i]);

    h[i] = step;
    w[i] -= step;
}

CT_UPDATE_FN void ct_update_lamb_at(const ct_update *u, int64_t i)
{
    float *m = u->state[0], *v = u->state[1], *w = u->weight, rate = u->rate * u->trust;

    w[i] -= rate * ct_update_adam_step(u, m[i], v[i], w[i]);
}

/** The ratio of a parameter's norms, both above 0. LARS: You, Gitman, Ginsburg: Large Batch
 * Training of Convolutional Networks, 2017, eq. 6, `local` its factor. LAMB: You et al.: Large
 * Batch Optimization for Deep Learning, ICLR 2020, algorithm 2, phi(x) = x. */
CT_UPDATE_FN float ct_update_trust(int kind, double local, double decay, double weight, double step)
{
    if (kind == CT_UPDATE_LAMB) return (float)(weight / step);
    return (float)(local * weight / (step + decay * weight));
}

/** X(name, kind). */
#define CT_UPDATE_LIST(X)                                                                          \
    X(sgd, CT_UPDATE_SGD)                                                                          \
    X(nesterov, CT_UPDATE_NESTEROV)                                                                \
    X(adagrad, CT_UPDATE_ADAGRAD)                                                                  \
    X(rmsprop, CT_UPDATE_RMSPROP)                                                                  \
    X(adadelta, CT_UPDATE_ADADELTA)                                                                \
    X(adam, CT_UPDATE_ADAM)                                                                        \
    X(adamw, CT_UPDATE_ADAMW)                                                                      \
    X(lars, CT_UPDATE_LARS)                                                                        \
    X(lamb, CT_UPDATE_LAMB)

#endif
