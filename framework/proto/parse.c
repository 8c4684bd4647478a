/* The grammar: fields, messages and lists. Values are in scalar.c, messages to the user in
 * diagnose.c. */
#include <stdlib.h>
#include <string.h>

#include "framework/proto/reader.h"

enum { MAX_FIELDS = 256 };

void ct_prototxt_reader_next(ct_prototxt_reader *r)
{
    r->token = ct_lexer_next(&r->lex);
}

bool ct_prototxt_reader_accept(ct_prototxt_reader *r, char punct)
{
    if (!ct_token_is(&r->token, punct)) return false;
    ct_prototxt_reader_next(r);
    return true;
}

/* Which fields of a message were given. */
typedef struct seen_set {
    uint64_t bit[MAX_FIELDS / 64];
} seen_set;

static bool see(seen_set *seen, size_t i)
{
    uint64_t bit = UINT64_C(1) << (i % 64);
    bool before = (seen->bit[i / 64] & bit) != 0;

    seen->bit[i / 64] |= bit;
    return before;
}

static ct_status parse_field(ct_prototxt_reader *r, ProtobufCMessage *m, seen_set *seen)
{
    const ProtobufCFieldDescriptor *f;
    int line, column;

    if (r->token.kind != CT_TOKEN_NAME)
        return ct_prototxt_reader_fail_expected(r, "the name of a field");
    f = ct_field_find(m->descriptor, r->token.start, r->token.length);
    if (f == NULL) return ct_prototxt_reader_fail_unknown(r);
    if (see(seen, (size_t)(f - m->descriptor->fields)) && (f->label != PROTOBUF_C_LABEL_REPEATED)) {
        return ct_prototxt_reader_fail_at(r, r->token.line, r->token.column,
                                          "field \"%s\" is given twice, and takes one value",
                                          f->name);
    }
    line = r->token.line;
    column = r->token.column;
    r->field = f->name;
    if (r->map != NULL)
        CT_TRY(ct_source_map_add(r->map, (char *)m + f->offset, r->file, line, column));
    ct_prototxt_reader_next(r);
    if (!ct_prototxt_reader_accept(r, ':') && (f->type != PROTOBUF_C_TYPE_MESSAGE)) {
        return ct_prototxt_reader_fail_expected(r, "\":\"");
    }
    return ct_prototxt_reader_values(r, m, f, line, column);
}

static ct_status check_required(ct_prototxt_reader *r, const ProtobufCMessage *m, seen_set *seen)
{
    const ct_frame *frame = r->frame;

    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];

        if ((f->label == PROTOBUF_C_LABEL_REQUIRED) && !see(seen, i)) {
            return ct_prototxt_reader_fail_value(r, frame->line, frame->column,
                                                 "missing field \"%s\"", f->name);
        }
    }
    return CT_OK;
}

static ct_status fail_unclosed(ct_prototxt_reader *r)
{
    ct_token open = r->frame->open;
    char close = (*open.start == '{') ? '}' : '>';

    if (r->token.kind == CT_TOKEN_END) {
        return ct_prototxt_reader_fail_at(r, open.line, open.column,
                                          "this \"%c\" is not closed; the text ends at line %d",
                                          *open.start, r->token.line);
    }
    return ct_prototxt_reader_fail_at(
        r, r->token.line, r->token.column,
        "expected \"%c\", since \"%c\" of line %d is open, got \"%c\"", close, *open.start,
        open.line, *r->token.start);
}

/* The fields of the innermost message, to its closing bracket, or to the end at the root. */
static ct_status parse_body(ct_prototxt_reader *r, ProtobufCMessage *m)
{
    const ct_token *open = &r->frame->open;
    bool is_root = (open->kind == CT_TOKEN_END);
    seen_set seen = { { 0 } };

    if (m->descriptor->n_fields > MAX_FIELDS) {
        return CT_FAIL(CT_ERR_ARG, "message %s has more than %d fields", m->descriptor->name,
                       (int)MAX_FIELDS);
    }
    for (;;) {
        r->field = NULL;
        if (ct_token_is(&r->token, '}') || ct_token_is(&r->token, '>')) {
            if (is_root) {
                return ct_prototxt_reader_fail_at(r, r->token.line, r->token.column,
                                                  "\"%c\" closes nothing", *r->token.start);
            }
            if ((*open->start == '{') != (*r->token.start == '}')) return fail_unclosed(r);
            break;
        }
        if (r->token.kind == CT_TOKEN_END) {
            if (is_root) break;
            return fail_unclosed(r);
        }
        CT_TRY(parse_field(r, m, &seen));
        if (!ct_prototxt_reader_accept(r, ',')) ct_prototxt_reader_accept(r, ';');
    }
    CT_TRY(check_required(r, m, &seen));
    if (!is_root) ct_prototxt_reader_next(r);
    return CT_OK;
}

/* A message in brackets into field f of m; line, column: where the field's name stands. */
static ct_status parse_message(ct_prototxt_reader *r, ProtobufCMessage *m,
                               const ProtobufCFieldDescriptor *f, int line, int column)
{
    ct_frame frame = { .parent = r->frame, .type = f->descriptor, .field = f->name };
    ProtobufCMessage *child;
    ct_status status;

    if (!ct_token_is(&r->token, '{') && !ct_token_is(&r->token, '<')) {
        return ct_prototxt_reader_fail_expected(r, "\"{\"");
    }
    if (++r->depth > CT_MAX_DEPTH) {
        return ct_prototxt_reader_fail_at(r, r->token.line, r->token.column,
                                          "messages are nested more than %d deep",
                                          (int)CT_MAX_DEPTH);
    }
    child = ct_message_create(frame.type);
    if (child == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a message");
    status = ct_field_put(m, f, &child, false);
    if (status != CT_OK) {
        protobuf_c_message_free_unpacked(child, NULL);
        return status;
    }
    if (r->map != NULL) CT_TRY(ct_source_map_add(r->map, child, r->file, line, column));

    frame.line = line;
    frame.column = column;
    frame.open = r->token;
    frame.body = r->lex;
    ct_prototxt_reader_next(r);
    r->frame = &frame;
    status = parse_body(r, child);
    r->frame = frame.parent;
    r->depth--;
    return status;
}

static ct_status parse_value(ct_prototxt_reader *r, ProtobufCMessage *m,
                             const ProtobufCFieldDescriptor *f, int line, int column)
{
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) return parse_message(r, m, f, line, column);
    return ct_prototxt_reader_scalar(r, m, f);
}

static ct_status parse_list(ct_prototxt_reader *r, ProtobufCMessage *m,
                            const ProtobufCFieldDescriptor *f)
{
    const char *field = r->field;
    ct_token open = r->token;

    if (f->label != PROTOBUF_C_LABEL_REPEATED) {
        return ct_prototxt_reader_fail_value(r, open.line, open.column,
                                             "takes one value, not a list");
    }
    ct_prototxt_reader_next(r);
    if (ct_prototxt_reader_accept(r, ']')) return CT_OK;
    for (;;) {
        if (r->token.kind == CT_TOKEN_END) {
            return ct_prototxt_reader_fail_at(r, open.line, open.column,
                                              "this \"[\" is not closed; the text ends at line %d",
                                              r->token.line);
        }
        CT_TRY(parse_value(r, m, f, r->token.line, r->token.column));
        r->field = field;
        if (ct_prototxt_reader_accept(r, ']')) return CT_OK;
        if ((r->token.kind != CT_TOKEN_END) && !ct_prototxt_reader_accept(r, ',')) {
            return ct_prototxt_reader_fail_expected(r, "\",\" or \"]\"");
        }
    }
}

ct_status ct_prototxt_reader_values(ct_prototxt_reader *r, ProtobufCMessage *m,
                                    const ProtobufCFieldDescriptor *f, int line, int column)
{
    if (ct_token_is(&r->token, '[')) return parse_list(r, m, f);
    return parse_value(r, m, f, line, column);
}

ct_status ct_prototxt_parse(const ProtobufCMessageDescriptor *type, const char *name,
                            const char *text, size_t size, ct_source_map *map,
                            ProtobufCMessage **message_p)
{
    ct_frame root = { .type = type, .line = 1, .column = 1 };
    ct_prototxt_reader r = { .name = name, .map = map, .frame = &root };
    ct_locale locale;
    ct_status status = CT_OK;
    ProtobufCMessage *m = ct_message_create(type);

    if (m == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a message");
    ct_lexer_open(&r.lex, text, size);
    root.body = r.lex;
    locale = ct_locale_enter();
    if (map != NULL) {
        CT_TRY_GOTO(status, out, ct_source_map_add_file(map, name, &r.file));
        CT_TRY_GOTO(status, out, ct_source_map_add(map, m, r.file, 1, 1));
    }
    ct_prototxt_reader_next(&r);
    status = parse_body(&r, m);
out:
    ct_locale_leave(locale);
    if (status == CT_OK) {
        *message_p = m;
    } else {
        ct_source_map_forget(map, m);
        protobuf_c_message_free_unpacked(m, NULL);
    }
    return status;
}

ct_status ct_prototxt_read(const ProtobufCMessageDescriptor *type, const char *path,
                           ct_source_map *map, ProtobufCMessage **message_p)
{
    ct_status status;
    char *text;
    size_t size;

    CT_TRY(ct_file_read(path, &text, &size));
    status = ct_prototxt_parse(type, path, text, size, map, message_p);
    free(text);
    return status;
}
