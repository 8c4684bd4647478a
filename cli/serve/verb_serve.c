/* cortado serve: answers requests over HTTP until a signal ends it. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/verb.h"
#include "framework/text/unicode.h"
#include "runtime/config/features.h"
#include "serve/http/front.h"
#include "serve/net/net_model.h"
#include "serve/net/served.h"

#define MEASURE_S 1.5 /* at the start, for the costs of batches */

enum { MOST_COUNT = 1024, MOST_INPUTS = 2048, MOST_BODY = 16 << 20, MOST_HEADER = 32768 };

/* What was asked for. */
typedef struct wish {
    ct_served_options net;
    ct_scheduler_options queue;
    ct_front_options front;
    const char *name;
    double deadline_s;
} wish;

/* What serves; each is there once it was made. */
typedef struct server {
    ct_served *net;
    ct_tokenizer *tokenizer;
    ct_api_keys *keys;
    ct_net_model *model;
    ct_dispatch *dispatch;
    ct_api *api;
    ct_front *front;
} server;

/* ---- options */

static ct_status read_ms(const ct_options *o, const char *name, double least, double *s_p)
{
    const char *text = ct_options_text(o, name);
    char *end;
    double v;

    if (text == NULL) return CT_OK;
    v = strtod(text, &end);
    if ((end == text) || (*end != '\0') || !(v >= least) || !(v <= 1e9))
        return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: expected milliseconds, %g to 1e9", name, text,
                       least);
    *s_p = v / 1e3;
    return CT_OK;
}

static ct_status read_budget(const ct_options *o, int64_t *budget_p)
{
    const char *text = ct_options_text(o, "max_batch_tokens");
    char *end;
    long long v;

    if ((text == NULL) || (strcmp(text, "AUTO") == 0)) return CT_OK;
    errno = 0;
    v = strtoll(text, &end, 10);
    if ((end == text) || (*end != '\0') || (errno != 0) || (v < 1) || (v > CT_SERVED_TOKENS))
        return CT_FAIL(CT_ERR_CONFIG, "--max_batch_tokens=%s: expected AUTO, or 1 to %d", text,
                       CT_SERVED_TOKENS);
    *budget_p = v;
    return CT_OK;
}

/* Clients put it into paths and into JSON. */
static ct_status check_name(const char *name)
{
    const uint8_t *p = (const uint8_t *)name, *end = p + strlen(name);
    bool good = (p < end) && (strchr(name, '/') == NULL);
    int n;

    for (; good && (p < end); p += n) good = (ct_utf8_read(p, end, &n) != CT_NO_CHARACTER);
    if (good) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "nobody could ask for a model called \"%s\": give it by --name another name, in "
                   "UTF-8, not empty, without /",
                   name);
}

static ct_status read_wish(const ct_options *o, wish *w)
{
    static const char *const needs[] = { "model", "weights" };
    const char *listen = ct_options_text(o, "listen");
    int64_t most = ct_options_count(o, "max_queue", 256);

    if (!ct_feature_has("libmicrohttpd")) return ct_front_start(NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++)
        if (ct_options_text(o, needs[i]) == NULL)
            return CT_FAIL(CT_ERR_CONFIG, "cortado serve needs --%s", needs[i]);
    if ((most < 1) || (most > 100000))
        return CT_FAIL(CT_ERR_CONFIG, "--max_queue=%" PRId64 ": expected 1 to 100000", most);
    *w = (wish){ .deadline_s = INFINITY, .name = ct_options_text(o, "name") };
    if (w->name != NULL) CT_TRY(check_name(w->name));
    CT_TRY(read_ms(o, "deadline_ms", 1e-3, &w->deadline_s));
    w->net = (ct_served_options){ .model = ct_options_text(o, "model"),
                                  .weights = ct_options_text(o, "weights") };
    w->queue = (ct_scheduler_options){ .policy = CT_POLICY_PACKED,
                                       .most_waiting = (int)most,
                                       .most_count = MOST_COUNT,
                                       .mixed = true };
    CT_TRY(read_ms(o, "max_wait_ms", 0, &w->queue.max_wait_s));
    CT_TRY(read_budget(o, &w->queue.budget));
    w->front = (ct_front_options){ .listen = (listen != NULL) ? listen : "127.0.0.1:8080",
                                   .most_connections = 1000,
                                   .most_header = MOST_HEADER,
                                   .most_body = MOST_BODY,
                                   .read_s = 60,
                                   .write_s = 60 };
    return CT_OK;
}

/* ---- start and end */

static ct_status open_model(const ct_options *o, wish *w, server *s, ct_batch_cost *cost)
{
    const char *tokenizer = ct_options_text(o, "tokenizer");
    const char *keys = ct_options_text(o, "api_key_file");
    ct_packed_net *net;

    if (keys != NULL) CT_TRY(ct_api_keys_read(keys, &s->keys));
    if (tokenizer != NULL)
        CT_TRY(ct_tokenizer_open(tokenizer, ct_options_text(o, "pattern"), &s->tokenizer));
    CT_TRY(ct_served_open(&w->net, &s->net));
    net = ct_served_net(s->net);
    if (w->name == NULL) {
        w->name = ct_packed_net_of(net)->name;
        CT_TRY(check_name(w->name));
    }
    w->queue.most_tokens = ct_packed_net_most_tokens(net);
    CT_TRY(ct_net_model_create(net, s->tokenizer, w->name, &s->model));
    return ct_net_model_measure(s->model, MEASURE_S, cost);
}

static ct_status start(const ct_options *o, wish *w, server *s)
{
    ct_scheduler_stats stats;
    ct_api_options api;
    ct_batch_cost cost;

    CT_TRY(open_model(o, w, s, &cost));
    api = (ct_api_options){ .model = ct_net_model_served(s->model),
                            .keys = s->keys,
                            .version = ct_build_version(),
                            .deadline_s = w->deadline_s,
                            .most_inputs = (w->queue.most_waiting < MOST_INPUTS)
                                               ? w->queue.most_waiting
                                               : MOST_INPUTS };
    CT_TRY(ct_dispatch_create(api.model, &w->queue, &cost, &s->dispatch));
    CT_TRY(ct_dispatch_start(s->dispatch));
    CT_TRY(ct_api_create(&api, s->dispatch, &s->api));
    CT_TRY(ct_front_start(s->api, &w->front, &s->front));
    ct_dispatch_read_stats(s->dispatch, &stats);
    CT_INFO("Batches of at most %" PRId64 " tokens: %.3g ms; one of %" PRId64 ": %.3g ms.",
            stats.budget, 1e3 * ct_batch_cost_s(&cost, stats.budget), cost.tokens[0],
            1e3 * cost.s[0]);
    return CT_OK;
}

static void end(server *s)
{
    ct_front_stop(s->front);
    ct_api_destroy(s->api);
    ct_dispatch_destroy(s->dispatch);
    ct_net_model_destroy(s->model);
    ct_served_close(s->net);
    ct_tokenizer_close(s->tokenizer);
    ct_api_keys_destroy(s->keys);
}

/* ---- other weights */

typedef struct swap {
    ct_net_model *model;
    ct_packed_net *net;
    ct_status status;
} swap;

static void do_swap(void *ctx)
{
    swap *s = ctx;

    s->status = ct_net_model_swap(s->model, s->net);
}

/* Opens the files again; where that fails, all stays as it was. */
static void read_again(const wish *w, server *s)
{
    ct_served *next = NULL, *unused = NULL;
    swap both = { .model = s->model, .status = ct_served_open(&w->net, &next) };

    if (both.status == CT_OK) {
        both.net = ct_served_net(next);
        ct_dispatch_between(s->dispatch, do_swap, &both);
        unused = (both.status == CT_OK) ? s->net : next;
        if (both.status == CT_OK) s->net = next;
        ct_served_close(unused);
    }
    if (both.status == CT_OK)
        CT_INFO("%s: read again, and in use.", w->net.weights);
    else
        CT_WARN("%s: not taken; the weights are those from before", w->net.weights);
}

/* ---- until a signal comes */

/* One that ends, while another is being obeyed, does what it does to any program. */
static void die_by(int sig, const sigset_t *waited)
{
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
    (void)pthread_sigmask(SIG_UNBLOCK, waited, NULL);
}

static void wait_for_end(const wish *w, server *s, const sigset_t *waited)
{
    const struct timespec none = { 0 };
    int sig = 0;

    while ((sigwait(waited, &sig) != 0) || (sig == SIGHUP))
        if (sig == SIGHUP) read_again(w, s);
    CT_INFO("%s: what was asked for is still answered, nothing new.", strsignal(sig));
    while (!ct_front_drain(s->front, 0.1)) {
        sig = sigtimedwait(waited, NULL, &none);
        if ((sig == SIGTERM) || (sig == SIGINT)) die_by(sig, waited);
    }
}

ct_status ct_verb_serve(ct_call *call)
{
    server s = { .net = NULL };
    sigset_t waited;
    ct_status status;
    wish w;

    CT_TRY(read_wish(call->options, &w));
    /* before there are threads, which inherit the mask */
    (void)sigemptyset(&waited);
    (void)sigaddset(&waited, SIGTERM);
    (void)sigaddset(&waited, SIGINT);
    (void)sigaddset(&waited, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &waited, NULL);
    status = start(call->options, &w, &s);
    if (status == CT_OK) {
        if (!ct_front_is_private(s.front) && (s.keys == NULL))
            CT_WARN("%s can be reached from other machines, and no --api_key_file says who may ask",
                    ct_front_address(s.front));
        printf("%s at %s\n", w.name, ct_front_address(s.front));
        (void)fflush(stdout);
        wait_for_end(&w, &s, &waited);
    }
    end(&s);
    return status;
}
