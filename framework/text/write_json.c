/* A tokenizer that was trained here as a tokenizer.json of Hugging Face. */
#include <stdlib.h>
#include <string.h>

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

/* One token, or two with a blank between (right >= 0), as a JSON string. */
static void add_string(const ct_tokenizer *t, int32_t left, int32_t right, ct_text *to)
{
    ct_text text = { 0 };

    add_token(t, left, &text);
    if (right >= 0) {
        ct_text_add(&text, " ");
        add_token(t, right, &text);
    }
    ct_text_add_json(to, (text.text != NULL) ? text.text : "");
    to->failed = to->failed || text.failed;
    ct_text_destroy(&text);
}

static int by_rank(const void *pa, const void *pb)
{
    const struct ct_merge *a = pa, *b = pb;

    return (a->rank > b->rank) - (a->rank < b->rank);
}

static ct_status add_merges(const ct_tokenizer *t, ct_text *to)
{
    struct ct_merge *merge = malloc((size_t)(t->merges.n + 1) * sizeof(*merge));
    int64_t n = 0;

    if (merge == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write a tokenizer");
    for (int64_t i = 0; i < t->merges.n_slot; i++)
        if (t->merges.slot[i].left >= 0) merge[n++] = t->merges.slot[i];
    qsort(merge, (size_t)n, sizeof(*merge), by_rank);
    for (int64_t i = 0; i < n; i++) {
        ct_text_add(to, "%s\n      ", (i > 0) ? "," : "");
        add_string(t, merge[i].left, merge[i].right, to);
    }
    free(merge);
    return CT_OK;
}

static void add_added(const ct_tokenizer *t, ct_text *to)
{
    for (int i = 0; i < t->n_added; i++) {
        ct_text_add(to, "%s\n    { \"id\": %d, \"content\": ", (i > 0) ? "," : "", t->added[i].id);
        ct_text_add_json(to, t->added[i].name);
        ct_text_add(to, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                        "\"normalized\": false, \"special\": true }");
    }
}

ct_status ct_tokenizer_write(const ct_tokenizer *t, const char *path)
{
    static const char bytes[] = "{ \"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                "\"trim_offsets\": true, \"use_regex\": true }";
    bool chars = (t->model == CT_MODEL_CHARS);
    ct_text json = { 0 };
    ct_status status;

    ct_text_add(&json, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
                       "  \"added_tokens\": [");
    add_added(t, &json);
    ct_text_add(&json,
                "],\n  \"normalizer\": null,\n  \"pre_tokenizer\": %s,\n"
                "  \"post_processor\": null,\n  \"decoder\": %s,\n  \"model\": {\n"
                "    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
                "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
                "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"vocab\": {",
                chars ? "null" : bytes, chars ? "{ \"type\": \"Fuse\" }" : bytes);
    for (int32_t id = 0; id < t->table.n; id++) {
        if (t->table.token[id].hidden) continue;
        ct_text_add(&json, "%s\n      ", (id > 0) ? "," : "");
        add_string(t, id, -1, &json);
        ct_text_add(&json, ": %d", id);
    }
    ct_text_add(&json, "\n    },\n    \"merges\": [");
    status = add_merges(t, &json);
    ct_text_add(&json, "\n    ]\n  }\n}\n");
    if (json.failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", path);
    if (status == CT_OK) status = ct_file_write(path, json.text, json.length);
    ct_text_destroy(&json);
    return status;
}
