/* What came of completions: one reply, or events (SSE) while texts grow. */
#include <inttypes.h>
#include <string.h>

#include "framework/base/json.h"
#include "serve/api/completion.h"

/* ---- replies */

static void add_head(const ct_completions *a, const char *object, ct_text *to)
{
    ct_text_add(to, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", a->id,
                object, a->created);
    ct_text_add_json(to, ct_transaction_options(a->x)->model->name);
}

static void add_finish(const ct_choice *c, ct_text *to)
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

void ct_completions_answer(ct_transaction *x)
{
    ct_completions *a = x->completions;
    ct_text *to = &x->reply.body;

    add_head(a, a->chat ? "chat.completion" : "text_completion", to);
    ct_text_add(to, ",\"choices\":[");
    for (int i = 0; i < a->n; i++) {
        const ct_choice *c = &a->choice[i];

        ct_text_add(to, "%s{\"index\":%d,", (i > 0) ? "," : "", i);
        ct_text_add(to, a->chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
        ct_text_add_json_bytes(to, c->text.text, c->text.length);
        if (a->chat) ct_text_add(to, ",\"refusal\":null}");
        ct_completion_add_logprobs(c, 0, c->n_made, to);
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
static void add_event(ct_choice *c, size_t n, int64_t end, bool last)
{
    ct_completions *a = c->all;
    ct_finish at = c->finish;

    begin_event(a);
    ct_text_add(&a->out, "{\"index\":%d,", c->index);
    if (a->chat)
        ct_text_add(&a->out, "\"delta\":{%s\"content\":",
                    (c->sent == 0) && (c->n_sent_token == 0) ? "\"role\":\"assistant\"," : "");
    else
        ct_text_add(&a->out, "\"text\":");
    ct_text_add_json_bytes(&a->out, (c->text.text != NULL) ? c->text.text + c->sent : "", n);
    if (a->chat) ct_text_add(&a->out, "}");
    ct_completion_add_logprobs(c, c->n_sent_token, end, &a->out);
    if (!last) c->finish = CT_GOES_ON;
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

void ct_completion_tell(ct_choice *c)
{
    ct_completions *a = c->all;
    bool ends = (c->finish != CT_GOES_ON);
    size_t n;

    (void)pthread_mutex_lock(&a->lock);
    n = (ends ? c->text.length : (c->text.length > 0) ? ct_completion_certain(c) : 0);
    n = (n > c->sent) ? n - c->sent : 0;
    if ((n > 0) || ends) add_event(c, n, c->n_made, ends);
    if (ends && (++a->n_ended == a->n)) end_stream(a);
    (void)pthread_mutex_unlock(&a->lock);
    if ((n > 0) || ends) a->x->wake(a->x->set.ctx);
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
