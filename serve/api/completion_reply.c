/* What came of completions: one reply, or events (SSE) while texts grow. */
#include <inttypes.h>
#include <string.h>

#include "framework/base/json.h"
#include "framework/base/json_writer.h"
#include "serve/api/completion.h"

/* ---- replies */

/* Begins the object. */
static void begin_reply(const ct_completions *a, const char *object, ct_json_writer *w)
{
    ct_json_begin_object(w, NULL);
    ct_json_add_text(w, "id", a->id);
    ct_json_add_text(w, "object", object);
    ct_json_add_integer(w, "created", a->created);
    ct_json_add_text(w, "model", ct_transaction_options(a->x)->model->name);
    ct_json_begin_list(w, "choices");
}

/* The last member of a choice. */
static void end_choice(ct_finish finish, ct_json_writer *w)
{
    static const char *const word[] = { NULL, "stop", "length" };

    ct_json_add_text(w, "finish_reason", word[finish]);
    ct_json_end(w);
}

static void add_usage(const ct_completions *a, ct_json_writer *w)
{
    int64_t prompt = 0, made = 0, cached = 0;

    for (int i = 0; i < a->n; i++) {
        prompt += a->x->set.work[i].tokens;
        cached += a->x->set.work[i].cached;
        made += a->choice[i].n_made;
    }
    ct_json_begin_object(w, "usage");
    ct_json_add_integer(w, "prompt_tokens", prompt);
    ct_json_add_integer(w, "completion_tokens", made);
    ct_json_add_integer(w, "total_tokens", prompt + made);
    ct_json_begin_object(w, "prompt_tokens_details");
    ct_json_add_integer(w, "cached_tokens", cached);
    ct_json_end(w);
    ct_json_end(w);
}

void ct_completions_answer(ct_transaction *x)
{
    ct_completions *a = x->completions;
    ct_json_writer w = ct_json_into(&x->reply.body);

    begin_reply(a, a->chat ? "chat.completion" : "text_completion", &w);
    for (int i = 0; i < a->n; i++) {
        const ct_choice *c = &a->choice[i];

        ct_json_begin_object(&w, NULL);
        ct_json_add_integer(&w, "index", i);
        if (a->chat) {
            ct_json_begin_object(&w, "message");
            ct_json_add_text(&w, "role", "assistant");
        }
        ct_json_add_bytes(&w, a->chat ? "content" : "text", c->text.text, c->text.length);
        if (a->chat) {
            ct_json_add_null(&w, "refusal");
            ct_json_end(&w);
        }
        ct_completion_add_logprobs(c, 0, c->n_made, &w);
        end_choice(c->finish, &w);
    }
    ct_json_end(&w);
    add_usage(a, &w);
    ct_json_end(&w);
    ct_text_add(&x->reply.body, "\n");
    ct_transaction_give_json(x);
}

/* ---- events, with the lock held */

/* Begins the object, and in it the choices. */
static ct_json_writer begin_event(ct_completions *a)
{
    ct_json_writer w = ct_json_into(&a->out);

    ct_text_add(&a->out, "data: ");
    begin_reply(a, a->chat ? "chat.completion.chunk" : "text_completion", &w);
    return w;
}

/* text[n] of the choice, and the tokens up to `end`. */
static void add_event(ct_choice *c, size_t n, int64_t end, bool last)
{
    ct_completions *a = c->all;
    ct_json_writer w = begin_event(a);

    ct_json_begin_object(&w, NULL);
    ct_json_add_integer(&w, "index", c->index);
    if (a->chat) ct_json_begin_object(&w, "delta");
    if (a->chat && (c->sent == 0) && (c->n_sent_token == 0))
        ct_json_add_text(&w, "role", "assistant");
    ct_json_add_bytes(&w, a->chat ? "content" : "text",
                      (c->text.text != NULL) ? c->text.text + c->sent : "", n);
    if (a->chat) ct_json_end(&w);
    ct_completion_add_logprobs(c, c->n_sent_token, end, &w);
    end_choice(last ? c->finish : CT_GOES_ON, &w);
    ct_json_end(&w);
    if (a->include_usage) ct_json_add_null(&w, "usage");
    ct_json_end(&w);
    ct_text_add(&a->out, "\n\n");
    c->sent += n;
    c->n_sent_token = end;
}

/* Behind the last choice: the sum, and OpenAI's word for the end. */
static void end_stream(ct_completions *a)
{
    if (a->include_usage) {
        ct_json_writer w = begin_event(a);

        ct_json_end(&w);
        add_usage(a, &w);
        ct_json_end(&w);
        ct_text_add(&a->out, "\n\n");
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
    ct_json_writer w;

    if ((x->set.outcome == CT_OUTCOME_DONE) || a->broken) return;
    (void)pthread_mutex_lock(&a->lock);
    a->broken = true;
    ct_text_add(&a->out, "data: ");
    w = ct_json_into(&a->out);
    ct_json_begin_object(&w, NULL);
    ct_json_begin_object(&w, "error");
    ct_json_add_text(&w, "message", why[x->set.outcome]);
    ct_json_add_text(&w, "type", "server_error");
    ct_json_add_null(&w, "param");
    ct_json_add_null(&w, "code");
    ct_json_end(&w);
    ct_json_end(&w);
    ct_text_add(&a->out, "\n\n");
    (void)pthread_mutex_unlock(&a->lock);
}
