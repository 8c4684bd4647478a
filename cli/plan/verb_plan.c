/* cortado plan: plans of nets, or the two solvers alone, on chains and pipelines given as JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan/plan.h"
#include "framework/base/file.h"
#include "planner/solver_json.h"

ct_status ct_plan_write_json(const char *to, const ct_text *json)
{
    if (json->failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for the answer");
    if (strcmp(to, "-") != 0) return ct_file_write(to, json->text, json->length);
    if ((fwrite(json->text, 1, json->length, stdout) != json->length) || (fflush(stdout) != 0))
        return CT_FAIL(CT_ERR_IO, "the answer cannot be written to stdout");
    return CT_OK;
}

/* ---- --chain */

/* Blocks from `first` on that have one strategy and lie in one segment, or are all kept. */
static int run_of(const ct_chain *c, int first, const int *strategy, const ct_chain_mode *mode)
{
    ct_chain_mode next = (mode[first] == CT_CHAIN_KEEP) ? CT_CHAIN_KEEP : CT_CHAIN_CONTINUE;
    int end = first + 1;

    while ((end < c->n_block) && (strategy[end] == strategy[first]) && (mode[end] == next)) end++;
    return end;
}

static void print_run(const ct_chain *c, int first, int end, const int *strategy,
                      const ct_chain_mode *mode)
{
    static const char *const what[] = { "kept", "made again", "made again with those before" };
    char blocks[32];
    double time_s = 0;
    int64_t weight = 0, kept = 0;

    for (int l = first; l < end; l++) {
        int64_t at = (int64_t)l * c->n_strategy + strategy[l];

        time_s += c->time_s[at] + ((mode[l] != CT_CHAIN_KEEP) ? c->again_s[at] : 0);
        weight += c->weight[at];
        kept += c->kept[at];
    }
    snprintf(blocks, sizeof(blocks), (end > first + 1) ? "%d-%d" : "%d", first, end - 1);
    printf("%-13s %8d %12.6g %12" PRId64 " %12" PRId64 "  %s\n", blocks, strategy[first], time_s,
           weight, kept, what[mode[first]]);
}

static void print_chain(const ct_chain *c, double step_s, const int *strategy,
                        const ct_chain_mode *mode)
{
    printf("%d blocks, %d strategies, %" PRId64 " micro-batches in flight, limit %" PRId64
           " slots\n",
           c->n_block, c->n_strategy, c->in_flight, c->limit);
    if (!isfinite(step_s)) {
        printf("nothing fits\n");
        return;
    }
    printf("\n%-13s %8s %12s %12s %12s\n", "blocks", "strategy", "seconds", "weight", "kept");
    for (int first = 0, end; first < c->n_block; first = end) {
        end = run_of(c, first, strategy, mode);
        print_run(c, first, end, strategy, mode);
    }
    printf("\nstep %.6g s with %" PRId64 " slots\n", step_s, ct_chain_memory(c, strategy, mode));
}

static ct_status solve_chain(const ct_chain *c, const char *json)
{
    int *strategy = calloc((size_t)c->n_block, sizeof(strategy[0]));
    ct_chain_mode *mode = calloc((size_t)c->n_block, sizeof(mode[0]));
    ct_text answer = { .text = NULL };
    double step_s = INFINITY;
    ct_status status;

    if ((strategy == NULL) || (mode == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "%s: no memory for the answer", c->name);
    else
        status = ct_chain_solve(c, strategy, mode, &step_s);
    if ((status == CT_OK) && (json != NULL)) {
        ct_chain_answer(c, step_s, strategy, mode, &answer);
        status = ct_plan_write_json(json, &answer);
    }
    if ((status == CT_OK) && ((json == NULL) || (strcmp(json, "-") != 0)))
        print_chain(c, step_s, strategy, mode);
    ct_text_destroy(&answer);
    free(strategy);
    free(mode);
    return status;
}

/* ---- --pipeline */

static void print_partition(const ct_partition *p, double step_s, const int *layers)
{
    printf("%d layers, %d stages, %" PRId64 " micro-batches\n", p->n_layer, p->n_stage,
           p->micro_batches);
    if (!isfinite(step_s)) {
        printf("no partition: more stages than layers\n");
        return;
    }
    printf("\n%-6s %-13s %12s %12s %12s\n", "stage", "layers", "seconds", "cut", "data");
    for (int s = 0, first = 0; s < p->n_stage; first += layers[s++]) {
        const double *time_s = p->time_s + (int64_t)s * p->n_layer;
        const double *data_s = p->data_s + (int64_t)s * p->n_layer;
        double e = 0, data = 0, cut = 0;
        int end = first + layers[s];
        char range[32];

        for (int l = first; l < end; l++) {
            e += time_s[l];
            data += data_s[l];
        }
        if (s < p->n_stage - 1) cut = p->cut_s[(int64_t)s * p->n_layer + end - 1];
        snprintf(range, sizeof(range), (end > first + 1) ? "%d-%d" : "%d", first, end - 1);
        printf("%-6d %-13s %12.6g %12.6g %12.6g\n", s, range, e, cut, data);
    }
    printf("\nstep %.6g s\n", step_s);
}

static ct_status solve_partition(const ct_partition *p, const char *json)
{
    int *layers = calloc((size_t)p->n_stage, sizeof(layers[0]));
    ct_text answer = { .text = NULL };
    double step_s = INFINITY;
    ct_status status;

    if (layers == NULL)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %d stages", p->n_stage);
    else
        status = ct_partition_solve(p, layers, &step_s);
    if ((status == CT_OK) && (json != NULL)) {
        ct_partition_answer(p, step_s, layers, &answer);
        status = ct_plan_write_json(json, &answer);
    }
    if ((status == CT_OK) && ((json == NULL) || (strcmp(json, "-") != 0)))
        print_partition(p, step_s, layers);
    ct_text_destroy(&answer);
    free(layers);
    return status;
}

/* ---- the verb */

static ct_status plan_chain(const char *path, const char *text, size_t size, const char *json)
{
    ct_chain_file f;
    ct_status status;

    CT_TRY(ct_chain_parse(path, text, size, &f));
    status = solve_chain(&f.chain, json);
    ct_chain_release(&f);
    return status;
}

static ct_status plan_pipeline(const char *path, const char *text, size_t size, const char *json)
{
    ct_partition_file f;
    ct_status status;

    CT_TRY(ct_partition_parse(path, text, size, &f));
    status = solve_partition(&f.partition, json);
    ct_partition_release(&f);
    return status;
}

/* Whether a plan is for several ranks, or has what only such plans have. */
static bool is_of_job(const ct_options *o)
{
    static const char *const more[] = { "machine", "ranks_per_node", "profile", "fix" };

    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
        if (ct_options_text(o, more[i]) != NULL) return true;
    }
    return ct_options_count(o, "ranks", 1) != 1;
}

/* What cannot be written is known before the search, not behind it. Solvers alone have no job. */
static ct_status check_targets(const ct_call *call)
{
    static const char *const name[] = { "json", "out" };
    ct_status status = CT_OK;

    for (int i = 0; (i < 2) && (status == CT_OK); i++) {
        const char *to = ct_options_text(call->options, name[i]);

        if ((to != NULL) && (strcmp(to, "-") != 0) &&
            ((call->job == NULL) || (call->job->rank == 0)))
            status = ct_file_check_writable(to);
    }
    return (call->job != NULL) ? ct_job_share(call->job, status) : status;
}

/* What is said of nets would be without effect. */
static ct_status check_file_alone(const ct_options *o, const char *which)
{
    static const char *const of_nets[] = { "set",
                                           "strict",
                                           "data_shape",
                                           "limits",
                                           "level",
                                           "stage",
                                           "global_batch_size",
                                           "ranks",
                                           "memory_gib",
                                           "largest",
                                           "tiers",
                                           "usable",
                                           "state_bytes",
                                           "attention",
                                           "top",
                                           "out",
                                           "machine",
                                           "ranks_per_node",
                                           "fix",
                                           "profile" };

    for (size_t i = 0; i < sizeof(of_nets) / sizeof(of_nets[0]); i++)
        if (ct_options_origin(o, of_nets[i]) == CT_ORIGIN_COMMAND)
            return CT_FAIL(CT_ERR_CONFIG,
                           "--%s is for plans of --model=FILE or --solver=FILE; --%s has all that "
                           "its plan needs",
                           of_nets[i], which);
    return CT_OK;
}

ct_status ct_verb_plan(ct_call *call)
{
    const char *chain = ct_options_text(call->options, "chain");
    const char *pipeline = ct_options_text(call->options, "pipeline");
    const char *json = ct_options_text(call->options, "json");
    int n = (chain != NULL) + (pipeline != NULL) +
            (ct_options_text(call->options, "model") != NULL) +
            (ct_options_text(call->options, "solver") != NULL);
    char *text = NULL;
    size_t size = 0;
    ct_status status;

    if (n != 1)
        return CT_FAIL(CT_ERR_CONFIG, "cortado plan needs one of --model=FILE, --solver=FILE, "
                                      "--chain=FILE and --pipeline=FILE");
    CT_TRY(check_targets(call));
    if ((chain == NULL) && (pipeline == NULL) && ct_plan_is_of_tiers(call->options))
        return ct_plan_tiers(call);
    if ((chain == NULL) && (pipeline == NULL))
        return is_of_job(call->options) ? ct_plan_job(call) : ct_plan_net(call);
    CT_TRY(check_file_alone(call->options, (chain != NULL) ? "chain" : "pipeline"));
    CT_TRY(ct_settings_read((chain != NULL) ? chain : pipeline, &text, &size));
    status = (chain != NULL) ? plan_chain(chain, text, size, json)
                             : plan_pipeline(pipeline, text, size, json);
    free(text);
    return status;
}
