/* cortado time: how long steps, their layers, and the data take. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>

#include "cli/time/dump_batches.h"
#include "cli/time/time_result.h"
#include "cli/verb.h"
#include "framework/base/clock.h"
#include "framework/base/file.h"
#include "framework/base/json_writer.h"
#include "framework/base/sort.h"
#include "framework/net/net.h"
#include "framework/net/team_clock.h"
#include "framework/solver/train_step.h"
#include "runtime/config/exchange_config.h"
#include "runtime/exchange/exchange_mpi.h"
#include "framework/snapshot/parts.h"
#include "runtime/call.h"
#include "runtime/division/division.h"
#include "runtime/job_memory.h"
#include "runtime/memory_plan.h"

typedef struct time_data {
    int n_batch;             /* timed                                                */
    int64_t batch;           /* samples of this rank in each                         */
    double wall_s, cpu_s;    /* of all of them; CPU time of the whole process        */
    double batch_ms, max_ms; /* median and longest time that a batch was waited for  */
} time_data;

/* ---- --data: what the data layers deliver when nothing waits behind them
 *
 * Batches are read, decoded and transformed by the layers' own threads as in training; the main
 * thread does nothing but take them. Batches that were made ahead go first and are not counted.
 */

/* More than any layer makes ahead (prefetch is 64 at most), or as long as this. */
enum { DATA_WARM_UP = 65 };
#define DATA_WARM_UP_S 2.0

static double cpu_s(void)
{
    struct rusage u;

    if (getrusage(RUSAGE_SELF, &u) != 0) return 0.0;
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* `in` with only the layers that read nothing: pointers into it, and one array to free. */
static ct_status only_data(const Ct__NetParameter *in, Ct__NetParameter *out)
{
    *out = *in;
    out->n_layer = 0;
    out->layer = calloc(in->n_layer + 1, sizeof(*out->layer));
    if (out->layer == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu layers", in->n_layer);
    for (size_t i = 0; i < in->n_layer; i++)
        if (in->layer[i]->n_bottom == 0) out->layer[out->n_layer++] = in->layer[i];
    return CT_OK;
}

static ct_status take(ct_pass *pass, int64_t step, double *ms_p)
{
    double start = ct_clock_s();

    pass->exec.micro_step = step;
    CT_TRY(ct_pass_forward(pass, NULL));
    *ms_p = (ct_clock_s() - start) * 1e3;
    return CT_OK;
}

static ct_status take_all(ct_pass *pass, double *ms, time_data *r)
{
    double start = ct_clock_s(), cpu, unused;
    int64_t step = 0;

    while ((step < DATA_WARM_UP) && (ct_clock_s() - start < DATA_WARM_UP_S))
        CT_TRY(take(pass, step++, &unused));
    start = ct_clock_s();
    cpu = cpu_s();
    for (int i = 0; i < r->n_batch; i++) CT_TRY(take(pass, step + i, &ms[i]));
    r->wall_s = ct_clock_s() - start;
    r->cpu_s = cpu_s() - cpu;
    ct_sort(ms, r->n_batch);
    r->batch_ms = ms[r->n_batch / 2];
    r->max_ms = ms[r->n_batch - 1];
    return CT_OK;
}

/* Runs the layers of `net` that have no bottoms for n_batch batches. options: those of the whole
 *  net. CT_ERR_CONFIG, logged, where there is no such layer; otherwise what the layers fail with.
 *  dump: the file that the batches go to, and nothing is timed; collective then. NULL: none. */
static ct_status time_data_run(const ct_call *call, const Ct__NetParameter *net,
                               const ct_net_options *options, int n_batch, const char *dump,
                               time_data *result_p)
{
    ct_net_options alone = *options;
    Ct__NetParameter data;
    ct_net *n = NULL;
    ct_status status = CT_OK;
    double *ms = calloc((size_t)n_batch, sizeof(*ms));

    if (ms == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d times", n_batch);
    *result_p = (time_data){ .n_batch = n_batch };
    CT_TRY_GOTO(status, free_times, only_data(net, &data));
    alone.forward_only = true;
    CT_TRY_GOTO(status, out, ct_net_create(&data, &alone, &n));
    if (n->n_sample < 1) {
        status = CT_FAIL(CT_ERR_CONFIG, "--data: no layer of net \"%s\" reads a data set",
                         (net->name != NULL) ? net->name : "");
        goto out;
    }
    result_p->batch = n->batch_local;
    ct_exec_fill(call, n, &n->pass->exec);
    if (dump != NULL)
        status = ct_dump_batches(&call->job->group.data, n->pass, n_batch, dump);
    else
        status = take_all(n->pass, ms, result_p);
out:
    ct_net_destroy(n);
    free(data.layer);
free_times:
    free(ms);
    return status;
}

static void time_data_print(const time_data *r, FILE *to)
{
    double n = (double)r->n_batch * (double)r->batch;

    fprintf(to, "data layers alone: %d batches of %lld, median %.3f ms, longest %.3f ms\n",
            r->n_batch, (long long)r->batch, r->batch_ms, r->max_ms);
    fprintf(to,
            "%.1f images/s; %.1f images/s for each core in use (%.2f s of CPU time in %.2f s)\n",
            n / r->wall_s, n / r->cpu_s, r->cpu_s, r->wall_s);
}

/* As members of a JSON object. */
static void time_data_json(const time_data *r, ct_json_writer *w)
{
    double n = (double)r->n_batch * (double)r->batch;

    ct_json_add_integer(w, "batches", r->n_batch);
    ct_json_add_integer(w, "batch", r->batch);
    ct_json_add_number(w, "wall_s", r->wall_s);
    ct_json_add_number(w, "cpu_s", r->cpu_s);
    ct_json_add_number(w, "batch_ms", r->batch_ms);
    ct_json_add_number(w, "max_ms", r->max_ms);
    ct_json_add_number(w, "images_per_s", n / r->wall_s);
    ct_json_add_number(w, "images_per_cpu_s", n / r->cpu_s);
}

/* ---- steps */

/* Steps at the start that are not counted: page faults, caches, first messages. Fewer where they
 * take long, since then such things do not show. */
enum { WARM_UP = 3 };
#define WARM_UP_S 10.0

/* The solver's steps, one after the other, with times. */
typedef struct bench {
    ct_net *net;
    ct_exec *ex; /* of its pass */
    ct_exchange exchange;
    ct_train_step step;
    ct_time_result result;
    ct_trace_file trace;
    ct_team_clock *layers, *whole; /* what threads do in a layer, and in a step; or NULL */
    ct_job_division *division;     /* by --parallel; NULL: this rank runs the whole net */
    ct_parts *parts;               /* its weights, likewise */
    ct_job_memory memory;
} bench;

/* The ranks that make a step together. */
static const ct_group *runners(const bench *b)
{
    return (b->division != NULL) ? &b->exchange.job : &b->exchange.data;
}

/* How long the slowest rank has been at it. */
static ct_status longest_s(const ct_group *g, double start, double *seconds_p)
{
    int64_t ns = (int64_t)((ct_clock_s() - start) * 1e9);

    CT_TRY(ct_group_max(g, &ns, 1));
    *seconds_p = (double)ns * 1e-9;
    return CT_OK;
}

static ct_status one_step(bench *b, int64_t i)
{
    double loss = 0.0, traced;

    ct_trace_begin(b->trace.trace, i);
    traced = ct_trace_start(b->trace.trace);
    b->ex->wait_data_s = 0.0;
    CT_TRY(ct_train_step_run(&b->step, i, b->step.param->base_lr, &loss));
    CT_TRY(b->ex->dev->sync(b->ex->stream));
    ct_trace_end(b->trace.trace, traced, CT_TRACE_ITERATION, NULL, NULL);
    return CT_OK;
}

static ct_status warm_up(bench *b)
{
    double start = ct_clock_s(), seconds = 0.0;

    for (int i = 0; (i <= b->exchange.sync.n_trial) || ((i < WARM_UP) && (seconds < WARM_UP_S));
         i++) {
        CT_TRY(one_step(b, i));
        CT_TRY(longest_s(runners(b), start, &seconds));
        b->result.n_warm_up++;
    }
    return CT_OK;
}

/* Again, for the times of layers. */
static ct_status run_layers(bench *b)
{
    ct_time_result *r = &b->result;

    b->net->timing = true;
    for (int i = 0; i < r->n_step; i++) {
        CT_TRY(one_step(b, r->n_warm_up + r->n_step + i));
        ct_time_result_take(r, i);
    }
    return CT_OK;
}

/* Steps run one into the next, as in training: with overlap a step's time holds the waits for the
 * gradients of the step before it. */
static ct_status run_steps(bench *b)
{
    const ct_grad_sync *sync = &b->exchange.sync;
    ct_time_result *r = &b->result;
    ct_sync_stats before, after;
    double start, now;

    CT_TRY(warm_up(b));
    /* a device's steps are given as in training; what their layers take is looked at afterwards */
    b->net->timing = (b->ex->dev->marks == NULL);
    sync->ops->stats(sync->ctx, false, &before);
    if (b->whole != NULL) ct_team_clock_begin(b->whole);
    start = ct_clock_s();
    for (int i = 0; i < r->n_step; i++) {
        b->step.update_s = b->step.norm_s = 0.0;
        CT_TRY(one_step(b, r->n_warm_up + i));
        now = ct_clock_s();
        sync->ops->stats(sync->ctx, false, &after);
        r->step[i] = (now - start) * 1e3;
        r->update[i] = b->step.update_s * 1e3;
        r->norm[i] = b->step.norm_s * 1e3;
        r->wait_data[i] = b->ex->wait_data_s * 1e3;
        r->exposed[i] = (after.exposed_s - before.exposed_s) * 1e3;
        r->bytes_sent = after.bytes_sent - before.bytes_sent;
        ct_time_result_take(r, i);
        if (b->whole != NULL) ct_team_clock_end(b->whole, 0);
        before = after;
        start = now;
    }
    if (!b->net->timing) CT_TRY(run_layers(b));
    ct_trace_stop(b->trace.trace);
    return ct_train_step_settle(&b->step);
}

/* ---- --phase=TEST: forwards alone */

static ct_status one_forward(bench *b, int64_t i)
{
    double traced;

    ct_trace_begin(b->trace.trace, i);
    traced = ct_trace_start(b->trace.trace);
    b->ex->micro_step = i;
    b->ex->wait_data_s = 0.0;
    CT_TRY(ct_pass_forward(b->net->pass, NULL));
    CT_TRY(b->ex->dev->sync(b->ex->stream));
    ct_trace_end(b->trace.trace, traced, CT_TRACE_ITERATION, NULL, NULL);
    return CT_OK;
}

/* In the last run: what the rank waited for others. */
static double waited_s(const ct_net *net)
{
    double s = 0.0;

    for (int k = 0; k < net->n_forward; k++)
        if ((net->forward[k].kind == CT_STEP_WAIT) && (net->forward[k].of == CT_PAIR_TRANSFER))
            s += net->forward[k].seconds;
    return s;
}

/* By this rank in a run, about: of n ranks each has an n-th, and a sum goes to and fro. */
static int64_t sent_bytes(const ct_net *net, int n_rank)
{
    int64_t bytes = 0;

    for (int k = 0; k < net->n_forward; k++) {
        const ct_step *s = &net->forward[k];
        const ct_layer *l = net->layer[s->layer];
        ct_transfer t;

        if ((s->kind != CT_STEP_BEGIN) || (s->of != CT_PAIR_TRANSFER)) continue;
        l->ops->sums->transfer(l, net->pass->instance[s->layer], true, &t);
        bytes += t.n * (int64_t)ct_dtype_size(t.dtype) * (n_rank - 1) / n_rank *
                 ((t.kind == CT_TRANSFER_SUM) ? 2 : 1);
    }
    return bytes;
}

static ct_status run_forwards(bench *b)
{
    ct_time_result *r = &b->result;

    for (int i = 0; i < WARM_UP; i++) CT_TRY(one_forward(b, i));
    r->n_warm_up = WARM_UP;
    if (b->division != NULL) r->bytes_sent = sent_bytes(b->net, b->division->tensor->size);
    b->net->timing = true;
    if (b->whole != NULL) ct_team_clock_begin(b->whole);
    for (int i = 0; i < r->n_step; i++) {
        double start = ct_clock_s();

        CT_TRY(one_forward(b, WARM_UP + i));
        r->step[i] = (ct_clock_s() - start) * 1e3;
        r->wait_data[i] = b->ex->wait_data_s * 1e3;
        r->exposed[i] = waited_s(b->net) * 1e3;
        ct_time_result_take(r, i);
        if (b->whole != NULL) ct_team_clock_end(b->whole, 0);
    }
    ct_trace_stop(b->trace.trace);
    return CT_OK;
}

/* An object of the provenance and these members. */
static ct_status write_json(const ct_call *call, const ct_config *c, const ct_text *members,
                            const char *file)
{
    ct_text t = { 0 };
    ct_json_writer w = ct_json_into(&t);
    ct_status status;

    ct_json_begin_object(&w, NULL);
    ct_call_provenance(call, c, &w);
    ct_json_add_members(&w, members->text);
    ct_json_end(&w);
    ct_text_add(&t, "\n");
    status = (t.failed || members->failed) ? CT_FAIL(CT_ERR_NOMEM, "no memory for %s", file)
                                           : ct_file_write(file, t.text, t.length);
    ct_text_destroy(&t);
    return status;
}

static ct_status write_steps(const ct_call *call, const ct_config *c, const bench *b,
                             const char *file)
{
    bool shared = (c->phase == CT_TEST) && (b->division != NULL);
    ct_text t = { 0 };
    ct_json_writer w = ct_json_members_into(&t);
    ct_status status = CT_OK;

    ct_json_add_bool(&w, "forward_overlap", b->step.forward_overlap);
    ct_time_result_json(&b->result, &w);
    if (shared) status = ct_time_result_add_pass(&b->result, b->division->tensor->size, &w);
    if (status == CT_OK) status = write_json(call, c, &t, file);
    ct_text_destroy(&t);
    return status;
}

static ct_status open_step(bench *b, const Ct__SolverParameter *param)
{
    const ct_update_rule *rule = NULL;
    const ct_group *g = &b->exchange.data;
    const ct_division *d = (b->division != NULL) ? &b->division->division : NULL;

    CT_TRY(ct_update_rule_find(ct_update_rule_type(param), &rule));
    ct_exec_set_group(b->ex, g);
    if (d != NULL) ct_job_division_fill_exec(b->division, b->ex);
    b->step = (ct_train_step){ .param = param,
                               .net = b->net,
                               .sync = &b->exchange.sync,
                               .several = (runners(b)->size > 1),
                               .parts = b->parts,
                               .ranks = &b->exchange,
                               .iter_size = b->result.n_micro,
                               .schedule = (d != NULL) ? &d->schedule : NULL,
                               .pass = b->net->pass,
                               .open_weights = b->memory.open_weights,
                               .open_weights_ctx = b->memory.open_weights_ctx,
                               .open_state = b->memory.open_state,
                               .open_state_ctx = b->memory.open_state_ctx,
                               .on_host = b->memory.on_host,
                               .host_piece = b->memory.host_piece,
                               .rule = rule };
    b->result.after_all = ct_update_waits_for_all(param);
    CT_TRY(ct_train_step_open(&b->step));
    ct_job_memory_tell(&b->memory);
    return ct_step_fill(&b->step);
}

/* What was asked for, known to be possible before anything is measured. */
typedef struct request {
    const char *json, *roofline;
    int n_step;
    bool balance;
    ct_machine_limit limit; /* flop 0: not wanted */
} request;

/* Processor time tells work only where those that wait do not spin. */
static ct_status check_balance(bool cpu)
{
    const char *policy = getenv("OMP_WAIT_POLICY");

    if (!cpu)
        return CT_FAIL(CT_ERR_CONFIG, "--balance looks at the threads of a CPU, which "
                                      "solver_mode GPU is not");
    if ((policy != NULL) && (strcasecmp(policy, "passive") == 0)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "--balance counts processor time, which threads that wait must not use: set "
                   "OMP_WAIT_POLICY=passive in the environment");
}

static ct_status read_request(ct_call *call, const ct_config *c, request *q)
{
    const char *limits = ct_options_text(call->options, "limits");
    bool cpu = (c->solver->solver_mode != CT__SOLVER_PARAMETER__SOLVER_MODE__GPU);
    bool wanted = cpu && ((limits == NULL) || (strcmp(limits, "true") == 0));
    int64_t n_step = ct_options_count(call->options, "iterations", 10);
    ct_status status = CT_OK;
    int n_local = 1;

    q->json = ct_options_text(call->options, "json");
    q->roofline = ct_options_text(call->options, "roofline");
    q->balance = ct_options_flag(call->options, "balance");
    if (q->balance) CT_TRY(check_balance(cpu));
    if ((n_step < 1) || (n_step > 1000000))
        return CT_FAIL(CT_ERR_CONFIG, "--iterations=%lld: at least 1, at most 1000000",
                       (long long)n_step);
    q->n_step = (int)n_step;
    if ((q->roofline != NULL) && !wanted)
        return CT_FAIL(CT_ERR_CONFIG, "--roofline=%s needs the limits of a CPU, which %s",
                       q->roofline, cpu ? "--limits=false leaves out" : "solver_mode GPU is not");
    if ((q->json != NULL) && (call->job->rank == 0)) status = ct_file_check_writable(q->json);
    if ((q->roofline != NULL) && (call->job->rank == 0) && (status == CT_OK))
        status = ct_file_check_writable(q->roofline);
    CT_TRY(ct_job_share(call->job, status));
    if (!wanted) return CT_OK;
    if (call->job->node != MPI_COMM_NULL) MPI_Comm_size(call->job->node, &n_local);
    MPI_Barrier(call->job->agree); /* ranks of a node share its memory: they measure together */
    return ct_machine_limit_measure(n_local, &q->limit);
}

static ct_status write_results(const ct_call *call, const ct_config *c, const bench *b,
                               const request *q)
{
    if (call->job->rank != 0) return CT_OK;
    CT_TRY(ct_time_result_print(&b->result, stdout));
    if (q->json != NULL) CT_TRY(write_steps(call, c, b, q->json));
    return (q->roofline != NULL) ? ct_time_result_plot(&b->result, q->roofline) : CT_OK;
}

static ct_status open_team(bench *b)
{
    CT_TRY(ct_team_clock_create(b->net->n_forward + b->net->n_backward, &b->layers));
    CT_TRY(ct_team_clock_create(1, &b->whole));
    b->net->team = b->layers;
    b->result.whole = b->whole;
    b->result.wake_s = ct_team_clock_wake(b->whole);
    return CT_OK;
}

static ct_status open_exchange(bench *b, ct_exchange_open *open)
{
    ct_job_division *d = b->division;

    b->result.n_micro = (d != NULL) ? d->division.schedule.n_micro : 1;
    if (d == NULL) return ct_exchange_open_net(open, b->net, &b->exchange);
    CT_TRY(ct_job_division_open_exchange(d, b->net, &b->exchange));
    return ct_parts_create(d->whole.train, b->net, &b->exchange.job, &b->parts);
}

/* A failure takes nothing apart, as in training: main ends the job, and memory of a device that
 * waits for other ranks for ever could not be released. */
static ct_status measure(ct_call *call, const ct_config *c, ct_net *net, const request *q,
                         ct_job_division *division)
{
    ct_exchange_open open = { .job = call->job, .param = c->solver };
    bench b = { .net = net, .ex = &net->pass->exec, .division = division };

    open.trace = &b.trace;
    ct_exec_fill(call, net, b.ex);
    if ((b.ex->dev->graph != NULL) && net->options.graph)
        CT_TRY(b.ex->dev->graph->stream_open(&b.ex->stream));
    b.step.net = net;
    CT_TRY(ct_time_result_create(net, q->n_step, &b.result));
    b.result.limit = q->limit;
    b.result.engines = ct_options_flag(call->options, "engines");
    if (q->balance) CT_TRY(open_team(&b));
    CT_TRY(ct_trace_file_open(call, &b.trace));
    b.ex->trace = b.trace.trace;
    CT_TRY(open_exchange(&b, &open));
    CT_TRY(ct_job_memory_open(
        &(ct_job_memory_ask){ .param = c->solver,
                              .stage = ct_options_text(call->options, "stage_dir"),
                              .dev = b.ex->dev,
                              .comm = call->job->data_comm,
                              .divided = (division != NULL) },
        &b.memory));
    CT_TRY(open_step(&b, c->solver));
    CT_TRY(run_steps(&b));
    if (b.result.limit.flop > 0) ct_machine_limit_again(&b.result.limit);
    CT_TRY(ct_trace_file_write(&b.trace));
    CT_TRY(write_results(call, c, &b, q));
    ct_job_memory_tell_moved(&b.memory);
    ct_train_step_close(&b.step);
    ct_job_memory_close(&b.memory);
    ct_parts_destroy(b.parts);
    ct_exchange_open_close(&open);
    ct_trace_file_close(&b.trace);
    ct_time_result_destroy(&b.result);
    net->team = NULL;
    ct_team_clock_destroy(b.layers);
    ct_team_clock_destroy(b.whole);
    return CT_OK;
}

/* Ids of tokens are whole numbers, and 0 is one of any table: an Input is not made up. */
static bool has_input(const Ct__NetParameter *net)
{
    for (size_t i = 0; i < net->n_layer; i++)
        if ((net->layer[i]->type != NULL) && (strcmp(net->layer[i]->type, "Input") == 0))
            return true;
    return false;
}

static ct_status zero_inputs(const ct_net *net, const ct_exec *ex)
{
    for (int i = 0; i < net->n_layer; i++) {
        const ct_instance *in = net->pass->instance[i];

        for (int t = 0;
             (strcmp(net->layer[i]->ops->type, "Input") == 0) && (t < net->layer[i]->n_top); t++)
            CT_TRY(ex->dev->zero(ex->stream, in->top[t]->data.data,
                                 ct_tensor_bytes(&in->top[t]->data)));
    }
    return CT_OK;
}

static ct_status measure_forward(ct_call *call, const ct_config *c, ct_net *net, const request *q,
                                 ct_job_division *division)
{
    bench b = { .net = net, .ex = &net->pass->exec, .division = division };

    ct_exec_fill(call, net, b.ex);
    if (division != NULL) ct_job_division_fill_exec(division, b.ex);
    CT_TRY(ct_time_result_create(net, q->n_step, &b.result));
    b.result.n_micro = 1;
    b.result.limit = q->limit;
    b.result.engines = ct_options_flag(call->options, "engines");
    if (q->balance) CT_TRY(open_team(&b));
    CT_TRY(ct_trace_file_open(call, &b.trace));
    b.ex->trace = b.trace.trace;
    CT_TRY(ct_trace_file_reserve_forward(&b.trace, net));
    CT_TRY(zero_inputs(net, b.ex));
    CT_TRY(run_forwards(&b));
    if (b.result.limit.flop > 0) ct_machine_limit_again(&b.result.limit);
    CT_TRY(ct_trace_file_write(&b.trace));
    CT_TRY(write_results(call, c, &b, q));
    ct_trace_file_close(&b.trace);
    ct_time_result_destroy(&b.result);
    net->team = NULL;
    ct_team_clock_destroy(b.layers);
    ct_team_clock_destroy(b.whole);
    return CT_OK;
}

/* What is of layers that run would not be written. */
static ct_status check_data_alone(const ct_options *o)
{
    static const char *const of_layers[] = { "roofline", "trace", "trace_iterations", "plan" };

    for (size_t i = 0; i < sizeof(of_layers) / sizeof(of_layers[0]); i++)
        if (ct_options_origin(o, of_layers[i]) == CT_ORIGIN_COMMAND)
            return CT_FAIL(CT_ERR_CONFIG, "--%s is of layers that run, and --data runs none",
                           of_layers[i]);
    return CT_OK;
}

/* The part of each rank; rank 0 shows its own. */
static ct_status measure_data(const ct_call *call, const ct_config *c, const ct_net_options *o)
{
    const char *json = ct_options_text(call->options, "json");
    const char *dump = ct_options_text(call->options, "dump_batches");
    int n_batch = (int)ct_options_count(call->options, "iterations", 100);
    time_data r;
    ct_text t = { 0 };
    ct_json_writer w;
    ct_status status;

    if (n_batch < 1) return CT_FAIL(CT_ERR_CONFIG, "--iterations=0: at least 1");
    CT_TRY(check_data_alone(call->options));
    if ((json != NULL) && (call->job->rank == 0)) CT_TRY(ct_file_check_writable(json));
    if ((json != NULL) && (dump != NULL))
        return CT_FAIL(CT_ERR_CONFIG, "--dump_batches times nothing that --json could write");
    CT_TRY(time_data_run(call, c->net, o, n_batch, dump, &r));
    if ((call->job->rank != 0) || (dump != NULL)) return CT_OK;
    time_data_print(&r, stdout);
    if (json == NULL) return CT_OK;
    w = ct_json_members_into(&t);
    time_data_json(&r, &w);
    status = write_json(call, c, &t, json);
    ct_text_destroy(&t);
    return status;
}

/* --parallel: param and options become this rank's. */
static ct_status open_parallel(ct_call *call, ct_config *c, ct_parallel **p_p,
                               const Ct__NetParameter **param_p, ct_net_options *options,
                               ct_job_division **d_p)
{
    const char *file = ct_options_text(call->options, "parallel");

    if (file == NULL) return CT_OK;
    CT_TRY(ct_parallel_read(file, p_p));
    CT_TRY(ct_parallel_set_dummy(*p_p, c->net));
    return ct_job_division_open_net(call->job, *p_p, c->solver, param_p, options, d_p);
}

/* The job's limit of memory, and where AUTO puts what it has. parallel: a file says how. */
static ct_status plan_memory(ct_call *call, ct_config *c, bool parallel, ct_job_division *d,
                             ct_net_options *net)
{
    const ct_memory_groups groups = ct_job_division_memory(d);
    const ct_memory_job how = { .parallel = parallel, .groups = (d != NULL) ? &groups : NULL };
    ct_solver_options options = { .param = c->solver,
                                  .map = c->map,
                                  .dev = net->dev,
                                  .env = net->env,
                                  .memory_limit = net->memory_limit,
                                  .send_rows = net->send_rows };

    if (d != NULL) {
        options.division = &d->division;
        options.again = net->again;
        options.n_again = net->n_again;
    }
    CT_TRY(ct_memory_plan_job(call->job, c->solver, &how, &options));
    net->recompute = c->solver->recompute;
    return CT_OK;
}

/* What learning takes beside the net. */
static ct_status prepare_learning(ct_call *call, ct_config *c, bool parallel, ct_job_division *d,
                                  ct_exchange_window *window, ct_net_options *options)
{
    if (options->forward_only) return CT_OK;
    CT_TRY(plan_memory(call, c, parallel, d, options));
    options->window = (d != NULL) ? ct_job_division_window(d, options->dev)
                                  : ct_exchange_window_open(window, call->job->data_comm,
                                                            options->dev, c->solver);
    return CT_OK;
}

static ct_status measure_net(ct_call *call, const ct_config *c, ct_net *net, const request *q,
                             ct_job_division *d)
{
    if (net->options.forward_only) return measure_forward(call, c, net, q, d);
    if ((net->grad_arena == NULL) && (d == NULL))
        return CT_FAIL(CT_ERR_CONFIG, "%s: nothing to learn: no parameter has a gradient", c->file);
    return measure(call, c, net, q, d);
}

static ct_phase phase_of(const ct_options *o)
{
    const char *phase = ct_options_text(o, "phase");

    return ((phase != NULL) && (strcmp(phase, "TEST") == 0)) ? CT_TEST : CT_TRAIN;
}

/* Of data that is made up. Every rank does the same. */
static ct_status fill_shapes(const ct_options *o, const ct_net_options *options,
                             Ct__NetParameter *net)
{
    ct_data_shapes shapes = { 0 };
    ct_status status;

    CT_TRY(ct_data_shapes_read(o, &shapes));
    ct_data_shapes_meet(&shapes, net);
    status = ct_data_shapes_check_names(&shapes);
    if (status == CT_OK) status = ct_data_shapes_fill(&shapes, options, net);
    ct_data_shapes_destroy(&shapes);
    return status;
}

ct_status ct_verb_time(ct_call *call)
{
    ct_phase phase = phase_of(call->options);
    ct_net_options options = { .phase = phase };
    ct_exchange_window window;
    ct_net_state state;
    ct_config c;
    ct_net *net = NULL;
    const Ct__NetParameter *param;
    ct_parallel *parallel = NULL;
    ct_job_division *division = NULL;
    request q = { .n_step = 0 };
    ct_status status;

    CT_TRY(ct_net_state_read(call->options, &state));
    CT_TRY(ct_call_setup(call, phase, &c));
    CT_TRY_GOTO(status, out, ct_call_connect(call, &c));
    if (c.solver->iter_size != 1)
        CT_INFO("iter_size %d: one micro-step is measured as a whole step", c.solver->iter_size);
    if (c.solver->batch_tokens > 0)
        CT_INFO("batch_tokens %lld: one micro-step is measured as a whole step",
                (long long)c.solver->batch_tokens);
    c.solver->iter_size = 1;
    c.solver->batch_tokens = 0;
    ct_net_options_fill(call, &c, phase, &state, &options);
    options.forward_only = (phase == CT_TEST);
    options.env.synthetic = !ct_options_flag(call->options, "data");
    if (!options.env.synthetic) {
        status = ct_job_share(call->job, measure_data(call, &c, &options));
        goto out;
    }
    if (ct_options_text(call->options, "dump_batches") != NULL) {
        status = CT_FAIL(CT_ERR_CONFIG, "--dump_batches goes with --data, which was not given");
        goto out;
    }
    if ((phase == CT_TEST) && has_input(c.net)) options.env.synthetic = false;
    if (options.env.synthetic)
        CT_TRY_GOTO(status, out, fill_shapes(call->options, &options, c.net));
    CT_TRY_GOTO(status, out, ct_call_device(call, &c, &options.dev));
    if ((call->job->group.data.size > 1) && (options.dev->kind == CT_DEVICE_CPU) &&
        (phase == CT_TRAIN))
        options.grad_arena = ct_exchange_arena(call->job->data_comm, c.solver);
    CT_TRY_GOTO(status, out, read_request(call, &c, &q));
    CT_TRY_GOTO(status, out,
                ct_call_plan_open(call, &c, NULL, ct_options_flag(call->options, "engines"),
                                  &options.env.plan));
    param = c.net;
    CT_TRY_GOTO(status, out, open_parallel(call, &c, &parallel, &param, &options, &division));
    CT_TRY_GOTO(status, out,
                prepare_learning(call, &c, parallel != NULL, division, &window, &options));
    CT_TRY_GOTO(status, out, ct_net_create(param, &options, &net));
    CT_TRY_GOTO(status, out, ct_call_plan_close(call, &c, options.env.plan));
    CT_TRY_GOTO(status, out, measure_net(call, &c, net, &q, division));
out:
    /* main ends the job: to release what ranks share would wait for those that did not fail */
    if (status != CT_OK) return status;
    ct_net_destroy(net);
    ct_job_division_close(division);
    ct_parallel_destroy(parallel);
    ct_engine_plan_destroy(options.env.plan);
    ct_config_destroy(&c);
    return status;
}
