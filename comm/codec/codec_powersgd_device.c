/* powersgd of gradients on a device (codec.h): U, V and the gradient stay there, and all products
 * with V are made there. The factors come down: sums run through the host, where the basis, too, is
 * made orthonormal, as on the CPU and with the same bits. */
#include <stdlib.h>
#include <string.h>

#include "comm/codec/codec_cost.h"
#include "comm/codec/codec_powersgd.h"
#include "comm/codec/codec_types.h"
#include "comm/codec/device_side.h"
#include "framework/base/clock.h"

typedef struct powersgd {
    ct_powersgd_head h;
    ct_device_side side;
    char *block, *there; /* on the host, for copies: P, Q, the last Q; on the device: P, Q and
                            this rank's part of it, and scratch */
    float *p, *q;
    float *d_p, *d_q, *d_own_q, *d_scratch;
} powersgd;

/* ---- creation */

static void powersgd_destroy(void *obj)
{
    powersgd *x = obj;

    if (x == NULL) return;
    ct_side_wait(&x->side);
    ct_powersgd_close(&x->h);
    if (x->there != NULL) x->h.setup.dev->mem_release(x->there);
    if (x->block != NULL) x->h.setup.dev->host_release(x->block);
    ct_side_close(&x->side);
    free(x);
}

static ct_status acquire(powersgd *x)
{
    const ct_device *dev = x->h.setup.dev;
    size_t p = ct_align_up(sizeof(float) * (size_t)x->h.of_p);
    size_t q = ct_align_up(sizeof(float) * (size_t)x->h.of_q);
    size_t scratch = sizeof(float) * (size_t)(x->h.of_q * ((ct_low_rank_slabs(&x->h.shape) > 1)
                                                               ? ct_low_rank_slabs(&x->h.shape)
                                                               : 0));
    void *block = NULL, *there = NULL;

    CT_TRY(dev->host_acquire(p + 2 * q, &block));
    x->block = block;
    x->p = block;
    x->q = (void *)(x->block + p);
    x->h.warm = (void *)(x->block + p + q);
    memset(x->h.warm, 0, q);
    CT_TRY(dev->mem_acquire(p + 2 * q + scratch, &there));
    x->there = there;
    x->d_p = there;
    x->d_q = (void *)(x->there + p);
    x->d_own_q = (void *)(x->there + p + q);
    x->d_scratch = (void *)(x->there + p + 2 * q);
    return CT_OK;
}

static ct_status powersgd_prepare(void *obj, const ct_codec_setup *setup)
{
    powersgd *x = obj;

    CT_TRY(ct_powersgd_open(&x->h, setup, &x->side.keep));
    CT_TRY(ct_side_open(&x->side, &x->h.setup));
    CT_TRY(ct_side_plain_coder(&x->side));
    CT_TRY(acquire(x));
    return ct_powersgd_connect(&x->h, x->p, x->q);
}

/* ---- a step */

static size_t bytes_of(int64_t count)
{
    return sizeof(float) * (size_t)count;
}

static ct_status powersgd_ready(void *obj, const ct_codec_step *step, bool dense, double limit)
{
    powersgd *x = obj;
    ct_device_side *d = &x->side;
    const ct_codec_setup *s = &x->h.setup;
    bool empty = false;
    ct_momentum_correction a;

    x->h.stats.encoded_at[0] = ct_clock_s();
    CT_TRY(ct_side_begin(d, &empty));
    if (dense) return ct_side_dense(d, step, empty, limit);
    a = ct_error_feedback_accum(&d->keep, step, 0, s->n, s->comm->size);
    CT_TRY(d->codec->clip(d->coder, d->stream, s->grad, s->n, limit));
    CT_TRY(d->codec->update(d->coder, d->stream, &a));
    CT_TRY(ct_side_lift(d, x->h.warm, x->d_q, bytes_of(x->h.of_q)));
    CT_TRY(d->codec->left(d->stream, &x->h.shape, d->keep.v, x->d_q, x->d_p));
    return ct_side_bring(d, 0, x->p, x->d_p, bytes_of(x->h.of_p));
}

static ct_status powersgd_fold(void *obj, const ct_codec_step *step)
{
    (void)step;
    return ct_side_arrived(&((powersgd *)obj)->side, ct_powersgd_where(obj));
}

static ct_status powersgd_summed(void *obj)
{
    return ct_side_summed(&((powersgd *)obj)->side);
}

static ct_status powersgd_start(void *obj, const ct_codec_step *step)
{
    powersgd *x = obj;

    x->h.iteration = step->iteration;
    x->h.stats.n_step += 1;
    x->h.stats.bytes_dense += (int64_t)bytes_of(x->h.setup.n);
    x->h.stats.bytes_coded += (int64_t)bytes_of(x->h.of_p + x->h.of_q);
    atomic_store(&x->h.stage, CT_POWERSGD_P_DOWN);
    return CT_OK;
}

/* P is summed: Q of it comes down, and goes out of V meanwhile. */
static ct_status continue_with_q(powersgd *x)
{
    ct_device_side *d = &x->side;
    double start = ct_clock_s();

    CT_TRY(ct_low_rank_basis(&x->h.shape, x->p)); /* finds what is not finite, too */
    CT_TRY(ct_side_lift(d, x->p, x->d_p, bytes_of(x->h.of_p)));
    CT_TRY(d->codec->right(d->stream, &x->h.shape, d->keep.v, x->d_p, x->d_scratch, x->d_own_q));
    CT_TRY(ct_side_bring(d, 0, x->q, x->d_own_q, bytes_of(x->h.of_q)));
    CT_TRY(d->codec->product(d->stream, &x->h.shape, x->d_p, x->d_own_q, true, d->keep.v));
    x->h.stats.exchange_s += start - x->h.left_at;
    x->h.left_at = ct_clock_s();
    x->h.stats.pack_s += x->h.left_at - start;
    atomic_store(&x->h.stage, CT_POWERSGD_Q_DOWN);
    return CT_OK;
}

static ct_status progress_p(powersgd *x)
{
    bool alone = (x->h.setup.comm->size == 1);

    if (atomic_load(&x->h.stage) == CT_POWERSGD_P_DOWN) {
        CT_TRY(ct_side_arrived(&x->side, ct_powersgd_where(x)));
        x->h.left_at = x->h.stats.encoded_at[1] = ct_clock_s();
        x->h.stats.accumulate_s += x->h.left_at - x->h.stats.encoded_at[0];
        if (!alone) CT_TRY(ct_persistent_coll_start(&x->h.ways_p));
        atomic_store(&x->h.stage, CT_POWERSGD_P);
    }
    if (!alone) CT_TRY(ct_persistent_coll_progress(&x->h.ways_p));
    return continue_with_q(x);
}

static ct_status deliver(powersgd *x)
{
    ct_device_side *d = &x->side;
    double start = ct_clock_s();
    bool alone = (x->h.setup.comm->size == 1);

    if (!alone) CT_TRY(ct_side_lift(d, x->q, x->d_q, bytes_of(x->h.of_q)));
    CT_TRY(d->codec->product(d->stream, &x->h.shape, x->d_p, alone ? x->d_own_q : x->d_q, false,
                             x->h.setup.grad));
    CT_TRY(ct_side_hand_over(d));
    ct_powersgd_warm(&x->h, x->q);
    ct_codec_delivered(&x->h.stats, start, x->h.left_at);
    return CT_OK;
}

static ct_status powersgd_progress(void *obj)
{
    powersgd *x = obj;
    bool alone = (x->h.setup.comm->size == 1), brief = ct_powersgd_where(x)->brief;

    if (atomic_load(&x->h.stage) <= CT_POWERSGD_P) CT_TRY(progress_p(x));
    if (atomic_load(&x->h.stage) == CT_POWERSGD_Q_DOWN) {
        if (!alone) ct_persistent_coll_where(&x->h.ways_q)->brief = brief;
        CT_TRY(ct_side_arrived(&x->side, ct_powersgd_where(x)));
        if (!alone) CT_TRY(ct_persistent_coll_start(&x->h.ways_q));
        atomic_store(&x->h.stage, CT_POWERSGD_Q);
    }
    if (!alone) CT_TRY(ct_persistent_coll_progress(&x->h.ways_q));
    return deliver(x);
}

/* ---- looks */

static double powersgd_left(void *obj)
{
    return ct_side_left(&((powersgd *)obj)->side);
}

static void powersgd_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n,
                             int64_t rows, ct_codec_seconds *out)
{
    ct_low_rank s = ct_powersgd_shape(c, n, rows);
    double p = (double)bytes_of(s.r * s.rows), q = (double)bytes_of(s.r * s.cols);

    ct_powersgd_seconds(m, c, n, rows, out);
    out->wire_s += ct_codec_bus_s(m, p + q, p + 2 * q);
}

const ct_codec_ops ct_codec_powersgd_device = {
    .name = "powersgd",
    .chains = true,
    .keeps = true,
    .absorbs = true,
    .takes = ct_powersgd_takes,
    .size = sizeof(powersgd),
    .prepare = powersgd_prepare,
    .destroy = powersgd_destroy,
    .fold = powersgd_fold,
    .ready = powersgd_ready,
    .summed = powersgd_summed,
    .start = powersgd_start,
    .progress = powersgd_progress,
    .pending = ct_powersgd_pending,
    .where = ct_powersgd_where,
    .exchange = ct_powersgd_exchange,
    .state = ct_powersgd_state,
    .restored = ct_powersgd_restored,
    .stats = ct_powersgd_stats,
    .left = powersgd_left,
    .payload_bytes = ct_powersgd_bytes,
    .seconds = powersgd_seconds,
};
