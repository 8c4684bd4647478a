/* Made-up data of a given shape, for timing without a data set: random pixels, labels 0 and 1,
 * or a box of class 1 in the middle. */
#include "framework/data/reader.h"

#include <stdio.h>
#include <string.h>

#include "framework/base/rng.h"
#include "framework/data/augment/boxes.h"

enum { LABELS = 2 };

static ct_status synthetic_open(ct_reader *r, const ct_reader_options *o)
{
    r->count = o->count;
    r->n_field = o->n_field;
    r->same_shape = r->u8 = true;
    for (int i = 0; i < o->n_field; i++) {
        if (!ct_shape_is_valid(&o->shape[i]))
            return CT_FAIL(CT_ERR_SHAPE, "%s: the shape %s is negative or too large", o->who,
                           ct_shape_str(&o->shape[i]).text);
        r->field[i] = o->shape[i];
    }
    return CT_OK;
}

static void synthetic_close(ct_reader *r)
{
    (void)r;
}

static ct_status synthetic_read(const ct_reader *r, void *local, int64_t id, ct_sample *sample)
{
    int64_t n = ct_shape_count(&r->field[0], 0, -1), rest = ct_reader_rest_count(r);
    ct_sample_buffer *room = local;
    uint64_t x = ct_rng_key((uint64_t)id, 1, 2) | 1;

    CT_TRY(ct_sample_buffer_reserve(room, (size_t)n));
    for (int64_t i = 0; i < n; i += 8) { /* xorshift: cheap, so that timing is not of this */
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(room->data + i, &x, (n - i < 8) ? (size_t)(n - i) : 8);
    }
    sample->u8 = room->data;
    sample->f32 = NULL;
    sample->shape = r->field[0];
    if ((r->n_field > 1) && (r->field[1].ndim == 2) && (r->field[1].dim[1] == CT_BOX_ROW)) {
        const float box[CT_BOX_ROW] = { 0, 1, 0, 0.25f, 0.25f, 0.75f, 0.75f, 0 };

        sample->boxes = r->field[1].dim[0];
        for (int64_t i = 0; i < rest; i++) sample->rest[i] = (i < CT_BOX_ROW) ? box[i] : -1;
        return CT_OK;
    }
    for (int64_t i = 0; i < rest; i++) sample->rest[i] = (float)((id + i) % LABELS);
    return CT_OK;
}

static void synthetic_describe(const ct_reader *r, int64_t id, char *text, size_t size)
{
    (void)r;
    snprintf(text, size, "synthetic sample %lld", (long long)id);
}

static void synthetic_local_release(void *local)
{
    ct_sample_buffer_release(local);
}

const ct_reader_ops ct_reader_synthetic = {
    .name = "synthetic",
    .open = synthetic_open,
    .close = synthetic_close,
    .local_size = sizeof(ct_sample_buffer),
    .local_release = synthetic_local_release,
    .read = synthetic_read,
    .describe = synthetic_describe,
    .state_size = 1,
};
