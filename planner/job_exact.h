/** @file job_exact.h  The bytes of a plan's ranks as their nets have them, and a plan made to fit
 * them.
 *
 * Figures of blocks are nearly right: buffers do not grow with the batch alone, and a part of a
 * layer is not a part of its scratch. So the plan is written as a file, the nets of its ranks are
 * made from it without memory (rank_memory.h), and what a stage takes beside its figures is noted.
 * Where a rank does not fit, or makes values again and leaves more than 2 % of its limit, ways and
 * segments are chosen anew with that in mind.
 */
#ifndef CT_JOB_EXACT_H
#define CT_JOB_EXACT_H

#include "planner/job_plan.h"
#include "planner/rank_memory.h"

/** Fits a plan to the byte. Of each stage and kind of replicas the first rank of one counts, which
 *  has the most where parts are uneven. p->fits says whether it does. Its step is simulated anew
 *  where it changed. keep: nothing is chosen anew. options: of the net, as ct_job_net_make() had
 *  them. */
ct_status ct_job_plan_fit(ct_job_space *s, const ct_net_options *options, ct_job_plan *p,
                          bool keep);
/** Bytes of every rank of a plan: m [ranks of the job]. */
ct_status ct_job_plan_memory(ct_job_space *s, const ct_net_options *options, const ct_job_plan *p,
                             ct_rank_memory *m);

#endif
