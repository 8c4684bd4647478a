/* From tokens to texts, in the dispatcher's threads: which token comes, and where a text ends. */
#include <inttypes.h>
#include <string.h>

#include "framework/base/rng.h"
#include "framework/text/unicode.h"
#include "serve/api/completion.h"

/* Where a stop begins in the text from `from` on; its length: none. */
static size_t find_stop(const ct_choice *c, size_t from)
{
    size_t found = c->text.length;

    for (int k = 0; k < c->all->n_stop; k++) {
        const char *stop = c->all->stop[k];
        size_t n = strlen(stop), begin = (from > n) ? from - n : 0;

        for (size_t i = begin; (i < found) && (i + n <= c->text.length); i++)
            if (memcmp(c->text.text + i, stop, n) == 0) found = i;
    }
    return found;
}

size_t ct_completion_certain(const ct_choice *c)
{
    size_t n = c->text.length, safe = n;

    for (int k = 0; k < c->all->n_stop; k++) {
        size_t length = strlen(c->all->stop[k]), most = (length - 1 < n) ? length - 1 : n;

        for (size_t i = most; i > 0; i--) {
            if (memcmp(c->text.text + n - i, c->all->stop[k], i) != 0) continue;
            if (n - i < safe) safe = n - i;
            break;
        }
    }
    return ct_utf8_whole(c->text.text, safe);
}

static void add_token_text(ct_choice *c, const ct_work *w)
{
    const ct_tokenizer *t = ct_transaction_options(c->all->x)->model->tokenizer;
    int64_t first = w->tokens;

    if (ct_tokenizer_is_exact(t)) {
        (void)ct_tokenizer_decode(t, w->ids.id + w->ids.n - 1, 1, &c->text);
        return;
    }
    c->text.length = 0;
    (void)ct_tokenizer_decode(t, w->ids.id + first, w->ids.n - first, &c->text);
}

static void note_scores(ct_choice *c, int replica, int32_t id, const float *score)
{
    const ct_completions *a = c->all;
    ct_made_token *t;

    if (!a->logprobs) return;
    t = &c->token[c->n_made];
    t->own.id = id;
    t->offset = (int64_t)c->text.length;
    t->own.logprob = ct_sampler_logprobs(ct_transaction_sampler(a->x, replica), score, id,
                                         (int)a->n_top, t->top, &t->n_top);
}

/* Takes the token into the text. */
static void take_token(ct_choice *c, ct_work *w, int32_t id, const float *score)
{
    size_t before = c->text.length, stop;

    note_scores(c, w->replica, id, score);
    c->n_made++;
    add_token_text(c, w);
    stop = (c->text.length > 0) ? find_stop(c, before) : 0;
    if (stop < c->text.length) {
        c->text.length = stop;
        c->finish = CT_AT_STOP;
    } else if (c->n_made == w->most_new) {
        c->finish = CT_AT_LENGTH;
    }
}

ct_status ct_completion_next(void *ctx, ct_work *w, const float *score, bool *ended_p)
{
    ct_choice *c = ctx;
    const ct_completions *a = c->all;
    ct_sampling how = a->how;
    int32_t id = -1;

    if (c->index > 0) how.seed = ct_rng_key(how.seed, (uint64_t)c->index, 2); /* texts of its own */
    if (ct_sampler_choose(ct_transaction_sampler(a->x, w->replica), &how, c->n_made, score, &id) !=
        CT_OK)
        return CT_FAIL(CT_ERR_DATA,
                       "after %" PRId64 " tokens the scores of the next are no numbers", w->ids.n);
    CT_TRY(ct_ids_add(&w->ids, &id, 1));
    ct_transaction_count_token(a->x, &c->last_s);
    if ((id == a->end[0]) || (id == a->end[1]))
        c->finish = CT_AT_STOP;
    else
        take_token(c, w, id, score);
    if (a->stream) ct_completion_tell(c);
    *ended_p = (c->finish != CT_GOES_ON);
    return CT_OK;
}
