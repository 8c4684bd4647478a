/* 2-D convolution with groups, strides, padding and dilation; n bottoms share the weights. */
#include "framework/base/simd.h"
#include "layers/engine/bias/bias.h"
#include "layers/engine/conv/conv.h"
#include "layers/engine/relu/relu.h"
#include "layers/layer_types.h"

typedef struct conv_state {
    int64_t m, c, group; /* outputs, inputs */
    int64_t kh, kw, sh, sw, ph, pw, dh, dw;
    bool bias;
} conv_state;

typedef struct conv_instance {
    ct_conv_desc desc;
    ct_bias_desc bias_desc;
    const ct_conv_impl *forward, *backward_data, *backward_weight;
    const ct_bias_impl *bias_backward;
    ct_relu_desc relu_desc; /* of the tail */
    const ct_relu_impl *relu_forward, *relu_backward;
} conv_instance;

enum { SLOT_WORK };

/* A repeated field of one value for both axes or one for each, or its _h and _w form. */
typedef struct pair_field {
    const char *name;
    size_t n;
    const uint32_t *list;
    bool has_h, has_w;
    uint32_t h, w;
    int64_t missing; /* value where nothing is given; < 0: that is an error */
    bool positive;
} pair_field;

static ct_status read_pair(const ct_layer *l, const pair_field *f, int64_t *h_p, int64_t *w_p)
{
    if (f->has_h || f->has_w) {
        if (f->n > 0)
            return CT_LAYER_FAIL(
                l, CT_ERR_CONFIG,
                "convolution_param has %s and also its _h or _w form: give one of them", f->name);
        if (f->has_h != f->has_w)
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                                 "convolution_param has %s for one axis only: give both _h and _w",
                                 f->name);
        *h_p = f->h;
        *w_p = f->w;
    } else if (f->n == 0) {
        if (f->missing < 0)
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "convolution_param.%s is missing", f->name);
        *h_p = *w_p = f->missing;
    } else if (f->n <= 2) {
        *h_p = f->list[0];
        *w_p = f->list[f->n - 1];
    } else {
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "convolution_param.%s has %zu values; 1 or 2 fit an image", f->name,
                             f->n);
    }
    if (f->positive && ((*h_p == 0) || (*w_p == 0)))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "convolution_param.%s %lld x %lld must be positive",
                             f->name, (long long)*h_p, (long long)*w_p);
    return CT_OK;
}

static ct_status read_geometry(const ct_layer *l, const Ct__ConvolutionParameter *p, conv_state *s)
{
    pair_field kernel = { .name = "kernel_size",
                          .n = p->n_kernel_size,
                          .list = p->kernel_size,
                          .has_h = p->has_kernel_h,
                          .has_w = p->has_kernel_w,
                          .h = p->kernel_h,
                          .w = p->kernel_w,
                          .missing = -1,
                          .positive = true };
    pair_field stride = { .name = "stride",
                          .n = p->n_stride,
                          .list = p->stride,
                          .has_h = p->has_stride_h,
                          .has_w = p->has_stride_w,
                          .h = p->stride_h,
                          .w = p->stride_w,
                          .missing = 1,
                          .positive = true };
    /* unlike the others, pad_h and pad_w have a default: one of them alone is enough */
    bool has_pad = p->has_pad_h || p->has_pad_w;
    pair_field pad = { .name = "pad",
                       .n = p->n_pad,
                       .list = p->pad,
                       .has_h = has_pad,
                       .has_w = has_pad,
                       .h = p->pad_h,
                       .w = p->pad_w };
    pair_field dilation = {
        .name = "dilation", .n = p->n_dilation, .list = p->dilation, .missing = 1, .positive = true
    };

    CT_TRY(read_pair(l, &kernel, &s->kh, &s->kw));
    CT_TRY(read_pair(l, &stride, &s->sh, &s->sw));
    CT_TRY(read_pair(l, &pad, &s->ph, &s->pw));
    return read_pair(l, &dilation, &s->dh, &s->dw);
}

static ct_status read_channels(const ct_layer *l, const Ct__ConvolutionParameter *p,
                               const ct_shape *x, conv_state *s)
{
    int axis;

    if ((x->ndim != 4) || !ct_shape_axis(x, p->axis, &axis) || (axis != 1))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "the bottom %s and axis %d: only images N C H W with axis 1 are "
                             "supported",
                             ct_shape_str(x).text, p->axis);
    if (!p->has_num_output || (p->num_output == 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "convolution_param.num_output is missing or 0");
    if (p->group == 0) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "convolution_param.group is 0");
    s->m = p->num_output;
    s->c = x->dim[1];
    s->group = p->group;
    s->bias = p->bias_term;
    if (s->c == 0) return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the bottom has no channels");
    if ((s->m % s->group != 0) || (s->c % s->group != 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "convolution_param.group %lld must divide num_output %lld and the "
                             "%lld channels of the bottom",
                             (long long)s->group, (long long)s->m, (long long)s->c);
    return CT_OK;
}

static ct_status conv_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__ConvolutionParameter *p = l->param->convolution_param;
    conv_state *s = l->state;

    if (p == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "convolution_param is missing");
    if (l->n_bottom != l->n_top)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%d bottoms need as many tops, not %d", l->n_bottom,
                             l->n_top);
    CT_TRY(read_channels(l, p, &bottom[0], s));
    CT_TRY(read_geometry(l, p, s));
    ct_layer_add_weight(l, &(ct_shape){ .ndim = 4, .dim = { s->m, s->c / s->group, s->kh, s->kw } },
                        p->weight_filler);
    if (s->bias) ct_layer_add_weight(l, &(ct_shape){ .ndim = 1, .dim = { s->m } }, p->bias_filler);
    return CT_OK;
}

static bool is_choice(const char *policy)
{
    return (strcmp(policy, "auto") == 0) || (strcmp(policy, "blocked") == 0) ||
           (strcmp(policy, "winograd") == 0);
}

/* Blocks as wide as this processor's vectors, in groups that are whole blocks or one channel. */
static bool conv_takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    const Ct__ConvolutionParameter *c = p->convolution_param;
    const ct_tensor *x = &bottom[slot]->data;
    const Ct__KernelParameter *k = p->ct_kernel;
    int64_t block = ct_simd_block(), group = (c != NULL) ? c->group : 0;

    if ((group < 1) || !ct_layout_equal(x->layout, (ct_layout){ CT_ORDER_NCHW, (int)block }))
        return false;
    if ((k != NULL) &&
        !(is_choice(k->forward) && is_choice(k->backward_data) && is_choice(k->backward_weight)))
        return false;
    for (size_t i = 0; i < p->n_bottom; i++) {
        if (!ct_layout_equal(bottom[i]->data.layout, x->layout)) return false;
    }
    return (group == 1) || ((x->shape.dim[1] == group) && (c->num_output == group)) ||
           ((x->shape.dim[1] % (block * group) == 0) && (c->num_output % (block * group) == 0));
}

/* Tops in blocks: after bottoms in blocks; and after images, which have few channels and get no
 * gradient, unless what fills up the blocks of the tops would cost more than they bring. */
static int top_block(const ct_layer *l, const ct_conv_desc *d, bool wants_dx)
{
    int64_t block = ct_simd_block(), filled = (d->m + block - 1) / block * block;
    ct_conv_desc blocked = *d;
    bool any = is_choice(ct_engine_policy(l, CT_RUN_FORWARD)) &&
               is_choice(ct_engine_policy(l, CT_RUN_BACKWARD_WEIGHT)) &&
               is_choice(ct_engine_policy(l, CT_RUN_BACKWARD_DATA));

    blocked.y_block = (int)block;
    if (d->x_block > 0) return (int)block;
    if (!any || wants_dx || (2 * filled > 3 * d->m)) return 0;
    return (ct_conv_find(ct_conv_forward_table, &blocked, "blocked") != NULL) ? (int)block : 0;
}

/* Outputs of the largest tile, as ct_conv_desc has it. */
static int winograd_tile(const ct_layer *l)
{
    if (l->env->winograd == CT__SOLVER_PARAMETER__WINOGRAD__NEVER) return 0;
    return (l->env->winograd == CT__SOLVER_PARAMETER__WINOGRAD__F2) ? 2 : 4;
}

static ct_status make_desc(const ct_layer *l, const ct_blob *bottom, ct_conv_desc *d)
{
    const conv_state *s = l->state;
    const ct_shape *x = &bottom->data.shape;

    if ((x->ndim != 4) || (x->dim[1] != s->c))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "the bottom %s does not have the %lld channels that "
                             "the weights were made for",
                             ct_shape_str(x).text, (long long)s->c);
    *d = (ct_conv_desc){ .device = l->dev->kind,
                         .n_thread = ct_engine_n_thread(l),
                         .n = x->dim[0],
                         .group = s->group,
                         .c = s->c,
                         .h = x->dim[2],
                         .w = x->dim[3],
                         .m = s->m,
                         .kh = s->kh,
                         .kw = s->kw,
                         .sh = s->sh,
                         .sw = s->sw,
                         .ph = s->ph,
                         .pw = s->pw,
                         .dh = s->dh,
                         .dw = s->dw,
                         .winograd = winograd_tile(l),
                         .x_block = bottom->data.layout.block };
    d->oh = ct_conv_out(d->h, d->kh, d->sh, d->ph, d->dh);
    d->ow = ct_conv_out(d->w, d->kw, d->sw, d->pw, d->dw);
    if ((d->oh < 1) || (d->ow < 1))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "the kernel %lld x %lld (dilation %lld x %lld) is larger than the "
                             "input %lld x %lld with pad %lld x %lld",
                             (long long)d->kh, (long long)d->kw, (long long)d->dh, (long long)d->dw,
                             (long long)d->h, (long long)d->w, (long long)d->ph, (long long)d->pw);
    d->y_block = top_block(l, d, bottom->wants_diff);
    return CT_OK;
}

static size_t larger(size_t a, size_t b)
{
    return (a > b) ? a : b;
}

static ct_status conv_reshape(const ct_layer *l, ct_instance *in)
{
    ct_status (*pick)(const ct_layer *, ct_run_kind, const ct_conv_impl *const *,
                      const ct_conv_desc *, const ct_conv_impl **);
    conv_instance *r = in->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    size_t work = 0;
    ct_conv_desc *d = &r->desc;

    CT_TRY(make_desc(l, in->bottom[0], d));
    for (int i = 0; i < l->n_bottom; i++) {
        if (!ct_shape_equal(x, &in->bottom[i]->data.shape))
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                                 "bottom %d has the shape %s, bottom 0 %s: they "
                                 "must be the same",
                                 i, ct_shape_str(&in->bottom[i]->data.shape).text,
                                 ct_shape_str(x).text);
        ct_blob_set_layout(in->top[i],
                           &(ct_shape){ .ndim = 4, .dim = { d->n, d->m, d->oh, d->ow } },
                           (ct_layout){ CT_ORDER_NCHW, d->y_block });
    }
    r->bias_desc = (ct_bias_desc){ .device = d->device,
                                   .n_thread = d->n_thread,
                                   .n = d->n,
                                   .c = d->m,
                                   .s = d->oh * d->ow,
                                   .block = d->y_block };
    r->bias_backward = ct_bias_find(ct_bias_backward_table, &r->bias_desc, "auto");
    if (r->bias_backward == NULL) return ct_engine_refuse(l, CT_RUN_BACKWARD_WEIGHT, "auto", "");
    CT_TRY(ct_conv_pick(l, CT_RUN_FORWARD, ct_conv_forward_table, d, &r->forward));
    /* what never runs is worth no timing, but a wrong name is wrong all the same */
    pick = in->top[0]->wants_diff ? ct_conv_pick : ct_conv_pick_static;
    CT_TRY(pick(l, CT_RUN_BACKWARD_WEIGHT, ct_conv_backward_weight_table, d, &r->backward_weight));
    work = ct_conv_workspace(r->forward, d);
    for (int i = 0; i < l->n_bottom; i++) {
        if (!in->bottom[i]->wants_diff) continue;
        CT_TRY(ct_conv_pick(l, CT_RUN_BACKWARD_DATA, ct_conv_backward_data_table, d,
                            &r->backward_data));
        work = larger(work, ct_conv_workspace(r->backward_data, d));
    }
    if (in->top[0]->wants_diff) work = larger(work, ct_conv_workspace(r->backward_weight, d));
    ct_instance_buffer(in, SLOT_WORK, CT_KEEP_CALL, work);
    return CT_OK;
}

static ct_status conv_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const conv_state *s = l->state;
    conv_instance *r = in->state;

    for (int i = 0; i < l->n_bottom; i++) {
        ct_conv_args a = { .x = ct_blob_data(in->bottom[i]),
                           .weight = ct_blob_data(&in->weight[0]),
                           .bias = s->bias ? ct_blob_data(&in->weight[1]) : NULL,
                           .y = ct_blob_data((i == 0) ? ct_instance_top(in) : in->top[i]),
                           .work = in->buffer[SLOT_WORK].data };

        a.relu = (in->tail != NULL) && ((r->forward->can & CT_CONV_CAN_RELU) != 0);
        CT_TRY(r->forward->run(&r->desc, ex, &a));
        if ((in->tail != NULL) && !a.relu)
            CT_TRY(r->relu_forward->run(&r->relu_desc, ex, &(ct_relu_args){ .x = a.y, .y = a.y }));
    }
    return CT_OK;
}

/* The first bottom overwrites or adds as the rule says, the others add to it. */
static ct_status backward_weights(const ct_layer *l, ct_instance *in, ct_exec *ex, int i,
                                  const float *dy)
{
    const conv_state *s = l->state;
    conv_instance *r = in->state;
    ct_conv_args a = { .x = ct_blob_data(in->bottom[i]),
                       .dy = dy,
                       .work = in->buffer[SLOT_WORK].data };
    ct_bias_args b = { .dy = a.dy };

    a.dweight = ct_blob_diff(&in->weight[0]);
    a.beta = (i > 0) ? 1.0f : ct_weight_beta(in, ex, 0);
    if (a.dweight != NULL) CT_TRY(r->backward_weight->run(&r->desc, ex, &a));
    if (!s->bias || (ct_blob_diff(&in->weight[1]) == NULL)) return CT_OK;
    b.dbias = ct_blob_diff(&in->weight[1]);
    b.beta = (i > 0) ? 1.0f : ct_weight_beta(in, ex, 1);
    return r->bias_backward->run(&r->bias_desc, ex, &b);
}

static ct_status conv_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    conv_instance *r = in->state;

    for (int i = 0; i < l->n_bottom; i++) {
        float *dy = ct_blob_diff((i == 0) ? ct_instance_top(in) : in->top[i]);

        if ((in->tail != NULL) && !in->tail->relu_done) /* in place: nobody else reads it */
            CT_TRY(r->relu_backward->run(
                &r->relu_desc, ex,
                &(ct_relu_args){ .x = ct_blob_data(ct_instance_top(in)), .dy = dy, .dx = dy }));
        CT_TRY(backward_weights(l, in, ex, i, dy));
        if (ct_blob_diff(in->bottom[i]) == NULL) continue;
        CT_TRY(r->backward_data->run(&r->desc, ex,
                                     &(ct_conv_args){ .weight = ct_blob_data(&in->weight[0]),
                                                      .dy = dy,
                                                      .dx = ct_blob_diff(in->bottom[i]),
                                                      .work = in->buffer[SLOT_WORK].data }));
    }
    return CT_OK;
}

/* A ReLU, whose sign the top tells. */
static bool conv_join(const ct_layer *l, ct_instance *in)
{
    conv_instance *r = in->state;

    r->relu_desc = (ct_relu_desc){ .device = r->desc.device,
                                   .n_thread = r->desc.n_thread,
                                   .count = ct_tensor_stored(&in->top[0]->data) };
    r->relu_forward = ct_relu_find(ct_relu_forward_table, &r->relu_desc, "auto");
    r->relu_backward = ct_relu_find(ct_relu_backward_table, &r->relu_desc, "auto");
    if ((l->n_bottom != 1) || (r->relu_forward == NULL) || (r->relu_backward == NULL)) return false;
    in->backward_reads = CT_READS_BOTTOM;
    in->tail->last->backward_reads = CT_READS_TOP;
    return true;
}

static void conv_estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const conv_instance *r = in->state;
    const ct_conv_desc *d = &r->desc;
    double outputs = (double)(d->n * d->m) * (double)(d->oh * d->ow);
    double product = 2.0 * outputs * (double)(d->c / d->group * d->kh * d->kw);
    double bias = (l->n_weight > 1) ? outputs : 0.0;

    e->engine[CT_RUN_FORWARD] = r->forward->name;
    e->engine[CT_RUN_BACKWARD_WEIGHT] = r->backward_weight->name;
    if (r->backward_data != NULL) e->engine[CT_RUN_BACKWARD_DATA] = r->backward_data->name;
    for (int i = 0; i < l->n_bottom; i++) {
        e->forward_flop += product + bias;
        e->backward_flop += product + bias + (in->bottom[i]->wants_diff ? product : 0.0);
    }
}

const ct_layer_ops ct_layer_convolution = {
    .type = "Convolution",
    .min_bottom = 1,
    .max_bottom = -1,
    .min_top = 1,
    .max_top = -1,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(conv_state),
    .instance_state_size = sizeof(conv_instance),
    .setup = conv_setup,
    .takes = conv_takes,
    .reshape = conv_reshape,
    .tails = 1u << CT_TAIL_RELU,
    .join = conv_join,
    .skips_relu = true,
    .forward = conv_forward,
    .backward = conv_backward,
    .estimate = conv_estimate,
    .on_cuda = true,
};
