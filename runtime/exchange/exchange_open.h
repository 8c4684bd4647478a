/** @file exchange_open.h  The exchange of gradients that a job's config asks for.
 */
#ifndef CT_EXCHANGE_OPEN_H
#define CT_EXCHANGE_OPEN_H

#include "framework/exchange/exchange.h"
#include "framework/net/net.h"
#include "runtime/job.h"
#include "runtime/trace_file.h"

typedef struct ct_exchange_open {
    ct_job *job;                      /* borrowed; connected                     */
    const Ct__SolverParameter *param; /* borrowed: comm, compression             */
    ct_trace_file *trace;             /* borrowed; NULL or empty: none           */
    struct ct_exchange_mpi *mpi;      /* what close releases; NULL: one rank     */
} ct_exchange_open;

/** Fits ct_solver_options.open_exchange: ctx is a ct_exchange_open. Over comm/ in a job of several
 *  ranks, the identity in a job of one. The watchdog learns whom to ask. Collective. */
ct_status ct_exchange_open_net(void *ctx, ct_net *net, ct_exchange *out);
/** After the solver is gone. Collective. */
void ct_exchange_open_close(ct_exchange_open *open);

#endif
