/** @file chart.h  Charts as SVG: curves and points, stacked bars, matrices.
 *
 * Each is one <svg> element, for an HTML page or a file of its own. Text of any origin is escaped.
 * Colours of series differ for everyone (Okabe and Ito, "Color Universal Design", 2008). Ink, paper
 * and grid follow the reader's choice of light or dark by CSS; without CSS they are dark on light.
 * A short text under the pointer tells the numbers.
 *
 * Nothing here fails but for memory, which the text remembers (ct_text.failed).
 */
#ifndef CT_CHART_H
#define CT_CHART_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/text.h"

/** Colours of series are numbers, which go round. */
enum { CT_CHART_COLOURS = 8, CT_CHART_GREY = -1, CT_CHART_INK = -2 };

typedef enum {
    CT_MARK_NONE,
    CT_MARK_DISC,
    CT_MARK_CIRCLE,
    CT_MARK_SQUARE,
    CT_MARK_TRIANGLE
} ct_mark;
typedef enum {
    CT_STROKE_NONE,
    CT_STROKE_SOLID,
    CT_STROKE_DASHED,
    CT_STROKE_DOTTED
} ct_chart_stroke;

typedef struct ct_chart_point {
    double x, y;       /* where one is not finite, or not over 0 on a log axis, a line has a gap */
    double low, high;  /* low < high: a bar from one to the other                            */
    double radius;     /* of the mark; 0: as the others                                      */
    const char *label; /* beside it; NULL: none                                              */
    const char *tip;   /* under the pointer; NULL: the series, x and y   */
} ct_chart_point;

typedef struct ct_chart_series {
    const char *name; /* in the key; NULL: not there */
    int colour;
    ct_mark mark;
    ct_chart_stroke stroke;
    const ct_chart_point *point; /* borrowed */
    int64_t n;
} ct_chart_series;

typedef struct ct_chart_axis {
    const char *label;
    bool log;           /* values that are not over 0 are left out       */
    bool bytes;         /* ticks as 64K, 1M: powers of 4                 */
    double low, high;   /* low < high: from one to the other, and no mark or curve beyond; otherwise
                         * as the values are */
    const double *tick; /* where ticks are; NULL: the chart chooses      */
    int n_tick;
} ct_chart_axis;

/** Curves and points over two axes. */
typedef struct ct_chart {
    const char *title, *subtitle; /* NULL: none */
    ct_chart_axis x, y;
    const ct_chart_series *series;
    int n_series;
} ct_chart;

/** Bars of stacked parts. */
typedef struct ct_bars {
    const char *title, *subtitle, *label; /* label: of the values */
    int n_bar, n_part;
    const char *const *bar, *const *part; /* names                                  */
    const double *value;                  /* [bar][part]; not finite: counts as 0 */
} ct_bars;

/** Numbers in rows and columns; a cell is as dark as its share of the row. */
typedef struct ct_matrix {
    const char *title, *row_label, *column_label;
    int n; /* rows, and columns */
    const char *const *name;
    const double *value; /* [row][column], not under 0 */
} ct_matrix;

void ct_chart_draw(const ct_chart *c, ct_text *out);
void ct_bars_draw(const ct_bars *b, ct_text *out);
void ct_matrix_draw(const ct_matrix *m, ct_text *out);
/** Appends s as text of HTML and SVG, in an element or in an attribute. Control characters are left
 *  out. */
void ct_text_add_escaped(ct_text *t, const char *s);

#endif
