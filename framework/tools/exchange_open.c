#include "framework/tools/exchange_open.h"

ct_status ct_exchange_open_net(void *ctx, ct_net *net, ct_exchange *out)
{
    ct_exchange_open *open = ctx;

    if (open->job->size > 1) {
        return CT_FAIL(CT_ERR_CONFIG, "more than one rank: no exchange is built in yet");
    }
    ct_exchange_single(net->n_param, out);
    return CT_OK;
}

void ct_exchange_open_close(ct_exchange_open *open)
{
    open->mpi = NULL;
}
