/* Fully connected: Y = X W^T + b, X the bottom as M x K (M: the axes before `axis`). */
#include "framework/math/math.h"
#include "layers/engine/bias/bias.h"
#include "layers/layer_types.h"

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
    const ct_math_ops *forward, *backward_data, *backward_weight;
} ip_instance;

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

/* "auto" and "blas": the device's mathematics; "ref": plain loops. */
static ct_status pick_math(const ct_layer *l, ct_run_kind kind, const ct_math_ops **math_p)
{
    const char *policy = ct_engine_policy(l, kind);

    if ((strcmp(policy, "ref") == 0) && (l->dev->kind == CT_DEVICE_CPU))
        *math_p = &ct_math_ref;
    else if ((strcmp(policy, "auto") == 0) || (strcmp(policy, "blas") == 0))
        *math_p = l->dev->math;
    else
        return ct_engine_refuse(l, kind, policy,
                                (l->dev->kind == CT_DEVICE_CPU) ? "blas, ref" : "blas");
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
    CT_TRY(pick_math(l, CT_RUN_FORWARD, &r->forward));
    CT_TRY(pick_math(l, CT_RUN_BACKWARD_DATA, &r->backward_data));
    CT_TRY(pick_math(l, CT_RUN_BACKWARD_WEIGHT, &r->backward_weight));
    r->bias_fill = ct_bias_find(ct_bias_fill_table, &r->bias_desc, "auto");
    r->bias_backward = ct_bias_find(ct_bias_backward_table, &r->bias_desc, "auto");
    if ((r->bias_fill == NULL) || (r->bias_backward == NULL))
        return ct_engine_refuse(l, CT_RUN_FORWARD, "auto", "");
    return CT_OK;
}

/* C = op(A) op(B) + beta C, row major; C is m x n, k the length of the sums. */
typedef struct matrix_product {
    bool ta, tb;
    int64_t m, n, k;
    const float *a, *b;
    int64_t lda, ldb, ldc;
    float beta, *c;
} matrix_product;

/* Products run in pieces, so that communication moves in between: of PIECE_FLOP or PIECE_BYTES, a
 * millisecond or so, but large enough for the matrix product to run at full speed. Of rows, whose
 * memory lies together, where there are many. */
#define PIECE_FLOP  2e8
#define PIECE_BYTES 2e7
enum { PIECE_LEAST = 512 /* rows or columns */ };

static int64_t count_pieces(const matrix_product *p, int64_t length)
{
    double m = (double)p->m, n = (double)p->n, k = (double)p->k;
    double wanted = 2.0 * m * n * k / PIECE_FLOP + 4.0 * (m * n + n * k + k * m) / PIECE_BYTES;
    int64_t most = length / PIECE_LEAST, n_piece = (wanted < (double)most) ? (int64_t)wanted : most;

    return (n_piece > 1) ? n_piece : 1;
}

static ct_status run_product(const ct_math_ops *math, ct_exec *ex, const matrix_product *p)
{
    bool rows = (p->m >= 2 * PIECE_LEAST);
    int64_t length = rows ? p->m : p->n;
    int64_t n_piece = (ex->dev->kind == CT_DEVICE_CPU) ? count_pieces(p, length) : 1;

    for (int64_t i = 0; i < n_piece; i++) {
        /* whole cache lines of C */
        int64_t from = length * i / n_piece / 16 * 16;
        int64_t to = (i < n_piece - 1) ? length * (i + 1) / n_piece / 16 * 16 : length;
        int64_t row = rows ? from : 0, column = rows ? 0 : from;

        CT_TRY(math->gemm(ex->stream, p->ta, p->tb, rows ? to - from : p->m,
                          rows ? p->n : to - from, p->k, 1.0f, p->a + (p->ta ? row : row * p->lda),
                          p->lda, p->b + (p->tb ? column * p->ldb : column), p->ldb, p->beta,
                          p->c + row * p->ldc + column, p->ldc));
        CT_TRY(ct_exec_poll(ex));
    }
    return CT_OK;
}

static ct_status ip_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ip_state *s = l->state;
    ip_instance *r = in->state;
    matrix_product p = { .tb = !s->transpose, .m = r->m, .n = s->n, .k = s->k };

    p.a = ct_blob_data(in->bottom[0]);
    p.lda = s->k;
    p.b = ct_blob_data(&in->weight[0]);
    p.ldb = s->transpose ? s->n : s->k;
    p.c = ct_blob_data(in->top[0]);
    p.ldc = s->n;
    p.beta = s->bias ? 1.0f : 0.0f;
    if (s->bias) /* the product then adds to it: one pass over y less than adding afterwards */
        CT_TRY(r->bias_fill->run(
            &r->bias_desc, ex, &(ct_bias_args){ .bias = ct_blob_data(&in->weight[1]), .y = p.c }));
    return run_product(r->forward, ex, &p);
}

static ct_status weight_gradient(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ip_state *s = l->state;
    ip_instance *r = in->state;
    const float *x = ct_blob_data(in->bottom[0]), *dy = ct_blob_diff(in->top[0]);
    /* N x K = dY^T X, or transposed K x N = X^T dY */
    matrix_product p = { .ta = true, .m = s->n, .n = s->k, .k = r->m };

    p.a = dy, p.lda = s->n;
    p.b = x, p.ldb = s->k;
    if (s->transpose) {
        p.m = s->k, p.n = s->n;
        p.a = x, p.lda = s->k;
        p.b = dy, p.ldb = s->n;
    }
    p.c = ct_blob_diff(&in->weight[0]);
    p.ldc = p.n;
    p.beta = ct_weight_beta(in, ex, 0);
    return run_product(r->backward_weight, ex, &p);
}

static ct_status ip_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ip_state *s = l->state;
    ip_instance *r = in->state;
    matrix_product p = { .tb = s->transpose, .m = r->m, .n = s->k, .k = s->n };

    if (ct_blob_diff(&in->weight[0]) != NULL) CT_TRY(weight_gradient(l, in, ex));
    if (s->bias && (ct_blob_diff(&in->weight[1]) != NULL))
        CT_TRY(r->bias_backward->run(&r->bias_desc, ex,
                                     &(ct_bias_args){ .dy = ct_blob_diff(in->top[0]),
                                                      .dbias = ct_blob_diff(&in->weight[1]),
                                                      .beta = ct_weight_beta(in, ex, 1) }));
    if (ct_blob_diff(in->bottom[0]) == NULL) return CT_OK;
    p.a = ct_blob_diff(in->top[0]);
    p.lda = s->n;
    p.b = ct_blob_data(&in->weight[0]);
    p.ldb = s->transpose ? s->n : s->k;
    p.c = ct_blob_diff(in->bottom[0]);
    p.ldc = s->k;
    return run_product(r->backward_data, ex, &p);
}

static void ip_estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    const ip_state *s = l->state;
    const ip_instance *r = in->state;
    double product = 2.0 * (double)r->m * (double)s->n * (double)s->k;
    const ct_math_ops *const math[CT_N_RUN] = { r->forward, r->backward_data, r->backward_weight };

    for (int k = 0; k < CT_N_RUN; k++) e->engine[k] = (math[k] == &ct_math_ref) ? "ref" : "blas";
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
