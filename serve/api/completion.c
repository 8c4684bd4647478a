/* POST /v1/completions and /v1/chat/completions: what is asked. */
#include "serve/api/completion.h"

#include <inttypes.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "framework/base/clock.h"
#include "framework/base/rng.h"
#include "serve/api/fields.h"

enum {
    MOST_STOP = 1000,      /* bytes */
    USUAL_NEW = 16,        /* tokens of a completion, where max_tokens is missing   */
    USUAL_NEW_CHAT = 1024, /* … of a reply, at most                               */
    TOKEN_BYTES = 256      /* of messages, for each token that they may have      */
};

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
        (strlen(text) > MOST_STOP) || (a->n_stop == CT_COMPLETION_STOPS)) {
        ct_transaction_fail(x, 400, "stop", "wrong_value",
                            "stop is neither a text nor a list of 1 to %d texts, each of 1 to %d "
                            "bytes",
                            CT_COMPLETION_STOPS, MOST_STOP);
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
    const json_t *options = ct_fields_get(x, "stream_options"), *usage;

    if (!ct_fields_flag(x, "stream", &a->stream)) return false;
    if (options == NULL) return true;
    if (!a->stream) {
        ct_transaction_fail(x, 400, "stream_options", "wrong_value",
                            "stream_options goes with stream: true");
        return false;
    }
    if (!ct_transaction_check_members(x, options, "stream_options.", known)) return false;
    usage = json_object_get(options, "include_usage");
    a->include_usage = json_is_true(usage);
    if ((usage == NULL) || json_is_boolean(usage) || json_is_null(usage)) return true;
    ct_transaction_fail(x, 400, "stream_options", "wrong_type",
                        "stream_options.include_usage is neither true nor false");
    return false;
}

/* /v1/completions: how many alternatives; chats: whether, and how many beside. */
static bool take_logprobs(ct_transaction *x)
{
    ct_completions *a = x->completions;

    if (!a->chat) {
        a->logprobs =
            (ct_fields_get(x, "logprobs") != NULL) && !json_is_false(ct_fields_get(x, "logprobs"));
        return !a->logprobs || ct_fields_whole(x, "logprobs", 0, CT_COMPLETION_TOP, &a->n_top);
    }
    if (!ct_fields_flag(x, "logprobs", &a->logprobs) ||
        !ct_fields_whole(x, "top_logprobs", 0, CT_COMPLETION_TOP, &a->n_top))
        return false;
    if (a->logprobs || (a->n_top == 0)) return true;
    ct_transaction_fail(x, 400, "top_logprobs", "wrong_value", "top_logprobs goes with logprobs");
    return false;
}

static bool take_sampling(ct_transaction *x)
{
    ct_completions *a = x->completions;
    int64_t seed = 0;

    if (!ct_transaction_options(x)->deterministic)
        seed = (int64_t)(ct_rng_key((uint64_t)(1e9 * ct_clock_s()), (uintptr_t)x, 0) >> 1);
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
        const char *why = ct_transaction_options(x)->no_texts;

        ct_transaction_fail(x, 404, NULL, "not_found", "the model %.80s makes no texts%s%s",
                            m->name, (why != NULL) ? ": " : "", (why != NULL) ? why : "");
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
    for (int i = 0; i < n; i++) a->choice[i] = (ct_choice){ .all = a, .index = i };
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
    w->next = ct_completion_next;
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
    if (a->logprobs) a->choice[i].token = calloc((size_t)wanted, sizeof(ct_made_token));
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
    x->answer = ct_completions_answer;
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
