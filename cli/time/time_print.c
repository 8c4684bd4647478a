/* The times of a step as tables for people. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/net/engine_plan.h"
#include "runtime/net_open.h"
#include "cli/time/time_result.h"

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
    if (r->whole != NULL) ct_time_result_print_balance(r, list, n, out);
    free(list);
    if (r->engines) print_engines(net->options.env.plan, out);
    print_limits(r, &t, out);
    fprintf(out, "precision %s", ct_precision_text(net));
    n_bf16 = ct_precision_tops(net, &n_top);
    if (n_bf16 > 0)
        fprintf(out, "; %d of %d tops stored as %s", n_bf16, n_top, ct_precision_stored(net));
    fprintf(out, "\n");
    fprintf(out, "layouts   %d conversion%s, %.3f ms\n", t.n_reorder, (t.n_reorder == 1) ? "" : "s",
            t.reorder_ms);
    fprintf(out,
            "medians of %d steps after %d: step %.3f ms = forward %.3f + backward %.3f + update "
            "%.3f + the rest;\nexposed communication %.3f ms, wait for data %.3f ms; %.1f images/s "
            "(batch %" PRId64 ")\n",
            r->n_step, r->n_warm_up, ct_time_result_median(r, r->step), t.forward_ms, t.backward_ms,
            ct_time_result_median(r, r->update), ct_time_result_median(r, r->exposed),
            ct_time_result_median(r, r->wait_data), ct_time_result_images_per_s(r),
            net->batch_global);
    return CT_OK;
}
