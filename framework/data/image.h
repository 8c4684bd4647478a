/** @file image.h  Compressed images to 8-bit pixels: decode, resize, into planes.
 *
 * Colour pixels stand in the order blue, green, red, because Caffe's (OpenCV's) do and trained
 * weights and mean values rely on it. Decoders are listed in image_table.c.
 */
#ifndef CT_IMAGE_H
#define CT_IMAGE_H

#include "framework/base/text.h"
#include "framework/data/sample.h"

typedef enum {
    CT_COLOR_NATIVE, /* as many channels as the file has, transparency dropped: 1 or 3 */
    CT_COLOR_GRAY,
    CT_COLOR_BGR
} ct_color;

#define CT_MAX_IMAGE_BYTES                                                                         \
    ((int64_t)1 << 30) /* a decoded image; beyond it the file is at fault                          \
                        */

/** Interleaved pixels: data[(y * width + x) * channels + c]. data belongs to a room. */
typedef struct ct_image {
    uint8_t *data;
    int64_t height, width;
    int channels;
} ct_image;

/** One kind of file. */
typedef struct ct_image_codec {
    const char *name; /* "JPEG" */
    bool (*probe)(const uint8_t *data, size_t size);
    ct_status (*decode)(const uint8_t *data, size_t size, ct_color color, ct_sample_buffer *room,
                        ct_image *image_p, ct_why *why);
    /** From its header; CT_ERR_DATA where it would take too long, too. */
    ct_status (*measure)(const uint8_t *data, size_t size, int64_t *height_p, int64_t *width_p,
                         ct_why *why);
    const char *without; /* decode NULL: what is missing, "libjpeg-turbo (libturbojpeg0-dev)" */
} ct_image_codec;

extern const ct_image_codec *const ct_image_codec_table[]; /* NULL-terminated */

/** Decodes an image of any built-in kind, told by its first bytes. Pixels go into room, turned and
 *  mirrored as EXIF says where `color` is not native, as OpenCV's imread() and imdecode() do.
 * Quiet: errors fill why. CT_ERR_DATA (not an image, truncated, corrupt), CT_ERR_CONFIG (a kind
 * that is not built in), CT_ERR_NOMEM. */
ct_status ct_image_decode(const void *data, size_t size, ct_color color, ct_sample_buffer *room,
                          ct_image *image_p, ct_why *why);
/** What an image would take decoded, from its header: stored rows and columns. A JPEG of more scans
 *  than encoders make is refused, too. Quiet, as above. */
ct_status ct_image_measure(const void *data, size_t size, int64_t *height_p, int64_t *width_p,
                           ct_why *why);
/** The orientation that a file states, in EXIF or as TIFF, 1 to 8; 1 where it states none. */
int ct_exif_orientation(const uint8_t *data, size_t size);

/** Bilinear resize with pixel centres aligned: OpenCV's INTER_LINEAR (its default, and Caffe's),
 *  bit for bit; into room, which must not be the one that holds `from`. */
ct_status ct_image_resize(const ct_image *from, int64_t height, int64_t width,
                          ct_sample_buffer *room, ct_image *to_p);
/** Pixels of three channels, blue first, to gray ones in their place. */
void ct_image_to_gray(ct_image *image);
/** Interleaved pixels to planes[channels][height][width]. */
void ct_image_to_planes(const ct_image *image, uint8_t *planes);
/** Encodes as JPEG into room; *size_p bytes. CT_ERR_CONFIG where JPEG is not built in. Logged. */
ct_status ct_image_encode_jpeg(const ct_image *image, int quality, ct_sample_buffer *room,
                               size_t *size_p);

/* ---- pictures side by side as one PNG: samples of a set, filters, activations. It needs zlib
 * alone, which is always there; reading PNG files is libpng's. */

/** A box on a tile, with a name in its corner. */
typedef struct ct_tile_box {
    int64_t tile;
    float corner[4]; /* x0 y0 x1 y1 in parts of the tile */
    int64_t colour;  /* boxes of one number have one     */
    char label[64];  /* "": none                         */
} ct_tile_box;

typedef struct ct_tiles {
    int64_t n, height, width;
    int channels;             /* 1, or 3: blue, green, red, as samples are                      */
    const float *value;       /* [n][channels][height][width]; not finite: drawn as the least  */
    double low, high;         /* black and white; low >= high: the least and the most of a tile */
    int64_t columns;          /* 0: about as many as rows                                       */
    int zoom;                 /* pixels a value, each way; 0: 1                                 */
    const char *const *label; /* below each tile, cut to its width; NULL: none. Letters are
                               * capitals; what is not ASCII is drawn as a box */
    const ct_tile_box *box;   /* drawn in this order */
    int64_t n_box;
} ct_tiles;

/** Appends the PNG file. CT_ERR_NOMEM, CT_ERR_ARG (nothing to draw, or more than 2^28 pixels),
 *  logged. */
ct_status ct_tiles_png(const ct_tiles *t, ct_text *out);

/* The implementations: for image_table.c alone. */
ct_status ct_jpeg_decode(const uint8_t *data, size_t size, ct_color color, ct_sample_buffer *room,
                         ct_image *image_p, ct_why *why);
ct_status ct_jpeg_measure(const uint8_t *data, size_t size, int64_t *height_p, int64_t *width_p,
                          ct_why *why);
ct_status ct_png_measure(const uint8_t *data, size_t size, int64_t *height_p, int64_t *width_p,
                         ct_why *why);
ct_status ct_jpeg_encode(const ct_image *image, int quality, ct_sample_buffer *room,
                         size_t *size_p);
ct_status ct_png_decode(const uint8_t *data, size_t size, ct_color color, ct_sample_buffer *room,
                        ct_image *image_p, ct_why *why);
ct_status ct_webp_decode(const uint8_t *data, size_t size, ct_color color, ct_sample_buffer *room,
                         ct_image *image_p, ct_why *why);
ct_status ct_webp_measure(const uint8_t *data, size_t size, int64_t *height_p, int64_t *width_p,
                          ct_why *why);
ct_status ct_tiff_decode(const uint8_t *data, size_t size, ct_color color, ct_sample_buffer *room,
                         ct_image *image_p, ct_why *why);
ct_status ct_tiff_measure(const uint8_t *data, size_t size, int64_t *height_p, int64_t *width_p,
                          ct_why *why);

#endif
