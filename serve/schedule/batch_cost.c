#include "serve/schedule/batch_cost.h"

#include <inttypes.h>
#include <math.h>

/* Pools neighbours that decrease into their mean, from the left: the regression is unique. */
static void fit(ct_batch_cost *c)
{
    int first[CT_BATCH_COST_POINTS], n = 0; /* blocks of equal values */

    for (int i = 0; i < c->n; i++) {
        double sum = c->measured[i];
        int at = i;

        c->s[i] = sum;
        while ((n > 0) && (c->s[first[n - 1]] >= sum / (i + 1 - at))) {
            n--;
            sum += c->s[first[n]] * (at - first[n]);
            at = first[n];
            c->s[at] = sum / (i + 1 - at);
        }
        first[n++] = at;
    }
    for (int k = 0; k < n; k++) {
        int end = (k + 1 < n) ? first[k + 1] : c->n;

        for (int i = first[k] + 1; i < end; i++) c->s[i] = c->s[first[k]];
    }
}

ct_status ct_batch_cost_init(ct_batch_cost *c, int n, const int64_t *tokens, const double *s)
{
    if ((n < 1) || (n > CT_BATCH_COST_POINTS))
        return CT_FAIL(CT_ERR_ARG, "costs of batches: %d points, expected 1 to %d", n,
                       CT_BATCH_COST_POINTS);
    for (int i = 0; i < n; i++) {
        if (tokens[i] <= ((i > 0) ? tokens[i - 1] : 0))
            return CT_FAIL(CT_ERR_ARG,
                           "costs of batches: point %d has %" PRId64
                           " tokens, expected more than the one before",
                           i, tokens[i]);
        if (!(s[i] > 0) || !isfinite(s[i]))
            return CT_FAIL(CT_ERR_ARG,
                           "costs of batches: %" PRId64 " tokens took %g s, expected "
                           "more than 0",
                           tokens[i], s[i]);
    }
    *c = (ct_batch_cost){ .n = n };
    for (int i = 0; i < n; i++) {
        c->tokens[i] = tokens[i];
        c->measured[i] = s[i];
    }
    fit(c);
    return CT_OK;
}

/* The last point with at most so many tokens; -1: none. */
static int point_below(const ct_batch_cost *c, int64_t tokens)
{
    int i = c->n - 1;

    while ((i >= 0) && (c->tokens[i] > tokens)) i--;
    return i;
}

/* How far between point i and the next. */
static double fraction(const ct_batch_cost *c, int i, int64_t tokens)
{
    return (double)(tokens - c->tokens[i]) / (double)(c->tokens[i + 1] - c->tokens[i]);
}

double ct_batch_cost_s(const ct_batch_cost *c, int64_t tokens)
{
    int i = point_below(c, tokens);
    double f;

    if (tokens <= 0) return 0;
    if (i < 0) return c->s[0];
    if (i == c->n - 1) return c->s[i] * ((double)tokens / (double)c->tokens[i]);
    f = fraction(c, i, tokens);
    return (1 - f) * c->s[i] + f * c->s[i + 1];
}

bool ct_batch_cost_has_time(double spent_s, double last_s, double limit_s)
{
    return 2 * (spent_s + 2 * last_s) <= limit_s;
}

bool ct_batch_cost_is_short(const ct_batch_cost *c, int64_t most, double limit_s)
{
    double sum = 0;

    for (int i = 0; i < c->n; i++) sum += c->measured[i];
    return (2 * c->tokens[c->n - 1] <= most) &&
           ct_batch_cost_has_time(2 * sum, 2 * c->measured[c->n - 1], limit_s);
}

int64_t ct_batch_cost_knee(const ct_batch_cost *c, double share)
{
    double best = 0, rate, slope, crossing;
    int i = 0;

    for (int k = 0; k < c->n; k++) best = fmax(best, (double)c->tokens[k] / c->s[k]);
    rate = share * best;
    while ((double)c->tokens[i] / c->s[i] < rate) i++;
    if (i == 0) return c->tokens[0];
    /* t = rate (s0 + slope (t - t0)), in the segment in front of point i */
    slope = (c->s[i] - c->s[i - 1]) / (double)(c->tokens[i] - c->tokens[i - 1]);
    crossing = rate * (c->s[i - 1] - slope * (double)c->tokens[i - 1]) / (1 - rate * slope);
    if (!(crossing < (double)c->tokens[i])) return c->tokens[i];
    return (int64_t)ceil(crossing);
}

void ct_batch_cost_observe(ct_batch_cost *c, int64_t tokens, double s)
{
    const double share = 0.125;
    double expected = ct_batch_cost_s(c, tokens), error, f, left, right;
    int i = point_below(c, tokens);

    if ((tokens <= 0) || !(s > 0)) return;
    error = share * (fmin(fmax(s, 0.5 * expected), 2 * expected) - expected);
    if ((i < 0) || (i == c->n - 1)) {
        c->measured[(i < 0) ? 0 : i] *= 1 + error / expected;
    } else {
        /* Points move by the least shares of themselves with which the line between moves by
         * `error`: at most by 0.08 down, so that none passes 0, however far one is off. */
        f = fraction(c, i, tokens);
        left = (1 - f) * c->s[i];
        right = f * c->s[i + 1];
        error /= left * left + right * right;
        c->measured[i] *= 1 + left * error;
        c->measured[i + 1] *= 1 + right * error;
    }
    fit(c);
}

/* ---- chunks behind others */

void ct_batch_cost_look_back(ct_batch_cost *c, double behind, double times)
{
    const double share = 1.0 / 32;
    double y = fmin(fmax(times, 0.5), 2); /* a pause of the machine is no slope */

    c->back.weight += share * (1 - c->back.weight);
    c->back.x += share * (behind - c->back.x);
    c->back.y += share * (y - c->back.y);
    c->back.xx += share * (behind * behind - c->back.xx);
    c->back.xy += share * (behind * y - c->back.xy);
}

double ct_batch_cost_times(const ct_batch_cost *c, double behind)
{
    const double few = 4.0 / 32, far = 256; /* as if so many chunks so far away had said 0 */
    double variance, covariance;

    if (!(c->back.weight > 0)) return 1;
    variance = c->back.xx - c->back.x * c->back.x / c->back.weight + few * far * far;
    covariance = c->back.xy - c->back.x * c->back.y / c->back.weight;
    return 1 + fmax(0, covariance / variance) * behind;
}

/* ---- groups */

void ct_group_lengths(const ct_grouping *g, const int64_t *length, int n, double *best, int *from,
                      int *end, int *n_p)
{
    int n_group = 0;

    best[0] = 0;
    for (int i = 1; i <= n; i++) {
        int64_t count = 0;

        best[i] = INFINITY;
        for (int j = i - 1; j >= 0; j--) {
            double s;

            count += (g->samples != NULL) ? g->samples[j] : 1;
            if ((i - j > 1) &&
                ((count > g->most_count) || (length[i - 1] > g->most_tokens / count)))
                break; /* and so with every earlier j */
            s = best[j] + g->cost(g->ctx, length[i - 1], count);
            if (s < best[i]) {
                best[i] = s;
                from[i] = j;
            }
        }
    }
    for (int i = n; i > 0; i = from[i]) end[n_group++] = i;
    for (int a = 0, b = n_group - 1; a < b; a++, b--) {
        int swap = end[a];

        end[a] = end[b];
        end[b] = swap;
    }
    *n_p = n_group;
}
