/* SPP: pooling into 1 x 1, 2 x 2, 4 x 4 ... windows, so that any plane becomes a vector of one
 * length. Windows are those of a pooling with kernel = stride = ceil(size / bins). */
#include "framework/math/math.h"
#include "layers/engine/pool/pool.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

enum { MASK, WORK, SUM }; /* SUM: gradient of one sample by one level */
enum { MOST_LEVELS = 16 };

typedef struct spp_level {
    ct_pool_desc desc; /* of one sample */
    const ct_pool_impl *forward, *backward;
    int64_t at; /* in a sample of the top */
} spp_level;

typedef struct spp_plan {
    int n_level;
    int64_t samples, in, out; /* in, out: numbers of a sample */
    spp_level level[MOST_LEVELS];
} spp_plan;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__SPPParameter *p = l->param->spp_param;

    (void)bottom;
    if ((p == NULL) || (p->pyramid_height == 0) || (p->pyramid_height > MOST_LEVELS))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "spp_param.pyramid_height %u: the number of levels must be 1 to %d",
                             (p != NULL) ? p->pyramid_height : 0, MOST_LEVELS);
    if (p->pool == CT__SPPPARAMETER__POOL_METHOD__STOCHASTIC)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "spp_param.pool: STOCHASTIC is not supported; there are MAX and AVE");
    return CT_OK;
}

/* Windows of an axis of `in` in 2^k bins; with their padding they cover it just so. */
static ct_status windows(const ct_layer *l, int k, int64_t in, int64_t *kernel_p, int64_t *pad_p)
{
    int64_t bins = (int64_t)1 << k, kernel = (in + bins - 1) / bins;
    int64_t pad = (kernel * bins - in + 1) / 2;

    if (pad >= kernel) /* Caffe's pooling does not take that either */
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "%lld bins on an axis of %lld need a padding of %lld, no less than "
                             "their size %lld: fewer levels, or other planes",
                             (long long)bins, (long long)in, (long long)pad, (long long)kernel);
    *kernel_p = kernel;
    *pad_p = pad;
    return CT_OK;
}

static ct_status plan_level(const ct_layer *l, const ct_shape *x, int k, spp_level *level)
{
    bool mean = l->param->spp_param->pool == CT__SPPPARAMETER__POOL_METHOD__AVE;
    ct_pool_desc *d = &level->desc;

    *d = (ct_pool_desc){ .device = l->dev->kind,
                         .n_thread = ct_engine_n_thread(l),
                         .method = mean ? CT_POOL_AVE : CT_POOL_MAX,
                         .planes = x->dim[1],
                         .h = x->dim[2],
                         .w = x->dim[3],
                         .oh = (int64_t)1 << k,
                         .ow = (int64_t)1 << k };
    CT_TRY(windows(l, k, d->h, &d->kh, &d->ph));
    CT_TRY(windows(l, k, d->w, &d->kw, &d->pw));
    d->sh = d->kh;
    d->sw = d->kw;
    CT_TRY(ct_pool_pick(l, CT_RUN_FORWARD, ct_pool_forward_table, d, &level->forward));
    return ct_pool_pick(l, CT_RUN_BACKWARD_DATA, ct_pool_backward_table, d, &level->backward);
}

/* A mask is of bytes or of int32_t: there is room for both, so that levels may differ. */
static void *mask_at(const ct_instance *in, int64_t at)
{
    return (int32_t *)in->buffer[MASK].data + at;
}

static size_t larger(size_t a, size_t b)
{
    return (a > b) ? a : b;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *x = &in->bottom[0]->data.shape;
    spp_plan *plan = in->state;
    ct_shape top = { 2, { 0 } };
    size_t work = 0;

    if (x->ndim != 4)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the bottom %s must have 4 axes: N C H W",
                             ct_shape_str(x).text);
    if ((x->dim[2] < 1) || (x->dim[3] < 1) || (x->dim[2] > INT32_MAX / x->dim[3]))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "planes of %lld x %lld: empty or too large",
                             (long long)x->dim[2], (long long)x->dim[3]);
    *plan = (spp_plan){ .n_level = (int)l->param->spp_param->pyramid_height,
                        .samples = x->dim[0],
                        .in = ct_shape_count(x, 1, -1) };
    for (int k = 0; k < plan->n_level; k++) {
        spp_level *level = &plan->level[k];

        CT_TRY(plan_level(l, x, k, level));
        level->at = plan->out;
        plan->out += x->dim[1] * level->desc.oh * level->desc.ow;
        work = larger(work, ct_pool_workspace(level->forward, &level->desc));
        work = larger(work, ct_pool_workspace(level->backward, &level->desc));
    }
    top.dim[0] = x->dim[0];
    top.dim[1] = plan->out;
    if (plan->n_level == 1) top = (ct_shape){ 4, { x->dim[0], x->dim[1], 1, 1 } };
    ct_blob_set_shape(in->top[0], &top);
    ct_instance_buffer(in, MASK, in->bottom[0]->wants_diff ? CT_LIFETIME_PASS : CT_LIFETIME_CALL,
                       (size_t)(plan->samples * plan->out) * sizeof(int32_t));
    ct_instance_buffer(in, WORK, CT_LIFETIME_CALL, work);
    ct_instance_buffer(in, SUM, CT_LIFETIME_CALL, (size_t)plan->in * sizeof(float));
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const spp_plan *plan = in->state;

    (void)l;
    for (int64_t n = 0; n < plan->samples; n++) {
        for (int k = 0; k < plan->n_level; k++) {
            const spp_level *level = &plan->level[k];
            int64_t at = n * plan->out + level->at;

            CT_TRY(level->forward->run(
                &level->desc, ex,
                &(ct_pool_args){ .x = ct_blob_data(in->bottom[0]) + n * plan->in,
                                 .y = ct_blob_data(in->top[0]) + at,
                                 .mask = mask_at(in, at),
                                 .work = in->buffer[WORK].data }));
        }
        CT_TRY(ct_exec_poll(ex));
    }
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const spp_plan *plan = in->state;
    float *sum = in->buffer[SUM].data;

    (void)l;
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    for (int64_t n = 0; n < plan->samples; n++) {
        float *dx = ct_blob_diff(in->bottom[0]) + n * plan->in;

        for (int k = 0; k < plan->n_level; k++) {
            const spp_level *level = &plan->level[k];
            int64_t at = n * plan->out + level->at;

            CT_TRY(level->backward->run(&level->desc, ex,
                                        &(ct_pool_args){ .mask = mask_at(in, at),
                                                         .work = in->buffer[WORK].data,
                                                         .dy = ct_blob_diff(in->top[0]) + at,
                                                         .dx = (k == 0) ? dx : sum }));
            if (k == 0) continue;
            CT_TRY(ex->dev->math->axpy(ex->stream, plan->in, 1.0f, sum, dx));
        }
        CT_TRY(ct_exec_poll(ex));
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_spp = {
    .type = "SPP",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .instance_state_size = sizeof(spp_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .on_cuda = true,
};
