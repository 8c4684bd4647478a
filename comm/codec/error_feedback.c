#include "comm/codec/error_feedback.h"

#include <math.h>
#include <string.h>

/* n floats where the states lie; zeros. */
static ct_status acquire(const ct_codec_setup *setup, float **data_p)
{
    size_t bytes = sizeof(float) * (size_t)setup->n;
    void *data = NULL;

    if (setup->dev != NULL)
        CT_TRY(setup->dev->mem_acquire(bytes, &data));
    else
        data = ct_mem_acquire(bytes);
    *data_p = data;
    return (data != NULL) ? CT_OK
                          : CT_FAIL(CT_ERR_NOMEM, "no memory for a residual of %lld elements",
                                    (long long)setup->n);
}

ct_status ct_error_feedback_acquire(const ct_codec_setup *setup, ct_error_feedback *k)
{
    *k = (ct_error_feedback){ .setup = setup, .empty = (setup->dev != NULL) };
    CT_TRY(acquire(setup, &k->v));
    return setup->absorb ? acquire(setup, &k->u) : CT_OK;
}

void ct_error_feedback_release(ct_error_feedback *k)
{
    const ct_device *dev = (k->setup != NULL) ? k->setup->dev : NULL;
    void (*release)(void *data) = (dev != NULL) ? dev->mem_release : ct_mem_release;

    release(k->u);
    release(k->v);
    ct_error_feedback_forget_copy(k);
    k->u = k->v = NULL;
}

void ct_error_feedback_forget_copy(ct_error_feedback *k)
{
    ct_mem_release(k->host_u);
    ct_mem_release(k->host_v);
    k->host_u = k->host_v = NULL;
}

/* How much more, or less, what was left behind counts now than when it was. Where a rate is zero
 * nothing can be said, and V stays as it is. */
static float carry_over(ct_error_feedback *k, float rate)
{
    float carry = 1.0f;

    if (!k->setup->absorb || (rate == 0)) return carry;
    if (k->rate != 0) carry = rate / k->rate;
    k->rate = rate;
    return isfinite(carry) ? carry : 1.0f;
}

ct_momentum_correction ct_error_feedback_accum(ct_error_feedback *k, const ct_codec_step *step,
                                               int64_t first, int64_t length, double copies)
{
    const ct_codec_setup *s = k->setup;
    bool decays = s->absorb && (s->weight != NULL) && (s->decay != 0);

    k->empty = false;
    return (ct_momentum_correction){ .grad = s->grad + first,
                                     .weight = decays ? s->weight + first : NULL,
                                     .u = s->absorb ? k->u + first : NULL,
                                     .v = k->v + first,
                                     .n = length,
                                     .scale = s->absorb ? step->scale * step->clip : step->clip,
                                     .rate = step->rate,
                                     .momentum = s->momentum,
                                     .decay = (float)(s->decay / copies),
                                     .carry = carry_over(k, step->rate),
                                     .nesterov = s->nesterov,
                                     .mask_momentum = s->config->mask_momentum,
                                     .n_thread = s->comm->n_thread };
}

int ct_error_feedback_states(const ct_error_feedback *k)
{
    return k->setup->absorb ? 3 : 1;
}

static ct_status copy_down(const ct_error_feedback *k, const float *data, float **host_p)
{
    size_t bytes = sizeof(float) * (size_t)k->setup->n;

    if (*host_p == NULL) *host_p = ct_mem_acquire(bytes);
    if (*host_p == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a copy of %lld elements",
                       (long long)k->setup->n);
    return k->setup->dev->to_host(k->stream, *host_p, data, bytes);
}

/* What the host may look at. */
static bool look(ct_error_feedback *k, float **v_p, float **u_p)
{
    *v_p = k->v;
    *u_p = k->u;
    if (k->setup->dev == NULL) {
        k->empty = false; /* who looks may write */
        return true;
    }
    if ((k->host_v == NULL) && ((copy_down(k, k->v, &k->host_v) != CT_OK) ||
                                ((k->u != NULL) && (copy_down(k, k->u, &k->host_u) != CT_OK)))) {
        ct_error_feedback_forget_copy(k); /* or who looks again would find what never came down */
        return false;
    }
    *v_p = k->host_v;
    *u_p = k->host_u;
    return true;
}

bool ct_error_feedback_state(ct_error_feedback *k, int i, ct_codec_state *out)
{
    ct_codec_state all[] = {
        { .name = CT_CODEC_RESIDUAL, .count = k->setup->n },
        { .name = CT_CODEC_MOMENTUM, .count = k->setup->n },
        { .name = CT_CODEC_RATE, .data = &k->rate, .count = 1, .replicated = true },
    };

    if ((i < 0) || (i >= ct_error_feedback_states(k)) || !look(k, &all[0].data, &all[1].data))
        return false;
    *out = all[i];
    return true;
}

ct_status ct_error_feedback_restored(ct_error_feedback *k)
{
    const ct_device *dev = k->setup->dev;
    size_t bytes = sizeof(float) * (size_t)k->setup->n;

    if (k->host_v == NULL) return CT_OK;
    k->empty = false;
    CT_TRY(dev->from_host(k->stream, k->v, k->host_v, bytes));
    return (k->u != NULL) ? dev->from_host(k->stream, k->u, k->host_u, bytes) : CT_OK;
}
