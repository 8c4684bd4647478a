/* Messages of onnx.proto, field by field, and on their way into a file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/onnx/onnx_impl.h"
#include "framework/base/file.h"
#include "framework/data/writer.h"
#include "framework/proto/message.h"

/* ---- fields */

static const ProtobufCFieldDescriptor *field_of(const void *message, const char *name)
{
    const ProtobufCMessage *m = message;

    return protobuf_c_message_descriptor_get_field_by_name(m->descriptor, name);
}

void ct_onnx_put(ct_onnx *x, void *message, const char *field, const void *value)
{
    if (message == NULL) return; /* there was no memory for it, which is noted */
    if (ct_field_put(message, field_of(message, field), value, false) != CT_OK) x->failed = true;
}

void ct_onnx_put_int(ct_onnx *x, void *message, const char *field, int64_t v)
{
    int32_t small = (int32_t)v;

    if (message == NULL) return;
    if (field_of(message, field)->type == PROTOBUF_C_TYPE_INT64)
        ct_onnx_put(x, message, field, &v);
    else
        ct_onnx_put(x, message, field, &small);
}

void ct_onnx_put_text(ct_onnx *x, void *message, const char *field, const char *text)
{
    char *copy = strdup(text);

    if (copy == NULL)
        x->failed = true;
    else
        ct_onnx_put(x, message, field, &copy);
}

void *ct_onnx_add(ct_onnx *x, void *message, const char *field)
{
    ProtobufCMessage *m;

    if (message == NULL) return NULL;
    m = ct_message_create(field_of(message, field)->descriptor);
    if (m == NULL)
        x->failed = true;
    else
        ct_onnx_put(x, message, field, &m);
    return m;
}

/* ---- into a file: numbers and short texts together, weights as they lie in memory */

enum { TOGETHER = 65536 };

typedef struct disk_buffer {
    ProtobufCBuffer base;
    ct_disk_file *d;
    size_t n;
    uint8_t bytes[TOGETHER];
} disk_buffer;

static void flush(disk_buffer *b)
{
    ct_disk_add(b->d, b->bytes, (int64_t)b->n);
    b->n = 0;
}

static void append(ProtobufCBuffer *base, size_t n, const uint8_t *data)
{
    disk_buffer *b = (disk_buffer *)(void *)base;

    if (b->n + n > TOGETHER) flush(b);
    if (n > TOGETHER) {
        ct_disk_add(b->d, data, (int64_t)n);
        return;
    }
    memcpy(b->bytes + b->n, data, n);
    b->n += n;
}

ct_status ct_onnx_pack(const ProtobufCMessage *m, ct_disk_file *d)
{
    disk_buffer *b = calloc(1, sizeof(*b));

    if (b == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write an ONNX file");
    b->base.append = append;
    b->d = d;
    protobuf_c_message_pack_to_buffer(m, &b->base);
    flush(b);
    free(b);
    return CT_OK;
}

/* ---- values beside */

/* Smaller ones stay; the others begin at pages of memory, as ONNX wants it of files to be mapped.
 */
enum { LEAST_BESIDE = 1024, PAGE = 4096 };

static void put_entry(ct_onnx *x, Onnx__TensorProto *t, const char *key, const char *value)
{
    Onnx__StringStringEntryProto *e = ct_onnx_add(x, t, "external_data");

    ct_onnx_put_text(x, e, "key", key);
    ct_onnx_put_text(x, e, "value", value);
}

static void move_beside(ct_onnx *x, size_t i, const char *location, ct_disk_file *d)
{
    static const uint8_t zero[PAGE];
    Onnx__TensorProto *t = x->graph->initializer[i];
    char offset[32], length[32];

    ct_disk_add(d, zero, (PAGE - d->at % PAGE) % PAGE);
    snprintf(offset, sizeof(offset), "%" PRId64, d->at);
    snprintf(length, sizeof(length), "%zu", t->raw_data.len);
    ct_disk_add(d, t->raw_data.data, (int64_t)t->raw_data.len);
    put_entry(x, t, "location", location);
    put_entry(x, t, "offset", offset);
    put_entry(x, t, "length", length);
    ct_onnx_put_int(x, t, "data_location", ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL);
    if (!x->borrowed[i]) free(t->raw_data.data);
    t->raw_data = (ProtobufCBinaryData){ 0 };
    t->has_raw_data = false;
}

ct_status ct_onnx_write_beside(ct_onnx *x, const ct_text *data, const char *temp, bool force)
{
    ct_disk_file d;
    int64_t size;
    uint64_t hash;

    CT_TRY(ct_path_check_free(data->text, force));
    ct_disk_open(&d, temp, 0);
    for (size_t i = 0; i < x->graph->n_initializer; i++) {
        if (x->graph->initializer[i]->raw_data.len >= LEAST_BESIDE)
            move_beside(x, i, ct_path_base(data->text), &d);
    }
    if (x->failed) {
        ct_disk_drop(&d, temp);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", data->text);
    }
    return ct_disk_finish(&d, temp, &hash, &size);
}
