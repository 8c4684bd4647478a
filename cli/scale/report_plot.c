/* The plots: one gnuplot script each, with its data inside, drawn as SVG and PNG. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/scale/report.h"
#include "cli/scale/spawn.h"

/* Colours that differ for everyone (Okabe and Ito). */
static const char *const colour[] = { "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7",
                                      "#56B4E9", "#000000", "#8C6D1F", "#7A3E9D", "#888888" };
enum { N_COLOUR = sizeof(colour) / sizeof(colour[0]) };

/* Filled circle, circle, filled square, triangle: as in the tables. */
static const int mark[CT_N_KIND] = { 7, 6, 5, 8 };
static const char *const kind_colour[CT_N_KIND] = { "#0072B2", "#56B4E9", "#D55E00", "#009E73" };

static const char head[] =
    "set border 3 lw 1.2 lc rgb '#444444'\nset grid xtics ytics lt 1 lw 0.7 lc rgb '#d8d8d8'\n"
    "set tics nomirror out scale 0.6\nset style fill solid 0.9 border lc rgb 'white'\n";

/* ---- text */

/* In single quotes, with what gnuplot's enhanced text would eat taken away. */
static void quote(ct_text *t, const char *s)
{
    ct_text_add(t, "'");
    for (; *s != '\0'; s++) {
        if (strchr("_^@&{}~", *s) != NULL) ct_text_add(t, "\\");
        if (*s == '\'') ct_text_add(t, "'");
        ct_text_add_bytes(t, s, 1);
    }
    ct_text_add(t, "'");
}

static void title(ct_text *t, const char *what, const ct_point_group *g)
{
    /* two lines: what a workload is called is long */
    ct_text_add(t, "set title \"%s\\n{/*0.8 \" . ", what);
    quote(t, g->title);
    ct_text_add(t, " . '}'\n");
}

/* Ticks where the points are; where they are many, only as many as can be read. */
static void rank_tics(const ct_points *p, int group, ct_text *t)
{
    int list[256] = { 1 }, n = 0, every;

    for (int i = 0; i < p->n; i++) {
        int r = p->point[i].ranks, k = 0;

        if ((p->point[i].group != group) || (n == 256)) continue;
        while ((k < n) && (list[k] < r)) k++;
        if ((k < n) && (list[k] == r)) continue;
        memmove(list + k + 1, list + k, (size_t)(n - k) * sizeof(*list));
        list[k] = r;
        n += 1;
    }
    every = 1 + n / 16;
    ct_text_add(t, "set logscale x 2\nset xtics (");
    for (int i = 0, first = 1; i < n; i += every, first = 0)
        ct_text_add(t, "%s'%d' %d", first ? "" : ", ", list[i], list[i]);
    ct_text_add(t, ") rotate by %d\nset xrange [%g:%g]\nset xlabel 'ranks'\n", (n > 12) ? -45 : 0,
                list[0] / 1.25, list[(n > 0) ? n - 1 : 0] * 1.25);
}

static bool has_kind(const ct_points *p, int group, const char *config, int kind)
{
    for (int i = 0; i < p->n; i++) {
        const ct_point *q = &p->point[i];

        if ((q->group == group) && ((int)q->kind == kind) && !q->failed &&
            (strcmp(q->config, config) == 0))
            return true;
    }
    return false;
}

/* The data blocks of a configuration: one a kind, c<c>k<kind>, for the points, and one for the line
 * through measured and emulated points, c<c>k4. Ranks, images/s, its range, efficiency, bound. */
enum { LINE = CT_N_KIND };

static void blocks(const ct_points *p, int group, const char *config, int c, ct_text *t)
{
    for (int kind = 0; kind <= LINE; kind++) {
        ct_text_add(t, "$c%dk%d << EOD\n", c, kind);
        for (int i = 0; i < p->n; i++) {
            const ct_point *q = &p->point[i];
            bool mine = (kind == LINE) ? (q->kind < CT_KIND_SIMULATED) : ((int)q->kind == kind);

            if ((q->group != group) || !mine || q->failed || (strcmp(q->config, config) != 0))
                continue;
            ct_text_add(t, "%d %.9g %.9g %.9g %.9g %.9g\n", q->ranks, q->images_per_s,
                        q->batch / q->p95_ms * 1e3, q->batch / q->p5_ms * 1e3, 100 * q->efficiency,
                        100 * q->bound);
        }
        ct_text_add(t, "EOD\n");
    }
}

/* Lines and points of a configuration; column: what is drawn over the ranks. */
static void curves(const ct_points *p, int group, const char *config, int c, int column,
                   const char *const *kind_rgb, const char *name, ct_text *t)
{
    if (has_kind(p, group, config, CT_KIND_MEASURED) ||
        has_kind(p, group, config, CT_KIND_EMULATED))
        ct_text_add(t, ", \\\n  $c%dk%d using 1:%d with lines lw 1.4 lc rgb '%s' notitle", c, LINE,
                    column, kind_rgb[0]);
    for (int k = 0; k < CT_N_KIND; k++) {
        bool line = (k >= CT_KIND_SIMULATED);

        if (!has_kind(p, group, config, k)) continue;
        ct_text_add(t, ", \\\n  $c%dk%d using 1:%d with %s pt %d ps 1.1 lw 1.4 %s lc rgb '%s' ", c,
                    k, column, line ? "linespoints" : "points", mark[k],
                    (k == CT_KIND_MODELLED) ? "dt 3" : "", kind_rgb[k]);
        if ((name == NULL) || (name[0] != '\0')) {
            ct_text_add(t, "title ");
            quote(t, (name != NULL) ? name : ct_kind_str((ct_kind)k));
        } else {
            ct_text_add(t, "notitle");
        }
        if (name != NULL) name = ""; /* a configuration has one entry in the key */
    }
}

/* ---- the plots of a group */

static void throughput(const ct_points *p, int group, ct_text *t)
{
    const ct_point *base = NULL;

    for (int i = 0; (i < p->n) && (base == NULL); i++) {
        if ((p->point[i].group == group) && (strcmp(p->point[i].config, "default") == 0) &&
            !p->point[i].failed)
            base = &p->point[i];
    }
    if (base == NULL) return;
    blocks(p, group, "default", 0, t);
    title(t, "Throughput", &p->group[group]);
    rank_tics(p, group, t);
    ct_text_add(
        t,
        "set logscale y 10\nset ylabel 'images/s'\nset key top left reverse Left\nplot "
        "%.9g*x with lines lw 1.2 dt 2 lc rgb '#888888' title 'ideal, %.4g images/s a rank'",
        base->images_per_s / base->ranks, base->images_per_s / base->ranks);
    for (int k = 0; k < CT_KIND_SIMULATED; k++) {
        if (has_kind(p, group, "default", k))
            ct_text_add(t,
                        ", \\\n  $c0k%d using 1:2:3:4 with yerrorbars pt %d ps 1.1 lw 1 lc rgb "
                        "'%s' notitle",
                        k, mark[k], kind_colour[k]);
    }
    curves(p, group, "default", 0, 2, kind_colour, NULL, t);
    ct_text_add(t, "\n");
}

static void efficiency(const ct_points *p, int group, ct_text *t)
{
    int bound = -1;

    blocks(p, group, "default", 0, t);
    for (int i = 0; i < p->n; i++) {
        if ((p->point[i].group == group) && isfinite(p->point[i].bound))
            bound = (int)p->point[i].kind;
    }
    title(t, "Efficiency", &p->group[group]);
    rank_tics(p, group, t);
    ct_text_add(
        t, "set ylabel 'efficiency, %%'\nset yrange [0:108]\nset key bottom left reverse Left\n"
           "plot 100 with lines lw 1.2 dt 2 lc rgb '#888888' title 'ideal'");
    if (bound >= 0)
        ct_text_add(t,
                    ", \\\n  $c0k%d using 1:6 with lines lw 1.4 dt 4 lc rgb '#CC79A7' title "
                    "'bound by jitter'",
                    bound);
    curves(p, group, "default", 0, 5, kind_colour, NULL, t);
    ct_text_add(t, "\n");
}

/* Stacked milliseconds of a step, a bar a point. */
static void parts(const ct_points *p, int group, ct_text *t)
{
    static const char letter[CT_N_KIND][12] = { "measured", "emulated", "simulated", "modelled" };
    int n = 0;

    ct_text_add(t, "$d << EOD\n");
    for (int i = 0; i < p->n; i++) {
        const ct_point *q = &p->point[i];

        if ((q->group != group) || q->failed || (strcmp(q->config, "default") != 0)) continue;
        /* a twin of a simulated point would only stand beside it */
        if ((q->kind == CT_KIND_MODELLED) && (ct_points_twin(p, q, CT_KIND_SIMULATED) >= 0))
            continue;
        ct_text_add(t, "\"%d\\n%s\" %.9g %.9g %.9g %.9g\n", q->ranks, letter[q->kind],
                    q->compute_ms, isfinite(q->wait_ms) ? q->wait_ms : 0,
                    isfinite(q->compress_ms) ? q->compress_ms : 0,
                    isfinite(q->exposed_ms) ? q->exposed_ms : 0);
        n += 1;
    }
    ct_text_add(t, "EOD\n");
    title(t, "Where a step goes, by ranks", &p->group[group]);
    ct_text_add(t,
                "set style data histogram\nset style histogram rowstacked\nset boxwidth 0.7\n"
                "set ylabel 'ms a step'\nset yrange [0:*]\nset xtics rotate by %d font ',10'\n"
                "set grid noxtics\nset key tmargin center horizontal reverse Left\n"
                "plot $d using 2:xtic(1) title 'compute' lc rgb '#0072B2', \\\n"
                "  '' using 3 title 'waiting for data' lc rgb '#E69F00', \\\n"
                "  '' using 4 title 'compression' lc rgb '#009E73', \\\n"
                "  '' using 5 title 'exposed communication' lc rgb '#D55E00'\n",
                (n > 10) ? -45 : 0);
}

static void ablations(const ct_points *p, int group, ct_text *t)
{
    const char *config[64];
    int n = 0;

    for (int i = 0; i < p->n; i++) {
        const ct_point *q = &p->point[i];

        if ((q->group != group) || ((n > 0) && (strcmp(config[n - 1], q->config) == 0))) continue;
        if (n < 64) config[n++] = q->config;
    }
    for (int c = 0; c < n; c++) blocks(p, group, config[c], c, t);
    title(t, "Ways to run", &p->group[group]);
    rank_tics(p, group, t);
    ct_text_add(
        t, "set ylabel 'efficiency, %%'\nset yrange [0:108]\nset key tmargin center horizontal "
           "reverse Left\nplot 100 with lines lw 1.2 dt 2 lc rgb '#888888' notitle");
    for (int c = 0; c < n; c++) {
        const char *rgb = colour[c % N_COLOUR], *const same[CT_N_KIND] = { rgb, rgb, rgb, rgb };

        curves(p, group, config[c], c, 5, same, config[c], t);
    }
    ct_text_add(t, "\n");
}

/* ---- collectives: a line an algorithm, for the largest number of ranks of each kind */

static void collectives(const ct_points *p, ct_text *t)
{
    const ct_bench_point *best = NULL;
    const char *name[16];
    char text[200];
    int n = 0;

    for (int i = 0; i < p->n_bench; i++) {
        if ((best == NULL) || (p->bench[i].ranks > best->ranks)) best = &p->bench[i];
    }
    for (int i = 0; i < p->n_bench; i++) {
        const ct_bench_point *b = &p->bench[i];
        int k = 0;

        if ((b->ranks != best->ranks) || (strcmp(b->machine, best->machine) != 0)) continue;
        while ((k < n) && (strcmp(name[k], b->algorithm) != 0)) k++;
        if ((k == n) && (n < 16)) name[n++] = b->algorithm;
    }
    for (int k = 0; k < n; k++) {
        ct_text_add(t, "$a%d << EOD\n", k);
        for (int i = 0; i < p->n_bench; i++) {
            const ct_bench_point *b = &p->bench[i];

            if ((b->ranks == best->ranks) && (strcmp(b->machine, best->machine) == 0) &&
                (b->kind == best->kind) && (strcmp(b->algorithm, name[k]) == 0))
                ct_text_add(t, "%.9g %.9g\n", b->bytes, b->busbw);
        }
        ct_text_add(t, "EOD\n");
    }
    snprintf(text, sizeof(text), "Allreduce, %d ranks on %s, %s", best->ranks, best->machine,
             ct_kind_str(best->kind));
    ct_text_add(t, "set title ");
    quote(t, text);
    ct_text_add(
        t,
        " font ',13'\nset logscale x 2\nset logscale y 10\nset xtics ('8' 8, '1K' 1024, '4K' 4096, "
        "'16K' 16384, '64K' 65536, '256K' 262144, '1M' 1048576, '4M' 4194304, '16M' 16777216, "
        "'64M' 67108864, '256M' 268435456)\nset xlabel 'bytes'\nset ylabel 'bus bandwidth, GB/s'\n"
        "set key bottom right\nplot ");
    for (int k = 0; k < n; k++) {
        ct_text_add(t, "%s$a%d with linespoints pt %d ps 0.9 lw 1.8 lc rgb '%s' title ",
                    (k > 0) ? ", \\\n  " : "", k, mark[best->kind],
                    (strcmp(name[k], "mpi") == 0) ? "#888888" : colour[k % N_COLOUR]);
        quote(t, name[k]);
    }
    ct_text_add(t, "\n");
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

static ct_status nothing(void *ctx, int i)
{
    (void)ctx;
    (void)i;
    return CT_OK;
}

static ct_status draw(const ct_study *study, const char *name, const ct_text *body, bool *drawn)
{
    ct_text script = { 0 };
    char path[800], base[800], log[800];
    ct_child c = { .limit_s = 60 }, *list[] = { &c };
    ct_status status;

    ct_study_path(study, path, sizeof(path), "plots/%s.gp", name);
    ct_study_path(study, base, sizeof(base), "plots/%s", name);
    ct_study_path(study, log, sizeof(log), "logs/gnuplot.log");
    ct_text_add(&script,
                "# gnuplot %s.gp\nset terminal svg size 860,540 font 'sans,12' background 'white'\n"
                "set output '%s.svg'\n%s%s",
                name, base, head, (body->text != NULL) ? body->text : "");
    ct_text_add(&script,
                "set terminal pngcairo size 1290,810 fontscale 1.5 linewidth 1.5 pointscale 1.5 "
                "font 'sans,12' background 'white'\nset output "
                "'%s.png'\nreplot\nunset output\n",
                base);
    status = (script.failed || body->failed) ? CT_FAIL(CT_ERR_NOMEM, "no memory for %s", path)
                                             : ct_file_write(path, script.text, script.length);
    ct_text_destroy(&script);
    if ((status != CT_OK) || !*drawn) return status;
    c.log = strdup(log);
    ct_argv_add(&c.command, "gnuplot");
    ct_argv_add(&c.command, "%s", path);
    status = ct_children_run(list, 1, 1, 0, NULL, nothing, NULL);
    if ((status == CT_OK) && (c.exit_code == 127)) {
        CT_WARN("no gnuplot: the report has no plots; their scripts lie in %s/plots", study->dir);
        *drawn = false;
    } else if ((status == CT_OK) && (c.exit_code != 0)) {
        status = CT_FAIL(CT_ERR_IO, "gnuplot failed on %s, see %s", path, log);
    }
    ct_child_destroy(&c);
    return status;
}

static ct_status draw_group(const ct_study *study, const ct_points *p, int group, bool *drawn)
{
    static const struct {
        const char *name;
        void (*write)(const ct_points *p, int group, ct_text *t);
    } plot[] = { { "throughput", throughput },
                 { "efficiency", efficiency },
                 { "parts", parts },
                 { "ablations", ablations } };

    for (size_t k = 0; k < sizeof(plot) / sizeof(plot[0]); k++) {
        ct_text body = { 0 };
        char name[240];
        ct_status status;

        if (!ct_report_has_plot(p, group, plot[k].name)) continue;
        plot[k].write(p, group, &body);
        snprintf(name, sizeof(name), "%s-%s", plot[k].name, p->group[group].slug);
        status = draw(study, name, &body, drawn);
        ct_text_destroy(&body);
        CT_TRY(status);
    }
    return CT_OK;
}

ct_status ct_report_plots(const ct_study *study, const ct_points *p, bool *drawn_p)
{
    ct_text body = { 0 };
    ct_status status = CT_OK;

    *drawn_p = true;
    for (int g = 0; g < p->n_group; g++) CT_TRY(draw_group(study, p, g, drawn_p));
    if (p->n_bench > 0) {
        collectives(p, &body);
        status = draw(study, "collectives", &body, drawn_p);
        ct_text_destroy(&body);
    }
    return status;
}
