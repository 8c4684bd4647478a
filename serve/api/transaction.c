/* Routes, keys, errors, and the replies that need no work. */
#include "serve/api/transaction.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/json_writer.h"
#include "serve/api/metrics.h"

struct ct_api {
    ct_api_options o;
    ct_dispatch *dispatch;
    ct_metrics *metrics;
    ct_sampler **sampler; /* of each replica; NULL: the model has no tokenizer */
    ct_decoder *decoder;  /* NULL: the model takes no files */
    atomic_bool draining;
};

/* ---- replies */

const ct_api_options *ct_transaction_options(const ct_transaction *x)
{
    return &x->api->o;
}

ct_sampler *ct_transaction_sampler(const ct_transaction *x, int replica)
{
    return x->api->sampler[replica];
}

static bool is_v2(const ct_transaction *x)
{
    return (strncmp(x->request.path, "/v2", 3) == 0) &&
           ((x->request.path[3] == '/') || (x->request.path[3] == '\0'));
}

static void clear_body(ct_transaction *x)
{
    ct_text_destroy(&x->reply.body);
    memset(&x->reply.body, 0, sizeof(x->reply.body));
    x->reply.json_length = -1;
}

void ct_transaction_fail(ct_transaction *x, int status, const char *param, const char *code,
                         const char *fmt, ...)
{
    ct_json_writer w;
    char message[512];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    for (char *c = message; *c != '\0'; c++) /* what the client wrote, perhaps cut in a character */
        if ((unsigned char)*c >= 0x80) *c = '?';
    clear_body(x);
    x->reply.status = status;
    x->reply.type = "application/json";
    w = ct_json_into(&x->reply.body);
    ct_json_begin_object(&w, NULL);
    if (is_v2(x)) {
        ct_json_add_text(&w, "error", message);
    } else {
        ct_json_begin_object(&w, "error");
        ct_json_add_text(&w, "message", message);
        ct_json_add_text(&w, "type",
                         (status == 429)   ? "rate_limit_error"
                         : (status >= 500) ? "server_error"
                                           : "invalid_request_error");
        ct_json_add_text(&w, "param", param);
        ct_json_add_text(&w, "code", code);
        ct_json_end(&w);
    }
    ct_json_end(&w);
    ct_text_add(&x->reply.body, "\n");
}

void ct_transaction_give_json(ct_transaction *x)
{
    if (x->reply.body.failed) {
        ct_transaction_fail(x, 500, NULL, "no_memory", "no memory for the reply");
        return;
    }
    x->reply.status = 200;
    x->reply.type = "application/json";
}

void ct_transaction_refuse_body(ct_transaction *x, size_t most)
{
    ct_transaction_fail(x, 413, NULL, "body_too_large", "the body has more than %zu bytes", most);
}

/* ---- what routes read */

bool ct_transaction_read_json(ct_transaction *x, const char *text, size_t size)
{
    json_error_t error;

    x->root = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (x->root == NULL) {
        ct_transaction_fail(x, 400, NULL, "not_json",
                            "the body is not JSON: line %d, column %d: %s", error.line,
                            error.column, error.text);
        return false;
    }
    if (json_is_object(x->root)) return true;
    ct_transaction_fail(x, 400, NULL, "not_json", "the body is JSON, but no object");
    return false;
}

bool ct_transaction_check_members(ct_transaction *x, const json_t *object, const char *where,
                                  const char *const *known)
{
    int n = 0;

    if ((object != NULL) && !json_is_object(object)) {
        ct_transaction_fail(x, 400, NULL, "wrong_type", "%.*s is no object", (int)strlen(where) - 1,
                            where);
        return false;
    }
    while (known[n] != NULL) n++;
    for (void *i = json_object_iter((json_t *)object); i != NULL;
         i = json_object_iter_next((json_t *)object, i)) {
        const char *name = json_object_iter_key(i), *near;
        int k = 0;

        while ((k < n) && (strcmp(name, known[k]) != 0)) k++;
        if (k < n) continue;
        near = ct_text_nearest(name, known, n);
        ct_transaction_fail(x, 400, name, "unknown_field",
                            "%s%.80s is no field of this request%s%s%s", where, name,
                            (near != NULL) ? "; did you mean " : "", (near != NULL) ? near : "",
                            (near != NULL) ? "?" : "");
        return false;
    }
    return true;
}

bool ct_transaction_make_works(ct_transaction *x, int n)
{
    x->set.work = calloc((size_t)n, sizeof(ct_work));
    if (x->set.work == NULL) {
        ct_transaction_fail(x, 500, NULL, "no_memory", "no memory for %d inputs", n);
        return false;
    }
    x->set.n = n;
    return true;
}

/* ---- routes without work */

void ct_transaction_count_token(ct_transaction *x, double *last_s)
{
    double now = ct_clock_s();
    bool first = (*last_s == 0);

    ct_metrics_count_token(x->api->metrics, first, now - (first ? x->start_s : *last_s));
    *last_s = now;
}

static void give_metrics(ct_transaction *x)
{
    int n = ct_dispatch_replicas(x->api->dispatch);
    ct_replica_stats *replica = calloc((size_t)n, sizeof(*replica));
    ct_scheduler_stats stats;

    ct_dispatch_read_stats(x->api->dispatch, &stats);
    ct_metrics_write(x->api->metrics, &stats, !atomic_load(&x->api->draining), &x->reply.body);
    for (int i = 0; (replica != NULL) && (i < n); i++)
        ct_dispatch_read_replica(x->api->dispatch, i, &replica[i]);
    if (replica != NULL) ct_metrics_write_replicas(replica, n, &x->reply.body);
    free(replica);
    ct_transaction_give_json(x);
    if (x->reply.status == 200) x->reply.type = "text/plain; version=0.0.4; charset=utf-8";
}

static void add_model(const ct_transaction *x, ct_json_writer *w)
{
    ct_json_begin_object(w, NULL);
    ct_json_add_text(w, "id", x->api->o.model->name);
    ct_json_add_text(w, "object", "model");
    ct_json_add_integer(w, "created", 0);
    ct_json_add_text(w, "owned_by", "cortado");
    ct_json_end(w);
}

static void give_models(ct_transaction *x)
{
    ct_json_writer w = ct_json_into(&x->reply.body);

    ct_json_begin_object(&w, NULL);
    ct_json_add_text(&w, "object", "list");
    ct_json_begin_list(&w, "data");
    add_model(x, &w);
    ct_json_end(&w);
    ct_json_end(&w);
    ct_text_add(&x->reply.body, "\n");
    ct_transaction_give_json(x);
}

static void give_model(ct_transaction *x)
{
    ct_json_writer w = ct_json_into(&x->reply.body);

    add_model(x, &w);
    ct_transaction_give_json(x);
}

static void give_server(ct_transaction *x)
{
    ct_json_writer w = ct_json_into(&x->reply.body);

    ct_json_begin_object(&w, NULL);
    ct_json_add_text(&w, "name", "cortado");
    ct_json_add_text(&w, "version", x->api->o.version);
    ct_json_begin_list(&w, "extensions");
    ct_json_add_text(&w, NULL, "binary_tensor_data");
    ct_json_end(&w);
    ct_json_end(&w);
    ct_text_add(&x->reply.body, "\n");
    ct_transaction_give_json(x);
}

static void give_flag(ct_transaction *x, const char *name, bool flag)
{
    ct_json_writer w = ct_json_into(&x->reply.body);

    ct_json_begin_object(&w, NULL);
    ct_json_add_bool(&w, name, flag);
    ct_json_end(&w);
    ct_text_add(&x->reply.body, "\n");
    ct_transaction_give_json(x);
}

static void give_live(ct_transaction *x)
{
    give_flag(x, "live", true);
}

static void give_ready(ct_transaction *x)
{
    bool ready = !atomic_load(&x->api->draining);

    give_flag(x, "ready", ready);
    if (!ready) x->reply.status = 503;
}

/* ---- which route */

typedef struct route {
    const char *method, *path; /* NAME stands for the model's, [/v] for /versions/1 or nothing */
    bool open;                 /* needs no key                                                  */
    bool works;                /* what the queue has no room for is refused early               */
    void (*give)(ct_transaction *x);
    const char *name; /* in metrics */
} route;

static const route route_table[] = {
    { "GET", "/", true, false, ct_page_give, "/" },
    { "GET", "/metrics", false, false, give_metrics, "/metrics" },
    { "GET", "/v1/models", false, false, give_models, "/v1/models" },
    { "GET", "/v1/models/NAME", false, false, give_model, "/v1/models/NAME" },
    { "POST", "/v1/embeddings", false, true, ct_embeddings_read, "/v1/embeddings" },
    { "POST", "/classify", false, true, ct_classify_read, "/classify" },
    { "POST", "/v1/completions", false, true, ct_completion_read, "/v1/completions" },
    { "POST", "/v1/chat/completions", false, true, ct_chat_completion_read,
      "/v1/chat/completions" },
    { "GET", "/v2", false, false, give_server, "/v2" },
    { "GET", "/v2/health/live", true, false, give_live, "/v2/health/live" },
    { "GET", "/v2/health/ready", true, false, give_ready, "/v2/health/ready" },
    { "GET", "/v2/models/NAME[/v]", false, false, ct_infer_metadata, "/v2/models/NAME" },
    { "GET", "/v2/models/NAME[/v]/ready", false, false, give_ready, "/v2/models/NAME/ready" },
    { "POST", "/v2/models/NAME[/v]/infer", false, true, ct_infer_read, "/v2/infer" },
};
enum { N_ROUTE = sizeof(route_table) / sizeof(route_table[0]) };

typedef enum { ELSEWHERE, OTHER_MODEL, HERE } place;

static place match(const char *pattern, const char *path, const char *name)
{
    place is = HERE;

    for (; *pattern != '\0';) {
        if (strncmp(pattern, "NAME", 4) == 0) {
            size_t n = strcspn(path, "/");

            if (n == 0) return ELSEWHERE;
            if ((n != strlen(name)) || (strncmp(path, name, n) != 0)) is = OTHER_MODEL;
            pattern += 4;
            path += n;
        } else if (strncmp(pattern, "[/v]", 4) == 0) {
            pattern += 4;
            if (strncmp(path, "/versions/1", 11) == 0) path += 11;
        } else if (*pattern++ != *path++) {
            return ELSEWHERE;
        }
    }
    return (*path == '\0') ? is : ELSEWHERE;
}

/* The route, or -1 and the reply. */
static int find_route(ct_transaction *x)
{
    const char *name = x->api->o.model->name;
    bool other_model = false;

    for (int k = 0; k < N_ROUTE; k++) {
        place is = match(route_table[k].path, x->request.path, name);

        if (is == OTHER_MODEL) other_model = true;
        if (is != HERE) continue;
        if (strcmp(x->request.method, route_table[k].method) == 0) return k;
        x->reply.allow = route_table[k].method;
    }
    if (x->reply.allow != NULL)
        ct_transaction_fail(x, 405, NULL, "method_not_allowed", "%.80s is for %s, not for %.20s",
                            x->request.path, x->reply.allow, x->request.method);
    else if (other_model)
        ct_transaction_fail(x, 404, "model", "model_not_found",
                            "the model of %.120s is not here; this server has %.80s",
                            x->request.path, name);
    else
        ct_transaction_fail(x, 404, NULL, "not_found", "there is nothing at %.120s",
                            x->request.path);
    return -1;
}

void ct_transaction_init(ct_transaction *x, ct_api *api)
{
    memset(x, 0, sizeof(*x));
    x->api = api;
    x->route = N_ROUTE;
    x->start_s = ct_clock_s();
    x->reply.json_length = -1;
    atomic_init(&x->unwanted, false);
}

/* False: not by this key. */
static bool check_key(ct_transaction *x)
{
    const ct_api_keys *keys = x->api->o.keys;
    bool open = (x->route < N_ROUTE) && route_table[x->route].open;

    if (open || (keys == NULL) || ct_api_keys_allow(keys, x->request.authorization)) return true;
    ct_transaction_fail(x, 401, NULL, "invalid_api_key", "%s",
                        (x->request.authorization == NULL)
                            ? "no key: expected the header Authorization: Bearer KEY"
                            : "the key of the header Authorization is none of this server's");
    return false;
}

/* True: refused. */
static bool refuse(ct_transaction *x, ct_admission admission, double retry_s)
{
    switch (admission) {
    case CT_ADMITTED:
        return false;
    case CT_REFUSED_LONG:
        ct_transaction_fail(x, 422, NULL, "too_long",
                            "the request has more than one batch may have");
        return true;
    case CT_REFUSED_DRAINING:
        ct_transaction_fail(x, 503, NULL, "draining", "the server is going to end");
        return true;
    case CT_REFUSED_LATE:
        ct_transaction_fail(x, 429, NULL, "too_busy",
                            "the server is too busy to answer within its deadline of %g ms",
                            1e3 * x->api->o.deadline_s);
        break;
    case CT_REFUSED_FULL:
        ct_transaction_fail(x, 429, NULL, "too_busy", "the queue is full");
        break;
    }
    x->reply.retry_s = (int64_t)ceil(fmax(1, fmin(retry_s, 3600)));
    return true;
}

bool ct_transaction_meet(ct_transaction *x)
{
    double retry_s = 0;
    int k = find_route(x);

    x->route = (k >= 0) ? k : N_ROUTE;
    if (!check_key(x) || (k < 0)) return true; /* who has no key learns of no route */
    if (!route_table[k].works) return false;
    return refuse(x, ct_dispatch_foresee(x->api->dispatch, x->api->o.deadline_s, &retry_s),
                  retry_s);
}

bool ct_transaction_begin(ct_transaction *x)
{
    route_table[x->route].give(x);
    json_decref(x->root); /* one that waits keeps its works alone */
    x->root = NULL;
    x->request.authorization = x->request.json_length = x->request.type = x->request.body = NULL;
    x->request.n_argument = 0;
    x->request.size = 0;
    return x->reply.status != 0;
}

/* ---- work */

/* True: refused. */
static bool queue(ct_transaction *x, double deadline_s)
{
    ct_admission admission;
    double retry_s;

    if (ct_dispatch_submit(x->api->dispatch, &x->set, deadline_s, &admission, &retry_s) != CT_OK) {
        ct_transaction_fail(x, 500, NULL, "no_memory", "no memory for a request of %d inputs",
                            x->set.n);
        return true;
    }
    return refuse(x, admission, retry_s);
}

/* What nobody waits for any more, or came too late, does not go on. */
bool ct_transaction_has_ended(ct_transaction *x)
{
    if (atomic_load(&x->unwanted))
        x->set.outcome = CT_OUTCOME_CANCELLED;
    else if (ct_clock_s() >= x->submit_s + x->api->o.deadline_s)
        x->set.outcome = CT_OUTCOME_EXPIRED;
    else
        return false;
    return true;
}

/* From a decoder's thread: `done` comes in any case, here or from the dispatcher. */
static void decode(void *ctx)
{
    ct_transaction *x = ctx;
    double start = ct_clock_s(), end = x->submit_s + x->api->o.deadline_s;
    bool good = !ct_transaction_has_ended(x);

    if (good) {
        good = x->prepare(x);
        ct_metrics_count_decode(x->api->metrics, ct_clock_s() - start);
    }
    if (good) good = !ct_transaction_has_ended(x);
    if (!good || queue(x, end - ct_clock_s())) x->set.done(x->set.ctx);
}

bool ct_transaction_submit(ct_transaction *x)
{
    if (x->prepare == NULL) return queue(x, x->api->o.deadline_s);
    x->submit_s = ct_clock_s();
    x->job = (ct_decoder_job){ .run = decode, .ctx = x, .bytes = ct_classify_bytes(x->classify) };
    return !ct_decoder_add(x->api->decoder, &x->job) && refuse(x, CT_REFUSED_FULL, 1);
}

void ct_transaction_cancel(ct_transaction *x)
{
    atomic_store(&x->unwanted, true);
    ct_dispatch_cancel(x->api->dispatch, &x->set);
}

void ct_transaction_answer(ct_transaction *x)
{
    switch (x->set.outcome) {
    case CT_OUTCOME_DONE:
        x->answer(x);
        return;
    case CT_OUTCOME_EXPIRED:
        ct_transaction_fail(x, 504, NULL, "deadline", "not answered within the deadline of %g ms",
                            1e3 * x->api->o.deadline_s);
        return;
    case CT_OUTCOME_CANCELLED:
        ct_transaction_fail(x, 503, NULL, "cancelled", "the request was cancelled");
        return;
    case CT_OUTCOME_FAILED:
        ct_transaction_fail(x, 500, NULL, "failed", "the model failed; the server's log says why");
        return;
    }
}

static void free_values(ct_served_values *v, int n)
{
    for (int i = 0; (v != NULL) && (i < n); i++) free(v[i].data);
    free(v);
}

void ct_transaction_end(ct_transaction *x)
{
    const ct_served_model *m = x->api->o.model;

    if (x->reply.status != 0)
        ct_metrics_count(x->api->metrics, x->route, x->reply.status, ct_clock_s() - x->start_s);
    for (int i = 0; i < x->set.n; i++) {
        ct_work *w = &x->set.work[i];

        ct_ids_destroy(&w->ids);
        free(w->row);
        free_values(w->input, m->n_input);
        free_values(w->output, m->n_output);
    }
    free(x->set.work);
    ct_completions_destroy(x->completions);
    ct_classify_destroy(x->classify);
    free(x->wanted);
    free(x->id);
    ct_text_destroy(&x->reply.body);
}

/* ---- the api */

static ct_status make_samplers(ct_api *api)
{
    int n = ct_dispatch_replicas(api->dispatch);

    api->sampler = calloc((size_t)n, sizeof(ct_sampler *));
    if (api->sampler == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d samplers", n);
    for (int i = 0; i < n; i++)
        CT_TRY(ct_sampler_create(api->o.model->tokenizer, &api->sampler[i]));
    return CT_OK;
}

ct_status ct_api_create(const ct_api_options *options, ct_dispatch *d, ct_api **api_p)
{
    const char *name[N_ROUTE + 1] = { [N_ROUTE] = "none" }; /* of what has no route */
    ct_api *api = calloc(1, sizeof(*api));
    ct_status status;

    if (api == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a server");
    for (int k = 0; k < N_ROUTE; k++) name[k] = route_table[k].name;
    api->o = *options;
    api->dispatch = d;
    atomic_init(&api->draining, false);
    status = ct_metrics_create(name, N_ROUTE + 1, &api->metrics);
    if ((status == CT_OK) && (options->model->tokenizer != NULL)) status = make_samplers(api);
    if ((status == CT_OK) && (options->model->n_class > 0))
        status = ct_decoder_create(&api->decoder);
    if (status != CT_OK) {
        ct_api_destroy(api);
        return status;
    }
    *api_p = api;
    return CT_OK;
}

void ct_api_destroy(ct_api *api)
{
    if (api == NULL) return;
    ct_decoder_destroy(api->decoder);
    ct_metrics_destroy(api->metrics);
    for (int i = 0; (api->sampler != NULL) && (i < ct_dispatch_replicas(api->dispatch)); i++)
        ct_sampler_destroy(api->sampler[i]);
    free(api->sampler);
    free(api);
}

void ct_api_drain(ct_api *api)
{
    atomic_store(&api->draining, true);
    ct_dispatch_drain(api->dispatch);
}
