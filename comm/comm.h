/** @file comm.h  The communicators that everything in comm/ runs on.
 *
 * One duplicate of the world with MPI_ERRORS_RETURN; our traffic never meets the caller's. Messages
 * of collectives in flight are told apart by tag. All calls come from the main thread.
 */
#ifndef CT_COMM_H
#define CT_COMM_H

#include <mpi.h>

#include "framework/base/memory.h"
#include "topology/topo.h"

/** Fails with MPI's own text. */
#define CT_TRY_MPI(_expr)                                                                          \
    do {                                                                                           \
        int mpi_rc_ = (_expr);                                                                     \
        if (mpi_rc_ != MPI_SUCCESS) return ct_comm_mpi_fail(__FILE__, __LINE__, #_expr, mpi_rc_);  \
    } while (0)

ct_status ct_comm_mpi_fail(const char *file, int line, const char *what, int mpi_rc);

struct ct_node; /* the node's shared-memory window: comm/node.h */

typedef struct ct_comm {
    MPI_Comm world;
    int rank, size;
    ct_topo *topo; /* owned                                                            */
    MPI_Comm node; /* ranks of this (perhaps pretended) node                           */
    int node_rank, node_size;
    bool node_shares;            /* the ranks of `node` can share memory: false on pretended nodes
                                    that span hosts                                                  */
    struct ct_node *node_memory; /* private to comm/                                          */
} ct_comm;

/** topology: "auto", or a synthetic spec such as "2x2". Collective over world. CT_ERR_CONFIG. */
ct_status ct_comm_create(MPI_Comm world, const char *topology, ct_comm **comm_p);
void ct_comm_destroy(ct_comm *comm); /* NULL allowed; collective */

/* Small blocking collectives; each is collective over the world. */
ct_status ct_comm_sum(ct_comm *c, double *v, int n); /* in rank order: bitwise equal everywhere */
ct_status ct_comm_max(ct_comm *c, int64_t *v, int n);
ct_status ct_comm_broadcast(ct_comm *c, void *data, size_t bytes);
ct_status ct_comm_barrier(ct_comm *c);

/** Launch check (verbs that start a job): the launcher's word against MPI's world size.
 *  OMPI_COMM_WORLD_SIZE, then PMI_SIZE, then SLURM_STEP_NUM_TASKS where no other launcher's
 * variable is set. CT_ERR_LAUNCH with both numbers and the --mpi hint. */
ct_status ct_comm_check_launch(int world_size);

/** An arena in a window that the node's ranks share, where that works, else plain memory; its space
 *  is agreed by the ranks of the node first. acquire and release are collective over the node. */
const ct_arena_ops *ct_comm_arena(ct_comm *c);

#endif
