/** @file exchange_mpi.h  The exchange of gradients over comm/.
 */
#ifndef CT_EXCHANGE_MPI_H
#define CT_EXCHANGE_MPI_H

#include "comm/core/comm.h"
#include "framework/base/text.h"
#include "framework/base/trace.h"
#include "framework/net/net.h"
#include "framework/proto/cortado.pb-c.h"
#include "framework/exchange/exchange.h"

/** Exchanges the gradients of net's learned parameters as param's `comm` and `compression` say.
 *  Borrows comm and net; out->ctx is released with ct_exchange_mpi_close(). Works at one rank too:
 *  nothing travels, but codecs act. Fastest where the net's gradient arena came from
 *  ct_exchange_mpi_arena(). dense_elsewhere: steps of which ct_exchange_mpi_skips() go another way.
 *  Collective. CT_ERR_CONFIG. */
ct_status ct_exchange_mpi_open(ct_comm *comm, const Ct__SolverParameter *param, ct_net *net,
                               bool dense_elsewhere, ct_exchange *out);
/** After begin: nothing is compressed in this step. If so it is over for this exchange. */
bool ct_exchange_mpi_skips(void *ctx);
/** Where the net's gradient arena lies best for param's allreduce: in memory that ranks share, or
 * in plain memory, which other algorithms read faster. */
const ct_arena_ops *ct_exchange_mpi_arena(ct_comm *comm, const Ct__SolverParameter *param);
/** Records the buckets under way in t, from the next step on. ctx: that of the exchange. */
ct_status ct_exchange_mpi_trace(void *ctx, ct_trace *t);
/** What compression did on this rank: ct_grad_pipe_coding_json(). ctx: that of the exchange. */
void ct_exchange_mpi_coding(void *ctx, ct_text *out);
/** Of a net whose gradients lie on a device: what brings them to the exchange, which works on the
 * host; NULL: not needed. ctx: that of the exchange. */
struct ct_exchange_staged *ct_exchange_mpi_staged(void *ctx);
/** Before comm and net go. Collective. */
void ct_exchange_mpi_close(ct_exchange *exchange);
/** What the exchange waits for. ctx: that of the exchange; from any thread, until it is closed. */
void ct_exchange_mpi_describe(void *ctx, char *text, size_t size);

#endif
