#include "runtime/exchange/exchange_mpi.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "runtime/config/exchange_config.h"
#include "runtime/exchange/transports.h"

struct ct_exchange_mpi {
    ct_group_mpi group;
    ct_grad_pipe *pipe;
    int n_learned;               /* parameters: they come first, and are the pipe's ranges */
    ct_codec_config *own;        /* [n_learned] of parameters with a codec of their own */
    ct_transport_staged *staged; /* of gradients on a device; NULL: they are the host's */
    ct_transport_device *device; /* the same where nothing is compressed; or NULL */
    ct_transport by_pipe, by_device;
    bool may_leave;            /* the pipe leaves a step in which nothing is compressed */
    bool all_on_device;        /* the pipe has no step               */
    bool begun;                /* at least one step                  */
    _Atomic bool is_on_device; /* the step under way           */
};

/* ---- the host's messages */

static ct_status host_ready(void *ctx, int param)
{
    return ct_grad_pipe_ready(((ct_exchange_mpi *)ctx)->pipe, param);
}

static ct_status host_ready_to(void *ctx, int param, int64_t count)
{
    return ct_grad_pipe_ready_to(((ct_exchange_mpi *)ctx)->pipe, param, count);
}

static ct_status host_poll(void *ctx)
{
    return ct_grad_pipe_poll(((ct_exchange_mpi *)ctx)->pipe);
}

static ct_status host_wait(void *ctx, int first, int n, ct_landed_fn landed, void *landed_ctx)
{
    return ct_grad_pipe_wait(((ct_exchange_mpi *)ctx)->pipe, first, n, landed, landed_ctx);
}

static ct_status host_wait_gradient(void *ctx, int param, ct_landed_fn landed, void *landed_ctx)
{
    return ct_grad_pipe_wait_gradient(((ct_exchange_mpi *)ctx)->pipe, param, landed, landed_ctx);
}

static ct_status host_finish(void *ctx, ct_landed_fn landed, void *landed_ctx)
{
    return ct_grad_pipe_finish(((ct_exchange_mpi *)ctx)->pipe, landed, landed_ctx);
}

static ct_status host_rows(void *ctx, int param, int64_t m, const int32_t *index, const float *v)
{
    return ct_grad_pipe_rows(((ct_exchange_mpi *)ctx)->pipe, param, m, index, v);
}

static void host_hear_parts(void *ctx, ct_part_fn part, void *part_ctx)
{
    ct_grad_pipe_hear_parts(((ct_exchange_mpi *)ctx)->pipe, part, part_ctx);
}

static ct_status host_updated(void *ctx)
{
    return ct_grad_pipe_updated(((ct_exchange_mpi *)ctx)->pipe);
}

static ct_status host_gather(void *ctx, int param, bool wait)
{
    const ct_exchange_mpi *x = ctx;

    return wait ? ct_grad_pipe_gather_wait(x->pipe, param) : ct_grad_pipe_gather(x->pipe, param);
}

static const ct_transport_ops host_ops = {
    .ready = host_ready,
    .ready_to = host_ready_to,
    .poll = host_poll,
    .wait = host_wait,
    .wait_gradient = host_wait_gradient,
    .finish = host_finish,
    .hear_parts = host_hear_parts,
    .rows = host_rows,
    .updated = host_updated,
    .gather = host_gather,
};

/* ---- a step */

static void say_where(const ct_exchange_mpi *x, int64_t iteration)
{
    const char *there = "nothing is compressed: gradients are added up on the GPUs, by ";

    if (x->group.lib == NULL) return;
    CT_INFO("from iteration %" PRId64 " on %s%s", iteration,
            x->is_on_device ? there : "gradients are compressed, and meet on the host",
            x->is_on_device ? x->group.lib->name : "");
}

static ct_status mpi_begin(ct_grad_sync *s, int64_t iteration, float scale, float rate)
{
    ct_exchange_mpi *x = s->ctx;
    bool was_on_device = x->is_on_device;

    if (x->all_on_device) return ct_transport_device_begin(x->device);
    ct_grad_pipe_share(x->pipe, s->momentum);
    ct_grad_pipe_expect_more(x->pipe, s->more);
    CT_TRY(ct_grad_pipe_begin(x->pipe, iteration, scale, rate));
    /* what travels coded the pipe takes from the device by itself; AUTO may change what does */
    for (int i = 0; (x->staged != NULL) && (i < x->n_learned); ++i)
        ct_transport_staged_leave(x->staged, i, ct_grad_pipe_on_device(x->pipe, i));
    if (!x->may_leave) return CT_OK;
    x->is_on_device = ct_grad_pipe_is_dense(x->pipe);
    if (!x->begun || (x->is_on_device != was_on_device)) say_where(x, iteration);
    x->begun = true;
    s->transport = x->is_on_device ? x->by_device : x->by_pipe;
    if (!x->is_on_device) return CT_OK;
    ct_grad_pipe_skip(x->pipe);
    return (x->device != NULL) ? ct_transport_device_begin(x->device) : CT_OK;
}

static void mpi_reads(void *ctx, int param)
{
    ct_exchange_mpi *x = ctx;

    if ((param < x->n_learned) && !x->is_on_device) ct_grad_pipe_reads(x->pipe, param);
}

static ct_grad_effect mpi_effect(void *ctx, int param)
{
    const ct_exchange_mpi *x = ctx;

    if (!ct_grad_pipe_absorbs(x->pipe, param)) return CT_GRAD_SUM;
    return ct_grad_pipe_tries(x->pipe, param) ? CT_GRAD_TRIAL : CT_GRAD_UPDATE;
}

static int64_t mpi_variance_steps(void *ctx, int param)
{
    return ct_grad_pipe_variance_steps(((const ct_exchange_mpi *)ctx)->pipe, param);
}

static void mpi_stats(void *ctx, bool codec, ct_sync_stats *out)
{
    const ct_exchange_mpi *x = ctx;

    ct_grad_pipe_get_stats(x->pipe, codec, out);
    if (x->device != NULL) out->bytes_sent += ct_transport_device_bytes(x->device);
}

static bool mpi_own(void *ctx, int param, int k, int64_t *from_p, int64_t *count_p)
{
    const ct_exchange_mpi *x = ctx;

    return (param < x->n_learned) && ct_grad_pipe_own(x->pipe, param, k, from_p, count_p);
}

static const ct_grad_sync_ops sync_ops = {
    .begin = mpi_begin,
    .reads = mpi_reads,
    .effect = mpi_effect,
    .variance_steps = mpi_variance_steps,
    .own = mpi_own,
    .stats = mpi_stats,
};

/* ---- what codecs keep */

static bool mpi_get(void *ctx, int param, int k, ct_sync_state *out)
{
    const ct_exchange_mpi *x = ctx;
    ct_codec_state s;

    if ((param >= x->n_learned) || !ct_grad_pipe_state(x->pipe, param, k, &s)) return false;
    *out = (ct_sync_state){ .name = s.name,
                            .param = param,
                            .data = s.data,
                            .count = s.count,
                            .replicated = s.replicated,
                            .is_momentum = (strcmp(s.name, CT_CODEC_MOMENTUM) == 0),
                            .of_update = ct_grad_pipe_absorbs(x->pipe, param) };
    return true;
}

static ct_status mpi_restored(void *ctx)
{
    return ct_grad_pipe_restored(((ct_exchange_mpi *)ctx)->pipe);
}

/* ---- making it */

/* The transport is that of the pipe: on its arena, or on the host's copies. */
static ct_status open_pipe(ct_exchange_mpi *x, const Ct__SolverParameter *param, ct_net *net,
                           bool dense_elsewhere)
{
    ct_grad_pipe_config config = { .allreduce = NULL };
    ct_grad_range *range = NULL;
    float *arena = net->grad_arena;
    ct_status status;

    x->by_pipe = (ct_transport){ .ctx = x, .ops = &host_ops };
    if ((net->options.dev != NULL) && (net->options.dev->kind != CT_DEVICE_CPU))
        CT_TRY(ct_transport_staged_create(net, &x->by_pipe, &x->staged, &arena, &x->by_pipe));
    CT_TRY(ct_exchange_read_config(param, &config));
    config.dense_elsewhere = dense_elsewhere;
    CT_TRY(ct_exchange_read_shares(param, net, x->staged != NULL, &config));
    x->group.reproducible = config.reproducible;
    CT_TRY(ct_exchange_read_ranges(param, net, &config, &range, &x->own, &x->n_learned));
    status = ct_grad_pipe_create(x->group.comm, &config, arena, range, x->n_learned, &x->pipe);
    free(range);
    CT_TRY(status);
    x->by_pipe.step_s = ct_grad_pipe_step_s(x->pipe);
    if (x->staged != NULL) ct_grad_pipe_hear_parts(x->pipe, ct_transport_staged_part, x->staged);
    return CT_OK;
}

void ct_exchange_mpi_destroy(ct_exchange_mpi *x)
{
    if (x == NULL) return;
    ct_transport_device_destroy(x->device);
    ct_group_mpi_close(&x->group);
    ct_grad_pipe_destroy(x->pipe);
    ct_transport_staged_destroy(x->staged);
    free(x->own);
    free(x);
}

ct_status ct_exchange_mpi_create(ct_comm *comm, const Ct__SolverParameter *param, ct_net *net,
                                 ct_trace *trace, bool dense_elsewhere, ct_exchange_mpi **x_p,
                                 ct_exchange *out)
{
    ct_exchange_mpi *x = calloc(1, sizeof(*x));
    ct_status status;

    if (x == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for an exchange");
    x->group.comm = comm;
    status = open_pipe(x, param, net, dense_elsewhere);
    if ((status == CT_OK) && (trace != NULL)) status = ct_grad_pipe_trace(x->pipe, trace);
    if (status != CT_OK) {
        ct_exchange_mpi_destroy(x);
        return status;
    }
    *out = (ct_exchange){ .sync = { .ctx = x,
                                    .ops = &sync_ops,
                                    .transport = x->by_pipe,
                                    .shards = ct_grad_pipe_has_shards(x->pipe),
                                    .n_trial = ct_grad_pipe_n_trial(x->pipe) },
                          .states = { x, mpi_get, mpi_restored } };
    ct_group_mpi_open(&x->group, &out->data);
    out->job = out->stage = out->data;
    *x_p = x;
    return CT_OK;
}

ct_status ct_exchange_mpi_on_device(ct_exchange_mpi *x, const ct_net *net,
                                    const ct_device_sum_ops *lib, int64_t bucket_bytes, bool all,
                                    ct_exchange *out)
{
    ct_exchange single;

    ct_exchange_single(net->n_param, &single);
    x->by_device = single.sync.transport;
    x->may_leave = !all;
    x->is_on_device = x->all_on_device = all;
    if (lib != NULL) {
        CT_TRY(ct_group_mpi_take(&x->group, net->options.dev, lib, &out->data));
        out->stage = out->data;
        CT_TRY(ct_transport_device_create(net, lib, x->group.library, bucket_bytes, &x->device,
                                          &x->by_device));
    }
    if (!all) return CT_OK;
    out->sync.transport = x->by_device;
    out->sync.n_trial = 0;
    return CT_OK;
}

void ct_exchange_mpi_describe(void *ctx, char *text, size_t size)
{
    const ct_exchange_mpi *x = ctx;

    if ((x->group.lib == NULL) || !x->is_on_device)
        ct_grad_pipe_describe(x->pipe, text, size);
    else
        snprintf(text, size,
                 "gradients are added up on the GPUs, by %s: one of %d ranks that is gone keeps "
                 "all waiting",
                 x->group.lib->name, x->group.comm->size);
}

/* ---- what a job asks for */

ct_status ct_exchange_open_net(void *ctx, ct_net *net, ct_exchange *out)
{
    ct_exchange_open *open = ctx;
    const Ct__SolverParameter *param = open->param;
    const ct_device_sum_ops *lib = NULL;
    ct_grad_pipe_config unused;
    ct_trace *trace = (open->trace != NULL) ? open->trace->trace : NULL;
    ct_comm *comm = (open->comm != NULL) ? open->comm : open->job->data_comm;
    bool alone = (comm == NULL) || (comm->size == 1), may = ct_exchange_may_be_dense(param, net);
    double mb = (param->comm != NULL) ? (double)param->comm->bucket_mb : 0.0;

    if (alone && !ct_exchange_is_coded(param, net)) {
        /* a job of one rank is as strict as one of more */
        CT_TRY(ct_exchange_read_config(param, &unused));
        ct_exchange_single(net->n_param, out);
        out->job = open->job->group.job;
        if (open->comm != NULL) out->data = out->stage = open->job->group.data;
        return ct_trace_file_reserve(open->trace, net, net, param, 0);
    }
    if (!(alone && may))
        CT_TRY(ct_exchange_pick_sum(param, net, comm, open->job->shares_gpu, &lib));
    bool there = (alone && may) || (lib != NULL);
    CT_TRY(ct_exchange_mpi_create(comm, param, net, trace, may && there, &open->mpi, out));
    out->job = open->job->group.job;
    if (open->comm != NULL) out->data = out->stage = open->job->group.data;
    CT_TRY(ct_trace_file_reserve(open->trace, net, net, param, out->sync.n_trial));
    if (there)
        CT_TRY(ct_exchange_mpi_on_device(open->mpi, net, lib, (int64_t)(mb * 1e6), !may, out));
    if (there && !may) CT_INFO("gradients are added up on the GPUs, by %s", lib->name);
    open->pipe = open->mpi->pipe;
    ct_watchdog_watch(open->job->watchdog, ct_exchange_mpi_describe, open->mpi);
    return CT_OK;
}

void ct_exchange_open_close(ct_exchange_open *open)
{
    ct_watchdog_watch(open->job->watchdog, NULL, NULL);
    ct_exchange_mpi_destroy(open->mpi);
    open->mpi = NULL;
    open->pipe = NULL;
}

void ct_exchange_mpi_abandon(ct_exchange_mpi *x)
{
    if (x != NULL) ct_grad_pipe_abandon(x->pipe);
}
