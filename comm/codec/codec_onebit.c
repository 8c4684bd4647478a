/* onebit: signs, and the mean magnitude of each sign in blocks of 1024, with error feedback (Seide
 * et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014): what the means do not tell stays in
 * V. About n / 8 bytes.
 *
 * split    Each rank looks after one part of the elements. It sends the others the signs of theirs,
 *          adds what it gets to its own V there, exactly, and the signs of that sum go to everyone;
 *          what they do not tell is its V from then on. So 2 (p - 1) / p payloads are sent, however
 *          many ranks there are (as 1-bit Adam does it: Tang et al., ICML 2021).
 * allgather  Everyone's signs to everyone: p - 1 payloads, but half as many messages in a row, and
 *          rounded once. For few ranks.
 *
 * The cheaper by the cost model. Payloads are added in a fixed order, and every rank reads the same
 * bytes: replicas are bitwise equal. */
#include <stdlib.h>

#include "comm/codec/codec_onebit.h"
#include "comm/codec/codec_types.h"
#include "framework/base/clock.h"

typedef struct onebit {
    ct_onebit_head h;
    ct_error_feedback keep;
    char *payload;     /* one rank: of all elements */
    const void **all;  /* [p], allgather: payloads  */
    size_t *all_bytes; /* [p]                       */
} onebit;

/* ---- creation */

static void onebit_destroy(void *obj)
{
    onebit *x = obj;

    if (x == NULL) return;
    ct_onebit_close(&x->h);
    ct_error_feedback_release(&x->keep);
    ct_mem_release(x->payload);
    free(x->all);
    free(x->all_bytes);
    free(x);
}

static ct_status no_memory(const onebit *x)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", x->h.setup.key);
}

static ct_status onebit_prepare(void *obj, const ct_codec_setup *setup)
{
    onebit *x = obj;
    size_t p = (size_t)setup->comm->size;

    ct_onebit_open(&x->h, setup, &x->keep);
    CT_TRY(ct_error_feedback_acquire(&x->h.setup, &x->keep));
    x->all = calloc(p, sizeof(*x->all));
    x->all_bytes = calloc(p, sizeof(*x->all_bytes));
    if ((x->all == NULL) || (x->all_bytes == NULL)) return no_memory(x);
    if (p > 1) return ct_onebit_connect(&x->h);
    x->payload = ct_mem_acquire(ct_sign_bytes(setup->n));
    return (x->payload != NULL) ? CT_OK : no_memory(x);
}

/* ---- a step */

static ct_status onebit_fold(void *obj, const ct_codec_step *step)
{
    onebit *x = obj;

    ct_error_feedback_fold(&x->keep, step, &x->h.stats);
    return CT_OK;
}

static ct_status onebit_start(void *obj, const ct_codec_step *step)
{
    onebit *x = obj;
    const ct_codec_setup *s = &x->h.setup;
    ct_momentum_correction a = ct_error_feedback_accum(&x->keep, step, 0, s->n, s->comm->size);
    char *to = x->payload;
    size_t bytes = ct_sign_at(&x->h.cut, x->h.cut.parts);
    double start = ct_clock_s();

    if (x->h.splits)
        to = ct_sign_split_payload(x->h.split);
    else if (x->h.gather != NULL)
        to = ct_allgatherv_payload(x->h.gather, x->h.me);
    CT_TRY(ct_sign_encode(&x->h.cut, &a, x->h.splits ? x->h.me : -1, to));
    x->h.left_at = ct_clock_s();
    if (x->h.splits) bytes -= ct_sign_bytes(x->h.n);
    x->h.stats.n_step += 1;
    x->h.stats.bytes_dense += s->n * (int64_t)sizeof(float);
    x->h.stats.bytes_coded += (int64_t)bytes;
    x->h.stats.accumulate_s += x->h.left_at - start;
    x->h.stats.encoded_at[0] = start;
    x->h.stats.encoded_at[1] = x->h.left_at;
    x->h.stage = x->h.splits ? CT_ONEBIT_SPLIT : CT_ONEBIT_GATHER;
    if (x->h.splits) ct_sign_split_start(x->h.split);
    return ((x->h.gather != NULL) && !x->h.splits) ? ct_allgatherv_start(x->h.gather, bytes)
                                                   : CT_OK;
}

/* This rank's part is complete: its V and everyone's signs. */
static ct_status start_gather(onebit *x)
{
    double start = ct_clock_s();

    CT_TRY(ct_sign_take(x->keep.v + x->h.first, x->h.n, x->h.setup.comm->n_thread,
                        ct_allgatherv_payload(x->h.gather, x->h.me)));
    x->h.stats.pack_s += ct_clock_s() - start;
    x->h.stats.exchange_s -= ct_clock_s() - start;
    x->h.stats.bytes_coded += (int64_t)ct_sign_bytes(x->h.n);
    x->h.stage = CT_ONEBIT_GATHER;
    return ct_allgatherv_start(x->h.gather, ct_sign_bytes(x->h.n));
}

static ct_status deliver_parts(onebit *x)
{
    const ct_codec_setup *s = &x->h.setup;

    for (int j = 0; j < s->comm->size; ++j) {
        const void *payload = ct_allgatherv_payload(x->h.gather, j);
        size_t bytes = ct_allgatherv_bytes(x->h.gather, j);
        int64_t first = 0, n = 0;

        ct_sign_part(&x->h.cut, j, &first, &n);
        CT_TRY(ct_sign_sum(&payload, &bytes, 1, s->grad + first, n, s->comm->n_thread));
    }
    return CT_OK;
}

static ct_status deliver(onebit *x)
{
    const ct_codec_setup *s = &x->h.setup;

    if (x->h.splits) return deliver_parts(x);
    for (int j = 0; j < s->comm->size; ++j) {
        x->all[j] = (x->h.gather != NULL) ? ct_allgatherv_payload(x->h.gather, j) : x->payload;
        x->all_bytes[j] =
            (x->h.gather != NULL) ? ct_allgatherv_bytes(x->h.gather, j) : ct_sign_bytes(s->n);
    }
    return ct_sign_sum(x->all, x->all_bytes, s->comm->size, s->grad, s->n, s->comm->n_thread);
}

static ct_status onebit_progress(void *obj)
{
    onebit *x = obj;
    double start = 0;

    if (x->h.stage == CT_ONEBIT_SPLIT) {
        double before = x->h.stats.unpack_s;
        ct_status status =
            ct_sign_split_progress(x->h.split, x->keep.v + x->h.first, &x->h.stats.bytes_sent,
                                   &x->h.stats.unpack_s, &x->h.where);

        x->h.stats.exchange_s -= x->h.stats.unpack_s - before;
        if (status != CT_OK) return status;
        CT_TRY(start_gather(x));
    }
    if (x->h.gather != NULL) {
        ct_status status = ct_allgatherv_progress(x->h.gather, &x->h.stats.bytes_sent, &x->h.where);

        if (status != CT_OK) return status;
    }
    start = ct_clock_s();
    CT_TRY(deliver(x));
    ct_onebit_delivered(&x->h, start);
    return CT_OK;
}

const ct_codec_ops ct_codec_onebit = {
    .name = "onebit",
    .on_device = &ct_codec_onebit_device,
    .keeps = true,
    .absorbs = true,
    .size = sizeof(onebit),
    .prepare = onebit_prepare,
    .destroy = onebit_destroy,
    .fold = onebit_fold,
    .start = onebit_start,
    .progress = onebit_progress,
    .pending = ct_onebit_pending,
    .where = ct_onebit_where,
    .exchange = ct_onebit_exchange,
    .state = ct_onebit_state,
    .stats = ct_onebit_stats,
    .payload_bytes = ct_onebit_bytes,
    .seconds = ct_onebit_seconds,
};
