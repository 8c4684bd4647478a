/** @file update_math.h  The update rules: what each does to one element, and one list of all that
 * is known about them.
 *
 * The CPU's loops and the CUDA kernels (update_cpu.c, cuda/update_cuda.cu) are made of the same
 * lines here. The solver makes its table of rules of the list (framework/solver/update_rule.h).
 * docs/contributing.md, "An update rule", says how to add one.
 */
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

/** h = momentum h + rate g; w -= h. State: h. Solvers use ct_math_ops.sgd, which does the same. */
CT_UPDATE_FN void ct_update_sgd_at(const ct_update *u, int64_t i)
{
    float *h = u->state[0], *w = u->weight;
    float now = u->momentum * h[i] + u->rate * ct_update_gradient(u, u->grad[i], w[i]);

    h[i] = now;
    w[i] -= now;
}

/** Nesterov's momentum as Caffe has it: h' = momentum h + rate g; w -= (1 + momentum) h' - momentum
 * h. State: h. */
CT_UPDATE_FN void ct_update_nesterov_at(const ct_update *u, int64_t i)
{
    float *h = u->state[0], *w = u->weight;
    float old = h[i], now = u->momentum * old + u->rate * ct_update_gradient(u, u->grad[i], w[i]);

    h[i] = now;
    w[i] -= (1.0f + u->momentum) * now - u->momentum * old;
}

/** h += g^2; w -= rate g / (sqrt(h) + delta). State: h. */
CT_UPDATE_FN void ct_update_adagrad_at(const ct_update *u, int64_t i)
{
    float *h = u->state[0], *w = u->weight;
    float g = ct_update_gradient(u, u->grad[i], w[i]), sum = h[i] + g * g;

    h[i] = sum;
    w[i] -= u->rate * (g / (sqrtf(sum) + u->delta));
}

/** h = momentum2 h + (1 - momentum2) g^2; w -= rate g / (sqrt(h) + delta). State: h. */
CT_UPDATE_FN void ct_update_rmsprop_at(const ct_update *u, int64_t i)
{
    float *h = u->state[0], *w = u->weight, rest = 1.0f - u->momentum2;
    float g = ct_update_gradient(u, u->grad[i], w[i]), mean = u->momentum2 * h[i] + rest * (g * g);

    h[i] = mean;
    w[i] -= u->rate * (g / (sqrtf(mean) + u->delta));
}

/** h = momentum h + (1 - momentum) g^2; s = g sqrt((d + delta) / (h + delta)); d = momentum d + (1
 * - momentum) s^2; w -= rate s. State: h, d. */
CT_UPDATE_FN void ct_update_adadelta_at(const ct_update *u, int64_t i)
{
    float *h = u->state[0], *d = u->state[1], *w = u->weight, rest = 1.0f - u->momentum;
    float g = ct_update_gradient(u, u->grad[i], w[i]), mean = u->momentum * h[i] + rest * (g * g);
    float step = g * sqrtf((d[i] + u->delta) / (mean + u->delta));

    h[i] = mean;
    d[i] = u->momentum * d[i] + rest * (step * step);
    w[i] -= u->rate * step;
}

/** m = momentum m + (1 - momentum) g; v = momentum2 v + (1 - momentum2) g^2; w -= rate correction m
 * / (sqrt(v) + delta): delta is added before the bias is corrected, so correction is that of both.
 * State: m, v. */
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

/** As Adam, with the decay beside the mean instead of in it and delta added to the corrected root:
 * w -= rate (correction m / (sqrt(correction2 v) + delta) + decay_l2 w). State: m, v. */
CT_UPDATE_FN void ct_update_adamw_at(const ct_update *u, int64_t i)
{
    u->weight[i] -= u->rate * ct_update_moments_at(u, i);
}

/** h = momentum h + rate trust g; w -= h. State: h. */
CT_UPDATE_FN void ct_update_lars_at(const ct_update *u, int64_t i)
{
    float *h = u->state[0], *w = u->weight, rate = u->rate * u->trust;
    float step = u->momentum * h[i] + rate * ct_update_gradient(u, u->grad[i], w[i]);

    h[i] = step;
    w[i] -= step;
}

/** w -= rate trust r, r = correction m / (sqrt(correction2 v) + delta) + decay_l2 w, of the m and v
 * that the norms of the ratio have left (ct_update_norms()). State: m, v. */
CT_UPDATE_FN void ct_update_lamb_at(const ct_update *u, int64_t i)
{
    float *m = u->state[0], *v = u->state[1], *w = u->weight, rate = u->rate * u->trust;

    w[i] -= rate * ct_update_adam_step(u, m[i], v[i], w[i]);
}

/** Steps of one size by the sign of a mean, with the decay beside it: w -= rate (sign(momentum h +
 * (1
 * - momentum) g) + decay_l2 w), g without decay; then h = momentum2 h + (1 - momentum2) g. The sign
 * of 0 is 0. State: h. */
CT_UPDATE_FN void ct_update_lion_at(const ct_update *u, int64_t i)
{
    float *h = u->state[0], *w = u->weight, old = h[i], g = u->scale * u->grad[i];
    float mean = u->momentum * old + (1.0f - u->momentum) * g;
    float sign = (float)(mean > 0.0f) - (float)(mean < 0.0f);

    h[i] = u->momentum2 * old + (1.0f - u->momentum2) * g;
    w[i] -= u->rate * (sign + u->decay_l2 * w[i]);
}

/** The ratio of a parameter's norms, both above 0. LARS: You, Gitman, Ginsburg: Large Batch
 * Training of Convolutional Networks, 2017, eq. 6, `local` its factor. LAMB: You et al.: Large
 * Batch Optimization for Deep Learning, ICLR 2020, algorithm 2, phi(x) = x. */
CT_UPDATE_FN float ct_update_trust(ct_update_ratio ratio, double local, double decay, double weight,
                                   double step)
{
    if (ratio == CT_UPDATE_RATIO_STEP) return (float)(weight / step);
    return (float)(local * weight / (step + decay * weight));
}

/** A rule's name in C, its kind, and its facts: members of ct_update_rule in
 *  framework/solver/update_rule.h, which says what they mean. The first is the solver's default. */
/* clang-format off */
#define CT_UPDATE_LIST(X) \
    X(sgd, SGD, .type = "SGD", .n_state = 1, .state_name = { "momentum" }, \
      .reads = CT_UPDATE_MOMENTUM, .corrects = true, .apply = ct_update_sgd, \
      .formula = "h = m h + lr g; w -= h", .source = "Caffe") \
    X(nesterov, NESTEROV, .type = "Nesterov", .n_state = 1, .state_name = { "momentum" }, \
      .reads = CT_UPDATE_MOMENTUM, .corrects = true, .nesterov = true, \
      .formula = "h' = m h + lr g; w -= (1 + m) h' - m h", \
      .source = "Caffe; Sutskever et al. 2013") \
    X(adagrad, ADAGRAD, .type = "AdaGrad", .n_state = 1, .state_name = { "sum_square" }, \
      .reads = CT_UPDATE_DELTA, \
      .formula = "h += g^2; w -= lr g / (sqrt(h) + e)", \
      .source = "Caffe; Duchi, Hazan, Singer 2011") \
    X(rmsprop, RMSPROP, .type = "RMSProp", .n_state = 1, .state_name = { "mean_square" }, \
      .reads = CT_UPDATE_DELTA | CT_UPDATE_RMS_DECAY, \
      .formula = "h = r h + (1 - r) g^2; w -= lr g / (sqrt(h) + e)", \
      .source = "Caffe; Tieleman, Hinton 2012") \
    X(adadelta, ADADELTA, .type = "AdaDelta", .n_state = 2, \
      .state_name = { "mean_square", "mean_square_update" }, \
      .reads = CT_UPDATE_MOMENTUM | CT_UPDATE_DELTA, .means = true, \
      .formula = "h = m h + (1 - m) g^2; u = g sqrt((v + e) / (h + e)); " \
                 "v = m v + (1 - m) u^2; w -= lr u", \
      .source = "Caffe; Zeiler 2012") \
    X(adam, ADAM, .type = "Adam", .n_state = 2, .state_name = { "mean", "mean_square" }, \
      .reads = CT_UPDATE_MOMENTUM | CT_UPDATE_MOMENTUM2 | CT_UPDATE_DELTA, .means = true, \
      .joint = true, .freezes = true, \
      .formula = "h = m h + (1 - m) g; v = m2 v + (1 - m2) g^2; " \
                 "w -= lr sqrt(1 - m2^t) / (1 - m^t) h / (sqrt(v) + e)", \
      .source = "Caffe (e is added to the plain root); Kingma, Ba 2015") \
    X(adamw, ADAMW, .type = "AdamW", .n_state = 2, .state_name = { "mean", "mean_square" }, \
      .reads = CT_UPDATE_MOMENTUM | CT_UPDATE_MOMENTUM2 | CT_UPDATE_DELTA, .means = true, \
      .own = true, .freezes = true, \
      .formula = "h, v as Adam, of g without decay; h^ = h / (1 - m^t), v^ = v / (1 - m2^t); " \
                 "w -= lr (h^ / (sqrt(v^) + e) + d w)", \
      .source = "Loshchilov, Hutter: Decoupled Weight Decay Regularization, 2019, algorithm 2") \
    X(lars, LARS, .type = "LARS", .n_state = 1, .state_name = { "momentum" }, \
      .reads = CT_UPDATE_MOMENTUM | CT_UPDATE_LOCAL_RATIO, .own = true, \
      .ratio = CT_UPDATE_RATIO_GRADIENT, \
      .formula = "q = c \\|w\\| / (\\|g0\\| + d \\|w\\|), g0 without decay; " \
                 "h = m h + lr q g; w -= h", \
      .source = "You, Gitman, Ginsburg: Large Batch Training of Convolutional Networks, 2017, " \
                "eq. 6 and algorithm 1") \
    X(lamb, LAMB, .type = "LAMB", .n_state = 2, .state_name = { "mean", "mean_square" }, \
      .reads = CT_UPDATE_MOMENTUM | CT_UPDATE_MOMENTUM2 | CT_UPDATE_DELTA, .means = true, \
      .own = true, .ratio = CT_UPDATE_RATIO_STEP, \
      .formula = "h^, v^ as AdamW; r = h^ / (sqrt(v^) + e) + d w; w -= lr \\|w\\| / \\|r\\| r", \
      .source = "You et al.: Large Batch Optimization for Deep Learning, 2020, algorithm 2, " \
                "phi(x) = x") \
    X(lion, LION, .type = "Lion", .n_state = 1, .state_name = { "mean" }, \
      .reads = CT_UPDATE_MOMENTUM | CT_UPDATE_MOMENTUM2, .means = true, .own = true, \
      .formula = "w -= lr (sign(m h + (1 - m) g) + d w), g without decay; " \
                 "h = m2 h + (1 - m2) g; m2 = 0.99 is usual", \
      .source = "Chen et al.: Symbolic Discovery of Optimization Algorithms, 2023, algorithm 2")
/* clang-format on */

#define CT_UPDATE_KIND(_name, _kind, ...) CT_UPDATE_##_kind,
/** What kernels know a rule by; CT_UPDATE_N: how many there are. */
typedef enum { CT_UPDATE_LIST(CT_UPDATE_KIND) CT_UPDATE_N } ct_update_kind;
#undef CT_UPDATE_KIND

#endif
