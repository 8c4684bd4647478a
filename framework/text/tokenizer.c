#include "framework/text/tokenizer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/base/gguf.h"
#include "framework/text/tokenizer_private.h"
#include "framework/text/unicode.h"

/* ---- GPT-2's alphabet: bytes that are no printable characters of Latin-1 are those from U+0100
 * on, in their order (bytes_to_unicode() of
 * https://github.com/openai/gpt-2/blob/master/src/encoder.py) */

static bool is_printable(int byte)
{
    return ((byte > ' ') && (byte < 0x7f)) || ((byte > 0xa0) && (byte != 0xad));
}

uint32_t ct_char_of_byte(uint8_t byte)
{
    uint32_t c = 256;

    if (is_printable(byte)) return byte;
    for (int b = 0; b < byte; b++) c += !is_printable(b);
    return c;
}

int ct_byte_of_char(uint32_t c)
{
    if (c < 256) return is_printable((int)c) ? (int)c : -1;
    for (int b = 0; b < 256; b++)
        if (!is_printable(b) && (c-- == 256)) return b;
    return -1;
}

void ct_bytes_of_alphabet(const char *text, size_t n, ct_text *to)
{
    const uint8_t *p = (const uint8_t *)text, *end = p + n;
    size_t start = to->length;

    while (p < end) {
        int length, byte = ct_byte_of_char(ct_utf8_read(p, end, &length));
        char c = (char)byte;

        if (byte < 0) {
            if (to->text != NULL) to->length = start;
            ct_text_add_bytes(to, text, n);
            return;
        }
        ct_text_add_bytes(to, &c, 1);
        p += length;
    }
}

/* ---- life */

ct_status ct_tokenizer_create(const char *source, ct_tokenizer **t_p)
{
    ct_tokenizer *t = calloc(1, sizeof(*t));

    if ((t == NULL) || ((t->source = strdup(source)) == NULL)) {
        free(t);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the tokenizer %s", source);
    }
    t->end = -1;
    t->unknown = -1;
    t->line_end = -1;
    for (int i = 0; i < 256; i++) t->byte_id[i] = -1;
    *t_p = t;
    return CT_OK;
}

void ct_tokenizer_close(ct_tokenizer *t)
{
    if (t == NULL) return;
    for (int i = 0; i < t->n_added; i++) {
        free(t->added[i].text);
        free(t->added[i].name);
    }
    free(t->added);
    ct_token_table_destroy(&t->table);
    ct_merges_destroy(&t->merges);
    free(t->prefix);
    free(t->source);
    free(t);
}

ct_status ct_tokenizer_add(ct_tokenizer *t, const ct_added_token *token)
{
    const uint8_t *text = (const uint8_t *)token->name;
    size_t n = strlen(token->name);
    ct_added_token a = *token;

    if (t->n_added == t->room_added) {
        int room = (t->room_added == 0) ? 16 : 2 * t->room_added;
        ct_added_token *more = realloc(t->added, (size_t)room * sizeof(*more));

        if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", t->source);
        t->added = more;
        t->room_added = room;
    }
    if (!ct_token_table_has(&t->table, a.id))
        CT_TRY(ct_token_table_set(&t->table, a.id, text, n, true));
    a.name = strdup(token->name);
    a.text = (uint8_t *)strdup(token->name);
    a.n = n;
    t->added[t->n_added++] = a;
    return ((a.name != NULL) && (a.text != NULL))
               ? CT_OK
               : CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", t->source);
}

/* ---- making ready */

/* As in a dictionary; of equal texts the least id last, which is met first. */
static int by_text(const void *pa, const void *pb)
{
    const ct_added_token *a = pa, *b = pb;
    int order = memcmp(a->text, b->text, (a->n < b->n) ? a->n : b->n);

    if (order != 0) return order;
    if (a->n != b->n) return (a->n > b->n) ? 1 : -1;
    return (a->id < b->id) - (a->id > b->id);
}

static bool begins_with(const ct_added_token *a, const ct_added_token *shorter)
{
    return (shorter->n <= a->n) && (memcmp(a->text, shorter->text, shorter->n) == 0);
}

/* What a text begins with stands in front of it, and so do all between the two. */
static void link_shorter(ct_tokenizer *t)
{
    for (int i = 0; i < t->n_added; i++) {
        int k = i - 1;

        while ((k >= 0) && !begins_with(&t->added[i], &t->added[k])) k = t->added[k].shorter;
        t->added[i].shorter = k;
    }
}

static void find_end(ct_tokenizer *t)
{
    static const char *const names[] = { "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>",
                                         "<|im_end|>",    "<|eot_id|>",      "[SEP]" };

    for (size_t k = 0; (t->end < 0) && (k < sizeof(names) / sizeof(names[0])); k++)
        for (int i = 0; i < t->n_added; i++)
            if (t->added[i].special && (strcmp(t->added[i].name, names[k]) == 0))
                t->end = t->added[i].id;
}

ct_status ct_tokenizer_finish(ct_tokenizer *t)
{
    find_end(t);
    for (int i = 0; i < t->n_added; i++) {
        ct_added_token *a = &t->added[i];
        ct_text form = { 0 };

        if (t->n_form == 0) a->normalised = false;
        if (!a->normalised) continue;
        ct_tokenizer_normalise(t, a->text, a->n, &form);
        if (form.failed || (form.length == 0)) { /* nothing is left of it: it stays as it is */
            bool failed = form.failed;

            ct_text_destroy(&form);
            if (failed) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", t->source);
            continue;
        }
        free(a->text);
        a->text = (uint8_t *)form.text;
        a->n = form.length;
    }
    if (t->n_added > 0) qsort(t->added, (size_t)t->n_added, sizeof(*t->added), by_text);
    link_shorter(t);
    return CT_OK;
}

static ct_status open_bytes(ct_tokenizer *t)
{
    t->model = CT_MODEL_BYTES;
    for (int i = 0; i < 256; i++) {
        uint8_t byte = (uint8_t)i;

        t->byte_id[i] = i;
        CT_TRY(ct_token_table_set(&t->table, i, &byte, 1, false));
    }
    return CT_OK;
}

static bool begins_with_brace(const char *text, size_t n)
{
    size_t i = 0;

    if ((n >= 3) && (memcmp(text, "\xef\xbb\xbf", 3) == 0)) i = 3;
    while ((i < n) && isspace((unsigned char)text[i])) i++;
    return (i < n) && (text[i] == '{');
}

static ct_status refuse_pattern(const ct_tokenizer *t, const char *pattern)
{
    if (pattern == NULL) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "--pattern=%s: %s says itself how texts are split", pattern,
                   t->source);
}

static ct_status open_file(ct_tokenizer *t, const char *pattern)
{
    char *text;
    size_t n;
    ct_status status;

    if (ct_gguf_is(t->source)) {
        CT_TRY(refuse_pattern(t, pattern));
        return ct_tokenizer_read_gguf(t);
    }
    CT_TRY(ct_settings_read(t->source, &text, &n));
    status = begins_with_brace(text, n) ? refuse_pattern(t, pattern) : CT_OK;
    if (status == CT_OK)
        status = begins_with_brace(text, n) ? ct_tokenizer_read_json(t, text, n)
                                            : ct_tokenizer_read_ranks(t, text, n, pattern);
    free(text);
    return status;
}

ct_status ct_tokenizer_open(const char *what, const char *pattern, ct_tokenizer **t_p)
{
    ct_tokenizer *t;
    ct_status status;

    CT_TRY(ct_tokenizer_create(what, &t));
    if (strcmp(what, "bytes") == 0) {
        status = refuse_pattern(t, pattern);
        if (status == CT_OK) status = open_bytes(t);
    } else {
        status = open_file(t, pattern);
    }
    if (status == CT_OK) status = ct_tokenizer_finish(t);
    if (status != CT_OK) {
        ct_tokenizer_close(t);
        return status;
    }
    *t_p = t;
    return CT_OK;
}

/* ---- what it has */

int64_t ct_tokenizer_size(const ct_tokenizer *t)
{
    return t->table.n;
}

const char *ct_tokenizer_source(const ct_tokenizer *t)
{
    return t->source;
}

int32_t ct_tokenizer_end(const ct_tokenizer *t)
{
    return t->end;
}

int ct_tokenizer_n_special(const ct_tokenizer *t)
{
    int n = 0;

    for (int i = 0; i < t->n_added; i++) n += t->added[i].special;
    return n;
}

const char *ct_tokenizer_special(const ct_tokenizer *t, int i, int32_t *id_p)
{
    for (int k = 0; k < t->n_added; k++) {
        if (!t->added[k].special || (i-- > 0)) continue;
        *id_p = t->added[k].id;
        return t->added[k].name;
    }
    return NULL;
}

int32_t ct_tokenizer_find_special(const ct_tokenizer *t, const char *name)
{
    for (int k = 0; k < t->n_added; k++)
        if (t->added[k].special && (strcmp(t->added[k].name, name) == 0)) return t->added[k].id;
    return -1;
}

static bool is_token(const ct_tokenizer *t, int32_t id, const void *bytes, size_t n)
{
    size_t length;
    const uint8_t *own;

    if (!ct_token_table_has(&t->table, id)) return false;
    own = ct_token_bytes(&t->table, id, &length);
    return (length == n) && (memcmp(own, bytes, n) == 0);
}

/* Not where something stands for what it is not: an unknown token, an added one of another text. */
bool ct_tokenizer_is_exact(const ct_tokenizer *t)
{
    if ((t->model == CT_MODEL_WORD_PIECE) || (t->model == CT_MODEL_WORDS)) return false;
    if ((t->n_form > 0) || (t->unknown >= 0)) return false;
    for (int i = 0; i < 256; i++) {
        uint8_t byte = (uint8_t)i;

        if ((t->byte_id[i] >= 0) && !is_token(t, t->byte_id[i], &byte, 1)) return false;
    }
    for (int i = 0; i < t->n_step; i++)
        if (t->step[i].prefix_blank) return false;
    for (int i = 0; i < t->n_added; i++) {
        const ct_added_token *a = &t->added[i];

        if (a->left_blanks || a->right_blanks || !is_token(t, a->id, a->name, strlen(a->name)))
            return false;
    }
    return true;
}

/* ---- decoding */

/* A piece of a word joins what is in front of it; a word has a blank there. */
static void add_word(const ct_tokenizer *t, const uint8_t *bytes, size_t n, ct_text *to)
{
    size_t skip = strlen(t->prefix);

    if ((n >= skip) && (skip > 0) && (memcmp(bytes, t->prefix, skip) == 0)) {
        bytes += skip;
        n -= skip;
    } else if (to->length > 0) {
        ct_text_add_bytes(to, " ", 1);
    }
    ct_text_add_bytes(to, (const char *)bytes, n);
}

bool ct_tokenizer_has(const ct_tokenizer *t, int32_t id)
{
    return ct_token_table_has(&t->table, id);
}

ct_status ct_tokenizer_decode(const ct_tokenizer *t, const int32_t *ids, int64_t n, ct_text *to)
{
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *bytes;
        size_t length;

        if (!ct_token_table_has(&t->table, ids[i]))
            return CT_FAIL(CT_ERR_DATA, "token %lld is %d, which %s does not have (%d ids)",
                           (long long)i, ids[i], t->source, t->table.n);
        bytes = ct_token_bytes(&t->table, ids[i], &length);
        if (t->model == CT_MODEL_WORD_PIECE)
            add_word(t, bytes, length, to);
        else if (t->model == CT_MODEL_WORDS)
            ct_word_list_add(t, ids[i], to);
        else
            ct_text_add_bytes(to, (const char *)bytes, length);
    }
    return to->failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a text") : CT_OK;
}

void ct_ids_destroy(ct_ids *ids)
{
    free(ids->id);
    *ids = (ct_ids){ .id = NULL };
}

ct_status ct_ids_reserve(ct_ids *ids, int64_t room)
{
    int32_t *more;

    if (room <= ids->room) return CT_OK;
    more = realloc(ids->id, (size_t)room * sizeof(*more));
    if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %lld tokens", (long long)room);
    ids->id = more;
    ids->room = room;
    return CT_OK;
}

ct_status ct_ids_add(ct_ids *ids, const int32_t *id, int64_t n)
{
    int64_t room = (ids->room == 0) ? 1024 : ids->room;

    while (room < ids->n + n) room *= 2;
    if (n > ids->room - ids->n) CT_TRY(ct_ids_reserve(ids, room));
    if (n > 0) memcpy(ids->id + ids->n, id, (size_t)n * sizeof(*id));
    ids->n += n;
    return CT_OK;
}
