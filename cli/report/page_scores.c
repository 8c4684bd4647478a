/* What a net gets right and wrong, as `cortado test --report` has counted it: one of classes, one
 * of texts, or (page_boxes.c) one that finds boxes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/page.h"

enum { MOST_CELLS = 60, MOST_PAIRS = 12 }; /* a matrix of more classes cannot be read */

typedef struct scores {
    const json_t *json;
    int n;
    const char **name;
    double *confusion; /* [true][predicted] */
} scores;

static ct_status read_row(const ct_run_data *r, scores *s, int row, const json_t *list)
{
    if ((int)json_array_size(list) != s->n)
        return CT_FAIL(CT_ERR_DATA,
                       "%s/" CT_RUN_SCORES ": row %d of \"confusion\" has %zu numbers, "
                       "expected %d, one for each class",
                       r->path, row, json_array_size(list), s->n);
    for (int c = 0; c < s->n; c++) {
        const json_t *v = json_array_get(list, (size_t)c);

        if (!json_is_number(v) || (json_number_value(v) < 0.0))
            return CT_FAIL(CT_ERR_DATA,
                           "%s/" CT_RUN_SCORES ": \"confusion\"[%d][%d]: expected a count", r->path,
                           row, c);
        s->confusion[row * s->n + c] = json_number_value(v);
    }
    return CT_OK;
}

static ct_status read_scores(const ct_run_data *r, scores *s)
{
    const json_t *names = json_object_get(r->scores, "classes");
    const json_t *confusion = json_object_get(r->scores, "confusion");

    *s = (scores){ .json = r->scores, .n = (int)json_array_size(names) };
    if ((s->n < 1) || (json_array_size(confusion) != (size_t)s->n))
        return CT_FAIL(CT_ERR_DATA,
                       "%s/" CT_RUN_SCORES ": \"confusion\" has %zu rows, expected one for each of "
                       "%d \"classes\"",
                       r->path, json_array_size(confusion), s->n);
    s->name = calloc((size_t)s->n, sizeof(*s->name));
    s->confusion = calloc((size_t)s->n * (size_t)s->n, sizeof(*s->confusion));
    if ((s->name == NULL) || (s->confusion == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d classes", s->n);
    for (int i = 0; i < s->n; i++) {
        s->name[i] = json_string_value(json_array_get(names, (size_t)i));
        if (s->name[i] == NULL)
            return CT_FAIL(CT_ERR_DATA, "%s/" CT_RUN_SCORES ": \"classes\"[%d]: expected a name",
                           r->path, i);
        CT_TRY(read_row(r, s, i, json_array_get(confusion, (size_t)i)));
    }
    return CT_OK;
}

static double row_sum(const scores *s, int row)
{
    double sum = 0.0;

    for (int c = 0; c < s->n; c++) sum += s->confusion[row * s->n + c];
    return sum;
}

static void class_table(const scores *s, ct_text *t)
{
    const json_t *precision = json_object_get(s->json, "precision");
    const json_t *recall = json_object_get(s->json, "recall");

    ct_text_add(t, "<table class=\"classes\">\n<tr><th>class</th><th>samples</th><th>precision"
                   "</th><th>recall</th></tr>\n");
    for (int i = 0; i < s->n; i++) {
        ct_text_add(t, "<tr>");
        ct_page_cell(s->name[i], t);
        ct_page_number(row_sum(s, i), 12, t);
        ct_page_number(json_number_value(json_array_get(precision, (size_t)i)), 4, t);
        ct_page_number(json_number_value(json_array_get(recall, (size_t)i)), 4, t);
        ct_text_add(t, "</tr>\n");
    }
    ct_text_add(t, "</table>\n");
}

/* The pairs that are taken for one another most often. Each round finds the next one. */
static void pair_table(const scores *s, ct_text *t)
{
    int64_t last = -1;
    double above = INFINITY;

    ct_text_add(t, "<table class=\"pairs\">\n<tr><th>true class</th><th>predicted</th><th>samples"
                   "</th><th>of the class, %%</th></tr>\n");
    for (int n = 0; n < MOST_PAIRS; n++) {
        int64_t best = -1;

        for (int64_t i = 0; i < (int64_t)s->n * s->n; i++) {
            double v = s->confusion[i];
            bool after = (v < above) || ((v == above) && (i > last));

            if ((i / s->n == i % s->n) || !(v > 0.0) || !after) continue;
            if ((best < 0) || (v > s->confusion[best])) best = i;
        }
        if (best < 0) break;
        ct_text_add(t, "<tr>");
        ct_page_cell(s->name[best / s->n], t);
        ct_page_cell(s->name[best % s->n], t);
        ct_page_number(s->confusion[best], 12, t);
        ct_page_number(100 * s->confusion[best] / row_sum(s, (int)(best / s->n)), 4, t);
        ct_text_add(t, "</tr>\n");
        last = best;
        above = s->confusion[best];
    }
    ct_text_add(t, "</table>\n");
}

static void calibration_chart(const scores *s, ct_text *t)
{
    static const ct_chart_point even[2] = { { .x = 0, .y = 0 }, { .x = 1, .y = 1 } };
    const json_t *bins = json_object_get(json_object_get(s->json, "calibration"), "bins"), *b;
    ct_chart_point point[64];
    ct_chart_series series[2] = { { .name = "as sure as it is right",
                                    .colour = CT_CHART_GREY,
                                    .stroke = CT_STROKE_DASHED,
                                    .point = even,
                                    .n = 2 },
                                  { .name = "this net, a bin of predictions each",
                                    .mark = CT_MARK_DISC,
                                    .stroke = CT_STROKE_SOLID,
                                    .point = point } };
    char under[96];
    ct_chart chart = { .title = "Calibration",
                       .subtitle = under,
                       .series = series,
                       .n_series = 2,
                       .x = { .label = "probability of the predicted class", .high = 1 },
                       .y = { .label = "share that is right", .high = 1 } };
    size_t i;

    json_array_foreach(bins, i, b)
    {
        if ((series[1].n == 64) || !(ct_json_number(b, "samples", 0) > 0)) continue;
        point[series[1].n++] = (ct_chart_point){ .x = ct_json_number(b, "probability", NAN),
                                                 .y = ct_json_number(b, "accuracy", NAN) };
    }
    snprintf(under, sizeof(under), "expected error %.4g",
             ct_json_number(s->json, "calibration.error", NAN));
    ct_chart_draw(&chart, t);
}

static void mistake_table(const scores *s, ct_text *t)
{
    const json_t *list = json_object_get(s->json, "worst"), *m;
    size_t i;

    if (json_array_size(list) == 0) return;
    ct_page_heading(4, "The surest mistakes", t);
    ct_text_add(t, "<table class=\"mistakes\">\n<tr><th>file</th><th>sample</th><th>true class</th>"
                   "<th>predicted</th><th>probability</th></tr>\n");
    json_array_foreach(list, i, m)
    {
        ct_text_add(t, "<tr>");
        ct_page_cell(ct_json_text(m, "file", "–"), t);
        ct_page_number(ct_json_number(m, "sample", NAN), 12, t);
        ct_page_cell(ct_json_text(m, "true", "–"), t);
        ct_page_cell(ct_json_text(m, "predicted", "–"), t);
        ct_page_number(ct_json_number(m, "probability", NAN), 4, t);
        ct_text_add(t, "</tr>\n");
    }
    ct_text_add(t, "</table>\n");
}

static void show(const ct_run_data *r, const scores *s, ct_text *t)
{
    ct_matrix m = { .title = "Confusion, samples",
                    .row_label = "true class",
                    .column_label = "predicted",
                    .n = s->n,
                    .name = s->name,
                    .value = s->confusion };

    ct_page_heading(3, r->name, t);
    ct_text_add(t, "<p>Accuracy %.4g, loss %.4g on %.0f samples.</p>\n",
                ct_json_number(s->json, "accuracy", NAN), ct_json_number(s->json, "loss", NAN),
                ct_json_number(s->json, "samples", NAN));
    if (s->n <= MOST_CELLS)
        ct_matrix_draw(&m, t);
    else
        ct_text_add(t,
                    "<p>%d classes are too many for a picture of the confusion matrix; the pairs "
                    "that are confused most often are below.</p>\n",
                    s->n);
    pair_table(s, t);
    class_table(s, t);
    calibration_chart(s, t);
    mistake_table(s, t);
}

/* ---- nets of texts */

static bool is_of_text(const ct_run_data *r)
{
    return json_is_number(json_object_get(r->scores, "perplexity"));
}

static void text_table(const ct_run_data *run, int n_run, ct_text *t)
{
    static const char *const member[] = { "loss",    "perplexity", "bits_per_byte",
                                          "samples", "tokens",     "bytes" };
    static const char *const head[] = { "loss",    "perplexity", "bits a byte",
                                        "samples", "tokens",     "bytes" };
    int n = 0;

    for (int i = 0; i < n_run; i++) n += is_of_text(&run[i]);
    if (n == 0) return;
    ct_text_add(t, "<table class=\"texts\">\n<tr><th>whole test set</th>");
    for (int k = 0; k < 6; k++) ct_page_head(head[k], t);
    ct_text_add(t, "</tr>\n");
    for (int i = 0; i < n_run; i++) {
        if (!is_of_text(&run[i])) continue;
        ct_text_add(t, "<tr>");
        ct_page_cell(run[i].name, t);
        for (int k = 0; k < 6; k++)
            ct_page_number(ct_json_number(run[i].scores, member[k], NAN), (k < 3) ? 5 : 15, t);
        ct_text_add(t, "</tr>\n");
    }
    ct_text_add(t, "</table>\n");
}

ct_status ct_page_scores(const ct_run_data *run, int n_run, ct_text *t)
{
    int n_without = 0;

    ct_page_heading(2, "Scores", t);
    text_table(run, n_run, t);
    for (int i = 0; i < n_run; i++) {
        scores s;
        ct_status status;

        n_without += (run[i].scores == NULL) && run[i].is_folder;
        if ((run[i].scores == NULL) || is_of_text(&run[i])) continue;
        if (ct_page_is_of_boxes(&run[i])) {
            CT_TRY(ct_page_boxes(&run[i], t));
            continue;
        }
        status = read_scores(&run[i], &s);
        if (status == CT_OK) show(&run[i], &s, t);
        free(s.name);
        free(s.confusion);
        CT_TRY(status);
    }
    if (n_without > 0)
        ct_text_add(t, "<p>Confusion, precision, recall and calibration of a net of classes, "
                       "perplexity and bits a byte of one of texts, or average precision of one "
                       "that finds boxes, stand here after <code>cortado "
                       "test --run=RUN --report=RUN/" CT_RUN_SCORES "</code>.</p>\n");
    return CT_OK;
}
