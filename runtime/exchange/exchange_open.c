#include "runtime/exchange/exchange_open.h"

#include "comm/collective/blocking.h"
#include "comm/collective/sum_mpi.h"
#include "runtime/config/exchange_config.h"
#include "runtime/exchange/exchange_device.h"
#include "runtime/exchange/exchange_mpi.h"
#include "runtime/exchange/exchange_staged.h"
#include "runtime/exchange/exchange_switch.h"

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

static ct_status open_device(ct_exchange_open *open, const ct_net *net,
                             const ct_device_sum_ops *ops, ct_exchange *out)
{
    double mb = (open->param->comm != NULL) ? (double)open->param->comm->bucket_mb : 0.0;

    CT_TRY(
        ct_exchange_device_create(net, ops, &open->exchange, (int64_t)(mb * 1e6), &open->device));
    ct_exchange_device_wrap(open->device, out);
    return CT_OK;
}

/* *out: what compresses; ops NULL: one rank, which has nothing to add up. */
static ct_status open_switch(ct_exchange_open *open, const ct_net *net,
                             const ct_device_sum_ops *ops, ct_exchange *out)
{
    ct_exchange dense;

    ct_exchange_single(net->n_param, &dense);
    if (ops != NULL) CT_TRY(open_device(open, net, ops, &dense));
    CT_TRY(ct_exchange_switch_create(out, &dense, ct_exchange_mpi_skips, open->exchange.ctx,
                                     (ops != NULL) ? ops->name : NULL, &open->either));
    ct_exchange_switch_wrap(open->either, out);
    return CT_OK;
}

static ct_status open_coded(ct_exchange_open *open, ct_net *net, bool dense_elsewhere,
                            ct_exchange *out)
{
    ct_exchange_staged *staged;

    CT_TRY(
        ct_exchange_mpi_open(open->job->comm, open->param, net, dense_elsewhere, &open->exchange));
    open->is_mpi = true;
    CT_TRY(ct_trace_file_reserve(open->trace, net, open->param, open->exchange.n_trial));
    if (open->trace != NULL) CT_TRY(ct_exchange_mpi_trace(open->exchange.ctx, open->trace->trace));
    staged = ct_exchange_mpi_staged(open->exchange.ctx);
    *out = open->exchange;
    if (staged != NULL) ct_exchange_staged_wrap(staged, &open->exchange, out);
    return CT_OK;
}

/* For the watchdog, from its thread: who has the gradients now. */
static void describe(void *ctx, char *text, size_t size)
{
    const ct_exchange_open *open = ctx;
    bool there = (open->device != NULL) &&
                 ((open->either == NULL) || ct_exchange_switch_is_dense(open->either));

    if (there)
        ct_exchange_device_describe(open->device, text, size);
    else
        ct_exchange_mpi_describe(open->exchange.ctx, text, size);
}

ct_status ct_exchange_open_net(void *ctx, ct_net *net, ct_exchange *out)
{
    ct_exchange_open *open = ctx;
    const ct_device_sum_ops *ops = NULL;
    bool may = may_be_dense(open->param, net), alone = (open->job->size == 1);

    if (alone && !is_coded(open->param, net)) {
        ct_grad_pipe_config unused;

        /* a job of one rank is as strict as one of more */
        CT_TRY(ct_exchange_read_config(open->param, &unused));
        ct_exchange_single(net->n_param, out);
        return ct_trace_file_reserve(open->trace, net, open->param, 0);
    }
    if (!(alone && may)) CT_TRY(pick_device_sum(open, net, &ops));
    CT_TRY(open_coded(open, net, may && (alone || (ops != NULL)), out));
    if (may && (alone || (ops != NULL))) {
        CT_TRY(open_switch(open, net, ops, out));
    } else if (ops != NULL) {
        CT_TRY(open_device(open, net, ops, out));
        CT_INFO("gradients are added up on the GPUs, by %s", ops->name);
    }
    ct_watchdog_watch(open->job->watchdog, describe, open);
    return CT_OK;
}

void ct_exchange_open_close(ct_exchange_open *open)
{
    ct_watchdog_watch(open->job->watchdog, NULL, NULL);
    ct_exchange_switch_destroy(open->either);
    ct_exchange_device_destroy(open->device);
    open->either = NULL;
    open->device = NULL;
    if (open->is_mpi) ct_exchange_mpi_close(&open->exchange);
    open->is_mpi = false;
}
