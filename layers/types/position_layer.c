/* Position: adds to each token of N x T x C the row of its place in the sequence, from a learned
 * table or from one of sines. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/math/math.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

/* Buffers: bottom 1 as whole numbers, checked; the top's gradient widened, where it is bf16 and
 * goes to rows by their numbers. */
enum { INDEX, WIDE };

/* Numbers of a table of sines: 1 GiB, which is 131072 positions of 2048 channels. */
static const int64_t MOST_SINES = (int64_t)1 << 28;

typedef struct position_state {
    int64_t rows, c;
    bool learned;
    float *sines; /* rows x c; NULL: learned */
} position_state;

typedef struct position_plan {
    int64_t n, t; /* sequences, tokens of each */
    bool given;   /* by bottom 1              */
    bool packed;  /* sequences side by side   */
} position_plan;

/* Vaswani et al. 2017: sin and cos of p / 10000^(2 i / C) at 2 i and 2 i + 1. Of n positions. */
static void fill_sines(int64_t first, int64_t n, int64_t width, float *to)
{
    for (int64_t c = 0; c < width; c++) {
        int64_t even = c - c % 2;
        double speed = pow(10000.0, -(double)even / (double)width);

        for (int64_t p = 0; p < n; p++) {
            double angle = (double)(first + p) * speed;

            to[p * width + c] = (float)((c % 2 == 0) ? sin(angle) : cos(angle));
        }
    }
}

/* Tokens that a sequence may have. */
static int64_t most_tokens(const ct_layer *l, const ct_shape *x)
{
    const ct_packed *packed = l->env->packed;

    return ((packed != NULL) && (packed->capacity > x->dim[1])) ? packed->capacity : x->dim[1];
}

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__PositionParameter *p = l->param->position_param;
    position_state *s = l->state;

    if (bottom[0].ndim < 3)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom 0 has shape %s: N x T x C is needed",
                             ct_shape_str(&bottom[0]).text);
    s->learned = (p == NULL) || (p->type == CT__POSITION_PARAMETER__TYPE__LEARNED);
    s->c = ct_shape_count(&bottom[0], 2, -1);
    s->rows = ((p != NULL) && (p->max_length > 0)) ? (int64_t)p->max_length
              : s->learned                         ? 0
                                                   : most_tokens(l, &bottom[0]);
    if (s->learned && (s->rows == 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "position_param.max_length, the rows of the learned table, is missing "
                             "or 0");
    if (s->rows > INT32_MAX)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "position_param.max_length %lld is too large",
                             (long long)s->rows);
    if (s->learned) {
        ct_layer_add_weight(l, &(ct_shape){ 2, { s->rows, s->c } }, p->weight_filler);
        return CT_OK;
    }
    if ((s->rows > 0) && (s->c > MOST_SINES / s->rows))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "a table of sines of %lld positions of %lld channels is too large: at "
                             "most %lld numbers; lower position_param.max_length",
                             (long long)s->rows, (long long)s->c, (long long)MOST_SINES);
    if (l->env->no_data) return CT_OK;
    s->sines = malloc(((size_t)s->rows * (size_t)s->c + 1) * sizeof(*s->sines));
    if (s->sines == NULL) return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory for the table of sines");
    fill_sines(0, s->rows, s->c, s->sines);
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *x = &in->bottom[0]->data.shape;
    const position_state *s = l->state;
    position_plan *plan = in->state;
    int64_t longest = (l->env->packed != NULL) ? l->env->packed->longest : x->dim[1];

    *plan = (position_plan){ x->dim[0], x->dim[1], l->n_bottom > 1, l->env->packed != NULL };
    if (ct_shape_count(x, 2, -1) != s->c)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom 0 has shape %s, the table rows of %lld",
                             ct_shape_str(x).text, (long long)s->c);
    if (!plan->given && (longest > s->rows))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "sequences of %lld tokens, but the table has %lld rows: raise "
                             "position_param.max_length, or shorten the sequences",
                             (long long)longest, (long long)s->rows);
    if (plan->given) {
        const ct_shape *at = &in->bottom[1]->data.shape;

        if ((at->ndim < 2) || (at->dim[0] != plan->n) || (ct_shape_count(at, 1, -1) != plan->t))
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                                 "bottom 1 (positions) has shape %s, bottom 0 %s: N x T is needed",
                                 ct_shape_str(at).text, ct_shape_str(x).text);
    }
    ct_instance_buffer(in, INDEX, CT_LIFETIME_PASS,
                       (plan->given || plan->packed) ? (size_t)(plan->n * plan->t) * sizeof(int32_t)
                                                     : 0);
    in->over = 1;
    if (in->top[0] != in->bottom[0]) ct_blob_set_like(in->top[0], x, &in->bottom[0]->data);
    ct_instance_buffer(
        in, WIDE, CT_LIFETIME_CALL,
        (plan->given && s->learned && in->top[0]->wants_diff && ct_blob_is_bf16(in->top[0]))
            ? (size_t)ct_shape_count(x, 0, -1) * sizeof(float)
            : 0);
    return CT_OK;
}

/* Rows of tokens; their places are numbers that bf16 does not hold. */
static bool takes(const Ct__LayerParameter *p, const ct_blob *const *bottom, int slot)
{
    (void)p;
    return (slot == 0) && ct_layer_takes_rows(bottom[0]);
}

static ct_status read_positions(const ct_layer *l, const ct_instance *in, const ct_exec *ex)
{
    const float *at = ct_blob_data(in->bottom[1]);
    const position_plan *plan = in->state;
    const position_state *s = l->state;
    int32_t *index = in->buffer[INDEX].data;

    for (int64_t i = 0; i < plan->n * plan->t; i++) {
        if (!ct_label_class(at[i], s->rows, &index[i]))
            return CT_LAYER_FAIL(
                l, CT_ERR_DATA,
                "position %g of token %lld of sample %lld of batch %lld is not a "
                "whole number in 0..%lld: the table has %lld rows",
                (double)at[i], (long long)(i % plan->t), (long long)(ex->batch_first + i / plan->t),
                (long long)ex->micro_step, (long long)(s->rows - 1), (long long)s->rows);
    }
    return CT_OK;
}

/* Each of the sequences begins at 0, or behind its tokens in the cache. */
static void count_positions(const ct_packed *packed, int32_t *index)
{
    for (int64_t s = 0; s < packed->n; s++) {
        int64_t first = (packed->before != NULL) ? packed->before[s] : 0;

        for (int64_t i = packed->at[s]; i < packed->at[s + 1]; i++)
            index[i] = (int32_t)(first + i - packed->at[s]);
    }
}

CT_SIMD_CLONES static void add_row(int64_t c, const float *x, const float *row, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < c; i++) y[i] = x[i] + row[i];
}

CT_SIMD_CLONES static void add_row_bf16(int64_t c, const float *x, const float *row, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < c; i++) ct_num_put(y, true, i, ct_num_get(x, true, i) + row[i]);
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const position_state *s = l->state;
    const position_plan *plan = in->state;
    const float *x = ct_blob_data(in->bottom[0]);
    const float *table = s->learned ? ct_blob_data(&in->weight[0]) : s->sines;
    const int32_t *index = (plan->given || plan->packed) ? in->buffer[INDEX].data : NULL;
    float *y = ct_blob_data(in->top[0]);
    int64_t m = plan->n * plan->t;
    bool bf16 = ct_blob_is_bf16(in->bottom[0]);

    if (plan->given) CT_TRY(read_positions(l, in, ex));
    if (plan->packed) count_positions(l->env->packed, in->buffer[INDEX].data);
#pragma omp parallel for schedule(static) if (m * s->c >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < m; i++) {
        const float *row = table + ((index != NULL) ? index[i] : i % plan->t) * s->c;

        (bf16 ? add_row_bf16 : add_row)(s->c, ct_num_at(x, bf16, i * s->c), row,
                                        ct_num_to(y, bf16, i * s->c));
    }
    return CT_OK;
}

/* The gradient of the first t rows, each the sum over the sequences in their order; the others' is
 * 0. add: to what is there. */
static void sum_sequences(const position_state *s, const position_plan *plan, bool bf16,
                          const float *dy, bool add, float *dw)
{
    enum { PIECE = 1024 };
    int64_t part = plan->t * s->c, all = s->rows * s->c;

#pragma omp parallel for schedule(static) if (all >= CT_PARALLEL_MIN)
    for (int64_t at = 0; at < all; at += PIECE) {
        int64_t len = (at + PIECE < all) ? PIECE : all - at;
        int64_t used = (at + len <= part) ? len : (at < part) ? part - at : 0;

        for (int64_t i = 0; !add && (i < len); i++) dw[at + i] = 0;
        for (int64_t k = 0; k < plan->n; k++) {
            float room[PIECE];
            const float *d = ct_num_read(ct_num_at(dy, bf16, k * part + at), bf16, used, room);

#pragma omp simd
            for (int64_t i = 0; i < used; i++) dw[at + i] += d[i];
        }
    }
}

/* ---- sequences that grow */

static bool position_apart(const ct_layer *l, const ct_instance *in, int n_axis)
{
    (void)in;
    (void)n_axis;
    return l->n_bottom == 1;
}

/* Rows of the table: sines are made for as many tokens as there may be. */
static int64_t longest(const ct_layer *l, const ct_instance *in)
{
    (void)in;
    return ((const position_state *)l->state)->rows;
}

static const ct_sequence_ops position_sequence = {
    .apart = position_apart,
    .packs = true,
    .longest = longest,
};

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const position_state *s = l->state;
    const position_plan *plan = in->state;
    const float *dy = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]);
    float *dw = s->learned ? ct_blob_diff(&in->weight[0]) : NULL;
    int64_t m = plan->n * plan->t;
    bool bf16 = ct_blob_is_bf16(in->top[0]);

    if (dw != NULL) {
        bool add = ct_weight_beta(in, ex, 0) != 0.0f;

        if (plan->given) {
            if (!add) CT_TRY(l->dev->math->set(ex->stream, s->rows * s->c, 0.0f, dw));
            if (bf16) ct_bf16_widen_all(m * s->c, dy, in->buffer[WIDE].data);
            ct_rows_add(m, s->c, in->buffer[INDEX].data, bf16 ? in->buffer[WIDE].data : dy, dw);
        } else {
            sum_sequences(s, plan, bf16, dy, add, dw);
        }
    }
    if (dx != NULL) ct_copy_bytes(ct_tensor_bytes(&in->top[0]->diff), dy, dx);
    return CT_OK;
}

/* A row a token of the table, which stays in the caches. */
static void estimate(const ct_layer *l, const ct_instance *in, ct_estimate *e)
{
    double x = (double)ct_tensor_bytes(&in->bottom[0]->data);

    (void)l;
    e->forward_bytes = 2.0 * x;
}

static void destroy(ct_layer *l)
{
    position_state *s = l->state;

    free(s->sines);
}

static const ct_layout_ops position_layout = { .takes = takes, .bf16 = true, .tokens = true };

const ct_layer_ops ct_layer_position = {
    .type = "Position",
    .params = "position_param",
    .min_bottom = 1,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .allow_inplace = true,
    .no_diff_bottom = 1 << 1,
    .state_size = sizeof(position_state),
    .instance_state_size = sizeof(position_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .estimate = estimate,
    .destroy = destroy,
    .sequence = &position_sequence,
    .layout = &position_layout,
};
