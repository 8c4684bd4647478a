/* Caffe-SSD's AnnotatedDatum records: any bytes end in an image with boxes, or in a reason; what
 * augmentation by boxes goes by is there. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/data/augment/boxes.h"
#include "framework/data/datum.h"
#include "tests/fuzz/fuzz.h"

enum { ROOM = 5 };

static void check_rows(const float *row)
{
    bool ended = false;

    for (int64_t i = 0; i < ROOM; i++) {
        const float *r = row + i * CT_BOX_ROW;

        if (r[0] < 0) {
            ended = true;
            continue;
        }
        if (ended) abort(); /* boxes stand in front */
        for (int k = 0; k < CT_BOX_ROW; k++)
            if (!isfinite(r[k])) abort();
    }
}

/* Wherever they lie, a part of the image has them within it. */
static void check_part(float *row)
{
    const ct_image_part part = { { 0.2f, 0.1f, 0.8f, 0.9f } };
    ct_boxes b = ct_boxes_of(row, ROOM);
    int64_t n = b.n;

    ct_boxes_project(&b, &part, NULL);
    ct_boxes_mirror(&b);
    if ((b.n < 0) || (b.n > n)) abort();
    for (int64_t i = 0; i < b.n; i++)
        for (int k = CT_BOX_CORNER; k < CT_BOX_CORNER + 4; k++)
            if (!(row[i * CT_BOX_ROW + k] >= 0) || !(row[i * CT_BOX_ROW + k] <= 1)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    float row[ROOM * CT_BOX_ROW];
    ct_datum_buffer room = { 0 };
    ct_sample sample = { 0 };
    ct_why why = { "" };
    ct_color color = (ct_color)(size % 3);
    ct_status status = ct_annotated_decode(data, size, color, &room, &sample, ROOM, row, &why);

    if (status == CT_OK) {
        if ((sample.u8 == NULL) == (sample.f32 == NULL)) abort();
        if (ct_shape_count(&sample.shape, 0, -1) <= 0) abort();
        check_rows(row);
        check_part(row);
    } else if (why.text[0] == '\0') {
        abort();
    }
    ct_datum_room_release(&room);
    return 0;
}
