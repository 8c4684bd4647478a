/* U and V, copies between host and device, and dense steps. */
#include "comm/codec/codec_side.h"

#include <math.h>
#include <string.h>

#include "framework/base/clock.h"

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
                                     .mean = s->absorb ? NULL : step->mean,
                                     .shift = (float)((double)step->mean_factor / copies),
                                     .n_thread = *s->n_thread };
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

ct_status ct_side_open(ct_codec_side *s, const ct_codec_setup *setup, bool keeps)
{
    ct_device_kind kind = (setup->dev != NULL) ? setup->dev->kind : CT_DEVICE_CPU;
    void *note = NULL;

    *s = (ct_codec_side){ .setup = setup,
                          .host = (setup->dev == NULL),
                          .kernels = ct_codec_kernels_find(kind) };
    CT_TRY(s->kernels->stream(setup->n_thread, &s->stream));
    if (!keeps) return CT_OK;
    CT_TRY(ct_error_feedback_acquire(setup, &s->keep));
    s->keep.stream = s->stream;
    CT_TRY(ct_side_host_acquire(s, sizeof(*s->note_room), &note));
    memset(note, 0, sizeof(*s->note_room));
    s->note = s->note_room = note;
    return CT_OK;
}

void ct_side_wait(const ct_codec_side *s)
{
    if ((s->setup != NULL) && !s->host) (void)s->setup->dev->sync(s->stream);
}

void ct_side_close(ct_codec_side *s)
{
    if (s->setup == NULL) return;
    s->kernels->destroy(s->coder);
    if (s->keep.setup != NULL) ct_error_feedback_release(&s->keep);
    ct_side_host_release(s, s->note_room);
    *s = (ct_codec_side){ .setup = NULL };
}

ct_status ct_side_plain_coder(ct_codec_side *s)
{
    ct_coder_setup plain = { .kind = CT_SELECT_EXACT,
                             .n = s->setup->n,
                             .k = 1,
                             .form = CT_PAYLOAD_PAIRS,
                             .n_payload = s->setup->comm->size - 1 };

    return s->kernels->create(&plain, &s->coder);
}

/* ---- memory and copies */

ct_status ct_side_acquire(const ct_codec_side *s, size_t bytes, void **data_p)
{
    if (!s->host) return s->setup->dev->mem_acquire(bytes, data_p);
    *data_p = ct_mem_acquire(bytes);
    return (*data_p != NULL) ? CT_OK
                             : CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", s->setup->key);
}

void ct_side_release(const ct_codec_side *s, void *data)
{
    if (data == NULL) return;
    (s->host ? ct_mem_release : s->setup->dev->mem_release)(data);
}

ct_status ct_side_host_acquire(const ct_codec_side *s, size_t bytes, void **data_p)
{
    return s->host ? ct_side_acquire(s, bytes, data_p) : s->setup->dev->host_acquire(bytes, data_p);
}

void ct_side_host_release(const ct_codec_side *s, void *data)
{
    if (data == NULL) return;
    (s->host ? ct_mem_release : s->setup->dev->host_release)(data);
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (to != from) memcpy(to, from, bytes);
}

ct_status ct_side_zero(const ct_codec_side *s, void *data, size_t bytes)
{
    if (!s->host) return s->setup->dev->zero(s->stream, data, bytes);
    memset(data, 0, bytes);
    return CT_OK;
}

ct_status ct_side_bring(ct_codec_side *s, int i, void *host, void *data, size_t bytes)
{
    if (!s->host)
        return s->setup->dev->copy_begin(s->stream, host, data, bytes, true, &s->ticket[i]);
    copy(host, data, bytes);
    return CT_OK;
}

ct_status ct_side_lift(const ct_codec_side *s, void *host, void *data, size_t bytes)
{
    void *none = NULL;

    if (!s->host) return s->setup->dev->copy_begin(s->stream, host, data, bytes, false, &none);
    copy(data, host, bytes);
    return CT_OK;
}

ct_status ct_side_bring_note(ct_codec_side *s, int i, ct_codec_coder *coder)
{
    s->note = s->host ? s->kernels->note(coder) : s->note_room;
    return s->host ? CT_OK
                   : ct_side_bring(s, i, s->note_room, s->kernels->note(coder), sizeof(*s->note));
}

ct_status ct_side_arrived(ct_codec_side *s, ct_coll_where *where)
{
    bool done = true;

    for (int i = 0; i < 2; ++i) {
        if (s->ticket[i] == NULL) continue;
        CT_TRY(s->setup->dev->copy_done(s->ticket[i], false, &done));
        if (!done) return CT_INPROGRESS;
        s->ticket[i] = NULL;
        (void)atomic_fetch_add_explicit(&where->n_moved, 1, memory_order_relaxed);
    }
    return CT_OK;
}

/* ---- steps */

ct_status ct_side_begin(ct_codec_side *s, bool *empty_p)
{
    *empty_p = s->keep.empty;
    ct_error_feedback_forget_copy(&s->keep);
    return s->kernels->follow(NULL, s->stream);
}

ct_status ct_side_dense(ct_codec_side *s, const ct_codec_step *step, bool empty, double limit)
{
    const ct_codec_setup *u = s->setup;
    ct_momentum_correction a = ct_error_feedback_accum(&s->keep, step, 0, u->n, u->comm->size);
    bool restart = u->absorb && step->begins && s->keep.masks;

    CT_TRY(s->kernels->clip(s->coder, s->stream, u->grad, u->n, limit));
    if (empty)
        CT_TRY(s->kernels->all(s->coder, s->stream, &a, u->grad));
    else
        CT_TRY(s->kernels->apart(s->coder, s->stream, &a, restart, u->comm->size, step->least,
                                 u->grad, &empty));
    s->keep.empty = empty;
    if (s->host || (u->comm->size == 1)) return CT_OK;
    return ct_side_bring(s, 0, u->host, u->grad, sizeof(float) * (size_t)u->n);
}

ct_status ct_side_fold(ct_codec_side *s, const ct_codec_step *step, ct_codec_stats *stats,
                       ct_coll_where *where)
{
    double start = ct_clock_s();
    bool empty = false;

    if (!s->host) return ct_side_arrived(s, where);
    CT_TRY(ct_side_begin(s, &empty));
    CT_TRY(ct_side_dense(s, step, empty, 0));
    stats->accumulate_s += ct_clock_s() - start;
    return CT_OK;
}

ct_status ct_side_summed(const ct_codec_side *s)
{
    const ct_codec_setup *u = s->setup;

    if (u->comm->size > 1) CT_TRY(ct_side_lift(s, u->host, u->grad, sizeof(float) * (size_t)u->n));
    return ct_side_hand_over(s);
}

ct_status ct_side_hand_over(const ct_codec_side *s)
{
    return s->kernels->follow(s->stream, NULL);
}

ct_status ct_side_check(const ct_codec_side *s)
{
    if (s->note->bad != 0)
        return CT_FAIL(CT_ERR_DIVERGED, "an accumulated gradient holds NaN or infinity");
    if (s->note->wrong != 0)
        return CT_FAIL(CT_ERR_COMM,
                       "a payload of the last step held what none may hold, of its %lld elements",
                       (long long)s->setup->n);
    return CT_OK;
}

double ct_side_left(ct_codec_side *s)
{
    double sum = 0;

    return (s->kernels->square(s->coder, s->stream, s->keep.v, s->setup->n, &sum) == CT_OK) ? sum
                                                                                            : 0;
}
