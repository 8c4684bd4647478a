/* Convolution with groups, strides, padding and dilation over any number of axes; n bottoms share
 * the weights. DepthwiseConvolution is the same with a group for each channel. */
#include "framework/base/simd.h"
#include "layers/types/conv_geometry.h"
#include "layers/engine/bias/bias.h"
#include "layers/engine/relu/relu.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

typedef struct conv_instance {
    ct_conv_desc desc;
    ct_bias_desc bias_desc;
    const ct_conv_impl *forward, *backward_data, *backward_weight;
    const ct_bias_impl *bias_backward;
    ct_relu_desc relu_desc; /* of the tail */
    const ct_relu_impl *relu_forward, *relu_backward;
} conv_instance;

enum { SLOT_WORK };

/* Where a part's bottom comes cut, the whole's: by inputs, and in groups, of which each part has
 * some. */
static ct_status widen(const ct_layer *l, bool depthwise, ct_shape *x)
{
    const Ct__ConvolutionParameter *p = l->param->convolution_param;
    bool by_input = ct_layer_is_split(l, CT__PARALLEL_LAYER_PARAMETER__SPLIT__INPUT);
    int axis;

    if (p == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "convolution_param is missing");
    if ((ct_layer_narrowed(l) == NULL) || !(by_input || depthwise || (p->group > 1))) return CT_OK;
    CT_TRY(ct_layer_axis(l, x, p->axis, "convolution_param.axis", &axis));
    return ct_layer_widen(l, axis, x);
}

/* group 0: the prototxt's. */
static ct_status set_up(ct_layer *l, const ct_shape *bottom, const ct_shape *whole, int64_t group)
{
    ct_conv_geometry *s = l->state;
    ct_cut groups;

    if (l->n_bottom != l->n_top)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%d bottoms need as many tops, not %d", l->n_bottom,
                             l->n_top);
    CT_TRY(ct_conv_read_geometry(l, whole, group, s));
    CT_TRY(ct_conv_add_weights(l, s, s->m, s->c / s->group));
    s->m = l->weight[0].shape.dim[0];
    s->c = bottom[0].dim[s->axis];
    if (s->group == 1) return CT_OK;
    CT_TRY(ct_layer_cut(l, &(ct_shape){ 1, { s->group } }, 0, &groups));
    s->group = ct_cut_shape(&groups).dim[0];
    return CT_OK;
}

static ct_status conv_setup(ct_layer *l, const ct_shape *bottom)
{
    ct_shape whole = bottom[0];

    CT_TRY(widen(l, false, &whole));
    return set_up(l, bottom, &whole, 0);
}

static bool is_choice(const char *policy)
{
    return (strcmp(policy, "auto") == 0) || (strcmp(policy, "blocked") == 0) ||
           (strcmp(policy, "winograd") == 0) || (strcmp(policy, "fold") == 0) ||
           (strcmp(policy, "onednn") == 0);
}

static bool is_depthwise(const Ct__LayerParameter *p)
{
    return (p->type != NULL) && (strcmp(p->type, ct_layer_depthwise_convolution.type) == 0);
}

/* Groups and outputs of a layer, or of a part, with so many channels. */
static int64_t group_of(const Ct__LayerParameter *p, int64_t channels, int64_t *m_p)
{
    const Ct__ConvolutionParameter *c = p->convolution_param;
    const Ct__LayerPart *part = p->part;
    int64_t all = 0;

    *m_p = c->num_output;
    for (size_t i = 0; (part != NULL) && (i < part->n_piece); i++) all += part->piece[i];
    if ((all < 1) || (!is_depthwise(p) && (c->group <= 1)))
        return is_depthwise(p) ? channels : c->group;
    *m_p = *m_p * channels / all;
    return is_depthwise(p) ? channels : c->group * channels / all;
}

/* Channels last, as devices have them: all bottoms so. */
static bool takes_last(const Ct__LayerParameter *p, const ct_blob *const *bottom)
{
    for (size_t i = 0; i < p->n_bottom; i++) {
        if (!ct_blob_is_last(bottom[i])) return false;
    }
    return ct_engine_is_auto(p->ct_kernel) && (p->convolution_param != NULL) &&
           ct_layer_is_channels(&bottom[0]->data.shape, p->convolution_param->axis);
}

/* Blocks as wide as this processor's vectors, in groups that are whole blocks or one channel. */
static bool conv_takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    const Ct__ConvolutionParameter *c = p->convolution_param;
    const ct_tensor *x = &bottom[slot]->data;
    const Ct__KernelParameter *k = p->ct_kernel;
    int64_t block = ct_simd_block(), m = 0;
    int64_t group = (c != NULL) ? group_of(p, x->shape.dim[1], &m) : 0;

    if (ct_blob_is_last(bottom[slot])) return takes_last(p, bottom);

    if ((group < 1) || !ct_layer_is_channels(&x->shape, c->axis) ||
        !ct_layout_equal(x->layout, (ct_layout){ CT_ORDER_NCHW, (int)block }))
        return false;
    if ((k != NULL) &&
        !(is_choice(k->forward) && is_choice(k->backward_data) && is_choice(k->backward_weight)))
        return false;
    for (size_t i = 0; i < p->n_bottom; i++) {
        if (!ct_layout_equal(bottom[i]->data.layout, x->layout)) return false;
        if ((x->dtype == CT_BF16) && !ct_blob_is_bf16(bottom[i])) return false;
    }
    if ((x->dtype == CT_BF16) && (group > 1) && (x->shape.dim[1] == group)) return false;
    return (group == 1) || ((x->shape.dim[1] == group) && (m == group)) ||
           ((x->shape.dim[1] % (block * group) == 0) && (m % (block * group) == 0));
}

/* Tops in blocks: after bottoms in blocks; and after images, which have few channels and get no
 * gradient, unless what fills up the blocks of the tops would cost more than they bring. */
static int top_block(const ct_layer *l, const ct_conv_desc *d, bool wants_dx)
{
    const ct_conv_geometry *s = l->state;
    bool images = (s->axis == 1) && (s->n == 2);
    int64_t block = ct_simd_block(), filled = (d->m + block - 1) / block * block;
    ct_conv_desc blocked = *d;
    bool any = is_choice(ct_engine_policy(l, CT_RUN_FORWARD)) &&
               is_choice(ct_engine_policy(l, CT_RUN_BACKWARD_WEIGHT)) &&
               is_choice(ct_engine_policy(l, CT_RUN_BACKWARD_DATA));

    blocked.y_block = (int)block;
    if (d->x_block > 0) return (int)block;
    if (!any || wants_dx || !images || (5 * filled > 8 * d->m)) return 0;
    return (ct_conv_find(ct_conv_forward_table, &blocked, "blocked") != NULL) ? (int)block : 0;
}

static const ct_conv_impl *const *const table_of[CT_N_RUN] = { ct_conv_forward_table,
                                                               ct_conv_backward_data_table,
                                                               ct_conv_backward_weight_table };

/* Tops in 16 bits, channels last: on devices where products are of 16 bits. Depthwise convolutions,
 * which make no products, only go on with what they are given. */
static bool top_last(const ct_layer *l, const ct_conv_desc *d)
{
    const ct_conv_geometry *s = l->state;
    ct_conv_desc last = *d;

    last.y_last = true;
    if ((d->device == CT_DEVICE_CPU) || (ct_dtype_of(d->operand) == CT_F32) || (s->axis != 1) ||
        (s->n != 2) || !ct_engine_is_auto(l->param->ct_kernel) ||
        (!d->x_last && (d->group > 1) && (d->group == d->c)))
        return false;
    for (int k = 0; k < CT_N_RUN; k++) {
        if (ct_conv_find(table_of[k], &last, "auto") == NULL) return false;
    }
    return true;
}

/* Tops in bf16: where products are, and every engine that is asked for can. */
static bool top_bf16(const ct_layer *l, const ct_conv_desc *d)
{
    ct_conv_desc narrow = *d;

    narrow.y_bf16 = true;
    for (int k = 0; k < CT_N_RUN; k++) {
        if ((k == CT_RUN_BACKWARD_DATA) && (d->x_block == 0)) continue; /* images get none */
        if (ct_conv_find(table_of[k], &narrow, ct_engine_policy(l, (ct_run_kind)k)) == NULL)
            return false;
    }
    return d->bf16 && (d->y_block > 0);
}

/* Outputs of the largest tile, as ct_conv_desc has it. */
static int winograd_tile(const ct_layer *l)
{
    if (l->env->winograd == CT__SOLVER_PARAMETER__WINOGRAD__NEVER) return 0;
    return (l->env->winograd == CT__SOLVER_PARAMETER__WINOGRAD__F2) ? 2 : 4;
}

static ct_status make_desc(const ct_layer *l, const ct_blob *bottom, ct_conv_desc *d)
{
    const ct_conv_geometry *s = l->state;
    const ct_shape *x = &bottom->data.shape;

    *d = (ct_conv_desc){ .device = l->dev->kind,
                         .n_thread = ct_engine_n_thread(l),
                         .n = ct_shape_count(x, 0, s->axis),
                         .group = s->group,
                         .c = s->c,
                         .m = s->m,
                         .bf16 = ct_engine_bf16(l),
                         .operand = ct_engine_operand(l),
                         .winograd = winograd_tile(l),
                         .as_one = l->env->rows_vary && l->env->deterministic,
                         .x_block = bottom->data.layout.block,
                         .x_bf16 = ct_blob_is_bf16(bottom) && !ct_blob_is_last(bottom),
                         .x_last = ct_blob_is_last(bottom) };
    CT_TRY(ct_conv_fill_desc(l, s, x->dim + s->axis + 1, d));
    d->y_block = top_block(l, d, bottom->wants_diff);
    d->y_bf16 = top_bf16(l, d);
    d->y_last = top_last(l, d);
    return CT_OK;
}

static ct_status conv_reshape(const ct_layer *l, ct_instance *in)
{
    ct_status (*pick)(const ct_layer *, ct_run_kind, const ct_conv_impl *const *,
                      const ct_conv_desc *, const ct_conv_impl **);
    conv_instance *r = in->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    const ct_conv_geometry *s = l->state;
    int64_t out[CT_MAX_DIM];
    size_t work = 0;
    ct_conv_desc *d = &r->desc;
    ct_shape top;

    CT_TRY(ct_conv_check_bottoms(l, in, s));
    CT_TRY(make_desc(l, in->bottom[0], d));
    for (int i = 0; i < s->n; i++) out[i] = ct_conv_out_of(s, d, i);
    top = ct_conv_shape(s, x, s->m, out);
    for (int i = 0; i < l->n_bottom; i++)
        ct_blob_set_storage(in->top[i], &top,
                            (ct_layout){ d->y_last ? CT_ORDER_NHWC : CT_ORDER_NCHW, d->y_block },
                            d->y_last   ? ct_dtype_of(d->operand)
                            : d->y_bf16 ? CT_BF16
                                        : CT_F32);
    r->bias_desc = (ct_bias_desc){ .device = d->device,
                                   .n_thread = d->n_thread,
                                   .n = d->n,
                                   .c = d->m,
                                   .s = ct_shape_count(&top, s->axis + 1, -1),
                                   .block = d->y_block,
                                   .bf16 = d->y_bf16,
                                   .last = d->y_last,
                                   .dtype = in->top[0]->data.dtype };
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
        work = ct_conv_larger(work, ct_conv_workspace(r->backward_data, d));
    }
    if (in->top[0]->wants_diff)
        work = ct_conv_larger(work, ct_conv_workspace(r->backward_weight, d));
    ct_instance_buffer(in, SLOT_WORK, CT_LIFETIME_CALL, work);
    return CT_OK;
}

static ct_status conv_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_conv_geometry *s = l->state;
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
static ct_status weight_gradient(ct_instance *in, ct_exec *ex, int i, const float *dy)
{
    conv_instance *r = in->state;
    ct_conv_args a = { .x = ct_blob_data(in->bottom[i]),
                       .dy = dy,
                       .dweight = ct_blob_diff(&in->weight[0]),
                       .beta = (i > 0) ? 1.0f : ct_weight_beta(in, ex, 0),
                       .work = in->buffer[SLOT_WORK].data };

    return (a.dweight != NULL) ? r->backward_weight->run(&r->desc, ex, &a) : CT_OK;
}

/* Likewise, with what the tail's ReLU, whose values are `top`, makes of dy. */
static ct_status bias_gradient(ct_instance *in, ct_exec *ex, int i, float *dy, const float *top)
{
    conv_instance *r = in->state;
    ct_bias_args b = { .dy = dy,
                       .dbias = ct_blob_diff(&in->weight[1]),
                       .beta = (i > 0) ? 1.0f : ct_weight_beta(in, ex, 1),
                       .top = top,
                       .masked = dy };

    return r->bias_backward->run(&r->bias_desc, ex, &b);
}

/* dy is masked in place, nobody else reads it: while the bias adds it up, where it can. */
static ct_status relu_and_bias(const ct_layer *l, ct_instance *in, ct_exec *ex, int i, float *dy)
{
    const ct_conv_geometry *s = l->state;
    conv_instance *r = in->state;
    const float *top = NULL;
    bool bias = s->bias && (ct_blob_diff(&in->weight[1]) != NULL);

    if ((in->tail != NULL) && !in->tail->relu_done) top = ct_blob_data(ct_instance_top(in));
    if ((top != NULL) && !(bias && ((r->bias_backward->can & CT_BIAS_CAN_RELU) != 0))) {
        CT_TRY(r->relu_backward->run(&r->relu_desc, ex,
                                     &(ct_relu_args){ .x = top, .dy = dy, .dx = dy }));
        top = NULL;
    }
    return bias ? bias_gradient(in, ex, i, dy, top) : CT_OK;
}

static ct_status conv_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    conv_instance *r = in->state;

    for (int i = 0; i < l->n_bottom; i++) {
        float *dy = ct_blob_diff((i == 0) ? ct_instance_top(in) : in->top[i]);

        CT_TRY(relu_and_bias(l, in, ex, i, dy));
        CT_TRY(weight_gradient(in, ex, i, dy));
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
                                   .count = ct_tensor_stored(&in->top[0]->data),
                                   .bf16 = r->desc.y_bf16,
                                   .dtype = in->top[0]->data.dtype };
    r->relu_forward = ct_relu_find(ct_relu_forward_table, &r->relu_desc, "auto");
    r->relu_backward = ct_relu_find(ct_relu_backward_table, &r->relu_desc, "auto");
    if ((l->n_bottom != 1) || (r->relu_forward == NULL) || (r->relu_backward == NULL)) return false;
    in->backward_reads = CT_READS_BOTTOM;
    in->tail->last->backward_reads = CT_READS_TOP;
    return true;
}

static const char *name_of(const ct_conv_impl *impl, const ct_conv_desc *d)
{
    /* channels that are alone in their group stay f32 */
    bool alone = (d->x_block > 0) && (d->group > 1) && (d->c == d->group);
    bool rounds = ((impl->can & CT_CONV_CAN_BF16) != 0) && !alone;

    return ct_engine_name(impl->name, rounds ? d->operand : CT_OPERAND_F32);
}

static void conv_estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const conv_instance *r = in->state;
    const ct_conv_desc *d = &r->desc;
    double outputs = (double)ct_tensor_count(&in->top[0]->data);
    double product = 2.0 * outputs * (double)ct_shape_count(&l->weight[0].shape, 1, -1);
    double bias = (l->n_weight > 1) ? outputs : 0.0;

    e->engine[CT_RUN_FORWARD] = name_of(r->forward, d);
    e->engine[CT_RUN_BACKWARD_WEIGHT] = name_of(r->backward_weight, d);
    if (r->backward_data != NULL) e->engine[CT_RUN_BACKWARD_DATA] = name_of(r->backward_data, d);
    for (int i = 0; i < l->n_bottom; i++) {
        e->forward_flop += product + bias;
        e->backward_flop += product + bias + (in->bottom[i]->wants_diff ? product : 0.0);
    }
}

static ct_status depthwise_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__ConvolutionParameter *p = l->param->convolution_param;
    ct_shape whole = bottom[0];
    int axis;

    CT_TRY(widen(l, true, &whole));
    CT_TRY(ct_layer_axis(l, &whole, p->axis, "convolution_param.axis", &axis));
    if (p->has_group && (p->group != whole.dim[axis]))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "group %u, but each of the %lld channels is a group of its own",
                             p->group, (long long)whole.dim[axis]);
    return set_up(l, bottom, &whole, whole.dim[axis]);
}

/* It leaves nothing besides: who takes the ReLU must know it. */
static void conv_offer_relu(const ct_layer *l, const ct_instance *in, ct_relu_share *share)
{
    (void)l, (void)in, (void)share;
}

static const ct_layout_ops conv_layout = { .takes = conv_takes, .bf16 = true, .last = true };
static const ct_fusion_ops conv_fusion = {
    .epilogues = 1u << CT_EPILOGUE_RELU,
    .join = conv_join,
    .offer_relu = conv_offer_relu,
};

/* Channels are axis 1. Where each is a group of its own it acts on each channel. */
static unsigned conv_splits(const Ct__LayerParameter *l)
{
    const Ct__ConvolutionParameter *p = l->convolution_param;

    if ((p == NULL) || (p->axis != 1)) return 0;
    if (p->group <= 1) return CT_SPLIT_OUTPUT | CT_SPLIT_INPUT;
    return (p->group == p->num_output) ? CT_SPLIT_CHANNEL : CT_SPLIT_GROUP;
}

static unsigned depthwise_splits(const Ct__LayerParameter *l)
{
    const Ct__ConvolutionParameter *p = l->convolution_param;

    return ((p != NULL) && (p->axis == 1)) ? CT_SPLIT_CHANNEL : 0;
}

#define CONVOLUTION(_type, _setup, _splits)                                                        \
    {                                                                                              \
        .type = _type, .params = "convolution_param", .min_bottom = 1, .max_bottom = -1,           \
        .min_top = 1, .max_top = -1, .backward_reads = CT_READS_BOTTOM,                            \
        .state_size = sizeof(ct_conv_geometry), .instance_state_size = sizeof(conv_instance),      \
        .setup = _setup, .reshape = conv_reshape, .forward = conv_forward,                         \
        .backward = conv_backward, .estimate = conv_estimate, .layout = &conv_layout,              \
        .fusion = &conv_fusion, .on_cuda = true, .splits_of = _splits,                             \
    }

const ct_layer_ops ct_layer_convolution = CONVOLUTION("Convolution", conv_setup, conv_splits);
const ct_layer_ops ct_layer_depthwise_convolution =
    CONVOLUTION("DepthwiseConvolution", depthwise_setup, depthwise_splits);
