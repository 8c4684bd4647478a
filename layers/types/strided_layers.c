/* Layers that only move values: copies between arrays of any strides, and Permute, ShuffleChannel,
 * Tile and Crop, which are made of them. */
#include "layers/types/device_kernels.h"

#include <string.h>

#include "layers/layer_util.h"
#include "layers/types/layer_types.h"

void ct_strided_axis(ct_strided *s, int64_t dim, int64_t from, int64_t to)
{
    int last = s->n - 1;

    if (dim == 1) return;
    if ((last >= 0) && (s->from[last] == from * dim) && (s->to[last] == to * dim)) {
        s->dim[last] *= dim; /* one behind the other on both sides */
        s->from[last] = from;
        s->to[last] = to;
        return;
    }
    s->dim[s->n] = dim;
    s->from[s->n] = from;
    s->to[s->n++] = to;
}

ct_strided ct_strided_part(const ct_shape *whole, const ct_shape *part, const int64_t *at)
{
    ct_strided s = { 0 };

    for (int i = 0; i < whole->ndim; i++) {
        int64_t step = ct_shape_count(whole, i + 1, -1);

        s.from_first += at[i] * step;
        ct_strided_axis(&s, part->dim[i], step, ct_shape_count(part, i + 1, -1));
    }
    return s;
}

ct_strided ct_strided_turn(const ct_strided *s)
{
    ct_strided t = *s;

    memcpy(t.from, s->to, sizeof(t.from));
    memcpy(t.to, s->from, sizeof(t.to));
    t.from_first = s->to_first;
    t.to_first = s->from_first;
    return t;
}

/* The two axes that run innermost, and the others. */
typedef struct loops {
    ct_strided outer;
    int64_t n_outer, rows, row_from, row_to, cols, from, to;
} loops;

static int nearest(const int64_t *step, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++) {
        if (step[i] < step[best]) best = i;
    }
    return best;
}

/* Columns are neighbours where they are written, rows where they are read, so that small tiles of
 * both use whole lines of the cache. */
static loops order(const ct_strided *s)
{
    loops l = { .n_outer = 1, .rows = 1, .cols = 1 };
    int col = nearest(s->to, s->n), row = nearest(s->from, s->n);

    if (s->n == 0) return l;
    if (row == col) row = (s->n > 1) ? ((col == 0) ? 1 : col - 1) : -1;
    l.cols = s->dim[col];
    l.from = s->from[col];
    l.to = s->to[col];
    if (row >= 0) {
        l.rows = s->dim[row];
        l.row_from = s->from[row];
        l.row_to = s->to[row];
    }
    for (int i = 0; i < s->n; i++) {
        int k = l.outer.n;

        if ((i == col) || (i == row)) continue;
        l.outer.dim[k] = s->dim[i];
        l.outer.from[k] = s->from[i];
        l.outer.to[k] = s->to[i];
        l.outer.n++;
        l.n_outer *= s->dim[i];
    }
    return l;
}

static void copy_tile(const loops *l, int64_t r0, int64_t r1, int64_t c0, int64_t c1,
                      const float *from, float *to)
{
    for (int64_t r = r0; r < r1; r++) {
        const float *f = from + r * l->row_from;
        float *t = to + r * l->row_to;

        if ((l->from == 1) && (l->to == 1)) {
            memcpy(t + c0, f + c0, (size_t)(c1 - c0) * sizeof(*t));
        } else if (l->to == 1) {
            for (int64_t c = c0; c < c1; c++) t[c] = f[c * l->from];
        } else {
            for (int64_t c = c0; c < c1; c++) t[c * l->to] = f[c * l->from];
        }
    }
}

void ct_strided_copy(const ct_strided *s, const float *from, float *to)
{
    enum { ROWS = 16, COLS = 16, LONG = 1 << 14 };
    loops l = order(s);
    bool dense = (l.from == 1) && (l.to == 1); /* then rows are copied whole, or in long pieces */
    int64_t wide = dense ? LONG : COLS, tall = dense ? 1 : ROWS;
    int64_t n_r = (l.rows + tall - 1) / tall, n_c = (l.cols + wide - 1) / wide;
    int64_t n = l.n_outer * n_r * n_c;

#pragma omp parallel for schedule(static) if (l.n_outer * l.rows * l.cols >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < n; k++) {
        int64_t r = k / n_c % n_r * tall, c = k % n_c * wide, rest = k / (n_c * n_r);
        int64_t at_from = s->from_first, at_to = s->to_first;

        for (int i = l.outer.n - 1; i >= 0; i--) {
            at_from += rest % l.outer.dim[i] * l.outer.from[i];
            at_to += rest % l.outer.dim[i] * l.outer.to[i];
            rest /= l.outer.dim[i];
        }
        copy_tile(&l, r, (r + tall < l.rows) ? r + tall : l.rows, c,
                  (c + wide < l.cols) ? c + wide : l.cols, from + at_from, to + at_to);
    }
}

static bool is_empty(const ct_blob *b)
{
    return ct_tensor_count(&b->data) == 0;
}

ct_status ct_move_forward(const ct_instance *in, ct_exec *ex, ct_move_fn plan)
{
    for (int t = 0; t < in->layer->n_top; t++) {
        ct_strided s = { 0 };

        if (is_empty(in->top[t])) continue;
        plan(in, t, &s);
        CT_TRY(
            ct_kernels(ex)->strided(ex, &s, ct_blob_data(in->bottom[0]), ct_blob_data(in->top[t])));
    }
    return CT_OK;
}

ct_status ct_move_backward(const ct_instance *in, ct_exec *ex, ct_move_fn plan, bool partly)
{
    float *dx = ct_blob_diff(in->bottom[0]);

    if (dx == NULL) return CT_OK;
    if (partly) CT_TRY(ex->dev->zero(ex->stream, dx, ct_tensor_bytes(&in->bottom[0]->diff)));
    for (int t = 0; t < in->layer->n_top; t++) {
        ct_strided s = { 0 }, back;

        if (is_empty(in->top[t])) continue;
        plan(in, t, &s);
        back = ct_strided_turn(&s);
        CT_TRY(ct_kernels(ex)->strided(ex, &back, ct_blob_diff(in->top[t]), dx));
    }
    return CT_OK;
}

/* ---- Permute: the axes in another order (SSD). ShuffleChannel: the channels, a group's after
 * another's, dealt out one from each in turn (ShuffleNet). */

typedef struct permute_state {
    int n;
    int order[CT_MAX_DIM]; /* axis of the bottom that axis i of the top is */
} permute_state;

static ct_status permute_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__PermuteParameter *p = l->param->permute_param;
    permute_state *s = l->state;
    bool used[CT_MAX_DIM] = { false };

    for (size_t i = 0; (p != NULL) && (i < p->n_order); i++) {
        uint32_t axis = p->order[i];

        if (axis >= (uint32_t)bottom[0].ndim)
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "order %u is outside the bottom's %d axes", axis,
                                 bottom[0].ndim);
        if (used[axis])
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "axis %u stands in order twice", axis);
        used[axis] = true;
        s->order[s->n++] = (int)axis;
    }
    for (int i = 0; i < bottom[0].ndim; i++) {
        if (!used[i]) s->order[s->n++] = i;
    }
    return CT_OK;
}

static ct_status permute_reshape(const ct_layer *l, ct_instance *in)
{
    const permute_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    ct_shape top = { .ndim = x->ndim };

    if (x->ndim != s->n)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom of shape %s: set up for %d axes",
                             ct_shape_str(x).text, s->n);
    for (int i = 0; i < s->n; i++) top.dim[i] = x->dim[s->order[i]];
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

static void permute_plan(const ct_instance *in, int t, ct_strided *s)
{
    const permute_state *p = in->layer->state;
    const ct_shape *x = &in->bottom[0]->data.shape, *y = &in->top[t]->data.shape;

    for (int i = 0; i < p->n; i++)
        ct_strided_axis(s, y->dim[i], ct_shape_count(x, p->order[i] + 1, -1),
                        ct_shape_count(y, i + 1, -1));
}

static ct_status permute_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_forward(in, ex, permute_plan);
}

static ct_status permute_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_backward(in, ex, permute_plan, false);
}

const ct_layer_ops ct_layer_permute = {
    .type = "Permute",
    .params = "permute_param",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .state_size = sizeof(permute_state),
    .setup = permute_setup,
    .reshape = permute_reshape,
    .forward = permute_forward,
    .backward = permute_backward,
    .on_cuda = true,
};

static int64_t group_of(const ct_layer *l)
{
    const Ct__ShuffleChannelParameter *p = l->param->shuffle_channel_param;

    return (p != NULL) ? p->group : 1;
}

static ct_status shuffle_reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *x = &in->bottom[0]->data.shape;
    int64_t group = group_of(l);

    if (group < 1)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "shuffle_channel_param.group is %lld, at least 1",
                             (long long)group);
    if ((x->ndim < 2) || (x->dim[1] % group != 0))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "the channels of a bottom of shape %s do not divide into %lld groups",
                             ct_shape_str(x).text, (long long)group);
    ct_blob_set_shape(in->top[0], x);
    return CT_OK;
}

/* channel g k + i becomes channel i group + g, with k channels in a group */
static void shuffle_plan(const ct_instance *in, int t, ct_strided *s)
{
    const ct_shape *x = &in->bottom[0]->data.shape;
    int64_t group = group_of(in->layer), k = x->dim[1] / group;
    int64_t inner = ct_shape_count(x, 2, -1), sample = x->dim[1] * inner;

    (void)t;
    ct_strided_axis(s, x->dim[0], sample, sample);
    ct_strided_axis(s, k, inner, group * inner);
    ct_strided_axis(s, group, k * inner, inner);
    ct_strided_axis(s, inner, 1, 1);
}

static ct_status shuffle_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_forward(in, ex, shuffle_plan);
}

static ct_status shuffle_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_backward(in, ex, shuffle_plan, false);
}

const ct_layer_ops ct_layer_shuffle_channel = {
    .type = "ShuffleChannel",
    .params = "shuffle_channel_param",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .reshape = shuffle_reshape,
    .forward = shuffle_forward,
    .backward = shuffle_backward,
    .on_cuda = true,
};

/* ---- Tile: the bottom several times along one axis. */

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__TileParameter *p = l->param->tile_param;

    (void)bottom;
    if ((p == NULL) || !p->has_tiles || (p->tiles < 1))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "tile_param.tiles is %s: at least 1",
                             ((p == NULL) || !p->has_tiles) ? "missing" : "too small");
    return CT_OK;
}

static ct_status tile_reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__TileParameter *p = l->param->tile_param;
    ct_shape top = in->bottom[0]->data.shape;
    ct_view *v = in->state;
    int axis;

    CT_TRY(ct_layer_axis(l, &top, p->axis, "axis", &axis));
    *v = ct_view_make(&top, axis, 0); /* inner: from the axis on */
    v->mid = p->tiles;
    if (__builtin_mul_overflow(top.dim[axis], (int64_t)p->tiles, &top.dim[axis]))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "%d tiles are too many", p->tiles);
    CT_TRY(ct_layer_check_shape(l, &top));
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

static void tile_plan(const ct_instance *in, int t, ct_strided *s)
{
    const ct_view *v = in->state;

    (void)t;
    ct_strided_axis(s, v->outer, v->inner, v->mid * v->inner);
    ct_strided_axis(s, v->mid, 0, v->inner);
    ct_strided_axis(s, v->inner, 1, 1);
}

static ct_status tile_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_forward(in, ex, tile_plan);
}

static ct_status tile_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_view *v = in->state;
    const float *dy = ct_blob_diff(in->top[0]);
    float *dx = ct_blob_diff(in->bottom[0]);

    (void)l, (void)ex;
    if (dx == NULL) return CT_OK;
#pragma omp parallel for schedule(static) if (v->outer * v->mid * v->inner >= CT_PARALLEL_MIN)
    for (int64_t o = 0; o < v->outer; o++) {
        const float *g = dy + o * v->mid * v->inner;
        float *sum = dx + o * v->inner;

        for (int64_t i = 0; i < v->inner; i++) sum[i] = g[i];
        for (int64_t k = 1; k < v->mid; k++) {
#pragma omp simd
            for (int64_t i = 0; i < v->inner; i++) sum[i] += g[k * v->inner + i];
        }
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_tile = {
    .type = "Tile",
    .params = "tile_param",
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .instance_state_size = sizeof(ct_view),
    .setup = setup,
    .reshape = tile_reshape,
    .forward = tile_forward,
    .backward = tile_backward,
};

/* ---- Crop: of the first bottom the piece that has the second's shape from an axis on. */

typedef struct crop_piece {
    int64_t at[CT_MAX_DIM];
} crop_piece;

static ct_status crop_reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__CropParameter *p = l->param->crop_param;
    const ct_shape *x = &in->bottom[0]->data.shape, *like = &in->bottom[1]->data.shape;
    size_t n_offset = (p != NULL) ? p->n_offset : 0;
    crop_piece *c = in->state;
    ct_shape top = *x;
    int axis;

    CT_TRY(ct_layer_axis(l, x, (p != NULL) ? p->axis : 2, "axis", &axis));
    if ((n_offset > 1) && (n_offset != (size_t)(x->ndim - axis)))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "%zu offset for the %d axes from axis %d on; give one, or one each",
                             n_offset, x->ndim - axis, axis);
    if (like->ndim != x->ndim)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom 1 has shape %s, bottom 0 %s: as many axes",
                             ct_shape_str(like).text, ct_shape_str(x).text);
    *c = (crop_piece){ { 0 } };
    for (int i = axis; i < x->ndim; i++) {
        if (n_offset > 0) c->at[i] = p->offset[(n_offset == 1) ? 0 : i - axis];
        top.dim[i] = like->dim[i];
        if (c->at[i] + top.dim[i] > x->dim[i])
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                                 "axis %d: %lld from offset %lld on are more than the bottom's "
                                 "%lld",
                                 i, (long long)top.dim[i], (long long)c->at[i],
                                 (long long)x->dim[i]);
    }
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

static void crop_plan(const ct_instance *in, int t, ct_strided *s)
{
    const crop_piece *c = in->state;

    *s = ct_strided_part(&in->bottom[0]->data.shape, &in->top[t]->data.shape, c->at);
}

static ct_status crop_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_forward(in, ex, crop_plan);
}

static ct_status crop_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_backward(in, ex, crop_plan, true);
}

const ct_layer_ops ct_layer_crop = {
    .type = "Crop",
    .params = "crop_param",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .no_diff_bottom = 1 << 1, /* only its shape counts */
    .instance_state_size = sizeof(crop_piece),
    .reshape = crop_reshape,
    .forward = crop_forward,
    .backward = crop_backward,
    .on_cuda = true,
};
