/* Weights in Caffe's HDF5 layout: /data/LAYER/INDEX. As in Caffe, a shared weight stands with its
 * owner only. */
#include <stdlib.h>
#include <string.h>

#include "framework/snapshot/h5.h"
#include "framework/snapshot/model.h"

static ct_status visit(void *ctx, const char *path)
{
    ct_model *m = ctx;
    ct_model_array *a;
    ct_shape shape;
    ct_text full = { 0 };
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
    return ct_model_add(m, path, n, index, &shape, &a);
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
    return ct_h5_visit(r, "/data", visit, m);
}

static ct_status h5_get(ct_model *m, int layer, int i, float *out)
{
    char *path = ct_model_path("/data/", m->layer[layer].name, i, "");
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
        path = ct_model_path("/data/", layer->name, i, "");
        if (path == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write weights");
        status = ct_h5_put_floats(w, path, &a->shape, a->data);
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
