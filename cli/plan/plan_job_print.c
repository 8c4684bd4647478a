/* A plan for several ranks, as text and as JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/json_writer.h"
#include "cli/plan/plan_job.h"
#include "topology/topo.h"

/* ---- what both tell */

static const char *name_of(const ct_plan_job_state *p, int block, bool last)
{
    const ct_net_block *b = &p->net.chain.block[block];

    return last ? b->last : b->first;
}

static bool is_split(int way)
{
    return (way == CT_JOB_OUTPUT) || (way == CT_JOB_INPUT);
}

static const char *way_name(int way)
{
    return is_split(way) ? "split" : (way == CT_JOB_BATCH) ? "samples" : "each all";
}

/* The end of the blocks from b on that go alike. */
static int run_of_ways(const ct_job_plan *p, int b, int end)
{
    int at = b + 1;

    while ((at < end) && (strcmp(way_name(p->way[at]), way_name(p->way[b])) == 0)) at++;
    return at;
}

static int run_of_modes(const ct_job_plan *p, int b, int end)
{
    int at = b + 1;

    while ((at < end) && (p->mode[at] == CT_CHAIN_CONTINUE)) at++;
    return at;
}

/* ---- text */

static int n_kind(const ct_net_chain *c)
{
    int n = 0;

    for (int b = 0; b < c->n_block; b++) n += (c->block[b].like == b);
    return n;
}

void ct_plan_job_print_machine(const ct_plan_job_state *p, FILE *to)
{
    const ct_job_machine *m = &p->job;

    fprintf(to, "machine     %s: %d node%s of %d rank%s",
            (p->machine != NULL) ? p->machine->name : "this one", m->n_node,
            (m->n_node > 1) ? "s" : "", m->ranks_per_node, (m->ranks_per_node > 1) ? "s" : "");
    for (int k = 0; (p->machine != NULL) && (k < p->machine->n_node_class); k++) {
        int n = 0;

        for (int i = 0; i < m->n_node; i++) n += (m->node_class[i] == k);
        if (n > 0)
            fprintf(to, ", %d %s (speed %g)", n, p->machine->node_class[k].name, m->kind[k].speed);
    }
    if (p->net.measured != NULL) fprintf(to, "; times of profiles");
    fprintf(to, "; a node has %.4g GFLOP/s, %.4g GB/s, %s\n", 1e-9 * p->in.limits.flop,
            1e-9 * p->in.limits.bytes, p->in.is_measured ? "measured" : "as --limits says");
}

static void add_range(const ct_job_layout *l, int stage, ct_text *out)
{
    int n = l->data * l->tensor, *rank = calloc((size_t)n, sizeof(*rank));

    for (int i = 0; (rank != NULL) && (i < n); i++)
        rank[i] = ct_job_rank(l, stage, i / l->tensor, i % l->tensor);
    for (int i = 1; (rank != NULL) && (i < n); i++) { /* nodes stand in any order */
        for (int k = i; (k > 0) && (rank[k] < rank[k - 1]); k--) {
            int held = rank[k];

            rank[k] = rank[k - 1];
            rank[k - 1] = held;
        }
    }
    if (rank != NULL) ct_draw_numbers(rank, n, out);
    free(rank);
}

static void print_shares(const ct_job_stage_plan *t, FILE *to)
{
    if (t->kind.n_group == 1) return;
    fprintf(to, "           share");
    for (int g = 0; g < t->kind.n_group; g++)
        fprintf(to, "%s %d x %" PRId64, (g > 0) ? "," : "", t->kind.group[g].n,
                t->kind.group[g].share);
    fprintf(to, " samples of a micro-batch\n");
}

static void print_stage(const ct_plan_job_state *p, const ct_job_plan *n, int i, FILE *to)
{
    ct_job_layout l = ct_job_layout_of(&p->search.space, &n->config);
    const ct_job_stage_plan *t = &n->stage[i];
    const ct_job_figures *f = &t->figures;
    ct_text ranks = { 0 };

    add_range(&l, i, &ranks);
    fprintf(to, "%5d  %-14s %10.2f %9.2f %9.1f %9.1f %9.1f %9.1f %8.1f  %s - %s\n", i,
            (ranks.text != NULL) ? ranks.text : "", 1e3 * (f->forward_s + f->backward_s),
            1e3 * f->again_s, ct_plan_mib(ct_job_plan_bytes(f)), ct_plan_mib(f->weights),
            ct_plan_mib(f->kept), ct_plan_mib(f->other), 100 * t->bubble,
            name_of(p, t->first, false), name_of(p, t->end - 1, true));
    ct_text_destroy(&ranks);
    print_shares(t, to);
    for (int b = t->first, end; (n->config.tensor > 1) && (b < t->end); b = end) {
        end = run_of_ways(n, b, t->end);
        fprintf(to, "           %s %s - %s: %d block%s\n", way_name(n->way[b]),
                name_of(p, b, false), name_of(p, end - 1, true), end - b, (end - b > 1) ? "s" : "");
    }
    for (int b = t->first, end; b < t->end; b = end) {
        end = b + 1;
        if (n->mode[b] != CT_CHAIN_START) continue;
        end = run_of_modes(n, b, t->end);
        fprintf(to, "           again %s - %s: %d block%s\n", name_of(p, b, false),
                name_of(p, end - 1, true), end - b, (end - b > 1) ? "s" : "");
    }
}

static void print_config(const ct_job_plan *n, int64_t batch, FILE *to)
{
    const ct_job_config *c = &n->config;

    fprintf(to, "tensor %d, %d stage%s of %d replica%s, %" PRId64 " micro-batch%s of %" PRId64,
            c->tensor, c->n_stage, (c->n_stage > 1) ? "s" : "", c->data, (c->data > 1) ? "s" : "",
            c->micro_batches, (c->micro_batches > 1) ? "es" : "", batch / c->micro_batches);
    if (c->zero > 0) fprintf(to, ", zero %d", c->zero);
}

/* The rank of a data-parallel step that lacks most. */
static void print_data(const ct_plan_job_state *p, FILE *to)
{
    const ct_job_plan *d = &p->search.data;
    double step_s = p->search.plan[0].step_s;

    fprintf(to, "data alone  ");
    if (d->config.n_stage == 0) {
        fprintf(to, "%" PRId64 " samples are fewer than %d ranks\n", p->batch, p->job.n_rank);
    } else if (d->fits) {
        fprintf(to, "%.2f ms, %.2f x the plan's\n", 1e3 * d->step_s, d->step_s / step_s);
    } else {
        int rank;
        double need, limit;

        rank = ct_plan_job_lacks(p, d, &need, &limit);
        fprintf(to, "does not fit: %.1f of %.1f MiB on rank %d\n", ct_plan_mib(need),
                ct_plan_mib(limit), rank);
    }
}

static void print_top(const ct_plan_job_state *p, FILE *to)
{
    int64_t left = ct_options_count(p->call->options, "top", 0);

    if (left > 0) fprintf(to, "\n   step ms  estimate\n");
    for (int i = 0; (i < p->search.n) && (left > 0); i++, left--) {
        const ct_job_plan *n = &p->search.plan[i];
        double most = 0;

        for (int s = 0; s < n->config.n_stage; s++)
            most = fmax(most, ct_job_plan_bytes(&n->stage[s].figures));
        fprintf(to, "%10.2f %9.2f  ", 1e3 * n->step_s, 1e3 * n->estimate_s);
        print_config(n, p->batch, to);
        fprintf(to, ", %.1f MiB\n", ct_plan_mib(most));
    }
}

void ct_plan_job_print(const ct_plan_job_state *p, FILE *to)
{
    const ct_job_search *s = &p->search;
    const ct_job_plan *n = &s->plan[0];

    fprintf(to, "net         %s, hash %016" PRIx64 ", %" PRId64 " samples a step, %d rank%s\n",
            p->net.net->name, p->net.hash, p->batch, p->job.n_rank, (p->job.n_rank > 1) ? "s" : "");
    ct_plan_job_print_machine(p, to);
    fprintf(to, "chain       %d blocks, %d of them unlike\n", p->net.n_block,
            n_kind(&p->net.chain));
    if (p->in.memory > 0)
        fprintf(to, "limit       %.1f MiB a rank, of which the runtime takes %.0f\n",
                ct_plan_mib((double)(p->in.memory + p->in.runtime)),
                ct_plan_mib((double)p->in.runtime));
    fprintf(to, "plan        ");
    print_config(n, p->batch, to);
    fprintf(to, "\n\n%5s  %-14s %10s %9s %9s %9s %9s %9s %8s  layers\n", "stage", "ranks", "ms",
            "again ms", "MiB", "weights", "kept", "transient", "bubble %");
    for (int i = 0; i < n->config.n_stage; i++) print_stage(p, n, i, to);
    print_top(p, to);
    fprintf(to, "\nstep        %.2f ms, simulated\n", 1e3 * n->step_s);
    print_data(p, to);
    if (s->uniform.config.n_stage > 0) {
        fprintf(to, "uniform     %.2f ms, %.2f x the plan's: ", 1e3 * s->uniform.step_s,
                s->uniform.step_s / n->step_s);
        print_config(&s->uniform, p->batch, to);
        fprintf(to, "\n");
    }
    fprintf(to, "searched %" PRId64 " configurations in %.2f s\n", s->n_configuration, s->search_s);
}

void ct_plan_file_print(const ct_plan_job_state *p, const ct_job_plan *n, FILE *to)
{
    ct_plan_job_print_machine(p, to);
    fprintf(to, "stage         ms  again ms bubble %%\n");
    for (int i = 0; i < n->config.n_stage; i++) {
        const ct_job_figures *f = &n->stage[i].figures;

        fprintf(to, "%5d %10.2f %9.2f %8.1f\n", i, 1e3 * (f->forward_s + f->backward_s),
                1e3 * f->again_s, 100 * n->stage[i].bubble);
    }
    fprintf(to, "step        %.2f ms, simulated\n", 1e3 * n->step_s);
}

/* ---- the rank that lacks most */

int ct_plan_job_lacks(const ct_plan_job_state *p, const ct_job_plan *n, double *need_p,
                      double *limit_p)
{
    ct_job_layout l = ct_job_layout_of(&p->search.space, &n->config);
    double most = -INFINITY;
    int rank = 0;

    *need_p = *limit_p = 0;
    for (int i = 0; i < n->config.n_stage; i++) {
        const ct_job_stage_plan *t = &n->stage[i];

        for (int j = 0; j < n->config.data; j++) {
            int g = ct_job_group_of(&l, t, i, j);
            double need = ct_job_plan_bytes(&t->group[g]);
            double limit = p->job.kind[t->kind.group[g].kind].memory;

            if ((limit == 0) || (need - limit <= most)) continue;
            most = need - limit;
            *need_p = need;
            *limit_p = limit;
            rank = ct_job_rank(&l, i, j, 0);
        }
    }
    return rank;
}

/* ---- JSON */

typedef struct rank_row {
    int stage;
    const ct_job_figures *f;
} rank_row;

static void add_step(const char *key, const ct_job_plan *n, bool is_there, ct_json_writer *w)
{
    ct_json_add_number(w, key, is_there ? n->step_s : (double)NAN);
}

static void add_ranks(const ct_plan_job_state *p, const ct_job_plan *n, ct_json_writer *w)
{
    ct_job_layout l = ct_job_layout_of(&p->search.space, &n->config);
    rank_row *row = calloc((size_t)p->job.n_rank, sizeof(*row));

    if (row == NULL) {
        w->to->failed = true;
        return;
    }
    for (int i = 0; i < n->config.n_stage; i++) {
        for (int j = 0; j < n->config.data; j++) {
            for (int q = 0; q < n->config.tensor; q++)
                row[ct_job_rank(&l, i, j, q)] =
                    (rank_row){ i, &n->stage[i].group[ct_job_group_of(&l, &n->stage[i], i, j)] };
        }
    }
    ct_json_begin_list(w, "ranks");
    for (int r = 0; r < p->job.n_rank; r++) {
        const ct_job_figures *f = row[r].f;
        const ct_rank_memory *m = &p->rank[r];

        ct_json_begin_object(w, NULL);
        ct_json_add_integer(w, "rank", r);
        ct_json_add_integer(w, "stage", row[r].stage);
        ct_json_add_integer(w, "memory_bytes", m->memory_bytes);
        ct_json_add_integer(w, "weight_bytes", m->weight_bytes);
        ct_json_add_integer(w, "kept_bytes", m->kept_bytes);
        ct_json_add_integer(w, "transient_bytes", m->transient_bytes);
        ct_json_begin_object(w, "memory");
        ct_memory_tiers_json(&m->tiers, w);
        ct_json_end(w);
        ct_json_add_number(w, "compute_s",
                           (double)n->config.micro_batches * (f->forward_s + f->backward_s));
        ct_json_end(w);
    }
    ct_json_end(w);
    free(row);
}

static void add_stage(const ct_plan_job_state *p, const ct_job_plan *n, int i, ct_json_writer *w)
{
    ct_job_layout l = ct_job_layout_of(&p->search.space, &n->config);
    const ct_job_stage_plan *t = &n->stage[i];

    ct_json_begin_object(w, NULL);
    ct_json_add_text(w, "first", name_of(p, t->first, false));
    ct_json_add_text(w, "last", name_of(p, t->end - 1, true));
    ct_json_begin_list(w, "ranks");
    for (int k = 0; k < l.data * l.tensor; k++)
        ct_json_add_integer(w, NULL, ct_job_rank(&l, i, k / l.tensor, k % l.tensor));
    ct_json_end(w);
    ct_json_add_integer(w, "tensor", l.tensor);
    ct_json_begin_list(w, "shares");
    for (int j = 0; j < l.data; j++) ct_json_add_integer(w, NULL, t->share[j]);
    ct_json_end(w);
    ct_json_add_integer(w, "in_flight", t->in_flight);
    ct_json_add_number(w, "forward_s", t->figures.forward_s);
    ct_json_add_number(w, "backward_s", t->figures.backward_s);
    ct_json_add_number(w, "again_s", t->figures.again_s);
    ct_json_add_number(w, "bubble", t->bubble);
    ct_json_begin_list(w, "again");
    for (int b = t->first; b < t->end; b++) {
        if (n->mode[b] != CT_CHAIN_START) continue;
        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "first", name_of(p, b, false));
        ct_json_add_text(w, "last", name_of(p, run_of_modes(n, b, t->end) - 1, true));
        ct_json_end(w);
    }
    ct_json_end(w);
    ct_json_end(w);
}

void ct_plan_job_json(const ct_plan_job_state *p, ct_text *out)
{
    ct_json_writer w = ct_json_into(out);
    const ct_job_search *s = &p->search;
    const ct_job_plan *n = &s->plan[0];

    ct_json_begin_object(&w, NULL);
    ct_json_add_number(&w, "step_s", n->step_s);
    add_step("data_parallel_step_s", &s->data, (s->data.config.n_stage > 0) && s->data.fits, &w);
    add_step("uniform_step_s", &s->uniform, s->uniform.config.n_stage > 0, &w);
    ct_json_add_integer(&w, "configurations", s->n_configuration);
    ct_json_add_number(&w, "search_s", s->search_s);
    ct_json_add_integer(&w, "tensor", n->config.tensor);
    ct_json_add_integer(&w, "micro_batches", n->config.micro_batches);
    ct_json_add_integer(&w, "global_batch", p->batch);
    ct_json_add_integer(&w, "zero", n->config.zero);
    add_ranks(p, n, &w);
    ct_json_add_integer(&w, "blocks", p->net.n_block);
    ct_json_add_integer(&w, "unlike", n_kind(&p->net.chain));
    ct_json_begin_list(&w, "stages");
    for (int i = 0; i < n->config.n_stage; i++) add_stage(p, n, i, &w);
    ct_json_end(&w);
    ct_json_add_text(&w, "parallel", p->file.text);
    ct_json_end(&w);
    ct_text_add(out, "\n");
}
