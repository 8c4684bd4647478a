/* Text, a sentence a line: words between blanks, <eos> at the end of each line. */
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/data/convert_sink.h"
#include "framework/data/text_parts.h"
#include "framework/data/words.h"

typedef struct work {
    const ct_convert_options *o;
    ct_text_parts parts;
    ct_vocabulary v;
    ct_text words; /* the vocabulary, one word a line */
} work;

/* ---- words of a text */

typedef struct word_visitor {
    ct_status (*word)(void *ctx, const char *word, size_t length, int64_t line);
    void *ctx;
} word_visitor;

static bool is_blank(char c)
{
    return (c == ' ') || (c == '\t') || (c == '\r') || (c == '\v') || (c == '\f');
}

static ct_status visit_line(const char *at, const char *end, int64_t line, const word_visitor *v)
{
    for (;;) {
        const char *start;

        while ((at < end) && is_blank(*at)) at++;
        if (at == end) break;
        for (start = at; (at < end) && !is_blank(*at);) at++;
        CT_TRY(v->word(v->ctx, start, (size_t)(at - start), line));
    }
    return v->word(v->ctx, CT_WORD_END, strlen(CT_WORD_END), line);
}

static ct_status visit_text(const char *path, const char *text, size_t size, const word_visitor *v)
{
    const char *end = text + size;

    if (memchr(text, '\0', size) != NULL)
        return CT_FAIL(CT_ERR_DATA, "%s is not a text: it has bytes of value 0", path);
    for (int64_t line = 1; text < end; line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));

        CT_TRY(visit_line(text, (stop != NULL) ? stop : end, line, v));
        text = (stop != NULL) ? stop + 1 : end;
    }
    return CT_OK;
}

/* ---- vocabulary */

static ct_status count_word(void *ctx, const char *word, size_t length, int64_t line)
{
    (void)line;
    return ct_vocabulary_add(ctx, word, length, 1);
}

static ct_status count_words(work *w)
{
    char *text;
    size_t size;
    ct_status status;

    CT_TRY(ct_file_read(w->parts.from[CT_TEXT_TRAIN], &text, &size));
    status =
        visit_text(w->parts.from[CT_TEXT_TRAIN], text, size, &(word_visitor){ count_word, &w->v });
    free(text);
    CT_TRY(status);
    if (w->v.n == 0) return CT_FAIL(CT_ERR_DATA, "%s: no words", w->parts.from[CT_TEXT_TRAIN]);
    /* where words are dropped something must stand for them */
    if ((w->o->count > 0) && (w->v.n > w->o->count))
        CT_TRY(ct_vocabulary_add(&w->v, CT_WORD_UNKNOWN, strlen(CT_WORD_UNKNOWN), 0));
    return ct_vocabulary_rank(&w->v, w->o->count);
}

/* A list, or that of a set made before. */
static ct_status read_vocabulary(work *w)
{
    const char *path = w->o->vocabulary;
    ct_words set = { 0 };
    char *text = NULL;
    size_t size = 0;
    ct_status status;

    if (ct_text_ends_with(path, ".h5")) {
        CT_TRY_GOTO(status, out, ct_words_open(path, "--vocabulary", &set));
        CT_TRY_GOTO(status, out, ct_words_vocabulary(&set, &text, &size));
    } else {
        CT_TRY(ct_settings_read(path, &text, &size));
    }
    status = ct_vocabulary_parse(&w->v, text, size, path);
    if ((status == CT_OK) && (ct_vocabulary_find(&w->v, CT_WORD_END, strlen(CT_WORD_END)) < 0))
        status = CT_FAIL(CT_ERR_DATA, "%s: no %s, which ends every line", path, CT_WORD_END);
out:
    free(text);
    ct_words_close(&set);
    return status;
}

static ct_status make_vocabulary(work *w)
{
    CT_TRY((w->o->vocabulary != NULL) ? read_vocabulary(w) : count_words(w));
    for (int64_t i = 0; i < w->v.n; i++) {
        ct_text_add_bytes(&w->words, w->v.word[i].text, w->v.word[i].length);
        ct_text_add_bytes(&w->words, "\n", 1);
    }
    return w->words.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a vocabulary") : CT_OK;
}

/* ---- numbers */

typedef struct encoder {
    const ct_vocabulary *v;
    const char *path;
    int32_t unknown; /* -1: none */
    int64_t n_unknown;
    int32_t *number;
    int64_t n, room;
} encoder;

static ct_status encode_word(void *ctx, const char *word, size_t length, int64_t line)
{
    encoder *e = ctx;
    int32_t number = ct_vocabulary_find(e->v, word, length);

    if (number < 0) {
        if (e->unknown < 0)
            return CT_FAIL(CT_ERR_DATA,
                           "%s:%lld: \"%.*s\" is not in the vocabulary, which has no %s for such "
                           "words",
                           e->path, (long long)line, (int)((length < 64) ? length : 64), word,
                           CT_WORD_UNKNOWN);
        number = e->unknown;
        e->n_unknown++;
    }
    if (e->n == e->room) {
        int64_t room = (e->room == 0) ? 1 << 16 : 2 * e->room;
        int32_t *more = realloc(e->number, (size_t)room * sizeof(*more));

        if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %lld words", (long long)room);
        e->number = more;
        e->room = room;
    }
    e->number[e->n++] = number;
    return CT_OK;
}

static ct_status convert_part(const work *w, int part)
{
    encoder e = { .v = &w->v, .path = w->parts.from[part] };
    char *text;
    size_t size;
    ct_status status;

    CT_TRY(ct_file_read(w->parts.from[part], &text, &size));
    e.unknown = ct_vocabulary_find(&w->v, CT_WORD_UNKNOWN, strlen(CT_WORD_UNKNOWN));
    status = visit_text(e.path, text, size, &(word_visitor){ encode_word, &e });
    free(text);
    if ((status == CT_OK) && (e.n == 0)) status = CT_FAIL(CT_ERR_DATA, "%s: no words", e.path);
    if (status == CT_OK)
        status = ct_words_write(w->parts.to[part], e.number, e.n, w->words.text, w->words.length);
    if (status == CT_OK)
        CT_INFO("%s: %lld words, %lld of them unknown, vocabulary of %lld", w->parts.to[part],
                (long long)e.n, (long long)e.n_unknown, (long long)w->v.n);
    free(e.number);
    return status;
}

static ct_status convert(work *w)
{
    if ((w->o->vocabulary != NULL) && (w->o->count > 0))
        return CT_FAIL(CT_ERR_CONFIG, "--vocabulary and --words: the vocabulary is given, or made");
    CT_TRY(ct_text_parts_find(w->o, ".h5", "vocabulary.txt", &w->parts));
    CT_TRY(make_vocabulary(w));
    if (w->parts.folder) CT_TRY(ct_convert_make_folder(w->o->to));
    for (int i = 0; i < CT_TEXT_N_PART; i++)
        if (w->parts.from[i] != NULL) CT_TRY(convert_part(w, i));
    return (w->parts.list != NULL) ? ct_file_write(w->parts.list, w->words.text, w->words.length)
                                   : CT_OK;
}

ct_status ct_convert_text(const ct_convert_options *o)
{
    work w = { .o = o };
    ct_status status;

    if ((o->tokenizer != NULL) || (o->train_bpe > 0)) return ct_convert_to_tokens(o);
    if (o->special || (o->pattern != NULL))
        return CT_FAIL(CT_ERR_CONFIG, "--%s goes with --tokenizer",
                       o->special ? "special" : "pattern");
    status = convert(&w);
    ct_text_parts_destroy(&w.parts);
    ct_vocabulary_destroy(&w.v);
    ct_text_destroy(&w.words);
    return status;
}
