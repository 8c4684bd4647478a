#include "comm/coded_keep.h"

#include <math.h>

#include "framework/base/clock.h"

ct_status ct_keep_acquire(const ct_coded_setup *setup, ct_keep *k)
{
    size_t bytes = sizeof(float) * (size_t)setup->n;

    *k = (ct_keep){ .setup = setup, .v = ct_mem_acquire(bytes) };
    if (setup->absorb) k->u = ct_mem_acquire(bytes);
    if ((k->v == NULL) || (setup->absorb && (k->u == NULL)))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a residual of %lld elements",
                       (long long)setup->n);
    return CT_OK;
}

void ct_keep_release(ct_keep *k)
{
    ct_mem_release(k->u);
    ct_mem_release(k->v);
    k->u = k->v = NULL;
}

/* How much more, or less, what was left behind counts now than when it was. Where a rate is zero
 * nothing can be said, and V stays as it is. */
static float carry_over(ct_keep *k, float rate)
{
    float carry = 1.0f;

    if (!k->setup->absorb || (rate == 0)) return carry;
    if (k->rate != 0) carry = rate / k->rate;
    k->rate = rate;
    return isfinite(carry) ? carry : 1.0f;
}

ct_accum ct_keep_accum(ct_keep *k, const ct_coded_step *step, int64_t first, int64_t length,
                       double copies)
{
    const ct_coded_setup *s = k->setup;
    bool decays = s->absorb && (s->weight != NULL) && (s->decay != 0);

    return (ct_accum){ .grad = s->grad + first,
                       .weight = decays ? s->weight + first : NULL,
                       .u = s->absorb ? k->u + first : NULL,
                       .v = k->v + first,
                       .n = length,
                       .scale = s->absorb ? step->scale : 1.0f,
                       .rate = step->rate,
                       .momentum = s->momentum,
                       .decay = (float)(s->decay / copies),
                       .carry = carry_over(k, step->rate),
                       .nesterov = s->nesterov,
                       .mask_momentum = s->config->mask_momentum,
                       .n_thread = s->comm->n_thread };
}

/* share of what is to be sent stays behind. */
static void keep_back(float *grad, float *v, int64_t n, float share, int n_thread)
{
#pragma omp parallel for simd schedule(static) num_threads(n_thread)
    for (int64_t i = 0; i < n; ++i) {
        v[i] = share * grad[i];
        grad[i] -= v[i];
    }
}

void ct_keep_fold(ct_keep *k, const ct_coded_step *step, ct_coded_stats *stats)
{
    double start = ct_clock_s();
    ct_accum a = ct_keep_accum(k, step, 0, k->setup->n, k->setup->comm->size);

    ct_accum_all(&a, k->setup->grad);
    if (step->keep > 0) keep_back(k->setup->grad, k->v, k->setup->n, step->keep, a.n_thread);
    stats->accumulate_s += ct_clock_s() - start;
}

int ct_keep_states(const ct_keep *k)
{
    return k->setup->absorb ? 3 : 1;
}

bool ct_keep_state(ct_keep *k, int i, ct_coded_state *out)
{
    ct_coded_state all[] = {
        { .name = CT_CODED_RESIDUAL, .data = k->v, .count = k->setup->n },
        { .name = CT_CODED_MOMENTUM, .data = k->u, .count = k->setup->n },
        { .name = CT_CODED_RATE, .data = &k->rate, .count = 1, .replicated = true },
    };

    if ((i < 0) || (i >= ct_keep_states(k))) return false;
    *out = all[i];
    return true;
}
