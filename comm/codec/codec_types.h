/** @file codec_types.h  One line a codec, and what all of them count and cost. Private to
 * comm/. */
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
    _do(int8) \
    _do(int4) \
    _do(auto)
/* clang-format on */

#define CT_DECLARE_CODEC(_name) extern const ct_codec_ops ct_codec_##_name;
CT_CODECS(CT_DECLARE_CODEC)
#undef CT_DECLARE_CODEC

/** The sum is there; at: when its decoding began and ended. */
static inline void ct_codec_decoded(ct_codec_stats *s, const double at[2])
{
    s->decoded_at[0] = at[0];
    s->decoded_at[1] = at[1];
    s->unpack_s += at[1] - at[0];
}

/* ---- what cost functions (ct_codec_ops.seconds) are made of */

/** Of c's machine, with the algorithms of this allreduce (ct_coll_choose), which is borrowed;
 *  deterministic as in ct_codec_setup. CT_ERR_NOMEM. */
typedef struct ct_codec_comm_costs {
    ct_codec_costs costs;
    ct_comm *comm;
    const char *allreduce;
    bool part; /* sums are reduce-scatters */
} ct_codec_comm_costs;
ct_status ct_codec_costs_of(ct_comm *c, const char *allreduce, bool deterministic,
                            ct_codec_comm_costs *out);

/** What gradients on a device bring to the host, and back. */
double ct_codec_bus_s(const ct_codec_costs *m, double down, double up);
/** Reading or writing so many bytes of memory. */
double ct_codec_stream_s(const ct_codec_costs *m, double bytes);
/** An allreduce of so many bytes; 0 on one rank. */
double ct_codec_sum_s(const ct_codec_costs *m, ct_dtype dtype, int64_t bytes);
/** The same of one that begins where another ends: not by MPI's own. */
double ct_codec_chained_sum_s(const ct_codec_costs *m, ct_dtype dtype, int64_t bytes);
/** What a rank sends of it: 2 (p - 1) / p. */
double ct_codec_sum_bytes(const ct_codec_costs *m, double bytes);
/** Encoding, messages and decoding together; 0 where nothing is known, and on one rank. part: as
 *  ct_codec_setup's. */
double ct_codec_predict_s(ct_comm *c, const char *allreduce, bool deterministic, bool part,
                          const ct_codec_ops *ops, const ct_codec_config *config, int64_t n,
                          int64_t rows);

#endif
