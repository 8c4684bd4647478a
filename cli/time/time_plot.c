/* The roofline: operations a second over operations a byte, both logarithmic, as an SVG picture.
 * A disc is a forward, a square a backward; its area is its share of the time of all. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/time/time_result.h"

/* Colours that differ for everyone (Okabe and Ito). */
static const char *const colour[] = { "#0072B2", "#D55E00", "#009E73", "#E69F00",
                                      "#CC79A7", "#56B4E9", "#8C6D1F", "#888888" };
enum { N_COLOUR = sizeof(colour) / sizeof(colour[0]), MAX_LABEL = 14 };
enum { WIDTH = 900, HEIGHT = 600, LEFT = 70, RIGHT = 160, TOP = 50, BOTTOM = 60 };

typedef struct plot {
    const ct_time_result *r;
    ct_time_pass *list; /* those that compute, longest first */
    int n;
    double total_ms;
    double x_min, x_max, y_min, y_max; /* powers of ten */
    const char *type[N_COLOUR];
    int n_type;
    ct_text t;
} plot;

static double x_of(const ct_time_pass *p)
{
    return p->flop / p->bytes;
}

static double y_of(const ct_time_pass *p)
{
    return p->flop / p->ms * 1e-6;
}

static double at_x(const plot *s, double v)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (log10(v) - s->x_min) / (s->x_max - s->x_min);
}

static double at_y(const plot *s, double v)
{
    return HEIGHT - BOTTOM -
           (HEIGHT - TOP - BOTTOM) * (log10(v) - s->y_min) / (s->y_max - s->y_min);
}

static int longest_first(const void *a, const void *b)
{
    const ct_time_pass *x = a, *y = b;

    return (x->ms < y->ms) - (x->ms > y->ms);
}

static void choose(plot *s)
{
    int n = 0;

    for (int i = 0; i < s->n; i++) {
        s->total_ms += s->list[i].ms;
        if ((s->list[i].flop > 0) && (s->list[i].bytes > 0) && (s->list[i].ms > 0))
            s->list[n++] = s->list[i];
    }
    s->n = n;
    qsort(s->list, (size_t)n, sizeof(*s->list), longest_first);
}

static void find_range(plot *s)
{
    const ct_machine_limit *m = &s->r->limit;
    double knee = m->flop / m->memory, lo_x = knee, hi_x = 2 * knee, lo_y = m->flop * 1e-9;

    for (int i = 0; i < s->n; i++) {
        lo_x = fmin(lo_x, x_of(&s->list[i]));
        hi_x = fmax(hi_x, x_of(&s->list[i]));
        lo_y = fmin(lo_y, y_of(&s->list[i]));
    }
    s->x_min = floor(log10(lo_x));
    s->x_max = ceil(log10(hi_x));
    s->y_min = floor(log10(lo_y));
    s->y_max = log10(m->flop * 1e-9 * 1.6);
}

static const char *colour_of(plot *s, const char *type)
{
    int k = 0;

    while ((k < s->n_type) && (strcmp(s->type[k], type) != 0)) k++;
    if ((k == s->n_type) && (k < N_COLOUR - 1)) s->type[s->n_type++] = type;
    return colour[(k < N_COLOUR - 1) ? k : N_COLOUR - 1];
}

/* Text of a prototxt is anybody's. */
static void add_escaped(ct_text *t, const char *s)
{
    for (; *s != '\0'; s++) {
        if ((*s == '<') || (*s == '>') || (*s == '&')) {
            ct_text_add(t, "&#%d;", *s);
        } else if ((unsigned char)*s >= ' ') {
            ct_text_add_bytes(t, s, 1);
        }
    }
}

static void grid(plot *s)
{
    for (int e = (int)s->x_min; e <= (int)s->x_max; e++) {
        double x = at_x(s, pow(10, e));

        ct_text_add(&s->t,
                    "<path d='M%.1f %d V%d' stroke='#d8d8d8'/><text x='%.1f' y='%d' "
                    "text-anchor='middle'>%g</text>\n",
                    x, TOP, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 20, pow(10, e));
    }
    for (int e = (int)s->y_min; e <= (int)floor(s->y_max); e++) {
        double y = at_y(s, pow(10, e));

        ct_text_add(&s->t,
                    "<path d='M%d %.1f H%d' stroke='#d8d8d8'/><text x='%d' y='%.1f' "
                    "text-anchor='end'>%g</text>\n",
                    LEFT, y, WIDTH - RIGHT, LEFT - 8, y + 4, pow(10, e));
    }
    ct_text_add(
        &s->t,
        "<text x='%d' y='%d' text-anchor='middle'>operations a byte that must move</text>"
        "<text transform='translate(20 %d) rotate(-90)' text-anchor='middle'>GFLOP/s</text>\n",
        (WIDTH - RIGHT + LEFT) / 2, HEIGHT - 18, (HEIGHT - BOTTOM + TOP) / 2);
}

static void roof(plot *s)
{
    const ct_machine_limit *m = &s->r->limit;
    double knee = m->flop / m->memory, x0 = pow(10, s->x_min), y0 = x0 * m->memory * 1e-9;

    if (y0 < pow(10, s->y_min)) {
        y0 = pow(10, s->y_min);
        x0 = y0 / (m->memory * 1e-9);
    }
    ct_text_add(&s->t,
                "<path d='M%.1f %.1f L%.1f %.1f H%d' fill='none' stroke='#000000' "
                "stroke-width='1.6'/>\n",
                at_x(s, x0), at_y(s, y0), at_x(s, knee), at_y(s, m->flop * 1e-9), WIDTH - RIGHT);
    ct_text_add(&s->t,
                "<text x='%d' y='%.1f' text-anchor='end'>%.0f GFLOP/s, %d thread%s, %s; memory "
                "%.1f GB/s</text>\n",
                WIDTH - RIGHT, at_y(s, m->flop * 1e-9) - 6, m->flop * 1e-9, m->n_thread,
                (m->n_thread > 1) ? "s" : "", m->simd, m->memory * 1e-9);
}

static void marks(plot *s)
{
    for (int i = 0; i < s->n; i++) {
        const ct_time_pass *p = &s->list[i];
        const ct_layer *l = s->r->net->layer[p->layer];
        double x = at_x(s, x_of(p)), y = at_y(s, y_of(p));
        double radius = fmax(2.0, 40.0 * sqrt(p->ms / s->total_ms));
        const char *rgb = colour_of(s, l->ops->type);

        if (p->forward) {
            ct_text_add(&s->t, "<circle cx='%.1f' cy='%.1f' r='%.1f'", x, y, radius);
        } else {
            double side = radius * 1.7725; /* sqrt(pi): the same area */

            ct_text_add(&s->t, "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f'", x - side / 2,
                        y - side / 2, side, side);
        }
        ct_text_add(&s->t, " fill='%s' fill-opacity='0.55' stroke='%s'><title>", rgb, rgb);
        add_escaped(&s->t, l->name);
        ct_text_add(&s->t, " %s: %.3f ms, %.1f GFLOP/s, %.1f GB/s %s</title></%s>\n",
                    p->forward ? "forward" : "backward", p->ms, y_of(p), p->bytes / p->ms * 1e-6,
                    p->engine, p->forward ? "circle" : "rect");
    }
    for (int i = 0; (i < s->n) && (i < MAX_LABEL); i++) {
        const ct_time_pass *p = &s->list[i];

        ct_text_add(&s->t, "<text x='%.1f' y='%.1f' font-size='10'>", at_x(s, x_of(p)) + 5,
                    at_y(s, y_of(p)) + 4);
        add_escaped(&s->t, s->r->net->layer[p->layer]->name);
        ct_text_add(&s->t, "%s</text>\n", p->forward ? "" : " b");
    }
}

static void key(plot *s)
{
    int x = WIDTH - RIGHT + 16, y = TOP + 8;

    for (int k = 0; k < s->n_type; k++, y += 20)
        ct_text_add(&s->t,
                    "<rect x='%d' y='%d' width='11' height='11' fill='%s'/><text x='%d' "
                    "y='%d'>%s</text>\n",
                    x, y, colour[k], x + 18, y + 10, s->type[k]);
    ct_text_add(&s->t,
                "<circle cx='%d' cy='%d' r='5' fill='none' stroke='#000000'/><text x='%d' "
                "y='%d'>forward</text>\n",
                x + 5, y + 14, x + 18, y + 18);
    ct_text_add(&s->t,
                "<rect x='%d' y='%d' width='10' height='10' fill='none' stroke='#000000'/><text "
                "x='%d' y='%d'>backward (b)</text>\n",
                x, y + 29, x + 18, y + 38);
    ct_text_add(&s->t, "<text x='%d' y='%d'>area: time</text>\n", x, y + 60);
}

ct_status ct_time_result_plot(const ct_time_result *r, const char *file)
{
    plot s = { .r = r, .list = calloc(2 * (size_t)r->net->n_layer + 1, sizeof(ct_time_pass)) };
    ct_status status;

    if (s.list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %s", file);
    ct_time_result_passes(r, s.list, &s.n);
    choose(&s);
    find_range(&s);
    ct_text_add(&s.t,
                "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
                "font-family='sans-serif' font-size='12'>\n<rect width='100%%' height='100%%' "
                "fill='white'/>\n<text x='%d' y='24' font-size='15'>Roofline: ",
                WIDTH, HEIGHT, LEFT);
    add_escaped(&s.t, r->net->name);
    ct_text_add(&s.t, ", batch %lld, %.1f images/s</text>\n", (long long)r->net->batch_local,
                ct_time_result_images_per_s(r));
    grid(&s);
    roof(&s);
    marks(&s);
    key(&s);
    ct_text_add(&s.t, "</svg>\n");
    status = s.t.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for %s", file)
                        : ct_file_write(file, s.t.text, s.t.length);
    ct_text_destroy(&s.t);
    free(s.list);
    return status;
}
