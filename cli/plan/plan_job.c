/* cortado plan for several ranks: the search, and what is made of its plans. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan/plan_job.h"
#include "framework/base/log.h"
#include "planner/job_exact.h"
#include "planner/job_file.h"
#include "planner/parallel.h"
#include "planner/sharding.h"

/* ---- what is asked for */

/* "NAME=K", K above 0. */
static bool is_fix(const char *text, const char *name, int64_t *value_p)
{
    size_t n = strlen(name);
    char *end;

    if ((strncmp(text, name, n) != 0) || (text[n] != '=')) return false;
    *value_p = strtoll(text + n + 1, &end, 10);
    return (end != text + n + 1) && (*end == '\0') && (*value_p > 0) && (*value_p < INT32_MAX);
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
static ct_status read_machine(ct_plan_job_state *p, int64_t ranks)
{
    const ct_options *o = p->call->options;
    const char *name = ct_options_text(o, "machine");
    int64_t per_node;
    ct_job_request q = { .limits = p->in.limits, .memory = (double)p->in.memory };

    if ((ranks < 1) || (ranks > CT_PLAN_MOST_RANKS))
        return CT_FAIL(CT_ERR_CONFIG, "--ranks=%" PRId64 ": expected 1 to %d", ranks,
                       CT_PLAN_MOST_RANKS);
    per_node = ct_options_count(o, "ranks_per_node", (name != NULL) ? 1 : ranks);
    if ((per_node < 1) || (per_node > ranks) || (ranks % per_node != 0))
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
                   ceil(ldexp(s->least_bytes, -30) * 1e4) / 1e4);
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

static ct_status search(ct_plan_job_state *p)
{
    ct_job_search_request q = {
        .net = &p->net, .machine = &p->job, .fix = p->fix, .in_bytes = true
    };

    CT_TRY(make_net(p));
    q.batch = p->batch;
    CT_TRY(ct_job_search_run(&q, &p->search));
    if (p->search.n == 0) return fail_memory(p);
    CT_TRY(ct_job_plan_write(&p->search.space, &p->search.plan[0], &p->file));
    CT_TRY(check_file(p));
    p->rank = calloc((size_t)p->job.n_rank, sizeof(*p->rank));
    if (p->rank == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", p->job.n_rank);
    return ct_job_plan_memory(&p->search.space, &p->net.options, &p->search.plan[0], p->rank);
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
        if (file != NULL) fprintf(to, "written: %s, for cortado train --parallel=%s\n", file, file);
    }
    if (json == NULL) return CT_OK;
    ct_plan_job_json(p, &text);
    status = ct_plan_write_json(json, &text);
    ct_text_destroy(&text);
    return status;
}

static void close_state(ct_plan_job_state *p)
{
    ct_job_search_destroy(&p->search);
    ct_job_net_destroy(&p->net);
    ct_job_machine_destroy(&p->job);
    ct_machine_destroy(p->machine);
    ct_text_destroy(&p->file);
    free(p->rank);
    ct_config_destroy(&p->in.config);
}

ct_status ct_plan_job(ct_call *call)
{
    const char *json = ct_options_text(call->options, "json");
    ct_plan_job_state p = { .call = call };
    FILE *to = ((json != NULL) && (strcmp(json, "-") == 0)) ? NULL : stdout;
    ct_status status = read_fix(&p);

    if (status == CT_OK) status = ct_plan_input_read(call, &p.in);
    if (status == CT_OK) status = read_machine(&p, ct_options_count(call->options, "ranks", 1));
    if (status == CT_OK) status = find_batch(&p);
    if (status == CT_OK) status = find_plan(&p);
    if (status == CT_OK) status = tell(&p, to);
    close_state(&p);
    return status;
}

/* ---- the step of a file */

static ct_status predict(ct_plan_job_state *p, const char *path, ct_job_plan *plan)
{
    ct_parallel *f = NULL;
    ct_status status;

    CT_TRY(ct_parallel_read(path, &f));
    p->batch = f->global_batch;
    CT_TRY_GOTO(status, out, read_machine(p, f->n_rank));
    CT_TRY_GOTO(status, out, make_net(p));
    CT_TRY_GOTO(status, out, ct_parallel_bind(f, p->net.param, p->net.net));
    status = ct_job_file_plan(&p->net, &p->job, f, plan);
out:
    ct_parallel_destroy(f);
    return status;
}

ct_status ct_plan_file_step(ct_call *call, const char *path, FILE *to, ct_text *json)
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
        ct_text_add(json, ",\"step_s\":");
        ct_text_add_number(json, plan.step_s);
    }
    ct_job_plan_destroy(&plan);
    close_state(&p);
    return status;
}
