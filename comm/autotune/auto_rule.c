#include "comm/autotune/auto_rule.h"
#include "framework/base/sort.h"

#include <stdlib.h>
#include <string.h>

static const double clearly = 1.5; /* times as long: no more steps are needed */
static const double near_by = 0.1;
static const double gain = 0.98, hysteresis = 0.95;
static const double longer = 1.25;

void ct_auto_times_add(ct_auto_times *t, int64_t ns)
{
    if (t->n < CT_AUTO_MOST) t->ns[t->n++] = ns;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

double ct_auto_median(const ct_auto_times *t)
{
    int64_t v[CT_AUTO_MOST];
    int n = t->n;

    if (n == 0) return 0;
    memcpy(v, t->ns, sizeof(*v) * (size_t)n);
    qsort(v, (size_t)n, sizeof(*v), ascending);
    return 1e-9 * ((n % 2 == 1) ? (double)v[n / 2] : 0.5 * (double)(v[n / 2 - 1] + v[n / 2]));
}

bool ct_auto_is_enough(const ct_auto_times *t, const ct_auto_times *against, bool second)
{
    int64_t least = INT64_MAX, most = 0;

    if (t->n >= (second ? CT_AUTO_MOST : CT_AUTO_STEPS)) return true;
    if ((against == NULL) || (against->n == 0) || (t->n < CT_AUTO_STEPS / 2)) return false;
    for (int i = 0; i < t->n; ++i) least = (t->ns[i] < least) ? t->ns[i] : least;
    for (int i = 0; i < against->n; ++i) most = (against->ns[i] > most) ? against->ns[i] : most;
    return (double)least > clearly * (double)most;
}

bool ct_auto_is_near(const ct_auto_times *coded, const ct_auto_times *dense)
{
    double c = ct_auto_median(coded), d = ct_auto_median(dense);

    return (c > (1 - near_by) * d) && (c < (1 + near_by) * d);
}

bool ct_auto_takes(const ct_auto_times *coded, const ct_auto_times *dense, ct_auto_now now)
{
    double c = ct_auto_median(coded), d = ct_auto_median(dense);

    if (now == CT_AUTO_CODED) return !(d < hysteresis * c);
    return c < ((now == CT_AUTO_DENSE) ? hysteresis : gain) * d;
}

/* ---- plans in turns */

void ct_auto_trials_begin(ct_auto_trials *t, int n_plan)
{
    *t = (ct_auto_trials){ .n_plan = n_plan, .at = n_plan - 1 };
}

/* Of n plans, but one; -1: none has steps. */
static int fastest(const ct_auto_trials *t, int n, int but)
{
    int best = -1;

    for (int k = 0; k < n; ++k) {
        if ((k == but) || (t->times[k].n == 0)) continue;
        if ((best < 0) || (ct_auto_median(&t->times[k]) < ct_auto_median(&t->times[best])))
            best = k;
    }
    return best;
}

int ct_auto_trials_best(const ct_auto_trials *t)
{
    int best = fastest(t, t->n_plan - 1, -1);

    return (best < 0) ? 0 : best;
}

/* Who has a second turn: the best codec where any plan is near it, and codecs that are. */
static bool look_again(ct_auto_trials *t)
{
    int best = ct_auto_trials_best(t);

    if (t->again) return false;
    for (int k = 0; k < t->n_plan; ++k) {
        if ((k == best) || !ct_auto_is_near(&t->times[k], &t->times[best])) continue;
        t->turn[k] = t->turn[best] = t->again = true;
    }
    return t->again;
}

static int decide(const ct_auto_trials *t, int held)
{
    int dense = t->n_plan - 1, coded = ct_auto_trials_best(t);
    ct_auto_now now = (held < 0) ? CT_AUTO_NEW : (held == dense) ? CT_AUTO_DENSE : CT_AUTO_CODED;

    if ((now == CT_AUTO_CODED) &&
        (ct_auto_median(&t->times[coded]) >= hysteresis * ct_auto_median(&t->times[held])))
        coded = held;
    return ct_auto_takes(&t->times[coded], &t->times[dense], now) ? coded : dense;
}

/* Dense, then codecs from the first to the last, then those with a second turn. */
static int next_plan(ct_auto_trials *t)
{
    int n_coded = t->n_plan - 1, next = (t->at == n_coded) ? 0 : t->at + 1;

    if ((next == n_coded) && (n_coded > 0) && look_again(t)) next = 0;
    while (t->again && (next < n_coded) && !t->turn[next]) next += 1;
    return next;
}

ct_auto_turn ct_auto_trials_add(ct_auto_trials *t, int64_t ns, int held, int *plan_p)
{
    int other = fastest(t, t->n_plan, t->at), next = 0;

    ct_auto_times_add(&t->times[t->at], ns);
    if (!ct_auto_is_enough(&t->times[t->at], (other < 0) ? NULL : &t->times[other], t->again))
        return CT_AUTO_STAY;
    next = next_plan(t);
    if (next >= t->n_plan - 1) { /* nobody is left */
        *plan_p = decide(t, held);
        return CT_AUTO_DECIDED;
    }
    *plan_p = t->at = next;
    return CT_AUTO_NEXT;
}

/* ---- later */

void ct_auto_drift_begin(ct_auto_drift *d, int skip)
{
    *d = (ct_auto_drift){ .skip = skip, .rest = CT_AUTO_REST };
}

bool ct_auto_drift_add(ct_auto_drift *d, double step_s, double *median_s_p)
{
    if (d->skip > 0) {
        d->skip -= 1;
        return false;
    }
    if (d->rest > 0) d->rest -= 1;
    d->n_all += 1;
    d->all_s += step_s;
    d->step_s[d->n++] = step_s;
    if (d->n < CT_AUTO_WINDOW) return false;
    d->n = 0;
    ct_sort(d->step_s, CT_AUTO_WINDOW);
    *median_s_p = d->step_s[CT_AUTO_WINDOW / 2];
    return true;
}

bool ct_auto_drift_window(ct_auto_drift *d, double median_s)
{
    if (d->reference_s == 0) d->reference_s = median_s;
    d->longer = (median_s > longer * d->reference_s) ? d->longer + 1 : 0;
    return (d->longer >= CT_AUTO_WINDOWS) && (d->rest == 0);
}
