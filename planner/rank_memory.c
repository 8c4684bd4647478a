#include "planner/rank_memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "framework/base/json_writer.h"
#include "planner/net_chain.h"
#include "planner/schedule.h"

static ct_status count_in_flight(const ct_parallel *p, int stage, int *n_p)
{
    ct_pipeline_list list;

    CT_TRY(ct_pipeline_list_1f1b(stage, p->n_stage, (int)p->micro_batches, &list));
    *n_p = ct_pipeline_list_in_flight(&list);
    ct_pipeline_list_destroy(&list);
    return CT_OK;
}

void ct_rank_env(const ct_parallel *p, const ct_rank_net *net, int rank, ct_net_env *env)
{
    ct_parallel_place at = ct_parallel_place_of(p, rank);
    const ct_parallel_stage *g = &p->stage[at.stage];

    env->rank = at.replica * g->tensor + at.part;
    env->n_rank = g->n_rank;
    env->place = &net->place;
    env->group = NULL; /* each reads for itself */
}

/* The options that a rank makes its net with: those of a whole net, its place, its segments, and
 * how many of its passes are in flight (1F1B). They borrow from net. */
static ct_status rank_options(const ct_parallel *p, const ct_rank_net *net, int rank,
                              const ct_net_options *whole, ct_net_options *out)
{
    *out = *whole;
    out->grad_arena = NULL;
    out->again = net->again;
    out->n_again = net->n_again;
    ct_rank_env(p, net, rank, &out->env);
    return count_in_flight(p, ct_parallel_place_of(p, rank).stage, &out->in_flight);
}

static ct_status fill(ct_net *net, const ct_net_options *o, const ct_rank_shards *shards,
                      ct_rank_memory *m)
{
    ct_memory_tiers *t = &m->tiers;

    *t = (ct_memory_tiers){ .chunk_loads = 0 };
    ct_memory_tiers_add_net(t, net);
    if (shards != NULL)
        CT_TRY(shards->find(shards->ctx, net, t));
    else
        t->bytes[CT_TIER_HOST][CT_USE_STATES] = (int64_t)(o->state_bytes * (double)net->grad_count);
    t->limit[CT_TIER_HOST] = (int64_t)o->memory_limit;
    m->memory_bytes = ct_memory_tier_sum(t, CT_TIER_HOST) + ct_memory_tier_sum(t, CT_TIER_DEVICE);
    m->weight_bytes = m->memory_bytes - (int64_t)net->memory.planned;
    m->kept_bytes = ct_net_kept_bytes(net) * o->in_flight;
    m->transient_bytes = (int64_t)net->memory.planned - m->kept_bytes;
    return CT_OK;
}

ct_status ct_rank_memory_at(const ct_parallel *p, const ct_sharded_net *s,
                            const ct_net_options *whole, const ct_rank_shards *shards, int rank,
                            ct_rank_memory *m)
{
    ct_net_options o;
    ct_rank_net made;
    ct_net *net = NULL;
    ct_status status;

    CT_TRY(ct_rank_net_make(p, s, rank, &made));
    status = rank_options(p, &made, rank, whole, &o);
    o.no_data = o.env.no_data = true;
    if ((status == CT_OK) && (shards != NULL))
        status = shards->open(shards->ctx, p, rank, &made, &o.window);
    if (status == CT_OK) status = ct_net_create(made.param, &o, &net);
    if (status == CT_OK) status = fill(net, &o, shards, m);
    ct_net_destroy(net);
    ct_rank_net_destroy(&made);
    return status;
}

/* Ranks with the same part of a stage, and as many samples. */
static bool are_alike(const ct_parallel *p, int a, int b)
{
    ct_parallel_place x = ct_parallel_place_of(p, a), y = ct_parallel_place_of(p, b);
    const int64_t *share = p->stage[x.stage].share;

    return (x.stage == y.stage) && (x.part == y.part) && (share[x.replica] == share[y.replica]);
}

ct_status ct_rank_memory_of(const ct_parallel *p, const ct_sharded_net *s,
                            const ct_net_options *whole, ct_rank_memory *m)
{
    return ct_rank_memory_with(p, s, whole, NULL, m);
}

ct_status ct_rank_memory_with(const ct_parallel *p, const ct_sharded_net *s,
                              const ct_net_options *whole, const ct_rank_shards *shards,
                              ct_rank_memory *m)
{
    for (int r = 0; r < p->n_rank; r++) {
        int like = (shards != NULL) ? r : 0;

        while ((like < r) && !are_alike(p, like, r)) like++;
        if (like < r)
            m[r] = m[like];
        else
            CT_TRY(ct_rank_memory_at(p, s, whole, shards, r, &m[r]));
    }
    return CT_OK;
}

void ct_rank_memory_json(const ct_parallel *p, const ct_rank_memory *m, const double *seconds,
                         ct_json_writer *w)
{
    ct_json_begin_list(w, "ranks");
    for (int r = 0; r < p->n_rank; r++) {
        ct_json_begin_object(w, NULL);
        ct_json_add_integer(w, "rank", r);
        ct_json_add_integer(w, "stage", ct_parallel_place_of(p, r).stage);
        ct_json_add_integer(w, "memory_bytes", m[r].memory_bytes);
        ct_json_add_integer(w, "weight_bytes", m[r].weight_bytes);
        ct_json_add_integer(w, "kept_bytes", m[r].kept_bytes);
        ct_json_add_integer(w, "transient_bytes", m[r].transient_bytes);
        ct_json_begin_object(w, "memory");
        ct_memory_tiers_json(&m[r].tiers, w);
        ct_json_end(w);
        if (seconds != NULL) ct_json_add_digits(w, "compute_s", seconds[r], 17);
        ct_json_end(w);
    }
    ct_json_end(w);
}

void ct_rank_memory_print(const ct_parallel *p, const ct_rank_memory *m, FILE *to)
{
    const double mib = ldexp(1, 20);

    fprintf(to, "rank stage   MiB: all   weights      kept transient\n");
    for (int r = 0; r < p->n_rank; r++) {
        fprintf(to, "%4d %5d %10.1f %9.1f %9.1f %9.1f\n", r, ct_parallel_place_of(p, r).stage,
                (double)m[r].memory_bytes / mib, (double)m[r].weight_bytes / mib,
                (double)m[r].kept_bytes / mib, (double)m[r].transient_bytes / mib);
    }
}
