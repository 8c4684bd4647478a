/* Weights in .safetensors, whole and in shards: our own names LAYER/INDEX. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/text.h"
#include "framework/snapshot/lm_names.h"
#include "framework/snapshot/model.h"
#include "framework/snapshot/safetensors.h"

enum { MAX_LISTED = 6 };

typedef struct tensor_source {
    ct_tensor_set set;
    ct_weight_map map;
    json_t *metadata; /* of the file; NULL: none */
} tensor_source;

static ct_status make_source(ct_model *m, tensor_source **t_p)
{
    tensor_source *t = calloc(1, sizeof(*t));

    if (t == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", m->file);
    t->set.file = m->file;
    m->source = t;
    *t_p = t;
    return CT_OK;
}

static void tensors_close(ct_model *m)
{
    tensor_source *t = m->source;

    if (t == NULL) return;
    json_decref(t->metadata);
    ct_weight_map_destroy(&t->map);
    ct_tensor_set_destroy(&t->set);
    free(t);
}

static ct_status tensors_get(ct_model *m, int layer, int i, float *out)
{
    const tensor_source *t = m->source;

    return ct_weight_map_read(&t->map, &t->set, m->layer[layer].array[i].place, out);
}

/* ---- our own names */

static bool has_own_names(const ct_tensor_set *s)
{
    size_t n;
    int index;

    for (int i = 0; i < s->n_tensor; i++)
        if (ct_model_split(s->tensor[i].name, &n, &index)) return true;
    return false;
}

static ct_status open_own(ct_model *m, tensor_source *t)
{
    for (int i = 0; i < t->set.n_tensor; i++) {
        const char *name = t->set.tensor[i].name;
        size_t n;
        int index;

        if (ct_model_split(name, &n, &index))
            CT_TRY(ct_weight_map_add_own(&t->map, &t->set, i, m, n, index));
        else
            CT_WARN("%s: %s is no LAYER/INDEX of weights, left out", m->file, name);
    }
    return CT_OK;
}

static ct_status open_names(ct_model *m, tensor_source *t)
{
    const char *net = json_string_value(json_object_get(t->metadata, "net"));

    CT_TRY(ct_tensor_set_sort(&t->set));
    if ((net != NULL) && ((m->name = strdup(net)) == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", m->file);
    if (t->set.n_tensor == 0) return CT_FAIL(CT_ERR_DATA, "%s: holds no tensors", m->file);
    if (has_own_names(&t->set)) return open_own(m, t);
    return CT_FAIL(CT_ERR_DATA, "%s: holds no weights (tensors named LAYER/INDEX)", m->file);
}

static ct_status safetensors_open(ct_model *m)
{
    tensor_source *t = NULL;

    CT_TRY(make_source(m, &t));
    CT_TRY(ct_safetensors_read(m->file, &t->set, &t->metadata));
    return open_names(m, t);
}

static ct_status index_open(ct_model *m)
{
    tensor_source *t = NULL;

    CT_TRY(make_source(m, &t));
    CT_TRY(ct_safetensors_read_index(m->file, &t->set));
    return open_names(m, t);
}

/* ---- writing */

typedef struct own_entry { /* in the order of the entries */
    const ct_model_array *array;
} own_entry;

static ct_status put_own(void *ctx, int k, ct_disk_file *d)
{
    const ct_model_array *a = ((const own_entry *)ctx)[k].array;
    const ct_disk_floats v = { .data = a->data, .storage = a->storage, .from = a->from };

    return ct_disk_add_floats(d, &v, ct_shape_count(&a->shape, 0, -1));
}

static json_t *own_metadata(const ct_model *m, const char *provenance)
{
    json_t *all = json_pack("{s:s}", "format", "cortado");

    if (m->name != NULL) json_object_set_new(all, "net", json_string(m->name));
    if (provenance != NULL) json_object_set_new(all, "provenance", json_string(provenance));
    return all;
}

static ct_status list_own(const ct_model *m, ct_safetensors_entry *entry, own_entry *own, int *n_p)
{
    for (int l = 0; l < m->n_layer; l++) {
        for (int i = 0; i < m->layer[l].n_array; i++) {
            const ct_model_array *a = &m->layer[l].array[i];

            if (!a->present || a->shared) continue;
            entry[*n_p].name = ct_model_path("", m->layer[l].name, i, "");
            if (entry[*n_p].name == NULL)
                return CT_FAIL(CT_ERR_NOMEM, "no memory to write weights");
            entry[*n_p].shape = a->shape;
            own[(*n_p)++].array = a;
        }
    }
    return CT_OK;
}

static ct_status safetensors_write(const ct_model *m, const char *path, const char *provenance,
                                   uint64_t *hash_p, int64_t *size_p)
{
    size_t most = (size_t)m->n_layer * CT_MAX_WEIGHT + 1;
    ct_safetensors_entry *entry = calloc(most, sizeof(*entry));
    own_entry *own = calloc(most, sizeof(*own));
    ct_safetensors_source from = { .entry = entry, .put = put_own, .ctx = own };
    ct_status status = CT_ERR_NOMEM;

    if ((entry != NULL) && (own != NULL))
        status = list_own(m, entry, own, &from.n);
    else
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    from.metadata = own_metadata(m, provenance);
    if (status == CT_OK) status = ct_safetensors_write(path, &from, hash_p, size_p);
    json_decref(from.metadata);
    for (int k = 0; k < from.n; k++) free(entry[k].name);
    free(entry);
    free(own);
    return status;
}

const ct_model_format ct_model_safetensors = { .name = "safetensors",
                                               .suffix = ".safetensors",
                                               .is = ct_safetensors_is,
                                               .open = safetensors_open,
                                               .get = tensors_get,
                                               .close = tensors_close,
                                               .write = safetensors_write };
const ct_model_format ct_model_shards = { .name = "safetensors in shards",
                                          .suffix = ".safetensors.index.json",
                                          .is = ct_safetensors_is_index,
                                          .open = index_open,
                                          .get = tensors_get,
                                          .close = tensors_close };
