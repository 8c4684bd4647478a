/* Fully connected: Y = X W^T + b, X the bottom as M x K (M: the axes before `axis`). On devices a
 * ReLU behind it runs with it, and one in front of it, where another such layer made its bits, in
 * the product that makes the bottom's gradient. On the CPU a SoftmaxWithLoss behind it does
 * (head_loss.h), and a function of each element, such as GELU, with the bias: one pass over the
 * rows adds it and applies the function, and backward's sums the bias's gradient. */
#include "layers/types/layer_types.h"
#include "layers/types/device_kernels.h"
#include "layers/types/head_loss.h"

#include "layers/layer_util.h"
#include "layers/types/product.h"

/* InnerProduct's state, and what it does with values of 16 bits.
 *
 * Values of 16 bits, channels last, it multiplies as they lie, and hands on such where a reader
 * takes them. Of several places each they are turned to plain order first, which is what weights
 * are for: a batch is less to turn than weights and their gradients. Where operands have 16 bits
 * weights are rounded once a pass, for forward and for the bottom's gradient.
 *
 * On the CPU it takes rows of bf16 numbers, and makes rows of tokens so for readers that take them.
 * Products round and pack the weights once for all rows. Tests with few rows, which would do so
 * again and again, keep what is packed until the weights change; so do nets for forward alone whose
 * rows vary in number.
 */

typedef struct ip_state {
    int axis;
    int64_t n, k;   /* outputs, inputs                                      */
    bool transpose; /* weight is K x N instead of N x K                     */
    bool bias;
} ip_state;

typedef struct ip_instance {
    int64_t m;
    int64_t places; /* > 1: of a bottom that is turned */
    ct_product forward, backward_data, backward_weight;
    const ct_relu_impl *relu_backward; /* of the tail                            */
    ct_status status;                  /* of what was made behind reshape's back */
    bool makes_bits;                   /* where the tail's ReLU passed, for the reader of its top */
    bool bias_done;                    /* that reader makes the bias's gradient                   */
    ct_head head;                      /* with the loss of the tail                               */
    const ct_neuron_state *each;       /* the function of the tail; NULL: none                    */
    int64_t kept_version;              /* of the weights in IP_KEPT, from 1 on; 0: there are none */
} ip_instance;

/** Buffers: of the products, and of the sums for the bias; where the tail's ReLU passed, for who
 *  reads the top; the bottom in plain order, and its gradient; weight 0 in 16 bits; what the
 *  tail's function is applied to, in f32 without the bias; weight 0 packed for forward. */
enum {
    IP_WORK,
    IP_BITS,
    IP_PLAIN,
    IP_PLAIN_DIFF,
    IP_WEIGHT,
    IP_BEFORE = CT_HEAD_BLOCK, /* with a loss there is no function */
    IP_KEPT = CT_HEAD_PLACE + 1
};

/** As ct_layout_ops.takes. */
static bool ct_ip_takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot);
/** reshape, with r->m set: the top's shape, and the buffers but for the products'. */
static void ct_ip_prepare(const ct_layer *l, ct_instance *in, const ct_shape *top);
/** Which matrices of a product have 16 bits, behind ct_ip_prepare(): CT_NARROW_… */
static unsigned ct_ip_narrow(const ct_layer *l, const ct_instance *in, ct_run_kind kind);

/** Bottom and weight as products read them, once ct_ip_lay() has brought them there. */
static ct_status ct_ip_lay(const ct_layer *l, ct_instance *in, ct_exec *ex);
static const float *ct_ip_rows(const ct_instance *in);
static const float *ct_ip_weight(const ct_instance *in);
/** The bottom's gradient from IP_PLAIN_DIFF to its place, where the bottom is turned. */
static ct_status ct_ip_turn_back(ct_instance *in, ct_exec *ex);

/* Of parts by inputs the first one adds the bias. */
static ct_status add_weights(ct_layer *l, const Ct__InnerProductParameter *p, int64_t inputs)
{
    ip_state *s = l->state;
    bool by_input = ct_layer_is_split(l, CT__PARALLEL_LAYER_PARAMETER__SPLIT__INPUT);
    int out = s->transpose ? 1 : 0, in = 1 - out;
    ct_shape weight = { .ndim = 2 }, bias = { .ndim = 1, .dim = { p->num_output } };

    weight.dim[out] = p->num_output;
    weight.dim[in] = inputs;
    CT_TRY(ct_layer_add_part(l, &weight, by_input ? in : out, p->weight_filler));
    s->n = l->weight[0].shape.dim[out];
    s->bias = p->bias_term && (!by_input || ct_layer_is_first(l));
    if (!s->bias) return CT_OK;
    if (!by_input) return ct_layer_add_part(l, &bias, 0, p->bias_filler);
    ct_layer_add_weight(l, &bias, p->bias_filler);
    return CT_OK;
}

static ct_status ip_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__InnerProductParameter *p = l->param->inner_product_param;
    ct_shape whole = bottom[0];
    ip_state *s = l->state;

    if ((p == NULL) || !p->has_num_output || (p->num_output == 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "inner_product_param.num_output is missing or 0");
    if (!ct_shape_axis(&bottom[0], p->axis, &s->axis))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "inner_product_param.axis %d is outside a bottom of %d axes", p->axis,
                             bottom[0].ndim);
    s->k = ct_shape_count(&bottom[0], s->axis, -1);
    s->transpose = p->transpose;
    if (s->k == 0)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the bottom %s has no inputs from axis %d on",
                             ct_shape_str(&bottom[0]).text, s->axis);
    if (ct_layer_is_split(l, CT__PARALLEL_LAYER_PARAMETER__SPLIT__INPUT))
        CT_TRY(ct_layer_widen(l, s->axis, &whole));
    return add_weights(l, p, ct_shape_count(&whole, s->axis, -1));
}

/* y = x w^T, dx = dy w, and dw = dy^T x, N x K, or transposed x^T dy, K x N. */
static ct_gemm_desc shape_of(const ip_state *s, const ip_instance *r, ct_run_kind kind)
{
    bool t = s->transpose;

    if (kind == CT_RUN_FORWARD) return (ct_gemm_desc){ .tb = !t, .m = r->m, .n = s->n, .k = s->k };
    if (kind == CT_RUN_BACKWARD_DATA)
        return (ct_gemm_desc){ .tb = t, .m = r->m, .n = s->k, .k = s->n };
    return (ct_gemm_desc){ .ta = true, .m = t ? s->k : s->n, .n = t ? s->n : s->k, .k = r->m };
}

static bool has_relu(const ct_instance *in)
{
    return (in->tail != NULL) && (in->tail->of[CT_EPILOGUE_RELU] != NULL);
}

/* Whether the pass of the tail's function adds the bias; to bf16 numbers products do, before they
 * round. */
static bool adds_bias(const ct_instance *in)
{
    return (((const ip_instance *)in->state)->each != NULL) && !ct_blob_is_bf16(in->top[0]);
}

static unsigned behind_of(const ip_state *s, const ct_instance *in, ct_run_kind kind)
{
    unsigned relu = has_relu(in) ? CT_FUSE_RELU : 0;
    bool bias = s->bias && !adds_bias(in);

    if (kind == CT_RUN_FORWARD) return (bias ? CT_FUSE_BIAS : 0) | relu;
    if ((kind == CT_RUN_BACKWARD_DATA) || !s->bias) return 0;
    return s->transpose ? CT_FUSE_SUM_B : CT_FUSE_SUM_A;
}

static ct_product *product_of(ip_instance *r, ct_run_kind kind)
{
    return (kind == CT_RUN_FORWARD)         ? &r->forward
           : (kind == CT_RUN_BACKWARD_DATA) ? &r->backward_data
                                            : &r->backward_weight;
}

static ct_status make_product(const ct_layer *l, ct_instance *in, ct_run_kind kind, unsigned behind)
{
    ip_instance *r = in->state;
    ct_gemm_desc shape = shape_of(l->state, r, kind);
    unsigned narrow = ct_ip_narrow(l, in, kind);
    const ct_blob *want = (kind == CT_RUN_BACKWARD_DATA) ? in->bottom[0] : in->top[0];

    /* what never runs is worth no timing, but a wrong name is wrong all the same */
    if ((kind == CT_RUN_FORWARD) || want->wants_diff)
        return ct_product_make_narrow(l, kind, &shape, behind, narrow, product_of(r, kind));
    return ct_product_make_plain(l, kind, &shape, behind, narrow, product_of(r, kind));
}

/* Products of a pass: where rows vary in number, forward alone runs, and shaping is to be fast. */
static int n_product(const ct_layer *l)
{
    return l->env->rows_vary ? CT_RUN_FORWARD + 1 : CT_N_RUN;
}

static void reserve_work(ct_instance *in)
{
    ip_instance *r = in->state;
    size_t most = 0;

    for (int k = 0; k < n_product(in->layer); k++) {
        size_t bytes = ct_product_workspace(product_of(r, (ct_run_kind)k));

        if (bytes > most) most = bytes;
    }
    if ((r->each != NULL) && (in->buffer[IP_BEFORE].bytes > 0)) {
        size_t bytes = ct_neuron_part_bytes(r->m, ((const ip_state *)in->layer->state)->n);

        if (bytes > most) most = bytes;
    }
    if (most > 0) ct_instance_buffer(in, IP_WORK, CT_LIFETIME_CALL, most);
}

/* Memory that lasts: of tests with few rows in bf16, and where rows vary in number (rows_vary).
 * What is packed there stays when the layer is shaped again. */
static void reserve_kept(const ct_layer *l, ct_instance *in)
{
    enum { FEW = 64 };
    ip_instance *r = in->state;
    bool few = (l->phase == CT_TEST) && (r->m < FEW) && !in->bottom[0]->varies && r->forward.d.bf16;
    size_t bytes = (few || l->env->rows_vary) ? ct_product_kept_bytes(&r->forward) : 0;

    if (bytes != in->buffer[IP_KEPT].bytes) r->kept_version = 0;
    ct_instance_buffer(in, IP_KEPT, CT_LIFETIME_ALWAYS, bytes);
}

/* NULL: forward reads the weight itself. */
static const void *kept_weight(const ct_layer *l, ct_instance *in)
{
    const ip_state *s = l->state;
    ip_instance *r = in->state;
    const ct_buffer *kept = &in->buffer[IP_KEPT];

    if (kept->bytes == 0) return NULL;
    if (r->kept_version != in->weight_version + 1)
        ct_product_keep(&r->forward, ct_blob_data(&in->weight[0]), s->transpose ? s->n : s->k,
                        kept->data);
    r->kept_version = in->weight_version + 1;
    return kept->data;
}

/* A tail's loss reads the weight itself. */
static bool ip_keeps(const ct_layer *l, ct_instance *in, int w)
{
    const ip_instance *r = in->state;

    return (w == 0) && l->env->rows_vary && (r->head.loss == NULL) && (kept_weight(l, in) != NULL);
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
    r->m = ct_shape_count(x, 0, s->axis);
    ct_ip_prepare(l, in, &top);
    for (int k = 0; k < n_product(l); k++)
        CT_TRY(make_product(l, in, (ct_run_kind)k, behind_of(s, in, (ct_run_kind)k)));
    reserve_work(in);
    reserve_kept(l, in);
    return CT_OK;
}

/* ---- with the tail's function of each element */

/* What goes into it: where nobody wants the gradient, it lies where the top does. */
static float *before_each(const ct_instance *in)
{
    const ct_buffer *before = &in->buffer[IP_BEFORE];

    return (before->bytes > 0) ? before->data : ct_blob_data(ct_instance_top(in));
}

static ct_neuron_rows rows_before(const ct_instance *in)
{
    bool bf16 = ct_blob_is_bf16(in->top[0]);

    return (ct_neuron_rows){ .rows = ((const ip_instance *)in->state)->m,
                             .n = ((const ip_state *)in->layer->state)->n,
                             .x = before_each(in),
                             .bias = bf16 ? NULL : ct_blob_data(&in->weight[1]),
                             .bf16 = bf16 };
}

/* The product, and its function: of f32 rows with the bias behind it, of bf16 rows within it. */
static ct_status forward_each(const ct_instance *in, ct_exec *ex, ct_product_args *g)
{
    const ip_instance *r = in->state;
    ct_neuron_rows rows = rows_before(in);
    float *y = g->c;

    g->c = before_each(in);
    g->bias = ct_blob_data(&in->weight[1]);
    if (rows.bf16) g->each = r->each;
    g->each_y = y;
    CT_TRY(ct_product_run(&r->forward, ex, g));
    if (!rows.bf16) ct_neuron_forward(r->each, &rows, y);
    return CT_OK;
}

/* The gradient of the group's top becomes that of what the function was applied to, in place:
 * nobody else reads it. */
static void backward_each(const ct_instance *in, const ct_exec *ex)
{
    const ip_instance *r = in->state;
    float *dy = ct_blob_diff(ct_instance_top(in));
    ct_neuron_rows rows = rows_before(in);

    ct_neuron_backward(r->each, &rows,
                       &(ct_neuron_back){ .dy = dy,
                                          .dx = dy,
                                          .dbias = ct_blob_diff(&in->weight[1]),
                                          .beta = ct_weight_beta(in, ex, 1),
                                          .part = in->buffer[IP_WORK].data });
}

/* Its tops again, of what is kept. */
static bool ip_again(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ip_instance *r = in->state;
    ct_neuron_rows rows;

    (void)l;
    if ((r->each == NULL) || (in->buffer[IP_BEFORE].bytes == 0)) return false;
    if (ex == NULL) return true;
    rows = rows_before(in);
    ct_neuron_forward(r->each, &rows, ct_blob_data(ct_instance_top(in)));
    return true;
}

static ct_status ip_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ip_state *s = l->state;
    ip_instance *r = in->state;
    ct_product_args g = { .lda = s->k, .ldc = s->n, .work = in->buffer[IP_WORK].data };

    if (r->status != CT_OK) return r->status;
    if (r->head.loss != NULL) return ct_head_forward(l, in, ex, &r->head, g.work);
    CT_TRY(ct_ip_lay(l, in, ex));
    g.a = ct_ip_rows(in);
    g.b = ct_ip_weight(in);
    g.ldb = s->transpose ? s->n : s->k;
    g.kept = kept_weight(l, in);
    g.c = ct_blob_data(ct_instance_top(in));
    if (r->each != NULL) return forward_each(in, ex, &g);
    g.bias = s->bias ? ct_blob_data(&in->weight[1]) : NULL;
    g.bits = r->makes_bits ? in->buffer[IP_BITS].data : NULL;
    return ct_product_run(&r->forward, ex, &g);
}

/* The bias is added as it is. */
static bool ip_rounds(const ct_layer *l, const ct_instance *in, int w)
{
    const ip_instance *r = in->state;
    const ct_product *forward = &r->forward, *back = &r->backward_data;

    (void)l;
    if (r->head.loss != NULL) {
        forward = &r->head.product[CT_RUN_FORWARD];
        back = &r->head.product[CT_RUN_BACKWARD_DATA];
    }
    return (w == 0) && ct_product_rounds(forward) && ct_product_rounds(back);
}

/* Of the weight and the bias; either may not be wanted. */
static ct_status weight_gradient(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ip_state *s = l->state;
    ip_instance *r = in->state;
    const float *x = ct_ip_rows(in), *dy = ct_blob_diff(ct_instance_top(in));
    ct_product_args g = { .a = dy, .lda = s->n, .b = x, .ldb = s->k, .ldc = s->k };

    if (s->transpose)
        g = (ct_product_args){ .a = x, .lda = s->k, .b = dy, .ldb = s->n, .ldc = s->n };
    g.c = ct_blob_diff(&in->weight[0]);
    g.beta = ct_weight_beta(in, ex, 0);
    g.sums = (s->bias && !r->bias_done && (r->each == NULL)) ? ct_blob_diff(&in->weight[1]) : NULL;
    g.sums_beta = s->bias ? ct_weight_beta(in, ex, 1) : 0.0f;
    g.work = in->buffer[IP_WORK].data;
    if ((g.c == NULL) && (g.sums == NULL)) return CT_OK;
    return ct_product_run(&r->backward_weight, ex, &g);
}

/* The gradient of the tail's top is masked in place, nobody else reads it. */
static ct_status mask(ct_instance *in, ct_exec *ex)
{
    const ip_instance *r = in->state;
    float *dy = ct_blob_diff(ct_instance_top(in));

    if (!has_relu(in) || in->tail->relu_done) return CT_OK;
    return r->relu_backward->run(
        &r->forward.relu_desc, ex,
        &(ct_relu_args){ .x = ct_blob_data(ct_instance_top(in)), .dy = dy, .dx = dy });
}

static ct_status ip_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ip_state *s = l->state;
    ip_instance *r = in->state;
    ct_product_args g = { .lda = s->n, .ldc = s->k, .work = in->buffer[IP_WORK].data };

    if (r->head.loss != NULL) return ct_head_backward(l, in, ex, &r->head);
    if (r->each != NULL) backward_each(in, ex);
    CT_TRY(mask(in, ex));
    CT_TRY(weight_gradient(l, in, ex));
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    g.a = ct_blob_diff(ct_instance_top(in));
    g.b = ct_ip_weight(in);
    g.ldb = s->transpose ? s->n : s->k;
    g.c = (r->places > 1) ? in->buffer[IP_PLAIN_DIFF].data : ct_blob_diff(in->bottom[0]);
    if ((r->backward_data.behind & CT_FUSE_DRELU) != 0)
        g.bits = in->relu.maker->buffer[in->relu.bits].data;
    if (in->relu.bias) {
        g.sums = ct_blob_diff(&in->relu.maker->weight[1]);
        g.sums_beta = ct_weight_beta(in->relu.maker, ex, 1);
    }
    CT_TRY(ct_product_run(&r->backward_data, ex, &g));
    return ct_ip_turn_back(in, ex);
}

/* ---- a ReLU behind it, and in front of it, on devices */

/* What is made again here cannot fail loudly: forward then does. */
static bool remake(const ct_layer *l, ct_instance *in, ct_run_kind kind, unsigned more)
{
    ip_instance *r = in->state;
    ct_status status = make_product(l, in, kind, behind_of(l->state, in, kind) | more);

    if ((status != CT_OK) && (status != CT_UNSUPPORTED)) r->status = status;
    reserve_work(in);
    return status == CT_OK;
}

static bool join_loss(const ct_layer *l, ct_instance *in)
{
    const ip_state *s = l->state;
    ip_instance *r = in->state;
    size_t work;

    r->head =
        (ct_head){ .m = r->m, .n = s->n, .k = s->k, .transpose = s->transpose, .bias = s->bias };
    if (!ct_head_make(l, in, &r->head, &work)) return false;
    ct_instance_buffer(in, IP_WORK, CT_LIFETIME_CALL, work);
    in->early = true;
    return true;
}

static bool join_each(const ct_layer *l, ct_instance *in)
{
    const ip_state *s = l->state;
    ip_instance *r = in->state;
    const ct_instance *each = in->tail->of[CT_EPILOGUE_EACH];
    const ct_neuron_state *function = each->layer->state;

    /* by way of a Reorder or a Cast its bottom is another */
    if (!s->bias || (each->bottom[0] != in->top[0]) || (function->fn->reads != CT_READS_BOTTOM))
        return false;
    r->each = function;
    ct_instance_buffer(in, IP_BEFORE, CT_LIFETIME_PASS,
                       each->top[0]->wants_diff ? ct_tensor_bytes(&in->top[0]->data) : 0);
    if (!remake(l, in, CT_RUN_FORWARD, 0)) {
        r->each = NULL;
        ct_instance_buffer(in, IP_BEFORE, CT_LIFETIME_PASS, 0);
        return false;
    }
    in->backward_reads = CT_READS_BOTTOM;
    return true;
}

static ct_status ip_forward_part(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    ip_instance *r = in->state;

    return ct_head_part(l, in, ex, &r->head, in->buffer[IP_WORK].data, part);
}

static bool ip_join(const ct_layer *l, ct_instance *in)
{
    ip_instance *r = in->state;

    if (in->tail->of[CT_EPILOGUE_LOSS] != NULL) return join_loss(l, in);
    if (in->tail->of[CT_EPILOGUE_EACH] != NULL) return join_each(l, in);
    if (!remake(l, in, CT_RUN_FORWARD, 0)) return false;
    r->relu_backward = ct_relu_find(ct_relu_backward_table, &r->forward.relu_desc, "auto");
    if (r->relu_backward == NULL) return false;
    in->backward_reads = (r->places > 1) ? 0 : CT_READS_BOTTOM;
    in->tail->last->backward_reads = CT_READS_TOP;
    return true;
}

/* Whether the gradient of the bias would be a pass of its own, which the product that makes that of
 * the group's top may save: sums come with the weight's gradient in f32 alone, and where the
 * library has them. (By a plan they are a matter of time, and what the reader asks must not hang on
 * what this one chose.) A bias with a name may be another layer's, too, whose gradient would have
 * to come first. */
static bool may_leave_bias(const ct_layer *l, const ct_instance *in)
{
    const Ct__ParamSpec *bias = (l->param->n_param > 1) ? l->param->param[1] : NULL;
    const ct_product *p = &((const ip_instance *)in->state)->backward_weight;

    if (!((const ip_state *)l->state)->bias) return false;
    if ((bias != NULL) && ((bias->lr_mult == 0.0f) || (bias->name != NULL))) return false;
    if ((p->inside & CT_FUSE_SUMS) == 0) return true;
    return (p->fused == NULL) && (ct_engine_plan_of(l) == NULL);
}

static void ip_offer_relu(const ct_layer *l, const ct_instance *in, ct_relu_share *share)
{
    share->bits = IP_BITS;
    share->bias = may_leave_bias(l, in);
}

static bool ip_leave_relu(const ct_layer *l, ct_instance *in, const ct_relu_share *share)
{
    ip_instance *r = in->state;

    if (!remake(l, in, CT_RUN_FORWARD, CT_FUSE_BITS)) return false;
    ct_instance_buffer(in, IP_BITS, CT_LIFETIME_PASS, ct_product_bits(&r->forward));
    r->makes_bits = true;
    r->bias_done = share->bias;
    return true;
}

/* By the maker's bits, where the library reads them in the product that makes the gradient. */
static bool ip_take_relu(const ct_layer *l, ct_instance *in, ct_relu_share *share)
{
    if (share == NULL) {
        (void)remake(l, in, CT_RUN_BACKWARD_DATA, 0);
        return false;
    }
    if ((share->bits == 0) || !in->bottom[0]->wants_diff) return false;
    /* beside a gradient of 16 bits sums have 16, too, where a library makes them */
    share->bias = share->bias && !ct_blob_is_last(in->bottom[0]) &&
                  remake(l, in, CT_RUN_BACKWARD_DATA, CT_FUSE_DRELU | CT_FUSE_SUM_C);
    return share->bias || remake(l, in, CT_RUN_BACKWARD_DATA, CT_FUSE_DRELU);
}

static void ip_release(const ct_layer *l, ct_instance *in)
{
    ip_instance *r = in->state;

    (void)l;
    for (int k = 0; k < CT_N_RUN; k++) ct_product_drop(product_of(r, (ct_run_kind)k));
    ct_head_drop(&r->head);
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

static bool ip_apart(const ct_layer *l, const ct_instance *in, int n_axis)
{
    (void)in;
    return ((const ip_state *)l->state)->axis >= n_axis;
}

static const ct_sequence_ops inner_product_sequence = { .apart = ip_apart };
static const ct_layout_ops inner_product_layout = {
    .takes = ct_ip_takes, .last = true, .bf16 = true, .tokens = true
};
static const ct_fusion_ops inner_product_fusion = {
    .epilogues = 1u << CT_EPILOGUE_RELU | 1u << CT_EPILOGUE_EACH | 1u << CT_EPILOGUE_LOSS,
    .device_only = 1u << CT_EPILOGUE_RELU,
    .host_only = 1u << CT_EPILOGUE_EACH | 1u << CT_EPILOGUE_LOSS,
    .join = ip_join,
    .again = ip_again,
    .forward_part = ip_forward_part,
    .offer_relu = ip_offer_relu,
    .take_relu = ip_take_relu,
    .leave_relu = ip_leave_relu,
};

const ct_layer_ops ct_layer_inner_product = {
    .type = "InnerProduct",
    .params = "inner_product_param",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .backward_reads = CT_READS_BOTTOM,
    .splits = CT_SPLIT_OUTPUT | CT_SPLIT_INPUT,
    .state_size = sizeof(ip_state),
    .instance_state_size = sizeof(ip_instance),
    .setup = ip_setup,
    .reshape = ip_reshape,
    .forward = ip_forward,
    .backward = ip_backward,
    .estimate = ip_estimate,
    .rounds = ip_rounds,
    .keeps = ip_keeps,
    .release = ip_release,
    .on_cuda = true,
    .layout = &inner_product_layout,
    .fusion = &inner_product_fusion,
    .sequence = &inner_product_sequence,
};

/* ---- InnerProduct of values of 16 bits. */

/* Rows of 16 bits that products read and write as they lie begin at 16 bytes. */
enum { ROW = 8 };

/* Whether packed panels, which alone read and write bf16 numbers on the CPU, may run it. */
static bool by_panels(const Ct__KernelParameter *k)
{
    const char *way[] = { "auto", "auto", "auto" };
    bool all = true;

    if (k != NULL) way[0] = k->forward, way[1] = k->backward_data, way[2] = k->backward_weight;
    for (int i = 0; i < 3; i++)
        all = all && ((strcmp(way[i], "auto") == 0) || (strcmp(way[i], "packed") == 0));
    return all;
}

static bool ct_ip_takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    const ct_shape *x = &bottom[slot]->data.shape;

    if (ct_blob_is_bf16(bottom[slot]) && ct_layer_takes_rows(bottom[slot]))
        return by_panels(p->ct_kernel);
    return ct_blob_is_last(bottom[slot]) && (p->inner_product_param != NULL) &&
           ct_layer_is_channels(x, p->inner_product_param->axis) &&
           (ct_shape_count(x, 1, -1) % ROW == 0);
}

/* Whether weights are rounded here, not by each product. */
static bool rounds_weight(const ct_layer *l)
{
    const ip_state *s = l->state;

    return (l->dev->kind != CT_DEVICE_CPU) && (ct_dtype_of(ct_engine_operand(l)) != CT_F32) &&
           ((s->transpose ? s->n : s->k) % ROW == 0);
}

static ct_buffer_lifetime keep_if(bool backward)
{
    return backward ? CT_LIFETIME_PASS : CT_LIFETIME_CALL;
}

static void ct_ip_prepare(const ct_layer *l, ct_instance *in, const ct_shape *top)
{
    const ip_state *s = l->state;
    ip_instance *r = in->state;
    const ct_blob *x = in->bottom[0];
    size_t bytes = ct_tensor_bytes(&x->data);
    bool last = ct_blob_is_last(x), back = in->top[0]->wants_diff;

    if (last && in->read_narrow && (s->n % ROW == 0))
        ct_blob_set_like(in->top[0], top, &x->data);
    else
        ct_blob_set_shape(in->top[0], top);
    if ((s->axis >= 2) && ct_layer_makes_tokens(l, in) && by_panels(l->param->ct_kernel))
        ct_blob_set_storage(in->top[0], top, in->top[0]->data.layout, CT_BF16);
    if (rounds_weight(l))
        ct_instance_buffer(in, IP_WEIGHT, keep_if(x->wants_diff),
                           (size_t)(s->n * s->k) * sizeof(uint16_t));
    r->places = last ? ct_shape_count(&x->data.shape, 2, -1) : 1;
    if (r->places == 1) return;
    in->backward_reads = 0;
    ct_instance_buffer(in, IP_PLAIN, keep_if(back), bytes);
    if (x->wants_diff) ct_instance_buffer(in, IP_PLAIN_DIFF, CT_LIFETIME_CALL, bytes);
}

static unsigned ct_ip_narrow(const ct_layer *l, const ct_instance *in, ct_run_kind kind)
{
    const ip_state *s = l->state;
    bool x = in->bottom[0]->data.dtype != CT_F32, y = in->top[0]->data.dtype != CT_F32;
    bool t = s->transpose;
    unsigned weight = rounds_weight(l) ? CT_NARROW_B : 0;

    if (kind == CT_RUN_FORWARD) return (x ? CT_NARROW_A : 0) | weight | (y ? CT_NARROW_C : 0);
    if (kind == CT_RUN_BACKWARD_DATA) return (y ? CT_NARROW_A : 0) | weight | (x ? CT_NARROW_C : 0);
    return ((t ? x : y) ? CT_NARROW_A : 0) | ((t ? y : x) ? CT_NARROW_B : 0);
}

static ct_status ct_ip_lay(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ip_state *s = l->state;
    const ip_instance *r = in->state;
    const ct_tensor *x = &in->bottom[0]->data;

    if (in->buffer[IP_WEIGHT].bytes > 0)
        CT_TRY(ct_kernels(ex)->convert(ex, s->n * s->k, CT_F32, ct_blob_data(&in->weight[0]),
                                       ct_dtype_of(ct_engine_operand(l)),
                                       in->buffer[IP_WEIGHT].data));
    if (r->places == 1) return CT_OK;
    return ct_kernels(ex)->last_to_plain(ex, r->m, x->shape.dim[1], r->places, x->dtype, x->data,
                                         x->dtype, in->buffer[IP_PLAIN].data);
}

static const float *ct_ip_rows(const ct_instance *in)
{
    const ip_instance *r = in->state;

    return (r->places > 1) ? in->buffer[IP_PLAIN].data : ct_blob_data(in->bottom[0]);
}

static const float *ct_ip_weight(const ct_instance *in)
{
    const ct_buffer *rounded = &in->buffer[IP_WEIGHT];

    return (rounded->bytes > 0) ? rounded->data : ct_blob_data(&in->weight[0]);
}

static ct_status ct_ip_turn_back(ct_instance *in, ct_exec *ex)
{
    const ip_instance *r = in->state;
    const ct_tensor *dx = &in->bottom[0]->diff;

    if (r->places == 1) return CT_OK;
    return ct_kernels(ex)->plain_to_last(ex, r->m, dx->shape.dim[1], r->places, dx->dtype,
                                         in->buffer[IP_PLAIN_DIFF].data, dx->dtype, dx->data);
}
