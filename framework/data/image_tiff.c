/* TIFF through libtiff: the first picture of a file, as 8 bits. Where it is transparent, libtiff
 * lays it on black. */
#include "framework/data/image.h"

#include <stdlib.h>
#include <string.h>

#include <tiffio.h>

/* A file that lies in memory, as libtiff reads it. */
typedef struct tiff_source {
    const uint8_t *data;
    size_t size, at;
    ct_why *why;
} tiff_source;

static tmsize_t on_read(thandle_t handle, void *to, tmsize_t n)
{
    tiff_source *s = handle;
    size_t left = s->size - s->at;

    if ((size_t)n > left) n = (tmsize_t)left;
    memcpy(to, s->data + s->at, (size_t)n);
    s->at += (size_t)n;
    return n;
}

static tmsize_t on_write(thandle_t handle, void *from, tmsize_t n)
{
    (void)handle;
    (void)from;
    (void)n;
    return 0;
}

static toff_t on_seek(thandle_t handle, toff_t to, int whence)
{
    tiff_source *s = handle;
    toff_t at = to + ((whence == SEEK_CUR) ? s->at : (whence == SEEK_END) ? s->size : 0);

    if (at > s->size) return (toff_t)-1;
    s->at = (size_t)at;
    return at;
}

static int on_close(thandle_t handle)
{
    (void)handle;
    return 0;
}

static toff_t on_size(thandle_t handle)
{
    return ((tiff_source *)handle)->size;
}

/* Of several errors the first says most. */
static int on_error(TIFF *tif, void *user, const char *module, const char *format, va_list ap)
{
    tiff_source *s = user;
    int n;

    (void)tif;
    (void)module;
    if (s->why->text[0] != '\0') return 1;
    n = snprintf(s->why->text, sizeof(s->why->text), "bad TIFF: ");
    (void)vsnprintf(s->why->text + n, sizeof(s->why->text) - (size_t)n, format, ap);
    return 1;
}

static int on_warning(TIFF *tif, void *user, const char *module, const char *format, va_list ap)
{
    (void)tif;
    (void)user;
    (void)module;
    (void)format;
    (void)ap;
    return 1;
}

/* NULL, with why: it is none. */
static TIFF *open_source(tiff_source *s)
{
    TIFFOpenOptions *o = TIFFOpenOptionsAlloc();
    TIFF *tif;

    s->why->text[0] = '\0';
    if (o == NULL) {
        (void)CT_WHY(s->why, CT_ERR_NOMEM, "no memory for a TIFF decoder");
        return NULL;
    }
    TIFFOpenOptionsSetMaxSingleMemAlloc(o, (tmsize_t)CT_MAX_IMAGE_BYTES);
    TIFFOpenOptionsSetErrorHandlerExtR(o, on_error, s);
    TIFFOpenOptionsSetWarningHandlerExtR(o, on_warning, s);
    tif = TIFFClientOpenExt("image", "rm", s, on_read, on_write, on_seek, on_close, on_size, NULL,
                            NULL, o);
    TIFFOpenOptionsFree(o);
    return tif;
}

static ct_status say_bad(ct_why *why)
{
    if (why->text[0] != '\0') return CT_ERR_DATA;
    return CT_WHY(why, CT_ERR_DATA, "bad TIFF: damaged, or it ends early");
}

static ct_status read_size(TIFF *tif, uint32_t *height_p, uint32_t *width_p, ct_why *why)
{
    if (!TIFFGetField(tif, TIFFTAG_IMAGEWIDTH, width_p) ||
        !TIFFGetField(tif, TIFFTAG_IMAGELENGTH, height_p) || (*width_p == 0) || (*height_p == 0))
        return CT_WHY(why, CT_ERR_DATA, "bad TIFF: it does not say its size");
    return CT_OK;
}

static bool is_gray(TIFF *tif)
{
    uint16_t kind = PHOTOMETRIC_RGB;

    (void)TIFFGetField(tif, TIFFTAG_PHOTOMETRIC, &kind);
    return (kind == PHOTOMETRIC_MINISBLACK) || (kind == PHOTOMETRIC_MINISWHITE);
}

/* Rows stand as they are stored: the decoder's caller turns the picture. */
static ct_status read_pixels(TIFF *tif, uint32_t height, uint32_t width, ct_sample_buffer *room,
                             ct_why *why)
{
    size_t n = (size_t)height * width;
    uint16_t orientation = ORIENTATION_TOPLEFT;
    uint32_t *rgba = malloc(n * sizeof(*rgba));

    if ((rgba == NULL) || (ct_sample_buffer_reserve(room, 3 * n) != CT_OK)) {
        free(rgba);
        return CT_WHY(why, CT_ERR_NOMEM, "no memory for a TIFF of %u x %u pixels", width, height);
    }
    (void)TIFFGetFieldDefaulted(tif, TIFFTAG_ORIENTATION, &orientation);
    if (!TIFFReadRGBAImageOriented(tif, width, height, rgba, orientation, 1)) {
        free(rgba);
        return say_bad(why);
    }
    for (size_t i = 0; i < n; i++) {
        room->data[3 * i] = (uint8_t)TIFFGetB(rgba[i]);
        room->data[3 * i + 1] = (uint8_t)TIFFGetG(rgba[i]);
        room->data[3 * i + 2] = (uint8_t)TIFFGetR(rgba[i]);
    }
    free(rgba);
    return CT_OK;
}

static ct_status decode(TIFF *tif, ct_color color, ct_sample_buffer *room, ct_image *image_p,
                        ct_why *why)
{
    uint32_t height, width;

    CT_TRY(read_size(tif, &height, &width, why));
    if ((width > CT_MAX_IMAGE_BYTES / 8) || (height > CT_MAX_IMAGE_BYTES / 8 / width))
        return CT_WHY(why, CT_ERR_DATA, "TIFF of %u x %u pixels is too large", width, height);
    CT_TRY(read_pixels(tif, height, width, room, why));
    *image_p = (ct_image){ room->data, height, width, 3 };
    if ((color == CT_COLOR_GRAY) || ((color == CT_COLOR_NATIVE) && is_gray(tif)))
        ct_image_to_gray(image_p);
    return CT_OK;
}

ct_status ct_tiff_decode(const uint8_t *data, size_t size, ct_color color, ct_sample_buffer *room,
                         ct_image *image_p, ct_why *why)
{
    tiff_source source = { data, size, 0, why };
    TIFF *tif = open_source(&source);
    ct_status status;

    if (tif == NULL) return say_bad(why);
    status = decode(tif, color, room, image_p, why);
    TIFFClose(tif);
    return status;
}

ct_status ct_tiff_measure(const uint8_t *data, size_t size, int64_t *height_p, int64_t *width_p,
                          ct_why *why)
{
    tiff_source source = { data, size, 0, why };
    TIFF *tif = open_source(&source);
    uint32_t height = 0, width = 0;
    ct_status status;

    if (tif == NULL) return say_bad(why);
    status = read_size(tif, &height, &width, why);
    TIFFClose(tif);
    *height_p = height;
    *width_p = width;
    return status;
}
