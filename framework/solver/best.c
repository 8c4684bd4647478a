/* The best tests of a run: whose snapshots stay, and when patience is over. What was seen is part
 * of snapshots, so a run that goes on decides as one that was never interrupted. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "framework/base/json_writer.h"
#include "framework/base/text.h"
#include "framework/report/report.h"
#include "framework/solver/solver_private.h"

/* How many tests rank: with keep 0 the best one alone, for patience. */
static int n_ranked(const Ct__BestParameter *p)
{
    return (p->keep > 0) ? p->keep : 1;
}

/* ---- what must be said */

static ct_status check_counts(const ct_solver_text *t, const Ct__BestParameter *b)
{
    if ((b->keep < 0) || (b->keep > CT_MAX_BEST))
        return CT_FAIL(CT_ERR_CONFIG, "%s: best.keep is %d, needs 0 to %d",
                       CT_SOLVER_AT(t, best->keep), b->keep, CT_MAX_BEST);
    if ((b->test_net < 0) || ((size_t)b->test_net >= t->p->n_test_iter))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: best.test_net is %d, but the solver has %zu test nets; test_iter and "
                       "test_interval make them",
                       CT_SOLVER_AT(t, best->test_net), b->test_net, t->p->n_test_iter);
    if ((b->keep > 0) && (t->p->snapshot_prefix == NULL))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: best keeps snapshots, but snapshot_prefix is not set; best.keep: 0 "
                       "keeps none",
                       CT_SOLVER_AT(t, best));
    return CT_OK;
}

ct_status ct_best_check(const ct_solver_text *t)
{
    const Ct__BestParameter *b = t->p->best;

    if (t->p->patience < 0)
        return CT_FAIL(CT_ERR_CONFIG, "%s: patience is %d, needs at least 0",
                       CT_SOLVER_AT(t, patience), t->p->patience);
    if ((t->p->patience > 0) && (b == NULL))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: patience is %d, but best { metric } does not say what is to get better",
                       CT_SOLVER_AT(t, patience), t->p->patience);
    if (b == NULL) return CT_OK;
    if ((b->metric == NULL) || (b->metric[0] == '\0'))
        return CT_FAIL(CT_ERR_CONFIG, "%s: best.metric is not set; give an output of the test net",
                       CT_SOLVER_AT(t, best));
    return check_counts(t, b);
}

/* ---- the output */

static const char *output_name(const ct_net *net, int i)
{
    return net->pass->blob[net->output[i].blob]->name;
}

static ct_status name_outputs(const ct_solver_text *t, const ct_net *net)
{
    const Ct__BestParameter *b = t->p->best;
    ct_text names = { 0 };

    for (int i = 0; i < net->n_output; i++)
        ct_text_add(&names, "%s%s", (i > 0) ? ", " : "", output_name(net, i));
    (void)CT_FAIL(CT_ERR_CONFIG,
                  "%s: best.metric is \"%s\", which test net #%d does not have; its outputs are %s",
                  CT_SOLVER_AT(t, best->metric), b->metric, b->test_net,
                  (names.text != NULL) ? names.text : "none");
    ct_text_destroy(&names);
    return CT_ERR_CONFIG;
}

/* Whether more is better, by what makes the output. */
static ct_status find_direction(const ct_solver_text *t, const ct_net *net, int i, bool *rises_p)
{
    const Ct__BestParameter *b = t->p->best;
    const char *type = net->layer[net->output[i].layer]->ops->type;
    bool loss = (net->output[i].loss_weight != 0.0f) || ct_text_ends_with(type, "Loss");

    *rises_p = (b->direction == CT__BEST_PARAMETER__DIRECTION__HIGHER);
    if (b->direction != CT__BEST_PARAMETER__DIRECTION__AUTO) return CT_OK;
    *rises_p = (strcmp(type, "Accuracy") == 0);
    if (loss || *rises_p) return CT_OK;
    return CT_FAIL(
        CT_ERR_CONFIG,
        "%s: best.metric is \"%s\", an output of a layer of type %s, which does not tell "
        "whether more is better: set best.direction to LOWER or HIGHER",
        CT_SOLVER_AT(t, best->metric), b->metric, type);
}

ct_status ct_best_find(const ct_solver_text *t, const ct_net *net, int64_t *element_p,
                       bool *rises_p)
{
    const Ct__BestParameter *b = t->p->best;
    int64_t element = 0, n;

    for (int i = 0; i < net->n_output; i++, element += n) {
        n = ct_net_output_count(net, i);
        if (strcmp(output_name(net, i), b->metric) != 0) continue;
        if ((n != 1) || (strlen(b->metric) >= sizeof(((ct_best *)NULL)->metric)))
            return CT_FAIL(CT_ERR_CONFIG,
                           "%s: best.metric is \"%s\", which has %" PRId64
                           " numbers; expected an output of one",
                           CT_SOLVER_AT(t, best->metric), b->metric, n);
        *element_p = element;
        return find_direction(t, net, i, rises_p);
    }
    return name_outputs(t, net);
}

ct_status ct_best_open(ct_solver *s)
{
    const Ct__BestParameter *b = s->param->best;
    const ct_solver_text text = { s->param, s->options.map };

    s->best.tested = s->best_pending = -1;
    if (b == NULL) return CT_OK;
    return ct_best_find(&text, ct_solver_whole_test(s, b->test_net), &s->best_output,
                        &s->best_rises);
}

/* ---- what was seen */

static bool is_better(const ct_solver *s, double a, double b)
{
    return s->best_rises ? (a > b) : (a < b);
}

/* Where a value stands among those so far: of equal ones the earlier first. A number that is none
 * stands behind all. */
static int place_of(const ct_solver *s, double value)
{
    int k = 0;

    if (!isfinite(value)) return CT_MAX_BEST + 1;
    while ((k < s->best.n) && !is_better(s, value, s->best.set[k].value)) k++;
    return k;
}

/* It is the k-th from now on, and one more than ranks stays known: it fell out. */
static void insert(ct_solver *s, int k, double value)
{
    int most = n_ranked(s->param->best) + 1;
    ct_best *b = &s->best;

    if (b->n < most) b->n++;
    memmove(&b->set[k + 1], &b->set[k], (size_t)(b->n - 1 - k) * sizeof(b->set[0]));
    b->set[k] =
        (ct_best_set){ .iteration = s->iteration,
                       .value = value,
                       .own = (s->param->best->keep > 0) && (s->last_snapshot != s->iteration) };
}

/* The list on disk follows the sets that are there. */
ct_status ct_best_committed(ct_solver *s, int64_t iteration)
{
    const Ct__SolverParameter *p = s->param;
    ct_snapshot_state state = { .iteration = s->last_snapshot, .best = s->best };
    ct_status status = CT_OK;

    if (p->best != NULL) state.keep_best = p->best->keep;
    if ((p->snapshot_prefix == NULL) || (p->snapshot_prefix[0] == '\0')) return CT_OK;
    if ((s->best_pending >= 0) && (s->best_pending != iteration)) return CT_OK;
    s->best_pending = -1;
    if (ct_solver_writers(s)->rank == 0)
        status = ct_snapshot_list_best(p->snapshot_prefix, &state, s->best_rises, p->snapshot_keep);
    return ct_solver_share_status(s, status);
}

/* The set of this iteration is written, or was: then it is on disk, or on its way. */
static ct_status keep_set(ct_solver *s)
{
    bool there = (s->last_snapshot == s->iteration);
    bool under_way = (s->later != NULL) && ct_snapshot_later_is_open(s->later);

    s->best_pending = s->iteration;
    if (!there) return ct_solver_snapshot(s);
    return under_way ? CT_OK : ct_best_committed(s, s->iteration);
}

ct_status ct_best_note(ct_solver *s, int test_net, const double *output)
{
    const Ct__BestParameter *p = s->param->best;
    double value;
    int k;

    if ((p == NULL) || (test_net != p->test_net) || (s->best.tested == s->iteration)) return CT_OK;
    value = output[s->best_output];
    CT_TRY(ct_group_broadcast(ct_solver_writers(s), &value, sizeof(value)));
    snprintf(s->best.metric, sizeof(s->best.metric), "%s", p->metric);
    s->best.tested = s->iteration;
    k = place_of(s, value);
    s->best.waited = (k == 0) ? 0 : s->best.waited + 1;
    if (k >= n_ranked(p)) return CT_OK;
    insert(s, k, value);
    CT_TRY(ct_report_best(s->options.report, s->iteration, p->metric, value, k + 1));
    return (p->keep > 0) ? keep_set(s) : CT_OK;
}

void ct_best_take(ct_solver *s, const ct_best *best)
{
    const Ct__BestParameter *p = s->param->best;
    int most;

    if ((p == NULL) || (best->metric[0] == '\0')) return;
    if (strcmp(p->metric, best->metric) != 0) {
        CT_WARN(
            "the snapshot's best tests are by \"%s\", this run's are by \"%s\": they start anew",
            best->metric, p->metric);
        return;
    }
    s->best = *best;
    most = n_ranked(p) + 1;
    if (s->best.n > most) s->best.n = most;
}

bool ct_best_gave_up(const ct_solver *s)
{
    return (s->param->patience > 0) && (s->best.waited >= s->param->patience);
}

void ct_best_tell(const ct_solver *s)
{
    const ct_best *b = &s->best;

    if (ct_best_gave_up(s))
        CT_INFO("patience is over: %" PRId64 " tests without a better %s", b->waited, b->metric);
    if (b->n > 0)
        CT_INFO("the best %s is %g, of iteration %" PRId64, b->metric, b->set[0].value,
                b->set[0].iteration);
}

void ct_solver_best_json(const ct_solver *s, ct_json_writer *w)
{
    const ct_best *b = &s->best;

    if (s->param->best == NULL) return;
    ct_json_add_text(w, "ended_by",
                     s->gave_up                            ? "patience"
                     : (s->iteration < s->param->max_iter) ? "stop_iter"
                                                           : "max_iter");
    if (b->n == 0) return;
    ct_json_begin_object(w, "best");
    ct_json_add_text(w, "metric", b->metric);
    ct_json_add_text(w, "direction", s->best_rises ? "HIGHER" : "LOWER");
    ct_json_add_integer(w, "iter", b->set[0].iteration);
    ct_json_add_number(w, "value", b->set[0].value);
    ct_json_end(w);
}
