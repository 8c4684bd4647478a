#include "runtime/training/training.h"

#include <inttypes.h>
#include <math.h>

#include "framework/base/json_writer.h"
#include "framework/base/memory.h"
#include "framework/report/report.h"
#include "framework/solver/optex.h"
#include "runtime/config/exchange_config.h"
#include "runtime/gpu_memory.h"
#include "runtime/memory_plan.h"

/* A stage of the start: for the watchdog. */
static void enter(const ct_training *t, const char *stage)
{
    ct_watchdog_beat(t->call->job->watchdog, stage);
}

/* ---- --parallel */

static ct_status read_parallel(ct_training *t, const char *file)
{
    CT_TRY(ct_parallel_read(file, &t->parallel));
    return ct_parallel_check_ranks(t->parallel, t->call->job->size, "the job");
}

static ct_status open_parallel(ct_training *t)
{
    const char *file = ct_options_text(t->call->options, "parallel");
    const ct_solver_text text = { t->config->solver, t->config->map };
    ct_job *job = t->call->job;
    ct_status status = CT_OK;

    if (file == NULL) return CT_OK;
    CT_TRY(ct_exchange_check_divided(&text));
    if (job->rank == 0) status = read_parallel(t, file);
    CT_TRY(ct_job_share(job, status));
    if (job->rank != 0) CT_TRY(read_parallel(t, file));
    CT_TRY(ct_parallel_set_batch(t->parallel, t->config->solver));
    CT_TRY(ct_parallel_set_dummy(t->parallel, t->config->net));
    CT_INFO("%s: %" PRId64 " samples a step in %" PRId64 " micro-batches", file,
            t->parallel->global_batch, t->parallel->micro_batches);
    return CT_OK;
}

static ct_status fill_parallel(ct_training *t, ct_solver_options *o)
{
    if (t->parallel == NULL) return CT_OK;
    o->micro_batches = (int)t->parallel->micro_batches;
    if (t->parallel->n_rank > 1) {
        CT_TRY(ct_job_division_open(t->call->job, t->parallel, t->config->net, o, &t->division));
        t->division->trace = &t->trace;
        return CT_OK;
    }
    o->again = t->parallel->again;
    o->n_again = t->parallel->n_again;
    return CT_OK;
}

/* The file is for the net that there is now. */
static ct_status bind_parallel(const ct_training *t)
{
    int passes = ct_solver_iter_size(t->solver);

    if (t->parallel == NULL) return CT_OK;
    if (t->division == NULL)
        CT_TRY(ct_parallel_bind(t->parallel, t->config->net, ct_solver_net(t->solver)));
    if (passes % t->parallel->micro_batches == 0) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: micro_batches is %" PRId64 ", but batch_tokens %" PRId64
                   " makes %d of them a step, which is no whole number of steps of the file",
                   t->parallel->file, t->parallel->micro_batches, t->config->solver->batch_tokens,
                   passes);
}

/* ---- memory */

/* What the nets take of a GPU. */
static ct_status plan_nets(void *ctx, const ct_net_window *window, double *bytes_p,
                           int64_t *learned_p)
{
    ct_solver_options options = *(const ct_solver_options *)ctx;
    ct_whole_nets w;

    options.window = window;
    if (options.env.global_batch_size > 0) /* this rank's share, at most */
        options.env.global_batch_size =
            (options.env.global_batch_size + options.env.n_rank - 1) / options.env.n_rank;
    CT_TRY(ct_whole_nets_make(&options, &w));
    *bytes_p = (double)w.train->memory.planned + (double)w.train->memory.weights;
    for (int i = 0; i < w.n_test; i++) *bytes_p += (double)w.test[i]->memory.planned;
    *learned_p = w.train->grad_count;
    ct_whole_nets_destroy(&w);
    return CT_OK;
}

static ct_status agree(const ct_training_ask *ask, ct_status mine)
{
    return (ask->agree != NULL) ? ask->agree(ask->agree_ctx, mine) : mine;
}

/* Where weights and states lie, and how they come. */
static ct_status open_memory(ct_training *t, const ct_training_ask *how_to,
                             ct_solver_options *options)
{
    ct_job *job = t->call->job;
    Ct__SolverParameter *param = t->config->solver;
    const ct_job_memory_ask ask = { .param = param,
                                    .stage = ct_options_text(t->call->options, "stage"),
                                    .dev = options->dev,
                                    .comm = job->data_comm,
                                    .divided = (t->parallel != NULL) };
    const ct_gpu_memory_ask fits = { .param = param,
                                     .dev = options->dev,
                                     .comm = job->data_comm,
                                     .capacity = job->gpu_bytes,
                                     .planned = plan_nets,
                                     .ctx = options };
    const ct_memory_groups groups = ct_job_division_memory(t->division);
    const ct_memory_job how = { .stage = ask.stage,
                                .parallel = (t->parallel != NULL),
                                .groups = (t->division != NULL) ? &groups : NULL };

    CT_TRY(ct_memory_plan_job(job, param, &how, options));
    if (t->parallel == NULL) CT_TRY(ct_gpu_memory_choose(&fits));
    CT_TRY(agree(how_to, ct_job_memory_open(&ask, &t->memory)));
    options->window = (t->division != NULL) ? ct_job_division_window(t->division, options->dev)
                                            : ct_exchange_window_open(&t->window, job->data_comm,
                                                                      options->dev, param);
    options->open_state = t->memory.open_state;
    options->open_state_ctx = t->memory.open_state_ctx;
    options->open_weights = t->memory.open_weights;
    options->open_weights_ctx = t->memory.open_weights_ctx;
    options->on_host = t->memory.on_host;
    options->host_piece = t->memory.host_piece;
    return CT_OK;
}

/* ---- the solver */

static void fill_env(const ct_training *t, ct_net_env *env)
{
    const Ct__SolverParameter *s = t->config->solver;
    const ct_job *job = t->call->job;

    env->rank = job->group.data.rank;
    env->n_rank = job->group.data.size;
    env->writer = job->rank;
    env->n_writer = job->size;
    env->group = job->reading;
    env->global_batch_size = s->global_batch_size;
    env->deterministic = (s->deterministic != 0);
    env->winograd = s->winograd;
    env->precision = s->precision;
    env->plan = t->plan;
}

static ct_status tell_provenance(ct_training *t)
{
    ct_json_writer w = ct_json_into(&t->provenance);

    ct_json_begin_object(&w, NULL);
    ct_call_provenance(t->call, t->config, &w);
    ct_json_end(&w);
    return t->provenance.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the provenance") : CT_OK;
}

static ct_status create_solver(ct_training *t, const ct_training_ask *ask)
{
    ct_job *job = t->call->job;
    const Ct__SolverParameter *param = t->config->solver;
    ct_comm *inner = ct_outer_groups_inner(&t->outer);
    ct_solver_options options = { .param = param,
                                  .map = t->config->map,
                                  .outer = (inner != NULL) ? &t->outer.ranks : NULL,
                                  .point = (t->point_comm != NULL) ? &t->point : NULL };

    CT_TRY(tell_provenance(t));
    CT_TRY(ct_call_device(t->call, t->config, &options.dev));
    if ((job->group.data.size > 1) && (options.dev->kind == CT_DEVICE_CPU))
        options.grad_arena = ct_exchange_arena((inner != NULL) ? inner : job->data_comm, param);
    options.memory_limit = ct_memory_limit() / job->group.node.size;
    fill_env(t, &options.env);
    options.env.program = ask->program;
    options.report = ask->report;
    options.keep_values = ask->keep_values;
    options.send_rows = ct_exchange_sends_rows(param) && (inner == NULL);
    t->exchange =
        (ct_exchange_open){ .job = job, .comm = inner, .param = param, .trace = &t->trace };
    options.trace = t->trace.trace;
    options.open_exchange = ct_exchange_open_net;
    options.open_exchange_ctx = &t->exchange;
    options.agree = ask->agree;
    options.agree_ctx = ask->agree_ctx;
    options.stop_signal = ask->stop_signal;
    options.provenance = t->provenance.text;
    options.heartbeat = ct_watchdog_beat;
    options.heartbeat_ctx = job->watchdog;
    CT_TRY(fill_parallel(t, &options));
    CT_TRY(open_memory(t, ask, &options));
    CT_TRY(ct_solver_create(&options, &t->solver));
    ct_job_memory_tell(&t->memory);
    return CT_OK;
}

/* whole: as one rank would run it; net: this rank's, the same unless they run it together. */
static void log_net(const ct_net *whole, const ct_net *net, int64_t state_bytes, int iter_size,
                    int n_rank)
{
    const double mib = ldexp(1, 20);
    int64_t n = 0, tokens = ct_net_tokens(whole);

    for (int i = 0; i < whole->n_param; i++) n += whole->param[i].count;
    CT_INFO("net %s: %d layers, %" PRId64 " parameters, hash %016" PRIx64, whole->name,
            whole->n_layer, n, ct_net_hash(whole));
    CT_INFO("precision %s", ct_precision_text(net));
    CT_INFO("batch size %" PRId64 " on rank 0, %" PRId64 " on all %d ranks; %" PRId64
            " samples in the data set",
            net->batch_local, net->batch_global, n_rank, net->n_sample);
    if (tokens > 0)
        CT_INFO("a step has %" PRId64 " tokens: iter_size %d, %" PRId64 " samples of %" PRId64,
                iter_size * tokens, iter_size, net->batch_global, tokens / net->batch_global);
    CT_INFO("memory of a rank: activations %.1f MiB planned (%.1f MiB alive at the peak, %.1f MiB "
            "without sharing), weights and gradients %.1f MiB, the optimiser's state %.1f MiB",
            (double)net->memory.planned / mib, (double)net->memory.peak_alive / mib,
            (double)net->memory.unshared / mib, (double)net->memory.weights / mib,
            (double)state_bytes / mib);
}

/* Ranks that share a point's batch follow one another. */
static ct_status open_point(ct_training *t)
{
    const Ct__SolverParameter *param = t->config->solver;
    ct_comm *all = t->call->job->data_comm;
    int sharers = ct_optex_sharers(param, t->call->job->group.data.size);

    if ((ct_optex_points(param) == 1) || (sharers == 1)) return CT_OK;
    CT_TRY(ct_comm_split(all, all->rank / sharers, all->rank, &t->point_comm));
    t->point_mpi = (ct_group_mpi){ .comm = t->point_comm };
    ct_group_mpi_open(&t->point_mpi, &t->point);
    return CT_OK;
}

ct_status ct_training_connect(ct_training *t)
{
    CT_TRY(open_parallel(t));
    enter(t, "the start: communicators");
    CT_TRY(ct_call_connect(t->call, t->config));
    CT_TRY(ct_outer_groups_open(t->call->job, t->config->solver, &t->outer));
    CT_TRY(open_point(t));
    return ct_trace_file_open(t->call, &t->trace);
}

ct_status ct_training_open(ct_training *t, const ct_training_ask *ask)
{
    CT_TRY(ct_call_plan_open(t->call, t->config, ask->snapshot, false, &t->plan));
    enter(t, "the start: the net");
    CT_TRY(create_solver(t, ask));
    CT_TRY(bind_parallel(t));
    CT_TRY(ct_call_plan_close(t->call, t->config, t->plan));
    log_net(ct_training_whole_net(t), ct_solver_net(t->solver), ct_solver_state_bytes(t->solver),
            ct_solver_iter_size(t->solver), t->call->job->group.data.size);
    return CT_OK;
}

const ct_net *ct_training_whole_net(const ct_training *t)
{
    return (t->division != NULL) ? t->division->division.whole : ct_solver_net(t->solver);
}

void ct_training_close(ct_training *t)
{
    ct_solver_destroy(t->solver);
    ct_job_memory_close(&t->memory);
    ct_job_division_close(t->division);
    if (t->exchange.job != NULL) ct_exchange_open_close(&t->exchange);
    ct_outer_groups_close(&t->outer);
    ct_comm_destroy(t->point_comm);
    ct_trace_file_close(&t->trace);
    ct_engine_plan_destroy(t->plan);
    ct_text_destroy(&t->provenance);
    ct_parallel_destroy(t->parallel); /* after the nets, which have names of it */
}

void ct_training_abandon(ct_training *t)
{
    ct_exchange_mpi_abandon(t->exchange.mpi);
    ct_exchange_mpi_abandon(t->outer.mpi);
}
