#include "framework/tools/exchange_staged.h"

#include <stdlib.h>
#include <string.h>

#include "framework/tools/exchange_inner.h"

/* A gradient on its way down. */
typedef struct descent {
    int param;
    void *ticket; /* of the device's copy; NULL: it is there */
} descent;

struct ct_exchange_staged {
    ct_exchange inner; /* first: exchange_inner.h */
    const ct_net *net;
    const ct_device *dev;
    float *host; /* as long as the gradient arena */
    bool *stays; /* [n_param] on the device: ct_exchange_staged_leave() */
    descent *queue;
    int first, end; /* of queue: not handed over yet; it is as long as there are parameters */
    ct_landed_fn landed;
    void *landed_ctx;
    int64_t down, up;
};

/* ---- memory */

ct_status ct_exchange_staged_create(const ct_net *net, ct_exchange_staged **s_p)
{
    const ct_device *dev = net->options.dev;
    size_t bytes = (size_t)net->grad_count * sizeof(float);
    ct_exchange_staged *s = calloc(1, sizeof(*s));
    void *host = NULL;

    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to stage gradients");
    s->net = net;
    s->dev = dev;
    s->queue = calloc((size_t)net->n_param + 1, sizeof(*s->queue));
    s->stays = calloc((size_t)net->n_param + 1, sizeof(*s->stays));
    if ((s->queue != NULL) && (s->stays != NULL)) {
        if (dev->host_acquire != NULL)
            (void)dev->host_acquire(bytes, &host);
        else
            host = ct_mem_acquire(bytes);
    }
    if (host == NULL) {
        ct_exchange_staged_destroy(s);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu bytes of gradients on the host", bytes);
    }
    memset(host, 0, bytes);
    s->host = host;
    *s_p = s;
    return CT_OK;
}

void ct_exchange_staged_destroy(ct_exchange_staged *s)
{
    if (s == NULL) return;
    if ((s->host != NULL) && (s->dev->host_release != NULL))
        s->dev->host_release(s->host);
    else
        ct_mem_release(s->host);
    free(s->queue);
    free(s->stays);
    free(s);
}

void ct_exchange_staged_leave(ct_exchange_staged *s, int param, bool stays)
{
    s->stays[param] = stays;
}

float *ct_exchange_staged_arena(const ct_exchange_staged *s)
{
    return s->host;
}

void ct_exchange_staged_bytes(const ct_exchange_staged *s, int64_t *down_p, int64_t *up_p)
{
    *down_p = s->down;
    *up_p = s->up;
}

/* ---- down */

static bool is_there(const ct_exchange_staged *s, descent *d, bool wait, ct_status *status_p)
{
    bool done = true;

    if (d->ticket == NULL) return true;
    *status_p = s->dev->copy_done(d->ticket, wait, &done);
    if (done) d->ticket = NULL;
    return done && (*status_p == CT_OK);
}

/* Hands over what is there, in the order in which it got ready; wait: all of it. */
static ct_status hand_over(ct_exchange_staged *s, bool wait)
{
    ct_status status = CT_OK;

    while ((s->first < s->end) && is_there(s, &s->queue[s->first], wait, &status)) {
        CT_TRY(s->inner.ready(s->inner.ctx, s->queue[s->first].param));
        s->first++;
    }
    return status;
}

static ct_status staged_ready(void *ctx, int param)
{
    ct_exchange_staged *s = ctx;
    const ct_param *p;
    size_t bytes;

    if ((param < 0) || (param >= s->net->n_param))
        return CT_FAIL(CT_ERR_ARG, "gradient of parameter %d of %d", param, s->net->n_param);
    p = &s->net->param[param];
    if (!p->learns || s->stays[param]) return s->inner.ready(s->inner.ctx, param);
    bytes = (size_t)p->count * sizeof(float);
    if (s->first == s->end) s->first = s->end = 0;
    s->queue[s->end] = (descent){ .param = param };
    if (s->dev->copy_begin != NULL)
        CT_TRY(s->dev->copy_begin(NULL, s->host + p->offset, ct_blob_diff(&p->blob), bytes, true,
                                  &s->queue[s->end].ticket));
    else
        CT_TRY(s->dev->to_host(NULL, s->host + p->offset, ct_blob_diff(&p->blob), bytes));
    s->end++;
    s->down += (int64_t)bytes;
    return hand_over(s, false);
}

static ct_status staged_poll(void *ctx)
{
    ct_exchange_staged *s = ctx;

    CT_TRY(hand_over(s, false));
    return s->inner.poll(s->inner.ctx);
}

/* ---- up: the parameters of a bucket are neighbours in the arena */

static ct_status up(void *ctx, int first, int n)
{
    ct_exchange_staged *s = ctx;
    const ct_net *net = s->net;
    const ct_param *last;
    int64_t from, count;
    void *ticket = NULL;

    while ((n > 0) && !net->param[first + n - 1].learns) n--;
    if ((n > 0) && !s->stays[first]) { /* those that stay are buckets of their own */
        last = &net->param[first + n - 1];
        from = net->param[first].offset;
        count = last->offset + last->count - from;
        if (s->dev->copy_begin != NULL)
            CT_TRY(s->dev->copy_begin(NULL, s->host + from, net->grad_arena + from,
                                      (size_t)count * sizeof(float), false, &ticket));
        else
            CT_TRY(s->dev->from_host(NULL, net->grad_arena + from, s->host + from,
                                     (size_t)count * sizeof(float)));
        s->up += count * (int64_t)sizeof(float);
    }
    return s->landed(s->landed_ctx, first, n);
}

static ct_status staged_finish(void *ctx, ct_landed_fn landed, void *landed_ctx)
{
    ct_exchange_staged *s = ctx;

    s->landed = landed;
    s->landed_ctx = landed_ctx;
    CT_TRY(hand_over(s, true));
    return s->inner.finish(s->inner.ctx, up, s);
}

static ct_status staged_wait(void *ctx, int first, int n, ct_landed_fn landed, void *landed_ctx)
{
    ct_exchange_staged *s = ctx;

    s->landed = landed;
    s->landed_ctx = landed_ctx;
    CT_TRY(hand_over(s, true));
    return s->inner.wait(s->inner.ctx, first, n, up, s);
}

void ct_exchange_staged_wrap(ct_exchange_staged *s, const ct_exchange *inner, ct_exchange *out)
{
    s->inner = *inner;
    *out = ct_exchange_inner(s);
    out->ready = staged_ready;
    out->poll = staged_poll;
    out->finish = staged_finish;
    out->wait = staged_wait;
}
