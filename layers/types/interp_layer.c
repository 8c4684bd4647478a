/* Interp: bilinear interpolation to another height and width, corners onto corners (DeepLab,
 * PSPNet).
 */
#include "layers/types/interp.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

#include <string.h>

typedef ct_interp_axis interp_axis;
typedef ct_interp_plan interp_plan;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__InterpParameter *p = l->param->interp_param;

    (void)bottom;
    if (p == NULL) {
        if (l->n_bottom > 1) return CT_OK;
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "interp_param is missing");
    }
    if ((p->pad_beg > 0) || (p->pad_end > 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "pad_beg %d and pad_end %d: 0 or below, which cuts off; adding "
                             "borders is not defined",
                             p->pad_beg, p->pad_end);
    if ((p->zoom_factor < 1) || (p->shrink_factor < 1))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "zoom_factor %d and shrink_factor %d: at least 1",
                             p->zoom_factor, p->shrink_factor);
    if ((p->has_height != p->has_width) || (p->has_height && ((p->height < 1) || (p->width < 1))))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "height %d and width %d: give both, at least 1, or neither", p->height,
                             p->width);
    if ((p->has_height && (p->has_zoom_factor || p->has_shrink_factor)) ||
        ((l->n_bottom > 1) && (p->has_height || p->has_zoom_factor || p->has_shrink_factor)))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "give one of height and width, factors, and a second bottom to be as "
                             "large as");
    if ((l->n_bottom == 1) && !p->has_height && !p->has_zoom_factor && !p->has_shrink_factor)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "no size: give height and width, zoom_factor, shrink_factor, or a "
                             "second bottom");
    return CT_OK;
}

static ct_status plan_axis(const ct_layer *l, int64_t size, int64_t given, interp_axis *a)
{
    const Ct__InterpParameter *p = l->param->interp_param;

    a->beg = (p != NULL) ? -(int64_t)p->pad_beg : 0;
    a->in = size - a->beg + ((p != NULL) ? p->pad_end : 0);
    if (a->in < 1)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "nothing is left of %lld places", (long long)size);
    a->out = given;
    if (given == 0) {
        a->out = (a->in - 1) / p->shrink_factor + 1;
        a->out += (a->out - 1) * (p->zoom_factor - 1);
    }
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const Ct__InterpParameter *p = l->param->interp_param;
    const ct_shape *x = &in->bottom[0]->data.shape;
    interp_plan *r = in->state;
    int64_t h = ((p != NULL) && p->has_height) ? p->height : 0;
    int64_t w = ((p != NULL) && p->has_width) ? p->width : 0;
    ct_shape top = *x;

    if (x->ndim != 4)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the bottom %s must have 4 axes: N C H W",
                             ct_shape_str(x).text);
    if (l->n_bottom > 1) {
        const ct_shape *like = &in->bottom[1]->data.shape;

        if (like->ndim != 4)
            return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom 1 %s must have 4 axes: N C H W",
                                 ct_shape_str(like).text);
        h = like->dim[2];
        w = like->dim[3];
    }
    CT_TRY(plan_axis(l, x->dim[2], h, &r->h));
    CT_TRY(plan_axis(l, x->dim[3], w, &r->w));
    top.dim[2] = r->h.out;
    top.dim[3] = r->w.out;
    CT_TRY(ct_shape_check(&top));
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

static void plane(const interp_plan *r, int64_t width, const float *x, float *y)
{
    for (int64_t i = 0; i < r->h.out; i++) {
        int64_t top, down, left, right;
        float v = ct_interp_between(&r->h, i, &top, &down);
        const float *a = x + top * width, *b = a + down * width;

        for (int64_t j = 0; j < r->w.out; j++) {
            float u = ct_interp_between(&r->w, j, &left, &right);

            y[i * r->w.out + j] = (1.0f - v) * ((1.0f - u) * a[left] + u * a[left + right]) +
                                  v * ((1.0f - u) * b[left] + u * b[left + right]);
        }
    }
}

static void plane_back(const interp_plan *r, int64_t width, const float *dy, float *dx)
{
    for (int64_t i = 0; i < r->h.out; i++) {
        int64_t top, down, left, right;
        float v = ct_interp_between(&r->h, i, &top, &down);
        float *a = dx + top * width, *b = a + down * width;

        for (int64_t j = 0; j < r->w.out; j++) {
            float u = ct_interp_between(&r->w, j, &left, &right), g = dy[i * r->w.out + j];

            a[left] += (1.0f - v) * (1.0f - u) * g;
            a[left + right] += (1.0f - v) * u * g;
            b[left] += v * (1.0f - u) * g;
            b[left + right] += v * u * g;
        }
    }
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_shape *x = &in->bottom[0]->data.shape;
    const interp_plan *r = in->state;
    int64_t planes = x->dim[0] * x->dim[1], n = x->dim[2] * x->dim[3], m = r->h.out * r->w.out;

    (void)l, (void)ex;
#pragma omp parallel for schedule(static) if (planes * m >= CT_PARALLEL_MIN)
    for (int64_t p = 0; p < planes; p++)
        plane(r, x->dim[3], ct_blob_data(in->bottom[0]) + p * n, ct_blob_data(in->top[0]) + p * m);
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_shape *x = &in->bottom[0]->data.shape;
    const interp_plan *r = in->state;
    int64_t planes = x->dim[0] * x->dim[1], n = x->dim[2] * x->dim[3], m = r->h.out * r->w.out;
    float *dx = ct_blob_diff(in->bottom[0]);

    (void)l, (void)ex;
    if (dx == NULL) return CT_OK;
#pragma omp parallel for schedule(static) if (planes * m >= CT_PARALLEL_MIN)
    for (int64_t p = 0; p < planes; p++) {
        memset(dx + p * n, 0, (size_t)n * sizeof(*dx));
        plane_back(r, x->dim[3], ct_blob_diff(in->top[0]) + p * m, dx + p * n);
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_interp = {
    .type = "Interp",
    .min_bottom = 1,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .no_diff_bottom = 1 << 1, /* only its size counts */
    .instance_state_size = sizeof(interp_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
};
