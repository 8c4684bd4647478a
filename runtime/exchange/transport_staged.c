#include "runtime/exchange/transports.h"

#include <stdlib.h>
#include <string.h>

/* Elements of a gradient that come down at once: 4 MiB, some 0.1 ms on a bus, which is long beside
 * what begins a copy and short beside what a message of so many takes. */
enum { CHUNK = 1 << 20 };

/* A gradient on its way down, or a part of it. */
typedef struct descent {
    int param;
    int64_t end;  /* its elements up to here   */
    void *ticket; /* of the device's copy; NULL: it is there */
} descent;

struct ct_transport_staged {
    ct_transport inner;
    const ct_net *net;
    const ct_device *dev;
    float *host; /* as long as the gradient arena */
    bool *stays; /* [n_param] on the device: ct_transport_staged_leave() */
    bool *is_up; /* [n_param] it went up in parts */
    descent *queue;
    int first, end; /* of queue: not handed over yet; it has room for all chunks of all */
    ct_landed_fn landed;
    void *landed_ctx;
    int64_t down, up;
};

/* ---- down */

static bool is_there(const ct_transport_staged *s, descent *d, bool wait, ct_status *status_p)
{
    bool done = true;

    if (d->ticket == NULL) return true;
    *status_p = s->dev->copy_done(d->ticket, wait, &done);
    if (done) d->ticket = NULL;
    return done && (*status_p == CT_OK);
}

/* Hands over what is there, in the order in which it got ready; wait: all of it. */
static ct_status hand_over(ct_transport_staged *s, bool wait)
{
    ct_status status = CT_OK;

    while ((s->first < s->end) && is_there(s, &s->queue[s->first], wait, &status)) {
        const descent *d = &s->queue[s->first++];

        if (d->end == s->net->param[d->param].count)
            CT_TRY(s->inner.ops->ready(s->inner.ctx, d->param));
        else
            CT_TRY(s->inner.ops->ready_to(s->inner.ctx, d->param, d->end));
    }
    return status;
}

/* Elements [from, end) of this gradient begin to come down. */
static ct_status go_down(ct_transport_staged *s, int param, int64_t from, int64_t end)
{
    const ct_param *p = &s->net->param[param];
    descent *d = &s->queue[s->end];
    float *to = s->host + p->offset + from, *of = ct_blob_diff(&p->blob) + from;
    size_t bytes = (size_t)(end - from) * sizeof(float);

    *d = (descent){ .param = param, .end = end };
    CT_TRY(s->dev->copy_begin(NULL, to, of, bytes, true, &d->ticket));
    s->end++;
    s->down += (int64_t)bytes;
    return CT_OK;
}

static ct_status staged_ready(void *ctx, int param)
{
    ct_transport_staged *s = ctx;
    const ct_param *p = &s->net->param[param];
    int64_t chunk;

    if (s->stays[param]) return s->inner.ops->ready(s->inner.ctx, param);
    if (s->first == s->end) s->first = s->end = 0;
    s->is_up[param] = false;
    chunk = (s->inner.ops->ready_to != NULL) ? CHUNK : p->count;
    for (int64_t from = 0, end = -1; end < p->count; from = end) { /* once where it is empty */
        end = (p->count - from > chunk) ? from + chunk : p->count;
        CT_TRY(go_down(s, param, from, end));
    }
    return hand_over(s, false);
}

static ct_status staged_poll(void *ctx)
{
    ct_transport_staged *s = ctx;

    CT_TRY(hand_over(s, false));
    return s->inner.ops->poll(s->inner.ctx);
}

/* ---- up: the parameters of a bucket are neighbours in the arena */

static ct_status go_up(ct_transport_staged *s, int64_t from, int64_t count)
{
    const ct_net *net = s->net;
    size_t bytes = (size_t)count * sizeof(float);
    void *ticket = NULL;

    CT_TRY(s->dev->copy_begin(NULL, s->host + from, net->grad_arena + from, bytes, false, &ticket));
    s->up += (int64_t)bytes;
    return CT_OK;
}

/* Beside the parts that are still under way between ranks. */
ct_status ct_transport_staged_part(void *ctx, int param, int64_t from, int64_t count)
{
    ct_transport_staged *s = ctx;

    if (s->stays[param]) return CT_OK;
    s->is_up[param] = true;
    return go_up(s, s->net->param[param].offset + from, count);
}

static ct_status up(void *ctx, int first, int n)
{
    ct_transport_staged *s = ctx;
    const ct_net *net = s->net;
    const ct_param *last;

    while ((n > 0) && !net->param[first + n - 1].learns) n--;
    /* those that stay, and those in parts, are buckets of their own */
    if ((n > 0) && !s->stays[first] && !s->is_up[first]) {
        last = &net->param[first + n - 1];
        CT_TRY(go_up(s, net->param[first].offset,
                     last->offset + last->count - net->param[first].offset));
    }
    return s->landed(s->landed_ctx, first, n);
}

static ct_status staged_finish(void *ctx, ct_landed_fn landed, void *landed_ctx)
{
    ct_transport_staged *s = ctx;

    s->landed = landed;
    s->landed_ctx = landed_ctx;
    CT_TRY(hand_over(s, true));
    return s->inner.ops->finish(s->inner.ctx, up, s);
}

static ct_status staged_wait(void *ctx, int first, int n, ct_landed_fn landed, void *landed_ctx)
{
    ct_transport_staged *s = ctx;

    s->landed = landed;
    s->landed_ctx = landed_ctx;
    CT_TRY(hand_over(s, true));
    return s->inner.ops->wait(s->inner.ctx, first, n, up, s);
}

static const ct_transport_ops ops = {
    .ready = staged_ready, .poll = staged_poll, .wait = staged_wait, .finish = staged_finish
};

/* ---- making it */

ct_status ct_transport_staged_create(const ct_net *net, const ct_transport *inner,
                                     ct_transport_staged **s_p, float **arena_p, ct_transport *out)
{
    size_t bytes = (size_t)net->grad_count * sizeof(float);
    ct_transport_staged *s = calloc(1, sizeof(*s));
    void *host = NULL;

    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to stage gradients");
    s->inner = *inner;
    s->net = net;
    s->dev = net->options.dev;
    s->queue = calloc((size_t)(net->grad_count / CHUNK + net->n_param + 1), sizeof(*s->queue));
    s->stays = calloc((size_t)net->n_param + 1, sizeof(*s->stays));
    s->is_up = calloc((size_t)net->n_param + 1, sizeof(*s->is_up));
    if ((s->queue != NULL) && (s->stays != NULL) && (s->is_up != NULL))
        (void)s->dev->host_acquire(bytes, &host);
    if (host == NULL) {
        ct_transport_staged_destroy(s);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu bytes of gradients on the host", bytes);
    }
    s->host = memset(host, 0, bytes);
    *s_p = s;
    *arena_p = s->host;
    *out = (ct_transport){ .ctx = s, .ops = &ops };
    return CT_OK;
}

void ct_transport_staged_destroy(ct_transport_staged *s)
{
    if (s == NULL) return;
    if (s->host != NULL) s->dev->host_release(s->host);
    free(s->queue);
    free(s->stays);
    free(s->is_up);
    free(s);
}

void ct_transport_staged_leave(ct_transport_staged *s, int param, bool stays)
{
    s->stays[param] = stays;
}

void ct_transport_staged_bytes(const ct_transport_staged *s, int64_t *down_p, int64_t *up_p)
{
    *down_p = s->down;
    *up_p = s->up;
}
