/* PNG through libpng. Samples are taken as they stand: no gamma, as OpenCV reads them. */
#include "framework/data/image.h"

#include <png.h>
#include <stdio.h>
#include <string.h>

typedef struct png_source {
    const uint8_t *data;
    size_t left;
    ct_why *why;
} png_source;

static void on_error(png_structp png, png_const_charp text)
{
    png_source *s = png_get_error_ptr(png);

    snprintf(s->why->text, sizeof(s->why->text), "bad PNG: %s", text);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void on_read(png_structp png, png_bytep to, size_t n)
{
    png_source *s = png_get_io_ptr(png);

    if (n > s->left) png_error(png, "file ends early");
    memcpy(to, s->data, n);
    s->data += n;
    s->left -= n;
}

/* Leaves out what no pixel depends on: libpng would ask for as many bytes as such a chunk says.
 * Where EXIF turns a picture is read elsewhere. */
static void skip_chunks(png_structp png)
{
    static const char names[] = "eXIf\0iCCP\0zTXt\0iTXt\0tEXt\0sPLT\0pCAL\0sCAL\0hIST";

    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, (png_const_bytep)names,
                                (int)(sizeof(names) / 5));
}

/* Asks for 8 bits, 1 or 3 channels, blue first, no transparency. */
static void set_format(png_structp png, png_infop info, ct_color color)
{
    int type = png_get_color_type(png, info);

    if (color == CT_COLOR_NATIVE) {
        color = ((type & PNG_COLOR_MASK_COLOR) != 0) ? CT_COLOR_BGR : CT_COLOR_GRAY;
    }
    png_set_strip_16(png);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if ((type == PNG_COLOR_TYPE_GRAY) && (png_get_bit_depth(png, info) < 8)) {
        png_set_expand_gray_1_2_4_to_8(png);
    }
    png_set_strip_alpha(png);
    if (color == CT_COLOR_BGR) {
        if ((type & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png);
        png_set_bgr(png);
    } else if ((type & PNG_COLOR_MASK_COLOR) != 0) {
        png_set_rgb_to_gray(png, PNG_ERROR_ACTION_NONE, 0.299, 0.587);
    }
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
}

/* What can longjmp: everything it needs after a jump lives in the caller. */
static ct_status read_all(png_structp png, png_infop info, ct_color color, ct_sample_buffer *room,
                          ct_image *image_p, ct_why *why)
{
    int64_t width, height, row_bytes;

    png_read_info(png, info);
    width = png_get_image_width(png, info);
    height = png_get_image_height(png, info);
    if ((width > CT_MAX_IMAGE_BYTES / 8) || (height > CT_MAX_IMAGE_BYTES / 8 / width)) {
        return CT_WHY(why, CT_ERR_DATA, "PNG of %lld x %lld pixels is too large", (long long)width,
                      (long long)height);
    }
    set_format(png, info, color);
    row_bytes = (int64_t)png_get_rowbytes(png, info);
    if (ct_sample_buffer_reserve(room, (size_t)(row_bytes * height)) != CT_OK) {
        return CT_WHY(why, CT_ERR_NOMEM, "no memory for a PNG of %lld x %lld pixels",
                      (long long)width, (long long)height);
    }
    for (int pass = (png_get_interlace_type(png, info) == PNG_INTERLACE_NONE) ? 6 : 0; pass < 7;
         pass++) {
        for (int64_t y = 0; y < height; y++) {
            png_read_row(png, room->data + y * row_bytes, NULL);
        }
    }
    png_read_end(png, NULL);
    *image_p = (ct_image){ room->data, height, width, png_get_channels(png, info) };
    return CT_OK;
}

ct_status ct_png_decode(const uint8_t *data, size_t size, ct_color color, ct_sample_buffer *room,
                        ct_image *image_p, ct_why *why)
{
    png_source source = { data, size, why };
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, on_error, on_warning);
    png_infop info = (png != NULL) ? png_create_info_struct(png) : NULL;
    volatile ct_status status = CT_ERR_DATA;

    if (info == NULL) {
        png_destroy_read_struct(&png, NULL, NULL);
        return CT_WHY(why, CT_ERR_NOMEM, "no memory for a PNG decoder");
    }
    if (setjmp(png_jmpbuf(png)) == 0) {
        skip_chunks(png);
        png_set_read_fn(png, &source, on_read);
        status = read_all(png, info, color, room, image_p, why);
    }
    png_destroy_read_struct(&png, &info, NULL);
    return status;
}

/* The signature, then IHDR: length and name, width, height. */
ct_status ct_png_measure(const uint8_t *data, size_t size, int64_t *height_p, int64_t *width_p,
                         ct_why *why)
{
    int64_t side[2] = { 0, 0 };

    if ((size < 24) || (memcmp(data + 12, "IHDR", 4) != 0))
        return CT_WHY(why, CT_ERR_DATA, "bad PNG: it does not begin with its size");
    for (int i = 0; i < 8; i++) side[i / 4] = (side[i / 4] << 8) | data[16 + i];
    *width_p = side[0];
    *height_p = side[1];
    return CT_OK;
}
