#include "runtime/division/exchange_divided.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parameters [first, first + n_param of view) of the net, and who sums them. */
typedef struct side {
    ct_net view; /* the net, with these parameters alone */
    int first;
    ct_exchange x;
    ct_exchange_mpi *mpi; /* NULL: one rank, or nothing learns */
    bool *told;           /* … and of these parameters `landed` has heard in this step */
    bool *heard;          /* … and `part`, under shards                                */
    ct_exchange_divided *of;
    ct_group_mpi group;
    ct_landed_fn landed; /* of the call under way */
    void *landed_ctx;
    ct_part_fn part;
    void *part_ctx;
} side;

enum { TIED, STAGE, REPLICAS, N_SIDE }; /* in arena order */

struct ct_exchange_divided {
    side side[N_SIDE];
    bool shards;    /* ct_grad_sync.shards, on all ranks of the job: one alone has all of a side */
    bool after_all; /* no weight changes before all gradients have landed                        */
    bool updated; /* … and then all were, in this step                                         */
};

static side *side_of(ct_exchange_divided *x, int param)
{
    int i = N_SIDE - 1;

    while (param < x->side[i].first) i--;
    return &x->side[i];
}

/* ---- gradients on their way */

static ct_status on_part(void *ctx, int param, int64_t from, int64_t count)
{
    const side *s = ctx;

    return s->part(s->part_ctx, s->first + param, from, count);
}

/* Under shards a rank that is alone on a side has all of it as one piece. */
static ct_status tell_whole(side *s, int first, int n)
{
    if (!s->of->shards || s->x.sync.shards) return CT_OK;
    for (int i = first; i < first + n; i++) {
        if (s->heard[i]) continue;
        s->heard[i] = true;
        CT_TRY(on_part(s, i, 0, s->view.param[i].count));
    }
    return CT_OK;
}

static ct_status on_landed(void *ctx, int first, int n)
{
    side *s = ctx;

    CT_TRY(tell_whole(s, first, n));
    return s->landed(s->landed_ctx, s->first + first, n);
}

static const ct_transport *way_of(const side *s)
{
    return &s->x.sync.transport;
}

static ct_status divided_ready(void *ctx, int param)
{
    const side *s = side_of(ctx, param);

    return way_of(s)->ops->ready(way_of(s)->ctx, param - s->first);
}

static ct_status divided_ready_to(void *ctx, int param, int64_t count)
{
    const side *s = side_of(ctx, param);

    if (way_of(s)->ops->ready_to == NULL) return CT_OK;
    return way_of(s)->ops->ready_to(way_of(s)->ctx, param - s->first, count);
}

static ct_status divided_poll(void *ctx)
{
    const ct_exchange_divided *x = ctx;

    for (int i = 0; i < N_SIDE; i++)
        CT_TRY(way_of(&x->side[i])->ops->poll(way_of(&x->side[i])->ctx));
    return CT_OK;
}

/* Nothing travels: each parameter is told of once a step. */
static ct_status tell(side *s, int first, int n)
{
    const ct_exchange_divided *x = s->of;

    CT_TRY(tell_whole(s, first, n));
    for (int i = first; i < first + n; i++) {
        if (s->told[i] || (x->shards && !x->updated)) continue;
        s->told[i] = true;
        CT_TRY(on_landed(s, i, 1));
    }
    return CT_OK;
}

static ct_status wait_side(side *s, int first, int n, ct_landed_fn landed, void *landed_ctx)
{
    s->landed = landed;
    s->landed_ctx = landed_ctx;
    if (s->mpi == NULL) return tell(s, first - s->first, n);
    return way_of(s)->ops->wait(way_of(s)->ctx, first - s->first, n, on_landed, s);
}

static ct_status divided_wait(void *ctx, int first, int n, ct_landed_fn landed, void *landed_ctx)
{
    ct_exchange_divided *x = ctx;

    for (int i = 0; i < N_SIDE; i++) {
        side *s = &x->side[i];
        int begin = (first > s->first) ? first : s->first, end = s->first + s->view.n_param;

        if (end > first + n) end = first + n;
        if (begin < end) CT_TRY(wait_side(s, begin, end - begin, landed, landed_ctx));
    }
    return CT_OK;
}

static ct_status divided_wait_gradient(void *ctx, int param, ct_landed_fn landed, void *landed_ctx)
{
    side *s = side_of(ctx, param);

    if (!s->of->shards || (s->mpi == NULL)) return wait_side(s, param, 1, landed, landed_ctx);
    s->landed = landed;
    s->landed_ctx = landed_ctx;
    return way_of(s)->ops->wait_gradient(way_of(s)->ctx, param - s->first, on_landed, s);
}

static ct_status divided_updated(void *ctx)
{
    ct_exchange_divided *x = ctx;

    x->updated = true;
    for (int i = 0; i < N_SIDE; i++)
        if (x->side[i].mpi != NULL)
            CT_TRY(way_of(&x->side[i])->ops->updated(way_of(&x->side[i])->ctx));
    return CT_OK;
}

static ct_status divided_gather(void *ctx, int param, bool wait)
{
    const side *s = side_of(ctx, param);

    return (s->mpi != NULL) ? way_of(s)->ops->gather(way_of(s)->ctx, param - s->first, wait)
                            : CT_OK;
}

static ct_status divided_finish(void *ctx, ct_landed_fn landed, void *landed_ctx)
{
    ct_exchange_divided *x = ctx;

    for (int i = 0; i < N_SIDE; i++) {
        side *s = &x->side[i];

        s->landed = landed;
        s->landed_ctx = landed_ctx;
        if (s->mpi == NULL)
            CT_TRY(tell(s, 0, s->view.n_param));
        else
            CT_TRY(way_of(s)->ops->finish(way_of(s)->ctx, on_landed, s));
    }
    return CT_OK;
}

static void divided_hear_parts(void *ctx, ct_part_fn part, void *part_ctx)
{
    ct_exchange_divided *x = ctx;

    for (int i = 0; i < N_SIDE; i++) {
        side *s = &x->side[i];

        s->part = part;
        s->part_ctx = part_ctx;
        if (x->shards && !s->x.sync.shards) continue; /* tell_whole() */
        if (way_of(s)->ops->hear_parts != NULL)
            way_of(s)->ops->hear_parts(way_of(s)->ctx, (part != NULL) ? on_part : NULL, s);
    }
}

static ct_status divided_rows(void *ctx, int param, int64_t m, const int32_t *index,
                              const float *value)
{
    const side *s = side_of(ctx, param);

    return way_of(s)->ops->rows(way_of(s)->ctx, param - s->first, m, index, value);
}

static const ct_transport_ops transport_ops = {
    .ready = divided_ready,
    .ready_to = divided_ready_to,
    .poll = divided_poll,
    .wait = divided_wait,
    .wait_gradient = divided_wait_gradient,
    .finish = divided_finish,
    .hear_parts = divided_hear_parts,
    .rows = divided_rows,
    .updated = divided_updated,
    .gather = divided_gather,
};

/* ---- a step */

static ct_status divided_begin(ct_grad_sync *sync, int64_t iteration, float scale, float rate)
{
    ct_exchange_divided *x = sync->ctx;

    x->updated = !x->after_all || sync->more;
    for (int i = 0; i < N_SIDE; i++) {
        ct_grad_sync *s = &x->side[i].x.sync;

        memset(x->side[i].told, 0, (size_t)x->side[i].view.n_param * sizeof(bool));
        memset(x->side[i].heard, 0, (size_t)x->side[i].view.n_param * sizeof(bool));
        s->momentum = sync->momentum;
        s->more = sync->more;
        CT_TRY(s->ops->begin(s, iteration, scale, rate));
    }
    return CT_OK;
}

static void divided_reads(void *ctx, int param)
{
    const side *s = side_of(ctx, param);

    s->x.sync.ops->reads(s->x.sync.ctx, param - s->first);
}

static ct_grad_effect divided_effect(void *ctx, int param)
{
    const side *s = side_of(ctx, param);

    return s->x.sync.ops->effect(s->x.sync.ctx, param - s->first);
}

static int64_t divided_variance_steps(void *ctx, int param)
{
    const side *s = side_of(ctx, param);
    const ct_grad_sync *x = &s->x.sync;

    return (x->ops->variance_steps != NULL) ? x->ops->variance_steps(x->ctx, param - s->first) : -1;
}

static bool divided_own(void *ctx, int param, int k, int64_t *from_p, int64_t *count_p)
{
    const side *s = side_of(ctx, param);

    if (param - s->first >= s->view.n_param) return false;
    if (s->mpi != NULL)
        return s->x.sync.ops->own(s->x.sync.ctx, param - s->first, k, from_p, count_p);
    *from_p = 0;
    *count_p = s->view.param[param - s->first].count;
    return k == 0;
}

static void add_stats(ct_sync_stats *sum, const ct_sync_stats *s)
{
    sum->exposed_s += s->exposed_s;
    sum->moving_s += s->moving_s;
    sum->encode_s += s->encode_s;
    sum->bytes_sent += s->bytes_sent;
    sum->codec.n_coded += s->codec.n_coded;
    sum->codec.residual_norm += s->codec.residual_norm;
    ct_codec_totals_add(&sum->codec, &s->codec, 1);
}

static void divided_stats(void *ctx, bool codec, ct_sync_stats *out)
{
    const ct_exchange_divided *x = ctx;

    *out = (ct_sync_stats){ .bytes_sent = 0 };
    for (int i = 0; i < N_SIDE; i++) {
        ct_sync_stats s;

        x->side[i].x.sync.ops->stats(x->side[i].x.sync.ctx, codec, &s);
        add_stats(out, &s);
    }
}

static const ct_grad_sync_ops sync_ops = {
    .begin = divided_begin,
    .reads = divided_reads,
    .effect = divided_effect,
    .variance_steps = divided_variance_steps,
    .stats = divided_stats,
    .own = divided_own,
};

/* ---- what codecs keep */

static bool divided_get(void *ctx, int param, int k, ct_sync_state *out)
{
    const side *s = side_of(ctx, param);

    if (!ct_sync_states_get(&s->x.states, param - s->first, k, out)) return false;
    out->param = param;
    return true;
}

static ct_status divided_restored(void *ctx)
{
    const ct_exchange_divided *x = ctx;

    for (int i = 0; i < N_SIDE; i++) {
        const ct_sync_states *s = &x->side[i].x.states;

        if (s->restored != NULL) CT_TRY(s->restored(s->ctx));
    }
    return CT_OK;
}

/* ---- making it */

static bool is_of(const ct_param *p, int i)
{
    return p->learns && ((p->tied ? TIED : p->own_samples ? STAGE : REPLICAS) == i);
}

/* Where the device's library can. One stage's part of what is tied would wait on the device for the
 * other stage, which waits for values; the host moves these meanwhile. What layers sum stays on the
 * host, in the order of the ranks. */
static ct_status sum_on_device(side *s, int i, ct_comm *comm, const Ct__SolverParameter *param,
                               bool shares_gpu)
{
    const ct_device_sum_ops *lib = NULL;
    double mb = (param->comm != NULL) ? (double)param->comm->bucket_mb : 0.0;

    if (i == TIED) return CT_OK;
    CT_TRY(ct_exchange_pick_sum(param, &s->view, comm, shares_gpu, &lib));
    if ((lib == NULL) || ct_exchange_is_coded(param, &s->view)) return CT_OK;
    CT_TRY(ct_exchange_mpi_on_device(s->mpi, &s->view, lib, (int64_t)(mb * 1e6), true, &s->x));
    s->x.data.sums_there = false;
    CT_INFO("gradients of %s are added up on the GPUs, by %s",
            (i == STAGE) ? "a stage" : "replicas", lib->name);
    return CT_OK;
}

/* The net with those of its parameters from `first` on that are of side i. */
static ct_net view_of(const ct_net *net, int first, int i)
{
    ct_net view = *net;

    view.param = net->param + first;
    view.n_param = 0;
    while ((first + view.n_param < net->n_param) && is_of(&view.param[view.n_param], i))
        view.n_param++;
    return view;
}

/* One rank alone lets go of each gradient for itself, unless a codec rounds them by buckets. */
static ct_status cut_divided(void *ctx, const ct_net *net, bool *begins)
{
    const ct_divided_window *w = ctx;
    ct_comm *comm[] = { w->groups.tied, w->groups.stage, w->groups.replicas };
    int first = 0;

    for (int i = 0; i < N_SIDE; i++) {
        ct_net view = view_of(net, first, i);
        bool alone = (comm[i] == NULL) || (comm[i]->size == 1);

        alone = alone && !ct_exchange_is_coded(w->param, &view);
        for (int k = 0; alone && (k < view.n_param); k++) begins[first + k] = true;
        if (!alone && (view.n_param > 0))
            CT_TRY(ct_exchange_cut(comm[i], w->param, &view, begins + first));
        first += view.n_param;
    }
    return CT_OK;
}

ct_status ct_exchange_divided_shard(const ct_exchange_groups *groups,
                                    const Ct__SolverParameter *param, const ct_net *net,
                                    ct_shard *s)
{
    ct_comm *comm[] = { groups->tied, groups->stage, groups->replicas };
    int first = 0;

    for (int i = 0; i < N_SIDE; i++) {
        ct_net view = view_of(net, first, i);
        bool alone = (comm[i] == NULL) || (comm[i]->size == 1);

        for (int k = 0; alone && (k < view.n_param); k++)
            CT_TRY(ct_shard_add(s, view.param[k].offset, view.param[k].count));
        if (!alone && (view.n_param > 0)) CT_TRY(ct_exchange_add_shard(comm[i], param, &view, s));
        first += view.n_param;
    }
    return CT_OK;
}

static ct_status count_side(ct_comm *c, const Ct__SolverParameter *param, const ct_net *view,
                            int64_t *bytes_p)
{
    ct_exchange_ranges r;
    ct_grad_pipe_load load = { .comm = c,
                               .config = &r.config,
                               .shards = (param->memory != NULL) && (param->memory->zero > 0),
                               .shared = ct_exchange_shares(param) };
    ct_status status;

    CT_TRY(ct_exchange_ranges_open(param, view, &r));
    status = ct_grad_pipe_count(&load, r.range, r.n, bytes_p);
    ct_exchange_ranges_close(&r);
    return status;
}

ct_status ct_exchange_divided_count(const ct_exchange_groups *groups,
                                    const Ct__SolverParameter *param, const ct_net *net,
                                    int64_t *bytes_p)
{
    ct_comm *comm[] = { groups->tied, groups->stage, groups->replicas };
    int first = 0;

    for (int i = 0; i < N_SIDE; i++) {
        ct_net view = view_of(net, first, i);
        bool alone = (comm[i] == NULL) || (comm[i]->size == 1);

        if (!alone && (view.n_param > 0)) CT_TRY(count_side(comm[i], param, &view, bytes_p));
        first += view.n_param;
    }
    return CT_OK;
}

const ct_net_window *ct_exchange_divided_window(ct_divided_window *w,
                                                const ct_exchange_groups *groups, ct_comm *job,
                                                const ct_device *dev, int n_micro,
                                                const Ct__SolverParameter *param)
{
    ct_net_window *window = &w->of.window;
    bool one = (n_micro == 1) && (param->iter_size == 1) && (param->batch_tokens == 0);

    if ((dev == NULL) || (dev->kind != CT_DEVICE_CPU) ||
        (ct_exchange_window_open(&w->of, job, dev, param) == NULL))
        return NULL;
    w->groups = *groups;
    w->param = param;
    window->cut = cut_divided;
    window->ctx = w;
    window->keeps_tied = (param->memory->zero == 3);
    if (window->gradients && !one)
        CT_INFO("memory { zero: %d }: gradients stay whole until the last of several micro-batches",
                param->memory->zero);
    window->gradients = window->gradients && one;
    return (window->gradients || window->weights) ? window : NULL;
}

/* Its parameters stand from `first` on. comm NULL: it has none. */
static ct_status open_side(side *s, int i, ct_comm *comm, const Ct__SolverParameter *param,
                           const ct_exchange_groups *groups, const ct_net *net, int first)
{
    ct_grad_pipe_config unused;
    int n;

    s->view = view_of(net, first, i);
    n = s->view.n_param;
    if ((comm == NULL) && (n != 0))
        return CT_FAIL(CT_ERR_ARG, "parameter %s is tied, and nobody knows to whom",
                       net->param[first].key);
    s->first = first;
    s->group.comm = comm;
    s->told = calloc((size_t)n + 1, sizeof(*s->told));
    s->heard = calloc((size_t)n + 1, sizeof(*s->heard));
    if ((s->told == NULL) || (s->heard == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for an exchange");
    ct_exchange_single(n, &s->x);
    if ((n == 0) || ((comm->size == 1) && !ct_exchange_is_coded(param, &s->view))) {
        CT_TRY(ct_exchange_read_config(param, &unused)); /* as strict as with more ranks */
        if (comm != NULL) ct_group_mpi_open(&s->group, &s->x.data);
        return CT_OK;
    }
    CT_TRY(ct_exchange_mpi_create(comm, param, &s->view, groups->trace, false, &s->mpi, &s->x));
    return sum_on_device(s, i, comm, param, groups->shares_gpu);
}

/* Shards inside the groups of ranks that have the same weights. */
static ct_status read_shards(ct_exchange_divided *x, const Ct__SolverParameter *param,
                             const ct_net *net)
{
    ct_grad_pipe_config config;
    int zero = (param->memory != NULL) ? param->memory->zero : 0;

    CT_TRY(ct_exchange_read_config(param, &config));
    x->shards = (zero > 0);
    x->after_all = config.after_all;
    if ((zero > 0) && (net->options.dev != NULL) && (net->options.dev->kind != CT_DEVICE_CPU))
        return CT_FAIL(CT_ERR_CONFIG, "memory { zero: %d } is not for device %s yet: take zero: 0",
                       zero, net->options.dev->name);
    return CT_OK;
}

/* What a parameter with rows is told needs a way for them. */
static ct_status check_rows(const ct_exchange_divided *x)
{
    for (int i = 0; i < N_SIDE; i++) {
        const side *s = &x->side[i];

        for (int k = 0; k < s->view.n_param; k++) {
            if ((s->view.param[k].row_most > 0) && (way_of(s)->ops->rows == NULL))
                return CT_FAIL(CT_ERR_ARG, "rows of %s have no way to travel",
                               s->view.param[k].key);
        }
    }
    return CT_OK;
}

static const ct_transport *first_with_steps(const ct_exchange_divided *x)
{
    for (int i = 0; i < N_SIDE - 1; i++) {
        if (way_of(&x->side[i])->step_s != NULL) return way_of(&x->side[i]);
    }
    return way_of(&x->side[N_SIDE - 1]);
}

ct_status ct_exchange_divided_create(const ct_exchange_groups *groups,
                                     const Ct__SolverParameter *param, const ct_net *net,
                                     ct_exchange_divided **x_p, ct_exchange *out)
{
    ct_exchange_divided *x = calloc(1, sizeof(*x));
    ct_comm *comm[] = { groups->tied, groups->stage, groups->replicas };
    ct_status status = CT_OK;
    int first = 0;

    if (x == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for an exchange");
    status = read_shards(x, param, net);
    for (int i = 0; (i < N_SIDE) && (status == CT_OK); i++) {
        x->side[i].of = x;
        status = open_side(&x->side[i], i, comm[i], param, groups, net, first);
        first += x->side[i].view.n_param;
    }
    if (status == CT_OK) status = check_rows(x);
    if (status != CT_OK) {
        ct_exchange_divided_destroy(x);
        return status;
    }
    *out = (ct_exchange){
        .data = x->side[REPLICAS].x.data,
        .stage = x->side[STAGE].x.data,
        .tied = (groups->tied != NULL) ? x->side[TIED].x.data : (ct_group){ .size = 0 },
        .sync = { .ctx = x,
                  .ops = &sync_ops,
                  .shards = x->shards,
                  .transport = { .ctx = x,
                                 .ops = &transport_ops,
                                 .step_s = first_with_steps(x)->step_s } },
        .states = { x, divided_get, divided_restored },
    };
    for (int i = 0; i < N_SIDE; i++) {
        if (x->side[i].x.sync.n_trial > out->sync.n_trial)
            out->sync.n_trial = x->side[i].x.sync.n_trial;
    }
    *x_p = x;
    return CT_OK;
}

void ct_exchange_divided_destroy(ct_exchange_divided *x)
{
    if (x == NULL) return;
    for (int i = 0; i < N_SIDE; i++) {
        ct_exchange_mpi_destroy(x->side[i].mpi);
        free(x->side[i].told);
        free(x->side[i].heard);
    }
    free(x);
}

void ct_exchange_divided_describe(void *ctx, char *text, size_t size)
{
    const ct_exchange_divided *x = ctx;
    size_t at = 0;

    text[0] = '\0';
    for (int i = 0; (i < N_SIDE) && (at < size); i++) {
        if (x->side[i].mpi == NULL) continue;
        at += (size_t)snprintf(text + at, size - at, "%s%s: ", (at > 0) ? "; " : "",
                               (i == STAGE)  ? "in the stage"
                               : (i == TIED) ? "of the first and the last stage"
                                             : "among replicas");
        if (at < size) ct_exchange_mpi_describe(x->side[i].mpi, text + at, size - at);
        at += (at < size) ? strlen(text + at) : 0;
    }
    if (at == 0) snprintf(text, size, "no gradients travel from this rank");
}
