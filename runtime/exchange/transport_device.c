#include "runtime/exchange/transports.h"

#include <stdlib.h>

enum { BUCKET_BYTES = 16 << 20 /* long enough for the link's speed, short enough to overlap */ };

/* Parameters [first, first + n), which travel together. */
typedef struct bucket {
    int first, n, n_ready; /* of n_learn */
    int n_learn;
    int64_t from, count; /* elements of the gradient arena */
    void *ticket;        /* of the sum under way; NULL: it has not begun, or has landed */
} bucket;

struct ct_transport_device {
    const ct_net *net;
    const ct_device_sum_ops *lib;
    void *group;      /* the library's, borrowed */
    ct_stream stream; /* what the device computes */
    bucket *bucket;
    int *bucket_of; /* per parameter */
    int n_bucket;
    int begun, landed;          /* buckets of this step, in their order */
    int64_t step_bytes, n_step; /* steps that have left */
};

/* Sizes alone decide, so all ranks cut alike. What does not learn comes last, and sends nothing. */
static void cut(ct_transport_device *x, int64_t most)
{
    const ct_net *net = x->net;

    for (int i = 0; i < net->n_param; x->n_bucket++) {
        bucket *b = &x->bucket[x->n_bucket];
        int64_t bytes = 0;

        *b = (bucket){ .first = i, .from = net->param[i].offset };
        for (; (i < net->n_param) && ((bytes == 0) || (bytes < most)); i++, b->n++) {
            const ct_param *p = &net->param[i];

            x->bucket_of[i] = x->n_bucket;
            if (!p->learns) continue;
            bytes += p->count * (int64_t)sizeof(float);
            b->n_learn++;
            b->count = p->offset + p->count - b->from;
        }
        x->step_bytes += b->count * (int64_t)sizeof(float);
    }
}

/* ---- a step */

/* No gradient is ready. */
static void reset(ct_transport_device *x)
{
    for (int k = 0; k < x->n_bucket; k++) x->bucket[k].n_ready = 0;
    x->begun = x->landed = 0;
}

ct_status ct_transport_device_begin(ct_transport_device *x)
{
    if (x->landed != x->n_bucket)
        return CT_FAIL(CT_ERR_ARG, "a step begins with %d of %d buckets under way",
                       x->n_bucket - x->landed, x->n_bucket);
    reset(x);
    return CT_OK;
}

/* Buckets leave in their order, the same on all ranks, whenever each is whole. */
static ct_status leave(ct_transport_device *x)
{
    for (; x->begun < x->n_bucket; x->begun++) {
        bucket *b = &x->bucket[x->begun];

        if (b->n_ready < b->n_learn) break;
        if (b->count > 0)
            CT_TRY(x->lib->begin(x->group, x->stream, x->net->grad_arena + b->from, b->count,
                                 &b->ticket));
        x->n_step += (x->begun + 1 == x->n_bucket);
    }
    return CT_OK;
}

static ct_status device_ready(void *ctx, int param)
{
    ct_transport_device *x = ctx;

    if ((param < 0) || (param >= x->net->n_param))
        return CT_FAIL(CT_ERR_ARG, "gradient of parameter %d of %d", param, x->net->n_param);
    x->bucket[x->bucket_of[param]].n_ready++;
    return leave(x);
}

/* Up to bucket `end`: what the device is given from here on comes after their sums. */
static ct_status land(ct_transport_device *x, int end, ct_landed_fn landed, void *landed_ctx)
{
    CT_TRY(leave(x)); /* a net may have buckets without any gradient */
    if (end > x->begun)
        return CT_FAIL(CT_ERR_ARG, "bucket %d of %d is waited for and has not left", x->begun,
                       x->n_bucket);
    while (x->landed < end) {
        bucket *b = &x->bucket[x->landed];

        if (b->ticket != NULL) CT_TRY(x->lib->follow(x->group, x->stream, b->ticket));
        b->ticket = NULL;
        x->landed++;
        CT_TRY(landed(landed_ctx, b->first, b->n));
    }
    return CT_OK;
}

static ct_status device_finish(void *ctx, ct_landed_fn landed, void *landed_ctx)
{
    ct_transport_device *x = ctx;

    return land(x, x->n_bucket, landed, landed_ctx);
}

static ct_status device_wait(void *ctx, int first, int n, ct_landed_fn landed, void *landed_ctx)
{
    ct_transport_device *x = ctx;

    return (n > 0) ? land(x, x->bucket_of[first + n - 1] + 1, landed, landed_ctx) : CT_OK;
}

static ct_status device_replay(void *ctx, ct_replay what)
{
    ct_transport_device *x = ctx;
    bool had_left = (x->begun == x->n_bucket);

    for (int k = 0; k < x->n_bucket; k++) {
        bucket *b = &x->bucket[k];

        if (b->ticket != NULL) x->lib->drop(x->group, b->ticket);
        b->ticket = NULL;
    }
    if (what == CT_REPLAY_DROPPED) {
        x->n_step -= had_left;
        reset(x);
        return CT_OK;
    }
    x->n_step++;
    x->begun = x->landed = x->n_bucket;
    return x->lib->given(x->group);
}

static ct_status device_poll(void *ctx)
{
    const ct_transport_device *x = ctx;

    return (x->lib->poll != NULL) ? x->lib->poll(x->group) : CT_OK;
}

static const ct_transport_ops ops = {
    .ready = device_ready,
    .poll = device_poll,
    .wait = device_wait,
    .finish = device_finish,
    .replay = device_replay,
};

/* ---- making it */

ct_status ct_transport_device_create(const ct_net *net, const ct_device_sum_ops *lib, void *library,
                                     int64_t bucket_bytes, ct_transport_device **x_p,
                                     ct_transport *out)
{
    ct_transport_device *x = calloc(1, sizeof(*x));
    const ct_graph_ops *graph = net->options.dev->graph;
    ct_status status = CT_OK;

    if (x == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for an exchange");
    x->net = net;
    x->lib = lib;
    x->group = library;
    x->bucket = calloc((size_t)net->n_param + 1, sizeof(*x->bucket));
    x->bucket_of = calloc((size_t)net->n_param + 1, sizeof(*x->bucket_of));
    if ((x->bucket == NULL) || (x->bucket_of == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for an exchange");
    else if ((graph != NULL) && net->options.graph)
        status = graph->stream_open(&x->stream);
    if (status != CT_OK) {
        ct_transport_device_destroy(x);
        return status;
    }
    cut(x, (bucket_bytes > 0) ? bucket_bytes : BUCKET_BYTES);
    x->begun = x->landed = x->n_bucket; /* nothing is under way */
    *x_p = x;
    *out = (ct_transport){ .ctx = x, .ops = &ops, .records = (lib->given != NULL) };
    return CT_OK;
}

int64_t ct_transport_device_bytes(const ct_transport_device *x)
{
    return x->n_step * x->step_bytes;
}

void ct_transport_device_destroy(ct_transport_device *x)
{
    if (x == NULL) return;
    free(x->bucket);
    free(x->bucket_of);
    free(x);
}
