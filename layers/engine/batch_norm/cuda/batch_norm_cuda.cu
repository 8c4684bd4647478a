/* BatchNorm with the tail that it runs, by kernels of our own: a pass for the statistics and one that
 * normalises; backward a pass for the sums and one for the gradients. */
#include "layers/engine/batch_norm/cuda/batch_norm.cuh"

static bool on_cuda(const ct_batch_norm_desc *d)
{
    return (d->device == CT_DEVICE_CUDA) && (d->block == 0);
}

extern const ct_batch_norm_engine ct_batch_norm_cuda;
const ct_batch_norm_engine ct_batch_norm_cuda = { "cuda", on_cuda, NULL, NULL, NULL };

static bool fits(const ct_device_norm_desc *d)
{
    return d->device == CT_DEVICE_CUDA;
}

/* What is normalised by, and the sums that decay. */
static ct_status find_statistics(ct_exec *ex, extent e, const ct_device_norm_desc *d,
                                 ct_device_norm_args a)
{
    double count = (double)(e.n * e.s), unbias = (count > 1.0) ? count / (count - 1.0) : 1.0;
    double eps = (double)d->eps;

    if (d->fixed)
        return ct_cuda_map(
            ex->stream, "batch statistics", e.c, KERNEL(int64_t c) {
                float scale = factor_of(a);

                a.mean[c] = a.moving_mean[c] * scale;
                a.inv_std[c] = (float)(1.0 / sqrt((double)(a.moving_var[c] * scale) + eps));
            });
    return statistics(
        ex, e, a.back.map.x, KERNEL(int64_t c, double m, double v) {
            a.mean[c] = (float)m;
            a.inv_std[c] = (float)(1.0 / sqrt((double)(float)v + eps));
            move_statistics(a, c, (float)m, (float)unbias * (float)v);
        });
}

static ct_status forward(const ct_device_norm_desc *d, ct_exec *ex, const ct_device_norm_args *a)
{
    extent e = extent_of(d);

    CT_TRY(find_statistics(ex, e, d, *a));
    return apply(ex, e, a->back.map);
}

static ct_status backward(const ct_device_norm_desc *d, ct_exec *ex, const ct_device_norm_args *a)
{
    return backward_all(ex, extent_of(d), a->back, d->by_top, { a->scale_diff, a->add_scale },
                        { a->bias_diff, a->add_bias });
}

const ct_device_norm_impl ct_device_norm_cuda_forward = { "cuda", fits, NULL, forward,
                                                          NULL,   CT_DEVICE_NORM_REMADE };
const ct_device_norm_impl ct_device_norm_cuda_backward = { "cuda", fits, NULL, backward,
                                                           NULL,   CT_DEVICE_NORM_OVER };
