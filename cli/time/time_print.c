/* The times of a step for people: tables, and the roofline as a picture. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/time/time_result.h"
#include "framework/base/file.h"
#include "framework/net/engine_plan.h"
#include "framework/net/team_clock.h"
#include "framework/report/chart.h"
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

enum { MAX_LABEL = 14, MAX_TYPE = CT_CHART_COLOURS, MAX_SERIES = 2 * MAX_TYPE + 3 };

typedef struct roofline {
    const ct_time_result *r;
    ct_time_pass *list; /* those that compute, longest first */
    int n, n_type, n_tip;
    double total_ms;
    const char *type[MAX_TYPE];
    char **tip;            /* [n]                       */
    ct_chart_point *point; /* [n] of all series' passes */
    int n_point;
    ct_chart_point roof[3];
    ct_chart_series series[MAX_SERIES];
    int n_series;
} roofline;

static double x_of(const ct_time_pass *p)
{
    return p->flop / p->bytes;
}

static double y_of(const ct_time_pass *p)
{
    return p->flop / p->ms * 1e-6;
}

static int longest_first(const void *a, const void *b)
{
    const ct_time_pass *x = a, *y = b;

    return (x->ms < y->ms) - (x->ms > y->ms);
}

static const ct_layer_ops *ops_of(const roofline *s, int i)
{
    return s->r->net->layer[s->list[i].layer]->ops;
}

/* The number of a type among those that have a colour; MAX_TYPE: it has none. */
static int type_of(const roofline *s, const char *type)
{
    int k = 0;

    while ((k < s->n_type) && (strcmp(s->type[k], type) != 0)) k++;
    return (k < s->n_type) ? k : MAX_TYPE;
}

static void choose(roofline *s)
{
    int n = 0;

    for (int i = 0; i < s->n; i++) {
        s->total_ms += s->list[i].ms;
        if ((s->list[i].flop > 0) && (s->list[i].bytes > 0) && (s->list[i].ms > 0))
            s->list[n++] = s->list[i];
    }
    s->n = n;
    qsort(s->list, (size_t)n, sizeof(*s->list), longest_first);
    for (int i = 0; i < n; i++) {
        const char *type = ops_of(s, i)->type;

        if ((type_of(s, type) == MAX_TYPE) && (s->n_type < MAX_TYPE)) s->type[s->n_type++] = type;
    }
}

/* From the left end of what is drawn up the memory's slope to the knee, and level to the right. */
static void add_roof(roofline *s)
{
    const ct_machine_limit *m = &s->r->limit;
    double knee = m->flop / m->memory, left = knee / 2, right = 2 * knee, lowest = m->flop;

    for (int i = 0; i < s->n; i++) {
        left = fmin(left, x_of(&s->list[i]));
        right = fmax(right, x_of(&s->list[i]));
        lowest = fmin(lowest, 1e9 * y_of(&s->list[i]));
    }
    left = fmax(left, lowest / m->memory);
    s->roof[0] = (ct_chart_point){ .x = left, .y = left * m->memory * 1e-9 };
    s->roof[1] = (ct_chart_point){ .x = knee, .y = m->flop * 1e-9 };
    s->roof[2] = (ct_chart_point){ .x = right, .y = m->flop * 1e-9 };
    s->series[s->n_series++] = (ct_chart_series){
        .colour = CT_CHART_INK, .stroke = CT_STROKE_SOLID, .point = s->roof, .n = 3
    };
}

static ct_status add_pass(roofline *s, int i)
{
    const ct_time_pass *p = &s->list[i];
    const char *name = s->r->net->layer[p->layer]->name;
    char **tip = &s->tip[s->n_tip];

    if (asprintf(tip, "%s %s: %.3f ms, %.1f GFLOP/s, %.1f GB/s %s", name,
                 p->forward ? "forward" : "backward", p->ms, y_of(p), p->bytes / p->ms * 1e-6,
                 p->engine) < 0) {
        *tip = NULL;
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the roofline");
    }
    s->n_tip += 1;
    s->point[s->n_point++] =
        (ct_chart_point){ .x = x_of(p),
                          .y = y_of(p),
                          .radius = fmax(2.0, 40.0 * sqrt(p->ms / s->total_ms)),
                          .label = (i < MAX_LABEL) ? name : NULL,
                          .tip = *tip };
    return CT_OK;
}

/* The passes of one type and direction: a series. */
static ct_status add_series(roofline *s, int type, bool forward)
{
    ct_chart_series *to = &s->series[s->n_series];
    int first = s->n_point;

    for (int i = 0; i < s->n; i++)
        if ((s->list[i].forward == forward) && (type_of(s, ops_of(s, i)->type) == type))
            CT_TRY(add_pass(s, i));
    if (s->n_point == first) return CT_OK;
    *to = (ct_chart_series){ .name = (type < MAX_TYPE) ? s->type[type] : "others",
                             .colour = (type < MAX_TYPE) ? type : CT_CHART_GREY,
                             .mark = forward ? CT_MARK_DISC : CT_MARK_SQUARE,
                             .point = s->point + first,
                             .n = s->n_point - first };
    s->n_series += 1;
    return CT_OK;
}

static ct_status write_roofline(const roofline *s, const char *file)
{
    const ct_machine_limit *m = &s->r->limit;
    ct_text title = { 0 }, under = { 0 }, t = { 0 };
    ct_chart chart = { .x = { .label = "operations a byte that must move", .log = true },
                       .y = { .label = "GFLOP/s", .log = true },
                       .series = s->series,
                       .n_series = s->n_series };
    ct_status status = CT_OK;

    ct_text_add(&title, "Roofline: %s, batch %lld, %.1f images/s", s->r->net->name,
                (long long)s->r->net->batch_local, ct_time_result_images_per_s(s->r));
    ct_text_add(&under,
                "%.0f GFLOP/s, %d thread%s, %s; memory %.1f GB/s; discs: forward, squares: "
                "backward; area: time",
                m->flop * 1e-9, m->n_thread, (m->n_thread > 1) ? "s" : "", m->simd,
                m->memory * 1e-9);
    chart.title = title.text;
    chart.subtitle = under.text;
    ct_chart_draw(&chart, &t);
    if (title.failed || under.failed || t.failed)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %s", file);
    if (status == CT_OK) status = ct_file_write(file, t.text, t.length);
    ct_text_destroy(&title);
    ct_text_destroy(&under);
    ct_text_destroy(&t);
    return status;
}

ct_status ct_time_result_plot(const ct_time_result *r, const char *file)
{
    size_t most = 2 * (size_t)r->net->n_layer + 1;
    roofline s = { .r = r,
                   .list = calloc(most, sizeof(ct_time_pass)),
                   .tip = calloc(most, sizeof(char *)),
                   .point = calloc(most, sizeof(ct_chart_point)) };
    ct_status status = CT_OK;

    if ((s.list == NULL) || (s.tip == NULL) || (s.point == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %s", file);
    } else {
        ct_time_result_passes(r, s.list, &s.n);
        choose(&s);
        add_roof(&s);
        for (int type = 0; (status == CT_OK) && (type <= MAX_TYPE); type++) {
            status = add_series(&s, type, true);
            if (status == CT_OK) status = add_series(&s, type, false);
        }
        if (status == CT_OK) status = write_roofline(&s, file);
    }
    for (int i = 0; i < s.n_tip; i++) free(s.tip[i]);
    free(s.tip);
    free(s.point);
    free(s.list);
    return status;
}
