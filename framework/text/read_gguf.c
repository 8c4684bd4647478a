/* The vocabulary in a GGUF file: byte-level BPE ("gpt2") and WordPiece ("bert"). How texts are
 * split stands there as a name alone; the table below has llama.cpp's (src/llama-vocab.cpp). */
#include <stdlib.h>
#include <string.h>

#include "framework/base/gguf.h"
#include "framework/text/tokenizer_private.h"

/* tokenizer.ggml.token_type */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER = 4, TYPE_UNUSED = 5 };

#define KEY "tokenizer.ggml."

/* Two splits, one after the other; CT_SPLIT_N: none. */
static const struct {
    const char *names; /* with a blank on both sides of each */
    ct_split first, second;
    bool whole_pieces;
} pre_splits[] = {
    { " gpt-2 phi-2 mpt olmo jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code "
      "roberta-bpe "
      "gigachat mellum modern-bert a.x-4.0 ",
      CT_SPLIT_GPT2, CT_SPLIT_N, false },
    { " llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 ", CT_SPLIT_LLAMA3,
      CT_SPLIT_N, true },
    { " dbrx smaug-bpe ", CT_SPLIT_LLAMA3, CT_SPLIT_N, false },
    { " qwen2 deepseek-r1-qwen stablelm2 megrez kormo ", CT_SPLIT_QWEN2, CT_SPLIT_N, false },
    { " gpt-4o llama4 ", CT_SPLIT_O200K, CT_SPLIT_N, false },
    { " smollm starcoder refact command-r codeshell minerva-7b ", CT_SPLIT_DIGITS, CT_SPLIT_GPT2,
      false },
};

enum { N_PRE = sizeof(pre_splits) / sizeof(pre_splits[0]) };

typedef struct reader {
    ct_tokenizer *t;
    const ct_gguf *g;
    const ct_gguf_value *tokens, *types;
    ct_text text, bytes; /* of the token at hand */
} reader;

static ct_status bad(const reader *r, const char *key, const char *why)
{
    return CT_FAIL(CT_ERR_DATA, "%s: %s %s", r->t->source, key, why);
}

/* NULL: it is not there. CT_ERR_DATA: no array of such items. */
static ct_status find_array(const reader *r, const char *key, bool strings,
                            const ct_gguf_value **v_p)
{
    const ct_gguf_value *v = ct_gguf_find(r->g, key);

    if ((v != NULL) && ((v->type != CT_GGUF_ARRAY) || ((v->item == CT_GGUF_STRING) != strings)))
        return bad(r, key, strings ? "is no array of strings" : "is no array of numbers");
    *v_p = v;
    return CT_OK;
}

/* An id, or `fallback` where the key is missing. */
static ct_status find_id(const reader *r, const char *key, int32_t fallback, int32_t *id_p)
{
    const ct_gguf_value *v = ct_gguf_find(r->g, key);
    int64_t id = fallback;

    if ((v != NULL) &&
        ((v->count != 1) || !ct_gguf_int(v, 0, &id) || !ct_token_table_has(&r->t->table, id)))
        return bad(r, key, "is no id of a token");
    *id_p = (int32_t)id;
    return CT_OK;
}

/* ---- tokens */

static void set_text(ct_text *to, const char *text, size_t n)
{
    to->length = 0;
    ct_text_add_bytes(to, text, n);
}

/* BERT's: words begin with U+2581, what goes on within a word with nothing. */
static void take_word_piece(reader *r, bool normal)
{
    static const char mark[] = "\xe2\x96\x81";
    const char *text = r->text.text;
    size_t n = r->text.length;

    r->bytes.length = 0;
    if (!normal) {
        ct_text_add_bytes(&r->bytes, text, n);
    } else if ((n >= 3) && (memcmp(text, mark, 3) == 0)) {
        ct_text_add_bytes(&r->bytes, text + 3, n - 3);
    } else {
        ct_text_add(&r->bytes, "##");
        ct_text_add_bytes(&r->bytes, text, n);
    }
}

static ct_status read_token(reader *r, int32_t id, int64_t type)
{
    bool normal = (type == TYPE_NORMAL);
    ct_added_token a = { .id = id, .special = (type != TYPE_USER), .name = r->text.text };

    if (r->text.length > CT_MAX_TOKEN_BYTES) return bad(r, KEY "tokens", "has one beyond 1 MiB");
    if (r->t->model == CT_MODEL_WORD_PIECE) {
        take_word_piece(r, normal);
    } else {
        r->bytes.length = 0;
        if (normal)
            ct_bytes_of_alphabet(r->text.text, r->text.length, &r->bytes);
        else
            ct_text_add_bytes(&r->bytes, r->text.text, r->text.length);
    }
    if (r->bytes.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", r->t->source);
    CT_TRY(ct_token_table_set(&r->t->table, id, (const uint8_t *)r->bytes.text, r->bytes.length,
                              !normal));
    if (normal || (type == TYPE_UNUSED)) return CT_OK;
    if ((r->text.length == 0) || (memchr(r->text.text, '\0', r->text.length) != NULL))
        return CT_FAIL(CT_ERR_DATA, "%s: " KEY "tokens[%d] is special, but no name", r->t->source,
                       id);
    return ct_tokenizer_add(r->t, &a);
}

static ct_status read_tokens(reader *r)
{
    const uint8_t *at;

    CT_TRY(find_array(r, KEY "tokens", true, &r->tokens));
    CT_TRY(find_array(r, KEY "token_type", false, &r->types));
    if ((r->tokens == NULL) || (r->tokens->count == 0) || (r->tokens->count > CT_MAX_TOKENS))
        return bad(r, KEY "tokens", "is missing, empty or too long");
    if ((r->types != NULL) && (r->types->count != r->tokens->count))
        return bad(r, KEY "token_type", "has another length than " KEY "tokens");
    at = r->tokens->data;
    for (uint64_t i = 0; i < r->tokens->count; i++) {
        int64_t type = TYPE_NORMAL;
        size_t n;
        const char *text = ct_gguf_next_string(&at, &n);

        set_text(&r->text, text, n);
        if (r->text.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", r->t->source);
        if ((r->types != NULL) && !ct_gguf_int(r->types, i, &type))
            return bad(r, KEY "token_type", "is no array of whole numbers");
        CT_TRY(read_token(r, (int32_t)i, type));
    }
    return CT_OK;
}

/* ---- byte-level BPE */

static ct_status read_split(reader *r)
{
    char *pre = NULL;
    ct_text want = { 0 };
    int k = 0;

    CT_TRY(ct_gguf_text(r->g, KEY "pre", &pre));
    ct_text_add(&want, " %s ", pre);
    if (want.failed || (strchr(pre, ' ') != NULL)) want.length = 0;
    while ((k < N_PRE) && ((want.length == 0) || (strstr(pre_splits[k].names, want.text) == NULL)))
        k++;
    ct_text_destroy(&want);
    if (k == N_PRE) {
        ct_status status = CT_FAIL(
            CT_ERR_DATA, "%s: " KEY "pre is \"%.40s\"; read are%s%s%s%s%sand%s", r->t->source, pre,
            pre_splits[0].names, pre_splits[1].names, pre_splits[2].names, pre_splits[3].names,
            pre_splits[4].names, pre_splits[5].names);

        free(pre);
        return status;
    }
    free(pre);
    r->t->step[r->t->n_step++] = (ct_split_step){ .split = pre_splits[k].first };
    if (pre_splits[k].second != CT_SPLIT_N)
        r->t->step[r->t->n_step++] = (ct_split_step){ .split = pre_splits[k].second };
    r->t->whole_pieces = pre_splits[k].whole_pieces;
    return CT_OK;
}

static int32_t find_token(const reader *r, const char *text, size_t n, ct_text *bytes)
{
    bytes->length = 0;
    ct_bytes_of_alphabet(text, n, bytes);
    if (bytes->failed || (bytes->text == NULL)) return -1;
    return ct_token_table_find(&r->t->table, (const uint8_t *)bytes->text, bytes->length);
}

/* "a b"; the blank may not be the first character, which a token may begin with. */
static ct_status read_merge(reader *r, const char *text, size_t n, int32_t rank)
{
    const char *blank = (n > 1) ? memchr(text + 1, ' ', n - 1) : NULL;
    size_t first = (blank != NULL) ? (size_t)(blank - text) : 0;
    int32_t left, right, both;

    if (blank == NULL)
        return CT_FAIL(CT_ERR_DATA, "%s: " KEY "merges[%d] is not \"a b\"", r->t->source, rank);
    left = find_token(r, text, first, &r->bytes);
    right = find_token(r, blank + 1, n - first - 1, &r->bytes);
    set_text(&r->text, text, first);
    ct_text_add_bytes(&r->text, blank + 1, n - first - 1);
    both = r->text.failed ? -1 : find_token(r, r->text.text, r->text.length, &r->bytes);
    if ((left < 0) || (right < 0) || (both < 0))
        return CT_FAIL(CT_ERR_DATA,
                       "%s: " KEY "merges[%d] has, or makes, what is not in " KEY "tokens",
                       r->t->source, rank);
    return ct_merges_add(&r->t->merges, left, right, rank, both);
}

static ct_status read_bpe(reader *r)
{
    const ct_gguf_value *merges = NULL;
    const uint8_t *at;

    r->t->model = CT_MODEL_BPE;
    CT_TRY(read_split(r));
    CT_TRY(read_tokens(r));
    CT_TRY(find_array(r, KEY "merges", true, &merges));
    if ((merges == NULL) || (merges->count >= INT32_MAX))
        return bad(r, KEY "merges", "is missing or too long");
    at = merges->data;
    for (uint64_t i = 0; i < merges->count; i++) {
        size_t n;
        const char *text = ct_gguf_next_string(&at, &n);

        CT_TRY(read_merge(r, text, n, (int32_t)i));
    }
    for (int i = 0; i < 256; i++) {
        uint8_t byte = (uint8_t)i;

        r->t->byte_id[i] = ct_token_table_find(&r->t->table, &byte, 1);
    }
    return find_id(r, KEY "eos_token_id", -1, &r->t->end);
}

/* ---- WordPiece */

static ct_status read_word_piece(reader *r)
{
    static const ct_normal_step forms[] = { CT_NORMAL_BERT_CLEAN, CT_NORMAL_BERT_CJK, CT_NORMAL_NFD,
                                            CT_NORMAL_BERT_ACCENTS, CT_NORMAL_LOWER };

    r->t->model = CT_MODEL_WORD_PIECE;
    r->t->max_chars = 100; /* as BERT has it */
    r->t->prefix = strdup("##");
    if (r->t->prefix == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", r->t->source);
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        r->t->form[r->t->n_form++] = forms[i];
    r->t->step[r->t->n_step++] = (ct_split_step){ .split = CT_SPLIT_BERT };
    CT_TRY(read_tokens(r));
    CT_TRY(find_id(r, KEY "unknown_token_id", 100, &r->t->unknown));
    if (!ct_token_table_has(&r->t->table, r->t->unknown))
        return bad(r, KEY "unknown_token_id", "is missing, and there is no token 100");
    return find_id(r, KEY "seperator_token_id", -1, &r->t->end);
}

static ct_status read_model(reader *r)
{
    char *model = NULL;
    ct_status status;

    CT_TRY(ct_gguf_text(r->g, KEY "model", &model));
    if (strcmp(model, "gpt2") == 0)
        status = read_bpe(r);
    else if (strcmp(model, "bert") == 0)
        status = read_word_piece(r);
    else
        status = CT_FAIL(CT_ERR_DATA, "%s: " KEY "model is \"%.40s\"; read are gpt2 and bert",
                         r->t->source, model);
    free(model);
    return status;
}

ct_status ct_tokenizer_read_gguf(ct_tokenizer *t)
{
    ct_gguf *g = NULL;
    reader r = { .t = t };
    ct_status status;

    CT_TRY(ct_gguf_open(t->source, &g));
    r.g = g;
    ct_text_add_bytes(&r.text, "", 0);
    ct_text_add_bytes(&r.bytes, "", 0);
    status = read_model(&r);
    ct_text_destroy(&r.text);
    ct_text_destroy(&r.bytes);
    ct_gguf_close(g);
    return status;
}
