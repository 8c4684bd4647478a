#include "framework/tools/exchange_config.h"

#include <math.h>

static ct_status codec_name(const Ct__CompressionParameter *p, const char **name_p)
{
    switch (p->type) {
    case CT__COMPRESSION_PARAMETER__TYPE__NONE:
        *name_p = "none";
        return CT_OK;
    case CT__COMPRESSION_PARAMETER__TYPE__BF16:
        *name_p = "bf16";
        return CT_OK;
    case CT__COMPRESSION_PARAMETER__TYPE__TOPK:
        *name_p = "topk";
        return CT_OK;
    default:
        return CT_FAIL(CT_ERR_CONFIG, "compression { type: %d }: no such type", (int)p->type);
    }
}

ct_status ct_exchange_read_config(const Ct__SolverParameter *param, ct_grad_pipe_config *config)
{
    const Ct__CommParameter none = CT__COMM_PARAMETER__INIT;
    const Ct__CompressionParameter plain = CT__COMPRESSION_PARAMETER__INIT;
    const Ct__CommParameter *comm = (param->comm != NULL) ? param->comm : &none;
    const Ct__CompressionParameter *c = (param->compression != NULL) ? param->compression : &plain;
    double bytes = ldexp((double)comm->bucket_mb, 20);
    const char *name = NULL;

    if (!(bytes >= 1) || (bytes > ldexp(1, 40)))
        return CT_FAIL(CT_ERR_CONFIG, "comm { bucket_mb: %g }: expected a size in MiB, up to 2^20",
                       (double)comm->bucket_mb);
    config->bucket_bytes = (int64_t)bytes;
    config->allreduce = comm->allreduce;
    config->overlap = (comm->overlap != 0);
    config->reproducible = (param->reproducible_sum != 0);
    config->deterministic = (param->deterministic != 0);
    CT_TRY(codec_name(c, &name));
    CT_TRY(ct_codec_find(name, &config->codec));
    config->codec_config = (ct_codec_config){ .density = c->density,
                                              .min_bytes = c->min_bytes,
                                              .warmup_iterations = c->warmup_iter };
    return CT_OK;
}
