#include "runtime/config/exchange_config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/autotune/autotune.h"
#include "comm/collective/blocking.h"
#include "comm/collective/coll.h"
#include "comm/collective/sum_mpi.h"
#include "framework/solver/where.h"

enum { MOST_TUNE = 10000 };

static ct_status progress_kind(const Ct__CommParameter *p, ct_progress_kind *kind_p)
{
    switch (p->progress) {
    case CT__COMM_PARAMETER__PROGRESS__AUTO:
        *kind_p = CT_PROGRESS_AUTO;
        return CT_OK;
    case CT__COMM_PARAMETER__PROGRESS__POLL:
        *kind_p = CT_PROGRESS_POLL;
        return CT_OK;
    case CT__COMM_PARAMETER__PROGRESS__THREAD:
        *kind_p = CT_PROGRESS_THREAD;
        return CT_OK;
    default:
        return CT_FAIL(CT_ERR_CONFIG, "comm { progress: %d }: no such kind", (int)p->progress);
    }
}

ct_status ct_comm_check(const Ct__SolverParameter *param, const struct ct_source_map *map)
{
    const ct_solver_text text = { param, map }, *t = &text;
    const Ct__CommParameter *comm = param->comm;
    double bytes = (comm != NULL) ? ldexp((double)comm->bucket_mb, 20) : 0;

    if (comm == NULL) return CT_OK;
    if ((!(bytes >= 1) && (bytes != 0)) || (bytes > ldexp(1, 40)))
        return CT_FAIL(
            CT_ERR_CONFIG,
            "%s: comm { bucket_mb: %g }: expected a size in MiB, up to 2^20, or 0: automatic",
            CT_SOLVER_AT(t, comm->bucket_mb), (double)comm->bucket_mb);
    if ((comm->tune_iterations < 0) || (comm->tune_iterations > MOST_TUNE))
        return CT_FAIL(CT_ERR_CONFIG, "%s: comm { tune_iterations: %d }: expected 0 to %d",
                       CT_SOLVER_AT(t, comm->tune_iterations), (int)comm->tune_iterations,
                       MOST_TUNE);
    return ct_coll_check_spec(comm->allreduce);
}

ct_status ct_exchange_read_config(const Ct__SolverParameter *param, ct_grad_pipe_config *config)
{
    const Ct__CommParameter none = CT__COMM_PARAMETER__INIT;
    const Ct__CommParameter *comm = (param->comm != NULL) ? param->comm : &none;

    CT_TRY(ct_comm_check(param, NULL));
    config->policy = &ct_autotune;
    config->bucket_bytes = (int64_t)ldexp((double)comm->bucket_mb, 20);
    config->allreduce = comm->allreduce;
    /* Caffe's name for it holds where ours is not given */
    config->overlap = comm->has_overlap ? (comm->overlap != 0) : (param->layer_wise_reduce != 0);
    config->reproducible = (param->reproducible_sum != 0);
    config->deterministic = (param->deterministic != 0);
    /* what was fastest this time may add in another order than what is next time */
    config->tune_iterations = param->deterministic ? 0 : comm->tune_iterations;
    CT_TRY(progress_kind(comm, &config->progress));
    config->momentum = param->momentum;
    config->nesterov = (param->type != NULL) && (strcmp(param->type, "Nesterov") == 0);
    return ct_codec_read_used(param->compression, "compression", &config->codec,
                              &config->codec_config);
}

ct_status ct_exchange_check_device(const ct_device *dev, const ct_grad_pipe_config *config,
                                   const ct_codec_ops *codec, const char *who)
{
    const char *name = dev->name;

    if (strcmp(codec->name, "none") == 0) return CT_OK;
    if (!codec->on_device)
        return CT_FAIL(
            CT_ERR_CONFIG,
            "%s: compression %s of gradients on device %s is not there yet; the others are, and "
            "solver_mode: CPU has all",
            who, codec->name, name);
    if (config->progress == CT_PROGRESS_THREAD)
        return CT_FAIL(CT_ERR_CONFIG,
                       "comm { progress: THREAD }: with compression on device %s the main thread "
                       "moves messages; take POLL or AUTO",
                       name);
    if ((config->allreduce != NULL) && (strcmp(config->allreduce, "impi") == 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: on device %s sums begin when a gradient has come down, in any order; "
                       "MPI's own allreduce wants one order: leave comm { allreduce: \"impi\" } "
                       "out, or take another",
                       who, name);
    return CT_OK;
}

/* The pipe's ranges: the learned parameters, which the net puts first. The layer that backward
 * finishes first is the one that the loss reads. */
static ct_status list_ranges(const Ct__SolverParameter *s, const ct_net *net, ct_grad_range *range,
                             ct_codec_config *own, int *n_p)
{
    for (int i = 0; i < net->n_param; ++i) {
        const ct_param *p = &net->param[i];

        if (!p->learns) continue;
        if (i != *n_p)
            return CT_FAIL(CT_ERR_ARG, "parameter %s learns, but stands after one that does not",
                           p->key);
        range[i] = (ct_grad_range){ .key = p->key,
                                    .offset = p->offset,
                                    .count = p->count,
                                    .rows = ct_param_rows(p),
                                    .weight = ct_blob_data(&p->blob),
                                    .decay = s->weight_decay * p->decay_mult,
                                    .rate_mult = p->lr_mult,
                                    .output = (strcmp(p->layer, net->param[0].layer) == 0) };
        if (p->compress != NULL) {
            CT_TRY(ct_codec_read_own(s, p->compress, p->key, &range[i].codec, &own[i]));
            CT_TRY(ct_codec_check_solver(s, p->key, range[i].codec, &own[i]));
            range[i].codec_config = &own[i];
        }
        *n_p += 1;
    }
    return CT_OK;
}

/* The pipe learns where gradients lie; those that travel dense it sees on the host. */
static ct_status put_on_device(const ct_net *net, ct_grad_pipe_config *config, ct_grad_range *range,
                               int n)
{
    bool coded = false;

    CT_TRY(ct_exchange_check_device(net->options.dev, config, config->codec, "compression"));
    for (int i = 0; i < n; ++i) {
        const ct_codec_config *c = NULL;
        const ct_codec_ops *codec = ct_grad_range_codec(config, &range[i], &c);

        CT_TRY(ct_exchange_check_device(net->options.dev, config, codec, range[i].key));
        coded = coded || (strcmp(codec->name, "none") != 0);
        range[i].on_device = ct_blob_diff(&net->param[i].blob);
    }
    config->dev = net->options.dev;
    if (coded) config->progress = CT_PROGRESS_POLL;
    return CT_OK;
}

ct_status ct_exchange_read_ranges(const Ct__SolverParameter *param, const ct_net *net,
                                  ct_grad_pipe_config *config, ct_grad_range **range_p,
                                  ct_codec_config **own_p, int *n_p)
{
    bool on_device = (net->options.dev != NULL) && (net->options.dev->kind != CT_DEVICE_CPU);
    ct_grad_range *range = calloc((size_t)net->n_param + 1, sizeof(*range));
    ct_codec_config *own = calloc((size_t)net->n_param + 1, sizeof(*own));
    ct_status status = CT_OK;
    int n = 0;

    if ((range == NULL) || (own == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for an exchange");
    if (status == CT_OK) status = list_ranges(param, net, range, own, &n);
    if ((status == CT_OK) && on_device) status = put_on_device(net, config, range, n);
    if (status != CT_OK) {
        free(range);
        free(own);
        return status;
    }
    *range_p = range;
    *own_p = own;
    *n_p = n;
    return CT_OK;
}

const ct_arena_ops *ct_exchange_arena(ct_comm *comm, const Ct__SolverParameter *param)
{
    const ct_arena_ops *shared = ct_comm_arena(comm);
    const char *name = (param->comm != NULL) ? param->comm->allreduce : "auto";
    const Ct__CompressionParameter *p = param->compression;

    if ((p != NULL) && (p->type != CT__COMPRESSION_PARAMETER__TYPE__NONE) &&
        (p->exchange == CT__COMPRESSION_PARAMETER__EXCHANGE__KIND__HIER))
        return shared; /* its nodes add gradients up where they are */
    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
        if (strcmp(name, (*at)->name) == 0) return (*at)->shares_memory ? shared : ct_arena_plain();
    }
    return shared; /* auto; a wrong name is found when the exchange opens */
}

/* ---- who sums */

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

bool ct_exchange_is_coded(const Ct__SolverParameter *p, const ct_net *net)
{
    return codes(p->compression) || any_of_its_own(net);
}

bool ct_exchange_may_be_dense(const Ct__SolverParameter *p, const ct_net *net)
{
    const Ct__CompressionParameter *c = p->compression;

    return (c != NULL) && (c->type == CT__COMPRESSION_PARAMETER__TYPE__AUTO) &&
           !(c->local_clip > 0) && !any_of_its_own(net) &&
           (net->options.dev->kind != CT_DEVICE_CPU);
}

/* What keeps them from adding up this job's gradients; NULL: nothing. NCCL is what is asked for
 * where nobody asked. */
static const char *against(const Ct__SolverParameter *p, const ct_net *net,
                           const ct_device_sum_ops *ops, bool shares_gpu, bool asked)
{
    bool is_mpi = (ops == &ct_device_sum_mpi);

    if (ops == NULL) return "this cortado was built without it, or computes on the CPU";
    if (net->options.dev->kind == CT_DEVICE_CPU) return "gradients are in the host's memory";
    if (!ops->there())
        return is_mpi ? "this MPI does not say that it takes a GPU's memory"
                      : "its library, libnccl.so.2, is not there";
    if (!is_mpi && shares_gpu) return "ranks share a GPU";
    if (ct_exchange_is_coded(p, net) && !ct_exchange_may_be_dense(p, net))
        return "gradients are compressed";
    if (p->reproducible_sum) return "reproducible_sum";
    return (p->deterministic && !asked) ? "deterministic" : NULL;
}

ct_status ct_exchange_pick_sum(const Ct__SolverParameter *param, const ct_net *net, ct_comm *c,
                               bool shares_gpu, const ct_device_sum_ops **ops_p)
{
    const Ct__CommParameter none = CT__COMM_PARAMETER__INIT;
    const Ct__CommParameter *comm = (param->comm != NULL) ? param->comm : &none;
    bool mpi = (comm->gpu_sum == CT__COMM_PARAMETER__GPU__SUM__MPI);
    const ct_device_sum_ops *ops = mpi ? &ct_device_sum_mpi : ct_device_sum_of(net->options.dev);
    bool asked = mpi || (comm->gpu_sum == CT__COMM_PARAMETER__GPU__SUM__NCCL);
    const char *why = against(param, net, ops, shares_gpu, asked);
    int64_t refusing = (why != NULL);

    *ops_p = NULL;
    if ((comm->gpu_sum == CT__COMM_PARAMETER__GPU__SUM__HOST) ||
        ((net->options.dev->kind == CT_DEVICE_CPU) && !asked))
        return CT_OK;
    CT_TRY(ct_comm_max(c, &refusing, 1));
    if (refusing == 0) *ops_p = ops;
    if ((refusing != 0) && asked)
        return (why != NULL) ? CT_FAIL(CT_ERR_CONFIG, "comm { gpu_sum: %s } on rank %d: %s",
                                       mpi ? "MPI" : "NCCL", c->rank, why)
                             : CT_ERR_CONFIG; /* the rank that cannot says why */
    if ((refusing != 0) && (why != NULL))
        CT_INFO("gradients are added up through the host: %s", why);
    return CT_OK;
}
