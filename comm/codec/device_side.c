#include "comm/codec/device_side.h"

ct_status ct_side_open(ct_device_side *s, const ct_codec_setup *setup)
{
    void *note = NULL;

    *s = (ct_device_side){ .setup = setup, .codec = ct_device_codec_find(setup->dev->kind) };
    CT_TRY(s->codec->stream(&s->stream));
    CT_TRY(ct_error_feedback_acquire(setup, &s->keep));
    s->keep.stream = s->stream;
    CT_TRY(setup->dev->host_acquire(sizeof(*s->note), &note));
    s->note = note;
    return CT_OK;
}

void ct_side_wait(const ct_device_side *s)
{
    if (s->setup != NULL) (void)s->setup->dev->sync(s->stream);
}

void ct_side_close(ct_device_side *s)
{
    if (s->setup == NULL) return;
    s->codec->destroy(s->coder);
    ct_error_feedback_release(&s->keep);
    if (s->note != NULL) s->setup->dev->host_release(s->note);
    *s = (ct_device_side){ .setup = NULL };
}

ct_status ct_side_plain_coder(ct_device_side *s)
{
    ct_coder_setup plain = {
        .kind = CT_SELECT_EXACT, .n = s->setup->n, .k = 1, .form = CT_PAYLOAD_PAIRS
    };

    return s->codec->create(&plain, &s->coder);
}

/* ---- copies */

ct_status ct_side_bring(ct_device_side *s, int i, void *host, void *data, size_t bytes)
{
    return s->setup->dev->copy_begin(s->stream, host, data, bytes, true, &s->ticket[i]);
}

ct_status ct_side_lift(const ct_device_side *s, void *host, void *data, size_t bytes)
{
    void *none = NULL;

    return s->setup->dev->copy_begin(s->stream, host, data, bytes, false, &none);
}

ct_status ct_side_arrived(ct_device_side *s, ct_coll_where *where)
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

ct_status ct_side_begin(ct_device_side *s, bool *empty_p)
{
    *empty_p = s->keep.empty;
    ct_error_feedback_forget_copy(&s->keep);
    return s->codec->follow(NULL, s->stream);
}

ct_status ct_side_dense(ct_device_side *s, const ct_codec_step *step, bool empty, double limit)
{
    const ct_codec_setup *u = s->setup;
    ct_momentum_correction a = ct_error_feedback_accum(&s->keep, step, 0, u->n, u->comm->size);
    bool restart = u->absorb && step->begins && s->keep.masks;

    CT_TRY(s->codec->clip(s->coder, s->stream, u->grad, u->n, limit));
    if (empty)
        CT_TRY(s->codec->all(s->coder, s->stream, &a, u->grad));
    else
        CT_TRY(
            s->codec->apart(s->coder, s->stream, &a, restart, u->comm->size, step->least, u->grad));
    s->keep.empty = empty;
    if (u->comm->size == 1) return CT_OK;
    return ct_side_bring(s, 0, u->host, u->grad, sizeof(float) * (size_t)u->n);
}

ct_status ct_side_summed(const ct_device_side *s)
{
    const ct_codec_setup *u = s->setup;

    if (u->comm->size > 1) CT_TRY(ct_side_lift(s, u->host, u->grad, sizeof(float) * (size_t)u->n));
    return ct_side_hand_over(s);
}

ct_status ct_side_hand_over(const ct_device_side *s)
{
    return s->codec->follow(s->stream, NULL);
}

ct_status ct_side_check(const ct_device_side *s)
{
    if (s->note->bad != 0)
        return CT_FAIL(CT_ERR_DIVERGED, "an accumulated gradient holds NaN or infinity");
    if (s->note->wrong != 0)
        return CT_FAIL(CT_ERR_COMM,
                       "a payload of the last step held what none may hold, of its %lld elements",
                       (long long)s->setup->n);
    return CT_OK;
}

double ct_side_left(ct_device_side *s)
{
    double sum = 0;

    return (s->codec->square(s->coder, s->stream, s->keep.v, s->setup->n, &sum) == CT_OK) ? sum : 0;
}
