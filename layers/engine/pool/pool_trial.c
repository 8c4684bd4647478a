/* Poolings on made-up data, for choosing engines by timing. */
#include "layers/engine/pool/pool_private.h"

#include <stdio.h>

void ct_pool_key(const ct_pool_desc *d, ct_run_kind kind, char *text, size_t size)
{
    snprintf(
        text, size,
        "pool %s %s p%lld %lldx%lld %lldx%lld k%lldx%lld s%lldx%lld p%lldx%lld b%d l%lld t%d%s",
        (kind == CT_RUN_FORWARD) ? "forward" : "backward_data",
        (d->method == CT_POOL_MAX) ? "max" : "ave", (long long)d->planes, (long long)d->h,
        (long long)d->w, (long long)d->oh, (long long)d->ow, (long long)d->kh, (long long)d->kw,
        (long long)d->sh, (long long)d->sw, (long long)d->ph, (long long)d->pw, d->block,
        (long long)d->last, (int)d->dtype,
        (d->device == CT_DEVICE_CPU) ? (d->bf16 ? " bf16" : "") : " gpu");
}

/* A mask is as large as y at most; what it holds, zeros or numbers of floats, any engine reads. */
void ct_pool_scratch(const ct_pool_desc *d, ct_run_kind kind, void *block, size_t *bytes_p,
                     ct_pool_args *a)
{
    bool forward = (kind == CT_RUN_FORWARD), fill = (d->device == CT_DEVICE_CPU);
    float *x = ct_engine_scratch(block, bytes_p, d->planes * d->h * d->w, fill && forward);
    float *y = ct_engine_scratch(block, bytes_p, d->planes * d->oh * d->ow, fill && !forward);
    float *mask = ct_engine_scratch(block, bytes_p, d->planes * d->oh * d->ow, false);

    *a = (ct_pool_args){ .mask = mask };
    if (forward) {
        a->x = x;
        a->y = y;
    } else {
        a->dy = y;
        a->dx = x;
    }
}
