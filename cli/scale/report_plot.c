/* The plots of a study, as SVG files that its report shows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/scale/report.h"
#include "framework/base/file.h"
#include "framework/report/chart.h"

enum { MOST_CONFIG = 64, MOST_SERIES = MOST_CONFIG * (CT_N_KIND + 1) + 2, MOST_RANKS = 256 };

/* As in the tables: filled circle, circle, filled square, triangle. */
static const ct_mark mark[CT_N_KIND] = { CT_MARK_DISC, CT_MARK_CIRCLE, CT_MARK_SQUARE,
                                         CT_MARK_TRIANGLE };
static const int kind_colour[CT_N_KIND] = { 0, 5, 1, 2 };

/* A chart of a group over its ranks, and the memory that its series need. */
typedef struct plot {
    const ct_points *p;
    int group;
    ct_text title;
    ct_chart chart;
    ct_chart_series series[MOST_SERIES];
    ct_chart_point *point;
    int n_point;
    double tick[MOST_RANKS]; /* the ranks, upwards */
    int n_tick;
} plot;

static double speed_of(const ct_point *q)
{
    return q->images_per_s;
}

static double efficiency_of(const ct_point *q)
{
    return 100 * q->efficiency;
}

static double bound_of(const ct_point *q)
{
    return 100 * q->bound;
}

/* ---- series */

static bool is_of(const plot *s, const ct_point *q, const char *config)
{
    return (q->group == s->group) && !q->failed && (strcmp(q->config, config) == 0);
}

static void find_ranks(plot *s)
{
    for (int i = 0; i < s->p->n; i++) {
        double r = s->p->point[i].ranks;
        int k = 0;

        if ((s->p->point[i].group != s->group) || (s->n_tick == MOST_RANKS)) continue;
        while ((k < s->n_tick) && (s->tick[k] < r)) k++;
        if ((k < s->n_tick) && (s->tick[k] == r)) continue;
        memmove(s->tick + k + 1, s->tick + k, (size_t)(s->n_tick - k) * sizeof(s->tick[0]));
        s->tick[k] = r;
        s->n_tick += 1;
    }
}

/* NULL: there are as many as can be told apart. */
static ct_chart_series *next_series(plot *s)
{
    return (s->chart.n_series < MOST_SERIES) ? &s->series[s->chart.n_series++] : NULL;
}

/* The points of one kind, or, with CT_N_KIND, of those that ran here, which have one line. */
static void add_points(plot *s, const char *config, int kind, double (*value)(const ct_point *q),
                       bool bars, const ct_chart_series *as)
{
    int first = s->n_point;
    ct_chart_series *to;

    for (int i = 0; i < s->p->n; i++) {
        const ct_point *q = &s->p->point[i];
        bool mine = (kind == CT_N_KIND) ? (q->kind < CT_KIND_SIMULATED) : ((int)q->kind == kind);

        if (!mine || !is_of(s, q, config)) continue;
        s->point[s->n_point] = (ct_chart_point){ .x = q->ranks, .y = value(q) };
        if (bars && (q->kind < CT_KIND_SIMULATED)) {
            s->point[s->n_point].low = q->batch / q->p95_ms * 1e3;
            s->point[s->n_point].high = q->batch / q->p5_ms * 1e3;
        }
        s->n_point += 1;
    }
    to = (s->n_point > first) ? next_series(s) : NULL;
    if (to == NULL) return;
    *to = *as;
    to->point = s->point + first;
    to->n = s->n_point - first;
}

/* name: of a configuration, which has one entry in the key; NULL: the kinds have theirs. */
static void add_config(plot *s, const char *config, double (*value)(const ct_point *q), bool bars,
                       const char *name, int colour)
{
    bool by_kind = (name == NULL);
    int before = s->chart.n_series;

    add_points(s, config, CT_N_KIND, value, false,
               &(ct_chart_series){ .colour = by_kind ? kind_colour[0] : colour,
                                   .stroke = CT_STROKE_SOLID });
    for (int k = 0; k < CT_N_KIND; k++)
        add_points(s, config, k, value, bars,
                   &(ct_chart_series){ .name = by_kind ? ct_kind_str((ct_kind)k) : NULL,
                                       .colour = by_kind ? kind_colour[k] : colour,
                                       .mark = mark[k],
                                       .stroke = (k == CT_KIND_MODELLED)    ? CT_STROKE_DOTTED
                                                 : (k == CT_KIND_SIMULATED) ? CT_STROKE_SOLID
                                                                            : CT_STROKE_NONE });
    if (!by_kind && (s->chart.n_series > before)) s->series[s->chart.n_series - 1].name = name;
}

/* From the smallest to the largest number of ranks, where all would scale. */
static void add_ideal(plot *s, const char *name, double least, double most)
{
    ct_chart_series *to = next_series(s);
    ct_chart_point *at = s->point + s->n_point;

    if ((to == NULL) || (s->n_tick == 0)) return;
    at[0] = (ct_chart_point){ .x = s->tick[0], .y = least };
    at[1] = (ct_chart_point){ .x = s->tick[s->n_tick - 1], .y = most };
    s->n_point += 2;
    *to = (ct_chart_series){
        .name = name, .colour = CT_CHART_GREY, .stroke = CT_STROKE_DASHED, .point = at, .n = 2
    };
}

/* ---- the plots of a group */

static void throughput(plot *s, ct_text *out)
{
    const ct_point *base = NULL;
    char name[80];
    double each;

    for (int i = 0; (i < s->p->n) && (base == NULL); i++)
        if (is_of(s, &s->p->point[i], "default")) base = &s->p->point[i];
    if (base == NULL) return;
    each = base->images_per_s / base->ranks;
    snprintf(name, sizeof(name), "ideal, %.4g images/s a rank", each);
    s->chart.y = (ct_chart_axis){ .label = "images/s", .log = true };
    add_ideal(s, name, each * s->tick[0], each * s->tick[s->n_tick - 1]);
    add_config(s, "default", speed_of, true, NULL, 0);
    ct_chart_draw(&s->chart, out);
}

/* The end of the axis: some room above the ideal, or above what is better than that. */
static double most_efficiency(const plot *s)
{
    double most = 108.0;

    for (int i = 0; i < s->p->n; i++) {
        const ct_point *q = &s->p->point[i];

        if ((q->group == s->group) && isfinite(efficiency_of(q)))
            most = fmax(most, 1.04 * efficiency_of(q));
    }
    return most;
}

static void efficiency(plot *s, ct_text *out)
{
    int bound = -1;

    for (int i = 0; i < s->p->n; i++) {
        const ct_point *q = &s->p->point[i];

        if ((q->group == s->group) && isfinite(q->bound)) bound = (int)q->kind;
    }
    s->chart.y = (ct_chart_axis){ .label = "efficiency, %", .high = most_efficiency(s) };
    add_ideal(s, "ideal", 100, 100);
    if (bound >= 0)
        add_points(s, "default", bound, bound_of, false,
                   &(ct_chart_series){
                       .name = "bound by jitter", .colour = 4, .stroke = CT_STROKE_DOTTED });
    add_config(s, "default", efficiency_of, false, NULL, 0);
    ct_chart_draw(&s->chart, out);
}

static void ablations(plot *s, ct_text *out)
{
    const char *last = NULL;
    int n = 0;

    s->chart.y = (ct_chart_axis){ .label = "efficiency, %", .high = most_efficiency(s) };
    add_ideal(s, NULL, 100, 100);
    for (int i = 0; (i < s->p->n) && (n < MOST_CONFIG); i++) {
        const ct_point *q = &s->p->point[i];

        if ((q->group != s->group) || ((last != NULL) && (strcmp(last, q->config) == 0))) continue;
        last = q->config;
        add_config(s, last, efficiency_of, false, last, n++);
    }
    ct_chart_draw(&s->chart, out);
}

/* Stacked milliseconds of a step, a bar a point. */
static void parts(plot *s, ct_text *out)
{
    static const char *const part[] = { "compute", "waiting for data", "compression",
                                        "exposed communication" };
    const char **name = calloc((size_t)s->p->n, sizeof(*name));
    char(*text)[48] = calloc((size_t)s->p->n, sizeof(*text));
    double *value = calloc((size_t)s->p->n * 4, sizeof(*value));
    ct_bars bars = { .title = s->chart.title,
                     .subtitle = s->chart.subtitle,
                     .label = "ms a step",
                     .n_part = 4,
                     .bar = name,
                     .part = part,
                     .value = value };

    for (int i = 0; (name != NULL) && (text != NULL) && (value != NULL) && (i < s->p->n); i++) {
        const ct_point *q = &s->p->point[i];

        /* a twin of a simulated point would only stand beside it */
        if (!is_of(s, q, "default") ||
            ((q->kind == CT_KIND_MODELLED) && (ct_points_twin(s->p, q, CT_KIND_SIMULATED) >= 0)))
            continue;
        memcpy(value + 4 * bars.n_bar,
               (double[4]){ q->compute_ms, q->wait_ms, q->compress_ms, q->exposed_ms },
               4 * sizeof(*value));
        snprintf(text[bars.n_bar], sizeof(*text), "%d %s", q->ranks, ct_kind_str(q->kind));
        name[bars.n_bar] = text[bars.n_bar];
        bars.n_bar += 1;
    }
    if (bars.n_bar > 0) ct_bars_draw(&bars, out);
    out->failed |= (name == NULL) || (text == NULL) || (value == NULL);
    free(name);
    free(text);
    free(value);
}

/* ---- collectives: a line an algorithm, for the largest number of ranks of each kind */

static void add_algorithm(const ct_points *p, const ct_bench_point *like, const char *name, plot *s)
{
    ct_chart_series *to = next_series(s);
    int first = s->n_point, number = s->chart.n_series - 1;

    if (to == NULL) return;
    for (int i = 0; i < p->n_bench; i++) {
        const ct_bench_point *b = &p->bench[i];

        if ((b->ranks == like->ranks) && (strcmp(b->machine, like->machine) == 0) &&
            (b->kind == like->kind) && (strcmp(b->algorithm, name) == 0))
            s->point[s->n_point++] = (ct_chart_point){ .x = b->bytes, .y = b->busbw };
    }
    *to = (ct_chart_series){ .name = name,
                             .colour = (strcmp(name, "mpi") == 0) ? CT_CHART_GREY : number,
                             .mark = mark[like->kind],
                             .stroke = CT_STROKE_SOLID,
                             .point = s->point + first,
                             .n = s->n_point - first };
}

static void collectives(plot *s, ct_text *out)
{
    const ct_points *p = s->p;
    const ct_bench_point *best = &p->bench[0];

    for (int i = 0; i < p->n_bench; i++)
        if (p->bench[i].ranks > best->ranks) best = &p->bench[i];
    for (int i = 0; i < p->n_bench; i++) {
        const ct_bench_point *b = &p->bench[i];
        bool known = (b->ranks != best->ranks) || (strcmp(b->machine, best->machine) != 0);

        for (int k = 0; k < s->chart.n_series; k++)
            known |= (strcmp(s->series[k].name, b->algorithm) == 0);
        if (!known) add_algorithm(p, best, b->algorithm, s);
    }
    ct_text_add(&s->title, "Allreduce, %d ranks on %s, %s", best->ranks, best->machine,
                ct_kind_str(best->kind));
    s->chart.title = s->title.text;
    s->chart.x = (ct_chart_axis){ .label = "bytes", .log = true, .bytes = true };
    s->chart.y = (ct_chart_axis){ .label = "bus bandwidth, GB/s", .log = true };
    ct_chart_draw(&s->chart, out);
}

/* ---- drawing */

bool ct_report_has_plot(const ct_points *p, int group, const char *name)
{
    int n = 0;

    for (int i = 0; i < p->n; i++) {
        n += (p->point[i].group == group) && !p->point[i].failed &&
             (strcmp(p->point[i].config, "default") == 0);
    }
    if (strcmp(name, "ablations") == 0) return (n > 0) && ct_report_has_ablations(p, group);
    return n > 0;
}

/* plots/NAME.svg of what draw() makes of an empty plot. */
static ct_status draw_plot(const ct_study *study, const ct_points *p, int group, const char *title,
                           const char *name, void (*draw)(plot *s, ct_text *out))
{
    plot *s = calloc(1, sizeof(*s));
    ct_text svg = { 0 };
    char path[800];
    ct_status status = CT_OK;

    if (s != NULL) s->point = calloc((size_t)(3 * p->n + p->n_bench) + 4, sizeof(*s->point));
    if ((s == NULL) || (s->point == NULL)) {
        free(s);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the plots of %s", study->dir);
    }
    s->p = p;
    s->group = group;
    s->chart = (ct_chart){ .title = title, .series = s->series };
    if (group >= 0) {
        find_ranks(s);
        s->chart.subtitle = p->group[group].title;
        s->chart.x =
            (ct_chart_axis){ .label = "ranks", .log = true, .tick = s->tick, .n_tick = s->n_tick };
    }
    draw(s, &svg);
    ct_study_path(study, path, sizeof(path), "plots/%s.svg", name);
    if (svg.failed || s->title.failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for %s", path);
    if ((status == CT_OK) && (svg.length > 0)) status = ct_file_write(path, svg.text, svg.length);
    ct_text_destroy(&svg);
    ct_text_destroy(&s->title);
    free(s->point);
    free(s);
    return status;
}

static ct_status draw_group(const ct_study *study, const ct_points *p, int group)
{
    static const struct {
        const char *name, *title;
        void (*draw)(plot *s, ct_text *out);
    } kind[] = { { "throughput", "Throughput", throughput },
                 { "efficiency", "Efficiency", efficiency },
                 { "parts", "Where a step goes, by ranks", parts },
                 { "ablations", "Ways to run", ablations } };

    for (size_t k = 0; k < sizeof(kind) / sizeof(kind[0]); k++) {
        char name[240];

        if (!ct_report_has_plot(p, group, kind[k].name)) continue;
        snprintf(name, sizeof(name), "%s-%s", kind[k].name, p->group[group].slug);
        CT_TRY(draw_plot(study, p, group, kind[k].title, name, kind[k].draw));
    }
    return CT_OK;
}

ct_status ct_report_plots(const ct_study *study, const ct_points *p)
{
    for (int g = 0; g < p->n_group; g++) CT_TRY(draw_group(study, p, g));
    if (p->n_bench == 0) return CT_OK;
    return draw_plot(study, p, -1, NULL, "collectives", collectives);
}
