/** @file grad_tune.h  The first steps of a pipe: what the model chose, refined by measurement.
 *
 * Buckets are put into classes by size (powers of two). In each class one bucket tries, step after
 * step, the algorithms whose predicted cost is within three times the least; the time counted is
 * that from leaving to landing, on the slowest rank, as it is in training: with layers that
 * compute, polls and other buckets. Where one is clearly faster than the model's at their best, the
 * two take turns for some steps more, and the class leaves the model's only for one that wins every
 * turn (tune_rule.h): times within training are noisy, and a model that is wrong is wrong each
 * time. Then, with progress AUTO, steps without and with the thread take turns; the shorter median
 * is kept, since both give the same numbers. All ranks decide from the same numbers. Private to
 * comm/.
 */
#ifndef CT_GRAD_TUNE_H
#define CT_GRAD_TUNE_H

#include "comm/sync/grad_pipe_impl.h"

typedef struct ct_grad_tune ct_grad_tune;

/** *tune_p stays NULL where nothing is to be tried: tune_iterations 0, or one rank. Collective. */
ct_status ct_grad_tune_create(ct_grad_pipe *gp, ct_grad_tune **tune_p);
void ct_grad_tune_destroy(ct_grad_tune *tune); /* NULL allowed; before the buckets go; collective */
/** At the start of every step, before anything leaves. Collective where something is decided. */
ct_status ct_grad_tune_step(ct_grad_tune *tune);
/** Steps after which all is decided: fewer, once it is known that nobody challenges the model. */
int ct_grad_tune_n_step(const ct_grad_tune *tune);
/** Most that it may be, of a pipe that is yet to be tuned. */
int ct_grad_tune_most(int tune_iterations);

#endif
