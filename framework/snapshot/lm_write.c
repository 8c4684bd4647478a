/* A model of our names as .safetensors of Hugging Face's: the table of names, backwards. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/memory.h"
#include "framework/snapshot/lm_names.h"
#include "framework/snapshot/safetensors.h"

enum { MAX_LISTED = 8 };

static const ct_model_array *find_array(const ct_model *m, const char *layer, int array)
{
    int l = ct_model_find(m, layer);

    if ((l < 0) || (array >= m->layer[l].n_array)) return NULL;
    if (!m->layer[l].array[array].present || m->layer[l].array[array].shared) return NULL;
    return &m->layer[l].array[array];
}

static bool has(const ct_model *m, const char *layer)
{
    return find_array(m, layer, 0) != NULL;
}

ct_lm_family ct_lm_family_of(const ct_model *m)
{
    if (!has(m, "wte")) return CT_LM_NONE;
    if (has(m, "h0_attn_qkv") && has(m, "ln_f")) return CT_LM_GPT2;
    if (has(m, "h0_gate_up") && has(m, "norm_f")) return CT_LM_LLAMA;
    if (has(m, "h0_qkv") && has(m, "ln_emb")) return CT_LM_BERT;
    return CT_LM_NONE;
}

bool ct_lm_has_head(const ct_model *m)
{
    return (ct_model_find(m, "head") >= 0) || has(m, "mlm_dense");
}

/* ---- what becomes what */

typedef struct written {
    const ct_model_array *array;
    int64_t row, rows; /* of the array */
    ct_part_order order;
} written;

typedef struct lister {
    const ct_model *model;
    const ct_lm_naming *naming;
    const char *prefix;
    int n, capacity;
    ct_safetensors_entry *entry;
    written *from;   /* of each entry */
    ct_text missing; /* of ours: what such a model has and this one has not */
    int n_missing, n_used;
} lister;

static ct_status add_entry(lister *w, char *name, const ct_shape *shape, const written *from)
{
    if (w->n == w->capacity) {
        int capacity = (w->capacity > 0) ? 2 * w->capacity : 128;
        ct_safetensors_entry *entry = realloc(w->entry, (size_t)capacity * sizeof(*entry));
        written *more = NULL;

        if (entry != NULL) {
            w->entry = entry;
            more = realloc(w->from, (size_t)capacity * sizeof(*more));
        }
        if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the names of weights");
        w->from = more;
        w->capacity = capacity;
    }
    w->entry[w->n] = (ct_safetensors_entry){ .name = name, .shape = *shape };
    w->from[w->n++] = *from;
    return CT_OK;
}

/* Rows [*row_p, *row_p + *rows_p) of an array are part `part` of n_part. Queries have as many rows
 * as the projection behind attention reads columns; keys and values share the rest. */
static ct_status part_rows(const lister *w, const ct_lm_row *row, int block, int64_t all,
                           int64_t *row_p, int64_t *rows_p)
{
    ct_text name = { 0 };
    const ct_model_array *proj;
    int64_t q;

    *row_p = 0;
    *rows_p = all;
    if (row->n_part == 0) return CT_OK;
    *rows_p = all / row->n_part;
    *row_p = row->part * *rows_p;
    if ((row->n_part == 2) && (all % 2 == 0)) return CT_OK;
    CT_TRY(ct_lm_name("h%d_attn_proj", block, &name));
    proj = find_array(w->model, name.text, 0);
    ct_text_destroy(&name);
    q = ((proj != NULL) && (proj->shape.ndim == 2)) ? proj->shape.dim[1] : all / 3;
    if ((row->n_part != 3) || (q > all) || ((all - q) % 2 != 0))
        return CT_FAIL(CT_ERR_DATA, "%s: %" PRId64 " rows for \"%s\" of block %d are not %d parts",
                       w->model->file, all, row->theirs, block, row->n_part);
    *rows_p = (row->part == 0) ? q : (all - q) / 2;
    *row_p = (row->part == 0) ? 0 : q + (row->part - 1) * *rows_p;
    return CT_OK;
}

static ct_status name_entry(const lister *w, const ct_lm_row *row, int block, int array,
                            char **name_p)
{
    ct_text stem = { 0 }, name = { 0 };

    CT_TRY(ct_lm_name(row->theirs, block, &stem));
    ct_text_add(&name, "%s%s%s", row->bare ? "" : w->prefix, stem.text,
                (array == 0) ? ".weight" : ".bias");
    ct_text_destroy(&stem);
    if (name.failed) {
        ct_text_destroy(&name);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the names of weights");
    }
    *name_p = name.text;
    return CT_OK;
}

static ct_status add_array(lister *w, const ct_lm_row *row, int block, int array,
                           const ct_model_array *a)
{
    written from = { .array = a };
    ct_shape shape = a->shape;
    char *name = NULL;
    ct_status status;

    if ((array == 0) && (row->order == CT_PART_TRANSPOSED)) {
        if (shape.ndim != 2)
            return CT_FAIL(CT_ERR_DATA, "%s: \"%s\" of block %d has shape %s, expected two axes",
                           w->model->file, row->theirs, block, ct_shape_str(&shape).text);
        from.order = CT_PART_TRANSPOSED;
        shape = (ct_shape){ 2, { a->shape.dim[1], a->shape.dim[0] } };
    } else if (shape.ndim > 0) {
        CT_TRY(part_rows(w, row, block, a->shape.dim[0], &from.row, &from.rows));
        shape.dim[0] = from.rows;
    }
    CT_TRY(name_entry(w, row, block, array, &name));
    status = add_entry(w, name, &shape, &from);
    if (status != CT_OK) free(name);
    w->n_used += (row->part == 0) ? 1 : 0;
    return status;
}

/* found_p grows by the arrays that are there; those that must be and are not are listed. */
static ct_status add_row(lister *w, const ct_lm_row *row, int block, int *found_p)
{
    ct_text ours = { 0 };
    ct_status status = CT_OK;

    if (row->ours == NULL) return CT_OK;
    CT_TRY(ct_lm_name(row->ours, block, &ours));
    for (int array = 0; (array < 2) && (status == CT_OK); array++) {
        const ct_model_array *a =
            ((row->has | row->may) >> array & 1) ? find_array(w->model, ours.text, array) : NULL;

        if (a != NULL) {
            (*found_p)++;
            status = add_array(w, row, block, array, a);
        } else if (((row->has >> array & 1) != 0) && (row->part == 0)) {
            if (++w->n_missing <= MAX_LISTED) ct_text_add(&w->missing, " %s/%d", ours.text, array);
        }
    }
    ct_text_destroy(&ours);
    return status;
}

static bool has_block(const lister *w, int first, int last, int block)
{
    ct_text ours = { 0 };
    bool found = false;

    for (int r = first; (r < last) && !found; r++) {
        const char *pattern = w->naming->row[r].ours;

        found = (pattern != NULL) && (ct_lm_name(pattern, block, &ours) == CT_OK) &&
                (ct_model_find(w->model, ours.text) >= 0);
    }
    ct_text_destroy(&ours);
    return found;
}

static ct_status add_rows(lister *w)
{
    const ct_lm_naming *naming = w->naming;
    int last, found = 0;

    for (int r = 0; r < naming->n_row; r = last) {
        last = r + 1;
        if (strstr(naming->row[r].theirs, "%d") == NULL) {
            CT_TRY(add_row(w, &naming->row[r], 0, &found));
            continue;
        }
        while ((last < naming->n_row) && (strstr(naming->row[last].theirs, "%d") != NULL)) last++;
        for (int block = 0; has_block(w, r, last, block); block++)
            for (int k = r; k < last; k++) CT_TRY(add_row(w, &naming->row[k], block, &found));
    }
    return CT_OK;
}

/* Nothing of ours is left behind, and nothing that their loaders look for is missing. */
static ct_status check_whole(const lister *w)
{
    int n = 0;

    for (int l = 0; l < w->model->n_layer; l++)
        for (int i = 0; i < w->model->layer[l].n_array; i++)
            n += (w->model->layer[l].array[i].present && !w->model->layer[l].array[i].shared) ? 1
                                                                                              : 0;
    if (w->n_missing > 0)
        return CT_FAIL(CT_ERR_DATA, "%s: %d arrays of %s are not there:%s%s", w->model->file,
                       w->n_missing, w->naming->title, w->missing.text,
                       (w->n_missing > MAX_LISTED) ? " and more" : "");
    if (n != w->n_used)
        return CT_FAIL(
            CT_ERR_DATA,
            "%s: %d of its %d arrays have no name among those of %s; any other file name "
            "than model.safetensors keeps ours",
            w->model->file, n - w->n_used, n, w->naming->title);
    return CT_OK;
}

/* ---- values */

static ct_status put_transposed(const ct_model_array *a, ct_disk_file *d)
{
    int64_t rows = a->shape.dim[0], columns = a->shape.dim[1];
    float *turned = ct_mem_acquire((size_t)(rows * columns) * sizeof(*turned));

    if (turned == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " weights", rows * columns);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) turned[c * rows + r] = a->data[r * columns + c];
    ct_disk_add(d, turned, rows * columns * (int64_t)sizeof(*turned));
    ct_mem_release(turned);
    return CT_OK;
}

static ct_status put(void *ctx, int k, ct_disk_file *d)
{
    const lister *w = ctx;
    const written *from = &w->from[k];
    int64_t n = ct_shape_count(&w->entry[k].shape, 0, -1);
    int64_t row_size = (from->rows > 0) ? n / from->rows : 0;

    if (from->order == CT_PART_TRANSPOSED) return put_transposed(from->array, d);
    ct_disk_add(d, from->array->data + from->row * row_size, n * (int64_t)sizeof(float));
    return CT_OK;
}

static ct_status write_listed(lister *w, const char *path, uint64_t *hash_p, int64_t *size_p)
{
    /* transformers' loaders ask for this word */
    ct_safetensors_source from = { .metadata = json_pack("{s:s}", "format", "pt"),
                                   .n = w->n,
                                   .entry = w->entry,
                                   .put = put,
                                   .ctx = w };
    ct_status status = ct_safetensors_write(path, &from, hash_p, size_p);

    json_decref(from.metadata);
    return status;
}

ct_status ct_lm_write(const ct_model *m, const char *path, uint64_t *hash_p, int64_t *size_p)
{
    lister w = { .model = m, .naming = ct_lm_naming_hf((ct_lm_family)m->written_as) };
    ct_status status;

    /* their base models have no prefix; a BERT without a head is one */
    w.prefix = ((m->written_as == CT_LM_BERT) && !ct_lm_has_head(m)) ? "" : w.naming->prefix;
    status = add_rows(&w);
    if (status == CT_OK) status = check_whole(&w);
    if (status == CT_OK) status = write_listed(&w, path, hash_p, size_p);
    for (int k = 0; k < w.n; k++) free(w.entry[k].name);
    free(w.entry);
    free(w.from);
    ct_text_destroy(&w.missing);
    return status;
}
