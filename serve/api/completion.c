/* POST /v1/completions and /v1/chat/completions. */

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "framework/base/clock.h"
#include "framework/base/rng.h"
#include "framework/text/unicode.h"
#include "serve/api/fields.h"

enum {
    MOST_STOPS = 4,
    MOST_STOP = 1000,      /* bytes */
    MOST_TOP = 20,         /* alternatives of a token                               */
    USUAL_NEW = 16,        /* tokens of a completion, where max_tokens is missing   */
    USUAL_NEW_CHAT = 1024, /* … of a reply, at most                               */
    TOKEN_BYTES = 256      /* of messages, for each token that they may have      */
};

typedef enum { GOES_ON, AT_STOP, AT_LENGTH } finish;

/* A token that was made, and its alternatives. */
typedef struct made_token {
    ct_scored_id own, top[MOST_TOP];
    int n_top;
    int64_t offset; /* characters of the text in front of it */
} made_token;

/* One prompt and what follows it. */
typedef struct choice {
    ct_completions *all;
    int index;
    ct_text text;         /* of the tokens that were made                           */
    size_t sent;          /* bytes of it that events have                           */
    int64_t n_sent_token; /* tokens whose logprobs events have                      */
    made_token *token;    /* [most_new], where logprobs are asked for               */
    int64_t n_made;
    double last_s; /* when the last token was made; 0: none was */
    finish finish;
} choice;

struct ct_completions {
    ct_transaction *x;
    bool chat, stream, include_usage, logprobs;
    int64_t n_top, most_new, created;
    ct_sampling how;
    char *stop[MOST_STOPS];
    int n_stop;
    int32_t end[2]; /* tokens that end a text; -1: none */
    choice *choice;
    int n;
    char id[40];
    /* events, where they stream: */
    pthread_mutex_t lock;
    ct_text out;
    size_t pulled; /* bytes of out */
    int n_ended;   /* choices      */
    bool broken;   /* the last event says why there are no more */
};

/* ---- text as JSON */

/* Whole characters as they are, other bytes as U+FFFD. */
static void add_text(ct_text *to, const char *text, size_t n)
{
    const uint8_t *p = (const uint8_t *)text, *end = p + n;
    int length;

    ct_text_add(to, "\"");
    for (; p < end; p += length) {
        if (ct_utf8_read(p, end, &length) == CT_NO_CHARACTER)
            ct_text_add(to, "\xef\xbf\xbd");
        else if ((*p == '"') || (*p == '\\'))
            ct_text_add(to, "\\%c", *p);
        else if (*p < 0x20)
            ct_text_add(to, "\\u%04x", *p);
        else
            ct_text_add_bytes(to, (const char *)p, (size_t)length);
    }
    ct_text_add(to, "\"");
}

/* ---- logprobs */

static void token_text(const choice *c, int32_t id, ct_text *to)
{
    to->length = 0;
    (void)ct_tokenizer_decode(ct_transaction_options(c->all->x)->model->tokenizer, &id, 1, to);
}

/* A name of its own: parts of characters as OpenAI writes them, "bytes:\\xe2". */
static void add_token_name(ct_text *to, const ct_text *piece)
{
    const uint8_t *p = (const uint8_t *)piece->text, *end = p + piece->length;
    bool whole = true;
    int length;

    for (; whole && (p < end); p += length)
        whole = (ct_utf8_read(p, end, &length) != CT_NO_CHARACTER);
    if (whole) {
        add_text(to, piece->text, piece->length);
        return;
    }
    ct_text_add(to, "\"bytes:");
    for (size_t i = 0; i < piece->length; i++)
        ct_text_add(to, "\\\\x%02x", (unsigned char)piece->text[i]);
    ct_text_add(to, "\"");
}

static void add_logprob(ct_text *to, const ct_scored_id *s)
{
    if (isfinite(s->logprob))
        ct_text_add_number(to, s->logprob);
    else
        ct_text_add(to, "-9999.0"); /* OpenAI's word for none */
}

/* Tokens [from, to) in the form of /v1/completions. */
static void add_logprobs(const choice *c, int64_t from, int64_t end, ct_text *to)
{
    ct_text piece = { .text = NULL };

    ct_text_add(to, "{\"tokens\":[");
    for (int64_t i = from; i < end; i++) {
        token_text(c, c->token[i].own.id, &piece);
        ct_text_add(to, (i > from) ? "," : "");
        add_token_name(to, &piece);
    }
    ct_text_add(to, "],\"token_logprobs\":[");
    for (int64_t i = from; i < end; i++) {
        ct_text_add(to, (i > from) ? "," : "");
        add_logprob(to, &c->token[i].own);
    }
    ct_text_add(to, "],\"top_logprobs\":[");
    for (int64_t i = from; i < end; i++) {
        ct_text_add(to, (i > from) ? ",{" : "{");
        for (int k = 0; k < c->token[i].n_top; k++) {
            token_text(c, c->token[i].top[k].id, &piece);
            ct_text_add(to, (k > 0) ? "," : "");
            add_token_name(to, &piece);
            ct_text_add(to, ":");
            add_logprob(to, &c->token[i].top[k]);
        }
        ct_text_add(to, "}");
    }
    ct_text_add(to, "],\"text_offset\":[");
    for (int64_t i = from; i < end; i++)
        ct_text_add(to, "%s%" PRId64, (i > from) ? "," : "", c->token[i].offset);
    ct_text_add(to, "]}");
    ct_text_destroy(&piece);
}

/* {"token", "logprob", "bytes" */
static void add_scored(const choice *c, const ct_scored_id *s, ct_text *piece, ct_text *to)
{
    token_text(c, s->id, piece);
    ct_text_add(to, "{\"token\":");
    add_text(to, piece->text, piece->length);
    ct_text_add(to, ",\"logprob\":");
    add_logprob(to, s);
    ct_text_add(to, ",\"bytes\":[");
    for (size_t i = 0; i < piece->length; i++)
        ct_text_add(to, "%s%d", (i > 0) ? "," : "", (unsigned char)piece->text[i]);
    ct_text_add(to, "]");
}

/* The same in the form of /v1/chat/completions. */
static void add_chat_logprobs(const choice *c, int64_t from, int64_t end, ct_text *to)
{
    ct_text piece = { .text = NULL };

    ct_text_add(to, "{\"content\":[");
    for (int64_t i = from; i < end; i++) {
        const made_token *t = &c->token[i];

        ct_text_add(to, (i > from) ? "," : "");
        add_scored(c, &t->own, &piece, to);
        ct_text_add(to, ",\"top_logprobs\":[");
        for (int k = 0; k < t->n_top; k++) {
            ct_text_add(to, (k > 0) ? "," : "");
            add_scored(c, &t->top[k], &piece, to);
            ct_text_add(to, "}");
        }
        ct_text_add(to, "]}");
    }
    ct_text_add(to, "],\"refusal\":null}");
    ct_text_destroy(&piece);
}

static void add_all_logprobs(const choice *c, int64_t from, int64_t end, ct_text *to)
{
    ct_text_add(to, ",\"logprobs\":");
    if (!c->all->logprobs)
        ct_text_add(to, "null");
    else
        (c->all->chat ? add_chat_logprobs : add_logprobs)(c, from, end, to);
}

/* ---- replies */

static void add_head(const ct_completions *a, const char *object, ct_text *to)
{
    ct_text_add(to, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", a->id,
                object, a->created);
    ct_text_add_json(to, ct_transaction_options(a->x)->model->name);
}

static void add_finish(const choice *c, ct_text *to)
{
    static const char *const word[] = { "null", "\"stop\"", "\"length\"" };

    ct_text_add(to, ",\"finish_reason\":%s}", word[c->finish]);
}

static void add_usage(const ct_completions *a, ct_text *to)
{
    int64_t prompt = 0, made = 0, cached = 0;

    for (int i = 0; i < a->n; i++) {
        prompt += a->x->set.work[i].tokens;
        cached += a->x->set.work[i].cached;
        made += a->choice[i].n_made;
    }
    ct_text_add(to,
                "\"usage\":{\"prompt_tokens\":%" PRId64 ",\"completion_tokens\":%" PRId64
                ",\"total_tokens\":%" PRId64
                ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRId64 "}}",
                prompt, made, prompt + made, cached);
}

static void answer(ct_transaction *x)
{
    ct_completions *a = x->completions;
    ct_text *to = &x->reply.body;

    add_head(a, a->chat ? "chat.completion" : "text_completion", to);
    ct_text_add(to, ",\"choices\":[");
    for (int i = 0; i < a->n; i++) {
        const choice *c = &a->choice[i];

        ct_text_add(to, "%s{\"index\":%d,", (i > 0) ? "," : "", i);
        ct_text_add(to, a->chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
        add_text(to, c->text.text, c->text.length);
        if (a->chat) ct_text_add(to, ",\"refusal\":null}");
        add_all_logprobs(c, 0, c->n_made, to);
        add_finish(c, to);
    }
    ct_text_add(to, "],");
    add_usage(a, to);
    ct_text_add(to, "}\n");
    ct_transaction_give_json(x);
}

/* ---- events, with the lock held */

static void begin_event(ct_completions *a)
{
    ct_text_add(&a->out, "data: ");
    add_head(a, a->chat ? "chat.completion.chunk" : "text_completion", &a->out);
    ct_text_add(&a->out, ",\"choices\":[");
}

static void end_event(ct_completions *a)
{
    ct_text_add(&a->out, "]%s}\n\n", a->include_usage ? ",\"usage\":null" : "");
}

/* text[n] of the choice, and the tokens up to `end`. */
static void add_event(choice *c, size_t n, int64_t end, bool last)
{
    ct_completions *a = c->all;
    finish at = c->finish;

    begin_event(a);
    ct_text_add(&a->out, "{\"index\":%d,", c->index);
    if (a->chat)
        ct_text_add(&a->out, "\"delta\":{%s\"content\":",
                    (c->sent == 0) && (c->n_sent_token == 0) ? "\"role\":\"assistant\"," : "");
    else
        ct_text_add(&a->out, "\"text\":");
    add_text(&a->out, (c->text.text != NULL) ? c->text.text + c->sent : "", n);
    if (a->chat) ct_text_add(&a->out, "}");
    add_all_logprobs(c, c->n_sent_token, end, &a->out);
    if (!last) c->finish = GOES_ON;
    add_finish(c, &a->out);
    c->finish = at;
    end_event(a);
    c->sent += n;
    c->n_sent_token = end;
}

/* Behind the last choice: the sum, and OpenAI's word for the end. */
static void end_stream(ct_completions *a)
{
    if (a->include_usage) {
        ct_text_add(&a->out, "data: ");
        add_head(a, a->chat ? "chat.completion.chunk" : "text_completion", &a->out);
        ct_text_add(&a->out, ",\"choices\":[],");
        add_usage(a, &a->out);
        ct_text_add(&a->out, "}\n\n");
    }
    ct_text_add(&a->out, "data: [DONE]\n\n");
}

/* ---- tokens, from the dispatcher's thread */

/* Where a stop begins in the text from `from` on; its length: none. */
static size_t find_stop(const choice *c, size_t from)
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

/* Bytes of the text that no stop can take away any more, in whole characters. */
static size_t certain(const choice *c)
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

static void add_token_text(choice *c, const ct_work *w)
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

/* Bytes that do not go on with a character. */
static int64_t count_characters(const ct_text *t)
{
    int64_t n = 0;

    for (size_t i = 0; i < t->length; i++) n += (((unsigned char)t->text[i] & 0xc0) != 0x80);
    return n;
}

static void note_scores(choice *c, int32_t id, const float *score)
{
    const ct_completions *a = c->all;
    made_token *t;

    if (!a->logprobs) return;
    t = &c->token[c->n_made];
    t->own.id = id;
    t->offset = count_characters(&c->text);
    t->own.logprob = ct_sampler_logprobs(ct_transaction_sampler(a->x), score, id, (int)a->n_top,
                                         t->top, &t->n_top);
}

/* Takes the token into the text. */
static void take_token(choice *c, ct_work *w, int32_t id, const float *score)
{
    size_t before = c->text.length, stop;

    note_scores(c, id, score);
    c->n_made++;
    add_token_text(c, w);
    stop = (c->text.length > 0) ? find_stop(c, before) : 0;
    if (stop < c->text.length) {
        c->text.length = stop;
        c->finish = AT_STOP;
    } else if (c->n_made == w->most_new) {
        c->finish = AT_LENGTH;
    }
}

/* Says what is certain by now. */
static void tell(choice *c)
{
    ct_completions *a = c->all;
    bool ends = (c->finish != GOES_ON);
    size_t n;

    (void)pthread_mutex_lock(&a->lock);
    n = (ends ? c->text.length : (c->text.length > 0) ? certain(c) : 0);
    n = (n > c->sent) ? n - c->sent : 0;
    if ((n > 0) || ends) add_event(c, n, c->n_made, ends);
    if (ends && (++a->n_ended == a->n)) end_stream(a);
    (void)pthread_mutex_unlock(&a->lock);
    if ((n > 0) || ends) a->x->wake(a->x->set.ctx);
}

static ct_status next(void *ctx, ct_work *w, const float *score, bool *ended_p)
{
    choice *c = ctx;
    const ct_completions *a = c->all;
    ct_sampling how = a->how;
    int32_t id = -1;

    if (c->index > 0) how.seed = ct_rng_key(how.seed, (uint64_t)c->index, 2); /* texts of its own */
    if (ct_sampler_choose(ct_transaction_sampler(a->x), &how, c->n_made, score, &id) != CT_OK)
        return CT_FAIL(CT_ERR_DATA,
                       "after %" PRId64 " tokens the scores of the next are no numbers", w->ids.n);
    CT_TRY(ct_ids_add(&w->ids, &id, 1));
    ct_transaction_count_token(a->x, &c->last_s);
    if ((id == a->end[0]) || (id == a->end[1]))
        c->finish = AT_STOP;
    else
        take_token(c, w, id, score);
    if (a->stream) tell(c);
    *ended_p = (c->finish != GOES_ON);
    return CT_OK;
}

/* ---- pulling */

bool ct_transaction_streams(ct_transaction *x)
{
    ct_completions *a = x->completions;
    bool some;

    if ((a == NULL) || !a->stream) return false;
    (void)pthread_mutex_lock(&a->lock);
    some = (a->out.length > 0);
    (void)pthread_mutex_unlock(&a->lock);
    if (!some) return false;
    x->reply.status = 200;
    x->reply.type = "text/event-stream";
    return true;
}

size_t ct_transaction_pull(ct_transaction *x, char *to, size_t most)
{
    ct_completions *a = x->completions;
    size_t n;

    (void)pthread_mutex_lock(&a->lock);
    n = a->out.length - a->pulled;
    if (n > most) n = most;
    if (n > 0) memcpy(to, a->out.text + a->pulled, n);
    a->pulled += n;
    if (a->pulled == a->out.length) a->pulled = a->out.length = 0;
    (void)pthread_mutex_unlock(&a->lock);
    return n;
}

void ct_transaction_end_events(ct_transaction *x)
{
    static const char *const why[] = { [CT_OUTCOME_EXPIRED] = "the deadline passed",
                                       [CT_OUTCOME_CANCELLED] = "the request was cancelled",
                                       [CT_OUTCOME_FAILED] =
                                           "the model failed; the server's log says why" };
    ct_completions *a = x->completions;

    if ((x->set.outcome == CT_OUTCOME_DONE) || a->broken) return;
    (void)pthread_mutex_lock(&a->lock);
    a->broken = true;
    ct_text_add(&a->out,
                "data: {\"error\":{\"message\":\"%s\",\"type\":\"server_error\",\"param\":null,"
                "\"code\":null}}\n\n",
                why[x->set.outcome]);
    (void)pthread_mutex_unlock(&a->lock);
}

/* ---- what is asked */

static const char *const common[] = { "model",
                                      "max_tokens",
                                      "temperature",
                                      "top_p",
                                      "n",
                                      "stream",
                                      "stream_options",
                                      "stop",
                                      "seed",
                                      "logprobs",
                                      "user",
                                      "presence_penalty",
                                      "frequency_penalty",
                                      "logit_bias",
                                      NULL };
static const char *const of_text[] = { "prompt", "echo", "best_of", "suffix", NULL };
static const char *const of_chat[] = {
    "messages", "max_completion_tokens", "top_logprobs", "response_format",
    "tools",    "tool_choice",           "store",        "metadata",
    NULL
};

static bool check_names(ct_transaction *x, bool chat)
{
    const char *known[32];
    int n = 0;

    for (int i = 0; common[i] != NULL; i++) known[n++] = common[i];
    for (int i = 0; (chat ? of_chat : of_text)[i] != NULL; i++)
        known[n++] = (chat ? of_chat : of_text)[i];
    known[n] = NULL;
    return ct_transaction_check_members(x, x->root, "", known);
}

/* What this server does not do: such a field may only say so. */
static bool check_not_done(ct_transaction *x)
{
    static const char *const none[] = { "logit_bias", "suffix", "tools", "tool_choice",
                                        "metadata" };
    static const char *const zero[] = { "presence_penalty", "frequency_penalty" };
    static const char *const one[] = { "n", "best_of" };
    const json_t *format = json_object_get(ct_fields_get(x, "response_format"), "type");
    int64_t whole;
    double number;
    bool flag = false;

    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        const json_t *j = ct_fields_get(x, none[i]);
        const char *text = json_string_value(j);
        bool empty = (j == NULL) ||
                     ((text != NULL) && ((text[0] == '\0') || !strcmp(text, "none"))) ||
                     (json_is_object(j) && (json_object_size(j) == 0)) ||
                     (json_is_array(j) && (json_array_size(j) == 0));

        if (empty || (strcmp(none[i], "metadata") == 0)) continue;
        ct_transaction_fail(x, 400, none[i], "not_supported", "%s: this server has none", none[i]);
        return false;
    }
    for (size_t i = 0; i < sizeof(zero) / sizeof(zero[0]); i++)
        if (!ct_fields_number(x, zero[i], 0, 0, &number)) return false;
    for (size_t i = 0; i < sizeof(one) / sizeof(one[0]); i++)
        if (!ct_fields_whole(x, one[i], 1, 1, &whole)) return false;
    if (!ct_fields_flag(x, "echo", &flag)) return false;
    if (flag ||
        ((format != NULL) &&
         (strcmp(json_string_value(format) ? json_string_value(format) : "", "text") != 0))) {
        ct_transaction_fail(x, 400, flag ? "echo" : "response_format", "not_supported",
                            "%s: this server has none", flag ? "echo" : "response_format");
        return false;
    }
    return true;
}

static bool take_stop(ct_transaction *x, const json_t *j)
{
    ct_completions *a = x->completions;
    const char *text = json_string_value(j);

    if ((text == NULL) || (text[0] == '\0') || (strlen(text) != json_string_length(j)) ||
        (strlen(text) > MOST_STOP) || (a->n_stop == MOST_STOPS)) {
        ct_transaction_fail(x, 400, "stop", "wrong_value",
                            "stop is neither a text nor a list of 1 to %d texts, each of 1 to %d "
                            "bytes",
                            MOST_STOPS, MOST_STOP);
        return false;
    }
    a->stop[a->n_stop] = strdup(text);
    if (a->stop[a->n_stop] != NULL) {
        a->n_stop++;
        return true;
    }
    ct_transaction_fail(x, 500, NULL, "no_memory", "no memory for a stop");
    return false;
}

static bool take_stops(ct_transaction *x)
{
    const json_t *j = ct_fields_get(x, "stop");

    if (j == NULL) return true;
    if (!json_is_array(j)) return take_stop(x, j);
    for (size_t i = 0; i < json_array_size(j); i++)
        if (!take_stop(x, json_array_get(j, i))) return false;
    return true;
}

static bool take_stream(ct_transaction *x)
{
    static const char *const known[] = { "include_usage", "include_obfuscation", NULL };
    ct_completions *a = x->completions;
    const json_t *options = ct_fields_get(x, "stream_options");

    if (!ct_fields_flag(x, "stream", &a->stream)) return false;
    if (options == NULL) return true;
    if (!a->stream) {
        ct_transaction_fail(x, 400, "stream_options", "wrong_value",
                            "stream_options goes with stream: true");
        return false;
    }
    if (!ct_transaction_check_members(x, options, "stream_options.", known)) return false;
    a->include_usage = json_is_true(json_object_get(options, "include_usage"));
    return true;
}

/* /v1/completions: how many alternatives; chats: whether, and how many beside. */
static bool take_logprobs(ct_transaction *x)
{
    ct_completions *a = x->completions;

    if (!a->chat) {
        a->logprobs =
            (ct_fields_get(x, "logprobs") != NULL) && !json_is_false(ct_fields_get(x, "logprobs"));
        return !a->logprobs || ct_fields_whole(x, "logprobs", 0, MOST_TOP, &a->n_top);
    }
    if (!ct_fields_flag(x, "logprobs", &a->logprobs) ||
        !ct_fields_whole(x, "top_logprobs", 0, MOST_TOP, &a->n_top))
        return false;
    if (a->logprobs || (a->n_top == 0)) return true;
    ct_transaction_fail(x, 400, "top_logprobs", "wrong_value", "top_logprobs goes with logprobs");
    return false;
}

static bool take_sampling(ct_transaction *x)
{
    ct_completions *a = x->completions;
    int64_t seed = (int64_t)(ct_rng_key((uint64_t)(1e9 * ct_clock_s()), (uintptr_t)x, 0) >> 1);

    a->how = (ct_sampling){ .temperature = 1, .top_p = 1 };
    if (!ct_fields_number(x, "temperature", 0, 2, &a->how.temperature) ||
        !ct_fields_number(x, "top_p", 0, 1, &a->how.top_p) ||
        !ct_fields_whole(x, "seed", INT64_MIN, INT64_MAX, &seed))
        return false;
    a->how.seed = (uint64_t)seed;
    if (!(a->how.top_p > 0)) a->how.temperature = 0; /* the most probable one alone */
    return true;
}

static bool make_completions(ct_transaction *x, bool chat)
{
    const ct_served_model *m = ct_transaction_options(x)->model;
    ct_completions *a;

    if (m->most_context == 0) {
        ct_transaction_fail(x, 404, NULL, "not_found", "the model %.80s makes no texts", m->name);
        return false;
    }
    a = calloc(1, sizeof(*a));
    if ((a == NULL) || (pthread_mutex_init(&a->lock, NULL) != 0)) {
        free(a);
        ct_transaction_fail(x, 500, NULL, "no_memory", "no memory for a completion");
        return false;
    }
    x->completions = a;
    a->x = x;
    a->chat = chat;
    a->most_new = -1;
    a->created = (int64_t)time(NULL);
    a->end[0] = ct_tokenizer_end(m->tokenizer);
    a->end[1] = chat ? ct_chat_end(ct_transaction_options(x)->chat, m->tokenizer) : -1;
    snprintf(a->id, sizeof(a->id), "%s-%016" PRIx64, chat ? "chatcmpl" : "cmpl",
             ct_rng_key((uint64_t)(1e9 * ct_clock_s()), (uintptr_t)a, 1));
    return true;
}

void ct_completions_destroy(ct_completions *a)
{
    if (a == NULL) return;
    for (int i = 0; i < a->n_stop; i++) free(a->stop[i]);
    for (int i = 0; i < a->n; i++) {
        ct_text_destroy(&a->choice[i].text);
        free(a->choice[i].token);
    }
    free(a->choice);
    ct_text_destroy(&a->out);
    (void)pthread_mutex_destroy(&a->lock);
    free(a);
}

/* Room for n texts; their works have no ids yet. */
static bool make_choices(ct_transaction *x, int n)
{
    ct_completions *a = x->completions;

    if (!ct_transaction_make_works(x, n)) return false;
    a->choice = calloc((size_t)n, sizeof(a->choice[0]));
    if (a->choice == NULL) {
        ct_transaction_fail(x, 500, NULL, "no_memory", "no memory for %d completions", n);
        return false;
    }
    a->n = n;
    for (int i = 0; i < n; i++) a->choice[i] = (choice){ .all = a, .index = i };
    return true;
}

/* The prompt is there: how many tokens may follow. */
static bool set_length(ct_transaction *x, int i, const char *field)
{
    int64_t most = ct_transaction_options(x)->model->most_context;
    ct_completions *a = x->completions;
    ct_work *w = &x->set.work[i];
    int64_t room = most - w->ids.n, wanted = a->most_new;

    w->kind = CT_WORK_COMPLETE;
    w->tokens = w->ids.n;
    w->next = next;
    w->ctx = &a->choice[i];
    if (wanted < 0) wanted = a->chat ? USUAL_NEW_CHAT : USUAL_NEW;
    if ((a->most_new < 0) && (wanted > room)) wanted = room;
    if ((wanted > room) || (room < 1)) {
        ct_transaction_fail(x, 422, field, "context_length_exceeded",
                            "the prompt has %" PRId64 " tokens, %" PRId64 " more are asked for, "
                            "and the model takes %" PRId64 " together",
                            w->ids.n, (wanted > 0) ? wanted : 1, most);
        return false;
    }
    w->most_new = wanted;
    if (a->logprobs) a->choice[i].token = calloc((size_t)wanted, sizeof(made_token));
    if (!a->logprobs || (a->choice[i].token != NULL)) return true;
    ct_transaction_fail(x, 500, NULL, "no_memory", "no memory for logprobs");
    return false;
}

static bool read_common(ct_transaction *x, bool chat)
{
    ct_completions *a;

    if (!make_completions(x, chat)) return false;
    a = x->completions;
    if (!ct_transaction_read_json(x, x->request.body, x->request.size) || !check_names(x, chat) ||
        !ct_fields_model(x) || !ct_fields_user(x) || !check_not_done(x) || !take_stops(x) ||
        !take_stream(x) || !take_logprobs(x) || !take_sampling(x))
        return false;
    x->answer = answer;
    return ct_fields_whole(x, "max_tokens", 1, INT32_MAX, &a->most_new) &&
           ct_fields_whole(x, "max_completion_tokens", 1, INT32_MAX, &a->most_new);
}

void ct_completion_read(ct_transaction *x)
{
    ct_text_field field = { .name = "prompt",
                            .most = ct_transaction_options(x)->model->most_context };
    size_t n;

    if (!read_common(x, false) || !ct_fields_texts(x, &field, &n) || !make_choices(x, (int)n))
        return;
    for (size_t i = 0; i < n; i++) {
        const json_t *text = ct_fields_text(x, &field, i);

        if (!ct_fields_tokens(x, text, &field, &x->set.work[i].ids) ||
            !set_length(x, (int)i, "prompt"))
            return;
    }
}

/* ---- chats */

/* A text, or the texts of a list of parts, one behind the other. */
static bool take_content(ct_transaction *x, const json_t *j, size_t i, ct_text *to)
{
    if (json_is_null(j)) return true; /* of an assistant that called a tool */
    if (json_is_string(j)) {
        ct_text_add_bytes(to, json_string_value(j), json_string_length(j));
        return true;
    }
    for (size_t k = 0; k < json_array_size(j); k++) {
        const json_t *part = json_array_get(j, k), *text = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));

        if ((type == NULL) || (strcmp(type, "text") != 0) || !json_is_string(text)) break;
        ct_text_add_bytes(to, json_string_value(text), json_string_length(text));
        if (k + 1 == json_array_size(j)) return true;
    }
    ct_transaction_fail(x, 400, "messages", "wrong_value",
                        "messages[%zu].content is neither a text nor a list of parts of type text",
                        i);
    return false;
}

static bool take_message(ct_transaction *x, const json_t *j, size_t i, ct_chat_message *m,
                         ct_text *content)
{
    static const char *const known[] = { "system", "user", "assistant" };
    const char *role = json_string_value(json_object_get(j, "role"));

    if ((role != NULL) && (strcmp(role, "developer") == 0)) role = "system";
    for (int k = 0; (role != NULL) && (k < 3); k++)
        if (strcmp(role, known[k]) == 0) m->role = known[k];
    if (m->role == NULL) {
        ct_transaction_fail(x, 400, "messages", "wrong_value",
                            "messages[%zu].role is none of system, user and assistant", i);
        return false;
    }
    if (!take_content(x, json_object_get(j, "content"), i, content)) return false;
    m->content = (content->text != NULL) ? content->text : "";
    m->n = content->length;
    return true;
}

static bool encode_chat(ct_transaction *x, const ct_chat_message *m, int n)
{
    const ct_api_options *o = ct_transaction_options(x);
    ct_ids *ids = &x->set.work[0].ids;
    char why[256];
    int threads = omp_get_max_threads();
    ct_status status;

    omp_set_num_threads(1); /* the others have the net */
    status = ct_chat_encode(o->chat, o->model->tokenizer, m, n, ids);
    omp_set_num_threads(threads);
    if (status == CT_OK) return true;
    ct_log_last_error(why, sizeof(why));
    ct_transaction_fail(x,
                        (status == CT_ERR_DATA)     ? 422
                        : (status == CT_ERR_CONFIG) ? 400
                                                    : 500,
                        "messages", "not_encoded", "%s", why);
    return false;
}

/* messages[n] become the ids of the one work. */
static bool take_messages(ct_transaction *x, const json_t *j)
{
    size_t n = json_array_size(j);
    ct_chat_message *m = calloc(n + 1, sizeof(*m));
    ct_text *content = calloc(n + 1, sizeof(*content));
    int64_t most = ct_transaction_options(x)->model->most_context;
    bool good = (m != NULL) && (content != NULL);
    size_t bytes = 0;

    if (!good) ct_transaction_fail(x, 500, NULL, "no_memory", "no memory for a chat");
    for (size_t i = 0; good && (i < n); i++) {
        good = take_message(x, json_array_get(j, i), i, &m[i], &content[i]);
        bytes += m[i].n;
    }
    if (good && (bytes / TOKEN_BYTES >= (uint64_t)most)) {
        ct_transaction_fail(x, 422, "messages", "context_length_exceeded",
                            "messages have %zu bytes, too many for %" PRId64 " tokens", bytes,
                            most);
        good = false;
    }
    good = good && encode_chat(x, m, (int)n);
    for (size_t i = 0; (content != NULL) && (i < n); i++) ct_text_destroy(&content[i]);
    free(content);
    free(m);
    return good;
}

void ct_chat_completion_read(ct_transaction *x)
{
    const json_t *j;

    if (!read_common(x, true)) return;
    if (ct_transaction_options(x)->chat == CT_CHAT_NONE) {
        ct_transaction_fail(x, 400, NULL, "no_chat_template",
                            "the server knows no template of this model's chats: start it with "
                            "--chat_template=CHATML, LLAMA3 or ZEPHYR");
        return;
    }
    j = json_object_get(x->root, "messages");
    if (!json_is_array(j) || (json_array_size(j) == 0)) {
        ct_transaction_fail(x, 400, "messages", "missing", "messages is no list of messages");
        return;
    }
    if (json_array_size(j) >= (size_t)ct_transaction_options(x)->model->most_context) {
        ct_transaction_fail(x, 422, "messages", "context_length_exceeded",
                            "%zu messages are too many for %" PRId64 " tokens", json_array_size(j),
                            ct_transaction_options(x)->model->most_context);
        return;
    }
    if (make_choices(x, 1) && take_messages(x, j)) (void)set_length(x, 0, "messages");
}
