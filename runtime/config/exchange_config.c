#include "runtime/config/exchange_config.h"

#include <math.h>
#include <string.h>

#include "comm/autotune/autotune.h"
#include "comm/collective/coll.h"
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
