/* One field a line, in the order of the schema's numbers, nothing that is unset: so that equal
 * messages give equal texts. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/proto/message.h"

/* The shortest of the forms with 1 to max_digits digits that reads back the same; max_digits (9
 * of a float, 17 of a double) always does. */
static void add_float(ct_text *out, double v, bool is_double)
{
    int max_digits = is_double ? 17 : 9;
    char text[40];

    if (isnan(v)) {
        ct_text_add(out, "%s", signbit(v) ? "-nan" : "nan");
        return;
    }
    if (isinf(v)) {
        ct_text_add(out, "%s", (v < 0) ? "-inf" : "inf");
        return;
    }
    if ((fabs(v) < 1e7) && (floor(v) == v)) { /* 100000 rather than 1e+05 */
        ct_text_add(out, "%.0f", v);
        return;
    }
    for (int digits = 1; digits <= max_digits; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, v);
        if (is_double ? (strtod(text, NULL) == v) : (strtof(text, NULL) == (float)v)) break;
    }
    ct_text_add(out, "%s", text);
}

static void add_string(ct_text *out, const char *bytes, size_t n, bool is_bytes)
{
    ct_text_add_bytes(out, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        static const char special[] = "\n\r\t\"\\", letter[] = "nrt\"\\";
        const char *found = (c != '\0') ? strchr(special, c) : NULL;

        if (found != NULL) {
            ct_text_add(out, "\\%c", letter[found - special]);
        } else if ((c < 0x20) || (c == 0x7F) || ((c >= 0x80) && is_bytes)) {
            ct_text_add(out, "\\%03o", c);
        } else {
            ct_text_add_bytes(out, &bytes[i], 1);
        }
    }
    ct_text_add_bytes(out, "\"", 1);
}

void ct_prototxt_quote(const char *text, ct_text *out)
{
    add_string(out, text, strlen(text), false);
}

static void add_enum(ct_text *out, const ProtobufCEnumDescriptor *type, int v)
{
    const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(type, v);

    if (value != NULL) {
        ct_text_add(out, "%s", value->name);
    } else {
        ct_text_add(out, "%d", v);
    }
}

void ct_text_add_scalar(ct_text *out, const ProtobufCFieldDescriptor *f, const void *value)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        ct_text_add(out, "%" PRId32, *(const int32_t *)value);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        ct_text_add(out, "%" PRId64, *(const int64_t *)value);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        ct_text_add(out, "%" PRIu32, *(const uint32_t *)value);
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        ct_text_add(out, "%" PRIu64, *(const uint64_t *)value);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        add_float(out, (double)*(const float *)value, false);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        add_float(out, *(const double *)value, true);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        ct_text_add(out, "%s", (*(const protobuf_c_boolean *)value != 0) ? "true" : "false");
        break;
    case PROTOBUF_C_TYPE_ENUM:
        add_enum(out, f->descriptor, *(const int *)value);
        break;
    case PROTOBUF_C_TYPE_STRING: {
        const char *s = *(char *const *)value;

        add_string(out, (s != NULL) ? s : "", (s != NULL) ? strlen(s) : 0, false);
        break;
    }
    case PROTOBUF_C_TYPE_BYTES: {
        const ProtobufCBinaryData *b = value;

        add_string(out, (const char *)b->data, b->len, true);
        break;
    }
    case PROTOBUF_C_TYPE_MESSAGE:
        break;
    }
}

void ct_text_add_default(ct_text *out, const ProtobufCFieldDescriptor *f)
{
    /* of a string, default_value is the text itself */
    const void *value =
        (f->type == PROTOBUF_C_TYPE_STRING) ? (const void *)&f->default_value : f->default_value;

    ct_text_add_scalar(out, f, value);
}

static void write_message(ct_text *out, const ProtobufCMessage *m, int depth)
{
    for (unsigned k = 0; k < m->descriptor->n_fields; k++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[k];
        size_t n = ct_field_is_private(f) ? 0 : ct_field_count(m, f);

        for (size_t i = 0; i < n; i++) {
            if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
                ct_text_add(out, "%*s%s {\n", 2 * depth, "", f->name);
                write_message(out, ct_field_message(m, f, i), depth + 1);
                ct_text_add(out, "%*s}\n", 2 * depth, "");
            } else {
                ct_text_add(out, "%*s%s: ", 2 * depth, "", f->name);
                ct_text_add_scalar(out, f, ct_field_at(m, f, i));
                ct_text_add_bytes(out, "\n", 1);
            }
        }
    }
    if (m->n_unknown_fields > 0) {
        ct_text_add(out, "%*s# %u fields left out that the schema does not know\n", 2 * depth, "",
                    m->n_unknown_fields);
    }
}

ct_status ct_prototxt_write(const ProtobufCMessage *message, ct_text *out)
{
    ct_locale locale = ct_locale_enter();

    ct_text_add_bytes(out, "", 0);
    write_message(out, message, 0);
    ct_locale_leave(locale);
    if (out->failed) return CT_FAIL(CT_ERR_NOMEM, "no memory to write a message");
    return CT_OK;
}
