/* Images: any bytes that are a JPEG, a PNG, a WebP or a TIFF, whole or not, end in pixels of the
 * size that their header says, or in a reason. What decodes is resized, grayed, laid in planes, and
 * encoded again. */
#include <stdlib.h>

#include "framework/data/image.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_PIXELS = 1 << 22, SIDE = 9 };

static void use(const ct_image *image)
{
    ct_sample_buffer room = { 0 }, jpeg = { 0 };
    uint8_t planes[3 * SIDE * SIDE];
    ct_image small;
    size_t size;

    if (ct_image_resize(image, SIDE, SIDE, &room, &small) != CT_OK) abort();
    if ((small.height != SIDE) || (small.width != SIDE) || (small.channels != image->channels))
        abort();
    ct_image_to_planes(&small, planes);
    if (ct_image_encode_jpeg(&small, 80, &jpeg, &size) != CT_OK) abort();
    if (small.channels == 3) ct_image_to_gray(&small);
    ct_sample_buffer_release(&room);
    ct_sample_buffer_release(&jpeg);
}

/* Stored rows and columns; turned where `color` is not native. */
static void check_size(const ct_image *image, ct_color color, int orientation, int64_t height,
                       int64_t width)
{
    bool turned = (color != CT_COLOR_NATIVE) && (orientation > 4);

    if ((image->height != (turned ? width : height)) || (image->width != (turned ? height : width)))
        abort();
    if ((image->channels != 1) && (image->channels != 3)) abort();
    if ((color == CT_COLOR_GRAY) && (image->channels != 1)) abort();
    if ((color == CT_COLOR_BGR) && (image->channels != 3)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ct_sample_buffer room = { 0 };
    ct_why why = { "" };
    int64_t height = 0, width = 0;
    int orientation = ct_exif_orientation(data, size);
    bool measured = ct_image_measure(data, size, &height, &width, &why) == CT_OK;

    ct_log_set_sink(fuzz_drop, NULL);
    if ((orientation < 1) || (orientation > 8)) abort();
    if (!measured && (why.text[0] == '\0')) abort();
    /* those that are large and whole take their time, as they should */
    if (measured && (width > 0) && (height > MOST_PIXELS / width)) return 0;
    for (int c = 0; c < 3; c++) {
        ct_image image;

        why.text[0] = '\0';
        if (ct_image_decode(data, size, (ct_color)c, &room, &image, &why) == CT_OK) {
            if (measured) check_size(&image, (ct_color)c, orientation, height, width);
            use(&image);
        } else if (why.text[0] == '\0') {
            abort();
        }
    }
    ct_sample_buffer_release(&room);
    return 0;
}
