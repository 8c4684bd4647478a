/* BatchNorm: each channel less its mean, over its standard deviation; no scale and no shift, which
 * a Scale layer adds. The statistics blobs are sums that decay: mean and variance are blob 0 and 1
 * over blob 2. */
#include "layers/engine/batch_norm/batch_norm.h"
#include "layers/layer_types.h"
#include "layers/layer_util.h"

#include <math.h>

typedef struct batch_norm_state {
    bool use_global;
    float decay, eps;
} batch_norm_state;

typedef struct batch_norm_plan {
    ct_batch_norm_desc desc;
    const ct_batch_norm_engine *engine;
} batch_norm_plan;

enum { MEAN, VARIANCE, FACTOR, N_STATISTIC }; /* weights */
enum { BATCH_MEAN, INV_STD, NORMAL };         /* buffers */

static int64_t channels_of(const ct_shape *s)
{
    return (s->ndim > 1) ? s->dim[1] : 1;
}

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__BatchNormParameter *p = l->param->batch_norm_param;
    batch_norm_state *s = l->state;
    ct_shape channels = { 1, { channels_of(&bottom[0]) } }, one = { 1, { 1 } };

    s->use_global =
        ((p != NULL) && p->has_use_global_stats) ? p->use_global_stats : (l->phase == CT_TEST);
    s->decay = (p != NULL) ? p->moving_average_fraction : 0.999f;
    s->eps = (p != NULL) ? p->eps : 1e-5f;
    if (!(s->eps >= 0.0f) || isinf(s->eps))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "eps %g is not a small positive number",
                             (double)s->eps);
    if (!isfinite(s->decay))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "moving_average_fraction %g is no number",
                             (double)s->decay);
    for (int i = 0; i < N_STATISTIC; i++) {
        ct_weight_spec *w = ct_layer_add_weight(l, (i == FACTOR) ? &one : &channels, NULL);

        if ((i < (int)l->param->n_param) && (l->param->param[i]->lr_mult != 0.0f))
            return CT_LAYER_FAIL(
                l, CT_ERR_CONFIG,
                "param %d has lr_mult %g: statistics are not learned, it must be 0", i,
                (double)l->param->param[i]->lr_mult);
        w->kind = CT_WEIGHT_STATISTIC;
        w->default_lr_mult = 0.0f;
    }
    if (s->use_global || ct_layer_in_place(l)) l->backward_reads = 0;
    return CT_OK;
}

static bool takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    (void)p;
    return ct_layer_takes_block(bottom[slot]);
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const batch_norm_state *s = l->state;
    batch_norm_plan *plan = in->state;
    const ct_blob *x = in->bottom[0];
    ct_shape shape = x->data.shape;
    int64_t channels = channels_of(&shape);
    bool in_place = in->top[0] == in->bottom[0];

    if ((shape.ndim < 1) || (channels != l->weight[MEAN].shape.dim[0]))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom of shape %s for statistics of %lld channels",
                             ct_shape_str(&shape).text, (long long)l->weight[MEAN].shape.dim[0]);
    plan->desc = (ct_batch_norm_desc){ l->dev->kind, shape.dim[0], channels,
                                       ct_shape_count(&shape, (shape.ndim > 1) ? 2 : 1, -1),
                                       x->data.layout.block };
    plan->engine = ct_batch_norm_choose(&plan->desc);
    if (plan->engine == NULL)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "not implemented on device %s", l->dev->name);
    ct_instance_buffer(in, BATCH_MEAN, CT_KEEP_PASS, (size_t)channels * sizeof(float));
    ct_instance_buffer(in, INV_STD, CT_KEEP_PASS, (size_t)channels * sizeof(float));
    /* in place the input is overwritten, and the output too by the next layer in place */
    ct_instance_buffer(in, NORMAL, CT_KEEP_PASS,
                       (in_place && x->wants_diff && !s->use_global) ? ct_tensor_bytes(&x->data)
                                                                     : 0);
    ct_blob_set_layout(in->top[0], &shape, x->data.layout);
    return CT_OK;
}

/* statistic = decay statistic + batch; the variance is made unbiased by m / (m - 1). */
static void move_statistics(const batch_norm_state *s, const ct_batch_norm_desc *d, ct_instance *in,
                            const float *mean, const float *var)
{
    float *moving_mean = ct_blob_data(&in->weight[MEAN]);
    float *moving_var = ct_blob_data(&in->weight[VARIANCE]);
    float *factor = ct_blob_data(&in->weight[FACTOR]);
    double m = (double)(d->n * d->spatial);
    float unbias = (m > 1) ? (float)(m / (m - 1)) : 1.0f;

    factor[0] = factor[0] * s->decay + 1.0f;
    for (int64_t c = 0; c < d->channels; c++) {
        moving_mean[c] = s->decay * moving_mean[c] + mean[c];
        moving_var[c] = s->decay * moving_var[c] + unbias * var[c];
    }
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const batch_norm_state *s = l->state;
    const batch_norm_plan *plan = in->state;
    const ct_batch_norm_desc *d = &plan->desc;
    const float *x = ct_blob_data(in->bottom[0]);
    float *mean = in->buffer[BATCH_MEAN].data, *inv_std = in->buffer[INV_STD].data;

    (void)ex;
    if (d->n * d->spatial == 0) return CT_OK; /* a rank without samples */
    if (s->use_global) {
        float factor = ct_blob_data(&in->weight[FACTOR])[0];
        float scale = (factor == 0.0f) ? 0.0f : 1.0f / factor;

        for (int64_t c = 0; c < d->channels; c++) {
            mean[c] = ct_blob_data(&in->weight[MEAN])[c] * scale;
            inv_std[c] = ct_blob_data(&in->weight[VARIANCE])[c] * scale;
        }
    } else {
        plan->engine->statistics(d, x, mean, inv_std);
        CT_TRY(ct_exec_poll(ex));
        move_statistics(s, d, in, mean, inv_std);
    }
    for (int64_t c = 0; c < d->channels; c++)
        inv_std[c] = (float)(1.0 / sqrt((double)inv_std[c] + (double)s->eps));
    plan->engine->normalise(d, x, mean, inv_std, ct_blob_data(in->top[0]),
                            (in->buffer[NORMAL].bytes > 0) ? in->buffer[NORMAL].data : NULL);
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const batch_norm_state *s = l->state;
    const batch_norm_plan *plan = in->state;
    const ct_batch_norm_desc *d = &plan->desc;
    const float *mean = in->buffer[BATCH_MEAN].data, *inv_std = in->buffer[INV_STD].data;
    const float *normal = (in->buffer[NORMAL].bytes > 0) ? in->buffer[NORMAL].data : NULL;
    const float *dy = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]);

    (void)ex;
    if ((dx == NULL) || (d->n * d->spatial == 0)) return CT_OK;
    if (s->use_global) {
        ct_view v = { d->n, d->channels, d->spatial, d->block };

        ct_view_affine(&v, dy, inv_std, NULL, dx);
        return CT_OK;
    }
    plan->engine->backward(d, ct_blob_data(in->bottom[0]), normal, mean, inv_std, dy, dx);
    return CT_OK;
}

static void estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const batch_norm_plan *plan = in->state;

    (void)l;
    e->engine[CT_RUN_FORWARD] = e->engine[CT_RUN_BACKWARD_DATA] = plan->engine->name;
}

const ct_layer_ops ct_layer_batch_norm = {
    .type = "BatchNorm",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .allow_inplace = true,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(batch_norm_state),
    .instance_state_size = sizeof(batch_norm_plan),
    .setup = setup,
    .takes = takes,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .estimate = estimate,
};
