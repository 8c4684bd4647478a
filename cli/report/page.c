#include "cli/report/page.h"

#include <math.h>

static const char style[] =
    ":root{color-scheme:light dark}"
    "body{font-family:sans-serif;max-width:62em;margin:2em auto;padding:0 1em;line-height:1.4;"
    "background:#fff;color:#222;overflow-wrap:anywhere}"
    "table{border-collapse:collapse;margin:1em 0;display:block;overflow-x:auto}"
    "th,td{padding:.25em .8em;border-bottom:1px solid #8884;text-align:right}"
    "th:first-child,td:first-child{text-align:left}"
    ".samples{display:flex;flex-wrap:wrap;gap:1em}"
    "figure{margin:0;max-width:9em;font-size:.85em}"
    "img{image-rendering:pixelated;max-width:100%}"
    "figure img{width:8em}.pairs figure{max-width:24em}.pairs img{width:24em}"
    ".wrong{color:#b03000}"
    "@media (prefers-color-scheme:dark){body{background:#16181c;color:#dcdcdc}"
    ".wrong{color:#ff9d70}}";

void ct_page_begin(const ct_run_data *run, int n_run, ct_text *t)
{
    ct_text_add(t,
                "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
                "name=\"viewport\" content=\"width=device-width\">\n<meta "
                "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
                "'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n<title>");
    for (int i = 0; i < n_run; i++) {
        if (i > 0) ct_text_add(t, ", ");
        ct_text_add_escaped(t, run[i].name);
    }
    ct_text_add(t, " - Cortado</title>\n<style>%s</style>\n</head>\n<body>\n", style);
    ct_page_heading(1, (n_run > 1) ? "Runs" : run[0].name, t);
}

void ct_page_end(ct_text *t)
{
    ct_text_add(t, "</body>\n</html>\n");
}

void ct_page_heading(int level, const char *text, ct_text *t)
{
    ct_text_add(t, "<h%d>", level);
    ct_text_add_escaped(t, text);
    ct_text_add(t, "</h%d>\n", level);
}

void ct_page_head(const char *text, ct_text *t)
{
    ct_text_add(t, "<th>");
    ct_text_add_escaped(t, text);
    ct_text_add(t, "</th>");
}

void ct_page_cell(const char *text, ct_text *t)
{
    ct_text_add(t, "<td>");
    ct_text_add_escaped(t, text);
    ct_text_add(t, "</td>");
}

void ct_page_number(double v, int digits, ct_text *t)
{
    if (isfinite(v))
        ct_text_add(t, "<td>%.*g</td>", digits, v);
    else
        ct_text_add(t, "<td>&ndash;</td>");
}

void ct_page_head_of_runs(const char *first, const ct_run_data *run, int n_run, ct_text *t)
{
    ct_text_add(t, "<tr>");
    ct_page_head(first, t);
    for (int i = 0; i < n_run; i++) ct_page_head(run[i].name, t);
    ct_text_add(t, "</tr>\n");
}
