#include "framework/snapshot/model.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/snapshot/h5.h"
#include "framework/snapshot/snapshot_impl.h"

enum { MAX_LAYER = 1 << 16 };

/* A file is asked in this order; the last says what is wrong with what is none of them. */
static const ct_model_format *const format_table[] = { &ct_model_h5,     &ct_model_npz,
                                                       &ct_model_gguf,   &ct_model_safetensors,
                                                       &ct_model_shards, &ct_model_binary };
enum { N_FORMAT = (int)(sizeof(format_table) / sizeof(format_table[0])) };

ct_status ct_model_format_of(const char *path, const ct_model_format **format_p)
{
    for (int i = 0; i < N_FORMAT; i++) {
        if ((format_table[i]->write != NULL) && ct_text_ends_with(path, format_table[i]->suffix)) {
            *format_p = format_table[i];
            return CT_OK;
        }
    }
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: the end of the name says the format of weights: .caffemodel, "
                   ".caffemodel.h5 (any .h5), .npz or .safetensors",
                   path);
}

bool ct_shapes_fit(const ct_shape *a, const ct_shape *b)
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

bool ct_model_split(const char *path, size_t *n_p, int *index_p)
{
    const char *slash = strrchr(path, '/');
    char *end = NULL;
    long index;

    if ((slash == NULL) || (slash[1] < '0') || (slash[1] > '9')) return false;
    index = strtol(slash + 1, &end, 10);
    if ((*end != '\0') || (index < 0) || (index >= CT_MAX_WEIGHT)) return false;
    *n_p = (size_t)(slash - path);
    *index_p = (int)index;
    return true;
}

char *ct_model_path(const char *layer, int index, const char *suffix)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s/%d%s", layer, index, suffix);
    if (t.failed) ct_text_destroy(&t);
    return t.text;
}

static ct_status model_create(const char *file, ct_model **m_p)
{
    ct_model *m = calloc(1, sizeof(*m));

    if ((m == NULL) || ((m->file = strdup(file)) == NULL)) {
        free(m);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the weights of %s", file);
    }
    *m_p = m;
    return CT_OK;
}

int ct_model_find(const ct_model *m, const char *layer)
{
    return ct_name_map_find(&m->by_name, layer, strlen(layer));
}

static ct_status add_layer(ct_model *m, const char *name, size_t n)
{
    if (m->n_layer == MAX_LAYER)
        return CT_FAIL(CT_ERR_DATA, "%s: more than %d layers", m->file, MAX_LAYER);
    if (m->n_layer == m->capacity) {
        int capacity = (m->capacity > 0) ? 2 * m->capacity : 32;
        ct_model_layer *grown = realloc(m->layer, (size_t)capacity * sizeof(*grown));

        if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", m->file);
        m->layer = grown;
        m->capacity = capacity;
    }
    memset(&m->layer[m->n_layer], 0, sizeof(*m->layer));
    m->layer[m->n_layer].name = strndup(name, n);
    if (m->layer[m->n_layer].name == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", m->file);
    m->n_layer++;
    return ct_name_map_put(&m->by_name, m->layer[m->n_layer - 1].name, m->n_layer - 1);
}

ct_status ct_model_add_layer(ct_model *m, const char *layer, size_t n, int *layer_p)
{
    int l = ct_name_map_find(&m->by_name, layer, n);

    if (l < 0) {
        CT_TRY(add_layer(m, layer, n));
        l = m->n_layer - 1;
    }
    *layer_p = l;
    return CT_OK;
}

ct_status ct_model_add(ct_model *m, const char *layer, size_t n, int index, const ct_shape *shape,
                       ct_model_array **array_p)
{
    int l = 0;
    ct_model_array *a;

    if ((index < 0) || (index >= CT_MAX_WEIGHT))
        return CT_FAIL(CT_ERR_DATA, "%s: layer \"%.*s\" has a blob %d, at most %d are known",
                       m->file, (int)n, layer, index, CT_MAX_WEIGHT);
    CT_TRY(ct_model_add_layer(m, layer, n, &l));
    a = &m->layer[l].array[index];
    if (a->present)
        return CT_FAIL(CT_ERR_DATA, "%s: blob %d of layer \"%.*s\" is there twice", m->file, index,
                       (int)n, layer);
    *a = (ct_model_array){ .present = true, .shape = *shape };
    if (index >= m->layer[l].n_array) m->layer[l].n_array = index + 1;
    *array_p = a;
    return CT_OK;
}

ct_status ct_model_open(const char *file, ct_model **m_p)
{
    ct_model *m = NULL;
    struct stat st;
    ct_status status;

    if ((access(file, R_OK) != 0) || (stat(file, &st) != 0))
        return CT_FAIL(CT_ERR_IO, "%s: %s", file, ct_path_why(file, errno).text);
    if (!S_ISREG(st.st_mode))
        return CT_FAIL(CT_ERR_IO, "%s: %s", file,
                       ct_file_reason(S_ISDIR(st.st_mode) ? EISDIR : EINVAL));
    CT_TRY(model_create(file, &m));
    for (int i = 0; (i < N_FORMAT) && (m->format == NULL); i++)
        if (format_table[i]->is(file)) m->format = format_table[i];
    status = m->format->open(m); /* the last format takes what no other does */
    if (status != CT_OK) {
        ct_model_close(m);
        return status;
    }
    *m_p = m;
    return CT_OK;
}

void ct_model_close(ct_model *m)
{
    if (m == NULL) return;
    if (m->format != NULL) m->format->close(m);
    for (int l = 0; l < m->n_layer; l++) {
        for (int i = 0; i < m->layer[l].n_array; i++) ct_mem_release(m->layer[l].array[i].owned);
        free(m->layer[l].name);
    }
    free(m->layer);
    ct_name_map_destroy(&m->by_name);
    json_decref(m->config);
    free(m->name);
    free(m->class_names);
    free(m->file);
    free(m);
}

ct_status ct_model_get(ct_model *m, int layer, int i, float *out)
{
    const ct_model_array *a = &m->layer[layer].array[i];
    int64_t count = ct_shape_count(&a->shape, 0, -1);

    if (a->storage != NULL) return ct_storage_get(a->storage, a->from, count, out);
    if (a->data == NULL) return (count > 0) ? m->format->get(m, layer, i, out) : CT_OK;
    memcpy(out, a->data, (size_t)count * sizeof(float));
    return CT_OK;
}

static ct_status load_array(ct_model *m, int layer, int i)
{
    ct_model_array *a = &m->layer[layer].array[i];
    float *data;

    if (!a->present || (a->data != NULL)) return CT_OK;
    data = ct_mem_acquire((size_t)ct_shape_count(&a->shape, 0, -1) * sizeof(float));
    if (data == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the weights of %s", m->file);
    a->owned = data;
    CT_TRY(ct_model_get(m, layer, i, data));
    a->data = data;
    return CT_OK;
}

ct_status ct_model_load(ct_model *m)
{
    for (int l = 0; l < m->n_layer; l++) {
        for (int i = 0; i < m->layer[l].n_array; i++) CT_TRY(load_array(m, l, i));
    }
    return CT_OK;
}

ct_status ct_model_write(const ct_model *m, const ct_model_format *format, const char *path,
                         const char *provenance, uint64_t *hash_p, int64_t *size_p)
{
    return format->write(m, path, provenance, hash_p, size_p);
}

ct_status ct_model_name_classes(ct_model *m, char *const *name, int64_t n)
{
    ct_text t = { 0 };

    for (int64_t i = 0; i < n; i++) ct_text_add(&t, "%s\n", name[i]);
    if (t.failed) {
        ct_text_destroy(&t);
        return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for the names of classes", m->file);
    }
    free(m->class_names);
    m->class_names = t.text;
    return CT_OK;
}

/* ---- a net */

typedef struct weight_source { /* instead of the net's own; NULL: those */
    ct_storage *weights, *learned;
} weight_source;

static ct_status add_weight(ct_model *m, const ct_net *net, int l, int i, const weight_source *from)
{
    const ct_layer *layer = net->layer[l];
    const ct_param *p = &net->param[ct_net_param_of(net, l, i)];
    ct_storage *stored = ((from->learned != NULL) && p->learns) ? from->learned : from->weights;
    ct_host_copy copy = { 0 };
    ct_model_array *a;

    CT_TRY(ct_model_add(m, layer->name, strlen(layer->name), i, &p->blob.data.shape, &a));
    a->shared = (p->index != i) || (strcmp(p->layer, layer->name) != 0);
    if (stored != NULL) {
        a->storage = stored;
        a->from = p->offset;
        return CT_OK;
    }
    CT_TRY(ct_host_copy_take(ct_net_device(net), ct_blob_data(&p->blob), p->count, &copy));
    a->data = copy.data;
    a->owned = copy.owned;
    return CT_OK;
}

/* Splits that the net put in are not part of what a user reads. */
static ct_status add_net(ct_model *m, const ct_net *net, const weight_source *from)
{
    for (int l = 0; l < net->n_layer; l++) {
        const ct_layer *layer = net->layer[l];

        if (strcmp(layer->ops->type, "Split") == 0) continue;
        CT_TRY(add_layer(m, layer->name, strlen(layer->name)));
        m->layer[m->n_layer - 1].param = layer->param;
        for (int i = 0; i < layer->n_weight; i++) CT_TRY(add_weight(m, net, l, i, from));
    }
    return CT_OK;
}

ct_status ct_model_of_net(const ct_net *net, ct_storage *weights, ct_storage *learned,
                          ct_model **m_p)
{
    const weight_source from = { weights, learned };
    const char *name = (net->name != NULL) ? net->name : "";
    ct_model *m = NULL;
    ct_status status;

    CT_TRY(ct_net_check_weights(net));
    CT_TRY(model_create(name, &m));
    m->name = strdup(name);
    status = (m->name != NULL) ? add_net(m, net, &from)
                               : CT_FAIL(CT_ERR_NOMEM, "no memory for the weights of %s", name);
    if (status == CT_OK) status = ct_model_name_classes(m, net->class_name, net->n_class_name);
    if (status != CT_OK) {
        ct_model_close(m);
        return status;
    }
    *m_p = m;
    return CT_OK;
}

/* ---- weights in Caffe's HDF5 layout: /data/LAYER/INDEX. As in Caffe, a shared weight stands with
 * its owner only. */

static const char class_path[] = "/class_names";

/* HDF5 leaves out parts of a path that are empty or ".", so that "a//b" would come back as "a/b".
 * Whether the name has such ones. */
static bool has_lost_parts(const char *name)
{
    for (;; name++) {
        size_t n = strcspn(name, "/");

        if ((n == 0) || ((n == 1) && (*name == '.'))) return true;
        name += n;
        if (*name == '\0') return false;
    }
}

/* Such names stand in the file behind a mark, with %2F and %2E for slashes and points and %25 for
 * itself; and so do names that begin with the mark. Caffe would not find such layers again, either.
 */
static const char name_mark[] = "%00";

static void add_h5_name(ct_text *t, const char *name)
{
    if (!has_lost_parts(name) && (strncmp(name, name_mark, strlen(name_mark)) != 0)) {
        ct_text_add(t, "%s", name);
        return;
    }
    ct_text_add(t, "%s", name_mark);
    ct_h5_add_escaped(t, name);
}

/* The layer's name of name[0 .. n) of a file. */
static void add_layer_name(ct_text *t, const char *name, size_t n)
{
    static const char coded[][4] = { "%2F", "%2E", "%25" };
    size_t at = strlen(name_mark);

    if ((n < at) || (strncmp(name, name_mark, at) != 0)) {
        ct_text_add_bytes(t, name, n);
        return;
    }
    ct_text_add_bytes(t, "", 0); /* the text is there, whatever the name is */
    while (at < n) {
        int k = 0;

        while ((k < 3) && ((n - at < 3) || (strncmp(name + at, coded[k], 3) != 0))) k++;
        ct_text_add_bytes(t, (k < 3) ? &"/.%"[k] : name + at, 1);
        at += (k < 3) ? 3 : 1;
    }
}

/* /data/LAYER/INDEX; NULL without memory. */
static char *h5_path(const char *layer, int index)
{
    ct_text t = { 0 };

    ct_text_add(&t, "/data/");
    add_h5_name(&t, layer);
    ct_text_add(&t, "/%d", index);
    if (t.failed) ct_text_destroy(&t);
    return t.text;
}

static ct_status visit(void *ctx, const char *path)
{
    ct_model *m = ctx;
    ct_model_array *a;
    ct_shape shape;
    ct_text full = { 0 }, name = { 0 };
    ct_status status;
    size_t n;
    int index;

    if (!ct_model_split(path, &n, &index)) {
        CT_WARN("%s: /data/%s is no LAYER/INDEX of weights, left out", m->file, path);
        return CT_OK;
    }
    ct_text_add(&full, "/data/%s", path);
    if (full.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", m->file);
    status = ct_h5_get_shape(m->source, full.text, &shape);
    ct_text_destroy(&full);
    CT_TRY(status);
    add_layer_name(&name, path, n);
    status = name.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", m->file)
                         : ct_model_add(m, name.text, name.length, index, &shape, &a);
    ct_text_destroy(&name);
    return status;
}

static ct_status h5_open(ct_model *m)
{
    ct_h5_reader *r = NULL;

    CT_TRY(ct_h5_reader_create(m->file, NULL, &r));
    m->source = r;
    if (!ct_h5_has(r, "/data"))
        return CT_FAIL(
            CT_ERR_DATA, "%s: holds no weights (no group /data)%s", m->file,
            ct_h5_has(r, "/history")
                ? "; it is a solverstate, its weights are in the .caffemodel.h5 beside it"
                : "");
    if (ct_h5_has(r, class_path)) CT_TRY(ct_h5_get_text(r, class_path, &m->class_names));
    return ct_h5_visit(r, "/data", visit, m);
}

static ct_status h5_get(ct_model *m, int layer, int i, float *out)
{
    char *path = h5_path(m->layer[layer].name, i);
    ct_status status;

    if (path == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", m->file);
    status = ct_h5_get_floats(m->source, path,
                              ct_shape_count(&m->layer[layer].array[i].shape, 0, -1), out);
    free(path);
    return status;
}

static void h5_close(ct_model *m)
{
    ct_h5_reader_destroy(m->source);
}

static ct_status put(ct_h5_writer *w, const ct_model_layer *layer)
{
    for (int i = 0; i < layer->n_array; i++) {
        const ct_model_array *a = &layer->array[i];
        char *path;
        ct_status status;

        if (!a->present || a->shared) continue;
        path = h5_path(layer->name, i);
        if (path == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write weights");
        status = (a->data != NULL) ? ct_h5_put_floats(w, path, &a->shape, a->data)
                                   : ct_h5_put_stored(w, path, &a->shape, a->storage, a->from);
        free(path);
        CT_TRY(status);
    }
    return CT_OK;
}

static ct_status h5_write(const ct_model *m, const char *path, const char *provenance,
                          uint64_t *hash_p, int64_t *size_p)
{
    ct_h5_writer *w = NULL;
    ct_status status;

    CT_TRY(ct_h5_writer_create(false, &w));
    if (m->name != NULL) CT_TRY_GOTO(status, out, ct_h5_put_attribute(w, "net", m->name));
    if ((provenance != NULL) && (strlen(provenance) < 60000)) /* HDF5's attributes end at 64 KB */
        CT_TRY_GOTO(status, out, ct_h5_put_attribute(w, "provenance", provenance));
    if (m->class_names != NULL)
        CT_TRY_GOTO(status, out, ct_h5_put_text(w, class_path, m->class_names));
    for (int l = 0; l < m->n_layer; l++) CT_TRY_GOTO(status, out, put(w, &m->layer[l]));
    status = ct_h5_writer_finish(w, path, NULL, hash_p, size_p);
out:
    ct_h5_writer_destroy(w);
    return status;
}

const ct_model_format ct_model_h5 = { .name = "HDF5",
                                      .suffix = ".h5",
                                      .is = ct_h5_is_hdf5,
                                      .open = h5_open,
                                      .get = h5_get,
                                      .close = h5_close,
                                      .write = h5_write };
