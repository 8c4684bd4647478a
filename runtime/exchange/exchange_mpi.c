#include "runtime/exchange/exchange_mpi.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "runtime/config/exchange_config.h"
#include "runtime/exchange/group_mpi.h"

struct ct_exchange_mpi {
    ct_group_mpi group;
    ct_grad_pipe *pipe;
    int n_learned;               /* parameters: they come first, and are the pipe's ranges */
    ct_codec_config *own;        /* [n_learned] of parameters with a codec of their own */
    ct_transport_staged *staged; /* of gradients on a device; NULL: they are the host's */
    ct_transport_device
        *device; /* of steps in which nothing is compressed; NULL: the pipe's, too */
    ct_transport by_pipe, by_device;
    const char *library;       /* of `device`; NULL: one rank        */
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

static ct_status host_finish(void *ctx, ct_landed_fn landed, void *landed_ctx)
{
    return ct_grad_pipe_finish(((ct_exchange_mpi *)ctx)->pipe, landed, landed_ctx);
}

static const ct_transport_ops host_ops = { .ready = host_ready,
                                           .ready_to = host_ready_to,
                                           .poll = host_poll,
                                           .wait = host_wait,
                                           .finish = host_finish };

/* ---- a step */

/* What travels coded the pipe takes from the device by itself; AUTO may have changed what does. */
static void tell_staged(const ct_exchange_mpi *x)
{
    for (int i = 0; (x->staged != NULL) && (i < x->n_learned); ++i)
        ct_transport_staged_leave(x->staged, i, ct_grad_pipe_on_device(x->pipe, i));
}

static void say_where(const ct_exchange_mpi *x, int64_t iteration)
{
    if (x->library == NULL) return;
    if (x->is_on_device)
        CT_INFO("from iteration %" PRId64
                " on nothing is compressed: gradients are added up on the GPUs, by %s",
                iteration, x->library);
    else
        CT_INFO("from iteration %" PRId64 " on gradients are compressed, and meet on the host",
                iteration);
}

static ct_status mpi_begin(ct_grad_sync *s, int64_t iteration, float scale, float rate)
{
    ct_exchange_mpi *x = s->ctx;
    bool was_on_device = x->is_on_device;

    if (x->all_on_device) return ct_transport_device_begin(x->device);
    CT_TRY(ct_grad_pipe_begin(x->pipe, iteration, scale, rate));
    tell_staged(x);
    if (x->device == NULL) return CT_OK;
    x->is_on_device = ct_grad_pipe_is_dense(x->pipe);
    if (!x->begun || (x->is_on_device != was_on_device)) say_where(x, iteration);
    x->begun = true;
    s->transport = x->is_on_device ? x->by_device : x->by_pipe;
    if (!x->is_on_device) return CT_OK;
    ct_grad_pipe_skip(x->pipe);
    return ct_transport_device_begin(x->device);
}

static void mpi_reads(void *ctx, int param)
{
    ct_exchange_mpi *x = ctx;

    if ((param < x->n_learned) && !x->is_on_device) ct_grad_pipe_reads(x->pipe, param);
}

static ct_grad_effect mpi_effect(void *ctx, int param)
{
    const ct_exchange_mpi *x = ctx;

    if ((param >= x->n_learned) || !ct_grad_pipe_absorbs(x->pipe, param)) return CT_GRAD_SUM;
    return ct_grad_pipe_tries(x->pipe, param) ? CT_GRAD_TRIAL : CT_GRAD_UPDATE;
}

static void mpi_share(void *ctx, float *momentum)
{
    ct_grad_pipe_share(((ct_exchange_mpi *)ctx)->pipe, momentum);
}

static void mpi_stats(void *ctx, bool codec, ct_sync_stats *out)
{
    const ct_exchange_mpi *x = ctx;

    ct_grad_pipe_get_stats(x->pipe, codec, out);
    if (x->device != NULL) out->bytes_sent += ct_transport_device_bytes(x->device);
}

static const ct_grad_sync_ops sync_ops = {
    mpi_begin, mpi_reads, mpi_effect, mpi_share, mpi_stats,
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
                           bool dense_elsewhere, ct_grad_range *range)
{
    ct_grad_pipe_config config = { .allreduce = NULL };
    ct_transport host = { .ctx = x, .ops = &host_ops };
    float *arena = net->grad_arena;

    if ((net->options.dev != NULL) && (net->options.dev->kind != CT_DEVICE_CPU)) {
        CT_TRY(ct_transport_staged_create(net, &x->staged));
        arena = ct_transport_staged_arena(x->staged);
    }
    CT_TRY(ct_exchange_read_config(param, &config));
    config.dense_elsewhere = dense_elsewhere;
    x->group.reproducible = config.reproducible;
    CT_TRY(ct_exchange_read_ranges(param, net, &config, range, x->own, &x->n_learned));
    CT_TRY(ct_grad_pipe_create(x->group.comm, &config, arena, range, x->n_learned, &x->pipe));
    x->by_pipe = host;
    if (x->staged != NULL) {
        ct_transport_staged_open(x->staged, &host, &x->by_pipe);
        ct_grad_pipe_hear_parts(x->pipe, ct_transport_staged_part, x->staged);
    }
    return CT_OK;
}

void ct_exchange_mpi_destroy(ct_exchange_mpi *x)
{
    if (x == NULL) return;
    ct_transport_device_destroy(x->device);
    ct_grad_pipe_destroy(x->pipe);
    ct_transport_staged_destroy(x->staged);
    free(x->own);
    free(x);
}

ct_status ct_exchange_mpi_create(ct_comm *comm, const Ct__SolverParameter *param, ct_net *net,
                                 bool dense_elsewhere, ct_exchange_mpi **x_p, ct_exchange *out)
{
    ct_exchange_mpi *x = calloc(1, sizeof(*x));
    ct_grad_range *range = calloc((size_t)net->n_param + 1, sizeof(*range));
    ct_status status = CT_OK;

    if (x != NULL) x->own = calloc((size_t)net->n_param + 1, sizeof(*x->own));
    if ((x == NULL) || (x->own == NULL) || (range == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for an exchange");
    } else {
        x->group.comm = comm;
        status = open_pipe(x, param, net, dense_elsewhere, range);
    }
    free(range);
    if (status != CT_OK) {
        ct_exchange_mpi_destroy(x);
        return status;
    }
    *out = (ct_exchange){ .sync = { x, &sync_ops, x->by_pipe, ct_grad_pipe_n_trial(x->pipe) },
                          .states = { x, mpi_get, mpi_restored } };
    ct_group_mpi_open(&x->group, &out->group);
    *x_p = x;
    return CT_OK;
}

ct_status ct_exchange_mpi_on_device(ct_exchange_mpi *x, const ct_net *net,
                                    const ct_device_sum_ops *lib, int64_t bucket_bytes, bool all,
                                    ct_exchange *out)
{
    CT_TRY(ct_transport_device_create(net, lib, &out->group, bucket_bytes, &x->device));
    ct_transport_device_open(x->device, &x->by_device);
    x->library = (lib != NULL) ? lib->name : NULL;
    x->all_on_device = x->is_on_device = all;
    x->group.device = x->device;
    ct_group_mpi_open(&x->group, &out->group);
    if (!all) return CT_OK;
    out->sync.transport = x->by_device;
    out->sync.n_trial = 0;
    return CT_OK;
}

ct_status ct_exchange_mpi_trace(ct_exchange_mpi *x, ct_trace *t)
{
    return ct_grad_pipe_trace(x->pipe, t);
}

void ct_exchange_mpi_coding(const ct_exchange_mpi *x, ct_text *out)
{
    ct_grad_pipe_coding_json(x->pipe, out);
}

void ct_exchange_mpi_describe(const ct_exchange_mpi *x, char *text, size_t size)
{
    if ((x->library == NULL) || !x->is_on_device) {
        ct_grad_pipe_describe(x->pipe, text, size);
        return;
    }
    snprintf(text, size,
             "gradients are added up on the GPUs, by %s: one of %d ranks that is gone keeps all "
             "waiting",
             x->library, x->group.comm->size);
}
