/* --weights: copies weights by layer name from an HDF5 or a binary caffemodel. Both become a table
 * of arrays first; one function then fits the table to the net. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/text.h"
#include "framework/snapshot/h5.h"
#include "framework/snapshot/host_copy.h"
#include "framework/snapshot/snapshot.h"

typedef struct source_array {
    char *layer; /* owned */
    int index;
    ct_shape shape;
    const Ct__BlobProto *blob; /* where the file is binary */
} source_array;

typedef struct source {
    const char *file;
    ct_h5_reader *h5;
    Ct__NetParameter *net;
    source_array *array;
    int n_array, capacity;
} source;

static ct_status add_array(source *s, const char *layer, size_t n, int index, const ct_shape *shape,
                           const Ct__BlobProto *blob)
{
    source_array *a;

    if (s->n_array == s->capacity) {
        int capacity = (s->capacity > 0) ? 2 * s->capacity : 64;
        source_array *grown = realloc(s->array, (size_t)capacity * sizeof(*grown));

        if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", s->file);
        s->array = grown;
        s->capacity = capacity;
    }
    a = &s->array[s->n_array];
    *a =
        (source_array){ .layer = strndup(layer, n), .index = index, .shape = *shape, .blob = blob };
    if (a->layer == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", s->file);
    s->n_array++;
    return CT_OK;
}

/* "LAYER/INDEX"; a layer's name may itself have slashes. */
static ct_status visit_h5(void *ctx, const char *path)
{
    const char *slash = strrchr(path, '/');
    source *s = ctx;
    ct_shape shape;
    ct_text full = { 0 };
    char *end = NULL;
    long index = (slash != NULL) ? strtol(slash + 1, &end, 10) : -1;
    ct_status status;

    if ((index < 0) || (index >= CT_MAX_WEIGHT) || (end == slash + 1) || (*end != '\0')) {
        CT_WARN("%s: /data/%s is no LAYER/INDEX of weights, left out", s->file, path);
        return CT_OK;
    }
    ct_text_add(&full, "/data/%s", path);
    if (full.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", s->file);
    status = ct_h5_get_shape(s->h5, full.text, &shape);
    ct_text_destroy(&full);
    CT_TRY(status);
    return add_array(s, path, (size_t)(slash - path), (int)index, &shape, NULL);
}

/* A blob's shape: today's form, or the old num, channels, height, width. */
static ct_status blob_shape(const source *s, const char *layer, int index,
                            const Ct__BlobProto *blob, ct_shape *shape_p)
{
    bool old = blob->has_num || blob->has_channels || blob->has_height || blob->has_width;
    size_t n_data = (blob->n_double_data > 0) ? blob->n_double_data : blob->n_data;
    ct_shape shape = { 0 };

    if (old || (blob->shape == NULL)) {
        shape.ndim = old ? 4 : 0;
        shape.dim[0] = blob->num;
        shape.dim[1] = blob->channels;
        shape.dim[2] = blob->height;
        shape.dim[3] = blob->width;
    } else if (blob->shape->n_dim <= CT_MAX_DIM) {
        shape.ndim = (int)blob->shape->n_dim;
        for (int i = 0; i < shape.ndim; i++) shape.dim[i] = blob->shape->dim[i];
    } else {
        return CT_FAIL(CT_ERR_DATA, "%s: blob %d of layer \"%s\" has %zu dimensions, at most %d",
                       s->file, index, layer, blob->shape->n_dim, CT_MAX_DIM);
    }
    CT_TRY(ct_shape_check(&shape));
    if (ct_shape_count(&shape, 0, -1) != (int64_t)n_data)
        return CT_FAIL(CT_ERR_DATA, "%s: blob %d of layer \"%s\" has shape %s and %zu values",
                       s->file, index, layer, ct_shape_str(&shape).text, n_data);
    *shape_p = shape;
    return CT_OK;
}

static ct_status add_blobs(source *s, const char *layer, size_t n, Ct__BlobProto *const *blob)
{
    if (layer == NULL) layer = "";
    if (n > CT_MAX_WEIGHT)
        return CT_FAIL(CT_ERR_DATA, "%s: layer \"%s\" has %zu blobs, at most %d", s->file, layer, n,
                       CT_MAX_WEIGHT);
    for (size_t i = 0; i < n; i++) {
        ct_shape shape = { 0 };

        CT_TRY(blob_shape(s, layer, (int)i, blob[i], &shape));
        CT_TRY(add_array(s, layer, strlen(layer), (int)i, &shape, blob[i]));
    }
    return CT_OK;
}

static ct_status open_binary(source *s)
{
    char *data = NULL;
    size_t size = 0;

    CT_TRY(ct_file_read(s->file, &data, &size));
    s->net = ct__net_parameter__unpack(NULL, size, (const uint8_t *)data);
    free(data);
    if (s->net == NULL)
        return CT_FAIL(CT_ERR_DATA, "%s: neither HDF5 nor a whole binary caffemodel", s->file);
    for (size_t i = 0; i < s->net->n_layer; i++) {
        const Ct__LayerParameter *l = s->net->layer[i];

        CT_TRY(add_blobs(s, l->name, l->n_blobs, l->blobs));
    }
    for (size_t i = 0; i < s->net->n_layers; i++) { /* nets of 2013 and 2014 */
        const Ct__V1LayerParameter *l = s->net->layers[i];

        CT_TRY(add_blobs(s, l->name, l->n_blobs, l->blobs));
    }
    if (s->n_array == 0)
        return CT_FAIL(CT_ERR_DATA, "%s: a binary net without any weights", s->file);
    return CT_OK;
}

static ct_status open_source(source *s)
{
    if (!ct_h5_is_hdf5(s->file)) return open_binary(s);
    CT_TRY(ct_h5_reader_create(s->file, &s->h5));
    if (!ct_h5_has(s->h5, "/data"))
        return CT_FAIL(
            CT_ERR_DATA, "%s: holds no weights (no group /data)%s", s->file,
            ct_h5_has(s->h5, "/history")
                ? "; it is a solverstate, its weights are in the .caffemodel.h5 beside it"
                : "");
    return ct_h5_visit(s->h5, "/data", visit_h5, s);
}

static void close_source(source *s)
{
    ct_h5_reader_destroy(s->h5);
    if (s->net != NULL) ct__net_parameter__free_unpacked(s->net, NULL);
    for (int i = 0; i < s->n_array; i++) free(s->array[i].layer);
    free(s->array);
}

/* Caffe's rule for the old four-dimensional blobs, for all: leading ones do not count. */
static bool shapes_fit(const ct_shape *a, const ct_shape *b)
{
    int i = 0, j = 0;

    while ((i < a->ndim) && (a->dim[i] == 1)) i++;
    while ((j < b->ndim) && (b->dim[j] == 1)) j++;
    if (a->ndim - i != b->ndim - j) return false;
    for (; i < a->ndim; i++, j++) {
        if (a->dim[i] != b->dim[j]) return false;
    }
    return true;
}

static const source_array *find_array(const source *s, const char *layer, int index)
{
    for (int i = 0; i < s->n_array; i++) {
        if ((s->array[i].index == index) && (strcmp(s->array[i].layer, layer) == 0))
            return &s->array[i];
    }
    return NULL;
}

static bool has_layer(const source *s, const char *layer)
{
    for (int i = 0; i < s->n_array; i++) {
        if (strcmp(s->array[i].layer, layer) == 0) return true;
    }
    return false;
}

/* Layer l of the net can take what the file has under its name. */
static ct_status check_layer(const source *s, const ct_net *net, int l)
{
    const char *name = net->layer[l]->name;
    int n_weight = net->layer[l]->n_weight;

    for (int i = 0; i < n_weight; i++) {
        const ct_param *p = &net->param[ct_net_param_of(net, l, i)];
        const source_array *a = find_array(s, name, i);
        bool owner = (p->index == i) && (strcmp(p->layer, name) == 0);

        if ((a == NULL) && !owner) continue; /* shared: it comes with its owner */
        if (a == NULL)
            return CT_FAIL(CT_ERR_SHAPE, "%s: blob %d of layer \"%s\" is missing; the net has %d",
                           s->file, i, name, n_weight);
        if (!shapes_fit(&a->shape, &p->blob.data.shape))
            return CT_FAIL(CT_ERR_SHAPE,
                           "%s: blob %d of layer \"%s\" has shape %s in the file, %s in the net; "
                           "to train this layer from scratch, rename it",
                           s->file, i, name, ct_shape_str(&a->shape).text,
                           ct_shape_str(&p->blob.data.shape).text);
    }
    if (find_array(s, name, n_weight) != NULL)
        return CT_FAIL(CT_ERR_SHAPE,
                       "%s: layer \"%s\" has more blobs in the file than the net's %d", s->file,
                       name, n_weight);
    return CT_OK;
}

static ct_status read_array(source *s, const source_array *a, int64_t count, float *host)
{
    ct_text path = { 0 };
    ct_status status;

    if (a->blob == NULL) {
        ct_text_add(&path, "/data/%s/%d", a->layer, a->index);
        if (path.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", s->file);
        status = ct_h5_get_floats(s->h5, path.text, count, host);
        ct_text_destroy(&path);
        return status;
    }
    if (a->blob->n_double_data > 0) {
        for (int64_t i = 0; i < count; i++) host[i] = (float)a->blob->double_data[i];
    } else if (count > 0) {
        memcpy(host, a->blob->data, (size_t)count * sizeof(float));
    }
    return CT_OK;
}

static ct_status copy_layer(source *s, const ct_net *net, int l, float *host)
{
    const ct_device *dev = ct_net_device(net);

    for (int i = 0; i < net->layer[l]->n_weight; i++) {
        const ct_param *p = &net->param[ct_net_param_of(net, l, i)];
        const source_array *a = find_array(s, net->layer[l]->name, i);

        if (a == NULL) continue;
        CT_TRY(read_array(s, a, p->count, host));
        CT_TRY(
            dev->from_host(NULL, ct_blob_data(&p->blob), host, (size_t)p->count * sizeof(float)));
    }
    return CT_OK;
}

/* Says which layers the file leaves alone and which of its layers the net does not have. */
static ct_status report_layers(const source *s, const ct_net *net)
{
    ct_text without = { 0 }, ignored = { 0 };
    int n_loaded = 0;

    for (int l = 0; l < net->n_layer; l++) {
        if (net->layer[l]->n_weight == 0) continue;
        if (has_layer(s, net->layer[l]->name)) {
            n_loaded++;
        } else {
            ct_text_add(&without, " %s", net->layer[l]->name);
        }
    }
    for (int i = 0; i < s->n_array; i++) {
        bool first = (i == 0) || (strcmp(s->array[i - 1].layer, s->array[i].layer) != 0);

        if (first && (ct_net_find_layer(net, s->array[i].layer) < 0))
            ct_text_add(&ignored, " %s", s->array[i].layer);
    }
    if (n_loaded > 0) CT_INFO("Finetuning from %s: weights of %d layers", s->file, n_loaded);
    if (without.text != NULL) CT_INFO("not in that file, left as they were:%s", without.text);
    if (ignored.text != NULL) CT_INFO("Ignoring source layer%s", ignored.text);
    ct_text_destroy(&without);
    ct_text_destroy(&ignored);
    if (n_loaded == 0)
        return CT_FAIL(CT_ERR_DATA, "%s: none of its layers has the name of a layer of the net",
                       s->file);
    return CT_OK;
}

static ct_status load(source *s, ct_net *net)
{
    float *host;
    int64_t most = 0;
    ct_status status = CT_OK;

    CT_TRY(open_source(s));
    for (int l = 0; l < net->n_layer; l++) {
        if (has_layer(s, net->layer[l]->name)) CT_TRY(check_layer(s, net, l));
    }
    CT_TRY(report_layers(s, net));
    for (int i = 0; i < net->n_param; i++)
        most = (net->param[i].count > most) ? net->param[i].count : most;
    host = ct_mem_acquire((size_t)most * sizeof(float));
    if (host == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", s->file);
    for (int l = 0; (l < net->n_layer) && (status == CT_OK); l++)
        status = copy_layer(s, net, l, host);
    ct_mem_release(host);
    ct_net_weights_changed(net);
    return status;
}

ct_status ct_weights_load(const char *file, ct_net *net)
{
    source s = { .file = file };
    ct_status status = load(&s, net);

    close_source(&s);
    return status;
}
