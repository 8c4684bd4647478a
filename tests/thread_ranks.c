#include "tests/thread_ranks.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/rng.h"

/* Everyone has come here; false where a rank has left for good. */
static bool meet(thread_ranks *j)
{
    bool good;
    long round;

    pthread_mutex_lock(&j->lock);
    round = j->round;
    if (++j->arrived == j->n) {
        j->arrived = 0;
        j->round++;
        pthread_cond_broadcast(&j->turn);
    }
    while ((j->round == round) && !j->broken) pthread_cond_wait(&j->turn, &j->lock);
    good = (j->round != round); /* whoever is through is through, whatever breaks later */
    pthread_mutex_unlock(&j->lock);
    return good;
}

/* Shows mine to all, runs work with everyone's shown, and leaves when all are through. */
static ct_status together(thread_rank *r, const void *mine, void (*work)(thread_rank *r, void *ctx),
                          void *ctx)
{
    r->job->slot[r->rank] = mine;
    if (!meet(r->job)) return CT_ERR_COMM;
    work(r, ctx);
    return meet(r->job) ? CT_OK : CT_ERR_COMM;
}

typedef struct reduction {
    void *result;
    int64_t n;
    double share;
} reduction;

static void add_doubles(thread_rank *r, void *ctx)
{
    reduction *c = ctx;
    double *sum = c->result;

    for (int k = 0; k < r->job->n; k++) {
        const double *v = r->job->slot[k];

        for (int64_t i = 0; i < c->n; i++) sum[i] = (k == 0) ? v[i] : sum[i] + v[i];
    }
}

static void add_floats(thread_rank *r, void *ctx)
{
    reduction *c = ctx;
    float *sum = c->result;

    for (int k = 0; k < r->job->n; k++) {
        const float *v = r->job->slot[k];

        for (int64_t i = 0; i < c->n; i++) sum[i] = (k == 0) ? v[i] : sum[i] + v[i];
    }
}

static void take_max(thread_rank *r, void *ctx)
{
    reduction *c = ctx;
    int64_t *most = c->result;

    for (int k = 0; k < r->job->n; k++) {
        const int64_t *v = r->job->slot[k];

        for (int64_t i = 0; i < c->n; i++)
            most[i] = ((k == 0) || (v[i] > most[i])) ? v[i] : most[i];
    }
}

static void take_first(thread_rank *r, void *ctx)
{
    reduction *c = ctx;

    memcpy(c->result, r->job->slot[0], (size_t)c->n);
}

/* Into memory of its own first: others still read v. */
static ct_status reduce(thread_rank *r, void *v, int64_t n, size_t size,
                        void (*work)(thread_rank *r, void *ctx))
{
    reduction c = { .result = calloc((size_t)n + 1, size), .n = n };
    ct_status status = together(r, v, work, &c);

    if (status == CT_OK) memcpy(v, c.result, (size_t)n * size);
    free(c.result);
    return status;
}

static ct_status rank_sum(void *ctx, double *v, int n)
{
    return reduce(ctx, v, n, sizeof(*v), add_doubles);
}

static ct_status rank_max(void *ctx, int64_t *v, int n)
{
    return reduce(ctx, v, n, sizeof(*v), take_max);
}

static ct_status rank_broadcast(void *ctx, void *data, size_t bytes)
{
    return reduce(ctx, data, (int64_t)bytes, 1, take_first);
}

static ct_status rank_sum_begin(void *ctx, float *v, int64_t n, void **ticket_p)
{
    *ticket_p = ctx;
    return reduce(ctx, v, n, sizeof(*v), add_floats);
}

static ct_status rank_sum_wait(void *ctx, void *ticket)
{
    return (ticket == ctx) ? CT_OK : CT_FAIL(CT_ERR_ARG, "another rank's sum is waited for");
}

static void put_side_by_side(thread_rank *r, void *ctx)
{
    reduction *c = ctx;

    for (int k = 0; k < r->job->n; k++)
        memcpy((int64_t *)c->result + k * c->n, r->job->slot[k], (size_t)c->n * sizeof(int64_t));
}

static ct_status rank_gather(void *ctx, const int64_t *v, int n, int64_t *all)
{
    reduction c = { .result = all, .n = n };

    return together(ctx, v, put_side_by_side, &c);
}

static void nothing(thread_rank *r, void *ctx)
{
    (void)r;
    (void)ctx;
}

static ct_status rank_barrier(void *ctx)
{
    return together(ctx, NULL, nothing, NULL);
}

typedef struct message {
    void *data;
    size_t bytes;
    int from, to;
} message;

static void take_message(thread_rank *r, void *ctx)
{
    const message *m = ctx;

    if (r->rank == m->to) memcpy(m->data, r->job->slot[m->from], m->bytes);
}

static ct_status rank_send(void *ctx, void *data, size_t bytes, int from, int to)
{
    message m = { data, bytes, from, to };

    return together(ctx, data, take_message, &m);
}

typedef struct parcels {
    const float *const *out;
    const int64_t *out_n, *in_n;
    float *const *in;
    bool fault;
} parcels;

static void take_parcels(thread_rank *r, void *ctx)
{
    parcels *p = ctx;

    for (int k = 0; k < r->job->n; k++) {
        const parcels *from = r->job->slot[k];

        if (k == r->rank) continue;
        p->fault = p->fault || (from->out_n[r->rank] != p->in_n[k]);
        if (!p->fault && (p->in_n[k] > 0))
            memcpy(p->in[k], from->out[r->rank], (size_t)p->in_n[k] * sizeof(float));
    }
}

static ct_status rank_exchange(void *ctx, const float *const *out, const int64_t *out_n,
                               float *const *in, const int64_t *in_n)
{
    parcels p = { out, out_n, in_n, in, false };

    CT_TRY(together(ctx, &p, take_parcels, &p));
    return p.fault ? CT_FAIL(CT_ERR_COMM, "a parcel of another size than is expected") : CT_OK;
}

static ct_status rank_begin(ct_grad_sync *sync, int64_t iteration, float scale, float rate)
{
    thread_rank *r = sync->ctx;

    (void)iteration;
    (void)scale;
    (void)rate;
    if ((r->step > 0) && (r->n_reported < r->n_learned))
        return CT_FAIL(CT_ERR_ARG, "a step begins with %d of %d gradients still under way",
                       r->n_learned - r->n_reported, r->n_learned);
    r->ready_count = 0;
    r->n_reported = 0;
    memset(r->reported, 0, (size_t)r->n_learned * sizeof(*r->reported));
    r->step++;
    return CT_OK;
}

static ct_status rank_ready(void *ctx, int param)
{
    thread_rank *r = ctx;

    (void)param;
    r->ready_count++;
    return CT_OK;
}

static ct_status rank_poll(void *ctx)
{
    (void)ctx;
    return CT_OK;
}

/* With residuals, half of each gradient waits for the next step: enough to see that it survives. */
static void hold_back(thread_rank *r)
{
    float *g = r->net->grad_arena;

    for (int64_t i = 0; i < r->net->grad_count; i++) {
        float all = g[i] + r->residual[i];

        g[i] = ((r->job->all_from > 0) && (r->step >= r->job->all_from)) ? all : 0.5f * all;
        r->residual[i] = all - g[i];
    }
}

/* One bucket lands: parameter i. Until now its sum is nowhere, and its gradient unspoilt. */
static ct_status land(thread_rank *r, int i, ct_landed_fn landed, void *landed_ctx)
{
    const ct_param *p = &r->net->param[i];

    if (r->job->lost == i + 1) return CT_FAIL(CT_ERR_COMM, "the bucket of %s is lost", p->key);
    if (reduce(r, r->net->grad_arena + p->offset, p->count, sizeof(float), add_floats) != CT_OK)
        return CT_ERR_COMM;
    r->reported[i] = true;
    r->n_reported++;
    return landed(landed_ctx, i, 1);
}

static bool all_reported(const thread_rank *r, int first, int n)
{
    for (int i = first; (i < first + n) && (i < r->n_learned); i++) {
        if (!r->reported[i]) return false;
    }
    return true;
}

/* Buckets land in an order of the job's and the step's own, the same on all ranks, and as late as
 * they may: with the wait that needs them. */
static ct_status rank_wait(void *ctx, int first, int n, ct_landed_fn landed, void *landed_ctx)
{
    thread_rank *r = ctx;
    uint64_t key = ct_rng_key((uint64_t)r->job->landing, (uint64_t)r->step, 0);

    if (r->ready_count != r->n_learned)
        return CT_FAIL(CT_ERR_COMM, "%lld of %d gradients were ready", (long long)r->ready_count,
                       r->n_learned);
    if ((r->residual != NULL) && (r->n_reported == 0)) hold_back(r);
    r->n_wait++;
    for (int k = 0; (k < r->n_learned) && !all_reported(r, first, n); k++) {
        int i = (int)ct_rng_permute(key, (uint64_t)k, (uint64_t)r->n_learned);

        if (!r->reported[i]) CT_TRY(land(r, i, landed, landed_ctx));
    }
    return CT_OK;
}

static ct_status rank_finish(void *ctx, ct_landed_fn landed, void *landed_ctx)
{
    return rank_wait(ctx, 0, ((thread_rank *)ctx)->n_learned, landed, landed_ctx);
}

static void rank_reads(void *ctx, int param)
{
    (void)ctx, (void)param;
}

static ct_grad_effect rank_effect(void *ctx, int param)
{
    (void)param;
    return ((thread_rank *)ctx)->job->absorbs ? CT_GRAD_UPDATE : CT_GRAD_SUM;
}

static void rank_stats(void *ctx, bool codec, ct_sync_stats *out)
{
    (void)ctx, (void)codec;
    memset(out, 0, sizeof(*out));
}

/* A residual, and where the job absorbs its rate. */
static bool rank_state(void *ctx, int param, int k, ct_sync_state *out)
{
    thread_rank *r = ctx;
    const ct_param *p = &r->net->param[param];

    if ((r->residual == NULL) || (param >= r->n_learned) || (k > (int)r->job->absorbs))
        return false;
    *out = (ct_sync_state){ .name = CT_SYNC_RESIDUAL,
                            .param = param,
                            .data = r->residual + p->offset,
                            .count = p->count,
                            .of_update = r->job->absorbs };
    if (k == 1)
        *out = (ct_sync_state){
            .name = CT_SYNC_RATE, .param = param, .data = &r->rate, .count = 1, .replicated = true
        };
    return true;
}

static ct_status rank_restored(void *ctx)
{
    (void)ctx;
    return CT_OK;
}

static const ct_group_ops group_ops = { .sum = rank_sum,
                                        .max = rank_max,
                                        .sum_begin = rank_sum_begin,
                                        .sum_wait = rank_sum_wait,
                                        .broadcast = rank_broadcast,
                                        .gather = rank_gather,
                                        .barrier = rank_barrier,
                                        .send = rank_send,
                                        .exchange = rank_exchange };
static const ct_transport_ops transport_ops = {
    .ready = rank_ready, .poll = rank_poll, .wait = rank_wait, .finish = rank_finish
};
static const ct_grad_sync_ops sync_ops = {
    .begin = rank_begin,
    .reads = rank_reads,
    .effect = rank_effect,
    .stats = rank_stats,
};

ct_status thread_rank_open(void *ctx, ct_net *net, ct_exchange *out)
{
    thread_rank *r = ctx;

    r->net = net;
    r->n_learned = 0;
    while ((r->n_learned < net->n_param) &&
           (net->param[r->n_learned].offset + net->param[r->n_learned].count <= net->grad_count))
        r->n_learned++;
    free(r->reported);
    r->reported = calloc((size_t)r->n_learned + 1, sizeof(*r->reported));
    r->step = r->n_reported = 0;
    free(r->residual);
    r->residual = r->job->residuals ? calloc((size_t)net->grad_count + 1, sizeof(float)) : NULL;
    *out = (ct_exchange){
        .job = { .ctx = r, .rank = r->rank, .size = r->job->n, .ops = &group_ops },
        .data = { .ctx = r, .rank = r->rank, .size = r->job->n, .ops = &group_ops },
        .stage = { .ctx = r, .rank = r->rank, .size = r->job->n, .ops = &group_ops },
        .sync = { .ctx = r, .ops = &sync_ops, .transport = { .ctx = r, .ops = &transport_ops } },
        .states = { r, rank_state, rank_restored }
    };
    return CT_OK;
}

static void *run_rank(void *arg)
{
    thread_rank *r = arg;

    omp_set_num_threads(1); /* of this rank's team: the ranks are threads enough */
    r->status = r->job->run(r);
    if ((r->status != CT_OK) && (r->status != CT_STOPPED)) {
        pthread_mutex_lock(&r->job->lock);
        /* a status that all ranks agreed on breaks nobody: they are leaving too */
        r->job->broken = true;
        pthread_cond_broadcast(&r->job->turn);
        pthread_mutex_unlock(&r->job->lock);
    }
    free(r->residual);
    free(r->reported);
    r->residual = NULL;
    r->reported = NULL;
    return NULL;
}

ct_status thread_ranks_run(thread_ranks *job, thread_rank *rank)
{
    pthread_t thread[THREAD_RANKS_MAX];
    ct_status worst = CT_OK;

    pthread_mutex_init(&job->lock, NULL);
    pthread_cond_init(&job->turn, NULL);
    job->arrived = 0;
    job->broken = false;
    for (int i = 0; i < job->n; i++) {
        void *out = rank[i].out;

        rank[i] = (thread_rank){ .job = job, .rank = i, .out = out };
        pthread_create(&thread[i], NULL, run_rank, &rank[i]);
    }
    for (int i = 0; i < job->n; i++) {
        pthread_join(thread[i], NULL);
        if (rank[i].status > worst) worst = rank[i].status;
    }
    pthread_cond_destroy(&job->turn);
    pthread_mutex_destroy(&job->lock);
    return worst;
}
