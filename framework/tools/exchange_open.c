#include "framework/tools/exchange_open.h"

#include "framework/tools/exchange_config.h"
#include "framework/tools/exchange_mpi.h"
#include "framework/tools/exchange_staged.h"

static bool codes(const Ct__CompressionParameter *c)
{
    return (c != NULL) &&
           ((c->type != CT__COMPRESSION_PARAMETER__TYPE__NONE) || (c->local_clip > 0));
}

static bool is_coded(const Ct__SolverParameter *p, const ct_net *net)
{
    bool any = codes(p->compression);

    for (int i = 0; i < net->n_param; i++) any = any || codes(net->param[i].compress);
    return any;
}

ct_status ct_exchange_open_net(void *ctx, ct_net *net, ct_exchange *out)
{
    ct_exchange_open *open = ctx;

    if ((open->job->size == 1) && !is_coded(open->param, net)) {
        ct_grad_pipe_config unused;

        /* a job of one rank is as strict as one of more */
        CT_TRY(ct_exchange_read_config(open->param, &unused));
        ct_exchange_single(net->n_param, out);
        return ct_trace_file_reserve(open->trace, net, open->param, 0);
    }
    CT_TRY(ct_exchange_mpi_open(open->job->comm, open->param, net, &open->exchange));
    open->is_mpi = true;
    CT_TRY(ct_trace_file_reserve(open->trace, net, open->param, open->exchange.n_trial));
    if (open->trace != NULL) CT_TRY(ct_exchange_mpi_trace(open->exchange.ctx, open->trace->trace));
    *out = open->exchange;
    if (ct_exchange_mpi_staged(open->exchange.ctx) != NULL)
        ct_exchange_staged_wrap(ct_exchange_mpi_staged(open->exchange.ctx), &open->exchange, out);
    ct_watchdog_watch(open->job->watchdog, ct_exchange_mpi_describe, open->exchange.ctx);
    return CT_OK;
}

void ct_exchange_open_close(ct_exchange_open *open)
{
    ct_watchdog_watch(open->job->watchdog, NULL, NULL);
    if (open->is_mpi) ct_exchange_mpi_close(&open->exchange);
    open->is_mpi = false;
}
