/* One forward of a net on several ranks: what it takes by a parallel file (`cortado check
 * --parallel
 * --phase=TEST`), and in which groups ranks answer (`cortado plan` of a net that is only run). */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan/plan_job.h"
#include "framework/base/file.h"
#include "framework/base/json_writer.h"
#include "framework/base/log.h"
#include "planner/forward_pass.h"

typedef struct forward {
    ct_plan_job_state *p;
    ct_parallel *file;
    ct_net *train, *test; /* as one rank would run them */
    ct_sharded_net sharded;
    ct_forward_pass pass;
    ct_job_link link;
    ct_forward_times hides, waits;
    double alone_s;
} forward;

static void close_forward(forward *f)
{
    ct_forward_pass_destroy(&f->pass);
    ct_sharded_net_destroy(&f->sharded);
    ct_net_destroy(f->test);
    ct_net_destroy(f->train);
    ct_parallel_destroy(f->file);
}

/* A file is bound to the net of phase TRAIN. */
static ct_status make_nets(forward *f)
{
    const ct_plan_input *in = &f->p->in;
    ct_net_options o = in->options;

    ct_net_options_alone(&o);
    o.env.global_batch_size = f->file->micro_batch;
    CT_TRY(ct_net_create(in->config.net, &o, &f->train));
    CT_TRY(ct_parallel_bind(f->file, in->config.net, f->train));
    o.phase = CT_TEST;
    o.forward_only = true;
    o.env.global_batch_size = 0;
    CT_TRY(ct_net_create(in->config.net, &o, &f->test));
    return ct_sharded_net_make(f->file, f->test, &f->sharded);
}

static ct_status price(forward *f)
{
    const ct_job_machine *m = &f->p->job;
    const ct_job_layout layout = { .machine = m, .file = f->file, .n_stage = 1 };
    ct_net_limits limits = { m->kind[0].flop, m->kind[0].bytes };

    CT_TRY(ct_forward_pass_make(f->file, &f->sharded, &f->test->options, m, &f->pass));
    f->link = ct_job_tensor_link(&layout, 0);
    f->alone_s = ct_net_seconds_of(f->test, &limits).forward_s;
    CT_TRY(ct_forward_pass_time(&f->pass, f->link, false, &f->waits));
    return ct_forward_pass_time(&f->pass, f->link, true, &f->hides);
}

static void print(const forward *f, FILE *to)
{
    const ct_forward_times *t = &f->hides;
    int64_t bytes = 0;
    int n = 0;

    for (int i = 0; i < f->pass.n_step; i++) {
        if (f->pass.step[i].kind != CT_FORWARD_BEGIN) continue;
        bytes += f->pass.step[i].bytes;
        n++;
    }
    fprintf(to, "forward     %.3f ms, modelled: %d ranks compute %.3f and wait %.3f\n",
            1e3 * t->all_s, f->pass.n_rank, 1e3 * t->compute_s, 1e3 * t->exposed_s);
    fprintf(to, "transfers   %d of %.1f MiB together, %.3f ms: %.0f %% hidden\n", n,
            ct_plan_mib((double)bytes), 1e3 * t->sums_s,
            (t->sums_s > 0) ? 100 * fmax(0, 1 - t->exposed_s / t->sums_s) : 0);
    fprintf(to, "if none hid %.3f ms\n", 1e3 * f->waits.all_s);
    fprintf(to, "one rank    %.3f ms\n", 1e3 * f->alone_s);
}

static void add_json(const forward *f, ct_text *json)
{
    ct_json_writer w = ct_json_into(json);

    ct_json_begin_object(&w, NULL);
    ct_forward_pass_json(f->test->name, &f->pass, &w);
    ct_json_add_number(&w, "forward_s", f->hides.all_s);
    ct_json_add_number(&w, "compute_s", f->hides.compute_s);
    ct_json_add_number(&w, "transfer_s", f->hides.sums_s);
    ct_json_add_number(&w, "exposed_s", f->hides.exposed_s);
    ct_json_add_number(&w, "no_overlap_s", f->waits.all_s);
    ct_json_add_number(&w, "one_rank_s", f->alone_s);
    ct_json_end(&w);
    ct_text_add(json, "\n");
}

static ct_status predict(forward *f)
{
    int64_t ranks = ct_options_count(f->p->call->options, "ranks", -1);

    CT_TRY(ct_plan_input_read(f->p->call, &f->p->in));
    CT_TRY(ct_parallel_read(ct_options_text(f->p->call->options, "parallel"), &f->file));
    if (ranks >= 0) CT_TRY(ct_parallel_check_ranks(f->file, ranks, "--ranks"));
    CT_TRY(ct_plan_job_read_machine(f->p, f->file->n_rank));
    CT_TRY(make_nets(f));
    return price(f);
}

ct_status ct_plan_file_forward(ct_call *call)
{
    const char *file = ct_options_text(call->options, "json");
    ct_plan_job_state p = { .call = call };
    forward f = { .p = &p };
    ct_text json = { 0 };
    ct_status status = predict(&f);

    if (status == CT_OK) {
        if ((file == NULL) || (strcmp(file, "-") != 0)) print(&f, stdout);
        add_json(&f, &json);
        if (file != NULL) status = ct_plan_write_json(file, &json);
    }
    ct_text_destroy(&json);
    close_forward(&f);
    ct_plan_job_close(&p);
    return status;
}

/* ---- groups of ranks that answer */

enum { MOST_TENSOR = 64 };

/* What was reckoned for one number of ranks a group. */
typedef struct way {
    int tensor, n_run;
    ct_forward_times times;
} way;

typedef struct groups {
    ct_plan_job_state *p;
    ct_net *net; /* of phase TRAIN, as files are bound to it */
    int n_rank, n_way, best;
    way way[MOST_TENSOR + 1]; /* the first: one rank alone */
    bool fixed;               /* --fix=tensor: that one counts */
} groups;

/* What has no meaning for a net that is only run. */
static ct_status check_options(const groups *g)
{
    static const char *const training[] = { "memory_gib", "profile", "top" };
    const ct_job_fix *fix = &g->p->fix;

    for (size_t i = 0; i < sizeof(training) / sizeof(training[0]); i++)
        if (ct_options_text(g->p->call->options, training[i]) != NULL)
            return CT_FAIL(CT_ERR_CONFIG,
                           "--%s is for plans of training, and no layer of this net runs backward",
                           training[i]);
    if (!fix->data && (fix->n_stage == 0) && (fix->micro_batches == 0)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "--fix: of a net that is only run, in which no layer runs "
                                  "backward, a plan has tensor=K alone");
}

/* Within nodes, or on whole ones. */
static bool fits_nodes(const groups *g, int tensor)
{
    int node = g->p->job.ranks_per_node;

    return (g->n_rank % tensor == 0) && ((node % tensor == 0) || (tensor % node == 0));
}

static ct_status check_tensor(const groups *g)
{
    int tensor = g->p->fix.tensor;

    if (!g->fixed) return CT_OK;
    if ((tensor < 2) || (tensor > MOST_TENSOR))
        return CT_FAIL(CT_ERR_CONFIG, "--fix=tensor=%d: expected 2 to %d", tensor, MOST_TENSOR);
    if (fits_nodes(g, tensor)) return CT_OK;
    return CT_FAIL(
        CT_ERR_CONFIG,
        "--fix=tensor=%d: %d ranks on nodes of %d cannot be dealt into such groups, each "
        "within a node or on whole ones",
        tensor, g->n_rank, g->p->job.ranks_per_node);
}

/* A file of so many ranks, and what its forward takes on the first ranks. */
static ct_status price_way(groups *g, way *w)
{
    forward f = { .p = g->p };
    ct_text text = { 0 };
    char name[32];
    ct_status status;

    (void)snprintf(name, sizeof(name), "tensor=%d", w->tensor);
    status = ct_tensor_file_write(g->net, w->tensor, name, &text, &w->n_run);
    if (status == CT_OK) status = ct_parallel_parse(name, text.text, text.length, &f.file);
    if (status == CT_OK) status = make_nets(&f);
    if (status == CT_OK) status = price(&f);
    w->times = f.hides;
    g->way[0].times.all_s = g->way[0].times.compute_s = f.alone_s;
    close_forward(&f);
    ct_text_destroy(&text);
    return status;
}

static ct_status price_all(groups *g)
{
    g->way[0] = (way){ .tensor = 1 };
    g->n_way = 1;
    for (int t = 2; (t <= MOST_TENSOR) && (t <= g->n_rank); t++) {
        way *w = &g->way[g->n_way];

        *w = (way){ .tensor = t };
        if (g->fixed ? (t != g->p->fix.tensor) : !fits_nodes(g, t)) continue;
        CT_TRY(ct_tensor_file_count(g->net, t, &w->n_run));
        if ((w->n_run == 0) && !g->fixed) continue;
        CT_TRY(price_way(g, w));
        if ((g->best == 0) || (w->times.all_s < g->way[g->best].times.all_s)) g->best = g->n_way;
        g->n_way++;
    }
    if (g->best > 0) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "net \"%s\" has no products that groups of 2 to %d of the %d ranks can share: "
                   "serve it whole on each",
                   g->net->name, MOST_TENSOR, g->n_rank);
}

static ct_status find_groups(groups *g)
{
    ct_net_options o = g->p->in.options;
    const ct_options *options = g->p->call->options;
    int64_t least = (g->p->fix.tensor > 0) ? g->p->fix.tensor : 1;

    CT_TRY(check_options(g));
    CT_TRY(ct_plan_job_read_machine(g->p, ct_options_count(options, "ranks", least)));
    g->n_rank = g->p->job.n_rank;
    g->fixed = (g->p->fix.tensor > 0);
    CT_TRY(check_tensor(g));
    ct_net_options_alone(&o);
    o.env.global_batch_size = 1;
    CT_TRY(ct_net_create(g->p->in.config.net, &o, &g->net));
    return price_all(g);
}

static void print_groups(const groups *g, FILE *to)
{
    const way *best = &g->way[g->best];

    fprintf(to, "net         %s, hash %016" PRIx64 ", only run, %d ranks\n", g->net->name,
            ct_net_hash(g->net), g->n_rank);
    ct_plan_job_print_machine(g->p, to);
    fprintf(to, "\n%-8s %8s %8s %12s %12s %12s\n", "tensor", "groups", "runs", "forward ms",
            "sums ms", "waits ms");
    for (int i = 0; i < g->n_way; i++) {
        const way *w = &g->way[i];

        fprintf(to, "%-8d %8d %8d %12.3f %12.3f %12.3f\n", w->tensor, g->n_rank / w->tensor,
                w->n_run, 1e3 * w->times.all_s, 1e3 * w->times.sums_s, 1e3 * w->times.exposed_s);
    }
    fprintf(to,
            "\nplan        tensor %d, %d group%s; a forward of the Input takes %.3f ms, modelled\n",
            best->tensor, g->n_rank / best->tensor, (g->n_rank > best->tensor) ? "s" : "",
            1e3 * best->times.all_s);
    if (g->way[0].times.all_s <= best->times.all_s)
        fprintf(to, "            one rank alone is as fast: without a file ranks are replicas\n");
}

static void add_groups_json(const groups *g, const ct_text *file, ct_text *out)
{
    ct_json_writer w = ct_json_into(out);
    const way *best = &g->way[g->best];

    ct_json_begin_object(&w, NULL);
    ct_json_add_integer(&w, "tensor", best->tensor);
    ct_json_add_integer(&w, "groups", g->n_rank / best->tensor);
    ct_json_add_integer(&w, "runs", best->n_run);
    ct_json_add_number(&w, "forward_s", best->times.all_s);
    ct_json_add_number(&w, "exposed_s", best->times.exposed_s);
    ct_json_add_number(&w, "one_rank_s", g->way[0].times.all_s);
    ct_json_add_text(&w, "parallel", file->text);
    ct_json_end(&w);
    ct_text_add(out, "\n");
}

static ct_status tell_groups(const groups *g)
{
    const ct_options *o = g->p->call->options;
    const char *json = ct_options_text(o, "json"), *path = ct_options_text(o, "out");
    ct_text file = { 0 }, text = { 0 };
    int n_run;
    ct_status status =
        ct_tensor_file_write(g->net, g->way[g->best].tensor, "the plan", &file, &n_run);

    if ((status == CT_OK) && (path != NULL)) status = ct_file_write(path, file.text, file.length);
    if ((status == CT_OK) && ((json == NULL) || (strcmp(json, "-") != 0))) {
        print_groups(g, stdout);
        if (path != NULL) printf("written: %s, for cortado serve --parallel=%s\n", path, path);
    }
    if ((status == CT_OK) && (json != NULL)) {
        add_groups_json(g, &file, &text);
        status = ct_plan_write_json(json, &text);
    }
    ct_text_destroy(&file);
    ct_text_destroy(&text);
    return status;
}

ct_status ct_plan_groups(ct_plan_job_state *p)
{
    groups g = { .p = p };
    ct_status status;

    ct_log_set_sink(ct_plan_errors_alone, NULL);
    status = find_groups(&g);
    ct_log_set_sink(NULL, NULL);
    if (status == CT_OK) status = tell_groups(&g);
    ct_net_destroy(g.net);
    return status;
}
