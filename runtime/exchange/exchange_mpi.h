/** @file exchange_mpi.h  The solver's exchange over comm/.
 */
#ifndef CT_EXCHANGE_MPI_H
#define CT_EXCHANGE_MPI_H

#include "comm/core/comm.h"
#include "framework/base/text.h"
#include "framework/base/trace.h"
#include "framework/exchange/exchange.h"
#include "framework/net/net.h"
#include "framework/proto/cortado.pb-c.h"
#include "framework/tensor/device_sum.h"

typedef struct ct_exchange_mpi ct_exchange_mpi;

/** Exchanges the gradients of net's learned parameters as param's `comm` and `compression` say.
 *  Borrows comm and net. Works at one rank too: nothing travels, but codecs act. Gradients of a
 *  device meet on the host. Fastest where the net's gradient arena came from
 *  ct_exchange_arena(). dense_elsewhere: ct_exchange_mpi_on_device() follows, for steps in which
 *  nothing is compressed. Collective. CT_ERR_CONFIG. */
ct_status ct_exchange_mpi_create(ct_comm *comm, const Ct__SolverParameter *param, ct_net *net,
                                 bool dense_elsewhere, ct_exchange_mpi **x_p, ct_exchange *out);
/** Before the first step: gradients are summed where they are, on net's device, by this library;
 *  NULL: there is one rank. all: in every step; else in those in which nothing is compressed, as
 *  `compression { type: AUTO }` may find when a run begins or after trials: through the host, where
 *  codecs meet, they would cost more. Which has a step is decided when it begins, alike on all
 *  ranks. Sums of other numbers on the device are the library's in all steps. Collective. */
ct_status ct_exchange_mpi_on_device(ct_exchange_mpi *x, const ct_net *net,
                                    const ct_device_sum_ops *lib, int64_t bucket_bytes, bool all,
                                    ct_exchange *out);
/** Records the buckets under way in t, from the next step on. */
ct_status ct_exchange_mpi_trace(ct_exchange_mpi *x, ct_trace *t);
/** What compression did on this rank: ct_grad_pipe_coding_json(). */
void ct_exchange_mpi_coding(const ct_exchange_mpi *x, ct_text *out);
/** What the exchange waits for. From any thread, until it is destroyed. */
void ct_exchange_mpi_describe(const ct_exchange_mpi *x, char *text, size_t size);
/** NULL allowed. Before comm and net go. Collective. */
void ct_exchange_mpi_destroy(ct_exchange_mpi *x);

#endif
