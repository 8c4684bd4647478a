/* The update of momentum and residual. Five streams (six with decay) for a handful of operations:
 * all that matters is that they are read and written once. */
#include <omp.h>

#include "comm/codec/momentum_correction_math.h"
#include "comm/codec/select_impl.h"
#include "framework/base/simd.h"
#include "framework/math/math.h"

enum { TEAM_MIN = 1 << 16 }; /* elements */

#define INLINE static inline __attribute__((always_inline))

typedef ct_momentum_correction_factors factors;

INLINE void update(int64_t n, factors f, bool decays, bool nesterov, const float *restrict g,
                   const float *restrict w, float *restrict u, float *restrict v)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        float step =
            ct_momentum_correction_step(f, decays, nesterov, g[i], decays ? w[i] : 0.0f, &u[i]);

        v[i] = ct_momentum_correction_keep(f.carry, v[i], step);
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
    for (int64_t i = 0; i < n; ++i) v[i] += ct_momentum_correction_plain(scale, g[i]);
}

CT_SIMD_CLONES static void residual_and_mean(int64_t n, float scale, const float *g, float shift,
                                             const float *mean, float *v)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i)
        v[i] += ct_momentum_correction_plain(scale, g[i]) +
                ct_momentum_correction_plain(shift, mean[i]);
}

CT_SIMD_CLONES static void take_all(int64_t n, float *v, float *out)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        out[i] = v[i];
        v[i] = 0.0f;
    }
}

ct_momentum_correction ct_momentum_correction_part(const ct_momentum_correction *a, int64_t first,
                                                   int64_t n)
{
    ct_momentum_correction part = *a;

    part.grad += first;
    if (part.weight != NULL) part.weight += first;
    if (part.u != NULL) part.u += first;
    if (part.mean != NULL) part.mean += first;
    part.v += first;
    part.n = n;
    part.n_thread = 1;
    return part;
}

void ct_momentum_correction_block(const ct_momentum_correction *a, int64_t first, int64_t n)
{
    factors f = { a->scale, a->rate, a->momentum, a->decay, (a->carry != 0) ? a->carry : 1.0f };
    const float *g = a->grad + first;
    float *v = a->v + first;

    if ((a->u == NULL) && (a->mean != NULL))
        residual_and_mean(n, a->scale, g, a->shift, a->mean + first, v);
    else if (a->u == NULL)
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

int ct_momentum_correction_team(const ct_momentum_correction *a)
{
    int team = (a->n_thread > 0) ? a->n_thread : omp_get_max_threads();

    if (omp_in_parallel()) return 1;
    return (a->n >= TEAM_MIN) ? team : 1;
}

/* Block by block also where nothing looks at the blocks: the streams are the same as those of the
 * selections, and out may be the gradient itself. */
static void all_blocks(const ct_momentum_correction *a, float *out)
{
    int64_t n_block = (a->n + CT_SELECT_BLOCK - 1) / CT_SELECT_BLOCK;
    int team = ct_momentum_correction_team(a);

#pragma omp parallel for schedule(static) num_threads(team) if (team > 1)
    for (int64_t b = 0; b < n_block; ++b) {
        int64_t first = b * CT_SELECT_BLOCK;
        int64_t n = (a->n - first < CT_SELECT_BLOCK) ? a->n - first : CT_SELECT_BLOCK;

        ct_momentum_correction_block(a, first, n);
        if (out != NULL) take_all(n, a->v + first, out + first);
    }
}

void ct_momentum_correction_run(const ct_momentum_correction *a)
{
    all_blocks(a, NULL);
}

void ct_momentum_correction_all(const ct_momentum_correction *a, float *out)
{
    all_blocks(a, out);
}

/* What this step adds goes to out, what was there before stays in v, in this step's rate. */
CT_SIMD_CLONES static void part(int64_t n, float carry, const float *step, float *v, float *out,
                                double sum[2])
{
    double own = 0, before = 0;

#pragma omp simd reduction(+ : own, before)
    for (int64_t i = 0; i < n; ++i) {
        v[i] *= carry;
        out[i] = step[i];
        own += (double)step[i] * step[i];
        before += (double)v[i] * v[i];
    }
    sum[0] += own;
    sum[1] += before;
}

static void apart_block(const ct_momentum_correction *a, int64_t first, int64_t n, float *out,
                        double sum[2])
{
    float step[CT_SELECT_BLOCK] = { 0 };
    ct_momentum_correction own = ct_momentum_correction_part(a, first, n);

    own.v = step;
    own.carry = 1.0f;
    ct_momentum_correction_block(&own, 0, n);
    part(n, ((a->u != NULL) && (a->carry != 0)) ? a->carry : 1.0f, step, a->v + first, out + first,
         sum);
}

/* Sums of parts that do not hang on the number of threads. */
void ct_momentum_correction_apart(const ct_momentum_correction *a, float *out, double sum[2])
{
    enum { PARTS = 64 };
    int64_t n_block = (a->n + CT_SELECT_BLOCK - 1) / CT_SELECT_BLOCK;
    int team = ct_momentum_correction_team(a);
    double of[PARTS][2] = { { 0 } };

#pragma omp parallel for schedule(static) num_threads(team) if (team > 1)
    for (int p = 0; p < PARTS; ++p) {
        for (int64_t b = n_block * p / PARTS; b < n_block * (p + 1) / PARTS; ++b) {
            int64_t first = b * CT_SELECT_BLOCK;
            int64_t n = (a->n - first < CT_SELECT_BLOCK) ? a->n - first : CT_SELECT_BLOCK;

            apart_block(a, first, n, out, of[p]);
        }
    }
    sum[0] = sum[1] = 0;
    for (int p = 0; p < PARTS; ++p) {
        sum[0] += of[p][0];
        sum[1] += of[p][1];
    }
}

bool ct_momentum_correction_holds(const float *v, int64_t n)
{
    for (int64_t i = 0; i < n; ++i) {
        if (v[i] != 0) return true;
    }
    return false;
}

CT_SIMD_CLONES static void send_block(int64_t n, float share, float *v, float *out)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        float sent = share * v[i];

        out[i] += sent;
        v[i] -= sent;
    }
}

void ct_momentum_correction_send(const ct_momentum_correction *a, float share, float *out)
{
    int64_t n_block = (a->n + CT_SELECT_BLOCK - 1) / CT_SELECT_BLOCK;
    int team = ct_momentum_correction_team(a);

#pragma omp parallel for schedule(static) num_threads(team) if (team > 1)
    for (int64_t b = 0; b < n_block; ++b) {
        int64_t first = b * CT_SELECT_BLOCK;
        int64_t n = (a->n - first < CT_SELECT_BLOCK) ? a->n - first : CT_SELECT_BLOCK;

        send_block(n, share, a->v + first, out + first);
    }
}

double ct_momentum_correction_square(const float *v, int64_t n, int n_thread)
{
    return ct_sumsq_by(n, v, n_thread);
}

float ct_momentum_correction_limit(const float *v, int64_t n, double limit, int n_thread)
{
    double norm = sqrt(ct_momentum_correction_square(v, n, n_thread));

    return ((norm > limit) && isfinite(norm)) ? (float)(limit / norm) : 1.0f;
}

CT_SIMD_CLONES static void less_block(int64_t n, float factor, const float *mean, float *v)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) v[i] -= factor * mean[i];
}

void ct_momentum_correction_less(float *v, int64_t n, float factor, const float *mean, int n_thread)
{
    int64_t n_block = (n + CT_SELECT_BLOCK - 1) / CT_SELECT_BLOCK;
    int team =
        ct_momentum_correction_team(&(ct_momentum_correction){ .n = n, .n_thread = n_thread });

#pragma omp parallel for schedule(static) num_threads(team) if (team > 1)
    for (int64_t b = 0; b < n_block; ++b) {
        int64_t first = b * CT_SELECT_BLOCK;

        less_block((n - first < CT_SELECT_BLOCK) ? n - first : CT_SELECT_BLOCK, factor,
                   mean + first, v + first);
    }
}

CT_SIMD_CLONES static void scale_block(int64_t n, float factor, float *v)
{
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) v[i] *= factor;
}

void ct_momentum_correction_scale(float *v, int64_t n, float factor, int n_thread)
{
    int64_t n_block = (n + CT_SELECT_BLOCK - 1) / CT_SELECT_BLOCK;
    int team =
        ct_momentum_correction_team(&(ct_momentum_correction){ .n = n, .n_thread = n_thread });

#pragma omp parallel for schedule(static) num_threads(team) if (team > 1)
    for (int64_t b = 0; b < n_block; ++b) {
        int64_t first = b * CT_SELECT_BLOCK;

        scale_block((n - first < CT_SELECT_BLOCK) ? n - first : CT_SELECT_BLOCK, factor, v + first);
    }
}
