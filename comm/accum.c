/* The update of momentum and residual. Five streams (six with decay) for a handful of operations:
 * all that matters is that they are read and written once. */
#include <omp.h>

#include "comm/select_impl.h"
#include "framework/base/simd.h"

enum { MIN_PER_THREAD = 1 << 16 }; /* elements */

#define INLINE static inline __attribute__((always_inline))

typedef struct factors {
    float scale, rate, momentum, decay, carry;
} factors;

INLINE void update(int64_t n, factors f, bool decays, bool nesterov, const float *restrict g,
                   const float *restrict w, float *restrict u, float *restrict v)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        float scaled = f.rate * (decays ? f.scale * g[i] + f.decay * w[i] : f.scale * g[i]);
        float step = f.momentum * u[i] + scaled;

        u[i] = step;
        v[i] = f.carry * v[i] + (nesterov ? f.momentum * step + scaled : step);
    }
}

CT_SIMD_CLONES static void update_plain(int64_t n, factors f, const float *g, float *u, float *v)
{
    update(n, f, false, false, g, NULL, u, v);
}

CT_SIMD_CLONES static void update_decay(int64_t n, factors f, const float *g, const float *w,
                                        float *u, float *v)
{
    update(n, f, true, false, g, w, u, v);
}

CT_SIMD_CLONES static void nesterov_plain(int64_t n, factors f, const float *g, float *u, float *v)
{
    update(n, f, false, true, g, NULL, u, v);
}

CT_SIMD_CLONES static void nesterov_decay(int64_t n, factors f, const float *g, const float *w,
                                          float *u, float *v)
{
    update(n, f, true, true, g, w, u, v);
}

CT_SIMD_CLONES static void residual_only(int64_t n, float scale, const float *g, float *v)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) v[i] += scale * g[i];
}

CT_SIMD_CLONES static void take_all(int64_t n, float *v, float *out)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        out[i] = v[i];
        v[i] = 0.0f;
    }
}

void ct_accum_block(const ct_accum *a, int64_t first, int64_t n)
{
    factors f = { a->scale, a->rate, a->momentum, a->decay, (a->carry != 0) ? a->carry : 1.0f };
    const float *g = a->grad + first;
    float *v = a->v + first;

    if (a->u == NULL)
        residual_only(n, a->scale, g, v);
    else if ((a->weight != NULL) && a->nesterov)
        nesterov_decay(n, f, g, a->weight + first, a->u + first, v);
    else if (a->weight != NULL)
        update_decay(n, f, g, a->weight + first, a->u + first, v);
    else if (a->nesterov)
        nesterov_plain(n, f, g, a->u + first, v);
    else
        update_plain(n, f, g, a->u + first, v);
}

int ct_accum_team(const ct_accum *a)
{
    int64_t useful = a->n / MIN_PER_THREAD + 1;
    int team = (a->n_thread > 0) ? a->n_thread : omp_get_max_threads();

    if (omp_in_parallel()) return 1;
    return (useful < team) ? (int)useful : team;
}

/* Block by block also where nothing looks at the blocks: the streams are the same as those of the
 * selections, and out may be the gradient itself. */
static void all_blocks(const ct_accum *a, float *out)
{
    int64_t n_block = (a->n + CT_SELECT_BLOCK - 1) / CT_SELECT_BLOCK;
    int team = ct_accum_team(a);

#pragma omp parallel for schedule(static) num_threads(team) if (team > 1)
    for (int64_t b = 0; b < n_block; ++b) {
        int64_t first = b * CT_SELECT_BLOCK;
        int64_t n = (a->n - first < CT_SELECT_BLOCK) ? a->n - first : CT_SELECT_BLOCK;

        ct_accum_block(a, first, n);
        if (out != NULL) take_all(n, a->v + first, out + first);
    }
}

void ct_accum_run(const ct_accum *a)
{
    all_blocks(a, NULL);
}

void ct_accum_all(const ct_accum *a, float *out)
{
    all_blocks(a, out);
}

double ct_accum_square(const float *v, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; ++i) sum += (double)v[i] * v[i];
    return sum;
}
