#include "framework/net/team_clock.h"

#include <omp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

struct ct_team_clock {
    int n;
    clockid_t *clock; /* [n]                                    */
    double *last;     /* [n]: at the last look                  */
    double *least;    /* [n_row][n]; below 0: has not ended yet */
    bool lost;
};

static double seconds_of(ct_team_clock *c, int i)
{
    struct timespec t = { 0 };

    if (clock_gettime(c->clock[i], &t) != 0) c->lost = true;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Each thread's own clock. */
static ct_status find_clocks(ct_team_clock *c)
{
    int bad = 0, n = 0;

#pragma omp parallel num_threads(c->n) reduction(+ : bad, n)
    {
        bad += pthread_getcpuclockid(pthread_self(), &c->clock[omp_get_thread_num()]) != 0;
        n += 1;
    }
    c->n = n; /* fewer, where the system gives no more */
    if (bad == 0) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "%d of %d threads have no clock of their own here", bad, n);
}

ct_status ct_team_clock_create(int n_row, ct_team_clock **clock_p)
{
    ct_team_clock *c = calloc(1, sizeof(*c));
    size_t n = (size_t)omp_get_max_threads();
    ct_status status;

    *clock_p = NULL;
    if (c == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the clocks of %zu threads", n);
    c->n = (int)n;
    c->clock = calloc(n, sizeof(*c->clock));
    c->last = calloc(n * (1 + (size_t)n_row), sizeof(double));
    if ((c->clock == NULL) || (c->last == NULL)) {
        ct_team_clock_destroy(c);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the clocks of %zu threads", n);
    }
    c->least = c->last + n;
    for (size_t i = 0; i < n * (size_t)n_row; i++) c->least[i] = -1.0;
    status = find_clocks(c);
    if (status != CT_OK) {
        ct_team_clock_destroy(c);
        return status;
    }
    ct_team_clock_begin(c);
    *clock_p = c;
    return CT_OK;
}

void ct_team_clock_destroy(ct_team_clock *clock)
{
    if (clock == NULL) return;
    free(clock->clock);
    free(clock->last);
    free(clock);
}

int ct_team_clock_threads(const ct_team_clock *clock)
{
    return clock->n;
}

double ct_team_clock_wake(ct_team_clock *clock)
{
    enum { TRIES = 20 };
    const struct timespec asleep = { .tv_nsec = 2000000 };
    double least = 0.0, start, took;

    for (int i = 0; i < TRIES; i++) {
        int n = 0;

        nanosleep(&asleep, NULL); /* until they are */
        start = seconds_of(clock, 0);
#pragma omp parallel num_threads(clock->n) reduction(+ : n)
        n += 1;
        took = seconds_of(clock, 0) - start;
        if ((n == clock->n) && ((least <= 0.0) || (took < least))) least = took;
    }
    return least;
}

bool ct_team_clock_lost(const ct_team_clock *clock)
{
    return clock->lost;
}

void ct_team_clock_begin(ct_team_clock *clock)
{
    for (int i = 0; i < clock->n; i++) clock->last[i] = seconds_of(clock, i);
}

void ct_team_clock_end(ct_team_clock *clock, int row)
{
    double *least = clock->least + (size_t)row * (size_t)clock->n;

    for (int i = 0; i < clock->n; i++) {
        double now = seconds_of(clock, i), did = now - clock->last[i];

        if ((least[i] < 0.0) || (did < least[i])) least[i] = did;
        clock->last[i] = now;
    }
}

ct_team_work ct_team_clock_of(const ct_team_clock *clock, int row)
{
    const double *least = clock->least + (size_t)row * (size_t)clock->n;
    ct_team_work w = { 0 };

    if (least[0] < 0.0) return w;
    for (int i = 0; i < clock->n; i++) {
        w.mean += least[i] / clock->n;
        if (least[i] > w.most) w.most = least[i];
    }
    w.first = least[0];
    return w;
}
