#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/report/chart.h"

static int count(const char *text, const char *what)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what)) n++;
    return n;
}

/* The numbers behind `what`, which may stand in the text several times. */
static int numbers(const char *text, const char *what, double *v, int most)
{
    int n = 0;

    for (const char *at = text; (n < most) && ((at = strstr(at, what)) != NULL);) {
        at += strlen(what);
        if (sscanf(at, "%lf", &v[n]) == 1) n++;
    }
    return n;
}

static void test_text_is_escaped(void **state)
{
    ct_text t = { 0 };

    (void)state;
    ct_text_add_escaped(&t, "a<b>&'\"\n\xc3\xa9");
    assert_string_equal(t.text, "a&#60;b&#62;&#38;&#39;&#34;\xc3\xa9");
    ct_text_destroy(&t);
}

static void test_points_lie_where_they_are(void **state)
{
    static const ct_chart_point point[3] = { { .x = 1, .y = 10 },
                                             { .x = 10, .y = 100 },
                                             { .x = 100, .y = 1000 } };
    ct_chart_series series = { .name = "<i>", .mark = CT_MARK_DISC, .point = point, .n = 3 };
    ct_chart c = { .title = "a & b",
                   .x = { .log = true, .low = 1, .high = 100 },
                   .y = { .low = 0, .high = 1000 },
                   .series = &series,
                   .n_series = 1 };
    double x[8], y[8];
    ct_text t = { 0 };

    (void)state;
    ct_chart_draw(&c, &t);
    assert_int_equal(numbers(t.text, "cx='", x, 8), 4); /* the last is the key's */
    assert_int_equal(numbers(t.text, "cy='", y, 8), 4);
    /* in the middle of the logarithmic axis; a tenth of the other one */
    assert_true(fabs(x[1] - (x[0] + x[2]) / 2) < 0.11);
    assert_true(fabs((y[0] - y[1]) / (y[0] - y[2]) - 90.0 / 990.0) < 1e-3);
    assert_null(strstr(t.text, "<i>"));
    assert_non_null(strstr(t.text, "&#60;i&#62;, 10: 100</title>"));
    assert_non_null(strstr(t.text, "<title>a &#38; b</title>"));
    ct_text_destroy(&t);
}

static void test_gaps(void **state)
{
    ct_chart_point point[5] = { { .x = 1, .y = 1 },
                                { .x = 2, .y = 2 },
                                { .x = 3, .y = NAN },
                                { .x = 4, .y = 4 },
                                { .x = 5, .y = 5 } };
    ct_chart_series series = { .colour = 1, .stroke = CT_STROKE_SOLID, .point = point, .n = 5 };
    ct_chart c = { .series = &series, .n_series = 1 };
    ct_text t = { 0 };

    (void)state;
    ct_chart_draw(&c, &t);
    assert_null(strstr(t.text, "nan"));
    /* the curve begins twice */
    assert_int_equal(count(strstr(t.text, "stroke='#D55E00'"), "M"), 2);
    ct_text_destroy(&t);
    c.y.log = true;
    point[2].y = -3;
    ct_chart_draw(&c, &t);
    assert_int_equal(count(strstr(t.text, "stroke='#D55E00'"), "M"), 2);
    ct_text_destroy(&t);
}

/* A chart of a million points is as long as one of a thousand, and shows a single outlier. */
static void test_many_points(void **state)
{
    enum { N = 1000000 };
    ct_chart_point *point = calloc(N, sizeof(*point));
    ct_chart_series series = { .stroke = CT_STROKE_SOLID, .point = point, .n = N };
    ct_chart c = { .series = &series, .n_series = 1 };
    double high[1], far[1];
    ct_text t = { 0 };

    (void)state;
    assert_non_null(point);
    for (int i = 0; i < N; i++)
        point[i] = (ct_chart_point){ .x = i, .y = (i == 500001) ? 5 : i % 2 };
    ct_chart_draw(&c, &t);
    assert_true(t.length < 100000);
    ct_text_destroy(&t);
    point[500001].y = 0;
    c.y = (ct_chart_axis){ .low = 0, .high = 5 };
    point[500000].y = 5;
    ct_chart_draw(&c, &t);
    /* the top of the plot is where 5 is: the curve gets there */
    assert_int_equal(numbers(t.text, "class='grid' stroke='#d8d8d8' d='M76.0 ", high, 1), 1);
    assert_int_equal(numbers(t.text, "class='paper'", far, 1), 0);
    assert_non_null(strstr(strstr(t.text, "stroke='#0072B2'"), " 26.0L"));
    ct_text_destroy(&t);
    free(point);
}

/* A curve beyond an axis whose ends are given is cut off there, and a mark is left out. */
static void test_cut(void **state)
{
    const ct_chart_point point[3] = { { .x = 0, .y = 1 },
                                      { .x = 1, .y = 1e30 },
                                      { .x = 2, .y = 2 } };
    ct_chart_series series = {
        .mark = CT_MARK_DISC, .stroke = CT_STROKE_SOLID, .point = point, .n = 3
    };
    ct_chart c = { .y = { .low = 0, .high = 2 }, .series = &series, .n_series = 1 };
    ct_text t = { 0 };

    (void)state;
    ct_chart_draw(&c, &t);
    assert_int_equal(count(t.text, "</svg>"), 2);
    assert_non_null(strstr(t.text, "viewBox='76 26.0 760.0 380.0'"));
    assert_int_equal(count(t.text, "<circle"), 2);
    assert_true(t.length < 10000);
    ct_text_destroy(&t);
    c.y.high = 1e31;
    ct_chart_draw(&c, &t);
    assert_int_equal(count(t.text, "</svg>"), 1);
    assert_int_equal(count(t.text, "<circle"), 3);
    ct_text_destroy(&t);
}

static void test_empty(void **state)
{
    ct_chart c = { .title = "nothing" };
    ct_chart_point one = { .x = 3, .y = 3 };
    ct_chart_series series = { .mark = CT_MARK_DISC, .point = &one, .n = 1 };
    ct_text t = { 0 };

    (void)state;
    ct_chart_draw(&c, &t);
    c.series = &series;
    c.n_series = 1;
    ct_chart_draw(&c, &t);
    one.y = 0;
    c.y.log = true;
    ct_chart_draw(&c, &t);
    assert_int_equal(count(t.text, "</svg>"), 3);
    assert_null(strstr(t.text, "nan"));
    assert_null(strstr(t.text, "inf"));
    ct_text_destroy(&t);
}

static void test_bars(void **state)
{
    static const char *const bar[2] = { "one", "two" };
    static const char *const part[2] = { "a", "b" };
    static const double value[4] = { 1, 3, 2, NAN };
    ct_bars b = { .n_bar = 2, .n_part = 2, .bar = bar, .part = part, .value = value };
    double height[16];
    ct_text t = { 0 };
    int n;

    (void)state;
    ct_bars_draw(&b, &t);
    n = numbers(t.text, "' height='", height, 16); /* that of all, three parts, two of the key */
    assert_int_equal(n, 7);
    assert_true(fabs(height[3] / height[2] - 3) < 0.01);
    assert_true(fabs(height[4] / height[2] - 2) < 0.01);
    assert_non_null(strstr(t.text, "<title>one, b: 3</title>"));
    ct_text_destroy(&t);
}

/* Names that are wider than their bars are turned, and cut between characters. */
static void test_long_names(void **state)
{
    static const char *const bar[2] = {
        "one",
        "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
        "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4 and much more of a name "
        "that has no room"
    };
    static const char *const part[1] = { "a" };
    static const double value[2] = { 1, 3 };
    ct_bars b = { .n_bar = 2, .n_part = 1, .bar = bar, .part = part, .value = value };
    ct_text t = { 0 };

    (void)state;
    ct_bars_draw(&b, &t);
    assert_int_equal(count(t.text, "rotate(-35)"), 2);
    assert_int_equal(count(t.text, "\xc3\xa4\xe2\x80\xa6</text>"), 1);
    assert_int_equal(count(t.text, "that has no room, a: 3</title>"), 1);
    ct_text_destroy(&t);
}

static void test_matrix(void **state)
{
    static const char *const name[2] = { "cat", "dog & <b>" };
    static const double value[4] = { 3, 1, 0, 0 };
    ct_matrix m = {
        .row_label = "true", .column_label = "said", .n = 2, .name = name, .value = value
    };
    double share[4];
    ct_text t = { 0 };

    (void)state;
    ct_matrix_draw(&m, &t);
    assert_int_equal(numbers(t.text, "fill-opacity='", share, 4), 4);
    assert_true(fabs(share[0] - 0.9 * 0.75) < 1e-3);
    assert_true(fabs(share[1] - 0.9 * 0.25) < 1e-3);
    assert_true(share[2] == 0.0); /* a row without samples */
    assert_non_null(strstr(t.text, "<title>cat as dog &#38; &#60;b&#62;: 1, 25.0 %</title>"));
    ct_text_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_escaped),
        cmocka_unit_test(test_points_lie_where_they_are),
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_many_points),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_bars),
        cmocka_unit_test(test_matrix),
        cmocka_unit_test(test_long_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
