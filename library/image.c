/* Pictures for programs of users: files to pixels. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/text.h"
#include "framework/data/image.h"
#include "library/library.h"

/* The framework's pixels are blue, green, red. */
static ct_status take(const ct_image *from, cortado_image *to)
{
    int64_t n = from->height * from->width;

    *to = (cortado_image){ .height = from->height, .width = from->width };
    to->channels = from->channels;
    to->pixels = malloc((size_t)(n * from->channels) + 1);
    if (to->pixels == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a picture of %" PRId64 " pixels", n);
    if (from->channels != 3) {
        memcpy(to->pixels, from->data, (size_t)(n * from->channels));
        return CT_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        for (int c = 0; c < 3; c++) to->pixels[3 * i + c] = from->data[3 * i + 2 - c];
    }
    return CT_OK;
}

static ct_status read_image(const char *file, int channels, cortado_image *image)
{
    ct_sample_buffer room = { .data = NULL };
    ct_image decoded;
    ct_why why;
    ct_status status;
    char *bytes;
    size_t size;

    if ((file == NULL) || (image == NULL))
        return CT_FAIL(CT_ERR_ARG, "a picture's file, or where the picture goes, is NULL");
    if ((channels != 1) && (channels != 3))
        return CT_FAIL(CT_ERR_ARG, "a picture of %d channels: 1 is gray, 3 are red, green, blue",
                       channels);
    CT_TRY(ct_file_read(file, &bytes, &size));
    status = ct_image_decode(bytes, size, (channels == 1) ? CT_COLOR_GRAY : CT_COLOR_BGR, &room,
                             &decoded, &why);
    if (status != CT_OK)
        status = CT_FAIL(status, "%s: %s", file, why.text);
    else
        status = take(&decoded, image);
    ct_sample_buffer_release(&room);
    free(bytes);
    return status;
}

cortado_status cortado_image_read(const char *file, int channels, cortado_image *image)
{
    ct_public_call c;

    ct_public_begin(&c);
    return ct_public_end(&c, read_image(file, channels, image));
}

void cortado_image_free(cortado_image *image)
{
    if (image == NULL) return;
    free(image->pixels);
    *image = (cortado_image){ .pixels = NULL };
}
