/* cortado plan for several ranks: the search, and what is made of its plans. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan/plan_job.h"
#include "framework/base/file.h"
#include "framework/base/json_writer.h"
#include "framework/base/log.h"
#include "framework/base/number.h"
#include "planner/job_exact.h"
#include "planner/job_file.h"
#include "planner/parallel.h"
#include "planner/sharding.h"
#include "runtime/config/exchange_config.h"

/* ---- what is asked for */

/* "NAME=K", K above 0. */
static bool is_fix(const char *text, const char *name, int64_t *value_p)
{
    size_t n = strlen(name);
    char *end;

    if ((strncmp(text, name, n) != 0) || (text[n] != '=')) return false;
    return ct_number_integer(text + n + 1, &end, value_p) && (*end == '\0') && (*value_p > 0) &&
           (*value_p < INT32_MAX);
}

static ct_status read_fix(ct_plan_job_state *p)
{
    const ct_options *o = p->call->options;

    for (int i = 0; i < ct_options_n(o, "fix"); i++) {
        const char *text = ct_options_entry(o, "fix", i, NULL);
        int64_t v = 0;

        if (strcmp(text, "data") == 0)
            p->fix.data = true;
        else if (is_fix(text, "tensor", &v))
            p->fix.tensor = (int)v;
        else if (is_fix(text, "stages", &v))
            p->fix.n_stage = (int)v;
        else if (is_fix(text, "micro_batches", &v))
            p->fix.micro_batches = v;
        else
            return CT_FAIL(CT_ERR_CONFIG,
                           "--fix=%s: expected data, tensor=K, stages=K or micro_batches=K", text);
    }
    return CT_OK;
}

/* Ranks and nodes. */
ct_status ct_plan_job_read_machine(ct_plan_job_state *p, int64_t ranks)
{
    const ct_options *o = p->call->options;
    const char *name = ct_options_text(o, "machine");
    int64_t per_node;
    ct_job_request q = { .limits = p->in.limits, .memory = (double)p->in.memory };

    if ((ranks < 1) || (ranks > CT_PLAN_MOST_RANKS))
        return CT_FAIL(CT_ERR_CONFIG, "--ranks=%" PRId64 ": expected 1 to %d", ranks,
                       CT_PLAN_MOST_RANKS);
    per_node = ct_options_count(o, "ranks_per_node", (name != NULL) ? 1 : ranks);
    if ((per_node > ranks) || (ranks % per_node != 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--ranks_per_node=%" PRId64 ": %" PRId64
                       " ranks cannot be as many on each node",
                       per_node, ranks);
    if ((name == NULL) && (per_node != ranks))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--ranks_per_node=%" PRId64 ": without --machine all ranks are on this node",
                       per_node);
    if (name != NULL) {
        if (!ct_machine_is_path(name) && (ct_machine_ready(name) == NULL) &&
            (strspn(name, "0123456789x ") == strlen(name)))
            CT_TRY(ct_machine_from_spec(name, &p->machine));
        else
            CT_TRY(ct_machine_read(name, &p->machine));
    }
    q.machine = p->machine;
    q.n_rank = (int)ranks;
    q.ranks_per_node = (int)per_node;
    return ct_job_machine_make(&q, &p->job);
}

/* The samples of a step: as asked for, or as today's job of so many ranks has. */
static ct_status find_batch(ct_plan_job_state *p)
{
    ct_net_options options = p->in.options;
    ct_net *net = NULL;

    p->batch = p->in.config.solver->global_batch_size;
    options.env.n_rank = (p->batch > 0) ? 1 : p->job.n_rank;
    /* once with all that it says */
    CT_TRY(ct_net_make_again(p->in.config.net, &options, NULL, 0, &net));
    if (p->batch == 0) p->batch = net->batch_global;
    ct_net_destroy(net);
    if (p->batch < 1)
        return CT_FAIL(CT_ERR_CONFIG, "the net does not say how many samples a step has: give "
                                      "--global_batch_size=N");
    if (p->batch > INT32_MAX)
        return CT_FAIL(CT_ERR_CONFIG, "--global_batch_size=%" PRId64 ": too many", p->batch);
    return CT_OK;
}

/* ---- the search */

static ct_status fail_memory(const ct_plan_job_state *p)
{
    const ct_job_search *s = &p->search;
    double limit = 0;

    for (int k = 0; k < p->job.n_class; k++) limit = fmax(limit, p->job.kind[k].memory);
    if (!isfinite(s->least_bytes))
        return CT_FAIL(CT_ERR_CONFIG, "nothing fits: no plan was found for any limit");
    return CT_FAIL(CT_ERR_CONFIG,
                   "nothing fits %.1f MiB a rank: the plan that takes least needs %.1f MiB "
                   "(--memory_gib=%.4f)",
                   ct_plan_mib(limit), ct_plan_mib(s->least_bytes),
                   ct_plan_gib_for(&p->in, s->least_bytes));
}

/* Reads the file as others will. */
static ct_status check_file(const ct_plan_job_state *p)
{
    ct_parallel *f = NULL;
    ct_status status;

    CT_TRY(ct_parallel_parse("the plan", p->file.text, p->file.length, &f));
    status = ct_parallel_bind(f, p->net.param, p->net.net);
    if (status == CT_OK) status = ct_parallel_check_ranks(f, p->job.n_rank, "--ranks");
    ct_parallel_destroy(f);
    return status;
}

static int64_t profile_batch(const ct_plan_job_state *p)
{
    int64_t each = p->batch / p->job.n_rank;

    return (each < 2) ? 2 : (each > 16) ? 16 : each;
}

static ct_status make_net(ct_plan_job_state *p)
{
    CT_TRY(ct_job_net_make(p->in.config.net, &p->in.options, profile_batch(p), &p->in.limits,
                           &p->net));
    return ct_plan_job_measure(p);
}

/* ---- what replicas share out (ZeRO) */

/* As the solver has it; without `memory` nothing. */
static int given_zero(const ct_plan_job_state *p)
{
    const Ct__MemoryParameter *m = p->in.config.solver->memory;

    return (p->in.config.is_model || (m == NULL)) ? 0 : m->zero;
}

/* The plan may choose a stage: where `memory` is there and leaves zero open, memory is limited, and
 * compression sends no whole gradients. */
static ct_status may_choose_zero(const ct_plan_job_state *p, bool *may_p)
{
    const Ct__SolverParameter *s = p->in.config.solver;
    ct_grad_pipe_config config = { .allreduce = NULL };
    double limit = 0;

    *may_p = false;
    for (int k = 0; k < p->job.n_class; k++) limit = fmax(limit, p->job.kind[k].memory);
    if (p->in.config.is_model || (s->memory == NULL) || s->memory->has_zero || (limit == 0))
        return CT_OK;
    CT_TRY(ct_exchange_read_config(s, &config));
    *may_p = config.codec->parts || (strcmp(config.codec->name, "none") == 0);
    return CT_OK;
}

/* Places of the ranks, as communicators know them. */
static ct_status place_ranks(ct_plan_job_state *p)
{
    ct_machine *own = NULL;
    char spec[32];
    ct_status status;

    snprintf(spec, sizeof(spec), "1x%d", p->job.n_rank);
    if (p->machine == NULL) CT_TRY(ct_machine_from_spec(spec, &own));
    status = ct_topo_place((own != NULL) ? own : p->machine, p->job.n_rank, p->job.ranks_per_node,
                           "block", &p->topo);
    ct_machine_destroy(own);
    return status;
}

/* For plans of a stage of ZeRO. */
static ct_status open_shards(ct_plan_job_state *p, int zero)
{
    if (p->topo == NULL) CT_TRY(place_ranks(p));
    ct_planned_shards_close(&p->planned);
    p->memory = *p->in.config.solver->memory;
    p->memory.zero = zero;
    p->param = *p->in.config.solver;
    p->param.memory = &p->memory;
    p->planned = (ct_planned_shards){ .topo = p->topo, .param = &p->param };
    p->shards = ct_planned_shards_open(&p->planned);
    return CT_OK;
}

static void close_shards(ct_plan_job_state *p)
{
    ct_planned_shards_close(&p->planned);
    ct_topo_destroy(p->topo);
}

static ct_status search_zero(ct_plan_job_state *p, int zero, ct_job_search *s)
{
    ct_job_search_request q = { .net = &p->net,
                                .machine = &p->job,
                                .batch = p->batch,
                                .fix = p->fix,
                                .zero = zero,
                                .in_bytes = true };

    if (zero > 0) {
        CT_TRY(open_shards(p, zero));
        q.shards = &p->shards;
    }
    return ct_job_search_run(&q, s);
}

/* A larger stage is taken where it gains a thousandth. What is left over goes to *other. */
static void take_better(ct_job_search *best, ct_job_search *other)
{
    const double gain = 0.999;
    bool better =
        (other->n > 0) && ((best->n == 0) || (other->plan[0].step_s < gain * best->plan[0].step_s));
    double least = fmin(best->least_bytes, other->least_bytes);
    ct_job_search old = *best;

    if (better) {
        *best = *other;
        *other = old;
    }
    best->least_bytes = least;
}

/* The best of all stages that may be. */
static ct_status search_all(ct_plan_job_state *p)
{
    int zero = given_zero(p);
    bool may;

    CT_TRY(may_choose_zero(p, &may));
    CT_TRY(search_zero(p, zero, &p->search));
    for (int z = zero + 1; may && (z <= 3); z++) {
        ct_job_search other;
        double seconds = p->search.search_s;
        int64_t n = p->search.n_configuration;

        CT_TRY(search_zero(p, z, &other));
        seconds += other.search_s;
        n += other.n_configuration;
        take_better(&p->search, &other);
        p->search.search_s = seconds;
        p->search.n_configuration = n;
        ct_job_search_destroy(&other);
    }
    return CT_OK;
}

static ct_status search(ct_plan_job_state *p)
{
    ct_job_space *space = &p->search.space;

    CT_TRY(make_net(p));
    CT_TRY(search_all(p));
    if (p->search.n == 0) return fail_memory(p);
    if (p->search.plan[0].config.zero > 0) CT_TRY(open_shards(p, p->search.plan[0].config.zero));
    CT_TRY(ct_job_plan_write(space, &p->search.plan[0], &p->file));
    CT_TRY(check_file(p));
    p->rank = calloc((size_t)p->job.n_rank, sizeof(*p->rank));
    if (p->rank == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", p->job.n_rank);
    CT_TRY(ct_job_plan_memory(space, &p->net.options, &p->search.plan[0], p->rank));
    for (int r = 0; r < p->job.n_rank; r++) {
        ct_memory_tiers *t = &p->rank[r].tiers;

        t->runtime = p->in.runtime;
        if (p->in.memory > 0) t->limit[CT_TIER_HOST] = p->in.memory + p->in.runtime;
    }
    return CT_OK;
}

static ct_status find_plan(ct_plan_job_state *p)
{
    ct_status status;

    ct_log_set_sink(ct_plan_errors_alone, NULL);
    status = search(p);
    ct_log_set_sink(NULL, NULL);
    return status;
}

static ct_status tell(const ct_plan_job_state *p, FILE *to)
{
    const ct_options *o = p->call->options;
    const char *json = ct_options_text(o, "json"), *file = ct_options_text(o, "out");
    ct_text text = { .text = NULL };
    ct_status status;

    if (file != NULL) CT_TRY(ct_file_write(file, p->file.text, p->file.length));
    if (to != NULL) {
        ct_plan_job_print(p, to);
        if (file != NULL) {
            int zero = p->search.plan[0].config.zero;

            fprintf(to, "written: %s, for cortado train --parallel=%s", file, file);
            if (zero > 0) fprintf(to, " --set=memory.zero=%d", zero);
            fprintf(to, "\n");
        }
    }
    if (json == NULL) return CT_OK;
    ct_plan_job_json(p, &text);
    status = ct_plan_write_json(json, &text);
    ct_text_destroy(&text);
    return status;
}

void ct_plan_job_close(ct_plan_job_state *p)
{
    ct_job_search_destroy(&p->search);
    close_shards(p);
    ct_job_net_destroy(&p->net);
    ct_job_machine_destroy(&p->job);
    ct_machine_destroy(p->machine);
    ct_text_destroy(&p->file);
    free(p->rank);
    ct_config_destroy(&p->in.config);
}

/* Whether any layer of the net runs backward: what only answers has no step to plan. */
static ct_status find_whether_learns(ct_plan_job_state *p, bool *learns_p)
{
    ct_net_options options = p->in.options;
    ct_net *net = NULL;
    ct_status status;

    if (!p->in.config.is_model) return CT_OK;
    ct_net_options_alone(&options);
    options.env.global_batch_size = 1;
    ct_log_set_sink(ct_plan_errors_alone, NULL);
    status = ct_net_create(p->in.config.net, &options, &net);
    ct_log_set_sink(NULL, NULL);
    if (status == CT_OK) *learns_p = (net->n_backward > 0);
    ct_net_destroy(net);
    return status;
}

static ct_status plan_training(ct_plan_job_state *p, FILE *to)
{
    CT_TRY(ct_plan_job_read_machine(p, ct_options_count(p->call->options, "ranks", 1)));
    CT_TRY(find_batch(p));
    CT_TRY(find_plan(p));
    return tell(p, to);
}

ct_status ct_plan_job(ct_call *call)
{
    const char *json = ct_options_text(call->options, "json");
    ct_plan_job_state p = { .call = call };
    FILE *to = ((json != NULL) && (strcmp(json, "-") == 0)) ? NULL : stdout;
    bool learns = true;
    ct_status status = read_fix(&p);

    if (status == CT_OK) status = ct_plan_input_read(call, &p.in);
    if (status == CT_OK) status = find_whether_learns(&p, &learns);
    if (status == CT_OK) status = learns ? plan_training(&p, to) : ct_plan_groups(&p);
    ct_plan_job_close(&p);
    return status;
}

/* ---- the step of a file */

static ct_status predict(ct_plan_job_state *p, const char *path, ct_job_plan *plan)
{
    ct_parallel *f = NULL;
    ct_status status;

    CT_TRY(ct_parallel_read(path, &f));
    p->batch = f->global_batch;
    CT_TRY_GOTO(status, out, ct_plan_job_read_machine(p, f->n_rank));
    CT_TRY_GOTO(status, out, make_net(p));
    CT_TRY_GOTO(status, out, ct_parallel_bind(f, p->net.param, p->net.net));
    status = ct_job_file_plan(&p->net, &p->job, f, given_zero(p), plan);
out:
    ct_parallel_destroy(f);
    return status;
}

ct_status ct_plan_file_step(ct_call *call, const char *path, FILE *to, ct_json_writer *w)
{
    ct_plan_job_state p = { .call = call };
    ct_job_plan plan = { 0 };
    ct_status status;

    ct_log_set_sink(ct_plan_errors_alone, NULL); /* what else there is to say was said */
    status = ct_plan_input_read(call, &p.in);
    if (status == CT_OK) status = predict(&p, path, &plan);
    ct_log_set_sink(NULL, NULL);
    if (status == CT_OK) {
        if (to != NULL) ct_plan_file_print(&p, &plan, to);
        ct_json_add_number(w, "step_s", plan.step_s);
    }
    ct_job_plan_destroy(&plan);
    ct_plan_job_close(&p);
    return status;
}
