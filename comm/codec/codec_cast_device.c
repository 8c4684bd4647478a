/* bf16 and fp16 of gradients on a device (codec.h, device_codec.h): rounded there, half the bytes
 * come down, are summed on the host as codec_cast.c sums them, and go up. fp16's exponent comes
 * down first, since the ranks agree on a scale before anything is rounded. */
#include <stdlib.h>

#include "comm/codec/cast.h"
#include "comm/codec/codec_cast.h"
#include "comm/codec/codec_cost.h"
#include "comm/codec/codec_types.h"
#include "comm/codec/device_codec.h"
#include "framework/base/clock.h"

typedef struct cast {
    ct_cast_head h;
    const ct_device_codec *codec;
    ct_stream stream;
    ct_device_coder *coder;    /* for local_clip; else NULL */
    uint16_t *there, *payload; /* [n] on the device; several ranks: on the host */
    uint32_t *most, *down;     /* fp16: the exponent on the device, and on the host */
    void *ticket;              /* of a copy down                                */
} cast;

/* ---- creation */

static void cast_destroy(void *obj)
{
    cast *x = obj;
    const ct_device *dev = (x != NULL) ? x->h.setup.dev : NULL;

    if (x == NULL) return;
    (void)dev->sync(x->stream);
    ct_cast_close(&x->h);
    x->codec->destroy(x->coder);
    dev->mem_release(x->there);
    dev->mem_release(x->most);
    if (x->payload != NULL) dev->host_release(x->payload);
    if (x->down != NULL) dev->host_release(x->down);
    free(x);
}

static ct_status prepare(cast *x, const ct_codec_setup *setup, ct_dtype dtype)
{
    const ct_device *dev = setup->dev;
    size_t bytes = sizeof(*x->payload) * (size_t)setup->n;
    void *there = NULL, *payload = NULL, *most = NULL, *down = NULL;
    ct_coder_setup plain = { .n = setup->n, .k = 1 };

    ct_cast_open(&x->h, setup, dtype);
    x->codec = ct_device_codec_find(dev->kind);
    CT_TRY(x->codec->stream(&x->stream));
    if (setup->config->local_clip > 0) CT_TRY(x->codec->create(&plain, &x->coder));
    CT_TRY(dev->mem_acquire(bytes + CT_ALIGN, &there)); /* kernels write whole fours */
    x->there = there;
    CT_TRY(dev->mem_acquire(sizeof(*x->most), &most));
    x->most = most;
    CT_TRY(dev->host_acquire(sizeof(*x->down), &down));
    x->down = down;
    if (setup->comm->size > 1) CT_TRY(dev->host_acquire(bytes, &payload));
    x->payload = payload;
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

/* ---- a step */

static ct_status bring(cast *x, void *host, void *data, size_t bytes)
{
    return x->h.setup.dev->copy_begin(x->stream, host, data, bytes, true, &x->ticket);
}

static ct_status arrived(cast *x)
{
    bool done = true;

    if (x->ticket == NULL) return CT_OK;
    CT_TRY(x->h.setup.dev->copy_done(x->ticket, false, &done));
    if (done) x->ticket = NULL;
    return done ? CT_OK : CT_INPROGRESS;
}

static ct_status encode(cast *x)
{
    const ct_codec_setup *s = &x->h.setup;

    CT_TRY(x->codec->encode(x->stream, x->h.dtype == CT_F16, s->grad, s->n, x->h.scale, x->there));
    if (s->comm->size == 1) return CT_OK;
    return bring(x, x->payload, x->there, sizeof(*x->payload) * (size_t)s->n);
}

static ct_status cast_ready(void *obj, const ct_codec_step *step, bool dense, double limit)
{
    cast *x = obj;
    const ct_codec_setup *s = &x->h.setup;

    (void)step;
    x->h.stats.encoded_at[0] = ct_clock_s();
    CT_TRY(x->codec->follow(NULL, x->stream));
    if (x->coder != NULL) CT_TRY(x->codec->shrink(x->coder, x->stream, s->grad, s->n, limit));
    if (dense) {
        if (s->comm->size == 1) return CT_OK;
        return bring(x, s->host, s->grad, sizeof(float) * (size_t)s->n);
    }
    if (x->h.dtype == CT_BF16) return encode(x);
    CT_TRY(x->codec->exponent(x->stream, s->grad, s->n, x->most));
    return bring(x, x->down, x->most, sizeof(*x->down));
}

static ct_status cast_fold(void *obj, const ct_codec_step *step)
{
    (void)step;
    return arrived(obj);
}

static ct_status cast_summed(void *obj)
{
    cast *x = obj;
    const ct_codec_setup *s = &x->h.setup;
    void *none = NULL;

    if (s->comm->size > 1)
        CT_TRY(s->dev->copy_begin(x->stream, s->host, s->grad, sizeof(float) * (size_t)s->n, false,
                                  &none));
    return x->codec->follow(x->stream, NULL);
}

static ct_status cast_start(void *obj, const ct_codec_step *step)
{
    cast *x = obj;

    (void)step;
    x->h.stats.n_step += 1;
    x->h.stats.bytes_dense += x->h.setup.n * (int64_t)sizeof(float);
    x->h.stats.bytes_coded += x->h.setup.n * (int64_t)sizeof(*x->payload);
    atomic_store(&x->h.stage, (x->h.dtype == CT_F16) ? CT_CAST_EXPONENT : CT_CAST_DOWN);
    return CT_OK;
}

/* Here the stages up to the sum pass by, each as soon as it may. */
static ct_status progress_scale(cast *x)
{
    if (atomic_load(&x->h.stage) == CT_CAST_EXPONENT) {
        CT_TRY(arrived(x));
        *x->h.exponent = (uint8_t)*x->down;
        CT_TRY(ct_cast_take_scale(&x->h)); /* no need to ask the others where it is not finite */
        if (x->h.setup.comm->size > 1) {
            CT_TRY(ct_persistent_coll_start(&x->h.agree));
            atomic_store(&x->h.stage, CT_CAST_AGREE);
        }
    }
    if (atomic_load(&x->h.stage) == CT_CAST_AGREE) {
        CT_TRY(ct_persistent_coll_progress(&x->h.agree));
        CT_TRY(ct_cast_take_scale(&x->h));
        ct_persistent_coll_where(&x->h.ways)->brief = ct_persistent_coll_where(&x->h.agree)->brief;
    }
    CT_TRY(encode(x));
    atomic_store(&x->h.stage, CT_CAST_DOWN);
    return CT_OK;
}

static ct_status decode(cast *x)
{
    const ct_codec_setup *s = &x->h.setup;
    double start = ct_clock_s();
    void *none = NULL;

    if (s->comm->size > 1)
        CT_TRY(s->dev->copy_begin(x->stream, x->payload, x->there,
                                  sizeof(*x->payload) * (size_t)s->n, false, &none));
    CT_TRY(
        x->codec->decode(x->stream, x->h.dtype == CT_F16, x->there, s->n, 1 / x->h.scale, s->grad));
    CT_TRY(x->codec->follow(x->stream, NULL));
    ct_codec_delivered(&x->h.stats, start, x->h.left_at);
    return CT_OK;
}

static ct_status cast_progress(void *obj)
{
    cast *x = obj;
    bool alone = (x->h.setup.comm->size == 1);

    if (atomic_load(&x->h.stage) < CT_CAST_DOWN) CT_TRY(progress_scale(x));
    if (atomic_load(&x->h.stage) == CT_CAST_DOWN) {
        CT_TRY(arrived(x));
        x->h.left_at = ct_clock_s();
        x->h.stats.encoded_at[1] = x->h.left_at;
        x->h.stats.pack_s += x->h.left_at - x->h.stats.encoded_at[0];
        if (!alone) CT_TRY(ct_persistent_coll_start(&x->h.ways));
        atomic_store(&x->h.stage, CT_CAST_SUM);
    }
    if (!alone) CT_TRY(ct_persistent_coll_progress(&x->h.ways));
    return decode(x);
}

/* ---- without an object */

static void bf16_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                         ct_codec_seconds *out)
{
    double bytes = (double)sizeof(uint16_t) * (double)n;

    ct_bf16_seconds(m, c, n, rows, out);
    out->wire_s += ct_codec_bus_s(m, bytes, bytes);
}

static void fp16_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                         ct_codec_seconds *out)
{
    double bytes = (double)sizeof(uint16_t) * (double)n;

    ct_fp16_seconds(m, c, n, rows, out);
    out->wire_s += ct_codec_bus_s(m, bytes + sizeof(uint32_t), bytes);
}

#define CAST_ON_DEVICE                                                                             \
    .chains = true, .destroy = cast_destroy, .fold = cast_fold, .ready = cast_ready,               \
    .summed = cast_summed, .start = cast_start, .progress = cast_progress,                         \
    .pending = ct_cast_pending, .where = ct_cast_where, .exchange = ct_cast_exchange,              \
    .stats = ct_cast_stats, .payload_bytes = ct_cast_payload_bytes

const ct_codec_ops ct_codec_bf16_device = {
    .name = "bf16",
    CAST_ON_DEVICE,
    .size = sizeof(cast),
    .prepare = bf16_prepare,
    .seconds = bf16_seconds,
};

const ct_codec_ops ct_codec_fp16_device = {
    .name = "fp16",
    CAST_ON_DEVICE,
    .size = sizeof(cast),
    .prepare = fp16_prepare,
    .seconds = fp16_seconds,
};
