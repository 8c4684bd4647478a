/* PriorBox (SSD): boxes of several sizes and ratios around the centre of each cell, in parts of the
 * image, and their variances. They depend on shapes alone. */
#include <math.h>

#include "framework/base/memory.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"
#include "layers/types/box.h"

static ct_status read_ratios(const ct_layer *l, const Ct__PriorBoxParameter *p, ct_prior_state *s)
{
    s->ratio[s->n_ratio++] = 1.0f;
    for (size_t i = 0; i < p->n_aspect_ratio; i++) {
        float r = p->aspect_ratio[i];
        bool known = false;

        if (!(r > 0.0f) || isinf(r))
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "aspect_ratio %g must be positive", (double)r);
        for (int k = 0; k < s->n_ratio; k++) known = known || (fabsf(r - s->ratio[k]) < 1e-6f);
        if (known) continue;
        if (s->n_ratio + 2 > CT_PRIOR_MAX_RATIO)
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "more than %d aspect ratios",
                                 CT_PRIOR_MAX_RATIO);
        s->ratio[s->n_ratio++] = r;
        if (p->flip) s->ratio[s->n_ratio++] = 1.0f / r;
    }
    return CT_OK;
}

static ct_status check_sizes(const ct_layer *l, const Ct__PriorBoxParameter *p)
{
    if (p->n_min_size == 0) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "min_size is missing");
    if ((p->n_max_size > 0) && (p->n_max_size != p->n_min_size))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%zu max_size for %zu min_size: one each, or none",
                             p->n_max_size, p->n_min_size);
    for (size_t i = 0; i < p->n_min_size; i++) {
        if (!(p->min_size[i] > 0.0f) || ((p->n_max_size > 0) && !(p->max_size[i] > p->min_size[i])))
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                                 "min_size %g must be positive, and max_size above it",
                                 (double)p->min_size[i]);
    }
    if ((p->has_img_size && (p->has_img_h || p->has_img_w)) ||
        (p->has_step && (p->has_step_h || p->has_step_w)))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "img_size and step stand for both of their _h and _w forms: give one");
    if ((p->has_img_size && (p->img_size == 0)) ||
        ((p->has_img_h || p->has_img_w) && ((p->img_h == 0) || (p->img_w == 0))))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "img_size, or both of img_h and img_w: above 0");
    if ((p->has_step && !(p->step > 0.0f)) ||
        ((p->has_step_h || p->has_step_w) && (!(p->step_h > 0.0f) || !(p->step_w > 0.0f))))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "step, or both of step_h and step_w: above 0");
    return CT_OK;
}

/* The sides of a cell's boxes; Caffe's sizes are whole numbers. */
static ct_status make_sides(const ct_layer *l, const Ct__PriorBoxParameter *p, ct_prior_state *s)
{
    float *at = s->side = ct_mem_acquire(2 * (size_t)s->n_prior * sizeof(float));

    if (at == NULL) return CT_LAYER_FAIL(l, CT_ERR_NOMEM, "no memory for the boxes of a cell");
    for (size_t k = 0; k < p->n_min_size; k++) {
        float min = truncf(p->min_size[k]);

        *at++ = min;
        *at++ = min;
        if (p->n_max_size > 0) {
            at[0] = at[1] = sqrtf(min * truncf(p->max_size[k]));
            at += 2;
        }
        for (int r = 1; r < s->n_ratio; r++) {
            *at++ = min * sqrtf(s->ratio[r]);
            *at++ = min / sqrtf(s->ratio[r]);
        }
    }
    return ct_layer_constant(l, s->side, 2 * s->n_prior, &s->there);
}

static void destroy(ct_layer *l)
{
    ct_prior_state *s = l->state;

    ct_layer_constant_release(l, s->side, s->there);
    ct_mem_release(s->side);
}

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__PriorBoxParameter *p = l->param->prior_box_param;
    ct_prior_state *s = l->state;

    (void)bottom;
    if (p == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "prior_box_param is missing");
    CT_TRY(check_sizes(l, p));
    CT_TRY(read_ratios(l, p, s));
    s->n_prior = (int64_t)p->n_min_size * s->n_ratio + (int64_t)p->n_max_size;
    if ((p->n_variance > 1) && (p->n_variance != 4))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%zu variance; 1 or 4", p->n_variance);
    for (size_t i = 0; i < 4; i++) {
        s->variance[i] = (p->n_variance == 0) ? 0.1f : p->variance[(p->n_variance == 4) ? i : 0];
        if (!(s->variance[i] > 0.0f))
            return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "variance %g must be positive",
                                 (double)s->variance[i]);
    }
    return make_sides(l, p, s);
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_prior_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape, *image = &in->bottom[1]->data.shape;
    ct_shape top = { 3, { 1, 2, 0 } };

    if ((x->ndim != 4) || (image->ndim != 4) || (ct_shape_count(x, 2, -1) == 0) ||
        (ct_shape_count(image, 2, -1) == 0))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottoms of shapes %s and %s: cells and image, N C H W each",
                             ct_shape_str(x).text, ct_shape_str(image).text);
    top.dim[2] = ct_dim_mul(ct_shape_count(x, 2, -1), (int64_t)s->n_prior * 4);
    CT_TRY(ct_layer_check_shape(l, &top));
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

ct_prior_frame ct_prior_frame_of(const ct_layer *l, const ct_instance *in)
{
    const Ct__PriorBoxParameter *p = l->param->prior_box_param;
    const ct_shape *x = &in->bottom[0]->data.shape, *image = &in->bottom[1]->data.shape;
    ct_prior_frame f = { .offset = p->offset, .width = x->dim[3], .clip = p->clip };

    for (int i = 0; i < 2; i++) {
        uint32_t size = p->has_img_size ? p->img_size : (i == 0) ? p->img_w : p->img_h;
        float step = p->has_step ? p->step : (i == 0) ? p->step_w : p->step_h;

        f.image[i] = (size > 0) ? (float)size : (float)image->dim[3 - i];
        f.step[i] = (step > 0.0f) ? step : f.image[i] / (float)x->dim[3 - i];
    }
    return f;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_prior_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    int64_t n = in->top[0]->data.shape.dim[2];
    float *y = ct_blob_data(in->top[0]);
    ct_prior_frame f = ct_prior_frame_of(l, in);

    (void)ex;
#pragma omp parallel for schedule(static) if (n >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < x->dim[2] * x->dim[3]; k++) {
        for (int64_t i = 0; i < s->n_prior * 4; i++)
            y[k * s->n_prior * 4 + i] = ct_prior_number(&f, k, s->there + i / 4 * 2, (int)(i % 4));
    }
    for (int64_t i = 0; i < n; i++) y[n + i] = s->variance[i % 4];
    return CT_OK;
}

const ct_layer_ops ct_layer_prior_box = {
    .type = "PriorBox",
    .params = "prior_box_param",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .no_diff_bottom = 3, /* only their shapes count */
    .state_size = sizeof(ct_prior_state),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .destroy = destroy,
};
