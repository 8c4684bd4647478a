/* Convolutions on made-up data, for choosing engines by timing. */
#include "framework/base/bf16.h"
#include "layers/engine/conv/conv_private.h"

#include <stdio.h>

static const char *kind_of(bool bf16, bool last)
{
    return last ? "l" : bf16 ? "h" : "";
}

void ct_conv_key(const ct_conv_desc *d, ct_run_kind kind, char *text, size_t size)
{
    static const char *const pass[CT_N_RUN] = { "forward", "backward_data", "backward_weight" };
    static const char *const operand[] = { "", " tf32", " bf16", " f16" };
    bool host = (d->device == CT_DEVICE_CPU);
    int at;

    at = snprintf(
        text, size,
        "conv %s n%lld g%lld c%lld %lldx%lld m%lld %lldx%lld k%lldx%lld s%lldx%lld p%lldx%lld "
        "d%lldx%lld x%d%s y%d%s t%d%s%s",
        pass[kind], (long long)d->n, (long long)d->group, (long long)d->c, (long long)d->h,
        (long long)d->w, (long long)d->m, (long long)d->oh, (long long)d->ow, (long long)d->kh,
        (long long)d->kw, (long long)d->sh, (long long)d->sw, (long long)d->ph, (long long)d->pw,
        (long long)d->dh, (long long)d->dw, d->x_block, kind_of(d->x_bf16, d->x_last), d->y_block,
        kind_of(d->y_bf16, d->y_last), d->winograd,
        host ? (d->bf16 ? " bf16" : "") : operand[d->operand], host ? "" : " gpu");
    for (int i = 0; (i < d->n_front) && (at >= 0) && ((size_t)at < size); i++) {
        const ct_conv_axis *f = &d->front[i];

        at += snprintf(text + at, size - (size_t)at, " %lld>%lld k%lld s%lld p%lld d%lld",
                       (long long)f->in, (long long)f->out, (long long)f->kernel,
                       (long long)f->stride, (long long)f->pad, (long long)f->dilation);
    }
}

/* Floats of n images with c channels and s places, in blocks or not. */
static int64_t stored(int64_t n, int64_t c, int64_t s, int block)
{
    return n * s * ((block > 0) ? (c + block - 1) / block * block : c);
}

/* As ct_engine_scratch(), of bf16 numbers where they are such. */
static float *values(void *block, size_t *bytes_p, int64_t n, bool bf16, bool fill)
{
    float *v = ct_engine_scratch(block, bytes_p, bf16 ? (n + 1) / 2 : n, fill && !bf16);

    if ((v == NULL) || !fill || !bf16) return v;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        ct_num_put(v, true, i, (float)((int32_t)((uint32_t)i * 2654435761u) | 0x10000) * 0x1p-31f);
    return v;
}

void ct_conv_scratch(const ct_conv_desc *d, ct_run_kind kind, void *block, size_t *bytes_p,
                     ct_conv_args *a)
{
    int64_t n_x = stored(d->n, d->c, in_size(d), d->x_block);
    int64_t n_y = stored(d->n, d->m, out_size(d), d->y_block);
    int64_t n_w = d->m * group_k(d);
    bool forward = (kind == CT_RUN_FORWARD), data = (kind == CT_RUN_BACKWARD_DATA);
    bool fill = (d->device == CT_DEVICE_CPU); /* a device's memory comes as zeros, which do */
    float *x = values(block, bytes_p, n_x, d->x_bf16, fill && !data);
    float *y = values(block, bytes_p, n_y, d->y_bf16, fill && !forward);
    float *w = ct_engine_scratch(block, bytes_p, n_w, fill && (forward || data));

    *a = (ct_conv_args){ .work = NULL };
    if (forward) a->bias = ct_engine_scratch(block, bytes_p, d->m, fill);
    if (!data) a->x = x;
    if (data) a->dx = x;
    if (forward) a->y = y;
    if (!forward) a->dy = y;
    if (forward || data) a->weight = w;
    if (!forward && !data) a->dweight = w;
}
