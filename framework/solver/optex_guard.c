#include "framework/solver/optex_guard.h"

#include <math.h>

enum { ROUNDS_A_PROBE = 16 };

#define NEW_SHARE    0.2  /* of the newest round in the running means */
#define SIGNAL_SHARE 0.25 /* of an error that does no harm */

ct_optex_guard ct_optex_guard_open(int parallel)
{
    return (ct_optex_guard){ .parallel = parallel, .noise = NAN, .signal = NAN, .error = NAN };
}

/* The first value is the mean. */
static void add(float *mean, double value)
{
    if (!isfinite(value)) return;
    *mean = isfinite(*mean) ? (float)((double)*mean + NEW_SHARE * (value - (double)*mean))
                            : (float)value;
}

void ct_optex_guard_note(ct_optex_guard *g, const ct_optex_measure *m)
{
    double of_step; /* noise of a step's gradient */

    if (m->noise >= 0.0) add(&g->noise, m->noise);
    if (!isfinite(g->noise)) return;
    of_step = (double)g->noise / m->batches;
    add(&g->signal, m->square - of_step);
    if (m->error >= 0.0) add(&g->error, m->error - of_step * (1.0 + m->echo));
}

static double above_zero(float v)
{
    return (v > 0.0f) ? (double)v : 0.0;
}

static bool suits(const ct_optex_guard *g, int n)
{
    double way = (double)(n - 1) / n, noise = above_zero(g->noise) * n / g->parallel;

    return above_zero(g->error) * way * way <= noise + SIGNAL_SHARE * above_zero(g->signal);
}

int ct_optex_guard_steps(const ct_optex_guard *g)
{
    if (!isfinite(g->noise) || !isfinite(g->error)) return 1;
    for (int n = g->parallel; n > 1; n--)
        if ((g->parallel % n == 0) && suits(g, n)) return n;
    return 1;
}

bool ct_optex_guard_probes(const ct_optex_guard *g, int64_t round)
{
    return (round % ROUNDS_A_PROBE == 0) && (ct_optex_guard_steps(g) == g->parallel);
}

double ct_optex_guard_noise_share(const ct_optex_guard *g)
{
    double noise = above_zero(g->noise), all = noise + above_zero(g->signal);

    return (all > 0.0) ? noise / all : -1.0;
}
