/** @file exchange_open.h  The exchange of gradients that a job's config asks for.
 */
#ifndef CT_EXCHANGE_OPEN_H
#define CT_EXCHANGE_OPEN_H

#include "framework/net/net.h"
#include "framework/exchange/exchange.h"
#include "runtime/job.h"
#include "runtime/call.h"

typedef struct ct_exchange_open {
    ct_job *job;                      /* borrowed; connected                    */
    const Ct__SolverParameter *param; /* borrowed: comm, compression            */
    ct_trace_file *trace;             /* borrowed; NULL or empty: none           */
    ct_exchange exchange;             /* where is_mpi: what close releases       */
    bool is_mpi;
    struct ct_exchange_device *device; /* where gradients are summed on the device; else NULL */
    struct ct_exchange_switch *either; /* where they may be compressed or not; else NULL      */
} ct_exchange_open;

/** Fits ct_solver_options.open_exchange: ctx is a ct_exchange_open. Over comm/ in a job of several
 *  ranks, the identity in a job of one. The watchdog learns whom to ask. Collective. */
ct_status ct_exchange_open_net(void *ctx, ct_net *net, ct_exchange *out);
/** After the solver is gone. Collective. */
void ct_exchange_open_close(ct_exchange_open *open);

#endif
