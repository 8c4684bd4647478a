/* BatchNorm on devices: who runs its passes, and what they are given. */
#include "layers/types/batch_norm.h"
#include "layers/layer_util.h"

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

ct_status ct_batch_norm_pick(const ct_layer *l, ct_instance *in)
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

bool ct_batch_norm_pick_group(const ct_layer *l, ct_instance *in)
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

bool ct_batch_norm_over(const ct_batch_norm_plan *p)
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
    ct_batch_norm_fill(l, in, &a->back);
}

ct_status ct_batch_norm_forward_device(const ct_layer *l, ct_instance *in, ct_exec *ex)
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

ct_status ct_batch_norm_backward_device(const ct_layer *l, ct_instance *in, ct_exec *ex)
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
