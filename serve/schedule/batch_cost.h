/** @file batch_cost.h  How long a batch takes, by its tokens: a table that running batches refine.
 *
 * The table has a point for each size that was measured. Between points the time is linear; below
 * the first it is that of the first, since a batch reads all weights whatever its size; beyond the
 * last it grows in proportion. Measurements scatter, so what the table says is their isotonic
 * regression: the non-decreasing curve of least squares.
 */
#ifndef CT_BATCH_COST_H
#define CT_BATCH_COST_H

#include <stdint.h>

#include "framework/base/status.h"

#define CT_BATCH_COST_POINTS 32

/** The knee is where a batch has this share of the most tokens/s. Larger batches gain the rest of
 *  it, and each request in them waits longer. */
#define CT_KNEE_SHARE 0.95

typedef struct ct_batch_cost {
    int n;
    int64_t tokens[CT_BATCH_COST_POINTS];  /* ascending, > 0                       */
    double measured[CT_BATCH_COST_POINTS]; /* seconds: the mean that batches move  */
    double s[CT_BATCH_COST_POINTS];        /* their isotonic regression            */
} ct_batch_cost;

/** CT_ERR_ARG, logged: no points, too many, not ascending, or a time that is none. */
ct_status ct_batch_cost_init(ct_batch_cost *c, int n, const int64_t *tokens, const double *s);
/** Seconds of a batch of so many tokens; 0 of none. */
double ct_batch_cost_s(const ct_batch_cost *c, int64_t tokens);
/** The least tokens with CT_KNEE_SHARE of the best tokens/s of the table. */
int64_t ct_batch_cost_knee(const ct_batch_cost *c);
/** A batch of so many tokens took s. The points beside it move an eighth of the way; a time beyond
 *  twice or half of what was expected counts as that, so that a pause of the machine changes
 * little.
 */
void ct_batch_cost_observe(ct_batch_cost *c, int64_t tokens, double s);

#endif
