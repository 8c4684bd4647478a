#include "cli/report/box_example.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/data/image.h"
#include "serve/net/sample_net.h"

enum { TRUE_TILE, FOUND_TILE, N_TILE };
enum { SEEN = 192 /* pixels across, so that names on boxes leave some of a tile to be seen */ };

static ct_tile_box box_of(const ct_box_example *b, int64_t tile, float class, const float *corner)
{
    ct_tile_box box = { .tile = tile, .colour = (int64_t) class };
    int64_t c = box.colour;

    memcpy(box.corner, corner, sizeof(box.corner));
    if ((c >= 0) && ((size_t)c < b->net->n_class_name))
        snprintf(box.label, sizeof(box.label), "%s", b->net->class_name[c]);
    else
        snprintf(box.label, sizeof(box.label), "%" PRId64, c);
    return box;
}

/* The surest of a class come last, so they lie on the others. */
static int64_t list_boxes(const ct_box_example *b, ct_example *x, ct_tile_box *box)
{
    int64_t n = 0;

    x->n_true = b->truth.n;
    x->n_found = 0;
    for (int64_t i = 0; i < b->truth.n; i++) {
        const float *row = b->truth.row + i * CT_BOX_ROW;

        box[n++] = box_of(b, TRUE_TILE, row[1], row + CT_BOX_CORNER);
    }
    for (int64_t i = b->n_found; i-- > 0;) {
        const float *row = b->found + i * CT_FOUND_ROW;
        size_t length;

        if (!(row[2] >= CT_BOX_SHOWN)) continue;
        box[n] = box_of(b, FOUND_TILE, row[1], row + 3);
        length = strlen(box[n].label);
        snprintf(box[n].label + length, sizeof(box[n].label) - length, " %.2f", (double)row[2]);
        n++;
        x->n_found++;
    }
    return n;
}

ct_status ct_box_example_draw(const ct_box_example *b, ct_example *x)
{
    static const char *const label[N_TILE] = { "true", "found" };
    size_t size = (size_t)ct_shape_count(b->shape, 0, -1) * sizeof(float);
    ct_tile_box *box = calloc((size_t)(b->truth.n + b->n_found) + 1, sizeof(*box));
    float *value = malloc(N_TILE * size + 1);
    ct_tiles t = { .n = N_TILE, .columns = N_TILE, .value = value, .label = label, .box = box };
    ct_status status = CT_OK;

    if ((box == NULL) || (value == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for a picture");
    } else {
        t.n_box = list_boxes(b, x, box);
        for (int i = 0; i < N_TILE; i++) memcpy((char *)value + (size_t)i * size, b->value, size);
    }
    if ((status == CT_OK) && (b->shape->ndim == 3) &&
        ((b->shape->dim[0] == 1) || (b->shape->dim[0] == 3))) {
        t.channels = (int)b->shape->dim[0];
        t.height = b->shape->dim[1];
        t.width = b->shape->dim[2];
        t.zoom = (t.width < SEEN) ? (int)((SEEN + t.width - 1) / t.width) : 1;
        status = ct_tiles_png(&t, &x->picture);
    }
    free(value);
    free(box);
    return status;
}
