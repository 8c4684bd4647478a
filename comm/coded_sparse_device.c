/* topk and redsync of gradients on a device (coded.h, device_codec.h): U, V and the gradient stay
 * there. A payload comes down beside what the device computes, goes round with those of the other
 * ranks, and theirs go up and are added, in the same order everywhere. Momentum, masks, rounding
 * and the order of additions are coded_sparse.c's, so both make the same bits. */
#include <stdlib.h>
#include <string.h>

#include "comm/coded_keep.h"
#include "comm/coded_sparse.h"
#include "comm/coded_types.h"
#include "comm/device_codec.h"
#include "comm/gather.h"
#include "framework/base/clock.h"

typedef enum { PHASE_DOWN, PHASE_GATHER } phase;

typedef struct sparse {
    ct_coded_setup setup;
    const ct_device_codec *codec;
    ct_stream stream; /* the codecs' */
    ct_coder_setup size;
    ct_device_coder *coder;
    ct_keep keep;
    ct_gather *gather; /* NULL: one rank */
    int me;            /* among its members */
    ct_coder_note *note;
    const void **payload; /* [members] on the device, in the order in which they are added */
    void *ticket[2];      /* of copies down */
    bool quantize;
    phase phase;
    ct_coll_where where;
    ct_coded_stats stats;
    int64_t bytes_sent;
    double left_at;
} sparse;

/* ---- creation */

static void sparse_destroy(void *obj)
{
    sparse *x = obj;

    if (x == NULL) return;
    (void)x->setup.dev->sync(x->stream); /* nothing of it may still be under way */
    ct_gather_destroy(x->gather);
    x->codec->destroy(x->coder);
    ct_keep_release(&x->keep);
    if (x->note != NULL) x->setup.dev->host_release(x->note);
    free(x->payload);
    free(x);
}

/* In the order in which the ranks lie near each other, as the exchange allgather has them. */
static ct_status prepare_gather(sparse *x)
{
    ct_comm *comm = x->setup.comm;
    const int *member = comm->topo->order;

    while (member[x->me] != comm->rank) x->me += 1;
    CT_TRY(ct_gather_create_among(comm, member, comm->size, x->me, ct_coder_room(&x->size),
                                  x->setup.tag, &x->gather));
    return ct_gather_keep_on(x->gather, x->setup.dev);
}

static ct_status prepare(sparse *x, bool plain)
{
    const ct_coded_setup *s = &x->setup;
    int n_rank = s->comm->size;
    void *note = NULL;

    x->quantize = s->config->quantize && !s->output;
    x->size = (ct_coder_setup){ .n = s->n,
                                .k = ct_sparse_wanted(s->config, s->n),
                                .form = ct_sparse_form(s->config, s->n, x->quantize, plain),
                                .n_payload = n_rank - 1 };
    CT_TRY(ct_sparse_selection(s->config->selection, &x->size.kind));
    CT_TRY(x->codec->stream(&x->stream));
    CT_TRY(ct_keep_acquire(s, &x->keep));
    x->keep.masks = s->config->mask_momentum;
    x->keep.stream = x->stream;
    CT_TRY(x->codec->create(&x->size, &x->coder));
    CT_TRY(s->dev->host_acquire(sizeof(*x->note), &note));
    x->note = note;
    x->payload = calloc((size_t)n_rank, sizeof(*x->payload));
    if (x->payload == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", s->key);
    x->payload[0] = x->codec->payload(x->coder);
    if (n_rank == 1) return CT_OK;
    CT_TRY(prepare_gather(x));
    for (int i = 0, k = 0; i < n_rank; ++i)
        x->payload[i] =
            (i == x->me) ? x->codec->payload(x->coder) : x->codec->incoming(x->coder, k++);
    return CT_OK;
}

static ct_status create(const ct_coded_setup *setup, bool plain, void **obj_p)
{
    sparse *x = calloc(1, sizeof(*x));
    ct_status status = CT_OK;

    if (x == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", setup->key);
    x->setup = *setup;
    x->codec = ct_device_codec_find(setup->dev->kind);
    atomic_store(&x->where.rank, -1);
    status = prepare(x, plain);
    if (status != CT_OK) {
        sparse_destroy(x);
        return status;
    }
    *obj_p = x;
    return CT_OK;
}

static ct_status topk_create(const ct_coded_setup *setup, void **obj_p)
{
    return create(setup, true, obj_p);
}

static ct_status redsync_create(const ct_coded_setup *setup, void **obj_p)
{
    return create(setup, false, obj_p);
}

/* ---- copies down */

static ct_status bring(sparse *x, int i, void *host, void *data, size_t bytes)
{
    return x->setup.dev->copy_begin(x->stream, host, data, bytes, true, &x->ticket[i]);
}

/* CT_INPROGRESS until all of them are there. */
static ct_status arrived(sparse *x)
{
    bool done = true;

    for (int i = 0; i < 2; ++i) {
        if (x->ticket[i] == NULL) continue;
        CT_TRY(x->setup.dev->copy_done(x->ticket[i], false, &done));
        if (!done) return CT_INPROGRESS;
        x->ticket[i] = NULL;
        (void)atomic_fetch_add_explicit(&x->where.n_moved, 1, memory_order_relaxed);
    }
    return CT_OK;
}

/* ---- a step */

static ct_status ready_dense(sparse *x, const ct_coded_step *step, const ct_accum *a, bool empty)
{
    const ct_coded_setup *s = &x->setup;
    bool restart = s->absorb && step->begins && x->keep.masks;

    if (empty)
        CT_TRY(x->codec->all(x->coder, x->stream, a, s->grad));
    else
        CT_TRY(
            x->codec->apart(x->coder, x->stream, a, restart, s->comm->size, step->least, s->grad));
    x->keep.empty = empty;
    if (s->comm->size == 1) return CT_OK;
    return bring(x, 0, s->host, s->grad, sizeof(float) * (size_t)s->n);
}

static ct_status ready_coded(sparse *x, const ct_coded_step *step, const ct_accum *a)
{
    int sign = !x->quantize ? 0 : (step->iteration % 2 == 0) ? 1 : -1;

    CT_TRY(x->codec->select(x->coder, x->stream, a, sign));
    CT_TRY(bring(x, 0, x->note, x->codec->note(x->coder), sizeof(*x->note)));
    if (x->gather == NULL) return x->codec->add(x->coder, x->stream, x->payload, 1, x->setup.grad);
    return bring(x, 1, ct_gather_payload(x->gather, x->me), x->codec->payload(x->coder),
                 ct_coder_room(&x->size));
}

static ct_status sparse_ready(void *obj, const ct_coded_step *step, bool dense, double limit)
{
    sparse *x = obj;
    const ct_coded_setup *s = &x->setup;
    bool empty = x->keep.empty;
    ct_accum a = ct_keep_accum(&x->keep, step, 0, s->n, s->comm->size);

    ct_keep_forget_copy(&x->keep);
    x->stats.encoded_at[0] = ct_clock_s();
    CT_TRY(x->codec->follow(NULL, x->stream));
    CT_TRY(x->codec->clip(x->coder, x->stream, s->grad, s->n, limit));
    return dense ? ready_dense(x, step, &a, empty) : ready_coded(x, step, &a);
}

static ct_status sparse_fold(void *obj, const ct_coded_step *step)
{
    (void)step;
    return arrived(obj);
}

/* The device goes on with it. */
static ct_status hand_over(sparse *x)
{
    return x->codec->follow(x->stream, NULL);
}

static ct_status sparse_summed(void *obj)
{
    sparse *x = obj;
    void *none = NULL;

    if (x->gather != NULL)
        CT_TRY(x->setup.dev->copy_begin(x->stream, x->setup.host, x->setup.grad,
                                        sizeof(float) * (size_t)x->setup.n, false, &none));
    return hand_over(x);
}

static ct_status sparse_start(void *obj, const ct_coded_step *step)
{
    sparse *x = obj;

    (void)step;
    x->stats.n_step += 1;
    x->stats.bytes_dense += x->setup.n * (int64_t)sizeof(float);
    x->phase = PHASE_DOWN;
    return CT_OK;
}

static ct_status take_note(sparse *x)
{
    const ct_coder_note *note = x->note;

    if (note->bad != 0)
        return CT_FAIL(CT_ERR_DIVERGED, "an accumulated gradient holds NaN or infinity");
    if (note->wrong != 0)
        return CT_FAIL(CT_ERR_COMM,
                       "a payload of the last step named elements out of order, or beyond its %lld",
                       (long long)x->setup.n);
    x->stats.selected += note->count;
    x->stats.filled += note->filled;
    x->stats.bytes_coded += (int64_t)ct_wire_bytes(x->size.form, x->setup.n, note->count);
    x->left_at = ct_clock_s();
    x->stats.encoded_at[1] = x->left_at;
    x->stats.select_s += x->left_at - x->stats.encoded_at[0];
    return CT_OK;
}

/* What the others sent goes up, and all is added there. */
static ct_status add_all(sparse *x)
{
    for (int i = 0; i < x->setup.comm->size; ++i) {
        void *from = ct_gather_payload(x->gather, i), *none = NULL;
        size_t bytes = ct_gather_bytes(x->gather, i);

        if (i == x->me) continue;
        CT_TRY(ct_wire_check(from, bytes, x->setup.n));
        CT_TRY(x->setup.dev->copy_begin(x->stream, from, (void *)(uintptr_t)x->payload[i], bytes,
                                        false, &none));
    }
    return x->codec->add(x->coder, x->stream, x->payload, x->setup.comm->size, x->setup.grad);
}

static ct_status sparse_progress(void *obj)
{
    sparse *x = obj;
    double now = 0;

    if (x->phase == PHASE_DOWN) {
        ct_status status = arrived(x);

        if (status != CT_OK) return status;
        CT_TRY(take_note(x));
        if (x->gather != NULL)
            CT_TRY(ct_gather_start(x->gather,
                                   ct_wire_bytes(x->size.form, x->setup.n, x->note->count)));
        x->phase = PHASE_GATHER;
    }
    if (x->gather != NULL) {
        ct_status status = ct_gather_progress(x->gather, &x->bytes_sent, &x->where);

        if (status != CT_OK) return status;
    }
    now = ct_clock_s();
    x->stats.exchange_s += now - x->left_at;
    x->stats.decoded_at[0] = now;
    if (x->gather != NULL) CT_TRY(add_all(x));
    CT_TRY(hand_over(x));
    x->stats.decoded_at[1] = ct_clock_s();
    x->stats.unpack_s += x->stats.decoded_at[1] - now;
    return CT_OK;
}

/* ---- looks */

static int sparse_pending(void *obj, MPI_Request **out, int max)
{
    sparse *x = obj;

    return ((x->gather != NULL) && (x->phase == PHASE_GATHER))
               ? ct_gather_pending(x->gather, out, max)
               : 0;
}

static ct_coll_where *sparse_where(void *obj)
{
    return &((sparse *)obj)->where;
}

static const char *sparse_exchange(const void *obj)
{
    return (((const sparse *)obj)->gather != NULL) ? "allgather" : "one rank";
}

static bool sparse_state(void *obj, int i, ct_coded_state *out)
{
    return ct_keep_state(&((sparse *)obj)->keep, i, out);
}

static ct_status sparse_restored(void *obj)
{
    sparse *x = obj;

    CT_TRY(ct_keep_restored(&x->keep));
    return x->codec->forget(x->coder, x->stream);
}

static void sparse_stats(const void *obj, ct_coded_stats *out)
{
    const sparse *x = obj;

    *out = x->stats;
    out->bytes_sent = x->bytes_sent;
}

static double sparse_left(void *obj)
{
    sparse *x = obj;
    double sum = 0;

    return (x->codec->square(x->coder, x->stream, x->keep.v, x->setup.n, &sum) == CT_OK) ? sum : 0;
}

static ct_status sparse_check(const ct_codec_config *c)
{
    if (ct_sparse_is_auto(c->exchange) || (strcmp(c->exchange, "allgather") == 0)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "exchange %s of gradients on a device is not there yet: take ALLGATHER, or "
                   "solver_mode: CPU",
                   c->exchange);
}

#define SPARSE_ON_DEVICE                                                                           \
    .gathers = true, .sparse = true, .keeps = true, .chains = true, .check = sparse_check,         \
    .destroy = sparse_destroy, .fold = sparse_fold, .ready = sparse_ready,                         \
    .summed = sparse_summed, .start = sparse_start, .progress = sparse_progress,                   \
    .pending = sparse_pending, .where = sparse_where, .exchange = sparse_exchange,                 \
    .state = sparse_state, .restored = sparse_restored, .stats = sparse_stats, .left = sparse_left

const ct_coded_ops ct_coded_topk_device = {
    .name = "topk",
    SPARSE_ON_DEVICE,
    .create = topk_create,
    .payload_bytes = ct_topk_payload_bytes,
    .seconds = ct_topk_seconds,
};

const ct_coded_ops ct_coded_redsync_device = {
    .name = "redsync",
    SPARSE_ON_DEVICE,
    .absorbs = true,
    .create = redsync_create,
    .payload_bytes = ct_redsync_payload_bytes,
    .seconds = ct_redsync_seconds,
};
