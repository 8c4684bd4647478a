#include "framework/report/chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const colours[CT_CHART_COLOURS] = { "#0072B2", "#D55E00", "#009E73", "#E69F00",
                                                       "#CC79A7", "#56B4E9", "#8C6D1F", "#7A3E9D" };

/* Pixels. */
enum { WIDTH = 860, LEFT = 76, RIGHT = 24, PLOT = 380, BELOW = 52, LINE = 20, LETTER = 7 };
#define FAR 1e5 /* beyond any plot */
enum { MOST_TICKS = 64, MOST_TEXT = 64, MOST_LETTERS = 18 /* of a name that is turned */ };

static const char style[] =
    "<style>.chart{max-width:100%;height:auto}"
    "@media (prefers-color-scheme:dark){.chart .paper{fill:#16181c}.chart .ink{fill:#dcdcdc}"
    ".chart .edge{stroke:#b4b4b4}.chart .grid{stroke:#3c4046}}</style>\n";

/* Where a chart's parts are. */
typedef struct place {
    double top, bottom, height; /* of the plot; of all */
    ct_chart_axis x, y;         /* with their ends and ticks known */
    double x_tick[MOST_TICKS], y_tick[MOST_TICKS];
} place;

/* ---- text */

void ct_text_add_escaped(ct_text *t, const char *s)
{
    for (; *s != '\0'; s++) {
        if (strchr("<>&'\"", *s) != NULL) {
            ct_text_add(t, "&#%d;", *s);
        } else if ((unsigned char)*s >= ' ') {
            ct_text_add_bytes(t, s, 1);
        }
    }
}

static const char *colour_of(int number)
{
    if (number == CT_CHART_GREY) return "#888888";
    if (number == CT_CHART_INK) return "#222222";
    return colours[number % CT_CHART_COLOURS];
}

/* A series in ink is dark or light, as the text is: its class says so. */
static const char *class_of(int number, const char *ink)
{
    return (number == CT_CHART_INK) ? ink : "";
}

/* Characters, not bytes: in UTF-8 all but the first of a character begin with the bits 10. */
static int letters(const char *s)
{
    int n = 0;

    for (; *s != '\0'; s++) n += ((*s & 0xC0) != 0x80);
    return n;
}

static void begin(const char *title, double width, double height, ct_text *out)
{
    ct_text_add(out,
                "<svg xmlns='http://www.w3.org/2000/svg' class='chart' role='img' width='%.0f' "
                "height='%.0f' viewBox='0 0 %.0f %.0f' font-family='sans-serif' font-size='12'>\n",
                width, height, width, height);
    ct_text_add(out, "%s<title>", style);
    ct_text_add_escaped(out, (title != NULL) ? title : "");
    ct_text_add(out,
                "</title>\n<rect class='paper' width='100%%' height='100%%' fill='#ffffff'/>\n");
}

/* anchor: "start", "middle", "end". */
static void write_at(double x, double y, const char *anchor, int size, const char *text,
                     ct_text *out)
{
    ct_text_add(out, "<text class='ink' fill='#222222' x='%.1f' y='%.1f' text-anchor='%s'", x, y,
                anchor);
    if (size != 12) ct_text_add(out, " font-size='%d'", size);
    ct_text_add(out, ">");
    ct_text_add_escaped(out, text);
    ct_text_add(out, "</text>\n");
}

static double write_titles(const char *title, const char *subtitle, ct_text *out)
{
    double y = 10;

    if (title != NULL) write_at(LEFT, y += 16, "start", 15, title, out);
    if (subtitle != NULL) write_at(LEFT, y += 18, "start", 12, subtitle, out);
    return y + 16;
}

static void write_label_of_y(double top, double bottom, const char *label, ct_text *out)
{
    if (label == NULL) return;
    ct_text_add(out,
                "<text class='ink' fill='#222222' transform='translate(18 %.1f) rotate(-90)' "
                "text-anchor='middle'>",
                (top + bottom) / 2);
    ct_text_add_escaped(out, label);
    ct_text_add(out, "</text>\n");
}

static void draw_line(double x0, double y0, double x1, double y1, const char *class, ct_text *out)
{
    ct_text_add(out, "<path class='%s' stroke='%s' d='M%.1f %.1f L%.1f %.1f'/>\n", class,
                (strcmp(class, "grid") == 0) ? "#d8d8d8" : "#444444", x0, y0, x1, y1);
}

/* ---- the key: entries flow in rows below the plot */

typedef struct flow {
    double x, y;
} flow;

static void flow_next(flow *f, const char *name)
{
    double width = 34 + LETTER * (double)letters(name);

    if ((f->x > LEFT) && (f->x + width > WIDTH - RIGHT)) {
        f->x = LEFT;
        f->y += LINE;
    }
}

static void flow_past(flow *f, const char *name)
{
    f->x += 34 + LETTER * (double)letters(name);
}

/* ---- marks */

static void add_mark(ct_mark mark, double x, double y, double r, const char *colour, ct_text *out)
{
    const char *fill = (mark == CT_MARK_CIRCLE) ? "none" : colour;
    double side = r * 1.7725; /* sqrt(pi): the area of the disc */

    if (mark == CT_MARK_SQUARE) {
        ct_text_add(out, "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f'", x - side / 2,
                    y - side / 2, side, side);
    } else if (mark == CT_MARK_TRIANGLE) {
        ct_text_add(out, "<path d='M%.1f %.1f l%.1f %.1f h%.1f z'", x, y - 1.2 * r, 1.2 * r,
                    2.1 * r, -2.4 * r);
    } else {
        ct_text_add(out, "<circle cx='%.1f' cy='%.1f' r='%.1f'", x, y, r);
    }
    ct_text_add(out, " fill='%s' fill-opacity='0.6' stroke='%s'>", fill, colour);
}

static void end_mark(ct_mark mark, ct_text *out)
{
    ct_text_add(out, "</%s>\n",
                (mark == CT_MARK_SQUARE)     ? "rect"
                : (mark == CT_MARK_TRIANGLE) ? "path"
                                             : "circle");
}

static const char *dash_of(ct_chart_stroke stroke)
{
    return (stroke == CT_STROKE_DASHED)   ? " stroke-dasharray='7 4'"
           : (stroke == CT_STROKE_DOTTED) ? " stroke-dasharray='2 3'"
                                          : "";
}

/* ---- axes */

static bool is_there(const ct_chart_axis *a, double v)
{
    return isfinite(v) && (!a->log || (v > 0.0));
}

static double scaled(const ct_chart_axis *a, double v)
{
    return a->log ? log10(v) : v;
}

/* Grows the axis to hold v. */
static void hold(ct_chart_axis *a, double v)
{
    if (!is_there(a, v)) return;
    if (!(v >= a->low)) a->low = v; /* NAN at first */
    if (!(v <= a->high)) a->high = v;
}

/* Ends of an axis that nobody gave: the values, and a little room. */
static void find_ends(const ct_chart *c, bool of_x, ct_chart_axis *a)
{
    double room;

    if (a->low < a->high) return;
    a->low = a->high = NAN;
    for (int s = 0; s < c->n_series; s++) {
        for (int64_t i = 0; i < c->series[s].n; i++) {
            const ct_chart_point *p = &c->series[s].point[i];

            if (!is_there(&c->x, p->x) || !is_there(&c->y, p->y)) continue;
            hold(a, of_x ? p->x : p->y);
            if (of_x || !(p->low < p->high)) continue;
            hold(a, p->low);
            hold(a, p->high);
        }
    }
    if (isnan(a->low)) {
        a->low = a->log ? 1.0 : 0.0;
        a->high = 10.0;
    }
    if (a->log) {
        room = fmax(pow(a->high / a->low, 0.04), 1.05);
        a->low /= room;
        a->high *= room;
        return;
    }
    if (!(a->high > a->low))
        room = (a->low != 0.0) ? fabs(a->low) / 2 : 1.0;
    else
        room = of_x ? 0.0 : (a->high - a->low) / 20;
    if (!of_x && (a->low >= 0.0) && (a->low - room < 0.0))
        a->low = 0.0;
    else
        a->low -= room;
    a->high += room;
}

/* 1, 2 or 5 times a power of ten: at most about seven of them. */
static int linear_ticks(const ct_chart_axis *a, double *tick)
{
    double rough = (a->high - a->low) / 7, power = pow(10, floor(log10(rough)));
    double step = (rough <= power)       ? power
                  : (rough <= 2 * power) ? 2 * power
                  : (rough <= 5 * power) ? 5 * power
                                         : 10 * power;
    int n = 0;

    for (double i = ceil(a->low / step - 1e-9); (i * step <= a->high + step * 1e-9) && (n < 16);
         i++)
        tick[n++] = i * step + 0.0; /* not -0 */
    return n;
}

/* Powers of ten, or of four; of few decades 2 and 5 times them, too. */
static int log_ticks(const ct_chart_axis *a, double *tick)
{
    double base = a->bytes ? 4.0 : 10.0, decades = log(a->high / a->low) / log(base);
    bool between = !a->bytes && (decades < 2.0);
    int every = 1 + (int)(decades / 14), n = 0;

    for (int e = (int)floor(log(a->low) / log(base)); n < 40; e += every) {
        static const double times[3] = { 1.0, 2.0, 5.0 };

        if (pow(base, e) > a->high) break;
        for (int k = 0; k < (between ? 3 : 1); k++) {
            double v = pow(base, e) * times[k];

            if ((v >= a->low * (1 - 1e-9)) && (v <= a->high * (1 + 1e-9))) tick[n++] = v;
        }
    }
    return (n < 2) ? linear_ticks(a, tick) : n;
}

/* Of given ticks only as many as can be read. */
static int given_ticks(const ct_chart_axis *a, double *tick)
{
    int every = 1 + a->n_tick / 16, n = 0;

    for (int i = 0; (i < a->n_tick) && (n < MOST_TICKS); i += every) tick[n++] = a->tick[i];
    return n;
}

static void find_ticks(ct_chart_axis *a, double *tick)
{
    a->n_tick = (a->tick != NULL) ? given_ticks(a, tick)
                : a->log          ? log_ticks(a, tick)
                                  : linear_ticks(a, tick);
    a->tick = tick;
}

static void tick_text(const ct_chart_axis *a, double v, char text[MOST_TEXT])
{
    static const char *const unit[] = { "", "K", "M", "G", "T" };
    int k = 0;

    while (a->bytes && (v >= 1024.0) && (k < 4)) {
        v /= 1024.0;
        k++;
    }
    snprintf(text, MOST_TEXT, "%.6g%s", v, unit[k]);
}

static double at_x(const place *p, double v)
{
    double low = scaled(&p->x, p->x.low), high = scaled(&p->x, p->x.high);

    return LEFT + (WIDTH - LEFT - RIGHT) * (scaled(&p->x, v) - low) / (high - low);
}

static double at_y(const place *p, double v)
{
    double low = scaled(&p->y, p->y.low), high = scaled(&p->y, p->y.high);

    return p->bottom - (p->bottom - p->top) * (scaled(&p->y, v) - low) / (high - low);
}

static void draw_axes(const place *p, ct_text *out)
{
    char text[MOST_TEXT];

    for (int i = 0; i < p->x.n_tick; i++) {
        double x = at_x(p, p->x.tick[i]);

        tick_text(&p->x, p->x.tick[i], text);
        draw_line(x, p->top, x, p->bottom, "grid", out);
        write_at(x, p->bottom + 17, "middle", 12, text, out);
    }
    for (int i = 0; i < p->y.n_tick; i++) {
        double y = at_y(p, p->y.tick[i]);

        tick_text(&p->y, p->y.tick[i], text);
        draw_line(LEFT, y, WIDTH - RIGHT, y, "grid", out);
        write_at(LEFT - 7, y + 4, "end", 12, text, out);
    }
    draw_line(LEFT, p->bottom, WIDTH - RIGHT, p->bottom, "edge", out);
    draw_line(LEFT, p->top, LEFT, p->bottom, "edge", out);
    if (p->x.label != NULL)
        write_at((LEFT + WIDTH - RIGHT) / 2.0, p->bottom + 38, "middle", 12, p->x.label, out);
    write_label_of_y(p->top, p->bottom, p->y.label, out);
}

/* ---- curves and points */

static bool is_seen(const place *p, const ct_chart_point *q)
{
    double room = 1e-9;

    return is_there(&p->x, q->x) && is_there(&p->y, q->y) &&
           (scaled(&p->x, q->x) >= scaled(&p->x, p->x.low) - room) &&
           (scaled(&p->x, q->x) <= scaled(&p->x, p->x.high) + room);
}

static bool is_within(const place *p, double y)
{
    double room = 1e-9;

    return (scaled(&p->y, y) >= scaled(&p->y, p->y.low) - room) &&
           (scaled(&p->y, y) <= scaled(&p->y, p->y.high) + room);
}

/* Whether a curve leaves an axis whose ends are given. */
static bool leaves(const place *p, const ct_chart *c)
{
    for (int s = 0; s < c->n_series; s++)
        for (int64_t i = 0; i < c->series[s].n; i++)
            if (is_seen(p, &c->series[s].point[i]) && !is_within(p, c->series[s].point[i].y))
                return true;
    return false;
}

/* What a curve has in one column of pixels: of many points the first, the extremes and the last
 * draw the same. */
typedef struct run {
    double x, first, low, high, last;
    int64_t n;
} run;

static void end_run(const run *r, bool *pen_p, ct_text *out)
{
    if (r->n == 0) return;
    ct_text_add(out, "%s%.1f %.1f", *pen_p ? "L" : "M", r->x, r->first);
    if (r->n > 2) ct_text_add(out, "L%.1f %.1fL%.1f %.1f", r->x, r->low, r->x, r->high);
    if (r->n > 1) ct_text_add(out, "L%.1f %.1f", r->x, r->last);
    *pen_p = true;
}

static void draw_curve(const place *p, const ct_chart_series *s, ct_text *out)
{
    bool pen = false;
    run r = { .n = 0 };

    if (s->stroke == CT_STROKE_NONE) return;
    ct_text_add(out, "<path class='%s' fill='none' stroke='%s' stroke-width='1.6'%s d='",
                class_of(s->colour, "edge"), colour_of(s->colour), dash_of(s->stroke));
    for (int64_t i = 0; i < s->n; i++) {
        bool seen = is_seen(p, &s->point[i]);
        double x = seen ? at_x(p, s->point[i].x) : 0.0, y = seen ? at_y(p, s->point[i].y) : 0.0;

        y = fmin(fmax(y, -FAR), FAR); /* what diverges has no place in a picture */
        if (seen && (r.n > 0) && (floor(x) == floor(r.x))) {
            r.low = fmin(r.low, y);
            r.high = fmax(r.high, y);
            r.last = y;
            r.n += 1;
            continue;
        }
        end_run(&r, &pen, out);
        pen = pen && seen;
        r = (run){ x, y, y, y, y, seen ? 1 : 0 };
    }
    end_run(&r, &pen, out);
    ct_text_add(out, "'/>\n");
}

/* Curves that leave the axes end there: a picture in the picture cuts them off. */
static void draw_curves(const place *p, const ct_chart *c, ct_text *out)
{
    bool cuts = leaves(p, c);
    double width = WIDTH - LEFT - RIGHT, height = p->bottom - p->top;

    if (cuts)
        ct_text_add(
            out, "<svg x='%d' y='%.1f' width='%.1f' height='%.1f' viewBox='%d %.1f %.1f %.1f'>\n",
            LEFT, p->top, width, height, LEFT, p->top, width, height);
    for (int s = 0; s < c->n_series; s++) draw_curve(p, &c->series[s], out);
    if (cuts) ct_text_add(out, "</svg>\n");
}

static void draw_points(const place *p, const ct_chart_series *s, ct_text *out)
{
    const char *colour = colour_of(s->colour);

    for (int64_t i = 0; i < s->n; i++) {
        const ct_chart_point *q = &s->point[i];
        double x, y;

        if (!is_seen(p, q) || !is_within(p, q->y)) continue;
        x = at_x(p, q->x);
        y = at_y(p, q->y);
        if ((q->low < q->high) && is_there(&p->y, q->low))
            ct_text_add(out, "<path stroke='%s' d='M%.1f %.1f V%.1f m-3 0 h6 M%.1f %.1f h6'/>\n",
                        colour, x, at_y(p, q->low), at_y(p, q->high), x - 3, at_y(p, q->low));
        if (s->mark != CT_MARK_NONE) {
            add_mark(s->mark, x, y, (q->radius > 0) ? q->radius : 3.5, colour, out);
            ct_text_add(out, "<title>");
            if (q->tip != NULL) {
                ct_text_add_escaped(out, q->tip);
            } else {
                if (s->name != NULL) ct_text_add_escaped(out, s->name);
                ct_text_add(out, "%s%.6g: %.6g", (s->name != NULL) ? ", " : "", q->x, q->y);
            }
            ct_text_add(out, "</title>");
            end_mark(s->mark, out);
        }
        if (q->label != NULL) write_at(x + 5, y + 4, "start", 10, q->label, out);
    }
}

static double flow_all(const ct_chart *c, double y)
{
    flow f = { LEFT, y };

    for (int s = 0; s < c->n_series; s++) {
        if (c->series[s].name == NULL) continue;
        flow_next(&f, c->series[s].name);
        flow_past(&f, c->series[s].name);
    }
    return f.y;
}

static void draw_key(const ct_chart *c, double y, ct_text *out)
{
    flow f = { LEFT, y };

    for (int i = 0; i < c->n_series; i++) {
        const ct_chart_series *s = &c->series[i];
        const char *colour = colour_of(s->colour);

        if (s->name == NULL) continue;
        flow_next(&f, s->name);
        if (s->stroke != CT_STROKE_NONE)
            ct_text_add(out,
                        "<path class='%s' stroke='%s' stroke-width='1.6'%s d='M%.1f %.1f h20'/>\n",
                        class_of(s->colour, "edge"), colour, dash_of(s->stroke), f.x, f.y - 4);
        if (s->mark != CT_MARK_NONE) {
            add_mark(s->mark, f.x + 10, f.y - 4, 3.5, colour, out);
            end_mark(s->mark, out);
        }
        write_at(f.x + 25, f.y, "start", 12, s->name, out);
        flow_past(&f, s->name);
    }
}

void ct_chart_draw(const ct_chart *c, ct_text *out)
{
    place p = { .x = c->x, .y = c->y };
    double below;

    p.top = 26.0 + ((c->title != NULL) ? 16 : 0) + ((c->subtitle != NULL) ? 18 : 0);
    p.bottom = p.top + PLOT;
    below = p.bottom + BELOW + 8;
    p.height = flow_all(c, below) + 12;
    find_ends(c, true, &p.x);
    find_ends(c, false, &p.y);
    find_ticks(&p.x, p.x_tick);
    find_ticks(&p.y, p.y_tick);
    begin(c->title, WIDTH, p.height, out);
    (void)write_titles(c->title, c->subtitle, out);
    draw_axes(&p, out);
    draw_curves(&p, c, out);
    for (int s = 0; s < c->n_series; s++) draw_points(&p, &c->series[s], out);
    draw_key(c, below, out);
    ct_text_add(out, "</svg>\n");
}

/* ---- stacked bars */

static double part_of(const ct_bars *b, int bar, int part)
{
    double v = b->value[bar * b->n_part + part];

    return (isfinite(v) && (v > 0.0)) ? v : 0.0;
}

/* As much of a name as has room; the bar's tip has it whole. */
static void add_beginning(ct_text *out, const char *name)
{
    ct_text some = { 0 };
    int n = 0;

    for (; (*name != '\0') && ((n < MOST_LETTERS) || ((*name & 0xC0) == 0x80)); name++) {
        n += ((*name & 0xC0) != 0x80);
        ct_text_add_bytes(&some, name, 1);
    }
    if (some.text != NULL) ct_text_add_escaped(out, some.text);
    if (*name != '\0') ct_text_add(out, "…");
    out->failed |= some.failed;
    ct_text_destroy(&some);
}

/* Whether some name is wider than its bar has room for. */
static bool is_turned(const ct_bars *b)
{
    int longest = 0;

    for (int i = 0; i < b->n_bar; i++)
        longest = (letters(b->bar[i]) > longest) ? letters(b->bar[i]) : longest;
    return LETTER * longest * b->n_bar > WIDTH - LEFT - RIGHT;
}

static void draw_bar(const ct_bars *b, const place *p, int bar, bool turned, ct_text *out)
{
    double wide = (double)(WIDTH - LEFT - RIGHT) / b->n_bar, x = LEFT + wide * bar, from = 0.0;

    for (int k = 0; k < b->n_part; k++) {
        double v = part_of(b, bar, k), y = at_y(p, from + v);

        if (v > 0.0) {
            ct_text_add(out, "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='%s'><title>",
                        x + wide * 0.15, y, wide * 0.7, at_y(p, from) - y, colour_of(k));
            ct_text_add_escaped(out, b->bar[bar]);
            ct_text_add(out, ", ");
            ct_text_add_escaped(out, b->part[k]);
            ct_text_add(out, ": %.6g</title></rect>\n", v);
        }
        from += v;
    }
    if (!turned) {
        write_at(x + wide / 2, p->bottom + 17, "middle", 12, b->bar[bar], out);
        return;
    }
    ct_text_add(out,
                "<text class='ink' fill='#222222' transform='translate(%.1f %.1f) rotate(-35)' "
                "text-anchor='end' font-size='10'>",
                x + wide / 2 + 4, p->bottom + 14);
    add_beginning(out, b->bar[bar]);
    ct_text_add(out, "</text>\n");
}

void ct_bars_draw(const ct_bars *b, ct_text *out)
{
    place p = { .y.high = 0.0 };
    flow f = { LEFT, 0 };
    bool turned = is_turned(b);
    char text[MOST_TEXT];

    for (int i = 0; i < b->n_bar; i++) {
        double sum = 0.0;

        for (int k = 0; k < b->n_part; k++) sum += part_of(b, i, k);
        p.y.high = fmax(p.y.high, sum);
    }
    p.y.high = (p.y.high > 0.0) ? p.y.high * 1.05 : 1.0;
    find_ticks(&p.y, p.y_tick);
    p.top = 26.0 + ((b->title != NULL) ? 16 : 0) + ((b->subtitle != NULL) ? 18 : 0);
    p.bottom = p.top + PLOT;
    f.y = p.bottom + (turned ? 96 : 44);
    begin(b->title, WIDTH, f.y + 3 * LINE, out);
    (void)write_titles(b->title, b->subtitle, out);
    for (int i = 0; i < p.y.n_tick; i++) {
        double y = at_y(&p, p.y.tick[i]);

        tick_text(&p.y, p.y.tick[i], text);
        draw_line(LEFT, y, WIDTH - RIGHT, y, "grid", out);
        write_at(LEFT - 7, y + 4, "end", 12, text, out);
    }
    write_label_of_y(p.top, p.bottom, b->label, out);
    for (int i = 0; i < b->n_bar; i++) draw_bar(b, &p, i, turned, out);
    draw_line(LEFT, p.bottom, WIDTH - RIGHT, p.bottom, "edge", out);
    for (int k = 0; k < b->n_part; k++) {
        flow_next(&f, b->part[k]);
        ct_text_add(out, "<rect x='%.1f' y='%.1f' width='11' height='11' fill='%s'/>\n", f.x + 6,
                    f.y - 10, colour_of(k));
        write_at(f.x + 25, f.y, "start", 12, b->part[k], out);
        flow_past(&f, b->part[k]);
    }
    ct_text_add(out, "</svg>\n");
}

/* ---- matrices */

static void draw_row(const ct_matrix *m, int row, double left, double top, double cell,
                     ct_text *out)
{
    double sum = 0.0;

    for (int c = 0; c < m->n; c++) sum += m->value[row * m->n + c];
    for (int c = 0; c < m->n; c++) {
        double v = m->value[row * m->n + c], share = (sum > 0.0) ? v / sum : 0.0;
        double x = left + c * cell, y = top + row * cell;

        ct_text_add(out,
                    "<rect class='edge' x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='%s' "
                    "fill-opacity='%.3f' stroke='#444444' stroke-width='0.3'><title>",
                    x, y, cell, cell, colour_of((row == c) ? 0 : 1), 0.9 * share);
        ct_text_add_escaped(out, m->name[row]);
        ct_text_add(out, " as ");
        ct_text_add_escaped(out, m->name[c]);
        ct_text_add(out, ": %.6g, %.1f %%</title></rect>\n", v, 100 * share);
        if ((cell >= 24) && (v > 0.0)) {
            char text[MOST_TEXT];

            snprintf(text, sizeof(text), "%.6g", v);
            write_at(x + cell / 2, y + cell / 2 + 4, "middle", (cell >= 36) ? 12 : 9, text, out);
        }
    }
}

void ct_matrix_draw(const ct_matrix *m, ct_text *out)
{
    double cell = fmax(10, fmin(48, 560.0 / m->n)), left = 60, top, side = cell * m->n;
    int size = (cell >= 14) ? 12 : 9, longest = 0;

    for (int i = 0; i < m->n; i++)
        longest = (letters(m->name[i]) > longest) ? letters(m->name[i]) : longest;
    left += LETTER * (double)longest;
    top = 60 + LETTER * (double)longest;
    begin(m->title, fmax(left + side + RIGHT, 420), top + side + 20, out);
    if (m->title != NULL) write_at(18, 26, "start", 15, m->title, out);
    write_at(left + side / 2, 48, "middle", 12, m->column_label, out);
    write_label_of_y(top, top + side, m->row_label, out);
    for (int i = 0; i < m->n; i++) {
        write_at(left - 6, top + (i + 0.5) * cell + 4, "end", size, m->name[i], out);
        ct_text_add(out,
                    "<text class='ink' fill='#222222' font-size='%d' transform='translate(%.1f "
                    "%.1f) rotate(-90)'>",
                    size, left + (i + 0.5) * cell + 4, top - 6);
        ct_text_add_escaped(out, m->name[i]);
        ct_text_add(out, "</text>\n");
    }
    for (int i = 0; i < m->n; i++) draw_row(m, i, left, top, cell, out);
    ct_text_add(out, "</svg>\n");
}
