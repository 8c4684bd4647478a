/* Tile: the bottom several times along one axis. */
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"
#include "layers/types/strided.h"

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__TileParameter *p = l->param->tile_param;

    (void)bottom;
    if ((p == NULL) || !p->has_tiles || (p->tiles < 1))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "tile_param.tiles is %s: at least 1",
                             ((p == NULL) || !p->has_tiles) ? "missing" : "too small");
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
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
    CT_TRY(ct_shape_check(&top));
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

static void plan(const ct_instance *in, int t, ct_strided *s)
{
    const ct_view *v = in->state;

    (void)t;
    ct_strided_axis(s, v->outer, v->inner, v->mid * v->inner);
    ct_strided_axis(s, v->mid, 0, v->inner);
    ct_strided_axis(s, v->inner, 1, 1);
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    (void)l;
    return ct_move_forward(in, ex, plan);
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
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
    .min_bottom = 1,
    .max_bottom = 1,
    .min_top = 1,
    .max_top = 1,
    .instance_state_size = sizeof(ct_view),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
};
