/* RedSync's selections (arXiv 1808.04357): thresholds between the mean and the maximum of the
 * magnitudes. Where the distribution gives no threshold (a constant: mean and maximum are equal; a
 * few huge elements: fewer than k over the mean) they end in the exact selection. With one sign
 * only, mean and maximum are those of the keys: elements of the other sign count as zero. */
#include "comm/codec/select_impl.h"

enum { MAX_ROUND = 6, MAX_AGE = 5 };

typedef struct spread {
    float mean, max;
} spread;

static void sum_block(const ct_select_run *r, ct_select_thread *t, int64_t first, int64_t n)
{
    ct_block_extremes(r->key, r->a->v + first, n, &t->found);
    r->sel->block_sum[first / CT_SELECT_BLOCK] = ct_block_sum(r->key, r->a->v + first, n);
}

static void count_block(const ct_select_run *r, ct_select_thread *t, int64_t first, int64_t n)
{
    ct_block_count(r->key, r->a->v + first, n, r->probe, t->count);
}

/* Sums of blocks, added in order: the mean does not depend on the number of threads. */
static ct_status find_spread(ct_select_run *r, spread *out)
{
    ct_selector *sel = r->sel;
    double sum = 0.0;
    int32_t most = 0;

    if (sel->block_sum == NULL)
        sel->block_sum = ct_mem_acquire((size_t)sel->n_block * sizeof(*sel->block_sum));
    if (sel->block_sum == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for sums of blocks");
    CT_TRY(ct_select_pass(r, sum_block));
    for (int64_t b = 0; b < sel->n_block; ++b) sum += sel->block_sum[b];
    for (int t = 0; t < r->team; ++t)
        most = (sel->thread[t].found.most > most) ? sel->thread[t].found.most : most;
    out->mean = (float)(sum / (double)sel->n);
    out->max = ct_select_float(most);
    return CT_OK;
}

/* How many keys are over each of the probes. */
static ct_status count(ct_select_run *r, const float *threshold, int n, int64_t *count_p)
{
    for (int j = 0; j < CT_SELECT_PROBES; ++j)
        r->probe[j] = (j < n) ? ct_select_bits(threshold[j]) : INT32_MAX;
    for (int t = 0; t < r->team; ++t)
        memset(r->sel->thread[t].count, 0, sizeof(r->sel->thread[t].count));
    CT_TRY(ct_select_pass(r, count_block));
    for (int j = 0; j < n; ++j) {
        count_p[j] = 0;
        for (int t = 0; t < r->team; ++t) count_p[j] += r->sel->thread[t].count[j];
    }
    return CT_OK;
}

/* mean + ratio (max - mean), ratio = 0.8, 0.6 … 0, all counted in one pass: the first that k pass.
 */
ct_status ct_select_trimmed(ct_select_run *r)
{
    enum { STEPS = 5 };
    float threshold[STEPS];
    int64_t passed[STEPS], total;
    int32_t bound = 0;
    spread s;

    CT_TRY(find_spread(r, &s));
    for (int j = 0; j < STEPS; ++j)
        threshold[j] = s.mean + 0.2f * (float)(STEPS - 1 - j) * (s.max - s.mean);
    CT_TRY(count(r, threshold, STEPS, passed));
    for (int j = 0; (j < STEPS) && (bound == 0); ++j)
        if (passed[j] >= r->sel->k) bound = ct_select_bits(threshold[j]);
    return ct_select_collect_k(r, bound, &total);
}

/* A threshold that k to 5/4 k keys pass: eight probes a round between low, which too many pass, and
 * high. *found_p false: there is none to be found, but at least k pass *low_p, or it is 0. */
static ct_status search(ct_select_run *r, spread s, float *low_p, bool *found_p)
{
    float low = s.mean, high = s.max, x[CT_SELECT_PROBES];
    int64_t passed[CT_SELECT_PROBES], k = r->sel->k;

    *found_p = false;
    for (int round = 0; (round < MAX_ROUND) && (low < high); ++round) {
        int j = CT_SELECT_PROBES - 1;

        for (int i = 0; i < CT_SELECT_PROBES; ++i)
            x[i] = low + (float)i / CT_SELECT_PROBES * (high - low);
        CT_TRY(count(r, x, CT_SELECT_PROBES, passed));
        while ((j >= 0) && (passed[j] < k)) --j;
        if (j < 0) { /* below the mean, then */
            if (low == 0.0f) break;
            high = low;
            low = 0.0f;
            continue;
        }
        low = x[j];
        *found_p = (passed[j] <= ct_select_most(k));
        if (*found_p) break;
        if (j < CT_SELECT_PROBES - 1) high = x[j + 1];
    }
    *low_p = (low < high) ? low : 0.0f;
    return CT_OK;
}

ct_status ct_select_search(ct_select_run *r)
{
    float low;
    int64_t total;
    bool found;
    spread s;

    CT_TRY(find_spread(r, &s));
    CT_TRY(search(r, s, &low, &found));
    r->limit = found ? ct_selector_bound(r->sel) : r->sel->k;
    r->history->threshold = found ? low : 0.0f;
    r->history->age = 1;
    return ct_select_collect_k(r, ct_select_bits(low), &total);
}

ct_status ct_select_sampled(ct_select_run *r)
{
    ct_select_history *h = r->history;
    int64_t total;
    bool pruned;

    if ((h->threshold <= 0.0f) || (h->age >= MAX_AGE)) return ct_select_search(r);
    h->age += 1;
    r->limit = ct_selector_bound(r->sel);
    r->sel->stats.history = true;
    CT_TRY(ct_select_collect(r, ct_select_bits(h->threshold), &total, &pruned));
    if (!pruned && (2 * total >= r->sel->k) && (total <= r->limit)) return CT_OK;
    r->sel->stats.history = false;
    return ct_select_search(r);
}
