/** @file exchange_divided.h  The exchange of a rank in a net that is divided among ranks: two, each
 * of some of the parameters. Weights of layers that work on samples of the rank's own are summed
 * over the ranks of the stage (ct_param.own_samples); the others over those that have the same part
 * of every replica.
 */
#ifndef CT_EXCHANGE_DIVIDED_H
#define CT_EXCHANGE_DIVIDED_H

#include "runtime/exchange/exchange_mpi.h"

typedef struct ct_exchange_divided ct_exchange_divided;

/** Borrows what it is given. out->data is the group of `replicas`, out->stage that of `stage`;
 *  out->job is the caller's to set. Collective over both. CT_ERR_CONFIG. */
ct_status ct_exchange_divided_create(ct_comm *stage, ct_comm *replicas,
                                     const Ct__SolverParameter *param, const ct_net *net,
                                     ct_exchange_divided **x_p, ct_exchange *out);
void ct_exchange_divided_destroy(ct_exchange_divided *x); /* NULL allowed; collective */
/** For the watchdog: what it waits for. From any thread. */
void ct_exchange_divided_describe(void *ctx, char *text, size_t size);

#endif
