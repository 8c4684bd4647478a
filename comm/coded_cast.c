/* bf16: half the bytes. Gradients are rounded to the nearest bfloat16, partial sums again at each
 * hop; additions are in f32. No residual: what rounding drops (2^-8 relative at most) is lost,
 * evenly in both directions. */
#include <stdlib.h>

#include "comm/bf16.h"
#include "comm/coded_types.h"
#include "framework/base/clock.h"

typedef struct cast {
    ct_coded_setup setup;
    void *payload;     /* [n], in memory that the node's ranks may share */
    ct_coll_ways ways; /* several ranks                                  */
    ct_coll_where alone;
    ct_coded_stats stats;
    double left_at;
} cast;

static void bf16_encode(const float *grad, int64_t n, int n_thread, void *payload)
{
    uint16_t *out = payload;

#pragma omp parallel for simd schedule(static) num_threads(n_thread) if (n > 65536)
    for (int64_t i = 0; i < n; ++i) out[i] = ct_bf16_from_f32(grad[i]);
}

static void bf16_decode(const void *payload, int64_t n, int n_thread, float *sum)
{
    const uint16_t *in = payload;

#pragma omp parallel for simd schedule(static) num_threads(n_thread) if (n > 65536)
    for (int64_t i = 0; i < n; ++i) sum[i] = ct_bf16_to_f32(in[i]);
}

static void cast_destroy(void *obj)
{
    cast *x = obj;

    if (x == NULL) return;
    ct_coll_ways_release(&x->ways);
    if (x->payload != NULL) {
        const ct_arena_ops *arena = ct_comm_arena(x->setup.comm);

        arena->release(arena->ctx, x->payload);
    }
    free(x);
}

static ct_status cast_prepare(cast *x)
{
    const ct_coded_setup *s = &x->setup;
    const ct_arena_ops *arena = ct_comm_arena(s->comm);

    CT_TRY(arena->acquire(arena->ctx, sizeof(uint16_t) * (size_t)s->n, "compressed gradients",
                          &x->payload));
    if (s->comm->size == 1) return CT_OK;
    x->ways = (ct_coll_ways){
        .comm = s->comm, .buf = x->payload, .count = s->n, .dtype = CT_BF16, .tag = s->tag
    };
    return ct_coll_ways_prepare(&x->ways, s->allreduce, s->deterministic);
}

static ct_status cast_create(const ct_coded_setup *setup, void **obj_p)
{
    cast *x = calloc(1, sizeof(*x));
    ct_status status = CT_OK;

    if (x == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", setup->key);
    x->setup = *setup;
    atomic_store(&x->alone.rank, -1);
    status = cast_prepare(x);
    if (status != CT_OK) {
        cast_destroy(x);
        return status;
    }
    *obj_p = x;
    return CT_OK;
}

static ct_status cast_start(void *obj, const ct_coded_step *step)
{
    cast *x = obj;
    double start = ct_clock_s();

    (void)step;
    bf16_encode(x->setup.grad, x->setup.n, x->setup.comm->n_thread, x->payload);
    x->left_at = ct_clock_s();
    x->stats.n_step += 1;
    x->stats.bytes_dense += x->setup.n * (int64_t)sizeof(float);
    x->stats.bytes_coded += x->setup.n * (int64_t)sizeof(uint16_t);
    x->stats.pack_s += x->left_at - start;
    x->stats.encoded_at[0] = start;
    x->stats.encoded_at[1] = x->left_at;
    return (x->setup.comm->size > 1) ? ct_coll_ways_start(&x->ways) : CT_OK;
}

static ct_status cast_progress(void *obj)
{
    cast *x = obj;
    double start = 0;

    if (x->setup.comm->size > 1) {
        ct_status status = ct_coll_ways_progress(&x->ways);

        if (status != CT_OK) return status;
    }
    start = ct_clock_s();
    bf16_decode(x->payload, x->setup.n, x->setup.comm->n_thread, x->setup.grad);
    x->stats.decoded_at[0] = start;
    x->stats.decoded_at[1] = ct_clock_s();
    x->stats.exchange_s += start - x->left_at;
    x->stats.unpack_s += x->stats.decoded_at[1] - start;
    return CT_OK;
}

static int cast_pending(void *obj, MPI_Request **out, int max)
{
    cast *x = obj;

    return (x->setup.comm->size > 1) ? ct_coll_ways_pending(&x->ways, out, max) : 0;
}

static ct_coll_where *cast_where(void *obj)
{
    cast *x = obj;

    return (x->setup.comm->size > 1) ? ct_coll_ways_where(&x->ways) : &x->alone;
}

static const char *cast_exchange(const void *obj)
{
    const cast *x = obj;

    return (x->setup.comm->size > 1) ? atomic_load(&x->ways.now)->ops->name : "one rank";
}

static ct_coll_ways *cast_ways(void *obj)
{
    cast *x = obj;

    return (x->setup.comm->size > 1) ? &x->ways : NULL;
}

static void cast_stats(const void *obj, ct_coded_stats *out)
{
    const cast *x = obj;

    *out = x->stats;
    out->bytes_sent = ct_coll_ways_bytes_sent(&x->ways);
}

static int64_t half_bytes(const ct_codec_config *c, int64_t n, int64_t rows)
{
    (void)c;
    (void)rows;
    return (int64_t)sizeof(uint16_t) * n;
}

static double cast_predict_s(ct_comm *c, const ct_codec_config *config, int64_t n, int64_t rows)
{
    const ct_coll_ops *ops = NULL;

    if ((c->size == 1) || (ct_coll_choose(c, n, CT_BF16, "auto", &ops) != CT_OK)) return 0;
    return ops->cost_s(c, half_bytes(config, n, rows));
}

const ct_coded_ops ct_coded_bf16 = {
    .name = "bf16",
    .create = cast_create,
    .destroy = cast_destroy,
    .start = cast_start,
    .progress = cast_progress,
    .pending = cast_pending,
    .where = cast_where,
    .exchange = cast_exchange,
    .ways = cast_ways,
    .stats = cast_stats,
    .payload_bytes = half_bytes,
    .predict_s = cast_predict_s,
};
