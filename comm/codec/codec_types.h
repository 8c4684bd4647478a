/** @file codec_types.h  One line a codec, and what all of them count; private to comm/. */
#ifndef CT_CODEC_TYPES_H
#define CT_CODEC_TYPES_H

#include "comm/codec/codec.h"
#include "framework/base/clock.h"

extern const ct_codec_ops ct_codec_none; /* the pipe sums its buckets where they lie */
extern const ct_codec_ops ct_codec_auto; /* the pipe chooses among the others: codec_planner.h */
extern const ct_codec_ops ct_codec_bf16;
extern const ct_codec_ops ct_codec_fp16;
extern const ct_codec_ops ct_codec_topk;
extern const ct_codec_ops ct_codec_redsync;
extern const ct_codec_ops ct_codec_powersgd;
extern const ct_codec_ops ct_codec_onebit;

/** The sum is there now; left_at: when the payload went out, start: when its decoding began. */
static inline void ct_codec_delivered(ct_codec_stats *s, double start, double left_at)
{
    s->decoded_at[0] = start;
    s->decoded_at[1] = ct_clock_s();
    s->exchange_s += start - left_at;
    s->unpack_s += s->decoded_at[1] - start;
}

#endif
