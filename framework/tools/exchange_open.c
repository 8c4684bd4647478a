#include "framework/tools/exchange_open.h"

#include <stdlib.h>

#include "framework/tools/exchange_mpi.h"

/* One rank without compression exchanges nothing; with it, codecs act as they do among many. */
static bool needs_comm(const ct_exchange_open *open)
{
    const Ct__CompressionParameter *c = open->param->compression;

    return (open->job->size > 1) ||
           ((c != NULL) && (c->type != CT__COMPRESSION_PARAMETER__TYPE__NONE));
}

ct_status ct_exchange_open_net(void *ctx, ct_net *net, ct_exchange *out)
{
    ct_exchange_open *open = ctx;
    ct_exchange *kept = NULL;
    ct_status status = CT_OK;

    if (!needs_comm(open)) {
        ct_exchange_single(net->n_param, out);
        return CT_OK;
    }
    kept = malloc(sizeof(*kept));
    if (kept == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for an exchange");
    status = ct_exchange_mpi_open(open->job->comm, open->param, net, kept);
    if (status != CT_OK) {
        free(kept);
        return status;
    }
    open->mpi = kept;
    *out = *kept;
    if (open->job->watchdog != NULL)
        ct_watchdog_watch(open->job->watchdog, ct_exchange_mpi_describe, kept->ctx);
    return CT_OK;
}

void ct_exchange_open_close(ct_exchange_open *open)
{
    if (open->mpi == NULL) return;
    if (open->job->watchdog != NULL) ct_watchdog_watch(open->job->watchdog, NULL, NULL);
    ct_exchange_mpi_close(open->mpi);
    free(open->mpi);
    open->mpi = NULL;
}
