/* powersgd of gradients on a device (coded.h): U, V and the gradient stay there, and all products
 * with V are made there. The factors come down: sums run through the host, where the basis, too, is
 * made orthonormal, as on the CPU and with the same bits. */
#include <stdlib.h>
#include <string.h>

#include "comm/coded_cost.h"
#include "comm/coded_powersgd.h"
#include "comm/coded_types.h"
#include "comm/device_side.h"
#include "framework/base/clock.h"

typedef enum { STAGE_P_DOWN, STAGE_P, STAGE_Q_DOWN, STAGE_Q } powersgd_stage;

typedef struct powersgd {
    ct_coded_setup setup;
    ct_device_side side;
    ct_low_rank shape;
    int64_t of_p, of_q;  /* floats */
    char *block, *there; /* on the host, for copies: P, Q, the last Q; on the device: P, Q and
                            this rank's part of it, and scratch */
    float *p, *q, *warm;
    float *d_p, *d_q, *d_own_q, *d_scratch;
    ct_coll_ways ways_p, ways_q; /* several ranks */
    _Atomic int stage;
    int64_t iteration;
    ct_coll_where alone;
    ct_coded_stats stats;
    double left_at;
} powersgd;

/* ---- creation */

static void powersgd_destroy(void *obj)
{
    powersgd *x = obj;

    if (x == NULL) return;
    ct_side_wait(&x->side);
    ct_coll_ways_release(&x->ways_q);
    ct_coll_ways_release(&x->ways_p);
    if (x->there != NULL) x->setup.dev->mem_release(x->there);
    if (x->block != NULL) x->setup.dev->host_release(x->block);
    ct_side_close(&x->side);
    free(x);
}

static ct_status acquire(powersgd *x)
{
    const ct_device *dev = x->setup.dev;
    size_t p = ct_align_up(sizeof(float) * (size_t)x->of_p);
    size_t q = ct_align_up(sizeof(float) * (size_t)x->of_q);
    size_t scratch =
        sizeof(float) *
        (size_t)(x->of_q * ((ct_low_rank_slabs(&x->shape) > 1) ? ct_low_rank_slabs(&x->shape) : 0));
    void *block = NULL, *there = NULL;

    CT_TRY(dev->host_acquire(p + 2 * q, &block));
    x->block = block;
    x->p = block;
    x->q = (void *)(x->block + p);
    x->warm = (void *)(x->block + p + q);
    memset(x->warm, 0, q);
    CT_TRY(dev->mem_acquire(p + 2 * q + scratch, &there));
    x->there = there;
    x->d_p = there;
    x->d_q = (void *)(x->there + p);
    x->d_own_q = (void *)(x->there + p + q);
    x->d_scratch = (void *)(x->there + p + 2 * q);
    return CT_OK;
}

static ct_status prepare(powersgd *x)
{
    const ct_coded_setup *s = &x->setup;

    CT_TRY(ct_side_open(&x->side, s));
    CT_TRY(ct_side_plain_coder(&x->side));
    CT_TRY(acquire(x));
    ct_low_rank_warm(&x->shape, ct_powersgd_key(s->key, -1), x->warm);
    if (s->comm->size == 1) return CT_OK;
    CT_TRY(ct_powersgd_sum(s, x->p, x->of_p, &x->ways_p));
    return ct_powersgd_sum(s, x->q, x->of_q, &x->ways_q);
}

static ct_status powersgd_create(const ct_coded_setup *setup, void **obj_p)
{
    powersgd *x = NULL;
    ct_status status = CT_OK;

    CT_TRY(ct_powersgd_check_shape(setup));
    x = calloc(1, sizeof(*x));
    if (x == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", setup->key);
    x->setup = *setup;
    x->shape = ct_powersgd_shape(setup->config, setup->n, setup->rows);
    x->of_p = x->shape.r * x->shape.rows;
    x->of_q = x->shape.r * x->shape.cols;
    atomic_store(&x->stage, STAGE_Q);
    atomic_store(&x->alone.rank, -1);
    status = prepare(x);
    if (status != CT_OK) {
        powersgd_destroy(x);
        return status;
    }
    *obj_p = x;
    return CT_OK;
}

/* ---- a step */

static size_t bytes_of(int64_t count)
{
    return sizeof(float) * (size_t)count;
}

static ct_status powersgd_ready(void *obj, const ct_coded_step *step, bool dense, double limit)
{
    powersgd *x = obj;
    ct_device_side *d = &x->side;
    const ct_coded_setup *s = &x->setup;
    bool empty = false;
    ct_accum a;

    x->stats.encoded_at[0] = ct_clock_s();
    CT_TRY(ct_side_begin(d, &empty));
    if (dense) return ct_side_dense(d, step, empty, limit);
    a = ct_keep_accum(&d->keep, step, 0, s->n, s->comm->size);
    CT_TRY(d->codec->clip(d->coder, d->stream, s->grad, s->n, limit));
    CT_TRY(d->codec->update(d->coder, d->stream, &a));
    CT_TRY(ct_side_lift(d, x->warm, x->d_q, bytes_of(x->of_q)));
    CT_TRY(d->codec->left(d->stream, &x->shape, d->keep.v, x->d_q, x->d_p));
    return ct_side_bring(d, 0, x->p, x->d_p, bytes_of(x->of_p));
}

static ct_coll_ways *ways_now(powersgd *x)
{
    return (atomic_load(&x->stage) <= STAGE_P) ? &x->ways_p : &x->ways_q;
}

static ct_coll_where *powersgd_where(void *obj)
{
    powersgd *x = obj;

    return (x->setup.comm->size > 1) ? ct_coll_ways_where(ways_now(x)) : &x->alone;
}

static ct_status powersgd_fold(void *obj, const ct_coded_step *step)
{
    (void)step;
    return ct_side_arrived(&((powersgd *)obj)->side, powersgd_where(obj));
}

static ct_status powersgd_summed(void *obj)
{
    return ct_side_summed(&((powersgd *)obj)->side);
}

static ct_status powersgd_start(void *obj, const ct_coded_step *step)
{
    powersgd *x = obj;

    x->iteration = step->iteration;
    x->stats.n_step += 1;
    x->stats.bytes_dense += (int64_t)bytes_of(x->setup.n);
    x->stats.bytes_coded += (int64_t)bytes_of(x->of_p + x->of_q);
    atomic_store(&x->stage, STAGE_P_DOWN);
    return CT_OK;
}

/* P is summed: Q of it comes down, and goes out of V meanwhile. */
static ct_status continue_with_q(powersgd *x)
{
    ct_device_side *d = &x->side;
    double start = ct_clock_s();

    CT_TRY(ct_low_rank_basis(&x->shape, x->p)); /* finds what is not finite, too */
    CT_TRY(ct_side_lift(d, x->p, x->d_p, bytes_of(x->of_p)));
    CT_TRY(d->codec->right(d->stream, &x->shape, d->keep.v, x->d_p, x->d_scratch, x->d_own_q));
    CT_TRY(ct_side_bring(d, 0, x->q, x->d_own_q, bytes_of(x->of_q)));
    CT_TRY(d->codec->product(d->stream, &x->shape, x->d_p, x->d_own_q, true, d->keep.v));
    x->stats.exchange_s += start - x->left_at;
    x->left_at = ct_clock_s();
    x->stats.pack_s += x->left_at - start;
    atomic_store(&x->stage, STAGE_Q_DOWN);
    return CT_OK;
}

static ct_status progress_p(powersgd *x)
{
    bool alone = (x->setup.comm->size == 1);

    if (atomic_load(&x->stage) == STAGE_P_DOWN) {
        CT_TRY(ct_side_arrived(&x->side, powersgd_where(x)));
        x->left_at = x->stats.encoded_at[1] = ct_clock_s();
        x->stats.accumulate_s += x->left_at - x->stats.encoded_at[0];
        if (!alone) CT_TRY(ct_coll_ways_start(&x->ways_p));
        atomic_store(&x->stage, STAGE_P);
    }
    if (!alone) CT_TRY(ct_coll_ways_progress(&x->ways_p));
    return continue_with_q(x);
}

static ct_status deliver(powersgd *x)
{
    ct_device_side *d = &x->side;
    double start = ct_clock_s();
    bool alone = (x->setup.comm->size == 1);

    if (!alone) CT_TRY(ct_side_lift(d, x->q, x->d_q, bytes_of(x->of_q)));
    CT_TRY(d->codec->product(d->stream, &x->shape, x->d_p, alone ? x->d_own_q : x->d_q, false,
                             x->setup.grad));
    CT_TRY(ct_side_hand_over(d));
    memcpy(x->warm, x->q, bytes_of(x->of_q));
    ct_low_rank_warm(&x->shape, ct_powersgd_key(x->setup.key, x->iteration), x->warm);
    x->stats.decoded_at[0] = start;
    x->stats.decoded_at[1] = ct_clock_s();
    x->stats.exchange_s += start - x->left_at;
    x->stats.unpack_s += x->stats.decoded_at[1] - start;
    return CT_OK;
}

static ct_status powersgd_progress(void *obj)
{
    powersgd *x = obj;
    bool alone = (x->setup.comm->size == 1), brief = powersgd_where(x)->brief;

    if (atomic_load(&x->stage) <= STAGE_P) CT_TRY(progress_p(x));
    if (atomic_load(&x->stage) == STAGE_Q_DOWN) {
        if (!alone) ct_coll_ways_where(&x->ways_q)->brief = brief;
        CT_TRY(ct_side_arrived(&x->side, powersgd_where(x)));
        if (!alone) CT_TRY(ct_coll_ways_start(&x->ways_q));
        atomic_store(&x->stage, STAGE_Q);
    }
    if (!alone) CT_TRY(ct_coll_ways_progress(&x->ways_q));
    return deliver(x);
}

/* ---- looks */

static int powersgd_pending(void *obj, MPI_Request **out, int max)
{
    powersgd *x = obj;
    int stage = atomic_load(&x->stage);
    bool travels = (stage == STAGE_P) || (stage == STAGE_Q);

    return ((x->setup.comm->size > 1) && travels) ? ct_coll_ways_pending(ways_now(x), out, max) : 0;
}

/* Of the larger one. */
static const char *powersgd_exchange(const void *obj)
{
    const powersgd *x = obj;
    const ct_coll_ways *ways = (x->shape.rows > x->shape.cols) ? &x->ways_p : &x->ways_q;

    return (x->setup.comm->size > 1) ? atomic_load(&ways->now)->ops->name : "one rank";
}

static bool powersgd_state(void *obj, int i, ct_coded_state *out)
{
    powersgd *x = obj;

    if (i != ct_keep_states(&x->side.keep)) return ct_keep_state(&x->side.keep, i, out);
    *out = (ct_coded_state){
        .name = CT_POWERSGD_Q, .data = x->warm, .count = x->of_q, .replicated = true
    };
    return true;
}

/* A snapshot of another codec has no Q. */
static ct_status powersgd_restored(void *obj)
{
    powersgd *x = obj;

    ct_low_rank_warm(&x->shape, ct_powersgd_key(x->setup.key, -1), x->warm);
    return ct_keep_restored(&x->side.keep);
}

static void powersgd_stats(const void *obj, ct_coded_stats *out)
{
    const powersgd *x = obj;

    *out = x->stats;
    out->bytes_sent = ct_coll_ways_bytes_sent(&x->ways_p) + ct_coll_ways_bytes_sent(&x->ways_q);
}

static double powersgd_left(void *obj)
{
    return ct_side_left(&((powersgd *)obj)->side);
}

static void powersgd_seconds(const ct_coded_costs *m, const ct_codec_config *c, int64_t n,
                             int64_t rows, ct_coded_seconds *out)
{
    ct_low_rank s = ct_powersgd_shape(c, n, rows);
    double p = (double)bytes_of(s.r * s.rows), q = (double)bytes_of(s.r * s.cols);

    ct_powersgd_seconds(m, c, n, rows, out);
    out->wire_s += ct_coded_bus_s(m, p + q, p + 2 * q);
}

const ct_coded_ops ct_coded_powersgd_device = {
    .name = "powersgd",
    .chains = true,
    .keeps = true,
    .absorbs = true,
    .takes = ct_powersgd_takes,
    .create = powersgd_create,
    .destroy = powersgd_destroy,
    .fold = powersgd_fold,
    .ready = powersgd_ready,
    .summed = powersgd_summed,
    .start = powersgd_start,
    .progress = powersgd_progress,
    .pending = powersgd_pending,
    .where = powersgd_where,
    .exchange = powersgd_exchange,
    .state = powersgd_state,
    .restored = powersgd_restored,
    .stats = powersgd_stats,
    .left = powersgd_left,
    .payload_bytes = ct_powersgd_bytes,
    .seconds = powersgd_seconds,
};
