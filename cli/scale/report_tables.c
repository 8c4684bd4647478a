/* The tables of a study's report, and its points as CSV and JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/scale/report.h"
#include "framework/base/file.h"
#include "framework/base/sort.h"

const char *ct_report_mark(ct_kind kind)
{
    static const char *const mark[CT_N_KIND] = { "● measured", "○ emulated", "■ simulated",
                                                 "△ modelled" };
    return mark[kind];
}

void ct_report_number(ct_text *t, const char *format, double v)
{
    char cell[64];

    if (!isfinite(v)) {
        ct_text_add(t, " – |");
        return;
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(cell, sizeof(cell), format, v);
#pragma GCC diagnostic pop
    ct_text_add(t, " %s |", cell);
}

/* Milliseconds with three digits that say something. */
static void ms(ct_text *t, double v)
{
    ct_report_number(t, (v >= 100) ? "%.1f" : (v >= 1) ? "%.2f" : "%.3f", v);
}

bool ct_report_has_ablations(const ct_points *p, int group)
{
    for (int i = 0; i < p->n; i++) {
        if ((p->point[i].group == group) && (strcmp(p->point[i].config, "default") != 0))
            return true;
    }
    return false;
}

/* ---- the tables of a group */

/* Figures of a point as columns; those that no point has are left out, and named below. */
typedef struct column {
    const char *head, *format; /* NULL: milliseconds */
    double (*value)(const ct_point *q);
} column;

#define VALUE(_name, _expr)                                                                        \
    static double _name(const ct_point *q)                                                         \
    {                                                                                              \
        return (_expr);                                                                            \
    }
VALUE(get_threads, (q->threads > 0) ? q->threads : NAN)
VALUE(get_batch, q->batch)
VALUE(get_step, q->step_ms)
VALUE(get_p5, q->p5_ms)
VALUE(get_p95, q->p95_ms)
VALUE(get_samples, (q->kind == CT_KIND_MODELLED) ? NAN : q->n_sample)
VALUE(get_speed, q->images_per_s)
VALUE(get_speedup, q->speedup)
VALUE(get_efficiency, 100 * q->efficiency)
VALUE(get_bound, 100 * q->bound)
VALUE(get_compute, q->compute_ms)
VALUE(get_comm, q->comm_ms)
VALUE(get_exposed, q->exposed_ms)
VALUE(get_share, 100 * q->exposed_ms / q->step_ms)
VALUE(get_wait, q->wait_ms)
VALUE(get_read, q->read_ms)
VALUE(get_read_share, 100 * q->read_ms / q->step_ms)
VALUE(get_compress, q->compress_ms)
VALUE(get_bytes, q->bytes * 1e-6)
VALUE(get_imbalance, q->imbalance_ms)
VALUE(get_memory, q->memory * 1e-6)

static const column speed_table[] = {
    { "threads", "%.0f", get_threads },
    { "global batch", "%.0f", get_batch },
    { "ms/step", NULL, get_step },
    { "p5", NULL, get_p5 },
    { "p95", NULL, get_p95 },
    { "steps timed", "%.0f", get_samples },
    { "images/s", "%.5g", get_speed },
    { "speed-up", "%.2f", get_speedup },
    { "efficiency %", "%.2f", get_efficiency },
    { "jitter bound %", "%.2f", get_bound },
};
static const column cost_table[] = {
    { "compute ms", NULL, get_compute },
    { "communication ms", NULL, get_comm },
    { "exposed ms", NULL, get_exposed },
    { "exposed %", "%.1f", get_share },
    { "reading ms", NULL, get_read },
    { "reading % of the step", "%.1f", get_read_share },
    { "waiting for data ms", NULL, get_wait },
    { "compression ms", NULL, get_compress },
    { "MB sent a rank", "%.4g", get_bytes },
    { "slowest - fastest rank ms", NULL, get_imbalance },
    { "memory a rank MB", "%.0f", get_memory },
};
enum {
    N_SPEED = sizeof(speed_table) / sizeof(speed_table[0]),
    N_COST = sizeof(cost_table) / sizeof(cost_table[0])
};

static void table_row(const ct_point *q, const column *c, const bool *has, int n, ct_text *t)
{
    ct_text_add(t, "| %s | %s | %d | %d |", ct_report_mark(q->kind), q->config, q->nodes, q->ranks);
    for (int k = 0; k < n; k++) {
        double v = q->failed ? NAN : c[k].value(q);

        if (!has[k]) continue;
        if (c[k].format != NULL)
            ct_report_number(t, c[k].format, v);
        else
            ms(t, v);
    }
    if (q->failed)
        ct_text_add(t, " **failed** (%d), see below |", q->n_bad);
    else
        ct_text_add(t, " %s |", (c == cost_table) ? q->algorithm : "");
    ct_text_add(t, "\n");
}

static void table(const ct_points *p, int group, const column *c, int n, ct_text *t)
{
    bool has[16] = { false }, first = true;

    for (int i = 0; i < p->n; i++) {
        const ct_point *q = &p->point[i];

        for (int k = 0; k < n; k++)
            has[k] |= (q->group == group) && !q->failed && isfinite(c[k].value(q));
    }
    ct_text_add(t, "\n| kind | configuration | nodes | ranks |");
    for (int k = 0; k < n; k++) ct_text_add(t, has[k] ? " %s |" : "%.0s", c[k].head);
    ct_text_add(t, " %s |\n|---|---|---|---|---|", (c == cost_table) ? "algorithms" : "");
    for (int k = 0; k < n; k++) ct_text_add(t, has[k] ? "---|" : "");
    ct_text_add(t, "\n");
    for (int i = 0; i < p->n; i++) {
        if (p->point[i].group == group) table_row(&p->point[i], c, has, n, t);
    }
    for (int k = 0; k < n; k++) {
        if (has[k] || (c[k].value == get_bound)) continue;
        ct_text_add(t, "%s%s", first ? "\nNot reported by these runs: " : ", ", c[k].head);
        first = false;
    }
    ct_text_add(t, first ? "" : ".\n");
}

/* Whether an earlier configuration has the same base, which then was named. */
static bool base_named(const ct_points *p, int i)
{
    const ct_point *q = &p->point[i];

    for (int k = 0; k < i; k++) {
        const ct_point *o = &p->point[k];

        if ((o->group == q->group) && !o->failed && (o->kind == q->kind) &&
            (o->ranks == q->ranks) && (o->nodes == q->nodes) &&
            (fabs(o->images_per_s - q->images_per_s) <= 1e-4 * q->images_per_s) &&
            (ct_points_base(p, o) == k))
            return true;
    }
    return false;
}

static void name_bases(const ct_points *p, int group, ct_text *t)
{
    for (int i = 0; i < p->n; i++) {
        const ct_point *q = &p->point[i];
        int n = 0;

        if ((q->group != group) || q->failed || (ct_points_base(p, q) != i) || base_named(p, i))
            continue;
        for (int k = i + 1; k < p->n; k++)
            n += (p->point[k].group == group) && (p->point[k].kind == q->kind) &&
                 !p->point[k].failed && (ct_points_base(p, &p->point[k]) == k) && base_named(p, k);
        ct_text_add(
            t, "* base of *%s*%s, %s: %d rank%s on %d node%s, **%.4g images/s** (%.4g a rank)%s\n",
            q->config, (n > 0) ? " and of all that have no other here" : "", ct_kind_str(q->kind),
            q->ranks, (q->ranks == 1) ? "" : "s", q->nodes, (q->nodes == 1) ? "" : "s",
            q->images_per_s, q->images_per_s / q->ranks,
            (q->ranks == 1) ? "" : "; one rank was not run, so speed-ups count from there");
    }
}

/* Efficiency of every configuration side by side. */
static void ablation_table(const ct_points *p, int group, ct_text *t)
{
    const char *config[64];
    int n = 0;

    for (int i = 0; i < p->n; i++) {
        if ((p->point[i].group != group) ||
            ((n > 0) && (strcmp(config[n - 1], p->point[i].config) == 0)))
            continue;
        if (n < 64) config[n++] = p->point[i].config;
    }
    ct_text_add(t, "\nEfficiency by configuration:\n\n| kind | ranks |");
    for (int c = 0; c < n; c++) ct_text_add(t, " %s |", config[c]);
    ct_text_add(t, "\n|---|---|");
    for (int c = 0; c < n; c++) ct_text_add(t, "---|");
    ct_text_add(t, "\n");
    for (int i = 0; i < p->n; i++) {
        const ct_point *q = &p->point[i];

        if ((q->group != group) || (strcmp(q->config, config[0]) != 0)) continue;
        ct_text_add(t, "| %s | %d |", ct_report_mark(q->kind), q->ranks);
        for (int c = 0; c < n; c++) {
            ct_point same = *q;
            int k;

            snprintf(same.config, sizeof(same.config), "%s", config[c]);
            k = ct_points_twin(p, &same, q->kind);
            ct_report_number(t, "%.2f %%", (k >= 0) ? 100 * p->point[k].efficiency : NAN);
        }
        ct_text_add(t, "\n");
    }
}

void ct_report_group(const ct_points *p, int group, ct_text *t)
{
    static const char *const plot[] = { "throughput", "efficiency", "parts", "ablations" };
    const ct_point_group *g = &p->group[group];
    bool bound = false;

    for (int i = 0; i < p->n; i++)
        bound |= (p->point[i].group == group) && isfinite(p->point[i].bound);
    ct_text_add(t, "\n### %s\n\n", g->title);
    name_bases(p, group, t);
    table(p, group, speed_table, N_SPEED, t);
    ct_text_add(t, "\nWhere a step goes:\n");
    table(p, group, cost_table, N_COST, t);
    if (bound)
        ct_text_add(
            t, "\nJitter bound: E[mean step] / E[slowest of the ranks], from the profile's own "
               "samples: no synchronous step can be more efficient.\n");
    if (ct_report_has_ablations(p, group)) ablation_table(p, group, t);
    for (size_t k = 0; k < sizeof(plot) / sizeof(plot[0]); k++) {
        if (ct_report_has_plot(p, group, plot[k]))
            ct_text_add(t, "\n![%s of %s](plots/%s-%s.svg)\n", plot[k], g->title, plot[k], g->slug);
    }
}

/* ---- what went wrong */

void ct_report_failures(const ct_points *p, ct_text *t)
{
    int n = 0;

    ct_text_add(t, "\n## Failures, outliers, runs left out\n\n");
    for (size_t i = 0; i < json_array_size(p->runs); i++) {
        const json_t *run = json_array_get(p->runs, i);

        if (json_is_object(json_object_get(run, "result"))) continue;
        ct_text_add(t, "* failed: `%s`: %s\n  command: `%s`\n", ct_json_text(run, "file", "?"),
                    ct_json_text(run, "why", "?"), ct_json_text(run, "command", "?"));
        n += 1;
    }
    for (int i = 0; i < p->n; i++) {
        const ct_point *q = &p->point[i];

        if (q->failed || (q->most_ms <= 2 * q->step_ms)) continue;
        ct_text_add(t,
                    "* outlier, kept: %s, %s, %d ranks, %s: slowest step %.4g ms, median %.4g ms\n",
                    p->group[q->group].slug, q->config, q->ranks, ct_kind_str(q->kind), q->most_ms,
                    q->step_ms);
        n += 1;
    }
    for (size_t i = 0; i < json_array_size(p->superseded); i++, n++)
        ct_text_add(t, "* left out, a later run has its place: `%s`\n",
                    json_string_value(json_array_get(p->superseded, i)));
    for (size_t i = 0; i < json_array_size(p->broken); i++, n++)
        ct_text_add(t, "* cannot be read: `runs/%s`\n",
                    json_string_value(json_array_get(p->broken, i)));
    if (n == 0) ct_text_add(t, "None.\n");
}

/* ---- collectives */

static bool bench_starts(const ct_points *p, int i)
{
    const ct_bench_point *b = &p->bench[i];

    for (int k = 0; k < i; k++) {
        const ct_bench_point *o = &p->bench[k];

        if ((o->ranks == b->ranks) && (o->nodes == b->nodes) && (o->kind == b->kind) &&
            (strcmp(o->machine, b->machine) == 0))
            return false;
    }
    return true;
}

static bool same_bench(const ct_bench_point *a, const ct_bench_point *b)
{
    return (a->ranks == b->ranks) && (a->nodes == b->nodes) && (a->kind == b->kind) &&
           (strcmp(a->machine, b->machine) == 0);
}

static void bench_table(const ct_points *p, int first, ct_text *t)
{
    const ct_bench_point *b = &p->bench[first];
    const char *name[16];
    double size = -1;
    int n = 0;

    for (int i = first; i < p->n_bench; i++) {
        int k = 0;

        if (!same_bench(&p->bench[i], b)) continue;
        while ((k < n) && (strcmp(name[k], p->bench[i].algorithm) != 0)) k++;
        if ((k == n) && (n < 16)) name[n++] = p->bench[i].algorithm;
    }
    ct_text_add(t,
                "\n%s, %d ranks on %d node%s, %s; microseconds, in brackets the bus bandwidth in "
                "GB/s:\n\n| bytes |",
                b->machine, b->ranks, b->nodes, (b->nodes == 1) ? "" : "s",
                ct_report_mark(b->kind));
    for (int k = 0; k < n; k++) ct_text_add(t, " %s |", name[k]);
    ct_text_add(t, "\n|---|");
    for (int k = 0; k < n; k++) ct_text_add(t, "---|");
    ct_text_add(t, "\n");
    for (;;) {
        double next = INFINITY;

        for (int i = first; i < p->n_bench; i++) {
            if (same_bench(&p->bench[i], b) && (p->bench[i].bytes > size))
                next = fmin(next, p->bench[i].bytes);
        }
        if (!isfinite(next)) return;
        size = next;
        ct_text_add(t, "| %.0f |", size);
        for (int k = 0; k < n; k++) {
            const ct_bench_point *at = NULL;

            for (int i = first; i < p->n_bench; i++) {
                if (same_bench(&p->bench[i], b) && (p->bench[i].bytes == size) &&
                    (strcmp(p->bench[i].algorithm, name[k]) == 0))
                    at = &p->bench[i];
            }
            if (at != NULL)
                ct_text_add(t, " %.4g (%.3g) |", at->us, at->busbw);
            else
                ct_text_add(t, " – |");
        }
        ct_text_add(t, "\n");
    }
}

/* What the cost model says of the same collectives, where the program printed it. */
static void bench_error(const ct_points *p, ct_kind kind, ct_text *t)
{
    double error[1024];
    int n = 0;

    for (int i = 0; (i < p->n_bench) && (n < 1024); i++) {
        const ct_bench_point *b = &p->bench[i];

        if ((b->kind == kind) && isfinite(b->predicted_us))
            error[n++] = fabs(b->predicted_us / b->us - 1);
    }
    if (n == 0) return;
    ct_sort(error, n);
    ct_text_add(t,
                "\n**The cost model against these %s times: median error %.1f %%, at most %.1f %%, "
                "over %d points.** It is what chooses algorithms and makes modelled points.\n",
                ct_kind_str(kind), 50 * (error[n / 2] + error[(n - 1) / 2]), 100 * error[n - 1], n);
}

void ct_report_bench(const ct_points *p, ct_text *t)
{
    ct_text_add(t, "\n## Collectives\n");
    if (p->n_bench == 0) {
        ct_text_add(t, "\nNot measured in this study.\n");
        return;
    }
    ct_text_add(
        t, "\nAllreduce of floats on the same allocation (`cortado bench comm`): sums checked "
           "while timed; `mpi` is the blocking MPI_Allreduce in place. Bus bandwidth = bytes / "
           "time x 2 (n-1)/n.\n");
    for (int i = 0; i < p->n_bench; i++) {
        if (bench_starts(p, i)) bench_table(p, i, t);
    }
    for (int k = 0; k < CT_N_KIND; k++) bench_error(p, (ct_kind)k, t);
    ct_text_add(t, "\n![bus bandwidth by size](plots/collectives.svg)\n");
}

/* ---- the model against the simulation */

static const char model_header[] =
    "\n## The model against the simulation\n\nSteps of the same points, both ways. A modelled "
    "point "
    "without a simulated twin is an extrapolation by this model.\n\n| workload | configuration | "
    "nodes | simulated ms | modelled ms | error | of which exposed: simulated ms | modelled ms "
    "|\n|---|---|---|---|---|---|---|---|\n";

void ct_report_model_error(const ct_points *p, ct_text *t)
{
    double error[1024];
    int n = 0, alone = 0;

    for (int i = 0; i < p->n; i++) {
        const ct_point *q = &p->point[i], *s;
        int twin = ct_points_twin(p, q, CT_KIND_SIMULATED);

        if ((q->kind != CT_KIND_MODELLED) || q->failed) continue;
        alone += (twin < 0);
        /* one rank alone sends nothing: there is nothing to get wrong */
        if ((twin < 0) || (q->ranks == 1) || (n == 1024)) continue;
        if (n == 0) ct_text_add(t, "%s", model_header);
        s = &p->point[twin];
        error[n] = q->step_ms / s->step_ms - 1;
        ct_text_add(t, "| %s | %s | %d | %.6g | %.6g | %+.2f %% | %.4g | %.4g |\n",
                    p->group[q->group].slug, q->config, q->nodes, s->step_ms, q->step_ms,
                    100 * error[n], s->exposed_ms, q->exposed_ms);
        error[n] = fabs(error[n]);
        n += 1;
    }
    if (n > 0) {
        ct_sort(error, n);
        ct_text_add(
            t,
            "\n**Error of the model over %d points of more than one rank: median %.2f %%, at "
            "most %.2f %%.** %d modelled points have no simulated twin.\n",
            n, 50 * (error[n / 2] + error[(n - 1) / 2]), 100 * error[n - 1], alone);
    } else if (alone > 0) {
        ct_text_add(t,
                    "\n## The model against the simulation\n\nNo point was both simulated and "
                    "modelled: the error of the %d modelled points is not known.\n",
                    alone);
    }
}

static const char header[] =
    "net,machine,mode,config,kind,nodes,ranks,threads,global_batch,step_ms,p5_ms,p95_ms,least_ms,"
    "most_ms,samples,runs,failed_runs,images_per_s,speedup,efficiency,compute_ms,comm_ms,"
    "exposed_ms,exposed_share,wait_data_ms,compress_ms,imbalance_ms,bytes_sent,memory_bytes,"
    "jitter_bound,algorithm,jitter_seed,images_per_s_alone,wall_s,read_ms\n";

/* ---- points.csv and points.json */

static void text_cell(ct_text *t, const char *s)
{
    ct_text_add(t, "\"");
    for (; *s != '\0'; s++) {
        if (*s == '"') ct_text_add(t, "\"");
        ct_text_add_bytes(t, s, 1);
    }
    ct_text_add(t, "\",");
}

static void number_cell(ct_text *t, double v)
{
    if (isfinite(v)) ct_text_add(t, "%.9g", v);
    ct_text_add(t, ",");
}

static void csv_row(const ct_points *p, const ct_point *q, ct_text *t)
{
    const ct_point_group *g = &p->group[q->group];
    const double v[] = { q->step_ms,  q->p5_ms,       q->p95_ms,
                         q->least_ms, q->most_ms,     q->n_sample,
                         q->n_run,    q->n_bad,       q->images_per_s,
                         q->speedup,  q->efficiency,  q->compute_ms,
                         q->comm_ms,  q->exposed_ms,  q->exposed_ms / q->step_ms,
                         q->wait_ms,  q->compress_ms, q->imbalance_ms,
                         q->bytes,    q->memory,      q->bound };

    text_cell(t, g->net);
    text_cell(t, g->machine);
    text_cell(t, g->mode);
    text_cell(t, q->config);
    text_cell(t, ct_kind_str(q->kind));
    ct_text_add(t, "%d,%d,%d,%.0f,", q->nodes, q->ranks, q->threads, q->batch);
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
        number_cell(t, (q->failed && ((i < 5) || (i > 7))) ? NAN : v[i]);
    text_cell(t, q->algorithm);
    number_cell(t, ct_json_number(q->define, "jitter_seed", NAN));
    number_cell(t, (g->speed > 0) ? g->speed : NAN);
    if (isfinite(q->wall_s)) ct_text_add(t, "%.3f", q->wall_s);
    ct_text_add(t, ",");
    if (isfinite(q->read_ms)) ct_text_add(t, "%.9g", q->read_ms);
    ct_text_add(t, "\n");
}

/* The points as JSON: the definition, and the figures under the names of the CSV. */
static void set(json_t *o, const char *name, double v)
{
    json_object_set_new(o, name, isfinite(v) ? json_real(v) : json_null());
}

static json_t *json_point(const ct_point *q)
{
    json_t *o = json_object();

    json_object_set(o, "define", (json_t *)(uintptr_t)q->define);
    json_object_set_new(o, "kind", json_string(ct_kind_str(q->kind)));
    json_object_set_new(o, "failed", json_boolean(q->failed));
    json_object_set_new(o, "runs", json_integer(q->n_run));
    json_object_set_new(o, "failed_runs", json_integer(q->n_bad));
    if (q->failed) return o;
    json_object_set_new(o, "samples", json_integer(q->n_sample));
    set(o, "global_batch", q->batch);
    set(o, "step_ms", q->step_ms);
    set(o, "p5_ms", q->p5_ms);
    set(o, "p95_ms", q->p95_ms);
    set(o, "images_per_s", q->images_per_s);
    set(o, "speedup", q->speedup);
    set(o, "efficiency", q->efficiency);
    set(o, "compute_ms", q->compute_ms);
    set(o, "comm_ms", q->comm_ms);
    set(o, "exposed_ms", q->exposed_ms);
    set(o, "wait_data_ms", q->wait_ms);
    set(o, "read_ms", q->read_ms);
    set(o, "compress_ms", q->compress_ms);
    set(o, "imbalance_ms", q->imbalance_ms);
    set(o, "bytes_sent", q->bytes);
    set(o, "memory_bytes", q->memory);
    set(o, "jitter_bound", q->bound);
    json_object_set_new(o, "algorithm", json_string(q->algorithm));
    return o;
}

static json_t *json_bench(const ct_bench_point *b)
{
    json_t *o = json_object();

    json_object_set_new(o, "kind", json_string(ct_kind_str(b->kind)));
    json_object_set_new(o, "machine", json_string(b->machine));
    json_object_set_new(o, "algorithm", json_string(b->algorithm));
    json_object_set_new(o, "nodes", json_integer(b->nodes));
    json_object_set_new(o, "ranks", json_integer(b->ranks));
    set(o, "bytes", b->bytes);
    set(o, "us", b->us);
    set(o, "algbw_gbs", b->algbw);
    set(o, "busbw_gbs", b->busbw);
    return o;
}

ct_status ct_report_points(const ct_study *study, const ct_points *p)
{
    json_t *all = json_object(), *points = json_array(), *bench = json_array();
    ct_text csv = { 0 };
    char path[800];
    ct_status status;

    ct_text_add(&csv, "%s", header);
    for (int i = 0; i < p->n; i++) {
        csv_row(p, &p->point[i], &csv);
        json_array_append_new(points, json_point(&p->point[i]));
    }
    for (int i = 0; i < p->n_bench; i++) json_array_append_new(bench, json_bench(&p->bench[i]));
    json_object_set_new(all, "points", points);
    json_object_set_new(all, "collectives", bench);
    ct_study_path(study, path, sizeof(path), "points.json");
    status = ct_json_write(path, all);
    json_decref(all);
    ct_study_path(study, path, sizeof(path), "points.csv");
    if (status == CT_OK)
        status = csv.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for %s", path)
                            : ct_file_write(path, csv.text, csv.length);
    ct_text_destroy(&csv);
    return status;
}
