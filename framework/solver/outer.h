/** @file outer.h  Local steps: groups of ranks train by themselves, and meet every local_iter
 * iterations (`outer` of the solver).
 *
 * The ranks of a group share gradients, as all ranks do without `outer`. All groups begin with the
 * same weights. When they meet, the mean of what each group's weights have moved by is the gradient
 * of an outer optimiser, and its result is where all groups go on from (DiLoCo: Douillard et al.
 * 2023, algorithm 1):
 *
 *     d = sum over the groups of (share of the samples) (weights - weights of the group)
 *     SGD       weights = weights - lr d
 *     NESTEROV  m = momentum m + d;  weights = weights - lr (d + momentum m)
 *
 * With delay 1 a group goes on while its difference is on its way. It lands one meeting later, and
 * the group then goes on from the new weights less what it has moved by since:
 *
 *     own = start - weights of the group;  weights as above, of the last meeting's own
 *     start = weights - own;  own leaves
 *
 * Each rank of a group has the last exchanged weights and the outer momentum of some parameters
 * alone. Of these the ranks with the same place in their groups exchange the differences, by an
 * exchange like that of gradients. Then the ranks of each group tell each other the new weights.
 */
#ifndef CT_OUTER_H
#define CT_OUTER_H

#include "framework/exchange/exchange.h"
#include "framework/net/net.h"
#include "framework/snapshot/snapshot.h"
#include "framework/solver/train_step.h"

/** The groups, as a job knows them. */
typedef struct ct_outer_ranks {
    ct_group inner; /* those that this rank trains with */
    int n_group;
    /** Sums the gradient arena of part, a net's view with some of its parameters, over the ranks
     *  with this rank's place in their groups. Collective. */
    ct_status (*open)(void *ctx, ct_net *part, ct_exchange *out);
    /** Ends it, while part is there; also where open failed, or never came. Collective. */
    void (*close)(void *ctx);
    void *ctx;
} ct_outer_ranks;

typedef struct ct_outer ct_outer;

/** What `outer` may say. CT_ERR_CONFIG. */
ct_status ct_outer_check(const ct_solver_text *t);
/** For the net that trains, whose weights lie in the host's memory. net->batch_summed becomes the
 *  group's part of the batch. ranks and net are borrowed. Collective. CT_ERR_CONFIG. */
ct_status ct_outer_create(const Ct__SolverParameter *param, const ct_outer_ranks *ranks,
                          ct_net *net, ct_outer **o_p);
void ct_outer_destroy(ct_outer *o); /* NULL allowed; before the net goes */
const ct_group *ct_outer_group(const ct_outer *o);
/** The net's weights, the same on all ranks, are the last exchanged ones from now on. */
void ct_outer_start(ct_outer *o);
/** The groups meet before this iteration. */
bool ct_outer_is_due(const ct_outer *o, int64_t iteration);
/** Before this iteration groups have weights of their own. */
bool ct_outer_is_apart(const ct_outer *o, int64_t iteration);
/** They meet; every gradient has landed. With delay 0 the net's weights are then those of all
 *  groups. Collective. */
ct_status ct_outer_meet(ct_outer *o, int64_t iteration);
/** What carries differences that are under way; NULL: none ever are while steps run. */
const ct_transport *ct_outer_under_way(const ct_outer *o);
/** What is under way lands; before o goes, too. Collective. */
ct_status ct_outer_land(ct_outer *o);
/** out[net->grad_count] = the last exchanged weights; what is under way lands first, which changes
 *  nothing that a group goes by. Collective. */
ct_status ct_outer_weights(ct_outer *o, float *out);

/* ---- sets of snapshots: outer_set.c
 *
 * The shared files of a set have the last exchanged weights, the means over all ranks of the update
 * rule's states, and the outer momentum. The file of a rank has what its group's weights and states
 * are, of the rank's own parameters. As many ranks in as many groups with the same delay take that
 * back. Others begin from the shared files, as all groups did when they last met.
 */

/** What a set holds in place of the solver's own arrays. */
typedef struct ct_outer_set {
    float *block[CT_MAX_HISTORY + 2];
    int n_block;
    ct_storage weights;
    ct_storage history[CT_MAX_HISTORY + 1];
    const char *name[CT_MAX_HISTORY + 1];
} ct_outer_set;

/** The states of the update rule, and what goes into files of ranks. step: borrowed. CT_ERR_CONFIG
 *  where states do not stay at one address. */
ct_status ct_outer_attach(ct_outer *o, ct_train_step *step, ct_sync_states *states);
/** For ct_snapshot_write(): state, filled in otherwise, is that of the set. data: all ranks. apart:
 *  groups have weights of their own. Collective. */
ct_status ct_outer_set_write(ct_outer *o, const ct_group *data, bool apart, ct_outer_set *set,
                             ct_snapshot_state *state);
/** For ct_snapshot_read(). Collective. */
ct_status ct_outer_set_read(ct_outer *o, const ct_group *data, ct_outer_set *set,
                            ct_snapshot_state *state);
/** After it: the net, the rule's states and o are as the set has them. Collective. */
ct_status ct_outer_set_take(ct_outer *o, const ct_group *data, ct_outer_set *set);
void ct_outer_set_close(ct_outer_set *set); /* zeroed ones, too */

/** Bytes that this rank keeps for it. */
int64_t ct_outer_bytes(const ct_outer *o);
/** Bytes that this rank has sent to other groups. */
int64_t ct_outer_bytes_sent(const ct_outer *o);

/* ---- private to outer.c and outer_set.c */

struct ct_outer {
    const Ct__OuterParameter *param;
    const ct_outer_ranks *ranks;
    ct_net *net;
    float share;     /* of the global batch that the group has                                 */
    ct_net part;     /* the net, with this rank's parameters alone; its gradients are the
                        differences */
    int64_t from;    /* where these begin in the net's arena                                   */
    float *weights;  /* [part.grad_count] the last exchanged ones                              */
    float *momentum; /* [part.grad_count] of NESTEROV                                          */
    float *start;    /* [part.grad_count] with delay: where the group began since they met     */
    bool under_way;  /* differences are                                                        */
    ct_exchange across;
    ct_train_step *step; /* whose states sets have                                             */
    float groups;        /* of a set: how many groups, below 0 where they had just met         */
    float delay;         /* … and with what delay                                              */
    char name[64];       /* of the state that was last asked for                               */
};

/** The net's weights of this rank's part. */
static inline float *ct_outer_of_net(const ct_outer *o)
{
    return o->net->weight_arena + o->from;
}
/** out[net->grad_count] = what the ranks of the group have, each of its part. Collective over the
 *  group. */
ct_status ct_outer_gather(const ct_outer *o, const float *mine, float *out);

#endif
