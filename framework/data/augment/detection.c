/* Caffe-SSD's augmentation: distort_param, expand_param, batch samplers, resize_param. What each
 * means, the order and the arithmetic are those of SSD and the OpenCV that it calls. */
#include <math.h>
#include <string.h>

#include "framework/data/augment/canvas.h"
#include "framework/data/image.h"

static ct_status check_chance(const char *who, const char *field, float v)
{
    if ((v >= 0) && (v <= 1)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s: transform_param.%s is %g, must be 0 to 1", who, field,
                   (double)v);
}

/* ---- distort_param */

static ct_status check_delta(const char *who, const char *field, float v)
{
    if ((v >= 0) && (v <= 255)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s: transform_param.%s is %g, must be 0 to 255", who, field,
                   (double)v);
}

static ct_status check_factors(const char *who, const char *field, float chance, float lower,
                               float upper)
{
    if ((chance == 0) || ((lower >= 0) && (lower <= upper) && (upper <= 100))) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: transform_param.distort_param: %s_lower is %g and %s_upper %g: 0 to 100, "
                   "and the first at most the second",
                   who, field, (double)lower, field, (double)upper);
}

ct_status ct_distort_check(const Ct__TransformationParameter *p, const char *who)
{
    const Ct__DistortionParameter *q = p->distort_param;

    CT_TRY(check_chance(who, "distort_param.brightness_prob", q->brightness_prob));
    CT_TRY(check_chance(who, "distort_param.contrast_prob", q->contrast_prob));
    CT_TRY(check_chance(who, "distort_param.hue_prob", q->hue_prob));
    CT_TRY(check_chance(who, "distort_param.saturation_prob", q->saturation_prob));
    CT_TRY(check_chance(who, "distort_param.random_order_prob", q->random_order_prob));
    CT_TRY(check_delta(who, "distort_param.brightness_delta", q->brightness_delta));
    CT_TRY(check_delta(who, "distort_param.hue_delta", q->hue_delta));
    CT_TRY(check_factors(who, "contrast", q->contrast_prob, q->contrast_lower, q->contrast_upper));
    return check_factors(who, "saturation", q->saturation_prob, q->saturation_lower,
                         q->saturation_upper);
}

static uint8_t byte_of(float v)
{
    return (v <= 0) ? 0 : (v >= 255) ? 255 : (uint8_t)lrintf(v);
}

/* n values times a factor, and a shift. */
static void scale_bytes(uint8_t *data, int64_t n, float factor, float shift)
{
    uint8_t to[256];

    for (int i = 0; i < 256; i++) to[i] = byte_of((float)i * factor + shift);
    for (int64_t i = 0; i < n; i++) data[i] = to[data[i]];
}

/* OpenCV's HSV of bytes: hue in 180 steps, by integers with 12 bits behind the point. */
typedef struct hsv {
    int h, s, v;
} hsv;

static hsv hsv_of(int r, int g, int b)
{
    int v = (r > g) ? r : g, least = (r < g) ? r : g, d, h;

    if (b > v) v = b;
    if (b < least) least = b;
    d = v - least;
    if (d == 0) return (hsv){ 0, 0, v };
    h = (v == r) ? g - b : (v == g) ? b - r + 2 * d : r - g + 4 * d;
    h = (h * (int)lrint((180 << 12) / (6.0 * d)) + (1 << 11)) >> 12;
    return (hsv){ (h < 0) ? h + 180 : h,
                  (d * (int)lrint((255 << 12) / (double)v) + (1 << 11)) >> 12, v };
}

static void rgb_of(hsv c, uint8_t *r, uint8_t *g, uint8_t *b)
{
    float h = fmodf((float)c.h * (6.0f / 180.0f), 6.0f), s = (float)c.s / 255, v = (float)c.v;
    int sector = (int)h;
    float part = h - (float)sector;
    uint8_t most = (uint8_t)c.v, least = byte_of(v * (1 - s));
    uint8_t down = byte_of(v * (1 - s * part)), up = byte_of(v * (1 - s * (1 - part)));
    const uint8_t of[6][3] = {
        { most, up, least },   { down, most, least }, { least, most, up },
        { least, down, most }, { up, least, most },   { most, least, down }
    };

    *r = of[sector][0];
    *g = of[sector][1];
    *b = of[sector][2];
}

void ct_pixels_to_hsv(ct_pixels *p)
{
    int64_t n = p->height * p->width;
    uint8_t *first = p->data, *g = first + n, *last = g + n;

    if (p->channels != 3) return;
    for (int64_t i = 0; i < n; i++) {
        hsv c = (p->red == 0) ? hsv_of(first[i], g[i], last[i]) : hsv_of(last[i], g[i], first[i]);

        first[i] = (uint8_t)c.h;
        g[i] = (uint8_t)c.s;
        last[i] = (uint8_t)c.v;
    }
}

/* Saturation by a factor, hue by a shift that does not go around: as bytes are cut off. */
static void change_hsv(ct_pixels *p, float saturation, float hue)
{
    int64_t n = p->height * p->width;
    uint8_t *r = p->data + p->red * n, *g = p->data + n, *b = p->data + (2 - p->red) * n;

    if (p->channels != 3) return;
    for (int64_t i = 0; i < n; i++) {
        hsv c = hsv_of(r[i], g[i], b[i]);

        if (saturation != 1) c.s = byte_of((float)c.s * saturation);
        if (hue != 0) c.h = byte_of((float)c.h + hue);
        rgb_of(c, &r[i], &g[i], &b[i]);
    }
}

static void contrast(const Ct__DistortionParameter *q, ct_draw *d, ct_pixels *p)
{
    float factor;

    if (!ct_draw_chance(d, (double)q->contrast_prob)) return;
    factor = (float)ct_draw_between(d, (double)q->contrast_lower, (double)q->contrast_upper);
    if (fabsf(factor - 1) > 1e-3f) scale_bytes(p->data, ct_pixels_bytes(p), factor, 0);
}

/* Channels in an order that is drawn. */
static void reorder(ct_draw *d, ct_pixels *p)
{
    int64_t n = p->height * p->width;

    for (int64_t i = p->channels - 1; i > 0; i--) {
        uint8_t *a = p->data + i * n, *b = p->data + ct_draw_below(d, i + 1) * n;

        for (int64_t k = 0; k < n; k++) {
            uint8_t value = a[k];

            a[k] = b[k];
            b[k] = value;
        }
    }
}

ct_status ct_distort(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d, ct_canvas *v)
{
    const Ct__DistortionParameter *q = p->distort_param;
    bool contrast_first = ct_draw_uniform(d) > 0.5;

    (void)phase;
    CT_TRY(ct_canvas_own(v));
    if (ct_draw_chance(d, (double)q->brightness_prob)) {
        double most = (double)q->brightness_delta;

        scale_bytes(v->now.data, ct_pixels_bytes(&v->now), 1,
                    (float)ct_draw_between(d, -most, most));
    }
    if (contrast_first) contrast(q, d, &v->now);
    if (ct_draw_chance(d, (double)q->saturation_prob))
        change_hsv(
            &v->now,
            (float)ct_draw_between(d, (double)q->saturation_lower, (double)q->saturation_upper), 0);
    if (ct_draw_chance(d, (double)q->hue_prob)) {
        double most = (double)q->hue_delta;

        change_hsv(&v->now, 1, (float)ct_draw_between(d, -most, most));
    }
    if (!contrast_first) contrast(q, d, &v->now);
    if (ct_draw_chance(d, (double)q->random_order_prob)) reorder(d, &v->now);
    return CT_OK;
}

/* ---- expand_param: the image somewhere on a larger one of the mean */

ct_status ct_expand_check(const Ct__TransformationParameter *p, const char *who)
{
    const Ct__ExpansionParameter *q = p->expand_param;

    CT_TRY(check_chance(who, "expand_param.prob", q->prob));
    if (!(q->max_expand_ratio >= 1) || (q->max_expand_ratio > 100))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param.expand_param.max_expand_ratio is %g, must be 1 to 100",
                       who, (double)q->max_expand_ratio);
    if (p->mean_file != NULL)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param.expand_param fills with the mean, and mean_file fits "
                       "one size: give mean_value",
                       who);
    if ((p->resize_param == NULL) && (p->random_resized_crop == NULL) && (p->crop_size == 0) &&
        (p->crop_h == 0) && (q->prob > 0) && (q->max_expand_ratio > 1))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param.expand_param makes images of many sizes: give "
                       "resize_param or crop_size, which make them one",
                       who);
    return CT_OK;
}

/* A part of one image to a place of another; both within. */
static void copy_part(const ct_pixels *from, int64_t from_top, int64_t from_left, int64_t height,
                      int64_t width, ct_pixels *to, int64_t to_top, int64_t to_left)
{
    for (int64_t k = 0; k < from->channels * height; k++) {
        int64_t c = k / height, y = k % height;

        memcpy(to->data + (c * to->height + to_top + y) * to->width + to_left,
               from->data + (c * from->height + from_top + y) * from->width + from_left,
               (size_t)width);
    }
}

ct_status ct_expand(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d, ct_canvas *v)
{
    const Ct__ExpansionParameter *q = p->expand_param;
    int64_t h = v->now.height, w = v->now.width, tall, wide, top, left;
    double ratio;
    ct_pixels to;
    ct_image_part part;

    (void)phase;
    if (!ct_draw_chance(d, (double)q->prob) || (fabsf(q->max_expand_ratio - 1) < 1e-2f))
        return CT_OK;
    ratio = ct_draw_between(d, 1, (double)q->max_expand_ratio);
    tall = (int64_t)((double)h * ratio);
    wide = (int64_t)((double)w * ratio);
    CT_TRY(ct_canvas_check(v, tall, wide));
    top = (int64_t)ct_draw_between(d, 0, (double)(tall - h));
    left = (int64_t)ct_draw_between(d, 0, (double)(wide - w));
    CT_TRY(ct_canvas_other(v, tall, wide, &to));
    for (int64_t c = 0; c < to.channels; c++) {
        float mean = (p->n_mean_value == 0) ? 0 : p->mean_value[(p->n_mean_value > 1) ? c : 0];

        memset(to.data + c * tall * wide, byte_of(mean), (size_t)(tall * wide));
    }
    copy_part(&v->now, 0, 0, h, w, &to, top, left);
    ct_canvas_move(v, &to);
    part = (ct_image_part){ { -(float)left / (float)w, -(float)top / (float)h,
                              (float)(wide - left) / (float)w, (float)(tall - top) / (float)h } };
    ct_boxes_project(&v->boxes, &part, p->emit_constraint);
    return CT_OK;
}

/* ---- batch samplers: a part of the image, cut out along whole pixels; boxes by the part itself */

ct_status ct_sample_part(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d,
                         ct_canvas *v)
{
    int64_t h = v->now.height, w = v->now.width, top, left, height, width;
    ct_image_part part;
    ct_pixels to;

    (void)phase;
    if (!ct_boxes_sample(&v->boxes, v->samplers, d, &part)) return CT_OK;
    for (int k = 0; k < 4; k++) part.corner[k] = fminf(fmaxf(part.corner[k], 0), 1);
    left = (int64_t)(part.corner[0] * (float)w);
    top = (int64_t)(part.corner[1] * (float)h);
    width = (int64_t)(part.corner[2] * (float)w - part.corner[0] * (float)w);
    height = (int64_t)(part.corner[3] * (float)h - part.corner[1] * (float)h);
    /* a part of less than a pixel becomes one */
    if (width < 1) width = 1;
    if (height < 1) height = 1;
    if (left + width > w) left = w - width;
    if (top + height > h) top = h - height;
    CT_TRY(ct_canvas_other(v, height, width, &to));
    copy_part(&v->now, top, left, height, width, &to, 0, 0);
    ct_canvas_move(v, &to);
    ct_boxes_project(&v->boxes, &part, p->emit_constraint);
    return CT_OK;
}

/* ---- resize_param */

enum { MOST_SIZE = 1 << 14 };

ct_status ct_resize_check(const Ct__TransformationParameter *p, const char *who)
{
    const Ct__ResizeParameter *q = p->resize_param;

    if ((q->height < 1) || (q->width < 1) || (q->height > MOST_SIZE) || (q->width > MOST_SIZE))
        return CT_FAIL(
            CT_ERR_CONFIG,
            "%s: transform_param.resize_param has height %u and width %u: each must be 1 "
            "to %d",
            who, q->height, q->width, MOST_SIZE);
    if (q->prob != 1)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param.resize_param.prob is %g: images of a batch have one "
                       "size, so all are resized; leave it out",
                       who, (double)q->prob);
    for (size_t i = 0; i < q->n_pad_value; i++)
        if (!(q->pad_value[i] >= 0) || (q->pad_value[i] > 255))
            return CT_FAIL(CT_ERR_CONFIG,
                           "%s: transform_param.resize_param.pad_value is %g, must be 0 to 255",
                           who, (double)q->pad_value[i]);
    if ((q->n_pad_value > 1) && (q->n_pad_value != 3))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param.resize_param has %zu pad_value: give one, or one for "
                       "each channel",
                       who, q->n_pad_value);
    if (p->mean_file != NULL)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param has both resize_param and mean_file, whose size would "
                       "be that of the resized images: give mean_value",
                       who);
    return CT_OK;
}

/* The size of the image itself, without borders. */
static void inner_size(const Ct__ResizeParameter *p, int64_t height, int64_t width,
                       int64_t *inner_height, int64_t *inner_width)
{
    float aspect = (float)width / (float)height, wanted = (float)p->width / (float)p->height;
    bool fits_large = p->resize_mode == CT__RESIZE_PARAMETER__RESIZE_MODE__FIT_LARGE_SIZE_AND_PAD;

    *inner_height = p->height;
    *inner_width = p->width;
    if (p->resize_mode == CT__RESIZE_PARAMETER__RESIZE_MODE__WARP) return;
    if (fits_large ? (aspect > wanted) : (aspect < wanted))
        *inner_height = (int64_t)floorf((float)p->width / aspect);
    else
        *inner_width = (int64_t)floorf(aspect * (float)p->height);
    if (*inner_height < 1) *inner_height = 1;
    if (*inner_width < 1) *inner_width = 1;
}

void ct_resize_size(const Ct__ResizeParameter *p, int64_t *height, int64_t *width)
{
    int64_t h, w;

    inner_size(p, *height, *width, &h, &w);
    *height = (h > p->height) ? h : p->height;
    *width = (w > p->width) ? w : p->width;
}

/* Index i of n, or what stands for it beyond the edges. */
static int64_t beyond(int64_t i, int64_t n, Ct__ResizeParameter__PadMode mode)
{
    if (mode == CT__RESIZE_PARAMETER__PAD_MODE__REPEAT_NEAREST)
        return (i < 0) ? 0 : (i < n) ? i : n - 1;
    return ct_reflect(i, n);
}

/* The image in the middle of a larger one. */
static ct_status pad(const Ct__ResizeParameter *p, ct_canvas *v)
{
    int64_t h = v->now.height, w = v->now.width, tall = p->height, wide = p->width;
    int64_t top = (tall - h) / 2, left = (wide - w) / 2;
    bool constant = p->pad_mode == CT__RESIZE_PARAMETER__PAD_MODE__CONSTANT;
    ct_pixels to;

    CT_TRY(ct_canvas_other(v, tall, wide, &to));
    for (int64_t c = 0; c < to.channels; c++) {
        float value = (p->n_pad_value == 0) ? 0 : p->pad_value[(p->n_pad_value > 1) ? c : 0];
        uint8_t *plane = to.data + c * tall * wide;
        const uint8_t *from = v->now.data + c * h * w;

        if (constant) memset(plane, byte_of(value), (size_t)(tall * wide));
        for (int64_t i = 0; !constant && (i < tall * wide); i++)
            plane[i] = from[beyond(i / wide - top, h, p->pad_mode) * w +
                            beyond(i % wide - left, w, p->pad_mode)];
    }
    copy_part(&v->now, 0, 0, h, w, &to, top, left);
    ct_canvas_move(v, &to);
    return CT_OK;
}

ct_status ct_resize(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d, ct_canvas *v)
{
    const Ct__ResizeParameter *q = p->resize_param;
    Ct__ResizeParameter__InterpMode mode = CT__RESIZE_PARAMETER__INTERP_MODE__LINEAR;
    int64_t height, width;
    ct_pixels to;

    (void)phase;
    if (q->n_interp_mode > 0) mode = q->interp_mode[ct_draw_below(d, (int64_t)q->n_interp_mode)];
    ct_boxes_resize(&v->boxes, q, v->now.height, v->now.width);
    inner_size(q, v->now.height, v->now.width, &height, &width);
    CT_TRY(ct_canvas_check(v, height, width));
    if ((height != v->now.height) || (width != v->now.width)) {
        CT_TRY(ct_canvas_other(v, height, width, &to));
        CT_TRY(ct_pixels_interpolate(&v->now, mode, &v->room->work, &to));
        ct_canvas_move(v, &to);
    }
    if ((height < q->height) || (width < q->width)) return pad(q, v);
    return CT_OK;
}
