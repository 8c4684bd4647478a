/* What both sides of bf16 and fp16 share: sums and the exponent before them, what they cost, looks
 * at them. */
#include "comm/codec/cast.h"
#include "comm/codec/codec_cast.h"
#include "comm/codec/codec_cost.h"

/* ---- an object */

void ct_cast_open(ct_cast_head *h, const ct_codec_setup *setup, ct_dtype dtype)
{
    *h = (ct_cast_head){ .setup = *setup, .dtype = dtype, .scale = 1 };
    atomic_store(&h->stage, CT_CAST_SUM);
    atomic_store(&h->alone.rank, -1);
}

ct_status ct_cast_connect(ct_cast_head *h, uint16_t *payload)
{
    const ct_codec_setup *s = &h->setup;
    const char *allreduce = s->allreduce;

    h->exponent = ct_mem_acquire(1);
    if (h->exponent == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to compress %s", s->key);
    if (s->comm->size == 1) return CT_OK;
    h->ways = (ct_persistent_coll){
        .comm = s->comm, .buf = payload, .count = s->n, .dtype = h->dtype, .tag = s->tag
    };
    if ((h->dtype == CT_F16) || (s->dev != NULL)) { /* it begins in `progress` */
        const ct_coll_ops *ops = NULL;

        CT_TRY(ct_persistent_coll_choose_own(s->comm, s->n, h->dtype, s->allreduce,
                                             (h->dtype == CT_F16) ? "fp16" : "bf16", &ops));
        allreduce = ops->name;
    }
    CT_TRY(ct_persistent_coll_prepare(&h->ways, allreduce, s->deterministic));
    if (h->dtype == CT_BF16) return CT_OK;
    h->agree = (ct_persistent_coll){
        .comm = s->comm, .buf = h->exponent, .count = 1, .dtype = CT_U8, .tag = s->tag
    };
    return ct_persistent_coll_prepare(&h->agree, "rhd",
                                      s->deterministic); /* one byte: latency is all */
}

void ct_cast_close(ct_cast_head *h)
{
    ct_persistent_coll_release(&h->agree);
    ct_persistent_coll_release(&h->ways);
    ct_mem_release(h->exponent);
}

ct_status ct_cast_take_scale(ct_cast_head *h)
{
    if (*h->exponent == UINT8_MAX)
        return CT_FAIL(CT_ERR_DIVERGED, "the gradient is no longer finite");
    h->scale = ct_cast_scale(*h->exponent, h->setup.comm->size);
    return CT_OK;
}

/* ---- looks: all that is asked of a head */

static ct_persistent_coll *ways_now(ct_cast_head *h)
{
    return (atomic_load(&h->stage) == CT_CAST_AGREE) ? &h->agree : &h->ways;
}

int ct_cast_pending(void *obj, MPI_Request **out, int max)
{
    ct_cast_head *h = obj;
    int stage = atomic_load(&h->stage);
    bool travels = (stage == CT_CAST_AGREE) || (stage == CT_CAST_SUM);

    return ((h->setup.comm->size > 1) && travels)
               ? ct_persistent_coll_pending(ways_now(h), out, max)
               : 0;
}

ct_coll_where *ct_cast_where(void *obj)
{
    ct_cast_head *h = obj;

    return (h->setup.comm->size > 1) ? ct_persistent_coll_where(ways_now(h)) : &h->alone;
}

const char *ct_cast_exchange(const void *obj)
{
    const ct_cast_head *h = obj;

    return (h->setup.comm->size > 1) ? atomic_load(&h->ways.now)->ops->name : "one rank";
}

void ct_cast_stats(const void *obj, ct_codec_stats *out)
{
    const ct_cast_head *h = obj;

    *out = h->stats;
    out->bytes_sent =
        ct_persistent_coll_bytes_sent(&h->ways) + ct_persistent_coll_bytes_sent(&h->agree);
}

/* ---- without an object */

int64_t ct_cast_payload_bytes(const ct_codec_config *c, int64_t n, int64_t rows)
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
                               .wire_s = ct_codec_sum_s(m, dtype, (int64_t)bytes),
                               .bytes = ct_codec_sum_bytes(m, bytes) };
}

void ct_bf16_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                     ct_codec_seconds *out)
{
    (void)c;
    (void)rows;
    cast_seconds(m, CT_BF16, n, out);
}

/* The exponent goes ahead: the gradient is read once more. */
void ct_fp16_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                     ct_codec_seconds *out)
{
    (void)c;
    (void)rows;
    cast_seconds(m, CT_F16, n, out);
    out->encode_s += ct_codec_stream_s(m, 4 * (double)n);
    out->wire_s += ct_codec_sum_s(m, CT_U8, 1);
}
