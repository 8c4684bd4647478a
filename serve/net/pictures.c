#include "serve/net/pictures.h"

#include <inttypes.h>
#include <stdlib.h>

#include "framework/data/augment/augment.h"
#include "framework/data/image.h"

struct ct_pictures {
    ct_augment *augment; /* NULL: none */
    ct_transform *transform;
    ct_color color;
    ct_shape input;        /* C x H x W         */
    int64_t height, width; /* 0: as they are    */
    bool cuts;             /* a part of the picture is taken */
    const char *moves;     /* the field by which boxes have no place in it; NULL: they have one */
    const Ct__ResizeParameter *resize; /* borrowed; NULL: none */
};

/* What messages call a field. */
static ct_where where_of(const Ct__ServeParameter *p, const ct_source_map *map, const void *field)
{
    return ct_source_map_where(map, p, field, "serve");
}

static ct_status take_size(const Ct__ServeParameter *p, const ct_source_map *map, ct_pictures *q)
{
    const Ct__TransformationParameter *t = p->transform_param;
    int64_t height, width;

    q->cuts =
        ct_transform_crop(t, &height, &width) || ((t != NULL) && (t->random_resized_crop != NULL));

    q->height = p->new_height;
    q->width = p->new_width;
    if ((p->new_height > 0) != (p->new_width > 0))
        return CT_FAIL(CT_ERR_CONFIG, "%s: serve has new_height %u and new_width %u: give both",
                       where_of(p, map, (p->new_height > 0) ? &p->new_height : &p->new_width).text,
                       p->new_height, p->new_width);
    if ((p->new_height > 65535) || (p->new_width > 65535))
        return CT_FAIL(CT_ERR_CONFIG, "%s: serve.new_height %u, new_width %u: at most 65535",
                       where_of(p, map, &p->new_height).text, p->new_height, p->new_width);
    if (q->cuts || (q->height > 0) || ((t != NULL) && (t->resize_param != NULL))) return CT_OK;
    q->height = q->input.dim[1];
    q->width = q->input.dim[2];
    return CT_OK;
}

static ct_status take_transform(const Ct__ServeParameter *p, const ct_source_map *map,
                                ct_pictures *q)
{
    const Ct__TransformationParameter *t = p->transform_param;
    ct_where where = where_of(p, map, t);
    char who[440];

    if (t == NULL) return ct_transform_create(NULL, CT_TEST, "serve", &q->transform);
    q->resize = t->resize_param;
    q->moves =
        (t->random_resized_crop != NULL) ? "random_resized_crop" : ct_augment_chance_in_test(t);
    if (t->mirror)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: serve.transform_param.mirror: pictures that are asked for are not "
                       "mirrored at random",
                       ct_source_map_where(map, t, &t->mirror, "serve").text);
    if ((t->force_gray && (q->color != CT_COLOR_GRAY)) ||
        (t->force_color && (q->color != CT_COLOR_BGR)))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: serve.transform_param.%s: the net's Input has %" PRId64 " channels",
                       where.text, t->force_gray ? "force_gray" : "force_color", q->input.dim[0]);
    snprintf(who, sizeof(who), "%s: serve", where.text);
    CT_TRY(ct_augment_create(t, CT_TEST, who, &q->augment));
    if ((ct_augment_named(t) != NULL) && (q->augment == NULL))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s.transform_param.%s: pictures that are asked for are not augmented", who,
                       ct_augment_named(t));
    return ct_transform_create(t, CT_TEST, who, &q->transform);
}

/* Whether pictures of the new size, or of any, become the input. */
static ct_status check(const Ct__ServeParameter *p, const ct_source_map *map, const ct_pictures *q)
{
    ct_shape in = q->input, augmented, out;
    int64_t height, width;
    ct_status status;
    ct_why why;

    if (q->height > 0) {
        in.dim[1] = q->height;
        in.dim[2] = q->width;
    } else if (ct_transform_crop(p->transform_param, &height, &width)) {
        in.dim[1] = height;
        in.dim[2] = width;
    }
    status = ct_augment_shape(q->augment, &in, &augmented, &why);
    if (status == CT_OK) status = ct_transform_shape(q->transform, &augmented, &out, &why);
    if (status != CT_OK)
        return CT_FAIL(CT_ERR_CONFIG, "%s: serve: %s", where_of(p, map, p->transform_param).text,
                       why.text);
    if (ct_shape_equal(&out, &q->input)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: serve: pictures become %s, expected %s, as the net's Input has",
                   where_of(p, map, p).text, ct_shape_str(&out).text, ct_shape_str(&q->input).text);
}

static ct_status make(const Ct__ServeParameter *p, const ct_source_map *map, ct_pictures *q)
{
    CT_TRY(take_size(p, map, q));
    CT_TRY(take_transform(p, map, q));
    return check(p, map, q);
}

ct_status ct_pictures_refuse(const Ct__ServeParameter *p, const ct_source_map *map,
                             const char *input)
{
    if ((p == NULL) || ((p->transform_param == NULL) && !p->has_new_height && !p->has_new_width))
        return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: serve says how files become pictures, but the net's Input has %s",
                   where_of(p, map, p).text, input);
}

ct_status ct_pictures_create(const Ct__ServeParameter *p, const ct_source_map *map,
                             const ct_shape *input, ct_pictures **p_p)
{
    const Ct__ServeParameter none = CT__SERVE_PARAMETER__INIT;
    ct_pictures *q = NULL;
    ct_status status;

    *p_p = NULL;
    if ((input->dim[1] != 1) && (input->dim[1] != 3))
        return ct_pictures_refuse(p, map, "neither 1 nor 3 channels");
    q = calloc(1, sizeof(*q));
    if (q == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for pictures");
    q->color = (input->dim[1] == 1) ? CT_COLOR_GRAY : CT_COLOR_BGR;
    q->input = (ct_shape){ 3, { input->dim[1], input->dim[2], input->dim[3] } };
    status = make((p != NULL) ? p : &none, map, q);
    if (status != CT_OK) {
        ct_pictures_destroy(q);
        return status;
    }
    *p_p = q;
    return CT_OK;
}

void ct_pictures_destroy(ct_pictures *p)
{
    if (p == NULL) return;
    ct_augment_destroy(p->augment);
    ct_transform_destroy(p->transform);
    free(p);
}

static ct_status check_size(const char *file, size_t size, ct_why *why)
{
    int64_t height = 0, width = 0;

    CT_TRY(ct_image_measure(file, size, &height, &width, why));
    if ((height > 0) && (width > 0) && (width <= CT_MOST_PIXELS / height)) return CT_OK;
    return CT_WHY(why, CT_ERR_DATA,
                  "%" PRId64 " x %" PRId64 " pixels: at most %" PRId64 " in all are decoded", width,
                  height, CT_MOST_PIXELS);
}

/* room: for what stands between file and values. */
static ct_status read_with(const ct_pictures *p, const char *file, size_t size,
                           ct_sample_buffer room[3], ct_picture_frame *frame, ct_sample *sample,
                           ct_why *why)
{
    ct_image image, resized;

    CT_TRY(check_size(file, size, why));
    CT_TRY(ct_image_decode(file, size, p->color, &room[0], &image, why));
    frame->height = image.height;
    frame->width = image.width;
    if ((p->height > 0) && ((image.height != p->height) || (image.width != p->width))) {
        if (ct_image_resize(&image, p->height, p->width, &room[1], &resized) != CT_OK)
            return CT_WHY(why, CT_ERR_NOMEM, "no memory for a picture");
        image = resized;
    }
    *sample = (ct_sample){ .why = why };
    sample->shape = (ct_shape){ 3, { image.channels, image.height, image.width } };
    if (ct_sample_buffer_reserve(&room[2], (size_t)ct_shape_count(&sample->shape, 0, -1)) != CT_OK)
        return CT_WHY(why, CT_ERR_NOMEM, "no memory for a picture");
    ct_image_to_planes(&image, room[2].data);
    sample->u8 = room[2].data;
    return CT_OK;
}

/* A crop of what resize_param makes of the picture. */
static ct_image_part shown_of(const ct_pictures *p, const ct_sample *sample,
                              const ct_sample *augmented)
{
    ct_image_part shown = { { 0, 0, 1, 1 } }, whole, crop;

    if (p->resize != NULL)
        shown = ct_boxes_resized_part(p->resize, sample->shape.dim[1], sample->shape.dim[2]);
    whole = shown;
    crop = ct_transform_part(p->transform, &augmented->shape);
    for (int k = 0; k < 4; k++)
        shown.corner[k] =
            whole.corner[k % 2] + crop.corner[k] * (whole.corner[2 + k % 2] - whole.corner[k % 2]);
    return shown;
}

/* shown_p: of the crop in the middle. */
static ct_status transform(const ct_pictures *p, const ct_sample *sample, ct_augment_room *room,
                           ct_image_part *shown_p, float *to)
{
    ct_sample augmented;
    ct_shape out;

    CT_TRY(ct_augment_apply(p->augment, sample, 0, 0, room, &augmented));
    if (ct_transform_shape(p->transform, &augmented.shape, &out, sample->why) != CT_OK)
        return CT_ERR_DATA;
    ct_transform_apply(p->transform, &augmented, 0, 0, to);
    *shown_p = shown_of(p, sample, &augmented);
    return CT_OK;
}

ct_status ct_pictures_check_boxes(const ct_pictures *p)
{
    if (p->moves == NULL) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "serve.transform_param.%s of the net moves pixels, and boxes do not follow: "
                   "take resize_param, or crop_size",
                   p->moves);
}

ct_status ct_pictures_check_crops(const ct_pictures *p, int n)
{
    if ((n <= 2) || p->cuts) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "--crops=%d: serve.transform_param of the net has no crop_size, so there are no "
                   "corners: give it, or --crops=2, which mirrors alone",
                   n);
}

ct_status ct_pictures_read_crops(const ct_pictures *p, const char *file, size_t size, int n,
                                 float *to, ct_picture_frame *frame_p, ct_why *why)
{
    ct_sample_buffer room[3] = { { 0 } };
    ct_augment_room augment = { 0 };
    ct_picture_frame frame = { .height = 0 };
    ct_sample sample;
    ct_status status = read_with(p, file, size, room, &frame, &sample, why);

    for (int i = 0; (i < n) && (status == CT_OK); i++) {
        sample.crop = ct_crop_at(i, n);
        status = transform(p, &sample, &augment, &frame.shown,
                           to + i * ct_shape_count(&p->input, 0, -1));
    }
    if ((status == CT_OK) && (frame_p != NULL)) *frame_p = frame;
    ct_augment_room_release(&augment);
    for (int i = 0; i < 3; i++) ct_sample_buffer_release(&room[i]);
    return status;
}

ct_status ct_pictures_read(const ct_pictures *p, const char *file, size_t size, float *to,
                           ct_why *why)
{
    return ct_pictures_read_crops(p, file, size, 1, to, NULL, why);
}
