/* Pictures for programs of users: files to pixels, and images as a layer wants them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/data/augment/augment.h"
#include "framework/data/image.h"
#include "framework/data/transform.h"
#include "library/library.h"

/* The framework's pixels are blue, green, red. */
static ct_status take(const ct_image *from, cortado_image *to)
{
    int64_t n = from->height * from->width;

    *to = (cortado_image){ .height = from->height, .width = from->width };
    to->channels = from->channels;
    to->pixels = malloc((size_t)(n * from->channels) + 1);
    if (to->pixels == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a picture of %" PRId64 " pixels", n);
    if (from->channels != 3) {
        memcpy(to->pixels, from->data, (size_t)(n * from->channels));
        return CT_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        for (int c = 0; c < 3; c++) to->pixels[3 * i + c] = from->data[3 * i + 2 - c];
    }
    return CT_OK;
}

static ct_status read_image(const char *file, int channels, cortado_image *image)
{
    ct_sample_buffer room = { .data = NULL };
    ct_image decoded;
    ct_why why;
    ct_status status;
    char *bytes;
    size_t size;

    if ((file == NULL) || (image == NULL))
        return CT_FAIL(CT_ERR_ARG, "a picture's file, or where the picture goes, is NULL");
    if ((channels != 1) && (channels != 3))
        return CT_FAIL(CT_ERR_ARG, "a picture of %d channels: 1 is gray, 3 are red, green, blue",
                       channels);
    CT_TRY(ct_settings_read(file, &bytes, &size));
    status = ct_image_decode(bytes, size, (channels == 1) ? CT_COLOR_GRAY : CT_COLOR_BGR, &room,
                             &decoded, &why);
    if (status != CT_OK)
        status = CT_FAIL(status, "%s: %s", file, why.text);
    else
        status = take(&decoded, image);
    ct_sample_buffer_release(&room);
    free(bytes);
    return status;
}

cortado_status cortado_image_read(const char *file, int channels, cortado_image *image)
{
    ct_public_call c;

    ct_public_begin(&c);
    return ct_public_end(&c, read_image(file, channels, image));
}

void cortado_image_free(cortado_image *image)
{
    if (image == NULL) return;
    free(image->pixels);
    *image = (cortado_image){ .pixels = NULL };
}

/* ---- images as a MemoryData wants them */

typedef struct transformer {
    const ct_layer *layer;
    ct_augment *augment;
    ct_transform *transform;
    ct_augment_room room;
    ct_shape in, out;
} transformer;

static ct_status find_memory_layer(const cortado_net *n, const char *name, const ct_layer **layer_p)
{
    const ct_net *net = n->owner.net;
    int i = ct_net_find_layer(net, name);

    if (i < 0) return CT_FAIL(CT_ERR_ARG, "the net has no layer \"%s\"", name);
    *layer_p = net->layer[i];
    if (strcmp(net->layer[i]->ops->type, "MemoryData") == 0) return CT_OK;
    return CT_FAIL(CT_ERR_ARG, "layer \"%s\" is a %s: images are transformed for MemoryData", name,
                   net->layer[i]->ops->type);
}

static ct_status check_images(const ct_layer *l, const cortado_images *m)
{
    if ((m->bytes == NULL) == (m->floats == NULL))
        return CT_FAIL(CT_ERR_ARG, "layer \"%s\": images are bytes or floats: give one, not both",
                       l->name);
    if ((m->n >= 0) && (m->channels >= 1) && (m->height >= 1) && (m->width >= 1) &&
        (m->height <= CT_MAX_IMAGE_BYTES / m->width / m->channels))
        return CT_OK;
    return CT_FAIL(CT_ERR_ARG,
                   "layer \"%s\": %" PRId64 " images of %" PRId64 " x %" PRId64 " x %" PRId64,
                   l->name, m->n, m->channels, m->height, m->width);
}

/* What the layer's transform_param makes of such images must be what its tops hold. */
static ct_status fit(transformer *t)
{
    const Ct__MemoryDataParameter *p = t->layer->param->memory_data_param;
    ct_shape wanted = { 3, { p->channels, p->height, p->width } }, augmented;
    bool by_dim = (p->n_dim == 4); /* else no image fits */
    ct_why why;
    ct_status status;

    if (by_dim) wanted = (ct_shape){ 3, { p->dim[1], p->dim[2], p->dim[3] } };
    status = ct_augment_shape(t->augment, &t->in, &augmented, &why);

    if (status == CT_OK) status = ct_transform_shape(t->transform, &augmented, &t->out, &why);
    if (status != CT_OK)
        return CT_FAIL(status, "layer \"%s\": images of %s: %s", t->layer->name,
                       ct_shape_str(&t->in).text, why.text);
    if (ct_shape_equal(&t->out, &wanted)) return CT_OK;
    return CT_FAIL(CT_ERR_SHAPE, "layer \"%s\": images of %s become %s; memory_data_param says %s",
                   t->layer->name, ct_shape_str(&t->in).text, ct_shape_str(&t->out).text,
                   ct_shape_str(&wanted).text);
}

static ct_status transform_one(transformer *t, const cortado_images *m, int64_t i, uint64_t seed,
                               int64_t place, float *to)
{
    int64_t n = ct_shape_count(&t->in, 0, -1);
    ct_why why = { "" };
    ct_sample sample = { .shape = t->in, .why = &why }, made;
    ct_status status;

    if (m->bytes != NULL) sample.u8 = m->bytes + i * n;
    if (m->floats != NULL) sample.f32 = m->floats + i * n;
    status = ct_augment_apply(t->augment, &sample, seed, place, &t->room, &made);
    if (status == CT_OK) status = ct_transform_shape(t->transform, &made.shape, &t->out, &why);
    if (status != CT_OK)
        return CT_FAIL(status, "layer \"%s\": image %" PRId64 ": %s", t->layer->name, i, why.text);
    ct_transform_apply(t->transform, &made, seed, place, to + i * ct_shape_count(&t->out, 0, -1));
    return CT_OK;
}

static ct_status transform_images(const cortado_net *n, const char *layer, const cortado_images *m,
                                  int64_t first, float *to)
{
    transformer t = { .in = { 3, { m->channels, m->height, m->width } } };
    const Ct__TransformationParameter *p;
    ct_status status;

    CT_TRY(find_memory_layer(n, layer, &t.layer));
    CT_TRY(check_images(t.layer, m));
    p = t.layer->param->transform_param;
    status = ct_augment_create(p, n->phase, t.layer->name, &t.augment);
    if (status == CT_OK) status = ct_transform_create(p, n->phase, t.layer->name, &t.transform);
    if (status == CT_OK) status = fit(&t);
    for (int64_t i = 0; (i < m->n) && (status == CT_OK); i++)
        status = transform_one(&t, m, i, n->seed, first + i, to);
    ct_augment_room_release(&t.room);
    ct_augment_destroy(t.augment);
    ct_transform_destroy(t.transform);
    return status;
}

cortado_status cortado_net_transform(const cortado_net *net, const char *layer,
                                     const cortado_images *images, int64_t first, float *to)
{
    ct_public_call c;
    ct_status status;

    ct_public_begin(&c);
    status = ((net == NULL) || (layer == NULL) || (images == NULL) || (to == NULL) || (first < 0))
                 ? CT_FAIL(CT_ERR_ARG, "a net, a layer's name, images, or where they go, is NULL; "
                                       "or the first place is below 0")
                 : transform_images(net, layer, images, first, to);
    return ct_public_end(&c, status);
}
