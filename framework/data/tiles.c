/* Pictures side by side as one PNG. */
#include "framework/data/image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { GAP = 2, GLYPH_WIDTH = 3, GLYPH_HEIGHT = 5, MOST_PIXELS = 1 << 28 };

/* The page: pixels of red, green, blue. */
typedef struct sheet {
    uint8_t *pixel;
    int64_t height, width, columns, cell_height, cell_width;
    int zoom, letter; /* letter: pixels of a dot of a label */
} sheet;

/* ---- PNG (RFC 2083): signature, IHDR, one IDAT, IEND */

static void add_u32(ct_text *out, uint32_t v)
{
    char bytes[4] = { (char)(v >> 24), (char)(v >> 16), (char)(v >> 8), (char)v };

    ct_text_add_bytes(out, bytes, 4);
}

static void add_chunk(ct_text *out, const char *name, const void *data, size_t size)
{
    uLong sum = crc32(crc32(0, NULL, 0), (const Bytef *)name, 4);

    add_u32(out, (uint32_t)size);
    ct_text_add_bytes(out, name, 4);
    if (size > 0) ct_text_add_bytes(out, data, size);
    if (size > 0) sum = crc32(sum, data, (uInt)size);
    add_u32(out, (uint32_t)sum);
}

static void add_head(ct_text *out, const sheet *s)
{
    static const char kind[5] = { 8, 2, 0, 0, 0 }; /* 8 bits, RGB, not interlaced */
    ct_text head = { 0 };

    add_u32(&head, (uint32_t)s->width);
    add_u32(&head, (uint32_t)s->height);
    ct_text_add_bytes(&head, kind, sizeof(kind));
    ct_text_add_bytes(out, "\x89PNG\r\n\x1a\n", 8);
    if (head.failed)
        out->failed = true;
    else
        add_chunk(out, "IHDR", head.text, head.length);
    ct_text_destroy(&head);
}

/* Each row begins with the number of its filter: 0, none. */
static ct_status add_png(const sheet *s, ct_text *out)
{
    size_t row = 3 * (size_t)s->width + 1, size = row * (size_t)s->height;
    uLongf packed = compressBound((uLong)size);
    uint8_t *raw = calloc(size, 1), *to = malloc(packed);
    int rc = Z_MEM_ERROR;

    for (int64_t y = 0; (raw != NULL) && (y < s->height); y++)
        memcpy(raw + (size_t)y * row + 1, s->pixel + (size_t)y * (row - 1), row - 1);
    if ((raw != NULL) && (to != NULL)) rc = compress2(to, &packed, raw, (uLong)size, 6);
    if (rc == Z_OK) {
        add_head(out, s);
        add_chunk(out, "IDAT", to, packed);
        add_chunk(out, "IEND", NULL, 0);
    }
    free(raw);
    free(to);
    return (rc == Z_OK) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a PNG");
}

/* ---- labels: letters of 3 x 5 dots, a row an octal digit */

static const char *glyph_of(int c)
{
    static const char letters[26][GLYPH_HEIGHT + 1] = {
        "25755", "65656", "34443", "65556", "74647", "74644", "34553", "55755", "72227",
        "11152", "55655", "44447", "57755", "65555", "25552", "65644", "25563", "65655",
        "34216", "72222", "55557", "55552", "55775", "55255", "55222", "71247"
    };
    static const char digits[10][GLYPH_HEIGHT + 1] = {
        "75557", "26227", "71747", "71717", "55711", "74717", "74757", "71111", "75757", "75717"
    };

    if ((c >= 'a') && (c <= 'z')) return letters[c - 'a'];
    if ((c >= 'A') && (c <= 'Z')) return letters[c - 'A'];
    if ((c >= '0') && (c <= '9')) return digits[c - '0'];
    switch (c) {
    case ' ':
        return "00000";
    case '-':
        return "00700";
    case '_':
        return "00007";
    case '.':
        return "00002";
    case ',':
        return "00024";
    case ':':
        return "02020";
    case '/':
        return "11244";
    case '+':
        return "02720";
    case '(':
        return "24442";
    case ')':
        return "21112";
    default:
        return "77777";
    }
}

static void put(const sheet *s, int64_t y, int64_t x, const uint8_t rgb[3])
{
    memcpy(s->pixel + 3 * ((size_t)y * (size_t)s->width + (size_t)x), rgb, 3);
}

static void draw_glyph(const sheet *s, int64_t y, int64_t x, const char *glyph,
                       const uint8_t ink[3])
{
    for (int64_t r = 0; r < (int64_t)GLYPH_HEIGHT * s->letter; r++)
        for (int64_t c = 0; c < (int64_t)GLYPH_WIDTH * s->letter; c++)
            if ((((glyph[r / s->letter] - '0') >> (GLYPH_WIDTH - 1 - c / s->letter)) & 1) != 0)
                put(s, y + r, x + c, ink);
}

/* From x on, as much as ends before `end`. */
static void draw_label(const sheet *s, int64_t y, int64_t x, int64_t end, const char *label,
                       const uint8_t ink[3])
{
    int64_t step = (int64_t)(GLYPH_WIDTH + 1) * s->letter;

    for (; (*label != '\0') && (x + step - s->letter <= end); label++) {
        if ((*label & 0xC0) == 0x80) continue; /* of a character that was drawn as a box */
        draw_glyph(s, y, x, glyph_of((unsigned char)*label), ink);
        x += step;
    }
}

/* ---- tiles */

static void find_range(const ct_tiles *t, const float *v, double *low_p, double *high_p)
{
    *low_p = t->low;
    *high_p = t->high;
    if (t->low < t->high) return;
    *low_p = INFINITY;
    *high_p = -INFINITY;
    for (int64_t i = 0; i < t->channels * t->height * t->width; i++) {
        if (!isfinite(v[i])) continue;
        *low_p = fmin(*low_p, (double)v[i]);
        *high_p = fmax(*high_p, (double)v[i]);
    }
    if (!(*low_p < *high_p)) *high_p = *low_p + 1.0; /* one grey, which is the least: black */
}

static uint8_t grey(double v, double low, double high)
{
    double share = isfinite(v) ? (v - low) / (high - low) : 0.0;

    return (uint8_t)lround(255.0 * fmin(fmax(share, 0.0), 1.0));
}

static void fill(const sheet *s, int64_t y0, int64_t x0, int64_t y1, int64_t x1,
                 const uint8_t rgb[3])
{
    for (int64_t y = y0; y < y1; y++)
        for (int64_t x = x0; x < x1; x++) put(s, y, x, rgb);
}

static int64_t limited(double v, int64_t most)
{
    return (v > 0) ? (v < (double)most) ? (int64_t)v : most : 0;
}

/* A frame, and the name on a ground of its colour in the upper left corner, both within the tile.
 */
static void draw_box(const ct_tiles *t, const sheet *s, const ct_tile_box *b)
{
    static const uint8_t colour[8][3] = { { 0xe6, 0x19, 0x4b }, { 0x3c, 0xb4, 0x4b },
                                          { 0x43, 0x63, 0xd8 }, { 0xf5, 0x82, 0x31 },
                                          { 0x91, 0x1e, 0xb4 }, { 0x42, 0xd4, 0xf4 },
                                          { 0xf0, 0x32, 0xe6 }, { 0xbf, 0xef, 0x45 } };
    static const uint8_t white[3] = { 0xff, 0xff, 0xff };
    const uint8_t *ink = colour[b->colour & 7];
    int64_t h = t->height * s->zoom, w = t->width * s->zoom, line = s->letter, wide = 0;
    int64_t top = GAP + b->tile / s->columns * s->cell_height;
    int64_t left = GAP + b->tile % s->columns * s->cell_width;
    int64_t x0 = limited((double)b->corner[0] * (double)w, w);
    int64_t y0 = limited((double)b->corner[1] * (double)h, h);
    int64_t x1 = limited((double)b->corner[2] * (double)w, w);
    int64_t y1 = limited((double)b->corner[3] * (double)h, h);

    if ((x1 <= x0) || (y1 <= y0)) return;
    if ((x1 - x0 < 2 * line) || (y1 - y0 < 2 * line)) line = 1;
    fill(s, top + y0, left + x0, top + y0 + line, left + x1, ink);
    fill(s, top + y1 - line, left + x0, top + y1, left + x1, ink);
    fill(s, top + y0, left + x0, top + y1, left + x0 + line, ink);
    fill(s, top + y0, left + x1 - line, top + y1, left + x1, ink);
    if (b->label[0] == '\0') return;
    for (const char *c = b->label; *c != '\0'; c++) wide += ((*c & 0xC0) != 0x80);
    wide = wide * (GLYPH_WIDTH + 1) * s->letter + s->letter;
    if (wide > w - x0) wide = w - x0;
    if (y0 + (GLYPH_HEIGHT + 2) * s->letter > h) return;
    fill(s, top + y0, left + x0, top + y0 + (GLYPH_HEIGHT + 2) * s->letter, left + x0 + wide, ink);
    draw_label(s, top + y0 + s->letter, left + x0 + s->letter, left + x0 + wide, b->label, white);
}

static void draw_tile(const ct_tiles *t, const sheet *s, int64_t i)
{
    static const uint8_t ink[3] = { 0x22, 0x22, 0x22 };
    int64_t plane = t->height * t->width, top = GAP + i / s->columns * s->cell_height;
    int64_t left = GAP + i % s->columns * s->cell_width;
    const float *v = t->value + i * t->channels * plane;
    double low, high;

    find_range(t, v, &low, &high);
    for (int64_t y = 0; y < t->height * s->zoom; y++) {
        for (int64_t x = 0; x < t->width * s->zoom; x++) {
            const float *at = v + y / s->zoom * t->width + x / s->zoom;
            uint8_t rgb[3];

            for (int c = 0; c < 3; c++) /* red is the last plane */
                rgb[c] = grey((double)at[(t->channels == 3) ? (2 - c) * plane : 0], low, high);
            put(s, top + y, left + x, rgb);
        }
    }
    if (t->label != NULL)
        draw_label(s, top + t->height * s->zoom + s->letter, left, left + s->cell_width - GAP,
                   t->label[i], ink);
}

ct_status ct_tiles_png(const ct_tiles *t, ct_text *out)
{
    sheet s = { .zoom = (t->zoom > 0) ? t->zoom : 1, .letter = 2 };
    int64_t rows;
    ct_status status;

    if ((t->n < 1) || (t->height < 1) || (t->width < 1) ||
        ((t->channels != 1) && (t->channels != 3)))
        return CT_FAIL(CT_ERR_ARG, "no picture of %lld tiles of %d x %lld x %lld", (long long)t->n,
                       t->channels, (long long)t->height, (long long)t->width);
    s.columns = (t->columns > 0) ? t->columns : (int64_t)ceil(sqrt((double)t->n));
    if (s.columns > t->n) s.columns = t->n;
    rows = (t->n + s.columns - 1) / s.columns;
    s.cell_width = t->width * s.zoom + GAP;
    s.cell_height = t->height * s.zoom + GAP;
    if (t->label != NULL) s.cell_height += (int64_t)(GLYPH_HEIGHT + 2) * s.letter;
    s.width = s.columns * s.cell_width + GAP;
    s.height = rows * s.cell_height + GAP;
    if ((t->height > 65536) || (t->width > 65536) || (s.height > MOST_PIXELS / s.width))
        return CT_FAIL(CT_ERR_ARG, "%lld x %lld pixels are too many for a picture",
                       (long long)s.width, (long long)s.height);
    s.pixel = malloc(3 * (size_t)(s.width * s.height));
    if (s.pixel == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a picture");
    memset(s.pixel, 0xff, 3 * (size_t)(s.width * s.height));
    for (int64_t i = 0; i < t->n; i++) draw_tile(t, &s, i);
    for (int64_t i = 0; i < t->n_box; i++) draw_box(t, &s, &t->box[i]);
    status = add_png(&s, out);
    free(s.pixel);
    return status;
}
