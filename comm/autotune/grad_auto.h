/** @file grad_auto.h  `compression { type: AUTO }` in a pipe. Private to comm/.
 *
 * When the pipe is made, the cost model chooses (codec_planner.h): with what codecs take here and
 * how fast messages are, both measured in some ten milliseconds, and without anything to hide
 * behind, unless config.line says what the step is. What would land sooner dense even then, is
 * dense for good. The first steps are watched: what computes between gradients that get ready and
 * weights that are read is the line on which rank 0 chooses again. Then the best plans, and all
 * dense, take some real steps each: the fastest on the slowest rank is taken, a codec only where it
 * is clearly faster than dense. On devices nothing is watched, since the host has long gone on when
 * they compute: plans are tried that were chosen without anything to hide behind. Where steps may
 * not decide (no tune_iterations, or where codecs absorb momentum that the solver does not share)
 * the model does, whose plan then has to be much better, and the log says that nobody has verified
 * it.
 * Later, steps that are much longer in a few windows in a row than they were when this was decided
 * have it decided anew.
 *
 * What is tried hurts nobody: in a trial the codecs that leave something behind work on shares of
 * the solver's momentum, and travel, land and are read as ever, but no weight moves by what they
 * sum, and what they keep is forgotten. What the pipe kept before waits aside. Plans that round,
 * plain codecs, whose V waits with that, and dense ones are steps like any other. The way that was
 * decided on loses nothing: where it has no place for what was left behind before, dense steps
 * bring that to the weights, no faster than they move them by themselves (codec_side.h). All
 * ranks decide from the same numbers.
 */
#ifndef CT_GRAD_AUTO_H
#define CT_GRAD_AUTO_H

#include "comm/sync/grad_pipe_impl.h"

typedef struct ct_grad_auto ct_grad_auto;
typedef struct ct_grad_tune ct_grad_tune;

/** gp->range has what the config says; leaves in it what is chosen. *a_p NULL: nothing is to be
 *  tried. *tune_p: where what tunes algorithms comes to lie, once plans are decided on; borrowed.
 *  Collective. */
ct_status ct_grad_auto_create(ct_grad_pipe *gp, ct_grad_tune **tune_p, ct_grad_auto **a_p);
void ct_grad_auto_destroy(ct_grad_auto *a); /* NULL allowed */
/** A step begins; may change the pipe's plan. *begins_p, *least_p: of ct_codec_step. Collective;
 *  with the lock held. */
ct_status ct_grad_auto_step(ct_grad_auto *a, int64_t iteration, bool *begins_p, float *least_p);
/** Plans are going to be tried: the pipe is tuned afterwards. */
bool ct_grad_auto_tries(const ct_grad_auto *a);
/** At the end: what steps took against what was predicted, and measured dense. */
void ct_grad_auto_report(const ct_grad_auto *a); /* NULL allowed */
/** Most steps that pass until a plan is decided on. */
int ct_grad_auto_n_step(const ct_grad_auto *a);

/** What the pipe tells its policy. NULL allowed. */
void ct_grad_auto_observe(ct_grad_auto *a, ct_grad_event event, int range);

#endif
