#include "framework/snapshot/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/base/text.h"

enum { LENGTH = 8 /* bytes of the header's length */ };
static const uint64_t MAX_HEADER = 100000000; /* what the format allows */

static const struct {
    const char *name;
    unsigned bytes;
    ct_value_form form;
} dtype_table[] = { { "F32", 4, CT_VALUES_F32 },   { "F16", 2, CT_VALUES_F16 },
                    { "BF16", 2, CT_VALUES_BF16 }, { "F64", 8, CT_VALUES_F64 },
                    { "I64", 8, CT_VALUES_OTHER }, { "I32", 4, CT_VALUES_OTHER },
                    { "I16", 2, CT_VALUES_OTHER }, { "I8", 1, CT_VALUES_OTHER },
                    { "U64", 8, CT_VALUES_OTHER }, { "U32", 4, CT_VALUES_OTHER },
                    { "U16", 2, CT_VALUES_OTHER }, { "U8", 1, CT_VALUES_OTHER },
                    { "BOOL", 1, CT_VALUES_OTHER } };
enum { N_DTYPE = (int)(sizeof(dtype_table) / sizeof(dtype_table[0])) };

/* ---- which files */

/* The first bytes, as many as there are. */
static size_t read_start(const char *file, uint8_t *start, size_t n)
{
    FILE *f = ct_file_open_stream(file);
    size_t got;

    if (f == NULL) return 0;
    got = fread(start, 1, n, f);
    fclose(f);
    return got;
}

bool ct_safetensors_is(const char *file)
{
    uint8_t start[LENGTH + 1];

    if (ct_text_ends_with(file, ".safetensors")) return true;
    return (read_start(file, start, sizeof(start)) == sizeof(start)) && (start[LENGTH] == '{') &&
           (ct_little_endian(start, LENGTH) <= MAX_HEADER);
}

bool ct_safetensors_is_index(const char *file)
{
    char start[64];
    size_t n = read_start(file, (uint8_t *)start, sizeof(start) - 1), at;

    start[n] = '\0';
    at = strspn(start, " \t\r\n");
    return start[at] == '{';
}

/* ---- the header */

typedef struct header {
    ct_tensor_set *set;
    const char *path;
    const uint8_t *data; /* behind the header */
    uint64_t size;
} header;

static ct_status bad_tensor(const header *h, const char *name, const char *what)
{
    return CT_FAIL(CT_ERR_DATA, "%s: tensor \"%s\": %s", h->path, name, what);
}

static ct_status read_dtype(const header *h, const char *name, const json_t *j, int *d_p)
{
    const char *dtype = json_string_value(json_object_get(j, "dtype"));

    for (int d = 0; (dtype != NULL) && (d < N_DTYPE); d++) {
        if (strcmp(dtype, dtype_table[d].name) != 0) continue;
        *d_p = d;
        return CT_OK;
    }
    if (dtype == NULL) return bad_tensor(h, name, "expected a text as its dtype");
    return CT_FAIL(CT_ERR_DATA,
                   "%s: tensor \"%s\" has the dtype %.20s, which is not known: F32, F16, BF16, F64 "
                   "are weights, I8 to I64, U8 to U64 and BOOL are left out",
                   h->path, name, dtype);
}

static ct_status read_shape(const header *h, const char *name, const json_t *j, ct_shape *shape)
{
    const json_t *dims = json_object_get(j, "shape");

    if (!json_is_array(dims)) return bad_tensor(h, name, "expected a list as its shape");
    if (json_array_size(dims) > CT_MAX_DIM)
        return CT_FAIL(CT_ERR_DATA, "%s: tensor \"%s\" has %zu axes, at most %d are known", h->path,
                       name, json_array_size(dims), CT_MAX_DIM);
    *shape = (ct_shape){ .ndim = (int)json_array_size(dims) };
    for (int i = 0; i < shape->ndim; i++) {
        const json_t *dim = json_array_get(dims, (size_t)i);

        if (!json_is_integer(dim) || (json_integer_value(dim) < 0))
            return bad_tensor(h, name, "its shape has what is no length of an axis");
        shape->dim[i] = json_integer_value(dim);
    }
    if (!ct_shape_is_valid(shape)) return bad_tensor(h, name, "its shape is too large to be");
    return CT_OK;
}

static ct_status read_range(const header *h, const char *name, const json_t *j, uint64_t *begin_p,
                            uint64_t *end_p)
{
    const json_t *range = json_object_get(j, "data_offsets");
    const json_t *begin = json_array_get(range, 0), *end = json_array_get(range, 1);

    if ((json_array_size(range) != 2) || !json_is_integer(begin) || !json_is_integer(end) ||
        (json_integer_value(begin) < 0) || (json_integer_value(end) < json_integer_value(begin)))
        return bad_tensor(h, name, "expected data_offsets with the first byte and the end");
    *begin_p = (uint64_t)json_integer_value(begin);
    *end_p = (uint64_t)json_integer_value(end);
    if (*end_p > h->size)
        return CT_FAIL(CT_ERR_DATA,
                       "%s: tensor \"%s\" ends at byte %" PRIu64
                       " of the data, of which the file has %" PRIu64,
                       h->path, name, *end_p, h->size);
    return CT_OK;
}

static ct_status read_tensor(const header *h, const char *name, const json_t *j)
{
    ct_named_tensor t = { .name = NULL };
    uint64_t begin = 0, end = 0, want;
    int d = 0;

    if (!ct_tensor_name_is_plain(name))
        return CT_FAIL(CT_ERR_DATA,
                       "%s: the name of a tensor is empty, longer than 512 bytes, "
                       "or has control characters",
                       h->path);
    if (!json_is_object(j)) return bad_tensor(h, name, "expected an object");
    CT_TRY(read_dtype(h, name, j, &d));
    CT_TRY(read_shape(h, name, j, &t.shape));
    CT_TRY(read_range(h, name, j, &begin, &end));
    /* a valid shape has less than 2^62 values, one whose bytes overflow is in no file */
    want = (uint64_t)ct_shape_count(&t.shape, 0, -1);
    if ((want > h->size) || (want * dtype_table[d].bytes != end - begin))
        return CT_FAIL(CT_ERR_DATA,
                       "%s: tensor \"%s\" has %" PRIu64 " bytes, its shape %s of %s wants %" PRIu64
                       " values of %u",
                       h->path, name, end - begin, ct_shape_str(&t.shape).text, dtype_table[d].name,
                       want, dtype_table[d].bytes);
    t.form = dtype_table[d].form;
    snprintf(t.type, sizeof(t.type), "%s", dtype_table[d].name);
    t.data = h->data + begin;
    t.size = end - begin;
    return ct_tensor_set_add(h->set, name, &t);
}

static ct_status read_tensors(const header *h, json_t *all, json_t **metadata_p)
{
    int first = h->set->n_tensor;
    uint64_t sum = 0;
    const char *name;
    json_t *j;

    json_object_foreach(all, name, j)
    {
        if (strcmp(name, "__metadata__") != 0) CT_TRY(read_tensor(h, name, j));
    }
    CT_TRY(ct_tensor_set_check_overlap(h->set, first));
    for (int i = first; i < h->set->n_tensor; i++) sum += h->set->tensor[i].size;
    if (sum != h->size)
        return CT_FAIL(CT_ERR_DATA,
                       "%s: %" PRIu64 " of its %" PRIu64 " bytes of data belong to no "
                       "tensor",
                       h->path, h->size - sum, h->size);
    if (metadata_p != NULL) *metadata_p = json_incref(json_object_get(all, "__metadata__"));
    return CT_OK;
}

ct_status ct_safetensors_read(const char *path, ct_tensor_set *s, json_t **metadata_p)
{
    const ct_file_map *map = NULL;
    header h = { .set = s, .path = path };
    json_error_t error;
    uint64_t length;
    json_t *all;
    ct_status status;

    CT_TRY(ct_tensor_set_map(s, path, &map));
    if (map->size < LENGTH)
        return CT_FAIL(CT_ERR_DATA,
                       "%s: a safetensors file begins with a length of 8 bytes, this "
                       "one has %" PRId64,
                       path, map->size);
    length = ct_little_endian(map->data, LENGTH);
    if (length > (uint64_t)map->size - LENGTH)
        return CT_FAIL(CT_ERR_DATA, "%s: a header of %" PRIu64 " bytes in a file of %" PRId64, path,
                       length, map->size);
    if (length > MAX_HEADER)
        return CT_FAIL(CT_ERR_DATA,
                       "%s: a header of %" PRIu64 " bytes, at most %" PRIu64 " are read", path,
                       length, MAX_HEADER);
    h.data = map->data + LENGTH + length;
    h.size = (uint64_t)map->size - LENGTH - length;
    all = json_loadb((const char *)map->data + LENGTH, (size_t)length, JSON_REJECT_DUPLICATES,
                     &error);
    if (!json_is_object(all)) {
        json_decref(all);
        return CT_FAIL(CT_ERR_DATA, "%s: the header is no JSON object: %s", path,
                       (all == NULL) ? error.text : "it is another value");
    }
    status = read_tensors(&h, all, metadata_p);
    json_decref(all);
    return status;
}

/* ---- shards */

static ct_status read_shard(const char *index, const char *name, ct_tensor_set *s)
{
    size_t n = (size_t)(ct_path_base(index) - index);
    ct_text path = { 0 };
    ct_status status;

    /* what is said in the index may not lead elsewhere */
    if (!ct_tensor_name_is_plain(name) || (strchr(name, '/') != NULL) || (strcmp(name, ".") == 0) ||
        (strcmp(name, "..") == 0))
        return CT_FAIL(CT_ERR_DATA, "%s: weight_map names a shard that is no file beside it",
                       index);
    ct_text_add_bytes(&path, index, n);
    ct_text_add(&path, "%s", name);
    status = path.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", index)
                         : ct_safetensors_read(path.text, s, NULL);
    ct_text_destroy(&path);
    return status;
}

/* Each shard once, whatever the order of the names. */
static ct_status read_shards(const char *index, json_t *map, ct_tensor_set *s)
{
    json_t *seen = json_object(), *file;
    ct_status status = CT_OK;
    const char *name;

    json_object_foreach(map, name, file)
    {
        if (status != CT_OK) break;
        if (!json_is_string(file))
            status = CT_FAIL(CT_ERR_DATA,
                             "%s: weight_map: expected the name of a file for "
                             "\"%.100s\"",
                             index, name);
        else if (json_object_get(seen, json_string_value(file)) == NULL)
            status = (json_object_set(seen, json_string_value(file), file) == 0)
                         ? read_shard(index, json_string_value(file), s)
                         : CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", index);
    }
    json_decref(seen);
    return status;
}

static ct_status check_complete(const char *index, json_t *map, ct_tensor_set *s)
{
    const char *name;
    json_t *file;

    CT_TRY(ct_tensor_set_sort(s));
    json_object_foreach(map, name, file)
    {
        if (ct_tensor_set_find(s, name) < 0)
            return CT_FAIL(CT_ERR_DATA, "%s: the shard %s does not hold \"%.100s\"", index,
                           json_string_value(file), name);
    }
    return CT_OK;
}

ct_status ct_safetensors_read_index(const char *path, ct_tensor_set *s)
{
    json_error_t error;
    char *text = NULL;
    size_t size = 0;
    json_t *all, *map;
    ct_status status;

    CT_TRY(ct_settings_read(path, &text, &size));
    all = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    free(text);
    map = json_object_get(all, "weight_map");
    if (all == NULL)
        status = CT_FAIL(CT_ERR_DATA, "%s:%d: no JSON: %s", path, error.line, error.text);
    else if (!json_is_object(map) || (json_object_size(map) == 0))
        status =
            CT_FAIL(CT_ERR_DATA, "%s: JSON, but no index of shards: it has no weight_map", path);
    else
        status = read_shards(path, map, s);
    if (status == CT_OK) status = check_complete(path, map, s);
    json_decref(all);
    return status;
}

/* ---- writing */

static json_t *describe(const ct_safetensors_entry *e, int64_t *at)
{
    json_t *dims = json_array();
    int64_t begin = *at;

    for (int i = 0; i < e->shape.ndim; i++)
        json_array_append_new(dims, json_integer(e->shape.dim[i]));
    *at += ct_shape_count(&e->shape, 0, -1) * (int64_t)sizeof(float);
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", dims, "data_offsets",
                     (json_int_t)begin, (json_int_t)*at);
}

/* The header as text, for free(); NULL without memory, or where a name is no UTF-8. */
static char *make_header(const ct_safetensors_source *from)
{
    json_t *all = json_object();
    int64_t at = 0;
    bool ok = true;
    char *text;

    if (from->metadata != NULL) ok = json_object_set(all, "__metadata__", from->metadata) == 0;
    for (int k = 0; k < from->n; k++)
        ok = (json_object_set_new(all, from->entry[k].name, describe(&from->entry[k], &at)) == 0) &&
             ok;
    text = ok ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    return text;
}

/* What is written can be read again. */
static ct_status check_names(const char *path, const ct_safetensors_source *from)
{
    for (int k = 0; k < from->n; k++)
        if (!ct_tensor_name_is_plain(from->entry[k].name))
            return CT_FAIL(CT_ERR_DATA,
                           "%s: a tensor cannot be called \"%.100s\" there: a name has 1 to 512 "
                           "bytes, and no control characters",
                           path, from->entry[k].name);
    return CT_OK;
}

ct_status ct_safetensors_write(const char *path, const ct_safetensors_source *from,
                               uint64_t *hash_p, int64_t *size_p)
{
    static const char blanks[LENGTH] = "        ";
    uint8_t length[LENGTH];
    ct_status status = CT_OK;
    ct_disk_file d;
    size_t n, fill;
    char *text;

    CT_TRY(check_names(path, from));
    text = make_header(from);
    if (text == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for the header, or a name that is no UTF-8",
                       path);
    n = strlen(text);
    fill = (LENGTH - n % LENGTH) % LENGTH;
    for (int i = 0; i < LENGTH; i++) length[i] = (uint8_t)((n + fill) >> (8 * i));
    ct_disk_open(&d, path, 0);
    ct_disk_add(&d, length, LENGTH);
    ct_disk_add(&d, text, (int64_t)n);
    ct_disk_add(&d, blanks, (int64_t)fill);
    free(text);
    for (int k = 0; (k < from->n) && (status == CT_OK); k++) status = from->put(from->ctx, k, &d);
    if (status == CT_OK) return ct_disk_finish(&d, path, hash_p, size_p);
    ct_disk_drop(&d, path);
    return status;
}
