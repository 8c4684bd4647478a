/** @file codec.h  Gradient compression: what travels instead of n floats.
 *
 * A codec says whether its payloads may be summed as they are (an allreduce moves them) or are
 * gathered (then every rank decodes every rank's). With error feedback, what a rank did not send
 * stays in `residual` and is added to the next gradient (Seide et al., Interspeech 2014). Codecs
 * hold no state: it is keyed by parameter and owned by the pipe, so that snapshots can carry it.
 */
#ifndef CT_CODEC_H
#define CT_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"

typedef enum { CT_COMBINE_SUM, CT_COMBINE_GATHER } ct_combine;

/** What `compression { }` says; each codec reads what it knows. Names are lower case and borrowed;
 *  NULL is "auto". */
typedef struct ct_codec_config {
    float density; /* sparse ones: share of the elements sent, 0 < density <= 1; round(density n),
                      at least 1 */
    int64_t min_bytes;         /* parameters smaller than this travel dense              */
    int64_t warmup_iterations; /* dense until then                                       */
    const char *exchange;      /* sparse ones: "auto", "allgather", "hier", "gtopk", "oktopk" */
    const char *selection; /* … "auto", "exact", "trimmed", "search", "sampled", "redsync_sizes" */
    const char *wire;      /* … "auto", "pairs", "half"                                  */
    bool quantize;         /* … one mean for all values, the sign alternates             */
    bool momentum_correction;  /* the rate and momentum before what is left behind: coded.h */
    bool mask_momentum;        /* no momentum where something was just sent               */
    int64_t resync_iterations; /* dense every so many iterations; 0: never               */
    int rank;                  /* powersgd                                               */
    float
        local_clip; /* a rank's gradient of a parameter has at most this norm / sqrt(ranks); 0: any
                     */
} ct_codec_config;

typedef struct ct_codec_ops {
    const char *name; /* `compression { type }`, lower case */
    ct_combine combine;
    ct_dtype dtype; /* SUM: of the payload's elements                            */
    bool has_residual;
    bool absorbs_momentum; /* the solver then only applies w -= lr * sum                */
    /** Most bytes that the payload of n floats takes. */
    size_t (*payload_bound)(const ct_codec_config *c, int64_t n);
    /** Encodes grad[n] + residual[n] (NULL: none); leaves in residual what the payload misses.
     *  payload is 8-byte aligned. topk: CT_ERR_DIVERGED where grad + residual is not finite; the
     *  residual is then undefined. */
    ct_status (*encode)(const ct_codec_config *c, const float *grad, float *residual, int64_t n,
                        void *payload, size_t *bytes_p);
    /** GATHER: sum[n] += the payload's content. SUM: sum[n] = content. CT_ERR_COMM where the
     * payload is not one of n floats. */
    ct_status (*decode)(const ct_codec_config *c, const void *payload, size_t bytes, float *sum,
                        int64_t n);
} ct_codec_ops;

extern const ct_codec_ops *const ct_codec_table[]; /* NULL-terminated; "none" first */

/** CT_ERR_CONFIG with the known names. */
ct_status ct_codec_find(const char *name, const ct_codec_ops **ops_p);

#endif
