#include "tests/test.h"
#include "tests/net_layers.h"
#include "tests/layer_harness.h"

#include "framework/base/rng.h"
#include "framework/proto/prototxt.h"

#include <math.h>
#include <string.h>

static int64_t count_of(const ct_blob *b)
{
    return ct_tensor_count(&b->data);
}

static ct_status like_bottom(const ct_layer *l, ct_instance *in)
{
    for (int t = 0; t < l->n_top; t++) ct_blob_set_shape(in->top[t], &in->bottom[0]->data.shape);
    return CT_OK;
}

static ct_status source_reshape(const ct_layer *l, ct_instance *in)
{
    for (int t = 0; t < l->n_top; t++) {
        const Ct__BlobShape *given = l->param->input_param->shape[t];
        ct_shape s = { .ndim = (int)given->n_dim };

        memcpy(s.dim, given->dim, given->n_dim * sizeof(s.dim[0]));
        ct_blob_set_shape(in->top[t], &s);
    }
    in->batch_local = in->top[0]->data.shape.dim[0];
    in->batch_global = in->batch_local * l->env->n_rank;
    return CT_OK;
}

static ct_status source_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    for (int t = 0; t < l->n_top; t++) {
        uint64_t key = ct_rng_key(ct_rng_hash(l->name), (uint64_t)ex->micro_step, (uint64_t)t);
        float *y = ct_blob_data(in->top[t]);

        for (int64_t i = 0; i < count_of(in->top[t]); i++)
            y[i] = 2.0f * ct_rng_uniform_at(key, (uint64_t)i) - 1.0f;
    }
    return CT_OK;
}

static ct_status linear_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__InnerProductParameter *p = l->param->inner_product_param;
    ct_shape w = { 2, { p->num_output, ct_shape_count(&bottom[0], 1, -1) } };
    ct_shape b = { 1, { p->num_output } };

    ct_layer_add_weight(l, &w, p->weight_filler);
    ct_layer_add_weight(l, &b, p->bias_filler);
    return CT_OK;
}

static ct_status linear_reshape(const ct_layer *l, ct_instance *in)
{
    ct_shape s = { 2, { in->bottom[0]->data.shape.dim[0], l->weight[1].shape.dim[0] } };

    ct_blob_set_shape(in->top[0], &s);
    return CT_OK;
}

static ct_status linear_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    int64_t n = in->top[0]->data.shape.dim[0], m = in->top[0]->data.shape.dim[1];
    int64_t k = ct_shape_count(&l->weight[0].shape, 0, -1) / m;
    const float *x = ct_blob_data(in->bottom[0]), *w = ct_blob_data(&in->weight[0]);

    (void)ex;
    for (int64_t r = 0; r < n; r++) {
        for (int64_t c = 0; c < m; c++) {
            double sum = (double)ct_blob_data(&in->weight[1])[c];

            for (int64_t i = 0; i < k; i++) sum += (double)x[r * k + i] * (double)w[c * k + i];
            ct_blob_data(in->top[0])[r * m + c] = (float)sum;
        }
    }
    return CT_OK;
}

static ct_status linear_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    int64_t n = in->top[0]->data.shape.dim[0], m = in->top[0]->data.shape.dim[1];
    int64_t k = ct_shape_count(&l->weight[0].shape, 0, -1) / m;
    const float *x = ct_blob_data(in->bottom[0]), *w = ct_blob_data(&in->weight[0]);
    const float *dy = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]), *dw = ct_blob_diff(&in->weight[0]);
    float *db = ct_blob_diff(&in->weight[1]);

    for (int64_t c = 0; (dw != NULL) && (c < m * k); c++) {
        double sum = (ct_weight_beta(in, ex, 0) != 0.0f) ? (double)dw[c] : 0.0;

        for (int64_t r = 0; r < n; r++) sum += (double)dy[r * m + c / k] * (double)x[r * k + c % k];
        dw[c] = (float)sum;
    }
    for (int64_t c = 0; (db != NULL) && (c < m); c++) {
        double sum = (ct_weight_beta(in, ex, 1) != 0.0f) ? (double)db[c] : 0.0;

        for (int64_t r = 0; r < n; r++) sum += (double)dy[r * m + c];
        db[c] = (float)sum;
    }
    for (int64_t e = 0; (dx != NULL) && (e < n * k); e++) {
        double sum = 0.0;

        for (int64_t c = 0; c < m; c++) sum += (double)dy[e / k * m + c] * (double)w[c * k + e % k];
        dx[e] = (float)sum;
    }
    return CT_OK;
}

static ct_status tanh_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l, (void)ex;
    for (int64_t i = 0; i < count_of(in->top[0]); i++)
        ct_blob_data(in->top[0])[i] = tanhf(ct_blob_data(in->bottom[0])[i]);
    return CT_OK;
}

static ct_status tanh_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l, (void)ex;
    for (int64_t i = 0; (ct_blob_diff(in->bottom[0]) != NULL) && (i < count_of(in->top[0])); i++) {
        float y = ct_blob_data(in->top[0])[i];

        ct_blob_diff(in->bottom[0])[i] = (1.0f - y * y) * ct_blob_diff(in->top[0])[i];
    }
    return CT_OK;
}

static ct_status half_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l, (void)ex;
    for (int64_t i = 0; i < count_of(in->top[0]); i++)
        ct_blob_data(in->top[0])[i] = 0.5f * ct_blob_data(in->bottom[0])[i];
    return CT_OK;
}

static ct_status half_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l, (void)ex;
    for (int64_t i = 0; (ct_blob_diff(in->bottom[0]) != NULL) && (i < count_of(in->top[0])); i++)
        ct_blob_diff(in->bottom[0])[i] = 0.5f * ct_blob_diff(in->top[0])[i];
    return CT_OK;
}

static ct_status square_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l, (void)ex;
    for (int64_t i = 0; i < count_of(in->top[0]); i++) {
        float x = ct_blob_data(in->bottom[0])[i];

        ct_blob_data(in->top[0])[i] = x * x;
    }
    return CT_OK;
}

static ct_status square_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l, (void)ex;
    for (int64_t i = 0; (ct_blob_diff(in->bottom[0]) != NULL) && (i < count_of(in->top[0])); i++)
        ct_blob_diff(in->bottom[0])[i] =
            2.0f * ct_blob_data(in->bottom[0])[i] * ct_blob_diff(in->top[0])[i];
    return CT_OK;
}

static ct_status add_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)ex;
    for (int64_t i = 0; i < count_of(in->top[0]); i++) {
        float sum = 0.0f;

        for (int b = 0; b < l->n_bottom; b++) sum += ct_blob_data(in->bottom[b])[i];
        ct_blob_data(in->top[0])[i] = sum;
    }
    return CT_OK;
}

static ct_status add_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    size_t bytes = ct_tensor_bytes(&in->top[0]->diff);

    (void)ex;
    for (int b = 0; b < l->n_bottom; b++) {
        if (ct_blob_diff(in->bottom[b]) != NULL)
            memcpy(ct_blob_diff(in->bottom[b]), ct_blob_diff(in->top[0]), bytes);
    }
    return CT_OK;
}

static ct_status copy_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)ex;
    for (int t = 0; t < l->n_top; t++) {
        if (ct_blob_data(in->top[t]) != ct_blob_data(in->bottom[0]))
            memcpy(ct_blob_data(in->top[t]), ct_blob_data(in->bottom[0]),
                   ct_tensor_bytes(&in->top[t]->data));
    }
    return CT_OK;
}

static ct_status split_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    float *dx = ct_blob_diff(in->bottom[0]);

    (void)ex;
    for (int64_t i = 0; (dx != NULL) && (i < count_of(in->bottom[0])); i++) {
        float sum = 0.0f;

        for (int t = 0; t < l->n_top; t++)
            sum += (ct_blob_diff(in->top[t]) != NULL) ? ct_blob_diff(in->top[t])[i] : 0.0f;
        dx[i] = sum;
    }
    return CT_OK;
}

static ct_status pass_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    float *dx = ct_blob_diff(in->bottom[0]), *dy = ct_blob_diff(in->top[0]);

    (void)l, (void)ex;
    if ((dx != NULL) && (dx != dy)) memcpy(dx, dy, ct_tensor_bytes(&in->top[0]->diff));
    return CT_OK;
}

static ct_status work_reshape(const ct_layer *l, ct_instance *in)
{
    size_t bytes = ct_tensor_bytes(&in->bottom[0]->data);
    size_t more = (l->param->inner_product_param != NULL)
                      ? l->param->inner_product_param->num_output * sizeof(float)
                      : 0;

    ct_instance_buffer(in, 0, CT_LIFETIME_CALL, bytes + more);
    ct_instance_buffer(in, 1, CT_LIFETIME_PASS, bytes + more);
    ct_instance_buffer(in, 2, CT_LIFETIME_ALWAYS, sizeof(float));
    return like_bottom(l, in);
}

static ct_status work_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    float *call = in->buffer[0].data, *kept = in->buffer[1].data, *always = in->buffer[2].data;

    (void)l, (void)ex;
    always[0] += 1.0f;
    for (int64_t i = 0; i < count_of(in->top[0]); i++) kept[i] = 3.0f;
    for (int64_t i = 0; i < count_of(in->top[0]); i++) call[i] = ct_blob_data(in->bottom[0])[i];
    for (int64_t i = 0; i < count_of(in->top[0]); i++)
        ct_blob_data(in->top[0])[i] = kept[i] * call[i];
    return CT_OK;
}

static ct_status work_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    float *call = in->buffer[0].data, *kept = in->buffer[1].data;

    (void)l, (void)ex;
    for (int64_t i = 0; i < count_of(in->top[0]); i++) call[i] = ct_blob_diff(in->top[0])[i];
    for (int64_t i = 0; i < count_of(in->top[0]); i++)
        ct_blob_diff(in->bottom[0])[i] = kept[i] * call[i];
    return CT_OK;
}

static ct_status stat_setup(ct_layer *l, const ct_shape *bottom)
{
    ct_shape one = { 1, { 1 } };

    (void)bottom;
    ct_layer_add_weight(l, &one, NULL)->kind = CT_WEIGHT_STATISTIC;
    return CT_OK;
}

static ct_status stat_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l, (void)ex;
    for (int64_t i = 0; i < count_of(in->top[0]); i++)
        ct_blob_data(in->top[0])[i] =
            ct_blob_data(in->bottom[0])[i] + ct_blob_data(&in->weight[0])[0];
    return CT_OK;
}

static ct_status sumsq_reshape(const ct_layer *l, ct_instance *in)
{
    ct_shape scalar = { .ndim = 0 };

    (void)l;
    ct_blob_set_shape(in->top[0], &scalar);
    return CT_OK;
}

static ct_status sumsq_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    double sum = 0.0;

    (void)l, (void)ex;
    for (int64_t i = 0; i < count_of(in->bottom[0]); i++) {
        double x = (double)ct_blob_data(in->bottom[0])[i];

        sum += 0.5 * x * x;
    }
    ct_blob_data(in->top[0])[0] = (float)sum;
    return CT_OK;
}

static ct_status sumsq_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    float w = ct_blob_diff(in->top[0])[0];

    (void)l, (void)ex;
    for (int64_t i = 0; i < count_of(in->bottom[0]); i++)
        ct_blob_diff(in->bottom[0])[i] = w * ct_blob_data(in->bottom[0])[i];
    return CT_OK;
}

/* clang-format off */
#define ONE .min_bottom = 1, .max_bottom = 1, .min_top = 1, .max_top = 1, .reshape = like_bottom
static const ct_layer_ops source = { .type = "Source", .min_top = 1, .max_top = -1, .is_data = true,
    .reshape = source_reshape, .forward = source_forward };
static const ct_layer_ops given = { .type = "Given", .min_top = 1, .max_top = -1, .is_data = true,
    .keeps_top = true, .reshape = source_reshape };
static const ct_layer_ops linear = { .type = "Linear", .min_bottom = 1, .max_bottom = 1,
    .min_top = 1, .max_top = 1, .backward_reads = CT_READS_BOTTOM, .setup = linear_setup,
    .reshape = linear_reshape, .forward = linear_forward, .backward = linear_backward };
static const ct_layer_ops tanh_ops = { .type = "Tanh", ONE, .allow_inplace = true,
    .backward_reads = CT_READS_TOP, .forward = tanh_forward, .backward = tanh_backward };
static const ct_layer_ops half = { .type = "Half", ONE, .allow_inplace = true,
    .forward = half_forward, .backward = half_backward };
static const ct_layer_ops square = { .type = "Square", ONE, .backward_reads = CT_READS_BOTTOM,
    .forward = square_forward, .backward = square_backward };
static const ct_layer_ops add = { .type = "Add", .min_bottom = 2, .max_bottom = -1, .min_top = 1,
    .max_top = 1, .reshape = like_bottom, .forward = add_forward, .backward = add_backward };
static const ct_layer_ops split = { .type = "Split", .min_bottom = 1, .max_bottom = 1,
    .min_top = 1, .max_top = -1, .alias = CT_ALIAS_DATA, .null_top_diff = true,
    .reshape = like_bottom, .forward = copy_forward, .backward = split_backward };
static const ct_layer_ops pass = { .type = "Pass", ONE, .alias = CT_ALIAS_DATA | CT_ALIAS_DIFF,
    .forward = copy_forward, .backward = pass_backward };
static const ct_layer_ops work = { .type = "Work", .min_bottom = 1, .max_bottom = 1, .min_top = 1,
    .max_top = 1, .reshape = work_reshape, .forward = work_forward, .backward = work_backward };
static const ct_layer_ops stat = { .type = "Stat", ONE, .setup = stat_setup,
    .forward = stat_forward, .backward = pass_backward };
static const ct_layer_ops stop = { .type = "Stop", ONE, .forward = copy_forward };
static const ct_layer_ops sumsq = { .type = "SumSq", .min_bottom = 1, .max_bottom = 2, .min_top = 1,
    .max_top = 1, .is_loss = true, .top_is_share = true, .no_diff_bottom = 2,
    .backward_reads = CT_READS_BOTTOM, .reshape = sumsq_reshape, .forward = sumsq_forward,
    .backward = sumsq_backward };
static const ct_layer_ops twin = { .type = "Twin", .min_bottom = 1, .max_bottom = 1, .min_top = 2,
    .max_top = 2, .reshape = like_bottom, .forward = copy_forward, .backward = split_backward };
/* clang-format on */

const ct_layer_ops *const test_net_table[] = { &source, &given, &linear, &tanh_ops, &half,
                                               &square, &add,   &split,  &pass,     &work,
                                               &stat,   &stop,  &sumsq,  &twin,     NULL };

const ct_layer_ops *const *test_full_table(const ct_layer_ops *own)
{
    enum { MOST = 300 };
    static _Thread_local const ct_layer_ops *list[MOST]; /* ranks may be threads */
    int n = 0;

    for (int i = 0; test_net_table[i] != NULL; i++) {
        if (ct_layer_find(test_net_table[i]->type) == NULL) list[n++] = test_net_table[i];
    }
    for (int i = 0; ct_layer_table[i] != NULL; i++) {
        assert_true(n < MOST - 2);
        list[n++] = ct_layer_table[i];
    }
    if (own != NULL) list[n++] = own;
    list[n] = NULL;
    return list;
}

ct_status test_net_create(const char *text, const ct_net_options *options, test_net *t_p)
{
    ct_net_options o = { .phase = CT_TRAIN };
    ProtobufCMessage *message;

    memset(t_p, 0, sizeof(*t_p));
    if (options != NULL) o = *options;
    assert_int_equal(ct_source_map_create(&t_p->map), CT_OK);
    assert_int_equal(ct_prototxt_parse(&ct__net_parameter__descriptor, "net", text, strlen(text),
                                       t_p->map, &message),
                     CT_OK);
    t_p->param = (Ct__NetParameter *)message;
    if (o.table == NULL) o.table = test_net_table;
    o.map = t_p->map;
    o.env.seed = 1;
    return ct_net_create(t_p->param, &o, &t_p->net);
}

void test_net_destroy(test_net *t)
{
    ct_net_destroy(t->net);
    ct__net_parameter__free_unpacked(t->param, NULL);
    ct_source_map_destroy(t->map);
    memset(t, 0, sizeof(*t));
}

double test_net_pass(test_net *t, int64_t step, bool accumulate)
{
    double loss;

    t->net->pass->exec.micro_step = step;
    t->net->pass->exec.accumulate = accumulate;
    assert_int_equal(ct_pass_forward(t->net->pass, &loss), CT_OK);
    assert_int_equal(ct_pass_backward(t->net->pass, NULL, NULL), CT_OK);
    return loss;
}

void test_net_refused(const char *text, const ct_net_options *options, const char *part)
{
    test_net t;
    ct_status status;
    const char *log;

    test_log_start();
    status = test_net_create(text, options, &t);
    log = test_log_stop();
    if (strstr(log, part) == NULL) fail_msg("\"%s\" is not in: %s", part, log);
    assert_true((status == CT_ERR_CONFIG) || (status == CT_ERR_SHAPE));
    test_net_destroy(&t);
}
