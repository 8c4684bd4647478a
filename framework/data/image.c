#include "framework/data/image.h"

#include <string.h>

ct_status ct_image_decode(const void *data, size_t size, ct_color color, ct_room *room,
                          ct_image *image_p, ct_why *why)
{
    for (int i = 0; ct_image_codec_table[i] != NULL; i++) {
        const ct_image_codec *c = ct_image_codec_table[i];

        if (!c->probe(data, size)) continue;
        if (c->decode == NULL) {
            return CT_WHY(why, CT_ERR_CONFIG, "%s image, but built without %s", c->name,
                          c->without);
        }
        return c->decode(data, size, color, room, image_p, why);
    }
    return CT_WHY(why, CT_ERR_DATA, "neither JPEG nor PNG (%zu bytes)", size);
}

enum { FRACTION_BITS = 11, ONE = 1 << FRACTION_BITS };

/* Source places and the weight of the second, for one axis: centres of pixels fall together. */
static void axis_weights(int64_t from, int64_t to, int64_t i, int64_t *a, int64_t *b, int *weight)
{
    double place = ((double)i + 0.5) * (double)from / (double)to - 0.5;
    int64_t low;

    if (place < 0) place = 0;
    low = (int64_t)place;
    if (low >= from - 1) {
        *a = *b = from - 1;
        *weight = 0;
        return;
    }
    *a = low;
    *b = low + 1;
    *weight = (int)((place - (double)low) * ONE + 0.5);
}

ct_status ct_image_resize(const ct_image *from, int64_t height, int64_t width, ct_room *room,
                          ct_image *to_p)
{
    int c = from->channels;

    CT_TRY(ct_room_reserve(room, (size_t)(height * width * c)));
    for (int64_t y = 0; y < height; y++) {
        int64_t y0, y1;
        int wy;

        axis_weights(from->height, height, y, &y0, &y1, &wy);
        for (int64_t x = 0; x < width; x++) {
            const uint8_t *row0 = from->data + y0 * from->width * c;
            const uint8_t *row1 = from->data + y1 * from->width * c;
            int64_t x0, x1;
            int wx;

            axis_weights(from->width, width, x, &x0, &x1, &wx);
            for (int k = 0; k < c; k++) {
                int top = row0[x0 * c + k] * (ONE - wx) + row0[x1 * c + k] * wx;
                int bottom = row1[x0 * c + k] * (ONE - wx) + row1[x1 * c + k] * wx;
                int64_t sum = (int64_t)top * (ONE - wy) + (int64_t)bottom * wy;

                room->data[(y * width + x) * c + k] =
                    (uint8_t)((sum + ((int64_t)ONE * ONE / 2)) >> (2 * FRACTION_BITS));
            }
        }
    }
    *to_p = (ct_image){ room->data, height, width, c };
    return CT_OK;
}

void ct_image_to_planes(const ct_image *image, uint8_t *planes)
{
    int64_t n = image->height * image->width;

    if (image->channels == 1) {
        memcpy(planes, image->data, (size_t)n);
        return;
    }
    for (int c = 0; c < image->channels; c++) {
        const uint8_t *from = image->data + c;
        uint8_t *to = planes + c * n;

        for (int64_t i = 0; i < n; i++) to[i] = from[i * image->channels];
    }
}

void ct_image_from_planes(const uint8_t *planes, int64_t height, int64_t width, int channels,
                          uint8_t *pixels)
{
    int64_t n = height * width;

    for (int c = 0; c < channels; c++) {
        for (int64_t i = 0; i < n; i++) pixels[i * channels + c] = planes[c * n + i];
    }
}
