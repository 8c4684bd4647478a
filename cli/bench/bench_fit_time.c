/* One thing timed on all ranks. */
#include "cli/bench/bench_fit_time.h"

#include <math.h>
#include <time.h>

#include "framework/base/clock.h"
#include "framework/base/sort.h"

enum { LEAST_REPEAT = 5, MOST_REPEAT = 25, WATCH_US = 100 };

static const double seconds_per_size = 0.15;

static ct_status meet(const ct_fit_experiment *e)
{
    const struct timespec nap = { .tv_nsec = 1000 * WATCH_US };
    MPI_Request request;
    int done = 0;

    if (e->all) { /* they start together; the other lets them start a little apart */
        CT_TRY_MPI(MPI_Barrier(e->c->world));
        return CT_OK;
    }
    CT_TRY_MPI(MPI_Ibarrier(e->c->world, &request));
    for (;;) {
        CT_TRY_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        if (done) return CT_OK;
        if (e->watches) (void)nanosleep(&nap, NULL);
    }
}

/* The first is not counted, and says how many there is time for. */
ct_status ct_fit_measure(const ct_fit_experiment *e, double *seconds_p)
{
    double t[MOST_REPEAT + 1];
    int n = LEAST_REPEAT;

    for (int k = 0; k <= n; ++k) {
        CT_TRY(e->again(e->ctx));
        CT_TRY(meet(e));
        t[k] = ct_clock_s();
        CT_TRY(e->run(e->ctx, e->times));
        t[k] = (ct_clock_s() - t[k]) / e->times;
        if (k > 0) continue;
        CT_TRY(meet(e));
        CT_TRY_MPI(MPI_Allreduce(MPI_IN_PLACE, &t[0], 1, MPI_DOUBLE, MPI_MAX, e->c->world));
        n = (t[0] * e->times * MOST_REPEAT < seconds_per_size)
                ? MOST_REPEAT
                : (int)(seconds_per_size / (t[0] * e->times));
        n = (n < LEAST_REPEAT) ? LEAST_REPEAT : n;
    }
    CT_TRY(meet(e));
    CT_TRY_MPI(MPI_Allreduce(MPI_IN_PLACE, t + 1, n, MPI_DOUBLE, MPI_MAX, e->c->world));
    ct_sort(t + 1, n);
    *seconds_p = t[1 + n / 2];
    return CT_OK;
}

int ct_fit_pick(const ct_fit_curve *c, int odd, double *bytes, double *seconds)
{
    int n = 0;

    for (int i = odd; i < c->n; i += 2) {
        bytes[n] = c->bytes[i];
        seconds[n++] = c->seconds[i];
    }
    return n;
}

double ct_fit_held_out(const ct_fit_curve *c)
{
    double sum = 0;
    int n = 0;

    for (int i = 1; i + 1 < c->n; i += 2) {
        double share = (c->bytes[i] - c->bytes[i - 1]) / (c->bytes[i + 1] - c->bytes[i - 1]);
        double off = c->seconds[i - 1] + share * (c->seconds[i + 1] - c->seconds[i - 1]);

        off = off / c->seconds[i] - 1;
        sum += off * off;
        n += 1;
    }
    return (n > 0) ? sqrt(sum / n) : 0;
}
