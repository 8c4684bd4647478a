/* WebP through libwebp: still pictures, transparency dropped. */
#include "framework/data/image.h"

#include <webp/decode.h>

static ct_status read_features(const uint8_t *data, size_t size, WebPBitstreamFeatures *f,
                               ct_why *why)
{
    if (WebPGetFeatures(data, size, f) != VP8_STATUS_OK)
        return CT_WHY(why, CT_ERR_DATA, "bad WebP: no header that can be read");
    if (f->has_animation) return CT_WHY(why, CT_ERR_DATA, "an animated WebP; expected one picture");
    return CT_OK;
}

ct_status ct_webp_decode(const uint8_t *data, size_t size, ct_color color, ct_sample_buffer *room,
                         ct_image *image_p, ct_why *why)
{
    WebPBitstreamFeatures f;
    size_t bytes;

    CT_TRY(read_features(data, size, &f, why));
    bytes = (size_t)f.width * (size_t)f.height * 3; /* at most 2^14 of each */
    if (ct_sample_buffer_reserve(room, bytes) != CT_OK)
        return CT_WHY(why, CT_ERR_NOMEM, "no memory for a WebP of %d x %d pixels", f.width,
                      f.height);
    if (WebPDecodeBGRInto(data, size, room->data, bytes, 3 * f.width) == NULL)
        return CT_WHY(why, CT_ERR_DATA, "bad WebP: damaged, or it ends early");
    *image_p = (ct_image){ room->data, f.height, f.width, 3 };
    if (color == CT_COLOR_GRAY) ct_image_to_gray(image_p);
    return CT_OK;
}

ct_status ct_webp_measure(const uint8_t *data, size_t size, int64_t *height_p, int64_t *width_p,
                          ct_why *why)
{
    WebPBitstreamFeatures f;

    CT_TRY(read_features(data, size, &f, why));
    *height_p = f.height;
    *width_p = f.width;
    return CT_OK;
}
