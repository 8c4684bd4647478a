/* tokenizer.json of Hugging Face's tokenizers: byte-level BPE, WordPiece, characters.
 * https://github.com/huggingface/tokenizers */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/text/tokenizer_private.h"

enum { SHOWN = 80 /* bytes of a text in a message */ };

static ct_status bad(const ct_tokenizer *t, const char *key, const char *why)
{
    return CT_FAIL(CT_ERR_DATA, "%s: %s %s", t->source, key, why);
}

/* ---- members of an object; what is missing or null is the fallback */

static const char *text_of(const json_t *object, const char *key, const char *fallback)
{
    const json_t *v = json_object_get(object, key);

    return json_is_string(v) ? json_string_value(v) : fallback;
}

static bool flag_of(const json_t *object, const char *key, bool fallback)
{
    const json_t *v = json_object_get(object, key);

    return json_is_boolean(v) ? json_is_true(v) : fallback;
}

static bool is_null(const json_t *v)
{
    return (v == NULL) || json_is_null(v);
}

/* ---- normalizer */

static ct_status add_form(ct_tokenizer *t, ct_normal_step form)
{
    if (t->n_form == CT_MAX_STEPS) return bad(t, "normalizer", "has too many parts");
    t->form[t->n_form++] = form;
    return CT_OK;
}

static ct_status read_bert_forms(ct_tokenizer *t, const json_t *v)
{
    bool low = flag_of(v, "lowercase", true);

    if (flag_of(v, "clean_text", true)) CT_TRY(add_form(t, CT_NORMAL_BERT_CLEAN));
    if (flag_of(v, "handle_chinese_chars", true)) CT_TRY(add_form(t, CT_NORMAL_BERT_CJK));
    if (flag_of(v, "strip_accents", low)) {
        CT_TRY(add_form(t, CT_NORMAL_NFD));
        CT_TRY(add_form(t, CT_NORMAL_BERT_ACCENTS));
    }
    return low ? add_form(t, CT_NORMAL_LOWER) : CT_OK;
}

static ct_status read_normalizer(ct_tokenizer *t, const json_t *v, int depth)
{
    const char *type = text_of(v, "type", "without a type");
    const json_t *list = json_object_get(v, "normalizers");

    if (is_null(v)) return CT_OK;
    if (strcmp(type, "NFC") == 0) return add_form(t, CT_NORMAL_NFC);
    if (strcmp(type, "NFD") == 0) return add_form(t, CT_NORMAL_NFD);
    if (strcmp(type, "Lowercase") == 0) return add_form(t, CT_NORMAL_LOWER);
    if (strcmp(type, "StripAccents") == 0) return add_form(t, CT_NORMAL_STRIP_MARKS);
    if (strcmp(type, "BertNormalizer") == 0) return read_bert_forms(t, v);
    if ((strcmp(type, "Sequence") == 0) && json_is_array(list) && (depth < CT_MAX_STEPS)) {
        for (size_t i = 0; i < json_array_size(list); i++)
            CT_TRY(read_normalizer(t, json_array_get(list, i), depth + 1));
        return CT_OK;
    }
    return CT_FAIL(CT_ERR_DATA,
                   "%s: normalizer %.*s is not known (NFC, NFD, Lowercase, StripAccents, "
                   "BertNormalizer, Sequence)",
                   t->source, SHOWN, type);
}

/* ---- pre_tokenizer */

static ct_status add_step(ct_tokenizer *t, ct_split split, bool prefix_blank)
{
    if (t->n_step == CT_MAX_STEPS) return bad(t, "pre_tokenizer", "has too many parts");
    t->step[t->n_step++] = (ct_split_step){ split, prefix_blank };
    return CT_OK;
}

/* Known patterns match every character, so that to isolate matches and to remove the rest is one.
 */
static ct_status read_split(ct_tokenizer *t, const json_t *v)
{
    const char *regex = text_of(json_object_get(v, "pattern"), "Regex", NULL);
    const char *behavior = text_of(v, "behavior", "");
    bool invert = flag_of(v, "invert", false), isolated = (strcmp(behavior, "Isolated") == 0);
    ct_split split;

    if (regex == NULL) return bad(t, "pre_tokenizer", "splits by a text, not by a Regex");
    if (!ct_split_of_regex(regex, &split))
        return CT_FAIL(
            CT_ERR_DATA,
            "%s: pre_tokenizer splits by \"%.*s%s\", which is none of the known patterns "
            "(GPT-2's, cl100k's, Llama 3's, Qwen 2's, o200k's, \\p{N}, \\p{N}+, "
            "\\p{N}{1,3})",
            t->source, SHOWN, regex, (strlen(regex) > SHOWN) ? "…" : "");
    if ((!isolated || invert) &&
        !((strcmp(behavior, "Removed") == 0) && invert && (split <= CT_SPLIT_O200K)))
        return CT_FAIL(CT_ERR_DATA, "%s: pre_tokenizer's Split has behavior %.*s%s, not Isolated",
                       t->source, SHOWN, behavior, invert ? ", inverted" : "");
    return add_step(t, split, false);
}

/* *bytes_p becomes true where a ByteLevel is among them. */
static ct_status read_pre_tokenizer(ct_tokenizer *t, const json_t *v, int depth, bool *bytes_p)
{
    const char *type = text_of(v, "type", "without a type");
    const json_t *list = json_object_get(v, "pretokenizers");

    if (is_null(v)) return CT_OK;
    if (strcmp(type, "ByteLevel") == 0) {
        *bytes_p = true;
        return add_step(t, flag_of(v, "use_regex", true) ? CT_SPLIT_GPT2 : CT_SPLIT_N,
                        flag_of(v, "add_prefix_space", true));
    }
    if (*bytes_p) return bad(t, "pre_tokenizer", "has a part behind ByteLevel");
    if (strcmp(type, "Split") == 0) return read_split(t, v);
    if (strcmp(type, "Digits") == 0)
        return add_step(
            t, flag_of(v, "individual_digits", false) ? CT_SPLIT_DIGITS : CT_SPLIT_DIGIT_RUNS,
            false);
    if (strcmp(type, "BertPreTokenizer") == 0) return add_step(t, CT_SPLIT_BERT, false);
    if ((strcmp(type, "Sequence") == 0) && json_is_array(list) && (depth < CT_MAX_STEPS)) {
        for (size_t i = 0; i < json_array_size(list); i++)
            CT_TRY(read_pre_tokenizer(t, json_array_get(list, i), depth + 1, bytes_p));
        return CT_OK;
    }
    return CT_FAIL(CT_ERR_DATA,
                   "%s: pre_tokenizer %.*s is not known (ByteLevel, Split, Digits, "
                   "BertPreTokenizer, Sequence)",
                   t->source, SHOWN, type);
}

/* ---- vocabulary */

static ct_status check_id(const ct_tokenizer *t, const char *what, const json_t *v, int32_t *id_p)
{
    json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;

    if ((id < 0) || (id >= CT_MAX_TOKENS))
        return CT_FAIL(CT_ERR_DATA, "%s: the id of \"%.*s\" is no whole number in 0..%d", t->source,
                       SHOWN, what, CT_MAX_TOKENS - 1);
    *id_p = (int32_t)id;
    return CT_OK;
}

/* The bytes of a token as the model writes it. */
static void take_bytes(const ct_tokenizer *t, const char *text, ct_text *to)
{
    if (to->text != NULL) to->length = 0;
    if (t->model == CT_MODEL_BPE)
        ct_bytes_of_alphabet(text, strlen(text), to);
    else
        ct_text_add_bytes(to, text, strlen(text));
}

static ct_status read_token(ct_tokenizer *t, const char *text, const json_t *v, ct_text *bytes)
{
    int32_t id;

    CT_TRY(check_id(t, text, v, &id));
    if (strlen(text) > CT_MAX_TOKEN_BYTES) return bad(t, "model.vocab", "has a token beyond 1 MiB");
    if (ct_token_table_has(&t->table, id))
        return CT_FAIL(CT_ERR_DATA, "%s: model.vocab has the id %d of \"%.*s\" twice", t->source,
                       id, SHOWN, text);
    take_bytes(t, text, bytes);
    if (bytes->failed) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", t->source);
    return ct_token_table_set(&t->table, id, (const uint8_t *)bytes->text, bytes->length, false);
}

static ct_status read_vocab(ct_tokenizer *t, json_t *vocab)
{
    ct_text bytes = { 0 };
    ct_status status = CT_OK;
    const char *text;
    json_t *v;

    if (!json_is_object(vocab) || (json_object_size(vocab) == 0))
        return bad(t, "model.vocab", "is no object with tokens and their ids");
    json_object_foreach(vocab, text, v)
    {
        status = read_token(t, text, v, &bytes);
        if (status != CT_OK) break;
    }
    ct_text_destroy(&bytes);
    return status;
}

/* The id of a token by its name in the file; -1: none. */
static int32_t find_name(const ct_tokenizer *t, const json_t *vocab, const char *name)
{
    const json_t *v = json_object_get(vocab, name);

    for (int i = 0; i < t->n_added; i++)
        if (strcmp(t->added[i].name, name) == 0) return t->added[i].id;
    return json_is_integer(v) ? (int32_t)json_integer_value(v) : -1;
}

static void find_bytes(ct_tokenizer *t, int32_t unknown)
{
    for (int i = 0; i < 256; i++) {
        uint8_t byte = (uint8_t)i;

        t->byte_id[i] = ct_token_table_find(&t->table, &byte, 1);
        if (t->byte_id[i] < 0) t->byte_id[i] = unknown;
    }
}

/* ---- merges */

/* "a b" or ["a", "b"]: both as malloc'ed texts; false: neither. */
static bool read_pair(const json_t *v, char **a_p, char **b_p)
{
    const char *a = json_string_value(json_array_get(v, 0)), *b, *blank;

    if (json_is_array(v)) {
        b = json_string_value(json_array_get(v, 1));
        if ((json_array_size(v) != 2) || (a == NULL) || (b == NULL)) return false;
        *a_p = strdup(a);
        *b_p = strdup(b);
    } else {
        a = json_string_value(v);
        blank = (a != NULL) ? strchr(a, ' ') : NULL;
        if ((blank == NULL) || (strchr(blank + 1, ' ') != NULL)) return false;
        *a_p = strndup(a, (size_t)(blank - a));
        *b_p = strdup(blank + 1);
    }
    return true;
}

static ct_status read_merge(ct_tokenizer *t, const json_t *vocab, const char *a, const char *b,
                            int32_t rank)
{
    int32_t left = find_name(t, vocab, a), right = find_name(t, vocab, b), both;
    ct_text joined = { 0 };

    ct_text_add(&joined, "%s%s", a, b);
    if (joined.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", t->source);
    both = find_name(t, vocab, joined.text);
    ct_text_destroy(&joined);
    if ((left < 0) || (right < 0) || (both < 0))
        return CT_FAIL(CT_ERR_DATA,
                       "%s: model.merges[%d] joins \"%.*s\" and \"%.*s\": %s not in model.vocab",
                       t->source, rank, SHOWN, a, SHOWN, b,
                       (left < 0)    ? "the first is"
                       : (right < 0) ? "the second is"
                                     : "what comes out is");
    return ct_merges_add(&t->merges, left, right, rank, both);
}

static ct_status read_merges(ct_tokenizer *t, const json_t *vocab, const json_t *merges)
{
    if (!json_is_array(merges)) return bad(t, "model.merges", "is no list");
    if (json_array_size(merges) >= INT32_MAX) return bad(t, "model.merges", "is too long");
    for (size_t i = 0; i < json_array_size(merges); i++) {
        char *a = NULL, *b = NULL;
        ct_status status;

        if (!read_pair(json_array_get(merges, i), &a, &b))
            return CT_FAIL(CT_ERR_DATA,
                           "%s: model.merges[%zu] is neither \"a b\" nor [\"a\", \"b\"]", t->source,
                           i);
        status = ((a != NULL) && (b != NULL))
                     ? read_merge(t, vocab, a, b, (int32_t)i)
                     : CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", t->source);
        free(a);
        free(b);
        CT_TRY(status);
    }
    return CT_OK;
}

/* ---- models */

static ct_status read_bpe(ct_tokenizer *t, const json_t *model)
{
    static const char *const none[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    json_t *vocab = json_object_get(model, "vocab");
    const json_t *dropout = json_object_get(model, "dropout");
    const char *unknown = text_of(model, "unk_token", NULL);
    int32_t unknown_id;

    for (int i = 0; i < 2; i++)
        if (text_of(model, none[i], "")[0] != '\0') return bad(t, none[i], "is not read");
    if (flag_of(model, "byte_fallback", false)) return bad(t, "model.byte_fallback", "is not read");
    if (json_is_number(dropout) && (json_number_value(dropout) > 0))
        return bad(t, "model.dropout", "is not read: ids would be random");
    CT_TRY(read_vocab(t, vocab));
    CT_TRY(read_merges(t, vocab, json_object_get(model, "merges")));
    t->whole_pieces = flag_of(model, "ignore_merges", false);
    unknown_id = ((unknown != NULL) && !flag_of(model, "fuse_unk", false))
                     ? find_name(t, vocab, unknown)
                     : -1;
    if (t->model == CT_MODEL_BPE)
        find_bytes(t, unknown_id);
    else
        t->unknown = unknown_id;
    return CT_OK;
}

static ct_status read_word_piece(ct_tokenizer *t, const json_t *model)
{
    json_t *vocab = json_object_get(model, "vocab");
    const json_t *most = json_object_get(model, "max_input_chars_per_word");
    const char *unknown = text_of(model, "unk_token", "[UNK]");

    CT_TRY(read_vocab(t, vocab));
    t->unknown = find_name(t, vocab, unknown);
    if (t->unknown < 0)
        return CT_FAIL(CT_ERR_DATA, "%s: model.unk_token \"%.*s\" is not in model.vocab", t->source,
                       SHOWN, unknown);
    t->prefix = strdup(text_of(model, "continuing_subword_prefix", "##"));
    if (t->prefix == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", t->source);
    t->max_chars = json_is_integer(most) ? json_integer_value(most) : 100;
    if ((t->max_chars < 1) || (t->max_chars > 100000))
        return bad(t, "model.max_input_chars_per_word", "is not in 1..100000");
    return CT_OK;
}

static ct_status read_model(ct_tokenizer *t, const json_t *model, bool bytes)
{
    bool merges = json_array_size(json_object_get(model, "merges")) > 0;
    bool words = json_is_integer(json_object_get(model, "max_input_chars_per_word"));
    const char *type = text_of(model, "type",
                               merges  ? "BPE" /* old files say no type */
                               : words ? "WordPiece"
                                       : "without a type");

    if (!json_is_object(model)) return bad(t, "model", "is missing");
    if (strcmp(type, "WordPiece") == 0) {
        if ((t->n_step != 1) || (t->step[0].split != CT_SPLIT_BERT))
            return bad(t, "pre_tokenizer", "of WordPiece must be BertPreTokenizer");
        t->model = CT_MODEL_WORD_PIECE;
        return read_word_piece(t, model);
    }
    if (strcmp(type, "BPE") != 0)
        return CT_FAIL(CT_ERR_DATA, "%s: model %.*s is not known (BPE, WordPiece)", t->source,
                       SHOWN, type);
    if (!bytes && (merges || (t->n_step > 0)))
        return bad(t, "model", "is BPE, but pre_tokenizer has no ByteLevel; only bytes are merged");
    t->model = bytes ? CT_MODEL_BPE : CT_MODEL_CHARS;
    return read_bpe(t, model);
}

/* ---- added_tokens */

static bool has_text(const ct_tokenizer *t, int32_t id, const char *text)
{
    ct_text bytes = { 0 };
    size_t n;
    const uint8_t *own = ct_token_bytes(&t->table, id, &n);
    bool same = (strlen(text) == n) && (memcmp(text, own, n) == 0);

    take_bytes(t, text, &bytes);
    same = same || ((bytes.length == n) && (memcmp(bytes.text, own, n) == 0));
    ct_text_destroy(&bytes);
    return same;
}

static ct_status read_added(ct_tokenizer *t, const json_t *v, size_t i)
{
    const char *text = text_of(v, "content", "");
    ct_added_token a = { .special = flag_of(v, "special", false),
                         .left_blanks = flag_of(v, "lstrip", false),
                         .right_blanks = flag_of(v, "rstrip", false),
                         .single_word = flag_of(v, "single_word", false) };

    a.normalised = flag_of(v, "normalized", !a.special);
    if ((text[0] == '\0') || (strlen(text) > CT_MAX_TOKEN_BYTES))
        return CT_FAIL(CT_ERR_DATA, "%s: added_tokens[%zu] has no content", t->source, i);
    CT_TRY(check_id(t, text, json_object_get(v, "id"), &a.id));
    if (ct_token_table_has(&t->table, a.id) && !has_text(t, a.id, text))
        return CT_FAIL(CT_ERR_DATA,
                       "%s: added_tokens[%zu], \"%.*s\", has the id %d of another token", t->source,
                       i, SHOWN, text, a.id);
    a.name = (char *)(uintptr_t)text;
    return ct_tokenizer_add(t, &a);
}

/* ---- the end token stands in another file */

static char *config_beside(const char *path)
{
    static const char name[] = "tokenizer_config.json";
    const char *base = ct_path_base(path);
    char *config = malloc((size_t)(base - path) + sizeof(name));

    if (config == NULL) return NULL;
    memcpy(config, path, (size_t)(base - path));
    memcpy(config + (base - path), name, sizeof(name));
    return config;
}

/* A file that is missing or says nothing leaves the end token to its usual names. */
static void find_end(ct_tokenizer *t, const json_t *vocab)
{
    char *path = config_beside(t->source);
    json_t *config = (path != NULL) ? json_load_file(path, 0, NULL) : NULL;
    const json_t *end = json_object_get(config, "eos_token");
    const char *name = json_is_object(end) ? text_of(end, "content", NULL) : json_string_value(end);

    if (name != NULL) t->end = find_name(t, vocab, name);
    json_decref(config);
    free(path);
}

static ct_status read_all(ct_tokenizer *t, const json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    const json_t *added = json_object_get(root, "added_tokens");
    bool bytes = false;

    CT_TRY(read_normalizer(t, json_object_get(root, "normalizer"), 0));
    CT_TRY(read_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), 0, &bytes));
    CT_TRY(read_model(t, model, bytes));
    for (size_t i = 0; i < json_array_size(added); i++)
        CT_TRY(read_added(t, json_array_get(added, i), i));
    find_end(t, json_object_get(model, "vocab"));
    return CT_OK;
}

ct_status ct_tokenizer_read_json(ct_tokenizer *t, const char *text, size_t n)
{
    size_t skip = ((n >= 3) && (memcmp(text, "\xef\xbb\xbf", 3) == 0)) ? 3 : 0;
    json_error_t error;
    json_t *root = json_loadb(text + skip, n - skip, JSON_REJECT_DUPLICATES, &error);
    ct_status status;

    if (root == NULL) return CT_FAIL(CT_ERR_DATA, "%s:%d: %s", t->source, error.line, error.text);
    status = json_is_object(root) ? read_all(t, root) : bad(t, "the file", "is no JSON object");
    json_decref(root);
    return status;
}
