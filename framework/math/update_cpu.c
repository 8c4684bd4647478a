/* The update rules: an OpenMP loop over blocks, and per rule one block function that the compiler
 * vectorises (with CFLAGS_update_cpu, which make sqrtf an instruction). */
#include "framework/math/update.h"

#include <math.h>
#include <omp.h>

#include "framework/base/simd.h"

enum {
    BLOCK = 4096,    /* elements: four operands fit into a first-level cache */
    TEAM_MIN = 65536 /* below this a team costs more than it brings          */
};

/* The block [from, from + n) of an update. */
static ct_update block_of(const ct_update *u, int64_t from)
{
    ct_update b = *u;

    b.count = (u->count - from < BLOCK) ? u->count - from : BLOCK;
    b.grad += from;
    b.weight += from;
    for (int i = 0; i < 2; i++)
        if (b.state[i] != NULL) b.state[i] += from;
    return b;
}

static ct_status run(const ct_update *u, void (*block)(ct_update b))
{
#pragma omp parallel for schedule(static) if ((u->count >= TEAM_MIN) && !omp_in_parallel())
    for (int64_t i = 0; i < u->count; i += BLOCK) block(block_of(u, i));
    return CT_OK;
}

/* Clipped, divided by iter_size, regularised; u is the block's own copy, so that the compiler knows
 * that no store changes it. */
CT_SIMD_PART float gradient(const ct_update *u, float grad, float w)
{
    float sign = (float)(w > 0.0f) - (float)(w < 0.0f);

    return u->scale * grad + u->decay_l2 * w + u->decay_l1 * sign;
}

CT_SIMD_CLONES static void nesterov_block(ct_update u)
{
    float *h = u.state[0], *w = u.weight;

#pragma omp simd
    for (int64_t i = 0; i < u.count; i++) {
        float old = h[i], now = u.momentum * old + u.rate * gradient(&u, u.grad[i], w[i]);

        h[i] = now;
        w[i] -= (1.0f + u.momentum) * now - u.momentum * old;
    }
}

CT_SIMD_CLONES static void adagrad_block(ct_update u)
{
    float *h = u.state[0], *w = u.weight;

#pragma omp simd
    for (int64_t i = 0; i < u.count; i++) {
        float g = gradient(&u, u.grad[i], w[i]), sum = h[i] + g * g;

        h[i] = sum;
        w[i] -= u.rate * (g / (sqrtf(sum) + u.delta));
    }
}

CT_SIMD_CLONES static void rmsprop_block(ct_update u)
{
    float *h = u.state[0], *w = u.weight, rest = 1.0f - u.momentum2;

#pragma omp simd
    for (int64_t i = 0; i < u.count; i++) {
        float g = gradient(&u, u.grad[i], w[i]), mean = u.momentum2 * h[i] + rest * (g * g);

        h[i] = mean;
        w[i] -= u.rate * (g / (sqrtf(mean) + u.delta));
    }
}

CT_SIMD_CLONES static void adadelta_block(ct_update u)
{
    float *h = u.state[0], *d = u.state[1], *w = u.weight, rest = 1.0f - u.momentum;

#pragma omp simd
    for (int64_t i = 0; i < u.count; i++) {
        float g = gradient(&u, u.grad[i], w[i]), mean = u.momentum * h[i] + rest * (g * g);
        float step = g * sqrtf((d[i] + u.delta) / (mean + u.delta));

        h[i] = mean;
        d[i] = u.momentum * d[i] + rest * (step * step);
        w[i] -= u.rate * step;
    }
}

CT_SIMD_CLONES static void adam_block(ct_update u)
{
    float *m = u.state[0], *v = u.state[1], *w = u.weight;
    float rest = 1.0f - u.momentum, rest2 = 1.0f - u.momentum2, rate = u.rate * u.correction;

#pragma omp simd
    for (int64_t i = 0; i < u.count; i++) {
        float g = gradient(&u, u.grad[i], w[i]);
        float mean = u.momentum * m[i] + rest * g, square = u.momentum2 * v[i] + rest2 * (g * g);

        m[i] = mean;
        v[i] = square;
        w[i] -= rate * (mean / (sqrtf(square) + u.delta));
    }
}

/* What AdamW and LAMB take a share of. */
CT_SIMD_PART float adam_step(const ct_update *u, float mean, float square, float w)
{
    return u->correction * mean / (sqrtf(u->correction2 * square) + u->delta) + u->decay_l2 * w;
}

CT_SIMD_CLONES static void adamw_block(ct_update u)
{
    float *m = u.state[0], *v = u.state[1], *w = u.weight;
    float rest = 1.0f - u.momentum, rest2 = 1.0f - u.momentum2;

#pragma omp simd
    for (int64_t i = 0; i < u.count; i++) {
        float g = u.scale * u.grad[i];
        float mean = u.momentum * m[i] + rest * g, square = u.momentum2 * v[i] + rest2 * (g * g);

        m[i] = mean;
        v[i] = square;
        w[i] -= u.rate * adam_step(&u, mean, square, w[i]);
    }
}

CT_SIMD_CLONES static void lars_block(ct_update u)
{
    float *h = u.state[0], *w = u.weight, rate = u.rate * u.trust;

#pragma omp simd
    for (int64_t i = 0; i < u.count; i++) {
        float step = u.momentum * h[i] + rate * gradient(&u, u.grad[i], w[i]);

        h[i] = step;
        w[i] -= step;
    }
}

CT_SIMD_CLONES static void lamb_block(ct_update u)
{
    float *m = u.state[0], *v = u.state[1], *w = u.weight, rate = u.rate * u.trust;

#pragma omp simd
    for (int64_t i = 0; i < u.count; i++) w[i] -= rate * adam_step(&u, m[i], v[i], w[i]);
}

ct_status ct_update_nesterov(const ct_update *u)
{
    return run(u, nesterov_block);
}

ct_status ct_update_adagrad(const ct_update *u)
{
    return run(u, adagrad_block);
}

ct_status ct_update_rmsprop(const ct_update *u)
{
    return run(u, rmsprop_block);
}

ct_status ct_update_adadelta(const ct_update *u)
{
    return run(u, adadelta_block);
}

ct_status ct_update_adam(const ct_update *u)
{
    return run(u, adam_block);
}

ct_status ct_update_adamw(const ct_update *u)
{
    return run(u, adamw_block);
}

ct_status ct_update_lars(const ct_update *u)
{
    return run(u, lars_block);
}

ct_status ct_update_lamb(const ct_update *u)
{
    return run(u, lamb_block);
}

ct_status ct_update_lars_norms(const ct_update *u, double *weight_p, double *step_p)
{
    double grad = 0.0;

    CT_TRY(u->dev->math->sumsq(NULL, u->count, u->weight, weight_p));
    CT_TRY(u->dev->math->sumsq(NULL, u->count, u->grad, &grad));
    *step_p = (double)u->scale * (double)u->scale * grad;
    return CT_OK;
}

enum { N_LANE = 16 };

/* Sums side by side, whatever the vector width. */
CT_SIMD_CLONES static void lamb_norms_block(ct_update u, double *weight_p, double *step_p)
{
    float *m = u.state[0], *v = u.state[1];
    float rest = 1.0f - u.momentum, rest2 = 1.0f - u.momentum2;
    double weight[N_LANE] = { 0.0 }, step[N_LANE] = { 0.0 };

    for (int64_t from = 0; from < u.count; from += N_LANE) {
        int n = (u.count - from < N_LANE) ? (int)(u.count - from) : N_LANE;

#pragma omp simd
        for (int j = 0; j < n; j++) {
            int64_t i = from + j;
            float w = u.weight[i], g = u.scale * u.grad[i], r;
            float mean = u.momentum * m[i] + rest * g;
            float square = u.momentum2 * v[i] + rest2 * (g * g);

            m[i] = mean;
            v[i] = square;
            r = adam_step(&u, mean, square, w);
            weight[j] += (double)w * (double)w;
            step[j] += (double)r * (double)r;
        }
    }
    for (int j = 0; j < N_LANE; j++) {
        *weight_p += weight[j];
        *step_p += step[j];
    }
}

ct_status ct_update_lamb_norms(const ct_update *u, double *weight_p, double *step_p)
{
    enum { AT_ONCE = 256 }; /* blocks whose sums wait for their turn */
    double weight = 0.0, step = 0.0;

    for (int64_t from = 0; from < u->count; from += (int64_t)AT_ONCE * BLOCK) {
        double part[AT_ONCE][2] = { { 0.0 } };
        int64_t left = (u->count - from + BLOCK - 1) / BLOCK;
        int n = (left < AT_ONCE) ? (int)left : AT_ONCE;

#pragma omp parallel for schedule(static) if ((n * (int64_t)BLOCK >= TEAM_MIN) &&                  \
                                              !omp_in_parallel())
        for (int b = 0; b < n; b++)
            lamb_norms_block(block_of(u, from + (int64_t)b * BLOCK), &part[b][0], &part[b][1]);
        for (int b = 0; b < n; b++) {
            weight += part[b][0];
            step += part[b][1];
        }
    }
    *weight_p = weight;
    *step_p = step;
    return CT_OK;
}
