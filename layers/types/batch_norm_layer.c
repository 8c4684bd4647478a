/* BatchNorm: each channel less its mean, over its standard deviation; no scale and no shift, which
 * a Scale layer adds. The statistics blobs are sums that decay: mean and variance are blob 0 and 1
 * over blob 2. */
#include <math.h>

#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

#include "layers/engine/batch_norm/batch_norm.h"

/* What BatchNorm keeps of an instance, and its passes on devices, which an
 * engine of batch_norm.h runs whole.
 */

typedef struct ct_batch_norm_state {
    bool use_global;
    float decay, eps;
    int64_t stats_batch; /* samples that statistics are over; 0: the batch */
} ct_batch_norm_state;

typedef struct ct_batch_norm_plan {
    ct_batch_norm_desc desc; /* of a part of the batch, which is normalised by itself */
    int64_t n_part;
    size_t part_bytes; /* of the bottom */
    const ct_batch_norm_engine *engine;
    ct_device_norm_desc device; /* on devices, with what runs it */
    const ct_device_norm_impl *forward, *backward;
    ct_status status; /* of what a group asked for behind reshape's back */
} ct_batch_norm_plan;

/* Weights; buffers. */
enum { CT_NORM_MEAN, CT_NORM_VARIANCE, CT_NORM_FACTOR, CT_NORM_N_STATISTIC };
enum { CT_NORM_BATCH_MEAN, CT_NORM_INV_STD, CT_NORM_NORMAL, CT_NORM_SUMS, CT_NORM_WORK };

/** At reshape: the engines of a device, and what they work in; nothing on the CPU. */
static ct_status ct_batch_norm_pick(const ct_layer *l, ct_instance *in);
/** In join: the same for the group; false where those that ct_kernel names cannot run it. */
static bool ct_batch_norm_pick_group(const ct_layer *l, ct_instance *in);
/** Whether the bottom's gradient may lie where the top's does. */
static bool ct_batch_norm_over(const ct_batch_norm_plan *p);
static ct_status ct_batch_norm_forward_device(const ct_layer *l, ct_instance *in, ct_exec *ex);
static ct_status ct_batch_norm_backward_device(const ct_layer *l, ct_instance *in, ct_exec *ex);

static int64_t channels_of(const ct_shape *s)
{
    return (s->ndim > 1) ? s->dim[1] : 1;
}

static ct_status add_statistics(ct_layer *l, const ct_shape *bottom)
{
    ct_shape whole = *bottom;
    ct_cut one = { .whole = { 1, { 1 } } }, channels;

    if ((bottom->ndim < 2) && (ct_layer_narrowed(l) != NULL))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "without channels it cannot be a part");
    CT_TRY(ct_layer_widen(l, 1, &whole));
    CT_TRY(ct_layer_cut(l, &(ct_shape){ 1, { channels_of(&whole) } }, 0, &channels));
    for (int i = 0; i < CT_NORM_N_STATISTIC; i++) {
        ct_weight_spec *w = ct_layer_add_cut(l, (i == CT_NORM_FACTOR) ? &one : &channels, NULL);

        if ((i < (int)l->param->n_param) && (l->param->param[i]->lr_mult != 0.0f))
            return CT_LAYER_FAIL(
                l, CT_ERR_CONFIG,
                "param %d has lr_mult %g: statistics are not learned, it must be 0", i,
                (double)l->param->param[i]->lr_mult);
        w->kind = CT_WEIGHT_STATISTIC;
        w->default_lr_mult = 0.0f;
    }
    return CT_OK;
}

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__BatchNormParameter *p = l->param->batch_norm_param;
    ct_batch_norm_state *s = l->state;

    s->use_global =
        ((p != NULL) && p->has_use_global_stats) ? p->use_global_stats : (l->phase == CT_TEST);
    s->decay = (p != NULL) ? p->moving_average_fraction : 0.999f;
    s->eps = (p != NULL) ? p->eps : 1e-5f;
    s->stats_batch = ((p != NULL) && !s->use_global) ? p->stats_batch_size : 0;
    if (!(s->eps >= 0.0f) || isinf(s->eps))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "eps %g is not a small positive number",
                             (double)s->eps);
    if (!isfinite(s->decay))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "moving_average_fraction %g is no number",
                             (double)s->decay);
    CT_TRY(add_statistics(l, &bottom[0]));
    if (s->use_global) l->backward_reads = 0;
    return CT_OK;
}

static bool takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    (void)p;
    return ct_blob_is_last(bottom[slot]) || ct_layer_takes_block(bottom[slot]);
}

/* Into parts of stats_batch samples, each with statistics of its own, as in Intel's fork. */
static ct_status cut_batch(const ct_layer *l, const ct_shape *shape, int64_t *n_part_p)
{
    const ct_batch_norm_state *s = l->state;

    *n_part_p = 1;
    if ((s->stats_batch == 0) || (shape->dim[0] == 0)) return CT_OK;
    if (shape->dim[0] % s->stats_batch != 0)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "stats_batch_size %lld does not divide the batch of %lld samples on "
                             "this rank",
                             (long long)s->stats_batch, (long long)shape->dim[0]);
    *n_part_p = shape->dim[0] / s->stats_batch;
    if ((*n_part_p > 1) && (l->dev->kind != CT_DEVICE_CPU))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "statistics over %lld of %lld samples are not there on device %s: "
                             "give batch_size %lld, and iter_size %lld in the solver",
                             (long long)s->stats_batch, (long long)shape->dim[0], l->dev->name,
                             (long long)s->stats_batch, (long long)*n_part_p);
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_batch_norm_state *s = l->state;
    ct_batch_norm_plan *plan = in->state;
    const ct_blob *x = in->bottom[0];
    ct_shape shape = x->data.shape;
    int64_t channels = channels_of(&shape);
    bool in_place = in->top[0] == in->bottom[0];

    if ((shape.ndim < 1) || (channels != l->weight[CT_NORM_MEAN].shape.dim[0]))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom of shape %s for statistics of %lld channels",
                             ct_shape_str(&shape).text,
                             (long long)l->weight[CT_NORM_MEAN].shape.dim[0]);
    CT_TRY(cut_batch(l, &shape, &plan->n_part));
    plan->part_bytes = ct_tensor_bytes(&x->data) / (size_t)plan->n_part;
    plan->desc = (ct_batch_norm_desc){ l->dev->kind,
                                       shape.dim[0] / plan->n_part,
                                       channels,
                                       ct_shape_count(&shape, (shape.ndim > 1) ? 2 : 1, -1),
                                       x->data.layout.block,
                                       ct_blob_is_bf16(x) };
    plan->engine = ct_batch_norm_choose(&plan->desc);
    if (plan->engine == NULL)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "not implemented on device %s", l->dev->name);
    CT_TRY(ct_batch_norm_pick(l, in));
    ct_instance_buffer(in, CT_NORM_BATCH_MEAN, CT_LIFETIME_PASS,
                       (size_t)(plan->n_part * channels) * sizeof(float));
    ct_instance_buffer(in, CT_NORM_INV_STD, CT_LIFETIME_PASS,
                       (size_t)(plan->n_part * channels) * sizeof(float));
    ct_instance_buffer(in, CT_NORM_SUMS, CT_LIFETIME_CALL, 2 * (size_t)channels * sizeof(double));
    if (in_place) in->backward_reads = 0;
    in->over = ct_batch_norm_over(plan) ? 1 : 0;
    /* in place the input is overwritten, and the output too by the next layer in place */
    ct_instance_buffer(in, CT_NORM_NORMAL, CT_LIFETIME_PASS,
                       (in_place && x->wants_diff && !s->use_global) ? ct_tensor_bytes(&x->data)
                                                                     : 0);
    ct_blob_set_like(in->top[0], &shape, &x->data);
    return CT_OK;
}

/* statistic = decay statistic + batch; the variance is made unbiased by m / (m - 1). */
static void move_statistics(const ct_batch_norm_state *s, const ct_batch_norm_desc *d,
                            ct_instance *in, int64_t from, int64_t to, const float *mean,
                            const float *var)
{
    float *moving_mean = ct_blob_data(&in->weight[CT_NORM_MEAN]);
    float *moving_var = ct_blob_data(&in->weight[CT_NORM_VARIANCE]);
    double m = (double)(d->n * d->spatial);
    float unbias = (m > 1) ? (float)(m / (m - 1)) : 1.0f;

    for (int64_t c = from; c < to; c++) {
        moving_mean[c] = s->decay * moving_mean[c] + mean[c];
        moving_var[c] = s->decay * moving_var[c] + unbias * var[c];
    }
}

static void advance_factor(const ct_batch_norm_state *s, ct_instance *in)
{
    float *factor = ct_blob_data(&in->weight[CT_NORM_FACTOR]);

    factor[0] = factor[0] * s->decay + 1.0f;
}

static bool is_group(const ct_instance *in)
{
    return in->tail != NULL;
}

/* Of values that lie as the bottom: the part's. NULL stays. */
static float *part_of(const ct_batch_norm_plan *plan, float *values, int64_t part)
{
    return (values == NULL) ? NULL
                            : (float *)(void *)((char *)values + (size_t)part * plan->part_bytes);
}

/* What forward does to the normal values of a part of the batch: the tail. */
static void fill_map(const ct_instance *in, int64_t part, ct_batch_norm_map *m)
{
    const ct_batch_norm_plan *plan = in->state;
    const ct_epilogue *tail = in->tail;
    const ct_instance *affine;
    int64_t first = part * plan->desc.channels;

    *m = (ct_batch_norm_map){
        .x = part_of(plan, ct_blob_data(in->bottom[0]), part),
        .mean = (const float *)in->buffer[CT_NORM_BATCH_MEAN].data + first,
        .inv_std = (const float *)in->buffer[CT_NORM_INV_STD].data + first,
        .y = part_of(plan, ct_blob_data(ct_instance_top(in)), part),
    };
    if (!is_group(in)) {
        if (in->buffer[CT_NORM_NORMAL].bytes > 0)
            m->normal = part_of(plan, in->buffer[CT_NORM_NORMAL].data, part);
        return;
    }
    affine = tail->of[CT_EPILOGUE_AFFINE];
    if (affine != NULL) {
        m->scale = ct_blob_data(&affine->weight[0]);
        if (affine->layer->n_weight > 1) m->bias = ct_blob_data(&affine->weight[1]);
    }
    if (tail->of[CT_EPILOGUE_SUM] != NULL)
        m->add = ct_blob_data(tail->of[CT_EPILOGUE_SUM]->bottom[1 - tail->slot]);
    m->relu = tail->of[CT_EPILOGUE_RELU] != NULL;
}

static void global_statistics(ct_instance *in, int64_t channels, float *mean, float *var)
{
    float factor = ct_blob_data(&in->weight[CT_NORM_FACTOR])[0];
    float scale = (factor == 0.0f) ? 0.0f : 1.0f / factor;

    for (int64_t c = 0; c < channels; c++) {
        mean[c] = ct_blob_data(&in->weight[CT_NORM_MEAN])[c] * scale;
        var[c] = ct_blob_data(&in->weight[CT_NORM_VARIANCE])[c] * scale;
    }
}

static ct_status forward_part(const ct_layer *l, ct_instance *in, int64_t part, ct_exec *ex)
{
    const ct_batch_norm_state *s = l->state;
    const ct_batch_norm_plan *plan = in->state;
    const ct_batch_norm_desc *d = &plan->desc;
    float *mean = (float *)in->buffer[CT_NORM_BATCH_MEAN].data + part * d->channels;
    float *inv_std = (float *)in->buffer[CT_NORM_INV_STD].data + part * d->channels;
    int64_t piece = ct_batch_norm_piece(d, 2);
    ct_batch_norm_map m;

    fill_map(in, part, &m);
    if (s->use_global)
        global_statistics(in, d->channels, mean, inv_std);
    else
        advance_factor(s, in);
    for (int64_t c = 0; c < d->channels; c += piece) {
        int64_t to = (c + piece < d->channels) ? c + piece : d->channels;

        if (!s->use_global) {
            plan->engine->statistics(d, c, to, m.x, mean, inv_std);
            move_statistics(s, d, in, c, to, mean, inv_std);
        }
        for (int64_t k = c; k < to; k++)
            inv_std[k] = (float)(1.0 / sqrt((double)inv_std[k] + (double)s->eps));
        plan->engine->apply(d, c, to, &m);
        CT_TRY(ct_exec_poll(ex));
    }
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_batch_norm_plan *plan = in->state;

    if (plan->desc.n * plan->desc.spatial == 0) return CT_OK; /* a rank without samples */
    if (plan->forward != NULL) return ct_batch_norm_forward_device(l, in, ex);
    for (int64_t part = 0; part < plan->n_part; part++) CT_TRY(forward_part(l, in, part, ex));
    return CT_OK;
}

/* The map with the batch's statistics as they are kept: the same bits. */
static bool again(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_batch_norm_plan *plan = in->state;
    ct_batch_norm_map m;

    (void)l;
    if (!is_group(in) || (plan->forward != NULL)) return false;
    if ((ex == NULL) || (plan->desc.n * plan->desc.spatial == 0)) return true;
    fill_map(in, 0, &m);
    plan->engine->apply(&plan->desc, 0, plan->desc.channels, &m);
    return true;
}

/* The tail's weights get their gradients from the sums. */
static void put_weight_diffs(const ct_instance *in, ct_exec *ex, int64_t channels,
                             const ct_batch_norm_back *b)
{
    const ct_instance *affine = is_group(in) ? in->tail->of[CT_EPILOGUE_AFFINE] : NULL;

    for (int w = 0; (affine != NULL) && (w < affine->layer->n_weight); w++) {
        float *diff = ct_blob_diff(&affine->weight[w]);
        const double *sum = (w == 0) ? b->dot : b->sum;
        bool add = ct_weight_beta(affine, ex, w) != 0.0f;

        for (int64_t c = 0; (diff != NULL) && (c < channels); c++)
            diff[c] = (float)(sum[c] + (add ? (double)diff[c] : 0.0));
    }
}

/* The group's pass over a part of the batch as it stands: its map, and where gradients lie. */
static void ct_batch_norm_fill(const ct_layer *l, const ct_instance *in, int64_t part,
                               ct_batch_norm_back *b)
{
    const ct_batch_norm_state *s = l->state;
    const ct_batch_norm_plan *plan = in->state;
    const ct_epilogue *tail = in->tail;
    const ct_instance *last = is_group(in) ? tail->last : in;
    const ct_instance *sum = is_group(in) ? tail->of[CT_EPILOGUE_SUM] : NULL;

    *b = (ct_batch_norm_back){ .fixed = s->use_global,
                               .dx = part_of(plan, ct_blob_diff(in->bottom[0]), part),
                               .sum = in->buffer[CT_NORM_SUMS].data };
    fill_map(in, part, &b->map);
    b->dot = b->sum + plan->desc.channels;
    if (b->map.normal != NULL) {
        b->map.x = b->map.normal;
        b->map.mean = NULL;
    }
    for (int t = 0; t < last->layer->n_top; t++) {
        if (ct_blob_diff(last->top[t]) != NULL)
            b->dy[b->n_dy++] = part_of(plan, ct_blob_diff(last->top[t]), part);
    }
    if (sum != NULL) b->g = ct_blob_diff(sum->bottom[1 - tail->slot]);
}

static ct_status backward_part(ct_instance *in, ct_exec *ex, const ct_batch_norm_back *b)
{
    const ct_batch_norm_plan *plan = in->state;
    const ct_batch_norm_desc *d = &plan->desc;
    int64_t piece = ct_batch_norm_piece(d, 3);

    for (int64_t c = 0; c < d->channels; c += piece) {
        plan->engine->backward(d, c, (c + piece < d->channels) ? c + piece : d->channels, b);
        CT_TRY(ct_exec_poll(ex));
    }
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_batch_norm_state *s = l->state;
    const ct_batch_norm_plan *plan = in->state;
    const ct_batch_norm_desc *d = &plan->desc;
    ct_batch_norm_back b;

    if (plan->backward != NULL) return ct_batch_norm_backward_device(l, in, ex);
    ct_batch_norm_fill(l, in, 0, &b);
    if (d->n * d->spatial == 0) { /* a rank without samples adds nothing */
        for (int64_t c = 0; c < d->channels; c++) b.sum[c] = b.dot[c] = 0;
        put_weight_diffs(in, ex, d->channels, &b);
        return CT_OK;
    }
    if (!is_group(in) && s->use_global) {
        ct_view v = { d->n, d->channels, d->spatial, d->block, d->bf16 ? CT_BF16 : CT_F32 };

        if (b.dx != NULL) ct_view_affine(&v, b.dy[0], b.map.inv_std, NULL, b.dx);
        return CT_OK;
    }
    if (!is_group(in) && (b.dx == NULL)) return CT_OK;
    for (int64_t part = 0; part < plan->n_part; part++) {
        ct_batch_norm_fill(l, in, part, &b);
        CT_TRY(backward_part(in, ex, &b));
    }
    put_weight_diffs(in, ex, d->channels, &b);
    return CT_OK;
}

/* Whether backward reads from the group's top what its ReLU let pass. */
static bool reads_sign(const ct_instance *in)
{
    const ct_batch_norm_plan *plan = in->state;

    if (plan->backward != NULL) return plan->device.by_top;
    return (in->tail->of[CT_EPILOGUE_SUM] != NULL) && (in->tail->of[CT_EPILOGUE_RELU] != NULL);
}

/* A tail along the channels alone, gradients of few enough tops, the batch in one part. */
static bool join(const ct_layer *l, ct_instance *in)
{
    const ct_epilogue *tail = in->tail;
    const ct_batch_norm_plan *plan = in->state;
    ct_instance *affine = tail->of[CT_EPILOGUE_AFFINE], *sum = tail->of[CT_EPILOGUE_SUM];

    if (plan->n_part > 1) return false;
    if ((in->bottom[0]->data.shape.ndim < 2) || (tail->last->layer->n_top > CT_BATCH_NORM_MAX_DY))
        return false;
    for (int w = 0; (affine != NULL) && (w < affine->layer->n_weight); w++) {
        if (ct_shape_count(&affine->layer->weight[w].shape, 0, -1) != plan->desc.channels)
            return false;
    }
    if (!ct_batch_norm_pick_group(l, in)) return false;
    in->backward_reads = CT_READS_BOTTOM;
    if (reads_sign(in)) tail->last->backward_reads |= CT_READS_TOP;
    if ((sum != NULL) && sum->bottom[1 - tail->slot]->wants_diff)
        sum->over = 1u << (1 - tail->slot);
    else
        in->over = ct_batch_norm_over(plan) ? 1 : 0;
    return true;
}

static void estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const ct_batch_norm_plan *plan = in->state;

    (void)l;
    e->engine[CT_RUN_FORWARD] = e->engine[CT_RUN_BACKWARD_DATA] = plan->engine->name;
    if (plan->forward == NULL) return;
    e->engine[CT_RUN_FORWARD] = plan->forward->name;
    e->engine[CT_RUN_BACKWARD_DATA] = plan->backward->name;
}

static const ct_layout_ops batch_norm_layout = { .takes = takes, .bf16 = true, .last = true };
static const ct_fusion_ops batch_norm_fusion = {
    .epilogues = 1u << CT_EPILOGUE_AFFINE | 1u << CT_EPILOGUE_SUM | 1u << CT_EPILOGUE_RELU |
                 1u << CT_EPILOGUE_SPLIT,
    .join = join,
    .again = again,
};

const ct_layer_ops ct_layer_batch_norm = {
    .type = "BatchNorm",
    .params = "batch_norm_param",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .allow_inplace = true,
    .backward_reads = CT_READS_BOTTOM,
    .splits = CT_SPLIT_CHANNEL,
    .state_size = sizeof(ct_batch_norm_state),
    .instance_state_size = sizeof(ct_batch_norm_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .estimate = estimate,
    .on_cuda = true,
    .layout = &batch_norm_layout,
    .fusion = &batch_norm_fusion,
};

/* ---- BatchNorm on devices: who runs its passes, and what they are given. */

static const ct_instance *tail_of(const ct_instance *in, ct_epilogue_kind kind)
{
    return (in->tail != NULL) ? in->tail->of[kind] : NULL;
}

static ct_device_norm_desc describe(const ct_layer *l, const ct_instance *in)
{
    const ct_batch_norm_state *s = l->state;
    const ct_batch_norm_plan *p = in->state;
    const ct_instance *last = (in->tail != NULL) ? in->tail->last : in;
    const ct_instance *sum = tail_of(in, CT_EPILOGUE_SUM);
    const ct_blob *x = in->bottom[0];
    ct_device_norm_desc d = { .device = l->dev->kind,
                              .dtype = x->data.dtype,
                              .n = p->desc.n,
                              .c = p->desc.channels,
                              .s = p->desc.spatial,
                              .last = ct_blob_is_last(x),
                              .in_place = (in->tail == NULL) && (in->top[0] == x),
                              .fixed = s->use_global,
                              .eps = s->eps,
                              .affine = tail_of(in, CT_EPILOGUE_AFFINE) != NULL,
                              .add = sum != NULL,
                              .relu = tail_of(in, CT_EPILOGUE_RELU) != NULL,
                              .wants_dx = x->wants_diff };

    for (int t = 0; t < last->layer->n_top; t++) d.n_dy += last->top[t]->wants_diff;
    if (sum != NULL) d.wants_g = sum->bottom[1 - in->tail->slot]->wants_diff;
    return d;
}

static void put_by_top(ct_device_norm_desc *d, const ct_device_norm_impl *forward)
{
    d->by_top = d->relu && (d->add || ((forward->can & CT_DEVICE_NORM_REMADE) == 0));
}

static ct_status ct_batch_norm_pick(const ct_layer *l, ct_instance *in)
{
    ct_batch_norm_plan *p = in->state;
    size_t forward, backward;

    p->forward = p->backward = NULL;
    if (l->dev->kind == CT_DEVICE_CPU) return CT_OK;
    p->device = describe(l, in);
    CT_TRY(ct_device_norm_pick(l, CT_RUN_FORWARD, ct_device_norm_forward_table, &p->device,
                               &p->forward));
    put_by_top(&p->device, p->forward);
    CT_TRY(ct_device_norm_pick(l, CT_RUN_BACKWARD_DATA, ct_device_norm_backward_table, &p->device,
                               &p->backward));
    forward = ct_device_norm_workspace(p->forward, &p->device);
    backward = ct_device_norm_workspace(p->backward, &p->device);
    ct_instance_buffer(in, CT_NORM_WORK, CT_LIFETIME_CALL,
                       (forward > backward) ? forward : backward);
    return CT_OK;
}

static bool ct_batch_norm_pick_group(const ct_layer *l, ct_instance *in)
{
    ct_batch_norm_plan *p = in->state;
    ct_device_norm_desc d = describe(l, in);
    const ct_device_norm_impl *forward;

    if (l->dev->kind == CT_DEVICE_CPU) return true;
    forward =
        ct_device_norm_find(ct_device_norm_forward_table, &d, ct_engine_policy(l, CT_RUN_FORWARD));
    if (forward == NULL) return false;
    put_by_top(&d, forward);
    if (ct_device_norm_find(ct_device_norm_backward_table, &d,
                            ct_engine_policy(l, CT_RUN_BACKWARD_DATA)) == NULL)
        return false;
    p->status = ct_batch_norm_pick(l, in);
    return true;
}

static bool ct_batch_norm_over(const ct_batch_norm_plan *p)
{
    return (p->backward == NULL) || ((p->backward->can & CT_DEVICE_NORM_OVER) != 0);
}

static void fill(const ct_layer *l, ct_instance *in, ct_device_norm_args *a)
{
    const ct_batch_norm_state *s = l->state;

    *a = (ct_device_norm_args){ .mean = in->buffer[CT_NORM_BATCH_MEAN].data,
                                .inv_std = in->buffer[CT_NORM_INV_STD].data,
                                .moving_mean = ct_blob_data(&in->weight[CT_NORM_MEAN]),
                                .moving_var = ct_blob_data(&in->weight[CT_NORM_VARIANCE]),
                                .factor = ct_blob_data(&in->weight[CT_NORM_FACTOR]),
                                .decay = s->decay,
                                .work = in->buffer[CT_NORM_WORK].data };
    ct_batch_norm_fill(l, in, 0, &a->back);
}

static ct_status ct_batch_norm_forward_device(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_batch_norm_plan *p = in->state;
    ct_device_norm_args a;

    if (p->status != CT_OK) return p->status;
    fill(l, in, &a);
    if (a.back.map.normal != NULL) { /* forward reads what is to be normalised */
        a.back.map.x = ct_blob_data(in->bottom[0]);
        a.back.map.mean = a.mean;
    }
    return p->forward->run(&p->device, ex, &a);
}

static ct_status ct_batch_norm_backward_device(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_batch_norm_plan *p = in->state;
    const ct_instance *affine = tail_of(in, CT_EPILOGUE_AFFINE);
    ct_device_norm_args a;

    fill(l, in, &a);
    if ((in->tail == NULL) && (a.back.dx == NULL)) return CT_OK;
    if (affine != NULL) {
        a.scale_diff = ct_blob_diff(&affine->weight[0]);
        a.add_scale = ct_weight_beta(affine, ex, 0) != 0.0f;
    }
    if ((affine != NULL) && (affine->layer->n_weight > 1)) {
        a.bias_diff = ct_blob_diff(&affine->weight[1]);
        a.add_bias = ct_weight_beta(affine, ex, 1) != 0.0f;
    }
    return p->backward->run(&p->device, ex, &a);
}
