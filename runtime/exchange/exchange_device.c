#include "runtime/exchange/exchange_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/exchange/exchange_inner.h"

#define BUCKET_BYTES                                                                               \
    (16 << 20) /* long enough to run at the link's speed, short enough to overlap */

/* Parameters [first, first + n), which travel together. */
typedef struct bucket {
    int first, n, n_ready;
    void *ticket; /* of the sum under way; NULL: it has not begun, or has landed */
} bucket;

struct ct_exchange_device {
    ct_exchange inner; /* first: exchange_inner.h */
    const ct_net *net;
    const ct_device_sum_ops *ops;
    void *group;
    ct_stream stream; /* what the device computes */
    bucket *bucket;
    int *bucket_of; /* per parameter */
    int n_bucket;
    int begun, landed; /* buckets of this step, in their order */
    int64_t bytes;
};

/* Sizes alone decide, so all ranks cut alike. */
static void cut(ct_exchange_device *x, int64_t most)
{
    const ct_net *net = x->net;

    for (int i = 0; i < net->n_param;) {
        bucket *b = &x->bucket[x->n_bucket];
        int64_t bytes = 0;

        *b = (bucket){ .first = i };
        while ((i < net->n_param) && ((bytes == 0) || (bytes < most))) {
            if (net->param[i].learns) bytes += net->param[i].count * (int64_t)sizeof(float);
            x->bucket_of[i++] = x->n_bucket;
            b->n++;
        }
        x->n_bucket++;
    }
}

static ct_status open_group(ct_exchange_device *x)
{
    char id[CT_DEVICE_SUM_ID] = { 0 };
    ct_status status = CT_OK;
    int64_t worst;

    if (x->inner.rank == 0) status = x->ops->make_id(id);
    worst = (int64_t)status;
    CT_TRY(x->inner.max(x->inner.ctx, &worst, 1));
    if (worst != 0) return (ct_status)worst;
    CT_TRY(x->inner.broadcast(x->inner.ctx, id, sizeof(id)));
    return x->ops->open(x->net->options.dev, id, x->inner.rank, x->inner.n_rank, &x->group);
}

ct_status ct_exchange_device_create(const ct_net *net, const ct_device_sum_ops *ops,
                                    const ct_exchange *inner, int64_t bucket_bytes,
                                    ct_exchange_device **x_p)
{
    ct_exchange_device *x = calloc(1, sizeof(*x));
    const ct_graph_ops *graph = net->options.dev->graph;
    ct_status status = CT_OK;

    if (x == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for an exchange");
    x->inner = *inner;
    x->net = net;
    x->ops = ops;
    x->bucket = calloc((size_t)net->n_param + 1, sizeof(*x->bucket));
    x->bucket_of = calloc((size_t)net->n_param + 1, sizeof(*x->bucket_of));
    if ((x->bucket == NULL) || (x->bucket_of == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for an exchange");
    if (status == CT_OK) {
        cut(x, (bucket_bytes > 0) ? bucket_bytes : BUCKET_BYTES);
        if ((graph != NULL) && net->options.graph) status = graph->stream_open(&x->stream);
    }
    if (status == CT_OK) status = open_group(x);
    if (status != CT_OK) {
        ct_exchange_device_destroy(x);
        return status;
    }
    x->begun = x->landed = x->n_bucket; /* nothing is under way */
    *x_p = x;
    return CT_OK;
}

void ct_exchange_device_destroy(ct_exchange_device *x)
{
    if (x == NULL) return;
    x->ops->close(x->group);
    free(x->bucket);
    free(x->bucket_of);
    free(x);
}

void ct_exchange_device_describe(void *ctx, char *text, size_t size)
{
    const ct_exchange_device *x = ctx;

    snprintf(text, size,
             "gradients are added up on the GPUs, by %s: one of %d ranks that is gone keeps all "
             "waiting",
             x->ops->name, x->inner.n_rank);
}

/* ---- a step */

/* No gradient is ready. */
static void reset(ct_exchange_device *x)
{
    for (int k = 0; k < x->n_bucket; k++) {
        bucket *b = &x->bucket[k];

        b->n_ready = 0;
        for (int i = b->first; i < b->first + b->n; i++) b->n_ready += !x->net->param[i].learns;
    }
    x->begun = x->landed = 0;
}

static ct_status device_begin(void *ctx, int64_t iteration, float scale, float rate)
{
    ct_exchange_device *x = ctx;

    (void)iteration, (void)scale, (void)rate;
    if (x->landed != x->n_bucket)
        return CT_FAIL(CT_ERR_ARG, "a step begins with %d of %d buckets under way",
                       x->n_bucket - x->landed, x->n_bucket);
    reset(x);
    return CT_OK;
}

/* The elements that bucket b sends. */
static int64_t elements(const ct_exchange_device *x, const bucket *b, int64_t *from_p)
{
    const ct_param *param = x->net->param;
    int end = b->first + b->n;

    while ((end > b->first) && !param[end - 1].learns) end--; /* those come last */
    *from_p = param[b->first].offset;
    return (end > b->first) ? param[end - 1].offset + param[end - 1].count - *from_p : 0;
}

/* Buckets leave in their order, the same on all ranks, whenever each is whole. */
static ct_status leave(ct_exchange_device *x)
{
    while ((x->begun < x->n_bucket) && (x->bucket[x->begun].n_ready == x->bucket[x->begun].n)) {
        bucket *b = &x->bucket[x->begun];
        int64_t from, count = elements(x, b, &from);

        if (count > 0) {
            CT_TRY(
                x->ops->begin(x->group, x->stream, x->net->grad_arena + from, count, &b->ticket));
            x->bytes += count * (int64_t)sizeof(float);
        }
        x->begun++;
    }
    return CT_OK;
}

static ct_status device_ready(void *ctx, int param)
{
    ct_exchange_device *x = ctx;

    if ((param < 0) || (param >= x->net->n_param))
        return CT_FAIL(CT_ERR_ARG, "gradient of parameter %d of %d", param, x->net->n_param);
    if (!x->net->param[param].learns) return CT_OK;
    x->bucket[x->bucket_of[param]].n_ready++;
    return leave(x);
}

/* Up to bucket `end`: what the device is given from here on comes after their sums. */
static ct_status land(ct_exchange_device *x, int end, ct_landed_fn landed, void *landed_ctx)
{
    CT_TRY(leave(x)); /* a net may have buckets without any gradient */
    if (end > x->begun)
        return CT_FAIL(CT_ERR_ARG, "bucket %d of %d is waited for and has not left", x->begun,
                       x->n_bucket);
    while (x->landed < end) {
        bucket *b = &x->bucket[x->landed];

        if (b->ticket != NULL) CT_TRY(x->ops->follow(x->group, x->stream, b->ticket));
        b->ticket = NULL;
        x->landed++;
        CT_TRY(landed(landed_ctx, b->first, b->n));
    }
    return CT_OK;
}

static ct_status device_finish(void *ctx, ct_landed_fn landed, void *landed_ctx)
{
    ct_exchange_device *x = ctx;

    return land(x, x->n_bucket, landed, landed_ctx);
}

static ct_status device_wait(void *ctx, int first, int n, ct_landed_fn landed, void *landed_ctx)
{
    ct_exchange_device *x = ctx;

    return (n > 0) ? land(x, x->bucket_of[first + n - 1] + 1, landed, landed_ctx) : CT_OK;
}

static ct_status device_replay(void *ctx, ct_replay what)
{
    ct_exchange_device *x = ctx;
    int64_t from;

    for (int k = 0; k < x->n_bucket; k++) {
        bucket *b = &x->bucket[k];

        if (what == CT_REPLAY_GIVEN)
            x->bytes += elements(x, b, &from) * (int64_t)sizeof(float);
        else if (k < x->begun)
            x->bytes -= elements(x, b, &from) * (int64_t)sizeof(float);
        if (b->ticket != NULL) x->ops->drop(x->group, b->ticket);
        b->ticket = NULL;
    }
    if (what == CT_REPLAY_DROPPED) {
        reset(x);
        return CT_OK;
    }
    x->begun = x->landed = x->n_bucket;
    return x->ops->given(x->group);
}

static ct_status device_sum_there(void *ctx, ct_stream st, double *v, int n)
{
    ct_exchange_device *x = ctx;

    return x->ops->sum(x->group, st, v, n);
}

static ct_status device_poll(void *ctx)
{
    ct_exchange_device *x = ctx;

    return (x->ops->poll != NULL) ? x->ops->poll(x->group) : CT_OK;
}

static void device_counters(void *ctx, ct_exchange_counters *out)
{
    const ct_exchange_device *x = ctx;

    *out = (ct_exchange_counters){ .bytes_sent = x->bytes };
}

/* ---- no codecs: nothing is kept */

static int device_n_state(void *ctx)
{
    (void)ctx;
    return 0;
}

static ct_status device_state(void *ctx, int i, ct_exchange_state *out)
{
    (void)ctx, (void)out;
    return CT_FAIL(CT_ERR_ARG, "sums on the device keep no state, asked for %d", i);
}

void ct_exchange_device_wrap(ct_exchange_device *x, ct_exchange *out)
{
    *out = ct_exchange_inner(x);
    out->n_trial = 0;
    out->begin = device_begin;
    out->ready = device_ready;
    out->poll = device_poll;
    out->finish = device_finish;
    out->wait = device_wait;
    out->sum_there = (x->ops->sum != NULL) ? device_sum_there : NULL;
    out->counters = device_counters;
    out->replay = (x->ops->given != NULL) ? device_replay : NULL;
    out->coding = NULL;
    out->absorbed = NULL;
    out->tries = NULL;
    out->share = NULL;
    out->reads = NULL;
    out->n_state = device_n_state;
    out->state = device_state;
    out->restored = NULL;
}
