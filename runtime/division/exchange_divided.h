/** @file exchange_divided.h  The exchange of a rank in a net that is divided among ranks: several,
 * each of some of the parameters. Weights of layers that work on samples of the rank's own are
 * summed over the ranks of the stage (ct_param.own_samples). Those of the first and the last stage
 * are summed over both (tied). The others are summed over the ranks that have the same part of
 * every replica. On devices their library sums, as without a division (ct_exchange_pick_sum()); but
 * not what is tied.
 */
#ifndef CT_EXCHANGE_DIVIDED_H
#define CT_EXCHANGE_DIVIDED_H

#include "framework/tensor/storage_shard.h"
#include "runtime/config/exchange_config.h"
#include "runtime/exchange/exchange_mpi.h"

typedef struct ct_exchange_divided ct_exchange_divided;

typedef struct ct_exchange_groups {
    ct_comm *stage;    /* the ranks of the stage                                             */
    ct_comm *tied;     /* those that have its tied parameters (ct_param.tied); NULL: nobody  */
    ct_comm *replicas; /* of the stage, those with the same part of their replicas           */
    bool shares_gpu;   /* another rank of this host computes on the same one                 */
    ct_trace *trace;   /* where buckets show; NULL: nowhere                                  */
} ct_exchange_groups;

/** Gradients and weights of such a net in a window, each chunk of one of the groups
 *  (ct_net_options.window). */
typedef struct ct_divided_window {
    ct_exchange_window of;
    ct_exchange_groups groups;
    const Ct__SolverParameter *param;
} ct_divided_window;

/** NULL: each has memory of its own. Weights in shards that the first and the last stage share stay
 *  whole: the stages read them at times of their own, and could not bring them together. Where a
 * step has several micro-batches, which run forward and backward in turns, gradients stay whole
 * until the last. Borrows the communicators. */
const ct_net_window *ct_exchange_divided_window(ct_divided_window *w,
                                                const ct_exchange_groups *groups, ct_comm *job,
                                                const ct_device *dev, int n_micro,
                                                const Ct__SolverParameter *param);

/** What this rank has of shards: floats of net's arena. Collective over the groups. */
ct_status ct_exchange_divided_shard(const ct_exchange_groups *groups,
                                    const Ct__SolverParameter *param, const ct_net *net,
                                    ct_shard *s);

/** Adds the bytes of buffers for messages of its gradients (ct_grad_pipe_count()). Collective over
 *  the groups. */
ct_status ct_exchange_divided_count(const ct_exchange_groups *groups,
                                    const Ct__SolverParameter *param, const ct_net *net,
                                    int64_t *bytes_p);
/** Borrows the communicators, which become out->stage, tied and data; out->job is the caller's to
 *  set. Collective over all of them. CT_ERR_CONFIG. */
ct_status ct_exchange_divided_create(const ct_exchange_groups *groups,
                                     const Ct__SolverParameter *param, const ct_net *net,
                                     ct_exchange_divided **x_p, ct_exchange *out);
void ct_exchange_divided_destroy(ct_exchange_divided *x); /* NULL allowed; collective */
/** For the watchdog: what it waits for. From any thread. */
void ct_exchange_divided_describe(void *ctx, char *text, size_t size);

#endif
