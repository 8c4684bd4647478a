/* bf16 and fp16 of gradients on a device (coded.h, device_codec.h): rounded there, half the bytes
 * come down, are summed on the host as coded_cast.c sums them, and go up. fp16's exponent comes
 * down first, since the ranks agree on a scale before anything is rounded. */
#include <stdlib.h>

#include "comm/cast.h"
#include "comm/coded_cast.h"
#include "comm/coded_cost.h"
#include "comm/coded_types.h"
#include "comm/device_codec.h"
#include "framework/base/clock.h"

typedef enum { STAGE_EXPONENT, STAGE_AGREE, STAGE_DOWN, STAGE_SUM } cast_stage;

typedef struct cast {
    ct_coded_setup setup;
    const ct_device_codec *codec;
    ct_stream stream;
    ct_device_coder *coder; /* for local_clip; else NULL */
    ct_dtype dtype;
    uint16_t *there, *payload; /* [n] on the device; several ranks: on the host */
    uint32_t *most, *down;     /* fp16: the exponent on the device, and on the host */
    uint8_t *exponent;         /* [1] that the ranks agree on                   */
    ct_coll_ways ways, agree;  /* as in coded_cast.c                            */
    void *ticket;              /* of a copy down                                */
    float scale;
    _Atomic int stage;
    ct_coll_where alone;
    ct_coded_stats stats;
    double left_at;
} cast;

/* ---- creation */

static void cast_destroy(void *obj)
{
    cast *x = obj;
    const ct_device *dev = (x != NULL) ? x->setup.dev : NULL;

    if (x == NULL) return;
    (void)dev->sync(x->stream);
    ct_coll_ways_release(&x->agree);
    ct_coll_ways_release(&x->ways);
    x->codec->destroy(x->coder);
    dev->mem_release(x->there);
    dev->mem_release(x->most);
    if (x->payload != NULL) dev->host_release(x->payload);
    if (x->down != NULL) dev->host_release(x->down);
    ct_mem_release(x->exponent);
    free(x);
}

static ct_status prepare_sums(cast *x)
{
    const ct_coded_setup *s = &x->setup;
    const ct_coll_ops *ops = NULL;

    x->ways = (ct_coll_ways){
        .comm = s->comm, .buf = x->payload, .count = s->n, .dtype = x->dtype, .tag = s->tag
    };
    CT_TRY(ct_coll_ways_choose_own(s->comm, s->n, x->dtype, s->allreduce,
                                   (x->dtype == CT_F16) ? "fp16" : "bf16", &ops));
    CT_TRY(ct_coll_ways_prepare(&x->ways, ops->name, s->deterministic));
    if (x->dtype == CT_BF16) return CT_OK;
    x->agree = (ct_coll_ways){
        .comm = s->comm, .buf = x->exponent, .count = 1, .dtype = CT_U8, .tag = s->tag
    };
    return ct_coll_ways_prepare(&x->agree, "rhd", s->deterministic);
}

static ct_status prepare(cast *x)
{
    const ct_device *dev = x->setup.dev;
    size_t bytes = sizeof(*x->payload) * (size_t)x->setup.n;
    void *there = NULL, *payload = NULL, *most = NULL, *down = NULL;
    ct_coder_setup plain = { .n = x->setup.n, .k = 1 };

    CT_TRY(x->codec->stream(&x->stream));
    if (x->setup.config->local_clip > 0) CT_TRY(x->codec->create(&plain, &x->coder));
    CT_TRY(dev->mem_acquire(bytes + CT_ALIGN, &there)); /* kernels write whole fours */
    x->there = there;
    CT_TRY(dev->mem_acquire(sizeof(*x->most), &most));
    x->most = most;
    CT_TRY(dev->host_acquire(sizeof(*x->down), &down));
    x->down = down;
    x->exponent = ct_mem_acquire(1);
    if (x->exponent == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", x->setup.key);
    if (x->setup.comm->size == 1) return CT_OK;
    CT_TRY(dev->host_acquire(bytes, &payload));
    x->payload = payload;
    return prepare_sums(x);
}

static ct_status create(const ct_coded_setup *setup, ct_dtype dtype, void **obj_p)
{
    cast *x = calloc(1, sizeof(*x));
    ct_status status = CT_OK;

    if (x == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", setup->key);
    x->setup = *setup;
    x->codec = ct_device_codec_find(setup->dev->kind);
    x->dtype = dtype;
    x->scale = 1;
    atomic_store(&x->stage, STAGE_SUM);
    atomic_store(&x->alone.rank, -1);
    status = prepare(x);
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

/* ---- a step */

static ct_status bring(cast *x, void *host, void *data, size_t bytes)
{
    return x->setup.dev->copy_begin(x->stream, host, data, bytes, true, &x->ticket);
}

static ct_status arrived(cast *x)
{
    bool done = true;

    if (x->ticket == NULL) return CT_OK;
    CT_TRY(x->setup.dev->copy_done(x->ticket, false, &done));
    if (done) x->ticket = NULL;
    return done ? CT_OK : CT_INPROGRESS;
}

static ct_status encode(cast *x)
{
    const ct_coded_setup *s = &x->setup;

    CT_TRY(x->codec->encode(x->stream, x->dtype == CT_F16, s->grad, s->n, x->scale, x->there));
    if (s->comm->size == 1) return CT_OK;
    return bring(x, x->payload, x->there, sizeof(*x->payload) * (size_t)s->n);
}

static ct_status cast_ready(void *obj, const ct_coded_step *step, bool dense, double limit)
{
    cast *x = obj;
    const ct_coded_setup *s = &x->setup;

    (void)step;
    x->stats.encoded_at[0] = ct_clock_s();
    CT_TRY(x->codec->follow(NULL, x->stream));
    if (x->coder != NULL) CT_TRY(x->codec->shrink(x->coder, x->stream, s->grad, s->n, limit));
    if (dense) {
        if (s->comm->size == 1) return CT_OK;
        return bring(x, s->host, s->grad, sizeof(float) * (size_t)s->n);
    }
    if (x->dtype == CT_BF16) return encode(x);
    CT_TRY(x->codec->exponent(x->stream, s->grad, s->n, x->most));
    return bring(x, x->down, x->most, sizeof(*x->down));
}

static ct_status cast_fold(void *obj, const ct_coded_step *step)
{
    (void)step;
    return arrived(obj);
}

static ct_status cast_summed(void *obj)
{
    cast *x = obj;
    const ct_coded_setup *s = &x->setup;
    void *none = NULL;

    if (s->comm->size > 1)
        CT_TRY(s->dev->copy_begin(x->stream, s->host, s->grad, sizeof(float) * (size_t)s->n, false,
                                  &none));
    return x->codec->follow(x->stream, NULL);
}

static ct_status cast_start(void *obj, const ct_coded_step *step)
{
    cast *x = obj;

    (void)step;
    x->stats.n_step += 1;
    x->stats.bytes_dense += x->setup.n * (int64_t)sizeof(float);
    x->stats.bytes_coded += x->setup.n * (int64_t)sizeof(*x->payload);
    atomic_store(&x->stage, (x->dtype == CT_F16) ? STAGE_EXPONENT : STAGE_DOWN);
    return CT_OK;
}

static ct_status take_scale(cast *x)
{
    if (*x->exponent == UINT8_MAX)
        return CT_FAIL(CT_ERR_DIVERGED, "the gradient is no longer finite");
    x->scale = ct_cast_scale(*x->exponent, x->setup.comm->size);
    return CT_OK;
}

/* Here the stages up to the sum pass by, each as soon as it may. */
static ct_status progress_scale(cast *x)
{
    if (atomic_load(&x->stage) == STAGE_EXPONENT) {
        CT_TRY(arrived(x));
        *x->exponent = (uint8_t)*x->down;
        CT_TRY(take_scale(x)); /* no need to ask the others where it is not finite */
        if (x->setup.comm->size > 1) {
            CT_TRY(ct_coll_ways_start(&x->agree));
            atomic_store(&x->stage, STAGE_AGREE);
        }
    }
    if (atomic_load(&x->stage) == STAGE_AGREE) {
        CT_TRY(ct_coll_ways_progress(&x->agree));
        CT_TRY(take_scale(x));
        ct_coll_ways_where(&x->ways)->brief = ct_coll_ways_where(&x->agree)->brief;
    }
    CT_TRY(encode(x));
    atomic_store(&x->stage, STAGE_DOWN);
    return CT_OK;
}

static ct_status decode(cast *x)
{
    const ct_coded_setup *s = &x->setup;
    double start = ct_clock_s();
    void *none = NULL;

    x->stats.exchange_s += start - x->left_at;
    x->stats.decoded_at[0] = start;
    if (s->comm->size > 1)
        CT_TRY(s->dev->copy_begin(x->stream, x->payload, x->there,
                                  sizeof(*x->payload) * (size_t)s->n, false, &none));
    CT_TRY(x->codec->decode(x->stream, x->dtype == CT_F16, x->there, s->n, 1 / x->scale, s->grad));
    CT_TRY(x->codec->follow(x->stream, NULL));
    x->stats.decoded_at[1] = ct_clock_s();
    x->stats.unpack_s += x->stats.decoded_at[1] - start;
    return CT_OK;
}

static ct_status cast_progress(void *obj)
{
    cast *x = obj;
    bool alone = (x->setup.comm->size == 1);

    if (atomic_load(&x->stage) < STAGE_DOWN) CT_TRY(progress_scale(x));
    if (atomic_load(&x->stage) == STAGE_DOWN) {
        CT_TRY(arrived(x));
        x->left_at = ct_clock_s();
        x->stats.encoded_at[1] = x->left_at;
        x->stats.pack_s += x->left_at - x->stats.encoded_at[0];
        if (!alone) CT_TRY(ct_coll_ways_start(&x->ways));
        atomic_store(&x->stage, STAGE_SUM);
    }
    if (!alone) CT_TRY(ct_coll_ways_progress(&x->ways));
    return decode(x);
}

/* ---- looks */

static ct_coll_ways *ways_now(cast *x)
{
    return (atomic_load(&x->stage) == STAGE_AGREE) ? &x->agree : &x->ways;
}

static int cast_pending(void *obj, MPI_Request **out, int max)
{
    cast *x = obj;
    int stage = atomic_load(&x->stage);
    bool travels = (stage == STAGE_AGREE) || (stage == STAGE_SUM);

    return ((x->setup.comm->size > 1) && travels) ? ct_coll_ways_pending(ways_now(x), out, max) : 0;
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

static void cast_stats(const void *obj, ct_coded_stats *out)
{
    const cast *x = obj;

    *out = x->stats;
    out->bytes_sent = ct_coll_ways_bytes_sent(&x->ways) + ct_coll_ways_bytes_sent(&x->agree);
}

static void bf16_seconds(const ct_coded_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                         ct_coded_seconds *out)
{
    double bytes = (double)sizeof(uint16_t) * (double)n;

    ct_bf16_seconds(m, c, n, rows, out);
    out->wire_s += ct_coded_bus_s(m, bytes, bytes);
}

static void fp16_seconds(const ct_coded_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                         ct_coded_seconds *out)
{
    double bytes = (double)sizeof(uint16_t) * (double)n;

    ct_fp16_seconds(m, c, n, rows, out);
    out->wire_s += ct_coded_bus_s(m, bytes + sizeof(uint32_t), bytes);
}

#define CAST_ON_DEVICE                                                                             \
    .chains = true, .destroy = cast_destroy, .fold = cast_fold, .ready = cast_ready,               \
    .summed = cast_summed, .start = cast_start, .progress = cast_progress,                         \
    .pending = cast_pending, .where = cast_where, .exchange = cast_exchange, .stats = cast_stats,  \
    .payload_bytes = ct_cast_payload_bytes

const ct_coded_ops ct_coded_bf16_device = {
    .name = "bf16",
    CAST_ON_DEVICE,
    .create = bf16_create,
    .seconds = bf16_seconds,
};

const ct_coded_ops ct_coded_fp16_device = {
    .name = "fp16",
    CAST_ON_DEVICE,
    .create = fp16_create,
    .seconds = fp16_seconds,
};
