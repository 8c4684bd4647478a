/* Weights in .safetensors, whole and in shards, and in GGUF: under our own names LAYER/INDEX, or
 * under others' of language models. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/text.h"
#include "framework/snapshot/hf_config.h"
#include "framework/snapshot/lm_names.h"
#include "framework/snapshot/model.h"
#include "framework/snapshot/safetensors.h"

typedef struct tensor_source {
    ct_tensor_set set;
    ct_weight_map map;
    json_t *metadata; /* of a .safetensors; NULL: none */
    ct_gguf *gguf;    /* NULL: it is no such file     */
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
    ct_gguf_close(t->gguf);
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

/* ---- others' names */

/* Own files of a model that came from elsewhere keep what that said. */
static ct_status keep_facts(ct_model *m, const tensor_source *t)
{
    const char *net = json_string_value(json_object_get(t->metadata, "net"));
    const char *config = json_string_value(json_object_get(t->metadata, "config"));
    const char *classes = json_string_value(json_object_get(t->metadata, "class_names"));

    if (config != NULL) m->config = json_loads(config, 0, NULL);
    if (((net != NULL) && ((m->name = strdup(net)) == NULL)) ||
        ((classes != NULL) && ((m->class_names = strdup(classes)) == NULL)))
        return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", m->file);
    return CT_OK;
}

/* Other models' tensors may have these names, too. */
static void check_type(const ct_model *m, const ct_lm_naming *naming)
{
    static const char *const known[] = { "gpt2", "llama", "mistral", "bert" };
    const char *type = json_string_value(json_object_get(m->config, "model_type"));

    for (int i = 0; i < 4; i++)
        if ((type == NULL) || (strcmp(type, known[i]) == 0)) return;
    CT_WARN("%s: config.json says model_type \"%.40s\", the names are those of %s: where the two "
            "compute otherwise results will differ",
            m->file, type, naming->title);
}

static ct_status open_hf(ct_model *m, tensor_source *t)
{
    static const int64_t no_heads[2] = { 0, 0 }; /* their q and k are not interleaved */
    const ct_lm_naming *naming = NULL;

    CT_TRY(ct_lm_naming_of(&t->set, &naming));
    if (naming == NULL)
        return CT_FAIL(CT_ERR_DATA,
                       "%s: holds no weights: its first tensor is \"%s\", expected LAYER/INDEX, or "
                       "the names of Hugging Face's GPT-2, Llama or BERT",
                       m->file, t->set.tensor[0].name);
    CT_TRY(ct_hf_config_read(m->file, &m->config));
    check_type(m, naming);
    return ct_weight_map_add_named(&t->map, &t->set, naming, no_heads, m);
}

static ct_status open_names(ct_model *m, tensor_source *t)
{
    CT_TRY(ct_tensor_set_sort(&t->set));
    if (t->set.n_tensor == 0) return CT_FAIL(CT_ERR_DATA, "%s: holds no tensors", m->file);
    if (!has_own_names(&t->set)) return open_hf(m, t);
    CT_TRY(keep_facts(m, t));
    return open_own(m, t);
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

/* ---- GGUF */

static ct_value_form form_of(uint32_t dtype)
{
    switch (dtype) {
    case CT_GGUF_DTYPE_F32:
        return CT_VALUES_F32;
    case CT_GGUF_DTYPE_F16:
        return CT_VALUES_F16;
    case CT_GGUF_DTYPE_BF16:
        return CT_VALUES_BF16;
    case CT_GGUF_DTYPE_Q4_0:
        return CT_VALUES_Q4_0;
    case CT_GGUF_DTYPE_Q4_1:
        return CT_VALUES_Q4_1;
    case CT_GGUF_DTYPE_Q8_0:
        return CT_VALUES_Q8_0;
    default:
        return CT_VALUES_OTHER;
    }
}

static ct_status add_gguf_tensor(tensor_source *t, const ct_gguf_tensor *from)
{
    ct_named_tensor to = { .form = form_of(from->dtype),
                           .shape = { .ndim = from->n_dim },
                           .data = from->data,
                           .size = from->bytes };
    char room[16];

    snprintf(to.type, sizeof(to.type), "%s", ct_gguf_dtype_name(from->dtype, room));
    for (int d = 0; d < from->n_dim; d++) to.shape.dim[d] = from->dim[from->n_dim - 1 - d];
    if (!ct_tensor_name_is_plain(from->name))
        return CT_FAIL(CT_ERR_DATA, "%s: the name of a tensor has control characters", t->set.file);
    return ct_tensor_set_add(&t->set, from->name, &to);
}

static ct_status gguf_family(const ct_gguf *g, ct_lm_family *family_p)
{
    static const char *const names[] = {
        [CT_LM_GPT2] = "gpt2", [CT_LM_LLAMA] = "llama", [CT_LM_BERT] = "bert"
    };
    char *architecture = NULL;
    ct_status status;

    CT_TRY(ct_gguf_text(g, "general.architecture", &architecture));
    *family_p = CT_LM_NONE;
    for (int f = CT_LM_GPT2; f <= CT_LM_BERT; f++)
        if (strcmp(architecture, names[f]) == 0) *family_p = (ct_lm_family)f;
    status = (*family_p != CT_LM_NONE)
                 ? CT_OK
                 : CT_FAIL(CT_ERR_DATA,
                           "%s: general.architecture is \"%.40s\"; weights of gpt2, llama and bert "
                           "are read",
                           g->path, architecture);
    free(architecture);
    return status;
}

/* llama.cpp splits large models over files, each with some of the tensors. */
static ct_status check_whole(const ct_gguf *g)
{
    const ct_gguf_value *v = ct_gguf_find(g, "split.count");
    int64_t n;

    if ((v == NULL) || (v->count != 1) || !ct_gguf_int(v, 0, &n) || (n < 2)) return CT_OK;
    return CT_FAIL(CT_ERR_DATA,
                   "%s: one of %" PRId64
                   " parts of a model; llama-gguf-split --merge makes one file "
                   "of them",
                   g->path, n);
}

static ct_status gguf_open(ct_model *m)
{
    ct_lm_family family = CT_LM_NONE;
    tensor_source *t = NULL;
    int64_t heads[2];

    CT_TRY(make_source(m, &t));
    CT_TRY(ct_gguf_open(m->file, &t->gguf));
    CT_TRY(check_whole(t->gguf));
    CT_TRY(gguf_family(t->gguf, &family));
    for (int64_t i = 0; i < t->gguf->n_tensor; i++) CT_TRY(add_gguf_tensor(t, &t->gguf->tensor[i]));
    CT_TRY(ct_tensor_set_check_overlap(&t->set, 0));
    CT_TRY(ct_tensor_set_sort(&t->set));
    CT_TRY(ct_hf_config_of_gguf(t->gguf, family, &m->config));
    ct_hf_config_heads(m->config, heads);
    if (ct_gguf_find(t->gguf, "general.name") != NULL)
        CT_TRY(ct_gguf_text(t->gguf, "general.name", &m->name));
    return ct_weight_map_add_named(&t->map, &t->set, ct_lm_naming_ggml(family), heads, m);
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
    if (m->class_names != NULL)
        json_object_set_new(all, "class_names", json_string(m->class_names));
    if (provenance != NULL) json_object_set_new(all, "provenance", json_string(provenance));
    if (m->config != NULL) {
        char *config = json_dumps(m->config, JSON_COMPACT | JSON_REAL_PRECISION(9));

        json_object_set_new(all, "config", json_string(config));
        free(config);
    }
    return all;
}

static ct_status list_own(const ct_model *m, ct_safetensors_entry *entry, own_entry *own, int *n_p)
{
    for (int l = 0; l < m->n_layer; l++) {
        for (int i = 0; i < m->layer[l].n_array; i++) {
            const ct_model_array *a = &m->layer[l].array[i];

            if (!a->present || a->shared) continue;
            entry[*n_p].name = ct_model_path(m->layer[l].name, i, "");
            if (entry[*n_p].name == NULL)
                return CT_FAIL(CT_ERR_NOMEM, "no memory to write weights");
            entry[*n_p].shape = a->shape;
            own[(*n_p)++].array = a;
        }
    }
    return CT_OK;
}

static ct_status write_own(const ct_model *m, const char *path, const char *provenance,
                           uint64_t *hash_p, int64_t *size_p)
{
    size_t most = (size_t)m->n_layer * CT_MAX_WEIGHT + 1;
    ct_safetensors_entry *entry = calloc(most, sizeof(*entry));
    own_entry *own = calloc(most, sizeof(*own));
    ct_safetensors_source from = { .entry = entry, .put = put_own, .ctx = own };
    ct_status status;

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

static ct_status safetensors_write(const ct_model *m, const char *path, const char *provenance,
                                   uint64_t *hash_p, int64_t *size_p)
{
    return (m->written_as != CT_LM_NONE) ? ct_lm_write(m, path, hash_p, size_p)
                                         : write_own(m, path, provenance, hash_p, size_p);
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
const ct_model_format ct_model_gguf = { .name = "GGUF",
                                        .suffix = ".gguf",
                                        .is = ct_gguf_is,
                                        .open = gguf_open,
                                        .get = tensors_get,
                                        .close = tensors_close };

bool ct_model_write_as_hf(ct_model *m)
{
    m->written_as = (int)ct_lm_family_of(m);
    return m->written_as != CT_LM_NONE;
}
