/* JPEG through libjpeg-turbo. */
#include "framework/data/image.h"

#include <string.h>
#include <turbojpeg.h>

/* Of libjpeg-turbo 2.1 and later: no more than 500 scans, each of which costs the whole image and
 * may take few bytes. */
#ifndef TJFLAG_LIMITSCANS
#define TJFLAG_LIMITSCANS 0
#endif

/* Each costs the whole image. Encoders make about ten. */
enum { MOST_SCANS = 64 };

/* Some files of well-known sets carry stray bytes between markers, which harm nothing. */
static bool harmless(tjhandle h)
{
    return (tjGetErrorCode(h) == TJERR_WARNING) &&
           (strstr(tjGetErrorStr2(h), "extraneous bytes before marker") != NULL);
}

/* Adobe's CMYK, stored inverted: light = colour * black / 255. In OpenCV's roundings, as are the
 * shares of a grey below, in 2^-14. */
static void cmyk_to_bgr(uint8_t *pixel, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *p = pixel + 4 * i;
        int c = p[0], m = p[1], y = p[2], k = p[3];

        pixel[3 * i] = (uint8_t)(k - (((255 - y) * k) >> 8));
        pixel[3 * i + 1] = (uint8_t)(k - (((255 - m) * k) >> 8));
        pixel[3 * i + 2] = (uint8_t)(k - (((255 - c) * k) >> 8));
    }
}

static void bgr_to_gray(uint8_t *pixel, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *p = pixel + 3 * i;

        pixel[i] = (uint8_t)((1868 * p[0] + 9617 * p[1] + 4899 * p[2] + 8192) >> 14);
    }
}

/* Markers that begin a scan, up to the end of the image. Behind them the data have none but those
 * that stand alone. */
static int count_scans(const uint8_t *data, size_t size)
{
    enum { TEM = 0x01, RST0 = 0xD0, SOI = 0xD8, EOI = 0xD9, SOS = 0xDA, FILLER = 0xFF };
    size_t at = 2;
    int n = 0;

    while (at + 4 <= size) {
        int marker = data[at + 1];

        if ((data[at] != 0xFF) || (marker == FILLER)) {
            at++;
        } else if ((marker == 0) || (marker == TEM) || ((marker >= RST0) && (marker <= SOI))) {
            at += 2;
        } else if (marker == EOI) {
            break;
        } else {
            n += (marker == SOS);
            at += 2 + (((size_t)data[at + 2] << 8) | data[at + 3]); /* its length */
        }
    }
    return n;
}

static ct_status check_scans(const uint8_t *data, size_t size, ct_why *why)
{
    int n = count_scans(data, size);

    if (n <= MOST_SCANS) return CT_OK;
    return CT_WHY(why, CT_ERR_DATA, "a JPEG of %d scans: at most %d are expected", n, MOST_SCANS);
}

static ct_status decode_with(tjhandle h, const uint8_t *data, size_t size, ct_color color,
                             ct_sample_buffer *room, ct_image *image_p, ct_why *why)
{
    int width, height, subsampling, space, format, per_pixel;
    int64_t n;

    if (tjDecompressHeader3(h, data, size, &width, &height, &subsampling, &space) != 0) {
        return CT_WHY(why, CT_ERR_DATA, "bad JPEG: %s", tjGetErrorStr2(h));
    }
    CT_TRY(check_scans(data, size, why));
    if (color == CT_COLOR_NATIVE) color = (space == TJCS_GRAY) ? CT_COLOR_GRAY : CT_COLOR_BGR;
    format = (color == CT_COLOR_GRAY) ? TJPF_GRAY : TJPF_BGR;
    if ((space == TJCS_CMYK) || (space == TJCS_YCCK)) format = TJPF_CMYK;
    per_pixel = tjPixelSize[format];
    n = (int64_t)width * height;
    if ((n <= 0) || (n > CT_MAX_IMAGE_BYTES / per_pixel)) {
        return CT_WHY(why, CT_ERR_DATA, "JPEG of %d x %d pixels is too large", width, height);
    }
    if (ct_sample_buffer_reserve(room, (size_t)(n * per_pixel)) != CT_OK) {
        return CT_WHY(why, CT_ERR_NOMEM, "no memory for a JPEG of %d x %d pixels", width, height);
    }
    if ((tjDecompress2(h, data, size, room->data, width, 0, height, format,
                       TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS) != 0) &&
        !harmless(h)) {
        return CT_WHY(why, CT_ERR_DATA, "bad JPEG: %s", tjGetErrorStr2(h));
    }
    if (format == TJPF_CMYK) {
        cmyk_to_bgr(room->data, n);
        if (color == CT_COLOR_GRAY) bgr_to_gray(room->data, n);
    }
    *image_p = (ct_image){ room->data, height, width, (color == CT_COLOR_GRAY) ? 1 : 3 };
    return CT_OK;
}

ct_status ct_jpeg_decode(const uint8_t *data, size_t size, ct_color color, ct_sample_buffer *room,
                         ct_image *image_p, ct_why *why)
{
    tjhandle h = tjInitDecompress();
    ct_status status;

    if (h == NULL) return CT_WHY(why, CT_ERR_NOMEM, "no memory for a JPEG decoder");
    status = decode_with(h, data, size, color, room, image_p, why);
    tjDestroy(h);
    return status;
}

ct_status ct_jpeg_measure(const uint8_t *data, size_t size, int64_t *height_p, int64_t *width_p,
                          ct_why *why)
{
    tjhandle h = tjInitDecompress();
    int width = 0, height = 0, subsampling, space;
    ct_status status = CT_OK;

    if (h == NULL) return CT_WHY(why, CT_ERR_NOMEM, "no memory for a JPEG decoder");
    if (tjDecompressHeader3(h, data, size, &width, &height, &subsampling, &space) != 0)
        status = CT_WHY(why, CT_ERR_DATA, "bad JPEG: %s", tjGetErrorStr2(h));
    else
        status = check_scans(data, size, why);
    tjDestroy(h);
    *height_p = height;
    *width_p = width;
    return status;
}

ct_status ct_jpeg_encode(const ct_image *image, int quality, ct_sample_buffer *room, size_t *size_p)
{
    int subsampling = (image->channels == 1) ? TJSAMP_GRAY : TJSAMP_420;
    int format = (image->channels == 1) ? TJPF_GRAY : TJPF_BGR;
    tjhandle h = tjInitCompress();
    unsigned char *jpeg = NULL;
    unsigned long size = 0;
    ct_status status = CT_OK;

    if (h == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a JPEG encoder");
    if (tjCompress2(h, image->data, (int)image->width, 0, (int)image->height, format, &jpeg, &size,
                    subsampling, quality, TJFLAG_ACCURATEDCT) != 0) {
        status = CT_FAIL(CT_ERR_DATA, "cannot encode a JPEG: %s", tjGetErrorStr2(h));
    } else {
        status = ct_sample_buffer_reserve(room, size);
    }
    if (status == CT_OK) {
        memcpy(room->data, jpeg, size);
        *size_p = size;
    }
    tjFree(jpeg);
    tjDestroy(h);
    return status;
}
