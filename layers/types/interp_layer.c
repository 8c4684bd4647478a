/* Interp and Upsample: planes made larger. */
#include <math.h>
#include <string.h>

#include "layers/types/resize.h"
#include "layers/types/layer_types.h"
#include "layers/layer_util.h"

/* ---- Interp: bilinear interpolation to another height and width, corners onto corners (DeepLab,
 * PSPNet).
 */

typedef ct_interp_axis interp_axis;
typedef ct_interp_plan interp_plan;

static ct_status interp_setup(ct_layer *l, const ct_shape *bottom)
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

static ct_status interp_reshape(const ct_layer *l, ct_instance *in)
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
    CT_TRY(ct_layer_check_shape(l, &top));
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

static ct_status interp_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
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

static ct_status interp_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
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
    .params = "interp_param",
    .splits = CT_SPLIT_CHANNEL,
    .min_bottom = 1,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .no_diff_bottom = 1 << 1, /* only its size counts */
    .instance_state_size = sizeof(interp_plan),
    .setup = interp_setup,
    .reshape = interp_reshape,
    .forward = interp_forward,
    .backward = interp_backward,
};

/* ---- Upsample. With a second bottom, the places that a MAX Pooling's second top tells: each value
 * goes where its maximum was, the rest is 0 (SegNet). With one bottom: each value fills a rectangle
 * of scale_h x scale_w (Darknet's nets). */

typedef ct_upsample_state upsample_state;

static ct_status read_scale(const ct_layer *l, const Ct__UpsampleParameter *p, upsample_state *s)
{
    bool both = p->has_scale_h && p->has_scale_w;

    if ((p->has_scale_h != p->has_scale_w) || (p->has_scale && both))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "upsample_param: give scale, or both of scale_h and scale_w");
    s->scale_h = both ? p->scale_h : p->scale;
    s->scale_w = both ? p->scale_w : p->scale;
    if ((s->scale_h < 1) || (s->scale_w < 1))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "upsample_param: scale %lld x %lld is below 1",
                             (long long)s->scale_h, (long long)s->scale_w);
    s->pad_h = p->pad_out_h;
    s->pad_w = p->pad_out_w;
    if ((s->pad_h && (s->scale_h != 2)) || (s->pad_w && (s->scale_w != 2)))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "upsample_param: pad_out_h and pad_out_w go with a scale of 2");
    return CT_OK;
}

static ct_status upsample_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__UpsampleParameter *p = l->param->upsample_param;
    upsample_state *s = l->state;

    (void)bottom;
    if (p == NULL) return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "upsample_param is missing");
    if (p->has_upsample_h != p->has_upsample_w)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "upsample_param has one of upsample_h and "
                             "upsample_w: give both");
    if (!p->has_upsample_h) return read_scale(l, p, s);
    if (l->n_bottom == 1)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "upsample_h and upsample_w need places, as the second bottom; with "
                             "one bottom give scale");
    s->h = p->upsample_h;
    s->w = p->upsample_w;
    if ((s->h < 1) || (s->w < 1))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "upsample_param: %lld x %lld is no size",
                             (long long)s->h, (long long)s->w);
    return CT_OK;
}

static ct_status upsample_reshape(const ct_layer *l, ct_instance *in)
{
    const upsample_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    ct_shape top = *x;

    if (x->ndim != 4)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the bottom %s must have 4 axes: N C H W",
                             ct_shape_str(x).text);
    if ((l->n_bottom > 1) && !ct_shape_equal(x, &in->bottom[1]->data.shape))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom 1 (places) has shape %s, bottom 0 %s",
                             ct_shape_str(&in->bottom[1]->data.shape).text, ct_shape_str(x).text);
    top.dim[2] = (s->h > 0) ? s->h : ct_dim_mul(x->dim[2], s->scale_h) - (s->pad_h ? 1 : 0);
    top.dim[3] = (s->w > 0) ? s->w : ct_dim_mul(x->dim[3], s->scale_w) - (s->pad_w ? 1 : 0);
    CT_TRY(ct_layer_check_shape(l, &top));
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

/* Column by column of the top: the value that it repeats, or (back) the sum of what repeated it. */
static void repeat(const ct_instance *in, bool back)
{
    const upsample_state *s = in->layer->state;
    const ct_shape *x = &in->bottom[0]->data.shape, *y = &in->top[0]->data.shape;
    int64_t n = ct_shape_count(x, 0, 3), h = x->dim[2], w = x->dim[3], oh = y->dim[2];
    int64_t ow = y->dim[3];

#pragma omp parallel for schedule(static) if (ct_shape_count(y, 0, -1) >= CT_PARALLEL_MIN)
    for (int64_t r = 0; r < n; r++) {
        int64_t first = r % h * s->scale_h, last = first + s->scale_h;
        int64_t plane = r / h * oh;

        if (last > oh) last = oh;
        if (back) memset(ct_blob_diff(in->bottom[0]) + r * w, 0, (size_t)w * sizeof(float));
        for (int64_t k = first; k < last; k++) {
            for (int64_t j = 0; j < ow; j++) {
                int64_t from = r * w + j / s->scale_w, to = (plane + k) * ow + j;

                if (back)
                    ct_blob_diff(in->bottom[0])[from] += ct_blob_diff(in->top[0])[to];
                else
                    ct_blob_data(in->top[0])[to] = ct_blob_data(in->bottom[0])[from];
            }
        }
    }
}

/* The first value whose place is none, or -1. */
static int64_t bad_place(const float *place, int64_t n, int64_t size)
{
    for (int64_t i = 0; i < n; i++) {
        if (!(place[i] >= 0.0f) || (place[i] >= (float)size) || (place[i] != floorf(place[i])))
            return i;
    }
    return -1;
}

static ct_status upsample_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_shape *x = &in->bottom[0]->data.shape, *y = &in->top[0]->data.shape;
    int64_t planes = x->dim[0] * x->dim[1], n = x->dim[2] * x->dim[3], m = y->dim[2] * y->dim[3];
    const float *place, *from = ct_blob_data(in->bottom[0]);
    float *to = ct_blob_data(in->top[0]);
    int64_t bad;

    if (l->n_bottom == 1) {
        repeat(in, false);
        return CT_OK;
    }
    place = ct_blob_data(in->bottom[1]);
    bad = bad_place(place, planes * n, m);
    if (bad >= 0)
        return CT_LAYER_FAIL(l, CT_ERR_DATA,
                             "value %lld of batch %lld has the place %g, planes of the top have "
                             "%lld: the places come from a pooling of a larger or smaller input",
                             (long long)bad, (long long)ex->micro_step, (double)place[bad],
                             (long long)m);
#pragma omp parallel for schedule(static) if (planes * m >= CT_PARALLEL_MIN)
    for (int64_t p = 0; p < planes; p++) {
        memset(to + p * m, 0, (size_t)m * sizeof(*to));
        for (int64_t i = p * n; i < (p + 1) * n; i++) to[p * m + (int64_t)place[i]] = from[i];
    }
    return CT_OK;
}

static ct_status upsample_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_shape *x = &in->bottom[0]->data.shape, *y = &in->top[0]->data.shape;
    int64_t planes = x->dim[0] * x->dim[1], n = x->dim[2] * x->dim[3], m = y->dim[2] * y->dim[3];
    const float *dy = ct_blob_diff(in->top[0]), *place;
    float *dx = ct_blob_diff(in->bottom[0]);

    (void)ex;
    if (dx == NULL) return CT_OK;
    if (l->n_bottom == 1) {
        repeat(in, true);
        return CT_OK;
    }
    place = ct_blob_data(in->bottom[1]);
#pragma omp parallel for schedule(static) if (planes * n >= CT_PARALLEL_MIN)
    for (int64_t p = 0; p < planes; p++) {
        for (int64_t i = p * n; i < (p + 1) * n; i++) dx[i] = dy[p * m + (int64_t)place[i]];
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_upsample = {
    .type = "Upsample",
    .params = "upsample_param",
    .splits = CT_SPLIT_CHANNEL,
    .min_bottom = 1,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .no_diff_bottom = 1 << 1,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(upsample_state),
    .setup = upsample_setup,
    .reshape = upsample_reshape,
    .forward = upsample_forward,
    .backward = upsample_backward,
};
