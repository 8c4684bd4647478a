#include "framework/solver/optex.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "framework/base/log.h"
#include "framework/solver/optex_round.h"

struct ct_optex {
    const Ct__OptExParameter *param;
    ct_optex_round round;
    /* of a set: */
    float points, parallel; /* how many are known, and how many a round has */
    char name[32];          /* of the state that was last asked for */
};

/* ---- what sets have of it
 *
 * The file of each rank has how many points are known and how many a round has. Behind these stand,
 * by parameter, the points and gradients, the newest first: a smaller history takes the newest. All
 * ranks have the same, so any number of them goes on from rank 0's.
 */

/* Whatever a file has said. */
static int known(const ct_optex *o)
{
    int room = o->round.predictor.room;

    if (!(o->points > 0.0f)) return 0;
    return (o->points < (float)room) ? (int)o->points : room;
}

static bool get_state(void *ctx, int param, int k, ct_sync_state *out)
{
    ct_optex *o = ctx;
    const ct_gradient_predictor *g = &o->round.predictor;
    const ct_param *p = &o->round.step->net->param[param];
    int at;

    *out = (ct_sync_state){ .param = param, .replicated = true, .count = p->count };
    if ((param == 0) && (k < 2)) {
        out->name = (k == 0) ? "optex_points" : "optex_parallel";
        out->data = (k == 0) ? &o->points : &o->parallel;
        out->count = 1;
        return true;
    }
    if (param == 0) k -= 2;
    if (!p->learns || (k >= 2 * known(o))) return false;
    at = known(o) - 1 - k / 2;
    snprintf(o->name, sizeof(o->name), "optex_%s_%d", (k % 2 == 0) ? "point" : "gradient", k / 2);
    out->name = o->name;
    out->data = ((k % 2 == 0) ? g->point[at] : g->gradient[at]) + p->offset;
    return true;
}

static bool keeps(const ct_optex *o)
{
    return o->param->snapshot_history && ct_optex_predicts(o->param);
}

/* What a set will have from here on. */
static void count_known(ct_optex *o)
{
    o->points = (float)(keeps(o) ? o->round.predictor.n : 0);
    o->parallel = (float)o->param->parallel;
}

void ct_optex_forget(ct_optex *o)
{
    o->points = o->parallel = 0.0f;
    o->round.predictor.n = 0;
}

static ct_status restored(void *ctx)
{
    ct_optex *o = ctx;
    int n = keeps(o) ? known(o) : 0;

    if ((o->parallel > 0.0f) && (o->parallel != (float)o->param->parallel))
        CT_WARN("the snapshot was made with optex.parallel %g, this run has %d: the rule counts "
                "%d steps an iteration from here on, and its place in the data set does, too",
                (double)o->parallel, o->param->parallel, o->param->parallel);
    if ((n > 0) && !ct_gradient_predictor_refill(&o->round.predictor, n))
        return CT_FAIL(CT_ERR_DATA, "the history of OptEx in the set has numbers that are not "
                                    "finite");
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

static ct_status open(const Ct__SolverParameter *param, ct_train_step *step, const ct_group *ranks,
                      ct_optex *o)
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
    status = open(param, step, ranks, o);
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
    CT_TRY(ct_optex_round_run(&o->round, round, rate, loss_p));
    count_known(o);
    return CT_OK;
}

bool ct_optex_shows(const ct_optex *o)
{
    return ct_optex_round_shows(&o->round);
}

void ct_optex_tell(const ct_optex *o, int64_t round)
{
    CT_INFO("    OptEx: %" PRId64 " rounds, %" PRId64 " steps, %d points known", round,
            round * o->param->parallel, o->round.predictor.n);
}

int64_t ct_optex_bytes(const ct_optex *o)
{
    const ct_train_step *t = o->round.step;

    return t->net->grad_count * (int64_t)sizeof(float) *
           ct_optex_arrays(t->param, t->rule->n_state);
}
