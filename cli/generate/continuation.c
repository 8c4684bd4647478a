#include "cli/generate/continuation.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "framework/base/clock.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/number.h"
#include "framework/data/words.h"
#include "framework/text/unicode.h"

enum { MOST_NEW = 1000000 };

/* A net that scores what follows. */
typedef struct scorer {
    ct_packed_net *packed; /* NULL: `words` */
    ct_packed_item item;
    int64_t kept; /* tokens of the prompt that the cache has of an earlier text */
    ct_word_net *words;
} scorer;

/* ---- what is asked for */

static ct_status read_number(const ct_options *o, const char *name, double least, double most,
                             double *v_p)
{
    const char *text = ct_options_text(o, name);
    char *end;
    double v;

    if (text == NULL) return CT_OK;
    if (!ct_number_real(text, &end, &v) || (*end != '\0') || !(v >= least) || !(v <= most))
        return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: a number from %g to %g is needed", name, text,
                       least, most);
    *v_p = v;
    return CT_OK;
}

static ct_status read_options(const ct_options *o, ct_continuation *c)
{
    c->max_tokens = ct_options_count(o, "max_tokens", 64);
    c->how.seed = (uint64_t)ct_options_count(o, "seed", 1);
    c->how.top_p = 1.0;
    if ((c->max_tokens < 1) || (c->max_tokens > MOST_NEW))
        return CT_FAIL(CT_ERR_CONFIG, "--max_tokens=%" PRId64 ": expected 1 to %d", c->max_tokens,
                       MOST_NEW);
    CT_TRY(read_number(o, "temperature", 0.0, 1000.0, &c->how.temperature));
    return read_number(o, "top_p", 1e-9, 1.0, &c->how.top_p);
}

ct_status ct_continuation_open(const ct_options *o, const char *tokenizer, const char *pattern,
                               ct_continuation *c)
{
    CT_TRY(read_options(o, c));
    CT_TRY(ct_tokenizer_open(tokenizer, pattern, &c->tokenizer));
    return ct_sampler_create(c->tokenizer, &c->sampler);
}

/* A list, one word a line, or that of a set. */
static ct_status read_vocabulary(const char *path, char **text_p, size_t *n_p)
{
    ct_words set = { 0 };
    ct_status status;

    if (!ct_text_ends_with(path, ".h5")) return ct_file_read(path, text_p, n_p);
    CT_TRY(ct_words_open(path, "the vocabulary", &set));
    status = ct_words_vocabulary(&set, text_p, n_p);
    ct_words_close(&set);
    return status;
}

ct_status ct_continuation_open_words(const ct_options *o, const char *vocabulary,
                                     ct_continuation *c)
{
    char *text = NULL;
    size_t n = 0;
    ct_status status;

    CT_TRY(read_options(o, c));
    c->words = true;
    CT_TRY(read_vocabulary(vocabulary, &text, &n));
    status = ct_tokenizer_words(text, n, vocabulary, &c->tokenizer);
    free(text);
    CT_TRY(status);
    return ct_sampler_create(c->tokenizer, &c->sampler);
}

void ct_continuation_close(ct_continuation *c)
{
    ct_sampler_destroy(c->sampler);
    ct_tokenizer_close(c->tokenizer);
    ct_ids_destroy(&c->made);
    ct_text_destroy(&c->text);
    *c = (ct_continuation){ .max_tokens = 0 };
}

ct_status ct_continuation_encode(const ct_continuation *c, const char *text, size_t n,
                                 const char *source, ct_ids *prompt)
{
    CT_TRY(ct_tokenizer_encode(c->tokenizer, text, n, false, source, prompt));
    if (prompt->n == 0) return CT_FAIL(CT_ERR_CONFIG, "%s has no token", source);
    return CT_OK;
}

int64_t ct_continuation_most(const ct_continuation *c, const ct_ids *prompt, int64_t n)
{
    int64_t most = 0;

    for (int64_t i = 0; i < n; i++)
        if (prompt[i].n + c->max_tokens - 1 > most) most = prompt[i].n + c->max_tokens - 1;
    return most;
}

/* ---- going on */

static ct_status choose(const ct_continuation *c, int64_t n_prompt, const float *score,
                        int32_t *id_p)
{
    if (ct_sampler_choose(c->sampler, &c->how, c->made.n, score, id_p) == CT_OK) return CT_OK;
    return CT_FAIL(CT_ERR_DATA, "after %" PRId64 " tokens the scores of the next are no numbers",
                   n_prompt + c->made.n);
}

/* What there is of the text and was not given yet; last: whether characters are whole or not. The
 * first of new words has a blank in front, or none, as the last one of the prompt wants it. */
static ct_status put_text(ct_continuation *c, const ct_ids *prompt, bool last,
                          ct_continuation_put put, void *ctx)
{
    size_t n, from;

    c->text.length = 0;
    if (c->words)
        CT_TRY(ct_tokenizer_decode(c->tokenizer, prompt->id + prompt->n - 1, 1, &c->text));
    from = c->text.length + c->written;
    CT_TRY(ct_tokenizer_decode(c->tokenizer, c->made.id, c->made.n, &c->text));
    n = last ? c->text.length : ct_utf8_whole(c->text.text, c->text.length);
    if (n <= from) return CT_OK;
    c->written += n - from;
    return put(ctx, c->text.text + from, n - from);
}

/* Tokens from `from` on, in chunks as long as each other: the scores behind them. */
static ct_status read_packed(ct_packed_net *net, const ct_ids *prompt, int64_t from,
                             ct_packed_item *item)
{
    int64_t chunks, chunk = ct_packed_net_most_tokens(net), n = prompt->n - from;

    if (chunk > CT_CONTINUATION_CHUNK) chunk = CT_CONTINUATION_CHUNK;
    chunks = (n + chunk - 1) / chunk;
    chunk = (n + chunks - 1) / chunks;
    for (int64_t at = from; at < prompt->n; at += item->n) {
        item->id = prompt->id + at;
        item->n = (prompt->n - at < chunk) ? prompt->n - at : chunk;
        item->want = (at + item->n < prompt->n) ? CT_ROWS_NONE : CT_ROWS_LAST;
        CT_TRY(ct_packed_net_run(net, item, 1));
    }
    return CT_OK;
}

/* The scores behind ids[n], which follow those before. */
static ct_status read_ids(scorer *s, const ct_ids *ids, const float **score_p)
{
    if (s->packed != NULL) {
        CT_TRY(read_packed(s->packed, ids, s->kept, &s->item));
        s->kept = 0;
        *score_p = s->item.row;
        return CT_OK;
    }
    for (int64_t i = 0; i < ids->n; i++) CT_TRY(ct_word_net_run(s->words, ids->id[i], score_p));
    return CT_OK;
}

static ct_status go_on(ct_continuation *c, scorer *s, const ct_ids *prompt, ct_continuation_put put,
                       void *ctx)
{
    int32_t end = ct_tokenizer_end(c->tokenizer), id = 0;
    const ct_ids one = { .id = &id, .n = 1 };
    const float *score = NULL;
    double start = ct_clock_s(), first;

    c->made.n = 0;
    c->written = 0;
    CT_TRY(read_ids(s, prompt, &score));
    first = ct_clock_s();
    for (;;) {
        CT_TRY(choose(c, prompt->n, score, &id));
        if (id == end) break;
        CT_TRY(ct_ids_add(&c->made, &id, 1));
        CT_TRY(put_text(c, prompt, false, put, ctx));
        if (c->made.n == c->max_tokens) break;
        CT_TRY(read_ids(s, &one, &score));
    }
    CT_TRY(put_text(c, prompt, true, put, ctx));
    c->ended = (id == end);
    c->prompt_s = first - start;
    c->made_s = ct_clock_s() - first;
    return CT_OK;
}

static ct_status open_sequence(const ct_continuation *c, ct_packed_net *net, const ct_ids *prompt,
                               ct_packed_sequence **s_p, int64_t *kept_p)
{
    return ct_packed_sequence_open(net, prompt->id, prompt->n, ct_continuation_most(c, prompt, 1),
                                   s_p, kept_p);
}

ct_status ct_continuation_check(const ct_continuation *c, ct_packed_net *net, const ct_ids *prompt)
{
    ct_packed_sequence *s = NULL;
    int64_t kept;
    ct_status status;

    CT_TRY(ct_packed_net_check_ids(net, ct_tokenizer_size(c->tokenizer),
                                   ct_tokenizer_source(c->tokenizer)));
    status = open_sequence(c, net, prompt, &s, &kept);
    ct_packed_sequence_close(s);
    return status;
}

ct_status ct_continuation_run(ct_continuation *c, ct_packed_net *net, const ct_ids *prompt,
                              ct_continuation_put put, void *ctx)
{
    scorer s = { .packed = net };
    ct_status status;

    CT_TRY(open_sequence(c, net, prompt, &s.item.sequence, &s.kept));
    status = go_on(c, &s, prompt, put, ctx);
    ct_packed_sequence_close(s.item.sequence);
    return status;
}

ct_status ct_continuation_run_words(ct_continuation *c, ct_word_net *net, const ct_ids *prompt,
                                    ct_continuation_put put, void *ctx)
{
    scorer s = { .words = net };

    ct_word_net_begin(net);
    return go_on(c, &s, prompt, put, ctx);
}
