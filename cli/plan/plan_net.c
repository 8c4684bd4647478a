/* cortado plan --model or --solver: what of a net is made again under a limit of memory. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan/plan.h"
#include "framework/base/file.h"
#include "framework/base/json_writer.h"
#include "framework/base/log.h"
#include "planner/memory_tiers.h"
#include "planner/net_plan.h"
#include "planner/parallel.h"

typedef struct planned {
    ct_call *call;
    ct_plan_input in;
    ct_net_plan_request request;
    ct_net_search search;
    ct_text file; /* the parallel file */
    FILE *to;     /* NULL: stdout takes JSON alone */
    ct_memory_tiers tiers;
} planned;

static double mib(int64_t bytes)
{
    return ct_plan_mib((double)bytes);
}

/* ---- what is asked for */

static ct_status read_request(planned *p)
{
    CT_TRY(ct_plan_input_read(p->call, &p->in));
    p->in.options.env.n_rank = 1;
    p->request.param = p->in.config.net;
    p->request.options = &p->in.options;
    p->request.limits = p->in.limits;
    p->request.limit = p->in.memory;
    return CT_OK;
}

/* ---- the search */

static ct_status fail_memory(const planned *p)
{
    const ct_net_search *s = &p->search;

    return CT_FAIL(CT_ERR_CONFIG,
                   "nothing fits: keeping everything takes %.1f MiB of %.1f, and the plan that "
                   "takes least %.1f MiB (--memory_gib=%.4f)",
                   mib(s->whole.memory_bytes), mib(p->request.limit), mib(s->least_bytes),
                   ct_plan_gib_for(&p->in, (double)s->least_bytes));
}

/* Reads the file as `train` will: its net must take what the plan says, to the byte. */
static ct_status check_file(planned *p)
{
    const ct_net_plan *best = &p->search.best;
    ct_parallel *f = NULL;
    ct_net *net = NULL;
    ct_status status;

    CT_TRY(ct_parallel_parse("the plan", p->file.text, p->file.length, &f));
    status = ct_net_make_again(p->in.config.net, &p->in.options, f->again, f->n_again, &net);
    if (status == CT_OK) status = ct_parallel_bind(f, p->in.config.net, net);
    if ((status == CT_OK) &&
        ((int64_t)net->memory.planned != best->kept_bytes + best->transient_bytes))
        status = CT_FAIL(CT_ERR_ARG, "the plan takes %zu bytes, but %" PRId64 " were reckoned with",
                         net->memory.planned, best->kept_bytes + best->transient_bytes);
    if (status == CT_OK) {
        ct_memory_tiers_add_net(&p->tiers, net);
        p->tiers.bytes[CT_TIER_HOST][CT_USE_STATES] =
            best->weight_bytes - (int64_t)net->memory.weights;
        p->tiers.runtime = p->in.runtime;
        if (p->request.limit > 0) p->tiers.limit[CT_TIER_HOST] = p->request.limit + p->in.runtime;
    }
    ct_net_destroy(net);
    ct_parallel_destroy(f);
    return status;
}

static ct_status find_plan(planned *p)
{
    ct_net *net = NULL;
    ct_status status;

    /* once with all that it says */
    CT_TRY(ct_net_make_again(p->in.config.net, &p->in.options, NULL, 0, &net));
    ct_net_destroy(net);
    ct_log_set_sink(ct_plan_errors_alone, NULL);
    status = ct_net_search_run(&p->request, &p->search);
    if ((status == CT_OK) && !p->search.fits) status = fail_memory(p);
    if (status == CT_OK) {
        ct_net_plan_write(&p->search, &p->file);
        status = p->file.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the plan") : check_file(p);
    }
    ct_log_set_sink(NULL, NULL);
    return status;
}

/* ---- for people */

static int n_kind(const ct_net_chain *c)
{
    int n = 0;

    for (int b = 0; b < c->n_block; b++) n += (c->block[b].like == b);
    return n;
}

static void print_plan(const char *name, const ct_net_plan *n, FILE *to)
{
    fprintf(to, "%-12s %10.1f %10.1f %10.1f %10.1f %10.2f %10.2f\n", name, mib(n->memory_bytes),
            mib(n->weight_bytes), mib(n->kept_bytes), mib(n->transient_bytes),
            1e3 * n->time.again_s, 1e3 * n->step_s);
}

static void print_segments(const ct_net_search *s, FILE *to)
{
    const ct_net_chain *c = &s->chain;

    for (int i = 0, b = 0; i < s->best.n_segment; i++) {
        const ct_net_segment *a = &s->best.segment[i];
        int64_t kept = 0;
        int first;

        while (c->block[b].first != a->first) b++;
        first = b;
        for (; c->block[b].last != a->last; b++) kept += c->block[b].kept_bytes;
        kept += c->block[b].kept_bytes;
        fprintf(to, "  again %s - %s: %d block%s, %.1f MiB\n", a->first, a->last, b - first + 1,
                (b > first) ? "s" : "", mib(kept));
    }
}

static int by_time(const void *a, const void *b)
{
    double x = ((const ct_net_plan *)a)->step_s, y = ((const ct_net_plan *)b)->step_s;

    return (x > y) - (x < y);
}

/* --top: the fastest plans that fit. */
static void print_top(const planned *p)
{
    const ct_net_search *s = &p->search;
    int64_t left = ct_options_count(p->call->options, "top", 0);

    if (left > 0)
        fprintf(p->to, "\n%-12s %10s %10s %10s %10s %10s %10s\n", "segments", "MiB", "weights",
                "kept", "transient", "again ms", "step ms");
    qsort(s->tried, (size_t)s->n_configuration, sizeof(*s->tried), by_time);
    for (int i = 0; (i < s->n_configuration) && (left > 0); i++) {
        char name[16];

        if ((p->request.limit > 0) && (s->tried[i].memory_bytes > p->request.limit)) continue;
        snprintf(name, sizeof(name), "%d", s->tried[i].n_segment);
        print_plan(name, &s->tried[i], p->to);
        left--;
    }
}

static void print(const planned *p)
{
    const ct_net_search *s = &p->search;
    FILE *to = p->to;

    fprintf(to, "net         %s, hash %016" PRIx64 ", %" PRId64 " samples a step, 1 rank\n",
            (p->in.config.net->name != NULL) ? p->in.config.net->name : "", s->hash, s->batch);
    fprintf(to, "machine     %.4g GFLOP/s, %.4g GB/s, %s\n", 1e-9 * p->request.limits.flop,
            1e-9 * p->request.limits.bytes, p->in.is_measured ? "measured" : "as --limits says");
    fprintf(to, "chain       %d blocks, %d of them unlike\n", s->chain.n_block, n_kind(&s->chain));
    if (p->request.limit > 0) {
        bool fits = (s->whole.memory_bytes <= p->request.limit);

        fprintf(
            to,
            "limit       %.1f MiB, of which the runtime takes %.0f; keeping everything %s: %.1f "
            "of %.1f MiB\n",
            mib(p->request.limit + p->in.runtime), mib(p->in.runtime),
            fits ? "fits" : "does not fit", mib(s->whole.memory_bytes), mib(p->request.limit));
    }
    fprintf(to, "\n%-12s %10s %10s %10s %10s %10s %10s\n", "", "MiB", "weights", "kept",
            "transient", "again ms", "step ms");
    print_plan("all kept", &s->whole, to);
    print_plan("plan", &s->best, to);
    if (s->best.n_segment == 0) fprintf(to, "  nothing is made again\n");
    print_segments(s, to);
    print_top(p);
    fprintf(to,
            "\nsearched %d configurations in %.2f s; times are those of operations and bytes at "
            "the machine's limits\n",
            s->n_configuration, s->search_s);
}

/* ---- for programs */

static void add_json(const planned *p, ct_text *out)
{
    ct_json_writer w = ct_json_into(out);
    const ct_net_search *s = &p->search;
    const ct_net_plan *n = &s->best;
    const ct_net_chain *c = &s->chain;
    bool fits = (p->request.limit == 0) || (s->whole.memory_bytes <= p->request.limit);

    ct_json_begin_object(&w, NULL);
    ct_json_add_number(&w, "step_s", n->step_s);
    ct_json_add_number(&w, "data_parallel_step_s", fits ? s->whole.step_s : (double)NAN);
    ct_json_add_integer(&w, "configurations", s->n_configuration);
    ct_json_add_number(&w, "search_s", s->search_s);
    ct_json_begin_list(&w, "ranks");
    ct_json_begin_object(&w, NULL);
    ct_json_add_integer(&w, "rank", 0);
    ct_json_add_integer(&w, "stage", 0);
    ct_json_add_integer(&w, "memory_bytes", n->memory_bytes);
    ct_json_add_integer(&w, "weight_bytes", n->weight_bytes);
    ct_json_add_integer(&w, "kept_bytes", n->kept_bytes);
    ct_json_add_integer(&w, "transient_bytes", n->transient_bytes);
    ct_json_begin_object(&w, "memory");
    ct_memory_tiers_json(&p->tiers, &w);
    ct_json_end(&w);
    ct_json_add_number(&w, "compute_s", n->step_s);
    ct_json_add_number(&w, "again_s", n->time.again_s);
    ct_json_end(&w);
    ct_json_end(&w);
    ct_json_begin_object(&w, "whole");
    ct_json_add_integer(&w, "memory_bytes", s->whole.memory_bytes);
    ct_json_add_integer(&w, "kept_bytes", s->whole.kept_bytes);
    ct_json_add_number(&w, "step_s", s->whole.step_s);
    ct_json_end(&w);
    ct_json_add_integer(&w, "blocks", c->n_block);
    ct_json_add_integer(&w, "unlike", n_kind(c));
    ct_json_begin_list(&w, "stages");
    ct_json_begin_object(&w, NULL);
    ct_json_add_text(&w, "first", c->block[0].first);
    ct_json_add_text(&w, "last", c->block[c->n_block - 1].last);
    ct_json_begin_list(&w, "ranks");
    ct_json_add_integer(&w, NULL, 0);
    ct_json_end(&w);
    ct_json_add_integer(&w, "tensor", 1);
    ct_json_begin_list(&w, "again");
    for (int i = 0; i < n->n_segment; i++) {
        ct_json_begin_object(&w, NULL);
        ct_json_add_text(&w, "first", n->segment[i].first);
        ct_json_add_text(&w, "last", n->segment[i].last);
        ct_json_end(&w);
    }
    ct_json_end(&w);
    ct_json_end(&w);
    ct_json_end(&w);
    ct_json_add_text(&w, "parallel", p->file.text);
    ct_json_end(&w);
    ct_text_add(out, "\n");
}

static ct_status tell(const planned *p)
{
    const ct_options *o = p->call->options;
    const char *json = ct_options_text(o, "json"), *file = ct_options_text(o, "out");
    ct_text text = { .text = NULL };
    ct_status status = CT_OK;

    if (file != NULL) CT_TRY(ct_file_write(file, p->file.text, p->file.length));
    if (p->to != NULL) {
        print(p);
        if (file != NULL)
            fprintf(p->to, "written: %s, for cortado train --parallel=%s\n", file, file);
    }
    if (json == NULL) return CT_OK;
    add_json(p, &text);
    status = ct_plan_write_json(json, &text);
    ct_text_destroy(&text);
    return status;
}

ct_status ct_plan_net(ct_call *call)
{
    const char *json = ct_options_text(call->options, "json");
    planned p = { .call = call, .to = stdout };
    ct_status status;

    if ((json != NULL) && (strcmp(json, "-") == 0)) p.to = NULL;
    status = read_request(&p);
    if (status == CT_OK) status = find_plan(&p);
    if (status == CT_OK) status = tell(&p);
    ct_net_search_destroy(&p.search);
    ct_text_destroy(&p.file);
    ct_config_destroy(&p.in.config);
    return status;
}
