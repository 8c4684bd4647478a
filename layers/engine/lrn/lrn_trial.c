/* Normalisations on made-up data, for choosing engines by timing. */
#include "layers/engine/lrn/lrn_private.h"

#include <stdio.h>

void ct_lrn_key(const ct_lrn_desc *d, ct_run_kind kind, char *text, size_t size)
{
    snprintf(text, size, "lrn %s %s n%lld c%lld %lldx%lld s%lld b%g k%g B%d%s t%d%s%s",
             (kind == CT_RUN_FORWARD) ? "forward" : "backward_data",
             d->within ? "within" : "across", (long long)d->n, (long long)d->c, (long long)d->h,
             (long long)d->w, (long long)d->size, (double)d->beta, (double)d->k, d->block,
             d->last ? " last" : "", (int)d->dtype, d->kept ? " kept" : "",
             (d->device == CT_DEVICE_CPU) ? "" : " gpu");
}

void ct_lrn_scratch(const ct_lrn_desc *d, ct_run_kind kind, void *block, size_t *bytes_p,
                    ct_lrn_args *a)
{
    int64_t n = d->n * d->c * d->h * d->w;
    bool fill = (d->device == CT_DEVICE_CPU), forward = (kind == CT_RUN_FORWARD);
    float *x = ct_engine_scratch(block, bytes_p, n, fill);
    float *y = ct_engine_scratch(block, bytes_p, n, fill && !forward);
    float *scale = ct_engine_scratch(block, bytes_p, n, fill && !forward);
    float *dy = forward ? NULL : ct_engine_scratch(block, bytes_p, n, fill);
    float *dx = forward ? NULL : ct_engine_scratch(block, bytes_p, n, false);

    *a = (ct_lrn_args){ .x = x, .y = y, .scale = scale, .dy = dy, .dx = dx };
}
