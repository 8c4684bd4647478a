#include "framework/data/datum.h"

#include <string.h>

#include "framework/proto/cortado.pb-c.h"

void ct_datum_room_release(ct_datum_buffer *room)
{
    ct_sample_buffer_release(&room->values);
    ct_sample_buffer_release(&room->decoded);
}

static ct_status take_encoded(const Ct__Datum *d, ct_color color, ct_datum_buffer *room,
                              ct_sample *sample, ct_why *why)
{
    ct_image image;

    CT_TRY(ct_image_decode(d->data.data, d->data.len, color, &room->decoded, &image, why));
    if (ct_sample_buffer_reserve(&room->values,
                                 (size_t)(image.height * image.width * image.channels)) != CT_OK) {
        return CT_WHY(why, CT_ERR_NOMEM, "no memory");
    }
    ct_image_to_planes(&image, room->values.data);
    sample->u8 = room->values.data;
    sample->f32 = NULL;
    sample->shape = (ct_shape){ 3, { image.channels, image.height, image.width } };
    return CT_OK;
}

static ct_status take_plain(const Ct__Datum *d, ct_datum_buffer *room, ct_sample *sample,
                            ct_why *why)
{
    int64_t c = d->channels, h = d->height, w = d->width, n;
    size_t bytes;

    if ((c <= 0) || (h <= 0) || (w <= 0) || (h > CT_MAX_IMAGE_BYTES / w) ||
        (c > CT_MAX_IMAGE_BYTES / (h * w))) {
        return CT_WHY(why, CT_ERR_DATA, "impossible shape %lld x %lld x %lld", (long long)c,
                      (long long)h, (long long)w);
    }
    n = c * h * w;
    if ((d->data.len > 0) ? (d->data.len != (size_t)n) : (d->n_float_data != (size_t)n)) {
        return CT_WHY(why, CT_ERR_DATA,
                      "shape %lld x %lld x %lld needs %lld values, the record has %zu bytes and "
                      "%zu floats",
                      (long long)c, (long long)h, (long long)w, (long long)n, d->data.len,
                      d->n_float_data);
    }
    bytes = (d->data.len > 0) ? (size_t)n : (size_t)n * sizeof(float);
    if (ct_sample_buffer_reserve(&room->values, bytes) != CT_OK) {
        return CT_WHY(why, CT_ERR_NOMEM, "no memory");
    }
    memcpy(room->values.data, (d->data.len > 0) ? (void *)d->data.data : (void *)d->float_data,
           bytes);
    sample->u8 = (d->data.len > 0) ? room->values.data : NULL;
    sample->f32 = (d->data.len > 0) ? NULL : (const float *)(void *)room->values.data;
    sample->shape = (ct_shape){ 3, { c, h, w } };
    return CT_OK;
}

ct_status ct_datum_decode(const void *data, size_t size, ct_color color, ct_datum_buffer *room,
                          ct_sample *sample, float *label_p, ct_why *why)
{
    Ct__Datum *d = ct__datum__unpack(NULL, size, data);
    ct_status status;

    if (d == NULL) return CT_WHY(why, CT_ERR_DATA, "not a Datum (%zu bytes)", size);
    if ((label_p != NULL) && !d->has_label) {
        status = CT_WHY(why, CT_ERR_DATA, "the record has no label");
    } else if (d->encoded) {
        status = take_encoded(d, color, room, sample, why);
    } else {
        status = take_plain(d, room, sample, why);
    }
    if ((status == CT_OK) && (label_p != NULL)) *label_p = (float)d->label;
    ct__datum__free_unpacked(d, NULL);
    return status;
}

ct_status ct_datum_encode(const uint8_t *values, size_t n, int channels, int64_t height,
                          int64_t width, int label, bool encoded, ct_sample_buffer *room,
                          size_t *size_p)
{
    Ct__Datum d = CT__DATUM__INIT;

    d.has_channels = d.has_height = d.has_width = d.has_label = 1;
    d.channels = channels;
    d.height = (int32_t)height;
    d.width = (int32_t)width;
    d.label = label;
    d.has_data = 1;
    d.data.data = (uint8_t *)(uintptr_t)values; /* read only by pack */
    d.data.len = n;
    d.has_encoded = encoded;
    d.encoded = encoded;
    CT_TRY(ct_sample_buffer_reserve(room, ct__datum__get_packed_size(&d)));
    *size_p = ct__datum__pack(&d, room->data);
    return CT_OK;
}
