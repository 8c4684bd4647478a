#include "framework/tools/exchange_config.h"

#include <math.h>

#include "comm/coll.h"

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

ct_status ct_exchange_read_config(const Ct__SolverParameter *param, ct_grad_pipe_config *config)
{
    const Ct__CommParameter none = CT__COMM_PARAMETER__INIT;
    const Ct__CommParameter *comm = (param->comm != NULL) ? param->comm : &none;
    double bytes = ldexp((double)comm->bucket_mb, 20);

    if ((!(bytes >= 1) && (bytes != 0)) || (bytes > ldexp(1, 40)))
        return CT_FAIL(
            CT_ERR_CONFIG,
            "comm { bucket_mb: %g }: expected a size in MiB, up to 2^20, or 0: automatic",
            (double)comm->bucket_mb);
    if ((comm->tune_iterations < 0) || (comm->tune_iterations > MOST_TUNE))
        return CT_FAIL(CT_ERR_CONFIG, "comm { tune_iterations: %d }: expected 0 to %d",
                       (int)comm->tune_iterations, MOST_TUNE);
    CT_TRY(ct_coll_check_spec(comm->allreduce));
    config->bucket_bytes = (int64_t)bytes;
    config->allreduce = comm->allreduce;
    /* Caffe's name for it holds where ours is not given */
    config->overlap = comm->has_overlap ? (comm->overlap != 0) : (param->layer_wise_reduce != 0);
    config->reproducible = (param->reproducible_sum != 0);
    config->deterministic = (param->deterministic != 0);
    /* what was fastest this time may add in another order than what is next time */
    config->tune_iterations = param->deterministic ? 0 : comm->tune_iterations;
    CT_TRY(progress_kind(comm, &config->progress));
    config->momentum = param->momentum;
    config->nesterov = false; /* the rules that there are: SGD */
    return ct_codec_read_config(param->compression, "compression", &config->codec,
                                &config->codec_config);
}
