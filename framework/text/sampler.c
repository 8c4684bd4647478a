#include "framework/text/sampler.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "framework/base/rng.h"

typedef struct candidate {
    double weight;
    int32_t id;
} candidate;

struct ct_sampler {
    int64_t n;
    bool *has; /* [n]: the tokenizer has this id */
    candidate *candidate;
};

ct_status ct_sampler_create(const ct_tokenizer *t, ct_sampler **s_p)
{
    int64_t n = ct_tokenizer_size(t);
    ct_sampler *s = calloc(1, sizeof(*s));

    if (s != NULL) {
        s->has = calloc((size_t)n + 1, sizeof(s->has[0]));
        s->candidate = calloc((size_t)n + 1, sizeof(s->candidate[0]));
    }
    if ((s == NULL) || (s->has == NULL) || (s->candidate == NULL)) {
        ct_sampler_destroy(s);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " tokens", n);
    }
    s->n = n;
    for (int64_t i = 0; i < n; i++) s->has[i] = ct_tokenizer_has(t, (int32_t)i);
    *s_p = s;
    return CT_OK;
}

void ct_sampler_destroy(ct_sampler *s)
{
    if (s == NULL) return;
    free(s->has);
    free(s->candidate);
    free(s);
}

/* The largest score, of equal ones the lowest id; -1: there is none. */
static int32_t find_best(const ct_sampler *s, const float *score)
{
    int32_t best = -1;

    for (int32_t i = 0; i < s->n; i++) {
        if (!s->has[i] || !(score[i] > -INFINITY)) continue;
        if ((best < 0) || (score[i] > score[best])) best = i;
    }
    return best;
}

static int by_weight(const void *a, const void *b)
{
    const candidate *x = a, *y = b;

    if (x->weight != y->weight) return (x->weight < y->weight) ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Leaves out those that cannot be among the most probable ones with share p: together they have
 * less than what is left. */
static int64_t drop_small(candidate *c, int64_t n, double least)
{
    int64_t kept = 0;

    for (int64_t i = 0; i < n; i++) {
        if (c[i].weight >= least) c[kept++] = c[i];
    }
    return kept;
}

/* By e^(score / temperature), of the most probable tokens that have top_p together. */
static int32_t draw(ct_sampler *s, const ct_sampling *how, int64_t number, const float *score,
                    int32_t best)
{
    candidate *c = s->candidate;
    double all = 0, kept = 0, at;
    int64_t n = 0, n_kept = 0;

    for (int32_t i = 0; i < s->n; i++) {
        double weight = exp(((double)score[i] - (double)score[best]) / how->temperature);

        if (!s->has[i] || !(weight > 0)) continue;
        c[n++] = (candidate){ weight, i };
        all += weight;
    }
    if (how->top_p < 1.0) {
        n = drop_small(c, n, (1 - how->top_p) * all / (double)(n + 1));
        qsort(c, (size_t)n, sizeof(*c), by_weight);
    }
    while ((n_kept < n) && ((how->top_p >= 1.0) || (kept < how->top_p * all)))
        kept += c[n_kept++].weight;
    at = (double)(ct_rng_key(how->seed, (uint64_t)number, 0) >> 11) * 0x1p-53 * kept;
    for (int64_t i = 0; i + 1 < n_kept; i++) {
        if (at < c[i].weight) return c[i].id;
        at -= c[i].weight;
    }
    return c[n_kept - 1].id;
}

ct_status ct_sampler_choose(ct_sampler *s, const ct_sampling *how, int64_t number,
                            const float *score, int32_t *id_p)
{
    int32_t best = find_best(s, score);

    if ((best < 0) || (score[best] == INFINITY)) return CT_ERR_DATA;
    *id_p = (how->temperature > 0) ? draw(s, how, number, score, best) : best;
    return CT_OK;
}

/* Puts one into best[*n_p], in order; room for n. */
static void insert(ct_scored_id *best, int n, int *n_p, ct_scored_id one)
{
    int k = *n_p;

    if ((k == n) && ((n == 0) || !(one.logprob > best[n - 1].logprob))) return;
    if (k < n) ++*n_p;
    for (k = *n_p - 1; (k > 0) && (best[k - 1].logprob < one.logprob); k--) best[k] = best[k - 1];
    best[k] = one;
}

double ct_sampler_logprobs(const ct_sampler *s, const float *score, int32_t id, int n,
                           ct_scored_id *best, int *n_p)
{
    int32_t top = find_best(s, score);
    double sum = 0, log_sum;

    *n_p = 0;
    if (top < 0) return -INFINITY;
    for (int32_t i = 0; i < s->n; i++) {
        if (!s->has[i] || !(score[i] > -INFINITY)) continue;
        sum += exp((double)score[i] - (double)score[top]);
        if (n > 0) insert(best, n, n_p, (ct_scored_id){ i, (double)score[i] });
    }
    log_sum = (double)score[top] + log(sum);
    for (int k = 0; k < *n_p; k++) best[k].logprob -= log_sum;
    return (double)score[id] - log_sum;
}
