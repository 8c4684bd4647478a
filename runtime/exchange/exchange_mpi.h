/** @file exchange_mpi.h  The solver's exchange over comm/, and the one that a job's config asks
 * for.
 */
#ifndef CT_EXCHANGE_MPI_H
#define CT_EXCHANGE_MPI_H

#include "comm/sync/grad_pipe.h"
#include "framework/exchange/exchange.h"
#include "framework/net/net.h"
#include "framework/tensor/device.h"
#include "runtime/job.h"
#include "runtime/call.h"

typedef struct ct_exchange_mpi ct_exchange_mpi;

/** Exchanges the gradients of net's learned parameters as param's `comm` and `compression` say.
 *  out->data and out->job are the group of comm's ranks. Borrows comm, net and trace, or NULL. At
 *  one rank nothing travels, but codecs act. Gradients of a device meet on the host. Fastest where
 *  net's arena is ct_exchange_arena()'s. dense_elsewhere: ct_exchange_mpi_on_device() follows, for
 *  steps without compression. Collective. CT_ERR_CONFIG. */
ct_status ct_exchange_mpi_create(ct_comm *comm, const Ct__SolverParameter *param, ct_net *net,
                                 ct_trace *trace, bool dense_elsewhere, ct_exchange_mpi **x_p,
                                 ct_exchange *out);
/** Before the first step: gradients are summed where they are, on net's device, by this library.
 *  NULL: there is one rank. all: in every step. Else in those in which nothing is compressed, as
 *  `compression { type: AUTO }` may find when a run begins or after trials: through the host, where
 *  codecs meet, they would cost more. Which has a step is decided when it begins, alike on all
 *  ranks. Sums of other numbers on the device are the library's in all steps. Collective. */
ct_status ct_exchange_mpi_on_device(ct_exchange_mpi *x, const ct_net *net,
                                    const ct_device_sum_ops *lib, int64_t bucket_bytes, bool all,
                                    ct_exchange *out);
/** For the watchdog, of a ct_exchange_mpi: what it waits for. From any thread, until it ends. */
void ct_exchange_mpi_describe(void *ctx, char *text, size_t size);
/** NULL allowed. Before comm and net go. Collective. */
void ct_exchange_mpi_destroy(ct_exchange_mpi *x);

typedef struct ct_exchange_open {
    ct_job *job;   /* borrowed; connected                     */
    ct_comm *comm; /* those that share gradients, borrowed; NULL: the job's data group */
    const Ct__SolverParameter *param; /* borrowed: comm, compression             */
    ct_trace_file *trace;             /* borrowed; NULL or empty: none           */
    ct_exchange_mpi *mpi;             /* what close releases; NULL: one rank     */
    const ct_grad_pipe *pipe;         /* its buckets; likewise                   */
} ct_exchange_open;

/** Fits ct_solver_options.open_exchange: ctx is a ct_exchange_open. Over comm/ in a job of several
 *  ranks, the identity in a job of one. The watchdog learns whom to ask. Collective. */
ct_status ct_exchange_open_net(void *ctx, ct_net *net, ct_exchange *out);
/** After the solver is gone. Collective. */
void ct_exchange_open_close(ct_exchange_open *open);
/** ct_grad_pipe_abandon(), where there is one. */
void ct_exchange_mpi_abandon(ct_exchange_mpi *x);

#endif
