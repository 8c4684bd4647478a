#include "serve/api/chat_template.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/base/gguf.h"

/* What stands around a message of `role`: open, role, middle, content, close. Special tokens are
 * those of the tokenizer; EOS is its end token. */
typedef struct form {
    const char *name;
    const char *begin; /* of the chat        */
    const char *open, *middle, *close;
    const char *end;    /* a special token: the reply is over; NULL: EOS */
    const char *marker; /* found in a Jinja text that is this template    */
    bool eos;           /* EOS stands between content and close           */
    bool trims;         /* white space around contents is left out        */
} form;

static const form form_of[] = {
    [CT_CHAT_NONE] = { .name = "NONE" },
    [CT_CHAT_CHATML] = { .name = "CHATML",
                         .begin = "",
                         .open = "<|im_start|>",
                         .middle = "\n",
                         .close = "<|im_end|>\n",
                         .end = "<|im_end|>",
                         .marker = "<|im_start|>" },
    [CT_CHAT_LLAMA3] = { .name = "LLAMA3",
                         .begin = "<|begin_of_text|>",
                         .open = "<|start_header_id|>",
                         .middle = "<|end_header_id|>\n\n",
                         .close = "<|eot_id|>",
                         .end = "<|eot_id|>",
                         .marker = "<|start_header_id|>",
                         .trims = true },
    [CT_CHAT_ZEPHYR] = { .name = "ZEPHYR",
                         .begin = "",
                         .open = "<|",
                         .middle = "|>\n",
                         .close = "\n",
                         .marker = "<|assistant|>",
                         .eos = true },
};
enum { N_FORM = sizeof(form_of) / sizeof(form_of[0]) };

bool ct_chat_template_named(const char *name, ct_chat_template *t_p)
{
    for (int i = 0; i < N_FORM; i++) {
        if (strcmp(name, form_of[i].name) != 0) continue;
        *t_p = (ct_chat_template)i;
        return true;
    }
    return false;
}

const char *ct_chat_template_name(ct_chat_template t)
{
    return form_of[t].name;
}

/* Zephyr's words are others' words, too: what else ends a message tells them apart. */
ct_chat_template ct_chat_template_of(const char *jinja)
{
    for (int i = CT_CHAT_CHATML; i < N_FORM; i++) {
        bool eos = (strstr(jinja, "eos_token") != NULL) && (strstr(jinja, "<|end|>") == NULL);

        if ((strstr(jinja, form_of[i].marker) != NULL) && (!form_of[i].eos || eos))
            return (ct_chat_template)i;
    }
    return CT_CHAT_NONE;
}

/* ---- where templates stand */

/* "chat_template": a text, or a list of such with names, of which "default" is meant. */
static ct_chat_template of_config(const json_t *config)
{
    const json_t *j = json_object_get(config, "chat_template"), *one;
    const char *text = json_string_value(j);
    size_t i;

    json_array_foreach(j, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));

        if ((name != NULL) && (strcmp(name, "default") == 0))
            text = json_string_value(json_object_get(one, "template"));
    }
    return (text != NULL) ? ct_chat_template_of(text) : CT_CHAT_NONE;
}

static ct_chat_template of_folder(const char *tokenizer)
{
    size_t folder = (size_t)(ct_path_base(tokenizer) - tokenizer);
    ct_chat_template found = CT_CHAT_NONE;
    ct_text path = { .text = NULL };
    json_t *config;

    ct_text_add_bytes(&path, tokenizer, folder);
    ct_text_add(&path, "tokenizer_config.json");
    config = path.failed ? NULL : json_load_file(path.text, 0, NULL);
    found = of_config(config);
    json_decref(config);
    ct_text_destroy(&path);
    return found;
}

static ct_chat_template of_gguf(const char *path)
{
    static const char key[] = "tokenizer.chat_template";
    ct_chat_template found = CT_CHAT_NONE;
    char *text = NULL;
    ct_gguf *g;

    if (ct_gguf_open(path, &g) != CT_OK) return found;
    if ((ct_gguf_find(g, key) != NULL) && (ct_gguf_text(g, key, &text) == CT_OK))
        found = ct_chat_template_of(text);
    free(text);
    ct_gguf_close(g);
    return found;
}

ct_chat_template ct_chat_template_find(const char *tokenizer)
{
    if (strcmp(tokenizer, "bytes") == 0) return CT_CHAT_NONE;
    return ct_gguf_is(tokenizer) ? of_gguf(tokenizer) : of_folder(tokenizer);
}

/* ---- messages to ids */

int32_t ct_chat_end(ct_chat_template template, const ct_tokenizer *t)
{
    const char *end = form_of[template].end;

    return (end != NULL) ? ct_tokenizer_find_special(t, end) : -1;
}

/* Ids so far, and text behind them that has none yet: what stands between two special tokens is
 * encoded as one, since a tokenizer may join a template's words with what users write. */
typedef struct writer {
    const ct_tokenizer *t;
    ct_ids *ids;
    ct_text text;
} writer;

static ct_status flush_text(writer *w)
{
    if (w->text.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for a chat");
    if (w->text.length > 0)
        CT_TRY(ct_tokenizer_encode(w->t, w->text.text, w->text.length, false, "a chat", w->ids));
    ct_text_destroy(&w->text);
    return CT_OK;
}

static ct_status add_special(writer *w, int32_t id)
{
    CT_TRY(flush_text(w));
    return ct_ids_add(w->ids, &id, 1);
}

/* The longest special token that the words begin with, and its bytes; -1: none. */
static int32_t special_at(const ct_tokenizer *t, const char *words, size_t *n_p)
{
    int32_t found = -1, id;

    *n_p = 0;
    if (words[0] != '<') return -1; /* those of these templates begin so */
    for (int i = 0, n_special = ct_tokenizer_n_special(t); i < n_special; i++) {
        const char *name = ct_tokenizer_special(t, i, &id);
        size_t n = strlen(name);

        if ((n <= *n_p) || (strncmp(words, name, n) != 0)) continue;
        *n_p = n;
        found = id;
    }
    return found;
}

/* Of the template: special tokens are such. */
static ct_status add_words(writer *w, const char *words)
{
    while (words[0] != '\0') {
        size_t n;
        int32_t id = special_at(w->t, words, &n);

        if (id >= 0) {
            CT_TRY(add_special(w, id));
        } else {
            n = 1;
            ct_text_add_bytes(&w->text, words, n);
        }
        words += n;
    }
    return CT_OK;
}

/* The role is within the words: where "<|user|>" is a special token, it is one. */
static ct_status add_opening(writer *w, const form *f, const char *role)
{
    ct_text words = { .text = NULL };
    ct_status status;

    ct_text_add(&words, "%s%s%s", f->open, role, f->middle);
    status =
        words.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a chat") : add_words(w, words.text);
    ct_text_destroy(&words);
    return status;
}

static bool is_space(char c)
{
    return (c == ' ') || ((c >= '\t') && (c <= '\r'));
}

static ct_status add_message(writer *w, const form *f, const ct_chat_message *m)
{
    const char *content = m->content;
    size_t n = m->n;

    while (f->trims && (n > 0) && is_space(content[n - 1])) n--;
    for (; f->trims && (n > 0) && is_space(content[0]); n--) content++;
    CT_TRY(add_opening(w, f, m->role));
    if (n > 0) ct_text_add_bytes(&w->text, content, n);
    if (f->eos) CT_TRY(add_special(w, ct_tokenizer_end(w->t)));
    return add_words(w, f->close);
}

static ct_status add_chat(writer *w, const form *f, const ct_chat_message *message, int n)
{
    CT_TRY(add_words(w, f->begin));
    for (int i = 0; i < n; i++) CT_TRY(add_message(w, f, &message[i]));
    CT_TRY(add_opening(w, f, "assistant"));
    return flush_text(w);
}

ct_status ct_chat_encode(ct_chat_template template, const ct_tokenizer *t,
                         const ct_chat_message *message, int n, ct_ids *ids)
{
    const form *f = &form_of[template];
    writer w = { .t = t, .ids = ids };
    ct_status status;

    if (f->eos && (ct_tokenizer_end(t) < 0))
        return CT_FAIL(CT_ERR_CONFIG, "%s has no end token, which %s puts behind messages",
                       ct_tokenizer_source(t), f->name);
    if ((f->end != NULL) && ((ct_tokenizer_find_special(t, f->end) < 0) ||
                             (ct_tokenizer_find_special(t, f->marker) < 0)))
        return CT_FAIL(CT_ERR_CONFIG, "%s has no special tokens %s and %s, which %s needs",
                       ct_tokenizer_source(t), f->marker, f->end, f->name);
    status = add_chat(&w, f, message, n);
    ct_text_destroy(&w.text);
    return status;
}
