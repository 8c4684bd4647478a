#include "framework/data/augment/augment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/data/augment/canvas.h"
#include "framework/data/image.h"

struct ct_augment {
    const Ct__TransformationParameter *p;
    const Ct__AnnotatedDataParameter *samplers; /* NULL: none */
    ct_phase phase;
};

void ct_augment_room_release(ct_augment_room *r)
{
    for (int i = 0; i < 2; i++) ct_sample_buffer_release(&r->pixels[i]);
    ct_sample_buffer_release(&r->work);
}

static ct_status warp(ct_canvas *c, const double m[6])
{
    ct_pixels to;

    CT_TRY(ct_canvas_other(c, c->now.height, c->now.width, &to));
    ct_pixels_warp(&c->now, m, &to);
    ct_canvas_move(c, &to);
    return CT_OK;
}

/* ---- ranges of fields */

/* least <= low <= high <= most, where a bound that is 0 is not reached. */
static ct_status check_range(const char *who, const char *field, double low, double high,
                             double least, double most)
{
    bool good = (low >= least) && ((least > 0) || (low > 0)) && (low <= high) && (high <= most);

    if (good) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: transform_param.%s_min is %g and %s_max %g: above 0, at most %g, and the "
                   "first at most the second",
                   who, field, low, strrchr(field, '.') + 1, high, most);
}

static ct_status check_value(const char *who, const char *field, double v, double most)
{
    if ((v >= 0) && (v <= most)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s: transform_param.%s is %g, must be 0 to %g", who, field, v,
                   most);
}

#define MOST_ASPECT 1000.0
#define MOST_SCALE  100.0
#define MOST_FACTOR 100.0
#define MOST_SHEAR  80.0

enum { MOST_SIZE = 1 << 14 };

/* ---- sizes by chance, as Intel's fork has them (random_resize_param), and NVIDIA's
 * (img_rand_resize_lower and what goes with it): the whole image is resized, and crop_size takes a
 * part of it, in TRAIN and in TEST. */

static bool asks_size(const Ct__TransformationParameter *p)
{
    return (p->random_resize_param != NULL) || (p->img_rand_resize_lower > 0) ||
           (p->img_rand_resize_upper > 0) || p->has_rand_resize_ratio_lower ||
           p->has_rand_resize_ratio_upper || p->has_vertical_stretch_lower ||
           p->has_vertical_stretch_upper || p->has_horizontal_stretch_lower ||
           p->has_horizontal_stretch_upper;
}

bool ct_augment_mean_of_crop(const Ct__TransformationParameter *p)
{
    return asks_size(p) && (p->random_resize_param == NULL) &&
           (p->random_aspect_ratio_param == NULL);
}

/* What both forks' fields need around them. */
static ct_status check_around(const Ct__TransformationParameter *p, const char *who,
                              const char *field)
{
    if (p->crop_size == 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param.%s makes images of many sizes: give crop_size, which "
                       "cuts them to one",
                       who, field);
    if (p->crop_size > MOST_SIZE)
        return CT_FAIL(CT_ERR_CONFIG, "%s: transform_param.crop_size %u is beside %s, at most %d",
                       who, p->crop_size, field, MOST_SIZE);
    if ((p->mean_file != NULL) && !ct_augment_mean_of_crop(p))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param.%s makes images of many sizes, and mean_file fits one: "
                       "give mean_value",
                       who, field);
    if (p->random_resized_crop != NULL)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param has both %s and random_resized_crop: give one", who,
                       field);
    return CT_OK;
}

static ct_status check_pair(const char *who, const char *field, double low, double high)
{
    if ((low <= high) && (high <= MOST_FACTOR)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: transform_param.%s_lower is %g and %s_upper %g: the first at most the "
                   "second, and that at most %g",
                   who, field, low, field, high, MOST_FACTOR);
}

static ct_status check_size(const Ct__TransformationParameter *p, const char *who)
{
    const Ct__RandomResizeParameter *r = p->random_resize_param;
    uint32_t low = (r != NULL) ? r->min_size : p->img_rand_resize_lower;
    uint32_t high = (r != NULL) ? r->max_size : p->img_rand_resize_upper;

    CT_TRY(check_around(p, who, (r != NULL) ? "random_resize_param" : "img_rand_resize_lower"));
    if (((high > 0) && (low > high)) || (high > MOST_SIZE))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param: sizes from %u to %u: the first at most the second, "
                       "and that at most %d",
                       who, low, high, MOST_SIZE);
    CT_TRY(check_pair(who, "rand_resize_ratio", (double)p->rand_resize_ratio_lower,
                      (double)p->rand_resize_ratio_upper));
    CT_TRY(check_pair(who, "vertical_stretch", (double)p->vertical_stretch_lower,
                      (double)p->vertical_stretch_upper));
    return check_pair(who, "horizontal_stretch", (double)p->horizontal_stretch_lower,
                      (double)p->horizontal_stretch_upper);
}

/* All of the image, to a size. */
static ct_status resize_whole(ct_canvas *v, int64_t height, int64_t width)
{
    ct_rect whole = { 0, 0, v->now.height, v->now.width };
    ct_pixels to;

    if ((height == whole.height) && (width == whole.width)) return CT_OK;
    CT_TRY(ct_canvas_check(v, height, width));
    CT_TRY(ct_canvas_other(v, height, width, &to));
    CT_TRY(ct_pixels_resize(&v->now, &whole, &v->room->work, &to));
    ct_canvas_move(v, &to);
    return CT_OK;
}

/* The shorter side becomes `size`; the other one keeps the shape, cut off to a whole number. */
static ct_status resize_shorter(ct_canvas *v, int64_t size)
{
    int64_t h = v->now.height, w = v->now.width;

    return (h < w) ? resize_whole(v, size, size * w / h) : resize_whole(v, size * h / w, size);
}

static int64_t size_between(ct_draw *d, int64_t low, int64_t high)
{
    return low + ((high > low) ? ct_draw_below(d, high - low + 1) : 0);
}

/* NVIDIA's: the shorter side's size, then the longer one by a ratio to it, then both stretched;
 * no less than crop_size, and without allow_upscale no more than the image has. */
static ct_status size_nvidia(const Ct__TransformationParameter *p, ct_draw *d, ct_canvas *v)
{
    int64_t h = v->now.height, w = v->now.width, shorter = (h < w) ? h : w, crop = p->crop_size;
    double scale = 1, tall, wide, ratio;

    if ((p->img_rand_resize_lower > 0) && (p->img_rand_resize_upper > 0))
        scale = (double)size_between(d, p->img_rand_resize_lower, p->img_rand_resize_upper) /
                (double)shorter;
    tall = scale * (double)h;
    wide = scale * (double)w;
    if ((p->rand_resize_ratio_lower >= 1) && (p->rand_resize_ratio_upper > 1)) {
        ratio = ct_draw_between(d, (double)p->rand_resize_ratio_lower,
                                (double)p->rand_resize_ratio_upper);
        if ((wide > tall) || ((wide == tall) && ct_draw_chance(d, 0.5)))
            wide = tall * ratio;
        else
            tall = wide * ratio;
    }
    if ((p->vertical_stretch_lower > 0) && (p->vertical_stretch_upper > 0))
        tall *= ct_draw_between(d, (double)p->vertical_stretch_lower,
                                (double)p->vertical_stretch_upper);
    if ((p->horizontal_stretch_lower > 0) && (p->horizontal_stretch_upper > 0))
        wide *= ct_draw_between(d, (double)p->horizontal_stretch_lower,
                                (double)p->horizontal_stretch_upper);
    tall = fmax(round(tall), (double)crop);
    wide = fmax(round(wide), (double)crop);
    if (!p->allow_upscale) {
        tall = fmin(tall, (double)h);
        wide = fmin(wide, (double)w);
    }
    return resize_whole(v, (int64_t)tall, (int64_t)wide);
}

static ct_status draw_size(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d,
                           ct_canvas *v)
{
    const Ct__RandomResizeParameter *r = p->random_resize_param;
    int64_t h = v->now.height, w = v->now.width;
    int64_t low, high;

    (void)phase;
    if (r == NULL) return size_nvidia(p, d, v);
    low = (r->min_size > 0) ? r->min_size : (h < w) ? h : w;
    high = (r->max_size > 0) ? r->max_size : (h > w) ? h : w;
    return resize_shorter(v, size_between(d, low, high));
}

/* ---- random_aspect_ratio_param of Intel's fork: a box of a part of the image resized to
 * crop_size, its sides sqrt(area) times and through a number, upright or lying */

static bool asks_aspect(const Ct__TransformationParameter *p)
{
    return p->random_aspect_ratio_param != NULL;
}

static ct_status check_aspect(const Ct__TransformationParameter *p, const char *who)
{
    const Ct__RandomAspectRatioParameter *a = p->random_aspect_ratio_param;

    CT_TRY(check_around(p, who, "random_aspect_ratio_param"));
    if (asks_size(p))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param has both random_aspect_ratio_param and sizes by "
                       "chance: give one",
                       who);
    if (!(a->min_area_ratio > 0) || !(a->min_area_ratio <= a->max_area_ratio) ||
        !(a->max_area_ratio <= 1) || !(a->aspect_ratio_change > 0) ||
        !(a->aspect_ratio_change <= 1))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param.random_aspect_ratio_param: min_area_ratio %g, "
                       "max_area_ratio %g, aspect_ratio_change %g: each above 0, at most 1, and "
                       "the first at most the second",
                       who, (double)a->min_area_ratio, (double)a->max_area_ratio,
                       (double)a->aspect_ratio_change);
    return CT_OK;
}

static ct_status draw_aspect(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d,
                             ct_canvas *v)
{
    const Ct__RandomAspectRatioParameter *a = p->random_aspect_ratio_param;
    int64_t h = v->now.height, w = v->now.width, crop = p->crop_size;
    double change = (double)a->aspect_ratio_change;

    (void)phase;
    for (uint32_t i = 0; i < a->max_attempt; i++) {
        double area = ct_draw_between(d, (double)a->min_area_ratio, (double)a->max_area_ratio) *
                      (double)(h * w);
        double r = ct_draw_between(d, change, 1 / change);
        ct_rect box = { 0, 0, (int64_t)(sqrt(area) * r), (int64_t)(sqrt(area) / r) };
        ct_pixels to;

        if (ct_draw_chance(d, 0.5)) box = (ct_rect){ 0, 0, box.width, box.height };
        if ((box.height > h) || (box.width > w) || (box.height < 1) || (box.width < 1)) continue;
        box.top = ct_draw_below(d, h - box.height + 1);
        box.left = ct_draw_below(d, w - box.width + 1);
        CT_TRY(ct_canvas_other(v, crop, crop, &to));
        CT_TRY(ct_pixels_resize(&v->now, &box, &v->room->work, &to));
        ct_canvas_move(v, &to);
        return CT_OK;
    }
    return resize_shorter(v, crop);
}

/* ---- random_resized_crop: a box of a part of the image, of another aspect, resized to a square
 * (Szegedy et al., "Going Deeper with Convolutions", 2015, section 6). */

static ct_status check_crop(const Ct__TransformationParameter *p, const char *who)
{
    const Ct__RandomResizedCropParameter *c = p->random_resized_crop;

    if ((c->size < 1) || (c->size > MOST_SIZE))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param.random_resized_crop.size is %u, must be 1 to %d", who,
                       c->size, MOST_SIZE);
    if ((c->test_resize > 0) && ((c->test_resize < c->size) || (c->test_resize > 2 * MOST_SIZE)))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param.random_resized_crop.test_resize is %u, must be at "
                       "least size, %u, and at most %d",
                       who, c->test_resize, c->size, 2 * MOST_SIZE);
    if (p->crop_size > 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param has both crop_size and random_resized_crop: give one",
                       who);
    CT_TRY(check_range(who, "random_resized_crop.area", (double)c->area_min, (double)c->area_max, 0,
                       1));
    return check_range(who, "random_resized_crop.aspect", (double)c->aspect_min,
                       (double)c->aspect_max, 0, MOST_ASPECT);
}

/* Where ten draws did not fit: the largest box in the middle whose aspect is allowed. */
static ct_rect middle_box(const ct_rect_rule *r, int64_t height, int64_t width)
{
    double aspect = (double)width / (double)height;
    ct_rect b = { 0, 0, height, width };

    if (aspect < r->aspect_min) b.height = llround((double)width / r->aspect_min);
    if (aspect > r->aspect_max) b.width = llround((double)height * r->aspect_max);
    if (b.height < 1) b.height = 1;
    if (b.width < 1) b.width = 1;
    b.top = (height - b.height) / 2;
    b.left = (width - b.width) / 2;
    return b;
}

/* In TEST: the box whose middle is cut out once its shorter side has become test_resize. The
 * picture is resized as a whole, and its middle taken: two steps, as in published evaluations. Of
 * several crops each takes its own place. */
static ct_status crop_middle(const Ct__RandomResizedCropParameter *c, ct_canvas *v)
{
    int64_t shorter = (c->test_resize > 0) ? c->test_resize : (int64_t)c->size * 8 / 7;
    int64_t h = v->now.height, w = v->now.width, size = c->size;
    int64_t height = (h <= w) ? shorter : shorter * h / w;
    int64_t width = (h <= w) ? shorter * w / h : shorter;
    int64_t top = llrint((double)(height - size) / 2), left = llrint((double)(width - size) / 2);
    ct_rect whole = { 0, 0, h, w };
    ct_pixels to, part;

    if (height * width > CT_MAX_IMAGE_BYTES / v->now.channels)
        return CT_WHY(v->why, CT_ERR_DATA,
                      "%lld x %lld pixels: too narrow, they would become %lld x %lld", (long long)h,
                      (long long)w, (long long)height, (long long)width);
    top = ct_crop_place(v->crop, true, height - size + 1, top);
    left = ct_crop_place(v->crop, false, width - size + 1, left);
    CT_TRY(ct_canvas_other(v, height, width, &to));
    CT_TRY(ct_pixels_resize(&v->now, &whole, &v->room->work, &to));
    ct_canvas_move(v, &to);
    CT_TRY(ct_canvas_other(v, size, size, &part));
    for (int64_t k = 0; k < v->now.channels * size; k++)
        memcpy(part.data + k * size,
               to.data + ((k / size) * height + top + k % size) * width + left, (size_t)size);
    ct_canvas_move(v, &part);
    return CT_OK;
}

static ct_status crop(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d,
                      ct_canvas *v)
{
    const Ct__RandomResizedCropParameter *c = p->random_resized_crop;
    const ct_rect_rule rule = { (double)c->area_min, (double)c->area_max, (double)c->aspect_min,
                                (double)c->aspect_max };
    ct_pixels to;
    ct_rect box;

    if (phase == CT_TEST) return crop_middle(c, v);
    if (!ct_draw_rect(d, &rule, v->now.height, v->now.width, &box))
        box = middle_box(&rule, v->now.height, v->now.width);
    CT_TRY(ct_canvas_other(v, c->size, c->size, &to));
    CT_TRY(ct_pixels_resize(&v->now, &box, &v->room->work, &to));
    ct_canvas_move(v, &to);
    return CT_OK;
}

/* ---- color_jitter: brightness, contrast, saturation and hue, in an order that is drawn */

static ct_status check_jitter(const Ct__TransformationParameter *p, const char *who)
{
    const Ct__ColorJitterParameter *c = p->color_jitter;

    CT_TRY(check_value(who, "color_jitter.brightness", (double)c->brightness, MOST_FACTOR));
    CT_TRY(check_value(who, "color_jitter.contrast", (double)c->contrast, MOST_FACTOR));
    CT_TRY(check_value(who, "color_jitter.saturation", (double)c->saturation, MOST_FACTOR));
    return check_value(who, "color_jitter.hue", (double)c->hue, 0.5);
}

static float factor_within(ct_draw *d, float range)
{
    double least = 1 - (double)range;

    return (float)ct_draw_between(d, (least < 0) ? 0 : least, 1 + (double)range);
}

static ct_status jitter(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d,
                        ct_canvas *v)
{
    const Ct__ColorJitterParameter *c = p->color_jitter;
    int order[4] = { 0, 1, 2, 3 };

    (void)phase;
    CT_TRY(ct_canvas_own(v));
    for (int i = 3; i > 0; i--) {
        int k = (int)ct_draw_below(d, i + 1), last = order[i];

        order[i] = order[k];
        order[k] = last;
    }
    for (int i = 0; i < 4; i++) {
        if ((order[i] == 0) && (c->brightness > 0))
            ct_pixels_brightness(&v->now, factor_within(d, c->brightness));
        if ((order[i] == 1) && (c->contrast > 0))
            ct_pixels_contrast(&v->now, factor_within(d, c->contrast));
        if ((order[i] == 2) && (c->saturation > 0))
            ct_pixels_saturation(&v->now, factor_within(d, c->saturation));
        if ((order[i] == 3) && (c->hue > 0)) {
            double turn = ct_draw_between(d, -(double)c->hue, (double)c->hue);

            ct_pixels_hue(&v->now, (uint8_t)(int)(turn * 255));
        }
    }
    return CT_OK;
}

/* ---- rotate, affine */

void ct_affine_matrix(const ct_affine *a, double centre_x, double centre_y, double m[6])
{
    const double radian = 3.141592653589793 / 180;
    double turn = a->degrees * radian, sx = a->shear_x * radian, sy = a->shear_y * radian;
    double x = centre_x + a->shift_x, y = centre_y + a->shift_y;

    /* in torchvision's order of operations: what follows cuts off, so last bits show */
    m[0] = (-sin(turn - sy) * tan(sx) / cos(sy) + cos(turn)) / a->scale;
    m[1] = (cos(turn - sy) * tan(sx) / cos(sy) + sin(turn)) / a->scale;
    m[3] = -(sin(turn - sy) / cos(sy)) / a->scale;
    m[4] = cos(turn - sy) / cos(sy) / a->scale;
    m[2] = m[0] * -x + m[1] * -y + centre_x;
    m[5] = m[3] * -x + m[4] * -y + centre_y;
}

static ct_status warp_by(ct_canvas *v, const ct_affine *a)
{
    double m[6];

    ct_affine_matrix(a, (double)v->now.width / 2, (double)v->now.height / 2, m);
    return warp(v, m);
}

static ct_status check_rotate(const Ct__TransformationParameter *p, const char *who)
{
    return check_value(who, "rotate.degrees", (double)p->rotate->degrees, 360);
}

static ct_status turn(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d,
                      ct_canvas *v)
{
    double most = (double)p->rotate->degrees;

    (void)phase;
    return warp_by(v, &(ct_affine){ .degrees = ct_draw_between(d, -most, most), .scale = 1 });
}

static ct_status check_affine(const Ct__TransformationParameter *p, const char *who)
{
    const Ct__AffineParameter *a = p->affine;

    CT_TRY(check_value(who, "affine.degrees", (double)a->degrees, 360));
    CT_TRY(check_value(who, "affine.translate", (double)a->translate, 1));
    CT_TRY(check_value(who, "affine.shear", (double)a->shear, MOST_SHEAR));
    return check_range(who, "affine.scale", (double)a->scale_min, (double)a->scale_max, 0,
                       MOST_SCALE);
}

static ct_status map_affine(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d,
                            ct_canvas *v)
{
    const Ct__AffineParameter *q = p->affine;
    double x = (double)q->translate * (double)v->now.width;
    double y = (double)q->translate * (double)v->now.height;
    ct_affine a;

    (void)phase;
    a.degrees = ct_draw_between(d, -(double)q->degrees, (double)q->degrees);
    a.shift_x = round(ct_draw_between(d, -x, x));
    a.shift_y = round(ct_draw_between(d, -y, y));
    a.scale = ct_draw_between(d, (double)q->scale_min, (double)q->scale_max);
    a.shear_x = ct_draw_between(d, -(double)q->shear, (double)q->shear);
    a.shear_y = 0;
    return warp_by(v, &a);
}

/* ---- rand_augment: operations drawn from a table, of one strength (Cubuk et al., "RandAugment",
 * 2020), as torchvision's: its 14 operations and what strength means for each. */

typedef struct rand_op {
    ct_status (*apply)(ct_canvas *v, double strength); /* -1 … 1 where `sign`, else 0 … 1 */
    bool sign;
} rand_op;

static ct_status rand_identity(ct_canvas *v, double strength)
{
    (void)v;
    (void)strength;
    return CT_OK;
}

static ct_status rand_affine(ct_canvas *v, const ct_affine *a, bool at_corner)
{
    double m[6];

    ct_affine_matrix(a, at_corner ? 0 : (double)v->now.width / 2,
                     at_corner ? 0 : (double)v->now.height / 2, m);
    return warp(v, m);
}

#define RAND_SHEAR   0.3
#define RAND_SHIFT   (150.0 / 331.0) /* of the side */
#define RAND_TURN    30.0
#define RAND_FACTOR  0.9
#define RAND_DEGREES 57.29577951308232 /* of a radian */

static ct_status rand_shear_x(ct_canvas *v, double strength)
{
    double degrees = atan(RAND_SHEAR * strength) * RAND_DEGREES;

    return rand_affine(v, &(ct_affine){ .scale = 1, .shear_x = degrees }, true);
}

static ct_status rand_shear_y(ct_canvas *v, double strength)
{
    double degrees = atan(RAND_SHEAR * strength) * RAND_DEGREES;

    return rand_affine(v, &(ct_affine){ .scale = 1, .shear_y = degrees }, true);
}

static ct_status rand_shift_x(ct_canvas *v, double strength)
{
    double shift = trunc(RAND_SHIFT * (double)v->now.width * strength);

    return rand_affine(v, &(ct_affine){ .scale = 1, .shift_x = shift }, false);
}

static ct_status rand_shift_y(ct_canvas *v, double strength)
{
    double shift = trunc(RAND_SHIFT * (double)v->now.height * strength);

    return rand_affine(v, &(ct_affine){ .scale = 1, .shift_y = shift }, false);
}

static ct_status rand_turn(ct_canvas *v, double strength)
{
    return rand_affine(v, &(ct_affine){ .scale = 1, .degrees = RAND_TURN * strength }, false);
}

static ct_status rand_brightness(ct_canvas *v, double strength)
{
    ct_pixels_brightness(&v->now, (float)(1 + RAND_FACTOR * strength));
    return CT_OK;
}

static ct_status rand_saturation(ct_canvas *v, double strength)
{
    ct_pixels_saturation(&v->now, (float)(1 + RAND_FACTOR * strength));
    return CT_OK;
}

static ct_status rand_contrast(ct_canvas *v, double strength)
{
    ct_pixels_contrast(&v->now, (float)(1 + RAND_FACTOR * strength));
    return CT_OK;
}

static ct_status rand_sharpness(ct_canvas *v, double strength)
{
    ct_pixels to;

    CT_TRY(ct_canvas_other(v, v->now.height, v->now.width, &to));
    ct_pixels_sharpness(&v->now, (float)(1 + RAND_FACTOR * strength), &to);
    ct_canvas_move(v, &to);
    return CT_OK;
}

static ct_status rand_posterize(ct_canvas *v, double strength)
{
    ct_pixels_posterize(&v->now, 8 - (int)lrint(4 * strength));
    return CT_OK;
}

static ct_status rand_solarize(ct_canvas *v, double strength)
{
    ct_pixels_solarize(&v->now, 255 * (1 - strength));
    return CT_OK;
}

static ct_status rand_autocontrast(ct_canvas *v, double strength)
{
    (void)strength;
    ct_pixels_autocontrast(&v->now);
    return CT_OK;
}

static ct_status rand_equalize(ct_canvas *v, double strength)
{
    (void)strength;
    ct_pixels_equalize(&v->now);
    return CT_OK;
}

static const rand_op rand_table[] = {
    { rand_identity, false },  { rand_shear_x, true },       { rand_shear_y, true },
    { rand_shift_x, true },    { rand_shift_y, true },       { rand_turn, true },
    { rand_brightness, true }, { rand_saturation, true },    { rand_contrast, true },
    { rand_sharpness, true },  { rand_posterize, false },    { rand_solarize, false },
    { rand_equalize, false },  { rand_autocontrast, false },
};

enum { N_RAND = sizeof(rand_table) / sizeof(rand_table[0]), MOST_RAND = 32 };
#define RAND_STRONGEST 30.0

static ct_status check_rand(const Ct__TransformationParameter *p, const char *who)
{
    if ((p->rand_augment->ops < 1) || (p->rand_augment->ops > MOST_RAND))
        return CT_FAIL(CT_ERR_CONFIG, "%s: transform_param.rand_augment.ops is %u, must be 1 to %d",
                       who, p->rand_augment->ops, MOST_RAND);
    return check_value(who, "rand_augment.magnitude", (double)p->rand_augment->magnitude,
                       RAND_STRONGEST);
}

static ct_status rand_augment(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d,
                              ct_canvas *v)
{
    double strength = (double)p->rand_augment->magnitude / RAND_STRONGEST;

    (void)phase;
    CT_TRY(ct_canvas_own(v));
    for (uint32_t i = 0; i < p->rand_augment->ops; i++) {
        const rand_op *op = &rand_table[ct_draw_below(d, N_RAND)];
        bool turned = ct_draw_chance(d, 0.5) && op->sign;

        CT_TRY(op->apply(v, turned ? -strength : strength));
    }
    return CT_OK;
}

/* ---- the table: what acts, in this order */

#define ASKS(_name)                                                                                \
    static bool asks_##_name(const Ct__TransformationParameter *p)                                 \
    {                                                                                              \
        return p->_name != NULL;                                                                   \
    }
ASKS(distort_param)
ASKS(expand_param)
ASKS(resize_param)
ASKS(noise_param)
ASKS(random_resized_crop)
ASKS(rand_augment)
ASKS(color_jitter)
ASKS(rotate)
ASKS(affine)

typedef struct augment_op {
    const char *field; /* of transform_param; its draws are named so, too */
    bool (*asks)(const Ct__TransformationParameter *p); /* NULL: annotated_data_param does */
    bool in_test;
    ct_status (*check)(const Ct__TransformationParameter *p, const char *who);
    ct_status (*apply)(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d,
                       ct_canvas *v);
} augment_op;

#define FIELD(_name) #_name, asks_##_name

static const augment_op table[] = {
    { FIELD(distort_param), true, ct_distort_check, ct_distort },
    { FIELD(expand_param), true, ct_expand_check, ct_expand },
    { "batch_sampler", NULL, true, NULL, ct_sample_part },
    { FIELD(resize_param), true, ct_resize_check, ct_resize },
    { FIELD(noise_param), true, ct_noise_check, ct_noise },
    { "random_resize_param", asks_size, true, check_size, draw_size },
    { "random_aspect_ratio_param", asks_aspect, true, check_aspect, draw_aspect },
    { FIELD(random_resized_crop), true, check_crop, crop },
    { FIELD(rand_augment), false, check_rand, rand_augment },
    { FIELD(color_jitter), false, check_jitter, jitter },
    { FIELD(rotate), false, check_rotate, turn },
    { FIELD(affine), false, check_affine, map_affine },
};

enum { N_OP = sizeof(table) / sizeof(table[0]) };

static bool asks(const augment_op *op, const Ct__TransformationParameter *p,
                 const Ct__AnnotatedDataParameter *samplers)
{
    return (op->asks != NULL) ? (p != NULL) && op->asks(p) : samplers != NULL;
}

static bool acts(const augment_op *op, const ct_augment *a)
{
    return asks(op, a->p, a->samplers) && ((a->phase == CT_TRAIN) || op->in_test);
}

const char *ct_augment_named(const Ct__TransformationParameter *p)
{
    if (p == NULL) return NULL;
    for (int i = 0; i < N_OP; i++)
        if (asks(&table[i], p, NULL)) return table[i].field;
    return (p->lighting != NULL) ? "lighting"
           : (p->erase != NULL)  ? "erase"
           : (p->mixup != NULL)  ? "mixup"
           : (p->cutmix != NULL) ? "cutmix"
                                 : NULL;
}

const char *ct_augment_chance_in_test(const Ct__TransformationParameter *p)
{
    if (p == NULL) return NULL;
    if (p->expand_param != NULL) return "expand_param";
    if (asks_aspect(p)) return "random_aspect_ratio_param";
    if (!asks_size(p)) return NULL;
    return (p->random_resize_param != NULL)  ? "random_resize_param"
           : (p->img_rand_resize_lower > 0)  ? "img_rand_resize_lower"
           : (p->img_rand_resize_upper > 0)  ? "img_rand_resize_upper"
           : p->has_rand_resize_ratio_lower  ? "rand_resize_ratio_lower"
           : p->has_rand_resize_ratio_upper  ? "rand_resize_ratio_upper"
           : p->has_vertical_stretch_lower   ? "vertical_stretch_lower"
           : p->has_vertical_stretch_upper   ? "vertical_stretch_upper"
           : p->has_horizontal_stretch_lower ? "horizontal_stretch_lower"
                                             : "horizontal_stretch_upper";
}

/* What moves pixels and knows nothing of boxes. */
static ct_status check_beside_boxes(const Ct__TransformationParameter *p, const char *who)
{
    const char *field = asks_size(p)                     ? "sizes by chance"
                        : asks_aspect(p)                 ? "random_aspect_ratio_param"
                        : p->random_resized_crop != NULL ? "random_resized_crop"
                        : p->rand_augment != NULL        ? "rand_augment"
                        : p->rotate != NULL              ? "rotate"
                        : p->affine != NULL              ? "affine"
                        : p->mixup != NULL               ? "mixup"
                        : p->cutmix != NULL              ? "cutmix"
                                                         : NULL;

    if (field == NULL) return CT_OK;
    return CT_FAIL(
        CT_ERR_CONFIG,
        "%s: transform_param.%s moves pixels, and boxes do not follow: take batch_sampler "
        "and expand_param",
        who, field);
}

static ct_status create(const Ct__TransformationParameter *p,
                        const Ct__AnnotatedDataParameter *samplers, ct_phase phase, const char *who,
                        ct_augment **a_p)
{
    ct_augment given = { .p = p, .samplers = samplers, .phase = phase }, *a;
    bool any = false;

    *a_p = NULL;
    for (int i = 0; i < N_OP; i++) {
        if (asks(&table[i], p, samplers) && (table[i].check != NULL))
            CT_TRY(table[i].check(p, who));
        any = any || acts(&table[i], &given);
    }
    if (!any) return CT_OK;
    a = malloc(sizeof(*a));
    if (a == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory", who);
    *a = given;
    *a_p = a;
    return CT_OK;
}

ct_status ct_augment_create(const Ct__TransformationParameter *p, ct_phase phase, const char *who,
                            ct_augment **a_p)
{
    return create(p, NULL, phase, who, a_p);
}

ct_status ct_augment_create_with_boxes(const Ct__TransformationParameter *p,
                                       const Ct__AnnotatedDataParameter *q, ct_phase phase,
                                       const char *who, ct_augment **a_p)
{
    static const Ct__TransformationParameter nothing = CT__TRANSFORMATION_PARAMETER__INIT;

    if (p == NULL) p = &nothing;
    CT_TRY(check_beside_boxes(p, who));
    if (q != NULL) CT_TRY(ct_boxes_check_samplers(q, who));
    return create(p, ((q != NULL) && (q->n_batch_sampler > 0)) ? q : NULL, phase, who, a_p);
}

/* Who asks for it, for messages. */
static const char *named(const ct_augment *a)
{
    const char *name = ct_augment_named(a->p);

    return (name != NULL) ? name : "batch_sampler";
}

void ct_augment_destroy(ct_augment *a)
{
    free(a);
}

ct_status ct_augment_shape(const ct_augment *a, const ct_shape *in, ct_shape *out_p, ct_why *why)
{
    *out_p = *in;
    if (a == NULL) return CT_OK;
    if ((in->ndim != 3) || ((in->dim[0] != 1) && (in->dim[0] != 3)))
        return CT_WHY(why, CT_ERR_CONFIG,
                      "transform_param.%s needs images of 1 or 3 channels, samples are %s",
                      named(a), ct_shape_str(in).text);
    if (a->p->resize_param != NULL)
        ct_resize_size(a->p->resize_param, &out_p->dim[1], &out_p->dim[2]);
    if (a->p->random_resized_crop != NULL)
        out_p->dim[1] = out_p->dim[2] = a->p->random_resized_crop->size;
    if (asks_size(a->p) || asks_aspect(a->p)) out_p->dim[1] = out_p->dim[2] = a->p->crop_size;
    return CT_OK;
}

ct_status ct_augment_apply(const ct_augment *a, const ct_sample *sample, uint64_t seed,
                           int64_t position, ct_augment_room *room, ct_sample *out_p)
{
    ct_canvas v = {
        .samplers = NULL, .room = room, .why = sample->why, .crop = sample->crop, .at = -1
    };
    ct_shape shape;

    *out_p = *sample;
    if (a == NULL) return CT_OK;
    CT_TRY(ct_augment_shape(a, &sample->shape, &shape, sample->why));
    if (sample->u8 == NULL)
        return CT_WHY(sample->why, CT_ERR_CONFIG,
                      "transform_param.%s needs samples of 8 bits, this one has floats", named(a));
    v.samplers = a->samplers;
    if (sample->boxes > 0) v.boxes = ct_boxes_of(sample->rest, sample->boxes);
    v.now = (ct_pixels){ .data = (uint8_t *)(uintptr_t)sample->u8, /* read only: ct_canvas_own() */
                         .channels = sample->shape.dim[0],
                         .height = sample->shape.dim[1],
                         .width = sample->shape.dim[2] };
    v.now.red = (a->p->color_order == CT__TRANSFORMATION_PARAMETER__COLOR_ORDER__RGB) ? 0 : 2;
    for (int i = 0; i < N_OP; i++) {
        ct_draw d = ct_draw_begin(seed, table[i].field, position);

        if (acts(&table[i], a)) CT_TRY(table[i].apply(a->p, a->phase, &d, &v));
    }
    out_p->u8 = v.now.data;
    out_p->shape = (ct_shape){ 3, { v.now.channels, v.now.height, v.now.width } };
    return CT_OK;
}
