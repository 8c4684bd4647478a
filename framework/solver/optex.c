#include "framework/solver/optex.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "framework/base/log.h"
#include "framework/solver/optex_round.h"

/* What a set has of a guard: updates so far, as a multiple of MANY and the rest; batches of a step
 * in the last round, and the guard's means. */
enum { KEPT_MANY, KEPT_REST, KEPT_BATCHES, KEPT_NOISE, KEPT_SIGNAL, KEPT_ERROR, N_KEPT };
enum { MANY = 1 << 20 };

struct ct_optex {
    const Ct__OptExParameter *param;
    ct_optex_round round;
    ct_optex_guard guard; /* where param->guard */
    /* of a set: */
    float points, parallel; /* how many are known, and how many a round has */
    float kept[N_KEPT];     /* of the guard */
    char name[32];          /* of the state that was last asked for */
};

static bool guarded(const ct_optex *o)
{
    return o->param->guard && (o->param->parallel > 1);
}

/* ---- what sets have of it
 *
 * The file of each rank has how many points are known, how many a round has, and what a guard
 * knows: numbers that all ranks have alike. Behind these stand, by parameter, the rank's shares of
 * the points and gradients, the newest first: a smaller history takes the newest. Other numbers of
 * ranks cut the shares again.
 */

/* Whatever a file has said. */
static int known(const ct_optex *o)
{
    int room = o->round.predictor.room;

    if (!(o->points > 0.0f)) return 0;
    return (o->points < (float)room) ? (int)o->points : room;
}

/* States that are numbers. */
static int n_number(const ct_optex *o)
{
    return guarded(o) ? 3 : 2;
}

static bool get_state(void *ctx, int param, int k, ct_sync_state *out)
{
    ct_optex *o = ctx;
    const ct_gradient_predictor *g = &o->round.predictor;
    const ct_param *p = &o->round.step->net->param[param];
    int64_t from;
    int at;

    *out = (ct_sync_state){ .param = param, .replicated = true };
    if ((param == 0) && (k < n_number(o))) {
        static const char *const name[] = { "optex_points", "optex_parallel", "optex_guard" };
        float *const data[] = { &o->points, &o->parallel, o->kept };

        out->name = name[k];
        out->data = data[k];
        out->count = (k < 2) ? 1 : N_KEPT;
        return true;
    }
    if (param == 0) k -= n_number(o);
    if (!p->learns || (k >= 2 * known(o))) return false;
    out->count = ct_net_share_of(p, o->round.from, o->round.count, &from);
    if (out->count == 0) return false;
    out->replicated = false;
    out->share = true;
    at = known(o) - 1 - k / 2;
    snprintf(o->name, sizeof(o->name), "optex_%s_%d", (k % 2 == 0) ? "point" : "gradient", k / 2);
    out->name = o->name;
    out->data = ((k % 2 == 0) ? g->point[at] : g->gradient[at]) + p->offset + from - o->round.from;
    return true;
}

static bool keeps(const ct_optex *o)
{
    return o->param->snapshot_history && ct_optex_predicts(o->param);
}

/* What a set will have from here on. */
static void count_known(ct_optex *o)
{
    int64_t many = o->round.updates / MANY, rest = o->round.updates % MANY;

    o->kept[KEPT_MANY] = (float)many;
    o->kept[KEPT_REST] = (float)rest;
    o->kept[KEPT_BATCHES] = (float)o->round.batches;
    o->kept[KEPT_NOISE] = o->guard.noise;
    o->kept[KEPT_SIGNAL] = o->guard.signal;
    o->kept[KEPT_ERROR] = o->guard.error;
    o->points = (float)(keeps(o) ? o->round.predictor.n : 0);
    o->parallel = (float)o->param->parallel;
}

void ct_optex_forget(ct_optex *o)
{
    o->points = o->parallel = 0.0f;
    o->round.predictor.n = 0;
    o->guard = ct_optex_guard_open(o->param->parallel);
    for (int k = 0; k < N_KEPT; k++) o->kept[k] = -1.0f;
}

/* A whole number that a file has, or none. */
static bool counts(float v, float most)
{
    return (v >= 0.0f) && (v <= most) && (v == floorf(v));
}

static ct_status restore_guard(ct_optex *o)
{
    const float *v = o->kept;

    if (v[KEPT_REST] < 0.0f) {
        CT_INFO("OptEx: the set has nothing of a guard, which begins anew");
        o->round.updates = -1;
        return CT_OK;
    }
    if (!counts(v[KEPT_MANY], (float)INT32_MAX) || !counts(v[KEPT_REST], (float)MANY) ||
        !counts(v[KEPT_BATCHES], (float)CT_OPTEX_POINTS))
        return CT_FAIL(CT_ERR_DATA, "the guard of OptEx in the set has counts that are none");
    o->round.updates = (int64_t)v[KEPT_MANY] * MANY + (int64_t)v[KEPT_REST];
    o->round.batches = (int)v[KEPT_BATCHES];
    o->guard.noise = v[KEPT_NOISE];
    o->guard.signal = v[KEPT_SIGNAL];
    o->guard.error = v[KEPT_ERROR];
    return CT_OK;
}

static ct_status restored(void *ctx)
{
    ct_optex *o = ctx;
    int n = keeps(o) ? known(o) : 0;
    bool good = true;

    if ((o->parallel > 0.0f) && (o->parallel != (float)o->param->parallel))
        CT_WARN("the snapshot was made with optex.parallel %g, this run has %d: the rule counts "
                "%d steps an iteration from here on, and its place in the data set does, too",
                (double)o->parallel, o->param->parallel, o->param->parallel);
    if (n > 0) CT_TRY(ct_gradient_predictor_refill(&o->round.predictor, n, &good));
    if (!good)
        return CT_FAIL(CT_ERR_DATA, "the history of OptEx in the set has numbers that are not "
                                    "finite");
    if (guarded(o)) CT_TRY(restore_guard(o));
    if (ct_optex_predicts(o->param) && (n == 0))
        CT_INFO("OptEx: the set has no history that fits, so it begins empty");
    count_known(o);
    return CT_OK;
}

/* ---- making it */

static ct_gradient_predictor predictor_of(const Ct__OptExParameter *p)
{
    static const ct_prediction prediction[] = {
        [CT__OPT_EX_PARAMETER__PREDICTOR__NONE] = CT_PREDICT_NONE,
        [CT__OPT_EX_PARAMETER__PREDICTOR__LAST] = CT_PREDICT_LAST,
        [CT__OPT_EX_PARAMETER__PREDICTOR__SECANT] = CT_PREDICT_SECANT,
        [CT__OPT_EX_PARAMETER__PREDICTOR__KERNEL] = CT_PREDICT_KERNEL,
    };
    bool rbf = (p->kernel == CT__OPT_EX_PARAMETER__KERNEL__RBF);

    return (ct_gradient_predictor){
        .prediction = prediction[p->predictor],
        .kernel = rbf ? CT_KERNEL_RBF : CT_KERNEL_MATERN52,
        .length = (double)p->length_scale,
        .noise = (double)p->noise,
        .constant_mean = (p->prior_mean == CT__OPT_EX_PARAMETER__PRIOR_MEAN__CONSTANT),
        .room = p->history,
    };
}

/* A layer may name a codec of its own. */
static ct_status check_net(const ct_net *net)
{
    for (int i = 0; i < net->n_param; i++) {
        const Ct__CompressionParameter *c = net->param[i].compress;

        if ((c != NULL) && (c->type != CT__COMPRESSION_PARAMETER__TYPE__NONE))
            return CT_FAIL(
                CT_ERR_CONFIG,
                "OptEx and compress of %s do not go together: what a codec leaves behind "
                "belongs to one point, and counts at the next",
                net->param[i].key);
    }
    return CT_OK;
}

static ct_status set_up(const Ct__SolverParameter *param, ct_train_step *step,
                        const ct_group *ranks, ct_optex *o)
{
    bool last = (o->param->corrector == CT__OPT_EX_PARAMETER__CORRECTOR__LAST_POINT);

    if (step->iter_size > 1)
        return CT_FAIL(CT_ERR_CONFIG,
                       "OptEx and batch_tokens of %d batches do not go together: "
                       "take a larger batch, or more points in optex.parallel",
                       step->iter_size);
    CT_TRY(check_net(step->net));
    o->round = (ct_optex_round){ .step = step,
                                 .ranks = ranks,
                                 .parallel = o->param->parallel,
                                 .measures = guarded(o),
                                 .correction = last ? CT_CORRECT_LAST_POINT : CT_CORRECT_REPLAY,
                                 .predictor = predictor_of(o->param) };
    CT_TRY(ct_optex_round_open(&o->round));
    count_known(o);
    CT_INFO("OptEx: an iteration is a round of %d steps of %s, %" PRId64 " in all",
            o->param->parallel, step->rule->type, (int64_t)param->max_iter * o->param->parallel);
    return CT_OK;
}

ct_status ct_optex_create(const Ct__SolverParameter *param, ct_train_step *step,
                          const ct_group *ranks, ct_sync_states *states, ct_optex **o_p)
{
    ct_optex *o = calloc(1, sizeof(*o));
    ct_status status;

    if (o == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for OptEx");
    o->param = ct_optex_param(param);
    o->guard = ct_optex_guard_open(o->param->parallel);
    status = set_up(param, step, ranks, o);
    if (status != CT_OK) {
        ct_optex_destroy(o);
        return status;
    }
    *states = (ct_sync_states){ .ctx = o, .get = get_state, .restored = restored };
    *o_p = o;
    return CT_OK;
}

void ct_optex_destroy(ct_optex *o)
{
    if (o == NULL) return;
    ct_optex_round_close(&o->round);
    free(o);
}

ct_status ct_optex_run(ct_optex *o, int64_t round, double rate, double *loss_p)
{
    ct_optex_round *r = &o->round;

    if (!guarded(o) || (r->updates < 0)) r->updates = round * o->param->parallel;
    if (guarded(o)) {
        r->steps = ct_optex_guard_steps(&o->guard);
        r->probes = ct_optex_guard_probes(&o->guard, round);
    }
    CT_TRY(ct_optex_round_run(r, round, rate, loss_p));
    if (guarded(o)) ct_optex_guard_note(&o->guard, &r->measure);
    count_known(o);
    return CT_OK;
}

bool ct_optex_shows(const ct_optex *o)
{
    return ct_optex_round_shows(&o->round);
}

static void tell_guard(const ct_optex *o)
{
    const ct_optex_measure *m = &o->round.measure;
    char share[32] = "unknown", text[8 * CT_OPTEX_POINTS + 1] = "";
    double noise = ct_optex_guard_noise_share(&o->guard);
    size_t at = 0;

    if (noise >= 0.0) snprintf(share, sizeof(share), "%.2f", noise);
    for (int s = 0; s < m->steps; s++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, " %.2f", m->cosine[s]);
    CT_INFO("    OptEx: %d steps by %d batches, noise share %s, cosines of estimates%s", m->steps,
            m->batches, share, text);
}

void ct_optex_tell(const ct_optex *o, int64_t round)
{
    CT_INFO("    OptEx: %" PRId64 " rounds, %" PRId64 " steps, %d points known", round,
            o->round.updates, o->round.predictor.n);
    if (guarded(o)) tell_guard(o);
}

ct_status ct_optex_gather(ct_optex *o)
{
    return ct_optex_round_gather_states(&o->round);
}

int64_t ct_optex_bytes(const ct_optex *o)
{
    return ct_optex_round_bytes(&o->round);
}

int64_t ct_optex_bytes_sent(const ct_optex *o)
{
    return o->round.bytes_sent;
}
