/* A tokenizer that was trained here as a tokenizer.json of Hugging Face. */
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/base/json_writer.h"
#include "framework/text/tokenizer_private.h"
#include "framework/text/unicode.h"

/* A token as such files write it. */
static void add_token(const ct_tokenizer *t, int32_t id, ct_text *to)
{
    size_t n;
    const uint8_t *bytes = ct_token_bytes(&t->table, id, &n);

    if (t->model == CT_MODEL_CHARS)
        ct_text_add_bytes(to, (const char *)bytes, n);
    else
        for (size_t i = 0; i < n; i++) ct_utf8_add(to, ct_char_of_byte(bytes[i]));
}

/* One token, or two with a blank between (right >= 0), in `to`. */
static const char *text_of(const ct_tokenizer *t, int32_t left, int32_t right, ct_text *to)
{
    to->length = 0;
    add_token(t, left, to);
    if (right >= 0) {
        ct_text_add(to, " ");
        add_token(t, right, to);
    }
    return (to->length > 0) ? to->text : "";
}

static int by_rank(const void *pa, const void *pb)
{
    const struct ct_merge *a = pa, *b = pb;

    return (a->rank > b->rank) - (a->rank < b->rank);
}

static ct_status add_merges(const ct_tokenizer *t, ct_text *room, ct_json_writer *w)
{
    struct ct_merge *merge = malloc((size_t)(t->merges.n + 1) * sizeof(*merge));
    int64_t n = 0;

    if (merge == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write a tokenizer");
    for (int64_t i = 0; i < t->merges.n_slot; i++)
        if (t->merges.slot[i].left >= 0) merge[n++] = t->merges.slot[i];
    qsort(merge, (size_t)n, sizeof(*merge), by_rank);
    ct_json_begin_list(w, "merges");
    for (int64_t i = 0; i < n; i++) {
        ct_json_break(w);
        ct_json_add_text(w, NULL, text_of(t, merge[i].left, merge[i].right, room));
    }
    ct_json_break(w);
    ct_json_end(w);
    free(merge);
    return CT_OK;
}

static void add_added(const ct_tokenizer *t, ct_json_writer *w)
{
    ct_json_begin_list(w, "added_tokens");
    for (int i = 0; i < t->n_added; i++) {
        ct_json_break(w);
        ct_json_begin_object(w, NULL);
        ct_json_add_integer(w, "id", t->added[i].id);
        ct_json_add_text(w, "content", t->added[i].name);
        ct_json_add_bool(w, "single_word", false);
        ct_json_add_bool(w, "lstrip", false);
        ct_json_add_bool(w, "rstrip", false);
        ct_json_add_bool(w, "normalized", false);
        ct_json_add_bool(w, "special", true);
        ct_json_end(w);
    }
    ct_json_end(w);
}

/* Bytes as characters of their own. */
static void add_byte_level(const char *key, ct_json_writer *w)
{
    ct_json_break(w);
    ct_json_begin_object(w, key);
    ct_json_add_text(w, "type", "ByteLevel");
    ct_json_add_bool(w, "add_prefix_space", false);
    ct_json_add_bool(w, "trim_offsets", true);
    ct_json_add_bool(w, "use_regex", true);
    ct_json_end(w);
}

/* How texts become pieces before the model, and pieces a text again. */
static void add_steps(bool chars, ct_json_writer *w)
{
    ct_json_break(w);
    ct_json_add_null(w, "normalizer");
    if (chars)
        ct_json_add_null(w, "pre_tokenizer");
    else
        add_byte_level("pre_tokenizer", w);
    ct_json_break(w);
    ct_json_add_null(w, "post_processor");
    if (chars) {
        ct_json_begin_object(w, "decoder");
        ct_json_add_text(w, "type", "Fuse");
        ct_json_end(w);
    } else {
        add_byte_level("decoder", w);
    }
}

static ct_status add_model(const ct_tokenizer *t, ct_text *room, ct_json_writer *w)
{
    ct_json_break(w);
    ct_json_begin_object(w, "model");
    ct_json_add_text(w, "type", "BPE");
    ct_json_add_null(w, "dropout");
    ct_json_add_null(w, "unk_token");
    ct_json_add_null(w, "continuing_subword_prefix");
    ct_json_add_null(w, "end_of_word_suffix");
    ct_json_add_bool(w, "fuse_unk", false);
    ct_json_add_bool(w, "byte_fallback", false);
    ct_json_begin_object(w, "vocab");
    for (int32_t id = 0; id < t->table.n; id++) {
        if (t->table.token[id].hidden) continue;
        ct_json_break(w);
        ct_json_add_integer(w, text_of(t, id, -1, room), id);
    }
    ct_json_break(w);
    ct_json_end(w);
    CT_TRY(add_merges(t, room, w));
    ct_json_end(w);
    return CT_OK;
}

ct_status ct_tokenizer_write(const ct_tokenizer *t, const char *path)
{
    ct_text json = { 0 }, room = { 0 };
    ct_json_writer w = ct_json_into(&json);
    ct_status status;

    ct_json_begin_object(&w, NULL);
    ct_json_add_text(&w, "version", "1.0");
    ct_json_add_null(&w, "truncation");
    ct_json_add_null(&w, "padding");
    add_added(t, &w);
    add_steps(t->model == CT_MODEL_CHARS, &w);
    status = add_model(t, &room, &w);
    ct_json_end(&w);
    ct_text_add(&json, "\n");
    if ((status == CT_OK) && (json.failed || room.failed))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    if (status == CT_OK) status = ct_file_write(path, json.text, json.length);
    ct_text_destroy(&room);
    ct_text_destroy(&json);
    return status;
}
