#include "runtime/memory_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective/blocking.h"
#include "framework/base/log.h"
#include "framework/base/memory.h"
#include "framework/snapshot/state_copy.h"
#include "framework/solver/update_rule.h"
#include "framework/tensor/storage_forms.h"
#include "framework/tensor/storage_shard.h"
#include "runtime/job_memory.h"

void ct_memory_plan_limit(ct_memory_plan *p, int n)
{
    const Ct__MemoryParameter *m = p->options->param->memory;

    p->runtime = ct_memory_resident_now();
    p->limit = ct_memory_limit_each(n, &p->who);
    p->enforced = (p->limit > 0) && (strcmp(p->who, "the machine") != 0);
    if ((m == NULL) || !(m->limit_mb > 0)) return;
    p->limit = ldexp(m->limit_mb, 20);
    p->who = "limit_mb";
}

double ct_memory_plan_room(const ct_memory_plan *p)
{
    return fmax(1, p->limit - (double)p->runtime); /* 0 would be any */
}

/* ---- what this rank has of shards */

static ct_status add_shard(const ct_memory_plan *plan, const ct_net *net, ct_shard *s)
{
    const Ct__SolverParameter *p = plan->options->param;

    return (plan->groups != NULL) ? plan->groups->add_shard(plan->groups->ctx, p, net, s)
                                  : ct_exchange_add_shard(plan->comm, p, net, s);
}

static int count_states(const Ct__SolverParameter *p)
{
    return (int)(ct_update_rule_state_bytes(p, 1) / (int64_t)sizeof(float));
}

/* Floats of a storage of a rank, of that of weights that come and go, and of the copy that it keeps
 * for snapshots, which is not counted of nets that ranks run together. */
typedef struct lengths {
    int64_t whole, visiting, copy;
} lengths;

static ct_status find_lengths(const ct_memory_plan *plan, const ct_net *net, bool shards,
                              lengths *n)
{
    const Ct__SolverParameter *p = plan->options->param;
    const ct_comm *c = plan->comm;
    ct_shard shard = { .n = 0 }, visits = { .n = 0 };
    ct_status status = CT_OK;

    *n = (lengths){ .whole = net->grad_count, .visiting = net->grad_count };
    if (shards) {
        status = add_shard(plan, net, &shard);
        if (status == CT_OK) status = ct_shard_add_from(&shard, ct_net_staying(net), &visits);
        n->whole = ct_shard_length(&shard);
        n->visiting = ct_shard_length(&visits);
    }
    if ((status == CT_OK) && (plan->groups == NULL) && p->snapshot_async &&
        (p->snapshot_prefix != NULL))
        status = ct_state_copy_size(net, shards ? &shard : NULL, c->rank, c->size, count_states(p),
                                    &n->copy);
    ct_shard_destroy(&shard);
    ct_shard_destroy(&visits);
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
    int64_t *bytes = &t->bytes[CT_TIER_HOST][CT_USE_COMMUNICATION];
    ct_status status;

    if (plan->groups != NULL) return plan->groups->add_messages(plan->groups->ctx, p, net, bytes);
    if (plan->comm->size == 1) return CT_OK;
    CT_TRY(ct_exchange_ranges_open(p, net, &r));
    status = ct_grad_pipe_count(&load, r.range, r.n, bytes);
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

bool ct_memory_lies_in_files(Ct__MemoryParameter__Tier tier)
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

ct_status ct_memory_plan_add_storages(const Ct__SolverParameter *p, const ct_net *net,
                                      int64_t length, int64_t visiting, bool shards, int iter_size,
                                      ct_memory_tiers *t)
{
    const Ct__MemoryParameter none = CT__MEMORY_PARAMETER__INIT;
    const Ct__MemoryParameter *m = (p->memory != NULL) ? p->memory : &none;
    ct_storage_files files = ct_job_memory_files(m);
    const ct_storage_files *states = ct_memory_lies_in_files(m->state) ? &files : NULL;
    const ct_storage_files *weights = ct_memory_lies_in_files(m->weights) ? &files : NULL;
    const ct_update_rule *rule = NULL;
    int64_t chunk = 0, ring = 0;

    CT_TRY(ct_update_rule_find(ct_update_rule_type(p), &rule));
    if (ct_net_has_visits(net)) add_storage(t, CT_USE_WEIGHTS, visiting, weights);
    add_kept(net, p, rule, length, shards, iter_size, t);
    for (int i = 0; i < count_states(p); i++) add_storage(t, CT_USE_STATES, length, states);
    if ((weights == NULL) && !shards) t->chunk_loads = 0;
    add_transfers(net, length, (weights != NULL) && ct_net_has_visits(net), t);
    ct_storage_file_size(&files, 1, &chunk, &ring);
    t->chunk_loads += t->bytes[CT_TIER_FILE][CT_USE_STATES] / chunk;
    return CT_OK;
}

static ct_status add_storages(const ct_memory_plan *plan, ct_net *net, ct_memory_tiers *t)
{
    const Ct__SolverParameter *p = plan->options->param;
    bool shards = (plan->comm->size > 1) && (p->memory != NULL) && (p->memory->zero > 0);
    lengths n;
    int iter_size = 1;

    CT_TRY(ct_solver_micro_batches(p, plan->options->map, net, &iter_size));
    ct_net_count_rows(net, iter_size);
    CT_TRY(find_lengths(plan, net, shards, &n));
    t->snapshot = n.copy * (int64_t)sizeof(float);
    CT_TRY(ct_memory_plan_add_storages(p, net, n.whole, n.visiting, shards, iter_size, t));
    return add_communication(plan, net, shards, t);
}

/* ---- the plan */

ct_status ct_memory_nets_open(const ct_memory_plan *p, ct_memory_nets *n)
{
    ct_solver_options o = *p->options;
    ct_status status;

    if (p->groups != NULL)
        o.window = p->groups->window(p->groups->ctx, o.param);
    else
        o.window = ct_exchange_window_open(&n->window, p->comm, o.dev, o.param);
    ct_log_hush(true);
    status = ct_planned_nets_make(&o, &n->nets);
    ct_log_hush(false);
    return status;
}

void ct_memory_nets_close(ct_memory_nets *n)
{
    ct_whole_nets_destroy(&n->nets);
}

ct_status ct_memory_nets_count(const ct_memory_plan *p, const ct_memory_nets *n, ct_memory_tiers *t)
{
    *t = (ct_memory_tiers){ .runtime = p->runtime };
    ct_memory_tiers_add_net(t, n->nets.train);
    CT_TRY(add_storages(p, n->nets.train, t));
    for (int i = 0; i < n->nets.n_test; i++) t->test += (int64_t)n->nets.test[i]->memory.planned;
    t->limit[CT_TIER_HOST] = (int64_t)p->limit;
    return CT_OK;
}

ct_status ct_memory_plan_make(const ct_memory_plan *p, ct_memory_tiers *t)
{
    ct_memory_nets nets;
    ct_status status;

    CT_TRY(ct_memory_nets_open(p, &nets));
    status = ct_memory_nets_count(p, &nets, t);
    ct_memory_nets_close(&nets);
    return status;
}

/* ---- of a job */

/* Ranks have the least limit and the largest runtime of all. */
static ct_status agree(ct_memory_plan *p)
{
    int64_t v[3] = { -(int64_t)p->limit, p->runtime, p->enforced };

    CT_TRY(ct_comm_max(p->comm, v, 3));
    p->limit = (double)-v[0];
    p->runtime = v[1];
    p->enforced = (v[2] != 0);
    return CT_OK;
}

double ct_memory_mib(int64_t bytes)
{
    return ceil(ldexp((double)bytes, -20));
}

static ct_status fail_elsewhere(const ct_device *dev)
{
    return CT_FAIL(CT_ERR_CONFIG, "memory { limit_mb } is not for %s yet: leave it out", dev->name);
}

/* Without `memory` nothing is changed. But the kernel kills who takes more than an enforced limit.
 * What a job takes for certain counts: not test nets, which may never run, nor messages between
 * groups of local steps, which are not planned. Layers in Python would be made twice, which the
 * program around them might notice. */
static ct_status compare_alone(const ct_memory_plan *p)
{
    ct_memory_tiers t;
    int64_t need;

    if (!p->enforced || (p->options->env.program != NULL)) return CT_OK;
    CT_TRY(ct_memory_plan_make(p, &t));
    need = ct_memory_tier_sum(&t, CT_TIER_HOST) - t.test - t.snapshot;
    if (p->options->outer != NULL) need -= t.bytes[CT_TIER_HOST][CT_USE_COMMUNICATION];
    CT_TRY(ct_comm_max(p->comm, &need, 1));
    if ((double)need <= p->limit) return CT_OK;
    return CT_FAIL(
        CT_ERR_CONFIG,
        "%s leaves a rank %.0f MiB of memory, and the least is %.0f MiB, %.0f of them "
        "taken at the start: try \"memory { }\", which takes what fits, a smaller batch, "
        "or a larger limit",
        p->who, floor(ldexp(p->limit, -20)), ct_memory_mib(need), ct_memory_mib(p->runtime));
}

ct_status ct_memory_plan_job(ct_job *job, Ct__SolverParameter *param, const ct_memory_job *how,
                             ct_solver_options *options)
{
    ct_memory_plan p = { .options = options,
                         .comm = job->data_comm,
                         .agrees = true,
                         .parallel = how->parallel,
                         .groups = how->groups };
    ct_memory_tiers t;

    if (options->dev->kind != CT_DEVICE_CPU)
        return (param->memory != NULL) && (param->memory->limit_mb > 0)
                   ? fail_elsewhere(options->dev)
                   : CT_OK;
    ct_memory_plan_limit(&p, job->group.node.size);
    CT_TRY(agree(&p));
    if (param->memory == NULL) return compare_alone(&p);
    if (param->memory->limit_mb > 0) options->memory_limit = ct_memory_plan_room(&p);
    p.folder = ct_job_memory_folder(param->memory, how->stage);
    CT_TRY(ct_memory_auto_settle(&p, param, &t));
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
    o.env.place = options->env.place;
    ct_log_hush(true);
    status = ct_net_create(param, &o, &net);
    ct_log_hush(false);
    CT_TRY(status);
    *bytes_p = net->weight_memory * (int64_t)sizeof(float) + (int64_t)net->memory.planned;
    ct_net_destroy(net);
    return CT_OK;
}

ct_status ct_memory_plan_test(ct_job *job, const Ct__SolverParameter *param,
                              const Ct__NetParameter *net, const ct_net_options *options)
{
    const ct_solver_options solver = { .param = param };
    ct_memory_plan p = { .options = &solver, .comm = job->data_comm, .agrees = true };
    int64_t need = 0;

    if ((param->memory == NULL) || !(param->memory->limit_mb > 0)) return CT_OK;
    if (options->dev->kind != CT_DEVICE_CPU) return fail_elsewhere(options->dev);
    ct_memory_plan_limit(&p, job->group.node.size);
    CT_TRY(agree(&p));
    CT_TRY(count_test(net, options, &need));
    CT_TRY(ct_comm_max(p.comm, &need, 1));
    need += p.runtime;
    if ((double)need <= p.limit) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "limit_mb: %g: the least is %.0f MiB, %.0f of them taken at the start: take a "
                   "smaller batch, or a larger limit",
                   param->memory->limit_mb, ct_memory_mib(need), ct_memory_mib(p.runtime));
}
