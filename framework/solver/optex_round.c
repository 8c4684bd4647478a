#include "framework/solver/optex_round.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/base/memory.h"
#include "framework/math/math.h"

static size_t bytes_of(const ct_optex_round *r)
{
    return (size_t)r->count * sizeof(float);
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

/* A step at a point leaves its gradient in the arena, and changes nothing. */
static ct_status on_gradients(void *ctx)
{
    const ct_optex_round *r = ctx;

    r->step->refused = true;
    return CT_OK;
}

static int n_rank(const ct_optex_round *r)
{
    return (r->ranks != NULL) ? r->ranks->size : 1;
}

/* Ranks that share a point's batch. */
static int n_sharer(const ct_optex_round *r)
{
    return (n_rank(r) > r->parallel) ? n_rank(r) / r->parallel : 1;
}

/* Batches that a rank evaluates, or has its part of. */
static int n_batch(const ct_optex_round *r)
{
    return (n_sharer(r) > 1) ? 1 : r->parallel / n_rank(r);
}

/* Number k of those of a rank. */
static int batch_of(const ct_optex_round *r, int rank, int k)
{
    return rank / n_sharer(r) * n_batch(r) + k;
}

static int own_rank(const ct_optex_round *r)
{
    return (r->ranks != NULL) ? r->ranks->rank : 0;
}

/* Where the share of a rank begins. */
static int64_t share_from(const ct_optex_round *r, int rank)
{
    return ct_net_part(r->step->net->grad_count, rank, n_rank(r));
}

static int64_t share_count(const ct_optex_round *r, int rank)
{
    return share_from(r, rank + 1) - share_from(r, rank);
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
    if (n_sharer(r) > 1) CT_TRY(acquire(r, n_rank(r), &r->parts));
    r->coefficient = calloc((size_t)r->parallel, sizeof(*r->coefficient));
    r->out = calloc((size_t)n_rank(r), sizeof(*r->out));
    r->in = calloc((size_t)n_rank(r), sizeof(*r->in));
    r->out_n = calloc((size_t)n_rank(r), sizeof(*r->out_n));
    r->in_n = calloc((size_t)n_rank(r), sizeof(*r->in_n));
    if ((r->coefficient == NULL) || (r->out == NULL) || (r->in == NULL) || (r->out_n == NULL) ||
        (r->in_n == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for OptEx");
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
    r->from = share_from(r, own_rank(r));
    r->count = share_count(r, own_rank(r));
    CT_TRY(open_arrays(r));
    r->predictor.count = r->count;
    r->predictor.ranks = r->ranks;
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
    ct_mem_release(r->parts);
    r->gradient = r->parts = NULL;
    free(r->coefficient);
    r->coefficient = NULL;
    free((void *)r->out);
    free((void *)r->in);
    free(r->out_n);
    free(r->in_n);
    r->out = NULL;
    r->in = NULL;
    r->out_n = r->in_n = NULL;
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

int64_t ct_optex_round_bytes(const ct_optex_round *r)
{
    bool predicts = (r->predictor.prediction != CT_PREDICT_NONE);
    int64_t n = 2 * r->parallel + 2 * r->step->rule->n_state +
                (predicts ? 2 * r->predictor.room : 0) + ((n_sharer(r) > 1) ? n_rank(r) : 0);

    return (r->parallel == 1) ? 0 : n * (int64_t)bytes_of(r);
}

/* ---- shares on their way */

static ct_status exchange(ct_optex_round *r)
{
    int me = own_rank(r);

    if (r->in[me] != r->out[me]) memcpy(r->in[me], r->out[me], (size_t)r->in_n[me] * sizeof(float));
    if (r->ranks == NULL) return CT_OK;
    for (int q = 0; q < n_rank(r); q++)
        if (q != me) r->bytes_sent += r->out_n[q] * (int64_t)sizeof(float);
    return ct_group_exchange(r->ranks, r->out, r->out_n, r->in, r->in_n);
}

/* Point of number k of a rank's batches. */
static int point_of(const ct_optex_round *r, int rank, int k)
{
    return batch_of(r, rank, k) / r->batches;
}

/* A rank's weights are not those of its batch k yet, but for its own share. */
static bool lacks_point(const ct_optex_round *r, int rank, int k)
{
    int s = point_of(r, rank, k);

    return !r->stays && (s > 0) && ((k == 0) || (point_of(r, rank, k - 1) != s));
}

/* The weights are those of the point of this rank's batch k. */
static ct_status go_to_point(ct_optex_round *r, int k)
{
    float *weight = r->step->net->weight_arena;
    int me = own_rank(r);

    for (int q = 0; q < n_rank(r); q++) {
        r->out[q] = r->point[point_of(r, q, k)];
        r->out_n[q] = lacks_point(r, q, k) ? r->count : 0;
        r->in[q] = weight + share_from(r, q);
        r->in_n[q] = lacks_point(r, me, k) ? share_count(r, q) : 0;
    }
    r->out_n[me] = r->in_n[me] = r->count;
    CT_TRY(exchange(r));
    ct_net_weights_changed(r->step->net);
    return CT_OK;
}

/* The gradients of batch k of each rank go to the shares. */
static ct_status deal_out_gradients(ct_optex_round *r, int k)
{
    for (int q = 0; q < n_rank(r); q++) {
        r->out[q] = r->step->net->grad_arena + share_from(r, q);
        r->out_n[q] = share_count(r, q);
        r->in[q] = (r->parts != NULL) ? r->parts + q * r->count
                                      : ct_optex_round_gradient(r, batch_of(r, q, k));
        r->in_n[q] = r->count;
    }
    return exchange(r);
}

/* whole[the gradient arena's length] = the shares of all ranks. */
static ct_status gather_shares(ct_optex_round *r, const float *share, float *whole)
{
    for (int q = 0; q < n_rank(r); q++) {
        r->out[q] = share;
        r->out_n[q] = r->count;
        r->in[q] = whole + share_from(r, q);
        r->in_n[q] = share_count(r, q);
    }
    return exchange(r);
}

ct_status ct_optex_round_gather_states(ct_optex_round *r)
{
    ct_train_step *t = r->step;
    int64_t before = r->bytes_sent;

    if (n_rank(r) == 1 || r->parallel == 1) return CT_OK;
    for (int h = 0; h < t->rule->n_state; h++) {
        CT_TRY(ct_storage_get(&t->history[h], r->from, r->count, r->state[h]));
        CT_TRY(gather_shares(r, r->state[h], t->net->grad_arena));
        CT_TRY(ct_storage_put(&t->history[h], 0, t->net->grad_count, t->net->grad_arena));
    }
    r->bytes_sent = before; /* rounds alone count */
    return CT_OK;
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
        CT_TRY(ct_storage_get(&t->history[h], r->from, r->count, to[h]));
    return CT_OK;
}

static ct_status take_states(ct_optex_round *r, float *const *from)
{
    ct_train_step *t = r->step;

    for (int h = 0; h < t->rule->n_state; h++)
        CT_TRY(ct_storage_put(&t->history[h], r->from, r->count, from[h]));
    return CT_OK;
}

static float *own_weights(const ct_optex_round *r)
{
    return r->step->net->weight_arena + r->from;
}

/* Without an estimate every point is where the round begins. */
static void stay(ct_optex_round *r)
{
    for (int s = 1; s < r->steps; s++) memcpy(r->point[s], r->point[0], bytes_of(r));
    for (int h = 0; h < r->step->rule->n_state; h++)
        memcpy(r->chained[h], r->state[h], bytes_of(r));
}

/* clip_gradients is a limit of a step's mean gradient, true or estimated. */
static ct_status clip(const ct_optex_round *r)
{
    ct_train_step *t = r->step;
    const float *g = ct_optex_round_room(r);
    double limit = (double)t->param->clip_gradients, norm;

    if (!ct_update_clips(t->param)) return CT_OK;
    norm = ct_optex_round_product(r, g, g);
    CT_TRY(ct_optex_round_add_up(r, &norm, 1));
    norm = (double)t->scale * sqrt(norm);
    if (norm > limit) t->scale *= (float)(limit / norm);
    return CT_OK;
}

static ct_status update_share(const ct_optex_round *r)
{
    const ct_net *net = r->step->net;

    for (int i = 0; (i < net->n_param) && net->param[i].learns; i++) {
        int64_t from, n = ct_net_share_of(&net->param[i], r->from, r->count, &from);

        if (n > 0) CT_TRY(ct_step_update_piece(r->step, i, from, n));
    }
    return CT_OK;
}

/* Update `s` of the round by the gradient in its room, the sum of some batches. */
static ct_status update(ct_optex_round *r, int s, double rate, int batches)
{
    ct_train_step *t = r->step;

    t->iteration = r->updates + s;
    t->rate = rate * r->batches;
    t->scale = 1.0f / (float)(t->iter_size * batches);
    CT_TRY(clip(r));
    return update_share(r);
}

/* The points. */
static ct_status predict(ct_optex_round *r, double rate)
{
    r->stays = r->probes || (r->predictor.prediction == CT_PREDICT_NONE) || (r->predictor.n == 0);
    if (r->stays) {
        stay(r);
        return CT_OK;
    }
    for (int s = 1; s < r->steps; s++) {
        double *c = r->coefficient[s - 1];

        CT_TRY(ct_gradient_predictor_weigh(&r->predictor, own_weights(r), c));
        ct_gradient_predictor_combine(&r->predictor, c, ct_optex_round_room(r));
        CT_TRY(update(r, s - 1, rate, 1));
        memcpy(r->point[s], own_weights(r), bytes_of(r));
    }
    CT_TRY(keep_states(r, r->chained));
    return take_states(r, r->state);
}

/* The parts of each point's gradient, in the order of the ranks. */
static ct_status join_parts(ct_optex_round *r)
{
    for (int q = 0; (r->parts != NULL) && (q < n_rank(r)); q++) {
        const float *part = r->parts + q * r->count;
        float *sum = ct_optex_round_gradient(r, batch_of(r, q, 0));

        if (q % n_sharer(r) == 0)
            memcpy(sum, part, bytes_of(r));
        else
            CT_TRY(math_of(r)->axpy(NULL, r->count, 1.0f, part, sum));
    }
    return CT_OK;
}

/* The gradients of all batches; *loss_p: the sum of the losses of this rank's. */
static ct_status evaluate(ct_optex_round *r, int64_t first, double rate, double *loss_p)
{
    for (int k = 0; k < n_batch(r); k++) {
        double one = 0.0;

        r->at = batch_of(r, own_rank(r), k);
        CT_TRY(go_to_point(r, k));
        CT_TRY(ct_train_step_run(r->step, first + r->at, rate, &one));
        CT_TRY(ct_train_step_settle(r->step));
        CT_TRY(deal_out_gradients(r, k));
        *loss_p += one;
    }
    return join_parts(r);
}

/* Where the first batch's gradient of each step is, the sum of all of its batches is. */
static ct_status add_up(ct_optex_round *r)
{
    for (int b = 0; b < r->parallel; b++)
        if (b % r->batches != 0)
            CT_TRY(math_of(r)->axpy(NULL, r->count, 1.0f, ct_optex_round_gradient(r, b),
                                    ct_optex_round_gradient(r, b - b % r->batches)));
    return CT_OK;
}

/* What the true gradients make of the weights. */
static ct_status correct(ct_optex_round *r, double rate)
{
    bool last = (r->correction == CT_CORRECT_LAST_POINT);
    int from = last ? r->steps - 1 : 0;

    memcpy(own_weights(r), r->point[from], bytes_of(r));
    if (last) CT_TRY(take_states(r, r->chained));
    for (int s = from; s < r->steps; s++) {
        memcpy(ct_optex_round_room(r), ct_optex_round_sum(r, s), bytes_of(r));
        CT_TRY(update(r, s, rate, r->batches));
    }
    CT_TRY(gather_shares(r, own_weights(r), r->step->net->weight_arena));
    ct_net_weights_changed(r->step->net);
    return CT_OK;
}

/* Estimates are of the mean over the batches of a step. */
static ct_status remember(ct_optex_round *r)
{
    float *sum[CT_OPTEX_POINTS];
    int added;

    if (r->predictor.prediction == CT_PREDICT_NONE) return CT_OK;
    for (int s = 0; s < r->steps; s++) {
        sum[s] = ct_optex_round_sum(r, s);
        CT_TRY(math_of(r)->scale(NULL, r->count, 1.0f / (float)r->batches, sum[s]));
    }
    return ct_gradient_predictor_add(&r->predictor, r->steps, r->point, sum, &added);
}

/* A momentum of sums of rates times gradients is what it were at the new rate. */
static ct_status scale_momentum(ct_optex_round *r, int before)
{
    if ((before == 0) || (before == r->batches) || !r->step->rule->corrects) return CT_OK;
    return math_of(r)->scale(NULL, r->count, (float)r->batches / (float)before, r->state[0]);
}

static ct_status begin(ct_optex_round *r)
{
    int before = r->batches;

    if (r->steps == 0) r->steps = r->parallel;
    if ((r->steps < 1) || (r->parallel % r->steps != 0))
        return CT_FAIL(CT_ERR_ARG, "a round of %d steps, of %d batches", r->steps, r->parallel);
    r->batches = r->parallel / r->steps;
    memcpy(r->point[0], own_weights(r), bytes_of(r));
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
    if (r->measures) CT_TRY(ct_optex_measure_noise(r));
    CT_TRY(add_up(r));
    if (r->measures) CT_TRY(ct_optex_measure_estimates(r));
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
