/* `cortado check --parallel --phase=TEST`: what one forward of a parallel file takes. */
#include <math.h>

#include "cli/plan/plan_job.h"
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
    ct_text_add(json, "{");
    ct_forward_pass_json(f->test->name, &f->pass, json);
    ct_text_add(json, ",\"forward_s\":");
    ct_text_add_number(json, f->hides.all_s);
    ct_text_add(json, ",\"compute_s\":");
    ct_text_add_number(json, f->hides.compute_s);
    ct_text_add(json, ",\"transfer_s\":");
    ct_text_add_number(json, f->hides.sums_s);
    ct_text_add(json, ",\"exposed_s\":");
    ct_text_add_number(json, f->hides.exposed_s);
    ct_text_add(json, ",\"no_overlap_s\":");
    ct_text_add_number(json, f->waits.all_s);
    ct_text_add(json, ",\"one_rank_s\":");
    ct_text_add_number(json, f->alone_s);
    ct_text_add(json, "}\n");
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
