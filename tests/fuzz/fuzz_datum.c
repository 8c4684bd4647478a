/* Datum records, and the images in them: any bytes end in a sample or in a reason. */
#include <stdint.h>
#include <stdlib.h>

#include "framework/data/datum.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ct_datum_buffer room = { 0 };
    ct_sample sample = { 0 };
    ct_why why = { "" };
    float label;
    ct_color color = (ct_color)(size % 3);
    ct_status status = ct_datum_decode(data, size, color, &room, &sample, &label, &why);

    if (status == CT_OK) {
        if ((sample.u8 == NULL) == (sample.f32 == NULL)) abort();
        if (ct_shape_count(&sample.shape, 0, -1) <= 0) abort();
    } else if (why.text[0] == '\0') {
        abort();
    }
    ct_datum_room_release(&room);
    return 0;
}
