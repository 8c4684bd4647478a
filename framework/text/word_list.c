/* Vocabularies of words, one a line: words stand between blanks, CT_WORD_END at the end of a line,
 * as `cortado convert text` reads a text. */
#include <string.h>

#include "framework/text/tokenizer_private.h"

static bool is_blank(uint8_t c)
{
    return (c == ' ') || (c == '\t') || (c == '\r') || (c == '\v') || (c == '\f');
}

static int32_t find(const ct_tokenizer *t, const char *word)
{
    return ct_token_table_find(&t->table, (const uint8_t *)word, strlen(word));
}

/* ---- reading */

static ct_status add_line(ct_tokenizer *t, const uint8_t *at, size_t n, long long line)
{
    for (size_t i = 0; i < n; i++)
        if (is_blank(at[i]) || (at[i] == '\0'))
            return CT_FAIL(CT_ERR_DATA, "%s:%lld: expected one word, without blanks", t->source,
                           line);
    if (n == 0) return CT_FAIL(CT_ERR_DATA, "%s:%lld: no word", t->source, line);
    if (ct_token_table_find(&t->table, at, n) >= 0)
        return CT_FAIL(CT_ERR_DATA, "%s:%lld: the word is there twice", t->source, line);
    if (t->table.n == CT_MAX_TOKENS)
        return CT_FAIL(CT_ERR_DATA, "%s:%lld: more than %d words", t->source, line, CT_MAX_TOKENS);
    return ct_token_table_set(&t->table, t->table.n, at, n, false);
}

static ct_status read_list(ct_tokenizer *t, const char *list, size_t size)
{
    const char *end = list + size;

    for (long long line = 1; list < end; line++) {
        const char *feed = memchr(list, '\n', (size_t)(end - list));
        const char *stop = (feed != NULL) ? feed : end;

        CT_TRY(add_line(t, (const uint8_t *)list, (size_t)(stop - list), line));
        list = (feed != NULL) ? feed + 1 : end;
    }
    t->unknown = find(t, CT_WORD_UNKNOWN);
    t->line_end = find(t, CT_WORD_END);
    if (t->line_end >= 0) return CT_OK;
    return CT_FAIL(CT_ERR_DATA, "%s: no %s, which ends every line", t->source, CT_WORD_END);
}

ct_status ct_tokenizer_words(const char *list, size_t size, const char *source, ct_tokenizer **t_p)
{
    ct_tokenizer *t;
    ct_status status;

    CT_TRY(ct_tokenizer_create(source, &t));
    t->model = CT_MODEL_WORDS;
    status = read_list(t, list, size);
    if (status == CT_OK) status = ct_tokenizer_finish(t);
    if (status != CT_OK) {
        ct_tokenizer_close(t);
        return status;
    }
    *t_p = t;
    return CT_OK;
}

/* ---- encoding, decoding */

static ct_status encode_word(const ct_tokenizer *t, const uint8_t *word, size_t n,
                             const char *source, long long line, int32_t *id_p)
{
    *id_p = ct_token_table_find(&t->table, word, n);
    if (*id_p < 0) *id_p = t->unknown;
    if (*id_p >= 0) return CT_OK;
    return CT_FAIL(CT_ERR_DATA, "%s:%lld: \"%.*s\" is not in %s, which has no %s for such words",
                   source, line, (int)((n < 64) ? n : 64), (const char *)word, t->source,
                   CT_WORD_UNKNOWN);
}

ct_status ct_word_list_encode(const ct_tokenizer *t, const uint8_t *text, size_t n,
                              const char *source, ct_ids_sink sink, void *ctx)
{
    const uint8_t *at = text, *end = text + n;
    long long line = 1;

    while (at < end) {
        const uint8_t *start = at;
        int32_t id = t->line_end;

        if (is_blank(*at)) {
            at++;
            continue;
        }
        if (*at == '\n') {
            at++;
            line++;
        } else {
            while ((at < end) && !is_blank(*at) && (*at != '\n')) at++;
            CT_TRY(encode_word(t, start, (size_t)(at - start), source, line, &id));
        }
        CT_TRY(sink(ctx, &id, 1));
    }
    return CT_OK;
}

void ct_word_list_add(const ct_tokenizer *t, int32_t id, ct_text *to)
{
    bool begins = (to->length == 0) || (to->text[to->length - 1] == '\n');
    size_t n;
    const uint8_t *word = ct_token_bytes(&t->table, id, &n);

    if (id == t->line_end) {
        ct_text_add_bytes(to, "\n", 1);
        return;
    }
    if (!begins) ct_text_add_bytes(to, " ", 1);
    ct_text_add_bytes(to, (const char *)word, n);
}
