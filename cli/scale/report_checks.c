/* What is held against each other: collectives, and the model against the simulation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/sort.h"
#include "cli/scale/report.h"

/* ---- collectives */

static bool bench_starts(const ct_points *p, int i)
{
    const ct_bench_point *b = &p->bench[i];

    for (int k = 0; k < i; k++) {
        const ct_bench_point *o = &p->bench[k];

        if ((o->ranks == b->ranks) && (o->nodes == b->nodes) && (o->kind == b->kind) &&
            (strcmp(o->machine, b->machine) == 0))
            return false;
    }
    return true;
}

static bool same_bench(const ct_bench_point *a, const ct_bench_point *b)
{
    return (a->ranks == b->ranks) && (a->nodes == b->nodes) && (a->kind == b->kind) &&
           (strcmp(a->machine, b->machine) == 0);
}

static void bench_table(const ct_points *p, int first, ct_text *t)
{
    const ct_bench_point *b = &p->bench[first];
    const char *name[16];
    double size = -1;
    int n = 0;

    for (int i = first; i < p->n_bench; i++) {
        int k = 0;

        if (!same_bench(&p->bench[i], b)) continue;
        while ((k < n) && (strcmp(name[k], p->bench[i].algorithm) != 0)) k++;
        if ((k == n) && (n < 16)) name[n++] = p->bench[i].algorithm;
    }
    ct_text_add(t,
                "\n%s, %d ranks on %d node%s, %s; microseconds, in brackets the bus bandwidth in "
                "GB/s:\n\n| bytes |",
                b->machine, b->ranks, b->nodes, (b->nodes == 1) ? "" : "s",
                ct_report_mark(b->kind));
    for (int k = 0; k < n; k++) ct_text_add(t, " %s |", name[k]);
    ct_text_add(t, "\n|---|");
    for (int k = 0; k < n; k++) ct_text_add(t, "---|");
    ct_text_add(t, "\n");
    for (;;) {
        double next = INFINITY;

        for (int i = first; i < p->n_bench; i++) {
            if (same_bench(&p->bench[i], b) && (p->bench[i].bytes > size))
                next = fmin(next, p->bench[i].bytes);
        }
        if (!isfinite(next)) return;
        size = next;
        ct_text_add(t, "| %.0f |", size);
        for (int k = 0; k < n; k++) {
            const ct_bench_point *at = NULL;

            for (int i = first; i < p->n_bench; i++) {
                if (same_bench(&p->bench[i], b) && (p->bench[i].bytes == size) &&
                    (strcmp(p->bench[i].algorithm, name[k]) == 0))
                    at = &p->bench[i];
            }
            if (at != NULL)
                ct_text_add(t, " %.4g (%.3g) |", at->us, at->busbw);
            else
                ct_text_add(t, " – |");
        }
        ct_text_add(t, "\n");
    }
}

/* What the cost model says of the same collectives, where the program printed it. */
static void bench_error(const ct_points *p, ct_kind kind, ct_text *t)
{
    double error[1024];
    int n = 0;

    for (int i = 0; (i < p->n_bench) && (n < 1024); i++) {
        const ct_bench_point *b = &p->bench[i];

        if ((b->kind == kind) && isfinite(b->predicted_us))
            error[n++] = fabs(b->predicted_us / b->us - 1);
    }
    if (n == 0) return;
    ct_sort(error, n);
    ct_text_add(t,
                "\n**The cost model against these %s times: median error %.1f %%, at most %.1f %%, "
                "over %d points.** It is what chooses algorithms and makes modelled points.\n",
                ct_kind_str(kind), 50 * (error[n / 2] + error[(n - 1) / 2]), 100 * error[n - 1], n);
}

void ct_report_bench(const ct_points *p, bool drawn, ct_text *t)
{
    ct_text_add(t, "\n## Collectives\n");
    if (p->n_bench == 0) {
        ct_text_add(t, "\nNot measured in this study.\n");
        return;
    }
    ct_text_add(
        t, "\nAllreduce of floats on the same allocation (`cortado bench comm`): sums checked "
           "while timed; `mpi` is the blocking MPI_Allreduce in place. Bus bandwidth = bytes / "
           "time x 2 (n-1)/n.\n");
    for (int i = 0; i < p->n_bench; i++) {
        if (bench_starts(p, i)) bench_table(p, i, t);
    }
    for (int k = 0; k < CT_N_KIND; k++) bench_error(p, (ct_kind)k, t);
    if (drawn) ct_text_add(t, "\n![bus bandwidth by size](plots/collectives.svg)\n");
}

/* ---- the model against the simulation */

static const char model_header[] =
    "\n## The model against the simulation\n\nSteps of the same points, both ways. A modelled "
    "point "
    "without a simulated twin is an extrapolation by this model.\n\n| workload | configuration | "
    "nodes | simulated ms | modelled ms | error | of which exposed: simulated ms | modelled ms "
    "|\n|---|---|---|---|---|---|---|---|\n";

void ct_report_model_error(const ct_points *p, ct_text *t)
{
    double error[1024];
    int n = 0, alone = 0;

    for (int i = 0; i < p->n; i++) {
        const ct_point *q = &p->point[i], *s;
        int twin = ct_points_twin(p, q, CT_KIND_SIMULATED);

        if ((q->kind != CT_KIND_MODELLED) || q->failed) continue;
        alone += (twin < 0);
        /* one rank alone sends nothing: there is nothing to get wrong */
        if ((twin < 0) || (q->ranks == 1) || (n == 1024)) continue;
        if (n == 0) ct_text_add(t, "%s", model_header);
        s = &p->point[twin];
        error[n] = q->step_ms / s->step_ms - 1;
        ct_text_add(t, "| %s | %s | %d | %.6g | %.6g | %+.2f %% | %.4g | %.4g |\n",
                    p->group[q->group].slug, q->config, q->nodes, s->step_ms, q->step_ms,
                    100 * error[n], s->exposed_ms, q->exposed_ms);
        error[n] = fabs(error[n]);
        n += 1;
    }
    if (n > 0) {
        ct_sort(error, n);
        ct_text_add(
            t,
            "\n**Error of the model over %d points of more than one rank: median %.2f %%, at "
            "most %.2f %%.** %d modelled points have no simulated twin.\n",
            n, 50 * (error[n / 2] + error[(n - 1) / 2]), 100 * error[n - 1], alone);
    } else if (alone > 0) {
        ct_text_add(t,
                    "\n## The model against the simulation\n\nNo point was both simulated and "
                    "modelled: the error of the %d modelled points is not known.\n",
                    alone);
    }
}
