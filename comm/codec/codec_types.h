/** @file codec_types.h  One line a codec, and what all of them count; private to comm/. */
#ifndef CT_CODED_TYPES_H
#define CT_CODED_TYPES_H

#include "comm/codec/codec.h"
#include "framework/base/clock.h"

extern const ct_coded_ops ct_coded_none; /* the pipe sums its buckets where they lie */
extern const ct_coded_ops ct_coded_auto; /* the pipe chooses among the others: codec_planner.h */
extern const ct_coded_ops ct_coded_bf16;
extern const ct_coded_ops ct_coded_fp16;
extern const ct_coded_ops ct_coded_topk;
extern const ct_coded_ops ct_coded_redsync;
extern const ct_coded_ops ct_coded_powersgd;
extern const ct_coded_ops ct_coded_onebit;

/* … on a device: ct_coded_ops.on_device */
extern const ct_coded_ops ct_coded_bf16_device;
extern const ct_coded_ops ct_coded_fp16_device;
extern const ct_coded_ops ct_coded_topk_device;
extern const ct_coded_ops ct_coded_redsync_device;
extern const ct_coded_ops ct_coded_powersgd_device;
extern const ct_coded_ops ct_coded_onebit_device;

/** The sum is there now; left_at: when the payload went out, start: when its decoding began. */
static inline void ct_coded_delivered(ct_coded_stats *s, double start, double left_at)
{
    s->decoded_at[0] = start;
    s->decoded_at[1] = ct_clock_s();
    s->exchange_s += start - left_at;
    s->unpack_s += s->decoded_at[1] - start;
}

#endif
