/* What a bucket shows of itself in a trace. */
#include "comm/sync/bucket.h"
#include "framework/base/clock.h"

static int64_t payload_bytes(const ct_bucket *b)
{
    if (b->repro != NULL) return b->cut.count * (int64_t)sizeof(int64_t);
    return atomic_load(&b->dense_now) ? b->cut.count * (int64_t)sizeof(*b->grad) : b->coded_bytes;
}

static void trace_coding(const ct_bucket *b, ct_trace_kind kind, const double *times)
{
    ct_trace_add(b->trace, &(ct_trace_span){ .kind = kind,
                                             .number = b->number,
                                             .iteration = b->iteration,
                                             .start_s = times[0],
                                             .end_s = times[1] });
}

void ct_bucket_trace(const ct_bucket *b)
{
    bool dense = atomic_load(&b->dense_now);

    ct_trace_add(b->trace, &(ct_trace_span){ .kind = CT_TRACE_BUCKET,
                                             .number = b->number,
                                             .name = b->name,
                                             .detail = ct_bucket_algorithm(b, dense),
                                             .bytes = payload_bytes(b),
                                             .iteration = b->iteration,
                                             .start_s = b->traced_at,
                                             .end_s = ct_clock_s() });
    if (b->repro != NULL) {
        for (int i = 0; i < CT_REPRO_WORKS; ++i)
            trace_coding(b, (i < CT_REPRO_DECODE) ? CT_TRACE_ENCODE : CT_TRACE_DECODE,
                         ct_repro_times(b->repro, (ct_repro_work)i));
    } else if (!dense) {
        ct_codec_stats s;

        b->ops->stats(b->coded, &s);
        trace_coding(b, CT_TRACE_ENCODE, s.encoded_at);
        trace_coding(b, CT_TRACE_DECODE, s.decoded_at);
    }
}
