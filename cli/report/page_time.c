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
        return;
    }
    ct_bars_draw(&bars, t);
    time_table(run, n_run, t);
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
