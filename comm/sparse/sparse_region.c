#include "comm/sparse/sparse_region.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

ct_status ct_regions_create(int64_t n, int n_region, ct_regions *g)
{
    *g = (ct_regions){ .n = n, .n_region = n_region };
    g->bound = malloc(sizeof(*g->bound) * ((size_t)n_region + 1));
    g->before = malloc(sizeof(*g->before) * ((size_t)n_region + 1));
    if ((g->bound == NULL) || (g->before == NULL)) {
        ct_regions_destroy(g);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d regions", n_region);
    }
    for (int j = 0; j <= n_region; ++j) g->bound[j] = (int64_t)((double)n * ((double)j / n_region));
    g->bound[n_region] = n;
    return CT_OK;
}

void ct_regions_destroy(ct_regions *g)
{
    free(g->bound);
    free(g->before);
    *g = (ct_regions){ .bound = NULL };
}

void ct_region_cuts(const int64_t *bin, int64_t length, ct_region_news *news)
{
    int64_t all = 0, seen = 0;
    int b = 0;

    for (int i = 0; i < CT_REGION_BINS; ++i) all += bin[i];
    for (int i = 0; i < CT_REGION_CUTS; ++i) {
        double target = (double)all * (i + 1) / (CT_REGION_CUTS + 1), at = 0;

        while ((b < CT_REGION_BINS - 1) && ((double)(seen + bin[b]) < target)) seen += bin[b++];
        at = (bin[b] > 0) ? (target - (double)seen) / (double)bin[b] : 0;
        at = ((double)b + at) / CT_REGION_BINS * (double)length;
        news->cut[i] = (uint32_t)((at < (double)length) ? at : (double)length);
    }
}

/* Piece i of region j begins at this element. A cut before an earlier one counts as that. */
static int64_t piece_at(const ct_regions *g, const ct_region_news *news, int j, int i,
                        int64_t least)
{
    int64_t at = g->bound[j];

    if (i > CT_REGION_CUTS) return g->bound[j + 1];
    if (i > 0) at += news->cut[i - 1];
    if (at > g->bound[j + 1]) at = g->bound[j + 1];
    return (at > least) ? at : least;
}

/* New boundaries, of equally many entries each, if those of the pieces are spread evenly. */
static void move_bounds(ct_regions *g, const ct_region_news *const *news, int64_t all)
{
    int64_t seen = 0, last = 0;
    int next = 1;

    for (int j = 0; j < g->n_region; ++j) {
        int64_t begin = g->bound[j];

        for (int i = 0; i <= CT_REGION_CUTS; ++i) {
            int64_t end = piece_at(g, news[j], j, i + 1, begin);
            /* in thirteenths of an entry */
            int64_t mass = news[j]->received;

            for (; next < g->n_region; ++next) {
                double target = (double)all * (CT_REGION_CUTS + 1) * next / g->n_region;
                double share = (mass > 0) ? (target - (double)seen) / (double)mass : 2;
                int64_t at = begin + (int64_t)((double)(end - begin) * ((share > 0) ? share : 0));

                if (share > 1) break;
                g->before[next] = (at > last) ? at : last;
                last = g->before[next];
            }
            seen += mass;
            begin = end;
        }
    }
    for (; next < g->n_region; ++next) g->before[next] = g->n;
    memcpy(g->bound + 1, g->before + 1, sizeof(*g->bound) * (size_t)(g->n_region - 1));
}

/* Towards k entries in all: the number over a threshold falls about as its square. */
static void move_threshold(ct_regions *g, const ct_region_news *const *news, int64_t k)
{
    double wanted = 0, least = 0, step = 0;
    int n = 0;

    for (int j = 0; j < g->n_region; ++j) {
        wanted += news[j]->wanted;
        if ((news[j]->kept == 0) || !isfinite(news[j]->least)) continue;
        least += (double)news[j]->least;
        n += 1;
    }
    if ((g->threshold <= 0) && (n > 0)) g->threshold = (float)(least / n);
    if ((g->threshold <= 0) || (k <= 0)) return;
    step = sqrt(wanted / (double)k);
    g->threshold *= (float)((step < 0.8) ? 0.8 : (step > 1.25) ? 1.25 : step);
    if (!isfinite(g->threshold)) g->threshold = 0;
}

void ct_regions_learn(ct_regions *g, const ct_region_news *const *news, int64_t k)
{
    int64_t all = 0, most = 0;

    for (int j = 0; j < g->n_region; ++j) {
        all += news[j]->received;
        if (news[j]->received > most) most = news[j]->received;
    }
    /* a tenth from even is not worth moving */
    if ((double)most * g->n_region > 1.1 * (double)all) move_bounds(g, news, all);
    move_threshold(g, news, k);
}
