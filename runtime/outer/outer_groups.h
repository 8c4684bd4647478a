/** @file outer_groups.h  The groups of local steps over comm/: who trains together, and who
 * exchanges differences with whom.
 *
 * The ranks of the data group are split twice: by group, and by their place in it. Those of one
 * group share gradients. Those of one place have the same parameters to exchange, one rank of each
 * group.
 */
#ifndef CT_OUTER_GROUPS_H
#define CT_OUTER_GROUPS_H

#include "framework/solver/outer.h"
#include "runtime/config/exchange_config.h"
#include "runtime/exchange/exchange_mpi.h"
#include "runtime/job.h"

typedef struct ct_outer_groups {
    ct_comm *inner;  /* ranks of this group; the job's own where there is one group alone */
    ct_comm *across; /* ranks of this place; NULL: nobody has split anything              */
    ct_comm *data;   /* of all of them; borrowed                                          */
    ct_group_mpi group;
    ct_outer_ranks ranks; /* for the solver */
    ct_exchange_mpi *mpi; /* NULL: differences meet nobody */
    ct_outer_param param; /* of the exchange between groups */
} ct_outer_groups;

/** How many groups `outer.groups` makes. CT_ERR_CONFIG where they would be of unlike size. */
ct_status ct_outer_groups_count(const ct_topo *topo, int groups, int *n_p);
/** Which of them a rank is in. */
int ct_outer_groups_of(const ct_topo *topo, int groups, int rank);
/** Splits the job's data group as param's `outer` says; nothing where it has none. The job is
 *  connected, and outlives g. Collective. CT_ERR_CONFIG where groups would be of unlike size. */
ct_status ct_outer_groups_open(const ct_job *job, const Ct__SolverParameter *param,
                               ct_outer_groups *g);
/** After the solver is gone; a zeroed one, too. Collective. */
void ct_outer_groups_close(ct_outer_groups *g);
/** Those that share gradients; NULL: the job's data group does. */
static inline ct_comm *ct_outer_groups_inner(const ct_outer_groups *g)
{
    return g->inner;
}

#endif
