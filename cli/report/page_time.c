/* Where the time of a step went, and what compression did. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/page.h"

enum { MOST_RUNS = 64, N_PART = 3 };

static const char *const part_field[N_PART] = { "compute_ms", "wait_data_ms", "comm_exposed_ms" };
static const char *const part_name[N_PART] = { "compute", "waiting for data",
                                               "exposed communication" };

static void time_table(const ct_run_data *run, int n_run, ct_text *t)
{
    ct_text_add(t, "<table id=\"times\">\n");
    ct_page_head_of_runs("median of a step", run, n_run, t);
    for (int k = 0; k < N_PART; k++) {
        ct_text_add(t, "<tr><td>%s, ms</td>", part_name[k]);
        for (int i = 0; i < n_run; i++)
            ct_page_number(ct_run_curve_median(ct_run_data_curve(&run[i], part_field[k], false)), 4,
                           t);
        ct_text_add(t, "</tr>\n");
    }
    ct_text_add(t, "<tr><td>MB that a rank sends</td>");
    for (int i = 0; i < n_run; i++)
        ct_page_number(1e-6 * ct_run_curve_median(ct_run_data_curve(&run[i], "bytes_sent", false)),
                       4, t);
    ct_text_add(t, "</tr>\n</table>\n");
}

/* ---- steps, as `cortado train --trace` has recorded them */

enum { MOST_RANKS = 32 };

static const char *const traced_name[CT_TRACED_N] = { "compute", "waiting for data",
                                                      "exposed communication", "moving messages",
                                                      "other" };

static void trace_table(const ct_traced *d, int n, ct_text *t)
{
    ct_text_add(t, "<table class=\"trace\">\n<tr><th>rank</th><th>step, ms</th>");
    for (int k = 0; k < CT_TRACED_N; k++) ct_text_add(t, "<th>%s, ms</th>", traced_name[k]);
    ct_text_add(t, "<th>buckets under way, ms</th><th>of it hidden, ms</th></tr>\n");
    for (int i = 0; i < n; i++) {
        const ct_traced_rank *r = &d->rank[i];

        ct_text_add(t, "<tr>");
        ct_page_number((double)r->rank, 9, t);
        ct_page_number(r->step_ms, 4, t);
        for (int k = 0; k < CT_TRACED_N; k++) ct_page_number(r->ms[k], 4, t);
        ct_page_number(r->under_way_ms, 4, t);
        ct_page_number(r->hidden_ms, 4, t);
        ct_text_add(t, "</tr>\n");
    }
    ct_text_add(t, "</table>\n");
}

static void draw_traced(const ct_traced *d, int n, const char *under, ct_text *t)
{
    char name[MOST_RANKS][32];
    const char *bar[MOST_RANKS];
    double value[MOST_RANKS * CT_TRACED_N];
    const ct_bars bars = { .title = "Steps by the trace",
                           .subtitle = under,
                           .label = "ms a step",
                           .n_bar = n,
                           .n_part = CT_TRACED_N,
                           .bar = bar,
                           .part = traced_name,
                           .value = value };

    for (int i = 0; i < n; i++) {
        snprintf(name[i], sizeof(name[i]), "rank %lld", (long long)d->rank[i].rank);
        bar[i] = name[i];
        memcpy(value + (size_t)i * CT_TRACED_N, d->rank[i].ms, sizeof(d->rank[i].ms));
    }
    ct_bars_draw(&bars, t);
}

static void draw_hidden(const ct_traced *d, int n, ct_text *t)
{
    static const char *const part[2] = { "hidden", "exposed" };
    char name[MOST_RANKS][32];
    const char *bar[MOST_RANKS];
    double value[MOST_RANKS * 2];
    const ct_bars bars = { .title = "Communication of a step",
                           .subtitle = "while some bucket of gradients is under way",
                           .label = "ms a step",
                           .n_bar = n,
                           .n_part = 2,
                           .bar = bar,
                           .part = part,
                           .value = value };

    for (int i = 0; i < n; i++) {
        snprintf(name[i], sizeof(name[i]), "rank %lld", (long long)d->rank[i].rank);
        bar[i] = name[i];
        value[2 * i] = d->rank[i].hidden_ms;
        value[2 * i + 1] = d->rank[i].under_way_ms - d->rank[i].hidden_ms;
    }
    ct_bars_draw(&bars, t);
}

static void show_traced(const ct_run_data *r, ct_text *t)
{
    const ct_traced *d = &r->traced;
    int n = (d->n < MOST_RANKS) ? d->n : MOST_RANKS;
    double under_way = 0;
    char under[160];

    for (int i = 0; i < n; i++) under_way += d->rank[i].under_way_ms;
    snprintf(under, sizeof(under), "means over iterations %s", d->iterations);
    ct_page_heading(3, r->name, t);
    if (n < d->n) ct_text_add(t, "<p>The first %d of %d ranks.</p>\n", n, d->n);
    draw_traced(d, n, under, t);
    if (under_way > 0) draw_hidden(d, n, t);
    trace_table(d, n, t);
}

/* ---- layers, as `cortado time --json` has measured them */

enum { MOST_LAYERS = 20 };

static double layer_ms(const json_t *l)
{
    return ct_json_number(l, "forward_ms", 0) + ct_json_number(l, "backward_ms", 0);
}

/* The layers that take longest, in the order of the net: as many as `list` has room for. */
static int choose_layers(const json_t *layers, const json_t **list)
{
    const json_t *l, *o;
    size_t i, k;
    int n = 0;

    json_array_foreach(layers, i, l)
    {
        int longer = 0;

        json_array_foreach(layers, k, o) longer +=
            (layer_ms(o) > layer_ms(l)) || ((layer_ms(o) == layer_ms(l)) && (k < i));
        if ((layer_ms(l) > 0.0) && (longer < MOST_LAYERS) && (n < MOST_LAYERS)) list[n++] = l;
    }
    return n;
}

static void layer_row(const json_t *l, ct_text *t)
{
    static const char *const pass[] = { "forward", "backward" };
    char member[32];

    ct_text_add(t, "<tr>");
    ct_page_cell(ct_json_text(l, "name", "?"), t);
    ct_page_cell(ct_json_text(l, "type", "?"), t);
    for (int k = 0; k < 2; k++) {
        double ms, flop;

        snprintf(member, sizeof(member), "%s.ms", pass[k]);
        ms = ct_json_number(l, member, NAN);
        snprintf(member, sizeof(member), "%s.flop", pass[k]);
        flop = ct_json_number(l, member, 0);
        ct_page_number(ms, 4, t);
        ct_page_number(((flop > 0) && (ms > 0)) ? flop / ms * 1e-6 : NAN, 4, t);
        snprintf(member, sizeof(member), "%s.engine", pass[k]);
        ct_page_cell(ct_json_text(l, member, "–"), t);
    }
    ct_text_add(t, "</tr>\n");
}

static void show_layers(const ct_run_data *r, ct_text *t)
{
    static const char *const part[2] = { "forward", "backward" };
    const json_t *list[MOST_LAYERS];
    const char *name[MOST_LAYERS];
    double value[2 * MOST_LAYERS];
    char under[160];
    ct_bars bars = { .title = "Layers that take longest",
                     .subtitle = under,
                     .label = "ms",
                     .n_part = 2,
                     .bar = name,
                     .part = part,
                     .value = value };

    bars.n_bar = choose_layers(json_object_get(r->times, "layers"), list);
    for (int i = 0; i < bars.n_bar; i++) {
        name[i] = ct_json_text(list[i], "name", "?");
        value[2 * i] = ct_json_number(list[i], "forward_ms", NAN);
        value[2 * i + 1] = ct_json_number(list[i], "backward_ms", NAN);
    }
    snprintf(under, sizeof(under), "of a step of %.4g ms with a batch of %.0f, %.4g images/s",
             ct_json_number(r->times, "step_ms", NAN), ct_json_number(r->times, "batch", NAN),
             ct_json_number(r->times, "images_per_s", NAN));
    ct_page_heading(3, r->name, t);
    if (bars.n_bar > 0) ct_bars_draw(&bars, t);
    ct_text_add(t, "<table class=\"layers\">\n<tr><th>layer</th><th>type</th><th>forward, ms</th>"
                   "<th>GFLOP/s</th><th>engine</th><th>backward, ms</th><th>GFLOP/s</th>"
                   "<th>engine</th></tr>\n");
    for (int i = 0; i < bars.n_bar; i++) layer_row(list[i], t);
    ct_text_add(t, "</table>\n");
}

void ct_page_time(const ct_run_data *run, int n_run, ct_text *t)
{
    const char *name[MOST_RUNS];
    double value[MOST_RUNS * N_PART];
    ct_bars bars = { .title = "Where a step goes",
                     .subtitle = "medians over the iterations that were displayed, rank 0",
                     .label = "ms a step",
                     .n_part = N_PART,
                     .bar = name,
                     .part = part_name,
                     .value = value };

    for (int i = 0; (i < n_run) && (bars.n_bar < MOST_RUNS); i++) {
        if (ct_run_data_curve(&run[i], part_field[0], false) == NULL) continue;
        for (int k = 0; k < N_PART; k++)
            value[bars.n_bar * N_PART + k] =
                ct_run_curve_median(ct_run_data_curve(&run[i], part_field[k], false));
        name[bars.n_bar++] = run[i].name;
    }
    ct_page_heading(2, "Time and communication", t);
    if (bars.n_bar == 0) {
        ct_text_add(t, "<p>No train event says what steps took.</p>\n");
    } else {
        ct_bars_draw(&bars, t);
        time_table(run, n_run, t);
    }
    for (int i = 0; i < n_run; i++)
        if (run[i].traced.n > 0) show_traced(&run[i], t);
    for (int i = 0; i < n_run; i++)
        if (run[i].times != NULL) show_layers(&run[i], t);
}

/* ---- compression */

typedef struct column {
    const char *member, *head;
    double times;
} column;

static const column columns[] = {
    { "bytes_dense", "KB dense", 1e-3 },
    { "bytes_coded", "KB sent", 1e-3 },
    { "density", "density, %", 100 },
    { "filled", "filled, %", 100 },
    { "select_ms", "select, ms", 1 },
    { "pack_ms", "pack, ms", 1 },
    { "exchange_ms", "exchange, ms", 1 },
    { "unpack_ms", "unpack, ms", 1 },
    { "saved_ms", "saved against dense, ms", 1 },
    { "residual_norm", "residual norm", 1 },
};
enum { N_COLUMN = sizeof(columns) / sizeof(columns[0]) };

static void compression_row(const char *what, const json_t *o, ct_text *t)
{
    ct_text_add(t, "<tr>");
    ct_page_cell(what, t);
    ct_page_cell(ct_json_text(o, "codec", "–"), t);
    ct_page_cell(ct_json_text(o, "exchange", "–"), t);
    for (int k = 0; k < N_COLUMN; k++)
        ct_page_number(columns[k].times * ct_json_number(o, columns[k].member, NAN), 4, t);
    ct_text_add(t, "</tr>\n");
}

static void compression_table(const ct_run_data *r, ct_text *t)
{
    const json_t *buckets = json_object_get(r->compression, "buckets"), *b;
    size_t i;

    ct_page_heading(3, r->name, t);
    ct_text_add(
        t, "<table class=\"compression\">\n<tr><th>bucket</th><th>codec</th><th>exchange</th>");
    for (int k = 0; k < N_COLUMN; k++) ct_page_head(columns[k].head, t);
    ct_text_add(t, "</tr>\n");
    json_array_foreach(buckets, i, b) compression_row(ct_json_text(b, "bucket", "?"), b, t);
    compression_row("all", json_object_get(r->compression, "total"), t);
    ct_text_add(t, "</table>\n");
}

void ct_page_compression(const ct_run_data *run, int n_run, ct_text *t)
{
    bool any = false;

    for (int i = 0; i < n_run; i++) {
        if (run[i].compression == NULL) continue;
        if (!any) ct_page_heading(2, "Compression", t);
        if (!any) ct_text_add(t, "<p>Means of a compressed step on rank 0.</p>\n");
        any = true;
        compression_table(&run[i], t);
    }
}
