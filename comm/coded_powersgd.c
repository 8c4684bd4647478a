/* powersgd: a gradient as the product of two thin matrices (Vogels, Karimireddy, Jaggi: PowerSGD,
 * NeurIPS 2019). With V the matrix that a rank has not sent yet, rows x cols, on all ranks
 *
 *     P = V Q         summed over the ranks; then made orthonormal
 *     Q = V^T P       summed over the ranks
 *     sum = P Q^T     a step of the power iteration on the sum of all V: Q stays for the next one
 *
 * r (rows + cols) floats travel in two allreduces, whatever the number of ranks. With its own part
 * of Q a rank takes P Q^T out of its own V: over all ranks that is what was delivered, and all that
 * is left in V is at right angles to P. Momentum is in V before (coded.h); every element is sent in
 * part, so none of it is masked. What all ranks compute, they compute in one order: replicas are
 * bitwise equal. Matrices whose factors would be no smaller travel dense (`takes`). */
#include <stdlib.h>
#include <string.h>

#include "comm/coded_cost.h"
#include "comm/coded_keep.h"
#include "comm/coded_powersgd.h"
#include "comm/coded_types.h"
#include "framework/base/clock.h"
#include "framework/base/rng.h"

enum { MOST_RANK = 256 };

typedef enum { STAGE_P, STAGE_Q } powersgd_stage;

typedef struct powersgd {
    ct_coded_setup setup;
    ct_keep keep;
    ct_low_rank shape;
    float *p, *q;        /* summed in place, in memory that the node's ranks may share */
    float *warm, *own_q; /* [cols r]: the last Q; this rank's part of the next          */
    float *scratch;
    ct_coll_ways ways_p, ways_q; /* several ranks */
    _Atomic int stage;
    ct_coded_step step;
    ct_coll_where alone;
    ct_coded_stats stats;
    double left_at;
} powersgd;

/* ---- shapes */

ct_low_rank ct_powersgd_shape(const ct_codec_config *c, int64_t n, int64_t rows)
{
    ct_low_rank s = { .rows = rows, .cols = n / rows, .r = c->rank };

    if (s.r > s.rows) s.r = (int)s.rows;
    if (s.r > s.cols) s.r = (int)s.cols;
    return s;
}

bool ct_powersgd_takes(const ct_codec_config *c, int64_t n, int64_t rows)
{
    ct_low_rank s;

    if ((rows < 1) || (n % rows != 0)) return false;
    s = ct_powersgd_shape(c, n, rows);
    return s.r * (s.rows + s.cols) < n;
}

ct_status ct_powersgd_check(const ct_codec_config *c)
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
    ct_coll_ways_release(&x->ways_q);
    ct_coll_ways_release(&x->ways_p);
    release_shared(x, x->q);
    release_shared(x, x->p);
    ct_keep_release(&x->keep);
    ct_mem_release(x->warm);
    ct_mem_release(x->own_q);
    ct_mem_release(x->scratch);
    free(x);
}

static ct_status acquire_shared(const powersgd *x, int64_t count, float **block_p)
{
    const ct_arena_ops *arena = ct_comm_arena(x->setup.comm);
    void *block = NULL;

    CT_TRY(
        arena->acquire(arena->ctx, sizeof(float) * (size_t)count, "factors of a gradient", &block));
    *block_p = block;
    return CT_OK;
}

/* Both begin when the one before is done, or in `start`: never MPI's own, which would want one
 * order. */
ct_status ct_powersgd_sum(const ct_coded_setup *s, float *buf, int64_t count, ct_coll_ways *ways)
{
    const ct_coll_ops *ops = NULL;

    *ways = (ct_coll_ways){
        .comm = s->comm, .buf = buf, .count = count, .dtype = CT_F32, .tag = s->tag
    };
    CT_TRY(ct_coll_ways_choose_own(s->comm, count, CT_F32, s->allreduce, "powersgd", &ops));
    return ct_coll_ways_prepare(ways, ops->name, s->deterministic);
}

uint64_t ct_powersgd_key(const char *param, int64_t iteration)
{
    return ct_rng_key(ct_rng_hash(param), ct_rng_hash(CT_POWERSGD_Q), (uint64_t)iteration);
}

static ct_status prepare(powersgd *x)
{
    const ct_coded_setup *s = &x->setup;
    int64_t of_p = x->shape.r * x->shape.rows, of_q = x->shape.r * x->shape.cols;
    int64_t scratch = ct_low_rank_scratch(&x->shape);

    CT_TRY(acquire_shared(x, of_p, &x->p));
    CT_TRY(acquire_shared(x, of_q, &x->q));
    CT_TRY(ct_keep_acquire(s, &x->keep));
    x->warm = ct_mem_acquire(sizeof(float) * (size_t)of_q);
    x->own_q = ct_mem_acquire(sizeof(float) * (size_t)of_q);
    x->scratch = ct_mem_acquire(sizeof(float) * (size_t)scratch);
    if ((x->warm == NULL) || (x->own_q == NULL) || (x->scratch == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", s->key);
    ct_low_rank_warm(&x->shape, ct_powersgd_key(x->setup.key, -1), x->warm);
    if (s->comm->size == 1) return CT_OK;
    CT_TRY(ct_powersgd_sum(s, x->p, of_p, &x->ways_p));
    return ct_powersgd_sum(s, x->q, of_q, &x->ways_q);
}

ct_status ct_powersgd_check_shape(const ct_coded_setup *setup)
{
    if (ct_powersgd_takes(setup->config, setup->n, setup->rows)) return CT_OK;
    return CT_FAIL(CT_ERR_ARG, "powersgd of %s, %lld elements in %lld rows", setup->key,
                   (long long)setup->n, (long long)setup->rows);
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

static ct_status powersgd_fold(void *obj, const ct_coded_step *step)
{
    powersgd *x = obj;

    ct_keep_fold(&x->keep, step, &x->stats);
    return CT_OK;
}

static ct_status powersgd_start(void *obj, const ct_coded_step *step)
{
    powersgd *x = obj;
    const ct_coded_setup *s = &x->setup;
    ct_accum a = ct_keep_accum(&x->keep, step, 0, s->n, s->comm->size);
    double start = ct_clock_s();

    x->step = *step;
    CT_TRY(ct_low_rank_left(&x->shape, &a, x->warm, x->p));
    x->left_at = ct_clock_s();
    x->stats.n_step += 1;
    x->stats.bytes_dense += s->n * (int64_t)sizeof(float);
    x->stats.bytes_coded += x->shape.r * (x->shape.rows + x->shape.cols) * (int64_t)sizeof(float);
    x->stats.accumulate_s += x->left_at - start;
    x->stats.encoded_at[0] = start;
    x->stats.encoded_at[1] = x->left_at;
    atomic_store(&x->stage, STAGE_P);
    return (s->comm->size > 1) ? ct_coll_ways_start(&x->ways_p) : CT_OK;
}

/* P is summed. What goes out of V does so while Q is under way. */
static ct_status continue_with_q(powersgd *x)
{
    const ct_coded_setup *s = &x->setup;
    size_t bytes = sizeof(float) * (size_t)(x->shape.r * x->shape.cols);
    double start = ct_clock_s();

    CT_TRY(ct_low_rank_basis(&x->shape, x->p));
    ct_low_rank_right(&x->shape, x->keep.v, x->p, s->comm->n_thread, x->scratch, x->own_q);
    memcpy(x->q, x->own_q, bytes);
    atomic_store(&x->stage, STAGE_Q);
    if (s->comm->size > 1) {
        ct_coll_ways_where(&x->ways_q)->brief = ct_coll_ways_where(&x->ways_p)->brief;
        CT_TRY(ct_coll_ways_start(&x->ways_q));
    }
    ct_low_rank_take(&x->shape, x->p, x->own_q, s->comm->n_thread, x->keep.v);
    x->stats.exchange_s += start - x->left_at;
    x->left_at = ct_clock_s();
    x->stats.pack_s += x->left_at - start;
    return CT_OK;
}

static ct_status powersgd_progress(void *obj)
{
    powersgd *x = obj;
    const ct_coded_setup *s = &x->setup;
    ct_status status = CT_OK;
    double start = 0;

    if (x->stage == STAGE_P) {
        if (s->comm->size > 1) status = ct_coll_ways_progress(&x->ways_p);
        if (status != CT_OK) return status;
        CT_TRY(continue_with_q(x));
    }
    if (s->comm->size > 1) status = ct_coll_ways_progress(&x->ways_q);
    if (status != CT_OK) return status;
    start = ct_clock_s();
    ct_low_rank_put(&x->shape, x->p, x->q, s->comm->n_thread, s->grad);
    memcpy(x->warm, x->q, sizeof(float) * (size_t)(x->shape.r * x->shape.cols));
    ct_low_rank_warm(&x->shape, ct_powersgd_key(x->setup.key, x->step.iteration), x->warm);
    x->stats.decoded_at[0] = start;
    x->stats.decoded_at[1] = ct_clock_s();
    x->stats.exchange_s += start - x->left_at;
    x->stats.unpack_s += x->stats.decoded_at[1] - start;
    return CT_OK;
}

/* ---- looks */

static ct_coll_ways *ways_now(powersgd *x)
{
    return (atomic_load(&x->stage) == STAGE_P) ? &x->ways_p : &x->ways_q;
}

static int powersgd_pending(void *obj, MPI_Request **out, int max)
{
    powersgd *x = obj;

    return (x->setup.comm->size > 1) ? ct_coll_ways_pending(ways_now(x), out, max) : 0;
}

static ct_coll_where *powersgd_where(void *obj)
{
    powersgd *x = obj;

    return (x->setup.comm->size > 1) ? ct_coll_ways_where(ways_now(x)) : &x->alone;
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

    if (i != ct_keep_states(&x->keep)) return ct_keep_state(&x->keep, i, out);
    *out = (ct_coded_state){ .name = CT_POWERSGD_Q,
                             .data = x->warm,
                             .count = x->shape.r * x->shape.cols,
                             .replicated = true };
    return true;
}

/* A snapshot of another codec has no Q. */
static ct_status powersgd_restored(void *obj)
{
    powersgd *x = obj;

    ct_low_rank_warm(&x->shape, ct_powersgd_key(x->setup.key, -1), x->warm);
    return CT_OK;
}

static void powersgd_stats(const void *obj, ct_coded_stats *out)
{
    const powersgd *x = obj;

    *out = x->stats;
    out->bytes_sent = ct_coll_ways_bytes_sent(&x->ways_p) + ct_coll_ways_bytes_sent(&x->ways_q);
}

int64_t ct_powersgd_bytes(const ct_codec_config *c, int64_t n, int64_t rows)
{
    ct_low_rank s = ct_powersgd_shape(c, n, rows);

    return s.r * (s.rows + s.cols) * (int64_t)sizeof(float);
}

/* Four products a column: with the update, for Q, for what goes out of V, and for the sum. */
void ct_powersgd_seconds(const ct_coded_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                         ct_coded_seconds *out)
{
    ct_low_rank s = ct_powersgd_shape(c, n, rows);
    double elements = (double)n, update_s = m->speed.update_s * elements;
    double products_s = (double)s.r * m->speed.column_s * elements;
    int64_t of_p = s.r * s.rows * (int64_t)sizeof(float);
    int64_t of_q = s.r * s.cols * (int64_t)sizeof(float);

    if (c->momentum_correction) update_s -= ct_coded_stream_s(m, 8 * elements);
    *out = (ct_coded_seconds){ .encode_s = ((update_s > 0) ? update_s : 0) + products_s / 4,
                               .decode_s = m->speed.factor_s * elements + products_s * 3 / 4,
                               .wire_s = ct_coded_sum_s(m, CT_F32, of_p) +
                                         ct_coded_sum_s(m, CT_F32, of_q),
                               .bytes = ct_coded_sum_bytes(m, (double)(of_p + of_q)) };
}

const ct_coded_ops ct_coded_powersgd = {
    .name = "powersgd",
    .on_device = &ct_coded_powersgd_device,
    .chains = true,
    .keeps = true,
    .absorbs = true,
    .check = ct_powersgd_check,
    .takes = ct_powersgd_takes,
    .create = powersgd_create,
    .destroy = powersgd_destroy,
    .fold = powersgd_fold,
    .start = powersgd_start,
    .progress = powersgd_progress,
    .pending = powersgd_pending,
    .where = powersgd_where,
    .exchange = powersgd_exchange,
    .state = powersgd_state,
    .restored = powersgd_restored,
    .stats = powersgd_stats,
    .payload_bytes = ct_powersgd_bytes,
    .seconds = ct_powersgd_seconds,
};
