#include "runtime/exchange/exchange_mpi.h"

#include <stdlib.h>
#include <string.h>

#include "comm/collective/blocking.h"
#include "comm/collective/repro.h"
#include "runtime/config/exchange_config.h"
#include "runtime/exchange/exchange_staged.h"

typedef struct exchange_mpi {
    ct_comm *comm;
    ct_grad_pipe *pipe;
    bool reproducible;
    int n_param, n_learned; /* the learned ones come first, and are the pipe's ranges */
    int n_state;
    struct {
        int param, k;           /* the k-th state of it */
    } * state;                  /* [n_state], with room for all that there may come to be */
    int generation;             /* of the pipe that they are states of */
    ct_codec_config *own;       /* [n_learned] of parameters with a codec of their own */
    ct_exchange_staged *staged; /* of gradients on a device; NULL: they are the host's */
} exchange_mpi;

enum { MOST_STATES = 8 /* of a parameter */ };

static void count_states(exchange_mpi *x)
{
    ct_codec_state s;

    x->n_state = 0;
    x->generation = ct_grad_pipe_generation(x->pipe);
    for (int i = 0; i < x->n_learned; ++i) {
        for (int k = 0; (k < MOST_STATES) && ct_grad_pipe_state(x->pipe, i, k, &s); ++k) {
            x->state[x->n_state].param = i;
            x->state[x->n_state++].k = k;
        }
    }
}

/* What travels coded the pipe takes from the device by itself; AUTO may have changed what does. */
static void tell_staged(const exchange_mpi *x)
{
    for (int i = 0; (x->staged != NULL) && (i < x->n_learned); ++i)
        ct_exchange_staged_leave(x->staged, i, ct_grad_pipe_on_device(x->pipe, i));
}

static ct_status mpi_begin(void *ctx, int64_t iteration, float scale, float rate)
{
    exchange_mpi *x = ctx;

    CT_TRY(ct_grad_pipe_begin(x->pipe, iteration, scale, rate));
    tell_staged(x);
    return CT_OK;
}

static bool mpi_absorbed(void *ctx, int param)
{
    const exchange_mpi *x = ctx;

    return (param < x->n_learned) && ct_grad_pipe_absorbs(x->pipe, param);
}

static bool mpi_tries(void *ctx, int param)
{
    const exchange_mpi *x = ctx;

    return (param < x->n_learned) && ct_grad_pipe_tries(x->pipe, param);
}

static ct_status mpi_ready(void *ctx, int param)
{
    exchange_mpi *x = ctx;

    if ((param < 0) || (param >= x->n_param))
        return CT_FAIL(CT_ERR_ARG, "gradient of parameter %d of %d", param, x->n_param);
    return (param < x->n_learned) ? ct_grad_pipe_ready(x->pipe, param) : CT_OK;
}

static ct_status mpi_ready_to(void *ctx, int param, int64_t count)
{
    exchange_mpi *x = ctx;

    if ((param < 0) || (param >= x->n_param))
        return CT_FAIL(CT_ERR_ARG, "gradient of parameter %d of %d", param, x->n_param);
    return (param < x->n_learned) ? ct_grad_pipe_ready_to(x->pipe, param, count) : CT_OK;
}

static void mpi_hear_parts(void *ctx, ct_part_landed_fn part, void *part_ctx)
{
    ct_grad_pipe_hear_parts(((exchange_mpi *)ctx)->pipe, part, part_ctx);
}

static ct_status mpi_poll(void *ctx)
{
    return ct_grad_pipe_poll(((exchange_mpi *)ctx)->pipe);
}

static ct_status mpi_finish(void *ctx, ct_landed_fn landed, void *landed_ctx)
{
    return ct_grad_pipe_finish(((exchange_mpi *)ctx)->pipe, landed, landed_ctx);
}

static ct_status mpi_wait(void *ctx, int first, int n, ct_landed_fn landed, void *landed_ctx)
{
    exchange_mpi *x = ctx;
    int end = (first + n < x->n_learned) ? first + n : x->n_learned;

    if ((first < 0) || (n < 0) || (first + n > x->n_param))
        return CT_FAIL(CT_ERR_ARG, "wait for parameters %d to %d of %d", first, first + n - 1,
                       x->n_param);
    return (first < end) ? ct_grad_pipe_wait(x->pipe, first, end - first, landed, landed_ctx)
                         : CT_OK;
}

static ct_status mpi_sum(void *ctx, double *v, int n)
{
    return ct_comm_sum(((exchange_mpi *)ctx)->comm, v, n);
}

static ct_status mpi_max(void *ctx, int64_t *v, int n)
{
    return ct_comm_max(((exchange_mpi *)ctx)->comm, v, n);
}

static ct_status mpi_average(void *ctx, float *v, int64_t n, double share)
{
    exchange_mpi *x = ctx;
    const ct_coll_ops *ops = NULL;

    if (x->comm->size == 1) return CT_OK;
    for (int64_t i = 0; i < n; ++i) v[i] = (float)(share * v[i]);
    if (x->reproducible) return ct_repro_run(x->comm, "ring", v, n);
    /* by name: sums in one order, the same bits on every rank, for which MPI gives no promise */
    CT_TRY(ct_coll_choose(x->comm, n, CT_F32, "ring", &ops));
    return ct_coll_run(ops, x->comm, v, n, CT_F32);
}

static ct_status mpi_broadcast(void *ctx, void *data, size_t bytes)
{
    return ct_comm_broadcast(((exchange_mpi *)ctx)->comm, data, bytes);
}

static ct_status mpi_barrier(void *ctx)
{
    return ct_comm_barrier(((exchange_mpi *)ctx)->comm);
}

static void mpi_counters(void *ctx, ct_exchange_counters *out)
{
    ct_grad_pipe_counters c;

    ct_grad_pipe_get_counters(((exchange_mpi *)ctx)->pipe, &c);
    *out = (ct_exchange_counters){ .exposed_s = c.exposed_s,
                                   .bytes_sent = c.bytes_sent,
                                   .moving_s = c.moving_s,
                                   .encode_s = c.encode_s };
}

static void mpi_coding(void *ctx, ct_exchange_coding *out)
{
    ct_grad_pipe_coding c;

    ct_grad_pipe_get_coding(((exchange_mpi *)ctx)->pipe, &c);
    *out = (ct_exchange_coding){ .n_coded = c.n_coded,
                                 .elements = c.elements,
                                 .bytes_dense = c.bytes_dense,
                                 .bytes_coded = c.bytes_coded,
                                 .selected = c.selected,
                                 .filled = c.filled,
                                 .select_s = c.select_s,
                                 .pack_s = c.pack_s,
                                 .exchange_s = c.exchange_s,
                                 .unpack_s = c.unpack_s,
                                 .saved_s = c.saved_s,
                                 .residual_norm = c.residual_norm };
}

static void mpi_share(void *ctx, float *momentum)
{
    ct_grad_pipe_share(((exchange_mpi *)ctx)->pipe, momentum);
}

static void mpi_reads(void *ctx, int param)
{
    exchange_mpi *x = ctx;

    if (param < x->n_learned) ct_grad_pipe_reads(x->pipe, param);
}

/* The list is made anew where the pipe has changed. */
static int mpi_n_state(void *ctx)
{
    exchange_mpi *x = ctx;

    if (x->generation != ct_grad_pipe_generation(x->pipe)) count_states(x);
    return x->n_state;
}

static ct_status mpi_state(void *ctx, int i, ct_exchange_state *out)
{
    exchange_mpi *x = ctx;
    ct_codec_state s;

    if ((i < 0) || (i >= x->n_state) ||
        !ct_grad_pipe_state(x->pipe, x->state[i].param, x->state[i].k, &s))
        return CT_FAIL(CT_ERR_ARG, "exchange state %d of %d", i, x->n_state);
    *out = (ct_exchange_state){ .name = s.name,
                                .param = x->state[i].param,
                                .data = s.data,
                                .count = s.count,
                                .replicated = s.replicated,
                                .is_momentum = (strcmp(s.name, CT_CODEC_MOMENTUM) == 0) };
    return CT_OK;
}

static ct_status mpi_restored(void *ctx)
{
    return ct_grad_pipe_restored(((exchange_mpi *)ctx)->pipe);
}

bool ct_exchange_mpi_skips(void *ctx)
{
    ct_grad_pipe *pipe = ((exchange_mpi *)ctx)->pipe;

    if (!ct_grad_pipe_is_dense(pipe)) return false;
    ct_grad_pipe_skip(pipe);
    return true;
}

ct_status ct_exchange_mpi_trace(void *ctx, struct ct_trace *t)
{
    return ct_grad_pipe_trace(((exchange_mpi *)ctx)->pipe, t);
}

void ct_exchange_mpi_coding(void *ctx, ct_text *out)
{
    ct_grad_pipe_coding_json(((exchange_mpi *)ctx)->pipe, out);
}

ct_exchange_staged *ct_exchange_mpi_staged(void *ctx)
{
    return ((exchange_mpi *)ctx)->staged;
}

void ct_exchange_mpi_describe(void *ctx, char *text, size_t size)
{
    ct_grad_pipe_describe(((exchange_mpi *)ctx)->pipe, text, size);
}

/* The pipe's ranges: the learned parameters, which the net puts first. The layer that backward
 * finishes first is the one that the loss reads. */
static ct_status list_ranges(exchange_mpi *x, const Ct__SolverParameter *s, const ct_net *net,
                             ct_grad_range *range)
{
    for (int i = 0; i < net->n_param; ++i) {
        const ct_param *p = &net->param[i];

        if (!p->learns) continue;
        if (i != x->n_learned)
            return CT_FAIL(CT_ERR_ARG, "parameter %s learns, but stands after one that does not",
                           p->key);
        range[i] = (ct_grad_range){ .key = p->key,
                                    .offset = p->offset,
                                    .count = p->count,
                                    .rows = ct_param_rows(p),
                                    .weight = ct_blob_data(&p->blob),
                                    .decay = s->weight_decay * p->decay_mult,
                                    .rate_mult = p->lr_mult,
                                    .output = (strcmp(p->layer, net->param[0].layer) == 0) };
        if (p->compress != NULL) {
            CT_TRY(ct_codec_read_own(s, p->compress, p->key, &range[i].codec, &x->own[i]));
            CT_TRY(ct_codec_check_solver(s, p->key, range[i].codec, &x->own[i]));
            range[i].codec_config = &x->own[i];
        }
        x->n_learned += 1;
    }
    return CT_OK;
}

static bool on_device(const ct_net *net)
{
    return (net->options.dev != NULL) && (net->options.dev->kind != CT_DEVICE_CPU);
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

static ct_status open_pipe(exchange_mpi *x, const Ct__SolverParameter *param, ct_net *net,
                           bool dense_elsewhere, ct_grad_range *range)
{
    ct_grad_pipe_config config = { .allreduce = NULL };
    float *arena = net->grad_arena;

    if (on_device(net)) {
        CT_TRY(ct_exchange_staged_create(net, &x->staged));
        arena = ct_exchange_staged_arena(x->staged);
    }
    CT_TRY(ct_exchange_read_config(param, &config));
    config.dense_elsewhere = dense_elsewhere;
    x->reproducible = config.reproducible;
    CT_TRY(list_ranges(x, param, net, range));
    if (on_device(net)) CT_TRY(put_on_device(net, &config, range, x->n_learned));
    CT_TRY(ct_grad_pipe_create(x->comm, &config, arena, range, x->n_learned, &x->pipe));
    x->state = calloc(MOST_STATES * (size_t)x->n_learned + 1, sizeof(*x->state));
    if (x->state == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for an exchange");
    count_states(x);
    return CT_OK;
}

static void destroy(exchange_mpi *x)
{
    ct_grad_pipe_destroy(x->pipe);
    ct_exchange_staged_destroy(x->staged);
    free(x->own);
    free(x->state);
    free(x);
}

ct_status ct_exchange_mpi_open(ct_comm *comm, const Ct__SolverParameter *param, ct_net *net,
                               bool dense_elsewhere, ct_exchange *out)
{
    exchange_mpi *x = calloc(1, sizeof(*x));
    ct_grad_range *range = calloc((size_t)net->n_param + 1, sizeof(*range));
    ct_status status = CT_OK;

    if ((x == NULL) || (range == NULL)) {
        free(x);
        free(range);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for an exchange");
    }
    x->comm = comm;
    x->n_param = net->n_param;
    x->own = calloc((size_t)net->n_param + 1, sizeof(*x->own));
    if (x->own == NULL) status = CT_FAIL(CT_ERR_NOMEM, "no memory for an exchange");
    if (status == CT_OK) status = open_pipe(x, param, net, dense_elsewhere, range);
    free(range);
    if (status != CT_OK) {
        destroy(x);
        return status;
    }
    *out = (ct_exchange){
        .ctx = x,
        .rank = comm->rank,
        .n_rank = comm->size,
        .n_trial = ct_grad_pipe_n_trial(x->pipe),
        .begin = mpi_begin,
        .ready = mpi_ready,
        .ready_to = mpi_ready_to,
        .hear_parts = mpi_hear_parts,
        .poll = mpi_poll,
        .finish = mpi_finish,
        .wait = mpi_wait,
        .sum = mpi_sum,
        .max = mpi_max,
        .average = mpi_average,
        .broadcast = mpi_broadcast,
        .barrier = mpi_barrier,
        .counters = mpi_counters,
        .coding = mpi_coding,
        .absorbed = mpi_absorbed,
        .tries = mpi_tries,
        .restored = mpi_restored,
        .share = mpi_share,
        .reads = mpi_reads,
        .n_state = mpi_n_state,
        .state = mpi_state,
    };
    return CT_OK;
}

const ct_arena_ops *ct_exchange_mpi_arena(ct_comm *comm, const Ct__SolverParameter *param)
{
    const ct_arena_ops *shared = ct_comm_arena(comm);
    const char *name = (param->comm != NULL) ? param->comm->allreduce : "auto";
    const Ct__CompressionParameter *p = param->compression;

    if ((p != NULL) && (p->type != CT__COMPRESSION_PARAMETER__TYPE__NONE) &&
        (p->exchange == CT__COMPRESSION_PARAMETER__EXCHANGE__KIND__HIER))
        return shared; /* its nodes add gradients up where they are */
    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
        if (strcmp(name, (*at)->name) == 0) return (*at)->shares_memory ? shared : ct_arena_plain();
    }
    return shared; /* auto; a wrong name is found when the exchange opens */
}

void ct_exchange_mpi_close(ct_exchange *exchange)
{
    if (exchange->ctx == NULL) return;
    destroy(exchange->ctx);
    *exchange = (ct_exchange){ .ctx = NULL };
}
