/* The first sections of the page: runs side by side, and their curves. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/page.h"

/* ---- fields that are known, with their words for people */

typedef struct field {
    const char *name, *label;
    bool log;
} field;

static const field known[] = {
    { "loss", "loss", false },
    { "lr", "learning rate", true },
    { "images_per_s", "images/s", false },
    { "tokens_per_s", "tokens/s", false },
};

/* Of train events these are parts of a step, which have a section of their own. */
static const char *const of_step[] = { "wait_data_ms", "compute_ms", "comm_exposed_ms",
                                       "bytes_sent" };

static const char *label_of(const char *name)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i].name, name) == 0) return known[i].label;
    return name;
}

static bool is_log(const char *name)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i].name, name) == 0) return known[i].log;
    return false;
}

static bool is_of_step(const char *name)
{
    for (size_t i = 0; i < sizeof(of_step) / sizeof(of_step[0]); i++)
        if (strcmp(of_step[i], name) == 0) return true;
    return false;
}

/* Whether an earlier run has the field, or this run before curve `c`, in any phase if so asked. */
static bool seen_before(const ct_run_data *run, int r, int c, bool any_phase)
{
    const ct_run_curve *of = &run[r].curve[c];

    for (int i = 0; i <= r; i++) {
        for (int k = 0; (k < run[i].n_curve) && ((i < r) || (k < c)); k++) {
            const ct_run_curve *o = &run[i].curve[k];

            if ((strcmp(o->field, of->field) == 0) && (any_phase || (o->of_test == of->of_test)))
                return true;
        }
    }
    return false;
}

/* ---- the comparison */

static void about_row(const char *label, const char *member, const ct_run_data *run, int n_run,
                      ct_text *t)
{
    ct_text_add(t, "<tr>");
    ct_page_cell(label, t);
    for (int i = 0; i < n_run; i++) {
        const json_t *o = run[i].about;
        double v = ct_json_number(o, member, NAN);

        if (isfinite(v))
            ct_page_number(v, 9, t);
        else
            ct_page_cell(ct_json_text(o, member, "–"), t);
    }
    ct_text_add(t, "</tr>\n");
}

static void done_rows(const ct_run_data *run, int n_run, ct_text *t)
{
    ct_text_add(t, "<tr>");
    ct_page_cell("how it ended", t);
    for (int i = 0; i < n_run; i++)
        ct_page_cell(ct_json_text(run[i].done, "status", "goes on, or was cut off"), t);
    ct_text_add(t, "</tr>\n<tr>");
    ct_page_cell("iterations", t);
    for (int i = 0; i < n_run; i++) ct_page_number(ct_json_number(run[i].done, "iter", NAN), 12, t);
    ct_text_add(t, "</tr>\n<tr>");
    ct_page_cell("seconds", t);
    for (int i = 0; i < n_run; i++)
        ct_page_number(ct_json_number(run[i].done, "seconds", NAN), 5, t);
    ct_text_add(t, "</tr>\n");
}

static void curve_row(const char *label, const ct_run_curve *of,
                      double (*value)(const ct_run_curve *c), const ct_run_data *run, int n_run,
                      ct_text *t)
{
    ct_text_add(t, "<tr><td>");
    ct_text_add(t, "%s", of->of_test ? "test " : "");
    ct_text_add_escaped(t, label_of(of->field));
    ct_text_add(t, ", %s</td>", label);
    for (int i = 0; i < n_run; i++)
        ct_page_number(value(ct_run_data_curve(&run[i], of->field, of->of_test)), 6, t);
    ct_text_add(t, "</tr>\n");
}

static void curve_rows(const ct_run_data *run, int n_run, ct_text *t)
{
    for (int r = 0; r < n_run; r++) {
        for (int c = 0; c < run[r].n_curve; c++) {
            const ct_run_curve *of = &run[r].curve[c];

            if (is_of_step(of->field) || seen_before(run, r, c, false)) continue;
            if (strstr(of->field, "_per_s") != NULL) {
                curve_row("median", of, ct_run_curve_median, run, n_run, t);
                continue;
            }
            curve_row("last", of, ct_run_curve_last, run, n_run, t);
            if (!of->of_test) continue;
            curve_row("least", of, ct_run_curve_least, run, n_run, t);
            curve_row("most", of, ct_run_curve_most, run, n_run, t);
        }
    }
}

/* The value of a field of the configuration as text, freed by the caller; NULL: not set. */
static char *setting(const ct_run_data *r, const char *key)
{
    const json_t *v = json_object_get(json_object_get(r->about, "config"), key);

    if (v == NULL) return NULL;
    return json_is_string(v) ? strdup(json_string_value(v))
                             : json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
}

static bool differs(const ct_run_data *run, int n_run, const char *key)
{
    const json_t *first = json_object_get(json_object_get(run[0].about, "config"), key);

    for (int i = 1; i < n_run; i++) {
        const json_t *v = json_object_get(json_object_get(run[i].about, "config"), key);

        if ((v == NULL) != (first == NULL)) return true;
        if ((v != NULL) && (json_equal(v, first) == 0)) return true;
    }
    return false;
}

static bool set_before(const ct_run_data *run, int r, const char *key)
{
    for (int i = 0; i < r; i++)
        if (json_object_get(json_object_get(run[i].about, "config"), key) != NULL) return true;
    return false;
}

static void settings(const ct_run_data *run, int n_run, ct_text *t)
{
    int n = 0;

    if (n_run < 2) return;
    ct_page_heading(3, "Settings that differ", t);
    ct_text_add(t, "<table id=\"settings\">\n");
    ct_page_head_of_runs("field", run, n_run, t);
    for (int r = 0; r < n_run; r++) {
        const char *key;
        json_t *v;

        json_object_foreach(json_object_get(run[r].about, "config"), key, v)
        {
            if (set_before(run, r, key) || !differs(run, n_run, key)) continue;
            ct_text_add(t, "<tr>");
            ct_page_cell(key, t);
            for (int i = 0; i < n_run; i++) {
                char *text = setting(&run[i], key);

                ct_page_cell((text != NULL) ? text : "–", t);
                free(text);
            }
            ct_text_add(t, "</tr>\n");
            n++;
        }
    }
    ct_text_add(t, "</table>\n%s", (n == 0) ? "<p>None.</p>\n" : "");
}

void ct_page_comparison(const ct_run_data *run, int n_run, ct_text *t)
{
    ct_text_add(t, "<table id=\"runs\">\n");
    ct_page_head_of_runs("", run, n_run, t);
    about_row("net", "net", run, n_run, t);
    about_row("started", "started", run, n_run, t);
    about_row("host", "host", run, n_run, t);
    about_row("ranks", "ranks", run, n_run, t);
    about_row("threads a rank", "threads", run, n_run, t);
    about_row("cortado", "version", run, n_run, t);
    done_rows(run, n_run, t);
    curve_rows(run, n_run, t);
    ct_text_add(t, "</table>\n");
    settings(run, n_run, t);
}

/* ---- curves */

/* Both phases of a field over one another: training is drawn through, tests are dashed. */
static ct_status draw_field(const ct_run_data *run, int n_run, const char *name, ct_text *t)
{
    ct_chart_series *series = calloc(2 * (size_t)n_run, sizeof(*series));
    char(*key)[256] = calloc(2 * (size_t)n_run, sizeof(*key));
    ct_chart chart = { .title = label_of(name), .x.label = "iteration", .series = series };

    if ((series == NULL) || (key == NULL)) {
        free(series);
        free(key);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the curves of %d runs", n_run);
    }
    chart.y.log = is_log(name);
    for (int r = 0; r < n_run; r++) {
        for (int test = 0; test < 2; test++) {
            const ct_run_curve *c = ct_run_data_curve(&run[r], name, test == 1);
            int i = chart.n_series;

            if (c == NULL) continue;
            snprintf(key[i], sizeof(key[i]), "%s%s", run[r].name, (test == 1) ? ", test" : "");
            series[i] =
                (ct_chart_series){ .name = key[i],
                                   .colour = r,
                                   .mark = (c->n <= 60) ? CT_MARK_DISC : CT_MARK_NONE,
                                   .stroke = (test == 1) ? CT_STROKE_DASHED : CT_STROKE_SOLID,
                                   .point = c->point,
                                   .n = c->n };
            chart.n_series += 1;
        }
    }
    ct_chart_draw(&chart, t);
    free(series);
    free(key);
    return CT_OK;
}

/* Losses first, then what nets put out, then rates and speeds. */
static int rank_of(const char *name)
{
    if (strcmp(name, "loss") == 0) return 0;
    return (label_of(name) == name) ? 1 : 2;
}

ct_status ct_page_curves(const ct_run_data *run, int n_run, ct_text *t)
{
    ct_page_heading(2, "Curves", t);
    ct_text_add(t, "<div id=\"curves\">\n");
    for (int rank = 0; rank < 3; rank++) {
        for (int i = 0; i < n_run; i++) {
            for (int c = 0; c < run[i].n_curve; c++) {
                const char *name = run[i].curve[c].field;

                if ((rank_of(name) == rank) && !is_of_step(name) && !seen_before(run, i, c, true))
                    CT_TRY(draw_field(run, n_run, name, t));
            }
        }
    }
    ct_text_add(t, "</div>\n");
    return CT_OK;
}
