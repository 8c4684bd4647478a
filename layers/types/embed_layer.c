/* Embed: each index of the bottom becomes a row of the weight (input_dim x num_output), plus a
 * bias: what InnerProduct would make of one-hot vectors. A part by inputs has some of the rows, and
 * makes zeros of what others have. */
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/math/math.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

typedef struct embed_state {
    int64_t n, k;        /* outputs, rows of the whole */
    int64_t first, rows; /* those that are here */
    bool bias;
} embed_state;

/* Buffers: the bottom as whole numbers, checked; the top's gradient widened, where it is bf16, and
 * that of a part's own rows. */
enum { INDEX, WIDE };

static ct_status add_weights(ct_layer *l, const Ct__EmbedParameter *p)
{
    embed_state *s = l->state;
    bool by_input = ct_layer_is_split(l, CT__PARALLEL_LAYER_PARAMETER__SPLIT__INPUT);
    ct_shape table = { 2, { p->input_dim, p->num_output } }, bias = { 1, { p->num_output } };
    const ct_cut *cut = &l->weight[0].cut;

    CT_TRY(ct_layer_add_part(l, &table, by_input ? 0 : 1, p->weight_filler));
    s->k = p->input_dim;
    s->first = by_input ? cut->range[0].first : 0;
    s->rows = l->weight[0].shape.dim[0];
    s->n = l->weight[0].shape.dim[1];
    s->bias = p->bias_term && (!by_input || ct_layer_is_first(l));
    if (by_input && (cut->n_range > 1))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "a table is cut in one piece, not %d", cut->n_range);
    if (!s->bias) return CT_OK;
    if (!by_input) return ct_layer_add_part(l, &bias, 0, p->bias_filler);
    ct_layer_add_weight(l, &bias, p->bias_filler);
    return CT_OK;
}

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__EmbedParameter *p = l->param->embed_param;

    (void)bottom;
    if ((p == NULL) || (p->num_output == 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "embed_param.num_output is missing or 0");
    if ((p->input_dim == 0) || (p->input_dim > INT32_MAX))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "embed_param.input_dim, the number of different indices, is %s",
                             (p->input_dim == 0) ? "missing or 0" : "too large");
    return add_weights(l, p);
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const embed_state *s = l->state;
    ct_shape top = in->bottom[0]->data.shape;

    if (top.ndim == CT_MAX_DIM)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom of shape %s: no room for one more axis",
                             ct_shape_str(&top).text);
    if (in->bottom[0]->ids > s->k)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "bottom \"%s\" has ids below %lld, embed_param.input_dim is %lld",
                             in->bottom[0]->name, (long long)in->bottom[0]->ids, (long long)s->k);
    ct_instance_buffer(in, INDEX, CT_LIFETIME_PASS,
                       ct_index_ints(l, ct_shape_count(&top, 0, -1), s->k) * sizeof(int32_t));
    top.dim[top.ndim++] = s->n;
    ct_blob_set_shape(in->top[0], &top);
    if (ct_layer_makes_tokens(l, in))
        ct_blob_set_storage(in->top[0], &top, in->top[0]->data.layout, CT_BF16);
    ct_instance_buffer(in, WIDE, CT_LIFETIME_CALL,
                       (in->top[0]->wants_diff && (ct_blob_is_bf16(in->top[0]) || (s->rows < s->k)))
                           ? (size_t)ct_shape_count(&top, 0, -1) * sizeof(float)
                           : 0);
    return CT_OK;
}

/* One word's row, and a bias or NULL. */
CT_SIMD_CLONES static void put_bf16(int64_t n, const float *row, const float *bias, float *y)
{
    if (bias == NULL) {
#pragma omp simd
        for (int64_t c = 0; c < n; c++) ct_num_put(y, true, c, row[c]);
    } else {
#pragma omp simd
        for (int64_t c = 0; c < n; c++) ct_num_put(y, true, c, row[c] + bias[c]);
    }
}

/* What a part puts in place of a row that it does not have. */
static void put_none(const embed_state *s, const float *b, bool bf16, float *y)
{
    for (int64_t c = 0; c < s->n; c++) ct_num_put(y, bf16, c, (b != NULL) ? b[c] : 0.0f);
}

/* The bottom as rows of this part, -1 where another part has it. */
static ct_status find_rows(const ct_layer *l, ct_instance *in, const ct_exec *ex)
{
    const embed_state *s = l->state;
    const float *x = ct_blob_data(in->bottom[0]);
    int64_t m = ct_tensor_count(&in->bottom[0]->data);
    int32_t *index = in->buffer[INDEX].data;

    for (int64_t i = 0; i < m; i++) {
        if (!ct_label_class(x[i], s->k, &index[i]))
            return ct_index_fail(l, ex, x[i], i,
                                 ct_index_per_sample(&in->bottom[0]->data.shape, ex), s->k);
    }
    for (int64_t i = 0; (s->rows < s->k) && (i < m); i++) {
        int64_t row = index[i] - s->first;

        index[i] = ((row >= 0) && (row < s->rows)) ? (int32_t)row : -1;
    }
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const embed_state *s = l->state;
    const float *w = ct_blob_data(&in->weight[0]);
    const float *b = s->bias ? ct_blob_data(&in->weight[1]) : NULL;
    int64_t m = ct_tensor_count(&in->bottom[0]->data);
    const int32_t *index = in->buffer[INDEX].data;
    float *y = ct_blob_data(in->top[0]);
    bool bf16 = ct_blob_is_bf16(in->top[0]);

    CT_TRY(find_rows(l, in, ex));
#pragma omp parallel for schedule(static) if (m * s->n >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < m; i++) {
        if (index[i] < 0) {
            put_none(s, b, bf16, ct_num_to(y, bf16, i * s->n));
            continue;
        }
        if (bf16) {
            put_bf16(s->n, w + index[i] * s->n, b, ct_num_to(y, true, i * s->n));
            continue;
        }
        memcpy(y + i * s->n, w + index[i] * s->n, (size_t)s->n * sizeof(*y));
        for (int64_t c = 0; (b != NULL) && (c < s->n); c++) y[i * s->n + c] += b[c];
    }
    return CT_OK;
}

/* Of m words those whose rows this part has, and their gradients, in their order; they may be in
 * place. */
static int64_t own_rows(const embed_state *s, int64_t m, int32_t *index, const float *dy,
                        float *own)
{
    int64_t k = 0;

    for (int64_t i = 0; i < m; i++) {
        if (index[i] < 0) continue;
        index[k] = index[i];
        memmove(own + k * s->n, dy + i * s->n, (size_t)s->n * sizeof(*own));
        k++;
    }
    return k;
}

/* dy: in f32. Last of all, since of a part only its own words stay. */
static ct_status table_gradient(const ct_layer *l, ct_instance *in, ct_exec *ex, const float *dy)
{
    const embed_state *s = l->state;
    float *dw = ct_blob_diff(&in->weight[0]), *own = in->buffer[WIDE].data;
    int64_t m = ct_tensor_count(&in->bottom[0]->data);
    int32_t *index = in->buffer[INDEX].data;
    bool taken;

    if (dw == NULL) return CT_OK;
    if ((s->rows < s->k) && (ex->rows != NULL)) {
        m = own_rows(s, m, index, dy, own);
        dy = own;
    }
    CT_TRY(ct_exec_rows(ex, dw, m, index, dy, &taken));
    if (taken) return CT_OK;
    if (ct_weight_beta(in, ex, 0) == 0.0f)
        CT_TRY(l->dev->math->set(ex->stream, s->rows * s->n, 0.0f, dw));
    ct_rows_add(m, s->n, index, dy, dw);
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const embed_state *s = l->state;
    const float *dy = ct_blob_diff(in->top[0]);
    int64_t m = ct_tensor_count(&in->bottom[0]->data);

    if (ct_blob_is_bf16(in->top[0])) {
        ct_bf16_widen_all(m * s->n, dy, in->buffer[WIDE].data);
        dy = in->buffer[WIDE].data;
    }
    if (s->bias && (ct_blob_diff(&in->weight[1]) != NULL))
        ct_view_dot(&(ct_view){ m, s->n, 1, 0, CT_F32 }, dy, NULL,
                    ct_weight_beta(in, ex, 1) != 0.0f, ct_blob_diff(&in->weight[1]));
    return table_gradient(l, in, ex, dy);
}

/* A row a word, not the whole table; the gradient's rows that no word has are zeroed all the same.
 */
static void estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    double index = (double)ct_tensor_bytes(&in->bottom[0]->data);
    double rows = (double)ct_tensor_bytes(&in->top[0]->data);

    (void)l;
    e->forward_bytes = index + 2.0 * rows;
    e->backward_bytes += 2.0 * index;
}

const ct_layer_ops ct_layer_embed = {
    .type = "Embed",
    .params = "embed_param",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .no_diff_bottom = 1 << 0,
    .reads_tokens = true,
    .row_weights = 1 << 0,
    .splits = CT_SPLIT_OUTPUT | CT_SPLIT_INPUT,
    .state_size = sizeof(embed_state),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .estimate = estimate,
    .sequence = &ct_sequence_apart,
};
