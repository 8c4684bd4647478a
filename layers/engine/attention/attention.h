/** @file attention.h  Scaled dot-product attention, and the table of its engines.
 *
 * For each of n sequences and each head of its queries, with keys k and values v of the head's
 * group:
 *
 *   s_ij = scale q_i . k_j          p_ij = exp(s_ij) / sum over visible j of exp(s_ij)
 *   y_i  = sum over visible j of p_ij v_j
 *
 * Query i stands at position i + shift, key j at j, where shift is tk - tq with `causal`, else 0.
 * Key j is visible to the query at position p where j <= p (`causal`), j > p - window (window > 0),
 * and their segment numbers are equal. A query that sees nothing, or scores of -infinity alone,
 * has y = 0 and no gradient. With rope_dim q and k are first turned by their positions.
 *
 * A token's heads lie side by side: head h begins h dim numbers behind the token's first one.
 * Tokens of q, k and v, and of their gradients, are *_row numbers apart, so that a packed blob is
 * read where it lies.
 */
#ifndef CT_ENGINE_ATTENTION_ATTENTION_H
#define CT_ENGINE_ATTENTION_ATTENTION_H

#include "framework/base/simd.h"
#include "framework/net/pages.h"
#include "layers/engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_attention_desc {
    ct_device_kind device;
    int n_thread;
    int64_t n, tq, tk;            /* sequences; queries and keys of each     */
    int64_t heads, kv_heads, dim; /* kv_heads divides heads                  */
    int64_t head_first, head_all; /* of the whole layer's, for numbers drawn; head_all 0: `heads`,
                                   * which are all */
    int64_t q_row, k_row, v_row;  /* numbers from one token to the next      */
    bool causal;
    int64_t window; /* 0: no limit */
    float scale;
    int64_t rope_dim;       /* dimensions of a head that turn; 0: none             */
    bool interleaved;       /* 2i and 2i + 1 turn together, else i, i + rope_dim/2 */
    uint64_t drop_below;    /* of 32-bit numbers: those below drop a probability; 0: none */
    float keep_scale;       /* of those that stay                               */
    bool wants_q, wants_kv; /* which gradients backward makes                 */
    /* how flash deals out its work: by ct_attention_split(); no bit of a result depends on it */
    int64_t task_queries, task_keys;
    /** q, k, v, y and their gradients are addresses of bf16 numbers. Sums, running maxima and
     *  softmax are f32 all the same, and results are rounded once. flash also rounds P and the
     *  scores' gradient, which it multiplies in pairs, and turned q and k. */
    bool bf16;
} ct_attention_desc;

typedef struct ct_attention_args {
    const float *q, *k, *v;
    const float *segment; /* n x tk; NULL: all equal                                    */
    const float *turn;    /* max(tq, tk) x rope_dim: cosines, then sines, of a position */
    /** [n + 1] Of forward on the CPU: sequences lie one behind the other, sequence i has the tokens
     *  [at[i], at[i + 1]), and tq = tk are those of the longest. NULL: all have tq, and tk. */
    const int64_t *at;
    float *y; /* forward: overwritten; backward: what it was. n x tq x heads dim */
    /** n x heads x tq x 2: a row's largest score in units of ln 2, and 1 / sum over visible j of
     *  2^(score - largest): 0, 0 where it sees nothing. Unless NULL, forward writes them and
     *  backward reads them, whichever engines they are. */
    float *stats;
    const float *dy;
    float *dq, *dk, *dv; /* overwritten. NULL: not wanted */
    uint64_t key;        /* of the random numbers         */
    uint64_t layer;      /* in the key: where the step is on the device, kernels make it anew */
    int64_t first;       /* place of sequence 0 in the global batch */
    void *work;
} ct_attention_args;

CT_ENGINE(attention)

extern const ct_attention_impl *const ct_attention_forward_table[];
extern const ct_attention_impl *const ct_attention_backward_table[];

extern const ct_attention_impl ct_attention_flash_forward, ct_attention_flash_backward;
extern const ct_attention_impl ct_attention_ref_forward, ct_attention_ref_backward;
extern const ct_attention_impl ct_attention_cuda_forward, ct_attention_cuda_backward;

/* ---- Shared by the engines. */

CT_HD static inline int64_t ct_attention_shift(const ct_attention_desc *d)
{
    return d->causal ? d->tk - d->tq : 0;
}

/** The keys [*from_p, *to_p) that the query at position p may see, but for segments. */
CT_HD static inline void ct_attention_sees(const ct_attention_desc *d, int64_t p, int64_t *from_p,
                                           int64_t *to_p)
{
    *from_p = ((d->window > 0) && (p - d->window + 1 > 0)) ? p - d->window + 1 : 0;
    *to_p = (d->causal && (p + 1 < d->tk)) ? p + 1 : d->tk;
}

/** The number that the probability of a query and key draws, of the stream args.key: a row of keys
 *  begins at a multiple of 16. sample: of the global batch. */
CT_HD static inline uint64_t ct_attention_number(const ct_attention_desc *d, int64_t sample,
                                                 int64_t head, int64_t query, int64_t key)
{
    uint64_t all = (uint64_t)((d->head_all > 0) ? d->head_all : d->heads);
    uint64_t row = ((uint64_t)sample * all + (uint64_t)(d->head_first + head)) * (uint64_t)d->tq +
                   (uint64_t)query;

    return row * (uint64_t)((d->tk + 15) / 16 * 16) + (uint64_t)key;
}

/** Pairs of a query and a key that it sees, but for segments, of one head of one sequence. */
double ct_attention_pairs(const ct_attention_desc *d);

/** turn[n][dim] for positions [first, first + n): the cosines of dim / 2 angles, then their sines.
 */
void ct_attention_turns(int64_t first, int64_t n, int64_t dim, double base, float *turn);

/** Sequence i of args.at as if it stood alone: *own_p and *args_p. */
void ct_attention_alone(const ct_attention_desc *d, const ct_attention_args *a, int64_t i,
                        ct_attention_desc *own_p, ct_attention_args *args_p);

/** Sets task_queries and task_keys for d->n_thread threads: as large as leaves all of them busy. */
ct_status ct_attention_split(ct_attention_desc *d);

/** Multiply-adds that each of d->n_thread threads does in flash's backward (else forward), in
 *  work[n_thread]. Tasks are dealt out to whoever is free first. *last_p: what one thread could do
 *  until the last is done, waits for other threads included. */
ct_status ct_attention_work(const ct_attention_desc *d, bool backward, double *work,
                            double *last_p);

/* ---- Of sequences that grow: cached.c. No segments, nothing is dropped; d's n, tq and tk count
 * for nothing. */

/** Keys, turned by their positions, and values of the tokens before, in pages. */
typedef struct ct_attention_cache {
    float *kept;      /* all pages, ct_attention_page_bytes() each; any numbers at first; bf16 ones
                       * where the desc says so                                      */
    int64_t capacity; /* tokens of a sequence, at most                               */
    int64_t n;        /* sequences                                                   */
    /** [n + 1]: rows [at[i], at[i + 1]) of q, k, v and y are the new tokens of sequence i, behind
     *  before[i] others; it has the pages page[i][0], … */
    const int64_t *at, *before;
    const int32_t *const *page;
} ct_attention_cache;

bool ct_attention_cached_supports(const ct_attention_desc *d);
/** Of a page of CT_PAGE_TOKENS tokens. */
size_t ct_attention_page_bytes(const ct_attention_desc *d);
/** n: sequences at most. */
size_t ct_attention_cached_workspace(const ct_attention_desc *d, int64_t capacity, int64_t n);
/** Puts the new tokens of a->k and a->v into the pages, and into a->y what their queries find
 *  there. Of a: q, k, v, y, turn, of all positions up to the capacity, and work. */
void ct_attention_cached(const ct_attention_desc *d, const ct_attention_cache *c,
                         const ct_attention_args *a);

#ifdef __cplusplus
}
#endif

#endif
