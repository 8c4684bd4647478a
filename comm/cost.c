#include "comm/cost.h"

/* Halving and doubling stands still between its steps, where a ring keeps its links busy: at
 * 1 Gbit/s between 4 hosts it took 1.3 to 1.7 times as long as the bytes alone. */
static const double rhd_stalls = 1.3;

static double log2_up(int n)
{
    double k = 0;

    for (int power = 1; power < n; power *= 2) k += 1;
    return k;
}

double ct_cost_ring(const ct_topo *t, int64_t bytes)
{
    const ct_link *l = (t->n_node > 1) ? &t->inter : &t->intra;
    double p = t->n_rank, share = (double)bytes / p;

    return (p - 1) * (2 * (l->alpha_s + share * l->beta_s) + share * l->gamma_s);
}

/* Ranks beyond a power of two send everything to a neighbour and get everything back. */
static double cost_fold(const ct_link *l, int n, int64_t bytes)
{
    double b = (double)bytes;

    if ((n & (n - 1)) == 0) return 0;
    return 2 * (l->alpha_s + b * l->beta_s) + b * l->gamma_s;
}

double ct_cost_rhd(const ct_topo *t, int64_t bytes)
{
    const ct_link *out = (t->n_node > 1) ? &t->inter : &t->intra;
    int per_node = ct_topo_max_node_size(t);
    double total = cost_fold(out, t->n_rank, bytes), size = (double)bytes;

    for (int d = 1; 2 * d <= t->n_rank; d *= 2) {
        bool inside = (d < per_node);
        const ct_link *l = inside ? &t->intra : out;
        double sharers = inside ? 1 : per_node;

        size /= 2;
        total += 2 * (l->alpha_s + rhd_stalls * size * l->beta_s * sharers) + size * l->gamma_s;
    }
    return total;
}

double ct_cost_between(const ct_topo *t, int64_t bytes, int n_lane, bool ring)
{
    const ct_link *l = &t->inter;
    double n = t->n_node, b = (double)bytes;
    double volume = (n - 1) / n * b * (2 * l->beta_s * n_lane + l->gamma_s);

    if (t->n_node == 1) return 0;
    if (ring) return 2 * (n - 1) * l->alpha_s + volume;
    return 2 * log2_up(t->n_node) * l->alpha_s + rhd_stalls * volume +
           cost_fold(l, t->n_node, bytes);
}
