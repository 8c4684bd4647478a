#include "comm/coded_keep.h"

#include <math.h>
#include <string.h>

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

    k->empty = false;
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

/* How much of V goes along, of squares of the update and of V. */
static float share_of(double update, double v, int n_rank, float least)
{
    double share = (v > 0) ? sqrt(update / (v * n_rank)) : 1;

    if (share < (double)least) share = (double)least;
    return (share < 1) ? (float)share : 1.0f; /* 1 where it is not a number: that shows soon */
}

void ct_keep_fold(ct_keep *k, const ct_coded_step *step, ct_coded_stats *stats)
{
    double start = ct_clock_s(), sum[2];
    const ct_coded_setup *s = k->setup;
    bool empty = k->empty || !ct_accum_holds(k->v, s->n);
    ct_accum a = ct_keep_accum(k, step, 0, s->n, s->comm->size);

    if (empty) {
        ct_accum_all(&a, s->grad);
    } else {
        float share = 1.0f;

        if (s->absorb && step->begins && k->masks) memset(k->u, 0, sizeof(*k->u) * (size_t)s->n);
        ct_accum_apart(&a, s->grad, sum);
        share = share_of(sum[0], sum[1], s->comm->size, step->least);
        ct_accum_send(&a, share, s->grad);
        empty = (share == 1.0f);
    }
    k->empty = empty;
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
    k->empty = false; /* who looks may write */
    *out = all[i];
    return true;
}
