/* Texts as ids of tokens in .bin files, and back. */
#include <stdlib.h>
#include <string.h>

#include "framework/base/file_map.h"
#include "framework/base/log.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/data/convert_sink.h"
#include "framework/data/text_parts.h"
#include "framework/data/token_file.h"
#include "framework/data/writer.h"
#include "framework/text/tokenizer.h"

typedef struct work {
    const ct_convert_options *o;
    ct_text_parts parts;
    ct_file_map text[CT_TEXT_N_PART];
    ct_tokenizer *tokenizer;
    bool makes;     /* the tokenizer is made of the text, and written … */
    char *to_write; /* … here                                           */
} work;

/* ---- options */

static bool is(const char *text, const char *word)
{
    return (text != NULL) && (strcmp(text, word) == 0);
}

static ct_status check_options(const ct_convert_options *o)
{
    if ((o->vocabulary != NULL) || (o->count > 0))
        return CT_FAIL(CT_ERR_CONFIG, "--%s is for words; --tokenizer and --train_bpe are not",
                       (o->vocabulary != NULL) ? "vocabulary" : "words");
    if ((o->train_bpe > 0) && (is(o->tokenizer, "char") || is(o->tokenizer, "bytes")))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--train_bpe and --tokenizer=%s: a trained tokenizer is written to a file, "
                       "which --tokenizer names",
                       o->tokenizer);
    if ((o->pattern != NULL) && ((o->train_bpe > 0) || is(o->tokenizer, "char")))
        return CT_FAIL(CT_ERR_CONFIG, "--pattern goes with a file of ranks");
    return CT_OK;
}

/* tokenizer.json in the folder of the outputs, or where --tokenizer says. */
static ct_status find_target(work *w)
{
    const char *base = ct_path_base(w->o->to);
    ct_text t = { 0 };

    if ((w->o->train_bpe > 0) && (w->o->tokenizer != NULL))
        ct_text_add(&t, "%s", w->o->tokenizer);
    else if (w->parts.folder)
        ct_text_add(&t, "%s/tokenizer.json", w->o->to);
    else
        ct_text_add(&t, "%.*stokenizer.json", (int)(base - w->o->to), w->o->to);
    if (t.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory");
    w->to_write = t.text;
    CT_TRY(ct_path_check_free(w->to_write, w->o->force));
    return w->parts.folder ? CT_OK : ct_file_check_writable(w->to_write);
}

/* ---- the tokenizer */

static ct_status collect_characters(work *w)
{
    ct_named_text text[CT_TEXT_N_PART];
    int n = 0;

    for (int i = 0; i < CT_TEXT_N_PART; i++) {
        if (w->parts.from[i] == NULL) continue;
        text[n] = (ct_named_text){ .text = (const char *)w->text[i].data,
                                   .n = (size_t)w->text[i].size,
                                   .source = w->parts.from[i] };
        n++;
    }
    return ct_tokenizer_chars(text, n, &w->tokenizer);
}

static ct_status make_tokenizer(work *w)
{
    const ct_file_map *train = &w->text[CT_TEXT_TRAIN];

    if (!w->makes) return ct_tokenizer_open(w->o->tokenizer, w->o->pattern, &w->tokenizer);
    if (w->o->train_bpe == 0) return collect_characters(w);
    CT_TRY(ct_tokenizer_train((const char *)train->data, (size_t)train->size, w->o->train_bpe,
                              &w->tokenizer));
    if (ct_tokenizer_size(w->tokenizer) < w->o->train_bpe)
        CT_WARN("--train_bpe=%lld: after %lld tokens no pair is left to merge",
                (long long)w->o->train_bpe, (long long)ct_tokenizer_size(w->tokenizer));
    return CT_OK;
}

/* ---- files */

typedef struct output {
    ct_token_writer *writer;
    int64_t n;
} output;

static ct_status take_ids(void *ctx, const int32_t *id, int64_t n)
{
    output *o = ctx;

    ct_token_writer_add(o->writer, id, n);
    o->n += n;
    return CT_OK;
}

static ct_status convert_part(const work *w, int part)
{
    const ct_file_map *text = &w->text[part];
    int width = ct_token_width(ct_tokenizer_size(w->tokenizer));
    output out = { .n = 0 };
    ct_status status;

    CT_TRY(ct_token_writer_open(w->parts.to[part], width, &out.writer));
    status = ct_tokenizer_encode_to(w->tokenizer, (const char *)text->data, (size_t)text->size,
                                    w->o->special, w->parts.from[part], take_ids, &out);
    if ((status == CT_OK) && (out.n == 0))
        status = CT_FAIL(CT_ERR_DATA, "%s: no text", w->parts.from[part]);
    CT_TRY(ct_token_writer_close(out.writer, status));
    CT_INFO("%s: %lld tokens of %d bits for %lld bytes of text, vocabulary of %lld",
            w->parts.to[part], (long long)out.n, 8 * width, (long long)text->size,
            (long long)ct_tokenizer_size(w->tokenizer));
    return CT_OK;
}

static ct_status convert(work *w)
{
    CT_TRY(check_options(w->o));
    w->makes = (w->o->train_bpe > 0) || is(w->o->tokenizer, "char");
    CT_TRY(ct_text_parts_find(w->o, ".bin", NULL, &w->parts));
    if (w->makes) CT_TRY(find_target(w));
    for (int i = 0; i < CT_TEXT_N_PART; i++)
        if (w->parts.from[i] != NULL) CT_TRY(ct_file_map_open(w->parts.from[i], &w->text[i]));
    CT_TRY(make_tokenizer(w));
    if (w->parts.folder) CT_TRY(ct_convert_make_folder(w->o->to));
    for (int i = 0; i < CT_TEXT_N_PART; i++)
        if (w->parts.from[i] != NULL) CT_TRY(convert_part(w, i));
    if (!w->makes) return CT_OK;
    CT_TRY(ct_tokenizer_write(w->tokenizer, w->to_write));
    CT_INFO("%s: the tokenizer", w->to_write);
    return CT_OK;
}

ct_status ct_convert_to_tokens(const ct_convert_options *o)
{
    work w = { .o = o };
    ct_status status = convert(&w);

    for (int i = 0; i < CT_TEXT_N_PART; i++) ct_file_map_close(&w.text[i]);
    ct_text_parts_destroy(&w.parts);
    ct_tokenizer_close(w.tokenizer);
    free(w.to_write);
    return status;
}

/* ---- back */

static ct_status decode_all(const ct_tokenizer *t, const ct_token_file *f, ct_text *text)
{
    int64_t large = ct_token_file_find_large(f, ct_tokenizer_size(t));
    int32_t *id = malloc((size_t)(f->count + 1) * sizeof(*id));
    ct_status status;

    if (id == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", f->path);
    status = ct_token_file_get(f, 0, f->count, id);
    if ((status == CT_OK) && (large >= 0))
        status = CT_FAIL(CT_ERR_DATA, "%s: token %lld is %d; %s has ids below %lld", f->path,
                         (long long)large, id[large], ct_tokenizer_source(t),
                         (long long)ct_tokenizer_size(t));
    if (status == CT_OK) status = ct_tokenizer_decode(t, id, f->count, text);
    free(id);
    return status;
}

static ct_status decode_file(const ct_convert_options *o, const ct_tokenizer *t)
{
    ct_token_file f = { .path = NULL };
    ct_text text = { 0 };
    ct_status status;

    CT_TRY(ct_token_file_open(o->from, ct_token_width(ct_tokenizer_size(t)), &f));
    status = decode_all(t, &f, &text);
    if (status == CT_OK)
        status = ct_file_write(o->to, (text.text != NULL) ? text.text : "", text.length);
    if (status == CT_OK)
        CT_INFO("%s: %zu bytes of %lld tokens", o->to, text.length, (long long)f.count);
    ct_text_destroy(&text);
    ct_token_file_close(&f);
    return status;
}

ct_status ct_convert_from_tokens(const ct_convert_options *o)
{
    ct_tokenizer *t;
    ct_status status;

    if (is(o->tokenizer, "char"))
        return CT_FAIL(CT_ERR_CONFIG, "--tokenizer=char: which characters stands in the "
                                      "tokenizer.json that convert text wrote; name that");
    CT_TRY(ct_path_check_free(o->to, o->force));
    CT_TRY(ct_file_check_writable(o->to));
    CT_TRY(ct_tokenizer_open(o->tokenizer, o->pattern, &t));
    status = decode_file(o, t);
    ct_tokenizer_close(t);
    return status;
}
