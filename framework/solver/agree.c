/* What the ranks decide and compare together. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/hash.h"
#include "framework/base/text.h"
#include "framework/base/trace.h"
#include "framework/solver/solver_private.h"

/* A stop outranks a snapshot, since it takes one too. */
static const ct_solver_action by_urgency[] = { CT_ACTION_NONE, CT_ACTION_SNAPSHOT, CT_ACTION_STOP };

/* By rank 0's clock: snapshot_minutes have passed. */
static bool is_old(const ct_solver *s)
{
    double limit_s = (double)s->param->snapshot_minutes * 60.0;

    return (s->exchange.job.rank == 0) && (limit_s > 0.0) &&
           (ct_clock_s() - s->snapshot_s > limit_s);
}

static int64_t urgency_here(const ct_solver *s)
{
    int action = (s->options.stop_signal != NULL) ? *s->options.stop_signal : CT_ACTION_NONE;
    double limit_s = (double)s->param->max_hours * 3600.0;

    if (action == CT_ACTION_STOP) return 2;
    if ((s->exchange.job.rank == 0) && (limit_s > 0.0) && (ct_clock_s() - s->start_s > limit_s))
        return 2;
    if ((action == CT_ACTION_SNAPSHOT) || is_old(s)) return 1;
    return 0;
}

ct_status ct_solver_agree(ct_solver *s, bool finite, ct_solver_action *action_p)
{
    const ct_group *g = &s->exchange.job;
    int64_t v[] = { urgency_here(s), finite ? 0 : 1, 0 };

    if (s->later != NULL) v[2] = ct_snapshot_later_need(s->later);
    /* One blocking reduction of 16 or 24 bytes a step, where the ranks meet anyway: the next layer
     * that learns waits for gradients of all of them. Gradients on their way go on meanwhile. */
    CT_TRY(ct_group_max(g, v, (s->later != NULL) ? 3 : 2));
    s->later_need = (ct_later_need)v[2];
    if (v[1] != 0) {
        /* all ranks leave here: with nothing on its way, so that what they exchanged over can go */
        CT_TRY(ct_solver_rest(s));
        if (finite) return CT_ERR_DIVERGED; /* the rank that found it says so */
        return CT_FAIL(CT_ERR_DIVERGED,
                       "the loss of iteration %" PRId64
                       " is not finite (learning rate %g); stop_on_nan: false goes on",
                       s->iteration, s->rate);
    }
    *action_p = by_urgency[v[0]];
    if ((*action_p == CT_ACTION_SNAPSHOT) && (s->options.stop_signal != NULL))
        *s->options.stop_signal = CT_ACTION_NONE;
    return CT_OK;
}

ct_status ct_solver_share_status(ct_solver *s, ct_status status)
{
    int64_t worst = (ct_solver_writers(s)->rank == 0) ? (int64_t)status : 0;

    CT_TRY(ct_group_max(&s->exchange.job, &worst, 1));
    return (ct_status)worst;
}

/* Of all samples, those that the rank's layers see: of its own, or of its replica. */
static double share_of(const ct_solver *s, bool own_samples, int n_rank)
{
    const ct_net *net = s->net;
    const ct_stage_place *place = net->options.env.place;
    int64_t local = net->batch_local;

    double points =
        (double)n_rank / ct_optex_sharers(s->param, n_rank); /* that are evaluated at once */

    if (net->batch_global <= 0) return 1.0 / n_rank;
    if (ct_optex_is(s->param)) return (double)local / (double)net->batch_global / points;
    if (place != NULL)
        local = ct_place_samples(place, CT_TRAIN, net->batch_global, !own_samples).local;
    return (double)local / (double)net->batch_global;
}

/* What the ranks have alike already stays as it is: the mean of equal numbers is rounded, and a
 * snapshot behind a test, or one that is gone on from, would have other bits. */
static ct_status average_unless_equal(const ct_group *g, float *data, int64_t count, double share)
{
    int64_t extreme[2];
    ct_hash h;

    ct_hash_init(&h);
    ct_hash_add(&h, data, (size_t)count * sizeof(float));
    extreme[0] = (int64_t)(ct_hash_value(&h) >> 1);
    extreme[1] = -extreme[0];
    CT_TRY(ct_group_max(g, extreme, 2));
    return (extreme[0] == -extreme[1]) ? CT_OK : ct_group_average(g, data, count, share);
}

/* Averages count weights of the arena over the ranks that share them. */
static ct_status average_range(ct_solver *s, bool own_samples, float *data, int64_t count)
{
    const ct_group *g = own_samples ? &s->exchange.stage : &s->exchange.data;
    float *host = data;
    size_t bytes = (size_t)count * sizeof(float);
    double share = share_of(s, own_samples, g->size);
    ct_status status = CT_OK;

    if (s->dev->kind == CT_DEVICE_CPU) return average_unless_equal(g, data, count, share);
    host = ct_mem_acquire(bytes);
    if (host == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to average statistics");
    status = s->dev->to_host(s->net->pass->exec.stream, host, data, bytes);
    if (status == CT_OK) status = average_unless_equal(g, host, count, share);
    if (status == CT_OK) status = s->dev->from_host(s->net->pass->exec.stream, data, host, bytes);
    ct_mem_release(host);
    return status;
}

ct_status ct_solver_average_statistics(ct_solver *s)
{
    const ct_net *net = s->net;
    bool any = false;

    if (s->exchange.stage.size == 1) return CT_OK;
    for (int i = 0; i < net->n_param;) {
        int64_t first = net->param[i].offset, end;
        float *data = ct_blob_data(&net->param[i].blob);
        bool own_samples = net->param[i].own_samples;

        if (net->param[i].kind != CT_WEIGHT_STATISTIC) {
            i++;
            continue;
        }
        do { /* a run of them in one message, padding included: it is zero */
            end = net->param[i].offset + net->param[i].count;
            i++;
        } while ((i < net->n_param) && (net->param[i].kind == CT_WEIGHT_STATISTIC) &&
                 (net->param[i].own_samples == own_samples));
        CT_TRY(average_range(s, own_samples, data, end - first));
        any = true;
    }
    if (any) ct_net_weights_changed(s->net);
    return CT_OK;
}

/* All replicas' checksums are known: logs which stand alone, on the first. */
static ct_status name_differing(const ct_solver *s, const ct_group *g, const int64_t *sum, int n,
                                const char *what)
{
    int best = 0, best_count = 0, named = 0;
    ct_text who = { 0 };

    if (g->rank != 0) return CT_ERR_DIVERGED;
    for (int i = 0; i < n; i++) {
        int count = 0;

        for (int k = 0; k < n; k++) count += (sum[k] == sum[i]);
        if (count > best_count) {
            best = i;
            best_count = count;
        }
    }
    for (int i = 0; i < n; i++) {
        if (sum[i] == sum[best]) continue;
        if (++named <= 16) ct_text_add(&who, " %d (%016" PRIx64 ")", i, (uint64_t)sum[i]);
    }
    if (named > 16) ct_text_add(&who, " and %d more", named - 16);
    (void)CT_FAIL(CT_ERR_DIVERGED,
                  "after iteration %" PRId64 " the %s differ: %d ranks have checksum "
                  "%016" PRIx64 ", another one:%s",
                  s->iteration, what, best_count, (uint64_t)sum[best],
                  (who.text != NULL) ? who.text : "");
    ct_text_destroy(&who);
    return CT_ERR_DIVERGED;
}

/* All of a group have this checksum, or it says who has not. */
static ct_status compare(const ct_solver *s, const ct_group *g, uint64_t checksum, const char *what)
{
    int64_t mine = (int64_t)checksum, extreme[2], *sum;
    ct_status status;

    if (g->size <= 1) return CT_OK;
    extreme[0] = mine;
    extreme[1] = ~mine; /* the largest complement is that of the smallest */
    CT_TRY(ct_group_max(g, extreme, 2));
    if (extreme[0] == ~extreme[1]) return CT_OK;
    sum = malloc((size_t)g->size * sizeof(*sum));
    if (sum == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d checksums", g->size);
    status = ct_group_gather(g, &mine, 1, sum);
    if (status == CT_OK) status = name_differing(s, g, sum, g->size, what);
    free(sum);
    return status;
}

/* The same of a net's weights. */
static ct_status check_among(const ct_solver *s, const ct_group *g, const ct_net *net)
{
    return (g->size <= 1) ? CT_OK : compare(s, g, ct_net_checksum(net, true), "weights");
}

/* What every rank has of the update rule, alike: not where codecs, parts, groups or rounds give
 * each its own. */
static bool states_are_alike(const ct_solver *s)
{
    ct_sync_state own;

    if (s->exchange.sync.shards || (s->parts != NULL) || (s->outer != NULL) || (s->optex != NULL))
        return false;
    for (int i = 0; i < s->net->n_param; i++)
        if (ct_sync_states_get(&s->exchange.states, i, 0, &own)) return false;
    return s->step.home->kind == CT_DEVICE_CPU;
}

static ct_status hash_chunk(void *ctx, int64_t from, int64_t count, float *host)
{
    (void)from;
    ct_hash_add(ctx, host, (size_t)count * sizeof(*host));
    return CT_OK;
}

static ct_status check_states(ct_solver *s)
{
    ct_hash h;

    if ((s->step.n_history == 0) || !states_are_alike(s)) return CT_OK;
    ct_hash_init(&h);
    for (int i = 0; i < s->step.n_history; i++)
        CT_TRY(ct_storage_each(&s->step.history[i], 0, s->step.history[i].count, CT_STORAGE_READ,
                               hash_chunk, &h));
    return compare(s, &s->exchange.data, ct_hash_value(&h), "states of the update rule");
}

/* Parameters from i on that the same ranks share. */
static int count_alike(const ct_net *net, int i)
{
    const ct_param *p = &net->param[i];
    int n = 1;

    while ((i + n < net->n_param) && (p[n].own_samples == p->own_samples) && (p[n].tied == p->tied))
        n++;
    return n;
}

/* Those that have equal weights now. Where a group of local steps finds others, all groups end:
 * with nothing on its way, as in ct_solver_agree(). */
static ct_status check_replicas(ct_solver *s)
{
    const ct_group *g = ct_solver_is_apart(s) ? ct_solver_sharers(s) : &s->exchange.data;
    ct_status status = check_among(s, g, s->net);

    if (s->outer == NULL) return status;
    status = ct_group_agree(&s->exchange.data, status);
    if (status == CT_ERR_DIVERGED) CT_TRY(ct_solver_rest(s));
    return status;
}

ct_status ct_solver_check_weights(ct_solver *s)
{
    double traced = ct_trace_start(s->options.trace);
    ct_net view = *s->net;

    if ((s->exchange.stage.size == 1) && (s->exchange.tied.size <= 1)) return CT_OK;
    CT_TRY(ct_solver_settle(s));
    CT_TRY(ct_solver_average_statistics(s));
    CT_TRY(check_replicas(s));
    CT_TRY(check_states(s));
    for (int i = 0; (s->options.division != NULL) && (i < s->net->n_param); i += view.n_param) {
        const ct_param *p = view.param = &s->net->param[i];

        view.n_param = count_alike(s->net, i);
        if (p->tied) CT_TRY(check_among(s, &s->exchange.tied, &view));
        if (!p->tied && p->own_samples) CT_TRY(check_among(s, &s->exchange.stage, &view));
    }
    ct_trace_end(s->options.trace, traced, CT_TRACE_CHECKSUM, NULL, NULL);
    return CT_OK;
}

/* ---- the checksum of weights that come and go */

typedef struct hashing {
    const ct_net *net;
    uint64_t sum;
} hashing;

static ct_status hash_all(void *ctx, ct_storage *learned)
{
    hashing *h = ctx;

    return ct_weights_checksum_learned(h->net, learned, &h->sum);
}

static ct_status checksum_of_storage(ct_solver *s, uint64_t *sum_p)
{
    ct_storage *weights = &s->step.weights;
    hashing h = { .net = s->net };

    if (s->shards == NULL)
        CT_TRY(hash_all(&h, weights));
    else
        CT_TRY(ct_state_shards_run(s->shards, &weights, 1, hash_all, &h));
    *sum_p = h.sum;
    return ct_group_broadcast(&s->exchange.data, sum_p, sizeof(*sum_p));
}

/* Of the last exchanged weights. */
static ct_status checksum_of_outer(ct_solver *s, uint64_t *sum_p)
{
    float *v = ct_mem_acquire((size_t)(s->net->grad_count + 1) * sizeof(*v));
    ct_storage weights = ct_storage_at(ct_device_cpu(), v, s->net->grad_count);
    ct_status status = CT_OK;

    if (v == NULL) status = CT_FAIL(CT_ERR_NOMEM, "no memory for a checksum");
    status = ct_group_agree(&s->exchange.data, status);
    if (status == CT_OK) status = ct_outer_weights(s->outer, v);
    if (status == CT_OK) status = ct_weights_checksum_learned(s->net, &weights, sum_p);
    ct_mem_release(v);
    return status;
}

ct_status ct_solver_checksum(ct_solver *s, uint64_t *sum_p)
{
    if (ct_solver_is_apart(s)) return checksum_of_outer(s, sum_p);
    if (s->parts != NULL) return ct_parts_checksum(s->parts, sum_p);
    if (ct_step_has_visits(&s->step)) return checksum_of_storage(s, sum_p);
    *sum_p = ct_net_checksum(s->net, true);
    return CT_OK;
}

/* Of weights that come and go, each rank of the group has all. */
static ct_status broadcast_stored(const ct_group *g, const ct_param *p, ct_storage *weights)
{
    float *v = ct_mem_acquire(CT_STORAGE_CHUNK * sizeof(*v));
    ct_status status = CT_OK;

    if (v == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to broadcast the weights");
    for (int64_t at = 0; (at < p->count) && (status == CT_OK); at += CT_STORAGE_CHUNK) {
        int64_t n = (p->count - at < CT_STORAGE_CHUNK) ? p->count - at : CT_STORAGE_CHUNK;

        if (g->rank == 0) status = ct_storage_get(weights, p->offset + at, n, v);
        if (status == CT_OK) status = ct_group_broadcast(g, v, (size_t)n * sizeof(*v));
        if ((status == CT_OK) && (g->rank != 0))
            status = ct_storage_put(weights, p->offset + at, n, v);
    }
    ct_mem_release(v);
    return status;
}

static ct_status broadcast_tied(ct_solver *s)
{
    const ct_net *net = s->net;

    for (int i = 0; (s->exchange.tied.size > 1) && (i < net->n_param); i++) {
        const ct_param *p = &net->param[i];

        if (!p->tied) continue;
        if (ct_net_param_visits(net, p))
            CT_TRY(broadcast_stored(&s->exchange.tied, p, &s->step.weights));
        else
            CT_TRY(ct_group_broadcast(&s->exchange.tied, ct_blob_data(&p->blob),
                                      (size_t)p->count * sizeof(float)));
        ct_net_weights_changed(s->net);
    }
    return CT_OK;
}

/* Where all groups of local steps begin. */
static ct_status broadcast_outer(ct_solver *s)
{
    size_t bytes = (size_t)s->net->weight_count * sizeof(float);

    CT_TRY(ct_group_broadcast(&s->exchange.data, s->net->weight_arena, bytes));
    ct_net_weights_changed(s->net);
    ct_outer_start(s->outer);
    return CT_OK;
}

ct_status ct_solver_broadcast_weights(ct_solver *s)
{
    const ct_group *g = &s->exchange.data;
    size_t bytes = (size_t)s->net->weight_count * sizeof(float);
    void *host;
    ct_status status;

    CT_TRY(broadcast_tied(s));
    if (ct_step_has_visits(&s->step)) {
        ct_net_weights_changed(s->net);
        return ct_net_broadcast_rest(s->net, g);
    }
    if (s->outer != NULL) return broadcast_outer(s);
    if ((g->size == 1) || (bytes == 0)) return CT_OK;
    if (s->dev->kind == CT_DEVICE_CPU) {
        status = ct_group_broadcast(g, s->net->weight_arena, bytes);
    } else {
        host = ct_mem_acquire(bytes);
        if (host == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to broadcast the weights");
        status = s->dev->to_host(NULL, host, s->net->weight_arena, bytes);
        if (status == CT_OK) status = ct_group_broadcast(g, host, bytes);
        if (status == CT_OK) status = s->dev->from_host(NULL, s->net->weight_arena, host, bytes);
        ct_mem_release(host);
    }
    if (status == CT_OK) ct_net_weights_changed(s->net);
    return status;
}
