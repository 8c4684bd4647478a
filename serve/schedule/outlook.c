#include "serve/schedule/outlook.h"

#include <math.h>
#include <stdlib.h>

/* ---- how many tokens */

ct_status ct_growth_create(ct_growth *g, int most_lane)
{
    double *lane = calloc((size_t)most_lane + 1, sizeof(*lane));

    if (lane == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d sequences", most_lane);
    *g = (ct_growth){ .lane = lane, .most_lane = most_lane };
    return CT_OK;
}

void ct_growth_destroy(ct_growth *g)
{
    free(g->lane);
    g->lane = NULL;
}

void ct_growth_note(ct_growth *g, int64_t made)
{
    const double share = 0.125;

    g->mean = (g->mean > 0) ? g->mean + share * ((double)made - g->mean) : (double)made;
}

double ct_growth_expect(const ct_growth *g, int64_t most_new, int64_t made)
{
    return fmax(1, fmin((double)most_new, g->mean) - (double)made);
}

void ct_growth_clear(ct_growth *g, int n)
{
    g->n_lane = (n < g->most_lane) ? n : g->most_lane;
    for (int i = 0; i < g->n_lane; i++) g->lane[i] = 0;
    g->last = 0;
}

double ct_growth_free(const ct_growth *g)
{
    return g->lane[0];
}

void ct_growth_add(ct_growth *g, double batches)
{
    double v = g->lane[0] + batches;
    int i = 0;

    g->last = fmax(g->last, v);
    for (int k = 1; k < g->n_lane; k = 2 * i + 1) {
        if ((k + 1 < g->n_lane) && (g->lane[k + 1] < g->lane[k])) k++;
        if (g->lane[k] >= v) break;
        g->lane[i] = g->lane[k];
        i = k;
    }
    g->lane[i] = v;
}

/* ---- when */

static double alone_s(const ct_outlook *o, double made)
{
    return o->own_s + (made - 1) * o->own_step_s;
}

static double others_s(const ct_outlook *o, double made)
{
    return o->wait_s + (made - 1) * o->step_s;
}

double ct_outlook_most_s(const ct_outlook *o, const ct_lateness *l, double made)
{
    return alone_s(o, made) + ct_lateness_factor(l) * others_s(o, made);
}

/* What waits longer than twice what is expected, and a batch, counts as that: a pause of the
 * machine is no reason to refuse others for long. */
void ct_lateness_note(ct_lateness *l, const ct_outlook *o, double made, double took_s,
                      double unit_s)
{
    const double share = 1.0 / 64;
    double expected = others_s(o, made), added = fmax(took_s - alone_s(o, made), 0);
    double mean = (l->expected_s > 0) ? l->added_s / l->expected_s : 1;

    added = fmin(added, 2 * expected + unit_s) + unit_s;
    expected += unit_s;
    l->expected_s += share * (expected - l->expected_s);
    l->added_s += share * (added - l->added_s);
    l->deviation_s += share * (fabs(added - mean * expected) - l->deviation_s);
}

double ct_lateness_factor(const ct_lateness *l)
{
    if (!(l->expected_s > 0)) return 1;
    return fmax(1, (l->added_s + 4 * l->deviation_s) / l->expected_s);
}
