/* Rows of times, the rules, and the one mechanism that all trials have. */
#include "comm/autotune/trial.h"

#include <stdlib.h>
#include <string.h>

#include "comm/collective/blocking.h"
#include "framework/base/sort.h"

enum { MOST_BLOCK = 2 * CT_TRIAL_BLOCK };

static const double duel_clearly = 0.9;  /* of the model's choice's time: another is taken       */
static const double block_clearly = 1.5; /* times as long: no more steps are needed              */
static const double near_by = 0.1;
static const double gain = 0.98, hysteresis = 0.95;
static const double longer = 1.25;

/* ---- rows of times */

int64_t ct_trial_best(const int64_t *ns, int n)
{
    int64_t best = 0;

    for (int k = 0; k < n; ++k) {
        if ((ns[k] > 0) && ((best == 0) || (ns[k] < best))) best = ns[k];
    }
    return best;
}

double ct_trial_median(const int64_t *ns, int n)
{
    int64_t sorted[CT_TRIAL_ROUNDS];
    int n_sorted = 0, half;

    for (int k = 0; k < n; ++k) {
        int at = n_sorted;

        if (ns[k] == 0) continue;
        for (; (at > 0) && (sorted[at - 1] > ns[k]); --at) sorted[at] = sorted[at - 1];
        sorted[at] = ns[k];
        n_sorted += 1;
    }
    if (n_sorted == 0) return 0;
    half = n_sorted / 2;
    if (n_sorted % 2 == 1) return (double)sorted[half];
    return 0.5 * (double)(sorted[half - 1] + sorted[half]);
}

static double median_of(const int64_t *row)
{
    return ct_trial_median(row, CT_TRIAL_ROUNDS);
}

static int count_of(const int64_t *row)
{
    int n = 0;

    for (int k = 0; k < CT_TRIAL_ROUNDS; ++k) n += (row[k] > 0);
    return n;
}

int64_t *ct_trial_row(const ct_trial *t, int i)
{
    return t->ns + (size_t)i * CT_TRIAL_ROUNDS;
}

/* ---- duels */

int ct_trial_challenger(const int64_t *ns, int n_row, int n_round, double clearly)
{
    int64_t model = ct_trial_best(ns, n_round), least = 0;
    int found = 0;

    for (int w = 1; w < n_row; ++w) {
        int64_t best = ct_trial_best(ns + w * CT_TRIAL_ROUNDS, n_round);

        if ((best == 0) || ((double)best >= clearly * (double)model)) continue;
        if ((found > 0) && (best >= least)) continue;
        found = w;
        least = best;
    }
    return found;
}

bool ct_trial_wins(const int64_t *other, const int64_t *model, int n_round, double clearly)
{
    int both = 0;

    for (int k = 0; k < n_round; ++k) {
        if ((other[k] == 0) || (model[k] == 0)) continue;
        if (other[k] >= model[k]) return false;
        both += 1;
    }
    return (both >= CT_TRIAL_DUEL_ROUNDS) && ((double)ct_trial_best(other, n_round) <
                                              clearly * (double)ct_trial_best(model, n_round));
}

static int model_first(const ct_trial *t)
{
    (void)t;
    return 0;
}

/* Behind the candidates' rows lie those of the duel: the model's and its rival's. */
static int duel_place(const ct_trial *t)
{
    bool duel = (t->step >= t->length);
    int row = duel ? t->n + (t->now != 0) : t->now;
    int round = duel ? (t->step - t->length) / 2 : t->step / t->n;

    return (round < CT_TRIAL_ROUNDS) ? row * CT_TRIAL_ROUNDS + round : -1;
}

static int duel_compares(const ct_trial *t, int *first_p)
{
    *first_p = (t->step == t->length) ? 0 : t->n;
    if (t->step == t->length) return t->n;
    return (t->step == t->length + CT_TRIAL_DUEL_STEPS) ? 2 : 0;
}

static ct_trial_turn duel_next(ct_trial *t, int *to_p)
{
    int at = t->step - t->length;
    const int64_t *model = ct_trial_row(t, t->n);

    *to_p = 0;
    if (at < 0) {
        *to_p = t->step % t->n;
        return CT_TRIAL_NEXT;
    }
    if (at == 0) t->rival = ct_trial_challenger(t->ns, t->n, CT_TRIAL_ROUNDS, duel_clearly);
    if (t->rival == 0) return CT_TRIAL_DECIDED;
    if (at < CT_TRIAL_DUEL_STEPS) {
        *to_p = (at % 2 == 0) ? 0 : t->rival;
        return CT_TRIAL_NEXT;
    }
    if (ct_trial_wins(model + CT_TRIAL_ROUNDS, model, CT_TRIAL_ROUNDS, duel_clearly))
        *to_p = t->rival;
    return CT_TRIAL_DECIDED;
}

const ct_trial_rule ct_trial_duels = { model_first, duel_place, duel_compares, duel_next };

/* ---- pairs */

bool ct_trial_shorter(const int64_t *other, const int64_t *ns, int n_round)
{
    double a = ct_trial_median(other, n_round), b = ct_trial_median(ns, n_round);

    return (a > 0) && ((int64_t)a < (int64_t)b);
}

static int pair_place(const ct_trial *t)
{
    return (t->step / 2 < CT_TRIAL_ROUNDS) ? t->now * CT_TRIAL_ROUNDS + t->step / 2 : -1;
}

static int pair_compares(const ct_trial *t, int *first_p)
{
    *first_p = 0;
    return (t->step == t->length) ? 2 : 0;
}

static ct_trial_turn pair_next(ct_trial *t, int *to_p)
{
    if (t->step < t->length) {
        *to_p = (t->step % 4 == 1) || (t->step % 4 == 2);
        return CT_TRIAL_NEXT;
    }
    *to_p = ct_trial_shorter(ct_trial_row(t, 1), ct_trial_row(t, 0), CT_TRIAL_ROUNDS);
    return CT_TRIAL_DECIDED;
}

const ct_trial_rule ct_trial_pairs = { model_first, pair_place, pair_compares, pair_next };

/* ---- blocks */

bool ct_trial_is_enough(const int64_t *ns, const int64_t *against, bool second)
{
    int n = count_of(ns);
    int64_t most = 0;

    if (n >= (second ? MOST_BLOCK : CT_TRIAL_BLOCK)) return true;
    if ((against == NULL) || (count_of(against) == 0) || (n < CT_TRIAL_BLOCK / 2)) return false;
    for (int i = 0; i < CT_TRIAL_ROUNDS; ++i) most = (against[i] > most) ? against[i] : most;
    return (double)ct_trial_best(ns, CT_TRIAL_ROUNDS) > block_clearly * (double)most;
}

bool ct_trial_is_near(const int64_t *coded, const int64_t *dense)
{
    double c = median_of(coded), d = median_of(dense);

    return (c > (1 - near_by) * d) && (c < (1 + near_by) * d);
}

bool ct_trial_takes(const int64_t *coded, const int64_t *dense, ct_trial_held held)
{
    double c = median_of(coded), d = median_of(dense);

    if (held == CT_TRIAL_CODED) return !(d < hysteresis * c);
    return c < ((held == CT_TRIAL_DENSE) ? hysteresis : gain) * d;
}

/* Of n candidates, but one; -1: none has steps. */
static int fastest(const ct_trial *t, int n, int but)
{
    int best = -1;

    for (int k = 0; k < n; ++k) {
        if ((k == but) || (count_of(ct_trial_row(t, k)) == 0)) continue;
        if ((best < 0) || (median_of(ct_trial_row(t, k)) < median_of(ct_trial_row(t, best))))
            best = k;
    }
    return best;
}

static int best_coded(const ct_trial *t)
{
    int best = fastest(t, t->n - 1, -1);

    return (best < 0) ? 0 : best;
}

/* Who has a second turn: the best codec where any plan is near it, and codecs that are. */
static bool look_again(ct_trial *t)
{
    int best = best_coded(t);

    if (t->again) return false;
    for (int k = 0; k < t->n; ++k) {
        if ((k == best) || !ct_trial_is_near(ct_trial_row(t, k), ct_trial_row(t, best))) continue;
        t->turn[k] = t->turn[best] = t->again = true;
    }
    return t->again;
}

static int decide(const ct_trial *t)
{
    int dense = t->n - 1, coded = best_coded(t);
    ct_trial_held held = (t->held < 0)        ? CT_TRIAL_NEW
                         : (t->held == dense) ? CT_TRIAL_DENSE
                                              : CT_TRIAL_CODED;

    if ((held == CT_TRIAL_CODED) &&
        (median_of(ct_trial_row(t, coded)) >= hysteresis * median_of(ct_trial_row(t, t->held))))
        coded = t->held;
    return ct_trial_takes(ct_trial_row(t, coded), ct_trial_row(t, dense), held) ? coded : dense;
}

static int dense_first(const ct_trial *t)
{
    return t->n - 1;
}

static int block_place(const ct_trial *t)
{
    int n = count_of(ct_trial_row(t, t->now));

    return (n < MOST_BLOCK) ? t->now * CT_TRIAL_ROUNDS + n : -1;
}

static int block_compares(const ct_trial *t, int *first_p)
{
    *first_p = t->now;
    return 1;
}

/* Dense, then codecs from the first to the last, then those with a second turn. */
static ct_trial_turn block_next(ct_trial *t, int *to_p)
{
    int other = fastest(t, t->n, t->now), n_coded = t->n - 1, next = 0;

    if (!ct_trial_is_enough(ct_trial_row(t, t->now), (other < 0) ? NULL : ct_trial_row(t, other),
                            t->again))
        return CT_TRIAL_STAY;
    next = (t->now == n_coded) ? 0 : t->now + 1;
    if ((next == n_coded) && (n_coded > 0) && look_again(t)) next = 0;
    while (t->again && (next < n_coded) && !t->turn[next]) next += 1;
    *to_p = (next < n_coded) ? next : decide(t);
    return (next < n_coded) ? CT_TRIAL_NEXT : CT_TRIAL_DECIDED; /* nobody is left */
}

const ct_trial_rule ct_trial_blocks = { dense_first, block_place, block_compares, block_next };

/* ---- a trial */

void ct_trial_release(ct_trial *t)
{
    free(t->ns);
    free(t->turn);
    *t = (ct_trial){ .decided = true };
}

ct_status ct_trial_begin(ct_trial *t, const ct_trial_rule *rule, int n, int length, int held)
{
    ct_trial_release(t);
    *t = (ct_trial){ .rule = rule, .n = n, .length = length, .held = held };
    t->ns = calloc((size_t)(n + 2) * CT_TRIAL_ROUNDS, sizeof(*t->ns));
    t->turn = calloc((size_t)n + 1, sizeof(*t->turn));
    if ((t->ns == NULL) || (t->turn == NULL)) {
        ct_trial_release(t);
        return CT_FAIL(CT_ERR_NOMEM, "no memory to try %d ways", n);
    }
    t->now = rule->first(t);
    return CT_OK;
}

void ct_trial_note(ct_trial *t, int64_t ns)
{
    int at = t->rule->place(t);

    t->step += 1;
    if (at >= 0) t->ns[at] = ns;
}

ct_trial_turn ct_trial_go_on(ct_trial *t, int *to_p)
{
    ct_trial_turn turn = t->rule->next(t, to_p);

    if (turn == CT_TRIAL_NEXT) t->now = *to_p;
    if (turn == CT_TRIAL_DECIDED) t->decided = true;
    return turn;
}

ct_status ct_trial_start(const ct_trial *t, const ct_tried_ops *ops, void *ctx)
{
    return ops->go(ctx, t->now);
}

ct_status ct_trial_step(ct_trial *t, ct_comm *c, const ct_tried_ops *ops, void *ctx,
                        int64_t step_ns)
{
    int first = 0, n = 0, to = 0;

    if (t->decided) return CT_OK;
    if (t->skip > 0) {
        t->skip -= 1;
        return CT_OK;
    }
    ct_trial_note(t, ops->took(ctx, step_ns));
    n = t->rule->compares(t, &first);
    if (n > 0) CT_TRY(ct_comm_max(c, ct_trial_row(t, first), n * CT_TRIAL_ROUNDS));
    switch (ct_trial_go_on(t, &to)) {
    case CT_TRIAL_STAY:
        break;
    case CT_TRIAL_NEXT:
        return ops->go(ctx, to);
    case CT_TRIAL_DECIDED:
        return ops->settle(ctx, to);
    }
    return CT_OK;
}

/* ---- later */

void ct_trial_drift_begin(ct_trial_drift *d, int skip)
{
    *d = (ct_trial_drift){ .skip = skip, .rest = CT_TRIAL_REST };
}

bool ct_trial_drift_add(ct_trial_drift *d, double step_s, double *median_s_p)
{
    if (d->skip > 0) {
        d->skip -= 1;
        return false;
    }
    if (d->rest > 0) d->rest -= 1;
    d->n_all += 1;
    d->all_s += step_s;
    d->step_s[d->n++] = step_s;
    if (d->n < CT_TRIAL_WINDOW) return false;
    d->n = 0;
    ct_sort(d->step_s, CT_TRIAL_WINDOW);
    *median_s_p = d->step_s[CT_TRIAL_WINDOW / 2];
    return true;
}

bool ct_trial_drift_window(ct_trial_drift *d, double median_s)
{
    if (d->reference_s == 0) d->reference_s = median_s;
    d->longer = (median_s > longer * d->reference_s) ? d->longer + 1 : 0;
    return (d->longer >= CT_TRIAL_WINDOWS) && (d->rest == 0);
}
