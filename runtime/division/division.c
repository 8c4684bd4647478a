#include "runtime/division/division.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/config/exchange_config.h"

/* ---- groups */

/* The ranks with the same part of what the first and the last stage have in common, or all of both
 * where each works on samples of its own. The first stage's come first. */
static ct_status open_tied(ct_job_division *d, int index)
{
    const ct_rank_net *net = &d->net[0];
    int last = d->parallel->n_stage - 1, colour = -1;
    int key = index + ((d->at.stage == last) ? d->job->size : 0);

    if ((net->place.n_tied > 0) && ((d->at.stage == 0) || (d->at.stage == last)))
        colour = net->tied_own_samples ? 0 : 1 + d->at.part;
    return ct_comm_split(d->job->comm, colour, key, &d->tied);
}

static ct_status open_groups(ct_job_division *d)
{
    const ct_parallel *p = d->parallel;
    const ct_parallel_stage *g = &p->stage[d->at.stage];
    int index = d->at.replica * g->tensor + d->at.part, before = 0;

    for (int s = 0; s < d->at.stage; s++) before += p->stage[s].n_rank;
    CT_TRY(ct_comm_split(d->job->comm, d->at.stage, index, &d->stage));
    CT_TRY(ct_comm_split(d->job->comm, before + d->at.part, d->at.replica, &d->replicas));
    CT_TRY(ct_comm_split(d->job->comm, before + d->at.replica, d->at.part, &d->tensor));
    CT_TRY(open_tied(d, index));
    return ct_transfers_create((g->tensor > 1) ? d->tensor : NULL, d->job->comm, &d->transfers);
}

/* ---- nets */

static ct_status make_net(ct_job_division *d, int i, const ct_net *whole)
{
    CT_TRY(ct_sharded_net_make(d->parallel, whole, &d->sharded[i]));
    return ct_rank_net_make(d->parallel, &d->sharded[i], d->job->rank, &d->net[i]);
}

/* Of the whole ones, which are there. */
static ct_status make_nets(ct_job_division *d, ct_parallel *p, const Ct__NetParameter *param)
{
    size_t n;

    CT_TRY(ct_parallel_bind(p, param, d->whole.train));
    n = (size_t)d->whole.n_test + 1;
    d->sharded = calloc(n, sizeof(*d->sharded));
    d->net = calloc(n, sizeof(*d->net));
    d->test = calloc(n, sizeof(*d->test));
    if ((d->sharded == NULL) || (d->net == NULL) || (d->test == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu nets", n);
    if (d->solver != NULL) CT_TRY(make_net(d, 0, d->whole.train));
    for (int i = 0; i < d->whole.n_test; i++) {
        CT_TRY(make_net(d, i + 1, d->whole.test[i]));
        d->test[i] = d->net[i + 1].param;
    }
    return CT_OK;
}

/* ---- the order of micro-batches */

static ct_status take_list(ct_job_division *d, const ct_pipeline_list *list)
{
    ct_micro_schedule *s = &d->division.schedule;

    d->item = calloc((size_t)list->n + 1, sizeof(*d->item));
    if (d->item == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a schedule");
    for (int i = 0; i < list->n; i++) {
        d->item[i] = (ct_schedule_item){ list->item[i].direction == CT_PIPELINE_FORWARD,
                                         list->item[i].micro };
    }
    *s = (ct_micro_schedule){ .n_micro = (int)d->parallel->micro_batches,
                              .in_flight = ct_pipeline_list_in_flight(list),
                              .n_item = list->n,
                              .item = d->item };
    return CT_OK;
}

static ct_status make_schedule(ct_job_division *d)
{
    const ct_parallel *p = d->parallel;
    ct_pipeline_list *list = NULL;
    ct_status status;

    CT_TRY(ct_pipeline_lists_1f1b(p->n_stage, (int)p->micro_batches, &list));
    status = ct_pipeline_lists_check(list, p->n_stage, (int)p->micro_batches);
    if (status == CT_OK) status = take_list(d, &list[d->at.stage]);
    ct_pipeline_lists_destroy(list, p->n_stage);
    return status;
}

/* ---- what the solver is told */

/* For the watchdog. */
static void describe(void *ctx, char *text, size_t size)
{
    const ct_job_division *d = ctx;
    size_t n;

    ct_transfers_describe(d->transfers, text, size);
    n = strlen(text);
    if (n + 3 < size) {
        memcpy(text + n, "; ", 3);
        ct_exchange_divided_describe(d->exchange, text + n + 2, size - n - 2);
    }
}

/* Where the device's library can, what the ranks of a replica send each other. */
static ct_status carry_on_device(ct_job_division *d, const ct_net *net)
{
    const ct_device_sum_ops *lib = NULL;
    ct_group group;

    if (d->tensor->size == 1) return CT_OK;
    CT_TRY(ct_exchange_pick_sum(d->solver, net, d->tensor, d->job->shares_gpu, &lib));
    if ((lib == NULL) || (lib->transfer == NULL)) return CT_OK;
    d->tensor_mpi.comm = d->tensor;
    ct_group_mpi_open(&d->tensor_mpi, &group);
    CT_TRY(ct_group_mpi_take(&d->tensor_mpi, net->options.dev, lib, &group));
    ct_transfers_use(d->transfers, lib, d->tensor_mpi.library);
    CT_INFO("values of a replica are exchanged on the GPUs, by %s", lib->name);
    return CT_OK;
}

static ct_exchange_groups groups_of(const ct_job_division *d)
{
    return (ct_exchange_groups){ d->stage, d->tied, d->replicas, d->job->shares_gpu,
                                 (d->trace != NULL) ? d->trace->trace : NULL };
}

ct_status ct_job_division_open_exchange(void *ctx, ct_net *net, ct_exchange *out)
{
    ct_job_division *d = ctx;
    const ct_exchange_groups groups = groups_of(d);
    int64_t n_trial;

    CT_TRY(ct_exchange_divided_create(&groups, d->solver, net, &d->exchange, out));
    CT_TRY(carry_on_device(d, net));
    out->job = d->job->group.job;
    n_trial = out->sync.n_trial;
    CT_TRY(ct_group_max(&out->job, &n_trial, 1)); /* all make the same steps */
    out->sync.n_trial = (int)n_trial;
    CT_TRY(ct_trace_file_reserve(d->trace, net, d->whole.train, d->solver, (int)n_trial));
    ct_watchdog_watch(d->job->watchdog, describe, d);
    return CT_OK;
}

/* Gradients of a stage's ranks lie in memory that they share. NULL: each has its own. */
static const ct_arena_ops *arena_of(const ct_job_division *d, const ct_device *dev)
{
    bool shares = (d->stage->size > 1) && ((dev == NULL) || (dev->kind == CT_DEVICE_CPU));

    return shares ? ct_exchange_arena(d->stage, d->solver) : NULL;
}

static const ct_net_window *window_of(ct_job_division *d, const ct_device *dev,
                                      const Ct__SolverParameter *solver)
{
    const ct_exchange_groups groups = groups_of(d);

    return ct_exchange_divided_window(&d->window, &groups, d->job->comm, dev,
                                      (int)d->parallel->micro_batches, solver);
}

const ct_net_window *ct_job_division_window(ct_job_division *d, const ct_device *dev)
{
    return (d->solver != NULL) ? window_of(d, dev, d->solver) : NULL;
}

/* ---- a plan of memory */

static const ct_net_window *planned_window(void *ctx, const Ct__SolverParameter *param)
{
    return window_of(ctx, ct_device_cpu(), param);
}

static ct_status planned_shard(void *ctx, const Ct__SolverParameter *param, const ct_net *net,
                               ct_shard *s)
{
    const ct_exchange_groups groups = groups_of(ctx);

    return ct_exchange_divided_shard(&groups, param, net, s);
}

static ct_status planned_messages(void *ctx, const Ct__SolverParameter *param, const ct_net *net,
                                  int64_t *bytes_p)
{
    const ct_exchange_groups groups = groups_of(ctx);

    return ct_exchange_divided_count(&groups, param, net, bytes_p);
}

ct_memory_groups ct_job_division_memory(ct_job_division *d)
{
    return (ct_memory_groups){ .ctx = d,
                               .window = planned_window,
                               .add_shard = planned_shard,
                               .add_messages = planned_messages };
}

/* ---- options */

static void fill_division(ct_job_division *d)
{
    d->division.whole = d->whole.train;
    d->division.whole_test = (const ct_net *const *)d->whole.test;
    d->division.train = d->net[0].param;
    d->division.test = d->test;
    d->division.n_test = d->whole.n_test;
    d->division.stage = d->at.stage;
    d->division.n_stage = d->parallel->n_stage;
    d->division.transfers = &ct_transfers_ops;
    d->division.transfers_ctx = d->transfers;
}

static void fill_options(ct_job_division *d, ct_solver_options *o)
{
    fill_division(d);
    o->division = &d->division;
    o->again = d->net[0].again;
    o->n_again = d->net[0].n_again;
    o->grad_arena = arena_of(d, o->dev);
    ct_rank_env(d->parallel, &d->net[0], d->job->rank, &o->env);
    o->open_exchange = ct_job_division_open_exchange;
    o->open_exchange_ctx = d;
}

static ct_status open_division(ct_job_division *d, ct_parallel *p, const Ct__NetParameter *param)
{
    d->at = ct_parallel_place_of(p, d->job->rank);
    CT_TRY(make_nets(d, p, param));
    CT_TRY(make_schedule(d));
    return open_groups(d);
}

static ct_status create(ct_job *job, ct_parallel *p, ct_job_division **d_p)
{
    ct_job_division *d = *d_p = calloc(1, sizeof(*d));

    if (d == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a division");
    d->job = job;
    d->parallel = p;
    return ct_parallel_check_ranks(p, job->size, "the job");
}

ct_status ct_job_division_open(ct_job *job, ct_parallel *p, const Ct__NetParameter *param,
                               ct_solver_options *options, ct_job_division **d_p)
{
    ct_job_division *d;

    CT_TRY(create(job, p, d_p));
    d = *d_p;
    d->solver = options->param;
    CT_TRY(ct_whole_nets_make(options, &d->whole));
    CT_TRY(open_division(d, p, param));
    fill_options(d, options);
    return CT_OK;
}

/* ---- one net, without a solver */

/* As one rank would run it. The file is for that of TRAIN: where TEST is wanted, nobody runs it. */
static ct_status make_whole(ct_job_division *d, const Ct__NetParameter *param,
                            const ct_net_options *options)
{
    ct_net_options o = *options;

    ct_net_options_alone(&o);
    if (options->phase == CT_TEST) {
        d->whole.test = calloc(1, sizeof(*d->whole.test));
        if (d->whole.test == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a net");
        CT_TRY(ct_net_create(param, &o, &d->whole.test[0]));
        d->whole.n_test = 1;
    }
    o.phase = CT_TRAIN;
    o.forward_only = false;
    o.env.global_batch_size = d->parallel->micro_batch;
    return ct_net_create(param, &o, &d->whole.train);
}

static void fill_net_options(ct_job_division *d, const Ct__NetParameter **param_p,
                             ct_net_options *options)
{
    bool trains = (options->phase == CT_TRAIN);
    const ct_rank_net *net = &d->net[trains ? 0 : 1];

    *param_p = net->param;
    ct_rank_env(d->parallel, net, d->job->rank, &options->env);
    options->grad_arena = NULL;
    if (!trains) return;
    fill_division(d);
    options->again = net->again;
    options->n_again = net->n_again;
    options->in_flight = d->division.schedule.in_flight;
    options->env.global_batch_size = d->parallel->micro_batch;
    options->grad_arena = arena_of(d, options->dev);
}

ct_status ct_job_division_open_net(ct_job *job, ct_parallel *p, const Ct__SolverParameter *solver,
                                   const Ct__NetParameter **param_p, ct_net_options *options,
                                   ct_job_division **d_p)
{
    ct_job_division *d;

    CT_TRY(create(job, p, d_p));
    d = *d_p;
    d->solver = (options->phase == CT_TRAIN) ? solver : NULL;
    CT_TRY(make_whole(d, *param_p, options));
    CT_TRY(open_division(d, p, *param_p));
    fill_net_options(d, param_p, options);
    d->group_mpi[0].comm = d->stage;
    d->group_mpi[1].comm = d->replicas;
    for (int i = 0; i < 2; i++) {
        ct_group g;

        ct_group_mpi_open(&d->group_mpi[i], &g);
        d->sums_of[i] = ct_group_sums(&g);
    }
    return CT_OK;
}

void ct_job_division_fill_exec(const ct_job_division *d, ct_exec *ex)
{
    ex->sums_of = d->sums_of;
    ex->transfers = &ct_transfers_ops;
    ex->transfers_ctx = d->transfers;
}

void ct_job_division_close(ct_job_division *d)
{
    if (d == NULL) return;
    ct_watchdog_watch(d->job->watchdog, NULL, NULL);
    ct_exchange_divided_destroy(d->exchange);
    ct_transfers_destroy(d->transfers);
    ct_group_mpi_close(&d->tensor_mpi);
    ct_comm_destroy(d->tensor);
    ct_comm_destroy(d->tied);
    ct_comm_destroy(d->replicas);
    ct_comm_destroy(d->stage);
    for (int i = 0; (d->net != NULL) && (d->sharded != NULL) && (i <= d->whole.n_test); i++) {
        ct_rank_net_destroy(&d->net[i]);
        ct_sharded_net_destroy(&d->sharded[i]);
    }
    free(d->net);
    free(d->sharded);
    free(d->test);
    free(d->item);
    ct_whole_nets_destroy(&d->whole);
    free(d);
}
