/* Weights as NumPy's .npz: a zip file whose entry "LAYER/INDEX.npy" is an array. Written without
 * compression, read with or without (numpy.savez, numpy.savez_compressed). The .npy format: NumPy
 * Enhancement Proposal 1. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/snapshot/model.h"
#include "framework/snapshot/npy.h"
#include "framework/snapshot/zip.h"

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
    if ((status == CT_OK) && !ct_npy_read_head(head, size, npy))
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
    if (status == CT_OK) ct_npy_values(&npy, all + npy.head, out);
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
        uint8_t head[CT_NPY_HEAD_MAX];
        char *name;
        ct_status status;

        if (!a->present || a->shared) continue;
        name = ct_model_path("", layer->name, i, NPY_END);
        if (name == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write weights");
        status = ct_zip_put(z, name, head, ct_npy_write_head(&a->shape, head), a->data,
                            ct_shape_count(&a->shape, 0, -1) * (int64_t)sizeof(float));
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
