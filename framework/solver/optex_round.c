#include "framework/solver/optex_round.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/base/memory.h"
#include "framework/math/math.h"

static size_t bytes_of(const ct_optex_round *r)
{
    return (size_t)ct_optex_round_count(r) * sizeof(float);
}

/* ---- making it */

/* What it cannot do; NULL: nothing. */
static const char *refused(const ct_train_step *t)
{
    const Ct__CompressionParameter *c = t->param->compression;

    if (t->net->options.dev->kind != CT_DEVICE_CPU) return "a device";
    if (t->param->precision == CT__SOLVER_PARAMETER__PRECISION__FP16) return "precision FP16";
    if (t->rule->ratio != CT_UPDATE_NO_RATIO) return "trust ratios";
    if (t->average != NULL) return "average";
    if ((c != NULL) && (c->type != CT__COMPRESSION_PARAMETER__TYPE__NONE)) return "compression";
    return (t->net->options.window != NULL) ? "memory" : NULL;
}

static ct_status acquire(const ct_optex_round *r, int n, float **v_p)
{
    size_t bytes = (size_t)n * bytes_of(r) + sizeof(float);

    *v_p = ct_mem_acquire(bytes);
    if (*v_p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for OptEx: %zu bytes", bytes);
    return CT_OK;
}

/* A step at a point keeps its gradient, and changes nothing. */
static ct_status on_gradients(void *ctx)
{
    const ct_optex_round *r = ctx;

    memcpy(ct_optex_round_gradient(r, r->at), r->step->net->grad_arena, bytes_of(r));
    r->step->refused = true;
    return CT_OK;
}

static int n_rank(const ct_optex_round *r)
{
    return (r->ranks != NULL) ? r->ranks->size : 1;
}

/* The batches of this rank: n from the first on; of one alone it may have a part. */
static int own_batches(const ct_optex_round *r, int *n_p)
{
    int sharers = (n_rank(r) > r->parallel) ? n_rank(r) / r->parallel : 1;

    *n_p = (sharers > 1) ? 1 : r->parallel / n_rank(r);
    return (r->ranks != NULL) ? r->ranks->rank / sharers * *n_p : 0;
}

static ct_status check_ranks(const ct_optex_round *r)
{
    const ct_net *net = r->step->net;

    if ((r->parallel % n_rank(r) != 0) && (n_rank(r) % r->parallel != 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "OptEx: %d ranks do not share out %d points evenly: take as many ranks as "
                       "divide optex.parallel, or a multiple of it",
                       n_rank(r), r->parallel);
    for (int i = 0; (n_rank(r) > 1) && (r->parallel > 1) && (i < net->n_layer); i++)
        for (int k = 0; k < CT_MAX_BUFFER; k++)
            if (net->pass->instance[i]->buffer[k].row > 0)
                return CT_FAIL(CT_ERR_CONFIG,
                               "OptEx on several ranks is not for layer \"%s\": it carries state "
                               "from batch to batch, and batches are on different ranks",
                               net->layer[i]->name);
    return CT_OK;
}

static ct_status open_arrays(ct_optex_round *r)
{
    r->point = calloc((size_t)r->parallel, sizeof(*r->point));
    if (r->point == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for OptEx");
    for (int s = 0; s < r->parallel; s++) CT_TRY(acquire(r, 1, &r->point[s]));
    CT_TRY(acquire(r, r->parallel, &r->gradient));
    for (int h = 0; h < r->step->rule->n_state; h++) {
        CT_TRY(acquire(r, 1, &r->state[h]));
        CT_TRY(acquire(r, 1, &r->chained[h]));
    }
    return CT_OK;
}

ct_status ct_optex_round_open(ct_optex_round *r)
{
    const char *why = refused(r->step);

    if (r->parallel < 1) return CT_FAIL(CT_ERR_ARG, "%d points in a round of OptEx", r->parallel);
    if (why != NULL) return CT_FAIL(CT_ERR_CONFIG, "OptEx and %s do not go together yet", why);
    CT_TRY(check_ranks(r));
    if (r->parallel == 1) return CT_OK;
    CT_TRY(open_arrays(r));
    r->predictor.count = r->step->net->grad_count;
    if (r->predictor.prediction != CT_PREDICT_NONE)
        CT_TRY(ct_gradient_predictor_open(&r->predictor));
    r->step->gradients = on_gradients;
    r->step->gradients_ctx = r;
    return CT_OK;
}

void ct_optex_round_close(ct_optex_round *r)
{
    ct_gradient_predictor_close(&r->predictor);
    for (int s = 0; (r->point != NULL) && (s < r->parallel); s++) ct_mem_release(r->point[s]);
    free(r->point);
    r->point = NULL;
    ct_mem_release(r->gradient);
    r->gradient = NULL;
    for (int h = 0; h < CT_UPDATE_STATES; h++) {
        ct_mem_release(r->state[h]);
        ct_mem_release(r->chained[h]);
        r->state[h] = r->chained[h] = NULL;
    }
    if ((r->step != NULL) && (r->step->gradients_ctx == r)) {
        r->step->gradients = NULL;
        r->step->gradients_ctx = NULL;
    }
}

/* ---- a round */

static const ct_math_ops *math_of(const ct_optex_round *r)
{
    return r->step->net->options.dev->math;
}

static ct_status keep_states(ct_optex_round *r, float *const *to)
{
    ct_train_step *t = r->step;

    for (int h = 0; h < t->rule->n_state; h++)
        CT_TRY(ct_storage_get(&t->history[h], 0, t->net->grad_count, to[h]));
    return CT_OK;
}

static ct_status take_states(ct_optex_round *r, float *const *from)
{
    ct_train_step *t = r->step;

    for (int h = 0; h < t->rule->n_state; h++)
        CT_TRY(ct_storage_put(&t->history[h], 0, t->net->grad_count, from[h]));
    return CT_OK;
}

static void set_weights(ct_optex_round *r, int s)
{
    memcpy(r->step->net->weight_arena, r->point[s], bytes_of(r));
    ct_net_weights_changed(r->step->net);
}

/* Without an estimate every point is where the round begins. */
static void stay(ct_optex_round *r)
{
    for (int s = 1; s < r->steps; s++) memcpy(r->point[s], r->point[0], bytes_of(r));
    for (int h = 0; h < r->step->rule->n_state; h++)
        memcpy(r->chained[h], r->state[h], bytes_of(r));
}

/* clip_gradients is a limit of a step's mean gradient, true or estimated. */
static void clip(const ct_optex_round *r)
{
    ct_train_step *t = r->step;
    const float *g = t->net->grad_arena;
    double limit = (double)t->param->clip_gradients, norm;

    if (!ct_update_clips(t->param)) return;
    norm = (double)t->scale * sqrt(ct_optex_round_product(r, g, g));
    if (norm > limit) t->scale *= (float)(limit / norm);
}

/* Update `s` of the round by the gradient arena, the sum of some batches, in the net's own arenas.
 */
static ct_status update(ct_optex_round *r, int s, double rate, int batches)
{
    ct_train_step *t = r->step;

    t->iteration = r->updates + s;
    t->rate = rate * r->batches;
    t->scale = 1.0f / (float)(t->iter_size * batches);
    clip(r);
    t->refused = false;
    return ct_step_update(t, 0, t->net->n_param);
}

/* The points. */
static ct_status predict(ct_optex_round *r, double rate)
{
    ct_train_step *t = r->step;

    r->stays = r->probes || (r->predictor.prediction == CT_PREDICT_NONE) || (r->predictor.n == 0);
    if (r->stays) {
        stay(r);
        return CT_OK;
    }
    for (int s = 1; s < r->steps; s++) {
        ct_gradient_predictor_estimate(&r->predictor, t->net->weight_arena, t->net->grad_arena);
        CT_TRY(update(r, s - 1, rate, 1));
        memcpy(r->point[s], t->net->weight_arena, bytes_of(r));
    }
    CT_TRY(keep_states(r, r->chained));
    return take_states(r, r->state);
}

/* The gradients of this rank's batches; *loss_p: the sum of their losses. */
static ct_status evaluate(ct_optex_round *r, int64_t first, double rate, double *loss_p)
{
    int n, from = own_batches(r, &n);

    for (r->at = from; r->at < from + n; r->at++) {
        double one = 0.0;

        set_weights(r, r->at / r->batches);
        CT_TRY(ct_train_step_run(r->step, first + r->at, rate, &one));
        CT_TRY(ct_train_step_settle(r->step));
        *loss_p += one;
    }
    return CT_OK;
}

/* All ranks have all gradients: to one's own the others add zeros, or their parts of its batch. */
static ct_status share(ct_optex_round *r)
{
    int n, from = own_batches(r, &n);

    if (n_rank(r) == 1) return CT_OK;
    memset(r->gradient, 0, (size_t)from * bytes_of(r));
    memset(ct_optex_round_gradient(r, from + n), 0, (size_t)(r->parallel - from - n) * bytes_of(r));
    return ct_group_average(r->ranks, r->gradient, r->parallel * r->step->net->grad_count, 1.0);
}

/* Where the first batch's gradient of each step is, the sum of all of its batches is. */
static ct_status add_up(ct_optex_round *r)
{
    for (int b = 0; b < r->parallel; b++)
        if (b % r->batches != 0)
            CT_TRY(math_of(r)->axpy(NULL, ct_optex_round_count(r), 1.0f,
                                    ct_optex_round_gradient(r, b),
                                    ct_optex_round_gradient(r, b - b % r->batches)));
    return CT_OK;
}

/* What the true gradients make of the weights. */
static ct_status correct(ct_optex_round *r, double rate)
{
    bool last = (r->correction == CT_CORRECT_LAST_POINT);
    int from = last ? r->steps - 1 : 0;

    set_weights(r, from);
    if (last) CT_TRY(take_states(r, r->chained));
    for (int s = from; s < r->steps; s++) {
        memcpy(r->step->net->grad_arena, ct_optex_round_sum(r, s), bytes_of(r));
        CT_TRY(update(r, s, rate, r->batches));
    }
    ct_net_weights_changed(r->step->net);
    return CT_OK;
}

/* Estimates are of the mean over the batches of a step. */
static ct_status remember(ct_optex_round *r)
{
    for (int s = 0; (r->predictor.prediction != CT_PREDICT_NONE) && (s < r->steps); s++) {
        CT_TRY(math_of(r)->scale(NULL, ct_optex_round_count(r), 1.0f / (float)r->batches,
                                 ct_optex_round_sum(r, s)));
        (void)ct_gradient_predictor_add(&r->predictor, r->point[s], ct_optex_round_sum(r, s));
    }
    return CT_OK;
}

/* A momentum of sums of rates times gradients is what it were at the new rate. */
static ct_status scale_momentum(ct_optex_round *r, int before)
{
    if ((before == 0) || (before == r->batches) || !r->step->rule->corrects) return CT_OK;
    return math_of(r)->scale(NULL, ct_optex_round_count(r), (float)r->batches / (float)before,
                             r->state[0]);
}

static ct_status begin(ct_optex_round *r)
{
    int before = r->batches;

    if (r->steps == 0) r->steps = r->parallel;
    if ((r->steps < 1) || (r->parallel % r->steps != 0))
        return CT_FAIL(CT_ERR_ARG, "a round of %d steps, of %d batches", r->steps, r->parallel);
    r->batches = r->parallel / r->steps;
    memcpy(r->point[0], r->step->net->weight_arena, bytes_of(r));
    CT_TRY(keep_states(r, r->state));
    CT_TRY(scale_momentum(r, before));
    return take_states(r, r->state);
}

ct_status ct_optex_round_run(ct_optex_round *r, int64_t round, double rate, double *loss_p)
{
    double loss = 0.0;

    if (r->parallel == 1) {
        CT_TRY(ct_train_step_run(r->step, round, rate, loss_p));
        return ct_train_step_settle(r->step);
    }
    CT_TRY(begin(r));
    CT_TRY(predict(r, rate));
    CT_TRY(evaluate(r, round * r->parallel, rate, &loss));
    CT_TRY(share(r));
    if (r->measures) CT_TRY(ct_optex_measure_noise(r));
    CT_TRY(add_up(r));
    if (r->measures) ct_optex_measure_estimates(r);
    CT_TRY(correct(r, rate));
    CT_TRY(remember(r));
    r->updates += r->steps;
    *loss_p = loss / r->parallel;
    return CT_OK;
}

bool ct_optex_round_shows(const ct_optex_round *r)
{
    return (r->parallel == 1) || (r->at == r->parallel - 1);
}
