#include "framework/data/transform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/memory.h"
#include "framework/base/rng.h"
#include "framework/base/file.h"
#include "framework/data/augment/augment.h"
#include "framework/data/augment/draw.h"
#include "framework/proto/message.h"

struct ct_transform {
    ct_phase phase;
    float scale;
    bool mirror;
    int64_t crop_height, crop_width; /* both 0: no crop */
    const Ct__EmitConstraint *emit;  /* borrowed; NULL: none */
    int64_t pad;                     /* border that a random crop may reach into; 0 in TEST */
    int n_mean_value;
    float *mean_value;
    float *mean; /* of mean_file, NULL: none */
    ct_shape mean_shape;
    bool mean_of_crop;  /* it is taken off the crop wherever that lies, before mirroring */
    float lighting;     /* standard deviation; 0: none */
    int red;            /* channel, of three           */
    float erase_chance; /* 0: none                     */
    ct_rect_rule erase;
};

bool ct_transform_crop(const Ct__TransformationParameter *p, int64_t *height_p, int64_t *width_p)
{
    *height_p = (p == NULL) ? 0 : (p->crop_h > 0) ? p->crop_h : p->crop_size;
    *width_p = (p == NULL) ? 0 : (p->crop_w > 0) ? p->crop_w : p->crop_size;
    return *height_p > 0;
}

static ct_status check_crop(const Ct__TransformationParameter *p, const char *who)
{
    enum { MOST = 1 << 20 };

    if ((p->crop_h > 0) != (p->crop_w > 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param.crop_h is %u and crop_w %u: give both or neither", who,
                       p->crop_h, p->crop_w);
    if ((p->crop_h > 0) && (p->crop_size > 0))
        return CT_FAIL(CT_ERR_CONFIG, "%s: transform_param has both crop_size and crop_h: give one",
                       who);
    if ((p->crop_size > MOST) || (p->crop_h > MOST) || (p->crop_w > MOST))
        return CT_FAIL(CT_ERR_CONFIG, "%s: crop_size %u is too large", who,
                       (p->crop_size > MOST) ? p->crop_size
                       : (p->crop_h > MOST)  ? p->crop_h
                                             : p->crop_w);
    return CT_OK;
}

static ct_status check(const Ct__TransformationParameter *p, const char *who)
{
    if ((p->mean_file != NULL) && (p->n_mean_value > 0)) {
        return CT_FAIL(CT_ERR_CONFIG, "%s: transform_param has both mean_file and mean_value", who);
    }
    if (p->force_color && p->force_gray) {
        return CT_FAIL(CT_ERR_CONFIG, "%s: transform_param has both force_color and force_gray",
                       who);
    }
    CT_TRY(check_crop(p, who));
    if (p->pad > (1u << 20)) {
        return CT_FAIL(CT_ERR_CONFIG, "%s: transform_param.pad %u is too large", who, p->pad);
    }
    if ((p->pad > 0) && (p->crop_size == 0) && (p->crop_h == 0)) {
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param.pad %u without crop_size: a border only serves random "
                       "crops; give crop_size, usually the height of the images",
                       who, p->pad);
    }
    return CT_OK;
}

static ct_status read_lighting(ct_transform *t, const Ct__TransformationParameter *p,
                               const char *who)
{
    if (p->lighting == NULL) return CT_OK;
    if (!(p->lighting->std >= 0) || (p->lighting->std > 10))
        return CT_FAIL(CT_ERR_CONFIG, "%s: transform_param.lighting.std is %g, must be 0 to 10",
                       who, (double)p->lighting->std);
    if (p->mean_file != NULL)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param has lighting and mean_file: give mean_value", who);
    if (t->phase == CT_TRAIN) t->lighting = p->lighting->std;
    t->red = (p->color_order == CT__TRANSFORMATION_PARAMETER__COLOR_ORDER__RGB) ? 0 : 2;
    return CT_OK;
}

static ct_status read_erase(ct_transform *t, const Ct__TransformationParameter *p, const char *who)
{
    const Ct__EraseParameter *e = p->erase;

    if (e == NULL) return CT_OK;
    if (!(e->probability >= 0) || (e->probability > 1))
        return CT_FAIL(CT_ERR_CONFIG, "%s: transform_param.erase.probability is %g, must be 0 to 1",
                       who, (double)e->probability);
    if (!(e->area_min > 0) || !(e->area_min <= e->area_max) || !(e->area_max <= 1))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param.erase.area_min is %g and area_max %g: above 0, at most "
                       "1, and the first at most the second",
                       who, (double)e->area_min, (double)e->area_max);
    if (!(e->aspect_min > 0) || !(e->aspect_min <= e->aspect_max) || !(e->aspect_max <= 1000))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param.erase.aspect_min is %g and aspect_max %g: above 0, at "
                       "most 1000, and the first at most the second",
                       who, (double)e->aspect_min, (double)e->aspect_max);
    if (t->phase == CT_TRAIN) t->erase_chance = e->probability;
    t->erase = (ct_rect_rule){ (double)e->area_min, (double)e->area_max, (double)e->aspect_min,
                               (double)e->aspect_max };
    return CT_OK;
}

/* The mean becomes its middle, of the crop's size. */
static ct_status take_middle(ct_transform *t, const char *path, const char *who)
{
    ct_shape *s = &t->mean_shape;
    int64_t height = s->dim[1], width = s->dim[2];
    int64_t tall = t->crop_height, wide = t->crop_width;
    int64_t top = (height - tall) / 2, left = (width - wide) / 2;
    float *to = t->mean;

    if ((height < tall) || (width < wide))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: mean_file %s is %lld x %lld, smaller than crop_size %lld: where sizes "
                       "are drawn its middle is taken off each crop",
                       who, path, (long long)height, (long long)width, (long long)tall);
    for (int64_t c = 0; c < s->dim[0]; c++)
        for (int64_t y = top; y < top + tall; y++, to += wide)
            memmove(to, t->mean + (c * height + y) * width + left, (size_t)wide * sizeof(float));
    s->dim[1] = tall;
    s->dim[2] = wide;
    t->mean_of_crop = true;
    return CT_OK;
}

static ct_status read_param(ct_transform *t, const Ct__TransformationParameter *p, const char *who)
{
    CT_TRY(check(p, who));
    CT_TRY(read_lighting(t, p, who));
    CT_TRY(read_erase(t, p, who));
    t->scale = p->scale;
    t->mirror = p->mirror;
    (void)ct_transform_crop(p, &t->crop_height, &t->crop_width);
    t->emit = p->emit_constraint;
    t->pad = (t->phase == CT_TRAIN) ? p->pad : 0;
    if (p->n_mean_value > 0) {
        t->mean_value = malloc(p->n_mean_value * sizeof(float));
        if (t->mean_value == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory", who);
        memcpy(t->mean_value, p->mean_value, p->n_mean_value * sizeof(float));
        t->n_mean_value = (int)p->n_mean_value;
    }
    if (p->mean_file != NULL) {
        CT_TRY(ct_mean_read(p->mean_file, who, &t->mean_shape, &t->mean));
        if (ct_augment_mean_of_crop(p)) CT_TRY(take_middle(t, p->mean_file, who));
    }
    return CT_OK;
}

ct_status ct_transform_create(const Ct__TransformationParameter *p, ct_phase phase, const char *who,
                              ct_transform **transform_p)
{
    ct_transform *t = calloc(1, sizeof(*t));
    ct_status status = CT_OK;

    if (t == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory", who);
    t->phase = phase;
    t->scale = 1.0f;
    if (p != NULL) status = read_param(t, p, who);
    if (status != CT_OK) {
        ct_transform_destroy(t);
        return status;
    }
    *transform_p = t;
    return CT_OK;
}

void ct_transform_destroy(ct_transform *t)
{
    if (t == NULL) return;
    free(t->mean_value);
    ct_mem_release(t->mean);
    free(t);
}

ct_status ct_transform_shape(const ct_transform *t, const ct_shape *in, ct_shape *out_p,
                             ct_why *why)
{
    *out_p = *in;
    if ((t->lighting > 0) && ((in->ndim != 3) || (in->dim[0] != 3)))
        return CT_WHY(why, CT_ERR_CONFIG, "lighting needs images of 3 channels, samples are %s",
                      ct_shape_str(in).text);
    if (in->ndim != 3) {
        if ((t->erase_chance > 0) || (t->crop_height > 0) || t->mirror || (t->mean != NULL) ||
            (t->n_mean_value > 1)) {
            return CT_WHY(
                why, CT_ERR_CONFIG,
                "crop_size, mirror, erase and a mean need samples of channels x height x width, "
                "these are %s",
                ct_shape_str(in).text);
        }
        return CT_OK;
    }
    if (t->mean_of_crop && (t->mean_shape.dim[0] != in->dim[0]))
        return CT_WHY(why, CT_ERR_DATA, "the sample has %lld channels, the mean_file %lld",
                      (long long)in->dim[0], (long long)t->mean_shape.dim[0]);
    if ((t->mean != NULL) && !t->mean_of_crop && !ct_shape_equal(&t->mean_shape, in)) {
        return CT_WHY(why, CT_ERR_DATA, "the sample's shape is %s, that of the mean_file %s",
                      ct_shape_str(in).text, ct_shape_str(&t->mean_shape).text);
    }
    if ((t->n_mean_value > 1) && (t->n_mean_value != in->dim[0])) {
        return CT_WHY(why, CT_ERR_CONFIG, "%d mean_value for %lld channels: give one, or one each",
                      t->n_mean_value, (long long)in->dim[0]);
    }
    if (t->crop_height > 0) {
        if ((in->dim[1] + 2 * t->pad < t->crop_height) ||
            (in->dim[2] + 2 * t->pad < t->crop_width)) {
            if (t->crop_height == t->crop_width)
                return CT_WHY(
                    why, CT_ERR_DATA,
                    "the sample is %lld x %lld, pad %lld, crop_size %lld: too small for the crop",
                    (long long)in->dim[1], (long long)in->dim[2], (long long)t->pad,
                    (long long)t->crop_height);
            return CT_WHY(why, CT_ERR_DATA,
                          "the sample is %lld x %lld, pad %lld, crop_h %lld, crop_w %lld: too "
                          "small for the crop",
                          (long long)in->dim[1], (long long)in->dim[2], (long long)t->pad,
                          (long long)t->crop_height, (long long)t->crop_width);
        }
        out_p->dim[1] = t->crop_height;
        out_p->dim[2] = t->crop_width;
    }
    return CT_OK;
}

/* Where the output lies in the sample. With a border it may reach out of it. */
typedef struct window {
    int64_t channels, height, width;          /* of the sample */
    int64_t out_height, out_width, top, left; /* of the output */
    bool mirrored;
} window;

/* A place among `places`, by 32 random bits. */
static int64_t pick(uint32_t bits, int64_t places)
{
    return (int64_t)(((uint64_t)bits * (uint64_t)places) >> 32);
}

static window place(const ct_transform *t, const ct_shape *shape, ct_crop crop, uint64_t seed,
                    int64_t position)
{
    window v = { 1, 1, ct_shape_count(shape, 0, -1), 0, 0, 0, 0, false };
    bool crops = t->crop_height > 0;

    if (shape->ndim == 3) {
        v.channels = shape->dim[0];
        v.height = shape->dim[1];
        v.width = shape->dim[2];
    }
    v.out_height = crops ? t->crop_height : v.height;
    v.out_width = crops ? t->crop_width : v.width;
    v.top = (v.height - v.out_height) / 2;
    v.left = (v.width - v.out_width) / 2;
    if (crop.n > 0) {
        v.top = ct_crop_place(crop, true, v.height - v.out_height + 1, v.top);
        v.left = ct_crop_place(crop, false, v.width - v.out_width + 1, v.left);
        v.mirrored = (shape->ndim == 3) && ct_crop_is_mirrored(crop);
        return v;
    }
    if (t->mirror || (crops && (t->phase == CT_TRAIN))) {
        uint64_t key = ct_rng_key(seed, ct_rng_hash("transform"), 0);
        ct_rng_block b = ct_rng_philox(key, 0, (uint64_t)position);

        v.mirrored = t->mirror && ((b.v[0] >> 31) != 0);
        if (crops && (t->phase == CT_TRAIN)) {
            v.top = pick(b.v[1], v.height + 2 * t->pad - v.out_height + 1) - t->pad;
            v.left = pick(b.v[2], v.width + 2 * t->pad - v.out_width + 1) - t->pad;
        }
    }
    return v;
}

/* One row, values u8 or f32 -> float, by way of `out`; the loops are what the compiler vectorises
 */
static void row_from_u8(const uint8_t *in, int64_t n, float *restrict out)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) out[i] = (float)in[i];
}

static void row_scale(int64_t n, const float *mean, float mean_value, float scale,
                      float *restrict out)
{
    if (mean != NULL) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) out[i] = (out[i] - mean[i]) * scale;
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) out[i] = (out[i] - mean_value) * scale;
    }
}

static void row_reverse(int64_t n, float *row)
{
    for (int64_t i = 0; i < n / 2; i++) {
        float left = row[i];

        row[i] = row[n - 1 - i];
        row[n - 1 - i] = left;
    }
}

static bool computes(const ct_transform *t)
{
    return (t->mean != NULL) || (t->n_mean_value > 0) || (t->scale != 1.0f);
}

/* n values of channel c from the sample's place `from` on. mean: theirs, or NULL. light: added to
 * each, or NULL. */
static void row_values(const ct_transform *t, const ct_sample *sample, int64_t c, int64_t from,
                       int64_t n, const float *mean, const float *light, float *out)
{
    float mean_value = (t->n_mean_value > 0) ? t->mean_value[(t->n_mean_value > 1) ? c : 0] : 0.0f;

    if (light != NULL) mean_value -= light[c];
    if (sample->u8 != NULL) {
        row_from_u8(sample->u8 + from, n, out);
    } else {
        memcpy(out, sample->f32 + from, (size_t)n * sizeof(float));
    }
    if (computes(t) || (light != NULL)) {
        row_scale(n, mean, mean_value, t->scale, out);
    }
}

/* Columns [first, end) of a window lie in the sample. */
static void columns(const window *v, int64_t *first_p, int64_t *end_p)
{
    *first_p = (v->left < 0) ? -v->left : 0;
    *end_p = (v->left + v->out_width > v->width) ? v->width - v->left : v->out_width;
}

/* What lighting adds to each channel: of the eigenvectors of the covariance of ImageNet's colours,
 * red, green, blue in values of 0 to 1, each with a factor that is drawn. */
static void draw_light(const ct_transform *t, uint64_t seed, int64_t position, float light[3])
{
    static const double value[3] = { 0.2175, 0.0188, 0.0045 };
    static const double vector[3][3] = { { -0.5675, 0.7192, 0.4009 },
                                         { -0.5808, -0.0045, -0.8140 },
                                         { -0.5836, -0.6948, 0.4203 } };
    ct_draw d = ct_draw_begin(seed, "lighting", position);
    double factor[3];

    for (int k = 0; k < 3; k++) factor[k] = value[k] * (double)t->lighting * ct_draw_normal(&d);
    for (int c = 0; c < 3; c++) {
        double sum = 0;

        for (int k = 0; k < 3; k++) sum += vector[c][k] * factor[k];
        light[(t->red == 0) ? c : 2 - c] = (float)(sum * 255);
    }
}

static void erase_box(const ct_transform *t, const window *v, uint64_t seed, int64_t position,
                      float *out)
{
    ct_draw d = ct_draw_begin(seed, "erase", position);
    ct_rect b;

    if (!ct_draw_chance(&d, (double)t->erase_chance)) return;
    if (!ct_draw_rect(&d, &t->erase, v->out_height, v->out_width, &b)) return;
    for (int64_t c = 0; c < v->channels; c++)
        for (int64_t y = b.top; y < b.top + b.height; y++)
            memset(out + (c * v->out_height + y) * v->out_width + b.left, 0,
                   (size_t)b.width * sizeof(float));
}

bool ct_transform_packs(const ct_transform *t)
{
    return (t->lighting == 0) && (t->erase_chance == 0) && !t->mean_of_crop;
}

void ct_transform_apply(const ct_transform *t, const ct_sample *sample, uint64_t seed,
                        int64_t position, float *out)
{
    window v = place(t, &sample->shape, sample->crop, seed, position);
    float drawn[3], *whole = out;
    const float *light = NULL;
    int64_t first, end, from, at;

    columns(&v, &first, &end);
    if (t->lighting > 0) {
        draw_light(t, seed, position, drawn);
        light = drawn;
    }
    for (int64_t c = 0; c < v.channels; c++) {
        for (int64_t y = v.top; y < v.top + v.out_height; y++, out += v.out_width) {
            if ((first > 0) || (end < v.out_width) || (y < 0) || (y >= v.height)) {
                memset(out, 0, (size_t)v.out_width * sizeof(float));
            }
            if ((y < 0) || (y >= v.height) || (first >= end)) continue;
            from = (c * v.height + y) * v.width + v.left + first;
            at = t->mean_of_crop ? out - whole + first : from;
            row_values(t, sample, c, from, end - first, (t->mean != NULL) ? t->mean + at : NULL,
                       light, out + first);
            if (v.mirrored) row_reverse(v.out_width, out);
        }
    }
    if (t->erase_chance > 0) erase_box(t, &v, seed, position, whole);
}

static ct_image_part part_of(const window *v)
{
    float h = (float)v->height, w = (float)v->width;

    return (ct_image_part){ { (float)v->left / w, (float)v->top / h,
                              (float)(v->left + v->out_width) / w,
                              (float)(v->top + v->out_height) / h } };
}

ct_image_part ct_transform_part(const ct_transform *t, const ct_shape *shape)
{
    window v = place(t, shape, (ct_crop){ 0 }, 0, 0);

    return part_of(&v);
}

void ct_transform_boxes(const ct_transform *t, const ct_shape *shape, uint64_t seed,
                        int64_t position, ct_boxes *boxes)
{
    window v = place(t, shape, (ct_crop){ 0 }, seed, position);
    ct_image_part part = part_of(&v);

    ct_boxes_project(boxes, &part, t->emit);
    if (v.mirrored) ct_boxes_mirror(boxes);
}

/* n values from the sample's place `from` on, as the batch has them. */
static void row_pack(const ct_sample *sample, int64_t from, int64_t n, bool wide, void *out)
{
    if (!wide)
        memcpy(out, sample->u8 + from, (size_t)n);
    else if (sample->u8 != NULL)
        row_from_u8(sample->u8 + from, n, out);
    else
        memcpy(out, sample->f32 + from, (size_t)n * sizeof(float));
}

bool ct_transform_pack(const ct_transform *t, const ct_sample *sample, uint64_t seed,
                       int64_t position, bool wide, ct_pack_place *place_p, void *out)
{
    window v = place(t, &sample->shape, sample->crop, seed, position);
    int64_t width = wide ? (int64_t)sizeof(float) : 1, first, end;
    char *to = out;

    if (!wide && (sample->u8 == NULL)) return false;
    columns(&v, &first, &end);
    for (int64_t c = 0; c < v.channels; c++) {
        for (int64_t y = v.top; y < v.top + v.out_height; y++, to += v.out_width * width) {
            if ((y >= 0) && (y < v.height) && (first < end))
                row_pack(sample, (c * v.height + y) * v.width + v.left + first, end - first, wide,
                         to + first * width);
        }
    }
    *place_p = (ct_pack_place){ .top = (int32_t)v.top,
                                .left = (int32_t)v.left,
                                .height = (int32_t)v.height,
                                .width = (int32_t)v.width,
                                .mirrored = v.mirrored };
    return true;
}

ct_pack_rule ct_transform_rule(const ct_transform *t)
{
    ct_pack_rule r = { .computes = computes(t), .scale = t->scale, .mean = t->mean_value };

    r.n_mean = t->n_mean_value;
    if (t->mean == NULL) return r;
    r.mean = t->mean;
    r.mean_file = true;
    r.n_mean = ct_shape_count(&t->mean_shape, 0, -1);
    return r;
}

/* ---- mean images: Caffe's BlobProto in a file (.binaryproto) */

/* The last three dimensions; those in front of them must be 1. */
static bool shape_of(const Ct__BlobProto *b, ct_shape *shape_p)
{
    int64_t dim[4] = { b->num, b->channels, b->height, b->width };

    if (b->shape != NULL) {
        size_t n = b->shape->n_dim;

        if ((n < 1) || (n > 4)) return false;
        for (int i = 0; i < 4; i++) dim[i] = 1;
        for (size_t i = 0; i < n; i++) dim[4 - n + i] = b->shape->dim[i];
    }
    if (dim[0] != 1) return false;
    for (int i = 1; i < 4; i++) {
        if ((dim[i] < 1) || (dim[i] > (1 << 20))) return false;
    }
    *shape_p = (ct_shape){ 3, { dim[1], dim[2], dim[3] } };
    return true;
}

static ct_status take(const Ct__BlobProto *b, const char *path, const char *who, ct_shape *shape_p,
                      float **mean_p)
{
    size_t have = (b->n_double_data > 0) ? b->n_double_data : b->n_data;
    int64_t n;
    float *mean;

    if (!shape_of(b, shape_p)) {
        return CT_FAIL(CT_ERR_DATA, "%s: mean_file %s: not one image by its shape", who, path);
    }
    n = ct_shape_count(shape_p, 0, -1);
    if (have != (size_t)n) {
        return CT_FAIL(CT_ERR_DATA, "%s: mean_file %s: shape %s, but %zu values", who, path,
                       ct_shape_str(shape_p).text, have);
    }
    mean = ct_mem_acquire((size_t)n * sizeof(float));
    if (mean == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for %s", who, path);
    for (int64_t i = 0; i < n; i++) {
        mean[i] = (b->n_double_data > 0) ? (float)b->double_data[i] : b->data[i];
    }
    *mean_p = mean;
    return CT_OK;
}

ct_status ct_mean_read(const char *path, const char *who, ct_shape *shape_p, float **mean_p)
{
    char *data;
    size_t size;
    Ct__BlobProto *b;
    const char *why;
    ct_status status;

    if (access(path, R_OK) != 0) {
        return CT_FAIL(CT_ERR_IO, "%s: mean_file %s: %s", who, path, ct_path_why(path, errno).text);
    }
    CT_TRY(ct_settings_read(path, &data, &size));
    b = (Ct__BlobProto *)(void *)ct_message_unpack(&ct__blob_proto__descriptor, data, size, &why);
    free(data);
    if (b == NULL) {
        return CT_FAIL(CT_ERR_DATA, "%s: mean_file %s: not a BlobProto: %s", who, path, why);
    }
    status = take(b, path, who, shape_p, mean_p);
    ct__blob_proto__free_unpacked(b, NULL);
    return status;
}

ct_status ct_mean_write(const char *path, const ct_shape *shape, const float *mean)
{
    Ct__BlobProto b = CT__BLOB_PROTO__INIT;
    size_t size;
    uint8_t *data;
    ct_status status;

    b.has_num = b.has_channels = b.has_height = b.has_width = 1;
    b.num = 1;
    b.channels = (int32_t)shape->dim[0];
    b.height = (int32_t)shape->dim[1];
    b.width = (int32_t)shape->dim[2];
    b.n_data = (size_t)ct_shape_count(shape, 0, -1);
    b.data = (float *)(uintptr_t)mean; /* read only by pack */
    size = ct__blob_proto__get_packed_size(&b);
    data = malloc(size);
    if (data == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    ct__blob_proto__pack(&b, data);
    status = ct_file_write(path, data, size);
    free(data);
    return status;
}
