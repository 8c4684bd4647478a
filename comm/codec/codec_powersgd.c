/* powersgd: a gradient as the product of two thin matrices (Vogels, Karimireddy, Jaggi: PowerSGD,
 * NeurIPS 2019). With V the matrix that a rank has not sent yet, rows x cols, on all ranks
 *
 *     P = V Q         summed over the ranks; then made orthonormal
 *     Q = V^T P       summed over the ranks
 *     sum = P Q^T     a step of the power iteration on the sum of all V: Q stays for the next one
 *
 * r (rows + cols) floats travel in two allreduces, whatever the number of ranks. With its own part
 * of Q a rank takes P Q^T out of its own V: over all ranks that is what was delivered, and all that
 * is left in V is at right angles to P. Momentum is in V before (codec.h); every element is sent in
 * part, so none of it is masked. What all ranks compute, they compute in one order: replicas are
 * bitwise equal. Matrices whose factors would be no smaller travel dense (`takes`). */
#include <stdlib.h>
#include <string.h>

#include "comm/codec/codec_powersgd.h"
#include "comm/codec/codec_types.h"
#include "framework/base/clock.h"

typedef struct powersgd {
    ct_powersgd_head h;
    ct_error_feedback keep;
    float *p, *q; /* summed in place, in memory that the node's ranks may share */
    float *own_q; /* [cols r]: this rank's part of the next Q                   */
    float *scratch;
} powersgd;

/* ---- creation */

static void release_shared(const powersgd *x, float *block)
{
    const ct_arena_ops *arena = ct_comm_arena(x->h.setup.comm);

    if (block != NULL) arena->release(arena->ctx, block);
}

static void powersgd_destroy(void *obj)
{
    powersgd *x = obj;

    if (x == NULL) return;
    ct_powersgd_close(&x->h);
    release_shared(x, x->q);
    release_shared(x, x->p);
    ct_error_feedback_release(&x->keep);
    ct_mem_release(x->h.warm);
    ct_mem_release(x->own_q);
    ct_mem_release(x->scratch);
    free(x);
}

static ct_status acquire_shared(const powersgd *x, int64_t count, float **block_p)
{
    const ct_arena_ops *arena = ct_comm_arena(x->h.setup.comm);
    void *block = NULL;

    CT_TRY(
        arena->acquire(arena->ctx, sizeof(float) * (size_t)count, "factors of a gradient", &block));
    *block_p = block;
    return CT_OK;
}

static ct_status powersgd_prepare(void *obj, const ct_codec_setup *setup)
{
    powersgd *x = obj;
    size_t bytes_q = 0;

    CT_TRY(ct_powersgd_open(&x->h, setup, &x->keep));
    bytes_q = sizeof(float) * (size_t)x->h.of_q;
    CT_TRY(acquire_shared(x, x->h.of_p, &x->p));
    CT_TRY(acquire_shared(x, x->h.of_q, &x->q));
    CT_TRY(ct_error_feedback_acquire(&x->h.setup, &x->keep));
    x->h.warm = ct_mem_acquire(bytes_q);
    x->own_q = ct_mem_acquire(bytes_q);
    x->scratch = ct_mem_acquire(sizeof(float) * (size_t)ct_low_rank_scratch(&x->h.shape));
    if ((x->h.warm == NULL) || (x->own_q == NULL) || (x->scratch == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", setup->key);
    return ct_powersgd_connect(&x->h, x->p, x->q);
}

/* ---- a step */

static ct_status powersgd_fold(void *obj, const ct_codec_step *step)
{
    powersgd *x = obj;

    ct_error_feedback_fold(&x->keep, step, &x->h.stats);
    return CT_OK;
}

static ct_status powersgd_start(void *obj, const ct_codec_step *step)
{
    powersgd *x = obj;
    const ct_codec_setup *s = &x->h.setup;
    ct_momentum_correction a = ct_error_feedback_accum(&x->keep, step, 0, s->n, s->comm->size);
    double start = ct_clock_s();

    x->h.iteration = step->iteration;
    CT_TRY(ct_low_rank_left(&x->h.shape, &a, x->h.warm, x->p));
    x->h.left_at = ct_clock_s();
    x->h.stats.n_step += 1;
    x->h.stats.bytes_dense += s->n * (int64_t)sizeof(float);
    x->h.stats.bytes_coded += (x->h.of_p + x->h.of_q) * (int64_t)sizeof(float);
    x->h.stats.accumulate_s += x->h.left_at - start;
    x->h.stats.encoded_at[0] = start;
    x->h.stats.encoded_at[1] = x->h.left_at;
    atomic_store(&x->h.stage, CT_POWERSGD_P);
    return (s->comm->size > 1) ? ct_persistent_coll_start(&x->h.ways_p) : CT_OK;
}

/* P is summed. What goes out of V does so while Q is under way. */
static ct_status continue_with_q(powersgd *x)
{
    const ct_codec_setup *s = &x->h.setup;
    size_t bytes = sizeof(float) * (size_t)x->h.of_q;
    double start = ct_clock_s();

    CT_TRY(ct_low_rank_basis(&x->h.shape, x->p));
    ct_low_rank_right(&x->h.shape, x->keep.v, x->p, s->comm->n_thread, x->scratch, x->own_q);
    memcpy(x->q, x->own_q, bytes);
    atomic_store(&x->h.stage, CT_POWERSGD_Q);
    if (s->comm->size > 1) {
        ct_persistent_coll_where(&x->h.ways_q)->brief =
            ct_persistent_coll_where(&x->h.ways_p)->brief;
        CT_TRY(ct_persistent_coll_start(&x->h.ways_q));
    }
    ct_low_rank_take(&x->h.shape, x->p, x->own_q, s->comm->n_thread, x->keep.v);
    x->h.stats.exchange_s += start - x->h.left_at;
    x->h.left_at = ct_clock_s();
    x->h.stats.pack_s += x->h.left_at - start;
    return CT_OK;
}

static ct_status powersgd_progress(void *obj)
{
    powersgd *x = obj;
    const ct_codec_setup *s = &x->h.setup;
    ct_status status = CT_OK;
    double start = 0;

    if (x->h.stage == CT_POWERSGD_P) {
        if (s->comm->size > 1) status = ct_persistent_coll_progress(&x->h.ways_p);
        if (status != CT_OK) return status;
        CT_TRY(continue_with_q(x));
    }
    if (s->comm->size > 1) status = ct_persistent_coll_progress(&x->h.ways_q);
    if (status != CT_OK) return status;
    start = ct_clock_s();
    ct_low_rank_put(&x->h.shape, x->p, x->q, s->comm->n_thread, s->grad);
    ct_powersgd_warm(&x->h, x->q);
    ct_codec_delivered(&x->h.stats, start, x->h.left_at);
    return CT_OK;
}

const ct_codec_ops ct_codec_powersgd = {
    .name = "powersgd",
    .on_device = &ct_codec_powersgd_device,
    .chains = true,
    .keeps = true,
    .absorbs = true,
    .check = ct_powersgd_check,
    .takes = ct_powersgd_takes,
    .size = sizeof(powersgd),
    .prepare = powersgd_prepare,
    .destroy = powersgd_destroy,
    .fold = powersgd_fold,
    .start = powersgd_start,
    .progress = powersgd_progress,
    .pending = ct_powersgd_pending,
    .where = ct_powersgd_where,
    .exchange = ct_powersgd_exchange,
    .state = ct_powersgd_state,
    .restored = ct_powersgd_restored,
    .stats = ct_powersgd_stats,
    .payload_bytes = ct_powersgd_bytes,
    .seconds = ct_powersgd_seconds,
};
