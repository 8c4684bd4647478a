#include "framework/base/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"

enum {
    MAX_KEY = 65535, /* bytes of a key, by the format        */
    MAX_NAME = 1024, /* of a tensor's name; the format has 64 */
    MIN_VALUE = 13,  /* bytes: length, type, one byte        */
    MIN_TENSOR = 24  /* length, dimensions, type, offset     */
};

static const char magic[4] = "GGUF";

/* bytes of an element; 0: as long as it says itself */
static const uint8_t item_size[CT_GGUF_N_TYPE] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

/* as ggml has them: elements of a block, bytes of a block */
static const struct {
    uint32_t dtype;
    const char *name;
    uint32_t block, bytes;
} dtypes[] = {
    { CT_GGUF_DTYPE_F32, "F32", 1, 4 },
    { CT_GGUF_DTYPE_F16, "F16", 1, 2 },
    { CT_GGUF_DTYPE_BF16, "BF16", 1, 2 },
    { CT_GGUF_DTYPE_Q4_0, "Q4_0", 32, 18 },
    { CT_GGUF_DTYPE_Q4_1, "Q4_1", 32, 20 },
    { CT_GGUF_DTYPE_Q5_0, "Q5_0", 32, 22 },
    { CT_GGUF_DTYPE_Q5_1, "Q5_1", 32, 24 },
    { CT_GGUF_DTYPE_Q8_0, "Q8_0", 32, 34 },
    { 9, "Q8_1", 32, 36 },
    { 10, "Q2_K", 256, 84 },
    { 11, "Q3_K", 256, 110 },
    { 12, "Q4_K", 256, 144 },
    { 13, "Q5_K", 256, 176 },
    { 14, "Q6_K", 256, 210 },
    { 15, "Q8_K", 256, 292 },
    { 24, "I8", 1, 1 },
    { 25, "I16", 1, 2 },
    { 26, "I32", 1, 4 },
    { 27, "I64", 1, 8 },
    { 28, "F64", 1, 8 },
};

enum { N_DTYPE = sizeof(dtypes) / sizeof(dtypes[0]) };

static int find_dtype(uint32_t dtype)
{
    for (int i = 0; i < N_DTYPE; i++)
        if (dtypes[i].dtype == dtype) return i;
    return -1;
}

const char *ct_gguf_dtype_name(uint32_t dtype, char room[16])
{
    int i = find_dtype(dtype);

    if (i >= 0) return dtypes[i].name;
    snprintf(room, 16, "type %u", dtype);
    return room;
}

/* ---- reading: `at` walks over the file */

typedef struct walk {
    const ct_gguf *g;
    uint64_t at, end;
    const char *what; /* the key or tensor that is read; "": none yet */
} walk;

static ct_status cut(const walk *w)
{
    return CT_FAIL(CT_ERR_DATA, "%s: ends within %s%s", w->g->path,
                   (w->what[0] != '\0') ? "" : "its head", w->what);
}

static ct_status take(walk *w, int bytes, uint64_t *v_p)
{
    if (!ct_range_fits(w->at, 1, (uint64_t)bytes, w->end)) return cut(w);
    *v_p = ct_little_endian(w->g->map.data + w->at, bytes);
    w->at += (uint64_t)bytes;
    return CT_OK;
}

/* The length of a string; `at` then stands behind the string. */
static ct_status take_string(walk *w, const uint8_t **text_p, uint64_t *length_p)
{
    uint64_t n;

    CT_TRY(take(w, 8, &n));
    if (!ct_range_fits(w->at, n, 1, w->end)) return cut(w);
    *text_p = w->g->map.data + w->at;
    *length_p = n;
    w->at += n;
    return CT_OK;
}

/* A key or a name, malloc'ed: at most `most` bytes, none of them 0. */
static ct_status take_name(walk *w, uint64_t most, const char *kind, char **name_p)
{
    const uint8_t *text;
    uint64_t n;

    CT_TRY(take_string(w, &text, &n));
    if ((n == 0) || (n > most) || (memchr(text, '\0', (size_t)n) != NULL))
        return CT_FAIL(CT_ERR_DATA, "%s: a %s behind \"%s\" is no name of 1 to %llu bytes",
                       w->g->path, kind, w->what, (unsigned long long)most);
    *name_p = strndup((const char *)text, (size_t)n);
    return (*name_p != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", w->g->path);
}

static ct_status take_type(walk *w, ct_gguf_type *type_p)
{
    uint64_t type;

    CT_TRY(take(w, 4, &type));
    if (type >= CT_GGUF_N_TYPE)
        return CT_FAIL(CT_ERR_DATA, "%s: %s has a value of unknown type %llu", w->g->path, w->what,
                       (unsigned long long)type);
    *type_p = (ct_gguf_type)type;
    return CT_OK;
}

/* Steps over the elements. */
static ct_status skip_items(walk *w, const ct_gguf_value *v)
{
    const uint8_t *text;
    uint64_t length;

    if (v->item != CT_GGUF_STRING) {
        if (!ct_range_fits(w->at, v->count, item_size[v->item], w->end)) return cut(w);
        w->at += v->count * item_size[v->item];
        return CT_OK;
    }
    for (uint64_t i = 0; i < v->count; i++) CT_TRY(take_string(w, &text, &length));
    return CT_OK;
}

static ct_status take_value(walk *w, ct_gguf_value *v)
{
    CT_TRY(take_name(w, MAX_KEY, "key", &v->key));
    w->what = v->key;
    CT_TRY(take_type(w, &v->type));
    v->item = v->type;
    v->count = 1;
    if (v->type == CT_GGUF_ARRAY) {
        CT_TRY(take_type(w, &v->item));
        if (v->item == CT_GGUF_ARRAY)
            return CT_FAIL(CT_ERR_DATA, "%s: %s is an array of arrays, which is not read",
                           w->g->path, v->key);
        CT_TRY(take(w, 8, &v->count));
    }
    v->data = w->g->map.data + w->at;
    return skip_items(w, v);
}

/* offset_p: from the data's start, which is known later. */
static ct_status take_tensor(walk *w, ct_gguf_tensor *t, uint64_t *offset_p)
{
    uint64_t n_dim, type;

    CT_TRY(take_name(w, MAX_NAME, "tensor", &t->name));
    w->what = t->name;
    CT_TRY(take(w, 4, &n_dim));
    if ((n_dim == 0) || (n_dim > CT_GGUF_MAX_DIM))
        return CT_FAIL(CT_ERR_DATA, "%s: tensor %s has %llu dimensions, 1 to %d are allowed",
                       w->g->path, t->name, (unsigned long long)n_dim, CT_GGUF_MAX_DIM);
    t->n_dim = (int)n_dim;
    t->count = 1;
    for (int i = 0; i < CT_GGUF_MAX_DIM; i++) {
        uint64_t dim = 1;

        if (i < t->n_dim) CT_TRY(take(w, 8, &dim));
        if ((dim == 0) || (dim > (uint64_t)(INT64_MAX / t->count)))
            return CT_FAIL(CT_ERR_DATA,
                           "%s: tensor %s has dimension %llu, and so no number of "
                           "elements in 1..2^63 - 1",
                           w->g->path, t->name, (unsigned long long)dim);
        t->dim[i] = (int64_t)dim;
        t->count *= t->dim[i];
    }
    CT_TRY(take(w, 4, &type));
    t->dtype = (uint32_t)type;
    return take(w, 8, offset_p);
}

/* ---- where tensors lie */

static ct_status place(const ct_gguf *g, ct_gguf_tensor *t, uint64_t data, uint64_t offset,
                       uint64_t alignment)
{
    uint64_t end = (uint64_t)g->map.size;
    int d = find_dtype(t->dtype);
    char room[16];

    if (offset % alignment != 0)
        return CT_FAIL(CT_ERR_DATA, "%s: tensor %s begins at %llu, no multiple of %llu", g->path,
                       t->name, (unsigned long long)offset, (unsigned long long)alignment);
    if ((d >= 0) && (t->dim[0] % dtypes[d].block != 0))
        return CT_FAIL(CT_ERR_DATA,
                       "%s: tensor %s of %s has rows of %lld, no multiple of its blocks of %u",
                       g->path, t->name, dtypes[d].name, (long long)t->dim[0], dtypes[d].block);
    if ((data > end) || !ct_range_fits(offset, 1, 1, end - data) ||
        ((d >= 0) &&
         !ct_range_fits(data + offset, (uint64_t)t->count / dtypes[d].block, dtypes[d].bytes, end)))
        return CT_FAIL(CT_ERR_DATA,
                       "%s: tensor %s, %lld elements of %s, lies beyond the file's end", g->path,
                       t->name, (long long)t->count, ct_gguf_dtype_name(t->dtype, room));
    t->data = g->map.data + data + offset;
    t->bytes = (d >= 0) ? (uint64_t)t->count / dtypes[d].block * dtypes[d].bytes : 0;
    return CT_OK;
}

static ct_status find_alignment(const ct_gguf *g, uint64_t *alignment_p)
{
    const ct_gguf_value *v = ct_gguf_find(g, "general.alignment");
    int64_t n = 32;

    if ((v != NULL) && ((v->count != 1) || !ct_gguf_int(v, 0, &n) || (n < 8) || (n > 1 << 20) ||
                        ((n & (n - 1)) != 0)))
        return CT_FAIL(CT_ERR_DATA, "%s: general.alignment is no power of two in 8..2^20", g->path);
    *alignment_p = (uint64_t)n;
    return CT_OK;
}

static int by_text(const void *pa, const void *pb)
{
    const char *const *a = pa, *const *b = pb;

    return strcmp(*a, *b);
}

/* kind: "key" or "tensor" */
static ct_status check_unique(const ct_gguf *g, const char **name, int64_t n, const char *kind)
{
    qsort(name, (size_t)n, sizeof(*name), by_text);
    for (int64_t i = 1; i < n; i++)
        if (strcmp(name[i - 1], name[i]) == 0)
            return CT_FAIL(CT_ERR_DATA, "%s: %s %s is there twice", g->path, kind, name[i]);
    return CT_OK;
}

static ct_status check_names(const ct_gguf *g)
{
    int64_t most = (g->n_value > g->n_tensor) ? g->n_value : g->n_tensor;
    const char **name = malloc((size_t)(most + 1) * sizeof(*name));
    ct_status status;

    if (name == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", g->path);
    for (int64_t i = 0; i < g->n_value; i++) name[i] = g->value[i].key;
    status = check_unique(g, name, g->n_value, "key");
    for (int64_t i = 0; i < g->n_tensor; i++) name[i] = g->tensor[i].name;
    if (status == CT_OK) status = check_unique(g, name, g->n_tensor, "tensor");
    free(name);
    return status;
}

static ct_status read_tensors(ct_gguf *g, walk *w, uint64_t *offset)
{
    uint64_t alignment = 32, data;

    for (int64_t i = 0; i < g->n_tensor; i++) CT_TRY(take_tensor(w, &g->tensor[i], &offset[i]));
    CT_TRY(check_names(g));
    CT_TRY(find_alignment(g, &alignment));
    data = (w->at + alignment - 1) / alignment * alignment;
    for (int64_t i = 0; i < g->n_tensor; i++)
        CT_TRY(place(g, &g->tensor[i], data, offset[i], alignment));
    return CT_OK;
}

static ct_status read_head(ct_gguf *g, walk *w, uint64_t *n_tensor_p, uint64_t *n_value_p)
{
    uint64_t version;

    w->at = sizeof(magic);
    if ((w->end < sizeof(magic)) || (memcmp(g->map.data, magic, sizeof(magic)) != 0))
        return CT_FAIL(CT_ERR_DATA, "%s is no GGUF file", g->path);
    CT_TRY(take(w, 4, &version));
    if ((version != 2) && (version != 3))
        return CT_FAIL(CT_ERR_DATA, "%s: GGUF of version %llu%s; 2 and 3 are read", g->path,
                       (unsigned long long)version,
                       ((version & 0xffff) == 0) ? ", as big-endian files have it" : "");
    g->version = (uint32_t)version;
    CT_TRY(take(w, 8, n_tensor_p));
    CT_TRY(take(w, 8, n_value_p));
    if ((*n_value_p > w->end / MIN_VALUE) || (*n_tensor_p > w->end / MIN_TENSOR))
        return CT_FAIL(CT_ERR_DATA, "%s: %llu keys and %llu tensors do not fit into its %llu bytes",
                       g->path, (unsigned long long)*n_value_p, (unsigned long long)*n_tensor_p,
                       (unsigned long long)w->end);
    return CT_OK;
}

static ct_status read_all(ct_gguf *g)
{
    walk w = { .g = g, .end = (uint64_t)g->map.size, .what = "" };
    uint64_t n_tensor, n_value, *offset;
    ct_status status = CT_OK;

    CT_TRY(read_head(g, &w, &n_tensor, &n_value));
    g->value = calloc((size_t)n_value + 1, sizeof(*g->value));
    g->tensor = calloc((size_t)n_tensor + 1, sizeof(*g->tensor));
    offset = calloc((size_t)n_tensor + 1, sizeof(*offset));
    if ((g->value == NULL) || (g->tensor == NULL) || (offset == NULL)) {
        free(offset);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", g->path);
    }
    g->n_value = (int64_t)n_value;
    g->n_tensor = (int64_t)n_tensor;
    for (int64_t i = 0; (status == CT_OK) && (i < g->n_value); i++)
        status = take_value(&w, &g->value[i]);
    if (status == CT_OK) status = read_tensors(g, &w, offset);
    free(offset);
    return status;
}

bool ct_gguf_is(const char *path)
{
    FILE *f = ct_file_open_stream(path);
    char first[sizeof(magic)];
    bool is = (f != NULL) && (fread(first, 1, sizeof(first), f) == sizeof(first)) &&
              (memcmp(first, magic, sizeof(magic)) == 0);

    if (f != NULL) fclose(f);
    return is;
}

ct_status ct_gguf_open(const char *path, ct_gguf **g_p)
{
    ct_gguf *g = calloc(1, sizeof(*g));
    ct_status status;

    if ((g == NULL) || ((g->path = strdup(path)) == NULL)) {
        free(g);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", path);
    }
    status = ct_file_map_open(path, &g->map);
    if (status == CT_OK) status = read_all(g);
    if (status != CT_OK) {
        ct_gguf_close(g);
        return status;
    }
    *g_p = g;
    return CT_OK;
}

void ct_gguf_close(ct_gguf *g)
{
    if (g == NULL) return;
    for (int64_t i = 0; i < g->n_value; i++) free(g->value[i].key);
    for (int64_t i = 0; i < g->n_tensor; i++) free(g->tensor[i].name);
    free(g->value);
    free(g->tensor);
    ct_file_map_close(&g->map);
    free(g->path);
    free(g);
}

/* ---- values */

const ct_gguf_value *ct_gguf_find(const ct_gguf *g, const char *key)
{
    for (int64_t i = 0; i < g->n_value; i++)
        if (strcmp(g->value[i].key, key) == 0) return &g->value[i];
    return NULL;
}

const ct_gguf_tensor *ct_gguf_find_tensor(const ct_gguf *g, const char *name)
{
    for (int64_t i = 0; i < g->n_tensor; i++)
        if (strcmp(g->tensor[i].name, name) == 0) return &g->tensor[i];
    return NULL;
}

bool ct_gguf_int(const ct_gguf_value *v, uint64_t i, int64_t *number_p)
{
    int size = item_size[v->item];
    uint64_t raw = (size > 0) ? ct_little_endian(v->data + i * (uint64_t)size, size) : 0;

    switch (v->item) {
    case CT_GGUF_U8:
    case CT_GGUF_U16:
    case CT_GGUF_U32:
    case CT_GGUF_BOOL:
        *number_p = (int64_t)raw;
        return true;
    case CT_GGUF_U64:
        if (raw > INT64_MAX) return false;
        *number_p = (int64_t)raw;
        return true;
    case CT_GGUF_I8:
        *number_p = (int8_t)raw;
        return true;
    case CT_GGUF_I16:
        *number_p = (int16_t)raw;
        return true;
    case CT_GGUF_I32:
        *number_p = (int32_t)raw;
        return true;
    case CT_GGUF_I64:
        *number_p = (int64_t)raw;
        return true;
    default:
        return false;
    }
}

bool ct_gguf_float(const ct_gguf_value *v, uint64_t i, double *number_p)
{
    int64_t whole;

    if (v->item == CT_GGUF_F32) {
        uint32_t bits = (uint32_t)ct_little_endian(v->data + 4 * i, 4);
        float f;

        memcpy(&f, &bits, sizeof(f));
        *number_p = (double)f;
        return true;
    }
    if (v->item == CT_GGUF_F64) {
        uint64_t bits = ct_little_endian(v->data + 8 * i, 8);

        memcpy(number_p, &bits, sizeof(bits));
        return true;
    }
    if (!ct_gguf_int(v, i, &whole)) return false;
    *number_p = (double)whole;
    return true;
}

const char *ct_gguf_next_string(const uint8_t **at_p, size_t *length_p)
{
    const uint8_t *text = *at_p + 8;

    *length_p = (size_t)ct_little_endian(*at_p, 8);
    *at_p = text + *length_p;
    return (const char *)text;
}

ct_status ct_gguf_text(const ct_gguf *g, const char *key, char **text_p)
{
    const ct_gguf_value *v = ct_gguf_find(g, key);
    const uint8_t *at;
    const char *text;
    size_t n;

    if ((v == NULL) || (v->type != CT_GGUF_STRING))
        return CT_FAIL(CT_ERR_DATA, "%s: %s %s", g->path, key,
                       (v == NULL) ? "is missing" : "is no string");
    at = v->data;
    text = ct_gguf_next_string(&at, &n);
    if (memchr(text, '\0', n) != NULL)
        return CT_FAIL(CT_ERR_DATA, "%s: %s has a byte of value 0", g->path, key);
    *text_p = strndup(text, n);
    return (*text_p != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", g->path);
}
