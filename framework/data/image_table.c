/* The kinds of compressed images there are; the only file that knows which are built in. */
#include "framework/data/image.h"

#include <string.h>

static bool probe_jpeg(const uint8_t *data, size_t size)
{
    return (size >= 3) && (memcmp(data, "\xFF\xD8\xFF", 3) == 0);
}

static bool probe_png(const uint8_t *data, size_t size)
{
    return (size >= 8) && (memcmp(data, "\x89PNG\r\n\x1A\n", 8) == 0);
}

static bool probe_webp(const uint8_t *data, size_t size)
{
    return (size >= 12) && (memcmp(data, "RIFF", 4) == 0) && (memcmp(data + 8, "WEBP", 4) == 0);
}

static bool probe_tiff(const uint8_t *data, size_t size)
{
    return (size >= 8) && ((memcmp(data, "II*\0", 4) == 0) || (memcmp(data, "MM\0*", 4) == 0));
}

#ifdef CT_HAVE_TURBOJPEG
#define JPEG_DECODE  ct_jpeg_decode
#define JPEG_ENCODE  ct_jpeg_encode
#define JPEG_MEASURE ct_jpeg_measure
#else
#define JPEG_DECODE  NULL
#define JPEG_ENCODE  NULL
#define JPEG_MEASURE NULL
#endif
#ifdef CT_HAVE_PNG
#define PNG_DECODE  ct_png_decode
#define PNG_MEASURE ct_png_measure
#else
#define PNG_DECODE  NULL
#define PNG_MEASURE NULL
#endif

#ifdef CT_HAVE_WEBP
#define WEBP_DECODE  ct_webp_decode
#define WEBP_MEASURE ct_webp_measure
#else
#define WEBP_DECODE  NULL
#define WEBP_MEASURE NULL
#endif
#ifdef CT_HAVE_TIFF
#define TIFF_DECODE  ct_tiff_decode
#define TIFF_MEASURE ct_tiff_measure
#else
#define TIFF_DECODE  NULL
#define TIFF_MEASURE NULL
#endif

static const ct_image_codec codec_jpeg = { "JPEG", probe_jpeg, JPEG_DECODE, JPEG_MEASURE,
                                           "libjpeg-turbo (libturbojpeg0-dev)" };
static const ct_image_codec codec_png = { "PNG", probe_png, PNG_DECODE, PNG_MEASURE,
                                          "libpng (libpng-dev)" };

static const ct_image_codec codec_webp = { "WebP", probe_webp, WEBP_DECODE, WEBP_MEASURE,
                                           "libwebp (libwebp-dev)" };
static const ct_image_codec codec_tiff = { "TIFF", probe_tiff, TIFF_DECODE, TIFF_MEASURE,
                                           "libtiff 4.5 (libtiff-dev)" };

const ct_image_codec *const ct_image_codec_table[] = { &codec_jpeg, &codec_png, &codec_webp,
                                                       &codec_tiff, NULL };

ct_status ct_image_encode_jpeg(const ct_image *image, int quality, ct_sample_buffer *room,
                               size_t *size_p)
{
    ct_status (*encode)(const ct_image *, int, ct_sample_buffer *, size_t *) = JPEG_ENCODE;

    if (encode == NULL) return CT_FAIL(CT_ERR_CONFIG, "built without %s", codec_jpeg.without);
    return encode(image, quality, room, size_p);
}
