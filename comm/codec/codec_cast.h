/** @file codec_cast.h  What bf16 and fp16 are on a CPU and on a device alike. Private to
 *  comm/coded_cast*.c.
 */
#ifndef CT_CODEC_CAST_H
#define CT_CODEC_CAST_H

#include "comm/codec/codec.h"

typedef enum {
    CT_CAST_EXPONENT, /* on a device: it comes to the host */
    CT_CAST_AGREE,    /* fp16 */
    CT_CAST_DOWN,     /* on a device: the payload comes to the host */
    CT_CAST_SUM
} ct_cast_stage;

/** What an object begins with. */
typedef struct ct_cast_head {
    ct_codec_setup setup;
    ct_dtype dtype;
    ct_persistent_coll ways;  /* several ranks: of the payload, …       */
    ct_persistent_coll agree; /* … and before it, fp16: of the exponent */
    uint8_t *exponent;        /* [1] that the ranks agree on            */
    float scale;
    _Atomic int stage;
    ct_coll_where alone;
    ct_codec_stats stats;
    double left_at;
} ct_cast_head;

/** Close it in any case. */
void ct_cast_open(ct_cast_head *h, const ct_codec_setup *setup, ct_dtype dtype);
void ct_cast_close(ct_cast_head *h);
/** Prepares the sums: of the payload, where there are several ranks, and of the exponent.
 *  Collective. */
ct_status ct_cast_connect(ct_cast_head *h, uint16_t *payload);
/** Of the exponent. CT_ERR_DIVERGED. */
ct_status ct_cast_take_scale(ct_cast_head *h);
/** Fit ct_codec_ops; obj begins with a head. */
int ct_cast_pending(void *obj, MPI_Request **out, int max);
ct_coll_where *ct_cast_where(void *obj);
const char *ct_cast_exchange(const void *obj);
void ct_cast_stats(const void *obj, ct_codec_stats *out);
int64_t ct_cast_payload_bytes(const ct_codec_config *c, int64_t n, int64_t rows);
void ct_bf16_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                     ct_codec_seconds *out);
void ct_fp16_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                     ct_codec_seconds *out);

#endif
