/** @file bench_codec.h  `cortado bench codec`: encode and decode beside the plain update.
 *
 * A row is a selection and a wire form, or a codec that selects nothing: "none". Encode is the
 * update of momentum and residual with the selection in it, and the payload; decode adds one
 * payload to a dense vector. The yardsticks of the same run: the update alone on the same arrays in
 * the same state (put back afterwards), taking turns with the encodes, and STREAM's triad on arrays
 * of the same size. Before each the caches are swept. Figures are medians. Gradients are normal
 * random numbers, others in each step, and some steps go ahead so that the residual is that of a
 * run under way. Bytes: the update reads g, U, V and writes U, V, 20 n; the triad counts as STREAM
 * does, 12 n.
 */
#ifndef CT_BENCH_CODEC_H
#define CT_BENCH_CODEC_H

#include "comm/codec/select.h"
#include "comm/sparse/payload.h"
#include "framework/base/text.h"

typedef struct ct_codec_bench {
    int64_t count; /* elements, 1 to 2^32 - 1                     */
    double density;
    int repeat;
    int n_thread;
    const char *selection; /* only rows of this one; NULL: all */
} ct_codec_bench;

typedef struct ct_codec_row {
    const char *codec;     /* the codec whose defaults these are: topk, redsync … */
    const char *selection; /* as ct_select_name(), or "none"                    */
    const char *wire;      /* as ct_payload_name(), or ct_coder_wire()             */
    bool history;          /* each step knew the threshold of the one before    */
    int64_t selected;      /* in the last step; "none": all                     */
    int64_t bytes;         /* of its payload                                    */
    int passes;            /* over the residual, in the last step               */
    double encode_ms, decode_ms, update_ms, update_gbs, triad_gbs;
} ct_codec_row;

enum { CT_CODEC_ROWS = 16 };

/** Fills row[*n_p], at most CT_CODEC_ROWS. */
ct_status ct_bench_codec(const ct_codec_bench *plan, ct_codec_row *row, int *n_p);
void ct_bench_codec_print(const ct_codec_bench *plan, const ct_codec_row *row, int n);
/** One object a line. */
void ct_bench_codec_json(const ct_codec_bench *plan, const ct_codec_row *row, int n, ct_text *out);

#endif
