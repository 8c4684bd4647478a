/* Which normalisations devices have: ours last, which runs everything. And such passes on made-up
 * data, for choosing by timing. */
#include "layers/engine/batch_norm/device_norm.h"

#include <stdio.h>

const ct_device_norm_impl *const ct_device_norm_forward_table[] = {
#ifdef CT_HAVE_CUDNN
    &ct_device_norm_cudnn_forward, /* by name or plan */
#endif
#ifdef CT_HAVE_CUDA
    &ct_device_norm_cuda_forward,
#endif
    NULL,
};
const ct_device_norm_impl *const ct_device_norm_backward_table[] = {
#ifdef CT_HAVE_CUDNN
    &ct_device_norm_cudnn_backward, /* by name or plan */
#endif
#ifdef CT_HAVE_CUDA
    &ct_device_norm_cuda_backward,
#endif
    NULL,
};

void ct_device_norm_key(const ct_device_norm_desc *d, ct_run_kind kind, char *text, size_t size)
{
    bool forward = (kind == CT_RUN_FORWARD);

    snprintf(text, size, "batchnorm %s n%lld c%lld s%lld t%d%s%s%s%s%s%s dy%d%s%s gpu",
             forward ? "forward" : "backward_data", (long long)d->n, (long long)d->c,
             (long long)d->s, (int)d->dtype, d->last ? " last" : "", d->in_place ? " inplace" : "",
             d->fixed ? " fixed" : "", d->affine ? " affine" : "", d->add ? " add" : "",
             d->relu ? " relu" : "", forward ? 0 : d->n_dy, (!forward && d->by_top) ? " top" : "",
             (!forward && d->wants_g) ? " g" : "");
}

/* Room for a number each of f32, whatever the type. */
void ct_device_norm_scratch(const ct_device_norm_desc *d, ct_run_kind kind, void *block,
                            size_t *bytes_p, ct_device_norm_args *a)
{
    int64_t all = d->n * d->c * d->s;
    float *vector[8];
    ct_batch_norm_map m = { 0 };

    *a = (ct_device_norm_args){ .decay = 0.5f };
    m.x = ct_engine_scratch(block, bytes_p, all, false);
    m.y = d->in_place ? (float *)m.x : ct_engine_scratch(block, bytes_p, all, false);
    if (d->add) m.add = ct_engine_scratch(block, bytes_p, all, false);
    if (d->in_place && !d->fixed) m.normal = ct_engine_scratch(block, bytes_p, all, false);
    for (int i = 0; i < 8; i++) vector[i] = ct_engine_scratch(block, bytes_p, d->c, false);
    m.mean = a->mean = vector[0];
    m.inv_std = a->inv_std = vector[1];
    if (d->affine) m.scale = vector[2], m.bias = vector[3];
    m.relu = d->relu;
    a->moving_mean = vector[4], a->moving_var = vector[5], a->factor = vector[6];
    a->scale_diff = a->bias_diff = d->affine ? vector[7] : NULL;
    a->back = (ct_batch_norm_back){ .map = m, .n_dy = d->n_dy, .fixed = d->fixed };
    if (kind == CT_RUN_FORWARD) return;
    for (int i = 0; i < d->n_dy; i++) a->back.dy[i] = ct_engine_scratch(block, bytes_p, all, false);
    if (d->wants_g) a->back.g = ct_engine_scratch(block, bytes_p, all, false);
    if (d->wants_dx) a->back.dx = ct_engine_scratch(block, bytes_p, all, false);
    a->back.sum = (double *)ct_engine_scratch(block, bytes_p, 4 * d->c, false);
    a->back.dot = (a->back.sum != NULL) ? a->back.sum + d->c : NULL;
}
