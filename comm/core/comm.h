/** @file comm.h  The communicators that everything in comm/ runs on.
 *
 * One duplicate of the caller's, with MPI_ERRORS_RETURN: our traffic never meets theirs. Messages
 * of collectives in flight are told apart by tag. Calls come from one thread at a time: from the
 * main thread, or from the gradient pipe's own, which holds the lock while it calls MPI.
 */
#ifndef CT_COMM_H
#define CT_COMM_H

#include <mpi.h>
#include <stdbool.h>

#include "framework/base/memory.h"
#include "framework/tensor/tensor.h"
#include "topology/topo.h"

/** Fails with MPI's own text. */
#define CT_TRY_MPI(_expr)                                                                          \
    do {                                                                                           \
        int mpi_rc_ = (_expr);                                                                     \
        if (mpi_rc_ != MPI_SUCCESS) {                                                              \
            ct_comm_mpi_log(__FILE__, __LINE__, #_expr, mpi_rc_);                                  \
            return CT_ERR_COMM;                                                                    \
        }                                                                                          \
    } while (0)

void ct_comm_mpi_log(const char *file, int line, const char *what, int mpi_rc);

struct ct_node; /* the node's shared-memory windows: comm/core/node.h */

enum {
    CT_COMM_MAX_PENDING = 512,
    CT_COMM_BLOCKING_TAGS = 64 /* tags 0 … 63 belong to blocking collectives */
};

/** What moves while this rank waits for a small collective: a gradient pipe plugs itself in. Both
 *  are called with the lock held. */
typedef struct ct_comm_mover {
    ct_status (*move)(void *ctx);
    int (*pending)(void *ctx, MPI_Request **out, int max); /* as ct_coll_ops.pending */
    void *ctx;
    struct ct_comm_mover *next; /* private to comm/core */
} ct_comm_mover;

typedef struct ct_comm {
    MPI_Comm mpi;    /* of all its ranks */
    MPI_Comm sums;   /* a duplicate for MPI's own allreduce (impi): when these start depends on
                        timing, and MPI pairs the collectives of one communicator by their order */
    MPI_Comm checks; /* a duplicate for checksums of messages: comm/core/message.h; MPI_COMM_NULL:
                        nobody asked for them */
    int rank, size;
    ct_topo *topo; /* owned                                                              */
    MPI_Comm node; /* ranks of this (perhaps pretended) node                             */
    int node_rank, node_size;
    int *node_member;            /* [node_size] their ranks in the communicator          */
    bool node_shares;            /* the ranks of every node can share memory: false on
                                    pretended nodes that span hosts; same on all ranks   */
    MPI_Comm host;               /* ranks of this real machine                           */
    int host_size, host_all;     /* how many those are, and how many all ranks of the job there */
    bool oversubscribed;         /* the machine has fewer cores than ranks: yield when idle */
    int n_core;                  /* that these ranks may use together on this machine    */
    int n_thread;                /* threads that an addition may use                     */
    struct ct_node *node_memory; /* private to comm/                                     */
    struct ct_comm_attachments *attached; /* likewise                                     */
    struct ct_comm_family *family;        /* likewise                                     */
    MPI_Op f16_sum;                       /* likewise                                             */
    MPI_Op bf16_sum;                      /* on MPI_UINT16_T                                      */
    int next_tag, tag_limit;
    int64_t sending; /* bytes of schedules' messages that MPI has taken and not yet sent */
    double sent_at;  /* when one of them was last sent, or the first taken             */
    bool prompt;     /* who moves messages now looks again at once, not at the next poll */
    bool in_order;   /* what is less urgent sends nothing large before its turn        */
    struct ct_async_sum *async_sums; /* under way: comm/collective/async_sum.h */
} ct_comm;

/** topology: "auto", "slurm", a machine file or what else docs/topology.md has; the nodes of a spec
 *  ("2x4") are pretended. Logs the topology. Collective over `of`. CT_ERR_CONFIG, CT_ERR_IO. */
ct_status ct_comm_create(MPI_Comm of, const char *topology, ct_comm **comm_p);
/** The same, on ranks placed by the caller (ct_topo_place()), for simulations: whatever the ranks
 *  share, messages carry everything. Takes topo over, in case of errors too. */
ct_status ct_comm_create_placed(MPI_Comm of, ct_topo *topo, ct_comm **comm_p);
/** One that plans on behalf of a rank of a job that is not there: its parts, buckets and choices
 * are those of the job, and nothing travels. Takes topo over, in case of errors too. Not
 * collective. */
ct_status ct_comm_create_planned(ct_topo *topo, int rank, ct_comm **comm_p);
/** From here on messages carry checksums (comm/core/message.h), also of communicators that are
 * split off c later. MPI's own sums are refused then. Collective over c; before anything is sent.
 */
ct_status ct_comm_verify(ct_comm *c);
/** It is one of those. */
bool ct_comm_only_plans(const ct_comm *c);
/** A communicator of those ranks of `parent` that give the same colour, in the order of key, then
 * of their ranks. It has tags, attachments and windows of its own, and of the topology the part
 * that holds them (ct_topo_subset()). A negative colour is in none: *comm_p is NULL. What moves
 * during waits (ct_comm_plug()) parent and children have in common; the parent may go first.
 * Nothing is under way meanwhile. Collective over parent. */
ct_status ct_comm_split(ct_comm *parent, int colour, int key, ct_comm **comm_p);
/** The communicator of c's ranks on this rank's node, in their order; it lives as long as c. The
 *  first call makes it, and is collective over c. */
ct_status ct_comm_of_node(ct_comm *c, ct_comm **node_p);
/** All ranks that were started together, to make a communicator of; and which of them this is. */
MPI_Comm ct_comm_everyone(int *rank_p, int *size_p);
void ct_comm_destroy(ct_comm *comm); /* NULL allowed; collective */

/** What other modules keep with a communicator, such as models of its costs. `key` names it: the
 *  address of something of the module's own. Not safe to call from two threads at a time. */
void *ct_comm_attached(const ct_comm *c, const void *key); /* NULL: nothing */
/** Takes `what` over, which `destroy` releases when the communicator ends. Once a key.
 *  CT_ERR_NOMEM: destroyed at once. */
ct_status ct_comm_attach(const ct_comm *c, const void *key, void *what,
                         void (*destroy)(void *what));

/** From here on m moves while a rank waits in c, or in any communicator split off the same one. Who
 *  waits in one group must not stop the messages of another. m is borrowed until it is unplugged.
 *  Both at the same place of all ranks' programs. */
void ct_comm_plug(ct_comm *c, ct_comm_mover *m);
void ct_comm_unplug(ct_comm *c, ct_comm_mover *m); /* nothing where it is not plugged in */
/** Who waits in c, or in one of its family, asks `hear` whether there is still something to wait
 *  for, with the lock held. NULL: nobody asks, which is how it begins. */
void ct_comm_listen(ct_comm *c, ct_status (*hear)(void *ctx), void *ctx);
/** What `hear` answers; with the lock held. */
ct_status ct_comm_hear(const ct_comm *c);
/** Each of them moves once; with the lock held. */
ct_status ct_comm_move(ct_comm *c);
/** The requests of all of them, at most max; with the lock held. */
int ct_comm_pending(ct_comm *c, MPI_Request **out, int max);

/** As what elements of dtype travel. */
MPI_Datatype ct_comm_datatype(ct_dtype dtype);

/** Whoever calls MPI while gradients may be under way holds the lock. Never across a wait. It is
 *  the process's, whatever the communicator: MPI takes calls from one thread at a time. Who holds
 *  it may take it again. */
void ct_comm_lock(ct_comm *c);
void ct_comm_unlock(ct_comm *c);

/** The first of n tags that nobody else uses, as long as fewer than MPI_TAG_UB are in use; the same
 *  on all ranks when all call in the same order. */
int ct_comm_take_tags(ct_comm *c, int n);
/** Called in a loop that waits, with *idle counting the rounds in which nothing moved (0: something
 *  did). It pauses at first, then gives the core away, at once where ranks share cores. Where only
 *  signals of the node are waited for it sleeps until one comes. */
void ct_comm_relax(const ct_comm *c, int *idle);
/** Called, without the lock, where there is nothing to do but wait: for one of n requests (of
 *  ct_coll_ops.pending and the like), or for something that no request tells of. Here it relaxes
 *  and returns, for the caller to look again; in a simulation it blocks until one completes, and
 *  leaves MPI_REQUEST_NULL in its place. *idle as for relax. */
ct_status ct_comm_wait_any(ct_comm *c, MPI_Request **req, int n, int *idle);
/** MPI_Test; what ct_comm_wait_any() left is done. In a simulation nothing else is: there a
 *  completion is noticed by waiting for it (and SMPI tests MPI_REQUEST_NULL as not done). */
int ct_comm_test(MPI_Request *request, int *done_p);
/** Does a message wait until those before it in its collective have left: to the same rank, or of
 *  earlier steps? On a network the first comes first, but SMPI lets them share the link, so that
 * the one that is needed first comes late and rings fall out of step. There, then, yes. */
bool ct_comm_sends_in_turn(void);
/** There: seconds in which the link to a rank takes this message. Its last byte is on the way then,
 *  for as long as the latency. */
double ct_comm_leaves_s(const ct_comm *c, int to, int64_t bytes);
enum { CT_COMM_ALARM_BYTES = 32 << 10 };
/** There: a request that completes in so many seconds, or before; block: 2 CT_COMM_ALARM_BYTES. */
ct_status ct_comm_alarm(double seconds, void *block, MPI_Request *alarm);
/** May a second thread call MPI, one at a time? If not, *why_p says why: a static text. */
bool ct_comm_may_thread(const ct_comm *c, const char **why_p);

/** Launch check (verbs that start a job): the launcher's word against MPI's world size.
 *  OMPI_COMM_WORLD_SIZE, then PMI_SIZE, then SLURM_STEP_NUM_TASKS where no other launcher's
 * variable is set. CT_ERR_LAUNCH with both numbers and the --mpi hint. */
ct_status ct_comm_check_launch(int world_size);

/** The same before MPI_Init, where MPI cannot come that far: Open MPI under an srun that tells it
 *  nothing (--mpi=none) ends the process by itself, with its own exit code. CT_ERR_LAUNCH where the
 *  step has several tasks and no launcher has spoken to this MPI. */
ct_status ct_comm_check_launcher(void);

/** Before MPI_Init: Open MPI's limits of messages over TCP, by its environment variables, so that
 *  both directions of a connection are used at once. Where the user (mpirun --mca, environment) has
 *  set any of them, all stay as they are. Other networks, and other MPIs, do not read them. */
void ct_comm_prepare_launch(void);

/** An arena in a window that the node's ranks share, where that works, else plain memory. The ranks
 *  agree on its space first. acquire and release are collective over c, in the same order on all
 *  ranks. The bytes may differ. The result lives as long as c. Of one that only plans: plain
 *  memory. */
const ct_arena_ops *ct_comm_arena(ct_comm *c);

/** `bytes` zeroed bytes of the node's first rank, which all ranks of the node map; the others pass
 *  0. *own_p is for the release. CT_UNSUPPORTED, on all ranks alike, where there is no space, no
 *  sharing, or no node of several ranks. Collective over c, and the release too. */
ct_status ct_comm_share_block(ct_comm *c, size_t bytes, const char *what, void **first_p,
                              void **own_p);
void ct_comm_release_block(ct_comm *c, void *own);

/** Whether this MPI says that it takes addresses on a CUDA device: "yes", "no", or "it does not
 * say"; static. */
const char *ct_mpi_takes_cuda(void);

#endif
