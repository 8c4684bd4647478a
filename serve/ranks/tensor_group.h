/** @file tensor_group.h  A model whose passes several ranks run together: rank 0 is asked, and
 * hands each call on to the others, which make the same one.
 *
 * All calls that change what a rank knows go out in the order in which rank 0 made them: sequences
 * that begin, grow and end, passes, other weights. So tables of pages and shared beginnings are the
 * same on all ranks, and nothing but the calls travels. Calls that run nothing wait for the next
 * one that does; so there is one message a pass.
 *
 * A group may be a replica of another one (replicas.h): then its rank 0 obeys, and sequences lie in
 * the pages that it is told.
 *
 * Other weights: the ranks make another net between two passes, load it beside those that follow,
 * each in a thread of its own, and go over to it between two passes.
 *
 * Between passes the others sleep, longer and longer. Within one they meet where the net says.
 */
#ifndef CT_TENSOR_GROUP_H
#define CT_TENSOR_GROUP_H

#include "comm/core/comm.h"
#include "serve/api/model.h"
#include "serve/ranks/replicas.h"

typedef struct ct_group_leader ct_group_leader;

/** How the leader is made; c, own and what ctx point to are borrowed. */
typedef struct ct_group_leader_options {
    ct_comm *c;
    const ct_served_model *own; /* its part of the model                                      */
    ct_replica_weights weights; /* makes, loads and takes this rank's part of others; meets the
                                 * other ranks, but not on c, and fails on all of them where it
                                 * fails on one                                                */
    /** A pass or a message failed, so the ranks are no longer alike: it does not return. */
    void (*fail)(void *ctx, ct_status status);
    void *ctx;
} ct_group_leader_options;

/** On rank 0 of c. CT_ERR_NOMEM, logged. */
ct_status ct_group_leader_create(const ct_group_leader_options *o, ct_group_leader **l_p);
void ct_group_leader_destroy(ct_group_leader *l); /* NULL allowed */
/** To be asked as any model. Passes wait until ct_group_leader_begin(): until then the thread that
 *  created the leader may call MPI. */
const ct_served_model *ct_group_leader_model(const ct_group_leader *l);
/** From the thread that created it. */
void ct_group_leader_begin(ct_group_leader *l);
/** Other weights on all ranks, for one thread that asks one thing after the other: `load` follows
 *  each `make` that went well; passes wait during `make`; `take` while none runs. */
ct_replica_weights ct_group_leader_weights(ct_group_leader *l);
/** Ends what the others do. Nobody asks any more. CT_ERR_COMM. */
ct_status ct_group_leader_end(ct_group_leader *l);

/** The other ranks: does what rank 0 does, until the end. Any error, which is logged: this rank is
 *  no longer like the others. own: its part of the model. */
ct_status ct_group_follow(ct_comm *c, const ct_served_model *own, const ct_replica_weights *w);

#endif
