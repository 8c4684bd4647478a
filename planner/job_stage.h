/** @file job_stage.h  A stage of a pipeline: what any run of blocks takes on its ranks, and how its
 * blocks are split and made again so that they fit.
 *
 * What blocks take is told by job_price.h.
 *
 * A run of blocks that fits as a whole goes the fastest ways, by a table of the least time to each
 * (block, way). One that does not is a chain (chain.h), solved under the limit, with ways and
 * segments chosen together. Runs of alike blocks are solved once.
 */
#ifndef CT_JOB_STAGE_H
#define CT_JOB_STAGE_H

#include "planner/job_price.h"

/** A run of blocks as a stage. */
typedef struct ct_job_run {
    double time_s; /* of a micro-batch, both directions, what is made again among it; INFINITY: it
                    * does not fit */
    double sums_s; /* of the step: gradients summed, weights updated */
} ct_job_run;

typedef struct ct_job_stage ct_job_stage;

ct_status ct_job_stage_create(const ct_job_net *n, const ct_job_split *s, const ct_job_machine *m,
                              const ct_job_stage_kind *kind, ct_job_stage **stage_p);
void ct_job_stage_destroy(ct_job_stage *g); /* NULL allowed */
const ct_job_prices *ct_job_stage_prices(const ct_job_stage *g);

/** Blocks first … end - 1 with so many micro-batches in flight: as it is, or from below where
 *  *exact_p is false. */
ct_status ct_job_stage_look(ct_job_stage *g, int first, int end, int64_t in_flight,
                            ct_job_run *run_p, bool *exact_p);
/** The fastest ways of a run, everything kept, whether or not that fits. */
double ct_job_stage_whole_s(const ct_job_stage *g, int first, int end);
/** Solves it where that is to be done; look then says how it is. */
ct_status ct_job_stage_settle(ct_job_stage *g, int first, int end, int64_t in_flight);

/** The run as it is run: way and mode [end - first]. spare: bytes of the limit that must stay free,
 *  or are there beside it where negative. *fits_p: it fits by these figures. */
ct_status ct_job_stage_choose(ct_job_stage *g, int first, int end, int64_t in_flight, double spare,
                              int *way, ct_chain_mode *mode, bool *fits_p);

/** The least bytes that a run may come to, whatever is made again. */
double ct_job_stage_least(const ct_job_stage *g, int first, int end, int64_t in_flight);

#endif
