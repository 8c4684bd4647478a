/** @file batch_cost.h  How long a batch takes, by its tokens: a table that running batches refine;
 * and the padded groups that take the least time.
 *
 * The table has a point for each size that was measured. Between points the time is linear; below
 * the first it is that of the first, since a batch reads all weights whatever its size; beyond the
 * last it grows in proportion. Measurements scatter, so what the table says is their isotonic
 * regression: the non-decreasing curve of least squares.
 *
 * Attention looks back on all tokens of a text that have run, so a prompt's last chunk takes longer
 * than its first. By how much, over what the table says, is a linear regression on the tokens
 * behind, over chunks that ran. The last ones count most, and the slope is held towards 0 while
 * they are few.
 */
#ifndef CT_BATCH_COST_H
#define CT_BATCH_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/status.h"

#define CT_BATCH_COST_POINTS 32

/** The knee is where a batch has this share of the most tokens/s. Larger batches gain the rest of
 *  it, and each request in them waits longer. */
#define CT_KNEE_SHARE 0.95
/** The knee for chunks of prompts beside texts that grow, whose next tokens wait for them. */
#define CT_CHUNK_SHARE 0.9

typedef struct ct_batch_cost {
    int n;
    int64_t tokens[CT_BATCH_COST_POINTS];  /* ascending, > 0                       */
    double measured[CT_BATCH_COST_POINTS]; /* seconds: the mean that batches move  */
    double s[CT_BATCH_COST_POINTS];        /* their isotonic regression            */
    struct {
        double weight, x, y, xx, xy; /* means over chunks: x tokens behind, y times the table's */
    } back;
} ct_batch_cost;

/** CT_ERR_ARG, logged: no points, too many, not ascending, or a time that is none. */
ct_status ct_batch_cost_init(ct_batch_cost *c, int n, const int64_t *tokens, const double *s);
/** Seconds of a batch of so many tokens; 0 of none. */
double ct_batch_cost_s(const ct_batch_cost *c, int64_t tokens);
/** Whether a measurement that is to take limit_s has time for a size twice the last, after spent_s:
 *  a first round takes half of it, and others follow. */
bool ct_batch_cost_has_time(double spent_s, double last_s, double limit_s);
/** Whether such a measurement, for batches of at most `most` tokens, would have had time for more,
 *  had it taken twice as long for each: something else slowed it. */
bool ct_batch_cost_is_short(const ct_batch_cost *c, int64_t most, double limit_s);
/** The least tokens with that share of the best tokens/s of the table. */
int64_t ct_batch_cost_knee(const ct_batch_cost *c, double share);
/** A batch of so many tokens took s. The points beside it move an eighth of the way; a time beyond
 *  twice or half of what was expected counts as that, so that a pause of the machine changes
 * little.
 */
void ct_batch_cost_observe(ct_batch_cost *c, int64_t tokens, double s);
/** A batch with a chunk took so many times what the table says; each of its tokens looked back on
 *  `behind` of other batches, in the mean. */
void ct_batch_cost_look_back(ct_batch_cost *c, double behind, double times);
/** How many times as long as the table says a batch then takes, >= 1. */
double ct_batch_cost_times(const ct_batch_cost *c, double behind);

/* ---- Which requests of unlike lengths are padded to one, so that all of them take
 * the least time together.
 *
 * In order of length a group is a run of neighbours, if a batch takes no less time for longer
 * samples. Whatever the sizes of groups are, giving the longest requests to the group with the
 * longest makes no group longer. So dynamic programming over the ends of runs finds the optimum:
 * S[i] = min over j of S[j] + cost(length[i - 1], i - j). TurboTransformers' scheduler (arXiv
 * 2010.05680, section 5).
 */

/** Seconds of a batch of `count` samples padded to `length`; does not fall with either. */
typedef double (*ct_padded_cost)(const void *ctx, int64_t length, int64_t count);

typedef struct ct_grouping {
    ct_padded_cost cost;
    const void *ctx;
    int64_t most_count;     /* samples of a group of more than one, >= 1                 */
    int64_t most_tokens;    /* length x count of such a group                            */
    const int64_t *samples; /* of that length, which stay together; NULL: one of each  */
} ct_grouping;

/** Groups length[n], ascending: *n_p groups, group g ends before end[g]. best[n + 1], from[n + 1]:
 *  room to work in; best[n] is the time of all groups. */
void ct_group_lengths(const ct_grouping *g, const int64_t *length, int n, double *best, int *from,
                      int *end, int *n_p);

#endif
