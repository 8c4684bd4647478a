/** @file codec_cost.h  What codecs' cost functions (ct_codec_ops.seconds) are made of.
 */
#ifndef CT_CODEC_COST_H
#define CT_CODEC_COST_H

#include "comm/codec/codec.h"

/** Of c's machine, with the algorithms of this allreduce (ct_coll_choose), which is borrowed;
 *  deterministic as in ct_codec_setup. CT_ERR_NOMEM. */
typedef struct ct_codec_comm_costs {
    ct_codec_costs costs;
    ct_comm *comm;
    const char *allreduce;
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
/** Encoding, messages and decoding together; 0 where nothing is known, and on one rank. */
double ct_codec_predict_s(ct_comm *c, const char *allreduce, bool deterministic,
                          const ct_codec_ops *ops, const ct_codec_config *config, int64_t n,
                          int64_t rows);

#endif
