#include "runtime/memory_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective/blocking.h"
#include "framework/base/log.h"
#include "framework/base/memory.h"
#include "framework/snapshot/snapshot.h"
#include "framework/solver/update_rule.h"
#include "framework/tensor/storage_bf16.h"
#include "framework/tensor/storage_shard.h"
#include "runtime/config/exchange_config.h"
#include "runtime/job_memory.h"

void ct_memory_plan_limit(ct_memory_plan *p, int n)
{
    const Ct__MemoryParameter *m = p->options->param->memory;

    p->runtime = ct_memory_resident_now();
    p->limit = ct_memory_limit_each(n, &p->who);
    if ((m == NULL) || !(m->limit_mb > 0)) return;
    p->limit = ldexp(m->limit_mb, 20);
    p->who = "limit_mb";
}

double ct_memory_plan_room(const ct_memory_plan *p)
{
    return fmax(1, p->limit - (double)p->runtime); /* 0 would be any */
}

/* ---- what this rank has of shards */

/* Floats of a storage of a rank, and of the copy that it keeps for snapshots. */
static ct_status find_lengths(const ct_net *net, const Ct__SolverParameter *p, ct_comm *c,
                              bool shards, int n_state, int64_t *length_p, int64_t *copy_p)
{
    ct_shard shard = { .n = 0 };
    ct_status status = CT_OK;

    *length_p = net->grad_count;
    *copy_p = 0;
    if (shards) {
        status = ct_exchange_add_shard(c, p, net, &shard);
        *length_p = ct_shard_length(&shard);
    }
    if ((status == CT_OK) && p->snapshot_async && (p->snapshot_prefix != NULL))
        status =
            ct_snapshot_copy_size(net, shards ? &shard : NULL, c->rank, c->size, n_state, copy_p);
    ct_shard_destroy(&shard);
    return status;
}

/* Buffers for messages, all of them at a time. */
static ct_status add_communication(const ct_memory_plan *plan, const ct_net *net, bool shards,
                                   ct_memory_tiers *t)
{
    const Ct__SolverParameter *p = plan->options->param;
    ct_exchange_ranges r;
    ct_grad_pipe_load load = {
        .comm = plan->comm, .config = &r.config, .shards = shards, .shared = ct_exchange_shares(p)
    };
    ct_status status;

    if (plan->comm->size == 1) return CT_OK;
    CT_TRY(ct_exchange_ranges_open(p, net, &r));
    status = ct_grad_pipe_count(&load, r.range, r.n, &t->bytes[CT_TIER_HOST][CT_USE_COMMUNICATION]);
    ct_exchange_ranges_close(&r);
    return status;
}

/* ---- storages */

/* files NULL: in memory. */
static void add_storage(ct_memory_tiers *t, ct_memory_use use, int64_t length,
                        const ct_storage_files *files)
{
    int64_t file = 0, ring = 0;

    if (files == NULL) {
        t->bytes[CT_TIER_HOST][use] += length * (int64_t)sizeof(float);
        return;
    }
    ct_storage_file_size(files, length, &file, &ring);
    t->bytes[CT_TIER_FILE][use] += file;
    t->bytes[CT_TIER_HOST][CT_USE_WINDOW] += ring;
}

static bool lies_in_files(Ct__MemoryParameter__Tier tier)
{
    return tier == CT__MEMORY_PARAMETER__TIER__FILE;
}

/* What waits is kept elsewhere than where backward writes it, as ct_train_step_open() has it. */
static void add_kept(const ct_net *net, const Ct__SolverParameter *p, const ct_update_rule *rule,
                     int64_t length, bool shards, int iter_size, ct_memory_tiers *t)
{
    bool narrow =
        (p->memory != NULL) && (p->memory->gradients == CT__MEMORY_PARAMETER__GRADIENTS__BF16);
    bool window = (ct_net_chunk_count(net) > 0) && net->options.window->gradients;
    bool waits = (iter_size > 1) || ct_update_waits_for_all(p) ||
                 (shards && (rule->ratio != CT_UPDATE_NO_RATIO));

    if (!window || !waits || !(shards || narrow)) return;
    if (narrow)
        t->bytes[CT_TIER_HOST][CT_USE_GRADIENTS] += (int64_t)ct_storage_bf16_size(length);
    else
        add_storage(t, CT_USE_GRADIENTS, length, NULL);
}

/* Visits bring a rank's part of weights, and updates change all that lies in files. */
static void add_transfers(const ct_net *net, int64_t length, bool weights, ct_memory_tiers *t)
{
    double part = (net->grad_count > 0) ? (double)length / (double)net->grad_count : 0;

    for (int u = 0; u < CT_N_USE; u++) t->file_written += t->bytes[CT_TIER_FILE][u];
    t->file_read = t->file_written + (weights ? (int64_t)(part * (double)t->visit_bytes) : 0);
}

static ct_status add_storages(const ct_memory_plan *plan, ct_net *net, ct_memory_tiers *t)
{
    const Ct__SolverParameter *p = plan->options->param;
    const Ct__MemoryParameter none = CT__MEMORY_PARAMETER__INIT;
    const Ct__MemoryParameter *m = (p->memory != NULL) ? p->memory : &none;
    ct_storage_files files = ct_job_memory_files(m);
    const ct_storage_files *states = lies_in_files(m->state) ? &files : NULL;
    const ct_storage_files *weights = lies_in_files(m->weights) ? &files : NULL;
    bool shards = (plan->comm->size > 1) && (m->zero > 0);
    const ct_update_rule *rule = NULL;
    int64_t length = 0, copy = 0, chunk = 0, ring = 0;
    int iter_size = 1;
    int n_state = (int)(ct_update_rule_state_bytes(p, 1) / (int64_t)sizeof(float));

    CT_TRY(ct_solver_micro_batches(p, plan->options->map, net, &iter_size));
    ct_net_count_rows(net, iter_size);
    CT_TRY(ct_update_rule_find(p->type, &rule));
    CT_TRY(find_lengths(net, p, plan->comm, shards, n_state, &length, &copy));
    t->snapshot = copy * (int64_t)sizeof(float);
    if (ct_net_has_visits(net)) add_storage(t, CT_USE_WEIGHTS, length, weights);
    add_kept(net, p, rule, length, shards, iter_size, t);
    for (int i = 0; i < n_state; i++) add_storage(t, CT_USE_STATES, length, states);
    if ((weights == NULL) && !shards) t->chunk_loads = 0;
    add_transfers(net, length, (weights != NULL) && ct_net_has_visits(net), t);
    ct_storage_file_size(&files, 1, &chunk, &ring);
    t->chunk_loads += t->bytes[CT_TIER_FILE][CT_USE_STATES] / chunk;
    return add_communication(plan, net, shards, t);
}

/* ---- the plan */

ct_status ct_memory_plan_make(const ct_memory_plan *p, ct_memory_tiers *t)
{
    ct_solver_options o = *p->options;
    ct_exchange_window window;
    ct_whole_nets nets;
    ct_status status;

    *t = (ct_memory_tiers){ .runtime = p->runtime };
    o.window = ct_exchange_window_open(&window, p->comm, o.dev, o.param);
    ct_log_hush(true);
    status = ct_planned_nets_make(&o, &nets);
    ct_log_hush(false);
    CT_TRY(status);
    ct_memory_tiers_add_net(t, nets.train);
    status = add_storages(p, nets.train, t);
    for (int i = 0; i < nets.n_test; i++) t->test += (int64_t)nets.test[i]->memory.planned;
    ct_whole_nets_destroy(&nets);
    t->limit[CT_TIER_HOST] = (int64_t)p->limit;
    return status;
}

/* A way to take less: what `memory` and `recompute` then say. */
typedef struct way {
    const char *name;
    int zero; /* -1: as it is */
    bool blocks, state, weights;
    double chunk_mb; /* 0: as it is */
} way;

enum { MOST_CHOICES = 5 };
#define SMALL_CHUNK                                                                                \
    0.5 /* MiB: rings of files of an eighth, which disks still move at nearly their speed */

/* What the rank that takes most takes of the host so, but for a copy that it can do without. */
static ct_status need_with(const ct_memory_plan *p, const way *w, int64_t *need_p)
{
    Ct__SolverParameter param = *p->options->param;
    Ct__MemoryParameter memory = *param.memory;
    ct_solver_options o = *p->options;
    ct_memory_plan other = *p;
    ct_memory_tiers t;

    if (w->zero >= 0) memory.zero = w->zero;
    if (w->state) memory.state = CT__MEMORY_PARAMETER__TIER__FILE;
    if (w->weights) memory.weights = CT__MEMORY_PARAMETER__TIER__FILE;
    if (w->chunk_mb > 0) memory.chunk_mb = w->chunk_mb;
    if (w->blocks) param.recompute = CT__RECOMPUTE__BLOCKS;
    param.memory = &memory;
    o.param = &param;
    other.options = &o;
    CT_TRY(ct_memory_plan_make(&other, &t));
    *need_p = ct_memory_tier_sum(&t, CT_TIER_HOST) - t.snapshot;
    return p->agrees ? ct_comm_max(p->comm, need_p, 1) : CT_OK;
}

/* Whether a way changes anything, and may be. */
static bool is_way(const ct_memory_plan *p, const way *w)
{
    const Ct__SolverParameter *s = p->options->param;
    int zero = (w->zero >= 0) ? w->zero : s->memory->zero;

    if ((w->zero >= 0) && ((p->comm->size == 1) || (w->zero <= s->memory->zero))) return false;
    if (w->blocks && (s->recompute == CT__RECOMPUTE__BLOCKS)) return false;
    if (w->weights && (p->comm->size > 1) && (zero != 0) && (zero != 3)) return false;
    if (w->weights && lies_in_files(s->memory->weights)) return false;
    return !(w->state && !w->weights && lies_in_files(s->memory->state));
}

static ct_status refuse(const ct_memory_plan *p, int64_t need)
{
    static const way ways[] = {
        { .name = "recompute: BLOCKS", .zero = -1, .blocks = true },
        { .name = "zero: 1", .zero = 1 },
        { .name = "zero: 2", .zero = 2 },
        { .name = "zero: 3", .zero = 3 },
        { .name = "state: FILE", .zero = -1, .state = true },
        { .name = "state: FILE chunk_mb: 0.5", .zero = -1, .state = true, .chunk_mb = SMALL_CHUNK },
        { .name = "state: FILE weights: FILE", .zero = -1, .state = true, .weights = true },
        { .name = "state: FILE weights: FILE chunk_mb: 0.5",
          .zero = -1,
          .state = true,
          .weights = true,
          .chunk_mb = SMALL_CHUNK },
        { .name = "zero: 3 state: FILE weights: FILE", .zero = 3, .state = true, .weights = true },
        { .name = "state: FILE weights: FILE chunk_mb: 0.5, and recompute: BLOCKS",
          .zero = -1,
          .blocks = true,
          .state = true,
          .weights = true,
          .chunk_mb = SMALL_CHUNK },
    };
    double limit_mb = p->options->param->memory->limit_mb;

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        int64_t less = 0;

        if (!is_way(p, &ways[i])) continue;
        CT_TRY(need_with(p, &ways[i], &less));
        if ((double)less <= p->limit)
            return CT_FAIL(CT_ERR_CONFIG,
                           "limit_mb: %g: the least is %.0f MiB; %s would fit, with %.0f MiB",
                           limit_mb, ceil(ldexp((double)need, -20)), ways[i].name,
                           ceil(ldexp((double)less, -20)));
    }
    return CT_FAIL(CT_ERR_CONFIG,
                   "limit_mb: %g: the least is %.0f MiB; no recomputation, no stage of ZeRO and no "
                   "file makes it fit: take a smaller batch, or a larger limit",
                   limit_mb, ceil(ldexp((double)need, -20)));
}

/* ---- AUTO */

static bool is_auto(Ct__MemoryParameter__Tier tier)
{
    return tier == CT__MEMORY_PARAMETER__TIER__AUTO;
}

static double mib(int64_t bytes)
{
    return ceil(ldexp((double)bytes, -20));
}

/* What AUTO may say, the fastest first. */
static int list_choices(const ct_memory_plan *p, way *list)
{
    const Ct__MemoryParameter *m = p->options->param->memory;
    bool may = (p->comm->size == 1) || (m->zero == 0) || (m->zero == 3);
    int n = 0;

    list[n++] = (way){ .zero = -1 };
    for (int weights = 0; weights < 2; weights++) {
        way w = { .zero = -1, .state = is_auto(m->state), .weights = (weights == 1) };

        if (w.weights ? !(is_auto(m->weights) && may) : !w.state) continue;
        list[n++] = w;
        w.chunk_mb = SMALL_CHUNK;
        if (m->chunk_mb == 0) list[n++] = w;
    }
    return n;
}

static void take(const ct_memory_plan *p, const way *w, int64_t in_memory, Ct__MemoryParameter *m)
{
    if (w->state) m->state = CT__MEMORY_PARAMETER__TIER__FILE;
    if (w->weights) m->weights = CT__MEMORY_PARAMETER__TIER__FILE;
    if (w->chunk_mb > 0) m->chunk_mb = w->chunk_mb;
    if (w->state || w->weights)
        CT_INFO("memory: %s AUTO: FILE, since memory takes %.0f MiB of %.0f (%s)",
                !w->weights ? "state" : (w->state ? "state and weights" : "weights"),
                mib(in_memory), ldexp(p->limit, -20), p->who);
}

/* A copy for snapshots is taken where the limit leaves room for it on every rank. */
static ct_status fit_snapshot(const ct_memory_plan *p, Ct__SolverParameter *param,
                              ct_memory_tiers *t)
{
    int64_t sum = ct_memory_tier_sum(t, CT_TIER_HOST), v[2] = { 0, t->snapshot };

    v[0] = (t->snapshot > 0) && (p->limit > 0) && ((double)sum > p->limit);
    if (p->agrees) CT_TRY(ct_comm_max(p->comm, v, 2));
    if (v[0] == 0) return CT_OK;
    CT_WARN("snapshot_async: a copy takes %.0f MiB, for which %s has no room: training waits until "
            "snapshots are written",
            mib(v[1]), p->who);
    param->snapshot_async = false;
    t->snapshot = 0;
    return CT_OK;
}

ct_status ct_memory_plan_settle(const ct_memory_plan *p, Ct__SolverParameter *param,
                                ct_memory_tiers *t)
{
    way choice[MOST_CHOICES];
    int n = list_choices(p, choice), best = 0;
    int64_t need[MOST_CHOICES] = { 0 };

    for (int i = 0; i < n; i++) {
        CT_TRY(need_with(p, &choice[i], &need[i]));
        if (need[i] < need[best]) best = i;
        if ((p->limit <= 0) || ((double)need[i] <= p->limit)) break;
    }
    if ((p->limit > 0) && ((double)need[best] > p->limit)) {
        if (param->memory->limit_mb > 0) return refuse(p, need[best]);
        CT_WARN("memory: a rank needs %.0f MiB at least, but %s leaves it %.0f", mib(need[best]),
                p->who, ldexp(p->limit, -20));
    }
    take(p, &choice[best], need[0], param->memory);
    CT_TRY(ct_memory_plan_make(p, t));
    return fit_snapshot(p, param, t);
}

/* ---- of a job */

/* Ranks have the least limit and the largest runtime of all. */
static ct_status agree(ct_memory_plan *p)
{
    int64_t v[2] = { -(int64_t)p->limit, p->runtime };

    CT_TRY(ct_comm_max(p->comm, v, 2));
    p->limit = (double)-v[0];
    p->runtime = v[1];
    return CT_OK;
}

static ct_status fail_elsewhere(bool parallel, const ct_device *dev)
{
    return CT_FAIL(CT_ERR_CONFIG, "memory { limit_mb } is not for %s yet: leave it out",
                   parallel ? "--parallel" : dev->name);
}

ct_status ct_memory_plan_job(ct_job *job, Ct__SolverParameter *param, bool parallel,
                             ct_solver_options *options)
{
    ct_memory_plan p = { .options = options, .comm = job->data_comm, .agrees = true };
    ct_memory_tiers t;

    if (param->memory == NULL) return CT_OK;
    if (parallel || (options->dev->kind != CT_DEVICE_CPU))
        return (param->memory->limit_mb > 0) ? fail_elsewhere(parallel, options->dev) : CT_OK;
    ct_memory_plan_limit(&p, job->group.node.size);
    CT_TRY(agree(&p));
    if (param->memory->limit_mb > 0) options->memory_limit = ct_memory_plan_room(&p);
    CT_TRY(ct_memory_plan_settle(&p, param, &t));
    CT_INFO("memory: %.1f MiB of a rank are planned, %.1f MiB of them taken at the start, of %.1f "
            "MiB (%s)",
            ldexp((double)ct_memory_tier_sum(&t, CT_TIER_HOST), -20), ldexp((double)t.runtime, -20),
            ldexp(p.limit, -20), p.who);
    return CT_OK;
}

/* Of a net that is made without memory. */
static ct_status count_test(const Ct__NetParameter *param, const ct_net_options *options,
                            int64_t *bytes_p)
{
    ct_net_options o = *options;
    ct_net *net = NULL;
    ct_status status;

    ct_net_options_alone(&o);
    o.env.rank = options->env.rank;
    o.env.n_rank = options->env.n_rank;
    ct_log_hush(true);
    status = ct_net_create(param, &o, &net);
    ct_log_hush(false);
    CT_TRY(status);
    *bytes_p = net->weight_memory * (int64_t)sizeof(float) + (int64_t)net->memory.planned;
    ct_net_destroy(net);
    return CT_OK;
}

ct_status ct_memory_plan_test(ct_job *job, const Ct__SolverParameter *param, bool parallel,
                              const Ct__NetParameter *net, const ct_net_options *options)
{
    const ct_solver_options solver = { .param = param };
    ct_memory_plan p = { .options = &solver, .comm = job->data_comm, .agrees = true };
    int64_t need = 0;

    if ((param->memory == NULL) || !(param->memory->limit_mb > 0)) return CT_OK;
    if (parallel || (options->dev->kind != CT_DEVICE_CPU))
        return fail_elsewhere(parallel, options->dev);
    ct_memory_plan_limit(&p, job->group.node.size);
    CT_TRY(agree(&p));
    CT_TRY(count_test(net, options, &need));
    CT_TRY(ct_comm_max(p.comm, &need, 1));
    need += p.runtime;
    if ((double)need <= p.limit) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "limit_mb: %g: the least is %.0f MiB, %.0f of them taken at the start: take a "
                   "smaller batch, or a larger limit",
                   param->memory->limit_mb, mib(need), mib(p.runtime));
}
