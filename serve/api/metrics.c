#include "serve/api/metrics.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

static const int status_known[] = { 200, 400, 401, 404, 405, 413, 415, 422, 429, 500, 503, 504, 0 };
enum { N_STATUS = sizeof(status_known) / sizeof(status_known[0]) /* 0: any other */ };

/* Upper ends of the histogram's buckets, in seconds. */
static const double le[] = { 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                             0.1,    0.25,  0.5,    1,     2.5,  5,     10 };
enum { N_LE = sizeof(le) / sizeof(le[0]) };

typedef struct times {
    int64_t by_time[N_LE + 1];
    double sum_s;
} times;

typedef struct route_count {
    const char *name;
    int64_t by_status[N_STATUS];
    times times;
} route_count;

struct ct_metrics {
    int n_route;
    route_count *count;
    times first_token, next_token, decode;
    pthread_mutex_t lock;
};

ct_status ct_metrics_create(const char *const *route, int n_route, ct_metrics **m_p)
{
    ct_metrics *m = calloc(1, sizeof(*m));

    if (m != NULL) m->count = calloc((size_t)n_route, sizeof(*m->count));
    if ((m == NULL) || (m->count == NULL) || (pthread_mutex_init(&m->lock, NULL) != 0)) {
        if (m != NULL) free(m->count);
        free(m);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for metrics");
    }
    for (int r = 0; r < n_route; r++) m->count[r].name = route[r];
    m->n_route = n_route;
    *m_p = m;
    return CT_OK;
}

void ct_metrics_destroy(ct_metrics *m)
{
    if (m == NULL) return;
    (void)pthread_mutex_destroy(&m->lock);
    free(m->count);
    free(m);
}

static void add_time(times *h, double s)
{
    int b = 0;

    while ((b < N_LE) && (s > le[b])) b++;
    h->by_time[b]++;
    h->sum_s += s;
}

void ct_metrics_count(ct_metrics *m, int route, int status, double s)
{
    int k = 0;

    while ((status_known[k] != 0) && (status_known[k] != status)) k++;
    (void)pthread_mutex_lock(&m->lock);
    m->count[route].by_status[k]++;
    add_time(&m->count[route].times, s);
    (void)pthread_mutex_unlock(&m->lock);
}

void ct_metrics_count_token(ct_metrics *m, bool first, double s)
{
    (void)pthread_mutex_lock(&m->lock);
    add_time(first ? &m->first_token : &m->next_token, s);
    (void)pthread_mutex_unlock(&m->lock);
}

void ct_metrics_count_decode(ct_metrics *m, double s)
{
    (void)pthread_mutex_lock(&m->lock);
    add_time(&m->decode, s);
    (void)pthread_mutex_unlock(&m->lock);
}

static void head(ct_text *to, const char *name, const char *type, const char *help)
{
    ct_text_add(to, "# HELP cortado_%s %s\n# TYPE cortado_%s %s\n", name, help, name, type);
}

static void one(ct_text *to, const char *name, const char *type, const char *help, int64_t value)
{
    head(to, name, type, help);
    ct_text_add(to, "cortado_%s %" PRId64 "\n", name, value);
}

/* label: route="/metrics", for example, or nothing. */
static void write_times(const times *h, const char *name, const char *label, ct_text *to)
{
    const char *comma = (label[0] != '\0') ? "," : "";
    int64_t sum = 0;

    for (int b = 0; b <= N_LE; b++) {
        sum += h->by_time[b];
        ct_text_add(to, "cortado_%s_bucket{%s%sle=\"", name, label, comma);
        if (b < N_LE)
            ct_text_add(to, "%g", le[b]);
        else
            ct_text_add(to, "+Inf");
        ct_text_add(to, "\"} %" PRId64 "\n", sum);
    }
    ct_text_add(to, "cortado_%s_sum{%s} %.9g\n", name, label, h->sum_s);
    ct_text_add(to, "cortado_%s_count{%s} %" PRId64 "\n", name, label, sum);
}

static void write_route_times(const route_count *r, ct_text *to)
{
    ct_text label = { .text = NULL };

    ct_text_add(&label, "route=\"%s\"", r->name);
    if (label.failed)
        to->failed = true;
    else
        write_times(&r->times, "request_seconds", label.text, to);
    ct_text_destroy(&label);
}

/* For each token that is made, and each request with pictures. */
static void write_parts(ct_metrics *m, ct_text *to)
{
    (void)pthread_mutex_lock(&m->lock);
    head(to, "first_token_seconds", "histogram",
         "From the header of a request to the first token of each of its texts.");
    write_times(&m->first_token, "first_token_seconds", "", to);
    head(to, "next_token_seconds", "histogram", "From a token to the next of the same text.");
    write_times(&m->next_token, "next_token_seconds", "", to);
    head(to, "decode_seconds", "histogram", "Decoding of the pictures of a request.");
    write_times(&m->decode, "decode_seconds", "", to);
    (void)pthread_mutex_unlock(&m->lock);
}

static void write_replies(ct_metrics *m, ct_text *to)
{
    (void)pthread_mutex_lock(&m->lock);
    head(to, "replies_total", "counter", "Replies by route and status.");
    for (int r = 0; r < m->n_route; r++)
        for (int k = 0; k < N_STATUS; k++) {
            int64_t n = m->count[r].by_status[k];

            if (n == 0) continue;
            ct_text_add(to, "cortado_replies_total{route=\"%s\",status=\"", m->count[r].name);
            if (status_known[k] != 0)
                ct_text_add(to, "%d", status_known[k]);
            else
                ct_text_add(to, "other");
            ct_text_add(to, "\"} %" PRId64 "\n", n);
        }
    head(to, "request_seconds", "histogram",
         "From the header of a request to the end of its reply.");
    for (int r = 0; r < m->n_route; r++) write_route_times(&m->count[r], to);
    (void)pthread_mutex_unlock(&m->lock);
}

void ct_metrics_write(ct_metrics *m, const ct_scheduler_stats *s, bool ready, ct_text *to)
{
    static const char *const refused[] = { NULL, "full", "late", "long", "draining" };
    static const char *const ended[] = { "done", "expired", "cancelled", "failed" };

    write_replies(m, to);
    write_parts(m, to);
    one(to, "ready", "gauge", "1: new requests are answered.", ready);
    one(to, "admitted_total", "counter", "Works that went into the queue.", s->admitted);
    head(to, "refused_total", "counter", "Works that did not.");
    for (int k = CT_REFUSED_FULL; k <= CT_REFUSED_DRAINING; k++)
        ct_text_add(to, "cortado_refused_total{why=\"%s\"} %" PRId64 "\n", refused[k],
                    s->refused[k]);
    head(to, "ended_total", "counter", "Works that were admitted, by how they ended.");
    for (int k = 0; k <= CT_OUTCOME_FAILED; k++)
        ct_text_add(to, "cortado_ended_total{how=\"%s\"} %" PRId64 "\n", ended[k], s->ended[k]);
    one(to, "batches_total", "counter", "Batches that ran.", s->batches);
    one(to, "batch_tokens_total", "counter", "Tokens of batches, padding among them.", s->tokens);
    one(to, "batch_padding_total", "counter", "Tokens of them that are padding.", s->padding);
    one(to, "prompt_tokens_total", "counter", "Tokens of prompts that texts went on from.",
        s->prompt);
    one(to, "prompt_cached_tokens_total", "counter", "Tokens of them that the cache had already.",
        s->cached);
    one(to, "made_tokens_total", "counter", "Tokens that were made.", s->made);
    one(to, "waiting", "gauge", "Works in the queue.", s->waiting);
    one(to, "sequences", "gauge", "Sequences that have begun.", s->sequences);
    one(to, "cache_tokens", "gauge", "Tokens that sequences hold of the cache.", s->cache_taken);
    one(to, "budget_tokens", "gauge", "The most tokens of a batch.", s->budget);
}

static void each(ct_text *to, const char *name, const char *type, const char *help,
                 const ct_replica_stats *s, int n, int64_t (*value)(const ct_replica_stats *s))
{
    head(to, name, type, help);
    for (int i = 0; i < n; i++)
        ct_text_add(to, "cortado_%s{replica=\"%d\"} %" PRId64 "\n", name, i, value(&s[i]));
}

static int64_t batches_of(const ct_replica_stats *s)
{
    return s->batches;
}

static int64_t tokens_of(const ct_replica_stats *s)
{
    return s->tokens;
}

static int64_t failed_of(const ct_replica_stats *s)
{
    return s->failed;
}

static int64_t prompt_of(const ct_replica_stats *s)
{
    return s->prompt;
}

static int64_t cached_of(const ct_replica_stats *s)
{
    return s->cached;
}

static int64_t sequences_of(const ct_replica_stats *s)
{
    return s->sequences;
}

static int64_t taken_of(const ct_replica_stats *s)
{
    return s->cache_taken;
}

void ct_metrics_write_replicas(const ct_replica_stats *s, int n, ct_text *to)
{
    each(to, "replica_batches_total", "counter", "Batches that are over.", s, n, batches_of);
    each(to, "replica_batch_tokens_total", "counter", "Their tokens.", s, n, tokens_of);
    each(to, "replica_failed_total", "counter", "Those of them that failed.", s, n, failed_of);
    each(to, "replica_prompt_tokens_total", "counter", "Tokens of prompts that began there.", s, n,
         prompt_of);
    each(to, "replica_prompt_cached_tokens_total", "counter",
         "Tokens of them that the cache had already.", s, n, cached_of);
    each(to, "replica_sequences", "gauge", "Sequences that have begun there.", s, n, sequences_of);
    each(to, "replica_cache_tokens", "gauge", "Tokens that they hold of the cache.", s, n,
         taken_of);
    head(to, "replica_busy_seconds_total", "counter", "How long they took.");
    for (int i = 0; i < n; i++)
        ct_text_add(to, "cortado_replica_busy_seconds_total{replica=\"%d\"} %.9g\n", i,
                    s[i].busy_s);
}
