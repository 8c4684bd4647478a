/** @file exchange.h  What the solver has of the other ranks: their group, what synchronises the
 *  gradients with theirs, and what that keeps for snapshots. runtime/exchange fills it.
 */
#ifndef CT_EXCHANGE_H
#define CT_EXCHANGE_H

#include "framework/exchange/grad_sync.h"
#include "framework/exchange/group.h"

typedef struct ct_exchange {
    ct_group group;
    ct_grad_sync sync;
    ct_sync_states states;
} ct_exchange;

/** One rank: every operation is the identity. The caller keeps *out, which has nothing to release
 *  and remembers nothing: finish reports all of n_param parameters as landed, wait those that it is
 *  asked for; a step uses one or the other. */
void ct_exchange_single(int n_param, ct_exchange *out);

#endif
