/* An image seen through an affine map. */
#include "framework/data/augment/pixels.h"

static int64_t clamp(int64_t v, int64_t n)
{
    return (v < 0) ? 0 : (v >= n) ? n - 1 : v;
}

/* One channel at a place x + dx, y + dy; rows and columns beyond the edge are those at it. */
static uint8_t blend(const uint8_t *plane, int64_t width, const int64_t row[2],
                     const int64_t col[2], double dx, double dy)
{
    const uint8_t *upper = plane + row[0] * width, *lower = plane + row[1] * width;
    double a = upper[col[0]] + (upper[col[1]] - upper[col[0]]) * dx;
    double b = lower[col[0]] + (lower[col[1]] - lower[col[0]]) * dx;

    return (uint8_t)(a + (b - a) * dy);
}

static void pixel(const ct_pixels *from, double x, double y, uint8_t *out, int64_t plane)
{
    bool inside = (x >= 0) && (x < (double)from->width) && (y >= 0) && (y < (double)from->height);
    int64_t row[2], col[2];
    int64_t left, top;

    if (!inside) {
        for (int64_t c = 0; c < from->channels; c++) out[c * plane] = 0;
        return;
    }
    /* floor(), of what is not below -0.5: a call without SSE 4.1 */
    left = (x < 0.5) ? -1 : (int64_t)(x - 0.5);
    top = (y < 0.5) ? -1 : (int64_t)(y - 0.5);
    for (int i = 0; i < 2; i++) {
        col[i] = clamp(left + i, from->width);
        row[i] = clamp(top + i, from->height);
    }
    for (int64_t c = 0; c < from->channels; c++)
        out[c * plane] = blend(from->data + c * plane, from->width, row, col,
                               x - 0.5 - (double)left, y - 0.5 - (double)top);
}

void ct_pixels_warp(const ct_pixels *from, const double m[6], ct_pixels *to)
{
    int64_t plane = from->height * from->width;

    for (int64_t y = 0; y < from->height; y++) {
        for (int64_t x = 0; x < from->width; x++) {
            double cx = (double)x + 0.5, cy = (double)y + 0.5;

            pixel(from, m[0] * cx + m[1] * cy + m[2], m[3] * cx + m[4] * cy + m[5],
                  to->data + y * from->width + x, plane);
        }
    }
}
