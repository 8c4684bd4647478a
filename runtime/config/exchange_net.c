/* What an exchange needs to know of a net, and who sums its gradients. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/codec/codec_types.h"
#include "comm/collective/blocking.h"
#include "comm/collective/coll.h"
#include "framework/solver/optex.h"
#include "framework/solver/update_rule.h"
#include "runtime/config/exchange_config.h"

/* The pipe's ranges: the learned parameters, which the net puts first. The layer that backward
 * finishes first is the one that the loss reads. */
static ct_status list_ranges(const Ct__SolverParameter *s, const ct_net *net, ct_grad_range *range,
                             ct_codec_config *own, int *n_p)
{
    for (int i = 0; i < net->n_param; ++i) {
        const ct_param *p = &net->param[i];

        if (!p->learns) continue;
        if (i != *n_p)
            return CT_FAIL(CT_ERR_ARG, "parameter %s learns, but stands after one that does not",
                           p->key);
        range[i] = (ct_grad_range){ .key = p->key,
                                    .offset = p->offset,
                                    .count = p->count,
                                    .shift = p->grad_shift,
                                    .weight_shift = p->weight_shift,
                                    .rounded = ct_net_rounds(net, p),
                                    .rows = ct_param_rows(p),
                                    .weight = ct_blob_data(&p->blob),
                                    .decay = s->weight_decay * p->decay_mult,
                                    .rate_mult = p->lr_mult,
                                    .row_most = p->row_most,
                                    .row_beside = p->row_beside,
                                    .output = (strcmp(p->layer, net->param[0].layer) == 0) };
        if (p->compress != NULL) {
            CT_TRY(ct_codec_read_own(s, p->compress, p->key, &range[i].codec, &own[i]));
            CT_TRY(ct_codec_check_solver(s, p->key, range[i].codec, &own[i]));
            range[i].codec_config = &own[i];
        }
        *n_p += 1;
    }
    return CT_OK;
}

/* The pipe learns where gradients lie; those that travel dense it sees on the host. */
static ct_status put_on_device(const ct_net *net, ct_grad_pipe_config *config, ct_grad_range *range,
                               int n)
{
    bool coded = false;

    CT_TRY(ct_exchange_check_device(net->options.dev, config, config->codec, "compression"));
    for (int i = 0; i < n; ++i) {
        const ct_codec_config *c = NULL;
        const ct_codec_ops *codec = ct_grad_range_codec(config, &range[i], &c);

        CT_TRY(ct_exchange_check_device(net->options.dev, config, codec, range[i].key));
        coded = coded || (strcmp(codec->name, "none") != 0);
        range[i].on_device = ct_blob_diff(&net->param[i].blob);
    }
    config->dev = net->options.dev;
    if (coded) config->progress = CT_PROGRESS_POLL;
    return CT_OK;
}

ct_status ct_exchange_read_ranges(const Ct__SolverParameter *param, const ct_net *net,
                                  ct_grad_pipe_config *config, ct_grad_range **range_p,
                                  ct_codec_config **own_p, int *n_p)
{
    bool on_device = (net->options.dev != NULL) && (net->options.dev->kind != CT_DEVICE_CPU);
    ct_grad_range *range = calloc((size_t)net->n_param + 1, sizeof(*range));
    ct_codec_config *own = calloc((size_t)net->n_param + 1, sizeof(*own));
    ct_status status = CT_OK;
    int n = 0;

    if ((range == NULL) || (own == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for an exchange");
    if (status == CT_OK) status = list_ranges(param, net, range, own, &n);
    if ((status == CT_OK) && on_device) status = put_on_device(net, config, range, n);
    if (status != CT_OK) {
        free(range);
        free(own);
        return status;
    }
    *range_p = range;
    *own_p = own;
    *n_p = n;
    return CT_OK;
}

bool ct_exchange_shares(const Ct__SolverParameter *param)
{
    const char *name = (param->comm != NULL) ? param->comm->allreduce : "auto";
    const Ct__CompressionParameter *p = param->compression;

    if ((p != NULL) && (p->type != CT__COMPRESSION_PARAMETER__TYPE__NONE) &&
        (p->exchange == CT__COMPRESSION_PARAMETER__EXCHANGE__KIND__HIER))
        return true; /* its nodes add gradients up where they are */
    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
        if (strcmp(name, (*at)->name) == 0) return (*at)->shares_memory;
    }
    return true; /* auto; a wrong name is found when the exchange opens */
}

const ct_arena_ops *ct_exchange_arena(ct_comm *comm, const Ct__SolverParameter *param)
{
    return ct_exchange_shares(param) ? ct_comm_arena(comm) : ct_arena_plain();
}

ct_status ct_exchange_ranges_open(const Ct__SolverParameter *param, const ct_net *net,
                                  ct_exchange_ranges *r)
{
    *r = (ct_exchange_ranges){ .n = 0 };
    CT_TRY(ct_exchange_read_config(param, &r->config));
    return ct_exchange_read_ranges(param, net, &r->config, &r->range, &r->own, &r->n);
}

void ct_exchange_ranges_close(ct_exchange_ranges *r)
{
    free(r->range);
    free(r->own);
    *r = (ct_exchange_ranges){ .n = 0 };
}

/* ---- gradients that share memory */

enum {
    WINDOW_LAG = 2,     /* chunks under way while the next is written */
    WINDOW_PREFETCH = 2 /* … that come while the one before is read   */
};

ct_status ct_exchange_cut(ct_comm *comm, const Ct__SolverParameter *param, const ct_net *net,
                          bool *begins)
{
    ct_exchange_ranges r;
    ct_status status;

    CT_TRY(ct_exchange_ranges_open(param, net, &r));
    if (r.config.codec->chooses && (comm->size == 1))
        r.config.codec = &ct_codec_none; /* nothing travels, so AUTO chooses that */
    status = ct_grad_pipe_cut(comm, &r.config, r.range, r.n, begins);
    ct_exchange_ranges_close(&r);
    return status;
}

typedef struct shard_of {
    const ct_net *net;
    ct_shard *shard;
} shard_of;

static ct_status add_piece(void *ctx, int range, int64_t from, int64_t count)
{
    const shard_of *s = ctx;

    return ct_shard_add(s->shard, s->net->param[range].offset + from, count);
}

ct_status ct_exchange_add_shard(ct_comm *comm, const Ct__SolverParameter *param, const ct_net *net,
                                ct_shard *s)
{
    shard_of of = { net, s };
    ct_exchange_ranges r;
    ct_status status;

    CT_TRY(ct_exchange_ranges_open(param, net, &r));
    status = ct_grad_pipe_parts(comm, &r.config, r.range, r.n, add_piece, &of);
    ct_exchange_ranges_close(&r);
    return status;
}

/* Buckets are those of ranks that keep all gradients, so that sums have the same bits. */
static ct_status cut_window(void *ctx, const ct_net *net, bool *begins)
{
    const ct_exchange_window *w = ctx;

    return ct_exchange_cut(w->comm, w->param, net, begins);
}

/* What must wait is kept in 16 bits, elsewhere than where backward writes it. */
static bool keeps_narrow(const Ct__SolverParameter *param)
{
    return param->memory->gradients == CT__MEMORY_PARAMETER__GRADIENTS__BF16;
}

/* On one rank a gradient is done with when its weight is updated, if a step is one batch. */
static ct_status cut_alone(void *ctx, const ct_net *net, bool *begins)
{
    ct_exchange_window *w = ctx;
    bool one = (w->param->batch_tokens == 0) || (w->param->batch_tokens == ct_net_tokens(net)) ||
               keeps_narrow(w->param);

    w->window.gradients = w->window.gradients && one;
    if ((w->window.gradients || w->window.weights) && ct_exchange_is_coded(w->param, net))
        return cut_window(ctx, net, begins); /* what rounds them has buckets here, too */
    for (int i = 0; i < net->n_param; ++i)
        if (net->param[i].learns) begins[i] = w->window.gradients || w->window.weights;
    return CT_OK;
}

/* The same on a device, whose steps are recorded between two waits: chunks of several parameters,
 * as large as what crosses at once. */
static ct_status cut_on_device(void *ctx, const ct_net *net, bool *begins)
{
    const ct_exchange_window *w = ctx;
    double mb = w->param->memory->chunk_mb, most = ldexp((mb > 0) ? mb : 4.0, 20), bytes = 0;
    bool *begin = calloc((size_t)net->n_param + 1, sizeof(*begin));
    ct_status status;

    if (begin == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for chunks of weights");
    status = cut_alone(ctx, net, begin);
    for (int i = 0; (status == CT_OK) && (i < net->n_param) && net->param[i].learns; ++i) {
        double own = (double)net->param[i].count * sizeof(float);

        begins[i] = begin[i] && ((i == 0) || (bytes + own > most));
        bytes = begins[i] ? own : bytes + own;
    }
    free(begin);
    return status;
}

static bool is_away(Ct__MemoryParameter__Tier tier)
{
    return (tier == CT__MEMORY_PARAMETER__TIER__HOST) || (tier == CT__MEMORY_PARAMETER__TIER__FILE);
}

/* Gradients come down, or states up, while the next are written. */
static const ct_net_window *open_on_device(ct_exchange_window *w, bool at_once)
{
    const Ct__MemoryParameter *p = w->param->memory;
    bool weights = is_away(p->weights), away = weights || is_away(p->state);

    if ((w->comm->size > 1) || !away || (!at_once && !weights)) return NULL;
    w->window = (ct_net_window){ .cut = cut_on_device,
                                 .ctx = w,
                                 .gradients = at_once,
                                 .weights = weights,
                                 .lag = WINDOW_LAG,
                                 .prefetch = (p->prefetch > 0) ? p->prefetch : WINDOW_PREFETCH };
    return &w->window;
}

const ct_net_window *ct_exchange_window_open(ct_exchange_window *w, ct_comm *comm,
                                             const ct_device *dev, const Ct__SolverParameter *param)
{
    bool alone = (comm->size == 1);
    bool at_once = !ct_update_waits_for_all(param) && (param->iter_size == 1);
    bool gradients, weights;

    if (param->memory == NULL) return NULL;
    *w = (ct_exchange_window){ .comm = comm, .param = param };
    if (dev->kind != CT_DEVICE_CPU) return open_on_device(w, at_once);
    gradients = alone ? (at_once || keeps_narrow(param)) : (param->memory->zero >= 2);
    weights = (!alone && (param->memory->zero == 3)) ||
              (param->memory->weights == CT__MEMORY_PARAMETER__TIER__FILE);
    if (!gradients && !weights) return NULL;
    w->window = (ct_net_window){ .cut = alone ? cut_alone : cut_window,
                                 .ctx = w,
                                 .gradients = gradients,
                                 .weights = weights,
                                 .lag = alone ? 0 : WINDOW_LAG,
                                 .prefetch = (param->memory->prefetch > 0) ? param->memory->prefetch
                                                                           : WINDOW_PREFETCH };
    return &w->window;
}

/* ---- who sums */

static bool codes(const Ct__CompressionParameter *c)
{
    return (c != NULL) &&
           ((c->type != CT__COMPRESSION_PARAMETER__TYPE__NONE) || (c->local_clip > 0));
}

static bool any_of_its_own(const ct_net *net)
{
    bool any = false;

    for (int i = 0; i < net->n_param; i++) any = any || codes(net->param[i].compress);
    return any;
}

bool ct_exchange_sends_rows(const Ct__SolverParameter *param)
{
    return ((param->comm == NULL) || param->comm->send_rows) && !codes(param->compression);
}

bool ct_exchange_is_coded(const Ct__SolverParameter *p, const ct_net *net)
{
    return codes(p->compression) || any_of_its_own(net);
}

bool ct_exchange_may_be_dense(const Ct__SolverParameter *p, const ct_net *net)
{
    const Ct__CompressionParameter *c = p->compression;

    return (c != NULL) && (c->type == CT__COMPRESSION_PARAMETER__TYPE__AUTO) &&
           !(c->local_clip > 0) && !any_of_its_own(net) &&
           (net->options.dev->kind != CT_DEVICE_CPU);
}

/* What keeps them from adding up this job's gradients; NULL: nothing. NCCL is what is asked for
 * where nobody asked. */
static const char *against(const Ct__SolverParameter *p, const ct_net *net,
                           const ct_device_sum_ops *ops, bool shares_gpu, bool asked)
{
    bool is_mpi = (ops == &ct_device_sum_mpi);

    if (ops == NULL) return "this cortado was built without it, or computes on the CPU";
    if (net->options.dev->kind == CT_DEVICE_CPU) return "gradients are in the host's memory";
    if (!ops->there())
        return is_mpi ? "this MPI does not say that it takes a GPU's memory"
                      : "its library, libnccl.so.2, is not there";
    if (!is_mpi && shares_gpu) return "ranks share a GPU";
    if (ct_exchange_is_coded(p, net) && !ct_exchange_may_be_dense(p, net))
        return "gradients are compressed";
    if (p->reproducible_sum) return "reproducible_sum";
    return (p->deterministic && !asked) ? "deterministic" : NULL;
}

ct_status ct_exchange_pick_sum(const Ct__SolverParameter *param, const ct_net *net, ct_comm *c,
                               bool shares_gpu, const ct_device_sum_ops **ops_p)
{
    const Ct__CommParameter none = CT__COMM_PARAMETER__INIT;
    const Ct__CommParameter *comm = (param->comm != NULL) ? param->comm : &none;
    bool mpi = (comm->gpu_sum == CT__COMM_PARAMETER__GPU__SUM__MPI);
    const ct_device_sum_ops *ops = mpi ? &ct_device_sum_mpi : ct_device_sum_of(net->options.dev);
    bool asked = mpi || (comm->gpu_sum == CT__COMM_PARAMETER__GPU__SUM__NCCL);
    const char *why = against(param, net, ops, shares_gpu, asked);
    int64_t refusing = (why != NULL);

    *ops_p = NULL;
    if ((comm->gpu_sum == CT__COMM_PARAMETER__GPU__SUM__HOST) ||
        ((net->options.dev->kind == CT_DEVICE_CPU) && !asked))
        return CT_OK;
    CT_TRY(ct_comm_max(c, &refusing, 1));
    if (refusing == 0) *ops_p = ops;
    if ((refusing != 0) && asked)
        return (why != NULL) ? CT_FAIL(CT_ERR_CONFIG, "comm { gpu_sum: %s } on rank %d: %s",
                                       mpi ? "MPI" : "NCCL", c->rank, why)
                             : CT_ERR_CONFIG; /* the rank that cannot says why */
    if ((refusing != 0) && (why != NULL))
        CT_INFO("gradients are added up through the host: %s", why);
    return CT_OK;
}

ct_status ct_exchange_check_shares(const ct_solver_text *t)
{
    const Ct__MemoryParameter *m = t->p->memory;

    if ((m == NULL) || (m->zero == 0) || (m->zero == 3) ||
        (m->weights != CT__MEMORY_PARAMETER__TIER__FILE))
        return CT_OK;
    return CT_FAIL(
        CT_ERR_CONFIG,
        "%s: memory { weights: FILE zero: %d }: among ranks weights in files are shared out, "
        "too: take zero: 3, or 0, with which each rank has all of them",
        CT_SOLVER_AT(t, memory->zero), m->zero);
}

ct_status ct_exchange_check_divided(const ct_solver_text *t)
{
    if (t->p->outer != NULL)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: outer and --parallel do not go together: groups of local steps have "
                       "whole nets",
                       CT_SOLVER_AT(t, outer));
    if (ct_optex_is(t->p))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: type \"%s\" and --parallel do not go together: its points are weights "
                       "of whole nets",
                       CT_SOLVER_AT(t, type), CT_OPTEX_TYPE);
    return CT_OK;
}

ct_status ct_exchange_read_shares(const Ct__SolverParameter *param, const ct_net *net, bool staged,
                                  ct_grad_pipe_config *config)
{
    const ct_solver_text text = { param, net->options.map };

    if ((param->memory == NULL) || (param->memory->zero == 0)) return CT_OK;
    if (staged)
        return CT_FAIL(CT_ERR_CONFIG, "memory { zero: %d } is not for device %s yet: take zero: 0",
                       param->memory->zero, net->options.dev->name);
    if (ct_net_has_visits(net)) CT_TRY(ct_exchange_check_shares(&text));
    config->weights = net->weight_arena;
    config->slots = (param->memory->zero >= 2);
    config->visits = (net->n_param > 0) && ct_net_param_visits(net, &net->param[0]);
    return CT_OK;
}
