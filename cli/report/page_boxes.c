/* How well a net finds boxes, as `cortado test --report` has counted it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/page.h"

enum { POINTS = 11, MOST_CURVES = CT_CHART_COLOURS }; /* more curves have no colour of their own */

typedef struct box_scores {
    const ct_run_data *run;
    const json_t *classes, *boxes, *detections, *right, *curves, *area, *mean;
    int n;
} box_scores;

bool ct_page_is_of_boxes(const ct_run_data *run)
{
    return json_is_array(json_object_get(run->scores, "precision_at_recall"));
}

/* A number for each class; null where it has none. */
static ct_status check_list(const box_scores *s, const char *name, const json_t *list)
{
    const json_t *v;
    size_t i;

    if (json_array_size(list) != (size_t)s->n)
        return CT_FAIL(CT_ERR_DATA,
                       "%s/" CT_RUN_SCORES ": \"%s\" has %zu numbers, expected %d, one for each "
                       "class",
                       s->run->path, name, json_array_size(list), s->n);
    json_array_foreach(list, i, v)
    {
        if (!json_is_number(v) && !json_is_null(v))
            return CT_FAIL(CT_ERR_DATA, "%s/" CT_RUN_SCORES ": \"%s\"[%zu]: expected a number",
                           s->run->path, name, i);
    }
    return CT_OK;
}

static ct_status check_curves(const box_scores *s)
{
    for (int c = 0; c < s->n; c++) {
        const json_t *curve = json_array_get(s->curves, (size_t)c);

        if (!json_is_string(json_array_get(s->classes, (size_t)c)))
            return CT_FAIL(CT_ERR_DATA, "%s/" CT_RUN_SCORES ": \"classes\"[%d]: expected a name",
                           s->run->path, c);
        if (json_array_size(curve) != POINTS)
            return CT_FAIL(CT_ERR_DATA,
                           "%s/" CT_RUN_SCORES ": \"precision_at_recall\"[%d]: expected %d numbers",
                           s->run->path, c, POINTS);
    }
    return CT_OK;
}

static ct_status read_scores(const ct_run_data *run, box_scores *s)
{
    const char *version;
    json_t *list;

    *s = (box_scores){ .run = run,
                       .classes = json_object_get(run->scores, "classes"),
                       .boxes = json_object_get(run->scores, "boxes"),
                       .detections = json_object_get(run->scores, "detections"),
                       .right = json_object_get(run->scores, "right"),
                       .curves = json_object_get(run->scores, "precision_at_recall"),
                       .area = json_object_get(run->scores, "average_precision"),
                       .mean = json_object_get(run->scores, "mean_average_precision") };
    s->n = (int)json_array_size(s->classes);
    CT_TRY(check_list(s, "boxes", s->boxes));
    CT_TRY(check_list(s, "detections", s->detections));
    CT_TRY(check_list(s, "right", s->right));
    json_object_foreach((json_t *)(uintptr_t)s->area, version, list)
        CT_TRY(check_list(s, version, list));
    return check_curves(s);
}

/* NAN: null. */
static double at(const json_t *list, int i)
{
    const json_t *v = json_array_get(list, (size_t)i);

    return json_is_number(v) ? json_number_value(v) : NAN;
}

static void class_row(const box_scores *s, int c, ct_text *t)
{
    const char *version;
    json_t *list;

    ct_text_add(t, "<tr>");
    ct_page_cell(json_string_value(json_array_get(s->classes, (size_t)c)), t);
    ct_page_number(at(s->boxes, c), 12, t);
    ct_page_number(at(s->detections, c), 12, t);
    ct_page_number(at(s->right, c) / at(s->boxes, c), 4, t);
    json_object_foreach((json_t *)(uintptr_t)s->area, version, list)
        ct_page_number(at(list, c), 4, t);
    ct_text_add(t, "</tr>\n");
}

static void class_table(const box_scores *s, ct_text *t)
{
    const char *version;
    json_t *list;

    ct_text_add(t, "<table class=\"detections\">\n<tr><th>class</th><th>true boxes</th>"
                   "<th>detections</th><th>recall</th>");
    json_object_foreach((json_t *)(uintptr_t)s->area, version, list)
    {
        ct_text_add(t, "<th>average precision, ");
        ct_text_add_escaped(t, version);
        ct_text_add(t, "</th>");
    }
    ct_text_add(t, "</tr>\n");
    for (int c = 0; c < s->n; c++) class_row(s, c, t);
    ct_text_add(t, "<tr><td>mean</td><td></td><td></td><td></td>");
    json_object_foreach((json_t *)(uintptr_t)s->area, version, list)
        ct_page_number(ct_json_number(s->mean, version, NAN), 4, t);
    ct_text_add(t, "</tr>\n</table>\n");
}

/* Of the first classes that have true boxes. */
static void curve_chart(const box_scores *s, ct_text *t)
{
    ct_chart_point point[MOST_CURVES][POINTS] = { { { .x = 0 } } };
    ct_chart_series series[MOST_CURVES] = { { .name = NULL } };
    ct_chart chart = { .title = "Precision over recall",
                       .subtitle = "the best precision at a recall and beyond",
                       .series = series,
                       .x = { .label = "recall", .high = 1 },
                       .y = { .label = "precision", .high = 1 } };

    for (int c = 0; (c < s->n) && (chart.n_series < MOST_CURVES); c++) {
        int k = chart.n_series;

        if (!(at(s->boxes, c) > 0)) continue;
        series[k] =
            (ct_chart_series){ .name = json_string_value(json_array_get(s->classes, (size_t)c)),
                               .colour = k,
                               .mark = CT_MARK_DISC,
                               .stroke = CT_STROKE_SOLID,
                               .point = point[k],
                               .n = POINTS };
        for (int i = 0; i < POINTS; i++) {
            point[k][i].x = i / 10.0;
            point[k][i].y = at(json_array_get(s->curves, (size_t)c), i);
        }
        chart.n_series++;
    }
    if (chart.n_series > 0) ct_chart_draw(&chart, t);
}

ct_status ct_page_boxes(const ct_run_data *run, ct_text *t)
{
    box_scores s;

    CT_TRY(read_scores(run, &s));
    ct_page_heading(3, run->name, t);
    ct_text_add(t, "<p>Average precision of what was found on %.0f samples.</p>\n",
                ct_json_number(run->scores, "samples", NAN));
    class_table(&s, t);
    curve_chart(&s, t);
    return CT_OK;
}
