/* Resizing by OpenCV's filters. A filter is a few pixels and their weights for each pixel of the
 * result, along rows and then along columns; results are rounded once. OpenCV itself rounds weights
 * to 11 bits, so its values may differ by 1; LINEAR is bit for bit. */
#include <math.h>
#include <string.h>

#include "framework/data/augment/pixels.h"
#include "framework/data/image.h"

/* Pixels [first, first + n) of the source, which may reach out of it, with weights. */
typedef struct taps {
    int64_t first, n;
    float *weight;
} taps;

/* How many pixels one of the result is made of, at most. */
static int64_t tap_count(Ct__ResizeParameter__InterpMode mode, double scale)
{
    switch (mode) {
    case CT__RESIZE_PARAMETER__INTERP_MODE__CUBIC:
        return 4;
    case CT__RESIZE_PARAMETER__INTERP_MODE__LANCZOS4:
        return 8;
    case CT__RESIZE_PARAMETER__INTERP_MODE__AREA:
        return (int64_t)ceil(scale) + 2;
    default:
        return 1;
    }
}

static double cubic(double x)
{
    const double a = -0.75;

    x = fabs(x);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return (x < 2) ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static double lanczos(double x)
{
    const double pi = 3.141592653589793;

    if (fabs(x) < 1e-9) return 1;
    return (fabs(x) < 4) ? sin(pi * x) * sin(pi * x / 4) / (pi * pi * x * x / 4) : 0;
}

/* Around the place of pixel i in the source: reach pixels on each side. */
static void set_around(taps *t, int64_t i, double scale, int64_t reach, double (*value)(double))
{
    double place = ((double)i + 0.5) * scale - 0.5, sum = 0;

    t->first = (int64_t)floor(place) - reach + 1;
    t->n = 2 * reach;
    for (int64_t k = 0; k < t->n; k++) sum += value((double)(t->first + k) - place);
    for (int64_t k = 0; k < t->n; k++)
        t->weight[k] = (float)(value((double)(t->first + k) - place) / sum);
}

/* Every pixel counts as far as the result's pixel i lies on it. */
static void set_area(taps *t, int64_t i, double scale, int64_t size)
{
    double low = (double)i * scale, high = fmin(low + scale, (double)size), sum = 0;

    t->first = (int64_t)floor(low + 1e-9);
    t->n = 0;
    for (int64_t k = t->first; ((double)k < high - 1e-9) && (k < size); k++) {
        double part = fmin(high, (double)(k + 1)) - fmax(low, (double)k);

        t->weight[t->n++] = (float)part;
        sum += part;
    }
    for (int64_t k = 0; k < t->n; k++) t->weight[k] = (float)((double)t->weight[k] / sum);
}

/* AREA of an enlargement: two neighbours, where the result's pixel lies on both. */
static void set_between(taps *t, int64_t i, double scale)
{
    double part;

    t->first = (int64_t)floor((double)i * scale);
    t->n = 2;
    part = (double)(i + 1) - (double)(t->first + 1) / scale;
    part = (part <= 0) ? 0 : part - floor(part);
    t->weight[0] = (float)(1 - part);
    t->weight[1] = (float)part;
}

/* larger: an axis of the image grows. */
static void set_taps(taps *t, Ct__ResizeParameter__InterpMode mode, int64_t i, double scale,
                     int64_t size, bool larger)
{
    switch (mode) {
    case CT__RESIZE_PARAMETER__INTERP_MODE__CUBIC:
        set_around(t, i, scale, 2, cubic);
        break;
    case CT__RESIZE_PARAMETER__INTERP_MODE__LANCZOS4:
        set_around(t, i, scale, 4, lanczos);
        break;
    case CT__RESIZE_PARAMETER__INTERP_MODE__AREA:
        if (larger)
            set_between(t, i, scale);
        else
            set_area(t, i, scale, size);
        break;
    default: /* NEAREST */
        *t = (taps){ (int64_t)floor((double)i * scale), 1, t->weight };
        t->weight[0] = 1;
    }
}

static int64_t clamp(int64_t i, int64_t n)
{
    return (i < 0) ? 0 : (i < n) ? i : n - 1;
}

/* Rows of bytes become rows of floats of the other width. */
static void along_rows(const ct_pixels *from, int64_t c, const taps *column, int64_t width,
                       float *out)
{
    for (int64_t y = 0; y < from->height; y++) {
        const uint8_t *row = from->data + (c * from->height + y) * from->width;

        for (int64_t x = 0; x < width; x++) {
            const taps *t = &column[x];
            float sum = 0;

            for (int64_t k = 0; k < t->n; k++)
                sum += t->weight[k] * (float)row[clamp(t->first + k, from->width)];
            *out++ = sum;
        }
    }
}

static void along_columns(const float *in, const taps *row, int64_t c, int64_t height,
                          ct_pixels *to)
{
    uint8_t *out = to->data + c * to->height * to->width;

    for (int64_t y = 0; y < to->height; y++) {
        const taps *t = &row[y];

        for (int64_t x = 0; x < to->width; x++) {
            float sum = 0;

            for (int64_t k = 0; k < t->n; k++)
                sum += t->weight[k] * in[clamp(t->first + k, height) * to->width + x];
            *out++ = (sum <= 0) ? 0 : (sum >= 255) ? 255 : (uint8_t)lrintf(sum);
        }
    }
}

/* OpenCV's INTER_LINEAR, a plane at a time. */
static ct_status linear(const ct_pixels *from, ct_sample_buffer *room, ct_pixels *to)
{
    for (int64_t c = 0; c < from->channels; c++) {
        ct_image plane = { from->data + c * from->height * from->width, from->height, from->width,
                           1 };
        ct_image resized;

        CT_TRY(ct_image_resize(&plane, to->height, to->width, room, &resized));
        memcpy(to->data + c * to->height * to->width, resized.data,
               (size_t)(to->height * to->width));
    }
    return CT_OK;
}

ct_status ct_pixels_interpolate(const ct_pixels *from, Ct__ResizeParameter__InterpMode mode,
                                ct_sample_buffer *room, ct_pixels *to)
{
    double across = (double)from->width / (double)to->width;
    double down = (double)from->height / (double)to->height;
    bool larger = (across < 1) || (down < 1);
    int64_t n[2], plane = from->height * to->width;
    taps *column, *row;
    float *weight, *between;

    if (mode == CT__RESIZE_PARAMETER__INTERP_MODE__LINEAR) return linear(from, room, to);
    n[0] = tap_count(mode, across);
    n[1] = tap_count(mode, down);
    CT_TRY(ct_sample_buffer_reserve(
        room, (size_t)(to->width + to->height) * sizeof(taps) +
                  (size_t)(to->width * n[0] + to->height * n[1] + plane) * sizeof(float)));
    column = (taps *)(void *)room->data;
    row = column + to->width;
    weight = (float *)(void *)(row + to->height);
    between = weight + to->width * n[0] + to->height * n[1];
    for (int64_t x = 0; x < to->width; x++) {
        column[x].weight = weight + x * n[0];
        set_taps(&column[x], mode, x, across, from->width, larger);
    }
    for (int64_t y = 0; y < to->height; y++) {
        row[y].weight = weight + to->width * n[0] + y * n[1];
        set_taps(&row[y], mode, y, down, from->height, larger);
    }
    for (int64_t c = 0; c < from->channels; c++) {
        along_rows(from, c, column, to->width, between);
        along_columns(between, row, c, from->height, to);
    }
    return CT_OK;
}
