/* Values of a graph by name, and numbers of its tensors. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/onnx/read/onnx_read.h"
#include "framework/base/file.h"
#include "framework/snapshot/named_tensor.h"

/* ---- values */

ct_status ct_onnx_value_add(ct_onnx_reader *r, const char *name, ct_onnx_operand **v_p)
{
    ct_onnx_operand *v;

    if ((name != NULL) && (ct_name_map_find(&r->by_name, name, strlen(name)) >= 0))
        return CT_FAIL(CT_ERR_DATA, "%s: two values are called \"%s\"", r->path, name);
    if (r->n_value == r->value_room) {
        int room = (r->value_room > 0) ? 2 * r->value_room : 64;
        ct_onnx_operand **grown = realloc(r->value, (size_t)room * sizeof(*grown));

        if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d values", room);
        r->value = grown;
        r->value_room = room;
    }
    v = calloc(1, sizeof(*v));
    if (v == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a value");
    r->value[r->n_value++] = v;
    if (name != NULL) {
        v->name = strdup(name);
        if (v->name == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a name");
        CT_TRY(ct_name_map_put(&r->by_name, v->name, r->n_value - 1));
    }
    *v_p = v;
    return CT_OK;
}

ct_onnx_operand *ct_onnx_value_find(const ct_onnx_reader *r, const char *name)
{
    int i = ct_name_map_find(&r->by_name, name, strlen(name));

    return (i >= 0) ? r->value[i] : NULL;
}

ct_status ct_onnx_shape_check(const ct_onnx_reader *r, const char *who, const ct_shape *s)
{
    const int64_t most = INT64_C(1) << 40;
    int64_t n = 1;

    for (int d = 0; d < s->ndim; d++) {
        if ((s->dim[d] < 0) || (s->dim[d] > most / n))
            return CT_FAIL(CT_ERR_DATA, "%s: %s has a size of %" PRId64 " along axis %d", r->path,
                           who, s->dim[d], d);
        n *= (s->dim[d] > 0) ? s->dim[d] : 1;
    }
    return CT_OK;
}

/* ---- tensors */

/* Bytes of a file that lies beside the ONNX file, malloc'ed. */
static ct_status read_beside(const ct_onnx_reader *r, const char *who, const char *location,
                             int64_t offset, size_t bytes, void **data_p)
{
    const char *slash = strrchr(r->path, '/');
    ct_text path = { 0 };
    struct stat st;
    void *data = NULL;
    int fd = -1;
    bool done = false;

    if ((location[0] == '\0') || (strchr(location, '/') != NULL) || (strcmp(location, "..") == 0))
        return CT_FAIL(CT_ERR_DATA, "%s: %s lies in \"%s\", a name without folders is taken",
                       r->path, who, location);
    if (slash != NULL) ct_text_add_bytes(&path, r->path, (size_t)(slash - r->path) + 1);
    ct_text_add(&path, "%s", location);
    if (!path.failed) fd = ct_file_open(path.text);
    if ((fd >= 0) && (fstat(fd, &st) == 0) && S_ISREG(st.st_mode) && (offset >= 0) &&
        (st.st_size >= offset) && ((uint64_t)(st.st_size - offset) >= bytes))
        data = malloc(bytes + 1);
    for (size_t at = 0; (data != NULL) && !done;) {
        ssize_t n = pread(fd, (char *)data + at, bytes - at, (off_t)offset + (off_t)at);

        if ((n <= 0) && (at < bytes)) break;
        at += (n > 0) ? (size_t)n : 0;
        done = (at == bytes);
    }
    if (fd >= 0) close(fd);
    ct_text_destroy(&path);
    if (!done) {
        free(data);
        return CT_FAIL(CT_ERR_IO, "%s: %s wants %zu bytes from byte %" PRId64 " on of the file %s",
                       r->path, who, bytes, offset, location);
    }
    *data_p = data;
    return CT_OK;
}

static ct_status read_external(const ct_onnx_reader *r, const Onnx__TensorProto *t, const char *who,
                               size_t bytes, void **data_p)
{
    const char *location = "";
    int64_t offset = 0, length = (int64_t)bytes;

    for (size_t i = 0; i < t->n_external_data; i++) {
        const Onnx__StringStringEntryProto *e = t->external_data[i];

        if ((e->key == NULL) || (e->value == NULL)) continue;
        if (strcmp(e->key, "location") == 0) location = e->value;
        if (strcmp(e->key, "offset") == 0) offset = strtoll(e->value, NULL, 10);
        if (strcmp(e->key, "length") == 0) length = strtoll(e->value, NULL, 10);
    }
    if (length != (int64_t)bytes)
        return CT_FAIL(CT_ERR_DATA,
                       "%s: %s has %" PRId64 " bytes in \"%s\", its shape and type %zu", r->path,
                       who, length, location, bytes);
    return read_beside(r, who, location, offset, bytes, data_p);
}

/* Types that are taken: bytes of one, as it lies raw, and what reads it; OTHER: whole numbers. */
static const struct {
    int type, bytes;
    ct_value_form form;
} types[] = {
    { ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, 4, CT_VALUES_F32 },
    { ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16, 2, CT_VALUES_F16 },
    { ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16, 2, CT_VALUES_BF16 },
    { ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE, 8, CT_VALUES_F64 },
    { ONNX__TENSOR_PROTO__DATA_TYPE__INT64, 8, CT_VALUES_OTHER },
    { ONNX__TENSOR_PROTO__DATA_TYPE__INT32, 4, CT_VALUES_OTHER },
    { ONNX__TENSOR_PROTO__DATA_TYPE__INT8, 1, CT_VALUES_OTHER },
    { ONNX__TENSOR_PROTO__DATA_TYPE__UINT8, 1, CT_VALUES_OTHER },
    { ONNX__TENSOR_PROTO__DATA_TYPE__BOOL, 1, CT_VALUES_OTHER },
};

static int64_t whole_at(int type, const uint8_t *p, int64_t i)
{
    int64_t wide;
    int32_t narrow;

    switch (type) {
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT64:
        memcpy(&wide, p + 8 * i, 8);
        return wide;
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT32:
        memcpy(&narrow, p + 4 * i, 4);
        return narrow;
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT8:
        return (int8_t)p[i];
    default:
        return p[i];
    }
}

/* From raw bytes: floats as they lie where they can, others anew. */
static ct_status read_raw(const ct_onnx_reader *r, const uint8_t *raw, int k, int64_t n,
                          ct_onnx_operand *v)
{
    int64_t *whole;
    float *f;

    if (types[k].form == CT_VALUES_F32) {
        v->f = (const float *)(const void *)raw;
        return CT_OK;
    }
    if (types[k].form == CT_VALUES_OTHER) {
        whole = malloc((size_t)n * sizeof(*whole) + 1);
        if (whole == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for a tensor", r->path);
        for (int64_t i = 0; i < n; i++) whole[i] = whole_at(types[k].type, raw, i);
        v->i = whole;
        v->owned = whole;
        return CT_OK;
    }
    f = malloc((size_t)n * sizeof(*f) + 1);
    if (f == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for a tensor", r->path);
    ct_named_tensor_read(&(ct_named_tensor){ .form = types[k].form,
                                             .shape = { 1, { n } },
                                             .data = raw,
                                             .size = (uint64_t)(n * types[k].bytes) },
                         f);
    v->f = f;
    v->owned = f;
    return CT_OK;
}

/* The lists that stand for raw bytes: 32-bit ones hold all that is narrower. */
static ct_status read_lists(const ct_onnx_reader *r, const Onnx__TensorProto *t, const char *who,
                            int k, int64_t n, ct_onnx_operand *v)
{
    bool f32 = types[k].form == CT_VALUES_F32, f64 = types[k].form == CT_VALUES_F64;
    bool i64 = types[k].type == ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
    size_t there = f32   ? t->n_float_data
                   : f64 ? t->n_double_data
                   : i64 ? t->n_int64_data
                         : t->n_int32_data;
    uint8_t *raw = NULL;
    ct_status status = CT_OK;

    if (there != (size_t)n)
        return CT_FAIL(CT_ERR_DATA, "%s: %s has %zu values, its shape %" PRId64, r->path, who,
                       there, n);
    if (f32) return read_raw(r, (const uint8_t *)t->float_data, k, n, v);
    if (f64) return read_raw(r, (const uint8_t *)t->double_data, k, n, v);
    if (i64) return read_raw(r, (const uint8_t *)t->int64_data, k, n, v);
    raw = malloc((size_t)n * 4 + 1);
    if (raw == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for a tensor", r->path);
    for (int64_t i = 0; i < n; i++) /* the lowest bytes of each */
        memcpy(raw + i * types[k].bytes, &t->int32_data[i], (size_t)types[k].bytes);
    status = read_raw(r, raw, k, n, v);
    free(raw);
    return status;
}

ct_status ct_onnx_tensor_read(const ct_onnx_reader *r, const Onnx__TensorProto *t, const char *who,
                              ct_onnx_operand *v)
{
    const int n_type = sizeof(types) / sizeof(types[0]);
    int k = 0;
    int64_t n;
    void *data;

    if (t->n_dims > CT_MAX_DIM)
        return CT_FAIL(CT_ERR_DATA, "%s: %s has %zu axes, at most %d are taken", r->path, who,
                       t->n_dims, CT_MAX_DIM);
    v->shape.ndim = (int)t->n_dims;
    for (size_t d = 0; d < t->n_dims; d++) v->shape.dim[d] = t->dims[d];
    CT_TRY(ct_onnx_shape_check(r, who, &v->shape));
    n = ct_shape_count(&v->shape, 0, -1);
    while ((k < n_type) && (types[k].type != t->data_type)) k++;
    if (k == n_type)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: %s has the type %d; float, float16, bfloat16, double, int8, int32, "
                       "int64, uint8 and bool are taken",
                       r->path, who, t->data_type);
    v->constant = true;
    if (t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
        ct_status status;

        CT_TRY(read_external(r, t, who, (size_t)(n * types[k].bytes), &data));
        status = read_raw(r, data, k, n, v);
        if ((status == CT_OK) && (types[k].form == CT_VALUES_F32))
            v->owned = data;
        else
            free(data);
        return status;
    }
    if (!t->has_raw_data) return read_lists(r, t, who, k, n, v);
    if (t->raw_data.len != (size_t)(n * types[k].bytes))
        return CT_FAIL(CT_ERR_DATA, "%s: %s has %zu bytes, its shape and type %" PRId64, r->path,
                       who, t->raw_data.len, n * types[k].bytes);
    return read_raw(r, t->raw_data.data, k, n, v);
}
