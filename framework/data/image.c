#include "framework/data/image.h"

#include <string.h>

#include "framework/base/simd.h"

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

/* A column of the result: what it adds up, in values of a row, and the weight of the second. */
typedef struct column {
    int64_t a, b;
    int weight;
} column;

/* At most 255 * 2^11; with the columns' weights 255 * 2^22, which an int holds. */
CT_SIMD_CLONES static void mix_rows(const uint8_t *row0, const uint8_t *row1, int weight, int64_t n,
                                    int *restrict out)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) out[i] = row0[i] * (ONE - weight) + row1[i] * weight;
}

static void mix_columns(const int *row, const column *col, int64_t n, int c, uint8_t *out)
{
    for (int64_t x = 0; x < n; x++) {
        const int *a = row + col[x].a, *b = row + col[x].b;

        for (int k = 0; k < c; k++) {
            int sum = a[k] * (ONE - col[x].weight) + b[k] * col[x].weight;

            *out++ = (uint8_t)((sum + ONE * ONE / 2) >> (2 * FRACTION_BITS));
        }
    }
}

ct_status ct_image_resize(const ct_image *from, int64_t height, int64_t width, ct_room *room,
                          ct_image *to_p)
{
    int64_t c = from->channels, n = from->width * c, pixels = (height * width * c + 15) / 16 * 16;
    column *col;
    int *row;

    CT_TRY(ct_room_reserve(room, (size_t)pixels + (size_t)width * sizeof(*col) +
                                     (size_t)n * sizeof(*row)));
    col = (column *)(void *)(room->data + pixels);
    row = (int *)(void *)(col + width);
    for (int64_t x = 0; x < width; x++) {
        axis_weights(from->width, width, x, &col[x].a, &col[x].b, &col[x].weight);
        col[x].a *= c;
        col[x].b *= c;
    }
    for (int64_t y = 0; y < height; y++) {
        int64_t y0, y1;
        int weight;

        axis_weights(from->height, height, y, &y0, &y1, &weight);
        mix_rows(from->data + y0 * n, from->data + y1 * n, weight, n, row);
        mix_columns(row, col, width, (int)c, room->data + y * width * c);
    }
    *to_p = (ct_image){ room->data, height, width, (int)c };
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
