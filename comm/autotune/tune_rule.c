#include "comm/autotune/tune_rule.h"

int64_t ct_tune_best(const int64_t *ns, int n)
{
    int64_t best = 0;

    for (int k = 0; k < n; ++k) {
        if ((ns[k] > 0) && ((best == 0) || (ns[k] < best))) best = ns[k];
    }
    return best;
}

int ct_tune_challenger(const int64_t *ns, int n_way, int n_round, double clearly)
{
    int64_t model = ct_tune_best(ns, n_round), least = 0;
    int found = 0;

    for (int w = 1; w < n_way; ++w) {
        int64_t best = ct_tune_best(ns + w * CT_TUNE_MOST_ROUNDS, n_round);

        if ((best == 0) || ((double)best >= clearly * (double)model)) continue;
        if ((found > 0) && (best >= least)) continue;
        found = w;
        least = best;
    }
    return found;
}

bool ct_tune_wins(const int64_t *other, const int64_t *model, int n_round, double clearly)
{
    int both = 0;

    for (int k = 0; k < n_round; ++k) {
        if ((other[k] == 0) || (model[k] == 0)) continue;
        if (other[k] >= model[k]) return false;
        both += 1;
    }
    return (both >= CT_TUNE_LEAST_ROUNDS) &&
           ((double)ct_tune_best(other, n_round) < clearly * (double)ct_tune_best(model, n_round));
}

int64_t ct_tune_median(const int64_t *ns, int n)
{
    int64_t sorted[CT_TUNE_MOST_ROUNDS];
    int n_sorted = 0;

    for (int k = 0; k < n; ++k) {
        int at = n_sorted;

        if (ns[k] == 0) continue;
        for (; (at > 0) && (sorted[at - 1] > ns[k]); --at) sorted[at] = sorted[at - 1];
        sorted[at] = ns[k];
        n_sorted += 1;
    }
    if (n_sorted == 0) return 0;
    return (sorted[(n_sorted - 1) / 2] + sorted[n_sorted / 2]) / 2;
}

bool ct_tune_shorter(const int64_t *other, const int64_t *ns, int n_round)
{
    int64_t a = ct_tune_median(other, n_round), b = ct_tune_median(ns, n_round);

    return (a > 0) && (a < b);
}
