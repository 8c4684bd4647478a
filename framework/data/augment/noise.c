/* Caffe-SSD's noise_param: what each field means, and their order, are those of SSD and the OpenCV
 * that it calls. Formulae are OpenCV's of 8 bits, with integers of 14 bits behind the point where
 * it has them. */
#include <math.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/data/augment/canvas.h"
#include "framework/data/image.h"

enum { TILES = 8, CLIP = 4, BINS = 256 }; /* of clahe */

ct_status ct_noise_check(const Ct__TransformationParameter *p, const char *who)
{
    const Ct__NoiseParameter *q = p->noise_param;
    const Ct__SaltPepperParameter *s = q->saltpepper_param;

    if (q->convert_to_lab)
        return CT_FAIL(
            CT_ERR_CONFIG,
            "%s: transform_param.noise_param.convert_to_lab is refused: SSD makes floats "
            "and reads their bytes as pixels; take convert_to_hsv, or convert the "
            "pictures of the set",
            who);
    if (q->has_prob && (q->prob != 1))
        CT_WARN("%s: transform_param.noise_param.prob is %g and has no effect, as in SSD: all "
                "images change",
                who, (double)q->prob);
    if (!(q->jpeg <= 100))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param.noise_param.jpeg is %g, a quality must be 1 to 100, or "
                       "below 1 for none",
                       who, (double)q->jpeg);
    if (!q->saltpepper) return CT_OK;
    if ((s == NULL) || (s->n_value == 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param.noise_param.saltpepper needs saltpepper_param { "
                       "fraction value }",
                       who);
    if (!(s->fraction >= 0) || (s->fraction > 1))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: transform_param.noise_param.saltpepper_param.fraction is %g, must be 0 "
                       "to 1",
                       who, (double)s->fraction);
    for (size_t i = 0; i < s->n_value; i++)
        if (!(s->value[i] >= 0) || (s->value[i] > 255))
            return CT_FAIL(CT_ERR_CONFIG,
                           "%s: transform_param.noise_param.saltpepper_param.value is %g, must be "
                           "0 to 255",
                           who, (double)s->value[i]);
    if ((s->n_value == 1) || (s->n_value == 3)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: transform_param.noise_param.saltpepper_param has %zu value: give one, or "
                   "one for each channel",
                   who, s->n_value);
}

static uint8_t byte_of(int v)
{
    return (uint8_t)((v < 0) ? 0 : (v > 255) ? 255 : v);
}

static uint8_t byte_near(float v)
{
    return byte_of((int)lrintf(v));
}

static int64_t plane_of(const ct_pixels *p)
{
    return p->height * p->width;
}

/* n values, each replaced by what a table says. */
static void map(uint8_t *data, int64_t n, const uint8_t to[BINS])
{
    for (int64_t i = 0; i < n; i++) data[i] = to[data[i]];
}

/* ---- decolorize: 0.299 red + 0.587 green + 0.114 blue */

static void decolorize(ct_pixels *p)
{
    int64_t n = plane_of(p);
    uint8_t *r = p->data + p->red * n, *g = p->data + n, *b = p->data + (2 - p->red) * n;

    for (int64_t i = 0; (p->channels == 3) && (i < n); i++)
        r[i] = g[i] = b[i] =
            (uint8_t)((9798 * r[i] + 19235 * g[i] + 3735 * b[i] + (1 << 14)) >> 15);
}

/* ---- gauss_blur: 7 x 7, standard deviation 1.5, by weights in 256 parts as OpenCV has them; edges
 * are mirrored without the outermost pixel */

enum { TAPS = 7 };

static void blur_line(const uint32_t *from, int64_t n, int64_t step, uint32_t *to)
{
    static const uint32_t weight[TAPS] = { 9, 29, 55, 70, 55, 29, 9 };

    for (int64_t i = 0; i < n; i++) {
        uint32_t sum = 0;

        for (int k = 0; k < TAPS; k++)
            sum += weight[k] * from[ct_reflect(i + k - TAPS / 2, n) * step];
        to[i * step] = sum;
    }
}

static ct_status blur(ct_canvas *v)
{
    int64_t h = v->now.height, w = v->now.width, n = h * w;
    uint32_t *one, *other;

    CT_TRY(ct_sample_buffer_reserve(&v->room->work, (size_t)(2 * n) * sizeof(*one)));
    one = (uint32_t *)(void *)v->room->work.data;
    other = one + n;
    for (int64_t c = 0; c < v->now.channels; c++) {
        uint8_t *plane = v->now.data + c * n;

        for (int64_t i = 0; i < n; i++) one[i] = plane[i];
        for (int64_t y = 0; y < h; y++) blur_line(one + y * w, w, 1, other + y * w);
        for (int64_t x = 0; x < w; x++) blur_line(other + x, h, w, one + x);
        for (int64_t i = 0; i < n; i++) plane[i] = (uint8_t)((one[i] + (1 << 15)) >> 16);
    }
    return CT_OK;
}

/* ---- hist_eq, clahe: of the brightness, Y of YCrCb; of an image of one channel, of itself */

static int rounded(int v) /* 14 bits behind the point */
{
    return (v + (1 << 13)) >> 14;
}

static int brightness(int r, int g, int b)
{
    return rounded(4899 * r + 9617 * g + 1868 * b);
}

/* The histogram becomes even: its least value 0, its largest 255. */
static void equalize(uint8_t *y, int64_t n)
{
    int64_t of[BINS] = { 0 }, sum = 0;
    uint8_t to[BINS];
    float scale;
    int v = 0;

    for (int64_t i = 0; i < n; i++) of[y[i]]++;
    while (of[v] == 0) v++;
    if (of[v] == n) return;
    scale = 255.0f / (float)(n - of[v]);
    for (to[v++] = 0; v < BINS; v++) {
        sum += of[v];
        to[v] = byte_near((float)sum * scale);
    }
    map(y, n, to);
}

/* A tile's table: the sum of its histogram, of which what is above the limit was shared out evenly
 * (Zuiderveld, "Contrast Limited Adaptive Histogram Equalization", 1994). */
static void tile_table(const uint8_t *y, const ct_pixels *p, int64_t top, int64_t left,
                       int64_t tall, int64_t wide, uint8_t to[BINS])
{
    int64_t of[BINS] = { 0 }, area = tall * wide, limit = CLIP * area / BINS, over = 0, sum = 0;
    int64_t step;

    if (limit < 1) limit = 1;
    for (int64_t i = 0; i < area; i++)
        of[y[ct_reflect(top + i / wide, p->height) * p->width +
             ct_reflect(left + i % wide, p->width)]]++;
    for (int v = 0; v < BINS; v++) {
        if (of[v] <= limit) continue;
        over += of[v] - limit;
        of[v] = limit;
    }
    for (int v = 0; v < BINS; v++) of[v] += over / BINS;
    over %= BINS;
    step = (over > 0) ? BINS / over : BINS;
    for (int64_t v = 0; (v < BINS) && (over > 0); v += step) {
        of[v]++;
        over--;
    }
    for (int v = 0; v < BINS; v++) {
        sum += of[v];
        to[v] = byte_near((float)sum * (255.0f / (float)area));
    }
}

/* The tile in front of a place, the next one, and how far it is between their middles. */
static float between_tiles(int64_t at, int64_t size, int tile[2])
{
    float place = (float)at / (float)size - 0.5f;
    int first = (int)floorf(place);

    tile[0] = (first < 0) ? 0 : first;
    tile[1] = (first + 1 < TILES) ? first + 1 : TILES - 1;
    return place - (float)first;
}

static void clahe(uint8_t *y, const ct_pixels *p)
{
    int64_t h = p->height, w = p->width, tall, wide;
    bool whole = (h % TILES == 0) && (w % TILES == 0);
    uint8_t to[TILES * TILES][BINS];

    tall = whole ? h / TILES : h / TILES + 1;
    wide = whole ? w / TILES : w / TILES + 1;
    for (int k = 0; k < TILES * TILES; k++)
        tile_table(y, p, k / TILES * tall, k % TILES * wide, tall, wide, to[k]);
    for (int64_t i = 0; i < h * w; i++) {
        int row[2], column[2];
        float down = between_tiles(i / w, tall, row), across = between_tiles(i % w, wide, column);
        float line[2];

        for (int k = 0; k < 2; k++)
            line[k] = (float)to[row[k] * TILES + column[0]][y[i]] * (1 - across) +
                      (float)to[row[k] * TILES + column[1]][y[i]] * across;
        y[i] = byte_near(line[0] * (1 - down) + line[1] * down);
    }
}

static ct_status with_brightness(ct_canvas *v, void (*change)(uint8_t *y, const ct_pixels *p))
{
    ct_pixels *p = &v->now;
    int64_t n = plane_of(p);
    uint8_t *r = p->data + p->red * n, *g = p->data + n, *b = p->data + (2 - p->red) * n, *y;

    if (p->channels != 3) {
        change(p->data, p);
        return CT_OK;
    }
    CT_TRY(ct_sample_buffer_reserve(&v->room->work, (size_t)n));
    y = v->room->work.data;
    for (int64_t i = 0; i < n; i++) y[i] = (uint8_t)brightness(r[i], g[i], b[i]);
    change(y, p);
    for (int64_t i = 0; i < n; i++) {
        int old = brightness(r[i], g[i], b[i]);
        int cr = byte_of(rounded((r[i] - old) * 11682 + (128 << 14))) - 128;
        int cb = byte_of(rounded((b[i] - old) * 9241 + (128 << 14))) - 128;

        r[i] = byte_of(y[i] + rounded(cr * 22987));
        g[i] = byte_of(y[i] + rounded(cb * -5636 + cr * -11698));
        b[i] = byte_of(y[i] + rounded(cb * 29049));
    }
    return CT_OK;
}

static void equalize_plane(uint8_t *y, const ct_pixels *p)
{
    equalize(y, plane_of(p));
}

/* ---- jpeg: as a file of that quality gives it back */

/* Plane c of the image is channel `channel` of pixels side by side, blue first. */
static int channel_of(const ct_pixels *p, int64_t c)
{
    return (int)((p->channels == 3) && (p->red == 0) ? 2 - c : c);
}

static ct_status through_jpeg(ct_canvas *v, int quality)
{
    ct_pixels *p = &v->now;
    ct_sample_buffer *pixels = &v->room->pixels[v->at == 0]; /* the image is not in it */
    int64_t n = plane_of(p), channels = p->channels;
    ct_image image = { .channels = (int)channels, .height = p->height, .width = p->width };
    size_t size;

    CT_TRY(ct_sample_buffer_reserve(pixels, (size_t)ct_pixels_bytes(p)));
    image.data = pixels->data;
    for (int64_t i = 0; i < channels * n; i++)
        image.data[i % n * channels + channel_of(p, i / n)] = p->data[i];
    CT_TRY(ct_image_encode_jpeg(&image, quality, &v->room->work, &size));
    CT_TRY(ct_image_decode(v->room->work.data, size, (channels == 3) ? CT_COLOR_BGR : CT_COLOR_GRAY,
                           pixels, &image, v->why));
    for (int64_t i = 0; i < channels * n; i++)
        p->data[i] = image.data[i % n * channels + channel_of(p, i / n)];
    return CT_OK;
}

/* ---- erode: the least of a pixel and its four neighbours */

static ct_status erode(ct_canvas *v)
{
    static const int near[4][2] = { { -1, 0 }, { 1, 0 }, { 0, -1 }, { 0, 1 } };
    int64_t h = v->now.height, w = v->now.width;
    ct_pixels to;

    CT_TRY(ct_canvas_other(v, h, w, &to));
    for (int64_t i = 0; i < v->now.channels * h * w; i++) {
        int64_t y = i / w % h, x = i % w;

        to.data[i] = v->now.data[i];
        for (int k = 0; k < 4; k++) {
            uint8_t other;

            if ((y + near[k][0] < 0) || (y + near[k][0] >= h)) continue;
            if ((x + near[k][1] < 0) || (x + near[k][1] >= w)) continue;
            other = v->now.data[i + near[k][0] * w + near[k][1]];
            if (other < to.data[i]) to.data[i] = other;
        }
    }
    ct_canvas_move(v, &to);
    return CT_OK;
}

/* ---- saltpepper: pixels at places that are drawn, some of them more than once */

static ct_status salt(const Ct__SaltPepperParameter *s, ct_draw *d, ct_canvas *v)
{
    int64_t h = v->now.height, w = v->now.width;
    int64_t n = (int64_t)floorf(s->fraction * (float)w * (float)h);

    if ((s->n_value > 1) && (s->n_value != (size_t)v->now.channels))
        return CT_WHY(v->why, CT_ERR_CONFIG,
                      "noise_param.saltpepper_param has %zu value, the image %lld channels",
                      s->n_value, (long long)v->now.channels);
    for (int64_t i = 0; i < n; i++) {
        int64_t x = ct_draw_below(d, w), y = ct_draw_below(d, h);

        for (int64_t c = 0; c < v->now.channels; c++)
            v->now.data[(c * h + y) * w + x] = (uint8_t)s->value[(s->n_value > 1) ? c : 0];
    }
    return CT_OK;
}

/* ---- posterize: four values; inverse */

static void map_values(const Ct__NoiseParameter *q, ct_pixels *p)
{
    uint8_t to[BINS];

    if (!q->posterize && !q->inverse) return;
    for (int i = 0; i < BINS; i++) {
        int value = q->posterize ? i / 64 * 64 + 32 : i;

        to[i] = (uint8_t)(q->inverse ? 255 - value : value);
    }
    map(p->data, ct_pixels_bytes(p), to);
}

ct_status ct_noise(const Ct__TransformationParameter *p, ct_phase phase, ct_draw *d, ct_canvas *v)
{
    const Ct__NoiseParameter *q = p->noise_param;

    (void)phase;
    CT_TRY(ct_canvas_own(v));
    if (q->decolorize) decolorize(&v->now);
    if (q->gauss_blur) CT_TRY(blur(v));
    if (q->hist_eq) CT_TRY(with_brightness(v, equalize_plane));
    if (q->clahe) CT_TRY(with_brightness(v, clahe));
    if (q->jpeg >= 1) CT_TRY(through_jpeg(v, (int)q->jpeg));
    if (q->erode) CT_TRY(erode(v));
    map_values(q, &v->now);
    if (q->saltpepper) CT_TRY(salt(q->saltpepper_param, d, v));
    if (q->convert_to_hsv) ct_pixels_to_hsv(&v->now);
    return CT_OK;
}
