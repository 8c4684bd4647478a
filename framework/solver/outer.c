#include "framework/solver/outer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/memory.h"
#include "framework/solver/solver_private.h"

/* ---- what may be said */

static ct_status refuse(const ct_solver_text *t, const char *what, const char *why)
{
    return CT_FAIL(CT_ERR_CONFIG, "%s: outer and %s do not go together: %s", CT_SOLVER_AT(t, outer),
                   what, why);
}

static ct_status check_values(const ct_solver_text *t, const Ct__OuterParameter *p)
{
    if (p->local_iter < 1)
        return CT_FAIL(CT_ERR_CONFIG, "%s: outer.local_iter is %d, needs at least 1",
                       CT_SOLVER_AT(t, outer->local_iter), p->local_iter);
    if (p->groups < 0)
        return CT_FAIL(CT_ERR_CONFIG, "%s: outer.groups is %d, needs at least 0",
                       CT_SOLVER_AT(t, outer->groups), p->groups);
    if (!isfinite(p->lr) || !(p->lr > 0.0f))
        return CT_FAIL(CT_ERR_CONFIG, "%s: outer.lr is %g, needs more than 0",
                       CT_SOLVER_AT(t, outer->lr), (double)p->lr);
    if (!(p->momentum >= 0.0f) || !(p->momentum < 1.0f))
        return CT_FAIL(CT_ERR_CONFIG, "%s: outer.momentum is %g, needs 0 to below 1",
                       CT_SOLVER_AT(t, outer->momentum), (double)p->momentum);
    if ((p->delay < 0) || (p->delay > 1))
        return CT_FAIL(CT_ERR_CONFIG, "%s: outer.delay is %d, needs 0 or 1",
                       CT_SOLVER_AT(t, outer->delay), p->delay);
    if (p->has_momentum && (p->optimizer == CT__OUTER_PARAMETER__OPTIMIZER__SGD))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: outer.momentum is given, but optimizer SGD has none: take NESTEROV, or "
                       "leave momentum out",
                       CT_SOLVER_AT(t, outer->momentum));
    return CT_OK;
}

ct_status ct_outer_check(const ct_solver_text *t)
{
    const Ct__SolverParameter *p = t->p;

    if (p->outer == NULL) return CT_OK;
    CT_TRY(check_values(t, p->outer));
    if ((p->memory != NULL) && (p->memory->zero > 0))
        return refuse(t, "memory { zero }", "replicas that share out states need equal weights");
    if ((p->memory != NULL) && (p->memory->state == CT__MEMORY_PARAMETER__TIER__FILE))
        return refuse(t, "memory { state: FILE }", "what each group keeps must stay in memory");
    if ((p->memory != NULL) && (p->memory->weights == CT__MEMORY_PARAMETER__TIER__FILE))
        return refuse(t, "memory { weights: FILE }", "groups look at all weights when they meet");
    if ((p->average != NULL) && (p->average->type != CT__WEIGHT_AVERAGE_PARAMETER__TYPE__NONE))
        return refuse(t, "average", "each group's weights would have an average of their own");
    if ((p->compression != NULL) &&
        ((p->compression->local_clip > 0.0f) ||
         (p->compression->type != CT__COMPRESSION_PARAMETER__TYPE__NONE)))
        return refuse(t, "compression", "gradients stay inside a group");
    if (p->verify_memory) return refuse(t, "verify_memory", "groups copy their states by address");
    if (p->snapshot_async)
        return refuse(t, "snapshot_async", "what groups keep is written between steps");
    return CT_OK;
}

/* ---- making it */

/* The rank of a group that has a parameter: neighbours stay together. */
static int owner_of(const ct_net *net, const ct_param *p, int n_rank)
{
    int64_t middle = p->offset + p->count / 2;

    return (int)(middle * n_rank / net->grad_count);
}

/* The part of this rank, as a view. Differences travel as they are, whatever gradients do. */
static ct_status open_part(ct_outer *o)
{
    const ct_net *net = o->net;
    const ct_group *g = &o->ranks->inner;
    ct_net *part = &o->part;

    *part = *net;
    part->n_param = 0;
    part->param = calloc((size_t)net->n_param + 1, sizeof(*part->param));
    part->grad_count = part->grad_memory = 0;
    part->grad_arena = NULL;
    if (part->param == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for local steps");
    for (int i = 0; (i < net->n_param) && net->param[i].learns; i++) {
        ct_param *p = &part->param[part->n_param];

        if (owner_of(net, &net->param[i], g->size) != g->rank) continue;
        *p = net->param[i];
        if (part->n_param++ == 0) o->from = p->offset;
        p->offset -= o->from;
        p->grad_shift = p->weight_shift = 0;
        p->compress = NULL;
        p->row_most = 0;
        p->row_beside = false;
        part->grad_count = part->grad_memory = p->offset + p->count;
    }
    return CT_OK;
}

static ct_status acquire(const ct_outer *o, float **p)
{
    size_t bytes = (size_t)(o->part.grad_count + 1) * sizeof(float);

    *p = ct_mem_acquire(bytes);
    if (*p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu bytes of local steps", bytes);
    memset(*p, 0, bytes);
    return CT_OK;
}

static ct_status open_arrays(ct_outer *o)
{
    CT_TRY(acquire(o, &o->part.grad_arena));
    CT_TRY(acquire(o, &o->weights));
    if (o->param->delay > 0) CT_TRY(acquire(o, &o->start));
    if (o->param->optimizer != CT__OUTER_PARAMETER__OPTIMIZER__NESTEROV) return CT_OK;
    return acquire(o, &o->momentum);
}

/* What the group has of the batch. */
static ct_status count_samples(ct_outer *o)
{
    ct_net *net = o->net;
    double n = (double)net->batch_local;

    CT_TRY(ct_group_sum(&o->ranks->inner, &n, 1));
    net->batch_summed = (int64_t)n;
    o->share = 1.0f / (float)o->ranks->n_group;
    if (net->batch_global > 0) o->share = (float)(n / (double)net->batch_global);
    return CT_OK;
}

static ct_status open(ct_outer *o)
{
    const ct_net *net = o->net;

    if (net->options.dev->kind != CT_DEVICE_CPU)
        return CT_FAIL(CT_ERR_CONFIG, "outer is not for device %s yet", net->options.dev->name);
    if ((net->options.window != NULL) && net->options.window->weights)
        return CT_FAIL(CT_ERR_CONFIG, "outer and memory { weights: FILE } do not go together: "
                                      "groups look at all weights when they meet");
    for (int i = 0; i < net->n_param; i++) {
        const Ct__CompressionParameter *c = net->param[i].compress;

        if ((c != NULL) && (c->type != CT__COMPRESSION_PARAMETER__TYPE__NONE))
            return CT_FAIL(CT_ERR_CONFIG,
                           "outer and compress of %s do not go together: gradients stay inside a "
                           "group",
                           net->param[i].key);
    }
    for (int i = 0; i < net->n_layer; i++)
        if (strcmp(net->layer[i]->ops->type, "Python") == 0)
            return CT_FAIL(CT_ERR_CONFIG,
                           "outer is not for layers of type Python yet, as \"%s\": they weigh "
                           "gradients by the batch of all groups",
                           net->layer[i]->name);
    CT_TRY(count_samples(o));
    CT_TRY(open_part(o));
    CT_TRY(open_arrays(o));
    return o->ranks->open(o->ranks->ctx, &o->part, &o->across);
}

ct_status ct_outer_create(const Ct__SolverParameter *param, const ct_outer_ranks *ranks,
                          ct_net *net, ct_outer **o_p)
{
    ct_outer *o = calloc(1, sizeof(*o));
    ct_status status;

    if (o == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for local steps");
    o->param = param->outer;
    o->ranks = ranks;
    o->net = net;
    status = open(o);
    if (status != CT_OK) {
        ct_outer_destroy(o);
        return status;
    }
    CT_INFO("local steps: %d group%s of %d rank%s meet every %d iterations, outer optimiser %s",
            ranks->n_group, (ranks->n_group == 1) ? "" : "s", ranks->inner.size,
            (ranks->inner.size == 1) ? "" : "s", o->param->local_iter,
            (o->momentum != NULL) ? "NESTEROV" : "SGD");
    if (param->max_iter % o->param->local_iter != 0)
        CT_WARN("max_iter %d is no multiple of outer.local_iter %d: the last %d iterations do not "
                "reach the weights that are kept",
                param->max_iter, o->param->local_iter, param->max_iter % o->param->local_iter);
    *o_p = o;
    return CT_OK;
}

void ct_outer_destroy(ct_outer *o)
{
    if (o == NULL) return;
    o->ranks->close(o->ranks->ctx); /* it looks at the part */
    ct_mem_release(o->part.grad_arena);
    ct_mem_release(o->weights);
    ct_mem_release(o->momentum);
    ct_mem_release(o->start);
    free(o->part.param);
    free(o);
}

const ct_group *ct_outer_group(const ct_outer *o)
{
    return &o->ranks->inner;
}

int64_t ct_outer_bytes(const ct_outer *o)
{
    int64_t n = 2 + (o->momentum != NULL) + (o->start != NULL);

    return n * o->part.grad_count * (int64_t)sizeof(float);
}

int64_t ct_outer_bytes_sent(const ct_outer *o)
{
    ct_sync_stats stats;

    o->across.sync.ops->stats(o->across.sync.ctx, false, &stats);
    return stats.bytes_sent;
}

/* ---- meeting */

void ct_outer_start(ct_outer *o)
{
    if (o->part.n_param == 0) return;
    memcpy(o->weights, ct_outer_of_net(o), (size_t)o->part.grad_count * sizeof(float));
    if (o->start != NULL) memcpy(o->start, o->weights, (size_t)o->part.grad_count * sizeof(float));
}

bool ct_outer_is_due(const ct_outer *o, int64_t iteration)
{
    return iteration % o->param->local_iter == 0;
}

bool ct_outer_is_apart(const ct_outer *o, int64_t iteration)
{
    return (o->start != NULL) ? (iteration > 0) : !ct_outer_is_due(o, iteration);
}

const ct_transport *ct_outer_under_way(const ct_outer *o)
{
    return ((o->start != NULL) && (o->part.n_param > 0)) ? &o->across.sync.transport : NULL;
}

/* Parameters of the part have the sum of the differences. */
static ct_status on_landed(void *ctx, int first, int n)
{
    ct_outer *o = ctx;
    const ct_param *p = o->part.param + first, *last = p + n - 1;
    const float lr = o->param->lr, mu = o->param->momentum;
    const float *d = o->part.grad_arena;

#pragma omp parallel for schedule(static)
    for (int64_t i = p->offset; i < last->offset + last->count; i++) {
        float step = d[i];

        if (o->momentum != NULL) {
            o->momentum[i] = mu * o->momentum[i] + d[i];
            step += mu * o->momentum[i];
        }
        o->weights[i] -= lr * step;
    }
    return CT_OK;
}

/* Differences leave. With delay the group goes on from the new weights less its own. */
static ct_status leave(ct_outer *o, int64_t number)
{
    ct_grad_sync *sync = &o->across.sync;
    const ct_transport *way;
    const float *from = (o->start != NULL) ? o->start : o->weights;
    float *mine = ct_outer_of_net(o), *d = o->part.grad_arena;

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < o->part.grad_count; i++) {
        float own = from[i] - mine[i];

        d[i] = o->share * own;
        if (o->start != NULL) o->start[i] = mine[i] = o->weights[i] - own;
    }
    CT_TRY(sync->ops->begin(sync, number, 1.0f, o->param->lr));
    way = &sync->transport;
    for (int i = 0; i < o->part.n_param; i++) CT_TRY(way->ops->ready(way->ctx, i));
    o->under_way = true;
    return CT_OK;
}

ct_status ct_outer_land(ct_outer *o)
{
    const ct_transport *way = &o->across.sync.transport;

    if (!o->under_way) return CT_OK;
    o->under_way = false;
    return way->ops->finish(way->ctx, on_landed, o);
}

ct_status ct_outer_gather(const ct_outer *o, const float *mine, float *out)
{
    const ct_group *g = &o->ranks->inner;
    size_t bytes = (size_t)o->part.grad_count * sizeof(*out);
    int64_t n = o->net->grad_count, behind = o->from + o->part.grad_count;

    if ((o->part.n_param > 0) && (mine != out + o->from)) memcpy(out + o->from, mine, bytes);
    if (g->size == 1) return CT_OK;
    memset(out, 0, (size_t)o->from * sizeof(*out));
    memset(out + behind, 0, (size_t)(n - behind) * sizeof(*out));
    return ct_group_average(g, out, n, 1.0); /* the others add zeros */
}

ct_status ct_outer_weights(ct_outer *o, float *out)
{
    CT_TRY(ct_outer_land(o));
    return ct_outer_gather(o, o->weights, out);
}

ct_status ct_outer_meet(ct_outer *o, int64_t iteration)
{
    float *all = o->net->weight_arena;

    CT_TRY(ct_outer_land(o));
    if (o->part.n_param > 0) CT_TRY(leave(o, iteration / o->param->local_iter - 1));
    if (o->start == NULL)
        CT_TRY(ct_outer_weights(o, all));
    else
        CT_TRY(ct_outer_gather(o, ct_outer_of_net(o), all));
    ct_net_weights_changed(o->net);
    return CT_OK;
}
