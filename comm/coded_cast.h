/** @file coded_cast.h  What bf16 and fp16 cost, wherever they run. Private to comm/; they fit
 * ct_coded_ops.payload_bytes and seconds. */
#ifndef CT_CODED_CAST_H
#define CT_CODED_CAST_H

#include "comm/coded.h"

int64_t ct_cast_payload_bytes(const ct_codec_config *c, int64_t n, int64_t rows);
void ct_bf16_seconds(const ct_coded_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                     ct_coded_seconds *out);
void ct_fp16_seconds(const ct_coded_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                     ct_coded_seconds *out);

#endif
