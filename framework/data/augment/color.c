/* Colours: blends of an image with one that lacks something, hue, and maps of each value. */
#include <math.h>
#include <string.h>

#include "framework/base/simd.h"
#include "framework/data/augment/pixels.h"

static int64_t plane_of(const ct_pixels *p)
{
    return p->height * p->width;
}

CT_SIMD_PART uint8_t between(float without, float v, float factor)
{
    float mixed = without + factor * (v - without);

    mixed = (mixed < 0.0f) ? 0.0f : mixed;
    return (uint8_t)((mixed > 255.0f) ? 255.0f : mixed);
}

CT_SIMD_CLONES static void blend_with(uint8_t *v, int64_t n, float without, float factor)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) v[i] = between(without, (float)v[i], factor);
}

CT_SIMD_PART int32_t grey_of(int32_t red, int32_t green, int32_t blue)
{
    return (red * 19595 + green * 38470 + blue * 7471 + (1 << 15)) >> 16;
}

/* The planes of red, green, blue. */
typedef struct rgb {
    uint8_t *red, *green, *blue;
} rgb;

static rgb rgb_of(const ct_pixels *p)
{
    int64_t n = plane_of(p);

    return (rgb){ p->data + p->red * n, p->data + n, p->data + (2 - p->red) * n };
}

void ct_pixels_brightness(ct_pixels *p, float factor)
{
    blend_with(p->data, ct_pixels_bytes(p), 0.0f, factor);
}

CT_SIMD_CLONES static double mean_grey(const ct_pixels *p)
{
    int64_t n = plane_of(p), sum = 0;

    if (p->channels == 3) {
        rgb c = rgb_of(p);

#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += grey_of(c.red[i], c.green[i], c.blue[i]);
    } else {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += p->data[i];
    }
    return (double)sum / (double)n;
}

void ct_pixels_contrast(ct_pixels *p, float factor)
{
    blend_with(p->data, ct_pixels_bytes(p), (float)(int)(mean_grey(p) + 0.5), factor);
}

CT_SIMD_CLONES static void saturate(uint8_t *restrict red, uint8_t *restrict green,
                                    uint8_t *restrict blue, int64_t n, float factor)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float grey = (float)grey_of(red[i], green[i], blue[i]);

        red[i] = between(grey, (float)red[i], factor);
        green[i] = between(grey, (float)green[i], factor);
        blue[i] = between(grey, (float)blue[i], factor);
    }
}

void ct_pixels_saturation(ct_pixels *p, float factor)
{
    rgb c;

    if (p->channels != 3) return;
    c = rgb_of(p);
    saturate(c.red, c.green, c.blue, plane_of(p), factor);
}

/* ---- hue: to HSV of 8 bits and back */

static uint8_t hue_of(float red, float green, float blue, float largest, float range)
{
    float r = (largest - red) / range, g = (largest - green) / range, b = (largest - blue) / range;
    float h = (largest == red)     ? b - g
              : (largest == green) ? (float)(2.0 + (double)r - (double)b)
                                   : (float)(4.0 + (double)g - (double)r);
    double turned = (double)h / 6.0 + 1.0;

    h = (float)(turned - ((turned >= 1.0) ? 1.0 : 0.0));
    return (uint8_t)(int)((double)h * 255.0);
}

static uint8_t nearest(double v)
{
    int i = (int)(v + 0.5);

    return (uint8_t)((i > 255) ? 255 : i);
}

static void turn_hue(uint8_t *red, uint8_t *green, uint8_t *blue, uint8_t steps)
{
    uint8_t most = (*red > *green) ? *red : *green, least = (*red < *green) ? *red : *green;
    uint8_t hue, p, q, t, v;
    float range, saturation, f;
    double sixth;
    int sector;

    v = most = (*blue > most) ? *blue : most;
    least = (*blue < least) ? *blue : least;
    if (most == least) return; /* grey has no hue */
    range = (float)(most - least);
    hue = (uint8_t)(hue_of((float)*red, (float)*green, (float)*blue, (float)most, range) + steps);
    saturation = (float)(uint8_t)(int)((double)(range / (float)most) * 255.0);
    if (saturation == 0.0f) {
        *red = *green = *blue = v;
        return;
    }
    saturation = (float)((double)saturation / 255.0);
    sixth = (double)hue * 6.0 / 255.0;
    sector = (int)sixth;
    f = (float)(sixth - (double)sector);
    p = nearest((double)v * (1.0 - (double)saturation));
    q = nearest((double)v * (1.0 - (double)(saturation * f)));
    t = nearest((double)v * (1.0 - (double)saturation * (1.0 - (double)f)));
    sector %= 6;
    *red = (sector == 0 || sector == 5) ? v : (sector == 1) ? q : (sector == 4) ? t : p;
    *green = (sector == 1 || sector == 2) ? v : (sector == 3) ? q : (sector == 0) ? t : p;
    *blue = (sector == 3 || sector == 4) ? v : (sector == 5) ? q : (sector == 2) ? t : p;
}

void ct_pixels_hue(ct_pixels *p, uint8_t steps)
{
    rgb c;

    if (p->channels != 3) return;
    c = rgb_of(p);
    for (int64_t i = 0; i < plane_of(p); i++) turn_hue(&c.red[i], &c.green[i], &c.blue[i], steps);
}

/* ---- sharpness */

/* A row between two others; its first and last value stay. */
CT_SIMD_CLONES static void smooth_row(const uint8_t *above, const uint8_t *row,
                                      const uint8_t *below, int64_t n, float factor,
                                      uint8_t *restrict out)
{
#pragma omp simd
    for (int64_t x = 1; x < n - 1; x++) {
        int32_t sum = above[x - 1] + above[x] + above[x + 1] + row[x - 1] + 5 * row[x] +
                      row[x + 1] + below[x - 1] + below[x] + below[x + 1];

        int32_t mean = (2 * sum + 13) / 26; /* of 13, rounded */

        out[x] = between((float)mean, (float)row[x], factor);
    }
}

void ct_pixels_sharpness(const ct_pixels *from, float factor, ct_pixels *to)
{
    int64_t w = from->width;

    memcpy(to->data, from->data, (size_t)ct_pixels_bytes(from));
    for (int64_t c = 0; c < from->channels; c++) {
        for (int64_t y = 1; y < from->height - 1; y++) {
            int64_t at = (c * from->height + y) * w;
            const uint8_t *row = from->data + at;

            smooth_row(row - w, row, row + w, w, factor, to->data + at);
        }
    }
}

/* ---- maps of each value */

static void map(uint8_t *v, int64_t n, const uint8_t table[256])
{
    for (int64_t i = 0; i < n; i++) v[i] = table[v[i]];
}

void ct_pixels_posterize(ct_pixels *p, int bits)
{
    uint8_t mask = (uint8_t) ~((1 << (8 - bits)) - 1);

#pragma omp simd
    for (int64_t i = 0; i < ct_pixels_bytes(p); i++) p->data[i] &= mask;
}

void ct_pixels_solarize(ct_pixels *p, double threshold)
{
    uint8_t table[256];

    for (int v = 0; v < 256; v++) table[v] = (uint8_t)((v < threshold) ? v : 255 - v);
    map(p->data, ct_pixels_bytes(p), table);
}

static void count(const uint8_t *v, int64_t n, int64_t of[256])
{
    memset(of, 0, 256 * sizeof(of[0]));
    for (int64_t i = 0; i < n; i++) of[v[i]]++;
}

void ct_pixels_autocontrast(ct_pixels *p)
{
    int64_t n = plane_of(p), of[256];
    uint8_t table[256];

    for (int64_t c = 0; c < p->channels; c++) {
        int low = 0, high = 255;
        double scale, offset;

        count(p->data + c * n, n, of);
        while ((low < 255) && (of[low] == 0)) low++;
        while ((high > 0) && (of[high] == 0)) high--;
        if (high <= low) continue;
        scale = 255.0 / (high - low);
        offset = -low * scale;
        for (int v = 0; v < 256; v++) {
            int to = (int)(v * scale + offset);

            table[v] = (uint8_t)((to < 0) ? 0 : (to > 255) ? 255 : to);
        }
        map(p->data + c * n, n, table);
    }
}

void ct_pixels_equalize(ct_pixels *p)
{
    int64_t n = plane_of(p), of[256];
    uint8_t table[256];

    for (int64_t c = 0; c < p->channels; c++) {
        int high = 255;
        int64_t step, sum;

        count(p->data + c * n, n, of);
        while ((high > 0) && (of[high] == 0)) high--;
        step = (n - of[high]) / 255;
        if (step == 0) continue;
        sum = step / 2;
        for (int v = 0; v < 256; v++) {
            int64_t to = sum / step;

            table[v] = (uint8_t)((to > 255) ? 255 : to);
            sum += of[v];
        }
        map(p->data + c * n, n, table);
    }
}
