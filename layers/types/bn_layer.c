/* BN: normalisation by statistics, factor and shift in one layer, as three forks have it under this
 * name. They differ in the names of their fields, in when they use running statistics, and in how
 * those move:
 *  slopes    slope_filler, bias_filler, momentum, eps, frozen: like BatchNorm and Scale together
 *  averages  scale_filler, shift_filler, var_eps, decay, moving_average (PSPNet's first)
 *  segnet    scale_filler, shift_filler, bn_mode: statistics of the batch, or none at all
 * SyncBN is the first with statistics of the global batch: ranks add up what they have of it. */
#include "layers/types/norm.h"
#include "layers/engine/batch_norm/batch_norm.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

#include <math.h>
#include <string.h>

typedef ct_bn_form bn_form;
typedef ct_bn_state bn_state;

typedef struct bn_plan {
    ct_batch_norm_desc desc;
    const ct_batch_norm_engine *engine;
    double count; /* values in a channel of the last forward, of all ranks with SyncBN */
} bn_plan;

static bn_form form_of(const Ct__BNParameter *p)
{
    if (p == NULL) return CT_BN_SLOPES;
    if (p->has_var_eps || p->has_decay || p->has_moving_average) return CT_BN_AVERAGES;
    if ((p->scale_filler != NULL) || (p->shift_filler != NULL) || p->has_bn_mode)
        return CT_BN_SEGNET;
    return CT_BN_SLOPES;
}

static ct_status read_form(const ct_layer *l, const Ct__BNParameter *p, bn_state *s)
{
    bool test = l->phase == CT_TEST;

    s->form = form_of(p);
    s->sync = strcmp(l->ops->type, ct_layer_sync_bn.type) == 0;
    if (s->sync && (s->form != CT_BN_SLOPES))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "SyncBN has slope_filler, bias_filler, momentum, eps and frozen, not "
                             "the fields of PSPNet's and SegNet's BN");
    s->keep = (p != NULL) ? p->momentum : 0.9f;
    s->eps = (p != NULL) ? p->eps : 1e-5f;
    if ((s->form != CT_BN_SLOPES) && ((p->slope_filler != NULL) || (p->bias_filler != NULL) ||
                                      p->has_momentum || p->has_eps || p->has_frozen))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "bn_param mixes fields of different forks: slope_filler, bias_filler, "
                             "momentum, eps, frozen; or scale_filler, shift_filler and others");
    if ((s->form == CT_BN_AVERAGES) && p->has_bn_mode)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "bn_param has SegNet's bn_mode and PSPNet's var_eps, decay or "
                             "moving_average");
    if (s->form == CT_BN_SLOPES) {
        bool frozen = (p != NULL) && p->frozen;

        s->by = (test || frozen) ? CT_BN_RUNNING : CT_BN_BATCH;
        s->moves = !test && !frozen;
    } else if (s->form == CT_BN_AVERAGES) {
        s->keep = p->has_decay ? 1.0f - p->decay : 0.95f;
        s->eps = p->has_var_eps ? p->var_eps : 1e-10f;
        s->by =
            (test && (!p->has_moving_average || p->moving_average)) ? CT_BN_RUNNING : CT_BN_BATCH;
        s->moves = !test;
    } else {
        s->eps = 1e-9f;
        s->by = (p->bn_mode == CT__BNPARAMETER__BNMODE__INFERENCE) ? CT_BN_NOTHING : CT_BN_BATCH;
    }
    if (!(s->eps >= 0.0f) || isinf(s->eps) || !(s->keep >= 0.0f) || !(s->keep <= 1.0f))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "eps %g must not be below 0, and momentum, the share of the running "
                             "statistics that stays (1 - decay), %g, lie in 0..1",
                             (double)s->eps, (double)s->keep);
    return CT_OK;
}

static ct_status add_weights(ct_layer *l, const Ct__BNParameter *p, const ct_shape *bottom)
{
    bn_state *s = l->state;
    bool slopes = (s->form == CT_BN_SLOPES), frozen = (p != NULL) && p->frozen;
    const Ct__FillerParameter *scale = NULL, *shift = NULL;
    ct_shape whole = *bottom, shape;
    ct_cut cut;

    CT_TRY(ct_layer_widen(l, 1, &whole));
    shape =
        slopes ? (ct_shape){ 2, { 1, whole.dim[1] } } : (ct_shape){ 4, { 1, whole.dim[1], 1, 1 } };
    CT_TRY(ct_layer_cut(l, &shape, 1, &cut));
    if (p != NULL) {
        scale = slopes ? p->slope_filler : p->scale_filler;
        shift = slopes ? p->bias_filler : p->shift_filler;
    }
    ct_layer_add_cut(l, &cut, (scale != NULL) ? scale : &s->one);
    ct_layer_add_cut(l, &cut, shift);
    if (s->form != CT_BN_SEGNET) {
        ct_layer_add_cut(l, &cut, NULL);
        ct_layer_add_cut(l, &cut, frozen ? &s->one : NULL);
    }
    for (int i = 0; i < l->n_weight; i++) { /* what frozen holds is learned by nobody */
        if ((i < CT_BN_MEAN) && !frozen) continue;
        l->weight[i].kind = CT_WEIGHT_STATISTIC;
        l->weight[i].default_lr_mult = 0.0f;
    }
    return CT_OK;
}

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__BNParameter *p = l->param->bn_param;
    bn_state *s = l->state;

    CT_TRY(read_form(l, p, s));
    if (bottom[0].ndim < 2)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom of shape %s has no channels",
                             ct_shape_str(&bottom[0]).text);
    ct__filler_parameter__init(&s->one);
    s->one.value = 1.0f;
    return add_weights(l, p, &bottom[0]);
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const bn_state *s = l->state;
    const ct_blob *x = in->bottom[0];
    ct_shape shape = x->data.shape;
    int64_t channels = l->weight[CT_BN_SCALE].shape.dim[1];
    bn_plan *plan = in->state;
    bool in_place = in->top[0] == in->bottom[0];

    if ((shape.ndim < 2) || (shape.dim[1] != channels))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom of shape %s for %lld channels",
                             ct_shape_str(&shape).text, (long long)channels);
    plan->desc = (ct_batch_norm_desc){
        l->dev->kind,         shape.dim[0], channels, ct_shape_count(&shape, 2, -1),
        x->data.layout.block, false
    };
    plan->engine = ct_batch_norm_choose(&plan->desc);
    if (plan->engine == NULL)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "not implemented on device %s", l->dev->name);
    ct_instance_buffer(in, CT_BN_USED_MEAN, CT_LIFETIME_PASS, (size_t)channels * sizeof(float));
    ct_instance_buffer(in, CT_BN_INV_STD, CT_LIFETIME_PASS, (size_t)channels * sizeof(float));
    ct_instance_buffer(in, CT_BN_SUMS, CT_LIFETIME_CALL, 2 * (size_t)channels * sizeof(double));
    ct_instance_buffer(in, CT_BN_SHARED, CT_LIFETIME_CALL,
                       s->sync ? (2 * (size_t)channels + 1) * sizeof(double) : 0);
    ct_instance_buffer(in, CT_BN_COUNT, CT_LIFETIME_PASS,
                       (s->sync && (l->dev->kind != CT_DEVICE_CPU)) ? sizeof(double) : 0);
    if (in_place) in->backward_reads = 0;
    in->over = 1;
    ct_instance_buffer(in, CT_BN_NORMAL, CT_LIFETIME_PASS,
                       in_place ? ct_tensor_bytes(&x->data) : 0);
    ct_blob_set_layout(in->top[0], &shape, x->data.layout);
    return CT_OK;
}

/* ---- forward: part 0 finds the rank's own statistics, and with SyncBN the ranks' mean is sum 0,
 * how far all values are from it sum 1 (norm.h); the last part normalises. */

/* Whether statistics are those of all ranks' values. */
static bool joins(const bn_state *s)
{
    return s->sync && (s->by == CT_BN_BATCH);
}

static int count_sums(const ct_layer *l, const ct_instance *in, bool forward, int k)
{
    int channels = (int)l->weight[CT_BN_SCALE].shape.dim[1];

    if (!joins(l->state)) return 0;
    if (!forward) return ((k == 0) && in->bottom[0]->wants_diff) ? 2 * channels : 0;
    return (k == 0) ? channels + 1 : (k == 1) ? channels : 0;
}

static double values_here(const bn_plan *plan)
{
    return (double)(plan->desc.n * plan->desc.spatial);
}

/* The variance as it is, until the last part. */
static void find_own(const bn_state *s, bn_plan *plan, ct_instance *in)
{
    const ct_batch_norm_desc *d = &plan->desc;
    float *mean = in->buffer[CT_BN_USED_MEAN].data, *var = in->buffer[CT_BN_INV_STD].data;
    double *v = in->buffer[CT_BN_SHARED].data;

    plan->count = values_here(plan);
    if (s->by == CT_BN_BATCH) {
        if (plan->count > 0)
            plan->engine->statistics(d, 0, d->channels, ct_blob_data(in->bottom[0]), mean, var);
        for (int64_t c = 0; s->sync && (c < d->channels); c++)
            v[c] = ct_bn_mean_share(plan->count, mean[c]);
        if (s->sync) v[d->channels] = plan->count;
        return;
    }
    for (int64_t c = 0; c < d->channels; c++) {
        bool running = s->by == CT_BN_RUNNING;

        mean[c] = running ? ct_blob_data(&in->weight[CT_BN_MEAN])[c] : 0.0f;
        var[c] = running ? ct_blob_data(&in->weight[CT_BN_VARIANCE])[c] : 1.0f - s->eps;
    }
}

static void take_mean(bn_plan *plan, ct_instance *in)
{
    float *mean = in->buffer[CT_BN_USED_MEAN].data;
    const float *var = in->buffer[CT_BN_INV_STD].data;
    double *v = in->buffer[CT_BN_SHARED].data;
    int64_t n = plan->desc.channels;

    plan->count = v[n];
    for (int64_t c = 0; c < n; c++) {
        double all = ct_bn_joined(v[c], plan->count);

        v[c] = ct_bn_variance_share(values_here(plan), mean[c], var[c], all);
        mean[c] = (float)all;
    }
}

static void take_variance(const bn_plan *plan, ct_instance *in)
{
    float *var = in->buffer[CT_BN_INV_STD].data;
    const double *v = in->buffer[CT_BN_SHARED].data;

    for (int64_t c = 0; c < plan->desc.channels; c++)
        var[c] = (float)ct_bn_joined(v[c], plan->count);
}

static void move_running(const bn_state *s, const bn_plan *plan, ct_instance *in)
{
    const float *mean = in->buffer[CT_BN_USED_MEAN].data, *var = in->buffer[CT_BN_INV_STD].data;

    if ((s->by != CT_BN_BATCH) || !s->moves || !(plan->count > 0)) return;
    for (int64_t c = 0; c < plan->desc.channels; c++) {
        float *m = ct_blob_data(&in->weight[CT_BN_MEAN]),
              *v = ct_blob_data(&in->weight[CT_BN_VARIANCE]);

        m[c] = s->keep * m[c] + (1.0f - s->keep) * mean[c];
        v[c] = s->keep * v[c] + (1.0f - s->keep) * var[c];
    }
}

static void normalise(const bn_state *s, const bn_plan *plan, ct_instance *in)
{
    const ct_batch_norm_desc *d = &plan->desc;
    float *inv_std = in->buffer[CT_BN_INV_STD].data;
    ct_batch_norm_map m = { .x = ct_blob_data(in->bottom[0]),
                            .mean = in->buffer[CT_BN_USED_MEAN].data,
                            .inv_std = inv_std,
                            .scale = ct_blob_data(&in->weight[CT_BN_SCALE]),
                            .bias = ct_blob_data(&in->weight[CT_BN_SHIFT]),
                            .y = ct_blob_data(in->top[0]) };

    if (in->buffer[CT_BN_NORMAL].bytes > 0) { /* then factor and shift have a pass of their own */
        m.normal = in->buffer[CT_BN_NORMAL].data;
        m.scale = m.bias = NULL;
    }
    for (int64_t c = 0; c < d->channels; c++)
        inv_std[c] = (float)(1.0 / sqrt((double)inv_std[c] + (double)s->eps));
    plan->engine->apply(d, 0, d->channels, &m);
    if (m.normal != NULL)
        ct_view_affine(&(ct_view){ d->n, d->channels, d->spatial, d->block, CT_F32 }, m.y,
                       ct_blob_data(&in->weight[CT_BN_SCALE]),
                       ct_blob_data(&in->weight[CT_BN_SHIFT]), m.y);
}

static ct_status forward_part(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    const bn_state *s = l->state;
    bn_plan *plan = in->state;

    (void)ex;
    if (part == 0) find_own(s, plan, in);
    if (joins(s) && (part == 0)) return CT_OK;
    if (part == 1) {
        take_mean(plan, in);
        return CT_OK;
    }
    if (joins(s)) take_variance(plan, in);
    move_running(s, plan, in);
    if (values_here(plan) > 0) normalise(s, plan, in); /* a rank may have no samples */
    return CT_OK;
}

/* ---- backward: part 0 makes the weights' gradients and, with SyncBN, the bottom's without what
 * the means over all ranks take off, whose sums are sum 0. */

static void put_weight_diff(const ct_instance *in, ct_exec *ex, int w, const double *sum)
{
    float *diff = ct_blob_diff(&in->weight[w]);
    bool add = ct_weight_beta(in, ex, w) != 0.0f;
    int64_t n = in->layer->weight[w].shape.dim[1];

    for (int64_t c = 0; (diff != NULL) && (c < n); c++)
        diff[c] = (float)(sum[c] + (add ? (double)diff[c] : 0.0));
}

/* dx = (dn - E dn - normal E(dn normal)) inv_std with dn = dy scale, where means are over all
 * ranks; it comes as dn inv_std. */
static void take_means_off(const bn_plan *plan, const ct_instance *in, const ct_batch_norm_back *b)
{
    const ct_batch_norm_desc *d = &plan->desc;
    const double *v = in->buffer[CT_BN_SHARED].data;

#pragma omp parallel for schedule(static) if (d->n * d->channels * d->spatial >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < d->n * d->channels; k++) {
        int64_t c = k % d->channels;
        double unit = (double)b->map.scale[c] * (double)b->map.inv_std[c] / plan->count;
        float mean = (b->map.mean != NULL) ? b->map.mean[c] : 0.0f;
        float slope = (b->map.mean != NULL) ? b->map.inv_std[c] : 1.0f;
        float all = (float)(v[c] * unit), by_normal = (float)(v[d->channels + c] * unit);

        for (int64_t i = k * d->spatial; i < (k + 1) * d->spatial; i++)
            b->dx[i] -= all + (b->map.x[i] - mean) * slope * by_normal;
    }
}

static void backward_own(const bn_state *s, const bn_plan *plan, const ct_instance *in, ct_exec *ex,
                         const ct_batch_norm_back *b)
{
    const ct_batch_norm_desc *d = &plan->desc;

    if (values_here(plan) > 0) {
        plan->engine->backward(d, 0, d->channels, b);
    } else { /* adds nothing */
        for (int64_t c = 0; c < 2 * d->channels; c++) b->sum[c] = 0;
    }
    if (joins(s))
        memcpy(in->buffer[CT_BN_SHARED].data, b->sum, 2 * (size_t)d->channels * sizeof(*b->sum));
    put_weight_diff(in, ex, CT_BN_SCALE, b->dot);
    put_weight_diff(in, ex, CT_BN_SHIFT, b->sum);
}

static ct_status backward_part(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    const bn_state *s = l->state;
    const bn_plan *plan = in->state;
    const ct_batch_norm_desc *d = &plan->desc;
    bool kept = in->buffer[CT_BN_NORMAL].bytes > 0;
    ct_batch_norm_back b = { .map = { .x = kept ? in->buffer[CT_BN_NORMAL].data
                                                : ct_blob_data(in->bottom[0]),
                                      .mean = kept ? NULL : in->buffer[CT_BN_USED_MEAN].data,
                                      .inv_std = in->buffer[CT_BN_INV_STD].data,
                                      .scale = ct_blob_data(&in->weight[CT_BN_SCALE]),
                                      .bias = ct_blob_data(&in->weight[CT_BN_SHIFT]) },
                             .dy = { ct_blob_diff(in->top[0]) },
                             .n_dy = 1,
                             .fixed = (s->by != CT_BN_BATCH) || s->sync,
                             .dx = ct_blob_diff(in->bottom[0]),
                             .sum = in->buffer[CT_BN_SUMS].data };

    b.dot = b.sum + d->channels;
    if (part == 0)
        backward_own(s, plan, in, ex, &b);
    else
        take_means_off(plan, in, &b);
    return CT_OK;
}

static void estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const bn_plan *plan = in->state;

    (void)l;
    e->engine[CT_RUN_FORWARD] = e->engine[CT_RUN_BACKWARD_DATA] = plan->engine->name;
}

static const ct_sum_ops sums = {
    .count = count_sums, .slot = CT_BN_SHARED, .forward = forward_part, .backward = backward_part
};

#define BN(_type, _layout)                                                                         \
    {                                                                                              \
        .type = _type, .params = "bn_param", .min_bottom = 1, .max_bottom = 1, .min_top = 1,       \
        .max_top = 1, .allow_inplace = true, .backward_reads = CT_READS_BOTTOM,                    \
        .state_size = sizeof(bn_state), .instance_state_size = sizeof(bn_plan), .setup = setup,    \
        .layout = _layout, .reshape = reshape, .forward = ct_layer_forward_parts,                  \
        .backward = ct_layer_backward_parts, .estimate = estimate, .sums = &sums,                  \
        .splits = CT_SPLIT_CHANNEL,                                                                \
    }

const ct_layer_ops ct_layer_bn = BN("BN", &ct_layout_blocks);
const ct_layer_ops ct_layer_sync_bn = BN("SyncBN", NULL);
