/* The update rules: an OpenMP loop over blocks, and per rule one block function that the compiler
 * vectorises (with CFLAGS_update_cpu, which make sqrtf an instruction). What they do to an element
 * is in update_math.h. And what callers of all devices see. */
#include "framework/math/update_math.h"

#include <omp.h>

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

#define BLOCK_OF(_name, _kind, ...)                                                                \
    CT_SIMD_CLONES static void _name##_block(ct_update u)                                          \
    {                                                                                              \
        _Pragma("omp simd") for (int64_t i = 0; i < u.count; i++) ct_update_##_name##_at(&u, i);   \
    }
CT_UPDATE_LIST(BLOCK_OF)

#define ROW_OF(_name, _kind, ...) [CT_UPDATE_##_kind] = _name##_block,
ct_status ct_update_cpu(ct_stream st, int kind, const ct_update *u)
{
    static void (*const block[])(ct_update b) = { CT_UPDATE_LIST(ROW_OF) };

    (void)st;
    return run(u, block[kind]);
}

ct_status ct_update_sgd(const ct_update *u)
{
    return u->dev->math->sgd(NULL, u->count, u->scale, u->rate, u->momentum, u->decay_l2,
                             u->decay_l1, u->grad, u->state[0], u->weight);
}

ct_status ct_update_norms(ct_update_ratio ratio, const ct_update *u, double *weight_p,
                          double *step_p)
{
    double grad = 0.0;

    if (ratio == CT_UPDATE_RATIO_STEP) return u->dev->math->lamb_norms(NULL, u, weight_p, step_p);
    CT_TRY(u->dev->math->sumsq(NULL, u->count, u->weight, weight_p));
    CT_TRY(u->dev->math->sumsq(NULL, u->count, u->grad, &grad));
    *step_p = (double)u->scale * (double)u->scale * grad;
    return CT_OK;
}

enum { N_LANE = 16 };

/* Sums side by side, whatever the vector width. */
CT_SIMD_CLONES static void lamb_norms_block(ct_update u, double *weight_p, double *step_p)
{
    double weight[N_LANE] = { 0.0 }, step[N_LANE] = { 0.0 };

    for (int64_t from = 0; from < u.count; from += N_LANE) {
        int n = (u.count - from < N_LANE) ? (int)(u.count - from) : N_LANE;

#pragma omp simd
        for (int j = 0; j < n; j++) {
            int64_t i = from + j;
            float w = u.weight[i], r = ct_update_moments_at(&u, i);

            weight[j] += (double)w * (double)w;
            step[j] += (double)r * (double)r;
        }
    }
    for (int j = 0; j < N_LANE; j++) {
        *weight_p += weight[j];
        *step_p += step[j];
    }
}

ct_status ct_update_cpu_lamb_norms(ct_stream st, const ct_update *u, double *weight_p,
                                   double *step_p)
{
    enum { AT_ONCE = 256 }; /* blocks whose sums wait for their turn */
    double weight = 0.0, step = 0.0;

    (void)st;
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
