/* Some samples of a data set as one picture. */
#include "cli/info/set_picture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/data/class_names.h"
#include "framework/data/group.h"
#include "framework/data/net_set.h"
#include "framework/proto/prototxt.h"
#include "framework/proto/upgrade.h"

/* Samples, evenly spread, of one shape; labels with the names that the net has, or that lie beside
 * the set. */
typedef struct grid {
    const char *path;
    int64_t n;
    ct_shape shape; /* of a tile: that of the first sample */
    float *value;
    char (*text)[64];
    const char **label;
    ct_class_names names;
    ct_tile_box *box; /* of all samples */
    int64_t n_box;
} grid;

/* Pixels of a tile at least; so that names on boxes leave some of it to be seen. */
enum { GRID_TILES = 64, GRID_SEEN = 64, GRID_SEEN_NAMED = 192 };

static ct_status read_names(grid *g, const Ct__NetParameter *net)
{
    ct_text file = { 0 };
    ct_status status = CT_OK;

    if (net->n_class_name > 0)
        return ct_class_names_copy(net->class_name, (int64_t)net->n_class_name, &g->names);
    ct_text_add(&file, "%.*s" CT_CLASS_FILE, (int)(ct_path_base(g->path) - g->path), g->path);
    if (file.failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for the names of classes");
    if ((status == CT_OK) && (access(file.text, R_OK) == 0))
        status = ct_class_names_read(file.text, file.text, 0, &g->names);
    ct_text_destroy(&file);
    return status;
}

/* Values of any size as a tile's: the nearest ones. */
static void fit(const ct_shape *from, const float *value, const ct_shape *to, float *tile)
{
    int64_t h = to->dim[1], w = to->dim[2];

    for (int64_t i = 0; i < to->dim[0] * h * w; i++) {
        int64_t y = i / w % h * from->dim[1] / h, x = i % w * from->dim[2] / w;

        tile[i] = value[(i / (h * w) * from->dim[1] + y) * from->dim[2] + x];
    }
}

static ct_status make_grid(grid *g, int64_t count, const ct_shape *shape)
{
    size_t each;

    if ((shape->ndim != 3) || ((shape->dim[0] != 1) && (shape->dim[0] != 3)))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: samples are %s: --picture needs channels x height x width, of 1 or 3 "
                       "channels",
                       g->path, ct_shape_str(shape).text);
    g->shape = *shape;
    g->n = (count < GRID_TILES) ? count : GRID_TILES;
    each = (size_t)ct_shape_count(shape, 0, -1);
    g->value = calloc((size_t)g->n * each, sizeof(*g->value));
    g->text = calloc((size_t)g->n, sizeof(*g->text));
    g->label = calloc((size_t)g->n, sizeof(*g->label));
    if ((g->value != NULL) && (g->text != NULL) && (g->label != NULL)) return CT_OK;
    return CT_FAIL(CT_ERR_NOMEM, "no memory for a picture of %lld samples", (long long)g->n);
}

static void name_class(const grid *g, int64_t class, char *text, size_t size)
{
    if ((class >= 0) && (class < g->names.n)) snprintf(text, size, "%s", g->names.name[class]);
    if (class >= g->names.n) snprintf(text, size, "%lld", (long long)class);
}

/* The boxes of sample i, as the net gets them. */
static ct_status add_boxes(grid *g, const ct_net_set *s, int64_t i)
{
    ct_boxes boxes = ct_net_set_boxes(s);
    ct_tile_box *grown;

    if (boxes.n == 0) return CT_OK;
    grown = realloc(g->box, (size_t)(g->n_box + boxes.n) * sizeof(*grown));
    if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for boxes");
    g->box = grown;
    for (int64_t k = 0; k < boxes.n; k++) {
        const float *row = boxes.row + k * CT_BOX_ROW;
        ct_tile_box *b = &g->box[g->n_box++];

        *b = (ct_tile_box){ .tile = i, .colour = (int64_t)row[1] };
        memcpy(b->corner, row + CT_BOX_CORNER, sizeof(b->corner));
        name_class(g, (int64_t)row[1], b->label, sizeof(b->label));
    }
    return CT_OK;
}

static ct_status add_sample(grid *g, ct_net_set *s, int64_t i)
{
    int64_t label = ct_net_set_label(s);
    float *value = NULL;
    ct_shape shape;

    CT_TRY(ct_net_set_values(s, &shape, &value));
    if ((g->n == 0) && (i == 0)) {
        ct_status status = make_grid(g, s->reader->count, &shape);

        if (status != CT_OK) free(value);
        CT_TRY(status);
    }
    if ((shape.ndim == 3) && (shape.dim[0] == g->shape.dim[0]))
        fit(&shape, value, &g->shape, g->value + i * ct_shape_count(&g->shape, 0, -1));
    free(value);
    name_class(g, label, g->text[i], sizeof(g->text[i]));
    g->label[i] = g->text[i];
    return add_boxes(g, s, i);
}

static ct_status draw_grid(const grid *g, bool bytes, const char *file)
{
    ct_tiles t = { .n = g->n,
                   .channels = (int)g->shape.dim[0],
                   .height = g->shape.dim[1],
                   .width = g->shape.dim[2],
                   .value = g->value,
                   .high = bytes ? 255.0 : 0.0,
                   .label = g->label,
                   .box = g->box,
                   .n_box = g->n_box };
    int64_t seen = (g->n_box > 0) ? GRID_SEEN_NAMED : GRID_SEEN;
    ct_text png = { 0 };
    ct_status status;

    t.zoom = (t.width < seen) ? (int)((seen + t.width - 1) / t.width) : 1;
    status = ct_tiles_png(&t, &png);
    if ((status == CT_OK) && png.failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for %s", file);
    if (status == CT_OK) status = ct_file_write(file, png.text, png.length);
    ct_text_destroy(&png);
    CT_TRY(status);
    printf("picture     %s: %lld samples, evenly spread", file, (long long)g->n);
    if (g->n_box > 0) printf(", with %lld boxes", (long long)g->n_box);
    printf("\n");
    return CT_OK;
}

/* The net that reads the set, or one with nothing but a data layer. */
static ct_status read_reader(const char *model, const char *set, Ct__NetParameter **net_p)
{
    static const char lmdb[] = "layer { name: 'data' type: 'Data' top: 'data' top: 'label' "
                               "data_param { source: '' batch_size: 1 } }";
    static const char hdf5[] = "layer { name: 'data' type: 'HDF5Data' top: 'data' top: 'label' "
                               "hdf5_data_param { source: '' batch_size: 1 } }";
    static const char annotated[] = "layer { name: 'data' type: 'AnnotatedData' top: 'data' "
                                    "top: 'label' data_param { source: '' batch_size: 1 } "
                                    "annotated_data_param { max_boxes: 65536 } }";
    const char *plain = ct_stage_can("hdf5", set) ? hdf5 : lmdb;
    ProtobufCMessage *m = NULL;
    bool boxes = false;

    if (model != NULL) return ct_net_read(model, NULL, net_p);
    if (plain == lmdb) CT_TRY(ct_lmdb_has_boxes(set, set, &boxes));
    if (boxes) plain = annotated;
    CT_TRY(ct_prototxt_parse(&ct__net_parameter__descriptor, "--picture", plain, strlen(plain),
                             NULL, &m));
    *net_p = (Ct__NetParameter *)(void *)m;
    return CT_OK;
}

ct_status ct_set_picture(const char *path, const char *model, const char *file)
{
    Ct__NetParameter *net = NULL;
    grid g = { .path = path };
    ct_net_set s;
    ct_status status;

    CT_TRY(ct_file_check_writable(file));
    CT_TRY(read_reader(model, path, &net));
    status = ct_net_set_open(net, CT_TRAIN, path, &s);
    if (status == CT_UNSUPPORTED)
        status = CT_FAIL(
            CT_ERR_CONFIG,
            "--picture: %s; expected a layer of type Data, AnnotatedData, "
            "ImageData or HDF5Data in phase TRAIN of --model, and the set that --data names",
            (model != NULL) ? model : path);
    if (status == CT_OK) {
        int64_t n = (s.reader->count < GRID_TILES) ? s.reader->count : GRID_TILES;

        status = read_names(&g, net);
        for (int64_t i = 0; (i < n) && (status == CT_OK); i++) {
            status = ct_net_set_read(&s, s.reader->count * i / n);
            if (status == CT_OK) status = add_sample(&g, &s, i);
        }
        if (status == CT_OK) status = draw_grid(&g, (model == NULL) && s.reader->u8, file);
        ct_net_set_close(&s);
    }
    ct_class_names_release(&g.names);
    free(g.value);
    free(g.text);
    free(g.label);
    free(g.box);
    ct__net_parameter__free_unpacked(net, NULL);
    return status;
}
