/* A data set out of nothing: rendered digits. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "framework/base/rng.h"
#include "framework/data/convert_sink.h"

enum { CT_MAX_STROKE_POINT = 14, CT_MAX_STROKE = 3, CT_MAX_HAND = 3 };

/* Points on a grid of 0 to 100, x to the right, y down. smooth: a curve through the points;
 *  otherwise straight lines. */
typedef struct ct_stroke {
    bool smooth;
    int n;
    float xy[CT_MAX_STROKE_POINT][2];
} ct_stroke;

typedef struct glyph {
    int n;
    ct_stroke stroke[CT_MAX_STROKE];
} glyph;

typedef struct ct_digit {
    int n_hand;
    glyph hand[CT_MAX_HAND];
} ct_digit;

extern const ct_digit ct_digit_font[10];

enum { CT_DIGIT_SIDE = 28 };

/* clang-format off */
#define CURVE(_n, ...) { true, _n, { __VA_ARGS__ } }
#define LINES(_n, ...) { false, _n, { __VA_ARGS__ } }

const ct_digit ct_digit_font[10] = {
    { 2, {
        { 1, { CURVE(9, {50,0}, {26,15}, {18,50}, {26,85}, {50,100}, {74,85}, {82,50}, {74,15}, {50,0}) } },
        { 1, { CURVE(9, {54,0}, {36,18}, {30,50}, {34,82}, {48,100}, {64,82}, {70,50}, {66,20}, {50,2}) } },
    } },
    { 3, {
        { 1, { LINES(2, {50,0}, {50,100}) } },
        { 1, { LINES(3, {30,22}, {52,0}, {52,100}) } },
        { 2, { LINES(3, {32,20}, {52,0}, {52,100}), LINES(2, {30,100}, {74,100}) } },
    } },
    { 2, {
        { 2, { CURVE(7, {22,25}, {32,5}, {55,0}, {76,14}, {74,38}, {50,66}, {22,100}),
               LINES(2, {22,100}, {80,100}) } },
        { 1, { CURVE(9, {24,20}, {45,0}, {72,12}, {70,40}, {44,78}, {24,98}, {28,80}, {50,88}, {80,98}) } },
    } },
    { 2, {
        { 2, { CURVE(5, {24,12}, {48,0}, {74,14}, {70,38}, {46,48}),
               CURVE(5, {46,48}, {76,58}, {78,84}, {50,100}, {22,88}) } },
        { 2, { LINES(3, {24,2}, {76,2}, {46,42}),
               CURVE(5, {46,42}, {76,54}, {78,82}, {50,100}, {22,88}) } },
    } },
    { 2, {
        { 1, { LINES(4, {62,100}, {62,0}, {18,68}, {84,68}) } },
        { 2, { LINES(3, {26,0}, {22,56}, {78,56}), LINES(2, {66,14}, {62,100}) } },
    } },
    { 2, {
        { 2, { LINES(3, {76,2}, {32,2}, {28,44}),
               CURVE(6, {28,44}, {56,36}, {78,58}, {72,88}, {46,100}, {20,88}) } },
        { 2, { LINES(2, {30,4}, {78,4}),
               CURVE(6, {30,4}, {28,40}, {60,44}, {76,68}, {58,98}, {22,92}) } },
    } },
    { 2, {
        { 1, { CURVE(9, {70,4}, {42,22}, {24,58}, {32,92}, {56,100}, {76,80}, {64,54}, {40,54}, {26,72}) } },
        { 1, { CURVE(8, {56,0}, {30,48}, {22,76}, {40,100}, {66,96}, {74,70}, {52,56}, {28,70}) } },
    } },
    { 3, {
        { 1, { LINES(3, {20,2}, {80,2}, {42,100}) } },
        { 2, { LINES(3, {20,2}, {80,2}, {42,100}), LINES(2, {36,50}, {74,50}) } },
        { 2, { LINES(2, {20,4}, {78,4}), CURVE(3, {78,4}, {56,44}, {46,100}) } },
    } },
    { 2, {
        { 1, { CURVE(13, {50,48}, {26,34}, {30,8}, {50,0}, {70,8}, {74,34}, {50,48}, {22,66}, {28,94},
                     {50,100}, {72,94}, {78,66}, {50,48}) } },
        { 1, { CURVE(11, {72,12}, {50,0}, {28,14}, {40,40}, {66,58}, {74,84}, {50,100}, {26,84},
                     {36,58}, {64,38}, {72,12}) } },
    } },
    { 2, {
        { 1, { CURVE(9, {72,34}, {52,50}, {28,40}, {28,12}, {52,0}, {72,12}, {74,34}, {70,70}, {56,100}) } },
        { 2, { CURVE(6, {70,28}, {50,48}, {28,32}, {40,4}, {66,6}, {70,28}),
               LINES(2, {70,8}, {66,100}) } },
    } },
};
/* clang-format on */

/* ---- a digit is bent (points moved), turned, sheared, scaled, shifted, drawn with a pen of some
 * width and pressure, joined by stray strokes, partly covered, and made noisy. The amounts are such
 * that a linear classifier does clearly worse than a convolutional net. */

enum { SIDE = CT_DIGIT_SIDE, PIECES = 6 /* a curve is so many lines between two points */ };

static const float bend = 6.0f;   /* grid units a point moves                            */
static const float turn = 0.26f;  /* radians either way                                  */
static const float shear = 0.26f; /* x per y either way                                  */
static const float shift = 2.0f;  /* pixels either way                                   */
static const float least_height = 15.0f, most_height = 21.0f; /* pixels                         */
static const float least_width = 1.2f, most_width = 3.4f;     /* of the pen, pixels             */
static const float most_noise = 0.22f; /* standard deviation of a pixel, black 0 to white 1    */
static const float stray_share = 0.35f, cover_share = 0.35f;

/* Numbers one after the other. */
typedef struct dice {
    uint64_t key, at;
} dice;

static float uniform(dice *d, float low, float high)
{
    return low + (high - low) * ct_rng_uniform_at(d->key, d->at++);
}

typedef struct canvas {
    float distance2[SIDE][SIDE]; /* to the nearest stroke, squared, in pixels */
    float reach;                 /* beyond it nothing is drawn                */
} canvas;

typedef struct affine {
    float xx, xy, yx, yy, x0, y0;
} affine;

static void point_at(const affine *a, float x, float y, float out[2])
{
    out[0] = a->x0 + a->xx * x + a->xy * y;
    out[1] = a->y0 + a->yx * x + a->yy * y;
}

static int clamp(float v)
{
    return (v < 0) ? 0 : (v > SIDE - 1) ? SIDE - 1 : (int)v;
}

/* Lowers the distance of the pixels near the line from p to q. */
static void draw_line(canvas *c, const float p[2], const float q[2])
{
    float dx = q[0] - p[0], dy = q[1] - p[1], length2 = dx * dx + dy * dy;
    int left = clamp(fminf(p[0], q[0]) - c->reach), right = clamp(fmaxf(p[0], q[0]) + c->reach + 1);
    int top = clamp(fminf(p[1], q[1]) - c->reach), bottom = clamp(fmaxf(p[1], q[1]) + c->reach + 1);

    for (int y = top; y <= bottom; y++) {
        for (int x = left; x <= right; x++) {
            float px = (float)x - p[0], py = (float)y - p[1];
            float t = (length2 > 0) ? (px * dx + py * dy) / length2 : 0;
            float ex, ey, d2;

            t = (t < 0) ? 0 : (t > 1) ? 1 : t;
            ex = px - t * dx;
            ey = py - t * dy;
            d2 = ex * ex + ey * ey;
            if (d2 < c->distance2[y][x]) c->distance2[y][x] = d2;
        }
    }
}

/* Catmull-Rom: through b and c, with a and d before and behind. */
static float curve(float a, float b, float c, float d, float t)
{
    return 0.5f *
           (2 * b + t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a))));
}

static void draw_stroke(canvas *c, const ct_stroke *s, const affine *a, dice *d)
{
    float at[CT_MAX_STROKE_POINT][2];

    for (int i = 0; i < s->n; i++) {
        float x = s->xy[i][0] - 50 + uniform(d, -bend, bend);
        float y = s->xy[i][1] - 50 + uniform(d, -bend, bend);

        point_at(a, x, y, at[i]);
    }
    for (int i = 0; i + 1 < s->n; i++) {
        const float *before = at[(i > 0) ? i - 1 : 0], *behind = at[(i + 2 < s->n) ? i + 2 : i + 1];
        float from[2] = { at[i][0], at[i][1] };

        for (int k = 1; s->smooth && (k < PIECES); k++) {
            float t = (float)k / PIECES, to[2];

            for (int j = 0; j < 2; j++)
                to[j] = curve(before[j], at[i][j], at[i + 1][j], behind[j], t);
            draw_line(c, from, to);
            from[0] = to[0];
            from[1] = to[1];
        }
        draw_line(c, from, at[i + 1]);
    }
}

static affine choose_affine(dice *d)
{
    float angle = uniform(d, -turn, turn), slant = uniform(d, -shear, shear);
    float high = uniform(d, least_height, most_height) / 100.0f;
    float wide = high * uniform(d, 0.75f, 1.15f);
    float cosine = cosf(angle), sine = sinf(angle);
    affine a;

    /* scale, then shear, then turn, then shift */
    a.xx = cosine * wide;
    a.xy = cosine * slant * high - sine * high;
    a.yx = sine * wide;
    a.yy = sine * slant * high + cosine * high;
    a.x0 = (SIDE - 1) / 2.0f + uniform(d, -shift, shift);
    a.y0 = (SIDE - 1) / 2.0f + uniform(d, -shift, shift);
    return a;
}

/* A short line anywhere, as from a neighbouring letter. */
static void draw_stray(canvas *c, dice *d)
{
    float p[2] = { uniform(d, 0, SIDE), uniform(d, 0, SIDE) };
    float angle = uniform(d, 0, 6.2831853f), length = uniform(d, 3, 7);
    float q[2] = { p[0] + length * cosf(angle), p[1] + length * sinf(angle) };

    draw_line(c, p, q);
}

/* A rectangle of one grey over some of the picture. */
static void cover(float (*ink)[SIDE], dice *d)
{
    int width = (int)uniform(d, 3, 9), height = (int)uniform(d, 3, 9);
    int left = (int)uniform(d, 2, SIDE - 8), top = (int)uniform(d, 2, SIDE - 8);
    float grey = uniform(d, 0, 0.5f);

    for (int y = top; (y < top + height) && (y < SIDE); y++) {
        for (int x = left; (x < left + width) && (x < SIDE); x++) ink[y][x] = grey;
    }
}

/* Near enough to normal: four bytes' sum. */
static void finish(float (*ink)[SIDE], float noise, uint64_t key, uint8_t *pixels)
{
    const float unit = 1.0f / 147.8f; /* of the sum of four bytes: sqrt(4 (256^2 - 1) / 12) */

    for (int i = 0; i < SIDE * SIDE; i += 4) {
        ct_rng_block b = ct_rng_philox(key, 1, (uint64_t)i);

        for (int k = 0; k < 4; k++) {
            uint32_t w = b.v[k];
            int sum = (int)((w & 255) + ((w >> 8) & 255) + ((w >> 16) & 255) + (w >> 24)) - 510;
            float v = ink[(i + k) / SIDE][(i + k) % SIDE] + noise * unit * (float)sum;

            v = (v < 0) ? 0 : (v > 1) ? 1 : v;
            pixels[i + k] = (uint8_t)(v * 255.0f + 0.5f);
        }
    }
}

/* Draws digit 0 to 9 into pixels[28 * 28], light on dark; every choice is drawn from key. */
static void digit_draw(int digit, uint64_t key, uint8_t *pixels)
{
    const ct_digit *all = &ct_digit_font[digit];
    dice d = { key, 0 };
    const glyph *g = &all->hand[(int)uniform(&d, 0, (float)all->n_hand)];
    float half = 0.5f * uniform(&d, least_width, most_width);
    float soft = uniform(&d, 0.6f, 1.2f), pressure = uniform(&d, 0.55f, 1.0f);
    affine a = choose_affine(&d);
    float ink[SIDE][SIDE];
    canvas c = { .reach = half + soft };

    for (int i = 0; i < SIDE * SIDE; i++) c.distance2[i / SIDE][i % SIDE] = 1e6f;
    for (int i = 0; i < g->n; i++) draw_stroke(&c, &g->stroke[i], &a, &d);
    if (uniform(&d, 0, 1) < stray_share) draw_stray(&c, &d);
    for (int i = 0; i < SIDE * SIDE; i++) {
        float distance = sqrtf(c.distance2[i / SIDE][i % SIDE]);
        float v = 0.5f + (half - distance) / soft;

        ink[i / SIDE][i % SIDE] = pressure * ((v < 0) ? 0 : (v > 1) ? 1 : v);
    }
    if (uniform(&d, 0, 1) < cover_share) cover(ink, &d);
    finish(ink, uniform(&d, 0.02f, most_noise), key, pixels);
}

/* ---- the data set */

enum { DEFAULT_COUNT = 10000, TEST_PART = 5, CLASSES = 10 };

typedef struct work {
    uint64_t seed;
    int64_t n[2];
} work;

static ct_status fill(void *ctx, int which, ct_sink *sink)
{
    const work *w = ctx;
    uint64_t key = ct_rng_key(w->seed, ct_rng_hash("digits"), (uint64_t)which);
    uint8_t pixels[CT_DIGIT_SIDE * CT_DIGIT_SIDE];

    for (int64_t i = 0; i < w->n[which]; i++) {
        ct_record r = { .values = pixels,
                        .n = sizeof(pixels),
                        .channels = 1,
                        .height = CT_DIGIT_SIDE,
                        .width = CT_DIGIT_SIDE };

        /* as many of each digit, in no order */
        r.label = (int)(ct_rng_permute(key, (uint64_t)i, (uint64_t)w->n[which]) % CLASSES);
        digit_draw(r.label, ct_rng_key(key, (uint64_t)i, 1), pixels);
        CT_TRY(ct_sink_add(sink, &r, NULL, NULL));
    }
    return CT_OK;
}

ct_status ct_convert_digits(const ct_convert_options *o)
{
    int64_t count = (o->count > 0) ? o->count : DEFAULT_COUNT;
    work w = { .seed = o->seed, .n = { count, (count + TEST_PART - 1) / TEST_PART } };

    return ct_convert_pair(o, &(ct_pair){ .n = { w.n[0], w.n[1] }, .fill = fill, .ctx = &w });
}
