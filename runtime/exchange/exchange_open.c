#include "runtime/exchange/exchange_open.h"

#include "comm/collective/blocking.h"
#include "comm/collective/sum_mpi.h"
#include "runtime/config/exchange_config.h"
#include "runtime/exchange/exchange_mpi.h"

static bool codes(const Ct__CompressionParameter *c)
{
    return (c != NULL) &&
           ((c->type != CT__COMPRESSION_PARAMETER__TYPE__NONE) || (c->local_clip > 0));
}

static bool any_of_its_own(const ct_net *net)
{
    bool any = false;

    for (int i = 0; i < net->n_param; i++) any = any || codes(net->param[i].compress);
    return any;
}

static bool is_coded(const Ct__SolverParameter *p, const ct_net *net)
{
    return codes(p->compression) || any_of_its_own(net);
}

/* All gradients of a device may turn out to travel as they are. */
static bool may_be_dense(const Ct__SolverParameter *p, const ct_net *net)
{
    const Ct__CompressionParameter *c = p->compression;

    return (c != NULL) && (c->type == CT__COMPRESSION_PARAMETER__TYPE__AUTO) &&
           !(c->local_clip > 0) && !any_of_its_own(net) &&
           (net->options.dev->kind != CT_DEVICE_CPU);
}

/* What keeps them from adding up this job's gradients; NULL: nothing. NCCL is what is asked for
 * where nobody asked. */
static const char *against(const ct_exchange_open *open, const ct_net *net,
                           const ct_device_sum_ops *ops, bool asked)
{
    const Ct__SolverParameter *p = open->param;
    bool is_mpi = (ops == &ct_device_sum_mpi);

    if (ops == NULL) return "this cortado was built without it, or computes on the CPU";
    if (net->options.dev->kind == CT_DEVICE_CPU) return "gradients are in the host's memory";
    if (!ops->there())
        return is_mpi ? "this MPI does not say that it takes a GPU's memory"
                      : "its library, libnccl.so.2, is not there";
    if (!is_mpi && open->job->shares_gpu) return "ranks share a GPU";
    if (is_coded(p, net) && !may_be_dense(p, net)) return "gradients are compressed";
    if (p->reproducible_sum) return "reproducible_sum";
    return (p->deterministic && !asked) ? "deterministic" : NULL;
}

/* Every rank must be able to, or none does. *ops_p NULL: through the host. Collective. */
static ct_status pick_device_sum(const ct_exchange_open *open, const ct_net *net,
                                 const ct_device_sum_ops **ops_p)
{
    const Ct__CommParameter none = CT__COMM_PARAMETER__INIT;
    const Ct__CommParameter *comm = (open->param->comm != NULL) ? open->param->comm : &none;
    bool mpi = (comm->gpu_sum == CT__COMM_PARAMETER__GPU__SUM__MPI);
    const ct_device_sum_ops *ops = mpi ? &ct_device_sum_mpi : ct_device_sum_of(net->options.dev);
    bool asked = mpi || (comm->gpu_sum == CT__COMM_PARAMETER__GPU__SUM__NCCL);
    const char *why = against(open, net, ops, asked);
    int64_t refusing = (why != NULL);

    *ops_p = NULL;
    if ((comm->gpu_sum == CT__COMM_PARAMETER__GPU__SUM__HOST) ||
        ((net->options.dev->kind == CT_DEVICE_CPU) && !asked))
        return CT_OK;
    CT_TRY(ct_comm_max(open->job->comm, &refusing, 1));
    if (refusing == 0) *ops_p = ops;
    if ((refusing != 0) && asked)
        return (why != NULL) ? CT_FAIL(CT_ERR_CONFIG, "comm { gpu_sum: %s } on rank %d: %s",
                                       mpi ? "MPI" : "NCCL", open->job->rank, why)
                             : CT_ERR_CONFIG; /* the rank that cannot says why */
    if ((refusing != 0) && (why != NULL))
        CT_INFO("gradients are added up through the host: %s", why);
    return CT_OK;
}

/* For the watchdog, from its thread. */
static void describe(void *ctx, char *text, size_t size)
{
    ct_exchange_mpi_describe(((const ct_exchange_open *)ctx)->mpi, text, size);
}

ct_status ct_exchange_open_net(void *ctx, ct_net *net, ct_exchange *out)
{
    ct_exchange_open *open = ctx;
    const Ct__SolverParameter *param = open->param;
    const ct_device_sum_ops *lib = NULL;
    bool may = may_be_dense(param, net), alone = (open->job->size == 1), there = false;
    double mb = (param->comm != NULL) ? (double)param->comm->bucket_mb : 0.0;

    if (alone && !is_coded(param, net)) {
        ct_grad_pipe_config unused;

        /* a job of one rank is as strict as one of more */
        CT_TRY(ct_exchange_read_config(param, &unused));
        ct_exchange_single(net->n_param, out);
        return ct_trace_file_reserve(open->trace, net, param, 0);
    }
    if (!(alone && may)) CT_TRY(pick_device_sum(open, net, &lib));
    there = (alone && may) || (lib != NULL);
    CT_TRY(ct_exchange_mpi_create(open->job->comm, param, net, may && there, &open->mpi, out));
    CT_TRY(ct_trace_file_reserve(open->trace, net, param, out->sync.n_trial));
    if (open->trace != NULL) CT_TRY(ct_exchange_mpi_trace(open->mpi, open->trace->trace));
    if (there)
        CT_TRY(ct_exchange_mpi_on_device(open->mpi, net, lib, (int64_t)(mb * 1e6), !may, out));
    if (there && !may) CT_INFO("gradients are added up on the GPUs, by %s", lib->name);
    ct_watchdog_watch(open->job->watchdog, describe, open);
    return CT_OK;
}

void ct_exchange_open_close(ct_exchange_open *open)
{
    ct_watchdog_watch(open->job->watchdog, NULL, NULL);
    ct_exchange_mpi_destroy(open->mpi);
    open->mpi = NULL;
}
