/* How evenly the work of the passes is split over the threads, as a table for people. */
#include "framework/net/team_clock.h"
#include "cli/time/time_result.h"

static void print_pass(const ct_time_result *r, const ct_time_pass *p, double all_most, FILE *out)
{
    const ct_layer *l = r->net->layer[p->layer];

    fprintf(out, "  %-22s %-16s %-8s %10.3f %10.3f %10.3f %8.1f %8.1f\n", l->name, l->ops->type,
            p->forward ? "forward" : "backward", p->mean_ms, p->most_ms, p->first_ms,
            ct_time_percent(p->mean_ms, p->most_ms),
            ct_time_percent(p->most_ms - p->mean_ms, all_most));
}

void ct_time_result_print_balance(const ct_time_result *r, const ct_time_pass *list, int n,
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
    for (int i = 0; i < n; i++) print_pass(r, &list[i], most, out);
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
