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

#include "comm/codec/cast.h"
#include "comm/codec/codec_cast.h"
#include "comm/codec/codec_types.h"
#include "framework/base/clock.h"

typedef struct cast {
    ct_cast_head h;
    uint16_t *payload; /* [n], in memory that the node's ranks may share */
} cast;

static void cast_destroy(void *obj)
{
    cast *x = obj;

    if (x == NULL) return;
    ct_cast_close(&x->h);
    if (x->payload != NULL) {
        const ct_arena_ops *arena = ct_comm_arena(x->h.setup.comm);

        arena->release(arena->ctx, x->payload);
    }
    free(x);
}

static ct_status prepare(cast *x, const ct_codec_setup *setup, ct_dtype dtype)
{
    const ct_arena_ops *arena = ct_comm_arena(setup->comm);
    void *block = NULL;

    ct_cast_open(&x->h, setup, dtype);
    CT_TRY(arena->acquire(arena->ctx, sizeof(*x->payload) * (size_t)setup->n,
                          "compressed gradients", &block));
    x->payload = block;
    return ct_cast_connect(&x->h, x->payload);
}

static ct_status bf16_prepare(void *obj, const ct_codec_setup *setup)
{
    return prepare(obj, setup, CT_BF16);
}

static ct_status fp16_prepare(void *obj, const ct_codec_setup *setup)
{
    return prepare(obj, setup, CT_F16);
}

static ct_status encode_and_start(cast *x)
{
    const ct_codec_setup *s = &x->h.setup;
    double start = ct_clock_s();

    ct_cast_encode(x->h.dtype, s->grad, s->n, x->h.scale, s->comm->n_thread, x->payload);
    x->h.left_at = ct_clock_s();
    x->h.stats.pack_s += x->h.left_at - start;
    x->h.stats.encoded_at[1] = x->h.left_at;
    atomic_store(&x->h.stage, CT_CAST_SUM);
    return (s->comm->size > 1) ? ct_persistent_coll_start(&x->h.ways) : CT_OK;
}

static void start_step(cast *x)
{
    x->h.stats.n_step += 1;
    x->h.stats.bytes_dense += x->h.setup.n * (int64_t)sizeof(float);
    x->h.stats.bytes_coded += x->h.setup.n * (int64_t)sizeof(*x->payload);
    x->h.stats.encoded_at[0] = ct_clock_s();
}

static ct_status bf16_start(void *obj, const ct_codec_step *step)
{
    (void)step;
    start_step(obj);
    return encode_and_start(obj);
}

static ct_status fp16_start(void *obj, const ct_codec_step *step)
{
    cast *x = obj;
    const ct_codec_setup *s = &x->h.setup;

    (void)step;
    start_step(x);
    *x->h.exponent = ct_cast_exponent(s->grad, s->n, s->comm->n_thread);
    CT_TRY(ct_cast_take_scale(&x->h)); /* no need to ask the others where it is not finite */
    x->h.left_at = ct_clock_s();
    x->h.stats.select_s += x->h.left_at - x->h.stats.encoded_at[0];
    x->h.stats.encoded_at[1] = x->h.left_at;
    if (s->comm->size == 1) return encode_and_start(x);
    atomic_store(&x->h.stage, CT_CAST_AGREE);
    return ct_persistent_coll_start(&x->h.agree);
}

static ct_status cast_progress(void *obj)
{
    cast *x = obj;
    const ct_codec_setup *s = &x->h.setup;
    double start = 0;

    if (x->h.stage == CT_CAST_AGREE) {
        ct_status status = ct_persistent_coll_progress(&x->h.agree);

        if (status != CT_OK) return status;
        x->h.stats.exchange_s += ct_clock_s() - x->h.left_at;
        CT_TRY(ct_cast_take_scale(&x->h));
        ct_persistent_coll_where(&x->h.ways)->brief = ct_persistent_coll_where(&x->h.agree)->brief;
        CT_TRY(encode_and_start(x));
    }
    if (s->comm->size > 1) {
        ct_status status = ct_persistent_coll_progress(&x->h.ways);

        if (status != CT_OK) return status;
    }
    start = ct_clock_s();
    ct_cast_decode(x->h.dtype, x->payload, s->n, 1 / x->h.scale, s->comm->n_thread, s->grad);
    ct_codec_delivered(&x->h.stats, start, x->h.left_at);
    return CT_OK;
}

static ct_persistent_coll *cast_ways(void *obj)
{
    cast *x = obj;

    return (x->h.setup.comm->size > 1) ? &x->h.ways : NULL;
}

const ct_codec_ops ct_codec_bf16 = {
    .name = "bf16",
    .on_device = &ct_codec_bf16_device,
    .automatic = true,
    .size = sizeof(cast),
    .prepare = bf16_prepare,
    .destroy = cast_destroy,
    .start = bf16_start,
    .progress = cast_progress,
    .pending = ct_cast_pending,
    .where = ct_cast_where,
    .exchange = ct_cast_exchange,
    .ways = cast_ways,
    .stats = ct_cast_stats,
    .payload_bytes = ct_cast_payload_bytes,
    .seconds = ct_bf16_seconds,
};

const ct_codec_ops ct_codec_fp16 = {
    .name = "fp16",
    .on_device = &ct_codec_fp16_device,
    .chains = true,
    .automatic = true,
    .size = sizeof(cast),
    .prepare = fp16_prepare,
    .destroy = cast_destroy,
    .start = fp16_start,
    .progress = cast_progress,
    .pending = ct_cast_pending,
    .where = ct_cast_where,
    .exchange = ct_cast_exchange,
    .stats = ct_cast_stats,
    .payload_bytes = ct_cast_payload_bytes,
    .seconds = ct_fp16_seconds,
};
