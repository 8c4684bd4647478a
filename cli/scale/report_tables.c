#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/scale/report.h"

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

void ct_report_group(const ct_points *p, int group, bool drawn, ct_text *t)
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
    for (size_t k = 0; drawn && (k < sizeof(plot) / sizeof(plot[0])); k++) {
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
