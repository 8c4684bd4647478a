/* cortado serve: answers requests over HTTP until a signal ends it. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/serve/capacity.h"
#include "cli/serve/costs.h"
#include "cli/serve/reload.h"
#include "cli/serve/serve_options.h"
#include "cli/serve/watched.h"
#include "cli/verb.h"
#include "framework/base/file.h"
#include "framework/base/simd.h"
#include "framework/base/number.h"
#include "framework/base/thread.h"
#include "framework/text/unicode.h"
#include "runtime/config/features.h"
#include "runtime/division/divided_net.h"
#include "serve/http/front.h"
#include "serve/net/any_model.h"
#include "serve/net/deployed.h"
#include "serve/ranks/replicas.h"
#include "serve/ranks/tensor_group.h"

enum {
    MOST_SEQUENCES = 32,
    MOST_COUNT = 1024,
    MOST_INPUTS = 2048,
    MOST_BODY = 16 << 20,
    MOST_HEADER = 32768
};

/* What was asked for. */
typedef struct wish {
    ct_deployed_options net;
    ct_scheduler_options queue;
    ct_front_options front;
    const char *name;
    const char *chat_template; /* NULL: as the tokenizer says */
    ct_chat_template chat;
    double deadline_s;
    double watchdog_s;
    const char
        *parallel;    /* the file by which ranks run the net together; NULL: they are replicas */
    bool check;       /* what it would take and give, in place of serving */
    const char *json; /* … as JSON, where; NULL: nowhere                  */
} wish;

/* What serves; each is there once it was made. */
typedef struct server {
    ct_job *job; /* NULL: no launcher started this */
    ct_deployed *net;
    ct_tokenizer *tokenizer;
    ct_api_keys *keys;
    ct_any_model *model;
    ct_costs costs;
    ct_watched watched;     /* that model, in a job */
    ct_divided_net divided; /* with --parallel                                   */
    ct_comm *talk;          /* … the ranks of its group, whose first one leads    */
    ct_comm *firsts;        /* … those of all groups; NULL on the others          */
    ct_group_leader *leader;
    ct_replicas *replicas;
    ct_dispatch *dispatch;
    ct_api *api;
    ct_front *front;
    ct_reload reload;
    pthread_t main; /* the thread that obeys signals and calls MPI */
} server;

/* ---- options */

static ct_status read_ms(const ct_options *o, const char *name, double least, double *s_p)
{
    const char *text = ct_options_text(o, name);
    char *end;
    double v;

    if (text == NULL) return CT_OK;
    if (!ct_number_real(text, &end, &v) || (*end != '\0') || !(v >= least) || !(v <= 1e9))
        return CT_FAIL(CT_ERR_CONFIG, "%s=%s: expected milliseconds, %g to 1e9",
                       ct_options_place(o, name).text, text, least);
    *s_p = v / 1e3;
    return CT_OK;
}

static ct_status read_budget(const ct_options *o, int64_t *budget_p)
{
    const char *text = ct_options_text(o, "max_batch_tokens");
    char *end;
    int64_t v;

    if ((text == NULL) || (strcmp(text, "AUTO") == 0)) return CT_OK;
    if (!ct_number_integer(text, &end, &v) || (*end != '\0') || (v < 1) || (v > CT_DEPLOYED_TOKENS))
        return CT_FAIL(CT_ERR_CONFIG, "%s=%s: expected AUTO, or 1 to %d",
                       ct_options_place(o, "max_batch_tokens").text, text, CT_DEPLOYED_TOKENS);
    *budget_p = v;
    return CT_OK;
}

/* Clients put it into paths and into JSON. Without an option it is the net's. */
static ct_status check_name(const ct_options *o, const char *name)
{
    const uint8_t *p = (const uint8_t *)name, *end = p + strlen(name);
    bool good = (p < end) && (strchr(name, '/') == NULL);
    int n;

    for (; good && (p < end); p += n) good = (ct_utf8_read(p, end, &n) != CT_NO_CHARACTER);
    if (good) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s=%s: nobody could ask for a model of this name: expected UTF-8 without /",
                   ct_options_place(o, "name").text, name);
}

static ct_status read_chat_template(const ct_options *o, wish *w)
{
    w->chat_template = ct_options_text(o, "chat_template");
    if ((w->chat_template == NULL) || ct_chat_template_named(w->chat_template, &w->chat))
        return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%s=%s: expected CHATML, LLAMA3, ZEPHYR or NONE",
                   ct_options_place(o, "chat_template").text, w->chat_template);
}

static ct_policy read_policy(const ct_options *o)
{
    const char *text = ct_options_text(o, "batching");

    return ((text != NULL) && (strcmp(text, "PADDED") == 0)) ? CT_POLICY_PADDED : CT_POLICY_PACKED;
}

static ct_status read_wish(const ct_options *o, wish *w)
{
    static const char *const needs[] = { "model", "weights" };
    const char *listen = ct_options_text(o, "listen"), *precision = ct_options_text(o, "precision");
    int64_t most = ct_options_count(o, "max_queue", 256);

    if (!ct_feature_has("libmicrohttpd")) return ct_front_start(NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++)
        if (ct_options_text(o, needs[i]) == NULL)
            return CT_FAIL(CT_ERR_CONFIG, "cortado serve needs --%s", needs[i]);
    if ((most < 1) || (most > 100000))
        return CT_FAIL(CT_ERR_CONFIG, "%s=%" PRId64 ": expected 1 to 100000",
                       ct_options_place(o, "max_queue").text, most);
    *w = (wish){ .deadline_s = INFINITY,
                 .watchdog_s = (double)ct_options_count(o, "watchdog_seconds", 300),
                 .name = ct_options_text(o, "name") };
    if (w->name == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "%s: the net has no name: give it one, or one by --name",
                       ct_options_text(o, "model"));
    CT_TRY(check_name(o, w->name));
    w->check = ct_options_flag(o, "check");
    w->json = ct_options_text(o, "json");
    if ((w->json != NULL) && !w->check)
        return CT_FAIL(CT_ERR_CONFIG, "--json is for what --check says");
    w->parallel = ct_options_text(o, "parallel");
    if ((w->parallel != NULL) && w->check)
        return CT_FAIL(CT_ERR_CONFIG, "--check is not for a net that ranks run together: leave "
                                      "out --parallel");
    CT_TRY(read_ms(o, "deadline_ms", 1e-3, &w->deadline_s));
    w->net = (ct_deployed_options){ .model = ct_options_text(o, "model"),
                                    .weights = ct_options_text(o, "weights"),
                                    .bf16 = (precision != NULL) && (strcmp(precision, "BF16") == 0),
                                    .deterministic = ct_options_flag(o, "deterministic") };
    w->queue = (ct_scheduler_options){
        .policy = read_policy(o), .most_waiting = (int)most, .most_count = MOST_COUNT, .mixed = true
    };
    w->net.cache_bytes = (double)ct_options_count(o, "kv_mb", 1024) * 0x1p20;
    CT_TRY(read_chat_template(o, w));
    CT_TRY(read_ms(o, "max_wait_ms", 0, &w->queue.max_wait_s));
    CT_TRY(read_budget(o, &w->queue.budget));
    w->net.most_samples = w->queue.budget;
    w->front = (ct_front_options){ .listen = (listen != NULL) ? listen : "127.0.0.1:8080",
                                   .most_connections = 8192,
                                   .most_header = MOST_HEADER,
                                   .most_body = MOST_BODY,
                                   .read_s = 60,
                                   .write_s = 60,
                                   .linger_s = 20 };
    return CT_OK;
}

/* ---- signals */

static bool is_end(int sig)
{
    return (sig == SIGTERM) || (sig == SIGINT) || (sig == SIGUSR1);
}

/* One that ends, while another is being obeyed or the server starts, does what it does to any
 * program. */
static void die_by(int sig, const sigset_t *waited)
{
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
    (void)pthread_sigmask(SIG_UNBLOCK, waited, NULL);
}

/* The start may take minutes, in which the main thread does not look at signals. Threads that it
 * starts inherit its mask, so it cannot let signals through itself. */
typedef struct start_guard {
    const sigset_t *waited;
    sigset_t ends; /* SIGHUP is left out: it stays until the server has started */
    pthread_t thread;
    atomic_bool over;
} start_guard;

static void *guard_start(void *arg)
{
    start_guard *g = arg;
    int sig = 0;

    while (!atomic_load(&g->over))
        if ((sigwait(&g->ends, &sig) == 0) && is_end(sig)) die_by(sig, g->waited);
    return NULL;
}

static ct_status begin_guard(start_guard *g, const sigset_t *waited)
{
    g->waited = waited;
    g->ends = *waited;
    (void)sigdelset(&g->ends, SIGHUP);
    atomic_init(&g->over, false);
    if (ct_thread_start(guard_start, g, &g->thread) == 0) return CT_OK;
    return CT_FAIL(CT_ERR_NOMEM, "no thread that waits for signals");
}

/* From now on signals wait for the main thread. */
static void end_guard(start_guard *g)
{
    atomic_store(&g->over, true);
    (void)pthread_kill(g->thread, SIGUSR2);
    (void)pthread_join(g->thread, NULL);
}

/* ---- start and end */

static bool is_first(const server *s)
{
    return (s->job == NULL) || (s->job->rank == 0);
}

/* Ranks that run one net. */
static int count_ranks(const wish *w, const server *s)
{
    return (w->parallel != NULL) ? s->divided.n_rank : 1;
}

static int count_replicas(const wish *w, const server *s)
{
    return (s->job != NULL) ? s->job->size / count_ranks(w, s) : 1;
}

/* Those that rank 0 asks: a rank of each replica. */
static ct_comm *asked(const wish *w, const server *s)
{
    return (w->parallel != NULL) ? s->firsts : s->job->comm;
}

static ct_status set_sequences(const ct_served_model *m, wish *w)
{
    if (m->most_context == 0) return CT_OK;
    if (w->queue.policy == CT_POLICY_PADDED)
        return CT_FAIL(CT_ERR_CONFIG,
                       "--batching=PADDED: %s makes texts go on, which is done packed alone: say "
                       "PACKED, or leave out --tokenizer",
                       w->net.model);
    w->queue.most_sequences = MOST_SEQUENCES;
    w->queue.cache_tokens = m->cache_tokens;
    w->queue.page_tokens = m->page_tokens;
    return CT_OK;
}

/* That there is one, by the place that names it. Its readers know the file alone. */
static ct_status check_file(const ct_options *o, const char *name)
{
    const char *path = ct_options_text(o, name);

    if ((path == NULL) || (strcmp(path, "bytes") == 0) || (access(path, R_OK) == 0)) return CT_OK;
    return CT_FAIL(CT_ERR_IO, "%s=%s: %s", ct_options_place(o, name).text, path,
                   ct_path_why(path, errno).text);
}

/* Rank 0 alone sees texts and keys. */
static ct_status open_files(const ct_options *o, wish *w, server *s)
{
    const char *tokenizer = ct_options_text(o, "tokenizer");
    const char *keys = ct_options_text(o, "api_key_file");

    if (!is_first(s)) return CT_OK;
    CT_TRY(check_file(o, "tokenizer"));
    CT_TRY(check_file(o, "labels"));
    CT_TRY(ct_costs_open(&s->costs, ct_options_text(o, "plan")));
    if (keys != NULL) CT_TRY(ct_api_keys_read(keys, &s->keys));
    if (tokenizer != NULL)
        CT_TRY(ct_tokenizer_open(tokenizer, ct_options_text(o, "pattern"), &s->tokenizer));
    if ((tokenizer != NULL) && (w->chat_template == NULL))
        w->chat = ct_chat_template_find(tokenizer);
    return CT_OK;
}

/* How many tokens texts have: 0 without a tokenizer. */
static ct_status share_tokens(const server *s, int64_t *n_p)
{
    *n_p = (s->tokenizer != NULL) ? ct_tokenizer_size(s->tokenizer) : 0;
    return (s->job != NULL) ? ct_group_broadcast(&s->job->group.job, n_p, sizeof(*n_p)) : CT_OK;
}

static ct_status open_net(const ct_options *o, wish *w, server *s, int64_t n_token)
{
    ct_option_place tokenizer_place = ct_options_place(o, "tokenizer");
    ct_option_place labels_place = ct_options_place(o, "labels");
    ct_any_model_options model = { .name = w->name,
                                   .tokenizer = s->tokenizer,
                                   .n_token = n_token,
                                   .labels = is_first(s) ? ct_options_text(o, "labels") : NULL,
                                   .tokenizer_place = tokenizer_place.text,
                                   .labels_place = labels_place.text };

    if (n_token == 0) w->net.cache_bytes = 0;
    CT_TRY(ct_deployed_open(&w->net, &s->net));
    CT_TRY(ct_any_model_create(s->net, &model, &s->model));
    w->queue.most_tokens = ct_any_model_most(s->model);
    if ((ct_deployed_samples(s->net) != NULL) && (w->queue.policy == CT_POLICY_PADDED))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--batching=PADDED: pictures have one size: %s is no net of "
                       "tokens",
                       w->net.model);
    return set_sequences(ct_any_model_served(s->model), w);
}

/* Where any rank fails, all end; what one has said is not said again by the others. */
static ct_status agree(server *s, ct_status mine)
{
    ct_status all = (s->job != NULL) ? ct_group_agree(&s->job->group.job, mine) : mine;

    if ((s->job != NULL) && (mine == CT_OK)) s->job->told = (all != CT_OK);
    return all;
}

/* Files of one name may be unlike ones on other nodes. */
static ct_status compare_weights(const wish *w, const server *s)
{
    uint64_t sum;
    int64_t range[2];

    if (count_replicas(w, s) == 1) return CT_OK;
    CT_TRY(ct_deployed_checksum(s->net, &sum));
    range[0] = (int64_t)(sum >> 2);
    range[1] = -range[0];
    CT_TRY(ct_group_max(&s->job->group.job, range, 2));
    if (range[0] == -range[1]) return CT_OK;
    return CT_FAIL(CT_ERR_DATA, "--weights: the ranks have read weights that differ");
}

/* Kernels of other vector widths add up in another order. */
static ct_status compare_processors(const server *s)
{
    int64_t level = 2 * (int64_t)ct_simd_pick() + ct_simd_has_bf16(), range[] = { level, -level };

    if (s->job == NULL) return CT_OK;
    CT_TRY(ct_group_max(&s->job->group.job, range, 2));
    if (range[0] == -range[1]) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "--deterministic: the ranks' processors differ in their vectors (this one: %s), "
                   "so replies would, too: say CORTADO_SIMD=avx2, or another that all have",
                   ct_simd_name(ct_simd_pick()));
}

static void fail_job(void *ctx, ct_status status)
{
    ct_job_fail(((server *)ctx)->job, status);
}

/* What this rank runs: with others, where it leads them. */
static ct_status make_model(const wish *w, server *s)
{
    const ct_served_model *own = ct_any_model_served(s->model);
    const ct_group_leader_options lead = { .c = s->talk,
                                           .own = own,
                                           .weights = ct_reload_weights(&s->reload),
                                           .fail = fail_job,
                                           .ctx = s };

    if (s->firsts != NULL) {
        CT_TRY(ct_group_leader_create(&lead, &s->leader));
        own = ct_group_leader_model(s->leader);
        s->reload.own = ct_group_leader_weights(s->leader);
    }
    ct_watched_init(&s->watched, own, s->job, w->watchdog_s);
    return CT_OK;
}

/* Opened on every rank, and timed on all of them at once, as they will run. */
static ct_status open_model(const ct_options *o, wish *w, server *s, ct_batch_cost *cost)
{
    int64_t n_token;

    CT_TRY(agree(s, open_files(o, w, s)));
    CT_TRY(share_tokens(s, &n_token));
    CT_TRY(agree(s, open_net(o, w, s, n_token)));
    CT_TRY(compare_weights(w, s));
    if (w->net.deterministic) CT_TRY(compare_processors(s));
    CT_TRY(ct_costs_find(&s->costs, s->job, s->model, ct_deployed_whole(s->net), cost));
    s->reload = (ct_reload){ .files = &w->net, .model = s->model, .net = &s->net };
    s->reload.own = ct_reload_weights(&s->reload);
    return (s->job != NULL) ? agree(s, make_model(w, s)) : CT_OK;
}

/* Any thread: the main one is to look again. */
static void wake_main(void *ctx)
{
    (void)pthread_kill(((server *)ctx)->main, SIGUSR2);
}

static ct_status start_queue(const wish *w, server *s, const ct_served_model *model,
                             const ct_batch_cost *cost)
{
    int n = count_replicas(w, s);

    CT_TRY(ct_dispatch_create(model, &w->queue, cost, &s->dispatch));
    if (n > 1)
        CT_TRY(
            ct_replicas_create(asked(w, s), count_ranks(w, s), model, wake_main, s, &s->replicas));
    for (int r = 1; r < n; r++)
        CT_TRY(ct_dispatch_add_replica(s->dispatch, ct_replicas_model(s->replicas, r)));
    s->reload.dispatch = s->dispatch;
    s->reload.replicas = s->replicas;
    s->reload.wake = wake_main;
    s->reload.ctx = s;
    ct_threads_release(); /* the queue's thread has the net now */
    return ct_dispatch_start(s->dispatch);
}

static const char *why_no_texts(const server *s)
{
    return (s->tokenizer == NULL) ? "the server has no --tokenizer" : NULL;
}

static void tell_ranks(const wish *w, const server *s)
{
    int n = count_replicas(w, s), each = count_ranks(w, s);
    char what[64];

    if (s->job == NULL) return;
    if (each == 1)
        (void)snprintf(what, sizeof(what), "Replicas: %d, one a rank", n);
    else if (n == 1)
        (void)snprintf(what, sizeof(what), "One net on %d ranks", each);
    else
        (void)snprintf(what, sizeof(what), "Replicas: %d, each one net on %d ranks", n, each);
    CT_INFO("%s. Rank 0, which signals are for: process %d on %s.", what, (int)getpid(),
            s->job->host);
}

static ct_status start_front(const wish *w, server *s, const ct_batch_cost *cost)
{
    const ct_served_model *model =
        (s->job != NULL) ? &s->watched.model : ct_any_model_served(s->model);
    ct_api_options api = { .model = model,
                           .keys = s->keys,
                           .version = ct_build_version(),
                           .deadline_s = w->deadline_s,
                           .chat = w->chat,
                           .deterministic = w->net.deterministic,
                           .no_texts = why_no_texts(s),
                           .most_inputs = (w->queue.most_waiting < MOST_INPUTS)
                                              ? w->queue.most_waiting
                                              : MOST_INPUTS };
    ct_scheduler_stats stats;

    CT_TRY(start_queue(w, s, model, cost));
    CT_TRY(ct_api_create(&api, s->dispatch, &s->api));
    CT_TRY(ct_front_start(s->api, &w->front, &s->front));
    ct_dispatch_read_stats(s->dispatch, &stats);
    CT_INFO("Batches of at most %" PRId64 " %s: %.3g ms; one of %" PRId64 ": %.3g ms.",
            stats.budget, (ct_deployed_samples(s->net) != NULL) ? "pictures" : "tokens",
            1e3 * ct_batch_cost_s(cost, stats.budget), cost->tokens[0], 1e3 * cost->s[0]);
    if (model->most_context > 0)
        CT_INFO("Texts go on up to %" PRId64 " tokens; the cache has room for %" PRId64
                " (%.0f MiB%s). Chats: %s.",
                model->most_context, model->cache_tokens, w->net.cache_bytes / 0x1p20,
                (s->replicas != NULL) ? ", on each rank" : "", ct_chat_template_name(w->chat));
    tell_ranks(w, s);
    return CT_OK;
}

/* What batches have taught stays for the next start. */
static void keep_costs(server *s)
{
    ct_scheduler_stats stats;
    ct_batch_cost cost;

    if (s->dispatch == NULL) return;
    ct_dispatch_read_stats(s->dispatch, &stats);
    ct_dispatch_read_cost(s->dispatch, &cost);
    ct_costs_refine(&s->costs, &cost, stats.batches);
}

static void end(server *s)
{
    ct_front_stop(s->front);
    ct_api_destroy(s->api);
    ct_dispatch_destroy(s->dispatch);
    ct_replicas_destroy(s->replicas);
    ct_group_leader_destroy(s->leader);
    ct_any_model_destroy(s->model);
    ct_deployed_close(s->net);
    ct_divided_net_close(&s->divided);
    ct_comm_destroy(s->firsts);
    ct_comm_destroy(s->talk);
    ct_tokenizer_close(s->tokenizer);
    ct_api_keys_destroy(s->keys);
    ct_costs_close(&s->costs);
}

/* ---- until a signal comes */

/* From now on: all is answered, and another rank may hang. */
static void end_by_signals(const sigset_t *waited)
{
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGUSR2, SIG_IGN);
    (void)pthread_sigmask(SIG_UNBLOCK, waited, NULL);
}

/* Sleeps until something is to be done, and moves messages meanwhile. A signal, or 0: something
 * else is to be looked at. */
static ct_status wait_for_signal(const wish *w, server *s, const sigset_t *waited, double most_s,
                                 int *sig_p)
{
    double s_nap = INFINITY;
    struct timespec t;
    int sig;

    if (s->replicas != NULL) {
        CT_TRY(ct_replicas_move(s->replicas, &s_nap));
        CT_TRY(ct_replicas_check(s->replicas, w->watchdog_s));
    }
    s_nap = fmin(s_nap, most_s);
    t = (struct timespec){ (time_t)s_nap, (long)(1e9 * fmod(s_nap, 1)) };
    sig = sigtimedwait(waited, NULL, &t);
    *sig_p = ((sig < 0) || (sig == SIGUSR2)) ? 0 : sig;
    return CT_OK;
}

static ct_status wait_for_end(const wish *w, server *s, const sigset_t *waited)
{
    int sig = 0;

    while (!is_end(sig)) {
        CT_TRY(wait_for_signal(w, s, waited, 60, &sig));
        if (sig == SIGHUP) ct_reload_ask(&s->reload);
        (void)ct_reload_look(&s->reload);
    }
    CT_INFO("%s: what was asked for is still answered, nothing new.", strsignal(sig));
    while (!ct_front_drain(s->front, 0) || ct_reload_look(&s->reload)) {
        CT_TRY(wait_for_signal(w, s, waited, 0.02, &sig));
        if (is_end(sig)) die_by(sig, waited);
    }
    return CT_OK;
}

static ct_status end_group(const wish *w, server *s)
{
    if (s->leader == NULL) return CT_OK;
    ct_watchdog_beat(s->job->watchdog, "the end of the group");
    ct_watchdog_limit(s->job->watchdog, w->watchdog_s);
    return ct_group_leader_end(s->leader);
}

static ct_status serve_first(const wish *w, server *s, const sigset_t *waited,
                             const ct_batch_cost *cost)
{
    ct_status status = start_front(w, s, cost);

    if (s->job != NULL) (void)ct_job_share(s->job, status);
    CT_TRY(status);
    s->divided.repeats = true;
    if (s->leader != NULL) ct_group_leader_begin(s->leader);
    if (!ct_front_is_private(s->front) && (s->keys == NULL))
        CT_WARN("%s can be reached from other machines, and no --api_key_file says who may ask",
                ct_front_address(s->front));
    printf("%s at %s\n", w->name, ct_front_address(s->front));
    (void)fflush(stdout);
    CT_TRY(wait_for_end(w, s, waited));
    keep_costs(s);
    if ((s->replicas == NULL) && (s->leader == NULL)) return CT_OK;
    end_by_signals(waited);
    if (s->replicas != NULL) CT_TRY(ct_replicas_end(s->replicas, w->watchdog_s));
    return end_group(w, s);
}

/* The other ranks leave signals to rank 0, which ends them. */
static ct_status serve_other(const wish *w, server *s)
{
    const ct_replica_weights own = ct_reload_weights(&s->reload);

    CT_TRY(ct_job_share(s->job, CT_OK));
    s->divided.repeats = true;
    if ((w->parallel != NULL) && (s->leader == NULL))
        return ct_group_follow(s->talk, &s->watched.model, &own);
    if (s->leader != NULL) ct_group_leader_begin(s->leader);
    CT_TRY(ct_replicas_obey(asked(w, s), &s->watched.model, &s->reload.own));
    return end_group(w, s);
}

static ct_status check(const wish *w, const server *s, const ct_batch_cost *cost)
{
    const ct_capacity c = { .files = &w->net,
                            .net = s->net,
                            .model = ct_any_model_served(s->model),
                            .tokenizer = s->tokenizer,
                            .chat = ct_chat_template_name(w->chat),
                            .queue = &w->queue,
                            .cost = cost,
                            .ranks = (s->job != NULL) ? s->job->size : 1 };
    ct_status status = is_first(s) ? ct_capacity_tell(&c, w->json) : CT_OK;

    return (s->job != NULL) ? ct_job_share(s->job, status) : status;
}

/* Groups are replicas; what their ranks say of a net meets nothing of this. */
static ct_status join_group(wish *w, server *s)
{
    int rank = s->job->rank, n;
    const char *why = NULL;

    if (!ct_comm_may_thread(s->job->comm, &why)) /* the queue's thread begins sums */
        return CT_FAIL(CT_ERR_CONFIG, "--parallel: %s", why);
    CT_TRY(ct_divided_net_open(s->job, w->parallel, true, &s->divided));
    w->net.division = &s->divided.served;
    n = s->divided.n_rank;
    CT_TRY(ct_comm_split(s->job->comm, rank / n, rank, &s->talk));
    return ct_comm_split(s->job->comm, (rank % n == 0) ? 0 : -1, rank, &s->firsts);
}

static ct_status join(ct_call *call, wish *w, server *s)
{
    s->job = call->job;
    if ((s->job == NULL) && (w->parallel != NULL))
        return CT_FAIL(CT_ERR_LAUNCH,
                       "--parallel=%s is for the ranks of a job: start it by mpirun "
                       "or srun",
                       w->parallel);
    if (s->job == NULL) return CT_OK;
    CT_TRY(ct_job_threads(s->job, 0));
    CT_TRY(ct_job_connect(s->job, "auto", false));
    return (w->parallel != NULL) ? join_group(w, s) : CT_OK;
}

ct_status ct_verb_serve(ct_call *call)
{
    static const int obeyed[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 };
    server s = { .main = pthread_self() };
    start_guard guard;
    ct_batch_cost cost;
    sigset_t waited;
    ct_status status;
    wish w;

    if (ct_options_text(call->options, "model") != NULL)
        CT_TRY(ct_serve_options_take(call->options, ct_options_text(call->options, "model")));
    CT_TRY(read_wish(call->options, &w));
    /* before there are threads, which inherit the mask */
    (void)sigemptyset(&waited);
    for (size_t i = 0; i < sizeof(obeyed) / sizeof(obeyed[0]); i++)
        (void)sigaddset(&waited, obeyed[i]);
    (void)pthread_sigmask(SIG_BLOCK, &waited, NULL);
    CT_TRY(begin_guard(&guard, &waited));
    status = join(call, &w, &s);
    if (status == CT_OK) status = open_model(call->options, &w, &s, &cost);
    end_guard(&guard);
    if ((status == CT_OK) && w.check)
        status = check(&w, &s, &cost);
    else if (status == CT_OK)
        status = is_first(&s) ? serve_first(&w, &s, &waited, &cost) : serve_other(&w, &s);
    /* where a rank does not answer, threads wait for it, and only the job's end ends them */
    if ((status != CT_OK) && ((s.replicas != NULL) || (w.net.division != NULL)))
        ct_job_fail(s.job, status);
    end(&s);
    return status;
}
