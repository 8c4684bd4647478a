/* Weights in Caffe's binary form: a NetParameter whose layers have blobs. Read as a whole; written
 * layer by layer, the values straight from where they lie. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/proto/message.h"
#include "framework/snapshot/model.h"
#include "framework/snapshot/disk_file.h"

enum { NET_NAME = 1, NET_LAYER = 100, NET_CLASS_NAME = 20004, LAYER_BLOBS = 7 };

static bool old_dims(const Ct__BlobProto *b, ct_shape *shape_p)
{
    if (!b->has_num && !b->has_channels && !b->has_height && !b->has_width) return false;
    *shape_p = (ct_shape){ 4, { b->num, b->channels, b->height, b->width } };
    return true;
}

ct_status ct_blob_shape(const Ct__BlobProto *blob, const char *who, ct_shape *shape_p)
{
    size_t n_data = (blob->n_double_data > 0) ? blob->n_double_data : blob->n_data;
    ct_shape shape = { 0 };

    if (blob->shape == NULL) {
        if (!old_dims(blob, &shape)) shape = (ct_shape){ 1, { (int64_t)n_data } };
    } else if (blob->shape->n_dim <= CT_MAX_DIM) {
        shape.ndim = (int)blob->shape->n_dim;
        for (int i = 0; i < shape.ndim; i++) shape.dim[i] = blob->shape->dim[i];
    } else {
        return CT_FAIL(CT_ERR_DATA, "%s has %zu dimensions, at most %d", who, blob->shape->n_dim,
                       CT_MAX_DIM);
    }
    if (!ct_shape_is_valid(&shape))
        return CT_FAIL(CT_ERR_DATA, "%s has an impossible shape, %s", who,
                       ct_shape_str(&shape).text);
    if (ct_shape_count(&shape, 0, -1) != (int64_t)n_data)
        return CT_FAIL(CT_ERR_DATA, "%s has shape %s and %zu values", who,
                       ct_shape_str(&shape).text, n_data);
    *shape_p = shape;
    return CT_OK;
}

/* Values in double precision become floats here. */
static ct_status take_doubles(const ct_model *m, const Ct__BlobProto *blob, ct_model_array *a)
{
    float *data = ct_mem_acquire(blob->n_double_data * sizeof(float));

    if (data == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", m->file);
    for (size_t i = 0; i < blob->n_double_data; i++) data[i] = (float)blob->double_data[i];
    a->data = a->owned = data;
    return CT_OK;
}

static ct_status add_blob(ct_model *m, const char *layer, int index, const Ct__BlobProto *blob)
{
    static const float nothing = 0.0f;
    ct_shape shape = { 0 };
    ct_model_array *a;
    ct_text who = { 0 };
    ct_status status;

    ct_text_add(&who, "%s: blob %d of layer \"%s\"", m->file, index, layer);
    if (who.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", m->file);
    status = ct_blob_shape(blob, who.text, &shape);
    ct_text_destroy(&who);
    CT_TRY(status);
    CT_TRY(ct_model_add(m, layer, strlen(layer), index, &shape, &a));
    if (blob->n_double_data > 0) return take_doubles(m, blob, a);
    a->data = (blob->data != NULL) ? blob->data : &nothing;
    return CT_OK;
}

/* Forks' BatchNorm has its scale and its shift behind its statistics; nets that are read have them
 * in a Scale of this name (framework/proto/fused.c). */
static ct_status add_scale(ct_model *m, const char *layer, size_t n, Ct__BlobProto *const *blob)
{
    ct_text name = { 0 };
    ct_status status;
    int l = 0;

    ct_text_add(&name, "%s_scale", layer);
    if (name.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", m->file);
    status = ct_model_add_layer(m, name.text, name.length, &l);
    for (size_t i = 0; (i < n) && (status == CT_OK); i++)
        status = add_blob(m, name.text, (int)i, blob[i]);
    ct_text_destroy(&name);
    m->n_blob += (int64_t)n;
    return status;
}

static bool holds_scale(const Ct__LayerParameter *l, size_t n_blob)
{
    return (l != NULL) && (l->type != NULL) && (strcmp(l->type, "BatchNorm") == 0) && (n_blob > 3);
}

static ct_status add_blobs(ct_model *m, const char *layer, size_t n, Ct__BlobProto *const *blob,
                           const Ct__LayerParameter *param)
{
    int l = 0;

    if (layer == NULL) layer = "";
    if (n > CT_MAX_WEIGHT)
        return CT_FAIL(CT_ERR_DATA, "%s: layer \"%s\" has %zu blobs, at most %d", m->file, layer, n,
                       CT_MAX_WEIGHT);
    CT_TRY(ct_model_add_layer(m, layer, strlen(layer), &l));
    if (param != NULL) m->layer[l].param = param;
    if (holds_scale(param, n)) {
        CT_TRY(add_scale(m, layer, n - 3, blob + 3));
        n = 3;
    }
    for (size_t i = 0; i < n; i++) CT_TRY(add_blob(m, layer, (int)i, blob[i]));
    m->n_blob += (int64_t)n;
    return CT_OK;
}

static bool binary_is(const char *file)
{
    (void)file;
    return true;
}

static ct_status binary_open(ct_model *m)
{
    Ct__NetParameter *net;
    const char *why;
    char *data = NULL;
    size_t size = 0;

    CT_TRY(ct_file_read(m->file, &data, &size));
    net = (Ct__NetParameter *)(void *)ct_message_unpack(&ct__net_parameter__descriptor, data, size,
                                                        &why);
    free(data);
    m->source = net;
    if (net == NULL)
        return CT_FAIL(CT_ERR_DATA, "%s: neither HDF5 nor a whole binary caffemodel: %s", m->file,
                       why);
    if (net->name != NULL) m->name = strdup(net->name);
    CT_TRY(ct_model_name_classes(m, net->class_name, (int64_t)net->n_class_name));
    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *l = net->layer[i];

        CT_TRY(add_blobs(m, l->name, l->n_blobs, l->blobs, l));
    }
    for (size_t i = 0; i < net->n_layers; i++) { /* nets of 2013 and 2014 */
        const Ct__V1LayerParameter *l = net->layers[i];
        const Ct__V0LayerParameter *old = l->layer;

        if (old != NULL) /* of 2013: a layer inside of a layer */
            CT_TRY(add_blobs(m, old->name, old->n_blobs, old->blobs, NULL));
        else
            CT_TRY(add_blobs(m, l->name, l->n_blobs, l->blobs, NULL));
    }
    if (m->n_blob == 0)
        return CT_FAIL(CT_ERR_DATA, "%s: a binary net without any weights", m->file);
    return CT_OK;
}

static ct_status binary_get(ct_model *m, int layer, int i, float *out)
{
    (void)out;
    return CT_FAIL(CT_ERR_ARG, "%s: array %d of layer %d was read long ago", m->file, i, layer);
}

static void binary_close(ct_model *m)
{
    if (m->source != NULL) ct__net_parameter__free_unpacked(m->source, NULL);
}

/* A layer's message without blobs; where they go is known by the field's number. */
typedef struct layer_head {
    uint8_t *bytes;
    size_t size, split;
    int64_t blobs; /* bytes of them, tags counted */
} layer_head;

static ct_status make_head(const ct_model *m, const ct_model_layer *layer, layer_head *h)
{
    Ct__LayerParameter l = CT__LAYER_PARAMETER__INIT;

    if (layer->param != NULL) l = *layer->param;
    l.name = layer->name;
    l.n_blobs = 0;
    l.blobs = NULL;
    h->size = ct__layer_parameter__get_packed_size(&l);
    h->bytes = malloc(h->size + 1);
    if (h->bytes == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", m->file);
    ct__layer_parameter__pack(&l, h->bytes);
    h->split = ct_proto_split(h->bytes, h->size, LAYER_BLOBS);
    h->blobs = 0;
    for (int i = 0; i < layer->n_array; i++)
        h->blobs += ct_proto_field_size(LAYER_BLOBS, ct_proto_blob_size(&layer->array[i].shape));
    return CT_OK;
}

/* Blobs are told apart by their place alone. */
static ct_status check_layer(const ct_model *m, const ct_model_layer *layer)
{
    for (int i = 0; i < layer->n_array; i++) {
        if (!layer->array[i].present)
            return CT_FAIL(CT_ERR_DATA,
                           "%s: layer \"%s\" has a blob %d, but none %d: a .caffemodel cannot say "
                           "that",
                           m->file, layer->name, layer->n_array - 1, i);
    }
    return CT_OK;
}

static ct_status write_blobs(const ct_model_layer *layer, ct_disk_file *d)
{
    for (int i = 0; i < layer->n_array; i++) {
        const ct_model_array *a = &layer->array[i];
        const ct_disk_floats v = { .data = a->data, .storage = a->storage, .from = a->from };

        ct_proto_field(d, LAYER_BLOBS, (uint64_t)ct_proto_blob_size(&a->shape));
        CT_TRY(ct_proto_blob(d, &a->shape, &v));
    }
    return CT_OK;
}

static ct_status write_layer(const ct_model *m, const ct_model_layer *layer, ct_disk_file *d)
{
    layer_head h = { 0 };
    ct_status status;

    CT_TRY(check_layer(m, layer));
    CT_TRY(make_head(m, layer, &h));
    ct_proto_field(d, NET_LAYER, (uint64_t)((int64_t)h.size + h.blobs));
    ct_disk_add(d, h.bytes, (int64_t)h.split);
    status = write_blobs(layer, d);
    ct_disk_add(d, h.bytes + h.split, (int64_t)(h.size - h.split));
    free(h.bytes);
    return status;
}

static void write_class_names(const ct_model *m, ct_disk_file *d)
{
    for (const char *at = m->class_names; (at != NULL) && (*at != '\0');) {
        size_t n = strcspn(at, "\n");

        ct_proto_field(d, NET_CLASS_NAME, n);
        ct_disk_add(d, at, (int64_t)n);
        at += n + (at[n] == '\n');
    }
}

static ct_status binary_write(const ct_model *m, const char *path, const char *provenance,
                              uint64_t *hash_p, int64_t *size_p)
{
    size_t n = (m->name != NULL) ? strlen(m->name) : 0;
    ct_status status = CT_OK;
    ct_disk_file d;

    (void)provenance; /* the message has no place for it */
    ct_disk_open(&d, path, 0);
    if (m->name != NULL) {
        ct_proto_field(&d, NET_NAME, n);
        ct_disk_add(&d, m->name, (int64_t)n);
    }
    for (int l = 0; (l < m->n_layer) && (status == CT_OK); l++)
        status = write_layer(m, &m->layer[l], &d);
    write_class_names(m, &d);
    if ((status == CT_OK) && (d.at > INT32_MAX))
        status = CT_FAIL(CT_ERR_DATA,
                         "%s: %" PRId64 " bytes, and Caffe reads at most 2 GiB of this form: take "
                         ".caffemodel.h5",
                         path, d.at);
    if (status == CT_OK) return ct_disk_finish(&d, path, hash_p, size_p);
    ct_disk_drop(&d, path);
    return status;
}

const ct_model_format ct_model_binary = { .name = "binary",
                                          .suffix = ".caffemodel",
                                          .is = binary_is,
                                          .open = binary_open,
                                          .get = binary_get,
                                          .close = binary_close,
                                          .write = binary_write };
