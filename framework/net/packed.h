/** @file packed.h  Sequences of unlike lengths side by side in one pass, without padding.
 *
 * The net is a deploy net of tokens: an Input of ids with `varies: true`, sequences x tokens, and
 * one output. It runs as one row of all tokens. Layers that take each token for itself do not know;
 * Attention, Position and the MatMul that pools tokens find the sequences in ct_net_env.packed. So
 * padding costs nothing, and memory is linear in the tokens.
 *
 * A sequence gives the same bytes alone and beside any others: no sum depends on how many rows
 * there are (rows_vary), and Attention works on each as if it stood alone.
 *
 * Further tops of the Input are "types" (0, 1 for a second text) and "mask", which is 1.
 */
#ifndef CT_PACKED_H
#define CT_PACKED_H

#include "framework/net/net.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_packed_net ct_packed_net;

/** One sequence, and what the net makes of it. */
typedef struct ct_packed_item {
    const int32_t *id;   /* [n] */
    int64_t n;           /* >= 1 */
    const int32_t *type; /* [n]; NULL: all 0 */
    /** rows x ct_packed_net_columns(), the net's until it runs again. rows: 1 where it pools, else
     *  n. */
    const float *row;
    int64_t rows;
} ct_packed_item;

/** options: of phase TEST, on the CPU; param and what they point to must outlive the net.
 *  most_tokens: of all sequences of a run; most: such sequences. CT_ERR_CONFIG, with the layer,
 *  where the net cannot run so. */
ct_status ct_packed_net_create(const Ct__NetParameter *param, const ct_net_options *options,
                               int64_t most_tokens, int64_t most, ct_packed_net **p_p);
void ct_packed_net_destroy(ct_packed_net *p); /* NULL allowed */
/** The net that has the weights. */
ct_net *ct_packed_net_of(const ct_packed_net *p);

int64_t ct_packed_net_most_tokens(const ct_packed_net *p);
/** Tokens that a sequence may have: those of a table of positions, or all. */
int64_t ct_packed_net_longest(const ct_packed_net *p);
/** Ids are below. */
int64_t ct_packed_net_ids(const ct_packed_net *p);
/** Numbers of a row, and whether there is one a sequence. */
int64_t ct_packed_net_columns(const ct_packed_net *p);
bool ct_packed_net_pools(const ct_packed_net *p);

/** Runs n >= 1 sequences in one pass. CT_ERR_ARG: more than the net was made for, an empty or too
 *  long one; CT_ERR_DATA: an id that the net does not have. Values lie where they were planned for
 *  most_tokens; what a run allocates beside them does not add up from run to run. */
ct_status ct_packed_net_run(ct_packed_net *p, ct_packed_item *item, int64_t n);

/** The first part of a run: shapes the net for these sequences. A run does it itself. */
ct_status ct_packed_net_shape(ct_packed_net *p, const ct_packed_item *item, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
