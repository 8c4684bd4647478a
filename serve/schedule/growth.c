#include "serve/schedule/growth.h"

#include <math.h>
#include <stdlib.h>

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
