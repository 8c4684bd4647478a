/* Fully connected: Y = X W^T + b, X the bottom as M x K (M: the axes before `axis`). */
#include "layers/engine/bias/bias.h"
#include "layers/layer_types.h"
#include "layers/product.h"

typedef struct ip_state {
    int axis;
    int64_t n, k;   /* outputs, inputs                                      */
    bool transpose; /* weight is K x N instead of N x K                     */
    bool bias;
} ip_state;

typedef struct ip_instance {
    int64_t m;
    ct_bias_desc bias_desc;
    const ct_bias_impl *bias_fill, *bias_backward;
    ct_product forward, backward_data, backward_weight;
} ip_instance;

enum { WORK }; /* buffer: of the products */

static ct_status ip_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__InnerProductParameter *p = l->param->inner_product_param;
    ip_state *s = l->state;
    ct_shape weight = { .ndim = 2 };

    if ((p == NULL) || !p->has_num_output || (p->num_output == 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "inner_product_param.num_output is missing or 0");
    if (!ct_shape_axis(&bottom[0], p->axis, &s->axis))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "inner_product_param.axis %d is outside a bottom of %d axes", p->axis,
                             bottom[0].ndim);
    s->n = p->num_output;
    s->k = ct_shape_count(&bottom[0], s->axis, -1);
    s->transpose = p->transpose;
    s->bias = p->bias_term;
    if (s->k == 0)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the bottom %s has no inputs from axis %d on",
                             ct_shape_str(&bottom[0]).text, s->axis);
    weight.dim[0] = s->transpose ? s->k : s->n;
    weight.dim[1] = s->transpose ? s->n : s->k;
    ct_layer_add_weight(l, &weight, p->weight_filler);
    if (s->bias) {
        ct_shape one = { .ndim = 1, .dim = { s->n } };

        ct_layer_add_weight(l, &one, p->bias_filler);
    }
    return CT_OK;
}

/* dW = dY^T X, N x K, or transposed X^T dY, K x N. */
static ct_status pick_products(const ct_layer *l, ct_instance *in)
{
    const ip_state *s = l->state;
    ip_instance *r = in->state;
    const ct_product *const all[] = { &r->forward, &r->backward_data, &r->backward_weight };
    bool t = s->transpose;
    size_t most = 0;

    CT_TRY(ct_product_pick(l, CT_RUN_FORWARD, false, !t, r->m, s->n, s->k, &r->forward));
    CT_TRY(ct_product_pick(l, CT_RUN_BACKWARD_DATA, false, t, r->m, s->k, s->n, &r->backward_data));
    CT_TRY(ct_product_pick(l, CT_RUN_BACKWARD_WEIGHT, true, false, t ? s->k : s->n, t ? s->n : s->k,
                           r->m, &r->backward_weight));
    for (int i = 0; i < 3; i++) {
        size_t bytes = ct_product_workspace(all[i]);

        if (bytes > most) most = bytes;
    }
    if (most > 0) ct_instance_buffer(in, WORK, CT_KEEP_CALL, most);
    return CT_OK;
}

static ct_status ip_reshape(const ct_layer *l, ct_instance *in)
{
    const ip_state *s = l->state;
    ip_instance *r = in->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    ct_shape top = *x;

    if ((x->ndim <= s->axis) || (ct_shape_count(x, s->axis, -1) != s->k))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "the bottom %s has %lld inputs from axis %d on, but the weights were "
                             "made for %lld",
                             ct_shape_str(x).text, (long long)ct_shape_count(x, s->axis, -1),
                             s->axis, (long long)s->k);
    top.ndim = s->axis + 1;
    top.dim[s->axis] = s->n;
    ct_blob_set_shape(in->top[0], &top);
    r->m = ct_shape_count(x, 0, s->axis);
    r->bias_desc = (ct_bias_desc){
        .device = l->dev->kind, .n_thread = ct_engine_n_thread(l), .n = r->m, .c = s->n, .s = 1
    };
    CT_TRY(pick_products(l, in));
    r->bias_fill = ct_bias_find(ct_bias_fill_table, &r->bias_desc, "auto");
    r->bias_backward = ct_bias_find(ct_bias_backward_table, &r->bias_desc, "auto");
    if ((r->bias_fill == NULL) || (r->bias_backward == NULL))
        return ct_engine_refuse(l, CT_RUN_FORWARD, "auto", "");
    return CT_OK;
}

static ct_status ip_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ip_state *s = l->state;
    ip_instance *r = in->state;
    ct_product_args g = { .lda = s->k, .ldc = s->n, .work = in->buffer[WORK].data };

    g.a = ct_blob_data(in->bottom[0]);
    g.b = ct_blob_data(&in->weight[0]);
    g.ldb = s->transpose ? s->n : s->k;
    g.c = ct_blob_data(in->top[0]);
    g.beta = s->bias ? 1.0f : 0.0f;
    if (s->bias) /* the product then adds to it: one pass over y less than adding afterwards */
        CT_TRY(r->bias_fill->run(
            &r->bias_desc, ex, &(ct_bias_args){ .bias = ct_blob_data(&in->weight[1]), .y = g.c }));
    return ct_product_run(&r->forward, ex, &g);
}

static ct_status weight_gradient(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ip_state *s = l->state;
    ip_instance *r = in->state;
    const float *x = ct_blob_data(in->bottom[0]), *dy = ct_blob_diff(in->top[0]);
    ct_product_args g = { .a = dy, .lda = s->n, .b = x, .ldb = s->k, .ldc = s->k };

    if (s->transpose)
        g = (ct_product_args){ .a = x, .lda = s->k, .b = dy, .ldb = s->n, .ldc = s->n };
    g.c = ct_blob_diff(&in->weight[0]);
    g.beta = ct_weight_beta(in, ex, 0);
    g.work = in->buffer[WORK].data;
    return ct_product_run(&r->backward_weight, ex, &g);
}

static ct_status ip_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ip_state *s = l->state;
    ip_instance *r = in->state;
    ct_product_args g = { .lda = s->n, .ldc = s->k, .work = in->buffer[WORK].data };

    if (ct_blob_diff(&in->weight[0]) != NULL) CT_TRY(weight_gradient(l, in, ex));
    if (s->bias && (ct_blob_diff(&in->weight[1]) != NULL))
        CT_TRY(r->bias_backward->run(&r->bias_desc, ex,
                                     &(ct_bias_args){ .dy = ct_blob_diff(in->top[0]),
                                                      .dbias = ct_blob_diff(&in->weight[1]),
                                                      .beta = ct_weight_beta(in, ex, 1) }));
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    g.a = ct_blob_diff(in->top[0]);
    g.b = ct_blob_data(&in->weight[0]);
    g.ldb = s->transpose ? s->n : s->k;
    g.c = ct_blob_diff(in->bottom[0]);
    return ct_product_run(&r->backward_data, ex, &g);
}

static void ip_estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const ip_state *s = l->state;
    const ip_instance *r = in->state;
    double product = 2.0 * (double)r->m * (double)s->n * (double)s->k;
    const ct_product *const way[CT_N_RUN] = { &r->forward, &r->backward_data, &r->backward_weight };

    for (int k = 0; k < CT_N_RUN; k++) e->engine[k] = ct_product_name(way[k]);
    e->forward_flop = product + (s->bias ? (double)(r->m * s->n) : 0.0);
    e->backward_flop = e->forward_flop + (in->bottom[0]->wants_diff ? product : 0.0);
}

const ct_layer_ops ct_layer_inner_product = {
    .type = "InnerProduct",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(ip_state),
    .instance_state_size = sizeof(ip_instance),
    .setup = ip_setup,
    .reshape = ip_reshape,
    .forward = ip_forward,
    .backward = ip_backward,
    .estimate = ip_estimate,
    .on_cuda = true,
};
