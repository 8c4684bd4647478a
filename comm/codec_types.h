/** @file codec_types.h  One line a codec; private to comm/. */
#ifndef CT_CODEC_TYPES_H
#define CT_CODEC_TYPES_H

#include "comm/codec.h"

extern const ct_codec_ops ct_codec_none; /* the pipe sums its buckets where they lie */
extern const ct_codec_ops ct_codec_bf16;
extern const ct_codec_ops ct_codec_topk;

#endif
