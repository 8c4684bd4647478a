/** @file codec_sparse.h  What a configuration means to topk and redsync. Private to comm/. */
#ifndef CT_CODEC_SPARSE_H
#define CT_CODEC_SPARSE_H

#include "comm/codec/codec.h"
#include "comm/codec/select.h"
#include "comm/sparse/sparse_allreduce.h"

/** NULL is "auto". */
bool ct_sparse_is_auto(const char *name);
/** Elements that are selected of n: round(density n), 1 to n. */
int64_t ct_sparse_wanted(const ct_codec_config *c, int64_t n);
/** Share of the elements that are to be selected in an iteration: in a warm-up that has a density
 *
 *      warmup_density (density / warmup_density)^(iteration / warmup_iterations)
 *
 *  as in Lin et al., Deep Gradient Compression, ICLR 2018, section 3.3 (25 %, 6.25 % … 0.1 % at the
 *  epochs of a warm-up of four), but falling in every iteration. The same bits on every machine. */
double ct_sparse_density(const ct_codec_config *c, int64_t iteration);
/** Elements that are selected of n in an iteration: round(that times n), 1 to n. */
int64_t ct_sparse_wanted_at(const ct_codec_config *c, int64_t n, int64_t iteration);

/** A warm-up, as a parameter has it. */
typedef struct ct_sparse_warmup {
    int64_t dense_until; /* as ct_codec_ops.dense_until                                */
    int64_t k_most;      /* elements that are selected from there on, at most          */
} ct_sparse_warmup;

/** Where an exchange would send more bytes than a dense sum, the step is dense: so payloads have
 *  memory for no more. exch NULL: one rank, which sends nothing. */
ct_sparse_warmup ct_sparse_warmup_of(const ct_codec_setup *s, const ct_sparse_allreduce_ops *exch,
                                     ct_payload_form form);
/** plain: topk. AUTO: topk's values travel as they are, redsync's in whatever is less. */
ct_payload_form ct_sparse_form(const ct_codec_config *c, int64_t n, bool quantize, bool plain);
/** Between the nodes of a hier; NULL: what costs least. deterministic: an allgather, as where AUTO
 *  would choose among all exchanges. Ok-Topk's regions and thresholds come from the steps before,
 *  which a snapshot does not have. */
const char *ct_sparse_inner(bool deterministic);
/** Names of exchanges, selections and wires, and "auto": the first that `is` says is it. */
const char *ct_sparse_word(const char *name, bool (*is)(const char *name, const char *word));
/** CT_ERR_CONFIG. */
ct_status ct_sparse_selection(const char *name, ct_select_kind *kind_p);
/** Fits ct_codec_ops.check. */
ct_status ct_sparse_check(const ct_codec_config *c);
/** Fit ct_codec_ops.payload_bytes and seconds. */
int64_t ct_topk_payload_bytes(const ct_codec_config *c, int64_t n, int64_t rows);
int64_t ct_redsync_payload_bytes(const ct_codec_config *c, int64_t n, int64_t rows);
void ct_topk_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                     ct_codec_seconds *out);
void ct_redsync_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                        ct_codec_seconds *out);

#endif
