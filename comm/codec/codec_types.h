/** @file codec_types.h  One line a codec, and what all of them count; private to comm/. */
#ifndef CT_CODEC_TYPES_H
#define CT_CODEC_TYPES_H

#include "comm/codec/codec.h"
#include "framework/base/clock.h"

/* The table: a line here and a value of CompressionParameter.Type is all that a codec is known by.
 * `none`: the pipe sums its buckets where they lie. `auto`: it chooses among the others
 * (codec_planner.h). Their order is that of bits in ct_codec_config.among. */
/* clang-format off */
#define CT_CODECS(_do) \
    _do(none) \
    _do(bf16) \
    _do(fp16) \
    _do(topk) \
    _do(redsync) \
    _do(powersgd) \
    _do(onebit) \
    _do(auto)
/* clang-format on */

#define CT_DECLARE_CODEC(_name) extern const ct_codec_ops ct_codec_##_name;
CT_CODECS(CT_DECLARE_CODEC)
#undef CT_DECLARE_CODEC

/** The sum is there now; left_at: when the payload went out, start: when its decoding began. */
static inline void ct_codec_delivered(ct_codec_stats *s, double start, double left_at)
{
    s->decoded_at[0] = start;
    s->decoded_at[1] = ct_clock_s();
    s->exchange_s += start - left_at;
    s->unpack_s += s->decoded_at[1] - start;
}

#endif
