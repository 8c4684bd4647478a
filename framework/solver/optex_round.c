#include "framework/solver/optex_round.h"

#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/base/memory.h"

static size_t bytes_of(const ct_optex_round *r)
{
    return (size_t)r->step->net->grad_count * sizeof(float);
}

/* ---- making it */

/* What it cannot do; NULL: nothing. */
static const char *refused(const ct_train_step *t)
{
    const Ct__CompressionParameter *c = t->param->compression;

    if (t->several) return "several ranks";
    if (t->net->options.dev->kind != CT_DEVICE_CPU) return "a device";
    if (ct_update_clips(t->param)) return "clip_gradients";
    if (ct_update_waits_for_all(t->param)) return "precision FP16";
    if (t->rule->ratio != CT_UPDATE_NO_RATIO) return "trust ratios";
    if (t->average != NULL) return "average";
    if ((c != NULL) && (c->type != CT__COMPRESSION_PARAMETER__TYPE__NONE)) return "compression";
    return (t->net->options.window != NULL) ? "memory" : NULL;
}

static ct_status acquire(const ct_optex_round *r, float **v_p)
{
    *v_p = ct_mem_acquire(bytes_of(r) + sizeof(float));
    if (*v_p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for OptEx: %zu bytes", bytes_of(r));
    return CT_OK;
}

/* Before the step applies gradients that were found at a point: they are remembered, and weights
 * and states are those that they count for. Of LAST_POINT the last update alone stays. */
static ct_status on_gradients(void *ctx)
{
    ct_optex_round *r = ctx;
    ct_train_step *t = r->step;
    ct_net *net = t->net;

    if (r->predictor.prediction != CT_PREDICT_NONE)
        (void)ct_gradient_predictor_add(&r->predictor, net->weight_arena, net->grad_arena);
    if (r->correction == CT_CORRECT_REPLAY) {
        memcpy(net->weight_arena, r->point[0], bytes_of(r));
        return CT_OK;
    }
    for (int h = 0; (r->at == r->parallel - 1) && (h < t->rule->n_state); h++)
        CT_TRY(ct_storage_put(&t->history[h], 0, net->grad_count, r->chained[h]));
    return CT_OK;
}

static ct_status open_arrays(ct_optex_round *r)
{
    r->point = calloc((size_t)r->parallel, sizeof(*r->point));
    if (r->point == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for OptEx");
    for (int s = 0; s < r->parallel; s++) CT_TRY(acquire(r, &r->point[s]));
    for (int h = 0; h < r->step->rule->n_state; h++) {
        CT_TRY(acquire(r, &r->state[h]));
        CT_TRY(acquire(r, &r->chained[h]));
    }
    return CT_OK;
}

ct_status ct_optex_round_open(ct_optex_round *r)
{
    const char *why = refused(r->step);

    if (r->parallel < 1) return CT_FAIL(CT_ERR_ARG, "%d points in a round of OptEx", r->parallel);
    if (why != NULL) return CT_FAIL(CT_ERR_CONFIG, "OptEx and %s do not go together yet", why);
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

static ct_status keep_states(ct_optex_round *r, float *const *to)
{
    ct_train_step *t = r->step;

    for (int h = 0; h < t->rule->n_state; h++)
        CT_TRY(ct_storage_get(&t->history[h], 0, t->net->grad_count, to[h]));
    return CT_OK;
}

static ct_status restore_states(ct_optex_round *r)
{
    ct_train_step *t = r->step;

    for (int h = 0; h < t->rule->n_state; h++)
        CT_TRY(ct_storage_put(&t->history[h], 0, t->net->grad_count, r->state[h]));
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
    for (int s = 1; s < r->parallel; s++) memcpy(r->point[s], r->point[0], bytes_of(r));
    for (int h = 0; h < r->step->rule->n_state; h++)
        memcpy(r->chained[h], r->state[h], bytes_of(r));
}

/* The points, by updates in the net's own arenas. */
static ct_status predict(ct_optex_round *r, int64_t first, double rate)
{
    ct_train_step *t = r->step;

    if ((r->predictor.prediction == CT_PREDICT_NONE) || (r->predictor.n == 0)) {
        stay(r);
        return CT_OK;
    }
    t->rate = rate;
    t->scale = 1.0f / (float)t->iter_size;
    t->refused = false;
    for (int s = 1; s < r->parallel; s++) {
        t->iteration = first + s - 1;
        ct_gradient_predictor_estimate(&r->predictor, t->net->weight_arena, t->net->grad_arena);
        CT_TRY(ct_step_update(t, 0, t->net->n_param));
        memcpy(r->point[s], t->net->weight_arena, bytes_of(r));
    }
    CT_TRY(keep_states(r, r->chained));
    CT_TRY(restore_states(r));
    set_weights(r, 0);
    return CT_OK;
}

static ct_status evaluate(ct_optex_round *r, int64_t iteration, double rate, double *loss_p)
{
    ct_train_step *t = r->step;

    if (r->at > 0) set_weights(r, r->at);
    CT_TRY(ct_train_step_run(t, iteration, rate, loss_p));
    CT_TRY(ct_train_step_settle(t));
    if (r->correction == CT_CORRECT_REPLAY) memcpy(r->point[0], t->net->weight_arena, bytes_of(r));
    return CT_OK;
}

ct_status ct_optex_round_run(ct_optex_round *r, int64_t round, double rate, double *loss_p)
{
    int64_t first = round * r->parallel;
    double loss = 0.0, one = 0.0;

    if (r->parallel == 1) {
        CT_TRY(ct_train_step_run(r->step, round, rate, loss_p));
        return ct_train_step_settle(r->step);
    }
    memcpy(r->point[0], r->step->net->weight_arena, bytes_of(r));
    CT_TRY(keep_states(r, r->state));
    CT_TRY(predict(r, first, rate));
    for (r->at = 0; r->at < r->parallel; r->at++) {
        CT_TRY(evaluate(r, first + r->at, rate, &one));
        loss += one;
    }
    *loss_p = loss / r->parallel;
    return CT_OK;
}
