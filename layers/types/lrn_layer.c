/* Local response normalisation, across channels or within each. */
#include "framework/base/bf16.h"
#include "layers/engine/lrn/lrn.h"
#include "layers/types/layer_types.h"

typedef struct lrn_state {
    bool within;
    int64_t size;
    float alpha, beta, k;
} lrn_state;

typedef struct lrn_instance {
    ct_lrn_desc desc;
    const ct_lrn_impl *forward, *backward;
    int64_t images; /* of bf16 numbers, so many at a time go through a shared cache as f32 */
    int64_t image;  /* numbers of one */
} lrn_instance;

enum { SLOT_SCALE, SLOT_WORK, SLOT_WIDE };

static ct_status lrn_setup(ct_layer *l, const ct_shape *bottom)
{
    static const Ct__LRNParameter defaults = CT__LRNPARAMETER__INIT;
    const Ct__LRNParameter *p = (l->param->lrn_param != NULL) ? l->param->lrn_param : &defaults;
    lrn_state *s = l->state;

    (void)bottom;
    if (p->local_size % 2 == 0)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "lrn_param.local_size %u must be odd",
                             p->local_size);
    s->within = (p->norm_region == CT__LRNPARAMETER__NORM_REGION__WITHIN_CHANNEL);
    s->size = p->local_size;
    s->alpha = p->alpha;
    s->beta = p->beta;
    s->k = s->within ? 1.0f : p->k;
    if (s->within && (p->k != 1.0f))
        CT_WARN("layer \"%s\" (LRN): lrn_param.k %g is not used: WITHIN_CHANNEL always has k 1",
                l->name, (double)p->k);
    return CT_OK;
}

static bool lrn_takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    const Ct__LRNParameter *r = p->lrn_param;

    if (!ct_blob_is_last(bottom[slot]) && ct_blob_is_bf16(bottom[slot]) &&
        ((bottom[slot]->data.layout.block == 0) || !ct_engine_is_auto(p->ct_kernel)))
        return false;
    return ((bottom[slot]->data.layout.order == CT_ORDER_NCHW) || ct_blob_is_last(bottom[slot])) &&
           ((r == NULL) || (r->norm_region == CT__LRNPARAMETER__NORM_REGION__ACROSS_CHANNELS));
}

/* Room for x, dy and what is made of them, of the images that are done together. */
static void reserve_wide(ct_instance *in)
{
    enum { BYTES = 4 << 20 };
    lrn_instance *r = in->state;
    const ct_tensor *x = &in->bottom[0]->data;

    r->image = (r->desc.n > 0) ? ct_tensor_stored(x) / r->desc.n : 0;
    r->images = r->desc.n;
    if ((x->dtype != CT_BF16) || ct_blob_is_last(in->bottom[0])) return;
    r->images = BYTES / (3 * (r->image + 1) * (int64_t)sizeof(float));
    if (r->images > r->desc.n) r->images = r->desc.n;
    if (r->images < 1) r->images = 1;
    ct_instance_buffer(in, SLOT_WIDE, CT_LIFETIME_CALL,
                       (size_t)(3 * r->images * r->image) * sizeof(float));
}

static ct_status lrn_reshape(const ct_layer *l, ct_instance *in)
{
    const lrn_state *s = l->state;
    lrn_instance *r = in->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    size_t work;

    if (x->ndim != 4)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the bottom %s must have 4 axes: N C H W",
                             ct_shape_str(x).text);
    ct_blob_set_like(in->top[0], x, &in->bottom[0]->data);
    r->desc = (ct_lrn_desc){ .device = l->dev->kind,
                             .n_thread = ct_engine_n_thread(l),
                             .within = s->within,
                             .n = x->dim[0],
                             .c = x->dim[1],
                             .h = x->dim[2],
                             .w = x->dim[3],
                             .block = in->bottom[0]->data.layout.block,
                             .last = ct_blob_is_last(in->bottom[0]),
                             .dtype = in->bottom[0]->data.dtype,
                             .size = s->size,
                             .alpha = s->alpha,
                             .beta = s->beta,
                             .k = s->k };
    CT_TRY(ct_lrn_pick(l, CT_RUN_BACKWARD_DATA, ct_lrn_backward_table, &r->desc, &r->backward));
    r->desc.kept = in->bottom[0]->wants_diff && ((r->backward->can & CT_LRN_CAN_REMAKE) == 0);
    CT_TRY(ct_lrn_pick(l, CT_RUN_FORWARD, ct_lrn_forward_table, &r->desc, &r->forward));
    if ((r->backward->can & CT_LRN_READS_TOP) != 0) in->backward_reads |= CT_READS_TOP;
    if (r->desc.kept || ((r->forward->can & CT_LRN_CAN_REMAKE) == 0))
        ct_instance_buffer(in, SLOT_SCALE, r->desc.kept ? CT_LIFETIME_PASS : CT_LIFETIME_CALL,
                           (size_t)ct_tensor_stored(&in->bottom[0]->data) * sizeof(float));
    else
        ct_instance_buffer(in, SLOT_SCALE, CT_LIFETIME_CALL, 0);
    work = ct_lrn_workspace(r->forward, &r->desc);
    if (in->bottom[0]->wants_diff && (ct_lrn_workspace(r->backward, &r->desc) > work))
        work = ct_lrn_workspace(r->backward, &r->desc);
    ct_instance_buffer(in, SLOT_WORK, CT_LIFETIME_CALL, work);
    reserve_wide(in);
    return CT_OK;
}

/* For one of the engines: a buffer of the call alone holds nothing that backward wants. */
static float *scale_of(const ct_instance *in, const ct_lrn_impl *impl)
{
    const ct_buffer *b = &in->buffer[SLOT_SCALE];
    bool needed = (b->keep == CT_LIFETIME_PASS) || ((impl->can & CT_LRN_CAN_REMAKE) == 0);

    return ((b->bytes > 0) && needed) ? b->data : NULL;
}

/* One engine over bf16 numbers: some images at a time become f32, and what is made of them bf16. */
static ct_status run_bf16(ct_instance *in, ct_exec *ex, const ct_lrn_impl *impl,
                          const ct_lrn_args *all)
{
    lrn_instance *r = in->state;
    ct_lrn_desc d = r->desc;
    float *x = in->buffer[SLOT_WIDE].data, *dy = x + r->images * r->image;
    float *made = dy + r->images * r->image;

    for (int64_t n = 0; n < r->desc.n; n += d.n) {
        int64_t at = n * r->image, count;
        ct_lrn_args a = { .x = x, .work = all->work };

        d.n = (r->desc.n - n < r->images) ? r->desc.n - n : r->images;
        count = d.n * r->image;
        if (all->scale != NULL) a.scale = all->scale + at;
        ct_bf16_widen_all(count, ct_num_at(all->x, true, at), x);
        if (all->dy != NULL) ct_bf16_widen_all(count, ct_num_at(all->dy, true, at), dy);
        if (all->dy != NULL) a.dy = dy, a.dx = made;
        if (all->dy == NULL) a.y = made;
        CT_TRY(impl->run(&d, ex, &a));
        ct_bf16_narrow_all(count, made, ct_num_to((all->dy != NULL) ? all->dx : all->y, true, at));
    }
    return CT_OK;
}

static ct_status run(ct_instance *in, ct_exec *ex, const ct_lrn_impl *impl, const ct_lrn_args *a)
{
    const lrn_instance *r = in->state;

    if (ct_blob_is_bf16(in->bottom[0]) && !r->desc.last) return run_bf16(in, ex, impl, a);
    return impl->run(&r->desc, ex, a);
}

static ct_status lrn_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    lrn_instance *r = in->state;

    (void)l;
    return run(in, ex, r->forward,
               &(ct_lrn_args){ .x = ct_blob_data(in->bottom[0]),
                               .y = ct_blob_data(in->top[0]),
                               .scale = scale_of(in, r->forward),
                               .work = in->buffer[SLOT_WORK].data });
}

static ct_status lrn_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    lrn_instance *r = in->state;

    (void)l;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    return run(in, ex, r->backward,
               &(ct_lrn_args){ .x = ct_blob_data(in->bottom[0]),
                               .y = ct_blob_data(in->top[0]),
                               .scale = scale_of(in, r->backward),
                               .dy = ct_blob_diff(in->top[0]),
                               .dx = ct_blob_diff(in->bottom[0]),
                               .work = in->buffer[SLOT_WORK].data });
}

static void lrn_estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const lrn_state *s = l->state;
    double n = (double)ct_tensor_count(&in->bottom[0]->data);
    double window = (double)(s->within ? 2 * s->size : s->size);
    const lrn_instance *r = in->state;

    e->engine[CT_RUN_FORWARD] = r->forward->name;
    e->engine[CT_RUN_BACKWARD_DATA] = r->backward->name;
    /* a square and an add per place of the window (separable within), the power as 4 */
    e->forward_flop = n * (2.0 * window + 7.0);
    e->backward_flop = n * (window + 12.0);
}

static const ct_layout_ops lrn_layout = { .takes = lrn_takes, .bf16 = true, .last = true };

static unsigned lrn_splits(const Ct__LayerParameter *p)
{
    const Ct__LRNParameter *q = p->lrn_param;

    return ((q != NULL) && (q->norm_region == CT__LRNPARAMETER__NORM_REGION__WITHIN_CHANNEL))
               ? CT_SPLIT_CHANNEL
               : 0;
}

const ct_layer_ops ct_layer_lrn = {
    .type = "LRN",
    .params = "lrn_param",
    .splits_of = lrn_splits,
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(lrn_state),
    .instance_state_size = sizeof(lrn_instance),
    .setup = lrn_setup,
    .reshape = lrn_reshape,
    .forward = lrn_forward,
    .backward = lrn_backward,
    .estimate = lrn_estimate,
    .on_cuda = true,
    .layout = &lrn_layout,
};
