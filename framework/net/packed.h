/** @file packed.h  Sequences of unlike lengths side by side in one pass, without padding.
 *
 * The net is a deploy net of tokens: an Input of ids, sequences x tokens, and one output. It runs
 * as one row of all tokens. Layers that take each token for itself do not know; Attention, Position
 * and the MatMul that pools tokens find the sequences in ct_net_env.packed. So padding costs
 * nothing, and memory is linear in the tokens.
 *
 * A sequence gives the same bytes alone and beside any others: no sum depends on how many rows
 * there are (rows_vary), and Attention works on each as if it stood alone.
 *
 * A net of causal attention may have a cache: sequences that grow (ct_packed_sequence) leave the
 * keys and values of their tokens there, in pages, and a pass needs their new tokens alone. What
 * they give does not depend on how their tokens are cut into passes, as long as all values are
 * finite; beside rounding it is what the whole sequence gives in one. Sequences that begin alike
 * share the pages of their beginning.
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
typedef struct ct_packed_sequence ct_packed_sequence;

/** The most that there may be. */
typedef struct ct_packed_most {
    int64_t tokens;      /* of all sequences of a run                                          */
    int64_t sequences;   /* of a run                                                           */
    int64_t cached;      /* tokens of all sequences that grow, in whole pages; 0: there is none */
    double cached_bytes; /* in place of `cached`, with `length`: what these may take; of a net that
                          * does not pool                                                    */
    int64_t length;      /* tokens of one that grows; 0: as many as the cache has              */
    /** With cached_bytes, where ranks run the net together: *pages becomes the least of all
     *  ranks'. NULL: this one runs it alone. */
    ct_status (*least)(void *ctx, int64_t *pages);
    void *ctx;
} ct_packed_most;

/** Which of its tokens a run makes rows for. */
typedef enum { CT_ROWS_ALL, CT_ROWS_LAST, CT_ROWS_NONE } ct_packed_rows;

/** One sequence, and what the net makes of it. */
typedef struct ct_packed_item {
    const int32_t *id;   /* [n] */
    int64_t n;           /* >= 1 */
    const int32_t *type; /* [n]; NULL: all 0, as those of sequences that grow are */
    /** The ids follow those that this one has. NULL: the item is a whole sequence. One sequence is
     *  in one item of a run, and has length + n tokens after it. */
    ct_packed_sequence *sequence;
    ct_packed_rows want; /* of a net that does not pool */
    /** rows x ct_packed_net_columns(), the net's until it runs again. rows: 1 where it pools, else
     *  those that `want` says. */
    const float *row;
    int64_t rows;
} ct_packed_item;

/** options: of phase TEST, on the CPU; param and what they point to must outlive the net.
 *  CT_ERR_CONFIG or CT_ERR_SHAPE, with the layer, where the net cannot run so. */
ct_status ct_packed_net_create(const Ct__NetParameter *param, const ct_net_options *options,
                               const ct_packed_most *most, ct_packed_net **p_p);
/** After its sequences. NULL allowed. */
void ct_packed_net_destroy(ct_packed_net *p);
/** The net that has the weights. Where they are loaded while the cache has tokens, these are of the
 *  old ones. */
ct_net *ct_packed_net_of(const ct_packed_net *p);

int64_t ct_packed_net_most_tokens(const ct_packed_net *p);
/** Tokens that a whole sequence may have: those of a table of positions, or all. */
int64_t ct_packed_net_longest(const ct_packed_net *p);
/** Tokens that a sequence which grows may have. */
int64_t ct_packed_net_capacity(const ct_packed_net *p);
/** Tokens that the cache has room for, in pages of so many; bytes that a token takes there. */
int64_t ct_packed_net_cached(const ct_packed_net *p);
int64_t ct_packed_net_page_tokens(const ct_packed_net *p);
double ct_packed_net_token_bytes(const ct_packed_net *p);
/** Bytes beside the cache that a layer works in while sequences grow; 0: none grow. */
size_t ct_packed_net_work_bytes(const ct_packed_net *p);
/** Ids are below. */
int64_t ct_packed_net_ids(const ct_packed_net *p);
/** Numbers of a row, and whether there is one a sequence. */
int64_t ct_packed_net_columns(const ct_packed_net *p);
bool ct_packed_net_pools(const ct_packed_net *p);
/** Whether the net has n ids, and scores so many. CT_ERR_CONFIG, with the layer, where a table has
 *  fewer rows, or there are fewer scores. tokenizer: whose ids they are, for the message. */
ct_status ct_packed_net_check_ids(const ct_packed_net *p, int64_t n, const char *tokenizer);

/** Runs n >= 1 sequences in one pass. CT_ERR_ARG: more than the net was made for, an empty or too
 *  long one; CT_ERR_DATA: an id that the net does not have. Values lie where they were planned for
 *  the most tokens; what a run allocates beside them does not add up from run to run. Where it
 *  fails, sequences that grow are as before it. */
ct_status ct_packed_net_run(ct_packed_net *p, ct_packed_item *item, int64_t n);

/** The first part of a run: shapes the net for these sequences. A run does it itself. */
ct_status ct_packed_net_shape(ct_packed_net *p, const ct_packed_item *item, int64_t n);

/* ---- sequences that grow */

/** Room for `capacity` tokens of a sequence that begins with id[n]: it never waits for more.
 *  *kept_p: how many of these the cache has already, less than n; feeding begins there. *s_p NULL:
 *  the cache has not enough pages now. CT_ERR_CONFIG, with the layer: a table of positions has
 *  fewer rows; or there is no cache, or a smaller one. */
ct_status ct_packed_sequence_open(ct_packed_net *p, const int32_t *id, int64_t n, int64_t capacity,
                                  ct_packed_sequence **s_p, int64_t *kept_p);
/** The same, where another than the net has the table of its pages, and says which ones: page[n].
 *  The cache has the first `kept` tokens. All sequences of a net are opened in one of both ways.
 *  CT_ERR_ARG: pages that the net has not, or not enough of them. */
ct_status ct_packed_sequence_place(ct_packed_net *p, const int32_t *page, int64_t n,
                                   int64_t capacity, int64_t kept, ct_packed_sequence **s_p);
/** *kept_p, were it opened now; 0 without a cache. Any thread. */
int64_t ct_packed_net_peek(const ct_packed_net *p, const int32_t *id, int64_t n);
/** Its pages serve sequences that begin alike until the room is needed. NULL allowed. */
void ct_packed_sequence_close(ct_packed_sequence *s);
/** Tokens that it has. */
int64_t ct_packed_sequence_length(const ct_packed_sequence *s);

#ifdef __cplusplus
}
#endif

#endif
