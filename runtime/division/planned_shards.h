/** @file planned_shards.h  What each rank of a job by a parallel file would keep as its solver's
 * `memory` says, in shards (ZeRO) and files, before there is a job: for ct_rank_memory_with().
 */
#ifndef CT_PLANNED_SHARDS_H
#define CT_PLANNED_SHARDS_H

#include "planner/rank_memory.h"
#include "runtime/division/exchange_divided.h"

enum { CT_PLANNED_GROUPS = 4 /* tied, stage, replicas, the job */ };

typedef struct ct_planned_shards {
    const ct_parallel *parallel; /* whose rank is looked at */
    const ct_topo *topo;         /* of all ranks            */
    const Ct__SolverParameter *param;
    ct_comm *comm[CT_PLANNED_GROUPS]; /* of the rank that is looked at */
    ct_exchange_groups groups;
    ct_divided_window window;
} ct_planned_shards;

/** All else of p than topo and param is zero; they are borrowed. */
ct_rank_shards ct_planned_shards_open(ct_planned_shards *p);
void ct_planned_shards_close(ct_planned_shards *p);

#endif
