/* bf16 and fp16: half the bytes. Gradients are rounded to the nearest, partial sums again at each
 * hop; additions are in f32. No residual: what rounding drops (2^-8 relative at most, or 2^-11) is
 * lost, evenly in both directions.
 *
 * bf16 reaches as far as f32. fp16 does not, so it is taken of a power of two times the gradient:
 * the largest for which the sum cannot overflow. The ranks agree on it in each step, by the largest
 * exponent of any of them, a byte that is on its way before the gradient. With the largest element
 * of all at 2^14 / P or half of that, what is 2^-28 P of it still has fp16's full precision, and
 * nothing that is as much as 2^-38 P of it is lost.
 *
 * Where a rank needs its part of the sum alone, the payload lies where the gradient does, and the
 * sum is the half of the same allreduce, with its bits. */
#include <stdlib.h>

#include "comm/codec/cast.h"
#include "comm/codec/codec_types.h"
#include "comm/codec/codec_side.h"
#include "framework/base/clock.h"

typedef enum {
    STAGE_BEGIN,    /* on the host: the gradient is to be read */
    STAGE_EXPONENT, /* fp16: it comes to the host */
    STAGE_AGREE,    /* fp16: the ranks' is under way */
    STAGE_ENCODE,   /* fp16: the scale is known */
    STAGE_PAYLOAD,  /* it comes to the host */
    STAGE_SUM,
    STAGE_DECODE,
    STAGE_DONE
} cast_stage;

typedef struct cast {
    ct_codec_setup setup;
    ct_codec_side side;
    ct_dtype dtype;
    uint16_t *payload;        /* [n], in memory that the node's ranks may share; of parts the
                                 gradient's                                     */
    uint16_t *there;          /* [n], where gradients lie                       */
    uint32_t *down, *most;    /* fp16: the exponent on the host, and there      */
    uint8_t *exponent;        /* [1] that the ranks agree on                    */
    ct_persistent_coll ways;  /* several ranks: of the payload, …               */
    ct_persistent_coll agree; /* … and before it, fp16: of the exponent         */
    float scale;
    _Atomic int stage;
    ct_coll_where alone;
    ct_codec_stats stats;
    double left_at;
    bool apart;         /* this step: `code` computes                       */
    double coded_at[2]; /* the last computation of the host: began, ended */
} cast;

/* ---- creation */

static void cast_destroy(void *obj)
{
    cast *x = obj;

    if (x == NULL) return;
    ct_side_wait(&x->side);
    ct_persistent_coll_release(&x->agree);
    ct_persistent_coll_release(&x->ways);
    ct_mem_release(x->exponent);
    if (x->side.host && (x->payload != NULL) && !x->setup.part) {
        const ct_arena_ops *arena = ct_comm_arena(x->setup.comm);

        arena->release(arena->ctx, x->payload);
    }
    if (!x->side.host) {
        ct_side_release(&x->side, x->there);
        ct_side_release(&x->side, x->most);
        ct_side_host_release(&x->side, x->payload);
    }
    ct_side_host_release(&x->side, x->down);
    ct_side_close(&x->side);
    free(x);
}

/* On the host one block is both. Kernels of devices write whole fours. */
static ct_status acquire(cast *x)
{
    const ct_codec_setup *s = &x->setup;
    size_t bytes = sizeof(*x->payload) * (size_t)s->n;
    void *payload = NULL, *there = NULL, *most = NULL, *down = NULL;

    CT_TRY(ct_side_host_acquire(&x->side, sizeof(*x->down), &down));
    x->down = down;
    x->exponent = ct_mem_acquire(1);
    if (x->exponent == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", s->key);
    if (x->side.host) {
        const ct_arena_ops *arena = ct_comm_arena(s->comm);

        payload = s->grad;
        if (!s->part) CT_TRY(arena->acquire(arena->ctx, bytes, "compressed gradients", &payload));
        x->payload = x->there = payload;
        x->most = x->down;
        return CT_OK;
    }
    CT_TRY(ct_side_acquire(&x->side, bytes + CT_ALIGN, &there));
    x->there = there;
    CT_TRY(ct_side_acquire(&x->side, sizeof(*x->most), &most));
    x->most = most;
    if (s->comm->size > 1) CT_TRY(ct_side_host_acquire(&x->side, bytes, &payload));
    x->payload = payload;
    return CT_OK;
}

/* The sums: of the payload, where there are several ranks, and of the exponent. */
static ct_status connect(cast *x)
{
    const ct_codec_setup *s = &x->setup;
    const char *allreduce = s->allreduce;

    if (s->comm->size == 1) return CT_OK;
    x->ways = (ct_persistent_coll){ .comm = s->comm,
                                    .buf = x->payload,
                                    .count = s->n,
                                    .dtype = x->dtype,
                                    .tag = s->tag,
                                    .kind = s->part ? CT_COLL_REDUCE_SCATTER : CT_COLL_ALLREDUCE };
    if ((x->dtype == CT_F16) || !x->side.host) { /* it begins in `progress` */
        const ct_coll_ops *ops = NULL;

        CT_TRY(ct_persistent_coll_choose_own(s->comm, s->n, x->dtype, s->allreduce,
                                             (x->dtype == CT_F16) ? "fp16" : "bf16", &ops));
        allreduce = ops->name;
    }
    CT_TRY(ct_persistent_coll_prepare(&x->ways, allreduce, s->deterministic));
    if (x->dtype == CT_BF16) return CT_OK;
    x->agree = (ct_persistent_coll){
        .comm = s->comm, .buf = x->exponent, .count = 1, .dtype = CT_U8, .tag = s->tag
    };
    return ct_persistent_coll_prepare(&x->agree, "rhd",
                                      s->deterministic); /* one byte: latency is all */
}

static ct_status prepare(cast *x, const ct_codec_setup *setup, ct_dtype dtype)
{
    x->setup = *setup;
    x->dtype = dtype;
    x->scale = 1;
    atomic_store(&x->stage, STAGE_DONE);
    atomic_store(&x->alone.rank, -1);
    CT_TRY(ct_side_open(&x->side, &x->setup, false));
    if (!x->side.host && (setup->config->local_clip > 0)) CT_TRY(ct_side_plain_coder(&x->side));
    CT_TRY(acquire(x));
    return connect(x);
}

static ct_status bf16_prepare(void *obj, const ct_codec_setup *setup)
{
    return prepare(obj, setup, CT_BF16);
}

static ct_status fp16_prepare(void *obj, const ct_codec_setup *setup)
{
    return prepare(obj, setup, CT_F16);
}

/* ---- a step */

static ct_coll_where *cast_where(void *obj)
{
    cast *x = obj;

    if (x->setup.comm->size == 1) return &x->alone;
    return ct_persistent_coll_where((atomic_load(&x->stage) == STAGE_AGREE) ? &x->agree : &x->ways);
}

static ct_status encode(cast *x)
{
    const ct_codec_setup *s = &x->setup;

    if (s->part) {
        ct_cast_encode_in_place(x->dtype, s->grad, s->n, x->scale, *s->n_thread);
        return CT_OK;
    }
    CT_TRY(x->side.kernels->encode(x->side.stream, x->dtype == CT_F16, s->grad, s->n, x->scale,
                                   x->there));
    if (s->comm->size == 1) return CT_OK;
    return ct_side_bring(&x->side, 0, x->payload, x->there, sizeof(*x->payload) * (size_t)s->n);
}

/* The first that the gradient is read for. */
static ct_status begin(cast *x)
{
    const ct_codec_setup *s = &x->setup;

    if (x->dtype == CT_BF16) return encode(x);
    CT_TRY(x->side.kernels->exponent(x->side.stream, s->grad, s->n, x->most));
    return ct_side_bring(&x->side, 0, x->down, x->most, sizeof(*x->down));
}

static ct_status cast_ready(void *obj, const ct_codec_step *step, bool dense, double limit)
{
    cast *x = obj;
    const ct_codec_setup *s = &x->setup;
    const ct_codec_side *d = &x->side;

    (void)step;
    x->stats.encoded_at[0] = ct_clock_s();
    CT_TRY(d->kernels->follow(NULL, d->stream));
    if (d->coder != NULL) CT_TRY(d->kernels->shrink(d->coder, d->stream, s->grad, s->n, limit));
    if (!dense) return begin(x);
    if (s->comm->size == 1) return CT_OK;
    return ct_side_bring(&x->side, 0, s->host, s->grad, sizeof(float) * (size_t)s->n);
}

/* In the host's memory the gradient is what is summed. */
static ct_status cast_fold(void *obj, const ct_codec_step *step)
{
    cast *x = obj;

    (void)step;
    return ct_side_arrived(&x->side, cast_where(x));
}

static ct_status cast_summed(void *obj)
{
    return ct_side_summed(&((cast *)obj)->side);
}

static ct_status take_scale(cast *x)
{
    if (*x->exponent == UINT8_MAX)
        return CT_FAIL(CT_ERR_DIVERGED, "the gradient is no longer finite");
    x->scale = ct_cast_scale(*x->exponent, x->setup.comm->size);
    return CT_OK;
}

/* What is there now took so long to make: on a device since the gradient was ready. */
static double encoding_s(cast *x, bool first)
{
    double now = ct_clock_s(), took = now - x->left_at;

    x->stats.encoded_at[1] = now;
    if (x->side.host) {
        took = x->coded_at[1] - x->coded_at[0];
        if (first) x->stats.encoded_at[0] = x->coded_at[0];
        x->stats.encoded_at[1] = x->coded_at[1];
    }
    x->left_at = now;
    return took;
}

/* The exponent is here: on to the ranks, or straight to the payload. */
static ct_status leave_exponent(cast *x)
{
    CT_TRY(ct_side_arrived(&x->side, cast_where(x)));
    *x->exponent = (uint8_t)*x->down;
    CT_TRY(take_scale(x)); /* no need to ask the others where it is not finite */
    x->stats.select_s += encoding_s(x, true);
    if (x->setup.comm->size > 1) CT_TRY(ct_persistent_coll_start(&x->agree));
    atomic_store(&x->stage, (x->setup.comm->size > 1) ? STAGE_AGREE : STAGE_ENCODE);
    return CT_OK;
}

static ct_status leave_payload(cast *x)
{
    CT_TRY(ct_side_arrived(&x->side, cast_where(x)));
    x->stats.pack_s += encoding_s(x, x->dtype == CT_BF16);
    atomic_store(&x->stage, STAGE_SUM);
    return (x->setup.comm->size > 1) ? ct_persistent_coll_start(&x->ways) : CT_OK;
}

static ct_status decode(const cast *x)
{
    const ct_codec_setup *s = &x->setup;

    if (s->part) {
        ct_cast_decode_in_place(x->dtype, s->grad, s->own_first, s->own_count, 1 / x->scale,
                                *s->n_thread);
        return CT_OK;
    }
    if (s->comm->size > 1)
        CT_TRY(ct_side_lift(&x->side, x->payload, x->there, sizeof(*x->there) * (size_t)s->n));
    CT_TRY(x->side.kernels->decode(x->side.stream, x->dtype == CT_F16, x->there, s->n, 1 / x->scale,
                                   s->grad));
    return ct_side_hand_over(&x->side);
}

static bool computes_next(const cast *x)
{
    int stage = atomic_load(&x->stage);

    return (stage == STAGE_BEGIN) || (stage == STAGE_ENCODE) || (stage == STAGE_DECODE);
}

static bool cast_codes(const void *obj)
{
    const cast *x = obj;

    return x->apart && computes_next(x);
}

/* Whoever computes notes the time of it, and no other figure. */
static ct_status cast_code(void *obj)
{
    cast *x = obj;
    int next = STAGE_PAYLOAD;

    x->coded_at[0] = ct_clock_s();
    switch (atomic_load(&x->stage)) {
    case STAGE_BEGIN:
        CT_TRY(begin(x));
        if (x->dtype == CT_F16) next = STAGE_EXPONENT;
        break;
    case STAGE_ENCODE:
        CT_TRY(encode(x));
        break;
    default:
        CT_TRY(decode(x));
        next = STAGE_DONE;
    }
    x->coded_at[1] = ct_clock_s();
    atomic_store(&x->stage, next);
    return CT_OK;
}

/* As far as it goes without a message of others. */
static ct_status leave(cast *x)
{
    if (cast_codes(x)) return CT_INPROGRESS;
    if (atomic_load(&x->stage) == STAGE_BEGIN) CT_TRY(cast_code(x));
    if (atomic_load(&x->stage) == STAGE_EXPONENT) CT_TRY(leave_exponent(x));
    if (cast_codes(x)) return CT_INPROGRESS;
    if (atomic_load(&x->stage) == STAGE_ENCODE) CT_TRY(cast_code(x));
    return (atomic_load(&x->stage) == STAGE_PAYLOAD) ? leave_payload(x) : CT_OK;
}

static ct_status cast_start(void *obj, const ct_codec_step *step)
{
    cast *x = obj;

    x->stats.n_step += 1;
    x->stats.bytes_dense += x->setup.n * (int64_t)sizeof(float);
    x->stats.bytes_coded += x->setup.n * (int64_t)sizeof(*x->payload);
    x->apart = step->apart;
    if (x->side.host) {
        x->left_at = ct_clock_s();
        atomic_store(&x->stage, STAGE_BEGIN);
        return x->apart ? CT_OK : leave(x);
    }
    x->left_at = x->stats.encoded_at[0];
    atomic_store(&x->stage, (x->dtype == CT_F16) ? STAGE_EXPONENT : STAGE_PAYLOAD);
    return CT_OK;
}

static ct_status agree(cast *x)
{
    CT_TRY(ct_persistent_coll_progress(&x->agree));
    x->stats.exchange_s += ct_clock_s() - x->left_at;
    x->left_at = ct_clock_s();
    CT_TRY(take_scale(x));
    ct_persistent_coll_where(&x->ways)->brief = ct_persistent_coll_where(&x->agree)->brief;
    atomic_store(&x->stage, STAGE_ENCODE);
    return CT_OK;
}

static ct_status land(cast *x)
{
    if (x->setup.comm->size > 1) CT_TRY(ct_persistent_coll_progress(&x->ways));
    x->stats.exchange_s += ct_clock_s() - x->left_at;
    atomic_store(&x->stage, STAGE_DECODE);
    return CT_OK;
}

/* Stages pass by, each as soon as it may. */
static ct_status cast_progress(void *obj)
{
    cast *x = obj;

    CT_TRY(leave(x));
    if (atomic_load(&x->stage) == STAGE_AGREE) {
        CT_TRY(agree(x));
        CT_TRY(leave(x));
    }
    if (atomic_load(&x->stage) == STAGE_SUM) CT_TRY(land(x));
    if (cast_codes(x)) return CT_INPROGRESS;
    if (atomic_load(&x->stage) == STAGE_DECODE) CT_TRY(cast_code(x));
    ct_codec_decoded(&x->stats, x->coded_at);
    return CT_OK;
}

/* ---- looks */

static int cast_pending(void *obj, MPI_Request **out, int max)
{
    cast *x = obj;
    int stage = atomic_load(&x->stage);

    if (x->setup.comm->size == 1) return 0;
    if (stage == STAGE_AGREE) return ct_persistent_coll_pending(&x->agree, out, max);
    return (stage == STAGE_SUM) ? ct_persistent_coll_pending(&x->ways, out, max) : 0;
}

static const char *cast_exchange(const void *obj)
{
    const cast *x = obj;

    return (x->setup.comm->size > 1) ? atomic_load(&x->ways.now)->ops->name : "one rank";
}

static void cast_stats(const void *obj, ct_codec_stats *out)
{
    const cast *x = obj;

    *out = x->stats;
    out->bytes_sent =
        ct_persistent_coll_bytes_sent(&x->ways) + ct_persistent_coll_bytes_sent(&x->agree);
}

/* On a device sums begin in any order: others are not tried. */
static ct_persistent_coll *bf16_ways(void *obj)
{
    cast *x = obj;

    return (x->side.host && (x->setup.comm->size > 1)) ? &x->ways : NULL;
}

/* ---- without an object */

static int64_t cast_payload_bytes(const ct_codec_config *c, int64_t n, int64_t rows)
{
    (void)c;
    (void)rows;
    return (int64_t)sizeof(uint16_t) * n;
}

/* Encoding reads 4 bytes and writes 2 an element, decoding the other way. */
static void cast_seconds(const ct_codec_costs *m, ct_dtype dtype, int64_t n, ct_codec_seconds *out)
{
    double bytes = (double)sizeof(uint16_t) * (double)n, pass_s = ct_codec_stream_s(m, 3 * bytes);

    *out = (ct_codec_seconds){ .encode_s = pass_s,
                               .decode_s = pass_s,
                               .wire_s = ct_codec_sum_s(m, dtype, (int64_t)bytes) +
                                         ct_codec_bus_s(m, bytes, bytes),
                               .bytes = ct_codec_sum_bytes(m, bytes) };
}

static void bf16_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                         ct_codec_seconds *out)
{
    (void)c;
    (void)rows;
    cast_seconds(m, CT_BF16, n, out);
}

/* The exponent goes ahead: the gradient is read once more. */
static void fp16_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                         ct_codec_seconds *out)
{
    (void)c;
    (void)rows;
    cast_seconds(m, CT_F16, n, out);
    out->encode_s += ct_codec_stream_s(m, 4 * (double)n);
    out->wire_s += ct_codec_sum_s(m, CT_U8, 1) + ct_codec_bus_s(m, sizeof(uint32_t), 0);
}

#define CAST_OPS                                                                                   \
    .on_device = true, .parts = true, .automatic = true, .size = sizeof(cast),                     \
    .destroy = cast_destroy, .fold = cast_fold, .ready = cast_ready, .summed = cast_summed,        \
    .start = cast_start, .progress = cast_progress, .codes = cast_codes, .code = cast_code,        \
    .pending = cast_pending, .where = cast_where, .exchange = cast_exchange, .stats = cast_stats,  \
    .payload_bytes = cast_payload_bytes

const ct_codec_ops ct_codec_bf16 = {
    .name = "bf16",
    CAST_OPS,
    .prepare = bf16_prepare,
    .ways = bf16_ways,
    .seconds = bf16_seconds,
};

const ct_codec_ops ct_codec_fp16 = {
    .name = "fp16",
    CAST_OPS,
    .chains = true,
    .prepare = fp16_prepare,
    .seconds = fp16_seconds,
};
