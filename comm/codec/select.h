/** @file select.h  The accumulation of gradients, and the selection of what is sent of it, in one.
 *
 * Each coded parameter keeps U, its momentum, and V, what it has not sent yet. A step is
 *
 *     g' = scale g + decay w;  U = momentum U + rate g';  V = carry V + U  (momentum correction)
 *     nesterov: V = carry V + momentum U + rate g'                  without `u`: V = V + scale g
 *     S = some elements of V;  V = 0 there;  U = 0 there with mask_momentum  (factor masking)
 *
 * (Lin et al., Deep Gradient Compression, ICLR 2018; RedSync, arXiv 1808.04357). The rate is
 * inside, so that w -= sum over ranks of S is all that remains, and all of V sent in every step is
 * Caffe's SGD, bit for bit on one rank.
 *
 * Memory bounds all of it: the update reads g, U, V (and w) and writes U, V. Selection shares that
 * pass. An exact one collects, in the pass, what is larger than a lower bound of the k-th
 * magnitude. That bound is the last step's threshold a little lowered, or where there is none a
 * quantile of a sample. Only if fewer than k were found is V read again. Large shares (k > n / 16)
 * count a radix histogram of the magnitudes' upper bits in the pass and compact in a second one.
 *
 * What is selected never depends on the number of threads or on history, but for SAMPLED, whose
 * rule is history. Zeros are never selected. Not thread-safe on one selector.
 */
#ifndef CT_SELECT_H
#define CT_SELECT_H

#include <stdbool.h>

#include "comm/sparse/sparse.h"

/** One step of one parameter. Arrays of n floats, 4-byte aligned, none overlapping another. */
typedef struct ct_momentum_correction {
    const float *grad;
    const float *weight; /* NULL: no decay                                          */
    float *u;            /* momentum; NULL: V += scale grad + shift mean, all the rest is ignored */
    const float *mean;   /* NULL: none                                              */
    float shift;
    float *v; /* what is not sent yet                                    */
    int64_t n;
    float scale, rate, momentum;
    float decay; /* of this rank's share: weight_decay * decay_mult / ranks      */
    float carry; /* what V held before counts so many times: new rate / old; 0 stands for 1 */
    bool nesterov, mask_momentum;
    int n_thread; /* at most; 0: as many as OpenMP would take                 */
} ct_momentum_correction;

/** Elements [first, first + n) of it, for one thread. */
ct_momentum_correction ct_momentum_correction_part(const ct_momentum_correction *a, int64_t first,
                                                   int64_t n);
/** The update alone: U and V, nothing is sent. */
void ct_momentum_correction_run(const ct_momentum_correction *a);
/** The sum of v[n]'s squares by n_thread threads at most, whose number changes no bit. */
double ct_momentum_correction_square(const float *v, int64_t n, int n_thread);
/** How often v[n] counts so that its norm is at most limit: 1 where it is not over it, or not
 *  finite. Threads as above. */
float ct_momentum_correction_limit(const float *v, int64_t n, double limit, int n_thread);
/** v[n] -= factor mean. */
void ct_momentum_correction_less(float *v, int64_t n, float factor, const float *mean,
                                 int n_thread);
/** v[n] *= factor. */
void ct_momentum_correction_scale(float *v, int64_t n, float factor, int n_thread);
/** A dense step: out[n] = V after the update, V = 0, U stays. out may be the gradient itself. */
void ct_momentum_correction_all(const ct_momentum_correction *a, float *out);
/** The update, but what this step would add to V goes to out[n]. V keeps what it held before, as it
 *  counts now. sum: the squares of out, and of V; the same for any number of threads. */
void ct_momentum_correction_apart(const ct_momentum_correction *a, float *out, double sum[2]);
/** This share of V moves over to out. */
void ct_momentum_correction_send(const ct_momentum_correction *a, float share, float *out);
/** Anything but zeros. */
bool ct_momentum_correction_holds(const float *v, int64_t n);

typedef enum {
    CT_SELECT_AUTO,    /* EXACT                                                               */
    CT_SELECT_EXACT,   /* the k largest magnitudes, of equal ones those of lowest index       */
    CT_SELECT_TRIMMED, /* the same, found as RedSync's trimmed top-k does: survivors of a threshold
                          between mean and maximum, lowered in fifths                         */
    CT_SELECT_SEARCH,  /* all over a threshold, searched between mean and maximum, that k to 5/4 k
                          elements pass                                                      */
    CT_SELECT_SAMPLED, /* SEARCH's threshold, reused for 4 more steps while k / 2 to 5/4 k pass */
    CT_SELECT_REDSYNC_SIZES /* RedSync's choice: TRIMMED below 4 MB, else SAMPLED              */
} ct_select_kind;

/** "auto", "exact", "trimmed", "search", "sampled", "redsync_sizes". */
const char *ct_select_name(ct_select_kind kind);

/** Most elements that SEARCH and SAMPLED take. RedSync ends its search at 2 k, which sends up to
 *  twice what it was told to; a search that ends closer costs a pass more at most. */
static inline int64_t ct_select_most(int64_t k)
{
    return k + k / 4;
}

typedef struct ct_selector ct_selector;

/** What the last run did. */
typedef struct ct_select_stats {
    float threshold;    /* the least magnitude selected; 0: none              */
    int64_t candidates; /* elements compacted on the way                      */
    int passes;         /* over V: 1 where the update's own pass was enough   */
    bool history;       /* an earlier step's threshold was used               */
    double update_s;    /* the pass that is fused with the update             */
    double select_s;    /* all that came after it                             */
} ct_select_stats;

/** A selection of about k (1 <= k; more than n is n) of n elements. CT_ERR_CONFIG where n is over
 *  CT_SPARSE_MAX, CT_ERR_NOMEM. Buffers come with the first run and stay. */
ct_status ct_selector_create(ct_select_kind kind, int64_t n, int64_t k, ct_selector **sel_p);
void ct_selector_destroy(ct_selector *sel); /* NULL allowed */
/** From the next run on k elements are selected, no fewer than it was created for. */
void ct_selector_want(ct_selector *sel, int64_t k);
/** Most entries that a run selects: k, or 5/4 k, at most n. */
int64_t ct_selector_bound(const ct_selector *sel);
/** From the next run on: +1 only positive elements, -1 only negative ones, 0 (as created) both.
 *  Each of the three has a history of its own. */
void ct_selector_sign(ct_selector *sel, int sign);
/** Forgets all history. Results stay the same but for SAMPLED's. */
void ct_selector_forget(ct_selector *sel);
void ct_selector_stats(const ct_selector *sel, ct_select_stats *out);

/** The update of *a (a->n is the selector's n) and the selection; out gets the selected elements
 *  and their n and is enlarged where needed. CT_ERR_DIVERGED where V is no longer finite anywhere;
 *  U, V and out are then undefined. */
ct_status ct_selector_run(ct_selector *sel, const ct_momentum_correction *a, ct_sparse *out);

#endif
