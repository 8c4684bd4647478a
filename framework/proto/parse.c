/* The grammar: fields, messages and lists. Messages to the user are in diagnose.c. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "framework/base/file.h"
#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/reader.h"

/* Reads one value of a field that is no message, at the current token. */
static ct_status prototxt_reader_scalar(ct_prototxt_reader *r, ProtobufCMessage *m,
                                        const ProtobufCFieldDescriptor *f);

enum { MAX_FIELDS = 256 };

void ct_prototxt_reader_next(ct_prototxt_reader *r)
{
    r->token = ct_lexer_next(&r->lex);
}

/* Consumes `punct` where it is the current token. */
static bool prototxt_reader_accept(ct_prototxt_reader *r, char punct)
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
    bool skipped;

    if (r->token.kind != CT_TOKEN_NAME)
        return ct_prototxt_reader_fail_expected(r, "the name of a field");
    f = ct_field_find(m->descriptor, r->token.start, r->token.length);
    if (f == NULL) {
        CT_TRY(ct_hint_skip(r, &skipped));
        return skipped ? CT_OK : ct_prototxt_reader_fail_unknown(r);
    }
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
    if (!prototxt_reader_accept(r, ':') && (f->type != PROTOBUF_C_TYPE_MESSAGE)) {
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
        if (!prototxt_reader_accept(r, ',')) prototxt_reader_accept(r, ';');
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
    if (status == CT_OK) status = ct_repeat_closed(r, m, child);
    ct_repeat_leave(r, &frame);
    r->frame = frame.parent;
    r->depth--;
    return status;
}

static ct_status parse_value(ct_prototxt_reader *r, ProtobufCMessage *m,
                             const ProtobufCFieldDescriptor *f, int line, int column)
{
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) return parse_message(r, m, f, line, column);
    return prototxt_reader_scalar(r, m, f);
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
    if (prototxt_reader_accept(r, ']')) return CT_OK;
    for (;;) {
        if (r->token.kind == CT_TOKEN_END) {
            return ct_prototxt_reader_fail_at(r, open.line, open.column,
                                              "this \"[\" is not closed; the text ends at line %d",
                                              r->token.line);
        }
        CT_TRY(parse_value(r, m, f, r->token.line, r->token.column));
        r->field = field;
        if (prototxt_reader_accept(r, ']')) return CT_OK;
        if ((r->token.kind != CT_TOKEN_END) && !prototxt_reader_accept(r, ',')) {
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

static ct_status check_count(const ct_prototxt_reader *r)
{
    if ((r->repeat_count == 0) || (r->n_repeat == 1)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: repeat.count sets the count of a net's only repeat; here are %d", r->name,
                   r->n_repeat);
}

static ct_status parse(const ProtobufCMessageDescriptor *type, const char *name, const char *text,
                       size_t size, int32_t count, ct_source_map *map, ProtobufCMessage **message_p)
{
    ct_frame root = { .type = type, .line = 1, .column = 1 };
    ct_prototxt_reader r = { .name = name, .map = map, .frame = &root, .repeat_count = count };
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
    CT_TRY_GOTO(status, out, parse_body(&r, m));
    status = ct_repeat_closed(&r, NULL, m);
    if (status == CT_OK) status = check_count(&r);
    if (status == CT_OK) ct_hint_report(&r);
out:
    ct_repeat_leave(&r, NULL);
    ct_locale_leave(locale);
    if (status == CT_OK) {
        *message_p = m;
    } else {
        ct_source_map_forget(map, m);
        protobuf_c_message_free_unpacked(m, NULL);
    }
    return status;
}

ct_status ct_prototxt_parse(const ProtobufCMessageDescriptor *type, const char *name,
                            const char *text, size_t size, ct_source_map *map,
                            ProtobufCMessage **message_p)
{
    return parse(type, name, text, size, 0, map, message_p);
}

ct_status ct_prototxt_read(const ProtobufCMessageDescriptor *type, const char *path,
                           ct_source_map *map, ProtobufCMessage **message_p)
{
    return ct_prototxt_read_repeat(type, path, 0, map, message_p);
}

ct_status ct_prototxt_read_repeat(const ProtobufCMessageDescriptor *type, const char *path,
                                  int32_t count, ct_source_map *map, ProtobufCMessage **message_p)
{
    ct_status status;
    char *text;
    size_t size;

    CT_TRY(ct_settings_read(path, &text, &size));
    status = parse(type, path, text, size, count, map, message_p);
    free(text);
    return status;
}

/* ---- values that are no messages: numbers with their ranges, names, strings */

typedef union scalar {
    int32_t i32;
    uint32_t u32;
    int64_t i64;
    uint64_t u64;
    float f32;
    double f64;
    protobuf_c_boolean boolean;
    int enumerator;
    char *string;
    ProtobufCBinaryData bytes;
} scalar;

/* An unsigned integer in C's decimal, octal or hex form. */
typedef enum { INTEGER, NOT_INTEGER, TOO_LARGE } integer_kind;

static integer_kind read_integer(const ct_token *t, uint64_t *value_p)
{
    const char *at = t->start, *end = t->start + t->length;
    bool overflows = false;
    unsigned base = 10;
    uint64_t v = 0;

    if ((t->length > 1) && (*at == '0')) {
        bool is_hex = (at[1] == 'x') || (at[1] == 'X');

        base = is_hex ? 16 : 8;
        at += is_hex ? 2 : 1;
        if (at == end) return NOT_INTEGER;
    }
    for (; at < end; at++) {
        char c = *at;
        unsigned d = ((c >= '0') && (c <= '9'))   ? (unsigned)(c - '0')
                     : ((c >= 'a') && (c <= 'f')) ? (unsigned)(c - 'a') + 10
                     : ((c >= 'A') && (c <= 'F')) ? (unsigned)(c - 'A') + 10
                                                  : 99;

        if (d >= base) return NOT_INTEGER;
        if (v > (UINT64_MAX - d) / base) overflows = true;
        v = v * base + d;
    }
    *value_p = v;
    return overflows ? TOO_LARGE : INTEGER;
}

/* digits [. digits] [e [sign] digits] [f], with a digit somewhere in front. */
static bool is_decimal_float(const ct_token *t)
{
    const char *at = t->start, *end = t->start + t->length;
    size_t n_digit = 0;

    for (; (at < end) && (*at >= '0') && (*at <= '9'); at++) n_digit++;
    if ((n_digit > 1) && (*t->start == '0') && (at == end))
        return false; /* octal: what is meant? */
    if ((at < end) && (*at == '.')) {
        for (at++; (at < end) && (*at >= '0') && (*at <= '9'); at++) n_digit++;
    }
    if (n_digit == 0) return false;
    if ((at < end) && ((*at == 'e') || (*at == 'E'))) {
        at++;
        if ((at < end) && ((*at == '+') || (*at == '-'))) at++;
        if (at == end) return false;
        for (n_digit = 0; (at < end) && (*at >= '0') && (*at <= '9'); at++) n_digit++;
        if (n_digit == 0) return false;
    }
    if ((at < end) && ((*at == 'f') || (*at == 'F'))) at++;
    return at == end;
}

static bool is_minus(ct_prototxt_reader *r)
{
    return prototxt_reader_accept(r, '-');
}

static ct_status fail_number(ct_prototxt_reader *r, bool minus, const char *expected)
{
    return ct_prototxt_reader_fail_expected(r, minus ? "%s behind \"-\"" : "%s", expected);
}

/* A whole number from -low to high. */
static ct_status read_whole(ct_prototxt_reader *r, uint64_t low, uint64_t high, bool *minus_p,
                            uint64_t *value_p)
{
    ct_token first = r->token;
    bool minus = is_minus(r);
    char expected[96];
    integer_kind kind = NOT_INTEGER;

    if (r->token.kind == CT_TOKEN_NUMBER) kind = read_integer(&r->token, value_p);
    snprintf(expected, sizeof(expected), "a whole number from %s%" PRIu64 " to %" PRIu64,
             (low > 0) ? "-" : "", low, high);
    if (kind == NOT_INTEGER) return fail_number(r, minus, expected);
    if ((kind == TOO_LARGE) || (*value_p > (minus ? low : high))) {
        if (minus) { /* quote the sign too */
            first.length = (size_t)(r->token.start + r->token.length - first.start);
            first.kind = CT_TOKEN_NUMBER;
            r->token = first;
        }
        return ct_prototxt_reader_fail_expected(r, "%s", expected);
    }
    *minus_p = minus;
    ct_prototxt_reader_next(r);
    return CT_OK;
}

static ct_status read_signed(ct_prototxt_reader *r, int64_t high, int64_t *value_p)
{
    uint64_t v = 0;
    bool minus = false;

    CT_TRY(read_whole(r, (uint64_t)high + 1, (uint64_t)high, &minus, &v));
    *value_p = (int64_t)(minus ? UINT64_C(0) - v : v);
    return CT_OK;
}

static ct_status read_unsigned(ct_prototxt_reader *r, uint64_t high, uint64_t *value_p)
{
    bool minus = false;

    return read_whole(r, 0, high, &minus, value_p);
}

/* text is NUL-terminated; strtof for float, so that a value is rounded once. */
static bool convert_float(const char *text, bool is_double, scalar *v)
{
    if (is_double) {
        v->f64 = strtod(text, NULL);
        return isfinite(v->f64);
    }
    v->f32 = strtof(text, NULL);
    return isfinite(v->f32);
}

static void negate(bool is_double, scalar *v)
{
    if (is_double) {
        v->f64 = -v->f64;
    } else {
        v->f32 = -v->f32;
    }
}

static bool is_word(const ct_token *t, const char *word)
{
    return (t->kind == CT_TOKEN_NAME) && (t->length == strlen(word)) &&
           (strncasecmp(t->start, word, t->length) == 0);
}

static ct_status read_float(ct_prototxt_reader *r, bool is_double, scalar *v)
{
    bool minus = is_minus(r), is_finite;
    ct_text copy = { 0 };

    if (is_word(&r->token, "inf") || is_word(&r->token, "infinity") || is_word(&r->token, "nan")) {
        double special = is_word(&r->token, "nan") ? (double)NAN : (double)INFINITY;

        if (is_double) {
            v->f64 = special;
        } else {
            v->f32 = (float)special;
        }
    } else {
        if ((r->token.kind != CT_TOKEN_NUMBER) || !is_decimal_float(&r->token)) {
            return fail_number(r, minus, "a number");
        }
        ct_text_add_bytes(&copy, r->token.start, r->token.length);
        if (copy.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for a number");
        is_finite = convert_float(copy.text, is_double, v);
        ct_text_destroy(&copy);
        if (!is_finite) {
            return ct_prototxt_reader_fail_expected(r, "a number that a %s can hold",
                                                    is_double ? "double" : "float");
        }
    }
    if (minus) negate(is_double, v);
    ct_prototxt_reader_next(r);
    return CT_OK;
}

/* 1 and 0 for the words that bools take; 2: another. */
static int bool_word(const ct_token *t)
{
    if (ct_token_is_name(t, "true") || ct_token_is_name(t, "True") || ct_token_is_name(t, "t"))
        return 1;
    if (ct_token_is_name(t, "false") || ct_token_is_name(t, "False") || ct_token_is_name(t, "f"))
        return 0;
    return 2;
}

static ct_status read_bool(ct_prototxt_reader *r, protobuf_c_boolean *value_p)
{
    const ct_token *t = &r->token;
    uint64_t number = 2; /* neither */

    if (t->kind == CT_TOKEN_NUMBER) {
        if (read_integer(t, &number) != INTEGER) number = 2;
    } else {
        number = (uint64_t)bool_word(t);
    }
    if (number > 1) return ct_prototxt_reader_fail_expected(r, "true or false");
    *value_p = (protobuf_c_boolean)number;
    ct_prototxt_reader_next(r);
    return CT_OK;
}

static ct_status fail_enum(ct_prototxt_reader *r, const ProtobufCEnumDescriptor *type,
                           const char *word)
{
    ct_text text = { 0 };
    ct_status status;

    ct_text_add(&text, "unknown value ");
    ct_text_add_quoted(&text, word, strlen(word));
    ct_add_enum_hint(&text, type, word);
    status = text.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a message")
                         : ct_prototxt_reader_fail_value(r, r->token.line, r->token.column, "%s",
                                                         text.text);
    ct_text_destroy(&text);
    return status;
}

static ct_status read_enum(ct_prototxt_reader *r, const ProtobufCEnumDescriptor *type, int *value_p)
{
    const ProtobufCEnumValue *found = NULL;
    char word[80];

    if (r->token.kind == CT_TOKEN_NAME) {
        snprintf(word, sizeof(word), "%.*s", (int)((r->token.length < 79) ? r->token.length : 79),
                 r->token.start);
        found = protobuf_c_enum_descriptor_get_value_by_name(type, word);
        if ((type == &ct__recompute__descriptor) && (bool_word(&r->token) < 2)) /* once a bool */
            found = protobuf_c_enum_descriptor_get_value(type, bool_word(&r->token));
    } else if ((r->token.kind == CT_TOKEN_NUMBER) || ct_token_is(&r->token, '-')) {
        int64_t number;
        ct_token first = r->token;

        CT_TRY(read_signed(r, INT32_MAX, &number));
        found = protobuf_c_enum_descriptor_get_value(type, (int)number);
        if (found == NULL) {
            r->token = first;
            snprintf(word, sizeof(word), "%" PRId64, number);
            return fail_enum(r, type, word);
        }
        *value_p = found->value;
        return CT_OK;
    } else if (r->token.kind == CT_TOKEN_STRING) {
        return ct_prototxt_reader_fail_expected(r, "a name of %s without quotes", type->short_name);
    } else {
        return ct_prototxt_reader_fail_expected(r, "a name of %s", type->short_name);
    }
    if (found == NULL) return fail_enum(r, type, word);
    *value_p = found->value;
    ct_prototxt_reader_next(r);
    return CT_OK;
}

/* Strings that follow each other are one. */
static ct_status read_string(ct_prototxt_reader *r, bool is_bytes, ct_text *out)
{
    ct_token first = r->token;

    if (first.kind != CT_TOKEN_STRING)
        return ct_prototxt_reader_fail_expected(r, "a string in quotes");
    while (r->token.kind == CT_TOKEN_STRING) {
        size_t offset;
        const char *problem = ct_token_unescape(&r->token, out, &offset);

        if (problem != NULL) {
            return ct_prototxt_reader_fail_value(r, r->token.line, r->token.column + (int)offset,
                                                 "%s", problem);
        }
        ct_prototxt_reader_next(r);
    }
    if (out->failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for a string");
    if (!is_bytes && (strlen(out->text) != out->length)) {
        return ct_prototxt_reader_fail_value(r, first.line, first.column,
                                             "a NUL character in a string");
    }
    return CT_OK;
}

static ct_status put_string(ct_prototxt_reader *r, ProtobufCMessage *m,
                            const ProtobufCFieldDescriptor *f)
{
    bool is_bytes = (f->type == PROTOBUF_C_TYPE_BYTES);
    ct_text text = { 0 };
    ct_status status;
    scalar v;

    CT_TRY_GOTO(status, err_release, read_string(r, is_bytes, &text));
    if (is_bytes) {
        v.bytes = (ProtobufCBinaryData){ text.length, (uint8_t *)text.text };
    } else {
        v.string = text.text;
    }
    CT_TRY_GOTO(status, err_release, ct_field_put(m, f, &v, false));
    return CT_OK;

err_release:
    ct_text_destroy(&text);
    return status;
}

static ct_status prototxt_reader_scalar(ct_prototxt_reader *r, ProtobufCMessage *m,
                                        const ProtobufCFieldDescriptor *f)
{
    scalar v = { 0 };
    int64_t i = 0;
    uint64_t u = 0;

    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        CT_TRY(read_signed(r, INT32_MAX, &i));
        v.i32 = (int32_t)i;
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        CT_TRY(read_signed(r, INT64_MAX, &v.i64));
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        CT_TRY(read_unsigned(r, UINT32_MAX, &u));
        v.u32 = (uint32_t)u;
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        CT_TRY(read_unsigned(r, UINT64_MAX, &v.u64));
        break;
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE:
        CT_TRY(read_float(r, f->type == PROTOBUF_C_TYPE_DOUBLE, &v));
        break;
    case PROTOBUF_C_TYPE_BOOL:
        CT_TRY(read_bool(r, &v.boolean));
        break;
    case PROTOBUF_C_TYPE_ENUM:
        CT_TRY(read_enum(r, f->descriptor, &v.enumerator));
        break;
    default:
        return put_string(r, m, f);
    }
    return ct_field_put(m, f, &v, false);
}
