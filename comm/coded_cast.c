/* bf16 and fp16: half the bytes. Gradients are rounded to the nearest, partial sums again at each
 * hop; additions are in f32. No residual: what rounding drops (2^-8 relative at most, or 2^-11) is
 * lost, evenly in both directions.
 *
 * bf16 reaches as far as f32. fp16 does not, so it is taken of a power of two times the gradient:
 * the largest for which the sum cannot overflow. The ranks agree on it in each step, by the largest
 * exponent of any of them, a byte that is on its way before the gradient. With the largest element
 * of all at 2^14 / P or half of that, what is 2^-28 P of it still has fp16's full precision, and
 * nothing that is as much as 2^-38 P of it is lost. */
#include <stdlib.h>

#include "comm/cast.h"
#include "comm/coded_cast.h"
#include "comm/coded_cost.h"
#include "comm/coded_types.h"
#include "framework/base/clock.h"

typedef enum { STAGE_EXPONENT, STAGE_SUM } cast_stage;

typedef struct cast {
    ct_coded_setup setup;
    ct_dtype dtype;
    uint16_t *payload;  /* [n], in memory that the node's ranks may share */
    ct_coll_ways ways;  /* several ranks: of the payload, …               */
    ct_coll_ways agree; /* … and before it, fp16: of the exponent         */
    uint8_t *exponent;  /* [1] */
    float scale;
    _Atomic int stage;
    ct_coll_where alone;
    ct_coded_stats stats;
    double left_at;
} cast;

static void cast_destroy(void *obj)
{
    cast *x = obj;

    if (x == NULL) return;
    ct_coll_ways_release(&x->agree);
    ct_coll_ways_release(&x->ways);
    if (x->payload != NULL) {
        const ct_arena_ops *arena = ct_comm_arena(x->setup.comm);

        arena->release(arena->ctx, x->payload);
    }
    ct_mem_release(x->exponent);
    free(x);
}

/* One byte: latency is all. */
static ct_status prepare_agree(cast *x)
{
    const ct_coded_setup *s = &x->setup;

    x->agree = (ct_coll_ways){
        .comm = s->comm, .buf = x->exponent, .count = 1, .dtype = CT_U8, .tag = s->tag
    };
    return ct_coll_ways_prepare(&x->agree, "rhd", s->deterministic);
}

static ct_status cast_prepare(cast *x)
{
    const ct_coded_setup *s = &x->setup;
    const ct_arena_ops *arena = ct_comm_arena(s->comm);
    const ct_coll_ops *ops = NULL;
    void *block = NULL;

    CT_TRY(arena->acquire(arena->ctx, sizeof(*x->payload) * (size_t)s->n, "compressed gradients",
                          &block));
    x->payload = block;
    x->exponent = ct_mem_acquire(1);
    if (x->exponent == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", s->key);
    if (s->comm->size == 1) return CT_OK;
    x->ways = (ct_coll_ways){
        .comm = s->comm, .buf = x->payload, .count = s->n, .dtype = x->dtype, .tag = s->tag
    };
    if (x->dtype == CT_BF16) return ct_coll_ways_prepare(&x->ways, s->allreduce, s->deterministic);
    CT_TRY(ct_coll_ways_choose_own(s->comm, s->n, CT_F16, s->allreduce, "fp16", &ops));
    CT_TRY(ct_coll_ways_prepare(&x->ways, ops->name, s->deterministic));
    return prepare_agree(x);
}

static ct_status create(const ct_coded_setup *setup, ct_dtype dtype, void **obj_p)
{
    cast *x = calloc(1, sizeof(*x));
    ct_status status = CT_OK;

    if (x == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", setup->key);
    x->setup = *setup;
    x->dtype = dtype;
    x->scale = 1;
    atomic_store(&x->stage, STAGE_SUM);
    atomic_store(&x->alone.rank, -1);
    status = cast_prepare(x);
    if (status != CT_OK) {
        cast_destroy(x);
        return status;
    }
    *obj_p = x;
    return CT_OK;
}

static ct_status bf16_create(const ct_coded_setup *setup, void **obj_p)
{
    return create(setup, CT_BF16, obj_p);
}

static ct_status fp16_create(const ct_coded_setup *setup, void **obj_p)
{
    return create(setup, CT_F16, obj_p);
}

static ct_status encode_and_start(cast *x)
{
    const ct_coded_setup *s = &x->setup;
    double start = ct_clock_s();

    ct_cast_encode(x->dtype, s->grad, s->n, x->scale, s->comm->n_thread, x->payload);
    x->left_at = ct_clock_s();
    x->stats.pack_s += x->left_at - start;
    x->stats.encoded_at[1] = x->left_at;
    atomic_store(&x->stage, STAGE_SUM);
    return (s->comm->size > 1) ? ct_coll_ways_start(&x->ways) : CT_OK;
}

static void start_step(cast *x)
{
    x->stats.n_step += 1;
    x->stats.bytes_dense += x->setup.n * (int64_t)sizeof(float);
    x->stats.bytes_coded += x->setup.n * (int64_t)sizeof(*x->payload);
    x->stats.encoded_at[0] = ct_clock_s();
}

static ct_status bf16_start(void *obj, const ct_coded_step *step)
{
    (void)step;
    start_step(obj);
    return encode_and_start(obj);
}

static ct_status take_scale(cast *x)
{
    if (*x->exponent == UINT8_MAX)
        return CT_FAIL(CT_ERR_DIVERGED, "the gradient is no longer finite");
    x->scale = ct_cast_scale(*x->exponent, x->setup.comm->size);
    return CT_OK;
}

static ct_status fp16_start(void *obj, const ct_coded_step *step)
{
    cast *x = obj;
    const ct_coded_setup *s = &x->setup;

    (void)step;
    start_step(x);
    *x->exponent = ct_cast_exponent(s->grad, s->n, s->comm->n_thread);
    CT_TRY(take_scale(x)); /* no need to ask the others where it is not finite */
    x->left_at = ct_clock_s();
    x->stats.select_s += x->left_at - x->stats.encoded_at[0];
    x->stats.encoded_at[1] = x->left_at;
    if (s->comm->size == 1) return encode_and_start(x);
    atomic_store(&x->stage, STAGE_EXPONENT);
    return ct_coll_ways_start(&x->agree);
}

static ct_status cast_progress(void *obj)
{
    cast *x = obj;
    const ct_coded_setup *s = &x->setup;
    double start = 0;

    if (x->stage == STAGE_EXPONENT) {
        ct_status status = ct_coll_ways_progress(&x->agree);

        if (status != CT_OK) return status;
        x->stats.exchange_s += ct_clock_s() - x->left_at;
        CT_TRY(take_scale(x));
        ct_coll_ways_where(&x->ways)->brief = ct_coll_ways_where(&x->agree)->brief;
        CT_TRY(encode_and_start(x));
    }
    if (s->comm->size > 1) {
        ct_status status = ct_coll_ways_progress(&x->ways);

        if (status != CT_OK) return status;
    }
    start = ct_clock_s();
    ct_cast_decode(x->dtype, x->payload, s->n, 1 / x->scale, s->comm->n_thread, s->grad);
    ct_coded_delivered(&x->stats, start, x->left_at);
    return CT_OK;
}

static ct_coll_ways *ways_now(cast *x)
{
    return (atomic_load(&x->stage) == STAGE_EXPONENT) ? &x->agree : &x->ways;
}

static int cast_pending(void *obj, MPI_Request **out, int max)
{
    cast *x = obj;

    return (x->setup.comm->size > 1) ? ct_coll_ways_pending(ways_now(x), out, max) : 0;
}

static ct_coll_where *cast_where(void *obj)
{
    cast *x = obj;

    return (x->setup.comm->size > 1) ? ct_coll_ways_where(ways_now(x)) : &x->alone;
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
    out->bytes_sent = ct_coll_ways_bytes_sent(&x->ways) + ct_coll_ways_bytes_sent(&x->agree);
}

int64_t ct_cast_payload_bytes(const ct_codec_config *c, int64_t n, int64_t rows)
{
    (void)c;
    (void)rows;
    return (int64_t)sizeof(uint16_t) * n;
}

/* Encoding reads 4 bytes and writes 2 an element, decoding the other way. */
static void cast_seconds(const ct_coded_costs *m, ct_dtype dtype, int64_t n, ct_coded_seconds *out)
{
    double bytes = (double)sizeof(uint16_t) * (double)n, pass_s = ct_coded_stream_s(m, 3 * bytes);

    *out = (ct_coded_seconds){ .encode_s = pass_s,
                               .decode_s = pass_s,
                               .wire_s = ct_coded_sum_s(m, dtype, (int64_t)bytes),
                               .bytes = ct_coded_sum_bytes(m, bytes) };
}

void ct_bf16_seconds(const ct_coded_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                     ct_coded_seconds *out)
{
    (void)c;
    (void)rows;
    cast_seconds(m, CT_BF16, n, out);
}

/* The exponent goes ahead: the gradient is read once more. */
void ct_fp16_seconds(const ct_coded_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                     ct_coded_seconds *out)
{
    (void)c;
    (void)rows;
    cast_seconds(m, CT_F16, n, out);
    out->encode_s += ct_coded_stream_s(m, 4 * (double)n);
    out->wire_s += ct_coded_sum_s(m, CT_U8, 1);
}

const ct_coded_ops ct_coded_bf16 = {
    .name = "bf16",
    .on_device = &ct_coded_bf16_device,
    .automatic = true,
    .create = bf16_create,
    .destroy = cast_destroy,
    .start = bf16_start,
    .progress = cast_progress,
    .pending = cast_pending,
    .where = cast_where,
    .exchange = cast_exchange,
    .ways = cast_ways,
    .stats = cast_stats,
    .payload_bytes = ct_cast_payload_bytes,
    .seconds = ct_bf16_seconds,
};

const ct_coded_ops ct_coded_fp16 = {
    .name = "fp16",
    .on_device = &ct_coded_fp16_device,
    .chains = true,
    .automatic = true,
    .create = fp16_create,
    .destroy = cast_destroy,
    .start = fp16_start,
    .progress = cast_progress,
    .pending = cast_pending,
    .where = cast_where,
    .exchange = cast_exchange,
    .stats = cast_stats,
    .payload_bytes = ct_cast_payload_bytes,
    .seconds = ct_fp16_seconds,
};
