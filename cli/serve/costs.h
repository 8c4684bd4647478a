/** @file costs.h  What batches cost, in the plan file of --plan: found there, or measured and kept;
 * at the end as running batches refined it.
 *
 * A batch costs what it costs whatever the weights are, so they are in no key, and SIGHUP changes
 * nothing. Where batches are cut does not change what requests get, so a file from elsewhere, or
 * edited, is no danger: at worst deadlines are kept less well.
 *
 * A row of the file has a size of batches (framework/net/engine_plan.h): its section says the
 * machine, the threads and the version, its key the net and the most tokens of a batch, the
 * precision, whether the run is deterministic, the ranks that run at once, and which rows of the
 * net are wanted:
 *
 *     batch net 0123456789abcdef most 4096 f32 ranks 1 rows all tokens 64 | pass 0.81
 */
#ifndef CT_COSTS_H
#define CT_COSTS_H

#include "framework/net/engine_plan.h"
#include "runtime/job.h"
#include "serve/net/any_model.h"

typedef struct ct_costs {
    const char *file;     /* NULL: none                                        */
    ct_engine_plan *plan; /* of rank 0                                         */
    bool was_there;       /* the file, before this start                       */
    char key[128];        /* of this net's rows, up to the tokens of each      */
} ct_costs;

/** Reads the file, if it is there; on rank 0. NULL: without a file. CT_ERR_IO: it cannot be
 *  written; CT_ERR_DATA, with its line: it is damaged. */
ct_status ct_costs_open(ct_costs *c, const char *file);
void ct_costs_close(ct_costs *c);
/** Costs that all ranks have: those of the file, or measured by all ranks at once, the mean of
 *  theirs, and kept. job NULL: there is one rank. Collective. */
ct_status ct_costs_find(ct_costs *c, ct_job *job, ct_any_model *m, const ct_net *net,
                        ct_batch_cost *cost);
/** Writes what batches made of the costs into the file, or says why not; on rank 0. Nothing without
 *  a file. */
void ct_costs_refine(ct_costs *c, const ct_batch_cost *cost, int64_t batches);

#endif
