/* Messages in binary files: protobuf-c unpacks whatever the bytes say, by recursion, so that a
 * small file could take all of the stack or of the memory. */
#include "framework/proto/message.h"
#include "framework/proto/reader.h"

/* Of a file's strings and of its messages, values not counted. */
enum { MOST_STRING = 1 << 24, MOST_MESSAGES = 1 << 28 };

typedef struct walk {
    size_t messages; /* bytes that they take in memory */
    const char *why; /* NULL: nothing is wrong         */
} walk;

/* False at the end of the bytes. */
static bool read_number(const uint8_t **at_p, const uint8_t *end, uint64_t *v_p)
{
    *v_p = 0;
    for (unsigned shift = 0; (*at_p < end) && (shift < 64); shift += 7) {
        uint8_t byte = *(*at_p)++;

        *v_p |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

/* Bytes of a field's value from *at on, of which *at_p is the first; false where they do not fit.
 */
static bool find_value(unsigned wire_type, const uint8_t **at_p, const uint8_t *end, size_t *n_p)
{
    const uint8_t *from = *at_p;
    uint64_t n = 0;

    switch (wire_type) {
    case PROTOBUF_C_WIRE_TYPE_VARINT:
        if (!read_number(&from, end, &n)) return false;
        *n_p = (size_t)(from - *at_p);
        return true;
    case PROTOBUF_C_WIRE_TYPE_64BIT:
        *n_p = 8;
        break;
    case PROTOBUF_C_WIRE_TYPE_32BIT:
        *n_p = 4;
        break;
    case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
        if (!read_number(at_p, end, &n) || (n > SIZE_MAX / 2)) return false;
        *n_p = (size_t)n;
        break;
    default:
        return false;
    }
    return *n_p <= (size_t)(end - *at_p);
}

/* What is no message goes on to protobuf-c, which says so. */
static void look(walk *w, const ProtobufCMessageDescriptor *type, const uint8_t *at,
                 const uint8_t *end, int depth)
{
    uint64_t key;
    size_t n;

    w->messages += type->sizeof_message;
    if (w->messages > MOST_MESSAGES) w->why = "its messages would take more than 256 MiB";
    if (depth > CT_MAX_DEPTH) w->why = "messages are nested more than 100 deep";
    while ((w->why == NULL) && (at < end) && read_number(&at, end, &key) &&
           find_value(key & 7, &at, end, &n)) {
        const ProtobufCFieldDescriptor *f =
            (key >> 3 <= UINT32_MAX)
                ? protobuf_c_message_descriptor_get_field(type, (unsigned)(key >> 3))
                : NULL;

        if ((f != NULL) && ((key & 7) == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)) {
            if ((f->type == PROTOBUF_C_TYPE_STRING) && (n > MOST_STRING))
                w->why = "a string is longer than 16 MiB";
            if (f->type == PROTOBUF_C_TYPE_MESSAGE) look(w, f->descriptor, at, at + n, depth + 1);
        }
        at += n;
    }
}

ProtobufCMessage *ct_message_unpack(const ProtobufCMessageDescriptor *type, const void *data,
                                    size_t size, const char **why_p)
{
    ProtobufCMessage *m = NULL;
    walk w = { 0 };

    look(&w, type, data, (const uint8_t *)data + size, 1);
    if (w.why == NULL) {
        m = protobuf_c_message_unpack(type, NULL, size, data);
        w.why = "truncated, or of another kind";
    }
    *why_p = w.why;
    return m;
}
