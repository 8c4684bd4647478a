#include "framework/data/image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/simd.h"

/* Turns and mirrors an image that is stored with this EXIF orientation upright, in its memory. */
static ct_status image_turn(ct_image *image, int orientation, ct_why *why);

ct_status ct_image_decode(const void *data, size_t size, ct_color color, ct_sample_buffer *room,
                          ct_image *image_p, ct_why *why)
{
    for (int i = 0; ct_image_codec_table[i] != NULL; i++) {
        const ct_image_codec *c = ct_image_codec_table[i];

        if (!c->probe(data, size)) continue;
        if (c->decode == NULL) {
            return CT_WHY(why, CT_ERR_CONFIG, "%s image, but built without %s", c->name,
                          c->without);
        }
        CT_TRY(c->decode(data, size, color, room, image_p, why));
        if (color == CT_COLOR_NATIVE) return CT_OK;
        return image_turn(image_p, ct_exif_orientation(data, size), why);
    }
    return CT_WHY(why, CT_ERR_DATA, "no JPEG, PNG, WebP or TIFF (%zu bytes)", size);
}

ct_status ct_image_measure(const void *data, size_t size, int64_t *height_p, int64_t *width_p,
                           ct_why *why)
{
    for (int i = 0; ct_image_codec_table[i] != NULL; i++) {
        const ct_image_codec *c = ct_image_codec_table[i];

        if (!c->probe(data, size)) continue;
        if (c->measure == NULL)
            return CT_WHY(why, CT_ERR_CONFIG, "%s image, but built without %s", c->name,
                          c->without);
        return c->measure(data, size, height_p, width_p, why);
    }
    return CT_WHY(why, CT_ERR_CONFIG, "no JPEG, PNG, WebP or TIFF (%zu bytes)", size);
}

/* ---- resizing: OpenCV's INTER_LINEAR on bytes, rounding for rounding: its values are what nets
 * that were trained with Caffe have seen. Places in float, weights in 2^-11 rounded to even, first
 * along x without rounding, then along y with 4 and 16 bits cut off each row's part. */

enum { ONE = 1 << 11 };

/* A pixel of the result along one axis: two of the source and their weights. */
typedef struct mix {
    int64_t a, b;
    int weight_a, weight_b;
} mix;

static mix place_of(int64_t from, int64_t to, int64_t i)
{
    double scale = 1.0 / ((double)to / (double)from);
    float place = (float)(((double)i + 0.5) * scale - 0.5), low = floorf(place), part = place - low;

    return (mix){ (int64_t)low, (int64_t)low + 1, (int)lrintf((1.0f - part) * (float)ONE),
                  (int)lrintf(part * (float)ONE) };
}

/* Beyond the first and last column there is one pixel with the whole weight … */
static mix column_of(int64_t from, int64_t to, int64_t i)
{
    mix m = place_of(from, to, i);

    if (m.a < 0) return (mix){ 0, 0, ONE, 0 };
    return (m.b < from) ? m : (mix){ from - 1, from - 1, ONE, 0 };
}

/* … beyond rows the same row twice, which rounds otherwise. */
static mix row_of(int64_t from, int64_t to, int64_t i)
{
    mix m = place_of(from, to, i);

    if (m.a < 0) m.a = 0;
    if (m.a > from - 1) m.a = from - 1;
    if (m.b > from - 1) m.b = from - 1;
    return m;
}

/* At most 255 * 2^11. */
static void mix_columns(const uint8_t *row, const mix *col, int64_t n, int c, int *out)
{
    for (int64_t x = 0; x < n; x++) {
        const uint8_t *a = row + col[x].a, *b = row + col[x].b;

        for (int k = 0; k < c; k++) *out++ = a[k] * col[x].weight_a + b[k] * col[x].weight_b;
    }
}

CT_SIMD_CLONES static void mix_rows(const int *a, const int *b, int weight_a, int weight_b,
                                    int64_t n, uint8_t *restrict out)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        int sum = ((weight_a * (a[i] >> 4)) >> 16) + ((weight_b * (b[i] >> 4)) >> 16);

        out[i] = (uint8_t)((sum + 2) >> 2);
    }
}

/* Rows of the source that have been mixed along x: two neighbours are used, often again. */
typedef struct row_pair {
    int *row[2];
    int64_t of[2]; /* -1: none */
} row_pair;

static const int *take_row(row_pair *p, int slot, int64_t y, const ct_image *from, const mix *col,
                           int64_t width)
{
    if (p->of[slot] != y) {
        if (p->of[1 - slot] == y) { /* what was below is above now */
            int *row = p->row[0];

            p->row[0] = p->row[1];
            p->row[1] = row;
            p->of[1 - slot] = p->of[slot];
        } else {
            mix_columns(from->data + y * from->width * from->channels, col, width, from->channels,
                        p->row[slot]);
        }
        p->of[slot] = y;
    }
    return p->row[slot];
}

ct_status ct_image_resize(const ct_image *from, int64_t height, int64_t width,
                          ct_sample_buffer *room, ct_image *to_p)
{
    int64_t c = from->channels, n = width * c, pixels = (height * n + 15) / 16 * 16;
    row_pair pair = { .of = { -1, -1 } };
    mix *col;

    CT_TRY(ct_sample_buffer_reserve(room, (size_t)pixels + (size_t)width * sizeof(*col) +
                                              2 * (size_t)n * sizeof(*pair.row[0])));
    col = (mix *)(void *)(room->data + pixels);
    pair.row[0] = (int *)(void *)(col + width);
    pair.row[1] = pair.row[0] + n;
    for (int64_t x = 0; x < width; x++) {
        col[x] = column_of(from->width, width, x);
        col[x].a *= c;
        col[x].b *= c;
    }
    for (int64_t y = 0; y < height; y++) {
        mix m = row_of(from->height, height, y);
        const int *a = take_row(&pair, 0, m.a, from, col, width);
        const int *b = (m.b == m.a) ? a : take_row(&pair, 1, m.b, from, col, width);

        mix_rows(a, b, m.weight_a, m.weight_b, n, room->data + y * n);
    }
    *to_p = (ct_image){ room->data, height, width, (int)c };
    return CT_OK;
}

CT_SIMD_CLONES static void split_three(const uint8_t *restrict from, int64_t n,
                                       uint8_t *restrict planes)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        planes[i] = from[3 * i];
        planes[n + i] = from[3 * i + 1];
        planes[2 * n + i] = from[3 * i + 2];
    }
}

/* OpenCV's weights, in 2^-15. */
void ct_image_to_gray(ct_image *image)
{
    int64_t n = image->height * image->width;

    for (int64_t i = 0; i < n; i++) {
        const uint8_t *p = image->data + 3 * i;

        image->data[i] = (uint8_t)((3735 * p[0] + 19235 * p[1] + 9798 * p[2] + (1 << 14)) >> 15);
    }
    image->channels = 1;
}

void ct_image_to_planes(const ct_image *image, uint8_t *planes)
{
    int64_t n = image->height * image->width;

    if (image->channels == 1) {
        memcpy(planes, image->data, (size_t)n);
        return;
    }
    split_three(image->data, n, planes);
}

/* ---- which way up a photograph is: the orientation in its EXIF data (a TIFF directory), in JPEG's
 * APP1 segment, PNG's eXIf chunk or WebP's EXIF chunk; a TIFF file is such a directory itself.
 * Nothing in a damaged directory is an error: the image is taken as it is stored. */

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

/* RIFF: name, length in little endian, content to an even length. */
static int of_webp(const uint8_t *data, size_t size)
{
    tiff t = { data, size, true };
    size_t at = 12;

    while ((at <= size) && (size - at >= 8)) {
        size_t length = read_number(&t, at + 4, 4);

        if (length > size - at - 8) break;
        if (memcmp(data + at, "EXIF", 4) == 0) return orientation_of(data + at + 8, length);
        at += 8 + length + length % 2;
    }
    return 1;
}

int ct_exif_orientation(const uint8_t *data, size_t size)
{
    if (size < 8) return 1;
    switch (data[0]) {
    case 0xFF:
        return of_jpeg(data, size);
    case 0x89:
        return of_png(data, size);
    case 'R':
        return of_webp(data, size);
    default:
        return orientation_of(data, size);
    }
}

static ct_status image_turn(ct_image *image, int orientation, ct_why *why)
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
