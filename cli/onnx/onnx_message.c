/* Messages of onnx.proto, field by field, and on their way into a file. */
#include <stdlib.h>
#include <string.h>

#include "cli/onnx/onnx_impl.h"
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
