/* How probable tokens were, and what else might have come, as OpenAI's replies say it. */
#include <inttypes.h>
#include <math.h>

#include "framework/base/json.h"
#include "framework/text/unicode.h"
#include "serve/api/completion.h"

static void token_text(const ct_choice *c, int32_t id, ct_text *to)
{
    to->length = 0;
    (void)ct_tokenizer_decode(ct_transaction_options(c->all->x)->model->tokenizer, &id, 1, to);
}

/* A name of its own: parts of characters as OpenAI writes them, "bytes:\\xe2"; and a byte of value
 * 0, which many readers of JSON refuse in names. */
static void add_token_name(ct_text *to, const ct_text *piece)
{
    const uint8_t *p = (const uint8_t *)piece->text, *end = p + piece->length;
    bool whole = true;
    int length;

    for (; whole && (p < end); p += length)
        whole = (ct_utf8_read(p, end, &length) != CT_NO_CHARACTER) && (*p != 0);
    if (whole) {
        ct_text_add_json_bytes(to, piece->text, piece->length);
        return;
    }
    ct_text_add(to, "\"bytes:");
    for (size_t i = 0; i < piece->length; i++)
        ct_text_add(to, "\\\\x%02x", (unsigned char)piece->text[i]);
    ct_text_add(to, "\"");
}

static void add_logprob(ct_text *to, const ct_scored_id *s)
{
    if (isfinite(s->logprob))
        ct_text_add_number(to, s->logprob);
    else
        ct_text_add(to, "-9999.0"); /* OpenAI's word for none */
}

/* Tokens [from, to) in the form of /v1/completions. */
static void add_logprobs(const ct_choice *c, int64_t from, int64_t end, ct_text *to)
{
    ct_text piece = { .text = NULL };

    ct_text_add(to, "{\"tokens\":[");
    for (int64_t i = from; i < end; i++) {
        token_text(c, c->token[i].own.id, &piece);
        ct_text_add(to, (i > from) ? "," : "");
        add_token_name(to, &piece);
    }
    ct_text_add(to, "],\"token_logprobs\":[");
    for (int64_t i = from; i < end; i++) {
        ct_text_add(to, (i > from) ? "," : "");
        add_logprob(to, &c->token[i].own);
    }
    ct_text_add(to, "],\"top_logprobs\":[");
    for (int64_t i = from; i < end; i++) {
        ct_text_add(to, (i > from) ? ",{" : "{");
        for (int k = 0; k < c->token[i].n_top; k++) {
            token_text(c, c->token[i].top[k].id, &piece);
            ct_text_add(to, (k > 0) ? "," : "");
            add_token_name(to, &piece);
            ct_text_add(to, ":");
            add_logprob(to, &c->token[i].top[k]);
        }
        ct_text_add(to, "}");
    }
    ct_text_add(to, "],\"text_offset\":[");
    for (int64_t i = from; i < end; i++)
        ct_text_add(to, "%s%" PRId64, (i > from) ? "," : "", c->token[i].offset);
    ct_text_add(to, "]}");
    ct_text_destroy(&piece);
}

/* {"token", "logprob", "bytes" */
static void add_scored(const ct_choice *c, const ct_scored_id *s, ct_text *piece, ct_text *to)
{
    token_text(c, s->id, piece);
    ct_text_add(to, "{\"token\":");
    ct_text_add_json_bytes(to, piece->text, piece->length);
    ct_text_add(to, ",\"logprob\":");
    add_logprob(to, s);
    ct_text_add(to, ",\"bytes\":[");
    for (size_t i = 0; i < piece->length; i++)
        ct_text_add(to, "%s%d", (i > 0) ? "," : "", (unsigned char)piece->text[i]);
    ct_text_add(to, "]");
}

/* The same in the form of /v1/chat/completions. */
static void add_chat_logprobs(const ct_choice *c, int64_t from, int64_t end, ct_text *to)
{
    ct_text piece = { .text = NULL };

    ct_text_add(to, "{\"content\":[");
    for (int64_t i = from; i < end; i++) {
        const ct_made_token *t = &c->token[i];

        ct_text_add(to, (i > from) ? "," : "");
        add_scored(c, &t->own, &piece, to);
        ct_text_add(to, ",\"top_logprobs\":[");
        for (int k = 0; k < t->n_top; k++) {
            ct_text_add(to, (k > 0) ? "," : "");
            add_scored(c, &t->top[k], &piece, to);
            ct_text_add(to, "}");
        }
        ct_text_add(to, "]}");
    }
    ct_text_add(to, "],\"refusal\":null}");
    ct_text_destroy(&piece);
}

void ct_completion_add_logprobs(const ct_choice *c, int64_t from, int64_t end, ct_text *to)
{
    ct_text_add(to, ",\"logprobs\":");
    if (!c->all->logprobs)
        ct_text_add(to, "null");
    else
        (c->all->chat ? add_chat_logprobs : add_logprobs)(c, from, end, to);
}
