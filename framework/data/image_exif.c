/* Which way up a photograph is: the orientation in its EXIF data (a TIFF directory), in JPEG's APP1
 * segment or PNG's eXIf chunk. Nothing in a damaged directory is an error: the image is taken as it
 * is stored. */
#include "framework/data/image.h"

#include <stdlib.h>
#include <string.h>

typedef struct tiff {
    const uint8_t *data;
    size_t size;
    bool little;
} tiff;

static uint32_t read_number(const tiff *t, size_t at, int bytes)
{
    uint32_t v = 0;

    for (int i = 0; i < bytes; i++)
        v = (v << 8) | t->data[at + (size_t)(t->little ? bytes - 1 - i : i)];
    return v;
}

/* The directory's entries: tag, type, count, value, 12 bytes in all. */
static int orientation_of(const uint8_t *data, size_t size)
{
    enum { TAG = 0x0112, SHORT = 3 };
    tiff t = { data, size, false };
    size_t at, n;

    if (size < 10) return 1;
    t.little = data[0] == 'I';
    if ((data[0] != data[1]) || (!t.little && (data[0] != 'M')) || (read_number(&t, 2, 2) != 42))
        return 1;
    at = read_number(&t, 4, 4);
    if (at > size - 2) return 1;
    n = read_number(&t, at, 2);
    for (at += 2; (n > 0) && (at + 12 <= size); n--, at += 12) {
        uint32_t v;

        if (read_number(&t, at, 2) != TAG) continue;
        v = (read_number(&t, at + 2, 2) == SHORT) ? read_number(&t, at + 8, 2) : 1;
        return ((v >= 1) && (v <= 8)) ? (int)v : 1;
    }
    return 1;
}

static int of_jpeg(const uint8_t *data, size_t size)
{
    size_t at = 2;

    while ((at + 4 <= size) && (data[at] == 0xFF)) {
        int marker = data[at + 1];
        size_t length = ((size_t)data[at + 2] << 8) | data[at + 3]; /* with its own two bytes */

        if (marker == 0xFF) { /* a filler */
            at++;
            continue;
        }
        if ((marker == 0xDA) || (length < 2) || (length > size - at - 2)) break;
        if ((marker == 0xE1) && (length >= 8) && (memcmp(data + at + 4, "Exif\0", 6) == 0))
            return orientation_of(data + at + 10, length - 8);
        at += 2 + length;
    }
    return 1;
}

static int of_png(const uint8_t *data, size_t size)
{
    tiff t = { data, size, false };
    size_t at = 8;

    while (size - at >= 12) { /* length, name, content, checksum */
        size_t length = read_number(&t, at, 4);

        if (length > size - at - 12) break;
        if (memcmp(data + at + 4, "eXIf", 4) == 0) return orientation_of(data + at + 8, length);
        at += 12 + length;
    }
    return 1;
}

int ct_exif_orientation(const uint8_t *data, size_t size)
{
    if (size < 8) return 1;
    return (data[0] == 0xFF) ? of_jpeg(data, size) : (data[0] == 0x89) ? of_png(data, size) : 1;
}

ct_status ct_image_turn(ct_image *image, int orientation, ct_why *why)
{
    int64_t h = image->height, w = image->width, c = image->channels;
    bool swaps = orientation >= 5; /* stored on its side: rows are columns */
    bool from_bottom =
        (orientation == 3) || (orientation == 4) || (orientation == 6) || (orientation == 7);
    bool from_right =
        (orientation == 2) || (orientation == 3) || (orientation == 7) || (orientation == 8);
    uint8_t *stored, *out = image->data;

    if (orientation <= 1) return CT_OK;
    stored = malloc((size_t)(h * w * c));
    if (stored == NULL) return CT_WHY(why, CT_ERR_NOMEM, "no memory to turn an image");
    memcpy(stored, image->data, (size_t)(h * w * c));
    image->height = swaps ? w : h;
    image->width = swaps ? h : w;
    for (int64_t y = 0; y < image->height; y++) {
        for (int64_t x = 0; x < image->width; x++, out += c) {
            int64_t from_y = swaps ? x : y, from_x = swaps ? y : x;

            if (from_bottom) from_y = h - 1 - from_y;
            if (from_right) from_x = w - 1 - from_x;
            memcpy(out, stored + (from_y * w + from_x) * c, (size_t)c);
        }
    }
    free(stored);
    return CT_OK;
}
