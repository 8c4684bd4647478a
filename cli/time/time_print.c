/* The times of a step for people: tables, and the roofline as a picture. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/time/time_result.h"
#include "framework/net/engine_plan.h"
#include "framework/net/team_clock.h"
#include "runtime/call.h"

/* How evenly the passes are split over the team, as a table; needs its clocks. */
static void time_result_print_balance(const ct_time_result *r, const ct_time_pass *list, int n,
                                      FILE *out);

/* Sums over passes, those of conversions apart. */
typedef struct totals {
    double forward_ms, backward_ms, flop, bytes, bound_ms;
    double reorder_ms;
    int n_reorder;
} totals;

/* A share of a limit: how far over 100 % something is that came from a cache says nothing. */
static void print_share(FILE *out, double rate, double limit)
{
    if (!(rate > 0) || !(limit > 0)) {
        fprintf(out, " %6s", "-");
    } else if (rate > limit) {
        fprintf(out, " %6s", ">100");
    } else {
        fprintf(out, " %6.1f", ct_time_percent(rate, limit));
    }
}

static void print_rate(FILE *out, double amount, double ms)
{
    if ((amount > 0) && (ms > 0)) {
        fprintf(out, " %8.1f", amount / ms * 1e-6);
    } else {
        fprintf(out, " %8s", "-");
    }
}

static void print_pass(const ct_time_result *r, const ct_time_pass *p, bool first, FILE *out)
{
    const ct_net *net = r->net;
    const ct_layer *l = net->layer[p->layer];
    double s = p->ms * 1e-3;

    if (first) {
        fprintf(out, "%-24s %-16s %11" PRId64, l->name, l->ops->type,
                ct_net_layer_params(net, p->layer));
    } else {
        fprintf(out, "%-24s %-16s %11s", "", "", "");
    }
    fprintf(out, " %-8s %10.3f %5.1f", p->forward ? "forward" : "backward", p->ms, 1e2 * p->spread);
    print_rate(out, p->flop, p->ms);
    print_share(out, (s > 0) ? p->flop / s : 0, r->limit.flop);
    print_rate(out, p->bytes, p->ms);
    print_share(out, (s > 0) ? p->bytes / s : 0, r->limit.memory);
    print_share(out, p->bound_ms, p->ms);
    fprintf(out, "  %s\n", p->engine);
}

/* The layers of a group behind the one that carries its time. */
static void print_group(const ct_net *net, int runner, FILE *out)
{
    for (int i = runner + 1; i < net->n_layer; i++) {
        const ct_layer *l = net->layer[i];

        if (ct_net_runner(net, i) == runner)
            fprintf(out, "  %-22s %-16s %11" PRId64 " runs with %s\n", l->name, l->ops->type,
                    ct_net_layer_params(net, i), net->layer[runner]->name);
    }
}

static void print_table(const ct_time_result *r, const ct_time_pass *list, int n, FILE *out)
{
    fprintf(out, "%-24s %-16s %11s %-8s %10s %5s %8s %6s %8s %6s %6s  %s\n", "layer", "type",
            "parameters", "pass", "ms", "+-%", "GFLOP/s", "% peak", "GB/s", "% mem", "% roof",
            "engine");
    for (int i = 0; i < n; i++) {
        print_pass(r, &list[i], (i == 0) || (list[i].layer != list[i - 1].layer), out);
        if ((i + 1 == n) || (list[i + 1].layer != list[i].layer))
            print_group(r->net, list[i].layer, out);
    }
}

/* What goes to other ranks: what beginning it took this rank, and waiting for it. */
static ct_status print_pairs(const ct_time_result *r, FILE *out)
{
    const ct_net *net = r->net;
    size_t n_step = (size_t)net->n_forward + (size_t)net->n_backward;
    ct_time_pair *list = calloc(n_step + 1, sizeof(*list));
    int n = 0;

    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu steps", n_step);
    ct_time_result_pairs(r, list, &n);
    if (n > 0)
        fprintf(out, "%-24s %-28s %10s %10s\n", "to other ranks", "what", "begin ms", "wait ms");
    for (int i = 0; i < n; i++) {
        const ct_time_pair *p = &list[i];
        char what[48] = "gradient, then weights";

        if (p->of == CT_PAIR_SUM)
            snprintf(what, sizeof(what), "%s, sum %d, %d number%s",
                     p->forward ? "forward" : "backward", p->sum + 1, p->count,
                     (p->count == 1) ? "" : "s");
        if (p->of == CT_PAIR_TRANSFER)
            snprintf(what, sizeof(what), "%s, %s", p->forward ? "forward" : "backward",
                     net->layer[p->layer]->ops->type);
        fprintf(out, "%-24s %-28s %10.3f %10.3f\n",
                (p->of != CT_PAIR_WEIGHTS) ? net->layer[p->layer]->name : net->param[p->param].key,
                what, p->begin_ms, p->wait_ms);
    }
    if (n > 0) fprintf(out, "\n");
    free(list);
    return CT_OK;
}

static totals add_up(const ct_time_result *r, const ct_time_pass *list, int n)
{
    totals t = { 0 };

    for (int i = 0; i < n; i++) {
        const ct_time_pass *p = &list[i];

        if (p->forward) t.forward_ms += p->ms;
        if (!p->forward) t.backward_ms += p->ms;
        t.flop += p->flop;
        t.bytes += p->bytes;
        t.bound_ms += p->bound_ms;
        if (!r->net->layer[p->layer]->ops->by_net) continue;
        t.reorder_ms += p->ms;
        t.n_reorder += p->forward;
    }
    return t;
}

static void print_limits(const ct_time_result *r, const totals *t, FILE *out)
{
    const ct_machine_limit *m = &r->limit;
    double step_ms = ct_time_result_median(r, r->step);

    if (!(m->flop > 0)) return;
    fprintf(out,
            "limits of %d thread%s, %s: %.1f GFLOP/s; memory %.1f GB/s read, %.1f GB/s triad (3 "
            "arrays of %.0f MB)\n",
            m->n_thread, (m->n_thread > 1) ? "s" : "", m->simd, m->flop * 1e-9, m->read * 1e-9,
            m->triad * 1e-9, (double)m->array * 1e-6);
    fprintf(out,
            "layers    %.4g GFLOP, at least %.4g GB: %.1f GFLOP/s, %.1f %% of the peak, %.1f %% of "
            "the roofline's %.3f ms\n",
            t->flop * 1e-9, t->bytes * 1e-9, t->flop / step_ms * 1e-6,
            ct_time_percent(t->flop / step_ms * 1e3, m->flop),
            ct_time_percent(t->bound_ms, step_ms), t->bound_ms);
}

/* What each engine took on scratch data, by computation; the one in use with a star. */
static void print_engines(const ct_engine_plan *plan, FILE *out)
{
    const ct_engine_plan_entry *row;

    if (plan == NULL) return;
    fprintf(out, "engines on scratch data, ms; * in use:\n");
    for (int i = 0; (row = ct_engine_plan_row(plan, i)) != NULL; i++) {
        if (row->n_asked == 0) continue;
        fprintf(out, "  %s (%s", row->key, row->layer);
        if (row->n_asked > 1) fprintf(out, " and %d more", row->n_asked - 1);
        fprintf(out, "):");
        for (int e = 0; e < row->n; e++) {
            const ct_engine_plan_engine *g = &row->engine[e];
            const char *star = (strcmp(g->name, row->taken) == 0) ? "*" : "";

            if (g->ms < 0.0) {
                fprintf(out, "  %s%s", g->name, star);
            } else {
                fprintf(out, "  %s%s %.4g", g->name, star, g->ms);
            }
        }
        fprintf(out, "\n");
    }
    fprintf(out, "\n");
}

static void print_medians(const ct_time_result *r, const totals *t, FILE *out)
{
    char norm[48] = "", tokens[48] = "";

    if (ct_time_result_tokens_per_s(r) > 0)
        snprintf(tokens, sizeof(tokens), ", %.1f tokens/s", ct_time_result_tokens_per_s(r));
    if (ct_time_result_median(r, r->norm) > 0)
        snprintf(norm, sizeof(norm), "norm %.3f + ", ct_time_result_median(r, r->norm));
    fprintf(out,
            "medians of %d steps after %d: step %.3f ms = forward %.3f + backward %.3f + update "
            "%.3f + %sthe rest;\nexposed communication %.3f ms, wait for data %.3f ms; %.1f "
            "images/s (batch %" PRId64 ")%s\n",
            r->n_step, r->n_warm_up, ct_time_result_median(r, r->step), t->forward_ms,
            t->backward_ms, ct_time_result_median(r, r->update), norm,
            ct_time_result_median(r, r->exposed), ct_time_result_median(r, r->wait_data),
            ct_time_result_images_per_s(r), r->net->batch_global * r->n_micro, tokens);
}

ct_status ct_time_result_print(const ct_time_result *r, FILE *out)
{
    const ct_net *net = r->net;
    ct_time_pass *list = calloc(2 * (size_t)net->n_layer + 1, sizeof(*list));
    int n = 0, n_bf16, n_top;
    totals t;

    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d layers", net->n_layer);
    ct_time_result_passes(r, list, &n);
    print_table(r, list, n, out);
    t = add_up(r, list, n);
    fprintf(out, "\n");
    if (r->whole != NULL) time_result_print_balance(r, list, n, out);
    free(list);
    CT_TRY(print_pairs(r, out));
    if (r->engines) print_engines(net->options.env.plan, out);
    print_limits(r, &t, out);
    fprintf(out, "precision %s", ct_precision_text(net));
    n_bf16 = ct_precision_tops(net, &n_top);
    if (n_bf16 > 0)
        fprintf(out, "; %d of %d tops stored as %s", n_bf16, n_top, ct_precision_stored(net));
    fprintf(out, "\n");
    fprintf(out, "layouts   %d conversion%s, %.3f ms\n", t.n_reorder, (t.n_reorder == 1) ? "" : "s",
            t.reorder_ms);
    print_medians(r, &t, out);
    return CT_OK;
}

/* ---- how evenly the work of the passes is split over the threads, as a table for people */

static void print_balance(const ct_time_result *r, const ct_time_pass *p, double all_most,
                          FILE *out)
{
    const ct_layer *l = r->net->layer[p->layer];

    fprintf(out, "  %-22s %-16s %-8s %10.3f %10.3f %10.3f %8.1f %8.1f\n", l->name, l->ops->type,
            p->forward ? "forward" : "backward", p->mean_ms, p->most_ms, p->first_ms,
            ct_time_percent(p->mean_ms, p->most_ms),
            ct_time_percent(p->most_ms - p->mean_ms, all_most));
}

static void time_result_print_balance(const ct_time_result *r, const ct_time_pass *list, int n,
                                      FILE *out)
{
    int n_thread = ct_team_clock_threads(r->whole);
    double mean = 0.0, most = 0.0, own;
    ct_team_work all;

    for (int i = 0; i < n; i++) {
        mean += list[i].mean_ms;
        most += list[i].most_ms;
    }
    if (ct_team_clock_lost(r->whole) || ct_team_clock_lost(r->net->team)) {
        fprintf(out, "balance   not known: threads of the team ended while it ran\n\n");
        return;
    }
    fprintf(out, "balance of %d thread%s, in processor time:\n", n_thread,
            (n_thread > 1) ? "s" : "");
    fprintf(out, "  %-22s %-16s %-8s %10s %10s %10s %8s %8s\n", "layer", "type", "pass", "mean ms",
            "most ms", "first ms", "even %", "lost %");
    for (int i = 0; i < n; i++) print_balance(r, &list[i], most, out);
    all = ct_team_clock_of(r->whole, 0);
    own = 1e3 * (all.first - all.mean);
    fprintf(out,
            "balance   layers: a thread %.3f ms in the mean, %.3f ms where each layer waits for "
            "its last: %.1f %% even;\n          steps: %.3f ms in the mean, the first thread %.3f "
            "ms more;\n          to wake the others takes it %.3f ms each time, here, where they "
            "sleep\n\n",
            mean, most, ct_time_percent(mean, most), 1e3 * all.mean, (own > 0) ? own : 0.0,
            1e3 * r->wake_s);
}

/* ---- the roofline: operations a second over operations a byte, both logarithmic, as an SVG
 * picture. A disc is a forward, a square a backward; its area is its share of the time of all. */

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
