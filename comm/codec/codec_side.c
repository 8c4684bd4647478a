#include "comm/codec/codec_side.h"

#include <string.h>

#include "framework/base/clock.h"

ct_status ct_side_open(ct_codec_side *s, const ct_codec_setup *setup, bool keeps)
{
    ct_device_kind kind = (setup->dev != NULL) ? setup->dev->kind : CT_DEVICE_CPU;
    void *note = NULL;

    *s = (ct_codec_side){ .setup = setup,
                          .host = (setup->dev == NULL),
                          .kernels = ct_codec_kernels_find(kind) };
    CT_TRY(s->kernels->stream(&setup->comm->n_thread, &s->stream));
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
