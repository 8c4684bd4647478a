/* How probable tokens were, and what else might have come, as OpenAI's replies say it. */
#include <inttypes.h>
#include <math.h>

#include "framework/base/json.h"
#include "framework/base/json_writer.h"
#include "framework/text/unicode.h"
#include "serve/api/completion.h"

static void token_text(const ct_choice *c, int32_t id, ct_text *to)
{
    to->length = 0;
    (void)ct_tokenizer_decode(ct_transaction_options(c->all->x)->model->tokenizer, &id, 1, to);
}

/* A name of its own: parts of characters as OpenAI writes them, "bytes:\\xe2"; and a byte of value
 * 0, which many readers of JSON refuse in names. */
static const char *token_name(const ct_text *piece, ct_text *name)
{
    const uint8_t *p = (const uint8_t *)piece->text, *end = p + piece->length;
    bool whole = true;
    int length;

    for (; whole && (p < end); p += length)
        whole = (ct_utf8_read(p, end, &length) != CT_NO_CHARACTER) && (*p != 0);
    if (whole) return (piece->length > 0) ? piece->text : "";
    name->length = 0;
    ct_text_add(name, "bytes:");
    for (size_t i = 0; i < piece->length; i++)
        ct_text_add(name, "\\x%02x", (unsigned char)piece->text[i]);
    return name->failed ? "" : name->text;
}

static void add_logprob(ct_json_writer *w, const char *key, const ct_scored_id *s)
{
    if (isfinite(s->logprob))
        ct_json_add_number(w, key, s->logprob);
    else
        ct_json_add_made(w, key, "-9999.0"); /* OpenAI's word for none */
}

/* Where tokens begin, in characters of the text as JSON has it: a byte that is no UTF-8 is one. */
static void add_offsets(const ct_choice *c, int64_t from, int64_t end, ct_json_writer *w)
{
    const uint8_t *text = (const uint8_t *)((c->text.length > 0) ? c->text.text : "");
    const uint8_t *p = text, *stop = text + c->text.length;
    int64_t n = 0;

    ct_json_begin_list(w, "text_offset");
    for (int64_t i = from; i < end; i++) {
        for (int length; (p < stop) && (p - text < c->token[i].offset); p += length, n++)
            (void)ct_utf8_read(p, stop, &length);
        ct_json_add_integer(w, NULL, n);
    }
    ct_json_end(w);
}

/* Tokens [from, to) in the form of /v1/completions. */
static void add_logprobs(const ct_choice *c, int64_t from, int64_t end, ct_json_writer *w)
{
    ct_text piece = { .text = NULL }, name = { .text = NULL };

    ct_json_begin_object(w, "logprobs");
    ct_json_begin_list(w, "tokens");
    for (int64_t i = from; i < end; i++) {
        token_text(c, c->token[i].own.id, &piece);
        ct_json_add_text(w, NULL, token_name(&piece, &name));
    }
    ct_json_end(w);
    ct_json_begin_list(w, "token_logprobs");
    for (int64_t i = from; i < end; i++) add_logprob(w, NULL, &c->token[i].own);
    ct_json_end(w);
    ct_json_begin_list(w, "top_logprobs");
    for (int64_t i = from; i < end; i++) {
        ct_json_begin_object(w, NULL);
        for (int k = 0; k < c->token[i].n_top; k++) {
            token_text(c, c->token[i].top[k].id, &piece);
            add_logprob(w, token_name(&piece, &name), &c->token[i].top[k]);
        }
        ct_json_end(w);
    }
    ct_json_end(w);
    add_offsets(c, from, end, w);
    ct_json_end(w);
    w->to->failed = w->to->failed || name.failed;
    ct_text_destroy(&name);
    ct_text_destroy(&piece);
}

/* Begins {"token", "logprob", "bytes" */
static void begin_scored(const ct_choice *c, const ct_scored_id *s, ct_text *piece,
                         ct_json_writer *w)
{
    token_text(c, s->id, piece);
    ct_json_begin_object(w, NULL);
    ct_json_add_bytes(w, "token", piece->text, piece->length);
    add_logprob(w, "logprob", s);
    ct_json_begin_list(w, "bytes");
    for (size_t i = 0; i < piece->length; i++)
        ct_json_add_integer(w, NULL, (unsigned char)piece->text[i]);
    ct_json_end(w);
}

/* The same in the form of /v1/chat/completions. */
static void add_chat_logprobs(const ct_choice *c, int64_t from, int64_t end, ct_json_writer *w)
{
    ct_text piece = { .text = NULL };

    ct_json_begin_object(w, "logprobs");
    ct_json_begin_list(w, "content");
    for (int64_t i = from; i < end; i++) {
        const ct_made_token *t = &c->token[i];

        begin_scored(c, &t->own, &piece, w);
        ct_json_begin_list(w, "top_logprobs");
        for (int k = 0; k < t->n_top; k++) {
            begin_scored(c, &t->top[k], &piece, w);
            ct_json_end(w);
        }
        ct_json_end(w);
        ct_json_end(w);
    }
    ct_json_end(w);
    ct_json_add_null(w, "refusal");
    ct_json_end(w);
    ct_text_destroy(&piece);
}

void ct_completion_add_logprobs(const ct_choice *c, int64_t from, int64_t end, ct_json_writer *w)
{
    if (!c->all->logprobs)
        ct_json_add_null(w, "logprobs");
    else
        (c->all->chat ? add_chat_logprobs : add_logprobs)(c, from, end, w);
}
