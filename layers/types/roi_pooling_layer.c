/* ROIPooling (Fast R-CNN): the largest value in each bin of a grid laid over each region.
 * PSROIPooling (R-FCN): the mean of each bin, each from channels of its own. A region is five
 * numbers: the sample, and x1 y1 x2 y2 in pixels, the last ones included. */
#include <math.h>
#include <string.h>

#include "layers/types/layer_types.h"
#include "layers/layer_util.h"
#include "layers/types/resize.h"

typedef ct_roi_state roi_state;
typedef ct_roi_bin bin;
typedef ct_roi_region region;

enum { WINNER }; /* MAX: the place in its plane; -1: an empty bin */

/* What makes coordinates of the bottom of those of regions. */
static ct_status check_scale(const ct_layer *l, const char *param, float scale)
{
    if (isfinite(scale) && (scale > 0.0f)) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%s.spatial_scale is %g, needs more than 0", param,
                         (double)scale);
}

static ct_status roi_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__ROIPoolingParameter *p = l->param->roi_pooling_param;
    roi_state *s = l->state;

    (void)bottom;
    if ((p == NULL) || (p->pooled_h == 0) || (p->pooled_w == 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "roi_pooling_param.pooled_h and pooled_w must be given, at least 1");
    *s = (roi_state){ p->pooled_h, p->pooled_w, 0, p->spatial_scale };
    return check_scale(l, "roi_pooling_param", p->spatial_scale);
}

static ct_status psroi_setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__PSROIPoolingParameter *p = l->param->psroi_pooling_param;
    roi_state *s = l->state;

    (void)bottom;
    if ((p == NULL) || !p->has_spatial_scale || (p->output_dim < 1) || (p->group_size < 1))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "psroi_pooling_param.spatial_scale, output_dim and group_size must be "
                             "given, the latter at least 1");
    *s = (roi_state){ p->group_size, p->group_size, p->output_dim, p->spatial_scale };
    return check_scale(l, "psroi_pooling_param", p->spatial_scale);
}

static ct_status check_bottoms(const ct_layer *l, const ct_instance *in)
{
    const ct_shape *x = &in->bottom[0]->data.shape, *roi = &in->bottom[1]->data.shape;

    if (x->ndim != 4)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the bottom %s must have 4 axes: N C H W",
                             ct_shape_str(x).text);
    if ((x->dim[2] < 1) || (x->dim[3] < 1) || (x->dim[2] > INT32_MAX / x->dim[3]))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "planes of %lld x %lld: empty or too large",
                             (long long)x->dim[2], (long long)x->dim[3]);
    if ((roi->ndim < 2) || (ct_shape_count(roi, 1, -1) != 5))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "bottom 1 (regions) has shape %s: 5 numbers a region are needed",
                             ct_shape_str(roi).text);
    return CT_OK;
}

static ct_status roi_reshape(const ct_layer *l, ct_instance *in)
{
    const roi_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape, *roi = &in->bottom[1]->data.shape;
    ct_shape top = { 4, { 0, 0, s->h, s->w } };

    CT_TRY(check_bottoms(l, in));
    top.dim[0] = roi->dim[0];
    top.dim[1] = x->dim[1];
    CT_TRY(ct_layer_check_shape(l, &top));
    ct_instance_buffer(in, WINNER, in->bottom[0]->wants_diff ? CT_LIFETIME_PASS : CT_LIFETIME_CALL,
                       (size_t)ct_shape_count(&top, 0, -1) * sizeof(int32_t));
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

static ct_status psroi_reshape(const ct_layer *l, ct_instance *in)
{
    const roi_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    ct_shape top = { 4, { in->bottom[1]->data.shape.dim[0], s->dim, s->h, s->w } };
    int64_t need = ct_dim_mul(ct_dim_mul(s->dim, s->h), s->w);

    CT_TRY(check_bottoms(l, in));
    if (x->dim[1] != need)
        return CT_LAYER_FAIL(
            l, CT_ERR_SHAPE,
            "the bottom has %lld channels, but output_dim %lld and group_size %lld "
            "need %lld",
            (long long)x->dim[1], (long long)s->dim, (long long)s->h, (long long)need);
    CT_TRY(ct_layer_check_shape(l, &top));
    ct_blob_set_shape(in->top[0], &top);
    return CT_OK;
}

ct_status ct_roi_check(const ct_layer *l, const ct_exec *ex, const float *roi, int64_t n,
                       int64_t samples)
{
    for (int64_t r = 0; r < n; r++, roi += 5) {
        int32_t sample;
        bool good = ct_label_class(roi[0], samples, &sample);

        for (int i = 1; i < 5; i++) good = good && (fabsf(roi[i]) < 1e9f);
        if (!good)
            return CT_LAYER_FAIL(l, CT_ERR_DATA,
                                 "region %lld of batch %lld is %g %g %g %g %g: the first must be "
                                 "one of the %lld samples",
                                 (long long)r, (long long)ex->micro_step, (double)roi[0],
                                 (double)roi[1], (double)roi[2], (double)roi[3], (double)roi[4],
                                 (long long)samples);
    }
    return CT_OK;
}

static ct_status check_regions(const ct_layer *l, const ct_instance *in, const ct_exec *ex)
{
    return ct_roi_check(l, ex, ct_blob_data(in->bottom[1]), in->bottom[1]->data.shape.dim[0],
                        in->bottom[0]->data.shape.dim[0]);
}

static ct_status roi_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const roi_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    const float *roi = ct_blob_data(in->bottom[1]);
    int64_t n = in->top[0]->data.shape.dim[0], plane = x->dim[2] * x->dim[3];
    int32_t *winner = in->buffer[WINNER].data;
    float *y = ct_blob_data(in->top[0]);

    CT_TRY(check_regions(l, in, ex));
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < n * x->dim[1]; k++) {
        region r = ct_roi_region_of(s, roi + k / x->dim[1] * 5);
        const float *from =
            ct_blob_data(in->bottom[0]) + (r.sample * x->dim[1] + k % x->dim[1]) * plane;

        for (int64_t o = 0; o < s->h * s->w; o++) {
            bin b = ct_roi_bin_of(&r, o / s->w, o % s->w, x->dim[2], x->dim[3]);
            int32_t best = ct_roi_largest(from, x->dim[3], &b);

            winner[k * s->h * s->w + o] = best;
            y[k * s->h * s->w + o] = (best >= 0) ? from[best] : 0.0f;
        }
    }
    return CT_OK;
}

/* A thread has channels of its own, so that a gradient is summed in the order of the regions. */
static ct_status roi_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const roi_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    const float *roi = ct_blob_data(in->bottom[1]), *dy = ct_blob_diff(in->top[0]);
    int64_t n = in->top[0]->data.shape.dim[0], plane = x->dim[2] * x->dim[3];
    int64_t bins = s->h * s->w;
    const int32_t *winner = in->buffer[WINNER].data;
    float *dx = ct_blob_diff(in->bottom[0]);

    (void)ex;
    if (dx == NULL) return CT_OK;
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < x->dim[1]; c++) {
        for (int64_t k = 0; k < x->dim[0]; k++)
            memset(dx + (k * x->dim[1] + c) * plane, 0, (size_t)plane * sizeof(*dx));
        for (int64_t r = 0; r < n; r++) {
            float *to = dx + ((int64_t)roi[5 * r] * x->dim[1] + c) * plane;
            int64_t from = (r * x->dim[1] + c) * bins;

            for (int64_t o = from; o < from + bins; o++) {
                if (winner[o] >= 0) to[winner[o]] += dy[o];
            }
        }
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_roi_pooling = {
    .type = "ROIPooling",
    .params = "roi_pooling_param",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .no_diff_bottom = 1 << 1,
    .backward_reads = CT_READS_BOTTOM, /* the regions */
    .state_size = sizeof(roi_state),
    .setup = roi_setup,
    .reshape = roi_reshape,
    .forward = roi_forward,
    .backward = roi_backward,
};

static ct_status psroi_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const roi_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    const float *roi = ct_blob_data(in->bottom[1]);
    int64_t bins = s->h * s->w, n = in->top[0]->data.shape.dim[0];
    float *y = ct_blob_data(in->top[0]);

    CT_TRY(check_regions(l, in, ex));
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < n * x->dim[1]; k++) { /* channel of the bottom: dim and bin */
        region r = ct_roi_region_of(s, roi + k / x->dim[1] * 5);
        int64_t c = k % x->dim[1], o = c % bins;
        const float *from =
            ct_blob_data(in->bottom[0]) + (r.sample * x->dim[1] + c) * x->dim[2] * x->dim[3];
        bin b = ct_roi_bin_of(&r, o / s->w, o % s->w, x->dim[2], x->dim[3]);
        double sum = 0;

        for (int64_t i = b.top; i < b.bottom; i++) {
            for (int64_t j = b.left; j < b.right; j++) sum += (double)from[i * x->dim[3] + j];
        }
        y[k] = ct_roi_is_empty(&b)
                   ? 0.0f
                   : (float)(sum / (double)((b.bottom - b.top) * (b.right - b.left)));
    }
    return CT_OK;
}

static ct_status psroi_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const roi_state *s = l->state;
    const ct_shape *x = &in->bottom[0]->data.shape;
    const float *roi = ct_blob_data(in->bottom[1]), *dy = ct_blob_diff(in->top[0]);
    int64_t n = in->top[0]->data.shape.dim[0], plane = x->dim[2] * x->dim[3];
    int64_t bins = s->h * s->w;
    float *dx = ct_blob_diff(in->bottom[0]);

    (void)ex;
    if (dx == NULL) return CT_OK;
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < x->dim[1]; c++) {
        for (int64_t k = 0; k < x->dim[0]; k++)
            memset(dx + (k * x->dim[1] + c) * plane, 0, (size_t)plane * sizeof(*dx));
        for (int64_t k = 0; k < n; k++) {
            region r = ct_roi_region_of(s, roi + k * 5);
            float *to = dx + (r.sample * x->dim[1] + c) * plane;
            bin b = ct_roi_bin_of(&r, c % bins / s->w, c % bins % s->w, x->dim[2], x->dim[3]);
            float g = dy[k * x->dim[1] + c] / (float)((b.bottom - b.top) * (b.right - b.left));

            for (int64_t i = b.top; i < b.bottom; i++) {
                for (int64_t j = b.left; j < b.right; j++) to[i * x->dim[3] + j] += g;
            }
        }
    }
    return CT_OK;
}

const ct_layer_ops ct_layer_psroi_pooling = {
    .type = "PSROIPooling",
    .params = "psroi_pooling_param",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .no_diff_bottom = 1 << 1,
    .backward_reads = CT_READS_BOTTOM, /* the regions */
    .state_size = sizeof(roi_state),
    .setup = psroi_setup,
    .reshape = psroi_reshape,
    .forward = psroi_forward,
    .backward = psroi_backward,
};
