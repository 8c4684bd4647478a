/* Weights as NumPy's .npz: a zip file whose entry "LAYER/INDEX.npy" is an array. Written without
 * compression, read with or without (numpy.savez, numpy.savez_compressed). The .npy format: NumPy
 * Enhancement Proposal 1. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/snapshot/model.h"
#include "framework/snapshot/zip.h"
#include "framework/tensor/tensor.h"

enum { CT_NPY_HEAD_MAX = 1024 /* bytes of the longest head that is known */ };

typedef struct ct_npy {
    ct_shape shape;
    size_t head;  /* bytes in front of the values */
    size_t item;  /* 4 or 8 bytes a value         */
    bool fortran; /* the first index runs fastest */
} ct_npy;

static const char magic[] = "\x93NUMPY";
enum { MAGIC = 6 };

/* Behind "'key':" and blanks, or NULL. */
static const char *find_value(const char *dict, const char *key)
{
    const char *at = strstr(dict, key);

    if (at == NULL) return NULL;
    at += strlen(key);
    at += strspn(at, " ");
    if (*at != ':') return NULL;
    at++;
    return at + strspn(at, " ");
}

/* "(3, 4)", "(5,)", "()" */
static bool read_shape(const char *at, ct_shape *shape)
{
    memset(shape, 0, sizeof(*shape));
    if (*at++ != '(') return false;
    for (;;) {
        char *end;
        long long v;

        at += strspn(at, " ,");
        if (*at == ')') return ct_shape_is_valid(shape);
        if ((*at < '0') || (*at > '9') || (shape->ndim == CT_MAX_DIM)) return false;
        v = strtoll(at, &end, 10);
        if ((*end != ',') && (*end != ')')) return false;
        shape->dim[shape->ndim++] = v;
        at = end;
    }
}

static bool read_dict(const char *dict, ct_npy *npy)
{
    const char *type = find_value(dict, "'descr'");
    const char *order = find_value(dict, "'fortran_order'");
    const char *shape = find_value(dict, "'shape'");

    if ((type == NULL) || (order == NULL) || (shape == NULL)) return false;
    if (strncmp(type, "'<f4'", 5) == 0)
        npy->item = 4;
    else if (strncmp(type, "'<f8'", 5) == 0)
        npy->item = 8;
    else
        return false;
    npy->fortran = (strncmp(order, "True", 4) == 0);
    return (npy->fortran || (strncmp(order, "False", 5) == 0)) && read_shape(shape, &npy->shape);
}

/* The head at the start of `size` bytes; false where it is broken, or of values that are no
 *  little-endian floats. */
static bool npy_read_head(const uint8_t *bytes, size_t size, ct_npy *npy)
{
    char dict[CT_NPY_HEAD_MAX + 1];
    size_t start, length;

    if ((size < 12) || (memcmp(bytes, magic, MAGIC) != 0)) return false;
    length = bytes[8] | (size_t)bytes[9] << 8;
    start = 10;
    if (bytes[6] != 1) { /* versions 2 and 3 have four bytes of length */
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
        start = 12;
    }
    if ((start > size) || (length > size - start)) return false;
    memcpy(dict, bytes + start, length);
    dict[length] = '\0';
    npy->head = start + length;
    return read_dict(dict, npy);
}

static float value_at(const ct_npy *npy, const uint8_t *values, int64_t i)
{
    float f;
    double d;

    if (npy->item == 4) {
        memcpy(&f, values + 4 * i, sizeof(f));
        return f;
    }
    memcpy(&d, values + 8 * i, sizeof(d));
    return (float)d;
}

/* Values as floats, the last index fastest. */
static void npy_values(const ct_npy *npy, const uint8_t *values, float *out)
{
    int64_t n = ct_shape_count(&npy->shape, 0, -1), index[CT_MAX_DIM] = { 0 };

    for (int64_t i = 0; i < n; i++) {
        int64_t from = i;

        if (npy->fortran) {
            from = 0;
            for (int d = npy->shape.ndim - 1; d >= 0; d--)
                from = from * npy->shape.dim[d] + index[d];
            for (int d = npy->shape.ndim - 1; d >= 0; d--) { /* the next in our order */
                if (++index[d] < npy->shape.dim[d]) break;
                index[d] = 0;
            }
        }
        out[i] = value_at(npy, values, from);
    }
}

/* A head of float32 with room for CT_NPY_HEAD_MAX; returns its bytes. */
static int64_t npy_write_head(const ct_shape *shape, uint8_t *head)
{
    enum { START = 10, ALIGN = 64 };
    char dict[512];
    int n = snprintf(dict, sizeof(dict), "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    int total;

    for (int i = 0; i < shape->ndim; i++)
        n += snprintf(dict + n, sizeof(dict) - (size_t)n, "%" PRId64 "%s", shape->dim[i],
                      (i + 1 < shape->ndim) ? ", " : ((shape->ndim == 1) ? "," : ""));
    n += snprintf(dict + n, sizeof(dict) - (size_t)n, "), }");
    total = (START + n + 1 + ALIGN - 1) / ALIGN * ALIGN;
    memset(head, ' ', (size_t)total);
    memcpy(head, magic, MAGIC);
    head[6] = 1;
    head[7] = 0;
    head[8] = (uint8_t)((total - START) & 0xff);
    head[9] = (uint8_t)((total - START) >> 8);
    memcpy(head + START, dict, (size_t)n);
    head[total - 1] = '\n';
    return total;
}

ct_status ct_npz_put(ct_zip_writer *z, const char *name, const ct_shape *shape, const float *values)
{
    uint8_t head[CT_NPY_HEAD_MAX];

    return ct_zip_put(z, name, head, npy_write_head(shape, head), values,
                      ct_shape_count(shape, 0, -1) * (int64_t)sizeof(float));
}

/* ---- weights */

#define NPY_END ".npy"

static bool npz_is(const char *file)
{
    return ct_zip_is(file);
}

static ct_status entry_failed(const ct_model *m, const char *entry)
{
    return CT_FAIL(CT_ERR_DATA, "%s: %s is broken", m->file, entry);
}

static ct_status read_head(ct_model *m, const ct_zip_entry *e, ct_npy *npy)
{
    size_t size = (e->size < CT_NPY_HEAD_MAX) ? (size_t)e->size : CT_NPY_HEAD_MAX;
    uint8_t *head = malloc(size + 1);
    ct_status status = CT_ERR_NOMEM;

    if (head == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", m->file);
    status = ct_zip_read(m->source, e, head, size);
    if ((status == CT_OK) && !npy_read_head(head, size, npy))
        status =
            CT_FAIL(CT_ERR_DATA, "%s: %s is no array of float32 or float64 with the low byte first",
                    m->file, e->name);
    if ((status == CT_OK) &&
        (npy->head + (uint64_t)ct_shape_count(&npy->shape, 0, -1) * npy->item != e->size))
        status = CT_FAIL(CT_ERR_DATA, "%s: %s has shape %s, but %" PRIu64 " bytes of values",
                         m->file, e->name, ct_shape_str(&npy->shape).text,
                         (e->size > npy->head) ? e->size - npy->head : 0);
    free(head);
    return status;
}

static ct_status add_entry(ct_model *m, int k)
{
    const ct_zip_entry *e = ct_zip_at(m->source, k);
    size_t length = strlen(e->name), end = strlen(NPY_END), n;
    char *path;
    ct_npy npy;
    int index;
    bool fits;
    ct_model_array *a;

    fits = (length > end) && (strcmp(e->name + length - end, NPY_END) == 0);
    path = strndup(e->name, fits ? length - end : length);
    if (path == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", m->file);
    fits = fits && ct_model_split(path, &n, &index);
    free(path);
    if (!fits) {
        CT_WARN("%s: %s is no LAYER/INDEX.npy of weights, left out", m->file, e->name);
        return CT_OK;
    }
    CT_TRY(read_head(m, e, &npy));
    CT_TRY(ct_model_add(m, e->name, n, index, &npy.shape, &a));
    a->place = k;
    return CT_OK;
}

static ct_status npz_open(ct_model *m)
{
    ct_zip *z = NULL;

    CT_TRY(ct_zip_open(m->file, &z));
    m->source = z;
    for (int k = 0; k < ct_zip_count(z); k++) CT_TRY(add_entry(m, k));
    if (m->n_layer == 0)
        return CT_FAIL(CT_ERR_DATA, "%s: holds no weights (arrays named LAYER/INDEX)", m->file);
    return CT_OK;
}

static ct_status npz_get(ct_model *m, int layer, int i, float *out)
{
    const ct_model_array *a = &m->layer[layer].array[i];
    const ct_zip_entry *e = ct_zip_at(m->source, (int)a->place);
    uint8_t *all;
    ct_npy npy;
    ct_status status;

    CT_TRY(read_head(m, e, &npy));
    all = malloc((size_t)e->size + 1);
    if (all == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", m->file);
    status = ct_zip_read(m->source, e, all, (size_t)e->size);
    if ((status == CT_OK) && !ct_zip_sound(e, all)) status = entry_failed(m, e->name);
    if (status == CT_OK) npy_values(&npy, all + npy.head, out);
    free(all);
    return status;
}

static void npz_close(ct_model *m)
{
    ct_zip_close(m->source);
}

static ct_status put(ct_zip_writer *z, const ct_model_layer *layer)
{
    for (int i = 0; i < layer->n_array; i++) {
        const ct_model_array *a = &layer->array[i];
        char *name;
        ct_status status;

        if (!a->present || a->shared) continue;
        name = ct_model_path(layer->name, i, NPY_END);
        if (name == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write weights");
        status = ct_npz_put(z, name, &a->shape, a->data);
        free(name);
        CT_TRY(status);
    }
    return CT_OK;
}

static ct_status npz_write(const ct_model *m, const char *path, const char *provenance,
                           uint64_t *hash_p, int64_t *size_p)
{
    ct_zip_writer *z = NULL;
    ct_status status = CT_OK;

    (void)provenance; /* arrays only */
    CT_TRY(ct_zip_create(path, &z));
    for (int l = 0; (l < m->n_layer) && (status == CT_OK); l++) status = put(z, &m->layer[l]);
    return ct_zip_finish(z, status, hash_p, size_p);
}

const ct_model_format ct_model_npz = { .name = "NumPy",
                                       .suffix = ".npz",
                                       .is = npz_is,
                                       .open = npz_open,
                                       .get = npz_get,
                                       .close = npz_close,
                                       .write = npz_write };
