/* What the reader says when something is wrong: the place, the layer, the field, what may be
 * meant. The layer's name and type may stand behind the error, so they are looked up ahead. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "framework/proto/reader.h"

static bool has_field(const ProtobufCMessageDescriptor *type, const char *name)
{
    return protobuf_c_message_descriptor_get_field_by_name(type, name) != NULL;
}

static bool is_layer(const ct_frame *frame)
{
    return has_field(frame->type, "name") && has_field(frame->type, "type") &&
           has_field(frame->type, "bottom");
}

/* Walks a message's own fields (not those of messages in it) for `word: value`. */
static bool look_up(ct_lexer lex, const char *word, ct_token *value_p)
{
    int depth = 0;

    for (;;) {
        ct_token t = ct_lexer_next(&lex);

        if ((t.kind == CT_TOKEN_END) || (t.kind == CT_TOKEN_BAD)) return false;
        if (ct_token_is(&t, '{') || ct_token_is(&t, '<')) depth++;
        if (ct_token_is(&t, '}') || ct_token_is(&t, '>')) depth--;
        if (depth < 0) return false;
        if ((depth > 0) || !ct_token_is_name(&t, word)) continue;
        t = ct_lexer_next(&lex);
        if (ct_token_is(&t, ':')) t = ct_lexer_next(&lex);
        if ((t.kind == CT_TOKEN_STRING) || (t.kind == CT_TOKEN_NAME)) {
            *value_p = t;
            return true;
        }
    }
}

static bool look_up_type(const ct_frame *frame, ct_token *type_p)
{
    if (!look_up(frame->body, "type", type_p)) return false;
    if (type_p->kind == CT_TOKEN_STRING) {
        type_p->start++;
        type_p->length -= 2;
    }
    if (type_p->length > 40) type_p->length = 40;
    return true;
}

bool ct_frame_layer_type(const ct_frame *frame, char *type, size_t size)
{
    ct_token token;

    if (!is_layer(frame) || !look_up_type(frame, &token)) return false;
    snprintf(type, size, "%.*s", (int)token.length, token.start);
    return true;
}

static void add_layer(ct_text *t, const ct_frame *frame)
{
    ct_token name, type;
    bool has_name, has_type;

    while ((frame != NULL) && !is_layer(frame)) frame = frame->parent;
    if ((frame == NULL) || (frame->field == NULL)) return;
    has_name = look_up(frame->body, "name", &name) && (name.kind == CT_TOKEN_STRING);
    has_type = look_up_type(frame, &type);
    if (has_name) {
        ct_text_add(t, "in layer ");
        ct_text_add_quoted(t, name.start + 1, name.length - 2);
        if (has_type) ct_text_add(t, " (%.*s)", (int)type.length, type.start);
        ct_text_add(t, ": ");
    } else if (has_type) {
        ct_text_add(t, "in a layer of type %.*s: ", (int)type.length, type.start);
    }
}

static void add_frames(ct_text *t, const ct_prototxt_reader *r, const ct_frame *frame)
{
    if ((frame->field == NULL) || is_layer(frame)) return;
    /* the option's path ends with the field that its value is read into */
    if ((r->option_path != NULL) && (frame->parent->field == NULL)) return;
    add_frames(t, r, frame->parent);
    ct_text_add(t, "%s.", frame->field);
}

/* "convolution_param.weight_filler.std", from the layer down. */
static void add_path(ct_text *t, const ct_prototxt_reader *r)
{
    size_t before = t->length;

    if (r->option_path != NULL) ct_text_add(t, "%s.", r->option_path);
    add_frames(t, r, r->frame);
    if (r->field != NULL) ct_text_add(t, "%s.", r->field);
    if ((t->length > before) && !t->failed) t->text[--t->length] = '\0';
}

static void add_va(ct_text *t, const char *fmt, va_list ap)
{
    char text[1024];

    vsnprintf(text, sizeof(text), fmt, ap);
    ct_text_add(t, "%s", text);
}

/* Logs and frees `message`. */
static ct_status report(ct_prototxt_reader *r, int line, int column, ct_text *message)
{
    ct_text text = { 0 };
    ct_status status;

    if (r->option_path != NULL) {
        ct_text_add(&text, "%s: ", r->name);
        add_path(&text, r);
        ct_text_add(&text, ": ");
    } else {
        ct_text_add(&text, "%s:%d:%d: ", r->name, line, column);
        add_layer(&text, r->frame);
    }
    ct_text_add(&text, "%s", (message->text != NULL) ? message->text : "");
    if (text.failed || message->failed) {
        status = CT_FAIL(CT_ERR_NOMEM, "%s:%d:%d: no memory for a message", r->name, line, column);
    } else {
        status = CT_FAIL(CT_ERR_CONFIG, "%s", text.text);
    }
    ct_text_destroy(&text);
    ct_text_destroy(message);
    return status;
}

ct_status ct_prototxt_reader_fail_at(ct_prototxt_reader *r, int line, int column, const char *fmt,
                                     ...)
{
    ct_text message = { 0 };
    va_list ap;

    va_start(ap, fmt);
    add_va(&message, fmt, ap);
    va_end(ap);
    return report(r, line, column, &message);
}

ct_status ct_prototxt_reader_fail_value(ct_prototxt_reader *r, int line, int column,
                                        const char *fmt, ...)
{
    ct_text message = { 0 };
    va_list ap;

    if (r->option_path == NULL) add_path(&message, r); /* else report() adds it to all */
    if (message.length > 0) ct_text_add(&message, ": ");
    va_start(ap, fmt);
    add_va(&message, fmt, ap);
    va_end(ap);
    return report(r, line, column, &message);
}

ct_status ct_prototxt_reader_fail_expected(ct_prototxt_reader *r, const char *fmt, ...)
{
    ct_text message = { 0 };
    va_list ap;

    if (r->token.kind == CT_TOKEN_BAD) {
        ct_text_add(&message, "%s", r->token.problem);
        if (strcmp(r->token.problem, "unexpected character") == 0) {
            ct_text_add(&message, " ");
            ct_token_show(&r->token, &message);
        }
        return report(r, r->token.line, r->token.column, &message);
    }
    if (r->option_path == NULL) add_path(&message, r);
    ct_text_add(&message, (message.length > 0) ? ": expected " : "expected ");
    va_start(ap, fmt);
    add_va(&message, fmt, ap);
    va_end(ap);
    ct_text_add(&message, ", got ");
    ct_token_show(&r->token, &message);
    return report(r, r->token.line, r->token.column, &message);
}

ct_status ct_prototxt_reader_fail_unknown(ct_prototxt_reader *r)
{
    ct_text message = { 0 }, word = { 0 };

    ct_text_add(&message, "unknown field ");
    ct_text_add_quoted(&message, r->token.start, r->token.length);
    ct_text_add_bytes(&word, r->token.start, r->token.length);
    if (!word.failed) ct_add_field_hint(&message, r->frame->type, r->frame, word.text);
    ct_text_destroy(&word);
    return report(r, r->token.line, r->token.column, &message);
}
