/** @file bench_coder.h  The codecs that select nothing, one step at a time, for `bench codec`. */
#ifndef CT_BENCH_CODER_H
#define CT_BENCH_CODER_H

#include "comm/codec/select.h"

typedef struct ct_coder ct_coder;

enum { CT_CODERS = 5 };

/** Number i, 0 to CT_CODERS - 1, for n elements; *coder_p NULL: it has no form for so many. */
ct_status ct_coder_create(int i, int64_t n, int n_thread, ct_coder **coder_p);
void ct_coder_destroy(ct_coder *c); /* NULL allowed */
/** As ct_codec_ops.name, and what travels: "bf16", "f16", "signs", "rank 2" … */
const char *ct_coder_codec(const ct_coder *c);
const char *ct_coder_wire(const ct_coder *c);
int64_t ct_coder_bytes(const ct_coder *c);
int ct_coder_passes(const ct_coder *c); /* over V, or the gradient */
/** All that one rank does before its payload could leave; with the update of *a where the codec
 *  has one. Powersgd: of both halves. CT_ERR_DIVERGED. */
ct_status ct_coder_encode(ct_coder *c, const ct_momentum_correction *a);
/** … and when the sum is there. */
ct_status ct_coder_decode(ct_coder *c, float *sum);

#endif
