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

static const ct_image_codec codec_jpeg = { "JPEG", probe_jpeg, JPEG_DECODE, JPEG_MEASURE,
                                           "libjpeg-turbo (libturbojpeg0-dev)" };
static const ct_image_codec codec_png = { "PNG", probe_png, PNG_DECODE, PNG_MEASURE,
                                          "libpng (libpng-dev)" };

const ct_image_codec *const ct_image_codec_table[] = { &codec_jpeg, &codec_png, NULL };

ct_status ct_image_encode_jpeg(const ct_image *image, int quality, ct_sample_buffer *room,
                               size_t *size_p)
{
    ct_status (*encode)(const ct_image *, int, ct_sample_buffer *, size_t *) = JPEG_ENCODE;

    if (encode == NULL) return CT_FAIL(CT_ERR_CONFIG, "built without %s", codec_jpeg.without);
    return encode(image, quality, room, size_p);
}
