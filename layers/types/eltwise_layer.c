/* Eltwise and Axpy: bottoms of one shape, element by element. */
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"
#include "layers/types/norm.h"

/* ---- Eltwise: product, weighted sum or maximum of bottoms of the same shape. */

typedef struct eltwise_state {
    Ct__EltwiseParameter__EltwiseOp op;
    bool stable; /* product: multiply the other bottoms instead of dividing the top */
} eltwise_state;

/* Maximum: which bottom, a byte an element; the sum, where only the norm of the tail reads it. */
enum { WINNER, SUM };
enum { MAX_WINNER = 256 };

static float coefficient(const ct_layer *l, int i)
{
    const Ct__EltwiseParameter *p = l->param->eltwise_param;

    return ((p != NULL) && (p->n_coeff > 0)) ? p->coeff[i] : 1.0f;
}

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__EltwiseParameter *p = l->param->eltwise_param;
    eltwise_state *s = l->state;
    size_t n_coeff = (p != NULL) ? p->n_coeff : 0;

    (void)bottom;
    s->op = (p != NULL) ? p->operation : CT__ELTWISE_PARAMETER__ELTWISE_OP__SUM;
    s->stable = (p == NULL) || p->stable_prod_grad;
    if ((n_coeff != 0) && (n_coeff != (size_t)l->n_bottom))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%zu coeff for %d bottoms; one each, or none",
                             n_coeff, l->n_bottom);
    if ((n_coeff != 0) && (s->op != CT__ELTWISE_PARAMETER__ELTWISE_OP__SUM))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "coeff is for operation SUM only");
    if ((s->op == CT__ELTWISE_PARAMETER__ELTWISE_OP__MAX) && (l->n_bottom > MAX_WINNER))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "MAX of %d bottoms; at most %d", l->n_bottom,
                             MAX_WINNER);
    l->backward_reads = 0;
    if (s->op == CT__ELTWISE_PARAMETER__ELTWISE_OP__PROD)
        l->backward_reads = CT_READS_BOTTOM | (s->stable ? 0 : CT_READS_TOP);
    return CT_OK;
}

static bool is_sum(const Ct__LayerParameter *p)
{
    const Ct__EltwiseParameter *e = p->eltwise_param;

    return (e == NULL) || (e->operation == CT__ELTWISE_PARAMETER__ELTWISE_OP__SUM);
}

static bool plain_sum(const Ct__LayerParameter *p)
{
    const Ct__EltwiseParameter *e = p->eltwise_param;

    for (size_t i = 0; (e != NULL) && (i < e->n_coeff); i++) {
        if (e->coeff[i] != 1.0f) return false;
    }
    return is_sum(p);
}

/* Element by element: any order that all bottoms have; in bf16 sums alone. */
static bool takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    bool bf16 = ct_blob_is_bf16(bottom[slot]), last = ct_blob_is_last(bottom[slot]);

    if ((bf16 && !is_sum(p)) || (last && !plain_sum(p))) return false;
    if (last && (p->n_bottom > CT_ELTWISE_LAST)) return false;
    for (size_t i = 0; i < p->n_bottom; i++) {
        if (!ct_layout_equal(bottom[i]->data.layout, bottom[slot]->data.layout)) return false;
        if (bf16 && !ct_blob_is_bf16(bottom[i])) return false;
    }
    return true;
}

static bool as_epilogue(const Ct__LayerParameter *p, ct_epilogue_kind *kind_p)
{
    *kind_p = CT_EPILOGUE_SUM;
    return plain_sum(p) && (p->n_bottom == 2);
}

static ct_status eltwise_reshape(const ct_layer *l, ct_instance *in)
{
    const eltwise_state *s = l->state;
    const ct_shape *first = &in->bottom[0]->data.shape;
    bool wanted = false;

    for (int i = 0; i < l->n_bottom; i++) {
        if (!ct_shape_equal(first, &in->bottom[i]->data.shape))
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom %d has shape %s, bottom 0 has %s", i,
                                 ct_shape_str(&in->bottom[i]->data.shape).text,
                                 ct_shape_str(first).text);
        wanted = wanted || in->bottom[i]->wants_diff;
    }
    ct_blob_set_like(in->top[0], first, &in->bottom[0]->data);
    if (plain_sum(l->param)) in->over = ~0u;
    ct_instance_buffer(in, WINNER, CT_LIFETIME_PASS,
                       (wanted && (s->op == CT__ELTWISE_PARAMETER__ELTWISE_OP__MAX))
                           ? (size_t)ct_tensor_stored(&in->top[0]->data)
                           : 0);
    return CT_OK;
}

static void forward_prod(const ct_layer *l, ct_instance *in, int64_t n, float *y)
{
    const float *a = ct_blob_data(in->bottom[0]);

    for (int k = 1; k < l->n_bottom; k++) {
        const float *b = ct_blob_data(in->bottom[k]);

#pragma omp parallel for simd schedule(static) if (n >= CT_PARALLEL_MIN)
        for (int64_t i = 0; i < n; i++) y[i] = a[i] * b[i];
        a = y;
    }
}

/* With the ReLU of the tail, in one pass. */
static void forward_rectified(int64_t n, const float *a, const float *b, float *y)
{
#pragma omp parallel for simd schedule(static) if (n >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < n; i++) {
        float z = a[i] + b[i];

        y[i] = (z < 0.0f) ? 0.0f : z;
    }
}

static void forward_sum(const ct_layer *l, ct_instance *in, int64_t n, float *y)
{
    const float *a = ct_blob_data(in->bottom[0]);
    float ca = coefficient(l, 0);

    for (int k = 1; k < l->n_bottom; k++) {
        const float *b = ct_blob_data(in->bottom[k]);
        float cb = coefficient(l, k);

#pragma omp parallel for simd schedule(static) if (n >= CT_PARALLEL_MIN)
        for (int64_t i = 0; i < n; i++) y[i] = ca * a[i] + cb * b[i];
        a = y;
        ca = 1.0f;
    }
}

/* Of equal values the second of the first two bottoms wins, later ones only if larger: Caffe's
 * order, which decides where the gradient goes. */
static void forward_max(const ct_layer *l, ct_instance *in, int64_t n, float *y)
{
    unsigned char *winner = (in->buffer[WINNER].bytes > 0) ? in->buffer[WINNER].data : NULL;
    const float *a = ct_blob_data(in->bottom[0]), *b = ct_blob_data(in->bottom[1]);

#pragma omp parallel for schedule(static) if (n >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < n; i++) {
        int best = (a[i] > b[i]) ? 0 : 1;
        float top = (best == 0) ? a[i] : b[i];

        for (int k = 2; k < l->n_bottom; k++) {
            float x = ct_blob_data(in->bottom[k])[i];

            if (x > top) {
                top = x;
                best = k;
            }
        }
        y[i] = top;
        if (winner != NULL) winner[i] = (unsigned char)best;
    }
}

enum { PIECE = 1024 }; /* elements at a time, in a first-level cache */

/* n bf16 numbers from `at` on, with the ReLU of the tail; added up in f32, rounded once. (A plain
 * sum's coefficients of 1 change no bit.) */
CT_SIMD_CLONES static void sum_bf16(const ct_layer *l, const ct_instance *in, bool relu, int64_t at,
                                    int64_t n, float *y)
{
    float sum[PIECE];

    for (int k = 0; k < l->n_bottom; k++) {
        const float *x = ct_num_at(ct_blob_data(in->bottom[k]), true, at);
        float c = coefficient(l, k);

#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            sum[i] = c * ct_num_get(x, true, i) + ((k > 0) ? sum[i] : 0.0f);
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        ct_num_put(y, true, at + i, (relu && (sum[i] < 0.0f)) ? 0.0f : sum[i]);
}

static void forward_bf16(const ct_layer *l, ct_instance *in, int64_t n, float *y)
{
    bool relu = (in->tail != NULL) && (in->tail->of[CT_EPILOGUE_RELU] != NULL);

#pragma omp parallel for schedule(static) if (n >= CT_PARALLEL_MIN)
    for (int64_t at = 0; at < n; at += PIECE)
        sum_bf16(l, in, relu, at, (n - at < PIECE) ? n - at : PIECE, y);
}

/* ---- with the norm of the tail: the sum and the normal rows in one pass, and in backward the
 * gradients of both */

static ct_instance *norm_of(const ct_instance *in)
{
    return (in->tail != NULL) ? in->tail->of[CT_EPILOGUE_NORM] : NULL;
}

/* The top of the Split that leaves the group; NULL: there is none. */
static ct_blob *sum_that_leaves(const ct_instance *in)
{
    const ct_instance *split = in->tail->of[CT_EPILOGUE_SPLIT];

    if (split == NULL) return NULL;
    return (split->top[0] == norm_of(in)->bottom[0]) ? split->top[1] : split->top[0];
}

static ct_norm_rows norm_rows(const ct_instance *in)
{
    ct_norm_rows rows = ct_norm_rows_of(norm_of(in));
    const ct_blob *sum = sum_that_leaves(in);

    rows.x = (sum != NULL) ? ct_blob_data(sum) : in->buffer[SUM].data;
    return rows;
}

static void forward_norm(const ct_instance *in)
{
    ct_norm_rows rows = norm_rows(in);

    rows.a = ct_blob_data(in->bottom[0]);
    rows.b = ct_blob_data(in->bottom[1]);
    ct_norm_rows_forward(&rows, ct_blob_data(norm_of(in)->top[0]));
}

static void backward_norm(const ct_instance *in, const ct_exec *ex)
{
    ct_norm_rows rows = norm_rows(in);
    ct_norm_back back = ct_norm_back_of(norm_of(in), ex);
    const ct_blob *sum = sum_that_leaves(in);
    float *a = ct_blob_diff(in->bottom[0]), *b = ct_blob_diff(in->bottom[1]);

    back.dx = (a != NULL) ? a : b;
    back.too = (a != NULL) ? b : NULL;
    back.more = (sum != NULL) ? ct_blob_diff(sum) : NULL;
    ct_norm_rows_backward(&rows, &back);
}

static bool join_norm(ct_instance *in)
{
    const ct_tensor *x = &in->bottom[0]->data;
    ct_instance *split = in->tail->of[CT_EPILOGUE_SPLIT];
    const ct_blob *read = norm_of(in)->bottom[0]; /* by way of a Reorder it is another */
    bool back = norm_of(in)->top[0]->wants_diff;

    if ((split != NULL) ? ((read != split->top[0]) && (read != split->top[1]))
                        : (read != in->top[0]))
        return false;
    if ((in->tail->of[CT_EPILOGUE_RELU] != NULL) || (x->layout.order != CT_ORDER_NCHW) ||
        (x->layout.block != 0) || (in->bottom[1]->data.dtype != x->dtype) ||
        (read->data.dtype != x->dtype) || (norm_of(in)->top[0]->data.dtype != x->dtype) ||
        ((x->dtype != CT_F32) && (x->dtype != CT_BF16)))
        return false;
    if (split != NULL)
        split->backward_reads = CT_READS_TOP;
    else
        ct_instance_buffer(in, SUM, back ? CT_LIFETIME_PASS : CT_LIFETIME_CALL, ct_tensor_bytes(x));
    in->over = 3;
    return true;
}

static ct_status eltwise_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const eltwise_state *s = l->state;
    int64_t n = ct_tensor_stored(&in->bottom[0]->data);
    float *y = ct_blob_data(ct_instance_top(in));

    (void)ex;
    if (norm_of(in) != NULL) {
        forward_norm(in);
        return CT_OK;
    }
    if (ct_blob_is_bf16(in->bottom[0])) {
        forward_bf16(l, in, n, y);
        return CT_OK;
    }
    if ((in->tail != NULL) && (in->tail->of[CT_EPILOGUE_RELU] != NULL)) {
        forward_rectified(n, ct_blob_data(in->bottom[0]), ct_blob_data(in->bottom[1]), y);
        return CT_OK;
    }
    switch (s->op) {
    case CT__ELTWISE_PARAMETER__ELTWISE_OP__PROD:
        forward_prod(l, in, n, y);
        return CT_OK;
    case CT__ELTWISE_PARAMETER__ELTWISE_OP__SUM:
        forward_sum(l, in, n, y);
        return CT_OK;
    case CT__ELTWISE_PARAMETER__ELTWISE_OP__MAX:
        forward_max(l, in, n, y);
        return CT_OK;
    default:
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "unknown operation %d", (int)s->op);
    }
}

static void backward_prod(const ct_layer *l, ct_instance *in, int which, int64_t n, float *dx)
{
    const eltwise_state *s = l->state;
    const float *dy = ct_blob_diff(in->top[0]), *y = ct_blob_data(in->top[0]);
    const float *x = ct_blob_data(in->bottom[which]);

#pragma omp parallel for schedule(static) if (n >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < n; i++) {
        float others = 1.0f;

        if (s->stable) {
            for (int k = 0; k < l->n_bottom; k++)
                if (k != which) others *= ct_blob_data(in->bottom[k])[i];
        } else {
            others = y[i] / x[i];
        }
        dx[i] = others * dy[i];
    }
}

/* The gradient of the sum from those of the tail's tops, y > 0 where it passes (y NULL: all of it),
 * to one or both bottoms; any may be the first dy. */
static void put_gradient(int64_t n, bool bf16, int n_dy, const float *const *dy, const float *y,
                         float *to_a, float *to_b)
{
#pragma omp parallel for schedule(static) if (n >= CT_PARALLEL_MIN)
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t len = (n - at < PIECE) ? n - at : PIECE;
        float g[PIECE], room[PIECE];
        float *a = ct_num_to(to_a, bf16, at), *b = ct_num_to(to_b, bf16, at);

        memcpy(g, ct_num_read(ct_num_at(dy[0], bf16, at), bf16, len, room),
               (size_t)len * sizeof(float));
        for (int k = 1; k < n_dy; k++) {
            const float *other = ct_num_read(ct_num_at(dy[k], bf16, at), bf16, len, room);

#pragma omp simd
            for (int64_t i = 0; i < len; i++) g[i] += other[i];
        }
        if (y != NULL) {
            const float *sign = ct_num_read(ct_num_at(y, bf16, at), bf16, len, room);

#pragma omp simd
            for (int64_t i = 0; i < len; i++) g[i] = (sign[i] > 0.0f) ? g[i] : 0.0f;
        }
        if (bf16) {
            ct_bf16_narrow(len, g, room);
            if (a != NULL) memcpy(a, room, (size_t)len * sizeof(ct_bf16));
            if ((b != NULL) && (b != a)) memcpy(b, room, (size_t)len * sizeof(ct_bf16));
        } else {
            if (a != NULL) memcpy(a, g, (size_t)len * sizeof(float));
            if ((b != NULL) && (b != a)) memcpy(b, g, (size_t)len * sizeof(float));
        }
    }
}

enum { MAX_DY = 4 };

static void backward_group(ct_instance *in)
{
    const ct_epilogue *tail = in->tail;
    const float *dy[MAX_DY];
    int n_dy = 0;

    for (int t = 0; t < tail->last->layer->n_top; t++) {
        if (ct_blob_diff(tail->last->top[t]) != NULL) dy[n_dy++] = ct_blob_diff(tail->last->top[t]);
    }
    if (n_dy == 0) return;
    put_gradient(ct_tensor_stored(&in->bottom[0]->data), ct_blob_is_bf16(in->bottom[0]), n_dy, dy,
                 (tail->of[CT_EPILOGUE_RELU] != NULL) ? ct_blob_data(tail->last->top[0]) : NULL,
                 ct_blob_diff(in->bottom[0]), ct_blob_diff(in->bottom[1]));
}

/* dx = c dy, both bf16. */
static void scale_bf16(int64_t n, float c, const float *dy, float *dx)
{
#pragma omp parallel for simd schedule(static) if (n >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < n; i++) ct_num_put(dx, true, i, c * ct_num_get(dy, true, i));
}

/* A sum of two, and what makes it worth while: a ReLU, or gradients that add up. */
static bool join(const ct_layer *l, ct_instance *in)
{
    const ct_epilogue *tail = in->tail;

    if (!plain_sum(l->param) || (l->n_bottom != 2) || (tail->last->layer->n_top > MAX_DY))
        return false;
    if (tail->of[CT_EPILOGUE_NORM] != NULL) return join_norm(in);
    if (tail->of[CT_EPILOGUE_RELU] != NULL)
        tail->last->backward_reads = CT_READS_TOP; /* its sign */
    in->over = 3;
    return true;
}

static ct_status eltwise_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const eltwise_state *s = l->state;
    int64_t n = ct_tensor_stored(&in->bottom[0]->data);
    const float *dy = ct_blob_diff(in->top[0]);
    const unsigned char *winner = in->buffer[WINNER].data;

    (void)ex;
    if (norm_of(in) != NULL) {
        backward_norm(in, ex);
        return CT_OK;
    }
    if (in->tail != NULL) {
        backward_group(in);
        return CT_OK;
    }
    for (int k = 0; k < l->n_bottom; k++) {
        float *dx = ct_blob_diff(in->bottom[k]), c = coefficient(l, k);

        if ((dx == NULL) || ((dx == dy) && plain_sum(l->param))) continue;
        if (ct_blob_is_bf16(in->bottom[k])) {
            if (c == 1.0f)
                memcpy(dx, dy, ct_tensor_bytes(&in->bottom[k]->diff));
            else
                scale_bf16(n, c, dy, dx);
            continue;
        }
        if (s->op == CT__ELTWISE_PARAMETER__ELTWISE_OP__PROD) {
            backward_prod(l, in, k, n, dx);
        } else if (s->op == CT__ELTWISE_PARAMETER__ELTWISE_OP__SUM) {
#pragma omp parallel for simd schedule(static) if (n >= CT_PARALLEL_MIN)
            for (int64_t i = 0; i < n; i++) dx[i] = c * dy[i];
        } else {
#pragma omp parallel for simd schedule(static) if (n >= CT_PARALLEL_MIN)
            for (int64_t i = 0; i < n; i++) dx[i] = (winner[i] == k) ? dy[i] : 0.0f;
        }
    }
    return CT_OK;
}

static const ct_layout_ops eltwise_layout = {
    .takes = takes, .bf16 = true, .last = true, .tokens = true
};
static const ct_fusion_ops eltwise_fusion = {
    .epilogues = 1u << CT_EPILOGUE_RELU | 1u << CT_EPILOGUE_SPLIT | 1u << CT_EPILOGUE_NORM,
    .host_only = 1u << CT_EPILOGUE_NORM,
    .as_epilogue = as_epilogue,
    .join = join,
};

const ct_layer_ops ct_layer_eltwise = {
    .type = "Eltwise",
    .params = "eltwise_param",
    .splits = CT_SPLIT_EACH,
    .min_bottom = 2,
    .max_bottom = -1,
    .min_top = 1,
    .max_top = 1,
    .backward_reads = CT_READS_BOTTOM | CT_READS_TOP,
    .state_size = sizeof(eltwise_state),
    .setup = setup,
    .reshape = eltwise_reshape,
    .forward = eltwise_forward,
    .backward = eltwise_backward,
    .layout = &eltwise_layout,
    .fusion = &eltwise_fusion,
    .sequence = &ct_sequence_apart,
};

/* ---- Axpy: a factor for each channel of each sample times x, plus y (squeeze-and-excitation
 * nets). */

static ct_status axpy_reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *a = &in->bottom[0]->data.shape, *x = &in->bottom[1]->data.shape;
    const ct_shape *y = &in->bottom[2]->data.shape;
    ct_view *v = in->state;

    if ((x->ndim < 2) || !ct_shape_equal(x, y))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottoms 1 and 2 have shapes %s and %s: the same "
                             "N x C x ... are needed",
                             ct_shape_str(x).text, ct_shape_str(y).text);
    *v = (ct_view){ x->dim[0] * x->dim[1], 1, ct_shape_count(x, 2, -1), 0, CT_F32 };
    if ((a->ndim < 2) || (a->dim[0] != x->dim[0]) || (a->dim[1] != x->dim[1]) ||
        (ct_shape_count(a, 0, -1) != v->outer))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottom 0 (factors) has shape %s, bottom 1 %s: one factor a channel",
                             ct_shape_str(a).text, ct_shape_str(x).text);
    ct_blob_set_shape(in->top[0], x);
    return CT_OK;
}

static ct_status axpy_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_view *v = in->state;
    const float *a = ct_blob_data(in->bottom[0]), *x = ct_blob_data(in->bottom[1]);
    const float *y = ct_blob_data(in->bottom[2]);
    float *z = ct_blob_data(in->top[0]);

    (void)l, (void)ex;
#pragma omp parallel for schedule(static) if (v->outer * v->inner >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < v->outer; r++) {
        int64_t from = r * v->inner;

#pragma omp simd
        for (int64_t i = from; i < from + v->inner; i++) z[i] = a[r] * x[i] + y[i];
    }
    return CT_OK;
}

static ct_status axpy_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_view *v = in->state;
    const float *a = ct_blob_data(in->bottom[0]), *x = ct_blob_data(in->bottom[1]);
    const float *dz = ct_blob_diff(in->top[0]);
    float *da = ct_blob_diff(in->bottom[0]), *dx = ct_blob_diff(in->bottom[1]);

    (void)l, (void)ex;
#pragma omp parallel for schedule(static) if (v->outer * v->inner >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < v->outer; r++) {
        int64_t from = r * v->inner, to = from + v->inner;
        double sum = 0;

#pragma omp simd reduction(+ : sum)
        for (int64_t i = from; i < to; i++) sum += (double)dz[i] * (double)x[i];
        if (da != NULL) da[r] = (float)sum;
        if (dx == NULL) continue;
#pragma omp simd
        for (int64_t i = from; i < to; i++) dx[i] = a[r] * dz[i];
    }
    if (ct_blob_diff(in->bottom[2]) != NULL)
        ct_copy_f32(v->outer * v->inner, dz, ct_blob_diff(in->bottom[2]));
    return CT_OK;
}

const ct_layer_ops ct_layer_axpy = {
    .type = "Axpy",
    .min_bottom = 3,
    .max_bottom = 3,
    .min_top = 1,
    .max_top = 1,
    .backward_reads = CT_READS_BOTTOM,
    .instance_state_size = sizeof(ct_view),
    .reshape = axpy_reshape,
    .forward = axpy_forward,
    .backward = axpy_backward,
};
