/** @file select_impl.h  Blocks of the accumulation and of the selections. Private to comm/.
 *
 * Work is done in blocks that stay in the first cache: updated, then looked at, while the next
 * ones stream in.
 */
#ifndef CT_SELECT_IMPL_H
#define CT_SELECT_IMPL_H

#include "comm/codec/select.h"
#include "comm/codec/select_key.h"
#include "framework/base/memory.h"

/** Bit j of mark[g]: whether the key of v[64 g + j] is over bound, which is at least 0. Returns in
 *  bit g whether mark[g] has any. n_group is at most 32. */
typedef uint32_t (*ct_mark_fn)(ct_select_key key, int64_t n_group, const float *v, int32_t bound,
                               uint64_t *mark);
/** The fastest of this processor: select_block.c. */
ct_mark_fn ct_mark_pick(void);

/* What one thread has collected: every element of its blocks whose key is over `bound`, or of them
 * the `limit` largest, of equal ones the first. */
typedef struct ct_select_found {
    uint32_t *index; /* ascending                                     */
    float *value;
    float *u; /* with factor masking: U where they lie */
    int64_t count, room;
    int64_t limit; /* room is at least limit + GROUP, or holds all    */
    ct_mark_fn mark;
    int32_t bound; /* raised when the room is full                    */
    int32_t taken; /* larger magnitudes are 0 in V, and U, already    */
    int32_t most;  /* largest key seen                                */
    int32_t worst; /* largest magnitude seen, of either sign          */
} ct_select_found;

typedef struct ct_select_thread {
    int64_t first, last; /* its blocks                                         */
    ct_select_found found;
    int64_t over, equal, at;         /* of them: selected; where they go      */
    uint32_t *bin;                   /* [BINS], of a radix selection          */
    int64_t count[CT_SELECT_PROBES]; /* keys over the probes                  */
    char apart[CT_ALIGN];            /* from the next thread's cache line     */
} ct_select_thread;

typedef struct ct_select_history {
    float threshold; /* the last one; 0: none                                  */
    float before;    /* the one before                                         */
    float margin;    /* EXACT: the next lower bound is margin * threshold      */
    int age;         /* SAMPLED: steps since it was searched                   */
} ct_select_history;

struct ct_selector {
    ct_select_kind kind; /* EXACT, TRIMMED, SEARCH or SAMPLED */
    int64_t n, k, n_block;
    int64_t k_least; /* that it was created for */
    int sign;
    ct_select_history history[3]; /* of sign -1, 0, 1 */
    int n_thread;                 /* those there is memory for */
    ct_select_thread *thread;
    double *block_sum; /* [n_block]; NULL until needed */
    float *sample;     /* NULL until needed */
    ct_select_stats stats;
};

/* One run. */
typedef struct ct_select_run {
    ct_selector *sel;
    const ct_momentum_correction *a;
    ct_select_history *history;
    ct_select_key key;
    int team;
    bool updated;                    /* the first pass over V updates it */
    bool sized;                      /* the threads' rooms hold all      */
    int64_t limit;                   /* most entries to select           */
    int32_t taken;                   /* larger ones are taken in the next pass, likely rightly */
    int32_t probe[CT_SELECT_PROBES]; /* what count passes compare with   */
} ct_select_run;

typedef void (*ct_select_work)(const ct_select_run *r, ct_select_thread *t, int64_t first,
                               int64_t n);

/** Does the work on every block, after the update where this is the first pass. CT_ERR_DIVERGED
 *  where that pass saw what is not finite. */
ct_status ct_select_pass(ct_select_run *r, ct_select_work work);
/** A pass that collects what is over bound, the `limit` largest at least; *total_p: how many were
 *  collected, *pruned_p: not all that are over bound. */
ct_status ct_select_collect(ct_select_run *r, int32_t bound, int64_t *total_p, bool *pruned_p);
/** The same, and where that were fewer than k, again all that are not zero. */
ct_status ct_select_collect_k(ct_select_run *r, int32_t bound, int64_t *total_p);

/** Threads worth having for n elements. */
int ct_momentum_correction_team(const ct_momentum_correction *a);
/** The update of elements [first, first + n). */
void ct_momentum_correction_block(const ct_momentum_correction *a, int64_t first, int64_t n);

/** U where it is cleared along with V, or NULL. */
static inline float *ct_momentum_correction_masked(const ct_momentum_correction *a)
{
    return a->mask_momentum ? a->u : NULL;
}

/** Collects from V's elements first .. first + n - 1, n <= BLOCK; those over f->taken become 0. */
void ct_block_collect(ct_select_key key, const ct_momentum_correction *a, int64_t first, int64_t n,
                      ct_select_found *f);
/** What was taken goes back. */
void ct_block_restore(const ct_momentum_correction *a, const ct_select_found *f);
/** The sum of the keys as floats, the same for any vector width; n <= BLOCK. */
double ct_block_sum(ct_select_key key, const float *v, int64_t n);
/** count[j] += how many keys are over bound[j]. */
void ct_block_count(ct_select_key key, const float *v, int64_t n,
                    const int32_t bound[CT_SELECT_PROBES], int64_t count[CT_SELECT_PROBES]);
/** bin[key >> BIN_SHIFT] += 1 for each element. */
void ct_block_histogram(ct_select_key key, const float *v, int64_t n, uint32_t *bin);
/** Largest magnitude and key, into f. */
void ct_block_extremes(ct_select_key key, const float *v, int64_t n, ct_select_found *f);

#endif
