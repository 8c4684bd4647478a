/** @file replicas.h  Replicas of a model on other ranks, behind the dispatcher of rank 0. A replica
 * is one rank, or the first one of a group (tensor_group.h).
 *
 * Rank 0 has for each other rank a ct_served_model, whose embed and infer send the works there and
 * wait for what comes out. Any threads call them. They only leave the message, wake the one thread
 * that calls MPI, and sleep until it has the answer: ct_replicas_move() is that thread's. A replica
 * is asked one thing at a time, and answers it; so a link needs no order of its own. Sequences grow
 * there, too (sequences.h): opening and closing them asks nothing.
 *
 * The other ranks obey (ct_replicas_obey()): batches, new weights, the end. Where there is nothing
 * to do they sleep between looks, longer and longer, since waits inside MPI would take a core.
 */
#ifndef CT_REPLICAS_H
#define CT_REPLICAS_H

#include "comm/core/comm.h"
#include "serve/api/model.h"

typedef struct ct_replicas ct_replicas;

/** Rank 0, of the other ranks of c. Each of them is the first of `each` ranks of the job. model:
 * its own, whose name, inputs and outputs are theirs, too; borrowed. wake(ctx): a message waits for
 * ct_replicas_move(); any thread. */
ct_status ct_replicas_create(ct_comm *c, int each, const ct_served_model *model,
                             void (*wake)(void *ctx), void *ctx, ct_replicas **r_p);
void ct_replicas_destroy(ct_replicas *r); /* NULL allowed */
/** What runs on that rank of c, from 1 on. */
const ct_served_model *ct_replicas_model(const ct_replicas *r, int rank);

/** Moves messages, from the thread that calls MPI. It shares MPI with those that hold
 *  ct_comm_lock(), in which a group runs its passes. *nap_p: how long it may sleep until it looks
 *  again; INFINITY: until it is woken. CT_ERR_COMM, logged. */
ct_status ct_replicas_move(ct_replicas *r, double *nap_p);
/** CT_ERR_WATCHDOG, logged, where a replica has had a batch, or any order, for more than limit_s
 *  seconds. 0: no limit. */
ct_status ct_replicas_check(ct_replicas *r, double limit_s);

/* ---- other weights: from one thread that does not call MPI, one call after the other */

/** Every rank begins to open its files, in a thread beside its batches, and says the sum of its
 *  weights when ct_replicas_opened() asks. */
void ct_replicas_open(ct_replicas *r);
/** Waits for them. The status of the first that failed, logged with its words. CT_ERR_DATA, logged:
 *  the weights of one are not those of `checksum`. tell false: rank 0 has failed itself, and said
 *  why. Nothing is logged, and sums are not compared. */
ct_status ct_replicas_opened(ct_replicas *r, uint64_t checksum, bool tell);
/** They go over to what they opened, or close it. While no batch runs; sequences go on. */
ct_status ct_replicas_take(ct_replicas *r, bool use);

/** Ends what the others do, and returns once all have heard it. No thread asks them any more.
 *  From the thread that calls MPI. CT_ERR_WATCHDOG, logged, as ct_replicas_check(). */
ct_status ct_replicas_end(ct_replicas *r, double limit_s);

/* ---- the other ranks */

/** Errors are logged. */
typedef struct ct_replica_weights {
    void *ctx;
    /** Makes the net, then reads its files, beside batches: as ct_replicas_open(), from a thread of
     *  its own. Ranks of a group make it while no pass of theirs runs. */
    ct_status (*make)(void *ctx);
    ct_status (*load)(void *ctx, uint64_t *checksum_p);
    void (*take)(void *ctx, bool use);
} ct_replica_weights;

/** Does what rank 0 says, until it says the end. */
ct_status ct_replicas_obey(ct_comm *c, const ct_served_model *model, const ct_replica_weights *w);

#endif
