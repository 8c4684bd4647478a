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

#include "comm/codec/codec_types.h"
#include "comm/codec/codec_side.h"
#include "framework/base/clock.h"
#include "framework/base/rng.h"

#define Q_NAME "powersgd_q" /* the state */

enum { MOST_RANK = 256 };

typedef enum {
    STAGE_ENCODE, /* on the host: P is to be made */
    STAGE_P_DOWN, /* P comes to the host */
    STAGE_P,
    STAGE_MIDDLE, /* P is summed: Q is to be made */
    STAGE_Q_DOWN, /* likewise */
    STAGE_Q,
    STAGE_DECODE,
    STAGE_DONE
} powersgd_stage;

typedef struct powersgd {
    ct_codec_setup setup;
    ct_codec_side side;
    ct_low_rank shape;
    int64_t of_p, of_q; /* floats */
    char *block;        /* on the host: for the last Q, on a device for P and Q, too */
    char *there;        /* where gradients lie: P and Q, this rank's part of it, and scratch */
    float *warm;        /* [cols r] on the host, the last Q                                  */
    float *p, *q;       /* on the host, summed in place; in memory that the node's ranks may share,
                           where gradients are in the host's, too */
    float *at_p, *at_q; /* where gradients lie */
    float *first_q;     /* … with what the step begins */
    float *own_q;       /* … this rank's part of the next Q */
    float *scratch;
    ct_persistent_coll ways_p, ways_q; /* several ranks */
    _Atomic int stage;
    ct_codec_step step; /* under way */
    ct_coll_where alone;
    ct_codec_stats stats;
    double left_at;
    double coded_at[2]; /* the last computation of the host: began, ended */
} powersgd;

static size_t bytes_of(int64_t count)
{
    return sizeof(float) * (size_t)count;
}

/* ---- shapes */

static ct_low_rank shape_of(const ct_codec_config *c, int64_t n, int64_t rows)
{
    ct_low_rank s = { .rows = rows, .cols = n / rows, .r = c->rank };

    if (s.r > s.rows) s.r = (int)s.rows;
    if (s.r > s.cols) s.r = (int)s.cols;
    return s;
}

static bool powersgd_takes(const ct_codec_config *c, int64_t n, int64_t rows)
{
    ct_low_rank s;

    if ((rows < 1) || (n % rows != 0)) return false;
    s = shape_of(c, n, rows);
    return s.r * (s.rows + s.cols) < n;
}

static ct_status powersgd_check(const ct_codec_config *c)
{
    if ((c->rank < 1) || (c->rank > MOST_RANK))
        return CT_FAIL(CT_ERR_CONFIG, "compression powersgd: rank %d, but 1 to %d is needed",
                       c->rank, MOST_RANK);
    return CT_OK;
}

/* ---- creation */

static void release_shared(const powersgd *x, float *block)
{
    const ct_arena_ops *arena = ct_comm_arena(x->setup.comm);

    if (block != NULL) arena->release(arena->ctx, block);
}

static void powersgd_destroy(void *obj)
{
    powersgd *x = obj;

    if (x == NULL) return;
    ct_side_wait(&x->side);
    ct_persistent_coll_release(&x->ways_q);
    ct_persistent_coll_release(&x->ways_p);
    if (x->side.host) {
        release_shared(x, x->q);
        release_shared(x, x->p);
    }
    ct_side_host_release(&x->side, x->block);
    ct_side_release(&x->side, x->there);
    ct_side_close(&x->side);
    free(x);
}

static ct_status acquire_shared(const powersgd *x, int64_t count, float **block_p)
{
    const ct_arena_ops *arena = ct_comm_arena(x->setup.comm);
    void *block = NULL;

    CT_TRY(arena->acquire(arena->ctx, bytes_of(count), "factors of a gradient", &block));
    *block_p = block;
    return CT_OK;
}

/* In the host's memory P and Q are one place on both sides, and the last Q is where a step begins.
 */
static ct_status acquire_on_host(powersgd *x)
{
    size_t q = ct_align_up(bytes_of(x->of_q));
    void *block = NULL, *there = NULL;

    CT_TRY(acquire_shared(x, x->of_p, &x->p));
    CT_TRY(acquire_shared(x, x->of_q, &x->q));
    CT_TRY(ct_side_host_acquire(&x->side, q, &block));
    x->block = block;
    x->warm = x->first_q = block;
    CT_TRY(ct_side_acquire(&x->side, q + bytes_of(ct_low_rank_scratch(&x->shape)), &there));
    x->there = there;
    x->own_q = there;
    x->scratch = (void *)(x->there + q);
    x->at_p = x->p;
    x->at_q = x->q;
    return CT_OK;
}

static ct_status acquire_on_device(powersgd *x)
{
    size_t p = ct_align_up(bytes_of(x->of_p)), q = ct_align_up(bytes_of(x->of_q));
    int slabs = ct_low_rank_slabs(&x->shape);
    void *block = NULL, *there = NULL;

    CT_TRY(ct_side_host_acquire(&x->side, p + 2 * q, &block));
    x->block = block;
    x->p = block;
    x->q = (void *)(x->block + p);
    x->warm = (void *)(x->block + p + q);
    memset(x->warm, 0, q);
    CT_TRY(
        ct_side_acquire(&x->side, p + 2 * q + bytes_of((slabs > 1) ? x->of_q * slabs : 0), &there));
    x->there = there;
    x->at_p = there;
    x->at_q = x->first_q = (void *)(x->there + p);
    x->own_q = (void *)(x->there + p + q);
    x->scratch = (void *)(x->there + p + 2 * q);
    return CT_OK;
}

/* Of columns that are drawn; -1: at the start. */
static uint64_t key_of(const powersgd *x, int64_t iteration)
{
    return ct_rng_key(x->setup.seed, ct_rng_hash(Q_NAME), (uint64_t)iteration);
}

/* Both begin when the one before is done, or in `start`: never MPI's own, which would want one
 * order. */
static ct_status prepare_sum(const ct_codec_setup *s, float *buf, int64_t count,
                             ct_persistent_coll *ways)
{
    const ct_coll_ops *ops = NULL;

    *ways = (ct_persistent_coll){
        .comm = s->comm, .buf = buf, .count = count, .dtype = CT_F32, .tag = s->tag
    };
    CT_TRY(ct_persistent_coll_choose_own(s->comm, count, CT_F32, s->allreduce, "powersgd", &ops));
    return ct_persistent_coll_prepare(ways, ops->name, s->deterministic);
}

static ct_status powersgd_prepare(void *obj, const ct_codec_setup *setup)
{
    powersgd *x = obj;

    x->setup = *setup;
    atomic_store(&x->stage, STAGE_DONE);
    atomic_store(&x->alone.rank, -1);
    if (!powersgd_takes(setup->config, setup->n, setup->rows))
        return CT_FAIL(CT_ERR_ARG, "powersgd of %s, %lld elements in %lld rows", setup->key,
                       (long long)setup->n, (long long)setup->rows);
    x->shape = shape_of(setup->config, setup->n, setup->rows);
    x->of_p = x->shape.r * x->shape.rows;
    x->of_q = x->shape.r * x->shape.cols;
    CT_TRY(ct_side_open(&x->side, &x->setup, true));
    CT_TRY(ct_side_plain_coder(&x->side));
    CT_TRY(x->side.host ? acquire_on_host(x) : acquire_on_device(x));
    ct_low_rank_warm(&x->shape, key_of(x, -1), x->warm);
    if (setup->comm->size == 1) return CT_OK;
    CT_TRY(prepare_sum(&x->setup, x->p, x->of_p, &x->ways_p));
    return prepare_sum(&x->setup, x->q, x->of_q, &x->ways_q);
}

/* ---- a step */

static ct_persistent_coll *ways_now(powersgd *x)
{
    return (atomic_load(&x->stage) <= STAGE_P) ? &x->ways_p : &x->ways_q;
}

static ct_coll_where *powersgd_where(void *obj)
{
    powersgd *x = obj;

    return (x->setup.comm->size > 1) ? ct_persistent_coll_where(ways_now(x)) : &x->alone;
}

/* The update, and P of what is left. */
static ct_status begin(powersgd *x, const ct_codec_step *step, double limit)
{
    ct_codec_side *d = &x->side;
    const ct_codec_setup *s = &x->setup;
    ct_momentum_correction a = ct_error_feedback_accum(&d->keep, step, 0, s->n, s->comm->size);

    CT_TRY(d->kernels->clip(d->coder, d->stream, s->grad, s->n, limit));
    CT_TRY(ct_side_lift(d, x->warm, x->first_q, bytes_of(x->of_q)));
    CT_TRY(d->kernels->left(d->coder, d->stream, &x->shape, &a, x->first_q, x->at_p));
    return ct_side_bring(d, 0, x->p, x->at_p, bytes_of(x->of_p));
}

static ct_status powersgd_ready(void *obj, const ct_codec_step *step, bool dense, double limit)
{
    powersgd *x = obj;
    bool empty = false;

    if (!x->side.host) x->stats.encoded_at[0] = ct_clock_s();
    CT_TRY(ct_side_begin(&x->side, &empty));
    return dense ? ct_side_dense(&x->side, step, empty, limit) : begin(x, step, limit);
}

static ct_status powersgd_fold(void *obj, const ct_codec_step *step)
{
    powersgd *x = obj;

    return ct_side_fold(&x->side, step, &x->stats, powersgd_where(obj));
}

static ct_status powersgd_summed(void *obj)
{
    return ct_side_summed(&((powersgd *)obj)->side);
}

/* P is here, and leaves. */
static ct_status leave_p(powersgd *x)
{
    CT_TRY(ct_side_arrived(&x->side, powersgd_where(x)));
    x->left_at = x->stats.encoded_at[1] = ct_clock_s();
    if (x->side.host) memcpy(x->stats.encoded_at, x->coded_at, sizeof(x->coded_at));
    x->stats.accumulate_s += x->stats.encoded_at[1] - x->stats.encoded_at[0];
    atomic_store(&x->stage, STAGE_P);
    return (x->setup.comm->size > 1) ? ct_persistent_coll_start(&x->ways_p) : CT_OK;
}

static ct_status leave_q(powersgd *x)
{
    CT_TRY(ct_side_arrived(&x->side, powersgd_where(x)));
    x->stats.pack_s += x->coded_at[1] - x->coded_at[0];
    x->left_at = ct_clock_s();
    atomic_store(&x->stage, STAGE_Q);
    return (x->setup.comm->size > 1) ? ct_persistent_coll_start(&x->ways_q) : CT_OK;
}

/* The next Q, and what it says goes out of V. */
static ct_status make_q(powersgd *x)
{
    ct_codec_side *d = &x->side;

    CT_TRY(ct_low_rank_basis(&x->shape, x->p)); /* finds what is not finite, too */
    CT_TRY(ct_side_lift(d, x->p, x->at_p, bytes_of(x->of_p)));
    CT_TRY(d->kernels->right(d->stream, &x->shape, d->keep.v, x->at_p, x->scratch, x->own_q));
    CT_TRY(ct_side_bring(d, 0, x->q, x->own_q, bytes_of(x->of_q)));
    return d->kernels->product(d->stream, &x->shape, x->at_p, x->own_q, true, d->keep.v);
}

static ct_status deliver(powersgd *x)
{
    ct_codec_side *d = &x->side;
    bool alone = (x->setup.comm->size == 1);

    if (!alone) CT_TRY(ct_side_lift(d, x->q, x->at_q, bytes_of(x->of_q)));
    CT_TRY(d->kernels->product(d->stream, &x->shape, x->at_p, alone ? x->own_q : x->at_q, false,
                               x->setup.grad));
    CT_TRY(ct_side_hand_over(d));
    memcpy(x->warm, x->q, bytes_of(x->of_q));
    ct_low_rank_warm(&x->shape, key_of(x, x->step.iteration), x->warm);
    return CT_OK;
}

/* A factor is summed. */
static ct_status land(powersgd *x, ct_persistent_coll *ways, powersgd_stage next)
{
    bool brief = powersgd_where(x)->brief;

    if (x->setup.comm->size > 1) CT_TRY(ct_persistent_coll_progress(ways));
    x->stats.exchange_s += ct_clock_s() - x->left_at;
    atomic_store(&x->stage, next);
    powersgd_where(x)->brief = brief;
    return CT_OK;
}

static bool computes_next(const powersgd *x)
{
    int stage = atomic_load(&x->stage);

    return (stage == STAGE_ENCODE) || (stage == STAGE_MIDDLE) || (stage == STAGE_DECODE);
}

static bool powersgd_codes(const void *obj)
{
    const powersgd *x = obj;

    return x->step.apart && computes_next(x);
}

/* Whoever computes notes the time of it, and no other figure. */
static ct_status powersgd_code(void *obj)
{
    powersgd *x = obj;
    int stage = atomic_load(&x->stage);

    x->coded_at[0] = ct_clock_s();
    if (stage == STAGE_ENCODE)
        CT_TRY(powersgd_ready(obj, &x->step, false, 0));
    else
        CT_TRY((stage == STAGE_MIDDLE) ? make_q(x) : deliver(x));
    x->coded_at[1] = ct_clock_s();
    atomic_store(&x->stage, stage + 1);
    return CT_OK;
}

static ct_status powersgd_start(void *obj, const ct_codec_step *step)
{
    powersgd *x = obj;

    x->step = *step;
    x->stats.n_step += 1;
    x->stats.bytes_dense += (int64_t)bytes_of(x->setup.n);
    x->stats.bytes_coded += (int64_t)bytes_of(x->of_p + x->of_q);
    atomic_store(&x->stage, x->side.host ? STAGE_ENCODE : STAGE_P_DOWN);
    if (!x->side.host || step->apart) return CT_OK;
    CT_TRY(powersgd_code(obj));
    return leave_p(x);
}

static ct_status compute(powersgd *x)
{
    if (!computes_next(x)) return CT_OK;
    return powersgd_codes(x) ? CT_INPROGRESS : powersgd_code(x);
}

static ct_status powersgd_progress(void *obj)
{
    powersgd *x = obj;

    CT_TRY(compute(x));
    if (atomic_load(&x->stage) == STAGE_P_DOWN) CT_TRY(leave_p(x));
    if (atomic_load(&x->stage) == STAGE_P) CT_TRY(land(x, &x->ways_p, STAGE_MIDDLE));
    CT_TRY(compute(x));
    if (atomic_load(&x->stage) == STAGE_Q_DOWN) CT_TRY(leave_q(x));
    if (atomic_load(&x->stage) == STAGE_Q) CT_TRY(land(x, &x->ways_q, STAGE_DECODE));
    CT_TRY(compute(x));
    ct_codec_decoded(&x->stats, x->coded_at);
    return CT_OK;
}

/* ---- looks */

static int powersgd_pending(void *obj, MPI_Request **out, int max)
{
    powersgd *x = obj;
    int stage = atomic_load(&x->stage);
    bool travels = (stage == STAGE_P) || (stage == STAGE_Q);

    return ((x->setup.comm->size > 1) && travels)
               ? ct_persistent_coll_pending(ways_now(x), out, max)
               : 0;
}

/* Of the larger one. */
static const char *powersgd_exchange(const void *obj)
{
    const powersgd *x = obj;
    const ct_persistent_coll *ways = (x->shape.rows > x->shape.cols) ? &x->ways_p : &x->ways_q;

    return (x->setup.comm->size > 1) ? atomic_load(&ways->now)->ops->name : "one rank";
}

static bool powersgd_state(void *obj, int i, ct_codec_state *out)
{
    powersgd *x = obj;

    if (i != ct_error_feedback_states(&x->side.keep))
        return ct_error_feedback_state(&x->side.keep, i, out);
    *out =
        (ct_codec_state){ .name = Q_NAME, .data = x->warm, .count = x->of_q, .replicated = true };
    return true;
}

/* A snapshot of another codec has no Q. */
static ct_status powersgd_restored(void *obj)
{
    powersgd *x = obj;

    ct_low_rank_warm(&x->shape, key_of(x, -1), x->warm);
    return ct_error_feedback_restored(&x->side.keep);
}

static void powersgd_stats(const void *obj, ct_codec_stats *out)
{
    const powersgd *x = obj;

    *out = x->stats;
    out->bytes_sent =
        ct_persistent_coll_bytes_sent(&x->ways_p) + ct_persistent_coll_bytes_sent(&x->ways_q);
}

static double powersgd_left(void *obj)
{
    return ct_side_left(&((powersgd *)obj)->side);
}

/* ---- without an object */

static int64_t powersgd_bytes(const ct_codec_config *c, int64_t n, int64_t rows)
{
    ct_low_rank s = shape_of(c, n, rows);

    return (int64_t)bytes_of(s.r * (s.rows + s.cols));
}

/* Four products a column: with the update, for Q, for what goes out of V, and for the sum. */
static void powersgd_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n,
                             int64_t rows, ct_codec_seconds *out)
{
    ct_low_rank s = shape_of(c, n, rows);
    double elements = (double)n, update_s = m->speed.update_s * elements;
    double products_s = (double)s.r * m->speed.column_s * elements;
    int64_t p = (int64_t)bytes_of(s.r * s.rows), q = (int64_t)bytes_of(s.r * s.cols);

    if (c->momentum_correction) update_s -= ct_codec_stream_s(m, 8 * elements);
    *out = (ct_codec_seconds){ .encode_s = ((update_s > 0) ? update_s : 0) + products_s / 4,
                               .decode_s = m->speed.factor_s * elements + products_s * 3 / 4,
                               .wire_s = ct_codec_chained_sum_s(m, CT_F32, p) +
                                         ct_codec_chained_sum_s(m, CT_F32, q),
                               .bytes = ct_codec_sum_bytes(m, (double)(p + q)) };
    out->wire_s += ct_codec_bus_s(m, (double)(p + q), (double)(p + 2 * q));
}

const ct_codec_ops ct_codec_powersgd = {
    .name = "powersgd",
    .uses = CT_CODEC_USES_RANK | CT_CODEC_USES_RESYNC | CT_CODEC_USES_MOMENTUM_CORRECTION,
    .on_device = true,
    .chains = true,
    .check = powersgd_check,
    .takes = powersgd_takes,
    .size = sizeof(powersgd),
    .prepare = powersgd_prepare,
    .destroy = powersgd_destroy,
    .fold = powersgd_fold,
    .ready = powersgd_ready,
    .summed = powersgd_summed,
    .start = powersgd_start,
    .progress = powersgd_progress,
    .codes = powersgd_codes,
    .code = powersgd_code,
    .pending = powersgd_pending,
    .where = powersgd_where,
    .exchange = powersgd_exchange,
    .state = powersgd_state,
    .restored = powersgd_restored,
    .stats = powersgd_stats,
    .left = powersgd_left,
    .payload_bytes = powersgd_bytes,
    .seconds = powersgd_seconds,
};
